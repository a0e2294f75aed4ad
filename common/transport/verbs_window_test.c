/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is no slot, on devices that come and go; the devices are played. What must hold: each
 * device that is open has it, also one that is opened later or again, and one that is closed has
 * nothing of it; who registers hears what is wrong, and then nothing is left; a window whose
 * connection was lost is made anew by the control thread; a window gives one right, and is closed
 * whatever else waits. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

#define LEN (1u << 20)

/* ---- devices ---- */

struct device {
	struct ibv_context ctx; /* first */
	struct ibv_device device;
	struct vcard card;
	struct vdev d; /* as one reactor uses it */
	bool no_windows;
	int reg_errno;
	uint32_t mrs, mws, pds, tried; /* alive; registered in vain */
};

#define DEVICES 40

static struct device dev[DEVICES]; /* two are there, but in one test */
static uint32_t listed;            /* of these librdmacm lists */
static struct verbs_control control;
static struct verbs v;
static pthread_t thread;
static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;
static uint8_t mem[16];
static struct ibv_mw *newest;
static struct ibv_pd *mr_pd, *mw_pd; /* of the newest */
static uint32_t dmabufs; /* registered as such */

struct ibv_context **__wrap_rdma_get_devices(int *n);
void __wrap_rdma_free_devices(struct ibv_context **all);
int __wrap_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access);
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
					uint64_t iova, int fd, int access);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);

static struct device *device_of(struct ibv_context *ctx)
{
	return (struct device *)ctx;
}

struct ibv_context **__wrap_rdma_get_devices(int *n)
{
	struct ibv_context **all = calloc(3, sizeof(struct ibv_context *));

	for (uint32_t i = 0; i < listed; i++)
		all[i] = &dev[i].ctx;
	*n = (int)listed;
	return all;
}

void __wrap_rdma_free_devices(struct ibv_context **all)
{
	free(all);
}

int __wrap_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){.max_mr_size = 1ull << 40};
	if (!device_of(ctx)->no_windows)
		attr->device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	return 0;
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	device_of(ctx)->pds++;
	return pd;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
	device_of(pd->context)->pds--;
	free(pd);
	return 0;
}

struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access)
{
	struct device *d = device_of(pd->context);
	struct ibv_mr *mr;

	/* no peer has a right by the key of all of it */
	assert_int_equal(access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (d->reg_errno) {
		errno = d->reg_errno;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr_pd = pd;
	mr->addr = p;
	mr->length = len;
	d->mrs++;
	mr->lkey = d->mrs;
	d->tried += pd != d->d.pd_out;
	return mr;
}

/* Of a buffer that is open yet, at its mapping. */
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
					uint64_t iova, int fd, int access)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_int_equal(offset, 4096);
	assert_int_equal(iova, (uintptr_t)mem);
	dmabufs++;
	return __wrap_ibv_reg_mr(pd, mem, len, access);
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	device_of(mr->context)->mrs--;
	free(mr);
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));

	assert_int_equal(type, IBV_MW_TYPE_2);
	mw->context = pd->context;
	mw->rkey = 0x100;
	mw_pd = pd;
	device_of(pd->context)->mws++;
	newest = mw;
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	device_of(mw->context)->mws--;
	free(mw);
	return 0;
}

/* ---- the control thread, and what opens and closes ---- */

static void *control_main(void *arg)
{
	uint64_t n;

	(void)arg;
	while (!atomic_load(&stop)) {
		(void)!read(control.wake, &n, sizeof(n));
		pthread_mutex_lock(&turning);
		pthread_mutex_lock(&control.lock);
		control.woken = false;
		pthread_mutex_unlock(&control.lock);
		while (vmemory_turn(&control))
			;
		pthread_mutex_unlock(&turning);
	}
	return NULL;
}

static void opens(struct device *d)
{
	d->d = (struct vdev){.v = &v, .ctx = &d->ctx};
	d->d.pd_out = ibv_alloc_pd(&d->ctx);
	(void)ibv_query_device(&d->ctx, &d->d.attr);
	vdev_memory_open(&d->d);
	pthread_mutex_lock(&control.lock);
	list_add_tail(&d->card.devs, &d->d.card_link);
	pthread_mutex_unlock(&control.lock);
}

static void closes(struct device *d)
{
	vdev_memory_close(&d->d);
	ibv_dealloc_pd(d->d.pd_out);
	d->d.pd_out = NULL;
}

static void is_forgotten(struct device *d)
{
	list_del(&d->d.card_link);
}

static void is_there(uint32_t i)
{
	struct device *d = &dev[i];

	d->ctx.device = &d->device;
	snprintf(d->device.name, sizeof(d->device.name), "card%u", i);
	d->ctx.ops.alloc_mw = alloc_mw;
	d->ctx.ops.dealloc_mw = dealloc_mw;
	d->card.ctx = &d->ctx;
	list_init(&d->card.devs);
	list_add_tail(&control.cards, &d->card.link);
}

static int setup(void **state)
{
	(void)state;
	memset(dev, 0, sizeof(dev));
	memset(&v, 0, sizeof(v));
	memset(&control, 0, sizeof(control));
	control.wake = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&control.lock, NULL);
	list_init(&control.cards);
	list_init(&control.memories);
	list_init(&control.revoked);
	v.control = &control;
	listed = 2;
	for (uint32_t i = 0; i < 2; i++)
		is_there(i);
	atomic_store(&stop, false);
	return pthread_create(&thread, NULL, control_main, NULL);
}

static int teardown(void **state)
{
	const uint64_t one = 1;
	int left = 0;

	(void)state;
	atomic_store(&stop, true);
	(void)!write(control.wake, &one, sizeof(one));
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < DEVICES; i++) {
		if (dev[i].d.pd_out)
			closes(&dev[i]);
		left += (int)(dev[i].mrs + dev[i].mws + dev[i].pds);
	}
	close(control.wake);
	pthread_mutex_destroy(&control.lock);
	return left;
}

static struct verbs_memory *must_have(void)
{
	struct err err = ERR_INIT;
	struct verbs_memory *m = NULL;

	if (verbs_memory_new(&v, mem, LEN, &m, &err) < 0)
		fail_msg("%s", err.text);
	return m;
}

static int refused(struct err *ret_err)
{
	struct verbs_memory *m = NULL;
	const int rc = verbs_memory_new(&v, mem, LEN, &m, ret_err);

	assert_null(m);
	assert_true(ret_err->text[0]);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(!dev[i].mrs && !dev[i].mws);
	return rc;
}

static bool has_all(const struct device *d)
{
	return d->mrs == 1 && d->mws == VERBS_MEMORY_WINDOWS;
}

static uint32_t windows_there(struct verbs_memory *m, struct device *d)
{
	struct vconn c = {.dev = &d->d};
	struct verbs_window *w[VERBS_MEMORY_WINDOWS + 1];
	uint32_t n = 0, i;

	while (n <= VERBS_MEMORY_WINDOWS && (w[n] = verbs_window_get(m, &c.x)))
		n++;
	for (i = 0; i < n; i++)
		verbs_window_put(w[i]);
	return n;
}

/* ---- tests ---- */

static void before_a_device_is_opened_it_is_tried_on_one(void **state)
{
	struct verbs_memory *m = must_have();

	(void)state;
	assert_int_equal(dev[0].tried, 1);
	assert_int_equal(dev[0].mrs + dev[1].mrs + dev[0].pds, 0);
	opens(&dev[1]); /* not the one that it was tried on */
	assert_true(has_all(&dev[1]));
	assert_int_equal(windows_there(m, &dev[1]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
	assert_int_equal(dev[1].mrs + dev[1].mws, 0);
}

static void each_open_device_has_it(void **state)
{
	struct verbs_memory *m;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	assert_true(has_all(&dev[0]) && !dev[0].tried);
	assert_int_equal(dev[1].mrs, 0);
	opens(&dev[1]);
	assert_true(has_all(&dev[1]));
	verbs_memory_free(m);
	m = must_have();
	assert_true(has_all(&dev[0]) && has_all(&dev[1]));
	verbs_memory_free(m);
	assert_int_equal(dev[0].mrs + dev[0].mws + dev[1].mrs + dev[1].mws, 0);
}

static void a_device_goes_with_what_is_on_it_and_comes_back_with_it(void **state)
{
	struct verbs_memory *m;

	(void)state;
	opens(&dev[0]);
	opens(&dev[1]);
	m = must_have();
	closes(&dev[0]);
	assert_int_equal(dev[0].mrs + dev[0].mws, 0);
	assert_true(has_all(&dev[1]));
	assert_int_equal(windows_there(m, &dev[0]), 0);
	is_forgotten(&dev[0]);
	opens(&dev[0]);
	assert_true(has_all(&dev[0]));
	assert_int_equal(windows_there(m, &dev[0]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
}

/* Its reactor may free it at any moment. */
static void a_device_that_is_closed_is_left_alone(void **state)
{
	struct verbs_memory *m, *other;

	(void)state;
	opens(&dev[0]);
	opens(&dev[1]);
	m = must_have();
	closes(&dev[0]);
	other = must_have();
	assert_int_equal(dev[0].mrs, 0);
	verbs_memory_free(other);
	atomic_store(&dev[1].d.broken, true); /* not closed yet */
	verbs_memory_free(m);
	assert_int_equal(dev[1].mrs + dev[1].mws, 0);
	m = must_have(); /* there is another one, or the same soon */
	assert_int_equal(dev[1].mrs, 0);
	verbs_memory_free(m);
	is_forgotten(&dev[0]);
}

static void a_device_without_windows_has_it_not(void **state)
{
	struct err err = ERR_INIT;
	struct verbs_memory *m;

	(void)state;
	dev[0].no_windows = true;
	opens(&dev[0]);
	m = must_have(); /* the other one has */
	assert_int_equal(dev[0].mrs, 0);
	assert_int_equal(windows_there(m, &dev[0]), 0);
	opens(&dev[1]);
	assert_int_equal(windows_there(m, &dev[1]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
	m = must_have();
	assert_true(has_all(&dev[1]));
	verbs_memory_free(m);
	closes(&dev[0]);
	is_forgotten(&dev[0]);
	closes(&dev[1]);
	is_forgotten(&dev[1]);
	dev[1].no_windows = true;
	assert_int_equal(refused(&err), -ENOTSUP);
	assert_non_null(strstr(err.text, "card1 has no memory windows"));
	listed = 0;
	assert_int_equal(refused(&err), -ENODEV);
}

static void who_may_lock_no_more_is_told_so(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	dev[0].reg_errno = dev[1].reg_errno = ENOMEM;
	assert_int_equal(refused(&err), -ENOMEM);
	assert_non_null(strstr(err.text, "RLIMIT_MEMLOCK of "));
	assert_non_null(strstr(err.text, "ulimit -l"));
	dev[0].reg_errno = 0;
	opens(&dev[0]);
	opens(&dev[1]);
	assert_int_equal(refused(&err), -ENOMEM); /* and it is off the first one again */
	dev[1].reg_errno = EFAULT;
	assert_int_equal(refused(&err), -EFAULT);
	dev[1].reg_errno = EIO; /* it is about to go */
	verbs_memory_free(must_have());
}

/* What comes over that device is copied. */
static void a_device_that_is_opened_later_may_refuse(void **state)
{
	struct verbs_memory *m = must_have();

	(void)state;
	dev[0].reg_errno = ENOMEM;
	opens(&dev[0]);
	assert_int_equal(windows_there(m, &dev[0]), 0);
	assert_int_equal(dev[0].mrs + dev[0].mws, 0);
	verbs_memory_free(m);
}

static void a_window_whose_connection_is_lost_is_made_anew(void **state)
{
	struct vconn c = {.dev = &dev[0].d, .error = -EIO};
	struct verbs_window *w;
	struct verbs_memory *m;
	uint32_t there, rkey;
	bool turned;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	w = verbs_window_get(m, &c.x);
	pthread_mutex_lock(&turning); /* the control thread is busy */
	verbs_window_revoke(w);
	there = windows_there(m, &dev[0]);
	turned = vmemory_turn(&control);
	/* what was queued comes home, and touches nothing that the control thread may have */
	(void)verbs_window_open(&c.x, w, mem, 1, VERBS_PEER_WRITES);
	rkey = newest->rkey;
	pthread_mutex_unlock(&turning);
	assert_int_equal(there, VERBS_MEMORY_WINDOWS - 1);
	assert_true(turned);
	assert_int_equal(rkey, 0x100);
	assert_int_equal(dev[0].mws, VERBS_MEMORY_WINDOWS);
	for (uint32_t i = 0; i < VERBS_MEMORY_WINDOWS; i++)
		assert_non_null(verbs_window_get(m, &c.x));
	assert_null(verbs_window_get(m, &c.x));
	verbs_memory_free(m);
	assert_int_equal(dev[0].mws, 0);
}

static void a_dmabuf_is_on_each_device_by_its_descriptor(void **state)
{
	const int fd = eventfd(0, EFD_CLOEXEC);
	struct err err = ERR_INIT;
	struct verbs_memory *m = NULL;

	(void)state;
	dmabufs = 0;
	opens(&dev[0]);
	assert_int_equal(verbs_memory_new_dmabuf(&v, fd, 4096, mem, LEN, &m, &err), 0);
	close(fd); /* ours is another one */
	assert_true(has_all(&dev[0]));
	opens(&dev[1]);
	assert_true(has_all(&dev[1]));
	assert_int_equal(dmabufs, 2);
	verbs_memory_free(m);
	m = NULL;
	assert_int_equal(verbs_memory_new_dmabuf(&v, fd, 4096, mem, LEN, &m, &err), -EBADF);
	dev[0].reg_errno = dev[1].reg_errno = EOPNOTSUPP;
	assert_int_equal(verbs_memory_new_dmabuf(&v, 0, 4096, mem, LEN, &m, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "registers no memory by dma-buf"));
	assert_null(m);
}

static void of_many_devices_none_is_left_out(void **state)
{
	struct verbs_memory *m;

	(void)state;
	for (uint32_t i = 0; i < DEVICES; i++) {
		if (i >= 2)
			is_there(i);
		opens(&dev[i]);
	}
	m = must_have();
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_true(has_all(&dev[i]));
	verbs_memory_free(m);
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_int_equal(dev[i].mrs + dev[i].mws, 0);
}

/* ---- work requests ---- */

static enum ibv_wr_opcode posted[8];
static uint32_t posted_n;
static unsigned int rights;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	for (; wr; wr = wr->next) {
		posted[posted_n++] = wr->opcode;
		if (wr->opcode == IBV_WR_BIND_MW)
			rights = wr->bind_mw.bind_info.mw_access_flags;
	}
	return 0;
}

static void nothing(struct xop *op, int res)
{
	(void)op;
	(void)res;
}

static const struct verbs_protocol protocol = {.credit_offset = 0};

/* A connection whose peer takes no message now. */
static struct vconn *conn_up(struct ibv_qp *qp)
{
	static struct ibv_cq cq = {.cqe = 1000};
	const struct reactor_opts ro = {.name = "test"};
	struct vconn *c;

	assert_int_equal(reactor_new(&ro, &v.reactor, NULL), 0);
	v.opts.protocol = &protocol;
	dev[0].ctx.ops.post_send = post_send;
	qp->context = &dev[0].ctx;
	dev[0].d.cq = &cq;
	atomic_store(&dev[0].d.cqe_left, cq.cqe);
	list_init(&dev[0].d.rx_due);
	list_init(&dev[0].d.rx_dry);
	list_init(&dev[0].d.tx_waiting);
	c = vconn_alloc(&v, true);
	c->state = VC_UP;
	c->dev = c->cm_dev = &dev[0].d;
	c->qp = qp;
	c->cqes = c->sq_depth = VERBS_SQ_DEPTH;
	c->ping_ns = 1;
	posted_n = 0;
	return c;
}

static void conn_down(struct vconn *c)
{
	list_del(&c->rop.ready_link);
	reactor_timer_clear(v.reactor, &c->timer);
	reactor_free(v.reactor);
	free(c);
}

static void a_peer_gets_the_right_that_is_named_and_no_other(void **state)
{
	struct ibv_qp qp = {0};
	struct verbs_window *w;
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	w = verbs_window_get(m, &c->x);
	(void)verbs_window_open(&c->x, w, mem, 1, VERBS_PEER_WRITES);
	vconn_flush(c);
	assert_int_equal(rights, IBV_ACCESS_REMOTE_WRITE);
	(void)verbs_window_open(&c->x, w, mem, 1, VERBS_PEER_READS);
	vconn_flush(c);
	assert_int_equal(rights, IBV_ACCESS_REMOTE_READ);
	conn_down(c);
	verbs_memory_free(m);
}

/* Whoever waits for it has its answer, and does not wait for the messages of others. */
static void a_window_is_closed_before_messages_that_wait_for_credits(void **state)
{
	static uint8_t message[64];
	struct xop sent = {.done = nothing}, shut[2] = {{.done = nothing}, {.done = nothing}};
	struct verbs_window *w[2];
	struct ibv_qp qp = {0};
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	for (uint32_t i = 0; i < 2; i++)
		w[i] = verbs_window_get(m, &c->x);
	(void)verbs_window_open(&c->x, w[0], mem, 1, VERBS_PEER_WRITES);
	vconn_flush(c);
	verbs_ops.send(&c->x, &(struct iovec){message, sizeof(message)}, 1, &sent);
	(void)verbs_window_open(&c->x, w[1], mem, 1, VERBS_PEER_WRITES); /* not posted */
	verbs_window_close(&c->x, w[0], &shut[0]);
	verbs_window_close(&c->x, w[1], &shut[1]);
	vconn_flush(c);
	assert_int_equal(posted_n, 2);
	assert_int_equal(posted[0], IBV_WR_BIND_MW);
	assert_int_equal(posted[1], IBV_WR_LOCAL_INV);
	conn_down(c);
	verbs_memory_free(m);
}

static unsigned rights_of(struct verbs_memory *m, struct vconn *c, enum verbs_right right)
{
	struct verbs_window *w = verbs_window_get(m, &c->x);
	struct ibv_send_wr wr = {0};
	struct vreq q;

	list_init(&c->txq);
	c->error = 0;
	(void)verbs_window_open(&c->x, w, mem, sizeof(mem), right);
	q = *container_of(list_pop(&c->txq), struct vreq, link);
	vwindow_bind_wr(&q, &wr);
	assert_true(wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.bind_info.length == sizeof(mem));
	assert_int_equal(wr.bind_mw.bind_info.addr, (uintptr_t)mem);
	verbs_window_put(w);
	return wr.bind_mw.bind_info.mw_access_flags;
}

void __real_reactor_ready(struct reactor *r, struct rop *op);
void __wrap_reactor_ready(struct reactor *r, struct rop *op);
void __wrap_reactor_ready(struct reactor *r, struct rop *op)
{
	if (r) /* else nothing runs here */
		__real_reactor_ready(r, op);
}

/* A key of one domain is worthless in the other, and a window of one does not fit memory of it. */
static void what_is_lent_is_in_the_domain_of_those_who_were_accepted(void **state)
{
	struct vconn c = {.v = &v, .dev = &dev[0].d};
	struct verbs_memory *m, *own;
	struct ibv_pd *out;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), -ENODEV);
	opens(&dev[0]);
	dev[0].d.pd_in = ibv_alloc_pd(&dev[0].ctx);
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), 0);
	assert_ptr_equal(mr_pd, dev[0].d.pd_in);
	assert_ptr_equal(mw_pd, dev[0].d.pd_in);
	assert_int_equal(rights_of(m, &c, VERBS_PEER_READS), IBV_ACCESS_REMOTE_READ);
	own = must_have();
	assert_ptr_equal(mr_pd, dev[0].d.pd_out);
	assert_ptr_equal(mw_pd, dev[0].d.pd_out);
	assert_int_equal(rights_of(own, &c, VERBS_PEER_WRITES), IBV_ACCESS_REMOTE_WRITE);
	verbs_memory_free(own);
	verbs_memory_free(m);
	out = dev[0].d.pd_out;
	dev[0].d.pd_out = NULL; /* who only listens has no other domain */
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), 0);
	verbs_memory_free(m);
	dev[0].d.pd_out = out;
	dev[0].no_windows = true;
	(void)ibv_query_device(&dev[0].ctx, &dev[0].d.attr);
	dev[0].d.attr.device_cap_flags = 0;
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), -ENOTSUP);
	ibv_dealloc_pd(dev[0].d.pd_in);
}

/* The bytes go to that memory, by its own key. */
static void a_read_goes_to_registered_memory(void **state)
{
	struct vconn c = {.v = &v, .dev = &dev[0].d};
	struct verbs_memory *m, *other;
	struct xop op;
	struct vreq *q = vreq_of(&op);

	(void)state;
	list_init(&c.rdq);
	other = must_have(); /* there is no device: it is not the first one */
	m = must_have();
	assert_false(verbs_read(&c.x, (struct xremote){1, 2}, m, mem, 3, &op));
	opens(&dev[0]);
	assert_true(verbs_read(&c.x, (struct xremote){1, 2}, m, mem, 3, &op));
	assert_true(q->kind == V_PULL && q->addr == 1 && q->rkey == 2 && q->ptr == mem &&
		    q->len == 3 && q->n == 2);
	assert_int_equal(vmemory_lkey(&dev[0].d, q->n - 1u), 2);
	verbs_memory_free(m);
	verbs_memory_free(other);
}

static void so_many_are_there_at_most(void **state)
{
	struct verbs_memory *m[VERBS_MEMORIES];
	struct verbs_memory *none = NULL;
	struct err err = ERR_INIT;

	(void)state;
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++)
		m[i] = must_have();
	assert_int_equal(verbs_memory_new(&v, mem, LEN, &none, &err), -ENOSPC);
	verbs_memory_free(m[7]);
	m[7] = must_have();
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++)
		verbs_memory_free(m[i]);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(before_a_device_is_opened_it_is_tried_on_one),
		CASE(each_open_device_has_it),
		CASE(a_device_goes_with_what_is_on_it_and_comes_back_with_it),
		CASE(a_device_that_is_closed_is_left_alone),
		CASE(a_device_without_windows_has_it_not),
		CASE(who_may_lock_no_more_is_told_so),
		CASE(a_device_that_is_opened_later_may_refuse),
		CASE(a_window_whose_connection_is_lost_is_made_anew),
		CASE(a_dmabuf_is_on_each_device_by_its_descriptor),
		CASE(of_many_devices_none_is_left_out),
		CASE(a_peer_gets_the_right_that_is_named_and_no_other),
		CASE(a_window_is_closed_before_messages_that_wait_for_credits),
		CASE(what_is_lent_is_in_the_domain_of_those_who_were_accepted),
		CASE(a_read_goes_to_registered_memory),
		CASE(so_many_are_there_at_most),
	};

	log_init("verbs_window_test", LOG_ERROR);
	return cmocka_run_group_tests_name("verbs_window", tests, NULL, NULL);
}
