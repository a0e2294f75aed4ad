/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * copy - the list of files to move and the threads that move them
 *
 * Idea: put and get first walk their sources (making directories on the way), then several threads
 * take files off the list. A copy appears under its own name only when it is whole: it is written
 * to NAME._COPYING_.<random>, which nobody else has, and renamed. SIGINT and SIGTERM end the copies
 * in progress and remove what is half written.
 * Ownership: the list owns its strings.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/cli.h"
#include "tools/progress.h"

#define COPY_SUFFIX "._COPYING_"
#define COPY_BUFFER (1u << 20)
/* What a thread has of dfs_buf_alloc(): more than a file that is written has on its way */
#define COPY_BUFFERS 16u

struct copy_item {
	char *src, *dst;
	uint64_t size; /* as seen by the walk; 0: unknown or empty */
	uint32_t mode;
};

struct copy {
	struct cli *cli;
	struct copy_item *item;
	size_t count, cap;
	uint64_t bytes;
	atomic_size_t next;
	struct progress progress;
	atomic_uint_fast64_t files_done;
	/** Copy one file, by @buf of COPY_BUFFERS * COPY_BUFFER bytes; says itself what went wrong.
	 *  0 or an exit code. */
	int (*one)(struct copy *c, const struct copy_item *it, void *buf);
};

/** Takes both strings. */
void copy_add(struct copy *c, char *src, char *dst, uint64_t size, uint32_t mode);
/** A name of its own for a copy of @dst until it is whole, malloc'ed; exits when out of memory. */
char *copy_tmp_name(const char *dst);
/** Report an error of the library about @tmp as one about @dst. Always EXIT_FAIL. */
int copy_fail(struct copy *c, const struct copy_item *it, const char *tmp, const char *text);
/** Warn that @tmp, made for a copy of @dst that failed, could not be deleted. */
void copy_left(struct cli *cli, const char *dst, const char *tmp, const struct dfs_err *why);
/** Does @path end in a slash? Then a directory is meant. */
bool copy_wants_dir(const char *path);
/** Run all, print the JSON summary when asked; frees the list. Exit code. */
int copy_run(struct copy *c);
/** SIGINT and SIGTERM only leave word; a second one ends the process. */
void copy_catch_signals(void);
/** True after one of them. */
bool copy_interrupted(void);
