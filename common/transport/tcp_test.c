/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: bytes arrive whole and in order; every op comes back exactly once, at a close, at a
 * deadline and when the peer leaves; connections beyond the limit are refused; memory comes back.
 */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

static void op_done(struct xop *x, int res)
{
	struct op *op = container_of(x, struct op, x);

	op->res = res;
	op->count++;
	reactor_stop(r);
}

static struct op *op_init(struct op *op)
{
	*op = (struct op){.x.done = op_done};
	return op;
}

static int await(struct op *op)
{
	while (!op->count)
		assert_int_equal(reactor_run(r), 0);
	assert_int_equal(op->count, 1);
	return op->res;
}

static void stop_fire(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

/* In many turns: a thread that the machine forgets for that long has them all the same. */
static void run_ms(uint64_t ms)
{
	const uint64_t end = clock_mono_ns() + ms * NS_PER_MS;
	struct rtimer t = {.fire = stop_fire};

	for (int turns = 0; turns < 20 || clock_mono_ns() < end; turns++) {
		reactor_timer_set(r, &t, clock_mono_ns() + ms * NS_PER_MS / 20);
		while (t.deadline_ns)
			assert_int_equal(reactor_run(r), 0);
	}
}

static void on_accept(void *arg, struct xconn *c)
{
	(void)arg;
	accepted[accepted_count++] = c;
	reactor_stop(r);
}

static void on_refuse(void *arg)
{
	(void)arg;
	refused_count++;
	reactor_stop(r);
}

static int setup_for(uint32_t conns)
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

static int setup(void **state)
{
	(void)state;
	return setup_for(8);
}

static int setup_for_many(void **state)
{
	(void)state;
	return setup_for(MANY);
}

static int teardown(void **state)
{
	(void)state;
	xlistener_close(listener);
	reactor_free(r); /* under ASan: everything closed is freed by now */
	assert_int_equal(pool_slots_out(pool), 0);
	pool_free(pool);
	return 0;
}

/* A connected pair: ret[0] connected, ret[1] accepted. */
static void make_pair(struct xconn *ret[2])
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

static void close_pair(struct xconn *c[2])
{
	xconn_close(c[0]);
	xconn_close(c[1]);
}

static void what_is_sent_is_received(void **state)
{
	struct xconn *c[2];
	struct iovec iov[2] = {{.iov_base = "hello ", .iov_len = 6},
			       {.iov_base = "you", .iov_len = 3}};
	char buf[64];
	struct op s, g;

	(void)state;
	make_pair(c);
	assert_int_equal(net_port(&c[0]->peer), net_port(&where));
	assert_int_equal(net_port(&c[1]->peer), net_port(&c[0]->local));
	xconn_recv(c[1], buf, sizeof(buf), &op_init(&g)->x);
	xconn_send(c[0], iov, 2, &op_init(&s)->x);
	memset(iov, 0, sizeof(iov)); /* the array was copied */
	assert_int_equal(await(&s), 9);
	assert_int_equal(await(&g), 9);
	assert_memory_equal(buf, "hello you", 9);
	xconn_recv(c[1], buf, sizeof(buf), &op_init(&g)->x);
	xconn_close(c[0]);
	assert_int_equal(await(&g), 0); /* closed in good order */
	xconn_close(c[1]);
}

#define SENDS 200

static void many_sends_outstanding_keep_their_order(void **state)
{
	struct xconn *c[2];
	struct op s[SENDS], g;
	uint8_t *data = (uint8_t *)malloc(1 << 20);
	struct slot *slot = pool_get(pool, SLOT_1M, POOL_CTRL);
	uint32_t at = 0;

	(void)state;
	make_pair(c);
	for (uint32_t i = 0; i < 1 << 20; i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	for (int i = 0; i < SENDS; i++) {
		struct iovec iov[XOP_IOV_MAX];
		int n = i % (XOP_IOV_MAX + 1);

		for (int k = 0; k < n; k++) {
			iov[k] = (struct iovec){data + at, (size_t)(k * 97 + i)};
			at += (uint32_t)iov[k].iov_len;
		}
		xconn_send(c[0], iov, n, &op_init(&s[i])->x);
	}
	assert_true(at < 1 << 20);
	xconn_pull(c[1], (struct xremote){0}, slot, 0, at, &op_init(&g)->x);
	assert_int_equal(await(&g), (int)at);
	for (int i = 0; i < SENDS; i++)
		assert_true(await(&s[i]) >= 0);
	assert_memory_equal(slot->data, data, at);
	slot_put(slot);
	free(data);
	close_pair(c);
}

static void what_is_sent_in_one_turn_arrives_together(void **state)
{
	struct xconn *c[2];
	char buf[64];
	struct op s[3], g;

	(void)state;
	make_pair(c);
	xconn_recv(c[1], buf, sizeof(buf), &op_init(&g)->x);
	for (int i = 0; i < 3; i++)
		xconn_send(c[0], &(struct iovec){"abc" + i, 1}, 1, &op_init(&s[i])->x);
	assert_int_equal(await(&g), 3);
	assert_memory_equal(buf, "abc", 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(await(&s[i]), 1);
	close_pair(c);
}

static void what_is_sent_before_a_close_is_not_lost(void **state)
{
	struct xconn *c[2];
	char buf[64];
	struct op s, g;

	(void)state;
	make_pair(c);
	xconn_recv(c[1], buf, sizeof(buf), &op_init(&g)->x);
	xconn_send(c[0], &(struct iovec){"farewell", 8}, 1, &op_init(&s)->x);
	xconn_close(c[0]);
	assert_int_equal(await(&g), 8);
	(void)await(&s); /* its buffer was ours until now */
	xconn_close(c[1]);
}

static void a_push_larger_than_the_socket_buffers_is_whole(void **state)
{
	struct xconn *c[2];
	struct op s, g;
	struct slot *from[2] = {pool_get(pool, SLOT_1M, POOL_CTRL),
				pool_get(pool, SLOT_1M, POOL_CTRL)};
	struct slot *to = pool_get(pool, SLOT_1M, POOL_CTRL);
	struct iovec iov[XOP_IOV_MAX];

	(void)state;
	make_pair(c);
	memset(from[0]->data, 1, from[0]->size);
	memset(from[1]->data, 2, from[1]->size);
	for (int i = 0; i < XOP_IOV_MAX; i++)
		iov[i] = (struct iovec){from[i % 2]->data, from[i % 2]->size};
	xconn_push(c[0], iov, XOP_IOV_MAX, (struct xremote){0}, &op_init(&s)->x);
	for (int i = 0; i < XOP_IOV_MAX; i++) {
		xconn_pull(c[1], (struct xremote){0}, to, 0, to->size, &op_init(&g)->x);
		assert_int_equal(await(&g), (int)to->size);
		assert_memory_equal(to->data, from[i % 2]->data, to->size);
	}
	assert_int_equal(await(&s), XOP_IOV_MAX << 20);
	slot_put(to);
	slot_put(from[0]);
	slot_put(from[1]);
	close_pair(c);
}

static void a_deadline_ends_a_receive_and_a_send(void **state)
{
	struct xconn *c[2];
	struct op s, g;
	struct slot *slot = pool_get(pool, SLOT_1M, POOL_CTRL);
	struct iovec iov[XOP_IOV_MAX];
	uint64_t t0 = clock_mono_ns();

	(void)state;
	make_pair(c);
	c[1]->recv_deadline_ns = t0 + 30 * NS_PER_MS;
	xconn_pull(c[1], (struct xremote){0}, slot, 0, 100, &op_init(&g)->x);
	assert_int_equal(await(&g), -ETIMEDOUT);
	assert_true(clock_mono_ns() >= t0 + 30 * NS_PER_MS);

	for (int i = 0; i < XOP_IOV_MAX; i++)
		iov[i] = (struct iovec){slot->data, slot->size};
	c[0]->send_deadline_ns = clock_mono_ns() + 30 * NS_PER_MS;
	xconn_push(c[0], iov, XOP_IOV_MAX, (struct xremote){0}, &op_init(&s)->x);
	assert_int_equal(await(&s), -ETIMEDOUT); /* nobody reads */
	xconn_push(c[0], iov, 1, (struct xremote){0}, &op_init(&s)->x);
	assert_int_equal(await(&s), -ETIMEDOUT); /* a broken stream stays broken */
	slot_put(slot);
	close_pair(c);
}

/* False: the machine is so busy that a byte takes longer than @ms. */
static bool deadline_is_moved(uint64_t ms)
{
	struct xconn *c[2];
	struct op s, g;
	uint64_t t0;
	bool moved;
	char b[1];

	make_pair(c);
	t0 = clock_mono_ns();
	c[1]->recv_deadline_ns = t0 + ms * NS_PER_MS;
	xconn_recv(c[1], b, 1, &op_init(&g)->x);
	xconn_send(c[0], &(struct iovec){"x", 1}, 1, &op_init(&s)->x);
	moved = await(&g) == 1;
	if (moved) {
		c[1]->recv_deadline_ns = t0 + 3 * ms * NS_PER_MS;
		xconn_recv(c[1], b, 1, &op_init(&g)->x);
		assert_int_equal(await(&g), -ETIMEDOUT);
		assert_true(clock_mono_ns() >= t0 + 3 * ms * NS_PER_MS);
	} else {
		assert_int_equal(g.res, -ETIMEDOUT);
		assert_true(clock_mono_ns() >= t0 + ms * NS_PER_MS);
	}
	(void)await(&s);
	close_pair(c);
	return moved;
}

static void a_later_deadline_counts_when_it_is_moved(void **state)
{
	uint64_t ms = 20;

	(void)state;
	while (!deadline_is_moved(ms)) {
		ms *= 2;
		assert_true(ms < 60000);
	}
}

static void closing_returns_every_op(void **state)
{
	struct xconn *c[2];
	struct op s[3], g;
	struct slot *slot = pool_get(pool, SLOT_1M, POOL_CTRL);
	struct iovec iov[XOP_IOV_MAX];
	char b[1];

	(void)state;
	make_pair(c);
	for (int i = 0; i < XOP_IOV_MAX; i++)
		iov[i] = (struct iovec){slot->data, slot->size};
	xconn_recv(c[0], b, 1, &op_init(&g)->x);
	for (int i = 0; i < 3; i++)
		xconn_push(c[0], iov, XOP_IOV_MAX, (struct xremote){0}, &op_init(&s[i])->x);
	xconn_close(c[0]);
	assert_int_equal(await(&g), -ECANCELED);
	for (int i = 0; i < 3; i++)
		assert_int_equal(await(&s[i]), -ECANCELED);
	slot_put(slot);
	xconn_close(c[1]);
}

static void a_peer_that_leaves_in_the_middle_of_a_pull_is_a_reset(void **state)
{
	struct xconn *c[2];
	struct op s, g;
	struct slot *slot = pool_get(pool, SLOT_8K, POOL_CTRL);

	(void)state;
	make_pair(c);
	xconn_pull(c[1], (struct xremote){0}, slot, 0, 100, &op_init(&g)->x);
	xconn_send(c[0], &(struct iovec){"half", 4}, 1, &op_init(&s)->x);
	assert_int_equal(await(&s), 4);
	xconn_close(c[0]);
	assert_int_equal(await(&g), -ECONNRESET);
	for (int i = 0; i < 100; i++) { /* the first may still go out */
		xconn_send(c[1], &(struct iovec){"more", 4}, 1, &op_init(&s)->x);
		if (await(&s) < 0)
			break;
	}
	assert_int_equal(s.res, -ECONNRESET);
	slot_put(slot);
	xconn_close(c[1]);
}

static void drain(struct xconn *c, uint64_t bytes)
{
	static uint8_t buf[1 << 16];
	struct op g;

	for (uint64_t at = 0; at < bytes;) {
		const uint64_t want = bytes - at < sizeof(buf) ? bytes - at : sizeof(buf);
		int n;

		xconn_recv(c, buf, (uint32_t)want, &op_init(&g)->x);
		n = await(&g);
		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			assert_int_equal(buf[i], (uint8_t)((at + (uint64_t)i) % 251));
		at += (uint64_t)n;
	}
}

/* Sends until the sockets are full, and what waits for room then waits on. Returns how much went.
 */
static uint32_t fill(struct xconn *c, const uint8_t *data, uint32_t len, struct op *room)
{
	uint32_t went = 0;
	struct op s;

	do {
		xconn_send(c, &(struct iovec){(void *)(uintptr_t)(data + went), len - went}, 1,
			   &op_init(&s)->x);
		run_ms(50);
		assert_int_equal(s.count, 0);
		tcp_ops.send_stop(c);
		assert_true(await(&s) >= 0);
		went += (uint32_t)s.res;
		assert_true(went < len);
		tcp_ops.send_room(c, &op_init(room)->x);
		run_ms(20);
	} while (room->count);
	assert_true(went > 0);
	return went;
}

/* The peer takes nothing: what went is known to the byte, and no memory is held until it takes
 * some. */
static void a_stopped_send_says_how_much_went(void **state)
{
	struct xconn *c[2];
	const uint32_t len = 32u << 20;
	uint8_t *data = malloc(len);
	struct op s, room;
	uint32_t went;

	(void)state;
	make_pair(c);
	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i % 251);
	went = fill(c[0], data, len, &room);
	drain(c[1], went);
	assert_int_equal(await(&room), 0);
	xconn_send(c[0], &(struct iovec){"rest", 4}, 1, &op_init(&s)->x);
	xconn_recv(c[1], data, 5, &op_init(&room)->x);
	assert_int_equal(await(&s), 4);
	assert_int_equal(await(&room), 4);
	assert_memory_equal(data, "rest", 4);
	tcp_ops.send_stop(c[0]); /* nothing is under way: harmless */
	free(data);
	close_pair(c);
}

/* The socket of @c: the transport shows none. */
static int socket_of(const struct xconn *c)
{
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_in local, peer;
		socklen_t local_len = sizeof(local), peer_len = sizeof(peer);

		if (getsockname(fd, (struct sockaddr *)(void *)&local, &local_len) == 0 &&
		    getpeername(fd, (struct sockaddr *)(void *)&peer, &peer_len) == 0 &&
		    local_len == c->local.len && !memcmp(&local, &c->local.sa, local_len) &&
		    peer_len == c->peer.len && !memcmp(&peer, &c->peer.sa, peer_len))
			return fd;
	}
	fail_msg("no socket");
	return -1;
}

/* A peer that takes nothing costs the kernel what its window holds and little more, on both sides'
 * connections. */
static void the_kernel_keeps_little_for_a_peer_that_takes_nothing(void **state)
{
	struct xconn *c[2];
	uint8_t *data = calloc(1, 32u << 20);

	(void)state;
	make_pair(c);
	for (int side = 0; side < 2; side++) {
		int unsent = 0, before;
		struct op s;

		xconn_send(c[side], &(struct iovec){data, 32u << 20}, 1, &op_init(&s)->x);
		do {
			before = unsent;
			run_ms(100);
			assert_int_equal(ioctl(socket_of(c[side]), SIOCOUTQNSD, &unsent), 0);
		} while (!unsent || unsent != before);
		tcp_ops.send_stop(c[side]);
		assert_in_range(await(&s), 1, (32u << 20) - 1);
		assert_in_range(unsent, 1, 1 << 20);
	}
	free(data);
	close_pair(c);
}

static int unsent_of(const struct xconn *c)
{
	int unsent;

	assert_int_equal(ioctl(socket_of(c), SIOCOUTQNSD, &unsent), 0);
	return unsent;
}

/* Thousands of them fill its memory for TCP at half a MiB each. */
static void the_kernel_keeps_less_for_each_of_many_peers_that_take_nothing(void **state)
{
	static struct xconn *c[MANY][2];
	static struct op s[MANY];
	uint8_t *data = calloc(1, 4u << 20);
	int last;

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		make_pair(c[i]);
		xconn_send(c[i][1], &(struct iovec){data, 4u << 20}, 1, &op_init(&s[i])->x);
		run_ms(1);
	}
	for (int before = -1; (last = unsent_of(c[MANY - 1][1])) == 0 || last != before;
	     before = last)
		run_ms(100);
	print_message("of the first %d KiB, of the last %d KiB\n", unsent_of(c[0][1]) >> 10,
		      last >> 10);
	assert_in_range(unsent_of(c[0][1]), 256 << 10, 1 << 20);
	assert_in_range(last, 1, 255 << 10);
	for (unsigned i = 0; i < MANY; i++) {
		close_pair(c[i]);
		(void)await(&s[i]);
	}
	free(data);
}

static void a_wait_for_room_ends_at_the_deadline_by_a_stop_and_by_a_close(void **state)
{
	struct xconn *c[2];
	uint8_t *data = calloc(1, 32u << 20);
	struct op room;

	(void)state;
	make_pair(c);
	(void)fill(c[0], data, 32u << 20, &room);
	tcp_ops.send_stop(c[0]);
	assert_int_equal(await(&room), -ECANCELED);
	c[0]->send_deadline_ns = clock_mono_ns() + 20 * NS_PER_MS;
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	assert_int_equal(await(&room), -ETIMEDOUT);
	c[0]->send_deadline_ns = 0;
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	tcp_ops.send_stop(c[0]);
	assert_int_equal(await(&room), -ECANCELED);
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	close_pair(c);
	assert_int_equal(await(&room), -ECANCELED);
	free(data);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Half a second in which nothing can happen. */
static void assert_idle(void)
{
	const uint64_t before = cpu_ns();

	run_ms(500);
	assert_in_range(cpu_ns() - before, 0, 200 * NS_PER_MS);
}

/* For such a peer io_uring says at once, each time, that the wait for room has ended. */
static void a_peer_that_sends_no_more_and_takes_nothing_costs_no_time(void **state)
{
	struct xconn *c[2];
	const uint32_t len = 32u << 20;
	uint8_t *data = malloc(len);
	struct op s, room;

	(void)state;
	make_pair(c);
	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i % 251);
	tcp_ops.end(c[1]);
	xconn_send(c[0], &(struct iovec){data, len}, 1, &op_init(&s)->x);
	run_ms(200);
	assert_int_equal(s.count, 0);
	assert_idle();
	tcp_ops.send_stop(c[0]);
	assert_in_range(await(&s), 1, len - 1);
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	run_ms(200);
	assert_int_equal(room.count, 0);
	assert_idle();
	tcp_ops.send_stop(c[0]);
	assert_int_equal(await(&room), -ECANCELED);
	c[0]->send_deadline_ns = clock_mono_ns() + 20 * NS_PER_MS;
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	assert_int_equal(await(&room), -ETIMEDOUT);
	c[0]->send_deadline_ns = 0;
	tcp_ops.send_room(c[0], &op_init(&room)->x);
	drain(c[1], (uint32_t)s.res);
	assert_int_equal(await(&room), 0); /* it takes bytes again */
	xconn_send(c[0], &(struct iovec){data, len}, 1, &op_init(&s)->x);
	drain(c[1], len);
	assert_int_equal(await(&s), len);
	xconn_send(c[0], &(struct iovec){data, len}, 1, &op_init(&s)->x);
	run_ms(100);
	close_pair(c);
	assert_true(await(&s) < 0);
	free(data);
}

static void a_send_stopped_before_it_began_comes_back_with_nothing(void **state)
{
	struct xconn *c[2];
	char got[4];
	struct op s, g;

	(void)state;
	make_pair(c);
	xconn_send(c[0], &(struct iovec){"none", 4}, 1, &op_init(&s)->x);
	tcp_ops.send_stop(c[0]);
	assert_int_equal(await(&s), 0);
	xconn_send(c[0], &(struct iovec){"some", 4}, 1, &op_init(&s)->x);
	xconn_recv(c[1], got, 4, &op_init(&g)->x);
	assert_int_equal(await(&g), 4);
	assert_memory_equal(got, "some", 4);
	assert_int_equal(await(&s), 4);
	close_pair(c);
}

static void connecting_fails_with_the_reason_or_at_the_deadline(void **state)
{
	struct xlistener_opts lo = {.max_conns = 1, .accepted = on_accept};
	struct xlistener *gone;
	struct net_addr nobody, far;
	struct xconn *c;
	struct op op;

	(void)state;
	assert_int_equal(net_resolve("127.0.0.1", 0, &lo.addr, NULL), 0);
	assert_int_equal(tcp_listen(r, &lo, &nobody, &gone, NULL), 0);
	xlistener_close(gone);
	/* Until the accept has been cancelled the port is open. */
	do {
		assert_int_equal(tcp_ops.connect(r, &nobody, 0, NULL, 0, &op_init(&op)->x, &c), 0);
		await(&op);
		xconn_close(c);
	} while (op.res == 0);
	assert_int_equal(op.res, -ECONNREFUSED);
	assert_int_equal(net_resolve("192.0.2.1", 9, &far, NULL), 0); /* TEST-NET: nobody */
	assert_int_equal(tcp_ops.connect(r, &far, clock_mono_ns() + 20 * NS_PER_MS, NULL, 0,
					 &op_init(&op)->x, &c),
			 0);
	assert_true(await(&op) < 0);
	xconn_close(c);
}

static void giving_up_a_connect_returns_its_op(void **state)
{
	struct xconn *c, *next;
	struct op op;

	(void)state;
	assert_int_equal(tcp_ops.connect(r, &where, 0, NULL, 0, &op_init(&op)->x, &c), 0);
	xconn_close(c);
	assert_int_equal(await(&op), -ECANCELED);
	/* It may have arrived all the same: then before the next one. */
	assert_int_equal(tcp_ops.connect(r, &where, 0, NULL, 0, &op_init(&op)->x, &next), 0);
	assert_int_equal(await(&op), 0);
	while (!accepted_count ||
	       net_port(&accepted[accepted_count - 1]->peer) != net_port(&next->local))
		assert_int_equal(reactor_run(r), 0);
	xconn_close(next);
	for (int i = 0; i < accepted_count; i++)
		xconn_close(accepted[i]);
}

static void connections_beyond_the_limit_are_closed_at_once(void **state)
{
	struct xconn *c[9];
	struct op op, g;
	char b[1];

	(void)state;
	for (int i = 0; i < 9; i++) {
		assert_int_equal(tcp_ops.connect(r, &where, 0, NULL, 0, &op_init(&op)->x, &c[i]),
				 0);
		assert_int_equal(await(&op), 0);
	}
	while (!refused_count)
		reactor_run(r);
	assert_int_equal(accepted_count, 8);
	xconn_recv(c[8], b, 1, &op_init(&g)->x);
	assert_true(await(&g) <= 0);
	for (int i = 0; i < 9; i++)
		xconn_close(c[i]);
	for (int i = 0; i < 8; i++)
		xconn_close(accepted[i]);
}

/* ---- 1,000 peers that come, say nothing and go ---- */

struct guest {
	struct xop x;
	struct xconn *c;
	char b[1];
};
static int guests_in, guests_gone;

static void guest_done(struct xop *x, int res)
{
	struct guest *g = container_of(x, struct guest, x);

	assert_true(res <= 0);
	xconn_close(g->c); /* from inside done() */
	free(g);
	guests_gone++;
}

static void guest_in(void *arg, struct xconn *c)
{
	struct guest *g = (struct guest *)calloc(1, sizeof(*g));

	(void)arg;
	g->c = c;
	g->x.done = guest_done;
	guests_in++;
	xconn_recv(c, g->b, 1, &g->x);
}

static void abandoned_connections_are_reaped(void **state)
{
	struct xlistener_opts lo = {.accepted = guest_in};
	struct xlistener *l;
	struct net_addr at;

	(void)state;
	guests_in = guests_gone = 0;
	assert_int_equal(net_resolve("127.0.0.1", 0, &lo.addr, NULL), 0);
	assert_int_equal(tcp_listen(r, &lo, &at, &l, NULL), 0);
	for (int i = 0; i < 1000; i++) {
		struct xconn *c;
		struct op op;

		assert_int_equal(tcp_ops.connect(r, &at, 0, NULL, 0, &op_init(&op)->x, &c), 0);
		assert_int_equal(await(&op), 0);
		xconn_close(c);
	}
	for (int i = 0; guests_gone < 1000 && i < 60000; i++)
		run_ms(1);
	assert_int_equal(guests_in, 1000);
	assert_int_equal(guests_gone, 1000);
	xlistener_close(l);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_sent_is_received),
		T(many_sends_outstanding_keep_their_order),
		T(what_is_sent_in_one_turn_arrives_together),
		T(what_is_sent_before_a_close_is_not_lost),
		T(a_push_larger_than_the_socket_buffers_is_whole),
		T(a_deadline_ends_a_receive_and_a_send),
		T(a_later_deadline_counts_when_it_is_moved),
		T(closing_returns_every_op),
		T(a_peer_that_leaves_in_the_middle_of_a_pull_is_a_reset),
		T(a_stopped_send_says_how_much_went),
		T(the_kernel_keeps_little_for_a_peer_that_takes_nothing),
		cmocka_unit_test_setup_teardown(
			the_kernel_keeps_less_for_each_of_many_peers_that_take_nothing,
			setup_for_many, teardown),
		T(a_wait_for_room_ends_at_the_deadline_by_a_stop_and_by_a_close),
		T(a_peer_that_sends_no_more_and_takes_nothing_costs_no_time),
		T(a_send_stopped_before_it_began_comes_back_with_nothing),
		T(connecting_fails_with_the_reason_or_at_the_deadline),
		T(giving_up_a_connect_returns_its_op),
		T(connections_beyond_the_limit_are_closed_at_once),
		T(abandoned_connections_are_reaped),
	};
	struct reactor_opts o = {.name = "probe"};
	struct err err = ERR_INIT;

	if (reactor_new(&o, &r, &err) < 0) {
		print_message("SKIP: %s\n", err.text);
		return 77;
	}
	reactor_free(r);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
