/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include "common/wire/small_read.h"
#include "tests/fuzz/fuzz.h"

/* The header of the answer to a small read. */
static void small_read(const uint8_t *data, size_t size)
{
	uint8_t buf[SMALL_READ_HEADER_LEN];
	struct small_read_answer a, again;

	if (size < sizeof(buf) || small_read_answer_decode(data, &a) < 0)
		return;
	MUST(SMALL_READ_HEADER_LEN + (uint64_t)a.crc_len + a.data_len <= SMALL_READ_ANSWER_MAX);
	MUST(a.status != DT_SUCCESS || a.lead < a.data_len);
	small_read_answer_encode(&a, buf);
	MUST(!small_read_answer_decode(buf, &again));
	MUST(a.tag == again.tag && a.data_len == again.data_len && a.crc_len == again.crc_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[DT_PACKET_HEADER_MAX];
	struct dt_packet p, again;
	const ssize_t need = dt_packet_need(data, size);

	small_read(data, size);
	if (need < 0 || (size_t)need > size || dt_packet_decode(data, (size_t)need, &p))
		return 0;
	MUST(p.data_len <= DT_PACKET_MAX && p.crc_len <= DT_PACKET_MAX && p.offset >= 0);
	MUST(!dt_packet_decode(buf, dt_packet_encode(&p, buf), &again));
	MUST(p.offset == again.offset && p.seqno == again.seqno && p.data_len == again.data_len &&
	     p.crc_len == again.crc_len && p.last == again.last && p.sync == again.sync);
	dt_packet_crc_len_ok(&p, 512);
	return 0;
}
