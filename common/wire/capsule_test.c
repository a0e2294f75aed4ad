/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/capsule.h"

#include <setjmp.h>
#include <stdarg.h>

#include <errno.h>
#include <string.h>

#include <cmocka.h>

#define MAX CAPSULE_MAX_DEFAULT

static const struct capsule_private request = {.version = CAPSULE_VERSION,
					       .features = CAPSULE_FEAT_WINDOW,
					       .credits = 64,
					       .reply_slots = 68,
					       .capsule_max = MAX,
					       .read_depth = 16,
					       .role = CAPSULE_PEER,
					       .checksum = 2,
					       .session = "0123456789abcde"};

static void private_data_survives_padding_and_refuses_nonsense(void **state)
{
	uint8_t buf[56] = {0}, bad[56];
	struct capsule_private p;

	(void)state;
	capsule_private_encode(&request, buf);
	assert_memory_equal(buf, "DFSR\0\1\0\x2c", 8);
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &p), 0);
	capsule_private_encode(&p, bad); /* not memcmp(): the struct has padding */
	assert_memory_equal(bad, buf, CAPSULE_PRIVATE_LEN);
	assert_int_equal(capsule_private_decode(buf, CAPSULE_PRIVATE_LEN - 1, &p), -EPROTO);
	static const struct {
		uint8_t at, value;
		int rc;
	} cases[] = {{0, 'X', -EPROTO}, {5, 9, -EPROTONOSUPPORT}, {7, 43, -EPROTO},
		     {7, 57, -EPROTO},  {13, 3, -EPROTO},         {14, 0x20, -EPROTO},
		     {19, 1, -EPROTO},  {17, 1, -EPROTO},         {21, 2, -EPROTO},
		     {25, 3, -EPROTO},  {26, 3, -EPROTO},         {25, 2, -EPROTO}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memcpy(bad, buf, sizeof(buf));
		bad[cases[i].at] = cases[i].value;
		assert_int_equal(capsule_private_decode(bad, sizeof(bad), &p), cases[i].rc);
	}
}

static void a_reject_carries_its_number(void **state)
{
	const struct capsule_reject_data in = {CAPSULE_VERSION, CAPSULE_REJECT_BUSY, 250};
	struct capsule_reject_data out;
	uint8_t buf[CAPSULE_REJECT_LEN];

	(void)state;
	capsule_reject_encode(&in, buf);
	assert_int_equal(capsule_reject_decode(buf, sizeof(buf), &out), 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(capsule_reject_decode(buf, 15, &out), -EPROTO);
	buf[0]++;
	assert_int_equal(capsule_reject_decode(buf, sizeof(buf), &out), -EPROTO);
	assert_string_equal(capsule_reject_text(out.reason), "the node is busy");
	assert_string_equal(capsule_reject_text(999), "unknown reason");
}

/* clang-format off */
#define BYTES(s) {s, sizeof(s) - 1}
/* clang-format on */

static const uint8_t hops[3] = {0, 0, 1};
static const char crcs[1024];
static const struct capsule samples[] = {
	{.type = CAPSULE_OPEN_WRITE,
	 .flags = CAPSULE_WANT_PULLED,
	 .request_id = 7,
	 .open_write = {BYTES("op")}},
	{.type = CAPSULE_OPEN_WRITE,
	 .request_id = 7,
	 .payload = BYTES("a big op"),
	 .open_write = {BYTES("a big op")}},
	{.type = CAPSULE_OPEN_REPLY,
	 .request_id = 7,
	 .credits = 65535,
	 .open_reply = {1, BYTES("10.0.0.2:9866"), BYTES("refused")}},
	{.type = CAPSULE_WRITE,
	 .request_id = 7,
	 .write = {1, 131072, 131072, {0x7f0000001000, 0x11, 131072}, {crcs, 1024}, {0}}},
	{.type = CAPSULE_WRITE,
	 .request_id = 7,
	 .flags = CAPSULE_SYNC,
	 .write = {2, 262144, 1 << 20, {1, 2, 1 << 20}, {NULL, 8192}, {3, 4, 8192}}},
	{.type = CAPSULE_WRITE,
	 .request_id = 7,
	 .payload = BYTES("eight by"),
	 .write = {3, 0, 8, {0}, BYTES("crc!"), {0}}},
	{.type = CAPSULE_WRITE, .request_id = 7, .flags = CAPSULE_LAST, .write = {.seqno = 4}},
	{.type = CAPSULE_ACK, .request_id = 7, .ack = {-2, -1, 3, hops}},
	{.type = CAPSULE_PULLED, .request_id = 7, .pulled = {3}},
	{.type = CAPSULE_READ,
	 .request_id = 8,
	 .read = {{1, 2, 4096}, {3, 4, 32}, BYTES("read op")}},
	{.type = CAPSULE_READ_REPLY,
	 .request_id = 8,
	 .flags = CAPSULE_VERIFIED,
	 .read_reply = {0, 2, 512, 1024, 4096, 32, BYTES("")}},
	{.type = CAPSULE_CANCEL, .request_id = 8},
	{.type = CAPSULE_CLOSED, .request_id = 7, .closed = {2, BYTES("bad CRC")}},
	{.type = CAPSULE_HEARTBEAT, .credits = 3},
	{.type = CAPSULE_ERROR, .closed = {1, BYTES("more capsules than credits")}},
};
#define SAMPLE_COUNT (sizeof(samples) / sizeof(*samples))

static void check_same(const uint8_t *a, ssize_t a_len, const struct capsule *c)
{
	uint8_t b[MAX];

	assert_int_equal(capsule_encode(c, MAX, b), a_len);
	assert_memory_equal(a, b, a_len);
}

static void every_capsule_survives_a_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < SAMPLE_COUNT; i++) {
		const struct capsule *s = &samples[i];
		struct capsule c;
		uint8_t buf[MAX];
		ssize_t len = capsule_encode(s, MAX, buf);

		assert_true(len >= CAPSULE_HEADER_LEN);
		assert_true(s->payload.len ? len == MAX : len < MAX);
		assert_int_equal(
			capsule_decode(buf, (uint32_t)len, s->payload.p, s->payload.len, &c), 0);
		check_same(buf, len, &c);
		assert_int_equal(capsule_decode(buf, (uint32_t)len, NULL, s->payload.len + 1, &c),
				 -EPROTO);
	}
}

static void every_cut_and_every_appended_byte_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SAMPLE_COUNT; i++) {
		struct capsule c;
		uint8_t buf[MAX + 1] = {0};
		ssize_t len = capsule_encode(&samples[i], MAX, buf);

		if (samples[i].payload.len)
			continue;
		for (ssize_t n = 0; n < len; n++)
			assert_int_equal(capsule_decode(buf, (uint32_t)n, NULL, 0, &c), -EPROTO);
		assert_int_equal(capsule_decode(buf, (uint32_t)len + 1, NULL, 0, &c), -EPROTO);
	}
}

static void check_invalid(struct capsule c)
{
	uint8_t buf[MAX];

	assert_int_equal(capsule_encode(&c, MAX, buf), -EINVAL);
}

static void fields_out_of_range_are_refused(void **state)
{
	struct capsule c = samples[3];

	(void)state;
	c.write.seqno = -1;
	check_invalid(c);
	c = samples[3];
	c.write.data_len = c.write.data.len = CAPSULE_PIECE_MAX + 1;
	check_invalid(c);
	c = samples[3];
	c.flags = CAPSULE_LAST; /* with data */
	check_invalid(c);
	c = samples[3];
	c.flags = CAPSULE_VERIFIED; /* not for a WRITE */
	check_invalid(c);
	c = samples[3];
	c.request_id = 0;
	check_invalid(c);
	c = samples[3];
	c.write.crc.len = 1022;
	check_invalid(c);
	c = samples[5];
	c.write.data.addr = 1; /* data is in the capsule: there is no address */
	check_invalid(c);
	c = samples[9];
	c.read.dest.len = 0;
	check_invalid(c);
	c = samples[0];
	c.open_write.op.len = 0;
	check_invalid(c);
	c = samples[0];
	c.type = CAPSULE_ERROR + 1;
	check_invalid(c);
}

static void a_crc_list_too_long_for_the_capsule_says_so(void **state)
{
	static const char many[8192];
	struct capsule c = samples[3];
	uint8_t buf[CAPSULE_MAX_MOST];

	(void)state;
	c.write.crc = (struct capsule_bytes){many, sizeof(many)};
	assert_false(capsule_crc_fits(sizeof(many), MAX));
	assert_int_equal(capsule_encode(&c, MAX, buf), -EMSGSIZE);
	assert_true(capsule_crc_fits(sizeof(many), 8320));
	assert_int_equal(capsule_encode(&c, 8320, buf), 8192 + 68);
	assert_true(capsule_crc_fits(1024, MAX)); /* 128 KiB at 512 */
}

static void unknown_versions_and_types_are_told_apart_from_nonsense(void **state)
{
	uint8_t buf[MAX];
	ssize_t len = capsule_encode(&samples[13], MAX, buf);
	struct capsule c;

	(void)state;
	buf[0] = 2;
	assert_int_equal(capsule_decode(buf, (uint32_t)len, NULL, 0, &c), -EPROTONOSUPPORT);
	buf[0] = 1;
	buf[1] = 12;
	assert_int_equal(capsule_decode(buf, (uint32_t)len, NULL, 0, &c), -EPROTONOSUPPORT);
	assert_string_equal(capsule_type_name(12), "?");
	assert_string_equal(capsule_type_name(CAPSULE_ACK), "ACK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_data_survives_padding_and_refuses_nonsense),
		cmocka_unit_test(a_reject_carries_its_number),
		cmocka_unit_test(every_capsule_survives_a_round_trip),
		cmocka_unit_test(every_cut_and_every_appended_byte_is_refused),
		cmocka_unit_test(fields_out_of_range_are_refused),
		cmocka_unit_test(a_crc_list_too_long_for_the_capsule_says_so),
		cmocka_unit_test(unknown_versions_and_types_are_told_apart_from_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
