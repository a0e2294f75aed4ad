/* SPDX-License-Identifier: Apache-2.0 */
/* stream_local - a range of a block from its files, which its data node on this machine has given
 * us (local_replicas.h)
 *
 * Reads are pread(2), of data and of the CRCs that belong to it. Whatever goes wrong, down to a
 * wrong checksum, is no failure of the read: from that byte on it goes on by the network, where a
 * replica that is damaged is found out by the same rules as any other. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/src/stream/local_replicas.h"
#include "client/src/stream/stream.h"

#define CRCS_MAX 1024u /* chunks of one step: their CRCs lie on the stack */
/* bytes of one step: they are verified while they are in the cache */
#define STEP_MAX (256u << 10)
/* what begins or ends within a chunk, and is not longer, is read at once and copied */
#define BOUNCE_MIN (64u << 10)
#define AHEAD_FROM (1u << 20)  /* a stream of so many bytes is read ahead of, */
#define AHEAD_BYTES (4u << 20) /* by so many */

struct loc_r {
	struct rstream base;
	struct dfs *fs;            /* borrowed (outlives its files) */
	struct read_setup setup;   /* as opened; lb is borrowed (outlives the stream) */
	bool start;                /* opened by start_read: nothing waits */
	struct local_replica *rep; /* counted; NULL once given up */
	uint64_t at, end;          /* in the block */
	uint64_t ahead;            /* up to where the kernel was asked to read */
	uint8_t *bounce;           /* owned; NULL until needed */
	struct rstream *instead;   /* owned; by the network */
};

/* ---- reading ---- */

static int pread_all(int fd, void *buf, size_t len, uint64_t offset)
{
	uint8_t *p = buf;

	while (len > 0) {
		const ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno != EINTR)
			return neg_errno();
		if (n == 0)
			return -ENODATA;
		if (n > 0) {
			p += n;
			offset += (uint64_t)n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* @len bytes at the chunk that begins at @at: whole chunks, or up to the end of the replica. */
static int read_verified(const struct loc_r *l, uint8_t *dst, uint32_t len, uint64_t at)
{
	const struct local_replica *rep = l->rep;
	uint8_t crcs[CRCS_MAX * 4];
	int rc = pread_all(rep->fd, dst, len, at);

	rc = rc
		     ?: pread_all(rep->fd_meta, crcs, crc_bytes(rep->crc_type, len, rep->bpc),
				  META_HEADER_LEN + at / rep->bpc * 4);
	if (rc == 0 && crc_verify(rep->crc_type, dst, len, rep->bpc, crcs) >= 0)
		rc = -EBADMSG;
	return rc;
}

static uint32_t step_of(const struct local_replica *rep)
{
	const uint32_t chunks = STEP_MAX / rep->bpc;

	return (chunks == 0 ? 1 : chunks < CRCS_MAX ? chunks : CRCS_MAX) * rep->bpc;
}

/* By way of our own buffer: the chunks around the next bytes. */
static ssize_t read_bounced(struct loc_r *l, void *buf, size_t len)
{
	const struct local_replica *rep = l->rep;
	const uint32_t step = step_of(rep), few = BOUNCE_MIN / rep->bpc * rep->bpc;
	const uint32_t room = few == 0 ? rep->bpc : few < step ? few : step;
	const uint32_t skip = (uint32_t)(l->at % rep->bpc);
	const uint64_t from = l->at - skip;
	uint64_t span = ((uint64_t)len + skip + rep->bpc - 1) / rep->bpc * rep->bpc;
	size_t n;
	int rc;

	if (span > room)
		span = room;
	if (span > rep->length - from)
		span = rep->length - from;
	if (!l->bounce)
		l->bounce = malloc(room);
	if (!l->bounce)
		return -ENOMEM;
	rc = read_verified(l, l->bounce, (uint32_t)span, from);
	if (rc < 0)
		return rc;
	n = (size_t)span - skip < len ? (size_t)span - skip : len;
	memcpy(buf, l->bounce + skip, n);
	return (ssize_t)n;
}

/* A cut makes a new meta file, so ours has no name any more. Bytes that were written after it fit
 * no CRC of ours; where none is looked at this is. Asked after the bytes were read. */
static bool was_cut(const struct local_replica *rep)
{
	struct stat data, meta;

	return fstat(rep->fd, &data) == 0 && fstat(rep->fd_meta, &meta) == 0 &&
	       meta.st_nlink == 0 && data.st_nlink > 0;
}

static void read_ahead(struct loc_r *l)
{
	if (l->end - l->setup.offset < AHEAD_FROM || l->at + AHEAD_BYTES / 2 < l->ahead ||
	    l->ahead >= l->end)
		return;
	if (l->ahead < l->at)
		l->ahead = l->at;
	/* a wish */
	(void)posix_fadvise(l->rep->fd, (off_t)l->ahead, AHEAD_BYTES, POSIX_FADV_WILLNEED);
	l->ahead += AHEAD_BYTES;
}

/* 1..@len bytes, or why not. */
static ssize_t read_files(struct loc_r *l, void *buf, size_t len)
{
	const struct local_replica *rep = l->rep;
	const uint32_t step = step_of(rep);
	uint32_t n;
	int rc;

	if (len > l->end - l->at)
		len = (size_t)(l->end - l->at);
	read_ahead(l);
	if (l->fs->set.local.skip_checksum || rep->crc_type == CRC_NULL) {
		n = len < STEP_MAX ? (uint32_t)len : STEP_MAX;
		rc = pread_all(rep->fd, buf, n, l->at);
		return rc < 0 ? rc : was_cut(rep) ? -ESTALE : (ssize_t)n;
	}
	n = len < step ? (uint32_t)len : step;
	if (l->at + n < rep->length)
		n -= n % rep->bpc;
	/* one step through the buffer costs less than two without it */
	if (n == 0 || l->at % rep->bpc || (n < len && len <= BOUNCE_MIN))
		return read_bounced(l, buf, len);
	rc = read_verified(l, buf, n, l->at);
	return rc < 0 ? rc : (ssize_t)n;
}

/* ---- when it does not go on ---- */

static int go_on_otherwise(struct loc_r *l, int why, struct err *err)
{
	struct read_setup s = l->setup;
	int rc;

	local_give_up(l->fs, l->rep, err_name(why));
	local_put(l->fs, l->rep);
	l->rep = NULL;
	count_add(&l->fs->count.local_fallbacks, 1);
	s.offset = l->at;
	s.len = l->end - l->at;
	if (s.dest)
		s.dest = (uint8_t *)s.dest + (l->at - l->setup.offset);
	rc = stream_open_network(l->fs, &s, l->start, &l->instead, err);
	if (rc == 0)
		l->base.counter = l->instead->counter;
	return rc;
}

static ssize_t loc_read_by(struct loc_r *l, void *buf, size_t len, bool wait, struct err *err)
{
	ssize_t n;

	if (l->rep) {
		n = read_files(l, buf, len);
		if (n > 0) {
			l->at += (uint64_t)n;
			return n;
		}
		if (n == -ENOMEM)
			return err_set(err, -ENOMEM, "out of memory for a read");
		n = go_on_otherwise(l, (int)n, err);
		if (n < 0)
			return n;
	}
	if (!l->instead) /* it could not be opened, and is asked once more */
		return err_set(err, -EIO, "the block cannot be read");
	n = (wait ? l->instead->ops->read : l->instead->ops->try_read)(l->instead, buf, len, err);
	if (n > 0)
		l->at += (uint64_t)n;
	return n;
}

static ssize_t loc_read(struct rstream *s, void *buf, size_t len, struct err *err)
{
	return loc_read_by(container_of(s, struct loc_r, base), buf, len, true, err);
}

static ssize_t loc_try(struct rstream *s, void *buf, size_t len, struct err *err)
{
	return loc_read_by(container_of(s, struct loc_r, base), buf, len, false, err);
}

static int loc_poll(struct rstream *s, struct pollfd *ret)
{
	struct loc_r *l = container_of(s, struct loc_r, base);

	return l->instead ? l->instead->ops->poll_read(l->instead, ret) : 1;
}

static bool loc_come_to_rest(struct rstream *s)
{
	return stream_come_to_rest(container_of(s, struct loc_r, base)->instead);
}

/* ---- life ---- */

static void loc_close(struct rstream *s)
{
	struct loc_r *l = container_of(s, struct loc_r, base);

	if (l->instead) {
		l->instead->given_up = s->given_up;
		l->instead->ops->close_read(l->instead);
	}
	if (l->rep)
		local_put(l->fs, l->rep);
	free(l->bounce);
	free(l);
}

static int open_local(struct dfs *fs, const struct read_setup *r, bool start, struct rstream **ret,
		      struct err *err)
{
	struct local_replica *rep = local_get(fs, r);
	struct loc_r *l;

	(void)err;
	if (!rep)
		return -ENOLINK;
	l = malloc(sizeof(*l));
	if (!l) {
		local_put(fs, rep);
		return -ENOLINK; /* the others need memory, too, and say so */
	}
	*l = (struct loc_r){.base.ops = &stream_local,
			    .fs = fs,
			    .setup = *r,
			    .start = start,
			    .rep = rep,
			    .at = r->offset,
			    .end = r->offset + r->len};
	*ret = &l->base;
	return 0;
}

static int loc_open(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		    struct err *err)
{
	return open_local(fs, r, false, ret, err);
}

static int loc_start(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		     struct err *err)
{
	return open_local(fs, r, true, ret, err);
}

const struct block_stream stream_local = {
	.name = "local",
	.counter = 2,
	.open_read = loc_open,
	.read = loc_read,
	.close_read = loc_close,
	.start_read = loc_start,
	.try_read = loc_try,
	.poll_read = loc_poll,
	.come_to_rest = loc_come_to_rest,
};
