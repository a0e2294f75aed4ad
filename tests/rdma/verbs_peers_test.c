/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that is killed, and peers that lie: about memory, in their private data and in their
 * messages. On a real device (soft RoCE will do); run it through tests/vm/run. PASS/FAIL lines; 77
 * without a device. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rdma/verbs_test_fixture.h"

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
	uint8_t data[CAPSULE_PRIVATE_MOST];

	memset(data, 0xa5, sizeof(data));
	p.private_data = data;
	p.private_data_len = 56; /* all that a request may have */
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

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "all";
	struct side client, server;
	int rc = reactor_up();

	if (rc)
		return rc;
	if (!strcmp(mode, "child"))
		return child_main(PORT);
	if (!strcmp(mode, "stranger"))
		return stranger_main(argv[2]);
	sides_up(&client, &server);
	survives_a_killed_peer(&server, argv[0]);
	lies_about_memory(&client, &server);
	attacks_the_node(&client, &server, IBV_WR_RDMA_WRITE);
	attacks_the_node(&client, &server, IBV_WR_RDMA_READ);
	refuses_strangers(&server, argv[0]);
	hears_nonsense(&client, &server);
	return sides_down(&client, &server);
}
