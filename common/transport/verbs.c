/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA connections of verbs.h while they are up: how they fail, what completes, and the calls of
 * transport.h. verbs_post.c posts work requests, verbs_cm.c connects, verbs_dev.c has devices. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define LAST_WQE_TRY_NS (50 * NS_PER_MS)
#define LAST_WQE_TRIES 4
#define DRAIN_ROUNDS 1024 /* x VERBS_BATCH completions: what a completion queue holds */

static struct vconn *vconn_of(struct xconn *x)
{
	return (struct vconn *)x;
}

void vconn_ready(struct vconn *c)
{
	reactor_ready(c->v->reactor, &c->rop);
}

/* ---- failing and draining ---- */

static void fail_queue(struct vconn *c, struct list *queue)
{
	struct list *l;

	while ((l = list_pop(queue))) {
		struct xop *op = vreq_op(container_of(l, struct vreq, link));

		op->done(op, c->error);
	}
}

static void post_marker(struct vconn *c)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.wr_id = (uint64_t)c->slot << 40 | (uint64_t)c->gen << 24 |
		   (c->sq_head & (VERBS_SQ_DEPTH - 1));
	if (c->sq_head - c->sq_tail == VERBS_SQ_DEPTH || ibv_post_send(c->qp, &wr, &bad))
		return; /* the deadline brings the connection home */
	c->sq[c->sq_head++ & (VERBS_SQ_DEPTH - 1)] = (struct vrec){.kind = V_MARKER};
}

/* Providers differ: whether one tells of the last receive of a queue pair is learnt. Where nobody
 * knows yet, a while is waited. */
static uint64_t last_wqe_patience(const struct vconn *c)
{
	if (c->active || !c->dev->srq || c->last_wqe)
		return 0;
	return c->dev->last_wqe == LAST_WQE_SENT      ? VERBS_DRAIN_NS
	       : c->dev->last_wqe == LAST_WQE_UNKNOWN ? LAST_WQE_TRY_NS
						      : 0;
}

/* Into error, at once: the device moves nothing more for it. What the peer is told can wait. */
static void shut(struct vconn *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	const uint64_t now = clock_mono_ns();

	c->drain_deadline_ns = now + VERBS_DRAIN_NS;
	c->last_wqe_deadline_ns = now + last_wqe_patience(c);
	(void)ibv_modify_qp(c->qp, &a, IBV_QP_STATE);
	post_marker(c);
	vconn_ask(c, DO_HANG_UP);
}

void vconn_fail(struct vconn *c, int rc, const char *fmt, ...)
{
	struct xop *op;
	va_list ap;

	if (c->state == VC_WAIT_FLUSH || c->state == VC_WAIT_DESTROYED)
		return;
	c->state = VC_WAIT_FLUSH;
	c->error = rc;
	va_start(ap, fmt);
	vsnprintf(c->reason, sizeof(c->reason), fmt, ap);
	va_end(ap);
	list_del(&c->tx_link); /* it sends nothing more: others are to be woken */
	vconn_exposed_fail(c);
	if (c->qp)
		shut(c);
	op = c->connect_op;
	c->connect_op = NULL;
	if (op)
		op->done(op, rc);
	fail_queue(c, &c->ctlq);
	fail_queue(c, &c->txq);
	fail_queue(c, &c->shutq);
	fail_queue(c, &c->rdq);
	op = c->recv_op;
	if (op && list_empty(&c->rxq)) {
		c->recv_op = NULL;
		op->done(op, rc);
	}
	vconn_ready(c);
	vconn_start_timer(c);
}

/* ---- the step ---- */

static bool last_wqe_is_awaited(struct vconn *c)
{
	if (c->last_wqe || !last_wqe_patience(c))
		return false;
	if (clock_mono_ns() < c->last_wqe_deadline_ns)
		return true;
	if (c->dev->last_wqe == LAST_WQE_UNKNOWN && ++c->dev->last_wqe_missed == LAST_WQE_TRIES)
		c->dev->last_wqe = LAST_WQE_NEVER;
	return false;
}

bool vconn_step(struct rop *op)
{
	struct vconn *c = container_of(op, struct vconn, rop);

	if (c->state == VC_UP)
		vconn_flush(c);
	if (c->state != VC_WAIT_FLUSH || !c->closing)
		return false;
	if (c->qp && c->sq_head != c->sq_tail && clock_mono_ns() < c->drain_deadline_ns)
		return false;
	if (c->qp && last_wqe_is_awaited(c)) {
		vconn_start_timer(c);
		return false;
	}
	/* what the device has cleaned out of its queue nobody would post again */
	vdev_drain(c->dev);
	c->state = VC_WAIT_DESTROYED;
	vconn_exposed_revoke(c);
	vconn_ask(c, DO_DESTROY);
	return false;
}

/* ---- completions ---- */

static int wc_error(enum ibv_wc_status status)
{
	switch ((int)status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return -EPROTO;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

static struct vconn *conn_by_id(struct verbs *v, uint64_t wr_id)
{
	struct vconn *c = v->table[(wr_id >> 40) & (VERBS_CONNS_MAX - 1)];

	return c && c->gen == (uint16_t)(wr_id >> 24) ? c : NULL;
}

/* Retires every request up to @pos: the queue completes in order. */
static void on_sent(struct verbs *v, const struct ibv_wc *wc)
{
	struct vconn *c = conn_by_id(v, wc->wr_id);
	uint32_t end, back = 0;

	if (!c)
		return;
	end = (uint32_t)(wc->wr_id & (VERBS_SQ_DEPTH - 1));
	if (wc->status != IBV_WC_SUCCESS) {
		if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR)
			metric_add(METRIC_RDMA_RNR, 1);
		vconn_fail(c, wc_error(wc->status), "work request failed: %s",
			   ibv_wc_status_str(wc->status));
	}
	while (c->sq_tail != c->sq_head) {
		uint32_t pos = c->sq_tail++ & (VERBS_SQ_DEPTH - 1);
		struct vrec rec = c->sq[pos];
		bool ok = pos != end || wc->status == IBV_WC_SUCCESS;

		c->awaited -= vrec_is_timed(&rec);
		c->cqes--;
		back++;
		if (rec.txbuf)
			vdev_tx_put(c->dev, rec.txbuf);
		if (rec.kind == V_PULL)
			c->rd_used--;
		if (rec.kind == V_PING && ok)
			c->rtt_ns = clock_mono_ns() - c->ping_ns;
		if (rec.op)
			rec.op->done(rec.op, ok ? (int)rec.bytes : c->error);
		if (pos == end)
			break;
	}
	if (c->sq_tail == c->sq_head && c->cqes) { /* at rest it keeps the marker's */
		back += c->cqes - 1;
		c->cqes = 1;
	}
	vdev_cqes_put(c->dev, back);
	vconn_ready(c);
}

static void deliver(struct vconn *c)
{
	struct vrx *rx = container_of(c->rxq.next, struct vrx, link);
	struct xop *op = c->recv_op;
	uint32_t len = rx->len;

	if (len > c->recv_len) {
		vconn_fail(c, -EMSGSIZE, "a message of %u bytes is too long", len);
		return;
	}
	list_del(&rx->link);
	c->recv_op = NULL;
	memcpy(c->recv_buf, rx->buf, len);
	slot_put(c->payload); /* nobody took the last one */
	c->payload = NULL;
	if (rx->payload_len) {
		c->payload = rx->payload;
		c->payload_len = rx->payload_len;
		rx->payload = NULL;
	}
	rx->conn = c;
	vrx_post(rx);
	op->done(op, (int)len);
}

/* Take the grant out of a message. False: the connection has ended, because the peer does not know
 * what it grants. */
static bool hear_credits(struct vconn *c, const struct vrx *rx)
{
	uint32_t off = c->v->opts.protocol->credit_offset;
	struct rd r = rd_init(rx->buf, rx->len);
	uint16_t heard;

	(void)rd_bytes(&r, off);
	heard = rd_be16(&r);
	if (r.bad) {
		vconn_fail(c, -EPROTO, "malformed message");
		return false;
	}
	if (heard != c->credit.granted)
		vconn_ready(c);
	if (credit_heard(&c->credit, heard) < 0) {
		vconn_fail(c, -EPROTO, "the peer grants what cannot be");
		return false;
	}
	c->heard_ns = reactor_now_ns(c->v->reactor);
	return true;
}

static struct vconn *conn_by_qpn(struct verbs *v, const struct vdev *d, uint32_t qpn)
{
	list_for_each (l, &v->by_qpn[qpn % VERBS_QPN_BUCKETS]) {
		struct vconn *c = container_of(l, struct vconn, qpn_link);

		if (c->dev == d && c->qpn == qpn)
			return c;
	}
	return NULL;
}

/* The buffer goes back without a connection's knowledge. */
static void recycle(struct vrx *rx)
{
	if (!rx->shared)
		return; /* dies with its connection */
	rx->conn = NULL;
	vrx_post(rx);
}

void vconn_message(struct vconn *c, struct vrx *rx)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	const bool idle = vconn_was_idle(c);
	bool beat;

	if (!vconn_is_alive(c) || !hear_credits(c, rx)) {
		recycle(rx);
		return;
	}
	rx->conn = c;
	beat = rx->len == p->heartbeat_len && !memcmp(rx->buf, p->heartbeat, p->credit_offset);
	vconn_adapt(c, idle && beat);
	if (beat) {
		vrx_post(rx);
		return;
	}
	list_add_tail(&c->rxq, &rx->link);
	if (c->recv_op)
		deliver(c);
}

/* A receive was used up: of those that @c was granted, else of those that are nobody's. */
static void count_received(struct vdev *d, struct vconn *c, const struct vrx *rx)
{
	const bool granted = c && grant_received(&c->grant) == 0;

	if (granted && rx->shared)
		metric_add(METRIC_RDMA_RECEIVES_GRANTED, (uint64_t)-1);
	else if (rx->shared)
		vdev_left_add(d, -1);
	if (granted || !c || !vconn_is_alive(c))
		return;
	metric_add(METRIC_RDMA_OVERRUNS, 1);
	vconn_fail(c, -EPROTO, "the peer sent more than it was granted");
}

static void on_received(struct verbs *v, struct vdev *d, const struct ibv_wc *wc)
{
	bool own = wc->wr_id & 1ull << 62;
	struct vconn *c =
		own ? conn_by_id(v, wc->wr_id & ~(3ull << 62)) : conn_by_qpn(v, d, wc->qp_num);
	uint32_t idx = (uint32_t)(wc->wr_id & 0xffffff);
	struct vrx *rx;

	if (own && !(c && atomic_load_explicit(&c->rx_made, memory_order_acquire)))
		return;
	rx = own ? &c->rx[idx] : vdev_rx(d, idx);
	/* flushed, too: the queue pair fell into error, and nothing else tells; but of a
	 * connection that is being made the control thread does */
	if (wc->status != IBV_WC_SUCCESS && c && c->state != VC_WAIT_CM)
		vconn_fail(c, wc_error(wc->status), "receive failed: %s",
			   ibv_wc_status_str(wc->status));
	count_received(d, c, rx);
	rx->len = wc->byte_len < VERBS_MESSAGE_MAX ? wc->byte_len : VERBS_MESSAGE_MAX;
	rx->payload_len = wc->byte_len - rx->len;
	if (wc->status != IBV_WC_SUCCESS || !c || !vconn_is_alive(c))
		recycle(rx);
	else if (c->state == VC_WAIT_CM) /* the control thread has not said so yet */
		list_add_tail(&c->early, &rx->link);
	else
		vconn_message(c, rx);
}

/* The queue does not do any more what it is for: it is made anew behind its connections. */
static void queue_failed(struct vdev *d, const char *what)
{
	if (atomic_load(&d->broken))
		return;
	log_warn("op=rdma device=%s: %s failed; the connections over that queue end",
		 ibv_get_device_name(d->ctx->device), what);
	vdev_mail(d, DEV_FAILED);
}

/* The event first: one for a completion that comes behind the look at the queue stays, and wakes
 * us. */
static bool take_event(struct vdev *d)
{
	struct ibv_cq *cq;
	void *ctx;

	if (!d->armed || ibv_get_cq_event(d->channel, &cq, &ctx) != 0)
		return false;
	ibv_ack_cq_events(cq, 1);
	d->armed = false;
	return true;
}

static int poll_queue(struct vdev *d)
{
	struct ibv_wc wc[VERBS_BATCH];
	const bool event = take_event(d); /* counts, too: the queue is not armed any more */
	int n = ibv_poll_cq(d->cq, VERBS_BATCH, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id & 1ull << 63)
			on_received(d->v, d, &wc[i]);
		else
			on_sent(d->v, &wc[i]);
	}
	if (n < 0)
		queue_failed(d, "taking completions");
	vdev_post_due(d);
	return (n > 0 ? n : 0) + event;
}

void vdev_drain(struct vdev *d)
{
	for (int i = 0; d && i < DRAIN_ROUNDS && poll_queue(d); i++)
		;
}

int vdev_poll(struct poller *p)
{
	struct vdev *d = container_of(p, struct vdev, poller);
	const int n = poll_queue(d);

	if (d->failed && vdev_is_over(d)) {
		d->v->closing_devs++;
		vdev_detach(d);
	}
	return n;
}

int vdev_arm(struct poller *p)
{
	struct vdev *d = container_of(p, struct vdev, poller);

	if (d->armed || atomic_load_explicit(&d->broken, memory_order_relaxed))
		return 0;
	if (ibv_req_notify_cq(d->cq, 0) == 0)
		d->armed = true;
	else /* nothing would wake us */
		queue_failed(d, "asking for an event");
	return 0;
}

/* ---- the transport interface ---- */

void vconn_submit(struct vconn *c, struct list *queue, struct xop *op, struct vreq q)
{
	struct vreq *in = vreq_of(op);

	if (c->error || c->closing) {
		op->done(op, c->error ? c->error : -ECANCELED);
		return;
	}
	*in = q;
	list_add_tail(queue, &in->link);
	vconn_ready(c);
}

/* May it go before what waits for credits? Not before a message of its own stream. */
static bool may_overtake(struct vconn *c, const void *message, uint32_t len)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	uint64_t stream, other;

	if (!p->is_control || !p->is_control(message, len, &stream))
		return false;
	list_for_each (l, &c->txq) {
		const struct vreq *q = container_of(l, struct vreq, link);

		if (q->kind == V_BIND || q->kind == V_UNBIND)
			continue;
		if (q->kind == V_PUSH)
			return false; /* whose it is nobody knows, and it waits for no credit */
		(void)p->is_control(q->ptr, q->rkey, &other);
		if (stream == other)
			return false;
	}
	return true;
}

static void verbs_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
{
	struct vconn *c = vconn_of(x);
	const uint32_t len = (uint32_t)iov->iov_len;

	assert(n == 1 && iov->iov_len <= VERBS_MESSAGE_MAX);
	vconn_submit(c, may_overtake(c, iov->iov_base, len) ? &c->ctlq : &c->txq, op,
		     (struct vreq){.kind = V_SEND, .ptr = iov->iov_base, .rkey = len});
}

void verbs_send_payload(struct xconn *x, const struct iovec *message, const void *payload,
			uint32_t len, struct xop *op)
{
	assert(message->iov_len <= VERBS_MESSAGE_MAX && len <= VERBS_PAYLOAD_MAX);
	vconn_submit(vconn_of(x), &vconn_of(x)->txq, op,
		     (struct vreq){.kind = V_SEND,
				   .ptr = message->iov_base,
				   .rkey = (uint32_t)message->iov_len,
				   .addr = (uintptr_t)payload,
				   .len = len});
}

static void verbs_recv(struct xconn *x, void *buf, uint32_t len, struct xop *op)
{
	struct vconn *c = vconn_of(x);

	assert(!c->recv_op);
	if (c->closing || (list_empty(&c->rxq) && c->error)) {
		op->done(op, c->error ? c->error : -ECANCELED);
		return;
	}
	c->recv_op = op;
	c->recv_buf = buf;
	c->recv_len = len;
	if (!list_empty(&c->rxq))
		deliver(c);
	else
		vconn_start_timer(c);
}

static void verbs_pull(struct xconn *x, struct xremote from, struct slot *slot, uint32_t off,
		       uint32_t len, struct xop *op)
{
	assert(off <= slot->size && len <= slot->size - off);
	if (!len) { /* never a READ of nothing: old soft RoCE falls over it */
		op->done(op, 0);
		return;
	}
	vconn_submit(vconn_of(x), &vconn_of(x)->rdq, op,
		     (struct vreq){.kind = V_PULL,
				   .ptr = slot->data + off,
				   .addr = from.addr,
				   .rkey = from.rkey,
				   .len = len});
}

static void verbs_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to,
		       struct xop *op)
{
	assert(n <= XOP_IOV_MAX);
	if (!n) {
		op->done(op, 0);
		return;
	}
	vconn_submit(vconn_of(x), &vconn_of(x)->txq, op,
		     (struct vreq){.kind = V_PUSH,
				   .ptr = iov,
				   .n = (uint16_t)n,
				   .addr = to.addr,
				   .rkey = to.rkey});
}

static void verbs_give_up(struct xconn *x)
{
	vconn_fail(vconn_of(x), -ECANCELED, "given up");
}

static void verbs_close(struct xconn *x)
{
	struct vconn *c = vconn_of(x);
	struct xop *op = c->recv_op;

	assert(!c->closing);
	c->closing = true;
	vconn_fail(c, -ECANCELED, "closed");
	op = c->recv_op; /* still there when messages were waiting */
	c->recv_op = NULL;
	if (op)
		op->done(op, c->error);
	vconn_ready(c);
}

struct ibv_mr *vslot_mr(const struct vconn *c, const struct slot *s)
{
	struct ibv_mr *const *mr = s->pool == c->v->opts.landing ? c->dev->mr_land : c->dev->mr_out;

	assert(c->active);
	return mr[s->slab];
}

struct xremote verbs_remote(const struct xconn *x, const struct slot *s, uint32_t off)
{
	return (struct xremote){.addr = (uintptr_t)s->data + off,
				.rkey = vslot_mr((const struct vconn *)x, s)->rkey};
}

uint32_t verbs_read_depth(const struct xconn *x)
{
	const struct vconn *c = (const struct vconn *)x;

	if (!(c->features & VERBS_ONESIDED))
		return 0;
	return c->active ? c->rd_max : c->rd_given;
}

struct slot *verbs_take_payload(struct xconn *x, uint32_t *ret_len)
{
	struct vconn *c = vconn_of(x);
	struct slot *s = c->payload;

	*ret_len = s ? c->payload_len : 0;
	c->payload = NULL;
	return s;
}

const struct verbs_hello *verbs_peer(const struct xconn *x)
{
	return &((const struct vconn *)x)->peer;
}

uint64_t verbs_rtt_ns(const struct xconn *x)
{
	return ((const struct vconn *)x)->rtt_ns;
}

const char *verbs_reason(const struct xconn *x)
{
	return ((const struct vconn *)x)->reason;
}

const struct xport_ops verbs_ops = {
	.name = "rdma",
	.messages = true,
	.send = verbs_send,
	.recv = verbs_recv,
	.pull = verbs_pull,
	.push = verbs_push,
	.close = verbs_close,
	.give_up = verbs_give_up,
};
