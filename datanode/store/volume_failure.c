/* SPDX-License-Identifier: Apache-2.0 */
/* A volume whose disk fails or hangs is taken out of service, and comes back when it answers again.
 * Is a data directory still there, and can its disk be written and read back? Each volume is looked
 * at by a thread of its own, twice a second and whenever somebody suspects it. One thread more,
 * which asks no disk, watches these: a volume whose thread does not come back in time is out of
 * service until it does. docs/design/005-store.md */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#define LOOK_NS (500 * NS_PER_MS)
/* nothing comes back for so long: it is probed, and new replicas go elsewhere */
#define SLOW_MS 1000
#define TICK_MAX_MS 250 /* of the watcher */
#define TICK_MIN_MS 5

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

static uint32_t pool_count(struct store *s)
{
	uint32_t n;

	pthread_mutex_lock(&s->lock);
	n = s->pool_count;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Its writer, also one that is not there yet, goes on elsewhere. */
static int stop_writer(void *arg, struct replica *r)
{
	(void)arg;
	if (r->write_state && r->write_state->stop)
		r->write_state->stop(r->write_state->stop_arg, -EIO);
	if (r->write_state)
		r->write_state->stop = NULL;
	return 0;
}

/* One that somebody uses goes when its user is done with it. */
static int drop_replica(void *arg, struct replica *r)
{
	struct slice *sl = arg;

	/* coming first: failed is cleared before it. */
	if (r->busy || (r->write_state && r->write_state->writer) || sl->vol->coming ||
	    !sl->vol->failed)
		return 0;
	replica_uncount(r);
	replica_remove_locked(sl->bp, r);
	return 0;
}

static void drop_replicas(struct volume *v)
{
	struct store *s = v->store;

	for (uint32_t p = 0; p < pool_count(s); p++) {
		struct slice *sl = &s->pools[p]->slices[v->idx];

		(void)slice_walk(sl, drop_replica, NULL, sl);
	}
}

void volume_out(struct volume *v, int rc)
{
	const char *why =
		v->silent ? "it does not answer; it comes back when it does" : reason_of(rc);
	struct store *s = v->store;

	if (atomic_exchange(&v->failed, true))
		return;
	atomic_fetch_add(&v->outs, 1);
	log_error("op=volume dir=%s storage=%s rc=%d: out of service: %s%s", v->path, v->uuid, rc,
		  why, v->silent ? "" : "; when that is mended, start this node again");
	metric_add(METRIC_DN_VOLUME_FAILURES, 1);
	for (uint32_t p = 0; p < pool_count(s); p++)
		(void)slice_walk(&s->pools[p]->slices[v->idx], stop_writer, NULL, NULL);
	drop_replicas(v);
	deferred_sync_give_up(v);
	pthread_rwlock_rdlock(&s->listener_lock);
	if (s->listener.on_volume_failed)
		s->listener.on_volume_failed(s->listener.arg, v->idx, v->path, why);
	pthread_rwlock_unlock(&s->listener_lock);
	pthread_mutex_lock(&v->check.lock);
	v->check.out = true;
	pthread_cond_broadcast(&v->check.done);
	pthread_mutex_unlock(&v->check.lock);
}

/* It did not answer, and now that it does, it is not well. A file system that has met an error of
 * its disk refuses changes until it is mounted anew, which cannot be while we have it open. */
static void tell_error(struct volume *v, int rc)
{
	if (v->check.told_error)
		return;
	v->check.told_error = true;
	log_error(
		"op=volume dir=%s storage=%s rc=%d: answers, but with an error: %s; it comes back if that ends; if "
		"its file system has failed (dmesg says so), stop this node, mount the disk anew, then start the "
		"node",
		v->path, v->uuid, rc, reason_of(rc));
}

/* ---- and back ---- */

static bool is_used(const struct slice *sl)
{
	bool used;

	pthread_mutex_lock(&sl->bp->lock);
	used = !list_empty(&sl->replicas);
	pthread_mutex_unlock(&sl->bp->lock);
	return used;
}

/* The pools that are not loaded yet, of which @from is the first. -EAGAIN: not now. */
static int load_again(struct volume *v, uint32_t *from, struct err *err)
{
	struct store *s = v->store;
	int rc = 0;

	for (; !rc && *from < pool_count(s); (*from)++) {
		struct slice *sl = &s->pools[*from]->slices[v->idx];

		if (is_used(sl))
			return -EAGAIN;
		if (sl->fd < 0) /* the pool came meanwhile */
			rc = volume_format(v, &sl->bp->ns, err) ?: slice_open(sl, err);
		atomic_store(&sl->used, 0);
		atomic_store(&sl->blocks, 0);
		if (!rc)
			rc = slice_load(sl, true, err);
	}
	return rc;
}

/* It answers. Who was in a call on its disk is let out first; then it is read as at a start. */
static void volume_back(struct volume *v)
{
	struct store *s = v->store;
	struct err err = ERR_INIT;
	uint32_t loaded = 0;
	int rc;

	for (uint32_t p = 0; p < pool_count(s); p++)
		if (is_used(&s->pools[p]->slices[v->idx]))
			return;
	atomic_store(&v->coming, true);
	rc = load_again(v, &loaded, &err);
	pthread_mutex_lock(&s->attach_lock); /* which nobody holds who asks this disk */
	while (!rc && loaded < pool_count(s)) {
		pthread_mutex_unlock(&s->attach_lock);
		rc = load_again(v, &loaded, &err);
		pthread_mutex_lock(&s->attach_lock);
	}
	if (!rc) {
		volume_learn_space(v);
		pthread_mutex_lock(&v->check.lock);
		v->check.out = false;
		pthread_mutex_unlock(&v->check.lock);
		atomic_store(&v->silent, false);
		atomic_store(&v->failed, false);
		pthread_mutex_lock(&s->lock);
		pthread_cond_signal(&v->doomed_cond); /* what it did not do meanwhile */
		pthread_mutex_unlock(&s->lock);
	}
	atomic_store(&v->coming, false);
	pthread_mutex_unlock(&s->attach_lock);
	if (rc == -EAGAIN)
		return;
	if (rc) {
		log_error("op=volume dir=%s: answers again, but stays out of service: %s", v->path,
			  err.text);
		atomic_store(&v->silent, false);
		return;
	}
	v->check.told_error = false;
	log_info("op=volume dir=%s storage=%s: answers again, back in service", v->path, v->uuid);
	metric_add(METRIC_DN_VOLUMES_BACK, 1);
	pthread_rwlock_rdlock(&s->listener_lock);
	if (s->listener.on_volume_back)
		s->listener.on_volume_back(s->listener.arg, v->path);
	pthread_rwlock_unlock(&s->listener_lock);
}

/* ---- one that did not answer when it was to be opened ---- */

static void open_late(struct volume *v)
{
	struct err err = ERR_INIT;
	int rc = v->opened ? 0 : volume_open(v, &err);

	if (!rc)
		rc = volume_admit(v, &err);
	if (!rc)
		return;
	log_error("op=volume dir=%s rc=%d: answers, but stays out of service: %s", v->path, rc,
		  err.text);
	atomic_store(&v->silent, false);
}

/* ---- the thread of a volume ---- */

/* Until somebody asks for a probe, or it is time for a look. */
static void wait_locked(struct check *c)
{
	const uint64_t at = clock_mono_ns() + LOOK_NS;
	const struct timespec until = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
	int rc = 0;

	while (!c->stop && !c->job.fn && c->asked == c->answered && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&c->wake, &c->lock, &until);
}

/* Calls on the disk, which may take as long as it likes. *ret_ns: how long. */
static int ask_disk(struct volume *v, bool probe, uint64_t *ret_ns)
{
	const uint64_t start = clock_mono_ns();
	int rc;

	atomic_store(&v->check.since_ns, start);
	open_replica_reap(&v->store->open_replicas, v->idx);
	rc = look(v);
	if (!rc && probe)
		rc = volume_probe(v);
	if (!rc)
		volume_learn_space(v);
	atomic_store(&v->check.since_ns, 0);
	*ret_ns = clock_mono_ns() - start;
	return rc;
}

/* Look at it, or probe it, and draw the conclusions. */
static void check_once(struct volume *v, bool probe, uint64_t *probed_ns)
{
	const uint64_t half_ns = v->store->answer_ms * NS_PER_MS / 2;
	uint64_t took = 0;
	int rc;

	probe |= v->silent || (half_ns && clock_mono_ns() - *probed_ns >= half_ns);
	rc = ask_disk(v, probe, &took);
	if (probe)
		*probed_ns = clock_mono_ns();
	if (v->failed && !rc && took < half_ns)
		volume_back(v);
	else if (v->failed && !is_harmless(rc))
		tell_error(v, rc);
	else if (!is_harmless(rc))
		volume_out(v, rc);
}

static void *check_main(void *arg)
{
	struct volume *v = (struct volume *)arg;
	struct check *c = &v->check;
	uint64_t probed_ns = clock_mono_ns();

	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		uint64_t asked;
		bool probe;

		wait_locked(c);
		if (volume_job_run(v))
			continue;
		asked = c->asked;
		probe = asked != c->answered;
		pthread_mutex_unlock(&c->lock);
		if (v->known && (!v->failed || v->silent))
			check_once(v, probe, &probed_ns);
		else if (v->silent)
			open_late(v);
		if (v->failed && !v->silent)
			open_replica_reap(&v->store->open_replicas, v->idx);
		pthread_mutex_lock(&c->lock);
		c->answered = asked;
		pthread_cond_broadcast(&c->done);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- the watcher ---- */

void volume_begin(struct volume *v)
{
	atomic_fetch_add_explicit(&v->check.calls, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&v->check.call_count, 1, memory_order_relaxed);
}

void volume_end(struct volume *v)
{
	atomic_fetch_add_explicit(&v->check.call_count, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&v->check.calls, 1, memory_order_relaxed);
}

void volume_synced(struct volume *v)
{
	atomic_fetch_add_explicit(&v->check.syncs, 1, memory_order_relaxed);
}

static void ask_for_probe(struct check *c)
{
	pthread_mutex_lock(&c->lock);
	if (c->asked == c->answered)
		c->asked++;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

/* @ms have passed since the last tick. Time that this thread itself did not run in is no volume's
 * fault: it is counted by ticks. */
static void watch(struct volume *v, uint64_t ms)
{
	struct check *c = &v->check;
	const uint64_t since = c->since_ns, limit = v->store->answer_ms / 2;
	const uint32_t count = c->call_count, syncs = c->syncs;
	const bool silent = since && since == c->seen_since_ns && syncs == c->seen_syncs;

	c->silent_ms = silent ? c->silent_ms + ms : 0;
	c->stalled_ms = c->calls && count == c->seen_calls ? c->stalled_ms + ms : 0;
	c->seen_since_ns = since;
	c->seen_calls = count;
	c->seen_syncs = syncs;
	atomic_store(&v->slow, c->silent_ms >= SLOW_MS || c->stalled_ms >= SLOW_MS);
	if (v->failed) {
		if (!v->coming)
			drop_replicas(v);
		return;
	}
	if (c->stalled_ms >= SLOW_MS && !since)
		ask_for_probe(c);
	if (limit && c->silent_ms >= limit) {
		atomic_store(&v->silent, true);
		volume_out(v, -ETIMEDOUT);
	}
}

void *store_watcher(void *arg)
{
	struct store *s = (struct store *)arg;
	uint64_t tick = s->answer_ms ? s->answer_ms / 16 : TICK_MAX_MS, last = clock_mono_ns();

	tick = tick > TICK_MAX_MS ? TICK_MAX_MS : tick < TICK_MIN_MS ? TICK_MIN_MS : tick;
	while (!store_wait_closing(s, tick)) {
		const uint64_t now = clock_mono_ns(), ms = (now - last) / NS_PER_MS;

		last = now;
		for (uint32_t i = 0; i < s->volume_count; i++)
			if (s->volumes[i].check.runs)
				watch(&s->volumes[i], ms < 2 * tick ? ms : 2 * tick);
		for (uint32_t p = 0; p < pool_count(s); p++)
			pool_tell_gone(s->pools[p]);
	}
	return NULL;
}

/* ---- begin and end ---- */

void check_init(struct volume *v)
{
	struct check *c = &v->check;

	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->wake);
	clock_cond_init(&c->done);
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

	if (!c->runs)
		return;
	pthread_mutex_lock(&c->lock);
	mine = ++c->asked;
	pthread_cond_signal(&c->wake);
	while (!c->stop && c->answered < mine && !(c->out && v->silent))
		(void)pthread_cond_wait(&c->done, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

void store_volume_suspect(struct store *s, const char *storage_uuid)
{
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].known && !strcmp(s->volumes[i].uuid, storage_uuid))
			volume_suspect(&s->volumes[i]);
}
