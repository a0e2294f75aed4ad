/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an order to make lost units anew is passed on as the NameNode means it. When its
 * lists do not fit each other, or it is of another block pool, it is not passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL "BP-1-127.0.0.1-1"
#define OWN_UUID "node-3"
#include "datanode/bp/rebuild_order_test_fixture.h"

#define GROUP_ID (-1024)
#define SOURCES 3

static struct dn dn = {.ec_xmits_pct = 50};
static struct bp_set set = {.dn = &dn};
static struct bp_actor actor = {.set = &set, .addr_text = "namenode:8020"};

/* What the data port was given. */
static struct {
	uint32_t count, source_count, target_count;
	uint8_t source[SOURCES], target;
	bool own_target;
	struct block group;
} got;

/* ---- the rest of the node ---- */

int data_port_rebuild(struct data_port *x, struct reconstruct_params *p)
{
	(void)x;
	got.count++;
	got.group = p->group;
	got.source_count = p->source_count;
	got.target_count = p->target_count;
	for (uint32_t i = 0; i < SOURCES && i < p->source_count; i++)
		got.source[i] = p->sources[i].unit;
	got.target = p->targets[0].unit;
	got.own_target = p->targets[0].own;
	reconstruct_params_fini(p);
	return -EBUSY;
}

/* ---- an order ---- */

/* Unit 1 of a group of RS-3-2 is lost: of nodes 0, 2, 4 to node 3, which is this one. */
struct order {
	Hdd__BlockECReconstructionCommandProto cmd;
	Hd__BlockECReconstructionInfoProto info, *list;
	Hd__ExtendedBlockProto block;
	Hd__DatanodeInfosProto from, to;
	Hd__DatanodeIDProto id[SOURCES + 1];
	Hd__DatanodeInfoProto node[SOURCES + 1], *nodes[SOURCES + 1];
	Hd__StorageUuidsProto uuids;
	Hd__StorageTypesProto types;
	Hd__ErasureCodingPolicyProto policy;
	uint8_t live[SOURCES + 1];
	char uuid[SOURCES + 1][16];
};

static void order_nodes(struct order *o)
{
	static const int number[] = {0, 2, 4, 3};

	for (int i = 0; i <= SOURCES; i++) {
		hd__datanode_idproto__init(&o->id[i]);
		hd__datanode_info_proto__init(&o->node[i]);
		snprintf(o->uuid[i], sizeof(o->uuid[i]), "node-%d", number[i]);
		o->id[i].ipaddr = o->id[i].hostname = (char *)"127.0.0.1";
		o->id[i].datanodeuuid = o->uuid[i];
		o->id[i].xferport = 9866;
		o->node[i].id = &o->id[i];
		o->nodes[i] = &o->node[i];
		o->live[i] = (uint8_t)number[i];
	}
	hd__datanode_infos_proto__init(&o->from);
	hd__datanode_infos_proto__init(&o->to);
	o->from.n_datanodes = SOURCES;
	o->from.datanodes = o->nodes;
	o->to.n_datanodes = 1;
	o->to.datanodes = o->nodes + SOURCES;
}

static void order_init(struct order *o)
{
	order_nodes(o);
	hdd__block_ecreconstruction_command_proto__init(&o->cmd);
	hd__block_ecreconstruction_info_proto__init(&o->info);
	hd__extended_block_proto__init(&o->block);
	hd__storage_uuids_proto__init(&o->uuids);
	hd__storage_types_proto__init(&o->types);
	hd__erasure_coding_policy_proto__init(&o->policy);
	o->block.poolid = (char *)POOL;
	o->block.blockid = (uint64_t)GROUP_ID;
	o->block.generationstamp = 1001;
	o->block.numbytes = 64 << 20;
	o->policy.id = EC_ID_RS_3_2;
	o->info.block = &o->block;
	o->info.sourcedninfos = &o->from;
	o->info.targetdninfos = &o->to;
	o->info.targetstorageuuids = &o->uuids;
	o->info.targetstoragetypes = &o->types;
	o->info.liveblockindices = (ProtobufCBinaryData){SOURCES, o->live};
	o->info.ecpolicy = &o->policy;
	o->list = &o->info;
	o->cmd.n_blockecreconstructioninfo = 1;
	o->cmd.blockecreconstructioninfo = &o->list;
}

/* How often the data port is asked. */
static uint32_t give(struct order *o)
{
	memset(&got, 0, sizeof(got));
	reconstruct_start(&actor, &o->cmd);
	assert_int_equal(atomic_load(&dn.ec_xmits), 0); /* it has refused */
	return got.count;
}

/* ---- what must hold ---- */

static void an_order_is_passed_on(void **state)
{
	struct order o;

	(void)state;
	order_init(&o);
	assert_int_equal(give(&o), 1);
	assert_int_equal(got.group.id, GROUP_ID);
	assert_int_equal(got.group.gs, 1001);
	assert_int_equal(got.group.len, 64 << 20);
	assert_int_equal(got.source_count, SOURCES);
	for (int i = 0; i < SOURCES; i++)
		assert_int_equal(got.source[i], 2 * i);
	assert_int_equal(got.target_count, 1);
	assert_int_equal(got.target, 1);
	assert_true(got.own_target);
}

/* Which node has which unit would be a guess, or be read behind the end of the message. */
static void an_order_has_a_unit_for_each_source(void **state)
{
	struct order o;

	(void)state;
	order_init(&o);
	o.info.liveblockindices.len = SOURCES - 1;
	assert_int_equal(give(&o), 0);
	o.info.liveblockindices.len = SOURCES + 1;
	assert_int_equal(give(&o), 0);
	o.info.liveblockindices.len = SOURCES;
	assert_int_equal(give(&o), 1);
}

/* Ids of blocks of two pools may be the same. */
static void an_order_is_of_the_pool_of_its_namenode(void **state)
{
	struct order o;

	(void)state;
	order_init(&o);
	o.block.poolid = (char *)"BP-2-127.0.0.1-1";
	assert_int_equal(give(&o), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_order_is_passed_on),
		cmocka_unit_test(an_order_has_a_unit_for_each_source),
		cmocka_unit_test(an_order_is_of_the_pool_of_its_namenode),
	};

	log_init("reconstruct_command_test", LOG_ERROR);
	actor.bp = (struct block_pool *)&dn; /* any: it is not looked into */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
