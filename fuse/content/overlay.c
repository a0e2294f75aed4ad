/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "fuse/session/state.h"

#define EXTENTS_FIRST 16
#define LINE_MAX_BYTES 1024   /* of the record */
#define RECORD_MAX (8u << 20) /* a longer one is written anew, without what no longer holds */
#define ZEROS 65536

struct extent {
	uint64_t start, end;
};

struct overlay {
	struct overlay_budget *budget; /* borrowed (outlives us) */
	struct overlay_of of;
	int dir;     /* borrowed (outlives us) */
	uint64_t n;  /* the files are N.data and N.log */
	int fd, log; /* owned; -1: none */
	uint64_t log_bytes;
	uint64_t new_id; /* of the file that takes its place; 0: none yet */
	uint64_t new_length;
	bool changed; /* after new_id was noted */
	bool cut;
	uint64_t base;       /* bytes of the base that still count; shrinks when the file is cut */
	uint64_t base_first; /* length of the base as it is in HDFS */
	uint64_t length;
	uint64_t bytes;        /* in extents */
	struct extent *extent; /* owned; sorted, apart from each other */
	size_t count, room;
};

uint64_t overlay_length(const struct overlay *o)
{
	return o->length;
}

uint64_t overlay_first_change(const struct overlay *o)
{
	uint64_t first = o->length;

	if (o->base < first)
		first = o->base;
	if (o->count > 0 && o->extent[0].start < first)
		first = o->extent[0].start;
	return first;
}

/* Index of the first extent that ends at or behind @offset. */
static size_t find(const struct overlay *o, uint64_t offset)
{
	size_t low = 0, high = o->count;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (o->extent[mid].end < offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* How many bytes of [start, end) are in no extent. */
static uint64_t missing(const struct overlay *o, uint64_t start, uint64_t end)
{
	uint64_t n = end - start;

	for (size_t i = find(o, start); i < o->count && o->extent[i].start < end; i++) {
		const uint64_t a = o->extent[i].start > start ? o->extent[i].start : start;
		const uint64_t b = o->extent[i].end < end ? o->extent[i].end : end;

		n -= b > a ? b - a : 0;
	}
	return n;
}

bool overlay_is_changed(const struct overlay *o, uint64_t start, uint64_t end)
{
	return end > o->base || missing(o, start, end) < end - start;
}

static int take_budget(struct overlay *o, uint64_t n)
{
	if (atomic_fetch_add(&o->budget->used, n) + n > o->budget->limit) {
		atomic_fetch_sub(&o->budget->used, n);
		return -ENOSPC;
	}
	o->bytes += n;
	return 0;
}

static int make_room(struct overlay *o)
{
	const size_t room = o->room ? 2 * o->room : EXTENTS_FIRST;
	struct extent *e;

	if (o->count < o->room)
		return 0;
	if (o->count >= OVERLAY_EXTENTS_MAX)
		return -EFBIG;
	e = realloc(o->extent, room * sizeof(*e));
	if (!e)
		return -ENOMEM;
	o->extent = e;
	o->room = room;
	return 0;
}

/* [start, end) is in the local file: one extent out of it and those it touches. There is room. */
static void add_extent(struct overlay *o, uint64_t start, uint64_t end)
{
	const size_t i = find(o, start);
	size_t j = i;

	while (j < o->count && o->extent[j].start <= end) {
		if (o->extent[j].start < start)
			start = o->extent[j].start;
		if (o->extent[j].end > end)
			end = o->extent[j].end;
		j++;
	}
	memmove(&o->extent[i + 1], &o->extent[j], (o->count - j) * sizeof(*o->extent));
	o->extent[i] = (struct extent){start, end};
	o->count = o->count - (j - i) + 1;
}

static int write_all(int fd, const void *buf, size_t len, uint64_t offset)
{
	const uint8_t *p = buf;

	while (len > 0) {
		const ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? neg_errno() : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int read_all(int fd, void *buf, size_t len, uint64_t offset)
{
	uint8_t *p = buf;

	while (len > 0) {
		const ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? neg_errno() : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* ---- the record ---- */

static void file_name(const struct overlay *o, const char *what, char buf[STATE_NAME_MAX])
{
	snprintf(buf, STATE_NAME_MAX, "%" PRIu64 ".%s", o->n, what);
}

__attribute__((format(printf, 2, 3))) static int record(struct overlay *o, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;
	ssize_t n;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	n = write(o->log, line, (size_t)len);
	if (n == len) {
		o->log_bytes += (uint64_t)n;
		return 0;
	}
	if (n > 0) /* half a line must not become the beginning of the next one */
		(void)ret_errno(ftruncate(o->log, (off_t)o->log_bytes));
	return n < 0 ? neg_errno() : -ENOSPC;
}

static int record_new(struct overlay *o)
{
	return record(o, "n %" PRIu64 " %" PRIu64 "\n", o->new_id, o->new_length);
}

static int record_base(struct overlay *o)
{
	char hex[2 * DFS_NAME_MAX + 1];

	state_hex(o->of.name[0] ? o->of.name : "?", hex);
	return record(o,
		      "dfs-fuse overlay 1\nof %" PRIu64 " length %" PRIu64 " mtime %" PRIu64
		      " uid %u dir %" PRIu64 " name %s\n",
		      o->of.id, o->of.length, o->of.mtime_ms, o->of.uid, o->of.dir_id, hex);
}

static int open_file(const struct overlay *o, const char *what, int flags, int *ret)
{
	char name[STATE_NAME_MAX];
	int rc;

	file_name(o, what, name);
	rc = ret_errno(openat(o->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (rc >= 0)
		*ret = rc;
	return rc < 0 ? rc : 0;
}

/* The record as short as it can be, under the same name. The old one counts until then. */
static int shorten(struct overlay *o)
{
	const int old = o->log;
	const uint64_t old_bytes = o->log_bytes;
	char from[STATE_NAME_MAX], to[STATE_NAME_MAX];
	int rc = open_file(o, "log.new", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, &o->log);

	if (rc < 0)
		return rc;
	o->log_bytes = 0;
	rc = record_base(o);
	rc = rc ?: record(o, "t %" PRIu64 "\n", o->base);
	for (size_t i = 0; i < o->count && rc == 0; i++)
		rc = record(o, "w %" PRIu64 " %" PRIu64 "\n", o->extent[i].start, o->extent[i].end);
	rc = rc ?: record(o, "t %" PRIu64 "\n", o->length);
	if (rc == 0 && o->cut)
		rc = record(o, "c\n");
	if (rc == 0 && o->new_id)
		rc = record_new(o);
	if (rc == 0 && o->changed) /* a line behind it says so */
		rc = record(o, "t %" PRIu64 "\n", o->length);
	file_name(o, "log.new", from);
	file_name(o, "log", to);
	rc = rc ?: ret_errno(renameat(o->dir, from, o->dir, to));
	if (rc < 0) {
		(void)close(o->log);
		(void)unlinkat(o->dir, from, 0);
		o->log = old;
		o->log_bytes = old_bytes;
		return rc;
	}
	(void)close(old);
	return 0;
}

static int room_in_record(struct overlay *o)
{
	return o->log_bytes > RECORD_MAX ? shorten(o) : 0;
}

/* ---- life ---- */

static struct overlay *alloc(int dir, uint64_t n, struct overlay_budget *b)
{
	struct overlay *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->budget = b;
	o->dir = dir;
	o->n = n;
	o->fd = o->log = -1;
	return o;
}

int overlay_new(int dir, uint64_t n, struct overlay_budget *b, const struct overlay_of *of,
		struct overlay **ret)
{
	struct overlay *o = alloc(dir, n, b);
	int rc;

	if (!o)
		return -ENOMEM;
	o->of = *of;
	o->base = o->base_first = o->length = of->length;
	rc = open_file(o, "data", O_RDWR | O_CREAT | O_EXCL, &o->fd);
	rc = rc ?: open_file(o, "log", O_WRONLY | O_CREAT | O_EXCL | O_APPEND, &o->log);
	rc = rc ?: record_base(o);
	if (rc < 0) {
		overlay_free(o);
		return rc;
	}
	*ret = o;
	return 0;
}

void overlay_leave(struct overlay *o)
{
	if (!o)
		return;
	atomic_fetch_sub(&o->budget->used, o->bytes);
	if (o->fd >= 0)
		(void)close(o->fd);
	if (o->log >= 0)
		(void)close(o->log);
	free(o->extent);
	free(o);
}

void overlay_free(struct overlay *o)
{
	char name[STATE_NAME_MAX];

	if (!o)
		return;
	if (o->log >= 0) { /* first: data without a record are nothing */
		file_name(o, "log", name);
		(void)unlinkat(o->dir, name, 0);
	}
	if (o->fd >= 0) {
		file_name(o, "data", name);
		(void)unlinkat(o->dir, name, 0);
	}
	overlay_leave(o);
}

const struct overlay_of *overlay_base(const struct overlay *o)
{
	return &o->of;
}

static void set_new(struct overlay *o, uint64_t id, uint64_t length)
{
	o->new_id = id;
	o->new_length = length;
	o->changed = false;
}

int overlay_note_new(struct overlay *o, uint64_t id)
{
	set_new(o, id, o->length);
	return record_new(o);
}

uint64_t overlay_new_id(const struct overlay *o)
{
	return o->new_id;
}

/* A line of a change was written, or read. */
static void note_change(struct overlay *o)
{
	o->changed = o->new_id != 0;
}

bool overlay_is_changed_since(const struct overlay *o)
{
	return o->changed;
}

static void set_base(struct overlay *o, uint64_t id, uint64_t length, uint64_t mtime_ms)
{
	o->of.id = id;
	o->of.length = length;
	o->of.mtime_ms = mtime_ms;
	set_new(o, 0, 0);
}

int overlay_take_new(struct overlay *o, uint64_t mtime_ms)
{
	int rc = record(o, "b %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", o->new_id, o->new_length,
			mtime_ms);

	if (rc == 0)
		set_base(o, o->new_id, o->new_length, mtime_ms);
	return rc;
}

int overlay_note_cut(struct overlay *o)
{
	int rc = record(o, "c\n");

	o->cut = true;
	note_change(o);
	return rc;
}

bool overlay_is_cut(const struct overlay *o)
{
	return o->cut;
}

/* ---- changes ---- */

int overlay_write(struct overlay *o, const void *buf, size_t len, uint64_t offset)
{
	const uint64_t end = offset + len;
	uint64_t fresh;
	int rc;

	if (len == 0)
		return 0;
	if (end > INT64_MAX || end < offset)
		return -EFBIG;
	fresh = missing(o, offset, end);
	rc = make_room(o);
	rc = rc ?: room_in_record(o);
	rc = rc ?: take_budget(o, fresh);
	if (rc < 0)
		return rc;
	rc = write_all(o->fd, buf, len, offset);
	/* also the first change of bytes that are going to be published: overlay_note_new() */
	if (rc == 0 && (fresh > 0 || (o->new_id && !o->changed)))
		rc = record(o, "w %" PRIu64 " %" PRIu64 "\n", offset, end);
	if (rc < 0) {
		atomic_fetch_sub(&o->budget->used, fresh);
		o->bytes -= fresh;
		return rc;
	}
	note_change(o);
	add_extent(o, offset, end);
	if (end > o->length)
		o->length = end;
	return 0;
}

/* One stretch that is all in one place. */
static ssize_t read_piece(struct overlay *o, void *buf, uint64_t offset, uint64_t end,
			  overlay_base_fn *base, void *arg)
{
	const size_t i = find(o, offset + 1); /* the first that ends behind the byte */
	int rc = 0;

	if (i < o->count && o->extent[i].start <= offset) {
		end = end < o->extent[i].end ? end : o->extent[i].end;
		rc = read_all(o->fd, buf, (size_t)(end - offset), offset);
		return rc < 0 ? rc : (ssize_t)(end - offset);
	}
	if (i < o->count && o->extent[i].start < end)
		end = o->extent[i].start;
	if (offset < o->base) {
		end = end < o->base ? end : o->base;
		rc = base(arg, buf, (size_t)(end - offset), offset);
	} else {
		memset(buf, 0, (size_t)(end - offset));
	}
	return rc < 0 ? rc : (ssize_t)(end - offset);
}

ssize_t overlay_read(struct overlay *o, void *buf, size_t len, uint64_t offset,
		     overlay_base_fn *base, void *arg)
{
	size_t done = 0;

	if (offset >= o->length)
		return 0;
	if (len > o->length - offset)
		len = (size_t)(o->length - offset);
	while (done < len) {
		const ssize_t n = read_piece(o, (uint8_t *)buf + done, offset + done, offset + len,
					     base, arg);

		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static void cut_extents(struct overlay *o, uint64_t length)
{
	if (length < o->base)
		o->base = length;
	while (o->count > 0 && o->extent[o->count - 1].end > length) {
		struct extent *last = &o->extent[o->count - 1];
		const uint64_t from = last->start > length ? last->start : length;

		o->bytes -= last->end - from;
		atomic_fetch_sub(&o->budget->used, last->end - from);
		if (last->start >= length)
			o->count--;
		else
			last->end = length;
	}
	o->length = length;
}

int overlay_truncate(struct overlay *o, uint64_t length)
{
	int rc;

	if (length > INT64_MAX)
		return -EFBIG;
	if (length == o->length)
		return 0;
	rc = room_in_record(o);
	rc = rc ?: record(o, "t %" PRIu64 "\n", length);
	if (rc < 0)
		return rc;
	note_change(o);
	cut_extents(o, length);
	(void)ret_errno(ftruncate(o->fd, (off_t)length)); /* only frees space */
	return 0;
}

int overlay_zero(struct overlay *o, uint64_t offset, uint64_t len)
{
	static const uint8_t zeros[ZEROS];
	uint64_t end = offset + len;
	int rc = 0;

	if (end > o->length || end < offset)
		end = o->length;
	/* behind the base, bytes in no extent are zeros already: only what is written needs a
	 * change */
	while (rc == 0 && offset < end) {
		const size_t n = end - offset < ZEROS ? (size_t)(end - offset) : ZEROS;

		if (offset < o->base || missing(o, offset, offset + n) < n)
			rc = overlay_write(o, zeros, n, offset);
		offset += n;
	}
	return rc;
}

/* ---- what a dead mount has left ---- */

/* Lines that change nothing of the content; false: it is none. */
static bool load_note(struct overlay *o, const char *line)
{
	uint64_t id, length, mtime_ms;
	int n = sscanf(line, "n %" SCNu64 " %" SCNu64, &id, &length);

	if (n == 1) /* of an older mount */
		length = o->length;
	if (n < 1)
		n = sscanf(line, "b %" SCNu64 " %" SCNu64 " %" SCNu64, &id, &length, &mtime_ms);
	if (n < 1 || length > INT64_MAX || (line[0] == 'b' && n != 3))
		return false;
	if (line[0] == 'b')
		set_base(o, id, length, mtime_ms);
	else
		set_new(o, id, length);
	return true;
}

static int load_line(struct overlay *o, const char *line)
{
	uint64_t a, b;
	int rc;

	if (load_note(o, line))
		return 0;
	if (sscanf(line, "w %" SCNu64 " %" SCNu64, &a, &b) == 2 && a < b && b <= INT64_MAX) {
		const uint64_t fresh = missing(o, a, b);

		rc = make_room(o);
		if (rc < 0)
			return rc;
		o->bytes += fresh;
		/* also beyond the limit: it is there already */
		atomic_fetch_add(&o->budget->used, fresh);
		add_extent(o, a, b);
		o->length = b > o->length ? b : o->length;
	} else if (sscanf(line, "t %" SCNu64, &a) == 1 && a <= INT64_MAX) {
		cut_extents(o, a);
	} else if (strcmp(line, "c\n") == 0) {
		o->cut = true;
	} else {
		return -EINVAL;
	}
	note_change(o);
	return 0;
}

static int load_base(struct overlay *o, FILE *f)
{
	char line[LINE_MAX_BYTES], hex[2 * DFS_NAME_MAX + 1];
	struct overlay_of *of = &o->of;

	if (!fgets(line, sizeof(line), f) || strcmp(line, "dfs-fuse overlay 1\n") != 0 ||
	    !fgets(line, sizeof(line), f) || !strchr(line, '\n') ||
	    sscanf(line,
		   "of %" SCNu64 " length %" SCNu64 " mtime %" SCNu64 " uid %u dir %" SCNu64
		   " name %510s",
		   &of->id, &of->length, &of->mtime_ms, &of->uid, &of->dir_id, hex) != 6 ||
	    of->length > INT64_MAX || !state_unhex(hex, of->name))
		return -EINVAL;
	if (strcmp(of->name, "?") == 0)
		of->name[0] = '\0';
	o->base = o->base_first = o->length = of->length;
	return 0;
}

int overlay_load(int dir, uint64_t n, struct overlay_budget *b, struct overlay **ret)
{
	struct overlay *o = alloc(dir, n, b);
	char line[LINE_MAX_BYTES];
	FILE *f = NULL;
	int rc = o ? 0 : -ENOMEM, fd = -1;

	rc = rc ?: open_file(o, "data", O_RDWR, &o->fd);
	rc = rc ?: open_file(o, "log", O_WRONLY | O_APPEND, &o->log);
	rc = rc ?: open_file(o, "log", O_RDONLY, &fd);
	if (rc == 0)
		f = fdopen(fd, "r");
	if (rc == 0)
		rc = f ? load_base(o, f) : -ENOMEM;
	if (rc == 0)
		o->log_bytes = (uint64_t)ftello(f);
	while (rc == 0 && fgets(line, sizeof(line), f) && strchr(line, '\n')) {
		rc = load_line(o, line);
		o->log_bytes += strlen(line);
	}
	if (rc == 0) /* what comes must not be the end of a line that was torn */
		rc = ret_errno(ftruncate(o->log, (off_t)o->log_bytes));
	if (f)
		fclose(f);
	if (rc < 0) {
		overlay_leave(o);
		return rc;
	}
	*ret = o;
	return 0;
}
