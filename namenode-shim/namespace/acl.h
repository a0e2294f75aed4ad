/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * acl - POSIX access control lists of files and directories
 *
 * Idea: the permission bits are always a part of the list: of an inode whose list has more than the
 * three base entries they hold owner, mask (in the place of the group's) and others. The rest is
 * the "extra": named users, the owning group's own entry and named groups, then the default entries
 * of a directory, in this order and sorted; it is one row in table acl, and the inode's record says
 * that there is one (INODE_HAS_ACL) and whether it has access entries (INODE_HAS_ACCESS_ACL). An
 * inode without is never looked up there. What exists is enforced, also where lists cannot be
 * changed (dfs.namenode.acls.enabled false). acl_edit.c has the rules by which a list changes; they
 * know no inode.
 * Ownership: everything returned lives in the arena of the call; a name "" is none.
 * Threading: that of the transaction.
 * Source: Hadoop 3.4.2 AclTransformation, AclStorage, FSPermissionChecker; messages are worded
 * after them.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct arena;
struct inode;
struct ns;
struct txn;

#define ACL_SCOPE_MAX 32 /* entries of one scope, as HDFS */
#define ACL_MAX (2 * ACL_SCOPE_MAX)
#define ACL_EDIT_MAX (2 * ACL_MAX + 8) /* two lists, copied default entries, masks */
#define ACL_BASE 3 /* owner, group and others: a list of these is the permission bits */

enum acl_scope { ACL_ACCESS, ACL_DEFAULT };                 /* wire */
enum acl_type { ACL_USER, ACL_GROUP, ACL_MASK, ACL_OTHER }; /* wire */

struct acl_entry {
	uint8_t scope, type; /* enums */
	uint8_t perm;        /* enum access */
	const char *name;
};

struct acl {
	struct acl_entry e[ACL_EDIT_MAX];
	uint32_t n;
};

/* ---- acl_edit.c: lists of all entries, base ones and masks included ---- */

/** By scope, kind and name: -1, 0, 1. */
int acl_compare(const struct acl_entry *a, const struct acl_entry *b);
/** Each sets *@ret or fails with -EINVAL and HDFS's sentence. @spec is what a client sent, at most
 * ACL_EDIT_MAX. */
int acl_merge(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err);
int acl_filter(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err);
int acl_replace(const struct acl *old, struct acl *spec, struct acl *ret, struct err *err);
int acl_without_default(const struct acl *old, struct acl *ret, struct err *err);

/* ---- acl.c ---- */

/** The extra entries. -EBADMSG. */
int acl_get(struct txn *t, const struct inode *n, struct arena *a, struct acl *ret);
/** For an inode that is going. */
int acl_del(struct txn *t, uint64_t inode);
/** Does the list of @node, which has access entries, give the caller @access? A row that cannot be
 * read gives nothing. */
bool acl_allows(struct ns *n, const struct inode *node, unsigned int access);
/** @child is new in @up, has the bits that its creator's umask left and no record yet: give it what
 *  the default entries say, if there are any. @unmasked: the bits before the umask; NULL: not
 *  known. */
int acl_inherit(struct ns *n, const struct inode *up, struct inode *child,
		const uint16_t *unmasked);

enum acl_change {
	ACL_CHANGE_MERGE,
	ACL_CHANGE_FILTER,
	ACL_CHANGE_REPLACE,
	ACL_CHANGE_NO_DEFAULT,
	ACL_CHANGE_NONE
};
/** @spec: not looked at by the last two. */
int acl_change(struct ns *n, const char *path, enum acl_change how, struct acl *spec);
/** The inode, and its extra entries. */
int acl_status(struct ns *n, const char *path, struct inode **ret, struct acl *ret_acl);
