/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/content.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "fuse/content/overlay.h"

#define ZEROS_LEN (256u << 10)
/* a write of so much is told to be taken before it is on its way */
#define EARLY_MIN 4096u
#define STREAMS_LOOK 32 /* so many are looked at for one that is idle */
/* a cut inside a block of a file up to here is a rewrite: faster */
#define REWRITE_MAX (64ull << 20)

/* ---- what stat shows of a file that is being written ---- */

static struct timespec from_ms(uint64_t ms)
{
	return (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000 * NS_PER_MS)};
}

static void mark_dirty(struct mount *m, struct inode *in, uint64_t length)
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

static void mark_changed(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	in->change++;
	in->change_ns = clock_mono_ns();
	in->seen = false;
	pthread_mutex_unlock(&m->inodes.lock);
}

/* The time that was shown while the file was open stays its time: git and make compare it. */
static void settle_times(struct mount *m, struct inode *in)
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
static int may_write_locked(struct inode *in, struct user *user, struct dfs_err *err)
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

static void limit_streams(struct mount *m);

static void set_writer(struct mount *m, struct inode *in, struct user *user)
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

void content_created(struct mount *m, struct inode *in, struct user *user, struct dfs_file *w,
		     bool early)
{
	pthread_mutex_lock(&in->content);
	assert(!in->w && !in->ov);
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
}

static void done_writing(struct mount *m, struct inode *in)
{
	settle_times(m, in);
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
}

static int close_stream(struct mount *m, struct inode *in, struct dfs_err *err)
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

static int stat_file(struct mount *m, struct inode *in, struct user *user, struct dfs_stat *ret,
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
static int what_failed(struct mount *m, struct inode *in, struct user *user, int rc)
{
	struct dfs_stat st;

	return rc == -EREMOTEIO && stat_file(m, in, user, &st, NULL) == -ENOENT ? -ENOENT : rc;
}

/* ---- writes that were lost ---- */

static void note_lost(struct inode *in, int rc)
{
	in->error = rc;
	in->error_told = false;
	in->errors++;
}

/* The cause stands in the line of the write that was lost, which may have been another process's.
 */
static void say_lost(const struct inode *in, struct dfs_err *err)
{
	snprintf(err->text, sizeof(err->text),
		 "/.reserved/.inodes/%" PRIu64
		 ": bytes of an earlier write were lost: %s; the line of "
		 "that write has the cause",
		 in->id, err_name(in->error));
}

/* May @h write on? Until somebody was told, what comes next would hide that something is missing
 * before it. */
static int refusal(const struct handle *h, struct dfs_err *err)
{
	if (h->errors == h->in->errors || h->in->error_told)
		return 0;
	say_lost(h->in, err);
	return h->in->error;
}

/* To the descriptor @h, by a call that has the result @rc. */
static int tell_lost(struct handle *h, int rc, struct dfs_err *err)
{
	struct inode *in = h->in;

	if (h->errors == in->errors)
		return rc;
	h->errors = in->errors;
	in->error_told = true;
	if (rc == 0)
		say_lost(in, err);
	return in->error;
}

/* A close that failed need not have lost anything: the data nodes may have it all, and only the
 * NameNode was out of reach. Then the lease is ended now, and the length tells. */
static int heal_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	struct user *owner;
	char path[ID_PATH_MAX];
	struct dfs_stat st;
	bool closed;
	int rc;

	if (!in->unclosed)
		return 0;
	id_path(path, in->id);
	owner = users_owner(&m->users);
	rc = dfs_recover_lease(in->w_user->fs, path, &closed, err);
	/* who has made a file that nobody may write (git, tar) may write it all the same, until it
	 * is closed */
	if (rc == -EACCES)
		rc = dfs_recover_lease(owner->fs, path, &closed, err);
	users_put(&m->users, owner);
	if (rc == 0 && !closed)
		rc = dfs_wait_closed(in->w_user->fs, path, m->opt.timeout_s * 1000, err);
	rc = rc ?: stat_file(m, in, in->w_user, &st, err);
	if (rc < 0)
		return rc;
	in->unclosed = false;
	state_unmark(&m->state, &in->w_mark);
	mark_changed(m, in);
	if (in->unclosed_length == UINT64_MAX || st.length == in->unclosed_length)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s has %llu bytes, %llu were written", path,
		 (unsigned long long)st.length, (unsigned long long)in->unclosed_length);
	note_lost(in, -EIO);
	return -EIO;
}

/* Up to length @to; one that is there already is no harm. */
static int write_zeros(struct inode *in, uint64_t to, struct dfs_err *err)
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

static int begin_overlay(struct mount *m, struct inode *in, struct user *user, struct dfs_err *err)
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
static int room_in_overlay(struct mount *m, struct inode *in, struct user *user, uint64_t to,
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

/* ---- writing ---- */

/* In which state do bytes at @at find the file? Opens what is needed, and finds the end. */
static int prepare(struct mount *m, struct inode *in, struct user *user, uint64_t *at,
		   struct dfs_err *err)
{
	const bool append = *at == AT_END;
	struct dfs_stat st;
	uint64_t length, offset;
	int rc = 0;

	if (in->ov) {
		*at = append ? overlay_length(in->ov) : *at;
		return 0;
	}
	if (in->w) {
		length = dfs_length(in->w);
	} else {
		rc = stat_file(m, in, user, &st, err);
		if (rc < 0)
			return rc;
		length = st.length;
	}
	if (append)
		*at = length;
	offset = *at;
	if (offset < length || offset - length > GAP_MAX)
		return begin_overlay(m, in, user, err);
	if (!in->w)
		rc = append_locked(m, in, user, err);
	/* somebody else may have appended in between */
	if (rc == 0 && append)
		offset = *at = dfs_length(in->w);
	if (rc == 0 && dfs_length(in->w) > offset)
		return begin_overlay(m, in, user, err);
	return rc ?: write_zeros(in, offset, err);
}

bool content_is_cached(struct mount *m, const struct handle *h)
{
	bool yes;

	pthread_mutex_lock(&m->inodes.lock);
	yes = h->direct && h->in->opens > h->in->directs;
	pthread_mutex_unlock(&m->inodes.lock);
	return yes;
}

/* From here on a failure is told later: whoever has the lock next finds the file as if the bytes
 * were written. */
static void tell_taken(struct mount *m, struct handle *h, size_t len, struct taken *taken)
{
	struct inode *in = h->in;

	/* that there is no room, or no data node, the first write tells */
	if (h->sync || len < EARLY_MIN || !in->w_written || content_is_cached(m, h))
		return;
	mark_dirty(m, in, dfs_length(in->w) + len);
	taken->told = true;
	taken->tell(taken->arg);
}

static int write_stream(struct inode *in, struct piece *p, struct dfs_err *err)
{
	p->lent = p->done != NULL;
	if (p->lent)
		return dfs_write_lent(in->w, p->bytes, p->len, p->done, p->arg, err) < 0 ? err->rc
											 : 0;
	return dfs_write(in->w, p->bytes, p->len, err) < 0 ? err->rc : 0;
}

static int write_locked(struct mount *m, struct handle *h, struct piece *p, uint64_t *offset,
			struct taken *taken, struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc = heal_locked(m, in, err);

	rc = rc ?: prepare(m, in, h->user, offset, err);
	if (rc < 0)
		return rc;
	if (in->w && h->flushed)
		in->w_reopened = true;
	h->flushed = false;
	if (in->ov) {
		rc = room_in_overlay(m, in, h->user, *offset, err);
		rc = rc ?: overlay_write(in->ov, p->bytes, p->len, *offset);
		if (rc == 0)
			mark_dirty(m, in, overlay_length(in->ov));
		return rc;
	}
	in->w_unflushed = true;
	tell_taken(m, h, p->len, taken);
	in->w_written = true;
	rc = write_stream(in, p, err);
	if (rc == 0 && !taken->told)
		mark_dirty(m, in, dfs_length(in->w));
	return rc;
}

int content_write(struct mount *m, struct handle *h, struct piece *p, uint64_t *offset,
		  struct taken *taken, struct dfs_err *err)
{
	struct inode *in = inode_ref(&m->inodes, h->in); /* once it is told the handle may go */
	int rc;

	pthread_mutex_lock(&in->content);
	rc = refusal(h, err);
	if (rc < 0) { /* a stream that is there is another descriptor's, and well */
		pthread_mutex_unlock(&in->content);
		inode_put(&m->inodes, in);
		return rc;
	}
	rc = write_locked(m, h, p, offset, taken, err);
	rc = what_failed(m, in, taken->told ? in->w_user : h->user, rc);
	/* A stream that failed has lost bytes that write(2) has taken: fsync and close must say so.
	 */
	if (rc < 0 && in->w) {
		note_lost(in, rc);
		(void)close_stream(m, in, err);
		in->unclosed_length = UINT64_MAX;
	}
	pthread_mutex_unlock(&in->content);
	inode_put(&m->inodes, in);
	return rc;
}

/* ---- reading ---- */

struct base_read {
	struct mount *m;
	struct handle *h;
	struct dfs_err *err;
};

static int read_base(void *arg, void *buf, size_t len, uint64_t offset)
{
	struct base_read *b = arg;
	const ssize_t n = file_reader_read(b->m, &b->h->reader, &buf, len, offset, b->err);

	if (n < 0)
		return (int)n;
	memset((uint8_t *)buf + n, 0, len - (size_t)n); /* somebody else has cut it meanwhile */
	return 0;
}

/* What this mount has written must be readable: flushed to the data nodes, or in the overlay. 1:
 * read HDFS. */
static ssize_t read_dirty(struct mount *m, struct handle *h, void **buf, size_t len,
			  uint64_t offset, bool *ret_done, struct dfs_err *err)
{
	struct base_read b = {m, h, err};
	struct inode *in = h->in;
	ssize_t n = 0;

	pthread_mutex_lock(&in->content);
	if (in->ov) {
		*buf = buffers_get(&m->buffers, len);
		n = *buf ? overlay_read(in->ov, *buf, len, offset, read_base, &b) : -ENOMEM;
		*ret_done = true;
	} else if (in->w && in->w_unflushed) {
		n = dfs_flush(in->w, err);
		in->w_unflushed = n < 0;
	}
	pthread_mutex_unlock(&in->content);
	return n;
}

static ssize_t read_once(struct mount *m, struct handle *h, void **buf, size_t len, uint64_t offset,
			 struct dfs_err *err)
{
	bool dirty, done = false;
	ssize_t n = 0;

	pthread_mutex_lock(&m->inodes.lock);
	dirty = h->in->dirty;
	pthread_mutex_unlock(&m->inodes.lock);
	if (dirty)
		n = read_dirty(m, h, buf, len, offset, &done, err);
	if (n < 0 || done)
		return n;
	return file_reader_read(m, &h->reader, buf, len, offset, err);
}

ssize_t content_read(struct mount *m, struct handle *h, void **buf, size_t len, uint64_t offset,
		     struct dfs_err *err)
{
	for (;;) {
		const uint64_t id = inode_id(&m->inodes, h->in);
		const ssize_t n = read_once(m, h, buf, len, offset, err);

		if ((n != -ENOENT && n != -ESTALE) || inode_id(&m->inodes, h->in) == id)
			return n; /* or a publication has just put another file in its place */
	}
}

/* ---- closing ---- */

/* Everything to HDFS, whole and closed. */
static int settle_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc = heal_locked(m, in, err);

	if (rc == 0 && !in->ov && in->w_user) { /* a stream, or one that was just healed */
		rc = close_stream(m, in, err);
		if (rc == 0)
			done_writing(m, in);
	} else if (rc == 0 && in->ov) {
		rc = publish_locked(m, in, err);
		if (rc == 0) {
			overlay_free(in->ov);
			in->ov = NULL;
			mark_changed(m, in);
			done_writing(m, in);
		}
	}
	if (in->w_user)
		rc = what_failed(m, in, in->w_user, rc);
	return rc;
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

int content_flush(struct mount *m, struct handle *h, enum closer who, struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc = 0;

	if (who == CLOSER_OTHER)
		return 0;
	pthread_mutex_lock(&in->content);
	/* Nothing was written: a shell has moved the descriptor. It is closed with its last copy.
	 */
	if (in->w && !in->w_written) {
		rc = tell_lost(h, 0, err);
		pthread_mutex_unlock(&in->content);
		return rc;
	}
	/* A descriptor that several processes write to is closed by each of them: then it is enough
	 * that everybody can read the bytes; the opener, or the last one, closes the file. */
	if (in->w && (in->w_reopened || who == CLOSER_WRITER)) {
		rc = dfs_sync(in->w, DFS_SYNC_UPDATE_LENGTH, err);
		in->w_unflushed = rc < 0;
		rc = what_failed(m, in, in->w_user, rc);
	} else if (!in->hidden) {
		rc = settle_locked(m, in, err);
		in->hopeless = rc < 0 && in->ov && !fail_is_passing(rc);
	}
	h->flushed = true;
	rc = tell_lost(h, rc, err);
	pthread_mutex_unlock(&in->content);
	return rc;
}

/* What is in HDFS already may have been closed early. */
static int sync_closed(struct mount *m, const struct inode *in, struct dfs_err *err)
{
	const uint64_t by = in->early_by;

	return by == BY_ANYBODY ? users_sync_file(&m->users, in->id, err)
				: users_sync(&m->users, by, err);
}

int content_sync(struct mount *m, struct handle *h, struct dfs_err *err)
{
	struct inode *in = h->in;
	int rc = 0;

	pthread_mutex_lock(&in->content);
	if (in->w) {
		rc = dfs_sync(in->w, DFS_SYNC_DISK | DFS_SYNC_UPDATE_LENGTH, err);
		in->w_unflushed = rc < 0;
		if (rc == 0 && in->w_appended)
			rc = sync_closed(m, in, err); /* what was there before */
		in->w_appended = in->w_appended && rc < 0;
		rc = what_failed(m, in, in->w_user, rc);
	} else if (!in->hidden) {
		rc = settle_locked(m, in, err);
		rc = rc ?: sync_closed(m, in, err);
	}
	if (!in->error_told && h->errors == in->errors && in->errors > 0)
		h->errors--; /* it came later, and nobody else has asked */
	rc = tell_lost(h, rc, err);
	pthread_mutex_unlock(&in->content);
	return rc;
}

/* What is not in HDFS is no more. */
static void give_up_locked(struct mount *m, struct inode *in)
{
	struct dfs_err err;

	(void)close_stream(m, in, &err);
	state_unmark(&m->state, &in->w_mark);
	overlay_free(in->ov);
	in->ov = NULL;
	in->has_times = in->unclosed = false;
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
	mark_changed(m, in);
	pthread_mutex_lock(&m->inodes.lock);
	in->dirty = in->atime_set = false;
	pthread_mutex_unlock(&m->inodes.lock);
}

/* Nobody is left who could try again. */
static int settle_last_locked(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc;

	if (in->hopeless) { /* close(2) has told */
		give_up_locked(m, in);
		return 0;
	}
	rc = m->unreachable ? -ETIMEDOUT : settle_locked(m, in, err);
	if (!in->w_user)
		return rc;
	if (fail_is_passing(rc)) {
		m->unreachable = m->ending;
		pending_add(m, in);
	} else {
		give_up_locked(m, in);
	}
	return rc;
}

int content_close(struct mount *m, struct inode *in, struct dfs_err *err)
{
	int rc;

	pthread_mutex_lock(&in->content);
	rc = in->hidden || !in->w_user ? 0 : settle_last_locked(m, in, err);
	in->error_told = true; /* or nobody is left who has written */
	in->w_reopened = false;
	pthread_mutex_unlock(&in->content);
	return rc;
}

int content_heal(struct mount *m, struct inode *in, struct dfs_err *err)
{
	bool written;
	int rc = 0;

	pthread_mutex_lock(&in->content);
	pthread_mutex_lock(&m->inodes.lock);
	written = in->writers > 0;
	pthread_mutex_unlock(&m->inodes.lock);
	if (!in->w) /* somebody else writes it again, and closes it */
		rc = settle_locked(m, in, err);
	if (rc < 0 && !fail_is_passing(rc) && !written && in->w_user)
		give_up_locked(m, in);
	pthread_mutex_unlock(&in->content);
	return rc;
}

void content_leave(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&in->content);
	overlay_leave(in->ov);
	in->ov = NULL;
	in->w_mark = in->hidden_mark = 0; /* not taken back */
	users_put(&m->users, in->w_user);
	in->w_user = NULL;
	pthread_mutex_unlock(&in->content);
}

void content_discard(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&in->content);
	give_up_locked(m, in);
	pthread_mutex_unlock(&in->content);
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
	    (length % st.block_size == 0 || length > REWRITE_MAX))
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
