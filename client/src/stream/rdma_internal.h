/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rdma_internal - shared by rdma.c, rdma_buf.c (memory of packets), rdma_memory.c (memory of
 * callers, and what nodes may touch) and rdma_view.c; no other file includes it. */
#include <pthread.h>

#include "client/src/stream/rdma.h"
#include "common/link/rails.h"

#define BUFS_1M 28u
#define BUFS_64K 40u
#define BUFS (BUFS_1M + BUFS_64K)
#define BUF_SMALL (64u << 10)

#define LIARS 64u /* power of two */

enum rconn_state { RC_CONNECTING, RC_UP, RC_LOST };

struct rconn {
	struct list link; /* rdma.conns, until lost */
	struct rdma *rdma;
	struct net_addr addr;   /* that the node is known by */
	struct rail *rail;      /* the one that it is reached by; NULL: addr */
	enum rconn_state state; /* written on the reactor under rdma.lock */
	int rc;                 /* why lost */
	char why[160];
	uint32_t refs; /* calls, ops in flight, the list */
	struct xconn *x;
	struct xop connect_op, recv_op;
	struct rop rop;
	struct list calls;
	uint64_t next_id;
	uint64_t again_ns; /* no other one to this node is tried before */
	uint64_t used_ns;  /* when its last call ended */
	int received;      /* bytes in buf, or -errno; 0: none */
	bool receiving;
	bool tells;        /* its calls are told when the queue pair is gone */
	struct list views; /* rdma_view.c, as these are */
	uint32_t view_count, reads;
	uint8_t buf[VERBS_MESSAGE_MAX];
};

struct rdma {
	struct reactor *reactor; /* owned */
	struct pool *pool;       /* owned */
	struct verbs *verbs;     /* owned */
	struct verbs_tuning tuning;
	struct rails rails;
	enum verbs_windows windows;
	struct list conns;
	struct list quarantine;
	bool onesided; /* dfs.rdma.onesided is auto */
	/* until when a node is not asked for views, by a hash of its address */
	uint64_t liars[LIARS];
	uint64_t eager_limit;     /* dfs.rdma.eager.limit, or EAGER_AUTO */
	double copy_bytes_per_ns; /* memcpy between cold slots */
	struct list holders;
	struct rtimer shed; /* while somebody waits */
	struct rbuf bufs[BUFS];
	struct list bufs_1m, bufs_64k; /* free; under bufs_lock, and the counts of references */
	pthread_mutex_t bufs_lock;
	struct list memories; /* struct rmem; under mem_lock */
	uint32_t memory_count, buffer_count;
	pthread_mutex_t mem_lock;
	pthread_cond_t mem_gone; /* one that was dropped */
	pthread_mutex_t lock;    /* task.done, rconn.state as callers see them */
	pthread_cond_t changed;
};

struct quarantine {
	struct list link;
	struct rtimer timer;
	struct slot *slot; /* one of the two */
	struct rbuf *buf;
};

/** At the end, or when its time is over. */
void rdma_quarantine_over(struct rtimer *t);
/** It may be the last reference. */
void rdma_conn_put(struct rconn *c);
static inline uint32_t rdma_liar_slot(const struct net_addr *a)
{
	uint32_t h = 2166136261u;

	for (socklen_t i = 0; i < a->len; i++)
		h = (h ^ ((const uint8_t *)&a->sa)[i]) * 16777619u;
	return (h ^ h >> 16) & (LIARS - 1);
}
struct verbs_memory *rdma_memory_verbs(const struct rmem *m);
/** All windows are back. */
void rdma_memories_fini(struct rdma *r);
/** Before the reactor has the pool, and after the reactor. */
void rdma_bufs_init(struct rdma *r);
void rdma_bufs_fini(struct rdma *r);
