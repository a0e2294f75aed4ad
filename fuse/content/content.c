/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/content_internal.h"

#include <errno.h>
#include <string.h>

#include "fuse/content/overlay.h"

/* a write of so much is told to be taken before it is on its way */
#define EARLY_MIN 4096u

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
