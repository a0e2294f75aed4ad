/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * content - the bytes of a file: what is in HDFS, what is on its way there, what waits to be
 * published
 *
 * Idea: a file is in one of three states. *Clean*: HDFS has it. *Stream*: it is open at its end and
 * bytes go straight to the data nodes. *Overlay*: something in the middle changed; the bytes wait
 * in a local file and are published as a new HDFS file that takes the place of the old one in one
 * step. A file that is written at its end only never sees the overlay. All calls of libdfsclient
 * that move data for the mount are made here, in file_reader.c and in publish.c.
 * Threading: any thread; inode.content is taken inside, except where a name ends in _locked.
 * Errors: 0, a count, or -errno; the sentence goes into @err, which is never NULL.
 */
#include "fuse/content/file_reader.h"
#include "fuse/mount.h"

#define AT_END UINT64_MAX
#define GAP_MAX (16u << 20) /* zeros that are streamed to close a gap; a longer one is an overlay */

struct handle {
	struct orphan orphan; /* once it is released */
	struct list link;     /* in mount.handles, under inodes.lock */
	struct inode *in;     /* counted */
	struct user *user;    /* counted */
	struct file_reader reader;
	bool can_read, can_write;
	/* every write is on the disks when it returns: the kernel sees to that where it caches */
	bool sync;
	bool passed; /* the kernel reads the replica by itself (passthrough.h) */
	/* the kernel caches nothing of what is written: it is copied once less */
	bool direct;
	bool flushed; /* closed once by somebody, and not written since */
	/* of inode.errors, that this descriptor was told of or that were before it */
	uint32_t errors;
	pid_t opener;         /* the thread (not process) that opened it, */
	_Atomic pid_t writer; /* and the one that wrote last; 0: none */
};

enum closer { /* who calls close(2) on a descriptor that several processes may have */
	      /* of the process that opened it, or of the last writer where that one is gone: the
	       * file is done */
	      CLOSER_OPENER,
	      CLOSER_WRITER, /* one that wrote: its bytes must be seen by others */
	      CLOSER_OTHER,  /* a child that never used it, on its way to exec(2) */
};

/** The bytes are in @buf, from and back to m->buffers; taken when it is this read's turn. */
ssize_t content_read(struct mount *m, struct handle *h, void **buf, size_t len, uint64_t offset,
		     struct dfs_err *err);
/** Who is told that a write is taken before content_write() returns: then what becomes of it later
 *  is told by the next write, fsync or close, and the handle may be gone when content_write() goes
 *  on. */
struct taken {
	void (*tell)(void *arg);
	void *arg;
	bool told;
};
/** The bytes of a write(2). */
struct piece {
	const void *bytes;
	size_t len;
	void (*done)(void *arg); /* NULL: they must be copied */
	void *arg;
	bool lent; /* set by content_write(): done() is called when they are not needed any more */
};
/** Bytes written through @h go past pages of the file that the kernel may have, because others have
 *  it open. Asked when the bytes are in their place: before that a reader waits for them. */
bool content_is_cached(struct mount *m, const struct handle *h);
/** A piece of a stream is told to be taken as soon as its place is known: while it is on its way to
 *  the data nodes the program prepares the next one. @offset AT_END: at the end, wherever that is;
 *  then it is told. */
int content_write(struct mount *m, struct handle *h, struct piece *p, uint64_t *offset,
		  struct taken *taken, struct dfs_err *err);
/** close(2): what @who has written is visible to new readers; when the opener closes, the file is
 *  whole and closed in HDFS. */
int content_flush(struct mount *m, struct handle *h, enum closer who, struct dfs_err *err);
/** fsync(2): everything is on disk on every node of the pipeline. A write that was lost is told
 *  once by this or content_flush() to each descriptor that was open then; to a later one by this
 *  alone, if nobody was told before. */
int content_sync(struct mount *m, struct handle *h, struct dfs_err *err);
/** The last descriptor that could write is gone. What the cluster cannot take now is pending from
 * then on (pending.h). */
int content_close(struct mount *m, struct inode *in, struct dfs_err *err);
/** A pending file once more. When it fails for good, what is not in HDFS is thrown away. */
int content_heal(struct mount *m, struct inode *in, struct dfs_err *err);
/** The mount ends: what is pending stays on the local disk for the next one. */
void content_leave(struct mount *m, struct inode *in);
/** As @user, who @may write to it, by a descriptor that can, or is asked about (-EACCES); a file
 *  that nobody has open is whole in HDFS when this returns. */
int content_truncate(struct mount *m, struct inode *in, struct user *user, bool may,
		     uint64_t length, struct dfs_err *err);
/** fallocate(2) with FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE. */
int content_zero(struct mount *m, struct handle *h, uint64_t offset, uint64_t len, bool keep_size,
		 struct dfs_err *err);
/** The length that readers of this mount see; asks the NameNode when the file is clean. */
int content_length(struct mount *m, struct inode *in, struct user *user, uint64_t *ret,
		   struct dfs_err *err);
/** A new file: @w (taken on success) is open for writing at 0, by @user. -EIO: @in is being
 *  written, and no new file: its id came a second time. */
int content_created(struct mount *m, struct inode *in, struct user *user, struct dfs_file *w,
		    bool early);
/** Throw away what is not in HDFS: the file is deleted. */
void content_discard(struct mount *m, struct inode *in);
/** Times that utimensat(2) gives a file that is being written: set when it is closed. 1: taken; 0:
 * it is not being written. */
int content_set_times(struct mount *m, struct inode *in, struct user *user, uint64_t mtime_ms,
		      uint64_t atime_ms, struct dfs_err *err);

/** Before the session begins: what mounts that were killed have left is published, or kept under a
 *  name that is printed (recover.c). */
void recover_all(struct mount *m);

/** Publish the overlay (publish.c); inode.content is held. Leaves it when it fails. */
int publish_locked(struct mount *m, struct inode *in, struct dfs_err *err);
/** dfs_append() of the inode's file as @user, else as the owner of the mount; waits a moment for a
 *  file that is being recovered. Sets in->w. */
int append_locked(struct mount *m, struct inode *in, struct user *user, struct dfs_err *err);
#define NEW_NAME_MAX 64
/** Under this name the content that replaces HDFS file @id is written, by the mount with @token. */
void new_name(char name[NEW_NAME_MAX], uint64_t token, uint64_t id);
/** HDFS id of a directory by its number. */
uint64_t dir_id(struct mount *m, uint64_t ino);
