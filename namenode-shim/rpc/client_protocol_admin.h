/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * client_protocol_admin - answers that the RPC port, /fsck and /jmx share
 *
 * Ownership: everything returned lives in the arena of the call.
 * Threading: mem_lock held for reading, or the writer thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct blk;
struct inode;
struct nn;
struct ns;

#define OPS_CORRUPT_MAX 100 /* dfs.namenode.max-corrupt-file-blocks-returned */

struct ops_corrupt {
	uint32_t n;
	const struct blk **block;
	char **path;
	const char *cookie; /* ask with this one for what follows */
};

/** Files at or below @path that have lost a block, in the order of block ids after @cookie (NULL:
 *  from the start). */
int ops_corrupt_files(struct ns *n, const struct nn *nn, const char *path, const char *cookie,
		      struct ops_corrupt *ret);
/** Does open file @n keep a node from leaving? */
bool ops_blocks_decommission(const struct nn *nn, const struct inode *n);
