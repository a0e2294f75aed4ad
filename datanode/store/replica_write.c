/* SPDX-License-Identifier: Apache-2.0 */
/* Writers: a replica is opened in its stage, a new one or one that is here (hdfs-wire 5.5). How a
 * writer ends is in replica_finalize.c. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"

static void promise(struct replica *r, uint64_t bytes)
{
	r->write_state->promised = bytes;
	atomic_fetch_add(&r->slice->vol->promised, bytes);
	atomic_fetch_add(&r->slice->vol->writers, 1);
}

void replica_unpromise(struct replica *r)
{
	atomic_fetch_sub(&r->slice->vol->promised, r->write_state->promised);
	atomic_fetch_sub(&r->slice->vol->writers, 1);
	r->write_state->promised = 0;
}

/* ---- a writer's files ---- */

static void writer_close(struct replica_writer *w)
{
	if (w->fd >= 0)
		(void)close(w->fd);
	if (w->fd_direct >= 0)
		(void)close(w->fd_direct);
	if (w->fd_meta >= 0)
		(void)close(w->fd_meta);
	w->fd = w->fd_direct = w->fd_meta = -1;
}

void writer_free(struct replica_writer *w)
{
	if (w)
		writer_close(w);
	free(w);
}

static struct replica_writer *writer_new(struct block_pool *bp, struct replica *r)
{
	struct replica_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->bp = bp;
	w->replica = r;
	w->slice = r->slice;
	w->fd = w->fd_direct = w->fd_meta = -1;
	w->volume = r->slice->vol->idx;
	(void)snprintf(w->storage_uuid, sizeof(w->storage_uuid), "%s", r->slice->vol->uuid);
	return w;
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
	slice_open_direct(sl, data, O_RDWR, &w->fd_direct, &w->dio_align);
	return 0;
}

/* Files of a new replica. What a crash left under these names goes, and is never written to: it may
 * be a hard link to a finalized block.
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
	rc = writer_open(w, sl, data, meta, O_CREAT | O_EXCL);
	if (rc == -EEXIST) {
		writer_close(w);
		(void)pair_unlink(sl->fd, r->id, r->place, r->gs);
		rc = writer_open(w, sl, data, meta, O_CREAT | O_EXCL);
	}
	if (!rc)
		rc = meta_write_header(w->fd_meta, r->crc_type, r->bytes_per_crc);
	if (rc)
		(void)pair_unlink(sl->fd, r->id, r->place, r->gs);
	return rc;
}

/* @named: its name in rbw/ is on the disk. */
static void writer_publish_open(struct replica_writer *w, struct replica *r,
				const struct write_request *q, bool named)
{
	struct block_pool *bp = w->bp;

	w->block = (struct block){r->id, r->gs, q->block.len};
	w->start_len = r->len;
	w->crc_type = r->crc_type;
	w->bytes_per_crc = r->bytes_per_crc;
	w->pin = q->pin && bp->store->pinning;
	pthread_mutex_lock(&bp->lock);
	r->refs++;
	r->write_state->writer = w;
	r->write_state->stop = q->stop;
	r->write_state->stop_arg = q->stop_arg;
	r->write_state->dir_synced = named;
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
}

/* ---- opening for write: new replicas ---- */

/* It is RBW, and nobody writes it. */
static bool is_left(const struct replica *r)
{
	return r->state == REPLICA_RBW && (!r->write_state || !r->write_state->writer);
}

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
	/* RWR: the NameNode that orders a copy of a newer stamp has only not yet told us to drop
	 * this one. RBW of the same stamp: its writer failed here, and others have ended the block
	 * that a copy is ordered of. */
	return old->state != REPLICA_FINALIZED &&
	       (old->gs < q->block.gs || (old->gs == q->block.gs && is_left(old)));
}

/* This thread would wait for another disk than its own. */
static bool is_elsewhere(const struct replica *r, const struct slice *sl)
{
	return r->slice != sl && !r->slice->vol->failed;
}

/* Leaves @id free in the map, and its old files in @sl gone. Those on a volume out of service stay:
 * when it is back, a newer replica wins. */
static int clear_way(struct block_pool *bp, const struct write_request *q, const struct slice *sl,
		     struct err *err)
{
	struct replica *old = replica_find_locked(bp, q->block.id);
	int rc;

	if (!old)
		return 0;
	if (!may_replace(old, q))
		return err_set(err, -EEXIST,
			       "blk_%" PRId64 " exists with stamp %" PRIu64
			       ", state %s; asked for %" PRIu64,
			       old->id, old->gs, replica_state_name(old->state), q->block.gs);
	if (is_elsewhere(old, sl))
		return REPLICA_ELSEWHERE;
	rc = replica_claim_locked(bp, q->block.id, old->gs, true, &old);
	if (rc == -ESTALE)
		return err_set(err, -EEXIST, "blk_%" PRId64 " changed meanwhile", q->block.id);
	if (rc)
		return err_set(err, rc, "blk_%" PRId64 ": its writer did not stop within %d s",
			       q->block.id, STORE_WAIT_MS / 1000);
	if (!old)
		return 0;
	if (!may_replace(old, q)) {
		replica_release_locked(bp, old);
		return err_set(err, -EEXIST, "blk_%" PRId64 " changed meanwhile", q->block.id);
	}
	if (is_elsewhere(old, sl)) {
		replica_release_locked(bp, old);
		return REPLICA_ELSEWHERE;
	}
	if (!old->slice->vol->failed) {
		pthread_mutex_unlock(&bp->lock);
		volume_begin(old->slice->vol);
		rc = pair_unlink(old->slice->fd, old->id, old->place, old->gs);
		volume_end(old->slice->vol);
		pthread_mutex_lock(&bp->lock);
	}
	if (rc) {
		replica_release_locked(bp, old);
		return err_sys(err, rc, "removing the older replica of blk_%" PRId64, q->block.id);
	}
	replica_uncount(old);
	replica_remove_locked(bp, old);
	return 0;
}

static bool makes_new(const struct write_request *q)
{
	return q->stage == STAGE_CREATE || q->stage == STAGE_TRANSFER_RBW ||
	       q->stage == STAGE_TRANSFER_FINALIZED;
}

/* Is an older replica in the way, on a volume in service? */
static bool find_older(struct block_pool *bp, const struct write_request *q, uint32_t *ret_volume)
{
	const struct replica *old;
	bool found;

	pthread_mutex_lock(&bp->lock);
	old = replica_find_locked(bp, q->block.id);
	found = old && may_replace(old, q) && !old->slice->vol->failed;
	if (found)
		*ret_volume = old->slice->vol->idx;
	pthread_mutex_unlock(&bp->lock);
	return found;
}

uint32_t replica_write_volume(struct block_pool *bp, struct write_request *q)
{
	q->clears = makes_new(q) && find_older(bp, q, &q->volume);
	if (!makes_new(q)) {
		q->volume = replica_volume(bp, q->block.id);
	} else if (!q->clears) {
		const struct slice *sl = slice_choose_for(bp, q, q->block.len, q->tried, NULL);

		q->volume = sl ? sl->vol->idx : STORE_VOLUME_ANY;
	}
	q->chosen = q->volume != STORE_VOLUME_ANY;
	return q->volume;
}

static struct replica *new_replica(const struct write_request *q, struct slice *sl)
{
	const bool rbw = q->from_client && q->stage == STAGE_CREATE;
	struct replica *r = calloc(1, sizeof(*r));

	if (!r || replica_need_write_state(r)) {
		free(r);
		return NULL;
	}
	r->id = q->block.id;
	r->gs = rbw && q->new_gs ? q->new_gs : q->block.gs;
	r->slice = sl;
	r->state = rbw ? REPLICA_RBW : REPLICA_TEMPORARY;
	r->place = rbw ? IN_RBW : IN_TMP;
	r->crc_type = (uint8_t)q->crc_type;
	r->bytes_per_crc = q->bytes_per_crc;
	r->busy = true;
	r->write_state->stop = q->stop;
	r->write_state->stop_arg = q->stop_arg;
	return r;
}

static int new_files(struct block_pool *bp, struct replica *r, struct replica_writer **ret)
{
	int rc;

	*ret = writer_new(bp, r);
	if (!*ret)
		return -ENOMEM;
	volume_begin(r->slice->vol);
	rc = create_files(*ret, r);
	volume_end(r->slice->vol);
	return rc;
}

bool replica_blames_volume(int rc)
{
	return store_is_disk_error(rc) || rc == -ENOENT || rc == -ENOTDIR || rc == -ESTALE;
}

static int open_new_in(struct block_pool *bp, const struct write_request *q, struct slice *sl,
		       struct replica_writer **ret, struct err *err)
{
	struct replica_writer *w = NULL;
	struct replica *r = new_replica(q, sl);
	int rc;

	if (!r)
		return err_sys(err, -ENOMEM, "blk_%" PRId64, q->block.id);
	pthread_mutex_lock(&bp->lock);
	rc = clear_way(bp, q, sl, err);
	if (!rc && q->clears)
		rc = REPLICA_ELSEWHERE;
	if (!rc && sl->vol->failed) /* who stops the writers of the volume has been here */
		rc = err_set(err, -EIO, "%s is out of service", sl->vol->path);
	if (rc) {
		pthread_mutex_unlock(&bp->lock);
		free(r->write_state);
		free(r);
		return rc;
	}
	replica_add_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);

	promise(r, q->block.len);
	rc = new_files(bp, r, &w);
	if (rc) {
		err_sys(err, rc, "creating blk_%" PRId64 " in %s", r->id, sl->vol->path);
		writer_free(w);
		pthread_mutex_lock(&bp->lock);
		replica_unpromise(r);
		replica_remove_locked(bp, r);
		pthread_mutex_unlock(&bp->lock);
		if (replica_blames_volume(rc))
			volume_suspect(sl->vol);
		return rc;
	}
	replica_count(r);
	writer_publish_open(w, r, q, false);
	*ret = w;
	if (r->state == REPLICA_RBW)
		store_event(bp, sl, &(struct block){w->block.id, w->block.gs, q->block.len},
			    STORE_RECEIVING, NULL);
	return 0;
}

/* A volume that is in trouble, or full after all, is not the end: the others are tried. */
static int open_new(struct block_pool *bp, struct write_request *q, struct replica_writer **ret,
		    struct err *err)
{
	struct slice *sl = q->chosen ? &bp->slices[q->volume] : NULL;
	int rc;

	if (!sl)
		return slice_choose_for(bp, q, q->block.len, q->tried, err) ? REPLICA_ELSEWHERE
									    : -ENOSPC;
	rc = open_new_in(bp, q, sl, ret, err);
	if (q->clears || (!replica_blames_volume(rc) && rc != -ENOSPC))
		return rc;
	q->tried |= 1ull << sl->vol->idx;
	if (!slice_choose_for(bp, q, q->block.len, q->tried, NULL))
		return rc;
	log_warn("op=write block=%" PRId64 " dir=%s: %s; going on in another one", q->block.id,
		 sl->vol->path, err_name(rc));
	return REPLICA_ELSEWHERE;
}

/* ---- opening for write: append and recovery ---- */

/* The claimed replica against the request (hdfs-wire 5.5). */
static int check_existing(const struct replica *r, const struct write_request *q, struct err *err)
{
	struct progress_now p = {r->len, r->len, r->len, 0, false};
	bool finalized = r->state == REPLICA_FINALIZED, rbw = r->state == REPLICA_RBW;
	bool append = q->stage == STAGE_APPEND, streaming = q->stage == STAGE_STREAMING_RECOVERY;
	bool gs_ok = append ? r->gs == q->block.gs : r->gs >= q->block.gs && r->gs <= q->new_gs;

	if (rbw && r->write_state)
		p = progress_get(&r->write_state->prog);
	if (append ? !finalized : streaming ? !rbw : !(finalized || rbw))
		return err_set(err, -EINVAL, "blk_%" PRId64 " is in state %s, unfit for stage %s",
			       r->id, replica_state_name(r->state), write_stage_name(q->stage));
	if (!gs_ok || q->new_gs < r->gs)
		return err_set(err, -EINVAL,
			       "blk_%" PRId64 " has stamp %" PRIu64 "; asked for %" PRIu64
			       ", new %" PRIu64,
			       r->id, r->gs, q->block.gs, q->new_gs);
	if (streaming ? p.acked < q->min_bytes || p.received > q->max_bytes || p.on_disk < p.acked
		      : r->len != q->min_bytes || p.acked != p.received || p.on_disk != p.acked)
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
	const enum place from = r->place;
	uint64_t keep = r->len;
	int rc;

	if (from == IN_RBW && q->stage == STAGE_STREAMING_RECOVERY)
		keep = progress_get(&r->write_state->prog).acked;
	if (from == IN_FINALIZED)
		rc = pair_move(sl, r->id, IN_FINALIZED, r->gs, IN_RBW, q->new_gs);
	else
		rc = pair_restamp(sl->fd, r->id, from, r->gs, r->len, q->new_gs, keep);
	if (rc)
		return rc;
	pthread_mutex_lock(&sl->bp->lock);
	r->place = IN_RBW;
	r->gs = q->new_gs;
	r->len = keep;
	pthread_mutex_unlock(&sl->bp->lock);
	/* The NameNode notes the new stamp for good soon: an older one is stale then. */
	rc = path_sync_dir(sl->fd, IN_RBW, r->id);
	return rc || from != IN_FINALIZED ? rc : path_sync_dir(sl->fd, IN_FINALIZED, r->id);
}

static int load_meta_header(struct replica *r, int fd_meta)
{
	enum crc_type type;
	int rc = meta_read_header(fd_meta, &type, &r->bytes_per_crc);

	if (!rc)
		r->crc_type = (uint8_t)type;
	return rc;
}

static int reopen_with(struct replica *r, const struct write_request *q, struct replica_writer *w)
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
	if (!rc)
		progress_set(&r->write_state->prog,
			     &(struct progress_now){r->len, r->len, r->len, crc, false});
	return rc;
}

/* May @q have the claimed replica? Then it can be written. */
static int check_claimed(const struct block_pool *bp, const struct write_request *q,
			 struct replica *r, struct err *err)
{
	int rc;

	if (q->chosen && is_elsewhere(r, &bp->slices[q->volume]))
		return REPLICA_ELSEWHERE;
	if (r->slice->vol->failed)
		return err_set(err, -EIO, "%s is out of service", r->slice->vol->path);
	rc = check_existing(r, q, err);
	return rc ? rc : replica_need_write_state(r);
}

static int claim_existing(struct block_pool *bp, const struct write_request *q,
			  struct replica **ret, struct err *err)
{
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, q->block.id, 0, q->stage != STAGE_APPEND, &r);
	if (rc) {
		err_set(err, rc, "blk_%" PRId64 ": its writer did not stop", q->block.id);
	} else if (!r) {
		rc = err_set(err, -ENOENT, "blk_%" PRId64 " is not here", q->block.id);
	} else {
		rc = check_claimed(bp, q, r, err);
		if (rc) {
			replica_release_locked(bp, r);
		} else {
			slice_note_stamp_locked(r->slice, q->new_gs);
			r->write_state->stop = q->stop;
			r->write_state->stop_arg = q->stop_arg;
			*ret = r;
		}
	}
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

/* Recovery of a close: the claimed replica is finalized at the new stamp, for nobody writes it. */
static int close_claimed(struct block_pool *bp, struct replica *r, const struct write_request *q)
{
	const int rc =
		pair_restamp(r->slice->fd, r->id, r->place, r->gs, r->len, q->new_gs, r->len);

	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	r->gs = q->new_gs;
	pthread_mutex_unlock(&bp->lock);
	return replica_finalize_claimed(bp, r);
}

/* A writer of the claimed replica, which is RBW from now on. */
static int reopen_claimed(struct block_pool *bp, struct replica *r, const struct write_request *q,
			  struct replica_writer **ret)
{
	struct replica_writer *w = writer_new(bp, r);
	const int rc = w ? reopen_with(r, q, w) : -ENOMEM;

	if (rc) {
		writer_free(w);
		return rc;
	}
	pthread_mutex_lock(&bp->lock);
	r->state = REPLICA_RBW;
	pthread_mutex_unlock(&bp->lock);
	*ret = w;
	return 0;
}

static void publish_reopened(struct replica_writer *w, struct replica *r,
			     const struct write_request *q)
{
	const struct block b = {r->id, r->gs, q->block.len};

	promise(r, q->block.len > r->len ? q->block.len - r->len : 0);
	/* An earlier writer may have synced bytes: replica_finalize() syncs them, too. */
	writer_publish_open(w, r, q, true);
	if (q->stage != STAGE_STREAMING_RECOVERY)
		store_event(w->bp, w->slice, &b, STORE_RECEIVING, NULL);
}

static int open_existing(struct block_pool *bp, const struct write_request *q,
			 struct replica_writer **ret, struct err *err)
{
	struct replica *r = NULL;
	struct slice *sl;
	struct block closed;
	int rc = claim_existing(bp, q, &r, err);

	if (rc)
		return rc;
	sl = r->slice;
	volume_begin(sl->vol);
	atomic_fetch_sub(&sl->used, pair_bytes(r));
	rc = q->stage == STAGE_CLOSE_RECOVERY ? close_claimed(bp, r, q)
					      : reopen_claimed(bp, r, q, ret);
	atomic_fetch_add(&sl->used, pair_bytes(r));
	volume_end(sl->vol);
	if (*ret) {
		publish_reopened(*ret, r, q);
		return 0;
	}
	closed = (struct block){r->id, r->gs, r->len};
	pthread_mutex_lock(&bp->lock);
	r->write_state->stop = NULL;
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	if (rc) {
		err_sys(err, rc, "reopening blk_%" PRId64, q->block.id);
		if (replica_blames_volume(rc))
			volume_suspect(sl->vol);
		return rc;
	}
	store_event(bp, sl, &closed, STORE_RECEIVED, NULL);
	return 0;
}

static int open_on_volume(struct block_pool *bp, struct write_request *q,
			  struct replica_writer **ret, struct err *err)
{
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
	return err_set(err, -EINVAL, "stage %s does not open a block", write_stage_name(q->stage));
}

int replica_write_open(struct block_pool *bp, struct write_request *q, struct replica_writer **ret,
		       struct err *err)
{
	const bool anywhere = !q->chosen;
	int rc;

	*ret = NULL;
	if (q->crc_type > CRC_CRC32C || q->bytes_per_crc == 0 || q->bytes_per_crc > META_BPC_MAX)
		return err_set(err, -EINVAL, "checksum type %d with %u bytes per checksum",
			       (int)q->crc_type, q->bytes_per_crc);
	do {
		if (anywhere)
			(void)replica_write_volume(bp, q);
		rc = open_on_volume(bp, q, ret, err);
	} while (anywhere && rc == REPLICA_ELSEWHERE);
	if (anywhere) { /* the next time, too */
		q->chosen = false;
		q->tried = 0;
	}
	return rc;
}

void replica_write_begin(struct replica_writer *w)
{
	volume_begin(w->slice->vol);
}

void replica_write_end(struct replica_writer *w)
{
	volume_end(w->slice->vol);
}
