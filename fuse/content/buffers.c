/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SMALL_MAX (64u << 10) /* up to here malloc() is as good */

void buffers_init(struct buffers *b)
{
	*b = (struct buffers){0};
	pthread_mutex_init(&b->lock, NULL);
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

void *buffers_spare(struct buffers *b)
{
	void *p = NULL;

	pthread_mutex_lock(&b->lock);
	if (b->free_count > 0)
		p = b->free[--b->free_count];
	else if (b->made_count < BUFFERS_MAX)
		p = make_locked(b);
	pthread_mutex_unlock(&b->lock);
	return p;
}

void *buffers_get(struct buffers *b, size_t len)
{
	void *p = len > SMALL_MAX && len <= BUFFER_BYTES ? buffers_spare(b) : NULL;

	return p ? p : malloc(len);
}

/* Behind the bytes, at the end of the buffer. */
struct buffer_loan {
	struct buffers *from;
	void *p;
};

void *buffers_lend(struct buffers *b, void *p)
{
	struct buffer_loan *l = (void *)((uint8_t *)p + BUFFER_BYTES - sizeof(*l));
	bool enough;

	pthread_mutex_lock(&b->lock);
	enough = BUFFERS_MAX - b->made_count + b->free_count >= BUFFERS_KEPT;
	pthread_mutex_unlock(&b->lock);
	if (!enough)
		return NULL;
	*l = (struct buffer_loan){b, p};
	return l;
}

void buffers_return(void *loan)
{
	const struct buffer_loan *l = loan;

	buffers_put(l->from, l->p);
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
