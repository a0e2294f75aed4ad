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
};
static inline uint32_t dtp_buf_len(const struct dtp_buf *b)
{
	return b->end - b->start;
}
static inline uint8_t *dtp_buf_at(const struct dtp_buf *b)
{
	return b->data + b->start;
}
/** Make room for @total unread bytes in all. -ENOMEM, -EMSGSIZE. */
int dtp_buf_reserve(struct dtp_buf *b, uint32_t total);
