/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * buffers - memory that bytes of read(2) and write(2) lie in on their way to and from the kernel
 *
 * Idea: the kernel pins each page of an answer before it copies it, one by one; of a huge page that
 * is one counter that stays in the CPU's cache, and for pages of 4 KiB it was a sixth of what a
 * read costs here. So there are a few buffers of one huge page each, and the one given back last is
 * given out first: its bytes are in the cache as well. Written bytes arrive in such a buffer
 * (dev_fuse.h). Small pieces, and those beyond the last buffer, are malloc()'s.
 * Threading: any number of threads.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFERS_MAX 24          /* kept until the end */
#define BUFFER_BYTES (2u << 20) /* a huge page */
#define BUFFERS_KEPT 8          /* of these, not for who keeps one for long */

struct buffers {
	pthread_mutex_t lock;
	void *made[BUFFERS_MAX]; /* owned */
	void *free[BUFFERS_MAX]; /* of those; the last one is given out first */
	uint32_t made_count, free_count;
};

void buffers_init(struct buffers *b);
/** Everything was given back. */
void buffers_fini(struct buffers *b);
/** BUFFER_BYTES of those that are kept, or NULL: all are given out. */
void *buffers_spare(struct buffers *b);
/** @len bytes, or NULL. */
void *buffers_get(struct buffers *b, size_t len);
/** Called when @p, of buffers_spare(), may be kept for as long as that takes: what gives it back is
 *  buffers_return(the result).
 *  NULL: too few are left. */
void *buffers_lend(struct buffers *b, void *p);
void buffers_return(void *loan);
/** Accepts NULL. */
void buffers_put(struct buffers *b, void *p);
