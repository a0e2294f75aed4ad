/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * store_test_blocks - replicas with a known pattern, written and read through the store; for its
 * tests
 */
#include "datanode/store/store_test_fixture.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- blocks of a known pattern ---- */

static inline int setup(void **state)
{
	*state = fix_new(1, STORAGE_SSD);
	return fix_open(*state);
}

static inline int setup_two(void **state)
{
	*state = fix_new(2, STORAGE_SSD);
	return fix_open(*state);
}

static inline int setup_closed(void **state)
{
	*state = fix_new(1, STORAGE_SSD);
	return 0;
}

static inline void nap(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static inline uint8_t pattern(uint64_t i)
{
	return (uint8_t)((i * 7 + 3) % 251);
}

static inline struct write_request create_request(int64_t id, uint64_t gs)
{
	return (struct write_request){.block = {id, gs, 1 << 20},
				      .stage = STAGE_CREATE,
				      .from_client = true,
				      .crc_type = CRC_CRC32C,
				      .bytes_per_crc = 512,
				      .storage_type = STORAGE_DISK};
}

/* Append the pattern up to @len, CRCs too, and publish. */
static inline void put_bytes(struct replica_writer *w, uint64_t from, uint64_t len)
{
	uint8_t *buf = malloc(len + 1), *crcs = malloc(len / 128 + 8);
	uint64_t chunk = from / 512;
	uint32_t last;

	for (uint64_t i = 0; i < len; i++)
		buf[i] = pattern(i);
	assert_int_equal(file_write_full(w->fd, buf + from, len - from, from), 0);
	crc_chunks(w->crc_type, buf, len, w->bytes_per_crc, crcs);
	assert_int_equal(file_write_full(w->fd_meta, crcs + 4 * chunk,
					 crc_bytes(w->crc_type, len, 512) - 4 * chunk,
					 META_HEADER_LEN + 4 * chunk),
			 0);
	last = crc_compute(w->crc_type, buf + len / 512 * 512, len % 512);
	replica_publish(w, len, len, len, last);
	free(buf);
	free(crcs);
}

static inline struct replica_writer *make_rbw(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct write_request q = create_request(id, gs);
	struct replica_writer *w = NULL;

	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, len);
	return w;
}

static inline void make_finalized(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	assert_int_equal(replica_finalize(make_rbw(f, id, gs, len), len, SYNC_NEVER, NULL, &f->err),
			 0);
}

static inline void assert_readable(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct block b = {id, gs, 0};
	struct replica_reader *r = NULL;
	uint8_t *buf = malloc(len + 1), *crcs = malloc(len / 64 + 8);
	struct stat st;

	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_int_equal(r->block.len, len);
	assert_int_equal(r->block.gs, gs);
	assert_int_equal(fstat(r->fd, &st), 0);
	assert_int_equal(st.st_size, len);
	assert_int_equal(file_read_full(r->fd, buf, len, 0), 0);
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(buf[i], pattern(i));
	assert_int_equal(file_read_full(r->fd_meta, crcs,
					crc_bytes(r->crc_type, len, r->bytes_per_crc),
					META_HEADER_LEN),
			 0);
	assert_int_equal(crc_verify(r->crc_type, buf, len, r->bytes_per_crc, crcs), -1);
	replica_read_close(r);
	free(buf);
	free(crcs);
}

static inline void assert_state(struct fix *f, int64_t id, enum replica_state st, uint64_t gs,
				uint64_t len)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), 0);
	assert_int_equal(i.state, st);
	assert_int_equal(i.block.gs, gs);
	assert_int_equal(i.block.len, len);
}
