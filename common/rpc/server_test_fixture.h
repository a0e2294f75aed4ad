/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: server_test_fixture - what the tests of the RPC server share: a server with an echo
 * service on a thread of its own, and a client made of bytes
 *
 * Included by one test program each, which owns what is static here.
 */
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

#include "common/rpc/server.h"
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

static inline void forget_seen(void)
{
	pthread_mutex_lock(&seen_lock);
	seen[0] = '\0';
	pthread_mutex_unlock(&seen_lock);
}

static inline void expect_seen(const char *want)
{
	pthread_mutex_lock(&seen_lock);
	assert_string_equal(seen, want);
	pthread_mutex_unlock(&seen_lock);
}

static inline void add_seen(const struct rpc_call *call)
{
	size_t n;

	pthread_mutex_lock(&seen_lock);
	n = strlen(seen);
	snprintf(seen + n, sizeof(seen) - n, "%s:%s ", call->user, call->method);
	pthread_mutex_unlock(&seen_lock);
}

static inline void *reply_elsewhere(void *arg)
{
	struct rpc_call *call = (struct rpc_call *)arg;

	rpc_fail(call, JEX_IO, "from another thread");
	return NULL;
}

static inline void echo_reply(struct rpc_call *call)
{
	Hc__IpcConnectionContextProto m = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	m.protocol = (char *)call->method;
	rpc_reply(call, &m.base);
}

static inline void echo_call(void *arg, struct rpc_call *call)
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

static inline void fail_call(void *arg, struct rpc_call *call)
{
	(void)arg;
	add_seen(call);
	rpc_fail(call, JEX_UNSUPPORTED, "no %s here", call->method);
}

static inline int start(uint64_t idle_timeout_ms)
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

static inline int setup(void **state)
{
	(void)state;
	return start(300);
}

static inline void close_fn(struct rmsg *m)
{
	(void)m;
	rpc_server_close(server);
}

static inline int teardown(void **state)
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

static inline int dial(void)
{
	int fd = net_connect(&where, WAIT_MS, NULL);

	assert_true(fd >= 0);
	return fd;
}

static inline void put(int fd, const void *p, size_t len)
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
static inline size_t get(int fd, void *p, size_t len)
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

static inline void put_preamble(int fd, enum rpc_auth auth)
{
	uint8_t p[RPC_PREAMBLE_LEN];

	rpc_preamble_encode(p, auth);
	put(fd, p, sizeof(p));
}

static const uint8_t client_id[16] = "0123456789abcdef";

static inline void put_encoded(int fd, int rc, uint8_t *p, size_t len)
{
	assert_int_equal(rc, 0);
	put(fd, p, len);
	free(p);
}

static inline void put_context_of(int fd, const char *user, const char *real_user)
{
	uint8_t *p = NULL;
	size_t len;
	int rc = rpc_context_encode(client_id, 16, PROTO, user, real_user, &p, &len);

	put_encoded(fd, rc, p, len);
}

static inline void put_context(int fd, const char *user)
{
	put_context_of(fd, user, NULL);
}

static inline void put_long_call(int fd, const char *protocol, const char *method, int32_t id,
				 char *text)
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

static inline void put_call(int fd, const char *protocol, const char *method, int32_t id)
{
	put_long_call(fd, protocol, method, id, NULL);
}

/* The next answer, decoded; @frame keeps its bytes. */
static inline struct rpc_response get_answer(int fd, uint8_t **frame)
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

static inline void expect_success(int fd, int32_t id)
{
	uint8_t *frame;
	struct rpc_response a = get_answer(fd, &frame);

	assert_int_equal(a.call_id, id);
	assert_int_equal(a.status, RPC_SUCCESS);
	rpc_response_fini(&a);
	free(frame);
}

static inline void expect_error(int fd, int32_t id, enum rpc_status status, enum rpc_detail detail,
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

static inline void expect_end(int fd)
{
	uint8_t b;

	(void)shutdown(fd, SHUT_WR);
	assert_int_equal(get(fd, &b, 1), 0);
	close(fd);
}

static inline int dial_open(const char *user)
{
	int fd = dial();

	put_preamble(fd, RPC_AUTH_NONE);
	put_context(fd, user);
	return fd;
}

/* ---- streams of the Java client ---- */

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
