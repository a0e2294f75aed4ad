/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is open at its end, and what stat shows of it meanwhile. */
#include "fuse/content/content_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "common/base/clock.h"

#define STREAMS_LOOK 32 /* so many are looked at for one that is idle */

/* ---- what stat shows of a file that is being written ---- */

static struct timespec from_ms(uint64_t ms)
{
	return (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000 * NS_PER_MS)};
}

void mark_dirty(struct mount *m, struct inode *in, uint64_t length)
{
	pthread_mutex_lock(&m->inodes.lock);
	in->dirty = true;
	in->hopeless = false;
	in->change_ns = clock_mono_ns();
	in->attr.st_size = (off_t)length;
	in->attr.st_mtim = from_ms(clock_wall_ms()); /* HDFS keeps milliseconds */
	in->mtime_told = false;
	in->seen = false;
	if (list_is_linked(&in->stream)) {
		list_del(&in->stream);
		list_add_tail(&m->streams, &in->stream);
	}
	pthread_mutex_unlock(&m->inodes.lock);
	in->set_mtime = DFS_TIME_KEEP; /* of has_times; an access time stays */
}

void mark_changed(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	in->change++;
	in->change_ns = clock_mono_ns();
	in->seen = false;
	pthread_mutex_unlock(&m->inodes.lock);
}

/* The time that was shown while the file was open stays its time: git and make compare it. */
void settle_times(struct mount *m, struct inode *in)
{
	uint64_t mtime = DFS_TIME_KEEP, atime = DFS_TIME_KEEP;
	char path[ID_PATH_MAX];

	pthread_mutex_lock(&m->inodes.lock);
	if (in->mtime_told && in->dirty)
		mtime = (uint64_t)in->attr.st_mtim.tv_sec * 1000 +
			(uint64_t)in->attr.st_mtim.tv_nsec / NS_PER_MS;
	in->dirty = false;
	in->change_ns = clock_mono_ns();
	in->mtime_told = in->atime_set = false;
	id_path(path, in->id);
	pthread_mutex_unlock(&m->inodes.lock);
	if (in->has_times) {
		mtime = in->set_mtime != DFS_TIME_KEEP ? in->set_mtime : mtime;
		atime = in->set_atime;
		in->has_times = false;
	}
	if (mtime != DFS_TIME_KEEP || atime != DFS_TIME_KEEP)
		/* the data is what counts */
		(void)dfs_set_times(in->w_user->fs, path, mtime, atime, NULL);
}

/* Of a file that is whole in HDFS the NameNode decides; of what has not reached it yet we do, by
 * its rights. */
int may_write_locked(struct inode *in, struct user *user, struct dfs_err *err)
{
	char path[ID_PATH_MAX];

	if (!in->w && !in->ov)
		return 0;
	id_path(path, in->id);
	return dfs_access(user->fs, path, DFS_ACCESS_W, err);
}

int content_set_times(struct mount *m, struct inode *in, struct user *user, uint64_t mtime_ms,
		      uint64_t atime_ms, struct dfs_err *err)
{
	int rc;

	pthread_mutex_lock(&in->content);
	/* who has made a file that nobody may write sets its times before the close (git, tar) */
	rc = in->w_user == user ? 0 : may_write_locked(in, user, err);
	if (rc == 0 && (in->w || in->ov)) {
		rc = 1;
		if (!in->has_times)
			in->set_mtime = in->set_atime = DFS_TIME_KEEP;
		in->has_times = true;
		if (mtime_ms != DFS_TIME_KEEP)
			in->set_mtime = mtime_ms;
		if (atime_ms != DFS_TIME_KEEP)
			in->set_atime = atime_ms;
		pthread_mutex_lock(&m->inodes.lock);
		if (mtime_ms != DFS_TIME_KEEP)
			in->attr.st_mtim = from_ms(mtime_ms);
		if (atime_ms != DFS_TIME_KEEP)
			in->attr.st_atim = from_ms(atime_ms);
		in->atime_set |= atime_ms != DFS_TIME_KEEP;
		pthread_mutex_unlock(&m->inodes.lock);
	}
	pthread_mutex_unlock(&in->content);
	return rc;
}

/* ---- the stream ---- */

void set_writer(struct mount *m, struct inode *in, struct user *user)
{
	if (in->w_user == user)
		return;
	users_put(&m->users, in->w_user);
	in->w_user = users_ref(&m->users, user);
}

static void stream_began(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	list_add_tail(&m->streams, &in->stream);
	m->stream_count++;
	pthread_mutex_unlock(&m->inodes.lock);
}

static void stream_ended(struct mount *m, struct inode *in)
{
	in->w = NULL;
	pthread_mutex_lock(&m->inodes.lock);
	m->stream_count -= list_is_linked(&in->stream);
	list_del(&in->stream);
	pthread_mutex_unlock(&m->inodes.lock);
}

/* Should we be killed, the next mount ends the lease at once. */
static void mark_lease(struct mount *m, struct inode *in)
{
	char name[DFS_NAME_MAX + 1] = "";

	pthread_mutex_lock(&m->inodes.lock);
	if (in->name)
		snprintf(name, sizeof(name), "%s", in->name);
	pthread_mutex_unlock(&m->inodes.lock);
	state_unmark(&m->state, &in->w_mark);
	in->w_mark = state_mark(&m->state, MARK_WRITING, in->id, in->w_user->uid, name);
}

/* Each has a connection, and a data node takes 4,096 of them from all its clients: one that may be
 * closed, with its lock held; NULL: they are not too many, or all are in use. */
static struct inode *idle_stream(struct mount *m)
{
	struct inode *found = NULL;
	uint32_t looked = 0;

	pthread_mutex_lock(&m->inodes.lock);
	if (m->stream_count > m->opt.streams)
		list_for_each (l, &m->streams) {
			struct inode *in = container_of(l, struct inode, stream);

			if (found || looked++ == STREAMS_LOOK)
				break;
			if (pthread_mutex_trylock(&in->content) != 0)
				continue;
			/* who has made a file that nobody may write could not append to it */
			if (in->w && !in->hidden && in->mode & 0200)
				found = in;
			else
				pthread_mutex_unlock(&in->content);
		}
	if (found)
		found->refs++;
	pthread_mutex_unlock(&m->inodes.lock);
	return found;
}

/* As if its opener had closed it: what is written to it later is an append. What fails is told by
 * its own close. */
static void limit_streams(struct mount *m)
{
	struct inode *in = idle_stream(m);
	struct dfs_err err;

	if (!in)
		return;
	if (!in->w_written || dfs_sync(in->w, DFS_SYNC_DISK | DFS_SYNC_UPDATE_LENGTH, &err) == 0)
		(void)settle_locked(m, in, &err);
	pthread_mutex_unlock(&in->content);
	inode_put(&m->inodes, in);
}

int append_locked(struct mount *m, struct inode *in, struct user *user, struct dfs_err *err)
{
	const uint64_t deadline = clock_mono_ns() + m->opt.timeout_s * NS_PER_S;
	struct user *owner = users_owner(&m->users), *as = user;
	char path[ID_PATH_MAX];
	uint32_t flags = 0;
	int rc;

	assert(!in->w);
	limit_streams(m);
	id_path(path, in->id);
	for (;;) {
		rc = dfs_append(as->fs, path, flags, &in->w, err);
		/* erasure-coded: a group of blocks is not continued */
		if (rc == -ENOTSUP && !flags)
			flags = DFS_APPEND_NEW_BLOCK;
		else if (rc == -EACCES &&
			 as != owner) /* rights are those of the open(2), as for a reader */
			as = owner;
		else if (rc == -EBUSY && clock_mono_ns() < deadline)
			/* others append by turns, or its last block is being recovered */
			(void)dfs_wait_closed(as->fs, path, m->opt.timeout_s * 1000, NULL);
		else
			break;
	}
	if (rc == 0) {
		stream_began(m, in);
		set_writer(m, in, as);
		mark_lease(m, in);
		in->w_unflushed = in->w_early = false;
		in->w_written = in->w_appended = true; /* why else */
		mark_dirty(m, in, dfs_length(in->w));
		mark_changed(m, in);
	} else {
		in->w = NULL;
	}
	users_put(&m->users, owner);
	return rc;
}

int content_created(struct mount *m, struct inode *in, struct user *user, struct dfs_file *w,
		    bool early)
{
	pthread_mutex_lock(&in->content);
	if (in->w || in->ov) {
		pthread_mutex_unlock(&in->content);
		return -EIO;
	}
	in->w = w;
	stream_began(m, in);
	in->w_early = early;
	in->w_reopened = in->w_unflushed = in->w_written = in->w_appended = false;
	set_writer(m, in, user);
	mark_lease(m, in);
	mark_dirty(m, in, 0);
	mark_changed(m, in);
	pthread_mutex_unlock(&in->content);
	limit_streams(m);
	return 0;
}

void done_writing(struct mount *m, struct inode *in)
{
	settle_times(m, in);
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
}

int close_stream(struct mount *m, struct inode *in, struct dfs_err *err)
{
	struct dfs_file *w = in->w;
	int rc;

	if (!w)
		return 0;
	stream_ended(m, in);
	in->unclosed_length = dfs_length(w);
	rc = dfs_close(w, err);
	in->unclosed = rc < 0;
	if (rc == 0) {
		in->w_user->made += in->w_early;
		if (in->w_early)
			in->early_by = BY_UID(in->w_user->uid);
		state_unmark(&m->state, &in->w_mark);
	}
	mark_changed(m, in);
	in->w_unflushed = false;
	return rc;
}

int stat_file(struct mount *m, struct inode *in, struct user *user, struct dfs_stat *ret,
	      struct dfs_err *err)
{
	struct user *owner;
	char path[ID_PATH_MAX];
	int rc;

	id_path(path, in->id);
	rc = dfs_stat(user->fs, path, ret, err);
	if (rc != -EACCES)
		return rc;
	owner = users_owner(&m->users); /* a directory above was closed since the open(2) */
	rc = dfs_stat(owner->fs, path, ret, err);
	users_put(&m->users, owner);
	return rc;
}

/* A NameNode says in many words that a block is not there; mostly it is the file that somebody else
 * has deleted. */
int what_failed(struct mount *m, struct inode *in, struct user *user, int rc)
{
	struct dfs_stat st;

	return rc == -EREMOTEIO && stat_file(m, in, user, &st, NULL) == -ENOENT ? -ENOENT : rc;
}
