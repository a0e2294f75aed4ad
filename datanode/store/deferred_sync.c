/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are finished and not yet on the disk: synced together, a moment later.
 * docs/design/005-store.md */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/store/properties.h"

#define DEFERRED_NS (100 * NS_PER_MS) /* so long a finished block may wait */
#define DEFERRED_BATCH 128            /* of which it is not waited for more */
#define DEFERRED_MAX 512              /* each holds three open files */

/* ---- the epoch: what a writer was told, and asks with ---- */

/* From its end: failures, 16 bits; this process, 32; this boot of the machine, 16. */
#define FAILURES_MASK 0xffffu
#define BOOT_SHIFT 48
/* in a directory: all that the process of this epoch has finished was synced at its end */
#define LAST_NAME "deferred_sync"
#define LAST_KEY "synced"

void deferred_sync_epoch_init(struct store *s)
{
	uint8_t boot[16];
	uint64_t id = 0;

	boot_id_read(boot); /* unknown: of no process before, for sure */
	/* at start-up with the pool seeded this cannot fail or block */
	(void)!getrandom(&id, sizeof(id), 0);
	if (boot[0] | boot[1])
		id = id << 16 >> 16 | (uint64_t)boot[0] << 56 | (uint64_t)boot[1] << BOOT_SHIFT;
	s->deferred_sync_epoch = (id | (FAILURES_MASK + 1)) & ~(uint64_t)FAILURES_MASK;
}

uint64_t store_deferred_sync_epoch(const struct store *s)
{
	return s->deferred_sync_epoch;
}

static void epoch_fails(struct store *s)
{
	uint64_t now = s->deferred_sync_epoch;

	while ((now & FAILURES_MASK) != FAILURES_MASK &&
	       !atomic_compare_exchange_weak(&s->deferred_sync_epoch, &now, now + 1))
		;
}

static bool has_promised(const struct store *s)
{
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].deferred_sync.added)
			return true;
	return false;
}

void deferred_sync_note_end(struct store *s)
{
	const uint64_t epoch = s->deferred_sync_epoch;
	char text[20];

	if (!has_promised(s) || store_failed_count(s) || epoch & FAILURES_MASK)
		return;
	(void)snprintf(text, sizeof(text), "%016" PRIx64, epoch);
	for (uint32_t i = 0; i < s->volume_count; i++) /* one is enough */
		(void)props_write(s->volumes[i].dir_fd, LAST_NAME, &(struct prop){LAST_KEY, text},
				  1);
}

static bool ended_well(const struct store *s, uint64_t epoch)
{
	bool found = false;

	for (uint32_t i = 0; i < s->volume_count && !found; i++) {
		struct props p;

		if (props_read(s->volumes[i].dir_fd, LAST_NAME, &p))
			continue;
		found = strtoull(props_get(&p, LAST_KEY) ?: "", NULL, 16) == epoch;
		props_fini(&p);
	}
	return found;
}

/* Its blocks are in memory, at least; not those of a boot that ended before they were synced. */
static bool may_still_sync(const struct store *s, uint64_t epoch)
{
	if (store_failed_count(s))
		return false;
	return (epoch ^ s->deferred_sync_epoch) >> BOOT_SHIFT == 0 || ended_well(s, epoch);
}

/* ---- a batch ---- */

/* Begun for all before the first is waited for. */
static void begin_out(const struct replica_writer *w)
{
	(void)sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	(void)sync_file_range(w->fd_meta, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/* An append has taken it back to rbw/ meanwhile, or it is where it was finished. */
static int sync_names_of(const struct replica_writer *w)
{
	char data[STORE_NAME_MAX];

	path_data(data, IN_FINALIZED, w->block.id);
	if (faccessat(w->slice->fd, data, F_OK, 0) != 0)
		return path_sync(w->slice->fd, "rbw");
	return path_sync_dir(w->slice->fd, IN_FINALIZED, w->block.id);
}

static bool same_dir(const struct replica_writer *a, const struct replica_writer *b)
{
	return a->slice == b->slice && (a->block.id ^ b->block.id) >> 8 == 0;
}

/* Each file, and each directory when its last block of a row is met. */
static int sync_one_by_one(const struct replica_writer *w, const struct replica_writer *next)
{
	struct stat st;

	if (fstat(w->fd, &st) == 0 && st.st_nlink == 0)
		return 0; /* deleted */
	if (fdatasync(w->fd) || fdatasync(w->fd_meta))
		return neg_errno();
	return next && same_dir(w, next) ? 0 : sync_names_of(w);
}

/* All bytes are in their places: a change that is made now, and committed, commits all that were
 * made before. */
static int commit_all(const struct volume *v)
{
	return futimens(v->dir_fd, NULL) || fsync(v->dir_fd) ? neg_errno() : 0;
}

/* What is read of it may be in memory alone: it counts as damaged. */
static void failed(const struct volume *v, const struct replica_writer *w, int rc)
{
	const struct block b = w->block;
	struct replica_info info;

	epoch_fails(v->store);
	log_warn("op=deferred-sync block=%" PRId64 "_%" PRIu64
		 " dir=%s rc=%d error=\"%s\": the finished block could not be synced to the disk",
		 b.id, b.gs, v->path, rc, err_name(rc));
	if (replica_get(w->bp, b.id, &info) == 0 && info.block.gs == b.gs)
		replica_report_bad(w->bp, &info, "it could not be synced");
	(void)slice_error(w->slice, rc);
}

static struct replica_writer *writer_at(struct list *l)
{
	return container_of(l, struct replica_writer, deferred_link);
}

static void sync_batch(struct volume *v, struct list *batch)
{
	int rc = v->ordered ? 0 : -EOPNOTSUPP; /* of what is done for all at once */

	list_for_each (l, batch)
		begin_out(writer_at(l));
	list_for_each (l, batch) {
		struct replica_writer *w = writer_at(l);

		w->deferred_sync_rc =
			v->ordered ? file_write_out(w->fd_meta) ?: file_write_out(w->fd) : 0;
	}
	if (!rc)
		rc = commit_all(v);
	list_for_each (l, batch) {
		struct replica_writer *w = writer_at(l);

		if (!w->deferred_sync_rc && rc)
			w->deferred_sync_rc =
				sync_one_by_one(w, l->next == batch ? NULL : writer_at(l->next));
		if (w->deferred_sync_rc)
			failed(v, w, w->deferred_sync_rc);
		else
			volume_synced(v);
	}
}

/* ---- the thread ---- */

static bool must_wait(const struct deferred_sync *l)
{
	return !l->stop && l->hurry_to <= l->taken && !l->everything &&
	       (!l->count || (l->count < DEFERRED_BATCH && clock_mono_ns() < l->due_ns));
}

static void wait_locked(struct deferred_sync *l)
{
	const struct timespec until = {(time_t)(l->due_ns / NS_PER_S),
				       (long)(l->due_ns % NS_PER_S)};

	if (l->count)
		(void)pthread_cond_timedwait(&l->wake, &l->lock, &until);
	else
		(void)pthread_cond_wait(&l->wake, &l->lock);
}

/* What an earlier process of this node has finished, too. */
static bool sync_everything(const struct volume *v)
{
	const int rc = ret_errno(syncfs(v->dir_fd));

	if (rc)
		log_warn(
			"op=deferred-sync dir=%s rc=%d error=\"%s\": blocks finished before this start could not be synced",
			v->path, rc, err_name(rc));
	return rc == 0;
}

static void *deferred_sync_main(void *arg)
{
	struct volume *v = arg;
	struct deferred_sync *l = &v->deferred_sync;
	struct list batch;
	struct list *first;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		uint64_t taken;
		bool asked, ok;

		while (must_wait(l))
			wait_locked(l);
		if (l->stop && !l->count && !l->everything)
			break;
		list_init(&batch);
		while ((first = list_pop(&l->blocks)))
			list_add_tail(&batch, first);
		taken = l->taken = l->added;
		asked = l->everything;
		l->count = 0;
		pthread_mutex_unlock(&l->lock);
		sync_batch(v, &batch);
		ok = asked && sync_everything(v);
		while ((first = list_pop(&batch)))
			writer_free(writer_at(first));
		pthread_mutex_lock(&l->lock);
		l->synced = taken;
		if (asked) {
			l->everything = false;
			l->all_old = ok;
			l->rounds++;
		}
		pthread_cond_broadcast(&l->done);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

int deferred_sync_start(struct volume *v)
{
	struct deferred_sync *l = &v->deferred_sync;
	int rc;

	list_init(&l->blocks);
	pthread_mutex_init(&l->lock, NULL);
	clock_cond_init(&l->wake);
	clock_cond_init(&l->done);
	rc = ret_code(pthread_create(&l->thread, NULL, deferred_sync_main, v));
	l->runs = rc == 0;
	return rc;
}

void deferred_sync_stop(struct volume *v)
{
	struct deferred_sync *l = &v->deferred_sync;

	if (!l->runs)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	(void)pthread_join(l->thread, NULL);
	l->runs = false;
	pthread_cond_destroy(&l->done);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
}

/* ---- for writers, and those who ask ---- */

bool deferred_sync_may(const struct volume *v)
{
	return v->deferred_sync.runs && v->deferred_sync.count < DEFERRED_MAX;
}

void deferred_sync_add(struct replica_writer *w)
{
	struct deferred_sync *l = &w->slice->vol->deferred_sync;
	bool first, many;

	pthread_mutex_lock(&l->lock);
	list_add_tail(&l->blocks, &w->deferred_link);
	l->added++;
	first = l->count++ == 0;
	many = l->count == DEFERRED_BATCH;
	if (first)
		l->due_ns = clock_mono_ns() + DEFERRED_NS;
	if (first || many)
		pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

struct deferred_sync_wait {
	uint64_t want, rounds;
};

static struct deferred_sync_wait hurry(struct deferred_sync *l, bool everything)
{
	struct deferred_sync_wait w = {0};

	pthread_mutex_lock(&l->lock);
	w.want = l->hurry_to = l->added;
	if (everything && !l->all_old) {
		w.rounds = l->rounds + 1;
		l->everything = true;
	}
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	return w;
}

static int wait_done(struct volume *v, const struct deferred_sync_wait *w)
{
	struct deferred_sync *l = &v->deferred_sync;
	bool done;
	int rc;

	pthread_mutex_lock(&l->lock);
	while (!(done = l->synced >= w->want && l->rounds >= w->rounds) && !v->failed)
		(void)pthread_cond_wait(&l->done, &l->lock);
	rc = !done || (w->rounds && !l->all_old) ? -EIO : 0;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

void deferred_sync_give_up(struct volume *v)
{
	struct deferred_sync *l = &v->deferred_sync;

	if (!l->runs)
		return;
	pthread_mutex_lock(&l->lock);
	if (l->synced < l->added)
		epoch_fails(v->store);
	pthread_cond_broadcast(&l->done);
	pthread_mutex_unlock(&l->lock);
}

int store_sync_deferred(struct store *s, uint64_t epoch)
{
	/* it was this node's, before it was started again */
	const bool before = (epoch ^ s->deferred_sync_epoch) > FAILURES_MASK;
	/* of a volume that is opened meanwhile there is nothing to wait for */
	struct deferred_sync_wait waits[STORE_VOLUMES_MAX] = {{0}};
	int rc = 0;

	if (before ? !may_still_sync(s, epoch) : epoch != s->deferred_sync_epoch)
		return -EIO;
	/* all begin before the first is waited for */
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].deferred_sync.runs)
			waits[i] = hurry(&s->volumes[i].deferred_sync, before);
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].deferred_sync.runs)
			rc = wait_done(&s->volumes[i], &waits[i]) ?: rc;
	return rc ?: !before && epoch != s->deferred_sync_epoch ? -EIO : 0;
}
