/* SPDX-License-Identifier: Apache-2.0 */
/* stuck_writers - a program with many writers, some of them on a disk that hangs, and other files
 *
 *   stuck_writers DIR FILES OTHER   flush a little to each of DIR/0, DIR/1, ...; say "open"; then
 *     obey the lines of standard input: write   a thread for each writes MIBS more to it and closes
 *     it, whatever comes of it; "done" get     read all of OTHER: "done"
 *     put     write a file of 1 MiB, and close it: "done"
 *
 * HADOOP_CONF_DIR names the cluster; all bytes go over RDMA. Where "done" is said, the reason is
 * said instead when it fails. */
#include <dfsclient.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LITTLE 512
#define MI (1u << 20)
#define MIBS 8
#define BLOCK (16 * MI)

static char bytes[MI];

static void *writer(void *arg)
{
	struct dfs_file *f = arg;

	for (int i = 0; i < MIBS && dfs_write(f, bytes, MI, NULL) > 0; i++)
		;
	(void)dfs_close(f, NULL);
	return NULL;
}

static int write_all(struct dfs_file **files, unsigned count)
{
	pthread_t t;

	for (unsigned i = 0; i < count; i++)
		if (pthread_create(&t, NULL, writer, files[i]) || pthread_detach(t))
			return -1;
	return 0;
}

static int get(struct dfs *fs, const char *path, struct dfs_err *err)
{
	static char buf[MI];
	struct dfs_file *f;
	ssize_t n = dfs_open(fs, path, &f, err);

	if (n < 0)
		return -1;
	while ((n = dfs_read(f, buf, sizeof(buf), err)) > 0)
		;
	(void)dfs_close(f, NULL);
	return (int)n;
}

static int put(struct dfs *fs, const char *dir, struct dfs_err *err)
{
	static unsigned count;
	char path[512];
	struct dfs_file *f;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/put-%u", dir, count++);
	if (dfs_create(fs, path, NULL, &f, err) < 0)
		return -1;
	n = dfs_write(f, bytes, MI, err);
	if (n < 0) {
		(void)dfs_close(f, NULL);
		return -1;
	}
	return dfs_close(f, err);
}

int main(int argc, char **argv)
{
	static const char *const conf[] = {"dfs.client.rdma=require", NULL};
	const struct dfs_connect_opts opts = {.size = sizeof(opts), .conf = conf};
	const struct dfs_create_opts create = {.size = sizeof(create), .block_size = BLOCK};
	const unsigned count = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct dfs_file **files = calloc(count ? count : 1, sizeof(struct dfs_file *));
	struct dfs_err err = {0};
	char line[16], path[512];
	struct dfs *fs;

	if (!count || !files)
		return 2;
	if (dfs_connect(&opts, &fs, &err) < 0) {
		puts(err.text);
		return 1;
	}
	for (unsigned i = 0; i < count; i++) {
		(void)snprintf(path, sizeof(path), "%s/%u", argv[1], i);
		if (dfs_create(fs, path, &create, &files[i], &err) < 0 ||
		    dfs_write(files[i], bytes, LITTLE, &err) < 0 || dfs_flush(files[i], &err) < 0) {
			puts(err.text);
			return 1;
		}
	}
	puts("open");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		const int rc = !strcmp(line, "write\n") ? write_all(files, count)
			       : !strcmp(line, "get\n") ? get(fs, argv[3], &err)
							: put(fs, argv[1], &err);

		puts(rc < 0 ? err.text : "done");
		(void)fflush(stdout);
	}
	return 0; /* with its writers */
}
