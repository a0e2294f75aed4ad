/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a large tree that is deleted is gone at once, by path and by number, and goes
 * from the disk bit by bit, quotas and blocks with it, also over a start in between, and whatever
 * is damaged in another. It is not deleted if there is something below it that its deleter may not
 * delete, though that came while the tree was checked in slices. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/tree_delete.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#include "namenode-shim/test_db.h"

#define DIRS 50
#define FILES 100 /* of each */
#define NAMES (1 + DIRS + DIRS * FILES)
#define BLOCK_LEN 1024

static void mkdirs(struct test_db *d, const char *user, const char *path, uint16_t perm)
{
	struct ns *n = test_begin(d, user);

	assert_int_equal(ns_mkdirs(n, path, perm, NULL, NS_MKDIRS_PARENTS), 0);
	assert_int_equal(test_commit(d), 0);
}

static void create(struct ns *n, const char *path)
{
	const struct ns_create c = {.path = path,
				    .client = "",
				    .perm = 0644,
				    .repl = 2,
				    .block_size = BLOCK_LEN,
				    .create = true};
	struct inode_block b = {.committed = true};
	struct inode *f;
	struct ns_path w;

	assert_int_equal(ns_resolve_create(n, &c, &w), 0);
	assert_int_equal(ns_create(n, &c, &w, &f), 0);
	b.b = (struct block){(int64_t)++n->t->ctr.block, ++n->t->ctr.gs, BLOCK_LEN};
	f->blocks = &b;
	f->nblocks = 1;
	f->client = f->client_host = "";
	assert_int_equal(quota_charge(n, f->parent, 0, (int64_t)inode_space(f)), 0);
	assert_int_equal(inode_put(n->t, f), 0);
}

/* DIRS directories of FILES files. */
static void fill(struct ns *n, const char *top)
{
	for (int i = 0; i < DIRS; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/%03d", top, i);
		assert_int_equal(ns_mkdirs(n, path, 0755, NULL, NS_MKDIRS_PARENTS), 0);
		for (int k = 0; k < FILES; k++) {
			snprintf(path, sizeof(path), "%s/%03d/%03d", top, i, k);
			create(n, path);
		}
	}
}

/* /q, which has a quota, with bob's /q/big and its NAMES; ids of both. */
static void make(struct test_db *d, uint64_t *ret_top, uint64_t *ret_inner)
{
	struct ns_path w;
	struct ns *n;

	test_db_init(d);
	mkdirs(d, "root", "/q", 0777);
	assert_int_equal(quota_set(test_begin(d, "root"), "/q", 1000000, 1ull << 40), 0);
	assert_int_equal(test_commit(d), 0);
	mkdirs(d, "bob", "/q/big", 0755);
	n = test_begin(d, "bob");
	fill(n, "/q/big");
	assert_int_equal(ns_resolve(n, "/q/big", &w), 0);
	*ret_top = w.last->id;
	assert_int_equal(ns_resolve(n, "/q/big/007", &w), 0);
	*ret_inner = w.last->id;
	assert_int_equal(test_commit(d), 0);
}

static struct quota used(struct test_db *d)
{
	struct ns *n = test_begin(d, "root");
	struct quota q;
	struct ns_path w;

	assert_int_equal(ns_resolve(n, "/q", &w), 0);
	assert_int_equal(quota_get(n->t, w.last->id, &q), 0);
	txn_write_abort(&d->t);
	return q;
}

/* One slice of the delete of /q/big. */
static int delete_some(struct test_db *d, const char *user, struct tree_check **k)
{
	bool done;
	int rc = ns_delete_some(test_begin(d, user), "/q/big", true, k, &done);

	assert_int_equal(test_commit(d), 0);
	return rc;
}

static int delete_all(struct test_db *d, const char *user)
{
	struct tree_check *k = NULL;
	int rc, slices = 0;

	while ((rc = delete_some(d, user, &k)) == NS_MORE)
		slices++;
	tree_check_free(k);
	assert_int_equal(slices >= 2, strcmp(user, "root") != 0); /* he may delete what he likes */
	return rc;
}

static uint64_t rows(struct test_db *d, MDB_dbi dbi)
{
	MDB_stat st;

	test_begin(d, "root");
	assert_int_equal(mdb_stat(d->t.t, dbi, &st), 0);
	txn_write_abort(&d->t);
	return st.ms_entries;
}

static struct nn nn; /* no more of it than the trees that cannot be read */
static uint32_t left_broken;

/* A slice of what goes; blocks and names that it gave up. False: that was the last. */
static bool reap(struct test_db *d, uint64_t *blocks, uint64_t *names)
{
	struct req q = {.nn = &nn, .ns = *test_begin(d, "root")};
	uint64_t some = 0;
	bool more = false;

	assert_int_equal(tree_delete_method.run(&q, NULL), 0);
	for (const struct effect *e = d->effects.first; e; e = e->next) {
		some += e->kind == EFFECT_BLOCK_REMOVE;
		*names -= e->kind == EFFECT_INODES ? (uint64_t)e->delta : 0;
		more |= e->kind == EFFECT_TREE_DELETE_SLICE && e->delta;
		nn.tree_delete_turn =
			e->kind == EFFECT_TREE_DELETE_SLICE ? e->turn : nn.tree_delete_turn;
		if (e->kind == EFFECT_TREE_DELETE_BROKEN) {
			tree_delete_leave(&nn.tree_delete_broken, e->inode);
			left_broken++;
		}
	}
	assert_true(some <= TREE_DELETE_SLICE);
	*blocks += some;
	assert_int_equal(test_commit(d), 0);
	return more;
}

static void check_gone(struct test_db *d, uint64_t id)
{
	struct ns *n = test_begin(d, "root");
	struct inode *node;
	char path[64], *text;
	struct ns_path w;

	snprintf(path, sizeof(path), "/.reserved/.inodes/%llu", (unsigned long long)id);
	assert_int_equal(ns_resolve(n, path, &w), -ENOENT);
	snprintf(path, sizeof(path), "/.reserved/.inodes/%llu/..", (unsigned long long)id);
	d->x.cls = NULL;
	assert_int_equal(ns_resolve(n, path, &w), -ENOENT);
	assert_string_equal(d->x.cls, "java.io.FileNotFoundException");
	if (!inode_get(n->t, id, n->a, &node))
		assert_int_equal(inode_path(n->t, node, n->a, &text), -ENOENT);
	txn_write_abort(&d->t);
}

static void a_large_tree_is_gone_at_once_and_goes_bit_by_bit(void **state)
{
	uint64_t top, inner, blocks = 0, names = 0, slices = 1;
	struct test_db d;
	struct ns_path w;

	(void)state;
	for (int i = 0; i < 2; i++) {
		make(&d, &top, &inner);
		assert_int_equal(used(&d).inodes, 1 + NAMES);
		assert_int_equal(used(&d).space, 2 * BLOCK_LEN * DIRS * FILES);
		assert_int_equal(delete_all(&d, i ? "bob" : "root"), 0);
		assert_int_equal(ns_resolve(test_begin(&d, "root"), "/q/big", &w), 0);
		assert_null(w.last);
		txn_write_abort(&d.t);
		check_gone(&d, top);
		check_gone(&d, inner);
		mkdirs(&d, "bob", "/q/big", 0755); /* its name is free */
		assert_true(used(&d).inodes > NAMES);
		for (slices = 1, blocks = names = 0; reap(&d, &blocks, &names); slices++)
			if (slices == 2)
				test_db_reopen(&d);
		assert_true(slices >= NAMES / TREE_DELETE_SLICE);
		assert_int_equal(blocks, DIRS * FILES);
		assert_int_equal(names, NAMES);
		assert_int_equal(used(&d).inodes, 2);
		assert_int_equal(used(&d).space, 0);
		assert_int_equal(rows(&d, d.db->inodes), 3); /* the root, /q and the new /q/big */
		assert_int_equal(rows(&d, d.db->dirents), 2);
		assert_int_equal(rows(&d, d.db->doomed), 0);
		check_gone(&d, top);
		test_db_fini(&d);
	}
}

static void a_quota_that_is_set_anew_meanwhile_counts_nothing_of_it(void **state)
{
	uint64_t top, inner, blocks = 0, names = 0;
	struct test_db d;

	(void)state;
	make(&d, &top, &inner);
	assert_int_equal(delete_all(&d, "root"), 0);
	assert_int_equal(quota_set(test_begin(&d, "root"), "/q", QUOTA_NONE, QUOTA_NONE), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(quota_set(test_begin(&d, "root"), "/q", 1000, QUOTA_NONE), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(used(&d).inodes, 1);
	while (reap(&d, &blocks, &names))
		;
	assert_int_equal(used(&d).inodes, 1);
	test_db_fini(&d);
}

/* /q/big/049/open, whose one block is being written: it counts as a full one. */
static uint64_t create_open(struct test_db *d)
{
	const struct ns_create c = {.path = "/q/big/049/open",
				    .client = "c",
				    .perm = 0644,
				    .repl = 2,
				    .block_size = BLOCK_LEN,
				    .create = true};
	struct inode_block b = {.committed = false};
	struct ns *n = test_begin(d, "root");
	struct inode *f;
	struct ns_path w;

	assert_int_equal(ns_resolve_create(n, &c, &w), 0);
	assert_int_equal(ns_create(n, &c, &w, &f), 0);
	b.b = (struct block){(int64_t)++n->t->ctr.block, ++n->t->ctr.gs, 0};
	f->blocks = &b;
	f->nblocks = 1;
	assert_int_equal(quota_charge(n, f->parent, 0, (int64_t)inode_space(f)), 0);
	assert_int_equal(inode_put(n->t, f), 0);
	assert_int_equal(test_commit(d), 0);
	return f->id;
}

/* What the end of a block's recovery does: ten bytes were written. */
static void close_open(struct test_db *d, uint64_t id)
{
	struct req q = {.nn = &nn, .ns = *test_begin(d, "root")};
	struct inode *f;
	uint64_t before;

	assert_int_equal(inode_get(q.ns.t, id, q.ns.a, &f), 0);
	before = inode_space(f);
	f->blocks[0].b.len = 10;
	f->blocks[0].committed = true;
	assert_int_equal(uc_space_changed(&q, f, before), 0);
	assert_int_equal(uc_close(&q, f), 0);
	assert_int_equal(test_commit(d), 0);
	arena_free(&q.mem);
}

/* Recovery of its lease ends when the tree above it is deleted, and none, some or all of it has
 * gone. */
static void space_of_an_open_file_in_a_deleted_tree_is_given_back_once(void **state)
{
	(void)state;
	for (int slices_before = -1; slices_before < 3; slices_before++) {
		uint64_t top, inner, blocks = 0, names = 0, id;
		struct test_db d;

		make(&d, &top, &inner);
		id = create_open(&d);
		create(test_begin(&d, "root"),
		       "/q/stays"); /* what is given back twice shows in it */
		assert_int_equal(test_commit(&d), 0);
		assert_int_equal(used(&d).space, 2 * BLOCK_LEN * (DIRS * FILES + 2));
		assert_int_equal(delete_all(&d, "root"), 0);
		for (int i = 0; i < slices_before; i++)
			assert_true(reap(&d, &blocks, &names));
		if (slices_before >= 0) {
			const uint64_t before = used(&d).space;

			close_open(&d, id);
			assert_int_equal(used(&d).space, before - 2 * (BLOCK_LEN - 10));
		}
		while (reap(&d, &blocks, &names))
			;
		assert_int_equal(used(&d).inodes, 2);
		assert_int_equal(used(&d).space, 2 * BLOCK_LEN);
		test_db_fini(&d);
	}
}

static void what_comes_into_a_tree_while_it_is_checked_is_minded(void **state)
{
	struct tree_check *k = NULL;
	uint64_t top, inner;
	struct test_db d;
	int rc;

	(void)state;
	make(&d, &top, &inner);
	assert_int_equal(delete_some(&d, "bob", &k), NS_MORE);
	mkdirs(&d, "root", "/elsewhere/x", 0700);      /* matters to nobody */
	mkdirs(&d, "root", "/q/big/049/hers/x", 0700); /* 049 was looked at */
	while ((rc = delete_some(&d, "bob", &k)) == NS_MORE)
		;
	assert_int_equal(rc, -EACCES);
	tree_check_free(k);
	assert_int_equal(rows(&d, d.db->doomed), 0);
	assert_int_equal(delete_all(&d, "root"), 0);
	test_db_fini(&d);
}

/* An empty directory needs no rights. Then it has a file, which its owner alone may take out. */
static void a_file_that_comes_into_an_empty_directory_meanwhile_is_minded(void **state)
{
	struct tree_check *k = NULL;
	uint64_t top, inner;
	struct test_db d;
	int rc;

	(void)state;
	make(&d, &top, &inner);
	mkdirs(&d, "root", "/q/big/049/empty", 0755);
	assert_int_equal(delete_some(&d, "bob", &k), NS_MORE); /* looked at 049 and what is in it */
	create(test_begin(&d, "root"), "/q/big/049/empty/f");
	assert_int_equal(test_commit(&d), 0);
	while ((rc = delete_some(&d, "bob", &k)) == NS_MORE)
		;
	assert_int_equal(rc, -EACCES);
	tree_check_free(k);
	assert_int_equal(rows(&d, d.db->doomed), 0);
	test_db_fini(&d);
}

/* Something comes between any two slices: in the end it is checked in one piece. */
static void a_tree_that_changes_all_the_time_is_deleted_all_the_same(void **state)
{
	struct tree_check *k = NULL;
	uint64_t top, inner;
	struct test_db d;
	int rc, slices = 0;

	(void)state;
	make(&d, &top, &inner);
	while ((rc = delete_some(&d, "bob", &k)) == NS_MORE) {
		char path[64];

		snprintf(path, sizeof(path), "/q/big/049/new%d", slices++);
		mkdirs(&d, "bob", path, 0755);
		assert_true(slices < 20);
	}
	assert_int_equal(rc, 0);
	tree_check_free(k);
	test_db_fini(&d);
}

/* The inode of @path is lost, its name is not. */
static void damage(struct test_db *d, const char *path)
{
	struct ns *n = test_begin(d, "root");
	struct ns_path w;

	assert_int_equal(ns_resolve(n, path, &w), 0);
	assert_int_equal(inode_del(n->t, w.last), 0);
	assert_int_equal(test_commit(d), 0);
}

static void a_damaged_tree_does_not_keep_others_from_going(void **state)
{
	uint64_t top, inner, blocks = 0, names = 0;
	struct tree_check *k = NULL;
	struct test_db d;
	int slices = 0;
	bool done;

	(void)state;
	make(&d, &top, &inner);
	mkdirs(&d, "root", "/other", 0755);
	fill(test_begin(&d, "root"), "/other");
	assert_int_equal(test_commit(&d), 0);
	damage(&d, "/q/big/007/050");
	assert_int_equal(delete_all(&d, "root"), 0);
	assert_int_equal(ns_delete_some(test_begin(&d, "root"), "/other", true, &k, &done), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(rows(&d, d.db->doomed), 2);
	while (reap(&d, &blocks, &names))
		assert_true(++slices < 100);
	assert_int_equal(left_broken, 1);
	assert_int_equal(rows(&d, d.db->doomed), 1); /* for a start after the damage was mended */
	assert_true(blocks >= DIRS * FILES + 7 * FILES);
	/* another delete wakes it: it is not tried again */
	assert_false(reap(&d, &blocks, &names));
	assert_int_equal(left_broken, 1);
	tree_delete_fini(&nn.tree_delete_broken);
	test_db_fini(&d);
}

static uint32_t dels_left; /* before the map of the database is full; 0: it has room */

int __wrap_mdb_del(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data);
int __real_mdb_del(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data);

int __wrap_mdb_del(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data)
{
	if (dels_left && !--dels_left)
		return MDB_MAP_FULL;
	return __real_mdb_del(t, dbi, key, data);
}

static void a_full_map_does_not_make_a_deleted_tree_a_broken_one(void **state)
{
	uint64_t top, inner, blocks = 0, names = 0;
	struct req q = {.nn = &nn};
	struct test_db d;

	(void)state;
	left_broken = 0;
	make(&d, &top, &inner);
	assert_int_equal(delete_all(&d, "root"), 0);
	q.ns = *test_begin(&d, "root");
	dels_left = 100;
	assert_true(tree_delete_method.run(&q, NULL) < 0);
	assert_int_equal(dels_left, 0);
	for (const struct effect *e = d.effects.first; e; e = e->next)
		assert_int_not_equal(e->kind, EFFECT_TREE_DELETE_BROKEN);
	assert_int_equal(test_commit(&d), -EXFULL); /* what has the writer run it again */
	while (reap(&d, &blocks, &names))
		;
	assert_int_equal(names, NAMES);
	assert_int_equal(left_broken, 0);
	test_db_fini(&d);
}

/* A delete below a quota is answered when its tree has gone. */
static void a_small_deleted_tree_does_not_wait_for_a_large_one(void **state)
{
	uint64_t top, inner, blocks = 0, names = 0;
	struct tree_check *k = NULL;
	struct test_db d;
	int slices = 1;
	bool done;

	(void)state;
	make(&d, &top, &inner);
	mkdirs(&d, "root", "/small", 0755);
	for (int i = 0; i < TREE_DELETE_SLICE; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/small/%04d", i);
		mkdirs(&d, "root", path, 0755);
	}
	/* /q/big has the smaller number. */
	assert_int_equal(delete_all(&d, "root"), 0);
	assert_int_equal(ns_delete_some(test_begin(&d, "root"), "/small", true, &k, &done), 0);
	assert_int_equal(test_commit(&d), 0);
	assert_int_equal(rows(&d, d.db->doomed), 2);
	for (; rows(&d, d.db->doomed) == 2; slices++)
		assert_true(reap(&d, &blocks, &names));
	assert_in_range(slices, 2, 6); /* two of it, and of the large one at most one more */
	assert_true(blocks < DIRS * FILES);
	while (reap(&d, &blocks, &names))
		;
	assert_int_equal(blocks, DIRS * FILES);
	assert_int_equal(names, NAMES + 1 + TREE_DELETE_SLICE);
	assert_int_equal(rows(&d, d.db->doomed), 0);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_tree_is_gone_at_once_and_goes_bit_by_bit),
		cmocka_unit_test(a_quota_that_is_set_anew_meanwhile_counts_nothing_of_it),
		cmocka_unit_test(space_of_an_open_file_in_a_deleted_tree_is_given_back_once),
		cmocka_unit_test(what_comes_into_a_tree_while_it_is_checked_is_minded),
		cmocka_unit_test(a_file_that_comes_into_an_empty_directory_meanwhile_is_minded),
		cmocka_unit_test(a_full_map_does_not_make_a_deleted_tree_a_broken_one),
		cmocka_unit_test(a_small_deleted_tree_does_not_wait_for_a_large_one),
		cmocka_unit_test(a_damaged_tree_does_not_keep_others_from_going),
		cmocka_unit_test(a_tree_that_changes_all_the_time_is_deleted_all_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
