/* SPDX-License-Identifier: Apache-2.0 */
/* apply_effects - what a change means for memory (effect.h), once it is on the disk. Writer thread,
 * with mem_lock held for writing. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/nn_internal.h"
#include "namenode-shim/req.h"

static void start_recovery(struct nn *nn, struct blk *b, uint64_t recovery_id, uint64_t truncate_to)
{
	const struct dn *best = NULL;
	struct blk_open *o = b->open;

	if (!o)
		return;
	blk_set_recovery(&nn->blocks, b, recovery_id,
			 clock_mono_ns() + nn->set.recovery_ms * NS_PER_MS);
	o->truncate_to = truncate_to;
	blk_target_all(b, &nn->dns);
	for (uint32_t i = 0; i < o->ntargets && (!best || best->stale); i++) {
		const struct dn *dn = o->target[(i + o->primary_turn) % o->ntargets]->dn;

		if (dn->alive && (!best || !dn->stale))
			best = dn;
	}
	o->primary_turn++;
	if (!best)
		return;
	o->told = true;
	log_info("op=recover block=%lld recovery=%llu primary=%s", (long long)b->b.id,
		 (unsigned long long)recovery_id, best->uuid);
	dn_order_recovery(datanodes_find(&nn->dns, best->uuid), b->b.id);
}

/* Targets of an effect that are there still. */
struct targets {
	struct storage **st; /* owned array */
	uint8_t *units;      /* owned array */
	uint32_t n;
};

static struct targets find_targets(const struct nn *nn, const struct effect *e)
{
	struct targets t = {.st = xcalloc(e->ntargets + 1u, sizeof(struct storage *)),
			    .units = xcalloc(e->ntargets + 1u, 1)};

	for (uint32_t i = 0; i < e->ntargets; i++) {
		struct storage *st = datanodes_storage(&nn->dns, e->targets[i]);

		if (!st)
			continue; /* its node died meanwhile */
		t.units[t.n] = e->units ? e->units[i] : (uint8_t)i;
		t.st[t.n++] = st;
	}
	return t;
}

/* Those whose node died meanwhile, or is still to register after a start. */
static void add_lost(const struct nn *nn, struct blk *b, const struct effect *e)
{
	for (uint32_t i = 0; i < e->ntargets; i++) {
		const struct storage *st = datanodes_storage_of(&nn->dns, e->targets[i]);

		if (st && !st->dn->alive)
			blk_add_lost(b, st, blk_ec(b) ? e->units ? e->units[i] : (uint8_t)i : 0);
	}
	for (uint32_t i = 0; i < e->naway; i++)
		blk_add_away(b, e->away[i].node, e->away[i].storage, e->away[i].unit);
}

static void set_targets(struct nn *nn, struct blk *b, const struct effect *e)
{
	const struct targets t = find_targets(nn, e);

	blk_set_targets(b, t.st, t.units, t.n);
	b->open->pipeline = e->ntargets + e->naway;
	add_lost(nn, b, e);
	free(t.st);
	free(t.units);
}

/* Recovery ended: the targets hold the block finalized; every other replica is stale. */
static void block_synced(struct nn *nn, struct blk *b, const struct effect *e)
{
	const struct targets t = find_targets(nn, e);
	const bool quiet = nn->blocks.quiet;

	/* Until all of them are known with their new stamp some would look stale and be ordered
	 * deleted. */
	nn->blocks.quiet = true;
	blk_set_targets(b, t.st, t.units, t.n);
	b->open->truncate_to = NO_TRUNCATE;
	blk_set_recovery(&nn->blocks, b, 0, 0);
	blk_commit(&nn->blocks, b, &e->b);
	for (uint32_t i = 0; i < t.n; i++) {
		const uint8_t unit = e->units ? t.units[i] : 0;
		const struct block r = {e->b.id + unit, e->b.gs, blk_unit_len(b, e->b.len, unit)};

		blocks_report(&nn->blocks, t.st[i], &r, REPLICA_FINALIZED, false, 0);
	}
	free(t.st);
	free(t.units);
	nn->blocks.quiet = quiet;
	blk_recheck(&nn->blocks, b);
}

static void apply_block(struct nn *nn, const struct effect *e)
{
	struct blocks *bs = &nn->blocks;
	struct blk *b = blocks_find(bs, e->b.id);

	if (e->kind == EFFECT_BLOCK_ADD) {
		b = e->ec ? blocks_add_group(bs, &e->b, e->inode, e->ec, BLK_OPEN)
			  : blocks_add(bs, &e->b, e->inode, e->repl, BLK_OPEN);
		set_targets(nn, b, e);
		blk_set_room(b, e->room, e->room_ns);
		return;
	}
	if (!b)
		return; /* removed by an earlier change of the same batch */
	switch (e->kind) {
	case EFFECT_BLOCK_COMMIT:
		blk_commit(bs, b, &e->b);
		break;
	case EFFECT_BLOCK_PIPELINE:
		b->b.gs = e->b.gs;
		b->b.len = e->b.len;
		set_targets(nn, b, e);
		blk_recheck(bs, b);
		break;
	case EFFECT_BLOCK_REOPEN:
		blk_reopen(bs, b);
		break;
	case EFFECT_BLOCK_RECOVER:
		start_recovery(nn, b, e->b.gs, e->truncate_to);
		break;
	case EFFECT_BLOCK_SYNCED:
		block_synced(nn, b, e);
		break;
	case EFFECT_BLOCK_CLOSED:
		blk_close(bs, b);
		break;
	case EFFECT_BLOCK_REPL:
		blk_set_repl(bs, b, e->repl);
		break;
	case EFFECT_BLOCK_REMOVE:
		blocks_remove(bs, b);
		break;
	case EFFECT_BLOCK_OWNER:
		b->inode = e->inode;
		blk_set_repl(bs, b, e->repl);
		break;
	case EFFECT_BLOCK_ADD:
	case EFFECT_LEASE_ADD:
	case EFFECT_LEASE_DEL:
	case EFFECT_INODES:
	case EFFECT_POLICIES:
	case EFFECT_TREE_DELETE:
	case EFFECT_TREE_DELETE_SLICE:
	case EFFECT_TREE_DELETE_BROKEN:
	case EFFECT_HOSTS:
	case EFFECT_SATISFY:
	case EFFECT_CACHE:
		break; /* handled by callers */
	}
}

static void take_hosts(struct nn *nn)
{
	if (!nn->hosts_next)
		return; /* two calls in one batch */
	hosts_free(nn->hosts);
	nn->hosts = nn->hosts_next;
	nn->hosts_next = NULL;
	decommission_judge_all(nn);
}

/* A deleted tree goes in slices: the next one is submitted when the last one is on the disk. */
static void apply_tree_delete(struct nn *nn, const struct effect *e)
{
	if (e->kind == EFFECT_TREE_DELETE_BROKEN) {
		tree_delete_leave(&nn->tree_delete_broken, e->inode);
	} else if (e->kind == EFFECT_TREE_DELETE) {
		nn->tree_delete_next |= !nn->tree_delete_under_way;
		nn->tree_delete_under_way = true;
		return;
	} else {
		nn->tree_delete_next = nn->tree_delete_under_way = e->delta;
		nn->tree_delete_turn = e->turn;
	}
	list_for_each (l, &nn->deleting) {
		struct req *q = container_of(l, struct req, link);

		q->waits_for_tree = q->waits_for_tree == e->inode ? 0 : q->waits_for_tree;
	}
}

uint64_t nn_tree_waited_for(const struct req *q)
{
	for (const struct effect *e = q->effects.first; e; e = e->next)
		if (e->kind == EFFECT_TREE_DELETE && e->delta)
			return e->inode;
	return 0;
}

void nn_take_deleted(struct nn *nn, struct list *done)
{
	list_for_each (l, &nn->deleting)
		if (!container_of(l, struct req, link)->waits_for_tree) {
			list_del(l);
			list_add_tail(done, l);
			commit_queue_again(&nn->commit_queue, 1);
		}
}

uint32_t nn_apply(struct nn *nn, const struct effect_list *l)
{
	uint32_t n = 0;

	for (const struct effect *e = l->first; e; e = e->next, n++)
		if (e->kind == EFFECT_TREE_DELETE || e->kind == EFFECT_TREE_DELETE_SLICE ||
		    e->kind == EFFECT_TREE_DELETE_BROKEN)
			apply_tree_delete(nn, e);
		else if (e->kind == EFFECT_LEASE_ADD)
			leases_add(&nn->leases, e->holder, e->inode);
		else if (e->kind == EFFECT_LEASE_DEL)
			leases_del(&nn->leases, e->holder, e->inode);
		else if (e->kind == EFFECT_INODES)
			nn->inodes += (uint64_t)e->delta;
		else if (e->kind == EFFECT_POLICIES)
			snprintf(nn->ec_enabled, sizeof(nn->ec_enabled), "%s", e->holder);
		else if (e->kind == EFFECT_HOSTS)
			take_hosts(nn);
		else if (e->kind == EFFECT_SATISFY)
			satisfier_add(&nn->satisfy, e->inode);
		else if (e->kind == EFFECT_CACHE)
			cache_monitor_ask(&nn->cache);
		else
			apply_block(nn, e);
	return n;
}
