/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_write - packets in registered memory, which the first node reads; stream_rdma.c. A packet that could
 * not have such memory is copied. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/dtp.h"
#include "client/src/stream_rdma_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/erasure/geometry.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define WRITE_DEPTH 8u /* packets on their way */
#define COPY_SLOTS 4u  /* for those that have no registered memory: one is enough, and sure */
#define ACKS_MAX 64u   /* more than WRITE_DEPTH and a few stray ones */

struct wcopy { /* memory for a packet that has none the node can read */
	struct slot *slot, *crc;
};

struct wslot {
	struct rmsg msg; /* to the reactor: send it */
	struct rdma_w *w;
	struct slot *slot, *crc; /* borrowed, of buf or copy: data; its CRCs when the capsule has no room */
	struct rbuf *buf;        /* counted while the node or the transport may look at it; or NULL: */
	struct wcopy *copy;      /* in use while this is `used` or busy */
	struct rsend send;
	struct packet head; /* seqno, offset, len, crc_len, flags of the packet */
	bool used;          /* under meeting.lock: until its ack */
};

struct rdma_w {
	struct wstream base;
	struct rcall call; /* first of the reactor's view */
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	size_t nodes;
	struct meeting m;
	/* under m.lock */
	bool opened, closed;
	bool finished; /* the last packet is acknowledged: the node's stream is over */
	int open_status;
	char bad_link[NET_TEXT_MAX];
	char text[256];
	struct ack ack[ACKS_MAX];
	uint32_t ack_head, ack_tail;
	uint32_t acks_short; /* an ack for fewer nodes than the pipeline has */
	uint32_t next, oldest; /* wslot to use next; first one not acknowledged */
	struct wslot slot[WRITE_DEPTH];
	struct wcopy copy[COPY_SLOTS];
	bool want_copy;  /* what is to be sent next needs one */
	uint64_t copied; /* bytes */
	struct rsend control;
	struct capsule_bytes open_op;
	bool few_copies; /* one of many streams of a file */
};

static struct rdma_w *w_of(struct wstream *s)
{
	return container_of(s, struct rdma_w, base);
}

static void push_ack(struct rdma_w *w, struct ack a)
{
	if (w->ack_head - w->ack_tail < ACKS_MAX)
		w->ack[w->ack_head++ % ACKS_MAX] = a;
}

static bool is_busy(const struct wslot *s)
{
	return s->used || s->send.busy;
}

/* Nobody looks at the packet any more. */
static void let_go(struct wslot *s)
{
	if (is_busy(s))
		return;
	rdma_buf_put(s->buf);
	s->buf = NULL;
	s->copy = NULL;
}

static struct wcopy *free_copy(struct rdma_w *w)
{
	for (uint32_t i = 0; i < COPY_SLOTS; i++) {
		bool busy = !w->copy[i].slot;

		for (uint32_t k = 0; k < WRITE_DEPTH; k++)
			busy |= w->slot[k].copy == &w->copy[i] && is_busy(&w->slot[k]);
		if (!busy)
			return &w->copy[i];
	}
	return NULL;
}

static bool has_room(struct rdma_w *w)
{
	return !is_busy(&w->slot[w->next]) && (!w->want_copy || free_copy(w));
}

/* One ACK may cover several packets; the writer wants one each. */
static void take_ack(struct rdma_w *w, const struct capsule *m)
{
	for (uint32_t i = m->ack.count; i-- > 0;)
		if (m->ack.status[i] != HD__STATUS__SUCCESS) {
			/* the last one that failed is to blame, hdfs-wire 5.6 */
			push_ack(w, (struct ack){.seqno = m->ack.seqno, .status = m->ack.status[i],
						 .bad = i < w->nodes ? (int)i : (int)w->nodes - 1});
			return;
		}
	if (m->ack.count < w->nodes)
		w->acks_short = m->ack.count;
	while (w->slot[w->oldest].used && w->slot[w->oldest].head.seqno <= m->ack.seqno) {
		w->slot[w->oldest].used = false;
		w->finished |= w->slot[w->oldest].head.last;
		push_ack(w, (struct ack){.seqno = w->slot[w->oldest].head.seqno, .bad = -1});
		let_go(&w->slot[w->oldest]);
		w->oldest = (w->oldest + 1) % WRITE_DEPTH;
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
	meeting_lost(&container_of(c, struct rdma_w, call)->m, rc, why);
}

struct w_task {
	struct rtask t;
	struct rdma_w *w;
	int rc;
};

static void open_run(struct rtask *t)
{
	struct w_task *o = container_of(t, struct w_task, t);
	struct capsule m = {.type = CAPSULE_OPEN_WRITE, .open_write.op = o->w->open_op};
	const uint32_t copies = o->w->few_copies ? 1 : COPY_SLOTS;

	o->rc = 0;
	for (uint32_t i = 0; i < copies && !o->rc; i++) {
		struct wcopy *c = &o->w->copy[i];
		struct slot *pair[2];
		struct pool_ask ask = {.use = POOL_WRITE, .forms = 1, .slots = pair,
				       .form[0] = {2, {{SLOT_1M, 1}, {SLOT_CRC, 1}}}};

		if (pool_take(rdma_pool(t->rdma), &ask)) {
			c->slot = pair[0];
			c->crc = pair[1];
		} else if (i == 0) {
			o->rc = -ENOBUFS; /* too many files at a time: this one goes by TCP */
		}
	}
	if (!o->rc)
		o->rc = rdma_send(&o->w->call, &o->w->control, &m);
}

/* A small piece rides along; a larger one is named. CRCs ride in the capsule where they fit, else
 * they are named, too. */
static int send_data(struct wslot *s, struct capsule *m, uint32_t max)
{
	struct rcall *c = &s->w->call;
	const uint32_t len = s->head.len, crc_len = s->head.crc_len;
	const bool crc_fits = capsule_crc_fits(crc_len, max);
	const struct xremote data = rdma_remote(c, s->slot, 0), crc = rdma_remote(c, s->crc, 0);

	m->write.crc.len = crc_len;
	if (crc_fits)
		m->write.crc.p = s->crc->data;
	else
		m->write.crc_mem = (struct capsule_mem){crc.addr, crc.rkey, crc_len};
	if (crc_fits && len <= rdma_eager_max(c))
		return rdma_send_eager(c, &s->send, m, s->slot, len);
	m->write.data = (struct capsule_mem){data.addr, data.rkey, len};
	return rdma_send(c, &s->send, m);
}

static void send_run(struct rmsg *msg)
{
	struct wslot *s = container_of(msg, struct wslot, msg);
	const struct packet *p = &s->head;
	const uint32_t max = rdma_capsule_max(&s->w->call);
	struct capsule m = {.type = CAPSULE_WRITE, .write = {.seqno = p->seqno, .offset = p->offset,
							     .data_len = p->len}};
	int rc = -ECONNRESET;

	m.flags = (uint16_t)((p->last ? CAPSULE_LAST : 0) | (p->sync ? CAPSULE_SYNC : 0));
	if (max)
		rc = p->len ? send_data(s, &m, max) : rdma_send(&s->w->call, &s->send, &m);
	if (rc < 0 && rc != -ECONNRESET)
		meeting_lost(&s->w->m, rc, "a packet cannot be put into a capsule");
}

int rdma_w_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	struct wslot *s = &w->slot[w->next];
	struct wcopy *copy = NULL;
	int lost;
	bool room;

	(void)err;
	pthread_mutex_lock(&w->m.lock);
	w->want_copy = p->len && !(p->buf && p->buf->rdma == w->rdma);
	room = has_room(w);
	copy = room && w->want_copy ? free_copy(w) : NULL;
	lost = w->m.lost;
	pthread_mutex_unlock(&w->m.lock);
	if (lost)
		return err_set(err, lost, "data node %s: %s", w->peer, w->m.why);
	if (!room)
		return 0;
	if (copy && (p->len > copy->slot->size || p->crc_len > copy->crc->size))
		return err_set(err, -EMSGSIZE, "a packet of %u bytes is too long for RDMA", p->len);
	if (copy) {
		memcpy(copy->slot->data, p->data, p->len);
		memcpy(copy->crc->data, p->crc, p->crc_len);
		w->copied += p->len;
	} else if (p->len) {
		s->buf = rdma_buf_ref(p->buf);
	}
	s->copy = copy;
	s->slot = copy ? copy->slot : s->buf ? s->buf->data : NULL;
	s->crc = copy ? copy->crc : s->buf ? s->buf->crc : NULL;
	s->head = (struct packet){.seqno = p->seqno, .offset = p->offset, .len = p->len,
				  .crc_len = p->crc_len, .last = p->last, .sync = p->sync};
	s->msg.fn = send_run;
	pthread_mutex_lock(&w->m.lock);
	s->used = true;
	pthread_mutex_unlock(&w->m.lock);
	w->next = (w->next + 1) % WRITE_DEPTH;
	reactor_post(rdma_reactor(w->rdma), &s->msg);
	return 1;
}

int rdma_w_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	int rc = 0;

	pthread_mutex_lock(&w->m.lock);
	if (w->ack_tail != w->ack_head) {
		*ret = w->ack[w->ack_tail++ % ACKS_MAX];
		rc = 1;
	} else if (w->acks_short) {
		rc = err_set(err, -EPROTO, "data node %s acknowledges for %u of %zu nodes", w->peer,
			     w->acks_short, w->nodes);
	} else if (w->m.lost) {
		rc = err_set(err, w->m.lost, "data node %s: %s", w->peer, w->m.why);
	} else if (w->closed) {
		rc = err_set(err, -ECONNRESET, "data node %s ended the block: %s", w->peer,
			     *w->text ? w->text : "no reason given");
	}
	pthread_mutex_unlock(&w->m.lock);
	return rc;
}

int rdma_w_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	int rc = 0;

	(void)err;
	pthread_mutex_lock(&w->m.lock);
	while (!rc && w->ack_tail == w->ack_head && !w->m.lost && !w->closed && !(want_send && has_room(w)))
		rc = meeting_wait(&w->m, deadline_ns);
	pthread_mutex_unlock(&w->m.lock);
	return rc < 0 ? 0 : 1;
}

int rdma_w_poll(struct wstream *ws, bool want_send, struct pollfd *ret)
{
	struct rdma_w *w = w_of(ws);
	int rc;

	pthread_mutex_lock(&w->m.lock);
	if (w->ack_tail != w->ack_head || w->m.lost || w->closed || (want_send && has_room(w)))
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

	o->rc = o->w->control.busy ? -EBUSY : rdma_send(&o->w->call, &o->w->control, &m);
}

/* The node lets go of the slots by CLOSED, or they stay out of use until its queue pair is gone. */
static void release_run(struct rtask *t)
{
	struct rdma_w *w = container_of(t, struct w_task, t)->w;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		struct wslot *s = &w->slot[i];

		if (s->buf && s->used && !w->closed)
			rdma_quarantine_buf(t->rdma, &w->call, s->buf);
		else
			rdma_buf_put(s->buf);
		s->buf = NULL;
		if (s->copy && s->used && !w->closed) {
			rdma_quarantine(t->rdma, &w->call, s->copy->slot);
			rdma_quarantine(t->rdma, &w->call, s->copy->crc);
			*s->copy = (struct wcopy){NULL, NULL};
		}
		s->copy = NULL;
	}
	for (uint32_t i = 0; i < COPY_SLOTS; i++) {
		slot_put(w->copy[i].slot);
		slot_put(w->copy[i].crc);
		w->copy[i] = (struct wcopy){NULL, NULL};
	}
}

static bool any_used(const struct rdma_w *w)
{
	bool used = false;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		used = used || w->slot[i].used;
	return used;
}

static bool any_busy(const struct rdma_w *w)
{
	bool busy = w->control.busy;

	for (uint32_t i = 0; i < WRITE_DEPTH; i++)
		busy = busy || w->slot[i].send.busy;
	return busy;
}

/* Tell the node that no more comes; it need not answer unless it may still read our slots. */
static void cancel(struct rdma_w *w, uint64_t deadline_ns)
{
	struct w_task t = {.w = w};

	rdma_run(w->rdma, &t.t, cancel_run);
	pthread_mutex_lock(&w->m.lock);
	while (!t.rc && any_used(w) && !w->closed && !w->m.lost &&
	       meeting_wait(&w->m, deadline_ns) == 0)
		;
	pthread_mutex_unlock(&w->m.lock);
}

static void look_run(struct rtask *t)
{
	struct w_task *o = container_of(t, struct w_task, t);

	o->rc = any_busy(o->w); /* behind every packet that was handed over */
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

	rdma_run(w->rdma, &t.t, look_run);
	pthread_mutex_lock(&w->m.lock);
	while (any_busy(w) && !w->m.lost && meeting_wait(&w->m, deadline_ns) == 0)
		;
	pthread_mutex_unlock(&w->m.lock);
	if (!any_busy(w))
		return;
	rdma_run(w->rdma, &t.t, give_up_run);
	pthread_mutex_lock(&w->m.lock);
	while (any_busy(w)) /* the transport keeps the deadline */
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
		rdma_call_end(w->rdma, &w->call);
	}
	log_debug("op=rdma_write_over node=%s copied=%" PRIu64, w->peer, w->copied);
	meeting_fini(&w->m);
	free(w);
}

static int open_block(struct rdma_w *w, const struct write_setup *setup, int *ret_bad,
		      struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(w->fs, w->nodes);
	struct w_task t = {.w = w};
	struct dtp_write op_msg;
	uint8_t *op;
	size_t len;
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
	pthread_mutex_lock(&w->m.lock);
	while (!rc && !w->opened && !w->closed && !w->m.lost)
		rc = meeting_wait(&w->m, deadline);
	pthread_mutex_unlock(&w->m.lock);
	if (rc < 0)
		return err_set(err, rc, "data node %s does not answer over RDMA", w->peer);
	if (w->m.lost)
		return err_set(err, w->m.lost, "data node %s: %s", w->peer, w->m.why);
	if (!w->opened)
		return err_set(err, -ECONNRESET, "data node %s gave the block up: %s", w->peer,
			       *w->text ? w->text : "no reason given");
	if (w->open_status == HD__STATUS__SUCCESS)
		return 0;
	*ret_bad = dtp_bad_link(setup->lb, w->bad_link);
	return err_set(err, dt_status_errno(w->open_status), "data node %s refuses the block: %s",
		       *w->bad_link ? w->bad_link : w->peer, *w->text ? w->text : "no reason given");
}

int rdma_open_write(struct dfs *fs, const struct write_setup *setup, struct wstream **ret,
			   int *ret_bad, struct err *err)
{
	struct rdma_w *w = calloc(1, sizeof(*w));
	struct net_addr addr;
	int rc;

	*ret_bad = 0;
	if (!w)
		return err_set(err, -ENOMEM, "out of memory for a block");
	w->base.ops = &stream_rdma;
	w->fs = fs;
	w->nodes = setup->lb->n_locs;
	w->few_copies = ec_id_is_striped((int64_t)setup->block->blockid);
	w->call.on_capsule = w_on_capsule;
	w->call.on_lost = w_on_lost;
	meeting_init(&w->m);
	w->control.sent = w_on_control_sent;
	for (uint32_t i = 0; i < WRITE_DEPTH; i++) {
		w->slot[i].w = w;
		w->slot[i].send.sent = w_on_sent;
	}
	node_text(setup->lb->locs[0]->id, w->peer);
	rc = rdma_get(fs, &w->rdma, err);
	if (rc == 0)
		rc = node_addr(setup->lb->locs[0]->id, fs->set.use_hostname, false, &addr, err);
	if (rc == 0)
		rc = rdma_call_start(w->rdma, &addr, rdma_connect_deadline(fs), &w->call, err);
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
