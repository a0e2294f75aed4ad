/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when a node leaves: it may go once each of its blocks has enough replicas
 * elsewhere, whatever other nodes and storages do while its blocks are counted. */
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/blocks/redundancy_monitor_test_fixture.h"

/* Node 2 leaves, which has a replica more than there need be; its blocks are being counted. */
static void begin_to_count(struct world *w)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};

	decommission_judge(w->nn, w->dn[2], &v);
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
	put_block(w, 0, "0134");
	put_block(w, 0, "2");
	put_block(w, 1, "0");
	decommission_tick(w->nn, clock_mono_ns());
	assert_true(blk_cursor_is_open(&w->nn->leaving_cursor));
}

static enum dn_admin end_of_count(struct world *w)
{
	nn_lock(w->nn);
	for (int i = 0; i < 100 && blk_cursor_is_open(&w->nn->leaving_cursor); i++)
		decommission_slice(w->nn);
	nn_unlock(w->nn);
	assert_false(blk_cursor_is_open(&w->nn->leaving_cursor));
	return w->dn[2]->admin;
}

/* A node lacks a replica in each of many reports: no count would ever end. */
static void a_node_may_leave_though_a_report_lacks_a_replica_meanwhile(void **state)
{
	struct world w;
	struct block b;

	(void)state;
	world_init(&w, "aabbb");
	begin_to_count(&w);
	b = w.first;
	blocks_report_begin(&w.nn->blocks, w.st[0]);
	blocks_report(&w.nn->blocks, w.st[0], &b, REPLICA_FINALIZED, false, w.st[0]->report_seq);
	blocks_report_end(&w.nn->blocks, w.st[0]);
	assert_true(blocks_must_sweep(&w.nn->blocks));
	assert_int_equal(end_of_count(&w), DN_DECOMMISSIONED);
	world_fini(&w);
}

/* The storage of node @f fails in the middle of each count and is back at its end. Node 2 has a
 * replica of a block that is also on @others. True: it may leave. */
static bool leaves_beside_a_flapping_storage(int f, const char *others)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};
	enum dn_admin admin = DN_DECOMMISSIONING;
	struct world w;

	world_init(&w, "aabbb");
	decommission_judge(w.nn, w.dn[2], &v);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	put_block(&w, 0, others);
	put_block(&w, 0, "2");
	put_block(&w, 1, "0");
	for (int i = 0; i < 10 && admin == DN_DECOMMISSIONING; i++) {
		w.nn->next_leaving_ns = 0;
		decommission_tick(w.nn, clock_mono_ns());
		blocks_forget(&w.nn->blocks, w.dn[f], w.st[f]);
		admin = end_of_count(&w);
		blocks_keep(&w.nn->blocks, w.st[f]);
		blocks_sweep(&w.nn->blocks, UINT32_MAX);
	}
	world_fini(&w);
	return admin == DN_DECOMMISSIONED;
}

static void a_node_may_leave_though_a_storage_comes_and_goes(void **state)
{
	(void)state;
	assert_true(leaves_beside_a_flapping_storage(0, "134"));
	assert_false(leaves_beside_a_flapping_storage(0, "034"));
	assert_true(leaves_beside_a_flapping_storage(2, "134")); /* its own */
}

static void a_node_stays_when_another_dies_while_its_blocks_are_counted(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aabbb");
	begin_to_count(&w);
	nn_dn_lost(w.nn, w.dn[0], "test");
	assert_int_equal(end_of_count(&w), DN_DECOMMISSIONING);
	world_fini(&w);
}

/* Of an open group of RS-3-2 whose writer is gone, nodes 0, 1, ... have a unit each. True: node 2
 * may leave. */
static bool leaves_an_open_group(unsigned units)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};
	const struct block b = {EC_GROUP_ID_FIRST, 1005, 8 << 20};
	enum dn_admin admin;
	struct world w;
	struct blk *group;

	world_init(&w, "aabbb");
	decommission_judge(w.nn, w.dn[2], &v);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	group = blocks_add_group(&w.nn->blocks, &b, w.plain, ec_policy_by_id(EC_ID_RS_3_2),
				 BLK_OPEN);
	for (unsigned unit = 0; unit < units; unit++) {
		const struct block r = {ec_id_of(b.id, unit), b.gs,
					blk_unit_len(group, b.len, unit)};

		blocks_report(&w.nn->blocks, w.st[unit], &r, REPLICA_FINALIZED, false, 0);
	}
	assert_int_equal(group->nreps, units);
	assert_int_equal(group->state, BLK_OPEN);
	decommission_tick(w.nn, clock_mono_ns());
	admin = end_of_count(&w);
	world_fini(&w);
	return admin == DN_DECOMMISSIONED;
}

static void an_open_group_keeps_as_many_units_as_it_has_data(void **state)
{
	(void)state;
	assert_true(leaves_an_open_group(0));
	assert_true(leaves_an_open_group(4));
	assert_false(leaves_an_open_group(3));
}

/* Its blocks are counted anew, if it is time for that. */
static enum dn_admin count(struct world *w)
{
	w->nn->next_leaving_ns = 0;
	decommission_tick(w->nn, clock_mono_ns());
	return end_of_count(w);
}

/* What is short of a replica may have had it there. */
static void a_dead_node_stays_while_any_block_is_short_of_replicas(void **state)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aabbb");
	decommission_judge(w.nn, w.dn[2], &v);
	nn_dn_lost(w.nn, w.dn[2], "test");
	b = add(&w, 3, "01");
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_true(b->flags & BLK_UNDER);
	assert_int_equal(count(&w), DN_DECOMMISSIONING);
	blk_set_repl(&w.nn->blocks, b, 2);
	for (int i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "013");
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_int_equal(w.nn->blocks.under_count, 0);
	assert_int_equal(count(&w), DN_DECOMMISSIONED);
	world_fini(&w);
}

/* Or it would count. */
static void nothing_is_counted_before_what_a_report_lacks_is_forgotten(void **state)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};
	struct world w;

	(void)state;
	world_init(&w, "aabbb");
	decommission_judge(w.nn, w.dn[2], &v);
	put_block(&w, 0, "013");
	put_block(&w, 0, "2");
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	blocks_report_begin(&w.nn->blocks, w.st[0]);
	blocks_report_end(&w.nn->blocks, w.st[0]);
	assert_true(blocks_must_sweep(&w.nn->blocks));
	assert_int_equal(count(&w), DN_DECOMMISSIONING);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_int_equal(count(&w), DN_DECOMMISSIONING);
	put_block(&w, 0, "4");
	assert_int_equal(count(&w), DN_DECOMMISSIONED);
	world_fini(&w);
}

/* Since it has registered: the list of its storage, and the end of its report. */
static void a_node_that_registers_again_stays_until_it_has_reported(void **state)
{
	const struct dn_ident id = {"dn2", "127.0.0.1", "host", "3.4.2", 9002, 1, 2, 0};
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};

	(void)state;
	for (int first = 0; first < 2; first++) {
		struct world w;
		struct dn *dn;

		world_init(&w, "aabbb");
		decommission_judge(w.nn, w.dn[2], &v);
		blocks_sweep(&w.nn->blocks, UINT32_MAX);
		assert_int_equal(datanodes_register(&w.nn->dns, &id, &dn), 0);
		assert_ptr_equal(dn, w.dn[2]);
		assert_int_equal(count(&w), DN_DECOMMISSIONING);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(w.dn[2]->admin, DN_DECOMMISSIONING);
			if (i == first) {
				blocks_report_begin(&w.nn->blocks, w.st[2]);
				blocks_report_end(&w.nn->blocks, w.st[2]);
				blocks_sweep(&w.nn->blocks, UINT32_MAX);
			} else {
				dn->report_ns = clock_mono_ns();
			}
			(void)count(&w);
		}
		assert_int_equal(w.dn[2]->admin, DN_DECOMMISSIONED);
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_may_leave_though_a_report_lacks_a_replica_meanwhile),
		cmocka_unit_test(a_node_may_leave_though_a_storage_comes_and_goes),
		cmocka_unit_test(a_node_stays_when_another_dies_while_its_blocks_are_counted),
		cmocka_unit_test(an_open_group_keeps_as_many_units_as_it_has_data),
		cmocka_unit_test(a_dead_node_stays_while_any_block_is_short_of_replicas),
		cmocka_unit_test(nothing_is_counted_before_what_a_report_lacks_is_forgotten),
		cmocka_unit_test(a_node_that_registers_again_stays_until_it_has_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
