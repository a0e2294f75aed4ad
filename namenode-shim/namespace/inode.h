/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * inode - files, directories and symbolic links as records, and the names that lead to them
 *
 * Idea: an inode is one record under its id; a name is a directory entry (parent id, name) -> id. A
 * rename touches two entries and the record, never the subtree. The block list of a file is in its
 * record, that of a long one all but its end in rows of another table, of INODE_ROW_BLOCKS each, so
 * that a new block rewrites the end only. Where the replicas are is not here (blocks.h).
 * Ownership: inode_get() copies the record into the caller's arena; strings set by the caller are
 * borrowed until inode_put().
 * Threading: that of the transaction.
 * Units: milliseconds since 1970 for times.
 * Source: hdfs-wire 3.6 (7): ids count up from 16385, the root.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/block.h"

struct arena;
struct ec_policy;
struct txn;

#define INODE_ROOT 16385ull
#define INODE_ROW_BLOCKS 32u
#define INODE_NOWHERE 0ull  /* parent of what was deleted and goes bit by bit (tree_delete.h) */
#define INODE_NAME_MAX 255  /* bytes of one component */
#define INODE_PATH_MAX 8000 /* characters of a new path, as in HDFS */
/* components of a new path, as in HDFS; renames may make longer ones */
#define INODE_DEPTH_MAX 1000
#define INODE_STICKY 01000
#define INODE_PERM 01777           /* the bits of a mode that are kept */
#define INODE_TARGET_MAX 8000      /* bytes of what a symbolic link points to */
#define INODE_RESERVED ".reserved" /* directory of the root that exists by its rules only */
#define INODE_SNAPSHOT ".snapshot" /* a name that nothing may have */

enum inode_type { INODE_DIR = 1, INODE_FILE = 2, INODE_LINK = 3 };

/* What there is of the inode in other tables. */
enum inode_has {
	INODE_HAS_XATTRS = 1,     /* xattr.h */
	INODE_HAS_ACL = 2,        /* acl.h */
	INODE_HAS_ACCESS_ACL = 4, /* and it says who may, not only what new inodes below get */
};

struct inode_block {
	struct block b;
	bool committed; /* the client has stated its final length and stamp */
};

/* Is a file in the table of open files? */
enum inode_listed { LISTED_UNKNOWN, LISTED_NO, LISTED_YES };

struct inode {
	uint64_t id, parent;
	uint8_t type;      /* enum inode_type */
	uint8_t has;       /* bits of enum inode_has */
	uint16_t perm;     /* INODE_PERM */
	uint16_t repl;     /* files */
	uint32_t children; /* directories */
	uint64_t mtime, atime, block_size;
	const char *name; /* last component; "" for the root */
	const char *owner, *group;
	const char *client;      /* lease holder; "" = closed */
	const char *client_host; /* its address */
	const char *target;      /* of a symbolic link; else NULL */
	uint32_t nblocks;
	struct inode_block *blocks;
	uint32_t rows; /* so many the disk has of this inode; kept by inode_get() and inode_put() */
	/* those were not read: blocks are the ones behind them, which inode_put() takes for granted
	 */
	bool tail;
	/* where the tail begins: bytes of data, of all units of groups */
	uint64_t tail_len, tail_space;
	/* of a file whose blocks are groups of units; NULL: replicated */
	const struct ec_policy *ec;
	enum inode_listed listed; /* kept by inode_get() and inode_put() */
	bool truncating; /* open because its last block is being cut to truncate_to bytes */
	uint64_t truncate_to;
};

static inline bool inode_is_open(const struct inode *n)
{
	return n->client[0] != 0;
}
/** Blocks of the file, also those that were not read. */
uint32_t inode_nblocks(const struct inode *n);
/** Length of the file, all blocks. */
uint64_t inode_len(const struct inode *n);
/** Most bytes that a block of @n may have: of a group, the data of all its units. */
uint64_t inode_block_max(const struct inode *n);
/** Bytes of all replicas, or units; the last block of an open file counts as a full one. */
uint64_t inode_space(const struct inode *n);

/** -ENOENT; -EBADMSG: the record does not decode. */
int inode_get(struct txn *t, uint64_t id, struct arena *a, struct inode **ret);
/** The same, of a long file with the end of its blocks only, two at least (n->tail). */
int inode_get_tail(struct txn *t, uint64_t id, struct arena *a, struct inode **ret);
/** Insert or replace; keeps the table of open files in step. */
int inode_put(struct txn *t, struct inode *n);
int inode_del(struct txn *t, const struct inode *n);
/** What other tables have of inode @from (enum inode_has, its storage policy) @to has, too. */
int inode_copy_rows(struct txn *t, uint64_t from, uint64_t to, struct arena *a);
/** Commit: the records of directories that are kept until then (dircache.h). */
int inode_write_changed(struct txn *t);
/** Next id of the transaction. */
uint64_t inode_new_id(struct txn *t);

int dirent_get(struct txn *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_id);
int dirent_put(struct txn *t, uint64_t parent, const char *name, uint64_t id);
int dirent_del(struct txn *t, uint64_t parent, const char *name);

/** Call @fn for entries of @parent with names greater than @after, in byte order, until it returns
 *  non-zero (which is returned). @name is borrowed for the call and not NUL-terminated. */
int dirent_each(struct txn *t, uint64_t parent, const void *after, size_t after_len,
		int (*fn)(void *arg, const char *name, size_t len, uint64_t id), void *arg);
/** Call @fn for every inode (start-up). */
int inode_each(struct txn *t, struct arena *a, int (*fn)(void *arg, struct inode *n), void *arg);

/** Call @fn for files under construction with ids greater than @after, in order of ids, until it
 *  returns non-zero (which is returned). */
int inode_open_each(struct txn *t, uint64_t after, int (*fn)(void *arg, uint64_t id), void *arg);

/* A walk from an inode up to the root; begins as {0}. */
struct inode_climb {
	uint64_t mark; /* a directory that was passed: met again, it is below itself */
	uint32_t steps, limit;
};
/** The directory of @n, which is not the root. -ENOENT: @n was deleted (tree_delete.h). -EBADMSG:
 * the disk says that there is none, or that one is below itself. */
int inode_up(struct txn *t, const struct inode *n, struct arena *a, struct inode_climb *c,
	     struct inode **ret);
/** Absolute path of @n; "/" for the root. Errors as inode_up(). */
int inode_path(struct txn *t, const struct inode *n, struct arena *a, char **ret);
