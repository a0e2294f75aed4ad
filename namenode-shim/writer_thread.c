/* SPDX-License-Identifier: Apache-2.0 */
/* writer_thread - the one thread that changes the namespace: it takes what waits, runs MEMORY
 * calls, runs all CHANGE calls in one transaction, and answers them when the disk has it (nn.h) */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/rpc/server.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/namespace/tree_delete.h"
#include "namenode-shim/nn_internal.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/resolver_thread.h"
#include "namenode-shim/rpc/tree_walk.h"

#define BATCH_TRIES 4 /* the map grows, or the journal is given up */
/* a change that nobody waits for is on its way to the disk after so long */
#define EARLY_SYNC_MS 100
#define EARLY_MAX 4096 /* so many of them at most; far fewer than DB_IDS_SKIPPED */

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

static bool wait_is_over(const struct nn *nn, const struct req *q, uint64_t now)
{
	const struct blk *b;

	if (now >= q->wait.deadline_ns)
		return true;
	if (q->wait.for_count)
		return q->wait.count_ns != nn->cache.ended_ns;
	b = blocks_find(&nn->blocks, q->wait.b.id);
	return !b || blk_enough_as(b, q->wait.b.gs, q->wait.b.len, nn->set.repl_min);
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
	       blk_cursor_is_open(&nn->leaving_cursor) || monitor_is_ordering(nn) ||
	       (nn->tree_delete_next && !nn->safe.on);
}

/* Sleep until there is something to do; false: stop and nothing is left. */
static bool take(struct nn *nn, struct list *batch)
{
	uint64_t wake = nn->next_tick_ns;

	list_for_each (l, &nn->parked) {
		const struct req *q = container_of(l, struct req, link);

		if (wait_is_over(nn, q, 0))
			wake = 0;
		wake = q->wait.deadline_ns < wake ? q->wait.deadline_ns : wake;
	}
	if (held_until(nn) && held_until(nn) < wake)
		wake = held_until(nn);
	if (cache_monitor_due_ns(nn) < wake)
		wake = cache_monitor_due_ns(nn);
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
		container_of(l, struct req, link)->waits_for_tree = 0;
	nn_take_deleted(nn, &done);
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
	if (blk_cursor_is_open(&nn->leaving_cursor)) {
		nn_lock(nn);
		decommission_slice(nn);
		nn_unlock(nn);
	}
	if (monitor_is_ordering(nn))
		monitor_order(nn);
	if (cache_monitor_due_ns(nn) <= clock_mono_ns())
		cache_monitor_slice(nn);
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
		if (before->rc || !(before->effects.kinds & EFFECT_BIT(kind)))
			continue;
		for (const struct effect *e = before->effects.first; e; e = e->next)
			if (e->kind == kind &&
			    id == (kind == EFFECT_BLOCK_RECOVER ? (uint64_t)e->b.id : e->inode))
				return true;
	}
	return false;
}

static bool affected_in_batch(const struct nn *nn, const struct req *q, enum effect_kind kind,
			      uint64_t id)
{
	return nn->batch &&
	       (affects(&nn->unsynced, NULL, kind, id) || affects(nn->batch, q, kind, id));
}

bool nn_leased_in_batch(const struct nn *nn, const struct req *q, uint64_t id)
{
	return affected_in_batch(nn, q, EFFECT_LEASE_ADD, id);
}

bool nn_satisfied_in_batch(const struct nn *nn, const struct req *q, uint64_t id)
{
	return affected_in_batch(nn, q, EFFECT_SATISFY, id);
}

bool nn_recovered_in_batch(const struct nn *nn, const struct req *q, int64_t id)
{
	return affected_in_batch(nn, q, EFFECT_BLOCK_RECOVER, (uint64_t)id);
}

static bool is_early(const struct req *q)
{
	return q->early && q->rc == 0;
}

/* The batch before is on the disk: memory learns of it, and the callers. */
static void answer_synced(struct nn *nn)
{
	uint64_t changes = 0;
	uint32_t effects = 0;

	if (!list_empty(&nn->unsynced))
		commit_queue_committed(&nn->commit_queue, clock_mono_ns() - nn->commit_began_ns);
	nn_lock(nn);
	list_for_each (l, &nn->unsynced) {
		struct req *q = container_of(l, struct req, link);

		if (effects >= NN_SLICE || (effects >= NN_SLICE_STEP && nn_slice_is_over(nn))) {
			effects = 0;
			nn_unlock(nn);
			nn_lock(nn);
		}
		if (q->rc == 0) {
			effects += nn_apply(nn, &q->effects);
			changes++;
			q->waits_for_tree = nn_tree_waited_for(q);
			if (!q->waits_for_tree)
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
	nn_take_deleted(nn, &nn->unsynced);
	finish_all(nn, &nn->unsynced);
}

/* The journal sync thread. */
static void on_synced(void *arg)
{
	struct nn *nn = arg;

	commit_queue_record_done(&nn->commit_queue);
}

static bool answer_if_synced(struct nn *nn)
{
	const bool yes = !list_empty(&nn->unsynced) && db_synced(nn->db) > 0;

	if (yes)
		answer_synced(nn);
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
	if (answer_if_synced(nn)) /* those who wait for it first */
		commit_queue_linger(&nn->commit_queue, count_changes(batch) + count_changes(&fresh),
				    &fresh);
	run_memory(nn, &fresh);
	move_all(&fresh, batch);
	return more;
}

/* Does nobody in @batch wait for the disk? */
static bool may_hold(const struct nn *nn, const struct list *batch)
{
	uint32_t n = nn->early;

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
	nn->early += count_changes(&done);
	metric_add(METRIC_NN_OPS, count_changes(&done));
	nn_lock(nn);
	list_for_each (l, &done)
		(void)nn_apply(nn, &container_of(l, struct req, link)->effects);
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

			(void)answer_if_synced(nn);
			req_reset(q, &t);
			nn_run(nn, q);
		}
		if (t.failed || !more || (list_empty(&nn->unsynced) && is_synced(nn)))
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
	log_error("op=commit rc=%s: the NameNode made no change of this batch; %s", err_name(rc),
		  cure(rc));
	list_for_each (l, batch) {
		struct req *q = container_of(l, struct req, link);

		q->rc = rc;
		exception_throw(
			&q->exception, rc == -ENOSPC || rc == -EDQUOT ? EXC_DISK_FULL : EXC_IO,
			"the NameNode cannot write its namespace: %s; %s", err_name(rc), cure(rc));
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
		answer_synced(nn);
		if (rc == TXN_UNDER_WAY)
			/* they are under way, and on the disk before the next batch is committed */
			nn->early = 0;
		finish_early(nn, batch);
	}
	/* Without a record these may all the same answer what those before them did: they wait for
	 * the same. */
	move_all(batch, &nn->unsynced);
	nn->commit_began_ns = nn->commit_next_ns;
	(void)answer_if_synced(nn);
}

bool nn_turn(struct nn *nn)
{
	struct list batch = LIST_INIT(batch);

	if (!take(nn, &batch))
		return false;
	if (db_synced(nn->db) < 0)
		db_wait_synced(nn->db); /* data.mdb takes the journal's place */
	(void)answer_if_synced(nn);
	run_memory(nn, &batch);
	unpark(nn, &batch);
	run_changes(nn, &batch);
	walk_on(nn);
	if (held_until(nn) && clock_mono_ns() >= held_until(nn)) {
		db_flush(nn->db);
		nn->early = 0;
	}
	if (clock_mono_ns() >= nn->next_tick_ns) {
		monitor_tick(nn);
		nn->next_tick_ns = clock_mono_ns() + MONITOR_TICK_MS * NS_PER_MS;
	}
	return true;
}

static void *writer_main(void *arg)
{
	struct nn *nn = arg;

	while (nn_turn(nn))
		;
	db_wait_synced(nn->db);
	answer_synced(nn);
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
