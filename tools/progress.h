/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * progress - one line on a terminal: bar, rate, time left
 *
 * Idea: workers add bytes; a thread redraws ten times a second. Nothing is drawn, and no thread
 * started, unless standard error is a terminal and the caller wants it.
 * Threading: progress_add() any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	_Atomic uint64_t bytes, files;
	uint64_t total_bytes, total_files; /* total_bytes 0: unknown */
	uint64_t start_ns;
	/* private */
	bool drawn;
	atomic_bool stop;
	pthread_t thread;
};

void progress_start(struct progress *p, uint64_t total_bytes, uint64_t total_files, bool wanted);
static inline void progress_add(struct progress *p, uint64_t bytes)
{
	atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
}
/** Draws the last state and ends the line. Returns the seconds since the start. */
double progress_end(struct progress *p);
