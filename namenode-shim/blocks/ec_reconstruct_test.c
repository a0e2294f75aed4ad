/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told to make the missing units of a group again, and that nobody is told twice. */
#include "namenode-shim/blocks/ec_reconstruct.h"

#include <setjmp.h>
#include <stdarg.h>

#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#define NODES 9
#define UNITS 5 /* of RS-3-2 */
#define LEN (4u << 20)
#define TIMEOUT_NS 1000000000ull

static struct nn nn;
static struct dn *dn[NODES];
static struct storage *st[NODES];
static struct blk *group;

/* All units but those of @lost, unit i on node i. */
static void world(uint32_t lost)
{
	const struct block b = {EC_GROUP_ID_FIRST, 1005, LEN};

	nn = (struct nn){.set.work = {.streams = 2, .streams_hard = 4}};
	datanodes_init(&nn.dns, 1000);
	blocks_init(&nn.blocks, TIMEOUT_NS, 1);
	for (int i = 0; i < NODES; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + (uint32_t)i,
					    1,    2,           0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&nn.dns, &id, &dn[i]), 0);
		st[i] = dn_storage_add(dn[i], "DS", STORAGE_DISK);
		st[i]->remaining = st[i]->capacity = 1ull << 40;
	}
	group = blocks_add_group(&nn.blocks, &b, 17000, ec_policy_by_id(EC_ID_RS_3_2),
				 BLK_COMPLETE);
	for (unsigned unit = 0; unit < UNITS; unit++) {
		const struct block r = {ec_id_of(b.id, unit), b.gs, blk_unit_len(group, LEN, unit)};

		if (!(lost >> unit & 1))
			blocks_report(&nn.blocks, st[unit], &r, REPLICA_FINALIZED, false, 0);
	}
}

static void world_end(void)
{
	blocks_fini(&nn.blocks);
	datanodes_fini(&nn.dns);
}

static uint32_t orders(bool moves)
{
	uint32_t n = 0;

	for (int i = 0; i < NODES; i++)
		list_for_each (l, moves ? &dn[i]->transfers : &dn[i]->rebuilds)
			n++;
	return n;
}

static void a_lost_unit_is_ordered_once_until_its_time_is_over(void **state)
{
	(void)state;
	world(1u << 1);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 1);
	ec_reconstruct_order(&nn, group, NULL, 1);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 1);
	blocks_expire_pending(&nn.blocks, TIMEOUT_NS + 1);
	assert_int_equal(group->npending, 0);
	ec_reconstruct_order(&nn, group, NULL, TIMEOUT_NS + 2);
	assert_int_equal(orders(false), 2);
	world_end();
}

/* Room is promised where units are to come, and nowhere else. */
static void what_is_not_ordered_as_its_node_is_busy_takes_no_room(void **state)
{
	const struct rebuild r = {.b = {EC_GROUP_ID_FIRST + EC_UNITS_MAX, 1005, LEN}};

	(void)state;
	world(1u << 1);
	for (int i = 0; i < NODES; i++)
		for (uint32_t k = 0; k < 2 * work_rebuilds(&nn.set.work); k++)
			dn_order_rebuild(dn[i], &r);
	assert_false(ec_reconstruct_order(&nn, group, NULL, 1));
	for (int i = 0; i < NODES; i++) {
		assert_int_equal(st[i]->promised, 0);
		assert_int_equal(st[i]->promised_blocks, 0);
	}
	world_end();
}

/* It names a node that has died, and is dropped: the group does not wait for what nobody was told
 * to make. */
static void an_order_that_is_dropped_unsent_is_made_anew(void **state)
{
	(void)state;
	world(1u << 1);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(group->npending, 1);
	nn_dn_lost(&nn, dn[0], "test");
	assert_int_equal(orders(false), 0);
	assert_int_equal(group->npending, 0);
	blocks_sweep(&nn.blocks, UINT32_MAX);
	assert_true(group->flags & BLK_UNDER);
	ec_reconstruct_order(&nn, group, NULL, 1);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 2);
	world_end();
}

/* The node that was to send it has died. */
static void a_copy_that_is_dropped_unsent_is_ordered_anew(void **state)
{
	const struct block b = {1073741825, 1005, LEN};
	struct blk *blk;

	(void)state;
	world(0);
	blk = blocks_add(&nn.blocks, &b, 17000, 3, BLK_COMPLETE);
	for (int i = 0; i < 2; i++)
		blocks_report(&nn.blocks, st[i], &b, REPLICA_FINALIZED, false, 0);
	dn_order_transfer(dn[0], &b, st[7]);
	blk_add_pending(&nn.blocks, blk, st[7], TIMEOUT_NS);
	blk_recheck(&nn.blocks, blk);
	assert_false(blk->flags & BLK_UNDER);
	nn_dn_lost(&nn, dn[0], "test");
	assert_int_equal(blk->npending, 0);
	assert_true(blk->flags & BLK_URGENT);
	world_end();
}

static void one_order_is_for_all_lost_units(void **state)
{
	(void)state;
	world(1u << 0 | 1u << 4);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 2);
	world_end();
}

static void nothing_is_ordered_of_a_group_that_cannot_be_read(void **state)
{
	(void)state;
	world(1u << 0 | 1u << 1 | 1u << 2);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(false) + orders(true), 0);
	world_end();
}

static void a_unit_whose_node_leaves_is_copied_once(void **state)
{
	(void)state;
	world(0);
	dn[3]->admin = DN_DECOMMISSIONING;
	blk_recheck(&nn.blocks, group);
	ec_reconstruct_order(&nn, group, NULL, 0);
	ec_reconstruct_order(&nn, group, NULL, 1);
	assert_int_equal(orders(false), 0);
	assert_int_equal(orders(true), 1);
	assert_false(list_empty(&dn[3]->transfers));
	world_end();
}

/* Node i stands in the rack of this letter. */
static void set_racks(const char *letters)
{
	for (int i = 0; i < NODES; i++)
		snprintf(dn[i]->rack, sizeof(dn[i]->rack), "/%c", letters[i]);
	datanodes_changed(&nn.dns);
	blocks_set_racks(&nn.blocks, datanodes_index(&nn.dns)->racks);
	blocks_set_unit_racks(&nn.blocks, &datanodes_index(&nn.dns)->units);
	blocks_sweep(&nn.blocks, UINT32_MAX);
}

/* The unit ordered to go from node @from, and the node where; -1: none. */
static int moved_by(int from, int *ret_to)
{
	const struct transfer *t;

	if (list_empty(&dn[from]->transfers))
		return -1;
	t = container_of(dn[from]->transfers.next, struct transfer, link);
	for (int i = 0; i < NODES; i++)
		*ret_to = t->target == st[i] ? i : *ret_to;
	return (int)ec_id_unit(t->b.id);
}

static void a_unit_of_a_rack_with_too_many_is_copied_to_another_and_goes(void **state)
{
	struct block r;
	int to = -1;

	(void)state;
	world(0);
	set_racks("aaabbccbc");
	assert_int_equal(nn.blocks.crowded_count, 1); /* units in a, a, a, b, b, and c has room */
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(false), 0);
	assert_int_equal(orders(true), 1);
	assert_int_equal(moved_by(0, &to), 0);
	assert_int_equal(dn[to]->rack[1], 'c');
	assert_int_equal(nn.blocks.crowded_count, 0);
	ec_reconstruct_order(&nn, group, NULL, 1); /* one at a time */
	assert_int_equal(orders(true), 1);
	r = (struct block){ec_id_of(group->b.id, 0), group->b.gs, blk_unit_len(group, LEN, 0)};
	st[to]->remaining = 1; /* the old one goes, though it has more room */
	blocks_report(&nn.blocks, st[to], &r, REPLICA_FINALIZED, false, 0);
	assert_int_equal(dn[0]->ninval, 1);
	assert_int_equal(dn[to]->ninval, 0);
	assert_int_equal(group_live(group), 0x1f);
	assert_int_equal(nn.blocks.crowded_count, 0);
	world_end();
}

static void a_copy_that_does_not_arrive_is_ordered_again(void **state)
{
	(void)state;
	world(0);
	set_racks("aaaaabbbb");
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(true), 1);
	assert_int_equal(nn.blocks.crowded_count, 1); /* four and one is too many, too */
	ec_reconstruct_order(&nn, group, NULL, 1);
	assert_int_equal(orders(true), 1);
	blocks_expire_pending(&nn.blocks, TIMEOUT_NS + 1);
	ec_reconstruct_order(&nn, group, NULL, TIMEOUT_NS + 2);
	assert_int_equal(orders(true), 2);
	world_end();
}

static void nothing_is_spread_where_the_nodes_allow_nothing_better(void **state)
{
	(void)state;
	world(0);
	set_racks("aaaabbbbb"); /* two racks: three and two would be better than four and one */
	assert_int_equal(nn.blocks.crowded_count, 1);
	for (int i = 5; i < NODES; i++)
		dn[i]->admin = DN_DECOMMISSIONED;
	set_racks("aaaabbbbb"); /* four and one is what they can do */
	assert_int_equal(nn.blocks.crowded_count, 0);
	dn[5]->admin = DN_NORMAL;
	set_racks("aaaabbbbb");
	assert_int_equal(nn.blocks.crowded_count, 1);
	dn[0]->admin = DN_IN_MAINTENANCE; /* it comes back */
	set_racks("aaaabbbbb");
	assert_int_equal(nn.blocks.crowded_count, 0);
	world_end();
}

static void a_busy_or_silent_node_does_not_copy_to_spread(void **state)
{
	int to = -1;

	(void)state;
	world(0);
	set_racks("aaabbccbc");
	dn[0]->stale = true;
	for (int i = 0; i < 4; i++)
		dn_order_transfer(dn[1], &(struct block){1, 1, 1}, st[8]);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(moved_by(2, &to), 2);
	world_end();
}

static void a_lost_unit_comes_before_a_full_rack(void **state)
{
	(void)state;
	world(1u << 4);
	set_racks("aaaabbccc");
	assert_int_equal(nn.blocks.crowded_count, 0);
	assert_int_equal(nn.blocks.under_count, 1);
	ec_reconstruct_order(&nn, group, NULL, 0);
	assert_int_equal(orders(false), 1);
	assert_int_equal(orders(true), 0);
	world_end();
}

/* A unit is twice there, and the first one's node is silent. */
static void a_silent_node_is_not_read_to_make_units_nor_makes_any(void **state)
{
	const struct rebuild *r = NULL;
	struct block unit;

	(void)state;
	/* the first copy, and then the second one */
	for (int silent = 0; silent <= 5; silent += 5) {
		world(1u << 4);
		unit = (struct block){ec_id_of(group->b.id, 0), group->b.gs,
				      blk_unit_len(group, LEN, 0)};
		nn.blocks.quiet = true; /* or the surplus goes */
		blocks_report(&nn.blocks, st[5], &unit, REPLICA_FINALIZED, false, 0);
		nn.blocks.quiet = false;
		dn[silent]->stale = dn[4]->stale = dn[6]->stale = dn[7]->stale = true;
		datanodes_changed(&nn.dns);
		ec_reconstruct_order(&nn, group, NULL, 0);
		assert_int_equal(orders(false), 1);
		assert_false(list_empty(&dn[8]->rebuilds));
		r = container_of(dn[8]->rebuilds.next, struct rebuild, link);
		assert_int_equal(r->nsources, 4);
		assert_ptr_equal(r->source[0], dn[5 - silent]);
		world_end();
	}
}

/* Unit 0 is twice there, and one of the two is damaged. */
static void a_corrupt_unit_is_not_read_to_make_others(void **state)
{
	(void)state;
	for (int bad = 0; bad <= 5; bad += 5) {
		const struct rebuild *r = NULL;
		struct block unit;

		world(1u << 4);
		unit = (struct block){ec_id_of(group->b.id, 0), group->b.gs,
				      blk_unit_len(group, LEN, 0)};
		nn.blocks.quiet = true; /* or one of them goes */
		blocks_report(&nn.blocks, st[5], &unit, REPLICA_FINALIZED, false, 0);
		blocks_report_corrupt(&nn.blocks, &unit, dn[bad], st[bad], true);
		ec_reconstruct_order(&nn, group, NULL, 0);
		assert_int_equal(orders(false), 1);
		for (int i = 0; i < NODES; i++)
			if (!list_empty(&dn[i]->rebuilds))
				r = container_of(dn[i]->rebuilds.next, struct rebuild, link);
		assert_non_null(r);
		assert_int_equal(r->nsources, 4);
		assert_ptr_equal(r->source[0], dn[5 - bad]);
		world_end();
	}
}

/* Its node is down, and comes back. */
static void a_unit_in_maintenance_is_not_made_again(void **state)
{
	(void)state;
	for (uint32_t lost = 0; lost < 2; lost++) {
		world(lost << 4);
		dn[3]->admin = DN_IN_MAINTENANCE;
		nn_dn_lost(&nn, dn[3], "test");
		blocks_sweep(&nn.blocks, UINT32_MAX);
		ec_reconstruct_order(&nn, group, NULL, 0);
		assert_int_equal(orders(false), lost);
		assert_int_equal(group->npending, lost);
		world_end();
	}
}

/* What its heartbeat is answered with: so many orders. */
static size_t sent_to(struct dn *to)
{
	static struct db db = {.ident.pool_id = "BP-1"};
	struct req q = {.nn = &nn};
	const Hdd__DatanodeCommandProto *c;
	size_t n;

	nn.db = &db;
	c = ec_reconstruct_command(&q, to);
	n = c ? c->blkecreconstructioncmd->n_blockecreconstructioninfo : 0;
	arena_free(&q.mem);
	nn.db = NULL;
	return n;
}

/* Its units would be made from those of two stamps, or at another length. */
static void an_order_for_what_a_group_was_before_is_not_sent(void **state)
{
	static const struct {
		uint64_t stamps, bytes;
		size_t sent;
	} cases[] = {{0, 0, 1}, {1, 0, 0}, {0, 1, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t sent = 0;

		world(1u << 1);
		ec_reconstruct_order(&nn, group, NULL, 0);
		group->b.gs += cases[i].stamps;
		group->b.len += cases[i].bytes;
		for (int k = 0; k < NODES; k++)
			sent += sent_to(dn[k]);
		assert_int_equal(sent, cases[i].sent);
		assert_int_equal(orders(false), 0);
		world_end();
	}
}

/* The copy of a move came too late for anybody to remember whose place it takes. */
static void of_two_copies_of_a_unit_the_one_in_the_fuller_rack_goes(void **state)
{
	struct block r;

	(void)state;
	world(0);
	set_racks("aaabbccbc");
	st[5]->remaining = 1;
	r = (struct block){ec_id_of(group->b.id, 1), group->b.gs, blk_unit_len(group, LEN, 1)};
	blocks_report(&nn.blocks, st[5], &r, REPLICA_FINALIZED, false, 0);
	assert_int_equal(dn[1]->ninval, 1);
	assert_int_equal(dn[5]->ninval, 0);
	world_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_unit_is_ordered_once_until_its_time_is_over),
		cmocka_unit_test(what_is_not_ordered_as_its_node_is_busy_takes_no_room),
		cmocka_unit_test(an_order_that_is_dropped_unsent_is_made_anew),
		cmocka_unit_test(a_copy_that_is_dropped_unsent_is_ordered_anew),
		cmocka_unit_test(one_order_is_for_all_lost_units),
		cmocka_unit_test(nothing_is_ordered_of_a_group_that_cannot_be_read),
		cmocka_unit_test(a_unit_whose_node_leaves_is_copied_once),
		cmocka_unit_test(a_unit_of_a_rack_with_too_many_is_copied_to_another_and_goes),
		cmocka_unit_test(a_copy_that_does_not_arrive_is_ordered_again),
		cmocka_unit_test(nothing_is_spread_where_the_nodes_allow_nothing_better),
		cmocka_unit_test(a_busy_or_silent_node_does_not_copy_to_spread),
		cmocka_unit_test(a_lost_unit_comes_before_a_full_rack),
		cmocka_unit_test(a_silent_node_is_not_read_to_make_units_nor_makes_any),
		cmocka_unit_test(a_corrupt_unit_is_not_read_to_make_others),
		cmocka_unit_test(a_unit_in_maintenance_is_not_made_again),
		cmocka_unit_test(an_order_for_what_a_group_was_before_is_not_sent),
		cmocka_unit_test(of_two_copies_of_a_unit_the_one_in_the_fuller_rack_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
