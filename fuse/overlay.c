/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"

#define EXTENTS_FIRST 16
#define ZEROS 65536

struct extent {
	uint64_t start, end;
};

struct overlay {
	struct overlay_budget *budget; /* borrowed (outlives us) */
	int fd;
	uint64_t base;    /* bytes of the base that still count; shrinks when the file is cut */
	uint64_t base_first; /* length of the base as it is in HDFS */
	uint64_t length;
	uint64_t bytes;   /* in extents */
	struct extent *extent; /* owned; sorted, apart from each other */
	size_t count, room;
};

int overlay_new(const char *dir, struct overlay_budget *b, uint64_t base_length, struct overlay **ret)
{
	struct overlay *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return -ENOMEM;
	o->budget = b;
	o->base = o->base_first = o->length = base_length;
	rc = o->fd = ret_errno(open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	if (rc < 0) {
		overlay_free(o);
		return rc;
	}
	*ret = o;
	return 0;
}

void overlay_free(struct overlay *o)
{
	if (!o)
		return;
	atomic_fetch_sub(&o->budget->used, o->bytes);
	if (o->fd >= 0)
		(void)close(o->fd);
	free(o->extent);
	free(o);
}

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
	rc = rc ?: take_budget(o, fresh);
	if (rc < 0)
		return rc;
	rc = write_all(o->fd, buf, len, offset);
	if (rc < 0) {
		atomic_fetch_sub(&o->budget->used, fresh);
		o->bytes -= fresh;
		return rc;
	}
	add_extent(o, offset, end);
	if (end > o->length)
		o->length = end;
	return 0;
}

/* One stretch that is all in one place. */
static ssize_t read_piece(struct overlay *o, void *buf, uint64_t offset, uint64_t end, overlay_base_fn *base,
			  void *arg)
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

ssize_t overlay_read(struct overlay *o, void *buf, size_t len, uint64_t offset, overlay_base_fn *base,
		     void *arg)
{
	size_t done = 0;

	if (offset >= o->length)
		return 0;
	if (len > o->length - offset)
		len = (size_t)(o->length - offset);
	while (done < len) {
		const ssize_t n = read_piece(o, (uint8_t *)buf + done, offset + done, offset + len, base, arg);

		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int overlay_truncate(struct overlay *o, uint64_t length)
{
	if (length > INT64_MAX)
		return -EFBIG;
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
	(void)ret_errno(ftruncate(o->fd, (off_t)length)); /* only frees space */
	o->length = length;
	return 0;
}

int overlay_zero(struct overlay *o, uint64_t offset, uint64_t len)
{
	static const uint8_t zeros[ZEROS];
	uint64_t end = offset + len;
	int rc = 0;

	if (end > o->length || end < offset)
		end = o->length;
	/* behind the base, bytes in no extent are zeros already: only what is written needs a change */
	while (rc == 0 && offset < end) {
		const size_t n = end - offset < ZEROS ? (size_t)(end - offset) : ZEROS;

		if (offset < o->base || missing(o, offset, offset + n) < n)
			rc = overlay_write(o, zeros, n, offset);
		offset += n;
	}
	return rc;
}
