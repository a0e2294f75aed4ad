/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of an RDMA read: what the reactor's thread does for stream_rdma_read.c. A request
 * takes a pair of slots, is sent, answered, and made again when its answer was given back. */
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/stream_rdma_read_internal.h"
#include "common/base/clock.h"

#define READ_PIECE (512u << 10) /* bytes of one request; the slot has room for a chunk more */

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

void rdma_r_settle(struct rslot *s)
{
	struct rdma_r *r = s->r;
	const uint32_t number = number_of(r, s);
	const bool drop = r->dropping && number - r->freed >= r->drop - r->freed;

	pthread_mutex_lock(&r->m.lock);
	s->asked = false;
	s->answered = !s->again && !drop;
	r->used_ns = clock_mono_ns();
	meeting_ring(&r->m);
	pthread_mutex_unlock(&r->m.lock);
	if (s->again)
		drop_from(r, number, s->offset);
	else if (drop)
		drop_some(r);
}

static void cover(struct rslot *s)
{
	pthread_mutex_lock(&s->r->m.lock);
	s->exposed = false;
	meeting_ring(&s->r->m);
	pthread_mutex_unlock(&s->r->m.lock);
}

/* Nobody can write to the caller's memory any more: the answer counts. */
static void r_on_shut(struct xop *op, int res)
{
	struct rslot *s = container_of(op, struct rslot, shut);

	s->shutting = false;
	if (res < 0 || !s->window)
		return; /* the connection is lost, which is told */
	verbs_window_put(s->window);
	s->window = NULL;
	cover(s);
	rdma_r_settle(s);
}

static void r_on_gone(struct rcall *c)
{
	cover(container_of(c, struct rslot, call));
}

/* The node has answered, or will never know of them. */
static void cover_slots(struct rslot *s, bool now)
{
	verbs_cover(&s->shown[0], now);
	verbs_cover(&s->shown[1], now);
}

static void r_on_capsule(struct rcall *c, const struct capsule *m)
{
	struct rslot *s = container_of(c, struct rslot, call);
	struct rdma_r *r = s->r;

	if (!s->asked || s->shutting || s->pulling ||
	    (m->type != CAPSULE_READ_REPLY && m->type != CAPSULE_CLOSED))
		return; /* what was answered is the caller's */
	s->again = wants_room(s, m);
	if (s->again) {
		r->bpc = m->read_reply.bytes_per_checksum;
		r->learned = true;
	} else {
		take_reply(s, m);
	}
	cover_slots(s, false);
	s->shutting = s->window;
	if (s->window)
		rdma_window_close(c, s->window, &s->shut);
	else
		rdma_r_settle(s);
}

static void end_wait(struct rdma_r *r)
{
	if (!r->waits)
		return;
	reactor_timer_clear(rdma_reactor(r->rdma), &r->wait_over);
	pthread_mutex_lock(&r->m.lock);
	r->waits = false;
	pthread_mutex_unlock(&r->m.lock);
}

/* What the next request was to have, or waits for. */
static void unplan(struct rdma_r *r)
{
	end_wait(r);
	rdma_pair_end(&r->wanted);
	verbs_turn_end(&r->turn);
	if (r->wanted_window)
		verbs_window_put(r->wanted_window);
	r->wanted_window = NULL;
}

static void r_on_lost(struct rcall *c, int rc, const char *why)
{
	struct rslot *s = container_of(c, struct rslot, call);
	struct rdma_r *r = s->r;

	if (s->window)
		verbs_window_revoke(s->window);
	s->window = NULL;
	unplan(r); /* its window goes with the connection, too */
	meeting_lost(&r->m, rc, why);
	look_again(r);
}

/* The node is to let go of the slots: it answers at once. */
static void cancel_request(struct rslot *s)
{
	struct capsule m = {.type = CAPSULE_CANCEL};

	/* a READ of ours ends by itself */
	if (!s->asked || s->shutting || s->pulling || s->cancelled || s->send.busy)
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

static int show(struct rslot *s, struct verbs_exposure *e, struct slot *slot, struct xremote *ret)
{
	*e = (struct verbs_exposure){.slot = slot, .len = slot->size, .right = VERBS_PEER_WRITES};
	return rdma_expose(&s->call, e, ret);
}

/* The caller's memory as the node is told of it. */
static struct capsule_mem name_dest(struct rslot *s)
{
	struct xremote d;

	pthread_mutex_lock(&s->r->m.lock);
	s->exposed = true;
	pthread_mutex_unlock(&s->r->m.lock);
	d = rdma_window_open(&s->call, s->window, s->dest, s->len, VERBS_PEER_WRITES);
	return (struct capsule_mem){d.addr, d.rkey, s->len};
}

/* Where data and CRCs are to go; what is in one slot takes one window. */
static int name_memory(struct rslot *s, struct capsule *m)
{
	struct xremote at;
	int rc = 0;

	if (s->dest)
		m->read.dest = name_dest(s);
	else
		rc = show(s, &s->shown[0], s->data, &at);
	if (!s->dest && !rc) {
		m->read.dest = (struct capsule_mem){at.addr, at.rkey, s->data_room};
		m->read.crc = (struct capsule_mem){at.addr + s->data_room, at.rkey, s->crc_room};
	}
	if (!s->crc || rc)
		return rc;
	rc = show(s, &s->shown[1], s->crc, &at);
	m->read.crc = (struct capsule_mem){at.addr, at.rkey, s->crc_room};
	return rc;
}

static void not_sent(struct rslot *s, int rc)
{
	cover_slots(s, true);
	if (s->exposed) {
		rdma_give_up(&s->call); /* the window may be open by now */
	} else if (s->window) {
		verbs_window_put(s->window);
		s->window = NULL;
	}
	pthread_mutex_lock(&s->r->m.lock);
	s->asked = false; /* nobody was told of the memory */
	pthread_mutex_unlock(&s->r->m.lock);
	meeting_lost(&s->r->m, rc, "a read cannot be sent");
}

static void send_request(struct rslot *s)
{
	const uint32_t max = rdma_capsule_max(&s->call);
	struct capsule m = {.type = CAPSULE_READ};
	uint8_t *op = NULL;
	size_t len = 0;
	int rc = -ECONNRESET;

	if (max)
		rc = rdma_r_pack(s, &op, &len);
	if (!rc && !capsule_read_fits(len, max)) /* asked before a window is open */
		rc = -EMSGSIZE;
	rc = rc ?: name_memory(s, &m);
	if (!rc) {
		m.read.op = (struct capsule_bytes){op, (uint32_t)len};
		rc = rdma_send(&s->call, &s->send, &m);
	}
	verbs_turn_end(&s->r->turn);
	free(op);
	if (rc < 0)
		not_sent(s, rc);
}

/* ---- slots for a request ---- */

/* Where the next request ends whose data go to the caller's memory; 0: they cannot. The node moves
 * whole chunks: those that are wanted in part have no room there. */
static uint64_t direct_end(const struct rdma_r *r)
{
	const uint32_t piece = with_crcs(r, READ_PIECE);
	uint64_t end = (r->asked / piece + 1) * piece;

	end = (end < r->end ? end : r->end) / r->bpc * r->bpc;
	return r->memory && r->asked % r->bpc == 0 && end > r->asked ? end : 0;
}

/* How far one goes at most whose data go to a slot: behind a chunk of which a part is wanted they
 * go to the caller's memory again. */
static uint64_t copied_end(const struct rdma_r *r)
{
	const uint64_t end = (r->asked / r->bpc + 1) * r->bpc;

	return r->memory && r->asked % r->bpc && end < r->end ? end : r->end;
}

/* Where a request at @at ends whose data go to a slot of @size, and their CRCs there, too, or to
 * one of any size. */
static uint64_t request_end(const struct rdma_r *r, uint64_t at, uint32_t size)
{
	const uint64_t most = copied_end(r);
	const uint32_t piece = with_crcs(r, size == RDMA_BUF_BYTES ? READ_PIECE : size / 2);
	uint64_t end;

	end = (at / piece + 1) * piece;
	if (end > most || (size < RDMA_BUF_BYTES && whole_chunks(r, at, most) <= size))
		end = most;
	return end;
}

/* One slot for both does if it has room for CRCs: it takes one window to name it. */
static void add_form(struct rdma_r *r, enum slot_class cls)
{
	const uint32_t size = slot_class_size(cls);
	const uint64_t bytes = whole_chunks(r, r->asked, request_end(r, r->asked, size));
	const uint64_t crcs = bytes / r->bpc * 4;

	if (bytes + crcs <= size)
		r->wanted.ask.form[r->wanted.ask.forms++] =
			(struct pool_set){1, {{(uint8_t)cls, 1}}};
	else
		rdma_pair_form(&r->wanted, cls, rdma_crc_class(crcs));
}

/* The next request has the caller's memory for its data, and a slot for the CRCs. */
static bool plan_direct(struct rdma_r *r)
{
	const uint64_t end = direct_end(r);
	const uint64_t crcs = (end - r->asked) / r->bpc * 4;

	if (!end)
		return false;
	r->wanted_window = rdma_window_get(&r->slot[0].call, r->memory);
	if (!r->wanted_window)
		return false;
	r->wanted_end = end;
	r->wanted.ask.form[r->wanted.ask.forms++] =
		(struct pool_set){1, {{(uint8_t)rdma_crc_class(crcs), 1}}};
	return true;
}

/* A short range wants a small slot and never a large one; a long one does with 64 KiB while those
 * of 1 MiB are short. */
static void plan(struct rdma_r *r)
{
	const uint64_t bytes = whole_chunks(r, r->asked, copied_end(r));
	const enum slot_class cls = bytes <= RDMA_BUF_BYTES ? rdma_class(bytes) : SLOT_1M;

	rdma_pair_init(&r->wanted, r->rdma, POOL_READ, &r->rop);
	if (plan_direct(r))
		return;
	add_form(r, cls);
	if (cls == SLOT_8K || (cls == SLOT_1M && r->bpc <= slot_class_size(SLOT_64K) / 4))
		add_form(r, SLOT_64K);
}

/* Chunks may be longer or shorter than is known: half of the room that is left is for data, half
 * for CRCs. */
static void divide(struct rslot *s)
{
	const struct rdma_r *r = s->r;
	const uint64_t bytes = whole_chunks(r, r->asked, r->asked + s->len);
	const uint64_t crcs = bytes / r->bpc * 4;

	s->data_room = s->dest ? s->len : s->data->size;
	if (s->crc) {
		s->crcs = s->crc->data;
		s->crc_room = s->crc->size;
		return;
	}
	s->data_room = (uint32_t)(bytes + ((s->data->size - bytes - crcs) / 2 & ~63ull));
	s->crcs = s->data->data + s->data_room;
	s->crc_room = (s->data->size - s->data_room) & ~3u;
}

/* What was planned, and has been got. */
static void take_memory(struct rslot *s)
{
	struct rdma_r *r = s->r;
	const bool direct = r->wanted_window;

	(void)rdma_pair_fetch(&r->wanted);
	s->window = r->wanted_window;
	r->wanted_window = NULL;
	s->data = direct ? NULL : r->wanted.slot[0];
	s->crc = r->wanted.slot[!direct];
	s->dest = direct ? r->dest + (r->asked - r->from) : NULL;
	s->len = (uint32_t)((direct ? r->wanted_end : request_end(r, r->asked, s->data->size)) -
			    r->asked);
	divide(s);
}

static void make_request(struct rdma_r *r)
{
	struct rslot *s = slot_of(r, r->next);

	s->offset = r->asked;
	s->made_for = r->bpc;
	take_memory(s);
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
	s->onesided = false;
	if (!rdma_r_view(s)) {
		send_request(s);
		return;
	}
	verbs_turn_end(&r->turn);
	if (s->window) /* nobody else is to write */
		verbs_window_put(s->window);
	s->window = NULL;
}

static void on_wait_over(struct rtimer *t)
{
	struct rdma_r *r = container_of(t, struct rdma_r, wait_over);

	if (r->wanted.granted && rdma_turn_take(&r->slot[0].call, &r->turn))
		return; /* r_step() is about to ask */
	unplan(r);
	meeting_lost(&r->m, -ENOBUFS, "no buffer in time");
}

/* The time for slots and then for windows is one. */
static void begin_wait(struct rdma_r *r, bool for_windows)
{
	const bool begins = !r->waits;

	pthread_mutex_lock(&r->m.lock);
	r->waits = true;
	r->for_windows = for_windows;
	pthread_mutex_unlock(&r->m.lock);
	if (begins)
		reactor_timer_set(rdma_reactor(r->rdma), &r->wait_over,
				  clock_mono_ns() + rdma_wait_ns(r->fs));
}

/* True: there are some for the next request. Else it waits in line for them, if it is to. */
static bool get_slots(struct rdma_r *r, bool wait)
{
	struct pool_ask *ask = &r->wanted.ask;

	if (r->wanted.granted || pool_is_waiting(ask))
		return r->wanted.granted;
	plan(r);
	r->wanted.granted = pool_take(rdma_pool(r->rdma), ask);
	if (r->wanted.granted)
		return true;
	if (wait) {
		begin_wait(r, false);
		pool_wait(rdma_pool(r->rdma), ask);
	} else {
		unplan(r);
	}
	return r->wanted.granted;
}

/* Likewise: is it this one's turn to have windows? */
static bool get_windows(struct rdma_r *r, bool wait)
{
	if (rdma_turn_take(&r->slot[0].call, &r->turn))
		return true;
	if (wait) {
		begin_wait(r, true);
		rdma_turn_wait(&r->slot[0].call, &r->turn);
	} else {
		unplan(r);
	}
	return false;
}

/* May another request be made now? */
static bool can_ask(struct rdma_r *r)
{
	bool can;

	pthread_mutex_lock(&r->m.lock);
	can = !r->m.lost && !r->parked && rdma_capsule_max(&r->slot[0].call) > 0;
	pthread_mutex_unlock(&r->m.lock);
	return can && !r->closed && !r->dropping && r->asked < r->end &&
	       r->next - r->freed < READ_SLOTS && !slot_of(r, r->next)->send.busy;
}

/* As many requests as there is memory for. Only who has none waits in line: for slots, and when it
 * has them for windows, as writers do. Else windows would lie idle for those who wait for slots. */
static void ask_more(struct rdma_r *r, bool wait)
{
	while (can_ask(r)) {
		const bool waits = wait && r->next == r->freed;

		if (!get_slots(r, waits) || !get_windows(r, waits))
			return;
		end_wait(r);
		make_request(r);
	}
	if (r->waits) /* for what may not be asked now */
		unplan(r);
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
	bool distrusts;
	uint32_t tail;
	uint64_t at;

	pthread_mutex_lock(&r->m.lock);
	r->posted = false;
	tail = r->tail;
	at = r->at;
	distrusts = r->distrusts;
	r->distrusts = false;
	pthread_mutex_unlock(&r->m.lock);
	for (; r->freed != tail; r->freed++)
		give_back(slot_of(r, r->freed));
	if (distrusts) {
		r->cached = false;
		rdma_view_distrust(&r->slot[0].call, &r->block);
		drop_from(r, tail, at);
	}
	ask_more(r, true);
}

/* For now only what is there: whether to wait is for the caller to say. */
void rdma_r_begin_run(struct rtask *t)
{
	struct r_task *b = container_of(t, struct r_task, t);
	struct rdma_r *r = b->r;

	rdma_holder_add(r->rdma, &r->holder);
	ask_more(r, r->fs->set.rdma == RDMA_REQUIRE);
	b->dry = r->next == r->freed && !r->m.lost;
}

void rdma_r_release_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	r->closed = true;
	rdma_holder_remove(&r->holder);
	unplan(r);
	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		struct rslot *s = &r->slot[i];

		if (s->asked) { /* unanswered: the node may still write to it */
			if (s->data)
				rdma_quarantine(t->rdma, &s->call, s->data);
			if (s->crc)
				rdma_quarantine(t->rdma, &s->call, s->crc);
			s->data = s->crc = NULL;
		} else {
			give_back(s);
		}
		if (s->send.busy || s->pulling)
			rdma_give_up(&s->call);
	}
	list_del(&r->rop.ready_link);
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

void rdma_r_stop_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	r->closed = true;
	cancel_all(r);
}

void rdma_r_init(struct rdma_r *r)
{
	memset(r, 0, offsetof(struct rdma_r, slot));
	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		memset(&r->slot[i], 0, offsetof(struct rslot, send.buf));
		r->slot[i].r = r;
		r->slot[i].call.on_capsule = r_on_capsule;
		r->slot[i].call.on_lost = r_on_lost;
		r->slot[i].call.on_gone = r_on_gone;
		r->slot[i].shut.done = r_on_shut;
		r->slot[i].send.sent = r_on_sent;
	}
	r->holder.shed = r_shed;
	r->wait_over.fire = on_wait_over;
	r->msg.fn = r_turn;
	r->stop_msg.fn = r_stop;
	rop_init(&r->rop, r_step, NULL);
	r->turn.rop = &r->rop;
}
