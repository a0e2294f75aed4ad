/* SPDX-License-Identifier: Apache-2.0 */
/* A block being read: pieces are pushed to the dialer's memory as they come from the disk, data,
 * CRCs and, behind the last, the answer in one chain. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

struct rpush { /* a piece being pushed */
	struct capsule_read *r;
	struct piece *p; /* NULL: free */
	struct xop data_op, crc_op;
	struct iovec data_iov, crc_iov;
	uint32_t waiting;
};

struct capsule_read {
	struct capsule_stream s; /* first */
	struct read_sink sink;
	struct block_read *r; /* NULL once it has ended */
	struct capsule_mem dest, crc_dest;
	struct read_info info;
	uint64_t off, len; /* asked for */
	bool want_crcs, opened, replied, cancelled;
	int rc; /* why it failed */
	char text[CAPSULE_TEXT_MAX];
	struct list pieces; /* to be pushed */
	struct rpush push[BREAD_AHEAD];
	uint32_t pushing; /* pieces with the transport */
};

static struct capsule_read *of_stream(struct capsule_stream *s)
{
	return container_of(s, struct capsule_read, s);
}
static struct capsule_read *of_sink(struct read_sink *s)
{
	return container_of(s, struct capsule_read, sink);
}
static struct capsule_peer_link *link_of(const struct capsule_read *r)
{
	return &r->s.conn->link;
}

static void read_fail(struct capsule_read *r, int rc, const char *text)
{
	if (!r->rc) {
		r->rc = rc;
		snprintf(r->text, sizeof(r->text), "%s", text ? text : err_name(rc));
	}
	if (r->r && !r->cancelled)
		block_read_close(r->r);
	r->cancelled = true;
	stream_ready(&r->s);
}

/* ---- answers ---- */

static void reply(struct capsule_read *r, int status, uint64_t data_len, uint64_t crc_len)
{
	const bool crcs = r->info.crc_type != CRC_NULL;
	struct capsule m = {
		.type = CAPSULE_READ_REPLY,
		.request_id = r->s.id,
		.read_reply =
			{
				.status = status,
				.crc_type = (uint8_t)r->info.crc_type,
				.bytes_per_checksum = r->info.bytes_per_crc,
				.chunk_offset = r->want_crcs ? r->info.first : r->off,
				.data_len = (uint32_t)data_len,
				.crc_len = (uint32_t)crc_len,
				.text = capsule_text(r->text),
			},
	};

	if (!r->want_crcs && crcs)
		m.flags = CAPSULE_VERIFIED;
	if (r->replied)
		return;
	r->replied = true;
	(void)link_send(link_of(r), &m);
	r->s.id = 0;
}

static uint64_t crc_bytes_of(const struct capsule_read *r)
{
	return r->want_crcs ? crc_bytes(r->info.crc_type, r->info.end - r->info.first,
					r->info.bytes_per_crc)
			    : 0;
}

static uint64_t data_bytes_of(const struct capsule_read *r)
{
	return r->want_crcs ? r->info.end - r->info.first : r->len;
}

/* ---- the engine speaks ---- */

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct capsule_read *r = of_sink(s);

	if (rc < 0) {
		read_fail(r, rc, err && err->rc ? err->text : NULL);
		return;
	}
	r->info = *info;
	r->opened = true;
	if (data_bytes_of(r) <= r->dest.len && crc_bytes_of(r) <= r->crc_dest.len)
		return;
	snprintf(r->text, sizeof(r->text), "more room wanted");
	if (data_bytes_of(r) <= CAPSULE_READ_MAX && crc_bytes_of(r) <= CAPSULE_CRC_MAX)
		reply(r, DT_ERROR_UNSUPPORTED, data_bytes_of(r), crc_bytes_of(r));
	read_fail(r, -EMSGSIZE, "more than one read can move");
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	struct capsule_read *r = of_sink(s);

	list_add_tail(&r->pieces, &p->link);
	stream_ready(&r->s);
}

static void on_ended(struct read_sink *s, int rc)
{
	struct capsule_read *r = of_sink(s);

	r->r = NULL;
	if (rc < 0)
		read_fail(r, rc, NULL);
	stream_ready(&r->s);
}

/* What was pushed goes before the answer and nothing behind it, so the reader's memory is its own
 * again; ours stays until the disk lets go. */
static void fail_now(struct capsule_read *r, int rc, const char *text)
{
	read_fail(r, rc, text);
	reply(r, dt_errno_status(r->rc), 0, 0);
}

/* The reader goes on with another replica now. */
static void on_lost(struct read_sink *s)
{
	fail_now(of_sink(s), -EIO, "the volume of the replica is out of service");
}

static const struct read_sink_ops sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
	.lost = on_lost,
};

/* ---- pushing ---- */

static void push_done(struct rpush *u, int res)
{
	struct capsule_read *r = u->r;

	if (--u->waiting)
		return;
	block_read_sent(r->r, u->p);
	u->p = NULL;
	r->pushing--;
	if (res < 0)
		read_fail(r, res, NULL);
	stream_ready(&r->s);
}

static void on_data_pushed(struct xop *op, int res)
{
	push_done(container_of(op, struct rpush, data_op), res);
}

static void on_crcs_pushed(struct xop *op, int res)
{
	push_done(container_of(op, struct rpush, crc_op), res);
}

static bool piece_fits_its_crcs(struct capsule_read *r, const struct piece *p)
{
	int64_t bad;

	if (r->want_crcs || !p->crc_count)
		return true; /* the reader checks */
	bad = crc_verify(r->info.crc_type, p->slot->data + p->slot_off, p->len,
			 r->info.bytes_per_crc, p->crcs);
	if (bad < 0)
		return true;
	log_warn("op=read peer=%s block=%" PRId64 ": the CRC of the bytes at %" PRIu64
		 " does not fit",
		 link_of(r)->peer, r->info.block.id,
		 p->off + (uint64_t)bad * r->info.bytes_per_crc);
	read_fail(r, -EBADMSG, "the replica is damaged");
	return false;
}

/* The part of the piece that goes to the dialer: all of it with CRCs, else what was asked for. */
static void push_piece(struct capsule_read *r, struct rpush *u, struct piece *p)
{
	struct capsule_peer_link *l = link_of(r);
	const uint64_t begin = r->want_crcs ? r->info.first : r->off;
	const uint64_t from = p->off > begin ? p->off : begin;
	uint64_t end = p->off + p->len;
	const bool crcs = r->want_crcs && p->crc_count;

	if (!r->want_crcs && end > r->off + r->len)
		end = r->off + r->len;
	*u = (struct rpush){.r = r, .p = p, .waiting = 1u + crcs};
	u->data_op.done = on_data_pushed;
	u->crc_op.done = on_crcs_pushed;
	u->data_iov = (struct iovec){p->slot->data + p->slot_off + (from - p->off), end - from};
	u->crc_iov = (struct iovec){(void *)(uintptr_t)p->crcs, p->crc_count * 4};
	r->pushing++;
	link_extend(l);
	xconn_push(l->xc, &u->data_iov, 1,
		   (struct xremote){r->dest.addr + (from - begin), r->dest.rkey}, &u->data_op);
	if (crcs)
		xconn_push(l->xc, &u->crc_iov, 1,
			   (struct xremote){r->crc_dest.addr +
						    (p->off - begin) / r->info.bytes_per_crc * 4,
					    r->crc_dest.rkey},
			   &u->crc_op);
}

static void push_pieces(struct capsule_read *r)
{
	while (!list_empty(&r->pieces) && !r->cancelled && link_of(r)->xc) {
		struct piece *p = container_of(list_pop(&r->pieces), struct piece, link);
		const bool last = p->off + p->len == r->info.end;
		uint32_t i = 0;

		while (r->push[i].p) /* the engine hands out BREAD_AHEAD at most */
			i++;
		if (!piece_fits_its_crcs(r, p)) {
			block_read_sent(r->r, p);
			return;
		}
		push_piece(r, &r->push[i], p);
		if (last)
			reply(r, DT_SUCCESS, data_bytes_of(r), crc_bytes_of(r));
	}
}

static bool read_step(struct capsule_stream *s)
{
	struct capsule_read *r = of_stream(s);

	if (!r->cancelled)
		push_pieces(r);
	if (r->cancelled)
		while (!list_empty(&r->pieces))
			block_read_sent(r->r,
					container_of(list_pop(&r->pieces), struct piece, link));
	if (r->r)
		return false;
	if (!r->replied && !r->rc) /* nothing was asked for */
		reply(r, DT_SUCCESS, 0, 0);
	else if (!r->replied)
		reply(r, dt_errno_status(r->rc), 0, 0);
	return true;
}

static void read_cancel(struct capsule_stream *s, int rc)
{
	fail_now(of_stream(s), rc, NULL);
}

static void read_free(struct capsule_stream *s)
{
	free(of_stream(s));
}

/* ---- capsules ---- */

static int read_params(struct capsule_read *r, const struct capsule *m, struct read_params *ret,
		       struct err *err)
{
	Hd__OpReadBlockProto *op = NULL;
	int rc = pb_unpack(&hd__op_read_block_proto__descriptor, m->read.op.p, m->read.op.len, &op);

	if (rc < 0)
		return err_set(err, rc, "not an OpReadBlockProto");
	/* without CRCs for the reader we check them ourselves */
	*ret = (struct read_params){.off = op->offset, .len = op->len, .want_crcs = true};
	r->off = op->offset;
	r->len = op->len;
	r->want_crcs = m->read.crc.len != 0;
	rc = dtp_block(link_of(r)->caps->core, op->header->baseheader,
		       (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ}, &ret->block,
		       &ret->bp, err);
	pb_free(op);
	return rc;
}

void capsule_read_start(struct capsule_conn *c, const struct capsule *m)
{
	struct read_params params;
	struct err err = ERR_INIT;
	struct capsule_read *r = calloc(1, sizeof(*r));
	int rc;

	if (!r) {
		link_refuse(&c->link, "out of memory");
		return;
	}
	r->s = (struct capsule_stream){.step = read_step, .free = read_free, .cancel = read_cancel};
	r->sink = (struct read_sink){
		.ops = &sink_ops, .peer = c->link.peer, .share = &c->share, .rdma = true};
	r->dest = m->read.dest;
	r->crc_dest = m->read.crc;
	list_init(&r->pieces);
	capsule_stream_add(c, &r->s, m->request_id);
	rc = read_params(r, m, &params, &err);
	if (!rc && r->len) /* of nothing there is nothing to move: the next step answers */
		rc = block_read_open(c->link.caps->core, &params, &r->sink, &r->r);
	if (rc < 0) {
		log_info("op=read peer=%s: %s", c->link.peer, err.rc ? err.text : err_name(rc));
		read_fail(r, rc, err.rc ? err.text : NULL);
	}
	stream_ready(&r->s);
}
