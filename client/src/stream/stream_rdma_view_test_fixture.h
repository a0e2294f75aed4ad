/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: stream_rdma_view_test_fixture - a node that gives views of its memory, and a device
 * that READs it, which are fakes, on the connection of stream_rdma_test_fixture.h
 *
 * Included by one test program each, which owns what is static here.
 */
#include <stdio.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream_rdma_read_internal.h"
#include "client/src/stream/stream_rdma_test_fixture.h"

#define RKEY 77u
#define PIECE (64u << 10)

static atomic_uint views, ends, reads, in_flight, most_in_flight; /* capsules; READs */
static atomic_uint depth;
static atomic_uint refused; /* of the views: a time to wait, or 0: it is given */
static struct capsule_view given;
static atomic_bool holds, damages, breaks, silent;
static struct capsule unsaid; /* the last answer while it was silent */
static uint32_t ended_key;
static uint64_t last_read_ns;
static atomic_uint late; /* 1: READs of data, 2: of CRCs wait until their time is over */

/* ---- the device ---- */

struct held {
	struct rmsg msg;
	struct xop *op;
	int res;
};
static struct held *all_held[64];
static unsigned held_count;

uint32_t __wrap_verbs_read_depth(const struct xconn *c);
uint32_t __wrap_verbs_read_depth(const struct xconn *c)
{
	assert_ptr_equal(c, &conn);
	return depth;
}

static inline void read_done(struct rmsg *m)
{
	struct held *h = container_of(m, struct held, msg);

	in_flight--;
	h->op->done(h->op, h->res);
	free(h);
}

static inline void loses(struct rmsg *m)
{
	struct xop *op = receiving;

	(void)m;
	receiving = NULL;
	if (op)
		op->done(op, -EPROTO);
}

static struct rmsg losing = {.fn = loses};

/* Not beyond what the view is of. */
static inline void check_range(struct xremote from, uint32_t len)
{
	const bool data =
		from.addr >= given.data_addr && from.addr + len <= given.data_addr + given.data_len;
	const bool crc =
		from.addr >= given.crc_addr && from.addr + len <= given.crc_addr + given.crc_len;

	assert_true(len && (data || crc));
	assert_int_equal(from.rkey, RKEY);
}

static inline void read_to(const struct verbs_read *r, struct xop *op)
{
	struct held *h = calloc(1, sizeof(*h));
	const uint64_t at = r->from.addr;
	const bool data = at < given.crc_addr || at >= given.crc_addr + given.crc_len;

	check_range(r->from, r->len);
	assert_true(r->until_ns &&
		    r->until_ns < clock_mono_ns() + given.ms * NS_PER_MS - 3 * NS_PER_S);
	reads++;
	last_read_ns = clock_mono_ns();
	if (++in_flight > most_in_flight)
		most_in_flight = in_flight;
	h->op = op;
	h->msg.fn = read_done;
	h->res = breaks ? -EPROTO : (int)r->len;
	if (late & (data ? 1u : 2u)) {
		while (clock_mono_ns() < r->until_ns)
			;
		h->res = -ETIME;
	}
	if (h->res > 0)
		memcpy(r->to, (const void *)(uintptr_t)at, r->len);
	if (damages && data)
		((uint8_t *)r->to)[r->len / 2] ^= 1;
	if (holds)
		all_held[held_count++] = h;
	else
		reactor_post(conn.reactor, &h->msg);
	if (breaks && !losing.next)
		reactor_post(conn.reactor, &losing);
}

static bool has_memory;
struct verbs_window {
	struct list link;
};
static struct verbs_window the_window;
static unsigned windows_out;

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err);
void __wrap_verbs_memory_free(struct verbs_memory *m);
struct verbs_window *__wrap_verbs_window_get(const struct verbs_memory *m, const struct xconn *c);
void __wrap_verbs_window_put(struct verbs_window *w);
bool __wrap_verbs_read(struct xconn *c, const struct verbs_read *r, struct xop *op);

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err)
{
	(void)v, (void)p, (void)len, (void)err;
	*ret = calloc(1, 1);
	return 0;
}

void __wrap_verbs_memory_free(struct verbs_memory *m)
{
	free(m);
}

struct verbs_window *__wrap_verbs_window_get(const struct verbs_memory *m, const struct xconn *c)
{
	(void)m, (void)c;
	windows_out++;
	return &the_window;
}

void __wrap_verbs_window_put(struct verbs_window *w)
{
	assert_ptr_equal(w, &the_window);
	windows_out--;
}

bool __wrap_verbs_read(struct xconn *c, const struct verbs_read *r, struct xop *op)
{
	assert_ptr_equal(c, &conn);
	if (r->m && !has_memory)
		return false;
	read_to(r, op);
	return true;
}

static inline void let_go(struct rtask *t)
{
	(void)t;
	holds = false;
	for (unsigned i = 0; i < held_count; i++)
		reactor_post(conn.reactor, &all_held[i]->msg);
	held_count = 0;
}

/* ---- the node ---- */

static inline void view_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	static struct capsule m, r;

	r = (struct capsule){.type = CAPSULE_VIEW_REPLY};
	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &m), 0);
	if (m.type == CAPSULE_VIEW) {
		views++;
		r.request_id = m.request_id;
		r.view_reply.v = given;
		r.view_reply.text = (struct capsule_bytes){"", 0};
		if (refused)
			r.view_reply.v =
				(struct capsule_view){.status = DT_ERROR_UNSUPPORTED,
						      .ms = refused == UINT32_MAX ? 0 : refused};
		if (silent) {
			unsaid = r;
		} else {
			said[all_said % REQUESTS] = r;
			if (all_said++ == first_said)
				reactor_post(conn.reactor, &saying);
		}
	} else if (m.type == CAPSULE_VIEW_END) {
		ends++;
		ended_key = m.view_end.rkey;
	} else {
		fake_send(c, iov, n, op);
		return;
	}
	op->done(op, (int)iov->iov_len);
}

static const struct xport_ops view_ops = {.name = "fake",
					  .messages = true,
					  .send = view_send,
					  .recv = fake_recv,
					  .close = fake_close};

/* ---- the program ---- */

static inline struct rstream *open_with(uint64_t block_id, bool cached, uint64_t at, uint64_t len,
					void *dest)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	static protobuf_c_boolean is_cached;
	const struct read_setup s = {.lb = &lb, .offset = at, .len = len, .dest = dest};
	struct rstream *ret = NULL;
	struct err err = ERR_INIT;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = "";
	id.xferport = 1;
	info.id = &id;
	b.blockid = block_id;
	lb.b = &b;
	lb.n_locs = lb.n_iscached = 1;
	lb.locs = &locs;
	is_cached = cached;
	lb.iscached = &is_cached;
	if (stream_rdma.open_read(&fs, &s, &ret, &err) < 0)
		fail_msg("%s", err.text);
	return ret;
}

/* How it was read. */
static inline int must_read(struct rstream *s, uint64_t at, uint64_t len)
{
	static uint8_t buf[PIECE];
	struct err err = ERR_INIT;
	int how = 0;

	while (len > 0) {
		ssize_t n = stream_rdma.read(s, buf, len < PIECE ? len : PIECE, &err);

		if (n <= 0)
			fail_msg("a read: %s", err.text);
		assert_memory_equal(buf, block + at, n);
		at += (uint64_t)n;
		len -= (uint64_t)n;
		how = s->counter;
	}
	return how;
}

static inline int get_of(uint64_t id, uint64_t at, uint64_t len)
{
	struct rstream *s = open_with(id, true, at, len, NULL);
	const int how = must_read(s, at, len);

	stream_rdma.close_read(s);
	return how;
}

static inline int get(uint64_t at, uint64_t len)
{
	return get_of(1, at, len);
}

static inline void no_more(struct rtask *t)
{
	(void)t;
}

/* What the node has said is heard. */
static inline void settle(void)
{
	struct rtask t;

	for (unsigned i = 0; i < 3; i++)
		rdma_run(fs.rdma, &t, no_more);
}

static inline int view_setup(void **state)
{
	int rc = setup(state);

	conn.ops = &view_ops;
	fs.rdma->onesided = true;
	views = ends = reads = most_in_flight = in_flight = refused = held_count = windows_out = 0;
	holds = damages = breaks = silent = late = false;
	has_memory = true;
	losing.next = NULL;
	depth = 16;
	given = (struct capsule_view){.crc_type = CRC_CRC32C,
				      .bytes_per_checksum = 512,
				      .ms = 10000,
				      .rkey = RKEY,
				      .data_addr = (uintptr_t)block,
				      .crc_addr = (uintptr_t)block_crcs,
				      .data_len = BLOCK_LEN,
				      .crc_len = BLOCK_LEN / 512 * 4};
	node_answer();
	return rc;
}

static inline int view_teardown(void **state)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, let_go);
	return teardown(state);
}

static inline void is_viewed(void)
{
	assert_int_equal(get(0, 1000), 1);
	settle();
	assert_int_equal(views, 1);
	assert_int_equal(get(0, 1000), STREAM_ONESIDED);
}
