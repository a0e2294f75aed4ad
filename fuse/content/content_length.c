/* SPDX-License-Identifier: Apache-2.0 */
/* How long a file is: cut, grown, holes; and the overlay that a change within it begins. */
#include "fuse/content/content_internal.h"

#include <errno.h>
#include <stdio.h>

#include "fuse/content/overlay.h"

#define ZEROS_LEN (256u << 10)
/* a cut inside a block of a file up to here is a rewrite: faster */
#define REWRITE_MAX (64ull << 20)

/* Up to length @to; one that is there already is no harm. */
int write_zeros(struct inode *in, uint64_t to, struct dfs_err *err)
{
	static const uint8_t zeros[ZEROS_LEN];
	uint64_t count = to > dfs_length(in->w) ? to - dfs_length(in->w) : 0;

	while (count > 0) {
		const size_t n = count < ZEROS_LEN ? (size_t)count : ZEROS_LEN;
		const ssize_t done = dfs_write(in->w, zeros, n, err);

		if (done < 0)
			return (int)done;
		request_table_moved();
		count -= n;
	}
	return 0;
}

/* ---- the overlay ---- */

int begin_overlay(struct mount *m, struct inode *in, struct user *user, struct dfs_err *err)
{
	struct overlay_of of;
	struct dfs_stat st;
	uint64_t parent;
	int rc = close_stream(m, in, err);

	rc = rc ?: stat_file(m, in, user, &st, err);
	if (rc < 0)
		return rc;
	of = (struct overlay_of){
		.id = in->id, .length = st.length, .mtime_ms = st.mtime_ms, .uid = user->uid};
	pthread_mutex_lock(&m->inodes.lock);
	parent = in->parent;
	if (in->name)
		snprintf(of.name, sizeof(of.name), "%s", in->name);
	pthread_mutex_unlock(&m->inodes.lock);
	of.dir_id = dir_id(m, parent);
	rc = overlay_new(m->state.dir, state_next_file(&m->state), &m->budget, &of, &in->ov);
	if (rc == -ENOENT) { /* would mean the file */
		snprintf(err->text, sizeof(err->text),
			 "somebody has deleted the overlay directory of this mount: mount it anew");
		rc = -EIO;
	}
	if (rc < 0)
		return rc;
	set_writer(m, in, user);
	mark_dirty(m, in, st.length);
	return 0;
}

/* Nothing is a hole in HDFS. A gap that the cluster has no room for is refused before the rest of
 * it is full of zeros. */
static int room_for_gap(struct user *user, uint32_t replication, uint64_t from, uint64_t to,
			struct dfs_err *err)
{
	struct dfs_statfs fs;
	int rc;

	if (to <= from || to - from <= GAP_MAX)
		return 0;
	if (to > INT64_MAX)
		return -EFBIG;
	rc = dfs_statfs(user->fs, &fs, err);
	if (rc < 0 || (to - from) <= fs.remaining / (replication ? replication : 1))
		return rc;
	snprintf(err->text, sizeof(err->text),
		 "%llu bytes of zeros, %u times, and %llu are free in the cluster",
		 (unsigned long long)(to - from), replication, (unsigned long long)fs.remaining);
	return -ENOSPC;
}

/* @to is far behind the end of what is written here. */
int room_in_overlay(struct mount *m, struct inode *in, struct user *user, uint64_t to,
		    struct dfs_err *err)
{
	const uint64_t from = overlay_length(in->ov);
	struct dfs_stat st;
	int rc;

	if (to <= from || to - from <= GAP_MAX)
		return 0;
	rc = stat_file(m, in, user, &st, err);
	return rc ?: room_for_gap(user, st.replication, from, to, err);
}

/* ---- length ---- */

static int cut_closed(struct mount *m, struct inode *in, struct user *user, uint64_t length,
		      struct dfs_err *err)
{
	char path[ID_PATH_MAX];
	bool done = false;
	int rc;

	id_path(path, in->id);
	rc = dfs_truncate(user->fs, path, length, &done, err);
	if (rc == -EBUSY && dfs_wait_closed(user->fs, path, m->opt.timeout_s * 1000, NULL) == 0)
		rc = dfs_truncate(user->fs, path, length, &done, err);
	if (rc == 0 && !done)
		rc = dfs_wait_closed(user->fs, path, m->opt.timeout_s * 1000, err);
	mark_changed(m, in);
	return rc;
}

static int grow_stream(struct mount *m, struct inode *in, uint64_t length, struct dfs_err *err)
{
	const int rc = write_zeros(in, length, err);

	in->w_unflushed = true;
	if (rc == 0)
		mark_dirty(m, in, length);
	return rc;
}

static int truncate_clean(struct mount *m, struct inode *in, struct user *user, uint64_t length,
			  struct dfs_err *err)
{
	char path[ID_PATH_MAX];
	struct dfs_stat st;
	int rc = stat_file(m, in, user, &st, err);

	if (rc < 0)
		return rc;
	id_path(path, in->id);
	if (length == st.length)
		return dfs_access(user->fs, path, DFS_ACCESS_W, err);
	if (length < st.length && !st.erasure_coded &&
	    (length == block_begin(&st, length) || length > REWRITE_MAX))
		return cut_closed(m, in, user, length, err);
	rc = dfs_access(user->fs, path, DFS_ACCESS_W, err);
	if (rc == 0 && length > st.length && length - st.length <= GAP_MAX) {
		rc = append_locked(m, in, user, err);
		if (rc < 0)
			return rc;
		if (dfs_length(in->w) <= length)
			return grow_stream(m, in, length, err);
		/* somebody else has made it longer in between: now it is a cut */
	}
	rc = rc ?: room_for_gap(user, st.replication, st.length, length, err);
	rc = rc ?: begin_overlay(m, in, user, err);
	rc = rc ?: overlay_truncate(in->ov, length);
	if (rc == 0)
		mark_dirty(m, in, length);
	if (rc == 0 && length == 0 && !in->hidden) /* as a new file: what follows is a stream */
		rc = settle_locked(m, in, err);
	return rc;
}

static int truncate_locked(struct mount *m, struct inode *in, struct user *user, uint64_t length,
			   struct dfs_err *err)
{
	int rc = heal_locked(m, in, err);

	if (rc == 0 && in->w && length >= dfs_length(in->w) &&
	    length - dfs_length(in->w) <= GAP_MAX)
		return grow_stream(m, in, length, err);
	if (rc == 0 && in->w) {
		rc = close_stream(m, in, err);
		if (rc == 0)
			settle_times(m, in);
	}
	if (rc == 0 && in->ov) {
		rc = room_in_overlay(m, in, user, length, err);
		rc = rc ?: overlay_truncate(in->ov, length);
		if (rc == 0)
			mark_dirty(m, in, length);
		return rc;
	}
	return rc ?: truncate_clean(m, in, user, length, err);
}

int content_truncate(struct mount *m, struct inode *in, struct user *user, bool may,
		     uint64_t length, struct dfs_err *err)
{
	bool is_open;
	int rc;

	pthread_mutex_lock(&in->content);
	rc = in->retired ? -ESTALE : may ? 0 : may_write_locked(in, user, err);
	rc = rc ?: truncate_locked(m, in, user, length, err);
	if (rc == -EACCES && may) { /* rights are those of the open(2) */
		struct user *owner = users_owner(&m->users);

		rc = truncate_locked(m, in, owner, length, err);
		users_put(&m->users, owner);
	}
	pthread_mutex_lock(&m->inodes.lock);
	/* those that are passed through will not close it here */
	is_open = in->opens > in->backing_opens;
	pthread_mutex_unlock(&m->inodes.lock);
	if (!is_open && (in->w || in->ov)) {
		const int late = settle_last_locked(m, in, err);

		rc = rc ?: late;
	}
	pthread_mutex_unlock(&in->content);
	return rc;
}

int content_zero(struct mount *m, struct handle *h, uint64_t offset, uint64_t len, bool keep_size,
		 struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc;

	pthread_mutex_lock(&in->content);
	rc = refusal(h, err) ?: heal_locked(m, in, err);
	if (rc == 0 && !in->ov)
		rc = begin_overlay(m, in, h->user, err);
	if (rc == 0 && !keep_size && offset + len > overlay_length(in->ov)) {
		rc = room_in_overlay(m, in, h->user, offset + len, err);
		rc = rc ?: overlay_truncate(in->ov, offset + len);
	}
	rc = rc ?: overlay_zero(in->ov, offset, len);
	if (rc == 0)
		mark_dirty(m, in, overlay_length(in->ov));
	pthread_mutex_unlock(&in->content);
	return rc;
}

int content_length(struct mount *m, struct inode *in, struct user *user, uint64_t *ret,
		   struct dfs_err *err)
{
	struct dfs_stat st;
	int rc = 0;

	pthread_mutex_lock(&in->content);
	if (in->ov) {
		*ret = overlay_length(in->ov);
	} else if (in->w) {
		*ret = dfs_length(in->w);
	} else {
		rc = stat_file(m, in, user, &st, err);
		if (rc == 0)
			*ret = st.length;
	}
	pthread_mutex_unlock(&in->content);
	return rc;
}
