/* SPDX-License-Identifier: Apache-2.0 */
/* publish - an overlay becomes the HDFS file
 *
 * Blocks with changed bytes are written to a file of its own, in the same directory and under a
 * name that no mount shows; then the NameNode makes one file of its blocks and those of the old one
 * that did not change (dfs_replace_blocks()). Where it cannot (Apache's, an erasure-coded file, one
 * with a short block within it), all content is written to that file, with mode, owner, replication
 * and block size of the old one, and it is renamed over it. Either way a reader sees the old file
 * or the new one, whole. Where that cannot be (the user may not write to the directory, or the file
 * belongs to somebody else, or it was renamed by another client), the file is cut before the first
 * change and written from there: the result is the same, but a reader at that moment, or a crash in
 * it, sees a shorter file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "fuse/content/content_internal.h"
#include "fuse/content/overlay.h"

#define COPY_BYTES (1u << 20)
#define XATTR_BYTES (64u << 10) /* of one value, or of all names */
/* of one file; a NameNode allows 10,000 unless told otherwise */
#define SHARED_BLOCKS_MAX (1u << 20)
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

/* The content from @offset up to @end to the end of @to. */
static int copy(struct overlay *ov, struct dfs_file *from, struct dfs_file *to, uint64_t offset,
		uint64_t end, struct dfs_err *err)
{
	struct base b = {from, err};
	uint8_t *buf = malloc(COPY_BYTES);
	ssize_t n = buf ? 1 : -ENOMEM;

	while (n > 0 && offset < end) {
		request_table_moved();
		n = overlay_read(ov, buf, end - offset < COPY_BYTES ? end - offset : COPY_BYTES,
				 offset, read_base, &b);
		if (n > 0 && dfs_write(to, buf, (size_t)n, err) < 0)
			n = err->rc;
		else if (n > 0)
			offset += (uint64_t)n;
	}
	free(buf);
	return n < 0 ? (int)n : 0;
}

/* Extended attributes, of those namespaces that the user may see. */
static int copy_xattrs(struct dfs *fs, const char *from, const char *to, struct dfs_err *err)
{
	char *names = malloc(XATTR_BYTES), *value = malloc(XATTR_BYTES);
	ssize_t n = names && value ? dfs_list_xattrs(fs, from, names, XATTR_BYTES, err) : -ENOMEM,
		len;
	int rc = n < 0 && n != -EOPNOTSUPP ? (int)n : 0;

	for (ssize_t at = 0; rc == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
		len = dfs_get_xattr(fs, from, names + at, value, XATTR_BYTES, err);
		rc = len < 0 ? (int)len
			     : dfs_set_xattr(fs, to, names + at, value, (size_t)len, 0, err);
	}
	free(names);
	free(value);
	return rc;
}

/* The list of @from, and not the default entries of the directory. */
static int copy_acl(struct dfs *fs, const char *from, const char *to, const struct dfs_stat *old,
		    bool inherited, struct dfs_err *err)
{
	struct dfs_acl *l;
	int rc;

	if (!old->has_acl)
		return inherited ? dfs_remove_acl(fs, to, err)
					   ?: dfs_set_permission(fs, to, old->mode, err)
				 : 0;
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
		.size = sizeof(o),
		.flags = DFS_CREATE_OVERWRITE | DFS_CREATE_NO_PARENTS,
		.mode = (old->has_acl ? 0600 : old->mode) | DFS_MODE_SET,
		.replication = old->replication,
		.block_size = old->block_size,
		.ret_stat = &made,
	};
	struct dfs_file *to, *from = NULL;
	struct dfs_ec_policy policy;
	char path[ID_PATH_MAX];
	int rc = 0, closed;

	id_path(path, in->id);
	if (old->erasure_coded) { /* its own policy, which need not be that of the directory */
		rc = dfs_get_ec_policy(fs, path, &policy, err);
		o.ec_policy = rc == 1 ? policy.name : NULL;
		o.replication = 0;
	}
	rc = rc < 0 ? rc : dfs_create(fs, tmp, &o, &to, err);
	/* the directory has become so since */
	if (rc == 0 && made.erasure_coded && !old->erasure_coded) {
		(void)dfs_close(to, NULL);
		o.ec_policy = "replication";
		rc = dfs_create(fs, tmp, &o, &to, err);
	}
	if (rc < 0)
		return rc;
	rc = dfs_open(fs, path, &from, err);
	rc = rc ?: copy(in->ov, from, to, 0, UINT64_MAX, err);
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

/* ---- blocks that are shared ---- */

/* Which blocks of the file are to be new. */
struct plan {
	struct dfs_replace r;        /* owns r.place */
	uint64_t block_size, length; /* of the file as it is to be */
	bool refused;
};

static uint64_t block_end(uint64_t length, uint64_t block_size, uint32_t i)
{
	const uint64_t end = (i + 1ull) * block_size;

	return end < length ? end : length;
}

static int make_plan(struct inode *in, const struct dfs_stat *old,
		     const struct dfs_content_id *seen, struct plan *ret)
{
	const uint64_t size = old->block_size, length = overlay_length(in->ov),
		       blocks = (length + size - 1) / size;
	uint32_t *place, n = 0;

	if (blocks > SHARED_BLOCKS_MAX)
		return -EFBIG;
	place = calloc(blocks + 1, sizeof(*place));
	if (!place)
		return -ENOMEM;
	for (uint32_t i = 0; i < blocks; i++) {
		const uint64_t end = block_end(length, size, i);

		if (end != block_end(seen->length, size, i) ||
		    overlay_is_changed(in->ov, i * size, end))
			place[n++] = i;
	}
	*ret = (struct plan){.r = {.size = sizeof(ret->r),
				   .file_id = old->file_id,
				   .content = *seen,
				   .place = place,
				   .places = n,
				   .blocks = (uint32_t)blocks},
			     .block_size = size,
			     .length = length};
	return 0;
}

/* The new blocks, each full but for the last one of the file: so they are blocks of @tmp, too. */
static int write_blocks(struct inode *in, const char *tmp, const struct dfs_stat *old,
			const struct plan *p, struct dfs_file *from, uint64_t *ret_id,
			struct dfs_err *err)
{
	struct dfs_stat made;
	struct dfs_create_opts o = {
		.size = sizeof(o),
		.mode = 0600 | DFS_MODE_SET,
		.replication = old->replication,
		.block_size = p->block_size,
		.flags = DFS_CREATE_OVERWRITE | DFS_CREATE_NO_PARENTS |
			 (p->r.places ? DFS_CREATE_FIRST_BLOCK : 0),
		.ec_policy = "replication",
		.ret_stat = &made,
	};
	struct dfs_file *to;
	int rc = dfs_create(in->w_user->fs, tmp, &o, &to, err), closed;

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < p->r.places && rc == 0; i++) {
		const uint32_t k = p->r.place[i];

		rc = copy(in->ov, from, to, k * p->block_size,
			  block_end(p->length, p->block_size, k), err);
	}
	closed = dfs_close(to, rc ? NULL : err);
	rc = rc ?: closed;
	if (rc < 0)
		(void)dfs_delete(in->w_user->fs, tmp, false, NULL);
	else
		*ret_id = made.file_id;
	return rc;
}

/* ---- a new file for the old one ---- */

/* Where the file is, if it is still there, and what it is like. */
static int find_name(struct mount *m, struct inode *in, char *ret_path, uint64_t *ret_dir,
		     struct dfs_stat *ret_st, struct dfs_err *err)
{
	char name[DFS_NAME_MAX + 1] = "";
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
	rc = dfs_lstat(in->w_user->fs, ret_path, ret_st, err);
	/* moved, by another client */
	return rc == -ENOENT || (rc == 0 && ret_st->file_id != in->id) ? -ESTALE : rc;
}

void new_name(char name[NEW_NAME_MAX], uint64_t token, uint64_t id)
{
	snprintf(name, NEW_NAME_MAX, HIDDEN_PREFIX "%" PRIx64 ".%" PRIx64 ".new", token, id);
}

/* Rights that somebody has changed while @tmp was written as a copy of @old; in->naming keeps this
 * mount from changing them further. */
static int copy_new_rights(struct dfs *fs, const char *from, const char *tmp,
			   const struct dfs_stat *old, const struct dfs_stat *now,
			   struct dfs_err *err)
{
	int rc = 0;

	if (strcmp(old->owner, now->owner) != 0 || strcmp(old->group, now->group) != 0)
		rc = dfs_set_owner(fs, tmp, now->owner, now->group, err);
	if (old->has_acl || now->has_acl)
		return rc ?: copy_acl(fs, from, tmp, now, true, err);
	return rc || old->mode == now->mode ? rc : dfs_set_permission(fs, tmp, now->mode, err);
}

/* File @tmp takes the place of the old one: with the blocks of both, as @p says (@p->refused: the
 * NameNode will not have that), or NULL: as it is. */
static int put_in_place(struct mount *m, struct inode *in, const char *tmp,
			const struct dfs_stat *old, uint64_t new_id, struct plan *p,
			struct dfs_err *err)
{
	const uint64_t old_id = in->id;
	char path[CHILD_PATH_MAX], by_id[ID_PATH_MAX];
	struct dfs_stat now;
	uint64_t dir;
	int rc = overlay_note_new(in->ov, new_id);

	if (rc < 0)
		return rc;
	id_path(by_id, old_id);
	pthread_mutex_lock(&in->naming);
	/* where it is now: somebody may have renamed it while it was written */
	rc = find_name(m, in, path, &dir, &now, err);
	if (rc == 0 && !p)
		rc = copy_new_rights(in->w_user->fs, by_id, tmp, old, &now, err);
	if (rc == 0) {
		/* First the id, then the name: who looks the name up in between finds this inode by
		 * its number. */
		inode_new_id(&m->inodes, in, new_id);
		if (p) {
			p->r.part = tmp;
			rc = dfs_replace_blocks(in->w_user->fs, by_id, &p->r, err);
			p->refused = rc < 0 && (rc == -EBUSY || !fail_is_passing(rc));
		} else {
			rc = dfs_rename(in->w_user->fs, tmp, path, true, err);
		}
		if (rc < 0)
			inode_new_id(&m->inodes, in, old_id);
	}
	pthread_mutex_unlock(&in->naming);
	return rc;
}

/* With those blocks of the old file that did not change. *@ret_whole: that cannot be, it is to be
 * written whole. */
static int replace_shared(struct mount *m, struct inode *in, const char *tmp,
			  const struct dfs_stat *old, bool *ret_whole, struct dfs_err *err)
{
	struct dfs_file *from;
	struct dfs_content_id seen;
	char path[ID_PATH_MAX];
	struct plan p = {0};
	uint64_t new_id;
	int rc;

	id_path(path, in->id);
	rc = dfs_open(in->w_user->fs, path, &from, err);
	if (rc < 0)
		return rc;
	dfs_get_content_id(from, &seen);
	rc = make_plan(in, old, &seen, &p);
	p.refused = rc == -EFBIG;
	rc = rc ?: write_blocks(in, tmp, old, &p, from, &new_id, err);
	/* another client has cut it meanwhile: from what it is then, or -ENOENT */
	p.refused |= rc == -ESTALE;
	(void)dfs_close(from, NULL);
	if (rc == 0) {
		rc = put_in_place(m, in, tmp, old, new_id, &p, err);
		if (rc < 0)
			(void)dfs_delete(in->w_user->fs, tmp, false, NULL);
		else
			request_table_shared(&m->request_table, p.r.blocks - p.r.places);
	}
	if (rc == -ENOSYS && !atomic_exchange(&m->whole_files, true))
		log_info("op=publish whole=1 reason=\"this NameNode does not replace blocks\"");
	*ret_whole = p.refused;
	free((uint32_t *)p.r.place);
	return rc;
}

static int replace_whole(struct mount *m, struct inode *in, const char *tmp,
			 const struct dfs_stat *old, struct dfs_err *err)
{
	uint64_t new_id;
	int rc = write_new(in, tmp, old, &new_id, err);

	if (rc < 0)
		return rc;
	rc = put_in_place(m, in, tmp, old, new_id, NULL, err);
	if (rc < 0)
		(void)dfs_delete(in->w_user->fs, tmp, false, NULL);
	return rc;
}

static int replace(struct mount *m, struct inode *in, const struct dfs_stat *old,
		   struct dfs_err *err)
{
	char path[CHILD_PATH_MAX], tmp[CHILD_PATH_MAX], name[NEW_NAME_MAX];
	bool whole = old->erasure_coded || atomic_load(&m->whole_files);
	struct dfs_stat now;
	uint64_t dir;
	int rc = find_name(m, in, path, &dir, &now, err);

	if (rc < 0)
		return rc;
	new_name(name, m->token, in->id);
	child_path(tmp, dir, name);
	if (!whole)
		rc = replace_shared(m, in, tmp, old, &whole, err);
	return whole ? replace_whole(m, in, tmp, old, err) : rc;
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

		request_table_moved();
		rc = n < 0 ? (int)n : overlay_write(in->ov, buf, (size_t)n, cut);
		cut += n > 0 ? (uint64_t)n : COPY_BYTES;
	}
	(void)dfs_close(from, NULL);
	free(buf);
	return rc;
}

static int rewrite(struct mount *m, struct inode *in, const struct dfs_stat *old,
		   struct dfs_err *err)
{
	const uint64_t first = overlay_first_change(in->ov);
	const uint64_t cut = first < old->length ? block_begin(old, first) : old->length;
	struct user *user = in->w_user;
	char path[ID_PATH_MAX];
	bool done = true;
	int rc, closed;

	id_path(path, in->id);
	rc = dfs_access(user->fs, path, DFS_ACCESS_W, err);
	rc = rc ?: keep_base(in, cut, old->length, err);
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
	rc = copy(in->ov, NULL, in->w, cut, UINT64_MAX, err); /* all of it is in the overlay */
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
	/* an earlier try was done, and its answer lost */
	if (rc == -ENOENT && overlay_new_id(in->ov)) {
		id_path(path, overlay_new_id(in->ov));
		rc = dfs_stat(in->w_user->fs, path, &old, err);
		/* or the next mount would take another try, which is not done, for this one */
		rc = rc ?: overlay_take_new(in->ov, old.mtime_ms);
		if (rc == 0) {
			pthread_mutex_lock(&in->naming);
			inode_new_id(&m->inodes, in, old.file_id);
			pthread_mutex_unlock(&in->naming);
		}
	}
	if (rc < 0)
		return rc;
	rc = overlay_is_cut(in->ov) ? -ESTALE : replace(m, in, &old, err);
	/* a directory has the name of the new file */
	if (rc == -EACCES || rc == -EPERM || rc == -ESTALE || rc == -EISDIR)
		rc = rewrite(m, in, &old, err);
	return rc;
}

/* Rights are those of the open(2): when the user may not any more, the mount's owner does it. */
static int publish_as_opened(struct mount *m, struct inode *in, struct dfs_err *err)
{
	struct user *user = in->w_user, *owner;
	int rc = publish_once(m, in, err);

	if (rc != -EACCES && rc != -EPERM)
		return rc;
	owner = users_owner(&m->users);
	if (owner != user) {
		in->w_user = owner;
		rc = publish_once(m, in, err);
		in->w_user = user;
	}
	users_put(&m->users, owner);
	return rc;
}

int publish_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	const struct timespec pause = {0, (long)SAFE_MODE_PAUSE_NS};
	const uint64_t begin = clock_mono_ns(), deadline = begin + m->opt.timeout_s * NS_PER_S;
	int rc = publish_as_opened(m, in, err);

	/* A NameNode that has just started takes no changes at first; the bytes have been taken
	 * already. */
	while (rc == -EROFS && clock_mono_ns() < deadline) {
		(void)nanosleep(&pause, NULL);
		rc = publish_as_opened(m, in, err);
	}
	request_table_published(&m->request_table, rc, clock_mono_ns() - begin);
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
