/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that change files, and read them meanwhile. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/simulator/client.h"

#define CALL_S 60 /* that a call may take while nothing is broken */
#define STEADY_S 15

struct me {
	uint32_t k, client;
	uint64_t random;
	pthread_t thread;
};

struct handle {
	struct file *file;
	struct dfs_file *open;
};

static uint64_t pick(struct me *me, uint64_t n)
{
	me->random = mix(me->random);
	return me->random % n;
}

/* ---- operations are written down ---- */

static void begins(struct me *me, const struct file *f, const char *what)
{
	struct worker *w = &ledger->worker[me->k];

	w->busy = true;
	w->began = now_ns();
	w->troubles = ledger->calm ? ledger->troubles : 0;
	snprintf(w->op, sizeof(w->op), "%s /f/%u", what, f ? f->number : 0);
	if (getenv("DFS_SIM_VERBOSE"))
		fprintf(stderr, "%.6f worker %u: %s\n", (double)w->began / 1e9, me->k, w->op);
}

/* Nothing was broken or mended since the flush, all links and disks are well, and a NameNode that
 * was started has heard who writes what. */
static bool is_steady(uint64_t troubles)
{
	return troubles && ledger->sound && ledger->troubles == troubles &&
	       now_ns() - ledger->started_at > STEADY_S * 1000000000ull;
}

static int ends(struct me *me, int rc, const struct dfs_err *err)
{
	struct worker *w = &ledger->worker[me->k];
	const uint64_t now = now_ns(), took = now - w->began;

	w->busy = false;
	if (w->troubles && w->troubles == ledger->troubles) {
		ledger->slowest_calm = took > ledger->slowest_calm ? took : ledger->slowest_calm;
		if (took > CALL_S * 1000000000ull)
			wrong("%s took %.0f s, and nothing was broken", w->op, (double)took / 1e9);
	}
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

/* ---- what is answered early ---- */

/* What a crash of the NameNode's machine has undone, if there was one since, no change brings back.
 */
static bool namenode_has_kept(const struct file *f)
{
	return f->namenode_crashes == ledger->namenode_crashes;
}

/* A change of @me is acknowledged: what had been answered early before it began is on the
 * NameNode's disk. */
static void change_lasts(const struct me *me)
{
	const uint64_t began = ledger->worker[me->k].began;

	for (uint32_t i = 0; i < FILES; i++) {
		struct file *f = &ledger->file[i];

		if (!namenode_has_kept(f))
			continue;
		f->may_vanish = f->may_vanish && f->made_at >= began;
		f->may_reopen = f->may_reopen && f->closed_at >= began;
	}
}

/* All bytes of @f so far are on the disk, as far as those are that an append left alone. */
static void on_disk(struct file *f)
{
	if (f->synced >= f->base)
		f->synced = f->most;
}

/* Bytes of files that this client closed early are on a disk, too; unless a crash takes them
 * meanwhile. */
static void sync_early(struct me *me)
{
	const uint32_t crashes = ledger->crashes;
	struct dfs_err err;

	begins(me, NULL, "sync_early");
	if (ends(me, dfs_sync_early(fs, &err), &err))
		return;
	change_lasts(me);
	for (uint32_t i = 0; i < FILES; i++) {
		struct file *f = &ledger->file[i];

		if (f->closer == me->client && f->closed_at &&
		    f->closed_at < ledger->worker[me->k].began && ledger->sync_on_close &&
		    crashes == ledger->crashes)
			f->synced = f->most;
	}
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
	/* many have one: what a disk alone has lost shows */
	static const uint32_t replicas[8] = {1, 1, 1, 2, 2, 3, 3, 4};
	const bool striped = pick(me, 4) == 0, early = pick(me, 3) == 0;
	char path[32];
	int rc;

	if (!f)
		return false;
	opts.flags = (early ? DFS_CREATE_EARLY : 0) | (pick(me, 2) ? 0 : DFS_CREATE_CLOSE_EARLY) |
		     (pick(me, 4) ? 0 : DFS_CREATE_FIRST_BLOCK);
	opts.replication = replicas[pick(me, 8)];
	opts.ec_policy = striped ? STRIPED : "replication";
	*f = (struct file){.state = MAY_BE,
			   .striped = striped,
			   .replication = opts.replication,
			   .number = ++ledger->next_number,
			   .owner = me->k,
			   .open = true,
			   .crashes = ledger->crashes,
			   .starts = ledger->starts,
			   /* neither flag has an effect for striped files */
			   .may_vanish = early && !striped,
			   .closes_early = opts.flags & DFS_CREATE_CLOSE_EARLY && !striped,
			   .namenode_crashes = ledger->namenode_crashes,
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
	f->made_at = now_ns();
	h->file = f;
	if (!f->may_vanish)
		change_lasts(me);
	return true;
}

static void lose(struct handle *h)
{
	h->file->frozen = h->file->died = true;
	h->file->owner = WORKERS;
	h->file = NULL;
	h->open = NULL;
}

/* True: the file is closed, and on the disk unless it may be later. */
static bool close_file(struct me *me, struct handle *h)
{
	struct file *f = h->file;
	const uint32_t crashes = ledger->namenode_crashes;
	struct dfs_err err;
	int rc;

	begins(me, f, f->closes_early ? "close early" : "close");
	rc = ends(me, dfs_close(h->open, &err), &err);
	if (rc) {
		lose(h);
		return false;
	}
	f->flushed = f->most;
	if (f->closes_early) {
		f->may_reopen = true;
		f->namenode_crashes = crashes;
		f->closed_at = now_ns();
		f->closer = me->client;
	} else {
		if (ledger->sync_on_close)
			on_disk(f);
		f->may_vanish = false;
		change_lasts(me);
	}
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
	const uint64_t troubles = ledger->troubles;
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
	f->flushed_in = troubles == ledger->troubles ? troubles : 0;
	if (disk) {
		on_disk(f);
		f->may_vanish = false;
	}
}

/* ---- files that nobody has open ---- */

/* A crash may have taken bytes of it, which were not synced. */
static bool is_damaged(const struct file *f)
{
	return f->synced < f->most && f->crashes != ledger->crashes;
}

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

/* Where the block begins that an append goes on with, in a file of @length bytes. */
static uint64_t reopened_from(struct me *me, const struct file *f, const char *path,
			      uint64_t length)
{
	const struct dfs_block *last;
	struct dfs_blocks *b;
	struct dfs_err err;
	uint64_t ret;

	begins(me, f, "blocks");
	if (ends(me, dfs_blocks(fs, path, 0, LARGEST, &b, &err), &err))
		return length; /* it is not known */
	last = b->count ? &b->block[b->count - 1] : NULL;
	ret = last && last->offset < length && length - last->offset < BLOCK ? last->offset
									     : length;
	dfs_blocks_free(b);
	return ret;
}

static void append(struct me *me, struct handle *h)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	char path[32];
	bool anew;

	if (!f || is_damaged(f))
		return;
	anew = f->striped || pick(me, 2);
	f->owner = me->k;
	f->open = true;
	f->base = f->most;
	f->closes_early = false;
	f->closed_at = 0;
	f->crashes = ledger->crashes;
	f->starts = ledger->starts;
	name_of(f->number, path);
	begins(me, f, "append");
	if (ends(me, dfs_append(fs, path, anew ? DFS_APPEND_NEW_BLOCK : 0, &h->open, &err), &err)) {
		f->frozen = true;
		f->owner = WORKERS;
		return;
	}
	h->file = f;
	f->may_vanish = f->may_reopen = false;
	change_lasts(me);
	if (dfs_tell(h->open) == f->most) {
		f->base = anew ? f->most : reopened_from(me, f, path, f->most);
		return;
	}
	if (!is_damaged(f))
		wrong("append of /f/%u begins at %lu, its length is %lu", f->number,
		      (unsigned long)dfs_tell(h->open), (unsigned long)f->most);
	(void)dfs_close(h->open, &err);
	lose(h);
}

static void cut(struct me *me)
{
	struct file *f = idle_file(me);
	struct dfs_err err;
	uint64_t to, was;
	char path[32];
	bool done = false;
	int rc;

	if (!f || f->striped || f->stretches == STRETCHES || !f->most || is_damaged(f))
		return;
	f->owner = me->k;
	was = f->most;
	to = pick(me, f->most + 1);
	f->flushed = to;
	f->synced = f->synced < to ? f->synced : to;
	f->closed_at = 0;
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
	f->may_vanish = f->may_reopen = false;
	change_lasts(me);
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
		f->may_vanish = false;
		change_lasts(me);
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
	if (ends(me, dfs_delete(fs, path, false, &err), &err)) {
		f->frozen = true;
	} else {
		f->state = NO_FILE;
		change_lasts(me);
	}
	f->owner = WORKERS;
}

/* ---- reading ---- */

static struct file *some_file(struct me *me)
{
	const uint32_t n = ledger->next_number;

	return &ledger->file[pick(me, n && n < FILES ? n : FILES)];
}

/* How much of it a reader must see. Of a file that is being written the end is not seen while its
 * pipeline is dead: a client that no node tells a length takes the last block for empty, as
 * Apache's does. */
static uint64_t must_see(const struct file *f, bool steady)
{
	const uint64_t last = f->striped ? DATA_UNITS * BLOCK : BLOCK, n = least(f);

	return !f->open || steady ? n : n > last ? n - last : 0;
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
	bool reopened, steady;
	int rc;

	if (f->state != IS_THERE || f->frozen || f->may_name)
		return;
	name_of(f->number, path);
	steady = is_steady(before.flushed_in);
	begins(me, f, "read");
	rc = ends(me, read_all(path, buf, sizeof(buf), &n, &err), &err);
	if (f->number != before.number || f->stretches != before.stretches || f->state != IS_THERE)
		return;
	ledger->checks++;
	reopened = before.may_reopen && !namenode_has_kept(&before);
	good = good_bytes(f, buf, n);
	if (good != n)
		wrong("byte %lu of /f/%u is not its own (%zu bytes read)", (unsigned long)good,
		      f->number, n);
	steady = steady && is_steady(before.flushed_in);
	ledger->steady_reads += steady && before.open && before.flushed;
	if (!rc && !reopened && n < must_see(&before, steady))
		wrong("a reader of /f/%u sees %zu bytes, %lu were flushed, %lu synced%s%s",
		      f->number, n, (unsigned long)before.flushed, (unsigned long)before.synced,
		      before.open ? ", it is open" : "",
		      steady ? ", and nothing happened since" : "");
}

/* ---- the life of a worker ---- */

static void step(struct me *me, struct handle *h, uint32_t handles)
{
	struct handle *one = &h[pick(me, handles)];

	if (!one->file) {
		switch (pick(me, 11)) {
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
		case 7:
			sync_early(me);
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

void work_all(uint32_t first, uint32_t threads, uint64_t seed)
{
	const uint32_t client = ++ledger->next_client;
	struct me me[WORKERS];

	for (uint32_t i = 0; i < threads; i++) {
		me[i] = (struct me){.k = first + i, .client = client, .random = seed + i};
		(void)pthread_create(&me[i].thread, NULL, work, &me[i]);
	}
	for (uint32_t i = 0; i < threads; i++)
		(void)pthread_join(me[i].thread, NULL);
}
