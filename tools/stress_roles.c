/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of stress-client: what each does in a round, and what the bytes of its files are. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "client/include/dfsclient.h"
#include "tools/stress_internal.h"

#define PAGE 4096u            /* its first word is the version */
#define SMALL_MAX (64u << 10) /* longest read of the role `read` */
#define REOPEN 500            /* so many reads of one open file */
#define RECORD 512u           /* bytes of a record of a quiet writer, */
#define RECORDS 300u          /* of which it flushes so many before it goes quiet, */
#define SILENCES 2u           /* so many times in a file */

static atomic_uint next_file; /* of the role `fill` */

/* ---- what a file holds ---- */

struct content {
	char path[PATH_SIZE];
	uint64_t key, version, length;
};

uint64_t stress_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void set_version(struct content *c, uint64_t version)
{
	uint64_t key = stress_mix(stress_opts.seed);

	for (const char *p = c->path; *p; p++)
		key = stress_mix(key ^ (uint8_t)*p);
	c->key = stress_mix(key ^ version);
	c->version = version;
	c->length = version ? stress_opts.size / 2 + c->key % (stress_opts.size / 2 + 1)
			    : stress_opts.size;
}

static struct content content_of(uint32_t number, uint64_t version)
{
	struct content c;

	(void)snprintf(c.path, sizeof(c.path), "%s/%s-%u", stress_opts.dir, stress_opts.name,
		       number);
	set_version(&c, version);
	return c;
}

/* @len <= STEP bytes as they should be at @off, in a buffer of STEP + 2 * WORD bytes. */
static const uint8_t *bytes_at(const struct content *c, uint64_t off, uint64_t len, uint8_t *buf)
{
	uint64_t i = off / WORD;

	for (uint8_t *p = buf; p < buf + off % WORD + len; p += WORD, i++) {
		const uint64_t v = i % (PAGE / WORD) ? stress_mix(c->key + i) : c->version;

		memcpy(p, &v, WORD);
	}
	return buf + off % WORD;
}

static void check_bytes(struct worker *w, const struct content *c, uint64_t off, uint64_t len)
{
	const uint8_t *want = bytes_at(c, off, len, w->want);
	uint64_t bad = 0, first = 0;
	char why[64];

	if (!memcmp(w->got, want, len))
		return;
	for (uint64_t i = len; i-- > 0;) {
		if (w->got[i] != want[i]) {
			bad++;
			first = off + i;
		}
	}
	(void)snprintf(why, sizeof(why), "%" PRIu64 " bytes are not those of version %" PRIu64, bad,
		       c->version);
	stress_wrong(c->path, first, bad, why);
}

/* ---- steps that several roles take; false: it failed and was counted ---- */

static struct dfs_file *open_it(struct worker *w, const char *path)
{
	struct dfs_file *f = NULL;
	struct dfs_err err;
	int rc;

	stress_op_begin(w, "open");
	rc = dfs_open(stress_fs, path, &f, &err);
	stress_op_end(w, 0, false);
	if (rc < 0)
		stress_failed(w, path, 0, rc, &err);
	return rc < 0 ? NULL : f;
}

/* The same at the beginning of a round: after a failure the next one does not begin at once. */
static struct dfs_file *open_or_pause(struct worker *w, const char *path)
{
	struct dfs_file *f = open_it(w, path);

	if (!f)
		stress_pause_for(0.1);
	return f;
}

/* From @off to @end, in order, each byte checked. */
static bool read_along(struct worker *w, struct dfs_file *f, const struct content *c, uint64_t off,
		       uint64_t end)
{
	struct dfs_err err;

	while (off < end) {
		const uint64_t len = end - off < STEP ? end - off : STEP;
		const ssize_t n = dfs_read(f, w->got, len, &err);

		if (n < 0) {
			stress_failed(w, c->path, off, (int)n, &err);
			return false;
		}
		check_bytes(w, c, off, (uint64_t)n);
		if ((uint64_t)n < len) {
			stress_wrong(c->path, off + (uint64_t)n, end - off - (uint64_t)n,
				     "the file ends too early");
			return false;
		}
		off += (uint64_t)n;
	}
	return true;
}

static void read_back(struct worker *w, const struct content *c)
{
	struct dfs_file *f = open_it(w, c->path);

	if (!f)
		return;
	stress_op_begin(w, "read what was written:");
	(void)read_along(w, f, c, 0, c->length);
	stress_op_end(w, c->length, false);
	dfs_close(f, NULL);
}

static void delete_it(struct worker *w, const char *path)
{
	struct dfs_err err;
	int rc;

	stress_op_begin(w, "delete");
	rc = dfs_delete(stress_fs, path, false, &err);
	stress_op_end(w, 0, false);
	if (rc < 0)
		stress_failed(w, path, 0, rc, &err);
}

static bool write_piece(struct worker *w, struct dfs_file *f, const struct content *c, uint64_t off,
			uint64_t len)
{
	struct dfs_err err;
	const ssize_t n = dfs_write(f, bytes_at(c, off, len, w->want), len, &err);

	if (n < 0)
		stress_failed(w, c->path, off, (int)n, &err);
	return n >= 0;
}

/* Create, write and close @path with what @c should hold. With @flushes now and then a flush or an
 * hsync. */
static bool write_file(struct worker *w, const char *path, const struct content *c, bool flushes)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts), .flags = DFS_CREATE_OVERWRITE};
	struct dfs_file *f;
	struct dfs_err err;
	int rc = dfs_create(stress_fs, path, &opts, &f, &err);

	for (uint64_t off = 0; rc == 0 && off < c->length;) {
		uint64_t len = flushes ? 1 + stress_below(w, STEP) : STEP;

		len = c->length - off < len ? c->length - off : len;
		if (!write_piece(w, f, c, off, len)) {
			dfs_close(f, NULL);
			return false;
		}
		off += len;
		if (flushes && !stress_below(w, 16))
			rc = stress_below(w, 2) ? dfs_flush(f, &err) : dfs_hsync(f, &err);
		if (rc < 0)
			dfs_close(f, NULL);
	}
	if (rc == 0)
		rc = dfs_close(f, &err);
	if (rc < 0)
		stress_failed(w, path, 0, rc, &err);
	return rc == 0;
}

/* ---- roles: each function does one round ---- */

static void role_fill(struct worker *w)
{
	const uint32_t i = atomic_fetch_add(&next_file, 1);
	const struct content c = content_of(i, 0);

	if (i >= stress_opts.files) {
		stress_pause_for(stress_opts.seconds);
		return;
	}
	stress_op_begin(w, "fill");
	(void)write_file(w, c.path, &c, false);
	stress_op_end(w, c.length, true);
}

static void role_read(struct worker *w)
{
	const struct content c = content_of((uint32_t)stress_below(w, stress_opts.files), 0);
	struct dfs_file *f = open_or_pause(w, c.path);
	struct dfs_err err;
	ssize_t n = 0;

	for (int i = 0; f && i < REOPEN && n >= 0 && !stress_time_is_over(); i++) {
		const uint64_t len = stress_below(w, 2) ? PAGE : 1 + stress_below(w, SMALL_MAX),
			       off = stress_below(w, c.length - len);

		stress_op_begin(w, "pread");
		n = dfs_pread(f, w->got, len, off, &err);
		stress_op_end(w, n > 0 ? (uint64_t)n : 0, n >= 0);
		if (n < 0)
			stress_failed(w, c.path, off, (int)n, &err);
		else if ((uint64_t)n != len)
			stress_wrong(c.path, off, len - (uint64_t)n, "a read is short");
		else
			check_bytes(w, &c, off, len);
	}
	dfs_close(f, NULL);
}

static void role_scan(struct worker *w)
{
	const struct content c = content_of((uint32_t)stress_below(w, stress_opts.files), 0);
	struct dfs_file *f = open_or_pause(w, c.path);
	bool ok;

	if (!f)
		return;
	stress_op_begin(w, "scan");
	ok = read_along(w, f, &c, 0, c.length);
	stress_op_end(w, c.length, ok);
	dfs_close(f, NULL);
}

static void role_stall(struct worker *w)
{
	const struct content c = content_of((uint32_t)stress_below(w, stress_opts.files), 0);
	struct dfs_file *f = open_or_pause(w, c.path);
	bool ok;

	if (!f)
		return;
	stress_op_begin(w, "read before a pause:");
	ok = read_along(w, f, &c, 0, STALL_AT);
	stress_op_end(w, STALL_AT, false);
	stress_pause_some(w);
	stress_op_begin(w, "read after a pause:");
	ok = ok && read_along(w, f, &c, STALL_AT, c.length);
	stress_op_end(w, c.length - STALL_AT, ok);
	dfs_close(f, NULL);
}

static void role_write(struct worker *w)
{
	struct content c = content_of(w->number, 0);
	bool ok;

	c.length = 1 + stress_below(w, stress_opts.size);
	stress_op_begin(w, "write");
	ok = write_file(w, c.path, &c, true);
	stress_op_end(w, c.length, ok);
	if (!ok) {
		stress_pause_for(0.1);
		return;
	}
	read_back(w, &c);
	delete_it(w, c.path);
}

/* Records that are flushed one by one; false: over. */
static bool write_records(struct worker *w, struct dfs_file *f, const struct content *c,
			  uint64_t from)
{
	struct dfs_err err;
	int rc = 0;

	for (uint64_t off = from; rc == 0 && off < from + RECORDS * RECORD; off += RECORD) {
		stress_op_begin(w, "flush");
		if (!write_piece(w, f, c, off, RECORD)) {
			stress_op_end(w, 0, false);
			return false;
		}
		rc = dfs_flush(f, &err);
		stress_op_end(w, RECORD, rc == 0);
		if (rc < 0)
			stress_failed(w, c->path, off, rc, &err);
	}
	return rc == 0;
}

static void role_quiet(struct worker *w)
{
	struct content c = content_of(w->number, 0);
	const struct dfs_create_opts opts = {.size = sizeof(opts), .flags = DFS_CREATE_OVERWRITE};
	struct dfs_file *f;
	struct dfs_err err;
	bool ok = true;
	int rc;

	c.length = 0;
	stress_op_begin(w, "create");
	rc = dfs_create(stress_fs, c.path, &opts, &f, &err);
	stress_op_end(w, 0, false);
	if (rc < 0) {
		stress_failed(w, c.path, 0, rc, &err);
		stress_pause_for(0.1);
		return;
	}
	for (uint32_t i = 0; ok && i < SILENCES && !(i && stress_time_is_over()); i++) {
		ok = write_records(w, f, &c, c.length);
		c.length += RECORDS * RECORD;
		stress_pause_some(w);
	}
	stress_op_begin(w, "close");
	rc = dfs_close(f, ok ? &err : NULL);
	stress_op_end(w, 0, false);
	if (ok && rc < 0)
		stress_failed(w, c.path, c.length, rc, &err);
	if (!ok || rc < 0)
		return;
	read_back(w, &c);
	delete_it(w, c.path);
}

/* A new version of a file: even ones take the place of the old one in one step, odd ones are
 * written in its place. */
static void role_replace(struct worker *w)
{
	static _Atomic uint64_t last_version;
	const uint64_t version = atomic_fetch_add(&last_version, 1) + 1;
	/* Each file has one replacer. */
	const uint32_t each = stress_opts.files / stress_opts.threads,
		       number = w->number * each + (uint32_t)stress_below(w, each ? each : 1);
	const struct content c = content_of(number, version);
	char part[PATH_SIZE + 8];
	struct dfs_err err;
	bool ok;
	int rc = 0;

	(void)snprintf(part, sizeof(part), "%s.part", c.path);
	stress_op_begin(w, "replace");
	ok = write_file(w, version % 2 ? c.path : part, &c, false);
	if (ok && version % 2 == 0)
		rc = dfs_rename(stress_fs, part, c.path, true, &err);
	stress_op_end(w, c.length, ok && rc == 0);
	if (rc < 0)
		stress_failed(w, c.path, 0, rc, &err);
	stress_pause_some(w);
}

/* What ends a reader of @c at @off: the right length, unless the version is one that is being
 * written. */
static void check_end(const struct content *c, uint64_t off)
{
	if (off != c->length && (c->version % 2 == 0 || off > c->length))
		stress_wrong(c->path, off, 1,
			     "the file ends in another place than this version of it");
}

static void role_follow(struct worker *w)
{
	struct content c = content_of((uint32_t)stress_below(w, stress_opts.files), 0);
	struct dfs_file *f = open_it(w, c.path);
	const bool by_pread = stress_below(w, 2);
	struct dfs_err err;
	uint64_t off = 0;
	ssize_t n = f ? 1 : 0;

	while (n > 0 && !stress_time_is_over()) {
		stress_op_begin(w, "read of a file that is replaced:");
		n = by_pread ? dfs_pread(f, w->got, STEP, off, &err)
			     : dfs_read(f, w->got, STEP, &err);
		stress_op_end(w, n > 0 ? (uint64_t)n : 0, n >= 0);
		if (n > 0 && off == 0) {
			uint64_t version = 0;

			memcpy(&version, w->got, (size_t)n < WORD ? (size_t)n : WORD);
			set_version(&c, version);
		}
		if (n > 0)
			check_bytes(w, &c, off, (uint64_t)n);
		else if (n < 0)
			stress_failed(w, c.path, off, (int)n, &err);
		else if (off)
			check_end(&c, off);
		off += n > 0 ? (uint64_t)n : 0;
		stress_pause_for((double)stress_below(w, 60) / 1000);
	}
	dfs_close(f, NULL);
}

static const struct role {
	const char *name;
	void (*round)(struct worker *w);
} roles[] = {
	{"fill", role_fill},       {"read", role_read},     {"scan", role_scan},
	{"stall", role_stall},     {"write", role_write},   {"quiet", role_quiet},
	{"replace", role_replace}, {"follow", role_follow},
};

void *stress_work(void *arg)
{
	struct worker *w = arg;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		while (!strcmp(roles[i].name, stress_opts.role) && !stress_time_is_over() &&
		       !(roles[i].round == role_fill &&
			 atomic_load(&next_file) >= stress_opts.files))
			roles[i].round(w);
	atomic_store(&w->ended, true);
	return NULL;
}

bool stress_is_role(const char *name)
{
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (!strcmp(roles[i].name, name))
			return true;
	return false;
}
