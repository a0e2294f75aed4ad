/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of units: what differs from replicated blocks. */
#include <string.h>

#include "namenode-shim/blocks/blocks_internal.h"
#include "namenode-shim/blocks/datanodes.h"

static bool stays(const struct dn *dn)
{
	return dn->alive && dn->admin == DN_NORMAL;
}

static bool lives(const struct dn *dn)
{
	return dn->alive;
}

static bool is_away(const struct dn *dn)
{
	return dn->admin == DN_ENTERING_MAINTENANCE || dn->admin == DN_IN_MAINTENANCE;
}

static uint32_t units_on(const struct blk *b, bool (*where)(const struct dn *dn))
{
	uint32_t set = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		if (replica_is_good(&b->rep[i]) && where(b->rep[i].st->dn))
			set |= GROUP_UNIT(b->rep[i].unit);
	return set & ec_units_existing(blk_ec(b), b->b.len);
}

uint32_t group_live(const struct blk *b)
{
	return units_on(b, stays);
}

uint32_t group_readable(const struct blk *b)
{
	return units_on(b, lives);
}

uint32_t group_away(const struct blk *b)
{
	return units_on(b, is_away) & ~group_live(b);
}

/* All units; of those in maintenance so many less, as long as the group can be read without them.
 */
uint32_t group_wanted(const struct blk *b)
{
	const uint32_t all = (uint32_t)__builtin_popcount(ec_units_existing(blk_ec(b), b->b.len));
	const uint32_t away = (uint32_t)__builtin_popcount(group_away(b));
	const uint32_t least = ec_units_needed(blk_ec(b), b->b.len);

	return all > away + least ? all - away : least;
}

bool group_enough_as(const struct blk *b, uint64_t gs, uint64_t len)
{
	uint32_t set = 0;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (r->state == REPLICA_FINALIZED && !r->corrupt && r->gs == gs &&
		    !(r->st->sweep & SWEEP_FORGET) &&
		    r->len == ec_unit_length(blk_ec(b), len, r->unit))
			set |= GROUP_UNIT(r->unit);
	}
	set &= ec_units_existing(blk_ec(b), len);
	return (uint32_t)__builtin_popcount(set) >= ec_units_needed(blk_ec(b), len);
}

/* ---- racks ---- */

/* Where a copy is on its way that takes the place of what @dn has; NULL: it stays. */
static const struct storage *moves_to(const struct blk *b, const struct dn *dn)
{
	for (uint16_t i = 0; i < b->npending; i++)
		if (b->pending[i].drop == dn)
			return b->pending[i].st;
	return NULL;
}

void group_racks(const struct blk *b, struct group_racks *ret)
{
	*ret = (struct group_racks){.racks = 0};
	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];
		const struct storage *to;

		if (!replica_is_good(r) || !stays(r->st->dn))
			continue;
		to = moves_to(b, r->st->dn);
		ret->at[r->unit] = to ? to : r->st;
	}
	for (unsigned i = 0; i < b->repl; i++) {
		bool first = ret->at[i];

		ret->with[i] += first;
		for (unsigned k = 0; ret->at[i] && k < i; k++)
			if (ret->at[k] && !strcmp(ret->at[k]->dn->rack, ret->at[i]->dn->rack)) {
				ret->with[i]++;
				ret->with[k]++;
				first = false;
			}
		ret->racks += first;
	}
}

/* Could the units stand in more racks, or more evenly? Not while one is away: it comes back. */
static bool is_crowded(const struct blocks *bs, const struct blk *b, uint32_t live)
{
	const uint8_t most = bs->unit_racks.most[live];
	struct group_racks r;

	if (!bs->many_racks || group_away(b))
		return false;
	group_racks(b, &r);
	for (unsigned i = 0; most && i < b->repl; i++)
		if (r.with[i] > most)
			return true;
	return r.racks < live && r.racks < bs->unit_racks.racks;
}

/* Good units in the rack of @r, but for itself. */
static uint32_t beside(const struct blk *b, const struct replica *r)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		n += b->rep[i].unit != r->unit && replica_is_good(&b->rep[i]) &&
		     stays(b->rep[i].st->dn) && !strcmp(b->rep[i].st->dn->rack, r->st->dn->rack);
	return n;
}

static bool is_hinted(const struct blocks *bs, const struct replica *a, const struct replica *b)
{
	return bs->drop_hint && (bs->drop_hint == a->st->dn || bs->drop_hint == b->st->dn);
}

/* Of two nodes with the same unit; the order to copy it says which one gives it up, else the one in
 * the fuller rack does, or on a storage type that is not wanted. */
static bool is_rather_kept(const struct blocks *bs, const struct blk *b, uint32_t surplus,
			   const struct replica *a, const struct replica *than)
{
	const bool a_surplus = surplus >> a->st->type & 1,
		   than_surplus = surplus >> than->st->type & 1;

	if (is_hinted(bs, a, than))
		return bs->drop_hint != a->st->dn;
	if (bs->many_racks && beside(b, a) != beside(b, than))
		return beside(b, a) < beside(b, than);
	if (a_surplus != than_surplus)
		return than_surplus;
	return than->st->remaining < a->st->remaining;
}

/* ---- the check ---- */

/* A unit that two nodes have goes from one of them. False: not all, as the policy must say which
 * and is not known (NULL). */
static bool drop_twins(const struct blocks *bs, struct blk *b, const struct storage_policy *policy)
{
	const uint32_t all = (uint32_t)__builtin_popcount(ec_units_existing(blk_ec(b), b->b.len));
	const uint32_t surplus = policy ? blk_surplus_types(b, policy, all) : 0;
	struct replica *keep[EC_UNITS_MAX] = {NULL};
	bool done = true;

	for (uint16_t i = 0; i < b->nreps; i++) {
		struct replica *r = &b->rep[i], *other = keep[r->unit], *go;

		if (!replica_is_good(r) || !stays(r->st->dn))
			continue;
		if (other && !policy && other->st->type != r->st->type &&
		    !is_hinted(bs, r, other)) {
			done = false;
			continue;
		}
		keep[r->unit] = !other || is_rather_kept(bs, b, surplus, r, other) ? r : other;
		go = !other ? NULL : keep[r->unit] == r ? other : r;
		if (!go)
			continue;
		go->excess = true;
		dn_order_invalidate(go->st->dn, blk_replica_id(b, go), go->gs, false);
	}
	return done;
}

/* A corrupt unit goes once it is whole elsewhere; of an older stamp as soon as the group can do
 * without. */
static void drop_corrupt(struct blk *b)
{
	const uint32_t live = group_live(b);
	const bool readable =
		(uint32_t)__builtin_popcount(live) >= ec_units_needed(blk_ec(b), b->b.len);

	for (uint16_t i = 0; i < b->nreps; i++) {
		struct replica *r = &b->rep[i];

		if (r->corrupt && !r->excess &&
		    ((live & GROUP_UNIT(r->unit)) || (readable && r->gs < b->b.gs)) &&
		    !blk_node_has_good(b, r))
			blk_order_corrupt(b, r);
	}
}

static bool all_reported(const struct blk *b)
{
	const uint32_t all = ec_units_existing(blk_ec(b), b->b.len);
	uint32_t set = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		set |= GROUP_UNIT(b->rep[i].unit);
	return (set & all) == all;
}

void group_recheck(struct blocks *bs, struct blk *b, const struct storage_policy *policy)
{
	const uint32_t needed = ec_units_needed(blk_ec(b), b->b.len);
	uint32_t live, readable;
	unsigned int flags = 0;

	if (!bs->quiet) {
		flags |= drop_twins(bs, b, policy) ? 0u : BLK_SURPLUS;
		drop_corrupt(b);
	}
	for (uint16_t i = 0; i < b->nreps; i++)
		flags |= b->rep[i].corrupt && !b->rep[i].excess ? BLK_CORRUPT : 0u;
	live = blk_live(b);
	readable = blk_readable(b);
	if (live + b->npending < blk_wanted(bs, b))
		flags |= BLK_UNDER;
	else if (live > 1 && is_crowded(bs, b, live))
		flags |= BLK_CROWDED;
	if ((uint32_t)__builtin_popcount(group_readable(b) | group_away(b)) < needed)
		flags |= BLK_MISSING;
	flags |= live <= needed && (flags & (BLK_UNDER | BLK_MISSING)) == BLK_UNDER ? BLK_URGENT
										    : 0u;
	/* Nor does safe mode wait when all units are reported, and corrupt. */
	flags |= readable >= needed || all_reported(b) ? BLK_SAFE : 0u;
	blk_set_flags(bs, b, flags);
}
