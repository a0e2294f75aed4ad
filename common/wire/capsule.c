/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/capsule.h"

#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/cursor.h"

#define CRC_TYPE_MAX 2
#define READ_FIELDS_LEN 32
#define RAILS_HEAD_LEN 12 /* behind the session */

static bool credits_ok(uint32_t n)
{
	return n >= CAPSULE_CREDITS_LEAST && n <= CAPSULE_CREDITS_MOST;
}

/* ---- private data ---- */

size_t capsule_private_encode(const struct capsule_private *p, uint8_t out[CAPSULE_PRIVATE_MOST])
{
	const size_t rails_len = (size_t)p->rails * CAPSULE_RAIL_LEN;
	const size_t len = CAPSULE_PRIVATE_LEN + (p->node ? RAILS_HEAD_LEN + rails_len : 0);
	struct wr w = wr_init(out, len);

	wr_be32(&w, CAPSULE_MAGIC);
	wr_be16(&w, p->version);
	wr_be16(&w, (uint16_t)len);
	wr_be32(&w, p->features);
	wr_be16(&w, p->credits);
	wr_be16(&w, p->reply_slots);
	wr_be32(&w, p->capsule_max);
	wr_be32(&w, p->inline_max);
	wr_u8(&w, p->read_depth);
	wr_u8(&w, p->role);
	wr_u8(&w, p->checksum);
	wr_u8(&w, 0);
	wr_bytes(&w, p->session, CAPSULE_SESSION_LEN);
	if (!p->node)
		return len;
	wr_be64(&w, p->node);
	wr_be32(&w, (uint32_t)p->rails << 24);
	wr_bytes(&w, p->rail, rails_len);
	return len;
}

/* READ depth 0 passes: the acceptor has a reject reason for it. */
static bool private_ok(const struct capsule_private *p)
{
	const bool slots_ok =
		p->role == CAPSULE_NODE ? !p->reply_slots : credits_ok(p->reply_slots);

	return credits_ok(p->credits) && slots_ok && p->role <= CAPSULE_NODE &&
	       p->capsule_max >= CAPSULE_MAX_LEAST && p->capsule_max <= CAPSULE_MAX_MOST &&
	       p->capsule_max % 64 == 0 && p->inline_max <= CAPSULE_INLINE_MOST &&
	       p->checksum <= CRC_TYPE_MAX;
}

/* What is behind the session: an older node says nothing there. */
static bool rails_ok(struct rd *r, size_t left, struct capsule_private *p)
{
	const uint8_t *rails;

	if (p->role != CAPSULE_NODE || left < RAILS_HEAD_LEN)
		return true;
	p->node = rd_be64(r);
	p->rails = (uint8_t)(rd_be32(r) >> 24);
	if (!p->node || p->rails > CAPSULE_RAILS)
		return false;
	rails = rd_bytes(r, (size_t)p->rails * CAPSULE_RAIL_LEN);
	if (!rails || left < RAILS_HEAD_LEN + (size_t)p->rails * CAPSULE_RAIL_LEN)
		return false;
	memcpy(p->rail, rails, (size_t)p->rails * CAPSULE_RAIL_LEN);
	return true;
}

int capsule_private_decode(const void *buf, size_t len, struct capsule_private *ret)
{
	struct rd r = rd_init(buf, len);
	const uint32_t magic = rd_be32(&r);
	const uint16_t version = rd_be16(&r), own_len = rd_be16(&r);
	struct capsule_private p = {.version = version};
	const uint8_t *session;

	if (r.bad || magic != CAPSULE_MAGIC)
		return -EPROTO;
	*ret = p;
	if (version != CAPSULE_VERSION)
		return -EPROTONOSUPPORT;
	p.features = rd_be32(&r);
	p.credits = rd_be16(&r);
	p.reply_slots = rd_be16(&r);
	p.capsule_max = rd_be32(&r);
	p.inline_max = rd_be32(&r);
	p.read_depth = rd_u8(&r);
	p.role = rd_u8(&r);
	p.checksum = rd_u8(&r);
	rd_u8(&r);
	session = rd_bytes(&r, CAPSULE_SESSION_LEN);
	if (!session || own_len < CAPSULE_PRIVATE_LEN || own_len > len || !private_ok(&p))
		return -EPROTO;
	memcpy(p.session, session, CAPSULE_SESSION_LEN);
	if (!rails_ok(&r, own_len - CAPSULE_PRIVATE_LEN, &p))
		return -EPROTO;
	*ret = p;
	return 0;
}

void capsule_reject_encode(const struct capsule_reject_data *d, uint8_t out[CAPSULE_REJECT_LEN])
{
	struct wr w = wr_init(out, CAPSULE_REJECT_LEN);

	wr_be32(&w, CAPSULE_MAGIC);
	wr_be16(&w, d->version);
	wr_be16(&w, CAPSULE_REJECT_LEN);
	wr_be16(&w, d->reason);
	wr_be16(&w, 0);
	wr_be32(&w, d->retry_after_ms);
}

int capsule_reject_decode(const void *buf, size_t len, struct capsule_reject_data *ret)
{
	struct rd r = rd_init(buf, len);
	struct capsule_reject_data d;

	if (rd_be32(&r) != CAPSULE_MAGIC)
		return -EPROTO;
	d.version = rd_be16(&r);
	if (rd_be16(&r) < CAPSULE_REJECT_LEN)
		return -EPROTO;
	d.reason = rd_be16(&r);
	rd_be16(&r);
	d.retry_after_ms = rd_be32(&r);
	if (r.bad)
		return -EPROTO;
	*ret = d;
	return 0;
}

const char *capsule_reject_text(uint16_t reason)
{
	static const char *const text[] = {
		[CAPSULE_REJECT_NONE] = "no reason given",
		[CAPSULE_REJECT_VERSION] = "the node speaks another version of the capsules",
		[CAPSULE_REJECT_BUSY] = "the node is busy",
		[CAPSULE_REJECT_RESOURCES] = "the node has no receive buffers or queue pairs left",
		[CAPSULE_REJECT_AUTH] = "authentication failed",
		[CAPSULE_REJECT_SHUTDOWN] = "the node is shutting down",
		[CAPSULE_REJECT_USE_TCP] = "RDMA is switched off on the node",
		[CAPSULE_REJECT_MALFORMED] = "the node did not understand the private data",
		[CAPSULE_REJECT_READ_DEPTH] =
			"this side offered no RDMA READs (responder_resources 0)",
	};

	return reason < sizeof(text) / sizeof(*text) ? text[reason] : "unknown reason";
}

/* ---- what each type may look like ---- */

static const struct {
	const char *name;
	uint16_t flags; /* allowed */
	bool has_id;
} types[] = {
	[CAPSULE_OPEN_WRITE] = {"OPEN_WRITE", CAPSULE_PAYLOAD | CAPSULE_WANT_PULLED, true},
	[CAPSULE_OPEN_REPLY] = {"OPEN_REPLY", 0, true},
	[CAPSULE_WRITE] = {"WRITE",
			   CAPSULE_PAYLOAD | CAPSULE_CRC_INLINE | CAPSULE_LAST | CAPSULE_SYNC,
			   true},
	[CAPSULE_ACK] = {"ACK", 0, true},
	[CAPSULE_PULLED] = {"PULLED", 0, true},
	[CAPSULE_READ] = {"READ", CAPSULE_PAYLOAD, true},
	[CAPSULE_READ_REPLY] = {"READ_REPLY", CAPSULE_VERIFIED, true},
	[CAPSULE_CANCEL] = {"CANCEL", 0, true},
	[CAPSULE_CLOSED] = {"CLOSED", 0, true},
	[CAPSULE_HEARTBEAT] = {"HEARTBEAT", 0, false},
	[CAPSULE_ERROR] = {"ERROR", 0, false},
	[CAPSULE_VIEW] = {"VIEW", 0, true},
	[CAPSULE_VIEW_REPLY] = {"VIEW_REPLY", 0, true},
	[CAPSULE_VIEW_END] = {"VIEW_END", 0, false},
};
#define TYPE_COUNT (sizeof(types) / sizeof(*types))

/* 12 and 13 are nobody's yet. */
static bool type_is_known(uint8_t type)
{
	return type < TYPE_COUNT && types[type].name;
}

const char *capsule_type_name(uint8_t type)
{
	return type_is_known(type) ? types[type].name : "?";
}

static bool header_ok(const struct capsule *c)
{
	return !(c->flags & ~types[c->type].flags) &&
	       (c->request_id != 0) == types[c->type].has_id &&
	       !(c->flags & CAPSULE_PAYLOAD) == !c->payload.len &&
	       c->payload.len <= CAPSULE_INLINE_MOST;
}

static bool write_ok(const struct capsule *c)
{
	const bool payload = c->flags & CAPSULE_PAYLOAD, crc_inline = c->flags & CAPSULE_CRC_INLINE;
	const uint32_t len = c->write.data_len, crc_len = c->write.crc.len;

	if (c->write.seqno < 0 || c->write.offset > INT64_MAX || len > CAPSULE_PIECE_MAX)
		return false;
	if (crc_len > CAPSULE_CRC_MAX || crc_len % 4 || (crc_len && !len) ||
	    (crc_inline && !crc_len))
		return false;
	if (payload ? len != c->payload.len : len != c->write.data.len)
		return false;
	if ((payload || !len) && (c->write.data.addr || c->write.data.rkey))
		return false;
	if ((crc_inline || !crc_len) && (c->write.crc_mem.addr || c->write.crc_mem.rkey))
		return false;
	return !(c->flags & CAPSULE_LAST) || !len;
}

static bool op_ok(const struct capsule *c, struct capsule_bytes op)
{
	return c->flags & CAPSULE_PAYLOAD ? op.len == c->payload.len : op.len > 0;
}

static bool read_reply_ok(const struct capsule *c)
{
	const uint32_t bpc = c->read_reply.bytes_per_checksum;

	if (c->read_reply.crc_type > CRC_TYPE_MAX || c->read_reply.chunk_offset > INT64_MAX)
		return false;
	if (c->read_reply.crc_type ? !bpc || bpc > INT32_MAX : bpc && bpc != 512)
		return false;
	return c->read_reply.text.len <= CAPSULE_TEXT_MAX &&
	       c->read_reply.data_len <= CAPSULE_READ_MAX &&
	       c->read_reply.crc_len <= CAPSULE_CRC_MAX && c->read_reply.crc_len % 4 == 0;
}

static bool status_ok(int status)
{
	return status >= 0 && status <= UINT16_MAX;
}

static bool lies_in_memory(uint64_t addr, uint32_t len)
{
	return addr && addr + len >= addr;
}

static bool view_reply_ok(const struct capsule *c)
{
	const struct capsule_view *v = &c->view_reply.v;
	const uint32_t bpc = v->bytes_per_checksum;

	if (!status_ok(v->status) || v->ms > CAPSULE_VIEW_MS_MOST ||
	    c->view_reply.text.len > CAPSULE_TEXT_MAX)
		return false;
	if (v->status) /* it names nothing */
		return !v->crc_type && !bpc && !v->rkey && !v->data_addr && !v->crc_addr &&
		       !v->data_len && !v->crc_len;
	return v->ms && v->crc_type && v->crc_type <= CRC_TYPE_MAX && bpc && bpc <= INT32_MAX &&
	       v->data_len &&
	       v->crc_len == crc_bytes((enum crc_type)v->crc_type, v->data_len, bpc) &&
	       lies_in_memory(v->data_addr, v->data_len) && lies_in_memory(v->crc_addr, v->crc_len);
}

static bool body_ok(const struct capsule *c)
{
	switch (c->type) {
	case CAPSULE_OPEN_WRITE:
		return op_ok(c, c->open_write.op);
	case CAPSULE_OPEN_REPLY:
		return status_ok(c->open_reply.status) &&
		       c->open_reply.bad_link.len <= CAPSULE_TEXT_MAX &&
		       c->open_reply.text.len <= CAPSULE_TEXT_MAX;
	case CAPSULE_WRITE:
		return write_ok(c);
	case CAPSULE_ACK:
		return c->ack.seqno >= -2 && c->ack.pulled >= CAPSULE_SEQ_NONE && c->ack.count &&
		       c->ack.count <= CAPSULE_HOPS_MAX;
	case CAPSULE_PULLED:
		return c->pulled.seqno >= 0;
	case CAPSULE_READ:
		return op_ok(c, c->read.op) && c->read.dest.len &&
		       c->read.dest.len <= CAPSULE_READ_MAX && c->read.crc.len <= CAPSULE_CRC_MAX &&
		       c->read.crc.len % 4 == 0;
	case CAPSULE_READ_REPLY:
		return status_ok(c->read_reply.status) && read_reply_ok(c);
	case CAPSULE_CLOSED:
	case CAPSULE_ERROR:
		return status_ok(c->closed.status) && c->closed.text.len <= CAPSULE_TEXT_MAX;
	case CAPSULE_VIEW:
		return c->view.op.len > 0;
	case CAPSULE_VIEW_REPLY:
		return view_reply_ok(c);
	default:
		return true;
	}
}

/* ---- encoding ---- */

static void put_bytes(struct wr *w, struct capsule_bytes b)
{
	wr_bytes(w, b.p, b.len);
}

static void put_mem(struct wr *w, const struct capsule_mem *m)
{
	wr_be64(w, m->addr);
	wr_be32(w, m->rkey);
	wr_be32(w, m->len);
}

static void put_op(struct wr *w, const struct capsule *c, struct capsule_bytes op)
{
	if (!(c->flags & CAPSULE_PAYLOAD))
		put_bytes(w, op);
}

static void put_write(struct wr *w, const struct capsule *c)
{
	wr_be64(w, (uint64_t)c->write.seqno);
	wr_be64(w, c->write.offset);
	wr_be32(w, c->write.data_len);
	wr_be32(w, c->write.crc.len);
	wr_be64(w, c->write.data.addr);
	wr_be32(w, c->write.data.rkey);
	wr_be64(w, c->write.crc_mem.addr);
	wr_be32(w, c->write.crc_mem.rkey);
	if (c->flags & CAPSULE_CRC_INLINE)
		put_bytes(w, c->write.crc);
}

static void put_read_reply(struct wr *w, const struct capsule *c)
{
	wr_be16(w, (uint16_t)c->read_reply.status);
	wr_u8(w, c->read_reply.crc_type);
	wr_u8(w, 0);
	wr_be32(w, c->read_reply.bytes_per_checksum);
	wr_be64(w, c->read_reply.chunk_offset);
	wr_be32(w, c->read_reply.data_len);
	wr_be32(w, c->read_reply.crc_len);
	wr_be16(w, (uint16_t)c->read_reply.text.len);
	put_bytes(w, c->read_reply.text);
}

static void put_view_reply(struct wr *w, const struct capsule *c)
{
	const struct capsule_view *v = &c->view_reply.v;

	wr_be16(w, (uint16_t)v->status);
	wr_u8(w, v->crc_type);
	wr_u8(w, 0);
	wr_be32(w, v->bytes_per_checksum);
	wr_be32(w, v->ms);
	wr_be32(w, v->rkey);
	wr_be64(w, v->data_addr);
	wr_be64(w, v->crc_addr);
	wr_be32(w, v->data_len);
	wr_be32(w, v->crc_len);
	wr_be16(w, (uint16_t)c->view_reply.text.len);
	put_bytes(w, c->view_reply.text);
}

static void put_body(struct wr *w, const struct capsule *c)
{
	switch (c->type) {
	case CAPSULE_OPEN_WRITE:
		put_op(w, c, c->open_write.op);
		break;
	case CAPSULE_OPEN_REPLY:
		wr_be16(w, (uint16_t)c->open_reply.status);
		wr_be16(w, (uint16_t)c->open_reply.bad_link.len);
		wr_be16(w, (uint16_t)c->open_reply.text.len);
		put_bytes(w, c->open_reply.bad_link);
		put_bytes(w, c->open_reply.text);
		break;
	case CAPSULE_WRITE:
		put_write(w, c);
		break;
	case CAPSULE_ACK:
		wr_be64(w, (uint64_t)c->ack.seqno);
		wr_be64(w, (uint64_t)c->ack.pulled);
		wr_u8(w, c->ack.count);
		wr_bytes(w, c->ack.status, c->ack.count);
		break;
	case CAPSULE_PULLED:
		wr_be64(w, (uint64_t)c->pulled.seqno);
		break;
	case CAPSULE_READ:
		put_mem(w, &c->read.dest);
		put_mem(w, &c->read.crc);
		put_op(w, c, c->read.op);
		break;
	case CAPSULE_READ_REPLY:
		put_read_reply(w, c);
		break;
	case CAPSULE_CLOSED:
	case CAPSULE_ERROR:
		wr_be16(w, (uint16_t)c->closed.status);
		wr_be16(w, (uint16_t)c->closed.text.len);
		put_bytes(w, c->closed.text);
		break;
	case CAPSULE_VIEW:
		put_bytes(w, c->view.op);
		break;
	case CAPSULE_VIEW_REPLY:
		put_view_reply(w, c);
		break;
	case CAPSULE_VIEW_END:
		wr_be32(w, c->view_end.rkey);
		break;
	default:
		break;
	}
}

ssize_t capsule_encode(const struct capsule *in, uint32_t capsule_max, void *buf)
{
	struct wr w = wr_init(buf, capsule_max);
	struct capsule c = *in;
	size_t len;
	struct wr head;

	if (!type_is_known(c.type) || capsule_max > CAPSULE_MAX_MOST)
		return -EINVAL;
	c.flags &= (uint16_t) ~(CAPSULE_PAYLOAD | CAPSULE_CRC_INLINE);
	c.flags |= c.payload.len ? CAPSULE_PAYLOAD : 0;
	if (c.type == CAPSULE_WRITE && c.write.crc.p && c.write.crc.len)
		c.flags |= CAPSULE_CRC_INLINE;
	if (!header_ok(&c) || !body_ok(&c))
		return -EINVAL;
	wr_space(&w, CAPSULE_HEADER_LEN);
	put_body(&w, &c);
	if (w.bad)
		return -EMSGSIZE;
	len = (size_t)(w.p - (uint8_t *)buf);
	head = wr_init(buf, CAPSULE_HEADER_LEN);
	wr_u8(&head, CAPSULE_VERSION);
	wr_u8(&head, c.type);
	wr_be16(&head, c.flags);
	wr_be16(&head, c.credits);
	wr_be16(&head, (uint16_t)len);
	wr_be32(&head, c.payload.len);
	wr_be64(&head, c.request_id);
	if (!c.payload.len)
		return (ssize_t)len;
	memset((uint8_t *)buf + len, 0, capsule_max - len);
	return capsule_max;
}

/* ---- decoding ---- */

static struct capsule_bytes take_bytes(struct rd *r, uint32_t len)
{
	const uint8_t *p = rd_bytes(r, len);

	return (struct capsule_bytes){p, p ? len : 0};
}

static struct capsule_mem take_mem(struct rd *r)
{
	struct capsule_mem m;

	m.addr = rd_be64(r);
	m.rkey = rd_be32(r);
	m.len = rd_be32(r);
	return m;
}

static struct capsule_bytes take_op(struct rd *r, const struct capsule *c)
{
	if (c->flags & CAPSULE_PAYLOAD)
		return c->payload;
	return take_bytes(r, (uint32_t)rd_left(r));
}

static void take_write(struct rd *r, struct capsule *c)
{
	uint32_t crc_len;

	c->write.seqno = (int64_t)rd_be64(r);
	c->write.offset = rd_be64(r);
	c->write.data_len = rd_be32(r);
	crc_len = rd_be32(r);
	c->write.data.addr = rd_be64(r);
	c->write.data.rkey = rd_be32(r);
	c->write.data.len = c->flags & CAPSULE_PAYLOAD ? 0 : c->write.data_len;
	c->write.crc_mem.addr = rd_be64(r);
	c->write.crc_mem.rkey = rd_be32(r);
	if (c->flags & CAPSULE_CRC_INLINE) {
		c->write.crc = take_bytes(r, crc_len);
		return;
	}
	c->write.crc.len = crc_len;
	c->write.crc_mem.len = crc_len;
}

static void take_open_reply(struct rd *r, struct capsule *c)
{
	uint16_t link_len, text_len;

	c->open_reply.status = rd_be16(r);
	link_len = rd_be16(r);
	text_len = rd_be16(r);
	c->open_reply.bad_link = take_bytes(r, link_len);
	c->open_reply.text = take_bytes(r, text_len);
}

static void take_read_reply(struct rd *r, struct capsule *c)
{
	c->read_reply.status = rd_be16(r);
	c->read_reply.crc_type = rd_u8(r);
	r->bad |= rd_u8(r) != 0;
	c->read_reply.bytes_per_checksum = rd_be32(r);
	c->read_reply.chunk_offset = rd_be64(r);
	c->read_reply.data_len = rd_be32(r);
	c->read_reply.crc_len = rd_be32(r);
	c->read_reply.text = take_bytes(r, rd_be16(r));
}

static void take_view_reply(struct rd *r, struct capsule *c)
{
	struct capsule_view *v = &c->view_reply.v;

	v->status = rd_be16(r);
	v->crc_type = rd_u8(r);
	r->bad |= rd_u8(r) != 0;
	v->bytes_per_checksum = rd_be32(r);
	v->ms = rd_be32(r);
	v->rkey = rd_be32(r);
	v->data_addr = rd_be64(r);
	v->crc_addr = rd_be64(r);
	v->data_len = rd_be32(r);
	v->crc_len = rd_be32(r);
	c->view_reply.text = take_bytes(r, rd_be16(r));
}

static void take_body(struct rd *r, struct capsule *c)
{
	switch (c->type) {
	case CAPSULE_OPEN_WRITE:
		c->open_write.op = take_op(r, c);
		break;
	case CAPSULE_OPEN_REPLY:
		take_open_reply(r, c);
		break;
	case CAPSULE_WRITE:
		take_write(r, c);
		break;
	case CAPSULE_ACK:
		c->ack.seqno = (int64_t)rd_be64(r);
		c->ack.pulled = (int64_t)rd_be64(r);
		c->ack.count = rd_u8(r);
		c->ack.status = rd_bytes(r, c->ack.count);
		break;
	case CAPSULE_PULLED:
		c->pulled.seqno = (int64_t)rd_be64(r);
		break;
	case CAPSULE_READ:
		c->read.dest = take_mem(r);
		c->read.crc = take_mem(r);
		c->read.op = take_op(r, c);
		break;
	case CAPSULE_READ_REPLY:
		take_read_reply(r, c);
		break;
	case CAPSULE_CLOSED:
	case CAPSULE_ERROR:
		c->closed.status = rd_be16(r);
		c->closed.text = take_bytes(r, rd_be16(r));
		break;
	case CAPSULE_VIEW:
		c->view.op = take_bytes(r, (uint32_t)rd_left(r));
		break;
	case CAPSULE_VIEW_REPLY:
		take_view_reply(r, c);
		break;
	case CAPSULE_VIEW_END:
		c->view_end.rkey = rd_be32(r);
		break;
	default:
		break;
	}
}

int capsule_decode(const void *buf, uint32_t len, const void *payload, uint32_t payload_len,
		   struct capsule *ret)
{
	struct rd r = rd_init(buf, len);
	const uint8_t version = rd_u8(&r);
	struct capsule c = {.type = rd_u8(&r)};
	uint16_t own_len;

	c.flags = rd_be16(&r);
	c.credits = rd_be16(&r);
	own_len = rd_be16(&r);
	c.payload = (struct capsule_bytes){payload, rd_be32(&r)};
	c.request_id = rd_be64(&r);
	if (r.bad)
		return -EPROTO;
	if (version != CAPSULE_VERSION || !type_is_known(c.type))
		return -EPROTONOSUPPORT;
	if (!header_ok(&c) || c.payload.len != payload_len || own_len < CAPSULE_HEADER_LEN)
		return -EPROTO;
	/* Only a payload has padding before it. */
	if (payload_len ? own_len > len : own_len != len)
		return -EPROTO;
	r = rd_init((const uint8_t *)buf + CAPSULE_HEADER_LEN, own_len - CAPSULE_HEADER_LEN);
	take_body(&r, &c);
	if (r.bad || rd_left(&r) || !body_ok(&c))
		return -EPROTO;
	*ret = c;
	return 0;
}
