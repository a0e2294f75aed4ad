/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a block that is written by capsules: they come in the order of their numbers, after the
 * answer and before the last one, not too many, with a CRC for each chunk. Each part of one is
 * pulled from its own place and goes to the engine with its own CRCs, in order, when both are
 * there. */
#include "datanode/capsule/capsule_write_test_fixture.h"

static uint8_t crcs[LEN / BPC * 4];

static int send_piece(struct capsule_stream *s, int64_t seq, uint16_t flags, uint32_t len,
		      uint32_t crc_len)
{
	struct capsule m = {.type = CAPSULE_WRITE, .flags = flags, .request_id = s->id};

	m.write.seqno = seq;
	m.write.data_len = len;
	m.write.data = (struct capsule_mem){1u << 20, 77, len};
	m.write.crc = (struct capsule_bytes){crc_len ? crcs : NULL, crc_len};
	return capsule_write_piece(s, &m, NULL);
}

static void end_pull(uint32_t i, int rc)
{
	struct xop *op = pulls[i];

	pulls[i] = NULL;
	op->done(op, rc);
}

static void pieces_come_in_the_order_of_their_numbers(void **state)
{
	struct capsule_stream *s = ask();

	(void)state;
	assert_int_equal(send_piece(s, 0, 0, 0, 0), -EPROTO); /* before the answer */
	open_last();
	assert_int_equal(send_piece(s, 1, 0, 0, 0), 0);
	assert_int_equal(send_piece(s, 1, 0, 0, 0), -EPROTO);
	assert_int_equal(send_piece(s, 0, 0, 0, 0), -EPROTO);
	assert_int_equal(send_piece(s, 3, CAPSULE_LAST, 0, 0), 0);
	assert_int_equal(send_piece(s, 4, 0, 0, 0), -EPROTO); /* nothing follows the last one */
	end_all();
}

static void pieces_that_wait_have_a_bound(void **state)
{
	struct capsule_stream *s = ask();

	(void)state;
	open_last();
	for (int64_t i = 0; i < CAPS_PIECES_MAX; i++)
		assert_int_equal(send_piece(s, i, 0, 0, 0), 0);
	assert_int_equal(send_piece(s, CAPS_PIECES_MAX, 0, 0, 0), -EPROTO);
	end_all();
}

static void a_piece_has_a_crc_for_each_chunk(void **state)
{
	static const struct {
		uint32_t len, crc_len;
		int rc;
	} rows[] = {
		{3 * BPC, 12, 0},     {3 * BPC, 8, -EPROTO},      {3 * BPC, 16, -EPROTO},
		{3 * BPC + 1, 16, 0}, {3 * BPC + 1, 12, -EPROTO}, {3 * BPC, 0, 0}, /* none at all */
	};
	struct capsule_stream *s = ask();

	(void)state;
	open_last();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(send_piece(s, (int64_t)i, 0, rows[i].len, rows[i].crc_len),
				 rows[i].rc);
	end_all();
}

static void a_piece_goes_on_in_parts(void **state)
{
	struct capsule_stream *s;

	(void)state;
	lanes = LEN / LANE;
	s = ask();
	lanes = 1;
	open_last();
	for (size_t i = 0; i < sizeof(crcs); i++)
		crcs[i] = (uint8_t)(i * 7 % 251);
	assert_int_equal(send_piece(s, 5, CAPSULE_SYNC, LEN, sizeof(crcs)), 0);
	assert_false(s->step(s));
	assert_int_equal(pull_count, LEN / LANE);
	for (uint32_t i = 0; i < pull_count; i++) {
		assert_int_equal(pull_of[i].from.addr, (1u << 20) + i * LANE);
		assert_int_equal(pull_of[i].from.rkey, 77);
		assert_int_equal(pull_of[i].len, LANE);
	}
	end_pull(1, 0);
	assert_false(s->step(s));
	assert_int_equal(handed_count, 0); /* the first part is not there */
	for (uint32_t i = 0; i < LEN / LANE; i++)
		if (pulls[i])
			end_pull(i, 0);
	assert_false(s->step(s));
	assert_int_equal(handed_count, LEN / LANE);
	for (uint32_t i = 0; i < handed_count; i++) {
		const struct piece *p = &handed[i].p;
		const bool whole = i == LEN / LANE - 1;

		assert_int_equal(p->seq, 5);
		assert_int_equal(p->off, i * LANE);
		assert_int_equal(p->len, LANE);
		assert_memory_equal(handed[i].crcs, crcs + i * (LANE / BPC * 4), LANE / BPC * 4);
		assert_int_equal(p->sync, whole); /* that covers all of it */
		assert_int_equal(p->more, !whole);
	}
	end_all();
}

/* Pulls of a piece with its list of CRCs: the list, then the data. */
static void bytes_wait_for_their_crcs(void **state)
{
	(void)state;
	for (int fails = 0; fails < 2; fails++) {
		struct capsule_stream *s = begin();

		assert_int_equal(pull_count, 2);
		end_pull(1, 0);
		assert_false(s->step(s));
		assert_int_equal(handed_count, 0);
		assert_int_equal(failed_count, 0);
		end_pull(0, fails ? -EIO : 0);
		assert_false(s->step(s));
		assert_int_equal(handed_count, !fails);
		assert_int_equal(failed_count, fails);
		end_all();
	}
}

static void a_pull_that_failed_brings_no_data(void **state)
{
	struct capsule_stream *s = begin();

	(void)state;
	end_pull(0, 0);
	end_pull(1, -EIO);
	assert_false(s->step(s));
	assert_int_equal(handed_count, 0);
	assert_int_equal(failed_count, 1);
	end_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_come_in_the_order_of_their_numbers),
		cmocka_unit_test(pieces_that_wait_have_a_bound),
		cmocka_unit_test(a_piece_has_a_crc_for_each_chunk),
		cmocka_unit_test(a_piece_goes_on_in_parts),
		cmocka_unit_test(bytes_wait_for_their_crcs),
		cmocka_unit_test(a_pull_that_failed_brings_no_data),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
