/* SPDX-License-Identifier: Apache-2.0 */
/* REPLACE_BLOCK: fetch a replica from another node by COPY_BLOCK, so that the NameNode can drop the
 * one that the balancer named; or move one of ours to a directory of another storage type. Both
 * take a place of moves.h. Source: hdfs-wire 5.7, 13; DataXceiver.replaceBlock of Hadoop 3.4.2. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/block/moves.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"

#define PROGRESS_NS (30 * NS_PER_S) /* half of the asker's read timeout */
#define LOCAL_POLL_NS (50 * NS_PER_MS)

enum replace_state {
	REPL_WAIT_SOURCE,   /* COPY_BLOCK is on its way to the source; leaves on on_called() */
	REPL_RECEIVE,       /* the connection to the source is there: its packets may come */
	REPL_WAIT_RECEIVER, /* packets come; leaves on finished() of the receiver */
	REPL_WAIT_TAIL,     /* needs the two bytes after the packets */
	/* a helper moves it between our directories, or will; leaves on local_done() */
	REPL_WAIT_DISK,
	REPL_END, /* answer; waits for the connection to the source to let go */
};

struct dtp_replace {
	struct dtp_op op;    /* of the asker; first */
	struct dtp_op fetch; /* of the connection to the source */
	struct engine_core *core;
	struct dtp_call call; /* to the source */
	bool calling, asker_gone, source_there;
	bool pinned; /* the source does not give it away */
	enum replace_state state;
	int rc;
	struct err err;
	struct rtimer progress;
	struct rtimer local_timer;
	struct offload local;
	bool local_busy;
	struct replica_way way; /* of a local move */
	int local_rc;           /* the helper's, as this */
	struct err local_err;
	/* of a local move; one from another node is in the list as a write */
	struct operation_entry entry;
	char peer[NET_TEXT_MAX]; /* for it: the asker may be gone */
	struct write_params params;
};

static void repl_end(struct dtp_replace *q, int rc)
{
	if (q->state != REPL_END) {
		q->rc = rc;
		moves_leave(q->core->moves);
	}
	q->state = REPL_END;
	reactor_timer_clear(q->core->reactor, &q->progress);
	reactor_timer_clear(q->core->reactor, &q->local_timer);
	if (q->op.conn)
		dtp_ready(q->op.conn);
	if (q->fetch.conn)
		dtp_ready(q->fetch.conn);
}

static void repl_maybe_free(struct dtp_replace *q)
{
	if (q->calling || q->source_there || q->local_busy || !q->asker_gone)
		return;
	xfer_entry_end(&q->entry);
	write_params_fini(&q->params);
	free(q);
}

/* ---- the connection to the source ---- */

static void on_finished(void *arg, int rc)
{
	struct dtp_replace *q = (struct dtp_replace *)arg;

	q->fetch.conn->op = &q->fetch;
	if (q->fetch.conn->state == DTP_OP)
		q->fetch.conn->state = DTP_BUSY;
	if (rc < 0)
		repl_end(q, rc);
	else
		q->state = REPL_WAIT_TAIL;
	dtp_ready(q->fetch.conn);
}

static int answer_take(struct dtp_replace *q, const Hd__BlockOpResponseProto *m)
{
	const Hd__ReadOpChecksumInfoProto *sum = m->readopchecksuminfo;
	const int rc = dt_status_errno((int)m->status);

	q->pinned = (int)m->status == DT_ERROR_BLOCK_PINNED;
	if (rc < 0)
		return rc;
	if (!sum || !bpc_fits(sum->checksum->bytesperchecksum) ||
	    (unsigned int)sum->checksum->type > CRC_CRC32C)
		return -EPROTO;
	q->params.req.crc_type = (enum crc_type)sum->checksum->type;
	q->params.req.bytes_per_crc = sum->checksum->bytesperchecksum;
	return 0;
}

static void do_receive(struct dtp_replace *q)
{
	int rc;

	q->state = REPL_WAIT_RECEIVER;
	rc = dtp_receive_start(q->fetch.conn, &q->params, on_finished, q);
	if (rc < 0)
		repl_end(q, rc);
}

static void fetch_step(struct dtp_op *op)
{
	struct dtp_replace *q = container_of(op, struct dtp_replace, fetch);
	struct dtp_conn *s = op->conn;

	if (q->state == REPL_RECEIVE && !s->broken)
		do_receive(q);
	if (q->state == REPL_WAIT_TAIL &&
	    (s->broken || dtp_fill(s, 2, 2, dtp_in_ns(s, s->core->waits.read_ns))))
		repl_end(q, 0); /* the replica is complete, whatever becomes of the two bytes */
	if (s->broken && q->state < REPL_WAIT_RECEIVER)
		repl_end(q, -ECONNRESET);
	if (q->state != REPL_END)
		return;
	dtp_break(s, -ECANCELED, "the copy is over");
	if (s->state < DTP_CLOSING)
		return;
	q->source_there = false;
	q->fetch.conn = NULL;
	dtp_op_done(s);
	repl_maybe_free(q);
}

static void fetch_abort(struct dtp_op *op)
{
	(void)op; /* the step that follows sees it */
}

static void on_called(struct dtp_call *call, const Hd__BlockOpResponseProto *m)
{
	struct dtp_replace *q = container_of(call, struct dtp_replace, call);
	struct dtp_conn *s = NULL;
	int rc = call->rc;

	q->calling = false;
	if (rc == 0) {
		s = dtp_conn_new(q->core, call->xc);
		rc = s ? answer_take(q, m) : -ENOMEM;
	}
	if (s) {
		q->source_there = true;
		q->fetch = (struct dtp_op){.step = fetch_step, .abort = fetch_abort, .conn = s};
		s->op = &q->fetch;
		s->state = DTP_BUSY;
		q->state = REPL_RECEIVE;
		dtp_ready(s);
	}
	if (rc < 0)
		repl_end(q, rc);
	repl_maybe_free(q);
}

/* ---- between our own directories ---- */

static void local_work(struct offload *o)
{
	struct dtp_replace *q = container_of(o, struct dtp_replace, local);

	q->local_rc = replica_move(q->params.bp, &q->params.req.block, &q->way, &q->local_err);
}

static void local_done(struct offload *o)
{
	struct dtp_replace *q = container_of(o, struct dtp_replace, local);

	q->local_busy = false;
	moves_local_leave(q->core->moves, &q->way);
	if (q->state != REPL_END)
		q->err = q->local_err;
	repl_end(q, q->local_rc);
	repl_maybe_free(q);
}

static void local_start(struct rtimer *t)
{
	struct dtp_replace *q = container_of(t, struct dtp_replace, local_timer);
	const struct write_params *p = &q->params;
	const int rc =
		replica_move_way(p->bp, &p->req.block, p->req.storage_type,
				 p->storage_uuid[0] ? p->storage_uuid : NULL, &q->way, &q->err);

	if (rc < 0) {
		repl_end(q, rc);
		return;
	}
	if (!moves_local_enter(q->core->moves, &q->way)) {
		reactor_timer_set(q->core->reactor, t,
				  reactor_now_ns(q->core->reactor) + LOCAL_POLL_NS);
		return;
	}
	q->local_busy = true;
	q->local = (struct offload){.work = local_work, .done = local_done};
	reactor_offload_to(q->core->reactor, XFER_MOVE_QUEUE(q->way.from), &q->local);
}
_Static_assert(MOVES_VOLUMES == XFER_BUDGETS, "as many as a store has volumes");

/* ---- the asker ---- */

/* What waits for a disk that hangs gives its place of the node back; one under way keeps that of
 * moves_local_enter(). */
static bool way_answers(const struct dtp_replace *q)
{
	const struct store *s = q->core->dn->store;

	return store_volume_answers(s, q->way.from) && store_volume_answers(s, q->way.to);
}

static void on_progress(struct rtimer *t)
{
	struct dtp_replace *q = container_of(t, struct dtp_replace, progress);

	if (q->state == REPL_WAIT_DISK && !way_answers(q)) {
		repl_end(q, err_set(&q->err, -EIO, "a data directory does not answer"));
		return;
	}
	if (q->op.conn)
		dtp_send_status(q->op.conn, DT_IN_PROGRESS, NULL, NULL);
	reactor_timer_set(q->core->reactor, t, reactor_now_ns(q->core->reactor) + PROGRESS_NS);
}

static void asker_leaves(struct dtp_replace *q)
{
	struct dtp_conn *c = q->op.conn;

	if (!q->local_busy)
		reactor_timer_clear(q->core->reactor, &q->progress);
	reactor_timer_clear(q->core->reactor, &q->local_timer);
	if (q->state == REPL_WAIT_DISK && !q->local_busy)
		moves_leave(q->core->moves); /* it has not begun and will not */
	if (q->calling && (q->core->stopping || q->call.state == DTP_CALL_WAIT_CONNECT))
		dtp_call_cancel(&q->call);
	q->asker_gone = true;
	q->op.conn = NULL;
	dtp_op_done(c);
	repl_maybe_free(q);
}

static void replace_step(struct dtp_op *op)
{
	struct dtp_replace *q = container_of(op, struct dtp_replace, op);
	struct dtp_conn *c = op->conn;
	char text[ERR_TEXT_MAX + 256];

	if (c->state >= DTP_CLOSING) { /* what is under way is finished without it */
		asker_leaves(q);
		return;
	}
	if (q->state != REPL_END)
		return;
	if (q->rc < 0) {
		(void)snprintf(text, sizeof(text),
			       "opReplaceBlock %s:blk_%" PRId64 "_%" PRIu64
			       " received exception java.io.IOException: %s",
			       pool_id(q->params.bp), q->params.req.block.id,
			       q->params.req.block.gs, q->err.rc ? q->err.text : err_name(q->rc));
		log_warn("op=replace peer=%s: %s", c->peer, text);
	}
	dtp_send_status(c,
			q->rc == 0  ? DT_SUCCESS
			: q->pinned ? DT_ERROR_BLOCK_PINNED
				    : DT_ERROR,
			NULL, q->rc == 0 ? NULL : text);
	asker_leaves(q);
}

static void replace_abort(struct dtp_op *op)
{
	(void)op; /* the step that follows sees it */
}

static int call_source(struct dtp_replace *q, const Hd__OpReplaceBlockProto *m, struct err *err)
{
	Hd__OpCopyBlockProto copy = HD__OP_COPY_BLOCK_PROTO__INIT;
	struct dn_target at = {.xfer_port = (uint16_t)m->source->id->xferport};
	struct dtp_call_params call = {.to = &at, .connect_ns = q->core->waits.read_ns};
	int rc;

	if ((size_t)snprintf(at.ip, sizeof(at.ip), "%s", m->source->id->ipaddr) >= sizeof(at.ip))
		return err_set(err, -EINVAL, "the address of the source is too long");
	copy.header = m->header;
	rc = dt_op_encode(DT_COPY_BLOCK, &copy, &call.op, &call.op_len);
	if (rc == 0)
		rc = dtp_call_start(&q->call, q->core, &call, on_called);
	q->calling = rc == 0;
	if (rc < 0)
		*err = q->call.err;
	return rc;
}

static bool is_own(const struct dtp_conn *c, const Hd__OpReplaceBlockProto *m)
{
	return !strcmp(m->source->id->datanodeuuid, store_datanode_uuid(c->core->dn->store));
}

static int replace_params(struct dtp_conn *c, const Hd__OpReplaceBlockProto *m,
			  struct dtp_replace *q, struct err *err)
{
	struct write_params *p = &q->params;
	const size_t hint = strlen(m->delhint);
	const Hd__StorageTypeProto type =
		m->has_storagetype ? m->storagetype : HD__STORAGE_TYPE_PROTO__DISK;
	const char *const id = m->storageid;
	const struct token_access want = {.mode = HD__ACCESS_MODE_PROTO__REPLACE,
					  .types = &type,
					  .n_types = 1,
					  .ids = &id,
					  .n_ids = id != NULL};
	int rc = dtp_block(c->core, m->header, want, &p->req.block, &p->bp, err);

	if (rc < 0)
		return rc;
	if (hint >= sizeof(p->del_hint) ||
	    (m->storageid && strlen(m->storageid) >= sizeof(p->storage_uuid)) ||
	    m->source->id->xferport > 65535)
		return err_set(err, -EINVAL, "a field of REPLACE_BLOCK is too long");
	memcpy(p->del_hint, m->delhint, hint + 1);
	if (m->storageid)
		memcpy(p->storage_uuid, m->storageid, strlen(m->storageid) + 1);
	p->req.stage = STAGE_CREATE;
	p->req.storage_type = m->has_storagetype ? (enum storage_type)m->storagetype : STORAGE_DISK;
	return 0;
}

void dtp_move_refused(struct dtp_conn *c, const char *what, int64_t block_id)
{
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "Not able to %s block %" PRId64 " %s %s because threads quota=%" PRIu64
		       " is exceeded.",
		       what, block_id, what[0] == 'c' ? "to" : "from", c->peer,
		       (uint64_t)c->core->dn->live.max_moves);
	log_info("op=move peer=%s: %s", c->peer, text);
	dtp_send_status(c, DT_ERROR, NULL, text);
}

void dtp_move_pinned(struct dtp_conn *c, int64_t block_id)
{
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "Not able to copy block %" PRId64 " to %s because it's pinned ", block_id,
		       c->peer);
	log_info("op=move peer=%s: %s", c->peer, text);
	dtp_send_status(c, DT_ERROR_BLOCK_PINNED, NULL, text);
}

static void local_tell(const struct operation_entry *e, struct operation *ret)
{
	const struct dtp_replace *q = container_of(e, struct dtp_replace, entry);

	dtp_tell(q->peer, q->params.bp, &q->params.req.block, ret);
	ret->kind = "move";
	ret->transport = "none";
	ret->state = q->local_busy ? "wait_disk" : "wait_turn";
	ret->waits_for = q->local_busy ? "disk" : "its turn";
	(void)snprintf(ret->volume, sizeof(ret->volume), "%s", q->params.storage_uuid);
}

static int replace_open(struct dtp_replace *q, const Hd__OpReplaceBlockProto *m, struct err *err)
{
	if (!is_own(q->op.conn, m))
		return call_source(q, m, err);
	q->state = REPL_WAIT_DISK;
	memcpy(q->peer, q->op.conn->peer, sizeof(q->peer));
	xfer_entry_begin(q->core, &q->entry, local_tell);
	local_start(&q->local_timer);
	return 0;
}

void dtp_replace_start(struct dtp_conn *c, const Hd__OpReplaceBlockProto *msg)
{
	struct dtp_replace *q = calloc(1, sizeof(*q));
	struct err err = ERR_INIT;
	int rc = q ? replace_params(c, msg, q, &err) : -ENOMEM;
	bool entered = false;

	if (rc == 0) {
		entered = moves_enter(c->core->moves, &c->core->dn->live);
		rc = entered ? 0 : -EBUSY;
	}
	if (rc == 0) {
		q->core = c->core;
		q->progress.fire = on_progress;
		q->local_timer.fire = local_start;
		q->op = (struct dtp_op){.step = replace_step, .abort = replace_abort, .conn = c};
		rc = replace_open(q, msg, &err);
	}
	if (rc == 0) {
		c->op = &q->op;
		on_progress(&q->progress);
		return;
	}
	if (entered)
		moves_leave(c->core->moves);
	if (rc == -EBUSY) {
		dtp_move_refused(c, "receive", q->params.req.block.id);
	} else {
		dtp_send_status(c, dtp_refusal(rc), NULL, err.rc ? err.text : err_name(rc));
		dtp_break(c, rc, "REPLACE_BLOCK refused");
	}
	free(q);
}
