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

/* Step over chunks that are used up. */
static bool at_end(struct block_report_rd *r)
{
	while (r->left && r->pos == r->chunk->len) {
		r->chunk++;
		r->left--;
		r->pos = 0;
	}
	return !r->left;
}

static uint64_t take_varint(struct block_report_rd *r)
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

static int next_of_chunks(struct block_report_rd *r, struct block *b, uint32_t *state)
{
	if (r->done == r->count)
		return at_end(r) ? 0 : -EBADMSG;
	b->id = zigzag_decode(take_varint(r));
	b->len = take_varint(r) & LEN_MASK;
	b->gs = take_varint(r);
	*state = take_varint(r) & STATE_MASK;
	r->done++;
	return r->bad ? -EBADMSG : 1;
}

/* Finalized replicas have three values each, behind them is a delimiter of three, the others have
 * four. */
static int next_of_longs(struct block_report_rd *r, struct block *b, uint32_t *state)
{
	const uint64_t *v = r->longs + r->pos;

	if (r->bad)
		return -EBADMSG;
	if (r->done == r->count)
		return 0;
	*b = (struct block){(int64_t)v[0], v[2], v[1]};
	*state = r->done < r->finalized ? REPLICA_FINALIZED : (uint32_t)v[3] & STATE_MASK;
	r->pos += r->done < r->finalized ? 3 : 4;
	r->done++;
	if (r->done == r->finalized)
		r->pos += 3;
	return 1;
}

static struct block_report_rd rd_chunks(const ProtobufCBinaryData *chunks, size_t n, uint64_t count)
{
	return (struct block_report_rd){.chunk = chunks, .left = n, .count = count};
}

static struct block_report_rd rd_longs(const uint64_t *v, size_t n)
{
	struct block_report_rd r = {.longs = v, .bad = n == 1};
	const uint64_t *mark;

	if (n < 2)
		return r;
	/* Bound first, so that the sums below cannot wrap. */
	r.bad = v[0] > n || v[1] > n;
	/* [0, 0] alone is an empty report; otherwise a delimiter of three -1 parts the lists. */
	if (r.bad || (n == 2 && !v[0] && !v[1]))
		return r;
	r.bad = n != 2 + 3 * v[0] + 3 + 4 * v[1];
	if (r.bad)
		return r;
	mark = v + 2 + 3 * v[0];
	r.bad = mark[0] != UINT64_MAX || mark[1] != UINT64_MAX || mark[2] != UINT64_MAX;
	r.finalized = v[0];
	r.count = v[0] + v[1];
	r.pos = r.finalized ? 2 : 5;
	return r;
}

struct block_report_rd block_report_rd(const Hdd__StorageBlockReportProto *p)
{
	return p->has_numberofblocks
		       ? rd_chunks(p->blocksbuffers, p->n_blocksbuffers, p->numberofblocks)
		       : rd_longs(p->blocks, p->n_blocks);
}

int block_report_next(struct block_report_rd *r, struct block *b, uint32_t *state)
{
	return r->longs ? next_of_longs(r, b, state) : next_of_chunks(r, b, state);
}
