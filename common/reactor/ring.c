/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring of a reactor: made for the kernel that is here, entered once a turn, its completions
 * run, its requests cancelled, the buffer pool registered with it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/reactor/pool.h"
#include "common/reactor/reactor_internal.h"

#define IO_WORKERS 512
#define CQ_PER_SQ 4 /* room for multishots and bursts; overflow costs, but loses nothing (NODROP) */
#define CQE_BATCH 256

/* From the richest set of flags down: an old kernel says EINVAL to a flag that it does not know. */
static int queue_init(struct reactor *r)
{
	static const uint32_t flags[] = {
		IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |
			IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* 6.1 */
		IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |
			IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SINGLE_ISSUER,
		IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |
			IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,           /* 5.19 */
		IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL, /* 5.18 */
		IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED,
	};
	int rc = -EINVAL;

	for (size_t i = 0; rc == -EINVAL && i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct io_uring_params p = {.flags = flags[i],
					    .cq_entries = r->opts.sq_entries * CQ_PER_SQ};

		rc = io_uring_queue_init_params(r->opts.sq_entries, &r->ring, &p);
	}
	if (rc < 0)
		return rc;
	r->ring_ready = true;
	return r->ring.features & IORING_FEAT_EXT_ARG ? 0 : -ENOSYS;
}

static int ring_error(struct err *err, int rc)
{
	err_sys(err, rc, "cannot create an io_uring");
	if (rc == -ENOSYS)
		err_cure(err, "this needs Linux 5.19 or newer with io_uring built in");
	else if (rc == -EPERM || rc == -EACCES)
		err_cure(err,
			 "io_uring is forbidden here: set sysctl kernel.io_uring_disabled=0, or"
			 " allow io_uring_setup in the container's seccomp profile");
	else if (rc == -ENOMEM)
		err_cure(err, "raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity, ulimit -l unlimited)");
	return rc;
}

int ring_init(struct reactor *r, struct err *err)
{
	const int rc = queue_init(r);

	return rc < 0 ? ring_error(err, rc) : 0;
}

int ring_enable(struct reactor *r)
{
	int rc;

	if (r->enabled)
		return pthread_equal(r->issuer, pthread_self()) ? 0 : -EBUSY;
	/* By hand: liburing 2.3 declares io_uring_enable_rings() and does not export it. */
	rc = io_uring_register((unsigned int)r->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
			       0);
	if (rc < 0)
		return rc;
	r->issuer = pthread_self();
	r->enabled = true;
	/* Best effort: the kernel makes no more than RLIMIT_NPROC. Its own choice is four for each
	 * processor. One is made when the others wait. */
	(void)io_uring_register((unsigned int)r->ring.ring_fd, IORING_REGISTER_IOWQ_MAX_WORKERS,
				(unsigned int[]){r->opts.io_workers ?: IO_WORKERS, 0}, 2);
	return 0;
}

static bool ring_has_task_work(const struct reactor *r)
{
	return IO_URING_READ_ONCE(*r->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

struct io_uring_sqe *reactor_sqe(struct reactor *r)
{
	struct io_uring_sqe *sqe;

	assert(reactor_is_current(r));
	while (!(sqe = io_uring_get_sqe(&r->ring))) {
		assert(r->enabled); /* more than sq_entries operations before reactor_run() */
		metric_add(METRIC_URING_ENTER, 1);
		io_uring_submit_and_get_events(&r->ring);
	}
	memset(sqe, 0, sizeof(*sqe));
	r->ring_ops++;
	return sqe;
}

void uring_attach(struct io_uring_sqe *sqe, struct uring_op *op)
{
	sqe->user_data = (uintptr_t)op;
}

void reactor_cancel(struct reactor *r, struct uring_op *op)
{
	struct io_uring_sqe *sqe = reactor_sqe(r);

	io_uring_prep_cancel64(sqe, (uintptr_t)op, 0);
	uring_attach(sqe, NULL);
	r->own_ops++;
}

static void complete(struct reactor *r, struct uring_op *op, int res, uint32_t flags)
{
	if (!(flags & IORING_CQE_F_MORE))
		r->ring_ops--;
	if (op)
		op->done(op, res, flags);
	else
		r->own_ops--; /* only cancels have no op */
}

uint32_t ring_run_completions(struct reactor *r)
{
	uint32_t n = io_uring_cq_ready(&r->ring);

	if (n > CQE_BATCH)
		n = CQE_BATCH;
	for (uint32_t i = 0; i < n; i++) {
		struct io_uring_cqe *cqe = NULL, copy;

		io_uring_peek_cqe(&r->ring, &cqe);
		copy = *cqe; /* its place may be reused once seen, and done() may submit */
		io_uring_cqe_seen(&r->ring, cqe);
		complete(r, (struct uring_op *)(uintptr_t)copy.user_data, copy.res, copy.flags);
	}
	return n;
}

void ring_enter(struct reactor *r, uint64_t timeout_ns)
{
	struct __kernel_timespec ts = {.tv_sec = (int64_t)(timeout_ns / NS_PER_S),
				       .tv_nsec = (long long)(timeout_ns % NS_PER_S)};
	struct io_uring_cqe *cqe;

	if (!timeout_ns && !io_uring_sq_ready(&r->ring) && !ring_has_task_work(r))
		return;
	metric_add(METRIC_URING_ENTER, 1);
	/* Failures (EINTR, ETIME, EAGAIN, EBUSY) leave the rest queued for the next turn. */
	if (!timeout_ns)
		(void)io_uring_submit_and_get_events(&r->ring);
	else
		(void)io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1,
						       timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
}

void ring_abort_queued(struct reactor *r)
{
	struct io_uring_sq *sq = &r->ring.sq;

	for (uint32_t n = sq->sqe_tail - sq->sqe_head; n; n--) {
		struct io_uring_sqe *sqe = &sq->sqes[sq->sqe_head++ & *sq->kring_mask];

		complete(r, (struct uring_op *)(uintptr_t)sqe->user_data, -ECANCELED, 0);
	}
	if (sq->sqe_head == sq->sqe_tail)
		sq->sqe_head = sq->sqe_tail = *sq->ktail; /* the kernel never saw them */
}

void ring_cancel_all(struct reactor *r)
{
	struct io_uring_sqe *sqe = reactor_sqe(r);

	io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
	r->own_ops++;
	(void)io_uring_submit_and_get_events(&r->ring);
}

/* ---- the pool ---- */

static int register_error(struct err *err, int rc, uint64_t bytes)
{
	struct rlimit lim = {0};

	err_sys(err, rc, "cannot register %lu MiB of buffers with io_uring",
		(unsigned long)(bytes >> 20));
	if (rc != -ENOMEM)
		return rc;
	(void)getrlimit(RLIMIT_MEMLOCK, &lim);
	return err_cure(
		err,
		"RLIMIT_MEMLOCK is %lu KiB: set LimitMEMLOCK=infinity (ulimit -l unlimited),"
		" or make the buffer pool smaller",
		(unsigned long)(lim.rlim_cur >> 10));
}

int reactor_register_pool(struct reactor *r, struct pool *pool, struct err *err)
{
	uint32_t n = pool_slab_count(pool);
	struct iovec *iov = (struct iovec *)calloc(n, sizeof(*iov));
	uint64_t bytes = 0;
	int rc;

	r->pool = pool;
	if (!iov)
		return err_set(err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		iov[i].iov_base = pool_slab(pool, i, &iov[i].iov_len);
		bytes += iov[i].iov_len;
	}
	rc = io_uring_register_buffers(&r->ring, iov, n);
	free(iov);
	if (rc < 0)
		return register_error(err, rc, bytes);
	r->fixed = true;
	return 0;
}

struct pool *reactor_pool(struct reactor *r)
{
	return r->pool;
}

bool reactor_pool_fixed(const struct reactor *r)
{
	return r->fixed;
}
