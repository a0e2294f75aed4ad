/* SPDX-License-Identifier: Apache-2.0 */
/* recover - what mounts that were killed have left on the local disk
 *
 * Before the kernel hears of a mount, it takes over the sessions of dead ones (state.h), in this
 * order: a rename that was half done is taken back, files that were deleted and open go, leases
 * end, and overlays are published as fsync(2) would have. An overlay that cannot be, because the
 * file was changed or deleted by somebody else or the machine itself went down, is kept as two
 * local files whose names are printed. When only the cluster is in the way, all stays as it is for
 * the next start. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse/content/content.h"

#define FILES_MAX 100000 /* of one session */

struct recovery {
	struct mount *m;
	struct dead *dead;
	uint64_t token; /* of the dead mount */
};

/* What may be better at the next start. */
static bool is_passing(int rc)
{
	return fail_is_passing(rc) || rc == -EIO || rc == -ENOMEM || rc == -EDQUOT;
}

/* As who it was begun; as the owner of the mount, if that cannot be. */
static struct user *user_of(struct mount *m, uint32_t uid)
{
	struct user *user;

	return users_get(&m->users, uid, &user, NULL) == 0 ? user : users_owner(&m->users);
}

/* ---- notes of half a rename ---- */

/* True: it waits for the next start, and so does what is marked of the file. */
static bool undo(const struct recovery *r, const char *file)
{
	char name[DFS_NAME_MAX + 1], from[ID_PATH_MAX], to[CHILD_PATH_MAX];
	struct user *owner = users_owner(&r->m->users);
	struct dfs_stat st;
	uint64_t id, dir;
	int rc = state_read_undo(r->dead, file, &id, &dir, name);

	if (rc == 0) {
		id_path(from, id);
		child_path(to, dir, name);
		/* it is there: the rename was done, or never begun */
		rc = dfs_lstat(owner->fs, to, &st, NULL);
		if (rc == -ENOENT) {
			st.file_id = id;
			rc = dfs_rename(owner->fs, from, to, false, NULL);
			if (rc == 0)
				tell("%s was about to be replaced or deleted when its mount was "
				     "killed: the old file is back",
				     name);
		}
		/* before the note goes, without which a mark means that it is to be deleted */
		if (is_passing(rc) || (rc == 0 && st.file_id == id))
			state_free_marks(r->dead, id, rc == 0);
	}
	users_put(&r->m->users, owner);
	if (is_passing(rc))
		return true;
	(void)unlinkat(r->dead->dir, file, 0);
	return false;
}

/* ---- marks ---- */

/* Nobody writes it: 0. 1: and somebody did until now. */
static int end_lease(struct mount *m, struct user *user, uint64_t id, struct dfs_err *err)
{
	char path[ID_PATH_MAX];
	bool closed = false;
	int rc;

	id_path(path, id);
	rc = dfs_is_closed(user->fs, path, &closed, err);
	if (rc < 0 || closed)
		return rc;
	rc = dfs_recover_lease(user->fs, path, &closed, err);
	if (rc == 0 && !closed)
		rc = dfs_wait_closed(user->fs, path, m->opt.timeout_s * 1000, err);
	return rc < 0 ? rc : 1;
}

/* Mark @i was settled with @rc, as by end_lease(), or dfs_delete() of what was hidden. */
static void tell_mark(const struct recovery *r, uint32_t i, struct user *user, int rc,
		      const char *why)
{
	const struct mark *k = &r->dead->mark[i];
	char name[DFS_NAME_MAX + 1], path[ID_PATH_MAX];
	struct dfs_stat st;

	state_mark_name(r->dead, i, name);
	id_path(path, k->id);
	if (rc == -ENOENT || (rc == 0 && k->kind == MARK_WRITING))
		return; /* it was all done */
	if (rc < 0)
		tell("%s (HDFS file %" PRIu64 ") cannot be %s%s: %s", name, k->id,
		     k->kind == MARK_HIDDEN ? "deleted" : "closed",
		     is_passing(rc) ? " yet, and waits for the next start" : "", why);
	else if (k->kind == MARK_HIDDEN)
		tell("%s (HDFS file %" PRIu64 ") was deleted while it was open: it is gone now",
		     name, k->id);
	else if (dfs_stat(user->fs, path, &st, NULL) == 0)
		tell("%s (HDFS file %" PRIu64 ") was being written: it is closed now, with %" PRIu64
		     " bytes, which had reached the data nodes",
		     name, k->id, st.length);
	else
		tell("%s (HDFS file %" PRIu64
		     ") was being written: it is closed now, at what had reached the data nodes",
		     name, k->id);
}

/* True: not all could be settled now. */
static bool settle_marks(const struct recovery *r)
{
	struct dfs_err err;
	char path[ID_PATH_MAX];
	bool again = false;
	int rc;

	for (uint32_t i = 0; i < r->dead->marks; i++) {
		const struct mark *k = &r->dead->mark[i];
		struct user *user;

		if (k->kind == MARK_FREE)
			continue;
		user = user_of(r->m, k->uid);
		id_path(path, k->id);
		err.text[0] = '\0';
		if (k->kind == MARK_HIDDEN)
			rc = dfs_delete(user->fs, path, false, &err);
		else
			rc = end_lease(r->m, user, k->id, &err);
		tell_mark(r, i, user, rc, err.text);
		again |= rc < 0 && is_passing(rc);
		users_put(&r->m->users, user);
	}
	return again;
}

static bool was_hidden(const struct recovery *r, uint64_t id)
{
	for (uint32_t i = 0; i < r->dead->marks; i++)
		if (r->dead->mark[i].kind == MARK_HIDDEN && r->dead->mark[i].id == id)
			return true;
	return false;
}

/* ---- overlays ---- */

/* Out of the session, and of the way of later starts. */
static void keep(const struct recovery *r, uint64_t n, const struct overlay_of *of, const char *why)
{
	static const char *const parts[] = {"log", "data"};
	char from[STATE_NAME_MAX], to[3 * STATE_NAME_MAX];

	for (size_t i = 0; i < 2; i++) {
		snprintf(from, sizeof(from), "%" PRIu64 ".%s", n, parts[i]);
		snprintf(to, sizeof(to), "kept.%s.%" PRIu64 ".%s", r->dead->name, n, parts[i]);
		(void)renameat(r->dead->dir, from, r->m->state.top_fd, to);
	}
	tell("changes of %s (HDFS file %" PRIu64
	     ") that were neither synced nor closed are kept in %s/%s: %s",
	     of->name, of->id, r->m->state.top, to, why);
}

/* Who has opened the file may not be let to it any more; then it was, and is, published as the
 * mount's owner (publish.c). */
static struct user *user_who_may(struct mount *m, const struct overlay_of *of)
{
	struct user *user = user_of(m, of->uid);
	char path[ID_PATH_MAX];
	struct dfs_stat st;

	id_path(path, of->id);
	if (dfs_stat(user->fs, path, &st, NULL) != -EACCES)
		return user;
	users_put(&m->users, user);
	return users_owner(&m->users);
}

static int delete_new(struct mount *m, struct user *user, const char *path)
{
	int rc = dfs_delete(user->fs, path, false, NULL);

	if (rc == -EACCES) {
		struct user *owner = users_owner(&m->users);

		rc = dfs_delete(owner->fs, path, false, NULL);
		users_put(&m->users, owner);
	}
	return rc;
}

/* The new content of a publication that was under way. 1: it had taken the place of the old; 0: it
 * has not, or @ov was changed since, and the new one is its base now. */
static int judge_new(const struct recovery *r, struct user *user, struct overlay *ov)
{
	const struct overlay_of *of = overlay_base(ov);
	char path[ID_PATH_MAX], tmp[CHILD_PATH_MAX], name[NEW_NAME_MAX];
	struct dfs_stat st;
	int rc;

	new_name(name, r->token, of->id);
	child_path(tmp, of->dir_id, name);
	rc = delete_new(r->m, user, tmp);
	if (rc < 0 && is_passing(rc))
		return rc;
	if (rc == 0 || !overlay_new_id(ov)) /* it has its own name still */
		return 0;
	id_path(path, of->id);
	if (dfs_stat(user->fs, path, &st, NULL) != -ENOENT)
		return 0;
	id_path(path, overlay_new_id(ov));
	rc = dfs_stat(user->fs, path, &st, NULL);
	if (rc < 0)
		return is_passing(rc) ? rc : 0;
	return overlay_is_changed_since(ov) ? overlay_take_new(ov, st.mtime_ms) : 1;
}

/* Is the base what it was? NULL: yes. */
static const char *judge_base(const struct recovery *r, const struct overlay *ov,
			      const struct dfs_stat *st)
{
	const struct overlay_of *of = overlay_base(ov);

	if (!r->dead->same_boot)
		return "the machine went down since, and they may not be complete";
	if (!overlay_is_cut(ov) && (st->length != of->length || st->mtime_ms != of->mtime_ms))
		return "the file was changed by somebody else";
	return NULL;
}

/* An inode for the time of its publication. */
static int publish(const struct recovery *r, struct user *user, struct overlay *ov,
		   const struct dfs_stat *st, struct dfs_err *err)
{
	const struct overlay_of *of = overlay_base(ov);
	struct mount *m = r->m;
	struct inode *in =
		inode_enter(&m->inodes, st, 0, of->dir_id, of->name[0] ? of->name : NULL, 0);
	int rc;

	if (!in)
		return -ENOMEM;
	pthread_mutex_lock(&in->content);
	in->ov = ov;
	in->w_user = users_ref(&m->users, user);
	rc = publish_locked(m, in, err);
	in->ov = NULL;
	in->w_user = NULL;
	pthread_mutex_unlock(&in->content);
	users_put(&m->users, user);
	inode_put(&m->inodes, in);
	return rc;
}

static int recover_overlay(const struct recovery *r, uint64_t n, struct overlay *ov,
			   struct dfs_err *err)
{
	struct user *user = user_who_may(r->m, overlay_base(ov));
	char path[ID_PATH_MAX];
	struct dfs_stat st;
	const char *why;
	int rc = judge_new(r, user, ov);
	const struct overlay_of of = *overlay_base(ov);

	id_path(path, of.id);
	if (rc == 1 || was_hidden(r, of.id)) { /* published already, or deleted */
		overlay_free(ov);
		users_put(&r->m->users, user);
		return 0;
	}
	if (rc == 0)
		rc = end_lease(r->m, user, of.id, err);
	rc = rc < 0 ? rc : dfs_stat(user->fs, path, &st, err);
	why = rc == 0          ? judge_base(r, ov, &st)
	      : rc == -ENOENT  ? "the file was deleted"
	      : is_passing(rc) ? NULL
			       : err->text;
	if (rc == 0 && !why) {
		rc = publish(r, user, ov, &st, err);
		if (rc < 0 && !is_passing(rc))
			why = err->text;
	}
	users_put(&r->m->users, user);
	if (rc == 0 && !why) {
		tell("changes of %s (HDFS file %" PRIu64
		     ") that a killed mount had not published are in it now",
		     of.name, of.id);
		overlay_free(ov);
		return 0;
	}
	overlay_leave(ov);
	if (why) {
		keep(r, n, &of, why);
		return 0;
	}
	return rc;
}

/* The mount was killed when it had just made the two files: nothing was taken. */
static bool drop_if_empty(const struct recovery *r, uint64_t n)
{
	char log[STATE_NAME_MAX], data[STATE_NAME_MAX];
	struct stat st;

	snprintf(log, sizeof(log), "%" PRIu64 ".log", n);
	snprintf(data, sizeof(data), "%" PRIu64 ".data", n);
	if (fstatat(r->dead->dir, log, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size > 0 ||
	    fstatat(r->dead->dir, data, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size > 0)
		return false;
	(void)unlinkat(r->dead->dir, log, 0);
	(void)unlinkat(r->dead->dir, data, 0);
	return true;
}

static void take_overlay(const struct recovery *r, uint64_t n)
{
	static const struct overlay_of unknown = {.name = "?"};
	struct overlay *ov;
	struct dfs_err err;
	int rc = overlay_load(r->dead->dir, n, &r->m->budget, &ov);

	err.text[0] = '\0';
	if (rc == -EINVAL && drop_if_empty(r, n))
		return;
	if (rc == -EINVAL) {
		keep(r, n, &unknown, "their record makes no sense");
		return;
	}
	rc = rc ?: recover_overlay(r, n, ov, &err);
	if (rc < 0)
		tell("changes of a killed mount wait in %s/%s for the next start: %s",
		     r->m->state.top, r->dead->name, err.text[0] ? err.text : strerror(-rc));
}

/* ---- sessions ---- */

struct names {
	char (*name)[STATE_NAME_MAX]; /* owned */
	size_t count;
};

static void list_session(const struct dead *d, struct names *ret)
{
	DIR *dir = fdopendir(openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;

	*ret = (struct names){0};
	while (dir && (e = readdir(dir)) && ret->count < FILES_MAX) {
		void *p = strlen(e->d_name) < STATE_NAME_MAX
				  ? realloc(ret->name, (ret->count + 1) * sizeof(*ret->name))
				  : NULL;

		if (!p)
			continue;
		ret->name = p;
		snprintf(ret->name[ret->count++], STATE_NAME_MAX, "%s", e->d_name);
	}
	if (dir)
		closedir(dir);
}

/* True: something is left for the next start. */
static bool recover_session(const struct recovery *r)
{
	struct names names;
	char what[8];
	uint64_t n;
	bool again = false;

	list_session(r->dead, &names);
	for (size_t i = 0; i < names.count; i++)
		if (strncmp(names.name[i], "undo.", 5) == 0)
			again |= undo(r, names.name[i]);
	again |= settle_marks(r);
	for (size_t i = 0; i < names.count; i++) {
		if (sscanf(names.name[i], "%" SCNu64 ".%7s", &n, what) != 2)
			continue;
		if (strcmp(what, "log") == 0)
			take_overlay(r, n);
		else if (strcmp(what, "log.new") == 0)
			(void)unlinkat(r->dead->dir, names.name[i], 0);
	}
	/* data without a record: nothing had been written yet, or all is done */
	for (size_t i = 0; i < names.count; i++) {
		char log[STATE_NAME_MAX + 8];

		if (sscanf(names.name[i], "%" SCNu64 ".%7s", &n, what) != 2 ||
		    strcmp(what, "data") != 0)
			continue;
		snprintf(log, sizeof(log), "%" PRIu64 ".log", n);
		if (faccessat(r->dead->dir, log, F_OK, 0) < 0)
			(void)unlinkat(r->dead->dir, names.name[i], 0);
	}
	free(names.name);
	return again;
}

void recover_all(struct mount *m)
{
	struct dead *dead;

	if (state_find_dead(&m->state, dfs_uri(m->users.user[0]->fs), &dead) < 0)
		return;
	while (dead) {
		struct recovery r = {.m = m, .dead = dead, .token = strtoull(dead->name, NULL, 16)};
		struct dead *next = dead->next;

		const bool again = recover_session(&r);

		state_end_dead(&m->state, dead, again);
		dead = next;
	}
}
