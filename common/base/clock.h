/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** clock - monotonic nanoseconds for deadlines, condition variables that wait for them, wall
 *  milliseconds for Java's timestamps */
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

static inline uint64_t clock_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}
/** From @then to @now; 0 when another thread was later with @then than this one with @now. */
static inline uint64_t clock_between(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}
static inline uint64_t clock_wall_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}
/** A condition variable whose timed waits take CLOCK_MONOTONIC. */
static inline void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr); /* none of these can fail on Linux */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}
