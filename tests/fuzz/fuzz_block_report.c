/* SPDX-License-Identifier: Apache-2.0 */
/* First byte: number of replicas; second: where to cut the rest into chunks. */
#include "common/wire/block_report_test_fixture.h"

#include "tests/fuzz/fuzz.h"

static int add(void *arg, const struct block *b, uint32_t state)
{
	return block_report_add(arg, b, (enum replica_state)state);
}

static int count(void *arg, const struct block *b, uint32_t state)
{
	(void)b;
	(void)state;
	++*(size_t *)arg;
	return 0;
}

static void as_longs(const uint8_t *data, size_t size)
{
	uint64_t v[64] = {0};
	size_t seen = 0, n = size / 8 < 64 ? size / 8 : 64;

	memcpy(v, data, n * 8);
	block_report_decode_longs(v, n, count, &seen);
	MUST(seen * 3 <= n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_report r = BLOCK_REPORT_INIT;
	ProtobufCBinaryData chunk[2];
	size_t seen = 0, cut;

	as_longs(data, size);
	if (size < 2)
		return 0;
	cut = data[1] < size - 2 ? data[1] : size - 2;
	chunk[0] = (ProtobufCBinaryData){cut, (uint8_t *)data + 2};
	chunk[1] = (ProtobufCBinaryData){size - 2 - cut, (uint8_t *)data + 2 + cut};
	if (!block_report_decode(chunk, 2, data[0], add, &r)) {
		MUST(r.count == data[0]);
		MUST(!block_report_decode(r.chunks, r.chunk_count, r.count, count, &seen));
		MUST(seen == r.count);
	}
	block_report_fini(&r);
	return 0;
}
