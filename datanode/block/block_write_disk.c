/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a block being written to its volume: lanes, where payload lands, and runs, the writes
 * that helper threads make of them (block_write_internal.h says what both are). */
#include "datanode/block/block_write_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file_io.h"
#include "common/base/metrics.h"

#define LEFT_MAX 65536u /* bytes that are written by who finalises the block */

static uint64_t round_down(uint64_t v, uint64_t unit)
{
	return v / unit * unit;
}

static uint64_t round_up(uint64_t v, uint64_t unit)
{
	return (v + unit - 1) / unit * unit;
}

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
	memcpy(w->edge, &edge, sizeof(w->edge));
}

/* ---- lanes ---- */

void wdisk_lane_put(struct block_write *w, struct lane *lane)
{
	const bool unwritten = lane->hi > lane->lo && lane->hi > w->submitted;

	if (!lane->slot || lane->open || lane->users || lane->landings || unwritten)
		return;
	slot_put(lane->slot);
	slot_put(lane->crcs);
	if (lane->disk_crcs != lane->crcs)
		slot_put(lane->disk_crcs);
	*lane = (struct lane){0};
}

static void lane_close(struct block_write *w)
{
	struct lane *lane = w->cur;

	if (!lane)
		return;
	w->cur = NULL;
	lane->open = false;
	wdisk_lane_put(w, lane);
}

static enum pool_use use_of(const struct block_write *w)
{
	const bool first =
		w->params.client[0] && w->params.target_count + 1 >= w->params.pipeline_size;

	return first ? POOL_WRITE : POOL_PEER;
}

/* ---- buffers for a lane ---- */

static void on_granted(struct pool_ask *a)
{
	struct block_write *w = container_of(a, struct block_write, ask);

	w->granted = true;
	reactor_timer_clear(w->core->reactor, &w->buffers_timer);
	bw_ready(w);
}

static void buffers_deadline(struct block_write *w)
{
	reactor_timer_set(w->core->reactor, &w->buffers_timer,
			  reactor_now_ns(w->core->reactor) + w->core->waits.buffers_ns);
}

/* A sender that is told that the next node is gone makes a new pipeline. One that does not has as
 * long again. */
static void on_no_buffers(struct rtimer *t)
{
	struct block_write *w = container_of(t, struct block_write, buffers_timer);
	const bool told = w->mirror_broken && bw_has_acks(w);

	if (!told && bw_blame_hop(w, w->ask.budget[BW_HOP_SHARE], slot_class_size(SLOT_1M)))
		buffers_deadline(w);
	else
		bw_fail(w, told ? -EHOSTUNREACH : -ENOBUFS,
			"no buffers in time: /ops lists who holds them; "
			"dfs.rdma.pool.size sets how many there are");
}

static uint32_t crc_room(uint32_t cover, enum crc_type type, uint32_t bpc)
{
	const uint32_t n = (uint32_t)crc_bytes(type, cover, bpc);

	return n ? n : 1;
}

static void add_form(struct block_write *w, enum slot_class cls)
{
	const uint32_t cover = slot_class_size(cls) / w->unit * w->unit;
	const uint32_t crcs = crc_room(cover, w->crc_type, w->bpc);
	const uint32_t disk = crc_room(cover, w->rw->crc_type, w->rw->bytes_per_crc);
	struct pool_set *f = &w->ask.form[w->ask.forms];

	*f = (struct pool_set){
		.parts = 2, .part = {{(uint8_t)cls, 1}, {(uint8_t)slot_class_for_crcs(crcs), 1}}};
	if (!w->same_crc) {
		f->part[2].cls = (uint8_t)slot_class_for_crcs(disk);
		f->part[2].n = 1;
		f->parts = 3;
	}
	w->ask.forms++;
}

/* The longest lane: its CRCs, four bytes for each chunk, fit a slot, too. */
static uint32_t lane_max(const struct block_write *w)
{
	const uint32_t bpc = w->bpc < w->rw->bytes_per_crc ? w->bpc : w->rw->bytes_per_crc;

	return bpc < 4 ? PIECE_MAX / 4 : PIECE_MAX;
}

static enum slot_class class_for_span(const struct block_write *w, uint64_t span)
{
	const uint64_t need = round_up(span, w->unit);

	return slot_class_for(need < lane_max(w) ? need : lane_max(w));
}

/* A stream that has proved long gets large slots, a beginning or a trickle small ones. Smaller ones
 * than asked for take the bytes in several landings. */
static void ask_forms(struct block_write *w, uint64_t base, uint64_t off, uint32_t want, bool all)
{
	const bool stream = w->received >= w->rw->start_len + 131072 && !w->trickle;
	const uint32_t chunk_left = w->bpc - (uint32_t)(off % w->bpc);
	const enum slot_class wanted = class_for_span(w, off - base + want);
	const enum slot_class least =
		all ? class_for_span(w, off - base + (want < chunk_left ? want : chunk_left))
		    : wanted;

	w->ask.forms = 0;
	for (int cls = stream ? slot_class_for(lane_max(w)) : wanted;
	     cls >= (int)least && w->ask.forms < POOL_FORMS; cls--)
		add_form(w, (enum slot_class)cls);
}

static bool holds_lanes(const struct block_write *w)
{
	for (uint32_t i = 0; i < BW_LANES; i++)
		if (w->lanes[i].slot)
			return true;
	return false;
}

static void drop_set(struct block_write *w)
{
	if (!w->granted)
		return;
	w->granted = false;
	for (uint32_t i = 0; i < w->ask.form[w->ask.got].parts; i++)
		slot_put(w->set[i]);
}

/* What was granted is for the place that was asked about then; the sender may have changed its
 * mind. */
static bool set_fits(const struct block_write *w, uint64_t base, uint64_t off, uint32_t want)
{
	const uint32_t chunk_left = w->bpc - (uint32_t)(off % w->bpc);

	return w->set[0]->cls >=
	       (uint8_t)class_for_span(w, off - base + (want < chunk_left ? want : chunk_left));
}

/* The slots of a lane, all or none. Who holds lanes waits for those, not in line for more. */
static bool lane_buffers(struct block_write *w, uint64_t base, uint64_t off, uint32_t want)
{
	const bool all = !holds_lanes(w);

	if (w->granted && set_fits(w, base, off, want))
		return true;
	drop_set(w);
	if (pool_is_waiting(&w->ask))
		return false;
	w->ask.use = use_of(w);
	w->ask.slots = w->set;
	w->ask.granted = on_granted;
	ask_forms(w, base, off, want, all);
	if (pool_take(w->core->pool, &w->ask)) {
		w->granted = true;
		return true;
	}
	if (!all)
		return false;
	w->buffers_timer.fire = on_no_buffers;
	buffers_deadline(w);
	pool_wait(w->core->pool, &w->ask);
	return w->granted;
}

static int lane_open(struct block_write *w, uint64_t off, uint32_t want)
{
	const uint64_t base = round_down(off, w->unit);
	struct lane *lane = NULL;

	for (uint32_t i = 0; i < BW_LANES && !lane; i++)
		if (!w->lanes[i].slot)
			lane = &w->lanes[i];
	if (!lane || !lane_buffers(w, base, off, want))
		return -EAGAIN;
	w->granted = false;
	*lane = (struct lane){.slot = w->set[0],
			      .crcs = w->set[1],
			      .disk_crcs = w->same_crc ? w->set[1] : w->set[2],
			      .base = base,
			      .end = base + w->set[0]->size / w->unit * w->unit,
			      .open = true};
	lane->lo = lane->hi = w->landed;
	w->cur = lane;
	return 0;
}

int wdisk_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret)
{
	const uint32_t into = (uint32_t)(off % w->bpc);
	struct lane *lane;
	int rc;

	if (off > w->landed || (into && want > w->bpc - into))
		return -EINVAL;
	/* Bytes that are there already land on top of themselves: nothing may be half done then. */
	if (off < w->landed && w->landings)
		return -EAGAIN;
	if (w->cur && (off < w->cur->base || off >= w->cur->end))
		lane_close(w);
	if (!w->cur) {
		rc = lane_open(w, off, want);
		if (rc < 0)
			return rc;
	}
	lane = w->cur;
	ret->slot = slot_ref(lane->slot);
	ret->off = (uint32_t)(off - lane->base);
	ret->len = lane->end - off < want ? (uint32_t)(lane->end - off) : want;
	lane->landings++;
	w->landings++;
	if (off + ret->len > w->landed)
		w->landed = off + ret->len;
	if (off + ret->len == lane->end) {
		w->trickle = false; /* a lane was filled */
		lane_close(w);
	}
	return 0;
}

struct lane *wdisk_lane_of(struct block_write *w, const struct slot *slot)
{
	for (uint32_t i = 0; i < BW_LANES; i++)
		if (w->lanes[i].slot == slot)
			return &w->lanes[i];
	return NULL;
}

/* The lane may have been closed because it was full, and the next one begun: back to before. */
void wdisk_unland(struct block_write *w, uint64_t off, const struct landing *land)
{
	struct lane *lane = wdisk_lane_of(w, land->slot);

	assert(lane && lane->landings);
	lane->landings--;
	w->landings--;
	if (off < w->landed && off >= w->received)
		w->landed = off;
	if (w->cur == lane)
		return;
	lane_close(w);
	lane->open = true;
	w->cur = lane;
}

/* ---- CRCs ---- */

static void be32_put(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static uint32_t be32_get(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

/* Chunk CRCs of the new bytes from the bytes themselves, going on from a partial chunk. */
static void crcs_from_data(struct block_write *w, struct lane *lane, uint64_t from, uint64_t to)
{
	const enum crc_type type = w->rw->crc_type;
	const uint32_t bpc = w->rw->bytes_per_crc;

	while (from < to) {
		const uint64_t chunk_end = round_down(from, bpc) + bpc;
		const uint64_t end = chunk_end < to ? chunk_end : to;
		const uint8_t *data = lane->slot->data + (from - lane->base);

		w->tail_crc = from % bpc ? crc_extend(type, w->tail_crc, data, end - from)
					 : crc_compute(type, data, end - from);
		be32_put(lane->disk_crcs->data + (from - lane->base) / bpc * 4, w->tail_crc);
		from = end;
	}
	if (to % bpc == 0)
		w->tail_crc = 0;
}

void wdisk_accept(struct block_write *w, struct lane *lane, const struct piece *p,
		  const uint8_t *crcs)
{
	const uint64_t end = p->off + p->len;
	const size_t n = crc_bytes(w->crc_type, p->len, w->bpc);
	uint8_t *wire = lane->crcs->data + (p->off - lane->base) / w->bpc * 4;

	if (end <= w->received) { /* nothing new here, but it is passed on: all CRCs but the edge */
		if (n && p->off % w->bpc == 0)
			memcpy(wire, crcs, end % w->bpc ? n - 4 : n);
		return;
	}
	if (n)
		memcpy(wire, crcs, n);
	if (w->rw->crc_type != CRC_NULL) {
		if (!w->same_crc || p->off % w->bpc)
			crcs_from_data(w, lane, w->received > p->off ? w->received : p->off, end);
		else
			w->tail_crc = end % w->bpc ? be32_get(wire + n - 4) : 0;
	}
	w->received = end;
	lane->hi = end;
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

/* Data first. Until they are all written, a CRC on disk that is to be replaced is still the CRC of
 * the bytes before; good_length() of the store finds them by it. */
static void run_work(struct offload *o)
{
	struct run *run = container_of(o, struct run, offload);
	struct replica_writer *rw = run->w->rw;
	const uint64_t start_ns = run->timed ? clock_mono_ns() : 0;

	replica_write_begin(rw);
	run->rc = write_data(run);
	if (!run->rc && rw->crc_type != CRC_NULL)
		run->rc = write_crcs(run);
	replica_write_end(rw);
	run->took_ns = run->timed ? clock_mono_ns() - start_ns : 0;
}

static void run_done(struct offload *o)
{
	struct run *run = container_of(o, struct run, offload);
	struct block_write *w = run->w;

	run->under_way = false;
	if (run->refused)
		w->dio = false;
	if (run->timed) {
		w->disk_time.ns += run->took_ns;
		w->disk_time.samples++;
	}
	run->lane->users--;
	wdisk_lane_put(w, run->lane);
	if (run->rc < 0)
		bw_fail(w, run->rc, "write to the block file");
	bw_ready(w);
}

static void run_start(struct block_write *w, struct lane *lane, uint64_t to, bool direct)
{
	struct run *run = &w->runs[w->run_tail++ % BW_RUNS];
	const uint32_t bpc = w->rw->bytes_per_crc;

	*run = (struct run){.offload = {.work = run_work, .done = run_done},
			    .w = w,
			    .lane = lane,
			    .from = w->submitted,
			    .to = to,
			    .direct = direct,
			    .under_way = true,
			    /* until it is begun: its volume may go out of service before that */
			    .rc = -EIO,
			    .timed = outlier_is_sampled(w->core->dn->live.io_sampling_percent,
							&w->core->io_seq)};
	if (w->rw->crc_type != CRC_NULL && to % bpc)
		memcpy(run->edge, lane->disk_crcs->data + (to - lane->base) / bpc * 4,
		       sizeof(run->edge));
	lane->users++;
	w->submitted = to;
	reactor_offload_to(w->core->reactor, XFER_WRITE_QUEUE(w->rw->volume), &run->offload);
}

static void runs_reap(struct block_write *w)
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
	wdisk_lane_put(w, lane);
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

/* The write comes to nothing: what neither a run nor the next node uses goes to others, however
 * long a run takes. */
static void give_back(struct block_write *w)
{
	pool_wait_cancel(w->core->pool, &w->ask);
	reactor_timer_clear(w->core->reactor, &w->buffers_timer);
	drop_set(w);
	w->cur = NULL;
	for (uint32_t i = 0; i < BW_LANES; i++) {
		struct lane *lane = &w->lanes[i];

		if (!lane->slot || lane->users)
			continue;
		lane->open = false;
		lane->landings = 0; /* who fills one has a reference of its own */
		lane->hi = lane->lo;
		wdisk_lane_put(w, lane);
	}
}

void wdisk_plan(struct block_write *w)
{
	bool flushed;

	runs_reap(w);
	if (w->rc) {
		give_back(w);
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
			lane_close(w);
	}
}

uint64_t wdisk_held(const struct block_write *w)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < BW_LANES; i++) {
		const struct lane *l = &w->lanes[i];

		if (!l->slot)
			continue;
		bytes += l->slot->size + l->crcs->size;
		if (l->disk_crcs != l->crcs)
			bytes += l->disk_crcs->size;
	}
	return bytes;
}

void wdisk_fini(struct block_write *w)
{
	assert(wdisk_idle(w));
	for (uint32_t i = 0; i < BW_LANES; i++)
		w->lanes[i].users = 0;
	give_back(w);
}
