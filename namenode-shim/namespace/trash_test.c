/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a trash loses its checkpoints when they are old enough and nothing else, and its
 * Current becomes one, as HDFS's emptier has it. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "namenode-shim/namespace/trash.h"

#include "namenode-shim/test_db.h"

#define ROOT "/user/alice/.Trash"
#define NOW_MS 1700000000000ull /* 14 November 2023, 22:13:20 UTC */
#define HOUR_MS 3600000ull

static void make(struct test_db *d, const char *path)
{
	assert_int_equal(ns_mkdirs(test_begin(d, "root"), path, 0755, NULL, NS_MKDIRS_PARENTS), 0);
	assert_int_equal(test_commit(d), 0);
}

static void empty(struct test_db *d, uint64_t now_ms, bool clean)
{
	const struct trash_rules r = {.keep_ms = HOUR_MS, .every_ms = HOUR_MS, .clean = clean};
	struct ns *n = test_begin(d, "root");

	n->now_ms = now_ms;
	assert_int_equal(trash_empty(n, ROOT, &r), 0);
	assert_null(n->x->cls);
	assert_int_equal(test_commit(d), 0);
}

static bool is_there(struct test_db *d, const char *name)
{
	struct ns_path w;

	assert_int_equal(ns_resolve(test_begin(d, "root"), name, &w), 0);
	txn_write_abort(&d->t);
	return w.last;
}

static void names_of_checkpoints_are_times(void **state)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} good[] = {{"231114221320", NOW_MS},          {"231114221320-1", NOW_MS},
		    {"231114221320-12", NOW_MS},       {"2311142213", NOW_MS - 20000},
		    {"991231235959", 946684799000ull}, {"431114221320", 2331152000000ull}},
	  bad[] = {{"Current", 0},      {"", 0},
		   {"23111422132", 0},  {"2311142213200", 0},
		   {"231314221320", 0}, {"231100221320", 0},
		   {"231114241320", 0}, {"231114226020", 0},
		   {"231114221360", 0}, {"x231114221320", 0},
		   {"-231114221320", 0}};
	uint64_t ms;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(trash_checkpoint_ms(good[i].name, NOW_MS, &ms));
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(trash_checkpoint_ms(bad[i].name, NOW_MS, &ms));
}

static void current_becomes_a_checkpoint_that_expires(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, ROOT "/Current/user/alice/f");
	make(&d, ROOT "/mine");
	empty(&d, NOW_MS, false);
	assert_false(is_there(&d, ROOT "/Current"));
	assert_true(is_there(&d, ROOT "/231114221320/user/alice/f"));
	empty(&d, NOW_MS + HOUR_MS, false); /* not older than an hour yet */
	assert_true(is_there(&d, ROOT "/231114221320"));
	make(&d, ROOT "/Current/g");
	empty(&d, NOW_MS + HOUR_MS + 1000, false);
	assert_false(is_there(&d, ROOT "/231114221320"));
	assert_true(is_there(&d, ROOT "/231114231321/g"));
	assert_true(is_there(&d, ROOT "/mine"));
	test_db_fini(&d);
}

static void two_checkpoints_of_a_second_have_two_names(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, ROOT "/231114221320/old");
	make(&d, ROOT "/231114221320-1/old");
	make(&d, ROOT "/Current/new");
	empty(&d, NOW_MS, false);
	assert_true(is_there(&d, ROOT "/231114221320-2/new"));
	assert_true(is_there(&d, ROOT "/231114221320/old"));
	test_db_fini(&d);
}

static void what_is_no_checkpoint_stays_unless_it_is_to_go(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, ROOT "/!first/f");
	make(&d, ROOT "/junk/f");
	make(&d, ROOT "/20");
	make(&d, ROOT "/230101000000/f");
	empty(&d, NOW_MS, false);
	assert_true(is_there(&d, ROOT "/!first/f"));
	assert_true(is_there(&d, ROOT "/junk/f"));
	assert_true(is_there(&d, ROOT "/20"));
	assert_false(is_there(&d, ROOT "/230101000000"));
	make(&d, ROOT "/Current/f");
	empty(&d, NOW_MS, true);
	assert_false(is_there(&d, ROOT "/!first"));
	assert_false(is_there(&d, ROOT "/junk"));
	assert_false(is_there(&d, ROOT "/20"));
	assert_true(is_there(&d, ROOT "/231114221320/f"));
	test_db_fini(&d);
}

static void a_protected_checkpoint_holds_up_no_other(void **state)
{
	char *protected[] = {ROOT "/230101000000", NULL};
	const struct ns_limits limits = {
		.max_component = INODE_NAME_MAX, .max_dir_items = 100, .protected_dirs = protected};
	const struct trash_rules r = {.keep_ms = HOUR_MS};
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	make(&d, ROOT "/230101000000/f");
	make(&d, ROOT "/230102000000/f");
	make(&d, ROOT "/Current/f");
	n = test_begin(&d, "root");
	n->now_ms = NOW_MS;
	n->limits = &limits;
	assert_int_equal(trash_empty(n, ROOT, &r), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_true(is_there(&d, ROOT "/230101000000/f"));
	assert_false(is_there(&d, ROOT "/230102000000"));
	assert_true(is_there(&d, ROOT "/231114221320/f"));
	/* One that is gone meanwhile, and one that is a file, are nothing. */
	assert_int_equal(trash_empty(test_begin(&d, "root"), "/none/.Trash", &r), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static int in_utc(void **state)
{
	(void)state;
	if (setenv("TZ", "UTC", 1))
		return -1;
	tzset();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_checkpoints_are_times),
		cmocka_unit_test(current_becomes_a_checkpoint_that_expires),
		cmocka_unit_test(two_checkpoints_of_a_second_have_two_names),
		cmocka_unit_test(what_is_no_checkpoint_stays_unless_it_is_to_go),
		cmocka_unit_test(a_protected_checkpoint_holds_up_no_other),
	};

	return cmocka_run_group_tests(tests, in_utc, NULL);
}
