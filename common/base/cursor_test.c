/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a cursor never leaves its buffer, and failure sticks. */
#include "common/base/cursor.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void what_is_written_is_read_back_at_every_truncation(void **state)
{
	uint8_t buf[64];

	(void)state;
	for (size_t room = 0; room <= 35; room++) {
		struct wr w = wr_init(buf, room);
		struct rd r;

		wr_u8(&w, 0xa1);
		wr_be16(&w, 0xb1b2);
		wr_be32(&w, 0xc1c2c3c4);
		wr_be64(&w, 0xd1d2d3d4d5d6d7d8);
		wr_le32(&w, 7);
		wr_le64(&w, 8);
		wr_varint(&w, 300);
		wr_bytes(&w, "end", 3);
		wr_varint(&w, 1);
		assert_int_equal(w.bad, room < 33);
		r = rd_init(buf, room < 33 ? room : 33);
		if (w.bad)
			continue;
		assert_int_equal(rd_u8(&r), 0xa1);
		assert_int_equal(rd_be16(&r), 0xb1b2);
		assert_int_equal(rd_be32(&r), 0xc1c2c3c4);
		assert_int_equal(rd_be64(&r), 0xd1d2d3d4d5d6d7d8);
		assert_int_equal(rd_le32(&r), 7);
		assert_int_equal(rd_le64(&r), 8);
		assert_int_equal(rd_varint(&r), 300);
		assert_memory_equal(rd_bytes(&r, 3), "end", 3);
		assert_int_equal(rd_varint(&r), 1);
		assert_int_equal(rd_left(&r), 0);
		assert_false(r.bad);
		assert_int_equal(rd_u8(&r), 0);
		assert_true(r.bad);
		assert_null(rd_bytes(&r, 0)); /* sticky */
	}
}

static void varints_of_all_lengths_survive_and_endless_ones_fail(void **state)
{
	uint8_t buf[16];

	(void)state;
	for (int bit = 0; bit < 64; bit++) {
		uint64_t v = 1ull << bit | (bit & 1);
		struct wr w = wr_init(buf, sizeof(buf));
		struct rd r;

		wr_varint(&w, v);
		assert_int_equal((size_t)(w.p - buf), varint_len(v));
		r = rd_init(buf, varint_len(v));
		assert_int_equal(rd_varint(&r), v);
		assert_false(r.bad);
		r = rd_init(buf, varint_len(v) - 1);
		assert_int_equal(rd_varint(&r), 0);
		assert_true(r.bad);
		assert_int_equal(zigzag_decode(zigzag_encode((int64_t)v)), (int64_t)v);
		assert_int_equal(zigzag_decode(zigzag_encode(-(int64_t)v)), -(int64_t)v);
	}
	memset(buf, 0xff, sizeof(buf));
	struct rd r = rd_init(buf, sizeof(buf));
	assert_int_equal(rd_varint(&r), 0);
	assert_true(r.bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_back_at_every_truncation),
		cmocka_unit_test(varints_of_all_lengths_survive_and_endless_ones_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
