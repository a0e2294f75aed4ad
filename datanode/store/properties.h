/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * properties - Java properties files, as far as VERSION needs them
 *
 * Idea: VERSION files are written by java.util.Properties; they must be read with its escapes and
 * written so that it reads them back. A write replaces the file atomically and durably.
 * Ownership: struct props owns its text; props_fini() accepts a zeroed one.
 * Threading: the owner's.
 * Source: java.util.Properties.load(Reader); hdfs-wire 6.
 */
#include <stdint.h>

#define PROPS_MAX 32         /* entries kept; later ones are an error */
#define PROPS_FILE_MAX 65536 /* bytes of a file */

struct prop {
	const char *key, *value;
};

struct props {
	char *text; /* owned; keys and values point into it */
	struct prop list[PROPS_MAX];
	uint32_t count;
};

/** -ENOENT, -EFBIG (larger than PROPS_FILE_MAX or PROPS_MAX entries), -EINVAL (bad escape), -EIO.
 */
int props_read(int dir_fd, const char *name, struct props *ret);
void props_fini(struct props *p);
/** NULL when absent. */
const char *props_get(const struct props *p, const char *key);
/** Write @name through a temporary file, fsync it, rename it, fsync the directory. */
int props_write(int dir_fd, const char *name, const struct prop *list, uint32_t count);
/** Parse @text (modified in place, NUL-terminated); what props_read() does after reading. */
int props_parse(char *text, struct props *ret);
