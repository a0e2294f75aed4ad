/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/placement.h"

#include <stdlib.h>
#include <string.h>

#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/namespace/storage_policy.h"

#define DRAWS 64 /* nodes that are looked at before all are */

/* What a node is to offer; where none does, less will do: first room that was promised to others,
 * who may never need it (a node with none refuses, and the writer asks for another), then any rack,
 * then a node that has been silent for a while. */
enum {
	WITH_PROMISED = 1,
	WITH_ANY_RACK = 2,
	WITH_STALE = 4,
	COMPROMISES = 8, /* that many sets of them, the best first */
};

/* Storage types by their enum. */
struct types {
	uint16_t want[STORAGE_TYPES]; /* so many replicas more */
	uint32_t gone;                /* set of those that no node has (left) */
};

/* The types that all replicas together are to have, without those that are there. */
static struct types types_wanted(const struct place *p)
{
	const struct storage_policy *policy =
		p->policy ? p->policy : storage_policy_by_id(POLICY_HOT);
	struct types t = {.gone = 0};

	storage_policy_types_wanted(policy, p->nhave + p->want, t.want);
	for (uint32_t i = 0; i < p->nhave; i++)
		if (t.want[p->have[i]])
			t.want[p->have[i]]--;
	return t;
}

/* None of the types wanted can be had: false when there is nothing in their place. */
static bool types_fall_back(struct types *t, const struct place *p)
{
	const struct storage_policy *policy =
		p->policy ? p->policy : storage_policy_by_id(POLICY_HOT);
	const uint8_t *type = p->copy ? policy->copy_fallback.type : policy->create_fallback.type;
	uint32_t n = 0;

	for (uint32_t i = 0; i < STORAGE_TYPES; i++) {
		n += t->want[i];
		t->gone |= t->want[i] ? 1u << i : 0;
		t->want[i] = 0;
	}
	while (*type && t->gone & 1u << *type)
		type++;
	t->want[*type] = (uint16_t)n;
	return *type;
}

static uint64_t room(const struct storage *st, unsigned int with)
{
	const uint64_t promised = with & WITH_PROMISED ? 0 : st->promised;

	return st->failed || promised > st->remaining ? 0 : st->remaining - promised;
}

/* A storage of @dn of this type with room, by chance in proportion to its room. */
static struct storage *pick_of_type(struct datanodes *d, const struct dn *dn, uint8_t type,
				    uint64_t need, unsigned int with)
{
	uint64_t weight[DN_STORAGES_MAX], total = 0, r;

	for (uint32_t i = 0; i < dn->nstorages; i++) {
		const uint64_t free = dn->storage[i]->type == type ? room(dn->storage[i], with) : 0;

		weight[i] = free && free >= need ? free / 4096 + 1 : 0;
		total += weight[i];
	}
	if (!total)
		return NULL;
	r = rng_next(&d->rng) % total;
	for (uint32_t i = 0; i < dn->nstorages; i++) {
		if (r < weight[i])
			return dn->storage[i];
		r -= weight[i];
	}
	return NULL;
}

static struct storage *pick_storage(struct datanodes *d, const struct dn *dn, const struct types *t,
				    uint64_t need, unsigned int with)
{
	static const uint8_t fast_first[] = {STORAGE_NVDIMM, STORAGE_SSD, STORAGE_DISK,
					     STORAGE_ARCHIVE, STORAGE_PROVIDED};
	struct storage *st = NULL;

	for (size_t i = 0; i < sizeof(fast_first) && !st; i++)
		if (t->want[fast_first[i]])
			st = pick_of_type(d, dn, fast_first[i], need, with);
	return st;
}

/* @t NULL: of any type. */
static bool has_room(const struct dn *dn, const struct types *t, uint64_t need, unsigned int with)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if ((!t || t->want[dn->storage[i]->type]) && room(dn->storage[i], with) >= need &&
		    room(dn->storage[i], with))
			return true;
	return false;
}

static bool excluded(const struct place *p, const struct dn *dn)
{
	for (uint32_t i = 0; i < p->nexclude; i++)
		if (p->exclude[i] == dn)
			return true;
	return false;
}

static uint64_t load(const struct dn *dn)
{
	uint64_t promised = 0;

	for (uint32_t i = 0; i < dn->nstorages; i++)
		promised += dn->storage[i]->promised;
	return promised >> 20 | (uint64_t)dn->xceivers << 4;
}

/* The less busy of two random candidates from cand[0..n). */
static uint32_t pick_index(struct datanodes *d, struct dn *const *cand, uint32_t n)
{
	const uint32_t a = (uint32_t)(rng_next(&d->rng) % n), b = (uint32_t)(rng_next(&d->rng) % n);

	return load(cand[a]) <= load(cand[b]) ? a : b;
}

static uint32_t pick_local(struct datanodes *d, const struct place *p, struct dn *const *cand,
			   uint32_t n)
{
	uint32_t local = 0, nth;

	for (uint32_t i = 0; p->writer_ip && i < n; i++)
		local += !strcmp(cand[i]->ip, p->writer_ip);
	if (!local)
		return pick_index(d, cand, n);
	nth = (uint32_t)(rng_next(&d->rng) % local);
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(cand[i]->ip, p->writer_ip) && !nth--)
			return i;
	return 0;
}

/* ---- racks ---- */

/* What the racks allow for the next replica, given the nodes that hold or will hold the others. */
struct rack_rule {
	const char *same, *other; /* it must be there; it must not be there; NULL: either */
	const struct dn *const *holder;
	uint32_t nholders, most; /* most: of one rack */
};

static uint32_t in_rack(const struct rack_rule *r, const char *rack)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->nholders; i++)
		n += !strcmp(r->holder[i]->rack, rack);
	return n;
}

static struct rack_rule rule_of(const struct place *p, const struct dn *const *holder, uint32_t n,
				uint32_t racks)
{
	const uint32_t total = p->nholders + p->want;
	struct rack_rule r = {.holder = holder, .nholders = n, .most = (total - 1) / racks + 2};

	if (p->spread) {
		r.most = p->rack_most ? p->rack_most : (total - 1) / racks + 1;
		return r;
	}
	if (n && in_rack(&r, holder[0]->rack) == n)
		r.other = holder[0]->rack;
	else if (n == 2)
		r.same = holder[1]->rack;
	return r;
}

static bool fits(const struct rack_rule *r, const struct dn *dn)
{
	if (r->same && strcmp(r->same, dn->rack))
		return false;
	if (r->other && !strcmp(r->other, dn->rack))
		return false;
	return in_rack(r, dn->rack) < r->most;
}

static bool is_to_stay(const struct replica *r)
{
	return !r->corrupt && !r->excess && storage_is_there(r->st) &&
	       r->st->dn->admin == DN_NORMAL;
}

void place_beside(struct place *p, const struct blk *b)
{
	const struct dn **not = xcalloc((size_t)b->nreps + b->npending + 1u, sizeof(struct dn *));
	uint8_t *have = xcalloc((size_t)b->nreps + b->npending + 1u, 1);

	for (uint16_t i = 0; i < b->nreps; i++)
		if (is_to_stay(&b->rep[i])) {
			not [p->nexclude++] = b->rep[i].st->dn;
			have[p->nhave++] = (uint8_t)b->rep[i].st->type;
		}
	p->nholders = p->nexclude;
	for (uint16_t i = 0; i < b->nreps; i++)
		if (!is_to_stay(&b->rep[i]))
			not [p->nexclude++] = b->rep[i].st->dn;
	for (uint16_t i = 0; i < b->npending; i++) {
		not [p->nexclude++] = b->pending[i].st->dn;
		have[p->nhave++] = (uint8_t)b->pending[i].st->type;
	}
	p->exclude = not ;
	p->have = have;
}

void place_free(struct place *p)
{
	free(p->exclude);
	free((void *)(uintptr_t)p->have);
}

/* One choice: of so many candidates, of these types, by this rule. */
struct search {
	struct dn **cand;
	uint32_t n;
	struct types types;
	struct rack_rule rule;
	unsigned int with; /* these compromises were made */
};

/* All that a node is to offer, or all but s->with. */
static bool offers(const struct search *s, const struct dn *dn, uint64_t need)
{
	return (!dn->stale || s->with & WITH_STALE) &&
	       (s->with & WITH_ANY_RACK || fits(&s->rule, dn)) &&
	       has_room(dn, &s->types, need, s->with);
}

/* Those that do to the front; how many. */
static uint32_t sort_fitting(const struct search *s, uint64_t need)
{
	uint32_t ok = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		struct dn *dn = s->cand[i];

		if (!offers(s, dn, need))
			continue;
		s->cand[i] = s->cand[ok];
		s->cand[ok++] = dn;
	}
	return ok;
}

static bool is_chosen(const struct search *s, const struct dn *dn)
{
	for (uint32_t i = 0; i < s->rule.nholders; i++)
		if (s->rule.holder[i] == dn)
			return true;
	return false;
}

static bool is_candidate(const struct search *s, const struct place *p, const struct dn *dn)
{
	return dn->alive && dn->admin == DN_NORMAL && !excluded(p, dn) && !is_chosen(s, dn) &&
	       has_room(dn, NULL, p->block_size, WITH_PROMISED);
}

static void find_candidates(struct search *s, const struct dn_index *x, const struct place *p)
{
	s->n = 0;
	for (uint32_t i = 0; i < x->n; i++)
		if (is_candidate(s, p, x->dn[i]))
			s->cand[s->n++] = x->dn[i];
}

/* Which compromises are none. When many are silent the others would have to bear all the writing.
 */
static unsigned int made_anyway(const struct datanodes *d, const struct dn_index *x)
{
	return (x->racks > 1 ? 0 : WITH_ANY_RACK) |
	       (d->write_stale || x->stale > x->live * d->stale_ratio ? WITH_STALE : 0);
}

/* The fewest compromises with which there are candidates, which are at the front then; how many: 0,
 * none at all. */
static uint32_t find_fitting(struct search *s, const struct place *p, unsigned int anyway)
{
	uint32_t ok = 0;

	do {
		for (unsigned int more = 0; !ok && more < COMPROMISES; more++) {
			s->with = more | anyway;
			if (p->other_rack && s->with & WITH_ANY_RACK)
				continue;
			ok = sort_fitting(s, p->block_size);
		}
	} while (!ok && !p->no_fallback && types_fall_back(&s->types, p));
	return ok;
}

/* A good one of those at the writer's address; NULL: there is none. */
static struct dn *draw_local(struct datanodes *d, const struct dn_index *x, const struct search *s,
			     const struct place *p)
{
	const uint32_t ip = dn_index_ip(p->writer_ip);
	struct dn *pick = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		struct dn *dn = x->ip[i] == ip ? x->dn[i] : NULL;

		if (dn && !strcmp(dn->ip, p->writer_ip) && is_candidate(s, p, dn) &&
		    offers(s, dn, p->block_size) && rng_next(&d->rng) % ++n == 0)
			pick = dn;
	}
	return pick;
}

/* Among many nodes most will do: two that were drawn, and the less busy of them, without a look at
 * all. NULL: few will do, or none without a compromise. */
static struct dn *draw(struct datanodes *d, const struct dn_index *x, struct search *s,
		       const struct place *p, unsigned int anyway, bool local)
{
	uint32_t found = 0, from = 0, n = x->n;
	struct dn *best;

	s->with = anyway;
	if (p->other_rack && anyway & WITH_ANY_RACK)
		return NULL;
	best = local && p->writer_ip ? draw_local(d, x, s, p) : NULL;
	if (best)
		return best;
	if (s->rule.same && !(anyway & WITH_ANY_RACK))
		n = dn_index_rack(x, s->rule.same, &from);
	for (uint32_t i = 0; n && i < DRAWS && found < 2; i++) {
		struct dn *dn = x->dn[from + rng_next(&d->rng) % n];

		if (!is_candidate(s, p, dn) || !offers(s, dn, p->block_size))
			continue;
		found++;
		best = !best || load(dn) < load(best) ? dn : best;
	}
	return best;
}

/* The same by a look at all of them. */
static struct dn *search_all(struct datanodes *d, const struct dn_index *x, struct search *s,
			     const struct place *p, unsigned int anyway, bool local)
{
	uint32_t ok;

	if (!s->cand)
		s->cand = xcalloc(x->n + 1u, sizeof(struct dn *));
	find_candidates(s, x, p);
	ok = s->n ? find_fitting(s, p, anyway) : 0;
	if (!ok)
		return NULL;
	return s->cand[local ? pick_local(d, p, s->cand, ok) : pick_index(d, s->cand, ok)];
}

uint32_t place_choose(struct datanodes *d, const struct place *p, struct storage **ret)
{
	const struct dn_index *x = datanodes_index(d);
	const struct dn **holder = xcalloc((size_t)p->nholders + p->want + 1, sizeof(struct dn *));
	struct search s = {.types = types_wanted(p)};
	const unsigned int anyway = made_anyway(d, x);
	uint32_t got = 0, held = p->nholders;

	for (uint32_t i = 0; i < held; i++)
		holder[i] = p->exclude[i];
	for (; got < p->want; got++) {
		const unsigned int with = anyway | (held ? 0 : WITH_ANY_RACK);
		struct dn *dn;

		s.rule = rule_of(p, holder, held, x->racks ? x->racks : 1);
		dn = draw(d, x, &s, p, with, !held);
		dn = dn ? dn : search_all(d, x, &s, p, with, !held);
		if (!dn)
			break;
		ret[got] = pick_storage(d, dn, &s.types, p->block_size, s.with);
		if (!ret[got])
			break;
		s.types.want[ret[got]->type]--;
		storage_promise(ret[got], p->block_size);
		holder[held++] = dn;
	}
	free(holder);
	free(s.cand);
	return got;
}
