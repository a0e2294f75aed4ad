/* SPDX-License-Identifier: Apache-2.0 */
/* Cached blocks that a client READs itself (docs/design/019-one-sided-reads.md). A view is a window
 * on the copy of a block, for one connection, until its lease ends. VIEW is answered at once: what
 * takes long, making the copy and registering it, is done by the thread of the copies, and the
 * client asks again. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/block/hot_copies.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define TURN_NS NS_PER_S         /* from one look at blocks to the next, at most */
#define IDLE_NS (60 * NS_PER_S)  /* a block that nobody views is let go of */
#define FAILED_NS (5 * NS_PER_S) /* until what failed is tried again; doubles */
#define FAILED_DOUBLED 6         /* so often: to 320 s */
#define SOON_MS 50               /* being made; longer, the longer it takes */
#define LATER_MS 1000            /* no window is spare, or there are too many blocks */
#define NEVER_MS 0
#define CLOSING_NS (5 * NS_PER_S) /* until a window that is being closed costs its connection */

enum hot_state { HOT_COMING, HOT_READY, HOT_FAILED, HOT_LEAVING };

struct hot { /* a block of which this reactor gives views */
	struct list link;
	struct capsule_port *caps;
	struct block_pool *bp;
	int64_t id;
	enum hot_state state;
	struct hot_job job;
	struct rmsg msg;
	/* the job's thread writes these three until msg is there */
	struct hot_copy *copy;
	struct verbs_memory *memory;
	bool refused;                  /* the device does not take the memory */
	struct capsule_conn *asked_by; /* while it is coming; NULL: that one has gone */
	uint32_t views, fails;         /* fails: in a row */
	uint64_t again_ns;             /* when it failed: not before */
	uint64_t used_ns; /* when a view of it was given, or ended; or since when it is so */
};

struct view {
	struct list link; /* conn.views */
	struct capsule_conn *conn;
	struct hot *hot;
	struct verbs_window *window; /* NULL: it is closed, or was revoked */
	struct xremote at;
	uint64_t until_ns, closing_ns; /* closing_ns: since when, once it is closing */
	bool closing;
	struct xop close_op;
};

static uint64_t now_ns(const struct capsule_port *caps)
{
	return reactor_now_ns(caps->core->reactor);
}

/* ---- blocks ---- */

static struct hot *hot_find(struct capsule_port *caps, const struct block_pool *bp, int64_t id)
{
	list_for_each (l, &caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (h->bp == bp && h->id == id)
			return h;
	}
	return NULL;
}

static void hot_drop(struct hot *h)
{
	list_del(&h->link);
	h->caps->hot_count--;
	free(h);
}

static void on_attached(struct rmsg *m)
{
	struct hot *h = container_of(m, struct hot, msg);

	struct capsule_port *caps = h->caps;
	const uint64_t now = now_ns(caps);

	h->state = h->memory ? HOT_READY : HOT_FAILED;
	h->used_ns = now;
	/* to see that there is no room costs nothing */
	h->again_ns = now + (FAILED_NS << (h->job.rc == -ENOSPC ? 0 : h->fails));
	h->fails += h->fails < FAILED_DOUBLED;
	if (h->refused) { /* nor will it take that of other blocks */
		caps->hot_again_ns = now + (FAILED_NS << caps->hot_refusals);
		caps->hot_refusals += caps->hot_refusals < FAILED_DOUBLED;
	}
	if (h->memory)
		h->fails = caps->hot_refusals = 0;
	if (h->asked_by)
		h->asked_by->coming_count--;
	h->asked_by = NULL;
}

/* On the thread of the copies, as detach() is. */
static void attach(struct hot_job *j)
{
	struct hot *h = container_of(j, struct hot, job);
	struct err err = ERR_INIT;

	h->copy = j->copy;
	h->refused = h->copy && verbs_memory_lend(h->caps->verbs, h->copy->p, h->copy->size,
						  &h->memory, &err) < 0;
	if (h->refused) {
		if (!j->again)
			log_info("op=view block=%" PRId64 ": %s", h->id, err.text);
		hot_copy_put(h->copy);
		h->copy = NULL;
	}
	reactor_post(h->caps->core->reactor, &h->msg);
}

static void on_detached(struct rmsg *m)
{
	hot_drop(container_of(m, struct hot, msg));
}

static void detach(struct hot_job *j)
{
	struct hot *h = container_of(j, struct hot, job);

	verbs_memory_free(h->memory);
	hot_copy_put(h->copy);
	h->memory = NULL;
	h->copy = NULL;
	reactor_post(h->caps->core->reactor, &h->msg);
}

static void hot_leave(struct hot *h)
{
	h->job = (struct hot_job){.run = detach};
	h->msg.fn = on_detached;
	h->state = HOT_LEAVING;
	if (!hot_copies_ask(h->caps->core->dn->hot, &h->job))
		h->state = HOT_FAILED; /* the end: capsule_hot_end() */
}

static bool hot_ask(struct hot *h, struct capsule_conn *c)
{
	h->job = (struct hot_job){.run = attach,
				  .again = h->fails || h->caps->hot_refusals,
				  .wants = true,
				  .bp = h->bp,
				  .id = h->id};
	h->msg.fn = on_attached;
	if (!hot_copies_ask(h->caps->core->dn->hot, &h->job))
		return false;
	h->state = HOT_COMING;
	h->used_ns = now_ns(h->caps);
	h->asked_by = c;
	c->coming_count++;
	return true;
}

/* The one that is to give its place to another: what failed, and would be tried again first; else
 * what nobody has had a view of for longest. NULL: each is of use. */
static struct hot *hot_least_used(struct capsule_port *caps)
{
	struct hot *failed = NULL, *idle = NULL;

	list_for_each (l, &caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (h->state == HOT_LEAVING)
			return NULL; /* its place is about to be free */
		if (h->state == HOT_FAILED && !h->copy &&
		    (!failed || h->again_ns < failed->again_ns))
			failed = h;
		if (h->state == HOT_READY && !h->views && (!idle || h->used_ns < idle->used_ns))
			idle = h;
	}
	if (failed)
		return failed;
	return idle && now_ns(caps) >= idle->used_ns + LATER_MS * NS_PER_MS ? idle : NULL;
}

static void hot_make_room(struct capsule_port *caps)
{
	struct hot *h = caps->hot_count < CAPS_HOT_MAX ? NULL : hot_least_used(caps);

	if (h && h->state == HOT_FAILED)
		hot_drop(h);
	else if (h)
		hot_leave(h);
}

/* False: not now. */
static bool hot_new(struct capsule_conn *c, struct block_pool *bp, int64_t id)
{
	struct capsule_port *caps = c->link.caps;
	struct hot *h = NULL;

	hot_make_room(caps);
	if (caps->hot_count < CAPS_HOT_MAX)
		h = calloc(1, sizeof(*h));
	if (!h)
		return false;
	h->caps = caps;
	h->bp = bp;
	h->id = id;
	if (!hot_ask(h, c)) {
		free(h);
		return false;
	}
	list_add_tail(&caps->hot, &h->link);
	caps->hot_count++;
	if (!caps->hot_timer.deadline_ns)
		reactor_timer_set(caps->core->reactor, &caps->hot_timer, now_ns(caps) + TURN_NS);
	return true;
}

/* What is not cached takes no place, and one connection not all of them. */
static bool hot_begin(struct capsule_conn *c, struct hot *h, struct block_pool *bp, int64_t id)
{
	struct capsule_port *caps = c->link.caps;

	if (c->coming_count >= CAPS_COMING_MAX || now_ns(caps) < caps->hot_again_ns ||
	    !hot_copies_has(caps->core->dn->hot, bp, id))
		return false;
	return h ? hot_ask(h, c) : hot_new(c, bp, id);
}

/* ---- views ---- */

static void view_free(struct view *v)
{
	list_del(&v->link);
	v->conn->view_count--;
	v->hot->views--;
	v->hot->used_ns = now_ns(v->hot->caps);
	metric_add(METRIC_DN_VIEWS, (uint64_t)-1);
	free(v);
}

/* Negative: the connection is lost, and capsule_views_lost() will have, or has had, the window. */
static void on_closed(struct xop *op, int res)
{
	struct view *v = container_of(op, struct view, close_op);

	if (res < 0 || !v->window)
		return;
	verbs_window_put(v->window);
	view_free(v);
}

static void view_close(struct view *v)
{
	struct capsule_peer_link *l = &v->conn->link;

	if (v->closing || !l->xc)
		return;
	v->closing = true;
	v->closing_ns = now_ns(l->caps);
	v->close_op.done = on_closed;
	verbs_window_close(l->xc, v->window, &v->close_op);
}

static struct view *view_find(struct capsule_conn *c, const struct hot *h)
{
	list_for_each (l, &c->views)
		if (container_of(l, struct view, link)->hot == h)
			return container_of(l, struct view, link);
	return NULL;
}

static struct view *view_new(struct capsule_conn *c, struct hot *h)
{
	struct verbs_window *w = NULL;
	struct view *v = NULL;

	if (c->view_count < CAPS_VIEWS_MAX)
		w = verbs_window_get(h->memory, c->link.xc);
	if (w)
		v = calloc(1, sizeof(*v));
	if (!v) {
		if (w)
			verbs_window_put(w);
		return NULL;
	}
	v->conn = c;
	v->hot = h;
	v->window = w;
	/* what lies behind the CRCs is zeros */
	v->at = verbs_window_open(c->link.xc, w, h->copy->p,
				  (uint32_t)(h->copy->crc_at + h->copy->crc_len), VERBS_PEER_READS);
	list_add_tail(&c->views, &v->link);
	c->view_count++;
	h->views++;
	metric_add(METRIC_DN_VIEWS, 1);
	return v;
}

void capsule_views_lost(struct capsule_peer_link *l)
{
	struct capsule_conn *c = container_of(l, struct capsule_conn, link);

	list_for_each (i, &c->views) {
		struct view *v = container_of(i, struct view, link);

		if (v->window)
			verbs_window_revoke(v->window);
		v->window = NULL;
	}
}

void capsule_views_free(struct capsule_conn *c)
{
	list_for_each (l, &c->link.caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (h->asked_by == c)
			h->asked_by = NULL;
	}
	list_for_each (l, &c->views)
		view_free(container_of(l, struct view, link));
}

/* ---- leases ---- */

/* A closing may wait behind what the peer keeps from being sent: that takes no more time. */
static void close_ended(struct capsule_conn *c, uint64_t now)
{
	bool lingers = false;

	list_for_each (l, &c->views) {
		struct view *v = container_of(l, struct view, link);

		lingers |= v->closing && now >= v->closing_ns + CLOSING_NS;
		if (now >= v->until_ns)
			view_close(v);
	}
	if (!lingers || !c->link.xc)
		return;
	log_warn("op=view peer=%s: it keeps a window from being closed: the connection ends",
		 c->link.peer);
	link_close(&c->link, -ETIMEDOUT);
}

static uint64_t due_at(const struct view *v)
{
	return v->closing ? v->closing_ns + CLOSING_NS : v->until_ns;
}

/* In a while, and before that when a lease ends or a closing has taken too long. */
static uint64_t next_turn(const struct capsule_port *caps, uint64_t now)
{
	uint64_t at = now + TURN_NS;

	list_for_each (l, &caps->conns) {
		const struct capsule_conn *c = container_of(l, struct capsule_conn, in_caps);

		list_for_each (i, &c->views) {
			const uint64_t due = due_at(container_of(i, struct view, link));

			/* what was due, and is there yet, goes with its connection */
			if (due > now && due < at)
				at = due;
		}
	}
	return at;
}

static void on_turn(struct rtimer *t)
{
	struct capsule_port *caps = container_of(t, struct capsule_port, hot_timer);
	const uint64_t now = now_ns(caps);

	list_for_each (l, &caps->conns)
		close_ended(container_of(l, struct capsule_conn, in_caps), now);
	list_for_each (l, &caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (h->state == HOT_FAILED && !h->copy && now >= h->again_ns + IDLE_NS)
			hot_drop(h);
		else if (h->state == HOT_READY && !h->views &&
			 (h->copy->over || now >= h->used_ns + IDLE_NS))
			hot_leave(h);
	}
	if (!list_empty(&caps->hot))
		reactor_timer_set(caps->core->reactor, t, next_turn(caps, now));
}

/* ---- capsules ---- */

struct asked {
	struct block_pool *bp;
	struct block block;
	uint64_t end;
};

static int asked_for(struct capsule_conn *c, const struct capsule *m, struct asked *ret,
		     struct err *err)
{
	Hd__OpReadBlockProto *op = NULL;
	int rc = pb_unpack(&hd__op_read_block_proto__descriptor, m->view.op.p, m->view.op.len, &op);

	if (rc < 0)
		return err_set(err, rc, "not an OpReadBlockProto");
	rc = dtp_block(c->link.caps->core, op->header->baseheader,
		       (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ}, &ret->block,
		       &ret->bp, err);
	ret->end = op->offset + op->len;
	if (!rc && (op->offset > INT64_MAX || op->len > INT64_MAX))
		rc = err_set(err, -EINVAL, "a range beyond all blocks");
	pb_free(op);
	return rc;
}

static void refuse(struct capsule_conn *c, uint64_t id, int status, uint32_t ms, const char *text)
{
	const struct capsule m = {.type = CAPSULE_VIEW_REPLY,
				  .request_id = id,
				  .view_reply = {{.status = status, .ms = ms}, capsule_text(text)}};

	(void)link_send(&c->link, &m);
}

static void give(struct capsule_conn *c, uint64_t id, struct view *v)
{
	const struct hot_copy *h = v->hot->copy;
	const struct capsule m = {
		.type = CAPSULE_VIEW_REPLY,
		.request_id = id,
		.view_reply = {{.crc_type = (uint8_t)h->crc_type,
				.bytes_per_checksum = h->bytes_per_crc,
				.ms = CAPS_VIEW_MS,
				.rkey = v->at.rkey,
				.data_addr = v->at.addr,
				.crc_addr = v->at.addr + h->crc_at,
				.data_len = (uint32_t)h->block.len,
				.crc_len = h->crc_len}},
	};

	/* not since this turn began: the client counts from when it asked */
	v->until_ns = clock_mono_ns() + CAPS_VIEW_MS * NS_PER_MS;
	v->hot->used_ns = now_ns(c->link.caps);
	atomic_store_explicit(&v->hot->copy->viewed_ns, clock_mono_ns(), memory_order_relaxed);
	metric_add(METRIC_DN_VIEWS_GIVEN, 1);
	(void)link_send(&c->link, &m);
}

/* The bytes that an ordinary READ of this stamp would give, all of them. */
static bool fits(const struct hot *h, const struct asked *q)
{
	return h->copy->block.gs == q->block.gs && q->end <= h->copy->block.len;
}

/* The longer it has been coming, the less often it is worth asking. */
static uint32_t soon_ms(const struct hot *h)
{
	const uint64_t ms = h ? (now_ns(h->caps) - h->used_ns) / NS_PER_MS / 4 : 0;

	return ms < SOON_MS ? SOON_MS : ms < LATER_MS ? (uint32_t)ms : LATER_MS;
}

static void answer(struct capsule_conn *c, uint64_t id, const struct asked *q)
{
	struct capsule_port *caps = c->link.caps;
	struct hot *h = hot_find(caps, q->bp, q->block.id);
	const bool begins =
		!h || (h->state == HOT_FAILED && !h->copy && now_ns(caps) >= h->again_ns);
	struct view *v;

	if ((begins && hot_begin(c, h, q->bp, q->block.id)) || (h && h->state == HOT_COMING)) {
		refuse(c, id, DT_ERROR_UNSUPPORTED, soon_ms(h), "it is being made ready");
		return;
	}
	if (!h || h->state != HOT_READY || h->copy->over) {
		refuse(c, id, DT_ERROR_UNSUPPORTED, LATER_MS, "not now");
		return;
	}
	if (!fits(h, q)) {
		refuse(c, id, DT_ERROR_UNSUPPORTED, NEVER_MS, "it is cached as another one");
		return;
	}
	v = view_find(c, h) ?: view_new(c, h);
	if (!v || v->closing)
		refuse(c, id, DT_ERROR_UNSUPPORTED, LATER_MS, "no window is to be had");
	else
		give(c, id, v);
}

void capsule_view(struct capsule_conn *c, const struct capsule *m)
{
	struct err err = ERR_INIT;
	struct asked q = {0};
	int rc;

	if (!verbs_read_depth(c->link.xc)) {
		link_refuse(&c->link, "one-sided reads were not agreed on");
		return;
	}
	rc = asked_for(c, m, &q, &err);
	if (rc < 0) {
		log_info("op=view peer=%s: %s", c->link.peer, err.text);
		refuse(c, m->request_id, dt_errno_status(rc), NEVER_MS, err.text);
		return;
	}
	answer(c, m->request_id, &q);
}

void capsule_view_end(struct capsule_conn *c, const struct capsule *m)
{
	if (!verbs_read_depth(c->link.xc)) {
		link_refuse(&c->link, "one-sided reads were not agreed on");
		return;
	}
	list_for_each (l, &c->views) {
		struct view *v = container_of(l, struct view, link);

		if (v->at.rkey == m->view_end.rkey)
			view_close(v);
	}
}

/* ---- begin and end ---- */

void capsule_hot_init(struct capsule_port *caps)
{
	list_init(&caps->hot);
	caps->hot_timer.fire = on_turn;
}

/* On the control thread. */
static void on_let_go(void *arg)
{
	atomic_fetch_sub(&((struct capsule_port *)arg)->hot_held, 1);
}

void capsule_hot_end(struct capsule_port *caps)
{
	reactor_timer_clear(caps->core->reactor, &caps->hot_timer);
	list_for_each (l, &caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (!h->memory)
			continue;
		atomic_fetch_add(&caps->hot_held, 1);
		verbs_memory_free_later(h->memory, on_let_go, caps);
		h->memory = NULL;
	}
}

void capsule_hot_free(struct capsule_port *caps)
{
	list_for_each (l, &caps->hot) {
		struct hot *h = container_of(l, struct hot, link);

		if (h->copy)
			hot_copy_put(h->copy);
		hot_drop(h);
	}
}
