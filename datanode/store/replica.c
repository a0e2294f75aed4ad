/* SPDX-License-Identifier: Apache-2.0 */
/* The map of replicas, who uses them exclusively, and how far their writers are. */
#include "datanode/store/store_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"

/* ---- the map ---- */

struct replica *replica_find_locked(struct block_pool *bp, int64_t id)
{
	return replica_map_find(&bp->map, id);
}

uint64_t pair_bytes(const struct replica *r)
{
	uint32_t bpc = r->bytes_per_crc ? r->bytes_per_crc : 512;

	return r->len + META_HEADER_LEN + (r->len + bpc - 1) / bpc * 4;
}

const char *replica_state_name(enum replica_state state)
{
	static const char *const names[] = {[REPLICA_FINALIZED] = "FINALIZED",
					    [REPLICA_RBW] = "RBW",
					    [REPLICA_RWR] = "RWR",
					    [REPLICA_RUR] = "RUR",
					    [REPLICA_TEMPORARY] = "TEMPORARY"};

	return names[state];
}

const char *write_stage_name(enum write_stage stage)
{
	static const char *const names[] = {
		[STAGE_APPEND] = "PIPELINE_SETUP_APPEND",
		[STAGE_APPEND_RECOVERY] = "PIPELINE_SETUP_APPEND_RECOVERY",
		[STAGE_STREAMING] = "DATA_STREAMING",
		[STAGE_STREAMING_RECOVERY] = "PIPELINE_SETUP_STREAMING_RECOVERY",
		[STAGE_CLOSE] = "PIPELINE_CLOSE",
		[STAGE_CLOSE_RECOVERY] = "PIPELINE_CLOSE_RECOVERY",
		[STAGE_CREATE] = "PIPELINE_SETUP_CREATE",
		[STAGE_TRANSFER_RBW] = "TRANSFER_RBW",
		[STAGE_TRANSFER_FINALIZED] = "TRANSFER_FINALIZED"};

	return names[stage];
}

void replica_count(const struct replica *r)
{
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	atomic_fetch_add(&r->slice->blocks, 1);
}

void replica_uncount(const struct replica *r)
{
	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	atomic_fetch_sub(&r->slice->blocks, 1);
}

void slice_note_stamp_locked(struct slice *sl, uint64_t gs)
{
	if (gs > sl->newest_gs)
		sl->newest_gs = gs;
}

void replica_add_locked(struct block_pool *bp, struct replica *r)
{
	slice_note_stamp_locked(r->slice, r->gs);
	r->refs++;
	replica_map_add(&bp->map, r->id, r);
	list_add_tail(&r->slice->replicas, &r->in_slice);
}

static void leave_slice(struct replica *r)
{
	list_for_each (l, &r->slice->walks) {
		struct walk *w = container_of(l, struct walk, link);

		if (w->next == &r->in_slice)
			w->next = w->next->next;
	}
	list_del(&r->in_slice);
}

void replica_set_slice_locked(struct replica *r, struct slice *sl)
{
	leave_slice(r);
	slice_note_stamp_locked(sl, r->gs);
	r->slice = sl;
	list_add_tail(&sl->replicas, &r->in_slice);
}

int slice_walk(struct slice *sl, int (*see)(void *arg, struct replica *r), int (*rest)(void *arg),
	       void *arg)
{
	struct block_pool *bp = sl->bp;
	struct walk w;
	bool more = true;
	int rc = 0;

	pthread_mutex_lock(&bp->lock);
	w.next = sl->replicas.next;
	list_add_tail(&sl->walks, &w.link);
	while (!rc && more) {
		for (uint32_t n = 0; !rc && n < WALK_BATCH && w.next != &sl->replicas; n++) {
			struct replica *r = container_of(w.next, struct replica, in_slice);

			w.next = w.next->next;
			rc = see(arg, r);
		}
		more = w.next != &sl->replicas;
		pthread_mutex_unlock(&bp->lock);
		if (!rc && rest)
			rc = rest(arg);
		else if (more) /* those who wait for the lock get it */
			(void)nanosleep(&(struct timespec){0, 1000}, NULL);
		pthread_mutex_lock(&bp->lock);
		more = w.next != &sl->replicas; /* one may have come */
	}
	list_del(&w.link);
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

void replica_put_locked(struct block_pool *bp, struct replica *r)
{
	assert(r->refs > 0);
	if (--r->refs > 0) {
		/* Only the map holds it: a finalized replica needs no more than its entry, unless
		 * it was cut. */
		if (r->refs == 1 && !r->gone && !r->busy && r->state == REPLICA_FINALIZED &&
		    r->write_state && !r->write_state->writer && !r->write_state->cut_gs) {
			free(r->write_state);
			r->write_state = NULL;
		}
		return;
	}
	(void)bp;
	free(r->write_state);
	free(r);
}

void replica_remove_locked(struct block_pool *bp, struct replica *r)
{
	replica_map_remove(&bp->map, r->id);
	leave_slice(r);
	r->gone = true;
	open_replica_drop(&bp->store->open_replicas, bp, r->id);
	pthread_cond_broadcast(&bp->changed);
	if (r->cached)
		list_add_tail(&bp->gone, &r->in_slice); /* with the map's reference */
	else
		replica_put_locked(bp, r);
}

void pool_tell_gone(struct block_pool *bp)
{
	struct list *l;

	pthread_mutex_lock(&bp->lock);
	while ((l = list_pop(&bp->gone))) {
		struct replica *r = container_of(l, struct replica, in_slice);
		const struct block b = {r->id, r->gs, r->len};
		const struct slice *sl = r->slice;

		replica_put_locked(bp, r);
		pthread_mutex_unlock(&bp->lock);
		store_event(bp, sl, &b, STORE_GONE, NULL);
		pthread_mutex_lock(&bp->lock);
	}
	pthread_mutex_unlock(&bp->lock);
}

int replica_need_write_state(struct replica *r)
{
	if (!r->write_state)
		r->write_state = calloc(1, sizeof(*r->write_state));
	return r->write_state ? 0 : -ENOMEM;
}

void store_deadline_in(struct timespec *ts, uint32_t ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

int replica_claim_locked(struct block_pool *bp, int64_t id, uint64_t gs, bool stop,
			 struct replica **ret)
{
	struct timespec until;
	struct replica *r;
	struct slice *sl;
	int rc = 0;

	*ret = NULL;
	store_deadline_in(&until, STORE_WAIT_MS);
	while ((r = replica_find_locked(bp, id)) &&
	       (r->busy || (r->write_state && r->write_state->writer))) {
		if (gs && r->gs != gs)
			return -ESTALE;
		if (r->write_state && r->write_state->writer) {
			if (!stop)
				return -EBUSY;
			/* Under the lock, so that the writer cannot go away meanwhile. */
			if (r->write_state->stop)
				r->write_state->stop(r->write_state->stop_arg, -ECANCELED);
			r->write_state->stop = NULL;
		}
		sl = r->slice;
		if (rc || sl->waiters >= STORE_WAITERS_MAX || sl->vol->failed)
			return -EBUSY;
		sl->waiters++;
		rc = pthread_cond_timedwait(&bp->changed, &bp->lock, &until);
		sl->waiters--;
	}
	if (r && gs && r->gs != gs)
		return -ESTALE;
	if (r)
		replica_take_locked(bp, r);
	*ret = r;
	return 0;
}

void replica_take_locked(struct block_pool *bp, struct replica *r)
{
	r->busy = true;
	open_replica_drop(&bp->store->open_replicas, bp, r->id);
}

void replica_release_locked(struct block_pool *bp, struct replica *r)
{
	r->busy = false;
	pthread_cond_broadcast(&bp->changed);
}

void store_event(struct block_pool *bp, const struct slice *sl, const struct block *b,
		 enum store_event ev, const char *hint)
{
	struct store *s = bp->store;

	pthread_rwlock_rdlock(&s->listener_lock);
	if (s->listener.on_block)
		s->listener.on_block(s->listener.arg, bp, sl->vol->uuid, b, ev, hint);
	pthread_rwlock_unlock(&s->listener_lock);
}

bool store_is_disk_error(int rc)
{
	return rc == -EIO || rc == -EROFS || rc == -ENODEV || rc == -EUCLEAN || rc == -ENXIO;
}

int slice_error(struct slice *sl, int rc)
{
	if (store_is_disk_error(rc))
		store_volume_suspect(sl->vol->store, sl->vol->uuid);
	return rc;
}

/* ---- progress ---- */

void progress_set(struct progress *p, const struct progress_now *now)
{
	unsigned int seq = atomic_load_explicit(&p->seq, memory_order_relaxed);

	/* Odd first, values after it; partner: the acquire fence in progress_get(). */
	atomic_store_explicit(&p->seq, seq + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&p->received, now->received, memory_order_relaxed);
	atomic_store_explicit(&p->on_disk, now->on_disk, memory_order_relaxed);
	atomic_store_explicit(&p->acked, now->acked, memory_order_relaxed);
	atomic_store_explicit(&p->last_crc, now->last_crc, memory_order_relaxed);
	atomic_store_explicit(&p->final, now->final, memory_order_relaxed);
	/* Values first, even after them; partner: the acquire load in progress_get(). */
	atomic_store_explicit(&p->seq, seq + 2, memory_order_release);
}

struct progress_now progress_get(struct progress *p)
{
	struct progress_now now;
	unsigned int a, b;

	do {
		a = atomic_load_explicit(&p->seq, memory_order_acquire);
		now.received = atomic_load_explicit(&p->received, memory_order_relaxed);
		now.on_disk = atomic_load_explicit(&p->on_disk, memory_order_relaxed);
		now.acked = atomic_load_explicit(&p->acked, memory_order_relaxed);
		now.last_crc = atomic_load_explicit(&p->last_crc, memory_order_relaxed);
		now.final = atomic_load_explicit(&p->final, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		b = atomic_load_explicit(&p->seq, memory_order_relaxed);
	} while (a != b || (a & 1));
	return now;
}

void replica_set_final(struct replica *r)
{
	progress_set(&r->write_state->prog,
		     &(struct progress_now){r->len, r->len, r->len, 0, true});
}

void replica_loaded_rbw(struct replica *r, uint32_t last_crc)
{
	progress_set(&r->write_state->prog,
		     &(struct progress_now){r->len, r->len, r->len, last_crc, false});
}

void replica_publish(struct replica_writer *w, uint64_t received, uint64_t on_disk, uint64_t acked,
		     uint32_t last_crc)
{
	assert(acked <= received && on_disk <= received);
	progress_set(&w->replica->write_state->prog,
		     &(struct progress_now){received, on_disk, acked, last_crc, false});
}

/* ---- state ---- */

enum replica_state replica_visible_state(const struct replica *r)
{
	return r->state == REPLICA_RUR ? r->write_state->orig_state : (enum replica_state)r->state;
}

bool replica_is_pinned(struct block_pool *bp, int64_t id)
{
	const struct replica *r;
	bool pinned;

	if (!bp->store->pinning)
		return false;
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	pinned = r && r->pinned;
	pthread_mutex_unlock(&bp->lock);
	return pinned;
}

bool replica_set_cached(struct block_pool *bp, int64_t id, bool cached)
{
	struct replica *r;
	bool is_there;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	is_there = r && !r->deleting;
	if (r)
		r->cached = cached && is_there;
	open_replica_drop(&bp->store->open_replicas, bp, id); /* they are read in the other way */
	pthread_mutex_unlock(&bp->lock);
	return is_there;
}

void replica_brief_locked(const struct replica *r, struct block *ret_block,
			  enum replica_state *ret_state, uint64_t *ret_visible)
{
	const enum replica_state st = replica_visible_state(r);

	*ret_block = (struct block){r->id, r->gs, r->len};
	*ret_state = r->state;
	*ret_visible = r->len;
	if (r->write_state && (r->write_state->writer || st == REPLICA_RBW)) {
		struct progress_now p = progress_get(&r->write_state->prog);

		ret_block->len = p.on_disk;
		*ret_visible = p.acked;
	}
	if (st == REPLICA_RWR || st == REPLICA_TEMPORARY)
		*ret_visible = 0;
}

void replica_info_locked(const struct replica *r, struct replica_info *ret)
{
	replica_brief_locked(r, &ret->block, &ret->state, &ret->visible);
	(void)snprintf(ret->storage_uuid, sizeof(ret->storage_uuid), "%s", r->slice->vol->uuid);
}

uint32_t replica_volume(struct block_pool *bp, int64_t id)
{
	const struct replica *r;
	uint32_t volume;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	volume = r && !r->slice->vol->failed ? r->slice->vol->idx : STORE_VOLUME_ANY;
	pthread_mutex_unlock(&bp->lock);
	return volume;
}

int replica_get(struct block_pool *bp, int64_t id, struct replica_info *ret)
{
	struct replica *r;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	if (r)
		replica_info_locked(r, ret);
	pthread_mutex_unlock(&bp->lock);
	return r ? 0 : -ENOENT;
}
