/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told to make the missing units of a group again, and that nobody is told twice. */
#include "namenode-shim/rebuild.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>

#include "namenode-shim/nn.h"

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
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + (uint32_t)i, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&nn.dns, &id, &dn[i]), 0);
		st[i] = dn_storage_add(dn[i], "DS", STORAGE_DISK);
		st[i]->remaining = st[i]->capacity = 1ull << 40;
	}
	group = blocks_add_group(&nn.blocks, &b, 17000, ec_policy_by_id(EC_ID_RS_3_2), BLK_COMPLETE);
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
		list_for_each(l, moves ? &dn[i]->transfers : &dn[i]->rebuilds)
			n++;
	return n;
}

static void a_lost_unit_is_ordered_once_until_its_time_is_over(void **state)
{
	(void)state;
	world(1u << 1);
	rebuild_order(&nn, group, 0);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 1);
	rebuild_order(&nn, group, 1);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 1);
	blocks_expire_pending(&nn.blocks, TIMEOUT_NS + 1);
	assert_int_equal(group->npending, 0);
	rebuild_order(&nn, group, TIMEOUT_NS + 2);
	assert_int_equal(orders(false), 2);
	world_end();
}

static void one_order_is_for_all_lost_units(void **state)
{
	(void)state;
	world(1u << 0 | 1u << 4);
	rebuild_order(&nn, group, 0);
	assert_int_equal(orders(false), 1);
	assert_int_equal(group->npending, 2);
	world_end();
}

static void nothing_is_ordered_of_a_group_that_cannot_be_read(void **state)
{
	(void)state;
	world(1u << 0 | 1u << 1 | 1u << 2);
	rebuild_order(&nn, group, 0);
	assert_int_equal(orders(false) + orders(true), 0);
	world_end();
}

static void a_unit_whose_node_leaves_is_copied_once(void **state)
{
	(void)state;
	world(0);
	dn[3]->admin = DN_DECOMMISSIONING;
	blk_recheck(&nn.blocks, group);
	rebuild_order(&nn, group, 0);
	rebuild_order(&nn, group, 1);
	assert_int_equal(orders(false), 0);
	assert_int_equal(orders(true), 1);
	assert_false(list_empty(&dn[3]->transfers));
	world_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_unit_is_ordered_once_until_its_time_is_over),
		cmocka_unit_test(one_order_is_for_all_lost_units),
		cmocka_unit_test(nothing_is_ordered_of_a_group_that_cannot_be_read),
		cmocka_unit_test(a_unit_whose_node_leaves_is_copied_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
