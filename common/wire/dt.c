/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/dt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/wire/pb.h"

/* protobuf wire types */
enum { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* ---- ops and delimited messages ---- */

static const struct {
	uint8_t op;
	const char *name;
	const ProtobufCMessageDescriptor *desc;
} ops[] = {
	{DT_WRITE_BLOCK, "WRITE_BLOCK", &hd__op_write_block_proto__descriptor},
	{DT_READ_BLOCK, "READ_BLOCK", &hd__op_read_block_proto__descriptor},
	{DT_READ_METADATA, "READ_METADATA", NULL},
	{DT_REPLACE_BLOCK, "REPLACE_BLOCK", &hd__op_replace_block_proto__descriptor},
	{DT_COPY_BLOCK, "COPY_BLOCK", &hd__op_copy_block_proto__descriptor},
	{DT_BLOCK_CHECKSUM, "BLOCK_CHECKSUM", &hd__op_block_checksum_proto__descriptor},
	{DT_TRANSFER_BLOCK, "TRANSFER_BLOCK", &hd__op_transfer_block_proto__descriptor},
	{DT_REQUEST_SHORT_CIRCUIT_FDS, "REQUEST_SHORT_CIRCUIT_FDS",
	 &hd__op_request_short_circuit_access_proto__descriptor},
	{DT_RELEASE_SHORT_CIRCUIT_FDS, "RELEASE_SHORT_CIRCUIT_FDS",
	 &hd__release_short_circuit_access_request_proto__descriptor},
	{DT_REQUEST_SHORT_CIRCUIT_SHM, "REQUEST_SHORT_CIRCUIT_SHM",
	 &hd__short_circuit_shm_request_proto__descriptor},
	{DT_BLOCK_GROUP_CHECKSUM, "BLOCK_GROUP_CHECKSUM",
	 &hd__op_block_group_checksum_proto__descriptor},
	{DT_READ_SMALL, "READ_SMALL", NULL},
	{DT_SYNC_LATER, "SYNC_LATER", &hd__op_sync_later_proto__descriptor},
	{DT_CUSTOM, "CUSTOM", &hd__op_custom_proto__descriptor},
};

int dt_op_header_decode(const uint8_t buf[DT_OP_HEADER_LEN], uint8_t *ret_op)
{
	struct rd r = rd_init(buf, DT_OP_HEADER_LEN);

	if (rd_be16(&r) != DT_VERSION)
		return -EPROTO;
	*ret_op = rd_u8(&r);
	return 0;
}

const ProtobufCMessageDescriptor *dt_op_desc(uint8_t op)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (ops[i].op == op)
			return ops[i].desc;
	return NULL;
}

const char *dt_op_name(uint8_t op)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (ops[i].op == op)
			return ops[i].name;
	return "?";
}

int dt_op_encode(enum dt_op op, const void *msg, uint8_t **ret, size_t *ret_len)
{
	const size_t len = DT_OP_HEADER_LEN + pb_size_delim(msg);
	uint8_t *p = malloc(len);
	struct wr w = wr_init(p, len);

	if (!p)
		return -ENOMEM;
	wr_be16(&w, DT_VERSION);
	wr_u8(&w, (uint8_t)op);
	pb_put_delim(&w, msg);
	*ret = p;
	*ret_len = len;
	return 0;
}

ssize_t dt_delim_need(const void *buf, size_t n, uint32_t max, uint32_t *ret_prefix)
{
	const uint8_t *p = buf;
	uint64_t len = 0;

	*ret_prefix = 0;
	/* 5 bytes hold 35 bits: enough for every legal length. */
	for (size_t i = 0; i < 5; i++) {
		if (i == n)
			return (ssize_t)n + 1;
		len |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (p[i] & 0x80)
			continue;
		if (len > max)
			return -EMSGSIZE;
		*ret_prefix = (uint32_t)i + 1;
		return (ssize_t)(i + 1 + len);
	}
	return -EPROTO;
}

/* ---- hand-written protobuf ---- */

/* Next tag; false at the end or when bad. */
static bool next_field(struct rd *r, uint32_t *number, uint32_t *type)
{
	uint64_t tag;

	if (r->bad || !rd_left(r))
		return false;
	tag = rd_varint(r);
	*number = (uint32_t)(tag >> 3);
	*type = (uint32_t)(tag & 7);
	if (r->bad || tag > UINT32_MAX || !*number)
		r->bad = true;
	return !r->bad;
}

static void skip_field(struct rd *r, uint32_t type)
{
	size_t len;

	if (type == PB_VARINT)
		rd_varint(r);
	else if (type == PB_FIXED64)
		rd_bytes(r, 8);
	else if (type == PB_FIXED32)
		rd_bytes(r, 4);
	else if (type == PB_BYTES)
		pb_take_delim(r, &len);
	else
		r->bad = true;
}

/* ---- packets ---- */

#define TAG(number, type) ((number) << 3 | (type))

ssize_t dt_packet_need(const void *buf, size_t n)
{
	struct rd r = rd_init(buf, n);
	uint32_t plen, hlen;

	if (n < DT_PACKET_PREFIX_LEN)
		return DT_PACKET_PREFIX_LEN;
	plen = rd_be32(&r);
	hlen = rd_be16(&r);
	if (plen < 4)
		return -EPROTO;
	if (plen > DT_PACKET_MAX || hlen > DT_PACKET_HLEN_MAX)
		return -EMSGSIZE;
	return (ssize_t)(DT_PACKET_PREFIX_LEN + hlen);
}

/* Returns the fields seen, as a bit mask. */
static uint32_t packet_fields(struct rd *r, struct dt_packet *p)
{
	uint32_t number, type, seen = 0;

	while (next_field(r, &number, &type)) {
		switch (TAG(number, type)) {
		case TAG(1, PB_FIXED64):
			p->offset = (int64_t)rd_le64(r);
			break;
		case TAG(2, PB_FIXED64):
			p->seqno = (int64_t)rd_le64(r);
			break;
		case TAG(3, PB_VARINT):
			p->last = rd_varint(r) != 0;
			break;
		case TAG(4, PB_FIXED32):
			p->data_len = rd_le32(r);
			break;
		case TAG(5, PB_VARINT):
			p->sync = rd_varint(r) != 0;
			break;
		default:
			skip_field(r, type);
			continue;
		}
		seen |= 1u << number;
	}
	return seen;
}

int dt_packet_decode(const void *buf, size_t len, struct dt_packet *ret)
{
	const uint32_t required = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4;
	const ssize_t need = dt_packet_need(buf, len);
	struct rd r = rd_init(buf, len);
	struct dt_packet p = {0};
	uint32_t body;

	if (need < 0)
		return (int)need;
	if ((size_t)need != len)
		return -EPROTO;
	body = rd_be32(&r) - 4; /* PLEN counts itself */
	rd_be16(&r);
	if ((packet_fields(&r, &p) & required) != required || r.bad)
		return -EPROTO;
	if (p.offset < 0 || p.seqno < DT_SEQNO_HEARTBEAT || p.data_len > body)
		return -EPROTO;
	p.crc_len = body - p.data_len;
	if (p.crc_len % 4 || (p.crc_len && !p.data_len) || (p.last && p.data_len))
		return -EPROTO;
	*ret = p;
	return 0;
}

static void put(uint8_t *p, uint64_t v, size_t width, bool big)
{
	for (size_t i = 0; i < width; i++)
		p[big ? width - 1 - i : i] = (uint8_t)(v >> (8 * i));
}

/* Every place is fixed: this runs per packet. */
size_t dt_packet_encode(const struct dt_packet *p, uint8_t out[DT_PACKET_HEADER_MAX])
{
	put(out, 4u + p->crc_len + p->data_len, 4, true);
	put(out + 4, p->sync ? 27 : 25, 2, true);
	out[6] = TAG(1, PB_FIXED64);
	put(out + 7, (uint64_t)p->offset, 8, false);
	out[15] = TAG(2, PB_FIXED64);
	put(out + 16, (uint64_t)p->seqno, 8, false);
	out[24] = TAG(3, PB_VARINT);
	out[25] = p->last;
	out[26] = TAG(4, PB_FIXED32);
	put(out + 27, p->data_len, 4, false);
	if (!p->sync)
		return 31;
	out[31] = TAG(5, PB_VARINT);
	out[32] = 1;
	return 33;
}

bool dt_packet_crc_len_ok(const struct dt_packet *p, uint32_t bytes_per_checksum)
{
	const uint64_t bpc = bytes_per_checksum;

	return !p->crc_len || (bpc && p->crc_len == (p->data_len + bpc - 1) / bpc * 4);
}

/* ---- pipeline acks ---- */

static uint8_t known_status(uint64_t v)
{
	return v <= DT_ERROR_BLOCK_PINNED ? (uint8_t)v : DT_ERROR;
}

static void ack_add_reply(struct rd *r, struct dt_ack *a, uint64_t v)
{
	if (a->count == DT_ACK_NODES_MAX) {
		r->bad = true;
		return;
	}
	a->reply[a->count++] = known_status(v);
}

static void ack_add_flag(struct rd *r, struct dt_ack *a, uint64_t v)
{
	if (a->flag_count == DT_ACK_NODES_MAX) {
		r->bad = true;
		return;
	}
	a->flag[a->flag_count++] = (uint32_t)v;
}

/* Repeated numbers come one by one or packed, whatever the .proto says. */
static void ack_list(struct rd *r, uint32_t type, struct dt_ack *a,
		     void (*add)(struct rd *r, struct dt_ack *a, uint64_t v))
{
	const uint8_t *p;
	struct rd list;
	size_t len;

	if (type == PB_VARINT) {
		add(r, a, rd_varint(r));
		return;
	}
	p = pb_take_delim(r, &len);
	if (!p)
		return;
	list = rd_init(p, len);
	while (rd_left(&list) && !list.bad)
		add(&list, a, rd_varint(&list));
	r->bad |= list.bad;
}

static bool ack_fields(struct rd *r, struct dt_ack *a)
{
	uint32_t number, type;
	bool has_seqno = false;

	while (next_field(r, &number, &type)) {
		if (number == 1 && type == PB_VARINT) {
			a->seqno = zigzag_decode(rd_varint(r));
			has_seqno = true;
		} else if (number == 2 && (type == PB_VARINT || type == PB_BYTES)) {
			ack_list(r, type, a, ack_add_reply);
		} else if (number == 3 && type == PB_VARINT) {
			a->downstream_ns = rd_varint(r);
		} else if (number == 4 && (type == PB_VARINT || type == PB_BYTES)) {
			ack_list(r, type, a, ack_add_flag);
		} else {
			skip_field(r, type);
		}
	}
	return has_seqno && !r->bad;
}

int dt_ack_decode(const void *buf, size_t len, struct dt_ack *ret)
{
	struct rd r = rd_init(buf, len);

	if (len > DT_ACK_MAX)
		return -EMSGSIZE;
	*ret = (struct dt_ack){0};
	if (!ack_fields(&r, ret))
		return ret->count == DT_ACK_NODES_MAX || ret->flag_count == DT_ACK_NODES_MAX
			       ? -EMSGSIZE
			       : -EPROTO;
	if (!ret->flag_count)
		return 0;
	ret->count = ret->flag_count;
	for (uint32_t i = 0; i < ret->count; i++)
		ret->reply[i] = known_status(ret->flag[i] & DT_FLAG_STATUS_MASK);
	return 0;
}

size_t dt_ack_encode(const struct dt_ack *a, uint8_t out[DT_ACK_MAX])
{
	uint8_t body[DT_ACK_MAX - 2]; /* its length takes two bytes at most */
	struct wr w = wr_init(body, sizeof(body)), frame = wr_init(out, DT_ACK_MAX);
	const uint32_t flags = a->flag_count < DT_ACK_NODES_MAX ? a->flag_count : DT_ACK_NODES_MAX;
	size_t flag_len = 0;

	wr_u8(&w, TAG(1, PB_VARINT));
	wr_varint(&w, zigzag_encode(a->seqno));
	for (uint32_t i = 0; i < a->count && i < DT_ACK_NODES_MAX; i++) {
		wr_u8(&w, TAG(2, PB_VARINT));
		wr_varint(&w, a->reply[i]);
	}
	wr_u8(&w, TAG(3, PB_VARINT));
	wr_varint(&w, a->downstream_ns);
	for (uint32_t i = 0; i < flags; i++)
		flag_len += varint_len(a->flag[i]);
	if (flags) {
		wr_u8(&w, TAG(4, PB_BYTES));
		wr_varint(&w, flag_len);
	}
	for (uint32_t i = 0; i < flags; i++)
		wr_varint(&w, a->flag[i]);
	wr_varint(&frame, (uint64_t)(w.p - body));
	wr_bytes(&frame, body, (size_t)(w.p - body));
	return (size_t)(frame.p - out);
}

int dt_ack_first_bad(const struct dt_ack *a)
{
	for (int i = (int)a->count - 1; i >= 0; i--)
		if (a->reply[i] != DT_SUCCESS)
			return i;
	return -1;
}

/* ---- one-status messages, BlockOpResponse ---- */

size_t dt_read_status_encode(enum dt_status s, uint8_t out[DT_STATUS_MAX])
{
	struct wr w = wr_init(out, DT_STATUS_MAX);

	wr_varint(&w, 1 + varint_len((uint64_t)s));
	wr_u8(&w, TAG(1, PB_VARINT));
	wr_varint(&w, (uint64_t)s);
	return (size_t)(w.p - out);
}

int dt_read_status_decode(const void *buf, size_t len, enum dt_status *ret)
{
	struct rd r = rd_init(buf, len);
	uint32_t number, type;
	bool seen = false;

	while (next_field(&r, &number, &type)) {
		if (TAG(number, type) != TAG(1, PB_VARINT)) {
			skip_field(&r, type);
			continue;
		}
		*ret = (enum dt_status)known_status(rd_varint(&r));
		seen = true;
	}
	return r.bad || !seen ? -EBADMSG : 0;
}

int dt_response_encode(enum dt_status s, const char *first_bad_link, const char *message,
		       uint8_t **ret, size_t *ret_len)
{
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;

	m.status = (Hd__Status)s;
	m.firstbadlink = (char *)first_bad_link;
	m.message = (char *)message;
	return pb_pack_delim(&m, ret, ret_len);
}

int dt_write_response_encode(enum dt_status s, const char *first_bad_link, bool keeps,
			     const uint64_t *later, size_t n, uint8_t **ret, size_t *ret_len)
{
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;

	m.status = (Hd__Status)s;
	m.firstbadlink = (char *)first_bad_link;
	m.has_keeps = m.keeps = keeps;
	m.n_later = n;
	m.later = (uint64_t *)later; /* protobuf-c knows no const */
	return pb_pack_delim(&m, ret, ret_len);
}

int dt_read_response_encode(int crc_type, uint32_t bytes_per_checksum, uint64_t chunk_offset,
			    bool takes_small, uint8_t **ret, size_t *ret_len)
{
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	Hd__ReadOpChecksumInfoProto info = HD__READ_OP_CHECKSUM_INFO_PROTO__INIT;
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;

	sum.type = (Hd__ChecksumTypeProto)crc_type;
	sum.bytesperchecksum = bytes_per_checksum;
	info.checksum = &sum;
	info.chunkoffset = chunk_offset;
	m.status = HD__STATUS__SUCCESS;
	m.readopchecksuminfo = &info;
	m.has_takessmall = m.takessmall = takes_small;
	return pb_pack_delim(&m, ret, ret_len);
}

/* ---- conversions ---- */

/* A table: each read of a block asks for every character. */
static bool is_of_pool_id(char c)
{
	static const bool is[UINT8_MAX + 1] = {['a' ... 'z'] = true, ['A' ... 'Z'] = true,
					       ['0' ... '9'] = true, ['-'] = true,
					       ['_'] = true,         ['.'] = true};

	return is[(uint8_t)c];
}

bool dt_pool_id_ok(const char *pool)
{
	size_t len = 0;

	while (len < BLOCK_POOL_ID_MAX && is_of_pool_id(pool[len]))
		len++;
	return len && len < BLOCK_POOL_ID_MAX && !pool[len] && pool[0] != '.';
}

int dt_block_from_proto(const Hd__ExtendedBlockProto *p, struct block *ret,
			char ret_pool[BLOCK_POOL_ID_MAX])
{
	if (!dt_pool_id_ok(p->poolid))
		return -EINVAL;
	memcpy(ret_pool, p->poolid, strlen(p->poolid) + 1);
	*ret = (struct block){(int64_t)p->blockid, p->generationstamp, p->numbytes};
	return 0;
}

void dt_block_to_proto(const struct block *b, const char *pool, Hd__ExtendedBlockProto *ret)
{
	hd__extended_block_proto__init(ret);
	ret->poolid = (char *)pool;
	ret->blockid = (uint64_t)b->id;
	ret->generationstamp = b->gs;
	ret->has_numbytes = true;
	ret->numbytes = b->len;
}

static const struct {
	const char *name;
	int rc;
} statuses[] = {
	[DT_SUCCESS] = {"SUCCESS", 0},
	[DT_ERROR] = {"ERROR", -EIO},
	[DT_ERROR_CHECKSUM] = {"ERROR_CHECKSUM", -EBADMSG},
	[DT_ERROR_INVALID] = {"ERROR_INVALID", -EINVAL},
	[DT_ERROR_EXISTS] = {"ERROR_EXISTS", -EEXIST},
	[DT_ERROR_ACCESS_TOKEN] = {"ERROR_ACCESS_TOKEN", -EACCES},
	[DT_CHECKSUM_OK] = {"CHECKSUM_OK", 0},
	[DT_ERROR_UNSUPPORTED] = {"ERROR_UNSUPPORTED", -EOPNOTSUPP},
	[DT_OOB_RESTART] = {"OOB_RESTART", -ERESTART},
	[DT_OOB_RESERVED1] = {"OOB_RESERVED1", -EIO},
	[DT_OOB_RESERVED2] = {"OOB_RESERVED2", -EIO},
	[DT_OOB_RESERVED3] = {"OOB_RESERVED3", -EIO},
	[DT_IN_PROGRESS] = {"IN_PROGRESS", -EINPROGRESS},
	[DT_ERROR_BLOCK_PINNED] = {"ERROR_BLOCK_PINNED", -EBUSY},
};
#define STATUS_COUNT ((int)(sizeof(statuses) / sizeof(*statuses)))

int dt_status_errno(int status)
{
	return status >= 0 && status < STATUS_COUNT ? statuses[status].rc : -EIO;
}

enum dt_status dt_errno_status(int rc)
{
	/* -EIO is that of ERROR, 0 that of SUCCESS: the first entry wins. */
	for (int i = 0; i < STATUS_COUNT; i++)
		if (statuses[i].rc == rc)
			return (enum dt_status)i;
	return DT_ERROR;
}

const char *dt_status_name(int status)
{
	return status >= 0 && status < STATUS_COUNT ? statuses[status].name : "?";
}
