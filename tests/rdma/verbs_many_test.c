/* SPDX-License-Identifier: Apache-2.0 */
/* Many peers, and two reactors that serve them, on a real device (soft RoCE will do); run it
 * through tests/vm/run. PASS/FAIL lines; 77 without a device. verbs_many_test [PEERS [ROUNDS]]: how
 * many are connected at a time, and how many come and go. verbs_many_test floods|comes: one more,
 * that the test starts itself. */
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/rdma/verbs_test_fixture.h"

#define PEERS 300u
#define PEERS_MOST 4000u
#define ROUNDS 200u

/* ---- a node that answers each message with the same ---- */

struct echo {
	struct xconn *c;
	struct xop recv, send;
	uint8_t in[VERBS_MESSAGE_MAX], out[VERBS_MESSAGE_MAX];
	atomic_uint *open;
	bool sending;
};

static void echo_take(struct echo *e)
{
	xconn_recv(e->c, e->in, sizeof(e->in), &e->recv);
}

static void on_echoed(struct xop *op, int res)
{
	struct echo *e = container_of(op, struct echo, send);

	(void)res;
	e->sending = false;
	if (e->c)
		echo_take(e);
}

static void on_heard(struct xop *op, int res)
{
	struct echo *e = container_of(op, struct echo, recv);
	struct xconn *c = e->c;

	if (res > 0) {
		memcpy(e->out, e->in, (size_t)res);
		e->sending = true;
		xconn_send(c, &(struct iovec){e->out, (size_t)res}, 1, &e->send);
		return;
	}
	e->c = NULL;
	if (c)
		xconn_close(c);
}

static void on_gone(struct xconn *c)
{
	struct echo *e = c->user;

	atomic_fetch_sub(e->open, 1);
	free(e);
}

static void on_peer(void *arg, struct xconn *c)
{
	struct echo *e = calloc(1, sizeof(*e));

	e->c = c;
	e->open = arg;
	e->recv.done = on_heard;
	e->send.done = on_echoed;
	atomic_fetch_add(e->open, 1);
	c->user = e;
	c->gone = on_gone;
	echo_take(e);
}

struct node {
	struct reactor *reactor;
	struct pool *pool;
	struct verbs *v;
	atomic_uint open;
};

static void node_up(struct node *n, struct reactor *r, struct verbs *share, uint32_t receives)
{
	struct pool_opts po = {.count = {receives + 512, 16, 2, 2, 2},
			       .fixed = {[SLOT_8K] = receives}};
	struct verbs_opts vo = {.protocol = &capsule_link,
				.passive = true,
				.accept_role = CAPSULE_NODE,
				.srq_depth = receives,
				.share = share};
	struct xlistener_opts lo = {.addr = server_addr, .accepted = on_peer, .arg = &n->open};
	struct err err = ERR_INIT;

	n->reactor = r;
	if (pool_new(&po, &n->pool, &err) < 0 ||
	    (vo.pool = n->pool, verbs_new(r, &vo, &n->v, &err)) < 0 ||
	    verbs_listen(n->v, &lo, &err) < 0) {
		printf("FAIL: set-up: %s\n", err.text);
		exit(1);
	}
}

static struct vdev *dev_of(const struct verbs *v)
{
	return container_of(v->devs.next, struct vdev, link);
}

/* Every receive is somebody's: those that nobody was granted are as many as there are. */
static bool receives_are_whole(const struct node *n)
{
	return dev_of(n->v)->srq_left == (int)dev_of(n->v)->rx_count;
}

static void node_free(struct node *n, const char *name)
{
	verbs_free(n->v);
	check(pool_slots_out(n->pool) == 0, "%s: all slots are back (%u out)", name,
	      pool_slots_out(n->pool));
	if (!pool_slots_out(n->pool))
		pool_free(n->pool);
}

static void node_down(struct node *n, const char *name)
{
	check(receives_are_whole(n), "%s: no receive is missing: %d of %u are free", name,
	      dev_of(n->v)->srq_left, dev_of(n->v)->rx_count);
	node_free(n, name);
}

/* ---- peers ---- */

static bool ask(struct xconn *c, uint32_t seq)
{
	uint8_t out[MSG_LEN], in[VERBS_MESSAGE_MAX];
	struct wop send, recv;

	make_message(out, MSG_LEN, seq);
	xconn_recv(c, in, sizeof(in), wop(&recv));
	xconn_send(c, &(struct iovec){out, MSG_LEN}, 1, wop(&send));
	/* bytes 4 and 5 are the grant of who sent it */
	return UNTIL(send.done && recv.done) && recv.res == (int)MSG_LEN &&
	       !memcmp(in + 6, out + 6, MSG_LEN - 6);
}

static uint64_t memory_in_use(void)
{
	char line[128];
	uint64_t total = 0, left = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		(void)sscanf(line, "MemTotal: %lu", &total);
		(void)sscanf(line, "MemAvailable: %lu", &left);
	}
	if (f)
		fclose(f);
	return total - left;
}

static void close_all(struct side *client, struct xconn **c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		xconn_close(c[i]);
	check(UNTIL(!conns(client)), "all of them are gone");
}

/* ---- one that sends what it was not granted ---- */

static bool flood(struct vconn *c, uint32_t n)
{
	static uint8_t mem[MSG_LEN];
	const uint16_t said = htobe16(c->grant.said);
	bool good = true;

	make_message(mem, MSG_LEN, 7);
	memcpy(mem + 4, &said, sizeof(said)); /* nothing is wrong with it but that it is too many */
	for (uint32_t i = 0; i < n && good; i++) {
		struct ibv_sge sge = {(uintptr_t)mem, MSG_LEN, 0};
		struct ibv_send_wr wr = {.wr_id = UINT64_C(1) << 62,
					 .opcode = IBV_WR_SEND,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .send_flags = IBV_SEND_INLINE},
				   *bad;

		good = !ibv_post_send(c->qp, &wr, &bad);
	}
	return good;
}

/* ---- some that ask one question after the other ---- */

#define ACTIVE 64u
#define ANSWERS 3200u /* of all of them */

struct active {
	struct xconn *c;
	struct xop send, recv;
	uint8_t out[MSG_LEN], in[VERBS_MESSAGE_MAX];
	uint64_t began;
	bool sent, answered;
};

static struct {
	uint64_t ns[ANSWERS];
	uint32_t n, busy; /* answers; peers with a question */
} seen;

static void active_asks(struct active *a)
{
	a->sent = a->answered = false;
	a->began = clock_mono_ns();
	seen.busy++;
	xconn_recv(a->c, a->in, sizeof(a->in), &a->recv);
	xconn_send(a->c, &(struct iovec){a->out, MSG_LEN}, 1, &a->send);
}

static void active_goes_on(struct active *a)
{
	if (!a->sent || !a->answered)
		return;
	seen.busy--;
	if (seen.n < ANSWERS)
		active_asks(a);
}

static void on_asked(struct xop *op, int res)
{
	struct active *a = container_of(op, struct active, send);

	a->sent = res > 0;
	active_goes_on(a);
}

static void on_answer(struct xop *op, int res)
{
	struct active *a = container_of(op, struct active, recv);

	a->answered = res > 0;
	if (res > 0 && seen.n < ANSWERS)
		seen.ns[seen.n++] = clock_mono_ns() - a->began;
	active_goes_on(a);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The p99 in ns of what @n peers of @c ask at the same time; 0: they were not all answered. */
static uint64_t p99(struct xconn **c, uint32_t n)
{
	static struct active all[ACTIVE];

	seen.n = seen.busy = 0;
	for (uint32_t i = 0; i < n; i++) {
		all[i] = (struct active){.c = c[i]};
		all[i].send.done = on_asked;
		all[i].recv.done = on_answer;
		make_message(all[i].out, MSG_LEN, i);
		active_asks(&all[i]);
	}
	if (!UNTIL(seen.n == ANSWERS && !seen.busy))
		return 0;
	qsort(seen.ns, ANSWERS, sizeof(seen.ns[0]), by_size);
	return seen.ns[ANSWERS * 99 / 100];
}

/* The same, while a program of its own connects again and again, and @does so: what that costs it
 * is not the node's. *ret_floods: how often it was cut off. */
static uint64_t p99_beside(const char *does, struct xconn **c, uint32_t n, uint64_t *ret_floods)
{
	char *argv[] = {(char *)"verbs_many_test", (char *)(uintptr_t)does, NULL};
	uint64_t before, ns;
	pid_t pid;

	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ))
		return 0;
	turn_for_ms(500);
	before = metric_get(METRIC_RDMA_OVERRUNS);
	ns = p99(c, n);
	*ret_floods = metric_get(METRIC_RDMA_OVERRUNS) - before;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return ns;
}

/* @c: @n that are connected. */
static void answers_others_beside_floods(struct node *node, struct xconn **c, uint32_t n)
{
	uint64_t quiet, comes, beside, floods;

	n = n < ACTIVE ? n : ACTIVE;
	(void)p99(c, n); /* grants grow */
	quiet = p99(c, n);
	comes = p99_beside("comes", c, n, &floods);
	check(comes && !floods, "another one comes and goes");
	beside = p99_beside("floods", c, n, &floods);
	/* where each has its own receives, the device may be the one that stops it */
	check(beside && (floods || !dev_of(node->v)->srq),
	      "who sends 100 messages without a credit is cut off, %llu times",
	      (unsigned long long)floods);
	check(quiet,
	      "%u others are answered all the while: p99 %llu us, %llu us beside who comes and "
	      "goes, %llu us beside who floods",
	      n, (unsigned long long)(quiet / 1000), (unsigned long long)(comes / 1000),
	      (unsigned long long)(beside / 1000));
}

/* A client's completion queue is full with some 370 connections: each has 64 receives. */
#define PEERS_OF_CLIENT 350u

static void serves_many(struct node *node, uint32_t peers)
{
	static struct side client[PEERS_MOST / PEERS_OF_CLIENT + 1];
	static struct xconn *c[PEERS_MOST];
	const uint32_t clients = (peers - 1) / PEERS_OF_CLIENT + 1;
	char ip[NET_TEXT_MAX];
	const uint64_t before = memory_in_use(), began = clock_mono_ns();
	uint64_t slowest = 0;
	uint32_t n = 0, answered = 0, granted;
	int rc = 0;

	for (uint32_t i = 0; i < clients; i++)
		client[i] = side_new(false, 0);
	for (; n < peers; n++) {
		for (int try = 0; try < 20; try++) { /* the node may say: come again */
			rc = dial(&client[n / PEERS_OF_CLIENT], net_ip(&server_addr, ip), PORT,
				  10000, &c[n]);
			if (!rc)
				break;
			xconn_close(c[n]);
			turn_for_ms(50);
		}
		if (rc)
			break;
	}
	check(n == peers, "%u peers are connected (%s), %llu ms each, %llu KiB of the machine each",
	      n, rc ? err_name(rc) : "all", (clock_mono_ns() - began) / NS_PER_MS / (n ? n : 1),
	      (unsigned long long)(memory_in_use() - before) / (n ? n : 1));
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t asked = clock_mono_ns();

		if (!ask(c[i], i))
			break;
		answered++;
		if (clock_mono_ns() - asked > slowest)
			slowest = clock_mono_ns() - asked;
	}
	granted = dev_of(node->v)->rx_count - (uint32_t)dev_of(node->v)->srq_left;
	check(answered == n, "each of them is answered (the slowest after %llu ms) %s",
	      (unsigned long long)(slowest / NS_PER_MS),
	      answered < n ? verbs_reason(c[answered]) : "");
	printf("of %u receives %u are granted, %.1f a peer; a connection is %zu bytes\n",
	       dev_of(node->v)->rx_count, granted, (double)granted / n, sizeof(struct vconn));
	answers_others_beside_floods(node, c, answered);
	for (uint32_t i = 0; i < n; i++)
		xconn_close(c[i]);
	for (uint32_t i = 0; i < clients; i++) {
		UNTIL(!conns(&client[i]));
		side_free(&client[i], "a client");
	}
	check(UNTIL(!atomic_load(&node->open)), "the node has closed all, too");
	check(receives_are_whole(node), "and has all receives back (%d of %u)",
	      dev_of(node->v)->srq_left, dev_of(node->v)->rx_count);
}

/* ---- grants ---- */

#define BURST 200

static void grants_follow_use(struct side *client, struct node *node)
{
	static struct wop send[BURST];
	static uint8_t out[BURST][MSG_LEN];
	char ip[NET_TEXT_MAX];
	struct xconn *c;
	uint16_t first;
	int home = 0;

	if (dial(client, net_ip(&server_addr, ip), PORT, 5000, &c)) {
		check(false, "connecting");
		return;
	}
	first = verbs_peer(c)->credits;
	for (int i = 0; i < BURST; i++) {
		make_message(out[i], MSG_LEN, (uint32_t)i);
		xconn_send(c, &(struct iovec){out[i], MSG_LEN}, 1, wop(&send[i]));
	}
	for (int i = 0; i < BURST; i++)
		home += UNTIL(send[i].done) && send[i].res > 0;
	turn_for_ms(100);
	list_for_each (l, &node->v->conns) {
		const struct vconn *at = container_of(l, struct vconn, link);

		check(home == BURST && at->grant.target == 32 && first == 4,
		      "who sends much is granted more: %u at first, %u after %d messages", first,
		      at->grant.target, home);
	}
	close_all(client, &c, 1);
	check(UNTIL(!atomic_load(&node->open)) && receives_are_whole(node),
	      "and gives back what it was granted");
}

/* ---- connections that come and go ---- */

/* Messages are on their way when one end closes, and the other. */
static void loses_no_receive(struct side *client, struct node *node, uint32_t rounds)
{
	static uint8_t out[8][MSG_LEN];
	char ip[NET_TEXT_MAX];
	uint32_t i = 0;

	net_ip(&server_addr, ip);
	for (; i < rounds; i++) {
		static struct wop send[8];
		struct xconn *c;

		if (dial(client, ip, PORT, 5000, &c))
			break;
		for (uint32_t k = 0; k < 1 + i % 8; k++) {
			make_message(out[k], MSG_LEN, k);
			xconn_send(c, &(struct iovec){out[k], MSG_LEN}, 1, wop(&send[k]));
		}
		if (i % 3)
			turn_for_ms(i % 2);
		else
			(void)flood((struct vconn *)c, 20);
		xconn_close(c);
		if (i % 16 == 15 && !UNTIL(!conns(client)))
			break;
	}
	check(i == rounds && UNTIL(!conns(client) && !atomic_load(&node->open)),
	      "%u connections end in mid-message", i);
	check(receives_are_whole(node), "no receive is missing (%d of %u)",
	      dev_of(node->v)->srq_left, dev_of(node->v)->rx_count);
}

/* ---- two reactors ---- */

static void shares_out_connections(struct side *client, struct node *first)
{
	const struct reactor_opts ro = {.name = "second"};
	static struct node second;
	struct xconn *c[8];
	char ip[NET_TEXT_MAX];
	struct err err = ERR_INIT;
	uint32_t n = 0, answered = 0;

	if (reactor_new(&ro, &second.reactor, &err) < 0) {
		check(false, "a second reactor: %s", err.text);
		return;
	}
	node_up(&second, second.reactor, first->v, 128);
	if (reactor_start(second.reactor) < 0)
		exit(1);
	for (; n < 8 && !dial(client, net_ip(&server_addr, ip), PORT, 5000, &c[n]); n++)
		;
	for (uint32_t i = 0; i < n; i++)
		answered += ask(c[i], i);
	check(n == 8 && answered == 8 && atomic_load(&first->open) == 4 &&
		      atomic_load(&second.open) == 4,
	      "of 8 connections each of two reactors serves a half (%u, %u)",
	      atomic_load(&first->open), atomic_load(&second.open));
	close_all(client, c, n);
	UNTIL(!atomic_load(&first->open) && !atomic_load(&second.open));
	reactor_stop(second.reactor);
	reactor_join(second.reactor);
	node_down(&second, "the second reactor");
	reactor_free(second.reactor);
	n = !dial(client, ip, PORT, 5000, &c[0]);
	check(n == 1 && ask(c[0], 1), "the first one serves on");
	close_all(client, c, n);
}

/* ---- a stranger that never confirms ---- */

static bool cm_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;
	bool good = rdma_get_cm_event(ch, &ev) == 0 && ev->event == type;

	rdma_ack_cm_event(ev);
	return good;
}

/* Asks for a connection, and does not look at the answer: so none is confirmed. */
static struct rdma_cm_id *half_open(struct rdma_event_channel *ch)
{
	const struct verbs_hello h = {
		.credits = 8, .message_max = VERBS_MESSAGE_MAX, .read_depth = 1};
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	uint8_t hello[VERBS_PRIVATE_MAX];
	struct rdma_conn_param p = {.responder_resources = 1, .private_data = hello};
	struct net_addr to = server_addr;
	struct rdma_cm_id *id;

	p.private_data_len = (uint8_t)capsule_link.hello_encode(&h, hello);
	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) < 0 ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to.sa, 2000) < 0 ||
	    !cm_event(ch, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id, 2000) < 0 ||
	    !cm_event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED))
		return NULL;
	a.send_cq = a.recv_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	return !rdma_create_qp(id, NULL, &a) && !rdma_connect(id, &p) ? id : NULL;
}

static void ends_while_a_stranger_is_half_open(struct node *node)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = half_open(ch);
	uint64_t began;

	check(id && UNTIL(node->v->conn_count == 1), "a stranger asks, and never confirms");
	began = clock_mono_ns();
	node_free(node, "node");
	check(clock_mono_ns() - began < 2 * NS_PER_S, "nobody waits for it (%llu ms)",
	      (unsigned long long)((clock_mono_ns() - began) / NS_PER_MS));
	if (id) {
		struct ibv_cq *cq = id->qp->send_cq;

		rdma_destroy_qp(id);
		(void)ibv_destroy_cq(cq);
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(ch);
}

/* Connects again and again, and @floods, or asks once; until it is killed. */
static int comes_for_ever(bool floods)
{
	char ip[NET_TEXT_MAX];
	struct side s;

	if (reactor_up())
		return 1;
	s = side_new(false, 0);
	for (;;) {
		struct xconn *c;
		const int rc = dial(&s, net_ip(&server_addr, ip), PORT, 5000, &c);

		if (!rc && floods && flood((struct vconn *)c, 100))
			turn_for_ms(20); /* it is cut off */
		else if (!rc && !floods)
			(void)ask(c, 1);
		if (c)
			xconn_close(c);
		UNTIL(!conns(&s));
	}
}

int main(int argc, char **argv)
{
	const uint32_t peers = argc > 1 ? (uint32_t)atoi(argv[1]) : PEERS;
	const uint32_t rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : ROUNDS;
	static struct node node;
	struct side client;
	int rc;

	if (argc > 1 && (strcmp(argv[1], "floods") == 0 || strcmp(argv[1], "comes") == 0))
		return comes_for_ever(argv[1][0] == 'f');
	rc = reactor_up();
	if (rc)
		return rc;
	client = side_new(false, 0);
	node_up(&node, reactor, NULL, peers > PEERS ? peers * 4 : 1024);
	if (dev_of(node.v)->srq) /* else each has its own receives, as many all the time */
		grants_follow_use(&client, &node);
	loses_no_receive(&client, &node, rounds);
	shares_out_connections(&client, &node);
	serves_many(&node, peers < PEERS_MOST ? peers : PEERS_MOST);
	ends_while_a_stranger_is_half_open(&node);
	side_free(&client, "client");
	check(metric_get(METRIC_RDMA_RNR) == 0, "no RNR in the whole run");
	reactor_free(reactor);
	printf("%s\n", failed ? "FAIL" : "PASS");
	return failed != 0;
}
