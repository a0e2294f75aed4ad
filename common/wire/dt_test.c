/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include <setjmp.h>
#include <stdarg.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/wire/pb.h"

/* From client/put-1000 of the recordings: 1000 bytes, last packet, a heartbeat has seqno -1. */
static const uint8_t full[] = {0, 0, 3, 0xf4, 0, 25, 9, 0, 0,  0, 0,    0,    0, 0, 0, 17,
			       0, 0, 0, 0,    0, 0,  0, 0, 24, 0, 0x25, 0xe8, 3, 0, 0};

static void a_recorded_packet_header_is_read_and_written(void **state)
{
	uint8_t out[DT_PACKET_HEADER_MAX];
	struct dt_packet p;

	(void)state;
	assert_int_equal(dt_packet_need(full, 3), 6);
	assert_int_equal(dt_packet_need(full, 6), 31);
	assert_int_equal(dt_packet_decode(full, sizeof(full), &p), 0);
	assert_int_equal(p.data_len, 1000);
	assert_int_equal(p.crc_len, 8);
	assert_false(p.last || p.sync);
	assert_true(dt_packet_crc_len_ok(&p, 512));
	assert_false(dt_packet_crc_len_ok(&p, 256));
	assert_int_equal(dt_packet_encode(&p, out), sizeof(full));
	assert_memory_equal(out, full, sizeof(full));
}

static void every_flag_and_the_heartbeat_survive_a_round_trip(void **state)
{
	static const struct dt_packet in[] = {
		{.seqno = DT_SEQNO_HEARTBEAT},
		{.offset = 1ll << 40, .seqno = 7, .last = true, .sync = true},
		{.offset = INT64_MAX, .seqno = INT64_MAX, .data_len = 64512, .crc_len = 504},
		{.seqno = 1, .data_len = DT_PACKET_MAX - 4},
	};
	uint8_t buf[DT_PACKET_HEADER_MAX];
	struct dt_packet p;

	(void)state;
	for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++) {
		size_t len = dt_packet_encode(&in[i], buf);

		assert_int_equal(dt_packet_decode(buf, len, &p), 0);
		assert_int_equal(p.offset, in[i].offset);
		assert_int_equal(p.seqno, in[i].seqno);
		assert_int_equal(p.data_len, in[i].data_len);
		assert_int_equal(p.crc_len, in[i].crc_len);
		assert_int_equal(p.last, in[i].last);
		assert_int_equal(p.sync, in[i].sync);
	}
}

static void a_packet_header_in_other_order_with_unknown_fields_is_read(void **state)
{
	static const uint8_t buf[] = {0,   0,    0, 4,  0, 31, 0x25, 0, 0, 0, 0,   0x32, 1,
				      'x', 0x38, 5, 24, 1, 17, 9,    0, 0, 0, 0,   0,    0,
				      0,   9,    1, 0,  0, 0,  0,    0, 0, 0, 0x40};
	uint8_t more[38];
	struct dt_packet p;

	(void)state;
	assert_int_equal(dt_packet_decode(buf, sizeof(buf), &p), -EPROTO); /* ends in a tag */
	memcpy(more, buf, sizeof(buf));
	more[5] = 32;
	more[37] = 1;
	assert_int_equal(dt_packet_decode(more, sizeof(more), &p), 0);
	assert_int_equal(p.seqno, 9);
	assert_int_equal(p.offset, 1);
	assert_true(p.last);
}

static void check_refused(size_t at, uint8_t value, int rc)
{
	uint8_t buf[sizeof(full)];
	struct dt_packet p;

	memcpy(buf, full, sizeof(full));
	buf[at] = value;
	assert_int_equal(dt_packet_decode(buf, sizeof(buf), &p), rc);
}

static void lengths_that_contradict_each_other_are_refused(void **state)
{
	(void)state;
	check_refused(0, 0x80, -EMSGSIZE); /* PLEN negative */
	check_refused(0, 0x01, -EMSGSIZE); /* 16 MiB and more */
	check_refused(2, 2, -EPROTO);      /* data longer than PLEN */
	check_refused(3, 0xf5, -EPROTO);   /* CRC bytes not a multiple of 4 */
	check_refused(4, 0x80, -EMSGSIZE); /* HLEN negative */
	check_refused(5, 26, -EPROTO);     /* HLEN not what was given */
	check_refused(14, 0x80, -EPROTO);  /* offset negative */
	check_refused(23, 0x80, -EPROTO);  /* seqno below -1 */
	check_refused(25, 1, -EPROTO);     /* last with data */
	check_refused(6, 0x0b, -EPROTO);   /* wire type 3 */
	check_refused(6, 0x01, -EPROTO);   /* field 0 */
}

static void a_packet_header_without_one_of_its_fields_is_refused(void **state)
{
	(void)state;                      /* field 6 stands where it should be */
	check_refused(6, 0x31, -EPROTO);  /* offset */
	check_refused(15, 0x31, -EPROTO); /* seqno */
	check_refused(24, 0x30, -EPROTO); /* last */
	check_refused(26, 0x35, -EPROTO); /* data length */
}

static void a_packet_counts_its_own_length(void **state)
{
	uint8_t buf[DT_PACKET_PREFIX_LEN] = {0, 0, 0, 4, 0, 25};

	(void)state;
	assert_int_equal(dt_packet_need(buf, sizeof(buf)), 31);
	for (buf[3] = 0; buf[3] < 4; buf[3]++)
		assert_int_equal(dt_packet_need(buf, sizeof(buf)), -EPROTO);
}

static void an_empty_packet_has_no_crcs(void **state)
{
	struct dt_packet p = {.crc_len = 4};
	uint8_t buf[DT_PACKET_HEADER_MAX];
	size_t len = dt_packet_encode(&p, buf);

	(void)state;
	assert_int_equal(dt_packet_decode(buf, len, &p), -EPROTO);
}

static void a_delimited_message_says_how_much_it_needs(void **state)
{
	static const uint8_t big[] = {0xff, 0xff, 0x7f}, endless[] = {0x80, 0x80, 0x80, 0x80, 0x80};
	uint32_t prefix;

	(void)state;
	assert_int_equal(dt_delim_need(big, 0, DT_MESSAGE_MAX, &prefix), 1);
	assert_int_equal(dt_delim_need("\x05", 1, DT_MESSAGE_MAX, &prefix), 6);
	assert_int_equal(prefix, 1);
	assert_int_equal(dt_delim_need(big, 2, DT_MESSAGE_MAX, &prefix), 3);
	assert_int_equal(prefix, 0);
	assert_int_equal(dt_delim_need(big, 3, DT_MESSAGE_MAX, &prefix), -EMSGSIZE);
	assert_int_equal(dt_delim_need(big, 3, 1 << 21, &prefix), (1 << 21) - 1 + 3);
	assert_int_equal(dt_delim_need(endless, 5, DT_MESSAGE_MAX, &prefix), -EPROTO);
}

static void the_largest_ack_fits_its_buffer(void **state)
{
	struct dt_ack a = {.seqno = INT64_MIN,
			   .downstream_ns = UINT64_MAX,
			   .count = DT_ACK_NODES_MAX,
			   .flag_count = DT_ACK_NODES_MAX};
	uint8_t buf[DT_ACK_MAX];
	uint32_t prefix;
	struct dt_ack b;
	size_t len;

	(void)state;
	for (int i = 0; i < DT_ACK_NODES_MAX; i++) {
		a.reply[i] = DT_IN_PROGRESS;
		a.flag[i] = 0xfffffff0u | DT_IN_PROGRESS;
	}
	len = dt_ack_encode(&a, buf);
	assert_int_equal(dt_delim_need(buf, len, DT_ACK_MAX, &prefix), len);
	assert_int_equal(dt_ack_decode(buf + prefix, len - prefix, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
}

static void an_ack_for_too_many_nodes_is_refused(void **state)
{
	uint8_t buf[2 + 2 * (DT_ACK_NODES_MAX + 1)] = {8, 2};
	struct dt_ack a;

	(void)state;
	for (size_t i = 2; i < sizeof(buf); i += 2)
		buf[i] = 0x10;
	assert_int_equal(dt_ack_decode(buf, sizeof(buf) - 2, &a), 0);
	assert_int_equal(a.count, DT_ACK_NODES_MAX);
	assert_int_equal(dt_ack_decode(buf, sizeof(buf), &a), -EMSGSIZE);
	assert_int_equal(dt_ack_decode(buf + 2, 4, &a), -EPROTO); /* no seqno */
}

static void flags_win_over_replies_and_the_last_bad_node_is_blamed(void **state)
{
	/* replies SUCCESS, ERROR; packed flags ERROR_CHECKSUM | NORMAL, SUCCESS, unknown 15 */
	static const uint8_t buf[] = {8, 3,    0x10, 0,    0x10, 1,   0x22,
				      5, 0x82, 0x01, 0x00, 0x8f, 0x01};
	struct dt_ack a;

	(void)state;
	assert_int_equal(dt_ack_decode(buf, 6, &a), 0);
	assert_int_equal(a.seqno, DT_SEQNO_UNKNOWN);
	assert_int_equal(dt_ack_first_bad(&a), 1);
	assert_int_equal(dt_ack_decode(buf, 11, &a), -EPROTO); /* cut short */
	assert_int_equal(dt_ack_decode(buf, sizeof(buf), &a), 0);
	assert_int_equal(a.count, 3);
	assert_int_equal(a.reply[0], DT_ERROR_CHECKSUM);
	assert_int_equal(a.reply[2], DT_ERROR);
	a.count = 1;
	a.reply[0] = DT_SUCCESS;
	assert_int_equal(dt_ack_first_bad(&a), -1);
}

static void a_block_keeps_its_values_and_a_bad_pool_id_is_refused(void **state)
{
	static const char *const bad[] = {"", ".", "..", "../x", "a/b", "BP 1"};
	const struct block in = {-9223372036854775792ll, 1001, 77};
	Hd__ExtendedBlockProto p;
	char pool[BLOCK_POOL_ID_MAX], longest[BLOCK_POOL_ID_MAX + 1];
	struct block out;

	(void)state;
	dt_block_to_proto(&in, "BP-1-10.0.0.1-2", &p);
	assert_int_equal(dt_block_from_proto(&p, &out, pool), 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_string_equal(pool, "BP-1-10.0.0.1-2");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		p.poolid = (char *)bad[i];
		assert_int_equal(dt_block_from_proto(&p, &out, pool), -EINVAL);
	}
	memset(longest, 'a', BLOCK_POOL_ID_MAX);
	longest[BLOCK_POOL_ID_MAX] = '\0';
	assert_false(dt_pool_id_ok(longest));
	longest[BLOCK_POOL_ID_MAX - 1] = '\0';
	assert_true(dt_pool_id_ok(longest));
}

static void status_and_errno_translate_both_ways(void **state)
{
	(void)state;
	for (int s = DT_SUCCESS; s <= DT_ERROR_BLOCK_PINNED; s++)
		if (s != DT_CHECKSUM_OK && (s < DT_OOB_RESERVED1 || s > DT_OOB_RESERVED3))
			assert_int_equal(dt_errno_status(dt_status_errno(s)), s);
	assert_int_equal(dt_status_errno(DT_CHECKSUM_OK), 0);
	assert_int_equal(dt_status_errno(-1), -EIO);
	assert_int_equal(dt_status_errno(99), -EIO);
	assert_int_equal(dt_errno_status(-ENOSPC), DT_ERROR);
	assert_string_equal(dt_status_name(14), "?");
}

static void small_messages_carry_their_length(void **state)
{
	uint8_t buf[DT_STATUS_MAX], *p;
	enum dt_status s;
	size_t len;

	(void)state;
	assert_int_equal(dt_read_status_encode(DT_CHECKSUM_OK, buf), 3);
	assert_memory_equal(buf, "\x02\x08\x06", 3);
	assert_int_equal(dt_read_status_decode(buf + 1, 2, &s), 0);
	assert_int_equal(s, DT_CHECKSUM_OK);
	assert_int_equal(dt_read_status_decode(buf, 0, &s), -EBADMSG);
	assert_int_equal(dt_response_encode(DT_SUCCESS, "", NULL, &p, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(p, "\x04\x08\x00\x12\x00", 5); /* recorded connect ack */
	free(p);
	assert_int_equal(dt_op_header_decode((const uint8_t *)"\x00\x1b\x51", buf), -EPROTO);
	assert_int_equal(dt_op_header_decode((const uint8_t *)"\x00\x1c\x51", buf), 0);
	assert_string_equal(dt_op_name(buf[0]), "READ_BLOCK");
	assert_null(dt_op_desc(79));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recorded_packet_header_is_read_and_written),
		cmocka_unit_test(every_flag_and_the_heartbeat_survive_a_round_trip),
		cmocka_unit_test(a_packet_header_in_other_order_with_unknown_fields_is_read),
		cmocka_unit_test(lengths_that_contradict_each_other_are_refused),
		cmocka_unit_test(a_packet_header_without_one_of_its_fields_is_refused),
		cmocka_unit_test(a_packet_counts_its_own_length),
		cmocka_unit_test(an_empty_packet_has_no_crcs),
		cmocka_unit_test(a_delimited_message_says_how_much_it_needs),
		cmocka_unit_test(the_largest_ack_fits_its_buffer),
		cmocka_unit_test(an_ack_for_too_many_nodes_is_refused),
		cmocka_unit_test(flags_win_over_replies_and_the_last_bad_node_is_blamed),
		cmocka_unit_test(a_block_keeps_its_values_and_a_bad_pool_id_is_refused),
		cmocka_unit_test(status_and_errno_translate_both_ways),
		cmocka_unit_test(small_messages_carry_their_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
