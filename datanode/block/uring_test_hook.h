/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: uring_test_hook - a test sees, and may change, what is about to be given to io_uring
 *
 * Its program is linked with -Wl,--wrap for both functions, and includes this once.
 */
#include <liburing.h>

static void (*uring_hook)(struct io_uring_sqe *sqe); /* NULL: none */

static inline void uring_look(const struct io_uring *ring)
{
	for (unsigned i = ring->sq.sqe_head; uring_hook && i != ring->sq.sqe_tail; i++)
		uring_hook(&ring->sq.sqes[i & ring->sq.ring_mask]);
}

int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	uring_look(ring);
	return __real_io_uring_submit_and_get_events(ring);
}

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask)
{
	uring_look(ring);
	return __real_io_uring_submit_and_wait_timeout(ring, cqe, n, ts, mask);
}
