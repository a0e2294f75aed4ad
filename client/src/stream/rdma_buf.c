/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory of packets: taken and given back by any thread. And what a node may still get
 * at: kept until it surely cannot, on the reactor. */
#include <stdlib.h>

#include "client/src/stream/rdma_internal.h"
#include "common/base/clock.h"

#define QUARANTINE_NS (6 * NS_PER_S) /* longer than the transport drains a queue pair */

struct rbuf *rdma_buf_get(struct rdma *r, uint32_t bytes)
{
	struct list *l;

	pthread_mutex_lock(&r->bufs_lock);
	l = list_pop(bytes <= BUF_SMALL ? &r->bufs_64k : &r->bufs_1m);
	if (l)
		container_of(l, struct rbuf, link)->refs = 1;
	pthread_mutex_unlock(&r->bufs_lock);
	return l ? container_of(l, struct rbuf, link) : NULL;
}

struct rbuf *rdma_buf_ref(struct rbuf *b)
{
	pthread_mutex_lock(&b->rdma->bufs_lock);
	b->refs++;
	pthread_mutex_unlock(&b->rdma->bufs_lock);
	return b;
}

void rdma_buf_put(struct rbuf *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->rdma->bufs_lock);
	if (--b->refs == 0) /* the one that is in the cache first */
		list_add(b->data->size <= BUF_SMALL ? &b->rdma->bufs_64k : &b->rdma->bufs_1m,
			 &b->link);
	pthread_mutex_unlock(&b->rdma->bufs_lock);
}

void rdma_bufs_init(struct rdma *r)
{
	for (uint32_t i = 0; i < BUFS; i++) {
		const bool big = i < BUFS_1M;
		struct rbuf *b = &r->bufs[i];

		*b = (struct rbuf){.rdma = r,
				   .data = pool_get(r->pool, big ? SLOT_1M : SLOT_64K, POOL_CTRL),
				   .crc = pool_get(r->pool, SLOT_CRC, POOL_CTRL)};
		list_add_tail(big ? &r->bufs_1m : &r->bufs_64k, &b->link);
	}
}

void rdma_bufs_fini(struct rdma *r)
{
	for (uint32_t i = 0; i < BUFS; i++) {
		slot_put(r->bufs[i].data);
		slot_put(r->bufs[i].crc);
	}
}

void rdma_quarantine_over(struct rtimer *t)
{
	struct quarantine *q = container_of(t, struct quarantine, timer);

	list_del(&q->link);
	slot_put(q->slot);
	rdma_buf_put(q->buf);
	free(q);
}

static void quarantine(struct rdma *r, struct rcall *c, struct slot *s, struct rbuf *b)
{
	struct quarantine *q = calloc(1, sizeof(*q));

	rdma_give_up(c);
	if (!q)
		return; /* better lost than written to by somebody else's RDMA */
	q->slot = s;
	q->buf = b;
	q->timer.fire = rdma_quarantine_over;
	list_add_tail(&r->quarantine, &q->link);
	reactor_timer_set(r->reactor, &q->timer, clock_mono_ns() + QUARANTINE_NS);
}

void rdma_quarantine(struct rdma *r, struct rcall *c, struct slot *s)
{
	quarantine(r, c, s, NULL);
}

void rdma_quarantine_buf(struct rdma *r, struct rcall *c, struct rbuf *b)
{
	quarantine(r, c, NULL, b);
}
