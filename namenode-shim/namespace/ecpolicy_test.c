/* SPDX-License-Identifier: Apache-2.0 */
/* Policies have the state that was given to them, also after a restart; a file keeps the policy it
 * was made with; the nearest directory decides, and an older record still decodes. */
#include "namenode-shim/namespace/ecpolicy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/erasure/geometry.h"
#include "namenode-shim/db/db.h"

#include "namenode-shim/test_db.h"

static const struct ec_rules rules = {
	.dflt = "RS-6-3-1024k", .cell_max = EC_CELL_MAX_ADD, .may_add = true, .run = 1};
static const struct ec_rules next_run = {
	.dflt = "RS-6-3-1024k", .cell_max = EC_CELL_MAX_ADD, .may_add = true, .run = 2};
static const struct ec_rules no_default = {
	.dflt = "", .cell_max = EC_CELL_MAX_ADD, .may_add = false, .run = 3};

static enum ecpol_state state_of(struct ns *n, const struct ec_rules *r, const char *name)
{
	struct ecpol e;

	assert_int_equal(ecpol_find(n->t, r, name, &e), 0);
	return e.state;
}

static void states_are_kept_and_the_default_comes_back(void **state)
{
	struct test_db d;
	struct ns *n;
	const char *text;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	assert_int_equal(state_of(n, &rules, "RS-6-3-1024k"), ECPOL_ENABLED);
	assert_int_equal(state_of(n, &no_default, "RS-6-3-1024k"), ECPOL_DISABLED);
	assert_int_equal(ecpol_set_state(n, &rules, "XOR-2-1-1024k", ECPOL_ENABLED), 0);
	assert_int_equal(ecpol_set_state(n, &rules, "RS-6-3-1024k", ECPOL_DISABLED), 0);
	assert_int_equal(ecpol_enabled_text(n->t, &rules, n->a, &text), 0);
	assert_string_equal(text, "XOR-2-1-1024k");
	assert_int_equal(test_commit(&d), 0);
	test_db_reopen(&d);
	n = test_begin(&d, "root");
	assert_int_equal(ecpol_enabled_text(n->t, &next_run, n->a, &text), 0);
	assert_string_equal(text, "RS-6-3-1024k, XOR-2-1-1024k");
	assert_int_equal(state_of(n, &no_default, "RS-6-3-1024k"), ECPOL_DISABLED);
	assert_true(ecpol_set_state(n, &rules, "nosuch", ECPOL_ENABLED) < 0);
	assert_string_equal(d.x.text, "The policy name nosuch does not exist");
	assert_true(ecpol_set_state(n, &rules, "XOR-2-1-1024k", ECPOL_REMOVED) < 0);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static int add(struct ns *n, const struct ec_rules *r, const char *codec, uint8_t k, uint8_t m,
	       struct ec_policy *ret, struct err *err)
{
	const struct ec_policy parts = {.k = k, .m = m, .cell = 64 << 10};

	return ecpol_add(n, r, codec, &parts, ret, err);
}

static void administrators_add_policies_until_the_ids_are_used(void **state)
{
	struct err err = ERR_INIT;
	struct ec_policy p, again;
	struct test_db d;
	unsigned count = 0;
	struct ns *n;
	int rc = 0;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	assert_int_equal(add(n, &no_default, "rs", 4, 2, &p, &err), -EINVAL);
	assert_int_equal(add(n, &rules, "hh", 4, 2, &p, &err), -EINVAL);
	assert_string_equal(err.text, "Codec name hh is not supported");
	assert_int_equal(add(n, &rules, "rs", 4, 2, &p, &err), 0);
	assert_int_equal(p.id, EC_ID_USER_FIRST);
	assert_int_equal(add(n, &rules, "rs", 4, 2, &again, &err), 0);
	assert_int_equal(again.id, p.id);
	assert_int_equal(ecpol_set_state(n, &rules, p.name, ECPOL_ENABLED), 0);
	assert_int_equal(ecpol_set_state(n, &rules, p.name, ECPOL_REMOVED), 0);
	assert_int_equal(ecpol_set_state(n, &rules, p.name, ECPOL_DISABLED), 0);
	assert_int_equal(state_of(n, &rules, p.name), ECPOL_REMOVED);
	for (uint8_t k = 1; k < 16 && !rc; k++)
		for (uint8_t m = 1; k + m <= 16 && !rc; m++, count += !rc)
			rc = add(n, &rules, "rs", k, m, &p, &err);
	assert_int_equal(rc, -EINVAL);
	assert_int_equal(count, 64);
	assert_non_null(strstr(err.text, "which is 127"));
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static struct inode *create(struct ns *n, const char *path, const struct ec_policy *ec)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 3,
				    .block_size = 4 << 20,
				    .create = true,
				    .create_parent = true,
				    .ec = ec};
	struct inode *f = NULL;
	struct ns_path w;

	assert_int_equal(ns_resolve_create(n, &c, &w), 0);
	assert_int_equal(ns_create(n, &c, &w, &f), 0);
	return f;
}

static const struct ec_policy *policy_at(struct ns *n, const char *path)
{
	const struct ec_policy *p;
	struct ns_path w;

	assert_int_equal(ns_find(n, path, &w), 0);
	assert_int_equal(ecdir_of(n->t, w.last, n->a, &p), 0);
	return p;
}

static void the_nearest_directory_decides_and_files_keep_theirs(void **state)
{
	struct err err = ERR_INIT;
	char name[EC_NAME_MAX];
	struct ec_policy mine;
	struct inode *f, *got;
	struct test_db d;
	struct ns_path w;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	assert_int_equal(ns_mkdirs(n, "/a/b/c", 0755, NULL, true), 0);
	assert_null(policy_at(n, "/a/b"));
	assert_int_equal(add(n, &rules, "rs", 4, 2, &mine, &err), 0);
	assert_true(ecdir_set(n, &rules, "/a", mine.name) < 0); /* not enabled */
	assert_int_equal(ecpol_set_state(n, &rules, mine.name, ECPOL_ENABLED), 0);
	assert_int_equal(ecdir_set(n, &rules, "/a", mine.name), 0);
	assert_int_equal(ecdir_set(n, &rules, "/a/b", NULL), 0);
	assert_int_equal(ecdir_set(n, &rules, "/a/b/c", "Replication"), 0);
	assert_string_equal(policy_at(n, "/a")->name, "RS-4-2-64k");
	assert_string_equal(policy_at(n, "/a/b")->name, "RS-6-3-1024k");
	assert_null(policy_at(n, "/a/b/c"));
	assert_int_equal(ns_find(n, "/a/b/c", &w), 0);
	assert_int_equal(ecdir_name(n->t, w.last, n->a, name), 0);
	assert_string_equal(name, "replication");
	f = create(n, "/a/f", policy_at(n, "/a"));
	assert_int_equal(f->repl, 1);
	assert_int_equal(inode_block_max(f), 4 * (4 << 20));
	assert_true(ecdir_set(n, &rules, "/a/f", NULL) < 0);
	assert_int_equal(ecdir_unset(n, "/a"), 0);
	assert_true(ecdir_unset(n, "/a") < 0);
	assert_int_equal(ecpol_set_state(n, &rules, mine.name, ECPOL_REMOVED), 0);
	assert_int_equal(test_commit(&d), 0);
	n = test_begin(&d, "root");
	assert_null(policy_at(n, "/a"));
	assert_string_equal(policy_at(n, "/a/f")->name, "RS-4-2-64k");
	assert_int_equal(ns_find(n, "/a/f", &w), 0);
	got = w.last;
	assert_true(ec_policy_same(got->ec, &mine));
	assert_int_equal(got->ec->id, mine.id);
	assert_string_equal(got->client, "c");
	got = create(n, "/plain", NULL);
	assert_int_equal(got->repl, 3);
	assert_null(policy_at(n, "/plain"));
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* A disk that says so must not stop the NameNode. Each circle of /a/b/c/d/e, asked about from on it
 * and from below it. */
static void a_directory_that_is_below_itself_is_refused(void **state)
{
	const struct ec_policy *p;
	char name[EC_NAME_MAX];
	struct test_db d;
	struct ns_path w;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	for (unsigned from = 1; from <= 5; from++)
		for (unsigned to = from; to <= 5; to++) {
			n = test_begin(&d, "root");
			assert_int_equal(ns_mkdirs(n, "/a/b/c/d/e", 0755, NULL, true), 0);
			assert_int_equal(ns_mkdirs(n, "/q", 0755, NULL, true), 0);
			assert_int_equal(ecdir_set(n, &rules, "/q", NULL), 0); /* or nobody looks */
			assert_int_equal(ns_find(n, "/a/b/c/d/e", &w), 0);
			assert_int_equal(ecdir_of(n->t, w.last, n->a, &p), 0);
			w.chain[from]->parent = w.chain[to]->id;
			assert_int_equal(inode_put(n->t, w.chain[from]), 0);
			for (unsigned i = from; i <= 5; i++) {
				assert_int_equal(ecdir_of(n->t, w.chain[i], n->a, &p), -EBADMSG);
				assert_int_equal(ecdir_name(n->t, w.chain[i], n->a, name),
						 -EBADMSG);
			}
			assert_int_equal(ecdir_set(n, &rules, "/a/b/c/d/e", NULL), 0);
			for (unsigned i = from; i <= 5; i++)
				assert_int_equal(ecdir_of(n->t, w.chain[i], n->a, &p),
						 i == 5 || to == 5 ? 0 : -EBADMSG);
			txn_write_abort(&d.t);
		}
	test_db_fini(&d);
}

/* As they would be after a disk returned something else; what else is wrong in them ecpolicy.c or
 * inode.c must see, not an assert. */
static void a_damaged_policy_is_refused(void **state)
{
	/* id, state, codec, k, m, cell, run */
	static const uint8_t good[] = {70, 2, 1, 4, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
	static const struct {
		uint8_t key, at, to;
	} damage[] = {{71, 0, 70}, {70, 0, 71}, {70, 0, 255}, {70, 1, 0},  {70, 1, 4},
		      {70, 2, 0},  {70, 2, 9},  {70, 3, 0},   {70, 3, 15}, {70, 4, 0},
		      {70, 8, 1},  {1, 0, 1} /* other parts than HDFS's own of that id */};
	struct ecpol e;
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	for (size_t i = 0; i <= sizeof(damage) / sizeof(damage[0]); i++) {
		const bool whole = i == sizeof(damage) / sizeof(damage[0]);
		const uint8_t key = whole ? 70 : damage[i].key;
		uint8_t row[sizeof(good)];

		memcpy(row, good, sizeof(row));
		if (!whole)
			row[damage[i].at] = damage[i].to;
		n = test_begin(&d, "root");
		assert_int_equal(txn_put(n->t, d.db->ecpol, &key, 1, row, sizeof(row)), 0);
		assert_int_equal(ecpol_find(n->t, &rules, "RS-4-2-64k", &e), whole ? 0 : -EBADMSG);
		txn_write_abort(&d.t);
	}
	test_db_fini(&d);
}

/* A file with @n's blocks and policy goes into the database as it is. */
static int written_and_read(struct ns *n, struct inode *f)
{
	struct inode *got;

	assert_int_equal(inode_put(n->t, f), 0);
	return inode_get(n->t, f->id, n->a, &got);
}

static void a_file_whose_blocks_do_not_fit_its_policy_is_refused(void **state)
{
	struct ec_policy mine = *ec_policy_by_id(EC_ID_RS_3_2);
	const struct ec_policy *rs = ec_policy_by_id(EC_ID_RS_3_2);
	const struct {
		int64_t id;
		uint64_t len;
		const struct ec_policy *ec;
		int rc;
	} cases[] = {{-1024, 7, rs, 0},          {1024, 7, NULL, 0},
		     {1024, 7, rs, -EBADMSG},    {-1024, 7, NULL, -EBADMSG},
		     {-1023, 7, rs, -EBADMSG},   {-1024, EC_LENGTH_MAX + 1, rs, -EBADMSG},
		     {-1024, 7, &mine, -EBADMSG}};
	struct test_db d;

	(void)state;
	mine.id = EC_ID_NONE; /* not one that a NameNode gives */
	test_db_init(&d);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ns *n = test_begin(&d, "root");
		struct inode_block b = {{cases[i].id, 1, cases[i].len}, true};
		struct inode f = {.id = 20000,
				  .type = INODE_FILE,
				  .parent = INODE_ROOT,
				  .name = "f",
				  .owner = "o",
				  .group = "g",
				  .client = "",
				  .client_host = "",
				  .repl = 1,
				  .block_size = 1 << 20,
				  .blocks = &b,
				  .nblocks = 1,
				  .ec = cases[i].ec};

		assert_int_equal(written_and_read(n, &f), cases[i].rc);
		txn_write_abort(&d.t);
	}
	test_db_fini(&d);
}

/* Bytes of all units; the last group of an open file counts as a full one. */
static void space_is_that_of_all_units(void **state)
{
	struct inode_block b[2] = {{{-16, 1, 3 << 20}, true}, {{-32, 2, 0}, false}};
	struct inode f = {.type = INODE_FILE,
			  .repl = 1,
			  .block_size = 2 << 20,
			  .client = "",
			  .blocks = b,
			  .nblocks = 1,
			  .ec = ec_policy_by_id(EC_ID_RS_3_2)};

	(void)state;
	assert_int_equal(inode_space(&f), 5 << 20);
	f.nblocks = 2;
	f.client = "c";
	assert_int_equal(inode_space(&f), (5 << 20) + 5 * (2 << 20));
	b[1].committed = true;
	b[1].b.len = 7;
	assert_int_equal(inode_space(&f), (5 << 20) + 7 * 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_are_kept_and_the_default_comes_back),
		cmocka_unit_test(administrators_add_policies_until_the_ids_are_used),
		cmocka_unit_test(the_nearest_directory_decides_and_files_keep_theirs),
		cmocka_unit_test(space_is_that_of_all_units),
		cmocka_unit_test(a_directory_that_is_below_itself_is_refused),
		cmocka_unit_test(a_damaged_policy_is_refused),
		cmocka_unit_test(a_file_whose_blocks_do_not_fit_its_policy_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
