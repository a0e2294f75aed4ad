/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * lib/checks - PASS and FAIL lines, and names below the directory that a test has for itself on the
 * cluster
 *
 * For programs of one source file: each has its own copy of what is here. Set @dir before at() is
 * used; exit with failures != 0.
 */
#include <stdarg.h>
#include <stdio.h>

static char dir[64];
static int failures;

/** The path of @name below @dir; good until the fourth call after this one. */
static inline const char *at(const char *name)
{
	static char path[4][256];
	static unsigned int turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

/** One line; a FAIL is counted. */
__attribute__((format(printf, 2, 3))) static inline void check(int ok, const char *fmt, ...)
{
	va_list ap;

	printf(ok ? "PASS " : "FAIL ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	failures += !ok;
}
