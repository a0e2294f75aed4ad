/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever order the NameNode names the nodes in, with copies and holes, each unit
 * has its own block id, length, nodes and token; what no NameNode says is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/striped/block_group.h"

#define ID (INT64_MIN + 32)
#define CELL 1048576u

struct fixture {
	Hd__LocatedBlockProto lb;
	Hd__ExtendedBlockProto b;
	Hc__TokenProto common, token[LOCATED_NODES_MAX + 1], *tokens[LOCATED_NODES_MAX + 1];
	Hd__DatanodeIDProto id[LOCATED_NODES_MAX + 1];
	Hd__DatanodeInfoProto info[LOCATED_NODES_MAX + 1], *locs[LOCATED_NODES_MAX + 1];
	char *storage[LOCATED_NODES_MAX + 1];
	char storage_text[LOCATED_NODES_MAX + 1][8];
	uint8_t index[LOCATED_NODES_MAX + 1];
};

static struct fixture f;
static struct group g;

/* A group of @length bytes whose nodes hold the units @index[0..n). Node i has port 1000 + i. */
static void make(uint64_t length, const uint8_t *index, size_t n)
{
	memset(&f, 0, sizeof(f));
	hd__located_block_proto__init(&f.lb);
	hd__extended_block_proto__init(&f.b);
	hc__token_proto__init(&f.common);
	f.b.poolid = "BP-1";
	f.b.blockid = (uint64_t)ID;
	f.b.generationstamp = 1007;
	f.b.has_numbytes = 1;
	f.b.numbytes = length;
	f.lb.b = &f.b;
	f.lb.offset = 77;
	f.lb.blocktoken = &f.common;
	f.lb.n_locs = f.lb.n_storageids = f.lb.n_blocktokens = n;
	f.lb.locs = f.locs;
	f.lb.storageids = f.storage;
	f.lb.blocktokens = f.tokens;
	f.lb.has_blockindices = 1;
	f.lb.blockindices.data = f.index;
	f.lb.blockindices.len = n;
	for (size_t i = 0; i < n; i++) {
		hd__datanode_idproto__init(&f.id[i]);
		hd__datanode_info_proto__init(&f.info[i]);
		hc__token_proto__init(&f.token[i]);
		f.id[i].ipaddr = "10.0.0.1";
		f.id[i].xferport = (uint32_t)(1000 + i);
		f.info[i].id = &f.id[i];
		f.locs[i] = &f.info[i];
		f.tokens[i] = &f.token[i];
		snprintf(f.storage_text[i], sizeof(f.storage_text[i]), "DS-%zu", i);
		f.storage[i] = f.storage_text[i];
		f.index[i] = index ? index[i] : 0;
	}
}

static int view(void)
{
	return group_view(&f.lb, ec_policy_by_id(EC_ID_RS_3_2), &g, NULL);
}

static void units_in_any_order_with_copies_and_holes(void **state)
{
	static const uint8_t index[] = {4, 0, 2, 0, 3};
	char text[GROUP_TEXT_MAX];

	(void)state;
	make(3 * CELL + 5, index, 5);
	assert_int_equal(view(), 0);
	assert_int_equal(g.id, ID);
	assert_int_equal(g.offset, 77);
	assert_int_equal(g.existing, 0x1f);
	assert_int_equal(g.lost, 1 << 1);
	for (unsigned u = 0; u < 5; u++) {
		assert_int_equal(g.unit[u].b.blockid, (uint64_t)ID + u);
		assert_int_equal(g.unit[u].lb.b->generationstamp, 1007);
		assert_int_equal(g.unit[u].b.numbytes, u == 0 || u > 2 ? CELL + 5 : CELL);
	}
	assert_int_equal(g.unit[0].lb.n_locs, 2);
	assert_int_equal(g.unit[0].lb.locs[0]->id->xferport, 1001);
	assert_int_equal(g.unit[0].lb.locs[1]->id->xferport, 1003);
	assert_string_equal(g.unit[0].lb.storageids[1], "DS-3");
	assert_ptr_equal(g.unit[0].lb.blocktoken, &f.token[1]);
	assert_ptr_equal(g.unit[4].lb.blocktoken, &f.token[0]);
	assert_int_equal(g.unit[1].lb.n_locs, 0);
	assert_string_equal(group_unit_text(&g, 1, text), "no node");
	assert_string_equal(group_unit_text(&g, 0, text), "10.0.0.1:1001+1");
	assert_string_equal(group_unit_text(&g, 3, text), "10.0.0.1:1004");
}

static void units_that_do_not_exist_are_not_lost(void **state)
{
	static const uint8_t index[] = {0, 3, 4};

	(void)state;
	make(1, index, 3);
	assert_int_equal(view(), 0);
	assert_int_equal(g.existing, 0x19);
	assert_int_equal(g.lost, 0);
	assert_int_equal(g.unit[1].b.numbytes, 0);
	make(0, index, 3); /* being written: nobody knows yet */
	assert_int_equal(view(), 0);
	assert_int_equal(g.existing, 0x1f);
	assert_int_equal(g.lost, 0x6);
}

static void without_tokens_of_units_the_one_of_the_group_is_used(void **state)
{
	static const uint8_t index[] = {0, 1, 2, 3, 4};

	(void)state;
	make(CELL, index, 5);
	f.lb.n_blocktokens = 0;
	assert_int_equal(view(), 0);
	assert_ptr_equal(g.unit[2].lb.blocktoken, &f.common);
}

static void more_copies_than_anybody_needs_are_left_out(void **state)
{
	(void)state;
	make(CELL, NULL, LOCATED_NODES_MAX);
	assert_int_equal(view(), 0);
	assert_int_equal(g.unit[0].lb.n_locs, GROUP_COPIES_MAX);
	assert_int_equal(g.unit[0].lb.n_storageids, GROUP_COPIES_MAX);
}

static void nonsense_is_refused(void **state)
{
	static const uint8_t good[] = {0, 1, 2, 3, 4}, beyond[] = {0, 1, 2, 3, 5}, far[] = {255};

	(void)state;
	make(CELL, beyond, 5);
	assert_int_equal(view(), -EPROTO);
	make(CELL, far, 1);
	assert_int_equal(view(), -EPROTO);
	make(CELL, good, 5);
	f.lb.blockindices.len = 4;
	assert_int_equal(view(), -EPROTO);
	make(CELL, good, 5);
	f.lb.has_blockindices = 0;
	assert_int_equal(view(), -EPROTO);
	make(CELL, good, 5);
	f.lb.n_blocktokens = 4;
	assert_int_equal(view(), -EPROTO);
	make(CELL, good, 5);
	f.b.blockid = (uint64_t)(ID + 1);
	assert_int_equal(view(), -EPROTO);
	f.b.blockid = 1073741825;
	assert_int_equal(view(), -EPROTO);
	make(EC_LENGTH_MAX + 1, good, 5);
	assert_int_equal(view(), -EPROTO);
	make(CELL, NULL, LOCATED_NODES_MAX + 1);
	assert_int_equal(view(), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_in_any_order_with_copies_and_holes),
		cmocka_unit_test(units_that_do_not_exist_are_not_lost),
		cmocka_unit_test(without_tokens_of_units_the_one_of_the_group_is_used),
		cmocka_unit_test(more_copies_than_anybody_needs_are_left_out),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
