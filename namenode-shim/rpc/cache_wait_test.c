/* SPDX-License-Identifier: Apache-2.0 */
/* When the cache monitor rests, and changes over their pool's limit that wait for its count: each
 * has an answer as soon as there is one, and nobody who waits costs other calls, or keeps the
 * monitor at work. The writer's turns are made by the test, and its sleep only moves the clock. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/namespace/cache_directive.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/nn_internal.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/methods.h"

#include "namenode-shim/test_nn.h"

#define LEN 1000u
#define FILES 2500u /* of /d: measured in three steps */
#define LONG_NS (3 * NS_PER_S)

/* ---- clock and disk ---- */

static uint64_t now_ns;
static bool disk_fails;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	(void)id;
	*ret = (struct timespec){(time_t)(now_ns / NS_PER_S), (long)(now_ns % NS_PER_S)};
	return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts)
{
	(void)c, (void)m;
	now_ns = (uint64_t)ts->tv_sec * NS_PER_S + (uint64_t)ts->tv_nsec;
	return ETIMEDOUT;
}

int __wrap_mdb_txn_renew(MDB_txn *t);
int __real_mdb_txn_renew(MDB_txn *t);
int __wrap_mdb_txn_renew(MDB_txn *t)
{
	return disk_fails ? EIO : __real_mdb_txn_renew(t);
}

/* ---- a NameNode with /f and /d, and the pool p, in which there is room for one of them ---- */

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn;           /* without its thread */
	struct cache_monitor *c; /* its own */
};

static void put_file(struct ns *n, const char *path, uint32_t blocks)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 1,
				    .block_size = 1 << 20,
				    .create = true,
				    .create_parent = true};
	struct inode_block b = {.committed = true};
	struct inode *f = NULL;
	struct ns_path at;

	assert_int_equal(ns_resolve_create(n, &c, &at), 0);
	assert_int_equal(ns_create(n, &c, &at, &f), 0);
	b.b = (struct block){(int64_t)++n->t->ctr.block, n->t->ctr.gs, LEN};
	f->client = "";
	f->blocks = &b;
	f->nblocks = blocks;
	assert_int_equal(inode_put(n->t, f), 0);
}

static void world_init(struct world *w)
{
	static const char *const settings[] = {"dfs.shim.journal", "false", NULL};
	const struct cache_pool_info p = {.name = "p", .has_limit = true, .limit = LEN};
	struct ns *n;

	*w = (struct world){0};
	now_ns = 1000 * NS_PER_S;
	disk_fails = false;
	test_db_init(&w->d);
	n = test_begin(&w->d, "root");
	put_file(n, "/f", 1);
	for (uint32_t i = 0; i < FILES; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/d/%04u", i);
		put_file(n, path, !i);
	}
	assert_int_equal(cache_pool_add(n, &p, "g"), 0);
	assert_int_equal(test_commit(&w->d), 0);
	w->nn = test_nn_new(&w->d, settings, &w->conf);
	w->nn->next_tick_ns = UINT64_MAX; /* nobody is woken by chance */
	w->c = &w->nn->cache;
}

static void world_fini(struct world *w)
{
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* ---- calls ---- */

#define CALLS 4

static struct call {
	Hd__AddCacheDirectiveRequestProto add;
	Hd__CacheDirectiveInfoProto info;
	Hd__RemoveCacheDirectiveRequestProto remove;
	bool is_remove;
	uint32_t runs;
	int rc;
	int64_t id; /* of what was added */
	struct call_stat stat;
} calls[CALLS];

static const struct method *find_method(const char *name)
{
	for (size_t i = 0; i < client_cache_methods.count; i++)
		if (!strcmp(client_cache_methods.methods[i].name, name))
			return &client_cache_methods.methods[i];
	abort();
}

static int run_call(struct req *q, const void *in)
{
	struct call *c = &calls[q->arg];

	(void)in;
	c->runs++;
	if (c->is_remove)
		return c->rc = find_method("removeCacheDirective")->run(q, &c->remove);
	c->rc = find_method("addCacheDirective")->run(q, &c->add);
	if (!c->rc)
		c->id = ((Hd__AddCacheDirectiveResponseProto *)q->out)->id;
	return c->rc;
}

static void submit(struct world *w, uint32_t i)
{
	static const struct method m = {.name = "call", .kind = REQ_CHANGE, .run = run_call};
	struct req *q = req_new(w->nn, &m, NULL);

	calls[i].runs = 0;
	calls[i].stat.calls = 0;
	q->arg = i;
	q->stat = &calls[i].stat;
	nn_submit(w->nn, q);
	(void)nn_turn(w->nn);
}

static void submit_add(struct world *w, uint32_t i, const char *path)
{
	struct call *c = &calls[i];

	*c = (struct call){.add = HD__ADD_CACHE_DIRECTIVE_REQUEST_PROTO__INIT,
			   .info = HD__CACHE_DIRECTIVE_INFO_PROTO__INIT};
	c->add.info = &c->info;
	c->info.path = (char *)(uintptr_t)path;
	c->info.pool = (char *)(uintptr_t) "p";
	submit(w, i);
}

static void wait_answer(struct world *w, uint32_t i)
{
	for (int turns = 0; !calls[i].stat.calls; turns++) {
		assert_true(turns < 1000);
		(void)nn_turn(w->nn);
	}
}

static int64_t add(struct world *w, const char *path)
{
	submit_add(w, 0, path);
	wait_answer(w, 0);
	assert_int_equal(calls[0].rc, 0);
	return calls[0].id;
}

static void take_away(struct world *w, int64_t id)
{
	calls[0] = (struct call){.remove = HD__REMOVE_CACHE_DIRECTIVE_REQUEST_PROTO__INIT,
				 .is_remove = true};
	calls[0].remove.id = id;
	submit(w, 0);
	wait_answer(w, 0);
	assert_int_equal(calls[0].rc, 0);
}

/* The turn of another call. */
static int run_nothing(struct req *q, const void *in)
{
	(void)q, (void)in;
	return 0;
}

static void other_call(struct world *w)
{
	static const struct method m = {.name = "nothing", .kind = REQ_MEMORY, .run = run_nothing};

	nn_submit(w->nn, req_new(w->nn, &m, NULL));
	(void)nn_turn(w->nn);
}

/* All is counted, and the scan took so long that the rest is longer than a change waits. */
static void scan(struct world *w)
{
	while (cache_monitor_is_behind(w->c))
		(void)nn_turn(w->nn);
	w->c->took_ns = LONG_NS;
	w->c->hurried = false;
}

static uint64_t rest_ns(const struct world *w)
{
	return cache_monitor_due_ns(w->nn) - w->c->ended_ns - CACHE_PAUSE_NS;
}

/* In p there is room again, which is not counted yet. */
static void world_with_room(struct world *w)
{
	int64_t id;

	world_init(w);
	id = add(w, "/f");
	scan(w);
	take_away(w, id);
}

/* ---- who waits ---- */

/* Without the rest, and without a turn that is none of its own. */
static void a_change_that_waits_is_answered_by_the_next_count(void **state)
{
	struct world w;
	uint64_t began;

	(void)state;
	world_with_room(&w);
	submit_add(&w, 1, "/f");
	submit_add(&w, 2, "/f");
	began = now_ns;
	assert_int_equal(calls[1].rc, REQ_PARK);
	for (int i = 0; i < 5; i++)
		other_call(&w);
	assert_int_equal(calls[1].runs, 1);
	assert_int_equal(calls[2].runs, 1);
	wait_answer(&w, 1);
	assert_int_equal(calls[1].rc, 0);
	assert_int_equal(calls[1].runs, 2);
	assert_true(now_ns - began <= CACHE_PAUSE_NS);
	wait_answer(&w, 2);
	assert_int_equal(calls[2].rc, -EINVAL); /* the other one has the room */
	world_fini(&w);
}

static void a_change_that_no_count_came_for_is_refused_in_time(void **state)
{
	struct world w;
	uint64_t began;

	(void)state;
	world_with_room(&w);
	w.c->hurried = true;
	began = now_ns;
	submit_add(&w, 1, "/f");
	wait_answer(&w, 1);
	assert_int_equal(calls[1].rc, -EINVAL);
	assert_int_equal(calls[1].runs, 2);
	assert_true(now_ns - began == 10 * NS_PER_S);
	world_fini(&w);
}

/* What was removed behind the scan under way is not in its count. */
static void a_change_waits_for_the_scan_behind_the_one_under_way(void **state)
{
	struct world w;
	uint64_t began;

	(void)state;
	world_with_room(&w);
	submit_add(&w, 1, "/f");
	assert_int_equal(calls[1].rc, REQ_PARK);
	began = now_ns += NS_PER_S;
	w.c->ended_ns = now_ns; /* as if it had begun before the removal */
	wait_answer(&w, 1);
	assert_int_equal(calls[1].rc, 0);
	assert_int_equal(calls[1].runs, 3);
	assert_true(now_ns - began <= CACHE_PAUSE_NS);
	world_fini(&w);
}

/* What has changed is not counted yet; that is nothing to wait for while a directory is gone over.
 */
static void a_directory_is_measured_without_waiting(void **state)
{
	struct world w;
	uint64_t began;

	(void)state;
	world_init(&w);
	scan(&w);
	cache_monitor_ask(w.c);
	began = now_ns;
	submit_add(&w, 1, "/d");
	assert_int_equal(calls[1].rc, REQ_PARK);
	wait_answer(&w, 1);
	assert_int_equal(calls[1].rc, 0);
	assert_true(calls[1].runs > 2);
	assert_true(now_ns == began);
	assert_int_equal(rest_ns(&w), 10 * LONG_NS); /* nobody has waited */
	world_fini(&w);
}

/* ---- rests ---- */

/* Once, and not for what is counted already. */
static void the_rest_is_left_out_for_a_change_that_waits(void **state)
{
	struct world w;

	(void)state;
	world_init(&w);
	scan(&w);
	cache_monitor_await(w.c);
	cache_monitor_ask(w.c);
	assert_int_equal(rest_ns(&w), 10 * LONG_NS);
	cache_monitor_await(w.c);
	assert_int_equal(rest_ns(&w), 0);
	now_ns += CACHE_PAUSE_NS;
	other_call(&w);
	assert_false(cache_monitor_is_behind(w.c));
	cache_monitor_ask(w.c);
	cache_monitor_await(w.c);
	assert_int_equal(rest_ns(&w), 10 * LONG_NS); /* of that before */
	now_ns = cache_monitor_due_ns(w.nn);
	other_call(&w);
	assert_false(cache_monitor_is_behind(w.c));
	w.c->took_ns = LONG_NS;
	cache_monitor_ask(w.c);
	assert_int_equal(rest_ns(&w), 10 * LONG_NS);
	cache_monitor_await(w.c);
	assert_int_equal(rest_ns(&w), 0);
	world_fini(&w);
}

/* Somebody removes and adds all the time, over the limit. */
static void who_waits_again_and_again_does_not_keep_the_monitor_at_work(void **state)
{
	uint32_t scans = 0;
	uint64_t began;
	struct world w;

	(void)state;
	world_init(&w);
	scan(&w);
	for (began = now_ns; now_ns - began < 1100 * NS_PER_S; now_ns += NS_PER_S) {
		cache_monitor_ask(w.c);
		cache_monitor_await(w.c);
		if (cache_monitor_due_ns(w.nn) > now_ns)
			continue;
		other_call(&w);
		assert_false(cache_monitor_is_behind(w.c));
		w.c->took_ns += NS_PER_S; /* as if it had worked so long */
		now_ns += NS_PER_S;
		scans++;
	}
	assert_in_range(scans, 80, 100); /* a second of eleven */
	world_fini(&w);
}

static void what_cannot_be_read_is_left_alone_whoever_waits(void **state)
{
	struct world w;

	(void)state;
	world_init(&w);
	scan(&w);
	cache_monitor_ask(w.c);
	disk_fails = true;
	for (int i = 0; i < 3; i++) {
		now_ns = cache_monitor_due_ns(w.nn);
		cache_monitor_slice(w.nn);
		cache_monitor_await(w.c);
		assert_int_equal(rest_ns(&w), 10 * NS_PER_S);
	}
	disk_fails = false;
	now_ns = cache_monitor_due_ns(w.nn);
	other_call(&w);
	assert_false(cache_monitor_is_behind(w.c));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_that_waits_is_answered_by_the_next_count),
		cmocka_unit_test(a_change_that_no_count_came_for_is_refused_in_time),
		cmocka_unit_test(a_change_waits_for_the_scan_behind_the_one_under_way),
		cmocka_unit_test(a_directory_is_measured_without_waiting),
		cmocka_unit_test(the_rest_is_left_out_for_a_change_that_waits),
		cmocka_unit_test(who_waits_again_and_again_does_not_keep_the_monitor_at_work),
		cmocka_unit_test(what_cannot_be_read_is_left_alone_whoever_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
