/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/ec_msg.h"

#include <setjmp.h>
#include <stdarg.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/wire/pb.h"

static void hdfs_s_own_policies_travel_as_their_id(void **state)
{
	Hd__ErasureCodingPolicyProto m;
	struct ec_policy_msg store;
	struct ec_policy got;
	uint8_t *buf;
	size_t len;

	(void)state;
	for (uint32_t id = EC_ID_RS_6_3; id <= EC_ID_RS_10_4; id++) {
		const struct ec_policy *p = ec_policy_by_id(id);

		ec_policy_to_msg(p, &store, &m);
		assert_int_equal(pb_pack(&m, &buf, &len), 0);
		assert_int_equal(len, 2);
		assert_int_equal(buf[0], 4 << 3);
		assert_int_equal(buf[1], p->id);
		free(buf);
		assert_int_equal(ec_policy_from_msg(&m, &got), 0);
		assert_memory_equal(&got, p, sizeof(got));
	}
	ec_policy_to_msg(ec_policy_by_id(EC_ID_REPLICATION), &store, &m);
	assert_int_equal(ec_policy_from_msg(&m, &got), 0);
	assert_int_equal(got.codec, EC_CODEC_REPLICATION);
}

static void a_user_s_policy_survives_a_round_trip(void **state)
{
	const uint32_t ids[] = {EC_ID_USER_FIRST, EC_ID_LAST, EC_ID_NONE};
	Hd__ErasureCodingPolicyProto m, *in;
	struct ec_policy_msg store;
	struct ec_policy p, got;
	uint8_t *buf;
	size_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		assert_int_equal(ec_policy_make(EC_CODEC_RS, 4, 2, 64 << 10, ids[i], &p, NULL), 0);
		ec_policy_to_msg(&p, &store, &m);
		assert_int_equal(m.id, ids[i] == EC_ID_NONE ? UINT32_MAX : ids[i]);
		memset(&got, 0, sizeof(got));
		assert_int_equal(pb_pack(&m, &buf, &len), 0);
		assert_int_equal(
			pb_unpack(&hd__erasure_coding_policy_proto__descriptor, buf, len, &in), 0);
		assert_string_equal(in->name, "RS-4-2-64k");
		assert_int_equal(ec_policy_from_msg(in, &got), 0);
		assert_true(ec_policy_same(&got, &p));
		assert_int_equal(got.id, ids[i]);
		assert_string_equal(got.name, p.name);
		pb_free(in);
		free(buf);
	}
}

static void a_message_without_the_parts_or_with_wrong_ones_is_refused(void **state)
{
	Hd__ErasureCodingPolicyProto m;
	struct ec_policy_msg store;
	struct ec_policy p, got;

	(void)state;
	memset(&got, 0x5a, sizeof(got));
	assert_int_equal(ec_policy_make(EC_CODEC_RS, 4, 2, 64 << 10, 70, &p, NULL), 0);
	ec_policy_to_msg(&p, &store, &m);
	m.schema = NULL;
	assert_int_equal(ec_policy_from_msg(&m, &got), -EBADMSG);
	ec_policy_to_msg(&p, &store, &m);
	m.has_cellsize = 0;
	assert_int_equal(ec_policy_from_msg(&m, &got), -EBADMSG);
	ec_policy_to_msg(&p, &store, &m);
	store.schema.codecname = (char *)"RS";
	assert_int_equal(ec_policy_from_msg(&m, &got), -EBADMSG);
	ec_policy_to_msg(&p, &store, &m);
	store.schema.dataunits = 15;
	assert_int_equal(ec_policy_from_msg(&m, &got), -EINVAL);
	ec_policy_to_msg(&p, &store, &m);
	store.schema.codecname = (char *)EC_REPLICATION_NAME;
	assert_int_equal(ec_policy_from_msg(&m, &got), -EINVAL);
	ec_policy_to_msg(&p, &store, &m);
	m.id = 200; /* negative, and not -1 */
	assert_int_equal(ec_policy_from_msg(&m, &got), -EINVAL);
	assert_int_equal(got.k, 0x5a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hdfs_s_own_policies_travel_as_their_id),
		cmocka_unit_test(a_user_s_policy_survives_a_round_trip),
		cmocka_unit_test(a_message_without_the_parts_or_with_wrong_ones_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
