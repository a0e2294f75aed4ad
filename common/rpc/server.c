/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/server.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/rpc/server_internal.h"
#include "common/rpc/server_room.h"
#include "common/transport/transport.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define IDLE_DEFAULT_MS 120000
#define SEND_MAX_NS (60 * NS_PER_S)
#define FAREWELL_NS (2 * NS_PER_S) /* for the peer to read why, before we hang up */
#define BUF_MIN 4096u
#define BUF_KEEP ROOM_SMALL  /* a larger one is given back once it is empty */
#define HELLO_MAX ROOM_SMALL /* bytes of a frame of who has not said who it is */
/* bytes of a frame that have to come in each second beyond the idle time-out */
#define FRAME_RATE (64u << 10)
#define CONNS_DEFAULT 4096u
/* of so many one more is accepted before one that has to go is gone */
#define CONNS_SPARE 8u
/* of max_request: what all together may keep of memory (server_room.h) */
#define LARGE_REQUESTS 4u
#define LIMIT_LOG_MS 60000
#define CALLS_PER_CONN 128u /* beyond these limits a connection is not read */
#define CALLS_MAX 16384u
#define UNSENT_PER_CONN (8u << 20) /* bytes of answers the peer has not taken */

static struct call *call_of(struct rpc_call *c)
{
	return container_of(c, struct call, pub);
}

/* ---- life of a connection ---- */

static void conn_wake(struct conn *c)
{
	reactor_ready(c->server->reactor, &c->rop);
}

void server_conn_close(struct conn *c)
{
	if (c->state == CONN_CLOSED)
		return;
	c->state = CONN_CLOSED;
	xconn_close(c->x);
	c->x = NULL;
	list_del(&c->park_link);
	room_leave(&c->server->room, &c->guest);
	conn_wake(c);
}

/* It had its place or its memory for long, and another one needs it. */
static void conn_evict(struct rpc_server *s, struct guest *g, const char *why)
{
	struct conn *c = container_of(g, struct conn, guest);
	uint32_t dropped;

	if (log_rate_ok(&s->limit_log, LIMIT_LOG_MS, &dropped))
		log_warn("op=rpc_limit peer=%s: the RPC connection is closed: %s; %" PRIu32
			 " more since this was last said",
			 c->peer_ip, why, dropped);
	metric_add(METRIC_RPC_EVICTED, 1);
	server_conn_close(c);
}

static void server_maybe_free(struct rpc_server *s)
{
	if (s->closing && list_empty(&s->conns))
		free(s);
}

static void conn_free(struct rop *rop)
{
	struct conn *c = container_of(rop, struct conn, rop);
	struct rpc_server *s = c->server;

	metric_add(METRIC_RPC_CONNS, -1ull);
	list_del(&c->link);
	free(c->user);
	free(c->real_user);
	free(c->buf);
	free(c);
	server_maybe_free(s);
}

/* ---- answers ---- */

static void wake_parked(struct rpc_server *s, bool all)
{
	struct list *l;

	while ((l = list_pop(&s->parked))) {
		conn_wake(container_of(l, struct conn, park_link));
		if (!all)
			return;
	}
}

/* The bytes of the request are of no more use. */
static void request_free(struct call *k)
{
	struct rpc_server *s = k->conn->server;

	if (room_answered(&s->room, &k->conn->guest, k->len))
		wake_parked(s, true);
	k->len = 0;
	rpc_request_fini(&k->req);
	free(k->large);
	k->large = NULL;
}

void server_call_free(struct call *k)
{
	request_free(k);
	free(k->answer);
	free(k);
}

static void answer_sent(struct xop *op, int res)
{
	struct call *k = container_of(op, struct call, send_op);
	struct conn *c = k->conn;

	c->sends--;
	if (c->state != CONN_CLOSED)
		room_took(&c->server->room, &c->guest, k->answer_len,
			  reactor_now_ns(c->server->reactor));
	server_call_free(k);
	if (res < 0)
		server_conn_close(c);
	conn_wake(c);
}

/* Gives @k to the transport, which gives it back to answer_sent(). */
static void answer_send(struct call *k)
{
	struct conn *c = k->conn;
	struct rpc_server *s = c->server;
	const uint64_t now_ns = reactor_now_ns(s->reactor);
	struct iovec iov = {.iov_base = k->answer, .iov_len = k->answer_len};
	struct guest *g;

	if (c->state == CONN_CLOSED || !k->answer) { /* too late, or out of memory */
		server_conn_close(c);
		server_call_free(k);
		return;
	}
	if (k->fatal) {
		c->state = CONN_FAREWELL;
		c->farewell_ns = now_ns + FAREWELL_NS;
	}
	c->sends++;
	room_owes(&s->room, &c->guest, k->answer_len, now_ns);
	k->send_op.done = answer_sent;
	c->x->send_deadline_ns = now_ns + SEND_MAX_NS;
	xconn_send(c->x, &iov, 1, &k->send_op);
	while ((g = room_over_owed(&s->room, now_ns)))
		conn_evict(s, g, "it does not take its answers, and those of all are many");
}

/* A call is back from its service, on the reactor. */
static void call_back(struct rmsg *m)
{
	struct call *k = container_of(m, struct call, msg);
	struct conn *c = k->conn;
	struct rpc_server *s = c->server;

	s->calls--;
	c->calls--;
	if (!c->calls && c->state != CONN_CLOSED)
		room_idle(&s->room, &c->guest);
	request_free(k);
	answer_send(k);
	conn_wake(c);
	wake_parked(s, false);
}

static void call_answered(struct call *k)
{
	struct reactor *r = k->conn->server->reactor;

	metric_add(METRIC_RPC_CALLS, 1);
	k->msg.fn = call_back;
	if (reactor_is_current(r))
		call_back(&k->msg);
	else if (k->pub.quiet)
		reactor_post_quiet(r, &k->msg);
	else
		reactor_post(r, &k->msg);
}

void rpc_reply(struct rpc_call *call, const ProtobufCMessage *resp)
{
	struct call *k = call_of(call);
	struct rpc_reply_to to = rpc_reply_to(&k->req);

	if (rpc_response_encode(&to, resp, &k->answer, &k->answer_len))
		(void)rpc_error_encode(&to, RPC_ERROR, RPC_ERROR_SERIALIZING_RESPONSE,
				       JEX_RPC_SERVER, "the response is too large", &k->answer,
				       &k->answer_len);
	call_answered(k);
}

void server_call_fail(struct call *k, enum rpc_detail detail, const char *cls, const char *text)
{
	struct rpc_reply_to to = rpc_reply_to(&k->req);

	metric_add(METRIC_RPC_ERRORS, 1);
	(void)rpc_error_encode(&to, RPC_ERROR, detail, cls, text, &k->answer, &k->answer_len);
	call_answered(k);
}

void rpc_fail(struct rpc_call *call, const char *cls, const char *fmt, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	server_call_fail(call_of(call), RPC_ERROR_APPLICATION, cls, text);
}

void rpc_fail_no_method(struct rpc_call *call)
{
	char text[ERROR_TEXT_MAX];

	snprintf(text, sizeof(text), "Unknown method %s called on %s protocol.", call->method,
		 call->protocol);
	server_call_fail(call_of(call), RPC_ERROR_NO_SUCH_METHOD, JEX_NO_SUCH_METHOD, text);
}

ProtobufCMessage *rpc_call_decode(struct rpc_call *call, const ProtobufCMessageDescriptor *desc)
{
	return rpc_call_decode_in(call, NULL, desc);
}

ProtobufCMessage *rpc_call_decode_in(struct rpc_call *call, struct pb_room *room,
				     const ProtobufCMessageDescriptor *desc)
{
	ProtobufCMessage *m = NULL;

	if (pb_has_nul(desc, call->request, call->request_len)) {
		server_call_fail(
			call_of(call), RPC_ERROR_APPLICATION, JEX_INVALID_PATH,
			"a text of the request holds a NUL character, which no name has here");
		return NULL;
	}
	if (!pb_unpack_in(room, desc, call->request, call->request_len, &m))
		return m;
	server_call_fail(call_of(call), RPC_FATAL_DESERIALIZING_REQUEST, JEX_RPC_SERVER,
			 "malformed request message");
	return NULL;
}

/* An answer that is to no call: takes @answer. */
void server_conn_send(struct conn *c, uint8_t *answer, size_t len, bool fatal)
{
	struct call *k = (struct call *)calloc(1, sizeof(*k));

	if (!k) {
		free(answer);
		server_conn_close(c);
		return;
	}
	k->conn = c;
	k->answer = answer;
	k->answer_len = len;
	k->fatal = fatal;
	answer_send(k);
}

void server_conn_fatal(struct conn *c, int32_t call_id, enum rpc_detail detail, const char *cls,
		       const char *text)
{
	struct rpc_reply_to to = {.call_id = call_id, .retry_count = -1};
	uint8_t *answer = NULL;
	size_t len = 0;

	metric_add(METRIC_RPC_ERRORS, 1);
	(void)rpc_error_encode(&to, RPC_FATAL, detail, cls, text, &answer, &len);
	server_conn_send(c, answer, len, true);
}

/* ---- bytes ---- */

/* A frame of @len bytes; 0: any. */
static bool may_take(const struct conn *c, uint32_t len)
{
	return c->calls < CALLS_PER_CONN && c->guest.owed < UNSENT_PER_CONN &&
	       c->server->calls < CALLS_MAX && room_may_ask(&c->server->room, &c->guest, len);
}

/* Use what can be used of @p; returns the bytes used, 0: more are needed (or wanted later). */
static uint32_t parse_one(struct conn *c, const uint8_t *p, uint32_t left)
{
	uint32_t n;

	if (c->state == CONN_FAREWELL || c->state == CONN_CLOSED)
		return left;
	if (c->state == CONN_WAIT_PREAMBLE) {
		if (left >= 4 && rpc_preamble_is_http(p)) {
			server_on_http(c);
			return left;
		}
		if (left < RPC_PREAMBLE_LEN)
			return 0;
		server_on_preamble(c, p);
		return RPC_PREAMBLE_LEN;
	}
	if (left < 4)
		return 0;
	if (rpc_frame_len(p, c->server->opts.max_request, &n)) {
		server_conn_fatal(
			c, RPC_CALL_NONE, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER,
			"the length of the request is out of range (ipc.maximum.data.length)");
		return left;
	}
	if (c->state == CONN_WAIT_CONTEXT && n > HELLO_MAX) {
		server_conn_fatal(
			c, RPC_CALL_NONE, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER,
			"the connection context is too long: at most 64 KiB before it is known who calls");
		return left;
	}
	if (left - 4 < n)
		return 0;
	c->blocked = !may_take(c, n);
	if (c->blocked)
		return 0;
	server_on_frame(c, p + 4, n);
	return n + 4;
}

static void parse(struct conn *c)
{
	uint32_t at = 0, n;

	c->blocked = false;
	while (at < c->len && (n = parse_one(c, c->buf + at, c->len - at)))
		at += n;
	c->len -= at;
	if (at && c->len) {
		memmove(c->buf, c->buf + at, c->len);
		c->begun_ns = reactor_now_ns(c->server->reactor);
	}
	if (!c->len && c->cap > BUF_KEEP) {
		free(c->buf);
		c->buf = NULL;
		c->cap = 0;
		if (c->state != CONN_CLOSED)
			room_buffer(&c->server->room, &c->guest, 0);
	}
}

static void received(struct xop *op, int res)
{
	struct conn *c = container_of(op, struct conn, recv_op);
	bool waiting = res == -ETIMEDOUT && c->calls && !c->len && c->state == CONN_OPEN;

	c->receiving = false;
	if (res > 0 && !c->len)
		c->begun_ns = reactor_now_ns(c->server->reactor);
	if (res > 0)
		c->len += (uint32_t)res;
	else if (!waiting)
		server_conn_close(c);
	conn_wake(c);
}

static bool buf_reserve(struct conn *c)
{
	struct rpc_server *s = c->server;
	uint32_t cap = c->cap ? c->cap * 2 : BUF_MIN;
	struct guest *g;
	uint8_t *p;

	if (c->len < c->cap)
		return true;
	if (cap > s->opts.max_request + 4) /* a frame fits, so it was not whole before */
		cap = s->opts.max_request + 4;
	p = (uint8_t *)realloc(c->buf, cap);
	if (!p)
		return false;
	c->buf = p;
	c->cap = cap;
	room_buffer(&s->room, &c->guest, cap);
	while ((g = room_over_buffers(&s->room, &c->guest)))
		conn_evict(s, g,
			   "its request has been arriving for longest, and those of all are many");
	return true;
}

/* From who calls the bytes of a frame have to come one after the other, but nothing has to come
 * between frames. */
static uint64_t receive_until(const struct conn *c)
{
	const struct rpc_server *s = c->server;
	const uint64_t wait_ns = s->opts.idle_timeout_ms * NS_PER_MS;

	if (c->state == CONN_FAREWELL)
		return c->farewell_ns;
	if (c->state < CONN_OPEN)
		return c->guest.since_ns + wait_ns;
	if (c->len)
		return c->begun_ns + wait_ns + c->len / FRAME_RATE * NS_PER_S;
	return reactor_now_ns(s->reactor) + wait_ns;
}

static void conn_receive(struct conn *c)
{
	if (c->receiving)
		return;
	/* A deadline of the transport counts only when no byte is there. */
	if (c->state == CONN_FAREWELL && reactor_now_ns(c->server->reactor) >= c->farewell_ns) {
		server_conn_close(c);
		return;
	}
	/* an answer of ours wakes us; others' answers only from this list */
	if (c->blocked || !may_take(c, 0)) {
		c->begun_ns = reactor_now_ns(c->server->reactor);
		if (!c->calls && !list_is_linked(&c->park_link))
			list_add_tail(&c->server->parked, &c->park_link);
		return;
	}
	if (!buf_reserve(c)) {
		server_conn_close(c);
		return;
	}
	c->x->recv_deadline_ns = receive_until(c);
	c->receiving = true;
	xconn_recv(c->x, c->buf + c->len, c->cap - c->len, &c->recv_op);
}

static bool conn_step(struct rop *rop)
{
	struct conn *c = container_of(rop, struct conn, rop);

	if (c->state != CONN_CLOSED && !c->receiving) {
		parse(c);
		if (c->state != CONN_CLOSED)
			conn_receive(c);
	}
	return c->state == CONN_CLOSED && !c->receiving && !c->sends && !c->calls;
}

/* ---- server ---- */

static void accepted(void *arg, struct xconn *x)
{
	struct rpc_server *s = (struct rpc_server *)arg;
	const uint64_t now_ns = reactor_now_ns(s->reactor);
	struct conn *c = (struct conn *)calloc(1, sizeof(*c));
	struct guest *g;

	if (!c) {
		xconn_close(x);
		return;
	}
	metric_add(METRIC_RPC_CONNS, 1);
	rop_init(&c->rop, conn_step, conn_free);
	c->server = s;
	c->x = x;
	c->peer = x->peer;
	net_ip(&c->peer, c->peer_ip);
	c->recv_op.done = received;
	list_init(&c->park_link);
	list_add_tail(&s->conns, &c->link);
	room_enter(&s->room, &c->guest, now_ns);
	conn_wake(c);
	while ((g = room_crowded(&s->room, now_ns)))
		conn_evict(
			s, g,
			"as many are open as may be, and it has been without a call for longest");
}

int rpc_server_new(struct reactor *r, const struct rpc_server_opts *o, struct net_addr *ret_bound,
		   struct rpc_server **ret, struct err *err)
{
	struct rpc_server *s = (struct rpc_server *)calloc(1, sizeof(*s));
	const uint32_t conns = o->max_conns ? o->max_conns : CONNS_DEFAULT;
	struct xlistener_opts lo = {.addr = o->addr,
				    .max_conns = conns + conns / CONNS_SPARE + 1,
				    .one_by_one = true,
				    .accepted = accepted};
	int rc;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->reactor = r;
	s->opts = *o;
	if (!s->opts.max_request || s->opts.max_request > RPC_FRAME_MAX)
		s->opts.max_request = RPC_FRAME_MAX;
	if (!s->opts.idle_timeout_ms)
		s->opts.idle_timeout_ms = IDLE_DEFAULT_MS;
	list_init(&s->conns);
	list_init(&s->parked);
	room_init(&s->room, conns, (uint64_t)LARGE_REQUESTS * s->opts.max_request);
	lo.arg = s;
	rc = tcp_listen(r, &lo, ret_bound, &s->listener, err);
	if (rc < 0) {
		free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void rpc_server_close(struct rpc_server *s)
{
	if (!s)
		return;
	assert(reactor_is_current(s->reactor));
	xlistener_close(s->listener);
	s->closing = true;
	list_for_each (l, &s->conns)
		server_conn_close(container_of(l, struct conn, link));
	server_maybe_free(s);
}
