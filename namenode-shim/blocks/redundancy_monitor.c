/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/redundancy_monitor.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/ec_reconstruct.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/trash.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#define PICKS 128         /* blocks of a line in one slice */
#define RECOVERIES 1000   /* of files of expired leases that are begun in one tick; */
#define HOLDER_SHARE 125  /* of one holder no more, while others wait */
#define LOOKS_IN_VAIN 256 /* of each line in one look: each may go through all nodes */

/* Dead for so long that it only makes the lists of nodes longer. A node that dfs.hosts names is
 * expected back. */
static bool is_past(const struct nn *nn, const struct dn *dn, uint64_t silent_ns)
{
	return !dn->alive && nn->set.dead_keep_ms && silent_ns / NS_PER_MS > nn->set.dead_keep_ms &&
	       dn->admin != DN_ENTERING_MAINTENANCE && dn->admin != DN_IN_MAINTENANCE &&
	       !hosts_judge(nn->hosts, dn->ip, dn->host, dn->xfer_port).named;
}

static uint32_t check_nodes(struct nn *nn, uint64_t now)
{
	struct dn *dn, *next;
	uint32_t live = 0;

	HASH_ITER(hh, nn->dns.table, dn, next)
	{
		const uint64_t silent_ns = now > dn->heard_ns ? now - dn->heard_ns : 0;

		if (dn->alive && silent_ns > nn->dns.dead_after_ns)
			nn_dn_lost(nn, dn, "no heartbeat");
		live += dn->alive;
		if (is_past(nn, dn, silent_ns))
			nn_dn_forget(nn, dn, "dead for dfs.shim.dead.datanode.keep");
		if (nn_slice_is_over(nn)) { /* a rack has died */
			nn_unlock(nn);
			nn_lock(nn);
		}
	}
	metric_set(METRIC_NN_STALE, datanodes_judge_stale(&nn->dns, now));
	return live;
}

/* A node that is not busy copying and has a good replica, rather one that is not stale. It is
 * drawn: a node whose copies fail does not tell, and another one is asked when the order has
 * expired. */
static struct dn *pick_source(struct nn *nn, const struct blk *b)
{
	const struct work_limits *w = &nn->set.work;
	const uint32_t line = 2 * (b->flags & BLK_URGENT ? w->streams_hard : w->streams);
	const uint64_t first = b->nreps ? rng_next(&nn->dns.rng) % b->nreps : 0;
	struct dn *stale = NULL;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[(first + i) % b->nreps];

		if (r->state != REPLICA_FINALIZED || r->corrupt || r->excess ||
		    !storage_is_there(r->st) || list_length(&r->st->dn->transfers) >= line)
			continue;
		if (!r->st->dn->stale)
			return r->st->dn;
		stale = r->st->dn;
	}
	return stale;
}

void monitor_log_unread(struct nn *nn, const char *op, uint64_t inode, int rc)
{
	uint32_t dropped;

	if (log_rate_ok(&nn->unread, MONITOR_UNREAD_MS, &dropped))
		log_warn(
			"op=%s inode=%llu rc=%s not_logged=%u: the inode cannot be read; it is read again later",
			op, (unsigned long long)inode, err_name(rc), dropped);
}

/* NULL: the file is gone, or the block is about to belong to another one, or the inode cannot be
 * read. Nothing is done with the block now; the next round looks at it again. */
static const struct storage_policy *policy_of_block(struct nn *nn, const struct blk *b)
{
	const struct storage_policy *p = NULL;
	struct arena a = {0};
	struct inode *n;
	int rc;

	if (!storage_policy_any(&nn->look))
		return storage_policy_in_force(POLICY_NONE, false);
	rc = inode_get_tail(&nn->look, b->inode, &a, &n);
	if (!rc)
		p = storage_policy_of_file(&nn->look, n, &a);
	else if (rc != -ENOENT)
		monitor_log_unread(nn, "copies", b->inode, rc);
	arena_free(&a);
	return p;
}

/* False: nothing was ordered. */
static bool order_copy(struct nn *nn, struct blk *b, const struct storage_policy *policy,
		       uint64_t now)
{
	struct dn *src = pick_source(nn, b);
	struct place p = {.want = 1,
			  .block_size = b->b.len,
			  .copy = true,
			  .other_rack = b->flags & BLK_CROWDED,
			  .policy = policy};
	struct storage *target;
	bool ordered;

	if (!src)
		return false;
	place_beside(&p, b);
	ordered = place_choose(&nn->dns, &p, &target) == 1;
	place_free(&p);
	if (!ordered)
		return !p.other_rack && blk_drop_one_bad(&nn->blocks, b);
	log_info("op=copy block=%lld from=%s to=%s", (long long)b->b.id, src->uuid,
		 target->dn->uuid);
	dn_order_transfer(src, &b->b, target);
	blk_add_pending(&nn->blocks, b, target, now + nn->blocks.pending_timeout_ns);
	blk_recheck(&nn->blocks, b);
	return true;
}

/* ---- a slice of a line ---- */

/* The first blocks of a line, each with the policy of its file. Read without the lock, as the disk
 * may be slow; this thread alone changes blocks and lines, so they are the same when it has the
 * lock. */
struct picks {
	struct blk *b[PICKS];
	const struct storage_policy *policy[PICKS]; /* NULL: nothing is done with this one now */
	uint32_t n;
};

static void read_policies(struct nn *nn, const struct list *line, const struct copies_line *l,
			  struct picks *p)
{
	const uint64_t until = clock_mono_ns() + NN_SLICE_NS;

	p->n = 0;
	for (const struct list *e = line->next; e != line && p->n < PICKS && p->n < l->look;
	     e = e->next) {
		struct blk *b = container_of(e, struct blk, work);

		p->policy[p->n] = b->flags & BLK_MISSING ? NULL : policy_of_block(nn, b);
		p->b[p->n++] = b;
		if (clock_mono_ns() > until)
			return;
	}
}

/* Each block of the line is looked at once, while there is budget for orders. A block that can have
 * no copy takes nothing from the budget. It goes to the end of the line, so the blocks that had no
 * turn come before it in the next look. */
static void order_picks(struct nn *nn, struct list *line, struct copies_line *l,
			const struct picks *p, uint64_t now)
{
	const bool copying = line != &nn->blocks.surplus;

	for (uint32_t i = 0;
	     i < p->n && l->vain && (nn->copies.budget || !copying) && !(i && nn_slice_is_over(nn));
	     i++) {
		struct blk *b = p->b[i];
		bool ordered;

		list_del(&b->work); /* to the end of the line */
		list_add_tail(line, &b->work);
		l->look--;
		if (!p->policy[i])
			continue;
		if (b->flags & BLK_SURPLUS)
			blk_drop_surplus(&nn->blocks, b, p->policy[i]);
		if (!copying || !(b->flags & (BLK_UNDER | BLK_CROWDED)))
			continue;
		ordered = blk_ec(b) ? ec_reconstruct_order(nn, b, p->policy[i], now)
				    : order_copy(nn, b, p->policy[i], now);
		nn->copies.budget -= ordered;
		l->vain -= !ordered;
	}
	if (list_empty(line) || !l->vain)
		l->look = 0;
}

static void order_copies(struct nn *nn, uint32_t live)
{
	const struct blocks *bs = &nn->blocks;

	nn->copies = (struct copies){
		.budget = (uint64_t)live * nn->set.work.orders,
		.urgent = {bs->urgent, LOOKS_IN_VAIN},
		.others = {bs->under_count - bs->urgent, LOOKS_IN_VAIN},
		.crowded = {bs->crowded_count, LOOKS_IN_VAIN},
		.surplus = {bs->surplus_count, LOOKS_IN_VAIN},
	};
}

bool monitor_is_ordering(const struct nn *nn)
{
	const struct copies *c = &nn->copies;

	return !nn->safe.on &&
	       (c->surplus.look ||
		(c->budget && (c->urgent.look || c->others.look || c->crowded.look)));
}

/* The line whose turn it is. */
static struct copies_line *next_line(struct nn *nn, struct list **ret)
{
	struct copies *c = &nn->copies;
	struct blocks *bs = &nn->blocks;

	if (c->budget && c->urgent.look)
		return *ret = &bs->first, &c->urgent;
	if (c->budget && c->others.look)
		return *ret = &bs->under, &c->others;
	if (c->budget && c->crowded.look)
		return *ret = &bs->crowded, &c->crowded;
	return *ret = &bs->surplus, &c->surplus;
}

void monitor_order(struct nn *nn)
{
	struct list *line;
	struct copies_line *l = next_line(nn, &line);
	const uint64_t now = clock_mono_ns();
	struct picks p;
	const int rc = txn_read_begin(&nn->look);

	if (rc < 0) {
		log_warn(
			"op=copies rc=%s: storage policies cannot be read; no replica is copied or deleted before "
			"the next look",
			err_name(rc));
		nn->copies = (struct copies){0};
		return;
	}
	read_policies(nn, line, l, &p);
	txn_read_end(&nn->look);
	nn_lock(nn);
	order_picks(nn, line, l, &p, now);
	nn_unlock(nn);
}

static void recover(struct nn *nn, uint64_t inode)
{
	struct req *q = req_new(nn, &file_recover_method, NULL);

	q->arg = inode;
	nn_submit(nn, q);
}

/* @most files of those that have expired, up to @share of each, from the last one on: a file that
 * is closed meanwhile leaves its place to the last. Returns how many more there might have been. */
static uint32_t recover_expired(struct nn *nn, uint32_t share, uint32_t most)
{
	struct leases *all = &nn->leases;
	struct lease *l = all->turn ? all->turn : all->table;

	for (uint32_t i = HASH_COUNT(all->table); i && most; i--) {
		uint32_t n = share < most ? share : most;

		/* A recovery the NameNode started itself is looked after sooner. */
		const uint64_t limit = strcmp(l->holder, LEASE_NAMENODE) ? nn->set.lease_hard_ms
									 : nn->set.recovery_ms;

		if (!l->left && leases_expired(&nn->leases, l->holder, limit)) {
			l->renewed_ns = clock_mono_ns();
			l->left = l->ninodes;
		}
		l->left = l->left < l->ninodes ? l->left : l->ninodes;
		n = n < l->left ? n : l->left;
		most -= n;
		all->turn = n ? l->hh.next : all->turn;
		for (; n; n--)
			recover(nn, l->inode[--l->left]);
		l = l->hh.next ? l->hh.next : all->table;
	}
	return most;
}

/* A client with many files does not keep the files of others open. */
static void check_leases(struct nn *nn)
{
	const uint32_t most = recover_expired(nn, HOLDER_SHARE, RECOVERIES);

	(void)recover_expired(nn, most, most);
}

/* A recovery that did not end in time (its primary died) begins anew with the next node. */
static void check_recoveries(struct nn *nn, uint64_t now)
{
	list_for_each (l, &nn->blocks.recovering) {
		const struct blk_open *o = container_of(l, struct blk_open, recovering);

		if (now >= o->recovery_until_ns)
			recover(nn, o->blk->inode);
	}
}

/* Nodes that report late are no losses, and what they hold is not known. */
static bool is_settled(const struct nn *nn, uint64_t now)
{
	return nn->safe.empty_start ||
	       now - nn->safe.left_ns > nn->set.redundancy_delay_ms * NS_PER_MS;
}

void monitor_tick(struct nn *nn)
{
	uint32_t live;
	uint64_t now;

	nn_lock(nn);
	/* read with the lock: a heartbeat may have come while we waited for it */
	live = check_nodes(nn, clock_mono_ns());
	nn_check_safe_mode(nn);
	/* read again: safe.left_ns, which may just have been set, is never later */
	now = clock_mono_ns();
	decommission_tick(nn, now);
	if (!nn->safe.on && now >= nn->next_redundancy_ns) {
		nn->next_redundancy_ns = now + nn->set.redundancy_ms * NS_PER_MS;
		blocks_expire_pending(&nn->blocks, now);
		if (is_settled(nn, now))
			order_copies(nn, live);
		blocks_set_racks(&nn->blocks, datanodes_index(&nn->dns)->racks);
		blocks_set_unit_racks(&nn->blocks, &datanodes_index(&nn->dns)->units);
	}
	nn_unlock(nn);
	if (!nn->safe.on) {
		if (is_settled(nn, now))
			satisfier_look(nn, now);
		check_leases(nn);
		check_recoveries(nn, now);
		trash_tick(nn);
	}
	if (nn->tree_delete_under_way &&
	    now - nn->tree_delete_ns > MONITOR_TREE_DELETE_MS * NS_PER_MS)
		nn->tree_delete_next = true;
	metric_set(METRIC_NN_FILES, nn->inodes);
	metric_set(METRIC_NN_BLOCKS, HASH_COUNT(nn->blocks.map));
	metric_set(METRIC_NN_CROWDED, nn->blocks.crowded_count);
	metric_set(METRIC_NN_UNDER_REPLICATED, nn->blocks.under_count);
	metric_set(METRIC_NN_LIVE, live);
}
