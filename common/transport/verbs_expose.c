/* SPDX-License-Identifier: Apache-2.0 */
/* What requests expose of slots: a window of its own for each stretch, which lets the peer of one
 * connection read or write it until the answer is there.
 *
 * Opening is one work request more in the chain of the request's message. So is closing, in a chain
 * that goes anyway, as nobody waits for it but the slot: the slot's reference, and the window, are
 * given back when the device says that it is closed.
 * A window is on one of these lists: spare; exposed on a connection; with the control thread, which
 * makes those anew whose connection was lost. From there it comes back as spare only when its slot
 * was given back, too. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

/* ---- windows of a device ---- */

/* Its share of what the device has. */
static uint32_t windows_of(const struct ibv_device_attr *attr)
{
	const uint32_t n = attr->max_mw < 0 ? 0 : (uint32_t)attr->max_mw / VERBS_WINDOWS_SHARE;

	return n < VERBS_WINDOWS_MOST ? n : VERBS_WINDOWS_MOST;
}

__attribute__((format(printf, 2, 3))) static int no_windows(struct vdev *d, const char *fmt, ...)
{
	const char *why = d->windows_why;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(d->windows_why, sizeof(d->windows_why), fmt, ap);
	va_end(ap);
	if (d->v->opts.windows == VERBS_WINDOWS_ON) {
		log_warn("op=rdma device=%s: %s, and dfs.rdma.windows=on: it is not used",
			 ibv_get_device_name(d->ctx->device), why);
		return -ENOTSUP;
	}
	/* a node says it once, but each command is a client */
	if (d->v->opts.passive || log_enabled(LOG_DEBUG))
		log_info("op=rdma device=%s: %s: a peer that is asked by RDMA can touch all slots "
			 "while it is connected (dfs.rdma.windows)",
			 ibv_get_device_name(d->ctx->device), why);
	return 0;
}

int vdev_windows_new(struct vdev *d)
{
	const uint32_t n = windows_of(&d->attr);
	int rc;

	if (d->v->opts.windows == VERBS_WINDOWS_OFF)
		return 0;
	if (!vdev_has_windows(&d->attr))
		return no_windows(d, "it has no memory windows (type 2)");
	if (n < VERBS_WINDOWS_LEAST)
		return no_windows(d,
				  "it has %d memory windows, and %u times %u are the least: a "
				  "reactor takes one in %u",
				  d->attr.max_mw, VERBS_WINDOWS_SHARE, VERBS_WINDOWS_LEAST,
				  VERBS_WINDOWS_SHARE);
	rc = vwindows_new(d, d->pd_out, n, &d->slots);
	if (rc < 0)
		return no_windows(d,
				  "it gives no memory windows now (%s), of which it has %d: other "
				  "programs may have them",
				  err_name(rc), d->attr.max_mw);
	return 0;
}

int vdev_slab_access(const struct vdev *d, bool landing)
{
	const struct verbs_opts *o = &d->v->opts;

	if (d->slots)
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	if (landing)
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
	       (o->peer_may_write ? IBV_ACCESS_REMOTE_WRITE : 0);
}

/* ---- whose turn it is ---- */

/* Those that nobody has reserved. */
static uint32_t left(const struct vmemory_on *on)
{
	return on->spare_count > on->reserved ? on->spare_count - on->reserved : 0;
}

/* No more than that are for one connection: a peer that reads nothing leaves some to others. */
static bool has_its_share(const struct vmemory_on *on, const struct vconn *c)
{
	return c && c->exposed_count + c->reserved + VERBS_EXPOSURES >
			    on->count / VERBS_SHARE_OF * VERBS_SHARE;
}

static void reserve(struct vmemory_on *on, struct verbs_turn *t, struct vconn *c)
{
	t->on = on;
	t->conn = c;
	t->has = true;
	list_add_tail(&on->takers, &t->link);
	on->reserved += VERBS_EXPOSURES;
	if (c)
		c->reserved += VERBS_EXPOSURES;
	vwindows_ask(on);
}

/* Whose connection has its share waits on; those behind pass. */
static void wake(struct vmemory_on *on)
{
	list_for_each (l, &on->turns) {
		struct verbs_turn *t = container_of(l, struct verbs_turn, link);

		if (left(on) < VERBS_EXPOSURES)
			return;
		if (has_its_share(on, t->conn))
			continue;
		list_del(&t->link);
		reserve(on, t, t->conn);
		reactor_ready(on->dev->v->reactor, t->rop);
	}
}

void vwindow_is_spare(struct verbs_window *w)
{
	struct vmemory_on *on = w->on;

	list_add(&on->spare, &w->link); /* the one that is in the caches first */
	on->spare_count++;
	if (!list_empty(&on->turns))
		wake(on);
}

static struct vmemory_on *slots_of(const struct xconn *x)
{
	return ((const struct vconn *)x)->dev->slots;
}

bool verbs_turn_take(struct xconn *x, struct verbs_turn *t)
{
	struct vmemory_on *on = slots_of(x);

	if (!on || t->has)
		return true;
	if (left(on) < VERBS_EXPOSURES)
		vwindows_take_renewed(on);
	/* who waits has what could be had: wake() */
	if (t->on || left(on) < VERBS_EXPOSURES || verbs_has_its_share(x))
		return false;
	reserve(on, t, (struct vconn *)x);
	return true;
}

void verbs_turn_wait(struct xconn *x, struct verbs_turn *t)
{
	if (t->on)
		return; /* it waits */
	metric_add(METRIC_RDMA_STALL_WINDOW, 1);
	t->on = slots_of(x);
	t->conn = (struct vconn *)x;
	list_add_tail(&t->on->turns, &t->link);
	vwindows_ask(t->on);
}

void verbs_turn_end(struct verbs_turn *t)
{
	struct vmemory_on *on = t->on;

	if (!on)
		return;
	t->on = NULL;
	list_del(&t->link);
	if (!t->has)
		return;
	t->has = false;
	on->reserved -= VERBS_EXPOSURES;
	if (t->conn)
		t->conn->reserved -= VERBS_EXPOSURES;
	wake(on);
}

void vwindows_forget_turns(struct list *turns)
{
	struct list *l;

	while ((l = list_pop(turns))) {
		struct verbs_turn *t = container_of(l, struct verbs_turn, link);

		t->on = NULL;
		t->has = false;
	}
}

bool verbs_has_its_share(const struct xconn *x)
{
	const struct vmemory_on *on = slots_of(x);

	return on && has_its_share(on, (const struct vconn *)x);
}

/* ---- exposing and covering ---- */

/* Nobody can touch the slot any more. */
static void let_go(struct verbs_window *w, int res)
{
	list_del(&w->exposed_link);
	w->conn->exposed_count--;
	slot_put(w->slot);
	w->slot = NULL;
	if (w->closed)
		w->closed(w->arg, res);
}

static void on_covered(struct xop *op, int res)
{
	struct verbs_window *w = container_of(op, struct verbs_window, cover_op);

	if (res < 0 || w->revoked)
		return; /* goes with its connection */
	let_go(w, 0);
	vwindow_is_spare(w);
}

int verbs_expose(struct xconn *x, struct verbs_exposure *e, struct xremote *ret)
{
	struct vconn *c = (struct vconn *)x;
	struct vmemory_on *on = c->dev->slots;
	struct verbs_window *w;

	assert(!e->window && e->len > 0 && e->len <= e->slot->size &&
	       e->off <= e->slot->size - e->len);
	if (!on) {
		*ret = verbs_remote(x, e->slot, e->off);
		return 0;
	}
	if (c->error || c->closing)
		return -ECONNRESET;
	if (list_empty(&on->spare))
		return -EAGAIN;
	w = container_of(list_pop(&on->spare), struct verbs_window, link);
	on->spare_count--;
	w->conn = c;
	w->mr = vslot_mr(c, e->slot);
	w->exposure = e;
	w->slot = slot_ref(e->slot);
	w->closed = e->closed;
	w->arg = e->arg;
	w->cover_op.done = on_covered;
	list_add_tail(&c->exposed, &w->exposed_link);
	c->exposed_count++;
	e->window = w;
	*ret = verbs_window_open(x, w, e->slot->data + e->off, e->len, e->right);
	return 0;
}

void verbs_cover(struct verbs_exposure *e, bool now)
{
	struct verbs_window *w = e->window;
	struct vconn *c;

	if (!w)
		return;
	e->window = NULL;
	w->exposure = NULL;
	c = w->conn;
	if (list_empty(&c->covers))
		c->cover_deadline_ns = reactor_now_ns(c->v->reactor) + VERBS_COVER_NS;
	list_add_tail(&c->covers, &w->cover_link);
	c->cover_count++;
	c->cover_now |= now || c->cover_count >= VERBS_COVERS_MOST || !list_empty(&w->on->turns) ||
			pool_is_pressed(w->slot->pool);
	if (c->cover_now)
		vconn_ready(c);
	else
		vconn_start_timer(c);
}

struct verbs_window *vconn_next_cover(struct vconn *c, bool chain)
{
	if (!chain && !c->cover_now)
		return NULL;
	list_for_each (l, &c->covers) {
		struct verbs_window *w = container_of(l, struct verbs_window, cover_link);

		if (!w->queued) /* not before it is opened */
			return w;
	}
	return NULL;
}

void vconn_covered(struct vconn *c, struct verbs_window *w)
{
	list_del(&w->cover_link);
	if (--c->cover_count == 0)
		c->cover_now = false;
}

/* ---- a connection ends ---- */

void vconn_exposed_fail(struct vconn *c)
{
	list_for_each (l, &c->exposed) {
		struct verbs_window *w = container_of(l, struct verbs_window, exposed_link);

		if (w->exposure)
			w->exposure->window = NULL;
		w->exposure = NULL;
		list_del(&w->cover_link);
	}
	c->cover_count = 0;
}

void vconn_exposed_revoke(struct vconn *c)
{
	struct verbs_control *k = c->v->control;

	if (list_empty(&c->exposed))
		return;
	pthread_mutex_lock(&k->lock);
	list_for_each (l, &c->exposed) {
		struct verbs_window *w = container_of(l, struct verbs_window, exposed_link);

		w->revoked = true;
		list_add_tail(&k->revoked, &w->link);
	}
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

/* Those who wait for a turn on it, or have one, are told by others. */
static void forget_conn(struct list *turns, const struct vconn *c)
{
	list_for_each (l, turns) {
		struct verbs_turn *t = container_of(l, struct verbs_turn, link);

		if (t->conn == c)
			t->conn = NULL;
	}
}

void vconn_exposed_end(struct vconn *c)
{
	struct vmemory_on *on = c->dev ? c->dev->slots : NULL;

	if (!on)
		return;
	forget_conn(&on->turns, c);
	forget_conn(&on->takers, c);
	vwindows_take_renewed(on);
	list_for_each (l, &c->exposed) {
		struct verbs_window *w = container_of(l, struct verbs_window, exposed_link);

		let_go(w, c->error ? c->error : -ECONNRESET);
		if (!w->revoked)
			vwindow_is_spare(w);
	}
}
