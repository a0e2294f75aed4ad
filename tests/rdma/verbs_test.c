/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of RDMA connections on one reactor, on a real device (soft RoCE will do); run it
 * through tests/vm/run. PASS/FAIL lines; 77 without a device. `verbs_test rates` only measures
 * pulls. Peers that die or lie: verbs_peers_test.c. */
#include "tests/rdma/verbs_test_fixture.h"

/* ---- two sides ---- */

static void fill(struct slot *s, uint32_t seed)
{
	for (uint32_t i = 0; i < s->size / 4; i++)
		((uint32_t *)(void *)s->data)[i] = seed + i * 2654435761u;
}

static bool same(const struct slot *a, const struct slot *b, uint32_t off, uint32_t len)
{
	return !memcmp(a->data + off, b->data + off, len);
}

static void greets(struct pair *p)
{
	const struct verbs_hello *h = verbs_peer(p->c), *g = verbs_peer(p->s);

	/* of another card's limits (cards): fewer READs, nothing that rides along */
	const bool any_card = getenv("DFS_TEST_CARD");

	check(h->credits >= 4 && h->message_max == VERBS_MESSAGE_MAX &&
		      (any_card || (h->read_depth == 16 && h->payload_max == VERBS_PAYLOAD_MAX)) &&
		      h->read_depth >= 1 && h->role == CAPSULE_NODE,
	      "the client hears the node's private data: %u credits, READ depth %u", h->credits,
	      h->read_depth);
	check(g->credits >= 4 && g->role == CAPSULE_CLIENT && !g->payload_max,
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

static void is_tuned(const struct xconn *x, const char *end)
{
	const struct vconn *c = container_of(x, struct vconn, x);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = {0};
	const int rc =
		ibv_query_qp(c->id->qp, &a, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init);

	check(!rc && a.ah_attr.grh.traffic_class == tuned.traffic_class &&
		      a.timeout == tuned.ack_exp && a.retry_cnt == tuned.retries,
	      "%s end: traffic class %u, time-out %u, %u retries", end, a.ah_attr.grh.traffic_class,
	      a.timeout, a.retry_cnt);
}

static void run_cases(struct side *client, struct side *server)
{
	struct pair p = pair_up(client, server);

	greets(&p);
	is_tuned(p.c, "dialling");
	is_tuned(p.s, "accepting");
	if (verbs_peer(p.c)->payload_max)
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
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "all";
	struct side client, server;
	int rc = reactor_up();

	if (rc)
		return rc;
	sides_up(&client, &server);
	if (strcmp(mode, "rates"))
		run_cases(&client, &server);
	measures_pulls(&client, &server);
	return sides_down(&client, &server);
}
