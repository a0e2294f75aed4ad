/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: foreign_test_fixture - what the tests of foreign directories and of the scanners
 * share: replicas put into a directory past the store, and what the store makes of them
 *
 * Included by one test program each.
 */
#include <stdarg.h>

#include "common/base/crc.h"

#include "datanode/store/store_test_fixture.h"

static inline int setup_n(void **state, uint32_t volumes)
{
	struct fix *f = fix_new(volumes, STORAGE_DISK);

	*state = f;
	assert_int_equal(fix_open(f), 0);
	return 0;
}

static inline int setup(void **state)
{
	return setup_n(state, 1);
}

static inline int setup_two(void **state)
{
	return setup_n(state, 2);
}

/* A shell line in the pool's current/ of the first volume. */
static void __attribute__((format(printf, 2, 3))) sh(const struct fix *f, const char *fmt, ...)
{
	char cmd[2048];
	va_list ap;
	int n = snprintf(cmd, sizeof(cmd), "cd %s/current/" POOL "/current && ", f->vol[0]);

	va_start(ap, fmt);
	(void)vsnprintf(cmd + n, sizeof(cmd) - (size_t)n, fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

/* The two files of a block, as any other data node would write them, in @dir below current/. */
static inline void put_block(const struct fix *f, const char *dir, int64_t id, uint64_t gs,
			     uint32_t len)
{
	uint8_t *data = malloc(len), crcs[4096], header[META_HEADER_LEN] = {0, 1, 2, 0, 0, 2, 0};
	char path[512];
	FILE *out;

	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)((i + (uint32_t)id) % 251);
	sh(f, "mkdir -p %s", dir);
	(void)snprintf(path, sizeof(path), "%s/current/" POOL "/current/%s/blk_%" PRId64, f->vol[0],
		       dir, id);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(data, 1, len, out);
	assert_int_equal(fclose(out), 0);
	(void)snprintf(path, sizeof(path),
		       "%s/current/" POOL "/current/%s/blk_%" PRId64 "_%" PRIu64 ".meta", f->vol[0],
		       dir, id, gs);
	crc_chunks(CRC_CRC32C, data, len, 512, crcs);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(header, 1, sizeof(header), out);
	fwrite(crcs, 1, crc_bytes(CRC_CRC32C, len, 512), out);
	assert_int_equal(fclose(out), 0);
	free(data);
}

static inline void assert_whole(struct fix *f, int64_t id, uint64_t gs, uint32_t len)
{
	struct replica_reader *r = NULL;
	uint8_t byte;

	assert_int_equal(replica_read_open(f->bp, &(struct block){id, gs, 0}, &r, &f->err), 0);
	assert_int_equal(r->block.gs, gs);
	assert_int_equal(r->block.len, len);
	for (uint32_t i = 0; i < len; i += len / 7 + 1) {
		assert_int_equal(file_read_full(r->fd, &byte, 1, i), 0);
		assert_int_equal(byte, (i + (uint32_t)id) % 251);
	}
	replica_read_close(r);
	f->seen.bad = 0;
	replica_suspect(f->bp, &(struct block){id, gs, 0});
	assert_int_equal(f->seen.bad, 0);
}

static inline void assert_absent(struct fix *f, int64_t id)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), -ENOENT);
}
