/* SPDX-License-Identifier: Apache-2.0 */
/* Any message of any of our .proto files: two bytes choose which. */
#include "common/wire/block_report.h"
#include "common/wire/pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/descriptors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len, again_len, which;
	uint8_t *p, *again;
	void *msg;

	if (size < 2)
		return 0;
	which = ((size_t)data[0] << 8 | data[1]) % message_descriptor_count;
	if (pb_unpack(message_descriptors[which], data + 2, size - 2, &msg))
		return 0;
	MUST(!pb_pack(msg, &p, &len));
	pb_free(msg);
	if (!pb_unpack(message_descriptors[which], p, len, &msg)) {
		MUST(!pb_pack(msg, &again, &again_len));
		MUST(len == again_len && !memcmp(p, again, len));
		free(again);
		pb_free(msg);
	}
	free(p);
	return 0;
}
