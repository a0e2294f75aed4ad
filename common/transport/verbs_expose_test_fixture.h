/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: verbs_expose_test_fixture - connections on a device that is played, which does what is
 * posted when a test lets it
 *
 * Included by one test program each, which owns what is static here.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/verbs_internal.h"

#define WINDOWS VERBS_WINDOWS_LEAST
#define LKEY 77u

/* ---- a device ---- */

struct posted {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	uint32_t rkey;
	uint64_t addr, len;
	unsigned int access;
	bool signalled;
};

static struct {
	struct posted wr[256];
	uint32_t n, doorbells;
	uint32_t retired; /* of these */
	uint32_t mws, fails_at;
	uint32_t next_key;
} dev;

static inline int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	dev.doorbells++;
	for (; wr; wr = wr->next) {
		struct posted *p = &dev.wr[dev.n++];

		*p = (struct posted){.id = wr->wr_id,
				     .opcode = wr->opcode,
				     .signalled = wr->send_flags & IBV_SEND_SIGNALED};
		if (wr->opcode == IBV_WR_BIND_MW) {
			p->rkey = wr->bind_mw.rkey;
			p->addr = wr->bind_mw.bind_info.addr;
			p->len = wr->bind_mw.bind_info.length;
			p->access = wr->bind_mw.bind_info.mw_access_flags;
			assert_int_equal(wr->bind_mw.bind_info.mr->lkey, LKEY);
			assert_true((wr->bind_mw.mw->rkey & 0xff) != (p->rkey & 0xff));
		} else if (wr->opcode == IBV_WR_LOCAL_INV) {
			p->rkey = wr->invalidate_rkey;
		}
	}
	return 0;
}

/* All that was posted is done, or with @status not. */
static enum ibv_wc_status status;
static inline int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int had = 0;

	(void)cq;
	for (; dev.retired < dev.n && had < n; dev.retired++)
		if (dev.wr[dev.retired].signalled || status != IBV_WC_SUCCESS)
			wc[had++] =
				(struct ibv_wc){.wr_id = dev.wr[dev.retired].id, .status = status};
	return had;
}

static inline struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;

	assert_int_equal(type, IBV_MW_TYPE_2);
	if (dev.fails_at && dev.mws + 1 >= dev.fails_at) {
		errno = ENOMEM;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	mw->context = pd->context;
	mw->rkey = ++dev.next_key << 8;
	dev.mws++;
	return mw;
}

static inline int dealloc_mw(struct ibv_mw *mw)
{
	dev.mws--;
	free(mw);
	return 0;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

/* ---- a connection on it ---- */

static const uint8_t beat[8];
static const struct verbs_protocol protocol = {
	.credit_offset = 4, .heartbeat = beat, .heartbeat_len = sizeof(beat)};

struct stage {
	struct reactor *reactor;
	struct pool *pool;
	struct verbs_control control;
	struct verbs *v;
	struct vdev d;
	struct vcard card;
	struct ibv_device device;
	struct ibv_context ctx;
	struct ibv_pd pd;
	struct ibv_cq cq;
	struct ibv_qp qp;
	struct vconn *c;
	struct slot *slot;
	struct ibv_mr mr, *mrs[1];
	uint8_t tx[8][VERBS_MESSAGE_MAX];
	void *tx_free[8];
};

static inline struct vconn *conn_new(struct stage *s, uint16_t slot)
{
	struct vconn *c = vconn_alloc(s->v, true);

	c->state = VC_UP;
	c->dev = c->cm_dev = &s->d;
	c->qp = &s->qp;
	c->cqes = 1;
	c->sq_depth = VERBS_SQ_DEPTH;
	c->slot = slot;
	c->ping_ns = 1;
	c->heard_ns = c->spoke_ns = clock_mono_ns();
	c->max_inline = 64;
	credit_init(&c->credit, 100, VERBS_CREDITS_MAX);
	s->v->table[slot] = c;
	list_add_tail(&s->v->conns, &c->link);
	return c;
}

static inline void stage_vdev(struct stage *s)
{
	s->ctx.device = &s->device;
	s->ctx.ops.post_send = post_send;
	s->ctx.ops.poll_cq = poll_cq;
	s->ctx.ops.alloc_mw = alloc_mw;
	s->ctx.ops.dealloc_mw = dealloc_mw;
	s->cq.context = s->qp.context = s->pd.context = &s->ctx;
	s->mr.lkey = LKEY;
	s->mr.rkey = 0xdead;
	s->mrs[0] = &s->mr;
	s->d = (struct vdev){.v = s->v,
			     .ctx = &s->ctx,
			     .cq = &s->cq,
			     .pd_out = &s->pd,
			     .mr_out = s->mrs,
			     .tx_mr_out = &s->mr,
			     .last_wqe = LAST_WQE_NEVER};
	s->d.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	s->d.attr.max_mw = WINDOWS * VERBS_WINDOWS_SHARE;
	atomic_store(&s->d.cqe_left, 1000);
	list_init(&s->d.rx_due);
	list_init(&s->d.rx_dry);
	list_init(&s->d.rx_spare);
	list_init(&s->d.tx_waiting);
	s->d.tx_free = s->tx_free;
	while (s->d.tx_free_count < 8) {
		s->tx_free[s->d.tx_free_count] = s->tx[s->d.tx_free_count];
		s->d.tx_free_count++;
	}
}

static inline int stage_up(void **state)
{
	static struct stage s;
	const struct reactor_opts ro = {.name = "test"};
	const struct pool_opts po = {.count = {40, 4, 1, 1, 40}};

	memset(&s, 0, sizeof(s));
	memset(&dev, 0, sizeof(dev));
	status = IBV_WC_SUCCESS;
	if (reactor_new(&ro, &s.reactor, NULL) < 0)
		return -1;
	assert_int_equal(pool_new(&po, &s.pool, NULL), 0);
	s.slot = pool_get(s.pool, SLOT_64K, POOL_READ);
	s.v = calloc(1, sizeof(*s.v));
	s.v->reactor = s.reactor;
	s.v->opts = (struct verbs_opts){.protocol = &protocol,
					.pool = s.pool,
					.active = true,
					.peer_may_write = true,
					.windows = VERBS_WINDOWS_AUTO};
	s.v->control = &s.control;
	s.control.wake = -1;
	pthread_mutex_init(&s.control.lock, NULL);
	list_init(&s.control.todo);
	list_init(&s.control.cards);
	list_init(&s.control.memories);
	list_init(&s.control.revoked);
	list_init(&s.v->conns);
	for (uint32_t i = 0; i < VERBS_QPN_BUCKETS; i++)
		list_init(&s.v->by_qpn[i]);
	list_init(&s.v->mail);
	s.v->poller.fd = -1;
	stage_vdev(&s);
	assert_int_equal(vdev_windows_new(&s.d), 0);
	s.c = conn_new(&s, 0);
	*state = &s;
	return 0;
}

static inline void conn_drop(struct vconn *c)
{
	list_del(&c->rop.ready_link);
	reactor_timer_clear(c->v->reactor, &c->timer);
	list_del(&c->link);
	c->v->table[c->slot] = NULL;
	free(c);
}

static inline int stage_down(void **state)
{
	struct stage *s = *state;
	int left;

	conn_drop(s->c);
	vwindows_free(s->d.slots);
	free(s->v);
	slot_put(s->slot);
	left = (int)(dev.mws + pool_slots_out(s->pool));
	pool_free(s->pool);
	reactor_free(s->reactor);
	pthread_mutex_destroy(&s->control.lock);
	return left;
}

struct seen {
	struct xop op; /* first */
	struct iovec iov;
	uint8_t msg[16];
};

static inline void on_done(struct xop *op, int res)
{
	(void)op, (void)res;
}

static inline void send_one(struct vconn *c, struct seen *w)
{
	*w = (struct seen){.op.done = on_done, .iov = {w->msg, sizeof(w->msg)}};
	xconn_send(&c->x, &w->iov, 1, &w->op);
}

static inline void turn(struct stage *s)
{
	(void)vconn_step(&s->c->rop);
	vdev_drain(&s->d);
}

static inline struct xremote must_expose(struct vconn *c, struct verbs_exposure *e)
{
	struct xremote at;

	assert_int_equal(verbs_expose(&c->x, e, &at), 0);
	return at;
}

static inline uint32_t spare(struct stage *s)
{
	vwindows_take_renewed(s->d.slots);
	return s->d.slots->spare_count;
}
