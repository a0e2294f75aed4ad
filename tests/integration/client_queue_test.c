/* SPDX-License-Identifier: Apache-2.0 */
/* client_queue_test - the dfs_begin_...() calls against any cluster: ours or Apache's
 *
 *   client_queue_test            each call and its errors
 *   client_queue_test --taken-back  a file that is taken back
 *   client_queue_test --long N   N rounds of create, stat, rename, mkdir, delete with 64 of them
 *                                under way; somebody may kill and restart the NameNode meanwhile.
 *                                Says "begun" after the first answers.
 *   client_queue_test --reads N  N reads, 64 of them under way, of a file of several blocks;
 *                                somebody may kill and restart data nodes meanwhile. Says "begun".
 *
 * HADOOP_CONF_DIR names the cluster (without it: skipped). Everything happens below
 * /tmp/client_queue_test.<pid>, which is removed at the end. Prints PASS/FAIL lines; exit 0, 1, 77.
 */
#include <dfsclient_ext.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/checks.h"

#define DEPTH 64

static struct dfs *fs;
static struct dfs_queue *q;

/* ---- one call after the other ---- */

struct end {
	int ends, rc;
	struct dfs_err err;
};

static void on_end(void *arg, int rc, const struct dfs_err *err)
{
	struct end *e = arg;

	e->ends++;
	e->rc = rc;
	if (err)
		e->err = *err;
}

static void run_out(void)
{
	while (dfs_queue_pending(q))
		if (dfs_queue_run(q, 1000) < 0)
			abort();
}

/* What CALL, which begins a call with `then` and `err`, comes to. */
#define ends_with(want, words, CALL)                                                               \
	do {                                                                                       \
		struct end e = {0};                                                                \
		const struct dfs_then then = {on_end, &e};                                         \
		struct dfs_err err = {0};                                                          \
		const int begun = CALL;                                                            \
                                                                                                   \
		run_out();                                                                         \
		if (begun == 0)                                                                    \
			err = e.err;                                                               \
		check((begun < 0 ? begun : e.rc) == (want) && e.ends == (begun == 0) &&            \
			      strstr(err.text, words),                                             \
		      "%s: %d %s", #CALL, begun < 0 ? begun : e.rc, err.text);                     \
	} while (0)

static void test_each_call(void)
{
	char long_path[9000], buf[8] = "";
	struct dfs_file *f = NULL;
	struct dfs_stat st = {0};

	ends_with(0, "", dfs_begin_mkdir(q, at("d"), 0700, true, &then, &err));
	ends_with(0, "", dfs_begin_mkdir(q, at("d"), 0, true, &then, &err));
	ends_with(-EEXIST, "/d exists", dfs_begin_mkdir(q, at("d"), 0, false, &then, &err));
	ends_with(0, "", dfs_begin_mkdir(q, at("d/e"), 0, false, &then, &err));
	ends_with(0, "", dfs_begin_stat(q, at("d"), &st, &then, &err));
	check(st.type == DFS_DIR && st.mode == 0700, "a directory of mode %o", st.mode);
	ends_with(-ENOENT, "/none: no such file", dfs_begin_stat(q, at("none"), &st, &then, &err));
	ends_with(-EINVAL, "the path is empty", dfs_begin_stat(q, "", &st, &then, &err));
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	ends_with(-ENAMETOOLONG, "longer than", dfs_begin_stat(q, long_path, &st, &then, &err));

	ends_with(0, "", dfs_begin_create(q, at("d/f"), NULL, &f, &then, &err));
	ends_with(0, "", dfs_begin_close(q, f, &then, &err));
	ends_with(-EEXIST, "overwrite was not asked for",
		  dfs_begin_create(q, at("d/f"), NULL, &f, &then, &err));
	ends_with(-EISDIR, "is a directory", dfs_begin_create(q, at("d"), NULL, &f, &then, &err));
	ends_with(0, "", dfs_begin_create(q, at("d/g"), NULL, &f, &then, &err));
	check(dfs_write(f, "content", 7, NULL) == 7, "a file made so can be written");
	ends_with(0, "", dfs_begin_close(q, f, &then, &err));
	ends_with(0, "", dfs_begin_open(q, at("d/g"), &f, &then, &err));
	check(dfs_read(f, buf, sizeof(buf), NULL) == 7 && strcmp(buf, "content") == 0,
	      "and read: \"%s\"", buf);
	ends_with(0, "", dfs_begin_close(q, f, &then, &err));
	ends_with(-ENOENT, "no such file", dfs_begin_open(q, at("none"), &f, &then, &err));
	ends_with(-EISDIR, "is a directory", dfs_begin_open(q, at("d"), &f, &then, &err));

	ends_with(0, "", dfs_begin_set_permission(q, at("d/f"), 0600, &then, &err));
	ends_with(0, "", dfs_begin_set_owner(q, at("d/f"), NULL, "staff", &then, &err));
	ends_with(0, "", dfs_begin_set_times(q, at("d/f"), 1000, DFS_TIME_KEEP, &then, &err));
	ends_with(0, "", dfs_begin_stat(q, at("d/f"), &st, &then, &err));
	check(st.mode == 0600 && st.mtime_ms == 1000 && strcmp(st.group, "staff") == 0,
	      "attributes %o %llu %s", st.mode, (unsigned long long)st.mtime_ms, st.group);
	ends_with(0, "", dfs_begin_rename(q, at("d/f"), at("d/h"), false, &then, &err));
	ends_with(-EEXIST, "/g", dfs_begin_rename(q, at("d/h"), at("d/g"), false, &then, &err));
	ends_with(0, "", dfs_begin_rename(q, at("d/h"), at("d/g"), true, &then, &err));
	ends_with(-ENOTEMPTY, "is non empty", dfs_begin_delete(q, at("d"), false, &then, &err));
	ends_with(-EPERM, "root directory", dfs_begin_delete(q, "/", true, &then, &err));
	ends_with(-ENOENT, "/none: no such file",
		  dfs_begin_delete(q, at("none"), false, &then, &err));
	ends_with(0, "", dfs_begin_delete(q, at("d"), true, &then, &err));
}

/* The NameNode makes it, and this library has no coder for it: nothing is left behind, least of all
 * an open file. */
static void test_a_file_that_is_taken_back(void)
{
	static const char policy[] = "RS-LEGACY-6-3-1024k";
	struct dfs_file *f = NULL;
	struct dfs_err why = {0};
	struct dfs_stat st;

	check(dfs_mkdir(fs, at("legacy"), 0, false, &why) == 0 &&
		      dfs_enable_ec_policy(fs, policy, &why) == 0 &&
		      dfs_set_ec_policy(fs, at("legacy"), policy, &why) == 0,
	      "%s is set: %s", policy, why.text);
	ends_with(-ENOTSUP, policy, dfs_begin_create(q, at("legacy/f"), NULL, &f, &then, &err));
	ends_with(-ENOENT, "no such file", dfs_begin_stat(q, at("legacy/f"), &st, &then, &err));
	ends_with(0, "", dfs_begin_delete(q, at("legacy"), true, &then, &err));
	check(dfs_disable_ec_policy(fs, policy, &why) == 0, "%s is disabled: %s", policy, why.text);
}

static void test_cancel_and_close(void)
{
	struct end e[3] = {0};
	struct dfs_stat st;
	struct dfs_err err;

	for (int i = 0; i < 3; i++)
		if (dfs_begin_stat(q, "/", &st, &(const struct dfs_then){on_end, &e[i]}, &err) < 0)
			check(0, "%s", err.text);
	dfs_queue_cancel(q, &e[1]);
	check(dfs_queue_pending(q) == 3 && !e[1].ends, "a cancelled call ends in the run");
	run_out();
	check(e[0].rc == 0 && e[1].rc == -ECANCELED && e[2].rc == 0, "cancelled: %d %d %d", e[0].rc,
	      e[1].rc, e[2].rc);
	dfs_queue_wake(q);
	check(dfs_queue_run(q, -1) == 0, "a queue that was woken does not wait");
	for (int i = 0; i < 3; i++)
		(void)dfs_begin_stat(q, "/", &st, &(const struct dfs_then){on_end, &e[i]}, &err);
	dfs_queue_close(q);
	check(e[0].ends == 2 && e[0].rc == -ECANCELED && e[2].ends == 2,
	      "the end of a queue ends its calls");
	q = NULL;
}

/* ---- many at a time, and a NameNode that dies ---- */

static int rounds_left, rounds_done;

struct slot {
	int i, step;
	char a[96], b[96];
	struct dfs_file *file;
	struct dfs_stat st;
};

static void slot_step(void *arg, int rc, const struct dfs_err *err);

/* The calls of a round; each must succeed, also when its first answer got lost. */
static int slot_begin(struct slot *s, struct dfs_err *err)
{
	const struct dfs_then then = {slot_step, s};

	switch (s->step) {
	case 0:
		return dfs_begin_create(q, s->a, NULL, &s->file, &then, err);
	case 1:
		return dfs_begin_close(q, s->file, &then, err);
	case 2:
		return dfs_begin_rename(q, s->a, s->b, false, &then, err);
	case 3:
		return dfs_begin_stat(q, s->b, &s->st, &then, err);
	case 4:
		return dfs_begin_mkdir(q, s->a, 0, true, &then, err);
	case 5:
		return dfs_begin_delete(q, s->b, false, &then, err);
	default:
		return dfs_begin_delete(q, s->a, false, &then, err);
	}
}

static void slot_go(struct slot *s)
{
	struct dfs_err err;

	if (slot_begin(s, &err) < 0)
		check(0, "%s step %d: %s", s->a, s->step, err.text);
}

static void slot_step(void *arg, int rc, const struct dfs_err *err)
{
	struct slot *s = arg;

	if (rc < 0) {
		check(0, "%s step %d: %d %s", s->a, s->step, rc, err->text);
		return;
	}
	if (s->step == 3 && (s->st.type != DFS_FILE || s->st.length))
		check(0, "%s is no empty file", s->b);
	if (++s->step > 6) {
		s->step = 0;
		if (rounds_done++ == DEPTH) {
			puts("begun");
			fflush(stdout);
		}
		if (--rounds_left < 0)
			return;
	}
	slot_go(s);
}

static void test_many(int rounds)
{
	struct slot slots[DEPTH] = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	struct dfs_err err;
	int left = 0;

	rounds_left = rounds;
	for (int i = 0; i < DEPTH; i++) {
		snprintf(slots[i].a, sizeof(slots[i].a), "%s/a%d", dir, i);
		snprintf(slots[i].b, sizeof(slots[i].b), "%s/b%d", dir, i);
		slot_go(&slots[i]);
	}
	run_out();
	if (dfs_list_open(fs, dir, &l, &err) < 0) {
		check(0, "%s", err.text);
		return;
	}
	while (dfs_list_next(l, &st, &err) > 0)
		left++;
	dfs_list_close(l);
	check(rounds_done >= rounds && left == 0, "%d rounds, %d entries left", rounds_done, left);
}

/* ---- reads ---- */

#define READ_FILE (3u << 20)
#define READ_BLOCK (1u << 20)
#define READ_MAX (128u << 10)

static struct dfs_file *read_file;
static uint8_t content[READ_FILE];
static int reads_left, reads_done;
static uint64_t rnd = 88172645463325252ull;

static uint32_t below(uint32_t n)
{
	rnd ^= rnd << 13;
	rnd ^= rnd >> 7;
	rnd ^= rnd << 17;
	return (uint32_t)(rnd % n);
}

struct range {
	uint64_t offset;
	size_t len, got;
	uint8_t buf[READ_MAX];
};

static void range_begin(struct range *r);

static void range_done(void *arg, int rc, const struct dfs_err *err)
{
	struct range *r = arg;
	const size_t left = READ_FILE - r->offset;

	if (rc < 0)
		check(0, "%zu bytes at %llu: %s", r->len, (unsigned long long)r->offset, err->text);
	else if (r->got != (r->len < left ? r->len : left) ||
		 memcmp(r->buf, content + r->offset, r->got) != 0)
		check(0, "%zu bytes at %llu: %zu other ones", r->len, (unsigned long long)r->offset,
		      r->got);
	if (reads_done++ == DEPTH) {
		puts("begun");
		fflush(stdout);
	}
	range_begin(r);
}

/* Most are small; some go over the end of a block, or of the file. */
static void range_begin(struct range *r)
{
	const struct dfs_then then = {range_done, r};
	struct dfs_err err;

	if (reads_left-- <= 0)
		return;
	r->len = 1 + below(below(8) ? 8192 : READ_MAX);
	r->offset = below(16) ? below(READ_FILE)
			      : (1 + below(3)) * READ_BLOCK - 1 - below((uint32_t)r->len);
	memset(r->buf, 0xee, r->len);
	if (dfs_begin_pread(q, read_file, r->buf, r->len, r->offset, &r->got, &then, &err) < 0)
		check(0, "%s", err.text);
}

static void make_read_file(void)
{
	const struct dfs_create_opts o = {.size = sizeof(o), .block_size = READ_BLOCK};
	struct dfs_err err = {0};
	char name[96];

	for (uint32_t i = 0; i < READ_FILE; i++)
		content[i] = (uint8_t)(below(256));
	snprintf(name, sizeof(name), "%s/reads", dir);
	check(dfs_create(fs, name, &o, &read_file, &err) == 0 &&
		      dfs_write(read_file, content, READ_FILE, &err) == (ssize_t)READ_FILE &&
		      dfs_close(read_file, &err) == 0 && dfs_open(fs, name, &read_file, &err) == 0,
	      "a file is made: %s", err.text);
}

static void test_reads(int n)
{
	static struct range ranges[DEPTH];

	make_read_file();
	reads_left = n;
	for (int i = 0; i < DEPTH; i++)
		range_begin(&ranges[i]);
	run_out();
	check(reads_done == n, "%d reads", reads_done);
	dfs_close(read_file, NULL);
}

static void test_reads_of_nothing(void)
{
	static uint8_t buf[100];
	size_t got = 1;

	ends_with(0, "", dfs_begin_pread(q, read_file, buf, 100, READ_FILE, &got, &then, &err));
	check(got == 0, "there is nothing behind the end");
	got = 1;
	ends_with(0, "", dfs_begin_pread(q, read_file, buf, 0, 5, &got, &then, &err));
	check(got == 0, "nothing is nothing");
}

static void test_reads_end(void)
{
	static uint8_t buf[100];
	struct end e[3] = {0};
	struct dfs_file *f = NULL;
	struct dfs_err err = {0};
	size_t got[3] = {1, 1, 1};
	char name[96];

	make_read_file();
	test_reads_of_nothing();
	for (int i = 0; i < 3; i++)
		(void)dfs_begin_pread(q, read_file, buf, 10, 7, &got[i],
				      &(const struct dfs_then){on_end, &e[i]}, &err);
	dfs_queue_cancel(q, &e[1]);
	check(dfs_queue_pending(q) == 3, "three are under way");
	run_out();
	check(e[0].rc == 0 && e[1].ends == 1 && e[1].rc == -ECANCELED && e[2].rc == 0 &&
		      got[2] == 10 && memcmp(buf, content + 7, 10) == 0,
	      "one of three reads is cancelled");
	dfs_close(read_file, NULL);
	snprintf(name, sizeof(name), "%s/written", dir);
	check(dfs_create(fs, name, NULL, &f, &err) == 0, "%s", err.text);
	check(dfs_begin_pread(q, f, buf, 10, 0, &got[0], &(const struct dfs_then){on_end, &e[0]},
			      &err) == -EBADF,
	      "what is being written is not read");
	dfs_close(f, NULL);
}

int main(int argc, char **argv)
{
	const int rounds = argc == 3 && !strcmp(argv[1], "--long") ? atoi(argv[2]) : 0;
	const int reads = argc == 3 && !strcmp(argv[1], "--reads") ? atoi(argv[2]) : 0;
	struct dfs_err err;

	if (!getenv("HADOOP_CONF_DIR")) {
		puts("SKIP HADOOP_CONF_DIR names no cluster");
		return 77;
	}
	snprintf(dir, sizeof(dir), "/tmp/client_queue_test.%d", (int)getpid());
	if (dfs_connect(NULL, &fs, &err) < 0 || dfs_mkdir(fs, dir, 0, true, &err) < 0 ||
	    dfs_queue_open(fs, &q, &err) < 0) {
		check(0, "%s", err.text);
		return 1;
	}
	if (rounds) {
		test_many(rounds);
	} else if (reads) {
		test_reads(reads);
	} else if (argc == 2 && !strcmp(argv[1], "--taken-back")) {
		test_a_file_that_is_taken_back();
	} else {
		test_each_call();
		test_a_file_that_is_taken_back();
		test_reads_end();
		test_cancel_and_close();
	}
	dfs_queue_close(q);
	(void)dfs_delete(fs, dir, true, NULL);
	dfs_disconnect(fs);
	printf("%d failures\n", failures);
	return failures ? 1 : 0;
}
