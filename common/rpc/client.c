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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/rpc/attempts.h"
#include "common/rpc/client_conn.h"
#include "common/wire/rpc_frame.h"

#define WAKES_MAX 32 /* callers woken together */

enum call_state {
	CALL_WAIT_ANSWER, /* in conn->calls; leaves when answered, or the connection breaks */
	CALL_READS,       /* the same, and it is its thread's turn to read */
	CALL_ANSWERED,    /* frame is the answer */
	CALL_FAILED,      /* err says why */
	CALL_BROKEN,      /* the connection went away: may be sent again */
};

/* A call lives on the stack of its thread. It is changed with the lock held while it is in
 * conn->calls; who takes it from there sets its state last, and its thread goes on without the
 * lock. */
struct call {
	struct list link;       /* in conn->calls */
	_Atomic uint32_t state; /* enum call_state; a futex its thread sleeps on */
	struct rpc_attempts a;
	uint8_t *frame; /* owned */
	uint32_t frame_len;
};

/* Threads to wake once the lock is free: woken earlier they would only wait for it. A call may be
 * gone by then, and its stack in other use: the kernel looks for sleepers only. */
struct wakes {
	uint32_t n;
	_Atomic uint32_t *at[WAKES_MAX];
};

/* The one lock protects everything below it, the calls' states and the locked part of connections.
 * It is never held while sending, reading or connecting. */
struct rpc_client {
	struct rpc_target t;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* is_connecting fell, or is_cancelled rose */
	bool is_cancelled;
	bool is_connecting;
	int32_t next_id;
	uint32_t server;                  /* to connect to */
	atomic_uint_fast64_t connections; /* made so far */
	struct rpc_conn *conn;            /* counted; NULL: connect at the next call */
};

/* ---- set-up ---- */

int rpc_client_new(const struct rpc_client_opts *o, struct rpc_client **ret, struct err *err)
{
	struct rpc_client *c = (struct rpc_client *)calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	(void)pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->changed);
	rc = rpc_target_init(&c->t, o, err);
	if (rc < 0) {
		rpc_client_free(c);
		return rc;
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
	rpc_target_fini(&c->t);
	free(c);
}

/* ---- waiting ---- */

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
				 .tv_nsec = (long)(ns % NS_PER_S)};
}

/* 0 woken (perhaps for nothing); -ETIMEDOUT. */
static int wait_locked(struct rpc_client *c, pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec ts = to_timespec(until_ns);

	return ret_code(pthread_cond_timedwait(cond, &c->lock, &ts));
}

/* Sleep, without the lock, until the call is no longer CALL_WAIT_ANSWER. -ETIMEDOUT. */
static int call_sleep(struct call *call)
{
	struct timespec ts = to_timespec(call->a.deadline_ns);

	while (atomic_load_explicit(&call->state, memory_order_acquire) == CALL_WAIT_ANSWER)
		if (syscall(SYS_futex, &call->state, FUTEX_WAIT_BITSET_PRIVATE, CALL_WAIT_ANSWER,
			    &ts, NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
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

	return s == CALL_WAIT_ANSWER || s == CALL_READS;
}

/* Wait @ms, shorter when cancelled or out of time. */
static int pause_locked(struct rpc_client *c, struct call *call, uint32_t ms)
{
	uint64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while (!c->is_cancelled && until < call->a.deadline_ns && clock_mono_ns() < until)
		(void)wait_locked(c, &c->changed, until);
	if (c->is_cancelled)
		return rpc_cancelled(&call->a.err);
	return until < call->a.deadline_ns ? 0 : -ETIMEDOUT;
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
		call->a.err = *why;
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
	list_for_each (l, &conn->calls) {
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

/* A fresh connection into c->conn. The lock is dropped meanwhile: is_connecting keeps others out.
 */
static int connect_locked(struct rpc_client *c, struct call *call)
{
	struct rpc_conn *conn = NULL;
	struct rpc_client_opts o;
	int rc;

	call->a.server = c->server;
	o = rpc_target_conn_opts(&c->t, call->a.server);
	for (uint32_t left = c->t.o.connect_retries;; left--) {
		pthread_mutex_unlock(&c->lock);
		rc = rpc_conn_open(&o, c->t.client_id, call->a.deadline_ns, &conn, &call->a.err);
		pthread_mutex_lock(&c->lock);
		if (rc >= 0 || !left || rc == -ENOMEM)
			break;
		rc = pause_locked(c, call, RPC_CONNECT_PAUSE_MS);
		if (rc < 0)
			return call->a.err.rc; /* cancelled; else why it does not connect */
	}
	if (rc < 0)
		return rc;
	if (c->is_cancelled) {
		rpc_conn_free(conn);
		return rpc_cancelled(&call->a.err);
	}
	conn->server = call->a.server;
	c->conn = conn;
	c->connections++;
	return 0;
}

/* c->conn is there and, as far as one can tell, alive. */
static int conn_ready_locked(struct rpc_client *c, struct call *call)
{
	struct err idle = {.rc = -ECONNRESET};
	struct rpc_conn *conn;
	int rc;

	while (c->is_connecting && !c->is_cancelled)
		if (wait_locked(c, &c->changed, call->a.deadline_ns) == -ETIMEDOUT)
			return rpc_attempts_late(&call->a, &c->t);
	if (c->is_cancelled)
		return rpc_cancelled(&call->a.err);
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

/* Send what is queued, and what is queued meanwhile; nobody else sends. The lock is dropped
 * meanwhile. */
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
	/* A peer that closes may have said why first: then reading ends the calls. Otherwise the
	 * stream may end within a frame. */
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
	struct err why = ERR_INIT;

	if (rpc_target_check(&c->t, conn->server, r, &why) < 0) {
		conn_break_locked(c, conn, CALL_FAILED, &why);
		return;
	}
	list_for_each (l, &conn->calls) {
		struct call *call = container_of(l, struct call, link);

		if (call->a.id == r->call_id) {
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
	rpc_target_fatal(&c->t, conn->server, r, &why); /* speaks for the whole connection */
	conn_break_locked(c, conn, r->call_id < 0 ? CALL_FAILED : CALL_BROKEN, &why);
}

static void on_frame_locked(struct rpc_client *c, struct rpc_conn *conn, uint8_t *frame,
			    uint32_t len, struct wakes *wakes)
{
	struct rpc_response r = {0};
	struct err why = ERR_INIT;
	int rc = rpc_response_decode(frame, len, &r);

	if (rc < 0) {
		rpc_target_malformed(&c->t, conn->server, rc, &why);
		conn_break_locked(c, conn, CALL_FAILED, &why);
	} else {
		c->t.is_hadoop = true;
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
	if (rpc_ping_encode(c->t.client_id, sizeof(c->t.client_id), &frame, &len) >= 0 &&
	    rpc_conn_queue(conn, frame, len) >= 0)
		flush_locked(c, conn, call->a.deadline_ns);
}

/* Read a frame, and those that came with it, for whom they may concern. */
static void read_locked(struct rpc_client *c, struct rpc_conn *conn, const struct call *call,
			struct wakes *wakes)
{
	uint64_t ping_ns = clock_mono_ns() + c->t.o.ping_interval_ms * NS_PER_MS;
	uint64_t until = ping_ns < call->a.deadline_ns ? ping_ns : call->a.deadline_ns;
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
		if (clock_mono_ns() < call->a.deadline_ns)
			ping_locked(c, conn, call);
	} else if (rc == -ECONNRESET) {
		conn_break_locked(c, conn, CALL_BROKEN, &why);
	} else {
		err_prefix(&why, "%s %s", c->t.o.peer, rpc_target_text(&c->t, conn->server));
		if (rc == -EPROTO)
			err_cure(&why, "is that the %s's RPC port? (%s)", c->t.o.peer,
				 c->t.o.addr_key);
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
	atomic_store_explicit(&next->state, CALL_READS, memory_order_release);
	wake_later(wakes, &next->state);
}

/* Until the call is no longer waiting. The lock is dropped. */
static void await_locked(struct rpc_client *c, struct rpc_conn *conn, struct call *call)
{
	struct wakes wakes = {0};

	while (is_waiting(call)) {
		conn->refs++;
		while (!conn->has_reader && is_waiting(call) &&
		       clock_mono_ns() < call->a.deadline_ns) {
			read_locked(c, conn, call, &wakes);
			if (is_waiting(call) && wakes.n) {
				pthread_mutex_unlock(&c->lock);
				wake_all(&wakes);
				pthread_mutex_lock(&c->lock);
			}
		}
		if (is_waiting(call) && clock_mono_ns() >= call->a.deadline_ns) {
			call_end_locked(conn, call, CALL_FAILED, NULL);
			(void)rpc_attempts_late(&call->a, &c->t);
		}
		if (is_waiting(call))
			atomic_store_explicit(&call->state, CALL_WAIT_ANSWER, memory_order_relaxed);
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

/* Send the call once and wait until it has an outcome. */
static void attempt(struct rpc_client *c, struct call *call, const uint8_t *frame, size_t len)
{
	struct rpc_conn *conn;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = conn_ready_locked(c, call);
	conn = c->conn;
	if (rc >= 0 && rpc_conn_queue(conn, frame, len) < 0)
		rc = err_set(&call->a.err, -ENOMEM, "out of memory");
	if (rc < 0) {
		call->state = CALL_FAILED;
		pthread_mutex_unlock(&c->lock);
		return;
	}
	conn->refs++;
	call->a.server = conn->server;
	call->state = CALL_WAIT_ANSWER;
	list_add_tail(&conn->calls, &call->link);
	if (!conn->has_sender)
		flush_locked(c, conn, call->a.deadline_ns);
	await_locked(c, conn, call);
}

/* One attempt, and its answer. @ret_msg may be NULL. */
static int try_once(struct rpc_client *c, struct call *call, const ProtobufCMessage *req,
		    const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret_msg)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len;
	int rc = rpc_attempts_encode(&call->a, &c->t, req, &frame, &len);

	if (rc < 0) {
		call->state = CALL_FAILED;
		return err_sys(&call->a.err, rc, "%s: request", call->a.method);
	}
	call->a.err = (struct err)ERR_INIT;
	attempt(c, call, frame, len);
	if (call->state == CALL_BROKEN)
		return -ECONNRESET;
	if (call->state != CALL_ANSWERED)
		return call->a.err.rc;
	rc = rpc_attempts_decode(&call->a, &c->t, call->frame, call->frame_len, desc, ret_msg);
	free(call->frame);
	call->frame = NULL;
	return rc;
}

static enum rpc_outcome outcome(const struct call *call)
{
	return call->state == CALL_ANSWERED ? RPC_ANSWERED
	       : call->state == CALL_BROKEN ? RPC_BROKEN
					    : RPC_FAILED;
}

/* Unless somebody did so already: the next server from now on. */
static void switch_server_locked(struct rpc_client *c, uint32_t from)
{
	struct err why = {.rc = -ECONNRESET};

	if (c->server == from)
		c->server = (from + 1) % c->t.server_count;
	if (c->conn && c->conn->server == from)
		conn_break_locked(c, c->conn, CALL_BROKEN, &why);
}

/* Before the next attempt. -ECANCELED. */
static int prepare_next(struct rpc_client *c, struct call *call, enum rpc_next next, uint32_t pause)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (next == RPC_OTHER)
		switch_server_locked(c, call->a.server);
	if (pause)
		rc = pause_locked(c, call, pause);
	pthread_mutex_unlock(&c->lock);
	return rc == -ECANCELED ? rc : 0;
}

int rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *req,
		    const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret_resp,
		    struct err *err)
{
	enum rpc_next next;
	struct call call;
	uint32_t pause;
	int rc;

	call.frame = NULL;
	list_init(&call.link);
	pthread_mutex_lock(&c->lock);
	rpc_attempts_begin(&call.a, &c->t, method, c->next_id);
	c->next_id = c->next_id == INT32_MAX ? 0 : c->next_id + 1;
	pthread_mutex_unlock(&c->lock);
	do {
		rc = try_once(c, &call, req, resp_desc, ret_resp);
		next = rpc_attempts_next(&call.a, &c->t, outcome(&call), &rc, &pause);
		if (next != RPC_END) {
			rc = prepare_next(c, &call, next, pause);
			next = rc < 0 ? RPC_END : next;
		}
	} while (next != RPC_END);
	free(call.frame);
	if (rc < 0 && err)
		*err = call.a.err;
	return rc;
}

void rpc_client_set_connect_retries(struct rpc_client *c, uint32_t retries)
{
	c->t.o.connect_retries = retries;
}

uint64_t rpc_client_connections(const struct rpc_client *c)
{
	return c->connections;
}

void rpc_client_cancel(struct rpc_client *c)
{
	struct err why = ERR_INIT;

	(void)rpc_cancelled(&why);
	pthread_mutex_lock(&c->lock);
	c->is_cancelled = true;
	if (c->conn)
		conn_break_locked(c, c->conn, CALL_FAILED, &why);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}
