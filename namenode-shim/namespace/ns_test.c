/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold, by example: permissions, limits and protected directories are those of HDFS, a
 * failed operation changes nothing, names are listed in HDFS's order and reserved paths lead to the
 * same inodes. Random operations beside a model: ns_model_test.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/test_db.h"

static void do_mkdir(struct test_db *d, const char *user, const char *path, uint16_t perm)
{
	assert_int_equal(ns_mkdirs(test_begin(d, user), path, perm, NULL, true), 0);
	assert_int_equal(test_commit(d), 0);
}

static int try_create(struct test_db *d, const char *user, const char *path)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 1,
				    .block_size = 1 << 20,
				    .create = true,
				    .overwrite = true,
				    .create_parent = true};
	struct inode *f;
	struct ns_path w;
	int rc = ns_resolve_create(test_begin(d, user), &c, &w);

	rc = rc ? rc : ns_create(&d->ns, &c, &w, &f);

	assert_int_equal(test_commit(d), 0);
	return rc;
}

static void a_file_is_made_where_its_directory_allows_it(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/open", 0777);
	do_mkdir(&d, "root", "/shut", 0700);
	assert_int_equal(try_create(&d, "alice", "/x"), -EACCES);
	assert_string_equal(d.x.text, "Permission denied: user=alice, access=WRITE, "
				      "inode=\"/\":root:supergroup:drwxr-xr-x");
	assert_int_equal(try_create(&d, "alice", "/shut/x"), -EACCES);
	assert_int_equal(try_create(&d, "alice", "/open/x"), 0);
	assert_int_equal(try_create(&d, "bob", "/open/x"), -EACCES); /* 0644 of alice */
	test_db_fini(&d);
}

static void in_a_sticky_directory_a_file_belongs_to_its_owner(void **state)
{
	struct test_db d;
	bool done;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/sticky", 01777);
	assert_int_equal(try_create(&d, "alice", "/sticky/x"), 0);
	assert_int_equal(ns_delete(test_begin(&d, "bob"), "/sticky/x", false, &done), -EACCES);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(try_create(&d, "bob", "/sticky/y"), 0);
	assert_int_equal(ns_rename2(test_begin(&d, "bob"), "/sticky/y", "/sticky/x", true),
			 -EACCES);
	assert_string_equal(
		d.x.text,
		"Permission denied by sticky bit: user=bob, path=\"/sticky/x\":alice:supergroup:-rw-r--r--, "
		"parent=\"/sticky\":root:supergroup:drwxrwxrwt");
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_rename2(test_begin(&d, "alice"), "/sticky/x", "/sticky/y", true),
			 -EACCES);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_rename2(test_begin(&d, "root"), "/sticky/y", "/sticky/x", true),
			 0); /* bob's file now */
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_delete(test_begin(&d, "alice"), "/sticky/x", false, &done), -EACCES);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(try_create(&d, "bob", "/sticky/y"), 0);
	assert_int_equal(ns_rename2(test_begin(&d, "bob"), "/sticky/y", "/sticky/x", true), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_delete(test_begin(&d, "bob"), "/sticky/x", false, &done), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_true(done);
	test_db_fini(&d);
}

static void mode_and_owner_are_changed_by_whom_they_belong_to(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/open", 0777);
	assert_int_equal(try_create(&d, "alice", "/open/x"), 0);
	assert_int_equal(ns_set_perm(test_begin(&d, "bob"), "/open/x", 0777), -EACCES);
	txn_write_abort(&d.t);
	assert_int_equal(ns_set_owner(test_begin(&d, "alice"), "/open/x", "bob", NULL), -EACCES);
	txn_write_abort(&d.t);
	assert_int_equal(ns_set_owner(test_begin(&d, "root"), "/open/x", "bob", "staff"), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_set_perm(test_begin(&d, "bob"), "/open/x", 0600), 0);
	assert_int_equal(test_commit(&d), 0);
	/* Groups of users whom the configuration lists. */
	assert_int_equal(ns_set_owner(test_begin(&d, "root"), "/open/x", "carol", "users"), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_set_owner(test_begin(&d, "carol"), "/open/x", NULL, "staff"), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_set_owner(test_begin(&d, "carol"), "/open/x", NULL, "wheel"), -EACCES);
	txn_write_abort(&d.t);
	assert_int_equal(ns_set_owner(test_begin(&d, "root"), "/open/x", "dora", "dora"), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_set_owner(test_begin(&d, "dora"), "/open/x", NULL, "users"), -EACCES);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static void a_foreign_tree_is_not_deleted_below_a_shut_directory(void **state)
{
	struct test_db d;
	bool done;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/t", 0777);
	do_mkdir(&d, "alice", "/t/a", 0777);
	do_mkdir(&d, "alice", "/t/a/b", 0755);
	assert_int_equal(try_create(&d, "alice", "/t/a/b/f"), 0);
	assert_int_equal(ns_delete(test_begin(&d, "bob"), "/t/a", true, &done), -EACCES);
	assert_int_equal(test_commit(&d), 0);
	test_begin(&d, "root");
	struct ns_path w;
	assert_int_equal(ns_find(&d.ns, "/t/a/b/f", &w), 0);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static void nobody_deletes_what_a_sticky_bit_below_the_top_keeps(void **state)
{
	struct test_db d;
	struct ns_path w;
	bool done;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/t", 0777);
	do_mkdir(&d, "bob", "/t/a/b", 0777);
	do_mkdir(&d, "carol", "/t/a/b/tmp", 01777);
	assert_int_equal(try_create(&d, "alice", "/t/a/b/tmp/f"), 0);
	assert_int_equal(ns_delete(test_begin(&d, "bob"), "/t/a/b/tmp", true, &done), -EACCES);
	assert_string_equal(d.x.text, "Permission denied by sticky bit: user=bob, "
				      "path=\"/t/a/b/tmp/f\":alice:supergroup:-rw-r--r--, "
				      "parent=\"/t/a/b/tmp\":carol:supergroup:drwxrwxrwt");
	txn_write_abort(&d.t);
	assert_int_equal(ns_delete(test_begin(&d, "bob"), "/t/a", true, &done), -EACCES);
	txn_write_abort(&d.t);
	assert_int_equal(ns_find(test_begin(&d, "root"), "/t/a/b/tmp/f", &w), 0);
	txn_write_abort(&d.t);
	/* The owner of a file, and of the sticky directory, may. */
	assert_int_equal(ns_delete(test_begin(&d, "alice"), "/t/a/b/tmp", true, &done), 0);
	txn_write_abort(&d.t);
	assert_int_equal(ns_delete(test_begin(&d, "carol"), "/t/a/b/tmp", true, &done), 0);
	txn_write_abort(&d.t);
	assert_int_equal(ns_delete(test_begin(&d, "root"), "/t/a", true, &done), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void bad_paths_are_refused(void **state)
{
	const char *bad[] = {"", "a", "/a//b", "/a/./b", "/../a", "/a:b"};
	char name[400] = "/";
	struct test_db d;

	(void)state;
	test_db_init(&d);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(ns_mkdirs(test_begin(&d, "root"), bad[i], 0755, NULL, true),
				 -EINVAL);
		txn_write_abort(&d.t);
	}
	memset(name + 1, 'n', 256);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), name, 0755, NULL, true), -ENAMETOOLONG);
	txn_write_abort(&d.t);
	name[256] = 0;
	do_mkdir(&d, "root", name, 0755);
	do_mkdir(&d, "root", "/trailing/", 0755);
	test_db_fini(&d);
}

static int count_one(void *arg, const char *name, size_t len, uint64_t id)
{
	char *last = arg;

	(void)id;
	assert_true(strncmp(last, name, len) < 0);
	snprintf(last, 16, "%.*s", (int)len, name);
	return 0;
}

/* As a damaged data base may have it. */
static void a_root_that_is_a_link_is_damage(void **state)
{
	struct test_db d;
	struct inode *root;
	struct ns_path w;

	(void)state;
	test_db_init(&d);
	test_begin(&d, "root");
	assert_int_equal(inode_get(&d.t, INODE_ROOT, &d.a, &root), 0);
	root->type = INODE_LINK;
	root->target = "elsewhere";
	assert_int_equal(inode_put(&d.t, root), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_resolve(test_begin(&d, "root"), "/a/b", &w), -EBADMSG);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_resolve(test_begin(&d, "root"), "/", &w), -EBADMSG);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void entries_come_in_order_after_a_name(void **state)
{
	struct test_db d;
	struct ns_path w;
	char path[32], last[16] = "m";

	(void)state;
	test_db_init(&d);
	for (int c = 'z'; c >= 'a'; c--) {
		snprintf(path, sizeof(path), "/dir/%c", c);
		do_mkdir(&d, "root", path, 0755);
	}
	assert_int_equal(ns_find(test_begin(&d, "root"), "/dir", &w), 0);
	assert_int_equal(w.last->children, 26);
	assert_int_equal(dirent_each(&d.t, w.last->id, "m", 1, count_one, last), 0);
	assert_string_equal(last, "z");
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

#define BIG_DIR (2 * NS_SUM_STEP + 1)

/* One step; the tree is changed between two. */
static int sum_step(struct test_db *d, struct ns_summing **s, struct ns_summary *ret)
{
	int rc = ns_summarize(test_begin(d, "root"), "/sum", "", false, s, ret);

	txn_write_abort(&d->t);
	return rc;
}

static void a_summary_goes_in_steps(void **state)
{
	struct ns_summing *s = NULL;
	struct ns_summary sum;
	struct test_db d;
	struct ns *n;
	char path[64];
	int steps = 1;
	bool done;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	for (int i = 0; i < BIG_DIR; i++) {
		snprintf(path, sizeof(path), "/sum/%05d", i);
		assert_int_equal(ns_mkdirs(n, path, 0755, NULL, true), 0);
	}
	assert_int_equal(test_commit(&d), 0);
	while (sum_step(&d, &s, &sum) == NS_MORE)
		steps++;
	ns_summing_free(s);
	assert_int_equal(sum.dirs, BIG_DIR + 1);
	assert_true(steps >= 4); /* every directory is looked at as an entry and as a directory */

	s = NULL;
	assert_int_equal(sum_step(&d, &s, &sum), NS_MORE);
	n = test_begin(&d, "root"); /* the first is known by name, the last is not */
	assert_int_equal(ns_delete(n, "/sum/00000", true, &done), 0);
	snprintf(path, sizeof(path), "/sum/%05d", BIG_DIR - 1);
	assert_int_equal(ns_delete(n, path, true, &done), 0);
	assert_int_equal(test_commit(&d), 0);
	while (sum_step(&d, &s, &sum) == NS_MORE)
		;
	ns_summing_free(s);
	assert_int_equal(sum.dirs, BIG_DIR - 1);
	test_db_fini(&d);
}

static void a_second_format_needs_force(void **state)
{
	struct err err = ERR_INIT;
	const struct db_format f = {NULL, "root", "supergroup", false};
	const struct db_format over = {NULL, "root", "supergroup", true};
	struct test_db d;
	struct ns_path w;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/kept", 0755);
	/* fcntl locks do not exclude their own process, so what is tested is the rule, not the
	 * lock. */
	db_close(d.db);
	d.db = NULL;
	assert_int_equal(db_format(d.dir, &f, &err), -EEXIST);
	test_db_reopen(&d);
	assert_int_equal(ns_find(test_begin(&d, "root"), "/kept", &w), 0);
	txn_write_abort(&d.t);
	db_close(d.db);
	d.db = NULL;
	assert_int_equal(db_format(d.dir, &over, &err), 0);
	test_db_reopen(&d);
	assert_int_equal(ns_find(test_begin(&d, "root"), "/kept", &w), -ENOENT);
	txn_write_abort(&d.t);
	assert_string_not_equal(d.db->ident.cluster_id, "CID-test");
	test_db_fini(&d);
}

static void a_bad_cluster_id_is_refused_before_a_directory_is_made(void **state)
{
	char long_id[DB_CLUSTER_ID_MAX + 1], dir[64], above[] = "/tmp/nn-test-XXXXXX";
	const char *const bad[] = {"", long_id};
	struct err err = ERR_INIT;

	(void)state;
	memset(long_id, 'x', DB_CLUSTER_ID_MAX);
	long_id[DB_CLUSTER_ID_MAX] = 0;
	assert_non_null(mkdtemp(above));
	snprintf(dir, sizeof(dir), "%s/name", above);
	for (size_t i = 0; i < 2; i++) {
		const struct db_format f = {bad[i], "root", "supergroup", false};

		assert_int_equal(db_format(dir, &f, &err), -EINVAL);
		assert_non_null(strstr(err.text, "cluster id"));
	}
	assert_int_equal(rmdir(above), 0); /* nothing was made in it */
}

static void an_unformatted_directory_says_so(void **state)
{
	struct err err = ERR_INIT;
	struct db *db;

	(void)state;
	assert_int_equal(db_open("/tmp/nn-test-absent", &db, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--format"));
}

/* ---- paths ---- */

static void names_that_may_be_made(void **state)
{
	static const struct {
		const char *path;
		bool ok;
	} cases[] = {{"/", true},     {"/a", true},    {"/a/", true},    {"/a b/\xc3\xbc", true},
		     {"/...", true},  {"", false},     {"a", false},     {"/a//b", false},
		     {"//", false},   {"/.", false},   {"/a/..", false}, {"/../a", false},
		     {"/a:b", false}, {"/a/:", false}, {"/.a/..b", true}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(ns_valid_name(cases[i].path), cases[i].ok);
}

static int find(struct test_db *d, const char *path, struct ns_path *w)
{
	const int rc = ns_resolve(test_begin(d, "root"), path, w);

	txn_write_abort(&d->t);
	return rc;
}

static void reserved_paths_lead_to_the_same_inodes(void **state)
{
	struct test_db d;
	struct ns_path v;
	uint64_t id; /* a walk lives until the next one */
	char path[64];

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/a/b/c", 0755);
	assert_int_equal(find(&d, "/a/b", &v), 0);
	id = v.last->id;
	snprintf(path, sizeof(path), "/.reserved/.inodes/%llu", (unsigned long long)id);
	assert_int_equal(find(&d, path, &v), 0);
	assert_int_equal(v.last->id, id);
	assert_string_equal(v.path, "/a/b");
	snprintf(path, sizeof(path), "/.reserved/.inodes/%llu/c", (unsigned long long)id);
	assert_int_equal(find(&d, path, &v), 0);
	assert_string_equal(v.path, "/a/b/c");
	snprintf(path, sizeof(path), "/.reserved/.inodes/%llu/..", (unsigned long long)id);
	assert_int_equal(find(&d, path, &v), 0);
	assert_string_equal(v.path, "/a");
	assert_int_equal(find(&d, "/.reserved/raw//a/b/", &v), 0);
	assert_int_equal(v.last->id, id);
	assert_int_equal(find(&d, "/.reserved/raw", &v), 0);
	assert_int_equal(v.last->id, INODE_ROOT);
	assert_int_equal(find(&d, "/.reserved", &v), 0);
	assert_true(v.reserved);
	assert_null(v.last);
	assert_int_equal(find(&d, "/.reserved/.inodes/x", &v), -ENOENT);
	assert_int_equal(find(&d, "/.reserved/.inodes/4711", &v), -ENOENT);
	assert_int_equal(find(&d, "no/slash", &v), -EINVAL);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), "/.reserved/x", 0755, NULL, true),
			 -EINVAL);
	assert_int_equal(ns_mkdirs(&d.ns, "/a/.snapshot", 0755, NULL, true), -EINVAL);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void limits_and_protected_directories_hold(void **state)
{
	char *protected[] = {"/keep", "/k/deep", NULL};
	const struct ns_limits limits = {
		.max_component = 4, .max_dir_items = 2, .protected_dirs = protected};
	struct test_db d;
	struct ns *n;
	bool done;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/keep/x", 0755);
	do_mkdir(&d, "root", "/k/deep/x", 0755);
	n = test_begin(&d, "root");
	n->limits = &limits;
	assert_int_equal(ns_delete(n, "/keep", true, &done), -EACCES);
	assert_string_equal(d.x.text, "Cannot delete/rename non-empty protected directory /keep");
	assert_int_equal(ns_delete(n, "/k", true, &done), -EACCES);
	assert_string_equal(d.x.text,
			    "Cannot delete/rename non-empty protected subdirectory /k/deep");
	assert_int_equal(ns_rename(n, "/k", "/keep", &done), -EACCES);
	assert_int_equal(ns_rename2(n, "/keep", "/k/y", false), -EACCES);
	assert_int_equal(ns_delete(n, "/keep/x", true, &done), 0);
	assert_int_equal(ns_delete(n, "/keep", true, &done), 0); /* empty: not protected */
	assert_true(done);
	assert_int_equal(ns_mkdirs(n, "/k/12345", 0755, NULL, true), -ENAMETOOLONG);
	assert_int_equal(ns_mkdirs(n, "/k/2", 0755, NULL, true), 0);
	assert_int_equal(ns_mkdirs(n, "/k/3", 0755, NULL, true), -EDQUOT);
	assert_int_equal(ns_mkdirs(n, "/k/2/a/b", 0755, NULL, true), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void long_names_are_told_whole(void **state)
{
	char path[INODE_NAME_MAX + 8] = "/", deep[2 * INODE_DEPTH_MAX + 4];
	struct test_db d;

	(void)state;
	test_db_init(&d);
	memset(path + 1, 'n', INODE_NAME_MAX + 1);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), path, 0755, NULL, true), -ENAMETOOLONG);
	assert_non_null(strstr(d.x.text, path + 1));
	for (int i = 0; i <= INODE_DEPTH_MAX; i++)
		memcpy(deep + 2 * (size_t)i, "/d", 3);
	assert_int_equal(ns_mkdirs(&d.ns, deep, 0755, NULL, true), -EIO);
	assert_string_equal(d.x.text,
			    "mkdirs: Pathname too long.  Limit 8000 characters, 1000 levels.");
	deep[2 * INODE_DEPTH_MAX] = 0;
	assert_int_equal(ns_mkdirs(&d.ns, deep, 0755, NULL, true), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

/* ---- order ---- */

struct names {
	char text[64];
};

static int append_name(void *arg, const char *name, size_t len, uint64_t id)
{
	struct names *n = arg;
	const size_t at = strlen(n->text);

	(void)id;
	snprintf(n->text + at, sizeof(n->text) - at, "%.*s ", (int)len, name);
	return 0;
}

static void names_beyond_ascii_are_listed_first_as_in_java(void **state)
{
	struct names all = {""}, rest = {""};
	struct test_db d;
	struct ns_path w;

	(void)state;
	test_db_init(&d);
	do_mkdir(&d, "root", "/o/a", 0755);
	do_mkdir(&d, "root", "/o/\xc3\xbc", 0755);
	do_mkdir(&d, "root", "/o/ab", 0755);
	do_mkdir(&d, "root", "/o/Z", 0755);
	do_mkdir(&d, "root", "/o/a\xe6\x97\xa5", 0755);
	test_db_reopen(&d);
	assert_int_equal(ns_resolve(test_begin(&d, "root"), "/o", &w), 0);
	assert_int_equal(dirent_each(&d.t, w.last->id, NULL, 0, append_name, &all), 0);
	assert_string_equal(all.text, "\xc3\xbc Z a a\xe6\x97\xa5 ab ");
	assert_int_equal(dirent_each(&d.t, w.last->id, "\xc3\xbc", 2, append_name, &rest), 0);
	assert_string_equal(rest.text, "Z a a\xe6\x97\xa5 ab ");
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_made_where_its_directory_allows_it),
		cmocka_unit_test(in_a_sticky_directory_a_file_belongs_to_its_owner),
		cmocka_unit_test(mode_and_owner_are_changed_by_whom_they_belong_to),
		cmocka_unit_test(a_foreign_tree_is_not_deleted_below_a_shut_directory),
		cmocka_unit_test(nobody_deletes_what_a_sticky_bit_below_the_top_keeps),
		cmocka_unit_test(bad_paths_are_refused),
		cmocka_unit_test(a_root_that_is_a_link_is_damage),
		cmocka_unit_test(entries_come_in_order_after_a_name),
		cmocka_unit_test(a_summary_goes_in_steps),
		cmocka_unit_test(a_second_format_needs_force),
		cmocka_unit_test(a_bad_cluster_id_is_refused_before_a_directory_is_made),
		cmocka_unit_test(an_unformatted_directory_says_so),
		cmocka_unit_test(names_that_may_be_made),
		cmocka_unit_test(reserved_paths_lead_to_the_same_inodes),
		cmocka_unit_test(limits_and_protected_directories_hold),
		cmocka_unit_test(long_names_are_told_whole),
		cmocka_unit_test(names_beyond_ascii_are_listed_first_as_in_java),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
