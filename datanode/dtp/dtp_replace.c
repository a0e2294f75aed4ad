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
#include "datanode/dtp/dtp_internal.h"

#define PROGRESS_NS (30 * NS_PER_S) /* half of the asker's read timeout */
#define LOCAL_POLL_NS (50 * NS_PER_MS)

enum replace_state {
	REPL_CONNECT_WAIT, /* leaves on connect */
	REPL_ANSWER,       /* needs the BlockOpResponse of the source */
	REPL_RECEIVE_WAIT, /* packets come; leaves on finished() of the receiver */
	REPL_TAIL,         /* needs the two bytes after the packets */
	/* a helper moves it between our directories, or will; leaves on local_done() */
	REPL_LOCAL_WAIT,
	REPL_END, /* answer; waits for the connection to the source to let go */
};

struct dtp_replace {
	struct dtp_op op;    /* of the asker; first */
	struct dtp_op fetch; /* of the connection to the source */
	struct engine_core *core;
	struct xconn *xc; /* until connected */
	struct xop connect_op;
	bool connecting, asker_gone, source_there;
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
	uint8_t *ask; /* owned: COPY_BLOCK */
	size_t ask_len;
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
	if (q->connecting || q->source_there || q->local_busy || !q->asker_gone)
		return;
	xfer_entry_end(&q->entry);
	write_params_fini(&q->params);
	free(q->ask);
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
		q->state = REPL_TAIL;
	dtp_ready(q->fetch.conn);
}

static int answer_take(struct dtp_replace *q, const uint8_t *p, size_t len)
{
	Hd__BlockOpResponseProto *m = NULL;
	int rc = pb_unpack(&hd__block_op_response_proto__descriptor, p, len, &m);

	if (rc < 0)
		return rc;
	rc = dt_status_errno((int)m->status);
	q->pinned = (int)m->status == DT_ERROR_BLOCK_PINNED;
	if (rc == 0 && (!m->readopchecksuminfo ||
			!bpc_fits(m->readopchecksuminfo->checksum->bytesperchecksum) ||
			(unsigned int)m->readopchecksuminfo->checksum->type > CRC_CRC32C))
		rc = -EPROTO;
	if (rc == 0) {
		q->params.req.crc_type = (enum crc_type)m->readopchecksuminfo->checksum->type;
		q->params.req.bytes_per_crc = m->readopchecksuminfo->checksum->bytesperchecksum;
	}
	pb_free(m);
	return rc;
}

static void do_answer(struct dtp_replace *q)
{
	struct dtp_conn *s = q->fetch.conn;
	uint32_t prefix;
	ssize_t total =
		dt_delim_need(dtp_buf_at(&s->in), dtp_buf_len(&s->in), DTP_BUF_MAX / 2, &prefix);
	int rc;

	if (total > 0 && (!prefix || dtp_buf_len(&s->in) < (uint32_t)total)) {
		/* no more than the answer: what follows is payload */
		if (dtp_fill(s, (uint32_t)total, 0, dtp_in_ns(s, s->core->waits.read_ns)))
			dtp_ready(s);
		return;
	}
	rc = total < 0 ? (int)total
		       : answer_take(q, dtp_buf_at(&s->in) + prefix, (size_t)total - prefix);
	if (rc == 0) {
		s->in.start += (uint32_t)total;
		q->state = REPL_RECEIVE_WAIT;
		rc = dtp_receive_start(s, &q->params, on_finished, q);
	}
	if (rc < 0)
		repl_end(q, rc);
}

static void fetch_step(struct dtp_op *op)
{
	struct dtp_replace *q = container_of(op, struct dtp_replace, fetch);
	struct dtp_conn *s = op->conn;

	if (q->state == REPL_ANSWER && !s->broken)
		do_answer(q);
	if (q->state == REPL_TAIL &&
	    (s->broken || dtp_fill(s, 2, 2, dtp_in_ns(s, s->core->waits.read_ns))))
		repl_end(q, 0); /* the replica is complete, whatever becomes of the two bytes */
	if (s->broken && q->state < REPL_RECEIVE_WAIT)
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

static void on_connect(struct xop *op, int res)
{
	struct dtp_replace *q = container_of(op, struct dtp_replace, connect_op);
	struct dtp_conn *s;

	q->connecting = false;
	if (res < 0 || q->asker_gone) {
		xconn_close(q->xc);
		repl_end(q, res < 0 ? res : -ECANCELED);
		repl_maybe_free(q);
		return;
	}
	s = dtp_conn_new(q->core, q->xc);
	if (!s) {
		repl_end(q, -ENOMEM);
		return;
	}
	q->source_there = true;
	q->fetch = (struct dtp_op){.step = fetch_step, .abort = fetch_abort, .conn = s};
	s->op = &q->fetch;
	s->state = DTP_BUSY;
	q->state = REPL_ANSWER;
	dtp_send(s, q->ask, q->ask_len);
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

	if (q->state == REPL_LOCAL_WAIT && !way_answers(q)) {
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
	if (q->state == REPL_LOCAL_WAIT && !q->local_busy)
		moves_leave(q->core->moves); /* it has not begun and will not */
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

static int copy_op_encode(const Hd__OpReplaceBlockProto *m, uint8_t **ret, size_t *ret_len)
{
	Hd__OpCopyBlockProto copy = HD__OP_COPY_BLOCK_PROTO__INIT;

	copy.header = m->header;
	return dt_op_encode(DT_COPY_BLOCK, &copy, ret, ret_len);
}

static bool is_own(const struct dtp_conn *c, const Hd__OpReplaceBlockProto *m)
{
	return !strcmp(m->source->id->datanodeuuid, store_datanode_uuid(c->core->dn->store));
}

static int replace_params(struct dtp_conn *c, const Hd__OpReplaceBlockProto *m,
			  struct dtp_replace *q, struct net_addr *from, struct err *err)
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
	if (is_own(c, m))
		return 0;
	rc = net_resolve(m->source->id->ipaddr, (uint16_t)m->source->id->xferport, from, err);
	return rc < 0 ? rc : copy_op_encode(m, &q->ask, &q->ask_len);
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
	ret->state = q->local_busy ? "run" : "local_wait";
	ret->waits_for = q->local_busy ? "disk" : "its turn";
	(void)snprintf(ret->volume, sizeof(ret->volume), "%s", q->params.storage_uuid);
}

static int replace_open(struct dtp_replace *q, const struct net_addr *from, bool own)
{
	if (own) {
		q->state = REPL_LOCAL_WAIT;
		memcpy(q->peer, q->op.conn->peer, sizeof(q->peer));
		xfer_entry_begin(q->core, &q->entry, local_tell);
		local_start(&q->local_timer);
		return 0;
	}
	q->connecting = true;
	return tcp_ops.connect(q->core->reactor, from,
			       dtp_in_ns(q->op.conn, q->core->waits.read_ns), NULL, 0,
			       &q->connect_op, &q->xc);
}

void dtp_replace_start(struct dtp_conn *c, const Hd__OpReplaceBlockProto *msg)
{
	struct dtp_replace *q = calloc(1, sizeof(*q));
	struct err err = ERR_INIT;
	struct net_addr from;
	int rc = q ? replace_params(c, msg, q, &from, &err) : -ENOMEM;
	bool entered = false;

	if (rc == 0) {
		entered = moves_enter(c->core->moves, &c->core->dn->live);
		rc = entered ? 0 : -EBUSY;
	}
	if (rc == 0) {
		q->core = c->core;
		q->connect_op.done = on_connect;
		q->progress.fire = on_progress;
		q->local_timer.fire = local_start;
		q->op = (struct dtp_op){.step = replace_step, .abort = replace_abort, .conn = c};
		rc = replace_open(q, &from, is_own(c, msg));
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
	if (q)
		free(q->ask);
	free(q);
}
