/* SPDX-License-Identifier: Apache-2.0 */
/* Deletion, doubt and block recovery: what happens to replicas nobody writes. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#define VERIFY_CHUNK (1u << 20)

/* ---- deletion ---- */

static void delete_one(struct replica *r)
{
	struct slice *sl = r->slice;
	struct block_pool *bp = sl->bp;
	struct block b = {r->id, r->gs, r->len};
	bool quiet = r->quiet;
	int rc = pair_unlink(sl->fd, r->id, r->place, r->gs);

	if (rc) {
		log_warn("op=delete block=%" PRId64 "_%" PRIu64 " dir=%s rc=%d error=\"%s\"", b.id, b.gs,
			 sl->vol->path, rc, err_name(rc));
		(void)slice_error(sl, rc);
	}
	pthread_mutex_lock(&bp->lock);
	if (!r->gone) {
		atomic_fetch_sub(&sl->used, pair_bytes(r));
		atomic_fetch_sub(&sl->blocks, 1);
		replica_remove_locked(bp, r);
	}
	replica_put_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	if (!quiet && !rc)
		store_event(bp, sl, &b, STORE_DELETED, NULL);
}

void *store_deleter(void *arg)
{
	struct store *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct list *l = list_pop(&s->doomed);

		if (l) {
			pthread_mutex_unlock(&s->lock);
			delete_one(container_of(l, struct replica, doomed));
			pthread_mutex_lock(&s->lock);
		} else if (s->closing) {
			break;
		} else {
			pthread_cond_wait(&s->doomed_cond, &s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int replica_invalidate(struct block_pool *bp, const struct block *b, bool quiet)
{
	struct store *s = bp->store;
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, b->id);
	rc = !r ? -ENOENT : r->gs != b->gs ? -ESTALE : 0;
	if (!rc)
		rc = replica_claim_locked(bp, b->id, true, &r);
	if (!rc && (!r || r->gs != b->gs)) { /* changed while its writer stopped */
		if (r)
			replica_release_locked(bp, r);
		rc = r ? -ESTALE : -ENOENT;
	}
	if (!rc) {
		/* Stays busy and in the map until its files are gone, so that nobody makes new
		 * ones of this name meanwhile. */
		r->deleting = true;
		r->quiet = quiet;
		r->refs++;
		pthread_mutex_lock(&s->lock);
		list_add_tail(&s->doomed, &r->doomed);
		pthread_cond_signal(&s->doomed_cond);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void store_finalize_upgrade(struct block_pool *bp)
{
	char path[4096];

	for (uint32_t i = 0; i < bp->store->volume_count; i++) {
		const struct volume *v = &bp->store->volumes[i];

		(void)snprintf(path, sizeof(path), "%s/current/%s/previous", v->path, bp->ns.pool_id);
		if (v->failed || access(path, F_OK))
			continue;
		log_info("op=finalize-upgrade dir=%s: removing", path);
		if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))
			log_warn("op=finalize-upgrade dir=%s: %s", path, err_name(neg_errno()));
	}
}

/* ---- doubt ---- */

/* Every chunk against its CRC. -EBADMSG: corrupt. */
static int verify_reader(const struct replica_reader *rd)
{
	uint32_t bpc = rd->bytes_per_crc;
	size_t step = VERIFY_CHUNK / bpc ? VERIFY_CHUNK / bpc * bpc : bpc;
	_cleanup_free_ uint8_t *buf = malloc(step), *crcs = malloc(step / bpc * 4 + 4);
	uint64_t end = rd->block.len;
	struct stat st;
	int rc = 0;

	if (!buf || !crcs)
		return -ENOMEM;
	if (fstat(rd->fd, &st))
		return neg_errno();
	if ((uint64_t)st.st_size < end)
		return -EBADMSG;
	if (rd->fd_meta < 0)
		return 0;
	if (rd->partial)
		end = end / bpc * bpc; /* the last chunk may change under us */
	for (uint64_t off = 0; !rc && off < end; off += step) {
		size_t n = end - off < step ? (size_t)(end - off) : step;

		rc = read_full(rd->fd, buf, n, off);
		if (!rc)
			rc = read_full(rd->fd_meta, crcs, crc_bytes(rd->crc_type, n, bpc),
				       META_HEADER + off / bpc * 4);
		if (rc == -ENODATA || (!rc && crc_verify(rd->crc_type, buf, n, bpc, crcs) != -1))
			rc = -EBADMSG;
	}
	return rc;
}

static void report_bad(struct block_pool *bp, const struct replica_info *info, int why)
{
	struct store_listener l;

	log_error("op=verify block=%" PRId64 "_%" PRIu64
		  " storage=%s rc=%d: replica is corrupt, reporting",
		  info->block.id, info->block.gs, info->storage_uuid, why);
	metric_add(METRIC_DN_CORRUPT, 1);
	pthread_mutex_lock(&bp->store->lock);
	l = bp->store->listener;
	pthread_mutex_unlock(&bp->store->lock);
	if (l.on_bad)
		l.on_bad(l.arg, bp, info->storage_uuid, &info->block);
}

/* The files as the map says they are; without the retries of replica_read_open(). */
static int open_as_known(struct block_pool *bp, int64_t id, struct replica_info *info,
			 struct replica_reader *rd)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	struct replica *r;
	int fd = -1;

	if (replica_get(bp, id, info) || info->state == REPLICA_RWR ||
	    info->state == REPLICA_TEMPORARY)
		return -EAGAIN;
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	if (r && !r->busy) {
		path_data(data, r->place, id);
		path_meta(meta, r->place, id, r->gs);
		fd = r->slice->fd;
	}
	pthread_mutex_unlock(&bp->lock);
	if (fd < 0)
		return -EAGAIN;
	rd->block = (struct block){id, info->block.gs, info->visible};
	rd->partial = info->state == REPLICA_RBW;
	rd->fd = openat(fd, data, O_RDONLY | O_CLOEXEC);
	rd->fd_meta = openat(fd, meta, O_RDONLY | O_CLOEXEC);
	if (rd->fd < 0 || rd->fd_meta < 0)
		return neg_errno();
	return meta_read_header(rd->fd_meta, &rd->crc_type, &rd->bytes_per_crc);
}

void replica_suspect(struct block_pool *bp, const struct block *b)
{
	struct replica_reader rd = {.bp = bp, .fd = -1, .fd_meta = -1, .fd_direct = -1};
	struct replica_info info, now;
	int rc = open_as_known(bp, b->id, &info, &rd);

	if (!rc)
		rc = verify_reader(&rd);
	if (rd.fd >= 0)
		(void)close(rd.fd);
	if (rd.fd_meta >= 0)
		(void)close(rd.fd_meta);
	if (rc == -EIO)
		store_volume_suspect(bp->store, info.storage_uuid);
	/* It may have been deleted or restamped while we looked. */
	if (!rc || rc == -EAGAIN || rc == -ENOMEM || rc == -EMFILE || replica_get(bp, b->id, &now) ||
	    now.block.gs != info.block.gs || now.state != info.state)
		return;
	report_bad(bp, &info, rc);
}

/* ---- block recovery (hdfs-wire 8.4) ---- */

static int check_recovery(const struct replica *r, const struct block *b, uint64_t recovery_id,
			  struct err *err)
{
	if (r->state == REPLICA_RUR && r->live->recovery_id >= recovery_id)
		return err_set(err, -EBUSY,
			       "blk_%" PRId64 " is under recovery %" PRIu64 ", %" PRIu64 " asked",
			       r->id, r->live->recovery_id, recovery_id);
	if (r->gs < b->gs)
		return err_set(err, -ESTALE, "blk_%" PRId64 " has stamp %" PRIu64 ", %" PRIu64 " asked",
			       r->id, r->gs, b->gs);
	if (r->gs >= recovery_id)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " has stamp %" PRIu64 ", recovery id %" PRIu64,
			       r->id, r->gs, recovery_id);
	return 0;
}

/* The files must hold what the replica claims. */
static int check_length(const struct replica *r, struct err *err)
{
	char data[STORE_NAME_MAX];
	struct stat st;

	path_data(data, r->place, r->id);
	if (fstatat(r->slice->fd, data, &st, 0))
		return err_sys(err, neg_errno(), "blk_%" PRId64, r->id);
	if ((uint64_t)st.st_size < r->len)
		return err_set(err, -EIO,
			       "blk_%" PRId64 " has %" PRIu64 " bytes on disk, %" PRIu64 " expected",
			       r->id, (uint64_t)st.st_size, r->len);
	return 0;
}

int replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
			  struct replica_info *ret, struct err *err)
{
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, b->id, true, &r);
	if (rc || !r) {
		pthread_mutex_unlock(&bp->lock);
		return rc ? err_set(err, rc, "blk_%" PRId64 ": its writer did not stop", b->id) :
			    err_set(err, -ENOENT, "blk_%" PRId64 " is not here", b->id);
	}
	rc = check_recovery(r, b, recovery_id, err);
	if (!rc)
		rc = check_length(r, err);
	if (!rc)
		rc = replica_make_live(r);
	if (!rc) {
		if (r->state != REPLICA_RUR)
			r->live->orig_state = r->state;
		r->state = REPLICA_RUR;
		r->live->recovery_id = recovery_id;
		*ret = (struct replica_info){.block = {r->id, r->gs, r->len},
					     .state = r->live->orig_state, .visible = r->len};
		(void)snprintf(ret->storage_uuid, sizeof(ret->storage_uuid), "%s",
			       r->slice->vol->uuid);
	}
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

static int copy_file(int dir, const char *from, const char *to, uint64_t len)
{
	_cleanup_close_ int in = openat(dir, from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = -1;
	off_t off = 0;

	if (in < 0)
		return neg_errno();
	(void)unlinkat(dir, to, 0);
	out = openat(dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (out < 0)
		return neg_errno();
	while ((uint64_t)off < len) {
		ssize_t n = copy_file_range(in, &off, out, NULL, len - (uint64_t)off, 0);

		if (n <= 0)
			return n ? neg_errno() : -EIO;
	}
	return ret_errno(fsync(out));
}

/* Truncate of a file in a snapshot: a new block from the beginning of this one. */
static int copy_shortened(struct block_pool *bp, struct replica *r, int64_t new_id, uint64_t gs,
			  uint64_t len, struct replica **ret)
{
	char from[STORE_NAME_MAX], to[STORE_NAME_MAX];
	int fd = r->slice->fd, rc;
	struct replica *n = calloc(1, sizeof(*n));
	struct stat st;

	if (!n)
		return -ENOMEM;
	path_data(from, r->place, r->id);
	path_data(to, IN_TMP, new_id);
	rc = copy_file(fd, from, to, r->len);
	path_meta(from, r->place, r->id, r->gs);
	path_meta(to, IN_TMP, new_id, r->gs);
	if (!rc)
		rc = fstatat(fd, from, &st, 0) ? neg_errno() : 0;
	if (!rc)
		rc = copy_file(fd, from, to, (uint64_t)st.st_size);
	if (!rc)
		rc = pair_restamp(fd, new_id, IN_TMP, r->gs, r->len, gs, len);
	if (!rc)
		rc = pair_move(fd, new_id, IN_TMP, gs, IN_FINALIZED, gs);
	if (rc) {
		(void)pair_unlink(fd, new_id, IN_TMP, r->gs);
		free(n);
		return rc;
	}
	*n = (struct replica){.id = new_id, .gs = gs, .len = len, .slice = r->slice,
			      .state = REPLICA_FINALIZED, .place = IN_FINALIZED};
	pthread_mutex_lock(&bp->lock);
	if (replica_find_locked(bp, new_id)) {
		rc = -EEXIST;
		free(n);
	} else {
		replica_add_locked(bp, n);
		atomic_fetch_add(&r->slice->used, pair_bytes(n));
		atomic_fetch_add(&r->slice->blocks, 1);
		*ret = n;
	}
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

/* Shorten, restamp and finalize the claimed replica itself. */
static int recover_in_place(struct block_pool *bp, struct replica *r, uint64_t gs, uint64_t len)
{
	int fd = r->slice->fd;
	int rc = pair_restamp(fd, r->id, r->place, r->gs, r->len, gs, len);

	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	r->gs = gs;
	r->len = len;
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	pthread_mutex_unlock(&bp->lock);
	if (r->place != IN_FINALIZED)
		rc = pair_move(fd, r->id, r->place, gs, IN_FINALIZED, gs);
	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	r->place = IN_FINALIZED;
	r->state = REPLICA_FINALIZED;
	replica_set_final(r);
	pthread_mutex_unlock(&bp->lock);
	return path_sync_dir(fd, IN_FINALIZED, r->id);
}

static int check_update(const struct replica *r, const struct block *b, uint64_t recovery_id,
			uint64_t new_len, struct err *err)
{
	if (r->state != REPLICA_RUR || r->live->recovery_id != recovery_id)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " is not under recovery %" PRIu64
			       " (state %d, recovery %" PRIu64 ")",
			       r->id, recovery_id, r->state, r->live ? r->live->recovery_id : 0);
	if (r->gs != b->gs || r->len < b->len || r->len < new_len)
		return err_set(err, -EINVAL,
			       "blk_%" PRId64 "_%" PRIu64 " has %" PRIu64 " bytes; recovery says "
			       "stamp %" PRIu64 ", %" PRIu64 " bytes, new length %" PRIu64,
			       r->id, r->gs, r->len, b->gs, b->len, new_len);
	return 0;
}

int replica_update_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
			    uint64_t new_len, int64_t new_block_id, char *ret_storage_uuid,
			    struct err *err)
{
	bool copy = new_block_id > 0 && new_block_id != b->id;
	struct replica *r, *n = NULL;
	struct slice *sl;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, b->id, true, &r);
	if (rc || !r) {
		pthread_mutex_unlock(&bp->lock);
		return err_set(err, rc ? rc : -ENOENT, "blk_%" PRId64 " is %s", b->id,
			       rc ? "busy" : "not here");
	}
	rc = check_update(r, b, recovery_id, new_len, err);
	if (rc) {
		replica_release_locked(bp, r);
		pthread_mutex_unlock(&bp->lock);
		return rc;
	}
	pthread_mutex_unlock(&bp->lock);

	sl = r->slice;
	rc = copy ? copy_shortened(bp, r, new_block_id, recovery_id, new_len, &n) :
		    recover_in_place(bp, r, recovery_id, new_len);
	pthread_mutex_lock(&bp->lock);
	if (copy)
		r->state = (uint8_t)r->live->orig_state;
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	if (rc) {
		err_sys(err, rc, "recovering blk_%" PRId64, b->id);
		return slice_error(sl, rc);
	}
	(void)snprintf(ret_storage_uuid, BLOCK_UUID_MAX, "%s", sl->vol->uuid);
	store_event(bp, sl, &(struct block){copy ? new_block_id : b->id, recovery_id, new_len},
		    STORE_RECEIVED, NULL);
	return 0;
}
