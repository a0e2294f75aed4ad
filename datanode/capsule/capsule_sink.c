/* SPDX-License-Identifier: Apache-2.0 */
/* The next node of a chain, or of a copy, by RDMA: it reads pieces from the slots that they landed
 * in here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/capsule/capsule_sink_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define SINK_CLOSE_NS (5 * NS_PER_S)   /* for CLOSED after CANCEL; then the connection goes */
#define SINK_STORE_NS (300 * NS_PER_S) /* until a copy is on the disk of the node */

static void sink_ready(struct capsule_sink *s)
{
	reactor_ready(s->core->reactor, &s->rop);
}
static const struct sink_user_ops *user_of(const struct capsule_sink *s)
{
	return s->base.user->ops;
}

/* ---- progress of a sink ---- */

static void sink_deadline(struct capsule_sink *s, uint64_t ns)
{
	s->deadline_ns = reactor_now_ns(s->core->reactor) + ns;
	if (!s->timer.deadline_ns)
		reactor_timer_set(s->core->reactor, &s->timer, s->deadline_ns);
}

static uint64_t answer_ns(const struct capsule_sink *s)
{
	if (s->copy && s->last_seq >= 0)
		return SINK_STORE_NS;
	return s->read_ns;
}

/* Making the connection comes off the patience for the first answer. */
static uint64_t waited_ns(const struct capsule_sink *s)
{
	const uint64_t ns = reactor_now_ns(s->core->reactor) - s->begun_ns,
		       most = s->read_ns - XFER_NODE_NS * s->hops;

	return ns < most ? ns : most;
}

static void tell_opened(struct capsule_sink *s, int status, const char *bad_link)
{
	s->state = status == DT_SUCCESS ? CS_RUN : CS_BROKEN;
	user_of(s)->opened(s->base.user, status, bad_link);
}

static void sink_broken(struct capsule_sink *s, int rc)
{
	const enum capsule_sink_state was = s->state;

	if (was != CS_WAIT_NEXT_NODE && was != CS_RUN)
		return;
	log_info("op=forward hop=%s: %s", s->hop, err_name(rc));
	s->state = CS_BROKEN;
	if (was == CS_WAIT_NEXT_NODE)
		tell_opened(s, dt_errno_status(rc), s->hop);
	else
		user_of(s)->broken(s->base.user, rc);
}

/* Nobody was asked, as this node has no windows left; or the hop does not answer. */
static int late_rc(const struct capsule_sink *s)
{
	const struct capsule_peer_link *l = capsule_user_link(&s->conn);
	const bool asked = !list_empty(&s->flying) || !s->turn.on;

	return asked || !l || verbs_has_its_share(l->xc) ? -ETIMEDOUT : -ENOBUFS;
}

static void on_timer(struct rtimer *t)
{
	struct capsule_sink *s = container_of(t, struct capsule_sink, timer);
	const bool waits = s->state == CS_WAIT_NEXT_NODE || s->state == CS_CLOSING ||
			   !list_empty(&s->flying) || s->turn.on ||
			   (s->state == CS_RUN && s->copy && s->last_seq >= 0);

	if (reactor_now_ns(s->core->reactor) < s->deadline_ns) {
		reactor_timer_set(s->core->reactor, t, s->deadline_ns);
		return;
	}
	if (!waits || !s->conn.dial)
		return;
	if (s->state == CS_CLOSING)
		capsule_user_hang_up(&s->conn, -ETIMEDOUT);
	else
		sink_broken(s, late_rc(s));
	sink_ready(s);
}

/* Slots of a chain are counted. Those of a copy are filled again as soon as they are sent: that is
 * when the device has closed the windows on them. */
static void piece_sent(struct capsule_sink *s, struct flying *f)
{
	verbs_cover(&f->shown[0], s->copy);
	verbs_cover(&f->shown[1], s->copy);
	if (f->sent || f->open)
		return;
	f->sent = true;
	user_of(s)->sent(s->base.user, f->p);
}

/* Nothing more is said of it. */
static void piece_over(struct capsule_sink *s, struct flying *f)
{
	piece_sent(s, f);
	if (f->open)
		return;
	list_del(&f->link);
	free(f);
}

void csink_window_closed(void *arg, int res)
{
	struct flying *f = arg;
	struct capsule_sink *s = f->of;

	if (res < 0 || --f->open) /* conn_gone() tells of what is lost */
		return;
	piece_over(s, f);
	sink_ready(s);
}

/* Heartbeats are acknowledged when they are the oldest. */
static void ack_heartbeats(struct capsule_sink *s)
{
	static const uint8_t good[DT_ACK_NODES_MAX];

	while (!list_empty(&s->flying)) {
		struct flying *f = container_of(s->flying.next, struct flying, link);

		if (f->wire_seq >= 0)
			return;
		list_del(&f->link);
		user_of(s)->acked(s->base.user, f->seq, good, s->hops);
		free(f);
	}
}

static void on_pulled(struct capsule_sink *s, int64_t seq)
{
	list_for_each (l, &s->flying) {
		struct flying *f = container_of(l, struct flying, link);

		if (f->wire_seq > seq)
			return;
		if (s->copy)
			piece_over(s, f); /* no ack will come */
		else
			piece_sent(s, f);
	}
}

static void on_ack(struct capsule_sink *s, const struct capsule *m)
{
	bool good = true;

	for (uint32_t i = 0; i < m->ack.count; i++)
		good &= m->ack.status[i] == DT_SUCCESS;
	if (s->state != CS_RUN) { /* our CANCEL crossed it: the node will not answer that */
		if (good && m->ack.seqno >= 0 && m->ack.seqno == s->last_seq)
			s->exists = false;
		return;
	}
	if (m->ack.seqno < 0) {
		user_of(s)->acked(s->base.user, SEQ_UNKNOWN, m->ack.status, m->ack.count);
		return;
	}
	on_pulled(s, m->ack.pulled > m->ack.seqno ? m->ack.pulled : m->ack.seqno);
	while (!list_empty(&s->flying)) {
		struct flying *f = container_of(s->flying.next, struct flying, link);

		if (f->wire_seq > m->ack.seqno)
			return;
		list_del(&f->link);
		if (f->wire_seq == s->last_seq)
			s->exists = false; /* the answer to LAST is the last word */
		user_of(s)->acked(s->base.user, f->seq, m->ack.status, m->ack.count);
		free(f);
		ack_heartbeats(s);
	}
}

static void drop_flying(struct capsule_sink *s)
{
	list_for_each (l, &s->flying)
		piece_over(s, container_of(l, struct flying, link));
}

/* Nothing has been sent: on by a stream. */
static void sink_by_stream(struct capsule_sink *s)
{
	s->state = CS_WAIT_CONNECT;
	s->exists = false;
	capsule_user_leave(&s->conn);
	sink_ready(s);
}

/* The node has stored the copy, and said so. */
static void copy_stored(struct capsule_sink *s)
{
	drop_flying(s);
	s->state = CS_BROKEN;
	user_of(s)->broken(s->base.user, 0);
}

static void on_answer(struct capsule_sink *s, const struct capsule *m)
{
	char bad[NET_TEXT_MAX];

	sink_deadline(s, answer_ns(s));
	switch ((enum capsule_type)m->type) {
	case CAPSULE_OPEN_REPLY:
		if (m->open_reply.status != DT_SUCCESS)
			s->exists = false;
		if (s->state != CS_WAIT_NEXT_NODE)
			break;
		/* a node that takes copies by TCP alone */
		if (s->copy && m->open_reply.status == DT_ERROR_UNSUPPORTED) {
			sink_by_stream(s);
			break;
		}
		snprintf(bad, sizeof(bad), "%.*s", (int)m->open_reply.bad_link.len,
			 (const char *)m->open_reply.bad_link.p);
		/* A node that fails without naming one is itself to blame. */
		tell_opened(s, m->open_reply.status,
			    m->open_reply.status == DT_SUCCESS ? ""
			    : *bad                             ? bad
							       : s->hop);
		break;
	case CAPSULE_ACK:
		on_ack(s, m);
		break;
	case CAPSULE_PULLED:
		on_pulled(s, m->pulled.seqno);
		break;
	case CAPSULE_CLOSED:
		s->exists = false;
		if (s->copy && m->closed.status == DT_SUCCESS && s->last_seq >= 0 &&
		    s->state == CS_RUN)
			copy_stored(s);
		else
			sink_broken(s, m->closed.status ? dt_status_errno(m->closed.status) : -EIO);
		break;
	case CAPSULE_OPEN_WRITE:
	case CAPSULE_WRITE:
	case CAPSULE_READ:
	case CAPSULE_READ_REPLY:
	case CAPSULE_CANCEL:
	case CAPSULE_VIEW:
	case CAPSULE_VIEW_REPLY:
	case CAPSULE_VIEW_END:
	case CAPSULE_HEARTBEAT:
	case CAPSULE_ERROR:
		break; /* not answers to a write */
	}
	if (!s->exists)
		drop_flying(s);
	sink_ready(s);
}

/* ---- the connection ---- */

static struct capsule_sink *of_conn(struct capsule_user *u)
{
	return container_of(u, struct capsule_sink, conn);
}

static void conn_up(struct capsule_user *u)
{
	sink_ready(of_conn(u));
}

static bool conn_answer(struct capsule_user *u, const struct capsule *m)
{
	if (of_conn(u)->id != m->request_id)
		return false;
	on_answer(of_conn(u), m);
	return true;
}

static void conn_lost(struct capsule_user *u, int rc)
{
	struct capsule_sink *s = of_conn(u);

	verbs_turn_end(&s->turn);
	if (s->state == CS_WAIT_CONNECT || (s->copy && s->state == CS_WAIT_NEXT_NODE))
		sink_by_stream(s);
	else
		sink_broken(s, rc);
}

static void conn_gone(struct capsule_user *u)
{
	struct capsule_sink *s = of_conn(u);

	s->exists = false;
	list_for_each (l, &s->flying)
		container_of(l, struct flying, link)->open = 0;
	drop_flying(s);
	sink_ready(s);
}

static const struct capsule_user_ops conn_ops = {
	.up = conn_up,
	.answer = conn_answer,
	.lost = conn_lost,
	.gone = conn_gone,
};
/* ---- the stream sink in our place ---- */

static struct capsule_sink *of_proxy(struct sink_user *u)
{
	return container_of(u, struct capsule_sink, proxy);
}
static void proxy_opened(struct sink_user *u, int status, const char *bad_link)
{
	user_of(of_proxy(u))->opened(of_proxy(u)->base.user, status, bad_link);
}
static void proxy_sent(struct sink_user *u, struct piece *p)
{
	user_of(of_proxy(u))->sent(of_proxy(u)->base.user, p);
}
static void proxy_acked(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	user_of(of_proxy(u))->acked(of_proxy(u)->base.user, seq, statuses, n);
}
static void proxy_broken(struct sink_user *u, int rc)
{
	user_of(of_proxy(u))->broken(of_proxy(u)->base.user, rc);
}
static void proxy_closed(struct sink_user *u)
{
	of_proxy(u)->inner = NULL;
	of_proxy(u)->state = CS_DONE;
	sink_ready(of_proxy(u));
}
static const struct sink_user_ops proxy_ops = {
	.opened = proxy_opened,
	.sent = proxy_sent,
	.acked = proxy_acked,
	.broken = proxy_broken,
	.closed = proxy_closed,
};

static void go_by_stream(struct capsule_sink *s)
{
	int rc;

	s->state = CS_STREAM;
	s->proxy.ops = &proxy_ops;
	s->params.waited_ns = waited_ns(s);
	rc = stream_sink_open(s->core, &s->params, &s->proxy, &s->inner);
	if (rc == 0)
		return;
	s->state = CS_WAIT_NEXT_NODE;
	sink_broken(s, rc);
}

/* ---- sending ---- */

static void do_open(struct capsule_sink *s)
{
	struct capsule m = {.type = CAPSULE_OPEN_WRITE, .flags = CAPSULE_WANT_PULLED};
	struct capsule_peer_link *l = capsule_user_link(&s->conn);
	uint8_t *op = NULL;
	size_t len;
	int rc = dtp_write_op_encode(&s->params, &op, &len);

	if (rc == 0) {
		m.open_write.op = capsule_op(op, len);
		m.request_id = s->id = capsule_user_id(&s->conn);
		rc = l ? link_send(l, &m) : -ECONNRESET;
	}
	free(op);
	if (rc < 0) { /* too long for a capsule, or the connection broke: nothing is lost yet */
		sink_by_stream(s);
		return;
	}
	s->state = CS_WAIT_NEXT_NODE;
	s->exists = true;
	sink_deadline(s, answer_ns(s) - waited_ns(s));
}

/* Are there windows for it? Else it waits in line. */
static bool can_send(struct capsule_sink *s, const struct piece *p)
{
	struct capsule_peer_link *l = capsule_user_link(&s->conn);

	if (!l || !p->len)
		return true;
	if (verbs_turn_take(l->xc, &s->turn))
		return true;
	if (!s->turn.on && list_empty(&s->flying))
		sink_deadline(s, answer_ns(s));
	verbs_turn_wait(l->xc, &s->turn);
	return false;
}

static int send_flying(struct capsule_sink *s, struct flying *f)
{
	int rc;

	if (f->p->seq == SEQ_HEARTBEAT) {
		piece_sent(s, f);
		return 0;
	}
	rc = csink_send_piece(s, f);
	verbs_turn_end(&s->turn);
	f->wire_seq = rc ? INT64_MAX : s->next_seq - 1;
	if (f->p->last && !rc)
		s->last_seq = f->wire_seq;
	return rc;
}

static void do_send(struct capsule_sink *s)
{
	const bool waits = !list_empty(&s->flying); /* what is sent now is no sign of life */

	while (s->state == CS_RUN && !list_empty(&s->queue)) {
		struct piece *p = container_of(s->queue.next, struct piece, link);
		struct flying *f;
		int rc = -ENOMEM;

		if (!can_send(s, p))
			break;
		list_del(&p->link);
		f = calloc(1, sizeof(*f));
		if (f) {
			*f = (struct flying){.p = p, .seq = p->seq, .wire_seq = -1, .of = s};
			list_add_tail(&s->flying, &f->link);
			rc = send_flying(s, f);
		} else {
			user_of(s)->sent(s->base.user, p);
		}
		if (rc < 0)
			sink_broken(s, rc);
	}
	if (s->state == CS_RUN)
		ack_heartbeats(s);
	if (!waits && !list_empty(&s->flying))
		sink_deadline(s, answer_ns(s));
}

/* ---- the end ---- */

static void do_close(struct capsule_sink *s)
{
	const struct capsule m = {.type = CAPSULE_CANCEL, .request_id = s->id};
	struct capsule_peer_link *l;
	struct list *p;

	if (s->state == CS_STREAM) {
		if (!s->inner_closed)
			s->inner->ops->close(s->inner);
		s->inner_closed = true;
		return;
	}
	verbs_turn_end(&s->turn);
	while ((p = list_pop(&s->queue)))
		user_of(s)->sent(s->base.user, container_of(p, struct piece, link));
	if (!s->exists)
		drop_flying(s);
	if (s->state < CS_CLOSING && (s->exists || !list_empty(&s->flying)) && s->conn.dial) {
		l = capsule_user_link(&s->conn);
		s->state = CS_CLOSING;
		if (l && s->exists)
			(void)link_send(l, &m);
		sink_deadline(s, SINK_CLOSE_NS);
		reactor_timer_set(s->core->reactor, &s->timer, s->deadline_ns);
	}
	if (!s->exists && list_empty(&s->flying))
		s->state = CS_DONE;
}

static bool sink_step(struct rop *rop)
{
	struct capsule_sink *s = container_of(rop, struct capsule_sink, rop);

	if (s->closing)
		do_close(s);
	else if (s->state == CS_WAIT_CONNECT && !s->conn.dial)
		go_by_stream(s);
	else if (s->state == CS_WAIT_CONNECT && capsule_user_is_up(&s->conn))
		do_open(s);
	else if (s->state == CS_RUN)
		do_send(s);
	return s->state == CS_DONE;
}

static void sink_free(struct rop *rop)
{
	struct capsule_sink *s = container_of(rop, struct capsule_sink, rop);

	verbs_turn_end(&s->turn);
	capsule_user_leave(&s->conn);
	reactor_timer_clear(s->core->reactor, &s->timer);
	s->core->op_count--;
	user_of(s)->closed(s->base.user);
	free(s);
}

static void sink_forward(struct piece_sink *base, struct piece *p)
{
	struct capsule_sink *s = container_of(base, struct capsule_sink, base);

	if (s->inner) {
		s->inner->ops->forward(s->inner, p);
		return;
	}
	list_add_tail(&s->queue, &p->link);
	sink_ready(s);
}

static void sink_close(struct piece_sink *base)
{
	struct capsule_sink *s = container_of(base, struct capsule_sink, base);

	s->closing = true;
	sink_ready(s);
}

static const struct piece_sink_ops capsule_sink_ops = {
	.forward = sink_forward,
	.close = sink_close,
};

/* -EHOSTUNREACH: not to that node, use TCP. */
static int capsule_sink_open(struct engine_core *core, const struct sink_params *params,
			     struct sink_user *user, struct piece_sink **ret)
{
	const struct dn_target *t = &params->write->targets[0];
	struct capsule_sink *s;
	int rc;

	if (params->final_answer || (params->no_answer && !params->confirm))
		return -EHOSTUNREACH;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->conn.ops = &conn_ops;
	rc = capsule_user_join(core->caps, t, &s->conn);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->core = core;
	s->copy = params->no_answer;
	s->base = (struct piece_sink){.ops = &capsule_sink_ops, .user = user};
	s->params = *params;
	s->hops = params->write->target_count;
	s->read_ns = engine_chain_ns(core, params->write);
	s->begun_ns = reactor_now_ns(core->reactor);
	s->last_seq = -1;
	snprintf(s->hop, sizeof(s->hop), "%s:%u", t->ip, t->xfer_port);
	list_init(&s->queue);
	list_init(&s->flying);
	s->timer.fire = on_timer;
	rop_init(&s->rop, sink_step, sink_free);
	s->turn.rop = &s->rop;
	core->op_count++;
	sink_ready(s);
	*ret = &s->base;
	return 0;
}

int sink_open(struct engine_core *core, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret)
{
	int rc = core->caps ? capsule_sink_open(core, params, user, ret) : -EHOSTUNREACH;

	return rc == -EHOSTUNREACH ? stream_sink_open(core, params, user, ret) : rc;
}
