/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

uint32_t store_failed_count(const struct store *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->volume_count; i++)
		n += s->volumes[i].failed;
	return n;
}

/* A volume that cannot be used at start: 0 when the configuration tolerates that. */
static int tolerate(struct volume *v, int rc, const struct err *err)
{
	struct store *s = v->store;
	const bool counted = atomic_exchange(&v->failed, true);

	if (store_failed_count(s) > s->failed_tolerated)
		return rc;
	if (counted)
		return 0;
	log_error("op=volume dir=%s rc=%d: out of service: %s", v->path, rc, err ? err->text : "");
	metric_add(METRIC_DN_VOLUME_FAILURES, 1);
	return 0;
}

/* ---- open and close ---- */

bool store_wait_closing(struct store *s, uint64_t ms)
{
	uint64_t until = clock_mono_ns() + ms * NS_PER_MS;
	struct timespec ts = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
	bool closing;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	while (ms && !s->closing && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&s->closing_cond, &s->lock, &ts);
	closing = s->closing;
	pthread_mutex_unlock(&s->lock);
	return closing;
}

static int init_shared(struct store *s, uint32_t open_replicas)
{
	int rc = ret_code(pthread_mutex_init(&s->lock, NULL));

	if (!rc)
		rc = ret_code(pthread_mutex_init(&s->attach_lock, NULL));
	if (!rc)
		rc = ret_code(pthread_rwlock_init(&s->listener_lock, NULL));
	clock_cond_init(&s->closing_cond);
	clock_cond_init(&s->job_cond);
	if (!rc)
		rc = open_replica_init(&s->open_replicas, open_replicas);
	deferred_sync_epoch_init(s);
	return rc;
}

/* @v is of this data node and no copy of one of the known ones. */
static int fits_others(const struct volume *v, struct err *err)
{
	const struct store *s = v->store;

	if (v->fresh)
		return 0;
	if (s->dn_uuid[0] && strcmp(s->dn_uuid, v->dn_uuid))
		return err_set(err, -EINVAL,
			       "data directory %s is of data node %s, the others of %s; "
			       "directories of two nodes are mixed in dfs.datanode.data.dir",
			       v->path, v->dn_uuid, s->dn_uuid);
	for (uint32_t k = 0; k < s->volume_count; k++)
		if (&s->volumes[k] != v && s->volumes[k].known &&
		    !strcmp(s->volumes[k].uuid, v->uuid))
			return err_set(
				err, -EINVAL,
				"data directories %s and %s have the same storageID %s: one is a "
				"copy of the other; remove the copy from dfs.datanode.data.dir",
				s->volumes[k].path, v->path, v->uuid);
	return 0;
}

/* No volume that answers has an identity. One that does not may: it would be refused when it
 * answers. */
static int make_uuid(struct store *s, struct err *err)
{
	for (uint32_t i = 0; i < s->volume_count; i++) {
		const struct volume *v = &s->volumes[i];

		if (!v->silent)
			continue;
		err_set(err, -ETIMEDOUT,
			"data directory %s does not answer, and the others are new: it may hold the identity of "
			"this data node",
			v->path);
		return err_cure(err, "repair its disk; if it has never been used, take it out of "
				     "dfs.datanode.data.dir");
	}
	store_make_uuid(s->dn_uuid, "");
	return 0;
}

/* All volumes speak of one data node, or none does yet. */
static int agree_on_uuid(struct store *s, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < s->volume_count; i++) {
		struct volume *v = &s->volumes[i];

		if (v->failed)
			continue;
		rc = fits_others(v, err);
		if (!rc && !v->fresh)
			(void)snprintf(s->dn_uuid, sizeof(s->dn_uuid), "%s", v->dn_uuid);
		v->known = !rc;
	}
	return rc ?: s->dn_uuid[0] ? 0 : make_uuid(s, err);
}

static int start_thread(pthread_t *ret, bool *ret_runs, void *(*fn)(void *), void *arg)
{
	const int rc = ret_code(pthread_create(ret, NULL, fn, arg));

	*ret_runs = !rc;
	return rc;
}

static int start_volume(struct volume *v)
{
	const struct store_scan_opts *o = &v->store->scan;
	int rc = start_thread(&v->deleter, &v->deleter_runs, volume_deleter, v);

	if (!rc)
		rc = deferred_sync_start(v);
	if (!rc && o->directory_ms)
		rc = start_thread(&v->dirscanner, &v->dirscanner_runs, volume_directory_scanner, v);
	if (!rc && v->store->index_ms && !v->remote)
		rc = start_thread(&v->indexer, &v->indexer_runs, volume_indexer, v);
	if (!rc && o->block_ms && o->block_rate)
		rc = start_thread(&v->scanner, &v->scanner_runs, volume_scanner, v);
	return rc;
}

int volume_admit(struct volume *v, struct err *err)
{
	struct store *s = v->store;
	int rc;

	pthread_mutex_lock(&s->attach_lock);
	rc = fits_others(v, err);
	for (uint32_t p = 0; !rc && p < s->pool_count; p++)
		rc = volume_check(v, &s->pools[p]->ns, err);
	if (!rc)
		rc = start_volume(v);
	v->known = !rc;
	pthread_mutex_unlock(&s->attach_lock);
	return rc;
}

static int start_threads(struct store *s)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < s->volume_count; i++)
		if (!s->volumes[i].failed && s->volumes[i].known)
			rc = start_volume(&s->volumes[i]);
	if (!rc)
		rc = start_thread(&s->watcher, &s->watcher_runs, store_watcher, s);
	return rc;
}

static void join(pthread_t t, bool *runs)
{
	if (*runs)
		pthread_join(t, NULL);
	*runs = false;
}

static void stop_threads(struct store *s)
{
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	for (uint32_t i = 0; i < s->volume_count; i++)
		pthread_cond_signal(&s->volumes[i].doomed_cond);
	pthread_cond_broadcast(&s->closing_cond);
	pthread_mutex_unlock(&s->lock);
	join(s->watcher, &s->watcher_runs);
	for (uint32_t i = 0; i < s->volume_count; i++) {
		struct volume *v = &s->volumes[i];

		check_stop(v); /* which may start the others */
		join(v->deleter, &v->deleter_runs);
		join(v->dirscanner, &v->dirscanner_runs);
		join(v->scanner, &v->scanner_runs);
		join(v->indexer, &v->indexer_runs);
		deferred_sync_stop(v);
	}
	deferred_sync_note_end(s);
}

/* What came of volumes_do(): too many failures are one of all. */
static int job_results(struct store *s, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < s->volume_count; i++) {
		struct volume *v = &s->volumes[i];
		const struct volume_job *j = &v->check.job;

		if (!j->rc)
			continue;
		rc = tolerate(v, j->rc, &j->err);
		if (rc && err)
			*err = j->err;
	}
	return rc;
}

static int open_job(struct volume *v, void *arg, struct err *err)
{
	(void)arg;
	return volume_open(v, err);
}

static int open_volumes(struct store *s, const struct store_opts *o, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < o->volume_count; i++) {
		rc = volume_init(s, i, &o->volumes[i]);
		s->volume_count = i + 1;
		if (!rc)
			rc = check_start(&s->volumes[i]);
	}
	if (rc)
		return err_sys(err, rc, "opening the data directories");
	volumes_do(s, known_volumes_read, NULL);
	rc = job_results(s, err);
	if (!rc)
		volumes_do(s, open_job, NULL);
	return rc ?: job_results(s, err);
}

int store_open(const struct store_opts *o, struct store **ret, struct err *err)
{
	struct store *s;
	int rc;

	if (!o->volume_count || o->volume_count > STORE_VOLUMES_MAX)
		return err_set(err, -EINVAL,
			       "dfs.datanode.data.dir names %u directories; 1 to %d are possible",
			       o->volume_count, STORE_VOLUMES_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_sys(err, -ENOMEM, "store");
	s->failed_tolerated = o->failed_tolerated;
	s->available_space = o->available_space;
	s->pinning = o->pinning;
	s->keep_duplicates = o->keep_duplicates;
	s->scan = o->scan;
	s->answer_ms = o->answer_ms;
	s->index_ms = o->index_ms;
	s->dir_mode = o->dir_mode;
	rc = init_shared(s, o->open_replicas);
	/* one that answers late is admitted after the others */
	pthread_mutex_lock(&s->attach_lock);
	if (!rc)
		rc = open_volumes(s, o, err);
	if (!rc && store_failed_count(s) == s->volume_count)
		rc = err_set(err, -EIO, "no data directory can be used");
	if (!rc)
		rc = agree_on_uuid(s, err);
	if (!rc)
		rc = start_threads(s);
	pthread_mutex_unlock(&s->attach_lock);
	if (rc && store_is_stuck(s)) {
		store_abandon(s);
		return rc;
	}
	if (rc) {
		store_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

static void replica_free(struct replica *r)
{
	free(r->write_state);
	free(r);
}

static void pool_free(struct block_pool *bp)
{
	struct list *l;

	if (!bp)
		return;
	replica_map_drain(&bp->map, replica_free);
	while ((l = list_pop(&bp->gone)))
		replica_free(container_of(l, struct replica, in_slice));
	for (uint32_t i = 0; i < STORE_VOLUMES_MAX; i++) {
		replica_index_close(bp->slices[i].index);
		if (bp->slices[i].fd >= 0)
			(void)close(bp->slices[i].fd);
	}
	pthread_cond_destroy(&bp->changed);
	pthread_mutex_destroy(&bp->lock);
	free(bp);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	stop_threads(s);
	open_replica_fini(&s->open_replicas);
	for (uint32_t i = 0; i < s->pool_count; i++)
		pool_free(s->pools[i]);
	for (uint32_t i = 0; i < s->volume_count; i++)
		volume_close(&s->volumes[i]);
	known_volumes_fini(&s->known);
	pthread_cond_destroy(&s->job_cond);
	pthread_cond_destroy(&s->closing_cond);
	pthread_rwlock_destroy(&s->listener_lock);
	pthread_mutex_destroy(&s->attach_lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool store_is_stuck(const struct store *s)
{
	for (uint32_t i = 0; s && i < s->volume_count; i++)
		if (s->volumes[i].silent || s->volumes[i].slow)
			return true;
	return false;
}

bool store_volume_answers(const struct store *s, uint32_t volume)
{
	return !s->volumes[volume].failed && !s->volumes[volume].slow;
}

void store_abandon(struct store *s)
{
	for (uint32_t i = 0; i < s->volume_count; i++) {
		struct volume *v = &s->volumes[i];

		if (v->failed || v->slow)
			continue;
		deferred_sync_stop(v);
		(void)unlinkat(v->dir_fd, "in_use.lock", 0);
	}
}

const char *store_datanode_uuid(const struct store *s)
{
	return s->dn_uuid;
}

void store_set_listener(struct store *s, const struct store_listener *l)
{
	pthread_rwlock_wrlock(&s->listener_lock);
	s->listener = l ? *l : (struct store_listener){0};
	pthread_rwlock_unlock(&s->listener_lock);
}

/* ---- attach ---- */

static struct block_pool *pool_new(struct store *s, const struct store_namespace *ns)
{
	struct block_pool *bp = calloc(1, sizeof(*bp));

	if (!bp)
		return NULL;
	bp->store = s;
	bp->ns = *ns;
	for (uint32_t i = 0; i < STORE_VOLUMES_MAX; i++) {
		bp->slices[i].fd = -1;
		bp->slices[i].bp = bp;
		bp->slices[i].vol = &s->volumes[i];
		list_init(&bp->slices[i].replicas);
		list_init(&bp->slices[i].walks);
	}
	list_init(&bp->gone);
	pthread_mutex_init(&bp->lock, NULL);
	clock_cond_init(&bp->changed);
	return bp;
}

/* Every volume in its own thread: disks are slow one by one. */
static int open_slice_job(struct volume *v, void *arg, struct err *err)
{
	struct block_pool *bp = arg;
	struct slice *sl = &bp->slices[v->idx];
	const int rc = volume_format(v, &bp->ns, err) ?: slice_open(sl, err);

	if (rc && sl->fd >= 0) {
		(void)close(sl->fd);
		sl->fd = -1;
	}
	return rc;
}

static int load_job(struct volume *v, void *arg, struct err *err)
{
	struct block_pool *bp = arg;

	return slice_load(&bp->slices[v->idx], false, err);
}

/* As job_results(), of a store that may be at work for other pools. */
static int attach_results(struct store *s, struct err *err)
{
	volumes_out_that_hang(s);
	for (uint32_t i = 0; i < s->volume_count; i++) {
		const struct volume_job *j = &s->volumes[i].check.job;

		/* another namespace's directory is a mistake, not a failure */
		if (j->rc == -EINVAL) {
			*err = j->err;
			return j->rc;
		}
	}
	return job_results(s, err);
}

static int check_volumes(struct store *s, const struct store_namespace *ns, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < s->volume_count; i++)
		if (!s->volumes[i].failed)
			rc = volume_check(&s->volumes[i], ns, err);
	return rc;
}

static int attach_new(struct store *s, const struct store_namespace *ns, struct block_pool **ret,
		      struct err *err)
{
	struct err why = ERR_INIT;
	struct block_pool *bp;
	int rc = check_volumes(s, ns, err);

	if (rc)
		return rc;
	bp = pool_new(s, ns);
	if (!bp)
		return err_sys(err, -ENOMEM, "pool %s", ns->pool_id);
	volumes_do(s, open_slice_job, bp);
	rc = attach_results(s, &why);
	if (!rc)
		volumes_do(s, load_job, bp);
	rc = rc ?: attach_results(s, &why);
	if (rc) {
		if (err)
			*err = why;
		if (!volumes_are_busy(s)) /* else a disk that does not answer has it still */
			pool_free(bp);
		return rc;
	}
	known_volumes_write(s);
	*ret = bp;
	return 0;
}

static bool valid_pool_id(const char *id)
{
	if (strncmp(id, "BP-", 3))
		return false;
	for (; *id; id++)
		if (*id == '/' || *id <= ' ' || *id == 0x7f)
			return false;
	return true;
}

struct block_pool *store_pool(struct store *s, const char *pool_id_text)
{
	struct block_pool *bp = NULL;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->pool_count; i++)
		if (!strcmp(s->pools[i]->ns.pool_id, pool_id_text))
			bp = s->pools[i];
	pthread_mutex_unlock(&s->lock);
	return bp;
}

int store_attach(struct store *s, const struct store_namespace *ns, struct block_pool **ret,
		 struct err *err)
{
	struct block_pool *bp = NULL;
	int rc = 0;

	if (!valid_pool_id(ns->pool_id) || !ns->cluster_id[0])
		return err_set(err, -EINVAL,
			       "the NameNode's block pool id or cluster id is malformed");
	pthread_mutex_lock(&s->attach_lock);
	bp = store_pool(s, ns->pool_id);
	if (bp) {
		if (bp->ns.namespace_id != ns->namespace_id || bp->ns.ctime != ns->ctime ||
		    strcmp(bp->ns.cluster_id, ns->cluster_id))
			rc = err_set(err, -EINVAL,
				     "the NameNode of pool %s changed its cluster, namespace or "
				     "cTime; restart this data node",
				     ns->pool_id);
	} else if (s->pool_count == STORE_POOLS_MAX) {
		rc = err_set(err, -ENOSPC, "more than %d block pools", STORE_POOLS_MAX);
	} else {
		rc = attach_new(s, ns, &bp, err);
		pthread_mutex_lock(&s->lock);
		if (!rc)
			s->pools[s->pool_count++] = bp;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->attach_lock);
	if (!rc)
		*ret = bp;
	return rc;
}

const char *pool_id(const struct block_pool *bp)
{
	return bp->ns.pool_id;
}

struct store *pool_store(const struct block_pool *bp)
{
	return bp->store;
}

/* ---- reports ---- */

uint32_t store_volume_count(const struct store *s)
{
	return s->volume_count;
}

void store_used(struct store *s, uint32_t i, uint64_t *ret_bytes, uint64_t *ret_blocks)
{
	*ret_bytes = *ret_blocks = 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t p = 0; p < s->pool_count; p++) {
		*ret_bytes += s->pools[p]->slices[i].used;
		*ret_blocks += s->pools[p]->slices[i].blocks;
	}
	pthread_mutex_unlock(&s->lock);
}

void store_volume_info(struct store *s, uint32_t i, struct block_pool *bp, struct storage_info *ret)
{
	struct volume *v = &s->volumes[i];
	struct space sp;

	*ret = (struct storage_info){.type = v->type, .failed = v->failed};
	(void)snprintf(ret->uuid, sizeof(ret->uuid), "%s", v->known ? v->uuid : "");
	(void)snprintf(ret->path, sizeof(ret->path), "%s", v->path);
	if (ret->failed || v->dir_fd < 0)
		return;
	volume_space(v, &sp);
	ret->used = sp.used;
	ret->blocks = sp.blocks;
	ret->reserved = v->reserved;
	ret->promised = v->promised;
	if (bp)
		ret->pool_used = bp->slices[i].used;
	ret->capacity = sp.capacity;
	ret->remaining = sp.room;
	ret->non_dfs_used = sp.non_dfs;
}

struct each { /* on the way through a volume */
	struct replica_info info;
	int (*fn)(void *arg, const struct replica_info *);
	void *arg;
	size_t n;
	struct brief {
		struct block b;
		enum replica_state state;
		uint64_t visible;
		bool corrupt;
	} list[WALK_BATCH]; /* seen and not yet told */
};

static int each_see(void *arg, struct replica *r)
{
	struct each *e = arg;
	struct brief *b = &e->list[e->n];

	/* A NameNode started anew counts on what is reported, and may have others deleted. */
	if (r->deleting || r->ordered)
		return 0;
	replica_brief_locked(r, &b->b, &b->state, &b->visible);
	if (b->state == REPLICA_RUR)
		b->state = r->write_state->orig_state;
	b->corrupt = r->corrupt;
	e->n += b->state != REPLICA_TEMPORARY;
	return 0;
}

static int each_tell(void *arg)
{
	struct each *e = arg;
	int rc = 0;

	for (size_t k = 0; !rc && k < e->n; k++) {
		e->info.block = e->list[k].b;
		e->info.state = e->list[k].state;
		e->info.visible = e->list[k].visible;
		e->info.corrupt = e->list[k].corrupt;
		rc = e->fn(e->arg, &e->info);
	}
	e->n = 0;
	return rc;
}

int store_each(struct block_pool *bp, uint32_t i, int (*fn)(void *arg, const struct replica_info *),
	       void *arg)
{
	struct each *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return -ENOMEM;
	e->fn = fn;
	e->arg = arg;
	(void)snprintf(e->info.storage_uuid, sizeof(e->info.storage_uuid), "%s",
		       bp->store->volumes[i].uuid);
	rc = slice_walk(&bp->slices[i], each_see, each_tell, e);
	free(e);
	return rc;
}
