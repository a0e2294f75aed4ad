/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever was added and not removed is found, and nothing else, in any order of
 * ids that NameNodes give: in a row, those of block groups (negative, sixteen apart), old random
 * ones. A removal leaves no hole that hides another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "datanode/store/replica_map.h"

#define MANY 20000

static struct replica *fake(uint32_t i)
{
	return (struct replica *)(uintptr_t)(i + 1); /* never looked at */
}

static int64_t in_a_row(uint32_t i)
{
	return (1 << 30) + (int64_t)i;
}

static int64_t of_groups(uint32_t i)
{
	return INT64_MIN + (int64_t)i * 16 + 3;
}

static int64_t random_ones(uint32_t i)
{
	return (int64_t)((i + 1) * 0xbf58476d1ce4e5b9ull);
}

/* All meet in one place. */
static int64_t far_apart(uint32_t i)
{
	return (int64_t)((uint64_t)i << 48);
}

static uint32_t drained;

static void count(struct replica *r)
{
	(void)r;
	drained++;
}

static void check(const struct replica_map *m, int64_t (*id)(uint32_t), uint32_t n,
		  uint32_t removed_step)
{
	for (uint32_t i = 0; i < n; i++) {
		const bool gone = removed_step && i % removed_step == 0;

		assert_ptr_equal(replica_map_find(m, id(i)), gone ? NULL : fake(i));
	}
	assert_null(replica_map_find(m, id(n)));
}

static void fill_and_thin(int64_t (*id)(uint32_t), uint32_t n)
{
	struct replica_map m = {0};

	assert_null(replica_map_find(&m, id(0)));
	for (uint32_t i = 0; i < n; i++)
		replica_map_add(&m, id(i), fake(i));
	check(&m, id, n, 0);
	for (uint32_t i = 0; i < n; i += 3)
		replica_map_remove(&m, id(i));
	check(&m, id, n, 3);
	for (uint32_t i = 0; i < n; i += 3)
		replica_map_add(&m, id(i), fake(i));
	check(&m, id, n, 0);
	drained = 0;
	replica_map_drain(&m, count);
	assert_int_equal(drained, n);
	assert_null(replica_map_find(&m, id(0)));
}

static void what_is_there_is_found_and_nothing_else(void **state)
{
	(void)state;
	fill_and_thin(in_a_row, MANY);
	fill_and_thin(of_groups, MANY);
	fill_and_thin(random_ones, MANY);
	fill_and_thin(far_apart, 1000);
}

/* Beside an array, for which nothing can go wrong. */
static void random_changes_leave_what_a_plain_array_has(void **state)
{
	static struct replica *model[512];
	struct replica_map m = {0};
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (uint32_t step = 0; step < 200000; step++) {
		uint32_t i;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		i = (uint32_t)(x % 512);
		if (model[i])
			replica_map_remove(&m, (int64_t)i * 7 - 900);
		else
			replica_map_add(&m, (int64_t)i * 7 - 900, fake(i));
		model[i] = model[i] ? NULL : fake(i);
		i = (uint32_t)(x >> 32) % 512;
		assert_ptr_equal(replica_map_find(&m, (int64_t)i * 7 - 900), model[i]);
	}
	for (uint32_t i = 0; i < 512; i++)
		assert_ptr_equal(replica_map_find(&m, (int64_t)i * 7 - 900), model[i]);
	replica_map_drain(&m, count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_there_is_found_and_nothing_else),
		cmocka_unit_test(random_changes_leave_what_a_plain_array_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
