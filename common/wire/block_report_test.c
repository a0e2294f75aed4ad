/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/block_report_test_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 20000 /* some 10 chunks, borders inside varints */

static struct block nth(uint64_t i)
{
	return (struct block){(int64_t)(i * 0x9e3779b97f4a7c15ull), 1000 + i, i << 20};
}

static int expect_next(void *arg, const struct block *b, uint32_t state)
{
	uint64_t *i = arg;
	const struct block want = nth(*i);

	assert_memory_equal(b, &want, sizeof(want));
	assert_int_equal(state, *i % 3);
	(*i)++;
	return 0;
}

static int count_only(void *arg, const struct block *b, uint32_t state)
{
	uint64_t *i = arg;

	(void)b;
	(void)state;
	return ++*i == 3 ? -ECANCELED : 0;
}

static void many_replicas_survive_the_cuts(void **state)
{
	struct block_report r = BLOCK_REPORT_INIT;
	uint64_t seen = 0;

	(void)state;
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(block_report_add(&r,
						  &(struct block){nth(i).id, nth(i).gs, nth(i).len},
						  (enum replica_state)(i % 3)),
				 0);
	assert_int_equal(block_report_finish(&r), 0);
	assert_true(r.chunk_count > 3);
	for (size_t i = 0; i + 1 < r.chunk_count; i++)
		assert_int_equal(r.chunks[i].len, BLOCK_REPORT_CHUNK);
	assert_int_equal(block_report_decode(r.chunks, r.chunk_count, r.count, expect_next, &seen),
			 0);
	assert_int_equal(seen, MANY);
	seen = 0;
	assert_int_equal(block_report_decode(r.chunks, r.chunk_count, r.count, count_only, &seen),
			 -ECANCELED);
	seen = 10;
	assert_int_equal(
		block_report_decode(r.chunks, r.chunk_count, r.count - 1, count_only, &seen),
		-EBADMSG); /* bytes left */
	assert_int_equal(
		block_report_decode(r.chunks, r.chunk_count, UINT64_MAX, count_only, &seen),
		-EBADMSG);
	block_report_fini(&r);
}

static void an_empty_report_has_one_empty_chunk(void **state)
{
	struct block_report r = BLOCK_REPORT_INIT;
	uint64_t seen = 0;

	(void)state;
	assert_int_equal(block_report_finish(&r), 0);
	assert_int_equal(r.chunk_count, 1);
	assert_int_equal(r.chunks[0].len, 0);
	assert_int_equal(block_report_decode(r.chunks, 1, 0, count_only, &seen), 0);
	assert_int_equal(block_report_decode(NULL, 0, 0, count_only, &seen), 0);
	assert_int_equal(seen, 0);
	block_report_fini(&r);
}

static int keep_last(void *arg, const struct block *b, uint32_t state)
{
	struct block *last = arg;

	*last = *b;
	last->gs += 1000 * (uint64_t)state;
	return 0;
}

static void the_long_list_is_read_and_bounded(void **state)
{
	static const uint64_t good[] = {1, 1, 7, 70, 3, -1ull, -1ull, -1ull, 8, 80, 4, 2};
	uint64_t bad[12];
	struct block last;

	(void)state;
	assert_int_equal(block_report_decode_longs(good, 12, keep_last, &last), 0);
	assert_int_equal(last.id, 8);
	assert_int_equal(last.len, 80);
	assert_int_equal(last.gs, 2004);
	assert_int_equal(block_report_decode_longs(good, 11, keep_last, &last), -EBADMSG);
	assert_int_equal(block_report_decode_longs((const uint64_t[]){0, 0}, 2, keep_last, &last),
			 0);
	assert_int_equal(block_report_decode_longs(NULL, 0, keep_last, &last), 0);
	memcpy(bad, good, sizeof(good));
	bad[0] = UINT64_MAX;
	assert_int_equal(block_report_decode_longs(bad, 12, keep_last, &last), -EBADMSG);
	bad[0] = 1;
	bad[6] = 0; /* no delimiter */
	assert_int_equal(block_report_decode_longs(bad, 12, keep_last, &last), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_replicas_survive_the_cuts),
		cmocka_unit_test(an_empty_report_has_one_empty_chunk),
		cmocka_unit_test(the_long_list_is_read_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
