/* SPDX-License-Identifier: Apache-2.0 */
/* rename - requests that delete and rename; an open file keeps a hidden name */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "fuse/content/content.h"
#include "fuse/requests/ops.h"

/* that must not find a file hidden: a late request may come after the first */
#define DOUBT_LOOKS 2

/* Under which name is a file? The NameNode went away when it was hidden, or shown again. Until that
 * is known the file counts as one that has its own name. */
struct doubt {
	uint64_t dir_ino, dir_id;
	uint64_t id;   /* its hidden name is made of it */
	uint64_t undo; /* the note of it in mount.state; 0: none */
	/* a rename over it has failed: it gets its name back. False: unlink(2) has failed, and may
	 * have been done as well */
	bool show;
	uint32_t looks; /* that did not find it hidden */
	char name[DFS_NAME_MAX + 1];
};

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

/* @in lives under its hidden name from now on. Its naming is held. */
static void set_hidden(struct mount *m, struct inode *in, uint64_t dir_ino, struct user *by,
		       const char *name)
{
	inode_moved(&m->inodes, in, 0, NULL);
	if (!in->hidden_by)
		in->hidden_by = users_ref(&m->users, by);
	if (!in->hidden_mark)
		in->hidden_mark = state_mark(&m->state, MARK_HIDDEN, in->id, by->uid, name);
	pthread_mutex_lock(&m->inodes.lock);
	in->hidden = true;
	in->gone = false;     /* its name was, as far as was known */
	in->parent = dir_ino; /* without a name it is in no chain */
	pthread_mutex_unlock(&m->inodes.lock);
}

static void set_shown(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	in->hidden = false;
	pthread_mutex_unlock(&m->inodes.lock);
	state_unmark(&m->state, &in->hidden_mark);
	users_put(&m->users, in->hidden_by);
	in->hidden_by = NULL;
}

/* It is known where @in is: set_hidden() or set_shown() was told. Its naming is held. */
static void end_doubt(struct mount *m, struct inode *in)
{
	struct doubt *d = in->doubt;

	if (!d)
		return;
	pthread_mutex_lock(&m->inodes.lock);
	in->doubt = NULL;
	pthread_mutex_unlock(&m->inodes.lock);
	state_undo_drop(&m->state, d->undo);
	free(d);
}

/* @in is @name in @dir, or hidden: nobody knows. pending.c finds out; the note *@undo (0: there is
 * none yet) is taken, for the next mount. Its naming is held. */
static void begin_doubt(struct ask *a, struct inode *dir, struct inode *in, const char *name,
			uint64_t *undo, bool show)
{
	struct doubt *d = calloc(1, sizeof(*d));

	*undo = *undo ?: state_undo(&a->m->state, in->id, dir->id, name);
	/* Of a file with a mark and no note the next mount knows only that it was deleted. */
	if (!*undo)
		state_unmark(&a->m->state, &in->hidden_mark);
	else if (!in->hidden_mark)
		in->hidden_mark = state_mark(&a->m->state, MARK_HIDDEN, in->id, a->user->uid, name);
	if (!in->hidden_by)
		in->hidden_by = users_ref(&a->m->users, a->user);
	inode_name_went(&a->m->inodes, dir, name);
	inode_moved(&a->m->inodes, in, dir->ino, name);
	if (d) {
		*d = (struct doubt){.dir_ino = dir->ino,
				    .dir_id = dir->id,
				    .id = in->id,
				    .undo = *undo,
				    .show = show};
		snprintf(d->name, sizeof(d->name), "%s", name);
	} /* else the next mount sees to it */
	*undo = 0;
	pthread_mutex_lock(&a->m->inodes.lock);
	in->hidden = false;
	in->doubt = d;
	pthread_mutex_unlock(&a->m->inodes.lock);
	if (d)
		pending_add(a->m, in);
}

/* Its name is gone or another file's, as somebody wanted: it does not get it back. NULL: none. */
static void name_taken(struct inode *in)
{
	if (in && in->doubt)
		in->doubt->show = false;
}

/* Somebody has @in, which is @name in @dir, open: it lives on under another name. -ESTALE: it is
 * not there any more, but another file, which nobody has open, or none. @undo, @show: as in
 * begin_doubt(). */
static int hide(struct ask *a, struct inode *dir, struct inode *in, const char *name,
		uint64_t *undo, bool show)
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
	if (rc == 0) {
		if (in->doubt)
			set_shown(a->m, in);
		end_doubt(a->m, in);
		rc = dfs_rename(a->user->fs, path, to, false, &a->err);
		if (fail_is_passing(rc)) /* it may have been done, or may be done yet */
			begin_doubt(a, dir, in, name, undo, show);
	}
	rc = rc ?: check_hidden(a, path, to, in->id);
	if (rc == -ENOENT || rc == -ESTALE) {
		inode_moved(&a->m->inodes, in, 0, NULL);
		rc = -ESTALE;
	}
	inode_name_went(&a->m->inodes, dir, name);
	if (rc == 0)
		set_hidden(a->m, in, dir->ino, a->user, name);
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
	rc = pending_is_over(m)
		     ? -ETIMEDOUT
		     : dfs_delete(in->hidden_by ? in->hidden_by->fs : owner->fs, path, false, &err);
	if (rc == -EACCES && in->hidden_by) /* the directory was closed to who has deleted it */
		rc = dfs_delete(owner->fs, path, false, &err);
	if (rc == -ENOENT)
		rc = delete_hidden_name(m, in, owner, &err);
	(void)fail_errno("delete a file that was open", rc, &err);
	users_put(&m->users, owner);
	if (fail_is_passing(rc)) {
		pending_failed(m);
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
	uint64_t undo = 0;
	struct inode *in;
	struct ask a;
	bool open;
	int rc;

	if (!ask_begin_name(&a, req, "unlink", parent, name, path))
		return;
	in = inode_get_named(&a.m->inodes, a.in->ino, name);
	open = pin_open(a.m, in);
	rc = open ? hide(&a, a.in, in, name, &undo, false) : -ESTALE;
	if (rc == -ESTALE) {
		naming_lock(in, NULL);
		rc = dfs_delete(a.user->fs, path, false, &a.err);
		inode_name_went(&a.m->inodes, a.in, name);
		if (rc == 0)
			name_taken(in);
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

static bool is_in_doubt(const struct inode *in, const void *id)
{
	return in->doubt && in->doubt->id == *(const uint64_t *)id;
}

/* @st may get its own name back, in the directory where it is now. */
static bool must_stay(struct ask *a, const struct dfs_stat *st)
{
	struct inode *in = inode_find(&a->m->inodes, is_in_doubt, &st->file_id);

	inode_put(&a->m->inodes, in);
	return in != NULL;
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
			    is_new_content(st->name) || must_stay(a, st))
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

	if (!ask_begin_name(&a, req, "rmdir", parent, name, path))
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

/* As if hide() had not been; its note *@undo is taken when that has to wait. */
static void show_again(struct ask *a, struct inode *dir, struct inode *in, const char *name,
		       uint64_t *undo)
{
	char from[ID_PATH_MAX], to[CHILD_PATH_MAX];
	int rc;

	pthread_mutex_lock(&in->naming);
	id_path(from, in->id);
	child_path(to, dir->id, name);
	rc = dfs_rename(a->user->fs, from, to, false, NULL);
	if (rc == 0) {
		inode_name_went(&a->m->inodes, dir, name);
		inode_moved(&a->m->inodes, in, dir->ino, name);
		set_shown(a->m, in);
	} else if (rc != -EEXIST && rc != -ENOENT) { /* or the name is another file's by now */
		begin_doubt(a, dir, in, name, undo, true);
	}
	pthread_mutex_unlock(&in->naming);
}

/* The file @from, which is @in (@mine) or what came in between, gets its name back. -EEXIST:
 * another file has that. */
static int take_back(struct mount *m, struct inode *in, struct dfs *fs, const char *from, bool mine,
		     struct dfs_err *err)
{
	const struct doubt *d = in->doubt;
	struct inode *dir;
	char to[CHILD_PATH_MAX];
	int rc;

	child_path(to, d->dir_id, d->name);
	rc = dfs_rename(fs, from, to, false, err);
	if (rc < 0)
		return rc == -ENOENT ? -EAGAIN : rc; /* it went this moment: the next look tells */
	dir = inode_get(&m->inodes, d->dir_ino);
	if (dir)
		inode_name_went(&m->inodes, dir, d->name);
	inode_put(&m->inodes, dir);
	inode_moved(&m->inodes, in, d->dir_ino, mine ? d->name : NULL);
	set_shown(m, in);
	end_doubt(m, in);
	return 0;
}

/* Where is @in? -EAGAIN: nobody knows yet. Its naming is held. */
static int settle_doubt(struct mount *m, struct inode *in, struct dfs *fs, struct dfs_err *err)
{
	struct doubt *d = in->doubt;
	char path[CHILD_PATH_MAX];
	struct dfs_stat st;
	bool mine;
	int rc;

	hidden_path(m, path, d->dir_id, d->id);
	rc = dfs_lstat(fs, path, &st, err);
	if (rc == -ENOENT) {
		if (++d->looks < DOUBT_LOOKS)
			return -EAGAIN;
		set_shown(m, in);
		end_doubt(m, in);
		return 0;
	}
	if (rc < 0)
		return rc;
	mine = st.file_id == in->id; /* or as in check_hidden() */
	if (d->show || !mine) {
		rc = take_back(m, in, fs, path, mine, err);
		if (rc != -EEXIST)
			return rc;
		if (!mine)
			return dfs_delete(fs, path, false, err) ?: -EAGAIN;
	}
	set_hidden(m, in, d->dir_ino, in->hidden_by, d->name);
	end_doubt(m, in);
	return 0;
}

int hidden_settle(struct mount *m, struct inode *in)
{
	struct user *owner = users_owner(&m->users);
	struct dfs_err err;
	int rc = 0;

	err.text[0] = '\0';
	pthread_mutex_lock(&in->naming);
	if (in->doubt && pending_is_over(m)) {
		rc = -ETIMEDOUT;
	} else if (in->doubt) {
		rc = settle_doubt(m, in, in->hidden_by->fs, &err);
		if (rc == -EACCES) /* the directory was closed to who has hidden it */
			rc = settle_doubt(m, in, owner->fs, &err);
	}
	pthread_mutex_unlock(&in->naming);
	users_put(&m->users, owner);
	if (!fail_is_passing(rc))
		(void)fail_errno("show a file again", rc, &err);
	return rc;
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
		rc = hide(a, to_dir, over, new_name, &undo, true);
	}
	if (rc == -ESTALE || rc == 0) {
		naming_lock(in, over);
		rc = dfs_rename(a->user->fs, from, to, replace, &a->err);
		inode_name_went(&a->m->inodes, a->in, name);
		inode_name_went(&a->m->inodes, to_dir, new_name);
		if (rc == 0)
			name_taken(over);
		if (rc == 0 && over && !open)
			mark_gone(a->m, over);
		if (rc == 0 && in) {
			inode_moved(&a->m->inodes, in, to_dir->ino, new_name);
			attr_changed(a->m, in);
		}
		naming_unlock(in, over);
	}
	if (rc < 0 && open && over->hidden)
		show_again(a, to_dir, over, new_name, &undo);
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
