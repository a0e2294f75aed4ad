/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * verbs_window_test_fixture - devices that are played, and a control thread that is not
 *
 * Idea: registered memory and its windows on devices that come and go, for the tests of the windows
 * (verbs_window_test.c) and of what is posted for them (verbs_window_post_test.c).
 */
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
static uint32_t dmabufs;             /* registered as such */

struct ibv_context **__wrap_rdma_get_devices(int *n);
void __wrap_rdma_free_devices(struct ibv_context **all);
int __wrap_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access);
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
					uint64_t iova, int fd, int access);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);

static inline struct device *device_of(struct ibv_context *ctx)
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

static inline struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
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

static inline int dealloc_mw(struct ibv_mw *mw)
{
	device_of(mw->context)->mws--;
	free(mw);
	return 0;
}

/* ---- the control thread, and what opens and closes ---- */

static inline void *control_main(void *arg)
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

static inline void opens(struct device *d)
{
	d->d = (struct vdev){.v = &v, .ctx = &d->ctx};
	d->d.pd_out = ibv_alloc_pd(&d->ctx);
	(void)ibv_query_device(&d->ctx, &d->d.attr);
	vdev_memory_open(&d->d);
	pthread_mutex_lock(&control.lock);
	list_add_tail(&d->card.devs, &d->d.card_link);
	pthread_mutex_unlock(&control.lock);
}

static inline void closes(struct device *d)
{
	vdev_memory_close(&d->d);
	ibv_dealloc_pd(d->d.pd_out);
	d->d.pd_out = NULL;
}

static inline void is_forgotten(struct device *d)
{
	list_del(&d->d.card_link);
}

static inline void is_there(uint32_t i)
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

static inline int setup(void **state)
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

static inline int teardown(void **state)
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

static inline struct verbs_memory *must_have(void)
{
	struct err err = ERR_INIT;
	struct verbs_memory *m = NULL;

	if (verbs_memory_new(&v, mem, LEN, &m, &err) < 0)
		fail_msg("%s", err.text);
	return m;
}

static inline int refused(struct err *ret_err)
{
	struct verbs_memory *m = NULL;
	const int rc = verbs_memory_new(&v, mem, LEN, &m, ret_err);

	assert_null(m);
	assert_true(ret_err->text[0]);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(!dev[i].mrs && !dev[i].mws);
	return rc;
}

static inline bool has_all(const struct device *d)
{
	return d->mrs == 1 && d->mws == VERBS_MEMORY_WINDOWS;
}

static inline uint32_t windows_there(struct verbs_memory *m, struct device *d)
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
