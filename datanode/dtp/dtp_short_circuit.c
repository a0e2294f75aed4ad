/* SPDX-License-Identifier: Apache-2.0 */
/* REQUEST_SHORT_CIRCUIT_FDS: a client of this machine gets the open files of a replica and reads
 * them itself. hdfs-wire 5.7.
 *
 * Memory that is shared with the client, in which it would hear that a replica is about to go, is
 * refused in the way in which clients do without it. What was given away stays readable then: a
 * finalized replica's bytes do not change. An append only adds bytes. A cut makes a new meta file:
 * bytes that are written after it fit no CRC of the old one. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/dtp/dtp_internal.h"

#define FORMAT_VERSION 1u /* of block and meta file */

enum fds_state {
	FDS_WAIT_DISK_OPEN, /* a helper thread opens the files; leaves when it is back */
	/* the answer is on its way, the descriptors follow; leaves when it is sent */
	FDS_WAIT_SENT,
	FDS_WAIT_PEER_RECEIPT, /* the client says that it has them; leaves on recv */
	FDS_CLOSE,             /* ours are closed next */
	FDS_WAIT_DISK_CLOSE,   /* by a helper thread; leaves when it is back */
};

struct dtp_fds {
	struct dtp_op op; /* first */
	struct operation_entry entry;
	struct offload offload;
	enum fds_state state;
	struct block_pool *bp;
	struct block block;
	bool receipt; /* the client is going to send one */
	bool back;
	struct replica_reader *rr; /* owned; NULL: not open */
	int rc;
	struct err err;
};

static void fds_work_open(struct offload *o)
{
	struct dtp_fds *q = container_of(o, struct dtp_fds, offload);

	q->rc = replica_read_open_own(q->bp, &q->block, &q->rr, &q->err);
}

static void fds_work_close(struct offload *o)
{
	replica_read_close(container_of(o, struct dtp_fds, offload)->rr);
}

static void fds_back(struct offload *o)
{
	struct dtp_fds *q = container_of(o, struct dtp_fds, offload);

	q->back = true;
	dtp_ready(q->op.conn);
}

static void fds_offload(struct dtp_fds *q, void (*work)(struct offload *o), enum fds_state state)
{
	q->offload = (struct offload){.work = work, .done = fds_back, .movable = !q->rr};
	q->back = false;
	q->state = state;
	engine_offload(q->op.conn->core, q->rr ? q->rr->volume : replica_volume(q->bp, q->block.id),
		       &q->offload);
}

static void fds_answer(struct dtp_conn *c, enum dt_status status, bool with_version,
		       const char *text)
{
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;
	uint8_t *buf = NULL;
	size_t len = 0;
	int rc;

	m.status = (Hd__Status)status;
	m.message = (char *)(uintptr_t)text;
	m.has_shortcircuitaccessversion = with_version;
	m.shortcircuitaccessversion = FORMAT_VERSION;
	rc = pb_pack_delim(&m, &buf, &len);
	dtp_send_take(c, rc, buf, len);
}

/* With the version a client takes the refusal for one of this block; without it, or with another
 * status, it does not ask this node for any block for ten minutes. */
static void fds_refuse(struct dtp_fds *q)
{
	struct dtp_conn *c = q->op.conn;
	const char *why = q->err.rc ? q->err.text : err_name(q->rc);
	const bool of_block = q->rc == -ENOENT || q->rc == -ESTALE || q->rc == -ENOTSUP;

	log_debug("op=fds peer=%s block=%lld: %s", c->peer, (long long)q->block.id, why);
	fds_answer(c, of_block ? DT_ERROR_UNSUPPORTED : DT_ERROR, of_block, why);
}

static void fds_opened(struct dtp_fds *q)
{
	struct dtp_conn *c = q->op.conn;

	q->state = FDS_CLOSE;
	if (c->state >= DTP_CLOSING || c->broken)
		return;
	if (q->rc < 0) {
		fds_refuse(q);
		return;
	}
	fds_answer(c, DT_SUCCESS, true, NULL);
	q->state = FDS_WAIT_SENT;
}

static void fds_pass(struct dtp_fds *q)
{
	const int fds[2] = {q->rr->fd, q->rr->fd_meta};
	struct dtp_conn *c = q->op.conn;
	const int rc = c->xc->ops->send_fds(
		c->xc,
		q->receipt ? HD__SHORT_CIRCUIT_FD_RESPONSE__USE_RECEIPT_VERIFICATION
			   : HD__SHORT_CIRCUIT_FD_RESPONSE__DO_NOT_USE_RECEIPT_VERIFICATION,
		fds, 2);

	q->state = rc == 0 && q->receipt ? FDS_WAIT_PEER_RECEIPT : FDS_CLOSE;
	if (rc < 0)
		dtp_break(c, rc, "passing descriptors");
	else
		metric_add(METRIC_DN_FDS_PASSED, 1);
}

static void fds_step(struct dtp_op *op)
{
	struct dtp_fds *q = container_of(op, struct dtp_fds, op);
	struct dtp_conn *c = op->conn;
	const bool ends = c->state >= DTP_CLOSING || c->broken;

	if (q->state == FDS_WAIT_DISK_OPEN && q->back)
		fds_opened(q);
	if (q->state == FDS_WAIT_SENT && ends)
		q->state = FDS_CLOSE;
	else if (q->state == FDS_WAIT_SENT && dtp_sent_all(c))
		fds_pass(q);
	if (q->state == FDS_WAIT_PEER_RECEIPT && (ends || c->broken)) {
		q->state = FDS_CLOSE;
	} else if (q->state == FDS_WAIT_PEER_RECEIPT &&
		   dtp_fill(c, 1, DTP_BUF, dtp_in_ns(c, c->core->waits.read_ns))) {
		dtp_buf_take(&c->in, 1);
		q->state = FDS_CLOSE;
	}
	if (q->state == FDS_CLOSE && q->rr) {
		fds_offload(q, fds_work_close, FDS_WAIT_DISK_CLOSE);
	} else if (q->state == FDS_CLOSE || (q->state == FDS_WAIT_DISK_CLOSE && q->back)) {
		xfer_entry_end(&q->entry);
		free(q);
		dtp_op_done(c);
	}
}

static void fds_tell(const struct operation_entry *e, struct operation *ret)
{
	static const struct {
		const char *name, *waits_for;
	} states[] = {
		[FDS_WAIT_DISK_OPEN] = {"wait_disk_open", "disk"},
		[FDS_WAIT_SENT] = {"wait_sent", "peer"},
		[FDS_WAIT_PEER_RECEIPT] = {"wait_peer_receipt", "peer"},
		[FDS_CLOSE] = {"close", ""},
		[FDS_WAIT_DISK_CLOSE] = {"wait_disk_close", "disk"},
	};
	const struct dtp_fds *q = container_of(e, struct dtp_fds, entry);

	dtp_tell(q->op.conn->peer, q->bp, &q->block, ret);
	ret->kind = "descriptors";
	ret->state = states[q->state].name;
	ret->waits_for = states[q->state].waits_for;
}

static void fds_abort(struct dtp_op *op)
{
	(void)op; /* each step looks whether the connection closes */
}

/* Why this connection gets none at all; NULL: it may. */
static const char *fds_reason(const struct dtp_conn *c)
{
	if (!xconn_is_local(c->xc) || !c->xc->ops->send_fds)
		return "descriptors are not passed over this connection; only the socket at dfs.domain.socket.path can";
	if (!c->core->pass_fds)
		return "descriptors are not passed: dfs.client.read.shortcircuit is not set on this data node";
	return NULL;
}

void dtp_fds_start(struct dtp_conn *c, const Hd__OpRequestShortCircuitAccessProto *msg)
{
	const char *never = fds_reason(c);
	struct dtp_fds *q = never ? NULL : calloc(1, sizeof(*q));
	int rc;

	if (never) {
		fds_answer(c, DT_ERROR_UNSUPPORTED, false, never);
		if (!xconn_is_local(c->xc))
			dtp_break(c, -EOPNOTSUPP, "REQUEST_SHORT_CIRCUIT_FDS");
		return;
	}
	rc = q ? dtp_block(c->core, msg->header,
			   (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ}, &q->block,
			   &q->bp, &q->err)
	       : -ENOMEM;
	if (rc < 0) {
		dtp_send_status(c, dtp_refusal(rc), NULL, q ? q->err.text : err_name(rc));
		dtp_break(c, rc, "REQUEST_SHORT_CIRCUIT_FDS refused");
		free(q);
		return;
	}
	if (msg->maxversion < FORMAT_VERSION) {
		fds_answer(c, DT_ERROR_UNSUPPORTED, true,
			   "the format of the files is version 1, newer than the client can read");
		free(q);
		return;
	}
	q->receipt = msg->supportsreceiptverification;
	q->op = (struct dtp_op){.step = fds_step, .abort = fds_abort, .conn = c};
	c->op = &q->op;
	xfer_entry_begin(c->core, &q->entry, fds_tell);
	fds_offload(q, fds_work_open, FDS_WAIT_DISK_OPEN);
}

void dtp_shm_refuse(struct dtp_conn *c, uint8_t op)
{
	static const char text[] = "this data node does not share memory with its clients";

	log_debug("op=%s peer=%s: not supported", dt_op_name(op), c->peer);
	/* The answers to these two hold their text where the usual one has its bad link: field 2.
	 */
	dtp_send_status(c, DT_ERROR_UNSUPPORTED, text, text);
	if (!xconn_is_local(c->xc))
		dtp_break(c, -EOPNOTSUPP, dt_op_name(op));
	/* else the client asks for descriptors next, on this connection */
}
