/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/client.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/rpc/client_conn.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

enum {
	CONNECT_TIMEOUT_MS = 20000,
	CALL_TIMEOUT_MS = 120000,
	PING_INTERVAL_MS = 60000,
	CONNECT_PAUSE_MS = 1000, /* between attempts to connect */
	RESEND_PAUSE_MS = 100,   /* before a call is sent a third time; then doubled */
};

#define WAKES_MAX 32 /* callers woken together */

enum call_state {
	CALL_WAITING,  /* in conn->calls; leaves when its answer comes or the connection breaks */
	CALL_TO_READ,  /* the same, and it is its thread's turn to read */
	CALL_ANSWERED, /* frame is the answer */
	CALL_FAILED,   /* err says why */
	CALL_BROKEN,   /* the connection went away: may be sent again */
};

/* What is to become of a call after an attempt. */
enum verdict {
	VERDICT_END,   /* this is its outcome */
	VERDICT_AGAIN, /* send it again to the same server */
	VERDICT_OTHER, /* send it to the next server */
};

/* A call lives on the stack of its thread. It is changed with the lock held while it is in conn->calls; who
 * takes it from there sets its state last, and its thread goes on without the lock. */
struct call {
	struct list link; /* in conn->calls */
	_Atomic uint32_t state; /* enum call_state; a futex its thread sleeps on */
	int32_t id;
	uint32_t server; /* of the last attempt */
	uint64_t deadline_ns;
	const char *method;
	uint8_t *frame; /* owned */
	uint32_t frame_len;
	struct err err;
};

/* Threads to wake once the lock is free: woken earlier they would only wait for it. A call may be gone by
 * then, and its stack in other use: the kernel looks for sleepers only. */
struct wakes {
	uint32_t n;
	_Atomic uint32_t *at[WAKES_MAX];
};

/* The one lock protects everything below it, the calls' states and the locked part of connections.
 * It is never held while sending, reading or connecting. */
struct rpc_client {
	struct rpc_client_opts o; /* strings owned; without the servers */
	struct rpc_server servers[RPC_SERVERS_MAX]; /* strings owned; constant */
	uint32_t server_count;
	char addr_buf[NET_TEXT_MAX];
	uint8_t client_id[RPC_CLIENT_ID_LEN]; /* a retry cache knows calls by this and the call id */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* is_connecting fell, or is_cancelled rose */
	bool is_cancelled;
	bool is_connecting;
	bool is_hadoop; /* it has answered once as Hadoop RPC should */
	int32_t next_id;
	uint32_t server; /* to connect to */
	struct rpc_conn *conn; /* counted; NULL: connect at the next call */
};

static const char *where(const struct rpc_client *c, uint32_t server)
{
	return c->servers[server].addr_text;
}

/* ---- set-up ---- */

static int conf_ms(const struct conf *conf, const char *key, uint32_t *ret, struct err *err)
{
	uint64_t v = 0;
	int rc = conf_time_ms(conf, key, 0, &v, err);

	if (rc < 0)
		return rc;
	if (v > INT32_MAX)
		return err_set(err, -EINVAL, "%s=%s is more than 24 days", key, conf_get(conf, key));
	*ret = (uint32_t)v;
	return 0;
}

int rpc_client_conf(const struct conf *conf, struct rpc_client_opts *o, struct err *err)
{
	int rc = conf_ms(conf, "ipc.client.connect.timeout", &o->connect_timeout_ms, err);

	if (rc >= 0)
		rc = conf_ms(conf, "ipc.client.rpc-timeout.ms", &o->call_timeout_ms, err);
	return rc < 0 ? rc : conf_ms(conf, "ipc.ping.interval", &o->ping_interval_ms, err);
}

static char *copy_or(const char *s, const char *dflt)
{
	return strdup(s ? s : dflt);
}

static int copy_servers(struct rpc_client *c, const struct rpc_client_opts *o)
{
	bool ok;

	c->servers[0] = (struct rpc_server){
		o->addr, copy_or(o->addr_text, net_text(&o->addr, c->addr_buf))};
	ok = c->servers[0].addr_text;
	for (uint32_t i = 0; i < o->other_count; i++) {
		struct rpc_server *s = &c->servers[1 + i];

		*s = (struct rpc_server){o->others[i].addr, copy_or(o->others[i].addr_text, "")};
		ok = ok && s->addr_text;
	}
	c->server_count = 1 + o->other_count;
	return ok ? 0 : -ENOMEM;
}

static int copy_opts(struct rpc_client *c, const struct rpc_client_opts *o)
{
	c->o = *o;
	c->o.addr_text = NULL; /* see servers */
	c->o.others = NULL;
	c->o.protocol = copy_or(o->protocol, "");
	c->o.user = copy_or(o->user, "");
	c->o.real_user = o->real_user ? strdup(o->real_user) : NULL;
	c->o.peer = copy_or(o->peer, "NameNode");
	c->o.addr_key = copy_or(o->addr_key, "fs.defaultFS");
	if (!c->o.connect_timeout_ms)
		c->o.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	if (!c->o.call_timeout_ms)
		c->o.call_timeout_ms = CALL_TIMEOUT_MS;
	if (!c->o.ping_interval_ms)
		c->o.ping_interval_ms = PING_INTERVAL_MS;
	if (!c->o.protocol || !c->o.user || !c->o.peer || !c->o.addr_key ||
	    (!c->o.real_user && o->real_user))
		return -ENOMEM;
	return copy_servers(c, o);
}

static void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr); /* these cannot fail on Linux */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}

int rpc_client_new(const struct rpc_client_opts *o, struct rpc_client **ret, struct err *err)
{
	struct rpc_client *c = (struct rpc_client *)calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	if (o->other_count >= RPC_SERVERS_MAX) {
		free(c);
		return err_set(err, -EINVAL, "more than %d servers that stand for each other",
			       RPC_SERVERS_MAX);
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	cond_init(&c->changed);
	rc = copy_opts(c, o);
	if (rc >= 0)
		rc = ret_errno((int)getrandom(c->client_id, sizeof(c->client_id), 0));
	if (rc < 0) {
		rpc_client_free(c);
		return err_sys(err, rc, "RPC client");
	}
	*ret = c;
	return 0;
}

void rpc_client_free(struct rpc_client *c)
{
	if (!c)
		return;
	assert(!c->is_connecting && (!c->conn || list_empty(&c->conn->calls)));
	rpc_conn_free(c->conn);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free((char *)(uintptr_t)c->o.protocol);
	free((char *)(uintptr_t)c->o.user);
	free((char *)(uintptr_t)c->o.real_user);
	for (uint32_t i = 0; i < RPC_SERVERS_MAX; i++)
		free((char *)(uintptr_t)c->servers[i].addr_text);
	free((char *)(uintptr_t)c->o.peer);
	free((char *)(uintptr_t)c->o.addr_key);
	free(c);
}

/* ---- waiting ---- */

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* 0 woken (perhaps for nothing); -ETIMEDOUT. */
static int wait_locked(struct rpc_client *c, pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec ts = to_timespec(until_ns);

	return ret_code(pthread_cond_timedwait(cond, &c->lock, &ts));
}

/* Sleep, without the lock, until the call is no longer CALL_WAITING. -ETIMEDOUT. */
static int call_sleep(struct call *call)
{
	struct timespec ts = to_timespec(call->deadline_ns);

	while (atomic_load_explicit(&call->state, memory_order_acquire) == CALL_WAITING)
		if (syscall(SYS_futex, &call->state, FUTEX_WAIT_BITSET_PRIVATE, CALL_WAITING, &ts, NULL,
			    FUTEX_BITSET_MATCH_ANY) < 0 &&
		    errno == ETIMEDOUT)
			return -ETIMEDOUT;
	return 0;
}

static void wake(_Atomic uint32_t *at)
{
	(void)syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, 1);
}

static void wake_all(struct wakes *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		wake(w->at[i]);
	w->n = 0;
}

static void wake_later(struct wakes *w, _Atomic uint32_t *at)
{
	if (w->n == WAKES_MAX)
		wake_all(w);
	w->at[w->n++] = at;
}

static bool is_waiting(const struct call *call)
{
	const uint32_t s = atomic_load_explicit(&call->state, memory_order_acquire);

	return s == CALL_WAITING || s == CALL_TO_READ;
}

static int timed_out(const struct rpc_client *c, struct call *call)
{
	err_set(&call->err, -ETIMEDOUT, "%s %s: no answer to %s within %u ms", c->o.peer,
		where(c, call->server), call->method, c->o.call_timeout_ms);
	if (c->is_hadoop)
		return err_cure(&call->err, "it is overloaded or hangs: see its log");
	return err_cure(&call->err,
			"it has never answered: it hangs, or that is not the %s's RPC "
			"port (%s)",
			c->o.peer, c->o.addr_key);
}

static int cancelled(struct err *err)
{
	return err_set(err, -ECANCELED, "the call was cancelled");
}

/* Wait @ms, shorter when cancelled or out of time. */
static int pause_locked(struct rpc_client *c, struct call *call, uint32_t ms)
{
	uint64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while (!c->is_cancelled && until < call->deadline_ns && clock_mono_ns() < until)
		(void)wait_locked(c, &c->changed, until);
	if (c->is_cancelled)
		return cancelled(&call->err);
	return until < call->deadline_ns ? 0 : -ETIMEDOUT;
}

/* ---- connections ---- */

static void conn_put_locked(struct rpc_conn *conn)
{
	if (!--conn->refs)
		rpc_conn_free(conn);
}

/* The call is its thread's alone from here on, once it is woken. */
static void call_end_locked(struct rpc_conn *conn, struct call *call, enum call_state state,
			    const struct err *why)
{
	list_del(&call->link);
	conn->refs--; /* never the last: who calls this holds another */
	if (why)
		call->err = *why;
	atomic_store_explicit(&call->state, state, memory_order_release);
}

/* The connection is of no more use; its calls end as @state. */
static void conn_break_locked(struct rpc_client *c, struct rpc_conn *conn, enum call_state state,
			      const struct err *why)
{
	if (conn->is_broken)
		return;
	conn->is_broken = true;
	(void)shutdown(conn->fd, SHUT_RDWR); /* wakes the reader */
	list_for_each(l, &conn->calls) {
		struct call *call = container_of(l, struct call, link);
		_Atomic uint32_t *at = &call->state;

		call_end_locked(conn, call, state, why);
		wake(at);
	}
	if (c->conn == conn) {
		c->conn = NULL;
		conn_put_locked(conn);
	}
}

/* A fresh connection into c->conn. The lock is dropped meanwhile: is_connecting keeps others out. */
static int connect_locked(struct rpc_client *c, struct call *call)
{
	struct rpc_conn *conn = NULL;
	struct rpc_client_opts o = c->o;
	int rc;

	call->server = c->server;
	o.addr = c->servers[call->server].addr;
	o.addr_text = where(c, call->server);
	for (uint32_t left = c->o.connect_retries;; left--) {
		pthread_mutex_unlock(&c->lock);
		rc = rpc_conn_open(&o, c->client_id, call->deadline_ns, &conn, &call->err);
		pthread_mutex_lock(&c->lock);
		if (rc >= 0 || !left || rc == -ENOMEM)
			break;
		rc = pause_locked(c, call, CONNECT_PAUSE_MS);
		if (rc < 0)
			return call->err.rc; /* cancelled; else why it does not connect */
	}
	if (rc < 0)
		return rc;
	if (c->is_cancelled) {
		rpc_conn_free(conn);
		return cancelled(&call->err);
	}
	conn->server = call->server;
	c->conn = conn;
	return 0;
}

/* c->conn is there and, as far as one can tell, alive. */
static int conn_ready_locked(struct rpc_client *c, struct call *call)
{
	struct err idle = {.rc = -ECONNRESET};
	struct rpc_conn *conn;
	int rc;

	while (c->is_connecting && !c->is_cancelled)
		if (wait_locked(c, &c->changed, call->deadline_ns) == -ETIMEDOUT)
			return timed_out(c, call);
	if (c->is_cancelled)
		return cancelled(&call->err);
	conn = c->conn;
	if (conn && list_empty(&conn->calls) && !conn->has_reader && rpc_conn_is_stale(conn))
		conn_break_locked(c, conn, CALL_BROKEN, &idle);
	if (c->conn)
		return 0;
	c->is_connecting = true;
	rc = connect_locked(c, call);
	c->is_connecting = false;
	pthread_cond_broadcast(&c->changed);
	return rc;
}

/* Send what is queued, and what is queued meanwhile; nobody else sends. The lock is dropped meanwhile. */
static void flush_locked(struct rpc_client *c, struct rpc_conn *conn, uint64_t deadline_ns)
{
	struct err why = ERR_INIT;
	int rc = 0;

	conn->has_sender = true;
	conn->refs++;
	/* Those who were answered together call again together: one send for all. */
	if (conn->answered > 1) {
		conn->answered = 0;
		pthread_mutex_unlock(&c->lock);
		(void)sched_yield();
		pthread_mutex_lock(&c->lock);
	}
	while (rc >= 0 && conn->out.len && !conn->is_broken) {
		struct rpc_bytes b = rpc_conn_take_out(conn);

		pthread_mutex_unlock(&c->lock);
		rc = rpc_conn_send(conn, b.p, b.len, deadline_ns);
		pthread_mutex_lock(&c->lock);
		rpc_conn_give_back(conn, b);
	}
	conn->has_sender = false;
	/* A peer that closes may have said why first: then reading ends the calls. Otherwise the stream
	 * may end within a frame. */
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET) {
		err_set(&why, rc, "sending failed");
		conn_break_locked(c, conn, CALL_BROKEN, &why);
	}
	conn_put_locked(conn);
}

/* ---- answers ---- */

static void on_response_locked(struct rpc_client *c, struct rpc_conn *conn,
			       const struct rpc_response *r, uint8_t **frame, uint32_t len,
			       struct wakes *wakes)
{
	const ProtobufCBinaryData *id = &r->header->clientid;
	struct err why = ERR_INIT;

	if (id->len && (id->len != sizeof(c->client_id) ||
			memcmp(id->data, c->client_id, sizeof(c->client_id)) != 0)) {
		err_set(&why, -EPROTO, "%s %s answered somebody else's call", c->o.peer,
			where(c, conn->server));
		conn_break_locked(c, conn, CALL_FAILED, &why);
		return;
	}
	list_for_each(l, &conn->calls) {
		struct call *call = container_of(l, struct call, link);

		if (call->id == r->call_id) {
			call->frame = *frame;
			call->frame_len = len;
			*frame = NULL;
			wake_later(wakes, &call->state);
			conn->answered++;
			call_end_locked(conn, call, CALL_ANSWERED, NULL);
			break;
		} /* none: the answer to a call that gave up */
	}
	if (r->status == RPC_SUCCESS || (r->status == RPC_ERROR && r->call_id >= 0))
		return;
	(void)rpc_response_error(r, &why); /* fatal: speaks for the whole connection */
	if (r->header->has_errordetail && (int)r->header->errordetail == RPC_FATAL_UNAUTHORIZED)
		err_cure(&why, "%s %s refuses SIMPLE authentication, the only kind known here",
			 c->o.peer, where(c, conn->server));
	conn_break_locked(c, conn, r->call_id < 0 ? CALL_FAILED : CALL_BROKEN, &why);
}

static void on_frame_locked(struct rpc_client *c, struct rpc_conn *conn, uint8_t *frame,
			    uint32_t len, struct wakes *wakes)
{
	struct rpc_response r = {0};
	struct err why = ERR_INIT;
	int rc = rpc_response_decode(frame, len, &r);

	if (rc < 0) {
		err_set(&why, rc == -ENOMEM ? rc : -EPROTO,
			"%s %s sent a malformed answer; is that the %s's RPC port? (%s)", c->o.peer,
			where(c, conn->server), c->o.peer, c->o.addr_key);
		conn_break_locked(c, conn, CALL_FAILED, &why);
	} else {
		c->is_hadoop = true;
		on_response_locked(c, conn, &r, &frame, len, wakes);
	}
	rpc_response_fini(&r);
	free(frame);
}

/* Tell the server that somebody still waits. */
static void ping_locked(struct rpc_client *c, struct rpc_conn *conn, const struct call *call)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len;

	if (conn->has_sender) /* a frame is under way, which is as good */
		return;
	if (rpc_ping_encode(c->client_id, sizeof(c->client_id), &frame, &len) >= 0 &&
	    rpc_conn_queue(conn, frame, len) >= 0)
		flush_locked(c, conn, call->deadline_ns);
}

/* Read a frame, and those that came with it, for whom they may concern. */
static void read_locked(struct rpc_client *c, struct rpc_conn *conn, const struct call *call,
			struct wakes *wakes)
{
	uint64_t ping_ns = clock_mono_ns() + c->o.ping_interval_ms * NS_PER_MS;
	uint64_t until = ping_ns < call->deadline_ns ? ping_ns : call->deadline_ns;
	struct err why = ERR_INIT;
	uint8_t *frame;
	uint32_t len;
	int rc;

	conn->has_reader = true;
	do {
		pthread_mutex_unlock(&c->lock);
		rc = rpc_conn_read(conn, until, &frame, &len, &why);
		pthread_mutex_lock(&c->lock);
		if (rc >= 0)
			on_frame_locked(c, conn, frame, len, wakes);
	} while (rc >= 0 && rpc_conn_has_frame(conn));
	conn->has_reader = false;
	if (rc >= 0)
		return;
	if (rc == -ETIMEDOUT) {
		if (clock_mono_ns() < call->deadline_ns)
			ping_locked(c, conn, call);
	} else if (rc == -ECONNRESET) {
		conn_break_locked(c, conn, CALL_BROKEN, &why);
	} else {
		err_prefix(&why, "%s %s", c->o.peer, where(c, conn->server));
		if (rc == -EPROTO)
			err_cure(&why, "is that the %s's RPC port? (%s)", c->o.peer, c->o.addr_key);
		conn_break_locked(c, conn, CALL_FAILED, &why);
	}
}

/* Somebody who waits is to read, if nobody does. */
static void pass_on_locked(struct rpc_conn *conn, struct wakes *wakes)
{
	struct call *next;

	if (conn->is_broken || conn->has_reader || list_empty(&conn->calls))
		return;
	next = container_of(conn->calls.next, struct call, link);
	atomic_store_explicit(&next->state, CALL_TO_READ, memory_order_release);
	wake_later(wakes, &next->state);
}

/* Until the call is no longer waiting. The lock is dropped. */
static void await_locked(struct rpc_client *c, struct rpc_conn *conn, struct call *call)
{
	struct wakes wakes = {0};

	while (is_waiting(call)) {
		conn->refs++;
		while (!conn->has_reader && is_waiting(call) && clock_mono_ns() < call->deadline_ns) {
			read_locked(c, conn, call, &wakes);
			if (is_waiting(call) && wakes.n) {
				pthread_mutex_unlock(&c->lock);
				wake_all(&wakes);
				pthread_mutex_lock(&c->lock);
			}
		}
		if (is_waiting(call) && clock_mono_ns() >= call->deadline_ns) {
			call_end_locked(conn, call, CALL_FAILED, NULL);
			(void)timed_out(c, call);
		}
		if (is_waiting(call))
			atomic_store_explicit(&call->state, CALL_WAITING, memory_order_relaxed);
		else
			pass_on_locked(conn, &wakes);
		conn_put_locked(conn);
		pthread_mutex_unlock(&c->lock);
		wake_all(&wakes);
		if (!is_waiting(call))
			return;
		if (call_sleep(call) >= 0 && !is_waiting(call))
			return;
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- calls ---- */

static int encode(const struct rpc_client *c, const struct call *call, int32_t retry,
		  const ProtobufCMessage *req, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_request_args a = {
		.call_id = call->id,
		.retry_count = retry,
		.client_id = c->client_id,
		.client_id_len = sizeof(c->client_id),
		.protocol = c->o.protocol,
		.method = call->method,
	};

	return rpc_request_encode(&a, req, ret, ret_len);
}

/* Send the call once and wait until it has an outcome. */
static void attempt(struct rpc_client *c, struct call *call, const uint8_t *frame, size_t len)
{
	struct rpc_conn *conn;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = conn_ready_locked(c, call);
	conn = c->conn;
	if (rc >= 0 && rpc_conn_queue(conn, frame, len) < 0)
		rc = err_set(&call->err, -ENOMEM, "out of memory");
	if (rc < 0) {
		call->state = CALL_FAILED;
		pthread_mutex_unlock(&c->lock);
		return;
	}
	conn->refs++;
	call->server = conn->server;
	call->state = CALL_WAITING;
	list_add_tail(&conn->calls, &call->link);
	if (!conn->has_sender)
		flush_locked(c, conn, call->deadline_ns);
	await_locked(c, conn, call);
}

/* The connection broke every time. */
static int gave_up(const struct rpc_client *c, struct call *call, int sent)
{
	err_set(&call->err, -ECONNRESET, "%s %s closed the connection during %s (sent %d times)",
		c->o.peer, where(c, call->server), call->method, sent);
	if (c->is_hadoop)
		return err_cure(&call->err, "see the %s's log", c->o.peer);
	call->err.rc = -EPROTO;
	return err_cure(&call->err, "it never answers: does it speak Hadoop RPC, is that the %s's RPC "
			"port? (%s)", c->o.peer, c->o.addr_key);
}

static int decode(const struct rpc_client *c, struct call *call,
		  const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret)
{
	struct rpc_response r = {0};
	ProtobufCMessage *msg = NULL;
	int rc = rpc_response_decode(call->frame, call->frame_len, &r); /* it passed once already */

	if (rc >= 0)
		rc = rpc_response_error(&r, &call->err);
	if (rc >= 0) {
		rc = pb_unpack(desc, r.message, r.message_len, &msg);
		if (rc < 0)
			err_sys(&call->err, rc == -ENOMEM ? rc : -EPROTO,
				"%s %s: answer to %s is malformed", c->o.peer,
				where(c, call->server), call->method);
	}
	rpc_response_fini(&r);
	if (rc < 0)
		return call->err.rc ? call->err.rc : err_set(&call->err, rc, "out of memory");
	if (ret)
		*ret = msg;
	else
		pb_free(msg);
	return 0;
}

/* One attempt, and its answer. @ret_msg may be NULL. */
static int try_once(struct rpc_client *c, struct call *call, int32_t retry,
		    const ProtobufCMessage *req, const ProtobufCMessageDescriptor *desc,
		    ProtobufCMessage **ret_msg)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len;
	int rc = encode(c, call, retry, req, &frame, &len);

	if (rc < 0) {
		call->state = CALL_FAILED;
		return err_sys(&call->err, rc, "%s: request", call->method);
	}
	call->err = (struct err)ERR_INIT;
	attempt(c, call, frame, len);
	if (call->state == CALL_BROKEN)
		return -ECONNRESET;
	if (call->state != CALL_ANSWERED)
		return call->err.rc;
	rc = decode(c, call, desc, ret_msg);
	free(call->frame);
	call->frame = NULL;
	return rc;
}

static bool is_out_of_reach(int rc)
{
	return rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH ||
	       rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT;
}

/* With several servers: what the outcome of an attempt means. */
static enum verdict judge(const struct call *call, int rc, bool was_broken)
{
	if (call->state == CALL_BROKEN) /* at first perhaps only closed while idle */
		return was_broken ? VERDICT_OTHER : VERDICT_AGAIN;
	if (call->state == CALL_FAILED)
		return is_out_of_reach(rc) ? VERDICT_OTHER : VERDICT_END;
	if (rc == 0 || strcmp(call->err.remote, JEX_STANDBY) == 0)
		return rc == 0 ? VERDICT_END : VERDICT_OTHER;
	return strcmp(call->err.remote, JEX_RETRIABLE) == 0 ? VERDICT_AGAIN : VERDICT_END;
}

/* Unless somebody did so already: the next server from now on. */
static void switch_server_locked(struct rpc_client *c, uint32_t from)
{
	struct err why = {.rc = -ECONNRESET};

	if (c->server == from)
		c->server = (from + 1) % c->server_count;
	if (c->conn && c->conn->server == from)
		conn_break_locked(c, c->conn, CALL_BROKEN, &why);
}

/* From half of base * 2^@round to one and a half, so that clients do not come all at once. */
static uint32_t pause_ms(const struct rpc_client *c, uint32_t round)
{
	uint64_t ms = (uint64_t)c->o.pause_base_ms << (round < 16 ? round : 16);
	uint32_t dice = 0;

	if (ms > c->o.pause_max_ms)
		ms = c->o.pause_max_ms;
	(void)!getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
	return (uint32_t)(ms / 2 + ms * (dice % 1024) / 1024);
}

/* No server could do it. */
static int out_of_servers(const struct rpc_client *c, struct call *call, int rc, uint32_t tries)
{
	if (call->state == CALL_BROKEN)
		err_set(&call->err, rc, "%s %s closed the connection during %s", c->o.peer,
			where(c, call->server), call->method);
	err_prefix(&call->err, "none of %u %ss can be used, after %u attempts; the last one",
		   c->server_count, c->o.peer, tries);
	return call->err.rc ? call->err.rc : rc;
}

/* Before the next attempt: the other server, and a pause. */
static int prepare_next(struct rpc_client *c, struct call *call, bool other, uint32_t pause)
{
	int rc;

	call->deadline_ns = clock_mono_ns() + (c->o.call_timeout_ms + (uint64_t)pause) * NS_PER_MS;
	log_debug("op=rpc method=%s server=%s pause_ms=%u: %s: %s", call->method,
		  where(c, call->server), pause, other ? "asking the next one" : "asking again",
		  call->err.text[0] ? call->err.text : "the connection broke");
	pthread_mutex_lock(&c->lock);
	if (other)
		switch_server_locked(c, call->server);
	rc = pause_locked(c, call, pause);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int send_to_any(struct rpc_client *c, struct call *call, const ProtobufCMessage *req,
		       const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret_msg)
{
	uint32_t failovers = 0, retries = 0;
	bool was_broken = false;

	call->deadline_ns = clock_mono_ns() + c->o.call_timeout_ms * NS_PER_MS;
	for (int32_t sent = 0;; sent++) {
		uint32_t pause = 0;
		int rc = try_once(c, call, sent, req, desc, ret_msg);
		const enum verdict v = judge(call, rc, was_broken);

		if (v == VERDICT_END)
			return rc;
		if (v == VERDICT_OTHER) {
			if (failovers >= c->o.failovers_max)
				return out_of_servers(c, call, rc, (uint32_t)sent + 1);
			pause = failovers ? pause_ms(c, failovers) : 0;
			failovers++;
		} else if (call->state == CALL_ANSWERED) { /* it asks for patience */
			if (retries >= c->o.retries_max)
				return rc;
			pause = pause_ms(c, retries++);
		}
		was_broken = call->state == CALL_BROKEN && v == VERDICT_AGAIN;
		rc = prepare_next(c, call, v == VERDICT_OTHER, pause);
		if (rc < 0)
			return rc;
	}
}

/* One server: a broken connection is all that is worth another attempt. */
static int send_to_one(struct rpc_client *c, struct call *call, const ProtobufCMessage *req,
		       const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret_msg)
{
	call->deadline_ns = clock_mono_ns() + c->o.call_timeout_ms * NS_PER_MS;
	for (int32_t retry = 0;; retry++) {
		int rc = try_once(c, call, retry, req, desc, ret_msg);

		if (call->state != CALL_BROKEN)
			return rc;
		if (clock_mono_ns() >= call->deadline_ns)
			return timed_out(c, call);
		if (retry + 1 == RPC_SEND_MAX)
			return gave_up(c, call, retry + 1);
		if (retry == 0)
			continue; /* most often it was closed while idle */
		pthread_mutex_lock(&c->lock);
		rc = pause_locked(c, call, RESEND_PAUSE_MS << (retry - 1));
		pthread_mutex_unlock(&c->lock);
		if (rc == -ETIMEDOUT)
			return gave_up(c, call, retry + 1);
		if (rc < 0)
			return rc;
	}
}

int rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *req,
		    const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret_resp,
		    struct err *err)
{
	struct call call = {.method = method};
	int rc;

	list_init(&call.link);
	pthread_mutex_lock(&c->lock);
	call.id = c->next_id;
	c->next_id = c->next_id == INT32_MAX ? 0 : c->next_id + 1;
	pthread_mutex_unlock(&c->lock);
	if (c->server_count > 1)
		rc = send_to_any(c, &call, req, resp_desc, ret_resp);
	else
		rc = send_to_one(c, &call, req, resp_desc, ret_resp);
	free(call.frame);
	if (rc < 0 && err)
		*err = call.err;
	return rc;
}

void rpc_client_set_connect_retries(struct rpc_client *c, uint32_t retries)
{
	c->o.connect_retries = retries;
}

void rpc_client_cancel(struct rpc_client *c)
{
	struct err why = ERR_INIT;

	(void)cancelled(&why);
	pthread_mutex_lock(&c->lock);
	c->is_cancelled = true;
	if (c->conn)
		conn_break_locked(c, c->conn, CALL_FAILED, &why);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}
