/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/pb.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_survives_a_delimited_round_trip),
		cmocka_unit_test(a_message_of_many_empty_elements_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
