/* SPDX-License-Identifier: Apache-2.0 */
/* READ_BLOCK as its client: another node's replica as pieces. Payload is received into the slots
 * where it stays; one receive takes the rest of a piece and, behind a packet's last one, the header
 * of the next packet. What came of a packet's payload with its header is copied: at most once,
 * before the length of headers is known. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/block/source.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"

#define FIRST_GUESS 31 /* prefix and header of a stock packet: reads not a byte of payload */
/* bytes a second: a node that is slower, over a whole piece, is left. Apache's balancers may
 * throttle theirs to a megabyte a second for all of 50 moves. */
#define SOURCE_RATE_MIN 16384

enum source_state {
	SRC_WAIT_PEER,        /* the op is on its way; leaves on on_called() */
	SRC_WAIT_PEER_HEADER, /* needs prefix, header and CRCs of a packet */
	SRC_WAIT_BUFFERS,     /* needs one of the slots: leaves on sent() of a piece */
	SRC_WAIT_PEER_DATA,   /* a piece to be filled */
	SRC_VERDICT,          /* all is here: tell the sender so */
	SRC_WAIT_SENT,
	SRC_FAILED,  /* told by ended(), once every piece is back */
	SRC_CLOSING, /* waits for what is in flight and for the pieces */
	SRC_DONE,
};

struct source_piece {
	struct piece p;
	bool used, out; /* out: the asker has it */
};

struct dtp_source {
	struct rop rop;
	struct piece_source base;
	struct engine_core *core;
	struct read_sink *sink;
	struct source_params params;
	struct dtp_call call;
	struct xconn *xc; /* after the call */
	enum source_state state;
	bool opened, closed;
	int rc;
	struct err err;

	uint8_t verdict[DT_STATUS_MAX];
	struct xop send_op, recv_op;
	bool calling, sending, receiving;

	struct dtp_buf in; /* of messages and headers */
	struct read_info info;
	uint64_t at; /* next byte of the block */
	struct dt_packet pkt;
	uint32_t taken; /* payload of the packet in pieces, finished ones */
	uint32_t guess; /* bytes before a packet's payload, as the last one had them */
	uint8_t *crcs;  /* owned: of the packet */
	uint32_t crcs_size;
	uint32_t piece_max; /* whole chunks that fit a slot */
	struct source_piece pieces[SOURCE_SLOTS];
	uint32_t cur; /* piece being filled */
	uint32_t filled;
	uint64_t filled_by_ns; /* all of it is to be here by then */
};

static struct dtp_source *of_base(struct piece_source *s)
{
	return container_of(s, struct dtp_source, base);
}

static void src_ready(struct dtp_source *s)
{
	reactor_ready(s->core->reactor, &s->rop);
}

static uint64_t src_in_ns(const struct dtp_source *s, uint64_t ns)
{
	return reactor_now_ns(s->core->reactor) + ns;
}

static void src_fail(struct dtp_source *s, int rc, const char *what)
{
	if (s->rc)
		return;
	s->rc = s->err.rc ? rc
			  : err_set(&s->err, rc, "%s: %s: %s", s->call.peer, what, err_name(rc));
	src_ready(s);
}

/* ---- events ---- */

static void on_sent(struct xop *op, int res)
{
	struct dtp_source *s = container_of(op, struct dtp_source, send_op);

	(void)res; /* of the verdict: all bytes are here */
	s->sending = false;
	src_ready(s);
}

/* Bytes fill the current piece first; the rest is behind them in the buffer already. */
static void on_recv(struct xop *op, int res)
{
	struct dtp_source *s = container_of(op, struct dtp_source, recv_op);
	uint32_t want = 0, n = res > 0 ? (uint32_t)res : 0;

	s->receiving = false;
	if (res <= 0)
		src_fail(s, res ? res : -ECONNRESET, "receive");
	if (s->state == SRC_WAIT_PEER_DATA && n) {
		want = s->pieces[s->cur].p.len - s->filled;
		if (want > n)
			want = n;
		s->filled += want;
	}
	s->in.end += n - want;
	src_ready(s);
}

/* ---- receiving ---- */

/* At least @need unread bytes in the buffer: true; else a receive of at most @want is under way. */
static bool src_fill(struct dtp_source *s, uint32_t need, uint32_t want)
{
	int rc;

	if (dtp_buf_len(&s->in) >= need)
		return true;
	if (s->receiving || s->rc)
		return false;
	if (want < need)
		want = need;
	rc = dtp_buf_reserve(&s->in, want);
	if (rc < 0) {
		src_fail(s, rc, "a message over the limit");
		return false;
	}
	s->receiving = true;
	s->xc->recv_deadline_ns = dtp_buf_wait_until(&s->in, src_in_ns(s, s->core->waits.read_ns));
	xconn_recv(s->xc, s->in.data + s->in.end, want - dtp_buf_len(&s->in), &s->recv_op);
	return false;
}

/* What the answer says of the bytes to come. */
static int answer_take(struct dtp_source *s, const Hd__BlockOpResponseProto *m)
{
	const Hd__ReadOpChecksumInfoProto *sum = m->readopchecksuminfo;
	int rc = dt_status_errno((int)m->status);

	if (rc < 0)
		return err_set(&s->err, rc, "%s: %s: %.300s", s->call.peer,
			       dt_status_name((int)m->status), m->message ? m->message : "");
	if (!sum || !sum->checksum->bytesperchecksum ||
	    (unsigned int)sum->checksum->type > CRC_CRC32C)
		return err_set(&s->err, -EPROTO, "%s: the answer names no checksum", s->call.peer);
	s->info = (struct read_info){
		.crc_type = (enum crc_type)sum->checksum->type,
		.bytes_per_crc = sum->checksum->bytesperchecksum,
		.first = sum->chunkoffset,
		.end = s->params.off + s->params.len,
		.block = s->params.block,
		.state = REPLICA_FINALIZED,
	};
	s->piece_max = s->params.slots[0]->size / s->info.bytes_per_crc * s->info.bytes_per_crc;
	if (!s->piece_max)
		return err_set(&s->err, -EOPNOTSUPP,
			       "%s: %u bytes per CRC are more than a buffer holds", s->call.peer,
			       s->info.bytes_per_crc);
	if (s->info.first > s->params.off || s->info.first % s->info.bytes_per_crc)
		return err_set(&s->err, -EPROTO,
			       "%s: bytes from %" PRIu64 " on, asked for %" PRIu64, s->call.peer,
			       s->info.first, s->params.off);
	return 0;
}

static void on_called(struct dtp_call *c, const Hd__BlockOpResponseProto *m)
{
	struct dtp_source *s = container_of(c, struct dtp_source, call);
	int rc = c->rc;

	s->calling = false;
	s->xc = c->xc;
	if (rc < 0)
		s->err = c->err;
	else
		rc = answer_take(s, m);
	if (rc < 0)
		src_fail(s, rc, "the answer");
	src_ready(s);
}

static void do_begin(struct dtp_source *s)
{
	s->at = s->info.first;
	s->opened = true;
	s->state = SRC_WAIT_PEER_HEADER;
	s->sink->ops->opened(s->sink, 0, &s->info, NULL);
}

/* A packet's place and length: the bytes that are expected, in whole chunks up to the end. */
static bool packet_fits(const struct dtp_source *s, const struct dt_packet *p)
{
	const uint64_t bpc = s->info.bytes_per_crc, up = (s->info.end + bpc - 1) / bpc * bpc;

	if (!p->data_len)
		return true;
	if ((uint64_t)p->offset != s->at || s->at >= s->info.end || p->data_len > up - s->at)
		return false;
	return (p->data_len % bpc == 0 || s->at + p->data_len >= s->info.end) &&
	       dt_packet_crc_len_ok(p, s->info.bytes_per_crc) &&
	       (s->info.crc_type == CRC_NULL || p->crc_len);
}

static int keep_crcs(struct dtp_source *s, const uint8_t *from, uint32_t len)
{
	if (len > s->crcs_size) {
		uint8_t *p = realloc(s->crcs, len);

		if (!p)
			return -ENOMEM;
		s->crcs = p;
		s->crcs_size = len;
	}
	if (len)
		memcpy(s->crcs, from, len);
	return 0;
}

static void do_header(struct dtp_source *s)
{
	struct dt_packet pkt;
	ssize_t head;
	int rc;

	if (!src_fill(s, DT_PACKET_PREFIX_LEN, s->guess))
		return;
	head = dt_packet_need(dtp_buf_at(&s->in), dtp_buf_len(&s->in));
	if (head < 0) {
		src_fail(s, (int)head, "packet length");
		return;
	}
	if (!src_fill(s, (uint32_t)head, s->guess))
		return;
	rc = dt_packet_decode(dtp_buf_at(&s->in), (size_t)head, &pkt);
	if (rc < 0 || !packet_fits(s, &pkt) || (!pkt.data_len && !pkt.last)) {
		src_fail(s, rc < 0 ? rc : -EPROTO, "packet header");
		return;
	}
	if (!src_fill(s, (uint32_t)head + pkt.crc_len, 0))
		return;
	rc = keep_crcs(s, dtp_buf_at(&s->in) + head, pkt.crc_len);
	if (rc < 0) {
		src_fail(s, rc, "packet header");
		return;
	}
	dtp_buf_take(&s->in, (uint32_t)head + pkt.crc_len);
	s->pkt = pkt;
	s->taken = 0;
	if (pkt.data_len)
		s->guess = (uint32_t)head + pkt.crc_len;
	if (pkt.data_len)
		s->state = SRC_WAIT_BUFFERS;
	else if (pkt.last)
		s->state = SRC_VERDICT;
}

static void do_slot(struct dtp_source *s)
{
	const uint32_t rest = s->pkt.data_len - s->taken;
	struct piece *p;
	uint32_t early;

	for (s->cur = 0; s->cur < SOURCE_SLOTS && s->pieces[s->cur].used; s->cur++)
		;
	if (s->cur == SOURCE_SLOTS)
		return;
	p = &s->pieces[s->cur].p;
	*p = (struct piece){.off = s->at,
			    .len = rest < s->piece_max ? rest : s->piece_max,
			    .slot = s->params.slots[s->cur]};
	list_init(&p->link);
	s->pieces[s->cur].used = true;
	early = dtp_buf_len(&s->in) < p->len ? dtp_buf_len(&s->in) : p->len;
	if (early)
		memcpy(p->slot->data, dtp_buf_at(&s->in), early);
	dtp_buf_take(&s->in, early);
	metric_add(METRIC_DN_COPIED_TCP, early);
	s->filled = early;
	s->filled_by_ns =
		src_in_ns(s, s->core->waits.read_ns + p->len * NS_PER_S / SOURCE_RATE_MIN);
	s->state = SRC_WAIT_PEER_DATA;
}

/* The rest of the piece, and the next header when the packet ends with it. */
static void receive_more(struct dtp_source *s)
{
	struct piece *p = &s->pieces[s->cur].p;
	const bool ends = s->taken + p->len == s->pkt.data_len;
	struct iovec iov[2] = {{p->slot->data + s->filled, p->len - s->filled}, {NULL, 0}};

	if (s->receiving || s->rc)
		return;
	assert(!dtp_buf_len(&s->in)); /* else it would have been taken as payload */
	s->in.start = s->in.end = 0;
	s->receiving = true;
	s->xc->recv_deadline_ns = src_in_ns(s, s->core->waits.read_ns);
	if (s->xc->recv_deadline_ns > s->filled_by_ns)
		s->xc->recv_deadline_ns = s->filled_by_ns;
	if (!ends || !s->xc->ops->recvv || dtp_buf_reserve(&s->in, s->guess) < 0) {
		xconn_recv(s->xc, iov[0].iov_base, (uint32_t)iov[0].iov_len, &s->recv_op);
		return;
	}
	iov[1] = (struct iovec){s->in.data, s->guess};
	s->xc->ops->recvv(s->xc, iov, 2, (uint32_t)iov[0].iov_len, &s->recv_op);
}

static void do_data(struct dtp_source *s)
{
	struct piece *p = &s->pieces[s->cur].p;

	if (s->filled < p->len) {
		receive_more(s);
		return;
	}
	if (crc_verify(s->info.crc_type, p->slot->data, p->len, s->info.bytes_per_crc,
		       s->crcs + (s->info.crc_type == CRC_NULL
					  ? 0
					  : s->taken / s->info.bytes_per_crc * 4)) >= 0) {
		err_set(&s->err, -EBADMSG,
			"%s: the bytes at %" PRIu64 " of blk_%" PRId64 " fail their CRC",
			s->call.peer, p->off, s->params.block.id);
		src_fail(s, -EBADMSG, "");
		return;
	}
	s->pieces[s->cur].out = true;
	s->taken += p->len;
	s->at += p->len;
	s->state = s->taken < s->pkt.data_len ? SRC_WAIT_BUFFERS : SRC_WAIT_PEER_HEADER;
	s->sink->ops->piece(s->sink, p);
}

/* Stock senders want to hear that the bytes were good; then the connection may go. */
static void do_verdict(struct dtp_source *s)
{
	const struct iovec iov = {s->verdict, dt_read_status_encode(DT_CHECKSUM_OK, s->verdict)};

	if (s->at < s->info.end) {
		src_fail(s, -ENODATA, "the replica ends too early");
		return;
	}
	s->state = SRC_WAIT_SENT;
	s->sending = true;
	s->xc->send_deadline_ns = src_in_ns(s, s->core->waits.write_ns);
	xconn_send(s->xc, &iov, 1, &s->send_op);
}

/* ---- the end ---- */

static void do_failed(struct dtp_source *s)
{
	log_debug("op=source block=%" PRId64 " %s", s->params.block.id, s->err.text);
	if (!s->opened) {
		s->opened = true;
		s->sink->ops->opened(s->sink, s->rc, NULL, &s->err);
	}
	s->state = SRC_CLOSING;
}

static void do_closing(struct dtp_source *s)
{
	if (s->xc) {
		xconn_close(s->xc);
		s->xc = NULL;
	}
	if (s->calling)
		dtp_call_cancel(&s->call);
	if (s->calling || s->sending || s->receiving)
		return;
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		if (s->pieces[i].out)
			return;
	s->state = SRC_DONE;
}

static bool src_step(struct rop *rop)
{
	struct dtp_source *s = container_of(rop, struct dtp_source, rop);
	enum source_state before;

	do {
		before = s->state;
		if (s->closed && !s->rc)
			s->rc = -ECANCELED;
		if (s->rc && s->state < SRC_FAILED)
			s->state = s->opened ? SRC_CLOSING : SRC_FAILED;
		switch (s->state) {
		case SRC_WAIT_PEER:
			if (!s->calling)
				do_begin(s);
			break;
		case SRC_WAIT_PEER_HEADER:
			do_header(s);
			break;
		case SRC_WAIT_BUFFERS:
			do_slot(s);
			break;
		case SRC_WAIT_PEER_DATA:
			do_data(s);
			break;
		case SRC_VERDICT:
			do_verdict(s);
			break;
		case SRC_WAIT_SENT:
			if (!s->sending)
				s->state = SRC_CLOSING;
			break;
		case SRC_FAILED:
			do_failed(s);
			break;
		case SRC_CLOSING:
			do_closing(s);
			break;
		case SRC_DONE:
			break;
		}
	} while (s->state != before);
	return s->state == SRC_DONE;
}

static void src_free(struct rop *rop)
{
	struct dtp_source *s = container_of(rop, struct dtp_source, rop);

	s->core->op_count--;
	s->sink->ops->ended(s->sink, s->rc);
	free(s->crcs);
	free(s->in.data);
	free(s);
}

static void src_sent(struct piece_source *base, struct piece *p)
{
	struct dtp_source *s = of_base(base);
	struct source_piece *sp = container_of(p, struct source_piece, p);

	sp->used = sp->out = false;
	src_ready(s);
}

static void src_close(struct piece_source *base)
{
	struct dtp_source *s = of_base(base);

	s->closed = true;
	src_ready(s);
}

static const struct piece_source_ops stream_ops = {
	.sent = src_sent,
	.close = src_close,
};

/* ---- open ---- */

int dtp_read_op_encode(struct engine_core *core, const struct source_params *q, uint8_t **ret,
		       size_t *ret_len)
{
	struct token_access a = {.pool = pool_id(q->bp),
				 .block_id = q->block.id,
				 .mode = HD__ACCESS_MODE_PROTO__READ};
	Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto header = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hc__TokenProto none = HC__TOKEN_PROTO__INIT, *token = NULL;
	char empty[] = "";
	int rc = 0;

	if (token_is_wanted(core->tokens, a.pool))
		rc = token_make(core->tokens, &a, clock_wall_ms(), &token);
	if (rc < 0)
		return rc;
	none.kind = none.service = empty;
	dt_block_to_proto(&q->block, a.pool, &block);
	base.block = &block;
	base.token = token ? token : &none;
	header.baseheader = &base;
	header.clientname = empty;
	m.header = &header;
	m.offset = q->off;
	m.len = q->len;
	m.has_sendchecksums = 1;
	m.sendchecksums = 1;
	rc = dt_op_encode(DT_READ_BLOCK, &m, ret, ret_len);
	pb_free(token);
	return rc;
}

int stream_source_open(struct engine_core *core, const struct source_params *params,
		       struct read_sink *sink, struct piece_source **ret)
{
	struct dtp_call_params call = {.to = params->at, .connect_ns = core->waits.read_ns};
	struct dtp_source *s;
	int rc;

	if (core->stopping)
		return -ECANCELED;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->core = core;
	s->base.ops = &stream_ops;
	s->sink = sink;
	s->params = *params;
	s->guess = FIRST_GUESS;
	s->send_op.done = on_sent;
	s->recv_op.done = on_recv;
	rop_init(&s->rop, src_step, src_free);
	rc = dtp_read_op_encode(core, &s->params, &call.op, &call.op_len);
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
