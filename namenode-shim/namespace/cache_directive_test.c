/* SPDX-License-Identifier: Apache-2.0 */
/* Who may give, change and see cache directives, what a pool's limit refuses, and that pools,
 * directives and ids are there after a restart. (kill -9: integration/caching.) */
#include "namenode-shim/namespace/cache_directive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/test_db.h"

#define MI (1ull << 20)

static const struct cache_stats nothing;

static void make_pool(struct ns *n, const struct cache_pool_info *i)
{
	assert_int_equal(cache_pool_add(n, i, "supergroup"), 0);
}

/* A closed file of @len bytes. */
static void make_file(struct ns *n, const char *path, uint64_t len)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 1,
				    .block_size = 128 * MI,
				    .create = true,
				    .create_parent = true};
	struct inode_block b = {.b = {1 << 20, 1001, len}, .committed = true};
	struct inode *f = NULL;
	struct ns_path w;

	assert_int_equal(ns_resolve_create(n, &c, &w), 0);
	assert_int_equal(ns_create(n, &c, &w, &f), 0);
	f->client = "";
	f->blocks = &b;
	f->nblocks = 1;
	assert_int_equal(inode_put(n->t, f), 0);
}

static int give_as(struct ns *n, const struct cache_directive_info *i, bool force,
		   const struct cache_stats *stats, int64_t *ret_id)
{
	struct cache_walk *walk = NULL;
	const struct cache_change c = {.info = i, .stats = stats, .force = force, .walk = &walk};
	int rc;

	do
		rc = cache_directive_add(n, &c, ret_id);
	while (rc == NS_MORE);
	cache_walk_free(walk);
	return rc;
}

static int give(struct ns *n, const char *pool, const char *path, int16_t repl, bool force)
{
	const struct cache_directive_info i = {
		.pool = pool, .path = path, .has_repl = true, .repl = repl};
	int64_t id;

	return give_as(n, &i, force, &nothing, &id);
}

static int change(struct ns *n, const struct cache_directive_info *i)
{
	struct cache_walk *walk = NULL;
	const struct cache_change c = {.info = i, .stats = &nothing, .walk = &walk};
	int rc;

	do
		rc = cache_directive_modify(n, &c);
	while (rc == NS_MORE);
	cache_walk_free(walk);
	return rc;
}

static bool may_read(struct ns *n, const char *pool)
{
	struct cache_pool p;

	assert_int_equal(cache_pool_get(n->t, n->a, pool, &p), 0);
	return cache_pool_may_read(n, &p);
}

/* Each row of the mode counts for its own: owner or group, else others. */
static void the_mode_of_a_pool_says_who_may(void **state)
{
	static const struct {
		uint16_t mode;
		const char *owner, *group, *user;
		bool write, read;
	} cases[] = {
		{0300, "carol", "none", "carol", true, false},
		{0400, "carol", "none", "carol", false, true},
		{0077, "carol", "none", "carol", false, false}, /* others are others */
		{0077, "carol", "staff", "carol", true, true},  /* she is in the group, too */
		{0030, "root", "staff", "carol", true, false},
		{0707, "root", "staff", "carol", false, false},
		{0002, "root", "staff", "dora", true, false},
		{0004, "root", "staff", "dora", false, true},
		{0770, "root", "staff", "dora", false, false},
		{0000, "carol", "staff", "root", true, true}, /* the super-user */
	};
	struct test_db d;

	(void)state;
	test_db_init(&d);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct cache_pool_info pool = {.name = "p",
						     .owner = cases[i].owner,
						     .group = cases[i].group,
						     .has_mode = true,
						     .mode = cases[i].mode};
		struct ns *n = test_begin(&d, cases[i].user);
		int rc;

		make_pool(n, &pool);
		rc = give(n, "p", "/f", 1, false);
		assert_int_equal(rc == 0, cases[i].write);
		if (rc)
			assert_non_null(strstr(d.x.text, "does not have WRITE permissions."));
		assert_int_equal(may_read(n, "p"), cases[i].read);
		txn_write_abort(&d.t);
	}
	test_db_fini(&d);
}

/* To ask for the groups of one whom nobody holds may block the writer, or a listing. */
static void nobody_asks_for_the_groups_of_the_super_user(void **state)
{
	const struct cache_pool_info p = {.name = "p", .owner = "carol", .has_mode = true};
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	n->users = NULL; /* who asks does not come back */
	make_pool(n, &p);
	assert_int_equal(give(n, "p", "/f", 1, false), 0);
	assert_true(may_read(n, "p"));
	n->super = n->enforce = false;
	assert_true(may_read(n, "p"));
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* Changing, moving and removing ask for the right to write, too: of both pools. */
static void only_who_may_write_changes_and_removes(void **state)
{
	const struct cache_pool_info own = {.name = "own", .owner = "carol"},
				     other = {.name = "other"};
	const struct cache_directive_info moved = {.has_id = true, .id = 1, .pool = "other"},
					  more = {.has_id = true,
						  .id = 1,
						  .has_repl = true,
						  .repl = 2},
					  taken = {.has_id = true, .id = 2, .pool = "own"};
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &own);
	make_pool(n, &other);
	assert_int_equal(give(n, "own", "/f", 1, false), 0);
	assert_int_equal(give(n, "other", "/f", 1, false), 0);
	assert_int_equal(test_commit(&d), 0);
	n = test_begin(&d, "dora");
	assert_int_equal(change(n, &more), -EACCES);
	assert_int_equal(cache_directive_remove(n, 1), -EACCES);
	txn_write_abort(&d.t);
	n = test_begin(&d, "carol");
	assert_int_equal(change(n, &more), 0);
	assert_int_equal(change(n, &moved), -EACCES);
	txn_write_abort(&d.t);
	n = test_begin(&d, "carol");
	assert_int_equal(change(n, &taken), -EACCES);
	assert_int_equal(cache_directive_remove(n, 2), -EACCES);
	txn_write_abort(&d.t);
	n = test_begin(&d, "carol");
	assert_int_equal(cache_directive_remove(n, 1), 0);
	assert_int_equal(cache_directive_remove(n, 1), -EINVAL);
	assert_string_equal(d.x.text, "No directive with ID 1 found.");
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* ---- limits ---- */

static void a_limit_counts_bytes_times_replication(void **state)
{
	const struct cache_pool_info p = {.name = "p", .has_limit = true, .limit = 10 * MI};
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &p);
	make_file(n, "/d/three", 3 * MI);
	make_file(n, "/d/one", MI);
	make_file(n, "/d/deeper/nine", 9 * MI);
	assert_int_equal(give(n, "p", "/d/three", 4, false), -EINVAL);
	assert_string_equal(d.x.text,
			    "Caching path /d/three of size 3145728 bytes at replication 4 "
			    "would exceed pool p's remaining capacity of 10485760 bytes.");
	assert_int_equal(give(n, "p", "/d/three", 3, false), 0);
	d.x.cls = NULL;
	assert_int_equal(give(n, "p", "/d/one", 2, false), -EINVAL);
	assert_int_equal(give(n, "p", "/d/one", 1, false), 0); /* just full */
	assert_int_equal(give(n, "p", "/d/one", 1, false), -EINVAL);
	assert_int_equal(give(n, "p", "/none", 7, false), 0); /* what is not there needs nothing */
	assert_int_equal(cache_directive_remove(n, 1), 0);    /* room for nine more */
	assert_int_equal(give(n, "p", "/d", 2, false), 0);    /* its files, not what is deeper */
	assert_int_equal(give(n, "p", "/d", 1, false), -EINVAL);
	assert_int_equal(give(n, "p", "/d", 1, true), 0); /* forced */
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* A scan that began with @row has counted so many bytes. */
static void counted(struct cache_stats *s, const struct cache_pool *row, uint64_t bytes)
{
	struct cache_pool_stat *at = cache_stats_pool(s, row->id);

	at->given = row->given;
	at->taken = row->taken;
	at->n.need.bytes = bytes;
}

/* What the monitor has counted counts, and what was given and taken since. */
static void the_last_count_and_what_came_since_fill_a_pool(void **state)
{
	const struct cache_pool_info p = {.name = "p", .has_limit = true, .limit = 10 * MI};
	const struct cache_directive_info i = {.pool = "p", .path = "/f"};
	struct cache_stats s = {0};
	struct cache_pool row;
	struct test_db d;
	int64_t id;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &p);
	make_file(n, "/f", 3 * MI);
	assert_int_equal(give_as(n, &i, false, &s, &id), 0);
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	counted(&s, &row, 5 * MI); /* the file has grown */
	assert_int_equal(give_as(n, &i, false, &s, &id), 0);
	assert_int_equal(give_as(n, &i, false, &s, &id), -EINVAL); /* 5 + 3 + 3 */
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	assert_int_equal(cache_count_pool(&s, &row).need.bytes, 8 * MI);
	assert_int_equal(cache_directive_remove(n, 1), 0);
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	assert_int_equal(cache_count_pool(&s, &row).need.bytes, 5 * MI);
	assert_int_equal(give_as(n, &i, false, &s, &id), -EINVAL); /* it may not be in the count */
	counted(&s, &row, 3 * MI);
	assert_int_equal(give_as(n, &i, false, &s, &id), 0);
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	row.taken.bytes += 100 * MI; /* more is gone than was counted */
	assert_int_equal(cache_count_pool(&s, &row).need.bytes, 0);
	cache_stats_clear(&s);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* One whose time was over when it was counted, was counted as nothing. */
static void what_was_not_counted_makes_no_room_when_it_goes(void **state)
{
	const struct cache_pool_info p = {.name = "p", .has_limit = true, .limit = 10 * MI};
	const struct cache_directive_info eight = {.pool = "p", .path = "/eight"},
					  ten = {.pool = "p", .path = "/ten"};
	struct cache_stats s = {0};
	struct cache_pool row;
	int64_t over, more;
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &p);
	make_file(n, "/eight", 8 * MI);
	make_file(n, "/ten", 10 * MI);
	assert_int_equal(give_as(n, &eight, false, &s, &over), 0);
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	counted(&s, &row, 0);
	assert_int_equal(give_as(n, &eight, false, &s, &more), 0);
	assert_int_equal(cache_directive_remove(n, over), 0);
	assert_int_equal(give_as(n, &ten, false, &s, &more), -EINVAL); /* 8 + 10 */
	cache_stats_clear(&s);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* A directory of more than one step is measured whole; moving checks the limit of the new pool. */
static void a_large_directory_is_measured_in_steps(void **state)
{
	const struct cache_pool_info small = {.name = "small", .has_limit = true, .limit = 2999},
				     large = {.name = "large", .has_limit = true, .limit = 3000};
	const struct cache_directive_info moved = {.has_id = true, .id = 1, .pool = "small"},
					  dir = {.pool = "small", .path = "/d"};
	struct cache_walk *walk = NULL;
	const struct cache_change c = {
		.info = &dir, .stats = &nothing, .counting = true, .walk = &walk};
	int64_t id;
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &small);
	make_pool(n, &large);
	for (int i = 0; i < 3000; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/d/%04d", i);
		make_file(n, path, 1);
	}
	assert_int_equal(cache_directive_add(n, &c, &id), NS_MORE);
	assert_false(cache_walk_is_done(walk));
	while (!cache_walk_is_done(walk))
		assert_int_equal(cache_directive_add(n, &c, &id), NS_MORE);
	cache_walk_free(walk);
	assert_int_equal(give(n, "small", "/d", 1, false), -EINVAL);
	assert_int_equal(give(n, "large", "/d", 1, false), 0);
	assert_int_equal(change(n, &moved), -EINVAL);
	assert_non_null(strstr(d.x.text, "would exceed pool small's"));
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* ---- times ---- */

static void a_pool_bounds_the_time_of_its_directives(void **state)
{
	const struct cache_pool_info p = {.name = "p", .has_expiry = true, .max_expiry_ms = 60000};
	struct cache_directive_info i = {
		.pool = "p", .path = "/f", .has_expiry = true, .relative = true};
	struct cache_directive r;
	struct test_db d;
	int64_t id;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	make_pool(n, &p);
	i.expiry_ms = 60001;
	assert_int_equal(give_as(n, &i, true, &nothing, &id), -EINVAL);
	assert_string_equal(d.x.text, "Expiration 000:00:01:00.001 exceeds the max relative "
				      "expiration time of 60000 ms.");
	i.expiry_ms = 60000;
	assert_int_equal(give_as(n, &i, false, &nothing, &id), 0);
	assert_int_equal(cache_directive_get(n->t, n->a, id, &r), 0);
	assert_int_equal(r.expiry_ms, 61000);
	i.relative = false;
	i.expiry_ms = 61001; /* now is 1000 */
	assert_int_equal(give_as(n, &i, false, &nothing, &id), -EINVAL);
	i.expiry_ms = -1;
	assert_int_equal(give_as(n, &i, false, &nothing, &id), -EINVAL);
	i.has_expiry = false;
	assert_int_equal(give_as(n, &i, false, &nothing, &id), 0);
	assert_int_equal(cache_directive_get(n->t, n->a, id, &r), 0);
	assert_int_equal(r.expiry_ms, 61000);
	assert_string_equal(cache_duration_text(n->a, 86400000ll * 3 + 3723004),
			    "003:01:02:03.004");
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* ---- recovery ---- */

static void all_of_it_is_there_after_a_restart(void **state)
{
	const struct cache_pool_info p = {.name = "p",
					  .owner = "carol",
					  .group = "staff",
					  .has_mode = true,
					  .mode = 0751,
					  .has_limit = true,
					  .limit = 77,
					  .has_repl = true,
					  .repl = 3,
					  .has_expiry = true,
					  .max_expiry_ms = 5000},
				     gone = {.name = "gone"};
	struct cache_directive r;
	struct cache_pool row;
	struct test_db d;
	struct ns *n;

	(void)state;
	test_db_init(&d);
	assert_int_equal(db_log_start(d.db, NULL, NULL), 0);
	n = test_begin(&d, "root");
	make_pool(n, &p);
	make_pool(n, &gone);
	assert_int_equal(give(n, "p", "/a//b/", 2, false), 0);
	assert_int_equal(give(n, "gone", "/a", 1, false), 0);
	assert_int_equal(give(n, "p", "/c", 1, false), 0);
	assert_true(txn_write_commit_later(&d.t, false) >= 0);
	n = test_begin(&d, "root");
	assert_int_equal(cache_pool_remove(n, "gone"), 0);
	assert_int_equal(cache_directive_remove(n, 3), 0);
	assert_true(txn_write_commit_later(&d.t, false) >= 0);
	db_wait_synced(d.db);
	test_db_reopen(&d);
	n = test_begin(&d, "root");
	assert_int_equal(cache_pool_get(n->t, n->a, "p", &row), 0);
	assert_string_equal(row.owner, "carol");
	assert_string_equal(row.group, "staff");
	assert_true(row.mode == 0751 && row.limit == 77 && row.repl == 3 &&
		    row.max_expiry_ms == 5000);
	assert_int_equal(cache_pool_get(n->t, n->a, "gone", &row), -ENOENT);
	assert_int_equal(cache_directive_get(n->t, n->a, 1, &r), 0);
	assert_string_equal(r.path, "/a/b");
	assert_true(r.repl == 2 && r.expiry_ms == 6000);
	assert_int_equal(cache_directive_next(n->t, n->a, 1, &r), -ENOENT);
	assert_int_equal(give(n, "p", "/c", 1, false), 0); /* no id is used again */
	assert_int_equal(cache_directive_next(n->t, n->a, 1, &r), 0);
	assert_int_equal(r.id, 4);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mode_of_a_pool_says_who_may),
		cmocka_unit_test(nobody_asks_for_the_groups_of_the_super_user),
		cmocka_unit_test(only_who_may_write_changes_and_removes),
		cmocka_unit_test(a_limit_counts_bytes_times_replication),
		cmocka_unit_test(the_last_count_and_what_came_since_fill_a_pool),
		cmocka_unit_test(what_was_not_counted_makes_no_room_when_it_goes),
		cmocka_unit_test(a_large_directory_is_measured_in_steps),
		cmocka_unit_test(a_pool_bounds_the_time_of_its_directives),
		cmocka_unit_test(all_of_it_is_there_after_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
