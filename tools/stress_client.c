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
#include "tools/stress_internal.h"

#define THREADS_MAX 1024
#define KINDS 8 /* of errors that are counted apart */
#define TEXTS 4 /* errors and wrong bytes that are shown */

struct options stress_opts = {.dir = "/stress",
			      .name = "file",
			      .seed = 1,
			      .size = 4u << 20,
			      .files = 8,
			      .threads = 1,
			      .seconds = 1,
			      .stuck = 60,
			      .pause = 2};
struct dfs *stress_fs;
static struct worker workers[THREADS_MAX];
static uint64_t end_ns;

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

void stress_failed(struct worker *w, const char *path, uint64_t off, int rc,
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

void stress_wrong(const char *path, uint64_t off, uint64_t bytes, const char *why)
{
	pthread_mutex_lock(&sum.lock);
	sum.wrong += bytes;
	say_locked("wrong bytes:", path, off, why);
	pthread_mutex_unlock(&sum.lock);
}

void stress_op_begin(struct worker *w, const char *doing)
{
	atomic_store(&w->doing, doing);
	atomic_store(&w->since_ns, clock_mono_ns());
}

/* @counts: its time is one of those that the role is judged by. */
void stress_op_end(struct worker *w, uint64_t bytes, bool counts)
{
	const uint64_t took = clock_mono_ns() - atomic_exchange(&w->since_ns, 0);

	pthread_mutex_lock(&sum.lock);
	sum.stuck += took > (uint64_t)(stress_opts.stuck * (double)NS_PER_S);
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

bool stress_time_is_over(void)
{
	return clock_mono_ns() >= end_ns;
}

/* Not beyond the end of the time. */
void stress_pause_for(double seconds)
{
	const uint64_t until = clock_mono_ns() + (uint64_t)(seconds * (double)NS_PER_S);

	while (clock_mono_ns() < until && !stress_time_is_over())
		nanosleep(&(struct timespec){.tv_nsec = 2 * NS_PER_MS}, NULL);
}

uint64_t stress_below(struct worker *w, uint64_t n)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng % n;
}

/* Between half of --pause and one and a half. */
void stress_pause_some(struct worker *w)
{
	stress_pause_for(stress_opts.pause * (0.5 + (double)stress_below(w, 1000) / 1000));
}

/* ---- run and report ---- */

/* Until all have ended, or one is stuck, which is counted here: it will not end. */
static void wait_all(void)
{
	const uint64_t stuck_ns = (uint64_t)(stress_opts.stuck * (double)NS_PER_S);

	for (uint32_t i = 0; i < stress_opts.threads; i++) {
		struct worker *w = &workers[i];

		while (!atomic_load(&w->ended)) {
			const uint64_t since = atomic_load(&w->since_ns);

			if (stress_time_is_over() && since && clock_mono_ns() > since + stuck_ns) {
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
	       stress_opts.role, sum.ops, sum.bytes, ms_at(0.5), ms_at(0.99), ms_at(1), sum.wrong,
	       sum.stuck);
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
			stress_opts.dir = optarg;
			break;
		case 'n':
			stress_opts.name = optarg;
			break;
		case 'f':
			stress_opts.files = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'z':
			stress_opts.size = strtoull(optarg, NULL, 10);
			break;
		case 't':
			stress_opts.threads = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 's':
			stress_opts.seconds = strtod(optarg, NULL);
			break;
		case 'p':
			stress_opts.pause = strtod(optarg, NULL);
			break;
		case 'e':
			stress_opts.seed = strtoull(optarg, NULL, 10);
			break;
		case 'i':
			stress_opts.dice = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			stress_opts.stuck = strtod(optarg, NULL);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			return -1;
		}
	}
	if (optind == argc - 1 && stress_is_role(argv[optind]))
		stress_opts.role = argv[optind];
	return stress_opts.role && stress_opts.threads && stress_opts.threads <= THREADS_MAX &&
			       stress_opts.files && stress_opts.size > 2 * STALL_AT
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
	if (dfs_connect(NULL, &stress_fs, &err) < 0 ||
	    dfs_mkdir(stress_fs, stress_opts.dir, 0, true, &err) < 0) {
		fprintf(stderr, "stress-client: %s\n", err.text);
		return 1;
	}
	end_ns = clock_mono_ns() + (uint64_t)(stress_opts.seconds * (double)NS_PER_S);
	for (uint32_t i = 0; i < stress_opts.threads; i++) {
		struct worker *w = &workers[i];

		w->number = i;
		w->rng = stress_mix(stress_opts.dice ^ stress_mix(i + 1)) | 1;
		w->got = malloc(STEP + 2 * WORD);
		w->want = malloc(STEP + 2 * WORD);
		if (!w->got || !w->want || pthread_create(&w->thread, NULL, stress_work, w))
			abort();
		pthread_detach(w->thread); /* nobody joins one that may be stuck */
	}
	wait_all();
	report();
	_exit(0); /* what is stuck would keep us */
}
