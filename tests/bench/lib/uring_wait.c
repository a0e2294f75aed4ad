/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into programs with reactors that run under callgrind (tests/bench/cost).
 *
 * Valgrind 3.19 holds its one lock while a thread sleeps in io_uring_enter, so the other threads
 * would stand still, and takes no registered ring descriptor. The wait becomes short sleeps, which
 * are not counted. What submits and what completes stays the program's own. */
#include <errno.h>
#include <liburing.h>
#include <stdint.h>
#include <time.h>
#include <valgrind/callgrind.h>

#define NAP_NS 50000
#define NS_PER_S 1000000000ll

int io_uring_register_ring_fd(struct io_uring *ring)
{
	(void)ring;
	return -EINVAL;
}

int io_uring_unregister_ring_fd(struct io_uring *ring)
{
	(void)ring;
	return -EINVAL;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int wait_some(struct io_uring *ring, const struct __kernel_timespec *ts)
{
	const int64_t end = ts ? now_ns() + ts->tv_sec * NS_PER_S + ts->tv_nsec : INT64_MAX;
	int rc = 0;

	while (rc >= 0 && !io_uring_cq_ready(ring) && now_ns() < end) {
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		rc = io_uring_get_events(ring);
	}
	return rc;
}

/* Threads of tests/bench/fake_rdma.c that play a device. */
void fake_card_begins(void)
{
	CALLGRIND_TOGGLE_COLLECT;
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
				     unsigned int wait_nr, struct __kernel_timespec *ts,
				     sigset_t *mask)
{
	int rc = io_uring_submit_and_get_events(ring);

	(void)cqe, (void)wait_nr, (void)mask;
	if (rc < 0 || io_uring_cq_ready(ring))
		return rc;
	CALLGRIND_TOGGLE_COLLECT;
	rc = wait_some(ring, ts);
	CALLGRIND_TOGGLE_COLLECT;
	return rc;
}
