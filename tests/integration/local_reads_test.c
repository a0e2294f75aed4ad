/* SPDX-License-Identifier: Apache-2.0 */
/* A client under the hand of a test: one command a line, one answer line each, and the bytes that
 * were read behind it.
 *
 * local_reads_test [KEY=VALUE...]     in the cluster of HADOOP_CONF_DIR
 *   open PATH | close | pread OFFSET LEN | read LEN | seek OFFSET | counters */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dfsclient_ext.h"

#define LEN_MAX (64u << 20)

static struct dfs *fs;
static struct dfs_file *file;
static char *buf;

static void answer(int64_t n, const struct dfs_err *err, bool bytes)
{
	if (n < 0) {
		printf("error %" PRId64 " %s\n", n, err->text);
	} else {
		printf("ok %" PRId64 "\n", n);
		if (bytes)
			(void)fwrite(buf, 1, (size_t)n, stdout);
	}
	fflush(stdout);
}

static void show_counters(void)
{
	struct dfs_counters c;

	dfs_get_counters(fs, &c);
	printf("ok tcp=%" PRIu64 " rdma=%" PRIu64 " local=%" PRIu64 " fallbacks=%" PRIu64
	       " failovers=%" PRIu64 " bad=%" PRIu64 "\n",
	       c.read_tcp, c.read_rdma, c.read_local, c.local_fallbacks, c.read_failovers,
	       c.checksum_errors);
	fflush(stdout);
}

static bool obey(char *line)
{
	struct dfs_err err = {0};
	unsigned long long a = 0, b = 0;

	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "open ", 5) == 0) {
		answer(dfs_open(fs, line + 5, &file, &err), &err, false);
	} else if (strcmp(line, "close") == 0) {
		answer(dfs_close(file, &err), &err, false);
		file = NULL;
	} else if (sscanf(line, "pread %llu %llu", &a, &b) == 2 && b <= LEN_MAX) {
		answer(dfs_pread(file, buf, (size_t)b, a, &err), &err, true);
	} else if (sscanf(line, "read %llu", &a) == 1 && a <= LEN_MAX) {
		answer(dfs_read(file, buf, (size_t)a, &err), &err, true);
	} else if (sscanf(line, "seek %llu", &a) == 1) {
		answer(dfs_seek(file, a, &err), &err, false);
	} else if (strcmp(line, "counters") == 0) {
		show_counters();
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct dfs_connect_opts o = {.size = sizeof(o), .conf = (const char *const *)(argv + 1)};
	struct dfs_err err = {0};
	char line[4096];

	(void)argc;
	buf = malloc(LEN_MAX);
	if (!buf || dfs_connect(&o, &fs, &err) < 0) {
		fprintf(stderr, "connect: %s\n", err.text);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin))
		if (!obey(line))
			return 2;
	if (file)
		(void)dfs_close(file, NULL);
	dfs_disconnect(fs);
	free(buf);
	return 0;
}
