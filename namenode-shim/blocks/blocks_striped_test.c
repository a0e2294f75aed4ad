/* SPDX-License-Identifier: Apache-2.0 */
/* A group is complete when it can be read, short when a unit is missing, and units are told apart:
 * by id, by length, on one node and on two. */
#include "namenode-shim/blocks/blocks.h"

#include <setjmp.h>
#include <stdarg.h>

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "namenode-shim/blocks/datanodes.h"

#define NODES 7
#define CELL (1u << 20)
/* of RS-3-2: units of 2 cells, 1 cell and 10 bytes, 1 cell; parity as unit 0 */
#define LEN (4u * CELL + 10)

struct world {
	struct datanodes dns;
	struct blocks bs;
	struct dn *dn[NODES];
	struct storage *st[NODES];
	struct blk *b;
};

static const int64_t group = EC_GROUP_ID_FIRST;

static void world_init(struct world *w, uint64_t len, enum blk_state state)
{
	const struct block b = {group, 1005, len};

	*w = (struct world){.b = NULL};
	datanodes_init(&w->dns, 1000);
	blocks_init(&w->bs, 1000000000ull, 1);
	for (int i = 0; i < NODES; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + (uint32_t)i,
					    1,    2,           0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&w->dns, &id, &w->dn[i]), 0);
		w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
		w->st[i]->remaining = 1000u + (uint64_t)i;
	}
	w->b = blocks_add_group(&w->bs, &b, 17000, ec_policy_by_id(EC_ID_RS_3_2), state);
}

static void world_fini(struct world *w)
{
	blocks_fini(&w->bs);
	datanodes_fini(&w->dns);
}

static void report_as(struct world *w, int node, unsigned unit, uint64_t gs, uint64_t len)
{
	const struct block r = {ec_id_of(group, unit), gs, len};

	blocks_report(&w->bs, w->st[node], &r, REPLICA_FINALIZED, false, 0);
}

static void report(struct world *w, int node, unsigned unit)
{
	report_as(w, node, unit, 1005, blk_unit_len(w->b, LEN, unit));
}

static void a_group_is_complete_with_as_many_units_as_it_has_data(void **state)
{
	const struct block now = {group, 1005, LEN};
	struct world w;

	(void)state;
	world_init(&w, 0, BLK_OPEN);
	blk_set_targets(w.b, w.st, NULL, 5);
	report(&w, 0, 0);
	report(&w, 4, 4);
	assert_ptr_equal(blocks_find(&w.bs, ec_id_of(group, 4)), w.b);
	blk_commit(&w.bs, w.b, &now);
	assert_int_equal(w.b->state, BLK_COMMITTED);
	assert_int_equal(w.b->npending, 3);
	report(&w, 5, 0); /* a unit twice is no other unit */
	assert_int_equal(w.b->state, BLK_COMMITTED);
	report(&w, 2, 2);
	assert_int_equal(w.b->state, BLK_COMPLETE);
	assert_int_equal(blk_live(w.b), 3);
	assert_int_equal(w.b->flags & BLK_UNDER, 0); /* two are on their way */
	assert_int_equal(w.bs.groups.total, 1);
	world_fini(&w);
}

static void
a_committed_group_of_a_closed_file_is_short_of_units_or_missing_like_others(void **state)
{
	const struct block now = {group, 1005, LEN};
	struct world w;

	(void)state;
	for (unsigned have = 2; have <= 3; have++) {
		world_init(&w, 0, BLK_OPEN);
		blk_set_targets(w.b, w.st, NULL, 5);
		blk_commit(&w.bs, w.b, &now);
		blk_close(&w.bs, w.b);
		assert_int_equal(w.b->state, BLK_COMMITTED);
		for (unsigned i = 0; i < have; i++)
			report(&w, (int)i, i);
		for (unsigned i = have; i < 5; i++)
			blocks_forget(&w.bs, w.dn[i], NULL);
		blocks_sweep(&w.bs, UINT32_MAX);
		assert_int_equal(w.b->state, BLK_COMPLETE);
		assert_int_equal(w.b->flags & (BLK_UNDER | BLK_URGENT | BLK_MISSING),
				 have < 3 ? BLK_UNDER | BLK_MISSING : BLK_UNDER | BLK_URGENT);
		world_fini(&w);
	}
}

static void a_lost_unit_is_missed_and_one_too_many_lost_is_the_end(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	assert_true(w.b->flags & BLK_MISSING);
	for (int i = 0; i < 5; i++)
		report(&w, i, (unsigned)i);
	assert_int_equal(w.b->flags, BLK_SAFE);
	assert_int_equal(group_live(w.b), 0x1f);
	blocks_forget(&w.bs, w.dn[1], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(group_live(w.b), 0x1d);
	assert_int_equal(w.b->flags, BLK_SAFE | BLK_UNDER);
	assert_int_equal(w.bs.groups.under, 1);
	blocks_forget(&w.bs, w.dn[4], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(w.b->flags, BLK_SAFE | BLK_UNDER | BLK_URGENT);
	blocks_forget(&w.bs, w.dn[0], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_true(w.b->flags & BLK_MISSING);
	assert_int_equal(w.bs.groups.missing, 1);
	report(&w, 6, 0);
	report(&w, 5, 1);
	report(&w, 4, 4);
	assert_int_equal(w.b->flags, BLK_SAFE);
	world_fini(&w);
}

static void a_short_group_has_fewer_units(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 100, BLK_COMPLETE); /* unit 0 and two of parity */
	report_as(&w, 0, 0, 1005, 100);
	assert_int_equal(w.b->flags, BLK_SAFE | BLK_UNDER | BLK_URGENT);
	report_as(&w, 3, 3, 1005, 100);
	report_as(&w, 4, 4, 1005, 100);
	assert_int_equal(w.b->flags, BLK_SAFE);
	world_fini(&w);
}

static void a_unit_of_a_wrong_length_or_stamp_is_corrupt_and_the_others_are_not(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (int i = 0; i < 5; i++)
		report(&w, i, (unsigned)i);
	report_as(&w, 2, 2, 1005, CELL + 10); /* the length of unit 1 */
	assert_int_equal(group_live(w.b), 0x1b);
	assert_true(w.b->flags & BLK_CORRUPT);
	assert_true(w.b->flags & BLK_UNDER);
	/* an older one, and the group can be read without it: deleted */
	report_as(&w, 3, 3, 1004, 2 * CELL);
	assert_int_equal(group_live(w.b), 0x13);
	assert_int_equal(w.dn[3]->ninval, 1);
	assert_true(w.dn[3]->inval[0].id == ec_id_of(group, 3));
	report(&w, 5, 2); /* rebuilt elsewhere: what is corrupt goes */
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_true(w.dn[2]->inval[0].id == ec_id_of(group, 2));
	assert_int_equal(w.b->flags & BLK_CORRUPT, 0);
	world_fini(&w);
}

static void a_unit_on_two_nodes_leaves_the_one_with_less_room(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (int i = 0; i < 5; i++)
		report(&w, i, (unsigned)i);
	report(&w, 6, 1);
	assert_int_equal(w.dn[1]->ninval, 1);
	assert_int_equal(w.dn[6]->ninval, 0);
	assert_int_equal(group_live(w.b), 0x1f);
	blocks_report_deleted(&w.bs, w.st[1], ec_id_of(group, 1), 0);
	assert_int_equal(w.b->nreps, 5);
	world_fini(&w);
}

static void two_units_on_one_node_are_two(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (int i = 0; i < 5; i++)
		report(&w, i / 2, (unsigned)i);
	assert_int_equal(w.b->flags, BLK_SAFE);
	assert_int_equal(w.b->nreps, 5);
	blocks_report_deleted(&w.bs, w.st[0], ec_id_of(group, 1), 0);
	assert_int_equal(group_live(w.b), 0x1d);
	blocks_report_begin(&w.bs, w.st[1]);
	blocks_report_end(&w.bs, w.st[1]); /* it lists neither of its two any more */
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(group_live(w.b), 0x11);
	world_fini(&w);
}

static void corrupt_is_the_unit_that_was_named(void **state)
{
	const struct block bad = {ec_id_of(group, 1), 1005, 0};
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (int i = 0; i < 5; i++)
		report(&w, i / 2, (unsigned)i);
	blocks_report_corrupt(&w.bs, &bad, w.dn[0], NULL, false);
	assert_int_equal(group_live(w.b), 0x1d);
	report_as(&w, 0, 9, 1005, 5); /* there is no unit 9 */
	assert_int_equal(w.b->nreps, 5);
	assert_int_equal(w.dn[0]->ninval, 1);
	world_fini(&w);
}

/* No further node is left for a good one: its place is made free as long as the group has one unit
 * to spare. */
static void a_damaged_unit_goes_first_only_while_another_may_be_lost(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (unsigned i = 0; i < 5; i++)
		report(&w, (int)i, i);
	for (unsigned i = 0; i < 2; i++)
		blocks_report_corrupt(&w.bs, &(struct block){ec_id_of(group, i), 1005, 0}, w.dn[i],
				      NULL, false);
	assert_int_equal(group_readable(w.b), 0x1c);
	assert_false(blk_drop_one_bad(&w.bs, w.b));
	assert_int_equal(w.dn[0]->ninval + w.dn[1]->ninval, 0);
	report(&w, 5, 0); /* one is rebuilt after all */
	assert_int_equal(group_readable(w.b), 0x1d);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_false(blk_drop_one_bad(&w.bs, w.b)); /* one at a time */
	blocks_report_deleted(&w.bs, w.st[0], ec_id_of(group, 0), 0);
	assert_true(blk_drop_one_bad(&w.bs, w.b));
	assert_int_equal(w.dn[1]->ninval, 1);
	world_fini(&w);
}

/* A power cut took what was not synced of each: no report that is to come makes it better. */
static void safe_mode_does_not_wait_for_units_that_are_all_corrupt(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(w.b->flags & BLK_SAFE, 0);
		report_as(&w, (int)i, i, 1004, 1);
	}
	assert_int_equal(w.b->flags & (BLK_SAFE | BLK_MISSING), BLK_SAFE | BLK_MISSING);
	world_fini(&w);
}

static void units_on_nodes_that_leave_are_readable_and_not_live(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, LEN, BLK_COMPLETE);
	for (int i = 0; i < 5; i++)
		report(&w, i, (unsigned)i);
	w.dn[2]->admin = DN_DECOMMISSIONING;
	blk_recheck(&w.bs, w.b);
	assert_int_equal(group_live(w.b), 0x1b);
	assert_int_equal(group_readable(w.b), 0x1f);
	assert_int_equal(w.b->flags, BLK_SAFE | BLK_UNDER);
	w.dn[2]->admin = DN_IN_MAINTENANCE;
	w.dn[2]->alive = false;
	blk_recheck(&w.bs, w.b);
	assert_int_equal(group_away(w.b), 0x04);
	assert_int_equal(w.b->flags, BLK_SAFE); /* so many may be away */
	world_fini(&w);
}

static void targets_keep_their_units_when_a_node_is_forgotten(void **state)
{
	static const uint8_t units[] = {0, 2, 3, 4};
	struct world w;

	(void)state;
	world_init(&w, 0, BLK_OPEN);
	blk_set_targets(w.b, w.st, units, 4);
	blocks_forget(&w.bs, w.dn[1], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(w.b->open->ntargets, 3);
	assert_int_equal(w.b->open->target_unit[0], 0);
	assert_int_equal(w.b->open->target_unit[1], 3);
	assert_int_equal(w.b->open->target_unit[2], 4);
	assert_ptr_equal(w.b->open->target[1], w.st[2]);
	world_fini(&w);
}

static void back_with_nothing(struct world *w, int node)
{
	blocks_keep(&w->bs, w->st[node]);
	w->st[node]->reported = true;
}

/* Each with its unit. The primary counts those that were not asked; of a replica it would not. */
static void targets_of_a_group_are_asked_again_when_they_are_back(void **state)
{
	static const uint8_t units[] = {0, 2, 3, 4};
	struct world w;

	(void)state;
	world_init(&w, 0, BLK_OPEN);
	blk_set_targets(w.b, w.st, units, 4);
	for (int i = 0; i < 4; i++)
		blocks_forget(&w.bs, w.dn[i], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(w.b->open->ntargets, 0);
	assert_int_equal(w.b->open->nlost, 4);
	back_with_nothing(&w, 1);
	back_with_nothing(&w, 3);
	blk_target_all(w.b, &w.dns);
	assert_int_equal(w.b->open->ntargets, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(w.b->open->target_unit[i],
				 w.b->open->target[i] == w.st[1] ? 2 : 4);
	assert_int_equal(w.b->open->nlost, 2);
	assert_false(blk_may_be_elsewhere(w.b));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_is_complete_with_as_many_units_as_it_has_data),
		cmocka_unit_test(
			a_committed_group_of_a_closed_file_is_short_of_units_or_missing_like_others),
		cmocka_unit_test(a_lost_unit_is_missed_and_one_too_many_lost_is_the_end),
		cmocka_unit_test(a_short_group_has_fewer_units),
		cmocka_unit_test(
			a_unit_of_a_wrong_length_or_stamp_is_corrupt_and_the_others_are_not),
		cmocka_unit_test(a_unit_on_two_nodes_leaves_the_one_with_less_room),
		cmocka_unit_test(two_units_on_one_node_are_two),
		cmocka_unit_test(corrupt_is_the_unit_that_was_named),
		cmocka_unit_test(safe_mode_does_not_wait_for_units_that_are_all_corrupt),
		cmocka_unit_test(a_damaged_unit_goes_first_only_while_another_may_be_lost),
		cmocka_unit_test(units_on_nodes_that_leave_are_readable_and_not_live),
		cmocka_unit_test(targets_keep_their_units_when_a_node_is_forgotten),
		cmocka_unit_test(targets_of_a_group_are_asked_again_when_they_are_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
