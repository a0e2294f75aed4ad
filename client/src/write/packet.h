/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * packet - a stretch of a block on its way to the data nodes
 *
 * Idea: bytes of dfs_write() are copied once, into a packet, and their CRCs are computed as they
 * enter, while they are in the CPU's cache. A packet is kept until every node has acknowledged it,
 * because a broken pipeline wants it again. Its data starts on a chunk boundary of the block.
 * Bytes that the caller lends are not even copied: the packet lies in the caller's memory.
 * Where blocks go by RDMA its memory is the transport's, registered, as long as there is some:
 * nothing is copied again then.
 * Ownership: packet_pool gives packets out; a writer gives them back. The memory is reused from
 * file to file.
 * Threading: the pool has its own lock; a packet has one user.
 * Units: bytes; offset within the block.
 * Source: hdfs-wire 5.3, 5.6.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/crc.h"
#include "common/base/list.h"
#include "common/wire/dt.h"

struct rbuf;
struct rdma;
struct rmem;

/** Memory of the caller that packets lie in; counted, under the writer's lock. */
struct loan {
	uint32_t refs;
	void (*done)(void *arg); /* the last reference is gone */
	void *arg;
	struct rmem *memory; /* counted: it is registered, and has all of it; NULL: it is not */
};

/** NULL: out of memory, and @done is not called. */
struct loan *loan_new(void (*done)(void *arg), void *arg);
void loan_put(struct loan *l);

struct packet {
	struct list link;
	int64_t seqno;
	uint64_t offset;
	uint32_t len;      /* data bytes */
	uint32_t cap;      /* data bytes that fit */
	uint32_t crc_done; /* data bytes whose CRCs are computed: whole chunks until sealed */
	bool last, sync;
	uint8_t *data;     /* 4 KiB-aligned */
	uint8_t *crc;      /* big-endian CRCs, crc_bytes(len) of them once sealed */
	uint32_t crc_cap;  /* bytes */
	uint32_t crc_len;  /* bytes of CRCs; set by packet_seal() */
	uint32_t copied;   /* bytes copied into it that are in no counter yet */
	size_t sent;       /* bytes given to the transport so far; the transport's */
	uint32_t refs;     /* packet_put() so often; under the writer's lock */
	struct rbuf *buf;  /* counted: whose memory `data` and `crc` are; NULL: the packet's own, */
	struct loan *loan; /* or counted: `data` is the caller's */
};

/** Copy as much of @len as fits and stays below @end (offset in the block); returns the count. */
size_t packet_append(struct packet *p, enum crc_type type, uint32_t bpc, uint64_t end,
		     const void *buf, size_t len);
/** @len bytes were written to `data` of an empty packet. */
void packet_fill(struct packet *p, enum crc_type type, uint32_t bpc, uint32_t len);
/** Compute the CRC of a last, partial chunk; the packet is ready to be sent. */
void packet_seal(struct packet *p, enum crc_type type, uint32_t bpc);
/** Encode PLEN, HLEN and header into @hdr; returns the length. */
size_t packet_header(const struct packet *p, uint8_t hdr[DT_PACKET_HEADER_MAX]);

#define PACKET_BUF_MIN 4096u          /* data bytes worth registered memory */
#define PACKET_POOL_BYTES (32u << 20) /* kept for reuse per file system */

struct packet_pool {
	pthread_mutex_t lock;
	struct list free;
	size_t free_bytes;
	struct rdma *rdma; /* borrowed (outlives the packets): has registered memory; or NULL */
};

void packet_pool_init(struct packet_pool *pool);
void packet_pool_fini(struct packet_pool *pool);
/** From now on packets are of @rdma's memory when there is some. */
void packet_pool_register(struct packet_pool *pool, struct rdma *rdma);
/** An empty packet for @cap data bytes of @bpc-byte chunks, or NULL (out of memory). */
struct packet *packet_get(struct packet_pool *pool, uint32_t cap, uint32_t bpc);
/** A packet of the @len bytes at @data, which are lent as @loan (a reference is taken). NULL: out
 * of memory. */
struct packet *packet_lent(const void *data, uint32_t len, uint32_t bpc, struct loan *loan);
/** Is there registered memory for packets? Then bytes are better copied into it. */
bool packet_pool_is_registered(struct packet_pool *pool);
/** Accepts NULL. */
void packet_put(struct packet_pool *pool, struct packet *p);
/** One more packet_put() before the packet is given back. Returns @p. */
static inline struct packet *packet_hold(struct packet *p)
{
	p->refs++;
	return p;
}
