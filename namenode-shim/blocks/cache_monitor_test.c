/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes are told to cache and to let go, and what counts as cached: good replicas that a node
 * is known to have, as often as wanted, within the room of the node and the limit of the pool;
 * whatever a node does, reports or fails to do. The clock is the test's. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/cache_internal.h"
#include "namenode-shim/namespace/cache_directive.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/nn.h"

#include "namenode-shim/test_clock.h"
#include "namenode-shim/test_nn.h"

#define NODES 4
#define LEN 1000u
#define BLOCKS_MAX 64

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn; /* without its thread */
	struct dn *dn[NODES];
	struct storage *st[NODES];
	struct block b[BLOCKS_MAX]; /* of all files, as they were made */
	uint32_t nblocks;
};

/* ---- names: before the NameNode starts, and later ---- */

static void make_file(struct world *w, struct ns *n, const char *path, uint32_t blocks)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 3,
				    .block_size = 1 << 20,
				    .create = true,
				    .create_parent = true};
	struct inode_block b[BLOCKS_MAX] = {{.committed = false}};
	struct inode *f = NULL;
	struct ns_path at;

	assert_int_equal(ns_resolve_create(n, &c, &at), 0);
	assert_int_equal(ns_create(n, &c, &at, &f), 0);
	for (uint32_t i = 0; i < blocks; i++) {
		b[i].b = (struct block){(int64_t)++n->t->ctr.block, n->t->ctr.gs, LEN};
		b[i].committed = true;
		w->b[w->nblocks++] = b[i].b;
	}
	f->client = "";
	f->blocks = b;
	f->nblocks = blocks;
	assert_int_equal(inode_put(n->t, f), 0);
}

static struct ns *change(struct world *w)
{
	struct ns *n;

	w->d.db = w->nn ? w->nn->db : w->d.db;
	n = test_begin(&w->d, "root");
	n->now_ms = clock_wall_ms();
	return n;
}

static void committed(struct world *w)
{
	assert_int_equal(test_commit(&w->d), 0);
	if (w->nn)
		cache_monitor_ask(&w->nn->cache);
}

static int64_t give(struct world *w, const char *path, int16_t repl, int64_t expires_ms)
{
	const struct cache_directive_info i = {.pool = "p",
					       .path = path,
					       .has_repl = true,
					       .repl = repl,
					       .has_expiry = expires_ms,
					       .relative = true,
					       .expiry_ms = expires_ms};
	struct cache_walk *walk = NULL;
	const struct cache_change c = {
		.info = &i, .stats = &w->nn->cache.stats, .force = true, .walk = &walk};
	struct ns *n = change(w);
	int64_t id = 0;

	assert_int_equal(cache_directive_add(n, &c, &id), 0);
	cache_walk_free(walk);
	committed(w);
	return id;
}

static void take(struct world *w, int64_t id)
{
	assert_int_equal(cache_directive_remove(change(w), id), 0);
	committed(w);
}

/* ---- a cluster ---- */

static void add_node(struct world *w, uint32_t i)
{
	char uuid[16];
	const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + i, 1, 2, 0};

	snprintf(uuid, sizeof(uuid), "dn%u", i);
	assert_int_equal(datanodes_register(&w->nn->dns, &id, &w->dn[i]), 0);
	w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
	w->st[i]->remaining = 1ull << 40;
	w->dn[i]->cache_capacity = 1 << 20;
}

static void add_replica(struct world *w, uint32_t node, uint32_t block)
{
	blocks_report(&w->nn->blocks, w->st[node], &w->b[block], REPLICA_FINALIZED, false, 0);
}

/* Files /f (2 blocks), /d/a and /d/b (1 each), /d/deep/c (1); on nodes 0 to 2. */
static void world_init(struct world *w, int64_t limit)
{
	const struct cache_pool_info p = {
		.name = "p", .has_limit = limit, .limit = limit ? limit : 0};
	struct ns *n;

	*w = (struct world){.nblocks = 0};
	ahead_s = 0;
	test_db_init(&w->d);
	n = change(w);
	make_file(w, n, "/f", 2);
	make_file(w, n, "/d/a", 1);
	make_file(w, n, "/d/b", 1);
	make_file(w, n, "/d/deep/c", 1);
	assert_int_equal(cache_pool_add(n, &p, "g"), 0);
	committed(w);
	w->nn = test_nn_new(&w->d, NULL, &w->conf);
	for (uint32_t i = 0; i < NODES; i++)
		add_node(w, i);
	for (uint32_t b = 0; b < w->nblocks; b++)
		for (uint32_t i = 0; i < 3; i++)
			add_replica(w, i, b);
}

static void world_fini(struct world *w)
{
	w->d.db = NULL;
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

static void scan(struct world *w)
{
	cache_monitor_ask(&w->nn->cache);
	do
		cache_monitor_slice(w->nn);
	while (w->nn->cache.scan);
}

/* What a node has cached; 64 bits, one for each block. */
static void report(struct world *w, uint32_t node, uint64_t blocks)
{
	(void)cache_report_begin(w->dn[node]);
	for (uint32_t b = 0; b < w->nblocks; b++)
		if (blocks & 1ull << b)
			cache_report_block(w->nn, w->dn[node], w->b[b].id);
	cache_report_end(w->nn, w->dn[node]);
}

/* The orders of a heartbeat, as such bits. */
static uint64_t orders(struct world *w, uint32_t node, bool cache)
{
	static uint64_t ids[CACHE_ORDERS_MAX];
	const uint32_t n = cache_orders(w->nn, w->dn[node], cache, ids);
	uint64_t ret = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t b = 0; b < w->nblocks; b++)
			if (ids[i] == (uint64_t)w->b[b].id) {
				assert_false(ret & 1ull << b); /* no order twice */
				ret |= 1ull << b;
			}
	return ret;
}

/* Every node does what it is told, and says so. */
static void obey(struct world *w, uint64_t has[NODES])
{
	for (uint32_t i = 0; i < NODES; i++) {
		has[i] &= ~orders(w, i, false);
		has[i] |= orders(w, i, true);
		report(w, i, has[i]);
	}
	scan(w);
}

static uint32_t times(const uint64_t has[NODES], uint32_t block)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NODES; i++)
		n += has[i] >> block & 1;
	return n;
}

static struct cache_count count_of(struct world *w, int64_t id)
{
	return cache_stats_directive(&w->nn->cache.stats, id)->n;
}

/* ---- cases ---- */

static void a_file_is_cached_as_often_as_wanted_and_let_go(void **state)
{
	uint64_t has[NODES] = {0};
	struct world w;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/f", 2, 0);
	scan(&w);
	assert_int_equal(count_of(&w, id).need.bytes, 4 * LEN);
	obey(&w, has);
	assert_true(times(has, 0) == 2 && times(has, 1) == 2 && !times(has, 2));
	assert_int_equal(has[3], 0); /* it has no replica */
	assert_int_equal(count_of(&w, id).cached.bytes, 4 * LEN);
	assert_int_equal(count_of(&w, id).cached.files, 1);
	assert_int_equal(cache_monitor_count(&w.nn->cache, blocks_find(&w.nn->blocks, w.b[0].id)),
			 2);
	report(&w, has[0] ? 0 : 1, 0); /* it has let go by itself */
	scan(&w);
	assert_true(count_of(&w, id).cached.bytes < 4 * LEN);
	report(&w, has[0] ? 0 : 1, has[0] ? has[0] : has[1]);
	scan(&w);
	assert_int_equal(count_of(&w, id).cached.bytes, 4 * LEN);
	obey(&w, has); /* and nothing else */
	assert_true(times(has, 0) == 2 && times(has, 1) == 2);
	take(&w, id);
	scan(&w);
	obey(&w, has);
	assert_true(!has[0] && !has[1] && !has[2]);
	scan(&w);
	assert_null(w.nn->cache.map);
	world_fini(&w);
}

static void a_directory_means_its_files_and_the_largest_wish_counts(void **state)
{
	uint64_t has[NODES] = {0};
	int64_t dir, file;
	struct world w;

	(void)state;
	world_init(&w, 0);
	dir = give(&w, "/d", 1, 0);
	file = give(&w, "/d/a", 3, 0);
	scan(&w);
	obey(&w, has);
	assert_true(times(has, 2) == 3 && times(has, 3) == 1 && !times(has, 4) && !times(has, 0));
	assert_int_equal(count_of(&w, dir).need.files, 2);
	assert_int_equal(count_of(&w, dir).cached.bytes, 2 * LEN);
	assert_int_equal(count_of(&w, file).cached.bytes, 3 * LEN);
	take(&w, file);
	scan(&w);
	obey(&w, has);
	assert_true(times(has, 2) == 1 && times(has, 3) == 1);
	assert_int_equal(count_of(&w, dir).cached.files, 2);
	world_fini(&w);
}

static void only_nodes_with_room_are_asked(void **state)
{
	uint64_t has[NODES] = {0};
	struct world w;

	(void)state;
	world_init(&w, 0);
	w.dn[0]->cache_capacity = 0;
	w.dn[1]->cache_capacity = LEN + 500; /* one block */
	w.dn[2]->cache_used = w.dn[2]->cache_capacity - LEN + 1;
	(void)give(&w, "/f", 3, 0);
	scan(&w);
	assert_int_equal(w.dn[1]->cache_ordered, LEN);
	has[1] = orders(&w, 1, true);
	assert_true(has[1] == 1 || has[1] == 2);
	assert_false(orders(&w, 0, true) || orders(&w, 2, true) || orders(&w, 3, true));
	world_fini(&w);
}

/* The order is repeated, then another node is told; who does as it was told late is taken back. */
static void a_node_that_does_not_follow_is_left_alone(void **state)
{
	struct world w;
	uint32_t first, second = NODES;

	(void)state;
	world_init(&w, 0);
	(void)give(&w, "/d/a", 1, 0);
	scan(&w);
	for (first = 0; !orders(&w, first, true); first++)
		assert_true(first < 3);
	assert_false(orders(&w, first, true)); /* not at once */
	for (int i = 1; i < CACHE_TRIES; i++) {
		ahead_s += 31;
		scan(&w);
		assert_true(orders(&w, first, true));
	}
	ahead_s += 31;
	assert_false(orders(&w, first, true));
	scan(&w);
	for (uint32_t i = 0; i < 3; i++)
		if (orders(&w, i, true))
			second = i;
	assert_true(second < 3 && second != first);
	report(&w, second, 1 << 2);
	report(&w, first, 1 << 2); /* late */
	scan(&w);
	assert_int_equal((orders(&w, first, false) != 0) + (orders(&w, second, false) != 0), 1);
	world_fini(&w);
}

/* It has so many blocks to cache that the last one is not done after all tries; then it stops. */
static void a_node_that_is_busy_caching_is_not_left_alone(void **state)
{
	struct world w;
	uint64_t has = 0;

	(void)state;
	world_init(&w, 0);
	w.dn[1]->cache_capacity = w.dn[2]->cache_capacity = 0;
	(void)give(&w, "/f", 1, 0);
	(void)give(&w, "/d", 1, 0);
	scan(&w);
	assert_int_equal(orders(&w, 0, true), 0xf);
	for (uint32_t b = 0; b < 3; b++) {
		ahead_s += 20;
		has |= 1ull << b;
		report(&w, 0, has);
		ahead_s += 20;
		report(&w, 0, has); /* nothing new */
		scan(&w);
		assert_int_equal(orders(&w, 0, true), 0xf & ~has); /* again, and it is no try */
	}
	for (int i = 1; i < CACHE_TRIES; i++) {
		ahead_s += 31;
		scan(&w);
		assert_int_equal(orders(&w, 0, true), 8);
	}
	ahead_s += 31;
	assert_int_equal(orders(&w, 0, true), 0);
	assert_int_equal(w.dn[0]->cache_ordered, 0);
	world_fini(&w);
}

/* It counts what the node has, and can have, and nothing else. */
static void a_node_that_lies_is_not_believed(void **state)
{
	const struct blk *b;
	struct world w;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/f", 3, 0);
	report(&w, 3, 3); /* it has no replica */
	w.dn[0]->cache_capacity = 2 * LEN;
	(void)cache_report_begin(w.dn[0]);
	for (int64_t i = 0; i < 1000; i++) /* there are no such blocks */
		cache_report_block(w.nn, w.dn[0], 77 + i * 1000003);
	for (int i = 0; i < 5; i++)
		cache_report_block(w.nn, w.dn[0], w.b[0].id);
	cache_report_block(w.nn, w.dn[0], w.b[1].id); /* there is room for it */
	cache_report_end(w.nn, w.dn[0]);
	w.dn[1]->cache_capacity = LEN; /* room for one */
	report(&w, 1, 3);
	b = blocks_find(&w.nn->blocks, w.b[0].id);
	assert_int_equal(HASH_COUNT(w.nn->cache.map), 2);
	assert_int_equal(w.dn[0]->cache_places, 2);
	assert_int_equal(w.dn[3]->cache_places, 0);
	assert_int_equal(w.dn[1]->cache_places, 1);
	assert_int_equal(cache_monitor_count(&w.nn->cache, b), 2);
	assert_false(cache_monitor_has(&w.nn->cache, b, w.dn[3]));
	scan(&w);
	assert_int_equal(count_of(&w, id).cached.bytes, 3 * LEN);
	world_fini(&w);
}

/* After it has registered, its report may come before the heartbeat that tells of its room. */
static void a_report_before_the_first_heartbeat_is_no_lie(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 0);
	(void)give(&w, "/f", 3, 0);
	cache_monitor_forget(&w.nn->cache, w.dn[0]);
	report(&w, 0, 3);
	assert_false(w.dn[0]->cache_lied);
	assert_int_equal(w.dn[0]->cache_places, 0);
	w.dn[0]->cache_capacity = 2 * LEN - 1;
	report(&w, 0, 3);
	assert_true(w.dn[0]->cache_lied);
	assert_int_equal(w.dn[0]->cache_places, 1);
	world_fini(&w);
}

static void a_node_that_dies_or_begins_anew_has_nothing_cached(void **state)
{
	uint64_t has[NODES] = {0};
	struct world w;
	uint32_t lost;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/d/a", 2, 0);
	scan(&w);
	obey(&w, has);
	assert_int_equal(count_of(&w, id).cached.bytes, 2 * LEN);
	lost = has[0] ? 0 : 1;
	nn_dn_lost(w.nn, w.dn[lost], "test");
	assert_int_equal(w.dn[lost]->cache_places, 0);
	has[lost] = 0;
	scan(&w);
	assert_int_equal(count_of(&w, id).cached.bytes, LEN);
	assert_false(orders(&w, lost, true)); /* one of the others */
	obey(&w, has);
	assert_int_equal(count_of(&w, id).cached.bytes, 2 * LEN);
	assert_int_equal(times(has, 2), 2);
	world_fini(&w);
}

/* The stamp of the block is a new one, or it is gone: what was cached is not what it is now. */
static void a_block_that_changes_or_goes_is_cached_no_more(void **state)
{
	uint64_t has[NODES] = {0};
	struct world w;
	struct blk *b;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/f", 3, 0);
	scan(&w);
	obey(&w, has);
	b = blocks_find(&w.nn->blocks, w.b[1].id);
	assert_true(cache_monitor_has(&w.nn->cache, b, w.dn[0]));
	b->b.gs++; /* appended to, and on these nodes again */
	for (uint32_t i = 0; i < 3; i++)
		for (uint16_t k = 0; k < b->nreps; k++)
			b->rep[k].gs = b->b.gs;
	assert_false(cache_monitor_has(&w.nn->cache, b, w.dn[0]));
	scan(&w);
	assert_int_equal(count_of(&w, id).cached.bytes, 3 * LEN);
	assert_int_equal(orders(&w, 0, true), 2); /* anew */
	b->rep[0].corrupt = true;
	report(&w, 0, 3);
	report(&w, 1, 3);
	report(&w, 2, 3);
	assert_int_equal(cache_monitor_count(&w.nn->cache, b), 2);
	blocks_remove(&w.nn->blocks, b);
	scan(&w);
	assert_int_equal(HASH_COUNT(w.nn->cache.map), 1);
	report(&w, 1, 3); /* not deleted there yet */
	assert_int_equal(HASH_COUNT(w.nn->cache.map), 1);
	world_fini(&w);
}

/* An append to a full last block leaves it as it is; one that is written on is not cached whole. */
static void a_file_is_cached_while_somebody_appends_a_block(void **state)
{
	uint64_t has[NODES] = {0};
	struct inode *f;
	struct ns_path at;
	struct world w;
	struct ns *n;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/f", 1, 0);
	scan(&w);
	obey(&w, has);
	n = change(&w);
	assert_int_equal(ns_resolve_as(n, "/f", WALK_TAIL, &at), 0);
	assert_int_equal(inode_get(n->t, at.last->id, n->a, &f), 0);
	f->client = "c";
	assert_int_equal(inode_put(n->t, f), 0);
	committed(&w);
	scan(&w);
	assert_int_equal(count_of(&w, id).need.bytes, 2 * LEN);
	assert_int_equal(count_of(&w, id).cached.files, 1);
	world_fini(&w);
}

static void what_is_over_the_limit_of_the_pool_is_not_cached(void **state)
{
	uint64_t has[NODES] = {0};
	struct cache_count n;
	struct cache_pool p;
	struct world w;

	(void)state;
	world_init(&w, 3 * LEN);
	(void)give(&w, "/d/a", 2, 0);
	(void)give(&w, "/d/b", 2, 0); /* forced: 4 * LEN in all */
	scan(&w);
	obey(&w, has);
	assert_true(times(has, 2) == 2 && times(has, 3) == 0);
	assert_int_equal(cache_pool_get(change(&w)->t, &w.d.a, "p", &p), 0);
	n = cache_count_pool(&w.nn->cache.stats, &p);
	assert_true(n.need.bytes == 4 * LEN && n.cached.bytes == 2 * LEN);
	assert_true(n.need.files == 2 && n.cached.files == 1);
	txn_write_abort(&w.d.t);
	world_fini(&w);
}

/* The monitor wakes for it. */
static void a_directive_whose_time_is_over_wants_nothing(void **state)
{
	uint64_t has[NODES] = {0}, due;
	struct world w;
	int64_t id;

	(void)state;
	world_init(&w, 0);
	id = give(&w, "/d/a", 1, 20000);
	scan(&w);
	obey(&w, has);
	assert_int_equal(times(has, 2), 1);
	w.nn->cache.asked = false;
	due = cache_monitor_due_ns(w.nn) - clock_mono_ns();
	assert_true(due > 15 * NS_PER_S && due < 21 * NS_PER_S);
	ahead_s += 21;
	scan(&w);
	assert_int_equal(count_of(&w, id).need.bytes, 0);
	obey(&w, has);
	assert_int_equal(times(has, 2), 0);
	w.nn->safe.on = true;
	assert_true(cache_monitor_due_ns(w.nn) == UINT64_MAX);
	world_fini(&w);
}

/* Whatever asks for a scan, so that many directives that expire one by one do not keep the writer
 * busy. */
static void it_rests_after_a_scan_that_took_long(void **state)
{
	struct cache_monitor *c;
	struct world w;

	(void)state;
	world_init(&w, 0);
	c = &w.nn->cache;
	(void)give(&w, "/d/a", 1, 60000);
	scan(&w);
	assert_false(c->asked);
	c->took_ns = 10 * NS_PER_S;
	assert_true(cache_monitor_due_ns(w.nn) == c->ended_ns + CACHE_PAUSE_NS + 100 * NS_PER_S);
	cache_monitor_ask(c);
	assert_true(cache_monitor_due_ns(w.nn) == c->ended_ns + CACHE_PAUSE_NS + 100 * NS_PER_S);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_cached_as_often_as_wanted_and_let_go),
		cmocka_unit_test(a_directory_means_its_files_and_the_largest_wish_counts),
		cmocka_unit_test(only_nodes_with_room_are_asked),
		cmocka_unit_test(a_node_that_does_not_follow_is_left_alone),
		cmocka_unit_test(a_node_that_is_busy_caching_is_not_left_alone),
		cmocka_unit_test(a_node_that_lies_is_not_believed),
		cmocka_unit_test(a_report_before_the_first_heartbeat_is_no_lie),
		cmocka_unit_test(a_node_that_dies_or_begins_anew_has_nothing_cached),
		cmocka_unit_test(a_block_that_changes_or_goes_is_cached_no_more),
		cmocka_unit_test(a_file_is_cached_while_somebody_appends_a_block),
		cmocka_unit_test(what_is_over_the_limit_of_the_pool_is_not_cached),
		cmocka_unit_test(a_directive_whose_time_is_over_wants_nothing),
		cmocka_unit_test(it_rests_after_a_scan_that_took_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
