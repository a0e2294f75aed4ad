/* SPDX-License-Identifier: Apache-2.0 */
/* A block being written: the next node of the chain, what goes to it and what it says. */
#include "datanode/block/block_write_internal.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/block/sink.h"

void bw_piece_sent(struct block_write *w, struct bpiece *b)
{
	struct lane *lane = b->lane;

	b->sent = true;
	b->lane = NULL;
	if (!lane)
		return;
	lane->users--;
	wlane_put(w, lane);
}

static void chain_failed(struct block_write *w, int status, const char *bad_link)
{
	if (!bw_has_acks(w)) {
		w->mirror_broken = true;
		return;
	}
	w->answered = w->refused = true;
	if (w->src)
		w->src->ops->opened(w->src, status, bad_link, false);
	bw_fail(w, -EHOSTUNREACH, "the next node did not set up");
}

static void on_sink_opened(struct sink_user *u, int status, const char *bad_link)
{
	struct block_write *w = container_of(u, struct block_write, sink_user);

	if (w->state != BW_WAIT_NEXT_NODE)
		return;
	if (status != DT_SUCCESS && !w->answered) /* answered: it was stopped meanwhile */
		chain_failed(w, status, bad_link);
	w->state = BW_RUN;
	bw_ready(w);
}

static void on_sink_sent(struct sink_user *u, struct piece *p)
{
	struct block_write *w = container_of(u, struct block_write, sink_user);

	bw_piece_sent(w, container_of(p, struct bpiece, p));
	bw_ready(w);
}

void bw_ack_up(struct block_write *w, int64_t seq, uint8_t own, const uint8_t *down, uint32_t n)
{
	uint8_t statuses[DT_ACK_NODES_MAX];

	if (!w->src || !bw_has_acks(w))
		return;
	if (n > DT_ACK_NODES_MAX - 1)
		n = DT_ACK_NODES_MAX - 1;
	statuses[0] = own;
	if (n)
		memcpy(statuses + 1, down, n);
	w->src->ops->ack(w->src, seq, statuses, n + 1);
}

/* The next node is gone, or as good as: the sender is told to blame it. */
static void mirror_break(struct block_write *w)
{
	static const uint8_t error = DT_ERROR;

	if (w->mirror_broken)
		return;
	w->mirror_broken = true;
	log_warn("op=write block=%" PRId64 "_%" PRIu64 " peer=%s: the next node is gone",
		 w->params.req.block.id, w->params.req.block.gs, w->src ? w->src->peer : "-");
	bw_ack_up(w, SEQ_UNKNOWN, DT_SUCCESS, &error, 1);
	bw_ready(w);
}

static void chain_broke(struct block_write *w, int rc)
{
	if (rc == -ENOBUFS && bw_has_acks(w))
		bw_fail(w, rc, "no memory window to name a piece by to the next node");
	else
		mirror_break(w);
}

bool bw_blame_hop(struct block_write *w, const struct pool_budget *hop, uint64_t bytes)
{
	if (!hop || hop->used + bytes <= hop->limit || !bw_has_acks(w))
		return false;
	mirror_break(w);
	return true;
}

static void on_sink_acked(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	struct block_write *w = container_of(u, struct block_write, sink_user);
	struct bpiece *b;

	if (w->mirror_broken || w->rc)
		return;
	for (uint32_t i = 0; i < n; i++) {
		/* We verified what we passed on: let ourselves be blamed, not the messenger. */
		if (statuses[i] == DT_ERROR_CHECKSUM) {
			bw_fail(w, -EBADMSG, "the next node says what we sent is corrupt");
			return;
		}
	}
	if (seq == SEQ_UNKNOWN) {
		bw_ack_up(w, seq, DT_SUCCESS, statuses, n);
		return;
	}
	b = w->down != w->fwd ? bw_piece_at(w, w->down) : NULL;
	if (!b || b->p.seq != seq) {
		mirror_break(w);
		return;
	}
	w->down++;
	if (b->forward_ns) {
		w->peer_time.ns += clock_mono_ns() - b->forward_ns;
		w->peer_time.samples++;
	}
	w->down_done = b->p.last;
	b->down_acked = true;
	b->down_count = (uint8_t)(n < DT_ACK_NODES_MAX ? n : DT_ACK_NODES_MAX - 1);
	b->down_ok = true;
	for (uint32_t i = 0; i < n; i++)
		b->down_ok &= statuses[i] == DT_SUCCESS;
	if (!b->down_ok) { /* the sender will tear the chain down: tell it now, as it came */
		bw_ack_up(w, SEQ_UNKNOWN, DT_SUCCESS, statuses, n);
		w->mirror_broken = true;
	}
	bw_ready(w);
}

static void on_sink_broken(struct sink_user *u, int rc)
{
	struct block_write *w = container_of(u, struct block_write, sink_user);

	if (w->state == BW_WAIT_NEXT_NODE) {
		on_sink_opened(u, DT_ERROR, "");
		return;
	}
	/* A node that has acknowledged the last packet may hang up at once, as Java's does. */
	if (rc < 0 && !w->down_done && (!w->finalized || w->head != w->tail))
		chain_broke(w, rc);
	bw_ready(w);
}

static void on_sink_closed(struct sink_user *u)
{
	struct block_write *w = container_of(u, struct block_write, sink_user);

	w->sink = NULL;
	bw_ready(w);
}

static const struct sink_user_ops bw_sink_user_ops = {
	.opened = on_sink_opened,
	.sent = on_sink_sent,
	.acked = on_sink_acked,
	.broken = on_sink_broken,
	.closed = on_sink_closed,
};

void bw_do_chain(struct block_write *w)
{
	const struct sink_params sp = {
		.write = &w->params,
		.stage = w->params.req.stage,
		.block_len = w->params.req.block.len,
		.crc_type = w->crc_type,
		.bytes_per_crc = w->params.req.bytes_per_crc,
		.no_answer = !w->params.client[0],
		/* its heartbeats are of the connection, not of the stream */
		.beats = w->src && w->src->rdma,
	};
	int rc;

	w->state = BW_WAIT_NEXT_NODE;
	if (w->rc) {
		log_info("op=write block=%" PRId64 "_%" PRIu64 " peer=%s: not begun: %s",
			 w->params.req.block.id, w->params.req.block.gs,
			 w->src ? w->src->peer : "-", w->err.rc ? w->err.text : err_name(w->rc));
		if (w->src && !w->answered)
			w->src->ops->opened(w->src, dt_errno_status(w->rc), "", true);
		w->answered = w->refused = true;
		w->state = BW_DRAIN;
		return;
	}
	if (!w->params.target_count) {
		w->state = BW_RUN;
		return;
	}
	w->sink_user.ops = &bw_sink_user_ops;
	rc = sink_open(w->core, &sp, &w->sink_user, &w->sink);
	if (rc < 0)
		on_sink_opened(&w->sink_user, DT_ERROR, "");
}

void bw_sink_close(struct block_write *w)
{
	if (!w->sink || w->sink_closing)
		return;
	w->sink_closing = true;
	w->sink->ops->close(w->sink);
}

void bw_do_forward(struct block_write *w)
{
	while (w->fwd != w->tail) {
		struct bpiece *b = bw_piece_at(w, w->fwd);

		if (b->status != DT_SUCCESS)
			return;
		w->fwd++;
		if (!w->sink || w->mirror_broken || w->sink_closing) {
			bw_piece_sent(w, b);
			continue;
		}
		b->forwarded = true;
		/* As Java: only the last but one judges, or its slowness would be laid on all
		 * before it. */
		b->forward_ns = w->params.target_count == 1 && w->core->dn->live.peer_stats
					? clock_mono_ns()
					: 0;
		w->sink->ops->forward(w->sink, &b->p);
	}
}
