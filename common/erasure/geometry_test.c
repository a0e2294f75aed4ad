/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a slow reference that deals a group's bytes out one after the other, as the
 * writer of a striped file does, agrees with every length, offset and part; and a plan of any range
 * with any lost units delivers each byte once, reads only what exists and is needed, and can be
 * decoded. */
#include "common/erasure/geometry.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/test_random.h"

#define GROUP_MAX 6000 /* bytes of a reference group */

/* Cells this small do not exist in HDFS, but the arithmetic does not know. */
static struct ec_policy tiny(unsigned k, unsigned m, uint32_t cell)
{
	return (struct ec_policy){.name = "tiny",
				  .codec = EC_CODEC_RS,
				  .k = (uint8_t)k,
				  .m = (uint8_t)m,
				  .cell = cell};
}

/* A group dealt out byte by byte. */
static struct {
	uint64_t length[EC_UNITS_MAX];
	unsigned unit[GROUP_MAX]; /* of each byte */
	uint64_t at[GROUP_MAX];
} slow;

static void deal(const struct ec_policy *p, uint64_t length)
{
	unsigned unit = 0;
	uint32_t in_cell = 0;

	memset(&slow, 0, sizeof(slow));
	for (uint64_t i = 0; i < length; i++) {
		if (in_cell == p->cell) {
			in_cell = 0;
			unit = (unit + 1) % p->k;
		}
		slow.unit[i] = unit;
		slow.at[i] = slow.length[unit]++;
		in_cell++;
	}
	/* A parity cell is as long as the longest data cell of its row, and so is the unit. */
	for (unsigned u = 0; u < p->k; u++)
		for (unsigned r = p->k; r < (unsigned)p->k + p->m; r++)
			if (slow.length[u] > slow.length[r])
				slow.length[r] = slow.length[u];
}

static void check_lengths(const struct ec_policy *p, uint64_t length)
{
	uint64_t space = 0;
	uint32_t existing = 0;
	unsigned data = 0;

	deal(p, length);
	for (unsigned u = 0; u < (unsigned)p->k + p->m; u++) {
		assert_int_equal(ec_unit_length(p, length, u), slow.length[u]);
		space += slow.length[u];
		if (slow.length[u])
			existing |= 1u << u;
		data += u < p->k && slow.length[u];
	}
	assert_int_equal(ec_space(p, length), space);
	assert_int_equal(ec_units_existing(p, length), existing);
	assert_int_equal(ec_units_needed(p, length), data);
}

static void check_offsets(const struct ec_policy *p, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++) {
		const struct ec_place at = ec_place_of(p, i);

		assert_int_equal(at.unit, slow.unit[i]);
		assert_int_equal(at.at, slow.at[i]);
		assert_true(at.run > 0 && at.run <= p->cell);
		assert_int_equal((at.at + at.run) % p->cell, 0);
	}
}

static void every_length_and_offset_agrees_with_dealing_out(void **state)
{
	(void)state;
	for (unsigned k = 1; k <= 6; k++)
		for (uint32_t cell = 1; cell <= 5; cell++) {
			const struct ec_policy p = tiny(k, 2, cell);

			for (uint64_t length = 0; length <= 3 * k * cell + 2; length++) {
				check_lengths(&p, length);
				check_offsets(&p, length);
			}
		}
}

static void parts_of_units_agree_with_dealing_out(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		const struct ec_policy p = tiny(1 + random_below(10), 3, 1 + random_below(40));
		const uint64_t length = 1 + random_below(3000),
			       from = random_below((uint32_t)length);
		const uint64_t len = random_below((uint32_t)(length - from) + 1);

		deal(&p, length);
		for (unsigned u = 0; u < p.k; u++) {
			uint64_t n = 0, first = 0, at = 0;

			for (uint64_t i = from; i < from + len; i++)
				if (slow.unit[i] == u && n++ == 0)
					first = slow.at[i];
			assert_int_equal(ec_unit_part(&p, from, len, u, &at), n);
			if (n)
				assert_int_equal(at, first);
		}
	}
}

static void lengths_around_cells_rows_and_groups_are_hdfs_s(void **state)
{
	const struct ec_policy *p = ec_policy_by_id(EC_ID_RS_6_3);
	const uint64_t mib = 1 << 20, group = ec_group_capacity(p, 128 * mib);
	static const struct {
		uint64_t length, first, second, last, parity;
	} t[] = {
		/* group, unit 0, unit 1, unit 5, parity */
		{0, 0, 0, 0, 0},
		{1, 1, 0, 0, 1},
		{(1 << 20) - 1, (1 << 20) - 1, 0, 0, (1 << 20) - 1},
		{1 << 20, 1 << 20, 0, 0, 1 << 20},
		{(1 << 20) + 1, 1 << 20, 1, 0, 1 << 20},
		{(6 << 20) - 1, 1 << 20, 1 << 20, (1 << 20) - 1, 1 << 20},
		{6 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20},
		{(6 << 20) + 1, (1 << 20) + 1, 1 << 20, 1 << 20, (1 << 20) + 1},
	};

	(void)state;
	assert_int_equal(group, 768 * mib);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(ec_unit_length(p, t[i].length, 0), t[i].first);
		assert_int_equal(ec_unit_length(p, t[i].length, 1), t[i].second);
		assert_int_equal(ec_unit_length(p, t[i].length, 5), t[i].last);
		for (unsigned u = 6; u < 9; u++)
			assert_int_equal(ec_unit_length(p, t[i].length, u), t[i].parity);
	}
	assert_int_equal(ec_space(p, 1), 4);
	assert_int_equal(ec_space(p, group), 9 * 128 * mib);
	assert_int_equal(ec_unit_length(p, group - 1, 5), 128 * mib - 1);
}

static void the_longest_lengths_do_not_wrap(void **state)
{
	(void)state;
	for (unsigned k = 1; k < EC_UNITS_MAX; k++) {
		struct ec_policy p;
		uint64_t sum = 0, at;

		assert_int_equal(ec_policy_make(EC_CODEC_RS, k, EC_UNITS_MAX - k, EC_CELL_MAX,
						EC_ID_NONE, &p, NULL),
				 0);
		for (unsigned u = 0; u < k; u++)
			sum += ec_unit_length(&p, EC_LENGTH_MAX, u);
		assert_int_equal(sum, EC_LENGTH_MAX);
		assert_true(ec_space(&p, EC_LENGTH_MAX) >= EC_LENGTH_MAX);
		for (uint64_t off = EC_LENGTH_MAX - 10; off < EC_LENGTH_MAX; off++) {
			const struct ec_place place = ec_place_of(&p, off);

			assert_int_equal(ec_unit_part(&p, off, 1, place.unit, &at), 1);
			assert_int_equal(at, place.at);
		}
	}
	assert_true(ec_length_ok(EC_LENGTH_MAX));
	assert_false(ec_length_ok(EC_LENGTH_MAX + 1));
	assert_false(ec_length_ok(UINT64_MAX));
}

static void ids_are_those_of_hdfs(void **state)
{
	int64_t id = 0;

	(void)state;
	assert_int_equal(ec_id_next(0, &id), 0);
	assert_true(id == -9223372036854775792ll && id == EC_GROUP_ID_FIRST);
	assert_int_equal(ec_id_next(id, &id), 0);
	assert_true(id == -9223372036854775776ll);
	/* from a unit's id: the next group */
	assert_int_equal(ec_id_next(ec_id_of(id, 8), &id), 0);
	assert_true(id == -9223372036854775760ll);
	assert_int_equal(ec_id_next(-32, &id), 0);
	assert_true(id == -16);
	assert_int_equal(ec_id_next(-16, &id), -ENOSPC);
	assert_int_equal(ec_id_next(-1, &id), -ENOSPC);
	assert_int_equal(ec_id_next(1073741825, &id), -ENOSPC);
	assert_true(id == -16); /* untouched */
	for (unsigned u = 0; u < EC_UNITS_MAX; u++) {
		const int64_t block = ec_id_of(EC_GROUP_ID_FIRST, u);

		assert_true(block == EC_GROUP_ID_FIRST + (int64_t)u);
		assert_true(ec_id_is_striped(block));
		assert_true(ec_id_group(block) == EC_GROUP_ID_FIRST);
		assert_int_equal(ec_id_unit(block), u);
	}
	assert_false(ec_id_is_striped(1073741825));
}

/* The reference sorts, as Hadoop does. */
static int descending(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void the_safe_length_is_the_rows_that_k_units_hold(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 5000; round++) {
		const struct ec_policy p = tiny(1 + random_below(6), 1 + random_below(4), 4);
		const unsigned n = random_below((uint32_t)p.k + p.m + 1);
		uint64_t lengths[EC_UNITS_MAX], sorted[EC_UNITS_MAX], expect = 0;

		for (unsigned i = 0; i < n; i++)
			lengths[i] = random_below(30);
		memcpy(sorted, lengths, sizeof(sorted));
		qsort(sorted, n, sizeof(sorted[0]), descending);
		if (n >= p.k)
			expect = sorted[p.k - 1] / 4 * 4 * p.k;
		assert_int_equal(ec_safe_length(&p, lengths, n), expect);
	}
}

static void
a_length_that_no_unit_has_is_not_wrapped_round_to_one_that_a_group_may_have(void **state)
{
	(void)state;
	for (uint32_t id = EC_ID_RS_6_3; id <= EC_ID_RS_10_4; id++) {
		const struct ec_policy *p = ec_policy_by_id(id);

		for (unsigned bit = 40; bit < 64; bit++)
			for (unsigned less = 0; less < 2; less++) {
				const uint64_t len = (UINT64_C(2) << bit) - less;
				uint64_t lengths[EC_UNITS_MAX], safe;

				for (unsigned u = 0; u < EC_UNITS_MAX; u++)
					lengths[u] = len;
				safe = ec_safe_length(p, lengths, p->k);
				if (ec_length_ok(safe))
					assert_true(safe / ec_row_bytes(p) == len / p->cell);
				else
					assert_true(len > EC_LENGTH_MAX / p->k);
				assert_int_equal(ec_length_ok(ec_written_length(p, safe, 0, len)),
						 ec_length_ok(safe));
			}
	}
}

/* ---- plans ---- */
/* Marks in @seen what the band brings, and holds it against the dealt-out group. */
static void check_band(const struct ec_policy *p, const struct ec_band *b, uint64_t from,
		       uint64_t len, uint8_t *seen)
{
	assert_true(b->len > 0 && b->at % p->cell + b->len <= p->cell);
	assert_true(b->want && !(b->want >> p->k));
	for (unsigned u = 0; u < p->k; u++) {
		if (!(b->want >> u & 1))
			continue;
		for (uint32_t i = 0; i < b->len; i++) {
			const uint64_t dest = b->dest[u] + i;

			assert_true(dest < len);
			assert_int_equal(slow.unit[from + dest], u);
			assert_int_equal(slow.at[from + dest], b->at + i);
			assert_int_equal(seen[dest]++, 0);
		}
		assert_int_equal(b->have[u], b->len);
	}
	for (unsigned u = 0; u < (unsigned)p->k + p->m; u++) {
		const uint64_t left = slow.length[u] > b->at ? slow.length[u] - b->at : 0;

		assert_int_equal(b->have[u], left < b->len ? left : b->len);
	}
}

static void check_plan(const struct ec_policy *p, uint64_t length, uint64_t from, uint64_t len)
{
	static uint8_t seen[GROUP_MAX];
	struct ec_plan plan;
	struct ec_band b;
	unsigned bands = 0;
	uint64_t last = 0;

	memset(seen, 0, sizeof(seen));
	assert_int_equal(ec_plan_start(&plan, p, length, from, len), 0);
	while (ec_plan_next(&plan, &b)) {
		assert_true(!bands++ || b.at >= last); /* in order, without overlap */
		last = b.at + b.len;
		check_band(p, &b, from, len, seen);
	}
	assert_false(ec_plan_next(&plan, &b)); /* stays over */
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(seen[i], 1);
	assert_true(bands <= (len / ec_row_bytes(p) + 2) * 3);
}

static void every_range_is_planned_in_a_small_group(void **state)
{
	const struct ec_policy p = tiny(3, 2, 2);

	(void)state;
	for (uint64_t length = 0; length <= 15; length++) {
		deal(&p, length);
		for (uint64_t from = 0; from <= length; from++)
			for (uint64_t len = 0; len <= length - from; len++)
				check_plan(&p, length, from, len);
	}
}

static void random_ranges_are_planned_in_random_groups(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		const struct ec_policy p =
			tiny(1 + random_below(10), 1 + random_below(6), 1 + random_below(60));
		const uint64_t length = random_below(GROUP_MAX + 1);
		const uint64_t from = random_below((uint32_t)length + 1);
		const uint64_t len = random_below((uint32_t)(length - from) + 1);

		deal(&p, length);
		check_plan(&p, length, from, len);
	}
}

static void a_range_outside_the_group_is_refused(void **state)
{
	const struct ec_policy p = tiny(3, 2, 2);
	struct ec_plan plan;

	(void)state;
	assert_int_equal(ec_plan_start(&plan, &p, 10, 10, 0), 0);
	assert_int_equal(ec_plan_start(&plan, &p, 10, 10, 1), -EINVAL);
	assert_int_equal(ec_plan_start(&plan, &p, 10, 11, 0), -EINVAL);
	assert_int_equal(ec_plan_start(&plan, &p, 10, 5, UINT64_MAX - 2), -EINVAL);
	assert_int_equal(ec_plan_start(&plan, &p, UINT64_MAX, 0, 1), -EINVAL);
}

static void targets_are_the_missing_units_in_ascending_order(void **state)
{
	const struct ec_policy *p = ec_policy_by_id(EC_ID_RS_6_3);
	const uint64_t mib = 1 << 20;
	uint8_t u[EC_UNITS_MAX];

	(void)state;
	assert_int_equal(ec_targets(p, 6 * mib, 0x1ff & ~(1u << 1 | 1u << 7), 0, 3, u), 2);
	assert_int_equal(u[0], 1);
	assert_int_equal(u[1], 7);
	assert_int_equal(ec_targets(p, 6 * mib, 0x1ff & ~(1u << 1 | 1u << 7), 0, 1, u), 1);
	assert_int_equal(u[0], 1);
	assert_int_equal(ec_targets(p, 6 * mib, 0x1ff & ~(1u << 1 | 1u << 7), 1u << 1, 3, u), 1);
	assert_int_equal(u[0], 7);
	/* Units 2 to 5 of a group of two cells do not exist and are not missing. */
	assert_int_equal(ec_targets(p, 2 * mib, 1u << 0 | 1u << 6, 0, 9, u), 3);
	assert_int_equal(u[0], 1);
	assert_int_equal(u[1], 7);
	assert_int_equal(u[2], 8);
	assert_int_equal(ec_targets(p, 0, 0, 0, 9, u), 0);
}

static void a_row_that_ended_early_is_not_taken_for_a_whole_one(void **state)
{
	struct ec_policy p;
	const uint64_t cell = 64 << 10, row = 3 * cell;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(ec_policy_make(EC_CODEC_RS, 3, 2, (uint32_t)cell, 64, &p, &err), 0);
	for (uint64_t length = 1; length <= 4 * row; length += 4999) {
		uint64_t unit[5], safe;

		for (unsigned u = 0; u < 5; u++)
			unit[u] = ec_unit_length(&p, length, u);
		safe = ec_safe_length(&p, unit, 5);
		assert_in_range(ec_written_length(&p, safe, unit[2], unit[0]), length / row * row,
				length);
		/* the last data unit and another one do not answer */
		safe = ec_safe_length(&p, (uint64_t[]){unit[0], unit[3], unit[4]}, 3);
		assert_true(ec_written_length(&p, safe, 0, unit[0]) <= length);
		assert_true(ec_written_length(&p, safe, 0, unit[0]) + row >= length / row * row);
	}
	assert_int_equal(ec_written_length(&p, 0, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_length_and_offset_agrees_with_dealing_out),
		cmocka_unit_test(parts_of_units_agree_with_dealing_out),
		cmocka_unit_test(lengths_around_cells_rows_and_groups_are_hdfs_s),
		cmocka_unit_test(the_longest_lengths_do_not_wrap),
		cmocka_unit_test(ids_are_those_of_hdfs),
		cmocka_unit_test(the_safe_length_is_the_rows_that_k_units_hold),
		cmocka_unit_test(
			a_length_that_no_unit_has_is_not_wrapped_round_to_one_that_a_group_may_have),
		cmocka_unit_test(a_row_that_ended_early_is_not_taken_for_a_whole_one),
		cmocka_unit_test(every_range_is_planned_in_a_small_group),
		cmocka_unit_test(random_ranges_are_planned_in_random_groups),
		cmocka_unit_test(a_range_outside_the_group_is_refused),
		cmocka_unit_test(targets_are_the_missing_units_in_ascending_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
