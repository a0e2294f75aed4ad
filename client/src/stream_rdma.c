/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma - blocks over RDMA; see stream.h and docs/wire.md sections 4 to 6.
 * A packet is copied into a registered slot, where the node reads it from; a read arrives in slots, a
 * few requests ahead, is verified there and copied to the caller. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/dtp.h"
#include "client/src/rdma.h"
#include "client/src/stream.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define CONNECT_NS (1000 * NS_PER_MS)   /* then TCP */
#define CONNECT_REQUIRED_NS (10 * NS_PER_S) /* there is no other way to go */
#define CLOSE_NS (3 * NS_PER_S)       /* for the node to let go of our memory */
#define WRITE_SLOTS 4u
#define READ_SLOTS 3u
#define READ_PIECE (512u << 10)       /* bytes of one READ; the slot has room for a chunk more */
#define ACKS_MAX 64u                  /* more than WRITE_SLOTS and a few stray ones */

/* What both directions share: the place where the reactor leaves word for the caller's thread. */
struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t news;
	int lost; /* -errno when the connection is gone */
	char why[160];
};

static void meeting_init(struct meeting *m)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->news, &a);
	pthread_condattr_destroy(&a);
}

static void meeting_fini(struct meeting *m)
{
	pthread_cond_destroy(&m->news);
	pthread_mutex_destroy(&m->lock);
}

static void meeting_lost(struct meeting *m, int rc, const char *why)
{
	pthread_mutex_lock(&m->lock);
	if (!m->lost) { /* the first reason stays */
		snprintf(m->why, sizeof(m->why), "%s", why);
		m->lost = rc;
	}
	pthread_cond_broadcast(&m->news);
	pthread_mutex_unlock(&m->lock);
}

/* With the lock held. 0, or -ETIMEDOUT. */
static int meeting_wait(struct meeting *m, uint64_t deadline_ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
				    .tv_nsec = (long)(deadline_ns % NS_PER_S)};

	return ret_code(pthread_cond_timedwait(&m->news, &m->lock, &ts));
}

static uint64_t connect_deadline(const struct dfs *fs)
{
	return clock_mono_ns() +
	       (fs->set.rdma == RDMA_REQUIRE ? CONNECT_REQUIRED_NS : CONNECT_NS);
}

/* Nothing of the operation itself has failed: TCP may do. */
static int no_path(int rc, struct err *err)
{
	if (rc == -ENOMEM)
		return rc;
	err->rc = rc == -ENOBUFS ? rc : -ENOLINK; /* ours, for now: the node is not marked */
	return -ENOLINK;
}

/* ---- write ---- */

struct wslot {
	struct rmsg msg; /* to the reactor: send it */
	struct rdma_w *w;
	struct slot *slot, *crc; /* data; its CRCs when the capsule has no room */
	struct rsend send;
	struct packet head; /* seqno, offset, len, crc_len, flags of what is in the slot */
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
	struct wslot slot[WRITE_SLOTS];
	struct rsend control;
	struct capsule_bytes open_op;
};

static struct rdma_w *w_of(struct wstream *s)
{
	return container_of(s, struct rdma_w, base);
}

static void copy_text(char *dst, size_t size, struct capsule_bytes text)
{
	size_t n = text.len < size - 1 ? text.len : size - 1;

	if (n)
		memcpy(dst, text.p, n);
	dst[n] = '\0';
}

static void push_ack(struct rdma_w *w, struct ack a)
{
	if (w->ack_head - w->ack_tail < ACKS_MAX)
		w->ack[w->ack_head++ % ACKS_MAX] = a;
}

static uint32_t slot_after(const struct rdma_w *w, uint32_t i)
{
	do
		i = (i + 1) % WRITE_SLOTS;
	while (!w->slot[i].slot);
	return i;
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
		w->oldest = slot_after(w, w->oldest);
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
		copy_text(w->bad_link, sizeof(w->bad_link), m->open_reply.bad_link);
		copy_text(w->text, sizeof(w->text), m->open_reply.text);
	} else if (m->type == CAPSULE_ACK) {
		take_ack(w, m);
	} else if (m->type == CAPSULE_CLOSED) {
		w->closed = true;
		copy_text(w->text, sizeof(w->text), m->closed.text);
	}
	pthread_cond_broadcast(&w->m.news);
	pthread_mutex_unlock(&w->m.lock);
}

/* Somebody may wait for the capsule's memory. */
static void w_news(struct rdma_w *w)
{
	pthread_mutex_lock(&w->m.lock);
	pthread_cond_broadcast(&w->m.news);
	pthread_mutex_unlock(&w->m.lock);
}

static void w_on_sent(struct rsend *s)
{
	w_news(container_of(s, struct wslot, send)->w);
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

	o->rc = 0;
	for (uint32_t i = 0; i < WRITE_SLOTS && !o->rc; i++) {
		struct wslot *s = &o->w->slot[i];

		s->crc = pool_get(rdma_pool(t->rdma), SLOT_8K, POOL_CLIENT);
		s->slot = s->crc ? pool_get(rdma_pool(t->rdma), SLOT_1M, POOL_CLIENT) : NULL;
		if (!s->slot && i < 2)
			o->rc = -ENOBUFS; /* too many files at a time: this one goes by TCP */
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

static int rdma_w_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	struct wslot *s = &w->slot[w->next];
	int lost;
	bool used;

	(void)err;
	if (p->seqno < 0)
		return 1; /* the connection has heartbeats of its own */
	pthread_mutex_lock(&w->m.lock);
	used = s->used || s->send.busy;
	lost = w->m.lost;
	pthread_mutex_unlock(&w->m.lock);
	if (lost)
		return err_set(err, lost, "data node %s: %s", w->peer, w->m.why);
	if (used)
		return 0;
	if (p->len > s->slot->size || p->crc_len > s->crc->size)
		return err_set(err, -EMSGSIZE, "a packet of %u bytes is too long for RDMA", p->len);
	memcpy(s->slot->data, p->data, p->len);
	memcpy(s->crc->data, p->crc, p->crc_len);
	s->head = (struct packet){.seqno = p->seqno, .offset = p->offset, .len = p->len,
				  .crc_len = p->crc_len, .last = p->last, .sync = p->sync};
	s->msg.fn = send_run;
	pthread_mutex_lock(&w->m.lock);
	s->used = true;
	pthread_mutex_unlock(&w->m.lock);
	w->next = slot_after(w, w->next);
	reactor_post(rdma_reactor(w->rdma), &s->msg);
	return 1;
}

static int rdma_w_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
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

static int rdma_w_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns, struct err *err)
{
	struct rdma_w *w = w_of(ws);
	int rc = 0;

	(void)err;
	pthread_mutex_lock(&w->m.lock);
	while (!rc && w->ack_tail == w->ack_head && !w->m.lost && !w->closed &&
	       !(want_send && !w->slot[w->next].used && !w->slot[w->next].send.busy))
		rc = meeting_wait(&w->m, deadline_ns);
	pthread_mutex_unlock(&w->m.lock);
	return rc < 0 ? 0 : 1;
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

	for (uint32_t i = 0; i < WRITE_SLOTS; i++) {
		struct wslot *s = &w->slot[i];

		if (s->slot && s->used && !w->closed) {
			rdma_quarantine(t->rdma, &w->call, s->slot);
			rdma_quarantine(t->rdma, &w->call, s->crc);
		} else {
			slot_put(s->slot);
			slot_put(s->crc);
		}
		s->slot = s->crc = NULL;
	}
}

static bool any_used(const struct rdma_w *w)
{
	bool used = false;

	for (uint32_t i = 0; i < WRITE_SLOTS; i++)
		used = used || w->slot[i].used;
	return used;
}

static bool any_busy(const struct rdma_w *w)
{
	bool busy = w->control.busy;

	for (uint32_t i = 0; i < WRITE_SLOTS; i++)
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

static void rdma_w_close(struct wstream *ws)
{
	struct rdma_w *w = w_of(ws);
	const uint64_t deadline = clock_mono_ns() + CLOSE_NS;
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
		return no_path(t.rc, err);
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

static int rdma_open_write(struct dfs *fs, const struct write_setup *setup, struct wstream **ret,
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
	w->call.on_capsule = w_on_capsule;
	w->call.on_lost = w_on_lost;
	meeting_init(&w->m);
	w->control.sent = w_on_control_sent;
	for (uint32_t i = 0; i < WRITE_SLOTS; i++) {
		w->slot[i].w = w;
		w->slot[i].send.sent = w_on_sent;
	}
	node_text(setup->lb->locs[0]->id, w->peer);
	rc = rdma_get(fs, &w->rdma, err);
	if (rc == 0)
		rc = node_addr(setup->lb->locs[0]->id, fs->set.use_hostname, false, &addr, err);
	if (rc == 0)
		rc = rdma_call_start(w->rdma, &addr, connect_deadline(fs), &w->call, err);
	if (rc < 0)
		rc = no_path(rc, err);
	else
		rc = open_block(w, setup, ret_bad, err);
	if (rc < 0) {
		rdma_w_close(&w->base);
		return rc;
	}
	*ret = &w->base;
	return 0;
}

/* ---- read ---- */

struct rslot {
	struct rmsg msg;
	struct rdma_r *r;
	struct slot *data, *crc;
	struct rsend send;
	struct rcall call;
	uint64_t offset; /* asked */
	uint32_t len;
	bool asked;      /* under meeting.lock: the node may write to the slots */
	bool answered;
	int status;
	uint8_t crc_type;
	uint32_t bpc, data_len, crc_len;
	uint64_t first;  /* block offset of the first byte in the slot */
	char text[256];
};

struct rdma_r {
	struct rstream base;
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	struct net_addr addr;
	Hd__ExtendedBlockProto block;    /* pool id owned */
	Hc__TokenProto *token;           /* owned */
	struct meeting m;
	uint64_t at, end;                /* next byte for the caller; end of the range */
	uint64_t asked;                  /* next byte to ask for */
	uint32_t slots;                  /* of slot[], with memory */
	uint32_t head, tail;             /* requests in order: slot[tail % slots] is the oldest */
	bool verified;                   /* CRCs of the oldest were checked */
	struct rslot slot[READ_SLOTS];
};

static void r_on_capsule(struct rcall *c, const struct capsule *m)
{
	struct rslot *s = container_of(c, struct rslot, call);
	struct meeting *meet = &s->r->m;

	if (m->type != CAPSULE_READ_REPLY && m->type != CAPSULE_CLOSED)
		return;
	c->id = 0; /* answered: nothing changes what the caller looks at from now on */
	pthread_mutex_lock(&meet->lock);
	s->asked = false;
	s->answered = true;
	if (m->type == CAPSULE_READ_REPLY) {
		s->status = m->read_reply.status;
		s->crc_type = m->read_reply.crc_type;
		s->bpc = m->read_reply.bytes_per_checksum;
		s->first = m->read_reply.chunk_offset;
		s->data_len = m->read_reply.data_len;
		s->crc_len = m->read_reply.crc_len;
		copy_text(s->text, sizeof(s->text), m->read_reply.text);
	} else {
		s->status = HD__STATUS__ERROR;
		copy_text(s->text, sizeof(s->text), m->closed.text);
	}
	pthread_cond_broadcast(&meet->news);
	pthread_mutex_unlock(&meet->lock);
}

static void r_on_lost(struct rcall *c, int rc, const char *why)
{
	meeting_lost(&container_of(c, struct rslot, call)->r->m, rc, why);
}

static int pack_read(const struct rslot *s, uint8_t **ret, size_t *ret_len)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	struct dtp_header h;

	dtp_header_init(&h, s->r->fs, &s->r->block, s->r->token);
	op.header = &h.op;
	op.offset = s->offset;
	op.len = s->len;
	return pb_pack(&op, ret, ret_len);
}

static void ask_run(struct rmsg *msg)
{
	struct rslot *s = container_of(msg, struct rslot, msg);
	struct capsule m = {.type = CAPSULE_READ};
	size_t len = 0;
	uint8_t *op = NULL;
	int rc = -ECONNRESET;

	rdma_call_renew(&s->call);
	if (rdma_capsule_max(&s->call)) {
		struct xremote d = rdma_remote(&s->call, s->data, 0), c = rdma_remote(&s->call, s->crc, 0);

		rc = pack_read(s, &op, &len);
		m.read.dest = (struct capsule_mem){d.addr, d.rkey, s->data->size};
		m.read.crc = (struct capsule_mem){c.addr, c.rkey, s->crc->size};
		m.read.op = (struct capsule_bytes){op, (uint32_t)len};
	}
	if (!rc)
		rc = rdma_send(&s->call, &s->send, &m);
	free(op);
	if (rc < 0) {
		pthread_mutex_lock(&s->r->m.lock);
		s->asked = false; /* nobody was told of the memory */
		pthread_mutex_unlock(&s->r->m.lock);
		meeting_lost(&s->r->m, rc, "a read cannot be sent");
	}
}

/* Keep as many requests under way as there are slots. */
static void ask_ahead(struct rdma_r *r)
{
	while (r->asked < r->end && r->head - r->tail < r->slots) {
		struct rslot *s = &r->slot[r->head % r->slots];
		uint64_t piece_end = (r->asked / READ_PIECE + 1) * READ_PIECE;

		s->offset = r->asked;
		s->len = (uint32_t)((piece_end < r->end ? piece_end : r->end) - r->asked);
		s->asked = true;
		s->answered = false;
		s->msg.fn = ask_run;
		r->asked += s->len;
		r->head++;
		reactor_post(rdma_reactor(r->rdma), &s->msg);
	}
}

struct r_task {
	struct rtask t;
	struct rdma_r *r;
};

/* As many as there are; the first decides. */
static void slots_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;
	struct pool *pool = rdma_pool(t->rdma);

	while (r->slots < READ_SLOTS && r->slot[r->slots].call.conn) {
		struct rslot *s = &r->slot[r->slots];

		s->data = pool_get(pool, SLOT_1M, POOL_CLIENT);
		s->crc = pool_get(pool, SLOT_8K, POOL_CLIENT);
		if (!s->data || !s->crc)
			break; /* r_release_run() gives back what is there */
		r->slots++;
	}
}

static void r_release_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		struct rslot *s = &r->slot[i];

		if (s->data && s->asked) { /* unanswered: the node may still write to it */
			rdma_quarantine(t->rdma, &s->call, s->data);
			rdma_quarantine(t->rdma, &s->call, s->crc);
		} else {
			slot_put(s->data);
			slot_put(s->crc);
		}
		s->data = s->crc = NULL;
		if (s->send.busy)
			rdma_give_up(&s->call);
	}
}

static void rdma_r_close(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + CLOSE_NS;
	struct r_task t = {.r = r};
	int rc = 0;

	if (r->rdma) {
		pthread_mutex_lock(&r->m.lock);
		for (uint32_t i = 0; i < READ_SLOTS; i++)
			while (r->slot[i].asked && !r->m.lost && !rc)
				rc = meeting_wait(&r->m, deadline);
		pthread_mutex_unlock(&r->m.lock);
		rdma_run(r->rdma, &t.t, r_release_run);
		for (uint32_t i = 0; i < READ_SLOTS; i++)
			rdma_call_end(r->rdma, &r->slot[i].call);
	}
	meeting_fini(&r->m);
	free(r->block.poolid);
	pb_free(r->token);
	free(r);
}

/* The oldest answer: shape and CRCs. */
static int verify(struct rdma_r *r, struct rslot *s, struct err *err)
{
	int64_t wrong;

	if (s->status != HD__STATUS__SUCCESS)
		return err_set(err, dt_status_errno(s->status), "data node %s: %s", r->peer,
			       *s->text ? s->text : "the read failed");
	if (s->first > s->offset || s->data_len > s->data->size ||
	    s->first + s->data_len < s->offset + s->len || s->crc_len > s->crc->size ||
	    (s->crc_type != CRC_NULL && (!s->bpc || s->crc_len != crc_bytes((enum crc_type)s->crc_type,
									     s->data_len, s->bpc))))
		return err_set(err, -EPROTO, "data node %s answers a read with nonsense", r->peer);
	wrong = crc_verify((enum crc_type)s->crc_type, s->data->data, s->data_len, s->bpc ? s->bpc : 512,
			   s->crc->data);
	if (wrong >= 0)
		return err_set(err, -EBADMSG, "data node %s: wrong checksum at byte %llu of the block",
			       r->peer, (unsigned long long)(s->first + (uint64_t)wrong * s->bpc));
	r->verified = true;
	return 0;
}

static ssize_t rdma_r_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(r->fs, 0);
	struct rslot *s = &r->slot[r->tail % r->slots];
	uint64_t left;
	int rc = 0;

	pthread_mutex_lock(&r->m.lock);
	while (!rc && !s->answered && !r->m.lost)
		rc = meeting_wait(&r->m, deadline);
	pthread_mutex_unlock(&r->m.lock);
	if (!s->answered)
		return r->m.lost ? err_set(err, r->m.lost, "data node %s: %s", r->peer, r->m.why)
				 : err_set(err, -ETIMEDOUT, "data node %s does not answer a read", r->peer);
	rc = r->verified ? 0 : verify(r, s, err);
	if (rc < 0)
		return rc;
	left = s->offset + s->len - r->at;
	if (len > left)
		len = (size_t)left;
	memcpy(buf, s->data->data + (r->at - s->first), len);
	r->at += len;
	if (r->at == s->offset + s->len) {
		r->tail++;
		r->verified = false;
		ask_ahead(r);
	}
	return (ssize_t)len;
}

static int start_calls(struct rdma_r *r, struct err *err)
{
	const uint64_t deadline = connect_deadline(r->fs);
	uint64_t pieces = (r->end - 1) / READ_PIECE - r->at / READ_PIECE + 1;
	int rc = 0;

	for (uint32_t i = 0; i < READ_SLOTS && i < pieces && !rc; i++) {
		r->slot[i].r = r;
		r->slot[i].call.on_capsule = r_on_capsule;
		r->slot[i].call.on_lost = r_on_lost;
		rc = rdma_call_start(r->rdma, &r->addr, deadline, &r->slot[i].call, err);
	}
	return rc;
}

/* The reader's message may go before the last request is sent. */
static int copy_token(struct rdma_r *r, const Hc__TokenProto *token)
{
	uint8_t *buf;
	size_t len;
	int rc;

	if (!token)
		return 0;
	rc = pb_pack(token, &buf, &len);
	if (rc < 0)
		return rc;
	rc = pb_unpack(&hc__token_proto__descriptor, buf, len, &r->token);
	free(buf);
	return rc;
}

static int rdma_open_read(struct dfs *fs, const struct read_setup *setup, struct rstream **ret,
			  struct err *err)
{
	const Hd__DatanodeInfoProto *node = setup->lb->locs[setup->node];
	struct rdma_r *r = calloc(1, sizeof(*r));
	struct r_task t = {.r = r};
	int rc;

	if (!r)
		return err_set(err, -ENOMEM, "out of memory for a read");
	r->base.ops = &stream_rdma;
	r->fs = fs;
	meeting_init(&r->m);
	node_text(node->id, r->peer);
	r->at = r->asked = setup->offset;
	r->end = setup->offset + setup->len;
	r->block = *setup->lb->b;
	r->block.poolid = strdup(setup->lb->b->poolid);
	rc = r->block.poolid ? copy_token(r, setup->lb->blocktoken) : -ENOMEM;
	if (rc < 0)
		err_set(err, rc, "out of memory for a read");
	else
		rc = rdma_get(fs, &r->rdma, err);
	if (rc == 0)
		rc = node_addr(node->id, fs->set.use_hostname, false, &r->addr, err);
	if (rc == 0)
		rc = start_calls(r, err);
	if (rc == 0) {
		rdma_run(r->rdma, &t.t, slots_run);
		if (!r->slots)
			rc = err_set(err, -ENOBUFS, "too many RDMA reads at a time");
	}
	if (rc < 0) {
		rdma_r_close(&r->base);
		return no_path(rc, err);
	}
	ask_ahead(r);
	*ret = &r->base;
	return 0;
}

const struct block_stream stream_rdma = {
	.name = "rdma",
	.counter = 1,
	.open_write = rdma_open_write,
	.send = rdma_w_send,
	.next_ack = rdma_w_next_ack,
	.wait = rdma_w_wait,
	.close_write = rdma_w_close,
	.open_read = rdma_open_read,
	.read = rdma_r_read,
	.close_read = rdma_r_close,
};
