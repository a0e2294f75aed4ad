/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * content_internal - what the files of content.h share
 *
 * Idea: content.c writes and reads; content_stream.c has the stream at a file's end,
 * content_length.c its length and the beginning of an overlay, content_close.c the end of a write.
 * Threading: inode.content is held, but for stat_file() and what_failed().
 */
#include "fuse/content/content.h"

/** Where the block with byte @at begins. A NameNode should not say that blocks have 0 bytes. */
static inline uint64_t block_begin(const struct dfs_stat *st, uint64_t at)
{
	return st->block_size ? at - at % st->block_size : 0;
}

/* content_stream.c: what stat shows */
void mark_dirty(struct mount *m, struct inode *in, uint64_t length);
void mark_changed(struct mount *m, struct inode *in);
void settle_times(struct mount *m, struct inode *in);
int may_write_locked(struct inode *in, struct user *user, struct dfs_err *err);
/* content_stream.c: the stream */
void set_writer(struct mount *m, struct inode *in, struct user *user);
void done_writing(struct mount *m, struct inode *in);
int close_stream(struct mount *m, struct inode *in, struct dfs_err *err);
int stat_file(struct mount *m, struct inode *in, struct user *user, struct dfs_stat *ret,
	      struct dfs_err *err);
int what_failed(struct mount *m, struct inode *in, struct user *user, int rc);
/* content_close.c */
void note_lost(struct inode *in, int rc);
int refusal(const struct handle *h, struct dfs_err *err);
int heal_locked(struct mount *m, struct inode *in, struct dfs_err *err);
int settle_locked(struct mount *m, struct inode *in, struct dfs_err *err);
int settle_last_locked(struct mount *m, struct inode *in, struct dfs_err *err);
/* content_length.c */
int write_zeros(struct inode *in, uint64_t to, struct dfs_err *err);
int begin_overlay(struct mount *m, struct inode *in, struct user *user, struct dfs_err *err);
int room_in_overlay(struct mount *m, struct inode *in, struct user *user, uint64_t to,
		    struct dfs_err *err);
