/* SPDX-License-Identifier: Apache-2.0 */
/* ec_reads SEED REMOTE LOCAL [REMOTE LOCAL]...: each REMOTE is read in sequence in pieces of random
 * size, with a few seeks, and at random offsets, and is byte for byte the file LOCAL. The last line
 * says how: bytes read, decoded, hedges, units given up, wrong checksums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/include/dfsclient_ext.h"

#define PREADS 12
#define SEEKS 3

static uint64_t state;

static uint64_t below(uint64_t n) /* xorshift64*: good enough to choose ranges */
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull % n;
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "ec_reads: %s: %s\n", what, why);
	return 1;
}

static uint8_t *load(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *p;

	if (!f || fstat(fileno(f), &st) < 0 || !(p = malloc((size_t)st.st_size + 1)))
		exit(fail(path, "cannot be read"));
	*ret_len = fread(p, 1, (size_t)st.st_size, f);
	fclose(f);
	return p;
}

/* From @at to the end, or as far as chance wants. */
static int check_sequence(struct dfs_file *f, const char *name, const uint8_t *want, size_t len,
			  size_t at, uint8_t *buf)
{
	const size_t piece = below(3) ? 1 + below(len + 1) : 1 + below(70000);
	const bool whole = at == 0;
	struct dfs_err err = {0};
	char text[80];
	ssize_t n;

	if (dfs_seek(f, at, &err) < 0)
		return fail(name, err.text);
	while ((n = dfs_read(f, buf, piece, &err)) > 0) {
		if ((size_t)n > len - at || memcmp(buf, want + at, (size_t)n) != 0) {
			snprintf(text, sizeof(text), "wrong bytes in [%zu, %zu)", at,
				 at + (size_t)n);
			return fail(name, text);
		}
		at += (size_t)n;
		if (!whole && below(8) == 0)
			return 0;
	}
	if (n < 0)
		return fail(name, err.text);
	return at == len ? 0 : fail(name, "ends early");
}

static int check_preads(struct dfs_file *f, const char *name, const uint8_t *want, size_t len,
			uint8_t *buf)
{
	struct dfs_err err = {0};
	char text[80];

	for (int i = 0; i < PREADS && len > 0; i++) {
		const size_t at = below(len),
			     most = len - at < 200000 || i % 4 == 0 ? len - at : 200000;
		const size_t n = 1 + below(most);
		ssize_t got = dfs_pread(f, buf, n, at, &err);

		if (got < 0)
			return fail(name, err.text);
		snprintf(text, sizeof(text), "wrong pread of [%zu, %zu)", at, at + n);
		if ((size_t)got != n || memcmp(buf, want + at, n) != 0)
			return fail(name, text);
	}
	return 0;
}

static int check_file(struct dfs *fs, const char *remote, const char *local)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	size_t len;
	uint8_t *want = load(local, &len), *buf = malloc(len + 1);
	int rc = dfs_open(fs, remote, &f, &err);

	if (rc < 0 || !buf)
		return fail(remote, err.text);
	if (dfs_length(f) != len)
		rc = fail(remote, "wrong length");
	rc = rc ?: check_sequence(f, remote, want, len, 0, buf);
	for (int i = 0; i < SEEKS && len > 0; i++)
		rc = rc ?: check_sequence(f, remote, want, len, 1 + below(len), buf);
	rc = rc ?: check_preads(f, remote, want, len, buf);
	dfs_close(f, NULL);
	free(want);
	free(buf);
	return rc;
}

int main(int argc, char **argv)
{
	struct dfs_counters c;
	struct dfs_err err = {0};
	struct dfs *fs;
	int rc = 0;

	if (argc < 4 || argc % 2)
		return fail("usage", "ec_reads SEED REMOTE LOCAL...");
	state = strtoull(argv[1], NULL, 0) * 2 + 1;
	if (dfs_connect(NULL, &fs, &err) < 0)
		return fail("connect", err.text);
	for (int i = 2; i < argc && !rc; i += 2)
		rc = check_file(fs, argv[i], argv[i + 1]);
	dfs_get_counters(fs, &c);
	printf("read=%llu decoded=%llu hedges=%llu failovers=%llu bad=%llu\n",
	       (unsigned long long)(c.read_tcp + c.read_rdma), (unsigned long long)c.read_decoded,
	       (unsigned long long)c.read_hedges, (unsigned long long)c.read_failovers,
	       (unsigned long long)c.checksum_errors);
	dfs_disconnect(fs);
	return rc;
}
