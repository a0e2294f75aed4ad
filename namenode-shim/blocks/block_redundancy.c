/* SPDX-License-Identifier: Apache-2.0 */
/* Has a block the replicas that it should have? What is excess or corrupt is ordered away, what is
 * missing is queued for the redundancy monitor, and what was on its way too long is given up. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/blocks_internal.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/namespace/storage_policy.h"

#define EXPIRE_SLICE 4096 /* blocks that one look at replicas on their way looks at */

/* Is there another good replica in its rack? Then it is missed least there. */
static bool rack_has_another(const struct blk *b, const struct replica *r)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (&b->rep[i] != r && replica_is_good(&b->rep[i]) &&
		    !strcmp(b->rep[i].st->dn->rack, r->st->dn->rack))
			return true;
	return false;
}

/* It counts, and would go when there are too many. */
static bool may_go(const struct replica *r)
{
	return replica_is_good(r) && r->st->dn->admin == DN_NORMAL && r->st->dn->alive;
}

uint32_t blk_surplus_types(const struct blk *b, const struct storage_policy *policy, uint32_t total)
{
	uint16_t want[STORAGE_TYPES], have[STORAGE_TYPES] = {0};
	uint32_t set = 0;

	storage_policy_types_wanted(policy, total, want);
	for (uint16_t i = 0; i < b->nreps; i++)
		have[b->rep[i].st->type % STORAGE_TYPES] += may_go(&b->rep[i]);
	for (uint32_t i = 0; i < STORAGE_TYPES; i++)
		set |= have[i] > want[i] ? 1u << i : 0;
	return set;
}

static bool has_several_types(const struct blk *b)
{
	const struct replica *first = NULL;

	for (uint16_t i = 0; i < b->nreps; i++) {
		if (!may_go(&b->rep[i]))
			continue;
		first = first ? first : &b->rep[i];
		if (b->rep[i].st->type != first->st->type)
			return true;
	}
	return false;
}

/* Is @a rather given up than @b? @surplus: storage types of which there are too many. */
static bool is_missed_less(const struct blk *b, uint32_t surplus, const struct replica *a,
			   const struct replica *than)
{
	const bool a_shared = rack_has_another(b, a), shared = rack_has_another(b, than);
	const bool a_surplus = surplus >> a->st->type & 1,
		   than_surplus = surplus >> than->st->type & 1;

	if (a_shared != shared)
		return a_shared;
	if (a_surplus != than_surplus)
		return a_surplus;
	if (a->st->dn->stale != than->st->dn->stale)
		return a->st->dn->stale;
	return a->st->remaining < than->st->remaining;
}

/* That of the node which a balancer has copied it from, unless it is the only one in its rack. */
static struct replica *pick_hinted(const struct blocks *bs, struct blk *b)
{
	struct replica *r = bs->drop_hint ? blk_find_on_node(b, bs->drop_hint, 0) : NULL;

	if (!r || !replica_is_good(r) || bs->drop_hint->admin != DN_NORMAL || !bs->drop_hint->alive)
		return NULL;
	/* The copy is the last entry. */
	return rack_has_another(b, r) || !rack_has_another(b, &b->rep[b->nreps - 1]) ? r : NULL;
}

/* One of a rack with several; of these, one on a storage type that is not wanted; of these, that of
 * a node that may be dead, or else of the one with the least room. */
static struct replica *pick_excess(struct blk *b, const struct storage_policy *policy)
{
	const uint32_t surplus = policy ? blk_surplus_types(b, policy, b->repl) : 0;
	struct replica *pick = NULL;

	for (uint16_t i = 0; i < b->nreps; i++)
		if (may_go(&b->rep[i]) && (!pick || is_missed_less(b, surplus, &b->rep[i], pick)))
			pick = &b->rep[i];
	return pick;
}

/* The node is told to delete it, and it is forgotten. */
void blk_order_drop(struct blk *b, struct replica *r)
{
	dn_order_invalidate(r->st->dn, blk_replica_id(b, r), r->gs, false);
	blk_drop_replica(b, r);
}

void blk_order_corrupt(struct blk *b, struct replica *r)
{
	r->corrupt = r->damaged = r->excess = true;
	dn_order_invalidate(r->st->dn, blk_replica_id(b, r), r->gs, false);
}

/* The node deletes what it has of the block, whatever the storage. */
static void order_excess(struct blk *b, const struct replica *r)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		b->rep[i].excess = b->rep[i].excess || b->rep[i].st->dn == r->st->dn;
	dn_order_invalidate(r->st->dn, b->b.id, r->gs, false);
}

/* Replicas more than wanted go; not those of which the policy must say which, when it is not known
 * (NULL). How many stay. */
static uint32_t drop_excess(const struct blocks *bs, struct blk *b,
			    const struct storage_policy *policy)
{
	uint32_t live = blk_live(b);

	for (; live > b->repl; live--) {
		const struct replica *hinted = pick_hinted(bs, b);

		if (!hinted && !policy && has_several_types(b))
			break;
		order_excess(b, hinted ? hinted : pick_excess(b, policy));
	}
	return live;
}

/* Does its node have the same replica in a good state too? An order to delete would mean both. */
bool blk_node_has_good(const struct blk *b, const struct replica *r)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].st->dn == r->st->dn && b->rep[i].unit == r->unit &&
		    replica_is_good(&b->rep[i]))
			return true;
	return false;
}

/* Corrupt replicas go once enough good ones exist; those of an older stamp as soon as one does. */
static void drop_corrupt(struct blk *b, uint32_t live)
{
	for (uint16_t i = 0; i < b->nreps; i++) {
		struct replica *r = &b->rep[i];
		const bool stale = r->gs < b->b.gs;

		if (r->corrupt && !r->excess && live && (live >= b->repl || stale) &&
		    !blk_node_has_good(b, r))
			blk_order_corrupt(b, r);
	}
}

/* Are all replicas, there and on their way, in one rack? */
static bool is_crowded(const struct blk *b)
{
	const char *rack = NULL;

	for (uint32_t i = 0; i < (uint32_t)b->nreps + b->npending; i++) {
		const struct dn *dn =
			i < b->nreps ? b->rep[i].st->dn : b->pending[i - b->nreps].st->dn;

		if (i < b->nreps && (!replica_is_good(&b->rep[i]) ||
				     !(dn_is_away(dn) || (dn->alive && dn->admin == DN_NORMAL))))
			continue;
		if (rack && strcmp(rack, dn->rack) != 0)
			return false;
		rack = dn->rack;
	}
	return true;
}

void blocks_set_racks(struct blocks *bs, uint32_t racks)
{
	if (bs->many_racks == (racks > 1))
		return;
	bs->many_racks = racks > 1;
	blocks_recheck_all(bs);
}

void blocks_set_unit_racks(struct blocks *bs, const struct unit_racks *u)
{
	if (!memcmp(&bs->unit_racks, u, sizeof(*u)))
		return;
	bs->unit_racks = *u;
	if (bs->groups.total)
		blocks_recheck_all(bs);
}

/* Of a block that is not complete. One that its writer has committed is copied like others if that
 * takes more replicas than have come of its pipeline: else its file could not be closed. */
static unsigned int unfinished_flags(const struct blocks *bs, const struct blk *b)
{
	uint32_t live;

	if (b->state != BLK_COMMITTED || blk_ec(b) || b->open->recovery_id || b->npending)
		return 0;
	live = blk_live(b);
	return live && live < blk_wanted(bs, b) ? BLK_UNDER : 0u;
}

/* Does a reported replica fit what is stored? The rule of hdfs-wire section 4. */
bool blk_is_corrupt(const struct blk *b, const struct replica *r)
{
	if (b->state == BLK_OPEN)
		return r->gs < b->b.gs;
	if (r->state == REPLICA_FINALIZED)
		return r->gs != b->b.gs || r->len != blk_unit_len(b, b->b.len, r->unit);
	if (b->state == BLK_COMMITTED)
		return r->gs < b->b.gs;
	return r->gs != b->b.gs || r->state == REPLICA_RWR;
}

void blk_mark_corrupt(struct blk *b)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		b->rep[i].corrupt = b->rep[i].damaged || blk_is_corrupt(b, &b->rep[i]);
}

/* Nobody else looks after a committed block of a closed file: with what has come it is judged like
 * others. */
static void complete_closed(struct blocks *bs, struct blk *b)
{
	if (b->state != BLK_COMMITTED || !b->open->closed || b->npending || b->open->recovery_id)
		return;
	blk_set_state(bs, b, BLK_COMPLETE);
	blk_free_open(b);
	blk_mark_corrupt(b);
}

/* @policy: of its file; NULL: not known. */
static void recheck(struct blocks *bs, struct blk *b, const struct storage_policy *policy)
{
	unsigned int flags = 0;
	uint32_t live, good;

	complete_closed(bs, b);
	if (b->state != BLK_COMPLETE) {
		blk_set_flags(bs, b, unfinished_flags(bs, b));
		return;
	}
	if (blk_ec(b)) {
		group_recheck(bs, b, policy);
		return;
	}
	live = bs->quiet ? blk_live(b) : drop_excess(bs, b, policy);
	if (!bs->quiet)
		drop_corrupt(b, live);
	flags |= !bs->quiet && live > b->repl ? BLK_SURPLUS : 0u;
	for (uint16_t i = 0; i < b->nreps; i++)
		flags |= b->rep[i].corrupt && !b->rep[i].excess ? BLK_CORRUPT : 0u;
	good = blk_readable(b);
	if (live + b->npending < blk_wanted(bs, b))
		flags |= BLK_UNDER;
	else if (bs->many_racks && live > 1 && is_crowded(b))
		flags |= BLK_CROWDED;
	flags |= good || blk_in_maintenance(b) ? 0u : BLK_MISSING;
	flags |= (flags & BLK_MISSING) && b->repl == 1 ? BLK_MISSING_ONE : 0u;
	flags |= live == 1 && b->repl > 1 && (flags & BLK_UNDER) ? BLK_URGENT : 0u;
	/* Safe mode does not wait for replicas that never existed. Nor does it wait when all are
	 * reported, and corrupt: HDFS waits then for ever. */
	flags |= good >= (bs->safe_min < b->repl ? bs->safe_min : b->repl) || b->nreps >= b->repl
			 ? BLK_SAFE
			 : 0u;
	blk_set_flags(bs, b, flags);
}

void blk_recheck(struct blocks *bs, struct blk *b)
{
	recheck(bs, b, NULL);
}

void blk_drop_surplus(struct blocks *bs, struct blk *b, const struct storage_policy *policy)
{
	recheck(bs, b, policy);
}

/* Once a replica is deleted there, is that a place for another one? */
static bool takes_replicas(const struct dn *dn)
{
	return dn->alive && dn->admin == DN_NORMAL && !dn->stale;
}

/* It keeps its node from a good one: it is damaged, or was never finished and is of no use to a
 * block that is complete. */
static bool is_in_the_way(const struct blk *b, const struct replica *r)
{
	return (r->corrupt || (b->state == BLK_COMPLETE && r->state == REPLICA_RBW)) &&
	       takes_replicas(r->st->dn);
}

/* One that is finished after all, on time, is taken back: blocks_take_back_drop(). */
static void order_unfinished(const struct blk *b, struct replica *r)
{
	r->excess = true;
	dn_order_invalidate(r->st->dn, blk_replica_id(b, r), r->gs, false);
}

bool blk_drop_one_bad(struct blocks *bs, struct blk *b)
{
	const uint32_t needed = blk_ec(b) ? ec_units_needed(blk_ec(b), b->b.len) : 1;
	const uint32_t have = blk_readable(b);

	if (b->npending || have < needed)
		return false;
	for (uint16_t i = 0; i < b->nreps; i++)
		if (is_in_the_way(b, &b->rep[i]) && b->rep[i].excess)
			return false; /* one is being deleted: its node is free when it says so */
	for (uint16_t i = 0; i < b->nreps; i++) {
		struct replica *r = &b->rep[i];

		/* Where there are just as many good ones as it takes to read the block, the damaged
		 * ones are what would be left when the next one is lost, or proves to be damaged
		 * when it is copied: their bytes are mostly good. */
		if (!is_in_the_way(b, r) || r->excess || (r->corrupt && have == needed) ||
		    blk_node_has_good(b, r))
			continue;
		if (r->corrupt)
			blk_order_corrupt(b, r);
		else
			order_unfinished(b, r);
		blk_recheck(bs, b);
		return true;
	}
	return false;
}

void blk_drop_pending(struct blocks *bs, struct blk *b, const struct storage *st)
{
	for (uint16_t i = 0; i < b->npending; i++)
		if (b->pending[i].st == st) {
			b->pending[i] = b->pending[--b->npending];
			break;
		}
	if (!b->npending)
		list_del(&b->waiting);
	blk_recheck(bs, b);
}

static void expire(struct blocks *bs, struct blk *b, uint64_t now_ns)
{
	const uint16_t before = b->npending;

	for (uint16_t i = 0; i < b->npending;)
		if (b->pending[i].deadline_ns < now_ns)
			b->pending[i] = b->pending[--b->npending];
		else
			i++;
	if (!b->npending)
		list_del(&b->waiting);
	if (b->npending != before)
		blk_recheck(bs, b);
}

void blocks_expire_pending(struct blocks *bs, uint64_t now_ns)
{
	/* that was looked at and waits still: behind the others now */
	const struct blk *first = NULL;

	for (uint32_t i = 0; i < EXPIRE_SLICE && !list_empty(&bs->awaiting); i++) {
		struct blk *b = container_of(bs->awaiting.next, struct blk, waiting);

		if (b == first)
			break;
		list_del(&b->waiting);
		list_add_tail(&bs->awaiting, &b->waiting);
		expire(bs, b, now_ns);
		if (!first && b->npending)
			first = b;
	}
}
