/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stress-client - one role of tools/stress: a load whose every byte and every wait is checked
 *
 * Idea: every byte of every file follows from seed, name, version and offset, so that a reader can
 * tell whether it is right without asking anybody. The first word of each page is the version as it
 * is: a reader of a file that somebody replaces takes the version from the first page that it sees.
 * From then on every byte must be of that version, or the read must fail with ESTALE. An operation
 * that takes longer than --stuck counts as stuck, also when it ends well later.
 *
 * HADOOP_CONF_DIR names the cluster. Prints one JSON line when the time is over; exit status 0
 * then, whatever it says.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "common/base/clock.h"

#define WORD 8u
#define PAGE 4096u            /* its first word is the version */
#define STEP (256u << 10)     /* of reading and writing along a file */
#define SMALL_MAX (64u << 10) /* longest read of the role `read` */
#define REOPEN 500            /* so many reads of one open file */
#define STALL_AT (1u << 20)   /* bytes that a staller takes before it stalls */
#define RECORD 512u           /* bytes of a record of a quiet writer, */
#define RECORDS 300u          /* of which it flushes so many before it goes quiet, */
#define SILENCES 2u           /* so many times in a file */
#define THREADS_MAX 1024
#define KINDS 8 /* of errors that are counted apart */
#define TEXTS 4 /* errors and wrong bytes that are shown */
#define PATH_SIZE 256

struct options {
	const char *role, *dir, *name;
	uint64_t seed, dice, size;
	uint32_t files, threads;
	double seconds, stuck, pause;
};

struct worker {
	pthread_t thread;
	uint32_t number;
	uint64_t rng;
	uint8_t *got, *want; /* STEP bytes, with some room */
	_Atomic(const char *) doing;
	_Atomic uint64_t since_ns; /* of the operation under way; 0: none */
	atomic_bool ended;
};

static struct options o = {.dir = "/stress",
			   .name = "file",
			   .seed = 1,
			   .size = 4u << 20,
			   .files = 8,
			   .threads = 1,
			   .seconds = 1,
			   .stuck = 60,
			   .pause = 2};
static struct dfs *fs;
static struct worker workers[THREADS_MAX];
static uint64_t end_ns;
static atomic_uint next_file; /* of the role `fill` */

static struct { /* of all workers */
	pthread_mutex_t lock;
	uint64_t ops, bytes, wrong, stuck;
	uint64_t *latency_ns, room; /* ops of them */
	int kind[KINDS];            /* -errno */
	uint64_t count[KINDS];
	char text[TEXTS][PATH_SIZE + 640];
	uint32_t texts;
} sum = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what is counted ---- */

static void say_locked(const char *what, const char *path, uint64_t off, const char *why)
{
	if (sum.texts < TEXTS)
		(void)snprintf(sum.text[sum.texts++], sizeof(sum.text[0]),
			       "%s %s at %" PRIu64 ": %s", what, path, off, why);
}

static void failed(struct worker *w, const char *path, uint64_t off, int rc,
		   const struct dfs_err *err)
{
	int i = 0;

	/* As in HDFS: a block had just been begun when one of its nodes died, and the others do not
	 * have it yet. */
	if (rc == -EIO && strstr(err->text, "the length of a block being written is not known"))
		rc = -EAGAIN;
	pthread_mutex_lock(&sum.lock);
	while (i < KINDS - 1 && sum.kind[i] && sum.kind[i] != rc)
		i++;
	sum.kind[i] = rc;
	sum.count[i]++;
	if (rc != -ESTALE && rc != -EAGAIN)
		say_locked(atomic_load(&w->doing), path, off, err->text);
	pthread_mutex_unlock(&sum.lock);
}

static void wrong(const char *path, uint64_t off, uint64_t bytes, const char *why)
{
	pthread_mutex_lock(&sum.lock);
	sum.wrong += bytes;
	say_locked("wrong bytes:", path, off, why);
	pthread_mutex_unlock(&sum.lock);
}

static void op_begin(struct worker *w, const char *doing)
{
	atomic_store(&w->doing, doing);
	atomic_store(&w->since_ns, clock_mono_ns());
}

/* @counts: its time is one of those that the role is judged by. */
static void op_end(struct worker *w, uint64_t bytes, bool counts)
{
	const uint64_t took = clock_mono_ns() - atomic_exchange(&w->since_ns, 0);

	pthread_mutex_lock(&sum.lock);
	sum.stuck += took > (uint64_t)(o.stuck * (double)NS_PER_S);
	sum.bytes += bytes;
	if (counts && sum.ops == sum.room) {
		sum.room = sum.room ? 2 * sum.room : 1024;
		sum.latency_ns = realloc(sum.latency_ns, sum.room * sizeof(uint64_t));
		if (!sum.latency_ns)
			abort();
	}
	if (counts)
		sum.latency_ns[sum.ops++] = took;
	pthread_mutex_unlock(&sum.lock);
}

static bool time_is_over(void)
{
	return clock_mono_ns() >= end_ns;
}

/* Not beyond the end of the time. */
static void pause_for(double seconds)
{
	const uint64_t until = clock_mono_ns() + (uint64_t)(seconds * (double)NS_PER_S);

	while (clock_mono_ns() < until && !time_is_over())
		nanosleep(&(struct timespec){.tv_nsec = 2 * NS_PER_MS}, NULL);
}

static uint64_t below(struct worker *w, uint64_t n)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng % n;
}

/* Between half of --pause and one and a half. */
static void pause_some(struct worker *w)
{
	pause_for(o.pause * (0.5 + (double)below(w, 1000) / 1000));
}

/* ---- what a file holds ---- */

struct content {
	char path[PATH_SIZE];
	uint64_t key, version, length;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void set_version(struct content *c, uint64_t version)
{
	uint64_t key = mix(o.seed);

	for (const char *p = c->path; *p; p++)
		key = mix(key ^ (uint8_t)*p);
	c->key = mix(key ^ version);
	c->version = version;
	c->length = version ? o.size / 2 + c->key % (o.size / 2 + 1) : o.size;
}

static struct content content_of(uint32_t number, uint64_t version)
{
	struct content c;

	(void)snprintf(c.path, sizeof(c.path), "%s/%s-%u", o.dir, o.name, number);
	set_version(&c, version);
	return c;
}

/* @len <= STEP bytes as they should be at @off, in a buffer of STEP + 2 * WORD bytes. */
static const uint8_t *bytes_at(const struct content *c, uint64_t off, uint64_t len, uint8_t *buf)
{
	uint64_t i = off / WORD;

	for (uint8_t *p = buf; p < buf + off % WORD + len; p += WORD, i++) {
		const uint64_t v = i % (PAGE / WORD) ? mix(c->key + i) : c->version;

		memcpy(p, &v, WORD);
	}
	return buf + off % WORD;
}

static void check_bytes(struct worker *w, const struct content *c, uint64_t off, uint64_t len)
{
	const uint8_t *want = bytes_at(c, off, len, w->want);
	uint64_t bad = 0, first = 0;
	char why[64];

	if (!memcmp(w->got, want, len))
		return;
	for (uint64_t i = len; i-- > 0;) {
		if (w->got[i] != want[i]) {
			bad++;
			first = off + i;
		}
	}
	(void)snprintf(why, sizeof(why), "%" PRIu64 " bytes are not those of version %" PRIu64, bad,
		       c->version);
	wrong(c->path, first, bad, why);
}

/* ---- steps that several roles take; false: it failed and was counted ---- */

static struct dfs_file *open_it(struct worker *w, const char *path)
{
	struct dfs_file *f = NULL;
	struct dfs_err err;
	int rc;

	op_begin(w, "open");
	rc = dfs_open(fs, path, &f, &err);
	op_end(w, 0, false);
	if (rc < 0)
		failed(w, path, 0, rc, &err);
	return rc < 0 ? NULL : f;
}

/* From @off to @end, in order, each byte checked. */
static bool read_along(struct worker *w, struct dfs_file *f, const struct content *c, uint64_t off,
		       uint64_t end)
{
	struct dfs_err err;

	while (off < end) {
		const uint64_t len = end - off < STEP ? end - off : STEP;
		const ssize_t n = dfs_read(f, w->got, len, &err);

		if (n < 0) {
			failed(w, c->path, off, (int)n, &err);
			return false;
		}
		check_bytes(w, c, off, (uint64_t)n);
		if ((uint64_t)n < len) {
			wrong(c->path, off + (uint64_t)n, end - off - (uint64_t)n,
			      "the file ends too early");
			return false;
		}
		off += (uint64_t)n;
	}
	return true;
}

static void read_back(struct worker *w, const struct content *c)
{
	struct dfs_file *f = open_it(w, c->path);

	if (!f)
		return;
	op_begin(w, "read what was written:");
	(void)read_along(w, f, c, 0, c->length);
	op_end(w, c->length, false);
	dfs_close(f, NULL);
}

static void delete_it(struct worker *w, const char *path)
{
	struct dfs_err err;
	int rc;

	op_begin(w, "delete");
	rc = dfs_delete(fs, path, false, &err);
	op_end(w, 0, false);
	if (rc < 0)
		failed(w, path, 0, rc, &err);
}

static bool write_piece(struct worker *w, struct dfs_file *f, const struct content *c, uint64_t off,
			uint64_t len)
{
	struct dfs_err err;
	const ssize_t n = dfs_write(f, bytes_at(c, off, len, w->want), len, &err);

	if (n < 0)
		failed(w, c->path, off, (int)n, &err);
	return n >= 0;
}

/* Create, write and close @path with what @c should hold. With @flushes now and then a flush or an
 * hsync. */
static bool write_file(struct worker *w, const char *path, const struct content *c, bool flushes)
{
	const struct dfs_create_opts opts = {.size = sizeof(opts), .flags = DFS_CREATE_OVERWRITE};
	struct dfs_file *f;
	struct dfs_err err;
	int rc = dfs_create(fs, path, &opts, &f, &err);

	for (uint64_t off = 0; rc == 0 && off < c->length;) {
		uint64_t len = flushes ? 1 + below(w, STEP) : STEP;

		len = c->length - off < len ? c->length - off : len;
		if (!write_piece(w, f, c, off, len)) {
			dfs_close(f, NULL);
			return false;
		}
		off += len;
		if (flushes && !below(w, 16))
			rc = below(w, 2) ? dfs_flush(f, &err) : dfs_hsync(f, &err);
		if (rc < 0)
			dfs_close(f, NULL);
	}
	if (rc == 0)
		rc = dfs_close(f, &err);
	if (rc < 0)
		failed(w, path, 0, rc, &err);
	return rc == 0;
}

/* ---- roles: each function does one round ---- */

static void role_fill(struct worker *w)
{
	const uint32_t i = atomic_fetch_add(&next_file, 1);
	const struct content c = content_of(i, 0);

	if (i >= o.files) {
		pause_for(o.seconds);
		return;
	}
	op_begin(w, "fill");
	(void)write_file(w, c.path, &c, false);
	op_end(w, c.length, true);
}

static void role_read(struct worker *w)
{
	const struct content c = content_of((uint32_t)below(w, o.files), 0);
	struct dfs_file *f = open_it(w, c.path);
	struct dfs_err err;
	ssize_t n = 0;

	for (int i = 0; f && i < REOPEN && n >= 0 && !time_is_over(); i++) {
		const uint64_t len = below(w, 2) ? PAGE : 1 + below(w, SMALL_MAX),
			       off = below(w, c.length - len);

		op_begin(w, "pread");
		n = dfs_pread(f, w->got, len, off, &err);
		op_end(w, n > 0 ? (uint64_t)n : 0, n >= 0);
		if (n < 0)
			failed(w, c.path, off, (int)n, &err);
		else if ((uint64_t)n != len)
			wrong(c.path, off, len - (uint64_t)n, "a read is short");
		else
			check_bytes(w, &c, off, len);
	}
	if (f)
		dfs_close(f, NULL);
	else
		pause_for(0.1);
}

static void role_scan(struct worker *w)
{
	const struct content c = content_of((uint32_t)below(w, o.files), 0);
	struct dfs_file *f = open_it(w, c.path);
	bool ok;

	if (!f) {
		pause_for(0.1);
		return;
	}
	op_begin(w, "scan");
	ok = read_along(w, f, &c, 0, c.length);
	op_end(w, c.length, ok);
	dfs_close(f, NULL);
}

static void role_stall(struct worker *w)
{
	const struct content c = content_of((uint32_t)below(w, o.files), 0);
	struct dfs_file *f = open_it(w, c.path);
	bool ok;

	if (!f) {
		pause_for(0.1);
		return;
	}
	op_begin(w, "read before a pause:");
	ok = read_along(w, f, &c, 0, STALL_AT);
	op_end(w, STALL_AT, false);
	pause_some(w);
	op_begin(w, "read after a pause:");
	ok = ok && read_along(w, f, &c, STALL_AT, c.length);
	op_end(w, c.length - STALL_AT, ok);
	dfs_close(f, NULL);
}

static void role_write(struct worker *w)
{
	struct content c = content_of(w->number, 0);
	bool ok;

	c.length = 1 + below(w, o.size);
	op_begin(w, "write");
	ok = write_file(w, c.path, &c, true);
	op_end(w, c.length, ok);
	if (!ok) {
		pause_for(0.1);
		return;
	}
	read_back(w, &c);
	delete_it(w, c.path);
}

/* Records that are flushed one by one; false: over. */
static bool write_records(struct worker *w, struct dfs_file *f, const struct content *c,
			  uint64_t from)
{
	struct dfs_err err;
	int rc = 0;

	for (uint64_t off = from; rc == 0 && off < from + RECORDS * RECORD; off += RECORD) {
		op_begin(w, "flush");
		if (!write_piece(w, f, c, off, RECORD)) {
			op_end(w, 0, false);
			return false;
		}
		rc = dfs_flush(f, &err);
		op_end(w, RECORD, rc == 0);
		if (rc < 0)
			failed(w, c->path, off, rc, &err);
	}
	return rc == 0;
}

static void role_quiet(struct worker *w)
{
	struct content c = content_of(w->number, 0);
	const struct dfs_create_opts opts = {.size = sizeof(opts), .flags = DFS_CREATE_OVERWRITE};
	struct dfs_file *f;
	struct dfs_err err;
	bool ok = true;
	int rc;

	c.length = 0;
	op_begin(w, "create");
	rc = dfs_create(fs, c.path, &opts, &f, &err);
	op_end(w, 0, false);
	if (rc < 0) {
		failed(w, c.path, 0, rc, &err);
		pause_for(0.1);
		return;
	}
	for (uint32_t i = 0; ok && i < SILENCES && !(i && time_is_over()); i++) {
		ok = write_records(w, f, &c, c.length);
		c.length += RECORDS * RECORD;
		pause_some(w);
	}
	op_begin(w, "close");
	rc = dfs_close(f, ok ? &err : NULL);
	op_end(w, 0, false);
	if (ok && rc < 0)
		failed(w, c.path, c.length, rc, &err);
	if (!ok || rc < 0)
		return;
	read_back(w, &c);
	delete_it(w, c.path);
}

/* A new version of a file: even ones take the place of the old one in one step, odd ones are
 * written in its place. */
static void role_replace(struct worker *w)
{
	static _Atomic uint64_t last_version;
	const uint64_t version = atomic_fetch_add(&last_version, 1) + 1;
	/* Each file has one replacer. */
	const uint32_t each = o.files / o.threads,
		       number = w->number * each + (uint32_t)below(w, each ? each : 1);
	const struct content c = content_of(number, version);
	char part[PATH_SIZE + 8];
	struct dfs_err err;
	bool ok;
	int rc = 0;

	(void)snprintf(part, sizeof(part), "%s.part", c.path);
	op_begin(w, "replace");
	ok = write_file(w, version % 2 ? c.path : part, &c, false);
	if (ok && version % 2 == 0)
		rc = dfs_rename(fs, part, c.path, true, &err);
	op_end(w, c.length, ok && rc == 0);
	if (rc < 0)
		failed(w, c.path, 0, rc, &err);
	pause_some(w);
}

/* What ends a reader of @c at @off: the right length, unless the version is one that is being
 * written. */
static void check_end(const struct content *c, uint64_t off)
{
	if (off != c->length && (c->version % 2 == 0 || off > c->length))
		wrong(c->path, off, 1, "the file ends in another place than this version of it");
}

static void role_follow(struct worker *w)
{
	struct content c = content_of((uint32_t)below(w, o.files), 0);
	struct dfs_file *f = open_it(w, c.path);
	const bool by_pread = below(w, 2);
	struct dfs_err err;
	uint64_t off = 0;
	ssize_t n = f ? 1 : 0;

	while (n > 0 && !time_is_over()) {
		op_begin(w, "read of a file that is replaced:");
		n = by_pread ? dfs_pread(f, w->got, STEP, off, &err)
			     : dfs_read(f, w->got, STEP, &err);
		op_end(w, n > 0 ? (uint64_t)n : 0, n >= 0);
		if (n > 0 && off == 0) {
			uint64_t version = 0;

			memcpy(&version, w->got, (size_t)n < WORD ? (size_t)n : WORD);
			set_version(&c, version);
		}
		if (n > 0)
			check_bytes(w, &c, off, (uint64_t)n);
		else if (n < 0)
			failed(w, c.path, off, (int)n, &err);
		else if (off)
			check_end(&c, off);
		off += n > 0 ? (uint64_t)n : 0;
		pause_for((double)below(w, 60) / 1000);
	}
	dfs_close(f, NULL);
}

static const struct role {
	const char *name;
	void (*round)(struct worker *w);
} roles[] = {
	{"fill", role_fill},       {"read", role_read},     {"scan", role_scan},
	{"stall", role_stall},     {"write", role_write},   {"quiet", role_quiet},
	{"replace", role_replace}, {"follow", role_follow},
};

/* ---- run and report ---- */

static void *work(void *arg)
{
	struct worker *w = arg;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		while (!strcmp(roles[i].name, o.role) && !time_is_over() &&
		       !(roles[i].round == role_fill && atomic_load(&next_file) >= o.files))
			roles[i].round(w);
	atomic_store(&w->ended, true);
	return NULL;
}

/* Until all have ended, or one is stuck, which is counted here: it will not end. */
static void wait_all(void)
{
	const uint64_t stuck_ns = (uint64_t)(o.stuck * (double)NS_PER_S);

	for (uint32_t i = 0; i < o.threads; i++) {
		struct worker *w = &workers[i];

		while (!atomic_load(&w->ended)) {
			const uint64_t since = atomic_load(&w->since_ns);

			if (time_is_over() && since && clock_mono_ns() > since + stuck_ns) {
				pthread_mutex_lock(&sum.lock);
				sum.stuck++;
				say_locked("stuck:", atomic_load(&w->doing), i, "thread");
				pthread_mutex_unlock(&sum.lock);
				break;
			}
			nanosleep(&(struct timespec){.tv_nsec = 5 * NS_PER_MS}, NULL);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double ms_at(double share)
{
	return sum.ops ? (double)sum.latency_ns[(uint64_t)((double)(sum.ops - 1) * share)] /
				 (double)NS_PER_MS
		       : 0;
}

static void print_text(const char *text)
{
	for (; *text; text++)
		putchar(*text == '"' || *text == '\\' || (uint8_t)*text < ' ' ? '\'' : *text);
}

static void report(void)
{
	pthread_mutex_lock(&sum.lock);
	if (sum.ops)
		qsort(sum.latency_ns, sum.ops, sizeof(uint64_t), by_value);
	printf("{\"role\": \"%s\", \"ops\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"p50_ms\": %.3f, \"p99_ms\": %.3f"
	       ", \"max_ms\": %.3f, \"wrong\": %" PRIu64 ", \"stuck\": %" PRIu64 ", \"errors\": {",
	       o.role, sum.ops, sum.bytes, ms_at(0.5), ms_at(0.99), ms_at(1), sum.wrong, sum.stuck);
	for (int i = 0; i < KINDS && sum.kind[i]; i++) {
		const char *name = strerrorname_np(-sum.kind[i]);

		printf("%s\"%s\": %" PRIu64, i ? ", " : "", name ? name : "?", sum.count[i]);
	}
	printf("}, \"texts\": [");
	for (uint32_t i = 0; i < sum.texts; i++) {
		printf("%s\"", i ? ", " : "");
		print_text(sum.text[i]);
		printf("\"");
	}
	printf("]}\n");
	fflush(stdout);
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: stress-client ROLE [OPTION]...\n"
		"ROLE: fill     write the files that other roles read, then end\n"
		"      read     read them at random places\n"
		"      scan     read them from begin to end\n"
		"      stall    read 1 MiB, pause, read the rest\n"
		"      write    write files of random length, with flushes; read them, delete them\n"
		"      quiet    flush 300 records of 512 bytes, pause, once more; read the file, delete it\n"
		"      replace  write new versions of files, in place or by a rename\n"
		"      follow   read files that are replaced: one version, or ESTALE\n"
		"  --dir DIR --name NAME   files are DIR/NAME-0, DIR/NAME-1, ...\n"
		"  --files N --size BYTES  how many, and how long\n"
		"  --seed N, --dice N      the bytes of all files; what is done, and in which order\n"
		"  --threads N --seconds S --pause S\n"
		"  --stuck S               an operation that takes longer counts as stuck (60)\n");
}

static int parse(int argc, char **argv)
{
	static const struct option all[] = {
		{"dir", 1, NULL, 'd'},   {"name", 1, NULL, 'n'},    {"files", 1, NULL, 'f'},
		{"size", 1, NULL, 'z'},  {"threads", 1, NULL, 't'}, {"seconds", 1, NULL, 's'},
		{"pause", 1, NULL, 'p'}, {"seed", 1, NULL, 'e'},    {"dice", 1, NULL, 'i'},
		{"stuck", 1, NULL, 'k'}, {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", all, NULL)) != -1) {
		switch (c) {
		case 'd':
			o.dir = optarg;
			break;
		case 'n':
			o.name = optarg;
			break;
		case 'f':
			o.files = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'z':
			o.size = strtoull(optarg, NULL, 10);
			break;
		case 't':
			o.threads = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 's':
			o.seconds = strtod(optarg, NULL);
			break;
		case 'p':
			o.pause = strtod(optarg, NULL);
			break;
		case 'e':
			o.seed = strtoull(optarg, NULL, 10);
			break;
		case 'i':
			o.dice = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			o.stuck = strtod(optarg, NULL);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			return -1;
		}
	}
	for (size_t i = 0; optind == argc - 1 && i < sizeof(roles) / sizeof(*roles); i++)
		if (!strcmp(roles[i].name, argv[optind]))
			o.role = argv[optind];
	return o.role && o.threads && o.threads <= THREADS_MAX && o.files && o.size > 2 * STALL_AT
		       ? 0
		       : -1;
}

int main(int argc, char **argv)
{
	struct dfs_err err;

	if (parse(argc, argv) < 0) {
		usage(stderr);
		return 2;
	}
	if (dfs_connect(NULL, &fs, &err) < 0 || dfs_mkdir(fs, o.dir, 0, true, &err) < 0) {
		fprintf(stderr, "stress-client: %s\n", err.text);
		return 1;
	}
	end_ns = clock_mono_ns() + (uint64_t)(o.seconds * (double)NS_PER_S);
	for (uint32_t i = 0; i < o.threads; i++) {
		struct worker *w = &workers[i];

		w->number = i;
		w->rng = mix(o.dice ^ mix(i + 1)) | 1;
		w->got = malloc(STEP + 2 * WORD);
		w->want = malloc(STEP + 2 * WORD);
		if (!w->got || !w->want || pthread_create(&w->thread, NULL, work, w))
			abort();
	}
	wait_all();
	report();
	_exit(0); /* what is stuck would keep us */
}
