/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * tree_delete - large trees that were deleted, and are removed in slices
 *
 * Idea: a delete of a large tree takes its top out of its directory and writes the top's id into a
 * table (doomed), in one short change. From then on no path leads to the tree, and its inodes have
 * none (inode_path() is -ENOENT): for everybody it is gone. Internal changes then remove its names,
 * inodes and blocks, a slice each, until nothing is left. Several trees take turns, and a start
 * goes on with those that the table lists. A file of the tree that was open may still be closed by
 * recovery of its lease.
 * Space and names are given back to the quotas of the directories that were above it, which the
 * record names. The caller who deleted a tree below a quota is answered when all is given back, or
 * at once in safe mode, where no slice is made.
 * On disk: key id of the top; value ids of the directories with quotas above it, all big endian.
 * Threading: writer thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inode;
struct method;
struct nn;
struct ns;
struct txn;

#define TREE_DELETE_SLICE 2048 /* names and blocks of a change */

/* Tops of trees of which the rest cannot be read. They wait for a start after the name directory
 * was mended. */
struct tree_delete_broken {
	uint64_t *top; /* owned array */
	size_t n;
};

/** @top, which was taken out of @up and whose record may be written anew, goes with all below it.
 */
int tree_delete_add(struct ns *n, const struct inode *up, struct inode *top);
/** Is there any? */
bool tree_delete_any(struct txn *t);
/** Something in the deleted tree of @top has changed: the quotas that were above it count so much
 * more. */
int tree_delete_charge(struct txn *t, uint64_t top, int64_t inodes, int64_t space);
/** @dir has a new quota, which counts nothing of trees that go. */
int tree_delete_forget_quota(struct txn *t, uint64_t dir);
/** The tree of @top cannot be read: the others go without it. */
void tree_delete_leave(struct tree_delete_broken *b, uint64_t top);
void tree_delete_fini(struct tree_delete_broken *b);
/** Internal change: the next slice. */
extern const struct method tree_delete_method;
