/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when coder and geometry work together as writers, readers and reconstruction will
 * use them: a group is written row by row, its last row partial; any range of it is read with any
 * units lost by following the plan; units are rebuilt window by window; and all bytes are right. */
#include "common/erasure/coder.h"
#include "common/erasure/geometry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/test_random.h"

#define GROUP_MAX 20000

static struct {
	struct ec_policy p;
	struct ec_coder *c;
	unsigned all;
	uint64_t length;
	uint8_t data[GROUP_MAX];
	uint8_t unit[EC_UNITS_MAX][GROUP_MAX]; /* block files, as long as geometry says */
} g;

/* Cells smaller than any that HDFS allows, so that a group has many. */
static void use(enum ec_codec codec, unsigned k, unsigned m, uint32_t cell)
{
	ec_coder_free(g.c);
	g.c = NULL;
	assert_int_equal(ec_policy_make(codec, k, m, 1024, EC_ID_NONE, &g.p, NULL), 0);
	g.p.cell = cell;
	assert_int_equal(ec_coder_new(&g.p, &g.c, NULL), 0);
	g.all = k + m;
}

/* A writer: bytes to their places one cell after the other, parity when a row is over. */
static void write_group(uint64_t length)
{
	uint8_t *parity[EC_UNITS_MAX];
	struct ec_src row[EC_UNITS_MAX];
	uint32_t have[EC_UNITS_MAX];

	g.length = length;
	for (uint64_t i = 0; i < length; i++)
		g.data[i] = (uint8_t)random_below(256);
	memset(g.unit, 0xee, sizeof(g.unit));
	for (uint64_t off = 0; off < length;) {
		const struct ec_place at = ec_place_of(&g.p, off);
		const uint64_t n = at.run < length - off ? at.run : length - off;

		memcpy(g.unit[at.unit] + at.at, g.data + off, n);
		off += n;
	}
	for (uint64_t at = 0; at < ec_unit_length(&g.p, length, 0); at += g.p.cell) {
		ec_have(&g.p, length, at, g.p.cell, have);
		for (unsigned u = 0; u < g.p.k; u++)
			row[u] = (struct ec_src){g.unit[u] + at, have[u]};
		for (unsigned r = 0; r < g.p.m; r++)
			parity[r] = g.unit[g.p.k + r] + at;
		ec_encode(g.c, row, parity, have[g.p.k]); /* as long as the first cell of the row */
	}
}

static uint32_t lose(unsigned most)
{
	uint32_t lost = 0;

	for (unsigned n = 0; n < most; n++)
		lost |= 1u << random_below(g.all);
	return lost;
}

/* What a reader fetches of a band: what it wants, and when some of that is lost so many others that
 * with the zeros there are k. */
static uint32_t fetched(const struct ec_band *b, uint32_t lost, uint32_t *ret_zero)
{
	uint32_t fetch = b->want & ~lost;

	*ret_zero = 0;
	for (unsigned u = 0; u < g.p.k; u++)
		*ret_zero |= b->have[u] ? 0 : 1u << u;
	for (unsigned u = 0;
	     (b->want & lost) && u < g.all && __builtin_popcount(fetch | *ret_zero) < g.p.k; u++)
		if (!(lost >> u & 1))
			fetch |= 1u << u & ~*ret_zero;
	return fetch;
}

/* A reader: nothing of a lost unit is looked at. */
static void read_range(uint64_t from, uint64_t len, uint32_t lost)
{
	static uint8_t got[GROUP_MAX];
	struct ec_plan plan;
	struct ec_band b;

	memset(got, 0x55, sizeof(got));
	assert_int_equal(ec_plan_start(&plan, &g.p, g.length, from, len), 0);
	while (ec_plan_next(&plan, &b)) {
		uint32_t zero, fetch = fetched(&b, lost, &zero), rebuild = b.want & lost;
		struct ec_src units[EC_UNITS_MAX] = {{NULL, 0}};
		uint8_t *out[EC_UNITS_MAX] = {NULL};

		for (unsigned u = 0; u < g.all; u++) {
			if (fetch >> u & 1) {
				assert_true(b.at + b.have[u] <= ec_unit_length(&g.p, g.length, u));
				units[u] = (struct ec_src){g.unit[u] + b.at, b.have[u]};
			}
			if (b.want & fetch & 1u << u)
				memcpy(got + b.dest[u], g.unit[u] + b.at, b.len);
			else if (rebuild >> u & 1)
				out[u] = got + b.dest[u];
		}
		if (rebuild)
			assert_int_equal(ec_decode(g.c, fetch | zero, rebuild, units, out, b.len),
					 0);
	}
	assert_memory_equal(got, g.data + from, len);
	assert_int_equal(got[len], 0x55);
}

/* A data node: the units of @lost, in windows that fit no cell, from as many others as are needed.
 */
static void rebuild(uint32_t lost)
{
	static uint8_t fresh[EC_UNITS_MAX][GROUP_MAX];
	const uint32_t existing = ec_units_existing(&g.p, g.length);
	const uint32_t zero = ((1u << g.p.k) - 1) & ~existing;
	const uint32_t window = 1 + random_below(3 * g.p.cell);
	const uint64_t end = ec_unit_length(&g.p, g.length, 0);
	uint8_t target[EC_UNITS_MAX];
	uint32_t want = 0, left = existing & ~lost, read = 0;
	unsigned targets = ec_targets(&g.p, g.length, left, 0, EC_UNITS_MAX, target);

	for (unsigned i = 0; i < targets; i++)
		want |= 1u << target[i];
	assert_int_equal(want, existing & lost);
	for (unsigned n = ec_units_needed(&g.p, g.length); n; n--) {
		read |= left & -left;
		left &= left - 1;
	}
	for (uint64_t at = 0; at < end; at += window) {
		const uint32_t len = (uint32_t)(end - at < window ? end - at : window);
		struct ec_src units[EC_UNITS_MAX];
		uint8_t *out[EC_UNITS_MAX];
		uint32_t have[EC_UNITS_MAX], differ;

		ec_have(&g.p, g.length, at, len, have);
		for (unsigned u = 0; u < g.all; u++) {
			units[u] = (struct ec_src){read >> u & 1 ? g.unit[u] + at : NULL, 0};
			units[u].len = read >> u & 1 ? have[u] : 0;
			out[u] = fresh[u] + at;
		}
		assert_int_equal(ec_decode(g.c, read | zero, want, units, out, len), 0);
		for (unsigned u = 0; u < g.all; u++)
			if (want >> u & 1)
				units[u] = (struct ec_src){fresh[u] + at, have[u]};
		if (!want)
			continue;
		assert_int_equal(ec_check(g.c, read | zero | want, units, len, &differ), 0);
		assert_int_equal(differ, 0);
	}
	for (unsigned i = 0; i < targets; i++)
		assert_memory_equal(fresh[target[i]], g.unit[target[i]],
				    ec_unit_length(&g.p, g.length, target[i]));
}

static void any_range_is_read_with_any_m_units_lost(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 400; round++) {
		const bool is_xor = !random_below(5);
		const unsigned k = 1 + random_below(10), m = is_xor ? 1 : 1 + random_below(5);

		use(is_xor ? EC_CODEC_XOR : EC_CODEC_RS, k, m,
		    1 + random_below(round % 4 ? 300 : 20));
		write_group(random_below(GROUP_MAX / (round % 5 + 1)));
		for (unsigned i = 0; i < 10; i++) {
			const uint64_t from = random_below((uint32_t)g.length + 1);

			read_range(from, random_below((uint32_t)(g.length - from) + 1), lose(m));
		}
		rebuild(lose(m));
	}
}

/* 0, 1, cell +-1, k cells +-1, rows +-1: where the last row changes its shape. */
static void every_loss_is_read_and_rebuilt_at_every_shape_of_the_last_row(void **state)
{
	enum { CELL = 37 };

	(void)state;
	use(EC_CODEC_RS, 3, 2, CELL);
	for (uint64_t row = 0; row <= 2; row++)
		for (uint64_t cells = 0; cells <= 3; cells++)
			for (int more = -1; more <= 1; more++) {
				const int64_t length = (int64_t)((row * 3 + cells) * CELL) + more;

				if (length < 0)
					continue;
				write_group((uint64_t)length);
				for (uint32_t lost = 0; lost < 32; lost++)
					if (__builtin_popcount(lost) <= 2) {
						read_range(0, g.length, lost);
						rebuild(lost);
					}
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_range_is_read_with_any_m_units_lost),
		cmocka_unit_test(every_loss_is_read_and_rebuilt_at_every_shape_of_the_last_row),
	};
	const int rc = cmocka_run_group_tests(tests, NULL, NULL);

	ec_coder_free(g.c);
	return rc;
}
