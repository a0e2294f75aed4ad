/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/client.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

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

enum call_state {
	CALL_WAITING,  /* in conn->calls; leaves when its answer comes or the connection breaks */
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

/* A call lives on the stack of its thread. */
struct call {
	struct list link; /* in conn->calls */
	pthread_cond_t wake;
	enum call_state state;
	int32_t id;
	uint32_t server; /* of the last attempt */
	uint64_t deadline_ns;
	const char *method;
	uint8_t *frame; /* owned */
	uint32_t frame_len;
	struct err err;
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
	pthread_cond_t changed; /* is_sending fell, or is_cancelled rose */
	bool is_cancelled;
	bool is_sending; /* somebody connects or sends: frames must not mix */
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
	assert(!c->is_sending && (!c->conn || list_empty(&c->conn->calls)));
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

/* 0 woken (perhaps for nothing); -ETIMEDOUT. */
static int wait_locked(struct rpc_client *c, pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(until_ns / NS_PER_S),
			      .tv_nsec = (long)(until_ns % NS_PER_S)};

	return ret_code(pthread_cond_timedwait(cond, &c->lock, &ts));
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

static int sender_take_locked(struct rpc_client *c, struct call *call)
{
	while (c->is_sending && !c->is_cancelled)
		if (wait_locked(c, &c->changed, call->deadline_ns) == -ETIMEDOUT)
			return timed_out(c, call);
	if (c->is_cancelled)
		return cancelled(&call->err);
	c->is_sending = true;
	return 0;
}

static void sender_release_locked(struct rpc_client *c)
{
	c->is_sending = false;
	pthread_cond_broadcast(&c->changed);
}

/* ---- connections ---- */

static void conn_put_locked(struct rpc_conn *conn)
{
	if (!--conn->refs)
		rpc_conn_free(conn);
}

static void call_end_locked(struct call *call, enum call_state state, const struct err *why)
{
	list_del(&call->link);
	call->state = state;
	if (why)
		call->err = *why;
	pthread_cond_signal(&call->wake);
}

/* The connection is of no more use; its calls end as @state. */
static void conn_break_locked(struct rpc_client *c, struct rpc_conn *conn, enum call_state state,
			      const struct err *why)
{
	if (conn->is_broken)
		return;
	conn->is_broken = true;
	(void)shutdown(conn->fd, SHUT_RDWR); /* wakes the reader */
	list_for_each(l, &conn->calls)
		call_end_locked(container_of(l, struct call, link), state, why);
	if (c->conn == conn) {
		c->conn = NULL;
		conn_put_locked(conn);
	}
}

/* The sender's: a fresh connection into c->conn. The lock is dropped meanwhile. */
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

/* The sender's: c->conn is there and, as far as one can tell, alive. */
static int conn_ready_locked(struct rpc_client *c, struct call *call)
{
	struct rpc_conn *conn = c->conn;
	struct err idle = {.rc = -ECONNRESET};

	if (conn && list_empty(&conn->calls) && !conn->has_reader && rpc_conn_is_stale(conn))
		conn_break_locked(c, conn, CALL_BROKEN, &idle);
	return c->conn ? 0 : connect_locked(c, call);
}

/* ---- answers ---- */

static void on_response_locked(struct rpc_client *c, struct rpc_conn *conn,
			       const struct rpc_response *r, uint8_t **frame, uint32_t len)
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
			call_end_locked(call, CALL_ANSWERED, NULL);
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
			    uint32_t len)
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
		on_response_locked(c, conn, &r, &frame, len);
	}
	rpc_response_fini(&r);
	free(frame);
}

/* Tell the server that somebody still waits. */
static void ping_locked(struct rpc_client *c, struct rpc_conn *conn, const struct call *call)
{
	_cleanup_free_ uint8_t *frame = NULL;
	struct err why = ERR_INIT;
	size_t len;
	int rc;

	if (c->is_sending) /* a frame is under way, which is as good */
		return;
	c->is_sending = true;
	pthread_mutex_unlock(&c->lock);
	rc = rpc_ping_encode(c->client_id, sizeof(c->client_id), &frame, &len);
	if (rc >= 0)
		rc = rpc_conn_send(conn, frame, len, call->deadline_ns);
	pthread_mutex_lock(&c->lock);
	sender_release_locked(c);
	if (rc < 0) {
		err_set(&why, -ECONNRESET, "connection lost");
		conn_break_locked(c, conn, CALL_BROKEN, &why);
	}
}

/* Read one frame for whom it may concern. */
static void lead_locked(struct rpc_client *c, struct rpc_conn *conn, const struct call *call)
{
	uint64_t ping_ns = clock_mono_ns() + c->o.ping_interval_ms * NS_PER_MS;
	uint64_t until = ping_ns < call->deadline_ns ? ping_ns : call->deadline_ns;
	struct err why = ERR_INIT;
	uint8_t *frame = NULL;
	uint32_t len = 0;
	int rc;

	conn->has_reader = true;
	pthread_mutex_unlock(&c->lock);
	rc = rpc_conn_read(conn, until, &frame, &len, &why);
	pthread_mutex_lock(&c->lock);
	conn->has_reader = false;
	if (!rc) {
		on_frame_locked(c, conn, frame, len);
	} else if (rc == -ETIMEDOUT) {
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

static void await_locked(struct rpc_client *c, struct rpc_conn *conn, struct call *call)
{
	while (call->state == CALL_WAITING && clock_mono_ns() < call->deadline_ns) {
		if (conn->has_reader)
			(void)wait_locked(c, &call->wake, call->deadline_ns);
		else
			lead_locked(c, conn, call);
	}
	if (call->state == CALL_WAITING) {
		list_del(&call->link);
		call->state = CALL_FAILED;
		(void)timed_out(c, call);
	}
	/* the next one leads */
	if (!conn->is_broken && !conn->has_reader && !list_empty(&conn->calls))
		pthread_cond_signal(&container_of(conn->calls.next, struct call, link)->wake);
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

/* Send the call once and wait until its state is no longer CALL_WAITING. */
static void attempt(struct rpc_client *c, struct call *call, const uint8_t *frame, size_t len)
{
	struct err why = ERR_INIT;
	struct rpc_conn *conn;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = sender_take_locked(c, call);
	if (rc < 0) {
		call->state = CALL_FAILED;
		pthread_mutex_unlock(&c->lock);
		return;
	}
	rc = conn_ready_locked(c, call);
	if (rc < 0) {
		call->state = CALL_FAILED;
		sender_release_locked(c);
		pthread_mutex_unlock(&c->lock);
		return;
	}
	conn = c->conn;
	conn->refs++;
	call->server = conn->server;
	call->state = CALL_WAITING;
	list_add_tail(&conn->calls, &call->link);
	pthread_mutex_unlock(&c->lock);

	rc = rpc_conn_send(conn, frame, len, call->deadline_ns);

	pthread_mutex_lock(&c->lock);
	sender_release_locked(c);
	/* A peer that closes may have said why first: then reading ends it. Otherwise the stream
	 * may end within a frame, and await_locked() finds the call broken or out of time. */
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET) {
		err_set(&why, rc, "sending failed");
		conn_break_locked(c, conn, CALL_BROKEN, &why);
	}
	await_locked(c, conn, call);
	conn_put_locked(conn);
	pthread_mutex_unlock(&c->lock);
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
	cond_init(&call.wake);
	pthread_mutex_lock(&c->lock);
	call.id = c->next_id;
	c->next_id = c->next_id == INT32_MAX ? 0 : c->next_id + 1;
	pthread_mutex_unlock(&c->lock);
	if (c->server_count > 1)
		rc = send_to_any(c, &call, req, resp_desc, ret_resp);
	else
		rc = send_to_one(c, &call, req, resp_desc, ret_resp);
	pthread_cond_destroy(&call.wake);
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
