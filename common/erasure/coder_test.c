/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: parity is what a plain table-driven coder makes and what Hadoop's coders made of
 * the same bytes; every pattern of lost units that can be repaired is, whatever lengths and
 * alignments; and nothing is written outside the outputs or allocated on the way. */
#include "common/erasure/coder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/crc.h"
#include "common/base/fail_alloc.h"

#include "common/base/test_random.h"

#define LEN_MAX 40000 /* more than two runs of the coder's zeros */
#define GUARD 64      /* bytes on each side of an output that nobody may touch */
#define FILL 0xa5

/* ---- the reference: GF(2^8) by logarithms, polynomial 0x11d, generator 2 ---- */
static uint8_t exp_of[510], log_of[256];

static void ref_init(void)
{
	unsigned x = 1;

	for (unsigned i = 0; i < 255; i++) {
		exp_of[i] = exp_of[i + 255] = (uint8_t)x;
		log_of[x] = (uint8_t)i;
		x <<= 1;
		if (x & 0x100)
			x ^= 0x11d;
	}
}

static uint8_t ref_mul(uint8_t a, uint8_t b)
{
	return a && b ? exp_of[log_of[a] + log_of[b]] : 0;
}

/* Row @row of parity: 1 / ((k + row) xor j), or ones for xor. */
static uint8_t ref_coefficient(const struct ec_policy *p, unsigned row, unsigned j)
{
	return p->codec == EC_CODEC_XOR ? 1 : exp_of[255 - log_of[(p->k + row) ^ j]];
}

static uint8_t ref_byte(const struct ec_src *s, size_t i)
{
	return i < s->len ? s->data[i] : 0;
}

static void ref_parity(const struct ec_policy *p, unsigned row, const struct ec_src *data,
		       uint8_t *out, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t sum = 0;

		for (unsigned j = 0; j < p->k; j++)
			sum ^= ref_mul(ref_coefficient(p, row, j), ref_byte(&data[j], i));
		out[i] = sum;
	}
}

/* ---- stripes ---- */
static struct stripe {
	struct ec_policy p;
	struct ec_coder *c;
	unsigned all; /* k + m */
	size_t len;
	struct ec_src unit[EC_UNITS_MAX]; /* as the reference made them; the parity is whole */
	uint8_t bytes[EC_UNITS_MAX][LEN_MAX + 64];
	uint8_t guarded[EC_UNITS_MAX][GUARD + 64 + LEN_MAX + GUARD];
	uint8_t *out[EC_UNITS_MAX]; /* into guarded */
} st;

static void use(enum ec_codec codec, unsigned k, unsigned m)
{
	ec_coder_free(st.c);
	st.c = NULL;
	assert_int_equal(ec_policy_make(codec, k, m, 65536, EC_ID_NONE, &st.p, NULL), 0);
	assert_int_equal(ec_coder_new(&st.p, &st.c, NULL), 0);
	st.all = k + m;
}

static void clear_outputs(unsigned skew)
{
	for (unsigned u = 0; u < EC_UNITS_MAX; u++) {
		const uintptr_t at = ((uintptr_t)st.guarded[u] + GUARD + 63) / 64 * 64;

		memset(st.guarded[u], FILL, GUARD + 64 + st.len + GUARD);
		st.out[u] = (uint8_t *)at + (skew ? random_below(skew) : 0);
	}
}

static bool filled(const uint8_t *p, const uint8_t *end)
{
	while (p < end)
		if (*p++ != FILL)
			return false;
	return true;
}

/* Whatever was not an output of @len bytes is as clear_outputs() left it. */
static void check_guards(uint32_t written)
{
	for (unsigned u = 0; u < EC_UNITS_MAX; u++) {
		const uint8_t *end = st.guarded[u] + GUARD + 64 + st.len + GUARD;

		if (written >> u & 1) {
			assert_true(filled(st.guarded[u], st.out[u]));
			assert_true(filled(st.out[u] + st.len, end));
		} else {
			assert_true(filled(st.guarded[u], end));
		}
	}
}

/* Random data of @len bytes; with @ragged, units that end early or are not there. Parity by the
 * reference. @skew: the largest misalignment of a unit. */
static void make_stripe(size_t len, bool ragged, unsigned skew)
{
	st.len = len;
	for (unsigned u = 0; u < st.all; u++) {
		uint8_t *at = (uint8_t *)(((uintptr_t)st.bytes[u] + 31) / 32 * 32);

		at += skew ? random_below(skew) : 0;
		for (size_t i = 0; i < len; i++)
			at[i] = (uint8_t)random_below(256);
		st.unit[u] = (struct ec_src){at, len};
		if (u >= st.p.k) {
			ref_parity(&st.p, u - st.p.k, st.unit, at, len);
		} else if (ragged && random_below(3)) {
			st.unit[u].len = random_below((uint32_t)len + 1);
			if (!random_below(4))
				st.unit[u] = (struct ec_src){NULL, 0};
		}
	}
	clear_outputs(skew);
}

/* Unit @u is in st.out[u], zeros behind its end. */
static void check_output(unsigned u)
{
	const struct ec_src *s = &st.unit[u];

	assert_true(!s->len || !memcmp(st.out[u], s->data, s->len));
	for (size_t i = s->len; i < st.len; i++)
		assert_int_equal(st.out[u][i], 0);
}

static void check_encode(void)
{
	ec_encode(st.c, st.unit, st.out + st.p.k, st.len);
	for (unsigned u = st.p.k; u < st.all; u++)
		check_output(u);
	check_guards(((1u << st.p.m) - 1) << st.p.k);
}

/* Only what @have names may be looked at: the others are NULL with a length. */
static void check_decode(uint32_t have, uint32_t want)
{
	struct ec_src units[EC_UNITS_MAX];
	uint8_t *out[EC_UNITS_MAX] = {0};

	for (unsigned u = 0; u < st.all; u++) {
		units[u] = have >> u & 1 ? st.unit[u] : (struct ec_src){NULL, SIZE_MAX};
		if (want >> u & 1)
			out[u] = st.out[u];
	}
	assert_int_equal(ec_decode(st.c, have, want, units, out, st.len), 0);
	for (unsigned u = 0; u < st.all; u++)
		if (want >> u & 1)
			check_output(u);
	check_guards(want);
}

/* The bytes of a unit of st, which make_stripe() only lends as constant. */
static uint8_t *bytes_of(unsigned u)
{
	return (uint8_t *)(uintptr_t)st.unit[u].data;
}

static void flip(unsigned u, size_t at, unsigned bit)
{
	bytes_of(u)[at] = (uint8_t)(bytes_of(u)[at] ^ 1u << bit);
}

static const struct {
	enum ec_codec codec;
	unsigned k, m;
	uint32_t parity_crc[8]; /* see the_parity_is_what_hadoop_s_coders_made() */
} policies[] = {
	{EC_CODEC_RS, 6, 3, {0x21d6053f, 0xbdf57787, 0x795ef8b6}},
	{EC_CODEC_RS, 3, 2, {0x87b8e976, 0xb07591fd}},
	{EC_CODEC_RS, 10, 4, {0x25a581b9, 0x92f57326, 0x17bbac74, 0xa7eb0032}},
	{EC_CODEC_XOR, 2, 1, {0xf04ff6cf}},
	{EC_CODEC_RS, 1, 1, {0xda5a8304}},
	{EC_CODEC_RS,
	 8,
	 8,
	 {0x759fb06b, 0x7cbe1888, 0x27aa25d4, 0x0a2723db, 0x9a1c4688, 0x44d5328d, 0x7c0974b4,
	  0xf2dc08df}},
	{EC_CODEC_RS, 12, 4, {0xe0eb9346, 0x11b22173, 0x676fa4ce, 0xff2cbb22}},
	{EC_CODEC_RS, 4, 1, {0x0659ed11}},
	{EC_CODEC_XOR, 5, 1, {0x69bbe920}},
	{EC_CODEC_XOR, 15, 1, {0x1794a26b}},
};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))
#define BUILT_IN 4 /* of them, at the beginning */

static void use_row(size_t i)
{
	use(policies[i].codec, policies[i].k, policies[i].m);
}

/* The same bytes went through Hadoop 3.4.2's RSRawEncoder and XORRawEncoder; the CRC32C of each
 * parity unit is in the table (tests/interop/lib/Coders.java golden). */
static void the_parity_is_what_hadoop_s_coders_made(void **state)
{
	(void)state;
	for (size_t row = 0; row < POLICIES; row++) {
		use_row(row);
		make_stripe(1000, false, 0);
		for (unsigned u = 0; u < st.p.k; u++) {
			uint32_t x = u + 1;

			for (size_t i = 0; i < st.len; i++) {
				x = x * 1103515245 + 12345;
				st.bytes[u][i] = (uint8_t)(x >> 16);
			}
			st.unit[u].data = st.bytes[u];
		}
		ec_encode(st.c, st.unit, st.out + st.p.k, st.len);
		for (unsigned r = 0; r < st.p.m; r++)
			assert_int_equal(crc_compute(CRC_CRC32C, st.out[st.p.k + r], st.len),
					 policies[row].parity_crc[r]);
	}
}

static void every_length_and_alignment_agrees_with_the_reference(void **state)
{
	(void)state;
	for (size_t row = 0; row < POLICIES; row++) {
		use_row(row);
		for (size_t len = 0; len <= 300; len += len < 140 ? 1 : 7) {
			make_stripe(len, false, 0);
			check_encode();
			make_stripe(len, true, 33);
			check_encode();
		}
	}
}

static void every_pattern_of_lost_units_of_hdfs_s_policies_is_repaired(void **state)
{
	static const unsigned all_of_them[BUILT_IN] = {129, 15, 1470, 3};

	(void)state;
	for (size_t row = 0; row < BUILT_IN; row++) {
		unsigned patterns = 0;

		use_row(row);
		for (uint32_t lost = 1; lost < 1u << st.all; lost++) {
			if ((unsigned)__builtin_popcount(lost) > st.p.m)
				continue;
			make_stripe(97, patterns++ % 2, 16);
			check_decode(((1u << st.all) - 1) & ~lost, lost);
		}
		assert_int_equal(patterns, all_of_them[row]);
	}
}

/* All codes of up to 9 units, all sets of units that are there and wanted, not only complements. */
static void every_set_of_every_small_code_is_repaired(void **state)
{
	(void)state;
	for (unsigned k = 1; k <= 6; k++)
		for (unsigned m = 1; m <= 9 - k && m <= 4; m++) {
			const uint32_t all = (1u << (k + m)) - 1;

			use(EC_CODEC_RS, k, m);
			make_stripe(33, true, 0);
			for (uint32_t have = 0; have <= all; have++) {
				const uint32_t some = random_below(all) | random_below(all);
				const uint32_t want = all & ~have & some;

				if ((unsigned)__builtin_popcount(have) < k)
					continue;
				clear_outputs(0);
				check_decode(have, want);
			}
		}
}

static void random_stripes_of_random_codes_are_repaired(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 150; round++) {
		const bool is_xor = !random_below(4);
		const unsigned k = 1 + random_below(EC_UNITS_MAX - 1);
		uint32_t lost = 0;

		use(is_xor ? EC_CODEC_XOR : EC_CODEC_RS, k,
		    is_xor ? 1 : 1 + random_below(EC_UNITS_MAX - k));
		make_stripe(random_below(round % 10 ? 3000 : LEN_MAX), random_below(2),
			    random_below(2) * 40);
		check_encode();
		for (unsigned n = 0; n < st.p.m; n++)
			lost |= 1u << random_below(st.all);
		clear_outputs(random_below(2) * 40);
		check_decode(((1u << st.all) - 1) & ~lost, lost);
	}
}

static void units_that_are_all_zeros_need_not_be_there(void **state)
{
	(void)state;
	use_row(0);
	make_stripe(5000, false, 0);
	for (unsigned u = 1; u < 6; u++)
		st.unit[u] = (struct ec_src){NULL, 0};
	for (unsigned r = 0; r < 3; r++)
		ref_parity(&st.p, r, st.unit, bytes_of(6 + r), st.len);
	/* A file of one cell: any one of the four blocks that exist gives it back. */
	for (unsigned left = 6; left < 9; left++) {
		clear_outputs(0);
		check_decode(0x3eu | 1u << left, 0x1c1u & ~(1u << left));
	}
}

static void any_part_of_the_units_can_be_coded_alone(void **state)
{
	(void)state;
	use_row(0);
	make_stripe(4000, true, 40);
	for (size_t at = 0, n; at < st.len; at += n) {
		struct ec_src part[EC_UNITS_MAX];
		uint8_t *out[EC_UNITS_MAX];

		n = 1 + random_below(500);
		n = n < st.len - at ? n : st.len - at;
		for (unsigned u = 0; u < st.all; u++) {
			const struct ec_src *s = &st.unit[u];

			part[u] = s->len > at ? (struct ec_src){s->data + at, s->len - at}
					      : (struct ec_src){NULL, 0};
			out[u] = st.out[u] + at;
		}
		ec_encode(st.c, part, out + st.p.k, n);
	}
	for (unsigned u = st.p.k; u < st.all; u++)
		check_output(u);
}

static void a_check_finds_every_changed_byte(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		uint32_t have, differ = 99;
		unsigned bad;

		use_row(round % POLICIES);
		have = (1u << st.all) - 1;
		make_stripe(1 + random_below(6000), false, 40);
		if (st.p.m > 1)
			have &= ~(1u << random_below(st.all));
		assert_int_equal(ec_check(st.c, have, st.unit, st.len, &differ), 0);
		assert_int_equal(differ, 0);
		do
			bad = random_below(st.all);
		while (!(have >> bad & 1));
		flip(bad, random_below((uint32_t)st.len), random_below(8));
		assert_int_equal(ec_check(st.c, have, st.unit, st.len, &differ), 0);
		assert_int_not_equal(differ, 0);
		assert_int_equal(differ & ~have, 0);
		if ((unsigned)__builtin_popcount(have & ((1u << bad) - 1)) >= st.p.k)
			assert_int_equal(differ, 1u << bad); /* it is one of those predicted */
		if ((unsigned)__builtin_popcount(have) < st.p.k + 2u)
			continue;
		for (unsigned u = 0; u < st.all; u++) { /* leaving one out names the bad one */
			if (!(have >> u & 1))
				continue;
			assert_int_equal(
				ec_check(st.c, have & ~(1u << u), st.unit, st.len, &differ), 0);
			assert_int_equal(differ == 0, u == bad);
		}
	}
}

static void every_changed_unit_that_is_predicted_is_named(void **state)
{
	uint32_t differ = 0;

	(void)state;
	use_row(2); /* 10 + 4 */
	make_stripe(5000, false, 0);
	flip(13, 0, 0);
	flip(10, 4999, 7);
	assert_int_equal(ec_check(st.c, 0x3fff, st.unit, st.len, &differ), 0);
	assert_int_equal(differ, 1u << 10 | 1u << 13);
}

static void a_short_unit_with_bytes_where_zeros_belong_is_found(void **state)
{
	uint32_t differ = 99;

	(void)state;
	use_row(1);
	make_stripe(100, false, 0);
	st.unit[2].len = 60;
	for (unsigned r = 0; r < 2; r++)
		ref_parity(&st.p, r, st.unit, bytes_of(3 + r), st.len);
	assert_int_equal(ec_check(st.c, 0x1f, st.unit, st.len, &differ), 0);
	assert_int_equal(differ, 0);
	/* predicts a parity unit */
	assert_int_equal(ec_check(st.c, 0x1d, st.unit, st.len, &differ), 0);
	assert_int_equal(differ, 0);
	st.unit[4].len = 99; /* a parity unit that lacks its last byte */
	flip(4, 99, 0);      /* behind its end: nobody looks */
	assert_int_equal(ec_check(st.c, 0x1f, st.unit, st.len, &differ), 0);
	ref_parity(&st.p, 1, st.unit, st.out[4], st.len);
	assert_int_equal(differ, st.out[4][99] ? 1u << 4 : 0);
}

static void sets_that_make_no_sense_are_refused_and_nothing_is_written(void **state)
{
	uint32_t differ = 99;

	(void)state;
	use_row(1); /* 3 + 2 */
	make_stripe(100, false, 0);
	assert_int_equal(ec_decode(st.c, 0x03, 0x04, st.unit, st.out, st.len), -ENODATA);
	assert_int_equal(ec_decode(st.c, 0, 0x1f, st.unit, st.out, st.len), -ENODATA);
	assert_int_equal(ec_decode(st.c, 0x0f, 0x08, st.unit, st.out, st.len), -EINVAL);
	assert_int_equal(ec_decode(st.c, 0x0f, 0x20, st.unit, st.out, st.len), -EINVAL);
	assert_int_equal(ec_decode(st.c, 0x2f, 0x10, st.unit, st.out, st.len), -EINVAL);
	assert_int_equal(ec_decode(st.c, 0x80000007u, 0x10, st.unit, st.out, st.len), -EINVAL);
	assert_int_equal(ec_decode(st.c, 0x07, 0, st.unit, st.out, st.len), 0);
	assert_int_equal(ec_check(st.c, 0x07, st.unit, st.len, &differ), -ENODATA);
	assert_int_equal(ec_check(st.c, 0x3f, st.unit, st.len, &differ), -EINVAL);
	assert_int_equal(differ, 99);
	check_guards(0);
}

static void the_last_patterns_are_remembered(void **state)
{
	uint64_t hits, misses;
	unsigned patterns = 0;

	(void)state;
	use_row(0);
	make_stripe(64, false, 0);
	for (uint32_t lost = 1; patterns < EC_CACHED; lost++) { /* fills it */
		if (__builtin_popcount(lost) > 3)
			continue;
		patterns++;
		clear_outputs(0);
		check_decode(0x1ff & ~lost, lost);
		clear_outputs(0);
		check_decode(0x1ff & ~lost, lost);
	}
	ec_coder_cache_stats(st.c, &hits, &misses);
	assert_int_equal(misses, EC_CACHED);
	assert_int_equal(hits, EC_CACHED);
	clear_outputs(0);
	check_decode(0x1fe, 1); /* the oldest: still there, and the newest now */
	clear_outputs(0);
	check_decode(0x0ff, 0x100); /* a new one: the second oldest goes */
	clear_outputs(0);
	check_decode(0x1fe, 1);
	ec_coder_cache_stats(st.c, &hits, &misses);
	assert_int_equal(misses, EC_CACHED + 1);
	assert_int_equal(hits, EC_CACHED + 2);
	clear_outputs(0);
	check_decode(0x1fd, 2);
	ec_coder_cache_stats(st.c, &hits, &misses);
	assert_int_equal(misses, EC_CACHED + 2);
}

static void nothing_is_allocated_on_the_way(void **state)
{
	uint32_t differ;

	(void)state;
	use_row(2);
	make_stripe(3000, true, 40);
	fail_alloc_in = 0;
	check_encode();
	for (uint32_t lost = 0x0f; lost <= 0x0f00; lost <<= 1) {
		clear_outputs(0);
		check_decode(0x3fff & ~lost, lost);
	}
	assert_int_equal(ec_check(st.c, 0x3fff, st.unit, st.len, &differ), 0);
	assert_int_equal(fail_alloc_in, 0);
	fail_alloc_in = -1;
}

static void a_coder_that_cannot_be_made_says_why(void **state)
{
	struct ec_coder *c = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(ec_coder_new(ec_policy_by_id(EC_ID_RS_LEGACY_6_3), &c, &err), -ENOTSUP);
	assert_int_not_equal(err.text[0], 0);
	assert_int_equal(ec_coder_new(ec_policy_by_id(EC_ID_REPLICATION), &c, &err), -ENOTSUP);
	fail_alloc_in = 0;
	assert_int_equal(ec_coder_new(ec_policy_by_id(EC_ID_RS_6_3), &c, &err), -ENOMEM);
	fail_alloc_in = -1;
	assert_null(c);
	ec_coder_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_parity_is_what_hadoop_s_coders_made),
		cmocka_unit_test(every_length_and_alignment_agrees_with_the_reference),
		cmocka_unit_test(every_pattern_of_lost_units_of_hdfs_s_policies_is_repaired),
		cmocka_unit_test(every_set_of_every_small_code_is_repaired),
		cmocka_unit_test(random_stripes_of_random_codes_are_repaired),
		cmocka_unit_test(units_that_are_all_zeros_need_not_be_there),
		cmocka_unit_test(any_part_of_the_units_can_be_coded_alone),
		cmocka_unit_test(a_check_finds_every_changed_byte),
		cmocka_unit_test(every_changed_unit_that_is_predicted_is_named),
		cmocka_unit_test(a_short_unit_with_bytes_where_zeros_belong_is_found),
		cmocka_unit_test(sets_that_make_no_sense_are_refused_and_nothing_is_written),
		cmocka_unit_test(the_last_patterns_are_remembered),
		cmocka_unit_test(nothing_is_allocated_on_the_way),
		cmocka_unit_test(a_coder_that_cannot_be_made_says_why),
	};
	int rc;

	ref_init();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	ec_coder_free(st.c);
	return rc;
}
