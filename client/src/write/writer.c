/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/pb.h"

#define LEND_MIN (256u << 10) /* bytes that are worth a packet of their own */

static struct writer *writer_of(struct output *f)
{
	return container_of(f, struct writer, f);
}

/* Where a packet starts: the chunk that holds the end of what was queued. After a flush inside a
 * chunk the next packet repeats that chunk's beginning, hdfs-wire 5.6. */
static uint64_t chunk_start(const struct writer *w)
{
	return w->pipe.queued_end / w->pipe.bpc * w->pipe.bpc;
}

/* Is the next byte in a chunk that other hands have begun? */
static bool is_ragged(const struct writer *w)
{
	return w->pipe.queued_end < w->ragged_end;
}

/* Is the end of the block queued? Then it could not be finished when that was done. */
static bool is_full(const struct writer *w)
{
	return w->stage == WRITER_STREAMING && w->pipe.queued_end == w->block_size;
}

/* ---- the turn: acks in, packets out ---- */

/* One turn: pump, and if @wait then until something happens. Failures are repaired. */
static int turn(struct writer *w, bool wait, struct err *err)
{
	int bad, rc = pipeline_pump(&w->pipe, &bad, err);

	if (rc >= 0 && wait && pipeline_in_flight(&w->pipe))
		rc = pipeline_wait(&w->pipe, rc > 0, err);
	if (pipeline_forgives(&w->pipe, rc))
		rc = writer_go_round(w, err);
	else if (rc < 0)
		rc = writer_recover(w, bad, err);
	return rc < 0 ? rc : 0;
}

static int drain(struct writer *w, struct err *err)
{
	int rc = 0;

	while (rc == 0 && pipeline_in_flight(&w->pipe))
		rc = turn(w, true, err);
	return rc;
}

/* ---- blocks ---- */

/* A block of one packet of which nobody has relied on a byte: when it fails before that packet is
 * acknowledged, another block serves as well. With two, no repair would fit the time when one of
 * them is acknowledged. */
static bool is_small(const struct writer *w)
{
	return w->pipe.run_ahead && !w->flushed && w->pipe.acked_end == 0 && w->pipe.in_window == 1;
}

/* Its nodes sync it later. */
static void remember(struct writer *w)
{
	if (!w->pipe.ws || !w->pipe.ws->later_count)
		return;
	deferred_sync_add(w->f.fs, w->f.file_id, w->pipe.lb, w->pipe.ws->later,
			  w->pipe.ws->later_count);
	w->pipe.lb = NULL;
}

/* The last packet waits for the acks of all others: then a node that fails at the end can be told
 * from one that fails under way, and CLOSE_RECOVERY serves both halves of the pipeline. */
static int finish_block(struct writer *w, bool last, struct err *err)
{
	/* What was synced stays so: a replica that loses its last name is not as good. And an hsync
	 * later reaches only the block that is written then: those before it are on disk already,
	 * also where the data nodes do not sync what they finish. */
	const bool sync = w->pipe.synced_end > 0 || w->reopened || (!last && !w->f.no_hsync);
	int rc;

	if (w->stage == WRITER_IDLE)
		return 0;
	assert(!w->cur);
	rc = is_small(w) ? 0 : drain(w, err);
	rc = rc ?: pipeline_queue_empty(&w->pipe, true, sync, err);
	if (rc < 0)
		return rc;
	w->stage = WRITER_CLOSING;
	rc = drain(w, err);
	if (rc < 0)
		return rc;
	w->f.block_len = w->pipe.queued_end;
	w->file_done += w->f.block_len;
	w->tail_len = 0;
	if (!sync)
		remember(w);
	writer_drop_block(w);
	w->pipe.by_tcp = false;
	w->breaks = 0;
	return 0;
}

/* An open block, and place for a packet within the window. */
static int need_room(struct writer *w, struct err *err)
{
	int rc = is_full(w) ? finish_block(w, false, err) : 0;

	if (rc == 0 && w->stage == WRITER_IDLE)
		rc = writer_open_block(w, err);
	while (rc == 0 && w->pipe.in_window >= w->window)
		rc = turn(w, true, err);
	return rc;
}

/* A packet with room. */
static int need_cur(struct writer *w, struct err *err)
{
	int rc = w->cur ? 0 : need_room(w, err);

	if (rc < 0 || w->cur)
		return rc;
	if (is_ragged(w))
		w->cur = pipeline_new_packet(&w->pipe, w->pipe.queued_end,
					     (uint32_t)(w->ragged_end - w->pipe.queued_end));
	else
		w->cur = pipeline_new_packet(&w->pipe, chunk_start(w), w->packet_cap);
	if (!w->cur)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	if (w->tail_len)
		packet_append(w->cur, w->pipe.crc_type, w->pipe.bpc, w->block_size, w->tail,
			      w->tail_len);
	return 0;
}

/* Queue what is in cur. If it ends inside a chunk, the next packet begins with that chunk, unless
 * the chunk's beginning is not ours. */
static int push_cur(struct writer *w, bool sync, struct err *err)
{
	struct packet *p = w->cur;
	const bool whole = p->offset + p->len == w->block_size;

	w->tail_len = whole || is_ragged(w) ? 0 : p->len % w->pipe.bpc;
	if (w->tail_len && !w->tail)
		w->tail = malloc(w->pipe.bpc);
	if (w->tail_len && !w->tail)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	if (w->tail_len)
		memcpy(w->tail, p->data + p->len - w->tail_len, w->tail_len);
	p->sync = sync;
	pipeline_queue(&w->pipe, p);
	w->cur = NULL;
	return 0;
}

/* ---- bytes in ---- */

static uint64_t end_of(const struct writer *w)
{
	return w->cur ? w->cur->offset + w->cur->len : w->pipe.queued_end;
}

/* How many of @len lent bytes can be a packet as they lie, at this place of the block; 0: they are
 * copied. */
static size_t lendable(const struct writer *w, size_t len)
{
	const uint64_t end = end_of(w);
	size_t n = len < w->packet_cap ? len : w->packet_cap;

	if (end % w->pipe.bpc || is_ragged(w))
		return 0;
	if (n > w->block_size - end)
		n = (size_t)(w->block_size - end);
	n -= n % w->pipe.bpc;
	return n < LEND_MIN && n < w->packet_cap ? 0 : n;
}

static int lend(struct writer *w, const void *buf, size_t n, struct loan *loan, struct err *err)
{
	struct packet *p;
	int rc = w->cur ? push_cur(w, false, err) : 0; /* whole chunks: nothing is left of it */

	rc = rc ?: need_room(w, err);
	if (rc < 0)
		return rc;
	p = pipeline_lend_packet(&w->pipe, w->pipe.queued_end, buf, (uint32_t)n, loan);
	if (!p)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	pipeline_queue(&w->pipe, p);
	return 0;
}

/* Of lent bytes only so many are copied that the others can be lent: up to the end of a chunk. */
static size_t copyable(const struct writer *w, size_t len, const struct loan *loan)
{
	const size_t begun = end_of(w) % w->pipe.bpc, left = w->pipe.bpc - begun;

	return loan && begun > 0 && len > left + LEND_MIN ? left : len;
}

/* How much fits into cur, which is queued when it is full: *@ret_queued. */
static ssize_t copy_some(struct writer *w, const void *buf, size_t len, const struct loan *loan,
			 bool *ret_queued, struct err *err)
{
	size_t n;
	int rc = need_cur(w, err);

	if (rc < 0)
		return rc;
	n = packet_append(w->cur, w->pipe.crc_type, w->pipe.bpc, w->block_size, buf,
			  copyable(w, len, loan));
	*ret_queued = w->cur->len == w->cur->cap || w->cur->offset + w->cur->len == w->block_size;
	if (*ret_queued)
		rc = push_cur(w, false, err);
	return rc < 0 ? rc : (ssize_t)n;
}

static ssize_t do_write_some(struct output *f, const void *buf, size_t len, struct loan *loan,
			     struct err *err)
{
	struct writer *w = writer_of(f);
	bool queued = true;
	ssize_t n;
	int rc;

	if (loan && !loan->memory && packet_pool_is_registered(&w->pipe.fs->packets))
		loan = NULL;
	n = loan ? (ssize_t)lendable(w, len) : 0;
	if (n > 0)
		rc = lend(w, buf, (size_t)n, loan, err);
	else
		rc = (int)((n = copy_some(w, buf, len, loan, &queued, err)) < 0 ? n : 0);
	if (rc < 0 || !queued)
		return rc < 0 ? rc : n;
	rc = turn(w, false, err);
	if (rc == 0 && is_full(w))
		rc = finish_block(w, false, err);
	if (rc == -ENOBUFS && f->refused) { /* these bytes are taken: need_room() tries again */
		f->refused = false;
		return n;
	}
	return rc < 0 ? rc : n;
}

/* ---- entry points ---- */

static void do_enter(struct output *f, uint64_t now_ns)
{
	writer_of(f)->pipe.progress_ns = now_ns;
}

/* Is the NameNode out of reach, or starting? */
static bool is_away(int rc)
{
	return rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECONNRESET ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH || rc == -EAGAIN || rc == -EROFS;
}

static int do_flush(struct output *f, uint32_t flags, struct err *err)
{
	struct writer *w = writer_of(f);
	const bool sync = flags & DFS_SYNC_DISK;
	int rc = 0;

	if (flags & DFS_SYNC_UPDATE_LENGTH)
		w->fsync_done = false;
	if (sync)
		rc = output_sync_before(f, err);
	if (rc < 0)
		return rc;
	f->no_hsync = f->no_hsync && !sync;
	if (w->stage != WRITER_IDLE) {
		if (w->cur)
			rc = push_cur(w, sync, err);
		else if (sync && w->pipe.synced_end < w->pipe.queued_end)
			rc = pipeline_queue_empty(&w->pipe, false, true, err);
		w->flushed = true;
		rc = rc ?: drain(w, err);
		if (rc == 0 && flags & DFS_SYNC_END_BLOCK && w->pipe.queued_end > 0)
			rc = finish_block(w, false, err);
	} else if (!w->f.has_block || !(flags & DFS_SYNC_UPDATE_LENGTH)) {
		/* nothing in this block; the blocks before are closed */
		return sync && f->early ? output_check_lease(f, err) : 0;
	}
	if (rc < 0)
		return rc;
	rc = writer_persist(w, err);
	/* the data nodes have it all: the next flush may tell the NameNode */
	f->refused = is_away(rc);
	return rc;
}

static int do_close(struct output *f, struct err *err)
{
	struct writer *w = writer_of(f);
	int rc = 0;

	if (w->cur)
		rc = push_cur(w, false, err);
	rc = rc ?: finish_block(w, true, err);
	return rc ?: output_complete(f, err);
}

static void do_keep_alive(struct output *f, uint64_t now_ns)
{
	pipeline_keep_alive(&writer_of(f)->pipe, now_ns);
}

/* ---- life ---- */

static void set_sizes(struct writer *w, const struct settings *s)
{
	uint32_t cap = settings_packet_payload(s->packet_size, w->pipe.bpc);

	if (cap > w->block_size)
		cap = (uint32_t)w->block_size;
	w->packet_cap = cap;
	w->window = WINDOW_BYTES_MAX / cap;
	if (w->window > s->window_packets)
		w->window = s->window_packets;
	if (w->window < 4)
		w->window = 4;
}

static void do_free(struct output *f)
{
	struct writer *w = writer_of(f);

	housekeeper_remove(f->fs, &f->kept);
	pb_free(w->first);
	if (w->cur)
		pipeline_drop_packet(&w->pipe, w->cur);
	writer_drop_block(w);
	pipeline_fini(&w->pipe);
	free(w->tail);
	output_fini(f);
	free(w);
}

static const struct write_ops writer_ops = {
	.enter = do_enter,
	.write_some = do_write_some,
	.flush = do_flush,
	.close = do_close,
	.keep_alive = do_keep_alive,
	.free = do_free,
};

int writer_new(struct dfs *fs, const char *path, const struct writer_opts *o, struct writer **ret,
	       struct err *err)
{
	struct writer *w;
	int rc;

	if (!o->block_size)
		return err_set(err, -EPROTO, "the NameNode says that blocks of %.200s have 0 bytes",
			       path);
	w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(err, -ENOMEM, "out of memory for a file");
	w->block_size = o->block_size;
	w->replication = o->replication;
	w->stuck_seqno = -1;
	pipeline_init(&w->pipe, fs, o->crc_type, o->bpc);
	set_sizes(w, &fs->set);
	rc = output_init(&w->f, &writer_ops, fs, path, o->file_id, o->no_local, err);
	if (rc < 0) {
		do_free(&w->f);
		return rc;
	}
	*ret = w;
	return 0;
}

void writer_give_first(struct writer *w, Hd__LocatedBlockProto *lb)
{
	w->first = lb;
	w->first_ns = clock_mono_ns();
	w->f.has_unused = lb != NULL;
}
