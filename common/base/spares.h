/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * spares - memory of objects of one size that come and go, kept for the next ones
 *
 * Idea: where an object lives only as long as a read of 4 KiB, to allocate it and to make all of it
 * zero costs more than to use it. What was used last is taken first, since the caches have it.
 * Ownership: what is kept is the list's; what spares_get() gave is the caller's until spares_put().
 * Threading: the owner's thread.
 * Errors: NULL is no memory. What is kept is poisoned under ASan.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, len) ((void)(at), (void)(len))
#define ASAN_UNPOISON_MEMORY_REGION(at, len) ((void)(at), (void)(len))
#endif

struct spare {
	struct spare *next;
};
struct spares {              /* all zero: nothing is kept */
	struct spare *first; /* each lies in the memory that it stands for */
	uint32_t count;
};

/** Memory of @size bytes, at least those of a pointer: of a list always as many. What is in it is
 *  left over from the last user. */
static inline void *spares_get(struct spares *s, size_t size)
{
	struct spare *p = s->first;

	if (!p)
		return malloc(size);
	s->first = p->next;
	s->count--;
	ASAN_UNPOISON_MEMORY_REGION(p, size);
	return p;
}

/** Keep it, unless @max are kept already. */
static inline void spares_put(struct spares *s, void *memory, size_t size, uint32_t max)
{
	struct spare *p = memory;

	if (s->count >= max) {
		free(memory);
		return;
	}
	p->next = s->first;
	s->first = p;
	s->count++;
	ASAN_POISON_MEMORY_REGION(p + 1, size - sizeof(*p)); /* LeakSanitizer follows next */
}

/** Free what is kept. */
static inline void spares_fini(struct spares *s)
{
	while (s->first) {
		struct spare *p = s->first;

		s->first = p->next;
		free(p);
	}
	s->count = 0;
}
