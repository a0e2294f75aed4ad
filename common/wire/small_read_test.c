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
		cmocka_unit_test(an_answer_is_read_as_it_was_written),
		cmocka_unit_test(an_answer_that_does_not_fit_itself_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
