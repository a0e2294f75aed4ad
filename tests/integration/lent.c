/* SPDX-License-Identifier: Apache-2.0 */
/* lent - writes a file from memory that is registered for RDMA
 *
 *   lent PATH LOCAL [early]    LOCAL holds the bytes that PATH is to have
 *
 * All of LOCAL lies in the memory, and is lent in pieces of 1 MiB. Says "half" when half of them
 * are, and at last "written=N copied=N tcp=N recoveries=N". While bytes are lent the memory cannot
 * be unregistered; after dfs_close() it can, and is written over. With `early` each piece is
 * written over as soon as it is lent; says "refused: WHY" if the file fails then.
 * HADOOP_CONF_DIR names the cluster. Exit 0, or 1 with the reason. */
#include <dfsclient.h>
#include <dfsclient_ext.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1u << 20)

static atomic_uint given_back;

static void must(int rc, const char *what, const struct dfs_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "lent: %s: %s\n", what, err->text);
	exit(1);
}

static void must_be(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "lent: %s\n", what);
	exit(1);
}

static void on_given_back(void *arg)
{
	(void)arg;
	atomic_fetch_add(&given_back, 1);
}

static char *load(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "r");
	char *p = NULL;
	long len = -1;

	if (f && fseek(f, 0, SEEK_END) == 0)
		len = ftell(f);
	if (len > 0)
		p = aligned_alloc(4096, ((size_t)len + 4095) & ~(size_t)4095);
	must_be(p && fseek(f, 0, SEEK_SET) == 0 && fread(p, 1, (size_t)len, f) == (size_t)len,
		"the local file cannot be read");
	fclose(f);
	*ret_len = (size_t)len;
	return p;
}

/* Of all of it; the first failure. */
static int write_lent(struct dfs *fs, struct dfs_file *f, char *mem, size_t len, bool early,
		      struct dfs_err *err)
{
	unsigned lent = 0;
	bool half = false;

	for (size_t at = 0; at < len; at += PIECE) {
		const size_t n = len - at < PIECE ? len - at : PIECE;

		lent++;
		if (dfs_write_lent(f, mem + at, n, on_given_back, NULL, err) < 0)
			return err->rc;
		if (at == 0)
			must_be(dfs_mem_unregister(fs, mem) == -EBUSY || given_back == lent,
				"lent memory can be unregistered");
		if (early)
			memset(mem + at, 0x55, n);
		if (!half && at >= len / 2) {
			half = true;
			puts("half");
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	const bool early = argc == 4 && !strcmp(argv[3], "early");
	struct dfs_counters c;
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs *fs;
	size_t len;
	char *mem;
	int rc, rc_close;

	if (argc < 3)
		return 2;
	setlinebuf(stdout);
	mem = load(argv[2], &len);
	must(dfs_connect(NULL, &fs, &err), "dfs_connect", &err);
	must(dfs_mem_register(fs, mem, len, &err), "dfs_mem_register", &err);
	must(dfs_create(fs, argv[1], NULL, &f, &err), argv[1], &err);
	rc = write_lent(fs, f, mem, len, early, &err);
	rc_close = dfs_close(f, rc < 0 ? NULL : &err);
	rc = rc < 0 ? rc : rc_close;
	if (early && rc < 0)
		printf("refused: %d %s\n", rc, err.text);
	else
		must(rc, "writing", &err);
	must_be(given_back > 0, "nothing was given back");
	must_be(dfs_mem_unregister(fs, mem) == 0, "memory that is not lent stays registered");
	memset(mem, 0x77, len);
	dfs_get_counters(fs, &c);
	printf("written=%" PRIu64 " copied=%" PRIu64 " tcp=%" PRIu64 " recoveries=%" PRIu64 "\n",
	       c.written_rdma, c.write_rdma_copied, c.written_tcp, c.pipeline_recoveries);
	dfs_disconnect(fs);
	free(mem);
	return 0;
}
