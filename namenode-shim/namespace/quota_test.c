/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: after any sequence of changes the use that each quota records equals a recount of
 * its subtree; no change leaves a directory over its quota that was within it; a refused change
 * changes nothing. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"

#include "namenode-shim/test_db.h"

#define STEPS 4000
#define FILE_LEN 100
#define QUOTA_DIRS 3

static const char *const quota_dirs[QUOTA_DIRS] = {"/a", "/a/b", "/c"};

/* ---- a recount ---- */

struct recount {
	struct test_db *d;
	struct quota_sum sum;
};

static int recount_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct recount *r = arg;
	struct inode *n;

	(void)name;
	(void)len;
	assert_int_equal(inode_get(&r->d->t, id, &r->d->a, &n), 0);
	r->sum.inodes++;
	for (uint32_t i = 0; i < n->nblocks; i++)
		r->sum.space += (int64_t)n->blocks[i].b.len * n->repl;
	return n->type == INODE_DIR ? dirent_each(&r->d->t, id, NULL, 0, recount_entry, r) : 0;
}

/* Every record fits its directory; records of directories that are gone are gone. */
static uint64_t check_records(struct test_db *d)
{
	struct ns *n = test_begin(d, "root");
	uint64_t found = 0;
	MDB_stat st;

	for (int i = 0; i < QUOTA_DIRS; i++) {
		struct recount r = {.d = d, .sum = {.inodes = 1}};
		struct quota q;
		struct ns_path w;

		assert_int_equal(ns_resolve(n, quota_dirs[i], &w) == -ENOTDIR || n->x->cls == NULL,
				 1);
		n->x->cls = NULL;
		if (!w.last || quota_get(&d->t, w.last->id, &q) == -ENOENT)
			continue;
		found++;
		assert_int_equal(dirent_each(&d->t, w.last->id, NULL, 0, recount_entry, &r), 0);
		assert_int_equal(q.inodes, r.sum.inodes);
		assert_int_equal(q.space, r.sum.space);
	}
	assert_int_equal(mdb_stat(d->t.t, d->db->quota, &st), 0);
	txn_write_abort(&d->t);
	return st.ms_entries - found; /* quotas that a rename has carried elsewhere */
}

/* ---- random changes ---- */

static void random_path(char out[16])
{
	const int depth = 1 + rand() % 3;
	char *p = out;

	for (int i = 0; i < depth; i++)
		p += snprintf(p, 3, "/%c", 'a' + rand() % 3);
}

/* A closed file of one block, as a writer leaves it. */
static int make_file(struct ns *n, const char *path)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0644,
				    .repl = 2,
				    .block_size = 1 << 20,
				    .create = true,
				    .overwrite = true,
				    .create_parent = true};
	struct inode_block *b = arena_new(n->a, struct inode_block);
	struct inode *f;
	struct ns_path w;
	int rc = ns_resolve_create(n, &c, &w);

	rc = rc ? rc : ns_create(n, &c, &w, &f);
	if (rc < 0)
		return rc;
	b->b = (struct block){(int64_t)++n->t->ctr.block, 1, FILE_LEN};
	b->committed = true;
	f->client = "";
	f->nblocks = 1;
	f->blocks = b;
	assert_int_equal(inode_put(n->t, f), 0);
	return quota_charge(n, f->parent, 0, (int64_t)inode_space(f));
}

static int step(struct ns *n)
{
	char a[16], b[16];
	bool done;

	random_path(a);
	random_path(b);
	switch (rand() % 7) {
	case 0:
		return ns_mkdirs(n, a, 0755, NULL, NS_MKDIRS_PARENTS);
	case 1:
		return make_file(n, a);
	case 2:
		return ns_delete(n, a, true, &done);
	case 3:
		return ns_rename(n, a, b, &done);
	case 4:
		return ns_rename2(n, a, b, true);
	case 5:
		return ns_set_repl(n, a, (uint16_t)(1 + rand() % 4), &done);
	default:
		return quota_set(n, quota_dirs[rand() % QUOTA_DIRS],
				 rand() % 3 ? 2u + (unsigned int)rand() % 8 : QUOTA_NONE,
				 rand() % 3 ? (unsigned int)rand() % 2000 : QUOTA_NONE);
	}
}

static void use_equals_a_recount_after_any_change(void **state)
{
	uint64_t refused = 0;
	struct test_db d;

	(void)state;
	test_db_init(&d);
	srand(7);
	for (int i = 0; i < STEPS; i++) {
		const int rc = step(test_begin(&d, "root"));

		refused += rc == -EDQUOT;
		assert_int_equal(test_commit(&d), 0);
		if (check_records(&d) > 0) { /* a quota went with a renamed directory: begin anew */
			bool done;

			for (char name[] = "/a"; name[1] <= 'c'; name[1]++) {
				(void)ns_delete(test_begin(&d, "root"), name, true, &done);
				assert_int_equal(test_commit(&d), 0);
			}
		}
	}
	assert_true(refused > 50);
	test_db_fini(&d);
}

/* ---- limits ---- */

static struct quota quota_at(struct test_db *d, const char *path)
{
	struct quota q = {0};
	struct ns_path w;

	assert_int_equal(ns_resolve(test_begin(d, "root"), path, &w), 0);
	assert_int_equal(quota_get(&d->t, w.last->id, &q), 0);
	txn_write_abort(&d->t);
	return q;
}

static void names_over_the_limit_are_refused_and_change_nothing(void **state)
{
	struct test_db d;
	struct ns_path w;
	bool done;

	(void)state;
	test_db_init(&d);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), "/q/x", 0755, NULL, NS_MKDIRS_PARENTS),
			 0);
	assert_int_equal(quota_set(&d.ns, "/q", 3, QUOTA_NONE), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), "/q/y/z", 0755, NULL, NS_MKDIRS_PARENTS),
			 -EDQUOT);
	assert_string_equal(d.x.text,
			    "The NameSpace quota (directories and files) of directory /q is "
			    "exceeded: quota=3 file count=4");
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_resolve(test_begin(&d, "root"), "/q/y", &w), 0);
	assert_null(w.last);
	txn_write_abort(&d.t);
	assert_int_equal(quota_at(&d, "/q").inodes, 2);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), "/o/p", 0755, NULL, NS_MKDIRS_PARENTS),
			 0);
	assert_int_equal(ns_rename(&d.ns, "/o", "/q/o", &done), -EDQUOT);
	assert_int_equal(ns_rename(&d.ns, "/q/x", "/q/y", &done), 0); /* within: nothing is added */
	assert_true(done);
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

static void bytes_over_the_limit_are_refused(void **state)
{
	struct test_db d;
	bool done;

	(void)state;
	test_db_init(&d);
	assert_int_equal(ns_mkdirs(test_begin(&d, "root"), "/q", 0755, NULL, NS_MKDIRS_PARENTS), 0);
	assert_int_equal(quota_set(&d.ns, "/q", QUOTA_NONE, 3 * FILE_LEN), 0);
	assert_int_equal(make_file(&d.ns, "/q/f"), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(ns_set_repl(test_begin(&d, "root"), "/q/f", 4, &done), -EDQUOT);
	assert_string_equal(d.x.text,
			    "The DiskSpace quota of /q is exceeded: quota = 300 B = 300 B but "
			    "diskspace consumed = 400 B = 400 B");
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(quota_at(&d, "/q").space, 2 * FILE_LEN);
	assert_int_equal(ns_set_repl(test_begin(&d, "root"), "/q/f", 3, &done), 0);
	assert_int_equal(quota_set(&d.ns, "/q", QUOTA_NONE, QUOTA_NONE), 0);
	assert_false(quota_any(&d.t));
	assert_int_equal(test_commit(&d), 0);
	test_db_fini(&d);
}

/* A disk that says so must not stop the NameNode. */
static void a_directory_below_itself_ends_every_walk_up(void **state)
{
	struct inode *dir;
	struct test_db d;
	struct ns_path w;
	struct ns *n;
	char *path;

	(void)state;
	test_db_init(&d);
	n = test_begin(&d, "root");
	assert_int_equal(ns_mkdirs(n, "/a/b/c/d", 0755, NULL, NS_MKDIRS_PARENTS), 0);
	assert_int_equal(ns_mkdirs(n, "/q", 0755, NULL, 0), 0);
	assert_int_equal(quota_set(n, "/q", 100, 100), 0); /* or nobody looks */
	assert_int_equal(storage_policy_set(n, "/q", "HOT"), 0);
	assert_int_equal(ns_find(n, "/a/b/c/d", &w), 0);
	dir = w.chain[2]; /* b is in d */
	dir->parent = w.last->id;
	assert_int_equal(inode_put(n->t, dir), 0);
	assert_int_equal(storage_policy_of(n->t, w.last, n->a), POLICY_NONE);
	assert_int_equal(inode_path(n->t, w.last, n->a, &path), -EBADMSG);
	assert_true(quota_check(n, w.last, 1, 1) < 0);
	n->x->cls = NULL;
	assert_true(quota_check_move(n, w.last, w.chain[3], 1, 1) <= 0);
	assert_int_equal(quota_charge(n, w.last->id, 1, 1), 0);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(use_equals_a_recount_after_any_change),
		cmocka_unit_test(names_over_the_limit_are_refused_and_change_nothing),
		cmocka_unit_test(bytes_over_the_limit_are_refused),
		cmocka_unit_test(a_directory_below_itself_ends_every_walk_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
