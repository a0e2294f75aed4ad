/* SPDX-License-Identifier: Apache-2.0 */
/* meta - requests about names and attributes */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "fuse/content/content.h"
#include "fuse/requests/local_names.h"
#include "fuse/requests/ops.h"

/* ---- looking ---- */

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct ask a;
	int no = name_check(name, false);

	no = no ?: ask_begin(&a, req, "lookup", parent);
	if (no) {
		reply_err(req, no);
		return;
	}
	a.looks = true;
	const int rc = entry_ask(&a, name, &e);

	if (rc == -ENOENT && a.m->opt.negative_timeout > 0) {
		e = (struct fuse_entry_param){.entry_timeout = a.m->opt.negative_timeout};
		ask_end(&a);
		fuse_reply_entry(req, &e);
	} else if (rc < 0) {
		ask_reply(&a, rc);
	} else {
		entry_reply(&a, &e);
	}
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	inode_forget(&mount_of(req)->inodes, ino, count);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		inode_forget(&mount_of(req)->inodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void reply_attr(struct ask *a)
{
	const double timeout = attr_ttl(a->m);
	struct stat st;
	const int rc = attr_ask(a, a->in, &st);

	if (rc < 0) {
		ask_reply(a, rc);
		return;
	}
	ask_end(a);
	fuse_reply_attr(a->req, &st, timeout);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ask a;
	const int no = ask_begin(&a, req, "getattr", ino);

	(void)fi;
	struct stat st;

	if (no) {
		reply_err(req, no);
	} else if (attr_known(&a, a.in, &st)) {
		ask_end(&a);
		fuse_reply_attr(req, &st, attr_ttl(mount_of(req)));
	} else {
		reply_attr(&a);
	}
}

/* To HDFS its superuser may do everything; exec(2) wants a file that somebody may run. */
static bool may_be_run(struct ask *a)
{
	struct stat st;

	return attr_ask(a, a->in, &st) < 0 || !S_ISREG(st.st_mode) || st.st_mode & 0111;
}

void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct ask a;
	int rc = ask_begin(&a, req, "access", ino);

	if (rc) {
		reply_err(req, rc);
		return;
	}
	do /* R_OK, W_OK, X_OK are the bits of a permission */
		rc = dfs_access(a.user->fs, a.path, (uint32_t)mask & 7, &a.err);
	while (ask_again(&a, rc));
	if (rc == 0 && mask & X_OK && !may_be_run(&a))
		rc = -EACCES;
	ask_reply(&a, stale_errno(rc));
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct dfs_statfs s;
	struct ask a;
	int rc = ask_begin(&a, req, "statfs", ino);

	if (rc) {
		reply_err(req, rc);
		return;
	}
	rc = dfs_statfs(a.user->fs, &s, &a.err);
	if (rc < 0) {
		ask_reply(&a, rc);
		return;
	}
	ask_end(&a);
	fuse_reply_statfs(req, &(struct statvfs){
				       .f_bsize = BUFSIZ,
				       .f_frsize = 4096,
				       .f_namemax = DFS_NAME_MAX,
				       .f_blocks = s.capacity / 4096,
				       .f_bfree = s.remaining / 4096,
				       .f_bavail = s.remaining / 4096,
			       });
}

/* ---- changing attributes ---- */

static int change_mode(struct ask *a, uint32_t mode)
{
	const bool closes = mode_changing(a, (mode & 0111) != 0111);
	int rc;

	ask_change_begin(a);
	rc = dfs_set_permission(a->user->fs, a->path, mode & 01777, &a->err);
	ask_change_end(a);
	mode_changed(a, rc == 0 && closes);
	return rc;
}

static int change_owner(struct ask *a, const struct stat *attr, int valid)
{
	char owner[DFS_NAME_MAX + 1], group[DFS_NAME_MAX + 1];
	const bool to_owner = valid & FUSE_SET_ATTR_UID, to_group = valid & FUSE_SET_ATTR_GID;
	int rc = to_owner ? local_user_name(attr->st_uid, owner) : 0;

	if (rc == 0 && to_group)
		rc = local_group_name(attr->st_gid, group);
	if (rc < 0)
		return rc;
	ask_change_begin(a);
	rc = dfs_set_owner(a->user->fs, a->path, to_owner ? owner : NULL, to_group ? group : NULL,
			   &a->err);
	ask_change_end(a);
	pthread_mutex_lock(&a->m->inodes.lock);
	a->in->attr_ns = 0; /* who its owner is (may_set_times()) */
	pthread_mutex_unlock(&a->m->inodes.lock);
	return rc;
}

static uint64_t time_ms(const struct timespec *ts)
{
	return ts->tv_sec < 0 ? 0 : (uint64_t)ts->tv_sec * 1000 + (uint64_t)ts->tv_nsec / NS_PER_MS;
}

/* Who may write to a file may set both of its times to now; any other the owner alone, which HDFS
 * does not mind. */
static int may_set_times(struct ask *a)
{
	struct inode *in = a->in;
	struct dfs_stat st;
	bool known;
	int rc;

	pthread_mutex_lock(&a->m->inodes.lock);
	known = a->m->opt.uid < 0 && a->user->own_name && a->user->uid != ID_NOBODY &&
		in->attr.st_uid == a->user->uid && attr_is_young_locked(a->m, in);
	pthread_mutex_unlock(&a->m->inodes.lock);
	if (known)
		return 0;
	do
		rc = dfs_lstat(a->user->fs, a->path, &st, &a->err);
	while (ask_again(a, rc));
	return rc ?: users_owns(a->user, a->path, st.owner, &a->err);
}

static int change_times(struct ask *a, const struct stat *attr, int valid)
{
	const bool to_now = valid & FUSE_SET_ATTR_MTIME_NOW && valid & FUSE_SET_ATTR_ATIME_NOW;
	const uint64_t now = clock_wall_ms();
	uint64_t mtime = DFS_TIME_KEEP, atime = DFS_TIME_KEEP;
	int rc;

	if (valid & FUSE_SET_ATTR_MTIME)
		mtime = valid & FUSE_SET_ATTR_MTIME_NOW ? now : time_ms(&attr->st_mtim);
	if (valid & FUSE_SET_ATTR_ATIME)
		atime = valid & FUSE_SET_ATTR_ATIME_NOW ? now : time_ms(&attr->st_atim);
	rc = to_now ? 0 : may_set_times(a);
	if (rc < 0)
		return rc;
	rc = content_set_times(a->m, a->in, a->user, mtime, atime, &a->err);
	if (rc == 0) { /* not being written: closing it would change them again */
		ask_change_begin(a);
		rc = dfs_set_times(a->user->fs, a->path, mtime, atime, &a->err);
		ask_change_end(a);
	}
	return rc == -EACCES && !to_now ? -EPERM : rc < 0 ? rc : 0;
}

/* HDFS has one word for both: who may not chmod a file is not its owner. */
static int owner_errno(int rc)
{
	return rc == -EACCES ? -EPERM : rc;
}

/* A directory that was removed while somebody has it open: these attributes are all that is left of
 * it. 1: it is none. */
static int change_left(struct ask *a, const struct stat *to, int valid)
{
	struct stat *st = &a->in->attr;
	int rc = 0;

	pthread_mutex_lock(&a->m->inodes.lock);
	if (!a->in->gone || !S_ISDIR(st->st_mode))
		rc = 1;
	else if (a->user->uid != 0 && (a->user->uid != st->st_uid || valid & FUSE_SET_ATTR_UID))
		rc = -EPERM;
	if (rc == 0 && valid & FUSE_SET_ATTR_MODE)
		st->st_mode = S_IFDIR | (to->st_mode & 01777);
	if (rc == 0 && valid & FUSE_SET_ATTR_UID)
		st->st_uid = to->st_uid;
	if (rc == 0 && valid & FUSE_SET_ATTR_GID)
		st->st_gid = to->st_gid;
	if (rc == 0 && valid & FUSE_SET_ATTR_MTIME)
		st->st_mtim = st->st_ctim = to->st_mtim; /* also for "now" */
	if (rc == 0 && valid & FUSE_SET_ATTR_ATIME)
		st->st_atim = to->st_atim;
	pthread_mutex_unlock(&a->m->inodes.lock);
	return rc;
}

static int change(struct ask *a, struct handle *h, const struct stat *attr, int valid)
{
	int rc = change_left(a, attr, valid);

	if (rc <= 0)
		return rc;
	rc = valid & FUSE_SET_ATTR_MODE ? owner_errno(change_mode(a, attr->st_mode)) : 0;
	if (rc == 0 && valid & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		rc = owner_errno(change_owner(a, attr, valid));
	if (rc == 0 && valid & FUSE_SET_ATTR_SIZE)
		rc = content_truncate(a->m, a->in, h ? h->user : a->user, h,
				      (uint64_t)attr->st_size, &a->err);
	if (rc == 0 && valid & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME) &&
	    !(valid & FUSE_SET_ATTR_SIZE && valid & FUSE_SET_ATTR_MTIME_NOW))
		rc = change_times(a, attr, valid);
	return rc;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		struct fuse_file_info *fi)
{
	struct handle *h = fi ? (struct handle *)(uintptr_t)fi->fh : NULL;
	struct ask a;
	int rc = ask_begin(&a, req, "setattr", ino);

	if (rc) {
		reply_err(req, rc);
		return;
	}
	rc = change(&a, h, attr, valid);
	if (rc == 0)
		attr_changed(a.m, a.in);
	if (rc < 0)
		ask_reply(&a, stale_errno(rc));
	else
		reply_attr(&a);
}

/* ---- making ---- */

bool ask_begin_name(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t parent,
		    const char *name, char path[CHILD_PATH_MAX])
{
	int no = name_check(name, true);

	no = no ?: ask_begin(a, req, op, parent);
	if (no)
		reply_err(req, no);
	else
		child_path(path, a->in->id, name);
	return !no;
}

static void reply_made(struct ask *a, const char *name, int rc)
{
	struct fuse_entry_param e;

	if (rc == 0)
		dir_changed(a->m, a->in);
	rc = rc ?: entry_ask(a, name, &e);
	if (rc < 0)
		ask_reply(a, rc);
	else
		entry_reply(a, &e);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	char path[CHILD_PATH_MAX];
	struct ask a;

	if (ask_begin_name(&a, req, "mkdir", parent, name, path))
		reply_made(&a, name,
			   dfs_mkdir(a.user->fs, path, mode_to_make(req, mode), false, &a.err));
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	struct dfs_create_opts o = {.size = sizeof(o),
				    .flags = DFS_CREATE_NO_PARENTS | DFS_CREATE_EARLY |
					     DFS_CREATE_CLOSE_EARLY,
				    .mode = mode_to_make(req, mode)};
	char path[CHILD_PATH_MAX];
	struct dfs_file *f;
	struct ask a;
	int rc;

	(void)dev;
	if (!S_ISREG(mode) && (mode & S_IFMT)) {
		reply_err(req, EPERM); /* devices, pipes, sockets: HDFS has nothing of the kind */
		return;
	}
	if (!ask_begin_name(&a, req, "mknod", parent, name, path))
		return;
	rc = dfs_create(a.user->fs, path, &o, &f, &a.err);
	rc = rc ?: dfs_close(f, &a.err);
	a.user->made += rc == 0;
	reply_made(&a, name, rc == -EISDIR ? -EEXIST : rc);
}

void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	char path[CHILD_PATH_MAX];
	struct ask a;

	if (!utf8_is_valid(link))
		reply_err(req, EILSEQ);
	else if (ask_begin_name(&a, req, "symlink", parent, name, path))
		reply_made(&a, name, dfs_symlink(a.user->fs, link, path, &a.err));
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX];
	struct ask a;
	const int no = ask_begin(&a, req, "readlink", ino);
	ssize_t n;

	if (no) {
		reply_err(req, no);
		return;
	}
	n = dfs_readlink(a.user->fs, a.path, target, sizeof(target) - 1, &a.err);
	if (n < 0) { /* longer than any path here: another client has made it */
		ask_reply(&a, n == -ERANGE ? -ENAMETOOLONG : stale_errno((int)n));
		return;
	}
	target[n] = '\0';
	ask_end(&a);
	fuse_reply_readlink(req, target);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino;
	(void)parent;
	(void)name;
	reply_err(req, EPERM); /* link(2): the file system has no hard links */
}
