/* SPDX-License-Identifier: Apache-2.0 */
/* publish - an overlay becomes the HDFS file
 *
 * The new content is written to a file of its own, in the same directory and under a name that no
 * mount shows, with mode, owner, replication and block size of the old one; then it is renamed over it.
 * A reader sees the old file or the new one, whole. Where that cannot be (the user may not write to
 * the directory, or the file belongs to somebody else, or it was renamed by another client), the
 * file is cut before the first change and written from there: the result is the same, but a reader at
 * that moment, or a crash in it, sees a shorter file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "fuse/content.h"
#include "fuse/overlay.h"

#define COPY_BYTES (1u << 20)
#define XATTR_BYTES (64u << 10) /* of one value, or of all names */
#define SAFE_MODE_PAUSE_NS (250 * NS_PER_MS) /* before a NameNode in safe mode is asked again */

struct base {
	struct dfs_file *f; /* open for reading */
	struct dfs_err *err;
};

static int read_base(void *arg, void *buf, size_t len, uint64_t offset)
{
	struct base *b = arg;
	const ssize_t n = dfs_pread(b->f, buf, len, offset, b->err);

	if (n < 0)
		return (int)n;
	memset((uint8_t *)buf + n, 0, len - (size_t)n);
	return 0;
}

/* The content from @offset on, to the end of @to. */
static int copy(struct overlay *ov, struct dfs_file *from, struct dfs_file *to, uint64_t offset, struct dfs_err *err)
{
	struct base b = {from, err};
	uint8_t *buf = malloc(COPY_BYTES);
	ssize_t n = buf ? 1 : -ENOMEM;

	while (n > 0) {
		n = overlay_read(ov, buf, COPY_BYTES, offset, read_base, &b);
		if (n > 0 && dfs_write(to, buf, (size_t)n, err) < 0)
			n = err->rc;
		else if (n > 0)
			offset += (uint64_t)n;
	}
	free(buf);
	return (int)n;
}

/* Extended attributes, of those namespaces that the user may see. */
static int copy_xattrs(struct dfs *fs, const char *from, const char *to, struct dfs_err *err)
{
	char *names = malloc(XATTR_BYTES), *value = malloc(XATTR_BYTES);
	ssize_t n = names && value ? dfs_list_xattrs(fs, from, names, XATTR_BYTES, err) : -ENOMEM, len;
	int rc = n < 0 && n != -EOPNOTSUPP ? (int)n : 0;

	for (ssize_t at = 0; rc == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
		len = dfs_get_xattr(fs, from, names + at, value, XATTR_BYTES, err);
		rc = len < 0 ? (int)len : dfs_set_xattr(fs, to, names + at, value, (size_t)len, 0, err);
	}
	free(names);
	free(value);
	return rc;
}

/* The list of @from, and not the default entries of the directory. */
static int copy_acl(struct dfs *fs, const char *from, const char *to, const struct dfs_stat *old, bool inherited,
		    struct dfs_err *err)
{
	struct dfs_acl *l;
	int rc;

	if (!old->has_acl)
		return inherited ? dfs_remove_acl(fs, to, err) ?: dfs_set_permission(fs, to, old->mode, err) : 0;
	rc = dfs_get_acl(fs, from, &l, err);
	if (rc < 0)
		return rc;
	rc = dfs_set_acl(fs, to, l->entry, l->count, err);
	if (rc == 0 && old->mode & 01000)
		rc = dfs_set_permission(fs, to, old->mode, err);
	dfs_acl_free(l);
	return rc;
}

/* Write the temporary file. It is gone again when this fails. */
static int write_new(struct inode *in, const char *tmp, const struct dfs_stat *old,
		     uint64_t *ret_id, struct dfs_err *err)
{
	struct dfs *fs = in->w_user->fs;
	struct dfs_stat made;
	struct dfs_create_opts o = {
		.size = sizeof(o), .flags = DFS_CREATE_OVERWRITE | DFS_CREATE_NO_PARENTS,
		.mode = (old->has_acl ? 0600 : old->mode) | DFS_MODE_SET, .replication = old->replication,
		.block_size = old->block_size, .ret_stat = &made,
	};
	struct dfs_file *to, *from = NULL;
	struct dfs_ec_policy policy;
	char path[ID_PATH_MAX];
	int rc = 0, closed;

	id_path(path, in->id);
	if (old->erasure_coded) { /* its own policy, which need not be that of the directory */
		rc = dfs_ec_get(fs, path, &policy, err);
		o.ec_policy = rc == 1 ? policy.name : NULL;
		o.replication = 0;
	}
	rc = rc < 0 ? rc : dfs_create(fs, tmp, &o, &to, err);
	if (rc == 0 && made.erasure_coded && !old->erasure_coded) { /* the directory has become so since */
		(void)dfs_close(to, NULL);
		o.ec_policy = "replication";
		rc = dfs_create(fs, tmp, &o, &to, err);
	}
	if (rc < 0)
		return rc;
	rc = dfs_open(fs, path, &from, err);
	rc = rc ?: copy(in->ov, from, to, 0, err);
	closed = dfs_close(to, rc ? NULL : err);
	rc = rc ?: closed;
	(void)dfs_close(from, NULL);
	if (rc == 0 && (strcmp(made.owner, old->owner) != 0 || strcmp(made.group, old->group) != 0))
		rc = dfs_set_owner(fs, tmp, old->owner, old->group, err);
	rc = rc ?: copy_xattrs(fs, path, tmp, err);
	rc = rc ?: copy_acl(fs, path, tmp, old, made.has_acl, err);
	if (rc < 0)
		(void)dfs_delete(fs, tmp, false, NULL);
	else
		*ret_id = made.file_id;
	return rc;
}

/* Where the file is, if it is still there. */
static int find_name(struct mount *m, struct inode *in, char *ret_path, uint64_t *ret_dir, struct dfs_err *err)
{
	char name[DFS_NAME_MAX + 1] = "";
	struct dfs_stat st;
	uint64_t parent;
	int rc;

	pthread_mutex_lock(&m->inodes.lock);
	parent = in->parent;
	if (in->name)
		snprintf(name, sizeof(name), "%s", in->name);
	pthread_mutex_unlock(&m->inodes.lock);
	if (!name[0])
		return -ESTALE;
	*ret_dir = dir_id(m, parent);
	child_path(ret_path, *ret_dir, name);
	rc = dfs_lstat(in->w_user->fs, ret_path, &st, err);
	return rc == -ENOENT || (rc == 0 && st.file_id != in->id) ? -ESTALE : rc; /* moved, by another client */
}

void new_name(char name[NEW_NAME_MAX], uint64_t token, uint64_t id)
{
	snprintf(name, NEW_NAME_MAX, HIDDEN_PREFIX "%" PRIx64 ".%" PRIx64 ".new", token, id);
}

static int replace(struct mount *m, struct inode *in, const struct dfs_stat *old, struct dfs_err *err)
{
	const uint64_t old_id = in->id;
	char path[CHILD_PATH_MAX], tmp[CHILD_PATH_MAX], name[NEW_NAME_MAX];
	uint64_t dir, new_id;
	int rc = find_name(m, in, path, &dir, err);

	if (rc < 0)
		return rc;
	new_name(name, m->token, old_id);
	child_path(tmp, dir, name);
	rc = write_new(in, tmp, old, &new_id, err);
	if (rc < 0)
		return rc;
	rc = overlay_note_new(in->ov, new_id);
	if (rc < 0) {
		(void)dfs_delete(in->w_user->fs, tmp, false, NULL);
		return rc;
	}
	pthread_mutex_lock(&in->naming);
	rc = find_name(m, in, path, &dir, err); /* where it is now: somebody may have renamed it while it was written */
	if (rc == 0) {
		/* First the id, then the name: who looks the name up in between finds this inode by its number. */
		inode_new_id(&m->inodes, in, new_id);
		rc = dfs_rename(in->w_user->fs, tmp, path, true, err);
		if (rc < 0)
			inode_new_id(&m->inodes, in, old_id);
	}
	pthread_mutex_unlock(&in->naming);
	if (rc < 0)
		(void)dfs_delete(in->w_user->fs, tmp, false, NULL);
	return rc;
}

/* What lies behind the cut and is still needed goes into the overlay first. */
static int keep_base(struct inode *in, uint64_t cut, uint64_t base_length, struct dfs_err *err)
{
	char path[ID_PATH_MAX];
	uint8_t *buf = malloc(COPY_BYTES);
	struct dfs_file *from = NULL;
	struct base b = {NULL, err};
	int rc = buf ? 0 : -ENOMEM;

	id_path(path, in->id);
	rc = rc ?: dfs_open(in->w_user->fs, path, &from, err);
	b.f = from;
	while (rc == 0 && cut < base_length && cut < overlay_length(in->ov)) {
		const ssize_t n = overlay_read(in->ov, buf, COPY_BYTES, cut, read_base, &b);

		rc = n < 0 ? (int)n : overlay_write(in->ov, buf, (size_t)n, cut);
		cut += n > 0 ? (uint64_t)n : COPY_BYTES;
	}
	(void)dfs_close(from, NULL);
	free(buf);
	return rc;
}

static int rewrite(struct mount *m, struct inode *in, const struct dfs_stat *old, struct dfs_err *err)
{
	const uint64_t first = overlay_first_change(in->ov);
	const uint64_t cut = first < old->length ? first / old->block_size * old->block_size : old->length;
	struct user *user = in->w_user;
	char path[ID_PATH_MAX];
	bool done = true;
	int rc = keep_base(in, cut, old->length, err), closed;

	id_path(path, in->id);
	rc = rc ?: overlay_note_cut(in->ov);
	if (rc == 0 && cut < old->length)
		rc = dfs_truncate(user->fs, path, cut, &done, err);
	if (rc == 0 && !done)
		rc = dfs_wait_closed(user->fs, path, m->opt.timeout_s * 1000, err);
	rc = rc ?: dfs_append(user->fs, path, 0, &in->w, err);
	if (rc < 0) {
		in->w = NULL;
		return rc;
	}
	rc = copy(in->ov, NULL, in->w, cut, err); /* all of it is in the overlay */
	closed = dfs_close(in->w, rc ? NULL : err);
	in->w = NULL;
	return rc ?: closed;
}

static int publish_once(struct mount *m, struct inode *in, struct dfs_err *err)
{
	struct dfs_stat old;
	char path[ID_PATH_MAX];
	int rc;

	id_path(path, in->id);
	rc = dfs_stat(in->w_user->fs, path, &old, err);
	if (rc == -ENOENT && overlay_new_id(in->ov)) { /* an earlier try was done, and its answer lost */
		id_path(path, overlay_new_id(in->ov));
		rc = dfs_stat(in->w_user->fs, path, &old, err);
		if (rc == 0)
			inode_new_id(&m->inodes, in, old.file_id);
	}
	if (rc < 0)
		return rc;
	rc = overlay_is_cut(in->ov) ? -ESTALE : replace(m, in, &old, err);
	if (rc == -EACCES || rc == -EPERM || rc == -ESTALE)
		rc = rewrite(m, in, &old, err);
	return rc;
}

int publish_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	const struct timespec pause = {0, (long)SAFE_MODE_PAUSE_NS};
	const uint64_t begin = clock_mono_ns(), deadline = begin + m->opt.timeout_s * NS_PER_S;
	int rc = publish_once(m, in, err);

	/* A NameNode that has just started takes no changes at first; the bytes have been taken already. */
	while (rc == -EROFS && clock_mono_ns() < deadline) {
		(void)nanosleep(&pause, NULL);
		rc = publish_once(m, in, err);
	}
	counts_published(&m->counts, rc, clock_mono_ns() - begin);
	if (rc == 0) { /* the time of the last write, not that of its publication */
		pthread_mutex_lock(&m->inodes.lock);
		in->mtime_told = true;
		pthread_mutex_unlock(&m->inodes.lock);
	}
	return rc;
}

uint64_t dir_id(struct mount *m, uint64_t ino)
{
	struct inode *in = inode_get(&m->inodes, ino);
	const uint64_t id = in ? in->id : ino;

	inode_put(&m->inodes, in);
	return id;
}
