/* SPDX-License-Identifier: Apache-2.0 */
/* A finalized replica from one volume to another one of this node. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

#define COPY_STEP (1u << 20)

struct move {
	struct block_pool *bp;
	struct replica *r; /* referenced, marked `moving` */
	struct slice *from, *to;
	struct block block; /* as it was when the move began */
	/* The copies, below @to. The names are of this move alone, for meanwhile the replica may be
	 * deleted and made anew in the same directory. */
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
};

static int check_locked(const struct replica *r, const struct block *b, enum storage_type type,
			struct err *err)
{
	if (!r || r->deleting || r->state != REPLICA_FINALIZED)
		return err_set(err, -ENOENT, "blk_%" PRId64 " is not here, or not finalized",
			       b->id);
	if (r->gs != b->gs)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " has stamp %" PRIu64 ", %" PRIu64 " asked", b->id,
			       r->gs, b->gs);
	if (r->len != b->len)
		return err_set(err, -EINVAL,
			       "blk_%" PRId64 " has %" PRIu64 " bytes, %" PRIu64 " expected", b->id,
			       r->len, b->len);
	if (r->slice->vol->type == type)
		return err_set(err, -EEXIST, "blk_%" PRId64 " is on storage type %d already", b->id,
			       (int)type);
	if (r->moving || r->busy)
		return err_set(err, -EBUSY, "blk_%" PRId64 " is being moved or changed", b->id);
	return 0;
}

int replica_move_way(struct block_pool *bp, const struct block *b, enum storage_type type,
		     const char *storage_uuid, struct replica_way *ret, struct err *err)
{
	const struct slice *to = slice_choose(bp, type, storage_uuid, b->len);
	const struct replica *r;
	int rc;

	if (!to)
		return err_set(err, -ENOSPC,
			       "no data directory of storage type %d has room for %" PRIu64
			       " bytes",
			       (int)type, b->len);
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, b->id);
	rc = check_locked(r, b, type, err);
	if (rc == 0)
		*ret = (struct replica_way){r->slice->vol->idx, to->vol->idx};
	pthread_mutex_unlock(&bp->lock);
	return rc;
}

static int move_begin(struct move *m, const struct replica_way *way, struct err *err)
{
	struct replica *r;
	int rc;

	m->to = &m->bp->slices[way->to];
	pthread_mutex_lock(&m->bp->lock);
	r = replica_find_locked(m->bp, m->block.id);
	rc = check_locked(r, &m->block, m->to->vol->type, err);
	if (rc == 0 && r->slice->vol->idx != way->from)
		rc = err_set(err, -EBUSY, "blk_%" PRId64 " was moved meanwhile", m->block.id);
	if (rc == 0) {
		r->moving = true;
		r->refs++;
		m->r = r;
		m->from = r->slice;
		atomic_fetch_add(&m->to->vol->promised, m->block.len);
	}
	pthread_mutex_unlock(&m->bp->lock);
	return rc;
}

static int open_on(const struct slice *sl, const char *name, int flags)
{
	int fd;

	volume_begin(sl->vol);
	fd = ret_errno(openat(sl->fd, name, flags | O_CLOEXEC, 0644));
	volume_end(sl->vol);
	return fd;
}

/* At most COPY_STEP bytes from @off on; how many, 0 at the end. */
static ssize_t copy_step(const struct move *m, int in, int out, uint8_t *buf, uint64_t off)
{
	ssize_t n;
	int rc;

	volume_begin(m->from->vol);
	n = pread(in, buf, COPY_STEP, (off_t)off);
	rc = n < 0 ? neg_errno() : 0;
	volume_end(m->from->vol);
	if (n <= 0)
		return rc;
	volume_begin(m->to->vol);
	rc = file_write_full(out, buf, (size_t)n, off);
	volume_end(m->to->vol);
	return rc ? rc : n;
}

/* As the source is: pinned, too. And on the disk. */
static int copy_end(const struct move *m, int in, int out)
{
	struct stat st;
	int rc = 0;

	volume_begin(m->to->vol);
	if ((!fstat(in, &st) && (st.st_mode & S_ISVTX) && fchmod(out, st.st_mode & 07777)) ||
	    fdatasync(out))
		rc = neg_errno();
	volume_end(m->to->vol);
	if (!rc)
		volume_synced(m->to->vol);
	return rc;
}

/* Copies the whole file to the other volume, whatever its length; each volume is watched for its
 * own calls only. */
static int copy_to_other_volume(const struct move *m, const char *from, const char *to)
{
	const int in = open_on(m->from, from, O_RDONLY);
	const int out = in < 0 ? in : open_on(m->to, to, O_WRONLY | O_CREAT | O_TRUNC);
	uint8_t *buf = malloc(COPY_STEP);
	uint64_t off = 0;
	ssize_t n = 1;
	int rc = out < 0 ? out : buf ? 0 : -ENOMEM;

	while (rc == 0 && n > 0) {
		n = copy_step(m, in, out, buf, off);
		rc = n < 0 ? (int)n : 0;
		off += n > 0 ? (uint64_t)n : 0;
	}
	if (rc == 0)
		rc = copy_end(m, in, out);
	free(buf);
	if (in >= 0)
		(void)close(in);
	if (out >= 0)
		(void)close(out);
	return rc;
}

static void copy_names(struct move *m)
{
	const unsigned int n = atomic_fetch_add(&m->bp->store->move_count, 1);
	size_t len;

	path_data(m->data, IN_TMP, m->block.id);
	len = strlen(m->data);
	(void)snprintf(m->data + len, sizeof(m->data) - len, ".move%u", n);
	path_meta(m->meta, IN_TMP, m->block.id, m->block.gs);
	len = strlen(m->meta);
	(void)snprintf(m->meta + len, sizeof(m->meta) - len, ".move%u", n);
}

/* The pair under tmp/ of the new volume. A crash leaves it there for the next start to remove. */
static int move_copy(const struct move *m, struct err *err)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	int rc;

	path_data(data, IN_FINALIZED, m->block.id);
	path_meta(meta, IN_FINALIZED, m->block.id, m->block.gs);
	rc = copy_to_other_volume(m, meta, m->meta);
	if (rc == 0)
		rc = copy_to_other_volume(m, data, m->data);
	return rc ? err_sys(err, rc, "copying blk_%" PRId64 " to %s", m->block.id, m->to->vol->path)
		  : 0;
}

static void drop_copy(const struct move *m)
{
	(void)unlinkat(m->to->fd, m->data, 0);
	(void)unlinkat(m->to->fd, m->meta, 0);
}

/* The replica is at its new place from here on, unless it has changed while it was copied. */
static int move_switch(struct move *m, struct err *err)
{
	struct replica *r = NULL;
	int rc;

	pthread_mutex_lock(&m->bp->lock);
	rc = m->r->gone ? -ENOENT : replica_claim_locked(m->bp, m->block.id, 0, false, &r);
	if (rc == 0 && (r != m->r || r->state != REPLICA_FINALIZED || r->gs != m->block.gs ||
			r->len != m->block.len || r->deleting)) {
		if (r)
			replica_release_locked(m->bp, r);
		rc = -ESTALE;
	}
	pthread_mutex_unlock(&m->bp->lock);
	if (rc)
		return err_set(err, rc, "blk_%" PRId64 " changed while it was moved", m->block.id);
	volume_begin(m->to->vol);
	rc = pair_move_files(m->to, m->data, m->meta, r->id, IN_FINALIZED, r->gs);
	if (rc == 0)
		rc = path_sync_dir(m->to->fd, IN_FINALIZED, r->id);
	volume_end(m->to->vol);
	if (rc)
		err_sys(err, slice_error(m->to, rc), "moving to finalized/ of %s",
			m->to->vol->path);
	pthread_mutex_lock(&m->bp->lock);
	if (rc == 0) {
		replica_uncount(r);
		replica_set_slice_locked(r, m->to);
		replica_count(r);
	}
	pthread_mutex_unlock(&m->bp->lock);
	if (rc == 0) { /* readers keep their files */
		volume_begin(m->from->vol);
		(void)pair_unlink(m->from->fd, r->id, IN_FINALIZED, r->gs);
		volume_end(m->from->vol);
	}
	pthread_mutex_lock(&m->bp->lock);
	replica_release_locked(m->bp, r);
	pthread_mutex_unlock(&m->bp->lock);
	return rc;
}

int replica_move(struct block_pool *bp, const struct block *b, const struct replica_way *way,
		 struct err *err)
{
	struct move m = {.bp = bp, .block = *b};
	int rc = move_begin(&m, way, err);

	if (rc)
		return rc;
	copy_names(&m);
	rc = move_copy(&m, err);
	if (rc == 0)
		rc = move_switch(&m, err);
	if (rc)
		drop_copy(&m);
	pthread_mutex_lock(&bp->lock);
	atomic_fetch_sub(&m.to->vol->promised, m.block.len);
	m.r->moving = false;
	replica_put_locked(bp, m.r);
	pthread_mutex_unlock(&bp->lock);
	if (rc)
		return rc;
	log_info("op=move block=%" PRId64 "_%" PRIu64 " from=%s to=%s bytes=%" PRIu64, b->id, b->gs,
		 m.from->vol->path, m.to->vol->path, b->len);
	/* To the NameNode a block has one storage on a node: this takes it from the old one.
	 * DELETED would take the new one. */
	store_event(bp, m.to, b, STORE_RECEIVED, NULL);
	return 0;
}
