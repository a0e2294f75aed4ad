/* SPDX-License-Identifier: Apache-2.0 */
/* sync_writers - a program with many files that are synced again and again
 *
 *   sync_writers DIR FILES   a thread for each of DIR/0, DIR/1, ... writes a record of 512 bytes to
 *                            it and flushes it; say "open"; with each line of standard input each
 *                            thread that is not at it yet syncs its file (hsync), writes one more
 *                            record and flushes it: "I MS" says that it is done with file I, and
 *                            how long the sync took; at the end of standard input close them all
 *
 * HADOOP_CONF_DIR names the cluster. Exit 0, or 1 with the reason. */
#include <dfsclient.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECORD 512
#define BLOCK (1u << 20) /* a node keeps room for whole ones */

static struct dfs *fs;
static const char *dir;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned rounds, opened; /* under lock, as this */
static int over;

static void must(int rc, const char *what, const struct dfs_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "sync_writers: %s: %s\n", what, err->text);
	_exit(1); /* the files stay open, as after a crash */
}

static void append(struct dfs_file *f)
{
	static const char record[RECORD];
	struct dfs_err err = {0};

	must((int)dfs_write(f, record, sizeof(record), &err), "write", &err);
	must(dfs_flush(f, &err), "flush", &err);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* False: there is none any more. */
static int next_round(unsigned *done)
{
	int more;

	pthread_mutex_lock(&lock);
	while (!over && *done == rounds)
		pthread_cond_wait(&changed, &lock);
	more = *done != rounds;
	*done = rounds; /* those that went by meanwhile are not made up for */
	pthread_mutex_unlock(&lock);
	return more;
}

static void *writer(void *arg)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts), .block_size = BLOCK};
	const unsigned i = (unsigned)(size_t)arg;
	struct dfs_err err = {0};
	struct dfs_file *f;
	unsigned done = 0;
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/%u", dir, i);
	must(dfs_create(fs, path, &opts, &f, &err), path, &err);
	append(f);
	pthread_mutex_lock(&lock);
	opened++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	while (next_round(&done)) {
		const double began = now_ms();
		double took;

		must(dfs_hsync(f, &err), "hsync", &err);
		took = now_ms() - began;
		append(f);
		printf("%u %.1f\n", i, took);
		(void)fflush(stdout);
	}
	must(dfs_close(f, &err), "close", &err);
	return NULL;
}

static void begin_round(void)
{
	pthread_mutex_lock(&lock);
	rounds++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void await_open(unsigned count)
{
	pthread_mutex_lock(&lock);
	while (opened < count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	puts("open");
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	const unsigned count = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	pthread_t *t = calloc(count ? count : 1, sizeof(*t));
	struct dfs_err err = {0};
	int c;

	if (!count || !t)
		return 2;
	dir = argv[1];
	must(dfs_connect(NULL, &fs, &err), "connect", &err);
	for (unsigned i = 0; i < count; i++)
		if (pthread_create(&t[i], NULL, writer, (void *)(size_t)i)) {
			fputs("sync_writers: no more threads\n", stderr);
			_exit(1);
		}
	await_open(count);
	while ((c = getchar()) != EOF)
		if (c == '\n')
			begin_round();
	pthread_mutex_lock(&lock);
	over = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < count; i++)
		pthread_join(t[i], NULL);
	dfs_disconnect(fs);
	free(t);
	return 0;
}
