/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * buffers - memory that bytes of read(2) and write(2) lie in on their way to and from the kernel
 *
 * Idea: the kernel pins each page of an answer before it copies it, one by one; of a huge page that is one counter that stays in
 * the CPU's cache, and for pages of 4 KiB it was a sixth of what a read costs here. So there are a few buffers of one huge page
 * each, and the one given back last is lent first: its bytes are in the cache as well. Written bytes come out of a pipe into such
 * a buffer. Small pieces, and those beyond the last buffer, are malloc()'s.
 * Threading: any number of threads.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFERS_MAX 8           /* kept until the end */
#define BUFFER_BYTES (2u << 20) /* a huge page */

struct buffers {
	pthread_mutex_t lock;
	void *made[BUFFERS_MAX]; /* owned */
	void *free[BUFFERS_MAX]; /* of those, lent last first */
	uint32_t made_count, free_count;
};

void buffers_init(struct buffers *b);
/** Everything was given back. */
void buffers_fini(struct buffers *b);
/** @len bytes, or NULL. */
void *buffers_get(struct buffers *b, size_t len);
/** Accepts NULL. */
void buffers_put(struct buffers *b, void *p);
