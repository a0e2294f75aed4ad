/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * append - open an existing file for writing at its end
 *
 * Idea: append() at the NameNode takes the lease and names the last block, unless that is full. Its
 * checksum is asked from a node that has it, because a chunk that was begun in one kind of checksum
 * cannot be filled in another. Then the writer goes on behind it (writer_reopen()).
 * Threading: any thread. Source: hdfs-wire 3.6 (4), 5.6, 8.1.
 */
#include "client/src/write/writer.h"

/** @path is absolute; @flags: enum dfs_append_flags. Errors as dfs_append(). */
int append_open(struct dfs *fs, const char *path, uint32_t flags, struct output **ret,
		struct err *err);
