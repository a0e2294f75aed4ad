/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * by_inode - where a request goes that names a file by its path alone, about a file that is known
 * by its inode
 *
 * Idea: delete and recoverLease have no field for the inode, and the path may be another file's by
 * now. A NameNode takes "/.reserved/.inodes/ID" for the file, wherever it is. A router
 * (Router-based federation) asks its default name space about such a path, where the number is
 * another file's. So the path by inode is for servers that are known to be NameNodes. For others it
 * is the path, after getFileInfo has shown that the file there has this inode. Between that answer
 * and the request another client may put another file there: one round trip. Requests that have the
 * field (complete, addBlock, fsync, ...) need none of this: they go by the path, and the NameNode
 * compares.
 * Threading: any thread; it asks the NameNode.
 */
#include <stdint.h>

#include "client/src/fs/fs.h"
#include "client/src/fs/path.h"

/** Where a request about file @id goes, which was made or opened at @path: *@ret is that, or @buf.
 *  -ESTALE: another file, or none, is at the path by now; or why it is not known. */
int by_inode(struct dfs *fs, const char *path, uint64_t id, char buf[PATH_BY_ID_MAX],
	     const char **ret, struct err *err);
