/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a queue of calls: connecting, sending, frames that came, breaking. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/rpc/attempts.h"
#include "common/rpc/client_conn.h"
#include "common/rpc/queue_internal.h"
#include "common/wire/rpc_frame.h"

void queue_conn_put_locked(struct rpc_conn *conn)
{
	if (!--conn->refs)
		rpc_conn_free(conn);
}

/* The connection is of no more use; the attempts under way end as @o. */
void queue_break_conn_locked(struct rpc_queue *q, enum rpc_outcome o, const struct err *why)
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
		queue_attempt_over_locked(q, k, o, why->rc);
	}
	queue_conn_put_locked(conn);
}

/* ---- sending ---- */

/* What is queued, as far as the socket takes it. The lock is dropped meanwhile. */
void queue_send_locked(struct rpc_queue *q)
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

		queue_break_conn_locked(q, RPC_BROKEN, &why);
	}
	queue_conn_put_locked(conn);
}

/* Give @k to the connection. */
void queue_call_locked(struct rpc_queue *q, struct qcall *k)
{
	struct rpc_conn *conn = q->conn;

	k->a.server = conn->server;
	if (rpc_conn_queue(conn, k->frame, k->frame_len) < 0) {
		queue_attempt_over_locked(q, k, RPC_FAILED,
					  err_set(&k->a.err, -ENOMEM, "out of memory"));
		return;
	}
	if (list_empty(&conn->calls))
		q->ping_ns = clock_mono_ns() + q->t.o.ping_interval_ms * NS_PER_MS;
	list_del(&k->link);
	list_add_tail(&conn->calls, &k->link);
}

void queue_ping_locked(struct rpc_queue *q)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len;

	q->ping_ns = clock_mono_ns() + q->t.o.ping_interval_ms * NS_PER_MS;
	if (rpc_ping_encode(q->t.client_id, sizeof(q->t.client_id), &frame, &len) >= 0 &&
	    rpc_conn_queue(q->conn, frame, len) >= 0)
		queue_send_locked(q);
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
		queue_attempt_over_locked(q, k, RPC_FAILED, rc);
	}
}

/* The lock is dropped meanwhile. */
void queue_connect_locked(struct rpc_queue *q)
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
	struct err why = ERR_INIT;
	struct qcall *k;

	if (rpc_target_check(&q->t, q->conn->server, r, &why) < 0) {
		queue_break_conn_locked(q, RPC_FAILED, &why);
		return;
	}
	k = find_locked(q, r->call_id);
	if (k) {
		int rc = rpc_attempts_take(&k->a, &q->t, r, k->desc, &k->resp);

		list_del(&k->link);
		queue_attempt_over_locked(q, k, RPC_ANSWERED, rc);
	}
	if (r->status == RPC_SUCCESS || (r->status == RPC_ERROR && r->call_id >= 0))
		return;
	rpc_target_fatal(&q->t, r->call_id < 0 && q->conn ? q->conn->server : q->server, r,
			 &why); /* speaks for the whole connection */
	queue_break_conn_locked(q, r->call_id < 0 ? RPC_FAILED : RPC_BROKEN, &why);
}

static void on_frame_locked(struct rpc_queue *q, const uint8_t *frame, uint32_t len)
{
	struct rpc_response r = {0};
	struct err why = ERR_INIT;
	int rc = rpc_response_decode(frame, len, &r);

	if (rc < 0) {
		rpc_target_malformed(&q->t, q->conn->server, rc, &why);
		queue_break_conn_locked(q, RPC_FAILED, &why);
	} else {
		q->t.is_hadoop = true;
		on_response_locked(q, &r);
	}
	rpc_response_fini(&r);
}

static void on_read_failed_locked(struct rpc_queue *q, int rc, struct err *why)
{
	if (rc == -ECONNRESET) {
		queue_break_conn_locked(q, RPC_BROKEN, why);
		return;
	}
	err_prefix(why, "%s %s", q->t.o.peer, rpc_target_text(&q->t, q->conn->server));
	if (rc == -EPROTO)
		err_cure(why, "is that the %s's RPC port? (%s)", q->t.o.peer, q->t.o.addr_key);
	queue_break_conn_locked(q, RPC_FAILED, why);
}

/* All frames that are here. The lock is dropped meanwhile. */
void queue_read_locked(struct rpc_queue *q)
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
	queue_conn_put_locked(conn);
}
