/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the whole map of blocks, in slices: the lock is given back between them. One walk does
 * what is to be done with all storages. What is asked for while it is under way is done in what is
 * left of it and in a second one. */
#include "common/base/clock.h"
#include "namenode-shim/blocks/blocks_internal.h"
#include "namenode-shim/blocks/datanodes.h"

/* ---- cursors ---- */

void blk_cursor_begin(struct blocks *bs, struct blk_cursor *c)
{
	if (!c->link.next)
		list_init(&c->link);
	c->next = bs->map;
	if (!list_is_linked(&c->link))
		list_add_tail(&bs->cursors, &c->link);
}

struct blk *blk_cursor_next(struct blk_cursor *c)
{
	struct blk *b = c->next;

	if (b)
		c->next = b->hh.next;
	else
		list_del(&c->link);
	return b;
}

bool blk_cursor_is_open(const struct blk_cursor *c)
{
	return c->link.next && list_is_linked(&c->link);
}

void blk_cursors_pass(struct blocks *bs, const struct blk *b)
{
	list_for_each (l, &bs->cursors) {
		struct blk_cursor *c = container_of(l, struct blk_cursor, link);

		if (c->next == b)
			c->next = b->hh.next;
	}
}

/* ---- what is to be done ---- */

/* Half a walk, the rest of one that is under way, is not enough. */
static uint8_t passes(const struct blocks *bs)
{
	return blk_cursor_is_open(&bs->sweep) ? 2 : 1;
}

/* Can a block that decommissioning has counted as safe be short of a live replica now?
 * SWEEP_UNREPORTED is about single replicas, like deletions that a node reports: it does not count.
 */
static bool makes_short(const struct storage *st, enum sweep what)
{
	if (!st->nblocks || what == SWEEP_UNREPORTED)
		return false;
	return what == SWEEP_RECHECK || !(st->unsteady || st->sweep & SWEEP_FORGET);
}

static void ask(struct blocks *bs, struct storage *st, enum sweep what)
{
	bs->asked += makes_short(st, what);
	if (!st->sweep)
		list_add_tail(&bs->swept, &st->swept);
	st->sweep |= (uint8_t)what;
	st->sweep_passes = passes(bs);
}

static void note_loss(struct storage *st)
{
	const uint64_t now = clock_mono_ns();

	if (!st->nblocks || st->sweep & SWEEP_FORGET)
		return;
	if (st->lost_ns && now - st->lost_ns < BLOCKS_STEADY_NS)
		st->flaps_until_ns = now + BLOCKS_STEADY_NS;
	st->lost_ns = now;
}

void blocks_forget(struct blocks *bs, struct dn *dn, struct storage *only)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (!only || dn->storage[i] == only) {
			note_loss(dn->storage[i]);
			ask(bs, dn->storage[i], SWEEP_FORGET);
		}
}

void blocks_keep(struct blocks *bs, struct storage *st)
{
	if (!(st->sweep & SWEEP_FORGET))
		return;
	st->sweep &= (uint8_t)~SWEEP_FORGET;
	st->sweep |= SWEEP_RECHECK;
	st->sweep_passes = passes(bs);
}

void blocks_report_begin(struct blocks *bs, struct storage *st)
{
	blocks_keep(bs, st);
	if (st->sweep & SWEEP_UNREPORTED) {
		st->sweep &= (uint8_t)~SWEEP_UNREPORTED;
		st->sweep |= SWEEP_RECHECK;
	}
	st->report_seq++;
	st->report_hits = 0;
	st->listing = true;
}

void blocks_report_end(struct blocks *bs, struct storage *st)
{
	st->listing = false;
	if (st->report_hits != st->nblocks) { /* rarely */
		ask(bs, st, SWEEP_UNREPORTED);
		st->sweep |= st->reported ? 0 : SWEEP_OPEN;
	}
	st->reported = true;
}

void blocks_recheck_node(struct blocks *bs, struct dn *dn)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		ask(bs, dn->storage[i], SWEEP_RECHECK);
}

void blocks_recheck_all(struct blocks *bs)
{
	bs->recheck_passes = passes(bs);
}

bool blocks_must_sweep(const struct blocks *bs)
{
	return !list_empty(&bs->swept) || bs->recheck_passes;
}

/* ---- doing it ---- */

/* What was reported incrementally after a list was made may be missing from it: an open block keeps
 * its replica. But the first list of a node that has registered again was made after all that it
 * had said before: what is not in it is gone, by a power cut for one. */
static bool is_forgotten(const struct blk *b, const struct replica *r)
{
	const struct storage *st = r->st;

	return st->sweep & SWEEP_FORGET ||
	       (st->sweep & SWEEP_UNREPORTED && r->seq != st->report_seq &&
		(b->state == BLK_COMPLETE || st->sweep & SWEEP_OPEN));
}

static bool forget_replicas(struct blk *b)
{
	bool touched = false;

	for (uint16_t i = 0; i < b->nreps;) {
		const bool gone = is_forgotten(b, &b->rep[i]);

		touched |= gone || b->rep[i].st->sweep & SWEEP_RECHECK;
		if (b->rep[i].st->sweep & SWEEP_FORGET)
			blk_lose_replica(b, &b->rep[i]);
		if (gone)
			blk_drop_replica(b, &b->rep[i]);
		else
			i++;
	}
	return touched;
}

static bool forget_pending(struct blk *b)
{
	bool touched = false;

	for (uint16_t i = 0; i < b->npending;) {
		touched |= b->pending[i].st->sweep != 0;
		if (b->pending[i].st->sweep & SWEEP_FORGET)
			b->pending[i] = b->pending[--b->npending];
		else
			i++;
	}
	if (!b->npending)
		list_del(&b->waiting);
	return touched;
}

static void sweep_one(struct blocks *bs, struct blk *b)
{
	bool touched = forget_replicas(b);

	touched |= b->npending && forget_pending(b);
	if (b->open)
		blk_forget_targets(b);
	if (touched || bs->recheck_passes)
		blk_recheck(bs, b);
}

/* Over the whole map once. */
static void pass_ended(struct blocks *bs)
{
	if (bs->recheck_passes)
		bs->recheck_passes--;
	list_for_each (l, &bs->swept) {
		struct storage *st = container_of(l, struct storage, swept);

		if (--st->sweep_passes)
			continue;
		st->sweep = 0;
		list_del(l);
	}
}

void blocks_sweep(struct blocks *bs, uint32_t n)
{
	while (n && blocks_must_sweep(bs)) {
		struct blk *b;

		if (!blk_cursor_is_open(&bs->sweep))
			blk_cursor_begin(bs, &bs->sweep);
		for (; n && (b = blk_cursor_next(&bs->sweep)); n--)
			sweep_one(bs, b);
		if (!blk_cursor_is_open(&bs->sweep))
			pass_ended(bs);
	}
}
