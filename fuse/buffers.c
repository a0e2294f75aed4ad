/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SMALL_MAX (64u << 10) /* up to here malloc() is as good */

void buffers_init(struct buffers *b)
{
	*b = (struct buffers){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void buffers_fini(struct buffers *b)
{
	while (b->made_count > 0)
		free(b->made[--b->made_count]);
	pthread_mutex_destroy(&b->lock);
}

static void *make_locked(struct buffers *b)
{
	void *p = aligned_alloc(BUFFER_BYTES, BUFFER_BYTES);

	if (!p)
		return NULL;
	(void)madvise(p, BUFFER_BYTES, MADV_HUGEPAGE); /* small pages hold the same bytes */
	b->made[b->made_count++] = p;
	return p;
}

void *buffers_get(struct buffers *b, size_t len)
{
	void *p = NULL;

	if (len <= SMALL_MAX || len > BUFFER_BYTES)
		return malloc(len);
	pthread_mutex_lock(&b->lock);
	if (b->free_count > 0)
		p = b->free[--b->free_count];
	else if (b->made_count < BUFFERS_MAX)
		p = make_locked(b);
	pthread_mutex_unlock(&b->lock);
	return p ? p : malloc(len);
}

void buffers_put(struct buffers *b, void *p)
{
	bool ours = false;

	if (!p)
		return;
	pthread_mutex_lock(&b->lock);
	for (uint32_t i = 0; i < b->made_count && !ours; i++)
		ours = b->made[i] == p;
	if (ours)
		b->free[b->free_count++] = p;
	pthread_mutex_unlock(&b->lock);
	if (!ours)
		free(p);
}
