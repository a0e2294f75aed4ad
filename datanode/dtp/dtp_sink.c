/* SPDX-License-Identifier: Apache-2.0 */
/* The next hop of a write over TCP (sink.h): WRITE_BLOCK as its client. Pieces go as packets from
 * the slots they landed in, acks come back. */
#include "datanode/block/sink.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"

#define CONFIRM_NS (300 * NS_PER_S) /* until a copy is on the disk of the hop */
#define SINK_BATCH 4                /* pieces in one send: 4 vectors each */
#define SINK_BUF 4096
/* the hop's own time-out may be shorter than ours; as clients do it */
#define BEAT_MAX_NS (30 * NS_PER_S)

enum sink_state {
	SINK_WAIT_NEXT_NODE, /* the op is on its way; leaves on on_called() */
	SINK_RUN,            /* pieces go, acks (or a final answer) come */
	SINK_BROKEN,         /* told the user; waits for close() */
	SINK_CLOSING,        /* waits for what is in flight */
	SINK_DONE,
};

struct dtp_sink {
	struct rop rop;
	struct piece_sink base;
	struct engine_core *core;
	struct dtp_call call;
	struct xconn *xc; /* after the call */
	enum sink_state state;
	uint64_t hop_ns;   /* of the signs of life that the hop gets, and gives */
	uint64_t read_ns;  /* for an answer */
	uint64_t quiet_ns; /* until we are not sure any more that it lives */
	bool acks, final_answer, opened, closing;
	int64_t last_seq;               /* of the piece with last, once it goes; else SEQ_UNKNOWN */
	bool last_sent, last_acked;     /* acked: the hop may hang up as it likes */
	bool confirm, ended, confirmed; /* half closed behind the last piece */

	struct xop send_op, recv_op;
	bool calling, sending, receiving;
	int rc;

	bool beats; /* of our own, so that a hop that gets no pieces does not hang up */
	struct rtimer beat_timer;
	uint64_t sent_ns; /* a send ended last */
	uint32_t beats_unacked;

	/* The patience with a hop that owes an ack: who writes may have less than we, and be
	 * stopped itself for longer. */
	struct rtimer ack_timer;
	uint64_t owes_ns;                   /* since then, or its last ack */
	int64_t sent_seq, acked_seq;        /* of pieces */
	uint32_t hearts_sent, hearts_acked; /* heartbeats, whoever made them */

	struct list queue; /* pieces to be sent */
	struct piece *batch[SINK_BATCH];
	uint32_t batch_len;
	uint8_t headers[SINK_BATCH][DT_PACKET_HEADER_MAX];

	uint8_t buf[SINK_BUF];
	uint32_t have;
};

static void sink_ready(struct dtp_sink *s)
{
	reactor_ready(s->core->reactor, &s->rop);
}

static uint64_t sink_in_ns(const struct dtp_sink *s, uint64_t ns)
{
	return reactor_now_ns(s->core->reactor) + ns;
}

static void sink_fail(struct dtp_sink *s, int rc)
{
	if (!s->rc)
		s->rc = rc;
	sink_ready(s);
}

/* ---- events ---- */

static void on_sent(struct xop *op, int res)
{
	struct dtp_sink *s = container_of(op, struct dtp_sink, send_op);

	s->sending = false;
	s->sent_ns = reactor_now_ns(s->core->reactor);
	if (res < 0)
		sink_fail(s, res);
	for (uint32_t i = 0; i < s->batch_len; i++) {
		s->last_sent |= s->batch[i]->last;
		s->base.user->ops->sent(s->base.user, s->batch[i]);
	}
	s->batch_len = 0;
	sink_ready(s);
}

static uint64_t beat_at_ns(const struct dtp_sink *s)
{
	const uint64_t half_ns = s->hop_ns / 2;

	return s->sent_ns + (half_ns < BEAT_MAX_NS ? half_ns : BEAT_MAX_NS);
}

static void on_beat(struct rtimer *t)
{
	sink_ready(container_of(t, struct dtp_sink, beat_timer));
}

static void on_recv(struct xop *op, int res)
{
	struct dtp_sink *s = container_of(op, struct dtp_sink, recv_op);

	s->receiving = false;
	if (res == 0 && s->ended)
		s->confirmed = true;
	else if (res <= 0)
		sink_fail(s, res ? res : -ECONNRESET);
	else
		s->have += (uint32_t)res;
	sink_ready(s);
}

static void recv_more(struct dtp_sink *s)
{
	if (s->receiving || s->rc || s->have == SINK_BUF)
		return;
	s->receiving = true;
	s->xc->recv_deadline_ns = sink_in_ns(s, s->quiet_ns);
	xconn_recv(s->xc, s->buf + s->have, SINK_BUF - s->have, &s->recv_op);
}

static bool owes_ack(const struct dtp_sink *s)
{
	return s->acked_seq < s->sent_seq || s->hearts_acked < s->hearts_sent;
}

static void on_ack_late(struct rtimer *t)
{
	struct dtp_sink *s = container_of(t, struct dtp_sink, ack_timer);

	if (s->state != SINK_RUN || !owes_ack(s))
		return;
	if (reactor_now_ns(s->core->reactor) >= s->owes_ns + s->read_ns)
		sink_fail(s, -ETIMEDOUT);
	else
		reactor_timer_set(s->core->reactor, t, s->owes_ns + s->read_ns);
}

/* A piece that goes is no sign of life: only the first one begins the wait. */
static void note_sent(struct dtp_sink *s, int64_t seq)
{
	if (!owes_ack(s))
		s->owes_ns = reactor_now_ns(s->core->reactor);
	if (seq == SEQ_HEARTBEAT)
		s->hearts_sent++;
	else
		s->sent_seq = seq;
	if (s->acks && !s->ack_timer.deadline_ns)
		reactor_timer_set(s->core->reactor, &s->ack_timer, s->owes_ns + s->read_ns);
}

static void note_acked(struct dtp_sink *s, int64_t seq)
{
	s->owes_ns = reactor_now_ns(s->core->reactor);
	if (seq == SEQ_HEARTBEAT)
		s->hearts_acked++;
	else if (seq > s->acked_seq)
		s->acked_seq = seq;
}

static void consume(struct dtp_sink *s, size_t n)
{
	s->have -= (uint32_t)n;
	memmove(s->buf, s->buf + n, s->have);
}

/* The next whole delimited message in the buffer, or NULL. */
static const uint8_t *message(struct dtp_sink *s, size_t *ret_len, size_t *ret_total)
{
	uint32_t prefix;
	const ssize_t total = dt_delim_need(s->buf, s->have, SINK_BUF - 5, &prefix);

	if (total < 0)
		sink_fail(s, (int)total);
	if (total < 0 || !prefix || (size_t)total > s->have)
		return NULL;
	*ret_len = (size_t)total - prefix;
	*ret_total = (size_t)total;
	return s->buf + prefix;
}

/* ---- set-up ---- */

static void tell_opened(struct dtp_sink *s, int status, const char *bad_link)
{
	s->opened = true;
	s->base.user->ops->opened(s->base.user, status, bad_link);
}

static void on_called(struct dtp_call *c, const Hd__BlockOpResponseProto *m)
{
	struct dtp_sink *s = container_of(c, struct dtp_sink, call);
	const int status = m ? (int)m->status : DT_SUCCESS;
	/* A node that fails without naming one is itself to blame. */
	const char *bad = m && m->firstbadlink && m->firstbadlink[0] ? m->firstbadlink : c->peer;

	s->calling = false;
	s->xc = c->xc;
	s->sent_ns = c->sent_ns;
	if (c->rc < 0 || s->closing) {
		sink_fail(s, c->rc < 0 ? c->rc : -ECANCELED);
		return;
	}
	if (m && m->n_later) {
		s->base.later_count =
			m->n_later < DN_TARGETS_MAX ? (uint32_t)m->n_later : DN_TARGETS_MAX;
		memcpy(s->base.later, m->later, s->base.later_count * sizeof(*m->later));
	}
	s->state = status == DT_SUCCESS ? SINK_RUN : SINK_BROKEN;
	tell_opened(s, status, status == DT_SUCCESS ? "" : bad);
	sink_ready(s);
}

/* ---- pieces and acks ---- */

static int piece_vec(struct dtp_sink *s, uint32_t i, const struct piece *p, struct iovec *iov)
{
	const struct dt_packet pkt = {
		.offset = (int64_t)p->off,
		.seqno = p->seq,
		.data_len = p->len,
		.crc_len = p->crc_count * 4,
		.last = p->last,
		.sync = p->sync,
	};
	int n = 0;

	note_sent(s, p->seq);
	if (p->last)
		s->last_seq = p->seq;
	iov[n++] = (struct iovec){s->headers[i], dt_packet_encode(&pkt, s->headers[i])};
	if (p->crc_count > 1)
		iov[n++] = (struct iovec){(void *)(uintptr_t)p->crcs, (p->crc_count - 1) * 4};
	if (p->crc_count)
		iov[n++] = (struct iovec){(void *)(uintptr_t)p->edge, 4};
	if (p->len)
		iov[n++] = (struct iovec){p->slot->data + p->slot_off, p->len};
	return n;
}

static void send_packets(struct dtp_sink *s, const struct iovec *iov, int n)
{
	s->sending = true;
	s->xc->send_deadline_ns = sink_in_ns(s, s->core->waits.write_ns);
	xconn_send(s->xc, iov, n, &s->send_op);
}

static void do_send_pieces(struct dtp_sink *s)
{
	struct iovec iov[XOP_IOV_MAX];
	int n = 0;

	if (s->sending || s->rc)
		return;
	while (s->batch_len < SINK_BATCH && !list_empty(&s->queue)) {
		struct piece *p = container_of(list_pop(&s->queue), struct piece, link);

		n += piece_vec(s, s->batch_len, p, iov + n);
		s->batch[s->batch_len++] = p;
	}
	if (!n)
		return;
	send_packets(s, iov, n);
}

/* Behind the last piece the hop takes nothing any more. */
static void do_beat(struct dtp_sink *s)
{
	static const struct piece beat = {.seq = SEQ_HEARTBEAT};
	struct iovec iov[XOP_IOV_MAX];

	if (!s->beats || s->sending || s->rc || s->last_seq != SEQ_UNKNOWN)
		return;
	if (reactor_now_ns(s->core->reactor) >= beat_at_ns(s)) {
		s->beats_unacked++;
		send_packets(s, iov, piece_vec(s, 0, &beat, iov));
	} else if (!s->beat_timer.deadline_ns) {
		reactor_timer_set(s->core->reactor, &s->beat_timer, beat_at_ns(s));
	}
}

/* An ack of a heartbeat of our own says nothing to the user, unless a node behind has failed. */
static void tell_ack(struct dtp_sink *s, const struct dt_ack *ack)
{
	int64_t seq = ack->seqno;

	note_acked(s, seq);
	if (seq == SEQ_HEARTBEAT && s->beats_unacked) {
		s->beats_unacked--;
		if (dt_ack_first_bad(ack) < 0)
			return;
		seq = SEQ_UNKNOWN;
	}
	s->last_acked |= s->last_seq != SEQ_UNKNOWN && seq == s->last_seq;
	s->base.user->ops->acked(s->base.user, seq, ack->reply, ack->count);
}

static void do_acks(struct dtp_sink *s)
{
	const uint8_t *p;
	size_t len, total;
	struct dt_ack ack;

	while (s->acks && (p = message(s, &len, &total))) {
		const int rc = dt_ack_decode(p, len, &ack);

		consume(s, total);
		if (rc < 0) {
			sink_fail(s, rc);
			return;
		}
		tell_ack(s, &ack);
	}
	if (s->acks || s->final_answer)
		recv_more(s);
}

static void do_final_answer(struct dtp_sink *s)
{
	Hd__BlockOpResponseProto *m = NULL;
	size_t len, total;
	const uint8_t *p = s->final_answer ? message(s, &len, &total) : NULL;
	int rc;

	if (!p)
		return;
	rc = pb_unpack(&hd__block_op_response_proto__descriptor, p, len, &m);
	if (rc == 0)
		rc = dt_status_errno((int)m->status);
	if (rc == 0 && s->last_seq == SEQ_UNKNOWN)
		rc = -EPROTO; /* it cannot have what has not gone */
	pb_free(m);
	consume(s, total);
	s->state = SINK_BROKEN;
	s->base.user->ops->broken(s->base.user, rc);
}

/* A hop that answers nothing hangs up when it has stored everything, and is reset when it gives up
 * with bytes unread: that much can be known of a copy between nodes. */
static void do_confirm(struct dtp_sink *s)
{
	if (!s->confirm || !s->last_sent || s->state != SINK_RUN)
		return;
	if (!s->ended) {
		s->ended = true;
		s->quiet_ns = CONFIRM_NS;
		s->xc->ops->end(s->xc);
	}
	s->have = 0;
	if (!s->confirmed) {
		recv_more(s);
		return;
	}
	s->state = SINK_BROKEN;
	s->base.user->ops->broken(s->base.user, 0);
}

static void do_run(struct dtp_sink *s)
{
	do_send_pieces(s);
	do_beat(s);
	do_confirm(s);
	do_final_answer(s);
	if (s->state == SINK_RUN)
		do_acks(s);
}

/* ---- the end ---- */

static void do_broken(struct dtp_sink *s)
{
	if (!s->last_acked)
		log_info("op=forward hop=%s: %s", s->call.peer, err_name(s->rc));
	s->state = SINK_BROKEN;
	if (s->opened)
		s->base.user->ops->broken(s->base.user, s->rc);
	else
		tell_opened(s, dt_errno_status(s->rc), s->call.peer);
}

static void do_closing(struct dtp_sink *s)
{
	if (s->xc) {
		xconn_close(s->xc);
		s->xc = NULL;
	}
	while (!list_empty(&s->queue)) {
		struct piece *p = container_of(list_pop(&s->queue), struct piece, link);

		s->base.user->ops->sent(s->base.user, p);
	}
	if (s->calling)
		dtp_call_cancel(&s->call);
	if (!s->calling && !s->sending && !s->receiving)
		s->state = SINK_DONE;
}

static bool sink_step(struct rop *rop)
{
	struct dtp_sink *s = container_of(rop, struct dtp_sink, rop);
	enum sink_state before;

	do {
		before = s->state;
		if (s->closing && s->state < SINK_CLOSING)
			s->state = SINK_CLOSING;
		else if (s->rc && s->state < SINK_BROKEN)
			do_broken(s);
		switch (s->state) {
		case SINK_WAIT_NEXT_NODE:
			break;
		case SINK_RUN:
			do_run(s);
			break;
		case SINK_CLOSING:
			do_closing(s);
			break;
		case SINK_BROKEN:
		case SINK_DONE:
			break;
		}
	} while (s->state != before);
	return s->state == SINK_DONE;
}

static void sink_free(struct rop *rop)
{
	struct dtp_sink *s = container_of(rop, struct dtp_sink, rop);

	reactor_timer_clear(s->core->reactor, &s->beat_timer);
	reactor_timer_clear(s->core->reactor, &s->ack_timer);
	s->core->op_count--;
	s->base.user->ops->closed(s->base.user);
	free(s);
}

static void sink_forward(struct piece_sink *base, struct piece *p)
{
	struct dtp_sink *s = container_of(base, struct dtp_sink, base);

	list_add_tail(&s->queue, &p->link);
	sink_ready(s);
}

static void sink_close(struct piece_sink *base)
{
	struct dtp_sink *s = container_of(base, struct dtp_sink, base);

	s->closing = true;
	sink_ready(s);
}

static uint64_t sink_taken(struct piece_sink *base)
{
	struct dtp_sink *s = container_of(base, struct dtp_sink, base);
	struct xprogress now;

	return s->xc && s->xc->ops->progress && s->xc->ops->progress(s->xc, &now) ? now.acked : 0;
}

static const struct piece_sink_ops dtp_sink_ops = {
	.forward = sink_forward,
	.close = sink_close,
	.taken = sink_taken,
};

int stream_sink_open(struct engine_core *core, const struct sink_params *params,
		     struct sink_user *user, struct piece_sink **ret)
{
	struct sink_params asked = *params;
	struct dtp_call_params call = {.to = &params->write->targets[0],
				       .no_answer = params->no_answer || params->final_answer};
	struct dtp_sink *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->core = core;
	s->base = (struct piece_sink){.ops = &dtp_sink_ops, .user = user};
	s->final_answer = params->final_answer;
	s->acks = !call.no_answer;
	s->beats = params->beats && s->acks;
	s->sent_seq = s->acked_seq = SEQ_UNKNOWN;
	s->ack_timer.fire = on_ack_late;
	s->confirm = params->no_answer && params->confirm;
	s->hop_ns = engine_hop_ns(core, params->write);
	s->read_ns = engine_chain_ns(core, params->write);
	s->quiet_ns = core->waits.read_ns + XFER_NODE_NS * params->write->target_count;
	call.connect_ns = s->hop_ns;
	call.answer_by_ns = sink_in_ns(s, s->read_ns - params->waited_ns);
	s->last_seq = SEQ_UNKNOWN;
	list_init(&s->queue);
	s->send_op.done = on_sent;
	s->recv_op.done = on_recv;
	s->beat_timer.fire = on_beat;
	rop_init(&s->rop, sink_step, sink_free);
	asked.sync_later = params->write->sync_later;
	rc = dtp_write_op_encode(&asked, &call.op, &call.op_len);
	if (rc == 0)
		rc = dtp_call_start(&s->call, core, &call, on_called);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->calling = true;
	core->op_count++;
	*ret = &s->base;
	return 0;
}
