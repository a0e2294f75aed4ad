/* SPDX-License-Identifier: Apache-2.0 */
/* client_faults_test - libdfsclient against any cluster, from many threads and beside faults
 *
 *   client_faults_test [--kill PID [--flush-first]] [--spoil DIR]
 *
 * HADOOP_CONF_DIR names the cluster (without it: skipped). --kill: a data node that is killed with
 * SIGKILL in the middle of a write; the cluster needs two more, with --flush-first three. --spoil:
 * the directory of a data node (or several), in which a byte of a replica is flipped. Everything
 * happens below /tmp/client_api_test.<pid>, which is removed at the end. Prints PASS/FAIL lines;
 * exit 0, 1, 77. */
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "lib/client_api_fixture.h"

#define PATIENCE_S 150 /* for what takes less than one on an idle machine */

struct job {
	pthread_t thread;
	int i, rc;
	struct dfs_file *file;
	struct dfs_err err;
};

static void *write_and_read(void *arg)
{
	struct job *j = arg;
	char path[256];
	const uint64_t size = 2 * BLOCK + 1000u * (unsigned int)j->i;

	snprintf(path, sizeof(path), "%s/thread%d", dir, j->i);
	j->rc = put(path, size, 30000, (uint64_t)j->i, &j->err);
	j->rc = j->rc ? j->rc : get(path, size, 30000, (uint64_t)j->i, &j->err);
	return NULL;
}

static void *pread_shared(void *arg)
{
	struct job *j = arg;
	uint64_t seed = (uint64_t)j->i;
	uint8_t buf[20000];

	for (int k = 0; k < 100 && j->rc == 0; k++) {
		uint64_t off = rnd(&seed) % (3 * BLOCK - sizeof(buf));
		ssize_t n = dfs_pread(j->file, buf, sizeof(buf), off, &j->err);

		if (n != sizeof(buf) || !same(buf, off, sizeof(buf), 77))
			j->rc = n < 0 ? (int)n : -EBADMSG;
	}
	return NULL;
}

/* How often it was the one who made a directory that all of them want. */
static atomic_int made;

static void *make_dirs(void *arg)
{
	struct job *j = arg;
	char path[256];

	for (int k = 0; k < 30 && j->rc == 0; k++) {
		snprintf(path, sizeof(path), "%s/rivals/%d", dir, k);
		j->rc = dfs_mkdir(fs, path, 0, false, &j->err);
		made += j->rc == 0;
		j->rc = j->rc == -EEXIST ? 0 : j->rc;
	}
	return NULL;
}

static int run_jobs(void *(*fn)(void *), struct dfs_file *f, struct dfs_err *err)
{
	struct job job[4] = {{0}};
	int rc = 0;

	for (int i = 0; i < 4; i++) {
		job[i].i = i;
		job[i].file = f;
		pthread_create(&job[i].thread, NULL, fn, &job[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(job[i].thread, NULL);
		if (job[i].rc) {
			rc = job[i].rc;
			*err = job[i].err;
		}
	}
	return rc;
}

static void threads(void)
{
	struct dfs_err err = {0};
	struct dfs_content_summary sum;
	struct dfs_file *f;
	int rc = run_jobs(write_and_read, NULL, &err);

	check(rc == 0, "four threads write and read a file each %s", rc ? err.text : "");
	expect(dfs_mkdir(fs, at("rivals"), 0, false, &err), 0, &err, "mkdir");
	rc = run_jobs(make_dirs, NULL, &err);
	check(rc == 0 && made == 30, "four threads make 30 directories: %d made one %s", made,
	      rc ? err.text : "");
	rc = dfs_get_content_summary(fs, at("rivals"), &sum, &err);
	check(rc == 0 && sum.directory_count == 31, "and nothing else is there");
	rc = put(at("shared"), 3 * BLOCK, 100000, 77, &err);
	rc = rc ? rc : dfs_open(fs, at("shared"), &f, &err);
	if (rc == 0) {
		rc = run_jobs(pread_shared, f, &err);
		dfs_close(f, NULL);
	}
	check(rc == 0, "four threads pread one file %s", rc ? err.text : "");
}

#define OPEN_FILES 61
#define WIDE (24 * MI) /* more than sockets and a data node hold of it */

/* Files that are open and not read keep nothing from others: each of them reads on. */
static void many_open_readers(void)
{
	const struct dfs_create_opts o = {
		.size = sizeof(o), .block_size = 32 * MI, .replication = replication};
	static struct dfs_file *open[OPEN_FILES];
	uint8_t *buf = malloc(MI);
	struct dfs_err err = {0};
	struct timespec from, to;
	struct dfs_file *f;
	int n = 0, rc = dfs_create(fs, at("wide"), &o, &f, &err);

	rc = rc ? rc : write_range(f, 0, WIDE, MI, 9, &err);
	rc = rc ? rc : dfs_close(f, &err);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int round = 0; rc == 0 && round < 2; round++)
		for (int i = 0; rc == 0 && i < OPEN_FILES; i++) {
			if (i == n)
				rc = dfs_open(fs, at("wide"), &open[n], &err);
			n += i == n && rc == 0;
			rc = rc ? rc : (int)dfs_read(open[i], buf, MI, &err);
			if (rc >= 0)
				rc = rc == MI && same(buf, (uint64_t)round * MI, MI, 9) ? 0
											: -EBADMSG;
		}
	clock_gettime(CLOCK_MONOTONIC, &to);
	check(rc == 0, "%d open files are read by turns: %s", n, rc ? err.text : "identical");
	check(to.tv_sec - from.tv_sec < 25, "in %d s: nobody waits until a data node gives up",
	      (int)(to.tv_sec - from.tv_sec));
	while (n > 0)
		dfs_close(open[--n], NULL);
	free(buf);
}

static char wanted[64]; /* a block file, for spoil_file() */
static int spoilt;

static int spoil_file(const char *path, const struct stat *st, int type, struct FTW *w)
{
	uint8_t b;
	int fd;

	(void)st;
	if (type != FTW_F || strcmp(path + w->base, wanted) != 0 || spoilt)
		return 0;
	fd = open(path, O_RDWR);
	if (fd >= 0 && pread(fd, &b, 1, 70000) == 1) {
		b ^= 1;
		spoilt += pwrite(fd, &b, 1, 70000) == 1;
	}
	close(fd);
	return 0;
}

/* Until the file's first block has @least to @most replicas that are known of. */
static int wait_replicas(const char *name, size_t least, size_t most, struct dfs_blocks **ret,
			 struct dfs_err *err)
{
	for (int i = 0; i < PATIENCE_S * 50; i++) {
		int rc = dfs_blocks(fs, name, 0, 1, ret, err);

		if (rc || ((*ret)->block[0].count >= least && (*ret)->block[0].count <= most))
			return rc;
		dfs_blocks_free(*ret);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	snprintf(err->text, sizeof(err->text), "not %zu to %zu replicas after %d s", least, most,
		 PATIENCE_S);
	return -ETIMEDOUT;
}

/* A flipped bit on one node's disk: the reader gets the right bytes, from somewhere else. */
static void spoil_a_replica(const char *data_dir)
{
	struct dfs_err err = {0};
	struct dfs_counters before, after;
	struct dfs_blocks *b;
	int rc = put(at("spoilt"), BLOCK, 100000, 8, &err);

	rc = rc ? rc : wait_replicas(at("spoilt"), replication, replication, &b, &err);
	if (rc) {
		expect(rc, 0, &err, "spoil: every replica is reported");
		return;
	}
	snprintf(wanted, sizeof(wanted), "blk_%lld", (long long)b->block[0].id);
	nftw(data_dir, spoil_file, 20, FTW_PHYS);
	check(spoilt == 1, "a byte of %s flipped (%zu replicas)", wanted, b->block[0].count);
	dfs_blocks_free(b);
	dfs_get_counters(fs, &before);
	for (int i = 0; i < 20 && rc == 0; i++) { /* replicas of equal distance come in any order */
		rc = get(at("spoilt"), BLOCK, 100000, 8, &err);
		dfs_get_counters(fs, &after);
		if (after.checksum_errors > before.checksum_errors)
			break;
	}
	check(rc == 0, "no reader sees it: %s", rc ? err.text : "identical");
	check(after.checksum_errors == before.checksum_errors + 1,
	      "it was met and reported %d times",
	      (int)(after.checksum_errors - before.checksum_errors));
	rc = wait_replicas(at("spoilt"), 0, replication - 1, &b, &err);
	check(rc == 0, "the NameNode does not offer it again: %s", rc ? err.text : "right");
	if (rc == 0)
		dfs_blocks_free(b);
}

/* The write goes on with the other nodes, and so do reads afterwards. */
static void kill_in_mid_write(pid_t pid, int flush_first)
{
	const uint64_t size = 8 * BLOCK + 12345;
	struct dfs_counters c;
	struct dfs_err err = {0};
	struct dfs_file *f, *fresh, *begun;
	int rc = create(at("killed"), &f, &err);

	/* whose nodes are chosen before the kill, and met after it */
	create_flags = DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY;
	rc = rc ? rc : create(at("fresh"), &fresh, &err);
	rc = rc ? rc : create(at("begun"), &begun, &err);
	create_flags = 0;
	rc = rc ? rc : write_range(begun, 0, 1000, 1000, 5, &err);
	rc = rc ? rc : write_range(f, 0, 3 * BLOCK + 100000, 100000, 3, &err);
	if (flush_first)
		rc = rc ? rc : dfs_flush(f, &err);
	check(rc == 0 && kill(pid, SIGKILL) == 0, "data node %d killed in mid-write", (int)pid);
	rc = rc ? rc : write_range(f, 3 * BLOCK + 100000, size, 700000, 3, &err);
	rc = rc ? rc : dfs_close(f, &err);
	dfs_get_counters(fs, &c);
	check(rc == 0, "the write ends well after %llu repairs: %s",
	      (unsigned long long)c.pipeline_recoveries, rc ? err.text : "closed");
	rc = rc ? rc : write_range(fresh, 0, BLOCK + 5, 100000, 4, &err);
	rc = rc ? rc : dfs_close(fresh, &err);
	check(rc == 0, "a first block goes to other nodes: %s", rc ? err.text : "closed");
	rc = rc ? rc : dfs_close(begun, &err);
	check(rc == 0, "so does one whose pipeline is there already: %s", rc ? err.text : "closed");
	rc = rc ? rc : get(at("begun"), 1000, 1000, 5, &err);
	rc = rc ? rc : get(at("fresh"), BLOCK + 5, 200000, 4, &err);
	rc = rc ? rc : get(at("killed"), size, 200000, 3, &err);
	rc = rc ? rc : get(at("shared"), 3 * BLOCK, 200000, 77, &err);
	rc = rc ? rc : pread_some(at("shared"), 3 * BLOCK, 50, 77, &err);
	dfs_get_counters(fs, &c);
	check(rc == 0, "every byte is there, old files too, after %llu failovers: %s",
	      (unsigned long long)c.read_failovers, rc ? err.text : "identical");
}

int main(int argc, char **argv)
{
	const char *spoil = NULL;
	pid_t victim = 0;
	int flush_first = 0, rc;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--kill") == 0 && i + 1 < argc)
			victim = atoi(argv[++i]); /* NOLINT: a test's argument */
		else if (strcmp(argv[i], "--spoil") == 0 && i + 1 < argc)
			spoil = argv[++i];
		else if (strcmp(argv[i], "--flush-first") == 0)
			flush_first = 1;
	}
	rc = connect_cluster();
	if (rc)
		return rc;
	threads();
	many_open_readers();
	if (spoil)
		spoil_a_replica(spoil);
	if (victim)
		kill_in_mid_write(victim, flush_first);
	return disconnect_cluster();
}
