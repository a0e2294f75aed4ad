/* SPDX-License-Identifier: Apache-2.0 */
/* Is a data directory still there, and can its disk be written and read back? Each volume is looked
 * at by a thread of its own, twice a second and whenever somebody suspects it; only this thread takes
 * it out of service. docs/design/005-store.md */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#define LOOK_NS (500 * NS_PER_MS)

/* ---- what is found ---- */

/* Not the fault of the disk. */
static bool is_harmless(int rc)
{
	return rc == 0 || rc == -ENOSPC || rc == -EDQUOT || rc == -EMFILE || rc == -ENFILE ||
	       rc == -ENOMEM || rc == -EINTR;
}

static const char *reason_of(int rc)
{
	if (rc == -ENOENT || rc == -ENOTDIR)
		return "the directory is gone: it was removed, or its disk is not mounted any more";
	if (rc == -ESTALE)
		return "another directory is in its place: is its disk not mounted any more?";
	return err_name(rc);
}

/* The directories of the pools have names still. */
static int look_at_slices(const struct volume *v)
{
	struct store *s = v->store;
	struct stat st;
	uint32_t pools;

	pthread_mutex_lock(&s->lock);
	pools = s->pool_count;
	pthread_mutex_unlock(&s->lock);
	for (uint32_t p = 0; p < pools; p++) {
		const struct slice *sl = &s->pools[p]->slices[v->idx];

		if (sl->fd >= 0 && !fstat(sl->fd, &st) && !st.st_nlink)
			return -ENOENT;
	}
	return 0;
}

/* The path leads to the directory that was opened, with what belongs in it. */
static int look(const struct volume *v)
{
	struct stat st;

	if (stat(v->path, &st) || faccessat(v->dir_fd, "current", F_OK, 0)) {
		const int rc = neg_errno();

		return rc == -EACCES || rc == -EPERM || rc == -ELOOP ? 0 : rc;
	}
	if (st.st_dev != v->dev || st.st_ino != v->ino)
		return -ESTALE;
	return look_at_slices(v);
}

void volume_learn_space(struct volume *v)
{
	struct statvfs fs;
	uint64_t used, blocks;

	store_used(v->store, v->idx, &used, &blocks);
	if (fstatvfs(v->dir_fd, &fs))
		return;
	pthread_mutex_lock(&v->check.lock);
	v->check.fs = fs;
	v->check.fs_used = used;
	pthread_mutex_unlock(&v->check.lock);
}

/* ---- out of service ---- */

/* Those in use go when their users find out; a busy one is left to its user, which fails on the
 * disk. */
static void drop_replicas(struct block_pool *bp, const struct slice *sl)
{
	struct replica *r, *next;

	pthread_mutex_lock(&bp->lock);
	HASH_ITER(hh, bp->map, r, next) {
		if (r->slice != sl || r->busy || (r->live && r->live->writer))
			continue;
		replica_remove_locked(bp, r);
	}
	pthread_mutex_unlock(&bp->lock);
}

static void volume_out(struct volume *v, int rc)
{
	struct store *s = v->store;
	uint32_t pools;

	if (atomic_exchange(&v->failed, true))
		return;
	log_error("op=volume dir=%s storage=%s rc=%d: out of service: %s", v->path, v->uuid, rc,
		  reason_of(rc));
	metric_add(METRIC_DN_VOLUME_FAILURES, 1);
	pthread_mutex_lock(&s->lock);
	pools = s->pool_count;
	pthread_mutex_unlock(&s->lock);
	for (uint32_t p = 0; p < pools; p++)
		drop_replicas(s->pools[p], &s->pools[p]->slices[v->idx]);
	pthread_rwlock_rdlock(&s->listener_lock);
	if (s->listener.on_volume_failed)
		s->listener.on_volume_failed(s->listener.arg, v->path, reason_of(rc));
	pthread_rwlock_unlock(&s->listener_lock);
}

/* ---- the thread ---- */

/* True: somebody asks for a probe. False: it is time for a look. */
static bool wait_locked(struct check *c)
{
	const uint64_t at = clock_mono_ns() + LOOK_NS;
	const struct timespec until = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
	int rc = 0;

	while (!c->stop && c->asked == c->answered && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&c->wake, &c->lock, &until);
	return c->asked != c->answered;
}

static void *check_main(void *arg)
{
	struct volume *v = (struct volume *)arg;
	struct check *c = &v->check;

	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		const bool probe = wait_locked(c);
		const uint64_t asked = c->asked;
		int rc = 0;

		pthread_mutex_unlock(&c->lock);
		if (!v->failed) {
			rc = look(v);
			if (!rc && probe)
				rc = volume_probe(v);
			if (!is_harmless(rc))
				volume_out(v, rc);
			else
				volume_learn_space(v);
		}
		pthread_mutex_lock(&c->lock);
		c->answered = asked;
		pthread_cond_broadcast(&c->done);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void check_init(struct volume *v)
{
	struct check *c = &v->check;
	pthread_condattr_t a;

	(void)pthread_condattr_init(&a);
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->wake, &a);
	(void)pthread_cond_init(&c->done, &a);
	(void)pthread_condattr_destroy(&a);
}

int check_start(struct volume *v)
{
	const int rc = ret_code(pthread_create(&v->check.thread, NULL, check_main, v));

	v->check.runs = !rc;
	return rc;
}

void check_stop(struct volume *v)
{
	struct check *c = &v->check;

	if (!c->runs)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_broadcast(&c->wake);
	pthread_cond_broadcast(&c->done);
	pthread_mutex_unlock(&c->lock);
	(void)pthread_join(c->thread, NULL);
	c->runs = false;
}

void volume_suspect(struct volume *v)
{
	struct check *c = &v->check;
	uint64_t mine;

	if (!c->runs || v->failed)
		return;
	pthread_mutex_lock(&c->lock);
	mine = ++c->asked;
	pthread_cond_signal(&c->wake);
	while (!c->stop && c->answered < mine && !v->failed)
		(void)pthread_cond_wait(&c->done, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

void store_volume_suspect(struct store *s, const char *storage_uuid)
{
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (!strcmp(s->volumes[i].uuid, storage_uuid))
			volume_suspect(&s->volumes[i]);
}
