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
	uint8_t buf[CAPSULE_PRIVATE_MOST] = {0}, bad[CAPSULE_PRIVATE_MOST];
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
	} cases[] = {{0, 'X', -EPROTO}, {5, 9, -EPROTONOSUPPORT},
		     {7, 43, -EPROTO},  {7, CAPSULE_PRIVATE_MOST + 1, -EPROTO},
		     {13, 3, -EPROTO},  {14, 0x20, -EPROTO},
		     {19, 1, -EPROTO},  {17, 1, -EPROTO},
		     {21, 2, -EPROTO},  {25, 3, -EPROTO},
		     {26, 3, -EPROTO},  {25, 2, -EPROTO}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memcpy(bad, buf, sizeof(buf));
		bad[cases[i].at] = cases[i].value;
		assert_int_equal(capsule_private_decode(bad, sizeof(bad), &p), cases[i].rc);
	}
}

static void the_sizes_of_the_private_data_have_bounds(void **state)
{
	static const struct {
		uint16_t credits, slots;
		uint32_t capsule_max, inline_max;
		int rc;
	} rows[] = {
		{CAPSULE_CREDITS_LEAST, CAPSULE_CREDITS_LEAST, CAPSULE_MAX_LEAST, 0, 0},
		{CAPSULE_CREDITS_MOST, CAPSULE_CREDITS_MOST, CAPSULE_MAX_MOST, CAPSULE_INLINE_MOST,
		 0},
		{CAPSULE_CREDITS_LEAST - 1, 4, MAX, 0, -EPROTO},
		{CAPSULE_CREDITS_MOST + 1, 4, MAX, 0, -EPROTO},
		{4, CAPSULE_CREDITS_LEAST - 1, MAX, 0, -EPROTO},
		{4, CAPSULE_CREDITS_MOST + 1, MAX, 0, -EPROTO},
		{4, 4, CAPSULE_MAX_LEAST - 64, 0, -EPROTO},
		{4, 4, CAPSULE_MAX_MOST + 64, 0, -EPROTO},
		{4, 4, MAX + 32, 0, -EPROTO},
		{4, 4, MAX, CAPSULE_INLINE_MOST + 1, -EPROTO},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct capsule_private p = request;
		uint8_t buf[CAPSULE_PRIVATE_MOST];

		p.credits = rows[i].credits;
		p.reply_slots = rows[i].slots;
		p.capsule_max = rows[i].capsule_max;
		p.inline_max = rows[i].inline_max;
		capsule_private_encode(&p, buf);
		if (capsule_private_decode(buf, sizeof(buf), &p) != rows[i].rc)
			fail_msg("row %zu", i);
	}
}

/* An accept says more than a request; who does not know it reads what it knows. */
static void an_accept_tells_the_nodes_addresses(void **state)
{
	struct capsule_private in = request, out;
	uint8_t buf[CAPSULE_PRIVATE_MOST + 8] = {0};

	(void)state;
	in.role = CAPSULE_NODE;
	in.reply_slots = 0;
	in.node = 0x0102030405060708;
	in.rails = 2;
	memset(in.rail[0], 0xa, CAPSULE_RAIL_LEN);
	memset(in.rail[1], 0xb, CAPSULE_RAIL_LEN);
	assert_int_equal(capsule_private_encode(&in, buf), 88);
	assert_memory_equal(buf + 4, "\0\1\0\x58", 4);
	assert_memory_equal(buf + 44, "\1\2\3\4\5\6\7\x8\2\0\0\0\xa\xa", 14);
	assert_memory_equal(buf + 72, "\xb\xb", 2);
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), 0);
	assert_int_equal(out.node, in.node);
	assert_int_equal(out.rails, 2);
	assert_memory_equal(out.rail, in.rail, sizeof(in.rail));
	buf[7] = 87; /* the second one is cut */
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), -EPROTO);
	buf[7] = 96; /* of a later version: more behind it */
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), 0);
	buf[52] = CAPSULE_RAILS + 1;
	buf[7] = CAPSULE_PRIVATE_MOST + 8;
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), -EPROTO);
	buf[52] = 0;
	memset(buf + 44, 0, 8);
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), -EPROTO);
	in.node = 0;
	assert_int_equal(capsule_private_encode(&in, buf), CAPSULE_PRIVATE_LEN);
	assert_int_equal(capsule_private_decode(buf, sizeof(buf), &out), 0);
	assert_int_equal(out.rails, 0);
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
	{.type = CAPSULE_VIEW, .request_id = 9, .view = {BYTES("read op")}},
	{.type = CAPSULE_VIEW_REPLY,
	 .request_id = 9,
	 .view_reply = {{0, 2, 512, 10000, 77, 0x7f0000000000, 0x7f0000001000, 1025, 12},
			BYTES("")}},
	{.type = CAPSULE_VIEW_REPLY,
	 .request_id = 9,
	 .view_reply = {{.status = 7, .ms = 100}, BYTES("not yet")}},
	{.type = CAPSULE_VIEW_END, .view_end = {77}},
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

/* A field of a sample as it is sent: a value just inside its range, and one just outside. */
struct bound {
	uint8_t sample, at, width;
	uint64_t good, bad;
};

static const struct bound bounds[] = {
	{6, 2, 2, CAPSULE_LAST, CAPSULE_LAST | CAPSULE_PAYLOAD}, /* flags: there is no payload */
	{5, 2, 2, CAPSULE_PAYLOAD | CAPSULE_CRC_INLINE, CAPSULE_CRC_INLINE}, /* there is */
	{13, 2, 2, 0, CAPSULE_SYNC},
	{12, 12, 8, UINT64_MAX, 0}, /* request id */
	{13, 12, 8, 0, 1},
	{4, 20, 8, INT64_MAX, 1ull << 63}, /* WRITE: seqno */
	{4, 28, 8, INT64_MAX, 1ull << 63}, /* offset */
	{4, 36, 4, CAPSULE_PIECE_MAX, CAPSULE_PIECE_MAX + 1},
	{4, 36, 4, 1, 0}, /* CRCs of nothing */
	{5, 36, 4, 8, 7}, /* the payload is the piece */
	{5, 36, 4, 8, 9},
	{6, 36, 4, 0, 1}, /* the last one is empty */
	{4, 40, 4, CAPSULE_CRC_MAX, CAPSULE_CRC_MAX + 4},
	{4, 40, 4, 8192, 8190},
	{5, 44, 8, 0, 1}, /* what rides along has no address */
	{5, 52, 4, 0, 1},
	{5, 56, 8, 0, 1},
	{5, 64, 4, 0, 1},
	{7, 20, 8, (uint64_t)-2, (uint64_t)-3}, /* ACK: seqno */
	{7, 28, 8, (uint64_t)-1, (uint64_t)-2}, /* pulled */
	{8, 20, 8, INT64_MAX, 1ull << 63},      /* PULLED: seqno */
	{9, 32, 4, CAPSULE_READ_MAX, CAPSULE_READ_MAX + 1},
	{9, 32, 4, 1, 0}, /* a READ of nothing */
	{9, 48, 4, CAPSULE_CRC_MAX, CAPSULE_CRC_MAX + 4},
	{9, 48, 4, 32, 30},
	{10, 22, 1, 1, 3},                /* READ_REPLY: CRC type */
	{10, 23, 1, 0, 1},                /* padding */
	{10, 24, 4, INT32_MAX, 1u << 31}, /* bytes of a chunk */
	{10, 24, 4, 1, 0},
	{10, 28, 8, INT64_MAX, 1ull << 63}, /* offset */
	{10, 36, 4, CAPSULE_READ_MAX, CAPSULE_READ_MAX + 1},
	{10, 40, 4, CAPSULE_CRC_MAX, CAPSULE_CRC_MAX + 4},
	{10, 40, 4, 32, 30},
	{15, 12, 8, 1, 0},         /* VIEW has an id, */
	{18, 12, 8, 0, 1},         /* VIEW_END has none */
	{16, 22, 1, 1, 3},         /* VIEW_REPLY: CRC type */
	{16, 22, 1, 2, 0},         /* there are CRCs */
	{16, 23, 1, 0, 1},         /* padding */
	{16, 24, 4, 512, 513},     /* bytes of a chunk: there would be two */
	{16, 24, 4, 342, 0},       /* which there are */
	{16, 28, 4, 60000, 60001}, /* the lease */
	{16, 28, 4, 1, 0},
	{16, 36, 8, UINT64_MAX - 1025, UINT64_MAX - 1023}, /* where the data are */
	{16, 36, 8, 1, 0},
	{16, 44, 8, UINT64_MAX - 12, UINT64_MAX - 10}, /* and the CRCs */
	{16, 44, 8, 1, 0},
	{16, 52, 4, 1536, 1537}, /* for which there is a CRC less */
	{16, 56, 4, 12, 16},
	{17, 22, 1, 0, 1}, /* a refusal names nothing */
	{17, 24, 4, 0, 512},
	{17, 28, 4, 60000, 60001},
	{17, 32, 4, 0, 1},
	{17, 36, 8, 0, 1},
	{17, 44, 8, 0, 1},
	{17, 52, 4, 0, 1},
	{17, 56, 4, 0, 4},
};

static int decode_with(const struct bound *b, uint64_t value)
{
	const struct capsule *s = &samples[b->sample];
	uint8_t buf[MAX];
	const ssize_t len = capsule_encode(s, MAX, buf);
	struct capsule c;

	assert_true(len > 0);
	for (uint8_t i = 0; i < b->width; i++)
		buf[b->at + i] = (uint8_t)(value >> 8 * (b->width - 1 - i));
	return capsule_decode(buf, (uint32_t)len, s->payload.p, s->payload.len, &c);
}

static void every_field_has_its_bounds(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
		if (decode_with(&bounds[i], bounds[i].good) != 0 ||
		    decode_with(&bounds[i], bounds[i].bad) != -EPROTO)
			fail_msg("row %zu", i);
}

/* Nothing is missing, and nothing follows, within the length that the capsule itself tells. */
static void a_capsule_is_its_fields_and_no_more(void **state)
{
	(void)state;
	for (size_t i = 0; i < SAMPLE_COUNT; i++) {
		const uint8_t type = samples[i].type;
		struct capsule c;
		uint8_t buf[MAX + 1] = {0};
		uint32_t len = (uint32_t)capsule_encode(&samples[i], MAX, buf);

		if (samples[i].payload.len || type == CAPSULE_OPEN_WRITE || type == CAPSULE_READ ||
		    type == CAPSULE_VIEW)
			continue; /* these end with an op of any length */
		for (uint32_t n = CAPSULE_HEADER_LEN; n <= len + 1; n++) {
			buf[6] = (uint8_t)(n >> 8);
			buf[7] = (uint8_t)n;
			assert_int_equal(capsule_decode(buf, n, NULL, 0, &c),
					 n == len ? 0 : -EPROTO);
		}
	}
}

static int encode(struct capsule c)
{
	uint8_t buf[CAPSULE_MAX_MOST];
	const ssize_t len = capsule_encode(&c, sizeof(buf), buf);

	return len < 0 ? (int)len : 0;
}

static void nothing_is_sent_that_the_peer_would_refuse(void **state)
{
	static const char text[CAPSULE_TEXT_MAX + 1];
	static const uint8_t nodes[CAPSULE_HOPS_MAX + 1];

	(void)state;
	for (uint32_t over = 0; over < 2; over++) {
		const int rc = over ? -EINVAL : 0;
		const struct capsule_bytes t = {text, CAPSULE_TEXT_MAX + over};
		const struct capsule_bytes payload = {text, CAPSULE_INLINE_MOST + over};
		const struct capsule many[] = {
			{.type = (uint8_t)(CAPSULE_ERROR + over)},
			{.type = (uint8_t)(CAPSULE_VIEW_END + over)},
			{.type = CAPSULE_VIEW, .request_id = 1, .view = {{text, !over}}},
			{.type = CAPSULE_VIEW_REPLY,
			 .request_id = 1,
			 .view_reply = {{.status = 1}, t}},
			{.type = CAPSULE_WRITE,
			 .request_id = 1,
			 .flags = over ? CAPSULE_LAST : 0,
			 .write = {.data_len = 1, .data = {1, 2, 1}}},
			{.type = CAPSULE_OPEN_REPLY, .request_id = 1, .open_reply = {0, t, {0}}},
			{.type = CAPSULE_OPEN_REPLY, .request_id = 1, .open_reply = {0, {0}, t}},
			{.type = CAPSULE_ACK,
			 .request_id = 1,
			 .ack = {0, 0, (uint8_t)(CAPSULE_HOPS_MAX + over), nodes}},
			{.type = CAPSULE_ACK, .request_id = 1, .ack = {0, 0, !over, nodes}},
			{.type = CAPSULE_READ_REPLY, .request_id = 1, .read_reply = {.text = t}},
			{.type = CAPSULE_CLOSED, .request_id = 1, .closed = {0, t}},
			{.type = CAPSULE_CLOSED,
			 .request_id = 1,
			 .closed = {65535 + (int)over, {0}}},
			{.type = CAPSULE_OPEN_WRITE,
			 .request_id = 1,
			 .open_write = {{text, !over}}},
			{.type = CAPSULE_OPEN_WRITE,
			 .request_id = 1,
			 .payload = payload,
			 .open_write = {payload}},
		};

		for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
			if (encode(many[i]) != rc)
				fail_msg("row %zu", i);
	}
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
	for (uint8_t type = 12; type <= 17; type++) {
		buf[1] = type;
		assert_int_equal(capsule_decode(buf, (uint32_t)len, NULL, 0, &c),
				 type >= CAPSULE_VIEW && type <= CAPSULE_VIEW_END
					 ? -EPROTO /* a HEARTBEAT is none of them */
					 : -EPROTONOSUPPORT);
	}
	assert_string_equal(capsule_type_name(CAPSULE_ACK), "ACK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_data_survives_padding_and_refuses_nonsense),
		cmocka_unit_test(the_sizes_of_the_private_data_have_bounds),
		cmocka_unit_test(an_accept_tells_the_nodes_addresses),
		cmocka_unit_test(a_reject_carries_its_number),
		cmocka_unit_test(every_capsule_survives_a_round_trip),
		cmocka_unit_test(every_cut_and_every_appended_byte_is_refused),
		cmocka_unit_test(every_field_has_its_bounds),
		cmocka_unit_test(a_capsule_is_its_fields_and_no_more),
		cmocka_unit_test(nothing_is_sent_that_the_peer_would_refuse),
		cmocka_unit_test(a_crc_list_too_long_for_the_capsule_says_so),
		cmocka_unit_test(unknown_versions_and_types_are_told_apart_from_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
