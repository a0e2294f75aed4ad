/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** ns_internal - what ns.c, ns_delete.c, ns_rename.c, ns_replace.c and ns_attr.c share */
#include "namenode-shim/namespace/ns.h"

#define PERM_UWX 0300

/* Directories of a subtree, parents first. */
struct dir_list {
	struct ns *n;
	uint64_t *id; /* owned */
	size_t count, size;
};

/** -EACCES: the sticky bit of @dir keeps @node there. */
int ns_refuse_sticky(struct ns *n, const struct inode *node, const char *path,
		     const struct inode *dir, const char *dir_path);
void count_inodes(struct ns *n, int64_t delta);
/** Names, reserved words and room in the directory, before something is made at the missing path
 * @w. */
int check_names(struct ns *n, const struct ns_path *w);
/** Enter @node under @up; the caller puts @up afterwards. */
int attach(struct ns *n, struct inode *up, struct inode *node);
/** Take @node's name out of @up; the caller puts @up afterwards. */
int detach(struct ns *n, struct inode *up, const struct inode *node);
/** Effects of a file that ceases to be. */
void forget_file(struct ns *n, const struct inode *file);
void dir_push(struct dir_list *l, uint64_t id);
/** Remove @node, which its directory has already let go, and all below it (@dirs, itself included
 *  when it is a directory with children). */
int drop_tree(struct ns *n, const struct inode *node, const struct dir_list *dirs);
/** -EACCES: @w is one of fs.protected.directories and not empty. */
int check_protected(struct ns *n, const struct ns_path *w);
/** Something of directory @dir has changed that counts for who may delete it: a directory came, or
 *  its rights or owner are others; or anything came into one with a sticky bit, or into an empty
 *  one. */
void tree_changed(struct txn *t, uint64_t dir);
