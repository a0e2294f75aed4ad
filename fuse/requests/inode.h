/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * inode - the files and directories that the kernel knows, and those that are open
 *
 * Idea: an inode lives while the kernel holds a look-up of it or something of ours a reference. Its
 * number is the HDFS file id it had when it was first seen; when the content of an open file is
 * replaced by a new HDFS file, `id` moves on and `ino` stays. Four chains find it: by number, by
 * id, by the id before (answers of the NameNode that are on their way have that one), and by
 * (parent, name) where the mount saw it last. By its name the mount knows whether a file that is
 * deleted or replaced is open: an answer about a name that has gone or been given to another file
 * since it was asked for is not taken.
 * Ownership: counted. inode_get(), inode_enter() give a reference, inode_put() releases it.
 * Threading: `inodes.lock` guards the chains and what is marked L; it is a leaf, held for a few
 * instructions. `content` (a mutex) guards what is marked C and is held while data is written.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/include/dfsclient_ext.h"
#include "common/base/list.h"

struct doubt;
struct overlay;
struct user;

#define INODE_CHAINS 4
#define INODE_MOVES_KEPT 1024 /* names that went lately */

#define MODE_HAS_ACL 0x10000u /* beside permission bits: they are not all that counts */

/* The line of the log on something that fails again and again (fail_errno_limited()). */
struct fail_line {
	atomic_uint_fast64_t ns; /* when the log had the last line; 0: never */
	atomic_int rc;           /* what it said */
};

struct inode {
	struct inode *next[INODE_CHAINS]; /* L: by number, by id, by former id, by name */
	uint64_t ino;
	uint64_t id;      /* L, changes only with C and naming held */
	uint64_t former;  /* L: the id before; 0: none */
	uint64_t lookups; /* L: how often the kernel was told */
	uint32_t refs;    /* L */
	uint32_t opens;   /* L: file handles, */
	uint32_t writers; /* L: and those of them that may write, */
	uint32_t directs; /* L: and of these, for which the kernel caches nothing */
	uint64_t parent;  /* L: number of the directory; 0: none */
	char *name;       /* L, owned; in that directory; NULL: none */
	struct stat attr; /* L: as last told to the kernel */
	uint64_t attr_ns; /* L: when that was asked from the NameNode */
	bool is_dir;
	bool gone; /* L: deleted through this mount; attr is all that is left */
	/* changes with L and naming held: deleted, but open: lives on under a name of ours until
	 * closed */
	atomic_bool hidden;
	struct user *hidden_by; /* counted: who deleted it; set before hidden */
	uint32_t hidden_mark;   /* in mount.state; set before hidden */
	/* changes with L and naming held, owned: the NameNode has not said whether it was hidden
	 * (rename.c); NULL: that is known */
	struct doubt *doubt;
	/* L: nobody has it open and the cluster was out of reach: it is counted for pending.h */
	uint32_t tried; /* L: the round of pending.c in which it was tried last */
	bool pending;
	/* L: written here, not yet closed in HDFS: size and mtime are ours */
	bool dirty;
	/* L: attr.st_atim is what utimensat(2) wants it to be when the file is closed in HDFS */
	bool atime_set;
	/* L: last change of its attributes or name through this mount; 0: none that is known */
	struct timespec ctim;
	bool mtime_told; /* L: somebody has seen attr.st_mtim since the last write */
	struct dfs_content_id seen_content; /* L: of the data that the kernel may have cached */
	bool seen;                          /* L: it is known */
	uint32_t change;                    /* L: counts what makes a reader of HDFS stale */
	uint64_t change_ns; /* L: last change through this mount: older answers do not count */
	/* L: of a directory: when a name in it went last, through this mount */
	uint64_t moved_ns;
	/* L: the kernel's name of the replica that it reads by itself (passthrough.h); 0: none */
	int32_t backing;
	uint32_t backing_opens;                /* L: so many of `opens` read it there, */
	struct dfs_content_id backing_content; /* L: and this is what it holds */
	/* L: its file has another inode, or will get one; `gone`, for its open handles */
	bool retired;
	/* L: constant: this is such another inode, and its number no HDFS id */
	bool alias;
	pid_t named_by;    /* L: the thread that looked its name up last, until it opens it, */
	uint64_t named_ns; /* L: and when it asked */
	/* L: it is being deleted or its name replaced: an open waits for the end of that */
	uint32_t leaving;
	uint32_t mode; /* L: permission bits in HDFS, MODE_HAS_ACL */

	/* its name changes, or its content is replaced under it; after content, two by address */
	pthread_mutex_t naming;
	pthread_mutex_t content;
	struct dfs_file *w; /* C, owned; open at the end of the file; NULL: none */
	/* L: in mount.streams while w is there; the one that was written longest ago is the first
	 */
	struct list stream;
	struct user *w_user; /* C, counted; of w */
	bool w_unflushed;    /* C: w was written since its last flush */
	bool w_early;        /* C: its end need not wait for the NameNode's disk */
	bool w_written;      /* C: w has taken bytes */
	/* BY_UID of the user that closed it early; BY_ANYBODY: nobody knows whether anyone has */
	atomic_uint_fast64_t early_by;
	uint32_t w_mark; /* C: in mount.state, as long as its lease is ours; 0: none */
	/* C: behind blocks that may have been closed early, and are not synced yet */
	bool w_appended;
	bool w_reopened;    /* C: written again after a close(2): descriptors are shared */
	struct overlay *ov; /* C, owned; NULL: no random writes pending */
	/* C: a stream could not be closed (no NameNode, say): its lease is ours still */
	bool unclosed;
	/* C: bytes it must have when it is; UINT64_MAX: some were lost, and told */
	uint64_t unclosed_length;
	/* C: its last close could not publish ov for a reason that stays, and nothing was written
	 * since */
	bool hopeless;
	int error; /* C: -errno of the write that was lost last, */
	/* changes with C held: and how many were: a descriptor that knows of fewer is to be told */
	atomic_uint errors;
	bool error_told;            /* C: somebody was told of error */
	struct fail_line read_line; /* reads of it that failed */
	bool has_times;             /* C: times to be set when the file is closed in HDFS */
	uint64_t set_mtime, set_atime;
};

/** A name that went, or leads to another file. */
struct name_move {
	uint64_t dir, name; /* number of the directory, hash of the name */
	uint64_t ns;        /* when that was known */
};

struct inodes {
	pthread_mutex_t lock;
	pthread_cond_t left;                 /* `leaving` of an inode is 0 again */
	struct inode **bucket[INODE_CHAINS]; /* owned */
	size_t mask, count;
	uint64_t aliases;                        /* numbers given to those so far */
	struct name_move move[INODE_MOVES_KEPT]; /* the last ones, in a ring */
	uint64_t moves;
};

int inodes_init(struct inodes *t);
void inodes_fini(struct inodes *t);
/** NULL: not known (the kernel asks for what it forgot, or the root is missing). */
struct inode *inode_get(struct inodes *t, uint64_t ino);
struct inode *inode_get_named(struct inodes *t, uint64_t parent, const char *name);
/** The inode of HDFS file @st, made when it is new, now found at (@parent, @name); @lookups are
 *  added. NULL: out of memory. @ino: its number if it is new; 0: the id. */
struct inode *inode_enter(struct inodes *t, const struct dfs_stat *st, uint64_t ino,
			  uint64_t parent, const char *name, uint32_t lookups);
/** The same for an answer about @name in @dir, asked for at @asked_ns. NULL and *ret_stale: the
 *  name has gone since, or leads to another file, and the answer may be of before. */
struct inode *inode_enter_asked(struct inodes *t, const struct dfs_stat *st,
				const struct inode *dir, const char *name, uint64_t asked_ns,
				bool *ret_stale);
/** One reference more of @in, which is returned. */
struct inode *inode_ref(struct inodes *t, struct inode *in);
void inode_put(struct inodes *t, struct inode *in);
void inode_forget(struct inodes *t, uint64_t ino, uint64_t lookups);
/** It moved to (@parent, @name); name NULL: it has none any more. */
void inode_moved(struct inodes *t, struct inode *in, uint64_t parent, const char *name);
/** @name in @dir has gone, or leads to another file: answers about it that were asked for before do
 *  not count. Told before inodes are moved: an answer of before that was taken already is put right
 *  by that. */
void inode_name_went(struct inodes *t, struct inode *dir, const char *name);
/** Its HDFS file is to be another inode from now on, the next time it is entered. */
void inode_retire(struct inodes *t, struct inode *in);
/** Its content is another HDFS file now, or will be in a moment. */
void inode_new_id(struct inodes *t, struct inode *in, uint64_t id);
/** The HDFS file that is its content, at this moment. */
uint64_t inode_id(struct inodes *t, const struct inode *in);
/** One `leaving` less: those that wait for the end of that go on. */
void inode_left(struct inodes *t, struct inode *in);
/** Call @fn for every inode whose parent is @parent, with the lock held. */
void inode_each_child(struct inodes *t, uint64_t parent, void (*fn)(struct inode *in, void *arg),
		      void *arg);
/** A reference to any inode for which @pick says yes; NULL: none. */
struct inode *inode_find(struct inodes *t, bool (*pick)(const struct inode *in, const void *arg),
			 const void *arg);
