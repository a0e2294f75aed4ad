/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: block_read_test_fixture - replicas in a store, and readers that look at each piece
 *
 * Included by one test program each, which owns what is static here.
 */
#include <unistd.h>

#include "common/base/crc.h"
#include "common/base/file_io.h"

#include "datanode/block/engine_test_fixture.h"

#define LEN (6u << 20)
#define SET (PIECE_MAX + SLOT_CRC_SIZE) /* the buffers of a piece */
#define LONG_NS (60 * NS_PER_S)
#define SHORT_NS (50 * NS_PER_MS)

static char dir[] = "/tmp/bread_test.XXXXXX";
static uint8_t data[LEN], crcs[LEN / 512 * 4];

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

/* Its bytes up to @len, of which @acked count. */
static inline struct replica_writer *begin_replica(struct write_request *q, uint32_t len,
						   uint32_t acked)
{
	struct replica_writer *w = NULL;
	struct err err = ERR_INIT;
	uint8_t last[4];

	assert_int_equal(replica_write_open(bp, q, &w, &err), 0);
	assert_int_equal(file_write_full(w->fd, data, len, 0), 0);
	assert_int_equal(file_write_full(w->fd_meta, crcs, len / 512 * 4, META_HEADER_LEN), 0);
	if (len % 512) {
		crc_chunks(CRC_CRC32C, data + len / 512 * 512, len % 512, 512, last);
		assert_int_equal(
			file_write_full(w->fd_meta, last, 4, META_HEADER_LEN + len / 512 * 4), 0);
	}
	replica_publish(w, len, len, acked,
			crc_compute(CRC_CRC32C, data + acked / 512 * 512, acked % 512));
	return w;
}

static inline void write_replica(struct write_request *q, uint32_t len)
{
	struct err err = ERR_INIT;

	assert_int_equal(replica_finalize(begin_replica(q, len, len), len, SYNC_NEVER, NULL, &err),
			 0);
}

static inline struct write_request request(int64_t id)
{
	return (struct write_request){.block = {id, 1001, LEN},
				      .stage = STAGE_CREATE,
				      .from_client = true,
				      .crc_type = CRC_CRC32C,
				      .bytes_per_crc = 512,
				      .storage_type = STORAGE_DISK};
}

static inline void make_replica_of(int64_t id, uint32_t len)
{
	struct write_request q = request(id);

	write_replica(&q, len);
}

static inline void make_replica(int64_t id)
{
	make_replica_of(id, LEN);
}

static inline void append_to_replica(int64_t id, uint32_t had, uint32_t len)
{
	struct write_request q = request(id);

	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = had;
	write_replica(&q, len);
}

/* ---- the readers ---- */

struct reader {
	struct read_sink sink;
	struct block_read *r;
	int64_t id;
	struct piece *out[BREAD_AHEAD]; /* handed over, not given back */
	uint32_t out_count;
	uint64_t bytes, held_max;
	bool gives_back, ended;
	int rc;
};

static inline void on_opened(struct read_sink *s, int rc, const struct read_info *info,
			     const struct err *err)
{
	(void)s, (void)rc, (void)info, (void)err;
}

static inline void give_back(struct reader *d)
{
	while (d->out_count)
		block_read_sent(d->r, d->out[--d->out_count]);
}

static inline void on_piece(struct read_sink *s, struct piece *p)
{
	struct reader *d = container_of(s, struct reader, sink);
	const uint64_t held = fix_op(block_read_list, d->id).held;

	assert_memory_equal(p->slot->data + p->slot_off, data + p->off, p->len);
	assert_int_equal(crc_verify(CRC_CRC32C, p->slot->data + p->slot_off, p->len, 512, p->crcs),
			 -1);
	d->held_max = held > d->held_max ? held : d->held_max;
	d->bytes += p->len;
	d->out[d->out_count++] = p;
	if (d->gives_back)
		give_back(d);
	reactor_stop(r);
}

static inline void on_ended(struct read_sink *s, int rc)
{
	struct reader *d = container_of(s, struct reader, sink);

	d->ended = true;
	d->rc = rc;
	reactor_stop(r);
}

static const struct read_sink_ops ops = {.opened = on_opened, .piece = on_piece, .ended = on_ended};

static inline void begin_len(struct reader *d, int64_t id, struct buffers_share *share,
			     uint64_t len)
{
	const struct read_params p = {.bp = bp,
				      .block = {id, 1001, LEN},
				      .len = len,
				      .want_crcs = true,
				      .use = POOL_READ};

	*d = (struct reader){.sink = {.ops = &ops, .peer = "10.1.2.3:4567", .share = share},
			     .id = id};
	assert_int_equal(block_read_open(&core, &p, &d->sink, &d->r), 0);
}

static inline void begin(struct reader *d, int64_t id, struct buffers_share *share)
{
	begin_len(d, id, share, LEN);
}

/* Runs until so many pieces, or more, are with the reader; a minute is for ever. */
static inline void await_pieces(const struct reader *d, uint32_t n)
{
	for (int i = 0; i < 600 && d->out_count < n && !d->ended; i++)
		fix_run(100);
	assert_true(d->out_count >= n);
}

static inline void await_wait(const struct reader *d, const char *state, const char *waits_for)
{
	struct operation o = fix_op(block_read_list, d->id);

	for (int i = 0; i < 600 && strcmp(o.waits_for, waits_for); i++) {
		fix_run(10);
		assert_false(d->ended);
		o = fix_op(block_read_list, d->id);
	}
	assert_string_equal(o.waits_for, waits_for);
	assert_string_equal(o.state, state);
}

/* The file has only @len bytes now. */
static inline void cut_file(int64_t id, off_t len)
{
	char path[256];

	snprintf(path, sizeof(path),
		 "%s/current/" POOL_ID "/current/finalized/subdir0/subdir0/blk_%d", dir, (int)id);
	assert_int_equal(truncate(path, len), 0);
}

/* It waits for more bytes; now and then it looks, and may be met at that. */
static inline void await_visible_wait(const struct reader *d)
{
	const char *state = "";

	for (int i = 0;
	     i < 600 && strcmp(state, "wait_writer") && strcmp(state, "wait_disk_refresh"); i++) {
		fix_run(10);
		assert_false(d->ended);
		state = fix_op(block_read_list, d->id).state;
	}
}

static inline void await_end(const struct reader *d, int rc)
{
	for (int i = 0; i < 600 && !d->ended; i++)
		fix_run(100);
	assert_true(d->ended);
	assert_int_equal(d->rc, rc);
}

static inline void end(struct reader *d)
{
	block_read_close(d->r);
	give_back(d);
	await_end(d, -ECANCELED);
}

static inline int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 32, 8, 16, 64}};

	(void)state;
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)((i * 7 + 3) % 251);
	crc_chunks(CRC_CRC32C, data, LEN, 512, crcs);
	fix_setup("bread_test", &po);
	fix_store(dir);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
}
