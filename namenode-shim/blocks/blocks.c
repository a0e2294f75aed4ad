/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks_internal.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/namespace/storage_policy.h"

#define REPLICAS_MAX 4096 /* of one block: as many as there may be nodes */

void blocks_init(struct blocks *bs, uint64_t pending_timeout_ns, uint32_t repl_min)
{
	*bs = (struct blocks){.pending_timeout_ns = pending_timeout_ns,
			      .repl_min = repl_min,
			      .safe_min = 1,
			      .maintenance_min = 1};
	list_init(&bs->first);
	list_init(&bs->under);
	list_init(&bs->crowded);
	list_init(&bs->surplus);
	list_init(&bs->awaiting);
	list_init(&bs->recovering);
	list_init(&bs->cursors);
	list_init(&bs->swept);
}

static void blk_free(struct blk *b)
{
	blk_free_open(b);
	free(b->rep);
	free(b->pending);
	free(b); /* of a group too: blk is its first member */
}

void blocks_fini(struct blocks *bs)
{
	struct blk *b, *tmp;

	HASH_ITER(hh, bs->map, b, tmp)
	{
		HASH_DEL(bs->map, b);
		blk_free(b);
	}
	for (int i = 0; i <= EC_ID_LAST; i++)
		free(bs->policies[i]);
}

struct blk *blocks_find(const struct blocks *bs, int64_t id)
{
	const int64_t key = ec_id_is_striped(id) ? ec_id_group(id) : id;
	struct blk *b;

	HASH_FIND(hh, bs->map, &key, sizeof(key), b);
	return b;
}

/* ---- counts ---- */

static void count_flag(uint64_t *counter, unsigned int before, unsigned int after,
		       unsigned int flag)
{
	*counter += (after & flag) && !(before & flag);
	*counter -= !(after & flag) && (before & flag);
}

/* Where it waits for the monitor; NULL: it does not. */
static struct list *line_of(struct blocks *bs, unsigned int flags)
{
	if (flags & BLK_UNDER)
		return flags & BLK_URGENT ? &bs->first : &bs->under;
	if (flags & BLK_SURPLUS)
		return &bs->surplus;
	return flags & BLK_CROWDED ? &bs->crowded : NULL;
}

void blk_set_flags(struct blocks *bs, struct blk *b, unsigned int flags)
{
	struct list *line;

	if (ec_id_is_striped(b->b.id)) {
		count_flag(&bs->groups.under, b->flags, flags, BLK_UNDER);
		count_flag(&bs->groups.missing, b->flags, flags, BLK_MISSING);
		count_flag(&bs->groups.corrupt, b->flags, flags, BLK_CORRUPT);
		count_flag(&bs->groups.urgent, b->flags, flags, BLK_URGENT);
	}
	count_flag(&bs->under_count, b->flags, flags, BLK_UNDER);
	count_flag(&bs->missing, b->flags, flags, BLK_MISSING);
	count_flag(&bs->corrupt, b->flags, flags, BLK_CORRUPT);
	count_flag(&bs->safe, b->flags, flags, BLK_SAFE);
	count_flag(&bs->missing_one, b->flags, flags, BLK_MISSING_ONE);
	count_flag(&bs->urgent, b->flags, flags, BLK_URGENT);
	count_flag(&bs->crowded_count, b->flags, flags, BLK_CROWDED);
	count_flag(&bs->surplus_count, b->flags, flags, BLK_SURPLUS);
	line = line_of(bs, flags);
	if (line != line_of(bs, b->flags))
		list_del(&b->work);
	b->flags = (uint8_t)flags;
	if (line && !list_is_linked(&b->work))
		list_add_tail(line, &b->work);
}

void blk_set_state(struct blocks *bs, struct blk *b, enum blk_state state)
{
	bs->complete += state == BLK_COMPLETE && b->state != BLK_COMPLETE;
	bs->complete -= state != BLK_COMPLETE && b->state == BLK_COMPLETE;
	b->state = (uint8_t)state;
}

/* ---- replicas of one block ---- */

static uint8_t unit_of(int64_t id)
{
	return ec_id_is_striped(id) ? (uint8_t)ec_id_unit(id) : 0;
}

static struct replica *find_replica(const struct blk *b, const struct storage *st, uint8_t unit)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].st == st && b->rep[i].unit == unit)
			return &b->rep[i];
	return NULL;
}

struct replica *blk_find_on_node(const struct blk *b, const struct dn *dn, uint8_t unit)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].st->dn == dn && b->rep[i].unit == unit)
			return &b->rep[i];
	return NULL;
}

static void uncount(struct replica *r)
{
	r->st->nblocks--;
	r->st->report_hits -= r->seq && r->seq == r->st->report_seq;
}

/* A node has one replica of a block and deletes by the block's id alone: what it reports in another
 * storage has moved there. As a second replica it would be surplus, and its deletion the end of
 * both. */
static void move_replica(struct replica *r, struct storage *to)
{
	uncount(r);
	to->nblocks++;
	r->st = to;
	r->seq = 0; /* reports are numbered per storage */
}

static struct replica *add_replica(struct blk *b, struct storage *st, uint8_t unit)
{
	if (b->nreps == REPLICAS_MAX)
		return NULL;
	b->rep = xrealloc(b->rep, (b->nreps + 1u) * sizeof(*b->rep));
	b->rep[b->nreps] = (struct replica){.st = st, .unit = unit};
	st->nblocks++;
	return &b->rep[b->nreps++];
}

void blk_drop_replica(struct blk *b, struct replica *r)
{
	uncount(r);
	*r = b->rep[--b->nreps];
}

static void drop_pending(struct blk *b, const struct dn *dn)
{
	for (uint16_t i = 0; i < b->npending;)
		if (b->pending[i].st->dn == dn)
			b->pending[i] = b->pending[--b->npending];
		else
			i++;
	if (!b->npending)
		list_del(&b->waiting);
}

/* Is an earlier entry of the same node as good? There is one entry to a node; should there ever be
 * two, they count once. */
static bool is_counted(const struct blk *b, uint16_t at)
{
	for (uint16_t i = 0; i < at; i++)
		if (b->rep[i].st->dn == b->rep[at].st->dn && replica_is_good(&b->rep[i]))
			return true;
	return false;
}

uint32_t blk_live(const struct blk *b)
{
	uint32_t n = 0;

	if (blk_ec(b))
		return (uint32_t)__builtin_popcount(group_live(b));
	for (uint16_t i = 0; i < b->nreps; i++)
		n += replica_is_good(&b->rep[i]) && b->rep[i].st->dn->admin == DN_NORMAL &&
		     b->rep[i].st->dn->alive && !is_counted(b, i);
	return n;
}

uint32_t blk_steady(const struct blk *b)
{
	uint32_t n = 0, units = 0;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (r->st->unsteady || !replica_is_good(r) || r->st->dn->admin != DN_NORMAL ||
		    !r->st->dn->alive)
			continue;
		n += !is_counted(b, i);
		units |= 1u << r->unit;
	}
	return blk_ec(b) ? (uint32_t)__builtin_popcount(units & group_live(b)) : n;
}

uint32_t blk_readable(const struct blk *b)
{
	uint32_t n = 0;

	if (blk_ec(b))
		return (uint32_t)__builtin_popcount(group_readable(b));
	for (uint16_t i = 0; i < b->nreps; i++)
		n += replica_is_good(&b->rep[i]) && b->rep[i].st->dn->alive && !is_counted(b, i);
	return n;
}

uint64_t blk_stored(const struct blk *b, uint64_t len)
{
	const uint32_t units = blk_ec(b) ? group_readable(b) : 0;
	uint64_t sum = 0;

	if (!blk_ec(b))
		return blk_readable(b) * len;
	for (unsigned u = 0; u < EC_UNITS_MAX; u++)
		sum += units >> u & 1 ? ec_unit_length(blk_ec(b), len, u) : 0;
	return sum;
}

/* It comes back with what it has. */
bool dn_is_away(const struct dn *dn)
{
	return dn->admin == DN_ENTERING_MAINTENANCE || dn->admin == DN_IN_MAINTENANCE;
}

uint32_t blk_in_maintenance(const struct blk *b)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		n += replica_is_good(&b->rep[i]) && !is_counted(b, i) &&
		     dn_is_away(b->rep[i].st->dn);
	return n;
}

uint32_t blk_wanted(const struct blocks *bs, const struct blk *b)
{
	uint32_t away, least;

	if (blk_ec(b))
		return group_wanted(b);
	away = blk_in_maintenance(b);
	least = bs->maintenance_min < b->repl ? bs->maintenance_min : b->repl;
	if (!away)
		return b->repl;
	return b->repl > away + least ? b->repl - away : least;
}

uint64_t blk_unit_len(const struct blk *b, uint64_t len, unsigned unit)
{
	const struct ec_policy *ec = blk_ec(b);

	return ec ? ec_unit_length(ec, len, unit) : len;
}

bool blk_enough_as(const struct blk *b, uint64_t gs, uint64_t len, uint32_t repl_min)
{
	uint32_t n = 0;

	if (blk_ec(b))
		return group_enough_as(b, gs, len);
	for (uint16_t i = 0; i < b->nreps; i++)
		n += b->rep[i].state == REPLICA_FINALIZED && !b->rep[i].corrupt &&
		     b->rep[i].gs == gs && b->rep[i].len == len &&
		     !(b->rep[i].st->sweep & SWEEP_FORGET);
	return n >= repl_min;
}

void blk_add_pending(struct blocks *bs, struct blk *b, struct storage *st, uint64_t deadline_ns)
{
	blk_add_move(bs, b, st, deadline_ns, NULL);
}

/* Who loses its replica when that on its way to @dn arrives. */
static const struct dn *dropped_for(const struct blk *b, const struct dn *dn)
{
	for (uint16_t i = 0; i < b->npending; i++)
		if (b->pending[i].st->dn == dn)
			return b->pending[i].drop;
	return NULL;
}

void blk_add_move(struct blocks *bs, struct blk *b, struct storage *st, uint64_t deadline_ns,
		  const struct dn *drop)
{
	if (b->npending == REPLICAS_MAX)
		return;
	b->pending = xrealloc(b->pending, (b->npending + 1u) * sizeof(*b->pending));
	b->pending[b->npending++] = (struct pending){st, deadline_ns, drop};
	if (!list_is_linked(&b->waiting))
		list_add_tail(&bs->awaiting, &b->waiting);
}

/* ---- life of a block ---- */

static struct blk *insert(struct blocks *bs, struct blk *n, const struct block *b, uint64_t inode,
			  uint16_t repl, enum blk_state state)
{
	n->b = *b;
	n->inode = inode;
	n->repl = repl;
	n->state = BLK_OPEN;
	list_init(&n->work);
	list_init(&n->waiting);
	blk_set_state(bs, n, state);
	if (state != BLK_COMPLETE)
		blk_open_new(n);
	HASH_ADD(hh, bs->map, b.id, sizeof(n->b.id), n);
	blk_recheck(bs, n);
	return n;
}

struct blk *blocks_add(struct blocks *bs, const struct block *b, uint64_t inode, uint16_t repl,
		       enum blk_state state)
{
	return insert(bs, xcalloc(1, sizeof(struct blk)), b, inode, repl, state);
}

/* A policy that stays as long as @bs. */
static const struct ec_policy *keep_policy(struct blocks *bs, const struct ec_policy *p)
{
	const struct ec_policy *own = ec_policy_by_id(p->id);

	assert(p->id <= EC_ID_LAST);
	if (own)
		return own;
	if (!bs->policies[p->id]) {
		bs->policies[p->id] = xcalloc(1, sizeof(*p));
		*bs->policies[p->id] = *p;
	}
	return bs->policies[p->id];
}

struct blk *blocks_add_group(struct blocks *bs, const struct block *b, uint64_t inode,
			     const struct ec_policy *ec, enum blk_state state)
{
	struct blk_group *g = xcalloc(1, sizeof(*g));

	assert(ec_id_is_striped(b->id));
	g->ec = keep_policy(bs, ec);
	bs->groups.total++;
	return insert(bs, &g->blk, b, inode, (uint16_t)(g->ec->k + g->ec->m), state);
}

void blk_set_room(struct blk *b, uint64_t bytes, uint64_t since_ns)
{
	if (!b->open)
		return;
	b->open->room = bytes;
	b->open->room_ns = since_ns;
}

/* It is not written any more. What a node has finished needs no promise since it was reported
 * (keep_promise()). */
static void give_room_back(const struct blk *b)
{
	const struct blk_open *o = b->open;

	for (uint32_t i = 0; o->room && i < o->ntargets; i++) {
		const struct replica *r =
			blk_find_on_node(b, o->target[i]->dn, blk_target_unit(b, i));

		if (!r || r->state != REPLICA_FINALIZED)
			storage_unpromise(o->target[i], o->room, o->room_ns);
	}
}

void blocks_remove(struct blocks *bs, struct blk *b)
{
	blk_cursors_pass(bs, b);
	if (b->open && b->state == BLK_OPEN)
		give_room_back(b);
	bs->groups.total -= ec_id_is_striped(b->b.id);
	while (b->nreps)
		blk_order_drop(b, &b->rep[b->nreps - 1]);
	blk_set_flags(bs, b, 0);
	blk_set_state(bs, b, BLK_OPEN);
	list_del(&b->waiting);
	HASH_DEL(bs->map, b);
	blk_free(b);
}

static void check_complete(struct blocks *bs, struct blk *b)
{
	if (b->state != BLK_COMMITTED || !blk_enough_as(b, b->b.gs, b->b.len, bs->repl_min))
		return;
	if (b->open->recovery_id)
		return; /* its replicas are to get another stamp: its end completes the block */
	blk_set_state(bs, b, BLK_COMPLETE);
	blk_free_open(b);
}

static void judge_all(struct blocks *bs, struct blk *b)
{
	blk_mark_corrupt(b);
	check_complete(bs, b);
	blk_recheck(bs, b);
}

/* Replicas the pipeline wrote and that are not reported yet count as on their way. */
static void await_targets(struct blocks *bs, struct blk *b)
{
	const uint64_t deadline = clock_mono_ns() + bs->pending_timeout_ns;

	for (uint32_t i = 0; b->open && i < b->open->ntargets; i++) {
		struct storage *st = b->open->target[i];
		const uint8_t unit = blk_target_unit(b, i);
		const struct replica *r = blk_find_on_node(b, st->dn, unit);

		if (st->dn->alive && (!blk_ec(b) || blk_unit_len(b, b->b.len, unit)) &&
		    (!r || r->state != REPLICA_FINALIZED || r->gs < b->b.gs))
			blk_add_pending(bs, b, st, deadline);
	}
}

void blk_commit(struct blocks *bs, struct blk *b, const struct block *now)
{
	b->b.gs = now->gs;
	b->b.len = now->len;
	if (b->state == BLK_OPEN) {
		await_targets(bs, b);
		blk_set_state(bs, b, BLK_COMMITTED);
	}
	judge_all(bs, b);
}

void blk_close(struct blocks *bs, struct blk *b)
{
	if (b->state != BLK_COMMITTED)
		return;
	b->open->closed = true;
	blk_recheck(bs, b);
}

void blk_reopen(struct blocks *bs, struct blk *b)
{
	/* One that is only committed keeps its targets: not all of them may have reported it. */
	if (b->state != BLK_COMMITTED || !b->open->ntargets)
		blk_target_replicas(b);
	b->open->closed = false;
	blk_set_state(bs, b, BLK_OPEN);
	blk_recheck(bs, b);
}

void blk_set_recovery(struct blocks *bs, struct blk *b, uint64_t id, uint64_t until_ns)
{
	b->open->recovery_id = id;
	b->open->recovery_until_ns = until_ns;
	list_del(&b->open->recovering);
	if (id)
		list_add_tail(&bs->recovering, &b->open->recovering);
	blk_recheck(bs, b);
}

void blk_set_repl(struct blocks *bs, struct blk *b, uint16_t repl)
{
	if (!blk_ec(b)) /* a group has the units of its policy */
		b->repl = repl;
	blk_recheck(bs, b);
}

/* ---- reports ---- */

static bool has_another(const struct blk *b)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (!b->rep[i].excess && !b->rep[i].corrupt && storage_is_there(b->rep[i].st))
			return true;
	return false;
}

/* Was it given up as surplus, and is one of the others lost since? While the block is written or
 * recovered, the last one is. */
static bool is_needed_again(const struct blocks *bs, const struct blk *b, const struct replica *r)
{
	if (r->corrupt || !storage_is_there(r->st) ||
	    (b->state == BLK_COMPLETE && r->state != REPLICA_FINALIZED))
		return false;
	if (blk_ec(b))
		return !(group_live(b) & 1u << r->unit);
	return b->state == BLK_COMPLETE ? blk_live(b) < blk_wanted(bs, b) : !has_another(b);
}

bool blocks_take_back_drop(struct blocks *bs, const struct dn *dn, int64_t id, uint64_t gs)
{
	struct blk *b = blocks_find(bs, id);
	struct replica *r = b ? blk_find_on_node(b, dn, unit_of(id)) : NULL;

	if (!r || r->gs != gs)
		return false;
	if (!r->excess)
		return true;
	if (!is_needed_again(bs, b, r))
		return false;
	r->excess = false;
	blk_recheck(bs, b);
	return true;
}

/* Its storage has listed it. News that come while a list is gone through, or while what it lacked
 * is forgotten, count as well: the list may be older. */
static void note_listed(struct replica *r, uint32_t seq)
{
	struct storage *st = r->st;

	seq = st->listing || st->sweep & SWEEP_UNREPORTED ? st->report_seq : seq;
	if (!seq || r->seq == seq)
		return;
	r->seq = seq;
	st->report_hits++;
}

/* A node lists what it writes, and finalizes it while the list is on its way. A running writer
 * never goes back to RBW or to an older stamp. A replica that is given up was restamped by a
 * recovery: news (no @seq) with an older stamp are from before. */
static bool is_late(const struct replica *rep, const struct block *r, uint32_t state, uint32_t seq)
{
	if (rep->excess && !seq && r->gs < rep->gs)
		return true;
	return rep->state == REPLICA_FINALIZED && state == REPLICA_RBW && r->gs <= rep->gs;
}

void blocks_report(struct blocks *bs, struct storage *st, const struct block *r, uint32_t state,
		   bool first, uint32_t seq)
{
	struct blk *b = blocks_find(bs, r->id);
	const uint8_t unit = unit_of(r->id);
	struct replica *rep;

	if (st->failed)
		return; /* said before it failed; its node reports afresh when it is back */
	if (!b || (unit && unit >= b->repl)) {
		if (!first)
			dn_order_invalidate(st->dn, r->id, r->gs, true);
		return;
	}
	rep = blk_find_on_node(b, st->dn, unit);
	if (!rep && b->state == BLK_COMPLETE && state == REPLICA_RBW && r->gs == b->b.gs)
		return; /* late news of a replica that will be, or was, reported finalized */
	if (rep && is_late(rep, r, state, seq)) {
		if (rep->st == st)
			note_listed(rep, seq);
		return;
	}
	rep = rep ? rep : add_replica(b, st, unit);
	if (!rep)
		return;
	if (rep->st != st)
		move_replica(rep, st);
	/* The order was for that of the older stamp. This is another one, or it was written on,
	 * with its wrong bytes. */
	if (r->gs > rep->gs && rep->excess) {
		rep->excess = false;
		rep->damaged = rep->wrong;
	}
	rep->gs = r->gs;
	rep->len = r->len;
	rep->state = (uint8_t)state;
	rep->corrupt = rep->damaged || blk_is_corrupt(b, rep);
	if (seq && rep->excess) /* its deletion was ordered and did not happen */
		dn_order_invalidate(st->dn, r->id, r->gs, false);
	note_listed(rep, seq);
	/* Of a time before an append: what was appended is reported, too. */
	if (state == REPLICA_FINALIZED && (b->state != BLK_COMMITTED || r->gs >= b->b.gs)) {
		bs->drop_hint = bs->drop_hint ? bs->drop_hint : dropped_for(b, st->dn);
		drop_pending(b, st->dn);
	}
	blk_retarget(b, rep);
	check_complete(bs, b);
	blk_recheck(bs, b);
	bs->drop_hint = NULL;
}

void blocks_report_moved(struct blocks *bs, struct storage *st, const struct block *r,
			 const struct dn *from)
{
	bs->drop_hint = from != st->dn ? from : NULL;
	blocks_report(bs, st, r, REPLICA_FINALIZED, false, 0);
	bs->drop_hint = NULL;
}

void blocks_report_deleted(struct blocks *bs, struct storage *st, int64_t id, uint64_t gs)
{
	struct blk *b = blocks_find(bs, id);
	struct replica *rep = b ? find_replica(b, st, unit_of(id)) : NULL;

	/* Another one is there since, of which the primary of a recovery has told first. */
	if (!rep || (gs && gs < rep->gs))
		return;
	blk_drop_replica(b, rep);
	blk_recheck(bs, b);
}

void blocks_report_corrupt(struct blocks *bs, const struct block *r, const struct dn *dn,
			   struct storage *st, bool by_node)
{
	struct blk *b = blocks_find(bs, r->id);
	struct replica *rep;

	if (!b || (r->gs && r->gs != b->b.gs))
		return;
	rep = blk_find_on_node(b, dn, unit_of(r->id));
	if (!rep && by_node && st && !st->failed && !st->reported && unit_of(r->id) < b->repl) {
		rep = add_replica(b, st, unit_of(r->id));
		if (rep)
			*rep = (struct replica){.st = st,
						.gs = b->b.gs,
						.state = REPLICA_FINALIZED,
						.unit = unit_of(r->id)};
	}
	for (uint16_t i = 0; rep && i < b->nreps; i++)
		if (b->rep[i].st->dn == dn && (!st || b->rep[i].st == st) &&
		    b->rep[i].unit == unit_of(r->id))
			b->rep[i].corrupt = b->rep[i].damaged = b->rep[i].wrong = true;
	blk_recheck(bs, b);
}
