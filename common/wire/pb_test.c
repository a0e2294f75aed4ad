/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/pb.h"

#include <setjmp.h>
#include <stdarg.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hdfs.pb-c.h"

static void a_message_survives_a_delimited_round_trip(void **state)
{
	Hd__ExtendedBlockProto in = HD__EXTENDED_BLOCK_PROTO__INIT, *out;
	const uint8_t *body;
	uint8_t *p, small[4];
	struct wr w = wr_init(small, sizeof(small));
	size_t len, body_len;
	struct rd r;

	(void)state;
	in.poolid = (char *)"BP-1";
	in.blockid = 5;
	assert_int_equal(pb_pack_delim(&in, &p, &len), 0);
	assert_int_equal(len, pb_size_delim(&in));
	r = rd_init(p, len);
	body = pb_take_delim(&r, &body_len);
	assert_non_null(body);
	assert_int_equal(pb_unpack(&hd__extended_block_proto__descriptor, body, body_len, &out), 0);
	assert_string_equal(out->poolid, "BP-1");
	pb_free(out);
	r = rd_init(p, len - 1);
	assert_null(pb_take_delim(&r, &body_len));
	assert_int_equal(pb_unpack(&hd__extended_block_proto__descriptor, body, 3, &out), -EBADMSG);
	assert_null(out);
	pb_put_delim(&w, &in);
	assert_true(w.bad);
	free(p);
	pb_free(NULL);
}

/* Two bytes name an element that costs 24 bytes and more: the budget ends it. */
static void a_message_of_many_empty_elements_is_refused(void **state)
{
	const size_t len = 2 << 20;
	uint8_t *p = malloc(len);
	Hd__DatanodeInfosProto *out;

	(void)state;
	for (size_t i = 0; i < len; i += 2) {
		p[i] = 0x7a; /* field 15, bytes, empty: unknown */
		p[i + 1] = 0;
	}
	assert_int_equal(pb_unpack(&hd__datanode_infos_proto__descriptor, p, len, &out), -E2BIG);
	assert_null(out);
	assert_int_equal(pb_unpack(&hd__datanode_infos_proto__descriptor, p, 100, &out), 0);
	pb_free(out);
	free(p);
}

static bool is_in(const struct pb_room *room, const void *p)
{
	return (const uint8_t *)p >= room->b && (const uint8_t *)p < room->b + sizeof(room->b);
}

/* Under ASan: what did not fit is freed, what did is not. */
/* At any depth, and only in texts. */
static void a_nul_in_a_text_is_seen(void **state)
{
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	const ProtobufCMessageDescriptor *desc = &hd__located_block_proto__descriptor;
	size_t len, body_len;
	struct rd r;
	uint8_t *p, *body;

	(void)state;
	b.poolid = (char *)"BP-1";
	lb.b = &b;
	lb.blocktoken = &token;
	token.identifier = (ProtobufCBinaryData){3, (uint8_t *)"a\0b"};
	token.kind = token.service = (char *)"";
	assert_int_equal(pb_pack_delim(&lb, &p, &len), 0);
	r = rd_init(p, len);
	body = (uint8_t *)(uintptr_t)pb_take_delim(&r, &body_len);
	assert_false(pb_has_nul(desc, body, body_len));
	*((uint8_t *)memmem(body, body_len, "BP-1", 4)) = 0;
	assert_true(pb_has_nul(desc, body, body_len));
	for (size_t n = 0; n < body_len; n++)
		(void)pb_has_nul(desc, body, n); /* cut anywhere: reads nothing beyond */
	free(p);
}

static void a_room_takes_what_fits(void **state)
{
	Hd__ExtendedBlockProto in = HD__EXTENDED_BLOCK_PROTO__INIT, *small, *large;
	char name[2 * PB_ROOM_BYTES] = "BP-1";
	struct pb_room room = {0};
	uint8_t *p;
	size_t len;

	(void)state;
	in.poolid = name;
	assert_int_equal(pb_pack(&in, &p, &len), 0);
	assert_int_equal(pb_unpack_in(&room, &hd__extended_block_proto__descriptor, p, len, &small),
			 0);
	free(p);
	assert_true(is_in(&room, small) && is_in(&room, small->poolid));
	assert_false(room.spilled);
	memset(name, 'x', sizeof(name) - 1);
	assert_int_equal(pb_pack(&in, &p, &len), 0);
	assert_int_equal(pb_unpack_in(&room, &hd__extended_block_proto__descriptor, p, len, &large),
			 0);
	assert_true(room.spilled && !is_in(&room, large->poolid));
	assert_string_equal(large->poolid, name);
	assert_string_equal(small->poolid, "BP-1");
	pb_free_in(&room, small);
	pb_free_in(&room, large);
	pb_free_in(&room, NULL);
	assert_int_equal(
		pb_unpack_in(&room, &hd__extended_block_proto__descriptor, p, len - 1, &large),
		-EBADMSG); /* cut short: what was taken on the way is given back */
	assert_null(large);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_survives_a_delimited_round_trip),
		cmocka_unit_test(a_message_of_many_empty_elements_is_refused),
		cmocka_unit_test(a_nul_in_a_text_is_seen),
		cmocka_unit_test(a_room_takes_what_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
