/* SPDX-License-Identifier: Apache-2.0 */
/* client_api_test - libdfsclient against any cluster: ours or Apache's
 *
 *   client_api_test [--kill PID [--flush-first]] [--spoil DIR] [--long]
 *
 * HADOOP_CONF_DIR names the cluster (without it: skipped). --kill: a data node that is killed with
 * SIGKILL in the middle of a write; the cluster needs two more, with --flush-first three. --spoil:
 * the directory of a data node (or several), in which a byte of a replica is flipped. Everything
 * happens below /tmp/client_api_test.<pid>, which is removed at the end. Prints PASS/FAIL lines;
 * exit 0, 1, 77. */
#include <dfsclient.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/checks.h"

#define KI 1024ull
#define MI (1024 * KI)
#define BLOCK MI
#define LENT_MIN (64 * KI)
#define PATIENCE_S 150 /* for what takes less than one on an idle machine */

static struct dfs *fs;
static unsigned int replication;
static uint32_t create_flags;

/* ---- small helpers ---- */

/* Byte @off of every test file: no period that a block, chunk or packet could hide. */
static uint8_t pattern(uint64_t off, uint64_t salt)
{
	uint64_t x = (off / 8 + 1) * 0x9e3779b97f4a7c15ull + salt * 0xbf58476d1ce4e5b9ull;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebull;
	return (uint8_t)(x >> (off % 8 * 8));
}

static void fill(uint8_t *buf, uint64_t off, size_t len, uint64_t salt)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(off + i, salt);
}

static int same(const uint8_t *buf, uint64_t off, size_t len, uint64_t salt)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern(off + i, salt))
			return 0;
	return 1;
}

static uint64_t rnd(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static int create(const char *path, struct dfs_file **ret, struct dfs_err *err)
{
	const struct dfs_create_opts o = {.size = sizeof(o),
					  .flags = create_flags,
					  .block_size = BLOCK,
					  .replication = replication};

	return dfs_create(fs, path, &o, ret, err);
}

/* ---- bytes that are lent ---- */

static atomic_int lent; /* not given back yet */

struct lent {
	size_t len;
	uint8_t bytes[];
};

/* Whoever still needs these bytes would send others. */
static void given_back(void *arg)
{
	struct lent *l = arg;

	memset(l->bytes, 0xdb, l->len);
	free(l);
	atomic_fetch_sub(&lent, 1);
}

static ssize_t write_lent(struct dfs_file *f, uint64_t from, size_t len, uint64_t salt,
			  struct dfs_err *err)
{
	struct lent *l = malloc(sizeof(*l) + len);

	l->len = len;
	fill(l->bytes, from, len, salt);
	atomic_fetch_add(&lent, 1);
	return dfs_write_lent(f, l->bytes, len, given_back, l, err);
}

/* Write [@from, @to) in pieces of up to @piece bytes, of varying length, every other large one
 * lent. */
static int write_range(struct dfs_file *f, uint64_t from, uint64_t to, size_t piece, uint64_t salt,
		       struct dfs_err *err)
{
	uint8_t *buf = malloc(piece);
	uint64_t seed = to;
	ssize_t n = 0;

	while (from < to && n >= 0) {
		size_t len = 1 + rnd(&seed) % piece;

		if (len > to - from)
			len = (size_t)(to - from);
		if (len > LENT_MIN && rnd(&seed) % 2) {
			n = write_lent(f, from, len, salt, err);
		} else {
			fill(buf, from, len, salt);
			n = dfs_write(f, buf, len, err);
		}
		from += len;
	}
	free(buf);
	return n < 0 ? (int)n : 0;
}

static int put(const char *path, uint64_t size, size_t piece, uint64_t salt, struct dfs_err *err)
{
	struct dfs_file *f;
	int rc = create(path, &f, err), rc2;

	if (rc < 0)
		return rc;
	rc = write_range(f, 0, size, piece, salt, err);
	rc2 = dfs_close(f, rc < 0 ? NULL : err);
	return rc < 0 ? rc : rc2;
}

/* Read all of @path with buffers of up to @piece bytes; 0 when it is the pattern and @size long. */
static int get(const char *path, uint64_t size, size_t piece, uint64_t salt, struct dfs_err *err)
{
	uint8_t *buf = malloc(piece);
	struct dfs_file *f;
	uint64_t off = 0, seed = size;
	ssize_t n = 1;
	int rc = dfs_open(fs, path, &f, err);

	while (rc == 0 && n > 0) {
		n = dfs_read(f, buf, 1 + rnd(&seed) % piece, err);
		if (n < 0)
			rc = (int)n;
		else if (!same(buf, off, (size_t)n, salt))
			rc = snprintf(err->text, sizeof(err->text), "wrong bytes near %llu",
				      (unsigned long long)off)
				     ? -EBADMSG
				     : 0;
		off += n > 0 ? (uint64_t)n : 0;
	}
	if (rc == 0 && off != size)
		rc = snprintf(err->text, sizeof(err->text), "%llu bytes", (unsigned long long)off)
			     ? -EIO
			     : 0;
	if (rc != -ENOENT)
		dfs_close(f, NULL);
	free(buf);
	return rc;
}

static int pread_some(const char *path, uint64_t size, int count, uint64_t salt,
		      struct dfs_err *err)
{
	uint8_t *buf = malloc(300000);
	struct dfs_file *f;
	uint64_t seed = size + salt;
	int rc = dfs_open(fs, path, &f, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < count && rc == 0; i++) {
		uint64_t off = rnd(&seed) % (size + 2);
		size_t len = i % 3 ? rnd(&seed) % 2000 : rnd(&seed) % 300000;
		size_t want = off >= size ? 0 : len < size - off ? len : (size_t)(size - off);
		ssize_t n = dfs_pread(f, buf, len, off, err);

		if (n < 0)
			rc = (int)n;
		else if ((size_t)n != want || !same(buf, off, want, salt))
			rc = snprintf(err->text, sizeof(err->text), "pread(%zu, %llu) = %zd", len,
				      (unsigned long long)off, n)
				     ? -EBADMSG
				     : 0;
	}
	dfs_close(f, NULL);
	free(buf);
	return rc;
}

static void expect(int rc, int want, const struct dfs_err *err, const char *what)
{
	check(rc == want, "%s: %d (%s) %s", what, rc, strerror(rc < 0 ? -rc : 0),
	      rc < 0 ? err->text : "");
}

/* ---- tests ---- */

static void sizes(void)
{
	static const uint64_t size[] = {
		0,           1,      511, 512,    513,           64 * KI - 1,    64 * KI,
		64 * KI + 1, MI - 1, MI,  MI + 1, 3 * BLOCK + 7, 5 * BLOCK - 513};
	static const size_t piece[] = {700, 70000, 3000000};
	struct dfs_err err = {0};

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		const size_t p = size[i] < 100000 ? piece[i % 2] : piece[1 + i % 2];
		struct dfs_stat st = {0};
		int rc = put(at("size"), size[i], p, i, &err);

		rc = rc ? rc : dfs_stat(fs, at("size"), &st, &err);
		check(rc == 0 && st.length == size[i], "put of %llu bytes: %s",
		      (unsigned long long)size[i], rc ? err.text : "length right");
		rc = rc ? rc : get(at("size"), size[i], piece[(i + 1) % 3], i, &err);
		rc = rc ? rc : pread_some(at("size"), size[i], 30, i, &err);
		check(rc == 0, "get and random preads of %llu bytes: %s",
		      (unsigned long long)size[i], rc ? err.text : "identical");
		rc = dfs_delete(fs, at("size"), false, &err);
		if (rc)
			expect(rc, 0, &err, "delete");
	}
}

/* Lent bytes behind whole and broken chunks, at the end of a block, behind a flush and behind what
 * others have begun. */
static void lent_bytes(void)
{
	static const size_t piece[] = {BLOCK - 512, 1024, MI,  MI,       600 * KI + 1,   MI - 1,
				       511,         MI,   513, 300 * KI, 2 * BLOCK + 100};
	struct dfs_err err = {0};
	struct dfs_file *f;
	uint64_t off = 0;
	int rc = create(at("lent"), &f, &err);

	for (int turn = 0; rc == 0 && turn < 2; turn++) {
		for (size_t i = 0; rc == 0 && i < sizeof(piece) / sizeof(piece[0]); i++) {
			rc = write_lent(f, off, piece[i], 21, &err) < 0 ? err.rc : 0;
			off += piece[i];
			if (rc == 0 && (i + (size_t)turn) % 4 == 3)
				rc = dfs_flush(f, &err);
		}
		rc = rc ? rc : dfs_close(f, &err);
		rc = rc ? rc : get(at("lent"), off, 300000, 21, &err);
		if (turn == 0)
			rc = rc ? rc : dfs_append(fs, at("lent"), 0, &f, &err);
	}
	expect(rc, 0, &err, "lent bytes");
	check(atomic_load(&lent) == 0, "%d lent pieces were not given back", atomic_load(&lent));
	rc = dfs_open(fs, at("lent"), &f, &err);
	expect(rc, 0, &err, "open");
	check(write_lent(f, 0, MI, 21, &err) == -EBADF && atomic_load(&lent) == 0,
	      "lent to a file that is open for reading");
	dfs_close(f, NULL);
}

/* The first block comes with the file, and its answer before the disk has it, where the NameNode
 * knows how; what is seen is the same. */
static void first_block(unsigned int flags)
{
	static const uint64_t size[] = {0, 1, 64 * KI + 1, BLOCK, 2 * BLOCK + 7};
	struct dfs_err err = {0};

	create_flags = flags;
	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct dfs_stat st = {0};
		int rc = put(at("first"), size[i], 70000, i, &err);

		rc = rc ? rc : dfs_stat(fs, at("first"), &st, &err);
		rc = rc ? rc : get(at("first"), size[i], 70000, i, &err);
		rc = rc ? rc : dfs_wait_closed(fs, at("first"), 0, &err);
		check(rc == 0 && st.length == size[i], "%llu bytes with a first block: %s",
		      (unsigned long long)size[i], rc ? err.text : "identical");
		expect(put(at("first"), 1, 1, i, &err), -EEXIST, &err,
		       "a first block for a file that is there");
		expect(dfs_delete(fs, at("first"), false, &err), 0, &err, "delete");
	}
	create_flags = 0;
}

/* What may be lost with the NameNode's machine, and what makes sure of it. */
static void early(void)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs_stat st;
	char name[64];
	int rc;

	create_flags = DFS_CREATE_EARLY;
	rc = create(at("early"), &f, &err);
	rc = rc ? rc : dfs_stat(fs, at("early"), &st, &err);
	rc = rc ? rc : dfs_hsync(f, &err);
	rc = rc ? rc : dfs_sync_early(fs, &err);
	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 6, &err);
	rc = rc ? rc : dfs_hsync(f, &err); /* a whole block: all of it is closed */
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : get(at("early"), BLOCK, 100000, 6, &err);
	check(rc == 0, "created early, synced, written: %s", rc ? err.text : "identical");
	rc = create(at("early2"), &f, &err);
	rc = rc ? rc : dfs_delete(fs, at("early2"), false, &err);
	expect(rc, 0, &err, "deleted while it is new");
	if (!rc) {
		/* as when a crash has undone it; a NameNode that has waited for its disk is not
		 * asked */
		rc = dfs_hsync(f, &err);
		check(rc == -ESTALE || rc == 0, "hsync asks where it must: %d", rc);
		expect(dfs_close(f, &err), -ESTALE, &err, "close tells");
	}
	create_flags = DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY | DFS_CREATE_FIRST_BLOCK;
	rc = 0;
	for (int i = 0; rc == 0 && i < 1100; i += 1099) { /* more than are remembered */
		for (int k = 0; rc == 0 && k <= i; k++) {
			snprintf(name, sizeof(name), "early-%d-%d", i, k);
			rc = put(at(name), 9, 9, 7, &err);
		}
		rc = rc ? rc : get(at(name), 9, 9, 7, &err);
		rc = rc ? rc : dfs_append(fs, at(name), 0, &f, &err);
		rc = rc ? rc : write_range(f, 9, BLOCK + 9, 70000, 7, &err);
		rc = rc ? rc : dfs_close(f, &err);
		rc = rc ? rc : get(at(name), BLOCK + 9, 70000, 7, &err);
		rc = rc ? rc : dfs_sync_early(fs, &err);
		check(rc == 0, "%d closed early: %s", i + 1, rc ? err.text : "and appended to");
	}
	create_flags = DFS_CREATE_EARLY | DFS_CREATE_OVERWRITE;
	rc = put(at("early"), 5, 5, 7, &err);
	rc = rc ? rc : get(at("early"), 5, 5, 7, &err);
	check(rc == 0, "a file replaced: %s", rc ? err.text : "identical");
	expect(dfs_delete(fs, at("early"), false, &err), 0, &err, "delete");
	create_flags = 0;
}

static void seek_and_tell(void)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	uint8_t buf[1000];
	int rc = put(at("seek"), 2 * BLOCK + 5000, 100000, 9, &err);

	rc = rc ? rc : dfs_open(fs, at("seek"), &f, &err);
	if (rc) {
		expect(rc, 0, &err, "seek: set-up");
		return;
	}
	rc = dfs_read(f, buf, 10, &err) == 10 && dfs_seek(f, BLOCK - 5, &err) == 0 &&
	     dfs_read(f, buf, 1000, &err) == 1000 && same(buf, BLOCK - 5, 1000, 9) &&
	     dfs_tell(f) == BLOCK + 995 && dfs_seek(f, 3, &err) == 0 &&
	     dfs_read(f, buf, 1000, &err) == 1000 && same(buf, 3, 1000, 9) &&
	     dfs_seek(f, 100 * BLOCK, &err) == 0 && dfs_read(f, buf, 1, &err) == 0 &&
	     dfs_write(f, buf, 1, &err) == -EBADF;
	check(rc, "seek and tell across blocks");
	dfs_close(f, NULL);
}

/* What a second opener sees after each flush. */
static int reader_sees(const char *path, struct dfs_file *old, uint64_t size, struct dfs_err *err)
{
	uint8_t *buf = malloc(size + 1);
	ssize_t n = dfs_pread(old, buf, size + 1, 0, err);
	int rc = get(path, size, 100000, 5, err);

	if (rc == 0 && (n != (ssize_t)size || !same(buf, 0, size, 5)))
		rc = snprintf(err->text, sizeof(err->text), "old reader: %zd", n) ? -EIO : 0;
	free(buf);
	return rc;
}

static void flush_is_visible(void)
{
	static const uint64_t to[] = {300,   300,       512,   1000,      1001,
				      70000, BLOCK - 1, BLOCK, BLOCK + 3, 2 * BLOCK + 700};
	struct dfs_err err = {0};
	struct dfs_file *f, *r;
	uint64_t from = 0;
	int rc = create(at("flush"), &f, &err);

	rc = rc ? rc : dfs_open(fs, at("flush"), &r, &err);
	for (size_t i = 0; i < sizeof(to) / sizeof(to[0]) && rc == 0; i++) {
		rc = write_range(f, from, to[i], 50000, 5, &err);
		rc = rc ? rc : i % 2 ? dfs_hsync(f, &err) : dfs_flush(f, &err);
		rc = rc ? rc : reader_sees(at("flush"), r, to[i], &err);
		check(rc == 0, "%s at %llu bytes is visible: %s", i % 2 ? "hsync" : "flush",
		      (unsigned long long)to[i], rc ? err.text : "to an old and a new reader");
		from = to[i];
	}
	rc = rc ? rc : write_range(f, from, from + 99, 10, 5, &err);
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : get(at("flush"), from + 99, 5000, 5, &err);
	check(rc == 0, "a file with many flushes is whole after close %s", rc ? err.text : "");
	dfs_close(r, NULL);
}

/* Put @from bytes, then append up to @to in steps, with flushes between. */
static int append_steps(const char *path, uint64_t from, uint64_t to, uint64_t step, uint32_t flags,
			struct dfs_err *err)
{
	struct dfs_file *f;
	int rc = put(path, from, 70000, 5, err);

	while (rc == 0 && from < to) {
		const uint64_t end = from + step < to ? from + step : to;

		rc = dfs_append(fs, path, flags, &f, err);
		if (rc < 0)
			break;
		if (dfs_tell(f) != from)
			rc = snprintf(err->text, sizeof(err->text), "begins at %llu",
				      (unsigned long long)dfs_tell(f))
				     ? -EIO
				     : 0;
		rc = rc ? rc : write_range(f, from, from + (end - from) / 2, 30000, 5, err);
		rc = rc ? rc : dfs_sync(f, from % 3 ? DFS_SYNC_DISK : 0, err);
		rc = rc ? rc : write_range(f, from + (end - from) / 2, end, 30000, 5, err);
		if (rc == 0)
			rc = dfs_close(f, err);
		else
			dfs_close(f, NULL);
		from = end;
	}
	return rc;
}

static void append(void)
{
	static const uint64_t size[][3] = {/* at first, in the end, step */
					   {0, 3000, 1},
					   {1, 1500, 100},
					   {511, 513, 1},
					   {100, 70000, 511},
					   {512, 5120, 512},
					   {BLOCK - 1, BLOCK + 2, 1},
					   {BLOCK, 2 * BLOCK, BLOCK},
					   {700, 3 * BLOCK + 7, 400000}};
	struct dfs_err err = {0};
	struct dfs_blocks *b = NULL;
	struct dfs_file *f;
	int rc;

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		/* many small steps are many calls: a few of them show as much */
		const uint64_t end = size[i][2] < 600 && size[i][1] - size[i][0] > 20 * size[i][2]
					     ? size[i][0] + 20 * size[i][2]
					     : size[i][1];

		rc = append_steps(at("append"), size[i][0], end, size[i][2], 0, &err);
		rc = rc ? rc : get(at("append"), end, 100000, 5, &err);
		check(rc == 0, "from %llu to %llu bytes by %llu: %s",
		      (unsigned long long)size[i][0], (unsigned long long)end,
		      (unsigned long long)size[i][2], rc ? err.text : "identical");
		dfs_delete(fs, at("append"), false, NULL);
	}
	rc = append_steps(at("append"), 10, 40, 10, DFS_APPEND_NEW_BLOCK, &err);
	rc = rc ? rc : get(at("append"), 40, 100, 5, &err);
	rc = rc ? rc : dfs_blocks(fs, at("append"), 0, 40, &b, &err);
	check(rc == 0 && b->count == 4, "every append in a block of its own: %s",
	      rc ? err.text : "");
	dfs_blocks_free(b);
	expect(dfs_append(fs, at("none"), 0, &f, &err), -ENOENT, &err, "append to nothing");
	expect(dfs_append(fs, dir, 0, &f, &err), -EISDIR, &err, "append to a directory");
	rc = dfs_append(fs, at("made"), DFS_APPEND_CREATE, &f, &err);
	rc = rc ? rc : dfs_close(f, &err);
	expect(rc, 0, &err, "append that makes the file");
}

/* The lease of one client is taken by another. */
static void leases(void)
{
	struct dfs_err err = {0};
	struct dfs *other;
	struct dfs_file *f, *g;
	bool closed = true;
	int rc = dfs_connect(NULL, &other, &err);

	rc = rc ? rc : create(at("lease"), &f, &err);
	rc = rc ? rc : write_range(f, 0, 100000, 5000, 6, &err);
	rc = rc ? rc : dfs_flush(f, &err);
	rc = rc ? rc : dfs_is_closed(other, at("lease"), &closed, &err);
	check(rc == 0 && !closed, "a file that is written is not closed: %s", rc ? err.text : "");
	expect(dfs_append(other, at("lease"), 0, &g, &err), -EBUSY, &err,
	       "append by a second client");
	rc = dfs_recover_lease(other, at("lease"), &closed, &err);
	rc = rc || closed ? rc : dfs_wait_closed(other, at("lease"), 60000, &err);
	expect(rc, 0, &err, "the second client takes the file over");
	rc = dfs_close(f, &err);
	check(rc == -ESTALE, "the first one hears of it: %d %s", rc, err.text);
	expect(get(at("lease"), 100000, 5000, 6, &err), 0, &err, "what was flushed is there");
	rc = dfs_append(other, at("lease"), 0, &g, &err);
	rc = rc ? rc : write_range(g, 100000, 100100, 50, 6, &err);
	rc = rc ? rc : dfs_close(g, &err);
	rc = rc ? rc : get(at("lease"), 100100, 5000, 6, &err);
	expect(rc, 0, &err, "and can be appended to");
	dfs_disconnect(other);
}

static void cut_and_join(void)
{
	static const uint64_t length[] = {3 * BLOCK, 2 * BLOCK, BLOCK + 5000, BLOCK + 4999, 513, 0};
	char name[2][256]; /* at() forgets */
	const char *sources[] = {name[0], name[1]};
	struct dfs_err err = {0};
	bool done = false;
	int rc = put(at("cut"), 3 * BLOCK, 70000, 8, &err);

	for (size_t i = 0; i < sizeof(length) / sizeof(length[0]); i++) {
		rc = rc ? rc : dfs_truncate(fs, at("cut"), length[i], &done, &err);
		rc = rc || done ? rc : dfs_wait_closed(fs, at("cut"), 60000, &err);
		rc = rc ? rc : get(at("cut"), length[i], 70000, 8, &err);
		check(rc == 0, "cut to %llu: %s", (unsigned long long)length[i],
		      rc ? err.text : "identical");
	}
	expect(dfs_truncate(fs, at("cut"), 1, &done, &err), -EINVAL, &err,
	       "cut to more than there is");
	expect(dfs_truncate(fs, dir, 0, &done, &err), -EISDIR, &err, "cut a directory");
	rc = put(at("join0"), 1000, 1000, 9, &err);
	snprintf(name[0], sizeof(name[0]), "%s", at("join1"));
	snprintf(name[1], sizeof(name[1]), "%s", at("join2"));
	for (int i = 0; i < 2 && rc == 0; i++) { /* the same pattern goes on in the next file */
		struct dfs_file *f;

		rc = create(sources[i], &f, &err);
		rc = rc ? rc : write_range(f, 1000 + 2000 * i, 3000 + 2000 * i, 500, 9, &err);
		rc = rc ? rc : dfs_close(f, &err);
	}
	rc = rc ? rc : dfs_concat(fs, at("join0"), sources, 2, &err);
	rc = rc ? rc : get(at("join0"), 5000, 700, 9, &err);
	expect(rc, 0, &err, "three files joined");
	expect(dfs_concat(fs, at("join0"), sources, 2, &err), -ENOENT, &err, "the parts are gone");
}

/* @stock: by the NameNode it is, which does not know the call. */
static void replace_blocks(int stock)
{
	const uint32_t place = 1;
	struct dfs_replace r = {.size = sizeof(r), .place = &place, .places = 1, .blocks = 3};
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs_stat st;
	char part[256];
	int rc = create(at("other"), &f, &err); /* its second block is not what it should be */

	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 12, &err);
	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 13, &err);
	rc = rc ? rc : write_range(f, 2 * BLOCK, 2 * BLOCK + 5, 100000, 12, &err);
	rc = rc ? rc : dfs_close(f, &err);
	snprintf(part, sizeof(part), "%s", at("part"));
	rc = rc ? rc : create(part, &f, &err);
	rc = rc ? rc : write_range(f, BLOCK, 2 * BLOCK, 100000, 12, &err);
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : dfs_stat(fs, at("other"), &st, &err);
	rc = rc ? rc : dfs_open(fs, at("other"), &f, &err);
	expect(rc, 0, &err, "a file and a block for its middle");
	dfs_get_content_id(f, &r.content);
	(void)dfs_close(f, NULL);
	r.file_id = st.file_id;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -EINVAL, &err,
	       "nothing to put there");
	r.part = part;
	if (stock) {
		expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ENOSYS, &err,
		       "blocks are not replaced by this NameNode");
		return;
	}
	r.content.length++;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ESTALE, &err,
	       "it is not as it was seen");
	r.content.length--;
	r.blocks = 7;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -EINVAL, &err,
	       "a hole would be left");
	r.blocks = 3;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), 0, &err, "its middle is replaced");
	expect(get(at("other"), 2 * BLOCK + 5, 100000, 12, &err), 0, &err, "it is right now");
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ENOENT, &err, "the part is gone");
}

static void namespace(void)
{
	struct dfs_err err = {0};
	struct dfs_stat st;
	struct dfs_content_summary sum;
	int rc;

	expect(dfs_mkdir(fs, at("d/e/f"), 0750, true, &err), 0, &err, "mkdir with parents");
	expect(dfs_mkdir(fs, at("d/e/f"), 0, true, &err), 0, &err, "mkdir -p of an existing one");
	expect(dfs_mkdir(fs, at("d/e/f"), 0, false, &err), -EEXIST, &err,
	       "mkdir of an existing one");
	expect(dfs_mkdir(fs, at("no/such"), 0, false, &err), -ENOENT, &err, "mkdir without parent");
	rc = dfs_stat(fs, at("d/e/f"), &st, &err);
	check(rc == 0 && st.type == DFS_DIR && st.mode == 0750, "stat of a directory: mode %o",
	      st.mode);
	expect(dfs_stat(fs, at("nothing"), &st, &err), -ENOENT, &err, "stat of nothing");
	expect(put(at("d/file"), 1000, 1000, 1, &err), 0, &err, "put");
	rc = dfs_stat(fs, at("d/file"), &st, &err);
	check(rc == 0 && st.type == DFS_FILE && st.mode == 0644 && st.length == 1000 &&
		      st.block_size == BLOCK && st.replication == replication,
	      "stat of a file: mode %o length %llu owner %s", st.mode,
	      (unsigned long long)st.length, st.owner);
	expect(dfs_mkdir(fs, at("d/file/x"), 0, true, &err), -ENOTDIR, &err, "mkdir below a file");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), false, &err), 0, &err, "rename");
	expect(dfs_rename(fs, at("d/file"), at("d/e/h"), false, &err), -ENOENT, &err,
	       "rename of nothing");
	expect(put(at("d/file"), 5, 5, 1, &err), 0, &err, "put again");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), false, &err), -EEXIST, &err,
	       "rename onto a file");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), true, &err), 0, &err,
	       "rename with overwrite");
	expect(dfs_rename(fs, at("d"), at("d/e/inside"), false, &err), -EINVAL, &err,
	       "rename into itself");
	rc = dfs_stat(fs, at("d/e/g"), &st, &err);
	check(rc == 0 && st.length == 5, "the overwritten name has the new file");
	expect(dfs_set_permission(fs, at("d/e/g"), 0600, &err), 0, &err, "chmod");
	expect(dfs_set_times(fs, at("d/e/g"), 1234567, DFS_TIME_KEEP, &err), 0, &err, "set times");
	expect(dfs_set_owner(fs, at("d/e/g"), "nobody", NULL, &err), 0, &err, "chown");
	expect(dfs_set_replication(fs, at("d/e/g"), 1, &err), 0, &err, "set replication");
	expect(dfs_set_replication(fs, at("d"), 1, &err), -EISDIR, &err, "the same of a directory");
	rc = dfs_stat(fs, at("d/e/g"), &st, &err);
	check(rc == 0 && st.mode == 0600 && st.mtime_ms == 1234567 && st.replication == 1 &&
		      strcmp(st.owner, "nobody") == 0,
	      "all of these stick");
	rc = dfs_get_content_summary(fs, at("d"), &sum, &err);
	check(rc == 0 && sum.length == 5 && sum.file_count == 1 && sum.directory_count == 3,
	      "content summary: %llu bytes, %llu files, %llu directories",
	      (unsigned long long)sum.length, (unsigned long long)sum.file_count,
	      (unsigned long long)sum.directory_count);
	expect(dfs_delete(fs, at("d"), false, &err), -ENOTEMPTY, &err, "rmdir with entries");
	expect(dfs_delete(fs, at("d"), true, &err), 0, &err, "delete -r");
	expect(dfs_delete(fs, at("d"), true, &err), -ENOENT, &err, "delete of nothing");
}

static void listing(int count)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	char name[32], last[256] = "";
	int rc = 0, n = 0, sorted = 1;

	for (int i = 0; i < count && rc == 0; i++) {
		snprintf(name, sizeof(name), "many/%05d", i);
		rc = dfs_mkdir(fs, at(name), 0, true, &err);
	}
	rc = rc ? rc : dfs_list_open(fs, at("many"), &l, &err);
	if (rc) {
		expect(rc, 0, &err, "listing: set-up");
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		sorted &= strcmp(last, st->name) < 0;
		snprintf(last, sizeof(last), "%s", st->name);
		n++;
	}
	dfs_list_close(l);
	check(rc == 0 && n == count && sorted, "list of %d entries, in order: %d", count, n);
	expect(dfs_list_open(fs, at("nothing"), &l, &err), -ENOENT, &err, "list of nothing");
}

static void cluster(void)
{
	struct dfs_err err = {0};
	struct dfs_statfs s = {0};
	struct dfs_nodes *n = NULL;
	struct dfs_blocks *b = NULL;
	int rc = dfs_statfs(fs, &s, &err);

	check(rc == 0 && s.capacity > 0, "statfs: capacity %llu", (unsigned long long)s.capacity);
	rc = dfs_nodes(fs, DFS_NODES_LIVE, &n, &err);
	check(rc == 0 && n->count >= replication && n->node[0].xfer_port, "%zu live data nodes",
	      rc ? 0 : n->count);
	dfs_nodes_free(n);
	rc = put(at("blocks"), 2 * BLOCK + 1, 100000, 2, &err);
	rc = rc ? rc : dfs_blocks(fs, at("blocks"), BLOCK, UINT64_MAX, &b, &err);
	check(rc == 0 && b->count == 2 && b->file_length == 2 * BLOCK + 1 &&
		      b->block[1].offset == 2 * BLOCK && b->block[1].length == 1 &&
		      b->block[0].count >= 1, /* others may not have reported yet */
	      "blocks of the end of a file %s", rc ? err.text : "");
	dfs_blocks_free(b);
	expect(dfs_blocks(fs, dir, 0, 1, &b, &err), -EISDIR, &err, "blocks of a directory");
}

static int connect_to(const char *uri, const char *user, const char *conf, struct dfs **ret,
		      struct dfs_err *err)
{
	const char *kv[] = {"ipc.client.connect.max.retries=0", conf, NULL};
	const struct dfs_connect_opts o = {.size = sizeof(o), .uri = uri, .user = user, .conf = kv};

	return dfs_connect(&o, ret, err);
}

static void errors(void)
{
	struct dfs_err err = {0};
	struct dfs *other;
	struct dfs_file *f;
	struct dfs_create_opts o = {.size = sizeof(o), .block_size = BLOCK + 1};
	int rc;

	expect(connect_to("hdfs://no-such-host.invalid:8020", NULL, NULL, &other, &err), -ENOENT,
	       &err, "unknown host");
	expect(connect_to("hdfs://127.0.0.1:1", NULL, NULL, &other, &err), -ECONNREFUSED, &err,
	       "nothing listens");
	expect(connect_to("s3://x", NULL, NULL, &other, &err), -EINVAL, &err, "another scheme");
	expect(connect_to(NULL, NULL, "dfs.client.rdma=maybe", &other, &err), -EINVAL, &err,
	       "bad setting");
	expect(dfs_open(fs, at("nothing"), &f, &err), -ENOENT, &err, "open of nothing");
	expect(dfs_open(fs, dir, &f, &err), -EISDIR, &err, "open of a directory");
	expect(dfs_open(fs, "", &f, &err), -EINVAL, &err, "open of an empty path");
	expect(dfs_create(fs, dir, NULL, &f, &err), -EISDIR, &err, "create over a directory");
	expect(put(at("exists"), 5, 5, 0, &err), 0, &err, "put");
	expect(put(at("exists"), 5, 5, 0, &err), -EEXIST, &err, "put without overwrite");
	expect(dfs_create(fs, at("odd"), &o, &f, &err), -EINVAL, &err, "odd block size");
	o = (struct dfs_create_opts){.size = sizeof(o), .flags = DFS_CREATE_NO_PARENTS};
	expect(dfs_create(fs, at("no/parent"), &o, &f, &err), -ENOENT, &err, "create, no parent");
	o = (struct dfs_create_opts){.size = sizeof(o), .replication = 30000};
	expect(dfs_create(fs, at("too-many"), &o, &f, &err), -EINVAL, &err,
	       "more replicas than allowed");
	expect(dfs_mkdir(fs, at("secret"), 0700, true, &err), 0, &err, "mkdir 0700");
	rc = connect_to(NULL, "somebody", NULL, &other, &err);
	if (rc == 0) {
		struct dfs_stat st;

		expect(dfs_stat(other, at("secret/x"), &st, &err), -EACCES, &err,
		       "stat in another's directory");
		expect(dfs_mkdir(other, at("secret/y"), 0, true, &err), -EACCES, &err,
		       "mkdir in another's directory");
		dfs_disconnect(other);
	} else {
		expect(rc, 0, &err, "connect as somebody");
	}
	rc = connect_to(NULL, NULL, "dfs.client.rdma=require", &other, &err);
	if (rc == 0 && access("/sys/class/infiniband", F_OK) != 0) {
		expect(dfs_open(other, at("exists"), &f, &err), -ENOTSUP, &err, "RDMA required");
		dfs_disconnect(other);
	}
}

struct job {
	pthread_t thread;
	int i, rc;
	struct dfs_file *file;
	struct dfs_err err;
};

static void *write_and_read(void *arg)
{
	struct job *j = arg;
	char path[256];
	const uint64_t size = 2 * BLOCK + 1000u * (unsigned int)j->i;

	snprintf(path, sizeof(path), "%s/thread%d", dir, j->i);
	j->rc = put(path, size, 30000, (uint64_t)j->i, &j->err);
	j->rc = j->rc ? j->rc : get(path, size, 30000, (uint64_t)j->i, &j->err);
	return NULL;
}

static void *pread_shared(void *arg)
{
	struct job *j = arg;
	uint64_t seed = (uint64_t)j->i;
	uint8_t buf[20000];

	for (int k = 0; k < 100 && j->rc == 0; k++) {
		uint64_t off = rnd(&seed) % (3 * BLOCK - sizeof(buf));
		ssize_t n = dfs_pread(j->file, buf, sizeof(buf), off, &j->err);

		if (n != sizeof(buf) || !same(buf, off, sizeof(buf), 77))
			j->rc = n < 0 ? (int)n : -EBADMSG;
	}
	return NULL;
}

/* How often it was the one who made a directory that all of them want. */
static atomic_int made;

static void *make_dirs(void *arg)
{
	struct job *j = arg;
	char path[256];

	for (int k = 0; k < 30 && j->rc == 0; k++) {
		snprintf(path, sizeof(path), "%s/rivals/%d", dir, k);
		j->rc = dfs_mkdir(fs, path, 0, false, &j->err);
		made += j->rc == 0;
		j->rc = j->rc == -EEXIST ? 0 : j->rc;
	}
	return NULL;
}

static int run_jobs(void *(*fn)(void *), struct dfs_file *f, struct dfs_err *err)
{
	struct job job[4] = {{0}};
	int rc = 0;

	for (int i = 0; i < 4; i++) {
		job[i].i = i;
		job[i].file = f;
		pthread_create(&job[i].thread, NULL, fn, &job[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(job[i].thread, NULL);
		if (job[i].rc) {
			rc = job[i].rc;
			*err = job[i].err;
		}
	}
	return rc;
}

static void threads(void)
{
	struct dfs_err err = {0};
	struct dfs_content_summary sum;
	struct dfs_file *f;
	int rc = run_jobs(write_and_read, NULL, &err);

	check(rc == 0, "four threads write and read a file each %s", rc ? err.text : "");
	expect(dfs_mkdir(fs, at("rivals"), 0, false, &err), 0, &err, "mkdir");
	rc = run_jobs(make_dirs, NULL, &err);
	check(rc == 0 && made == 30, "four threads make 30 directories: %d made one %s", made,
	      rc ? err.text : "");
	rc = dfs_get_content_summary(fs, at("rivals"), &sum, &err);
	check(rc == 0 && sum.directory_count == 31, "and nothing else is there");
	rc = put(at("shared"), 3 * BLOCK, 100000, 77, &err);
	rc = rc ? rc : dfs_open(fs, at("shared"), &f, &err);
	if (rc == 0) {
		rc = run_jobs(pread_shared, f, &err);
		dfs_close(f, NULL);
	}
	check(rc == 0, "four threads pread one file %s", rc ? err.text : "");
}

#define OPEN_FILES 61
#define WIDE (24 * MI) /* more than sockets and a data node hold of it */

/* Files that are open and not read keep nothing from others: each of them reads on. */
static void many_open_readers(void)
{
	const struct dfs_create_opts o = {
		.size = sizeof(o), .block_size = 32 * MI, .replication = replication};
	static struct dfs_file *open[OPEN_FILES];
	uint8_t *buf = malloc(MI);
	struct dfs_err err = {0};
	struct timespec from, to;
	struct dfs_file *f;
	int n = 0, rc = dfs_create(fs, at("wide"), &o, &f, &err);

	rc = rc ? rc : write_range(f, 0, WIDE, MI, 9, &err);
	rc = rc ? rc : dfs_close(f, &err);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int round = 0; rc == 0 && round < 2; round++)
		for (int i = 0; rc == 0 && i < OPEN_FILES; i++) {
			if (i == n)
				rc = dfs_open(fs, at("wide"), &open[n], &err);
			n += i == n && rc == 0;
			rc = rc ? rc : (int)dfs_read(open[i], buf, MI, &err);
			if (rc >= 0)
				rc = rc == MI && same(buf, (uint64_t)round * MI, MI, 9) ? 0
											: -EBADMSG;
		}
	clock_gettime(CLOCK_MONOTONIC, &to);
	check(rc == 0, "%d open files are read by turns: %s", n, rc ? err.text : "identical");
	check(to.tv_sec - from.tv_sec < 25, "in %d s: nobody waits until a data node gives up",
	      (int)(to.tv_sec - from.tv_sec));
	while (n > 0)
		dfs_close(open[--n], NULL);
	free(buf);
}

static char wanted[64]; /* a block file, for spoil_file() */
static int spoilt;

static int spoil_file(const char *path, const struct stat *st, int type, struct FTW *w)
{
	uint8_t b;
	int fd;

	(void)st;
	if (type != FTW_F || strcmp(path + w->base, wanted) != 0 || spoilt)
		return 0;
	fd = open(path, O_RDWR);
	if (fd >= 0 && pread(fd, &b, 1, 70000) == 1) {
		b ^= 1;
		spoilt += pwrite(fd, &b, 1, 70000) == 1;
	}
	close(fd);
	return 0;
}

/* Until the file's first block has @least to @most replicas that are known of. */
static int wait_replicas(const char *name, size_t least, size_t most, struct dfs_blocks **ret,
			 struct dfs_err *err)
{
	for (int i = 0; i < PATIENCE_S * 50; i++) {
		int rc = dfs_blocks(fs, name, 0, 1, ret, err);

		if (rc || ((*ret)->block[0].count >= least && (*ret)->block[0].count <= most))
			return rc;
		dfs_blocks_free(*ret);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	snprintf(err->text, sizeof(err->text), "not %zu to %zu replicas after %d s", least, most,
		 PATIENCE_S);
	return -ETIMEDOUT;
}

/* A flipped bit on one node's disk: the reader gets the right bytes, from somewhere else. */
static void spoil_a_replica(const char *data_dir)
{
	struct dfs_err err = {0};
	struct dfs_counters before, after;
	struct dfs_blocks *b;
	int rc = put(at("spoilt"), BLOCK, 100000, 8, &err);

	rc = rc ? rc : wait_replicas(at("spoilt"), replication, replication, &b, &err);
	if (rc) {
		expect(rc, 0, &err, "spoil: every replica is reported");
		return;
	}
	snprintf(wanted, sizeof(wanted), "blk_%lld", (long long)b->block[0].id);
	nftw(data_dir, spoil_file, 20, FTW_PHYS);
	check(spoilt == 1, "a byte of %s flipped (%zu replicas)", wanted, b->block[0].count);
	dfs_blocks_free(b);
	dfs_get_counters(fs, &before);
	for (int i = 0; i < 20 && rc == 0; i++) { /* replicas of equal distance come in any order */
		rc = get(at("spoilt"), BLOCK, 100000, 8, &err);
		dfs_get_counters(fs, &after);
		if (after.checksum_errors > before.checksum_errors)
			break;
	}
	check(rc == 0, "no reader sees it: %s", rc ? err.text : "identical");
	check(after.checksum_errors == before.checksum_errors + 1,
	      "it was met and reported %d times",
	      (int)(after.checksum_errors - before.checksum_errors));
	rc = wait_replicas(at("spoilt"), 0, replication - 1, &b, &err);
	check(rc == 0, "the NameNode does not offer it again: %s", rc ? err.text : "right");
	if (rc == 0)
		dfs_blocks_free(b);
}

/* The write goes on with the other nodes, and so do reads afterwards. */
static void kill_in_mid_write(pid_t pid, int flush_first)
{
	const uint64_t size = 8 * BLOCK + 12345;
	struct dfs_counters c;
	struct dfs_err err = {0};
	struct dfs_file *f, *fresh, *begun;
	int rc = create(at("killed"), &f, &err);

	/* whose nodes are chosen before the kill, and met after it */
	create_flags = DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY;
	rc = rc ? rc : create(at("fresh"), &fresh, &err);
	rc = rc ? rc : create(at("begun"), &begun, &err);
	create_flags = 0;
	rc = rc ? rc : write_range(begun, 0, 1000, 1000, 5, &err);
	rc = rc ? rc : write_range(f, 0, 3 * BLOCK + 100000, 100000, 3, &err);
	if (flush_first)
		rc = rc ? rc : dfs_flush(f, &err);
	check(rc == 0 && kill(pid, SIGKILL) == 0, "data node %d killed in mid-write", (int)pid);
	rc = rc ? rc : write_range(f, 3 * BLOCK + 100000, size, 700000, 3, &err);
	rc = rc ? rc : dfs_close(f, &err);
	dfs_get_counters(fs, &c);
	check(rc == 0, "the write ends well after %llu repairs: %s",
	      (unsigned long long)c.pipeline_recoveries, rc ? err.text : "closed");
	rc = rc ? rc : write_range(fresh, 0, BLOCK + 5, 100000, 4, &err);
	rc = rc ? rc : dfs_close(fresh, &err);
	check(rc == 0, "a first block goes to other nodes: %s", rc ? err.text : "closed");
	rc = rc ? rc : dfs_close(begun, &err);
	check(rc == 0, "so does one whose pipeline is there already: %s", rc ? err.text : "closed");
	rc = rc ? rc : get(at("begun"), 1000, 1000, 5, &err);
	rc = rc ? rc : get(at("fresh"), BLOCK + 5, 200000, 4, &err);
	rc = rc ? rc : get(at("killed"), size, 200000, 3, &err);
	rc = rc ? rc : get(at("shared"), 3 * BLOCK, 200000, 77, &err);
	rc = rc ? rc : pread_some(at("shared"), 3 * BLOCK, 50, 77, &err);
	dfs_get_counters(fs, &c);
	check(rc == 0, "every byte is there, old files too, after %llu failovers: %s",
	      (unsigned long long)c.read_failovers, rc ? err.text : "identical");
}

int main(int argc, char **argv)
{
	struct dfs_err err = {0};
	struct dfs_nodes *n;
	const char *spoil = NULL;
	pid_t victim = 0;
	int many = 50, flush_first = 0, stock = 0, rc;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--kill") == 0 && i + 1 < argc)
			victim = atoi(argv[++i]); /* NOLINT: a test's argument */
		else if (strcmp(argv[i], "--spoil") == 0 && i + 1 < argc)
			spoil = argv[++i];
		else if (strcmp(argv[i], "--flush-first") == 0)
			flush_first = 1;
		else if (strcmp(argv[i], "--stock-namenode") == 0)
			stock = 1;
		else if (strcmp(argv[i], "--long") == 0)
			many = 2500;
	}
	if (!getenv("HADOOP_CONF_DIR")) {
		printf("SKIP HADOOP_CONF_DIR names no cluster\n");
		return 77;
	}
	rc = dfs_connect(NULL, &fs, &err);
	rc = rc ? rc : dfs_nodes(fs, DFS_NODES_LIVE, &n, &err);
	if (rc < 0) {
		check(0, "connect: %s", err.text);
		return 1;
	}
	replication = n->count < 3 ? (unsigned int)n->count : 3;
	dfs_nodes_free(n);
	snprintf(dir, sizeof(dir), "/tmp/client_api_test.%d", (int)getpid());
	expect(dfs_mkdir(fs, dir, 0, true, &err), 0, &err, dir);
	namespace();
	listing(many);
	cluster();
	errors();
	sizes();
	lent_bytes();
	first_block(DFS_CREATE_FIRST_BLOCK);
	first_block(DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY);
	first_block(DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY);
	early();
	seek_and_tell();
	flush_is_visible();
	append();
	leases();
	cut_and_join();
	replace_blocks(stock);
	threads();
	many_open_readers();
	if (spoil)
		spoil_a_replica(spoil);
	if (victim)
		kill_in_mid_write(victim, flush_first);
	check(atomic_load(&lent) == 0, "%d lent pieces were not given back", atomic_load(&lent));
	expect(dfs_delete(fs, dir, true, &err), 0, &err, "clean up");
	dfs_disconnect(fs);
	printf("%d failures\n", failures);
	return failures != 0;
}
