/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA connections begin and end here, as their reactor sees it: it asks the control thread, and
 * hears of what came of it by mail. Also their deadlines, and verbs themselves. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

/* ---- connections ---- */

static void vconn_free(struct rop *op)
{
	free(container_of(op, struct vconn, rop));
}

static void on_timer(struct rtimer *t);

struct vconn *vconn_alloc(struct verbs *v, bool active)
{
	struct vconn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->x.ops = &verbs_ops;
	c->x.reactor = v->reactor;
	c->v = v;
	c->active = active;
	c->state = active ? VC_WAIT_CM : VC_WAIT_ESTABLISHED;
	rop_init(&c->rop, vconn_step, vconn_free);
	c->timer.fire = on_timer;
	list_init(&c->link);
	list_init(&c->todo_link);
	list_init(&c->mail_link);
	list_init(&c->rxq);
	list_init(&c->early);
	list_init(&c->ctlq);
	list_init(&c->txq);
	list_init(&c->shutq);
	list_init(&c->rdq);
	list_init(&c->exposed);
	list_init(&c->covers);
	list_init(&c->qpn_link);
	list_init(&c->tx_link);
	return c;
}

/* False: so many are there that it has no place. */
static bool vconn_enter(struct vconn *c)
{
	struct verbs *v = c->v;

	if (!v->free_slots)
		return false;
	c->slot = v->free_slot[--v->free_slots];
	c->gen = ++v->gen[c->slot];
	v->table[c->slot] = c;
	list_add_tail(&v->conns, &c->link);
	v->conn_count++;
	metric_add(METRIC_RDMA_CONNS, 1);
	metric_add(METRIC_RDMA_CONN_BYTES, sizeof(*c));
	return true;
}

static void vconn_leave(struct vconn *c)
{
	struct verbs *v = c->v;

	if (!list_is_linked(&c->link))
		return;
	v->table[c->slot] = NULL;
	v->free_slot[v->free_slots++] = c->slot;
	list_del(&c->link);
	v->conn_count--;
	metric_add(METRIC_RDMA_CONNS, (uint64_t)-1);
	metric_add(METRIC_RDMA_CONN_BYTES, (uint64_t) - (int64_t)sizeof(*c));
}

static void give_back_messages(struct list *queue)
{
	struct list *l;

	while ((l = list_pop(queue))) {
		struct vrx *rx = container_of(l, struct vrx, link);

		rx->conn = NULL;
		if (rx->shared)
			vrx_post(rx);
	}
}

/* The device does not touch our memory for this connection any more. */
static void vconn_end(struct vconn *c)
{
	struct verbs *v = c->v;

	reactor_timer_clear(v->reactor, &c->timer);
	/* receives of this queue pair that are in the completion queue must not meet its successor
	 */
	vdev_drain(c->dev);
	list_del(&c->qpn_link);
	list_del(&c->tx_link);
	while (c->sq_tail != c->sq_head) {
		struct vrec rec = c->sq[c->sq_tail++ & (VERBS_SQ_DEPTH - 1)];

		if (rec.txbuf)
			vdev_tx_put(c->dev, rec.txbuf);
		if (rec.op)
			rec.op->done(rec.op, c->error);
	}
	vconn_exposed_end(c);
	give_back_messages(&c->rxq);
	give_back_messages(&c->early);
	slot_put(c->payload);
	if (c->cm_dev) {
		vconn_rx_end(c);
		vdev_cqes_put(c->cm_dev, c->cqes + c->rx_count);
		vdev_leave(c->cm_dev);
	}
	vconn_leave(c);
	if (c->x.gone)
		c->x.gone(&c->x);
	list_del(&c->rop.ready_link);
	atomic_fetch_sub(&v->load, 1);
	free(c);
}

/* ---- deadlines ---- */

/* Until when the end of a queue pair is waited for. */
static uint64_t flush_deadline(const struct vconn *c)
{
	return c->sq_head != c->sq_tail ? c->drain_deadline_ns : c->last_wqe_deadline_ns;
}

static bool vconn_is_sending(const struct vconn *c)
{
	return c->awaited || !list_empty(&c->ctlq) || !list_empty(&c->txq) ||
	       !list_empty(&c->shutq) || !list_empty(&c->rdq);
}

static bool cover_waits(const struct vconn *c)
{
	return !list_empty(&c->covers) && !c->cover_now;
}

void vconn_start_timer(struct vconn *c)
{
	uint64_t at = UINT64_MAX;
	bool sending = vconn_is_sending(c);

	if (c->state == VC_WAIT_FLUSH)
		at = flush_deadline(c);
	else if (c->state == VC_WAIT_CM || c->state == VC_WAIT_ESTABLISHED)
		at = c->connect_deadline_ns;
	else if (c->state == VC_UP) {
		if (c->recv_op && c->x.recv_deadline_ns)
			at = c->x.recv_deadline_ns;
		if (sending && c->x.send_deadline_ns && c->x.send_deadline_ns < at)
			at = c->x.send_deadline_ns;
		if (!c->beat && c->spoke_ns + VERBS_HEARTBEAT_NS < at)
			at = c->spoke_ns + VERBS_HEARTBEAT_NS;
		if (c->heard_ns + VERBS_PATIENCE_NS < at)
			at = c->heard_ns + VERBS_PATIENCE_NS;
		if (cover_waits(c) && c->cover_deadline_ns < at)
			at = c->cover_deadline_ns;
	}
	if (at == UINT64_MAX)
		reactor_timer_clear(c->v->reactor, &c->timer);
	else if (!c->timer.deadline_ns ||
		 at < c->timer.deadline_ns) /* early is harmless: see below */
		reactor_timer_set(c->v->reactor, &c->timer, at);
}

static void on_timer(struct rtimer *t)
{
	struct vconn *c = container_of(t, struct vconn, timer);
	uint64_t now = clock_mono_ns();
	bool sending = vconn_is_sending(c);
	struct xop *op = c->recv_op;

	if (c->state == VC_WAIT_DESTROYED)
		return;
	if (c->state == VC_WAIT_FLUSH) {
		if (now >= flush_deadline(c))
			vconn_ready(c); /* overdue: destroyed as it is */
		else
			vconn_start_timer(c);
		return;
	}
	if (c->state != VC_UP) {
		if (now >= c->connect_deadline_ns)
			vconn_fail(c, -ETIMEDOUT, "no RDMA answer in time");
	} else if (sending && c->x.send_deadline_ns && now >= c->x.send_deadline_ns) {
		/* memory is in use until the queue pair is gone: nothing less ends the request */
		vconn_fail(c, -ETIMEDOUT, "a request was not completed in time");
	} else if (now >= c->heard_ns + VERBS_PATIENCE_NS) {
		vconn_fail(c, -ETIMEDOUT, "the peer is silent");
	} else if (op && c->x.recv_deadline_ns && now >= c->x.recv_deadline_ns) {
		c->recv_op = NULL;
		op->done(op, -ETIMEDOUT);
	}
	if (c->state == VC_UP && now >= c->spoke_ns + VERBS_HEARTBEAT_NS && !c->beat) {
		c->beat = true;
		vconn_ready(c);
	}
	if (c->state == VC_UP && cover_waits(c) && now >= c->cover_deadline_ns) {
		c->cover_now = true;
		vconn_ready(c);
	}
	vconn_start_timer(c);
}

/* ---- connecting ---- */

struct verbs_hello vconn_hello(const struct vconn *c, uint8_t read_depth)
{
	return (struct verbs_hello){.credits = c->first_grant,
				    .message_max = VERBS_MESSAGE_MAX,
				    .payload_max = c->active ? 0 : c->cm_dev->payload_max,
				    .read_depth = read_depth,
				    .role = c->active ? c->v->opts.role : c->v->opts.accept_role,
				    .features = c->features};
}

/* The peer has spoken: what it takes, and how much of it. */
static void meet(struct vconn *c)
{
	credit_init(&c->credit, c->peer.credits, VERBS_CREDITS_MAX);
	if (c->dev->attr.max_sge < 2) /* what rides along is a second one */
		c->peer.payload_max = 0;
	c->x.max_message =
		c->peer.message_max < VERBS_MESSAGE_MAX ? c->peer.message_max : VERBS_MESSAGE_MAX;
}

int verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns, struct xop *op,
		  struct xconn **ret)
{
	struct vconn *c = vconn_alloc(v, true);

	assert(v->opts.active);
	if (!c || !vconn_enter(c)) {
		free(c);
		return -ENOMEM;
	}
	atomic_fetch_add(&v->load, 1);
	c->connect_op = op;
	c->connect_deadline_ns = deadline_ns;
	c->x.peer = *to;
	vconn_start_timer(c);
	*ret = &c->x;
	vconn_ask(c, DO_CONNECT);
	return 0;
}

static void enter_qpn(struct vconn *c)
{
	c->dev = c->cm_dev;
	c->qp = c->id->qp;
	c->qpn = c->qp->qp_num;
	list_add_tail(&c->v->by_qpn[c->qpn % VERBS_QPN_BUCKETS], &c->qpn_link);
}

/* A request has come to this reactor: it has a queue pair, and nobody knows it. */
static void adopt(struct vconn *c)
{
	const bool entered = vconn_enter(c) && !c->cm_dev->failed;

	c->closing = true; /* nobody owns it until it is announced */
	enter_qpn(c);
	if (entered)
		grant_init(&c->grant, vconn_first_grant(c));
	c->first_grant = c->grant.granted;
	if (!c->first_grant) {
		c->state = VC_WAIT_DESTROYED;
		vconn_ask(c, DO_REJECT | DO_DESTROY);
		return;
	}
	meet(c);
	vconn_start_timer(c);
	vconn_ask(c, DO_ACCEPT);
}

static void on_up(struct vconn *c)
{
	struct xop *op = c->connect_op;
	struct list *l;

	if (c->state != VC_WAIT_CM && c->state != VC_WAIT_ESTABLISHED)
		return; /* given up meanwhile */
	if (c->active) {
		enter_qpn(c);
		meet(c);
		if (atomic_load(&c->dev->broken)) { /* meanwhile */
			vconn_fail(c, -ENODEV, "the RDMA device failed");
			return;
		}
	}
	c->closing = false;
	c->state = VC_UP;
	c->heard_ns = c->spoke_ns = reactor_now_ns(c->v->reactor);
	vconn_start_timer(c);
	vconn_ready(c);
	if (c->active) {
		c->connect_op = NULL;
		op->done(op, 0);
	} else {
		c->v->listener.accepted(c->v->listener.arg, &c->x);
	}
	while ((l = list_pop(&c->early)))
		vconn_message(c, container_of(l, struct vrx, link));
}

/* ---- mail ---- */

static void read_mail(struct vconn *c, uint32_t mail)
{
	if (mail & MAIL_ADOPT)
		adopt(c);
	if (mail & MAIL_UP)
		on_up(c);
	if (mail & MAIL_FAILED) {
		vdev_drain(c->dev); /* what the peer said before it closed */
		vconn_fail(c, c->mail_rc, "%s", c->mail_why);
	}
	if (mail & MAIL_LAST_WQE) {
		c->last_wqe = true;
		if (c->dev)
			c->dev->last_wqe = LAST_WQE_SENT;
		vconn_ready(c);
	}
	if (mail & MAIL_DESTROYED)
		vconn_end(c);
}

static void dev_event(struct vdev *d, uint32_t events)
{
	int rc;

	if (events & DEV_CLOSED) {
		d->v->closing_devs--;
		vdev_forget(d);
		vdev_free(d);
		return;
	}
	if (events & DEV_JOIN && !d->joined) {
		rc = vdev_join(d);
		if (rc < 0)
			vdev_mail(d, DEV_FAILED); /* the next connection tries again */
	}
	if (events & DEV_WINDOWS)
		vwindows_join(d);
	if (events & DEV_RECEIVES)
		vdev_chunk_join(d);
	if (events & DEV_SRQ_LIMIT) {
		metric_add(METRIC_RDMA_SRQ_LIMIT, 1);
		vdev_drain(d); /* what was received is posted again */
		vdev_rx_grow(d);
		vdev_srq_limit(d);
	}
	if (!(events & DEV_FAILED))
		return;
	d->failed = true;
	d->poller.fd = -1; /* it may be readable for ever */
	list_for_each (l, &d->v->conns) {
		struct vconn *c = container_of(l, struct vconn, link);

		if (c->dev == d)
			vconn_fail(c, -ENODEV, "the RDMA device failed");
	}
}

static void read_dev_mail(struct verbs *v)
{
	struct verbs_control *k = v->control;

	for (;;) {
		struct vdev *d = NULL;
		uint32_t events = 0;

		pthread_mutex_lock(&k->lock);
		v->dev_mail = false;
		list_for_each (l, &k->cards)
			list_for_each (e, &container_of(l, struct vcard, link)->devs) {
				struct vdev *it = container_of(e, struct vdev, card_link);

				if (!d && it->v == v && it->events) {
					d = it;
					events = it->events;
					it->events = 0;
				}
			}
		pthread_mutex_unlock(&k->lock);
		if (!d)
			return;
		dev_event(d, events);
	}
}

int verbs_mail_poll(struct poller *p)
{
	struct verbs *v = container_of(p, struct verbs, poller);
	struct verbs_control *k = v->control;
	bool dev_mail;
	uint64_t count;
	int n = 0;

	if (!atomic_load_explicit(&v->has_mail, memory_order_relaxed))
		return 0;
	(void)!read(v->poller.fd, &count, sizeof(count));
	atomic_store(&v->has_mail, false);
	pthread_mutex_lock(&k->lock);
	dev_mail = v->dev_mail;
	pthread_mutex_unlock(&k->lock);
	if (dev_mail)
		read_dev_mail(v);
	for (;; n++) {
		struct vconn *c = NULL;
		struct list *l;
		uint32_t mail = 0;

		pthread_mutex_lock(&k->lock);
		l = list_pop(&v->mail);
		if (l) {
			c = container_of(l, struct vconn, mail_link);
			mail = c->mail;
			c->mail = 0;
		}
		pthread_mutex_unlock(&k->lock);
		if (!c)
			return n + 1;
		read_mail(c, mail);
	}
}

static int mail_arm(struct poller *p)
{
	(void)p;
	return 0; /* readable whenever there is mail */
}

/* ---- start and end ---- */

uint32_t verbs_device_count(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (list)
		ibv_free_device_list(list);
	return list && n > 0 ? (uint32_t)n : 0;
}

int verbs_probe(struct err *err)
{
	if (verbs_device_count())
		return 0;
	err_set(err, -ENODEV, "no RDMA device on this machine (/sys/class/infiniband is empty)");
	(void)err_cure(
		err,
		"install the card's driver, or `rdma link add rxe0 type rxe netdev IF` for soft RoCE");
	return -ENODEV;
}

static struct verbs *verbs_alloc(struct reactor *r, const struct verbs_opts *o)
{
	struct verbs *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->reactor = r;
	v->opts = *o;
	v->tuning = o->tuning ? *o->tuning : verbs_tuning_default;
	list_init(&v->devs);
	list_init(&v->conns);
	list_init(&v->control_link);
	list_init(&v->mail);
	for (uint32_t i = 0; i < VERBS_QPN_BUCKETS; i++)
		list_init(&v->by_qpn[i]);
	for (uint32_t i = VERBS_CONNS_MAX; i-- > 0;)
		v->free_slot[v->free_slots++] = (uint16_t)i;
	v->poller = (struct poller){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				    .poll = verbs_mail_poll,
				    .arm = mail_arm};
	if (v->poller.fd < 0) {
		free(v);
		return NULL;
	}
	return v;
}

int verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret, struct err *err)
{
	bool good = !o->passive; /* who only connects opens a device with the first connection */
	struct verbs *v;
	int rc = verbs_probe(err);

	if (rc < 0)
		return rc;
	v = verbs_alloc(r, o);
	if (!v)
		return err_set(err, -ENOMEM, "out of memory");
	rc = verbs_control_join(v, err);
	if (rc < 0) {
		(void)close(v->poller.fd);
		free(v);
		return rc;
	}
	reactor_poller_add(r, &v->poller);
	(void)verbs_mail_poll(&v->poller); /* joins the devices */
	list_for_each (l, &v->devs)
		good |= !container_of(l, struct vdev, link)->failed;
	if (good) {
		*ret = v;
		return 0;
	}
	verbs_free(v);
	return err_set(err, -ENOMEM, "the pool has no slots for RDMA receives");
}

static bool is_busy(const struct verbs *v)
{
	list_for_each (l, &v->devs)
		if (vdev_is_coming(container_of(l, struct vdev, link)))
			return true;
	return v->closing_devs || atomic_load(&v->load);
}

/* The reactor does not run any more: turn by hand until the queues are empty. False: some are not.
 */
static bool drain_all(struct verbs *v)
{
	uint64_t deadline = clock_mono_ns() + VERBS_DRAIN_NS + NS_PER_S;

	while (is_busy(v) && clock_mono_ns() < deadline) {
		verbs_mail_poll(&v->poller);
		list_for_each (l, &v->devs)
			vdev_poll(&container_of(l, struct vdev, link)->poller);
		list_for_each (l, &v->conns) {
			struct vconn *c = container_of(l, struct vconn, link);

			if (!c->closing)
				xconn_close(&c->x);
			else /* nobody's yet: the peer may never confirm the answer */
				vconn_fail(c, -ECANCELED, "closed");
			(void)vconn_step(&c->rop);
		}
		if (is_busy(v))
			(void)poll(NULL, 0, 1);
	}
	return !is_busy(v);
}

bool verbs_free(struct verbs *v)
{
	if (!v)
		return true;
	verbs_unlisten(v);
	if (!drain_all(v))
		return false; /* better lost than written to */
	reactor_poller_del(v->reactor, &v->poller);
	verbs_control_leave(v);
	list_for_each (l, &v->devs) {
		struct vdev *d = container_of(l, struct vdev, link);

		vdev_detach(d);
		vdev_close(d);
		vdev_free(d);
	}
	(void)close(v->poller.fd);
	free(v);
	return true;
}
