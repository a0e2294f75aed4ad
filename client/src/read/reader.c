/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/read/block_locations.h"
#include "client/src/stream/small_read.h"
#include "client/src/striped/striped_reader.h"
#include "common/base/clock.h"
#include "common/erasure/coder.h"
#include "common/wire/pb.h"

#define STRAIGHT_LEAST (64u << 10)
#define SUSPECT_NS (60 * NS_PER_S) /* how long a node that failed is asked last */

/* ---- one stream ---- */

void reader_fetch_close(struct fetch *f)
{
	if (f->rs)
		f->rs->ops->close_read(f->rs);
	f->rs = NULL;
}

void reader_fetch_forget(struct fetch *f)
{
	reader_fetch_close(f);
	stretch_put(f->stretch);
	f->stretch = NULL;
	f->lb = NULL;
	f->tried = 0;
}

static bool is_suspect(struct reader *r, const Hd__DatanodeIDProto *node, uint64_t now)
{
	char text[NET_TEXT_MAX];

	return node_table_get(&r->fs->suspects, node_text(node, text), now, NULL, 0);
}

/* Nearest first, those that failed lately last. -1 when all of them failed now. */
static int pick_replica(struct reader *r, const struct fetch *f)
{
	const uint64_t now = clock_mono_ns();
	const bool none = node_table_is_empty(&r->fs->suspects);
	int second = -1;

	for (size_t i = 0; i < f->lb->n_locs && i < LOCATED_NODES_MAX; i++) {
		if (f->tried & 1ull << i)
			continue;
		if (none || !is_suspect(r, f->lb->locs[i]->id, now))
			return (int)i;
		if (second < 0)
			second = (int)i;
	}
	return second;
}

/* Replica f->node failed with @rc: remember, tell the NameNode about a wrong checksum. */
static void blame(struct reader *r, struct fetch *f, int rc, const struct err *err)
{
	char text[NET_TEXT_MAX];

	reader_fetch_close(f);
	f->tried |= 1ull << f->node;
	count_add(&r->fs->count.read_failovers, 1);
	if (rc == -EBADMSG) {
		count_add(&r->fs->count.checksum_errors, 1);
		locate_report_bad(r->fs, f->lb, f->node);
	} else {
		node_table_put(&r->fs->suspects, node_text(f->lb->locs[f->node]->id, text),
			       err->text, clock_mono_ns() + SUSPECT_NS);
	}
}

/* What the caller hears when no replica is left. */
static int out_of_replicas(struct reader *r, const struct fetch *f, struct err *err)
{
	const int rc = node_is_away(err->rc) ? -ETIMEDOUT : err->rc == -EBADMSG ? -EBADMSG : -EIO;
	char last[ERR_TEXT_MAX];

	if (reader_confirm(r, f->pos, err) < 0)
		return err->rc;
	snprintf(last, sizeof(last), "%s",
		 err->rc < 0 ? err->text : "the NameNode knows no replica");
	err_set(err, rc, "%.120s: none of %zu replicas of blk_%lld can be read: %.250s", r->path,
		f->lb->n_locs, (long long)f->lb->b->blockid, last);
	if (rc != -EBADMSG && !strstr(last, "dfs admin report"))
		err_cure(err,
			 "are its data nodes up, and do their disks answer? see dfs admin report");
	return rc;
}

static int open_stream(struct reader *r, struct fetch *f, uint64_t want_end, bool start,
		       struct err *err)
{
	const uint64_t block_end = f->lb->offset + f->lb->b->numbytes;
	struct read_setup s = {.lb = f->lb,
			       .node = f->node,
			       .offset = f->pos - f->lb->offset,
			       .dest = f->dest,
			       .gs = reader_stamp(r, f->lb)};

	f->end = want_end < block_end ? want_end : block_end;
	s.len = f->end - f->pos;
	return (start ? stream_start_read : stream_open_read)(r->fs, &s, &f->rs, err);
}

/* What follows asks the NameNode anew. */
static void drop_locations(struct reader *r, struct fetch *f)
{
	reader_forget(r, f->stretch);
	reader_fetch_forget(f);
}

/* Is the block of f->pos the one that it has? */
static bool has_block(const struct fetch *f)
{
	return f->lb && f->pos >= f->lb->offset && f->pos < f->lb->offset + f->lb->b->numbytes;
}

/* A stream from a replica that answers, at f->pos. */
static int fetch_open(struct reader *r, struct fetch *f, uint64_t want_end, uint32_t *rounds,
		      struct err *err)
{
	for (;;) {
		int node, rc = 0;

		if (!has_block(f)) {
			reader_fetch_forget(f);
			rc = reader_locate(r, f->pos, &f->stretch, &f->lb, err);
		}
		if (rc < 0)
			return rc;
		node = pick_replica(r, f);
		/* the last one has no RDMA, which is required: waiting gives it none */
		if (node < 0 && err->rc == -ENOTSUP)
			return err->rc;
		if (node < 0 && !reader_wait_for_others(r, rounds))
			return out_of_replicas(r, f, err);
		if (node < 0) {
			drop_locations(r, f);
			continue;
		}
		f->node = (size_t)node;
		rc = open_stream(r, f, want_end, false, err);
		if (rc == 0 || rc == -ENOMEM)
			return rc;
		if (rc == -EEXIST)
			return same_file_differs(SAME_FILE_REFILLED, r->path, 0, err);
		if (rc == -EACCES && !f->renewed) { /* the token has expired, most likely */
			f->renewed = true;
			drop_locations(r, f); /* with fresh locations come fresh tokens */
			continue;
		}
		blame(r, f, rc, err);
	}
}

/* Up to @len bytes at f->pos, never beyond @want_end or the block. */
static ssize_t fetch_some(struct reader *r, struct fetch *f, void *buf, size_t len,
			  uint64_t want_end, uint32_t *rounds, struct err *err)
{
	for (;;) {
		const struct block_stream *ops;
		ssize_t n;

		if (!f->rs) {
			int rc = fetch_open(r, f, want_end, rounds, err);

			if (rc < 0)
				return rc;
		}
		ops = f->rs->ops;
		n = ops->read(f->rs, buf, len < f->end - f->pos ? len : (size_t)(f->end - f->pos),
			      err);
		if (n > 0) {
			reader_gave(r, f->stretch, f->lb);
			f->pos += (uint64_t)n;
			f->renewed = false;
			f->way = 1 + f->rs->counter;
			count_add(&r->fs->count.read[f->rs->counter], (uint64_t)n);
			if (f->pos == f->end)
				reader_fetch_close(f);
			return n;
		}
		/* the node is well, and TCP */
		if (n == -ENOBUFS && r->fs->set.rdma != RDMA_REQUIRE) {
			reader_fetch_close(f);
			continue;
		}
		if (n == -ENOMEM || n == -ENOBUFS)
			return n;
		if (n == -EEXIST) {
			reader_fetch_close(f);
			return same_file_differs(SAME_FILE_REFILLED, r->path, 0, err);
		}
		blame(r, f, (int)n, err);
	}
}

static ssize_t fetch_all(struct reader *r, struct fetch *f, void *buf, size_t len, bool ahead,
			 struct err *err)
{
	const uint64_t want_end = ahead ? UINT64_MAX : f->pos + len;
	uint32_t rounds = 0; /* of bad luck, since the last byte that came */
	uint8_t *p = buf;
	size_t left = len;

	err_reset(err);
	while (left > 0) {
		ssize_t n;

		f->dest = ahead ? NULL : p;
		n = fetch_some(r, f, p, left, want_end, &rounds, err);
		if (n < 0) {
			if (!ahead) /* what it asked for goes to the caller's memory */
				reader_fetch_close(f);
			return n;
		}
		rounds = 0;
		p += n;
		left -= (size_t)n;
	}
	return (ssize_t)len;
}

/* ---- the same for who does not wait ---- */

static uint64_t patience_ns(const struct reader *r)
{
	return clock_mono_ns() + stream_timeout_ns(r->fs, 0);
}

int reader_fetch_start(struct reader *r, struct fetch *f, uint64_t want_end, struct err *err)
{
	int rc = 0, node;

	if (!has_block(f)) {
		reader_fetch_forget(f);
		rc = reader_locate(r, f->pos, &f->stretch, &f->lb, err);
	}
	if (rc < 0)
		return rc;
	node = pick_replica(r, f);
	if (node < 0)
		return -EIO;
	f->node = (size_t)node;
	f->deadline_ns = patience_ns(r);
	return open_stream(r, f, want_end, true, err);
}

ssize_t reader_fetch_try(struct reader *r, struct fetch *f, void *buf, size_t len, struct err *err)
{
	const struct block_stream *ops = f->rs->ops;
	ssize_t n = ops->try_read(f->rs, buf,
				  len < f->end - f->pos ? len : (size_t)(f->end - f->pos), err);

	if (n == 0 && clock_mono_ns() >= f->deadline_ns)
		n = err_set(err, -ETIMEDOUT, "the data node does not answer in time");
	if (n > 0) {
		reader_gave(r, f->stretch, f->lb);
		f->pos += (uint64_t)n;
		f->deadline_ns = patience_ns(r);
		count_add(&r->fs->count.read[f->rs->counter], (uint64_t)n);
		if (f->pos == f->end)
			reader_fetch_close(f);
	} else if (n == -EBADMSG || node_is_away((int)n) || n == -ECONNRESET) {
		blame(r, f, (int)n, err);
	} else if (n < 0) {
		reader_fetch_close(f);
	}
	return n;
}

void reader_small_failed(struct reader *r, struct fetch *f, int rc, const struct err *err)
{
	blame(r, f, rc, err);
}

/* ---- entry points ---- */

/* How many of @len bytes at @offset there are; a file that grows is asked again at its end. */
static ssize_t clip(struct reader *r, uint64_t offset, size_t len, struct err *err)
{
	uint64_t length = reader_length(r);

	if (offset > INT64_MAX)
		return err_set(err, -EINVAL, "offset beyond 2^63");
	if (len > SSIZE_MAX)
		len = SSIZE_MAX;
	if (offset + len > length && reader_grows(r)) {
		int rc = reader_refresh(r, err);

		if (rc < 0)
			return rc;
		length = reader_length(r);
	}
	if (offset >= length)
		return 0;
	return (ssize_t)(len < length - offset ? len : length - offset);
}

bool reader_small_setup(struct reader *r, struct fetch *f, size_t len, struct read_setup *ret)
{
	const uint64_t end = f->lb->offset + f->lb->b->numbytes;
	const int node = pick_replica(r, f);

	*ret = (struct read_setup){.lb = f->lb,
				   .node = (size_t)node,
				   .offset = f->pos - f->lb->offset,
				   .len = len,
				   .gs = reader_stamp(r, f->lb)};
	f->node = (size_t)node;
	return node >= 0 && len <= end - f->pos && small_read_fits(ret) &&
	       stream_is_tcp(r->fs, ret);
}

void reader_small_done(struct reader *r, struct fetch *f, size_t len)
{
	reader_gave(r, f->stretch, f->lb);
	f->pos += len;
	count_add(&r->fs->count.read[stream_tcp.counter], len);
}

/* Without a stream, where that is to be had. As reader_pread(); 0: it is not. */
static ssize_t pread_small(struct reader *r, struct fetch *f, void *buf, size_t len,
			   struct err *err)
{
	struct read_setup s;
	ssize_t n = reader_locate(r, f->pos, &f->stretch, &f->lb, err);

	if (n < 0 || !reader_small_setup(r, f, len, &s))
		return n;
	n = small_read(r->fs, &s, buf, err);
	if (n > 0)
		reader_small_done(r, f, (size_t)n);
	else if (n < 0)
		reader_small_failed(r, f, (int)n, err);
	return n > 0 ? n : 0;
}

ssize_t reader_pread(struct reader *r, void *buf, size_t len, uint64_t offset, struct err *err)
{
	struct fetch f = {.pos = offset};
	ssize_t n = clip(r, offset, len, err), small;

	if (n > 0 && r->striped) {
		n = striped_pread(r, buf, (size_t)n, offset, err);
	} else if (n > 0) {
		small = n <= SMALL_READ_MAX ? pread_small(r, &f, buf, (size_t)n, err) : 0;
		n = small ?: fetch_all(r, &f, buf, (size_t)n, false, err);
	}
	reader_fetch_forget(&f);
	return n;
}

/* Whose stream was given back reads what it needs, until reads follow one another again: what else
 * a node sends would be for nothing. */
static bool wants_ahead(struct reader *r)
{
	if (r->given_back && clock_mono_ns() - r->used_ns < IDLE_MANY_NS)
		r->given_back = false;
	return !r->given_back;
}

/* It can go into registered memory without a copy, and then not ahead. What is short is better
 * copied from what has come ahead. */
static bool may_go_straight(struct reader *r, const void *buf, size_t asked, size_t len)
{
	return asked >= STRAIGHT_LEAST &&
	       (!r->seq.way || r->seq.way == 1 + stream_rdma.counter ||
		r->seq.way == 1 + STREAM_ONESIDED) &&
	       stream_is_registered(r->fs, buf, len);
}

/* Where long and short reads take turns, what one has read ahead is not thrown away for the next:
 * it takes two long ones in a row, and the short one behind them reads what it needs alone. */
static void choose_way(struct reader *r, bool may, bool *ret_straight, bool *ret_ahead)
{
	const bool goes_on = r->seq.rs && r->seq.pos == r->pos;

	*ret_straight = may && (!goes_on || r->was_long);
	*ret_ahead = !*ret_straight && wants_ahead(r) && (goes_on || may || !r->was_long);
	r->was_long = may;
}

static ssize_t read_locked(struct reader *r, void *buf, size_t len, struct err *err)
{
	struct fetch *f = &r->seq;
	ssize_t n = clip(r, r->pos, len, err);
	bool straight, ahead;

	if (n <= 0)
		return n;
	if (r->striped) {
		n = striped_read(r, &r->striped_seq, buf, (size_t)n, r->pos, wants_ahead(r), err);
		r->pos += n > 0 ? (uint64_t)n : 0;
		return n;
	}
	choose_way(r, may_go_straight(r, buf, len, (size_t)n), &straight, &ahead);
	if (straight)
		reader_fetch_close(f);
	if (f->pos != r->pos) { /* somebody seeked, or the last read failed */
		reader_fetch_close(f);
		f->tried = 0;
		f->pos = r->pos;
	}
	n = fetch_all(r, f, buf, (size_t)n, ahead, err);
	if (n > 0)
		r->pos += (uint64_t)n;
	return n;
}

bool reader_give_back(struct reader *r)
{
	if (!stream_come_to_rest(r->seq.rs) || !striped_give_back(r->striped_seq))
		return false;
	if (r->seq.rs)
		r->seq.rs->given_up = true;
	reader_fetch_close(&r->seq);
	r->given_back = true;
	return true;
}

/* Bytes of it lie at a data node that waits for somebody to take them. */
static bool holds_stream(const struct reader *r)
{
	return (r->seq.rs && r->seq.rs->counter != stream_local.counter) ||
	       striped_has_streams(r->striped_seq);
}

ssize_t reader_read(struct reader *r, void *buf, size_t len, struct err *err)
{
	ssize_t n;

	pthread_mutex_lock(&r->seq_lock);
	n = read_locked(r, buf, len, err);
	if (holds_stream(r) || r->given_back) {
		r->used_ns = clock_mono_ns();
		if (!r->listed && holds_stream(r))
			idle_streams_add(r);
	}
	pthread_mutex_unlock(&r->seq_lock);
	return n;
}

int reader_seek(struct reader *r, uint64_t offset)
{
	if (offset > INT64_MAX)
		return -EINVAL;
	pthread_mutex_lock(&r->seq_lock);
	r->pos = offset;
	pthread_mutex_unlock(&r->seq_lock);
	return 0;
}

uint64_t reader_tell(struct reader *r)
{
	uint64_t pos;

	pthread_mutex_lock(&r->seq_lock);
	pos = r->pos;
	pthread_mutex_unlock(&r->seq_lock);
	return pos;
}

/* Of the one block @lb of a file of @length bytes, in whichever of its replicas is here. */
static int fd_of_block(struct reader *r, const Hd__LocatedBlockProto *lb, uint64_t length,
		       int *ret_fd, struct err *err)
{
	int rc = err_set(err, -ENOTSUP, "%.300s: no data node on this machine passes its replica",
			 r->path);

	for (size_t i = 0; rc == -ENOTSUP && i < lb->n_locs; i++) {
		const struct read_setup s = {
			.lb = lb, .node = i, .len = length, .gs = reader_stamp(r, lb)};
		struct local_replica *rep = r->fs->set.local.enabled ? local_get(r->fs, &s) : NULL;

		if (!rep)
			continue;
		if (rep->length == length) {
			rc = ret_errno(fcntl(rep->fd, F_DUPFD_CLOEXEC, 0));
			if (rc >= 0)
				*ret_fd = rc;
			else
				err_sys(err, rc, "%.300s", r->path);
		}
		local_put(r->fs, rep);
	}
	return rc < 0 ? rc : 0;
}

int reader_local_fd(struct reader *r, int *ret_fd, struct err *err)
{
	const uint64_t length = reader_length(r);
	const Hd__LocatedBlockProto *lb = NULL;
	struct stretch *stretch = NULL;
	int rc;

	if (length == 0 || reader_grows(r) || r->striped)
		return err_set(err, -ENOTSUP, "%.300s is empty, being written or erasure-coded",
			       r->path);
	rc = reader_locate(r, 0, &stretch, &lb, err);
	if (rc < 0)
		return rc;
	if (lb->offset != 0 || lb->b->numbytes != length)
		rc = err_set(err, -ENOTSUP, "%.300s is of more than one block", r->path);
	rc = rc ?: fd_of_block(r, lb, length, ret_fd, err);
	stretch_put(stretch);
	return rc;
}

static struct reader *reader_make(struct dfs *fs, const char *path, struct err *err)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (!r) {
		err_set(err, -ENOMEM, "out of memory for a file");
		return NULL;
	}
	r->fs = fs;
	list_init(&r->stretches);
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->seq_lock, NULL);
	r->path = strdup(path);
	if (!r->path) {
		err_set(err, -ENOMEM, "out of memory for a file");
		reader_free(r);
		return NULL;
	}
	return r;
}

static int reader_or(struct reader *r, int rc, struct reader **ret)
{
	if (rc < 0)
		reader_free(r);
	else
		*ret = r;
	return rc;
}

int reader_new(struct dfs *fs, const char *path, struct reader **ret, struct err *err)
{
	struct reader *r = reader_make(fs, path, err);

	return r ? reader_or(r, reader_first_locations(r, err), ret) : -ENOMEM;
}

int reader_new_from(struct dfs *fs, const char *path, Hd__GetBlockLocationsResponseProto *m,
		    struct reader **ret, struct err *err)
{
	struct reader *r = reader_make(fs, path, err);

	if (r)
		return reader_or(r, reader_take_locations(r, m, err), ret);
	pb_free(m);
	return -ENOMEM;
}

void reader_free(struct reader *r)
{
	if (!r)
		return;
	idle_streams_remove(r);
	reader_fetch_forget(&r->seq);
	striped_free(r->striped_seq);
	ec_coder_free(r->coder);
	reader_forget_all(r);
	pthread_mutex_destroy(&r->lock);
	pthread_mutex_destroy(&r->seq_lock);
	free(r->path);
	free(r);
}
