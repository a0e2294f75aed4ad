/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: stream_rdma_memory_test_fixture - what the tests of registered memory share: windows
 * that are fakes, on the connection of stream_rdma_test_fixture.h
 *
 * Included by one test program each, which owns what is static here.
 */
#include "client/include/dfsclient.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_test_fixture.h"

#define MEM (8u << 20)
#define GONE_NS (100 * NS_PER_MS) /* that the queue pair takes to end */

struct verbs_window {
	struct list link;
	uintptr_t at;
	uint32_t len;
	bool open;
	enum verbs_right right;
	struct rmsg msg;
	struct xop *op; /* that waits for it to be closed */
};

static struct verbs_window windows[32];
static unsigned window_count;
static atomic_uint opened, revoked, open_now;
static struct list spare;
static uint8_t *mem;
static int register_rc;
static atomic_bool ended, failed; /* the queue pair: it is gone, or in error */
static atomic_uint back_at_close; /* windows, of a connection that is closed */
static struct rtimer gone_timer;
static bool holds_windows; /* what is to be closed waits for let_windows_close() */
static struct verbs_window *held[32];
static unsigned held_count;
static bool holds_memory; /* what is to be freed later */
static void (*ending)(void *arg);
static void *ending_arg;

static inline void let_memory_go(void)
{
	void (*const gone)(void *arg) = ending;

	ending = NULL;
	if (gone)
		gone(ending_arg);
}

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err);
int __wrap_verbs_memory_new_dmabuf(struct verbs *v, int fd, uint64_t offset, void *map, size_t len,
				   struct verbs_memory **ret, struct err *err);
void __wrap_verbs_memory_free(struct verbs_memory *m);
void __wrap_verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg);
struct verbs_window *__wrap_verbs_window_get(struct verbs_memory *m, const struct xconn *c);
struct xremote __wrap_verbs_window_open(struct xconn *c, struct verbs_window *w, void *p,
					uint32_t len, enum verbs_right right);
void __wrap_verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op);
void __wrap_verbs_window_put(struct verbs_window *w);
void __wrap_verbs_window_revoke(struct verbs_window *w);

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err)
{
	(void)v;
	(void)p;
	(void)len;
	if (register_rc < 0)
		return err_set(err, register_rc, "told to");
	*ret = calloc(1, 1);
	return 0;
}

int __wrap_verbs_memory_new_dmabuf(struct verbs *v, int fd, uint64_t offset, void *map, size_t len,
				   struct verbs_memory **ret, struct err *err)
{
	assert_int_equal(fd, 77);
	assert_int_equal(offset, 4096);
	return __wrap_verbs_memory_new(v, map, len, ret, err);
}

void __wrap_verbs_memory_free(struct verbs_memory *m)
{
	free(m);
}

/* Until let_memory_go(), where that is wanted. */
void __wrap_verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg)
{
	assert_false(ending);
	free(m);
	ending = gone;
	ending_arg = arg;
	if (!holds_memory)
		let_memory_go();
}

struct verbs_window *__wrap_verbs_window_get(struct verbs_memory *m, const struct xconn *c)
{
	struct list *l = list_pop(&spare);

	assert_non_null(m);
	assert_ptr_equal(c, &conn);
	return l ? container_of(l, struct verbs_window, link) : NULL;
}

struct xremote __wrap_verbs_window_open(struct xconn *c, struct verbs_window *w, void *p,
					uint32_t len, enum verbs_right right)
{
	assert_ptr_equal(c, &conn);
	assert_false(w->open);
	for (unsigned i = 0; i < window_count; i++) /* each byte is one request's */
		assert_true(!windows[i].open || windows[i].at + windows[i].len <= (uintptr_t)p ||
			    (uintptr_t)p + len <= windows[i].at);
	*w = (struct verbs_window){.at = (uintptr_t)p, .len = len, .open = true, .right = right};
	opened++;
	open_now++;
	return (struct xremote){(uintptr_t)p, 2};
}

static inline void closed(struct rmsg *msg)
{
	struct verbs_window *w = container_of(msg, struct verbs_window, msg);

	open_now -= w->open; /* else it was revoked */
	w->open = false;
	w->op->done(w->op, 0);
}

/* Not at once, as on a device. */
void __wrap_verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op)
{
	assert_true(w->open);
	w->op = op;
	w->msg.fn = closed;
	if (holds_windows)
		held[held_count++] = w;
	else
		reactor_post(c->reactor, &w->msg);
}

/* [R] Those that are about to be closed, are. */
static inline void let_windows_close(struct rtask *t)
{
	(void)t;
	holds_windows = false;
	while (held_count)
		reactor_post(conn.reactor, &held[--held_count]->msg);
}

void __wrap_verbs_window_put(struct verbs_window *w)
{
	assert_false(w->open);
	list_add_tail(&spare, &w->link);
}

void __wrap_verbs_window_revoke(struct verbs_window *w)
{
	assert_true(taken && failed); /* the queue pair is there yet, and does nothing more */
	open_now -= w->open;
	w->open = false;
	revoked++;
	list_add_tail(&spare, &w->link);
}

static inline void on_gone(struct rtimer *t)
{
	(void)t;
	ended = true;
	conn.gone(&conn);
}

/* What is on its way ends only with the queue pair, a while later. */
static inline void slow_close(struct xconn *c)
{
	if (c == &conn)
		back_at_close = (unsigned)list_length(&spare);
	fake_close(c);
	if (c != &conn || !conn.gone)
		return;
	gone_timer.fire = on_gone;
	reactor_timer_set(conn.reactor, &gone_timer, clock_mono_ns() + GONE_NS);
}

static inline void slow_give_up(struct xconn *c)
{
	assert_ptr_equal(c, &conn);
	failed = true;
}

static const struct xport_ops slow_ops = {.name = "slow",
					  .messages = true,
					  .send = fake_send,
					  .recv = fake_recv,
					  .close = slow_close,
					  .give_up = slow_give_up};

static inline int memory_setup(void **state)
{
	if (setup(state) < 0)
		return -1;
	conn.ops = &slow_ops;
	conn.gone = NULL;
	register_rc = 0;
	opened = revoked = open_now = 0;
	ended = failed = holds_windows = false;
	held_count = 0;
	holds_memory = false;
	gone_timer = (struct rtimer){0}; /* of the reactor before */
	window_count = 24;
	list_init(&spare);
	for (unsigned i = 0; i < window_count; i++)
		list_add_tail(&spare, &windows[i].link);
	if (!mem)
		mem = aligned_alloc(4096, MEM);
	memset(mem, 0, MEM);
	return 0;
}

/* A queue pair that is there yet goes with verbs. */
static inline int memory_teardown(void **state)
{
	const int rc = teardown(state);

	if (conn.gone && !ended)
		conn.gone(&conn);
	return rc;
}

static inline void break_off(struct rtask *t)
{
	struct xop *op = receiving;

	(void)t;
	receiving = NULL;
	op->done(op, -ECONNRESET);
}

static inline void must_register(void *p, size_t len)
{
	struct dfs_err err;

	if (dfs_mem_register(&fs, p, len, &err) < 0)
		fail_msg("%s", err.text);
}
