/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * mount - what all parts of a mount share
 *
 * Idea: the kernel speaks of inode numbers, HDFS of paths; every HDFS call also takes a file by its
 * id (/.reserved/.inodes/ID), so a mount needs no paths of its own, and a rename under an open file
 * changes nothing. Every call is made as the user who asks, so that the NameNode decides what is
 * allowed. libfuse runs a request to its end on a thread of its own: calls of libdfsclient block
 * that thread and no other.
 * Ownership: main owns the struct; everything in it lives as long as the session.
 * Threading: `opt`, `root_id`, `defaults`, `se` do not change once the session runs; the rest has
 * its own locks.
 * Lock order: inode.content, inode.naming, passthrough.lock, then users.lock, inodes.lock,
 * state.lock or request_table.lock (leaves). See docs/design/011-mount.md.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/dfsclient_ext.h"
#include "common/base/list.h"
#include "fuse/content/buffers.h"
#include "fuse/content/overlay.h"
#include "fuse/content/passthrough.h"
#include "fuse/content/pending.h"
#include "fuse/content/stale_retry.h"
#include "fuse/options.h"
#include "fuse/requests/inode.h"
#include "fuse/requests/users.h"
#include "fuse/session/dev_fuse.h"
#include "fuse/session/kernel_inval.h"
#include "fuse/session/request_table.h"
#include "fuse/session/state.h"
#include "fuse/session/watchdog.h"

#define HIDDEN_PREFIX ".dfs-fuse."   /* names that a mount makes for itself and never shows */
#define ID_PATH_MAX 48               /* "/.reserved/.inodes/" and 20 digits */
#define FAIL_LINE_NS (60 * NS_PER_S) /* fail_errno_limited() */
#define CHILD_PATH_MAX (ID_PATH_MAX + DFS_NAME_MAX + 2)

struct mount {
	struct options opt;
	struct dfs_defaults defaults;
	struct users users;
	struct inodes inodes;
	struct list handles; /* of open files, under inodes.lock */
	struct list streams; /* inodes with one, under inodes.lock, and how many */
	uint32_t stream_count;
	struct kernel_inval names, pages; /* that the kernel is to forget */
	struct request_table request_table;
	struct metrics *metrics; /* NULL: no page; borrowed */
	struct buffers buffers;
	struct dev_fuse dev_fuse;
	struct passthrough passthrough;
	struct pending pending;
	struct stale_retry stale_retry;
	struct watchdog watchdog;
	struct overlay_budget budget;
	struct state state; /* overlays lie in its directory */
	struct fuse_session *se;
	uint64_t root_id; /* HDFS id of the directory that is mounted */
	bool open_above;  /* everybody may pass the directories above it, when it was mounted */
	uint64_t token;   /* random: tells hidden names of this mount from those of others */
	/* this NameNode does not replace blocks (dfs_replace_blocks()): a changed file is written
	 * anew */
	atomic_bool whole_files;
	/* the kernel forgets pages that are written past it; set before the first request */
	bool direct_writes;
	atomic_flag reads_ahead; /* read_ahead_once() was here */
	/* The last request was answered (pending_end()): when the time to close files is over. 0:
	 * not yet. */
	atomic_uint_fast64_t leave_ns;
	int ready_fd; /* told when the kernel has been answered; -1: nobody waits */
	int log_fd;   /* stderr from then on */
};

static inline struct mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/** One line on stderr for the person or program that has started us; in the background it is the
 * last chance to tell. Returns 1, an exit status. */
__attribute__((format(printf, 1, 2))) int tell(const char *fmt, ...);
/** "/.reserved/.inodes/ID" */
void id_path(char buf[ID_PATH_MAX], uint64_t id);
/** The same with "/NAME" behind it; @name has passed name_check(). */
void child_path(char buf[CHILD_PATH_MAX], uint64_t parent_id, const char *name);
/** One that mounts make for themselves and never show. */
bool name_is_ours(const char *name);
/** 0, or the errno (positive) for a name that HDFS cannot have: that there is none is ENOENT, that
 * it cannot be made (@make) says why. */
int name_check(const char *name, bool make);
/** Positive errno for the kernel from what libdfsclient returned (docs/mount.md has the table).
 *  What a user cannot have caused goes to the log, with @op and the sentence of the library. */
int fail_errno(const char *op, int rc, const struct dfs_err *err);
/** The same, but the log has a line at most once in FAIL_LINE_NS for each *@line, which begins as
 *  0; where the error is another one each time, once a second. */
int fail_errno_limited(const char *op, int rc, const struct dfs_err *err, struct fail_line *line);
/** May the same be possible later? The cluster is out of reach, starting, short of data nodes, or
 * recovers a lease. */
bool fail_is_passing(int rc);

/** Let the kernel read further ahead than its 128 KiB. Not before it has taken our answer to its
 *  first request, which is why this is called at open(2). */
void read_ahead_once(struct mount *m);

extern const struct fuse_lowlevel_ops MOUNT_OPS;
