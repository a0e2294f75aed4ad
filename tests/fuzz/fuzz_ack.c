/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[DT_ACK_MAX];
	struct dt_ack a, again;
	uint32_t prefix;
	size_t len;

	if (dt_ack_decode(data, size, &a))
		return 0;
	len = dt_ack_encode(&a, buf);
	MUST(dt_delim_need(buf, len, DT_ACK_MAX, &prefix) == (ssize_t)len);
	MUST(!dt_ack_decode(buf + prefix, len - prefix, &again));
	MUST(again.count == a.count && again.seqno == a.seqno &&
	     !memcmp(a.reply, again.reply, a.count));
	MUST(dt_ack_first_bad(&a) < (int)a.count);
	return 0;
}
