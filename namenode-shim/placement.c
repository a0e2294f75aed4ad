/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/placement.h"

#include <stdlib.h>
#include <string.h>

#include "namenode-shim/arena.h"
#include "namenode-shim/datanodes.h"

/* What a node is to offer; where none does, less will do: first room that was promised to others, who may
 * never need it (a node with none refuses, and the writer asks for another), then any rack, then a node that
 * has been silent for a while. */
enum {
	WITH_PROMISED = 1,
	WITH_ANY_RACK = 2,
	WITH_STALE = 4,
	COMPROMISES = 8, /* that many sets of them, the best first */
};

static uint64_t room(const struct storage *st, unsigned int with)
{
	const uint64_t promised = with & WITH_PROMISED ? 0 : st->promised;

	return st->failed || promised > st->remaining ? 0 : st->remaining - promised;
}

/* A storage of @dn with room, by chance in proportion to its room. */
static struct storage *pick_storage(struct datanodes *d, const struct dn *dn, uint64_t need, unsigned int with)
{
	uint64_t total = 0, r;

	for (uint32_t i = 0; i < dn->nstorages; i++)
		total += room(dn->storage[i], with) >= need ? room(dn->storage[i], with) / 4096 + 1 : 0;
	if (!total)
		return NULL;
	r = rng_next(&d->rng) % total;
	for (uint32_t i = 0; i < dn->nstorages; i++) {
		const uint64_t free = room(dn->storage[i], with), w = free >= need ? free / 4096 + 1 : 0;

		if (r < w)
			return dn->storage[i];
		r -= w;
	}
	return NULL;
}

static bool has_room(const struct dn *dn, uint64_t need, unsigned int with)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (room(dn->storage[i], with) >= need)
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

static struct rack_rule rule_of(const struct dn *const *holder, uint32_t n, uint32_t total, uint32_t racks,
				bool spread)
{
	struct rack_rule r = {.holder = holder, .nholders = n, .most = (total - 1) / racks + 2};

	if (spread) {
		r.most = (total - 1) / racks + 1;
		return r;
	}
	if (n == 1 || (n == 2 && !strcmp(holder[0]->rack, holder[1]->rack)))
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

/* Those that offer what they are to, or all but @with, to the front; how many. */
static uint32_t sort_fitting(const struct rack_rule *r, uint64_t need, unsigned int with, struct dn **cand,
			     uint32_t n)
{
	uint32_t ok = 0;

	for (uint32_t i = 0; i < n; i++)
		if ((with & WITH_STALE || !cand[i]->stale) && (with & WITH_ANY_RACK || fits(r, cand[i])) &&
		    has_room(cand[i], need, with)) {
			struct dn *tmp = cand[ok];

			cand[ok++] = cand[i];
			cand[i] = tmp;
		}
	return ok;
}

static uint32_t candidates(const struct datanodes *d, const struct place *p, struct dn **cand)
{
	uint32_t n = 0;

	for (struct dn *dn = d->table; dn; dn = dn->hh.next)
		if (dn->alive && dn->admin == DN_NORMAL && !excluded(p, dn) &&
		    has_room(dn, p->block_size, WITH_PROMISED))
			cand[n++] = dn;
	return n;
}

/* Which compromises are none. When many are silent the others would have to bear all the writing. */
static unsigned int made_anyway(const struct datanodes *d, uint32_t racks)
{
	uint32_t live = 0, stale = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next) {
		live += dn->alive;
		stale += dn->alive && dn->stale;
	}
	return (racks > 1 ? 0 : WITH_ANY_RACK) |
	       (d->write_stale || stale > live * d->stale_ratio ? WITH_STALE : 0);
}

uint32_t place_choose(struct datanodes *d, const struct place *p, struct storage **ret)
{
	const uint32_t nodes = HASH_COUNT(d->table), racks = nodes ? datanodes_racks(d) : 1;
	struct dn **cand = xcalloc(nodes + 1, sizeof(struct dn *));
	const struct dn **holder = xcalloc((size_t)p->nholders + p->want + 1, sizeof(struct dn *));
	const unsigned int anyway = made_anyway(d, racks);
	uint32_t n = candidates(d, p, cand), got = 0, held = p->nholders;

	for (uint32_t i = 0; i < held; i++)
		holder[i] = p->exclude[i];
	for (; got < p->want && n; got++) {
		const struct rack_rule rule =
			rule_of(holder, held, p->nholders + p->want, racks, p->spread);
		unsigned int with = 0;
		uint32_t ok = 0, i;

		for (unsigned int more = 0; !ok && more < COMPROMISES; more++) {
			with = more | anyway | (held ? 0 : WITH_ANY_RACK);
			ok = sort_fitting(&rule, p->block_size, with, cand, n);
		}
		i = held ? pick_index(d, cand, ok) : pick_local(d, p, cand, ok);
		ret[got] = pick_storage(d, cand[i], p->block_size, with);
		storage_promise(ret[got], p->block_size);
		holder[held++] = cand[i];
		cand[i] = cand[--n];
	}
	free(holder);
	free(cand);
	return got;
}
