/* SPDX-License-Identifier: Apache-2.0 */
/**
 * dfs-bench - loads on a file system, and what they cost
 *
 * Idea: N threads share one client handle, each does its part of the work, the clock runs from the
 * first operation to the last close. Reads check every byte's CRC as any reader does. The CPU
 * seconds are those of this process; the caller adds the servers' (tests/bench does).
 * Works against any NameNode that speaks Hadoop's protocol.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/include/dfsclient_ext.h"
#include "common/base/clock.h"
#include "common/base/conf.h"

#define IO_CHUNK (1u << 20)
#define THREADS_MAX 256
#define DEPTH_MAX 4096
#define PREAD_PER_MIB 4
#define CONF_MAX 63

struct worker;

struct bench {
	struct dfs *fs;
	const char *mode, *op, *path;                /* "io" | "nn" */
	uint64_t size;                               /* bytes of a file; of a pread */
	uint64_t piece;                              /* bytes of one pread */
	uint32_t files, replication, threads, depth; /* depth: calls under way, of each thread */
	uint64_t seconds, end_ns;                    /* 0: until every file was read once */
	bool json;
	const char *conf[CONF_MAX + 1]; /* -D, NULL-terminated */
	uint32_t conf_count;
	const char *uri;
	void (*one)(struct bench *b, uint32_t i, struct worker *w);
	atomic_uint next;
	atomic_int failures;
	atomic_bool gone; /* the NameNode */
	pthread_barrier_t start;
};

struct worker {
	struct bench *b;
	pthread_t thread;
	struct dfs_queue *queue; /* NULL: one call at a time */
	void *buf;
	uint64_t ops, bytes;
	uint64_t *latency_ns; /* of each op, in the order done */
	uint64_t latency_cap;
	uint64_t rng;
};

static void failed(struct bench *b, const char *what, const char *text)
{
	if (atomic_fetch_add(&b->failures, 1) < 3)
		fprintf(stderr, "dfs-bench: %s: %s\n", what, text);
}

static void record(struct worker *w, uint64_t since_ns, uint64_t bytes)
{
	if (w->ops == w->latency_cap) {
		w->latency_cap = w->latency_cap ? 2 * w->latency_cap : 1024;
		w->latency_ns = realloc(w->latency_ns, w->latency_cap * sizeof(uint64_t));
		if (!w->latency_ns)
			abort();
	}
	w->latency_ns[w->ops++] = clock_mono_ns() - since_ns;
	w->bytes += bytes;
}

static uint64_t next_random(struct worker *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng;
}

/* With --seconds the files are read again and again until the time is over. */
static bool goes_on(const struct bench *b, uint64_t done, uint64_t count)
{
	if (!b->end_ns)
		return done < count;
	return clock_mono_ns() < b->end_ns && !atomic_load(&b->failures);
}

static void name_of(const struct bench *b, uint32_t i, char *buf, size_t size)
{
	snprintf(buf, size, "%s/%s-%u", b->path, !strcmp(b->mode, "io") ? "file" : "entry", i);
}

/* ---- io ---- */

static void io_write(struct bench *b, uint32_t i, struct worker *w)
{
	struct dfs_create_opts o = {.size = sizeof(o),
				    .flags = DFS_CREATE_OVERWRITE | DFS_CREATE_FIRST_BLOCK |
					     DFS_CREATE_EARLY | DFS_CREATE_NO_HSYNC,
				    .replication = b->replication};
	struct dfs_err err = {0};
	struct dfs_file *f;
	char name[512];
	uint64_t since = clock_mono_ns();
	ssize_t n = 0;

	name_of(b, i, name, sizeof(name));
	if (dfs_create(b->fs, name, &o, &f, &err) < 0) {
		failed(b, name, err.text);
		return;
	}
	for (uint64_t left = b->size; left && n >= 0; left -= n > 0 ? (uint64_t)n : 0)
		n = dfs_write(f, w->buf, left < IO_CHUNK ? left : IO_CHUNK, &err);
	if (dfs_close(f, n < 0 ? NULL : &err) < 0 || n < 0)
		failed(b, name, err.text);
	else
		record(w, since, b->size);
}

static void io_read(struct bench *b, uint32_t i, struct worker *w)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	char name[512];
	uint64_t since = clock_mono_ns(), got = 0;
	ssize_t n = 0;

	name_of(b, i, name, sizeof(name));
	if (dfs_open(b->fs, name, &f, &err) < 0) {
		failed(b, name, err.text);
		return;
	}
	while (goes_on(b, 0, 1) && (n = dfs_read(f, w->buf, IO_CHUNK, &err)) > 0)
		got += (uint64_t)n;
	dfs_close(f, NULL);
	if (n < 0)
		failed(b, name, err.text);
	else
		record(w, since, got);
}

/* The reads of a thread in one file, of which depth are under way. */
struct deep {
	struct worker *w;
	struct dfs_file *file;
	uint64_t len, begun, count;
	struct range {
		struct deep *d;
		uint64_t since_ns;
		uint8_t *buf;
		size_t got;
	} * ranges; /* owned */
};

static void range_begin(struct range *r);

static void range_done(void *arg, int rc, const struct dfs_err *err)
{
	struct range *r = arg;

	if (rc < 0)
		failed(r->d->w->b, "a read", err->text);
	else
		record(r->d->w, r->since_ns, r->got);
	range_begin(r);
}

static void range_begin(struct range *r)
{
	const struct dfs_then then = {range_done, r};
	struct worker *w = r->d->w;
	struct dfs_err err;

	if (!goes_on(w->b, r->d->begun, r->d->count) || atomic_load(&w->b->failures))
		return;
	r->d->begun++;
	r->since_ns = clock_mono_ns();
	if (dfs_begin_pread(w->queue, r->d->file, r->buf, w->b->piece,
			    next_random(w) % (r->d->len - w->b->piece), &r->got, &then, &err) < 0)
		failed(w->b, "a read", err.text);
}

static void pread_deep(struct bench *b, struct worker *w, struct dfs_file *f, uint64_t len,
		       uint64_t count)
{
	struct deep d = {.w = w, .file = f, .len = len, .count = count};

	d.ranges = calloc(b->depth, sizeof(*d.ranges));
	if (!d.ranges)
		abort();
	for (uint32_t i = 0; i < b->depth; i++) {
		d.ranges[i].d = &d;
		d.ranges[i].buf = (uint8_t *)w->buf + i * b->piece % (IO_CHUNK - b->piece + 1);
		range_begin(&d.ranges[i]);
	}
	while (dfs_queue_pending(w->queue))
		if (dfs_queue_run(w->queue, -1) < 0)
			abort(); /* nobody else runs it */
	free(d.ranges);
}

static void io_pread(struct bench *b, uint32_t i, struct worker *w)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	char name[512];
	uint64_t len, count;
	ssize_t n = 0;

	name_of(b, i, name, sizeof(name));
	if (dfs_open(b->fs, name, &f, &err) < 0) {
		failed(b, name, err.text);
		return;
	}
	len = dfs_length(f);
	count = len > b->piece ? 1 + (len >> 20) * PREAD_PER_MIB : 0;
	if (!count)
		failed(b, name, "is no longer than one read");
	if (count && w->queue)
		pread_deep(b, w, f, len, count);
	for (uint64_t k = 0; !w->queue && count && n >= 0 && goes_on(b, k, count); k++) {
		uint64_t since = clock_mono_ns();

		n = dfs_pread(f, w->buf, b->piece, next_random(w) % (len - b->piece), &err);
		if (n >= 0)
			record(w, since, (uint64_t)n);
	}
	dfs_close(f, NULL);
	if (n < 0)
		failed(b, name, err.text);
}

/* ---- nn ---- */

/* An entry that failed. What no NameNode answered was tried for a while by then, and every other
 * call would be: there are no figures to be had. */
static void nn_failed(struct bench *b, const char *name, const struct dfs_err *err)
{
	if (*err->remote) {
		failed(b, name, err->text);
		return;
	}
	if (!atomic_exchange(&b->gone, true)) {
		fprintf(stderr, "dfs-bench: %s; stopped, as the NameNode does not answer\n",
			err->text);
		_exit(1); /* the other threads are still trying */
	}
}

static void nn_op(struct bench *b, uint32_t i, struct worker *w)
{
	struct dfs_err err = {0};
	const struct dfs_stat *entry;
	struct dfs_list *l;
	struct dfs_file *f;
	struct dfs_stat st;
	char name[512], to[520];
	uint64_t since = clock_mono_ns();
	int rc;

	name_of(b, i, name, sizeof(name));
	if (!strcmp(b->op, "create")) {
		rc = dfs_create(b->fs, name, NULL, &f, &err);
		if (!rc)
			rc = dfs_close(f, &err);
	} else if (!strcmp(b->op, "mkdir")) {
		rc = dfs_mkdir(b->fs, name, 0, true, &err); /* one call */
	} else if (!strcmp(b->op, "stat")) {
		rc = dfs_stat(b->fs, name, &st, &err);
	} else if (!strcmp(b->op, "delete")) {
		rc = dfs_delete(b->fs, name, false, &err);
	} else if (!strcmp(b->op, "open")) {
		rc = dfs_open(b->fs, name, &f, &err);
		if (!rc)
			rc = dfs_close(f, &err);
	} else if (!strcmp(b->op, "rename")) {
		snprintf(to, sizeof(to), "%s.r", name);
		rc = dfs_rename(b->fs, name, to, false, &err);
	} else {
		rc = dfs_list_open(b->fs, b->path, &l, &err);
		if (!rc) {
			rc = dfs_list_next(l, &entry, &err); /* one page */
			dfs_list_close(l);
		}
	}
	if (rc < 0)
		nn_failed(b, name, &err);
	else
		record(w, since, 0);
}

/* ---- nn with several calls under way ---- */

/* One of them: an entry after the other. */
struct slot {
	struct worker *w;
	uint64_t since_ns;
	struct dfs_file *file;
	struct dfs_stat st;
	bool is_open; /* file is to be closed yet */
	char name[512];
};

static void slot_next(struct slot *s);

static void slot_done(void *arg, int rc, const struct dfs_err *err)
{
	struct slot *s = arg;
	const struct dfs_then then = {slot_done, s};
	struct dfs_err why;

	if (rc == 0 && s->is_open) {
		s->is_open = false;
		rc = dfs_begin_close(s->w->queue, s->file, &then, &why);
		if (rc == 0)
			return;
		err = &why;
	}
	if (rc < 0)
		nn_failed(s->w->b, s->name, err);
	else
		record(s->w, s->since_ns, 0);
	slot_next(s);
}

/* 0 when the call is under way. */
static int slot_begin(struct slot *s, struct dfs_err *err)
{
	const struct dfs_then then = {slot_done, s};
	struct dfs_queue *q = s->w->queue;
	const char *op = s->w->b->op;
	char to[520];

	s->is_open = !strcmp(op, "create") || !strcmp(op, "open");
	if (!strcmp(op, "create"))
		return dfs_begin_create(q, s->name, NULL, &s->file, &then, err);
	if (!strcmp(op, "open"))
		return dfs_begin_open(q, s->name, &s->file, &then, err);
	if (!strcmp(op, "mkdir"))
		return dfs_begin_mkdir(q, s->name, 0, true, &then, err); /* one call */
	if (!strcmp(op, "stat"))
		return dfs_begin_stat(q, s->name, &s->st, &then, err);
	if (!strcmp(op, "delete"))
		return dfs_begin_delete(q, s->name, false, &then, err);
	snprintf(to, sizeof(to), "%s.r", s->name);
	return dfs_begin_rename(q, s->name, to, false, &then, err);
}

static void slot_next(struct slot *s)
{
	struct bench *b = s->w->b;
	struct dfs_err err;
	uint32_t i;

	while ((i = atomic_fetch_add(&b->next, 1)) < b->files) {
		name_of(b, i, s->name, sizeof(s->name));
		s->since_ns = clock_mono_ns();
		if (slot_begin(s, &err) == 0)
			return;
		nn_failed(b, s->name, &err);
	}
}

static void work_deep(struct worker *w)
{
	struct slot *slots = calloc(w->b->depth, sizeof(*slots));

	if (!slots)
		abort();
	for (uint32_t i = 0; i < w->b->depth; i++) {
		slots[i].w = w;
		slot_next(&slots[i]);
	}
	while (dfs_queue_pending(w->queue))
		if (dfs_queue_run(w->queue, -1) < 0)
			abort(); /* nobody else runs it */
	free(slots);
}

/* ---- run and report ---- */

static void *work(void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;
	uint32_t i;

	pthread_barrier_wait(&b->start);
	if (w->queue && b->one == nn_op)
		work_deep(w);
	else
		while (goes_on(b, i = atomic_fetch_add(&b->next, 1), b->files))
			b->one(b, i % b->files, w);
	dfs_queue_close(w->queue);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void report(struct bench *b, struct worker *w, double seconds, double cpu)
{
	uint64_t ops = 0, bytes = 0, *all, n = 0;
	double p50 = 0, p99 = 0, p999 = 0;

	for (uint32_t i = 0; i < b->threads; i++) {
		ops += w[i].ops;
		bytes += w[i].bytes;
	}
	all = malloc((ops + 1) * sizeof(*all));
	if (!all)
		abort();
	for (uint32_t i = 0; i < b->threads; i++)
		for (uint64_t k = 0; k < w[i].ops; k++)
			all[n++] = w[i].latency_ns[k];
	qsort(all, n, sizeof(*all), by_value);
	if (n) {
		p50 = (double)all[n / 2] / 1e3;
		p99 = (double)all[n * 99 / 100] / 1e3;
		p999 = (double)all[n * 999 / 1000] / 1e3;
	}
	free(all);
	if (b->json)
		printf("{\"mode\": \"%s\", \"op\": \"%s\", \"threads\": %u, \"depth\": %u, \"ops\": %llu, \"failed\": %d,"
		       " \"bytes\": %llu, \"seconds\": %.4f, \"cpu_seconds\": %.3f, \"mib_per_s\": %.1f,"
		       " \"ops_per_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f,"
		       " \"p999_us\": %.1f}\n",
		       b->mode, b->op, b->threads, b->depth, (unsigned long long)ops,
		       atomic_load(&b->failures), (unsigned long long)bytes, seconds, cpu,
		       (double)bytes / seconds / 1048576, (double)ops / seconds, p50, p99, p999);
	else
		printf("%s %s: %llu ops, %.1f MiB in %.3f s: %.1f MiB/s, %.1f op/s, client CPU %.2f s,"
		       " latency p50 %.0f us p99 %.0f us p99.9 %.0f us, %d failed\n",
		       b->mode, b->op, (unsigned long long)ops, (double)bytes / 1048576, seconds,
		       (double)bytes / seconds / 1048576, (double)ops / seconds, cpu, p50, p99,
		       p999, atomic_load(&b->failures));
}

static int run(struct bench *b)
{
	struct worker *w = calloc(b->threads, sizeof(*w));
	struct dfs_err err = {0};
	uint64_t since;
	double cpu;

	if (!w)
		abort();
	if (dfs_mkdir(b->fs, b->path, 0, true, &err) < 0) {
		failed(b, b->path, err.text);
		free(w);
		return 1;
	}
	pthread_barrier_init(&b->start, NULL, b->threads + 1);
	for (uint32_t i = 0; i < b->threads; i++) {
		w[i].b = b;
		w[i].rng = 88172645463325252ull + i;
		if ((b->depth > 1 && dfs_queue_open(b->fs, &w[i].queue, &err) < 0) ||
		    dfs_buf_alloc(b->fs, IO_CHUNK, &w[i].buf, &err) < 0 ||
		    pthread_create(&w[i].thread, NULL, work, &w[i])) {
			failed(b, "start", *err.text ? err.text : "no thread to be had");
			exit(1);
		}
		for (uint32_t k = 0; k < IO_CHUNK / 8; k++)
			((uint64_t *)w[i].buf)[k] = next_random(&w[i]);
	}
	cpu = cpu_seconds();
	since = clock_mono_ns();
	b->end_ns = b->seconds ? since + b->seconds * NS_PER_S : 0;
	pthread_barrier_wait(&b->start);
	for (uint32_t i = 0; i < b->threads; i++)
		pthread_join(w[i].thread, NULL);
	report(b, w, (double)(clock_mono_ns() - since) / 1e9, cpu_seconds() - cpu);
	for (uint32_t i = 0; i < b->threads; i++) {
		dfs_buf_free(b->fs, w[i].buf);
		free(w[i].latency_ns);
	}
	free(w);
	return atomic_load(&b->failures) ? 1 : 0;
}

/* ---- command line ---- */

static void help(void)
{
	puts("usage: dfs-bench io --op write|read|pread [OPTION]...\n"
	     "       dfs-bench nn --op create|stat|open|list|mkdir|rename|delete [OPTION]...\n"
	     "Loads the file system of the configuration (HADOOP_CONF_DIR, or --fs) and prints rate, CPU\n"
	     "seconds of this process and latencies. read, pread, stat, open, rename and delete work on what an\n"
	     "earlier write or create of the same --path and --files left; rename adds .r to names.\n\n"
	     "  --op OP          what to do\n"
	     "  --path DIR       where (default /benchmarks/dfs-bench)\n"
	     "  --size SIZE      io: bytes of each file (default 128m); pread: bytes of one read with --piece\n"
	     "  --piece SIZE     io pread: bytes of one read (default 4k)\n"
	     "  --files N        files or entries in all (default: io 1, nn 1000)\n"
	     "  --seconds N      io read, pread: for N seconds, the files again and again (default: each once)\n"
	     "  --replication N  io write (default: dfs.replication)\n"
	     "  --threads N      at a time (default 1)\n"
	     "  --depth N        nn, not list; io pread: calls that each thread has under way (default 1)\n"
	     "  --json           one JSON object on standard output\n"
	     "  --fs hdfs://H:P  the NameNode\n"
	     "  -D KEY=VALUE     a property\n"
	     "  --help, --version");
}

static int usage(const char *what, const char *arg)
{
	fprintf(stderr, "dfs-bench: %s%s; see dfs-bench --help\n", what, arg ? arg : "");
	return 2;
}

/* A number or size from 1 to @max. */
static bool parse_number(const char *s, uint64_t max, uint64_t *ret)
{
	uint64_t v;

	if (conf_parse_size(s, &v) < 0 || v < 1 || v > max)
		return false;
	*ret = v;
	return true;
}

static bool parse_count(const char *s, uint32_t max, uint32_t *ret)
{
	uint64_t v;

	if (!parse_number(s, max, &v))
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Take the value @text of an option. False: it is not a possible one. */
static bool take_value(struct bench *b, int opt, const char *text)
{
	switch (opt) {
	case 'o':
		b->op = text;
		return true;
	case 'p':
		b->path = text;
		return true;
	case 'u':
		b->uri = text;
		return true;
	case 's':
		return parse_number(text, 1ull << 50, &b->size);
	case 'c':
		return parse_number(text, IO_CHUNK, &b->piece);
	case 'S':
		return parse_number(text, 86400, &b->seconds);
	case 'f':
		return parse_count(text, 100000000, &b->files);
	case 'r':
		return parse_count(text, 512, &b->replication);
	case 't':
		return parse_count(text, THREADS_MAX, &b->threads);
	case 'd':
		return parse_count(text, DEPTH_MAX, &b->depth);
	default: /* -D */
		if (b->conf_count == CONF_MAX || !strchr(text, '='))
			return false;
		b->conf[b->conf_count++] = text;
		return true;
	}
}

/* The status to end with, or -1: go on. */
static int parse(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{"op", required_argument, NULL, 'o'},
		{"path", required_argument, NULL, 'p'},
		{"size", required_argument, NULL, 's'},
		{"piece", required_argument, NULL, 'c'},
		{"files", required_argument, NULL, 'f'},
		{"replication", required_argument, NULL, 'r'},
		{"threads", required_argument, NULL, 't'},
		{"depth", required_argument, NULL, 'd'},
		{"json", no_argument, NULL, 'j'},
		{"seconds", required_argument, NULL, 'S'},
		{"fs", required_argument, NULL, 'u'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":D:h", options, NULL)) != -1) {
		switch (opt) {
		case 'j':
			b->json = true;
			break;
		case 'h':
			help();
			return 0;
		case 'V':
			printf("dfs-rdma %s\n", dfs_version());
			return 0;
		case ':':
			return usage("a value is missing after ", argv[optind - 1]);
		case '?':
			return usage("unknown option ", argv[optind - 1]);
		default:
			if (!take_value(b, opt, optarg))
				return usage("not a possible value: ", optarg);
		}
	}
	if (optind + 1 != argc)
		return usage("give one mode, io or nn", NULL);
	b->mode = argv[optind];
	return -1;
}

/* The operation by its name; false when there is none such. */
static bool choose(struct bench *b)
{
	static const char *const nn_ops[] = {"create", "stat",   "open",   "list",
					     "mkdir",  "delete", "rename", NULL};
	static const struct {
		const char *name;
		void (*one)(struct bench *b, uint32_t i, struct worker *w);
	} io_ops[] = {{"write", io_write}, {"read", io_read}, {"pread", io_pread}};

	if (!strcmp(b->mode, "io"))
		for (size_t i = 0; i < sizeof(io_ops) / sizeof(io_ops[0]); i++)
			if (!strcmp(b->op, io_ops[i].name))
				b->one = io_ops[i].one;
	if (!strcmp(b->mode, "nn"))
		for (const char *const *o = nn_ops; *o; o++)
			if (!strcmp(b->op, *o))
				b->one = nn_op;
	if (b->depth > 1 && b->one != io_pread && (b->one != nn_op || !strcmp(b->op, "list")))
		return false;
	if (b->seconds && b->one != io_read && b->one != io_pread)
		return false;
	if (!b->files)
		b->files = !strcmp(b->mode, "io") ? 1 : 1000;
	return b->one;
}

int main(int argc, char **argv)
{
	struct bench b = {.op = "",
			  .path = "/benchmarks/dfs-bench",
			  .size = 128u << 20,
			  .piece = 4096,
			  .threads = 1,
			  .depth = 1};
	struct dfs_err err = {0};
	int rc = parse(&b, argc, argv);

	if (rc >= 0)
		return rc;
	if (!*b.op)
		return usage("which operation? give --op to the mode ", b.mode);
	if (!choose(&b))
		return usage(
			"no such mode, or no such --op in it (with this --depth or --seconds): ",
			b.op);
	struct dfs_connect_opts o = {.size = sizeof(o), .uri = b.uri, .conf = b.conf};
	if (dfs_connect(&o, &b.fs, &err) < 0) {
		fprintf(stderr, "dfs-bench: %s\n", err.text);
		return 1;
	}
	rc = run(&b);
	dfs_disconnect(b.fs);
	return rc;
}
