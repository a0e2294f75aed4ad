/* SPDX-License-Identifier: Apache-2.0 */
/* The acceptor's end of an RDMA connection: its streams, by request id, and which of them a capsule
 * is for. A client or the node before this one in a chain is at the other end. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/block/buffers.h"
#include "datanode/capsule/capsule_internal.h"

void capsule_stream_add(struct capsule_conn *c, struct capsule_stream *s, uint64_t id)
{
	s->conn = c;
	s->id = id;
	list_add_tail(&c->streams, &s->link);
	c->stream_count++;
}

static struct capsule_stream *stream_by_id(struct capsule_conn *c, uint64_t id)
{
	list_for_each (l, &c->streams) {
		struct capsule_stream *s = container_of(l, struct capsule_stream, link);

		if (s->id == id)
			return s;
	}
	return NULL;
}

/* ---- requests beyond the streams that a connection may have ---- */

struct waiting {
	struct list link;
	struct capsule m;
	uint8_t op[]; /* the only thing in such a request that is not in @m */
};

static struct capsule_bytes *op_of(struct capsule *m)
{
	return m->type == CAPSULE_READ ? &m->read.op : &m->open_write.op;
}

static struct waiting *waiting_by_id(struct capsule_conn *c, uint64_t id)
{
	list_for_each (l, &c->waiting)
		if (container_of(l, struct waiting, link)->m.request_id == id)
			return container_of(l, struct waiting, link);
	return NULL;
}

static void wait_in_line(struct capsule_conn *c, const struct capsule *m)
{
	struct capsule copy = *m;
	struct capsule_bytes *op = op_of(&copy);
	struct waiting *w = NULL;

	copy.payload = (struct capsule_bytes){0};
	if (c->waiting_count < CAPS_WAITING_MAX)
		w = malloc(sizeof(*w) + op->len);
	if (!w) {
		link_refuse(&c->link, "too many requests wait on one connection");
		return;
	}
	memcpy(w->op, op->p, op->len);
	op->p = w->op;
	w->m = copy;
	list_add_tail(&c->waiting, &w->link);
	c->waiting_count++;
}

static void start_stream(struct capsule_conn *c, const struct capsule *m)
{
	if (m->type == CAPSULE_OPEN_WRITE)
		capsule_write_start(c, m);
	else
		capsule_read_start(c, m);
}

static void waiting_start(struct capsule_conn *c, struct waiting *w)
{
	list_del(&w->link);
	c->waiting_count--;
	start_stream(c, &w->m);
	free(w);
}

static void waiting_drop(struct capsule_conn *c)
{
	struct list *l;

	while ((l = list_pop(&c->waiting)))
		free(container_of(l, struct waiting, link));
	c->waiting_count = 0;
}

/* Who takes no answers could have us keep any number of them. */
static bool has_too_many(struct capsule_conn *c)
{
	uint32_t n = c->link.answers + c->waiting_count, streams = 0;

	if (n + c->stream_count < CAPS_UNANSWERED_MAX)
		return false;
	list_for_each (l, &c->streams)
		streams += container_of(l, struct capsule_stream, link)->id != 0;
	/* those that were begun before their turn have a bound of their own */
	n += streams < CAPS_STREAMS_MAX ? streams : CAPS_STREAMS_MAX;
	if (n >= CAPS_UNANSWERED_MAX)
		link_refuse(&c->link, "too many requests of one connection are not answered");
	return n >= CAPS_UNANSWERED_MAX;
}

static void on_request(struct capsule_conn *c, const struct capsule *m)
{
	if (has_too_many(c))
		return;
	if (stream_by_id(c, m->request_id) || waiting_by_id(c, m->request_id))
		link_refuse(&c->link, "request id in use");
	else if (c->stream_count < CAPS_STREAMS_MAX && list_empty(&c->waiting))
		start_stream(c, m);
	else
		wait_in_line(c, m);
}

/* Who says more of a request than that it is there has not waited for the answer: it is started at
 * once, and answered as any other. */
static void hurry(struct capsule_conn *c, uint64_t id)
{
	struct waiting *w = waiting_by_id(c, id);

	if (w && c->stream_count < 2 * CAPS_STREAMS_MAX)
		waiting_start(c, w);
	else if (w)
		link_refuse(&c->link, "too many streams on one connection");
}

/* ---- messages ---- */

/* A WRITE or CANCEL for a stream that ended meanwhile crossed our answer on the wire. */
static void on_message(struct capsule_conn *c, const struct capsule *m, struct slot *payload)
{
	struct capsule_stream *s;

	switch ((enum capsule_type)m->type) {
	case CAPSULE_OPEN_WRITE:
	case CAPSULE_READ:
		on_request(c, m);
		slot_put(payload);
		return;
	case CAPSULE_WRITE:
		hurry(c, m->request_id);
		s = stream_by_id(c, m->request_id);
		if (!s)
			slot_put(payload);
		else if (!s->is_write || capsule_write_piece(s, m, payload) < 0)
			link_refuse(&c->link, "a piece out of place");
		return;
	case CAPSULE_CANCEL:
		slot_put(payload);
		hurry(c, m->request_id);
		s = stream_by_id(c, m->request_id);
		if (s)
			s->cancel(s, -ECANCELED);
		return;
	case CAPSULE_HEARTBEAT:
		slot_put(payload);
		return;
	case CAPSULE_VIEW:
		slot_put(payload);
		if (!has_too_many(c))
			capsule_view(c, m);
		return;
	case CAPSULE_VIEW_END:
		slot_put(payload);
		capsule_view_end(c, m);
		return;
	case CAPSULE_ERROR:
		slot_put(payload);
		log_info("op=capsule peer=%s: the peer ends the connection: %.*s", c->link.peer,
			 (int)m->closed.text.len, (const char *)m->closed.text.p);
		link_close(&c->link, -ECONNRESET);
		return;
	case CAPSULE_OPEN_REPLY:
	case CAPSULE_ACK:
	case CAPSULE_PULLED:
	case CAPSULE_READ_REPLY:
	case CAPSULE_CLOSED:
	case CAPSULE_VIEW_REPLY:
		slot_put(payload);
		link_refuse(&c->link, "only the acceptor sends this");
		return;
	}
}

static void step_streams(struct capsule_conn *c)
{
	list_for_each (l, &c->streams) {
		struct capsule_stream *s = container_of(l, struct capsule_stream, link);

		if (!s->ready)
			continue;
		s->ready = false;
		if (!s->step(s))
			continue;
		list_del(&s->link);
		c->stream_count--;
		s->free(s);
	}
}

static bool conn_step(struct rop *rop)
{
	struct capsule_conn *c = container_of(rop, struct capsule_conn, rop);
	struct slot *payload;
	struct capsule m;

	while (link_receive(&c->link, &m, &payload))
		on_message(c, &m, payload);
	if (c->link.rc && !c->dropped) {
		c->dropped = true;
		waiting_drop(c);
		list_for_each (l, &c->streams) {
			struct capsule_stream *s = container_of(l, struct capsule_stream, link);

			s->cancel(s, c->link.rc);
		}
	}
	step_streams(c);
	while (c->stream_count < CAPS_STREAMS_MAX && !list_empty(&c->waiting))
		waiting_start(c, container_of(c->waiting.next, struct waiting, link));
	return c->link.gone && list_empty(&c->streams);
}

static void conn_free(struct rop *rop)
{
	struct capsule_conn *c = container_of(rop, struct capsule_conn, rop);

	log_debug("op=rdma peer=%s: closed: %s", c->link.peer, err_name(c->link.rc));
	waiting_drop(c);
	capsule_views_free(c);
	/* a window on a slot of a stream may be open yet, on a connection to the next node */
	pool_budget_end(c->link.caps->core->pool, &c->share.slots);
	pool_budget_end(c->link.caps->core->pool, &c->share.lists);
	list_del(&c->in_caps);
	engine_count_conn(c->link.caps->core, -1);
	free(c);
}

void capsule_accept(void *arg, struct xconn *xc)
{
	struct capsule_port *caps = arg;
	struct capsule_conn *c = calloc(1, sizeof(*c));

	if (!c || caps->stopping) {
		free(c);
		xconn_close(xc);
		return;
	}
	rop_init(&c->rop, conn_step, conn_free);
	list_init(&c->streams);
	list_init(&c->waiting);
	list_init(&c->views);
	link_init(&c->link, caps, &c->rop);
	c->link.closing = capsule_views_lost;
	link_attach(&c->link, xc);
	buffers_conn_init(caps->core, &c->share);
	list_add_tail(&caps->conns, &c->in_caps);
	engine_count_conn(caps->core, 1);
	log_debug("op=rdma peer=%s: accepted", c->link.peer);
	link_ready(&c->link);
}
