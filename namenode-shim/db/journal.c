/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "common/base/sync_dir.h"

#define MAGIC 0x44464a31u /* "DFJ1" */
#define HEAD 24u
#define CRC_FROM 8u /* what the checksum covers begins here */
#define ALIGN 8u
#define AHEAD (1u << 20)
#define PREFIX "journal."

struct journal {
	int fd;
	/* of the records, of those that are durable; of the file */
	uint64_t end, synced, allocated;
	char path[4300];
};

struct record {
	uint64_t seq;
	uint32_t len, kind;
	const uint8_t *payload;
};

struct segment {
	uint64_t first;
	uint8_t *p; /* owned */
	size_t len, at;
};

static void segment_path(char *buf, size_t size, const char *dir, uint64_t first)
{
	snprintf(buf, size, "%s/" PREFIX "%" PRIu64, dir, first);
}

static uint32_t padding(uint64_t len)
{
	return (uint32_t)(-len & (ALIGN - 1));
}

/* ---- writing ---- */

/* All of it. */
static int write_at(int fd, uint64_t at, struct iovec *iov, int n)
{
	while (n) {
		ssize_t done = pwritev(fd, iov, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? neg_errno() : -EIO;
		at += (uint64_t)done;
		for (; n && (size_t)done >= iov->iov_len; iov++, n--)
			done -= (ssize_t)iov->iov_len;
		if (n) {
			iov->iov_base = (uint8_t *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return 0;
}

/* Zeros up to a good way beyond @need: a later record then changes no metadata of the file. */
static int allocate(struct journal *j, uint64_t need)
{
	static const uint8_t zeros[AHEAD];

	while (j->allocated < need) {
		struct iovec iov = {(void *)(uintptr_t)zeros, sizeof(zeros)};
		int rc = write_at(j->fd, j->allocated, &iov, 1);

		if (rc < 0)
			return rc;
		j->allocated += sizeof(zeros);
	}
	return 0;
}

int journal_new(const char *dir, uint64_t seq, struct journal **ret)
{
	struct journal *j = calloc(1, sizeof(*j));
	int rc;

	if (!j)
		return -ENOMEM;
	segment_path(j->path, sizeof(j->path), dir, seq);
	rc = j->fd = ret_errno(open(j->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	if (rc >= 0)
		rc = allocate(j, AHEAD);
	rc = rc < 0 ? rc : ret_errno(fsync(j->fd));
	rc = rc < 0 ? rc : sync_dir_at(AT_FDCWD, dir);
	if (rc < 0) {
		(void)unlink(j->path); /* it takes room */
		journal_free(j);
		return rc;
	}
	*ret = j;
	return 0;
}

void journal_free(struct journal *j)
{
	if (!j)
		return;
	if (j->fd >= 0)
		close(j->fd);
	free(j);
}

uint64_t journal_bytes(const struct journal *j)
{
	return j->end;
}

static void head_put(uint8_t *head, uint64_t seq, enum journal_kind kind, const void *buf,
		     size_t len)
{
	struct wr w = wr_init(head + CRC_FROM, HEAD - CRC_FROM);
	uint32_t crc;

	wr_be64(&w, seq);
	wr_be32(&w, (uint32_t)len);
	wr_be32(&w, kind);
	crc = crc_compute(CRC_CRC32C, head + CRC_FROM, HEAD - CRC_FROM);
	crc = crc_extend(CRC_CRC32C, crc, buf, len);
	w = wr_init(head, CRC_FROM);
	wr_be32(&w, MAGIC);
	wr_be32(&w, crc);
}

/* What was written at @at and failed must not come back as written. */
static void forget(struct journal *j, uint64_t at, int why)
{
	static const uint8_t zeros[HEAD];
	struct iovec iov = {(void *)(uintptr_t)zeros, sizeof(zeros)};
	int rc = write_at(j->fd, at, &iov, 1);

	rc = rc < 0 ? rc : ret_errno(fdatasync(j->fd));
	if (rc >= 0)
		return;
	log_error(
		"op=exit: a record of %s cannot be written (%s), nor be taken back (%s); see that the disk works, then "
		"start the NameNode again: it finds out whether the last changes are on the disk",
		j->path, err_name(why), err_name(rc));
	_exit(1);
}

bool journal_is_ahead(const struct journal *j)
{
	return j->end > j->synced;
}

int journal_write(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
		  size_t len)
{
	static const uint8_t zeros[ALIGN];
	uint8_t head[HEAD];
	struct iovec iov[] = {{head, HEAD},
			      {(void *)(uintptr_t)buf, len},
			      {(void *)(uintptr_t)zeros, padding(len)}};
	const uint64_t size = HEAD + len + padding(len);
	/* room to undo it */
	int rc = len > UINT32_MAX - HEAD - ALIGN ? -EFBIG : allocate(j, j->end + size + HEAD);

	if (rc < 0)
		return rc;
	if (kind == JOURNAL_DATA && journal_is_ahead(j))
		kind = JOURNAL_LOOSE;
	head_put(head, seq, kind, buf, len);
	rc = write_at(j->fd, j->end, iov, 3);
	if (rc < 0)
		forget(j, j->end, rc);
	else
		j->end += size;
	return rc;
}

int journal_sync(struct journal *j)
{
	int rc = ret_errno(fdatasync(j->fd));

	if (rc < 0) {
		forget(j, j->synced, rc); /* what is behind it is loose */
		j->end = j->synced;
		return rc;
	}
	j->synced = j->end;
	return 0;
}

int journal_append(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
		   size_t len)
{
	int rc = journal_write(j, seq, kind, buf, len);

	return rc < 0 ? rc : journal_sync(j);
}

/* ---- reading ---- */

static bool record_at(const struct segment *s, size_t at, struct record *ret)
{
	struct rd r = rd_init(s->p + at, s->len - at);
	const uint32_t magic = rd_be32(&r), crc = rd_be32(&r);

	ret->seq = rd_be64(&r);
	ret->len = rd_be32(&r);
	ret->kind = rd_be32(&r);
	ret->payload = rd_bytes(&r, ret->len);
	return !r.bad && magic == MAGIC &&
	       crc == crc_compute(CRC_CRC32C, s->p + at + CRC_FROM, HEAD - CRC_FROM + ret->len);
}

static size_t record_size(const struct record *r)
{
	return HEAD + (size_t)r->len + padding(r->len);
}

/* The next record; false: there is none, torn or not. */
static bool segment_next(struct segment *s, struct record *ret)
{
	if (s->at >= s->len || !record_at(s, s->at, ret))
		return false;
	s->at += record_size(ret);
	return true;
}

/* Is there a good record behind the place where they seem to end, before which all were durable? */
static bool goes_on(const struct segment *s)
{
	struct record r;

	for (size_t at = s->at + ALIGN; at + HEAD <= s->len; at += ALIGN)
		if (record_at(s, at, &r) && r.kind != JOURNAL_LOOSE)
			return true;
	return false;
}

static int segment_read(const char *path, struct segment *s)
{
	_cleanup_close_ int fd = ret_errno(open(path, O_RDONLY | O_CLOEXEC));
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return neg_errno();
	s->p = malloc((size_t)st.st_size + 1);
	if (!s->p)
		return -ENOMEM;
	while (s->len < (size_t)st.st_size) {
		ssize_t n = pread(fd, s->p + s->len, (size_t)st.st_size - s->len, (off_t)s->len);

		if (n < 0)
			return neg_errno();
		if (!n)
			break;
		s->len += (size_t)n;
	}
	return 0;
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* First numbers of all segments, in order. */
static int segments_list(const char *dir, uint64_t **ret, uint32_t *ret_n)
{
	DIR *d = opendir(dir);
	uint64_t *list = NULL;
	uint32_t n = 0;
	struct dirent *e;

	if (!d)
		return neg_errno();
	while (errno = 0, (e = readdir(d))) {
		char *end = NULL;
		uint64_t first;
		uint64_t *more;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)))
			continue;
		first = strtoull(e->d_name + strlen(PREFIX), &end, 10);
		if (*end || end == e->d_name + strlen(PREFIX))
			continue;
		more = realloc(list, (n + 1) * sizeof(*list));
		if (!more) {
			free(list);
			closedir(d);
			return -ENOMEM;
		}
		list = more;
		list[n++] = first;
	}
	if (errno) {
		const int rc = neg_errno();

		free(list);
		closedir(d);
		return rc;
	}
	closedir(d);
	if (n)
		qsort(list, n, sizeof(*list), compare_u64);
	*ret = list;
	*ret_n = n;
	return 0;
}

struct reading {
	int (*fn)(void *arg, uint64_t seq, const uint8_t *buf, size_t len);
	void *arg;
	uint64_t next; /* number to come */
};

static int damaged(struct err *err, const char *path, size_t at, const char *what)
{
	return err_set(err, -EBADMSG, "%s is damaged at byte %zu: %s", path, at, what);
}

/* @next_first: with what the next segment begins; 0: this is the last one. */
static int segment_each(struct segment *s, const char *path, uint64_t next_first, struct reading *g,
			struct err *err)
{
	struct record r, after;

	while (segment_next(s, &r)) {
		const size_t at = s->at;

		if (segment_next(s, &after) && after.kind == JOURNAL_UNDO && after.seq == r.seq)
			continue;
		s->at = at;
		if (r.seq < g->next)
			continue;
		if (r.seq > g->next || (r.kind != JOURNAL_DATA && r.kind != JOURNAL_LOOSE))
			return damaged(err, path, at - record_size(&r),
				       "records before this one are missing");
		int rc = g->fn(g->arg, r.seq, r.payload, r.len);

		if (rc < 0)
			return err_sys(err, rc, "%s: record %" PRIu64, path, r.seq);
		g->next = r.seq + 1;
	}
	if (goes_on(s))
		return damaged(err, path, s->at, "a record is broken, and others follow it");
	if (g->next < next_first)
		return damaged(err, path, s->at, "records are missing at its end");
	return 0;
}

int journal_each(const char *dir, uint64_t after,
		 int (*fn)(void *arg, uint64_t seq, const uint8_t *buf, size_t len), void *arg,
		 struct err *err)
{
	struct reading g = {fn, arg, after + 1};
	_cleanup_free_ uint64_t *first = NULL;
	uint32_t n = 0;
	int rc = segments_list(dir, &first, &n);

	if (rc < 0)
		return err_sys(err, rc, "cannot list %s", dir);
	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		struct segment s = {0};
		char path[4300];

		if (i + 1 < n && first[i + 1] <= g.next)
			continue; /* all of it is older */
		segment_path(path, sizeof(path), dir, first[i]);
		rc = segment_read(path, &s);
		if (rc < 0)
			err_sys(err, rc, "cannot read %s", path);
		else
			rc = segment_each(&s, path, i + 1 < n ? first[i + 1] : 0, &g, err);
		free(s.p);
	}
	return rc;
}

int journal_segments(const char *dir)
{
	_cleanup_free_ uint64_t *first = NULL;
	uint32_t n = 0;
	int rc = segments_list(dir, &first, &n);

	return rc < 0 ? rc : (int)n;
}

int journal_drop(const char *dir, uint64_t upto)
{
	_cleanup_free_ uint64_t *first = NULL;
	uint32_t n = 0;
	int rc = segments_list(dir, &first, &n);

	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		const uint64_t end = i + 1 < n ? first[i + 1] - 1 : UINT64_MAX;
		char path[4300];

		if (end > upto)
			break;
		segment_path(path, sizeof(path), dir, first[i]);
		rc = ret_errno(unlink(path));
	}
	return rc;
}
