/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: what one side encodes the other one decodes; no header makes its reader take more than
 * an answer may have, or CRCs that are not those of the data. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "common/wire/small_read.h"

static const struct small_read_answer good = {.tag = 0xfedcba98,
					      .status = DT_SUCCESS,
					      .crc_type = CRC_CRC32C,
					      .bytes_per_crc = 512,
					      .lead = 511,
					      .crc_len = 36,
					      .data_len = 4608};

static int judge(struct small_read_answer a, struct small_read_answer *ret)
{
	uint8_t buf[SMALL_READ_HEADER_LEN];

	small_read_answer_encode(&a, buf);
	return small_read_answer_decode(buf, ret);
}

static void an_answer_is_read_as_it_was_written(void **state)
{
	const struct small_read_answer refusal = {.tag = 7, .status = DT_ERROR_EXISTS};
	struct small_read_answer got;

	(void)state;
	assert_int_equal(judge(good, &got), 0);
	assert_memory_equal(&got, &good, sizeof(got));
	assert_int_equal(judge(refusal, &got), 0);
	assert_int_equal(got.tag, 7);
	assert_int_equal(got.status, DT_ERROR_EXISTS);
}

static struct small_read_request request(void)
{
	static const uint8_t token[40] = {1, 2, 3};

	return (struct small_read_request){.tag = 3,
					   .len = 4096,
					   .offset = 1ull << 40,
					   .block = {.id = -7, .gs = 1001},
					   .pool = "BP-1",
					   .identifier = token,
					   .identifier_len = 40,
					   .password = token,
					   .password_len = 20};
}

static void a_request_is_read_as_it_was_written(void **state)
{
	const struct small_read_request q = request();
	struct small_read_request got;
	char pool[BLOCK_POOL_ID_MAX];
	uint8_t buf[200], op;
	uint32_t prefix;
	size_t n;

	(void)state;
	n = small_read_request_encode(&q, buf, sizeof(buf));
	assert_true(n > 0);
	assert_int_equal(small_read_request_encode(&q, buf, n - 1), 0);
	assert_int_equal(small_read_request_encode(&q, buf, n), n);
	assert_int_equal(dt_op_header_decode(buf, &op), 0);
	assert_int_equal(op, DT_READ_SMALL);
	assert_int_equal(dt_delim_need(buf + 3, n - 3, 1000, &prefix), n - 3);
	assert_int_equal(small_read_request_decode(buf + 3 + prefix, n - 3 - prefix, &got, pool),
			 0);
	assert_int_equal(got.tag, q.tag);
	assert_int_equal(got.len, q.len);
	assert_int_equal(got.offset, q.offset);
	assert_int_equal(got.block.id, q.block.id);
	assert_int_equal(got.block.gs, q.block.gs);
	assert_string_equal(got.pool, "BP-1");
	assert_int_equal(got.identifier_len, 40);
	assert_memory_equal(got.identifier, q.identifier, 40);
	assert_int_equal(got.password_len, 20);
	assert_memory_equal(got.password, q.password, 20);
	for (size_t cut = 1; cut < n - 3 - prefix; cut++)
		assert_int_equal(small_read_request_decode(buf + 3 + prefix, n - 3 - prefix - cut,
							   &got, pool),
				 -EPROTO);
	assert_int_equal(small_read_request_decode(buf + 3 + prefix, n - 2 - prefix, &got, pool),
			 -EPROTO);
}

static void a_pool_of_a_request_has_an_end(void **state)
{
	char long_pool[BLOCK_POOL_ID_MAX + 1], pool[BLOCK_POOL_ID_MAX];
	struct small_read_request q = request(), got;
	uint8_t buf[400];
	size_t n;

	(void)state;
	memset(long_pool, 'a', sizeof(long_pool));
	long_pool[BLOCK_POOL_ID_MAX] = '\0';
	q.pool = long_pool;
	assert_int_equal(small_read_request_encode(&q, buf, sizeof(buf)), 0);
	long_pool[BLOCK_POOL_ID_MAX - 1] = '\0';
	n = small_read_request_encode(&q, buf, sizeof(buf));
	assert_int_equal(small_read_request_decode(buf + 5, n - 5, &got, pool), 0);
	assert_string_equal(got.pool, long_pool);
	buf[5 + 40] = 0; /* within the pool */
	assert_int_equal(small_read_request_decode(buf + 5, n - 5, &got, pool), -EPROTO);
}

/* One field after the other is wrong. */
static void an_answer_that_does_not_fit_itself_is_none(void **state)
{
	struct small_read_answer got, bad[12];
	uint32_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		bad[i] = good;
	bad[n++].crc_len = 32;
	bad[n++].crc_len = 40;
	bad[n++].lead = 512;
	bad[n++].data_len = 0;
	bad[n++].bytes_per_crc = 0;
	bad[n++].crc_type = (enum crc_type)3;
	bad[n++].crc_type = CRC_NULL;
	bad[n++].status = DT_ERROR;
	bad[n++].data_len = UINT32_MAX;
	bad[n++].crc_len = UINT32_MAX;
	bad[n].data_len = 100; /* less than is before what was asked for */
	bad[n++].crc_len = 4;
	bad[n].bytes_per_crc = 65536; /* one more than goes into an answer */
	bad[n].crc_len = 4;
	bad[n++].data_len = SMALL_READ_ANSWER_MAX - SMALL_READ_HEADER_LEN - 3;
	assert_int_equal(n, sizeof(bad) / sizeof(bad[0]));
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(judge(bad[i], &got), -EPROTO);
	bad[n - 1].data_len--;
	assert_int_equal(judge(bad[n - 1], &got), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_read_as_it_was_written),
		cmocka_unit_test(a_pool_of_a_request_has_an_end),
		cmocka_unit_test(an_answer_is_read_as_it_was_written),
		cmocka_unit_test(an_answer_that_does_not_fit_itself_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
