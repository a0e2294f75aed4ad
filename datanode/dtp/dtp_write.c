/* SPDX-License-Identifier: Apache-2.0 */
/* WRITE_BLOCK as its server: packets become pieces of the engine. The payload of a packet is
 * received into its landing; only what came with the header is copied. */
#include "datanode/dtp/dtp_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/block/buffers.h"
#include "datanode/block/moves.h"

/* A stream is a row of equal packets. So one receive takes the rest of the current packet and,
 * where they will have to be, headers and payload of the next ones. When a packet turns out
 * different, what was received behind the current one is copied into the receive buffer and taken
 * from there. */
#define KEEPS_NS (4 * NS_PER_S) /* clients keep an idle connection for three seconds */
#define AHEAD 4
#define AHEAD_HEAD_MAX 2048 /* header and CRCs of a packet worth guessing */
#define AHEAD_DATA_MIN 16384

/* A stock client's full packet: prefix and header, and the CRCs of 126 chunks. */
#define FIRST_GUESS (31 + 126 * 4)

enum dtpw_state {
	DTPW_WAIT_OPENED,      /* the engine prepares; leaves on opened() */
	DTPW_WAIT_PEER_HEADER, /* needs prefix, header and CRCs of a packet */
	DTPW_LAND,             /* needs room for the next bytes of the packet's payload */
	DTPW_WAIT_BANDWIDTH,   /* the balancer's bandwidth: leaves on the timer */
	DTPW_WAIT_BUFFERS,     /* leaves on room() */
	DTPW_PULL,             /* a landing to be filled */
	DTPW_WAIT_PEER,        /* leaves on pull */
	DTPW_PIECE,            /* a landing is full, or there is no payload: hand it over */
	DTPW_WAIT_ENDED,       /* the last packet is in, or the op failed; leaves on ended() */
};

struct ahead { /* a packet that may come */
	uint64_t off;
	struct landing land[2]; /* slot NULL: none */
};

struct dtp_write {
	struct dtp_op op; /* first */
	struct write_source src;
	struct block_write *w;
	enum dtpw_state state;
	bool acks, transfer, ended;
	int end_rc;

	struct dt_packet pkt;
	uint32_t guess; /* bytes before the payload, as the last packet had them */
	/* of the rest of the packet, in the receive buffer; NULL: none came */
	const uint8_t *crcs;
	uint32_t taken;      /* payload bytes handed over */
	struct landing land; /* slot NULL: none */
	uint32_t filled;     /* of the landing */
	struct xop pull_op;
	bool pulling;
	uint64_t pull_ns; /* since when */
	/* The watch over pulls goes on from one to the next: bytes of the connection when it began
	 * (0: there is none), and how long pulls before this one have lasted since. */
	uint64_t watch_ns, watch_bytes, waited_ns;
	uint64_t looked_ns; /* at the pull, last */
	int pull_rc;

	struct ahead ahead[AHEAD];
	uint32_t ahead_first, ahead_count; /* [first, count) are not looked at yet */
	uint32_t ahead_got;                /* bytes received for them */
	uint32_t ahead_head, ahead_data;   /* what they are guessed to be */
	uint8_t *heads; /* owned: two rows of AHEAD headers; one may be in use by crcs */
	bool heads_flip;
	struct landing second; /* the current packet goes on there; slot NULL: no */
	uint32_t second_filled;

	bool move; /* for the balancer or mover: within its bandwidth */
	bool paid; /* for the current packet */
	struct rtimer pay_timer;
	void (*finished)(void *arg, int rc); /* NULL: the peer gets its answer from here */
	void *arg;
};

static struct dtp_write *of_op(struct dtp_op *op)
{
	return container_of(op, struct dtp_write, op);
}

static struct dtp_write *of_src(struct write_source *s)
{
	return container_of(s, struct dtp_write, src);
}

/* ---- events ---- */

/* A connection that we drop sooner than a client thinks would look to him like a node that fails.
 */
static void answer(struct dtp_write *d, enum dt_status status, const char *bad_link)
{
	struct dtp_conn *c = d->op.conn;
	const bool keeps = status == DT_SUCCESS && c->core->waits.keepalive_ns >= KEEPS_NS;
	uint64_t later[DN_TARGETS_MAX + 1];
	const uint32_t n = status == DT_SUCCESS ? block_write_later(d->w, later) : 0;
	uint8_t *buf = NULL;
	size_t len = 0;
	const int rc = dt_write_response_encode(status, bad_link, keeps, later, n, &buf, &len);

	dtp_send_take(c, rc, buf, len);
}

static void on_opened(struct write_source *s, int status, const char *bad_link, bool replica_failed)
{
	struct dtp_write *d = of_src(s);
	struct dtp_conn *c = d->op.conn;

	d->state = status == DT_SUCCESS ? DTPW_WAIT_PEER_HEADER : DTPW_WAIT_ENDED;
	if (replica_failed) /* as stock nodes do: an answer would put the blame on the first node */
		dtp_break(c, -EIO, "the replica could not be prepared");
	else if (d->acks)
		answer(d, (enum dt_status)status, bad_link);
	dtp_ready(c);
}

static void on_room(struct write_source *s)
{
	struct dtp_write *d = of_src(s);

	if (d->state == DTPW_WAIT_BUFFERS)
		d->state = d->pkt.data_len ? DTPW_LAND : DTPW_PIECE;
	dtp_ready(d->op.conn);
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	struct dtp_write *d = of_src(s);
	struct dt_ack ack = {.seqno = seq, .count = n};
	uint8_t buf[DT_ACK_MAX];

	memcpy(ack.reply, statuses, n);
	dtp_send(d->op.conn, buf, dt_ack_encode(&ack, buf));
}

static void on_ended(struct write_source *s, int rc)
{
	struct dtp_write *d = of_src(s);

	d->w = NULL;
	d->ended = true;
	d->end_rc = rc;
	dtp_ready(d->op.conn);
}

/* Since the watch began, or the pull under way; only while a pull is under way. */
static uint64_t watched_ns(const struct dtp_write *d, uint64_t now_ns)
{
	return d->waited_ns + now_ns - (d->watch_ns > d->pull_ns ? d->watch_ns : d->pull_ns);
}

/* Does the pull under way go on? A peer that sends a byte now and then is as good as one that has
 * stopped, and so is one that sends the end of such a packet at once and begins the next one. */
static bool is_moving(struct dtp_write *d, uint64_t now_ns)
{
	struct dtp_conn *c = d->op.conn;
	struct xprogress now;

	if (!c->xc || !c->xc->ops->progress || !c->xc->ops->progress(c->xc, &now))
		return true;
	if (now_ns - d->looked_ns > NS_PER_S) /* nobody has waited for a while: it begins anew */
		d->watch_ns = 0;
	d->looked_ns = now_ns;
	if (now.quiet_ns >= BUFFERS_PARTIAL_NS && now_ns - d->pull_ns >= BUFFERS_PARTIAL_NS)
		return false;
	if (d->watch_ns && now.bytes - d->watch_bytes < BUFFERS_PARTIAL_BYTES)
		return watched_ns(d, now_ns) < BUFFERS_PARTIAL_NS;
	d->watch_ns = now_ns;
	d->watch_bytes = now.bytes;
	d->waited_ns = 0;
	return true;
}

/* A peer that is only slow keeps its buffers. */
static void on_reclaim(struct write_source *s)
{
	struct dtp_write *d = of_src(s);
	struct dtp_conn *c = d->op.conn;

	if (!d->pulling || c->at_once || is_moving(d, reactor_now_ns(c->core->reactor)))
		return;
	c->at_once = true;
	dtp_break(c, -ETIMEDOUT,
		  "the rest of a packet does not come, and others wait for its buffers");
	dtp_ready(c); /* also when it was broken before */
}

static const struct write_source_ops source_ops = {
	.opened = on_opened,
	.room = on_room,
	.ack = on_ack,
	.ended = on_ended,
	.reclaim = on_reclaim,
};

static void on_pull(struct xop *op, int res)
{
	struct dtp_write *d = container_of(op, struct dtp_write, pull_op);

	const uint32_t rest = d->land.len - d->filled;

	if (d->watch_ns)
		d->waited_ns = watched_ns(d, reactor_now_ns(d->op.conn->core->reactor));
	d->pulling = false;
	d->pull_rc = res;
	if (res > 0) {
		d->filled += (uint32_t)res < rest ? (uint32_t)res : rest;
		d->ahead_got = (uint32_t)res > rest ? (uint32_t)res - rest : 0;
	}
	d->state = DTPW_PULL;
	dtp_ready(d->op.conn);
}

/* ---- the next packets ---- */

static uint8_t *ahead_head_at(struct dtp_write *d, uint32_t i)
{
	return d->heads + ((d->heads_flip ? AHEAD : 0) + i) * AHEAD_HEAD_MAX;
}

static void ahead_unland(struct dtp_write *d)
{
	while (d->ahead_count > d->ahead_first) {
		struct ahead *a = &d->ahead[--d->ahead_count];

		if (a->land[1].slot)
			block_write_unland(d->w, a->off + a->land[0].len, &a->land[1]);
		if (a->land[0].slot)
			block_write_unland(d->w, a->off, &a->land[0]);
		*a = (struct ahead){0};
	}
	d->ahead_first = d->ahead_count = 0;
}

static bool ahead_land(struct dtp_write *d, struct ahead *a)
{
	if (block_write_land(d->w, a->off, d->ahead_data, &a->land[0]) < 0)
		return false;
	if (a->land[0].len == d->ahead_data)
		return true;
	return block_write_land(d->w, a->off + a->land[0].len, d->ahead_data - a->land[0].len,
				&a->land[1]) == 0 &&
	       a->land[0].len + a->land[1].len == d->ahead_data;
}

/* Vectors for packets like the current one, as long as there is room. */
static int ahead_plan(struct dtp_write *d, struct iovec *iov)
{
	const struct dt_packet *pkt = &d->pkt;
	uint64_t off = (uint64_t)pkt->offset + pkt->data_len;
	int n = 0;

	d->ahead_first = d->ahead_count = d->ahead_got = 0;
	d->ahead_head = d->guess;
	d->ahead_data = pkt->data_len;
	if (!d->op.conn->xc->ops->recvv || d->move || pkt->data_len < AHEAD_DATA_MIN ||
	    d->guess > AHEAD_HEAD_MAX || pkt->crc_len > AHEAD_HEAD_MAX || d->second.slot ||
	    d->taken + d->land.len != pkt->data_len)
		return 0;
	if (!d->heads)
		d->heads = malloc(2 * AHEAD * AHEAD_HEAD_MAX);
	if (!d->heads)
		return 0;
	d->heads_flip = !d->heads_flip;
	/* When the guess is wrong, what came goes to the receive buffer. */
	for (; d->ahead_count < AHEAD && off + pkt->data_len <= block_write_block_size(d->w) &&
	       (d->ahead_count + 1) * (d->ahead_head + pkt->data_len) <= DTP_BUF_MAX;
	     off += pkt->data_len) {
		struct ahead *a = &d->ahead[d->ahead_count];

		*a = (struct ahead){.off = off};
		d->ahead_count++;
		if (!ahead_land(d, a)) { /* give back what it got */
			const uint32_t keep = d->ahead_count - 1;

			d->ahead_first = keep;
			ahead_unland(d);
			d->ahead_count = keep;
			break;
		}
		iov[n++] = (struct iovec){ahead_head_at(d, d->ahead_count - 1), d->ahead_head};
		for (int k = 0; k < 2; k++)
			if (a->land[k].slot)
				iov[n++] = (struct iovec){a->land[k].slot->data + a->land[k].off,
							  a->land[k].len};
	}
	return n;
}

static void copy_in(struct dtp_buf *in, const uint8_t *from, uint32_t len, uint32_t *left)
{
	if (len > *left)
		len = *left;
	if (len)
		memcpy(in->data + in->end, from, len);
	in->end += len;
	*left -= len;
}

/* The guess was wrong, or nothing more has come: what is there goes the ordinary way. */
static int ahead_drop(struct dtp_write *d)
{
	struct dtp_buf *in = &d->op.conn->in;
	uint32_t left = d->ahead_got, data;
	int rc = left ? dtp_buf_reserve(in, left) : 0;

	for (uint32_t i = d->ahead_first; rc == 0 && left && i < d->ahead_count; i++) {
		copy_in(in, ahead_head_at(d, i), d->ahead_head, &left);
		data = left;
		for (int k = 0; k < 2; k++) {
			const struct landing *l = &d->ahead[i].land[k];

			if (l->slot)
				copy_in(in, l->slot->data + l->off, l->len, &left);
		}
		metric_add(METRIC_DN_COPIED_TCP, data - left);
	}
	ahead_unland(d);
	d->ahead_got = 0;
	return rc;
}

/* Does the next guessed packet hold? Then it becomes the current one. */
static bool ahead_take(struct dtp_write *d)
{
	struct ahead *a = &d->ahead[d->ahead_first];
	const uint8_t *head = ahead_head_at(d, d->ahead_first);
	struct dt_packet pkt;
	ssize_t len;
	uint32_t data;

	if (d->ahead_got < d->ahead_head)
		return false;
	len = dt_packet_need(head, d->ahead_head);
	if (len < 0 || (size_t)len > d->ahead_head || dt_packet_decode(head, (size_t)len, &pkt) < 0)
		return false;
	if (pkt.data_len != d->ahead_data || (uint32_t)len + pkt.crc_len != d->ahead_head ||
	    (uint64_t)pkt.offset != a->off || !dt_packet_crc_len_ok(&pkt, block_write_bpc(d->w)))
		return false;
	d->pkt = pkt;
	d->crcs = pkt.crc_len ? head + len : NULL;
	d->taken = 0;
	d->ahead_got -= d->ahead_head;
	data = d->ahead_got < d->ahead_data ? d->ahead_got : d->ahead_data;
	d->ahead_got -= data;
	d->land = a->land[0];
	d->filled = data < d->land.len ? data : d->land.len;
	d->second = a->land[1];
	d->second_filled = data - d->filled;
	*a = (struct ahead){0};
	d->ahead_first++;
	d->pull_rc = 0;
	d->state = DTPW_PULL;
	return true;
}

/* ---- steps ---- */

static void do_header(struct dtp_write *d)
{
	struct dtp_conn *c = d->op.conn;
	const uint64_t deadline = dtp_in_ns(c, c->core->waits.read_ns + XFER_NODE_NS);
	ssize_t head;
	int rc;

	if (d->ahead_first < d->ahead_count) {
		if (ahead_take(d))
			return;
		rc = ahead_drop(d);
		if (rc < 0) {
			dtp_break(c, rc, "receive");
			return;
		}
	}

	if (!dtp_fill(c, DT_PACKET_PREFIX_LEN, d->guess, deadline))
		return;
	head = dt_packet_need(dtp_buf_at(&c->in), dtp_buf_len(&c->in));
	if (head < 0) {
		dtp_break(c, (int)head, "packet length");
		return;
	}
	if (!dtp_fill(c, (uint32_t)head, d->guess, deadline))
		return;
	rc = dt_packet_decode(dtp_buf_at(&c->in), (size_t)head, &d->pkt);
	if (rc == 0 && !dt_packet_crc_len_ok(&d->pkt, block_write_bpc(d->w)))
		rc = -EPROTO;
	if (rc < 0) {
		dtp_break(c, rc, "packet header");
		return;
	}
	if (!dtp_fill(c, (uint32_t)head + d->pkt.crc_len, 0, deadline))
		return;
	d->crcs = d->pkt.crc_len ? dtp_buf_at(&c->in) + head : NULL;
	dtp_buf_take(&c->in, (uint32_t)head + d->pkt.crc_len);
	if (d->pkt.data_len > d->pkt.crc_len) /* not the guess of a tail */
		d->guess = (uint32_t)head + d->pkt.crc_len;
	d->taken = 0;
	d->paid = false;
	d->state = d->pkt.data_len ? DTPW_LAND : DTPW_PIECE;
}

static void on_paid(struct rtimer *t)
{
	struct dtp_write *d = container_of(t, struct dtp_write, pay_timer);

	if (d->state == DTPW_WAIT_BANDWIDTH)
		d->state = DTPW_LAND;
	dtp_ready(d->op.conn);
}

/* A packet is paid for as a whole, before its payload is taken: the sender feels it through the
 * socket. */
static bool is_paid(struct dtp_write *d)
{
	struct engine_core *core = d->op.conn->core;
	uint64_t now_ns, at_ns;

	if (!d->move || d->paid)
		return true;
	d->paid = true;
	now_ns = reactor_now_ns(core->reactor);
	at_ns = moves_charge(core->moves, &core->dn->live, d->pkt.data_len, now_ns);
	if (at_ns <= now_ns)
		return true;
	d->state = DTPW_WAIT_BANDWIDTH;
	reactor_timer_set(core->reactor, &d->pay_timer, at_ns);
	return false;
}

static void do_land(struct dtp_write *d)
{
	const uint64_t off = (uint64_t)d->pkt.offset + d->taken;
	int rc;

	if (!is_paid(d))
		return;

	d->pull_rc = 0;
	if (d->second.slot) {
		d->land = d->second;
		d->filled = d->second_filled;
		d->second.slot = NULL;
		d->state = DTPW_PULL;
		return;
	}
	d->state = DTPW_WAIT_BUFFERS;
	rc = block_write_land(d->w, off, d->pkt.data_len - d->taken, &d->land);
	if (rc == -EAGAIN)
		return;
	if (rc < 0) {
		dtp_break(d->op.conn, rc, "packet offset");
		return;
	}
	d->filled = 0;
	d->pull_rc = 0;
	d->state = DTPW_PULL;
}

/* Bytes that came along with the CRCs are copied, the rest goes where it belongs at once. */
static void do_pull(struct dtp_write *d)
{
	struct dtp_conn *c = d->op.conn;
	uint32_t have = dtp_buf_len(&c->in), rest = d->land.len - d->filled;
	struct iovec iov[1 + 3 * AHEAD];
	int n;

	if (d->pull_rc < 0) {
		c->recv_rc = d->pull_rc;
		dtp_break(c, d->pull_rc, "receive");
		return;
	}
	if (have > rest)
		have = rest;
	if (have) {
		memcpy(d->land.slot->data + d->land.off + d->filled, dtp_buf_at(&c->in), have);
		metric_add(METRIC_DN_COPIED_TCP, have);
		dtp_buf_take(&c->in, have);
		d->filled += have;
		rest -= have;
	}
	if (!rest) {
		d->state = DTPW_PIECE;
		return;
	}
	/* Guesses behind a packet that is cut have got no bytes: they are made anew. */
	ahead_unland(d);
	iov[0] = (struct iovec){d->land.slot->data + d->land.off + d->filled, rest};
	n = ahead_plan(d, iov + 1);
	d->state = DTPW_WAIT_PEER;
	d->pulling = true;
	d->pull_ns = reactor_now_ns(c->core->reactor);
	d->pull_op.done = on_pull;
	c->xc->recv_deadline_ns = dtp_in_ns(c, c->core->waits.read_ns + XFER_NODE_NS);
	if (n)
		c->xc->ops->recvv(c->xc, iov, n + 1, rest, &d->pull_op);
	else
		xconn_pull(c->xc, (struct xremote){0}, d->land.slot, d->land.off + d->filled, rest,
			   &d->pull_op);
}

static void do_piece(struct dtp_write *d)
{
	const struct dt_packet *pkt = &d->pkt;
	const uint32_t len = pkt->data_len ? d->land.len : 0;
	const bool whole = d->taken + len == pkt->data_len;
	const struct piece p = {
		.seq = pkt->seqno,
		.off = (uint64_t)pkt->offset + d->taken,
		.len = len,
		.last = pkt->last,
		.sync = pkt->sync && whole,
		.more = !whole,
		.flush = pkt->data_len && pkt->data_len < 16384, /* a buffer that was flushed */
		.slot = d->land.slot,
		.slot_off = d->land.off,
	};
	int rc;

	d->state = DTPW_WAIT_BUFFERS;
	d->land.slot = NULL;
	rc = block_write_piece(d->w, &p, d->crcs);
	if (rc == -EAGAIN)
		return;
	if (rc < 0) {
		dtp_break(d->op.conn, rc, "packet out of place");
		return;
	}
	d->taken += len;
	if (d->crcs)
		d->crcs += (len + block_write_bpc(d->w) - 1) / block_write_bpc(d->w) * 4;
	d->state = pkt->last ? DTPW_WAIT_ENDED : whole ? DTPW_WAIT_PEER_HEADER : DTPW_LAND;
}

static void finish(struct dtp_write *d)
{
	struct dtp_conn *c = d->op.conn;
	void (*const finished)(void *arg, int rc) = d->finished;
	void *const arg = d->arg;
	const int rc = d->end_rc;

	reactor_timer_clear(c->core->reactor, &d->pay_timer);
	slot_put(d->land.slot);
	slot_put(d->second.slot);
	for (uint32_t i = d->ahead_first; i < d->ahead_count; i++) {
		slot_put(d->ahead[i].land[0].slot);
		slot_put(d->ahead[i].land[1].slot);
	}
	free(d->heads);
	if (rc < 0 && !finished)
		dtp_break(c, rc, "write");
	else if (d->transfer)
		dtp_send_status(c, DT_SUCCESS, NULL, NULL);
	free(d);
	dtp_op_done(c);
	if (finished)
		finished(arg, rc);
}

static void write_step(struct dtp_op *op)
{
	struct dtp_write *d = of_op(op);
	enum dtpw_state before;

	if (d->ended) {
		if (d->pulling) /* only the peer or the deadline ends that */
			dtp_break(op->conn, d->end_rc < 0 ? d->end_rc : -EPROTO, "write");
		else
			finish(d);
		return;
	}
	do {
		before = d->state;
		if (op->conn->broken)
			return;
		switch (d->state) {
		case DTPW_WAIT_PEER_HEADER:
			do_header(d);
			break;
		case DTPW_LAND:
			do_land(d);
			break;
		case DTPW_PULL:
			do_pull(d);
			break;
		case DTPW_PIECE:
			do_piece(d);
			break;
		case DTPW_WAIT_OPENED:
		case DTPW_WAIT_BANDWIDTH:
		case DTPW_WAIT_BUFFERS:
		case DTPW_WAIT_PEER:
		case DTPW_WAIT_ENDED:
			break;
		}
	} while (d->state != before);
}

static void write_abort(struct dtp_op *op)
{
	struct dtp_write *d = of_op(op);

	if (d->w)
		block_write_close(d->w, -ECONNRESET);
}

int dtp_receive_start(struct dtp_conn *c, struct write_params *params,
		      void (*finished)(void *arg, int rc), void *arg)
{
	struct dtp_write *d = calloc(1, sizeof(*d));
	int rc = d ? 0 : -ENOMEM;

	if (rc == 0) {
		d->op = (struct dtp_op){.step = write_step, .abort = write_abort, .conn = c};
		d->src = (struct write_source){.ops = &source_ops, .peer = c->peer};
		d->guess = FIRST_GUESS;
		d->transfer = params->transfer;
		d->acks = params->client[0] && !params->transfer;
		d->move = finished != NULL;
		d->pay_timer.fire = on_paid;
		d->finished = finished;
		d->arg = arg;
		rc = block_write_open(c->core, params, &d->src, &d->w);
	}
	if (rc < 0) {
		write_params_fini(params);
		free(d);
		return rc;
	}
	c->op = &d->op;
	return 0;
}

void dtp_write_start(struct dtp_conn *c, const Hd__OpWriteBlockProto *msg)
{
	struct write_params params;
	struct err err = ERR_INIT;
	int rc = dtp_write_params(c->core, msg, &params, &err);

	if (rc < 0)
		log_warn("op=write peer=%s: %s", c->peer, err.rc ? err.text : err_name(rc));
	if (rc == -EACCES && msg->header->clientname[0])
		dtp_send_status(c, DT_ERROR_ACCESS_TOKEN, "", err.text);
	if (rc == 0)
		rc = dtp_receive_start(c, &params, NULL, NULL);
	if (rc < 0)
		dtp_break(c, rc, "WRITE_BLOCK refused");
}
