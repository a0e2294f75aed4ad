/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory of packets: taken and given back by any thread. */
#include "client/src/stream/rdma_internal.h"

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
