/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/packet.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/rdma.h"

#define COPY_STEP 65536u /* copy and checksum in pieces that stay in the cache */

static void crc_upto(struct packet *p, enum crc_type type, uint32_t bpc, uint32_t end)
{
	if (end > p->crc_done)
		crc_chunks(type, p->data + p->crc_done, end - p->crc_done, bpc,
			   p->crc + p->crc_done / bpc * 4);
	p->crc_done = end;
}

size_t packet_append(struct packet *p, enum crc_type type, uint32_t bpc, uint64_t end,
		     const void *buf, size_t len)
{
	const uint8_t *src = buf;
	const uint64_t at = p->offset + p->len;
	size_t room = p->cap - p->len, left;

	assert(at <= end);
	if (room > end - at)
		room = (size_t)(end - at);
	if (len > room)
		len = room;
	for (left = len; left > 0;) {
		const size_t n = left < COPY_STEP ? left : COPY_STEP;

		memcpy(p->data + p->len, src, n);
		src += n;
		left -= n;
		p->len += (uint32_t)n;
		p->copied += (uint32_t)n;
		crc_upto(p, type, bpc, p->len / bpc * bpc);
	}
	return len;
}

void packet_fill(struct packet *p, enum crc_type type, uint32_t bpc, uint32_t len)
{
	assert(p->len == 0 && len <= p->cap);
	p->len = len;
	crc_upto(p, type, bpc, len / bpc * bpc);
}

void packet_seal(struct packet *p, enum crc_type type, uint32_t bpc)
{
	crc_upto(p, type, bpc, p->len);
	p->crc_len = (uint32_t)crc_bytes(type, p->len, bpc);
}

size_t packet_header(const struct packet *p, uint8_t hdr[DT_PACKET_HEADER_MAX])
{
	const struct dt_packet h = {
		.offset = (int64_t)p->offset,
		.seqno = p->seqno,
		.data_len = p->len,
		.crc_len = p->crc_len,
		.last = p->last,
		.sync = p->sync,
	};

	return dt_packet_encode(&h, hdr);
}

void packet_pool_init(struct packet_pool *pool)
{
	*pool = (struct packet_pool){0};
	pthread_mutex_init(&pool->lock, NULL);
	list_init(&pool->free);
}

struct loan *loan_new(void (*done)(void *arg), void *arg)
{
	struct loan *l = malloc(sizeof(*l));

	if (l)
		*l = (struct loan){1, done, arg, NULL};
	return l;
}

void loan_put(struct loan *l)
{
	if (--l->refs > 0)
		return;
	rdma_memory_put(l->memory);
	l->done(l->arg);
	free(l);
}

static void packet_free(struct packet *p)
{
	if (!p)
		return;
	if (p->buf) {
		rdma_buf_put(p->buf);
	} else if (p->loan) {
		free(p->crc);
		loan_put(p->loan);
	} else {
		free(p->data);
		free(p->crc);
	}
	free(p);
}

void packet_pool_register(struct packet_pool *pool, struct rdma *rdma)
{
	pthread_mutex_lock(&pool->lock);
	pool->rdma = rdma;
	pthread_mutex_unlock(&pool->lock);
}

/* NULL: its own memory will do. */
static struct packet *packet_registered(struct packet_pool *pool, uint32_t cap, uint32_t crc_cap)
{
	struct rdma *rdma;
	struct packet *p;
	struct rbuf *b;

	if (cap < PACKET_BUF_MIN || cap > RDMA_BUF_BYTES || crc_cap > RDMA_BUF_CRC_BYTES)
		return NULL;
	pthread_mutex_lock(&pool->lock);
	rdma = pool->rdma;
	pthread_mutex_unlock(&pool->lock);
	b = rdma ? rdma_buf_get(rdma, cap) : NULL;
	p = b ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		rdma_buf_put(b);
		return NULL;
	}
	p->buf = b;
	p->cap = cap;
	p->crc_cap = crc_cap;
	p->data = b->data->data;
	p->crc = b->crc->data;
	return p;
}

void packet_pool_fini(struct packet_pool *pool)
{
	struct list *l;

	while ((l = list_pop(&pool->free)))
		packet_free(container_of(l, struct packet, link));
}

static struct packet *packet_new(uint32_t cap, uint32_t crc_cap)
{
	struct packet *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->cap = cap;
	p->crc_cap = crc_cap;
	p->crc = malloc(crc_cap);
	p->data = aligned_alloc(4096, ((size_t)cap + 4095) & ~(size_t)4095);
	if (p->crc && p->data)
		return p;
	packet_free(p);
	return NULL;
}

static struct packet *reuse(struct packet_pool *pool, uint32_t cap, uint32_t crc_cap)
{
	struct packet *found = NULL;

	pthread_mutex_lock(&pool->lock);
	list_for_each (l, &pool->free) {
		struct packet *p = container_of(l, struct packet, link);

		if (p->cap == cap && p->crc_cap >= crc_cap) {
			list_del(l);
			pool->free_bytes -= cap;
			found = p;
			break;
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return found;
}

struct packet *packet_get(struct packet_pool *pool, uint32_t cap, uint32_t bpc)
{
	const uint32_t crc_cap = (uint32_t)crc_bytes(CRC_CRC32C, cap, bpc);
	struct packet *p = packet_registered(pool, cap, crc_cap);

	if (!p)
		p = reuse(pool, cap, crc_cap);
	if (!p)
		p = packet_new(cap, crc_cap);
	if (!p)
		return NULL;
	list_init(&p->link);
	p->seqno = 0;
	p->offset = 0;
	p->len = p->crc_done = p->crc_len = p->copied = 0;
	p->last = p->sync = false;
	p->sent = 0;
	p->refs = 1;
	return p;
}

struct packet *packet_lent(const void *data, uint32_t len, uint32_t bpc, struct loan *loan)
{
	const uint32_t crc_cap = (uint32_t)crc_bytes(CRC_CRC32C, len, bpc);
	struct packet *p = calloc(1, sizeof(*p));
	uint8_t *crc = malloc(crc_cap);

	if (!p || !crc) {
		free(p);
		free(crc);
		return NULL;
	}
	list_init(&p->link);
	p->data = (uint8_t *)(uintptr_t)data; /* only read from now on */
	p->len = p->cap = len;
	p->crc = crc;
	p->crc_cap = crc_cap;
	p->refs = 1;
	p->loan = loan;
	loan->refs++;
	return p;
}

bool packet_pool_is_registered(struct packet_pool *pool)
{
	bool yes;

	pthread_mutex_lock(&pool->lock);
	yes = pool->rdma != NULL;
	pthread_mutex_unlock(&pool->lock);
	return yes;
}

void packet_put(struct packet_pool *pool, struct packet *p)
{
	bool keep;

	if (!p || --p->refs > 0)
		return;
	if (p->buf || p->loan) { /* others may want it, and a node may still read from it */
		packet_free(p);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	keep = pool->free_bytes + p->cap <= PACKET_POOL_BYTES;
	if (keep) {
		list_add(&pool->free, &p->link);
		pool->free_bytes += p->cap;
	}
	pthread_mutex_unlock(&pool->lock);
	if (!keep)
		packet_free(p);
}
