/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: whatever comes in beside the calls of well-behaved clients is answered as Hadoop would
 * and costs bounded memory and time. */
#include <semaphore.h>

#include "common/base/clock.h"
#include "common/reactor/reactor_test_probe.h"

#include "common/rpc/server_test_fixture.h"

static int setup_patient(void **state)
{
	(void)state;
	return start(600000);
}

/* ---- what must hold ---- */

static void what_is_out_of_order_is_fatal(void **state)
{
	int fd = dial();

	(void)state;
	put_preamble(fd, RPC_AUTH_NONE);
	put_call(fd, PROTO, "x", 5);
	expect_error(fd, 5, RPC_FATAL, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER);
	expect_end(fd);

	fd = dial_open("alice");
	put_context(fd, "alice");
	expect_error(fd, RPC_CALL_CONTEXT, RPC_FATAL, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER);
	expect_end(fd);

	fd = dial(); /* SASL promised, context sent */
	put_preamble(fd, RPC_AUTH_SASL);
	put_context(fd, "alice");
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL);
	expect_end(fd);

	fd = dial_open(""); /* nobody */
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL);
	expect_end(fd);

	fd = dial_open("alice@A@B"); /* no name of a principal */
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_BAD_ARGUMENT);
	expect_end(fd);
	expect_seen("");
}

/* Who calls, and the one in whose name a proxy calls. */
static void a_name_that_is_too_long_is_nobodys(void **state)
{
	char most[257] = "", longer[258] = "";

	(void)state;
	memset(most, 'a', sizeof(most) - 1);
	memset(longer, 'a', sizeof(longer) - 1);
	for (int i = 0; i < 4; i++) {
		const char *name = i & 1 ? longer : most;
		int fd = dial();

		put_preamble(fd, RPC_AUTH_NONE);
		put_context_of(fd, i & 2 ? name : "alice", i & 2 ? NULL : name);
		put_call(fd, PROTO, "m", 7);
		if (i & 1)
			expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL);
		else
			expect_success(fd, 7);
		expect_end(fd);
	}
}

static void lengths_out_of_range_are_fatal(void **state)
{
	static const char *const prefix[] = {"\x00\x10\x00\x01", "\x7f\xff\xff\xff",
					     "\xff\xff\xff\xff", "\x00\x00\x00\x00"};

	(void)state;
	for (int i = 0; i < 4; i++) {
		int fd = dial_open("alice");

		put(fd, prefix[i], 4);
		put(fd, "more bytes that nobody reads", 28);
		expect_error(fd, -1, RPC_FATAL, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER);
		expect_end(fd);
	}
}

static void a_silent_peer_is_closed_but_not_while_it_waits_for_us(void **state)
{
	int fd = dial_open("alice"), idle = dial_open("bob"), fd2;
	uint64_t t0 = clock_mono_ns();
	uint8_t b;

	(void)state;
	put(idle, "\x00\x0f\xff\xff half a frame", 17);
	put_call(fd, PROTO, "hold", 1);
	assert_int_equal(get(idle, &b, 1), 0);
	assert_true(clock_mono_ns() - t0 >= 250 * NS_PER_MS);
	nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
	fd2 = dial_open("carol");
	put_call(fd2, PROTO, "release", 2);
	expect_success(fd2, 2);
	expect_success(fd, 1);
	expect_end(fd);
	expect_end(fd2);
	close(idle);
}

static bool has_ended(int fd)
{
	uint8_t b;
	const ssize_t n = recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

/* A byte now and then, which begins no idle time-out anew: neither before it is known who calls,
 * nor within a frame. */
static void a_peer_that_drips_is_closed(void **state)
{
	uint8_t bytes[RPC_PREAMBLE_LEN + 4] = {0};

	(void)state;
	rpc_preamble_encode(bytes, RPC_AUTH_NONE);
	bytes[RPC_PREAMBLE_LEN + 2] = 0xff; /* the length of a frame */
	for (int known = 0; known < 2; known++) {
		const uint64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
		int fd = known ? dial_open("alice") : dial();

		for (size_t i = known ? RPC_PREAMBLE_LEN : 0; !has_ended(fd); i++) {
			assert_true(clock_mono_ns() < until);
			put(fd, i < sizeof(bytes) ? &bytes[i] : bytes, 1);
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		}
		close(fd);
	}
}

static void who_is_not_known_has_no_long_frames(void **state)
{
	int fd = dial();

	(void)state;
	put_preamble(fd, RPC_AUTH_NONE);
	put(fd, "\x00\x01\x00\x01", 4);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER);
	expect_end(fd);
}

static int call_once(const char *user)
{
	int fd = dial_open(user);

	put_call(fd, PROTO, "m", 7);
	expect_success(fd, 7);
	return fd;
}

static void who_says_nothing_keeps_nobody_out(void **state)
{
	int silent[4 * MAX_CONNS], known[2 * MAX_CONNS], busy = dial_open("alice"), last;

	(void)state;
	put_call(busy, PROTO, "hold", 1);
	for (int i = 0; i < 4 * MAX_CONNS; i++) {
		silent[i] = dial();
		if (i % 2)
			put_preamble(silent[i], RPC_AUTH_NONE);
		if (i % 8 == 7)
			close(call_once("alice"));
	}
	for (int i = 0; i < 2 * MAX_CONNS; i++) /* nor does who says who it is, and calls no more */
		known[i] = call_once("bob");
	assert_true(has_ended(silent[0]) && has_ended(known[0]));
	assert_false(has_ended(known[2 * MAX_CONNS - 1]));
	assert_false(has_ended(busy));
	last = dial_open("carol");
	put_call(last, PROTO, "release", 2);
	expect_success(last, 2);
	expect_success(busy, 1);
	expect_end(last);
	expect_end(busy);
	for (int i = 0; i < 4 * MAX_CONNS; i++)
		close(silent[i]);
	for (int i = 0; i < 2 * MAX_CONNS; i++)
		close(known[i]);
}

static sem_t stands, go_on;

static void stand_still(struct rmsg *m)
{
	(void)m;
	sem_post(&stands);
	sem_wait(&go_on);
}

/* The server had no processor meanwhile, so that it finds all of them at once. */
static void a_crowd_that_is_found_at_once_keeps_nobody_out(void **state)
{
	struct rmsg m = {.fn = stand_still};
	int last;

	(void)state;
	assert_int_equal(sem_init(&stands, 0, 0) | sem_init(&go_on, 0, 0), 0);
	reactor_post(r, &m);
	sem_wait(&stands);
	for (int i = 0; i < 4 * MAX_CONNS; i++)
		close(dial());
	last = dial_open("alice");
	put_call(last, PROTO, "m", 1);
	sem_post(&go_on);
	expect_success(last, 1);
	expect_end(last);
}

/* Parts of large requests: those of all have a bound, and who needs memory then has it of who began
 * first. */
static void parts_of_large_requests_are_bounded(void **state)
{
	enum { COUNT = 24, PART = MAX_REQUEST - 100 };
	char *text = malloc(PART);
	int fd[COUNT], ended = 0;
	uint64_t until;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', PART);
	text[PART - 1] = '\0';
	for (int i = 0; i < COUNT; i++) {
		fd[i] = dial_open("alice");
		put(fd[i], "\x00\x0f\xff\xff", 4);
		put(fd[i], text, PART - 10);
	}
	until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	while (ended < COUNT - 4 && clock_mono_ns() < until) {
		ended = 0;
		for (int i = 0; i < COUNT; i++)
			ended += has_ended(fd[i]);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	assert_int_equal(ended, COUNT - 4);
	assert_false(has_ended(fd[COUNT - 1]));
	for (int i = 0; i < 3; i++) { /* a whole one has a place, too */
		int other = dial_open("bob");

		put_long_call(other, PROTO, "m", i, text);
		expect_success(other, i);
		expect_end(other);
	}
	for (int i = 0; i < COUNT; i++)
		close(fd[i]);
	free(text);
}

/* After each of these the server must still work. */
static void random_and_cut_streams_do_no_harm(void **state)
{
	uint8_t *good = NULL, junk[300];
	size_t len;
	unsigned int seed = 12345;
	int last;
	struct rpc_request_args a = {.call_id = 1,
				     .client_id = client_id,
				     .client_id_len = 16,
				     .protocol = PROTO,
				     .method = "fuzz"};
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	(void)state;
	assert_int_equal(rpc_request_encode(&a, &m, &good, &len), 0);
	for (int i = 0; i < 300; i++) {
		int fd = i % 3 ? dial_open("alice") : dial();

		memcpy(junk, good, len);
		if (i % 3 == 1) /* flipped bits in a good call */
			for (int k = 0; k < 3; k++)
				junk[(size_t)rand_r(&seed) % len] ^=
					(uint8_t)(1 << rand_r(&seed) % 8);
		else
			for (size_t k = i % 2 ? 4 : 0; k < sizeof(junk); k++)
				junk[k] = (uint8_t)rand_r(&seed);
		put(fd, junk, i % 3 == 1 ? len : (size_t)rand_r(&seed) % sizeof(junk));
		close(fd);
	}
	for (size_t cut = 1; cut < len; cut += 7) {
		int fd = dial_open("alice");

		put(fd, good, cut);
		close(fd);
	}
	free(good);
	last = dial_open("alice");
	put_call(last, PROTO, "still", 9);
	expect_success(last, 9);
	expect_end(last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_out_of_order_is_fatal),
		T(a_name_that_is_too_long_is_nobodys),
		T(lengths_out_of_range_are_fatal),
		T(a_silent_peer_is_closed_but_not_while_it_waits_for_us),
		T(a_peer_that_drips_is_closed),
		T(who_is_not_known_has_no_long_frames),
		cmocka_unit_test_setup_teardown(who_says_nothing_keeps_nobody_out, setup_patient,
						teardown),
		cmocka_unit_test_setup_teardown(a_crowd_that_is_found_at_once_keeps_nobody_out,
						setup_patient, teardown),
		cmocka_unit_test_setup_teardown(parts_of_large_requests_are_bounded, setup_patient,
						teardown),
		cmocka_unit_test_setup_teardown(random_and_cut_streams_do_no_harm, setup_patient,
						teardown),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
