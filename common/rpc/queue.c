/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/queue.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/rpc/attempts.h"
#include "common/rpc/client_conn.h"
#include "common/rpc/queue_internal.h"
#include "common/wire/pb.h"

#define SPARE_MAX 256    /* calls that are over, kept for those that come */
#define IDLE_NS NS_PER_S /* a connection that rested so long may have been closed */
#define NEVER UINT64_MAX

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
			err_sys(err, rc, "cannot make a queue of calls");
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

void rpc_queue_add_beside(struct rpc_queue *q, struct rpc_beside *b)
{
	q->beside = b;
}

void rpc_queue_begin_beside(struct rpc_queue *q)
{
	pthread_mutex_lock(&q->lock);
	if (q->is_running && !pthread_equal(q->runner, pthread_self()))
		kick(q);
	pthread_mutex_unlock(&q->lock);
}

/* ---- the ends of calls ---- */

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
		queue_break_conn_locked(q, RPC_BROKEN, &why);
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
void queue_attempt_over_locked(struct rpc_queue *q, struct qcall *k, enum rpc_outcome o, int rc)
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

/* ---- submitting ---- */

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
		queue_send_locked(q);
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
		queue_attempt_over_locked(q, k, RPC_FAILED, rpc_attempts_late(&k->a, &q->t));
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

		queue_break_conn_locked(q, RPC_BROKEN, &idle);
	}
	if (!q->conn && !list_empty(&q->unsent) && clock_mono_ns() >= q->connect_ns)
		queue_connect_locked(q);
	if (!q->conn)
		return;
	list_for_each (l, &q->unsent) {
		queue_call_locked(q, container_of(l, struct qcall, link));
		if (!q->conn)
			return;
	}
	if (!q->tx_blocked)
		queue_send_locked(q);
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
	struct pollfd fds[2 + RPC_BESIDE_FDS] = {{.fd = q->wake_fd, .events = POLLIN}, {.fd = -1}};
	const bool is_over = !list_empty(&q->over);
	uint32_t n = 2;
	uint64_t count;

	if (conn) {
		conn->refs++;
		fds[1].fd = conn->fd;
		fds[1].events = POLLIN | (q->tx_blocked ? POLLOUT : 0);
	}
	until_ns = wait_until_locked(q, until_ns);
	q->is_asleep = true;
	pthread_mutex_unlock(&q->lock);
	if (q->beside)
		n += q->beside->await(q->beside, fds + 2, &until_ns);
	if (poll(fds, n, is_over ? 0 : poll_ms(until_ns)) > 0 && q->beside)
		q->beside->polled(q->beside, fds + 2); /* else the caller looks around */
	if (fds[0].revents)
		(void)!read(q->wake_fd, &count, sizeof(count));
	pthread_mutex_lock(&q->lock);
	q->is_asleep = false;
	if (conn)
		queue_conn_put_locked(conn);
	if (fds[1].revents & POLLOUT)
		q->tx_blocked = false;
	if (q->conn && q->conn == conn) {
		if (fds[1].revents & ~POLLOUT)
			queue_read_locked(q);
		else if (!list_empty(&q->conn->calls) && clock_mono_ns() >= q->ping_ns)
			queue_ping_locked(q);
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

static void begin_beside_locked(struct rpc_queue *q)
{
	if (!q->beside)
		return;
	pthread_mutex_unlock(&q->lock);
	q->beside->begin(q->beside);
	pthread_mutex_lock(&q->lock);
}

static int take_beside_locked(struct rpc_queue *q)
{
	int n;

	if (!q->beside)
		return 0;
	pthread_mutex_unlock(&q->lock);
	n = q->beside->take(q->beside);
	pthread_mutex_lock(&q->lock);
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
	q->runner = pthread_self();
	for (;;) {
		work_locked(q);
		begin_beside_locked(q);
		n = deliver_locked(q) + take_beside_locked(q);
		if (n || q->is_woken)
			break;
		if (slept && clock_mono_ns() >= until_ns)
			break;
		sleep_locked(q, until_ns);
		slept = true;
	}
	if (n) { /* what the callbacks have submitted */
		work_locked(q);
		begin_beside_locked(q);
	} else {
		q->is_woken = false;
	}
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
