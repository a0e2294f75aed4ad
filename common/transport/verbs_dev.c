/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices: memory regions of the pool's slabs, the completion queue, the buffers that small
 * messages are sent from. Receives: verbs_rx.c. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

static int memlock_error(struct err *err, const char *what)
{
	err_sys(err, -ENOMEM, "registering %s with the RDMA device failed", what);
	return err_cure(err,
			"raise the locked-memory limit (ulimit -l unlimited, LimitMEMLOCK=infinity)"
			" or lower dfs.rdma.pool.size");
}

static void windows_error(struct err *err, const struct vdev *d)
{
	err_set(err, -ENOTSUP, "RDMA device %s: %s, and dfs.rdma.windows=on asks for some",
		ibv_get_device_name(d->ctx->device), d->windows_why);
	(void)err_cure(err, "set dfs.rdma.windows=auto to use it without");
}

static int relaxed(const struct vdev *d)
{
	/* one of those that a device without it may leave out */
	return d->v->tuning.relaxed ? IBV_ACCESS_RELAXED_ORDERING : 0;
}

/* No card is known that takes less than a slab, so none is registered in pieces. */
static int slabs_fit(const struct vdev *d, const struct pool *pool, struct err *err)
{
	for (uint32_t i = 0; pool && i < pool_slab_count(pool); i++) {
		size_t len;

		(void)pool_slab(pool, i, &len);
		if (len <= d->attr.max_mr_size)
			continue;
		err_set(err, -E2BIG,
			"RDMA device %s registers at most %" PRIu64
			" bytes at once, and the buffers are one stretch of %zu",
			ibv_get_device_name(d->ctx->device), d->attr.max_mr_size, len);
		(void)err_cure(err, "lower dfs.rdma.pool.size, or use another device");
		return -E2BIG;
	}
	return 0;
}

/* Slabs in one domain. Each MR outlives every work request that names it, until vdev_close(). */
static int register_slabs(const struct pool *pool, struct ibv_pd *pd, int access,
			  struct ibv_mr ***ret)
{
	uint32_t n = pool_slab_count(pool);
	struct ibv_mr **mr = calloc(n, sizeof(*mr));

	if (!mr)
		return -ENOMEM;
	*ret = mr; /* vdev_close() takes what is there */
	for (uint32_t i = 0; i < n; i++) {
		size_t len;
		void *p = pool_slab(pool, i, &len);

		mr[i] = ibv_reg_mr(pd, p, len, access);
		if (!mr[i])
			return neg_errno();
	}
	return 0;
}

static void deregister(struct ibv_mr **mr, uint32_t n)
{
	for (uint32_t i = 0; mr && i < n; i++)
		if (mr[i])
			ibv_dereg_mr(mr[i]);
	free(mr);
}

uint32_t vdev_lkey(const struct vdev *d, bool active, const void *p, struct ibv_mr **ret_mr)
{
	struct ibv_mr **mr = active ? d->mr_out : d->mr_in;
	uint32_t n = pool_slab_count(d->v->opts.pool);

	for (uint32_t i = 0; mr && i < n; i++)
		if ((const uint8_t *)p >= (const uint8_t *)mr[i]->addr &&
		    (const uint8_t *)p < (const uint8_t *)mr[i]->addr + mr[i]->length) {
			if (ret_mr)
				*ret_mr = mr[i];
			return mr[i]->lkey;
		}
	return 0;
}

/* ---- completions ---- */

bool vdev_cqes_take(struct vdev *d, uint32_t n)
{
	if (atomic_fetch_sub(&d->cqe_left, (int)n) >= (int)n)
		return true;
	atomic_fetch_add(&d->cqe_left, (int)n);
	return false;
}

bool vdev_cqes_are_few(const struct vdev *d)
{
	return atomic_load(&d->cqe_left) < d->cq->cqe / 4;
}

bool vdev_cqes_admit(struct vdev *d, uint32_t n)
{
	return !vdev_cqes_are_few(d) && vdev_cqes_take(d, n);
}

static void wake_one(struct vdev *d)
{
	struct list *l = list_pop(&d->tx_waiting);

	if (l)
		vconn_ready(container_of(l, struct vconn, tx_link));
}

void vdev_cqes_put(struct vdev *d, uint32_t n)
{
	atomic_fetch_add(&d->cqe_left, (int)n);
	for (uint32_t i = 0; i < n && !list_empty(&d->tx_waiting); i += VERBS_CQES_STEP)
		wake_one(d);
}

/* ---- send buffers ---- */

void *vdev_tx_get(struct vdev *d)
{
	return d->tx_free_count ? d->tx_free[--d->tx_free_count] : NULL;
}

void vdev_tx_put(struct vdev *d, void *buf)
{
	assert(d->tx_free_count < VERBS_TX_BUFS);
	d->tx_free[d->tx_free_count++] = buf;
	wake_one(d);
}

static int tx_new(struct vdev *d)
{
	size_t len = (size_t)VERBS_TX_BUFS * VERBS_MESSAGE_MAX;

	d->tx_mem = aligned_alloc(4096, len);
	d->tx_free = calloc(VERBS_TX_BUFS, sizeof(*d->tx_free));
	if (!d->tx_mem || !d->tx_free)
		return -ENOMEM;
	for (uint32_t i = 0; i < VERBS_TX_BUFS; i++)
		d->tx_free[d->tx_free_count++] = d->tx_mem + (size_t)i * VERBS_MESSAGE_MAX;
	if (d->pd_in && !(d->tx_mr_in = ibv_reg_mr(d->pd_in, d->tx_mem, len, 0)))
		return neg_errno();
	if (d->pd_out && !(d->tx_mr_out = ibv_reg_mr(d->pd_out, d->tx_mem, len, 0)))
		return neg_errno();
	return 0;
}

/* ---- devices ---- */

/* Without a shared receive queue each connection has its own. */
static int receives_new(struct vdev *d)
{
	const int sge = d->attr.max_srq ? d->attr.max_srq_sge : d->attr.max_sge;
	int rc;

	d->payload_max = sge < 2 ? 0 : VERBS_PAYLOAD_MAX;
	rc = d->attr.max_srq ? vdev_srq_new(d) : 0;
	return rc == -EOPNOTSUPP || rc == -ENOSYS ? 0 : rc;
}

/* An answer to a READ is a tagged message on iWARP: cards want the memory that it fills to be open
 * to RDMA WRITE, and the peer has its key, for that is in the request. So each client could write
 * to all buffers of a node. (Soft iWARP fills what is not open, but tells of a SEND before the READ
 * that was posted before it.) */
int vdev_can_accept(const struct ibv_context *ctx, struct err *err)
{
	if (ctx->device->transport_type != IBV_TRANSPORT_IWARP)
		return 0;
	err_set(err, -EPROTONOSUPPORT,
		"RDMA device %s is iWARP, where a node that reads from its clients has to let them "
		"write to all of its buffers",
		ibv_get_device_name(ctx->device));
	(void)err_cure(err, "have the card do RoCE v2 if it can; else clients use TCP");
	return -EPROTONOSUPPORT;
}

static int dev_ask(struct vdev *d, struct err *err)
{
	const int rc = ibv_query_device(d->ctx, &d->attr);

	if (rc) /* not all set errno */
		return rc > 0 ? -rc : neg_errno();
	return (d->v->opts.passive ? vdev_can_accept(d->ctx, err) : 0)
		       ?: slabs_fit(d, d->v->opts.pool, err)
		       ?: slabs_fit(d, d->v->opts.landing, err);
}

/* What peers that we ask for something may touch. */
static int active_setup(struct vdev *d)
{
	const struct verbs_opts *o = &d->v->opts;
	int rc;

	if (!(d->pd_out = ibv_alloc_pd(d->ctx)))
		return neg_errno();
	rc = vdev_windows_new(d);
	if (!rc)
		rc = register_slabs(o->pool, d->pd_out, vdev_slab_access(d, false) | relaxed(d),
				    &d->mr_out);
	if (!rc && o->landing)
		rc = register_slabs(o->landing, d->pd_out, vdev_slab_access(d, true) | relaxed(d),
				    &d->mr_land);
	return rc;
}

static int dev_setup(struct vdev *d, struct err *err)
{
	const struct verbs_opts *o = &d->v->opts;
	const int in_access = IBV_ACCESS_LOCAL_WRITE | relaxed(d);
	int cqe, rc = dev_ask(d, err);

	if (rc < 0)
		return rc;
	cqe = d->attr.max_cqe < 32768 ? d->attr.max_cqe : 32768;
	if (!(d->channel = ibv_create_comp_channel(d->ctx)) ||
	    !(d->cq = ibv_create_cq(d->ctx, cqe - 1, d, d->channel, 0)))
		return neg_errno();
	rc = ret_errno(fcntl(d->channel->fd, F_SETFL, O_NONBLOCK));
	if (rc < 0)
		return rc;
	atomic_store(&d->cqe_left, d->cq->cqe);
	if (o->passive) {
		if (!(d->pd_in = ibv_alloc_pd(d->ctx)))
			return neg_errno();
		rc = register_slabs(o->pool, d->pd_in, in_access, &d->mr_in);
		if (!rc)
			rc = receives_new(d);
		if (rc < 0)
			return rc;
	}
	rc = o->active ? active_setup(d) : 0;
	if (rc < 0)
		return rc;
	return tx_new(d);
}

struct ibv_context **device_hold(struct ibv_context *ctx)
{
	struct ibv_context **all = rdma_get_devices(NULL),
			   **held = calloc(2, sizeof(struct ibv_context *));
	int n = 0;

	for (int i = 0; all && held && all[i]; i++)
		if (all[i] == ctx)
			held[0] = ctx; /* and is not given back with the others */
		else
			all[n++] = all[i];
	if (all && held)
		all[n] = NULL;
	if (all)
		rdma_free_devices(all);
	if (held && !held[0]) {
		free(held);
		held = NULL;
	}
	return held;
}

int vdev_open(struct verbs *v, struct ibv_context *ctx, struct vdev **ret, struct err *err)
{
	struct vdev *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return err_set(err, -ENOMEM, "out of memory");
	d->v = v;
	d->ctx = ctx;
	d->inline_max = VERBS_INLINE_WANTED;
	list_init(&d->link);
	list_init(&d->card_link);
	list_init(&d->chunk_link);
	list_init(&d->rx_due);
	list_init(&d->rx_dry);
	list_init(&d->rx_spare);
	list_init(&d->tx_waiting);
	d->poller = (struct poller){.fd = -1, .poll = vdev_poll, .arm = vdev_arm};
	d->held = device_hold(ctx);
	rc = d->held ? dev_setup(d, err) : -ENODEV;
	if (rc < 0) {
		if (rc == -ENOMEM)
			memlock_error(err, "the buffer pool");
		else if (rc == -ENOTSUP && d->pd_out && !d->slots &&
			 v->opts.windows == VERBS_WINDOWS_ON)
			windows_error(err, d);
		else if (rc != -E2BIG && rc != -EPROTONOSUPPORT) /* these say it by themselves */
			err_sys(err, rc, "setting up RDMA device %s failed",
				ibv_get_device_name(ctx->device));
		vdev_close(d);
		vdev_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

int vdev_join(struct vdev *d)
{
	d->joined = true;
	list_add_tail(&d->v->devs, &d->link);
	d->poller.fd = d->channel->fd;
	reactor_poller_add(d->v->reactor, &d->poller);
	return d->srq ? vdev_srq_join(d) : 0;
}

void vdev_detach(struct vdev *d)
{
	list_del(&d->link);
	reactor_poller_del(d->v->reactor, &d->poller);
	vdev_srq_detach(d);
}

void vdev_close(struct vdev *d)
{
	const uint32_t slabs = pool_slab_count(d->v->opts.pool);

	vdev_memory_close(d);
	vwindows_free(d->slots);
	d->slots = NULL;
	vdev_srq_close(d);
	if (d->cq)
		ibv_destroy_cq(d->cq);
	if (d->channel)
		ibv_destroy_comp_channel(d->channel);
	if (d->tx_mr_in)
		ibv_dereg_mr(d->tx_mr_in);
	if (d->tx_mr_out)
		ibv_dereg_mr(d->tx_mr_out);
	deregister(d->mr_in, slabs);
	deregister(d->mr_out, slabs);
	if (d->mr_land)
		deregister(d->mr_land, pool_slab_count(d->v->opts.landing));
	if (d->pd_in)
		ibv_dealloc_pd(d->pd_in);
	if (d->pd_out)
		ibv_dealloc_pd(d->pd_out);
	d->pd_in = d->pd_out = NULL;
	if (d->held)
		rdma_free_devices(d->held);
}

void vdev_free(struct vdev *d)
{
	vdev_srq_free(d);
	free(d->tx_free);
	free(d->tx_mem);
	free(d);
}
