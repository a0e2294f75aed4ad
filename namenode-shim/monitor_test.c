/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of what the NameNode does on its own: a block that no node can take is in nobody's way, and the lock is given
 * back when placement takes long. The clock is the test's: it goes on at every look. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/inode.h"
#include "namenode-shim/monitor.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/test_db.h"

#define NODES_MAX 8
#define LEN 1000u

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);
static uint64_t clock_step_ns, clock_ahead_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);
	uint64_t ns = (uint64_t)ret->tv_nsec;

	clock_ahead_ns += clock_step_ns;
	ns += clock_ahead_ns;
	ret->tv_sec += (time_t)(ns / NS_PER_S);
	ret->tv_nsec = (long)(ns % NS_PER_S);
	return rc;
}

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn; /* without its thread: what that would do is done by the test */
	struct dn *dn[NODES_MAX];
	struct storage *st[NODES_MAX];
	uint32_t nodes;
	int64_t next_id;
};

/* Node i stands in the rack of this letter; there is one for each. */
static void world_init(struct world *w, const char *racks)
{
	struct settings set = {0};
	struct err err = ERR_INIT;

	*w = (struct world){.nodes = (uint32_t)strlen(racks), .next_id = 1073741825};
	clock_step_ns = 0;
	test_db_init(&w->d);
	db_close(w->d.db);
	w->d.db = NULL;
	w->conf = conf_new();
	conf_set(w->conf, "dfs.namenode.name.dir", w->d.dir);
	conf_set(w->conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	assert_int_equal(settings_load(w->conf, &set, &err), 0);
	assert_int_equal(nn_new(&set, &w->nn, &err), 0);
	w->nn->safe.on = w->nn->safe.startup = w->nn->blocks.quiet = false;
	w->nn->safe.empty_start = true;
	for (uint32_t i = 0; i < w->nodes; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + i, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%u", i);
		assert_int_equal(datanodes_register(&w->nn->dns, &id, &w->dn[i]), 0);
		snprintf(w->dn[i]->rack, sizeof(w->dn[i]->rack), "/%c", racks[i]);
		w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
		w->st[i]->remaining = 1ull << 40;
		w->st[i]->reported = true;
	}
	datanodes_changed(&w->nn->dns);
}

static void world_fini(struct world *w)
{
	clock_step_ns = 0;
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* A block of @repl replicas, with one on each node of @nodes. */
static struct blk *add(struct world *w, uint16_t repl, const char *nodes)
{
	const struct block b = {w->next_id++, 1005, LEN};
	struct blk *ret = blocks_add(&w->nn->blocks, &b, 17000, repl, BLK_COMPLETE);

	for (; *nodes; nodes++)
		blocks_report(&w->nn->blocks, w->st[*nodes - '0'], &b, REPLICA_FINALIZED, false, 0);
	return ret;
}

/* RS-3-2 on as many nodes as it can be read with. */
static struct blk *add_group(struct world *w, int64_t nth)
{
	const struct block b = {EC_GROUP_ID_FIRST + nth * EC_UNITS_MAX, 1005, 8 << 20};
	struct blk *ret = blocks_add_group(&w->nn->blocks, &b, 17000, ec_policy_by_id(EC_ID_RS_3_2), BLK_COMPLETE);

	for (unsigned unit = 0; unit < 3; unit++) {
		const struct block r = {ec_id_of(b.id, unit), b.gs, blk_unit_len(ret, b.len, unit)};

		blocks_report(&w->nn->blocks, w->st[unit], &r, REPLICA_FINALIZED, false, 0);
	}
	return ret;
}

/* One look at the lines; in so many slices. */
static uint32_t look(struct world *w)
{
	uint32_t slices = 0;

	w->nn->next_redundancy_ns = 0;
	monitor_tick(w->nn);
	for (; monitor_is_ordering(w->nn); slices++)
		monitor_order(w->nn);
	return slices;
}

/* Three nodes: none can take a fourth unit. Their orders are 12 in one look. */
static void groups_on_too_few_nodes_keep_nobody_from_being_copied(void **state)
{
	struct blk *under, *crowded;
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 40; i++)
		assert_true(add_group(&w, i)->flags & BLK_URGENT);
	under = add(&w, 3, "01");
	look(&w);
	assert_int_equal(under->npending, 1);
	crowded = add(&w, 2, "01");
	blk_recheck(&w.nn->blocks, crowded);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_true(crowded->flags & BLK_CROWDED);
	look(&w);
	assert_int_equal(crowded->npending, 1);
	world_fini(&w);
}

/* More than one look tries of a line: those behind them have their turn in the next ones. */
static void blocks_that_no_node_can_take_pass_their_turn_on(void **state)
{
	struct world w;
	struct blk *last;
	int looks = 0;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 1000; i++)
		add(&w, 4, "012");
	last = add(&w, 3, "01");
	for (; !last->npending && looks < 10; looks++)
		look(&w);
	assert_int_equal(last->npending, 1);
	assert_true(looks > 1); /* the work of one look has an end */
	world_fini(&w);
}

/* Each order takes a millisecond or more, and there are 200. */
static void the_lock_is_given_back_while_copies_are_ordered(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 200; i++)
		add(&w, 4, "012");
	clock_step_ns = NS_PER_MS;
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 1000 * NS_PER_S;
	assert_true(look(&w) >= 200 / 6);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_on_too_few_nodes_keep_nobody_from_being_copied),
		cmocka_unit_test(blocks_that_no_node_can_take_pass_their_turn_on),
		cmocka_unit_test(the_lock_is_given_back_while_copies_are_ordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
