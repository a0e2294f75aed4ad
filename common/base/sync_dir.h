/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** sync_dir - the names in a directory, made, renamed and removed, are on the disk when it returns
 * 0 */
#include <fcntl.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"

/** @at: a directory's descriptor or AT_FDCWD, as of openat(). -errno. */
static inline int sync_dir_at(int at, const char *dir)
{
	_cleanup_close_ int fd = ret_errno(openat(at, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	return fd < 0 ? fd : ret_errno(fsync(fd));
}
