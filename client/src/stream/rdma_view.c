/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/rdma_view.h"

#include <stdlib.h>
#include <string.h>

#include "client/src/stream/rdma_internal.h"
#include "common/base/block.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"

/* For a READ that was posted to be over: a device repeats a packet for some 2 s (017). */
#define MARGIN_NS (3 * NS_PER_S)
#define AGAIN_LEAST_NS (10 * NS_PER_MS)
#define NOT_NS (60 * NS_PER_S)    /* the node will not */
#define LIAR_NS (300 * NS_PER_S)  /* it is wrong about what it gives */
#define SILENT_NS (10 * NS_PER_S) /* an answer that did not come is not waited for any more */

struct rview {              /* of one block */
	struct list link;   /* rconn.views; not linked: only those who READ know it */
	struct rconn *conn; /* counted */
	uint32_t refs;      /* the list's, READs under way, a capsule on its way */
	char pool[BLOCK_POOL_ID_MAX];
	uint64_t id, gs;
	struct capsule_view at;
	uint64_t until_ns, half_ns;  /* for READs; to be asked again behind the latter */
	uint64_t used_ns, again_ns;  /* again_ns: not asked before */
	uint64_t asked_ns, asked_as; /* the VIEW that is not answered; 0: none is */
	uint64_t wrong_until_ns;     /* its bytes were wrong: it is not used, nor asked for */
	struct rsend send;           /* last: its buffer is large */
};

static void view_put(struct rview *v)
{
	struct rconn *c = v->conn;

	if (--v->refs)
		return;
	free(v);
	rdma_conn_put(c);
}

static void view_drop(struct rview *v)
{
	list_del(&v->link);
	v->conn->view_count--;
	v->until_ns = 0;
	view_put(v);
}

static void on_sent(struct rsend *s)
{
	view_put(container_of(s, struct rview, send));
}

static bool say(struct rview *v, struct capsule *m, uint64_t id)
{
	struct rcall as = {.conn = v->conn, .id = id};

	v->refs++;
	v->send.sent = on_sent;
	if (rdma_send(&as, &v->send, m) == 0)
		return true;
	v->refs--;
	return false;
}

/* ---- nodes that are not to be asked ---- */

static bool is_liar(const struct rconn *c)
{
	return c->rdma->liars[rdma_liar_slot(&c->addr)] > clock_mono_ns();
}

static void note_liar(struct rconn *c)
{
	char text[NET_TEXT_MAX];

	c->rdma->liars[rdma_liar_slot(&c->addr)] = clock_mono_ns() + LIAR_NS;
	log_warn("op=view node=%s: it refuses READs that it has allowed: none for %llu s",
		 net_text(&c->addr, text), LIAR_NS / NS_PER_S);
}

/* ---- views ---- */

static struct rview *find(struct rconn *c, const Hd__ExtendedBlockProto *b)
{
	list_for_each (l, &c->views) {
		struct rview *v = container_of(l, struct rview, link);

		if (v->id == b->blockid && v->gs == b->generationstamp &&
		    !strcmp(v->pool, b->poolid))
			return v;
	}
	return NULL;
}

/* The node need not keep it for us. */
static void give_up(struct rview *v)
{
	struct capsule m = {.type = CAPSULE_VIEW_END, .view_end = {v->at.rkey}};

	/* behind the lease that key may be the one of another view */
	if (clock_mono_ns() < v->until_ns && !v->send.busy)
		(void)say(v, &m, 0);
	view_drop(v);
}

/* Not that of which the bytes were wrong, as nothing else remembers it. Nor what is asked for: the
 * node would keep what is nobody's, and to give that back, unasked, could take it from a view of
 * the same block that is asked for by then. */
static bool may_go(const struct rview *v, uint64_t now)
{
	const bool asked = v->asked_as && now <= v->asked_ns + SILENT_NS;

	return v->refs == 1 && !asked && now >= v->wrong_until_ns;
}

static void make_room(struct rconn *c)
{
	const uint64_t now = clock_mono_ns();
	struct rview *oldest = NULL;

	if (c->view_count < RDMA_VIEWS_MAX)
		return;
	list_for_each (l, &c->views) {
		struct rview *v = container_of(l, struct rview, link);

		if (may_go(v, now) && (!oldest || v->used_ns < oldest->used_ns))
			oldest = v;
	}
	if (oldest)
		give_up(oldest);
}

static struct rview *view_new(struct rconn *c, const Hd__ExtendedBlockProto *b)
{
	const size_t pool_len = strlen(b->poolid);
	struct rview *v;

	make_room(c);
	if (c->view_count >= RDMA_VIEWS_MAX || pool_len >= BLOCK_POOL_ID_MAX)
		return NULL;
	v = malloc(sizeof(*v));
	if (!v)
		return NULL;
	memset(v, 0, offsetof(struct rview, send.buf));
	memcpy(v->pool, b->poolid, pool_len + 1);
	v->id = b->blockid;
	v->gs = b->generationstamp;
	v->refs = 1;
	v->conn = c;
	c->refs++;
	c->view_count++;
	list_add_tail(&c->views, &v->link);
	return v;
}

static void ask(struct rview *v, const struct rview_ask *a, uint64_t now)
{
	struct capsule m = {.type = CAPSULE_VIEW};
	uint8_t *op = NULL;
	size_t len = 0;

	if (v->send.busy || a->pack(a->arg, &op, &len) < 0)
		return;
	m.view.op = (struct capsule_bytes){op, (uint32_t)len};
	v->asked_as = v->conn->next_id++;
	v->asked_ns = now;
	if (!say(v, &m, v->asked_as)) { /* it does not fit, or the connection is lost */
		v->asked_as = 0;
		v->again_ns = now + NOT_NS;
	}
	free(op);
}

/* How many READs its connection takes; 0: it takes none. */
static uint32_t depth_of(const struct rconn *c)
{
	return c->state == RC_UP && c->rdma->onesided ? verbs_read_depth(c->x) : 0;
}

struct rview *rdma_view_get(struct rcall *call, const struct rview_ask *a)
{
	struct rconn *c = call->conn;
	const uint64_t now = clock_mono_ns();
	struct rview *v;

	if (!depth_of(c) || is_liar(c))
		return NULL;
	v = find(c, a->block) ?: view_new(c, a->block);
	if (!v || now < v->wrong_until_ns)
		return NULL;
	v->used_ns = now;
	if (v->asked_as && now > v->asked_ns + SILENT_NS)
		v->asked_as = 0;
	if (!v->asked_as && now >= v->again_ns && now >= v->half_ns)
		ask(v, a, now);
	return now < v->until_ns ? v : NULL;
}

const struct capsule_view *rdma_view_of(const struct rview *v)
{
	return &v->at;
}

void rdma_view_distrust(struct rcall *call, const Hd__ExtendedBlockProto *block)
{
	struct rview *v = call->conn->state == RC_UP ? find(call->conn, block) : NULL;

	if (!v)
		return;
	v->until_ns = 0;
	v->wrong_until_ns = clock_mono_ns() + LIAR_NS;
}

void rdma_view_reply(struct rconn *c, const struct capsule *m)
{
	const struct capsule_view *at = &m->view_reply.v;
	struct rview *v = NULL;
	uint64_t now, lease_ns = at->ms * NS_PER_MS;

	list_for_each (l, &c->views)
		if (container_of(l, struct rview, link)->asked_as == m->request_id)
			v = container_of(l, struct rview, link);
	if (!v || m->type != CAPSULE_VIEW_REPLY)
		return;
	now = clock_mono_ns();
	v->asked_as = 0;
	if (at->status) {
		v->again_ns = now + (!lease_ns                   ? NOT_NS
				     : lease_ns < AGAIN_LEAST_NS ? AGAIN_LEAST_NS
								 : lease_ns);
		return;
	}
	v->at = *at;
	v->until_ns = lease_ns > MARGIN_NS ? v->asked_ns + lease_ns - MARGIN_NS : 0;
	v->half_ns = v->until_ns ? v->asked_ns + (lease_ns - MARGIN_NS) / 2 : 0;
	v->again_ns = v->until_ns ? now + AGAIN_LEAST_NS : now + NOT_NS;
}

void rdma_views_lost(struct rconn *c)
{
	list_for_each (l, &c->views)
		view_drop(container_of(l, struct rview, link));
}

/* ---- READs ---- */

bool rdma_view_has_room(const struct rview *v, uint32_t n)
{
	return v->conn->reads + n <= depth_of(v->conn);
}

/* An access error is the node's word against itself. */
static void on_read(struct xop *op, int res)
{
	struct rview_read *q = container_of(op, struct rview_read, op);
	struct rview *v = q->view;

	v->conn->reads--;
	if (res == -EPROTO)
		note_liar(v->conn);
	q->done(q, res);
	view_put(v);
}

static bool post(struct rview *v, struct rview_read *q, struct verbs_read *r, uint64_t addr)
{
	q->view = v;
	q->op.done = on_read;
	v->refs++;
	v->conn->reads++;
	r->from = (struct xremote){addr, v->at.rkey};
	r->until_ns = v->until_ns;
	if (verbs_read(v->conn->x, r, &q->op))
		return true;
	v->conn->reads--;
	view_put(v);
	return false;
}

void rdma_view_read(struct rview *v, struct rview_read *q, uint64_t addr, uint32_t len,
		    struct slot *slot, uint32_t off)
{
	(void)post(v, q, &(struct verbs_read){.to = slot->data + off, .len = len}, addr);
}

bool rdma_view_read_to(struct rview *v, struct rview_read *q, uint64_t addr, uint32_t len,
		       const struct rmem *m, void *to)
{
	return post(v, q, &(struct verbs_read){.to = to, .m = rdma_memory_verbs(m), .len = len},
		    addr);
}
