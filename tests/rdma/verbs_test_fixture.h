/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: verbs_test_fixture - what the tests of verbs on a real device share: both ends of RDMA
 * connections on one reactor, ops whose end one can see, and PASS and FAIL lines
 *
 * Included by one test program each, which owns what is static here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/link/capsule_link.h"
#include "common/transport/verbs_internal.h"
#include "common/wire/capsule.h"

#define PORT 9866
#define PATIENCE_NS (60 * NS_PER_S)
#define MSG_LEN 64u
#define MiB (1u << 20)

static struct reactor *reactor;
static struct rtimer alarm_timer;
static struct net_addr server_addr;
static int failed;

static inline void check(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void check(bool good, const char *fmt, ...)
{
	va_list ap;

	failed += !good;
	printf("%s: ", good ? "PASS" : "FAIL");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

/* ---- turning the reactor until something holds ---- */

static inline void on_alarm(struct rtimer *t)
{
	(void)t;
	reactor_stop(reactor);
}

static inline bool turn_until(uint64_t deadline_ns)
{
	uint64_t soon_ns = clock_mono_ns() + 2 * NS_PER_MS; /* not every condition rings */

	reactor_timer_set(reactor, &alarm_timer, soon_ns < deadline_ns ? soon_ns : deadline_ns);
	reactor_run(reactor);
	return clock_mono_ns() < deadline_ns;
}

#define UNTIL(cond)                                                                                \
	({                                                                                         \
		uint64_t end_ = clock_mono_ns() + PATIENCE_NS;                                     \
		while (!(cond) && turn_until(end_))                                                \
			;                                                                          \
		(cond);                                                                            \
	})

static inline void turn_for_ms(uint64_t ms)
{
	uint64_t end = clock_mono_ns() + ms * NS_PER_MS;

	while (turn_until(end))
		;
}

struct wop {           /* an op whose end one can see */
	struct xop op; /* first */
	int res;
	bool done;
};

static inline void wop_done(struct xop *op, int res)
{
	struct wop *w = (struct wop *)op;

	w->res = res;
	w->done = true;
	reactor_stop(reactor);
}

static inline struct xop *wop(struct wop *w)
{
	*w = (struct wop){.op.done = wop_done};
	return &w->op;
}

/* ---- two sides ---- */

struct side {
	struct pool *pool;
	struct verbs *v;
	struct xconn *accepted; /* the last one */
	int accept_count;
};

static inline void on_accepted(void *arg, struct xconn *c)
{
	struct side *s = arg;

	s->accepted = c;
	s->accept_count++;
	reactor_stop(reactor);
}

/* None of them is the default. */
static const struct verbs_tuning tuned = {
	.traffic_class = 104, .ack_exp = 17, .retries = 5, .relaxed = true};

/** With a pool of its own. */
static inline struct side side_of(const struct pool_opts *po, struct verbs_opts vo)
{
	struct err err = ERR_INIT;
	struct side s = {0};

	if (pool_new(po, &s.pool, &err) < 0 ||
	    (vo.pool = s.pool, verbs_new(reactor, &vo, &s.v, &err)) < 0) {
		printf("FAIL: set-up: %s\n", err.text);
		exit(1);
	}
	return s;
}

static inline struct side side_new(bool passive, uint32_t srq_depth)
{
	struct pool_opts po = {.count = {600, 200, 16, 20}, .floor_pct = {[POOL_CTRL] = 5}};
	struct verbs_opts vo = {.protocol = &capsule_link,
				.passive = passive,
				.active = !passive,
				.role = CAPSULE_CLIENT,
				.accept_role = CAPSULE_NODE,
				.peer_may_write = true,
				.tuning = &tuned,
				.srq_depth = srq_depth};

	return side_of(&po, vo);
}

static inline void side_listen(struct side *s, uint16_t port, uint32_t max_conns)
{
	struct xlistener_opts lo = {
		.addr = server_addr, .accepted = on_accepted, .max_conns = max_conns};
	struct err err = ERR_INIT;

	lo.arg = s;
	((struct sockaddr_in *)&lo.addr.sa)->sin_port = htobe16(port);
	if (verbs_listen(s->v, &lo, &err) < 0) {
		printf("FAIL: listen: %s\n", err.text);
		exit(1);
	}
}

static inline void side_free(struct side *s, const char *name)
{
	verbs_free(s->v);
	check(pool_slots_out(s->pool) == 0, "%s: all slots are back (%u out)", name,
	      pool_slots_out(s->pool));
	if (!pool_slots_out(s->pool))
		pool_free(s->pool);
}

static inline int dial(struct side *from, const char *ip, uint16_t port, uint64_t timeout_ms,
		       struct xconn **ret)
{
	struct net_addr to;
	struct wop w;
	struct err err = ERR_INIT;
	int rc = net_resolve(ip, port, &to, &err);

	*ret = NULL;
	if (!rc)
		rc = verbs_connect(from->v, &to, clock_mono_ns() + timeout_ms * NS_PER_MS, wop(&w),
				   ret);
	if (rc < 0)
		return rc;
	UNTIL(w.done);
	return w.done ? w.res : -ETIME;
}

struct pair {
	struct xconn *c, *s; /* client's and server's end */
};

static inline struct pair pair_up(struct side *client, struct side *server)
{
	char ip[NET_TEXT_MAX];
	struct pair p = {0};
	int rc;

	server->accepted = NULL;
	rc = dial(client, net_ip(&server_addr, ip), PORT, 5000, &p.c);
	if (rc < 0 || !UNTIL(server->accepted)) {
		check(false, "connecting: %s (%s)", err_name(rc), p.c ? verbs_reason(p.c) : "");
		exit(1);
	}
	p.s = server->accepted;
	return p;
}

static inline uint32_t conns(const struct side *s)
{
	return s->v->conn_count;
}

static inline void pair_close(struct pair *p, struct side *client, struct side *server)
{
	uint32_t left_c = conns(client) - 1, left_s = conns(server) - 1;

	xconn_close(p->c);
	xconn_close(p->s);
	check(UNTIL(conns(client) == left_c && conns(server) == left_s),
	      "closed within the deadline");
}

static inline uint32_t make_message(uint8_t *buf, uint32_t len, uint32_t seq)
{
	memset(buf, 0, len);
	buf[0] = 1;
	buf[1] = CAPSULE_WRITE;
	memcpy(buf + 8, &seq, sizeof(seq));
	memcpy(buf + len - 4, &seq, sizeof(seq));
	return len;
}

/** A message from one end to the other; a window that was opened before it is open then. */
static inline bool tell(struct xconn *from, struct xconn *to)
{
	static uint8_t out[MSG_LEN], in[VERBS_MESSAGE_MAX];
	struct iovec iov = {out, make_message(out, sizeof(out), 1)};
	struct wop send, recv;

	xconn_recv(to, in, sizeof(in), wop(&recv));
	xconn_send(from, &iov, 1, wop(&send));
	return UNTIL(send.done && recv.done) && recv.res == MSG_LEN;
}

/** 0, or what the program returns at once. */
static inline int reactor_up(void)
{
	struct reactor_opts ro = {.name = "test"};
	const char *ip = getenv("RDMA_ADDR");
	struct err err = ERR_INIT;

	if (verbs_probe(&err) < 0 || !ip) {
		printf("SKIP: %s\n", err.text[0] ? err.text : "RDMA_ADDR is not set");
		return 77;
	}
	alarm_timer.fire = on_alarm;
	if (reactor_new(&ro, &reactor, &err) < 0 || net_resolve(ip, PORT, &server_addr, &err) < 0) {
		printf("FAIL: %s\n", err.text);
		return 1;
	}
	return 0;
}

static inline void sides_up(struct side *client, struct side *server)
{
	*client = side_new(false, 0);
	*server = side_new(true, 256);
	side_listen(server, PORT, 0);
}

/** What the program returns. */
static inline int sides_down(struct side *client, struct side *server)
{
	side_free(client, "client");
	side_free(server, "node");
	check(metric_get(METRIC_RDMA_RNR) == 0, "no RNR in the whole run");
	reactor_free(reactor);
	printf("%s\n", failed ? "FAIL" : "PASS");
	return failed != 0;
}
