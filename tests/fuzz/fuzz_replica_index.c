/* SPDX-License-Identifier: Apache-2.0 */
/* The index of replicas. Its CRCs keep nonsense out before it means anything: inputs that begin
 * with an odd byte get right ones first. What is read is a listing of its directory,
 * whatever comes, and what is written behind it is read again. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "datanode/store/replica_index.h"
#include "tests/fuzz/fuzz.h"

#define WRITTEN 77 /* directory: 2 * 32 + 13 */

static const struct index_owner OWNER = {"DS-1", "BP-1"};
static char dir[64];

static void clean_up(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	(void)!system(cmd);
}

static int make(void)
{
	char path[80];

	snprintf(dir, sizeof(dir), "%s/fuzz-index-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(dir));
	atexit(clean_up);
	snprintf(path, sizeof(path), "%s/current", dir);
	MUST(!mkdir(path, 0700));
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put_crc(uint8_t *to, const uint8_t *from, size_t len)
{
	struct wr w = wr_init(to, 4);

	wr_be32(&w, crc_compute(CRC_CRC32C, from, len));
}

/* As replica_index.c has them, along the counts. */
static void mend(uint8_t *file, size_t size)
{
	if (size < INDEX_HEADER)
		return;
	put_crc(file + 12, file + 16, INDEX_HEADER - 16);
	for (size_t at = INDEX_HEADER; size - at >= INDEX_HEAD;) {
		struct rd r = rd_init(file + at + 12, 4);
		const uint64_t entries = (uint64_t)rd_be32(&r) * INDEX_ENTRY;

		if (entries <= size - at - INDEX_HEAD)
			put_crc(file + at + 56, file + at + INDEX_HEAD, (size_t)entries);
		put_crc(file + at + 4, file + at + 8, INDEX_HEAD - 8);
		if (entries > size - at - INDEX_HEAD)
			return;
		at += INDEX_HEAD + (size_t)entries;
	}
}

static void check(struct replica_index *x)
{
	for (uint32_t n = 0; n < INDEX_DIRS; n++) {
		const uint32_t count = x->dir[n].count;
		struct index_entry *list = NULL;

		if (replica_index_read(x, n, &list)) {
			MUST(!x->dir[n].at);
			continue;
		}
		MUST(count <= INDEX_ENTRIES_MAX);
		for (uint32_t i = 0; i < count; i++) {
			MUST((list[i].id >> 16 & 31) * 32 + (list[i].id >> 8 & 31) == (int64_t)n);
			MUST(!i || list[i - 1].id < list[i].id);
			MUST(list[i].len <= INT64_MAX && list[i].gs <= INT64_MAX);
		}
		free(list);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int at = -1;
	const struct dir_stamp s = {.ino = 1, .mtime_ns = 2, .ctime_ns = 3};
	const struct index_entry one = {2 << 16 | 13 << 8, 1001, 5, true};
	struct index_entry *list = NULL;
	struct replica_index *x;
	uint8_t *file;
	int fd;

	at = at < 0 ? make() : at;
	if (!size)
		return 0;
	file = malloc(size);
	MUST(file);
	memcpy(file, data + 1, size - 1);
	if (data[0] & 1)
		mend(file, size - 1);
	fd = openat(at, INDEX_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	MUST(fd >= 0 && write(fd, file, size - 1) == (ssize_t)size - 1);
	(void)close(fd);
	free(file);
	x = replica_index_open(at, &OWNER);
	MUST(x);
	if (data[0] & 2)
		check(x);
	MUST(!replica_index_write(x, WRITTEN, &s, &one, 1));
	if (data[0] & 4)
		MUST(!replica_index_tidy(x));
	replica_index_close(x);
	x = replica_index_open(at, &OWNER);
	MUST(x);
	check(x);
	MUST(x->dir[WRITTEN].count == 1 && dir_stamp_fits(&x->dir[WRITTEN].stamp, &s));
	MUST(!replica_index_read(x, WRITTEN, &list) && list->id == one.id && list->pinned);
	free(list);
	replica_index_close(x);
	return 0;
}
