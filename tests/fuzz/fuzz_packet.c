/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[DT_PACKET_HEADER_MAX];
	struct dt_packet p, again;
	const ssize_t need = dt_packet_need(data, size);

	if (need < 0 || (size_t)need > size || dt_packet_decode(data, (size_t)need, &p))
		return 0;
	MUST(p.data_len <= DT_PACKET_MAX && p.crc_len <= DT_PACKET_MAX && p.offset >= 0);
	MUST(!dt_packet_decode(buf, dt_packet_encode(&p, buf), &again));
	MUST(p.offset == again.offset && p.seqno == again.seqno && p.data_len == again.data_len &&
	     p.crc_len == again.crc_len && p.last == again.last && p.sync == again.sync);
	dt_packet_crc_len_ok(&p, 512);
	return 0;
}
