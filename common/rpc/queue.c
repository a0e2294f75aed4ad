/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/queue.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/rpc/attempts.h"
#include "common/rpc/client_conn.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define SPARE_MAX 256    /* calls that are over, kept for those that come */
#define IDLE_NS NS_PER_S /* a connection that rested so long may have been closed */
#define NEVER UINT64_MAX

struct qcall {
	struct list link; /* in unsent, conn->calls, paused or over */
	struct rpc_attempts a;
	const ProtobufCMessageDescriptor *desc;
	rpc_done_fn fn;
	void *arg;
	uint8_t *frame; /* owned: the request */
	size_t frame_len;
	uint64_t due_ns;        /* in paused */
	int rc;                 /* in over */
	ProtobufCMessage *resp; /* owned; in over */
};

/* The one lock protects all but the reader's part of the connection, which is the runner's. It is
 * not held while sending, reading, connecting or in callbacks. */
struct rpc_queue {
	struct rpc_target t;
	int wake_fd;
	pthread_mutex_t lock;
	struct list unsent, paused, over; /* of struct qcall */
	struct list spare;
	uint32_t count, spare_count;
	int32_t next_id;
	bool is_running, is_asleep;  /* somebody is in rpc_queue_run(); in poll() */
	bool is_woken;               /* by rpc_queue_wake() */
	struct rpc_conn *conn;       /* counted; made and put by the runner; NULL: none */
	bool is_closing, tx_blocked; /* the socket takes no more */
	uint32_t server;             /* to connect to */
	uint32_t connects_left;
	uint64_t connect_ns; /* not before */
	uint64_t heard_ns, ping_ns;
	uint64_t check_ns; /* the first deadline, or end of a pause, or earlier */
};

/* ---- set-up ---- */

int rpc_queue_new(const struct rpc_client_opts *o, struct rpc_queue **ret, struct err *err)
{
	struct rpc_queue *q = (struct rpc_queue *)calloc(1, sizeof(*q));
	int rc;

	if (!q)
		return err_set(err, -ENOMEM, "out of memory");
	(void)pthread_mutex_init(&q->lock, NULL);
	list_init(&q->unsent);
	list_init(&q->paused);
	list_init(&q->over);
	list_init(&q->spare);
	q->check_ns = NEVER;
	q->wake_fd = -1;
	rc = rpc_target_init(&q->t, o, err);
	if (rc >= 0) {
		rc = q->wake_fd = ret_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		if (rc < 0)
			err_sys(err, rc, "a queue of calls");
	}
	if (rc < 0) {
		rpc_queue_free(q);
		return rc;
	}
	q->connects_left = q->t.o.connect_retries;
	*ret = q;
	return 0;
}

static void call_free(struct qcall *k)
{
	free(k->frame);
	free(k);
}

static void call_put_locked(struct rpc_queue *q, struct qcall *k)
{
	q->count--;
	free(k->frame);
	k->frame = NULL;
	if (q->spare_count == SPARE_MAX) {
		free(k);
		return;
	}
	q->spare_count++;
	list_add(&q->spare, &k->link);
}

static struct qcall *call_get_locked(struct rpc_queue *q)
{
	struct list *l = list_pop(&q->spare);
	struct qcall *k =
		l ? container_of(l, struct qcall, link) : (struct qcall *)malloc(sizeof(*k));

	if (!k)
		return NULL;
	q->spare_count -= l != NULL;
	k->frame = NULL;
	k->resp = NULL;
	list_init(&k->link);
	return k;
}

static void kick(struct rpc_queue *q)
{
	const uint64_t one = 1;

	(void)!write(q->wake_fd, &one, sizeof(one)); /* full: it is readable already */
}

static void check_by_locked(struct rpc_queue *q, uint64_t ns)
{
	if (ns < q->check_ns)
		q->check_ns = ns;
}

/* ---- the ends of calls and connections ---- */

static void break_conn_locked(struct rpc_queue *q, enum rpc_outcome o, const struct err *why);

static void end_locked(struct rpc_queue *q, struct qcall *k, int rc)
{
	list_del(&k->link);
	k->rc = rc;
	list_add_tail(&q->over, &k->link);
}

static void switch_server_locked(struct rpc_queue *q, uint32_t from)
{
	const struct err why = {.rc = -ECONNRESET};

	if (q->server == from)
		q->server = (from + 1) % q->t.server_count;
	if (q->conn && q->conn->server == from)
		break_conn_locked(q, RPC_BROKEN, &why);
}

/* To be sent again, as the same call or as a new one. */
static void again_locked(struct rpc_queue *q, struct qcall *k, uint32_t pause_ms)
{
	int rc = rpc_request_again(&k->frame, &k->frame_len, k->a.id, k->a.sent);

	if (rc < 0) {
		end_locked(q, k, err_set(&k->a.err, rc, "out of memory"));
		return;
	}
	list_del(&k->link);
	k->due_ns = clock_mono_ns() + pause_ms * NS_PER_MS;
	list_add_tail(pause_ms ? &q->paused : &q->unsent, &k->link);
	check_by_locked(q, pause_ms ? k->due_ns : k->a.deadline_ns);
}

/* An attempt is over. */
static void attempt_over_locked(struct rpc_queue *q, struct qcall *k, enum rpc_outcome o, int rc)
{
	uint32_t pause = 0;
	const enum rpc_next next = rpc_attempts_next(&k->a, &q->t, o, &rc, &pause);

	if (next == RPC_END) {
		end_locked(q, k, rc);
		return;
	}
	again_locked(q, k, pause);
	if (next == RPC_OTHER)
		switch_server_locked(q, k->a.server);
}

static void conn_put_locked(struct rpc_conn *conn)
{
	if (!--conn->refs)
		rpc_conn_free(conn);
}

/* The connection is of no more use; the attempts under way end as @o. */
static void break_conn_locked(struct rpc_queue *q, enum rpc_outcome o, const struct err *why)
{
	struct rpc_conn *conn = q->conn;
	struct list *l;

	if (!conn)
		return;
	q->conn = NULL;
	conn->is_broken = true;
	(void)shutdown(conn->fd, SHUT_RDWR);
	while ((l = list_pop(&conn->calls))) {
		struct qcall *k = container_of(l, struct qcall, link);

		k->a.err = *why;
		attempt_over_locked(q, k, o, why->rc);
	}
	conn_put_locked(conn);
}

/* ---- sending ---- */

/* What is queued, as far as the socket takes it. The lock is dropped meanwhile. */
static void send_locked(struct rpc_queue *q)
{
	struct rpc_conn *conn = q->conn;
	ssize_t n = 0;
	int rc = 0;

	if (!conn || conn->has_sender)
		return;
	conn->has_sender = true;
	conn->refs++;
	while (rc >= 0 && !conn->is_broken) {
		if (conn->sent == conn->sending.len) {
			rpc_conn_give_back(conn, conn->sending);
			conn->sending = rpc_conn_take_out(conn);
			conn->sent = 0;
		}
		if (!conn->sending.len)
			break;
		pthread_mutex_unlock(&q->lock);
		n = send(conn->fd, conn->sending.p + conn->sent, conn->sending.len - conn->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		rc = n >= 0 || errno == EINTR ? 0 : neg_errno();
		pthread_mutex_lock(&q->lock);
		conn->sent += n > 0 ? (size_t)n : 0;
	}
	conn->has_sender = false;
	if (q->conn == conn)
		q->tx_blocked = rc == -EAGAIN;
	/* A peer that closes may have said why first: then reading ends the calls. */
	if (rc < 0 && rc != -EAGAIN && rc != -EPIPE && rc != -ECONNRESET && q->conn == conn) {
		const struct err why = {.rc = rc, .text = "sending failed"};

		break_conn_locked(q, RPC_BROKEN, &why);
	}
	conn_put_locked(conn);
}

/* Give @k to the connection. */
static void queue_call_locked(struct rpc_queue *q, struct qcall *k)
{
	struct rpc_conn *conn = q->conn;

	k->a.server = conn->server;
	if (rpc_conn_queue(conn, k->frame, k->frame_len) < 0) {
		attempt_over_locked(q, k, RPC_FAILED, err_set(&k->a.err, -ENOMEM, "out of memory"));
		return;
	}
	if (list_empty(&conn->calls))
		q->ping_ns = clock_mono_ns() + q->t.o.ping_interval_ms * NS_PER_MS;
	list_del(&k->link);
	list_add_tail(&conn->calls, &k->link);
}

static void ping_locked(struct rpc_queue *q)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len;

	q->ping_ns = clock_mono_ns() + q->t.o.ping_interval_ms * NS_PER_MS;
	if (rpc_ping_encode(q->t.client_id, sizeof(q->t.client_id), &frame, &len) >= 0 &&
	    rpc_conn_queue(q->conn, frame, len) >= 0)
		send_locked(q);
}

/* A call that is in no list yet. */
static int call_new_locked(struct rpc_queue *q, rpc_done_fn fn, void *arg, struct qcall **ret)
{
	struct qcall *k;

	if (q->is_closing || q->count == RPC_QUEUE_MAX)
		return q->is_closing ? -ECANCELED : -EAGAIN;
	k = call_get_locked(q);
	if (!k)
		return -ENOMEM;
	q->count++;
	k->fn = fn;
	k->arg = arg;
	*ret = k;
	return 0;
}

int rpc_queue_post(struct rpc_queue *q, rpc_done_fn fn, void *arg)
{
	struct qcall *k;
	int rc;

	pthread_mutex_lock(&q->lock);
	rc = call_new_locked(q, fn, arg, &k);
	if (!rc) {
		end_locked(q, k, 0);
		if (q->is_asleep)
			kick(q);
	}
	pthread_mutex_unlock(&q->lock);
	return rc;
}

int rpc_queue_submit(struct rpc_queue *q, const char *method, const ProtobufCMessage *req,
		     const ProtobufCMessageDescriptor *resp_desc, rpc_done_fn fn, void *arg)
{
	struct qcall *k;
	int rc;

	pthread_mutex_lock(&q->lock);
	rc = call_new_locked(q, fn, arg, &k);
	if (rc < 0)
		goto out;
	k->desc = resp_desc;
	rpc_attempts_begin(&k->a, &q->t, method, q->next_id);
	rc = rpc_attempts_encode(&k->a, &q->t, req, &k->frame, &k->frame_len);
	if (rc < 0) {
		call_put_locked(q, k);
		goto out;
	}
	q->next_id = q->next_id == INT32_MAX ? 0 : q->next_id + 1;
	check_by_locked(q, k->a.deadline_ns);
	list_add_tail(&q->unsent, &k->link);
	/* The runner sends when it comes to it; while it sleeps that is better done here. */
	if (q->is_asleep && q->conn && !q->tx_blocked && q->unsent.next == &k->link &&
	    clock_mono_ns() - q->heard_ns < IDLE_NS) {
		queue_call_locked(q, k);
		send_locked(q);
		if (q->tx_blocked)
			kick(q);
	} else if (q->is_asleep) {
		q->is_asleep = false;
		kick(q);
	}
out:
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* ---- connecting ---- */

/* Nobody answers: the calls that can wait do so, for as long as another attempt is worth it. */
static void not_connected_locked(struct rpc_queue *q, uint32_t server, int rc,
				 const struct err *why)
{
	const bool again = rc != -ENOMEM && q->connects_left;
	struct list failed = LIST_INIT(failed);
	struct list *l;

	if (again)
		q->connects_left--;
	else
		q->connects_left = q->t.o.connect_retries;
	q->connect_ns = again ? clock_mono_ns() + RPC_CONNECT_PAUSE_MS * NS_PER_MS : 0;
	list_for_each (u, &q->unsent) {
		struct qcall *k = container_of(u, struct qcall, link);

		if (!again || k->a.deadline_ns <= q->connect_ns) {
			list_del(u);
			list_add_tail(&failed, u);
		}
	}
	while ((l = list_pop(&failed))) {
		struct qcall *k = container_of(l, struct qcall, link);

		k->a.server = server;
		k->a.err = *why;
		attempt_over_locked(q, k, RPC_FAILED, rc);
	}
}

/* The lock is dropped meanwhile. */
static void connect_locked(struct rpc_queue *q)
{
	const struct qcall *first = container_of(q->unsent.next, struct qcall, link);
	const uint64_t deadline_ns = first->a.deadline_ns;
	const uint32_t server = q->server;
	struct rpc_client_opts o = rpc_target_conn_opts(&q->t, server);
	struct rpc_conn *conn = NULL;
	struct err why = ERR_INIT;
	int rc;

	pthread_mutex_unlock(&q->lock);
	rc = rpc_conn_open(&o, q->t.client_id, deadline_ns, &conn, &why);
	pthread_mutex_lock(&q->lock);
	if (rc < 0) {
		not_connected_locked(q, server, rc, &why);
		return;
	}
	conn->server = server;
	q->conn = conn;
	q->tx_blocked = false;
	q->connects_left = q->t.o.connect_retries;
	q->connect_ns = 0;
	q->heard_ns = clock_mono_ns();
}

/* ---- answers ---- */

static struct qcall *find_locked(const struct rpc_queue *q, int32_t id)
{
	list_for_each (l, &q->conn->calls) {
		struct qcall *k = container_of(l, struct qcall, link);

		if (k->a.id == id)
			return k;
	}
	return NULL; /* the answer to a call that was given up */
}

static void on_response_locked(struct rpc_queue *q, const struct rpc_response *r)
{
	const ProtobufCBinaryData *id = &r->header->clientid;
	struct err why = ERR_INIT;
	struct qcall *k;

	if (id->len && (id->len != sizeof(q->t.client_id) ||
			memcmp(id->data, q->t.client_id, sizeof(q->t.client_id)) != 0)) {
		err_set(&why, -EPROTO, "%s %s answered somebody else's call", q->t.o.peer,
			rpc_target_text(&q->t, q->conn->server));
		break_conn_locked(q, RPC_FAILED, &why);
		return;
	}
	k = find_locked(q, r->call_id);
	if (k) {
		int rc = rpc_attempts_take(&k->a, &q->t, r, k->desc, &k->resp);

		list_del(&k->link);
		attempt_over_locked(q, k, RPC_ANSWERED, rc);
	}
	if (r->status == RPC_SUCCESS || (r->status == RPC_ERROR && r->call_id >= 0))
		return;
	(void)rpc_response_error(r, &why); /* fatal: speaks for the whole connection */
	if (r->header->has_errordetail && (int)r->header->errordetail == RPC_FATAL_UNAUTHORIZED &&
	    !strcmp(why.remote, JEX_ACCESS_CONTROL)) /* others are about the user */
		err_cure(&why, "%s %s refuses SIMPLE authentication, the only kind known here",
			 q->t.o.peer,
			 rpc_target_text(&q->t,
					 r->call_id < 0 && q->conn ? q->conn->server : q->server));
	break_conn_locked(q, r->call_id < 0 ? RPC_FAILED : RPC_BROKEN, &why);
}

static void on_frame_locked(struct rpc_queue *q, const uint8_t *frame, uint32_t len)
{
	struct rpc_response r = {0};
	struct err why = ERR_INIT;
	int rc = rpc_response_decode(frame, len, &r);

	if (rc < 0) {
		err_set(&why, rc == -ENOMEM ? rc : -EPROTO,
			"%s %s sent a malformed answer; is that the %s's RPC port? (%s)",
			q->t.o.peer, rpc_target_text(&q->t, q->conn->server), q->t.o.peer,
			q->t.o.addr_key);
		break_conn_locked(q, RPC_FAILED, &why);
	} else {
		q->t.is_hadoop = true;
		on_response_locked(q, &r);
	}
	rpc_response_fini(&r);
}

static void on_read_failed_locked(struct rpc_queue *q, int rc, struct err *why)
{
	if (rc == -ECONNRESET) {
		break_conn_locked(q, RPC_BROKEN, why);
		return;
	}
	err_prefix(why, "%s %s", q->t.o.peer, rpc_target_text(&q->t, q->conn->server));
	if (rc == -EPROTO)
		err_cure(why, "is that the %s's RPC port? (%s)", q->t.o.peer, q->t.o.addr_key);
	break_conn_locked(q, RPC_FAILED, why);
}

/* All frames that are here. The lock is dropped meanwhile. */
static void read_locked(struct rpc_queue *q)
{
	struct rpc_conn *conn = q->conn;
	struct err why = ERR_INIT;
	int rc;

	conn->refs++;
	do {
		uint8_t *frame;
		uint32_t len;

		pthread_mutex_unlock(&q->lock);
		rc = rpc_conn_read(conn, 0, &frame, &len, &why);
		pthread_mutex_lock(&q->lock);
		if (rc < 0)
			break;
		if (q->conn == conn)
			on_frame_locked(q, frame, len);
		free(frame);
	} while (q->conn == conn && rpc_conn_has_frame(conn));
	if (rc < 0 && rc != -ETIMEDOUT && q->conn == conn)
		on_read_failed_locked(q, rc, &why);
	if (rc >= 0 && q->conn) {
		q->heard_ns = clock_mono_ns();
		q->ping_ns = q->heard_ns + q->t.o.ping_interval_ms * NS_PER_MS;
	}
	conn_put_locked(conn);
}

/* ---- time ---- */

static void check_list_locked(struct rpc_queue *q, struct list *calls, uint64_t now)
{
	list_for_each (l, calls) {
		struct qcall *k = container_of(l, struct qcall, link);

		if (now < k->a.deadline_ns) {
			check_by_locked(q, k->a.deadline_ns);
			continue;
		}
		list_del(l);
		attempt_over_locked(q, k, RPC_FAILED, rpc_attempts_late(&k->a, &q->t));
		if (calls != &q->unsent && (!q->conn || calls != &q->conn->calls))
			return; /* it broke, and is over for all */
	}
}

/* Deadlines and ends of pauses. */
static void check_time_locked(struct rpc_queue *q)
{
	const uint64_t now = clock_mono_ns();

	if (now < q->check_ns)
		return;
	q->check_ns = NEVER;
	check_list_locked(q, &q->unsent, now);
	if (q->conn)
		check_list_locked(q, &q->conn->calls, now);
	list_for_each (l, &q->paused) {
		struct qcall *k = container_of(l, struct qcall, link);

		if (now < k->due_ns) {
			check_by_locked(q, k->due_ns);
			continue;
		}
		list_del(l);
		list_add_tail(&q->unsent, l);
		check_by_locked(q, k->a.deadline_ns);
	}
}

/* ---- running ---- */

/* All that can be done without waiting, but for connecting. */
static void work_locked(struct rpc_queue *q)
{
	check_time_locked(q);
	if (q->conn && list_empty(&q->conn->calls) && !list_empty(&q->unsent) &&
	    clock_mono_ns() - q->heard_ns >= IDLE_NS && rpc_conn_is_stale(q->conn)) {
		const struct err idle = {.rc = -ECONNRESET};

		break_conn_locked(q, RPC_BROKEN, &idle);
	}
	if (!q->conn && !list_empty(&q->unsent) && clock_mono_ns() >= q->connect_ns)
		connect_locked(q);
	if (!q->conn)
		return;
	list_for_each (l, &q->unsent) {
		queue_call_locked(q, container_of(l, struct qcall, link));
		if (!q->conn)
			return;
	}
	if (!q->tx_blocked)
		send_locked(q);
}

static int poll_ms(uint64_t until_ns)
{
	const uint64_t now = clock_mono_ns();
	uint64_t ms;

	if (until_ns == NEVER)
		return -1;
	if (now >= until_ns)
		return 0;
	ms = (until_ns - now + NS_PER_MS - 1) / NS_PER_MS;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

static uint64_t wait_until_locked(const struct rpc_queue *q, uint64_t until_ns)
{
	if (q->conn && !list_empty(&q->unsent))
		return 0; /* submitted while others were sent */
	if (q->check_ns < until_ns)
		until_ns = q->check_ns;
	if (q->conn && !list_empty(&q->conn->calls) && q->ping_ns < until_ns)
		until_ns = q->ping_ns;
	if (!q->conn && !list_empty(&q->unsent) && q->connect_ns < until_ns)
		until_ns = q->connect_ns;
	return until_ns;
}

/* Sleep until something comes, or @until_ns. The lock is dropped meanwhile. */
static void sleep_locked(struct rpc_queue *q, uint64_t until_ns)
{
	struct rpc_conn *conn = q->conn;
	struct pollfd fds[2] = {{.fd = q->wake_fd, .events = POLLIN}, {.fd = -1}};
	const int ms = list_empty(&q->over) ? poll_ms(wait_until_locked(q, until_ns)) : 0;
	uint64_t count;

	if (conn) {
		conn->refs++;
		fds[1].fd = conn->fd;
		fds[1].events = POLLIN | (q->tx_blocked ? POLLOUT : 0);
	}
	q->is_asleep = true;
	pthread_mutex_unlock(&q->lock);
	(void)poll(fds, 2, ms); /* interrupted: the caller looks around */
	if (fds[0].revents)
		(void)!read(q->wake_fd, &count, sizeof(count));
	pthread_mutex_lock(&q->lock);
	q->is_asleep = false;
	if (conn)
		conn_put_locked(conn);
	if (fds[1].revents & POLLOUT)
		q->tx_blocked = false;
	if (q->conn && q->conn == conn) {
		if (fds[1].revents & ~POLLOUT)
			read_locked(q);
		else if (!list_empty(&q->conn->calls) && clock_mono_ns() >= q->ping_ns)
			ping_locked(q);
	}
}

/* Callbacks of the calls that are over. The lock is dropped meanwhile. */
static int deliver_locked(struct rpc_queue *q)
{
	struct list over = LIST_INIT(over);
	struct list *l;
	int n = 0;

	while ((l = list_pop(&q->over)))
		list_add_tail(&over, l);
	while ((l = list_pop(&over))) {
		struct qcall *k = container_of(l, struct qcall, link);
		struct rpc_done d = {k->rc, k->resp, &k->a.err};
		uint32_t again_ms;

		pthread_mutex_unlock(&q->lock);
		again_ms = k->fn(k->arg, &d);
		pb_free(d.resp);
		pthread_mutex_lock(&q->lock);
		k->resp = NULL;
		if (again_ms) {
			rpc_attempts_begin(&k->a, &q->t, k->a.method, q->next_id);
			k->a.deadline_ns += again_ms * NS_PER_MS;
			q->next_id = q->next_id == INT32_MAX ? 0 : q->next_id + 1;
			again_locked(q, k, again_ms);
		} else {
			call_put_locked(q, k);
			n++;
		}
	}
	return n;
}

int rpc_queue_run(struct rpc_queue *q, int timeout_ms)
{
	const uint64_t until_ns =
		timeout_ms < 0 ? NEVER : clock_mono_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	bool slept = false;
	int n = 0;

	pthread_mutex_lock(&q->lock);
	if (q->is_running) {
		pthread_mutex_unlock(&q->lock);
		return -EBUSY;
	}
	q->is_running = true;
	for (;;) {
		work_locked(q);
		n = deliver_locked(q);
		if (n || q->is_woken)
			break;
		if (slept && clock_mono_ns() >= until_ns)
			break;
		sleep_locked(q, until_ns);
		slept = true;
	}
	if (n) /* what the callbacks have submitted */
		work_locked(q);
	else
		q->is_woken = false;
	q->is_running = false;
	pthread_mutex_unlock(&q->lock);
	return n;
}

void rpc_queue_wake(struct rpc_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->is_woken = true;
	kick(q);
	pthread_mutex_unlock(&q->lock);
}

static void cancel_list_locked(struct rpc_queue *q, struct list *calls,
			       bool (*match)(const void *arg, const void *wanted),
			       const void *wanted)
{
	list_for_each (l, calls) {
		struct qcall *k = container_of(l, struct qcall, link);

		if (!match || match(k->arg, wanted))
			end_locked(q, k, rpc_cancelled(&k->a.err));
	}
}

void rpc_queue_cancel(struct rpc_queue *q, bool (*match)(const void *arg, const void *wanted),
		      const void *wanted)
{
	pthread_mutex_lock(&q->lock);
	cancel_list_locked(q, &q->unsent, match, wanted);
	cancel_list_locked(q, &q->paused, match, wanted);
	if (q->conn)
		cancel_list_locked(q, &q->conn->calls, match, wanted);
	if (!list_empty(&q->over))
		kick(q);
	pthread_mutex_unlock(&q->lock);
}

uint32_t rpc_queue_count(struct rpc_queue *q)
{
	uint32_t n;

	pthread_mutex_lock(&q->lock);
	n = q->count;
	pthread_mutex_unlock(&q->lock);
	return n;
}

void rpc_queue_free(struct rpc_queue *q)
{
	struct list *l;

	if (!q)
		return;
	assert(!q->is_running);
	q->is_closing = true;
	while (q->count) { /* a callback may have begun another call */
		rpc_queue_cancel(q, NULL, NULL);
		pthread_mutex_lock(&q->lock);
		(void)deliver_locked(q);
		pthread_mutex_unlock(&q->lock);
	}
	if (q->conn)
		rpc_conn_free(q->conn);
	while ((l = list_pop(&q->spare)))
		call_free(container_of(l, struct qcall, link));
	if (q->wake_fd >= 0)
		(void)close(q->wake_fd);
	rpc_target_fini(&q->t);
	pthread_mutex_destroy(&q->lock);
	free(q);
}
