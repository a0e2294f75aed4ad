/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cleanup - release a local at the end of its scope
 *
 * Idea: for temporary resources in slow-path functions. A function has cleanup variables or a goto,
 * never both: a jump over a cleanup variable runs the destructor on garbage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_(void *p)
{
	free(*(void **)p);
}
static inline void cleanup_close_(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}
static inline void cleanup_fclose_(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(cleanup_free_)
#define _cleanup_close_ _cleanup_(cleanup_close_)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose_)
