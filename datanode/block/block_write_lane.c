/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a block being written: the buffers that its payload lands in, and the CRCs of it as they
 * go to the next node and into the meta file (block_write_internal.h says what a lane is). */
#include "datanode/block/block_write_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void wlane_put(struct block_write *w, struct lane *lane)
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

void wlane_close(struct block_write *w)
{
	struct lane *lane = w->cur;

	if (!lane)
		return;
	w->cur = NULL;
	lane->open = false;
	wlane_put(w, lane);
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
 * than asked for take the bytes in several landings. The smallest form holds one unit, so it always
 * takes the rest of a chunk. */
static void ask_forms(struct block_write *w, uint64_t base, uint64_t off, uint32_t want, bool all)
{
	const bool stream = w->received >= w->rw->start_len + 131072 && !w->trickle;
	const enum slot_class wanted = class_for_span(w, off - base + want);
	const enum slot_class least = all ? class_for_span(w, w->unit) : wanted;

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

/* The slots of a lane, all or none. Who holds lanes waits for those, not in line for more. */
static bool lane_buffers(struct block_write *w, uint64_t base, uint64_t off, uint32_t want)
{
	const bool all = !holds_lanes(w);

	if (w->granted)
		return true;
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

int wlane_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret)
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
		wlane_close(w);
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
		wlane_close(w);
	}
	return 0;
}

struct lane *wlane_of(struct block_write *w, const struct slot *slot)
{
	for (uint32_t i = 0; i < BW_LANES; i++)
		if (w->lanes[i].slot == slot)
			return &w->lanes[i];
	return NULL;
}

/* The lane may have been closed because it was full, and the next one begun: back to before. */
void wlane_unland(struct block_write *w, uint64_t off, const struct landing *land)
{
	struct lane *lane = wlane_of(w, land->slot);

	assert(lane && lane->landings);
	lane->landings--;
	w->landings--;
	if (off < w->landed && off >= w->received)
		w->landed = off;
	if (w->cur == lane)
		return;
	wlane_close(w);
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

void wlane_accept(struct block_write *w, struct lane *lane, const struct piece *p,
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

/* ---- all of them ---- */

void wlane_give_back(struct block_write *w)
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
		wlane_put(w, lane);
	}
}

uint64_t wlane_held(const struct block_write *w)
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
