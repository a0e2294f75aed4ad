/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/test_scripts - a NameNode for the tests of those who call one: a thread that plays one script
 * per connection
 *
 * Idea: set srv.scripts after listen_again(), start a thread with serve(). Functions are inline so
 * that a test need not use all of them.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/net.h"
#include "common/rpc/client.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

enum { CALL_TIMEOUT = 60000, SHORT_TIMEOUT = 150, SCRIPTS_MAX = 30 };

/* ---- the server ---- */

/* Plays on connection @fd; the connection is closed when it returns. */
typedef void (*script)(int fd);

static struct server {
	int fd;
	struct net_addr addr;
	pthread_t thread;
	script scripts[SCRIPTS_MAX]; /* one per connection, in order */
	_Atomic int conns;
	/* what the last request looked like */
	uint8_t client_id[RPC_CLIENT_ID_LEN];
	int32_t call_id, retry_count;
} srv;

struct request {
	uint8_t *frame;
	struct rpc_request r;
	char text[64]; /* its path */
};

static inline bool read_all(int fd, void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = recv(fd, (char *)buf + got, len - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static inline void write_all(int fd, const void *buf, size_t len)
{
	(void)send(fd, buf, len, MSG_NOSIGNAL); /* small; a client that left is its own business */
}

static inline bool read_frame(int fd, struct request *q)
{
	enum rpc_detail detail;
	uint8_t prefix[4];
	uint32_t len;

	*q = (struct request){0};
	if (!read_all(fd, prefix, 4) || rpc_frame_len(prefix, 1 << 20, &len) < 0)
		return false;
	q->frame = (uint8_t *)malloc(len);
	if (!q->frame || !read_all(fd, q->frame, len))
		return false;
	return rpc_request_decode(q->frame, len, &q->r, &detail) >= 0;
}

static inline void request_fini(struct request *q)
{
	rpc_request_fini(&q->r);
	free(q->frame);
}

/* Preamble and connection context. */
static inline bool read_hello(int fd)
{
	uint8_t preamble[RPC_PREAMBLE_LEN];
	enum rpc_auth auth;
	struct request q;
	bool ok = read_all(fd, preamble, sizeof(preamble)) &&
		  rpc_preamble_decode(preamble, &auth) >= 0 && auth == RPC_AUTH_NONE &&
		  read_frame(fd, &q);

	if (ok) {
		ok = q.r.call_id == RPC_CALL_CONTEXT;
		request_fini(&q);
	}
	return ok;
}

static inline bool read_call(int fd, struct request *q)
{
	Hd__GetLinkTargetRequestProto *m = NULL;

	if (!read_frame(fd, q))
		return false;
	if (q->r.call_id >= 0) {
		srv.call_id = q->r.call_id;
		srv.retry_count = q->r.retry_count;
		memcpy(srv.client_id, q->r.header->clientid.data, sizeof(srv.client_id));
		if (pb_unpack(&hd__get_link_target_request_proto__descriptor, q->r.message,
			      q->r.message_len, &m) < 0)
			return false;
		(void)snprintf(q->text, sizeof(q->text), "%s", m->path);
		pb_free(m);
	}
	return true;
}

static inline uint8_t *echo_of(struct request *q, size_t *ret_len)
{
	Hd__GetLinkTargetResponseProto m = HD__GET_LINK_TARGET_RESPONSE_PROTO__INIT;
	struct rpc_reply_to to = rpc_reply_to(&q->r);
	uint8_t *buf = NULL;

	m.targetpath = q->text;
	if (rpc_response_encode(&to, &m, &buf, ret_len) < 0)
		abort();
	return buf;
}

static inline void echo(int fd, struct request *q)
{
	size_t len;
	uint8_t *buf = echo_of(q, &len);

	write_all(fd, buf, len);
	free(buf);
	request_fini(q);
}

static inline void throw_to(int fd, struct request *q, int32_t id, enum rpc_status status,
			    enum rpc_detail detail, const char *cls, const char *text)
{
	struct rpc_reply_to to = rpc_reply_to(&q->r);
	uint8_t *buf = NULL;
	size_t len;

	to.call_id = id;
	if (rpc_error_encode(&to, status, detail, cls, text, &buf, &len) < 0)
		abort();
	write_all(fd, buf, len);
	free(buf);
	request_fini(q);
}

static inline void *serve(void *arg)
{
	(void)arg;
	for (int i = 0; i < SCRIPTS_MAX && srv.scripts[i]; i++) {
		struct pollfd pfd = {.fd = srv.fd, .events = POLLIN};
		const struct timeval limit = {.tv_sec = 3};
		int fd = poll(&pfd, 1, 3000) == 1 ? accept(srv.fd, NULL, NULL) : -1;

		if (fd < 0)
			break;
		srv.conns++;
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		srv.scripts[i](fd);
		(void)close(fd);
	}
	return NULL;
}

/* ---- scripts ---- */

static inline void echo_for_ever(int fd)
{
	struct request q;

	if (!read_hello(fd))
		return;
	while (read_call(fd, &q))
		echo(fd, &q);
	request_fini(&q);
}

static inline void echo_once(int fd)
{
	struct request q;

	if (read_hello(fd) && read_call(fd, &q))
		echo(fd, &q);
}

/* In the middle of what many callers have sent. */
static inline void echo_forty_and_close(int fd)
{
	struct request q;

	if (!read_hello(fd))
		return;
	for (int i = 0; i < 40 && read_call(fd, &q); i++)
		echo(fd, &q);
}

static inline void close_after_request(int fd)
{
	struct request q;

	if (read_hello(fd) && read_call(fd, &q))
		request_fini(&q);
}

static inline void close_within_answer(int fd)
{
	struct request q;
	size_t len;
	uint8_t *buf;

	if (!read_hello(fd) || !read_call(fd, &q))
		return;
	buf = echo_of(&q, &len);
	write_all(fd, buf, len - 3);
	free(buf);
	request_fini(&q);
}

static inline void answer_two_backwards_in_pieces(int fd)
{
	struct request a, b;
	size_t len;
	uint8_t *buf;

	if (!read_hello(fd) || !read_call(fd, &a) || !read_call(fd, &b))
		return;
	buf = echo_of(&b, &len);
	for (size_t i = 0; i < len; i++) {
		write_all(fd, buf + i, 1);
		(void)poll(NULL, 0, i % 8 == 0);
	}
	free(buf);
	request_fini(&b);
	echo(fd, &a);
}

static inline void throw_not_found(int fd)
{
	struct request q;

	if (read_hello(fd) && read_call(fd, &q))
		throw_to(fd, &q, q.r.call_id, RPC_ERROR, RPC_ERROR_APPLICATION, JEX_FILE_NOT_FOUND,
			 "File does not exist: /x\n\tat org.apache.Trace(1)");
	if (read_call(fd, &q)) /* the connection lives on */
		echo(fd, &q);
}

static inline void throw_class(int fd, const char *cls)
{
	struct request q;

	if (read_hello(fd) && read_call(fd, &q))
		throw_to(fd, &q, q.r.call_id, RPC_ERROR, RPC_ERROR_APPLICATION, cls, "not now");
	if (read_call(fd, &q)) /* the connection lives on, for who wants it */
		echo(fd, &q);
}

static inline void say_standby(int fd)
{
	throw_class(fd, JEX_STANDBY);
}

static inline void ask_for_patience(int fd)
{
	throw_class(fd, JEX_RETRIABLE);
}

static inline void fatal_for_all(int fd)
{
	struct request a, b;

	if (!read_hello(fd) || !read_call(fd, &a) || !read_call(fd, &b))
		return;
	throw_to(fd, &a, RPC_CALL_NONE, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL,
		 "SIMPLE authentication is not enabled.");
	request_fini(&b);
}

static inline void not_authorized(int fd)
{
	struct request a, b;

	if (!read_hello(fd) || !read_call(fd, &a) || !read_call(fd, &b))
		return;
	throw_to(fd, &a, RPC_CALL_NONE, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_AUTHORIZATION,
		 "User bob (auth:SIMPLE) is not authorized");
	request_fini(&b);
}

static inline void say_http(int fd)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n";

	write_all(fd, text, sizeof(text) - 1);
	(void)read_hello(fd);
}

static inline void say_oversized(int fd)
{
	static const uint8_t prefix[] = {0x08, 0, 0, 1, 'x'}; /* 128 MiB + 1 */

	write_all(fd, prefix, sizeof(prefix));
	close_after_request(fd);
}

static inline void say_junk_frame(int fd)
{
	static const uint8_t junk[] = {0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0xff};

	write_all(fd, junk, sizeof(junk));
	close_after_request(fd);
}

static inline void say_nothing(int fd)
{
	char buf[4096];

	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
}

static inline void announce_much_and_wait(int fd)
{
	static const uint8_t prefix[] = {0x08, 0, 0, 0, 'x'}; /* 128 MiB to come */

	write_all(fd, prefix, sizeof(prefix));
	say_nothing(fd);
}

static inline void answer_with_a_foreign_client_id(int fd)
{
	struct request q;

	if (!read_hello(fd) || !read_call(fd, &q))
		return;
	q.r.header->clientid.data[0] ^= 1;
	echo(fd, &q);
}

static inline void answer_with_the_wrong_message(int fd)
{
	Hd__GetPreferredBlockSizeResponseProto m =
		HD__GET_PREFERRED_BLOCK_SIZE_RESPONSE_PROTO__INIT;
	struct rpc_reply_to to;
	uint8_t *buf = NULL;
	struct request q;
	size_t len;

	m.bsize = 1ull << 63; /* field 1 as a varint, where a string is expected */
	if (!read_hello(fd) || !read_call(fd, &q))
		return;
	to = rpc_reply_to(&q.r);
	if (rpc_response_encode(&to, &m, &buf, &len) < 0)
		abort();
	write_all(fd, buf, len);
	free(buf);
	request_fini(&q);
}

static inline void answer_late_then_on_time_then_never(int fd)
{
	struct request late, q;

	if (!read_hello(fd) || !read_call(fd, &late) || !read_call(fd, &q))
		return;
	echo(fd, &late);
	echo(fd, &q);
	say_nothing(fd);
}

static inline void answer_after_a_ping(int fd)
{
	struct request call, ping;

	if (!read_hello(fd) || !read_call(fd, &call) || !read_call(fd, &ping))
		return;
	if (ping.r.call_id == RPC_CALL_PING)
		echo(fd, &call);
	else
		request_fini(&call);
	request_fini(&ping);
}

static inline int listen_again(void **state)
{
	struct net_addr any;

	(void)state;
	memset(&srv, 0, sizeof(srv));
	if (net_resolve("127.0.0.1", 0, &any, NULL) < 0)
		return -1;
	srv.fd = net_listen(&any, false, &srv.addr, NULL);
	return srv.fd < 0;
}

/* ---- two servers that stand for each other ---- */

/* The listener plays both, by its next script; the first may be a port where nobody is. @other
 * outlives the caller's use of what is returned. */
static inline struct rpc_client_opts pair_opts(bool first_is_gone, uint32_t call_timeout_ms,
					       struct rpc_server *other)
{
	struct rpc_client_opts o = {
		.addr = srv.addr,
		.call_timeout_ms = call_timeout_ms,
		.others = other,
		.other_count = 1,
		.failovers_max = 3,
		.retries_max = 2,
		.pause_base_ms = 1,
		.pause_max_ms = 4,
	};

	*other = (struct rpc_server){.addr = srv.addr, .addr_text = "nn2:8020"};
	if (first_is_gone)
		net_set_port(&o.addr, 1);
	return o;
}
