/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/file_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "fuse/mount.h"

/* how far before its turn a read may come to wait: so much, */
#define EARLY_MIN (8ull << 20)
/* or so often -o readahead: POSIX_FADV_SEQUENTIAL doubles it, two are under way, some pass others
 */
#define EARLY_WINDOWS 5
#define EARLY_WAIT_NS (20 * NS_PER_MS) /* and how long, while nothing moves */
#define STREAM_FIRST (128u << 10)      /* a first read of so much from the start is a stream */
#define STREAM_HITS 2

struct open_file {
	struct dfs_file *f; /* owned */
	uint32_t change;    /* of the inode when it was opened */
	uint32_t refs;      /* under reader.lock */
	bool shut;          /* the same: its user may not read it any more */
};

void file_reader_init(struct file_reader *r, struct inode *in, struct user *user)
{
	*r = (struct file_reader){.in = in, .user = user};
	pthread_mutex_init(&r->lock, NULL);
	list_init(&r->early);
}

static void put_locked(struct open_file *of)
{
	if (!of || --of->refs > 0)
		return;
	(void)dfs_close(of->f, NULL); /* reading: cannot fail */
	free(of);
}

void file_reader_fini(struct file_reader *r)
{
	put_locked(r->file);
	pthread_mutex_destroy(&r->lock);
}

static uint32_t change_of(struct mount *m, struct inode *in, uint64_t *ret_id)
{
	uint32_t change;

	pthread_mutex_lock(&m->inodes.lock);
	change = in->change;
	*ret_id = in->id;
	pthread_mutex_unlock(&m->inodes.lock);
	return change;
}

/* The user was let in when the file was opened: a change of rights since then does not shut it, as
 * far as the mount's owner may read it. */
static int open_again(struct mount *m, struct file_reader *r, uint64_t id, bool first,
		      struct dfs_file **ret, struct dfs_err *err)
{
	char path[ID_PATH_MAX];
	struct user *owner;
	int rc;

	id_path(path, id);
	rc = r->by_owner ? -EACCES : dfs_open(r->user->fs, path, ret, err);
	if (rc != -EACCES || (first && !r->granted))
		return rc;
	owner = users_owner(&m->users);
	rc = dfs_open(owner->fs, path, ret, err);
	users_put(&m->users, owner);
	return rc;
}

/* A reference to the file as it is now; r->lock is held. */
static int get_locked(struct mount *m, struct file_reader *r, struct open_file **ret,
		      struct dfs_err *err)
{
	uint64_t id;
	const uint32_t change = change_of(m, r->in, &id);
	struct open_file *of;
	int rc;

	if (!r->file || r->file->change != change || r->file->shut) {
		of = calloc(1, sizeof(*of));
		if (!of)
			return -ENOMEM;
		rc = open_again(m, r, id, !r->file, &of->f, err);
		if (rc < 0) {
			free(of);
			if (!r->file || r->file->change != change)
				return rc;
			of = r->file; /* what it had can be read still */
			of->shut = false;
			of->refs++;
			*ret = of;
			return 0;
		}
		of->change = change;
		of->refs = 1;
		put_locked(r->file);
		r->file = of;
		r->hits = 0;
	}
	r->file->refs++;
	*ret = r->file;
	return 0;
}

int file_reader_open(struct mount *m, struct file_reader *r, struct dfs_err *err)
{
	struct open_file *of;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = get_locked(m, r, &of, err);
	if (rc == 0)
		put_locked(of);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void file_reader_content(struct file_reader *r, struct dfs_content_id *ret)
{
	pthread_mutex_lock(&r->lock);
	dfs_get_content_id(r->file->f, ret);
	pthread_mutex_unlock(&r->lock);
}

int file_reader_local_fd(struct file_reader *r, int *ret_fd, struct dfs_err *err)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = dfs_local_fd(r->file->f, ret_fd, err);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static struct timespec soon(void)
{
	struct timespec until;

	/* the other one may be set back while somebody waits */
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)EARLY_WAIT_NS;
	if (until.tv_nsec >= (long)NS_PER_S) {
		until.tv_sec++;
		until.tv_nsec -= (long)NS_PER_S;
	}
	return until;
}

/* A read that waits for those before it. */
struct early {
	struct list link; /* in reader.early */
	uint64_t offset;
	pthread_cond_t turn;
};

/* Is a read at @offset the next of the stream, or will it be soon? */
static bool is_near(const struct file_reader *r, uint64_t offset, uint64_t early_max)
{
	return offset >= r->next && offset - r->next <= early_max;
}

/* As long as those before it are being read, or come. */
static void wait_for_turn(struct file_reader *r, uint64_t offset, uint64_t early_max)
{
	struct early e = {.offset = offset, .turn = PTHREAD_COND_INITIALIZER};
	struct timespec until = soon();
	uint64_t seen = r->next;

	list_add_tail(&r->early, &e.link);
	while ((r->busy || r->next != offset) && is_near(r, offset, early_max)) {
		if (pthread_cond_clockwait(&e.turn, &r->lock, CLOCK_MONOTONIC, &until) == 0)
			continue;
		if (!r->busy && r->next == seen)
			break;
		seen = r->next;
		until = soon();
	}
	list_del(&e.link);
	pthread_cond_destroy(&e.turn);
}

/* The stream is free: the one that goes on, or those that need not wait any more. All others sleep
 * on. */
static void wake_next_locked(struct file_reader *r, uint64_t early_max)
{
	list_for_each (l, &r->early) {
		struct early *e = container_of(l, struct early, link);

		if (e->offset == r->next || !is_near(r, e->offset, early_max))
			pthread_cond_signal(&e->turn);
	}
}

/* Is this read the next of a stream? May wait a moment for those before it. */
static bool join_stream(struct file_reader *r, size_t len, uint64_t offset, uint64_t early_max)
{
	if (r->hits >= STREAM_HITS && (r->busy || offset != r->next))
		wait_for_turn(r, offset, early_max);
	if (r->busy)
		return false;
	if (offset == r->next)
		r->hits++;
	else
		r->hits = 0;
	return r->hits >= STREAM_HITS || (offset == 0 && len >= STREAM_FIRST);
}

static ssize_t read_now(struct dfs_file *f, void *buf, size_t len, uint64_t offset, bool stream,
			struct dfs_err *err)
{
	ssize_t n;

	if (!stream)
		return dfs_pread(f, buf, len, offset, err);
	n = dfs_seek(f, offset, err);
	return n < 0 ? n : dfs_read(f, buf, len, err);
}

/* The kernel was told a greater length than @of has: another client has appended. It would fill the
 * rest with zeros. */
static bool has_grown(struct mount *m, const struct inode *in, const struct open_file *of)
{
	uint64_t told;

	pthread_mutex_lock(&m->inodes.lock);
	told = (uint64_t)in->attr.st_size;
	pthread_mutex_unlock(&m->inodes.lock);
	return told > dfs_length(of->f);
}

/* *ret_again: it ended early, and the file is longer by now; or the user may not read it any more.
 */
static ssize_t read_once(struct mount *m, struct file_reader *r, void **buf, size_t len,
			 uint64_t offset, bool *ret_again, struct dfs_err *err)
{
	const uint64_t ahead = (uint64_t)m->opt.readahead_kib * 1024 * EARLY_WINDOWS;
	const uint64_t early_max = ahead > EARLY_MIN ? ahead : EARLY_MIN;
	struct open_file *of;
	bool stream, grown;
	ssize_t n;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = get_locked(m, r, &of, err);
	if (rc < 0) {
		*ret_again = false;
		pthread_mutex_unlock(&r->lock);
		return rc;
	}
	stream = join_stream(r, len, offset, early_max);
	if (stream) {
		r->busy = true;
		r->hits = STREAM_HITS;
	} else if (!r->busy) {
		r->next = offset + len;
	}
	pthread_mutex_unlock(&r->lock);
	*buf = *buf ? *buf : buffers_get(&m->buffers, len);
	n = *buf ? read_now(of->f, *buf, len, offset, stream, err) : -ENOMEM;
	grown = n >= 0 && (size_t)n < len && has_grown(m, r->in, of);
	if (grown) { /* not opened anew: that could be another content of the file */
		rc = dfs_refresh(of->f, err);
		n = rc == -ESTALE || rc == -EACCES ? rc : n;
	}
	pthread_mutex_lock(&r->lock);
	if (stream) {
		r->busy = false;
		r->next = offset + (n > 0 ? (uint64_t)n : 0);
		wake_next_locked(r, early_max);
	}
	of->shut = of->shut || (n == -EACCES && !r->by_owner); /* opened anew by who comes next */
	*ret_again = (grown && rc == 0) || of->shut;
	r->by_owner = r->by_owner || n == -EACCES; /* it has asked where the blocks are */
	put_locked(of);
	pthread_mutex_unlock(&r->lock);
	return n;
}

ssize_t file_reader_read(struct mount *m, struct file_reader *r, void **buf, size_t len,
			 uint64_t offset, struct dfs_err *err)
{
	bool again;
	ssize_t n = read_once(m, r, buf, len, offset, &again, err);

	return again ? read_once(m, r, buf, len, offset, &again, err) : n;
}
