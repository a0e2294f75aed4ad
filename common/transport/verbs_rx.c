/* SPDX-License-Identifier: Apache-2.0 */
/* Receives: the shared queue of a device, which holds more as its peers need more, and the queues
 * that connections have for themselves; who may have how many of them. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define GROW_STEP 64u /* receives that are posted at once when there are too few */
#define RX_CHAIN 32u  /* receives that are handed to the device at once */
#define IDLE_NS (5 * NS_PER_S)

/* ---- posting ---- */

struct rx_chain { /* receives for one queue, of one doorbell */
	struct ibv_recv_wr wr[RX_CHAIN];
	struct ibv_sge sge[RX_CHAIN][2];
	struct vrx *rx[RX_CHAIN];
	uint32_t n;
};

static void chain_add(struct rx_chain *ch, struct vrx *rx)
{
	struct ibv_sge *sge = ch->sge[ch->n];
	struct ibv_recv_wr *wr = &ch->wr[ch->n];

	*wr = (struct ibv_recv_wr){.wr_id = rx->idx | 1ull << 63, .sg_list = sge, .num_sge = 1};
	sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)rx->buf, .length = VERBS_MESSAGE_MAX, .lkey = rx->lkey};
	if (rx->payload) {
		sge[1] = (struct ibv_sge){
			.addr = (uintptr_t)rx->payload->data,
			.length = VERBS_PAYLOAD_MAX,
			.lkey = vdev_lkey(rx->dev, false, rx->payload->data, NULL)};
		wr->num_sge = 2;
	}
	if (!rx->shared)
		wr->wr_id |=
			1ull << 62 | (uint64_t)rx->conn->slot << 40 | (uint64_t)rx->conn->gen << 24;
	if (ch->n)
		ch->wr[ch->n - 1].next = wr;
	ch->rx[ch->n++] = rx;
}

/* @qp: of a connection with receives of its own; NULL: the shared queue. How many are posted: fewer
 * than there are where one was refused. */
static uint32_t chain_post(struct rx_chain *ch, struct ibv_qp *qp)
{
	struct ibv_recv_wr *bad = NULL;
	uint32_t n = 0;

	if (!ch->n)
		return 0;
	metric_add(METRIC_RDMA_RX_DOORBELLS, 1);
	if (qp ? !ibv_post_recv(qp, ch->wr, &bad)
	       : !ibv_post_srq_recv(ch->rx[0]->dev->srq, ch->wr, &bad))
		n = ch->n;
	else
		while (n + 1 < ch->n && &ch->wr[n] != bad)
			n++;
	metric_add(METRIC_RDMA_WR_RECV, n);
	return n;
}

/* Inside some slot_put(): posted in the next vdev_poll(). */
static void rx_granted(struct pool_ask *a)
{
	container_of(a, struct vrx, ask)->dev->rx_granted = true;
}

static void take_granted(struct vdev *d)
{
	while (d->rx_granted) { /* what is given back here may be granted to the next one */
		d->rx_granted = false;
		list_for_each (l, &d->rx_dry) {
			struct vrx *rx = container_of(l, struct vrx, link);

			if (!rx->payload)
				continue;
			list_del(l);
			vrx_post(rx);
		}
	}
}

/* A slot for its payload. False: it waits for one. */
static bool has_room(struct vrx *rx)
{
	struct vdev *d = rx->dev;

	if (!rx->lands || rx->payload)
		return true;
	rx->payload = pool_get(d->v->opts.pool, SLOT_8K, POOL_CTRL);
	if (rx->payload)
		return true;
	/* the credit goes back when there is a slot again */
	list_add_tail(&d->rx_dry, &rx->link);
	rx->ask = (struct pool_ask){.use = POOL_CTRL,
				    .forms = 1,
				    .slots = &rx->payload,
				    .form[0] = {1, {{SLOT_8K, 1}}},
				    .granted = rx_granted};
	pool_wait(d->v->opts.pool, &rx->ask);
	return false;
}

static void count_granted(int n)
{
	metric_add(METRIC_RDMA_RECEIVES_GRANTED, (uint64_t)(int64_t)n);
}

/* Out of use: its memory is for others. */
static void park(struct vrx *rx)
{
	struct vdev *d = rx->dev;

	slot_put(rx->payload);
	rx->payload = NULL;
	rx->conn = NULL;
	list_add(&d->rx_spare, &rx->link);
	d->rx_count--;
	vdev_cqes_put(d, 1);
	metric_add(METRIC_RDMA_RECEIVES, (uint64_t)-1);
}

/* More than there have to be, and most are nobody's? */
static bool is_one_too_many(const struct vdev *d)
{
	return d->rx_count > d->rx_base && vdev_left(d) >= (int)(d->rx_count / 2);
}

/* It is in its queue: the peer may be told. */
static void is_posted(struct vrx *rx)
{
	struct vdev *d = rx->dev;
	struct vconn *c = rx->conn;

	if (rx->shared) {
		rx->conn = NULL;
		if (!c || !vconn_is_alive(c) || !grant_wants(&c->grant)) {
			vdev_left_add(d, 1);
			return;
		}
		count_granted(1);
	}
	grant_add(&c->grant, 1);
	vconn_ready(c);
}

static void is_refused(struct vrx *rx)
{
	if (!rx->shared) {
		vconn_fail(rx->conn, -EIO, "posting a receive failed");
		return;
	}
	/* nothing comes in any more when this goes on: it is made anew */
	rx->dev->failed = true;
	vdev_mail(rx->dev, DEV_FAILED);
	park(rx);
}

/* The first that is due, and others that are for the same queue. */
static void post_some(struct vdev *d)
{
	const struct vrx *first = container_of(d->rx_due.next, struct vrx, link);
	const struct vconn *owner = first->shared ? NULL : first->conn;
	struct rx_chain ch;
	uint32_t posted;

	ch.n = 0;
	list_for_each (l, &d->rx_due) {
		struct vrx *rx = container_of(l, struct vrx, link);

		if (ch.n == RX_CHAIN)
			break;
		if ((rx->shared ? NULL : rx->conn) != owner)
			continue;
		list_del(l);
		if (!owner || vconn_is_alive(owner)) /* else it dies with its connection */
			chain_add(&ch, rx);
	}
	posted = chain_post(&ch, owner ? owner->qp : NULL);
	for (uint32_t i = 0; i < ch.n; i++)
		if (i < posted)
			is_posted(ch.rx[i]);
		else
			is_refused(ch.rx[i]);
}

void vdev_post_due(struct vdev *d)
{
	take_granted(d);
	while (!list_empty(&d->rx_due)) {
		post_some(d);
		take_granted(d); /* what was refused has given its slot back */
	}
}

void vrx_post(struct vrx *rx)
{
	struct vdev *d = rx->dev;

	if (rx->shared && !rx->conn && is_one_too_many(d)) {
		park(rx);
		return;
	}
	if (!rx->shared && !vconn_is_alive(rx->conn))
		return; /* it dies with its connection */
	if (has_room(rx))
		list_add_tail(&d->rx_due, &rx->link);
}

/* ---- the receives of one connection ---- */

/* The first @n, none of which waits for a slot. How many it were. */
static uint32_t post_own(struct vconn *c, struct ibv_qp *qp, uint32_t n)
{
	struct rx_chain ch;
	uint32_t posted = 0, all = 0;

	while (posted == all && all < n) {
		const uint32_t to = all + RX_CHAIN < n ? all + RX_CHAIN : n;

		for (ch.n = 0; all < to; all++)
			chain_add(&ch, &c->rx[all]);
		posted += chain_post(&ch, qp);
	}
	return posted;
}

int vconn_rx_new(struct vconn *c)
{
	struct vdev *d = c->cm_dev;

	c->rx = calloc(c->rx_count, sizeof(*c->rx));
	c->rx_mem = aligned_alloc(4096, (size_t)c->rx_count * VERBS_MESSAGE_MAX);
	if (!c->rx || !c->rx_mem)
		return -ENOMEM;
	c->rx_mr = ibv_reg_mr(c->active ? d->pd_out : d->pd_in, c->rx_mem,
			      (size_t)c->rx_count * VERBS_MESSAGE_MAX, IBV_ACCESS_LOCAL_WRITE);
	if (!c->rx_mr)
		return neg_errno();
	for (uint32_t i = 0; i < c->rx_count; i++) {
		struct vrx *rx = &c->rx[i];

		*rx = (struct vrx){.dev = d,
				   .conn = c,
				   .idx = i,
				   .lkey = c->rx_mr->lkey,
				   .lands = !c->active && d->payload_max,
				   .buf = c->rx_mem + (size_t)i * VERBS_MESSAGE_MAX};
		list_init(&rx->link);
	}
	atomic_store_explicit(&c->rx_made, true, memory_order_release);
	/* those with slots wait for the reactor, whose slots they are */
	if (c->active && post_own(c, c->id->qp, c->rx_count) < c->rx_count)
		return -EIO;
	return 0;
}

void vconn_rx_free(struct vconn *c)
{
	if (c->rx_mr)
		ibv_dereg_mr(c->rx_mr);
	free(c->rx_mem);
	c->rx_mr = NULL;
	c->rx_mem = NULL;
}

/* A passive connection with receives of its own: as many as the pool has slots for. */
static uint16_t own_fill(struct vconn *c)
{
	uint32_t n = 0;

	for (; n < c->rx_count; n++) {
		struct vrx *rx = &c->rx[n];

		if (rx->lands)
			rx->payload = pool_get(c->v->opts.pool, SLOT_8K, POOL_CTRL);
		if (rx->lands && !rx->payload)
			break;
	}
	n = post_own(c, c->qp, n);
	return n < VERBS_CREDITS_LEAST ? 0 : (uint16_t)n;
}

void vconn_rx_end(struct vconn *c)
{
	struct vdev *d = c->cm_dev;

	list_for_each (l, &d->rx_due) {
		struct vrx *rx = container_of(l, struct vrx, link);

		if (rx->conn != c)
			continue;
		if (!rx->shared)
			list_del(&rx->link);
		rx->conn = NULL;
	}
	list_for_each (l, &d->rx_dry) {
		struct vrx *rx = container_of(l, struct vrx, link);

		if (rx->conn != c)
			continue;
		if (!rx->shared) {
			pool_wait_cancel(d->v->opts.pool, &rx->ask);
			list_del(&rx->link);
		}
		rx->conn = NULL;
	}
	for (uint32_t i = 0; c->rx && i < c->rx_count; i++)
		slot_put(c->rx[i].payload);
	free(c->rx);
	c->rx = NULL;
	if (c->active || !d->srq)
		return;
	vdev_left_add(d, grant_out(&c->grant));
	count_granted(-(int)grant_out(&c->grant));
}

/* ---- who may have how many ---- */

static uint32_t most_of(const struct vdev *d)
{
	return d->v->opts.credits ? d->v->opts.credits : 32;
}

static void give(struct vconn *c, uint32_t n)
{
	vdev_left_add(c->cm_dev, -(int)n);
	count_granted((int)n);
}

/* Few at first: who uses them up gets more. */
uint16_t vconn_first_grant(struct vconn *c)
{
	struct vdev *d = c->cm_dev;

	if (!d->srq)
		return own_fill(c);
	if (vdev_left(d) < (int)VERBS_CREDITS_LEAST)
		vdev_rx_grow(d);
	if (vdev_left(d) < (int)VERBS_CREDITS_LEAST)
		return 0;
	give(c, VERBS_CREDITS_LEAST);
	return VERBS_CREDITS_LEAST;
}

/* After a message: who has nearly none left gets as many again; who was idle, and everybody when
 * few are left, shrinks as he sends. */
void vconn_adapt(struct vconn *c, bool was_idle)
{
	struct vdev *d = c->dev;
	struct grant *g = &c->grant;
	const uint16_t half =
		g->target / 2 > VERBS_CREDITS_LEAST ? g->target / 2 : VERBS_CREDITS_LEAST;
	const uint32_t to = g->target * 2u < most_of(d) ? g->target * 2u : most_of(d);

	if (c->active || !d->srq)
		return;
	if (vdev_left(d) < (int)(d->rx_count / 4))
		vdev_rx_grow(d);
	if (was_idle || vdev_left(d) < (int)(d->rx_count / 8)) {
		g->target = half < g->target ? half : g->target;
	} else if (grant_left(g) <= g->target / 4u + 1 && g->target < most_of(d) &&
		   vdev_left(d) >= (int)(d->rx_count / 4) &&
		   vdev_left(d) >= (int)(to - g->target)) {
		const uint16_t n = (uint16_t)(to - g->target);

		g->target = (uint16_t)to;
		give(c, n);
		grant_add(g, n);
	}
}

bool vconn_was_idle(const struct vconn *c)
{
	return reactor_now_ns(c->v->reactor) > c->heard_ns + IDLE_NS;
}

/* ---- the shared queue ---- */

/* Memory for some more of them, registered. Any thread. */
static int chunk_new(struct vdev *d, struct vrx_chunk **ret)
{
	struct vrx_chunk *k = calloc(1, sizeof(*k));
	const size_t len = (size_t)VERBS_RX_CHUNK * VERBS_MESSAGE_MAX;

	if (!k)
		return -ENOMEM;
	k->mem = aligned_alloc(4096, len);
	if (k->mem)
		k->mr = ibv_reg_mr(d->pd_in, k->mem, len, IBV_ACCESS_LOCAL_WRITE);
	if (!k->mr) {
		free(k->mem);
		free(k);
		return -ENOMEM;
	}
	*ret = k;
	return 0;
}

static void chunk_add(struct vdev *d, struct vrx_chunk *k)
{
	const uint32_t first = d->rx_chunks * VERBS_RX_CHUNK;

	for (uint32_t i = 0; i < VERBS_RX_CHUNK; i++) {
		struct vrx *rx = &k->rx[i];

		*rx = (struct vrx){.dev = d,
				   .idx = first + i,
				   .lkey = k->mr->lkey,
				   .shared = true,
				   .lands = d->payload_max,
				   .buf = k->mem + (size_t)i * VERBS_MESSAGE_MAX};
		list_add_tail(&d->rx_spare, &rx->link);
	}
	d->rx_chunk[d->rx_chunks++] = k;
}

int vdev_srq_new(struct vdev *d)
{
	const struct verbs_opts *o = &d->v->opts;
	uint32_t most = VERBS_RX_CHUNK * VERBS_RX_CHUNKS;
	struct ibv_srq_init_attr a = {.srq_context = d,
				      .attr = {.max_sge = d->payload_max ? 2 : 1}};

	d->rx_base = o->srq_depth ? o->srq_depth : 1024;
	if (most > (uint32_t)d->attr.max_srq_wr)
		most = (uint32_t)d->attr.max_srq_wr;
	if (d->rx_base > most)
		d->rx_base = most;
	/* an entry is small: made for all that may ever be posted, which any card can */
	a.attr.max_wr = most < d->rx_base * 4 ? most : d->rx_base * 4;
	d->srq = ibv_create_srq(d->pd_in, &a);
	if (!d->srq && a.attr.max_wr > d->rx_base) {
		a.attr.max_wr = d->rx_base;
		d->srq = ibv_create_srq(d->pd_in, &a);
	}
	if (!d->srq)
		return neg_errno();
	d->rx_most = a.attr.max_wr < most ? a.attr.max_wr : most;
	while (d->rx_chunks * VERBS_RX_CHUNK < d->rx_base) {
		struct vrx_chunk *k;
		const int rc = chunk_new(d, &k);

		if (rc < 0)
			return rc;
		chunk_add(d, k);
	}
	return 0;
}

void vdev_srq_detach(struct vdev *d)
{
	list_for_each (l, &d->rx_dry) {
		struct vrx *rx = container_of(l, struct vrx, link);

		pool_wait_cancel(d->v->opts.pool, &rx->ask);
		list_del(l);
	}
	while (list_pop(&d->rx_due))
		;
	if (d->srq)
		metric_add(METRIC_RDMA_RECEIVES, (uint64_t) - (int64_t)d->rx_count);
}

void vdev_srq_close(struct vdev *d)
{
	if (d->srq)
		ibv_destroy_srq(d->srq);
	for (uint32_t i = 0; i < d->rx_chunks; i++)
		ibv_dereg_mr(d->rx_chunk[i]->mr);
}

void vdev_srq_free(struct vdev *d)
{
	for (uint32_t i = 0; i < d->rx_chunks; i++) {
		struct vrx_chunk *k = d->rx_chunk[i];

		for (uint32_t j = 0; j < VERBS_RX_CHUNK; j++)
			slot_put(k->rx[j].payload);
		free(k->mem);
		free(k);
	}
}

/* One that is not used, with what it needs. NULL: there is none. */
static struct vrx *spare(struct vdev *d)
{
	struct vrx *rx = container_of(d->rx_spare.next, struct vrx, link);

	if (list_empty(&d->rx_spare) || !vdev_cqes_admit(d, 1))
		return NULL;
	if (rx->lands)
		rx->payload = pool_get(d->v->opts.pool, SLOT_8K, POOL_CTRL);
	if (rx->lands && !rx->payload) {
		vdev_cqes_put(d, 1);
		return NULL; /* a smaller pool gives a smaller queue */
	}
	list_del(&rx->link);
	return rx;
}

/* Post up to @n more. */
static void post_more(struct vdev *d, uint32_t n)
{
	struct rx_chain ch;
	uint32_t posted;
	struct vrx *rx;

	do {
		for (ch.n = 0; ch.n < RX_CHAIN && ch.n < n && (rx = spare(d));)
			chain_add(&ch, rx);
		posted = chain_post(&ch, NULL);
		d->rx_count += ch.n;
		metric_add(METRIC_RDMA_RECEIVES, ch.n);
		vdev_left_add(d, (int)posted);
		for (uint32_t i = posted; i < ch.n; i++)
			park(ch.rx[i]);
		n -= posted;
	} while (n && posted == RX_CHAIN);
}

int vdev_srq_join(struct vdev *d)
{
	const struct pool *pool = d->v->opts.pool;

	post_more(d, d->rx_base);
	/* what comes on top may have a quarter of the small slots at most: reads need them, too */
	if (d->payload_max && d->rx_most > d->rx_base + pool_count(pool, SLOT_8K) / 4)
		d->rx_most = d->rx_base + pool_count(pool, SLOT_8K) / 4;
	vdev_srq_limit(d);
	return d->rx_count < VERBS_CREDITS_LEAST ? -ENOMEM : 0;
}

/* The device tells once when fewer are posted. */
void vdev_srq_limit(struct vdev *d)
{
	struct ibv_srq_attr a = {.srq_limit = d->rx_count / 16 + 1};

	(void)ibv_modify_srq(d->srq, &a, IBV_SRQ_LIMIT); /* it is a hint; not all can */
}

void vdev_rx_grow(struct vdev *d)
{
	if (d->rx_count >= d->rx_most || d->rx_is_coming)
		return;
	if (!list_empty(&d->rx_spare)) {
		post_more(d, d->rx_most - d->rx_count < GROW_STEP ? d->rx_most - d->rx_count
								  : GROW_STEP);
	} else if (d->rx_chunks < VERBS_RX_CHUNKS) {
		d->rx_is_coming = true;
		vdev_ask_chunk(d);
	}
}

/* On the control thread. */
void vdev_chunk(struct vdev *d)
{
	if (chunk_new(d, &d->rx_coming) < 0)
		d->rx_coming = NULL;
	vdev_mail(d, DEV_RECEIVES);
}

void vdev_chunk_join(struct vdev *d)
{
	if (d->rx_coming)
		chunk_add(d, d->rx_coming);
	else
		d->rx_most = d->rx_count; /* no memory for more: ask no more */
	d->rx_coming = NULL;
	d->rx_is_coming = false;
	vdev_rx_grow(d);
}
