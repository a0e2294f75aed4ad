/* SPDX-License-Identifier: Apache-2.0 */
/* READ_SMALL as its server: a few bytes of a block in one answer, many of them under way on a
 * connection (small_read.h). Each is a read of the engine. What does not go in one piece, or goes
 * wrong, is refused in an answer: the client reads the ordinary way and is told why there. */
#include "datanode/dtp/dtp_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/wire/small_read.h"
#include "datanode/block/buffers.h"

#define HEAD_CRCS 288u /* CRCs that lie behind the header: of 36 KiB in chunks of 512 bytes */

enum dtp_small_state {
	SMALL_READS, /* leaves when there is an answer */
	SMALL_DUE,   /* in conn->smalls_due; leaves when it is sent */
	SMALL_SENT,  /* or on its way */
};

struct dtp_small {
	struct dtp_conn *conn;
	struct list link; /* in conn->smalls, or conn->smalls_due */
	struct read_sink sink;
	enum dtp_small_state state;
	struct block_read *r;       /* NULL: it has ended */
	struct piece *piece;        /* to be given back */
	struct small_read_answer a; /* is known when it is due */
	uint64_t offset;            /* in the block, of what was asked for */
	uint64_t end;               /* of what comes */
	bool sending, closed;
	uint64_t send_ns; /* since when it is on its way */
	struct xop send_op;
	uint8_t head[SMALL_READ_HEADER_LEN + HEAD_CRCS]; /* last: not zero at first */
};

static struct dtp_small *of_sink(struct read_sink *s)
{
	return container_of(s, struct dtp_small, sink);
}

static void piece_back(struct dtp_small *d)
{
	if (d->piece)
		block_read_sent(d->r, d->piece);
	d->piece = NULL;
}

static void maybe_free(struct dtp_small *d)
{
	struct dtp_conn *c = d->conn;

	if (d->r || d->sending)
		return;
	if (d->state != SMALL_SENT && c->state < DTP_CLOSING && !c->broken)
		return;
	list_del(&d->link);
	spares_put(&c->core->spare_smalls, d, sizeof(*d), XFER_SPARES);
	dtp_small_gone(c);
}

/* To be sent in the next step of the connection. */
static void due(struct dtp_small *d)
{
	d->state = SMALL_DUE;
	list_del(&d->link);
	list_add_tail(&d->conn->smalls_due, &d->link);
	dtp_ready(d->conn);
}

static void refuse(struct dtp_small *d, enum dt_status status)
{
	d->a = (struct small_read_answer){.tag = d->a.tag, .status = status};
	due(d);
}

/* The ordinary way is better for this one. */
static void give_up(struct dtp_small *d)
{
	d->closed = true;
	block_read_close(d->r);
	refuse(d, DT_ERROR_UNSUPPORTED);
}

/* ---- events of the engine ---- */

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct dtp_small *d = of_sink(s);
	const uint64_t len = rc < 0 ? 0 : info->end - info->first;

	if (rc < 0) {
		log_debug("op=read_small peer=%s: %s", d->conn->peer,
			  err && err->rc ? err->text : err_name(rc));
		refuse(d, dt_errno_status(rc));
		return;
	}
	d->end = info->end;
	d->a.crc_type = info->crc_type;
	d->a.bytes_per_crc = info->bytes_per_crc;
	d->a.lead = (uint32_t)(d->offset - info->first);
	if (SMALL_READ_HEADER_LEN + len + crc_bytes(info->crc_type, len, info->bytes_per_crc) >
	    SMALL_READ_ANSWER_MAX)
		give_up(d);
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	struct dtp_small *d = of_sink(s);

	if (d->closed || p->off + p->len < d->end) { /* buffers are short: it came in crumbs */
		block_read_sent(d->r, p);
		if (!d->closed)
			give_up(d);
		return;
	}
	d->piece = p;
	d->a.data_len = p->len;
	d->a.crc_len = p->crc_count * 4;
	due(d);
}

static void on_ended(struct read_sink *s, int rc)
{
	struct dtp_small *d = of_sink(s);

	d->r = NULL;
	if (d->state == SMALL_READS)
		refuse(d, dt_errno_status(rc ?: -EIO));
	maybe_free(d);
}

/* Its peer takes nothing while others wait for buffers. Its client has another way to go on. */
static void on_reclaim(struct read_sink *s)
{
	struct dtp_small *d = of_sink(s);
	struct dtp_conn *c = d->conn;

	if (!d->sending || reactor_now_ns(c->core->reactor) - d->send_ns < BUFFERS_STALL_NS)
		return;
	c->at_once = true;
	dtp_break(c, -ETIMEDOUT, "small reads are not taken, and others wait for buffers");
}

static void on_lost(struct read_sink *s)
{
	struct dtp_small *d = of_sink(s);

	d->conn->at_once = true;
	dtp_break(d->conn, -EIO, "the volume of the replica is out of service");
}

static const struct read_sink_ops sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
	.reclaim = on_reclaim,
	.lost = on_lost,
};

/* ---- sending ---- */

static void on_sent(struct xop *op, int res)
{
	struct dtp_small *d = container_of(op, struct dtp_small, send_op);

	d->sending = false;
	if (res < 0)
		dtp_break(d->conn, res, "send");
	piece_back(d);
	maybe_free(d);
}

static void send_answer(struct dtp_small *d)
{
	struct dtp_conn *c = d->conn;
	const struct piece *p = d->piece;
	struct iovec iov[3] = {{d->head, SMALL_READ_HEADER_LEN}};
	int n = 1;

	small_read_answer_encode(&d->a, d->head);
	if (d->a.crc_len <= HEAD_CRCS) {
		if (d->a.crc_len)
			memcpy(d->head + SMALL_READ_HEADER_LEN, p->crcs, d->a.crc_len);
		iov[0].iov_len += d->a.crc_len;
	} else {
		iov[n++] = (struct iovec){(void *)(uintptr_t)p->crcs, d->a.crc_len};
	}
	if (p)
		iov[n++] = (struct iovec){p->slot->data + p->slot_off, p->len};
	d->state = SMALL_SENT;
	d->sending = true;
	d->send_ns = reactor_now_ns(c->core->reactor);
	d->send_op.done = on_sent;
	c->xc->send_deadline_ns = dtp_in_ns(c, c->core->waits.write_ns);
	xconn_send(c->xc, iov, n, &d->send_op);
}

void dtp_small_step(struct dtp_conn *c)
{
	struct list *l;

	while (!c->sending && !c->broken && (l = list_pop(&c->smalls_due))) {
		list_add_tail(&c->smalls, l);
		send_answer(container_of(l, struct dtp_small, link));
	}
}

void dtp_small_abort(struct dtp_conn *c)
{
	struct list *l;

	while ((l = list_pop(&c->smalls_due)))
		list_add_tail(&c->smalls, l);
	list_for_each (i, &c->smalls) {
		struct dtp_small *d = container_of(i, struct dtp_small, link);

		if (!d->sending)
			piece_back(d);
		if (d->r && !d->closed)
			block_read_close(d->r);
		d->closed = true;
		maybe_free(d);
	}
}

/* ---- the op ---- */

/* The block, and whether the token allows it. */
static int check(struct engine_core *core, const struct small_read_request *q, struct block *ret,
		 struct block_pool **ret_bp, struct err *err)
{
	Hd__ExtendedBlockProto block;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;

	if (q->len == 0 || q->len > SMALL_READ_MAX)
		return err_set(err, -EOPNOTSUPP, "%u bytes are no small read", q->len);
	dt_block_to_proto(&q->block, q->pool, &block);
	token.identifier =
		(ProtobufCBinaryData){q->identifier_len, (uint8_t *)(uintptr_t)q->identifier};
	token.password = (ProtobufCBinaryData){q->password_len, (uint8_t *)(uintptr_t)q->password};
	base.block = &block;
	base.token = q->identifier_len ? &token : NULL;
	return dtp_block(core, &base, (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ},
			 ret, ret_bp, err);
}

void dtp_small_start(struct dtp_conn *c, const struct small_read_request *q)
{
	struct read_params params = {.off = q->offset, .len = q->len, .want_crcs = true};
	struct dtp_small *d = spares_get(&c->core->spare_smalls, sizeof(*d));
	struct err err = ERR_INIT;
	int rc;

	if (!d) {
		dtp_break(c, -ENOMEM, "read");
		return;
	}
	memset(d, 0, offsetof(struct dtp_small, head));
	d->conn = c;
	d->a = (struct small_read_answer){.tag = q->tag, .status = DT_SUCCESS};
	d->offset = q->offset;
	d->sink = (struct read_sink){.ops = &sink_ops, .peer = c->peer};
	list_add_tail(&c->smalls, &d->link);
	c->small_count++;
	rc = check(c->core, q, &params.block, &params.bp, &err);
	rc = rc ?: block_read_open(c->core, &params, &d->sink, &d->r);
	if (rc < 0) {
		log_info("op=read_small peer=%s: %s", c->peer, err.rc ? err.text : err_name(rc));
		refuse(d, dt_errno_status(rc));
	}
}
