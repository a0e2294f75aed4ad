/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * quota - limits on names and bytes below a directory
 *
 * Idea: a directory with a quota has a record of its limits and of what is used below it; every
 * change walks from its directory to the root and adds what it adds. Without any quota in the
 * namespace (the ordinary case) nothing is walked. Bytes are those of all replicas; the last block
 * of an open file counts as a full block, as in HDFS, so that a writer that got a block may fill
 * it.
 * Order: quota_check() before the first write of a change, quota_charge() with its writes.
 * Threading: that of the transaction.
 * Source: HDFS Quotas Guide; hdfs-wire 3.5.
 */
#include <stdbool.h>
#include <stdint.h>

#include "namenode-shim/namespace/inode.h"

struct ns;
struct txn;

#define QUOTA_NONE UINT64_MAX            /* on the wire: -1 */
#define QUOTA_KEEP ((uint64_t)INT64_MAX) /* setQuota: leave this one as it is */

struct quota {
	uint64_t max_inodes, max_space; /* QUOTA_NONE: no limit */
	uint64_t inodes, space;         /* used; the directory itself counts */
};

/* What a subtree counts. */
struct quota_sum {
	int64_t inodes, space;
};

/** Is there any quota? */
bool quota_any(struct txn *t);
/** -ENOENT: the directory has none. */
int quota_get(struct txn *t, uint64_t dir, struct quota *ret);
int quota_put(struct txn *t, uint64_t dir, const struct quota *q);
int quota_del(struct txn *t, uint64_t dir);
/** Count the subtree of @node; zeros when there is no quota anywhere. */
int quota_sum(struct ns *n, const struct inode *node, struct quota_sum *ret);
/** May @inodes and @space be added below @dir? NSQuotaExceededException, DSQuotaExceededException.
 */
int quota_check(struct ns *n, const struct inode *dir, int64_t inodes, int64_t space);
/** The same for what moves from @from to @to: directories above both do not count it twice. */
int quota_check_move(struct ns *n, const struct inode *from, const struct inode *to, int64_t inodes,
		     int64_t space);
/** Add to every quota at and above @dir; of a deleted tree, to those that were above it. */
int quota_charge(struct ns *n, uint64_t dir, int64_t inodes, int64_t space);
/** Take off that of @dir alone, if it has one. */
int quota_release(struct txn *t, uint64_t dir, int64_t inodes, int64_t space);
/** Set (QUOTA_NONE takes away, QUOTA_KEEP leaves) the limits of directory @path. */
int quota_set(struct ns *n, const char *path, uint64_t max_inodes, uint64_t max_space);
