/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: of a send to a peer that takes nothing, it is told how much went when it is stopped;
 * the kernel keeps little for such a peer; and a wait for room ends at its deadline. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/reactor/reactor_test_probe.h"
#include "common/transport/tcp_test_fixture.h"

static int setup_for_many(void **state)
{
	(void)state;
	return setup_for(MANY);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_stopped_send_says_how_much_went),
		T(the_kernel_keeps_little_for_a_peer_that_takes_nothing),
		cmocka_unit_test_setup_teardown(
			the_kernel_keeps_less_for_each_of_many_peers_that_take_nothing,
			setup_for_many, teardown),
		T(a_wait_for_room_ends_at_the_deadline_by_a_stop_and_by_a_close),
		T(a_peer_that_sends_no_more_and_takes_nothing_costs_no_time),
		T(a_send_stopped_before_it_began_comes_back_with_nothing),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
