/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp_buf - bytes received of a connection that nobody has read yet; grows up to a limit
 *
 * Ownership: a value in its connection, zeroed at first; the owner frees data.
 * Units: bytes.
 */
#include <stdint.h>

/* receive buffer of an idle connection: most op messages fit */
#define DTP_BUF 1024
/* longest packet header with the CRCs of a piece; twice an op message */
#define DTP_BUF_MAX ((1u << 20) + 4096)

/* [start, end) are unread. */
struct dtp_buf {
	uint8_t *data;
	uint32_t size, start, end;
	uint64_t whole_by_ns; /* until it is, of what has begun to come; 0: not asked yet */
};
static inline uint32_t dtp_buf_len(const struct dtp_buf *b)
{
	return b->end - b->start;
}
static inline uint8_t *dtp_buf_at(const struct dtp_buf *b)
{
	return b->data + b->start;
}
/** @n unread bytes have been read. */
static inline void dtp_buf_take(struct dtp_buf *b, uint32_t n)
{
	b->start += n;
	b->whole_by_ns = 0;
}
/** Until when more is waited for: until @deadline_ns while nothing is here. What has begun to come
 *  is to be whole by the deadline of the first call that found a part of it: a peer that sends a
 *  byte now and then does not move that. */
static inline uint64_t dtp_buf_wait_until(struct dtp_buf *b, uint64_t deadline_ns)
{
	if (!dtp_buf_len(b))
		return deadline_ns;
	if (!b->whole_by_ns)
		b->whole_by_ns = deadline_ns;
	return b->whole_by_ns;
}
/** Make room for @total unread bytes in all. -ENOMEM, -EMSGSIZE. */
int dtp_buf_reserve(struct dtp_buf *b, uint32_t total);
