/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a writer, which replica_write.c opened: its replica is finalized (the files move to
 * finalized/ and are synced as asked), or kept in rbw/, or dropped (hdfs-wire 5.5). */
#include "datanode/store/store_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

static void set_len(struct replica *r, uint64_t len)
{
	pthread_mutex_lock(&r->slice->bp->lock);
	r->len = len;
	pthread_mutex_unlock(&r->slice->bp->lock);
}

/* So names and bytes can be synced together, which is one commit of the journal instead of two. */
static int written_out(int data, int meta)
{
	/* while we wait for the other one */
	(void)sync_file_range(data, 0, 0, SYNC_FILE_RANGE_WRITE);
	return file_write_out(meta) ?: file_write_out(data);
}

/* Claimed replica whose bytes are written out: its files to finalized/, and with @sync all of it on
 * the disk. The names come last: what is in finalized/ after a power cut counts with its whole
 * length. So where there is a journal that keeps the order, the directory is all that is to be
 * synced: each further sync would be an order to the disk to empty its cache. */
static int move_claimed(const struct replica *r, bool sync, int data, int meta)
{
	const bool named_now = r->place != IN_FINALIZED;
	int rc;

	if (sync && !(named_now && r->slice->vol->ordered) && (fdatasync(data) || fdatasync(meta)))
		return neg_errno();
	rc = named_now ? pair_move(r->slice, r->id, r->place, r->gs, IN_FINALIZED, r->gs) : 0;
	return rc || !sync ? rc : path_sync_dir(r->slice->fd, IN_FINALIZED, r->id);
}

static void now_finalized(struct block_pool *bp, struct replica *r)
{
	pthread_mutex_lock(&bp->lock);
	r->place = IN_FINALIZED;
	r->state = REPLICA_FINALIZED;
	pthread_mutex_unlock(&bp->lock);
}

int replica_finalize_claimed(struct block_pool *bp, struct replica *r)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int fd_meta = -1;
	int rc;

	path_data(data, r->place, r->id);
	path_meta(meta, r->place, r->id, r->gs);
	fd = openat(r->slice->fd, data, O_RDONLY | O_CLOEXEC);
	fd_meta = openat(r->slice->fd, meta, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fd_meta < 0)
		return neg_errno();
	rc = written_out(fd, fd_meta);
	rc = rc ? rc : move_claimed(r, true, fd, fd_meta);
	if (!rc)
		now_finalized(bp, r);
	return rc;
}

/* Cut padding; with @sync nothing of the bytes is in memory only. */
static int finish_files(const struct replica_writer *w, uint64_t len, bool sync, struct err *err)
{
	uint64_t meta_len = META_HEADER_LEN + crc_bytes(w->crc_type, len, w->bytes_per_crc);
	struct stat st;
	int rc;

	if (fstat(w->fd_meta, &st))
		return err_sys(err, neg_errno(), "meta file");
	if ((uint64_t)st.st_size < meta_len)
		return err_set(err, -EINVAL,
			       "meta file has %" PRIu64 " bytes, %" PRIu64 " expected",
			       (uint64_t)st.st_size, meta_len);
	if ((uint64_t)st.st_size > meta_len && ftruncate(w->fd_meta, (off_t)meta_len))
		return err_sys(err, neg_errno(), "cutting to length");
	if (fstat(w->fd, &st))
		return err_sys(err, neg_errno(), "block file");
	if ((uint64_t)st.st_size < len)
		return err_set(err, -EINVAL,
			       "block file has %" PRIu64 " bytes, %" PRIu64 " expected",
			       (uint64_t)st.st_size, len);
	if ((uint64_t)st.st_size > len && ftruncate(w->fd, (off_t)len))
		return err_sys(err, neg_errno(), "cutting to length");
	if (w->pin && fchmod(w->fd, (st.st_mode & 07777) | S_ISVTX))
		return err_sys(err, neg_errno(), "pinning the block file");
	rc = sync ? written_out(w->fd, w->fd_meta) : 0;
	return rc ? err_sys(err, rc, "writing out") : 0;
}

/* The writer becomes a mere busy mark, so that its files can be closed and renamed. It may be told
 * still that its volume is out of service, until writer_release(). */
static struct replica *writer_detach(struct replica_writer *w)
{
	struct replica *r = w->replica;

	pthread_mutex_lock(&w->bp->lock);
	assert(r->write_state->writer == w);
	r->write_state->writer = NULL;
	r->busy = true;
	replica_unpromise(r);
	atomic_fetch_sub(&r->slice->used, pair_bytes(r));
	pthread_mutex_unlock(&w->bp->lock);
	return r;
}

static void writer_release(struct block_pool *bp, struct replica *r)
{
	pthread_mutex_lock(&bp->lock);
	atomic_fetch_add(&r->slice->used, pair_bytes(r));
	r->write_state->stop = NULL;
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

int replica_finalize(struct replica_writer *w, uint64_t len, enum replica_sync how,
		     const char *hint, struct err *err)
{
	struct block_pool *bp = w->bp;
	struct replica *r = writer_detach(w);
	struct slice *sl = r->slice;
	const bool later = how == SYNC_LATER && deferred_sync_may(sl->vol);
	/* A replica with hsynced bytes gets its final name when all its bytes are on the disk. */
	const bool sync = (how != SYNC_NEVER || r->write_state->dir_synced) && !later;
	struct block b = {r->id, r->gs, len};
	uint64_t on_disk = progress_get(&r->write_state->prog).on_disk;
	int rc;

	volume_begin(sl->vol);
	rc = finish_files(w, len, sync, err);
	r->pinned |= w->pin && !rc; /* we are its exclusive user */
	set_len(r, rc ? on_disk : len);
	if (!rc) {
		rc = move_claimed(r, sync, w->fd, w->fd_meta);
		if (rc)
			err_sys(err, rc, "moving to finalized/");
		else
			now_finalized(bp, r);
	}
	if (!rc && later)
		deferred_sync_add(w);
	else
		writer_free(w);
	volume_end(sl->vol);
	if (!rc && sync)
		volume_synced(sl->vol);
	if (rc) {
		store_event(bp, sl, &b, STORE_LEFT, NULL);
		err_prefix(err, "finalizing blk_%" PRId64, b.id);
		if (r->place == IN_TMP)
			drop_temporary(bp, r);
		else
			writer_release(bp, r);
		if (replica_blames_volume(rc))
			volume_suspect(sl->vol);
		return rc;
	}
	replica_set_final(r);
	writer_release(bp, r);
	store_event(bp, sl, &b, STORE_RECEIVED, hint);
	return 0;
}

/* It takes a place in a pipeline whose client may have synced the bytes at the other nodes, and
 * will not ask for them again. */
static int keep_copy(struct replica_writer *w, struct replica *r)
{
	int rc = fdatasync(w->fd) || fdatasync(w->fd_meta) ? neg_errno() : 0;

	rc = rc ?: pair_move(r->slice, r->id, IN_TMP, r->gs, IN_RBW, r->gs);
	if (rc)
		return rc;
	pthread_mutex_lock(&w->bp->lock);
	r->place = IN_RBW;
	r->state = REPLICA_RBW;
	pthread_mutex_unlock(&w->bp->lock);
	return path_sync(r->slice->fd, "rbw");
}

/* Bytes that the writer vouched for stay, later ones were never acknowledged by this node. */
static int keep_rbw(struct replica_writer *w, struct replica *r, bool from_tmp)
{
	uint64_t len = progress_get(&r->write_state->prog).on_disk;
	int rc = 0;

	if (ftruncate(w->fd, (off_t)len))
		rc = neg_errno();
	set_len(r, len);
	return rc || !from_tmp ? rc : keep_copy(w, r);
}

int replica_write_close(struct replica_writer *w, bool keep_as_rbw)
{
	struct block_pool *bp = w->bp;
	struct replica *r = writer_detach(w);
	struct slice *sl = r->slice;
	struct block b = {r->id, r->gs, 0};
	bool tmp = r->place == IN_TMP;
	int rc = 0;

	store_event(bp, sl, &b, STORE_LEFT, NULL);
	volume_begin(sl->vol);
	if (!tmp || keep_as_rbw)
		rc = keep_rbw(w, r, tmp);
	writer_free(w);
	volume_end(sl->vol);
	if (r->place == IN_TMP)
		drop_temporary(bp, r);
	else
		writer_release(bp, r);
	if (rc)
		(void)slice_error(sl, rc);
	return rc;
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
		log_warn("op=restart block=%" PRId64
			 ": cannot write the marker %s: %s; its writer goes on without this node",
			 w->replica->id, name, err_name(neg_errno()));
	if (fd >= 0)
		(void)close(fd);
}

int replica_sync_dir(struct replica_writer *w)
{
	struct write_state *l = w->replica->write_state;
	int rc;

	if (l->dir_synced)
		return 0;
	volume_begin(w->slice->vol);
	rc = path_sync_dir(w->replica->slice->fd, w->replica->place, w->replica->id);
	volume_end(w->slice->vol);
	if (rc)
		return slice_error(w->replica->slice, rc);
	volume_synced(w->slice->vol);
	l->dir_synced = true;
	return 0;
}
