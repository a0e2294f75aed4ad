/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include <string.h>

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

static void small_read_of(const uint8_t *data, size_t size)
{
	struct small_read_request q, again;
	char pool[BLOCK_POOL_ID_MAX], pool_again[BLOCK_POOL_ID_MAX];
	static uint8_t buf[1u << 18];
	uint32_t prefix;
	size_t n;

	if (small_read_request_decode(data, size, &q, pool) < 0)
		return;
	n = small_read_request_encode(&q, buf, sizeof(buf));
	MUST(n > DT_OP_HEADER_LEN);
	MUST(dt_delim_need(buf + 3, n - 3, DT_MESSAGE_MAX, &prefix) == (ssize_t)n - 3);
	MUST(!small_read_request_decode(buf + 3 + prefix, n - 3 - prefix, &again, pool_again));
	MUST(q.tag == again.tag && q.offset == again.offset && !strcmp(pool, pool_again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[DT_PACKET_HEADER_MAX];
	struct dt_packet p, again;
	const ssize_t need = dt_packet_need(data, size);

	small_read(data, size);
	small_read_of(data, size);
	if (need < 0 || (size_t)need > size || dt_packet_decode(data, (size_t)need, &p))
		return 0;
	MUST(p.data_len <= DT_PACKET_MAX && p.crc_len <= DT_PACKET_MAX && p.offset >= 0);
	MUST(!dt_packet_decode(buf, dt_packet_encode(&p, buf), &again));
	MUST(p.offset == again.offset && p.seqno == again.seqno && p.data_len == again.data_len &&
	     p.crc_len == again.crc_len && p.last == again.last && p.sync == again.sync);
	dt_packet_crc_len_ok(&p, 512);
	return 0;
}
