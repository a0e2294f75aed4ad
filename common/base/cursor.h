/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cursor - read and write foreign bytes with sticky failure
 *
 * Idea: a decoder is a straight list of fields with one check at the end. No struct is cast onto a
 * buffer. Reading past the end sets `bad`, yields zeros and never moves again.
 * Ownership: values that borrow their buffer. Threading: none.
 * Source: big-endian integers and protobuf varints as in Hadoop RPC and DataTransferProtocol.
 */
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rd {
	const uint8_t *p, *end;
	bool bad; /* sticky: read all fields, then check once */
};

struct wr {
	uint8_t *p, *end;
	bool bad; /* sticky: did not fit */
};

static inline struct rd rd_init(const void *buf, size_t len)
{
	return (struct rd){.p = (const uint8_t *)buf, .end = (const uint8_t *)buf + len};
}
static inline size_t rd_left(const struct rd *r)
{
	return (size_t)(r->end - r->p);
}
/** @len bytes in place (borrowed), or NULL and bad. */
static inline const uint8_t *rd_bytes(struct rd *r, size_t len)
{
	const uint8_t *p = r->p;

	if (r->bad || rd_left(r) < len) {
		r->bad = true;
		return NULL;
	}
	r->p += len;
	return p;
}
static inline uint8_t rd_u8(struct rd *r)
{
	const uint8_t *p = rd_bytes(r, 1);

	return p ? *p : 0;
}
#define CURSOR_RD_(name, type, conv)                                                               \
	static inline type name(struct rd *r)                                                      \
	{                                                                                          \
		const uint8_t *p = rd_bytes(r, sizeof(type));                                      \
		type v = 0;                                                                        \
                                                                                                   \
		if (p)                                                                             \
			memcpy(&v, p, sizeof(v));                                                  \
		return conv(v);                                                                    \
	}
CURSOR_RD_(rd_be16, uint16_t, be16toh)
CURSOR_RD_(rd_be32, uint32_t, be32toh)
CURSOR_RD_(rd_be64, uint64_t, be64toh)
CURSOR_RD_(rd_le32, uint32_t, le32toh)
CURSOR_RD_(rd_le64, uint64_t, le64toh)
#undef CURSOR_RD_

/** Protobuf varint, at most 10 bytes; longer is bad. */
static inline uint64_t rd_varint(struct rd *r)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		uint8_t b = rd_u8(r);

		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return r->bad ? 0 : v;
	}
	r->bad = true;
	return 0;
}
static inline int64_t zigzag_decode(uint64_t v)
{
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}
static inline uint64_t zigzag_encode(int64_t v)
{
	return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static inline struct wr wr_init(void *buf, size_t len)
{
	return (struct wr){.p = (uint8_t *)buf, .end = (uint8_t *)buf + len};
}
static inline size_t wr_room(const struct wr *w)
{
	return (size_t)(w->end - w->p);
}
/** Reserve @len bytes; NULL and bad when they do not fit. */
static inline uint8_t *wr_space(struct wr *w, size_t len)
{
	uint8_t *p = w->p;

	if (w->bad || wr_room(w) < len) {
		w->bad = true;
		return NULL;
	}
	w->p += len;
	return p;
}
/* gcc 12 at -O3 sees an overflow behind the check of wr_space() when a buffer has a known size. */
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
static inline void wr_bytes(struct wr *w, const void *src, size_t len)
{
	uint8_t *p = wr_space(w, len);

	if (p && len)
		memcpy(p, src, len);
}
#pragma GCC diagnostic pop
static inline void wr_u8(struct wr *w, uint8_t v)
{
	wr_bytes(w, &v, 1);
}
#define CURSOR_WR_(name, type, conv)                                                               \
	static inline void name(struct wr *w, type v)                                              \
	{                                                                                          \
		v = conv(v);                                                                       \
		wr_bytes(w, &v, sizeof(v));                                                        \
	}
CURSOR_WR_(wr_be16, uint16_t, htobe16)
CURSOR_WR_(wr_be32, uint32_t, htobe32)
CURSOR_WR_(wr_be64, uint64_t, htobe64)
CURSOR_WR_(wr_le32, uint32_t, htole32)
CURSOR_WR_(wr_le64, uint64_t, htole64)
#undef CURSOR_WR_

static inline void wr_varint(struct wr *w, uint64_t v)
{
	while (v >= 0x80) {
		wr_u8(w, (uint8_t)(v | 0x80));
		v >>= 7;
	}
	wr_u8(w, (uint8_t)v);
}
static inline size_t varint_len(uint64_t v)
{
	size_t n = 1;

	while (v >= 0x80) {
		v >>= 7;
		n++;
	}
	return n;
}
