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

	v->failed = true;
	if (store_failed_count(s) > s->failed_tolerated)
		return rc;
	log_error("op=volume dir=%s rc=%d: out of service: %s", v->path, rc, err ? err->text : "");
	metric_add(METRIC_DN_VOLUME_FAILURES, 1);
	return 0;
}

/* ---- open and close ---- */

static int init_monotonic(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	int rc = ret_code(pthread_condattr_init(&attr));

	if (rc)
		return rc;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = ret_code(pthread_cond_init(c, &attr));
	pthread_condattr_destroy(&attr);
	return rc;
}

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
	if (!rc)
		rc = ret_code(pthread_cond_init(&s->doomed_cond, NULL));
	if (!rc)
		rc = init_monotonic(&s->closing_cond);
	if (!rc)
		rc = kept_init(&s->kept, open_replicas);
	list_init(&s->doomed);
	late_epoch_init(s);
	return rc;
}

/* All volumes speak of one data node, or none does yet. */
static int agree_on_uuid(struct store *s, struct err *err)
{
	for (uint32_t i = 0; i < s->volume_count; i++) {
		const struct volume *v = &s->volumes[i];

		if (v->failed || v->fresh)
			continue;
		if (s->dn_uuid[0] && strcmp(s->dn_uuid, v->dn_uuid))
			return err_set(err, -EINVAL,
				       "data directory %s is of data node %s, the others of %s; "
				       "directories of two nodes are mixed in dfs.datanode.data.dir",
				       v->path, v->dn_uuid, s->dn_uuid);
		(void)snprintf(s->dn_uuid, sizeof(s->dn_uuid), "%s", v->dn_uuid);
		for (uint32_t k = 0; k < i; k++)
			if (!s->volumes[k].failed && !strcmp(s->volumes[k].uuid, v->uuid))
				return err_set(err, -EINVAL,
					       "data directories %s and %s have the same storageID %s: one is a "
					       "copy of the other; remove the copy from dfs.datanode.data.dir",
					       s->volumes[k].path, v->path, v->uuid);
	}
	return 0;
}

static int start_threads(struct store *s)
{
	int rc = ret_code(pthread_create(&s->deleter, NULL, store_deleter, s));

	s->deleter_runs = !rc;
	if (!rc && s->scan.directory_ms) {
		rc = ret_code(pthread_create(&s->dirscanner, NULL, store_directory_scanner, s));
		s->dirscanner_runs = !rc;
	}
	for (uint32_t i = 0; !rc && i < s->volume_count; i++)
		if (!s->volumes[i].failed)
			rc = late_start(&s->volumes[i]) ?: check_start(&s->volumes[i]);
	for (uint32_t i = 0; !rc && i < s->volume_count; i++) {
		struct volume *v = &s->volumes[i];

		if (v->failed || !s->scan.block_ms || !s->scan.block_rate)
			continue;
		rc = ret_code(pthread_create(&v->scanner, NULL, volume_scanner, v));
		v->scanner_runs = !rc;
	}
	return rc;
}

static void stop_threads(struct store *s)
{
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_signal(&s->doomed_cond);
	pthread_cond_broadcast(&s->closing_cond);
	pthread_mutex_unlock(&s->lock);
	if (s->deleter_runs)
		pthread_join(s->deleter, NULL);
	if (s->dirscanner_runs)
		pthread_join(s->dirscanner, NULL);
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].scanner_runs)
			pthread_join(s->volumes[i].scanner, NULL);
	for (uint32_t i = 0; i < s->volume_count; i++) {
		late_stop(&s->volumes[i]);
		check_stop(&s->volumes[i]);
	}
}

static int open_volumes(struct store *s, const struct store_opts *o, struct err *err)
{
	struct known_volumes known;
	int rc = 0;

	known_volumes_read(o, &known);
	for (uint32_t i = 0; !rc && i < o->volume_count; i++) {
		rc = volume_open(s, i, &o->volumes[i], o->dir_mode, &known, err);
		s->volume_count = i + 1;
		if (rc)
			rc = tolerate(&s->volumes[i], rc, err);
	}
	known_volumes_fini(&known);
	return rc;
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
	rc = init_shared(s, o->open_replicas);
	if (!rc)
		rc = open_volumes(s, o, err);
	if (!rc && store_failed_count(s) == s->volume_count)
		rc = err_set(err, -EIO, "no data directory can be used");
	if (!rc)
		rc = agree_on_uuid(s, err);
	if (!rc)
		rc = start_threads(s);
	if (rc) {
		store_close(s);
		return rc;
	}
	if (!s->dn_uuid[0])
		store_make_uuid(s->dn_uuid, "");
	*ret = s;
	return 0;
}

static void pool_free(struct block_pool *bp)
{
	struct replica *r, *next;

	if (!bp)
		return;
	HASH_ITER(hh, bp->map, r, next) {
		HASH_DEL(bp->map, r);
		free(r->live);
		free(r);
	}
	for (uint32_t i = 0; i < STORE_VOLUMES_MAX; i++)
		if (bp->slices[i].fd >= 0)
			(void)close(bp->slices[i].fd);
	pthread_cond_destroy(&bp->changed);
	pthread_mutex_destroy(&bp->lock);
	free(bp);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	stop_threads(s);
	kept_fini(&s->kept);
	for (uint32_t i = 0; i < s->pool_count; i++)
		pool_free(s->pools[i]);
	for (uint32_t i = 0; i < s->volume_count; i++)
		volume_close(&s->volumes[i]);
	pthread_cond_destroy(&s->closing_cond);
	pthread_cond_destroy(&s->doomed_cond);
	pthread_rwlock_destroy(&s->listener_lock);
	pthread_mutex_destroy(&s->attach_lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
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
	}
	pthread_mutex_init(&bp->lock, NULL);
	(void)init_monotonic(&bp->changed);
	return bp;
}

struct load_job {
	pthread_t thread;
	struct slice *sl;
	bool started;
	int rc;
	struct err err;
};

static void *load_thread(void *arg)
{
	struct load_job *j = arg;

	j->rc = slice_load(j->sl, &j->err);
	return NULL;
}

/* Every volume in its own thread: disks are slow one by one. */
static int load_all(struct block_pool *bp, struct err *err)
{
	struct store *s = bp->store;
	struct load_job *jobs = calloc(s->volume_count, sizeof(*jobs));
	int rc = 0;

	if (!jobs)
		return err_sys(err, -ENOMEM, "loading replicas");
	for (uint32_t i = 0; i < s->volume_count; i++) {
		jobs[i].sl = &bp->slices[i];
		if (bp->slices[i].fd < 0)
			continue;
		jobs[i].started = !pthread_create(&jobs[i].thread, NULL, load_thread, &jobs[i]);
		if (!jobs[i].started)
			load_thread(&jobs[i]);
	}
	for (uint32_t i = 0; i < s->volume_count; i++) {
		if (jobs[i].started)
			pthread_join(jobs[i].thread, NULL);
		if (jobs[i].rc && !rc) {
			rc = tolerate(&s->volumes[i], jobs[i].rc, &jobs[i].err);
			if (rc && err)
				*err = jobs[i].err;
		}
	}
	free(jobs);
	return rc;
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
	struct block_pool *bp;
	int rc = check_volumes(s, ns, err);

	if (rc)
		return rc;
	bp = pool_new(s, ns);
	if (!bp)
		return err_sys(err, -ENOMEM, "pool %s", ns->pool_id);
	for (uint32_t i = 0; !rc && i < s->volume_count; i++) {
		if (s->volumes[i].failed)
			continue;
		rc = volume_format(&s->volumes[i], ns, err);
		if (!rc)
			rc = slice_open(&bp->slices[i], err);
		/* Another namespace's directory is a mistake, not a failure. */
		if (rc && rc != -EINVAL)
			rc = tolerate(&s->volumes[i], rc, err);
	}
	if (!rc)
		rc = load_all(bp, err);
	if (rc) {
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
	(void)snprintf(ret->uuid, sizeof(ret->uuid), "%s", v->uuid);
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

struct brief { /* a replica in the snapshot of store_each() */
	struct block b;
	enum replica_state state;
	uint64_t visible;
};

static struct brief *snapshot(struct block_pool *bp, uint32_t i, size_t *ret_n)
{
	struct replica *r, *next;
	struct brief *list;
	size_t n = 0;

	pthread_mutex_lock(&bp->lock);
	list = calloc(HASH_COUNT(bp->map) + 1u, sizeof(*list));
	HASH_ITER(hh, bp->map, r, next) {
		struct replica_info info;

		if (!list || r->slice != &bp->slices[i] || r->deleting)
			continue;
		replica_info_locked(r, &info);
		if (info.state == REPLICA_RUR)
			info.state = r->live->orig_state;
		if (info.state != REPLICA_TEMPORARY)
			list[n++] = (struct brief){info.block, info.state, info.visible};
	}
	pthread_mutex_unlock(&bp->lock);
	*ret_n = n;
	return list;
}

int store_each(struct block_pool *bp, uint32_t i, int (*fn)(void *arg, const struct replica_info *),
	       void *arg)
{
	size_t n;
	struct brief *list = snapshot(bp, i, &n);
	struct replica_info info = {0};
	int rc = list ? 0 : -ENOMEM;

	(void)snprintf(info.storage_uuid, sizeof(info.storage_uuid), "%s", bp->store->volumes[i].uuid);
	for (size_t k = 0; !rc && k < n; k++) {
		info.block = list[k].b;
		info.state = list[k].state;
		info.visible = list[k].visible;
		rc = fn(arg, &info);
	}
	free(list);
	return rc;
}
