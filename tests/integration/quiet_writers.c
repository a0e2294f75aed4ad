/* SPDX-License-Identifier: Apache-2.0 */
/* quiet_writers - many open files whose writer has flushed and goes quiet
 *
 *   quiet_writers DIR FILES RECORDS [MIB]    write RECORDS records of 512 bytes to each of DIR/0,
 *                                            DIR/1, ..., flush each record; beside them write
 *                                            DIR/long of MIB MiB, and close it; say "quiet", and
 *                                            wait; at the end of standard input write one more
 *                                            record to each and close
 *
 * HADOOP_CONF_DIR names the cluster. Record R of file F is 512 times the byte (F * 7 + R) % 251,
 * MiB M of the long one is 2^20 times the byte M. Exit 0, or 1 with the reason. */
#include <dfsclient.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD 512
#define MI (1u << 20)
#define BLOCK (2 * MI) /* a node keeps room for whole ones */

static void must(int rc, const char *what, const struct dfs_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "quiet_writers: %s: %s\n", what, err->text);
	_exit(1); /* the files stay open, as after a crash */
}

static void append(struct dfs_file *f, unsigned file, unsigned record)
{
	struct dfs_err err = {0};
	char buf[RECORD];

	memset(buf, (int)((file * 7 + record) % 251), sizeof(buf));
	must((int)dfs_write(f, buf, sizeof(buf), &err), "write", &err);
	must(dfs_flush(f, &err), "flush", &err);
}

static void write_long(struct dfs *fs, const char *path, unsigned mib)
{
	struct dfs_err err = {0};
	char *buf = malloc(MI);
	struct dfs_file *f;

	if (!buf)
		_exit(1);
	must(dfs_create(fs, path, NULL, &f, &err), path, &err);
	for (unsigned m = 0; m < mib; m++) {
		memset(buf, (int)m, MI);
		must((int)dfs_write(f, buf, MI, &err), path, &err);
	}
	must(dfs_close(f, &err), path, &err);
	free(buf);
}

int main(int argc, char **argv)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts), .block_size = BLOCK};
	const bool good = argc == 4 || argc == 5;
	const unsigned count = good ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	const unsigned records = good ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	const unsigned mib = argc == 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	struct dfs_file **files = calloc(count ? count : 1, sizeof(struct dfs_file *));
	struct dfs_err err = {0};
	struct dfs *fs;
	char path[512];

	if (!count || !files)
		return 2;
	must(dfs_connect(NULL, &fs, &err), "connect", &err);
	for (unsigned i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%u", argv[1], i);
		must(dfs_create(fs, path, &opts, &files[i], &err), path, &err);
		for (unsigned r = 0; r < records; r++)
			append(files[i], i, r);
	}
	if (mib) {
		snprintf(path, sizeof(path), "%s/long", argv[1]);
		write_long(fs, path, mib);
	}
	puts("quiet");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (unsigned i = 0; i < count; i++) {
		append(files[i], i, records);
		must(dfs_close(files[i], &err), "close", &err);
	}
	dfs_disconnect(fs);
	free(files);
	return 0;
}
