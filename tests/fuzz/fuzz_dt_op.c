/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include "common/wire/pb.h"
#include "tests/fuzz/fuzz.h"

static void block_of(const Hd__ExtendedBlockProto *p)
{
	char pool[BLOCK_POOL_ID_MAX];
	struct block b;

	if (!dt_block_from_proto(p, &b, pool))
		MUST(!strchr(pool, '/') && strlen(pool) < sizeof(pool));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum dt_status s;
	uint32_t prefix;
	ssize_t need;
	uint8_t op;
	void *msg;

	dt_read_status_decode(data, size, &s);
	if (size < DT_OP_HEADER_LEN || dt_op_header_decode(data, &op) || !dt_op_desc(op))
		return 0;
	data += DT_OP_HEADER_LEN;
	size -= DT_OP_HEADER_LEN;
	need = dt_delim_need(data, size, DT_MESSAGE_MAX, &prefix);
	if (need < 0 || (size_t)need > size)
		return 0;
	MUST(prefix);
	if (pb_unpack(dt_op_desc(op), data + prefix, (size_t)need - prefix, &msg))
		return 0;
	if (op == DT_WRITE_BLOCK)
		block_of(((Hd__OpWriteBlockProto *)msg)->header->baseheader->block);
	pb_free(msg);
	return 0;
}
