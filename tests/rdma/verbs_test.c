/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of RDMA connections on one reactor, on a real device (soft RoCE will do); run it
 * through tests/vm/run. PASS/FAIL lines; 77 without a device. `verbs_test rates` only measures
 * pulls. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void check(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void check(bool good, const char *fmt, ...)
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

static void on_alarm(struct rtimer *t)
{
	(void)t;
	reactor_stop(reactor);
}

static bool turn_until(uint64_t deadline_ns)
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

static void turn_for_ms(uint64_t ms)
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

static void wop_done(struct xop *op, int res)
{
	struct wop *w = (struct wop *)op;

	w->res = res;
	w->done = true;
	reactor_stop(reactor);
}

static struct xop *wop(struct wop *w)
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

static void on_accepted(void *arg, struct xconn *c)
{
	struct side *s = arg;

	s->accepted = c;
	s->accept_count++;
	reactor_stop(reactor);
}

static struct side side_new(bool passive, uint32_t srq_depth)
{
	struct pool_opts po = {.count = {600, 200, 16, 20}, .floor_pct = {[POOL_CTRL] = 5}};
	struct verbs_opts vo = {.protocol = &capsule_link,
				.passive = passive,
				.active = !passive,
				.role = CAPSULE_CLIENT,
				.accept_role = CAPSULE_NODE,
				.peer_may_write = true,
				.srq_depth = srq_depth};
	struct err err = ERR_INIT;
	struct side s = {0};

	if (pool_new(&po, &s.pool, &err) < 0 ||
	    (vo.pool = s.pool, verbs_new(reactor, &vo, &s.v, &err)) < 0) {
		printf("FAIL: set-up: %s\n", err.text);
		exit(1);
	}
	return s;
}

static void side_listen(struct side *s, uint16_t port, uint32_t max_conns)
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

static void side_free(struct side *s, const char *name)
{
	verbs_free(s->v);
	check(pool_slots_out(s->pool) == 0, "%s: all slots are back (%u out)", name,
	      pool_slots_out(s->pool));
	if (!pool_slots_out(s->pool))
		pool_free(s->pool);
}

static int dial(struct side *from, const char *ip, uint16_t port, uint64_t timeout_ms,
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

static struct pair pair_up(struct side *client, struct side *server)
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

static uint32_t conns(const struct side *s)
{
	return s->v->conn_count;
}

static void pair_close(struct pair *p, struct side *client, struct side *server)
{
	uint32_t left_c = conns(client) - 1, left_s = conns(server) - 1;

	xconn_close(p->c);
	xconn_close(p->s);
	check(UNTIL(conns(client) == left_c && conns(server) == left_s),
	      "closed within the deadline");
}

static void fill(struct slot *s, uint32_t seed)
{
	for (uint32_t i = 0; i < s->size / 4; i++)
		((uint32_t *)(void *)s->data)[i] = seed + i * 2654435761u;
}

static bool same(const struct slot *a, const struct slot *b, uint32_t off, uint32_t len)
{
	return !memcmp(a->data + off, b->data + off, len);
}

static uint32_t make_message(uint8_t *buf, uint32_t len, uint32_t seq)
{
	memset(buf, 0, len);
	buf[0] = 1;
	buf[1] = CAPSULE_WRITE;
	memcpy(buf + 8, &seq, sizeof(seq));
	memcpy(buf + len - 4, &seq, sizeof(seq));
	return len;
}

/* ---- the cases ---- */

static void greets(struct pair *p)
{
	const struct verbs_hello *h = verbs_peer(p->c), *g = verbs_peer(p->s);

	check(h->credits >= 4 && h->message_max == VERBS_MESSAGE_MAX && h->read_depth == 16 &&
		      h->payload_max == VERBS_PAYLOAD_MAX && h->role == CAPSULE_NODE,
	      "the client hears the node's private data: %u credits, READ depth %u", h->credits,
	      h->read_depth);
	check(g->credits == VERBS_ACTIVE_CREDITS && g->role == CAPSULE_CLIENT && !g->payload_max,
	      "the node hears the client's");
}

#define BURST 100
#define MESSAGES 5000u

struct flow { /* one direction */
	struct xconn *from, *to;
	struct wop send[BURST], recv;
	uint8_t out[BURST][VERBS_MESSAGE_MAX], in[VERBS_MESSAGE_MAX];
	uint32_t sent, got, len[BURST];
	bool bad;
};

static void flow_turn(struct flow *f)
{
	for (uint32_t i = 0; i < BURST && f->sent < MESSAGES; i++) {
		struct iovec iov = {f->out[i], 0};

		if (f->sent >= BURST && !f->send[i].done)
			continue;
		f->bad |= f->sent >= BURST && f->send[i].res < 0;
		iov.iov_len = make_message(f->out[i], 24 + f->sent * 37 % 2024 / 4 * 4, f->sent);
		f->sent++;
		xconn_send(f->from, &iov, 1, wop(&f->send[i]));
	}
	while (f->recv.done) {
		uint32_t seq;

		memcpy(&seq, f->in + 8, sizeof(seq));
		f->bad |= f->recv.res != (int)(24 + f->got * 37 % 2024 / 4 * 4) || seq != f->got;
		if (f->bad)
			return;
		f->got++;
		xconn_recv(f->to, f->in, sizeof(f->in), wop(&f->recv));
	}
}

static void exchanges_messages(struct pair *p)
{
	static struct flow up, down;
	uint64_t rnr = metric_get(METRIC_RDMA_RNR), began = clock_mono_ns();
	bool all;

	memset(&up, 0, sizeof(up));
	memset(&down, 0, sizeof(down));
	up.from = down.to = p->c;
	up.to = down.from = p->s;
	xconn_recv(up.to, up.in, sizeof(up.in), wop(&up.recv));
	xconn_recv(down.to, down.in, sizeof(down.in), wop(&down.recv));
	all = UNTIL((flow_turn(&up), flow_turn(&down),
		     up.bad || down.bad || (up.got == MESSAGES && down.got == MESSAGES)));
	check(all && !up.bad && !down.bad,
	      "%u messages each way in order (%u, %u arrived; %llu a second)", MESSAGES, up.got,
	      down.got, (unsigned long long)(2 * MESSAGES * NS_PER_S / (clock_mono_ns() - began)));
	check(metric_get(METRIC_RDMA_RNR) == rnr, "no RNR");
	/* the receives stay pending and would swallow what comes next: the caller closes the pair
	 */
}

static void carries_payload(struct pair *p, struct side *client)
{
	static const uint32_t sizes[] = {8192, 1, 511, 4096, 8191};
	struct slot *src = pool_get(client->pool, SLOT_8K, POOL_READ);
	static uint8_t message[VERBS_MESSAGE_MAX], in[VERBS_MESSAGE_MAX];
	bool good = true, aligned = true;

	fill(src, 77);
	for (int round = 0; round < 100; round++) {
		struct iovec iov = {message, VERBS_MESSAGE_MAX};
		uint32_t len = sizes[round % 5], got_len;
		struct wop send, recv;
		struct slot *got;

		make_message(message, VERBS_MESSAGE_MAX, (uint32_t)round);
		xconn_recv(p->s, in, sizeof(in), wop(&recv));
		verbs_send_payload(p->c, &iov, src->data, len, wop(&send));
		if (!UNTIL(send.done && recv.done) || send.res < 0 || recv.res < 0) {
			good = false;
			break;
		}
		got = verbs_take_payload(p->s, &got_len);
		good &= got && got_len == len && !memcmp(got->data, src->data, len) &&
			!memcmp(in + 8, message + 8, VERBS_MESSAGE_MAX - 8);
		aligned &= got && !((uintptr_t)got->data & 4095);
		if (round % 3)
			slot_put(got);
		else if (got) /* one that nobody takes goes back as well */
			slot_put(got);
	}
	check(good, "payload rides along and is taken from its slot");
	check(aligned, "it lands where O_DIRECT can take it");
	slot_put(src);
}

static void pulls(struct pair *p, struct side *client, struct side *server)
{
	static const uint32_t sizes[] = {1, 512, 4097, 65536, 128u << 10, 256u << 10, MiB - 3, MiB};

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct slot *src = pool_get(client->pool, SLOT_1M, POOL_READ);
		struct slot *dst = pool_get(server->pool, SLOT_1M, POOL_READ);
		uint32_t off = sizes[i] < MiB - 4096 ? 4096 : 0;
		struct wop w;

		fill(src, i);
		memset(dst->data, 0, dst->size);
		xconn_pull(p->s, verbs_remote(p->c, src, off), dst, off, sizes[i], wop(&w));
		UNTIL(w.done);
		check(w.done && w.res == (int)sizes[i] && same(src, dst, off, sizes[i]) &&
			      (off + sizes[i] >= MiB || !dst->data[off + sizes[i]]),
		      "pull of %u bytes (%s)", sizes[i], err_name(w.res < 0 ? w.res : 0));
		slot_put(src);
		slot_put(dst);
	}
}

static void pushes_before_it_sends(struct pair *p, struct side *client, struct side *server)
{
	struct slot *dst = pool_get(client->pool, SLOT_1M, POOL_READ);
	struct slot *src = pool_get(server->pool, SLOT_1M, POOL_READ);
	bool good = true;

	for (uint32_t round = 0; round < 20 && good; round++) {
		struct iovec piece[3] = {
			{src->data, 300000}, {src->data + 300000, 7}, {src->data + 300007, 500000}};
		uint8_t message[MSG_LEN], in[VERBS_MESSAGE_MAX];
		struct iovec iov = {message, make_message(message, MSG_LEN, round)};
		struct wop push, send, recv;

		fill(src, round * 99);
		memset(dst->data, 0, dst->size);
		xconn_recv(p->c, in, sizeof(in), wop(&recv));
		xconn_push(p->s, piece, 3, verbs_remote(p->c, dst, 0), wop(&push));
		xconn_send(p->s, &iov, 1, wop(&send));
		UNTIL(recv.done);
		good = recv.done && recv.res == (int)MSG_LEN && same(src, dst, 0, 800007) &&
		       !dst->data[800007];
		good &= UNTIL(push.done && send.done) && push.res == 800007 &&
			send.res == (int)MSG_LEN;
	}
	check(good, "what was pushed is there when the message after it arrives");
	slot_put(src);
	slot_put(dst);
}

#define MANY 150

static void keeps_many_in_flight(struct pair *p, struct side *client, struct side *server)
{
	static struct wop pull[MANY], push[MANY];
	struct slot *src[MANY], *dst[MANY];
	static struct iovec piece[MANY];
	uint32_t n = 0;
	bool good = true;

	for (; n < MANY; n++) {
		src[n] = pool_get(client->pool, SLOT_64K, POOL_READ);
		dst[n] = pool_get(server->pool, SLOT_64K, POOL_READ);
		if (!src[n] || !dst[n])
			break;
		fill(src[n], n);
		xconn_pull(p->s, verbs_remote(p->c, src[n], 0), dst[n], 0, 65536, wop(&pull[n]));
	}
	for (uint32_t i = 0; i < n; i++) {
		good &= UNTIL(pull[i].done) && pull[i].res == 65536 &&
			same(src[i], dst[i], 0, 65536);
		fill(dst[i], i + 1000);
		piece[i] = (struct iovec){dst[i]->data, 65536};
		xconn_push(p->s, &piece[i], 1, verbs_remote(p->c, src[i], 0), wop(&push[i]));
	}
	for (uint32_t i = 0; i < n; i++)
		good &= UNTIL(push[i].done) && push[i].res == 65536 &&
			same(src[i], dst[i], 0, 65536);
	check(good && n == MANY, "%u pulls and %u pushes at once", n, n);
	for (uint32_t i = 0; i < n; i++) {
		slot_put(src[i]);
		slot_put(dst[i]);
	}
}

static void honours_deadlines(struct side *client, struct side *server)
{
	struct pair p = pair_up(client, server);
	uint8_t in[VERBS_MESSAGE_MAX], message[MSG_LEN];
	struct iovec iov = {message, make_message(message, MSG_LEN, 1)};
	static struct wop send[200];
	struct wop recv;
	struct xconn *c;
	uint64_t began;
	int rc, bad = 0;

	p.c->recv_deadline_ns = clock_mono_ns() + 200 * NS_PER_MS;
	xconn_recv(p.c, in, sizeof(in), wop(&recv));
	check(UNTIL(recv.done) && recv.res == -ETIMEDOUT, "a receive ends at its deadline");
	p.c->recv_deadline_ns = 0;
	xconn_recv(p.c, in, sizeof(in), wop(&recv));
	xconn_send(p.s, &iov, 1, wop(&send[0]));
	check(UNTIL(recv.done) && recv.res == (int)MSG_LEN, "the connection lives on");
	/* nobody takes them: credits run out, the rest waits */
	p.c->send_deadline_ns = clock_mono_ns() + 300 * NS_PER_MS;
	for (int i = 0; i < 200; i++)
		xconn_send(p.c, &iov, 1, wop(&send[i]));
	UNTIL(send[199].done);
	for (int i = 0; i < 200; i++)
		bad += send[i].done && send[i].res == -ETIMEDOUT;
	check(send[199].done && bad >= 100, "sends without credits end at their deadline (%d)",
	      bad);
	pair_close(&p, client, server);

	began = clock_mono_ns();
	rc = dial(client, "10.9.0.77", PORT, 400, &c);
	check(rc == -ETIMEDOUT && clock_mono_ns() - began < 15 * NS_PER_S,
	      "a silent address: %s after %llu ms", err_name(rc),
	      (unsigned long long)((clock_mono_ns() - began) / NS_PER_MS));
	xconn_close(c);
	rc = dial(client, "127.0.0.1", PORT, 1000, &c);
	check(rc == -EHOSTUNREACH, "no RDMA behind 127.0.0.1: %s (%s)", err_name(rc),
	      c ? verbs_reason(c) : "");
	xconn_close(c);
	rc = dial(client, "203.0.113.5", PORT, 1000, &c);
	check(rc == -EHOSTUNREACH, "no route: %s", err_name(rc));
	xconn_close(c);
}

static void closes_with_ops_in_flight(struct side *client, struct side *server, bool by_client)
{
	struct pair p = pair_up(client, server);
	static struct wop pull[40], send[40];
	struct slot *src = pool_get(client->pool, SLOT_1M, POOL_READ);
	struct slot *dst = pool_get(server->pool, SLOT_1M, POOL_READ);
	uint8_t message[MSG_LEN], in[VERBS_MESSAGE_MAX];
	struct iovec iov = {message, make_message(message, MSG_LEN, 1)};
	uint32_t home = 0;
	struct wop recv;

	xconn_recv(p.s, in, sizeof(in), wop(&recv));
	for (int i = 0; i < 40; i++) {
		xconn_pull(p.s, verbs_remote(p.c, src, 0), dst, 0, MiB, wop(&pull[i]));
		xconn_send(p.s, &iov, 1, wop(&send[i]));
	}
	UNTIL(pull[0].done);
	xconn_close(by_client ? p.c : p.s);
	UNTIL(recv.done);
	for (int i = 0; i < 40; i++)
		home += UNTIL(pull[i].done) && UNTIL(send[i].done);
	check(home == 40 && recv.res < 0 && pull[39].res < 0,
	      "the %s closes: every op comes back (the last one with %s)",
	      by_client ? "client" : "node", err_name(pull[39].res));
	xconn_close(by_client ? p.s : p.c);
	check(UNTIL(!conns(client) && !conns(server)), "and both ends are gone");
	slot_put(src);
	slot_put(dst);
}

static uint32_t resource_count(const char *what)
{
	char cmd[64], line[512];
	uint32_t n = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "rdma resource show %s 2>/dev/null", what);
	f = popen(cmd, "r");
	while (f && fgets(line, sizeof(line), f))
		n++;
	if (f)
		pclose(f);
	return n;
}

static void reconnects(struct side *client, struct side *server)
{
	uint32_t qp = resource_count("qp"), mr = resource_count("mr"), id = resource_count("cm_id");
	uint64_t began = clock_mono_ns();
	int i;

	for (i = 0; i < 200; i++) {
		struct pair p = pair_up(client, server);

		xconn_close(i % 2 ? p.c : p.s);
		if (i % 3 == 0)
			turn_for_ms(1);
		xconn_close(i % 2 ? p.s : p.c);
		if (i % 8 == 7 && !UNTIL(!conns(client) && !conns(server)))
			break;
	}
	check(i == 200 && UNTIL(!conns(client) && !conns(server)),
	      "200 connections one after the other (%llu ms each)",
	      (unsigned long long)((clock_mono_ns() - began) / NS_PER_MS / 200));
	check(resource_count("qp") == qp && resource_count("mr") == mr &&
		      resource_count("cm_id") == id,
	      "nothing leaks: queue pairs %u, memory regions %u, CM ids %u, as before",
	      resource_count("qp"), resource_count("mr"), resource_count("cm_id"));
}

static void rejects_above_the_limit(struct side *client)
{
	struct side server = side_new(true, 64);
	char ip[NET_TEXT_MAX];
	struct xconn *c[4];
	int rc[4];

	side_listen(&server, PORT + 1, 3);
	for (int i = 0; i < 4; i++)
		rc[i] = dial(client, net_ip(&server_addr, ip), PORT + 1, 2000, &c[i]);
	check(!rc[0] && !rc[1] && !rc[2] && rc[3] == -ECONNREFUSED &&
		      strstr(verbs_reason(c[3]), "busy"),
	      "the fourth of three is refused: %s", verbs_reason(c[3]));
	for (int i = 0; i < 4; i++)
		xconn_close(c[i]);
	UNTIL(!conns(client));
	side_free(&server, "limited node");
	rc[0] = dial(client, ip, PORT + 2, 1000, &c[0]);
	check(rc[0] == -ECONNREFUSED, "nobody listens: %s (%s)", err_name(rc[0]),
	      verbs_reason(c[0]));
	xconn_close(c[0]);
	UNTIL(!conns(client));
}

/* ---- a peer that dies ---- */

static int child_main(uint16_t port)
{
	struct side me = side_new(false, 0);
	char ip[NET_TEXT_MAX];
	struct xconn *c;
	struct slot *s = pool_get(me.pool, SLOT_1M, POOL_READ);
	uint8_t message[MSG_LEN];
	struct xremote m;
	struct wop w;

	if (dial(&me, net_ip(&server_addr, ip), port, 5000, &c) < 0)
		return 1;
	make_message(message, MSG_LEN, 1);
	m = verbs_remote(c, s, 0);
	memcpy(message + 16, &m, sizeof(m));
	xconn_send(c, &(struct iovec){message, MSG_LEN}, 1, wop(&w));
	turn_for_ms(60000);
	return 0;
}

static void survives_a_killed_peer(struct side *server, const char *self)
{
	static struct wop pull[40];
	struct slot *dst = pool_get(server->pool, SLOT_1M, POOL_READ);
	uint8_t in[VERBS_MESSAGE_MAX];
	uint32_t home = 0, lost = 0;
	struct xremote m;
	struct wop recv;
	pid_t pid;

	server->accepted = NULL;
	pid = fork();
	if (!pid) {
		execl(self, self, "child", (char *)NULL);
		_exit(127);
	}
	if (UNTIL(server->accepted)) {
		uint64_t killed;

		xconn_recv(server->accepted, in, sizeof(in), wop(&recv));
		UNTIL(recv.done);
		memcpy(&m, in + 16, sizeof(m));
		for (int i = 0; i < 40; i++)
			xconn_pull(server->accepted, m, dst, 0, MiB, wop(&pull[i]));
		UNTIL(pull[1].done);
		xconn_recv(server->accepted, in, sizeof(in), wop(&recv));
		kill(pid, SIGKILL);
		killed = clock_mono_ns();
		for (int i = 0; i < 40; i++) {
			home += UNTIL(pull[i].done);
			lost += pull[i].res < 0;
		}
		check(home == 40 && lost > 0 && UNTIL(recv.done),
		      "the peer is killed: all pulls come back, %u failed, after %llu ms (%s)",
		      lost, (unsigned long long)((clock_mono_ns() - killed) / NS_PER_MS),
		      verbs_reason(server->accepted));
		xconn_close(server->accepted);
	} else {
		check(false, "the child connects");
		kill(pid, SIGKILL);
	}
	waitpid(pid, NULL, 0);
	check(UNTIL(!conns(server)), "its connection is gone");
	slot_put(dst);
}

/* ---- peers that lie ---- */

static void lies_about_memory(struct side *client, struct side *server)
{
	struct pair p = pair_up(client, server), q = pair_up(client, server);
	struct slot *src = pool_get(client->pool, SLOT_64K, POOL_READ);
	struct slot *dst = pool_get(server->pool, SLOT_64K, POOL_READ);
	struct xremote wrong = verbs_remote(p.c, src, 0);
	struct wop w;

	wrong.rkey += 0x101;
	xconn_pull(p.s, wrong, dst, 0, 65536, wop(&w));
	UNTIL(w.done);
	check(w.done && w.res == -EPROTO, "a wrong rkey fails the pull: %s", err_name(w.res));
	xconn_pull(q.s, verbs_remote(q.c, src, 0), dst, 0, 65536, wop(&w));
	check(UNTIL(w.done) && w.res == 65536, "and the other connection does not notice");
	pair_close(&p, client, server);
	wrong = verbs_remote(q.c, src, 0);
	wrong.addr = 0x1000;
	xconn_pull(q.s, wrong, dst, 0, 65536, wop(&w));
	UNTIL(w.done);
	check(w.done && w.res == -EPROTO, "a wrong address, too: %s", err_name(w.res));
	pair_close(&q, client, server);
	slot_put(src);
	slot_put(dst);
}

/* The client uses its queue pair by hand: RDMA at the node's memory with keys that exist there. */
static void attacks_the_node(struct side *client, struct side *server, enum ibv_wr_opcode opcode)
{
	struct pair p = pair_up(client, server), q = pair_up(client, server);
	struct vconn *c = (struct vconn *)p.c, *s = (struct vconn *)p.s;
	struct slot *mine = pool_get(client->pool, SLOT_8K, POOL_READ);
	struct slot *theirs = pool_get(server->pool, SLOT_8K, POOL_READ);
	struct ibv_sge sge = {(uintptr_t)mine->data, 4096,
			      vdev_lkey(c->dev, true, mine->data, NULL)};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)c->slot << 40 | (uint64_t)c->gen << 24,
				 .opcode = opcode,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct wop recv, w;
	uint8_t in[VERBS_MESSAGE_MAX];
	struct slot *src = pool_get(client->pool, SLOT_8K, POOL_READ);
	bool good;

	memset(mine->data, 0x5a, mine->size);
	memset(theirs->data, 0, theirs->size);
	wr.wr.rdma.remote_addr = (uintptr_t)theirs->data;
	wr.wr.rdma.rkey = s->dev->mr_in[theirs->slab]->rkey;
	/* A READ does not even leave: the depth that the node granted is 0. */
	p.c->recv_deadline_ns = clock_mono_ns() + 500 * NS_PER_MS;
	xconn_recv(p.c, in, sizeof(in), wop(&recv));
	c->sq[c->sq_head++ & (VERBS_SQ_DEPTH - 1)] = (struct vrec){.kind = V_PUSH};
	good = !ibv_post_send(c->id->qp, &wr, &bad) && UNTIL(recv.done) && recv.res < 0;
	for (uint32_t i = 0; i < 4096; i++)
		good &= !theirs->data[i] && mine->data[i] == 0x5a;
	check(good, "%s of the node's memory is refused: %s",
	      opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE",
	      *verbs_reason(p.c) ? verbs_reason(p.c) : "never executed");
	xconn_pull(q.s, verbs_remote(q.c, src, 0), theirs, 0, 4096, wop(&w));
	check(UNTIL(w.done) && w.res == 4096, "the node serves others");
	pair_close(&p, client, server);
	pair_close(&q, client, server);
	slot_put(mine);
	slot_put(theirs);
	slot_put(src);
}

/* Blocking calls of librdmacm in a child process: what a stranger may send as private data. */
static int stranger_main(const char *how)
{
	struct rdma_cm_id *id;
	struct ibv_qp_init_attr attr = {
		.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_conn_param p = {
		.responder_resources = 4, .retry_count = 3, .rnr_retry_count = 3};
	struct capsule_private hello = {
		.version = 1, .credits = 4, .reply_slots = 4, .capsule_max = 2048, .read_depth = 4};
	uint8_t data[56];

	memset(data, 0xa5, sizeof(data));
	p.private_data = data;
	p.private_data_len = sizeof(data);
	capsule_private_encode(&hello, data);
	if (!strcmp(how, "garbage"))
		memset(data, 0xa5, sizeof(data));
	else if (!strcmp(how, "empty"))
		p.private_data_len = 0;
	else if (!strcmp(how, "short"))
		memset(data + 10, 0, sizeof(data) - 10);
	else if (!strcmp(how, "version"))
		data[5] = 9;
	else if (!strcmp(how, "reader"))
		p.initiator_depth = 4;
	else if (!strcmp(how, "depthless"))
		p.responder_resources = 0;
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&server_addr.sa, 1000) ||
	    rdma_resolve_route(id, 1000) || rdma_create_qp(id, NULL, &attr))
		return 10;
	return rdma_connect(id, &p) ? errno == ECONNREFUSED ? 1 : 11 : 0;
}

static int run_child(const char *self, const char *arg, const char *arg2)
{
	int status = 0;
	pid_t pid = fork();
	uint64_t end = clock_mono_ns() + PATIENCE_NS;

	if (!pid) {
		execl(self, self, arg, arg2, (char *)NULL);
		_exit(127);
	}
	while (!waitpid(pid, &status, WNOHANG) && clock_mono_ns() < end)
		turn_for_ms(10);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refuses_strangers(struct side *server, const char *self)
{
	static const char *const how[] = {"garbage", "empty",  "short",
					  "version", "reader", "depthless"};
	int before = server->accept_count;

	for (size_t i = 0; i < sizeof(how) / sizeof(*how); i++) {
		int rc = run_child(self, "stranger", how[i]);

		check(rc == 1, "a request with private data '%s' is refused (%d)", how[i], rc);
	}
	check(server->accept_count == before && UNTIL(!conns(server)),
	      "none of them became a connection");
}

static void hears_nonsense(struct side *client, struct side *server)
{
	for (int kind = 0; kind < 3; kind++) {
		struct pair p = pair_up(client, server), q = pair_up(client, server);
		uint8_t message[VERBS_MESSAGE_MAX], in[VERBS_MESSAGE_MAX];
		struct vconn *c = (struct vconn *)p.c;
		struct wop send, recv;
		uint32_t len = make_message(message, MSG_LEN, 1);

		xconn_recv(p.s, in, sizeof(in), wop(&recv));
		if (kind == 0)
			/* what nobody has */
			c->grant.granted = (uint16_t)(c->grant.granted + 30000);
		else if (kind == 1)
			c->grant.granted = (uint16_t)(c->grant.granted - 100); /* takes back */
		else
			len = 3; /* too short for a grant; the grant is written behind it */
		xconn_send(p.c, &(struct iovec){message, len}, 1, wop(&send));
		check(UNTIL(recv.done) && recv.res == -EPROTO,
		      "nonsense %d ends the connection: %s", kind, verbs_reason(p.s));
		pair_close(&p, client, server);
		xconn_recv(q.s, in, sizeof(in), wop(&recv));
		xconn_send(q.c, &(struct iovec){message, MSG_LEN}, 1, wop(&send));
		check(UNTIL(recv.done) && recv.res == (int)MSG_LEN, "and no other one");
		pair_close(&q, client, server);
	}
}

/* ---- figures ---- */

static void measures_pulls(struct side *client, struct side *server)
{
	static const uint32_t sizes[] = {65536, 128u << 10, 256u << 10, MiB};
	struct pair p = pair_up(client, server);

	for (uint32_t k = 0; k < 4; k++) {
		struct slot *src = pool_get(client->pool, SLOT_1M, POOL_READ), *dst[4];
		uint32_t total = 128 * MiB / sizes[k], started = 0, ended = 0;
		static struct wop w[4];
		uint64_t began, ns, bells = metric_get(METRIC_RDMA_DOORBELLS);

		for (int i = 0; i < 4; i++) {
			dst[i] = pool_get(server->pool, SLOT_1M, POOL_READ);
			w[i].done = false;
		}
		began = clock_mono_ns();
		for (; started < 4; started++)
			xconn_pull(p.s, verbs_remote(p.c, src, 0), dst[started], 0, sizes[k],
				   wop(&w[started]));
		while (ended < total) {
			uint32_t i = ended % 4;

			if (!UNTIL(w[i].done) || w[i].res < 0)
				break;
			ended++;
			wop(&w[i]);
			if (started++ < total)
				xconn_pull(p.s, verbs_remote(p.c, src, 0), dst[i], 0, sizes[k],
					   &w[i].op);
		}
		ns = clock_mono_ns() - began;
		check(ended == total,
		      "128 MiB by pulls of %u KiB, 4 in flight: %.0f MB/s, %.1f doorbells a MiB",
		      sizes[k] >> 10, 128.0 * MiB / 1e6 / ((double)ns / 1e9),
		      (double)(metric_get(METRIC_RDMA_DOORBELLS) - bells) / 128);
		slot_put(src);
		for (int i = 0; i < 4; i++)
			slot_put(dst[i]);
	}
	pair_close(&p, client, server);
}

static void run_cases(struct side *client, struct side *server, const char *self)
{
	struct pair p = pair_up(client, server);

	greets(&p);
	carries_payload(&p, client);
	pulls(&p, client, server);
	pushes_before_it_sends(&p, client, server);
	keeps_many_in_flight(&p, client, server);
	exchanges_messages(&p);
	pair_close(&p, client, server);
	honours_deadlines(client, server);
	closes_with_ops_in_flight(client, server, false);
	closes_with_ops_in_flight(client, server, true);
	reconnects(client, server);
	rejects_above_the_limit(client);
	survives_a_killed_peer(server, self);
	lies_about_memory(client, server);
	attacks_the_node(client, server, IBV_WR_RDMA_WRITE);
	attacks_the_node(client, server, IBV_WR_RDMA_READ);
	refuses_strangers(server, self);
	hears_nonsense(client, server);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "all", *ip = getenv("RDMA_ADDR");
	struct reactor_opts ro = {.name = "test"};
	struct err err = ERR_INIT;
	struct side client, server;

	if (verbs_probe(&err) < 0 || !ip) {
		printf("SKIP: %s\n", err.text[0] ? err.text : "RDMA_ADDR is not set");
		return 77;
	}
	alarm_timer.fire = on_alarm;
	if (reactor_new(&ro, &reactor, &err) < 0 || net_resolve(ip, PORT, &server_addr, &err) < 0) {
		printf("FAIL: %s\n", err.text);
		return 1;
	}
	if (!strcmp(mode, "child"))
		return child_main(PORT);
	if (!strcmp(mode, "stranger"))
		return stranger_main(argv[2]);
	client = side_new(false, 0);
	server = side_new(true, 256);
	side_listen(&server, PORT, 0);
	if (strcmp(mode, "rates"))
		run_cases(&client, &server, argv[0]);
	measures_pulls(&client, &server);
	side_free(&client, "client");
	side_free(&server, "node");
	check(metric_get(METRIC_RDMA_RNR) == 0, "no RNR in the whole run");
	reactor_free(reactor);
	printf("%s\n", failed ? "FAIL" : "PASS");
	return failed != 0;
}
