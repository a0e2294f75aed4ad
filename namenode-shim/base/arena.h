/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * arena - memory that lives exactly as long as one call
 *
 * Idea: inode copies, names and answers of a call are many small pieces with one common end. They
 * are cut from chunks and freed together when the call has been answered.
 * Out of memory ends the process with a line in the log: everything acknowledged is on disk, and a
 * NameNode that answers at random without memory is worse than one that restarts.
 * Ownership: whoever holds the struct calls arena_free(). Threading: one thread at a time.
 */
#include <stdarg.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
	struct arena_chunk *head; /* owned; NULL when empty */
	struct arena_chunk *kept; /* owned: the chunk that arena_free() leaves; NULL: none */
};

/** Zeroed, 16-byte aligned; never NULL. */
void *arena_alloc(struct arena *a, size_t len);
/** NUL-terminated copy. */
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
/** Frees everything but a chunk that is kept; the arena may be used again. */
void arena_free(struct arena *a);
/** An empty arena gets a chunk that it keeps, for who uses it again and again: arena_fini() frees
 * that. */
void arena_keep(struct arena *a);
void arena_fini(struct arena *a);

/** malloc family that ends the process when memory is out; for what outlives a call. */
void *xrealloc(void *p, size_t len);
void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *s);

#define arena_new(a, type) ((type *)arena_alloc(a, sizeof(type)))
#define arena_array(a, type, n) ((type *)arena_alloc(a, (n) * sizeof(type)))
