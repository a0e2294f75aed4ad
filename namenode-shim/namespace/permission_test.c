/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: of owner, group and others exactly one class of bits counts for a caller, and all
 * bits of what is asked for must be in it; each directory on the way wants the execute bit; what a
 * sticky directory holds is deleted by the owner of either; names and lengths have their rules. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "namenode-shim/test_db.h"

/* carol is in staff and users (test_db.h), bob and alice in no group that a test names. */
static void make(struct test_db *d, const char *path, const char *owner, const char *group,
		 uint16_t perm)
{
	assert_int_equal(ns_mkdirs(test_begin(d, "root"), path, perm, NULL, true), 0);
	assert_int_equal(ns_set_owner(&d->ns, path, owner, group), 0);
	assert_int_equal(ns_set_perm(&d->ns, path, perm), 0);
	assert_int_equal(test_commit(d), 0);
}

static int try(struct test_db *d, const char *user, const char *path, unsigned int access)
{
	struct ns *n = test_begin(d, user);
	struct ns_path w;
	int rc = ns_find(n, path, &w);

	rc = rc ? rc : ns_check(n, w.last, access, path);
	txn_write_abort(&d->t);
	return rc;
}

static void one_class_of_bits_counts(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, "/a", "alice", "staff",
	     0057); /* the less one has to do with it the more one may */
	assert_int_equal(try(&d, "alice", "/a", ACCESS_R), -EACCES);
	assert_int_equal(try(&d, "carol", "/a", ACCESS_R), 0);
	assert_int_equal(try(&d, "carol", "/a", ACCESS_R | ACCESS_X), 0);
	assert_int_equal(try(&d, "carol", "/a", ACCESS_W), -EACCES);
	assert_int_equal(try(&d, "carol", "/a", ACCESS_R | ACCESS_W), -EACCES);
	assert_int_equal(try(&d, "bob", "/a", ACCESS_R | ACCESS_W | ACCESS_X), 0);
	make(&d, "/b", "alice", "staff", 0604);
	assert_int_equal(try(&d, "alice", "/b", ACCESS_R | ACCESS_W), 0);
	assert_int_equal(try(&d, "alice", "/b", ACCESS_R | ACCESS_X), -EACCES);
	assert_int_equal(try(&d, "carol", "/b", ACCESS_R), -EACCES);
	assert_int_equal(try(&d, "bob", "/b", ACCESS_R), 0);
	assert_int_equal(try(&d, "bob", "/b", ACCESS_R | ACCESS_W), -EACCES); /* one of two */
	assert_int_equal(try(&d, "root", "/b", ACCESS_R | ACCESS_W | ACCESS_X), 0);
	test_db_fini(&d);
}

static void each_directory_on_the_way_wants_the_execute_bit(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, "/a", "alice", "staff", 0755);
	make(&d, "/a/b", "alice", "staff", 0755);
	make(&d, "/a/b/c", "alice", "staff", 0777);
	assert_int_equal(try(&d, "bob", "/a/b/c", ACCESS_R), 0);
	make(&d, "/a", "alice", "staff", 0766);
	assert_int_equal(try(&d, "bob", "/a/b/c", ACCESS_R), -EACCES);
	assert_int_equal(try(&d, "alice", "/a/b/c", ACCESS_R), 0);
	test_db_fini(&d);
}

static int try_delete(struct test_db *d, const char *user, const char *path)
{
	bool done = false;
	int rc = ns_delete(test_begin(d, user), path, true, &done);

	assert_int_equal(test_commit(d), 0);
	assert_int_equal(done, rc == 0);
	return rc;
}

static void a_sticky_directory_keeps_the_files_of_others(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, "/s", "alice", "staff", 01777);
	make(&d, "/s/1", "bob", "users", 0777);
	make(&d, "/s/2", "bob", "users", 0777);
	make(&d, "/s/3", "bob", "users", 0777);
	assert_int_equal(try_delete(&d, "carol", "/s/1"), -EACCES);
	assert_int_equal(try_delete(&d, "bob", "/s/1"), 0);   /* its owner */
	assert_int_equal(try_delete(&d, "alice", "/s/2"), 0); /* the directory's */
	make(&d, "/s", "alice", "staff", 0777);
	assert_int_equal(try_delete(&d, "carol", "/s/3"), 0); /* no longer sticky */
	test_db_fini(&d);
}

static void only_the_owner_changes_permissions(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	make(&d, "/a", "alice", "staff", 0777);
	assert_int_equal(ns_set_perm(test_begin(&d, "bob"), "/a", 0700), -EACCES);
	txn_write_abort(&d.t);
	assert_int_equal(ns_set_perm(test_begin(&d, "alice"), "/a", 0700), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void names_have_rules(void **state)
{
	static const char *const bad[] = {"",    "a",     "/a/..", "/../a",   "/./a",   "/a:b",
					  "//a", "/a//b", "/\xff", "/a/\xc3", "/a/../b"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(ns_valid_name(bad[i]));
	assert_true(ns_valid_name("/"));
	assert_true(ns_valid_name("/a/..b/...c/.d"));
	assert_true(ns_valid_name("/\xc3\xa4"));
}

static int length_of(struct test_db *d, size_t names, size_t bytes)
{
	static char path[4 * INODE_PATH_MAX];
	char *p = path;
	int rc;

	for (size_t i = 0; i < names; i++) {
		*p++ = '/';
		memset(p, 'x', bytes);
		p += bytes;
	}
	*p = 0;
	rc = ns_check_length(test_begin(d, "root"), "mkdir", path);
	txn_write_abort(&d->t);
	return rc;
}

static void paths_have_limits(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	assert_int_equal(length_of(&d, INODE_DEPTH_MAX, 1), 0);
	assert_true(length_of(&d, INODE_DEPTH_MAX + 1, 1) < 0);
	assert_int_equal(length_of(&d, INODE_PATH_MAX / 1000, 999), 0);
	assert_int_equal(length_of(&d, 1, INODE_PATH_MAX - 1), 0);
	assert_true(length_of(&d, 1, INODE_PATH_MAX) < 0);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_class_of_bits_counts),
		cmocka_unit_test(each_directory_on_the_way_wants_the_execute_bit),
		cmocka_unit_test(a_sticky_directory_keeps_the_files_of_others),
		cmocka_unit_test(only_the_owner_changes_permissions),
		cmocka_unit_test(names_have_rules),
		cmocka_unit_test(paths_have_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
