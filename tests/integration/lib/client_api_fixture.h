/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: lib/client_api_fixture - what the tests of libdfsclient on a real cluster share: the
 * connection, and files of a pattern that are written and read in every way
 *
 * For programs of one source file, as lib/checks.h.
 */
#include <dfsclient_ext.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/checks.h"

#define KI 1024ull
#define MI (1024 * KI)
#define BLOCK MI
#define LENT_MIN (64 * KI)

static struct dfs *fs;
static unsigned int replication;
static uint32_t create_flags;

/* ---- small helpers ---- */

/* Byte @off of every test file: no period that a block, chunk or packet could hide. */
static inline uint8_t pattern(uint64_t off, uint64_t salt)
{
	uint64_t x = (off / 8 + 1) * 0x9e3779b97f4a7c15ull + salt * 0xbf58476d1ce4e5b9ull;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebull;
	return (uint8_t)(x >> (off % 8 * 8));
}

static inline void fill(uint8_t *buf, uint64_t off, size_t len, uint64_t salt)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(off + i, salt);
}

static inline int same(const uint8_t *buf, uint64_t off, size_t len, uint64_t salt)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern(off + i, salt))
			return 0;
	return 1;
}

static inline uint64_t rnd(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static inline int create(const char *path, struct dfs_file **ret, struct dfs_err *err)
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
static inline void given_back(void *arg)
{
	struct lent *l = arg;

	memset(l->bytes, 0xdb, l->len);
	free(l);
	atomic_fetch_sub(&lent, 1);
}

static inline ssize_t write_lent(struct dfs_file *f, uint64_t from, size_t len, uint64_t salt,
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
static inline int write_range(struct dfs_file *f, uint64_t from, uint64_t to, size_t piece,
			      uint64_t salt, struct dfs_err *err)
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

static inline int put(const char *path, uint64_t size, size_t piece, uint64_t salt,
		      struct dfs_err *err)
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
static inline int get(const char *path, uint64_t size, size_t piece, uint64_t salt,
		      struct dfs_err *err)
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

static inline int pread_some(const char *path, uint64_t size, int count, uint64_t salt,
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

static inline void expect(int rc, int want, const struct dfs_err *err, const char *what)
{
	check(rc == want, "%s: %d (%s) %s", what, rc, strerror(rc < 0 ? -rc : 0),
	      rc < 0 ? err->text : "");
}

/* ---- the cluster ---- */

/* 0, or what the program returns at once. */
static inline int connect_cluster(void)
{
	struct dfs_err err = {0};
	struct dfs_nodes *n;
	int rc;

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
	return 0;
}

/* What the program returns. */
static inline int disconnect_cluster(void)
{
	struct dfs_err err = {0};

	check(atomic_load(&lent) == 0, "%d lent pieces were not given back", atomic_load(&lent));
	expect(dfs_delete(fs, dir, true, &err), 0, &err, "clean up");
	dfs_disconnect(fs);
	printf("%d failures\n", failures);
	return failures != 0;
}
