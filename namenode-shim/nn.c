/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/reactor/reactor.h"
#include "common/rpc/auth_to_local.h"
#include "common/rpc/server.h"
#include "common/rpc/service_acl.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/blocks/topology.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/tree_delete.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/resolver_thread.h"
#include "namenode-shim/rpc/tree_walk.h"

#define BATCH_TRIES 4 /* the map grows, or the journal is given up */
/* a change that nobody waits for is on its way to the disk after so long */
#define EARLY_SYNC_MS 100
#define EARLY_MAX 4096  /* so many of them at most; far fewer than DB_IDS_SKIPPED */
#define RECOVERY_LOST 1 /* a stamp that no recovery has */

/* ---- start: memory from disk ---- */

/* Its replicas were to go where its policy wants them. */
static int load_satisfy(struct nn *nn, const struct inode *n)
{
	struct arena a = {0};
	bool marked = false;
	int rc = nn->set.satisfier ? xattrs_marked(&nn->reader, n, &a, &marked) : 0;

	arena_free(&a);
	if (marked)
		satisfier_add(&nn->satisfy, n->id);
	return rc;
}

static int load_inode(void *arg, struct inode *n)
{
	struct nn *nn = arg;
	const bool open = inode_is_open(n);

	nn->inodes++;
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct inode_block *b = &n->blocks[i];
		const bool last = i + 1 == n->nblocks;

		const enum blk_state state = !open || !last ? BLK_COMPLETE
					     : b->committed ? BLK_COMMITTED
							    : BLK_OPEN;
		struct blk *k = n->ec ? blocks_add_group(&nn->blocks, &b->b, n->id, n->ec, state)
				      : blocks_add(&nn->blocks, &b->b, n->id, n->repl, state);

		if (last && n->truncating) /* no order of the last process counts: begin anew */
			blk_set_recovery(&nn->blocks, k, RECOVERY_LOST,
					 clock_mono_ns() + nn->set.recovery_ms * NS_PER_MS);
	}
	if (open)
		leases_add(&nn->leases, n->client, n->id);
	return load_satisfy(nn, n);
}

static int load(struct nn *nn, struct err *err)
{
	struct arena a = {0};
	const char *enabled;
	int rc = txn_read_begin(&nn->reader);

	if (rc < 0)
		return err_sys(err, rc, "cannot read the namespace");
	rc = ecpol_enabled_text(&nn->reader, &nn->set.ec, &a, &enabled);
	if (!rc)
		snprintf(nn->ec_enabled, sizeof(nn->ec_enabled), "%s", enabled);
	rc = rc ? rc : inode_each(&nn->reader, &a, load_inode, nn);
	nn->doomed = nn->tree_delete_next = tree_delete_any(&nn->reader);
	txn_read_end(&nn->reader);
	arena_free(&a);
	if (rc < 0) {
		err_sys(err, rc, "cannot read the namespace in %s: the record after %llu inodes",
			nn->set.name_dir, (unsigned long long)nn->inodes);
		return rc == -EBADMSG ? err_cure(err, DB_RESTORE) : rc;
	}
	nn->safe.total = nn->blocks.complete;
	nn->safe.empty_start = !HASH_COUNT(nn->blocks.map);
	nn->safe.on = nn->safe.startup = nn->blocks.quiet = true;
	nn_check_safe_mode(nn);
	return 0;
}

int nn_new(const struct settings *set, struct nn **ret, struct err *err)
{
	struct nn *nn = xcalloc(1, sizeof(*nn));
	int rc;

	nn->set = *set;
	nn->start_ms = clock_wall_ms();
	nn->start_ns = clock_mono_ns();
	nn->set.ec.run = nn->start_ms;
	pthread_rwlock_init(&nn->mem_lock, NULL);
	commit_queue_init(&nn->commit_queue);
	req_pool_init(&nn->reqs);
	list_init(&nn->parked);
	satisfier_init(&nn->satisfy);
	list_init(&nn->unfinished);
	list_init(&nn->deleting);
	list_init(&nn->flying);
	datanodes_init(&nn->dns, (2 * set->recheck_ms + 10 * set->heartbeat_ms) * NS_PER_MS);
	nn->dns.stale_after_ns = set->stale_ms * NS_PER_MS;
	nn->dns.stale_ratio = set->stale_ratio;
	nn->dns.read_stale = !set->avoid_read_stale;
	nn->dns.write_stale = !set->avoid_write_stale;
	blocks_init(&nn->blocks, set->pending_ms * NS_PER_MS, set->repl_min);
	nn->blocks.maintenance_min = set->maintenance_min;
	nn->blocks.safe_min = set->safe_repl ? set->safe_repl : 1;
	nn->users = users_new(nn->set.super_group, nn->set.fixed_groups);
	nn->topology = topology_new(set->conf);
	rc = hosts_load(set->conf, &nn->hosts, err);
	rc = rc ? rc : auth_to_local_new(set->conf, &nn->names, err);
	rc = rc ? rc : service_acl_new(set->conf, &nn->service_acl, err);
	rc = rc ? rc : db_open(set->name_dir, &nn->db, err);
	if (rc < 0)
		goto fail;
	rc = txn_reader_new(nn->db, &nn->reader);
	rc = rc ? rc : txn_reader_new(nn->db, &nn->look);
	if (rc < 0) {
		err_sys(err, rc, "cannot read the namespace in %s", set->name_dir);
		goto fail;
	}
	rc = load(nn, err);
	if (rc < 0)
		goto fail;
	*ret = nn;
	return 0;
fail:
	nn_free(nn);
	return rc;
}

void nn_free(struct nn *nn)
{
	if (!nn)
		return;
	tree_walk_free(nn->tree_walks);
	txn_reader_free(&nn->reader);
	txn_reader_free(&nn->look);
	db_close(nn->db);
	leases_fini(&nn->leases);
	blocks_fini(&nn->blocks);
	satisfier_fini(&nn->satisfy);
	tree_delete_fini(&nn->tree_delete_broken);
	datanodes_fini(&nn->dns);
	users_free(nn->users);
	auth_to_local_free(nn->names);
	service_acl_free(nn->service_acl);
	hosts_free(nn->hosts);
	hosts_free(nn->hosts_next);
	topology_free(nn->topology);
	while (nn->calls) {
		struct call_stat *next = nn->calls->next;

		free(nn->calls);
		nn->calls = next;
	}
	commit_queue_fini(&nn->commit_queue);
	req_pool_fini(&nn->reqs);
	pthread_rwlock_destroy(&nn->mem_lock);
	settings_fini(&nn->set);
	free(nn);
}

uint64_t nn_steady_ms(const struct nn *nn)
{
	return nn->start_ms + (clock_mono_ns() - nn->start_ns) / NS_PER_MS;
}

struct call_stat *call_stats_find(struct call_stat *list, const char *method)
{
	while (list && strcmp(list->name, method))
		list = list->next;
	return list;
}

struct call_stat *call_stats_get(struct call_stat **list, const char *method)
{
	struct call_stat *c = call_stats_find(*list, method);

	if (c)
		return c;
	c = xcalloc(1, sizeof(*c));
	c->name = method;
	c->next = *list;
	return *list = c;
}

/* ---- safe mode ---- */

static uint64_t blocks_needed(const struct nn *nn)
{
	return (uint64_t)((double)nn->safe.total * nn->set.safe_pct);
}

/* The tip of startup safe mode, in the words of HDFS: scripts look for them. */
static void startup_text(const struct nn *nn, char *buf)
{
	const struct safemode *s = &nn->safe;
	const uint64_t need = blocks_needed(nn), have = nn->blocks.safe;
	const uint32_t live = datanodes_live(&nn->dns), want = nn->set.safe_nodes;
	const uint64_t gone = s->reached_ns ? (clock_mono_ns() - s->reached_ns) / NS_PER_MS : 0;
	const uint64_t ext = nn->set.safe_extension_ms;
	int n;

	if (have < need)
		n = snprintf(buf, ERR_TEXT_MAX,
			     "The reported blocks %llu needs additional %llu blocks to reach the "
			     "threshold %.4f of total blocks %llu.\n",
			     (unsigned long long)have, (unsigned long long)(need - have),
			     nn->set.safe_pct, (unsigned long long)s->total);
	else
		n = snprintf(buf, ERR_TEXT_MAX,
			     "The reported blocks %llu has reached the threshold %.4f of total "
			     "blocks %llu. ",
			     (unsigned long long)have, nn->set.safe_pct,
			     (unsigned long long)s->total);
	if (live < want)
		n += snprintf(
			buf + n, ERR_TEXT_MAX - (size_t)n,
			"The number of live datanodes %u needs an additional %u live datanodes "
			"to reach the minimum number %u.\n",
			live, want - live, want);
	else
		n += snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			      "The number of live datanodes %u has reached the minimum number %u. ",
			      live, want);
	if (s->reached_ns)
		snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			 "In safe mode extension. Safe mode will be turned off automatically in "
			 "%llu seconds.",
			 (unsigned long long)(gone < ext ? (ext - gone) / 1000 : 0));
	else
		snprintf(buf + n, ERR_TEXT_MAX - (size_t)n,
			 "Safe mode will be turned off automatically once the thresholds have been "
			 "reached.");
}

const char *nn_safe_text(const struct nn *nn, char *buf)
{
	if (nn->safe.startup && !nn->safe.manual)
		startup_text(nn, buf);
	else
		snprintf(buf, ERR_TEXT_MAX,
			 "It was turned on manually. Use \"hdfs dfsadmin -safemode leave\" to turn "
			 "safe mode off.");
	return buf;
}

void nn_check_safe_mode(struct nn *nn)
{
	struct safemode *s = &nn->safe;
	const uint64_t now = clock_mono_ns();

	if (!s->startup)
		return;
	if (nn->blocks.safe < blocks_needed(nn) || datanodes_live(&nn->dns) < nn->set.safe_nodes) {
		s->reached_ns = 0;
		return;
	}
	if (!s->reached_ns)
		s->reached_ns = now;
	if ((!s->empty_start || nn->set.safe_nodes) &&
	    now - s->reached_ns < nn->set.safe_extension_ms * NS_PER_MS)
		return;
	s->startup = false;
	s->on = s->manual;
	s->left_ns = now;
	nn->blocks.quiet = false;
	blocks_recheck_all(&nn->blocks);
	log_info("op=safemode state=off blocks=%llu reported=%llu", (unsigned long long)s->total,
		 (unsigned long long)nn->blocks.safe);
}

static void order_dropped(void *arg, int64_t id, const struct storage *target)
{
	struct nn *nn = arg;
	struct blk *b = blocks_find(&nn->blocks, id);

	if (b)
		blk_drop_pending(&nn->blocks, b, target);
}

void nn_dn_lost(struct nn *nn, struct dn *dn, const char *why)
{
	log_warn("op=lost datanode=%s address=%s:%u reason=\"%s\"", dn->uuid, dn->ip, dn->xfer_port,
		 why);
	dn->alive = dn->stale = false;
	datanodes_changed(&nn->dns);
	if (dn->admin == DN_IN_MAINTENANCE) /* it was to be away: nothing is copied */
		blocks_recheck_node(&nn->blocks, dn);
	else
		blocks_forget(&nn->blocks, dn, NULL);
	dn_orders_drop(&nn->dns, dn, order_dropped, nn);
}

void nn_dn_forget(struct nn *nn, struct dn *dn, const char *why)
{
	dn->admin = DN_NORMAL; /* its replicas are not kept, not even those of maintenance */
	if (dn->alive) {
		nn_dn_lost(nn, dn, why);
	} else {
		log_info("op=forget datanode=%s address=%s:%u reason=\"%s\"", dn->uuid, dn->ip,
			 dn->xfer_port, why);
		blocks_forget(&nn->blocks, dn, NULL);
	}
	datanodes_remove(&nn->dns, dn);
	datanodes_free_gone(&nn->dns);
}

/* ---- effects ---- */

static void start_recovery(struct nn *nn, struct blk *b, uint64_t recovery_id, uint64_t truncate_to)
{
	const struct dn *best = NULL;
	struct blk_open *o = b->open;

	if (!o)
		return;
	blk_set_recovery(&nn->blocks, b, recovery_id,
			 clock_mono_ns() + nn->set.recovery_ms * NS_PER_MS);
	o->truncate_to = truncate_to;
	if (!o->ntargets) { /* this process never saw the pipeline: whoever reported a replica */
		struct storage **st = xcalloc(b->nreps + 1u, sizeof(struct storage *));
		uint8_t *units = xcalloc(b->nreps + 1u, 1);
		uint32_t n = 0;

		for (uint16_t i = 0; i < b->nreps; i++)
			if (!b->rep[i].corrupt) {
				units[n] = b->rep[i].unit;
				st[n++] = b->rep[i].st;
			}
		blk_set_targets(b, st, units, n);
		free(units);
		free(st);
	}
	for (uint32_t i = 0; i < o->ntargets && (!best || best->stale); i++) {
		const struct dn *dn = o->target[(i + o->primary_turn) % o->ntargets]->dn;

		if (dn->alive && (!best || !dn->stale))
			best = dn;
	}
	o->primary_turn++;
	if (!best)
		return;
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

static void set_targets(struct nn *nn, struct blk *b, const struct effect *e)
{
	const struct targets t = find_targets(nn, e);

	blk_set_targets(b, t.st, t.units, t.n);
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

	if (e->kind == FX_BLOCK_ADD) {
		b = e->ec ? blocks_add_group(bs, &e->b, e->inode, e->ec, BLK_OPEN)
			  : blocks_add(bs, &e->b, e->inode, e->repl, BLK_OPEN);
		set_targets(nn, b, e);
		blk_set_room(b, e->room, e->room_ns);
		return;
	}
	if (!b)
		return; /* removed by an earlier change of the same batch */
	switch (e->kind) {
	case FX_BLOCK_COMMIT:
		blk_commit(bs, b, &e->b);
		break;
	case FX_BLOCK_PIPELINE:
		b->b.gs = e->b.gs;
		b->b.len = e->b.len;
		set_targets(nn, b, e);
		blk_recheck(bs, b);
		break;
	case FX_BLOCK_REOPEN:
		blk_reopen(bs, b);
		break;
	case FX_BLOCK_RECOVER:
		start_recovery(nn, b, e->b.gs, e->truncate_to);
		break;
	case FX_BLOCK_SYNCED:
		block_synced(nn, b, e);
		break;
	case FX_BLOCK_CLOSED:
		blk_close(bs, b);
		break;
	case FX_BLOCK_REPL:
		blk_set_repl(bs, b, e->repl);
		break;
	case FX_BLOCK_REMOVE:
		blocks_remove(bs, b);
		break;
	case FX_BLOCK_OWNER:
		b->inode = e->inode;
		blk_set_repl(bs, b, e->repl);
		break;
	case FX_BLOCK_ADD:
	case FX_LEASE_ADD:
	case FX_LEASE_DEL:
	case FX_INODES:
	case FX_POLICIES:
	case FX_DOOM:
	case FX_DOOM_SLICE:
	case FX_DOOM_BROKEN:
	case FX_HOSTS:
	case FX_SATISFY:
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

/* Trees go bit by bit: the next slice is submitted when the last one is on the disk. */
static void doom(struct nn *nn, const struct effect *e)
{
	if (e->kind == FX_DOOM_BROKEN) {
		tree_delete_leave(&nn->tree_delete_broken, e->inode);
	} else {
		nn->tree_delete_next =
			e->kind == FX_DOOM ? nn->tree_delete_next || !nn->doomed : e->delta;
		nn->doomed = e->kind == FX_DOOM || e->delta;
		nn->tree_delete_turn = e->kind == FX_DOOM_SLICE ? e->turn : nn->tree_delete_turn;
	}
	if (e->kind == FX_DOOM)
		return;
	list_for_each (l, &nn->deleting) {
		struct req *q = container_of(l, struct req, link);

		q->doomed = q->doomed == e->inode ? 0 : q->doomed;
	}
}

/* The tree whose end @q waits for; 0: none. */
static uint64_t tree_waited_for(const struct req *q)
{
	for (const struct effect *e = q->fx.first; e; e = e->next)
		if (e->kind == FX_DOOM && e->delta)
			return e->inode;
	return 0;
}

/* Deletes of which the tree is gone, or cannot go. */
static void take_deleted(struct nn *nn, struct list *done)
{
	list_for_each (l, &nn->deleting)
		if (!container_of(l, struct req, link)->doomed) {
			list_del(l);
			list_add_tail(done, l);
			commit_queue_again(&nn->commit_queue, 1);
		}
}

/* Returns how many there are. */
static uint32_t apply(struct nn *nn, const struct effect_list *l)
{
	uint32_t n = 0;

	for (const struct effect *e = l->first; e; e = e->next, n++)
		if (e->kind == FX_DOOM || e->kind == FX_DOOM_SLICE || e->kind == FX_DOOM_BROKEN)
			doom(nn, e);
		else if (e->kind == FX_LEASE_ADD)
			leases_add(&nn->leases, e->holder, e->inode);
		else if (e->kind == FX_LEASE_DEL)
			leases_del(&nn->leases, e->holder, e->inode);
		else if (e->kind == FX_INODES)
			nn->inodes += (uint64_t)e->delta;
		else if (e->kind == FX_POLICIES)
			snprintf(nn->ec_enabled, sizeof(nn->ec_enabled), "%s", e->holder);
		else if (e->kind == FX_HOSTS)
			take_hosts(nn);
		else if (e->kind == FX_SATISFY)
			satisfier_add(&nn->satisfy, e->inode);
		else
			apply_block(nn, e);
	return n;
}

/* ---- the writer thread ---- */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void nn_lock(struct nn *nn)
{
	pthread_rwlock_wrlock(&nn->mem_lock);
	nn->holds.since_ns = clock_mono_ns();
	if (nn->holds.with_cpu)
		nn->holds.cpu_since_ns = cpu_ns();
}

bool nn_slice_is_over(const struct nn *nn)
{
	return clock_mono_ns() - nn->holds.since_ns > NN_SLICE_NS;
}

bool nn_slice_is_done(const struct nn *nn, uint32_t done)
{
	return done >= NN_SLICE || (done && done % NN_SLICE_STEP == 0 && nn_slice_is_over(nn));
}

void nn_unlock(struct nn *nn)
{
	struct holds *h = &nn->holds;
	const uint64_t ns = clock_mono_ns() - h->since_ns;
	const uint64_t cpu = h->with_cpu ? cpu_ns() - h->cpu_since_ns : 0;

	h->max_cpu_ns = cpu > h->max_cpu_ns ? cpu : h->max_cpu_ns;
	pthread_rwlock_unlock(&nn->mem_lock);
	h->count++;
	metric_add(METRIC_NN_HOLDS, 1);
	metric_add(METRIC_NN_HOLD_NS, ns);
	metric_add(METRIC_NN_HOLDS_LONG, ns > NN_HOLD_NS);
	if (ns <= h->max_ns)
		return;
	h->max_ns = ns;
	metric_set(METRIC_NN_HOLD_MAX, ns);
}

void nn_run(struct nn *nn, struct req *q)
{
	const uint64_t start = clock_mono_ns();
	uint64_t ns;

	(void)req_run(q);
	ns = clock_mono_ns() - start;
	if (ns <= nn->holds.max_run_ns)
		return;
	nn->holds.max_run_ns = ns;
	metric_set(METRIC_NN_RUN_MAX, ns);
}

void nn_submit(struct nn *nn, struct req *q)
{
	commit_queue_put(&nn->commit_queue, q);
}

static void move_all(struct list *from, struct list *to)
{
	struct list *l;

	while ((l = list_pop(from)))
		list_add_tail(to, l);
}

static uint32_t count_changes(const struct list *l)
{
	uint32_t n = 0;

	list_for_each (e, l)
		n += container_of(e, struct req, link)->method->kind == REQ_CHANGE;
	return n;
}

/* The answers wake the reactor once, so that they leave together. */
static void finish_all(struct nn *nn, struct list *l)
{
	const uint32_t changes = count_changes(l);
	struct list *e;

	if (list_empty(l))
		return;
	if (changes)
		commit_queue_answered(&nn->commit_queue, changes);
	while ((e = list_pop(l))) {
		struct req *q = container_of(e, struct req, link);

		if (q->call)
			q->call->quiet = true;
		req_finish(q);
	}
	if (nn->reactor)
		reactor_wake(nn->reactor);
}

static bool wait_is_over(struct nn *nn, const struct req *q, uint64_t now)
{
	const struct blk *b = blocks_find(&nn->blocks, q->wait.b.id);

	return now >= q->wait.deadline_ns || !b ||
	       blk_enough_as(b, q->wait.b.gs, q->wait.b.len, nn->set.repl_min);
}

/* 0: nothing is held. */
static uint64_t held_until(const struct nn *nn)
{
	const uint64_t since = db_held_ns(nn->db);

	return since ? since + EARLY_SYNC_MS * NS_PER_MS : 0;
}

static bool must_walk(const struct nn *nn)
{
	return !list_empty(&nn->unfinished) || blocks_must_sweep(&nn->blocks) ||
	       blk_cursor_is_open(&nn->draining) || monitor_is_ordering(nn) ||
	       (nn->tree_delete_next && !nn->safe.on);
}

/* Sleep until there is something to do; false: stop and nothing is left. */
static bool take(struct nn *nn, struct list *batch)
{
	uint64_t wake = nn->next_tick_ns;

	list_for_each (l, &nn->parked) {
		const struct req *q = container_of(l, struct req, link);

		wake = q->wait.deadline_ns < wake ? q->wait.deadline_ns : wake;
	}
	if (held_until(nn) && held_until(nn) < wake)
		wake = held_until(nn);
	if (must_walk(nn))
		wake = 0;
	return commit_queue_take(&nn->commit_queue, wake, batch);
}

/* What is through with it joins @done, what is not nn->unfinished. */
static void run_one_memory(struct nn *nn, struct req *q, struct list *done)
{
	list_del(&q->link);
	req_reset(q, NULL);
	nn_lock(nn);
	nn_run(nn, q);
	nn_check_safe_mode(nn);
	nn_unlock(nn);
	list_add_tail(q->rc == REQ_PARK ? &nn->unfinished : done, &q->link);
}

static void run_memory(struct nn *nn, struct list *batch)
{
	struct list done = LIST_INIT(done);

	list_for_each (l, batch) {
		struct req *q = container_of(l, struct req, link);

		if (q->method->kind == REQ_MEMORY)
			run_one_memory(nn, q, &done);
	}
	finish_all(nn, &done);
}

/* No slice is made in safe mode. What was deleted is gone for everybody; the quotas follow when
 * safe mode is left. */
static void answer_deleting(struct nn *nn)
{
	struct list done = LIST_INIT(done);

	list_for_each (l, &nn->deleting)
		container_of(l, struct req, link)->doomed = 0;
	take_deleted(nn, &done);
	finish_all(nn, &done);
}

/* ---- walks, in slices ---- */

/* A slice of each that is under way. */
static void walk_on(struct nn *nn)
{
	struct list turn = LIST_INIT(turn), done = LIST_INIT(done);

	move_all(&nn->unfinished, &turn);
	while (!list_empty(&turn))
		run_one_memory(nn, container_of(turn.next, struct req, link), &done);
	finish_all(nn, &done);
	if (blocks_must_sweep(&nn->blocks)) {
		nn_lock(nn);
		for (uint32_t i = 0; !nn_slice_is_done(nn, i); i += NN_SLICE_STEP)
			blocks_sweep(&nn->blocks, NN_SLICE_STEP);
		datanodes_free_gone(&nn->dns);
		nn_unlock(nn);
	}
	if (blk_cursor_is_open(&nn->draining)) {
		nn_lock(nn);
		decommission_slice(nn);
		nn_unlock(nn);
	}
	if (monitor_is_ordering(nn))
		monitor_order(nn);
	if (nn->tree_delete_next && !nn->safe.on) {
		nn->tree_delete_next = false;
		nn->tree_delete_ns = clock_mono_ns();
		nn_submit(nn, req_new(nn, &tree_delete_method, NULL));
	}
	if (nn->safe.on)
		answer_deleting(nn);
}

static void unpark(struct nn *nn, struct list *batch)
{
	const uint64_t now = clock_mono_ns();

	list_for_each (l, &nn->parked)
		if (wait_is_over(nn, container_of(l, struct req, link), now)) {
			list_del(l);
			list_add_tail(batch, l);
			commit_queue_again(&nn->commit_queue, 1);
		}
}

/* Has a change of @batch before @end an effect of @kind on inode or block @id? */
static bool affects(const struct list *batch, const struct req *end, enum effect_kind kind,
		    uint64_t id)
{
	list_for_each (l, batch) {
		const struct req *before = container_of(l, struct req, link);

		if (before == end)
			break;
		if (before->rc || !(before->fx.kinds & EFFECT_BIT(kind)))
			continue;
		for (const struct effect *e = before->fx.first; e; e = e->next)
			if (e->kind == kind &&
			    id == (kind == FX_BLOCK_RECOVER ? (uint64_t)e->b.id : e->inode))
				return true;
	}
	return false;
}

static bool affected_in_batch(const struct nn *nn, const struct req *q, enum effect_kind kind,
			      uint64_t id)
{
	return nn->batch &&
	       (affects(&nn->flying, NULL, kind, id) || affects(nn->batch, q, kind, id));
}

bool nn_leased_in_batch(const struct nn *nn, const struct req *q, uint64_t id)
{
	return affected_in_batch(nn, q, FX_LEASE_ADD, id);
}

bool nn_satisfied_in_batch(const struct nn *nn, const struct req *q, uint64_t id)
{
	return affected_in_batch(nn, q, FX_SATISFY, id);
}

bool nn_recovered_in_batch(const struct nn *nn, const struct req *q, int64_t id)
{
	return affected_in_batch(nn, q, FX_BLOCK_RECOVER, (uint64_t)id);
}

static bool is_early(const struct req *q)
{
	return q->early && q->rc == 0;
}

/* The batch before is on the disk: memory learns of it, and the callers. */
static void land(struct nn *nn)
{
	uint64_t changes = 0;
	uint32_t effects = 0;

	if (!list_empty(&nn->flying))
		commit_queue_committed(&nn->commit_queue, clock_mono_ns() - nn->commit_began_ns);
	nn_lock(nn);
	list_for_each (l, &nn->flying) {
		struct req *q = container_of(l, struct req, link);

		if (effects >= NN_SLICE || (effects >= NN_SLICE_STEP && nn_slice_is_over(nn))) {
			effects = 0;
			nn_unlock(nn);
			nn_lock(nn);
		}
		if (q->rc == 0) {
			effects += apply(nn, &q->fx);
			changes++;
			q->doomed = tree_waited_for(q);
			if (!q->doomed)
				continue;
			list_del(l);
			list_add_tail(&nn->deleting, l);
			commit_queue_answered(&nn->commit_queue, 1);
		} else if (q->rc == REQ_PARK) {
			list_del(l);
			list_add_tail(&nn->parked, l);
			commit_queue_answered(&nn->commit_queue, 1);
		}
	}
	nn_unlock(nn);
	metric_add(METRIC_NN_OPS, changes);
	take_deleted(nn, &nn->flying);
	finish_all(nn, &nn->flying);
}

/* The journal sync thread. */
static void on_synced(void *arg)
{
	struct nn *nn = arg;

	commit_queue_landed(&nn->commit_queue);
}

static bool land_if_synced(struct nn *nn)
{
	const bool yes = !list_empty(&nn->flying) && db_synced(nn->db) > 0;

	if (yes)
		land(nn);
	return yes;
}

static bool is_synced(void *arg)
{
	struct nn *nn = arg;

	return db_synced(nn->db) != 0;
}

/* While the batch before is under way, and when those who waited for it were answered: wait for
 * more to come. What came joins @batch. False: it is on the disk, or never will be, and nobody is
 * waited for. */
static bool gather(struct nn *nn, struct list *batch)
{
	struct list fresh = LIST_INIT(fresh);
	bool more;

	commit_queue_meanwhile(&nn->commit_queue, is_synced, nn, &fresh);
	more = !is_synced(nn);
	if (land_if_synced(nn)) /* those who wait for it first */
		commit_queue_linger(&nn->commit_queue, count_changes(batch) + count_changes(&fresh),
				    &fresh);
	run_memory(nn, &fresh);
	move_all(&fresh, batch);
	return more;
}

/* Does nobody in @batch wait for the disk? */
static bool may_hold(const struct nn *nn, const struct list *batch)
{
	uint32_t n = nn->nearly;

	list_for_each (l, batch) {
		const struct req *q = container_of(l, struct req, link);

		if (q->rc != REQ_PARK && !is_early(q))
			return false;
		n++;
	}
	return n <= EARLY_MAX;
}

/* Their records are written: who asked for no more has it. */
static void finish_early(struct nn *nn, struct list *batch)
{
	struct list done = LIST_INIT(done);

	list_for_each (l, batch)
		if (is_early(container_of(l, struct req, link))) {
			list_del(l);
			list_add_tail(&done, l);
		}
	if (list_empty(&done))
		return;
	nn->nearly += count_changes(&done);
	metric_add(METRIC_NN_OPS, count_changes(&done));
	nn_lock(nn);
	list_for_each (l, &done)
		(void)apply(nn, &container_of(l, struct req, link)->fx);
	nn_unlock(nn);
	finish_all(nn, &done);
}

/* One transaction with every change of the batch. It is committed when the batch before is on the
 * disk, and not sooner: what comes until then can still be a part of it. */
static int try_batch(struct nn *nn, struct list *batch)
{
	struct list *l = batch->next;
	bool more = true;
	struct txn t;
	int rc = txn_write_begin(nn->db, &t);

	if (rc < 0)
		return rc;
	nn->batch = batch;
	for (;;) {
		struct list *last;

		for (; l != batch && !t.failed; l = l->next) {
			struct req *q = container_of(l, struct req, link);

			(void)land_if_synced(nn);
			req_reset(q, &t);
			nn_run(nn, q);
		}
		if (t.failed || !more || (list_empty(&nn->flying) && is_synced(nn)))
			break;
		last = batch->prev;
		more = gather(nn, batch);
		l = last->next;
	}
	if (!t.failed)
		(void)retry_cache_purge(&t, nn_steady_ms(nn)); /* a failure shows in the commit */
	nn->batch = NULL;
	nn->commit_next_ns = clock_mono_ns();
	return txn_write_commit_later(&t, may_hold(nn, batch));
}

/* What is wrong with the name directory, and who can mend it. */
static const char *cure(int rc)
{
	switch (rc) {
	case -ENOSPC:
	case -EDQUOT:
		return "its disk is full: free space in its name directory, then try again";
	case -EXFULL:
	case -ENOMEM:
		return "its map of the namespace cannot grow: raise the limit of address space (ulimit -v), or add "
		       "memory, and start it again";
	case -EFBIG:
		return "the file may not grow: raise the limit of file sizes (ulimit -f), and start it again";
	default:
		return "the disk of its name directory fails: see the kernel's log";
	}
}

static void fail_batch(struct list *batch, int rc)
{
	log_error("op=commit rc=%s; nothing of this batch was changed; %s", err_name(rc), cure(rc));
	list_for_each (l, batch) {
		struct req *q = container_of(l, struct req, link);

		q->rc = rc;
		exception_throw(&q->exc, rc == -ENOSPC || rc == -EDQUOT ? EXC_DISK_FULL : EXC_IO,
				"the NameNode cannot write its namespace: %s; %s", err_name(rc),
				cure(rc));
	}
}

static void run_changes(struct nn *nn, struct list *batch)
{
	int rc = -EXFULL;

	if (list_empty(batch))
		return;
	for (int i = 0; i < BATCH_TRIES && (rc == -EXFULL || (rc < 0 && log_failed(nn->db))); i++) {
		rc = try_batch(nn, batch);
		if (rc == -EXFULL && db_grow(nn->db))
			break;
	}
	metric_add(METRIC_NN_COMMITS, 1);
	if (rc < 0) {
		fail_batch(batch, rc);
		finish_all(nn, batch);
		return;
	}
	if (rc > 0) { /* those before them are on the disk: one record is under way at a time */
		land(nn);
		if (rc == TXN_UNDER_WAY)
			/* they are under way, and no batch is committed before they have landed */
			nn->nearly = 0;
		finish_early(nn, batch);
	}
	/* Without a record these may all the same answer what those before them did: they wait for
	 * the same. */
	move_all(batch, &nn->flying);
	nn->commit_began_ns = nn->commit_next_ns;
	(void)land_if_synced(nn);
}

static void *writer_main(void *arg)
{
	struct nn *nn = arg;
	struct list batch = LIST_INIT(batch);

	while (take(nn, &batch)) {
		if (db_synced(nn->db) < 0)
			db_wait_synced(nn->db); /* data.mdb takes the journal's place */
		(void)land_if_synced(nn);
		run_memory(nn, &batch);
		unpark(nn, &batch);
		run_changes(nn, &batch);
		walk_on(nn);
		if (held_until(nn) && clock_mono_ns() >= held_until(nn)) {
			db_flush(nn->db);
			nn->nearly = 0;
		}
		if (clock_mono_ns() >= nn->next_tick_ns) {
			monitor_tick(nn);
			nn->next_tick_ns = clock_mono_ns() + MONITOR_TICK_MS * NS_PER_MS;
		}
	}
	db_wait_synced(nn->db);
	land(nn);
	return NULL;
}

int nn_start(struct nn *nn)
{
	int rc = nn->set.journal ? db_log_start(nn->db, on_synced, nn) : 0;

	rc = rc ? rc : resolver_new(&nn->resolver);
	rc = rc ? rc : tree_walk_new(nn, &nn->tree_walks);
	rc = rc ? rc : ret_code(pthread_create(&nn->writer, NULL, writer_main, nn));
	nn->writer_runs = !rc;
	if (rc < 0) {
		resolver_free(nn->resolver);
		nn->resolver = NULL;
	}
	return rc;
}

void nn_stop(struct nn *nn)
{
	if (!nn->writer_runs)
		return;
	resolver_free(nn->resolver);
	nn->resolver = NULL;
	commit_queue_stop(&nn->commit_queue);
	pthread_join(nn->writer, NULL);
	nn->writer_runs = false;
	move_all(&nn->unfinished, &nn->parked);
	list_for_each (l, &nn->parked)
		container_of(l, struct req, link)->rc = -ESHUTDOWN;
	finish_all(nn, &nn->parked);
	finish_all(nn, &nn->deleting);
	tree_walk_free(nn->tree_walks);
	nn->tree_walks = NULL;
}
