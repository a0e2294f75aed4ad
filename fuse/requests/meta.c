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
	int rc = to_owner ? users_name(attr->st_uid, owner) : 0;

	if (rc == 0 && to_group)
		rc = users_group_name(attr->st_gid, group);
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

/* Begin a request that makes @name in @parent. */
static bool begin_make(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t parent,
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

	if (begin_make(&a, req, "mkdir", parent, name, path))
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
	if (!begin_make(&a, req, "mknod", parent, name, path))
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
	else if (begin_make(&a, req, "symlink", parent, name, path))
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

/* ---- deleting and renaming ---- */

static void hidden_path(struct mount *m, char path[CHILD_PATH_MAX], uint64_t dir, uint64_t id)
{
	char name[64];

	snprintf(name, sizeof(name), HIDDEN_PREFIX "%" PRIx64 ".%" PRIx64, m->token, id);
	child_path(path, dir, name);
}

/* Names of @in and @other change, and no publication takes them meanwhile. Either may be NULL. */
static void naming_lock(struct inode *in, struct inode *other)
{
	struct inode *first = in < other ? in : other, *second = in < other ? other : in;

	if (first)
		pthread_mutex_lock(&first->naming);
	if (second && second != first)
		pthread_mutex_lock(&second->naming);
}

static void naming_unlock(struct inode *in, struct inode *other)
{
	if (in)
		pthread_mutex_unlock(&in->naming);
	if (other && other != in)
		pthread_mutex_unlock(&other->naming);
}

/* The file that is @from now has the name @to. Not the one that was asked for before: another mount
 * has been in between, and its file gets its name back; if that was given away once more, it is
 * replaced, as it would have been anyway. */
static int check_hidden(struct ask *a, const char *from, const char *to, uint64_t id)
{
	struct dfs_stat st;
	const int rc = dfs_lstat(a->user->fs, to, &st, &a->err);

	if (rc == -ENOENT)
		return -ESTALE;
	if (rc < 0 || st.file_id == id)
		return 0; /* it has moved, whatever else: it is ours to delete */
	if (dfs_rename(a->user->fs, to, from, false, &a->err) == -EEXIST)
		(void)dfs_delete(a->user->fs, to, false, NULL);
	return -ESTALE;
}

/* Somebody has @in, which is @name in @dir, open: it lives on under another name. -ESTALE: it is
 * not there any more, but another file, which nobody has open, or none. */
static int hide(struct ask *a, struct inode *dir, struct inode *in, const char *name)
{
	char path[CHILD_PATH_MAX], to[CHILD_PATH_MAX];
	struct dfs_stat st;
	int rc;

	/* Nothing is published meanwhile: its id stays. Not in->content: who writes it may wait for
	 * a data node, and the kernel has locked the directory for us. */
	pthread_mutex_lock(&in->naming);
	child_path(path, dir->id, name);
	hidden_path(a->m, to, dir->id, in->id);
	rc = dfs_lstat(a->user->fs, path, &st, &a->err);
	if (rc == 0 && st.file_id != in->id)
		rc = -ESTALE;
	rc = rc ?: dfs_rename(a->user->fs, path, to, false, &a->err);
	rc = rc ?: check_hidden(a, path, to, in->id);
	if (rc == -ENOENT || rc == -ESTALE) {
		inode_moved(&a->m->inodes, in, 0, NULL);
		rc = -ESTALE;
	}
	inode_name_went(&a->m->inodes, dir, name);
	if (rc == 0) {
		inode_moved(&a->m->inodes, in, 0, NULL);
		in->hidden_by = users_ref(&a->m->users, a->user);
		in->hidden_mark = state_mark(&a->m->state, MARK_HIDDEN, in->id, a->user->uid, name);
		pthread_mutex_lock(&a->m->inodes.lock);
		in->hidden = true;
		in->parent = dir->ino; /* without a name it is in no chain */
		pthread_mutex_unlock(&a->m->inodes.lock);
	}
	pthread_mutex_unlock(&in->naming);
	return rc;
}

/* The name of @in goes. Is it open? Then it stays so until unpin(): what is hidden goes with its
 * last descriptor. If not, nobody opens it until then. */
static bool pin_open(struct mount *m, struct inode *in)
{
	bool open;

	if (!in)
		return false;
	pthread_mutex_lock(&m->inodes.lock);
	open = in->opens > 0;
	if (open)
		in->opens++;
	else
		in->leaving++;
	pthread_mutex_unlock(&m->inodes.lock);
	return open;
}

static void unpin(struct mount *m, struct inode *in, bool open)
{
	if (open)
		file_unpin(m, in);
	else if (in)
		inode_left(&m->inodes, in);
}

static void mark_gone(struct mount *m, struct inode *in)
{
	if (!in)
		return;
	inode_moved(&m->inodes, in, 0, NULL);
	pthread_mutex_lock(&m->inodes.lock);
	in->gone = true;
	pthread_mutex_unlock(&m->inodes.lock);
}

/* The name that it was hidden under is another file's by now: another mount has published what it
 * had changed, in the moment in which the old one was hidden here. */
static int delete_hidden_name(struct mount *m, const struct inode *in, struct user *owner,
			      struct dfs_err *err)
{
	char path[CHILD_PATH_MAX];

	hidden_path(m, path, dir_id(m, in->parent), in->id);
	return dfs_delete(owner->fs, path, false, err);
}

int hidden_delete(struct mount *m, struct inode *in)
{
	struct user *owner = users_owner(&m->users);
	struct dfs_err err;
	char path[ID_PATH_MAX];
	int rc;

	err.text[0] = '\0';
	id_path(path, in->id);
	rc = m->unreachable
		     ? -ETIMEDOUT
		     : dfs_delete(in->hidden_by ? in->hidden_by->fs : owner->fs, path, false, &err);
	if (rc == -EACCES && in->hidden_by) /* the directory was closed to who has deleted it */
		rc = dfs_delete(owner->fs, path, false, &err);
	if (rc == -ENOENT)
		rc = delete_hidden_name(m, in, owner, &err);
	(void)fail_errno("delete a file that was open", rc, &err);
	users_put(&m->users, owner);
	if (fail_is_passing(rc)) {
		m->unreachable = m->ending;
		return rc;
	}
	users_put(&m->users, in->hidden_by);
	in->hidden_by = NULL;
	state_unmark(&m->state, &in->hidden_mark);
	mark_gone(m, in);
	return rc;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char path[CHILD_PATH_MAX];
	struct inode *in;
	struct ask a;
	bool open;
	int rc;

	if (!begin_make(&a, req, "unlink", parent, name, path))
		return;
	in = inode_get_named(&a.m->inodes, a.in->ino, name);
	open = pin_open(a.m, in);
	rc = open ? hide(&a, a.in, in, name) : -ESTALE;
	if (rc == -ESTALE) {
		naming_lock(in, NULL);
		rc = dfs_delete(a.user->fs, path, false, &a.err);
		inode_name_went(&a.m->inodes, a.in, name);
		if (rc == 0 && !open)
			mark_gone(a.m, in);
		naming_unlock(in, NULL);
	}
	unpin(a.m, in, open);
	inode_put(&a.m->inodes, in);
	ask_reply(&a, rc);
}

static bool is_hidden_file(const struct inode *in, const void *id)
{
	return in->hidden && !in->gone && in->id == *(const uint64_t *)id;
}

/* @st, a file with a name of ours in @dir: one level up with it. */
static int move_up(struct ask *a, struct inode *dir, struct inode *up, const struct dfs_stat *st)
{
	char from[CHILD_PATH_MAX], to[CHILD_PATH_MAX];
	struct inode *in;
	int rc;

	child_path(from, dir->id, st->name);
	child_path(to, up->id, st->name);
	rc = dfs_rename(a->user->fs, from, to, false, &a->err);
	if (rc == -ENOENT) /* it has gone at this moment, with its last descriptor */
		return 0;
	in = rc == 0 ? inode_find(&a->m->inodes, is_hidden_file, &st->file_id) : NULL;
	if (!in)
		return rc;
	pthread_mutex_lock(&a->m->inodes.lock);
	in->parent = up->ino;
	pthread_mutex_unlock(&a->m->inodes.lock);
	inode_put(&a->m->inodes, in);
	return 0;
}

/* A publication is at it: new_name(). */
static bool is_new_content(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && strcmp(dot, ".new") == 0;
}

/* Files that are deleted and still open, here or through another mount, keep a directory from being
 * empty: they are found by their ids and may lie one level up. 0: nothing is in @dir any more;
 * -ENOTEMPTY: something else is, and all stays where it is. */
static int move_hidden_up(struct ask *a, struct inode *dir, struct inode *up)
{
	const struct dfs_stat *st;
	struct dfs_list *l;
	char path[ID_PATH_MAX];
	int rc = 0;

	id_path(path, dir->id);
	for (int pass = 0; pass < 2 && rc == 0; pass++) {
		rc = dfs_list_open(a->user->fs, path, &l, &a->err);
		if (rc < 0)
			return rc;
		while ((rc = dfs_list_next(l, &st, &a->err)) > 0) {
			if (!name_is_ours(st->name) || st->type != DFS_FILE ||
			    is_new_content(st->name))
				rc = -ENOTEMPTY;
			else if (pass > 0)
				rc = move_up(a, dir, up, st);
			if (rc < 0)
				break;
		}
		dfs_list_close(l);
	}
	return rc;
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char path[CHILD_PATH_MAX];
	struct inode *in;
	struct ask a;
	bool open;
	int rc;

	if (!begin_make(&a, req, "rmdir", parent, name, path))
		return;
	in = inode_get_named(&a.m->inodes, a.in->ino, name);
	open = pin_open(a.m, in);
	rc = dfs_delete(a.user->fs, path, false, &a.err);
	/* what was in it may go at this moment, with its last descriptor */
	if (rc == -ENOTEMPTY && in) {
		rc = move_hidden_up(&a, in, a.in);
		rc = rc ?: dfs_delete(a.user->fs, path, false, &a.err);
	}
	inode_name_went(&a.m->inodes, a.in, name);
	if (rc == 0)
		mark_gone(a.m, in);
	unpin(a.m, in, open);
	inode_put(&a.m->inodes, in);
	ask_reply(&a, rc);
}

/* As if hide() had not been. */
static void show_again(struct ask *a, struct inode *dir, struct inode *in, const char *name)
{
	char from[ID_PATH_MAX], to[CHILD_PATH_MAX];

	pthread_mutex_lock(&in->naming);
	id_path(from, in->id);
	child_path(to, dir->id, name);
	state_unmark(&a->m->state, &in->hidden_mark);
	if (dfs_rename(a->user->fs, from, to, false, NULL) == 0) {
		inode_name_went(&a->m->inodes, dir, name);
		inode_moved(&a->m->inodes, in, dir->ino, name);
		pthread_mutex_lock(&a->m->inodes.lock);
		in->hidden = false;
		pthread_mutex_unlock(&a->m->inodes.lock);
		users_put(&a->m->users, in->hidden_by);
		in->hidden_by = NULL;
	}
	pthread_mutex_unlock(&in->naming);
}

/* The content of @in (NULL: not known) is on the disks of its data nodes, as far as these answer.
 */
static void sync_content(struct ask *a, const struct inode *in)
{
	const uint64_t by = in ? in->early_by : BY_ANYBODY;

	users_sync_blocks(&a->m->users, by,
			  in && by == BY_ANYBODY ? inode_id(&a->m->inodes, in) : 0);
}

/* @a->in is the directory of the source, @to_dir that of the target. */
static int do_rename(struct ask *a, const char *name, struct inode *to_dir, const char *new_name,
		     bool replace)
{
	struct inode *in = inode_get_named(&a->m->inodes, a->in->ino, name);
	struct inode *old = inode_get_named(&a->m->inodes, to_dir->ino, new_name);
	struct inode *over = replace && old != in ? old : NULL;
	char from[CHILD_PATH_MAX], to[CHILD_PATH_MAX];
	const bool open = pin_open(a->m, over);
	uint64_t undo = 0;
	int rc = -ESTALE;

	child_path(from, a->in->id, name);
	child_path(to, to_dir->id, new_name);
	/* the old content goes for good, and on the NameNode's disk: the new one must be on disks,
	 * too */
	if (over && !over->is_dir)
		sync_content(a, in);
	if (open) { /* killed in between, the name must not be missing for good */
		undo = state_undo(&a->m->state, over->id, to_dir->id, new_name);
		rc = hide(a, to_dir, over, new_name);
	}
	if (rc == -ESTALE || rc == 0) {
		naming_lock(in, over);
		rc = dfs_rename(a->user->fs, from, to, replace, &a->err);
		inode_name_went(&a->m->inodes, a->in, name);
		inode_name_went(&a->m->inodes, to_dir, new_name);
		if (rc == 0 && over && !open)
			mark_gone(a->m, over);
		if (rc == 0 && in) {
			inode_moved(&a->m->inodes, in, to_dir->ino, new_name);
			attr_changed(a->m, in);
		}
		naming_unlock(in, over);
	}
	if (rc < 0 && open && over->hidden)
		show_again(a, to_dir, over, new_name);
	state_undo_drop(&a->m->state, undo);
	unpin(a->m, over, open);
	inode_put(&a->m->inodes, in);
	inode_put(&a->m->inodes, old);
	return rc;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags)
{
	struct inode *to_dir;
	struct ask a;
	int no = flags & ~(unsigned int)RENAME_NOREPLACE ? EINVAL : 0; /* EXCHANGE, WHITEOUT */

	no = no ?: name_check(name, false);
	no = no ?: name_check(newname, true);
	no = no ?: ask_begin(&a, req, "rename", parent);
	if (no) {
		reply_err(req, no);
		return;
	}
	to_dir = inode_get(&a.m->inodes, newparent);
	no = to_dir ? do_rename(&a, name, to_dir, newname, !(flags & RENAME_NOREPLACE)) : -ESTALE;
	inode_put(&a.m->inodes, to_dir);
	ask_reply(&a, no);
}
