/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * path - a caller's path, made into the absolute path that the NameNode wants
 *
 * Idea: "//", "." and ".." are resolved here because the NameNode refuses them; relative paths
 * start at /user/<user>, as everywhere in Hadoop. Threading: pure.
 */
#include <stdint.h>

#include "common/base/err.h"

#define PATH_TEXT_MAX 8001 /* with NUL; the NameNode's limit is 8000 */

#define PATH_BY_ID_MAX 48

/** "/.reserved/.inodes/ID", which names a file wherever it is, into @buf, which is returned. */
char *path_by_id(char buf[PATH_BY_ID_MAX], uint64_t id);
/** Into @buf[PATH_TEXT_MAX]. -EINVAL (empty, ':' scheme left in, not UTF-8), -ENAMETOOLONG. */
int path_resolve(const char *user, const char *path, char *buf, struct err *err);
