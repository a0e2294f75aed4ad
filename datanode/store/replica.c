/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/store_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#define BALANCED_BYTES (10ull << 30) /* volumes this close in free space take turns */
#define OPEN_TRIES 8                 /* a reader that meets a rename looks again */

/* ---- the map ---- */

struct replica *replica_find_locked(struct block_pool *bp, int64_t id)
{
	struct replica *r;

	HASH_FIND(hh, bp->map, &id, sizeof(id), r);
	return r;
}

uint64_t pair_bytes(const struct replica *r)
{
	uint32_t bpc = r->bytes_per_crc ? r->bytes_per_crc : 512;

	return r->len + META_HEADER + (r->len + bpc - 1) / bpc * 4;
}

void replica_add_locked(struct block_pool *bp, struct replica *r)
{
	r->refs++;
	HASH_ADD(hh, bp->map, id, sizeof(r->id), r);
}

void replica_put_locked(struct block_pool *bp, struct replica *r)
{
	assert(r->refs > 0);
	if (--r->refs > 0) {
		/* Only the map holds it: a finalized replica needs no more than its entry. */
		if (r->refs == 1 && !r->gone && !r->busy && r->state == REPLICA_FINALIZED &&
		    r->live && !r->live->writer) {
			free(r->live);
			r->live = NULL;
		}
		return;
	}
	(void)bp;
	free(r->live);
	free(r);
}

void replica_remove_locked(struct block_pool *bp, struct replica *r)
{
	HASH_DEL(bp->map, r);
	r->gone = true;
	pthread_cond_broadcast(&bp->changed);
	replica_put_locked(bp, r);
}

int replica_make_live(struct replica *r)
{
	if (!r->live)
		r->live = calloc(1, sizeof(*r->live));
	return r->live ? 0 : -ENOMEM;
}

static void deadline_in(struct timespec *ts, uint32_t ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

int replica_claim_locked(struct block_pool *bp, int64_t id, bool stop, struct replica **ret)
{
	struct timespec until;
	struct replica *r;
	int rc = 0;

	*ret = NULL;
	deadline_in(&until, STORE_WAIT_MS);
	while ((r = replica_find_locked(bp, id)) && (r->busy || (r->live && r->live->writer))) {
		if (r->live && r->live->writer) {
			if (!stop)
				return -EBUSY;
			/* Under the lock, so that the writer cannot go away meanwhile. */
			if (r->live->stop)
				r->live->stop(r->live->stop_arg);
			r->live->stop = NULL;
		}
		if (rc || bp->waiters >= STORE_WAITERS_MAX)
			return -EBUSY;
		bp->waiters++;
		rc = pthread_cond_timedwait(&bp->changed, &bp->lock, &until);
		bp->waiters--;
	}
	if (r)
		r->busy = true;
	*ret = r;
	return 0;
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

/* ---- choosing a volume ---- */

/* Volumes with room take turns: all of them, or those within BALANCED_BYTES of the emptiest. A wish for a storage
 * or a type is granted when there is room, else ignored, as Hadoop's fallback does. */
static struct slice *choose_among(struct block_pool *bp, const struct write_request *q, bool strict,
				  uint64_t need, uint64_t *ret_best)
{
	struct store *s = bp->store;
	struct slice *ok[STORE_VOLUMES_MAX];
	struct space sp;
	uint64_t room[STORE_VOLUMES_MAX], best = 0;
	uint32_t n = 0, k = 0;

	for (uint32_t i = 0; i < s->volume_count; i++) {
		struct slice *sl = &bp->slices[i];

		if (sl->fd < 0 || sl->vol->failed || (strict && sl->vol->type != q->storage_type))
			continue;
		volume_space(sl->vol, &sp);
		room[n] = sp.room;
		if (room[n] > best)
			best = room[n];
		if (strict && q->storage_uuid && !strcmp(q->storage_uuid, sl->vol->uuid) &&
		    room[n] >= need)
			return sl;
		ok[n++] = sl;
	}
	*ret_best = best;
	for (uint32_t i = 0; i < n; i++)
		if (room[i] >= need && (!s->available_space || best - room[i] <= BALANCED_BYTES))
			ok[k++] = ok[i];
	if (!k)
		return NULL;
	return ok[atomic_fetch_add(&s->next_volume, 1) % k];
}

struct slice *slice_choose(struct block_pool *bp, enum storage_type type, const char *storage_uuid,
			   uint64_t need)
{
	const struct write_request q = {.storage_type = type, .storage_uuid = storage_uuid};
	uint64_t best = 0;

	return choose_among(bp, &q, true, need, &best);
}

static struct slice *choose_slice(struct block_pool *bp, const struct write_request *q, uint64_t need,
				  struct err *err)
{
	uint64_t best = 0;
	struct slice *sl = choose_among(bp, q, true, need, &best);

	if (!sl)
		sl = choose_among(bp, q, false, need, &best);
	if (!sl)
		err_set(err, -ENOSPC,
			"no data directory has room for %" PRIu64 " bytes, the emptiest has %" PRIu64
			"; free space or add a directory to dfs.datanode.data.dir",
			need, best);
	return sl;
}

static void promise(struct replica *r, uint64_t bytes)
{
	r->live->promised = bytes;
	atomic_fetch_add(&r->slice->vol->promised, bytes);
}

static void unpromise(struct replica *r)
{
	atomic_fetch_sub(&r->slice->vol->promised, r->live->promised);
	r->live->promised = 0;
}

/* ---- progress ---- */

static void progress_set(struct progress *p, uint64_t received, uint64_t on_disk, uint64_t acked,
			 uint32_t last_crc)
{
	unsigned int seq = atomic_load_explicit(&p->seq, memory_order_relaxed);

	/* Odd first, values after it; partner: the acquire fence in progress_get(). */
	atomic_store_explicit(&p->seq, seq + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&p->received, received, memory_order_relaxed);
	atomic_store_explicit(&p->on_disk, on_disk, memory_order_relaxed);
	atomic_store_explicit(&p->acked, acked, memory_order_relaxed);
	atomic_store_explicit(&p->last_crc, last_crc, memory_order_relaxed);
	/* Values first, even after them; partner: the acquire load in progress_get(). */
	atomic_store_explicit(&p->seq, seq + 2, memory_order_release);
}

struct progress_now {
	uint64_t received, on_disk, acked;
	uint32_t last_crc;
};

static struct progress_now progress_get(struct progress *p)
{
	struct progress_now now;
	unsigned int a, b;

	do {
		a = atomic_load_explicit(&p->seq, memory_order_acquire);
		now.received = atomic_load_explicit(&p->received, memory_order_relaxed);
		now.on_disk = atomic_load_explicit(&p->on_disk, memory_order_relaxed);
		now.acked = atomic_load_explicit(&p->acked, memory_order_relaxed);
		now.last_crc = atomic_load_explicit(&p->last_crc, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		b = atomic_load_explicit(&p->seq, memory_order_relaxed);
	} while (a != b || (a & 1));
	return now;
}

void replica_set_final(struct replica *r)
{
	progress_set(&r->live->prog, r->len, r->len, r->len, 0);
	/* After the length; partner: the acquire load in reader_length(). */
	atomic_store_explicit(&r->live->prog.final, true, memory_order_release);
}

void replica_loaded_rbw(struct replica *r)
{
	progress_set(&r->live->prog, r->len, r->len, r->len, 0);
}

void replica_publish(struct replica_writer *w, uint64_t received, uint64_t on_disk, uint64_t acked,
		     uint32_t last_crc)
{
	assert(acked <= received && on_disk <= received);
	progress_set(&w->replica->live->prog, received, on_disk, acked, last_crc);
}

/* ---- a writer's files ---- */

static void writer_free(struct replica_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		(void)close(w->fd);
	if (w->fd_direct >= 0)
		(void)close(w->fd_direct);
	if (w->fd_meta >= 0)
		(void)close(w->fd_meta);
	free(w);
}

static struct replica_writer *writer_new(struct block_pool *bp, struct replica *r)
{
	struct replica_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->bp = bp;
	w->replica = r;
	w->fd = w->fd_direct = w->fd_meta = -1;
	(void)snprintf(w->storage_uuid, sizeof(w->storage_uuid), "%s", r->slice->vol->uuid);
	return w;
}

static void open_direct(const struct slice *sl, const char *name, int flags, int *fd,
			uint32_t *align)
{
	*align = sl->vol->dio_align ? sl->vol->dio_align : 1;
	*fd = sl->vol->dio_align ? openat(sl->fd, name, flags | O_DIRECT | O_CLOEXEC) : -1;
}

static int writer_open(struct replica_writer *w, const struct slice *sl, const char *data,
		       const char *meta, int flags)
{
	w->fd = openat(sl->fd, data, O_RDWR | O_CLOEXEC | flags, 0644);
	if (w->fd < 0)
		return neg_errno();
	w->fd_meta = openat(sl->fd, meta, O_RDWR | O_CLOEXEC | flags, 0644);
	if (w->fd_meta < 0)
		return neg_errno();
	open_direct(sl, data, O_RDWR, &w->fd_direct, &w->dio_align);
	return 0;
}

/* Files of a new replica. What a crash left under these names goes first: it may be a hard link
 * to a finalized block.
 * No fallocate(): measured on ext4 (6.18, NVMe), 128 MiB in O_DIRECT writes of 1 MiB take 45-73 ms
 * without and 55 ms with KEEP_SIZE, of 128 KiB 130-137 and 114-123 ms; each small block pays
 * 0.13 ms for it and 0.12 to 0.3 ms for giving it back. Room is promised in volume->promised. */
static int create_files(struct replica_writer *w, struct replica *r)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	const struct slice *sl = r->slice;
	int rc;

	path_data(data, r->place, r->id);
	path_meta(meta, r->place, r->id, r->gs);
	(void)unlinkat(sl->fd, data, 0);
	(void)unlinkat(sl->fd, meta, 0);
	rc = writer_open(w, sl, data, meta, O_CREAT | O_EXCL);
	if (!rc)
		rc = meta_write_header(w->fd_meta, r->crc_type, r->bytes_per_crc);
	if (rc)
		(void)pair_unlink(sl->fd, r->id, r->place, r->gs);
	return rc;
}

static void writer_publish_open(struct replica_writer *w, struct replica *r,
				const struct write_request *q)
{
	struct block_pool *bp = w->bp;

	w->block = (struct block){r->id, r->gs, q->block.len};
	w->start_len = r->len;
	w->crc_type = r->crc_type;
	w->bytes_per_crc = r->bytes_per_crc;
	w->pin = q->pin && bp->store->pinning;
	pthread_mutex_lock(&bp->lock);
	r->refs++;
	r->live->writer = w;
	r->live->stop = q->stop;
	r->live->stop_arg = q->stop_arg;
	r->live->dir_synced = false;
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
}

/* ---- opening for write: new replicas ---- */

/* May a new replica take the place of @old? (hdfs-wire 5.5) A finalized replica is never replaced
 * but by a transfer that repairs a pipeline at a newer stamp. */
static bool may_replace(const struct replica *old, const struct write_request *q)
{
	if (old->state == REPLICA_RUR)
		return false;
	if (q->stage == STAGE_TRANSFER_RBW || q->stage == STAGE_TRANSFER_FINALIZED)
		return old->gs < q->block.gs;
	if (q->from_client)
		return q->new_gs > old->gs && old->state != REPLICA_FINALIZED;
	/* RWR: the NameNode that orders a copy of a newer stamp has only not yet told us to drop this one. */
	return old->gs < q->block.gs && old->state != REPLICA_FINALIZED;
}

/* Leaves @id free in the map, and its old files gone. */
static int clear_way(struct block_pool *bp, const struct write_request *q, struct err *err)
{
	struct replica *old = replica_find_locked(bp, q->block.id);
	int rc;

	if (!old)
		return 0;
	if (!may_replace(old, q))
		return err_set(err, -EEXIST,
			       "blk_%" PRId64 " exists with stamp %" PRIu64
			       ", state %d; asked for %" PRIu64,
			       old->id, old->gs, old->state, q->block.gs);
	rc = replica_claim_locked(bp, q->block.id, true, &old);
	if (rc)
		return err_set(err, rc, "blk_%" PRId64 ": its writer did not stop within %d s",
			       q->block.id, STORE_WAIT_MS / 1000);
	if (!old)
		return 0;
	if (!may_replace(old, q)) {
		replica_release_locked(bp, old);
		return err_set(err, -EEXIST, "blk_%" PRId64 " changed meanwhile", q->block.id);
	}
	pthread_mutex_unlock(&bp->lock);
	rc = pair_unlink(old->slice->fd, old->id, old->place, old->gs);
	pthread_mutex_lock(&bp->lock);
	if (rc) {
		replica_release_locked(bp, old);
		return err_sys(err, rc, "removing the older replica of blk_%" PRId64, q->block.id);
	}
	atomic_fetch_sub(&old->slice->used, pair_bytes(old));
	atomic_fetch_sub(&old->slice->blocks, 1);
	replica_remove_locked(bp, old);
	return 0;
}

static int open_new(struct block_pool *bp, const struct write_request *q,
		    struct replica_writer **ret, struct err *err)
{
	bool rbw = q->from_client && q->stage == STAGE_CREATE;
	struct slice *sl = choose_slice(bp, q, q->block.len, err);
	struct replica_writer *w = NULL;
	struct replica *r;
	int rc;

	if (!sl)
		return -ENOSPC;
	r = calloc(1, sizeof(*r));
	if (!r || replica_make_live(r)) {
		free(r);
		return err_sys(err, -ENOMEM, "blk_%" PRId64, q->block.id);
	}
	r->id = q->block.id;
	r->gs = rbw && q->new_gs ? q->new_gs : q->block.gs;
	r->slice = sl;
	r->state = rbw ? REPLICA_RBW : REPLICA_TEMPORARY;
	r->place = rbw ? IN_RBW : IN_TMP;
	r->crc_type = (uint8_t)q->crc_type;
	r->bytes_per_crc = q->bytes_per_crc;
	r->busy = true;
	pthread_mutex_lock(&bp->lock);
	rc = clear_way(bp, q, err);
	if (rc) {
		pthread_mutex_unlock(&bp->lock);
		free(r->live);
		free(r);
		return rc;
	}
	replica_add_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);

	promise(r, q->block.len);
	w = writer_new(bp, r);
	rc = w ? create_files(w, r) : -ENOMEM;
	if (rc) {
		err_sys(err, rc, "creating blk_%" PRId64 " in %s", r->id, sl->vol->path);
		writer_free(w);
		(void)slice_error(sl, rc);
		pthread_mutex_lock(&bp->lock);
		unpromise(r);
		replica_remove_locked(bp, r);
		pthread_mutex_unlock(&bp->lock);
		return rc;
	}
	atomic_fetch_add(&sl->used, pair_bytes(r));
	atomic_fetch_add(&sl->blocks, 1);
	writer_publish_open(w, r, q);
	*ret = w;
	if (rbw)
		store_event(bp, sl, &(struct block){r->id, r->gs, q->block.len}, STORE_RECEIVING,
			    NULL);
	return 0;
}

/* ---- opening for write: append and recovery ---- */

/* The claimed replica against the request (hdfs-wire 5.5). */
static int check_existing(const struct replica *r, const struct write_request *q, struct err *err)
{
	struct progress_now p = {r->len, r->len, r->len, 0};
	bool finalized = r->state == REPLICA_FINALIZED, rbw = r->state == REPLICA_RBW;
	bool append = q->stage == STAGE_APPEND, streaming = q->stage == STAGE_STREAMING_RECOVERY;
	bool gs_ok = append ? r->gs == q->block.gs :
			      r->gs >= q->block.gs && r->gs <= q->new_gs;

	if (rbw && r->live)
		p = progress_get(&r->live->prog);
	if (append ? !finalized : streaming ? !rbw : !(finalized || rbw))
		return err_set(err, -EINVAL, "blk_%" PRId64 " is in state %d, unfit for stage %d",
			       r->id, r->state, q->stage);
	if (!gs_ok || q->new_gs < r->gs || (append && q->new_gs <= r->gs))
		return err_set(err, -EINVAL,
			       "blk_%" PRId64 " has stamp %" PRIu64 "; asked for %" PRIu64
			       ", new %" PRIu64,
			       r->id, r->gs, q->block.gs, q->new_gs);
	if (streaming ? p.acked < q->min_bytes || p.received > q->max_bytes ||
				p.on_disk < p.acked :
			r->len != q->min_bytes || p.acked != p.received || p.on_disk != p.acked)
		return err_set(err, -EINVAL,
			       "blk_%" PRId64 " has %" PRIu64 " bytes received, %" PRIu64
			       " on disk, %" PRIu64 " acked; asked for %" PRIu64 " to %" PRIu64,
			       r->id, p.received, p.on_disk, p.acked, q->min_bytes, q->max_bytes);
	return 0;
}

/* Bring the claimed replica's files into rbw/ at the new stamp, cut to the acknowledged bytes. */
static int reopen_files(struct replica *r, const struct write_request *q)
{
	const struct slice *sl = r->slice;
	uint64_t keep = r->len;
	int rc;

	if (r->place == IN_RBW && q->stage == STAGE_STREAMING_RECOVERY)
		keep = progress_get(&r->live->prog).acked;
	if (r->place == IN_FINALIZED)
		rc = pair_move(sl->fd, r->id, IN_FINALIZED, r->gs, IN_RBW, q->new_gs);
	else
		rc = pair_restamp(sl->fd, r->id, r->place, r->gs, r->len, q->new_gs, keep);
	if (rc)
		return rc;
	pthread_mutex_lock(&sl->bp->lock);
	r->place = IN_RBW;
	r->gs = q->new_gs;
	r->len = keep;
	pthread_mutex_unlock(&sl->bp->lock);
	return 0;
}

static int load_meta_header(struct replica *r, int fd_meta)
{
	enum crc_type type;
	int rc = meta_read_header(fd_meta, &type, &r->bytes_per_crc);

	if (!rc)
		r->crc_type = (uint8_t)type;
	return rc;
}

static int reopen_writer(struct replica *r, const struct write_request *q, struct replica_writer *w)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	uint32_t crc = 0;
	int rc = reopen_files(r, q);

	if (rc)
		return rc;
	path_data(data, IN_RBW, r->id);
	path_meta(meta, IN_RBW, r->id, r->gs);
	rc = writer_open(w, r->slice, data, meta, 0);
	if (!rc)
		rc = load_meta_header(r, w->fd_meta);
	/* A last chunk that does not fit is found before anything is built upon it. */
	if (!rc && r->len % r->bytes_per_crc)
		rc = meta_cut_crc(w->fd, w->fd_meta, r->crc_type, r->bytes_per_crc, r->len, r->len,
				  &crc);
	if (!rc) {
		atomic_store(&r->live->prog.final, false);
		progress_set(&r->live->prog, r->len, r->len, r->len, crc);
	}
	return rc;
}

static int finalize_claimed(struct block_pool *bp, struct replica *r, bool sync);

static int open_existing(struct block_pool *bp, const struct write_request *q,
			 struct replica_writer **ret, struct err *err)
{
	struct replica_writer *w = NULL;
	struct block ev;
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, q->block.id, q->stage != STAGE_APPEND, &r);
	if (!rc && r) {
		rc = check_existing(r, q, err);
		if (!rc)
			rc = replica_make_live(r);
		if (rc)
			replica_release_locked(bp, r);
	} else {
		rc = err_set(err, rc ? rc : -ENOENT,
			     rc ? "blk_%" PRId64 ": its writer did not stop" :
				  "blk_%" PRId64 " is not here",
			     q->block.id);
	}
	pthread_mutex_unlock(&bp->lock);
	if (rc)
		return rc;

	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	if (q->stage == STAGE_CLOSE_RECOVERY) {
		rc = pair_restamp(r->slice->fd, r->id, r->place, r->gs, r->len, q->new_gs, r->len);
		pthread_mutex_lock(&bp->lock);
		if (!rc)
			r->gs = q->new_gs;
		pthread_mutex_unlock(&bp->lock);
		if (!rc)
			rc = finalize_claimed(bp, r, true);
	} else {
		w = writer_new(bp, r);
		rc = w ? reopen_writer(r, q, w) : -ENOMEM;
	}
	if (!rc && w) {
		pthread_mutex_lock(&bp->lock);
		r->state = REPLICA_RBW;
		pthread_mutex_unlock(&bp->lock);
	}
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	ev = (struct block){r->id, r->gs, r->len};
	if (!rc && w) {
		promise(r, q->block.len > r->len ? q->block.len - r->len : 0);
		writer_publish_open(w, r, q);
		*ret = w;
		ev.len = q->block.len;
		if (q->stage != STAGE_STREAMING_RECOVERY)
			store_event(bp, r->slice, &ev, STORE_RECEIVING, NULL);
		return 0;
	}
	pthread_mutex_lock(&bp->lock);
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	if (rc) {
		err_sys(err, rc, "reopening blk_%" PRId64, q->block.id);
		writer_free(w);
		return slice_error(r->slice, rc);
	}
	*ret = NULL;
	store_event(bp, r->slice, &ev, STORE_RECEIVED, NULL);
	return 0;
}

int replica_write_open(struct block_pool *bp, const struct write_request *q,
		       struct replica_writer **ret, struct err *err)
{
	*ret = NULL;
	if (q->crc_type > CRC_CRC32C || q->bytes_per_crc == 0 || q->bytes_per_crc > META_BPC_MAX)
		return err_set(err, -EINVAL, "checksum type %d with %u bytes per checksum",
			       (int)q->crc_type, q->bytes_per_crc);
	switch (q->stage) {
	case STAGE_CREATE:
	case STAGE_TRANSFER_RBW:
	case STAGE_TRANSFER_FINALIZED:
		return open_new(bp, q, ret, err);
	case STAGE_APPEND:
	case STAGE_APPEND_RECOVERY:
	case STAGE_STREAMING_RECOVERY:
	case STAGE_CLOSE_RECOVERY:
		return open_existing(bp, q, ret, err);
	case STAGE_STREAMING:
	case STAGE_CLOSE:
		break;
	}
	return err_set(err, -EINVAL, "stage %d does not open a block", q->stage);
}

/* ---- the end of a writer ---- */

/* Claimed replica, files closed: to finalized/, in the state FINALIZED. */
static int finalize_claimed(struct block_pool *bp, struct replica *r, bool sync)
{
	const struct slice *sl = r->slice;
	int rc = 0;

	if (r->place != IN_FINALIZED)
		rc = pair_move(sl->fd, r->id, r->place, r->gs, IN_FINALIZED, r->gs);
	if (!rc && sync)
		rc = path_sync_dir(sl->fd, IN_FINALIZED, r->id);
	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	r->place = IN_FINALIZED;
	r->state = REPLICA_FINALIZED;
	pthread_mutex_unlock(&bp->lock);
	return 0;
}

static void set_len(struct replica *r, uint64_t len)
{
	pthread_mutex_lock(&r->slice->bp->lock);
	r->len = len;
	pthread_mutex_unlock(&r->slice->bp->lock);
}

/* Cut padding; then data before meta before names. */
static int finish_files(const struct replica_writer *w, uint64_t len, bool sync, struct err *err)
{
	uint64_t meta_len = META_HEADER + crc_bytes(w->crc_type, len, w->bytes_per_crc);
	struct stat st;

	if (fstat(w->fd_meta, &st))
		return err_sys(err, neg_errno(), "meta file");
	if ((uint64_t)st.st_size < meta_len)
		return err_set(err, -EINVAL, "meta file has %" PRIu64 " bytes, %" PRIu64 " expected",
			       (uint64_t)st.st_size, meta_len);
	if (fstat(w->fd, &st))
		return err_sys(err, neg_errno(), "block file");
	if ((uint64_t)st.st_size < len)
		return err_set(err, -EINVAL, "block file has %" PRIu64 " bytes, %" PRIu64 " expected",
			       (uint64_t)st.st_size, len);
	if (ftruncate(w->fd, (off_t)len) || ftruncate(w->fd_meta, (off_t)meta_len))
		return err_sys(err, neg_errno(), "cutting to length");
	if (w->pin && fchmod(w->fd, (st.st_mode & 07777) | S_ISVTX))
		return err_sys(err, neg_errno(), "pinning the block file");
	if (sync && (fdatasync(w->fd) || fdatasync(w->fd_meta)))
		return err_sys(err, neg_errno(), "fdatasync");
	return 0;
}

/* The writer becomes a mere busy mark, so that its files can be closed and renamed. */
static struct replica *writer_detach(struct replica_writer *w)
{
	struct replica *r = w->replica;

	pthread_mutex_lock(&w->bp->lock);
	assert(r->live->writer == w);
	r->live->writer = NULL;
	r->live->stop = NULL;
	r->busy = true;
	unpromise(r);
	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	pthread_mutex_unlock(&w->bp->lock);
	return r;
}

static void writer_release(struct block_pool *bp, struct replica *r)
{
	pthread_mutex_lock(&bp->lock);
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	replica_release_locked(bp, r);
	replica_put_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
}

/* A copy that came to nothing. */
static void drop_temporary(struct block_pool *bp, struct replica *r)
{
	(void)pair_unlink(r->slice->fd, r->id, IN_TMP, r->gs);
	atomic_fetch_sub(&r->slice->blocks, 1);
	pthread_mutex_lock(&bp->lock);
	replica_remove_locked(bp, r);
	replica_put_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
}

int replica_finalize(struct replica_writer *w, uint64_t len, bool sync, const char *hint,
		     struct err *err)
{
	struct block_pool *bp = w->bp;
	struct replica *r = writer_detach(w);
	struct slice *sl = r->slice;
	struct block b = {r->id, r->gs, len};
	uint64_t on_disk = progress_get(&r->live->prog).on_disk;
	int rc = finish_files(w, len, sync, err);

	r->pinned |= w->pin && !rc; /* we are its exclusive user */
	writer_free(w);
	set_len(r, rc ? on_disk : len);
	if (!rc) {
		rc = finalize_claimed(bp, r, sync);
		if (rc)
			err_sys(err, rc, "moving to finalized/");
	}
	if (rc) {
		err_prefix(err, "finalizing blk_%" PRId64, b.id);
		if (r->place == IN_TMP)
			drop_temporary(bp, r);
		else
			writer_release(bp, r);
		return slice_error(sl, rc);
	}
	replica_set_final(r);
	writer_release(bp, r);
	store_event(bp, sl, &b, STORE_RECEIVED, hint);
	return 0;
}

/* Bytes that the writer vouched for stay, later ones were never acknowledged by this node. */
static int keep_rbw(struct replica_writer *w, struct replica *r, bool from_tmp)
{
	uint64_t len = progress_get(&r->live->prog).on_disk;
	int rc = 0;

	if (ftruncate(w->fd, (off_t)len))
		rc = neg_errno();
	set_len(r, len);
	if (!rc && from_tmp) {
		rc = pair_move(r->slice->fd, r->id, IN_TMP, r->gs, IN_RBW, r->gs);
		pthread_mutex_lock(&w->bp->lock);
		if (!rc) {
			r->place = IN_RBW;
			r->state = REPLICA_RBW;
		}
		pthread_mutex_unlock(&w->bp->lock);
	}
	return rc;
}

void replica_write_close(struct replica_writer *w, bool keep_as_rbw)
{
	struct block_pool *bp = w->bp;
	struct replica *r = writer_detach(w);
	struct slice *sl = r->slice;
	bool tmp = r->place == IN_TMP;
	int rc = 0;

	if (!tmp || keep_as_rbw)
		rc = keep_rbw(w, r, tmp);
	writer_free(w);
	if (tmp && (rc || !keep_as_rbw))
		drop_temporary(bp, r);
	else
		writer_release(bp, r);
	if (rc)
		(void)slice_error(sl, rc);
}

void replica_mark_restart(struct replica_writer *w, uint64_t until_ms)
{
	char name[STORE_NAME_MAX];
	int fd;

	if (w->replica->place != IN_RBW)
		return;
	(void)snprintf(name, sizeof(name), RESTART_MARKER, w->replica->id);
	fd = openat(w->replica->slice->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dprintf(fd, "%" PRIu64, until_ms) < 0)
		log_warn("op=restart block=%" PRId64 ": cannot write the marker %s: %s; its writer goes on without this node",
			 w->replica->id, name, err_name(neg_errno()));
	if (fd >= 0)
		(void)close(fd);
}

int replica_sync_dir(struct replica_writer *w)
{
	struct live *l = w->replica->live;
	int rc;

	if (l->dir_synced)
		return 0;
	rc = path_sync_dir(w->replica->slice->fd, w->replica->place, w->replica->id);
	if (rc)
		return slice_error(w->replica->slice, rc);
	l->dir_synced = true;
	return 0;
}

/* ---- reading ---- */

static enum replica_state visible_state(const struct replica *r)
{
	return r->state == REPLICA_RUR ? r->live->orig_state : (enum replica_state)r->state;
}

static void reader_length(struct replica_reader *rd)
{
	struct replica *r = rd->replica;
	struct progress_now p;

	if (!rd->partial)
		return;
	/* Before the length; partner: the release store in replica_set_final(). */
	if (atomic_load_explicit(&r->live->prog.final, memory_order_acquire)) {
		rd->block.len = progress_get(&r->live->prog).on_disk;
		rd->state = REPLICA_FINALIZED;
		rd->partial = false;
		return;
	}
	p = progress_get(&r->live->prog);
	rd->block.len = p.acked < p.on_disk ? p.acked : p.on_disk;
	rd->partial_crc = p.last_crc;
}

void replica_read_refresh(struct replica_reader *rd)
{
	reader_length(rd);
}

static void reader_free(struct replica_reader *rd)
{
	if (rd->fd >= 0)
		(void)close(rd->fd);
	if (rd->fd_direct >= 0)
		(void)close(rd->fd_direct);
	if (rd->fd_meta >= 0)
		(void)close(rd->fd_meta);
	free(rd);
}

static int reader_open(struct replica_reader *rd, const struct slice *sl, enum place p, uint64_t gs)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	int rc;

	path_data(data, p, rd->block.id);
	path_meta(meta, p, rd->block.id, gs);
	rd->fd = openat(sl->fd, data, O_RDONLY | O_CLOEXEC);
	if (rd->fd < 0)
		return neg_errno();
	rd->fd_meta = openat(sl->fd, meta, O_RDONLY | O_CLOEXEC);
	if (rd->fd_meta < 0)
		return neg_errno();
	if (!rd->locked)
		open_direct(sl, data, O_RDONLY, &rd->fd_direct, &rd->dio_align);
	rc = meta_read_header(rd->fd_meta, &rd->crc_type, &rd->bytes_per_crc);
	if (!rc && rd->crc_type == CRC_NULL) {
		(void)close(rd->fd_meta);
		rd->fd_meta = -1;
	}
	return rc;
}

/* A reference to a readable replica, and where its files are at this moment. */
static int reader_pick(struct replica_reader *rd, const struct block *b, enum place *ret_place,
		       struct err *err)
{
	struct replica *r = replica_find_locked(rd->bp, b->id);
	enum replica_state st = r ? visible_state(r) : REPLICA_TEMPORARY;

	if (!r || st == REPLICA_TEMPORARY || r->deleting)
		return err_set(err, -ENOENT, "blk_%" PRId64 " is not here", b->id);
	if (st == REPLICA_RWR)
		return err_set(err, -ENOENT, "blk_%" PRId64 " waits for recovery and is not readable",
			       b->id);
	if (r->gs < b->gs)
		return err_set(err, -ESTALE, "blk_%" PRId64 " has stamp %" PRIu64 ", %" PRIu64 " asked",
			       b->id, r->gs, b->gs);
	r->refs++;
	rd->replica = r;
	rd->state = st;
	rd->block = (struct block){r->id, r->gs, r->len};
	rd->partial = st == REPLICA_RBW;
	rd->locked = r->cached;
	(void)snprintf(rd->storage_uuid, sizeof(rd->storage_uuid), "%s", r->slice->vol->uuid);
	*ret_place = r->place;
	return 0;
}

/* The pair moved under our feet, or is being moved: wait for the mover, then look again. */
static void reader_wait(struct replica_reader *rd)
{
	struct replica *r = rd->replica;
	struct timespec until;

	deadline_in(&until, STORE_WAIT_MS);
	while (r->busy && !r->gone)
		if (pthread_cond_timedwait(&rd->bp->changed, &rd->bp->lock, &until))
			break;
	replica_put_locked(rd->bp, r);
}

int replica_read_open(struct block_pool *bp, const struct block *b, struct replica_reader **ret,
		      struct err *err)
{
	enum place place = IN_FINALIZED;
	struct replica_reader *rd;
	int rc = -ENOENT;

	for (int try = 0; try < OPEN_TRIES && rc == -ENOENT; try++) {
		rd = calloc(1, sizeof(*rd));
		if (!rd)
			return err_sys(err, -ENOMEM, "blk_%" PRId64, b->id);
		rd->fd = rd->fd_direct = rd->fd_meta = -1;
		rd->bp = bp;
		pthread_mutex_lock(&bp->lock);
		rc = reader_pick(rd, b, &place, err);
		pthread_mutex_unlock(&bp->lock);
		if (rc) {
			free(rd);
			return rc;
		}
		rc = reader_open(rd, rd->replica->slice, place, rd->block.gs);
		if (!rc) {
			reader_length(rd);
			*ret = rd;
			return 0;
		}
		err_sys(err, rc, "opening blk_%" PRId64 " in %s", b->id,
			rd->replica->slice->vol->path);
		pthread_mutex_lock(&bp->lock);
		reader_wait(rd);
		pthread_mutex_unlock(&bp->lock);
		reader_free(rd);
	}
	/* The map knows it, the disk does not: let the NameNode hear of it. */
	replica_suspect(bp, b);
	return rc;
}

void replica_read_close(struct replica_reader *rd)
{
	struct block_pool *bp = rd->bp;

	pthread_mutex_lock(&bp->lock);
	replica_put_locked(bp, rd->replica);
	pthread_mutex_unlock(&bp->lock);
	reader_free(rd);
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

void replica_set_cached(struct block_pool *bp, int64_t id, bool cached)
{
	struct replica *r;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	if (r)
		r->cached = cached;
	pthread_mutex_unlock(&bp->lock);
}

/* ---- state ---- */

void replica_info_locked(const struct replica *r, struct replica_info *ret)
{
	*ret = (struct replica_info){.block = {r->id, r->gs, r->len}, .state = r->state,
				     .visible = r->len};
	(void)snprintf(ret->storage_uuid, sizeof(ret->storage_uuid), "%s", r->slice->vol->uuid);
	if (r->live && (r->live->writer || visible_state(r) == REPLICA_RBW)) {
		struct progress_now p = progress_get(&r->live->prog);

		ret->block.len = p.on_disk;
		ret->visible = p.acked;
	}
	if (visible_state(r) == REPLICA_RWR || visible_state(r) == REPLICA_TEMPORARY)
		ret->visible = 0;
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
