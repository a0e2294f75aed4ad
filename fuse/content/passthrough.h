/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * passthrough - files that the kernel reads by itself from the replica's own file
 *
 * Idea: with -o passthrough a file that is one block with a replica on this machine
 * (dfs_local_fd()) is opened so that reads and mappings go to the replica and never to us. The
 * kernel has rules for that (fs/fuse/iomode.c): while a number has such an open file, every further
 * open of that number must name the same replica, also one that writes, whose mappings would then
 * write to the replica. So a number that is passed through has readers of one content alone.
 * Whoever wants to write, or finds another content, gets another number for the file: the one
 * before is *retired*, as that of a file that was deleted while it was open, its readers keep what
 * they have, and ESTALE makes the kernel look the name up again, once. What has got its number in
 * that way is not passed through, else that look-up might meet the same.
 * Ownership: of the mount. Threading: `lock` is taken before inodes.lock and guards what becomes of
 * inode.backing.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fuse_file_info;
struct fuse_req;
struct handle;
struct mount;

struct passthrough {
	pthread_mutex_t lock;
	atomic_bool on;
	atomic_uint files; /* open ones that are passed through */
};

/** In op_init(): where it is asked for and can be had. Says in one line of the log why it cannot.
 */
void passthrough_init(struct mount *m);
/** @h begins to open its file: -ESTALE when it needs another number. -EBUSY: it needs one and
 *  cannot get it (the file is deleted, or its changes cannot be stored now). */
int passthrough_check(struct mount *m, struct handle *h, const struct fuse_file_info *fi);
/** @h may read its file, and its reader has it open; @may_begin: the answer is that of open(2).
 * Decides who reads: *@h. Errors as above. */
int passthrough_open(struct mount *m, struct handle *h, struct fuse_file_info *fi, bool may_begin);
/** fuse_reply_open(). */
int passthrough_reply(struct handle *h, struct fuse_req *req, const struct fuse_file_info *fi);
/** @h is closed; the kernel is done with it. */
void passthrough_release(struct mount *m, struct handle *h);
