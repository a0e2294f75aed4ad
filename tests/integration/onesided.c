/* SPDX-License-Identifier: Apache-2.0 */
/* onesided - reads a file here and there by dfs_pread(), and compares the bytes
 *
 *   onesided PATH LOCAL COUNT SIZE    LOCAL holds the bytes that PATH has; COUNT reads of SIZE
 *                                     bytes; 0: until standard input ends
 *
 * Says "reads=N onesided=N rdma=N tcp=N failovers=N checksums=N": bytes but for the first and the
 * last two; with COUNT 0 once a second, else at the end. HADOOP_CONF_DIR names the cluster. Exit 0,
 * or 1 with the reason. */
#include <dfsclient.h>
#include <dfsclient_ext.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t reads;

static void must(int rc, const char *what, const struct dfs_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "onesided: %s: %s\n", what, err->text);
	exit(1);
}

static void say(struct dfs *fs)
{
	struct dfs_counters c;

	dfs_get_counters(fs, &c);
	printf("reads=%" PRIu64 " onesided=%" PRIu64 " rdma=%" PRIu64 " tcp=%" PRIu64
	       " failovers=%" PRIu64 " checksums=%" PRIu64 "\n",
	       reads, c.read_onesided, c.read_rdma, c.read_tcp, c.read_failovers,
	       c.checksum_errors);
}

static char *all_of(const char *local, size_t *ret_len)
{
	FILE *f = fopen(local, "r");
	char *p = NULL;
	long len = -1;

	if (f && !fseek(f, 0, SEEK_END))
		len = ftell(f);
	if (len > 0)
		p = malloc((size_t)len);
	if (!p || fseek(f, 0, SEEK_SET) || fread(p, 1, (size_t)len, f) != (size_t)len) {
		fprintf(stderr, "onesided: cannot read %s\n", local);
		exit(1);
	}
	fclose(f);
	*ret_len = (size_t)len;
	return p;
}

static void read_one(struct dfs_file *f, const char *want, size_t len, char *buf, size_t size)
{
	static uint64_t seed = 88172645463325252u;
	struct dfs_err err = {0};
	size_t at;
	ssize_t n;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	at = seed % (len - size + 1);
	n = dfs_pread(f, buf, size, at, &err);
	must((int)n, "dfs_pread", &err);
	if ((size_t)n != size || memcmp(buf, want + at, size)) {
		fprintf(stderr, "onesided: other bytes at %zu\n", at);
		exit(1);
	}
	reads++;
}

static bool is_to_go_on(void)
{
	struct pollfd in = {.events = POLLIN};

	return poll(&in, 1, 0) == 0;
}

int main(int argc, char **argv)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs *fs;
	const uint64_t count = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
	const size_t size = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
	time_t said = time(NULL);
	size_t len;
	char *want, *buf = malloc(size);

	if (!size || !buf)
		return 2;
	want = all_of(argv[2], &len);
	setlinebuf(stdout);
	must(dfs_connect(NULL, &fs, &err), "dfs_connect", &err);
	must(dfs_open(fs, argv[1], &f, &err), argv[1], &err);
	while (count ? reads < count : is_to_go_on()) {
		read_one(f, want, len, buf, size);
		if (!count && time(NULL) != said) {
			said = time(NULL);
			say(fs);
		}
	}
	say(fs);
	must(dfs_close(f, &err), "dfs_close", &err);
	dfs_disconnect(fs);
	free(want);
	free(buf);
	return 0;
}
