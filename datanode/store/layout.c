/* SPDX-License-Identifier: Apache-2.0 */
/* The disk layout of HDFS below a volume: in which sub-directory the files of a replica lie, what
 * they are called, the header of a meta file, and how files move between rbw, tmp and finalized. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/cursor.h"
#include "common/base/sync_dir.h"

int path_dir(char buf[STORE_NAME_MAX], enum place p, int64_t id)
{
	switch (p) {
	case IN_FINALIZED:
		return snprintf(buf, STORE_NAME_MAX, "finalized/subdir%d/subdir%d",
				(int)((id >> 16) & 0x1f), (int)((id >> 8) & 0x1f));
	case IN_RBW:
		return snprintf(buf, STORE_NAME_MAX, "rbw");
	case IN_TMP:
		break;
	}
	return snprintf(buf, STORE_NAME_MAX, "../tmp");
}

void path_data(char buf[STORE_NAME_MAX], enum place p, int64_t id)
{
	int n = path_dir(buf, p, id);

	(void)snprintf(buf + n, (size_t)(STORE_NAME_MAX - n), "/blk_%" PRId64, id);
}

void path_meta(char buf[STORE_NAME_MAX], enum place p, int64_t id, uint64_t gs)
{
	int n = path_dir(buf, p, id);

	(void)snprintf(buf + n, (size_t)(STORE_NAME_MAX - n), "/blk_%" PRId64 "_%" PRIu64 ".meta",
		       id, gs);
}

int path_sync(int slice_fd, const char *name)
{
	return sync_dir_at(slice_fd, name);
}

int path_sync_dir(int slice_fd, enum place p, int64_t id)
{
	char dir[STORE_NAME_MAX];

	(void)path_dir(dir, p, id);
	return path_sync(slice_fd, dir);
}

int path_make_dir(const struct slice *sl, enum place p, int64_t id)
{
	const int slice_fd = sl->fd;
	char dir[STORE_NAME_MAX], parent[STORE_NAME_MAX];

	(void)path_dir(dir, p, id);
	if (p != IN_FINALIZED || faccessat(slice_fd, dir, F_OK, 0) == 0)
		return 0;
	(void)snprintf(parent, sizeof(parent), "finalized/subdir%d", (int)((id >> 16) & 0x1f));
	if (mkdirat(slice_fd, parent, 0755) && errno != EEXIST)
		return neg_errno();
	if (mkdirat(slice_fd, dir, 0755) && errno != EEXIST)
		return neg_errno();
	/* Once per directory: a synced block must not hang in an unsynced directory. A journal sees
	 * to that. */
	if (sl->vol->ordered)
		return 0;
	return path_sync(slice_fd, "finalized") ?: path_sync(slice_fd, parent);
}

/* A leftover of a crash under the new name is of no worth: the block is not there in the map. */
static int link_over(const struct slice *sl, const char *from, const char *to, enum place p,
		     int64_t id)
{
	const int fd = sl->fd;
	int rc;

	if (linkat(fd, from, fd, to, 0) == 0)
		return 0;
	if (errno == ENOENT) { /* the first block of its directory */
		rc = path_make_dir(sl, p, id);
		if (rc)
			return rc;
		if (linkat(fd, from, fd, to, 0) == 0)
			return 0;
	}
	if (errno != EEXIST)
		return neg_errno();
	if (unlinkat(fd, to, 0))
		return neg_errno();
	return ret_errno(linkat(fd, from, fd, to, 0));
}

int pair_move_files(const struct slice *sl, const char *data, const char *meta, int64_t id,
		    enum place to, uint64_t new_gs)
{
	char new_data[STORE_NAME_MAX], new_meta[STORE_NAME_MAX];
	int rc;

	path_data(new_data, to, id);
	path_meta(new_meta, to, id, new_gs);
	rc = link_over(sl, meta, new_meta, to, id);
	if (!rc)
		rc = link_over(sl, data, new_data, to, id);
	if (rc)
		return rc;
	/* The pair stands at the new place; what fails to go from the old one, the next start
	 * removes. */
	(void)unlinkat(sl->fd, data, 0);
	(void)unlinkat(sl->fd, meta, 0);
	return 0;
}

int pair_move(const struct slice *sl, int64_t id, enum place from, uint64_t gs, enum place to,
	      uint64_t new_gs)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];

	path_data(data, from, id);
	path_meta(meta, from, id, gs);
	return pair_move_files(sl, data, meta, id, to, new_gs);
}

int pair_unlink(int slice_fd, int64_t id, enum place p, uint64_t gs)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	int rc = 0;

	path_data(data, p, id);
	path_meta(meta, p, id, gs);
	if (unlinkat(slice_fd, data, 0) && errno != ENOENT)
		rc = neg_errno();
	if (unlinkat(slice_fd, meta, 0) && errno != ENOENT && !rc)
		rc = neg_errno();
	return rc;
}

int file_write_out(int fd)
{
	if (!sync_file_range(fd, 0, 0,
			     SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				     SYNC_FILE_RANGE_WAIT_AFTER))
		return 0;
	if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
		return neg_errno(); /* told once: a sync after it would not know */
	return ret_errno(fdatasync(fd));
}

int meta_write_header(int fd, enum crc_type type, uint32_t bpc)
{
	uint8_t buf[META_HEADER_LEN];
	struct wr w = wr_init(buf, sizeof(buf));

	wr_be16(&w, 1); /* version */
	wr_u8(&w, (uint8_t)type);
	wr_be32(&w, bpc);
	return file_write_full(fd, buf, sizeof(buf), 0);
}

int meta_read_header(int fd, enum crc_type *ret_type, uint32_t *ret_bpc)
{
	uint8_t buf[META_HEADER_LEN];
	struct rd r = rd_init(buf, sizeof(buf));
	int rc = file_read_full(fd, buf, sizeof(buf), 0);
	uint32_t version, type, bpc;
	struct stat st;

	if (rc)
		return rc == -ENODATA ? -EBADMSG : rc;
	version = rd_be16(&r);
	type = rd_u8(&r);
	bpc = rd_be32(&r);
	if (version != 1 || type > CRC_CRC32C || bpc == 0 || bpc > META_BPC_MAX)
		return -EBADMSG;
	/* One flipped bit makes CRC32C of it: whoever has CRCs has a type. */
	if (type == CRC_NULL && fstat(fd, &st))
		return neg_errno();
	if (type == CRC_NULL && st.st_size != META_HEADER_LEN)
		return -EBADMSG;
	*ret_type = (enum crc_type)type;
	*ret_bpc = bpc;
	return 0;
}

int meta_check_length(int fd, enum crc_type type, uint32_t bpc, uint64_t len)
{
	struct stat st;

	if (fstat(fd, &st))
		return neg_errno();
	return (uint64_t)st.st_size < META_HEADER_LEN + crc_bytes(type, len, bpc) ? -EBADMSG : 0;
}

int meta_cut_crc(int fd, int fd_meta, enum crc_type type, uint32_t bpc, uint64_t len,
		 uint64_t new_len, uint32_t *ret_crc)
{
	uint64_t chunk = (new_len ? new_len - 1 : 0) / bpc, start = chunk * bpc;
	size_t have = (size_t)(len - start < bpc ? len - start : bpc);
	_cleanup_free_ uint8_t *buf = NULL;
	uint8_t stored[4];
	int rc;

	*ret_crc = 0;
	if (type == CRC_NULL || !new_len)
		return 0;
	buf = malloc(have ? have : 1);
	if (!buf)
		return -ENOMEM;
	rc = file_read_full(fd, buf, have, start);
	if (!rc)
		rc = file_read_full(fd_meta, stored, sizeof(stored), META_HEADER_LEN + 4 * chunk);
	if (rc)
		return rc == -ENODATA ? -EBADMSG : rc;
	if (crc_verify(type, buf, have, bpc, stored) != -1)
		return -EBADMSG;
	*ret_crc = crc_compute(type, buf, (size_t)(new_len - start));
	return 0;
}

/* Copy the CRCs of the full chunks of @new_len bytes, add the last one. */
static int meta_copy(int from, int to, enum crc_type type, uint32_t bpc, uint64_t new_len,
		     uint32_t last_crc)
{
	uint64_t full = META_HEADER_LEN, off = 0;
	uint8_t last[4], buf[16384];
	struct wr w = wr_init(last, sizeof(last));
	int rc = 0;

	if (type != CRC_NULL)
		full += new_len / bpc * 4;
	while (!rc && off < full) {
		size_t n = full - off < sizeof(buf) ? (size_t)(full - off) : sizeof(buf);

		rc = file_read_full(from, buf, n, off);
		if (!rc)
			rc = file_write_full(to, buf, n, off);
		off += n;
	}
	wr_be32(&w, last_crc);
	if (!rc && type != CRC_NULL && new_len % bpc)
		rc = file_write_full(to, last, sizeof(last), full);
	return rc ? rc : ret_errno(fsync(to));
}

static int shorten(int slice_fd, const char *data, const char *meta, const char *new_meta,
		   uint64_t len, uint64_t new_len)
{
	_cleanup_close_ int fd = openat(slice_fd, data, O_RDWR | O_CLOEXEC);
	_cleanup_close_ int old = openat(slice_fd, meta, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int new = -1;
	char tmp[STORE_NAME_MAX + 8];
	enum crc_type type;
	uint32_t bpc, crc;
	int rc;

	if (fd < 0 || old < 0)
		return neg_errno();
	rc = meta_read_header(old, &type, &bpc);
	if (!rc)
		rc = meta_cut_crc(fd, old, type, bpc, len, new_len, &crc);
	if (rc)
		return rc;
	(void)snprintf(tmp, sizeof(tmp), "%s.tmp", new_meta);
	new = openat(slice_fd, tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (new < 0)
		return neg_errno();
	rc = meta_copy(old, new, type, bpc, new_len, crc);
	if (!rc)
		rc = ret_errno(renameat(slice_fd, tmp, slice_fd, new_meta));
	if (rc) {
		(void)unlinkat(slice_fd, tmp, 0);
		return rc;
	}
	/* Two meta files now: a start takes the one that fits the length of the data. */
	if (ftruncate(fd, (off_t)new_len) || fdatasync(fd))
		return neg_errno();
	return 0;
}

int pair_restamp(int slice_fd, int64_t id, enum place p, uint64_t gs, uint64_t len, uint64_t new_gs,
		 uint64_t new_len)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX], new_meta[STORE_NAME_MAX];
	int rc;

	path_data(data, p, id);
	path_meta(meta, p, id, gs);
	path_meta(new_meta, p, id, new_gs);
	if (new_len == len)
		return gs == new_gs ? 0 : ret_errno(renameat(slice_fd, meta, slice_fd, new_meta));
	rc = shorten(slice_fd, data, meta, new_meta, len, new_len);
	if (!rc && gs != new_gs)
		(void)unlinkat(slice_fd, meta, 0); /* else the next start does */
	return rc;
}

int replica_file_open(int dir_fd, const char *name)
{
	const int fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0)
		return neg_errno();
	rc = ret_errno(fstat(fd, &st));
	if (rc == 0 && S_ISREG(st.st_mode))
		return fd;
	(void)close(fd);
	return rc ? rc : -ENOENT;
}

void slice_open_direct(const struct slice *sl, const char *name, int flags, int *fd,
		       uint32_t *align)
{
	*align = sl->vol->dio_align ? sl->vol->dio_align : 1;
	*fd = sl->vol->dio_align ? openat(sl->fd, name, flags | O_DIRECT | O_CLOEXEC) : -1;
}
