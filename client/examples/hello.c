/* SPDX-License-Identifier: Apache-2.0 */
/* hello - put a line into a file and get it back: hello [/path/of/file] */
#include <dfsclient.h>
#include <stdio.h>
#include <string.h>

static int put(struct dfs *fs, const char *path, const char *text, struct dfs_err *err)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts), .flags = DFS_CREATE_OVERWRITE};
	struct dfs_file *f;
	ssize_t n;
	int rc = dfs_create(fs, path, &opts, &f, err);

	if (rc < 0)
		return rc;
	n = dfs_write(f, text, strlen(text), err);
	rc = dfs_close(f, err); /* frees f, and fails too when the write failed */
	return n < 0 ? (int)n : rc;
}

static int get(struct dfs *fs, const char *path, struct dfs_err *err)
{
	struct dfs_file *f;
	char buf[4096];
	ssize_t n;
	int rc = dfs_open(fs, path, &f, err);

	if (rc < 0)
		return rc;
	while ((n = dfs_read(f, buf, sizeof(buf), err)) > 0)
		(void)fwrite(buf, 1, (size_t)n, stdout);
	(void)dfs_close(f, NULL);
	return (int)n;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/tmp/hello.txt";
	struct dfs_err err;
	struct dfs *fs = NULL;
	int rc = dfs_connect(NULL, &fs, &err); /* HADOOP_CONF_DIR says where */

	if (rc == 0)
		rc = put(fs, path, "hello, world\n", &err);
	if (rc == 0)
		rc = get(fs, path, &err);
	if (rc < 0)
		fprintf(stderr, "hello: %s\n", err.text);
	dfs_disconnect(fs);
	return rc < 0;
}
