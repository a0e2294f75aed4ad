/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP connection of the data port: it receives and sends for the operation that has it, decodes
 * the next one when it has none (op_take()), and closes. conn_step() is the table of contents. */
#include "datanode/dtp/dtp_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/small_read.h"

#define SMALLS_FEW 4u
#define DTP_BUF_OF_MANY 8192u

/* ---- receiving ---- */

static void on_recv(struct xop *op, int res)
{
	struct dtp_conn *c = container_of(op, struct dtp_conn, recv_op);

	c->receiving = false;
	c->recv_rc = res == 0 ? -ECONNRESET : res;
	if (res > 0)
		c->in.end += (uint32_t)res;
	dtp_ready(c);
}

bool dtp_fill(struct dtp_conn *c, uint32_t need, uint32_t want, uint64_t deadline_ns)
{
	int rc;

	if (dtp_buf_len(&c->in) >= need)
		return true;
	if (c->receiving || c->state >= DTP_CLOSING || c->broken)
		return false;
	if (c->recv_rc < 0) {
		dtp_break(c, c->recv_rc, "receive");
		return false;
	}
	if (want < need)
		want = need;
	if (c->in.start == c->in.end)
		c->in.start = c->in.end = 0;
	rc = dtp_buf_reserve(&c->in, want);
	if (rc < 0) {
		dtp_break(c, rc, "a message over the limit");
		return false;
	}
	c->receiving = true;
	c->xc->recv_deadline_ns = dtp_buf_wait_until(&c->in, deadline_ns);
	xconn_recv(c->xc, c->in.data + c->in.end, want - dtp_buf_len(&c->in), &c->recv_op);
	return dtp_buf_len(&c->in) >= need;
}

/* ---- sending ---- */

static void on_sent(struct xop *op, int res);

static bool is_small(const struct dtp_conn *c, const uint8_t *buf)
{
	return buf == c->small[0] || buf == c->small[1];
}

static void out_reset(struct dtp_conn *c)
{
	if (!is_small(c, c->out))
		free(c->out);
	if (!is_small(c, c->queue))
		free(c->queue);
	c->out = c->small[0];
	c->queue = c->small[1];
}

static int queue_grow(struct dtp_conn *c)
{
	uint8_t *large = malloc(DTP_OUT_MAX);

	if (!large)
		return -ENOMEM;
	memcpy(large, c->queue, c->queue_len);
	c->queue = large;
	return 0;
}

bool dtp_take_queued(struct dtp_conn *c, struct iovec *ret)
{
	uint8_t *const sent = c->out;

	if (!c->queue_len)
		return false;
	c->out = c->queue;
	c->queue = sent;
	*ret = (struct iovec){.iov_base = c->out, .iov_len = c->queue_len};
	c->queue_len = 0;
	return true;
}

static void send_more(struct dtp_conn *c)
{
	struct iovec iov;

	if (c->sending || c->state >= DTP_CLOSING || (!c->queue_len && !c->big) ||
	    (c->corked && !c->broken))
		return;
	if (!dtp_take_queued(c, &iov)) {
		c->big_sending = true;
		iov = (struct iovec){.iov_base = c->big, .iov_len = c->big_len};
	}
	c->sending = true;
	c->send_op.done = on_sent;
	c->xc->send_deadline_ns = dtp_in_ns(c, c->core->waits.write_ns);
	xconn_send(c->xc, &iov, 1, &c->send_op);
}

static void on_sent(struct xop *op, int res)
{
	struct dtp_conn *c = container_of(op, struct dtp_conn, send_op);

	c->sending = false;
	if (c->big_sending) {
		free(c->big);
		c->big = NULL;
		c->big_sending = false;
	}
	if (res < 0)
		dtp_break(c, res, "send");
	dtp_ready(c);
}

void dtp_send(struct dtp_conn *c, const void *buf, size_t len)
{
	if (c->broken)
		return;
	if (len > DTP_OUT_MAX - c->queue_len || (c->big && !c->big_sending)) {
		dtp_break(c, -ENOBUFS, "the peer does not read its answers");
		return;
	}
	if (len > DTP_OUT_SMALL - c->queue_len && is_small(c, c->queue) && queue_grow(c) < 0) {
		dtp_break(c, -ENOMEM, "answer");
		return;
	}
	memcpy(c->queue + c->queue_len, buf, len);
	c->queue_len += (uint32_t)len;
	dtp_ready(c); /* what else is queued in this turn goes in the same send */
}

void dtp_send_take(struct dtp_conn *c, int rc, uint8_t *buf, size_t len)
{
	if (rc < 0) {
		dtp_break(c, rc, "encode");
		return;
	}
	if (len > DTP_OUT_MAX && !c->big && !c->broken) {
		c->big = buf;
		c->big_len = len;
		dtp_ready(c);
		return;
	}
	dtp_send(c, buf, len);
	free(buf);
}

void dtp_send_status(struct dtp_conn *c, enum dt_status status, const char *bad_link,
		     const char *message)
{
	uint8_t *buf = NULL;
	size_t len = 0;
	const int rc = dt_response_encode(status, bad_link, message, &buf, &len);

	dtp_send_take(c, rc, buf, len);
}

bool dtp_sent_all(const struct dtp_conn *c)
{
	return !c->sending && !c->queue_len && !c->big;
}

/* ---- ops ---- */

static void idle_enter(struct dtp_conn *c)
{
	if (c->state >= DTP_CLOSING || list_is_linked(&c->idle))
		return;
	list_add_tail(&c->core->idle, &c->idle);
	atomic_fetch_add(&c->core->idle_free, 1);
}

static void idle_leave(struct dtp_conn *c)
{
	if (!list_is_linked(&c->idle))
		return;
	list_del(&c->idle);
	atomic_fetch_sub(&c->core->idle_free, 1);
}

void dtp_tell(const char *peer, const struct block_pool *bp, const struct block *b,
	      struct operation *ret)
{
	ret->role = "client";
	ret->transport = "tcp";
	ret->block_id = b->id;
	ret->gs = b->gs;
	(void)snprintf(ret->pool, sizeof(ret->pool), "%s", pool_id(bp));
	(void)snprintf(ret->peer, sizeof(ret->peer), "%s", peer);
}

void dtp_op_done(struct dtp_conn *c)
{
	c->op = NULL;
	c->corked = false;
	if (c->state == DTP_BUSY)
		c->state = DTP_OP;
	idle_enter(c);
	dtp_ready(c);
}

void dtp_break(struct dtp_conn *c, int rc, const char *what)
{
	if (c->broken)
		return;
	c->broken = true;
	if (rc == -ECONNRESET || rc == -ECANCELED || (rc == -ETIMEDOUT && c->state == DTP_WAIT_OP))
		log_debug("op=conn peer=%s: %s rc=%d", c->peer, what, rc);
	else
		log_info("op=conn peer=%s: closing: %s: %s", c->peer, what, err_name(rc));
	dtp_ready(c);
}

/* @msg: of protobuf, but for READ_SMALL. */
static void op_dispatch(struct dtp_conn *c, uint8_t op, void *msg)
{
	switch ((enum dt_op)op) {
	case DT_WRITE_BLOCK:
		dtp_write_start(c, (const Hd__OpWriteBlockProto *)msg);
		break;
	case DT_READ_BLOCK:
		dtp_read_start(c, (const Hd__OpReadBlockProto *)msg);
		break;
	case DT_COPY_BLOCK:
		dtp_copy_start(c, (const Hd__OpCopyBlockProto *)msg);
		break;
	case DT_BLOCK_CHECKSUM:
		dtp_checksum_start(c, (const Hd__OpBlockChecksumProto *)msg);
		break;
	case DT_BLOCK_GROUP_CHECKSUM:
		dtp_group_checksum_start(c, (const Hd__OpBlockGroupChecksumProto *)msg);
		break;
	case DT_TRANSFER_BLOCK:
		dtp_transfer_start(c, (const Hd__OpTransferBlockProto *)msg);
		break;
	case DT_REPLACE_BLOCK:
		dtp_replace_start(c, (const Hd__OpReplaceBlockProto *)msg);
		break;
	case DT_REQUEST_SHORT_CIRCUIT_FDS:
		dtp_fds_start(c, (const Hd__OpRequestShortCircuitAccessProto *)msg);
		break;
	case DT_READ_SMALL:
		dtp_small_start(c, (const struct small_read_request *)msg);
		break;
	case DT_SYNC_LATER:
		dtp_sync_later_start(c, (const Hd__OpSyncLaterProto *)msg);
		break;
	case DT_RELEASE_SHORT_CIRCUIT_FDS:
	case DT_REQUEST_SHORT_CIRCUIT_SHM:
		dtp_shm_refuse(c, op);
		break;
	case DT_READ_METADATA:
	case DT_CUSTOM:
		dtp_break(c, -EPROTO, "an unknown operation");
		break;
	}
}

/* Small reads go side by side, every other op alone. */
static bool may_begin(const struct dtp_conn *c, uint8_t op)
{
	return op == DT_READ_SMALL ? c->small_count < SMALL_READS_MAX : c->small_count == 0;
}

void dtp_small_gone(struct dtp_conn *c)
{
	if (--c->small_count == 0) {
		if (c->xc && c->receiving && !dtp_buf_len(&c->in))
			c->xc->ops->recv_by(c->xc, dtp_in_ns(c, c->core->waits.keepalive_ns));
		idle_enter(c);
	}
	dtp_ready(c); /* another op may begin */
}

/* All its bytes are here: @msg, of @len, and nothing of it is needed later. */
static int op_begin(struct dtp_conn *c, uint8_t op, const uint8_t *msg, size_t len)
{
	char pool[BLOCK_POOL_ID_MAX];
	struct small_read_request q;
	void *m = NULL;
	int rc = op == DT_READ_SMALL ? small_read_request_decode(msg, len, &q, pool)
				     : pb_unpack(dt_op_desc(op), msg, len, &m);

	if (rc < 0)
		return rc;
	c->fresh = false;
	c->state = DTP_BUSY;
	idle_leave(c);
	op_dispatch(c, op, op == DT_READ_SMALL ? (void *)&q : m);
	pb_free(m);
	if (c->op || c->state != DTP_BUSY)
		return 0;
	c->state = DTP_OP;
	if (!c->small_count)
		idle_enter(c);
	return 0;
}

/* Decode the op once all its bytes are here; say how many more are needed. */
static int op_take(struct dtp_conn *c, uint32_t *need)
{
	const uint32_t have = dtp_buf_len(&c->in);
	uint32_t prefix;
	ssize_t total;
	uint8_t *p = dtp_buf_at(&c->in), op;
	int rc;

	*need = DT_OP_HEADER_LEN + 1;
	if (have < *need)
		return 0;
	rc = dt_op_header_decode(p, &op);
	if (rc < 0)
		return rc;
	if (op != DT_READ_SMALL && !dt_op_desc(op))
		return -EPROTO;
	if (!may_begin(c, op))
		return 0;
	total = dt_delim_need(p + DT_OP_HEADER_LEN, have - DT_OP_HEADER_LEN, DTP_BUF_MAX / 2,
			      &prefix);
	if (total < 0)
		return (int)total;
	*need = DT_OP_HEADER_LEN + (uint32_t)total;
	if (have < *need || !prefix)
		return 0;
	dtp_buf_take(&c->in, *need); /* its bytes stay where they are until the next receive */
	rc = op_begin(c, op, p + DT_OP_HEADER_LEN + prefix, (size_t)total - prefix);
	return rc < 0 ? rc : 1;
}

/* How much is received at a time: where many small reads are under way, many more come. */
static uint32_t room_for_ops(const struct dtp_conn *c)
{
	return c->small_count > SMALLS_FEW ? DTP_BUF_OF_MANY : DTP_BUF;
}

static void conn_do_op(struct dtp_conn *c)
{
	const uint32_t small_before = c->small_count;
	uint32_t need = 0, room;
	int rc;

	do {
		if (c->broken)
			return;
		rc = op_take(c, &need);
	} while (rc > 0 && c->small_count && c->state == DTP_OP);
	if (rc < 0) {
		dtp_break(c, rc, "not an operation of version 28");
		return;
	}
	if (rc > 0 || c->broken)
		return;
	if (c->small_count > small_before) {
		dtp_ready(c); /* the next receive goes to the kernel with what these ask of it */
		return;
	}
	room = room_for_ops(c);
	if (!dtp_buf_len(&c->in) && !c->receiving && c->in.size > room) {
		free(c->in.data);
		c->in = (struct dtp_buf){0};
	}
	c->state = DTP_WAIT_OP;
	if (dtp_fill(c, need, need > room ? need : room,
		     dtp_in_ns(c, c->fresh || c->small_count || dtp_buf_len(&c->in)
					  ? c->core->waits.read_ns
					  : c->core->waits.keepalive_ns)))
		c->state = DTP_OP;
}

static void conn_do_close(struct dtp_conn *c)
{
	idle_leave(c);
	if (c->xc) {
		xconn_close(c->xc);
		c->xc = NULL;
	}
	if (c->op && !c->aborted) {
		c->aborted = true;
		c->op->abort(c->op);
	}
	if (c->op && c->op->step)
		c->op->step(c->op);
	dtp_small_abort(c);
	if (!c->op && !c->small_count && !c->receiving && !c->sending)
		c->state = DTP_DONE;
}

static bool conn_step(struct rop *rop)
{
	struct dtp_conn *c = container_of(rop, struct dtp_conn, rop);
	enum dtp_state before;

	dtp_small_step(c);
	do {
		before = c->state;
		switch (c->state) {
		case DTP_OP:
			conn_do_op(c);
			break;
		case DTP_WAIT_OP:
			if (!c->receiving)
				c->state = DTP_OP;
			else if (dtp_sent_all(c))
				out_reset(c); /* it may be idle for long */
			break;
		case DTP_BUSY:
			c->op->step(c->op);
			break;
		case DTP_CLOSING:
			conn_do_close(c);
			break;
		case DTP_DONE:
			break;
		}
		if (c->state < DTP_CLOSING) {
			/* What is queued still goes out: it says why. */
			send_more(c);
			if (c->broken &&
			    (dtp_sent_all(c) || c->at_once || c->core->stopping || c->recv_rc < 0))
				c->state = DTP_CLOSING;
		}
	} while (c->state != before);
	return c->state == DTP_DONE;
}

static void conn_free(struct rop *rop)
{
	struct dtp_conn *c = container_of(rop, struct dtp_conn, rop);

	list_del(&c->link);
	engine_count_conn(c->core, -1);
	free(c->in.data);
	out_reset(c);
	free(c->big);
	free(c);
}

struct dtp_conn *dtp_conn_new(struct engine_core *core, struct xconn *xc)
{
	struct dtp_conn *c = core->stopping ? NULL : calloc(1, sizeof(*c));

	if (!c) {
		xconn_close(xc);
		return NULL;
	}
	c->out = c->small[0];
	c->queue = c->small[1];
	c->core = core;
	c->xc = xc;
	xc->user = c;
	net_text(&xc->peer, c->peer);
	c->fresh = true;
	c->recv_op.done = on_recv;
	c->send_op.done = on_sent;
	rop_init(&c->rop, conn_step, conn_free);
	list_init(&c->idle);
	list_init(&c->smalls);
	list_init(&c->smalls_due);
	list_add_tail(&core->conns, &c->link);
	engine_count_conn(core, 1);
	dtp_ready(c);
	return c;
}

void dtp_accept(struct engine_core *core, struct xconn *xc)
{
	struct dtp_conn *c = dtp_conn_new(core, xc);

	if (c)
		idle_enter(c);
}

bool dtp_close_oldest_idle(struct engine_core *core)
{
	struct dtp_conn *c;

	if (list_empty(&core->idle))
		return false;
	c = container_of(core->idle.next, struct dtp_conn, idle);
	idle_leave(c);
	c->at_once = true;
	dtp_break(c, -ECANCELED, "idle, closed for a new connection");
	dtp_ready(c); /* it may have been broken before */
	return true;
}

void dtp_close_idle(struct engine_core *core)
{
	list_for_each (l, &core->conns) {
		struct dtp_conn *c = container_of(l, struct dtp_conn, link);

		if (!c->op && !c->small_count)
			dtp_break(c, -ECANCELED, "the data node stops");
	}
}

void dtp_close_all(struct engine_core *core)
{
	list_for_each (l, &core->conns) {
		struct dtp_conn *c = container_of(l, struct dtp_conn, link);

		dtp_break(c, -ECANCELED, "the data node stops");
	}
}
