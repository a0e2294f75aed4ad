/* SPDX-License-Identifier: Apache-2.0 */
/* The workload of tests/vm/powercut, and the reader that looks at what a cut has left.
 *
 *   powercut_client work OPS SEED THREADS DEVICE JOURNAL
 *   powercut_client check LIST
 *
 * work: each thread changes a directory of its own, one operation at a time. JOURNAL is text. It
 * has a line "B thread operation ..." before the operation begins, "W thread id length" before bytes
 * are written, "A thread n ms" when the operation is acknowledged. Right after that line the
 * device-mapper target DEVICE ("-": none) gets the mark n: n in its log says what is promised.
 *
 * check: LIST has lines "path id bytes": so many bytes of the file with this id are promised. The
 * answer has "R ns" for the first read that was answered (CLOCK_MONOTONIC); "F path id good state"
 * for each line (good bytes from the beginning; "ok", "short", "foreign" or "-errno"; then "open"
 * if the file was not closed at first, before the lease of a dead writer can have ended; then
 * "waited" if the state was another one at the first look); "T ns" for how long that took; "P path" for each name there
 * is; and "N text" when a new file cannot be written.
 *
 * Byte i of file id is byte i % 8 of a hash of id and i / 8, so that a byte of another file, or of
 * another place, shows.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "client/include/dfsclient_ext.h"

#define FILES 48
#define DIRS 12
#define BLOCK (1u << 20)
#define LARGEST (700u << 10)

struct file {
	uint64_t id, len;
	unsigned dir, name;
	struct dfs_file *open;
};

struct worker {
	unsigned k, files, dirs, next;
	uint64_t random;
	struct file file[FILES];
	unsigned dir[DIRS];
	pthread_t thread;
};

static struct dfs *fs;
static struct dfs_err err;
static FILE *journal;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long left;
static unsigned marks;
static const char *device;
static int control = -1;

static void die(const char *what, const struct dfs_err *e)
{
	fprintf(stderr, "powercut_client: %s: %s\n", what, e->text);
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint8_t byte_of(uint64_t id, uint64_t i)
{
	return (uint8_t)(mix(mix(id) + i / 8) >> i % 8 * 8);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For what comes by itself after a start; the self-test, which waits in vain, shortens it. */
static uint64_t patience_ns(void)
{
	const char *s = getenv("POWERCUT_PATIENCE");

	return strtoull(s ? s : "60", NULL, 0) * 1000000000u;
}

/* ---- work ---- */

static unsigned pick(struct worker *w, unsigned n)
{
	w->random = mix(w->random);
	return (unsigned)(w->random % n);
}

static void mark(unsigned n)
{
	struct {
		struct dm_ioctl head;
		struct dm_target_msg to;
		char text[32];
	} m = {.head = {
		       .version = {4, 0, 0}, .data_size = sizeof(m), .data_start = sizeof(m.head)}};

	if (control < 0)
		return;
	strncpy(m.head.name, device, sizeof(m.head.name) - 1);
	snprintf((char *)&m + sizeof(m.head) + offsetof(struct dm_target_msg, message),
		 sizeof(m.text), "mark %u", n);
	if (ioctl(control, DM_TARGET_MSG, &m) < 0) {
		perror("powercut_client: mark");
		exit(1);
	}
}

static void told(const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&lock);
	va_start(ap, fmt);
	vfprintf(journal, fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&lock);
}

/* The operation that @w told last is acknowledged. */
static void acknowledged(const struct worker *w, int rc, const char *what, const struct dfs_err *e)
{
	if (rc < 0)
		die(what, e);
	pthread_mutex_lock(&lock);
	fprintf(journal, "A %u %u %llu\n", w->k, ++marks, (unsigned long long)now_ns() / 1000000);
	mark(marks);
	pthread_mutex_unlock(&lock);
}

static const char *path_of(char path[64], const struct worker *w, const struct file *f)
{
	snprintf(path, 64, "/t%u/d%u/f%u", w->k, f->dir, f->name);
	return path;
}

static struct file *a_file(struct worker *w, bool open)
{
	const unsigned first = w->files ? pick(w, w->files) : 0;

	for (unsigned i = 0; i < w->files; i++) {
		struct file *f = &w->file[(first + i) % w->files];

		if (!f->open == !open)
			return f;
	}
	return NULL;
}

static void forget(struct worker *w, struct file *f)
{
	*f = w->file[--w->files];
}

static void make_dir(struct worker *w)
{
	struct dfs_err e;
	char path[64];

	if (w->dirs == DIRS)
		return;
	w->dir[w->dirs] = w->next++;
	snprintf(path, sizeof(path), "/t%u/d%u", w->k, w->dir[w->dirs++]);
	told("B %u mkdir %s\n", w->k, path);
	acknowledged(w, dfs_mkdir(fs, path, 0, false, &e), "mkdir", &e);
}

static void create(struct worker *w)
{
	static const uint32_t flags[] = {DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY,
					 DFS_CREATE_EARLY, 0};
	static const char letter[] = "cen"; /* closed early, early, not early */
	struct dfs_create_opts o = {.size = sizeof(o), .block_size = BLOCK};
	struct file *f = &w->file[w->files];
	unsigned kind = pick(w, 10);
	struct dfs_err e;
	char path[64];

	if (w->files == FILES)
		return;
	kind = kind < 3 ? 0 : kind < 4 ? 1 : 2;
	o.flags = flags[kind];
	*f = (struct file){.id = (uint64_t)w->k << 32 | w->next, .dir = w->dir[pick(w, w->dirs)]};
	f->name = w->next++;
	told("B %u create %llu %s %c\n", w->k, (unsigned long long)f->id, path_of(path, w, f),
	     letter[kind]);
	acknowledged(w, dfs_create(fs, path, &o, &f->open, &e), "create", &e);
	w->files++;
}

static void write_some(struct worker *w, struct file *f)
{
	static _Thread_local uint8_t data[LARGEST];
	const unsigned size = pick(w, 20), n = 1 + pick(w, size < 11   ? 2000
							   : size < 18 ? 64 << 10
								       : LARGEST);
	struct dfs_err e;

	for (unsigned i = 0; i < n; i++)
		data[i] = byte_of(f->id, f->len + i);
	f->len += n;
	told("W %u %llu %llu\n", w->k, (unsigned long long)f->id, (unsigned long long)f->len);
	if (dfs_write(f->open, data, n, &e) < 0)
		die("write", &e);
}

static void use_open(struct worker *w, struct file *f)
{
	static const char *const name[] = {"hflush", "hsync", "close"};
	const unsigned how = pick(w, 3);
	struct dfs_err e;
	int rc;

	if (pick(w, 8))
		write_some(w, f);
	told("B %u %s %llu %llu\n", w->k, name[how], (unsigned long long)f->id,
	     (unsigned long long)f->len);
	rc = how == 0   ? dfs_flush(f->open, &e)
	     : how == 1 ? dfs_hsync(f->open, &e)
			: dfs_close(f->open, &e);
	acknowledged(w, rc, name[how], &e);
	if (how == 2)
		f->open = NULL;
}

static void append(struct worker *w, struct file *f)
{
	struct dfs_err e;
	char path[64];

	told("B %u append %llu\n", w->k, (unsigned long long)f->id);
	acknowledged(w, dfs_append(fs, path_of(path, w, f), 0, &f->open, &e), "append", &e);
}

/* To a new name, or over another file. */
static void rename_file(struct worker *w, struct file *f)
{
	struct file *over = a_file(w, false);
	char from[64], to[64];
	struct dfs_err e;

	if (over == f || pick(w, 3))
		over = NULL;
	path_of(from, w, f);
	f->dir = over ? over->dir : w->dir[pick(w, w->dirs)];
	f->name = over ? over->name : w->next++;
	told("B %u rename %s %s\n", w->k, from, path_of(to, w, f));
	acknowledged(w, dfs_rename(fs, from, to, true, &e), "rename", &e);
	if (over)
		forget(w, over);
}

static void delete_file(struct worker *w, struct file *f)
{
	struct dfs_err e;
	char path[64];

	told("B %u delete %s\n", w->k, path_of(path, w, f));
	acknowledged(w, dfs_delete(fs, path, false, &e), "delete", &e);
	forget(w, f);
}

static void rename_dir(struct worker *w)
{
	unsigned *d = &w->dir[pick(w, w->dirs)];
	const unsigned old = *d;
	char from[64], to[64];
	struct dfs_err e;

	*d = w->next++;
	snprintf(from, sizeof(from), "/t%u/d%u", w->k, old);
	snprintf(to, sizeof(to), "/t%u/d%u", w->k, *d);
	told("B %u rename %s %s\n", w->k, from, to);
	acknowledged(w, dfs_rename(fs, from, to, false, &e), "rename", &e);
	for (unsigned i = 0; i < w->files; i++)
		if (w->file[i].dir == old)
			w->file[i].dir = *d;
}

static void delete_dir(struct worker *w)
{
	const unsigned i = pick(w, w->dirs), gone = w->dir[i];
	struct dfs_err e;
	char path[64];

	for (unsigned j = 0; j < w->files; j++)
		if (w->dirs < 3 || (w->file[j].dir == gone && w->file[j].open))
			return;
	snprintf(path, sizeof(path), "/t%u/d%u", w->k, gone);
	told("B %u delete %s\n", w->k, path);
	acknowledged(w, dfs_delete(fs, path, true, &e), "delete", &e);
	w->dir[i] = w->dir[--w->dirs];
	for (unsigned j = w->files; j-- > 0;)
		if (w->file[j].dir == gone)
			forget(w, &w->file[j]);
}

static void sync_early(struct worker *w)
{
	struct dfs_err e;

	told("B %u syncearly\n", w->k);
	acknowledged(w, dfs_sync_early(fs, &e), "sync_early", &e);
}

static void step(struct worker *w)
{
	struct file *open = a_file(w, true), *closed = a_file(w, false);
	const unsigned r = pick(w, 100);

	if (w->dirs == 0 || r < 6)
		make_dir(w);
	else if (open && r < 55)
		use_open(w, open);
	else if (!closed || r < 72)
		create(w);
	else if (r < 79)
		append(w, closed);
	else if (r < 86)
		rename_file(w, closed);
	else if (r < 91)
		delete_file(w, closed);
	else if (r < 94)
		rename_dir(w);
	else if (r < 96)
		delete_dir(w);
	else
		sync_early(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) >= 0)
		step(w);
	return NULL;
}

static int work_main(char **arg)
{
	const unsigned threads = (unsigned)strtoul(arg[2], NULL, 0);
	struct worker *w = calloc(threads, sizeof(*w));

	left = strtol(arg[0], NULL, 0);
	device = arg[3];
	journal = fopen(arg[4], "w");
	if (strcmp(device, "-") != 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (!journal || !w || (strcmp(device, "-") != 0 && control < 0)) {
		perror("powercut_client");
		return 1;
	}
	for (unsigned k = 0; k < threads; k++) {
		char path[32];

		w[k].k = k;
		w[k].random = mix(strtoull(arg[1], NULL, 0) * 64 + k);
		snprintf(path, sizeof(path), "/t%u", k);
		told("B %u mkdir %s\n", k, path);
		acknowledged(&w[k], dfs_mkdir(fs, path, 0, false, &err), "mkdir", &err);
	}
	for (unsigned k = 0; k < threads; k++)
		pthread_create(&w[k].thread, NULL, work, &w[k]);
	for (unsigned k = 0; k < threads; k++)
		pthread_join(w[k].thread, NULL);
	fclose(journal);
	_exit(0); /* open files stay open: no goodbye before a power cut */
}

/* ---- check ---- */

struct wanted {
	char path[128];
	uint64_t id, bytes, good;
	const char *state;
	char number[16];
	bool gone;
	bool open;   /* at the first look */
	bool waited; /* it was not there at the first look */
};

/* Read @x from its beginning until something is wrong or it ends. */
static void look(struct wanted *x)
{
	static uint8_t buf[64 << 10];
	size_t chunk = sizeof(buf);
	struct dfs_file *f;
	ssize_t n = dfs_open(fs, x->path, &f, &err);

	x->good = 0;
	if (n == 0) {
		for (;;) {
			n = dfs_pread(f, buf, chunk, x->good, &err);
			if (n < 0 && chunk > 512)
				chunk = 512; /* how far exactly? */
			else if (n <= 0)
				break;
			for (ssize_t i = 0; i < n; i++, x->good++)
				if (buf[i] != byte_of(x->id, x->good)) {
					x->state = "foreign";
					dfs_close(f, NULL);
					return;
				}
		}
		dfs_close(f, NULL);
	}
	x->gone = n == -ENOENT;
	snprintf(x->number, sizeof(x->number), "%d", (int)n);
	x->state = n < 0 ? x->number : x->good < x->bytes ? "short" : "ok";
}

/* Of all, before any is read: a lease ends, and its file is closed, while others are read. */
static void look_who_is_open(struct wanted *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool closed = true;
		int rc = dfs_is_closed(fs, all[i].path, &closed, &err);

		if (rc < 0 && rc != -ENOENT)
			die(all[i].path, &err);
		all[i].open = rc == 0 && !closed;
	}
}

static bool is_settled(const struct wanted *x)
{
	return strcmp(x->state, "ok") == 0 || strcmp(x->state, "foreign") == 0 || x->gone ||
	       x->good >= x->bytes;
}

static void walk(const char *path)
{
	const struct dfs_stat *st;
	struct dfs_list *l;
	int rc = dfs_list_open(fs, path, &l, &err);

	if (rc < 0)
		die(path, &err);
	while ((rc = dfs_list_next(l, &st, &err)) == 1) {
		char *name;

		if (asprintf(&name, "%s/%s", path[1] ? path : "", st->name) < 0)
			abort();
		printf("P %s\n", name);
		if (st->type == DFS_DIR)
			walk(name);
		free(name);
	}
	if (rc < 0)
		die(path, &err);
	dfs_list_close(l);
}

/* The cluster takes new files, too: it needs no help. */
static void go_on(uint64_t end_ns)
{
	struct wanted x = {.path = "/goes-on", .id = 7, .bytes = 1000};
	uint8_t data[1000];
	int rc = -1;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = byte_of(7, i);
	while (rc < 0 && now_ns() < end_ns) {
		struct dfs_create_opts o = {.size = sizeof(o), .flags = DFS_CREATE_OVERWRITE};
		struct dfs_file *f;

		rc = dfs_create(fs, x.path, &o, &f, &err);
		if (rc == 0) {
			rc = dfs_write(f, data, sizeof(data), &err) < 0 ? -1 : 0;
			rc = dfs_close(f, rc < 0 ? NULL : &err) < 0 ? -1 : rc;
		}
		if (rc < 0)
			usleep(200000);
	}
	if (rc < 0)
		printf("N %s\n", err.text);
	else if (look(&x), strcmp(x.state, "ok") != 0)
		printf("N a new file reads %s\n", x.state);
}

static struct wanted *read_list(const char *path, size_t *ret_count)
{
	struct wanted x = {.state = ""}, *all = NULL;
	FILE *list = fopen(path, "r");
	unsigned long long id, bytes;
	size_t n = 0;

	if (!list) {
		perror(path);
		exit(1);
	}
	for (; fscanf(list, "%127s %llu %llu", x.path, &id, &bytes) == 3; n++) {
		x.id = id;
		x.bytes = bytes;
		all = realloc(all, (n + 1) * sizeof(*all));
		if (!all)
			abort();
		all[n] = x;
	}
	fclose(list);
	*ret_count = n;
	return all;
}

static int check_main(char **arg)
{
	const uint64_t begin_ns = now_ns(), end_ns = begin_ns + patience_ns();
	size_t n, settled = 0;
	struct wanted *all = read_list(arg[0], &n);
	bool answered = false;

	look_who_is_open(all, n);
	for (bool first = true; settled < n && (first || now_ns() < end_ns); first = false) {
		settled = 0;
		for (size_t i = 0; i < n; i++) {
			if (first || !is_settled(&all[i])) {
				look(&all[i]);
				all[i].waited = !first;
			}
			settled += is_settled(&all[i]);
			if (!answered && all[i].good) {
				printf("R %llu\n", (unsigned long long)now_ns());
				answered = true;
			}
		}
		if (settled < n)
			usleep(20000);
	}
	for (size_t i = 0; i < n; i++)
		printf("F %s %llu %llu %s%s%s\n", all[i].path, (unsigned long long)all[i].id,
		       (unsigned long long)all[i].good, all[i].state, all[i].open ? " open" : "",
		       all[i].waited ? " waited" : "");
	printf("T %llu\n", (unsigned long long)(now_ns() - begin_ns));
	walk("/");
	go_on(now_ns() + patience_ns());
	return 0;
}

int main(int argc, char **argv)
{
	const bool work = argc == 7 && strcmp(argv[1], "work") == 0;
	const uint64_t end_ns = now_ns() + patience_ns();
	int rc;

	if (!work && (argc != 3 || strcmp(argv[1], "check") != 0)) {
		fputs("usage: see the first comment of powercut_client.c\n", stderr);
		return 2;
	}
	while ((rc = dfs_connect(NULL, &fs, &err)) < 0 && now_ns() < end_ns)
		usleep(20000);
	if (rc < 0)
		die("connect", &err);
	return work ? work_main(argv + 2) : check_main(argv + 2);
}
