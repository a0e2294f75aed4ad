/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: stream_rdma_test_fixture - what the tests of blocks over RDMA share: a device and a
 * data node that are fakes
 *
 * What is sent is kept, and answered by node_answer(), which writes to the slots themselves, or
 * reads what lies in them by then: where a window is open to it. Included by one test program each,
 * which owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/stream/rdma.h"
#include "common/wire/pb.h"

#define BLOCK_LEN (16u << 20)
#define REQUESTS 1024
#define SMALL 4096u
#define IDS 65536 /* of requests */
#define MI (1u << 20)

static struct dfs fs;
static uint8_t *block, *block_crcs; /* of 512 bytes each */
static uint32_t bpc;
static bool answers; /* at once; else requests are kept until node_answer() */
static bool deaf;    /* it answers no CANCEL either */
/* what it says instead of the answer of a read; NULL: it says what it has written */
static const struct capsule *lie;

static bool drops; /* a connection, as soon as it stands */
static bool mute;  /* the other one is not answered at all */
static struct verbs_hello peer;
static unsigned dials;

static struct xop *connecting, *receiving;
static void *receive_buf;
static struct capsule kept[REQUESTS];
static uint64_t kept_at[REQUESTS], kept_len[REQUESTS];
static unsigned first_kept, all_kept; /* both [R] */
static struct capsule said[REQUESTS]; /* what is answered at once: openings and ends of writes */
static unsigned first_said, all_said; /* both [R] */
static int64_t seqno_of[IDS];         /* the last packet of each write */

static inline void fake_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op);

static inline void fake_recv(struct xconn *c, void *buf, uint32_t len, struct xop *op)
{
	(void)c;
	(void)len;
	receive_buf = buf;
	if (drops)
		op->done(op, -ECONNRESET);
	else
		receiving = op;
}

/* ---- memory windows of slots; all of it the reactor's ---- */

#define SHOWN_MOST 1024u

struct shown {
	struct rmsg msg;
	struct verbs_exposure *e; /* NULL: it is to be closed */
	struct slot *slot;        /* counted; NULL: not used */
	struct verbs_exposure was;
};

static struct shown shown[SHOWN_MOST];
static uint32_t shown_now, windows_there = SHOWN_MOST, reserved;
static uint32_t binds, next_shown; /* windows that were ever opened */
static bool closes_late;           /* not before close_late() */
static struct verbs_turn *in_line[SHOWN_MOST];
static uint32_t line_head, line_tail;

static inline void serve_line(void)
{
	for (; line_head != line_tail; line_head++) {
		struct verbs_turn *t = in_line[line_head % SHOWN_MOST];

		if (t && windows_there < shown_now + reserved + VERBS_EXPOSURES)
			return;
		if (!t) /* it waits no longer */
			continue;
		t->has = true;
		reserved += VERBS_EXPOSURES;
		reactor_ready(rdma_reactor(fs.rdma), t->rop);
	}
}

static inline void shown_end(struct shown *w, int res)
{
	struct slot *s = w->slot;

	w->slot = NULL;
	shown_now--;
	if (w->was.closed)
		w->was.closed(w->was.arg, res);
	slot_put(s);
	serve_line();
}

/* Not at once, as on a device. */
static inline void shown_closed(struct rmsg *m)
{
	struct shown *w = container_of(m, struct shown, msg);

	if (w->slot && !w->e) /* else its connection went first */
		shown_end(w, 0);
}

static inline void shown_close_all(struct rtask *t)
{
	(void)t;
	closes_late = false;
	for (uint32_t i = 0; i < SHOWN_MOST; i++)
		shown_closed(&shown[i].msg);
}

static inline void close_late(void)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, shown_close_all);
}

/* The queue pair is gone. */
static inline void shown_lost(void)
{
	for (uint32_t i = 0; i < SHOWN_MOST; i++)
		if (shown[i].slot) {
			if (shown[i].e)
				shown[i].e->window = NULL;
			shown_end(&shown[i], -ECONNRESET);
		}
}

/* May the node do that to [addr, addr + len)? */
static inline bool is_shown(uint64_t addr, uint64_t len, enum verbs_right right)
{
	for (uint32_t i = 0; i < SHOWN_MOST; i++) {
		const struct shown *w = &shown[i];
		const uint64_t at =
			w->slot ? addr - (uintptr_t)w->slot->data - w->was.off : UINT64_MAX;

		if (w->slot && w->was.right == right && at <= w->was.len && len <= w->was.len - at)
			return true;
	}
	return false;
}

static struct xconn conn; /* the one that the node takes */
static bool taken;

/* Another one, which it refuses: then the first has to do for all. */
struct refused {
	struct xconn c; /* first */
	struct rmsg msg;
	struct xop *op; /* NULL: it has been told */
};

static inline void fake_close(struct xconn *c)
{
	struct xop *op = receiving;

	if (c != &conn) {
		op = ((struct refused *)c)->op;
		free(c);
		if (op)
			op->done(op, -ECANCELED);
		return;
	}
	shown_lost();
	taken = false;
	receiving = NULL;
	if (op)
		op->done(op, -ECANCELED);
}

static const struct xport_ops fake_ops = {.name = "fake",
					  .messages = true,
					  .send = fake_send,
					  .recv = fake_recv,
					  .close = fake_close};
static struct xconn conn = {.ops = &fake_ops, .max_message = CAPSULE_MAX_DEFAULT};

int __wrap_verbs_probe(struct err *err);
int __wrap_verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret,
		     struct err *err);
bool __wrap_verbs_free(struct verbs *v);
int __wrap_verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns,
			 struct xop *op, struct xconn **ret);
const char *__wrap_verbs_reason(const struct xconn *c);
int __wrap_verbs_expose(struct xconn *c, struct verbs_exposure *e, struct xremote *ret);
void __wrap_verbs_cover(struct verbs_exposure *e, bool now);
bool __wrap_verbs_turn_take(struct xconn *c, struct verbs_turn *t);
void __wrap_verbs_turn_wait(struct xconn *c, struct verbs_turn *t);
void __wrap_verbs_turn_end(struct verbs_turn *t);
const struct verbs_hello *__wrap_verbs_peer(const struct xconn *c);
uint64_t __wrap_verbs_rtt_ns(const struct xconn *c);

const struct verbs_hello *__wrap_verbs_peer(const struct xconn *c)
{
	(void)c;
	return &peer;
}

uint64_t __wrap_verbs_rtt_ns(const struct xconn *c)
{
	(void)c;
	return 1000;
}

int __wrap_verbs_probe(struct err *err)
{
	(void)err;
	return 0;
}

int __wrap_verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret,
		     struct err *err)
{
	(void)r;
	(void)ret;
	(void)err;
	assert_int_equal(o->windows, VERBS_WINDOWS_ON); /* as setup() has it */
	return 0;
}

static bool verbs_is_stuck; /* a device does not let go */
bool __wrap_verbs_free(struct verbs *v)
{
	(void)v;
	return !verbs_is_stuck;
}

static inline void refuse(struct rmsg *m)
{
	struct refused *r = container_of(m, struct refused, msg);

	struct xop *op = r->op;

	r->op = NULL;
	op->done(op, -ECONNREFUSED); /* closes it */
}

static inline void connected(struct rmsg *m)
{
	(void)m;
	connecting->done(connecting, 0);
}

int __wrap_verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns,
			 struct xop *op, struct xconn **ret)
{
	static struct rmsg msg = {.fn = connected};

	(void)v;
	(void)to;
	(void)deadline_ns;
	dials++;
	if (taken) {
		struct refused *r = calloc(1, sizeof(*r));

		r->c.ops = &fake_ops;
		r->msg.fn = refuse;
		r->op = op;
		*ret = &r->c;
		if (!mute)
			reactor_post(conn.reactor, &r->msg);
		return 0;
	}
	taken = true;
	connecting = op;
	*ret = &conn;
	reactor_post(conn.reactor, &msg);
	return 0;
}

const char *__wrap_verbs_reason(const struct xconn *c)
{
	(void)c;
	return "";
}

int __wrap_verbs_expose(struct xconn *c, struct verbs_exposure *e, struct xremote *ret)
{
	struct shown *w;

	assert_ptr_equal(c, &conn);
	assert_true(e->len && e->off + e->len <= e->slot->size && !e->window);
	if (shown_now >= windows_there)
		return -EAGAIN;
	do /* not the one that was used last: its message may be on its way yet */
		w = &shown[next_shown++ % SHOWN_MOST];
	while (w->slot);
	*w = (struct shown){.msg.fn = shown_closed, .e = e, .slot = slot_ref(e->slot), .was = *e};
	shown_now++;
	binds++;
	e->window = (struct verbs_window *)w;
	*ret = (struct xremote){(uintptr_t)e->slot->data + e->off, 1};
	return 0;
}

void __wrap_verbs_cover(struct verbs_exposure *e, bool now)
{
	struct shown *w = (struct shown *)e->window;

	(void)now;
	if (!w)
		return;
	e->window = NULL;
	w->e = NULL;
	if (!closes_late)
		reactor_post(conn.reactor, &w->msg);
}

bool __wrap_verbs_turn_take(struct xconn *c, struct verbs_turn *t)
{
	assert_ptr_equal(c, &conn);
	if (t->has)
		return true;
	if (t->on || line_head != line_tail ||
	    windows_there < shown_now + reserved + VERBS_EXPOSURES)
		return false;
	t->on = (struct vmemory_on *)t;
	t->has = true;
	reserved += VERBS_EXPOSURES;
	return true;
}

void __wrap_verbs_turn_wait(struct xconn *c, struct verbs_turn *t)
{
	assert_ptr_equal(c, &conn);
	if (t->on)
		return;
	t->on = (struct vmemory_on *)t;
	in_line[line_tail++ % SHOWN_MOST] = t;
}

void __wrap_verbs_turn_end(struct verbs_turn *t)
{
	for (uint32_t i = line_head; i != line_tail; i++)
		if (in_line[i % SHOWN_MOST] == t)
			in_line[i % SHOWN_MOST] = NULL;
	if (t->has)
		reserved -= VERBS_EXPOSURES;
	t->on = NULL;
	t->has = false;
	serve_line();
}

/* ---- the node ---- */

static inline void reply(const struct capsule *q, uint64_t at, uint64_t len)
{
	const uint64_t first = at / bpc * bpc, want = (at + len + bpc - 1) / bpc * bpc - first;
	const uint32_t crcs = (uint32_t)crc_bytes(CRC_CRC32C, want, bpc);
	const bool fits = want <= q->read.dest.len && crcs <= q->read.crc.len;
	struct capsule m = {.type = CAPSULE_READ_REPLY, .request_id = q->request_id};
	struct xop *op = receiving;
	ssize_t n;

	m.read_reply.status = fits ? HD__STATUS__SUCCESS : HD__STATUS__ERROR_UNSUPPORTED;
	m.read_reply.crc_type = CRC_CRC32C;
	m.read_reply.bytes_per_checksum = bpc;
	m.read_reply.chunk_offset = first;
	m.read_reply.data_len = (uint32_t)want;
	m.read_reply.crc_len = crcs;
	if (lie)
		m.read_reply = lie->read_reply;
	m.read_reply.text = (struct capsule_bytes){"", 0};
	if (fits) { /* but for the caller's memory, which has windows of its own */
		assert_true(q->read.dest.rkey != 1 ||
			    is_shown(q->read.dest.addr, q->read.dest.len, VERBS_PEER_WRITES));
		assert_true(is_shown(q->read.crc.addr, q->read.crc.len, VERBS_PEER_WRITES));
		memcpy((void *)(uintptr_t)q->read.dest.addr, block + first, want);
		crc_chunks(CRC_CRC32C, block + first, want, bpc,
			   (uint8_t *)(uintptr_t)q->read.crc.addr);
	}
	n = capsule_encode(&m, VERBS_MESSAGE_MAX, receive_buf);
	assert_true(n > 0 && op);
	receiving = NULL;
	op->done(op, (int)n);
}

static inline void say(const struct capsule *m)
{
	struct xop *op = receiving;
	const ssize_t n = capsule_encode(m, VERBS_MESSAGE_MAX, receive_buf);

	assert_true(n > 0 && op);
	receiving = NULL;
	op->done(op, (int)n);
}

/* It is as the client's memory has it now. */
static inline void acknowledge(const struct capsule *q)
{
	static const uint8_t good = HD__STATUS__SUCCESS;
	const uint32_t len = q->write.data_len;
	struct capsule m = {.type = CAPSULE_ACK, .request_id = q->request_id};

	if (len) {
		const void *crcs = q->write.crc.p ? q->write.crc.p
						  : (const void *)(uintptr_t)q->write.crc_mem.addr;

		assert_true(q->write.data.rkey != 1 ||
			    is_shown(q->write.data.addr, len, VERBS_PEER_READS));
		assert_true(q->write.crc.p || is_shown(q->write.crc_mem.addr, q->write.crc_mem.len,
						       VERBS_PEER_READS));
		assert_memory_equal((const void *)(uintptr_t)q->write.data.addr,
				    block + q->write.offset, len);
		assert_memory_equal(crcs, block_crcs + q->write.offset / 512 * 4, q->write.crc.len);
	}
	assert_true(q->request_id < IDS && q->write.seqno == ++seqno_of[q->request_id]);
	m.ack.seqno = m.ack.pulled = q->write.seqno;
	m.ack.count = 1;
	m.ack.status = &good;
	say(&m);
}

/* One request, in its turn: the client takes one message at a time. */
static inline void answer_one(struct rmsg *m)
{
	if (first_kept < all_kept && receiving) {
		const unsigned i = first_kept++ % REQUESTS;

		if (kept[i].type == CAPSULE_WRITE)
			acknowledge(&kept[i]);
		else if (kept[i].type == CAPSULE_READ) /* not cancelled */
			reply(&kept[i], kept_at[i], kept_len[i]);
	}
	if (first_kept < all_kept)
		reactor_post(conn.reactor, m);
}

static struct rmsg answering = {.fn = answer_one};

static inline void say_one(struct rmsg *m)
{
	if (first_said < all_said && receiving)
		say(&said[first_said++ % REQUESTS]);
	if (first_said < all_said)
		reactor_post(conn.reactor, m);
}

static struct rmsg saying = {.fn = say_one};

/* The disk need not be asked any more. */
static inline bool cancel_read(uint64_t id)
{
	for (unsigned i = first_kept; i != all_kept; i++)
		if (kept[i % REQUESTS].request_id == id &&
		    kept[i % REQUESTS].type == CAPSULE_READ) {
			kept[i % REQUESTS].type = CAPSULE_CANCEL;
			return true;
		}
	return false;
}

/* @q opens or ends a write, or ends a read. */
static inline void say_soon(const struct capsule *q)
{
	struct capsule m = {.type = CAPSULE_CLOSED, .request_id = q->request_id};

	if (q->type == CAPSULE_OPEN_WRITE) {
		assert_true(q->request_id < IDS);
		seqno_of[q->request_id] = -1;
		m.type = CAPSULE_OPEN_REPLY;
		m.open_reply.bad_link = m.open_reply.text = (struct capsule_bytes){"", 0};
	} else if (cancel_read(q->request_id)) {
		m.type = CAPSULE_READ_REPLY;
		m.read_reply.status = HD__STATUS__ERROR;
		m.read_reply.text = (struct capsule_bytes){"", 0};
	} else {
		m.closed.text = (struct capsule_bytes){"", 0};
	}
	said[all_said % REQUESTS] = m;
	if (all_said++ == first_said)
		reactor_post(conn.reactor, &saying);
}

static inline void keep_read(unsigned i)
{
	Hd__OpReadBlockProto *o = NULL;

	assert_int_equal(kept[i].type, CAPSULE_READ);
	assert_int_equal(pb_unpack(&hd__op_read_block_proto__descriptor, kept[i].read.op.p,
				   kept[i].read.op.len, &o),
			 0);
	kept_at[i] = o->offset;
	kept_len[i] = o->len;
	pb_free(o);
}

static inline void fake_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	const unsigned i = all_kept % REQUESTS;

	(void)c;
	(void)n;
	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &kept[i]),
			 0);
	if (kept[i].type == CAPSULE_CANCEL && deaf) {
		op->done(op, (int)iov->iov_len);
		return;
	}
	if (kept[i].type == CAPSULE_OPEN_WRITE || kept[i].type == CAPSULE_CANCEL) {
		say_soon(&kept[i]);
	} else {
		if (kept[i].type != CAPSULE_WRITE)
			keep_read(i);
		assert_true(all_kept - first_kept < REQUESTS);
		if (all_kept++ == first_kept && answers)
			reactor_post(conn.reactor, &answering);
	}
	op->done(op, (int)iov->iov_len);
}

static inline void start_answering(struct rtask *t)
{
	(void)t;
	answers = true;
	if (first_kept < all_kept)
		reactor_post(conn.reactor, &answering);
}

static inline void node_answer(void)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, start_answering);
}

/* ---- the program ---- */

struct out_task {
	struct rtask t;
	uint32_t out;
};

static inline void count_out(struct rtask *t)
{
	container_of(t, struct out_task, t)->out = pool_slots_out(rdma_pool(t->rdma));
}

static inline uint32_t slots_out(void)
{
	struct out_task o;

	rdma_run(fs.rdma, &o.t, count_out);
	return o.out;
}

static inline int setup(void **state)
{
	struct err err = ERR_INIT;
	struct rdma *r;

	(void)state;
	memset(&fs, 0, sizeof(fs));
	pthread_mutex_init(&fs.rdma_lock, NULL);
	packet_pool_init(&fs.packets);
	node_table_init(&fs.fallbacks);
	fs.set.rdma = RDMA_REQUIRE;
	fs.set.rdma_windows = VERBS_WINDOWS_ON;
	fs.set.socket_timeout_ms = 20000;
	fs.set.rdma_wait_ms = 20000;
	fs.defaults.bytes_per_checksum = bpc = 512;
	answers = deaf = drops = mute = false;
	peer = (struct verbs_hello){0}; /* nothing rides along */
	lie = NULL;
	dials = 0;
	first_kept = all_kept = first_said = all_said = 0;
	windows_there = SHOWN_MOST;
	closes_late = false;
	if (!block) {
		block = malloc(BLOCK_LEN);
		block_crcs = malloc(BLOCK_LEN / 512 * 4);
		for (uint32_t i = 0; i < BLOCK_LEN; i++)
			block[i] = (uint8_t)(i * 2654435761u >> 24);
		crc_chunks(CRC_CRC32C, block, BLOCK_LEN, 512, block_crcs);
	}
	if (rdma_get(&fs, &r, &err) < 0)
		fail_msg("%s", err.text);
	conn.reactor = rdma_reactor(r);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	rdma_free(fs.rdma);
	assert_int_equal(shown_now, 0);
	assert_int_equal(reserved, 0);
	node_table_fini(&fs.fallbacks);
	packet_pool_fini(&fs.packets);
	return 0;
}

#define MANY 400

/* ---- writes ---- */

#define t(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
