/* SPDX-License-Identifier: Apache-2.0 */
/* Another node's replica as pieces, by RDMA: that node writes bytes and CRCs straight into the
 * asker's slots, which are of a pool for that, and open to it for a request at a time. What RDMA
 * cannot do here (no way to the node, chunks that do not fit, no memory window spare, a connection
 * that breaks) a stream source does from the next byte on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "datanode/block/source.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

/* before the chunk size is known: leaves room for a chunk in the slot */
#define FIRST_READ (64u << 10)
#define SOURCE_CLOSE_NS (5 * NS_PER_S) /* for the answers to CANCEL; then the connection goes */

enum capsule_source_state {
	CR_WAIT_CONNECT, /* leaves when the connection is up or refused */
	CR_RUN,          /* requests go, answers and slots come back */
	CR_BY_STREAM,    /* once nothing of ours is in flight or out: a stream source goes on */
	CR_STREAM,       /* leaves on its ended() */
	CR_CLOSING,      /* waits for answers, or the end of the queue pair, and for the pieces */
	CR_DONE,
};

struct capsule_ask { /* a READ */
	struct piece p;
	struct slot *slot, *crcs;
	uint64_t id, off;
	uint32_t len;
	bool asked;         /* the node may write to the slots */
	bool answered, out; /* out: the asker of the source has the piece */
	struct capsule_source *source;
	struct verbs_exposure shown[2]; /* of slot, of crcs */
	uint8_t open;                   /* windows that the device has not closed */
	bool told;                      /* the answer is there, and waits for that: */
	bool unsent;                    /* there is none */
	struct capsule reply;
	char text[CAPSULE_TEXT_MAX + 1];
};

struct capsule_source {
	struct rop rop;
	struct piece_source base;
	struct engine_core *core;
	struct read_sink *sink;
	struct source_params params;
	struct dn_target node;
	char peer[NET_TEXT_MAX];
	struct capsule_user conn;
	enum capsule_source_state state;
	bool opened, closed, cancelled;
	int rc;
	struct err err;

	struct read_info info; /* valid once opened */
	uint64_t at, next;     /* next byte to hand on; to ask for */
	struct capsule_ask asks[SOURCE_SLOTS];
	struct verbs_turn turn;
	uint32_t head, tail; /* asks in order: asks[tail % SOURCE_SLOTS] is the oldest */
	struct rtimer timer;
	uint64_t deadline_ns;

	struct piece_source *inner; /* CR_STREAM */
	struct read_sink inner_sink;
	bool inner_closed;
};

static struct capsule_source *of_base(struct piece_source *s)
{
	return container_of(s, struct capsule_source, base);
}

static void cs_ready(struct capsule_source *s)
{
	reactor_ready(s->core->reactor, &s->rop);
}

static void cs_fail(struct capsule_source *s, int rc, const char *what)
{
	if (s->rc)
		return;
	s->rc = err_set(&s->err, rc, "%s: %s", s->peer, what);
	cs_ready(s);
}

static void cs_deadline(struct capsule_source *s, uint64_t ns)
{
	s->deadline_ns = reactor_now_ns(s->core->reactor) + ns;
	if (!s->timer.deadline_ns)
		reactor_timer_set(s->core->reactor, &s->timer, s->deadline_ns);
}

static bool any_asked(const struct capsule_source *s)
{
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		if (s->asks[i].asked)
			return true;
	return false;
}

static bool any_out(const struct capsule_source *s)
{
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		if (s->asks[i].out)
			return true;
	return false;
}

static void on_timer(struct rtimer *t)
{
	struct capsule_source *s = container_of(t, struct capsule_source, timer);

	if (reactor_now_ns(s->core->reactor) < s->deadline_ns) {
		reactor_timer_set(s->core->reactor, t, s->deadline_ns);
		return;
	}
	if (!any_asked(s))
		return;
	if (s->cancelled)
		capsule_user_hang_up(&s->conn, -ETIMEDOUT);
	else
		cs_fail(s, -ETIMEDOUT, "does not answer");
	cs_ready(s);
}

/* ---- answers ---- */

/* What the first answer says of all that will come. */
static int take_info(struct capsule_source *s, const struct capsule *m)
{
	const uint32_t bpc = m->read_reply.bytes_per_checksum;

	if (s->opened)
		return m->read_reply.crc_type == s->info.crc_type && bpc == s->info.bytes_per_crc
			       ? 0
			       : -EPROTO;
	if (m->read_reply.crc_type > CRC_CRC32C || !bpc)
		return -EPROTO;
	s->info = (struct read_info){
		.crc_type = (enum crc_type)m->read_reply.crc_type,
		.bytes_per_crc = bpc,
		.first = s->params.off / bpc * bpc,
		.end = s->params.off + s->params.len,
		.block = s->params.block,
		.state = REPLICA_FINALIZED,
	};
	s->at = s->info.first;
	/* from here on at chunk borders */
	s->next = m->read_reply.chunk_offset + m->read_reply.data_len;
	return 0;
}

/* Whole chunks around what was asked for, and their CRCs, within the slots. */
static bool answer_fits(const struct capsule_source *s, const struct capsule_ask *a,
			const struct capsule *m)
{
	const uint64_t bpc = s->info.bytes_per_crc, first = a->off / bpc * bpc,
		       asked = a->off + a->len;
	const uint64_t end = m->read_reply.chunk_offset + m->read_reply.data_len;

	return m->read_reply.chunk_offset == first && end >= asked &&
	       end <= (asked + bpc - 1) / bpc * bpc && m->read_reply.data_len <= a->slot->size &&
	       m->read_reply.crc_len <= a->crcs->size &&
	       m->read_reply.crc_len ==
		       crc_bytes(s->info.crc_type, m->read_reply.data_len, (uint32_t)bpc);
}

static void on_data(struct capsule_source *s, struct capsule_ask *a, const struct capsule *m)
{
	if (take_info(s, m) < 0 || !answer_fits(s, a, m)) {
		cs_fail(s, -EPROTO, "answers a read with nonsense");
		return;
	}
	if (crc_verify(s->info.crc_type, a->slot->data, m->read_reply.data_len,
		       s->info.bytes_per_crc, a->crcs->data) >= 0) {
		cs_fail(s, -EBADMSG, "bytes that fail their CRC");
		return;
	}
	a->p = (struct piece){.off = m->read_reply.chunk_offset,
			      .len = m->read_reply.data_len,
			      .slot = a->slot,
			      .crc_count = m->read_reply.crc_len / 4,
			      .crcs = a->crcs->data,
			      .crc_slot = a->crcs};
	list_init(&a->p.link);
	a->answered = true;
}

/* The node can write to the slots no more: what lies there stays as it is checked now. */
static void on_reply(struct capsule_ask *a)
{
	struct capsule_source *s = a->source;
	const struct capsule *m = &a->reply;
	const int status = m->type == CAPSULE_READ_REPLY ? m->read_reply.status : DT_ERROR;

	a->asked = a->told = false;
	cs_ready(s);
	if (s->rc || s->closed || s->state != CR_RUN)
		return;
	if (a->unsent || (status == DT_ERROR_UNSUPPORTED && m->read_reply.data_len && !s->opened))
		s->state = CR_BY_STREAM; /* or its chunks are too long for our slots */
	else if (status == DT_SUCCESS)
		on_data(s, a, m);
	else
		cs_fail(s, dt_status_errno(status), *a->text ? a->text : dt_status_name(status));
}

static void on_closed(void *arg, int res)
{
	struct capsule_ask *a = arg;

	if (res == 0 && --a->open == 0) /* else conn_gone() tells */
		on_reply(a);
}

/* A connection that has just failed covers nothing: the node can write until conn_gone(). */
static void cover(struct capsule_ask *a)
{
	a->told = true;
	verbs_cover(&a->shown[0], true);
	verbs_cover(&a->shown[1], true);
	if (!a->open)
		on_reply(a);
}

static void take_reply(struct capsule_ask *a, const struct capsule *m)
{
	if (a->told)
		return;
	a->reply = *m;
	a->text[0] = 0;
	if (m->type == CAPSULE_READ_REPLY)
		snprintf(a->text, sizeof(a->text), "%.*s", (int)m->read_reply.text.len,
			 (const char *)m->read_reply.text.p);
	cover(a);
}

/* ---- the connection ---- */

static struct capsule_source *of_conn(struct capsule_user *u)
{
	return container_of(u, struct capsule_source, conn);
}

static void conn_up(struct capsule_user *u)
{
	cs_ready(of_conn(u));
}

static bool conn_answer(struct capsule_user *u, const struct capsule *m)
{
	struct capsule_source *s = of_conn(u);

	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		struct capsule_ask *a = &s->asks[i];

		if (!a->asked || a->id != m->request_id)
			continue;
		if (m->type == CAPSULE_READ_REPLY || m->type == CAPSULE_CLOSED)
			take_reply(a, m);
		return true;
	}
	return false;
}

static void conn_lost(struct capsule_user *u, int rc)
{
	struct capsule_source *s = of_conn(u);

	(void)rc;
	if (s->state == CR_WAIT_CONNECT)
		capsule_user_leave(u); /* nothing was named to the node */
	if (s->state <= CR_RUN)
		s->state = CR_BY_STREAM;
	cs_ready(s);
}

static void conn_gone(struct capsule_user *u)
{
	struct capsule_source *s = of_conn(u);

	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		s->asks[i].asked = false;
	cs_ready(s);
}

static const struct capsule_user_ops conn_ops = {
	.up = conn_up,
	.answer = conn_answer,
	.lost = conn_lost,
	.gone = conn_gone,
};

/* ---- asking ---- */

/* So much that chunks and CRCs fit the slots, and pieces end at chunk borders. */
static uint32_t ask_len(const struct capsule_source *s, const struct capsule_ask *a)
{
	const uint64_t rest = s->params.off + s->params.len - s->next;
	uint64_t most = FIRST_READ;

	if (s->opened) {
		const uint32_t bpc = s->info.bytes_per_crc, chunks = a->slot->size / bpc;

		most = (uint64_t)(chunks < a->crcs->size / 4 ? chunks : a->crcs->size / 4) * bpc;
	}
	return (uint32_t)(rest < most ? rest : most);
}

static int show(struct capsule_ask *a, uint32_t i, struct slot *slot, struct capsule_peer_link *l,
		struct capsule_mem *ret)
{
	struct xremote at;
	int rc;

	a->shown[i] = (struct verbs_exposure){.slot = slot,
					      .len = slot->size,
					      .right = VERBS_PEER_WRITES,
					      .closed = on_closed,
					      .arg = a};
	rc = verbs_expose(l->xc, &a->shown[i], &at);
	if (rc < 0)
		return rc;
	if (a->shown[i].window)
		a->open++;
	*ret = (struct capsule_mem){at.addr, at.rkey, slot->size};
	return 0;
}

static int send_read(struct capsule_source *s, struct capsule_ask *a, struct capsule_peer_link *l,
		     const struct source_params *q)
{
	struct capsule m = {.type = CAPSULE_READ, .request_id = a->id};
	uint8_t *op = NULL;
	size_t len = 0;
	int rc = show(a, 0, a->slot, l, &m.read.dest);

	rc = rc ?: show(a, 1, a->crcs, l, &m.read.crc);
	rc = rc ?: dtp_read_op_encode(s->core, q, &op, &len);
	if (rc < 0)
		return rc;
	m.read.op = capsule_op(op, len);
	rc = link_send(l, &m);
	free(op);
	return rc;
}

/* Windows are reserved. */
static void ask(struct capsule_source *s, struct capsule_ask *a, struct capsule_peer_link *l)
{
	const struct source_params q = {
		.bp = s->params.bp, .block = s->params.block, .off = s->next, .len = ask_len(s, a)};

	a->id = capsule_user_id(&s->conn);
	a->off = q.off;
	a->len = (uint32_t)q.len;
	a->asked = true;
	a->answered = a->told = false;
	a->open = 0;
	s->next += q.len;
	s->head++;
	cs_deadline(s, s->core->waits.read_ns);
	a->unsent = send_read(s, a, l, &q) < 0;
	verbs_turn_end(&s->turn);
	if (a->unsent)
		cover(a);
}

static void do_ask(struct capsule_source *s)
{
	const uint64_t end = s->params.off + s->params.len;

	while (s->state == CR_RUN && !s->closed && s->next < end &&
	       s->head - s->tail < SOURCE_SLOTS) {
		struct capsule_peer_link *l = capsule_user_link(&s->conn);
		struct capsule_ask *a = &s->asks[s->head % SOURCE_SLOTS];

		if (a->out || (!s->opened && s->head != s->tail))
			return; /* its piece comes back; the first answer tells the chunk size */
		if (l && verbs_turn_take(l->xc, &s->turn)) {
			ask(s, a, l);
			continue;
		}
		if (!l || !(any_asked(s) || any_out(s)))
			s->state = CR_BY_STREAM;
		return; /* one of its own may come back */
	}
}

static void tell_opened(struct capsule_source *s)
{
	s->opened = true;
	s->sink->ops->opened(s->sink, 0, &s->info, NULL);
}

static void do_run(struct capsule_source *s)
{
	while (s->head != s->tail && s->asks[s->tail % SOURCE_SLOTS].answered && !s->closed) {
		struct capsule_ask *a = &s->asks[s->tail % SOURCE_SLOTS];

		if (!s->opened)
			tell_opened(s);
		if (s->closed)
			break;
		a->answered = false;
		a->out = true;
		s->at = a->p.off + a->p.len;
		s->tail++;
		s->sink->ops->piece(s->sink, &a->p);
	}
	do_ask(s);
	if (s->at >= s->params.off + s->params.len && s->opened)
		s->state = CR_CLOSING;
}

/* ---- the stream source in our place ---- */

static struct capsule_source *of_inner(struct read_sink *s)
{
	return container_of(s, struct capsule_source, inner_sink);
}

static void inner_opened(struct read_sink *sink, int rc, const struct read_info *info,
			 const struct err *err)
{
	struct capsule_source *s = of_inner(sink);

	if (!s->opened) {
		s->opened = true;
		s->sink->ops->opened(s->sink, rc, info, err);
	} else if (rc == 0 &&
		   (info->crc_type != s->info.crc_type ||
		    info->bytes_per_crc != s->info.bytes_per_crc || info->first != s->at)) {
		cs_fail(s, -EPROTO, "says something else over TCP");
	}
}

static void inner_piece(struct read_sink *sink, struct piece *p)
{
	struct capsule_source *s = of_inner(sink);

	if (s->rc)
		s->inner->ops->sent(s->inner, p);
	else
		s->sink->ops->piece(s->sink, p);
}

static void inner_ended(struct read_sink *sink, int rc)
{
	struct capsule_source *s = of_inner(sink);

	s->inner = NULL;
	if (!s->rc)
		s->rc = rc;
	s->state = CR_DONE;
	cs_ready(s);
}

static const struct read_sink_ops inner_ops = {
	.opened = inner_opened,
	.piece = inner_piece,
	.ended = inner_ended,
};

static void do_by_stream(struct capsule_source *s)
{
	const uint64_t end = s->params.off + s->params.len;
	struct source_params q = s->params;
	int rc;

	if (any_asked(s) || any_out(s))
		return;
	capsule_user_leave(&s->conn);
	if (s->opened) { /* what was answered and not handed on is read again */
		q.off = s->at;
		q.len = end - s->at;
	}
	log_debug("op=source block=%" PRId64 " node=%s: by TCP from %" PRIu64 " on", q.block.id,
		  s->peer, q.off);
	q.at = &s->node;
	s->inner_sink = (struct read_sink){.ops = &inner_ops, .peer = s->sink->peer};
	rc = stream_source_open(s->core, &q, &s->inner_sink, &s->inner);
	if (rc == 0)
		s->state = CR_STREAM;
	else
		cs_fail(s, rc, err_name(rc));
}

static void do_stream(struct capsule_source *s)
{
	if (!s->inner || s->inner_closed || (!s->closed && !s->rc))
		return;
	s->inner_closed = true;
	s->inner->ops->close(s->inner);
}

/* ---- the end ---- */

static void cancel_asked(struct capsule_source *s)
{
	struct capsule_peer_link *l = capsule_user_link(&s->conn);

	if (s->cancelled || !any_asked(s))
		return;
	s->cancelled = true;
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		const struct capsule m = {.type = CAPSULE_CANCEL, .request_id = s->asks[i].id};

		if (s->asks[i].asked && l)
			(void)link_send(l, &m);
	}
	cs_deadline(s, SOURCE_CLOSE_NS);
	reactor_timer_set(s->core->reactor, &s->timer, s->deadline_ns);
}

static void do_closing(struct capsule_source *s)
{
	if (s->rc && !s->opened) {
		s->opened = true;
		log_debug("op=source block=%" PRId64 " %s", s->params.block.id, s->err.text);
		s->sink->ops->opened(s->sink, s->rc, NULL, &s->err);
	}
	cancel_asked(s);
	if (!any_asked(s) && !any_out(s))
		s->state = CR_DONE;
}

static bool cs_step(struct rop *rop)
{
	struct capsule_source *s = container_of(rop, struct capsule_source, rop);
	enum capsule_source_state before;

	do {
		before = s->state;
		if (s->closed && !s->rc)
			s->rc = err_set(&s->err, -ECANCELED, "%s: closed", s->peer);
		if (s->rc && s->state < CR_STREAM)
			s->state = CR_CLOSING;
		switch (s->state) {
		case CR_WAIT_CONNECT:
			if (!s->conn.dial)
				s->state = CR_BY_STREAM;
			else if (capsule_user_is_up(&s->conn))
				s->state = CR_RUN;
			break;
		case CR_RUN:
			do_run(s);
			break;
		case CR_BY_STREAM:
			do_by_stream(s);
			break;
		case CR_STREAM:
			do_stream(s);
			break;
		case CR_CLOSING:
			do_closing(s);
			break;
		case CR_DONE:
			break;
		}
	} while (s->state != before || (s->rc && s->state < CR_STREAM));
	return s->state == CR_DONE;
}

static void cs_free(struct rop *rop)
{
	struct capsule_source *s = container_of(rop, struct capsule_source, rop);

	capsule_user_leave(&s->conn);
	reactor_timer_clear(s->core->reactor, &s->timer);
	s->core->op_count--;
	s->sink->ops->ended(s->sink, s->rc);
	free(s);
}

static void cs_sent(struct piece_source *base, struct piece *p)
{
	struct capsule_source *s = of_base(base);

	if (s->inner) {
		s->inner->ops->sent(s->inner, p);
		return;
	}
	container_of(p, struct capsule_ask, p)->out = false;
	cs_ready(s);
}

static void cs_close(struct piece_source *base)
{
	of_base(base)->closed = true;
	cs_ready(of_base(base));
}

static const struct piece_source_ops source_ops = {
	.sent = cs_sent,
	.close = cs_close,
};

int capsule_source_open(struct engine_core *core, const struct source_params *params,
			struct read_sink *sink, struct piece_source **ret)
{
	struct capsule_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->conn.ops = &conn_ops;
	rc = capsule_user_join(core->caps, params->at, &s->conn);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->core = core;
	s->base.ops = &source_ops;
	s->sink = sink;
	s->params = *params;
	s->node = *params->at;
	s->params.at = &s->node;
	s->at = s->next = params->off;
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		s->asks[i].source = s;
		s->asks[i].slot = params->slots[i];
		s->asks[i].crcs = params->crc_slots[i];
	}
	snprintf(s->peer, sizeof(s->peer), "%s:%u", params->at->ip, params->at->xfer_port);
	s->timer.fire = on_timer;
	rop_init(&s->rop, cs_step, cs_free);
	core->op_count++;
	cs_ready(s);
	*ret = &s->base;
	return 0;
}
