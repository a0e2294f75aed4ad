/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * shell_glob - patterns of names, as `hdfs dfs` has them: * ? [a-z] [^a] {a,b} and \ before one
 *
 * Idea: braces are expanded first, whatever they hold, slashes too; the rest matches one name
 * between slashes. Names are UTF-8, and a character is a code point; a byte that is none counts as
 * one. A name that begins with a dot is no exception.
 * Ownership: a list owns its strings. Threading: pure.
 * Source: Hadoop's fs.GlobPattern, fs.GlobExpander.
 */
#include <stdbool.h>
#include <stddef.h>

#define GLOB_ALTERNATIVES_MAX 100000

struct glob_list {
	char **text;
	size_t count, room;
};

/** Has it a character with a meaning that is not escaped? */
bool glob_is_pattern(const char *text);
/** All texts that the braces of @text stand for, in their order. -EINVAL: one is not closed;
 *  -E2BIG: more than GLOB_ALTERNATIVES_MAX; -ENOMEM. Free the list in any case. */
int glob_braces(const char *text, struct glob_list *ret);
void glob_list_free(struct glob_list *l);
/** -EINVAL: a [ is not closed within its name. */
int glob_check(const char *path);
/** Does @name match @part, which has no braces? */
bool glob_match(const char *part, const char *name);
/** Take the \ away that keep characters from having a meaning. */
void glob_unescape(char *text);
