/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD library of tests/vm/powercut: every order to write to the disk is answered at once and
 * not obeyed, also one that goes through liburing. The test must find out. */
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOT_OBEYED __attribute__((visibility("default")))

NOT_OBEYED int fsync(int fd)
{
	(void)fd;
	return 0;
}

NOT_OBEYED int fdatasync(int fd)
{
	(void)fd;
	return 0;
}

NOT_OBEYED int syncfs(int fd)
{
	(void)fd;
	return 0;
}

NOT_OBEYED int msync(void *at, size_t len, int flags)
{
	(void)at, (void)len, (void)flags;
	return 0;
}

NOT_OBEYED int sync_file_range(int fd, off64_t at, off64_t len, unsigned int flags)
{
	(void)fd, (void)at, (void)len, (void)flags;
	return 0;
}

/* What waits to be submitted loses its syncs. */
static void drop_syncs(const struct io_uring *ring)
{
	for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & ring->sq.ring_mask];

		if (sqe->opcode == IORING_OP_FSYNC) {
			sqe->opcode = IORING_OP_NOP;
			sqe->fsync_flags = 0;
		}
	}
}

NOT_OBEYED int io_uring_submit_and_get_events(struct io_uring *ring)
{
	int (*next)(struct io_uring *) = dlsym(RTLD_NEXT, __func__);

	drop_syncs(ring);
	return next(ring);
}

NOT_OBEYED int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
						unsigned wait, struct __kernel_timespec *ts,
						sigset_t *mask)
{
	int (*next)(struct io_uring *, struct io_uring_cqe **, unsigned, struct __kernel_timespec *,
		    sigset_t *) = dlsym(RTLD_NEXT, __func__);

	drop_syncs(ring);
	return next(ring, cqe, wait, ts, mask);
}
