/* SPDX-License-Identifier: Apache-2.0 */
/* small_reads - many threads read 4 KiB of one file, all at the same moment, and compare it
 *
 *   small_reads PATH LOCAL THREADS ROUNDS    LOCAL holds the bytes that PATH has
 *
 * HADOOP_CONF_DIR names the cluster. Prints how many reads were answered rightly. Exit 0 when all
 * were. */
#include <dfsclient.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096

static struct dfs_file *file;
static FILE *local;
static size_t pieces;
static unsigned rounds;
static pthread_barrier_t begin;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of local and good */
static unsigned good;

static void compare(const char *got, ssize_t n, off_t at, const struct dfs_err *err)
{
	char want[PIECE];

	pthread_mutex_lock(&lock);
	if (n != PIECE)
		fprintf(stderr, "small_reads: %zd bytes at %lld: %s\n", n, (long long)at,
			n < 0 ? err->text : "too few");
	else if (fseeko(local, at, SEEK_SET) || fread(want, 1, PIECE, local) != PIECE ||
		 memcmp(got, want, PIECE) != 0)
		fprintf(stderr, "small_reads: other bytes at %lld\n", (long long)at);
	else
		good++;
	pthread_mutex_unlock(&lock);
}

static void *reader(void *arg)
{
	const size_t me = (size_t)arg;

	for (unsigned r = 0; r < rounds; r++) {
		const off_t at = (off_t)((me * 7919 + r * 104729) % pieces * PIECE);
		struct dfs_err err = {0};
		char got[PIECE];

		pthread_barrier_wait(&begin);
		compare(got, dfs_pread(file, got, sizeof(got), (uint64_t)at, &err), at, &err);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const unsigned threads = argc == 5 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	pthread_t *t = calloc(threads ? threads : 1, sizeof(*t));
	struct dfs_err err = {0};
	struct dfs *fs;

	rounds = argc == 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	local = argc == 5 ? fopen(argv[2], "rb") : NULL;
	if (!threads || !rounds || !t || !local)
		return 2;
	if (dfs_connect(NULL, &fs, &err) < 0 || dfs_open(fs, argv[1], &file, &err) < 0) {
		fprintf(stderr, "small_reads: %s\n", err.text);
		return 1;
	}
	pieces = (size_t)(dfs_length(file) / PIECE);
	if (!pieces)
		return 2;
	pthread_barrier_init(&begin, NULL, threads);
	for (size_t i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, reader, (void *)i))
			return 2;
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("%u of %u\n", good, threads * rounds);
	dfs_close(file, NULL);
	dfs_disconnect(fs);
	fclose(local);
	free(t);
	return good != threads * rounds;
}
