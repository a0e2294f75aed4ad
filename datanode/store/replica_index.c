/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file:
 *   header   8 "dfsreplx", be32 version 1, be32 CRC32C of what follows, 64 storage id, 128 pool id,
 *            zeros up to INDEX_HEADER
 *   head     be32 magic, be32 CRC32C of what follows in the head, be32 directory, be32 count, be64
 *            inode, be64 mtime, be64 ctime (nanoseconds), 16 boot id, be32 CRC32C of the entries, 0
 *   entry    be64 id, be64 stamp, be64 length; the upper bit of the length: the replica is pinned
 * Heads are linked by their counts. Where one is not whole the next one is looked for: all of them
 * are at multiples of 8. What is written next comes behind the last whole record.
 */
#include "datanode/store/replica_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/base/file_io.h"

#define MAGIC "dfsreplx"
#define VERSION 1
#define HEAD_MAGIC 0x72706c64u /* "rpld" */
#define TMP_NAME INDEX_NAME ".tmp"
#define PINNED (1ull << 63)
/* written anew when it is twice as long as what counts, and this */
#define SLACK (1u << 20)
#define TIDY_RECORDS (INDEX_RECORDS_MAX / 2)
#define SEARCH_MAX (64u << 20) /* bytes of damage that are searched for the next head */

/* ---- directories ---- */

void index_dir_name(char *buf, size_t size, uint32_t n)
{
	(void)snprintf(buf, size, "finalized/subdir%u/subdir%u", n / 32, n % 32);
}

int index_dir_number(const char *dir)
{
	char again[64];
	uint32_t a, b;

	if (sscanf(dir, "finalized/subdir%2u/subdir%2u", &a, &b) != 2 || a > 31 || b > 31)
		return -1;
	index_dir_name(again, sizeof(again), a * 32 + b);
	return strcmp(again, dir) ? -1 : (int)(a * 32 + b);
}

void boot_id_read(uint8_t ret[16])
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[64] = "";
	uint32_t digits = 0;

	memset(ret, 0, 16);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return;
	for (const char *s = text; *s && digits < 32; s++) {
		const char *hex = "0123456789abcdef", *d = strchr(hex, *s);

		if (!d)
			continue;
		ret[digits / 2] = (uint8_t)(ret[digits / 2] << 4 | (d - hex));
		digits++;
	}
}

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)((uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec);
}

int dir_stamp_read(int dir_fd, const char *name, struct dir_stamp *ret)
{
	static _Thread_local uint8_t boot[16];
	static _Thread_local bool known;
	struct stat st;

	if (!known)
		boot_id_read(boot);
	known = true;
	if (name ? fstatat(dir_fd, name, &st, 0) : fstat(dir_fd, &st))
		return neg_errno();
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	*ret = (struct dir_stamp){
		.ino = st.st_ino, .mtime_ns = ns_of(&st.st_mtim), .ctime_ns = ns_of(&st.st_ctim)};
	memcpy(ret->boot, boot, sizeof(boot));
	return 0;
}

bool dir_stamp_fits(const struct dir_stamp *a, const struct dir_stamp *b)
{
	return a->ino && a->ino == b->ino && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

bool dir_stamp_same_boot(const struct dir_stamp *a, const struct dir_stamp *b)
{
	static const uint8_t unknown[16];

	return !memcmp(a->boot, b->boot, sizeof(a->boot)) &&
	       memcmp(a->boot, unknown, sizeof(unknown)) != 0;
}

/* ---- bytes ---- */

static void put_header(uint8_t buf[INDEX_HEADER], const struct index_owner *o)
{
	struct wr w = wr_init(buf, INDEX_HEADER);

	memset(buf, 0, INDEX_HEADER);
	wr_bytes(&w, MAGIC, 8);
	wr_be32(&w, VERSION);
	(void)wr_space(&w, 4);
	wr_bytes(&w, o->storage_uuid, sizeof(o->storage_uuid));
	wr_bytes(&w, o->pool_id, sizeof(o->pool_id));
	w = wr_init(buf + 12, 4);
	wr_be32(&w, crc_compute(CRC_CRC32C, buf + 16, INDEX_HEADER - 16));
}

static uint64_t record_bytes(uint32_t count)
{
	return INDEX_HEAD + (uint64_t)count * INDEX_ENTRY;
}

static void put_head(uint8_t buf[INDEX_HEAD], uint32_t n, const struct dir_stamp *s, uint32_t count,
		     uint32_t entries_crc)
{
	struct wr w = wr_init(buf, INDEX_HEAD);

	memset(buf, 0, INDEX_HEAD);
	wr_be32(&w, HEAD_MAGIC);
	(void)wr_space(&w, 4);
	wr_be32(&w, n);
	wr_be32(&w, count);
	wr_be64(&w, s->ino);
	wr_be64(&w, (uint64_t)s->mtime_ns);
	wr_be64(&w, (uint64_t)s->ctime_ns);
	wr_bytes(&w, s->boot, sizeof(s->boot));
	wr_be32(&w, entries_crc);
	w = wr_init(buf + 4, 4);
	wr_be32(&w, crc_compute(CRC_CRC32C, buf + 8, INDEX_HEAD - 8));
}

/* -EBADMSG: not a head. */
static int get_head(const uint8_t buf[INDEX_HEAD], uint32_t *ret_n, struct index_record *ret,
		    uint32_t *ret_entries_crc)
{
	struct rd r = rd_init(buf, INDEX_HEAD);
	const uint8_t *boot;

	if (rd_be32(&r) != HEAD_MAGIC ||
	    rd_be32(&r) != crc_compute(CRC_CRC32C, buf + 8, INDEX_HEAD - 8))
		return -EBADMSG;
	*ret_n = rd_be32(&r);
	ret->count = rd_be32(&r);
	ret->stamp.ino = rd_be64(&r);
	ret->stamp.mtime_ns = (int64_t)rd_be64(&r);
	ret->stamp.ctime_ns = (int64_t)rd_be64(&r);
	boot = rd_bytes(&r, sizeof(ret->stamp.boot));
	memcpy(ret->stamp.boot, boot, sizeof(ret->stamp.boot));
	*ret_entries_crc = rd_be32(&r);
	return *ret_n < INDEX_DIRS && ret->count <= INDEX_ENTRIES_MAX ? 0 : -EBADMSG;
}

/* ---- opening ---- */

/* -EBADMSG: no whole record, though perhaps with damaged entries, is at rec->at. */
static int look_at(const struct replica_index *x, uint64_t size, uint32_t *ret_n,
		   struct index_record *rec)
{
	uint8_t buf[INDEX_HEAD];
	uint32_t crc;

	if (size - rec->at < INDEX_HEAD || file_read_full(x->fd, buf, sizeof(buf), rec->at) ||
	    get_head(buf, ret_n, rec, &crc) || record_bytes(rec->count) > size - rec->at)
		return -EBADMSG;
	return 0;
}

/* Behind @at, the next place that may be a head; @size: none. *@skip: bytes that may still be
 * searched. */
static uint64_t next_head(const struct replica_index *x, uint64_t at, uint64_t size, uint64_t *skip)
{
	uint8_t buf[4096];

	for (at += 8; at < size; at += sizeof(buf)) {
		const size_t n = size - at < sizeof(buf) ? (size_t)(size - at) : sizeof(buf);

		if (n > *skip || file_read_full(x->fd, buf, n, at))
			return size;
		*skip -= n;
		for (size_t i = 0; i + 4 <= n; i += 8) {
			struct rd r = rd_init(buf + i, 4);

			if (rd_be32(&r) == HEAD_MAGIC)
				return at + i;
		}
	}
	return size;
}

/* The newest whole record of each directory. */
static void scan(struct replica_index *x, uint64_t size)
{
	uint64_t at = INDEX_HEADER, skip = SEARCH_MAX;
	uint32_t n;

	x->end = INDEX_HEADER;
	while (at < size && x->records < INDEX_RECORDS_MAX) {
		struct index_record rec = {.at = at};

		if (look_at(x, size, &n, &rec)) {
			at = next_head(x, at, size, &skip);
			continue;
		}
		x->dir[n] = rec;
		at += record_bytes(rec.count);
		x->end = at;
		x->records++;
	}
}

static bool is_ours(const struct replica_index *x)
{
	uint8_t want[INDEX_HEADER], have[INDEX_HEADER];

	put_header(want, &x->owner);
	return !file_read_full(x->fd, have, sizeof(have), 0) && !memcmp(want, have, sizeof(have));
}

struct replica_index *replica_index_open(int slice_fd, const struct index_owner *owner)
{
	struct replica_index *x = calloc(1, sizeof(*x));
	struct stat st;

	if (!x)
		return NULL;
	x->slice_fd = slice_fd;
	/* What is behind the names' NULs is compared, too. */
	(void)snprintf(x->owner.storage_uuid, sizeof(x->owner.storage_uuid), "%s",
		       owner->storage_uuid);
	(void)snprintf(x->owner.pool_id, sizeof(x->owner.pool_id), "%s", owner->pool_id);
	x->fd = openat(slice_fd, INDEX_NAME, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (x->fd < 0)
		return x;
	if (fstat(x->fd, &st) || !S_ISREG(st.st_mode) || !is_ours(x)) {
		(void)close(x->fd);
		x->fd = -1;
		return x;
	}
	(void)posix_fadvise(x->fd, 0, 0, POSIX_FADV_WILLNEED);
	scan(x, (uint64_t)st.st_size);
	return x;
}

void replica_index_close(struct replica_index *x)
{
	if (x && x->fd >= 0)
		(void)close(x->fd);
	free(x);
}

/* ---- reading ---- */

/* By ascending id, each in the directory where it belongs. */
static int get_entries(const uint8_t *buf, uint32_t n, uint32_t count, struct index_entry *ret)
{
	struct rd r = rd_init(buf, (size_t)count * INDEX_ENTRY);

	for (uint32_t i = 0; i < count; i++) {
		const int64_t id = (int64_t)rd_be64(&r);
		const uint64_t gs = rd_be64(&r), len = rd_be64(&r);

		if (((uint64_t)id >> 16 & 0x1f) * 32 + ((uint64_t)id >> 8 & 0x1f) != n ||
		    (i && id <= ret[i - 1].id) || gs > INT64_MAX)
			return -EBADMSG;
		ret[i] = (struct index_entry){id, gs, len & ~PINNED, (len & PINNED) != 0};
	}
	return 0;
}

/* Head and entries as they are in the file. */
static int read_record(struct replica_index *x, uint32_t n, uint8_t **ret)
{
	struct index_record *rec = &x->dir[n], again;
	const size_t size = (size_t)record_bytes(rec->count);
	uint8_t *buf = malloc(size);
	uint32_t crc, number;
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = file_read_full(x->fd, buf, size, rec->at);
	if (!rc)
		rc = get_head(buf, &number, &again, &crc);
	if (!rc && (number != n || again.count != rec->count ||
		    crc != crc_compute(CRC_CRC32C, buf + INDEX_HEAD, size - INDEX_HEAD)))
		rc = -EBADMSG;
	if (rc) {
		free(buf);
		replica_index_forget(x, n);
		return -EBADMSG;
	}
	*ret = buf;
	return 0;
}

int replica_index_read(struct replica_index *x, uint32_t n, struct index_entry **ret)
{
	const uint32_t count = x->dir[n].count;
	_cleanup_free_ uint8_t *buf = NULL;
	struct index_entry *list;
	int rc = x->dir[n].at ? read_record(x, n, &buf) : -ENOENT;

	if (rc)
		return rc;
	list = calloc(count ? count : 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	rc = get_entries(buf + INDEX_HEAD, n, count, list);
	if (rc) {
		free(list);
		replica_index_forget(x, n);
		return rc;
	}
	*ret = list;
	return 0;
}

/* ---- writing ---- */

void replica_index_forget(struct replica_index *x, uint32_t n)
{
	x->dir[n] = (struct index_record){0};
}

/* A new file with what counts; the old one stays when that fails. */
static int write_anew(struct replica_index *x)
{
	struct index_record dir[INDEX_DIRS];
	uint8_t header[INDEX_HEADER];
	int fd = openat(x->slice_fd, TMP_NAME,
			O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	uint64_t end = INDEX_HEADER;
	uint32_t records = 0;
	int rc = fd < 0 ? neg_errno() : 0;

	put_header(header, &x->owner);
	if (!rc)
		rc = file_write_full(fd, header, sizeof(header), 0);
	for (uint32_t n = 0; !rc && n < INDEX_DIRS; n++) {
		_cleanup_free_ uint8_t *buf = NULL;

		dir[n] = (struct index_record){0};
		if (!x->dir[n].at || read_record(x, n, &buf))
			continue;
		dir[n] = x->dir[n];
		dir[n].at = end;
		rc = file_write_full(fd, buf, (size_t)record_bytes(dir[n].count), end);
		end += record_bytes(dir[n].count);
		records++;
	}
	/* A name that outlives a power cut without its bytes would only be slow. */
	if (!rc)
		rc = ret_errno(fdatasync(fd));
	if (!rc)
		rc = ret_errno(renameat(x->slice_fd, TMP_NAME, x->slice_fd, INDEX_NAME));
	if (rc) {
		if (fd >= 0)
			(void)close(fd);
		(void)unlinkat(x->slice_fd, TMP_NAME, 0);
		return rc;
	}
	if (x->fd >= 0)
		(void)close(x->fd);
	x->fd = fd;
	x->end = end;
	x->records = records;
	x->cut = true;
	memcpy(x->dir, dir, sizeof(dir));
	return 0;
}

static uint8_t *make_record(uint32_t n, const struct dir_stamp *stamp,
			    const struct index_entry *list, uint32_t count)
{
	const size_t size = (size_t)record_bytes(count);
	uint8_t *buf = malloc(size);
	struct wr w;

	if (!buf)
		return NULL;
	w = wr_init(buf + INDEX_HEAD, size - INDEX_HEAD);
	for (uint32_t i = 0; i < count; i++) {
		wr_be64(&w, (uint64_t)list[i].id);
		wr_be64(&w, list[i].gs);
		wr_be64(&w, list[i].len | (list[i].pinned ? PINNED : 0));
	}
	put_head(buf, n, stamp, count,
		 crc_compute(CRC_CRC32C, buf + INDEX_HEAD, size - INDEX_HEAD));
	return buf;
}

int replica_index_write(struct replica_index *x, uint32_t n, const struct dir_stamp *stamp,
			const struct index_entry *list, uint32_t count)
{
	_cleanup_free_ uint8_t *buf = NULL;
	int rc = 0;

	if (count > INDEX_ENTRIES_MAX)
		return -E2BIG;
	if (x->fd < 0 || x->records >= TIDY_RECORDS)
		rc = write_anew(x);
	/* What is there may have a whole record further on, which would count as a newer one. */
	if (!rc && !x->cut)
		rc = ret_errno(ftruncate(x->fd, (off_t)x->end));
	if (!rc) {
		x->cut = true;
		buf = make_record(n, stamp, list, count);
	}
	if (!rc && !buf)
		rc = -ENOMEM;
	if (rc)
		return rc;
	rc = file_write_full(x->fd, buf, (size_t)record_bytes(count), x->end);
	if (rc) {
		/* What stays of it is no whole record, or is one that was true. */
		x->cut = !ftruncate(x->fd, (off_t)x->end);
		return rc;
	}
	x->dir[n] = (struct index_record){.stamp = *stamp, .at = x->end, .count = count};
	x->end += record_bytes(count);
	x->records++;
	return 0;
}

int replica_index_tidy(struct replica_index *x)
{
	uint64_t live = INDEX_HEADER;

	for (uint32_t n = 0; n < INDEX_DIRS; n++)
		if (x->dir[n].at)
			live += record_bytes(x->dir[n].count);
	return x->fd >= 0 && x->end > 2 * live + SLACK ? write_anew(x) : 0;
}
