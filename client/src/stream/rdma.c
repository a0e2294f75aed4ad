/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/rdma_view.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/link/capsule_link.h"

/* Slots of data, and for packets: of 1 MiB those of two striped files in flight, or of a wide one.
 */
#define POOL_1M 44u
#define POOL_64K 64u
#define POOL_8K 256u
#define SHED_NS (20 * NS_PER_MS) /* unused for so long while somebody waits */
#define CALIBRATE_BYTES (4u << 20)
#define EAGER_AUTO UINT64_MAX
#define EAGER_LEAST 4096u
#define EAGER_MOST 16384u
/* A queue pair is one reactor's of the node: with so many calls another one is opened, */
#define QP_CALLS 8u
#define RAIL_CALLS 2u /* of a node with another address, with so many: for those that come next */
#define QPS_MAX 4u /* up to so many; and more when each of them has as many calls as a node takes */
#define QP_CALLS_MAX 192u /* 256, less what joins a call, and what ends while the next one begins */
#define QP_AGAIN_NS NS_PER_S       /* to the next try after one that did not come up */
#define QP_IDLE_NS (60 * NS_PER_S) /* closed when another one is opened, to whatever node */

/* ---- tasks ---- */

static void task_run(struct rmsg *m)
{
	struct rtask *t = container_of(m, struct rtask, msg);
	struct rdma *r = t->rdma;

	t->run(t);
	pthread_mutex_lock(&r->lock);
	t->done = true; /* @t may be gone once the lock is */
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

void rdma_run(struct rdma *r, struct rtask *t, void (*run)(struct rtask *t))
{
	t->msg.fn = task_run;
	t->run = run;
	t->rdma = r;
	t->done = false;
	reactor_post(r->reactor, &t->msg);
	pthread_mutex_lock(&r->lock);
	while (!t->done)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

/* ---- connections; all on the reactor ---- */

void rdma_conn_put(struct rconn *c)
{
	if (--c->refs > 0)
		return;
	assert(list_empty(&c->calls));
	list_del(&c->rop.ready_link); /* it may have become ready as it was lost */
	free(c);
}

static void set_state(struct rconn *c, enum rconn_state state)
{
	pthread_mutex_lock(&c->rdma->lock);
	c->state = state;
	pthread_cond_broadcast(&c->rdma->changed);
	pthread_mutex_unlock(&c->rdma->lock);
}

/* The node has no other one for us: those that stand serve on. */
static void not_again_soon(struct rdma *r, const struct net_addr *addr)
{
	list_for_each (l, &r->conns) {
		struct rconn *c = container_of(l, struct rconn, link);

		if (net_same(&c->addr, addr))
			c->again_ns = clock_mono_ns() + QP_AGAIN_NS;
	}
}

static void conn_lost(struct rconn *c, int rc, const char *why)
{
	struct xconn *x = c->x;

	if (c->state == RC_LOST)
		return;
	if (c->state == RC_CONNECTING)
		not_again_soon(c->rdma, &c->addr);
	if (rc != -ECANCELED && rc != -EAGAIN)
		rails_failed(&c->rdma->rails, c->rail, clock_mono_ns());
	rails_put(&c->rdma->rails, c->rail);
	c->rail = NULL;
	c->rc = rc;
	snprintf(c->why, sizeof(c->why), "%s", why && *why ? why : err_name(rc));
	set_state(c, RC_LOST);
	list_del(&c->link);
	if (c->tells) /* before its windows are made anew for others */
		xconn_give_up(x);
	rdma_views_lost(c);
	list_for_each (l, &c->calls) {
		struct rcall *k = container_of(l, struct rcall, link);

		if (k->started) /* else rdma_call_start() tells, or tries another one */
			k->on_lost(k, rc, c->why);
	}
	c->x = NULL;
	xconn_close(x);   /* ops in flight come back */
	rdma_conn_put(c); /* the list's */
}

static void dispatch(struct rconn *c, const struct capsule *m)
{
	if (m->type == CAPSULE_ERROR) {
		conn_lost(c, -ECONNRESET, "the data node ended the connection");
		return;
	}
	list_for_each (l, &c->calls) {
		struct rcall *k = container_of(l, struct rcall, link);

		if (k->id == m->request_id) {
			k->on_capsule(k, m);
			return;
		}
	}
	rdma_view_reply(c, m);
}

static void receive(struct rconn *c)
{
	struct capsule m;
	uint32_t len = (uint32_t)c->received;

	if (c->received < 0) {
		conn_lost(c, c->received, verbs_reason(c->x));
	} else if (c->received > 0) {
		c->received = 0;
		if (capsule_decode(c->buf, len, NULL, 0, &m) < 0)
			conn_lost(c, -EPROTO, "the data node sent a malformed capsule");
		else
			dispatch(c, &m);
	} else {
		c->receiving = true;
		c->refs++;
		xconn_recv(c->x, c->buf, sizeof(c->buf), &c->recv_op);
	}
}

static bool conn_step(struct rop *op)
{
	struct rconn *c = container_of(op, struct rconn, rop);

	c->refs++; /* what is received may end the last call */
	while (c->state == RC_UP && !c->receiving)
		receive(c);
	rdma_conn_put(c);
	return false;
}

static void on_received(struct xop *op, int res)
{
	struct rconn *c = container_of(op, struct rconn, recv_op);

	c->receiving = false;
	c->received = res ? res : -ECONNRESET;
	if (c->state == RC_UP)
		reactor_ready(c->rdma->reactor, &c->rop);
	rdma_conn_put(c);
}

static void on_connected(struct xop *op, int res)
{
	struct rconn *c = container_of(op, struct rconn, connect_op);

	if (res < 0) {
		conn_lost(c, res, c->x ? verbs_reason(c->x) : NULL);
	} else if (c->state == RC_CONNECTING &&
		   !rails_up(&c->rdma->rails, c->rail, verbs_peer(c->x))) {
		conn_lost(c, -EHOSTUNREACH, "another node is at that address");
	} else if (c->state == RC_CONNECTING) {
		set_state(c, RC_UP);
		reactor_ready(c->rdma->reactor, &c->rop);
	}
	rdma_conn_put(c);
}

static struct rconn *conn_new(struct rdma *r, const struct net_addr *addr, uint64_t deadline_ns,
			      int *ret_rc)
{
	struct rconn *c = calloc(1, sizeof(*c));

	*ret_rc = -ENOMEM;
	if (!c)
		return NULL;
	c->rdma = r;
	c->addr = *addr;
	c->refs = 2; /* the list and connect_op */
	c->next_id = 1;
	c->connect_op.done = on_connected;
	c->recv_op.done = on_received;
	rop_init(&c->rop, conn_step, NULL); /* never over by itself */
	list_init(&c->calls);
	list_init(&c->views);
	list_init(&c->link);
	c->rail = rails_get(&r->rails, addr, clock_mono_ns());
	*ret_rc = verbs_connect(r->verbs, c->rail ? rails_addr(c->rail) : addr, deadline_ns,
				&c->connect_op, &c->x);
	if (*ret_rc < 0) {
		rails_failed(&r->rails, c->rail, clock_mono_ns());
		rails_put(&r->rails, c->rail);
		free(c);
		return NULL;
	}
	list_add_tail(&r->conns, &c->link);
	return c;
}

/* Those that nobody has used for long: a device has room for some hundreds. */
static void close_idle(struct rdma *r)
{
	const uint64_t now = clock_mono_ns();

	list_for_each (l, &r->conns) {
		struct rconn *c = container_of(l, struct rconn, link);

		if (c->state == RC_UP && list_empty(&c->calls) && now > c->used_ns + QP_IDLE_NS)
			conn_lost(c, -ECANCELED, "idle");
	}
}

/* The connection to @addr with the fewest calls: one that stands, if it takes some more; then one
 * that is being made. NULL: a new one is to be made. @up_only: one that stands, at any rate. */
static struct rconn *conn_find(struct rdma *r, const struct net_addr *addr, bool up_only)
{
	struct rconn *best = NULL, *coming = NULL;
	uint32_t n = 0, least = UINT32_MAX, least_coming = QP_CALLS_MAX;

	list_for_each (l, &r->conns) {
		struct rconn *c = container_of(l, struct rconn, link);
		const uint32_t calls = list_length(&c->calls);

		if (!net_same(&c->addr, addr))
			continue;
		n++;
		if (c->state == RC_UP && calls < least) {
			least = calls;
			best = c;
		} else if (c->state == RC_CONNECTING && calls < least_coming) {
			least_coming = calls;
			coming = c;
		}
	}
	if (up_only || least < QP_CALLS || ((n >= QPS_MAX || coming) && least < QP_CALLS_MAX))
		return best;
	if (best && clock_mono_ns() < best->again_ns)
		return best;
	return coming;
}

/* Nobody waits for it: the next calls find it, or do not. */
static void widen(struct rdma *r, const struct rconn *c, uint64_t deadline_ns)
{
	const uint64_t now = clock_mono_ns();
	int rc;

	if (c->state != RC_UP || list_length(&c->calls) < RAIL_CALLS || now < c->again_ns ||
	    !rails_state(&r->rails, &c->addr, now).unused)
		return;
	(void)conn_new(r, &c->addr, deadline_ns, &rc);
}

struct call_task {
	struct rtask t;
	const struct net_addr *addr;
	uint64_t deadline_ns;
	struct rcall *call;
	bool up_only;
	int rc;
};

static void start_run(struct rtask *t)
{
	struct call_task *s = container_of(t, struct call_task, t);
	struct rconn *c = conn_find(t->rdma, s->addr, s->up_only);

	s->rc = c || !s->up_only ? 0 : -ENOTCONN;
	if (!c && !s->up_only) {
		close_idle(t->rdma);
		c = conn_new(t->rdma, s->addr, s->deadline_ns, &s->rc);
	}
	if (!c)
		return;
	widen(t->rdma, c, s->deadline_ns);
	c->refs++;
	s->call->conn = c;
	s->call->id = c->next_id++;
	list_add_tail(&c->calls, &s->call->link);
}

static void end_run(struct rtask *t)
{
	struct call_task *s = container_of(t, struct call_task, t);
	struct rconn *c = s->call->conn;

	list_del(&s->call->link);
	s->call->conn = NULL;
	c->used_ns = clock_mono_ns();
	rdma_conn_put(c);
}

/* 0, or why the connection of @call did not come up, or is down again: then nobody else tells. */
static int await_conn(struct rdma *r, struct rcall *call)
{
	int rc;

	pthread_mutex_lock(&r->lock); /* the transport keeps the deadline: this wait ends */
	while (call->conn->state == RC_CONNECTING)
		pthread_cond_wait(&r->changed, &r->lock);
	rc = call->conn->state == RC_LOST ? call->conn->rc : 0;
	if (!rc)
		call->started = true;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* The first address leaves the next one some of the time. */
static uint64_t try_until(struct rdma *r, const struct net_addr *node, uint64_t deadline_ns)
{
	const uint64_t now = clock_mono_ns();

	if (now >= deadline_ns || rails_state(&r->rails, node, now).good < 2)
		return deadline_ns;
	return now + (deadline_ns - now) / 2;
}

int rdma_call_start(struct rdma *r, const struct net_addr *node, uint64_t deadline_ns,
		    struct rcall *call, struct err *err)
{
	struct call_task s = {
		.addr = node, .deadline_ns = try_until(r, node, deadline_ns), .call = call};
	char text[NET_TEXT_MAX];
	struct err why = ERR_INIT;
	bool less = false;
	int rc;

	list_init(&call->link);
	call->conn = NULL;
	call->started = false;
	rdma_run(r, &s.t, start_run);
	if (s.rc < 0)
		return err_sys(err, s.rc, "data node %s: no RDMA connection", net_text(node, text));
	for (uint32_t tries = 0;; tries++) {
		rc = await_conn(r, call);
		if (rc == 0)
			return 0;
		if (!why.rc || why.rc == -EAGAIN)
			err_set(&why, rc, "data node %s: no RDMA connection: %s",
				net_text(node, text), call->conn->why);
		rdma_call_end(r, call);
		list_init(&call->link);
		/* another address may do, also where somebody else tries it just now, or an old
		 * node with less offered; else one that stands */
		less = rc == -EAGAIN && !less;
		s.up_only = !less && (tries >= VERBS_RAILS ||
				      !rails_state(&r->rails, node, clock_mono_ns()).good);
		s.deadline_ns = try_until(r, node, deadline_ns);
		rdma_run(r, &s.t, start_run);
		if (s.rc < 0)
			break;
	}
	if (err)
		*err = why;
	return why.rc;
}

void rdma_call_end(struct rdma *r, struct rcall *call)
{
	struct call_task s = {.call = call};

	if (call->conn)
		rdma_run(r, &s.t, end_run);
}

bool rdma_has_other_way(struct rdma *r, const struct rcall *c)
{
	bool lost;

	pthread_mutex_lock(&r->lock);
	lost = c->conn->state == RC_LOST;
	pthread_mutex_unlock(&r->lock);
	return lost && rails_state(&r->rails, &c->conn->addr, clock_mono_ns()).good > 0;
}

void rdma_call_join(struct rcall *c, const struct rcall *with)
{
	c->conn = with->conn;
	c->started = true;
	c->conn->refs++;
	c->id = c->conn->next_id++;
	list_add_tail(&c->conn->calls, &c->link);
}

void rdma_call_renew(struct rcall *c)
{
	c->id = c->conn->next_id++;
}

/* ---- sending ---- */

static void on_sent(struct xop *op, int res)
{
	struct rsend *s = container_of(op, struct rsend, op);

	(void)res; /* a lost connection tells every call by itself */
	s->busy = false;
	if (s->sent)
		s->sent(s);
}

static int send_with(struct rcall *c, struct rsend *s, struct capsule *m, const struct slot *slot,
		     uint32_t payload)
{
	ssize_t n;

	assert(!s->busy);
	if (c->conn->state != RC_UP)
		return -ECONNRESET;
	m->request_id = m->type == CAPSULE_VIEW_END ? 0 : c->id;
	n = capsule_encode(m, c->conn->x->max_message, s->buf);
	if (n < 0)
		return (int)n;
	s->op.done = on_sent;
	s->busy = true;
	s->iov = (struct iovec){s->buf, (size_t)n};
	if (payload)
		verbs_send_payload(c->conn->x, &s->iov, slot->data, payload, &s->op);
	else
		xconn_send(c->conn->x, &s->iov, 1, &s->op);
	return 0;
}

int rdma_send(struct rcall *c, struct rsend *s, struct capsule *m)
{
	return send_with(c, s, m, NULL, 0);
}

int rdma_send_eager(struct rcall *c, struct rsend *s, struct capsule *m, const struct slot *slot,
		    uint32_t len)
{
	m->payload = (struct capsule_bytes){slot->data, len};
	return send_with(c, s, m, slot, len);
}

/* Riding along saves the round trip of a READ and costs, at worst, a copy of as many bytes: the two
 * are equal at rtt times the speed of memory. */
uint32_t rdma_eager_max(const struct rcall *c)
{
	const struct rconn *k = c->conn;
	uint64_t limit = k->rdma->eager_limit;
	uint32_t peer;

	if (k->state != RC_UP)
		return 0;
	peer = verbs_peer(k->x)->payload_max;
	if (limit == EAGER_AUTO) {
		limit = (uint64_t)((double)verbs_rtt_ns(k->x) * k->rdma->copy_bytes_per_ns);
		limit = limit < EAGER_LEAST ? EAGER_LEAST : limit > EAGER_MOST ? EAGER_MOST : limit;
	}
	return limit < peer ? (uint32_t)limit : peer;
}

uint32_t rdma_capsule_max(const struct rcall *c)
{
	return c->conn->state == RC_UP ? c->conn->x->max_message : 0;
}

struct pool *rdma_pool(struct rdma *r)
{
	return r->pool;
}

struct reactor *rdma_reactor(struct rdma *r)
{
	return r->reactor;
}

void rdma_give_up(struct rcall *c)
{
	if (c->conn)
		conn_lost(c->conn, -ECANCELED, "a request was given up");
}

/* ---- who waits, and who holds what nobody uses ---- */

void rdma_holder_add(struct rdma *r, struct rholder *h)
{
	list_add_tail(&r->holders, &h->link);
}

void rdma_holder_remove(struct rholder *h)
{
	if (list_is_linked(&h->link))
		list_del(&h->link);
}

static void shed(struct rtimer *t)
{
	struct rdma *r = container_of(t, struct rdma, shed);
	const uint64_t now = clock_mono_ns();

	list_for_each (l, &r->holders) {
		struct rholder *h = container_of(l, struct rholder, link);

		if (pool_is_pressed(r->pool))
			h->shed(h, now - SHED_NS);
	}
	if (pool_is_pressed(r->pool))
		reactor_timer_set(r->reactor, &r->shed, now + SHED_NS);
}

/* It may run inside slot_put(): nothing is given back here. */
static void pressed(void *arg)
{
	struct rdma *r = arg;

	if (!r->shed.deadline_ns && pool_is_pressed(r->pool))
		reactor_timer_set(r->reactor, &r->shed, clock_mono_ns() + SHED_NS);
}

/* ---- start and end ---- */

struct setup_task {
	struct rtask t;
	struct err *err;
	int rc;
};

static void setup_run(struct rtask *t)
{
	struct setup_task *s = container_of(t, struct setup_task, t);
	const struct verbs_opts o = {.protocol = &capsule_link,
				     .role = CAPSULE_CLIENT,
				     .pool = t->rdma->pool,
				     .active = true,
				     .peer_may_write = true,
				     .features = t->rdma->onesided ? VERBS_ONESIDED : 0,
				     .windows = t->rdma->windows,
				     .tuning = &t->rdma->tuning};

	s->rc = verbs_new(t->rdma->reactor, &o, &t->rdma->verbs, s->err);
}

/* Between slots that no cache holds: one pass over the pool, half to half. */
static double measure_copy(struct pool *pool)
{
	size_t len, half;
	uint8_t *p = pool_slab(pool, 0, &len);
	uint64_t start;

	half = len / 2 < CALIBRATE_BYTES ? len / 2 : CALIBRATE_BYTES;
	start = clock_mono_ns();
	memcpy(p, p + len - half, half);
	return (double)half / (double)(clock_mono_ns() - start + 1);
}

static void stop_reactor(struct rdma *r)
{
	reactor_stop(r->reactor);
	reactor_join(r->reactor);
}

static void rdma_init(struct rdma *r, const struct settings *set)
{
	list_init(&r->conns);
	list_init(&r->quarantine);
	list_init(&r->holders);
	list_init(&r->bufs_1m);
	list_init(&r->bufs_64k);
	list_init(&r->memories);
	r->shed.fire = shed;
	pthread_mutex_init(&r->bufs_lock, NULL);
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->mem_lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	pthread_cond_init(&r->mem_gone, NULL);
	r->tuning = set->rdma_tuning;
	r->onesided = set->onesided;
	r->windows = set->rdma_windows;
	rails_init(&r->rails, !r->tuning.use_rails);
}

static int rdma_new(const struct settings *set, struct rdma **ret, struct err *err)
{
	const struct reactor_opts ro = {
		.name = "dfs-rdma", .offload_threads = 1, .spin_us = set->rdma_spin_us};
	const struct pool_opts po = {
		.count = {[SLOT_8K] = POOL_8K,
			  [SLOT_64K] = POOL_64K + BUFS_64K,
			  [SLOT_1M] = POOL_1M + BUFS_1M,
			  [SLOT_CRC] = POOL_8K + POOL_64K + POOL_1M + BUFS},
		.fixed = {[SLOT_64K] = BUFS_64K, [SLOT_1M] = BUFS_1M, [SLOT_CRC] = BUFS},
		.floor_pct = {[POOL_READ] = 8, [POOL_WRITE] = 25}}; /* reads do with smaller ones */
	struct setup_task s = {.err = err};
	struct rdma *r;
	int rc = verbs_probe(err);

	if (rc < 0)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(err, -ENOMEM, "out of memory");
	rdma_init(r, set);
	r->eager_limit = set->eager_limit ? set->eager_limit : EAGER_AUTO;
	rc = pool_new(&po, &r->pool, err);
	if (!rc) {
		r->copy_bytes_per_ns = measure_copy(r->pool);
		rdma_bufs_init(r);
		pool_on_pressed(r->pool, pressed, r);
	}
	if (!rc)
		rc = reactor_new(&ro, &r->reactor, err);
	if (!rc)
		rc = reactor_start(r->reactor);
	if (!rc) {
		rdma_run(r, &s.t, setup_run);
		rc = s.rc;
		if (rc < 0)
			stop_reactor(r);
	}
	if (rc < 0) {
		reactor_free(r->reactor);
		rdma_bufs_fini(r);
		pool_free(r->pool);
		rails_fini(&r->rails);
		free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int rdma_get(struct dfs *fs, struct rdma **ret, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&fs->rdma_lock);
	if (!fs->rdma)
		rc = rdma_new(&fs->set, &fs->rdma, err);
	if (rc == 0)
		packet_pool_register(&fs->packets, fs->rdma);
	*ret = fs->rdma;
	pthread_mutex_unlock(&fs->rdma_lock);
	return rc;
}

static void end_all_run(struct rtask *t)
{
	list_for_each (l, &t->rdma->conns)
		conn_lost(container_of(l, struct rconn, link), -ECANCELED, "closed");
}

void rdma_free(struct rdma *r)
{
	struct rtask t;
	bool is_off;

	if (!r)
		return;
	rdma_run(r, &t, end_all_run);
	stop_reactor(r);
	rdma_memories_fini(r);
	is_off = verbs_free(r->verbs); /* no queue pair is left */
	reactor_free(r->reactor);      /* it knows their timers */
	list_for_each (l, &r->quarantine)
		rdma_quarantine_over(&container_of(l, struct quarantine, link)->timer);
	rdma_bufs_fini(r);
	if (is_off) /* else it is better lost than written to */
		pool_free(r->pool);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->bufs_lock);
	pthread_mutex_destroy(&r->lock);
	pthread_mutex_destroy(&r->mem_lock);
	rails_fini(&r->rails);
	pthread_cond_destroy(&r->mem_gone);
	free(r);
}
