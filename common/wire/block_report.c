/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/block_report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"

#define LEN_MASK ((1ull << 48) - 1) /* readers keep the low 48 bits */
#define STATE_MASK 0xf
#define VARINT_MAX 10
#define REPLICA_MAX (4 * VARINT_MAX)

/* ---- encoding ---- */

static int add_chunk(struct block_report *r)
{
	ProtobufCBinaryData *grown;
	uint8_t *data = malloc(BLOCK_REPORT_CHUNK);

	if (!data)
		return -ENOMEM;
	grown = reallocarray(r->chunks, r->chunk_count + 1, sizeof(*grown));
	if (!grown) {
		free(data);
		return -ENOMEM;
	}
	grown[r->chunk_count++] = (ProtobufCBinaryData){.data = data};
	r->chunks = grown;
	return 0;
}

static size_t last_room(const struct block_report *r)
{
	return r->chunk_count ? BLOCK_REPORT_CHUNK - r->chunks[r->chunk_count - 1].len : 0;
}

static void append(ProtobufCBinaryData *c, const uint8_t *p, size_t len)
{
	memcpy(c->data + c->len, p, len);
	c->len += len;
}

int block_report_add(struct block_report *r, const struct block *b, enum replica_state state)
{
	uint8_t buf[REPLICA_MAX];
	struct wr w = wr_init(buf, sizeof(buf));
	const size_t room = last_room(r);
	size_t len, first;

	wr_varint(&w, zigzag_encode(b->id));
	wr_varint(&w, b->len & LEN_MASK);
	wr_varint(&w, b->gs);
	wr_varint(&w, state);
	len = (size_t)(w.p - buf);
	first = len < room ? len : room;
	/* Take the memory before the first byte is written. */
	if (first < len && add_chunk(r))
		return -ENOMEM;
	if (first)
		append(&r->chunks[r->chunk_count - (first < len ? 2 : 1)], buf, first);
	if (first < len)
		append(&r->chunks[r->chunk_count - 1], buf + first, len - first);
	r->count++;
	return 0;
}

int block_report_finish(struct block_report *r)
{
	return r->chunk_count ? 0 : add_chunk(r);
}

void block_report_fini(struct block_report *r)
{
	for (size_t i = 0; i < r->chunk_count; i++)
		free(r->chunks[i].data);
	free(r->chunks);
	*r = BLOCK_REPORT_INIT;
}

/* ---- decoding ---- */

struct chunk_rd {
	const ProtobufCBinaryData *chunk;
	size_t left; /* chunks, this one included */
	size_t pos;  /* in chunk */
	bool bad;
};

/* Step over chunks that are used up. */
static bool at_end(struct chunk_rd *r)
{
	while (r->left && r->pos == r->chunk->len) {
		r->chunk++;
		r->left--;
		r->pos = 0;
	}
	return !r->left;
}

static uint64_t take_varint(struct chunk_rd *r)
{
	uint8_t buf[VARINT_MAX];
	size_t n = 0;
	struct rd rd;

	do {
		if (n == VARINT_MAX || at_end(r)) {
			r->bad = true;
			return 0;
		}
		buf[n] = r->chunk->data[r->pos++];
	} while (buf[n++] & 0x80);
	rd = rd_init(buf, n);
	return rd_varint(&rd);
}

int block_report_decode(const ProtobufCBinaryData *chunks, size_t n, uint64_t count,
			block_report_fn fn, void *arg)
{
	struct chunk_rd r = {.chunk = chunks, .left = n};

	for (uint64_t i = 0; i < count; i++) {
		const int64_t id = zigzag_decode(take_varint(&r));
		const uint64_t len = take_varint(&r) & LEN_MASK;
		const uint64_t gs = take_varint(&r);
		const uint32_t state = take_varint(&r) & STATE_MASK;
		int rc;

		if (r.bad)
			return -EBADMSG;
		rc = fn(arg, &(struct block){id, gs, len}, state);
		if (rc)
			return rc;
	}
	return at_end(&r) ? 0 : -EBADMSG;
}

int block_report_decode_longs(const uint64_t *v, size_t n, block_report_fn fn, void *arg)
{
	uint64_t finalized, other;
	size_t pos = 2;
	int rc = 0;

	if (!n)
		return 0;
	if (n < 2)
		return -EBADMSG;
	finalized = v[0];
	other = v[1];
	/* Bound first, so that the sums below cannot wrap. */
	if (finalized > n || other > n)
		return -EBADMSG;
	/* [0, 0] alone is an empty report; otherwise a delimiter of three -1 parts the lists. */
	if (n != 2 + 3 * finalized + 3 + 4 * other && !(n == 2 && !finalized && !other))
		return -EBADMSG;
	if (n == 2)
		return 0;
	for (uint64_t i = 0; i < finalized && !rc; i++, pos += 3)
		rc = fn(arg, &(struct block){(int64_t)v[pos], v[pos + 2], v[pos + 1]},
			REPLICA_FINALIZED);
	if (rc)
		return rc;
	if (v[pos] != UINT64_MAX || v[pos + 1] != UINT64_MAX || v[pos + 2] != UINT64_MAX)
		return -EBADMSG;
	pos += 3;
	for (uint64_t i = 0; i < other && !rc; i++, pos += 4)
		rc = fn(arg, &(struct block){(int64_t)v[pos], v[pos + 2], v[pos + 1]},
			(uint32_t)v[pos + 3] & STATE_MASK);
	return rc;
}

int block_report_each(const Hdd__StorageBlockReportProto *p, block_report_fn fn, void *arg)
{
	if (p->has_numberofblocks)
		return block_report_decode(p->blocksbuffers, p->n_blocksbuffers, p->numberofblocks,
					   fn, arg);
	return block_report_decode_longs(p->blocks, p->n_blocks, fn, arg);
}
