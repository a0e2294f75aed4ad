/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/pipeline.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define LOG_NODES_MAX 16 /* of a pipeline, named in the log */

/* ---- packets ---- */

struct packet *pipeline_new_packet(struct pipeline *p, uint64_t offset, uint32_t cap)
{
	struct packet *packet = packet_get(&p->fs->packets, cap, p->bpc);

	if (packet) {
		packet->offset = offset;
		p->in_window++;
	}
	return packet;
}

struct packet *pipeline_lend_packet(struct pipeline *p, uint64_t offset, const void *data,
				    uint32_t len, struct loan *loan)
{
	struct packet *packet = packet_lent(data, len, p->bpc, loan);

	if (packet) {
		packet->offset = offset;
		p->in_window++;
	}
	return packet;
}

void pipeline_drop_packet(struct pipeline *p, struct packet *packet)
{
	packet_put(&p->fs->packets, packet);
	p->in_window--;
}

void pipeline_queue(struct pipeline *p, struct packet *packet)
{
	packet_seal(packet, p->crc_type, p->bpc);
	packet->seqno = p->seqno++;
	list_add_tail(&p->queue, &packet->link);
	if (packet->offset + packet->len > p->queued_end)
		p->queued_end = packet->offset + packet->len;
}

int pipeline_queue_empty(struct pipeline *p, bool last, bool sync, struct err *err)
{
	struct packet *packet = pipeline_new_packet(p, p->queued_end, p->bpc);

	if (!packet)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	packet->last = last;
	packet->sync = sync;
	pipeline_queue(p, packet);
	p->closing |= last;
	return 0;
}

/* A sign of life for the nodes; acknowledged in order like any other packet. */
static int queue_heartbeat(struct pipeline *p, struct err *err)
{
	struct packet *packet = pipeline_new_packet(p, 0, p->bpc);

	assert(!p->ws->ops->keeps_alive);
	if (!packet)
		return err_set(err, -ENOMEM, "out of memory for a packet");
	packet->seqno = DT_SEQNO_HEARTBEAT;
	list_add_tail(&p->queue, &packet->link);
	return 0;
}

static void drop_list(struct pipeline *p, struct list *l)
{
	struct list *n;

	while ((n = list_pop(l)))
		pipeline_drop_packet(p, container_of(n, struct packet, link));
}

void pipeline_drop_all(struct pipeline *p)
{
	drop_list(p, &p->queue);
	drop_list(p, &p->unacked);
}

/* Heartbeats were for the old stream: the new one may not want them. */
void pipeline_requeue(struct pipeline *p)
{
	while (!list_empty(&p->unacked)) {
		struct list *last = p->unacked.prev;

		list_del(last);
		list_add(&p->queue, last);
	}
	list_for_each (l, &p->queue) {
		struct packet *packet = container_of(l, struct packet, link);

		packet->sent = 0;
		if (packet->seqno != DT_SEQNO_HEARTBEAT)
			continue;
		list_del(l);
		pipeline_drop_packet(p, packet);
	}
}

/* ---- acks in, packets out ---- */

static void take_acked(struct pipeline *p, struct packet *packet)
{
	if (packet->offset + packet->len > p->acked_end)
		p->acked_end = packet->offset + packet->len;
	if (packet->sync)
		p->synced_end = p->acked_end;
	list_del(&packet->link);
	pipeline_drop_packet(p, packet);
}

/* 0, or -errno and whom to blame. */
static int take_ack(struct pipeline *p, const struct ack *a, int *ret_bad, struct err *err)
{
	struct packet *packet = container_of(p->unacked.next, struct packet, link);
	char node[NET_TEXT_MAX];

	if (a->bad >= 0) {
		*ret_bad = a->bad;
		return err_set(err, -EIO, "data node %s failed in the pipeline (%s)",
			       node_text(p->lb->locs[a->bad]->id, node), dt_status_name(a->status));
	}
	p->progress_ns = clock_mono_ns();
	if (list_empty(&p->unacked) || packet->seqno != a->seqno)
		return err_set(err, -EPROTO, "data node %s acknowledges packet %lld out of turn",
			       node_text(p->lb->locs[0]->id, node), (long long)a->seqno);
	take_acked(p, packet);
	return 0;
}

static void is_open(struct pipeline *p)
{
	p->opening = false;
	p->progress_ns = p->sent_ns = clock_mono_ns();
}

/* The first of the queue. 1 it is sent, 0 not now, -errno. */
static int send_first(struct pipeline *p, struct err *err)
{
	const struct block_stream *ops = p->ws->ops;
	struct packet *packet = container_of(p->queue.next, struct packet, link);
	const int rc = ops->send(p->ws, packet, err);

	if (!p->ws->in_line)
		p->in_line_since_ns = 0;
	else if (!p->in_line_since_ns)
		p->in_line_since_ns = clock_mono_ns();
	if (rc <= 0)
		return rc;
	p->sent_ns = clock_mono_ns();
	/* else a heartbeat to a node that is hung would be taken for progress */
	if (list_empty(&p->unacked))
		p->progress_ns = p->sent_ns;
	count_add(&p->fs->count.written[ops->counter], packet->len);
	if (packet->offset + packet->len > p->sent_end)
		p->sent_end = packet->offset + packet->len;
	list_del(&packet->link);
	list_add_tail(&p->unacked, &packet->link);
	return 1;
}

/* 1 it is set up, 0 not yet. */
static int set_up(struct pipeline *p, int *ret_bad, struct err *err)
{
	int rc = p->ws->ops->opened(p->ws, &p->open_until_ns, ret_bad, err);

	if (rc > 0)
		is_open(p);
	if (rc != 0 || !p->run_ahead)
		return rc;
	while (!list_empty(&p->queue)) {
		rc = send_first(p, err);
		if (rc <= 0)
			return rc;
	}
	return 0;
}

static int pump(struct pipeline *p, int *ret_bad, struct err *err)
{
	int rc = p->opening ? set_up(p, ret_bad, err) : 1;

	if (rc <= 0)
		return rc < 0 ? rc : 1;
	/* after the ack of its last packet a node closes the connection; that is no failure */
	while (!p->closing || pipeline_in_flight(p)) {
		struct ack a;

		rc = p->ws->ops->next_ack(p->ws, &a, err);
		if (rc > 0)
			rc = take_ack(p, &a, ret_bad, err) ?: 1;
		if (rc > 0)
			continue;
		if (rc < 0 || list_empty(&p->queue))
			return rc;
		rc = send_first(p, err);
		if (rc <= 0)
			return rc < 0 ? rc : 1;
	}
	return 0;
}

int pipeline_pump(struct pipeline *p, int *ret_bad, struct err *err)
{
	const int rc = p->pending_rc;

	*ret_bad = 0;
	if (rc == 0)
		return pump(p, ret_bad, err);
	*err = p->pending_err;
	*ret_bad = p->pending_bad;
	p->pending_rc = p->pending_bad = 0;
	return rc;
}

static uint64_t patience_ns(const struct pipeline *p)
{
	return stream_timeout_ns(p->fs, p->lb->n_locs);
}

uint64_t pipeline_beat_ns(const struct pipeline *p)
{
	return p->ws->ops->keeps_alive ? UINT64_MAX : p->sent_ns + housekeeper_beat_ns(p->fs);
}

/* Whom it waits for: memory of this process (and no node has anything to do), or the nodes. */
struct patience {
	bool in_line, for_windows;
	uint64_t give_up_ns;
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct patience patience(const struct pipeline *p)
{
	const uint64_t held_until_ns = atomic_load(&p->ws->held_until_ns);
	const uint64_t line_ns = p->fs->set.rdma_wait_ms * NS_PER_MS;

	if (held_until_ns == UINT64_MAX)
		return (struct patience){true, true, p->progress_ns + line_ns};
	if (p->ws->in_line && list_empty(&p->unacked))
		return (struct patience){true, false,
					 later(p->in_line_since_ns, p->progress_ns) + line_ns};
	/* what was held came to the node no sooner */
	return (struct patience){.give_up_ns =
					 later(p->progress_ns, held_until_ns) + patience_ns(p)};
}

uint64_t pipeline_wait_deadline(const struct pipeline *p, bool want_send)
{
	const uint64_t give_up = patience(p).give_up_ns;
	const uint64_t beat = pipeline_beat_ns(p);

	if (p->opening)
		return p->open_until_ns; /* when pipeline_pump() gives up */
	/* a heartbeat would not get out either */
	return beat < give_up && !want_send ? beat : give_up;
}

int pipeline_waited(struct pipeline *p, bool want_send, struct err *err)
{
	struct patience has;

	if (p->opening)
		return 0;
	has = patience(p);
	if (clock_mono_ns() < has.give_up_ns)
		return want_send || p->ws->ops->keeps_alive ? 0 : queue_heartbeat(p, err);
	if (has.in_line) {
		p->ws->in_line = true; /* pipeline_is_dry() */
		return stream_no_buffers(p->fs, "a write", has.for_windows, err);
	}
	return err_set(err, -ETIMEDOUT, "the pipeline has not moved for %llu s",
		       (unsigned long long)(patience_ns(p) / NS_PER_S));
}

int pipeline_wait(struct pipeline *p, bool want_send, struct err *err)
{
	const int rc =
		p->ws->ops->wait(p->ws, want_send, pipeline_wait_deadline(p, want_send), err);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	return pipeline_waited(p, want_send, err);
}

static int keep_alive(struct pipeline *p, uint64_t now_ns, int *ret_bad, struct err *err)
{
	int rc = pump(p, ret_bad, err);

	if (rc == 0 && list_empty(&p->unacked) && now_ns >= pipeline_beat_ns(p)) {
		rc = queue_heartbeat(p, err);
		rc = rc ?: pump(p, ret_bad, err);
	}
	return rc;
}

void pipeline_keep_alive(struct pipeline *p, uint64_t now_ns)
{
	int rc;

	if (!p->ws || p->pending_rc < 0)
		return;
	rc = keep_alive(p, now_ns, &p->pending_bad, &p->pending_err);
	p->pending_rc = rc < 0 ? rc : 0;
}

/* ---- the stream ---- */

/* Which way the bytes go, first node first: what somebody wants to know who looks for a slow one.
 */
static void log_pipeline(const struct pipeline *p, const Hd__ExtendedBlockProto *block)
{
	char nodes[LOG_NODES_MAX * (NET_TEXT_MAX + 1) + 1] = "";
	size_t len = 0;

	for (size_t i = 0; i < p->lb->n_locs && i < LOG_NODES_MAX; i++) {
		char text[NET_TEXT_MAX];

		node_text(p->lb->locs[i]->id, text);
		len += (size_t)snprintf(nodes + len, sizeof(nodes) - len, " %s", text);
	}
	log_debug("op=pipeline block=%" PRId64 "_%" PRIu64 " nodes:%s", (int64_t)block->blockid,
		  block->generationstamp, nodes);
}

static struct write_setup setup_of(const struct pipeline *p, const Hd__ExtendedBlockProto *block,
				   enum dt_stage stage, uint64_t latest_gs)
{
	return (struct write_setup){
		.lb = p->lb,
		.block = block,
		.stage = stage,
		.latest_gs = latest_gs,
		.min_rcvd = p->acked_end,
		.max_rcvd = p->sent_end,
		.crc_type = p->crc_type,
		.bpc = p->bpc,
		.by_tcp = p->by_tcp,
		.sync_later = p->sync_later,
	};
}

int pipeline_open(struct pipeline *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
		  uint64_t latest_gs, int *ret_bad, struct err *err)
{
	const struct write_setup setup = setup_of(p, block, stage, latest_gs);
	int rc = stream_open_write(p->fs, &setup, &p->ws, ret_bad, err);

	if (rc == 0) {
		is_open(p);
		log_pipeline(p, block);
	}
	return rc;
}

int pipeline_start(struct pipeline *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
		   uint64_t latest_gs, int *ret_bad, struct err *err)
{
	const struct write_setup setup = setup_of(p, block, stage, latest_gs);
	bool opened;
	int rc = stream_start_write(p->fs, &setup, &p->ws, &opened, ret_bad, err);

	if (rc < 0)
		return rc;
	is_open(p);
	p->opening = !opened;
	p->open_until_ns = p->progress_ns; /* until pipeline_pump() has asked */
	log_pipeline(p, block);
	return 0;
}

void pipeline_close_stream(struct pipeline *p)
{
	if (p->ws)
		p->ws->ops->close_write(p->ws);
	p->ws = NULL;
	p->opening = false;
	p->in_line_since_ns = 0;
}

/* ---- life ---- */

void pipeline_init(struct pipeline *p, struct dfs *fs, enum crc_type crc_type, uint32_t bpc)
{
	*p = (struct pipeline){.fs = fs, .crc_type = crc_type, .bpc = bpc};
	list_init(&p->queue);
	list_init(&p->unacked);
}

void pipeline_reset(struct pipeline *p)
{
	pipeline_close_stream(p);
	p->closing = p->run_ahead = false;
	p->queued_end = p->sent_end = p->acked_end = p->synced_end = 0;
	p->pending_rc = 0;
}

void pipeline_fini(struct pipeline *p)
{
	pipeline_reset(p);
	pipeline_drop_all(p);
}
