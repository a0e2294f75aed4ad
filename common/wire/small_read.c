/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/small_read.h"

#include <errno.h>
#include <string.h>

#include "common/base/cursor.h"

#define REQUEST_LEN 37u /* the fixed fields */

size_t small_read_request_encode(const struct small_read_request *q, uint8_t *out, size_t cap)
{
	const size_t pool_len = strlen(q->pool);
	const size_t len = REQUEST_LEN + pool_len + q->identifier_len + q->password_len;
	struct wr w = wr_init(out, cap);

	if (pool_len >= BLOCK_POOL_ID_MAX || q->identifier_len > UINT16_MAX ||
	    q->password_len > UINT16_MAX)
		return 0;
	wr_be16(&w, DT_VERSION);
	wr_u8(&w, DT_READ_SMALL);
	wr_varint(&w, len);
	wr_be32(&w, q->tag);
	wr_be32(&w, q->len);
	wr_be64(&w, q->offset);
	wr_be64(&w, (uint64_t)q->block.id);
	wr_be64(&w, q->block.gs);
	wr_u8(&w, (uint8_t)pool_len);
	wr_be16(&w, (uint16_t)q->identifier_len);
	wr_be16(&w, (uint16_t)q->password_len);
	wr_bytes(&w, q->pool, pool_len);
	wr_bytes(&w, q->identifier, q->identifier_len);
	wr_bytes(&w, q->password, q->password_len);
	return w.bad ? 0 : cap - wr_room(&w);
}

int small_read_request_decode(const uint8_t *buf, size_t len, struct small_read_request *ret,
			      char ret_pool[BLOCK_POOL_ID_MAX])
{
	struct rd r = rd_init(buf, len);
	const uint8_t *pool;
	size_t pool_len;

	ret->tag = rd_be32(&r);
	ret->len = rd_be32(&r);
	ret->offset = rd_be64(&r);
	ret->block = (struct block){.id = (int64_t)rd_be64(&r)};
	ret->block.gs = rd_be64(&r);
	pool_len = rd_u8(&r);
	ret->identifier_len = rd_be16(&r);
	ret->password_len = rd_be16(&r);
	pool = rd_bytes(&r, pool_len);
	ret->identifier = rd_bytes(&r, ret->identifier_len);
	ret->password = rd_bytes(&r, ret->password_len);
	if (r.bad || rd_left(&r) || pool_len >= BLOCK_POOL_ID_MAX || memchr(pool, 0, pool_len))
		return -EPROTO;
	memcpy(ret_pool, pool, pool_len);
	ret_pool[pool_len] = '\0';
	ret->pool = ret_pool;
	return 0;
}

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
