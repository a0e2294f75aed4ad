/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/pb.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Counts what was taken and never gives back: scratch memory that protobuf-c frees on the way is
 * work as well. */
struct budget {
	size_t left;
	struct pb_room *room; /* or NULL */
	bool over, dry;
};

/* NULL: it does not fit. */
static void *room_take(struct pb_room *room, size_t size)
{
	const size_t whole = (size + 7) & ~(size_t)7;

	if (whole < size || whole > sizeof(room->b) - room->used)
		return NULL;
	room->used += (uint32_t)whole;
	return room->b + room->used - whole;
}

static void *budget_alloc(void *arg, size_t size)
{
	struct budget *b = arg;
	void *p;

	if (size > b->left) {
		b->over = true;
		return NULL;
	}
	p = b->room ? room_take(b->room, size) : NULL;
	if (!p) {
		p = malloc(size ? size : 1);
		if (b->room)
			b->room->spilled = true;
	}
	if (!p) {
		b->dry = true;
		return NULL;
	}
	b->left -= size;
	return p;
}

static void budget_free(void *arg, void *p)
{
	const struct pb_room *room = ((const struct budget *)arg)->room;
	const uint8_t *at = p;

	if (!room || at < room->b || at >= room->b + sizeof(room->b))
		free(p);
}

bool pb_has_nul(const ProtobufCMessageDescriptor *desc, const void *buf, size_t len)
{
	struct rd r = rd_init(buf, len);

	while (rd_left(&r) && !r.bad) {
		const uint64_t tag = rd_varint(&r);
		const ProtobufCFieldDescriptor *f =
			tag >> 3 <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(
							 desc, (unsigned int)(tag >> 3))
					       : NULL;
		const uint8_t *p;
		uint64_t n;

		switch (tag & 7) {
		case 0:
			rd_varint(&r);
			break;
		case 1:
			rd_bytes(&r, 8);
			break;
		case 2:
			n = rd_varint(&r);
			p = n <= rd_left(&r) ? rd_bytes(&r, (size_t)n) : NULL;
			if (!p)
				return false; /* malformed: pb_unpack() says so */
			if (f && f->type == PROTOBUF_C_TYPE_STRING && memchr(p, 0, (size_t)n))
				return true;
			if (f && f->type == PROTOBUF_C_TYPE_MESSAGE &&
			    pb_has_nul(f->descriptor, p, (size_t)n))
				return true;
			break;
		case 5:
			rd_bytes(&r, 4);
			break;
		default:
			return false;
		}
	}
	return false;
}

int pb_unpack_in(struct pb_room *room, const ProtobufCMessageDescriptor *desc, const void *buf,
		 size_t len, void *ret)
{
	struct budget b = {.left = SIZE_MAX, .room = room};
	ProtobufCAllocator a = {budget_alloc, budget_free, &b};
	ProtobufCMessage *m;

	if (len < (SIZE_MAX - PB_COST_BASE) / PB_COST_FACTOR)
		b.left = PB_COST_BASE + PB_COST_FACTOR * len;
	m = protobuf_c_message_unpack(desc, &a, len, buf);
	*(ProtobufCMessage **)ret = m;
	if (m)
		return 0;
	return b.over ? -E2BIG : b.dry ? -ENOMEM : -EBADMSG;
}

int pb_unpack(const ProtobufCMessageDescriptor *desc, const void *buf, size_t len, void *ret)
{
	return pb_unpack_in(NULL, desc, buf, len, ret);
}

void pb_free_in(struct pb_room *room, void *msg)
{
	struct budget b = {.room = room};
	ProtobufCAllocator a = {budget_alloc, budget_free, &b};

	if (msg && room->spilled) /* else nothing of it was malloc'ed */
		protobuf_c_message_free_unpacked(msg, &a);
}

void pb_free(void *msg)
{
	if (msg)
		protobuf_c_message_free_unpacked(msg, NULL);
}

size_t pb_size_delim(const void *msg)
{
	const size_t len = protobuf_c_message_get_packed_size(msg);

	return varint_len(len) + len;
}

void pb_put_delim(struct wr *w, const void *msg)
{
	pb_put_sized(w, msg, protobuf_c_message_get_packed_size(msg));
}

void pb_put_sized(struct wr *w, const void *msg, size_t len)
{
	uint8_t *p;

	wr_varint(w, len);
	p = wr_space(w, len);
	if (p)
		protobuf_c_message_pack(msg, p);
}

int pb_pack(const void *msg, uint8_t **ret, size_t *ret_len)
{
	const size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *p = malloc(len ? len : 1);

	if (!p)
		return -ENOMEM;
	*ret_len = protobuf_c_message_pack(msg, p);
	*ret = p;
	return 0;
}

int pb_pack_delim(const void *msg, uint8_t **ret, size_t *ret_len)
{
	const size_t len = pb_size_delim(msg);
	uint8_t *p = malloc(len);
	struct wr w = wr_init(p, len);

	if (!p)
		return -ENOMEM;
	pb_put_delim(&w, msg);
	*ret = p;
	*ret_len = len;
	return 0;
}

const uint8_t *pb_take_delim(struct rd *r, size_t *ret_len)
{
	const uint64_t len = rd_varint(r);

	*ret_len = 0;
	if (r->bad || len > rd_left(r)) {
		r->bad = true;
		return NULL;
	}
	*ret_len = (size_t)len;
	return rd_bytes(r, (size_t)len);
}
