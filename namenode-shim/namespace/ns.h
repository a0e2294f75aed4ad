/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ns - the namespace: paths, permissions and the operations on files and directories
 *
 * Idea: every operation validates completely, then writes. It fails with an exception before its
 * first write, or the database failed and the whole transaction is given up; so several changes
 * share one transaction without savepoints.
 * Ownership: everything returned lives in n->a.
 * Threading: that of n->t; reading operations also with a reader's transaction.
 * Source: hdfs-wire 1.5, 3.2 to 3.6; messages are worded after HDFS.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/erasure/policy.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/base/exception.h"
#include "namenode-shim/db/effect.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/settings.h"

struct users;

/* Who asks, on which transaction, and what came of it. */
struct ns {
	struct txn *t;               /* borrowed */
	struct arena *a;             /* borrowed */
	struct exception_info *x;    /* borrowed; filled when an operation returns an error */
	struct effect_list *effects; /* borrowed; writing operations only */
	struct users *users;         /* borrowed */
	const char *user;
	const char *host; /* address of the client */
	uint64_t now_ms;
	bool enforce;                   /* check permissions */
	bool super;                     /* the caller is the super-user */
	const struct ns_limits *limits; /* borrowed */
	/* Told of each file of a summary; may be NULL. */
	void (*saw_file)(void *arg, const struct inode *f);
	void *saw_arg;
};

/* A path taken apart, and what of it exists. */
struct ns_path {
	const char *path;     /* without empty components, /.reserved/raw and .inodes resolved */
	const char **name;    /* components */
	uint32_t depth;       /* number of components; 0 = root */
	struct inode **chain; /* chain[0] is the root, chain[i] is component i - 1 */
	uint32_t have;        /* inodes in chain: 1..depth + 1 */
	struct inode *last;   /* what the path names; NULL when missing */
	bool by_id;           /* the path was /.reserved/.inodes/ID and no more */
	bool reserved;        /* the path is /.reserved itself, which no record stands for */
};

enum access { ACCESS_X = 1, ACCESS_W = 2, ACCESS_R = 4 };

enum walk_how {
	WALK_CHANGE = 1,  /* /.reserved itself is refused */
	WALK_MAKE = 2,    /* a file on the way is a ParentNotDirectoryException */
	WALK_LINK = 4,    /* the path may name a symbolic link */
	WALK_LINK_ID = 8, /* so may /.reserved/.inodes/ID: an id leads nowhere else */
	WALK_TAIL = 16,   /* of a long file the end of its blocks will do (inode_get_tail()) */
};

/** Resolve and check x on every directory on the way. A file on the way is an
 *  AccessControlException, as HDFS has it for everything that does not create. A symbolic link on
 *  the way, or at the end, is an UnresolvedPathException. @how: bits of enum walk_how. */
int ns_resolve_as(struct ns *n, const char *path, unsigned int how, struct ns_path *w);
static inline int ns_resolve(struct ns *n, const char *path, struct ns_path *w)
{
	return ns_resolve_as(n, path, 0, w);
}
static inline int ns_resolve_change(struct ns *n, const char *path, struct ns_path *w)
{
	return ns_resolve_as(n, path, WALK_CHANGE, w);
}
static inline int ns_resolve_make(struct ns *n, const char *path, struct ns_path *w)
{
	return ns_resolve_as(n, path, WALK_MAKE, w);
}
/** -ENOENT (FileNotFoundException) with @before, path and @after when nothing was found. */
int ns_found(struct ns *n, const struct ns_path *w, const char *before, const char *after);
/** ns_resolve() and ns_found("File does not exist: "). */
int ns_find(struct ns *n, const char *path, struct ns_path *w);
/** The same, and it must be a file. */
int ns_find_file(struct ns *n, const char *path, struct ns_path *w);
/** Path of component @i of the walk (0 = root). */
const char *ns_path_text(struct ns *n, const struct ns_path *w, uint32_t i);
/** The directory of what the path names, or the deepest inode there is of the way to it. */
struct inode *ns_path_parent(const struct ns_path *w);
/** May a file or directory have this path? Absolute, UTF-8, no empty, relative or ':' component. */
bool ns_valid_name(const char *path);
/** -EIO: over INODE_PATH_MAX characters or INODE_DEPTH_MAX levels; @op: the method, for the text.
 */
int ns_check_length(struct ns *n, const char *op, const char *path);
int ns_check(struct ns *n, const struct inode *node, unsigned int access, const char *path);
/** Owner or super-user, also where permissions are not enforced, as in HDFS. */
int ns_check_owner(struct ns *n, const struct ns_path *w);
/** Write permission on the directory that holds, or would begin, what the path names. */
int ns_check_ancestor(struct ns *n, const struct ns_path *w);
/** May the caller take what the path names out of its directory? Sticky bit included. */
int ns_check_remove(struct ns *n, const struct ns_path *w);
/** Database failure as an exception. */
int ns_io(struct ns *n, int rc);
struct effect *ns_effect(struct ns *n, enum effect_kind kind);

enum ns_mkdirs_how {
	NS_MKDIRS_PARENTS = 1, /* also those above it that are missing */
	NS_MKDIRS_NEW = 2,     /* one that is there is an error, as mkdir(2) has it */
};

/** @perm: what the umask left of the mode; @unmasked: the mode before it, which counts where the
 *  parent has default entries of an access control list; NULL: not told. @how: enum ns_mkdirs_how.
 */
int ns_mkdirs(struct ns *n, const char *path, uint16_t perm, const uint16_t *unmasked,
	      unsigned int how);

struct ns_create {
	const char *path, *client;
	uint16_t perm, repl;
	const uint16_t *unmasked; /* as ns_mkdirs() */
	uint64_t block_size;
	bool create, overwrite, create_parent;
	const struct ec_policy *ec; /* ns_create(): NULL: replicated */
};
/** Where @c is to go, and whether its caller may: everything but what an existing file means. */
int ns_resolve_create(struct ns *n, const struct ns_create *c, struct ns_path *w);
/** Make the file; an existing one must be closed or to be overwritten. */
int ns_create(struct ns *n, const struct ns_create *c, struct ns_path *w, struct inode **ret);
/** Make @path a symbolic link to @target, which need not exist. */
int ns_symlink(struct ns *n, const char *target, const char *path, bool create_parent);
/** Where @path leads when the first symbolic link of it is followed. IOException: there is none. */
int ns_link_target(struct ns *n, const char *path, const char **ret);
/** *ret false: nothing was there. */
int ns_delete(struct ns *n, const char *path, bool recursive, bool *ret);
struct tree_check;
/** The same for trees of any size: a large one is gone at once, and its names and blocks go bit by
 *  bit (tree_delete.h).
 *  NS_MORE: its rights are being checked; call again with the same @state, which begins as NULL, in
 *  another transaction. */
int ns_delete_some(struct ns *n, const char *path, bool recursive, struct tree_check **state,
		   bool *ret);
/** Accepts NULL. */
void tree_check_free(struct tree_check *k);
/** Old rename: an existing directory @dst takes @src in; *ret false on ordinary failure. */
int ns_rename(struct ns *n, const char *src, const char *dst, bool *ret);
int ns_rename2(struct ns *n, const char *src, const char *dst, bool overwrite);

/* A closed file is to have new blocks in some places. */
struct ns_replace {
	const char *path;  /* the file, which the caller may write, */
	uint64_t id;       /* as he has seen it: which one, */
	uint64_t length;   /* how long, */
	struct block last; /* and id and stamp of its last block; 0: it had none */
	/* a closed file of the caller's in the same directory: the new blocks, in order, all of
	 * them */
	const char *part;
	const uint32_t *at; /* and where each goes, ascending */
	uint32_t nat;
	/* blocks that the file is to have; in the other places it keeps its own */
	uint32_t count;
};
/** All in one: the file of the new blocks takes the place of the old one, under its name and with
 *  its owner, mode, list, attributes, times (but mtime) and policy; the old id and what is left of
 *  its blocks are gone. LeaseExpiredException: it is not any more as it was seen.
 *  AlreadyBeingCreatedException: somebody writes it. HadoopIllegalArgumentException: the two do not
 *  fit each other. UnsupportedOperationException: erasure-coded, or with a block within it that is
 *  not full. */
int ns_replace_blocks(struct ns *n, const struct ns_replace *r);
int ns_set_perm(struct ns *n, const char *path, uint16_t perm);
/** NULL or "": leave. */
int ns_set_owner(struct ns *n, const char *path, const char *owner, const char *group);
/** Negative: leave. */
int ns_set_times(struct ns *n, const char *path, int64_t mtime, int64_t atime);
/** *ret false: a directory, or striped. */
int ns_set_repl(struct ns *n, const char *path, uint16_t repl, bool *ret);

struct ns_summary {
	uint64_t len, files, dirs, space;
	uint64_t max_inodes, max_space; /* QUOTA_NONE: no limit */
	bool is_dir;
	char ec[EC_NAME_MAX]; /* policy of the file, or set on the directory; "": none */
};
#define NS_SUM_STEP 1000 /* inodes that one call of ns_summarize() looks at */
#define NS_MORE 1
/* How far a summary is. */
struct ns_summing;
/** One step of a summary; NS_MORE: call again with the same @state, which begins as NULL;
 *  transactions may end in between. @missing: words before the path of what does not exist.
 *  @stored: what the quota of the directory has counted will do, without len; then all inodes are
 *  files. */
int ns_summarize(struct ns *n, const char *path, const char *missing, bool stored,
		 struct ns_summing **state, struct ns_summary *ret);
/** Accepts NULL. */
void ns_summing_free(struct ns_summing *s);
