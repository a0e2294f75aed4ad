/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/fake.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MESSAGE_DEFAULT 1024

/* Bytes on the way: one message, or one piece of the stream. */
struct parcel {
	struct list link;
	uint32_t len, taken;
	uint8_t data[];
};

struct window {
	struct list link;
	uint8_t *mem; /* borrowed */
	size_t len;
	uint32_t rkey;
};

/* What an op keeps in xop.priv. */
struct fop {
	struct list link; /* in done or blocked */
	union {
		struct parcel *parcel; /* blocked send: owned */
		uint32_t due;          /* finished: not before this turn */
	};
	int res;
};
_Static_assert(sizeof(struct fop) <= sizeof(((struct xop *)0)->priv), "fits xop.priv");

struct fake_conn {
	struct xconn x;
	struct fake_pair *pair;
	struct fake_conn *peer; /* NULL: it has closed */
	bool closing;
	struct list inbox; /* parcels not received */
	uint32_t inbox_count;
	struct list blocked; /* sends without credit */
	struct list done;    /* ops to complete */
	struct list windows;
	uint32_t next_rkey, out; /* ops with us */
	struct xop *in_op;       /* receive or stream pull waiting for bytes */
	struct iovec in_iov[XOP_IOV_MAX];
	uint32_t in_len, in_min, in_got;
	bool in_whole; /* all of in_min, or an error */
	bool feeding;
	struct rtimer in_timer;
};

struct fake_pair {
	struct rop pump;
	struct fake_opts opts;
	struct reactor *reactor;
	struct fake_conn *end[2]; /* NULL: freed */
	uint64_t rng;
	uint32_t turn, ops;
	bool broken;
};

struct fake_listener {
	struct xlistener x;
	struct fake_opts opts;
	struct xlistener_opts lo;
};

static struct fake_conn *fake_of(const struct xconn *c)
{
	return container_of(c, struct fake_conn, x);
}

static struct fop *fop_of(struct xop *op)
{
	return (struct fop *)(void *)op->priv;
}

static struct xop *op_of(struct list *l)
{
	return container_of((void *)container_of(l, struct fop, link), struct xop, priv);
}

static uint32_t chance(struct fake_pair *p, uint32_t below)
{
	p->rng = p->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(p->rng >> 33) % below;
}

/* ---- completion ---- */

static void finish(struct fake_conn *c, struct xop *op, int res)
{
	struct fake_pair *p = c->pair;
	struct fop *f = fop_of(op);

	if (p->opts.inside_submit && !c->closing) {
		c->out--;
		op->done(op, res);
		return;
	}
	f->res = res;
	f->due = p->turn + (p->opts.delay_turns ? chance(p, p->opts.delay_turns + 1) : 0);
	if (p->opts.shuffle && chance(p, 2))
		list_add(&c->done, &f->link);
	else
		list_add_tail(&c->done, &f->link);
	reactor_ready(p->reactor, &p->pump);
}

static void finish_in(struct fake_conn *c, int res)
{
	struct xop *op = c->in_op;

	c->in_op = NULL;
	reactor_timer_clear(c->x.reactor, &c->in_timer);
	finish(c, op, res);
}

static void parcels_free(struct list *head)
{
	struct list *l;

	while ((l = list_pop(head)))
		free(container_of(l, struct parcel, link));
}

static void fail_blocked(struct fake_conn *c, int rc)
{
	struct list *l;

	while ((l = list_pop(&c->blocked))) {
		struct xop *op = op_of(l);

		free(fop_of(op)->parcel);
		finish(c, op, rc);
	}
}

/* Whatever waits on @c ends with @rc. */
static void fail_waiting(struct fake_conn *c, int rc)
{
	if (c->in_op)
		finish_in(c, rc);
	fail_blocked(c, rc);
}

static void pair_break(struct fake_pair *p)
{
	if (p->broken)
		return;
	p->broken = true;
	for (int i = 0; i < 2; i++) {
		if (p->end[i])
			fail_waiting(p->end[i], -ECONNRESET);
	}
}

static void conn_free(struct fake_conn *c)
{
	struct list *l;

	parcels_free(&c->inbox);
	while ((l = list_pop(&c->windows)))
		free(container_of(l, struct window, link));
	if (c->peer)
		c->peer->peer = NULL;
	c->pair->end[c->pair->end[1] == c] = NULL;
	free(c);
}

/* Complete what is due at @c; what done() adds waits for the next turn. */
static void conn_pump(struct fake_conn *c)
{
	struct list last, *l;

	list_add_tail(&c->done, &last); /* a mark */
	while ((l = list_pop(&c->done)) != &last) {
		struct fop *f = container_of(l, struct fop, link);
		struct xop *op = op_of(l);

		if (f->due > c->pair->turn) {
			list_add_tail(&c->done, l);
			continue;
		}
		c->out--;
		op->done(op, f->res);
	}
}

static bool pump_step(struct rop *rop)
{
	struct fake_pair *p = container_of(rop, struct fake_pair, pump);

	p->turn++;
	for (int i = 0; i < 2; i++) {
		struct fake_conn *c = p->end[i];

		if (c)
			conn_pump(c);
		if (c && c->closing && !c->out)
			conn_free(c);
		else if (c && !list_empty(&c->done))
			reactor_ready(p->reactor, rop);
	}
	return !p->end[0] && !p->end[1];
}

static void pump_free(struct rop *rop)
{
	free(container_of(rop, struct fake_pair, pump));
}

/* ---- bytes ---- */

static void unblock(struct fake_conn *sender);

/* @len bytes to where the waiting receive has its next ones. */
static void scatter(struct fake_conn *c, const uint8_t *from, uint32_t len)
{
	const struct iovec *v = c->in_iov;
	uint32_t at = c->in_got, n;

	c->in_got += len;
	for (; len; len -= n, from += n, at = 0, v++) {
		while (at >= v->iov_len)
			at -= (uint32_t)v++->iov_len;
		n = (uint32_t)v->iov_len - at;
		n = n < len ? n : len;
		memcpy((uint8_t *)v->iov_base + at, from, n);
	}
}

/* Give the waiting receive what there is. */
static void feed(struct fake_conn *c)
{
	const struct fake_opts *o = &c->pair->opts;
	struct parcel *p;
	uint32_t n;

	/* who was served asks for more: the loop goes on, the stack does not grow */
	if (c->feeding)
		return;
	c->feeding = true;
	while (c->in_op && (!list_empty(&c->inbox) || !c->peer)) {
		if (list_empty(&c->inbox)) { /* the peer closed */
			finish_in(c, o->messages || c->in_whole ? -ECONNRESET : 0);
			continue;
		}
		p = container_of(c->inbox.next, struct parcel, link);
		n = p->len - p->taken;
		if (o->messages && n > c->in_len) {
			c->feeding = false;
			pair_break(c->pair); /* a capsule larger than the receive buffer */
			return;
		}
		if (n > c->in_len - c->in_got)
			n = c->in_len - c->in_got;
		if (!o->messages && c->in_min < c->in_len && o->recv_max && n > o->recv_max)
			n = o->recv_max;
		scatter(c, p->data + p->taken, n);
		p->taken += n;
		if (p->taken == p->len) {
			list_del(&p->link);
			free(p);
			c->inbox_count--;
		}
		if (!c->in_whole || c->in_got >= c->in_min)
			finish_in(c, (int)c->in_got);
	}
	c->feeding = false;
	if (c->peer)
		unblock(c->peer);
}

static bool has_credit(const struct fake_conn *c)
{
	uint32_t credits = c->pair->opts.credits;

	return !credits || c->peer->inbox_count < credits;
}

static void deliver(struct fake_conn *c, struct xop *op, struct parcel *p)
{
	int len = (int)p->len;

	if (p->len || c->pair->opts.messages) {
		list_add_tail(&c->peer->inbox, &p->link);
		c->peer->inbox_count++;
	} else {
		free(p);
	}
	finish(c, op, len);
}

static void unblock(struct fake_conn *c)
{
	while (c->peer && !list_empty(&c->blocked) && has_credit(c)) {
		struct xop *op = op_of(list_pop(&c->blocked));

		deliver(c, op, fop_of(op)->parcel);
		if (c->peer)
			feed(c->peer);
	}
}

/* Count the op; true: it has been answered with a fault or because the connection is gone. */
static bool op_begin(struct fake_conn *c, struct xop *op)
{
	struct fake_pair *p = c->pair;

	assert(reactor_is_current(p->reactor) && !c->closing);
	list_init(&fop_of(op)->link);
	c->out++;
	p->ops++;
	if (p->opts.drop_after_ops && p->ops >= p->opts.drop_after_ops)
		pair_break(p);
	if (p->broken)
		finish(c, op, -ECONNRESET);
	else if (p->ops == p->opts.fail_op)
		finish(c, op, p->opts.fail_rc);
	else
		return false;
	return true;
}

static struct parcel *gather(const struct iovec *iov, int n)
{
	struct parcel *p;
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	p = (struct parcel *)malloc(sizeof(*p) + len);
	if (!p)
		abort(); /* a test without memory has nothing to tell */
	p->len = 0;
	p->taken = 0;
	for (int i = 0; i < n; p->len += (uint32_t)iov[i++].iov_len)
		memcpy(p->data + p->len, iov[i].iov_base, iov[i].iov_len);
	return p;
}

static void fake_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
{
	struct fake_conn *c = fake_of(x);
	struct parcel *p;

	if (op_begin(c, op))
		return;
	if (!c->peer) {
		finish(c, op, -ECONNRESET);
		return;
	}
	p = gather(iov, n);
	assert(!x->ops->messages || p->len <= x->max_message);
	if (!list_empty(&c->blocked) || !has_credit(c)) {
		fop_of(op)->parcel = p;
		list_add_tail(&c->blocked, &fop_of(op)->link);
		return;
	}
	deliver(c, op, p);
	if (c->peer)
		feed(c->peer);
}

static void in_expire(struct rtimer *t)
{
	struct fake_conn *c = container_of(t, struct fake_conn, in_timer);

	if (c->in_op)
		finish_in(c, -ETIMEDOUT);
}

/* @min: whole, or an error; 0: what there is. */
static void in_start(struct fake_conn *c, const struct iovec *iov, int n, uint32_t min,
		     struct xop *op)
{
	assert(!c->in_op && n <= XOP_IOV_MAX);
	if (op_begin(c, op))
		return;
	c->in_op = op;
	c->in_len = 0;
	for (int i = 0; i < n; i++) {
		c->in_iov[i] = iov[i];
		c->in_len += (uint32_t)iov[i].iov_len;
	}
	c->in_got = 0;
	c->in_min = min;
	c->in_whole = min != 0;
	if (c->x.recv_deadline_ns)
		reactor_timer_set(c->x.reactor, &c->in_timer, c->x.recv_deadline_ns);
	feed(c);
}

static void fake_recv(struct xconn *x, void *buf, uint32_t len, struct xop *op)
{
	in_start(fake_of(x), &(struct iovec){buf, len}, 1, 0, op);
}

static void fake_recvv(struct xconn *x, const struct iovec *iov, int n, uint32_t min,
		       struct xop *op)
{
	in_start(fake_of(x), iov, n, min, op);
}

static void fake_recv_by(struct xconn *x, uint64_t deadline_ns)
{
	x->recv_deadline_ns = deadline_ns;
	if (fake_of(x)->in_op)
		reactor_timer_set(x->reactor, &fake_of(x)->in_timer, deadline_ns);
}

/* The peer's memory at @r, or NULL when it has not exposed all of it. */
static uint8_t *remote(struct fake_conn *c, struct xremote r, uint64_t len)
{
	if (!c->peer)
		return NULL;
	list_for_each (l, &c->peer->windows) {
		struct window *w = container_of(l, struct window, link);
		uint64_t off = r.addr - (uintptr_t)w->mem;

		if (w->rkey == r.rkey && off <= w->len && len <= w->len - off)
			return w->mem + off;
	}
	return NULL;
}

static void access_refused(struct fake_conn *c, struct xop *op)
{
	pair_break(c->pair);
	finish(c, op, -ECONNRESET);
}

static void fake_pull(struct xconn *x, struct xremote from, struct slot *slot, uint32_t off,
		      uint32_t len, struct xop *op)
{
	struct fake_conn *c = fake_of(x);
	uint8_t *src;

	assert(off <= slot->size && len <= slot->size - off);
	if (!x->ops->messages) {
		in_start(c, &(struct iovec){slot->data + off, len}, 1, len, op);
		return;
	}
	if (op_begin(c, op))
		return;
	src = remote(c, from, len);
	if (!src) {
		access_refused(c, op);
		return;
	}
	memcpy(slot->data + off, src, len);
	finish(c, op, (int)len);
}

static void fake_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to,
		      struct xop *op)
{
	struct fake_conn *c = fake_of(x);
	struct parcel *p;
	uint8_t *dst;

	if (!x->ops->messages) {
		fake_send(x, iov, n, op);
		return;
	}
	if (op_begin(c, op))
		return;
	p = gather(iov, n);
	dst = remote(c, to, p->len);
	if (!dst) {
		access_refused(c, op);
	} else {
		memcpy(dst, p->data, p->len);
		finish(c, op, (int)p->len);
	}
	free(p);
}

/* ---- life ---- */

static void fake_close(struct xconn *x)
{
	struct fake_conn *c = fake_of(x), *peer = c->peer;

	assert(!c->closing);
	c->closing = true;
	fail_waiting(c, -ECANCELED);
	reactor_ready(c->pair->reactor, &c->pair->pump);
	if (!peer)
		return;
	c->peer = peer->peer = NULL;
	fail_blocked(peer, -ECONNRESET);
	feed(peer);
}

static int fake_connect(struct reactor *r, const struct net_addr *to, uint64_t deadline_ns,
			const void *private_data, size_t private_len, struct xop *op,
			struct xconn **ret)
{
	struct fake_listener *l;
	struct xconn *c[2];
	int rc;

	(void)deadline_ns, (void)private_data, (void)private_len;
	memcpy(&l, &to->sa, sizeof(l));
	if (l->opts.refuse_connects) {
		l->opts.refuse_connects--;
		return -ECONNREFUSED;
	}
	rc = fake_pair(r, &l->opts, c);
	if (rc < 0)
		return rc;
	*ret = c[0];
	fake_of(c[0])->out++;
	finish(fake_of(c[0]), op, 0);
	l->lo.accepted(l->lo.arg, c[1]);
	return 0;
}

/* What streams and messages have. */
#define FAKE_OPS                                                                                   \
	.name = "fake", .connect = fake_connect, .send = fake_send, .recv = fake_recv,             \
	.pull = fake_pull, .push = fake_push, .close = fake_close

const struct xport_ops fake_stream_ops = {FAKE_OPS, .recv_by = fake_recv_by};
static const struct xport_ops fake_vectored_ops = {FAKE_OPS, .recvv = fake_recvv,
						   .recv_by = fake_recv_by};
const struct xport_ops fake_message_ops = {FAKE_OPS, .messages = true};

static struct fake_conn *conn_new(struct fake_pair *p)
{
	struct fake_conn *c = (struct fake_conn *)calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->x.ops = p->opts.messages   ? &fake_message_ops
		   : p->opts.vectored ? &fake_vectored_ops
				      : &fake_stream_ops;
	c->x.reactor = p->reactor;
	c->x.max_message = p->opts.messages ? p->opts.max_message : 0;
	c->pair = p;
	c->in_timer.fire = in_expire;
	list_init(&c->inbox);
	list_init(&c->blocked);
	list_init(&c->done);
	list_init(&c->windows);
	return c;
}

int fake_pair(struct reactor *r, const struct fake_opts *o, struct xconn *ret[2])
{
	struct fake_pair *p = (struct fake_pair *)calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->opts = *o;
	if (!p->opts.max_message)
		p->opts.max_message = MAX_MESSAGE_DEFAULT;
	p->reactor = r;
	p->rng = o->seed;
	rop_init(&p->pump, pump_step, pump_free);
	for (int i = 0; i < 2; i++) {
		p->end[i] = conn_new(p);
		if (!p->end[i]) {
			free(p->end[0]);
			free(p);
			return -ENOMEM;
		}
		ret[i] = &p->end[i]->x;
	}
	p->end[0]->peer = p->end[1];
	p->end[1]->peer = p->end[0];
	return 0;
}

static void fake_listener_close(struct xlistener *x)
{
	free(container_of(x, struct fake_listener, x));
}

int fake_listen(struct reactor *r, const struct fake_opts *o, const struct xlistener_opts *lo,
		struct net_addr *ret_addr, struct xlistener **ret)
{
	struct fake_listener *l = (struct fake_listener *)calloc(1, sizeof(*l));

	(void)r;
	if (!l)
		return -ENOMEM;
	l->x.close = fake_listener_close;
	l->opts = *o;
	l->lo = *lo;
	*ret_addr = (struct net_addr){.len = sizeof(l)};
	memcpy(&ret_addr->sa, &l, sizeof(l)); /* the address is the listener */
	*ret = &l->x;
	return 0;
}

/* ---- what tests do to it ---- */

uint32_t fake_expose(struct xconn *x, void *mem, size_t len)
{
	struct fake_conn *c = fake_of(x);
	struct window *w = (struct window *)calloc(1, sizeof(*w));

	if (!w)
		return 0;
	w->mem = (uint8_t *)mem;
	w->len = len;
	w->rkey = ++c->next_rkey;
	list_add_tail(&c->windows, &w->link);
	return w->rkey;
}

void fake_revoke(struct xconn *x, uint32_t rkey)
{
	list_for_each (l, &fake_of(x)->windows) {
		struct window *w = container_of(l, struct window, link);

		if (w->rkey == rkey) {
			list_del(l);
			free(w);
		}
	}
}

void fake_break(struct xconn *x)
{
	pair_break(fake_of(x)->pair);
}

uint32_t fake_ops(const struct xconn *x)
{
	return fake_of(x)->pair->ops;
}
