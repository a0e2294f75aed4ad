/* SPDX-License-Identifier: Apache-2.0 */
/* READ_BLOCK and COPY_BLOCK as their server: pieces of the engine as packets. A peer that takes
 * nothing is parked while others want buffers (docs/design/013-buffers.md). */
#include "datanode/dtp/dtp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/block/buffers.h"
#include "datanode/block/moves.h"
#include "datanode/block/suspects.h"

/* Data of one packet: a multiple of every usual chunk size, and 4 packets of 3 vectors each fill
 * one send. Stock clients take packets up to 16 MiB. */
#define READ_PACKET (256u << 10)
#define PACKET_CHUNKS 1024u /* so that a header and its CRCs fit the queue of what is to be sent */
#define PACKETS_MAX 5
/* A read of at most so many bytes is one packet, which takes the answer to the op and the empty
 * packet along in one send. */
#define READ_SHORT READ_PACKET

enum dtpr_state {
	DTPR_RUN,  /* pieces come and are sent; leaves when the engine's read has ended */
	DTPR_TAIL, /* all data is sent: the empty packet */
	DTPR_WAIT_PEER_STATUS, /* needs the client's verdict */
	DTPR_END,
};

struct dtp_read {
	struct dtp_op op; /* first */
	struct read_sink sink;
	struct block_read *r;
	enum dtpr_state state;
	struct read_info info;
	struct block_pool *bp;
	struct block block;
	char what[32]; /* for error texts: opReadBlock */
	bool copy, failed, ended;
	bool asks_small; /* the client, for READ_SMALL */
	/* that the read goes well; at answer_at of the queue until the read has begun */
	bool answered;
	bool begun; /* something was sent */
	uint32_t answer_at;
	bool is_short;  /* READ_SHORT */
	bool tail_sent; /* with the last piece */
	int end_rc;

	int64_t seq;         /* of the next packet */
	uint64_t at;         /* the next byte of the block to be sent */
	uint64_t packet_end; /* its packet's end, when that packet's header has gone; else <= at */
	struct list pieces;  /* to be sent */
	struct piece *sending;
	struct sent_packet {         /* what is on its way now */
		uint32_t head, data; /* bytes: header and CRCs, payload */
	} out[PACKETS_MAX];
	/* packets; bytes of the queue before, of the tail behind them */
	uint32_t out_count, out_queued, out_tail;
	uint64_t send_ns; /* since when it is on its way */
	bool stopping;    /* to see whether the peer takes anything */
	bool parked;      /* it does not: no buffer is held until it does */
	bool resting;     /* nor by a copy until its bytes may go */
	uint64_t paid_to; /* copy: the bytes before this one may go at paid_ns */
	uint64_t paid_ns;
	struct rtimer pay_timer;
	struct xop send_op, room_op;
	uint8_t headers[PACKETS_MAX][DT_PACKET_HEADER_MAX];
	uint8_t tail[DT_PACKET_HEADER_MAX];
};

static struct dtp_read *of_sink(struct read_sink *s)
{
	return container_of(s, struct dtp_read, sink);
}

/* ---- events of the engine ---- */

static void refuse(struct dtp_read *d, int rc, const char *why)
{
	struct dtp_conn *c = d->op.conn;
	char text[ERR_TEXT_MAX + 256];

	snprintf(text, sizeof(text), "%s %s:blk_%" PRId64 "_%" PRIu64 " received exception %s: %s",
		 d->what, pool_id(d->bp), d->block.id, d->block.gs,
		 rc == -ENOENT || rc == -ESTALE
			 ? "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
			 : "java.io.IOException",
		 why);
	log_info("op=read peer=%s: %s", c->peer, text);
	dtp_send_status(c, rc == -EEXIST ? DT_ERROR_EXISTS : DT_ERROR, NULL, text);
	d->failed = true;
}

/* The answer goes with the first bytes: until then it can still become a refusal. */
static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct dtp_read *d = of_sink(s);
	struct dtp_conn *c = d->op.conn;
	uint8_t *buf = NULL;
	size_t len = 0;

	if (rc < 0) {
		refuse(d, rc, err && err->rc ? err->text : err_name(rc));
		return;
	}
	d->info = *info;
	d->at = info->first;
	d->is_short = !d->copy && info->end - info->first <= READ_SHORT;
	d->answered = true;
	d->answer_at = c->queue_len;
	c->corked = !d->copy;
	rc = dt_read_response_encode((int)info->crc_type, info->bytes_per_crc, info->first,
				     d->asks_small, &buf, &len);
	dtp_send_take(c, rc, buf, len);
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	struct dtp_read *d = of_sink(s);

	list_add_tail(&d->pieces, &p->link);
	dtp_ready(d->op.conn);
}

static void on_ended(struct read_sink *s, int rc)
{
	struct dtp_read *d = of_sink(s);

	d->r = NULL;
	d->ended = true;
	d->end_rc = rc;
	dtp_ready(d->op.conn);
}

static void on_reclaim(struct read_sink *s);

/* The client goes on with another replica, and need not wait for its timeout. It is told why,
 * unless bytes of the block have gone: then there is no place for a word. */
static void on_lost(struct read_sink *s)
{
	struct dtp_read *d = of_sink(s);
	struct dtp_conn *c = d->op.conn;

	/* the answer is still in the queue, as the last of it */
	if (d->answered && c->corked && !d->begun) {
		c->queue_len = d->answer_at;
		d->answered = false;
	}
	if (!d->answered && !d->failed && !c->broken)
		refuse(d, -EIO,
		       "the directory of the replica is out of service: it has failed, or does not answer");
	dtp_break(c, -EIO, "the volume of the replica is out of service");
}

static const struct read_sink_ops sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
	.reclaim = on_reclaim,
	.lost = on_lost,
};

/* ---- sending ---- */

static uint64_t piece_end(const struct piece *p)
{
	return p->off + p->len;
}

static void piece_back(struct dtp_read *d)
{
	block_read_sent(d->r, d->sending);
	d->sending = NULL;
}

static void give_back(struct dtp_read *d)
{
	piece_back(d);
	while (!list_empty(&d->pieces))
		block_read_sent(d->r, container_of(list_pop(&d->pieces), struct piece, link));
	block_read_park(d->r, d->at);
}

/* A copy that waits for its share of the balancer's bandwidth: on_paid() wakes it. */
static void rest(struct dtp_read *d)
{
	give_back(d);
	d->resting = true;
}

/* What was sent to a peer that takes nothing is read again when it takes some. */
static void on_reclaim(struct read_sink *s)
{
	struct dtp_read *d = of_sink(s);
	struct dtp_conn *c = d->op.conn;
	const uint64_t now_ns = reactor_now_ns(c->core->reactor);

	if (d->copy && d->sending && !c->sending && !d->ended &&
	    d->paid_ns > now_ns + BUFFERS_STALL_NS && block_read_is_wanted(d->r)) {
		rest(d);
		return;
	}
	if (d->stopping || d->parked || !d->sending || !c->sending || !c->xc ||
	    !c->xc->ops->send_stop || now_ns - d->send_ns < BUFFERS_STALL_NS)
		return;
	d->stopping = true;
	c->xc->ops->send_stop(c->xc);
}

static void on_room(struct xop *op, int res)
{
	struct dtp_read *d = container_of(op, struct dtp_read, room_op);
	struct dtp_conn *c = d->op.conn;

	c->sending = false;
	d->parked = false;
	if (res < 0)
		dtp_break(c, res, "send");
	else if (d->r)
		block_read_resume(d->r);
	dtp_ready(c);
}

static void park(struct dtp_read *d)
{
	struct dtp_conn *c = d->op.conn;

	if (!d->r || c->broken || c->state >= DTP_CLOSING)
		return;
	give_back(d);
	d->parked = true;
	c->sending = true;
	d->room_op.done = on_room;
	/* within the deadline of the send that was stopped */
	c->xc->ops->send_room(c->xc, &d->room_op);
}

/* Bytes of a header, CRCs or tail that have not gone: the queue takes them, they go first. */
static void put_back(struct dtp_read *d, const struct iovec *iov, uint32_t skip, uint32_t len)
{
	struct dtp_conn *c = d->op.conn;

	for (; len; iov++) {
		const uint32_t from = skip < iov->iov_len ? skip : (uint32_t)iov->iov_len;
		uint32_t n = (uint32_t)iov->iov_len - from;

		n = n < len ? n : len;
		skip -= from;
		if (n)
			dtp_send(c, (const uint8_t *)iov->iov_base + from, n);
		len -= n;
	}
	c->corked = true;
}

static uint32_t crcs_of(const struct dtp_read *d, uint64_t off, uint32_t len, struct iovec *ret)
{
	const uint32_t n = (uint32_t)crc_bytes(d->info.crc_type, len, d->info.bytes_per_crc);
	const struct piece *p = d->sending;

	*ret = (struct iovec){
		(void *)(uintptr_t)(p->crcs + (off - p->off) / d->info.bytes_per_crc * 4), n};
	return n;
}

/* Of what was sent, the first @n bytes have gone. */
static void advance(struct dtp_read *d, uint32_t n)
{
	struct dtp_conn *c = d->op.conn;

	if (n < d->out_queued) {
		put_back(d, &(struct iovec){c->out, d->out_queued}, n, d->out_queued - n);
		n = 0;
	} else {
		n -= d->out_queued;
	}
	for (uint32_t i = 0; i < d->out_count; i++) {
		const struct sent_packet *k = &d->out[i];

		if (n < k->head || (n == 0 && k->head)) {
			struct iovec iov[2] = {{d->headers[i], 0}};
			const uint32_t crcs = crcs_of(d, d->at, k->data, &iov[1]);

			iov[0].iov_len = k->head - crcs;
			d->seq -= d->out_count - i; /* none of the packets from here on has gone */
			if (n) {
				put_back(d, iov, n, k->head - n);
				d->packet_end = d->at + k->data;
				d->seq++;
			}
			d->tail_sent = false;
			return;
		}
		n -= k->head;
		if (k->head)
			d->packet_end = d->at + k->data;
		if (n < k->data) {
			d->at += n;
			d->seq -= d->out_count - i - 1;
			d->tail_sent = false;
			return;
		}
		n -= k->data;
		d->at += k->data;
	}
	if (n < d->out_tail)
		put_back(d, &(struct iovec){d->tail, d->out_tail}, n, d->out_tail - n);
}

static void on_sent(struct xop *op, int res)
{
	struct dtp_read *d = container_of(op, struct dtp_read, send_op);
	struct dtp_conn *c = d->op.conn;
	const bool stopped = d->stopping;

	c->sending = false;
	d->stopping = false;
	if (res < 0) {
		dtp_break(c, res, "send");
		piece_back(d);
		dtp_ready(c);
		return;
	}
	advance(d, (uint32_t)res);
	if (d->at == piece_end(d->sending))
		piece_back(d);
	else if (stopped && res == 0)
		park(d);
	dtp_ready(c);
}

/* A packet's header and CRCs. */
static int packet_head(struct dtp_read *d, uint32_t i, uint64_t off, uint32_t len,
		       struct iovec *iov)
{
	const uint32_t crc_len = crcs_of(d, off, len, &iov[1]);
	const struct dt_packet pkt = {
		.offset = (int64_t)off, .seqno = d->seq++, .data_len = len, .crc_len = crc_len};

	iov[0] = (struct iovec){d->headers[i], dt_packet_encode(&pkt, d->headers[i])};
	d->out[i].head = (uint32_t)iov[0].iov_len + crc_len;
	return crc_len ? 2 : 1;
}

static size_t tail_encode(struct dtp_read *d, uint8_t *buf)
{
	const struct dt_packet last = {
		.offset = (int64_t)d->info.end, .seqno = d->seq, .last = true};

	return dt_packet_encode(&last, buf);
}

static void on_paid(struct rtimer *t)
{
	struct dtp_read *d = container_of(t, struct dtp_read, pay_timer);

	if (d->resting && d->r)
		block_read_resume(d->r);
	d->resting = false;
	dtp_ready(d->op.conn);
}

/* The balancer's bandwidth: false while the next bytes of a copy have to wait. */
static bool may_send(struct dtp_read *d)
{
	struct engine_core *core = d->op.conn->core;
	const struct live_settings *live = &core->dn->live;
	const uint64_t now_ns = reactor_now_ns(core->reactor);

	if (!d->copy)
		return true;
	if (d->at >= d->paid_to) {
		const uint32_t bpc = d->info.bytes_per_crc;
		const uint64_t end = piece_end(d->sending);
		uint64_t to = d->at + moves_step(live, (uint32_t)(end - d->at));

		if (to < end) { /* packets end between chunks */
			to = to / bpc * bpc;
			to = to > d->at ? to : (d->at / bpc + 1) * bpc;
		}
		d->paid_to = to < end ? to : end;
		d->paid_ns = moves_charge(core->moves, live, d->paid_to - d->at, now_ns);
	}
	if (d->paid_ns <= now_ns)
		return true;
	reactor_timer_set(core->reactor, &d->pay_timer, d->paid_ns);
	return false;
}

/* How long packets are: whole chunks. */
static uint32_t packet_max(uint32_t bpc)
{
	const uint32_t max = bpc < READ_PACKET / PACKET_CHUNKS ? bpc * PACKET_CHUNKS : READ_PACKET;

	return bpc < max ? max / bpc * bpc : bpc;
}

/* What of the piece has not gone, in one send: the rest of a packet that was stopped in the middle,
 * then packets. */
static void send_piece(struct dtp_read *d)
{
	struct dtp_conn *c = d->op.conn;
	struct piece *p = d->sending;
	const uint32_t max = packet_max(d->info.bytes_per_crc);
	const uint64_t end = d->copy && d->paid_to < piece_end(p) ? d->paid_to : piece_end(p);
	struct iovec iov[XOP_IOV_MAX];
	uint64_t off = d->at;
	int n = 0;

	d->out_count = d->out_queued = d->out_tail = 0;
	if (dtp_take_queued(c, iov))
		d->out_queued = (uint32_t)iov[n++].iov_len;
	while (d->out_count < PACKETS_MAX && off < end && n + 3 <= XOP_IOV_MAX) {
		const uint64_t stop = off < d->packet_end ? d->packet_end : off + max;
		const uint32_t len = (uint32_t)((stop < end ? stop : end) - off);

		d->out[d->out_count] = (struct sent_packet){.data = len};
		if (off >= d->packet_end)
			n += packet_head(d, d->out_count, off, len, iov + n);
		iov[n++] = (struct iovec){p->slot->data + p->slot_off + (off - p->off), len};
		d->out_count++;
		off += len;
	}
	if (!d->copy && off == d->info.end && n < XOP_IOV_MAX) {
		d->out_tail = (uint32_t)tail_encode(d, d->tail);
		iov[n++] = (struct iovec){d->tail, d->out_tail};
		d->tail_sent = true;
	}
	c->sending = true;
	c->corked = false;
	d->begun = true;
	d->send_op.done = on_sent;
	d->send_ns = reactor_now_ns(c->core->reactor);
	c->xc->send_deadline_ns = dtp_in_ns(c, c->core->waits.write_ns);
	xconn_send(c->xc, iov, n, &d->send_op);
	/* The client's verdict on a few bytes comes at once: wait for it from now on, in the same
	 * system call. */
	if (d->is_short && d->tail_sent)
		(void)dtp_fill(c, 1, DTP_BUF, dtp_in_ns(c, c->core->waits.read_ns));
}

static void do_run(struct dtp_read *d)
{
	struct dtp_conn *c = d->op.conn;

	if (d->parked) {
		if (d->ended && !d->stopping)
			c->xc->ops->send_stop(c->xc); /* the disk failed meanwhile */
		d->stopping = d->ended;
		return;
	}
	if (d->ended) {
		c->corked = false;
		if (d->end_rc < 0 && !d->failed)
			dtp_break(c, d->end_rc, "read");
		d->state = d->end_rc < 0 || d->failed ? DTPR_END
			   : d->tail_sent             ? DTPR_WAIT_PEER_STATUS
						      : DTPR_TAIL;
		return;
	}
	if (c->sending || (c->queue_len && !c->corked) || c->broken)
		return; /* the answer to the op goes first */
	if (!d->sending && !list_empty(&d->pieces))
		d->sending = container_of(list_pop(&d->pieces), struct piece, link);
	if (d->sending && may_send(d))
		send_piece(d);
}

static void do_tail(struct dtp_read *d)
{
	uint8_t buf[DT_PACKET_HEADER_MAX];

	d->op.conn->corked = false;
	dtp_send(d->op.conn, buf, tail_encode(d, buf));
	if (d->copy) {
		const uint8_t end[2] = {DT_COPY_BLOCK_END >> 8, DT_COPY_BLOCK_END & 0xff};

		dtp_send(d->op.conn, end, sizeof(end));
	}
	d->state = d->copy ? DTPR_END : DTPR_WAIT_PEER_STATUS;
}

static void finish(struct dtp_read *d)
{
	struct dtp_conn *c = d->op.conn;

	reactor_timer_clear(c->core->reactor, &d->pay_timer);
	if (d->copy)
		moves_leave(c->core->moves);
	free(d);
	dtp_op_done(c);
}

/* The client says how its check went. */
static void do_status(struct dtp_read *d)
{
	struct dtp_conn *c = d->op.conn;
	enum dt_status status = DT_ERROR;
	uint32_t prefix;
	ssize_t total;
	int rc;

	total = dt_delim_need(dtp_buf_at(&c->in), dtp_buf_len(&c->in), DT_STATUS_MAX * 4, &prefix);
	if (total < 0) {
		dtp_break(c, (int)total, "read status");
		d->state = DTPR_END;
		return;
	}
	if (!prefix || dtp_buf_len(&c->in) < (uint32_t)total) {
		if (dtp_fill(c, (uint32_t)total, DTP_BUF, dtp_in_ns(c, c->core->waits.read_ns)))
			dtp_ready(c);
		if (c->broken)
			d->state = DTPR_END;
		return;
	}
	rc = dt_read_status_decode(dtp_buf_at(&c->in) + prefix, (size_t)total - prefix, &status);
	dtp_buf_take(&c->in, (uint32_t)total);
	d->state = DTPR_END;
	if (rc < 0)
		dtp_break(c, rc, "read status");
	if (rc < 0 || status != DT_ERROR_CHECKSUM)
		return;
	if (suspects_add(c->core->suspects, c->core, d->bp, &d->info.block))
		log_warn("op=read peer=%s block=%" PRId64
			 ": the client found a CRC that does not fit",
			 c->peer, d->info.block.id);
}

static void read_step(struct dtp_op *op)
{
	struct dtp_read *d = container_of(op, struct dtp_read, op);
	enum dtpr_state before;

	if (op->conn->state >= DTP_CLOSING) { /* give everything back */
		while (d->r && !list_empty(&d->pieces))
			block_read_sent(d->r,
					container_of(list_pop(&d->pieces), struct piece, link));
		if (d->r && d->sending && !op->conn->sending)
			piece_back(d);
		if (!d->r && !op->conn->sending)
			finish(d);
		return;
	}
	do {
		before = d->state;
		switch (d->state) {
		case DTPR_RUN:
			do_run(d);
			break;
		case DTPR_TAIL:
			do_tail(d);
			break;
		case DTPR_WAIT_PEER_STATUS:
			do_status(d);
			break;
		case DTPR_END:
			finish(d);
			return;
		}
	} while (d->state != before);
}

static void read_abort(struct dtp_op *op)
{
	struct dtp_read *d = container_of(op, struct dtp_read, op);

	if (d->r)
		block_read_close(d->r);
}

static void read_start(struct dtp_conn *c, const struct read_params *params, const char *what,
		       bool copy, bool asks_small)
{
	struct dtp_read *d = calloc(1, sizeof(*d));
	int rc = d ? 0 : -ENOMEM;

	if (rc == 0) {
		d->op = (struct dtp_op){.step = read_step, .abort = read_abort, .conn = c};
		d->sink = (struct read_sink){
			.ops = &sink_ops, .peer = c->peer, .share = copy ? &c->core->copies : NULL};
		d->bp = params->bp;
		d->block = params->block;
		d->copy = copy;
		d->asks_small = asks_small;
		snprintf(d->what, sizeof(d->what), "%s", what);
		list_init(&d->pieces);
		rc = block_read_open(c->core, params, &d->sink, &d->r);
	}
	if (rc < 0) {
		if (copy)
			moves_leave(c->core->moves);
		free(d);
		dtp_break(c, rc, "read");
		return;
	}
	d->pay_timer.fire = on_paid;
	c->op = &d->op;
}

static bool start_params(struct dtp_conn *c, const Hd__BaseHeaderProto *m, Hd__AccessModeProto mode,
			 struct read_params *params)
{
	struct err err = ERR_INIT;
	const int rc = dtp_block(c->core, m, (struct token_access){.mode = mode}, &params->block,
				 &params->bp, &err);

	if (rc == 0)
		return true;
	log_info("op=read peer=%s: %s", c->peer, err.text);
	dtp_send_status(c, dtp_refusal(rc), NULL, err.text);
	dtp_break(c, rc, "read refused");
	return false;
}

void dtp_read_start(struct dtp_conn *c, const Hd__OpReadBlockProto *msg)
{
	struct read_params params = {
		.off = msg->offset,
		.len = msg->len,
		.want_crcs = !msg->has_sendchecksums || msg->sendchecksums,
	};

	if (start_params(c, msg->header->baseheader, HD__ACCESS_MODE_PROTO__READ, &params))
		read_start(c, &params, "opReadBlock", false, msg->has_askssmall && msg->askssmall);
}

void dtp_copy_start(struct dtp_conn *c, const Hd__OpCopyBlockProto *msg)
{
	struct read_params params = {.want_crcs = true, .whole = true, .use = POOL_PEER};

	if (!start_params(c, msg->header, HD__ACCESS_MODE_PROTO__COPY, &params))
		return;
	if (replica_is_pinned(params.bp, params.block.id)) {
		dtp_move_pinned(c, params.block.id);
		return;
	}
	if (!moves_enter(c->core->moves, &c->core->dn->live)) {
		dtp_move_refused(c, "copy", params.block.id);
		return;
	}
	read_start(c, &params, "opCopyBlock", true, false);
}
