/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a simulated cluster: an ordinary program on libdfsclient.
 *
 *   sim_client work FIRST THREADS SEED    threads that change files until they are told to end
 *   sim_client check                      is all as the ledger says? waits for what takes time
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "client/include/dfsclient_ext.h"
#include "tests/simulator/ledger.h"

#define BLOCK (64u << 10)
#define LARGEST (300u << 10)
#define READ (16u << 10)
#define STRIPED "RS-3-2-4k"
#define PATIENCE_S 3600  /* for what comes by itself */
#define LOST_AFTER_S 600 /* then what is lost is lost */

static struct ledger *ledger;
static struct dfs *fs;

struct me {
	uint32_t k;
	uint64_t random;
	pthread_t thread;
};

struct handle {
	struct file *file;
	struct dfs_file *open;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_ms(uint64_t ms)
{
	const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

	nanosleep(&t, NULL);
}

static uint64_t pick(struct me *me, uint64_t n)
{
	me->random = mix(me->random);
	return me->random % n;
}

static void __attribute__((format(printf, 1, 2))) wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!ledger->wrong[0])
		vsnprintf(ledger->wrong, sizeof(ledger->wrong), fmt, ap);
	va_end(ap);
	ledger->stop = true;
}

static void name_of(uint32_t number, char path[32])
{
	snprintf(path, 32, "/f/%u", number);
}

/* ---- operations are written down ---- */

static void begins(struct me *me, const struct file *f, const char *what)
{
	struct worker *w = &ledger->worker[me->k];

	w->busy = true;
	w->began = now_ns();
	snprintf(w->op, sizeof(w->op), "%s /f/%u", what, f ? f->number : 0);
	if (getenv("DFS_SIM_VERBOSE"))
		fprintf(stderr, "%.6f worker %u: %s\n", (double)w->began / 1e9, me->k, w->op);
}

static int ends(struct me *me, int rc, const struct dfs_err *err)
{
	struct worker *w = &ledger->worker[me->k];
	const uint64_t now = now_ns(), took = now - w->began;

	w->busy = false;
	ledger->ops++;
	ledger->failed_ops += rc < 0;
	if (took > ledger->slowest) {
		ledger->slowest = took;
		snprintf(ledger->slowest_op, sizeof(ledger->slowest_op), "%s", w->op);
	}
	if (getenv("DFS_SIM_VERBOSE"))
		fprintf(stderr, "%.6f worker %u: %s = %d %s\n", (double)now / 1e9, me->k, w->op, rc,
			rc < 0 ? err->text : "");
	return rc;
}

/* ---- writing ---- */

static struct file *free_file(void)
{
	for (uint32_t i = 0; i < FILES; i++)
		if (ledger->file[i].state == NO_FILE && ledger->file[i].owner == WORKERS)
			return &ledger->file[i];
	return NULL;
}

static bool create(struct me *me, struct handle *h)
{
	struct dfs_create_opts opts = {.size = sizeof(opts), .block_size = BLOCK};
	struct dfs_err err;
	struct file *f = free_file();
	const bool striped = pick(me, 4) == 0;
	char path[32];
	int rc;

	if (!f)
		return false;
	opts.replication = 1 + (uint32_t)(pick(me, 8) + 2) / 3;
	opts.ec_policy = striped ? STRIPED : "replication";
	*f = (struct file){.state = MAY_BE,
			   .striped = striped,
			   .replication = opts.replication,
			   .number = ++ledger->next_number,
			   .owner = me->k,
			   .open = true,
			   .crashes = ledger->crashes,
			   .starts = ledger->starts,
			   .stretches = 1,
			   .stretch[0] = {0, mix(ledger->salt += 1000)}};
	name_of(f->number, path);
	begins(me, f, "create");
	rc = ends(me, dfs_create(fs, path, &opts, &h->open, &err), &err);
	if (rc) {
		f->frozen = true;
		f->open = false;
		f->owner = WORKERS;
		return false;
	}
	f->state = IS_THERE;
	h->file = f;
	return true;
}

static void lose(struct handle *h)
{
	h->file->frozen = true;
	h->file->owner = WORKERS;
	h->file = NULL;
	h->open = NULL;
}

/* True: the file is closed, and on the disk. */
static bool close_file(struct me *me, struct handle *h)
{
	struct file *f = h->file;
	struct dfs_err err;
	int rc;

	begins(me, f, "close");
	rc = ends(me, dfs_close(h->open, &err), &err);
	if (rc) {
		lose(h);
		return false;
	}
	f->flushed = f->synced = f->most;
	f->open = false;
	f->owner = WORKERS;
	h->file = NULL;
	h->open = NULL;
	return true;
}

static void write_some(struct me *me, struct handle *h)
{
	static __thread uint8_t buf[LARGEST];
	struct file *f = h->file;
	const uint64_t n = 1 + pick(me, pick(me, 4) ? 3000 : 100000);
	struct dfs_err err;

	if (f->most + n > LARGEST) {
		(void)close_file(me, h);
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		buf[i] = file_byte(f, f->most + i);
	f->most += n;
	ledger->bytes += n;
	begins(me, f, "write");
	if (ends(me, dfs_write(h->open, buf, n, &err) == (ssize_t)n ? 0 : -EIO, &err) == 0)
		return;
	(void)dfs_close(h->open, &err);
	lose(h);
}

static void sync_file(struct me *me, struct handle *h)
{
	struct file *f = h->file;
	const bool disk = pick(me, 2);
	struct dfs_err err;
	int rc;

	begins(me, f, disk ? "hsync" : "hflush");
	rc = disk ? dfs_hsync(h->open, &err) : dfs_flush(h->open, &err);
	if (ends(me, rc, &err)) {
		(void)dfs_close(h->open, &err);
		lose(h);
		return;
	}
	f->flushed = f->most;
	if (disk)
		f->synced = f->most;
}

/* ---- files that nobody has open ---- */

static struct file *idle_file(struct me *me)
{
	const uint64_t from = pick(me, FILES);

	for (uint32_t i = 0; i < FILES; i++) {
		struct file *f = &ledger->file[(from + i) % FILES];

		if (f->state == IS_THERE && f->owner == WORKERS && !f->open && !f->frozen)
			return f;
	}
	return NULL;
}

static void append(struct me *me, struct handle *h)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	char path[32];

	if (!f)
		return;
	f->owner = me->k;
	f->open = true;
	f->crashes = ledger->crashes;
	f->starts = ledger->starts;
	name_of(f->number, path);
	begins(me, f, "append");
	if (ends(me,
		 dfs_append(fs, path, f->striped || pick(me, 2) ? DFS_APPEND_NEW_BLOCK : 0,
			    &h->open, &err),
		 &err)) {
		f->frozen = true;
		f->owner = WORKERS;
		return;
	}
	h->file = f;
	if (dfs_tell(h->open) != f->most)
		wrong("append of /f/%u begins at %lu, its length is %lu", f->number,
		      (unsigned long)dfs_tell(h->open), (unsigned long)f->most);
}

static void cut(struct me *me)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	uint64_t to, was;
	char path[32];
	bool done = false;
	int rc;

	if (!f || f->striped || f->stretches == STRETCHES || !f->most)
		return;
	f->owner = me->k;
	was = f->most;
	to = pick(me, f->most + 1);
	f->flushed = f->synced = to;
	f->crashes = ledger->crashes;
	f->starts = ledger->starts;
	f->open = true;
	name_of(f->number, path);
	begins(me, f, "truncate");
	rc = ends(me, dfs_truncate(fs, path, to, &done, &err), &err);
	f->owner = WORKERS;
	if (rc) {
		f->frozen = true;
		return;
	}
	f->most = to;
	/* until its recovery is done, a file that is being cut is open */
	f->open = f->frozen = !done;
	if (to < was)
		f->stretch[f->stretches++] = (struct stretch){to, mix(ledger->salt += 1000)};
}

static void rename_file(struct me *me)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	char from[32], to[32];

	if (!f)
		return;
	f->owner = me->k;
	f->may_name = ++ledger->next_number;
	name_of(f->number, from);
	name_of(f->may_name, to);
	begins(me, f, "rename");
	if (ends(me, dfs_rename(fs, from, to, false, &err), &err)) {
		f->frozen = true;
	} else {
		f->number = f->may_name;
		f->may_name = 0;
	}
	f->owner = WORKERS;
}

static void delete_file(struct me *me)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	char path[32];

	if (!f)
		return;
	f->owner = me->k;
	f->state = MAY_BE;
	name_of(f->number, path);
	begins(me, f, "delete");
	if (ends(me, dfs_delete(fs, path, false, &err), &err))
		f->frozen = true;
	else
		f->state = NO_FILE;
	f->owner = WORKERS;
}

/* ---- reading ---- */

/* Bytes that must be there. */
static uint64_t least(const struct file *f)
{
	return f->crashes == ledger->crashes ? f->flushed : f->synced;
}

/* The number of bytes at the beginning that are right. */
static uint64_t good_bytes(const struct file *f, const uint8_t *buf, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (buf[i] != file_byte(f, i))
			return i;
	return n;
}

/* 0 or the failure that ended it; *@got in any case. A read that fails gives none of its bytes:
 * those before the bad place come one by one. */
static int read_all(const char *path, uint8_t *buf, size_t size, size_t *got, struct dfs_err *err)
{
	struct dfs_file *open;
	size_t step = READ;
	ssize_t n;
	int rc = dfs_open(fs, path, &open, err);

	*got = 0;
	if (rc)
		return rc;
	for (;;) {
		n = dfs_read(open, buf + *got, size - *got < step ? size - *got : step, err);
		if (n == 0 || (n < 0 && step == 1))
			break;
		step = n < 0 ? 1 : step;
		*got += n > 0 ? (size_t)n : 0;
	}
	(void)dfs_close(open, NULL);
	return (int)n;
}

static struct file *some_file(struct me *me)
{
	const uint32_t n = ledger->next_number;

	return &ledger->file[pick(me, n && n < FILES ? n : FILES)];
}

/* What was promised when the reading began, of a file that nobody cuts meanwhile, is there. A read
 * that fails while machines are down is no fault here: the check at the end reads all. */
static void read_file(struct me *me)
{
	static __thread uint8_t buf[LARGEST + 1];
	struct file *f = some_file(me), before = *f;
	struct dfs_err err;
	char path[32];
	size_t n;
	uint64_t good;
	int rc;

	if (f->state != IS_THERE || f->frozen || f->may_name)
		return;
	name_of(f->number, path);
	begins(me, f, "read");
	rc = ends(me, read_all(path, buf, sizeof(buf), &n, &err), &err);
	if (f->number != before.number || f->stretches != before.stretches || f->state != IS_THERE)
		return;
	ledger->checks++;
	good = good_bytes(f, buf, n);
	if (good != n)
		wrong("byte %lu of /f/%u is not its own (%zu bytes read)", (unsigned long)good,
		      f->number, n);
	/* Of a file that is being written the end is not seen while its pipeline is dead: a client
	 * that no node tells a length takes the last block for empty, as Apache's does. */
	if (!rc && !before.open && n < least(&before))
		wrong("a reader of /f/%u sees %zu bytes, %lu were flushed, %lu synced", f->number,
		      n, (unsigned long)before.flushed, (unsigned long)before.synced);
}

/* ---- the life of a worker ---- */

static void step(struct me *me, struct handle *h, uint32_t handles)
{
	struct handle *one = &h[pick(me, handles)];

	if (!one->file) {
		switch (pick(me, 10)) {
		case 0:
			cut(me);
			break;
		case 1:
			rename_file(me);
			break;
		case 2:
			if (pick(me, 2))
				delete_file(me);
			break;
		case 3:
		case 4:
			append(me, one);
			break;
		case 5:
		case 6:
			read_file(me);
			break;
		default:
			(void)create(me, one);
		}
		return;
	}
	switch (pick(me, 12)) {
	case 0:
		(void)close_file(me, one);
		break;
	case 1:
	case 2:
	case 3:
		sync_file(me, one);
		break;
	case 4:
	case 5:
		read_file(me);
		break;
	default:
		write_some(me, one);
	}
}

static void *work(void *arg)
{
	struct me *me = (struct me *)arg;
	struct handle h[3] = {0};

	while (!ledger->stop) {
		step(me, h, 3);
		pause_ms(pick(me, pick(me, 20) ? 300 : 20000));
	}
	for (int i = 0; i < 3; i++)
		if (h[i].file)
			(void)close_file(me, &h[i]);
	return NULL;
}

/* ---- the check at the end ---- */

/* Bytes behind those that were synced, after a power cut of their nodes; those of an only replica
 * that rots; the end of such a file. HDFS does not promise them, nor the opposite. */
static const char NOT_PROMISED[] = "is not whole";

/* What is not yet so, in words, or NULL. */
static const char *look_at_blocks(const char *path)
{
	struct dfs_blocks *b;
	struct dfs_stat st;
	const char *bad = NULL;

	if (dfs_stat(fs, path, &st, NULL) || dfs_blocks(fs, path, 0, LARGEST, &b, NULL))
		return "has no blocks";
	for (size_t i = 0; i < b->count && !bad; i++)
		if (b->block[i].count < st.replication)
			bad = "has too few replicas";
	dfs_blocks_free(b);
	return bad;
}

static const char *look_at_bytes(const struct file *f, const char *path)
{
	static uint8_t buf[LARGEST + 1];
	static char text[700];
	struct dfs_err err;
	size_t n;
	const int rc = read_all(path, buf, sizeof(buf), &n, &err);
	const uint64_t good = good_bytes(f, buf, n);

	if (good < n)
		wrong("byte %lu of %s is not its own", (unsigned long)good, path);
	if (n >= least(f) && n <= f->most && !rc)
		return look_at_blocks(path);
	snprintf(text, sizeof(text), "has %zu bytes, of %lu flushed, %lu synced, %lu written%s%s",
		 n, (unsigned long)f->flushed, (unsigned long)f->synced, (unsigned long)f->most,
		 rc ? ": " : "", rc ? err.text : "");
	/* It may be the only replica, or a group without its parity; and a recovery takes the
	 * shortest one, which ends before the byte that changed. */
	if (ledger->rotten && (f->striped || f->replication == 1 || f->frozen))
		return NOT_PROMISED;
	return n >= least(f) && f->crashes != ledger->crashes && n <= f->most ? NOT_PROMISED : text;
}

static bool has_what_was_synced(const struct file *f, const char *path)
{
	static uint8_t buf[LARGEST + 1];
	struct dfs_err err;
	size_t n;

	(void)read_all(path, buf, sizeof(buf), &n, &err);
	return n >= f->synced && good_bytes(f, buf, n) == n;
}

static const char *look(struct file *f, uint32_t number, bool must)
{
	struct dfs_err err;
	char path[32];
	bool closed;
	int rc;

	name_of(number, path);
	rc = dfs_is_closed(fs, path, &closed, &err);
	if (rc == -ENOENT)
		return must ? "is not there" : NULL;
	if (!rc && closed)
		return look_at_bytes(f, path);
	if (now_ns() - f->asked > 60u * 1000000000ull) {
		f->asked = now_ns();
		(void)dfs_recover_lease(fs, path, &closed, &err);
	}
	/* Bytes that only machines had which lost their power, and the NameNode was started since:
	 * it cannot know whether another node has them, and waits for an administrator. */
	if (f->crashes != ledger->crashes && f->starts != ledger->starts &&
	    has_what_was_synced(f, path))
		return NOT_PROMISED;
	return "is not closed";
}

static bool is_there(uint32_t number)
{
	struct dfs_stat st;
	char path[32];

	name_of(number, path);
	return dfs_stat(fs, path, &st, NULL) == 0;
}

static const char *look_at(struct file *f)
{
	if (f->state == NO_FILE)
		return NULL;
	/* after a rename without an answer: one of both names */
	if (f->may_name && is_there(f->may_name))
		return is_there(f->number) ? "has both names" : look(f, f->may_name, true);
	return look(f, f->number, f->state == IS_THERE);
}

/* Names that nobody may see any more. */
static void look_for_ghosts(void)
{
	const struct dfs_stat *st;
	struct dfs_list *list;

	if (dfs_list_open(fs, "/f", &list, NULL))
		return;
	while (dfs_list_next(list, &st, NULL) > 0) {
		const uint32_t number = (uint32_t)atoi(st->name);
		uint32_t i = 0;

		while (i < FILES &&
		       (ledger->file[i].state == NO_FILE ||
			(ledger->file[i].number != number && ledger->file[i].may_name != number)))
			i++;
		if (i == FILES)
			wrong("/f/%u is there, and was deleted or never made", number);
	}
	dfs_list_close(list);
}

static void check(void)
{
	const uint64_t began = now_ns(), until = began + PATIENCE_S * 1000000000ull;
	static bool done[FILES];
	uint32_t left;

	do {
		left = 0;
		for (uint32_t i = 0; i < FILES && !ledger->wrong[0]; i++) {
			struct file *f = &ledger->file[i];
			const char *bad = done[i] ? NULL : look_at(f);
			const uint64_t now = now_ns();

			done[i] = !bad;
			left += bad != NULL;
			if (bad && getenv("DFS_SIM_VERBOSE"))
				fprintf(stderr, "%.3f /f/%u %s\n", (double)now / 1e9, f->number,
					bad);
			if (bad == NOT_PROMISED && now - began > LOST_AFTER_S * 1000000000ull)
				done[i] = true;
			else if (bad && now > until)
				wrong("/f/%u %s, %d s after all is well again", f->number, bad,
				      PATIENCE_S);
		}
		if (left)
			pause_ms(10000);
	} while (left && !ledger->wrong[0]);
	look_for_ghosts();
}

/* ---- main ---- */

static struct ledger *open_ledger(void)
{
	const int fd = open(getenv(LEDGER_ENV), O_RDWR | O_CLOEXEC);
	void *at = fd < 0 ? MAP_FAILED
			  : mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED,
				 fd, 0);

	if (at == MAP_FAILED) {
		perror("sim_client: the ledger");
		exit(1);
	}
	return (struct ledger *)at;
}

static void connect_fs(void)
{
	struct dfs_ec_policy policy;
	struct dfs_err err;

	while (dfs_connect(NULL, &fs, &err)) {
		fprintf(stderr, "sim_client: %s\n", err.text);
		if (ledger->stop)
			exit(0);
		pause_ms(1000);
	}
	(void)dfs_add_ec_policy(fs, "rs", 3, 2, 4096, &policy, &err); /* else somebody was first */
	while (dfs_enable_ec_policy(fs, STRIPED, &err) || dfs_mkdir(fs, "/f", 0777, true, &err)) {
		if (ledger->stop)
			exit(0);
		pause_ms(1000);
	}
}

int main(int argc, char **argv)
{
	struct me me[WORKERS];
	uint32_t first, n;

	if (argc < 2)
		return 2;
	ledger = open_ledger();
	connect_fs();
	if (!strcmp(argv[1], "check")) {
		check();
	} else {
		first = (uint32_t)atoi(argv[2]);
		n = (uint32_t)atoi(argv[3]);
		for (uint32_t i = 0; i < n; i++) {
			me[i] = (struct me){.k = first + i,
					    .random = strtoull(argv[4], NULL, 0) + i};
			(void)pthread_create(&me[i].thread, NULL, work, &me[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			(void)pthread_join(me[i].thread, NULL);
	}
	dfs_disconnect(fs);
	return ledger->wrong[0] != 0;
}
