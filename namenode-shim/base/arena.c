/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define CHUNK_BYTES 8160 /* what one small call needs; larger pieces get a chunk of their own */

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, size;
	_Alignas(16) char data[];
};

static void *check(void *p, size_t len)
{
	if (p)
		return p;
	log_error(
		"op=exit: out of memory, %zu bytes were wanted; give the NameNode more memory, then start it again",
		len);
	abort();
}

static struct arena_chunk *chunk_new(size_t size, struct arena_chunk *next)
{
	struct arena_chunk *c = check(malloc(sizeof(*c) + size), size);

	*c = (struct arena_chunk){.next = next, .size = size};
	return c;
}

/* Not zeroed. */
static void *take(struct arena *a, size_t len)
{
	struct arena_chunk *c = a->head;

	len = (len + 15) & ~(size_t)15;
	if (!c || c->size - c->used < len) {
		c = chunk_new(len > CHUNK_BYTES ? len : CHUNK_BYTES, c);
		a->head = c;
	}
	c->used += len;
	return c->data + c->used - len;
}

void *arena_alloc(struct arena *a, size_t len)
{
	return memset(take(a, len), 0, len);
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
	char *p = take(a, len + 1);

	memcpy(p, s, len);
	p[len] = '\0';
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
	char *s = NULL, *copy;
	const int n = vasprintf(&s, fmt, ap);

	copy = arena_strndup(a, check(n < 0 ? NULL : s, 0), (size_t)n);
	free(s);
	return copy;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *s;

	va_start(ap, fmt);
	s = arena_vprintf(a, fmt, ap);
	va_end(ap);
	return s;
}

void arena_free(struct arena *a)
{
	while (a->head != a->kept) { /* which is the oldest, or there is none */
		struct arena_chunk *next = a->head->next;

		free(a->head);
		a->head = next;
	}
	if (a->kept)
		a->kept->used = 0;
}

void arena_keep(struct arena *a)
{
	a->head = a->kept = chunk_new(CHUNK_BYTES, NULL);
}

void arena_fini(struct arena *a)
{
	a->kept = NULL;
	arena_free(a);
}

void *xrealloc(void *p, size_t len)
{
	return check(realloc(p, len), len);
}

void *xcalloc(size_t n, size_t size)
{
	return check(calloc(n, size), n * size);
}

char *xstrdup(const char *s)
{
	return check(strdup(s), strlen(s));
}
