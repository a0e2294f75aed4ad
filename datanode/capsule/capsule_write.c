/* SPDX-License-Identifier: Apache-2.0 */
/* A block being written by capsules: pieces get landings in order, pulls fill them in any order,
 * the engine gets them in order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

struct wpiece { /* a WRITE capsule */
	struct list link;
	struct capsule_write *w;
	int64_t seq;
	uint64_t off;
	uint32_t len, landed, handed; /* bytes in all, with a landing, with the engine */
	bool last, sync;
	struct xremote data, crc;
	struct slot *payload;     /* rode along */
	uint32_t crc_len, crc_at; /* bytes of CRCs, of these before `handed` */
	struct slot *crc_slot;    /* pulled */
	struct xop crc_op;
	bool crc_pulling, crc_ready;
	uint8_t crcs[]; /* came in the capsule */
};

struct wpart { /* a landing being filled */
	struct list link;
	struct capsule_write *w;
	struct wpiece *piece;
	struct landing land;
	struct xop op;
	bool done;
	int rc;
};

struct capsule_write {
	struct capsule_stream s; /* first */
	struct write_source src;
	struct block_write *w; /* NULL once it has ended */
	bool opened, refused, finished, cancelled, want_pulled;
	bool closing; /* the dialer cancelled, and waits for CLOSED */
	bool copy;    /* from a node: no acks, the end says whether it is stored */
	int end_rc;
	int64_t newest_seq, last_seq; /* received; of the piece with LAST */
	int64_t pulled, told_pulled;
	struct list pieces, parts;
	uint32_t piece_count;
	struct pool_ask ask;     /* for the CRCs of the first piece that lacks a slot for them */
	struct slot *crc_slot;   /* granted */
	struct rtimer crc_timer; /* how long it is waited for */
	bool hop_blamed;         /* for a slot that was not to be had */
};

static struct capsule_write *of_stream(struct capsule_stream *s)
{
	return container_of(s, struct capsule_write, s);
}
static struct capsule_write *of_src(struct write_source *s)
{
	return container_of(s, struct capsule_write, src);
}
static struct capsule_peer_link *link_of(const struct capsule_write *w)
{
	return &w->s.conn->link;
}
static struct pool *pool_of(const struct capsule_write *w)
{
	return link_of(w)->caps->core->pool;
}

static void write_fail(struct capsule_write *w, int rc)
{
	if (w->w && !w->cancelled)
		block_write_close(w->w, rc);
	w->cancelled = true;
	stream_ready(&w->s);
}

/* ---- the engine speaks ---- */

static void open_reply(struct capsule_conn *c, uint64_t id, int status, const char *bad_link,
		       const char *text)
{
	const struct capsule m = {
		.type = CAPSULE_OPEN_REPLY,
		.request_id = id,
		.open_reply = {.status = status,
			       .bad_link = capsule_text(bad_link),
			       .text = capsule_text(text)},
	};

	(void)link_send(&c->link, &m);
}

static void on_opened(struct write_source *s, int status, const char *bad_link, bool replica_failed)
{
	struct capsule_write *w = of_src(s);

	w->opened = status == DT_SUCCESS;
	w->refused = !w->opened;
	if (w->finished)
		return; /* cancelled */
	open_reply(w->s.conn, w->s.id, status, bad_link,
		   replica_failed ? "the replica could not be prepared" : "");
	if (w->refused)
		w->s.id = 0;
	stream_ready(&w->s);
}

static void on_room(struct write_source *s)
{
	stream_ready(&of_src(s)->s);
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	struct capsule_write *w = of_src(s);
	const struct capsule m = {
		.type = CAPSULE_ACK,
		.request_id = w->s.id,
		.ack = {.seqno = seq, .pulled = w->pulled, .count = (uint8_t)n, .status = statuses},
	};
	bool good = true;

	if (w->finished)
		return;
	for (uint32_t i = 0; i < n; i++)
		good &= statuses[i] == DT_SUCCESS;
	w->told_pulled = w->pulled;
	(void)link_send(link_of(w), &m);
	if (good && seq >= 0 && seq == w->last_seq) {
		w->finished = true;
		w->s.id = 0;
	}
}

static void on_ended(struct write_source *s, int rc)
{
	struct capsule_write *w = of_src(s);

	w->w = NULL;
	w->end_rc = rc;
	stream_ready(&w->s);
}

static bool waits_for_list(const struct write_source *s)
{
	return pool_is_waiting(&container_of(s, const struct capsule_write, src)->ask);
}

static const struct write_source_ops source_ops = {
	.opened = on_opened,
	.room = on_room,
	.ack = on_ack,
	.ended = on_ended,
	.waits_for_buffers = waits_for_list,
};

/* ---- payload and CRCs arrive ---- */

static void on_pulled(struct xop *op, int res)
{
	struct wpart *t = container_of(op, struct wpart, op);

	t->done = true;
	t->rc = res < 0 ? res : 0;
	stream_ready(&t->w->s);
}

static void on_crcs(struct xop *op, int res)
{
	struct wpiece *p = container_of(op, struct wpiece, crc_op);

	p->crc_pulling = false;
	p->crc_ready = res >= 0;
	stream_ready(&p->w->s);
}

static struct reactor *reactor_of(const struct capsule_write *w)
{
	return link_of(w)->caps->core->reactor;
}

static void on_granted(struct pool_ask *a)
{
	struct capsule_write *w = container_of(a, struct capsule_write, ask);

	reactor_timer_clear(reactor_of(w), &w->crc_timer);
	stream_ready(&w->s);
}

static void crc_deadline(struct capsule_write *w)
{
	reactor_timer_set(reactor_of(w), &w->crc_timer,
			  reactor_now_ns(reactor_of(w)) + link_of(w)->caps->core->waits.buffers_ns);
}

static void on_no_crc_slot(struct rtimer *t)
{
	struct capsule_write *w = container_of(t, struct capsule_write, crc_timer);

	if (w->w && block_write_no_list(w->w, w->ask.form[0].part[0].cls)) {
		w->hop_blamed = true;
		crc_deadline(w); /* the sender cancels before that */
		return;
	}
	log_warn(
		"op=write peer=%s: no buffer for CRCs in time: /ops lists who holds them; dfs.rdma.pool.size sets how many there are",
		link_of(w)->peer);
	/* a next node that was told of is to blame, not this one */
	write_fail(w, w->hop_blamed ? -EHOSTUNREACH : -ENOBUFS);
}

/* A slot for the list of CRCs of @p, before any of it has a landing: a piece may take several
 * lanes, which are waited for with the list in hand. So lists have a part of such slots, and lanes
 * the rest; see buffers.h. */
static bool crc_slot(struct capsule_write *w, struct wpiece *p)
{
	const uint8_t cls = (uint8_t)slot_class_for_crcs(p->crc_len);

	if (pool_is_waiting(&w->ask))
		return false;
	if (w->crc_slot && w->crc_slot->size < p->crc_len) {
		slot_put(w->crc_slot);
		w->crc_slot = NULL;
	}
	if (w->crc_slot)
		return true;
	w->ask = (struct pool_ask){.use = POOL_CTRL,
				   .forms = 1,
				   .form[0] = {1, {{cls, 1}}},
				   .slots = &w->crc_slot,
				   .granted = on_granted};
	block_write_list_budgets(w->w, cls, w->ask.budget);
	if (pool_take(pool_of(w), &w->ask))
		return true;
	w->crc_timer.fire = on_no_crc_slot;
	crc_deadline(w);
	pool_wait(pool_of(w), &w->ask);
	return w->crc_slot != NULL;
}

/* A list of CRCs that is named by address: false when there is no slot for it yet. */
static bool pull_crcs(struct capsule_write *w, struct wpiece *p)
{
	if (p->crc_ready || p->crc_slot)
		return true;
	if (!crc_slot(w, p))
		return false;
	p->crc_slot = w->crc_slot;
	w->crc_slot = NULL;
	p->crc_pulling = true;
	p->crc_op.done = on_crcs;
	link_extend(link_of(w));
	xconn_pull(link_of(w)->xc, p->crc, p->crc_slot, 0, p->crc_len, &p->crc_op);
	return true;
}

/* What rode along lies in a slot of the receive queue: a piece of at most 8 KiB is copied to its
 * neighbours, which costs less than a round trip. */
static void fill_from_payload(struct wpart *t)
{
	const struct wpiece *p = t->piece;

	memcpy(t->land.slot->data + t->land.off, p->payload->data + p->landed, t->land.len);
	metric_add(METRIC_DN_COPIED_RDMA, t->land.len);
	t->done = true;
}

static int land(struct capsule_write *w, struct wpiece *p)
{
	struct capsule_peer_link *l = link_of(w);
	struct wpart *t = calloc(1, sizeof(*t));
	int rc = t ? block_write_land(w->w, p->off + p->landed, p->len - p->landed, &t->land)
		   : -ENOMEM;

	if (rc < 0) {
		free(t);
		return rc;
	}
	t->w = w;
	t->piece = p;
	t->op.done = on_pulled;
	list_add_tail(&w->parts, &t->link);
	if (p->payload) {
		fill_from_payload(t);
	} else {
		link_extend(l);
		xconn_pull(l->xc, (struct xremote){p->data.addr + p->landed, p->data.rkey},
			   t->land.slot, t->land.off, t->land.len, &t->op);
	}
	p->landed += t->land.len;
	return 0;
}

static void land_pieces(struct capsule_write *w)
{
	int rc = 0;

	list_for_each (i, &w->pieces) {
		struct wpiece *p = container_of(i, struct wpiece, link);

		if (p->crc_len && !pull_crcs(w, p))
			return; /* on_granted() comes */
		while (!rc && p->landed < p->len)
			rc = land(w, p);
		if (rc == -EAGAIN)
			return; /* room() comes */
		if (rc < 0) {
			log_warn("op=write peer=%s: piece %" PRId64 " at %" PRIu64 ": %s",
				 link_of(w)->peer, p->seq, p->off, err_name(rc));
			write_fail(w, rc);
			return;
		}
	}
}

/* ---- to the engine, in order ---- */

static void piece_free(struct capsule_write *w, struct wpiece *p)
{
	list_del(&p->link);
	w->piece_count--;
	slot_put(p->payload);
	slot_put(p->crc_slot);
	free(p);
}

static void part_free(struct wpart *t)
{
	list_del(&t->link);
	free(t);
}

static int hand_over(struct capsule_write *w, struct wpiece *p, struct wpart *t)
{
	const uint32_t len = t ? t->land.len : 0, bpc = block_write_bpc(w->w);
	const bool whole = p->handed + len == p->len;
	const uint8_t *crcs = p->crc_slot ? p->crc_slot->data : p->crcs;
	const struct piece e = {
		.seq = p->seq,
		.off = p->off + p->handed,
		.len = len,
		.last = p->last,
		.sync = p->sync && whole,
		.more = !whole,
		.flush = len && p->len < 16384,
		.slot = t ? t->land.slot : NULL,
		.slot_off = t ? t->land.off : 0,
	};
	int rc = block_write_piece(w->w, &e, p->crc_len ? crcs + p->crc_at : NULL);

	if (rc < 0)
		return rc;
	p->handed += len;
	p->crc_at += p->crc_len ? (len + bpc - 1) / bpc * 4 : 0;
	return 0;
}

/* True when the first piece was handed over, or a part of it. */
static bool hand_first(struct capsule_write *w)
{
	struct wpiece *p = container_of(w->pieces.next, struct wpiece, link);
	struct wpart *t = p->len ? container_of(w->parts.next, struct wpart, link) : NULL;
	int rc = 0;

	if (list_empty(&w->pieces) || (p->len && (list_empty(&w->parts) || !t->done)))
		return false;
	if (t && !t->rc && p->crc_len && !p->crc_ready) {
		if (!p->crc_slot || p->crc_pulling)
			return false;
		rc = -ECONNRESET; /* the pull of the CRCs failed */
	}
	if (t && t->rc)
		rc = t->rc;
	if (!rc)
		rc = hand_over(w, p, t);
	else
		slot_put(t->land.slot);
	if (t) /* the engine has taken the landing, good or bad */
		part_free(t);
	if (rc == -EAGAIN)
		return false; /* nothing landed; room() comes */
	if (rc < 0) {
		write_fail(w, rc);
		return false;
	}
	if (p->handed == p->len) {
		w->pulled = p->seq;
		piece_free(w, p);
	}
	return true;
}

static void tell_pulled(struct capsule_write *w)
{
	const struct capsule m = {
		.type = CAPSULE_PULLED, .request_id = w->s.id, .pulled.seqno = w->pulled};

	if (!w->want_pulled || w->pulled == w->told_pulled)
		return;
	w->told_pulled = w->pulled;
	(void)link_send(link_of(w), &m);
}

/* ---- the end ---- */

static void drop_pieces(struct capsule_write *w)
{
	list_for_each (i, &w->parts) {
		struct wpart *t = container_of(i, struct wpart, link);

		if (!t->done)
			continue; /* a READ is in flight */
		slot_put(t->land.slot);
		part_free(t);
	}
	list_for_each (i, &w->pieces) {
		struct wpiece *p = container_of(i, struct wpiece, link);
		bool in_use = p->crc_pulling;

		list_for_each (j, &w->parts)
			in_use |= container_of(j, struct wpart, link)->piece == p;
		if (!in_use)
			piece_free(w, p);
	}
}

/* The last word: nothing is pulled any more. */
static void send_closed(struct capsule_write *w, int status, int rc)
{
	const struct capsule m = {
		.type = CAPSULE_CLOSED,
		.request_id = w->s.id,
		.closed = {.status = status, .text = capsule_text(err_name(rc))},
	};

	if (w->refused || w->finished)
		return;
	w->finished = true;
	w->s.id = 0;
	(void)link_send(link_of(w), &m);
}

/* Nothing is landed any more. True when the dialer's memory is its own again. */
static bool let_go(struct capsule_write *w)
{
	pool_wait_cancel(pool_of(w), &w->ask);
	reactor_timer_clear(reactor_of(w), &w->crc_timer);
	slot_put(w->crc_slot);
	w->crc_slot = NULL;
	drop_pieces(w);
	return list_empty(&w->parts) && list_empty(&w->pieces);
}

static bool finish(struct capsule_write *w)
{
	const int status = w->end_rc ? (int)dt_errno_status(w->end_rc)
			   : w->copy ? DT_SUCCESS
				     : DT_ERROR;

	if (!let_go(w))
		return false;
	send_closed(w, status, w->end_rc);
	return true;
}

static bool write_step(struct capsule_stream *s)
{
	struct capsule_write *w = of_stream(s);

	if (!w->w)
		return finish(w);
	if (w->closing) { /* whenever the disk lets go */
		if (let_go(w))
			send_closed(w, DT_ERROR, -ECANCELED);
		return false;
	}
	if (!w->opened)
		return false;
	if (!w->cancelled && link_of(w)->xc)
		land_pieces(w);
	while (!w->cancelled && hand_first(w))
		;
	if (w->cancelled)
		(void)let_go(w);
	else
		tell_pulled(w);
	return false;
}

static void write_cancel(struct capsule_stream *s, int rc)
{
	of_stream(s)->closing = true;
	write_fail(of_stream(s), rc);
}

static void write_free(struct capsule_stream *s)
{
	free(of_stream(s));
}

/* ---- capsules ---- */

static int write_params(struct capsule_conn *c, const struct capsule *m, struct write_params *ret,
			struct err *err)
{
	Hd__OpWriteBlockProto *op = NULL;
	int rc = pb_unpack(&hd__op_write_block_proto__descriptor, m->open_write.op.p,
			   m->open_write.op.len, &op);

	if (rc < 0)
		return err_set(err, rc, "not an OpWriteBlockProto");
	rc = dtp_write_params(c->link.caps->core, op, ret, err);
	pb_free(op);
	ret->sync_later = false; /* the answer has no place for what is to be said to it */
	if (rc < 0 || !ret->transfer)
		return rc;
	write_params_fini(ret);
	return err_set(err, -EOPNOTSUPP, "repairs of a pipeline go over TCP");
}

void capsule_write_start(struct capsule_conn *c, const struct capsule *m)
{
	struct write_params params;
	struct err err = ERR_INIT;
	struct capsule_write *w = NULL;
	int rc = write_params(c, m, &params, &err);

	if (!rc) {
		w = calloc(1, sizeof(*w));
		if (w) {
			w->s = (struct capsule_stream){.is_write = true,
						       .step = write_step,
						       .free = write_free,
						       .cancel = write_cancel};
			w->src = (struct write_source){.ops = &source_ops,
						       .peer = c->link.peer,
						       .share = &c->share,
						       .rdma = true};
			w->want_pulled = m->flags & CAPSULE_WANT_PULLED;
			w->copy = !params.client[0];
			w->newest_seq = w->last_seq = w->pulled = w->told_pulled = CAPSULE_SEQ_NONE;
			list_init(&w->pieces);
			list_init(&w->parts);
			capsule_stream_add(c, &w->s, m->request_id);
		}
		rc = w ? block_write_open(c->link.caps->core, &params, &w->src, &w->w) : -ENOMEM;
		if (rc < 0)
			write_params_fini(&params);
	}
	if (rc == 0)
		return;
	log_warn("op=write peer=%s: %s", c->link.peer, err.rc ? err.text : err_name(rc));
	open_reply(c, m->request_id, dt_errno_status(rc), "", err.rc ? err.text : err_name(rc));
	if (w) {
		w->refused = true; /* the next step ends it */
		w->s.id = 0;
		stream_ready(&w->s);
	}
}

int capsule_write_piece(struct capsule_stream *s, const struct capsule *m, struct slot *payload)
{
	struct capsule_write *w = of_stream(s);
	const bool crc_inline = m->write.crc.p != NULL;
	const uint32_t len = m->write.data_len, crc_len = m->write.crc.len;
	struct wpiece *p;

	if (w->refused || w->cancelled || !w->w) { /* over; it crossed our answer on the wire */
		slot_put(payload);
		return 0;
	}
	if (m->write.seqno <= w->newest_seq || w->last_seq != CAPSULE_SEQ_NONE || !w->opened ||
	    w->piece_count >= CAPS_PIECES_MAX || crc_len > PIECE_MAX ||
	    (crc_len && crc_len != (len + block_write_bpc(w->w) - 1) / block_write_bpc(w->w) * 4)) {
		slot_put(payload);
		return -EPROTO;
	}
	w->newest_seq = m->write.seqno;
	if (m->flags & CAPSULE_LAST)
		w->last_seq = m->write.seqno;
	p = calloc(1, sizeof(*p) + (crc_inline ? crc_len : 0));
	if (!p) {
		slot_put(payload);
		write_fail(w, -ENOMEM);
		return 0;
	}
	p->w = w;
	p->seq = m->write.seqno;
	p->off = m->write.offset;
	p->len = len;
	p->last = m->flags & CAPSULE_LAST;
	p->sync = m->flags & CAPSULE_SYNC;
	p->payload = payload;
	p->data = (struct xremote){m->write.data.addr, m->write.data.rkey};
	p->crc = (struct xremote){m->write.crc_mem.addr, m->write.crc_mem.rkey};
	p->crc_len = crc_len;
	p->crc_ready = crc_inline;
	if (crc_inline)
		memcpy(p->crcs, m->write.crc.p, crc_len);
	list_add_tail(&w->pieces, &p->link);
	w->piece_count++;
	stream_ready(s);
	return 0;
}
