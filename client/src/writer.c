/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/pb.h"

/* ---- packets ---- */

/* Where a packet starts: the chunk that holds the end of what was queued. After a flush inside a
 * chunk the next packet repeats that chunk's beginning, hdfs-wire 5.6. */
static uint64_t chunk_start(const struct writer *w)
{
	return w->queued_end / w->bpc * w->bpc;
}

/* Is the next byte in a chunk that other hands have begun? */
static bool is_ragged(const struct writer *w)
{
	return w->queued_end < w->ragged_end;
}

static struct packet *new_packet(struct writer *w, uint64_t offset, uint32_t cap)
{
	struct packet *p = packet_get(&w->fs->packets, cap, w->bpc);

	if (p) {
		p->offset = offset;
		w->in_window++;
	}
	return p;
}

static void drop_packet(struct writer *w, struct packet *p)
{
	packet_put(&w->fs->packets, p);
	w->in_window--;
}

static void queue_packet(struct writer *w, struct packet *p)
{
	packet_seal(p, w->crc_type, w->bpc);
	p->seqno = w->seqno++;
	list_add_tail(&w->queue, &p->link);
	if (p->offset + p->len > w->queued_end)
		w->queued_end = p->offset + p->len;
}

static void drop_list(struct writer *w, struct list *l)
{
	struct list *n;

	while ((n = list_pop(l)))
		drop_packet(w, container_of(n, struct packet, link));
}

/* An empty packet: a sync, or the end of the block. It needs no room for data. */
static int queue_empty(struct writer *w, bool last, bool sync, struct err *err)
{
	struct packet *p = new_packet(w, w->queued_end, w->bpc);

	if (!p)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	p->last = last;
	p->sync = sync;
	queue_packet(w, p);
	return 0;
}

/* A sign of life for the nodes; acknowledged in order like any other packet. */
static int queue_heartbeat(struct writer *w, struct err *err)
{
	struct packet *p = new_packet(w, 0, w->bpc);

	if (!p)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	p->seqno = DT_SEQNO_HEARTBEAT;
	list_add_tail(&w->queue, &p->link);
	return 0;
}

/* ---- the turn: acks in, packets out ---- */

static void take_acked(struct writer *w, struct packet *p)
{
	if (p->offset + p->len > w->acked_end)
		w->acked_end = p->offset + p->len;
	if (p->sync)
		w->synced_end = w->acked_end;
	list_del(&p->link);
	drop_packet(w, p);
}

/* 0, or -errno and whom to blame. */
static int take_ack(struct writer *w, const struct ack *a, int *ret_bad, struct err *err)
{
	struct packet *p = container_of(w->unacked.next, struct packet, link);
	char node[NET_TEXT_MAX];

	if (a->bad >= 0) {
		*ret_bad = a->bad;
		return err_set(err, -EIO, "data node %s failed in the pipeline (%s)",
			       node_text(w->lb->locs[a->bad]->id, node), dt_status_name(a->status));
	}
	w->progress_ns = clock_mono_ns();
	if (list_empty(&w->unacked) || p->seqno != a->seqno)
		return err_set(err, -EPROTO, "data node %s acknowledges packet %lld out of turn",
			       node_text(w->lb->locs[0]->id, node), (long long)a->seqno);
	take_acked(w, p);
	return 0;
}

static bool in_flight(const struct writer *w)
{
	return !list_empty(&w->queue) || !list_empty(&w->unacked);
}

/* Everything that moves without waiting. 1 when something is left to send, 0, -errno. */
static int pump(struct writer *w, int *ret_bad, struct err *err)
{
	/* after the ack of its last packet a node closes the connection; that is no failure */
	while (w->stage != WRITER_CLOSING || in_flight(w)) {
		const struct block_stream *ops = w->ws->ops;
		struct packet *p = container_of(w->queue.next, struct packet, link);
		struct ack a;
		int rc = ops->next_ack(w->ws, &a, err);

		if (rc > 0)
			rc = take_ack(w, &a, ret_bad, err) ?: 1;
		if (rc > 0)
			continue;
		if (rc < 0 || list_empty(&w->queue))
			return rc;
		rc = ops->send(w->ws, p, err);
		if (rc <= 0)
			return rc < 0 ? rc : 1;
		w->sent_ns = w->progress_ns = clock_mono_ns();
		count_add(&w->fs->count.written[ops->counter], p->len);
		if (p->offset + p->len > w->sent_end)
			w->sent_end = p->offset + p->len;
		list_del(&p->link);
		list_add_tail(&w->unacked, &p->link);
	}
	return 0;
}

/* Wait until something can move; meanwhile the nodes want signs of life. */
static int wait_for_pipeline(struct writer *w, bool want_send, struct err *err)
{
	const uint64_t patience = stream_timeout_ns(w->fs, w->lb->n_locs);
	const uint64_t give_up = w->progress_ns + patience;
	const uint64_t beat = w->sent_ns + keeper_beat_ns(w->fs);
	int rc = w->ws->ops->wait(w->ws, want_send, beat < give_up ? beat : give_up, err);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (clock_mono_ns() < give_up)
		return want_send ? 0 : queue_heartbeat(w, err);
	return err_set(err, -ETIMEDOUT, "the pipeline has not moved for %llu s",
		       (unsigned long long)(patience / NS_PER_S));
}

/* One turn: pump, and if @wait then until something happens. Failures are repaired. */
static int turn(struct writer *w, bool wait, struct err *err)
{
	int bad = w->pending_bad, rc = w->pending_rc;

	if (rc < 0)
		*err = w->pending_err;
	else
		rc = pump(w, &bad, err);
	if (rc >= 0 && wait && in_flight(w))
		rc = wait_for_pipeline(w, rc > 0, err);
	w->pending_rc = w->pending_bad = 0;
	if (rc < 0)
		rc = writer_recover(w, bad, err);
	return rc < 0 ? rc : 0;
}

static int drain(struct writer *w, struct err *err)
{
	int rc = 0;

	while (rc == 0 && in_flight(w))
		rc = turn(w, true, err);
	return rc;
}

/* ---- blocks ---- */

/* The last packet waits for the acks of all others: then a node that fails at the end can be told
 * from one that fails under way, and CLOSE_RECOVERY serves both halves of the pipeline. */
static int finish_block(struct writer *w, struct err *err)
{
	int rc;

	if (w->stage == WRITER_IDLE)
		return 0;
	if (w->cur) { /* holds nothing but the repetition of a flushed chunk, or nothing */
		drop_packet(w, w->cur);
		w->cur = NULL;
	}
	rc = drain(w, err);
	rc = rc ?: queue_empty(w, true, false, err);
	if (rc < 0)
		return rc;
	w->stage = WRITER_CLOSING;
	rc = drain(w, err);
	if (rc < 0)
		return rc;
	w->block_len = w->queued_end;
	w->file_done += w->block_len;
	writer_drop_block(w);
	return 0;
}

/* A packet with room, in an open block, within the window. */
static int need_cur(struct writer *w, struct err *err)
{
	int rc = 0;

	if (w->cur)
		return 0;
	if (w->stage == WRITER_IDLE)
		rc = writer_open_block(w, err);
	while (rc == 0 && w->in_window >= w->window)
		rc = turn(w, true, err);
	if (rc < 0)
		return rc;
	if (is_ragged(w))
		w->cur = new_packet(w, w->queued_end, (uint32_t)(w->ragged_end - w->queued_end));
	else
		w->cur = new_packet(w, chunk_start(w), w->packet_cap);
	return w->cur ? 0 : err_set(err, -ENOMEM, "out of memory for a packet");
}

static bool cur_is_news(const struct writer *w)
{
	return w->cur && w->cur->offset + w->cur->len > w->queued_end;
}

/* Queue what is in cur. If it ends inside a chunk, the next packet begins with that chunk, unless the
 * chunk's beginning is not ours. */
static int push_cur(struct writer *w, bool sync, struct err *err)
{
	struct packet *p = w->cur, *next = NULL;
	const uint32_t tail = p->len % w->bpc;
	const bool whole = p->offset + p->len == w->block_size;

	if (tail > 0 && !whole && !is_ragged(w)) {
		next = new_packet(w, p->offset + p->len - tail, w->packet_cap);
		if (!next)
			return err_set(err, -ENOMEM, "out of memory for a packet");
		packet_append(next, w->crc_type, w->bpc, w->block_size, p->data + p->len - tail,
			      tail);
	}
	p->sync = sync;
	queue_packet(w, p);
	w->cur = next;
	return 0;
}

static ssize_t write_some(struct writer *w, const void *buf, size_t len, struct err *err)
{
	size_t n;
	int rc = need_cur(w, err);

	if (rc < 0)
		return rc;
	n = packet_append(w->cur, w->crc_type, w->bpc, w->block_size, buf, len);
	if (w->cur->len < w->cur->cap && w->cur->offset + w->cur->len < w->block_size)
		return (ssize_t)n;
	rc = push_cur(w, false, err);
	rc = rc ?: turn(w, false, err);
	if (rc == 0 && w->queued_end == w->block_size)
		rc = finish_block(w, err);
	return rc < 0 ? rc : (ssize_t)n;
}

/* ---- entry points ---- */

static void enter(struct writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->progress_ns = clock_mono_ns(); /* patience counts from here */
}

/* The first failure is kept and ends everything. */
static int fail(struct writer *w, int rc, struct err *err)
{
	if (w->rc == 0) {
		err_prefix(err, "%.200s", w->path);
		w->rc = rc;
		w->err = *err;
	}
	return rc;
}

ssize_t writer_write(struct writer *w, const void *buf, size_t len, struct err *err)
{
	const uint8_t *p = buf;
	size_t left = len;
	ssize_t n = 0;

	enter(w);
	if (w->rc < 0) {
		*err = w->err;
		n = w->rc;
	}
	while (n >= 0 && left > 0) {
		n = write_some(w, p, left, err);
		if (n < 0) {
			fail(w, (int)n, err);
			break;
		}
		p += n;
		left -= (size_t)n;
		w->written += (uint64_t)n;
	}
	pthread_mutex_unlock(&w->lock);
	return n < 0 ? n : (ssize_t)len;
}

static int flush_locked(struct writer *w, uint32_t flags, struct err *err)
{
	const bool sync = flags & DFS_SYNC_DISK;
	int rc = 0;

	if (flags & DFS_SYNC_UPDATE_LENGTH)
		w->fsync_done = false;
	if (w->stage != WRITER_IDLE) {
		if (cur_is_news(w))
			rc = push_cur(w, sync, err);
		else if (sync && w->synced_end < w->queued_end)
			rc = queue_empty(w, false, true, err);
		w->flushed = true;
		rc = rc ?: drain(w, err);
		if (rc == 0 && flags & DFS_SYNC_END_BLOCK && w->queued_end > 0)
			rc = finish_block(w, err);
	} else if (!w->has_block || !(flags & DFS_SYNC_UPDATE_LENGTH)) {
		return 0; /* nothing in this block; the blocks before are closed */
	}
	return rc ?: writer_persist(w, err);
}

int writer_flush(struct writer *w, uint32_t flags, struct err *err)
{
	int rc;

	enter(w);
	rc = w->rc;
	if (rc < 0)
		*err = w->err;
	else
		rc = flush_locked(w, flags, err);
	if (rc < 0)
		fail(w, rc, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static int close_locked(struct writer *w, struct err *err)
{
	int rc = 0;

	if (cur_is_news(w))
		rc = push_cur(w, false, err);
	rc = rc ?: finish_block(w, err);
	return rc ?: writer_complete(w, err);
}

int writer_close(struct writer *w, struct err *err)
{
	int rc;

	enter(w);
	rc = w->rc;
	if (rc < 0)
		*err = w->err;
	else
		rc = close_locked(w, err);
	if (rc < 0)
		fail(w, rc, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

uint64_t writer_length(struct writer *w)
{
	uint64_t n;

	pthread_mutex_lock(&w->lock);
	n = w->written;
	pthread_mutex_unlock(&w->lock);
	return n;
}

/* Acks are collected, and a pipeline that is quiet gets a heartbeat. What breaks is left to the
 * next turn of a caller, who can wait for a repair. */
static int keep_alive_locked(struct writer *w, uint64_t now_ns, int *ret_bad, struct err *err)
{
	int rc = pump(w, ret_bad, err);

	if (rc == 0 && list_empty(&w->unacked) && now_ns > w->sent_ns &&
	    now_ns - w->sent_ns >= keeper_beat_ns(w->fs)) {
		rc = queue_heartbeat(w, err);
		rc = rc ?: pump(w, ret_bad, err);
	}
	return rc;
}

void writer_keep_alive(struct list *link, uint64_t now_ns)
{
	struct writer *w = container_of(link, struct writer, link);
	int rc;

	if (pthread_mutex_trylock(&w->lock) != 0)
		return; /* somebody is at work there */
	if (w->ws && w->rc == 0 && w->pending_rc == 0) {
		rc = keep_alive_locked(w, now_ns, &w->pending_bad, &w->pending_err);
		w->pending_rc = rc < 0 ? rc : 0;
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- life ---- */

static void set_sizes(struct writer *w, const struct settings *s)
{
	uint32_t cap = settings_packet_payload(s->packet_size, w->bpc);

	if (cap > w->block_size)
		cap = (uint32_t)w->block_size;
	w->packet_cap = cap;
	w->window = WINDOW_BYTES_MAX / cap;
	if (w->window > s->window_packets)
		w->window = s->window_packets;
	if (w->window < 4)
		w->window = 4;
}

int writer_new(struct dfs *fs, const char *path, const struct writer_opts *o, struct writer **ret,
	       struct err *err)
{
	struct writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return err_set(err, -ENOMEM, "out of memory for a file");
	w->fs = fs;
	list_init(&w->link);
	list_init(&w->queue);
	list_init(&w->unacked);
	pthread_mutex_init(&w->lock, NULL);
	w->file_id = o->file_id;
	w->block_size = o->block_size;
	w->bpc = o->bpc;
	w->replication = o->replication;
	w->no_local = o->no_local;
	w->crc_type = o->crc_type;
	w->stuck_seqno = -1;
	set_sizes(w, &fs->set);
	hd__extended_block_proto__init(&w->block);
	w->path = strdup(path);
	rc = w->path ? keeper_add(fs, &w->link, err) : err_set(err, -ENOMEM, "out of memory");
	if (rc < 0) {
		writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

void writer_free(struct writer *w)
{
	if (!w)
		return;
	keeper_remove(w->fs, &w->link);
	writer_drop_block(w);
	if (w->cur)
		drop_packet(w, w->cur);
	drop_list(w, &w->queue);
	drop_list(w, &w->unacked);
	writer_forgive(w);
	free(w->failed);
	free(w->pool_id);
	free(w->path);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
