/* SPDX-License-Identifier: Apache-2.0 */
/* Readers: the files of a replica, and how many of its bytes may be read at this moment. */
#include "datanode/store/store_internal.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_TRIES 8 /* a reader that meets a rename looks again */

static void reader_length(struct replica_reader *rd)
{
	struct replica *r = rd->replica;
	struct progress_now p;

	if (!rd->partial)
		return;
	p = progress_get(&r->write_state->prog);
	if (p.final) {
		rd->block.len = p.on_disk;
		rd->state = REPLICA_FINALIZED;
		rd->partial = rd->crc_held = false;
		return;
	}
	rd->block.len = p.acked < p.on_disk ? p.acked : p.on_disk;
	rd->partial_crc = p.last_crc;
	rd->crc_held = true;
}

/* An append replaces the CRC of a last chunk that is not whole in its place. So that CRC is read
 * now, and counts when no append has begun meanwhile. -ENOENT: one has. */
static int reader_hold_crc(struct replica_reader *rd)
{
	const struct replica *r = rd->replica;
	uint32_t crc;
	bool same;
	int rc;

	if (rd->partial || rd->crc_type == CRC_NULL || rd->block.len % rd->bytes_per_crc == 0)
		return 0;
	rc = file_read_full(rd->fd_meta, &crc, sizeof(crc),
			    META_HEADER_LEN + rd->block.len / rd->bytes_per_crc * 4);
	pthread_mutex_lock(&rd->bp->lock);
	same = replica_visible_state(r) == REPLICA_FINALIZED && r->gs == rd->block.gs &&
	       r->len == rd->block.len;
	pthread_mutex_unlock(&rd->bp->lock);
	if (!same || rc)
		return same ? rc : -ENOENT;
	rd->partial_crc = be32toh(crc);
	rd->crc_held = true;
	return 0;
}

/* A recovery that cuts makes a new meta file, under a new stamp. Asked after the length was read: a
 * length from after a recovery is not used with the meta file from before it. */
static bool reader_is_recovered(const struct replica_reader *rd)
{
	bool is;

	pthread_mutex_lock(&rd->bp->lock);
	is = rd->replica->gs != rd->block.gs;
	pthread_mutex_unlock(&rd->bp->lock);
	return is;
}

int replica_read_refresh(struct replica_reader *rd, struct err *err)
{
	int rc;

	if (!rd->partial)
		return 0;
	reader_length(rd);
	rc = reader_is_recovered(rd) ? -ENOENT : reader_hold_crc(rd);
	if (rc == -ENOENT)
		return err_set(err, -ESTALE, "blk_%" PRId64 " was replaced meanwhile",
			       rd->block.id);
	return rc ? err_sys(err, rc, "reading the last CRC of blk_%" PRId64, rd->block.id) : 0;
}

/* By the stamp @gs that was asked for. */
static void reader_cut(struct replica_reader *rd, uint64_t gs, uint64_t cut_gs, uint64_t cut_to)
{
	rd->cut_to = gs != BLOCK_GS_ANY && gs < cut_gs ? cut_to : UINT64_MAX;
}

void replica_read_begin(struct replica_reader *r)
{
	volume_begin(&r->bp->store->volumes[r->volume]);
}

void replica_read_end(struct replica_reader *r)
{
	volume_end(&r->bp->store->volumes[r->volume]);
}

bool replica_read_is_cut(struct replica_reader *rd, uint64_t end)
{
	/* Before the replica's mark; partner: the release in note_cut(). */
	const uint64_t cuts = atomic_load_explicit(&rd->bp->cuts, memory_order_acquire);
	const struct replica *r;

	if (cuts != rd->cuts) {
		pthread_mutex_lock(&rd->bp->lock);
		r = replica_find_locked(rd->bp, rd->block.id);
		if (r && r->write_state && r->write_state->cut_gs > rd->block.gs)
			rd->intact = r->write_state->cut_to;
		pthread_mutex_unlock(&rd->bp->lock);
		rd->cuts = cuts;
	}
	return end > rd->intact;
}

static void memory_free(struct replica_reader *rd)
{
	if (!rd->lent)
		free(rd);
}

static void reader_free(struct replica_reader *rd)
{
	if (rd->files) {
		open_replica_put(&rd->bp->store->open_replicas, rd->files);
		memory_free(rd);
		return;
	}
	if (rd->fd >= 0)
		(void)close(rd->fd);
	if (rd->fd_direct >= 0)
		(void)close(rd->fd_direct);
	if (rd->fd_meta >= 0)
		(void)close(rd->fd_meta);
	memory_free(rd);
}

static int reader_open(struct replica_reader *rd, const struct slice *sl, enum place p, uint64_t gs,
		       bool own)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	struct stat st;
	int rc;

	path_data(data, p, rd->block.id);
	path_meta(meta, p, rd->block.id, gs);
	rd->fd = replica_file_open(sl->fd, data);
	if (rd->fd < 0)
		return rd->fd;
	rd->fd_meta = replica_file_open(sl->fd, meta);
	if (rd->fd_meta < 0)
		return rd->fd_meta;
	/* The map has its length from an index (replica_index.h), or somebody cuts it just now. */
	if (!rd->partial && (fstat(rd->fd, &st) || (uint64_t)st.st_size < rd->block.len))
		return -ENOENT;
	if (!own && !rd->locked && rd->block.len >= STORE_DIRECT_MIN)
		slice_open_direct(sl, data, O_RDONLY, &rd->fd_direct, &rd->dio_align);
	rc = meta_read_header(rd->fd_meta, &rd->crc_type, &rd->bytes_per_crc);
	if (!rc && !rd->partial)
		rc = meta_check_length(rd->fd_meta, rd->crc_type, rd->bytes_per_crc, rd->block.len);
	if (!rc && !own && rd->crc_type == CRC_NULL) {
		(void)close(rd->fd_meta);
		rd->fd_meta = -1;
	}
	return rc;
}

/* It may be in a directory that is out of service. */
static int not_here(const struct store *s, const struct block *b, struct err *err)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < s->volume_count; i++)
		out += s->volumes[i].failed;
	if (out)
		return err_set(err, -ENOENT,
			       "blk_%" PRId64 " is not here, where %" PRIu32 " of %" PRIu32
			       " data directories are out of service",
			       b->id, out, s->volume_count);
	return err_set(err, -ENOENT, "blk_%" PRId64 " is not here", b->id);
}

/* A reference to a readable replica, and where its files are at this moment. */
static int reader_pick(struct replica_reader *rd, const struct block *b, enum place *ret_place,
		       struct err *err)
{
	struct replica *r = replica_find_locked(rd->bp, b->id);
	enum replica_state st = r ? replica_visible_state(r) : REPLICA_TEMPORARY;

	if (!r || st == REPLICA_TEMPORARY || r->deleting)
		return not_here(rd->bp->store, b, err);
	if (r->slice->vol->failed)
		return err_set(err, -ENOENT, "blk_%" PRId64 " is in %s, which is out of service",
			       b->id, r->slice->vol->path);
	if (st == REPLICA_RWR)
		return err_set(err, -ENOENT,
			       "blk_%" PRId64 " waits for recovery and is not readable", b->id);
	if (r->gs < b->gs)
		return err_set(err, -ESTALE,
			       "blk_%" PRId64 " has stamp %" PRIu64 ", %" PRIu64 " asked", b->id,
			       r->gs, b->gs);
	r->refs++;
	rd->replica = r;
	rd->state = st;
	rd->block = (struct block){r->id, r->gs, r->len};
	reader_cut(rd, b->gs, r->write_state ? r->write_state->cut_gs : 0,
		   r->write_state ? r->write_state->cut_to : 0);
	rd->partial = st == REPLICA_RBW;
	rd->locked = r->cached;
	rd->volume = r->slice->vol->idx;
	rd->remote = r->slice->vol->remote;
	(void)snprintf(rd->storage_uuid, sizeof(rd->storage_uuid), "%s", r->slice->vol->uuid);
	*ret_place = r->place;
	return 0;
}

/* The pair moved under our feet, or is being moved: wait for the mover, then look again. */
static void reader_wait(struct replica_reader *rd)
{
	struct replica *r = rd->replica;
	struct timespec until;

	store_deadline_in(&until, STORE_WAIT_MS);
	while (r->busy && !r->gone)
		if (pthread_cond_timedwait(&rd->bp->changed, &rd->bp->lock, &until))
			break;
	replica_put_locked(rd->bp, r);
}

/* ---- files that stay open ---- */

static void reader_use(struct replica_reader *rd, struct open_replica_files *f)
{
	rd->files = f;
	rd->block = f->block;
	rd->state = REPLICA_FINALIZED;
	memcpy(rd->storage_uuid, f->storage_uuid, sizeof(rd->storage_uuid));
	rd->crc_type = f->crc_type;
	rd->bytes_per_crc = f->bytes_per_crc;
	rd->crc_held = f->crc_held;
	rd->partial_crc = f->last_crc;
	rd->fd = f->fd;
	rd->fd_direct = f->fd_direct;
	rd->fd_meta = f->fd_meta;
	rd->dio_align = f->dio_align;
	rd->locked = f->locked;
	rd->volume = f->volume;
	rd->remote = f->remote;
}

/* May the files that @rd has opened be kept? Whoever changes them claims the replica, and gives it
 * another stamp, length or volume: when all these are as the reader saw them, so are the files. */
static bool reader_is_true_locked(const struct replica_reader *rd, const struct slice *opened)
{
	const struct replica *r = rd->replica;

	return !r->gone && !r->busy && !r->deleting && r->state == REPLICA_FINALIZED &&
	       r->place == IN_FINALIZED && r->slice == opened && r->gs == rd->block.gs &&
	       r->len == rd->block.len && r->cached == rd->locked;
}

/* The next reader need not open them. The replica itself is not needed then: nobody writes it. */
static void reader_keep(struct replica_reader *rd, const struct slice *opened)
{
	struct open_replica_cache *c = &rd->bp->store->open_replicas;
	struct open_replica_files *f = rd->partial || !c->max ? NULL : calloc(1, sizeof(*f));
	bool kept;

	if (!f)
		return;
	*f = (struct open_replica_files){.key = {rd->bp, rd->block.id},
					 .block = rd->block,
					 .crc_type = rd->crc_type,
					 .bytes_per_crc = rd->bytes_per_crc,
					 .crc_held = rd->crc_held,
					 .last_crc = rd->partial_crc,
					 .fd = rd->fd,
					 .fd_direct = rd->fd_direct,
					 .fd_meta = rd->fd_meta,
					 .dio_align = rd->dio_align,
					 .volume = rd->volume,
					 .locked = rd->locked,
					 .remote = rd->remote};
	memcpy(f->storage_uuid, rd->storage_uuid, sizeof(f->storage_uuid));
	pthread_mutex_lock(&rd->bp->lock);
	if (rd->replica->write_state) {
		f->cut_gs = rd->replica->write_state->cut_gs;
		f->cut_to = rd->replica->write_state->cut_to;
	}
	kept = reader_is_true_locked(rd, opened) && open_replica_add(c, f);
	if (kept) {
		replica_put_locked(rd->bp, rd->replica);
		rd->replica = NULL;
	}
	pthread_mutex_unlock(&rd->bp->lock);
	if (kept)
		rd->files = f;
	else
		free(f);
	open_replica_reap(c, rd->volume);
}

/* @room: the memory of the handle, for a caller that is a reactor; NULL: it is allocated. */
static int open_kept(struct block_pool *bp, const struct block *b, struct replica_reader *room,
		     struct replica_reader **ret)
{
	struct open_replica_cache *c = &bp->store->open_replicas;
	/* before the files are taken */
	const uint64_t cuts = atomic_load_explicit(&bp->cuts, memory_order_acquire);
	struct open_replica_files *f = c->max ? open_replica_get(c, bp, b->id, room) : NULL;
	struct replica_reader *rd = room;

	if (!f)
		return -EAGAIN;
	if (!rd)
		rd = malloc(sizeof(*rd));
	if (!rd || f->block.gs < b->gs) {
		if (!room)
			free(rd);
		open_replica_put_later(c, f);
		return -EAGAIN;
	}
	*rd = (struct replica_reader){
		.bp = bp, .cuts = cuts, .intact = UINT64_MAX, .lent = room != NULL};
	reader_use(rd, f);
	reader_cut(rd, b->gs, f->cut_gs, f->cut_to);
	*ret = rd;
	return 0;
}

int replica_read_open_now(struct block_pool *bp, const struct block *b, struct replica_reader *room)
{
	struct replica_reader *rd;

	return open_kept(bp, b, room, &rd);
}

bool replica_read_close_now(struct replica_reader *rd)
{
	if (!rd->files || !open_replica_put_now(&rd->bp->store->open_replicas, rd->files))
		return false;
	memory_free(rd);
	return true;
}

/* @own: see replica_read_open_own(). */
static int open_reader(struct block_pool *bp, const struct block *b, bool own,
		       struct replica_reader **ret, struct err *err)
{
	enum place place = IN_FINALIZED;
	const struct slice *opened;
	struct replica_reader *rd;
	int rc = -ENOENT;

	for (int try = 0; try < OPEN_TRIES && rc == -ENOENT; try++) {
		rd = calloc(1, sizeof(*rd));
		if (!rd)
			return err_sys(err, -ENOMEM, "blk_%" PRId64, b->id);
		rd->fd = rd->fd_direct = rd->fd_meta = -1;
		rd->bp = bp;
		rd->intact = UINT64_MAX;
		pthread_mutex_lock(&bp->lock);
		rd->cuts = atomic_load_explicit(&bp->cuts, memory_order_relaxed);
		rc = reader_pick(rd, b, &place, err);
		opened = rc ? NULL : rd->replica->slice;
		if (!rc && own && (rd->partial || rd->cut_to != UINT64_MAX)) {
			replica_put_locked(bp, rd->replica);
			rc = err_set(err, -ENOTSUP, "blk_%" PRId64 " is being written, or was cut",
				     b->id);
		}
		pthread_mutex_unlock(&bp->lock);
		if (rc) {
			free(rd);
			return rc;
		}
		volume_begin(opened->vol);
		rc = reader_open(rd, opened, place, rd->block.gs, own);
		if (!rc && !own) {
			reader_length(rd);
			rc = reader_hold_crc(rd);
		}
		volume_end(opened->vol);
		if (!rc) {
			if (!own)
				reader_keep(rd, opened);
			*ret = rd;
			return 0;
		}
		err_sys(err, rc, "opening blk_%" PRId64 " in %s", b->id,
			rd->replica->slice->vol->path);
		pthread_mutex_lock(&bp->lock);
		reader_wait(rd);
		pthread_mutex_unlock(&bp->lock);
		reader_free(rd);
		open_replica_reap(&bp->store->open_replicas, opened->vol->idx);
	}
	/* The map knows it, the disk does not: let the NameNode hear of it. */
	replica_suspect(bp, b);
	return rc;
}

int replica_read_open(struct block_pool *bp, const struct block *b, struct replica_reader **ret,
		      struct err *err)
{
	if (open_kept(bp, b, NULL, ret) == 0)
		return 0;
	return open_reader(bp, b, false, ret, err);
}

int replica_read_open_own(struct block_pool *bp, const struct block *b, struct replica_reader **ret,
			  struct err *err)
{
	return open_reader(bp, b, true, ret, err);
}

void replica_read_close(struct replica_reader *rd)
{
	struct block_pool *bp = rd->bp;

	if (rd->replica) {
		pthread_mutex_lock(&bp->lock);
		replica_put_locked(bp, rd->replica);
		pthread_mutex_unlock(&bp->lock);
	}
	reader_free(rd);
}
