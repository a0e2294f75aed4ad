/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a block being written to its volume: runs, the writes that helper threads make of its
 * lanes (block_write_internal.h says what both are). */
#include "datanode/block/block_write_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file_io.h"
#include "common/base/metrics.h"

#define LEFT_MAX 65536u /* bytes that are written by who finalises the block */

/* Lanes begin and end between chunks, of the sender's and of the replica's CRCs, and between pages;
 * with odd chunk sizes that cannot all hold, and such a replica is written through the page cache.
 */
void wdisk_init(struct block_write *w)
{
	const uint64_t chunks = lcm(w->bpc, w->rw->bytes_per_crc);
	const uint64_t unit = chunks <= PIECE_MAX ? lcm(chunks, PAGE) : chunks;
	const bool fits = w->rw->crc_type == CRC_NULL || bpc_fits(w->rw->bytes_per_crc);
	const uint32_t edge = htobe32(w->tail_crc);

	w->dio = w->rw->fd_direct >= 0 && w->rw->dio_align <= PAGE && unit <= PIECE_MAX;
	w->unit = (uint32_t)(!fits                 ? 0
			     : unit <= PIECE_MAX   ? unit
			     : chunks <= PIECE_MAX ? chunks
						   : 0);
	w->landed = w->received = w->submitted = w->on_disk = w->acked = w->rw->start_len;
	w->sync_len = w->rw->start_len;
	memcpy(w->edge, &edge, sizeof(w->edge));
}

/* ---- runs ---- */

static int write_data(struct run *run)
{
	const struct replica_writer *rw = run->w->rw;
	const uint8_t *data = run->lane->slot->data + (run->from - run->lane->base);
	const size_t len = run->to - run->from;

	if (run->direct) {
		const ssize_t n = pwrite(rw->fd_direct, data, len, (off_t)run->from);

		if (n == (ssize_t)len)
			return 0;
		/* A direct write that is refused or short is done again through the page cache: its
		 * rest may not be aligned. */
		run->refused = n < 0 && errno == EINVAL;
		if (n < 0 && !run->refused && errno != EAGAIN && errno != EINTR)
			return neg_errno();
	}
	return file_write_full(rw->fd, data, len, run->from);
}

/* CRCs were not all written, so the block will be cut to on_disk: it gets the CRC of the bytes that
 * stay. Whoever begins within a chunk is the only run, so that @from is on_disk. */
static void undo_crc(const struct block_write *w, uint64_t from)
{
	const uint32_t bpc = w->rw->bytes_per_crc;

	if (from % bpc)
		(void)file_write_full(w->rw->fd_meta, w->edge, sizeof(w->edge),
				      META_HEADER_LEN + from / bpc * 4);
}

static int write_crcs(const struct run *run)
{
	const struct replica_writer *rw = run->w->rw;
	const uint32_t bpc = rw->bytes_per_crc;
	const uint64_t base = run->lane->base / bpc * 4, from = run->from / bpc * 4,
		       to = run->to / bpc * 4;
	int rc = 0;

	if (to > from)
		rc = file_write_full(rw->fd_meta, run->lane->disk_crcs->data + (from - base),
				     to - from, META_HEADER_LEN + from);
	if (!rc && run->to % bpc)
		rc = file_write_full(rw->fd_meta, run->edge, sizeof(run->edge),
				     META_HEADER_LEN + to);
	if (rc)
		undo_crc(run->w, run->from);
	return rc;
}

static void run_begin(struct run *run, void (*work)(struct offload *),
		      void (*done)(struct offload *))
{
	struct block_write *w = run->w;

	run->offload = (struct offload){.work = work, .done = done};
	run->rc = -EIO; /* until it is begun: its volume may go out of service before that */
	reactor_offload_to(w->core->reactor, XFER_WRITE_QUEUE(w->rw->volume), &run->offload);
}

/* Data first. Until they are all written, a CRC on disk that is to be replaced is still the CRC of
 * the bytes before; good_length() of the store finds them by it. */
static void run_work(struct offload *o)
{
	struct run *run = container_of(o, struct run, offload);
	struct replica_writer *rw = run->w->rw;
	const uint64_t start_ns = run->timed ? clock_mono_ns() : 0;

	replica_write_begin(rw);
	run->rc = write_data(run);
	if (!run->rc && !run->ordered && rw->crc_type != CRC_NULL)
		run->rc = write_crcs(run);
	replica_write_end(rw);
	run->took_ns = run->timed ? clock_mono_ns() - start_ns : 0;
}

static void run_work_crcs(struct offload *o)
{
	struct run *run = container_of(o, struct run, offload);

	replica_write_begin(run->w->rw);
	run->rc = write_crcs(run);
	replica_write_end(run->w->rw);
}

static void run_end(struct run *run)
{
	struct block_write *w = run->w;

	run->under_way = false;
	if (run->refused)
		w->dio = false;
	if (run->timed) {
		w->disk_time.ns += run->took_ns;
		w->disk_time.samples++;
	}
	run->lane->users--;
	wlane_put(w, run->lane);
	if (run->rc < 0)
		bw_fail(w, run->rc, "write to the block file");
	bw_ready(w);
}

static void run_done(struct offload *o)
{
	run_end(container_of(o, struct run, offload));
}

static void on_data_synced(struct bw_sync *s, int rc)
{
	struct run *run = container_of(s, struct run, data_sync);

	run->rc = rc;
	if (rc < 0) {
		run_end(run);
		return;
	}
	run->w->data_synced_len = run->to;
	run_begin(run, run_work_crcs, run_done);
}

/* Of an ordered run the data is written. */
static void run_done_data(struct offload *o)
{
	struct run *run = container_of(o, struct run, offload);

	if (run->rc < 0)
		run_end(run);
	else
		bw_sync_begin(run->w, &run->data_sync, run->w->rw->fd, on_data_synced);
}

/* Whoever writes from @from on replaces the CRC of a chunk. */
static bool within_chunk(const struct block_write *w, uint64_t from)
{
	return w->rw->crc_type != CRC_NULL && from % w->rw->bytes_per_crc;
}

/* ... whose beginning is on stable storage. */
static bool must_order(const struct block_write *w, uint64_t from)
{
	return within_chunk(w, from) && round_down(from, w->rw->bytes_per_crc) < w->sync_len;
}

static void run_start(struct block_write *w, struct lane *lane, uint64_t to, bool direct)
{
	struct run *run = &w->runs[w->run_tail++ % BW_RUNS];
	const uint32_t bpc = w->rw->bytes_per_crc;

	*run = (struct run){.w = w,
			    .lane = lane,
			    .from = w->submitted,
			    .to = to,
			    .direct = direct,
			    .ordered = must_order(w, w->submitted),
			    .under_way = true,
			    .timed = outlier_is_sampled(w->core->dn->live.io_sampling_percent,
							&w->core->io_seq)};
	if (w->rw->crc_type != CRC_NULL && to % bpc)
		memcpy(run->edge, lane->disk_crcs->data + (to - lane->base) / bpc * 4,
		       sizeof(run->edge));
	lane->users++;
	w->submitted = to;
	run_begin(run, run_work, run->ordered ? run_done_data : run_done);
}

/* It is the only run then. */
bool wdisk_replaces_crc(const struct block_write *w)
{
	const struct run *run = &w->runs[w->run_head % BW_RUNS];

	return !wdisk_idle(w) && !run->ordered && within_chunk(w, run->from);
}

void wdisk_reap(struct block_write *w)
{
	while (!wdisk_idle(w)) {
		struct run *run = &w->runs[w->run_head % BW_RUNS];

		if (run->under_way)
			return;
		w->run_head++;
		w->disk_failed |= run->rc < 0;
		/* Also when the op has failed otherwise: the meta file covers these bytes now. */
		if (w->disk_failed)
			continue;
		w->on_disk = run->to;
		memcpy(w->edge, run->edge, sizeof(w->edge));
	}
}

static struct lane *lane_to_write(struct block_write *w)
{
	for (uint32_t i = 0; i < BW_LANES; i++) {
		struct lane *l = &w->lanes[i];

		if (l->slot && l->lo <= w->submitted && w->submitted < l->hi)
			return l;
	}
	return NULL;
}

/* ---- the last bytes, if they are few ---- */

/* The helper thread that finalises the block is woken anyway: for a small one a run of its own
 * would be two more wake-ups. Not when somebody waits for an earlier ack. */
static bool may_leave(struct block_write *w, const struct lane *lane)
{
	if (!w->last_seen || lane->hi != w->received || lane->hi - w->submitted > LEFT_MAX ||
	    lane->landings)
		return false;
	for (uint32_t i = w->head; i != w->tail; i++) {
		const struct bpiece *b = bw_piece_at(w, i);

		if (b->status != DT_SUCCESS || (b->p.sync && !b->p.last))
			return false;
	}
	return true;
}

static void leave(struct block_write *w, struct lane *lane)
{
	w->left = lane;
	w->left_timed = outlier_is_sampled(w->core->dn->live.io_sampling_percent, &w->core->io_seq);
	lane->users++;
}

int wdisk_write_left(struct block_write *w)
{
	const struct lane *lane = w->left;
	const uint32_t bpc = w->rw->bytes_per_crc;
	const uint64_t from = w->submitted, to = lane->hi;
	const uint64_t crc_from = from / bpc * 4, crc_to = (to + bpc - 1) / bpc * 4;
	const uint64_t start_ns = w->left_timed ? clock_mono_ns() : 0;
	int rc;

	replica_write_begin(w->rw);
	rc = file_write_full(w->rw->fd, lane->slot->data + (from - lane->base), to - from, from);
	if (!rc && must_order(w, from))
		rc = ret_errno(fdatasync(w->rw->fd));
	if (!rc && w->rw->crc_type != CRC_NULL) {
		rc = file_write_full(w->rw->fd_meta,
				     lane->disk_crcs->data + (crc_from - lane->base / bpc * 4),
				     crc_to - crc_from, META_HEADER_LEN + crc_from);
		if (rc)
			undo_crc(w, from);
	}
	replica_write_end(w->rw);
	if (w->left_timed) {
		w->disk_time.ns += clock_mono_ns() - start_ns;
		w->disk_time.samples++;
	}
	return rc;
}

void wdisk_left_done(struct block_write *w, bool written)
{
	struct lane *lane = w->left;

	w->left = NULL;
	lane->users--;
	if (written)
		w->submitted = w->on_disk = lane->hi;
	else
		w->disk_failed = true;
	wlane_put(w, lane);
}

/* Start one run if one is due. */
static bool plan_one(struct block_write *w)
{
	const bool busy = !wdisk_idle(w);
	struct lane *lane = lane_to_write(w);
	const struct run *prev = &w->runs[(w->run_tail - 1) % BW_RUNS];
	uint64_t from = w->submitted, lo, hi;
	bool all;

	if (!lane || w->left || w->run_tail - w->run_head >= BW_RUNS)
		return false;
	all = w->flush || lane->hi == lane->end || (!lane->open && !lane->landings);
	if (!all && (busy || !w->idle))
		return false;
	/* Between chunks as well as pages: a CRC reaches the disk with all its bytes. */
	lo = round_up(from, w->unit);
	hi = round_down(lane->hi, w->unit);
	if (w->dio && hi > lo && hi - lo >= BW_DIO_MIN) {
		if (from == lo) {
			if (busy && !prev->direct)
				return false;
			run_start(w, lane, hi, true);
			return true;
		}
		if (busy)
			return false;
		run_start(w, lane, lo, false);
		return true;
	}
	if (busy)
		return false;
	if (may_leave(w, lane)) {
		leave(w, lane);
		return false;
	}
	run_start(w, lane, lane->hi, false);
	return true;
}

void wdisk_plan(struct block_write *w)
{
	bool flushed;

	if (w->rc) {
		wlane_give_back(w);
		return;
	}
	while (plan_one(w))
		;
	flushed = w->flush && w->submitted == w->received;
	if (flushed)
		w->flush = false;
	/* A block that nobody writes to holds no slot: the next bytes begin a lane of their own. */
	if (flushed || w->idle) {
		w->trickle = true;
		if (w->cur && !w->landings && w->submitted == w->received)
			wlane_close(w);
	}
}

void wdisk_fini(struct block_write *w)
{
	assert(wdisk_idle(w));
	for (uint32_t i = 0; i < BW_LANES; i++)
		w->lanes[i].users = 0;
	wlane_give_back(w);
}
