/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/inode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/clock.h"

#define DIR_INO 1

static struct inodes t;
static struct inode *dir;

static int setup(void **state)
{
	(void)state;
	assert_int_equal(inodes_init(&t), 0);
	dir = inode_enter(&t, &(struct dfs_stat){.file_id = 16385, .type = DFS_DIR}, DIR_INO, 0,
			  NULL, 1);
	assert_non_null(dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	inode_put(&t, dir);
	inodes_fini(&t);
	return 0;
}

/* The kernel is told of @name, which an answer that was asked for at @ns says is @id. NULL: that is
 * not taken. */
static struct inode *tell(const char *name, uint64_t id, uint64_t ns)
{
	bool stale;
	struct inode *in = inode_enter_asked(
		&t, &(struct dfs_stat){.file_id = id, .type = DFS_FILE}, dir, name, ns, &stale);

	assert_int_equal(stale, !in);
	inode_put(&t, in);
	return in;
}

static void test_an_answer_of_before_a_name_went(void **state)
{
	const uint64_t before = clock_mono_ns();
	struct inode *a = tell("a", 100, before), *b = tell("b", 200, before), *named;

	(void)state;
	inode_name_went(&t, dir, "a"); /* a is b from now on */
	inode_moved(&t, a, 0, NULL);
	inode_name_went(&t, dir, "b");
	inode_moved(&t, b, DIR_INO, "a");
	assert_null(tell("a", 100, before));
	assert_null(tell("b", 200, before));
	assert_non_null(tell("c", 300, before)); /* nothing has happened to that one */
	named = inode_get_named(&t, DIR_INO, "a");
	assert_ptr_equal(named, b);
	inode_put(&t, named);
	assert_ptr_equal(tell("a", 200, clock_mono_ns() + 1), b);
}

static void test_more_names_went_than_are_kept(void **state)
{
	const uint64_t before = clock_mono_ns();

	(void)state;
	inode_name_went(&t, dir, "a");
	for (int i = 0; i < INODE_MOVES_KEPT; i++)
		inode_name_went(&t, dir, "b");
	assert_null(tell("a", 100, before));
	assert_null(tell("c", 300, before)); /* nobody knows */
	assert_non_null(tell("c", 300, clock_mono_ns() + 1));
}

static void test_an_answer_of_before_a_publication(void **state)
{
	const uint64_t before = clock_mono_ns();
	struct inode *a = tell("a", 100, before);
	uint64_t between;

	(void)state;
	inode_new_id(&t, a, 101);
	between = clock_mono_ns() + 1;
	while (clock_mono_ns() <= between)
		;
	assert_ptr_equal(tell("a", 101, between), a);
	assert_ptr_equal(tell("a", 100, between), a); /* the NameNode has not done it yet */
	inode_new_id(&t, a, 102);
	assert_null(tell("a", 101, between)); /* two contents of one file are one inode */
	assert_null(tell("a", 100, before));
	assert_ptr_equal(tell("a", 101, clock_mono_ns() + 1), a);
	assert_ptr_equal(tell("a", 102, clock_mono_ns() + 1), a);
	assert_int_equal(inode_id(&t, a), 102);
	assert_int_equal(a->ino, 100);
}

static void test_a_retired_one_gets_a_successor(void **state)
{
	const uint64_t now = clock_mono_ns() + 1;
	struct inode *first = tell("f", 100, now), *second, *third, *named;

	(void)state;
	inode_new_id(&t, first, 101); /* it has a former id, too */
	inode_retire(&t, first);
	inode_retire(&t, first);
	assert_true(first->retired && first->gone && !first->name);
	assert_null(inode_get_named(&t, DIR_INO, "f"));
	second = tell("f", 100, clock_mono_ns() + 1); /* found by neither id, nor by its number */
	assert_true(second && second != first && second->ino != first->ino && second->alias);
	assert_ptr_equal(tell("f", 100, clock_mono_ns() + 1), second);
	named = inode_get_named(&t, DIR_INO, "f");
	assert_ptr_equal(named, second);
	inode_put(&t, named);
	inode_retire(&t, second);
	third = tell("f", 100, clock_mono_ns() + 1);
	assert_true(third != second && third->ino != second->ino);
	inode_forget(&t, first->ino, 1); /* each goes by its own number */
	inode_forget(&t, second->ino, 2);
	assert_ptr_equal(tell("f", 100, clock_mono_ns() + 1), third);
	inode_forget(&t, third->ino, 2);
	assert_false(tell("f", 100, clock_mono_ns() + 1)->alias);
}

static void test_many(void **state)
{
	struct inode *in[5000];

	(void)state;
	for (uint64_t i = 0; i < 5000; i++) { /* the chains grow, with former ids in them or not */
		in[i] = inode_enter(&t, &(struct dfs_stat){.file_id = 20000 + i}, 0, 0, NULL, 0);
		if (i % 2)
			inode_new_id(&t, in[i], 40000 + i);
	}
	for (uint64_t i = 0; i < 5000; i++) {
		struct inode *same = inode_enter(
			&t, &(struct dfs_stat){.file_id = i % 2 ? 40000 + i : 20000 + i}, 0, 0,
			NULL, 0);

		assert_ptr_equal(same, in[i]);
		inode_put(&t, same);
		inode_put(&t, in[i]);
	}
	assert_int_equal(t.count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_an_answer_of_before_a_name_went, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_more_names_went_than_are_kept, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_of_before_a_publication, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_retired_one_gets_a_successor, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
