/* SPDX-License-Identifier: Apache-2.0 */
/* A block being written: bytes and names on stable storage before their ack. */
#include "datanode/block/block_write_internal.h"

/* The directory entry of a replica being written, once per op. */
static void bw_work_dir(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, dir_offload);

	w->dir_rc = replica_sync_dir(w->rw);
}

static void sync_part_done(struct block_write *w, int rc)
{
	if (rc < 0 && !w->sync_rc)
		w->sync_rc = rc;
	if (--w->sync_waiting)
		return;
	if (w->sync_rc < 0)
		bw_fail(w, w->sync_rc, "fdatasync");
	else
		w->synced = w->sync_covers;
	bw_ready(w);
}

static void bw_done_dir(struct offload *o)
{
	struct block_write *w = container_of(o, struct block_write, dir_offload);

	w->dir_busy = false;
	w->dir_synced = w->dir_rc == 0;
	sync_part_done(w, w->dir_rc);
}

static void on_sync_data(struct uring_op *op, int res, uint32_t flags)
{
	(void)flags;
	sync_part_done(container_of(op, struct block_write, sync_data), res);
}

static void on_sync_meta(struct uring_op *op, int res, uint32_t flags)
{
	(void)flags;
	sync_part_done(container_of(op, struct block_write, sync_meta), res);
}

static void sync_start(struct block_write *w, uint32_t covers)
{
	const bool data = w->on_disk > w->data_synced_len;
	struct io_uring_sqe *sqe;

	w->sync_rc = 0;
	w->sync_covers = covers;
	w->sync_len = w->on_disk;
	w->sync_waiting = (uint8_t)(1 + data + !w->dir_synced);
	w->sync_data.done = on_sync_data;
	w->sync_meta.done = on_sync_meta;
	if (data) {
		sqe = reactor_sqe(w->core->reactor);
		io_uring_prep_fsync(sqe, w->rw->fd, IORING_FSYNC_DATASYNC);
		uring_attach(sqe, &w->sync_data);
	}
	sqe = reactor_sqe(w->core->reactor);
	io_uring_prep_fsync(sqe, w->rw->fd_meta, IORING_FSYNC_DATASYNC);
	uring_attach(sqe, &w->sync_meta);
	if (!w->dir_synced) {
		w->dir_busy = true;
		w->dir_offload = (struct offload){.work = bw_work_dir, .done = bw_done_dir};
		engine_offload(w->core, w->rw->volume, &w->dir_offload);
	}
}

/* One fdatasync serves every piece that is on disk when it starts. Beside a run that replaces the
 * CRC of what it covers it would not: it could bring that CRC to the disk without its bytes. */
void bw_do_sync(struct block_write *w)
{
	bool due = false;
	uint32_t i;

	if (w->sync_waiting || w->offload_busy || !w->rw)
		return;
	for (i = w->head; i != w->tail; i++) {
		const struct bpiece *b = bw_piece_at(w, i);

		if (b->end > w->on_disk)
			break;
		if (b->p.sync && !b->p.last && (int32_t)(i - w->synced) >= 0)
			due = true;
	}
	if (due && !wdisk_replaces_crc(w))
		sync_start(w, i);
}
