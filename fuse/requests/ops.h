/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ops - what the files with the kernel's requests share
 *
 * Idea: a request gets the user's handle and the inode, does its work, answers once. Requests about
 * names and attributes are in meta.c, of directories in dir.c, of open files in file.c.
 * Threading: a thread of libfuse per request.
 */
#include <errno.h>

#include "fuse/mount.h"

#define ASK_MAX 8 /* times a file or a name is asked for while it changes */

/** A request under way. begin() fills it; end() releases; in between `err` has the last sentence.
 */
struct ask {
	fuse_req_t req;
	struct mount *m;
	const char *op;
	struct user *user;      /* counted */
	struct inode *in;       /* counted; of @ino */
	char path[ID_PATH_MAX]; /* of in */
	bool looks;             /* a look-up: the call itself comes after it */
	struct dfs_err err;
};

/** 0, or the errno. When it is not 0, everything is released already. */
int ask_begin(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t ino);
/** The same for a request about the name @name in the directory @parent: @path is that of the name.
 *  False: a name that cannot be, or another failure, was answered. */
bool ask_begin_name(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t parent,
		    const char *name, char path[CHILD_PATH_MAX]);
/** @rc is -ENOENT, and the file has got another HDFS id since: a->path is of that one now, ask
 * again. */
bool ask_again(struct ask *a, ssize_t rc);
void ask_end(struct ask *a);
/** ask_end(), and the answer: -errno of libdfsclient or ours, or 0. */
void ask_reply(struct ask *a, int rc);
/** Around calls that change what belongs to a->in and not to its name: a->path holds, and no
 * publication takes what it was before. */
void ask_change_begin(struct ask *a);
void ask_change_end(struct ask *a);
/** The file that the kernel has a number of is not there: it looks its name up again, once. */
static inline int stale_errno(int rc)
{
	return rc == -ENOENT ? -ESTALE : rc;
}

/** The mode with which @req makes something: the NameNode applies the umask, or default entries
 * instead. */
uint32_t mode_to_make(fuse_req_t req, mode_t mode);
/** What inode.mode keeps. */
uint32_t mode_told(const struct dfs_stat *st);
/** May everybody pass a directory of this inode.mode? */
bool mode_passes_all(uint32_t mode);
/** Before and after the rights to a->in change. mode_changing(): true when names in it were kept,
 *  and must not be any more (@may_close: the new rights may let in fewer); then mode_changed() is
 *  told so, when the change was made. */
bool mode_changing(struct ask *a, bool may_close);
void mode_changed(struct ask *a, bool closed);
/** Attributes of HDFS as the kernel wants them, with number @ino. */
void attr_from_stat(struct mount *m, const struct dfs_stat *st, uint64_t ino, struct stat *ret);
/** What the kernel is told of @in: @base, with what is written here and not yet in HDFS. False: the
 *  file has changed through this mount since @asked_ns, when @base was asked for. */
bool attr_tell(struct mount *m, struct inode *in, const struct stat *base, uint32_t mode,
	       uint64_t asked_ns, struct stat *ret);
/** Attributes or the name of @in have changed through this mount: that is its ctime, as long as it
 * is known. */
void attr_changed(struct mount *m, struct inode *in);
/** How long the kernel may keep attributes: where there are other users, not at all. It shows them
 *  to everybody who has reached a name once, and a directory above may be closed at any time. */
double attr_ttl(const struct mount *m);
/** Attributes that are known, fresh, and may be seen by everybody; false: ask. */
bool attr_known(struct ask *a, struct inode *in, struct stat *ret);
/** Is what is known of @in not older than the kernel's would be? inodes.lock is held. */
bool attr_is_fresh_locked(const struct mount *m, const struct inode *in);
/** Was the NameNode asked so lately, whatever this mount has changed since? inodes.lock is held. */
bool attr_is_young_locked(const struct mount *m, const struct inode *in);
/** Ask for the attributes of @in until they hold. -errno. */
int attr_ask(struct ask *a, struct inode *in, struct stat *ret);
/** A name in @dir has come, and its time has changed: what is known of it does not hold any more.
 *  (One that has gone: inode_name_went().) */
void dir_changed(struct mount *m, struct inode *dir);
/** How long names in directory @dir may be kept: nobody is let in who is not let in now. */
double entry_ttl(struct ask *a, struct inode *dir);
/** Look up @name in a->in (which has passed name_check()); one lookup is counted on success. */
int entry_ask(struct ask *a, const char *name, struct fuse_entry_param *ret);
/** Answer with an entry that entry_ask() made. */
void entry_reply(struct ask *a, const struct fuse_entry_param *e);

/** fuse_reply_err(), counted. */
int reply_err(fuse_req_t req, int error);

void op_init(void *arg, struct fuse_conn_info *conn);
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		struct fuse_file_info *fi);
void op_access(fuse_req_t req, fuse_ino_t ino, int mask);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev);
void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
/** @bufv: @size bytes, in a pipe when they are many. */
void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *bufv, size_t size, off_t off,
		  struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
/** The session is over: whatever is still open goes to HDFS. */
void file_close_all(struct mount *m);
/** One descriptor less; a deleted file goes with its last one. */
void file_unpin(struct mount *m, struct inode *in);
/** The HDFS file of a deleted name goes when nobody has it open any more. When that fails and
 * passes, nothing has changed. */
int hidden_delete(struct mount *m, struct inode *in);
/** A file that was to be hidden, or to be shown again, when the NameNode went away: find out which
 *  it is, and make it so. 0: it is known, or was. */
int hidden_settle(struct mount *m, struct inode *in);
