/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/small_read.h"

#include <errno.h>

#include "common/base/cursor.h"

void small_read_answer_encode(const struct small_read_answer *a, uint8_t out[SMALL_READ_HEADER_LEN])
{
	struct wr w = wr_init(out, SMALL_READ_HEADER_LEN);

	wr_be32(&w, a->tag);
	wr_u8(&w, (uint8_t)a->status);
	wr_u8(&w, (uint8_t)a->crc_type);
	wr_be16(&w, 0);
	wr_be32(&w, a->bytes_per_crc);
	wr_be32(&w, a->lead);
	wr_be32(&w, a->crc_len);
	wr_be32(&w, a->data_len);
}

static bool fits(const struct small_read_answer *a)
{
	if (a->status != DT_SUCCESS)
		return a->crc_len == 0 && a->data_len == 0;
	if (a->crc_type != CRC_NULL && a->crc_type != CRC_CRC32 && a->crc_type != CRC_CRC32C)
		return false;
	return a->bytes_per_crc > 0 && a->lead < a->data_len && a->lead < a->bytes_per_crc &&
	       a->data_len <= SMALL_READ_ANSWER_MAX && a->crc_len <= SMALL_READ_ANSWER_MAX &&
	       SMALL_READ_HEADER_LEN + a->crc_len + a->data_len <= SMALL_READ_ANSWER_MAX &&
	       a->crc_len == crc_bytes(a->crc_type, a->data_len, a->bytes_per_crc);
}

int small_read_answer_decode(const uint8_t buf[SMALL_READ_HEADER_LEN],
			     struct small_read_answer *ret)
{
	struct rd r = rd_init(buf, SMALL_READ_HEADER_LEN);

	ret->tag = rd_be32(&r);
	ret->status = (enum dt_status)rd_u8(&r);
	ret->crc_type = (enum crc_type)rd_u8(&r);
	(void)rd_be16(&r);
	ret->bytes_per_crc = rd_be32(&r);
	ret->lead = rd_be32(&r);
	ret->crc_len = rd_be32(&r);
	ret->data_len = rd_be32(&r);
	return fits(ret) ? 0 : -EPROTO;
}
