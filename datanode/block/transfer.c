/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/transfer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/block/buffers.h"
#include "datanode/block/sink.h"
#include "datanode/block/token.h"

enum transfer_state {
	TR_WAIT_DISK_OPEN, /* the replica is opened; leaves on opened() of the read */
	TR_WAIT_NEXT_NODE, /* the hop sets up; leaves on opened() of the sink */
	TR_RUN,            /* pieces flow; leaves when the read has ended */
	TR_LAST,           /* the empty last packet */
	TR_WAIT_STORED,    /* leaves on broken(): an answer has come, or the receiver has hung up */
	TR_END,            /* close both sides and wait for them */
	TR_DONE,
};

struct transfer {
	struct rop rop;
	struct engine_core *core;
	struct write_params write;
	struct read_sink read_sink;
	struct sink_user sink_user;
	struct block_read *r;
	struct piece_sink *sink;
	struct read_info info;
	enum transfer_state state;
	bool read_closing, sink_closing, answered;
	struct list early;     /* pieces that came before the hop was ready */
	bool parked;           /* the read waits, with none of them, until it is */
	uint64_t hop_since_ns; /* since when the hop sets up */
	uint32_t with_sink;    /* pieces that the hop has not taken */
	uint64_t sent_bytes;
	/* how much the hop had taken at a time, if any piece was with it since; 0: not watched */
	uint64_t watch_ns, watch_bytes;
	int64_t seq;
	struct piece last;
	int rc;
	struct err err;
	void (*done)(void *arg, int rc, const struct err *err);
	void *arg;
};

static void tr_ready(struct transfer *t)
{
	reactor_ready(t->core->reactor, &t->rop);
}

static void tr_fail(struct transfer *t, int rc, const char *what)
{
	if (!t->rc && rc < 0)
		t->rc = t->err.rc ? rc : err_sys(&t->err, rc, "%s", what);
	tr_ready(t);
}

/* ---- the next hop ---- */

static void on_sink_opened(struct sink_user *u, int status, const char *bad_link)
{
	struct transfer *t = container_of(u, struct transfer, sink_user);

	if (status != DT_SUCCESS && !t->rc)
		t->rc = err_set(&t->err, -EHOSTUNREACH, "data node %s does not take the block",
				bad_link);
	else if (t->state == TR_WAIT_NEXT_NODE)
		t->state = TR_RUN;
	if (t->parked && t->r)
		block_read_resume(t->r);
	t->parked = false;
	tr_ready(t);
}

static void on_sink_sent(struct sink_user *u, struct piece *p)
{
	struct transfer *t = container_of(u, struct transfer, sink_user);

	t->sent_bytes += p->len;
	if (--t->with_sink == 0)
		t->watch_ns = 0;
	if (p != &t->last)
		block_read_sent(t->r, p);
	tr_ready(t);
}

static void on_sink_acked(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)u, (void)seq, (void)statuses, (void)n; /* transfers have no acks */
}

static void on_sink_broken(struct sink_user *u, int rc)
{
	struct transfer *t = container_of(u, struct transfer, sink_user);

	if (rc == 0 && t->state != TR_WAIT_STORED && !t->rc)
		rc = err_set(&t->err, -EPROTO, "data node %s:%u answers before it has the block",
			     t->write.targets[0].ip, t->write.targets[0].xfer_port);
	t->answered = rc == 0;
	tr_fail(t, rc, "the receiving data node failed");
}

static void on_sink_closed(struct sink_user *u)
{
	struct transfer *t = container_of(u, struct transfer, sink_user);

	t->sink = NULL;
	tr_ready(t);
}

static const struct sink_user_ops user_ops = {
	.opened = on_sink_opened,
	.sent = on_sink_sent,
	.acked = on_sink_acked,
	.broken = on_sink_broken,
	.closed = on_sink_closed,
};

static void hop_open(struct transfer *t)
{
	const bool repair = t->write.client[0];
	struct sink_params sp = {
		.write = &t->write,
		.stage = !repair                              ? STAGE_CREATE
			 : t->info.state == REPLICA_FINALIZED ? STAGE_TRANSFER_FINALIZED
							      : STAGE_TRANSFER_RBW,
		.block_len = t->info.block.len,
		.crc_type = t->info.crc_type,
		.bytes_per_crc = t->info.bytes_per_crc,
		.final_answer = repair,
		.no_answer = !repair,
		.confirm = !repair,
	};
	int rc;

	t->sink_user.ops = &user_ops;
	rc = write_params_sign(t->core, &t->write, t->info.block.id);
	if (rc < 0) {
		tr_fail(t, rc, "sign a block token");
		return;
	}
	rc = sink_open(t->core, &sp, &t->sink_user, &t->sink);
	if (rc < 0)
		tr_fail(t, rc, "connect to the receiving data node");
}

/* ---- the replica ---- */

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct transfer *t = container_of(s, struct transfer, read_sink);

	if (rc < 0) {
		if (err)
			t->err = *err;
		tr_fail(t, rc, "open the replica");
		return;
	}
	/* The NameNode ordered a copy of a finished block. Of one that somebody appends to since,
	 * it would be a finalized replica with the new stamp and some of its bytes. */
	if (!t->write.client[0] && info->state != REPLICA_FINALIZED) {
		err_set(&t->err, -ESTALE, "the block is being written again");
		tr_fail(t, -ESTALE, "copy");
		return;
	}
	t->info = *info;
	t->write.req.block = info->block;
	t->state = TR_WAIT_NEXT_NODE;
	t->hop_since_ns = reactor_now_ns(t->core->reactor);
	hop_open(t);
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	struct transfer *t = container_of(s, struct transfer, read_sink);

	p->seq = t->seq++;
	list_add_tail(&t->early, &p->link);
	tr_ready(t);
}

static void on_ended(struct read_sink *s, int rc)
{
	struct transfer *t = container_of(s, struct transfer, read_sink);

	t->r = NULL;
	if (rc < 0)
		tr_fail(t, rc, "read the replica");
	else if (t->state == TR_RUN)
		t->state = TR_LAST;
	tr_ready(t);
}

/* A hop that is not there yet needs no pieces. They are read again when it is. */
static void park(struct transfer *t)
{
	const struct piece *first = container_of(t->early.next, struct piece, link);
	const uint64_t off = first->off;

	t->seq = first->seq;
	while (!list_empty(&t->early))
		block_read_sent(t->r, container_of(list_pop(&t->early), struct piece, link));
	block_read_park(t->r, off);
	t->parked = true;
}

/* Does the hop take what it has got? A disk or buffers that we wait for are no fault of the hop. */
static bool hop_moves(struct transfer *t, uint64_t now_ns)
{
	const uint64_t taken =
		t->with_sink && t->sink->ops->taken ? t->sink->ops->taken(t->sink) : t->sent_bytes;

	if (!t->with_sink)
		return true;
	if (t->watch_ns && taken - t->watch_bytes < BUFFERS_PARTIAL_BYTES)
		return now_ns - t->watch_ns < BUFFERS_PARTIAL_NS;
	t->watch_ns = now_ns;
	t->watch_bytes = taken;
	return true;
}

static void on_reclaim(struct read_sink *s)
{
	struct transfer *t = container_of(s, struct transfer, read_sink);
	const uint64_t now_ns = reactor_now_ns(t->core->reactor);

	if (t->rc || t->parked)
		return;
	if (t->state == TR_WAIT_NEXT_NODE && !list_empty(&t->early) &&
	    now_ns - t->hop_since_ns >= BUFFERS_STALL_NS)
		park(t);
	else if (t->state == TR_RUN && !hop_moves(t, now_ns) && block_read_is_wanted(t->r))
		tr_fail(t, -ETIMEDOUT,
			"the receiving data node takes next to nothing, and others wait for the "
			"buffers");
}

static const struct read_sink_ops sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
	.reclaim = on_reclaim,
};

/* ---- steps ---- */

static void do_run(struct transfer *t)
{
	while (!list_empty(&t->early)) {
		t->with_sink++;
		t->sink->ops->forward(t->sink,
				      container_of(list_pop(&t->early), struct piece, link));
	}
	/* An empty replica has ended before the hop was ready. */
	if (!t->r)
		t->state = TR_LAST;
}

static void do_last(struct transfer *t)
{
	t->state = TR_WAIT_STORED;
	t->last = (struct piece){.seq = t->seq, .off = t->info.end, .last = true};
	list_init(&t->last.link);
	t->with_sink++;
	t->sink->ops->forward(t->sink, &t->last);
}

static void do_end(struct transfer *t)
{
	while (t->r && !list_empty(&t->early))
		block_read_sent(t->r, container_of(list_pop(&t->early), struct piece, link));
	if (t->sink && !t->sink_closing) {
		t->sink_closing = true;
		t->sink->ops->close(t->sink);
	}
	if (t->r && !t->read_closing) {
		t->read_closing = true;
		block_read_close(t->r);
	}
	if (!t->r && !t->sink)
		t->state = TR_DONE;
}

static bool tr_step(struct rop *rop)
{
	struct transfer *t = container_of(rop, struct transfer, rop);
	enum transfer_state before;

	do {
		before = t->state;
		if (t->rc && t->state < TR_END)
			t->state = TR_END;
		switch (t->state) {
		case TR_RUN:
			do_run(t);
			break;
		case TR_LAST:
			do_last(t);
			break;
		case TR_WAIT_STORED:
			if (t->answered)
				t->state = TR_END;
			break;
		case TR_END:
			do_end(t);
			break;
		case TR_WAIT_DISK_OPEN:
		case TR_WAIT_NEXT_NODE:
		case TR_DONE:
			break;
		}
	} while (t->state != before);
	return t->state == TR_DONE;
}

static void tr_free(struct rop *rop)
{
	struct transfer *t = container_of(rop, struct transfer, rop);

	if (t->rc)
		log_warn("op=transfer block=%" PRId64 "_%" PRIu64 " to=%s:%u: %s",
			 t->write.req.block.id, t->write.req.block.gs, t->write.targets[0].ip,
			 t->write.targets[0].xfer_port, t->err.text);
	else
		log_info("op=transfer block=%" PRId64 "_%" PRIu64 " to=%s:%u bytes=%" PRIu64,
			 t->write.req.block.id, t->write.req.block.gs, t->write.targets[0].ip,
			 t->write.targets[0].xfer_port, t->info.block.len);
	t->core->op_count--;
	atomic_fetch_sub(&t->core->dn->transfers, 1);
	t->done(t->arg, t->rc, &t->err);
	write_params_fini(&t->write);
	free(t);
}

int transfer_open(struct engine_core *core, const struct transfer_params *params,
		  void (*done)(void *arg, int rc, const struct err *err), void *arg)
{
	const struct read_params rp = {.bp = params->bp,
				       .block = params->block,
				       .want_crcs = true,
				       .whole = true,
				       .use = POOL_PEER};
	struct transfer *t = calloc(1, sizeof(*t));
	int rc = t && params->target_count ? 0 : t ? -EINVAL : -ENOMEM;

	if (rc == 0) {
		t->core = core;
		t->write = (struct write_params){.bp = params->bp,
						 /* until the replica says more */
						 .req = {.block = params->block},
						 .targets = params->targets,
						 .target_count = params->target_count};
		memcpy(t->write.client, params->client, sizeof(t->write.client));
		t->read_sink = (struct read_sink){.ops = &sink_ops,
						  .peer = params->targets[0].ip,
						  .own = true,
						  .share = &core->transfers};
		t->done = done;
		t->arg = arg;
		list_init(&t->early);
		rop_init(&t->rop, tr_step, tr_free);
		rc = block_read_open(core, &rp, &t->read_sink, &t->r);
	}
	if (rc < 0) {
		free(params->targets);
		free(t);
		return rc;
	}
	core->op_count++;
	atomic_fetch_add(&core->dn->transfers, 1);
	return 0;
}
