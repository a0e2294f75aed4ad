/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_write - packets in registered memory, which the first node reads; stream_rdma.c
 *
 * A packet that could not have such memory is copied into a pair of slots of the pool: one for its
 * data and one for its CRCs, of the classes that it needs. Its stream asks for the pair when the
 * packet is its next one (stream_rdma_write_pairs.c), the caller's thread copies, and the pair goes
 * back when the packet is acknowledged and its capsule sent. The packet itself stays its writer's
 * until then, so it can be sent again after a failure.
 * A packet that its caller has lent, in memory that is registered, stays where it is: the node
 * reads it through a window (verbs.h), and only its CRCs are copied. The window is opened before
 * the capsule and closed when the packet is acknowledged; its writer hears of the acknowledgement
 * when that is done. A stream that ends earlier waits for CLOSED and closes the windows, or for
 * the end of the queue pair.
 * The reactor takes an acknowledgement under meeting.lock, and that gives the pair back: neither a
 * caller that sleeps nor the lock of its file stands in the way. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/stream/stream_rdma_write_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define LENT_LEAST (64u << 10) /* bytes that are not better copied */

static struct rdma_w *w_of(struct wstream *s)
{
	return container_of(s, struct rdma_w, base);
}

static void push_ack(struct rdma_w *w, struct ack a)
{
	if (w->ack_head - w->ack_tail < ACKS_MAX)
		w->ack[w->ack_head++ % ACKS_MAX] = a;
}

static bool is_used(const struct wslot *s)
{
	return s->state != WSLOT_FREE || s->send.busy;
}

/* And let_go() has seen it. */
static bool is_free(const struct wslot *s)
{
	return !is_used(s) && !s->buf && !s->copied;
}

static bool has_room(const struct rdma_w *w)
{
	return is_free(&w->slot[w->next]) && (!w->want_copy || w->copy_state != COPY_ASKED);
}

/* If nobody looks at the packet any more. With the lock held. */
static void let_go(struct wslot *s)
{
	if (is_used(s))
		return;
	rdma_buf_put(s->buf);
	s->buf = NULL;
	if (s->copied)
		rdma_w_put_pair(s->w, s->slot, s->crc);
	s->copied = false;
}

/* ---- the connection is lost ---- */

static int broke(struct rdma_w *w, struct err *err)
{
	err_set(err, w->m.lost, "data node %s by RDMA: %s", w->peer, w->m.why);
	w->base.broke = stream_broke(w->fs, w->peer, rdma_has_other_way(w->rdma, &w->call), err);
	return w->m.lost;
}

/* ---- what comes from the node ---- */

/* The writer is told of what is acknowledged and closed to the node. With the lock held. */
static void retire(struct rdma_w *w)
{
	for (;;) {
		struct wslot *s = &w->slot[w->oldest];

		if (s->state != WSLOT_ACKED || s->exposed)
			return;
		s->state = WSLOT_FREE;
		w->finished |= s->head.last;
		push_ack(w, (struct ack){.seqno = s->head.seqno, .bad = -1});
		let_go(s);
		w->oldest = (w->oldest + 1) % WRITE_DEPTH;
	}
}

/* One ACK may cover several packets; the writer wants one each. An ACK for fewer nodes than the
 * pipeline has acknowledges nothing, and ends the stream. */
static void take_ack(struct rdma_w *w, const struct capsule *m)
{
	for (uint32_t i = m->ack.count; i-- > 0;)
		if (m->ack.status[i] != HD__STATUS__SUCCESS) {
			/* the last one that failed is to blame, hdfs-wire 5.6 */
			push_ack(w, (struct ack){.seqno = m->ack.seqno,
						 .status = m->ack.status[i],
						 .bad = i < w->nodes ? (int)i : (int)w->nodes - 1});
			return;
		}
	if (m->ack.count < w->nodes)
		w->acks_short = m->ack.count;
	if (w->acks_short)
		return;
	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		struct wslot *s = &w->slot[(w->oldest + i) % WRITE_DEPTH];

		if ((s->state != WSLOT_SENT && s->state != WSLOT_ACKED) ||
		    s->head.seqno > m->ack.seqno)
			break;
		s->state = WSLOT_ACKED;
		rdma_w_cover(s);
	}
	retire(w);
}

/* The node cannot read it any more. */
static void w_on_shut(struct xop *op, int res)
{
	struct wslot *s = container_of(op, struct wslot, shut);
	struct rdma_w *w = s->w;

	s->shutting = false;
	if (res < 0 || !s->window)
		return; /* the connection is lost, which is told */
	verbs_window_put(s->window);
	pthread_mutex_lock(&w->m.lock);
	s->window = NULL;
	s->exposed = false;
	retire(w);
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
	rdma_w_note_line(w);
}

/* What the node is done with. Not under the lock: it may be done at once. */
static void shut_windows(struct rdma_w *w)
{
	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		struct wslot *s = &w->slot[i];

		if (!s->exposed || s->shutting || (s->state != WSLOT_ACKED && !w->closed))
			continue;
		s->shutting = true;
		rdma_window_close(&w->call, s->window, &s->shut);
	}
}

static void w_on_capsule(struct rcall *c, const struct capsule *m)
{
	struct rdma_w *w = container_of(c, struct rdma_w, call);

	pthread_mutex_lock(&w->m.lock);
	if (m->type == CAPSULE_OPEN_REPLY && !w->opened) {
		w->opened = true;
		w->open_status = m->open_reply.status;
		w->closed = m->open_reply.status != HD__STATUS__SUCCESS;
		rdma_copy_text(w->bad_link, sizeof(w->bad_link), m->open_reply.bad_link);
		rdma_copy_text(w->text, sizeof(w->text), m->open_reply.text);
	} else if (m->type == CAPSULE_ACK) {
		take_ack(w, m);
	} else if (m->type == CAPSULE_CLOSED) {
		w->closed = true;
		rdma_copy_text(w->text, sizeof(w->text), m->closed.text);
	}
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
	rdma_w_note_line(w);
	shut_windows(w);
}

/* Somebody may wait for the capsule's memory. */
static void w_news(struct rdma_w *w)
{
	pthread_mutex_lock(&w->m.lock);
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
}

static void w_on_sent(struct rsend *send)
{
	struct wslot *s = container_of(send, struct wslot, send);

	pthread_mutex_lock(&s->w->m.lock);
	let_go(s);
	meeting_ring(&s->w->m);
	pthread_mutex_unlock(&s->w->m.lock);
}

static void w_on_control_sent(struct rsend *s)
{
	w_news(container_of(s, struct rdma_w, control));
}

static void w_on_lost(struct rcall *c, int rc, const char *why)
{
	struct rdma_w *w = container_of(c, struct rdma_w, call);

	meeting_lost(&w->m, rc, why); /* its caller takes no window any more */
	rdma_w_pairs_lost(w);
	pthread_mutex_lock(&w->m.lock);
	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		struct wslot *s = &w->slot[i];

		if (s->window && s->exposed)
			verbs_window_revoke(s->window);
		else if (s->window)
			verbs_window_put(s->window);
		s->window = NULL;
	}
	pthread_mutex_unlock(&w->m.lock);
}

static void w_on_gone(struct rcall *c)
{
	struct rdma_w *w = container_of(c, struct rdma_w, call);

	pthread_mutex_lock(&w->m.lock);
	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		w->slot[i].exposed = false;
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
}

struct w_task {
	struct rtask t;
	struct rdma_w *w;
	int rc;
};

/* Where TCP is allowed, a block that finds no slot free goes by TCP. */
static bool may_begin(const struct rdma_w *w)
{
	struct rdma_pair pair;

	if (w->fs->set.rdma == RDMA_REQUIRE)
		return true;
	rdma_pair_init(&pair, w->rdma, POOL_WRITE, NULL);
	rdma_pair_form(&pair, SLOT_1M, SLOT_CRC);
	if (!pool_take(rdma_pool(w->rdma), &pair.ask))
		return false;
	slot_put(pair.slot[0]);
	slot_put(pair.slot[1]);
	return true;
}

static void open_run(struct rtask *t)
{
	struct w_task *o = container_of(t, struct w_task, t);
	struct capsule m = {.type = CAPSULE_OPEN_WRITE, .open_write.op = o->w->open_op};

	o->rc = may_begin(o->w) ? rdma_send(&o->w->call, &o->w->control, &m) : -ENOBUFS;
}

/* The next wslot, with a pair when @p needs one. 1, 0 there is no room now, -errno. *@ret_ask: the
 * reactor is to be asked for a pair. With the lock held. */
static int claim(struct rdma_w *w, const struct packet *p, bool *ret_ask)
{
	struct wslot *s = &w->slot[w->next];
	struct rmem *lent;

	w->want_copy = p->len && !(p->buf && p->buf->rdma == w->rdma);
	lent = w->want_copy && p->loan && p->len >= LENT_LEAST ? p->loan->memory : NULL;
	if (w->m.lost)
		return w->m.lost;
	if (!has_room(w))
		return 0;
	if (w->want_copy && w->copy_state == COPY_NONE) {
		w->copy_len = p->len;
		w->copy_crc_len = p->crc_len;
		w->copy_memory = lent;
		w->copy_state = COPY_ASKED;
		*ret_ask = true;
		return 0;
	}
	s->copied = w->want_copy;
	s->slot = s->crc = NULL;
	s->lent = NULL;
	if (s->copied) {
		s->slot = w->pair[0];
		s->crc = w->pair[1];
		s->window = w->pair_window;
		s->lent = w->pair_window ? p->data : NULL;
		w->pair_window = NULL;
		w->copy_state = COPY_NONE;
	}
	s->state = WSLOT_FILLING;
	return 1;
}

/* The caller has it to itself. */
static void fill(struct wslot *s, struct packet *p)
{
	struct rdma_w *w = s->w;
	uint32_t copied = p->copied;

	s->head = (struct packet){.seqno = p->seqno,
				  .offset = p->offset,
				  .len = p->len,
				  .crc_len = p->crc_len,
				  .last = p->last,
				  .sync = p->sync};
	if (s->copied) {
		assert(p->crc_len <= s->crc->size);
		memcpy(s->crc->data, p->crc, p->crc_len);
	}
	if (s->copied && !s->lent) {
		assert(p->len <= s->slot->size);
		memcpy(s->slot->data, p->data, p->len);
		w->copied += p->len;
		copied += p->len;
	} else if (!s->copied && p->len) {
		s->buf = rdma_buf_ref(p->buf);
		s->slot = s->buf->data;
		s->crc = s->buf->crc;
	}
	p->copied = 0;
	count_add(&w->fs->count.write_rdma_copied, copied);
}

/* A packet for which a pair was asked is offered again until it is sent. */
int rdma_w_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	struct wslot *s = &w->slot[w->next];
	bool wants_pair = false;
	int rc;

	if (p->len > RDMA_BUF_BYTES || p->crc_len > RDMA_BUF_BYTES)
		return err_set(err, -EMSGSIZE, "a packet of %u bytes is too long for RDMA", p->len);
	pthread_mutex_lock(&w->m.lock);
	rc = claim(w, p, &wants_pair);
	ws->in_line = rc == 0 && w->want_copy && is_free(s);
	pthread_mutex_unlock(&w->m.lock);
	if (wants_pair)
		reactor_post(rdma_reactor(w->rdma), &w->ask_msg);
	if (rc < 0)
		return broke(w, err);
	if (rc == 0)
		return 0;
	fill(s, p);
	pthread_mutex_lock(&w->m.lock);
	s->state = WSLOT_POSTED;
	pthread_mutex_unlock(&w->m.lock);
	w->next = (w->next + 1) % WRITE_DEPTH;
	reactor_post(rdma_reactor(w->rdma), &s->msg);
	return 1;
}

int rdma_w_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	bool lost = false;
	int rc = 0;

	pthread_mutex_lock(&w->m.lock);
	w->line_changed = false;
	if (w->ack_tail != w->ack_head) {
		*ret = w->ack[w->ack_tail++ % ACKS_MAX];
		rc = 1;
	} else if (w->acks_short) {
		rc = err_set(err, -EPROTO, "data node %s acknowledges for %u of %zu nodes", w->peer,
			     w->acks_short, w->nodes);
	} else if (w->m.lost) {
		lost = true; /* and stays so, with its reason */
	} else if (w->closed) {
		rc = err_set(err, -ECONNRESET, "data node %s ended the block: %s", w->peer,
			     *w->text ? w->text : "no reason given");
	}
	pthread_mutex_unlock(&w->m.lock);
	return lost ? broke(w, err) : rc;
}

static bool has_ack(const struct rdma_w *w)
{
	return w->closed || w->acks_short || w->line_changed || w->ack_tail != w->ack_head;
}

static bool has_ack_or_room(const struct rdma_w *w)
{
	return has_ack(w) || has_room(w);
}

/* Until @over, or the connection is gone. 0, or -ETIMEDOUT. */
static int await(struct rdma_w *w, bool (*over)(const struct rdma_w *w), uint64_t deadline_ns)
{
	int rc = 0;

	pthread_mutex_lock(&w->m.lock);
	while (!rc && !w->m.lost && !over(w))
		rc = meeting_wait(&w->m, deadline_ns);
	pthread_mutex_unlock(&w->m.lock);
	return rc;
}

int rdma_w_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns, struct err *err)
{
	(void)err;
	return await(w_of(ws), want_send ? has_ack_or_room : has_ack, deadline_ns) == 0;
}

int rdma_w_poll(struct wstream *ws, bool want_send, struct pollfd *ret)
{
	struct rdma_w *w = w_of(ws);
	int rc;

	pthread_mutex_lock(&w->m.lock);
	if (w->m.lost || has_ack(w) || (want_send && has_room(w)))
		rc = 1;
	else
		rc = meeting_poll(&w->m, ret);
	pthread_mutex_unlock(&w->m.lock);
	return rc;
}

static void cancel_run(struct rtask *t)
{
	struct w_task *o = container_of(t, struct w_task, t);
	struct capsule m = {.type = CAPSULE_CANCEL};

	o->w->ending = true; /* what waits for windows is not sent behind it */
	o->rc = o->w->control.busy ? -EBUSY : rdma_send(&o->w->call, &o->w->control, &m);
}

static void release_one(struct rdma_w *w, struct wslot *s)
{
	const bool read = s->state == WSLOT_SENT && !w->closed;

	if (s->window && !s->exposed) { /* it was not opened */
		verbs_window_put(s->window);
		s->window = NULL;
	}
	if (!read)
		rdma_w_cover(s);
	if (s->buf && read)
		rdma_quarantine_buf(w->rdma, &w->call, s->buf);
	else
		rdma_buf_put(s->buf);
	s->buf = NULL;
	if (s->copied && read) {
		if (s->slot)
			rdma_quarantine(w->rdma, &w->call, s->slot);
		rdma_quarantine(w->rdma, &w->call, s->crc);
	} else if (s->copied) {
		rdma_w_put_pair(w, s->slot, s->crc);
	}
	s->copied = false;
}

/* The node lets go of the slots by CLOSED, or they stay out of use until its queue pair is gone. */
static void release_run(struct rtask *t)
{
	struct rdma_w *w = container_of(t, struct w_task, t)->w;

	rdma_w_pairs_end(w);
	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		release_one(w, &w->slot[i]);
}

/* The node has let go of all our memory. */
static bool is_released(const struct rdma_w *w)
{
	bool none = true;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		none = none && w->slot[i].state == WSLOT_FREE;
	return none || w->closed;
}

/* The transport has let go of all our capsules. */
static bool is_sent(const struct rdma_w *w)
{
	bool busy = w->control.busy;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		busy = busy || w->slot[i].send.busy;
	return !busy;
}

/* Tell the node that no more comes; it need not answer unless it may still read our slots. */
static void cancel(struct rdma_w *w, uint64_t deadline_ns)
{
	struct w_task t = {.w = w};

	rdma_run(w->rdma, &t.t, cancel_run);
	if (!t.rc)
		(void)await(w, is_released, deadline_ns);
}

/* With the lock held. */
static bool is_exposed(const struct rdma_w *w)
{
	bool exposed = false;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		exposed = exposed || w->slot[i].exposed;
	return exposed;
}

/* It runs behind every packet that was handed over: from now on none is sent. */
static void pass_run(struct rtask *t)
{
	container_of(t, struct w_task, t)->w->ending = true;
}

static void give_up_run(struct rtask *t)
{
	rdma_give_up(&container_of(t, struct w_task, t)->w->call);
}

/* What is still with the transport would point into freed memory. A connection that is given up
 * returns all of it: when its queue pair has drained, at the latest when that is destroyed. */
static void settle(struct rdma_w *w, uint64_t deadline_ns)
{
	struct w_task t = {.w = w};

	rdma_run(w->rdma, &t.t, pass_run);
	(void)await(w, is_sent, deadline_ns);
	if (is_sent(w))
		return;
	rdma_run(w->rdma, &t.t, give_up_run);
	pthread_mutex_lock(&w->m.lock);
	while (!is_sent(w)) /* the transport keeps the deadline */
		pthread_cond_wait(&w->m.news, &w->m.lock);
	pthread_mutex_unlock(&w->m.lock);
}

void rdma_w_close(struct wstream *ws)
{
	struct rdma_w *w = w_of(ws);
	const uint64_t deadline = clock_mono_ns() + RDMA_CLOSE_NS;
	struct w_task t = {.w = w};
	bool over;

	if (w->call.conn) {
		pthread_mutex_lock(&w->m.lock);
		over = w->finished || w->closed || w->m.lost;
		pthread_mutex_unlock(&w->m.lock);
		if (!over)
			cancel(w, deadline);
		settle(w, deadline);
		rdma_run(w->rdma, &t.t, release_run);
		pthread_mutex_lock(&w->m.lock);
		while (is_exposed(w)) /* the transport keeps the deadline */
			pthread_cond_wait(&w->m.news, &w->m.lock);
		pthread_mutex_unlock(&w->m.lock);
		rdma_call_end(w->rdma, &w->call);
	}
	log_debug("op=rdma_write_over node=%s copied=%" PRIu64, w->peer, w->copied);
	meeting_fini(&w->m);
	free(w);
}

static bool is_answered(const struct rdma_w *w)
{
	return w->opened || w->closed;
}

static int open_block(struct rdma_w *w, const struct write_setup *setup, int *ret_bad,
		      struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(w->fs, w->nodes);
	struct w_task t = {.w = w};
	struct dtp_write op_msg;
	uint8_t *op;
	size_t len;
	bool known;
	int rc;

	dtp_write_init(&op_msg, w->fs, setup);
	rc = pb_pack(&op_msg.op, &op, &len);
	if (rc < 0)
		return err_set(err, rc, "out of memory for a block");
	w->open_op = (struct capsule_bytes){op, (uint32_t)len};
	rdma_run(w->rdma, &t.t, open_run);
	free(op);
	if (t.rc < 0) {
		err_sys(err, t.rc, "data node %s: opening a block over RDMA failed", w->peer);
		return rdma_no_path(t.rc, err);
	}
	rc = await(w, is_answered, deadline);
	if (rc < 0)
		return err_set(err, rc, "data node %s does not answer over RDMA", w->peer);
	if (w->m.lost) {
		rc = broke(w, err);
		*ret_bad = w->base.broke ? -1 : 0; /* the request may have arrived */
		return rc;
	}
	if (!w->opened)
		return err_set(err, -ECONNRESET, "data node %s gave the block up: %s", w->peer,
			       *w->text ? w->text : "no reason given");
	if (w->open_status == HD__STATUS__SUCCESS)
		return 0;
	*ret_bad = dtp_bad_link(setup->lb, w->bad_link, &known);
	rc = err_set(err, dt_status_errno(w->open_status), "data node %s refuses the block: %s",
		     known && *w->bad_link ? w->bad_link : w->peer,
		     *w->text ? w->text : "no reason given");
	if (!known)
		dtp_stranger(w->peer, w->bad_link, err);
	return rc;
}

int rdma_open_write(struct dfs *fs, const struct write_setup *setup, struct wstream **ret,
		    int *ret_bad, struct err *err)
{
	struct rdma_w *w = calloc(1, sizeof(*w));
	int rc;

	*ret_bad = 0;
	if (!w)
		return err_set(err, -ENOMEM, "out of memory for a block");
	w->base.ops = &stream_rdma;
	w->fs = fs;
	w->nodes = setup->lb->n_locs;
	w->call.on_capsule = w_on_capsule;
	w->call.on_lost = w_on_lost;
	w->call.on_gone = w_on_gone;
	meeting_init(&w->m);
	w->control.sent = w_on_control_sent;
	rdma_w_pairs_init(w);
	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		w->slot[i].w = w;
		w->slot[i].msg.fn = rdma_w_send_run;
		w->slot[i].send.sent = w_on_sent;
		w->slot[i].shut.done = w_on_shut;
	}
	node_text(setup->lb->locs[0]->id, w->peer);
	rc = rdma_reach(fs, setup->lb->locs[0]->id, &w->rdma, &w->call, err);
	if (rc < 0)
		rc = rdma_no_path(rc, err);
	else
		rc = open_block(w, setup, ret_bad, err);
	if (rc < 0) {
		rdma_w_close(&w->base);
		return rc;
	}
	*ret = &w->base;
	return 0;
}
