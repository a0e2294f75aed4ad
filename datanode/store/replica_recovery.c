/* SPDX-License-Identifier: Apache-2.0 */
/* Deletion and block recovery: what happens to replicas nobody writes. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

/* ---- deletion ---- */

struct deletion { /* an order; in volume->doomed */
	struct list link;
	struct block_pool *bp; /* borrowed */
	struct block block;    /* id and stamp */
	struct replica *r;     /* referenced */
	bool claimed, quiet;   /* claimed: nobody else uses it; quiet: no DELETED report */
};

static bool is_idle(const struct replica *r)
{
	return !r->busy && !(r->write_state && r->write_state->writer);
}

/* The replica is ours: it stays busy and in the map until its files are gone, so that nobody makes
 * new ones of this name meanwhile. */
static void doom_locked(struct deletion *d, struct replica *r)
{
	r->deleting = true;
	d->claimed = true;
}

/* At once, also when the disk does not answer and its files stay for long. No lock is held. */
static void tell_cached(const struct deletion *d, bool cached)
{
	if (cached)
		store_event(d->bp, d->r->slice, &d->block, STORE_GONE, NULL);
}

static void deletion_queue(struct deletion *d, struct volume *v)
{
	pthread_mutex_lock(&v->store->lock);
	list_add_tail(&v->doomed, &d->link);
	pthread_cond_signal(&v->doomed_cond);
	pthread_mutex_unlock(&v->store->lock);
}

static void delete_files(const struct deletion *d)
{
	struct replica *r = d->r;
	struct slice *sl = r->slice;
	struct block_pool *bp = d->bp;
	struct block b = {r->id, r->gs, r->len};
	int rc = bp->trash && r->place == IN_FINALIZED
			 ? pair_trash(sl->fd, r->id, r->gs)
			 : pair_unlink(sl->fd, r->id, r->place, r->gs);

	if (rc) {
		log_warn("op=delete block=%" PRId64 "_%" PRIu64 " dir=%s rc=%d error=\"%s\"", b.id,
			 b.gs, sl->vol->path, rc, err_name(rc));
		(void)slice_error(sl, rc);
	}
	/* Told while the id is still taken: a new replica of it is reported after this. */
	if (!d->quiet && !rc)
		store_event(bp, sl, &b, STORE_DELETED, NULL);
	pthread_mutex_lock(&bp->lock);
	if (!r->gone) {
		replica_uncount(r);
		replica_remove_locked(bp, r);
	}
	replica_put_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
}

/* Of a replica that was in use: stops its writer, waits for who is in a call on its files. */
static int deletion_claim(struct deletion *d)
{
	bool cached = false;
	struct replica *r;
	int rc;

	pthread_mutex_lock(&d->bp->lock);
	rc = replica_claim_locked(d->bp, d->block.id, d->block.gs, true, &r);
	if (!rc && r != d->r) {
		if (r)
			replica_release_locked(d->bp, r);
		rc = -ENOENT;
	}
	d->r->ordered = false;
	if (!rc) {
		doom_locked(d, r);
		cached = r->cached;
	} else {
		replica_put_locked(d->bp, d->r);
	}
	pthread_mutex_unlock(&d->bp->lock);
	tell_cached(d, cached);
	return rc;
}

static void delete_one(struct volume *v, struct deletion *d)
{
	const int rc = d->claimed ? 0 : deletion_claim(d);

	if (!rc && d->r->slice->vol != v) { /* it was moved */
		deletion_queue(d, d->r->slice->vol);
		return;
	}
	if (!rc)
		delete_files(d);
	else /* gone, restamped or still in use: the NameNode sees it in the next report */
		log_info("op=delete block=%" PRId64 "_%" PRIu64 " rc=%d: %s", d->block.id,
			 d->block.gs, rc, err_name(rc));
	free(d);
}

enum chore { NO_CHORE, EMPTY_TRASH, REMOVE_PREVIOUS };

/* Those of a volume out of service wait until it is back: see volume_back(). */
static enum chore take_chore_locked(const struct volume *v, struct slice **ret)
{
	struct store *s = v->store;

	for (uint32_t i = 0; i < s->pool_count && !v->failed; i++) {
		struct slice *sl = &s->pools[i]->slices[v->idx];

		*ret = sl;
		if (sl->empty_trash) {
			sl->empty_trash = false;
			return EMPTY_TRASH;
		}
		if (sl->remove_previous) {
			sl->remove_previous = false;
			return REMOVE_PREVIOUS;
		}
	}
	return NO_CHORE;
}

static void do_chore(struct slice *sl, enum chore what)
{
	if (what == EMPTY_TRASH)
		slice_empty_trash(sl);
	else
		slice_remove_previous(sl);
}

/* The volume may have gone out of service meanwhile, after it had done so @outs times: then it is
 * done again when the volume is back. */
static void chore_done_locked(struct slice *sl, enum chore what, unsigned int outs)
{
	if (!sl->vol->failed && sl->vol->outs == outs)
		return;
	if (what == EMPTY_TRASH)
		sl->empty_trash = !sl->bp->trash;
	else
		sl->remove_previous = true;
}

void *volume_deleter(void *arg)
{
	struct volume *v = arg;
	struct store *s = v->store;
	struct slice *sl;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct list *l = list_pop(&v->doomed);
		const unsigned int outs = v->outs;
		const enum chore what = l || s->closing ? NO_CHORE : take_chore_locked(v, &sl);

		if (!l && what == NO_CHORE && s->closing)
			break;
		if (!l && what == NO_CHORE) {
			pthread_cond_wait(&v->doomed_cond, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		if (l)
			delete_one(v, container_of(l, struct deletion, link));
		else
			do_chore(sl, what);
		open_replica_reap(&s->open_replicas, v->idx);
		pthread_mutex_lock(&s->lock);
		if (!l)
			chore_done_locked(sl, what, outs);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int replica_invalidate(struct block_pool *bp, const struct block *b, bool quiet)
{
	struct deletion *d = malloc(sizeof(*d));
	struct volume *v = NULL;
	bool cached = false;
	struct replica *r;
	int rc;

	if (!d)
		return -ENOMEM;
	*d = (struct deletion){.bp = bp, .block = *b, .quiet = quiet};
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, b->id);
	rc = !r ? -ENOENT : r->gs != b->gs ? -ESTALE : 0;
	if (!rc && !r->deleting && !r->ordered) { /* else it is on its way */
		v = r->slice->vol;
		d->r = r;
		r->refs++;
		if (is_idle(r)) {
			replica_take_locked(bp, r);
			doom_locked(d, r);
			cached = r->cached;
		} else {
			r->ordered = true;
		}
	}
	pthread_mutex_unlock(&bp->lock);
	tell_cached(d, cached);
	if (v)
		deletion_queue(d, v);
	else
		free(d);
	return rc;
}

/* ---- block recovery (hdfs-wire 8.4) ---- */

static int check_recovery(const struct replica *r, const struct block *b, uint64_t recovery_id,
			  struct err *err)
{
	if (r->slice->vol->failed)
		return err_set(err, -EIO, "blk_%" PRId64 " is in %s, which is out of service",
			       r->id, r->slice->vol->path);
	if (r->state == REPLICA_RUR && r->write_state->recovery_id >= recovery_id)
		return err_set(err, -EBUSY,
			       "blk_%" PRId64 " is under recovery %" PRIu64 ", %" PRIu64 " asked",
			       r->id, r->write_state->recovery_id, recovery_id);
	if (r->gs < b->gs)
		return err_set(err, -ENODATA,
			       "blk_%" PRId64 " has stamp %" PRIu64 ", %" PRIu64 " asked", r->id,
			       r->gs, b->gs);
	if (r->gs >= recovery_id)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " has stamp %" PRIu64 ", recovery id %" PRIu64, r->id,
			       r->gs, recovery_id);
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
			       "blk_%" PRId64 " has %" PRIu64 " bytes on disk, %" PRIu64
			       " expected",
			       r->id, (uint64_t)st.st_size, r->len);
	return 0;
}

/* A replica of @b, of its stamp or a newer one, may be there. */
static bool slice_may_have_locked(const struct slice *sl, const struct block *b)
{
	return !sl->loaded || b->gs <= sl->newest_gs;
}

/* A primary drops the block when all nodes say so: what is on a volume that is out of service may
 * be here again soon. */
static int not_here_locked(const struct block_pool *bp, const struct block *b, struct err *err)
{
	for (uint32_t i = 0; i < bp->store->volume_count; i++) {
		const struct slice *sl = &bp->slices[i];

		if (sl->vol->failed && slice_may_have_locked(sl, b))
			return err_set(err, -EIO,
				       "blk_%" PRId64 " is not here, but may be in %s, which is "
				       "out of service",
				       b->id, sl->vol->path);
	}
	return err_set(err, -ENOENT, "blk_%" PRId64 " is not here", b->id);
}

int replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
			  struct replica_info *ret, struct err *err)
{
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, b->id, 0, true, &r);
	if (rc || !r) {
		rc = rc ? err_set(err, rc, "blk_%" PRId64 ": " REPLICA_WRITER_STAYS, b->id)
			: not_here_locked(bp, b, err);
		pthread_mutex_unlock(&bp->lock);
		return rc;
	}
	rc = check_recovery(r, b, recovery_id, err);
	if (!rc) { /* it is ours; the disk is not asked under the lock */
		pthread_mutex_unlock(&bp->lock);
		volume_begin(r->slice->vol);
		rc = check_length(r, err);
		volume_end(r->slice->vol);
		pthread_mutex_lock(&bp->lock);
	}
	if (!rc)
		rc = replica_need_write_state(r);
	if (!rc) {
		if (r->state != REPLICA_RUR)
			r->write_state->orig_state = r->state;
		r->state = REPLICA_RUR;
		r->write_state->recovery_id = recovery_id;
		*ret = (struct replica_info){.block = {r->id, r->gs, r->len},
					     .state = r->write_state->orig_state,
					     .visible = r->len};
		(void)snprintf(ret->storage_uuid, sizeof(ret->storage_uuid), "%s",
			       r->slice->vol->uuid);
	}
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

/* Exactly @len bytes, in one volume, where the file system may share them. */
static int copy_in_volume(int dir, const char *from, const char *to, uint64_t len)
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

/* The copy that an earlier try of a truncate has left takes the stamp of this try. 1: it has, and
 * lies in *@ret; 0: there is none. -EEXIST: another block has the id, which the NameNode never
 * gives twice. */
static int restamp_copy(struct block_pool *bp, int64_t id, uint64_t gs, uint64_t len,
			struct slice **ret)
{
	struct replica *r;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, id, 0, false, &r);
	if (!rc && r) {
		const uint64_t old_gs = r->gs;

		rc = r->state == REPLICA_FINALIZED && r->len == len && old_gs <= gs ? 0 : -EEXIST;
		if (!rc) {
			slice_note_stamp_locked(r->slice, gs);
			pthread_mutex_unlock(&bp->lock);
			rc = pair_restamp(r->slice->fd, id, r->place, old_gs, len, gs, len);
			rc = rc ? rc : path_sync_dir(r->slice->fd, r->place, id);
			pthread_mutex_lock(&bp->lock);
		}
		if (!rc) {
			r->gs = gs;
			*ret = r->slice;
			rc = 1;
		}
		replica_release_locked(bp, r);
	}
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

/* Truncate of a file in a snapshot: a new block from the beginning of this one. */
static int copy_shortened(struct block_pool *bp, struct replica *r, int64_t new_id, uint64_t gs,
			  uint64_t len)
{
	char from[STORE_NAME_MAX], to[STORE_NAME_MAX];
	int fd = r->slice->fd, rc;
	struct replica *n = calloc(1, sizeof(*n));
	struct stat st;

	if (!n)
		return -ENOMEM;
	path_data(from, r->place, r->id);
	path_data(to, IN_TMP, new_id);
	rc = copy_in_volume(fd, from, to, r->len);
	path_meta(from, r->place, r->id, r->gs);
	path_meta(to, IN_TMP, new_id, r->gs);
	if (!rc)
		rc = fstatat(fd, from, &st, 0) ? neg_errno() : 0;
	if (!rc)
		rc = copy_in_volume(fd, from, to, (uint64_t)st.st_size);
	if (!rc)
		rc = pair_restamp(fd, new_id, IN_TMP, r->gs, r->len, gs, len);
	if (!rc)
		rc = pair_move(r->slice, new_id, IN_TMP, gs, IN_FINALIZED, gs);
	if (!rc)
		rc = path_sync_dir(fd, IN_FINALIZED, new_id);
	if (rc) {
		(void)pair_unlink(fd, new_id, IN_TMP, r->gs);
		free(n);
		return rc;
	}
	*n = (struct replica){.id = new_id,
			      .gs = gs,
			      .len = len,
			      .slice = r->slice,
			      .state = REPLICA_FINALIZED,
			      .place = IN_FINALIZED};
	pthread_mutex_lock(&bp->lock);
	if (replica_find_locked(bp, new_id)) {
		rc = -EEXIST;
		free(n);
	} else {
		replica_add_locked(bp, n);
		replica_count(n);
	}
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

/* Bytes that readers may have seen are about to go, and others may take their place: readers who
 * know the block by an older stamp are told. What a writer had not got acknowledged nobody has
 * seen. */
static void note_cut(struct block_pool *bp, struct replica *r, uint64_t gs, uint64_t len)
{
	enum replica_state state;
	uint64_t visible;
	struct block b;

	pthread_mutex_lock(&bp->lock);
	replica_brief_locked(r, &b, &state, &visible);
	if (len < visible) {
		r->write_state->cut_to = !r->write_state->cut_gs || len < r->write_state->cut_to
						 ? len
						 : r->write_state->cut_to;
		r->write_state->cut_gs = gs;
		/* The two before it; partner: the acquire load in replica_read_is_cut(). */
		atomic_fetch_add_explicit(&bp->cuts, 1, memory_order_release);
	}
	pthread_mutex_unlock(&bp->lock);
}

/* Shorten, restamp and finalize the claimed replica itself. */
static int recover_in_place(struct block_pool *bp, struct replica *r, uint64_t gs, uint64_t len)
{
	int rc;

	note_cut(bp, r, gs, len); /* before its files are */
	rc = pair_restamp(r->slice->fd, r->id, r->place, r->gs, r->len, gs, len);

	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	r->corrupt = r->corrupt && len == r->len; /* what was cut off may have been it */
	r->gs = gs;
	r->len = len;
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	pthread_mutex_unlock(&bp->lock);
	rc = replica_finalize_claimed(bp, r);
	if (rc)
		return rc;
	pthread_mutex_lock(&bp->lock);
	replica_set_final(r);
	pthread_mutex_unlock(&bp->lock);
	return 0;
}

static int check_update(const struct replica *r, const struct block *b, uint64_t recovery_id,
			uint64_t new_len, struct err *err)
{
	if (r->slice->vol->failed)
		return err_set(err, -EIO, "blk_%" PRId64 " is in %s, which is out of service",
			       r->id, r->slice->vol->path);
	if (r->state != REPLICA_RUR || r->write_state->recovery_id != recovery_id)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " is not under recovery %" PRIu64
			       " (state %s, recovery %" PRIu64 ")",
			       r->id, recovery_id, replica_state_name(r->state),
			       r->write_state ? r->write_state->recovery_id : 0);
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
	struct replica *r;
	struct slice *sl;
	int rc;

	pthread_mutex_lock(&bp->lock);
	rc = replica_claim_locked(bp, b->id, 0, true, &r);
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
	slice_note_stamp_locked(r->slice, recovery_id);
	pthread_mutex_unlock(&bp->lock);

	sl = r->slice;
	volume_begin(r->slice->vol);
	rc = copy ? restamp_copy(bp, new_block_id, recovery_id, new_len, &sl)
		  : recover_in_place(bp, r, recovery_id, new_len);
	if (copy && rc == 0)
		rc = copy_shortened(bp, r, new_block_id, recovery_id, new_len);
	volume_end(r->slice->vol);
	pthread_mutex_lock(&bp->lock);
	if (copy)
		r->state = (uint8_t)r->write_state->orig_state;
	replica_release_locked(bp, r);
	pthread_mutex_unlock(&bp->lock);
	if (rc < 0) {
		err_sys(err, rc, "recovering blk_%" PRId64, b->id);
		return slice_error(sl, rc);
	}
	(void)snprintf(ret_storage_uuid, BLOCK_UUID_MAX, "%s", sl->vol->uuid);
	store_event(bp, sl, &(struct block){copy ? new_block_id : b->id, recovery_id, new_len},
		    STORE_RECEIVED, NULL);
	return 0;
}
