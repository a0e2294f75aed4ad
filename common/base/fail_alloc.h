/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * fail_alloc - make the n-th allocation of a test fail
 *
 * Idea: include this in one file of a test program linked with fail_alloc_link_args, set
 * fail_alloc_in to n >= 0, and the n-th allocation from now (0: the next) of this thread, by the
 * modules under test, returns NULL. Loop over n until fail_alloc_in is not used up.
 * Threading: counts per thread.
 */
#include <stdbool.h>
#include <stddef.h>

static _Thread_local int fail_alloc_in = -1;

static inline bool fail_alloc_now(void)
{
	return fail_alloc_in >= 0 && fail_alloc_in-- == 0;
}

#define FAIL_ALLOC(name, params, args)                                                             \
	void *__real_##name params;                                                                \
	void *__wrap_##name params;                                                                \
	void *__wrap_##name params                                                                 \
	{                                                                                          \
		return fail_alloc_now() ? NULL : __real_##name args;                               \
	}

FAIL_ALLOC(malloc, (size_t n), (n))
FAIL_ALLOC(calloc, (size_t n, size_t size), (n, size))
FAIL_ALLOC(realloc, (void *p, size_t n), (p, n))
FAIL_ALLOC(strdup, (const char *s), (s))
FAIL_ALLOC(strndup, (const char *s, size_t n), (s, n))
