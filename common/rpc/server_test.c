/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a service sees exactly the calls that a well-behaved client makes, each is answered
 * once, in any order, from any thread; whatever else comes in is answered as Hadoop would and costs
 * bounded memory and time. */
#include "common/rpc/server.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/wire/rpc_frame.h"

#define PROTO "org.apache.hadoop.test.EchoProtocol"
#define WAIT_MS 30000
#define MAX_REQUEST (1u << 20)
#define MAX_CONNS 80

/* ---- the server under test: its own reactor thread, an echo service ---- */

static struct reactor *r;
static struct rpc_server *server;
static struct net_addr where;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[65536]; /* "user:method " of every call */
static struct rpc_call *held;

static void forget_seen(void)
{
	pthread_mutex_lock(&seen_lock);
	seen[0] = '\0';
	pthread_mutex_unlock(&seen_lock);
}

static void expect_seen(const char *want)
{
	pthread_mutex_lock(&seen_lock);
	assert_string_equal(seen, want);
	pthread_mutex_unlock(&seen_lock);
}

static void add_seen(const struct rpc_call *call)
{
	size_t n;

	pthread_mutex_lock(&seen_lock);
	n = strlen(seen);
	snprintf(seen + n, sizeof(seen) - n, "%s:%s ", call->user, call->method);
	pthread_mutex_unlock(&seen_lock);
}

static void *reply_elsewhere(void *arg)
{
	struct rpc_call *call = (struct rpc_call *)arg;

	rpc_fail(call, JEX_IO, "from another thread");
	return NULL;
}

static void echo_reply(struct rpc_call *call)
{
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	m.protocol = (char *)call->method;
	rpc_reply(call, &m.base);
}

static void echo_call(void *arg, struct rpc_call *call)
{
	ProtobufCMessage *m;
	pthread_t t;

	(void)arg;
	add_seen(call);
	if (!strcmp(call->method, "thread")) {
		assert_int_equal(pthread_create(&t, NULL, reply_elsewhere, call), 0);
		pthread_detach(t);
	} else if (!strcmp(call->method, "hold")) {
		held = call;
	} else if (!strcmp(call->method, "release")) {
		echo_reply(call);
		echo_reply(held);
		held = NULL;
	} else if (!strcmp(call->method, "decode")) {
		m = rpc_call_decode(call, &hc__rpc_request_header_proto__descriptor);
		if (m) {
			protobuf_c_message_free_unpacked(m, NULL);
			echo_reply(call);
		}
	} else if (!strcmp(call->method, "nothing")) {
		rpc_fail_no_method(call);
	} else {
		echo_reply(call);
	}
}

static void fail_call(void *arg, struct rpc_call *call)
{
	(void)arg;
	add_seen(call);
	rpc_fail(call, JEX_UNSUPPORTED, "no %s here", call->method);
}

static int start(uint64_t idle_timeout_ms)
{
	static const struct rpc_service services[] = {
		{PROTO, echo_call, NULL},
		{RPC_PROTO_CLIENT, fail_call, NULL},
		{RPC_PROTO_CLIENT_DATANODE, fail_call, NULL},
		{RPC_PROTO_DATANODE, fail_call, NULL},
		{RPC_PROTO_INTER_DATANODE, fail_call, NULL},
	};
	struct reactor_opts ro = {.name = "rpc"};
	struct rpc_server_opts so = {.services = services,
				     .max_request = MAX_REQUEST,
				     .max_conns = MAX_CONNS,
				     .idle_timeout_ms = idle_timeout_ms};
	struct err err = ERR_INIT;

	so.service_count = sizeof(services) / sizeof(services[0]);
	forget_seen();
	assert_int_equal(reactor_new(&ro, &r, &err), 0);
	assert_int_equal(net_resolve("127.0.0.1", 0, &so.addr, &err), 0);
	assert_int_equal(rpc_server_new(r, &so, &where, &server, &err), 0);
	assert_int_equal(reactor_start(r), 0);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return start(300);
}

static int setup_patient(void **state)
{
	(void)state;
	return start(600000);
}

static void close_fn(struct rmsg *m)
{
	(void)m;
	rpc_server_close(server);
}

static int teardown(void **state)
{
	struct rmsg m = {.fn = close_fn};

	(void)state;
	reactor_post(r, &m);
	reactor_stop(r);
	reactor_join(r);
	reactor_free(r);
	return 0;
}

/* ---- a client made of bytes ---- */

static int dial(void)
{
	int fd = net_connect(&where, WAIT_MS, NULL);

	assert_true(fd >= 0);
	return fd;
}

static void put(int fd, const void *p, size_t len)
{
	while (len) {
		struct pollfd pfd = {.fd = fd, .events = POLLOUT};
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return; /* the server may have hung up: the test looks at the answer */
		if (n < 0)
			assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
		p = (const uint8_t *)p + (n > 0 ? n : 0);
		len -= n > 0 ? (size_t)n : 0;
	}
}

/* Bytes read, fewer than @len only at the end of the stream. */
static size_t get(int fd, void *p, size_t len)
{
	size_t got = 0;

	while (got < len) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		ssize_t n;

		assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
		n = recv(fd, (uint8_t *)p + got, len - got, 0);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

static void put_preamble(int fd, enum rpc_auth auth)
{
	uint8_t p[RPC_PREAMBLE_LEN];

	rpc_preamble_encode(p, auth);
	put(fd, p, sizeof(p));
}

static const uint8_t client_id[16] = "0123456789abcdef";

static void put_encoded(int fd, int rc, uint8_t *p, size_t len)
{
	assert_int_equal(rc, 0);
	put(fd, p, len);
	free(p);
}

static void put_context(int fd, const char *user)
{
	uint8_t *p = NULL;
	size_t len;
	int rc = rpc_context_encode(client_id, 16, PROTO, user, NULL, &p, &len);

	put_encoded(fd, rc, p, len);
}

static void put_long_call(int fd, const char *protocol, const char *method, int32_t id, char *text)
{
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;
	struct rpc_request_args a = {.call_id = id,
				     .client_id = client_id,
				     .client_id_len = 16,
				     .protocol = protocol,
				     .method = method};
	uint8_t *p = NULL;
	size_t len;
	int rc;

	m.protocol = text;
	rc = rpc_request_encode(&a, &m, &p, &len);
	put_encoded(fd, rc, p, len);
}

static void put_call(int fd, const char *protocol, const char *method, int32_t id)
{
	put_long_call(fd, protocol, method, id, NULL);
}

/* The next answer, decoded; @frame keeps its bytes. */
static struct rpc_response get_answer(int fd, uint8_t **frame)
{
	struct rpc_response resp = {0};
	uint8_t prefix[4];
	uint32_t len;

	assert_int_equal(get(fd, prefix, 4), 4);
	assert_int_equal(rpc_frame_len(prefix, RPC_FRAME_MAX, &len), 0);
	*frame = (uint8_t *)malloc(len);
	assert_int_equal(get(fd, *frame, len), len);
	assert_int_equal(rpc_response_decode(*frame, len, &resp), 0);
	return resp;
}

static void expect_success(int fd, int32_t id)
{
	uint8_t *frame;
	struct rpc_response a = get_answer(fd, &frame);

	assert_int_equal(a.call_id, id);
	assert_int_equal(a.status, RPC_SUCCESS);
	rpc_response_fini(&a);
	free(frame);
}

static void expect_error(int fd, int32_t id, enum rpc_status status, enum rpc_detail detail,
			 const char *cls)
{
	uint8_t *frame;
	struct rpc_response a = get_answer(fd, &frame);

	assert_int_equal(a.call_id, id);
	assert_int_equal(a.status, status);
	assert_int_equal(a.header->errordetail, detail);
	assert_string_equal(a.header->exceptionclassname, cls);
	rpc_response_fini(&a);
	free(frame);
}

static void expect_end(int fd)
{
	uint8_t b;

	(void)shutdown(fd, SHUT_WR);
	assert_int_equal(get(fd, &b, 1), 0);
	close(fd);
}

static int dial_open(const char *user)
{
	int fd = dial();

	put_preamble(fd, RPC_AUTH_NONE);
	put_context(fd, user);
	return fd;
}

/* ---- what must hold ---- */

static void a_call_is_seen_with_its_user_and_answered(void **state)
{
	int fd = dial_open("alice");
	uint8_t *frame;
	struct rpc_response a;

	(void)state;
	put_call(fd, PROTO, "greet", 7);
	a = get_answer(fd, &frame);
	assert_int_equal(a.call_id, 7);
	assert_int_equal(a.header->clientid.len, 16);
	assert_memory_equal(a.header->clientid.data, client_id, 16);
	rpc_response_fini(&a);
	free(frame);
	expect_seen("alice:greet ");
	expect_end(fd);
}

static void bytes_may_arrive_one_by_one(void **state)
{
	uint8_t all[512], *p = NULL;
	size_t n = RPC_PREAMBLE_LEN, len;
	int fd = dial();
	struct rpc_request_args a = {.call_id = 1,
				     .client_id = client_id,
				     .client_id_len = 16,
				     .protocol = PROTO,
				     .method = "slow"};
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	(void)state;
	rpc_preamble_encode(all, RPC_AUTH_NONE);
	assert_int_equal(rpc_context_encode(client_id, 16, PROTO, "bob", "carol", &p, &len), 0);
	memcpy(all + n, p, len);
	n += len;
	free(p);
	assert_int_equal(rpc_request_encode(&a, &m, &p, &len), 0);
	memcpy(all + n, p, len);
	n += len;
	free(p);
	for (size_t i = 0; i < n; i++)
		put(fd, all + i, 1);
	expect_success(fd, 1);
	expect_end(fd);
}

static void answers_may_come_out_of_order_and_from_other_threads(void **state)
{
	int fd = dial_open("alice");

	(void)state;
	put_call(fd, PROTO, "hold", 1);
	put_call(fd, PROTO, "quick", 2);
	expect_success(fd, 2);
	put_call(fd, PROTO, "thread", 3);
	expect_error(fd, 3, RPC_ERROR, RPC_ERROR_APPLICATION, JEX_IO);
	put_call(fd, PROTO, "release", 4);
	expect_success(fd, 4);
	expect_success(fd, 1);
	expect_end(fd);
}

static void thousands_of_calls_at_once_are_all_answered(void **state)
{
	int fd = dial_open("alice");
	int sum = 0;

	(void)state;
	for (int i = 0; i < 3000; i++)
		put_call(fd, PROTO, "m", i);
	for (int i = 0; i < 3000; i++) {
		uint8_t *frame;
		struct rpc_response a = get_answer(fd, &frame);

		sum += a.call_id;
		rpc_response_fini(&a);
		free(frame);
	}
	assert_int_equal(sum, 3000 * 2999 / 2);
	expect_end(fd);
}

static void an_answer_to_a_connection_that_left_is_dropped(void **state)
{
	int fd = dial_open("alice"), fd2 = dial_open("bob");

	(void)state;
	put_call(fd, PROTO, "hold", 1);
	put_call(fd, PROTO, "quick", 2);
	expect_success(fd, 2);
	close(fd);
	put_call(fd2, PROTO, "release", 3);
	expect_success(fd2, 3);
	expect_end(fd2);
}

static void unknown_methods_and_protocols_leave_the_connection_open(void **state)
{
	int fd = dial_open("alice");

	(void)state;
	put_call(fd, PROTO, "nothing", 1);
	expect_error(fd, 1, RPC_ERROR, RPC_ERROR_NO_SUCH_METHOD, JEX_NO_SUCH_METHOD);
	put_call(fd, "no.such.Protocol", "x", 2);
	expect_error(fd, 2, RPC_ERROR, RPC_ERROR_NO_SUCH_PROTOCOL, JEX_NO_SUCH_PROTOCOL);
	put_call(fd, PROTO, "decode", 3); /* an empty message lacks a required field */
	expect_error(fd, 3, RPC_ERROR, RPC_FATAL_DESERIALIZING_REQUEST, JEX_RPC_SERVER);
	put_call(fd, PROTO, "fine", 4);
	expect_success(fd, 4);
	expect_end(fd);
}

static void a_ping_is_not_answered(void **state)
{
	int fd = dial_open("alice");
	uint8_t *p = NULL;
	size_t len;
	int rc = rpc_ping_encode(client_id, 16, &p, &len);

	(void)state;
	put_encoded(fd, rc, p, len);
	put_call(fd, PROTO, "x", 1);
	expect_success(fd, 1);
	expect_end(fd);
}

static void sasl_negotiation_falls_back_to_simple(void **state)
{
	Hc__RpcSaslProto m = HC__RPC_SASL_PROTO__INIT;
	uint8_t *p = NULL, *frame;
	struct rpc_response a;
	int fd = dial(), rc;
	size_t len;

	(void)state;
	put_preamble(fd, RPC_AUTH_SASL);
	m.state = HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE;
	rc = rpc_sasl_request_encode(&m, &p, &len);
	put_encoded(fd, rc, p, len);
	a = get_answer(fd, &frame);
	assert_int_equal(a.call_id, RPC_CALL_SASL);
	assert_int_equal(a.status, RPC_SUCCESS);
	rpc_response_fini(&a);
	free(frame);
	put_context(fd, "dora");
	put_call(fd, PROTO, "x", 1);
	expect_success(fd, 1);
	expect_seen("dora:x ");
	expect_end(fd);
}

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

static void other_versions_and_authentications_are_told_so(void **state)
{
	int fd = dial();

	(void)state;
	put(fd, "hrpc\x08\x00\x00", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_VERSION_MISMATCH, JEX_VERSION_MISMATCH);
	expect_end(fd);
	fd = dial();
	put(fd, "ssh-2.0", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_VERSION_MISMATCH, JEX_VERSION_MISMATCH);
	expect_end(fd);
	fd = dial();
	put(fd, "hrpc\x09\x00\x51", 7);
	expect_error(fd, -1, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL);
	expect_end(fd);
}

static void a_browser_gets_a_line_of_text(void **state)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	char buf[512] = "";
	int fd = dial();

	(void)state;
	put(fd, request, sizeof(request) - 1);
	(void)shutdown(fd, SHUT_WR);
	get(fd, buf, sizeof(buf) - 1);
	assert_memory_equal(buf, "HTTP/1.1 404", 12);
	assert_non_null(strstr(buf, "Hadoop IPC port"));
	close(fd);
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

/* ---- streams of the Java client ---- */

static size_t unhex(const char *s, uint8_t *out)
{
	size_t n = 0;
	unsigned int b;

	for (; sscanf(s, "%2x", &b) == 1; s += 2)
		out[n++] = (uint8_t)b;
	return n;
}

/* What the stream holds, by the client's side of the codec: "user:method " of each call. */
static uint32_t list_calls(const uint8_t *p, size_t len, char *text, size_t size)
{
	char user[64] = "";
	uint32_t calls = 0, n;

	for (size_t at = RPC_PREAMBLE_LEN, used = 0; at + 4 <= len; at += n + 4) {
		struct rpc_request q;
		enum rpc_detail detail;

		assert_int_equal(rpc_frame_len(p + at, RPC_FRAME_MAX, &n), 0);
		if (at + 4 + n > len)
			break;
		assert_int_equal(rpc_request_decode(p + at + 4, n, &q, &detail), 0);
		if (q.call_id == RPC_CALL_CONTEXT) {
			Hc__IpcConnectionContextProto *c = hc__ipc_connection_context_proto__unpack(
				NULL, q.message_len, q.message);

			snprintf(user, sizeof(user), "%s", c->userinfo->effectiveuser);
			hc__ipc_connection_context_proto__free_unpacked(c, NULL);
		} else if (q.call_id >= 0) {
			used += (size_t)snprintf(text + used, size - used, "%s:%s ", user,
						 q.method->methodname);
			calls++;
		}
		rpc_request_fini(&q);
	}
	return calls;
}

static size_t load_stream(const char *path, uint8_t *out, size_t size)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0, n = 0;

	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		if (line[0] != '>')
			continue;
		assert_true(n + strlen(line) / 2 < size);
		n += unhex(line + 2, out + n);
	}
	free(line);
	fclose(f);
	return n;
}

static uint32_t play(const char *path)
{
	static uint8_t stream[4 << 20];
	static char want[sizeof(seen)];
	size_t len = load_stream(path, stream, sizeof(stream));
	uint32_t calls = list_calls(stream, len, want, sizeof(want));
	int fd = dial();

	forget_seen();
	put(fd, stream, len);
	for (uint32_t i = 0; i < calls; i++) {
		uint8_t *frame;
		struct rpc_response a = get_answer(fd, &frame);

		assert_int_equal(a.status, RPC_ERROR);
		assert_string_equal(a.header->exceptionclassname, JEX_UNSUPPORTED);
		rpc_response_fini(&a);
		free(frame);
	}
	expect_end(fd);
	expect_seen(want);
	return calls;
}

static void every_recorded_call_of_a_java_client_is_seen_and_answered(void **state)
{
	uint32_t calls = 0, streams = 0;
	char dir[512], path[1024];
	struct dirent *e, *f;
	DIR *d, *sub;

	(void)state;
	d = opendir(VECTORS_DIR "/client");
	assert_non_null(d);
	while ((e = readdir(d))) {
		snprintf(dir, sizeof(dir), VECTORS_DIR "/client/%s", e->d_name);
		sub = e->d_name[0] == '.' ? NULL : opendir(dir);
		while (sub && (f = readdir(sub))) {
			if (strncmp(f->d_name, "nn-", 3) && strncmp(f->d_name, "ipc", 3))
				continue;
			snprintf(path, sizeof(path), "%s/%s", dir, f->d_name);
			calls += play(path);
			streams++;
		}
		if (sub)
			closedir(sub);
	}
	closedir(d);
	print_message("%u calls in %u streams\n", calls, streams);
	assert_true(calls > 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_call_is_seen_with_its_user_and_answered),
		T(bytes_may_arrive_one_by_one),
		T(answers_may_come_out_of_order_and_from_other_threads),
		T(thousands_of_calls_at_once_are_all_answered),
		T(an_answer_to_a_connection_that_left_is_dropped),
		T(unknown_methods_and_protocols_leave_the_connection_open),
		T(a_ping_is_not_answered),
		T(sasl_negotiation_falls_back_to_simple),
		T(what_is_out_of_order_is_fatal),
		T(other_versions_and_authentications_are_told_so),
		T(a_browser_gets_a_line_of_text),
		T(lengths_out_of_range_are_fatal),
		T(a_silent_peer_is_closed_but_not_while_it_waits_for_us),
		T(a_peer_that_drips_is_closed),
		T(who_is_not_known_has_no_long_frames),
		cmocka_unit_test_setup_teardown(who_says_nothing_keeps_nobody_out, setup_patient,
						teardown),
		cmocka_unit_test_setup_teardown(parts_of_large_requests_are_bounded, setup_patient,
						teardown),
		T(random_and_cut_streams_do_no_harm),
		T(every_recorded_call_of_a_java_client_is_seen_and_answered),
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
