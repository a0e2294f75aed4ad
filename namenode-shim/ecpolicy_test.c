/* SPDX-License-Identifier: Apache-2.0 */
/* Policies have the state that was given to them, also after a restart; a file keeps the policy it was made
 * with; the nearest directory decides, and an older record still decodes. */
#include "namenode-shim/ecpolicy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "namenode-shim/db.h"
#include "namenode-shim/test_db.h"

static const struct ec_rules rules = {"RS-6-3-1024k", EC_CELL_MAX_ADD, true, 1};
static const struct ec_rules next_run = {"RS-6-3-1024k", EC_CELL_MAX_ADD, true, 2};
static const struct ec_rules no_default = {"", EC_CELL_MAX_ADD, false, 3};

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
	const struct ns_create c = {.path = path, .client = "c", .perm = 0644, .repl = 3,
				    .block_size = 4 << 20, .create = true, .create_parent = true,
				    .ec = ec};
	struct inode *f = NULL;
	struct walk w;

	assert_int_equal(ns_walk_create(n, &c, &w), 0);
	assert_int_equal(ns_create(n, &c, &w, &f), 0);
	return f;
}

static const struct ec_policy *policy_at(struct ns *n, const char *path)
{
	const struct ec_policy *p;
	struct walk w;

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
	struct walk w;
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

/* Bytes of all units; the last group of an open file counts as a full one. */
static void space_is_that_of_all_units(void **state)
{
	struct inode_block b[2] = {{{-16, 1, 3 << 20}, true}, {{-32, 2, 0}, false}};
	struct inode f = {.type = INODE_FILE, .repl = 1, .block_size = 2 << 20, .client = "", .blocks = b,
			  .nblocks = 1, .ec = ec_policy_by_id(EC_ID_RS_3_2)};

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
