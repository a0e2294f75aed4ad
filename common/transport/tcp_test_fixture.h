/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: tcp_test_fixture - what the tests of TCP share: a reactor that listens on 127.0.0.1,
 * and pairs of connections
 *
 * Included by one test program each, which owns what is static here.
 */
#include <linux/sockios.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/transport.h"

#define MANY 300u /* more than 256 */

static struct reactor *r;
static struct pool *pool;
static struct xlistener *listener;
static struct net_addr where;
static struct xconn *accepted[MANY];
static int accepted_count, refused_count;

struct op {
	struct xop x;
	int res, count;
};

static inline void op_done(struct xop *x, int res)
{
	struct op *op = container_of(x, struct op, x);

	op->res = res;
	op->count++;
	reactor_stop(r);
}

static inline struct op *op_init(struct op *op)
{
	*op = (struct op){.x.done = op_done};
	return op;
}

static inline int await(struct op *op)
{
	while (!op->count)
		assert_int_equal(reactor_run(r), 0);
	assert_int_equal(op->count, 1);
	return op->res;
}

static inline void stop_fire(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

/* In many turns: a thread that the machine forgets for that long has them all the same. */
static inline void run_ms(uint64_t ms)
{
	const uint64_t end = clock_mono_ns() + ms * NS_PER_MS;
	struct rtimer t = {.fire = stop_fire};

	for (int turns = 0; turns < 20 || clock_mono_ns() < end; turns++) {
		reactor_timer_set(r, &t, clock_mono_ns() + ms * NS_PER_MS / 20);
		while (t.deadline_ns)
			assert_int_equal(reactor_run(r), 0);
	}
}

static inline void on_accept(void *arg, struct xconn *c)
{
	(void)arg;
	accepted[accepted_count++] = c;
	reactor_stop(r);
}

static inline void on_refuse(void *arg)
{
	(void)arg;
	refused_count++;
	reactor_stop(r);
}

static inline int setup_for(uint32_t conns)
{
	struct reactor_opts ro = {.name = "test"};
	struct pool_opts po = {.count = {[SLOT_8K] = 2, [SLOT_1M] = 4}};
	struct xlistener_opts lo = {
		.max_conns = conns, .accepted = on_accept, .refused = on_refuse};
	struct err err = ERR_INIT;

	accepted_count = refused_count = 0;
	assert_int_equal(reactor_new(&ro, &r, &err), 0);
	assert_int_equal(pool_new(&po, &pool, &err), 0);
	assert_int_equal(net_resolve("127.0.0.1", 0, &lo.addr, &err), 0);
	assert_int_equal(tcp_listen(r, &lo, &where, &listener, &err), 0);
	return 0;
}

static inline int setup(void **state)
{
	(void)state;
	return setup_for(8);
}

static inline int teardown(void **state)
{
	(void)state;
	xlistener_close(listener);
	reactor_free(r); /* under ASan: everything closed is freed by now */
	assert_int_equal(pool_slots_out(pool), 0);
	pool_free(pool);
	return 0;
}

/* A connected pair: ret[0] connected, ret[1] accepted. */
static inline void make_pair(struct xconn *ret[2])
{
	int before = accepted_count;
	struct op op;

	assert_int_equal(tcp_ops.connect(r, &where, clock_mono_ns() + 60 * NS_PER_S, NULL, 0,
					 &op_init(&op)->x, &ret[0]),
			 0);
	assert_int_equal(await(&op), 0);
	while (accepted_count == before)
		assert_int_equal(reactor_run(r), 0);
	ret[1] = accepted[before];
}

static inline void close_pair(struct xconn *c[2])
{
	xconn_close(c[0]);
	xconn_close(c[1]);
}

/* ---- 1,000 peers that come, say nothing and go ---- */

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
