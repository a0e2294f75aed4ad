/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of others: an MR of its own on each device that is open, without rights of any peer, and
 * windows that give one peer a stretch of it for a while. Opening and closing are work requests,
 * verbs.c.
 *
 * All that takes the kernel's time is the control thread's: it registers what is asked for on the
 * devices that are open, on a device that is opened what there is, and takes it off one that it
 * closes. So no device goes while it is at work here. The reactor finds what is on a connection's
 * device by one load. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

struct verbs_memory {
	struct list link; /* verbs_control.memories */
	struct verbs *v;
	void *p;
	size_t len;
	int fd; /* owned: of a dma-buf that is mapped at p; -1: plain memory */
	uint64_t offset;
	uint32_t idx; /* in verbs.memory */
	bool lent;    /* to peers of connections that were accepted */
	bool ends;    /* what is asked for */
	/* when it has ended; NULL: somebody waits for that */
	void (*gone)(void *arg);
	void *gone_arg;
	int rc;          /* of what was asked for; its text in @err */
	struct err *err; /* likewise; may be NULL */
	sem_t done;
};

/* ---- on one device, by the control thread ---- */

static int can_have(const struct ibv_device_attr *attr, const struct ibv_context *ctx, size_t len,
		    struct err *err)
{
	const char *name = ibv_get_device_name(ctx->device);

	if (!vdev_has_windows(attr))
		return err_set(
			err, -ENOTSUP,
			"RDMA device %s has no memory windows (type 2), without which a data "
			"node could write to all of the memory",
			name);
	if (len > attr->max_mr_size)
		return err_set(err, -EINVAL,
			       "RDMA device %s registers at most %" PRIu64 " bytes at once", name,
			       attr->max_mr_size);
	return 0;
}

/* Its text is for the caller of verbs_memory_new(), or for the log. */
static int failed(const struct ibv_context *ctx, size_t len, int rc, struct err *err)
{
	const char *name = ibv_get_device_name(ctx->device);
	struct rlimit most = {0};

	if (rc == -ENOTSUP)
		return err_set(err, rc, "RDMA device %s registers no memory by dma-buf", name);
	if (rc != -ENOMEM && rc != -EAGAIN)
		return err_sys(err, rc, "registering %zu bytes with RDMA device %s failed", len,
			       name);
	(void)getrlimit(RLIMIT_MEMLOCK, &most);
	err_sys(err, -ENOMEM,
		"registering %zu bytes with RDMA device %s failed (RLIMIT_MEMLOCK of %" PRIu64
		" bytes counts all that is registered, the library's buffers too)",
		len, name, (uint64_t)most.rlim_cur);
	return err_cure(err, "raise the locked-memory limit (ulimit -l unlimited, "
			     "LimitMEMLOCK=infinity) or register less");
}

/* What a peer gets of it, it gets by a window: the MR itself has no rights for them. */
static struct ibv_mr *reg(struct ibv_pd *pd, const struct verbs_memory *m)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

	if (m->fd >= 0)
		return ibv_reg_dmabuf_mr(pd, m->offset, m->len, (uintptr_t)m->p, m->fd, access);
	return ibv_reg_mr(pd, m->p, m->len, access);
}

/* Others have those of the device, most likely: no limit of locked memory counts them. */
static int no_windows_left(const struct vdev *d, int rc, struct err *err)
{
	err_sys(err, rc,
		"RDMA device %s has no %u memory windows left, which each stretch of registered "
		"memory takes, of %d for all programs",
		ibv_get_device_name(d->ctx->device), VERBS_MEMORY_WINDOWS, d->attr.max_mw);
	return err_cure(err,
			"register fewer stretches, end other programs that use the device, or, "
			"if all data nodes can be trusted, set dfs.rdma.windows=off, which "
			"frees those of the library's buffers");
}

static int on_make(struct vdev *d, const struct verbs_memory *m, struct vmemory_on **ret,
		   struct err *err)
{
	struct ibv_pd *pd = m->lent ? d->pd_in : d->pd_out;
	struct vmemory_on *on;
	int rc;

	if (!pd) /* this side only listens, or only dials */
		return failed(d->ctx, m->len, -ENODEV, err);
	rc = vwindows_new(d, pd, VERBS_MEMORY_WINDOWS, &on);
	if (rc < 0)
		return no_windows_left(d, rc, err);
	on->mr = reg(pd, m);
	if (on->mr) {
		*ret = on;
		return 0;
	}
	rc = neg_errno();
	vwindows_free(on);
	return failed(d->ctx, m->len, rc, err);
}

static int put_on(struct vdev *d, const struct verbs_memory *m, struct err *err)
{
	struct vmemory_on *on;
	int rc = can_have(&d->attr, d->ctx, m->len, err);

	if (rc < 0)
		return rc;
	rc = on_make(d, m, &on, err);
	if (rc < 0)
		return rc;
	atomic_store_explicit(&d->memory[m->idx], on, memory_order_release);
	return 0;
}

static void take_off(struct vdev *d, uint32_t idx)
{
	struct vmemory_on *on = atomic_exchange(&d->memory[idx], NULL);

	vwindows_free(on);
}

static void tell_refused(const struct err *err)
{
	log_warn(
		"op=rdma: registered memory is not on this device, what comes over it is copied%s%s",
		err ? ": " : "", err ? err->text : "");
}

void vdev_memory_open(struct vdev *d)
{
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++) {
		struct err err = ERR_INIT;

		if (d->v->memory[i] && put_on(d, d->v->memory[i], &err) < 0)
			tell_refused(&err);
	}
}

void vdev_memory_close(struct vdev *d)
{
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++)
		take_off(d, i);
}

/* ---- all devices, by the control thread ---- */

/* The one with number @n of those that are open; NULL: there are no more. Only this thread opens
 * and closes them. */
static struct vdev *open_dev(struct verbs *v, uint32_t n)
{
	struct verbs_control *k = v->control;
	struct vdev *found = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		struct vdev *d = card_dev(v, container_of(l, struct vcard, link));

		/* else it is closed, and may be freed */
		if (!found && d && (d->pd_out || d->pd_in) && !n--)
			found = d;
	}
	pthread_mutex_unlock(&k->lock);
	return found;
}

static void take_off_all(struct verbs *v, uint32_t idx)
{
	struct vdev *d;

	for (uint32_t i = 0; (d = open_dev(v, i)); i++)
		take_off(d, idx);
}

/* It is the memory that it does not do with, not the device. */
static bool is_the_callers(int rc)
{
	return rc == -ENOMEM || rc == -EFAULT;
}

static int try_on(struct ibv_context *ctx, const struct verbs_memory *m)
{
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int rc = ret_code(ibv_query_device(ctx, &attr));

	if (rc == 0)
		rc = can_have(&attr, ctx, m->len, m->err);
	else
		rc = failed(ctx, m->len, rc, m->err);
	if (rc < 0)
		return rc;
	pd = ibv_alloc_pd(ctx);
	mr = pd ? reg(pd, m) : NULL;
	if (!mr)
		rc = failed(ctx, m->len, neg_errno(), m->err);
	else
		(void)ibv_dereg_mr(mr);
	if (pd)
		(void)ibv_dealloc_pd(pd);
	return rc;
}

/* No device that is open does: tried on one that is not, so that the caller hears what is wrong
 * with its memory. It is registered there when the device is opened. */
static int try_somewhere(const struct verbs_memory *m)
{
	int n = 0, rc = -ENODEV;
	struct ibv_context **all = rdma_get_devices(&n);

	if (!all || !n)
		err_set(m->err, rc, "no RDMA device works");
	for (int i = 0; all && i < n && rc < 0 && !is_the_callers(rc); i++)
		rc = try_on(all[i], m);
	if (all)
		rdma_free_devices(all);
	return rc;
}

static int put_on_all(struct verbs_memory *m)
{
	struct vdev *d;
	uint32_t good = 0;
	int rc = 0;

	for (uint32_t i = 0; !is_the_callers(rc) && (d = open_dev(m->v, i)); i++) {
		if (atomic_load(&d->broken))
			continue;
		rc = put_on(d, m, m->err);
		good += rc == 0;
		if (rc < 0 && !is_the_callers(rc))
			tell_refused(m->err);
	}
	if (is_the_callers(rc)) {
		take_off_all(m->v, m->idx);
		return rc;
	}
	if (!good && m->lent) /* nobody is connected; the next one asks again */
		return rc ?: err_set(m->err, -ENODEV, "no RDMA device works");
	return good ? 0 : try_somewhere(m);
}

static int memory_begin(struct verbs_memory *m)
{
	struct verbs_memory **at = m->v->memory;
	int rc;

	while (m->idx < VERBS_MEMORIES && at[m->idx])
		m->idx++;
	if (m->idx == VERBS_MEMORIES)
		return err_set(m->err, -ENOSPC, "%u stretches of memory are registered, the most",
			       VERBS_MEMORIES);
	rc = put_on_all(m);
	if (rc == 0)
		at[m->idx] = m;
	return rc;
}

static void memory_end(struct verbs_memory *m)
{
	take_off_all(m->v, m->idx);
	m->v->memory[m->idx] = NULL;
}

static void forget(struct verbs_memory *m)
{
	if (m->fd >= 0)
		(void)close(m->fd);
	(void)sem_destroy(&m->done);
	free(m);
}

/* Nobody waits for it. */
static void memory_gone(struct verbs_memory *m)
{
	m->gone(m->gone_arg);
	forget(m);
}

bool vmemory_turn(struct verbs_control *k)
{
	/* first: the memory may be about to end */
	const bool renewed = vwindows_renew(k), grown = vwindows_grow(k);
	struct list *l;
	bool revoked;

	pthread_mutex_lock(&k->lock);
	revoked = !list_empty(&k->revoked); /* meanwhile */
	l = renewed || revoked ? NULL : list_pop(&k->memories);
	pthread_mutex_unlock(&k->lock);
	if (l) {
		struct verbs_memory *m = container_of(l, struct verbs_memory, link);

		if (m->ends)
			memory_end(m);
		else
			m->rc = memory_begin(m);
		if (m->gone)
			memory_gone(m);
		else
			sem_post(&m->done);
	}
	return renewed || grown || revoked || l;
}

/* ---- any other thread ---- */

static void submit(struct verbs_memory *m)
{
	struct verbs_control *k = m->v->control;

	pthread_mutex_lock(&k->lock);
	list_add_tail(&k->memories, &m->link);
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

static void ask(struct verbs_memory *m)
{
	submit(m);
	while (sem_wait(&m->done) < 0)
		; /* EINTR */
}

/* Takes @with.fd. */
static int memory_new(struct verbs_memory with, struct verbs_memory **ret)
{
	struct verbs_memory *m = calloc(1, sizeof(*m));
	int rc;

	if (!m) {
		if (with.fd >= 0)
			(void)close(with.fd);
		return err_set(with.err, -ENOMEM, "out of memory");
	}
	*m = with;
	(void)sem_init(&m->done, 0, 0);
	ask(m);
	m->err = NULL;
	rc = m->rc;
	if (rc < 0)
		forget(m);
	else
		*ret = m;
	return rc;
}

int verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		     struct err *err)
{
	return memory_new((struct verbs_memory){.v = v, .p = p, .len = len, .fd = -1, .err = err},
			  ret);
}

int verbs_memory_new_dmabuf(struct verbs *v, int fd, uint64_t offset, void *map, size_t len,
			    struct verbs_memory **ret, struct err *err)
{
	const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* for devices that are opened later */

	if (own < 0)
		return err_sys(err, neg_errno(), "the dma-buf");
	return memory_new(
		(struct verbs_memory){
			.v = v, .p = map, .len = len, .fd = own, .offset = offset, .err = err},
		ret);
}

int verbs_memory_lend(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		      struct err *err)
{
	return memory_new(
		(struct verbs_memory){
			.v = v, .p = p, .len = len, .fd = -1, .err = err, .lent = true},
		ret);
}

void verbs_memory_free(struct verbs_memory *m)
{
	if (!m)
		return;
	m->ends = true;
	ask(m);
	forget(m);
}

void verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg)
{
	m->ends = true;
	m->gone = gone;
	m->gone_arg = arg;
	submit(m);
}

/* ---- the reactor ---- */

struct verbs_window *verbs_window_get(const struct verbs_memory *m, const struct xconn *x)
{
	const struct vconn *c = (const struct vconn *)x;
	struct vmemory_on *on = atomic_load_explicit(&c->dev->memory[m->idx], memory_order_acquire);
	struct list *l;

	if (!on)
		return NULL;
	if (list_empty(&on->spare))
		vwindows_take_renewed(on);
	l = list_pop(&on->spare);
	on->spare_count -= l != NULL;
	return l ? container_of(l, struct verbs_window, link) : NULL;
}

void verbs_window_put(struct verbs_window *w)
{
	vwindow_is_spare(w);
}

void verbs_window_revoke(struct verbs_window *w)
{
	struct verbs_control *k = w->on->dev->v->control;

	w->revoked = true;
	pthread_mutex_lock(&k->lock);
	list_add_tail(&k->revoked, &w->link);
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

struct xremote verbs_window_open(struct xconn *x, struct verbs_window *w, void *p, uint32_t len,
				 enum verbs_right right)
{
	struct vconn *c = (struct vconn *)x;

	if (w->on->mr)
		w->mr = w->on->mr;
	/* the last eight bits are the owner's: what named it before does not any more */
	w->rkey = ibv_inc_rkey(w->rkey);
	w->queued = true;
	vconn_submit(c, &c->txq, &w->bind_op,
		     (struct vreq){.kind = V_BIND,
				   .ptr = w,
				   .addr = (uintptr_t)p,
				   .rkey = w->rkey,
				   .len = len,
				   .n = (uint16_t)right});
	return (struct xremote){(uintptr_t)p, w->rkey};
}

void verbs_window_close(struct xconn *x, struct verbs_window *w, struct xop *op)
{
	struct vconn *c = (struct vconn *)x;

	/* not behind messages that wait for credits, if it need not be behind what opens it */
	vconn_submit(c, w->queued ? &c->txq : &c->shutq, op,
		     (struct vreq){.kind = V_UNBIND, .rkey = w->rkey});
}

void vwindow_bind_wr(const struct vreq *q, struct ibv_send_wr *wr)
{
	const struct verbs_window *w = q->ptr;

	wr->opcode = IBV_WR_BIND_MW;
	wr->bind_mw.mw = w->mw;
	wr->bind_mw.rkey = q->rkey;
	wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = w->mr,
		.addr = q->addr,
		.length = q->len,
		.mw_access_flags =
			q->n == VERBS_PEER_READS ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE,
	};
}

uint32_t vmemory_lkey(const struct vdev *d, uint32_t idx)
{
	return atomic_load_explicit(&d->memory[idx], memory_order_relaxed)->mr->lkey;
}

bool verbs_read(struct xconn *x, const struct verbs_read *r, struct xop *op)
{
	struct vconn *c = (struct vconn *)x;

	if (r->m && !atomic_load_explicit(&c->dev->memory[r->m->idx], memory_order_acquire))
		return false;
	vconn_submit(c, &c->rdq, op,
		     (struct vreq){.kind = V_PULL,
				   .ptr = r->to,
				   .addr = r->from.addr,
				   .until_ns = r->until_ns,
				   .rkey = r->from.rkey,
				   .len = r->len,
				   .n = (uint16_t)(r->m ? r->m->idx + 1 : 0)});
	return true;
}
