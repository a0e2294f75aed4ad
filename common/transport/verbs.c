/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define DRAIN_ROUNDS 1024 /* x VERBS_BATCH completions: what a completion queue holds */

static_assert(sizeof(struct vreq) <= sizeof(((struct xop *)0)->priv), "a request lives in its xop");

static struct vreq *req_of(struct xop *op)
{
	return (struct vreq *)(void *)op->priv;
}
static struct xop *op_of(struct vreq *q)
{
	return (struct xop *)(void *)((char *)q - offsetof(struct xop, priv));
}
static struct vreq *first(struct list *l)
{
	return list_empty(l) ? NULL : container_of(l->next, struct vreq, link);
}
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
		struct xop *op = op_of(container_of(l, struct vreq, link));

		op->done(op, c->error);
	}
}

static void post_marker(struct vconn *c)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.wr_id = (uint64_t)c->slot << 40 | (uint64_t)c->gen << 24 |
		   (c->sq_head & (VERBS_SQ_DEPTH - 1));
	if (c->sq_head - c->sq_tail == VERBS_SQ_DEPTH || ibv_post_send(c->id->qp, &wr, &bad))
		return; /* the deadline brings the connection home */
	c->sq[c->sq_head++ & (VERBS_SQ_DEPTH - 1)] = (struct vrec){.kind = V_MARKER};
}

void vconn_fail(struct vconn *c, int rc, const char *fmt, ...)
{
	struct xop *op;
	va_list ap;

	if (c->state == VC_DRAIN)
		return;
	c->state = VC_DRAIN;
	c->error = rc;
	c->drain_deadline_ns = clock_mono_ns() + VERBS_DRAIN_NS;
	va_start(ap, fmt);
	vsnprintf(c->reason, sizeof(c->reason), fmt, ap);
	va_end(ap);
	if (c->id && c->id->qp) {
		struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

		if (rdma_disconnect(c->id) < 0)
			(void)ibv_modify_qp(c->id->qp, &a, IBV_QP_STATE);
		post_marker(c);
	}
	op = c->connect_op;
	c->connect_op = NULL;
	if (op)
		op->done(op, rc);
	fail_queue(c, &c->txq);
	fail_queue(c, &c->rdq);
	op = c->recv_op;
	if (op && list_empty(&c->rxq)) {
		c->recv_op = NULL;
		op->done(op, rc);
	}
	vconn_ready(c);
	vconn_start_timer(c);
}

/* ---- posting ---- */

struct chain { /* work requests of one doorbell */
	struct ibv_send_wr wr[VERBS_SQ_DEPTH];
	struct ibv_sge sge[VERBS_SQ_DEPTH][2];
	struct xop *early[VERBS_SQ_DEPTH]; /* done once posted: nothing of theirs is needed */
	void *inlined[VERBS_SQ_DEPTH];     /* buffers free once posted */
	uint32_t n, early_n, inlined_n, opcode[V_KINDS];
};

/* Its completion frees something: it may not stay unsignalled behind the last signalled one. */
static bool rec_is_awaited(const struct vrec *rec)
{
	return rec->op || rec->txbuf || rec->kind == V_PING;
}

static bool sq_has_room(const struct vconn *c)
{
	/* one slot stays free for the drain marker */
	return c->sq_head - c->sq_tail < VERBS_SQ_DEPTH - 1;
}

static struct ibv_send_wr *chain_add(struct vconn *c, struct chain *ch, struct vrec rec,
				     bool signal)
{
	uint32_t pos = c->sq_head++ & (VERBS_SQ_DEPTH - 1);
	struct ibv_send_wr *wr = &ch->wr[ch->n];

	c->sq[pos] = rec;
	c->awaited += rec_is_awaited(&rec);
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = (uint64_t)c->slot << 40 | (uint64_t)c->gen << 24 | pos;
	wr->sg_list = ch->sge[ch->n];
	if (signal || ++c->unsignalled >= VERBS_SIGNAL_EVERY) {
		wr->send_flags = IBV_SEND_SIGNALED;
		c->unsignalled = 0;
	}
	if (ch->n)
		ch->wr[ch->n - 1].next = wr;
	ch->n++;
	ch->opcode[rec.kind]++;
	return wr;
}

/* A message in a send buffer of ours, with the newest grant in it. */
static struct ibv_send_wr *add_message(struct vconn *c, struct chain *ch, const void *msg,
				       uint32_t len, void *buf, struct vrec rec)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	uint32_t i = ch->n;
	bool is_inline = !rec.op && len <= c->max_inline;
	struct ibv_send_wr *wr;
	const uint16_t said = htobe16(grant_say(&c->grant));
	const int rc = credit_take(&c->credit, true);

	assert(rc == 0); /* callers have asked */
	(void)rc;
	memcpy(buf, msg, len);
	memcpy((uint8_t *)buf + p->credit_offset, &said, sizeof(said));
	c->beat = false;
	c->spoke_ns = reactor_now_ns(c->v->reactor);
	if (is_inline)
		ch->inlined[ch->inlined_n++] = buf;
	else
		rec.txbuf = buf;
	wr = chain_add(c, ch, rec, rec.op || rec.kind == V_PING);
	wr->opcode = IBV_WR_SEND;
	wr->send_flags |= IBV_SEND_SOLICITED | (is_inline ? (unsigned int)IBV_SEND_INLINE : 0);
	ch->sge[i][0] = (struct ibv_sge){
		(uintptr_t)buf, len, c->active ? c->dev->tx_mr_out->lkey : c->dev->tx_mr_in->lkey};
	wr->num_sge = 1;
	return wr;
}

/* A send buffer; NULL: none is free, the next one that is wakes the connection. */
static void *tx_get(struct vconn *c)
{
	void *buf = vdev_tx_get(c->dev);

	if (!buf) {
		metric_add(METRIC_RDMA_STALL_SQ, 1);
		if (!list_is_linked(&c->tx_link))
			list_add_tail(&c->dev->tx_waiting, &c->tx_link);
	}
	return buf;
}

/* True when the message went into the chain. */
static bool add_send(struct vconn *c, struct chain *ch, struct vreq *q)
{
	void *buf = tx_get(c);
	uint32_t i = ch->n;
	struct ibv_send_wr *wr;

	if (!buf)
		return false;
	list_del(&q->link);
	wr = add_message(
		c, ch, q->ptr, q->rkey, buf,
		(struct vrec){.kind = V_SEND, .op = q->len ? op_of(q) : NULL, .bytes = q->rkey});
	if (q->len) {
		ch->sge[i][1] = (struct ibv_sge){
			q->addr, q->len,
			vdev_lkey(c->dev, c->active, (void *)(uintptr_t)q->addr, NULL)};
		wr->num_sge = 2;
	} else {
		ch->early[ch->early_n++] = op_of(q);
	}
	return true;
}

/* Pieces of a push, as many as fit; true when the last one is in. */
static bool add_push(struct vconn *c, struct chain *ch, struct vreq *q)
{
	const struct iovec *iov = q->ptr;

	while (q->i < q->n && sq_has_room(c)) {
		uint32_t i = ch->n, len = (uint32_t)iov[q->i].iov_len;
		bool last = q->i + 1 == q->n;
		struct ibv_send_wr *wr;

		if (last)
			list_del(&q->link);
		wr = chain_add(c, ch,
			       (struct vrec){.kind = V_PUSH,
					     .op = last ? op_of(q) : NULL,
					     .bytes = q->len + len},
			       false);
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->wr.rdma.remote_addr = q->addr + q->len;
		wr->wr.rdma.rkey = q->rkey;
		ch->sge[i][0] =
			(struct ibv_sge){(uintptr_t)iov[q->i].iov_base, len,
					 vdev_lkey(c->dev, c->active, iov[q->i].iov_base, NULL)};
		wr->num_sge = 1;
		q->len += len;
		q->i++;
		if (last)
			return true;
	}
	return false;
}

static void add_pull(struct vconn *c, struct chain *ch, struct vreq *q)
{
	uint32_t i = ch->n;
	struct ibv_send_wr *wr;

	list_del(&q->link);
	c->rd_used++;
	wr = chain_add(c, ch, (struct vrec){.kind = V_PULL, .op = op_of(q), .bytes = q->len}, true);
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = q->addr;
	wr->wr.rdma.rkey = q->rkey;
	ch->sge[i][0] = (struct ibv_sge){(uintptr_t)q->ptr, q->len,
					 vdev_lkey(c->dev, c->active, q->ptr, NULL)};
	wr->num_sge = 1;
}

/* Only to give credits back. */
static void add_heartbeat(struct vconn *c, struct chain *ch, enum vkind kind)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	void *buf = tx_get(c);

	if (buf)
		add_message(c, ch, p->heartbeat, p->heartbeat_len, buf,
			    (struct vrec){.kind = kind});
}

static void build_chain(struct vconn *c, struct chain *ch)
{
	struct vreq *q;

	/* docs/wire.md 2: the dialer speaks first */
	if (c->active && !c->ping_ns && credit_may_send(&c->credit, true)) {
		c->ping_ns = clock_mono_ns();
		add_heartbeat(c, ch, V_PING);
	}
	while ((q = first(&c->txq)) && sq_has_room(c)) {
		if (q->kind == V_PUSH) {
			if (!add_push(c, ch, q))
				break;
		} else if (!credit_may_send(&c->credit, false)) {
			metric_add(METRIC_RDMA_STALL_CREDIT, 1);
			break;
		} else if (!add_send(c, ch, q)) {
			break;
		}
	}
	while ((q = first(&c->rdq)) && sq_has_room(c)) {
		if (c->rd_used == c->rd_max) {
			metric_add(METRIC_RDMA_STALL_READ, 1);
			break;
		}
		add_pull(c, ch, q);
	}
	if ((c->beat || grant_due(&c->grant)) && credit_may_send(&c->credit, true) &&
	    sq_has_room(c))
		add_heartbeat(c, ch, V_SEND);
	if (ch->n && c->awaited && !(ch->wr[ch->n - 1].send_flags & IBV_SEND_SIGNALED)) {
		bool waits = false;

		for (uint32_t p = c->sq_head - ch->n; p != c->sq_head && !waits; p++)
			waits = rec_is_awaited(&c->sq[p & (VERBS_SQ_DEPTH - 1)]);
		if (waits) {
			ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
			c->unsignalled = 0;
		}
	}
}

/* All that is queued, credits and slots allowing, with one doorbell. */
static void flush(struct vconn *c)
{
	struct chain ch;
	struct ibv_send_wr *bad;

	ch.n = ch.early_n = ch.inlined_n = 0;
	memset(ch.opcode, 0, sizeof(ch.opcode));
	build_chain(c, &ch);
	vconn_start_timer(c); /* what waits for credits or slots has a deadline, too */
	if (!ch.n)
		return;
	metric_add(METRIC_RDMA_DOORBELLS, 1);
	metric_add(METRIC_RDMA_WR_SEND, ch.opcode[V_SEND] + ch.opcode[V_PING]);
	metric_add(METRIC_RDMA_WR_READ, ch.opcode[V_PULL]);
	metric_add(METRIC_RDMA_WR_WRITE, ch.opcode[V_PUSH]);
	if (ibv_post_send(c->id->qp, ch.wr, &bad)) {
		/* those before bad are live: no unwinding, the flush brings all of them home */
		vconn_fail(c, -EIO, "posting work requests failed");
	}
	for (uint32_t i = 0; i < ch.inlined_n; i++)
		vdev_tx_put(c->dev, ch.inlined[i]);
	for (uint32_t i = 0; i < ch.early_n; i++)
		ch.early[i]->done(ch.early[i],
				  c->error ? c->error : (int)req_of(ch.early[i])->rkey);
}

bool vconn_step(struct rop *op)
{
	struct vconn *c = container_of(op, struct vconn, rop);

	if (c->state == VC_UP)
		flush(c);
	if (c->state != VC_DRAIN || !c->closing)
		return false;
	if (c->id && c->id->qp && c->sq_head != c->sq_tail &&
	    clock_mono_ns() < c->drain_deadline_ns)
		return false;
	/* receives of this queue pair that are in the completion queue must not meet its successor
	 */
	vdev_drain(c->dev);
	vconn_destroy(c);
	return true;
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
	uint32_t end;

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

		c->awaited -= rec_is_awaited(&rec);
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

/* Take the grant out of a message. False: the peer does not know what it grants, or has sent more
 * than it was granted. */
static bool hear_credits(struct vconn *c, const struct vrx *rx)
{
	uint32_t off = c->v->opts.protocol->credit_offset;
	struct rd r = rd_init(rx->buf, rx->len);
	uint16_t heard;

	(void)rd_bytes(&r, off);
	heard = rd_be16(&r);
	if (r.bad || grant_received(&c->grant) < 0)
		return false;
	if (heard != c->credit.granted)
		vconn_ready(c);
	if (credit_heard(&c->credit, heard) < 0)
		return false;
	c->heard_ns = reactor_now_ns(c->v->reactor);
	return true;
}

static struct vconn *conn_by_qpn(struct verbs *v, const struct vdev *d, uint32_t qpn)
{
	list_for_each (l, &v->by_qpn[qpn % VERBS_QPN_BUCKETS]) {
		struct vconn *c = container_of(l, struct vconn, qpn_link);

		if (c->dev == d && c->id->qp->qp_num == qpn)
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

static void on_received(struct verbs *v, struct vdev *d, const struct ibv_wc *wc)
{
	bool own = wc->wr_id & 1ull << 62;
	struct vconn *c =
		own ? conn_by_id(v, wc->wr_id & ~(3ull << 62)) : conn_by_qpn(v, d, wc->qp_num);
	uint32_t idx = (uint32_t)(wc->wr_id & 0xffffff);
	const struct verbs_protocol *p = v->opts.protocol;
	struct vrx *rx;

	if (own && !c)
		return;
	rx = own ? &c->rx[idx] : &d->rx[idx];
	if (wc->status != IBV_WC_SUCCESS) {
		if (c) /* flushed, too: the queue pair fell into error, and nothing else tells */
			vconn_fail(c, wc_error(wc->status), "receive failed: %s",
				   ibv_wc_status_str(wc->status));
		recycle(rx);
		return;
	}
	rx->len = wc->byte_len < VERBS_MESSAGE_MAX ? wc->byte_len : VERBS_MESSAGE_MAX;
	rx->payload_len = wc->byte_len - rx->len;
	if (!c || c->state == VC_DRAIN) { /* late: of a connection that is gone */
		recycle(rx);
		return;
	}
	if (!hear_credits(c, rx)) {
		recycle(rx);
		vconn_fail(c, -EPROTO, "malformed message or impossible credits");
		return;
	}
	rx->conn = c;
	if (rx->len == p->heartbeat_len && !memcmp(rx->buf, p->heartbeat, p->credit_offset)) {
		vrx_post(rx);
		return;
	}
	list_add_tail(&c->rxq, &rx->link);
	if (c->recv_op)
		deliver(c);
}

void vdev_drain(struct vdev *d)
{
	for (int i = 0; d && i < DRAIN_ROUNDS && vdev_poll(&d->poller); i++)
		;
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

int vdev_poll(struct poller *p)
{
	struct vdev *d = container_of(p, struct vdev, poller);
	struct ibv_wc wc[VERBS_BATCH];
	const bool event = take_event(d); /* counts, too: the queue is not armed any more */
	int n = ibv_poll_cq(d->cq, VERBS_BATCH, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id & 1ull << 63)
			on_received(d->v, d, &wc[i]);
		else
			on_sent(d->v, &wc[i]);
	}
	return (n > 0 ? n : 0) + event;
}

int vdev_arm(struct poller *p)
{
	struct vdev *d = container_of(p, struct vdev, poller);

	if (d->armed)
		return 0;
	d->armed = true;
	return ret_code(ibv_req_notify_cq(d->cq, 0));
}

/* ---- the transport interface ---- */

static void submit(struct vconn *c, struct list *queue, struct xop *op, struct vreq q)
{
	struct vreq *in = req_of(op);

	if (c->state == VC_DRAIN || c->closing) {
		op->done(op, c->error ? c->error : -ECANCELED);
		return;
	}
	*in = q;
	list_add_tail(queue, &in->link);
	vconn_ready(c);
}

static void verbs_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
{
	assert(n == 1 && iov->iov_len <= VERBS_MESSAGE_MAX);
	submit(vconn_of(x), &vconn_of(x)->txq, op,
	       (struct vreq){.kind = V_SEND, .ptr = iov->iov_base, .rkey = (uint32_t)iov->iov_len});
}

void verbs_send_payload(struct xconn *x, const struct iovec *message, const void *payload,
			uint32_t len, struct xop *op)
{
	assert(message->iov_len <= VERBS_MESSAGE_MAX && len <= VERBS_PAYLOAD_MAX);
	submit(vconn_of(x), &vconn_of(x)->txq, op,
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
	if (c->closing || (list_empty(&c->rxq) && c->state == VC_DRAIN)) {
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
	submit(vconn_of(x), &vconn_of(x)->rdq, op,
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
	submit(vconn_of(x), &vconn_of(x)->txq, op,
	       (struct vreq){.kind = V_PUSH,
			     .ptr = iov,
			     .n = (uint16_t)n,
			     .addr = to.addr,
			     .rkey = to.rkey});
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

struct xremote verbs_remote(const struct xconn *x, const struct slot *s, uint32_t off)
{
	const struct vconn *c = (const struct vconn *)x;

	struct ibv_mr *const *mr = s->pool == c->v->opts.landing ? c->dev->mr_land : c->dev->mr_out;

	assert(c->active);
	return (struct xremote){.addr = (uintptr_t)s->data + off, .rkey = mr[s->slab]->rkey};
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
};
