/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: what is remembered about a node is found until it expires, the table stays
 * bounded, and a node leaves or joins a pipeline with its storage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/fs/datanode_id.h"
#include "client/src/stream/dtp.h"
#include "common/wire/pb.h"

static void a_note_holds_until_it_expires(void **state)
{
	struct node_table t;
	char why[20];

	(void)state;
	node_table_init(&t);
	assert_true(node_table_is_empty(&t));
	assert_false(node_table_get(&t, "a:1", 0, NULL, 0));
	node_table_put(&t, "a:1", "down", 100);
	assert_false(node_table_is_empty(&t));
	node_table_put(&t, "b:2", "slow", 50);
	assert_true(node_table_get(&t, "a:1", 99, why, sizeof(why)));
	assert_string_equal(why, "down");
	assert_false(node_table_get(&t, "a:1", 100, NULL, 0));
	node_table_put(&t, "a:1", "down again", 200);
	assert_true(node_table_get(&t, "a:1", 150, why, sizeof(why)));
	assert_string_equal(why, "down again");
	assert_int_equal(t.count, 2);
	node_table_drop(&t, "a:1");
	assert_false(node_table_get(&t, "a:1", 0, NULL, 0));
	assert_true(node_table_get(&t, "b:2", 0, NULL, 0));
	node_table_fini(&t);
}

static void a_full_table_forgets_what_expires_first(void **state)
{
	struct node_table t;
	char node[20];

	(void)state;
	node_table_init(&t);
	for (unsigned int i = 0; i < NODE_TABLE_MAX + 10; i++) {
		snprintf(node, sizeof(node), "n:%u", i);
		node_table_put(&t, node, "", 1000 + i);
	}
	assert_int_equal(t.count, NODE_TABLE_MAX);
	assert_false(node_table_get(&t, "n:9", 0, NULL, 0));
	assert_true(node_table_get(&t, "n:10", 0, NULL, 0));
	assert_true(node_table_get(&t, node, 0, NULL, 0));
	node_table_fini(&t);
}

/* A LocatedBlock as it comes off the wire: every part from malloc. */
static Hd__LocatedBlockProto *make_located(size_t n)
{
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT, *ret;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info[4], *locs[4];
	Hd__DatanodeIDProto id[4];
	Hd__StorageTypeProto types[4] = {1, 2, 3, 4};
	char *ids[4] = {"s0", "s1", "s2", "s3"}, *hosts[4] = {"h0", "h1", "h2", "h3"};
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	uint8_t *buf;
	size_t len;

	token.kind = token.service = b.poolid = "";
	for (size_t i = 0; i < n; i++) {
		hd__datanode_info_proto__init(&info[i]);
		hd__datanode_idproto__init(&id[i]);
		id[i].ipaddr = id[i].hostname = id[i].datanodeuuid = hosts[i];
		info[i].id = &id[i];
		locs[i] = &info[i];
	}
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = n;
	lb.locs = locs;
	lb.storageids = ids;
	lb.storagetypes = types;
	assert_int_equal(pb_pack(&lb, &buf, &len), 0);
	assert_int_equal(pb_unpack(&hd__located_block_proto__descriptor, buf, len, &ret), 0);
	free(buf);
	return ret;
}

static void a_copy_is_whole_and_forgets_by_id(void **state)
{
	Hd__LocatedBlockProto *lb = make_located(3), *copy = located_copy(lb);

	(void)state;
	assert_non_null(copy);
	located_forget(copy, lb->locs[1]->id);
	located_forget(copy, lb->locs[1]->id); /* who is not there */
	assert_int_equal(lb->n_locs, 3);
	pb_free(lb);
	assert_int_equal(located_check(copy, true, NULL), 0);
	assert_int_equal(copy->n_locs, 2);
	for (size_t k = 0; k < 2; k++) {
		assert_int_equal(copy->locs[k]->id->hostname[1], '0' + 2 * (int)k);
		assert_int_equal(copy->storageids[k][1], '0' + 2 * (int)k);
		assert_int_equal((int)copy->storagetypes[k], 1 + 2 * (int)k);
	}
	pb_free(copy);
}

static void a_node_leaves_the_pipeline_with_its_storage(void **state)
{
	(void)state;
	for (size_t n = 1; n <= 4; n++) {
		for (size_t i = 0; i < n; i++) {
			Hd__LocatedBlockProto *lb = make_located(n);
			Hd__DatanodeInfoProto *gone = located_remove(lb, i);

			assert_int_equal(gone->id->hostname[1], '0' + (int)i);
			assert_int_equal(lb->n_locs, n - 1);
			for (size_t k = 0; k + 1 < n; k++) {
				const int want = '0' + (int)(k < i ? k : k + 1);

				assert_int_equal(lb->locs[k]->id->hostname[1], want);
				assert_int_equal(lb->storageids[k][1], want);
				assert_int_equal((int)lb->storagetypes[k], want - '0' + 1);
			}
			pb_free(gone);
			pb_free(lb);
		}
	}
}

static void a_node_joins_the_pipeline_with_its_storage(void **state)
{
	Hd__LocatedBlockProto *to = make_located(1), *from = make_located(4);

	(void)state;
	assert_int_equal(located_move(to, from, 2), 0);
	assert_int_equal(located_move(to, from, 2), 0);
	assert_int_equal(located_check(to, true, NULL), 0);
	assert_int_equal(located_check(from, true, NULL), 0);
	assert_int_equal(from->n_locs, 2);
	pb_free(from);
	assert_int_equal(to->n_locs, 3);
	for (size_t k = 0; k < 3; k++) {
		const int want = k ? '1' + (int)k : '0';

		assert_int_equal(to->locs[k]->id->hostname[1], want);
		assert_int_equal(to->storageids[k][1], want);
		assert_int_equal((int)to->storagetypes[k], want - '0' + 1);
	}
	pb_free(to);
}

static void a_block_for_writing_needs_a_storage_for_each_node(void **state)
{
	Hd__LocatedBlockProto *lb = make_located(3);

	(void)state;
	assert_int_equal(located_check(lb, true, NULL), 0);
	lb->n_storagetypes = 2;
	assert_int_equal(located_check(lb, true, NULL), -EPROTO);
	assert_int_equal(located_check(lb, false, NULL), 0);
	lb->n_storagetypes = 3;
	pb_free(lb);
	lb = make_located(0);
	assert_int_equal(located_check(lb, true, NULL), -ENOSPC);
	pb_free(lb);
}

static void a_name_that_is_not_in_the_pipeline_is_the_first_nodes_word(void **state)
{
	static const struct {
		const char *link;
		int bad;
		bool known;
	} rows[] = {{NULL, 0, true},         {"", 0, true},           {"10.0.0.0:7", 0, true},
		    {"10.0.0.2:7", 2, true}, {"1.2.3.4:5", 0, false}, {"10.0.0.2", 0, false}};
	Hd__DatanodeIDProto id[3];
	Hd__DatanodeInfoProto info[3], *locs[3];
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct err err = ERR_INIT;
	char ip[3][16];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		hd__datanode_idproto__init(&id[i]);
		hd__datanode_info_proto__init(&info[i]);
		snprintf(ip[i], sizeof(ip[i]), "10.0.0.%u", i);
		id[i].ipaddr = ip[i];
		id[i].xferport = 7;
		info[i].id = &id[i];
		locs[i] = &info[i];
	}
	lb.n_locs = 3;
	lb.locs = locs;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		bool known;

		assert_int_equal(dtp_bad_link(&lb, rows[i].link, &known), rows[i].bad);
		assert_int_equal(known, rows[i].known);
	}
	err_set(&err, -EIO, "it refuses");
	dtp_stranger("10.0.0.0:7", "1.2.3.4:5\n", &err);
	assert_string_equal(
		err.text,
		"data node 10.0.0.0:7 blames \"1.2.3.4:5\\x0a\", which is not in its pipeline: it refuses");
}

static void a_cause_is_cut_behind_a_word(void **state)
{
	static const char cause[] = "cannot connect to 127.0.0.1:15641: Connection refused";
	char text[200], why[sizeof(cause)], list[40] = "two:";
	size_t len;

	(void)state;
	snprintf(text, sizeof(text), NODE_TOLD ": %s; is it up? see dfs admin report", cause);
	node_why(why, sizeof(why), text);
	assert_string_equal(why, cause);
	node_why(why, sizeof(why) - 1, text);
	assert_string_equal(why, "cannot connect to 127.0.0.1:15641: Connection...");
	node_why(why, 30, text);
	assert_string_equal(why, "cannot connect to...");
	node_why(why, 10, "a_word_that_is_long");
	assert_string_equal(why, "a_word...");
	len = node_list(list, sizeof(list), strlen(list), " ", "unit 1 (it is down)");
	len = node_list(list, sizeof(list), len, ", ", "unit 2 (it is down)");
	len = node_list(list, sizeof(list), len, ", ", "unit 3 (it is down)");
	assert_string_equal(list, "two: unit 1 (it is down)...");
	assert_int_equal(len, strlen(list));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_note_holds_until_it_expires),
		cmocka_unit_test(a_full_table_forgets_what_expires_first),
		cmocka_unit_test(a_copy_is_whole_and_forgets_by_id),
		cmocka_unit_test(a_node_leaves_the_pipeline_with_its_storage),
		cmocka_unit_test(a_node_joins_the_pipeline_with_its_storage),
		cmocka_unit_test(a_cause_is_cut_behind_a_word),
		cmocka_unit_test(a_name_that_is_not_in_the_pipeline_is_the_first_nodes_word),
		cmocka_unit_test(a_block_for_writing_needs_a_storage_for_each_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
