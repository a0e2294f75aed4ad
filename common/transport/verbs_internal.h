/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* verbs_internal - shared by verbs.c (completions, the transport calls), verbs_post.c (work
 * requests), verbs_dev.c (devices, memory, receive buffers) and verbs_cm.c (connections); no other
 * file includes it. */
#include <assert.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/transport/credit.h"
#include "common/transport/verbs.h"

#define VERBS_CONNS_MAX 1024u
#define VERBS_SQ_DEPTH 128u      /* power of two */
#define VERBS_SIGNAL_EVERY 32u   /* never more unsignalled work requests in a row */
#define VERBS_TX_BUFS 1024u      /* per device: messages too long to go inline */
#define VERBS_ACTIVE_CREDITS 64u /* receives an active connection posts for its own */
#define VERBS_CREDITS_MAX 4096u
#define VERBS_INLINE_WANTED 256u
#define VERBS_QPN_BUCKETS 256u
#define VERBS_DRAIN_NS (3 * NS_PER_S)
#define VERBS_BATCH 32

struct vdev;

/* A receive buffer: SGE 0 takes the message, SGE 1 (passive side) a payload that rides along. */
struct vrx {
	struct list link; /* in conn->rxq, or dev->rx_dry */
	struct vdev *dev;
	struct vconn *conn; /* active: its owner; passive: whose message is in it, or NULL */
	uint8_t *buf;
	uint32_t lkey;
	uint32_t idx; /* in dev->rx, or in conn->rx */
	uint32_t len; /* of the message */
	uint32_t payload_len;
	struct slot *payload; /* shared buffers */
	bool shared;          /* in the shared receive queue: passive connections */
	struct pool_ask ask;  /* for a payload */
};

enum vkind { V_SEND, V_PULL, V_PUSH, V_MARKER, V_PING, V_KINDS };

/* What a caller's xop.priv holds while it is with us. */
struct vreq {
	struct list link;
	const void *ptr; /* SEND: message; PULL: local address; PUSH: iovec array */
	uint64_t addr;   /* remote address; SEND: payload address */
	uint32_t rkey;   /* remote key; SEND: message length */
	uint32_t len;    /* PULL: bytes; PUSH: bytes done so far; SEND: payload length */
	uint16_t n, i;   /* PUSH: pieces, next piece */
	uint32_t kind;
};

static_assert(sizeof(struct vreq) <= sizeof(((struct xop *)0)->priv), "a request lives in its xop");

static inline struct vreq *vreq_of(struct xop *op)
{
	return (struct vreq *)(void *)op->priv;
}

static inline struct xop *vreq_op(struct vreq *q)
{
	return (struct xop *)(void *)((char *)q - offsetof(struct xop, priv));
}

struct vrec { /* one posted work request */
	enum vkind kind;
	struct xop *op; /* completes with this one, or NULL */
	uint32_t bytes;
	void *txbuf; /* to give back, or NULL */
};

/* Its completion frees something: it may not stay unsignalled behind the last signalled one. */
static inline bool vrec_is_awaited(const struct vrec *rec)
{
	return rec->op || rec->txbuf || rec->kind == V_PING;
}

enum vstate {
	VC_WAIT_ADDRESS,     /* rdma_resolve_addr; leaves on its CM event */
	VC_WAIT_ROUTE,       /* rdma_resolve_route; likewise */
	VC_WAIT_ACCEPT,      /* rdma_connect; ESTABLISHED or REJECTED */
	VC_WAIT_ESTABLISHED, /* rdma_accept; ESTABLISHED */
	VC_UP,
	VC_WAIT_FLUSH, /* in error; leaves when the marker's completion is seen, or by deadline */
};

struct vconn {
	struct xconn x; /* first */
	struct verbs *v;
	struct vdev *dev;
	struct rdma_cm_id *id;
	struct rop rop;
	struct rtimer timer;
	struct list link; /* verbs.conns */
	enum vstate state;
	bool active, closing;
	int error; /* first cause, -errno */
	char reason[96];
	uint16_t slot, gen; /* in verbs.table */
	uint64_t connect_deadline_ns, drain_deadline_ns;
	uint64_t heard_ns, spoke_ns; /* when the last message came and went */
	bool beat;                   /* a heartbeat is due */
	struct xop *connect_op, *recv_op;
	void *recv_buf;
	uint32_t recv_len;
	struct verbs_hello peer;
	struct list qpn_link; /* verbs.by_qpn */
	/* receiving */
	struct list rxq;      /* messages not yet taken */
	struct slot *payload; /* of the message delivered last */
	uint32_t payload_len;
	struct grant grant; /* what the peer may send */
	struct vrx *rx;     /* active: its own buffers */
	uint8_t *rx_mem;
	struct ibv_mr *rx_mr;
	uint32_t rx_count;
	/* sending */
	struct list txq, rdq; /* vreq: sends and pushes in order; pulls */
	struct credit credit; /* what we may send */
	uint32_t rd_used, rd_max;
	uint64_t ping_ns, rtt_ns;  /* active: when the first message was posted, what it took */
	uint32_t sq_head, sq_tail; /* free running */
	uint32_t unsignalled;
	uint32_t awaited;    /* posted requests whose completion frees something */
	struct list tx_link; /* dev->tx_waiting */
	uint32_t max_inline;
	struct vrec sq[VERBS_SQ_DEPTH];
};

struct vdev { /* one RDMA device as this reactor uses it */
	struct list link;
	struct verbs *v;
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_pd *pd_in, *pd_out;
	struct ibv_mr **mr_in, **mr_out; /* one per slab; released after every QP is gone */
	struct ibv_mr **mr_land;         /* likewise, of the landing pool */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct poller poller;
	bool armed;
	uint32_t cqe_left; /* completions not promised to a connection */
	struct ibv_srq *srq;
	struct vrx *rx;
	uint8_t *rx_mem, *tx_mem;
	struct ibv_mr *rx_mr, *tx_mr_in, *tx_mr_out;
	uint32_t rx_count, srq_left; /* receives not granted to a connection */
	struct list rx_dry;          /* buffers that wait for a payload slot */
	void **tx_free;
	uint32_t tx_free_count;
	struct list tx_waiting; /* connections that found none */
};

struct verbs {
	struct reactor *reactor;
	struct verbs_opts opts;
	struct rdma_event_channel *channel;
	struct poller poller; /* the event channel */
	struct rdma_cm_id *listen_id;
	struct xlistener_opts listener;
	struct list devs, conns;
	uint32_t conn_count;
	struct vconn *table[VERBS_CONNS_MAX];
	uint16_t gen[VERBS_CONNS_MAX];
	struct list by_qpn[VERBS_QPN_BUCKETS];
	bool stopping;
};

/* verbs_dev.c */
int vdev_get(struct verbs *v, struct ibv_context *ctx, struct vdev **ret, struct err *err);
void vdev_free(struct vdev *d);
/** Post a receive buffer (again); its credit goes back to its connection. */
void vrx_post(struct vrx *rx);
int vconn_rx_new(struct vconn *c);
void vconn_rx_free(struct vconn *c);
/** lkey of pool memory; 0 when @p is not in the pool. */
uint32_t vdev_lkey(const struct vdev *d, bool active, const void *p, struct ibv_mr **ret_mr);
void *vdev_tx_get(struct vdev *d);
void vdev_tx_put(struct vdev *d, void *buf);

/* verbs.c */
int vdev_poll(struct poller *p);
int vdev_arm(struct poller *p);
/** Handle all completions that are there. Accepts NULL. */
void vdev_drain(struct vdev *d);
/** First failure of a connection: queue pair to error, ops come home with @rc. */
void vconn_fail(struct vconn *c, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void vconn_ready(struct vconn *c);
bool vconn_step(struct rop *op);

/* verbs_post.c */
/** Post all that is queued, credits and slots allowing, with one doorbell. */
void vconn_flush(struct vconn *c);

/* verbs_cm.c */
void vconn_destroy(struct vconn *c);
/** For the nearest of the deadlines that count now. */
void vconn_start_timer(struct vconn *c);
