/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_read - a range of a block arrives in registered slots, asked for ahead; stream_rdma.c
 */
#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/stream/stream_rdma_internal.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define READ_SLOTS 3u                 /* requests under way */
#define READ_PIECE (512u << 10)       /* bytes of one request; the slot has room for a chunk more */
#define GIVEN_UP_NS (100 * NS_PER_MS) /* a node whose disk is slow answers a CANCEL sooner */

struct rslot {
	struct rdma_r *r;
	struct slot *data, *crc; /* [R] NULL: none */
	struct rsend send;
	struct rcall call;
	uint64_t offset; /* asked */
	uint32_t len;
	uint32_t made_for; /* bytes per checksum */
	bool asked;        /* [R] writes, under meeting.lock: the node may write to the slots */
	bool cancelled;    /* [R] */
	bool answered;
	int status;
	uint8_t crc_type;
	uint32_t bpc, data_len, crc_len;
	uint64_t first; /* block offset of the first byte in the slot */
	char text[256];
};

/* Requests have numbers: `tail` is what the caller reads next, those from `next` on are not made
 * yet.
 * All of a request is the reactor's, but while it is answered and not below `tail`, the caller
 * reads it.
 * [R]: of the reactor's thread alone. */
struct rdma_r {
	struct rstream base;
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	struct net_addr addr;
	Hd__ExtendedBlockProto block; /* pool id owned */
	Hc__TokenProto *token;        /* owned */
	struct meeting m;
	/* under m.lock */
	uint64_t at;      /* next byte for the caller */
	uint64_t used_ns; /* when the caller was here, or bytes came */
	uint32_t tail;
	bool reading;     /* the caller looks at slot[tail], or sleeps till it can */
	bool verified;    /* CRCs of the oldest were checked */
	bool parked;      /* slots are given back, nothing is asked for till the
					  * caller comes */
	bool posted;      /* msg is on its way, */
	bool stop_posted; /* and stop_msg */
	/* since when it is to come to rest and does not; 0: it need not */
	uint64_t stop_ns;
	bool waits; /* in line for slots */
	/* [R] */
	uint64_t end, asked;  /* of the range; next byte to ask for */
	uint32_t next, freed; /* requests below `freed` have given their slots back */
	uint32_t bpc;         /* the block's bytes per checksum, as far as is known */
	bool learned, dropping, closed;
	bool stopped;  /* what is dropped is cancelled, too */
	uint32_t drop; /* while dropping: it and later requests are made again */
	uint64_t drop_at;
	struct pool_ask ask;
	struct slot *got[2];
	bool granted; /* got[] is there */
	struct rtimer wait_over;
	struct rholder holder;
	struct rop rop;       /* ask_more() */
	struct rmsg msg;      /* the caller has used something up, or is back */
	struct rmsg stop_msg; /* it is gone for the time being */
	struct rslot slot[READ_SLOTS];
};

static struct rslot *slot_of(struct rdma_r *r, uint32_t number)
{
	return &r->slot[number % READ_SLOTS];
}

/* For what has changed: ask_more(). */
static void look_again(struct rdma_r *r)
{
	if (!r->closed)
		reactor_ready(rdma_reactor(r->rdma), &r->rop);
}

static void give_back(struct rslot *s)
{
	slot_put(s->data);
	slot_put(s->crc);
	s->data = s->crc = NULL;
}

/* ---- requests that are made again, once none of them is under way ---- */

static void drop_some(struct rdma_r *r)
{
	for (uint32_t i = r->drop; i != r->next; i++)
		if (slot_of(r, i)->asked)
			return;
	for (uint32_t i = r->drop; i != r->next; i++)
		give_back(slot_of(r, i));
	r->next = r->drop;
	r->asked = r->drop_at;
	r->dropping = r->stopped = false;
	look_again(r);
}

/* With the lock held. */
static void forget_answers(struct rdma_r *r, uint32_t from)
{
	for (uint32_t i = from; i != r->next; i++)
		slot_of(r, i)->answered = false;
}

static void drop_from(struct rdma_r *r, uint32_t number, uint64_t at)
{
	pthread_mutex_lock(&r->m.lock);
	forget_answers(r, number);
	pthread_mutex_unlock(&r->m.lock);
	if (!r->dropping || number - r->freed < r->drop - r->freed) {
		r->drop = number;
		r->drop_at = at;
	}
	r->dropping = true;
	drop_some(r);
}

/* Nobody reads on: what came is given back, and asked for again when somebody does. */
static void r_shed(struct rholder *h, uint64_t before_ns)
{
	struct rdma_r *r = container_of(h, struct rdma_r, holder);
	uint64_t at;
	uint32_t tail;
	bool idle;

	pthread_mutex_lock(&r->m.lock);
	tail = r->tail;
	at = r->at;
	idle = tail != r->next && slot_of(r, tail)->answered && !r->reading &&
	       r->used_ns < before_ns;
	if (idle) {
		r->parked = true;
		r->verified = false;
		forget_answers(r, tail);
	}
	pthread_mutex_unlock(&r->m.lock);
	if (idle)
		drop_from(r, tail, at);
}

/* ---- answers ---- */

/* The chunks are longer than @s was made for: it is made again, once. */
static bool wants_room(const struct rslot *s, const struct capsule *m)
{
	const uint32_t bpc = m->read_reply.bytes_per_checksum;

	if (m->type != CAPSULE_READ_REPLY || !m->read_reply.data_len || !bpc ||
	    m->read_reply.status != HD__STATUS__ERROR_UNSUPPORTED)
		return false;
	return s->made_for != bpc && (!s->r->learned || s->r->bpc == bpc);
}

static void take_reply(struct rslot *s, const struct capsule *m)
{
	if (m->type == CAPSULE_READ_REPLY) {
		s->status = m->read_reply.status;
		s->crc_type = m->read_reply.crc_type;
		s->bpc = m->read_reply.bytes_per_checksum;
		s->first = m->read_reply.chunk_offset;
		s->data_len = m->read_reply.data_len;
		s->crc_len = m->read_reply.crc_len;
		rdma_copy_text(s->text, sizeof(s->text), m->read_reply.text);
	} else {
		s->status = HD__STATUS__ERROR;
		rdma_copy_text(s->text, sizeof(s->text), m->closed.text);
	}
}

/* The number of the request that @s is now. */
static uint32_t number_of(const struct rdma_r *r, const struct rslot *s)
{
	uint32_t i = r->freed;

	while (&r->slot[i % READ_SLOTS] != s)
		i++;
	return i;
}

static void r_on_capsule(struct rcall *c, const struct capsule *m)
{
	struct rslot *s = container_of(c, struct rslot, call);
	struct rdma_r *r = s->r;
	uint32_t number;
	bool again, drop;

	if (!s->asked || (m->type != CAPSULE_READ_REPLY && m->type != CAPSULE_CLOSED))
		return; /* what was answered is the caller's */
	number = number_of(r, s);
	again = wants_room(s, m);
	drop = r->dropping && number - r->freed >= r->drop - r->freed;
	if (!again && !drop)
		take_reply(s, m);
	pthread_mutex_lock(&r->m.lock);
	s->asked = false;
	s->answered = !again && !drop;
	r->used_ns = clock_mono_ns();
	meeting_ring(&r->m);
	pthread_mutex_unlock(&r->m.lock);
	if (again) {
		r->bpc = m->read_reply.bytes_per_checksum;
		r->learned = true;
		drop_from(r, number, s->offset);
	} else if (drop) {
		drop_some(r);
	}
}

static void r_on_lost(struct rcall *c, int rc, const char *why)
{
	struct rdma_r *r = container_of(c, struct rslot, call)->r;

	meeting_lost(&r->m, rc, why);
	look_again(r);
}

/* The node is to let go of the slots: it answers at once. */
static void cancel_request(struct rslot *s)
{
	struct capsule m = {.type = CAPSULE_CANCEL};

	if (!s->asked || !s->data || s->cancelled || s->send.busy)
		return;
	s->cancelled = true;
	(void)rdma_send(&s->call, &s->send, &m); /* a lost connection is told */
}

static void r_on_sent(struct rsend *send)
{
	struct rslot *s = container_of(send, struct rslot, send);
	struct rdma_r *r = s->r;

	if (r->closed || r->stopped)
		cancel_request(s);
	pthread_mutex_lock(&r->m.lock);
	meeting_ring(&r->m); /* it may be about to close */
	pthread_mutex_unlock(&r->m.lock);
	look_again(r);
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

static void send_request(struct rslot *s)
{
	struct capsule m = {.type = CAPSULE_READ};
	uint8_t *op = NULL;
	size_t len = 0;
	int rc = -ECONNRESET;

	if (rdma_capsule_max(&s->call)) {
		struct xremote d = rdma_remote(&s->call, s->data, 0),
			       c = rdma_remote(&s->call, s->crc, 0);

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

/* ---- slots for a request ---- */

/* Bytes of the whole chunks that [@at, @end) is in. */
static uint64_t whole_chunks(const struct rdma_r *r, uint64_t at, uint64_t end)
{
	return (end + r->bpc - 1) / r->bpc * r->bpc - at / r->bpc * r->bpc;
}

/* Where a request at @at ends whose data go to a slot of @size, and their CRCs to one of any size.
 */
static uint64_t request_end(const struct rdma_r *r, uint64_t at, uint32_t size)
{
	uint32_t piece = size == RDMA_BUF_BYTES ? READ_PIECE : size / 2;
	uint64_t end;

	if (piece / r->bpc > RDMA_BUF_BYTES / 4)
		piece = RDMA_BUF_BYTES / 4;
	end = (at / piece + 1) * piece;
	if (end > r->end || (size < RDMA_BUF_BYTES && whole_chunks(r, at, r->end) <= size))
		end = r->end;
	return end;
}

static void add_form(struct rdma_r *r, enum slot_class cls)
{
	const uint64_t end = request_end(r, r->asked, slot_class_size(cls));
	const uint64_t crcs = whole_chunks(r, r->asked, end) / r->bpc * 4;
	const enum slot_class crc = rdma_crc_class(crcs);

	r->ask.form[r->ask.forms++] = (struct pool_set){2, {{(uint8_t)cls, 1}, {(uint8_t)crc, 1}}};
}

/* A short range wants a small slot and never a large one; a long one does with 64 KiB while those
 * of 1 MiB are short. */
static void plan(struct rdma_r *r)
{
	const uint64_t bytes = whole_chunks(r, r->asked, r->end);
	const enum slot_class cls = bytes <= RDMA_BUF_BYTES ? rdma_class(bytes) : SLOT_1M;

	r->ask.use = POOL_READ;
	r->ask.slots = r->got;
	r->ask.forms = 0;
	add_form(r, cls);
	if (cls == SLOT_8K || (cls == SLOT_1M && r->bpc <= slot_class_size(SLOT_64K) / 4))
		add_form(r, SLOT_64K);
}

static void make_request(struct rdma_r *r)
{
	struct rslot *s = slot_of(r, r->next);

	s->data = r->got[0];
	s->crc = r->got[1];
	s->offset = r->asked;
	s->made_for = r->bpc;
	s->len = (uint32_t)(request_end(r, r->asked, s->data->size) - r->asked);
	r->asked += s->len;
	s->cancelled = false;
	pthread_mutex_lock(&r->m.lock);
	s->asked = true;
	s->answered = false;
	r->next++;
	pthread_mutex_unlock(&r->m.lock);
	if (!s->call.conn)
		rdma_call_join(&s->call, &r->slot[0].call);
	else
		rdma_call_renew(&s->call);
	send_request(s);
}

static void end_wait(struct rdma_r *r)
{
	reactor_timer_clear(rdma_reactor(r->rdma), &r->wait_over);
	pthread_mutex_lock(&r->m.lock);
	r->waits = false;
	pthread_mutex_unlock(&r->m.lock);
}

/* Inside some slot_put(). */
static void on_granted(struct pool_ask *a)
{
	struct rdma_r *r = container_of(a, struct rdma_r, ask);

	r->granted = true;
	look_again(r);
}

static void on_wait_over(struct rtimer *t)
{
	struct rdma_r *r = container_of(t, struct rdma_r, wait_over);

	if (r->granted)
		return;
	pool_wait_cancel(rdma_pool(r->rdma), &r->ask);
	end_wait(r);
	meeting_lost(&r->m, -ENOBUFS, "no buffer in time");
}

static void begin_wait(struct rdma_r *r)
{
	pthread_mutex_lock(&r->m.lock);
	r->waits = true;
	pthread_mutex_unlock(&r->m.lock);
	r->ask.granted = on_granted;
	reactor_timer_set(rdma_reactor(r->rdma), &r->wait_over,
			  clock_mono_ns() + rdma_wait_ns(r->fs));
	pool_wait(rdma_pool(r->rdma), &r->ask);
}

/* May another request be made now? */
static bool can_ask(struct rdma_r *r)
{
	bool can;

	pthread_mutex_lock(&r->m.lock);
	can = !r->m.lost && !r->parked && !r->waits && rdma_capsule_max(&r->slot[0].call) > 0;
	pthread_mutex_unlock(&r->m.lock);
	return can && !r->closed && !r->dropping && r->asked < r->end &&
	       r->next - r->freed < READ_SLOTS && !slot_of(r, r->next)->send.busy;
}

/* As many requests as there are slots for. Only who has none waits in line. */
static void ask_more(struct rdma_r *r, bool wait)
{
	if (r->granted && !r->closed) {
		r->granted = false;
		end_wait(r);
		make_request(r);
	}
	while (can_ask(r)) {
		plan(r);
		if (pool_take(rdma_pool(r->rdma), &r->ask)) {
			make_request(r);
		} else {
			if (wait && r->next == r->freed)
				begin_wait(r);
			return;
		}
	}
}

static bool r_step(struct rop *op)
{
	ask_more(container_of(op, struct rdma_r, rop), true);
	return false;
}

/* The caller has used up what is below `tail`, or is back. */
static void r_turn(struct rmsg *msg)
{
	struct rdma_r *r = container_of(msg, struct rdma_r, msg);
	uint32_t tail;

	pthread_mutex_lock(&r->m.lock);
	r->posted = false;
	tail = r->tail;
	pthread_mutex_unlock(&r->m.lock);
	for (; r->freed != tail; r->freed++)
		give_back(slot_of(r, r->freed));
	ask_more(r, true);
}

/* With the lock held. */
static bool claim_msg(struct rdma_r *r)
{
	const bool mine = !r->posted;

	r->posted = true;
	return mine;
}

struct r_task {
	struct rtask t;
	struct rdma_r *r;
	bool dry; /* there was no slot */
};

/* For now only what is there: whether to wait is for the caller to say. */
static void r_begin_run(struct rtask *t)
{
	struct r_task *b = container_of(t, struct r_task, t);
	struct rdma_r *r = b->r;

	rdma_holder_add(r->rdma, &r->holder);
	ask_more(r, r->fs->set.rdma == RDMA_REQUIRE);
	b->dry = r->next == r->freed && !r->m.lost;
}

static void r_release_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	r->closed = true;
	rdma_holder_remove(&r->holder);
	reactor_timer_clear(rdma_reactor(r->rdma), &r->wait_over);
	if (r->granted) {
		slot_put(r->got[0]);
		slot_put(r->got[1]);
	} else if (r->ask.granted) {
		pool_wait_cancel(rdma_pool(r->rdma), &r->ask);
	}
	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		struct rslot *s = &r->slot[i];

		if (s->data && s->asked) { /* unanswered: the node may still write to it */
			rdma_quarantine(t->rdma, &s->call, s->data);
			rdma_quarantine(t->rdma, &s->call, s->crc);
			s->data = s->crc = NULL;
		} else {
			give_back(s);
		}
		if (s->send.busy)
			rdma_give_up(&s->call);
	}
	list_del(&r->rop.ready_link);
}

/* With the lock held. */
static bool is_sending(const struct rdma_r *r)
{
	bool busy = false;

	for (uint32_t i = 0; i < READ_SLOTS; i++)
		busy |= r->slot[i].send.busy;
	return busy;
}

/* Nothing is under way: neither a request nor a capsule. With the lock held. */
static bool is_settled(const struct rdma_r *r)
{
	for (uint32_t i = 0; i < READ_SLOTS; i++)
		if (r->slot[i].asked)
			return false;
	return !is_sending(r);
}

static void cancel_all(struct rdma_r *r)
{
	for (uint32_t i = 0; i < READ_SLOTS; i++)
		cancel_request(&r->slot[i]);
}

/* What is asked for is cancelled, and asked for again when the caller is back. */
static void r_stop(struct rmsg *msg)
{
	struct rdma_r *r = container_of(msg, struct rdma_r, stop_msg);
	uint64_t at, stop_ns;
	uint32_t tail;

	pthread_mutex_lock(&r->m.lock);
	r->stop_posted = false;
	tail = r->tail;
	at = r->at;
	stop_ns = r->stop_ns;
	if (stop_ns) {
		r->parked = true;
		r->verified = false;
		forget_answers(r, tail);
	}
	pthread_mutex_unlock(&r->m.lock);
	if (!stop_ns)
		return; /* it is back */
	if (clock_mono_ns() - stop_ns >= stream_timeout_ns(r->fs, 0)) {
		rdma_give_up(&r->slot[0].call); /* a node answers a CANCEL at once */
		return;
	}
	r->stopped = true;
	drop_from(r, tail, at);
	if (r->stopped)
		cancel_all(r);
}

bool rdma_r_come_to_rest(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	bool settled, post = false;

	pthread_mutex_lock(&r->m.lock);
	settled = r->m.lost || is_settled(r);
	if (!settled) {
		if (!r->stop_ns)
			r->stop_ns = clock_mono_ns();
		post = !r->stop_posted;
		r->stop_posted = true;
	}
	pthread_mutex_unlock(&r->m.lock);
	if (post)
		reactor_post(rdma_reactor(r->rdma), &r->stop_msg);
	return settled;
}

static void r_stop_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	r->closed = true;
	cancel_all(r);
}

void rdma_r_close(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + (rs->given_up ? GIVEN_UP_NS : RDMA_CLOSE_NS);
	struct r_task t = {.r = r};
	int rc = 0;

	if (r->rdma) {
		if (r->at < r->end)
			rdma_run(r->rdma, &t.t, r_stop_run);
		pthread_mutex_lock(&r->m.lock);
		while (!is_settled(r) && !r->m.lost && !rc)
			rc = meeting_wait(&r->m, deadline);
		pthread_mutex_unlock(&r->m.lock);
		rdma_run(r->rdma, &t.t, r_release_run);
		pthread_mutex_lock(&r->m.lock);
		while (is_sending(r)) /* it was given up: the transport keeps the deadline */
			pthread_cond_wait(&r->m.news, &r->m.lock);
		pthread_mutex_unlock(&r->m.lock);
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
	    (s->crc_type != CRC_NULL &&
	     (!s->bpc || s->crc_len != crc_bytes((enum crc_type)s->crc_type, s->data_len, s->bpc))))
		return err_set(err, -EPROTO, "data node %s answers a read with nonsense", r->peer);
	wrong = crc_verify((enum crc_type)s->crc_type, s->data->data, s->data_len,
			   s->bpc ? s->bpc : 512, s->crc->data);
	if (wrong >= 0)
		return err_set(err, -EBADMSG,
			       "data node %s: wrong checksum at byte %llu of the block", r->peer,
			       (unsigned long long)(s->first + (uint64_t)wrong * s->bpc));
	r->verified = true;
	return 0;
}

/* Why no answer will come. */
static int no_answer(const struct rdma_r *r, struct err *err)
{
	if (r->m.lost == -ENOBUFS)
		return stream_no_buffers(r->fs, "a read", err);
	if (r->m.lost)
		return err_set(err, r->m.lost, "data node %s: %s", r->peer, r->m.why);
	if (r->waits)
		return stream_no_buffers(r->fs, "a read", err);
	return err_set(err, -ETIMEDOUT, "data node %s does not answer a read", r->peer);
}

/* The caller has it to itself while `reading` is set. */
static ssize_t take(struct rdma_r *r, void *buf, size_t len, struct err *err)
{
	struct rslot *s = slot_of(r, r->tail);
	const int rc = r->verified ? 0 : verify(r, s, err);
	const uint64_t left = s->offset + s->len - r->at;

	if (rc < 0)
		return rc;
	if (len > left)
		len = (size_t)left;
	memcpy(buf, s->data->data + (r->at - s->first), len);
	return (ssize_t)len;
}

/* @n bytes were taken: the request may be used up. */
static void took(struct rdma_r *r, ssize_t n)
{
	struct rslot *s = slot_of(r, r->tail);
	bool post = false;

	pthread_mutex_lock(&r->m.lock);
	r->reading = false;
	r->used_ns = clock_mono_ns();
	if (n > 0)
		r->at += (uint64_t)n;
	if (n > 0 && r->at == s->offset + s->len) {
		s->answered = false;
		r->tail++;
		r->verified = false;
		post = claim_msg(r);
	}
	pthread_mutex_unlock(&r->m.lock);
	if (post)
		reactor_post(rdma_reactor(r->rdma), &r->msg);
}

/* The caller is here. True: there is something to read, which is its own until took(). With the
 * lock held, which is let go while the reactor is told: the answer may come meanwhile. */
static bool come(struct rdma_r *r)
{
	const bool post = r->parked && claim_msg(r);

	r->used_ns = clock_mono_ns();
	r->parked = false;
	r->stop_ns = 0;
	if (post) {
		pthread_mutex_unlock(&r->m.lock);
		reactor_post(rdma_reactor(r->rdma), &r->msg);
		pthread_mutex_lock(&r->m.lock);
	}
	r->reading = slot_of(r, r->tail)->answered;
	return r->reading;
}

static ssize_t take_some(struct rdma_r *r, void *buf, size_t len, struct err *err)
{
	const ssize_t n = take(r, buf, len, err);

	took(r, n);
	return n;
}

ssize_t rdma_r_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t timeout = stream_timeout_ns(r->fs, 0);
	uint64_t deadline = clock_mono_ns() + timeout;
	bool there, waited = false;
	int rc = 0;

	pthread_mutex_lock(&r->m.lock);
	while (!(there = come(r)) && !rc && !r->m.lost) {
		r->reading = true;       /* what comes is not given back before it is seen */
		if (waited && !r->waits) /* the node's time begins when it is asked */
			deadline = clock_mono_ns() + timeout;
		waited = r->waits;
		rc = meeting_wait(&r->m, waited ? deadline + rdma_wait_ns(r->fs) : deadline);
	}
	r->reading = there;
	pthread_mutex_unlock(&r->m.lock);
	return there ? take_some(r, buf, len, err) : no_answer(r, err);
}

ssize_t rdma_r_try(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	bool there;
	int lost;

	pthread_mutex_lock(&r->m.lock);
	there = come(r);
	lost = r->m.lost;
	pthread_mutex_unlock(&r->m.lock);
	return there ? take_some(r, buf, len, err) : lost ? no_answer(r, err) : 0;
}

int rdma_r_poll(struct rstream *rs, struct pollfd *ret)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	int rc = 1;

	pthread_mutex_lock(&r->m.lock);
	if (!slot_of(r, r->tail)->answered && !r->m.lost && !r->parked)
		rc = meeting_poll(&r->m, ret);
	pthread_mutex_unlock(&r->m.lock);
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

static void init_slots(struct rdma_r *r)
{
	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		r->slot[i].r = r;
		r->slot[i].call.on_capsule = r_on_capsule;
		r->slot[i].call.on_lost = r_on_lost;
		r->slot[i].send.sent = r_on_sent;
	}
	r->holder.shed = r_shed;
	r->wait_over.fire = on_wait_over;
	r->msg.fn = r_turn;
	r->stop_msg.fn = r_stop;
	rop_init(&r->rop, r_step, NULL);
}

/* Where RDMA is required the stream waits in line for its first slot; else TCP does as well. */
static int begin(struct rdma_r *r, struct err *err)
{
	struct r_task t = {.r = r};
	int rc = rdma_call_start(r->rdma, &r->addr, rdma_connect_deadline(r->fs), &r->slot[0].call,
				 err);

	if (rc < 0)
		return rc;
	rdma_run(r->rdma, &t.t, r_begin_run);
	if (r->fs->set.rdma != RDMA_REQUIRE && t.dry)
		return err_set(err, -ENOBUFS, "all RDMA buffers of this process are in use");
	return 0;
}

int rdma_open_read(struct dfs *fs, const struct read_setup *setup, struct rstream **ret,
		   struct err *err)
{
	const Hd__DatanodeInfoProto *node = setup->lb->locs[setup->node];
	struct rdma_r *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return err_set(err, -ENOMEM, "out of memory for a read");
	r->base.ops = &stream_rdma;
	r->fs = fs;
	meeting_init(&r->m);
	init_slots(r);
	node_text(node->id, r->peer);
	r->at = r->asked = setup->offset;
	r->end = setup->offset + setup->len;
	r->bpc = fs->defaults.bytes_per_checksum ?: 512;
	r->block = read_block(setup);
	r->block.poolid = strdup(setup->lb->b->poolid);
	rc = r->block.poolid ? copy_token(r, setup->lb->blocktoken) : -ENOMEM;
	if (rc < 0)
		err_set(err, rc, "out of memory for a read");
	else
		rc = rdma_get(fs, &r->rdma, err);
	if (rc == 0)
		rc = node_addr(node->id, fs->set.use_hostname, false, &r->addr, err);
	rc = rc ?: begin(r, err);
	if (rc < 0) {
		rdma_r_close(&r->base);
		return rdma_no_path(rc, err);
	}
	*ret = &r->base;
	return 0;
}
