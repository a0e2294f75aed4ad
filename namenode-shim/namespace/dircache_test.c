/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a record that was changed is found, and written with the commit; of what was
 * removed or renamed nothing is found; and after any changes in one transaction the tables agree:
 * every entry names a record that names it back, and every directory counts its entries. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/namespace/dircache.h"
#include "namenode-shim/namespace/inode.h"

#include "namenode-shim/test_db.h"

#define DIRS 150 /* more than there is room for */
#define STEPS 4000
#define BATCHES 10
#define PATH 64

struct written {
	uint64_t id;
	char text[8];
	int n;
};

static int note(void *arg, uint64_t id, const void *record, size_t len)
{
	struct written *w = arg;

	w->id = id;
	memcpy(w->text, record, len);
	w->text[len] = 0;
	w->n++;
	return 0;
}

static void a_changed_record_is_found_and_written_once(void **state)
{
	struct dircache *c = dircache_new();
	struct written w = {0};
	size_t len;

	(void)state;
	assert_null(dircache_get(c, 7, &len));
	assert_null(dircache_change(c, 7, 1, "d", 3)); /* not read yet: to the database */
	dircache_add(c, 7, 1, "d", "one", 3);
	assert_int_equal(dircache_each_changed(c, note, &w), 0);
	assert_int_equal(w.n, 0);
	memcpy(dircache_change(c, 7, 1, "d", 5), "three", 5);
	memcpy(dircache_change(c, 7, 1, "d", 4), "four", 4);
	assert_memory_equal(dircache_get(c, 7, &len), "four", 4);
	assert_int_equal(len, 4);
	assert_int_equal(dircache_each_changed(c, note, &w), 0);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.id, 7);
	assert_string_equal(w.text, "four");
	dircache_clear(c);
	assert_null(dircache_get(c, 7, &len));
	dircache_free(c);
}

static void a_changed_record_stays_whatever_is_read(void **state)
{
	struct dircache *c = dircache_new();
	size_t len;

	(void)state;
	dircache_add(c, 7, 1, "d", "one", 3);
	memcpy(dircache_change(c, 7, 1, "d", 3), "two", 3);
	for (uint64_t id = 8; id < 1000; id++)
		dircache_add(c, id, 1, "e", "x", 1);
	assert_memory_equal(dircache_get(c, 7, &len), "two", 3);
	dircache_free(c);
}

static void names_follow_their_entries(void **state)
{
	struct dircache *c = dircache_new();
	uint64_t id = 0;
	size_t len;

	(void)state;
	dircache_add(c, 7, 1, "d", "one", 3);
	assert_true(dircache_find(c, 1, "d", 1, &id));
	assert_int_equal(id, 7);
	assert_false(dircache_find(c, 2, "d", 1, &id));
	assert_false(dircache_find(c, 1, "dd", 2, &id));
	dircache_forget_name(c, 1, "d", 1);
	assert_false(dircache_find(c, 1, "d", 1, &id));
	assert_non_null(dircache_get(c, 7, &len)); /* the record is there still */
	assert_non_null(dircache_change(c, 7, 2, "e", 3));
	assert_true(dircache_find(c, 2, "e", 1, &id));
	dircache_drop(c, 7);
	assert_false(dircache_find(c, 2, "e", 1, &id));
	assert_null(dircache_get(c, 7, &len));
	dircache_free(c);
}

/* ---- through the namespace ---- */

static uint32_t next_random(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 8;
}

static const char *any_path(uint32_t *seed, char buf[PATH])
{
	const uint32_t a = next_random(seed) % DIRS, b = next_random(seed) % DIRS;

	if (next_random(seed) % 2)
		snprintf(buf, PATH, "/d%u", a);
	else
		snprintf(buf, PATH, "/d%u/e%u", a, b);
	return buf;
}

struct count {
	struct txn *t;
	struct arena *a;
	uint64_t dir;
	uint32_t n;
};

static int check_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct count *c = arg;
	struct inode *node;

	assert_int_equal(inode_get(c->t, id, c->a, &node), 0);
	assert_int_equal(node->parent, c->dir);
	assert_int_equal(strlen(node->name), len);
	assert_memory_equal(node->name, name, len);
	c->n++;
	return 0;
}

static int check_inode(void *arg, struct inode *n)
{
	struct txn *t = arg;
	struct arena a = {0};
	struct count c = {t, &a, n->id, 0};

	assert_int_equal(dirent_each(t, n->id, NULL, 0, check_entry, &c), 0);
	assert_int_equal(c.n, n->children);
	arena_free(&a);
	return 0;
}

static void the_tables_agree_after_any_changes(void **state)
{
	struct arena a = {0};
	struct txn reader;
	struct test_db d;
	uint32_t seed = 1;

	(void)state;
	test_db_init(&d);
	for (int i = 0; i < BATCHES; i++) {
		struct ns *n = test_begin(&d, "root");

		for (int k = 0; k < STEPS / BATCHES; k++) {
			char one[PATH], two[PATH];
			bool done;

			/* What cannot be done is refused, and changes nothing. */
			d.x.cls = NULL;
			switch (next_random(&seed) % 4) {
			case 0:
			case 1:
				(void)ns_mkdirs(n, any_path(&seed, one), 0755, NULL, true);
				break;
			case 2:
				(void)ns_rename2(n, any_path(&seed, one), any_path(&seed, two),
						 next_random(&seed) % 2);
				break;
			default:
				(void)ns_delete(n, any_path(&seed, one), next_random(&seed) % 2,
						&done);
				break;
			}
			assert_int_equal(d.t.failed, 0);
		}
		assert_int_equal(test_commit(&d), 0);
		assert_int_equal(txn_reader_new(d.db, &reader), 0);
		assert_int_equal(txn_read_begin(&reader), 0);
		assert_int_equal(inode_each(&reader, &a, check_inode, &reader), 0);
		txn_read_end(&reader);
		txn_reader_free(&reader);
	}
	arena_free(&a);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_changed_record_is_found_and_written_once),
		cmocka_unit_test(a_changed_record_stays_whatever_is_read),
		cmocka_unit_test(names_follow_their_entries),
		cmocka_unit_test(the_tables_agree_after_any_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
