/* SPDX-License-Identifier: Apache-2.0 */
/* The connection manager, on the control thread: addresses and routes, queue pairs, requests and
 * answers, until a connection is handed to its reactor; and again at its end. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define RNR_RETRIES 6     /* finite: with credits an RNR is a bug that must show */
#define RNR_TIMER_CODE 12 /* 0.64 ms */
#define READ_DEPTH_MAX 16
#define CM_EVENTS_PER_TURN 32
#define BACKLOG 1024
#define PLAIN_NS (300 * NS_PER_S) /* a peer that was too old may be a new one by then */

/* ---- queue pairs ---- */

static uint32_t lesser(uint32_t a, int b)
{
	return b > 0 && (uint32_t)b < a ? (uint32_t)b : a;
}

static struct ibv_qp_init_attr qp_attr(struct vconn *c, const struct vdev *d)
{
	return (struct ibv_qp_init_attr){
		.qp_context = c,
		.qp_type = IBV_QPT_RC,
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.srq = c->active ? NULL : d->srq,
		.cap = {.max_send_wr = c->sq_depth,
			.max_recv_wr = c->rx_count,
			.max_send_sge = lesser(2, d->attr.max_sge),
			.max_recv_sge = !c->rx_count                   ? 0
					: !c->active && d->payload_max ? 2
								       : 1,
			.max_inline_data = d->inline_max},
	};
}

/* No attribute of a device tells how much it takes inline: what is refused is tried with less, and
 * remembered. */
static int create_qp(struct vconn *c, struct vdev *d)
{
	static const uint32_t less[] = {128, 96, 64, 32, 0};
	struct ibv_pd *pd = c->active ? d->pd_out : d->pd_in;
	struct ibv_qp_init_attr a = qp_attr(c, d);
	int rc = ret_errno(rdma_create_qp(c->id, pd, &a));

	for (size_t i = 0; i < sizeof(less) / sizeof(*less) && rc == -EINVAL; i++) {
		if (less[i] >= d->inline_max)
			continue;
		a = qp_attr(c, d);
		a.cap.max_inline_data = less[i];
		rc = ret_errno(rdma_create_qp(c->id, pd, &a));
		if (rc == 0)
			d->inline_max = less[i];
	}
	c->max_inline = a.cap.max_inline_data;
	return rc;
}

static int make_qp(struct vconn *c, struct err *err)
{
	int rc;
	struct vdev *d = control_dev(c->v, c->id->verbs, &rc, err);
	uint32_t own;

	if (!d)
		return rc;
	own = c->active ? VERBS_ACTIVE_CREDITS : d->srq ? 0 : VERBS_OWN_PASSIVE;
	own = lesser(own, d->attr.max_qp_wr);
	if (!vdev_cqes_admit(d, 1 + own)) { /* one for the drain marker */
		vdev_leave(d);
		return err_set(err, -EBUSY, "the completion queue is full");
	}
	c->cm_dev = d;
	card_watch(c->v->control, c->id);
	c->cqes = 1;
	c->rx_count = own;
	c->sq_depth = lesser(VERBS_SQ_DEPTH, d->attr.max_qp_wr);
	rc = create_qp(c, d);
	if (rc < 0)
		return err_sys(err, rc, "making a queue pair failed");
	if (c->active) { /* the reactor looks at it when the connection is up */
		grant_init(&c->grant, (uint16_t)own);
		c->first_grant = (uint16_t)own;
	}
	rc = own ? vconn_rx_new(c) : 0;
	return rc < 0 ? err_sys(err, rc, "posting receives failed") : 0;
}

/* The CM has opened the queue pair for more than it should (docs/design/002). Nobody has business
 * in the passive side's memory but by windows that are READ through, and its slabs carry no remote
 * rights anyway. */
static int lock_down(struct vconn *c)
{
	struct ibv_qp_attr a = {.min_rnr_timer = RNR_TIMER_CODE,
				.qp_access_flags = IBV_ACCESS_LOCAL_WRITE};

	if (c->active || c->features & VERBS_ONESIDED)
		a.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
	if (c->active && (c->v->opts.peer_may_write || c->v->opts.landing))
		a.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
	return ret_code(ibv_modify_qp(c->id->qp, &a, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS));
}

static void copy_addr(struct net_addr *to, const struct sockaddr *from)
{
	to->len = from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
	memcpy(&to->sa, from, to->len);
}

static void set_ack_timeout(const struct vconn *c)
{
	uint8_t exp = c->v->tuning.ack_exp;

	(void)rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exp, sizeof(exp));
}

/* Before its route is looked for. The acceptor has it from the request. */
static int set_traffic_class(const struct vconn *c)
{
	uint8_t class = (uint8_t)c->v->tuning.traffic_class;

	return c->v->tuning.traffic_class < 0
		       ? 0
		       : ret_errno(rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
						   &class, sizeof(class)));
}

/* ---- the active side ---- */

static uint32_t left_ms(const struct vconn *c)
{
	uint64_t now = clock_mono_ns();
	uint64_t ms = c->connect_deadline_ns > now ? (c->connect_deadline_ns - now) / NS_PER_MS : 0;

	return ms < 1 ? 1 : ms > 60000 ? 60000 : (uint32_t)ms;
}

static void cm_failed(struct vconn *c, const char *what)
{
	const int rc = neg_errno();

	vconn_mail_failed(c, rc == -ENODEV || rc == -ENETUNREACH ? -EHOSTUNREACH : rc, "%s: %s",
			  what, err_name(rc));
}

static void do_connect(struct vconn *c)
{
	c->cm_state = CM_ADDRESS;
	if (rdma_create_id(c->v->control->channel, &c->id, c, RDMA_PS_TCP) < 0)
		cm_failed(c, "no RDMA");
	else if (set_traffic_class(c) < 0)
		cm_failed(c, "dfs.rdma.traffic.class");
	else if (rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&c->x.peer.sa, (int)left_ms(c)) <
		 0)
		cm_failed(c, "no RDMA route");
}

static void on_addr(struct vconn *c)
{
	set_ack_timeout(c);
	c->cm_state = CM_ROUTE;
	if (rdma_resolve_route(c->id, (int)left_ms(c)) < 0)
		vconn_mail_failed(c, -EHOSTUNREACH, "no RDMA route: %s", err_name(neg_errno()));
}

static bool is_plain(const struct verbs *v, const struct net_addr *peer)
{
	for (uint32_t i = 0; i < VERBS_PLAIN; i++)
		if (v->plain[i].until_ns > clock_mono_ns() && v->plain[i].addr.len == peer->len &&
		    !memcmp(&v->plain[i].addr.sa, &peer->sa, peer->len))
			return true;
	return false;
}

/* READs of ours, unless the peer is known not to understand that, or the device posts none. */
static void offer(struct vconn *c)
{
	c->features = is_plain(c->v, &c->x.peer) ? 0 : c->v->opts.features;
	if (c->cm_dev->attr.max_qp_init_rd_atom < 1)
		c->features &= ~(uint32_t)VERBS_ONESIDED;
	if (c->features & VERBS_ONESIDED)
		c->rd_given = (uint8_t)lesser(READ_DEPTH_MAX, c->cm_dev->attr.max_qp_init_rd_atom);
}

/* What became of it. */
static void agree(struct vconn *c, const struct rdma_conn_param *conn)
{
	c->features &= c->peer.features;
	if (c->features & VERBS_ONESIDED && conn->initiator_depth)
		c->rd_max = lesser(c->rd_given, conn->initiator_depth);
	if (!c->rd_max)
		c->features &= ~(uint32_t)VERBS_ONESIDED;
}

static void on_route(struct vconn *c)
{
	struct rdma_conn_param p = {.retry_count = c->v->tuning.retries,
				    .rnr_retry_count = RNR_RETRIES};
	uint8_t hello[VERBS_PRIVATE_MAX];
	struct err err = ERR_INIT;
	struct verbs_hello h;
	int rc = make_qp(c, &err);

	if (rc < 0) {
		vconn_mail_failed(c, rc, "%s", err.text);
		return;
	}
	if (c->cm_dev->attr.max_qp_rd_atom < 1) {
		vconn_mail_failed(c, -ENODEV, "the RDMA device answers no READs");
		return;
	}
	p.responder_resources = (uint8_t)lesser(READ_DEPTH_MAX, c->cm_dev->attr.max_qp_rd_atom);
	offer(c);
	p.initiator_depth = c->rd_given;
	h = vconn_hello(c, p.responder_resources);
	p.private_data = hello;
	p.private_data_len = (uint8_t)c->v->opts.protocol->hello_encode(&h, hello);
	c->cm_state = CM_ANSWER;
	if (rdma_connect(c->id, &p) < 0)
		vconn_mail_failed(c, neg_errno(), "rdma_connect: %s", err_name(neg_errno()));
}

static void on_established(struct vconn *c, const struct rdma_conn_param *conn, const void *data,
			   size_t len)
{
	if (c->active &&
	    (c->v->opts.protocol->hello_decode(data, len, &c->peer) < 0 || !c->peer.credits)) {
		vconn_mail_failed(c, -EPROTO, "the peer's answer is malformed");
		return;
	}
	copy_addr(&c->x.local, rdma_get_local_addr(c->id));
	if (c->active)
		agree(c, conn);
	if (c->active)
		(void)lock_down(c); /* a slower retry at worst; the slabs' own rights hold anyway */
	c->cm_state = CM_UP;
	vconn_mail(c, MAIL_UP);
}

static void on_rejected(struct vconn *c, int status, const void *data, size_t len)
{
	const struct verbs_protocol *p = c->v->opts.protocol;
	const char *text = p->reject_text(data, len);

	if (c->features && p->reject_is_malformed && p->reject_is_malformed(data, len)) {
		const uint32_t i = c->v->plain_next++ % VERBS_PLAIN;

		c->v->plain[i].addr = c->x.peer;
		c->v->plain[i].until_ns = clock_mono_ns() + PLAIN_NS;
		vconn_mail_failed(c, -EAGAIN, "rejected: %s", text);
		return;
	}
	if (*text)
		vconn_mail_failed(c, -ECONNREFUSED, "rejected: %s", text);
	else
		vconn_mail_failed(c, -ECONNREFUSED,
				  status == 8 ? "nothing listens for RDMA at that port"
					      : "rejected by the connection manager (%d)",
				  status);
}

/* ---- the passive side ---- */

static void reject(const struct verbs_protocol *p, struct rdma_cm_id *id, enum verbs_reject why)
{
	uint8_t data[VERBS_PRIVATE_MAX];
	size_t len = p->reject_encode(why, data);

	metric_add(METRIC_RDMA_REJECTS, 1);
	(void)rdma_reject(id, data, (uint8_t)len);
}

/* Decodes the hello of a request. False: it is refused, *ret_why says why. */
static bool request_is_fit(const struct verbs_protocol *p, const struct rdma_conn_param *conn,
			   const void *data, size_t len, struct verbs_hello *ret_peer,
			   enum verbs_reject *ret_why)
{
	const int rc = p->hello_decode(data, len, ret_peer);

	if (rc < 0)
		*ret_why = rc == -EPROTONOSUPPORT ? VERBS_VERSION : VERBS_MALFORMED;
	else if (conn->responder_resources && !(ret_peer->features & VERBS_ONESIDED))
		/* wants to READ from us, and does not say so */
		*ret_why = VERBS_MALFORMED;
	else if (!conn->initiator_depth || !ret_peer->read_depth)
		*ret_why = VERBS_NO_READ;
	else
		return true;
	return false;
}

/* Of those that listen and have receives left the one with the fewest connections; of several such,
 * the one behind the last that was chosen. It has a connection more from now on. */
struct verbs *cm_choose(struct verbs_control *k, const struct ibv_context *ctx,
			enum verbs_reject *ret_why)
{
	struct verbs *best = NULL;
	struct list *from = k->last ? &k->last->control_link : &k->verbs;
	struct list *l = from;
	uint32_t least = UINT32_MAX;

	*ret_why = VERBS_STOPPING;
	do {
		struct verbs *v;
		uint32_t load;

		l = l->next;
		if (l == &k->verbs)
			continue;
		v = container_of(l, struct verbs, control_link);
		if (!v->listening)
			continue;
		load = atomic_load(&v->load);
		*ret_why = VERBS_BUSY;
		if ((v->listener.max_conns && load >= v->listener.max_conns) ||
		    load >= VERBS_CONNS_MAX)
			continue;
		if (!control_has_receives(v, ctx))
			load += VERBS_CONNS_MAX; /* when all are so: it sees to more of them */
		if (load >= least)
			continue;
		best = v;
		least = load;
	} while (l != from);
	if (best) {
		atomic_fetch_add(&best->load, 1);
		k->last = best;
	}
	return best;
}

static void admit_reads(struct vconn *c, const struct rdma_conn_param *conn)
{
	const struct ibv_device_attr *attr = &c->cm_dev->attr;

	c->features = c->peer.features & c->v->opts.accept_features;
	if (vdev_has_windows(attr) && attr->max_qp_rd_atom > 0 && conn->responder_resources)
		c->rd_given = (uint8_t)lesser(lesser(READ_DEPTH_MAX, attr->max_qp_rd_atom),
					      conn->responder_resources);
	if (!c->rd_given)
		c->features &= ~(uint32_t)VERBS_ONESIDED;
}

/* A connection on @id, with its queue pair. NULL: there are no resources for it, and @id is as it
 * was. */
static struct vconn *passive_new(struct verbs *v, struct rdma_cm_id *id,
				 const struct rdma_conn_param *conn, const struct verbs_hello *peer,
				 enum verbs_reject *ret_why)
{
	struct vconn *c = vconn_alloc(v, false);
	struct err err = ERR_INIT;
	int rc;
	uint32_t depth =
		conn->initiator_depth < peer->read_depth ? conn->initiator_depth : peer->read_depth;

	if (!c)
		return NULL;
	c->id = id;
	c->peer = *peer;
	copy_addr(&c->x.local, rdma_get_local_addr(id));
	copy_addr(&c->x.peer, rdma_get_peer_addr(id));
	rc = make_qp(c, &err);
	if (rc < 0 && rc != -EBUSY)
		log_warn("op=rdma: a connection is refused: %s", err.text);
	if (rc < 0)
		goto fail;
	if (depth > (uint32_t)c->cm_dev->attr.max_qp_init_rd_atom)
		depth = (uint32_t)c->cm_dev->attr.max_qp_init_rd_atom;
	*ret_why = depth ? VERBS_BUSY : VERBS_NO_READ;
	if (!depth)
		goto fail;
	c->rd_max = depth;
	admit_reads(c, conn);
	c->connect_deadline_ns = clock_mono_ns() + 5 * NS_PER_S;
	id->context = c;
	return c;
fail:
	if (id->qp)
		rdma_destroy_qp(id);
	vconn_rx_free(c);
	free(c->rx);
	if (c->cm_dev) {
		atomic_fetch_add(&c->cm_dev->cqe_left, (int)(c->cqes + c->rx_count));
		vdev_leave(c->cm_dev);
	}
	free(c);
	return NULL;
}

static void on_request(struct verbs_control *k, struct rdma_cm_id *id,
		       const struct rdma_conn_param *conn, const void *data, size_t len)
{
	const struct verbs_protocol *p;
	enum verbs_reject why = VERBS_BUSY;
	struct verbs_hello peer;
	struct verbs *v = NULL;
	struct vconn *c = NULL;

	pthread_mutex_lock(&k->lock);
	p = k->protocol;
	pthread_mutex_unlock(&k->lock);
	if (request_is_fit(p, conn, data, len, &peer, &why)) {
		pthread_mutex_lock(&k->lock);
		v = cm_choose(k, id->verbs, &why);
		pthread_mutex_unlock(&k->lock);
	}
	if (v) {
		why = VERBS_BUSY;
		c = passive_new(v, id, conn, &peer, &why);
		if (!c)
			atomic_fetch_sub(&v->load, 1);
	}
	if (c) {
		vconn_mail(c, MAIL_ADOPT);
		return;
	}
	reject(p, id, why);
	rdma_destroy_id(id);
}

/* The reactor has taken it and granted receives. */
static void do_accept(struct vconn *c)
{
	struct rdma_conn_param p = {
		.retry_count = c->v->tuning.retries,
		.rnr_retry_count = RNR_RETRIES,
		.initiator_depth = (uint8_t)c->rd_max,
		/* else the queue pair refuses READs of our memory, whatever the key */
		.responder_resources = c->features & VERBS_ONESIDED ? c->rd_given : 0,
	};
	struct verbs_hello h = vconn_hello(c, p.initiator_depth);
	uint8_t hello[VERBS_PRIVATE_MAX];
	int rc;

	rails_tell(c, &h);
	set_ack_timeout(c);
	p.private_data = hello;
	p.private_data_len = (uint8_t)c->v->opts.protocol->hello_encode(&h, hello);
	c->cm_state = CM_ANSWER;
	rc = ret_errno(rdma_accept(c->id, &p));
	if (!rc)
		rc = lock_down(c);
	if (rc < 0)
		vconn_mail_failed(c, rc, "rdma_accept: %s", err_name(rc));
}

/* Under the lock. */
static const struct verbs *who_listens(const struct verbs_control *k)
{
	list_for_each (l, &k->verbs)
		if (container_of(l, struct verbs, control_link)->listening)
			return container_of(l, struct verbs, control_link);
	return NULL;
}

/* Under the lock, so that its removal finds it known. It waits for none of our threads. On one
 * address it is on that device from here on. */
static int listen_locked(struct verbs_control *k, const struct net_addr *a, struct err *err)
{
	struct rdma_cm_id *id = NULL;
	int rc = ret_errno(rdma_create_id(k->channel, &id, NULL, RDMA_PS_TCP));

	if (!rc)
		rc = ret_errno(rdma_bind_addr(id, (struct sockaddr *)(uintptr_t)&a->sa));
	if (!rc && id->verbs)
		rc = vdev_can_accept(id->verbs, err);
	if (!rc)
		rc = ret_errno(rdma_listen(id, BACKLOG));
	if (!rc)
		k->listen_id = id;
	else if (id)
		(void)rdma_destroy_id(id); /* nothing has come over it */
	return rc;
}

int verbs_listen(struct verbs *v, const struct xlistener_opts *o, struct err *err)
{
	struct verbs_control *k = v->control;
	char text[NET_TEXT_MAX];
	int rc = 0;

	assert(v->opts.passive);
	pthread_mutex_lock(&k->lock);
	if (!who_listens(k)) /* else it listens, or will when the device is back */
		rc = listen_locked(k, &o->addr, err);
	if (!rc) {
		k->protocol = v->opts.protocol;
		v->listener = *o;
		v->listening = true;
	}
	pthread_mutex_unlock(&k->lock);
	if (rc && rc != -EPROTONOSUPPORT)
		err_sys(err, rc, "RDMA cannot listen on %s", net_text(&o->addr, text));
	return rc;
}

void verbs_unlisten(struct verbs *v)
{
	struct verbs_control *k = v->control;
	struct rdma_cm_id *id = NULL;

	pthread_mutex_lock(&k->lock);
	v->listening = false;
	if (!who_listens(k)) {
		id = k->listen_id;
		k->listen_id = NULL;
	}
	pthread_mutex_unlock(&k->lock);
	if (id)
		rdma_destroy_id(id); /* waits for the control thread, so not under the lock */
}

void cm_listen_again(struct verbs_control *k)
{
	struct net_addr at = {0};
	char text[NET_TEXT_MAX];
	const struct verbs *v;
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	v = who_listens(k);
	if (v && !k->listen_id) {
		at = v->listener.addr;
		rc = listen_locked(k, &at, NULL);
	}
	pthread_mutex_unlock(&k->lock);
	k->listener_lost = rc < 0;
	if (!at.len || rc)
		return;
	k->look_ns = clock_mono_ns() + VERBS_LOOK_NS;
	log_info("op=rdma listen=%s: it has a device again", net_text(&at, text));
}

/* ---- events ---- */

static void on_event(struct vconn *c, const struct rdma_cm_event *ev, const void *data, size_t len)
{
	switch ((int)ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (c->cm_state == CM_ADDRESS)
			on_addr(c);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (c->cm_state == CM_ROUTE)
			on_route(c);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (c->cm_state == CM_ANSWER)
			on_established(c, &ev->param.conn, data, len);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		vconn_mail_failed(c, -EHOSTUNREACH, "no RDMA device reaches that address");
		break;
	case RDMA_CM_EVENT_REJECTED:
		on_rejected(c, ev->status, data, len);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		vconn_mail_failed(c, -ETIMEDOUT,
				  "no answer from the RDMA connection manager there");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		vconn_mail_failed(c, -ECONNRESET, "the peer closed the connection");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		vconn_mail_failed(c, -ENODEV, "the RDMA device went away");
		break;
	default:
		break; /* ADDR_CHANGE, TIMEWAIT_EXIT, ...: nothing to do */
	}
}

/* librdmacm keeps a device open while an id is on it: the listener's goes now, the others' with
 * their connections. */
static void on_removal(struct verbs_control *k, struct rdma_cm_id *id,
		       const struct ibv_context *ctx)
{
	bool listens;

	card_failed(k, ctx);
	k->look_ns = clock_mono_ns();
	pthread_mutex_lock(&k->lock);
	listens = k->listen_id == id;
	if (listens)
		k->listen_id = NULL;
	pthread_mutex_unlock(&k->lock);
	if (!listens)
		return;
	k->listener_lost = true;
	rdma_destroy_id(id);
}

/* Copy, ack, act: destroying an id with an unacked event would block. The listener's may be gone
 * once its event is acked. */
void cm_events(struct verbs_control *k)
{
	struct rdma_cm_event *ev;

	for (int n = 0; n < CM_EVENTS_PER_TURN && rdma_get_cm_event(k->channel, &ev) == 0; n++) {
		struct vconn *c = ev->id->context;
		struct rdma_cm_event copy = *ev;
		const struct ibv_context *ctx = ev->id->verbs;
		uint8_t data[256];
		size_t len = ev->param.conn.private_data ? ev->param.conn.private_data_len : 0;

		if (len)
			memcpy(data, ev->param.conn.private_data, len);
		rdma_ack_cm_event(ev);
		if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			on_removal(k, copy.id, ctx);
		if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_request(k, copy.id, &copy.param.conn, data, len);
		else if (c) /* else of the listener: nothing we could do about it */
			on_event(c, &copy, data, len);
	}
}

static void do_destroy(struct vconn *c)
{
	if (c->id && c->id->qp)
		rdma_destroy_qp(c->id);
	vconn_rx_free(c);
	if (c->id)
		rdma_destroy_id(c->id);
	c->id = NULL;
	vconn_mail(c, MAIL_DESTROYED); /* and not a word more */
}

void cm_do(struct vconn *c, uint32_t todo)
{
	if (todo & DO_CONNECT)
		do_connect(c);
	if (todo & DO_ACCEPT)
		do_accept(c);
	if (todo & DO_REJECT)
		reject(c->v->opts.protocol, c->id, VERBS_BUSY);
	if (todo & DO_HANG_UP && c->id && c->id->qp)
		(void)rdma_disconnect(c->id);
	if (todo & DO_DESTROY)
		do_destroy(c);
}
