/* SPDX-License-Identifier: Apache-2.0 */
/* registered - reads a file into memory that is registered for RDMA, and compares it
 *
 *   registered PATH LOCAL ROUNDS    LOCAL holds the bytes that PATH has; 0 rounds: until standard
 *                                   input ends
 *
 * Each round reads all of it in pieces of 4 MiB by dfs_read(), and 1 MiB from an odd byte by
 * dfs_pread(). Says "reads" when the first piece is there, and with 0 rounds "read=..." after each.
 * At last it writes a pattern over its
 * memory, says "read=N copied=N tcp=N failovers=N", waits for the end of standard input, and looks
 * whether the pattern is still there.
 * HADOOP_CONF_DIR names the cluster. Exit 0, or 1 with the reason. */
#include <dfsclient.h>
#include <dfsclient_ext.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (4u << 20)
#define ODD (1u << 20)

static void must(int rc, const char *what, const struct dfs_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "registered: %s: %s\n", what, err->text);
	exit(1);
}

static void compare(FILE *local, const char *got, size_t n, off_t at)
{
	char *want = malloc(n);

	if (!want || fseeko(local, at, SEEK_SET) || fread(want, 1, n, local) != n ||
	    memcmp(got, want, n) != 0) {
		fprintf(stderr, "registered: other bytes at %lld\n", (long long)at);
		exit(1);
	}
	free(want);
}

static void round_of(struct dfs *fs, const char *path, FILE *local, char *mem)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	off_t at = 0;
	ssize_t n;

	must(dfs_open(fs, path, &f, &err), path, &err);
	while ((n = dfs_read(f, mem, PIECE, &err)) > 0) {
		if (at == 0)
			puts("reads");
		compare(local, mem, (size_t)n, at);
		at += n;
	}
	must((int)n, "dfs_read", &err);
	n = dfs_pread(f, mem, ODD, 1234567, &err);
	must((int)n, "dfs_pread", &err);
	compare(local, mem, (size_t)n, 1234567);
	must(dfs_close(f, &err), "dfs_close", &err);
}

static void say(struct dfs *fs)
{
	struct dfs_counters c;

	dfs_get_counters(fs, &c);
	printf("read=%" PRIu64 " copied=%" PRIu64 " tcp=%" PRIu64 " failovers=%" PRIu64 "\n",
	       c.read_rdma, c.read_rdma_copied, c.read_tcp, c.read_failovers);
}

static bool is_to_go_on(void)
{
	struct pollfd in = {.events = POLLIN};

	return poll(&in, 1, 0) == 0;
}

int main(int argc, char **argv)
{
	struct dfs_err err = {0};
	struct dfs *fs;
	FILE *local = argc == 4 ? fopen(argv[2], "r") : NULL;
	char *mem = aligned_alloc(4096, PIECE);
	char byte;

	if (!local || !mem)
		return 2;
	setlinebuf(stdout);
	must(dfs_connect(NULL, &fs, &err), "dfs_connect", &err);
	must(dfs_mem_register(fs, mem, PIECE, &err), "dfs_mem_register", &err);
	for (int i = 0; i < atoi(argv[3]); i++)
		round_of(fs, argv[1], local, mem);
	while (atoi(argv[3]) == 0 && is_to_go_on()) {
		round_of(fs, argv[1], local, mem);
		say(fs);
	}
	memset(mem, 0x77, PIECE);
	say(fs);
	while (read(0, &byte, 1) > 0)
		;
	for (size_t i = 0; i < PIECE; i++)
		if (mem[i] != 0x77) {
			fprintf(stderr, "registered: byte %zu was written to\n", i);
			return 1;
		}
	must(dfs_mem_unregister(fs, mem), "dfs_mem_unregister", &err);
	dfs_disconnect(fs);
	return 0;
}
