/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * xattr - extended attributes of files and directories
 *
 * Idea: an inode with attributes says so in its own record (INODE_HAS_XATTRS) and has one row in
 * table xattr with all of them, the one set last first. An inode without (the ordinary case) is
 * never looked up there.
 * Name spaces and rights are HDFS's: user attributes belong to who may read or write the path, of a
 * sticky directory to its owner; trusted ones to the super-user; raw ones show below /.reserved/raw
 * only; security and system ones are nobody's, but for one: XATTR_UNREADABLE. XATTR_SATISFY is the
 * NameNode's own.
 * Ownership: everything returned lives in the arena of the call.
 * Threading: that of the transaction.
 * Source: Hadoop 3.4.2 FSDirXAttrOp, XAttrPermissionFilter; messages are worded after it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct inode;
struct ns;
struct txn;

#define XATTRS_PER_INODE 32       /* user and trusted ones; the default of HDFS */
#define XATTRS_PER_INODE_MAX 1024 /* that may be configured */
#define XATTRS_HIDDEN_MAX 32      /* of the other name spaces, which HDFS does not count */
#define XATTR_BYTES 16384         /* of name and value; the default of HDFS */
#define XATTR_BYTES_MAX 32768     /* as HDFS */

/* In this space, on a file: the super-user may not read the file. It has no value and stays. */
#define XATTR_UNREADABLE "hdfs.unreadable.by.superuser"

/* In the system space, without a value: satisfyStoragePolicy was asked for
 * (storage_policy_satisfier.h). Nobody sees it; as in HDFS. */
#define XATTR_SATISFY "hdfs.sps"

/* wire */
enum xattr_space {
	XATTR_USER,
	XATTR_TRUSTED,
	XATTR_SECURITY,
	XATTR_SYSTEM,
	XATTR_RAW,
	XATTR_SPACES
};
enum xattr_flag { XATTR_CREATE = 1, XATTR_REPLACE = 2 }; /* wire */

struct xattr {
	uint8_t space; /* enum xattr_space */
	const char *name;
	/* NULL: none, which is not told from an empty one when it is read back */
	const void *value;
	uint32_t len;
};

struct xattrs {
	struct xattr *a;
	uint32_t n;
};

/** All of them. -EBADMSG. */
int xattrs_get(struct txn *t, const struct inode *n, struct arena *a, struct xattrs *ret);
/** Set or take away XATTR_SATISFY; the caller puts @n, if *ret_changed. */
int xattrs_mark(struct txn *t, struct inode *n, struct arena *a, bool on, bool *ret_changed);
int xattrs_marked(struct txn *t, const struct inode *n, struct arena *a, bool *ret);
/** For an inode that is going. */
int xattrs_del(struct txn *t, uint64_t inode);

/** May all of @wanted be asked for, and then: those of @path the caller may see; with @wanted only
 *  these, XAttrNotFoundException unless all are there. */
int xattr_list(struct ns *n, const char *path, const struct xattrs *wanted, struct xattrs *ret);
int xattr_set(struct ns *n, const char *path, const struct xattr *x, unsigned int flags);
int xattr_remove(struct ns *n, const char *path, const struct xattr *x);
/** AccessControlException: the caller is the super-user and the file is not for it. */
int xattr_check_readable(struct ns *n, const struct inode *file);
