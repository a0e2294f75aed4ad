/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA connections begin and end here: rdma_cm events, queue pairs, listening, probing a device. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define ACK_TIMEOUT_EXP 16 /* 4.096 us * 2^16 = 0.27 s a try */
#define RETRIES 7
#define RNR_RETRIES 6     /* finite: with credits an RNR is a bug that must show */
#define RNR_TIMER_CODE 12 /* 0.64 ms */
#define READ_DEPTH_MAX 16
#define CM_EVENTS_PER_TURN 32
#define BACKLOG 128

/* ---- connections ---- */

static void vconn_free(struct rop *op)
{
	free(container_of(op, struct vconn, rop));
}

static void on_timer(struct rtimer *t);

static struct vconn *vconn_new(struct verbs *v, bool active)
{
	struct vconn *c;
	uint32_t slot;

	for (slot = 0; slot < VERBS_CONNS_MAX && v->table[slot]; slot++)
		;
	if (slot == VERBS_CONNS_MAX)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->x.ops = &verbs_ops;
	c->x.reactor = v->reactor;
	c->v = v;
	c->active = active;
	c->slot = (uint16_t)slot;
	c->gen = ++v->gen[slot];
	v->table[slot] = c;
	rop_init(&c->rop, vconn_step, vconn_free);
	c->timer.fire = on_timer;
	list_init(&c->rxq);
	list_init(&c->txq);
	list_init(&c->rdq);
	list_init(&c->qpn_link);
	list_init(&c->tx_link);
	list_add_tail(&v->conns, &c->link);
	v->conn_count++;
	metric_set(METRIC_RDMA_CONNS, v->conn_count);
	return c;
}

/* Everything has come home, or the deadline has passed: after rdma_destroy_qp() the device does not
 * touch our memory for this connection any more. */
void vconn_destroy(struct vconn *c)
{
	struct verbs *v = c->v;
	struct list *l;

	reactor_timer_clear(v->reactor, &c->timer);
	list_del(&c->qpn_link);
	list_del(&c->tx_link);
	if (c->id && c->id->qp)
		rdma_destroy_qp(c->id);
	while (c->sq_tail != c->sq_head) {
		struct vrec rec = c->sq[c->sq_tail++ & (VERBS_SQ_DEPTH - 1)];

		if (rec.txbuf)
			vdev_tx_put(c->dev, rec.txbuf);
		if (rec.op)
			rec.op->done(rec.op, c->error);
	}
	while ((l = list_pop(&c->rxq))) {
		struct vrx *rx = container_of(l, struct vrx, link);

		rx->conn = NULL;
		if (rx->shared)
			vrx_post(rx);
	}
	slot_put(c->payload);
	vconn_rx_free(c);
	if (c->dev) {
		c->dev->cqe_left += VERBS_SQ_DEPTH + c->rx_count;
		if (!c->active)
			c->dev->srq_left += c->grant.initial;
	}
	if (c->id)
		rdma_destroy_id(c->id); /* every event of it is acked: cm_poll() copies and acks */
	v->table[c->slot] = NULL;
	list_del(&c->link);
	if (c->x.gone)
		c->x.gone(&c->x);
	v->conn_count--;
	metric_set(METRIC_RDMA_CONNS, v->conn_count);
}

void vconn_start_timer(struct vconn *c)
{
	uint64_t at = UINT64_MAX;
	bool sending = c->awaited || !list_empty(&c->txq) || !list_empty(&c->rdq);

	if (c->state == VC_WAIT_FLUSH)
		at = c->drain_deadline_ns;
	else if (c->state != VC_UP)
		at = c->connect_deadline_ns;
	else {
		if (c->recv_op && c->x.recv_deadline_ns)
			at = c->x.recv_deadline_ns;
		if (sending && c->x.send_deadline_ns && c->x.send_deadline_ns < at)
			at = c->x.send_deadline_ns;
		if (!c->beat && c->spoke_ns + VERBS_HEARTBEAT_NS < at)
			at = c->spoke_ns + VERBS_HEARTBEAT_NS;
		if (c->heard_ns + VERBS_PATIENCE_NS < at)
			at = c->heard_ns + VERBS_PATIENCE_NS;
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
	bool sending = c->awaited || !list_empty(&c->txq) || !list_empty(&c->rdq);
	struct xop *op = c->recv_op;

	if (c->state == VC_WAIT_FLUSH) {
		if (now >= c->drain_deadline_ns)
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
	vconn_start_timer(c);
}

/* ---- queue pairs ---- */

static int make_qp(struct vconn *c, struct err *err)
{
	struct verbs *v = c->v;
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC};
	uint32_t cqes = VERBS_SQ_DEPTH + (c->active ? VERBS_ACTIVE_CREDITS : 0);
	int rc = vdev_get(v, c->id->verbs, &c->dev, err);

	if (rc < 0)
		return rc;
	if (c->dev->cqe_left < cqes) {
		c->dev = NULL;
		return err_set(err, -EBUSY, "the completion queue is full");
	}
	c->dev->cqe_left -= cqes;
	c->rx_count = c->active ? VERBS_ACTIVE_CREDITS : 0;
	a.send_cq = a.recv_cq = c->dev->cq;
	a.srq = c->active ? NULL : c->dev->srq;
	a.cap.max_send_wr = VERBS_SQ_DEPTH;
	a.cap.max_recv_wr = c->active ? VERBS_ACTIVE_CREDITS : 0;
	a.cap.max_send_sge = 2;
	a.cap.max_recv_sge = c->active ? 1 : 0;
	a.cap.max_inline_data = VERBS_INLINE_WANTED;
	rc = ret_errno(rdma_create_qp(c->id, c->active ? c->dev->pd_out : c->dev->pd_in, &a));
	if (rc < 0)
		return err_sys(err, rc, "making a queue pair failed");
	c->max_inline = a.cap.max_inline_data;
	list_add_tail(&v->by_qpn[c->id->qp->qp_num % VERBS_QPN_BUCKETS], &c->qpn_link);
	if (c->active) {
		rc = vconn_rx_new(c);
		if (rc < 0)
			return err_sys(err, rc, "posting receives failed");
	}
	return 0;
}

static struct verbs_hello my_hello(const struct vconn *c, uint8_t read_depth)
{
	return (struct verbs_hello){.credits = c->grant.granted,
				    .message_max = VERBS_MESSAGE_MAX,
				    .payload_max = c->active ? 0 : VERBS_PAYLOAD_MAX,
				    .read_depth = read_depth,
				    .role = c->active ? c->v->opts.role : c->v->opts.accept_role};
}

/* The peer has spoken: what it takes, and how much of it. */
static void meet(struct vconn *c, const struct verbs_hello *peer)
{
	c->peer = *peer;
	credit_init(&c->credit, peer->credits, VERBS_CREDITS_MAX);
	c->x.max_message =
		peer->message_max < VERBS_MESSAGE_MAX ? peer->message_max : VERBS_MESSAGE_MAX;
}

/* The CM has opened the queue pair for more than it should (docs/design/002). Nobody has business
 * in the passive side's memory, and its slabs carry no remote rights anyway. */
static int lock_down(struct vconn *c)
{
	struct ibv_qp_attr a = {.min_rnr_timer = RNR_TIMER_CODE,
				.qp_access_flags = IBV_ACCESS_LOCAL_WRITE};

	if (c->active)
		a.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
	if (c->active && (c->v->opts.peer_may_write || c->v->opts.landing))
		a.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
	return ret_code(ibv_modify_qp(c->id->qp, &a, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS));
}

static void note_addresses(struct vconn *c)
{
	const struct sockaddr *local = rdma_get_local_addr(c->id),
			      *peer = rdma_get_peer_addr(c->id);

	c->x.local.len = c->x.peer.len = sizeof(struct sockaddr_in);
	if (local->sa_family == AF_INET6)
		c->x.local.len = c->x.peer.len = sizeof(struct sockaddr_in6);
	memcpy(&c->x.local.sa, local, c->x.local.len);
	memcpy(&c->x.peer.sa, peer, c->x.peer.len);
}

/* ---- the active side ---- */

static void set_ack_timeout(struct rdma_cm_id *id)
{
	uint8_t exp = ACK_TIMEOUT_EXP;

	(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exp, sizeof(exp));
}

static uint32_t left_ms(const struct vconn *c)
{
	uint64_t now = clock_mono_ns();
	uint64_t ms = c->connect_deadline_ns > now ? (c->connect_deadline_ns - now) / NS_PER_MS : 0;

	return ms < 1 ? 1 : ms > 60000 ? 60000 : (uint32_t)ms;
}

static void on_addr(struct vconn *c)
{
	set_ack_timeout(c->id);
	c->state = VC_WAIT_ROUTE;
	if (rdma_resolve_route(c->id, (int)left_ms(c)) < 0)
		vconn_fail(c, -EHOSTUNREACH, "no RDMA route: %s", err_name(neg_errno()));
}

static void on_route(struct vconn *c)
{
	struct rdma_conn_param p = {.retry_count = RETRIES, .rnr_retry_count = RNR_RETRIES};
	uint8_t hello[VERBS_PRIVATE_MAX];
	struct err err = ERR_INIT;
	struct verbs_hello h;
	int rc = make_qp(c, &err);

	if (rc < 0) {
		vconn_fail(c, rc, "%s", err.text);
		return;
	}
	grant_init(&c->grant, VERBS_ACTIVE_CREDITS);
	p.responder_resources = c->dev->attr.max_qp_rd_atom < READ_DEPTH_MAX
					? (uint8_t)c->dev->attr.max_qp_rd_atom
					: READ_DEPTH_MAX;
	h = my_hello(c, p.responder_resources);
	p.private_data = hello;
	p.private_data_len = (uint8_t)c->v->opts.protocol->hello_encode(&h, hello);
	c->state = VC_WAIT_ACCEPT;
	if (rdma_connect(c->id, &p) < 0)
		vconn_fail(c, neg_errno(), "rdma_connect: %s", err_name(neg_errno()));
}

static void on_established(struct vconn *c, const void *data, size_t len)
{
	struct xop *op = c->connect_op;
	struct verbs_hello peer;

	if (c->active) {
		if (c->v->opts.protocol->hello_decode(data, len, &peer) < 0 || !peer.credits) {
			vconn_fail(c, -EPROTO, "the peer's answer is malformed");
			return;
		}
		meet(c, &peer);
	}
	note_addresses(c);
	if (c->active)
		(void)lock_down(c); /* a slower retry at worst; the slabs' own rights hold anyway */
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
}

static void on_rejected(struct vconn *c, int status, const void *data, size_t len)
{
	const char *text = c->v->opts.protocol->reject_text(data, len);

	if (*text)
		vconn_fail(c, -ECONNREFUSED, "rejected: %s", text);
	else
		vconn_fail(c, -ECONNREFUSED,
			   status == 8 ? "nothing listens for RDMA at that port"
				       : "rejected by the connection manager (%d)",
			   status);
}

int verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns, struct xop *op,
		  struct xconn **ret)
{
	struct vconn *c;
	int rc;

	assert(v->opts.active);
	c = vconn_new(v, true);
	if (!c)
		return -ENOMEM;
	c->connect_op = op;
	c->connect_deadline_ns = deadline_ns;
	c->x.peer = *to;
	rc = ret_errno(rdma_create_id(v->channel, &c->id, c, RDMA_PS_TCP));
	if (!rc)
		rc = ret_errno(rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&c->x.peer.sa,
						 (int)left_ms(c)));
	if (rc < 0) {
		c->connect_op = NULL;
		vconn_destroy(c);
		free(c);
		return rc == -ENODEV || rc == -ENETUNREACH ? -EHOSTUNREACH : rc;
	}
	vconn_start_timer(c);
	*ret = &c->x;
	return 0;
}

/* ---- the passive side ---- */

static void reject(struct verbs *v, struct rdma_cm_id *id, enum verbs_reject why)
{
	uint8_t data[VERBS_PRIVATE_MAX];
	size_t len = v->opts.protocol->reject_encode(why, data);

	metric_add(METRIC_RDMA_REJECTS, 1);
	(void)rdma_reject(id, data, (uint8_t)len);
	rdma_destroy_id(id);
}

/* Many credits while there are many, fewer as connections come; 0: none left. */
static uint16_t first_grant(const struct vdev *d)
{
	uint32_t most = d->v->opts.credits ? d->v->opts.credits : 32;
	uint32_t share = d->srq_left / 8;

	if (d->srq_left < 8)
		return 0;
	share = share < 4 ? 4 : share;
	return (uint16_t)(share < most ? share : most);
}

/* Decodes the hello of a request. False: it is refused, *ret_why says why. */
static bool request_is_fit(const struct verbs *v, const struct rdma_conn_param *conn,
			   const void *data, size_t len, struct verbs_hello *ret_peer,
			   enum verbs_reject *ret_why)
{
	const int rc = v->opts.protocol->hello_decode(data, len, ret_peer);

	if (rc < 0)
		*ret_why = rc == -EPROTONOSUPPORT ? VERBS_VERSION : VERBS_MALFORMED;
	else if (conn->responder_resources) /* wants to READ from us */
		*ret_why = VERBS_MALFORMED;
	else if (!conn->initiator_depth || !ret_peer->read_depth)
		*ret_why = VERBS_NO_READ;
	else if (v->stopping)
		*ret_why = VERBS_STOPPING;
	else if (v->listener.max_conns && v->conn_count >= v->listener.max_conns)
		*ret_why = VERBS_BUSY;
	else
		return true;
	return false;
}

/* A connection on @id, with its queue pair and the credits of its peer. NULL: there are no
 * resources for it, and @id is as it was. */
static struct vconn *passive_new(struct verbs *v, struct rdma_cm_id *id)
{
	struct vconn *c = vconn_new(v, false);
	struct err err = ERR_INIT;
	int rc;

	if (!c)
		return NULL;
	c->id = id;
	id->context = c;
	c->state = VC_WAIT_ESTABLISHED;
	c->closing = true; /* nobody owns it until it is announced */
	rc = make_qp(c, &err);
	if (!rc) {
		grant_init(&c->grant, first_grant(c->dev));
		c->dev->srq_left -= c->grant.initial;
	}
	if (!rc && c->grant.initial)
		return c;
	c->id = NULL;
	if (id->qp) {
		list_del(&c->qpn_link);
		rdma_destroy_qp(id);
	}
	vconn_destroy(c);
	free(c);
	return NULL;
}

static void on_request(struct verbs *v, struct rdma_cm_id *id, const struct rdma_conn_param *conn,
		       const void *data, size_t len)
{
	struct rdma_conn_param p = {.retry_count = RETRIES, .rnr_retry_count = RNR_RETRIES};
	uint8_t hello[VERBS_PRIVATE_MAX];
	enum verbs_reject why = VERBS_BUSY;
	struct verbs_hello peer, h;
	struct vconn *c = NULL;
	int rc;

	if (request_is_fit(v, conn, data, len, &peer, &why))
		c = passive_new(v, id);
	if (!c) {
		reject(v, id, why);
		return;
	}
	set_ack_timeout(id);
	meet(c, &peer);
	c->rd_max =
		conn->initiator_depth < peer.read_depth ? conn->initiator_depth : peer.read_depth;
	if (c->rd_max > (uint32_t)c->dev->attr.max_qp_init_rd_atom)
		c->rd_max = (uint32_t)c->dev->attr.max_qp_init_rd_atom;
	p.initiator_depth = (uint8_t)c->rd_max;
	/* the queue pair refuses READs of our memory, whatever the key */
	p.responder_resources = 0;
	h = my_hello(c, p.initiator_depth);
	p.private_data = hello;
	p.private_data_len = (uint8_t)v->opts.protocol->hello_encode(&h, hello);
	c->connect_deadline_ns = clock_mono_ns() + 5 * NS_PER_S;
	vconn_start_timer(c);
	rc = ret_errno(rdma_accept(id, &p));
	if (!rc)
		rc = lock_down(c);
	if (rc < 0)
		vconn_fail(c, rc, "rdma_accept: %s", err_name(rc));
}

int verbs_listen(struct verbs *v, const struct xlistener_opts *o, struct err *err)
{
	char text[NET_TEXT_MAX];
	int rc = ret_errno(rdma_create_id(v->channel, &v->listen_id, NULL, RDMA_PS_TCP));

	assert(v->opts.passive);
	v->listener = *o;
	if (!rc)
		rc = ret_errno(
			rdma_bind_addr(v->listen_id, (struct sockaddr *)(uintptr_t)&o->addr.sa));
	if (!rc)
		rc = ret_errno(rdma_listen(v->listen_id, BACKLOG));
	if (rc < 0) {
		err_sys(err, rc, "RDMA cannot listen on %s", net_text(&o->addr, text));
		verbs_unlisten(v);
	}
	return rc;
}

void verbs_unlisten(struct verbs *v)
{
	v->stopping = true;
	if (v->listen_id)
		rdma_destroy_id(v->listen_id);
	v->listen_id = NULL;
}

/* ---- events ---- */

static void on_event(struct verbs *v, const struct rdma_cm_event *ev, const void *data, size_t len)
{
	struct vconn *c = ev->id->context;

	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(v, ev->id, &ev->param.conn, data, len);
		return;
	}
	if (!c)
		return; /* of the listener: nothing we could do about it */
	switch ((int)ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (c->state == VC_WAIT_ADDRESS)
			on_addr(c);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (c->state == VC_WAIT_ROUTE)
			on_route(c);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (c->state == VC_WAIT_ACCEPT || c->state == VC_WAIT_ESTABLISHED) {
			c->closing = false;
			on_established(c, data, len);
		}
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		vconn_fail(c, -EHOSTUNREACH, "no RDMA device reaches that address");
		break;
	case RDMA_CM_EVENT_REJECTED:
		on_rejected(c, ev->status, data, len);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		vconn_fail(c, -ETIMEDOUT, "no answer from the RDMA connection manager there");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		vdev_drain(c->dev); /* what the peer said before it closed */
		vconn_fail(c, -ECONNRESET, "the peer closed the connection");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		vconn_fail(c, -ENODEV, "the RDMA device went away");
		break;
	default:
		break; /* ADDR_CHANGE, TIMEWAIT_EXIT, ...: nothing to do */
	}
}

/* Copy, ack, act: destroying an id with an unacked event would block. */
static int cm_poll(struct poller *p)
{
	struct verbs *v = container_of(p, struct verbs, poller);
	struct rdma_cm_event *ev;
	int n = 0;

	while (n < CM_EVENTS_PER_TURN && rdma_get_cm_event(v->channel, &ev) == 0) {
		struct rdma_cm_event copy = *ev;
		uint8_t data[256];
		size_t len = ev->param.conn.private_data ? ev->param.conn.private_data_len : 0;

		if (len)
			memcpy(data, ev->param.conn.private_data, len);
		rdma_ack_cm_event(ev);
		on_event(v, &copy, data, len);
		n++;
	}
	return n;
}

static int cm_arm(struct poller *p)
{
	(void)p;
	return 0; /* the channel is readable whenever there is an event */
}

/* ---- start and end ---- */

int verbs_probe(struct err *err)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (list)
		ibv_free_device_list(list);
	if (n > 0)
		return 0;
	err_set(err, -ENODEV, "no RDMA device on this machine (/sys/class/infiniband is empty)");
	(void)err_cure(
		err,
		"install the card's driver, or `rdma link add rxe0 type rxe netdev IF` for soft RoCE");
	return -ENODEV;
}

int verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret, struct err *err)
{
	struct verbs *v;
	int rc = verbs_probe(err);

	if (rc < 0)
		return rc;
	v = calloc(1, sizeof(*v));
	if (!v)
		return err_set(err, -ENOMEM, "out of memory");
	v->reactor = r;
	v->opts = *o;
	list_init(&v->devs);
	list_init(&v->conns);
	for (uint32_t i = 0; i < VERBS_QPN_BUCKETS; i++)
		list_init(&v->by_qpn[i]);
	v->channel = rdma_create_event_channel();
	if (!v->channel) {
		rc = err_sys(err, neg_errno(), "cannot open the RDMA connection manager");
		err_cure(err,
			 "modprobe rdma_ucm, and see that /dev/infiniband/rdma_cm can be opened");
		free(v);
		return rc;
	}
	(void)fcntl(v->channel->fd, F_SETFL, O_NONBLOCK);
	v->poller = (struct poller){.fd = v->channel->fd, .poll = cm_poll, .arm = cm_arm};
	reactor_poller_add(r, &v->poller);
	*ret = v;
	return 0;
}

/* The reactor does not run any more: turn by hand until the queues are empty. */
static void drain_all(struct verbs *v)
{
	uint64_t deadline = clock_mono_ns() + VERBS_DRAIN_NS;

	while (v->conn_count && clock_mono_ns() < deadline + NS_PER_S) {
		cm_poll(&v->poller);
		list_for_each (l, &v->devs)
			vdev_poll(&container_of(l, struct vdev, link)->poller);
		list_for_each (l, &v->conns) {
			struct vconn *c = container_of(l, struct vconn, link);

			if (!c->closing)
				xconn_close(&c->x);
			if (vconn_step(&c->rop)) {
				list_del(&c->rop.ready_link);
				vconn_free(&c->rop);
			}
		}
		if (v->conn_count)
			(void)poll(NULL, 0, 1);
	}
}

void verbs_free(struct verbs *v)
{
	if (!v)
		return;
	verbs_unlisten(v);
	drain_all(v);
	reactor_poller_del(v->reactor, &v->poller);
	list_for_each (l, &v->devs)
		vdev_free(container_of(l, struct vdev, link));
	rdma_destroy_event_channel(v->channel);
	free(v);
}
