/* SPDX-License-Identifier: Apache-2.0 */
/* A block being written: bytes and names on stable storage before their ack. */
#include "datanode/block/block_write_internal.h"

/* ---- one file ---- */

static void on_synced(struct uring_op *op, int res, uint32_t flags)
{
	struct bw_sync *s = container_of(op, struct bw_sync, op);

	(void)flags;
	disk_workers_done(&s->req);
	s->done(s, res);
}

static void sync_submit(struct disk_request *q)
{
	struct bw_sync *s = container_of(q, struct bw_sync, req);
	struct engine_core *core = s->w->core;
	struct io_uring_sqe *sqe;

	if (!disk_workers_take(&core->disk_syncs[s->w->rw->volume % XFER_BUDGETS], q))
		return;
	sqe = reactor_sqe(core->reactor);
	io_uring_prep_fsync(sqe, s->fd, IORING_FSYNC_DATASYNC);
	s->op.done = on_synced;
	uring_attach(sqe, &s->op);
}

void bw_sync_begin(struct block_write *w, struct bw_sync *s, int fd,
		   void (*done)(struct bw_sync *s, int rc))
{
	s->w = w;
	s->fd = fd;
	s->done = done;
	disk_request_init(&s->req, sync_submit);
	sync_submit(&s->req);
}

static void leave_line(struct bw_sync *s)
{
	if (!list_is_linked(&s->req.link))
		return;
	list_del(&s->req.link);
	s->done(s, -ECANCELED);
}

void bw_sync_leave_line(struct block_write *w)
{
	leave_line(&w->sync_data);
	leave_line(&w->sync_meta);
	for (uint32_t i = 0; i < BW_RUNS; i++)
		leave_line(&w->runs[i].data_sync);
}

/* ---- all that an ack waits for ---- */

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

static void on_file_synced(struct bw_sync *s, int rc)
{
	sync_part_done(s->w, rc);
}

static void sync_start(struct block_write *w, uint32_t covers)
{
	const bool data = w->on_disk > w->data_synced_len;

	w->sync_rc = 0;
	w->sync_covers = covers;
	w->sync_len = w->on_disk;
	w->sync_waiting = (uint8_t)(1 + data + !w->dir_synced);
	if (data)
		bw_sync_begin(w, &w->sync_data, w->rw->fd, on_file_synced);
	bw_sync_begin(w, &w->sync_meta, w->rw->fd_meta, on_file_synced);
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
