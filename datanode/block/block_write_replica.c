/* SPDX-License-Identifier: Apache-2.0 */
/* The replica of a block being written: a helper thread of its volume opens it, finalises it with
 * the bytes that are left, or gives it back. One of the three at a time (`offload_busy`). */
#include "datanode/block/block_write_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/block/buffers.h"

static void off_start(struct block_write *w, void (*work)(struct offload *),
		      void (*done)(struct offload *))
{
	assert(!w->offload_busy);
	w->offload_busy = true;
	w->offload.work = work;
	w->offload.done = done;
	w->offload.movable = !w->rw; /* to open one needs no volume in particular */
	engine_offload(w->core,
		       w->rw ? w->rw->volume : replica_write_volume(w->params.bp, &w->params.req),
		       &w->offload);
}

/* An append goes on in the middle of a chunk: its CRC so far, which the store has checked. */
static int load_tail(struct block_write *w)
{
	const struct replica_writer *rw = w->rw;
	const uint64_t into = rw->start_len % rw->bytes_per_crc;
	uint8_t *data;
	int rc = 0;

	if (!into || rw->crc_type == CRC_NULL)
		return 0;
	data = malloc(into);
	if (!data)
		return -ENOMEM;
	if (pread(rw->fd, data, into, (off_t)(rw->start_len - into)) != (ssize_t)into)
		rc = -EIO;
	else
		w->tail_crc = crc_compute(rw->crc_type, data, into);
	free(data);
	return rc;
}

static void bw_work_open(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);

	/* Of a new replica it is files made in a directory, without a wait for anybody. */
	const bool timed =
		w->params.req.stage == STAGE_CREATE && w->core->dn->live.io_sampling_percent;
	const uint64_t start_ns = timed ? clock_mono_ns() : 0;

	w->offload_rc = replica_write_open(w->params.bp, &w->params.req, &w->rw, &w->err);
	if (timed && w->rw)
		outliers_add(w->core->dn->outliers, OUTLIER_DISK_META, w->rw->storage_uuid,
			     clock_mono_ns() - start_ns, 1);
	if (w->offload_rc == 0 && w->rw)
		w->offload_rc = load_tail(w);
}

static void bw_done_open(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);
	struct replica_writer *rw = w->rw;

	w->offload_busy = false;
	if (w->offload_rc == REPLICA_ELSEWHERE && !w->rc) {
		off_start(w, bw_work_open, bw_done_open);
		return;
	}
	w->state = BW_CHAIN;
	if (w->offload_rc < 0) {
		log_warn("op=write block=%" PRId64 "_%" PRIu64
			 " peer=%s: cannot prepare the replica: %s",
			 w->params.req.block.id, w->params.req.block.gs,
			 w->src ? w->src->peer : "-",
			 w->err.rc ? w->err.text : err_name(w->offload_rc));
		w->rc = w->offload_rc;
	} else if (rw) {
		w->same_crc = w->crc_type == rw->crc_type &&
			      (w->bpc == rw->bytes_per_crc || w->crc_type == CRC_NULL);
		w->acked_crc = w->tail_crc;
		wdisk_init(w);
		memcpy(w->volume, w->rw->storage_uuid, sizeof(w->volume));
		w->shares[0] = buffers_volume(w->core, w->rw->volume);
		w->shares[BW_HOP_SHARE] =
			w->params.target_count ? buffers_hop(w->core, w->params.targets) : NULL;
		w->shares[2] = w->src ? w->src->share : NULL;
		for (int i = 0; i < BUFFERS_SHARES; i++)
			w->ask.budget[i] = w->shares[i] ? &w->shares[i]->slots : NULL;
		if (!w->unit)
			bw_fail(w, -EINVAL, "chunk sizes do not fit each other");
	}
	bw_ready(w);
}

void bw_replica_open(struct block_write *w)
{
	off_start(w, bw_work_open, bw_done_open);
}

static void bw_work_finalize(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);
	const struct bpiece *last = bw_piece_at(w, w->tail - 1);
	const char *hint = w->params.del_hint[0] ? w->params.del_hint : NULL;
	struct replica_writer *rw = w->rw;
	enum replica_sync how;

	w->offload_rc = w->left ? wdisk_write_left(w) : 0;
	if (w->offload_rc < 0) {
		err_sys(&w->err, w->offload_rc, "write to the block file");
		return; /* bw_work_release() gives it back */
	}
	if (w->left)
		replica_publish(rw, w->received, w->received, w->final_acked, w->final_acked_crc);
	w->rw = NULL; /* given back, also on failure */
	if (w->params.req.stage == STAGE_TRANSFER_RBW) {
		/* the copy of what a pipeline has acked: all of it counts as acked here, too */
		replica_publish(rw, w->received, w->received, w->received, w->tail_crc);
		w->offload_rc = replica_write_close(rw, true);
		return;
	}
	/* Of a copy nobody knows whether a client has synced the bytes at the nodes it was made
	 * from, which may be gone before it. */
	how = last->p.sync                                    ? SYNC_NOW
	      : bw_syncs_later(w)                             ? SYNC_LATER
	      : w->core->dn->sync_on_close || !bw_has_acks(w) ? SYNC_NOW
							      : SYNC_NEVER;
	w->offload_rc = replica_finalize(rw, w->received, how, hint, &w->err);
}

static void bw_done_finalize(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);

	w->offload_busy = false;
	if (w->left)
		wdisk_left_done(w, !w->rw);
	if (w->offload_rc < 0)
		bw_fail(w, w->offload_rc, w->err.rc ? w->err.text : "finalise");
	else
		w->finalized = true;
	bw_ready(w);
}

static void bw_work_release(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);

	if (w->core->restart_until_ms && bw_has_acks(w))
		replica_mark_restart(w->rw, w->core->restart_until_ms);
	if (store_is_disk_error(w->rc))
		store_volume_suspect(pool_store(w->params.bp), w->rw->storage_uuid);
	(void)replica_write_close(w->rw, w->params.req.stage == STAGE_TRANSFER_RBW && !w->rc);
	w->rw = NULL;
}

static void bw_done_release(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, offload);

	w->offload_busy = false;
	w->state = BW_WAIT_RECOVERY;
	bw_ready(w);
}

void bw_replica_release(struct block_write *w)
{
	off_start(w, bw_work_release, bw_done_release);
}

void bw_do_finalize(struct block_write *w)
{
	if (!w->last_seen || w->finalized || w->offload_busy || w->rc || !w->rw)
		return;
	if ((w->on_disk != w->received && !w->left) || !wdisk_idle(w) || w->sync_waiting)
		return;
	for (uint32_t i = w->head; i != w->tail; i++)
		if (bw_piece_at(w, i)->status != DT_SUCCESS)
			return; /* bw_do_acks() ends it */
	w->final_acked = w->acked;
	w->final_acked_crc = w->acked_crc;
	off_start(w, bw_work_finalize, bw_done_finalize);
}
