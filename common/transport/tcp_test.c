/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: bytes arrive whole and in order; every op comes back exactly once, at a close, at a
 * deadline and when the peer leaves; connections beyond the limit are refused; memory comes back.
 * Peers that take nothing: tcp_stalled_test.c. */
#include <stdlib.h>
#include <string.h>

#include "common/reactor/reactor_test_probe.h"
#include "common/transport/tcp_test_fixture.h"

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

static void a_receive_under_way_gets_an_earlier_deadline(void **state)
{
	const uint64_t t0 = clock_mono_ns();
	struct xconn *c[2];
	struct op g;
	uint8_t b;

	(void)state;
	make_pair(c);
	c[1]->recv_deadline_ns = t0 + 20 * NS_PER_S;
	xconn_recv(c[1], &b, 1, &op_init(&g)->x);
	c[1]->ops->recv_by(c[1], t0 + 30 * NS_PER_MS);
	assert_int_equal(await(&g), -ETIMEDOUT);
	assert_in_range(clock_mono_ns() - t0, 30 * NS_PER_MS, 10 * NS_PER_S);
	close_pair(c);
}

/* Sends a byte every @pause_ms until it is stopped. */
struct drip {
	struct rtimer timer;
	struct xconn *c;
	struct op op;
	uint64_t pause_ms;
	uint32_t sent;
	bool stopped;
};

static void drip_fire(struct rtimer *t)
{
	struct drip *d = container_of(t, struct drip, timer);

	if (d->stopped)
		return;
	if (!d->sent || d->op.count) {
		xconn_send(d->c, &(struct iovec){"x", 1}, 1, &op_init(&d->op)->x);
		d->sent++;
	}
	reactor_timer_set(r, t, clock_mono_ns() + d->pause_ms * NS_PER_MS);
}

static void drip_stop(struct drip *d)
{
	d->stopped = true;
	reactor_timer_clear(r, &d->timer);
	(void)await(&d->op);
}

/* The bytes come in time one by one, the message does not. */
static void a_peer_that_drips_does_not_move_the_deadline(void **state)
{
	struct slot *slot = pool_get(pool, SLOT_1M, POOL_CTRL);
	uint8_t b[4096];

	(void)state;
	for (int how = 0; how < 3; how++) {
		struct drip d = {.timer.fire = drip_fire, .pause_ms = 2};
		const uint64_t t0 = clock_mono_ns();
		struct xconn *c[2];
		struct op g;

		make_pair(c);
		d.c = c[0];
		drip_fire(&d.timer);
		c[1]->recv_deadline_ns = t0 + 60 * NS_PER_MS;
		if (how == 0)
			xconn_pull(c[1], (struct xremote){0}, slot, 0, sizeof(b), &op_init(&g)->x);
		else if (how == 1)
			c[1]->ops->recvv(c[1], (struct iovec[]){{b, 2000}, {b + 2000, 2096}}, 2,
					 sizeof(b), &op_init(&g)->x);
		else /* each byte a receive of its own, as of one who reads a header */
			while (xconn_recv(c[1], b, 1, &op_init(&g)->x), await(&g) == 1)
				;
		assert_int_equal(await(&g), -ETIMEDOUT);
		assert_true(clock_mono_ns() >= t0 + 60 * NS_PER_MS);
		assert_true(d.sent < sizeof(b) / 2);
		drip_stop(&d);
		close_pair(c);
	}
	slot_put(slot);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_sent_is_received),
		T(many_sends_outstanding_keep_their_order),
		T(what_is_sent_in_one_turn_arrives_together),
		T(what_is_sent_before_a_close_is_not_lost),
		T(a_push_larger_than_the_socket_buffers_is_whole),
		T(a_deadline_ends_a_receive_and_a_send),
		T(a_receive_under_way_gets_an_earlier_deadline),
		T(a_peer_that_drips_does_not_move_the_deadline),
		T(a_later_deadline_counts_when_it_is_moved),
		T(closing_returns_every_op),
		T(a_peer_that_leaves_in_the_middle_of_a_pull_is_a_reset),
		T(connecting_fails_with_the_reason_or_at_the_deadline),
		T(giving_up_a_connect_returns_its_op),
		T(connections_beyond_the_limit_are_closed_at_once),
		T(abandoned_connections_are_reaped),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
