/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/read_queue.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/read/block_locations.h"
#include "client/src/stream/small_read.h"
#include "common/base/clock.h"

/* A read under way. */
struct call {
	struct list link;  /* runner: in todo, slow, conn->calls or streams */
	struct list all;   /* lock: in q->all */
	struct list fresh; /* lock: linked: in q->fresh */
	struct reader *r;
	uint8_t *buf;
	size_t len, got;
	uint64_t offset;
	struct fetch f;
	bool has_stream; /* counted; f.rs is it, until it is used up or fails */
	uint32_t tag;
	bool is_sent;      /* in conn->calls */
	bool is_over;      /* it was cancelled: nothing is left but its answer, which is to come */
	uint64_t sent_ns;  /* by q->watched_ns */
	bool is_cancelled; /* lock */
	size_t *ret;       /* the caller's */
	struct dfs_then then;
};

/* A connection for small reads. */
struct conn {
	struct list link;  /* in q->conns */
	struct sock *s;    /* owned */
	struct list calls; /* of struct call, in the order sent */
	uint32_t owed;     /* answers: of these calls */
	uint8_t *out;      /* owned */
	size_t out_len, out_sent, out_cap;
	bool readable;
	int polled; /* index in the last fds, or -1 */
};

/* Of time in which the queue neither ran nor waited so much counts at a time. What came meanwhile
 * lies in the sockets, or at a node whose socket is full. */
#define AWAY_NS NS_PER_S

struct read_queue {
	struct rpc_beside beside;
	struct dfs *fs;        /* borrowed */
	struct rpc_queue *rpc; /* borrowed */
	pthread_mutex_t lock;
	struct list all, fresh;
	uint32_t count;    /* lock: of all */
	uint32_t cancels;  /* lock: of these are to end */
	struct list todo;  /* runner, as all of these are: to be begun */
	struct list slow;  /* to be done by reader_pread() */
	struct list conns; /* of struct conn */
	uint32_t conn_count;
	struct list streams;
	uint32_t stream_count;
	uint64_t watched_ns; /* runner: the clock of small reads, which stands while nobody looks */
	uint64_t looked_ns;  /* when it was advanced */
	bool is_waiting;     /* since then */
};

static struct read_queue *of_beside(struct rpc_beside *b)
{
	return container_of(b, struct read_queue, beside);
}

static struct call *of_link(struct list *l)
{
	return container_of(l, struct call, link);
}

/* ---- begin and end of a call ---- */

int read_queue_submit(struct read_queue *q, struct reader *r, void *buf, size_t len,
		      uint64_t offset, size_t *ret, const struct dfs_then *then)
{
	struct call *k = calloc(1, sizeof(*k));
	bool full;

	if (!k)
		return -ENOMEM;
	*k = (struct call){
		.r = r, .buf = buf, .len = len, .offset = offset, .ret = ret, .then = *then};
	list_init(&k->link);
	k->f.pos = offset;
	pthread_mutex_lock(&q->lock);
	full = q->count == READ_QUEUE_MAX;
	if (!full) {
		q->count++;
		list_add_tail(&q->all, &k->all);
		list_add_tail(&q->fresh, &k->fresh);
	}
	pthread_mutex_unlock(&q->lock);
	if (full) {
		free(k);
		return -EAGAIN;
	}
	rpc_queue_begin_beside(q->rpc);
	return 0;
}

static void stream_over(struct read_queue *q, struct call *k)
{
	reader_fetch_close(&k->f);
	q->stream_count -= k->has_stream;
	k->has_stream = false;
}

/* The call is in no list of the runner's any more; but one that is sent stays there until its
 * answer comes. */
static void end(struct read_queue *q, struct call *k, ssize_t n, const struct err *err)
{
	const struct dfs_then then = k->then;
	struct dfs_err out;

	stream_over(q, k);
	reader_fetch_forget(&k->f);
	k->is_over = true;
	pthread_mutex_lock(&q->lock);
	list_del(&k->all);
	list_del(&k->fresh);
	q->cancels -= k->is_cancelled;
	q->count--;
	pthread_mutex_unlock(&q->lock);
	if (n >= 0)
		*k->ret = (size_t)n;
	if (!k->is_sent)
		free(k);
	if (n < 0)
		(void)api_err(&out, err, (int)n);
	then.done(then.arg, n < 0 ? (int)n : 0, n < 0 ? &out : NULL);
}

static void leave(struct call *k)
{
	list_del(&k->link);
	k->is_sent = false;
}

/* Not by this way: take() does it. */
static void do_slowly(struct read_queue *q, struct call *k)
{
	stream_over(q, k);
	leave(k);
	list_add_tail(&q->slow, &k->link);
}

/* ---- small reads ---- */

static void conn_end(struct read_queue *q, struct conn *c)
{
	struct list *l;

	while ((l = list_pop(&c->calls))) {
		if (of_link(l)->is_over)
			free(of_link(l));
		else
			do_slowly(q, of_link(l));
	}
	list_del(&c->link);
	q->conn_count--;
	if (c->s)
		sock_close(c->s);
	free(c->out);
	free(c);
}

static struct conn *conn_find(struct read_queue *q, const struct net_addr *to)
{
	list_for_each (l, &q->conns) {
		struct conn *c = container_of(l, struct conn, link);

		if (sock_is_to(c->s, to))
			return c;
	}
	return NULL;
}

/* NULL: there is none for small reads. */
static struct conn *conn_get(struct read_queue *q, const struct net_addr *to)
{
	struct conn *c = conn_find(q, to);
	struct sock *s;

	if (c || q->conn_count == READ_QUEUE_NODES)
		return c;
	s = sock_cache_get_small(&q->fs->socks, to);
	c = s ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		sock_close(s);
		return NULL;
	}
	c->s = s;
	c->polled = -1;
	list_init(&c->calls);
	list_add_tail(&q->conns, &c->link);
	q->conn_count++;
	return c;
}

static bool out_room(struct conn *c)
{
	const size_t want = c->out_len + SMALL_READ_REQUEST_MAX;
	uint8_t *p;

	if (want <= c->out_cap)
		return true;
	p = realloc(c->out, 2 * want);
	if (!p)
		return false;
	c->out = p;
	c->out_cap = 2 * want;
	return true;
}

/* 1 it is on its way; 0 it must wait; -1: not by this way. */
static int small_begin(struct read_queue *q, struct call *k)
{
	struct err ignored = ERR_INIT;
	struct net_addr to;
	struct read_setup s;
	struct conn *c;
	size_t n;

	if (k->len > SMALL_READ_MAX || k->got > 0 || !reader_small_setup(k->r, &k->f, k->len, &s) ||
	    node_addr(s.lb->locs[s.node]->id, q->fs->set.use_hostname, false, &to, &ignored) < 0)
		return -1;
	c = conn_get(q, &to);
	if (!c || !out_room(c))
		return -1;
	if (c->owed == SMALL_READS_MAX)
		return 0;
	n = small_read_encode(&s, ++c->s->tag, c->out + c->out_len);
	if (n == 0)
		return -1;
	c->out_len += n;
	k->tag = c->s->tag;
	leave(k);
	list_add_tail(&c->calls, &k->link);
	k->is_sent = true;
	k->sent_ns = q->watched_ns;
	c->owed++;
	return 1;
}

static struct call *call_find(struct conn *c, uint32_t tag)
{
	list_for_each (l, &c->calls)
		if (of_link(l)->tag == tag)
			return of_link(l);
	return NULL;
}

/* The answer to @k. How many calls are over. */
static int small_take(struct read_queue *q, struct call *k, const struct small_read_answer *a,
		      const uint8_t *bytes)
{
	leave(k);
	if (k->is_over) {
		free(k);
		return 0;
	}
	if (!small_read_take(a, bytes, k->f.pos - k->f.lb->offset, k->buf, (uint32_t)k->len)) {
		do_slowly(q, k);
		return 0;
	}
	reader_small_done(k->r, &k->f, k->len);
	end(q, k, (ssize_t)k->len, NULL);
	return 1;
}

static bool is_late(const struct read_queue *q, const struct call *k)
{
	return q->watched_ns - k->sent_ns >= stream_timeout_ns(q->fs, 0);
}

/* By the clock of the others. */
static uint64_t conn_deadline(const struct read_queue *q, const struct conn *c)
{
	const uint64_t timeout = stream_timeout_ns(q->fs, 0);
	uint64_t waited;

	if (list_empty(&c->calls))
		return UINT64_MAX;
	waited = q->watched_ns - of_link(c->calls.next)->sent_ns;
	return q->looked_ns + (waited < timeout ? timeout - waited : 0);
}

static bool conn_is_late(const struct read_queue *q, const struct conn *c)
{
	return !list_empty(&c->calls) && is_late(q, of_link(c->calls.next));
}

/* The node has not answered the oldest ones in time. */
static void conn_late(struct read_queue *q, struct conn *c)
{
	struct err err = ERR_INIT;

	err_set(&err, -ETIMEDOUT, "data node %s does not answer in time", c->s->peer);
	list_for_each (l, &c->calls) {
		struct call *k = of_link(l);

		if (!k->is_over && is_late(q, k))
			reader_small_failed(k->r, &k->f, -ETIMEDOUT, &err);
	}
	conn_end(q, c);
}

/* 1; -EPROTO: nobody has asked for this. */
static int take_answers(struct read_queue *q, struct conn *c, int *n)
{
	struct small_read_answer a;
	const uint8_t *bytes;
	struct call *k;
	int rc;

	while ((rc = small_read_peek(c->s, &a, &bytes)) > 0) {
		k = call_find(c, a.tag);
		if (!k)
			return -EPROTO;
		c->owed--;
		*n += small_take(q, k, &a, bytes);
		sock_consume(c->s, small_read_answer_len(&a));
	}
	return rc < 0 ? rc : 1;
}

/* No node is late before all that it has sent was taken. */
static int conn_take(struct read_queue *q, struct conn *c)
{
	int n = 0, rc;

	c->readable = false;
	do {
		rc = sock_try_fill(c->s, NULL);
		if (rc > 0)
			rc = take_answers(q, c, &n);
	} while (rc > 0 && conn_is_late(q, c));
	if (rc < 0)
		conn_end(q, c);
	else if (conn_is_late(q, c))
		conn_late(q, c);
	return n;
}

static void conn_send(struct read_queue *q, struct conn *c)
{
	if (c->out_sent == c->out_len)
		return;
	if (sock_try_send_rest(c->s, c->out, c->out_len, &c->out_sent, NULL) < 0) {
		conn_end(q, c);
		return;
	}
	if (c->out_sent == c->out_len)
		c->out_sent = c->out_len = 0;
}

/* ---- streams ---- */

/* A stream for what is left of @k within a block. */
static bool stream_begin(struct read_queue *q, struct call *k)
{
	struct err ignored = ERR_INIT;

	if (reader_fetch_start(k->r, &k->f, k->offset + k->len, &ignored) < 0)
		return false;
	q->stream_count++;
	k->has_stream = true;
	return true;
}

/* As far as it goes. How many calls are over. */
static int stream_take(struct read_queue *q, struct call *k)
{
	struct err ignored = ERR_INIT;
	ssize_t n;

	while (k->got < k->len) {
		n = reader_fetch_try(k->r, &k->f, k->buf + k->got, k->len - k->got, &ignored);
		if (n == 0)
			return 0;
		if (n > 0)
			k->got += (size_t)n;
		if (n > 0 && k->f.rs)
			continue;
		stream_over(q, k); /* it failed, or its block ends */
		if (n < 0 || (k->got < k->len && !stream_begin(q, k))) {
			do_slowly(q, k);
			return 0;
		}
	}
	leave(k);
	end(q, k, (ssize_t)k->len, NULL);
	return 1;
}

/* ---- what the queue calls ---- */

/* Before and after a wait, lest the program's own time count as a node's. */
static void look(struct read_queue *q, bool waits)
{
	const uint64_t now = clock_mono_ns(), gap = now - q->looked_ns;

	q->watched_ns += q->is_waiting || gap < AWAY_NS ? gap : AWAY_NS;
	q->looked_ns = now;
	q->is_waiting = waits;
}

/* False: it waits for others to be over. */
static bool begin_one(struct read_queue *q, struct call *k)
{
	struct err ignored = ERR_INIT;
	int rc;

	if (k->r->striped || reader_grows(k->r) || k->offset > INT64_MAX ||
	    k->offset >= reader_length(k->r) ||
	    reader_locate(k->r, k->f.pos, &k->f.stretch, &k->f.lb, &ignored) < 0) {
		do_slowly(q, k);
		return true;
	}
	if (k->len > reader_length(k->r) - k->offset)
		k->len = reader_length(k->r) - k->offset;
	rc = k->len == 0 ? -1 : small_begin(q, k);
	if (rc >= 0)
		return rc > 0;
	if (q->stream_count >= READ_QUEUE_STREAMS)
		return false;
	if (k->len == 0 || !stream_begin(q, k)) {
		do_slowly(q, k);
		return true;
	}
	leave(k);
	list_add_tail(&q->streams, &k->link);
	return true;
}

static void begin(struct rpc_beside *b)
{
	struct read_queue *q = of_beside(b);
	struct list *l;

	look(q, false);
	pthread_mutex_lock(&q->lock);
	while ((l = list_pop(&q->fresh)))
		list_add_tail(&q->todo, &container_of(l, struct call, fresh)->link);
	pthread_mutex_unlock(&q->lock);
	list_for_each (i, &q->todo)
		if (!begin_one(q, of_link(i))) {
			reader_fetch_forget(&of_link(i)->f);
			break;
		}
	list_for_each (i, &q->conns) {
		struct conn *c = container_of(i, struct conn, link);

		if (c->owed > 0 || c->out_sent < c->out_len) {
			conn_send(q, c);
			continue;
		}
		sock_cache_put(&q->fs->socks, c->s);
		c->s = NULL;
		conn_end(q, c);
	}
}

static int take_slow(struct read_queue *q)
{
	struct err err = ERR_INIT;
	struct list *l;
	int n = 0;

	while ((l = list_pop(&q->slow))) {
		struct call *k = of_link(l);
		ssize_t got;

		reader_fetch_forget(&k->f);
		err_reset(&err);
		got = reader_pread(k->r, k->buf, k->len, k->offset, &err);
		end(q, k, got, &err);
		n++;
	}
	return n;
}

static int take_cancelled(struct read_queue *q, bool all)
{
	struct err err = ERR_INIT;
	int n = 0;

	for (;;) {
		struct call *k = NULL;

		pthread_mutex_lock(&q->lock);
		if (q->cancels || all)
			list_for_each (l, &q->all) {
				k = container_of(l, struct call, all);
				if (k->is_cancelled || all)
					break;
				k = NULL;
			}
		pthread_mutex_unlock(&q->lock);
		if (!k)
			return n;
		if (!k->is_sent)
			leave(k);
		err_set(&err, -ECANCELED, "the call was cancelled");
		end(q, k, -ECANCELED, &err);
		n++;
	}
}

static int take(struct rpc_beside *b)
{
	struct read_queue *q = of_beside(b);
	int n = take_cancelled(q, false);

	list_for_each (l, &q->conns) {
		struct conn *c = container_of(l, struct conn, link);

		if (c->readable || conn_is_late(q, c))
			n += conn_take(q, c);
	}
	list_for_each (l, &q->streams)
		n += stream_take(q, of_link(l));
	return n + take_slow(q);
}

static uint32_t await(struct rpc_beside *b, struct pollfd *fds, uint64_t *until_ns)
{
	struct read_queue *q = of_beside(b);
	uint32_t n = 0;

	look(q, true);
	if (!list_empty(&q->slow))
		*until_ns = 0;
	list_for_each (l, &q->conns) {
		struct conn *c = container_of(l, struct conn, link);
		const uint64_t deadline = conn_deadline(q, c);

		c->polled = (int)n;
		fds[n++] = (struct pollfd){.fd = c->s->fd,
					   .events = POLLIN |
						     (c->out_sent < c->out_len ? POLLOUT : 0)};
		*until_ns = deadline < *until_ns ? deadline : *until_ns;
	}
	list_for_each (l, &q->streams) {
		const uint64_t deadline = of_link(l)->f.deadline_ns;

		if (n < RPC_BESIDE_FDS &&
		    of_link(l)->f.rs->ops->poll_read(of_link(l)->f.rs, &fds[n]) == 0)
			n++;
		else
			*until_ns = 0;
		*until_ns = deadline < *until_ns ? deadline : *until_ns;
	}
	return n;
}

static void polled(struct rpc_beside *b, const struct pollfd *fds)
{
	struct read_queue *q = of_beside(b);

	list_for_each (l, &q->conns) {
		struct conn *c = container_of(l, struct conn, link);

		c->readable = c->polled >= 0 && (fds[c->polled].revents & ~POLLOUT);
		c->polled = -1;
	}
}

/* ---- life ---- */

int read_queue_new(struct dfs *fs, struct rpc_queue *rpc, struct read_queue **ret)
{
	struct read_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->beside =
		(struct rpc_beside){.begin = begin, .take = take, .await = await, .polled = polled};
	q->fs = fs;
	q->rpc = rpc;
	pthread_mutex_init(&q->lock, NULL);
	list_init(&q->all);
	list_init(&q->fresh);
	list_init(&q->todo);
	list_init(&q->slow);
	list_init(&q->conns);
	list_init(&q->streams);
	rpc_queue_add_beside(rpc, &q->beside);
	*ret = q;
	return 0;
}

void read_queue_free(struct read_queue *q)
{
	if (!q)
		return;
	(void)take_cancelled(q, true);
	list_for_each (l, &q->conns)
		conn_end(q, container_of(l, struct conn, link));
	pthread_mutex_destroy(&q->lock);
	free(q);
}

void read_queue_cancel(struct read_queue *q, const void *arg)
{
	pthread_mutex_lock(&q->lock);
	list_for_each (l, &q->all) {
		struct call *k = container_of(l, struct call, all);

		if (k->is_cancelled || k->then.arg != arg)
			continue;
		k->is_cancelled = true;
		q->cancels++;
	}
	pthread_mutex_unlock(&q->lock);
	rpc_queue_begin_beside(q->rpc);
}

uint32_t read_queue_count(struct read_queue *q)
{
	uint32_t n;

	pthread_mutex_lock(&q->lock);
	n = q->count;
	pthread_mutex_unlock(&q->lock);
	return n;
}
