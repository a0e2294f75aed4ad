/* SPDX-License-Identifier: Apache-2.0 */
/* What an RDMA connection has queued becomes work requests, posted together: messages with the
 * newest grant of credits in them, pushes and pulls. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

static struct vreq *first(struct list *l)
{
	return list_empty(l) ? NULL : container_of(l->next, struct vreq, link);
}

struct chain { /* work requests of one doorbell */
	struct ibv_send_wr wr[VERBS_SQ_DEPTH];
	struct ibv_sge sge[VERBS_SQ_DEPTH][2];
	struct xop *early[VERBS_SQ_DEPTH]; /* done once posted: nothing of theirs is needed */
	void *inlined[VERBS_SQ_DEPTH];     /* buffers free once posted */
	uint32_t n, early_n, inlined_n, opcode[V_KINDS];
	struct list late; /* pulls that are not posted any more */
};

/* In the send queue, and for its completion: in error every work request has one. One of both
 * stays free for the drain marker. */
static bool sq_has_room(struct vconn *c)
{
	const uint32_t used = c->sq_head - c->sq_tail;

	if (used + 1 >= c->sq_depth)
		return false;
	if (used + 1 < c->cqes)
		return true;
	for (uint32_t n = VERBS_CQES_STEP; n; n = n > 1 ? 1 : 0)
		if (vdev_cqes_take(c->dev, n)) {
			c->cqes += n;
			return true;
		}
	metric_add(METRIC_RDMA_STALL_SQ, 1);
	if (!list_is_linked(&c->tx_link))
		list_add_tail(&c->dev->tx_waiting, &c->tx_link);
	return false;
}

static struct ibv_send_wr *chain_add(struct vconn *c, struct chain *ch, struct vrec rec,
				     bool signal)
{
	uint32_t pos = c->sq_head++ & (VERBS_SQ_DEPTH - 1);
	struct ibv_send_wr *wr = &ch->wr[ch->n];

	c->sq[pos] = rec;
	c->awaited += vrec_is_timed(&rec);
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = (uint64_t)c->slot << 40 | (uint64_t)c->gen << 24 | pos;
	wr->sg_list = ch->sge[ch->n];
	if (signal || ++c->unsignalled >= VERBS_SIGNAL_EVERY || c->unsignalled >= c->sq_depth / 2) {
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
	const int rc = credit_take(&c->credit, CREDIT_BEAT);

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
		(struct vrec){.kind = V_SEND, .op = q->len ? vreq_op(q) : NULL, .bytes = q->rkey});
	if (q->len) {
		ch->sge[i][1] = (struct ibv_sge){
			q->addr, q->len,
			vdev_lkey(c->dev, c->active, (void *)(uintptr_t)q->addr, NULL)};
		wr->num_sge = 2;
	} else {
		ch->early[ch->early_n++] = vreq_op(q);
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
					     .op = last ? vreq_op(q) : NULL,
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
	wr = chain_add(c, ch, (struct vrec){.kind = V_PULL, .op = vreq_op(q), .bytes = q->len},
		       true);
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = q->addr;
	wr->wr.rdma.rkey = q->rkey;
	ch->sge[i][0] = (struct ibv_sge){(uintptr_t)q->ptr, q->len,
					 q->n ? vmemory_lkey(c->dev, q->n - 1u)
					      : vdev_lkey(c->dev, c->active, q->ptr, NULL)};
	wr->num_sge = 1;
}

/* A window is opened, for the messages behind it, or closed: then its completion is awaited. */
static void add_window(struct vconn *c, struct chain *ch, struct vreq *q)
{
	const bool opens = q->kind == V_BIND;
	struct ibv_send_wr *wr;

	list_del(&q->link);
	wr = chain_add(c, ch, (struct vrec){.kind = q->kind, .op = opens ? NULL : vreq_op(q)},
		       !opens);
	wr->num_sge = 0;
	if (opens) {
		vwindow_bind_wr(q, wr);
		ch->early[ch->early_n++] = vreq_op(q);
	} else {
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = q->rkey;
	}
}

/* Windows of answered requests are closed, whoever else has to say something or nobody. */
static void add_covers(struct vconn *c, struct chain *ch)
{
	struct verbs_window *w;

	while ((w = vconn_next_cover(c, ch->n > 0)) && sq_has_room(c)) {
		struct ibv_send_wr *wr;

		vconn_covered(c, w);
		wr = chain_add(c, ch, (struct vrec){.kind = V_COVER, .op = &w->cover_op}, false);
		wr->num_sge = 0;
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = w->rkey;
	}
}

/* Only to give credits back. False: there is no send buffer. */
static bool add_heartbeat(struct vconn *c, struct chain *ch, enum vkind kind)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	void *buf = tx_get(c);

	if (buf)
		add_message(c, ch, p->heartbeat, p->heartbeat_len, buf,
			    (struct vrec){.kind = kind});
	return buf;
}

static enum credit_class class_of(const struct vconn *c, const struct vreq *q)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	uint64_t stream;

	return p->is_control && p->is_control(q->ptr, q->rkey, &stream) ? CREDIT_CONTROL
									: CREDIT_DATA;
}

static void add_pulls(struct vconn *c, struct chain *ch)
{
	struct vreq *q;

	while ((q = first(&c->rdq))) {
		if (q->until_ns && clock_mono_ns() >= q->until_ns) {
			list_del(&q->link);
			list_add_tail(&ch->late, &q->link);
			continue;
		}
		if (!sq_has_room(c))
			break;
		if (c->rd_used == c->rd_max) {
			metric_add(METRIC_RDMA_STALL_READ, 1);
			break;
		}
		add_pull(c, ch, q);
	}
}

static void refuse_late(struct chain *ch)
{
	struct list *l;

	while ((l = list_pop(&ch->late))) {
		struct xop *op = vreq_op(container_of(l, struct vreq, link));

		op->done(op, -ETIME);
	}
}

static void build_chain(struct vconn *c, struct chain *ch)
{
	struct vreq *q;

	/* docs/wire.md 2: the dialer speaks first */
	if (c->active && !c->ping_ns && credit_may_send(&c->credit, CREDIT_BEAT) &&
	    sq_has_room(c) && add_heartbeat(c, ch, V_PING))
		c->ping_ns = clock_mono_ns();
	while ((q = first(&c->ctlq)) && credit_may_send(&c->credit, CREDIT_CONTROL) &&
	       sq_has_room(c))
		if (!add_send(c, ch, q))
			break;
	while ((q = first(&c->shutq)) && sq_has_room(c))
		add_window(c, ch, q);
	while ((q = first(&c->txq)) && sq_has_room(c)) {
		if (q->kind == V_PUSH) {
			if (!add_push(c, ch, q))
				break;
		} else if (q->kind == V_BIND || q->kind == V_UNBIND) {
			add_window(c, ch, q);
		} else if (!credit_may_send(&c->credit, class_of(c, q))) {
			metric_add(METRIC_RDMA_STALL_CREDIT, 1);
			break;
		} else if (!add_send(c, ch, q)) {
			break;
		}
	}
	add_pulls(c, ch);
	if ((c->beat || grant_due(&c->grant)) && credit_may_send(&c->credit, CREDIT_BEAT) &&
	    sq_has_room(c))
		(void)add_heartbeat(c, ch, V_SEND);
	add_covers(c, ch);
	if (ch->n && !(ch->wr[ch->n - 1].send_flags & IBV_SEND_SIGNALED)) {
		bool waits = vdev_cqes_are_few(c->dev); /* others need what this one keeps */

		for (uint32_t p = c->sq_head - ch->n; p != c->sq_head && !waits; p++)
			waits = vrec_is_awaited(&c->sq[p & (VERBS_SQ_DEPTH - 1)]);
		if (waits) {
			ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
			c->unsignalled = 0;
		}
	}
}

/* The work requests from @bad on were refused: they are nobody's, and none of them completes. What
 * was to complete with them has failed. */
static void take_back(struct vconn *c, struct chain *ch, const struct ibv_send_wr *bad)
{
	struct xop *failed[VERBS_SQ_DEPTH];
	uint32_t n = 0, posted = 0;

	while (posted < ch->n && &ch->wr[posted] != bad)
		posted++;
	for (uint32_t i = ch->n; i-- > posted;) {
		struct vrec *rec = &c->sq[--c->sq_head & (VERBS_SQ_DEPTH - 1)];

		c->awaited -= vrec_is_timed(rec);
		c->rd_used -= rec->kind == V_PULL;
		if (rec->txbuf)
			vdev_tx_put(c->dev, rec->txbuf);
		if (rec->op)
			failed[n++] = rec->op;
	}
	/* those before bad are live: their completions bring them home */
	vconn_fail(c, -EIO, "posting work requests failed");
	while (n--) /* in the order in which they were asked for */
		failed[n]->done(failed[n], -EIO);
}

/* Of a step of completions what nothing was posted for. */
static void spare_cqes(struct vconn *c)
{
	const uint32_t needed = c->sq_head - c->sq_tail + 1;

	if (c->cqes <= needed)
		return;
	vdev_cqes_put(c->dev, c->cqes - needed);
	c->cqes = needed;
}

static void post_chain(struct vconn *c, struct chain *ch)
{
	struct ibv_send_wr *bad = NULL;

	metric_add(METRIC_RDMA_DOORBELLS, 1);
	metric_add(METRIC_RDMA_WR_SEND, ch->opcode[V_SEND] + ch->opcode[V_PING]);
	metric_add(METRIC_RDMA_WR_READ, ch->opcode[V_PULL]);
	metric_add(METRIC_RDMA_WR_WRITE, ch->opcode[V_PUSH]);
	metric_add(METRIC_RDMA_WR_BIND, ch->opcode[V_BIND]);
	metric_add(METRIC_RDMA_WR_INVALIDATE, ch->opcode[V_UNBIND] + ch->opcode[V_COVER]);
	if (ibv_post_send(c->qp, ch->wr, &bad))
		take_back(c, ch, bad);
	for (uint32_t i = 0; i < ch->inlined_n; i++)
		vdev_tx_put(c->dev, ch->inlined[i]);
	for (uint32_t i = 0; i < ch->early_n; i++)
		ch->early[i]->done(ch->early[i],
				   c->error ? c->error : (int)vreq_of(ch->early[i])->rkey);
	if (vconn_next_cover(c, false)) /* it could not go before it was opened in this chain */
		vconn_ready(c);
}

void vconn_flush(struct vconn *c)
{
	struct chain ch;

	ch.n = ch.early_n = ch.inlined_n = 0;
	list_init(&ch.late);
	memset(ch.opcode, 0, sizeof(ch.opcode));
	list_del(&c->tx_link); /* it waits again if it has to */
	vdev_post_due(c->dev); /* the peer is told of those as early as may be */
	if (c->state != VC_UP)
		return;
	build_chain(c, &ch);
	spare_cqes(c);
	vconn_start_timer(c); /* what waits for credits or slots has a deadline, too */
	if (ch.n)
		post_chain(c, &ch);
	refuse_late(&ch);
}
