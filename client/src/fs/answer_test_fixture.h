/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Test code: answer_test_fixture - the answer of a fake NameNode, as it comes out of the wire */
#include <stdlib.h>

#include "common/wire/pb.h"

/* A copy of @m in memory of its own, which pb_free() frees. */
static inline void answer(const ProtobufCMessageDescriptor *desc, const void *m, void *ret)
{
	uint8_t *buf;
	size_t len;

	assert_int_equal(pb_pack(m, &buf, &len), 0);
	assert_int_equal(pb_unpack(desc, buf, len, ret), 0);
	free(buf);
}
