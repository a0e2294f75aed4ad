/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/make_message.h"

#include "tests/fuzz/fuzz.h"

#define DEPTH_MAX 8
#define TEXT_ROOM 300
#define MESSAGE_ROOM 20000
#define ABSENT 0xff /* a required field is left out */
#define RAW 0xe0    /* from here on a value is the input's own */

struct making {
	struct rd *r;
	const struct words *words;
	int depth;
};

static void make(struct making *k, const ProtobufCMessageDescriptor *d, struct wr *w);

static uint64_t number(struct making *k)
{
	const uint8_t which = rd_u8(k->r);

	if (which < RAW)
		return k->words->numbers[which % k->words->number_count];
	return which & 1 ? rd_be64(k->r) : rd_u8(k->r);
}

static void put_text(struct making *k, struct wr *w)
{
	const uint8_t which = rd_u8(k->r);
	const char *text = k->words->texts[which % k->words->text_count];
	size_t len = strlen(text);

	if (which >= RAW) {
		len = rd_u8(k->r);
		len = len < rd_left(k->r) ? len : rd_left(k->r);
		text = (const char *)rd_bytes(k->r, len);
	}
	wr_varint(w, len);
	wr_bytes(w, text, len);
}

static void put_message(struct making *k, const ProtobufCMessageDescriptor *d, struct wr *w)
{
	uint8_t *room = malloc(MESSAGE_ROOM);
	struct wr inner = wr_init(room, MESSAGE_ROOM);

	MUST(room);
	if (k->depth < DEPTH_MAX)
		make(k, d, &inner);
	w->bad |= inner.bad;
	wr_varint(w, (uint64_t)(inner.p - room));
	wr_bytes(w, room, (size_t)(inner.p - room));
	free(room);
}

static void put_value(struct making *k, const ProtobufCFieldDescriptor *f, struct wr *w)
{
	const ProtobufCEnumDescriptor *e = f->descriptor;
	uint64_t v;

	switch ((int)f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		put_message(k, f->descriptor, w);
		break;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
		put_text(k, w);
		break;
	case PROTOBUF_C_TYPE_ENUM:
		v = rd_u8(k->r);
		wr_varint(w, v < RAW ? (uint64_t)(int64_t)e->values[v % e->n_values].value : v);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		wr_varint(w, rd_u8(k->r) & 1);
		break;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		v = number(k);
		wr_bytes(w, &v, 8);
		break;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		v = number(k);
		wr_bytes(w, &v, 4);
		break;
	default:
		wr_varint(w, number(k));
	}
}

static uint32_t wire_type(ProtobufCType t)
{
	switch ((int)t) {
	case PROTOBUF_C_TYPE_MESSAGE:
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
		return 2;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 1;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return 5;
	default:
		return 0;
	}
}

/* How often does the field come? */
static unsigned int times(struct making *k, const ProtobufCFieldDescriptor *f)
{
	const uint8_t b = rd_u8(k->r);

	if (f->label == PROTOBUF_C_LABEL_REQUIRED)
		return b != ABSENT;
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return b >= RAW ? b & 31 : b & 3;
	return b & 1;
}

static void make(struct making *k, const ProtobufCMessageDescriptor *d, struct wr *w)
{
	k->depth++;
	for (unsigned int i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];

		for (unsigned int n = times(k, f); n && !w->bad; n--) {
			wr_varint(w, f->id << 3 | wire_type(f->type));
			put_value(k, f, w);
		}
	}
	k->depth--;
}

void message_make(struct rd *r, const ProtobufCMessageDescriptor *d, const struct words *words,
		  struct wr *w)
{
	struct making k = {.r = r, .words = words};

	make(&k, d, w);
}
