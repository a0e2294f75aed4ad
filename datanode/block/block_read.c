/* SPDX-License-Identifier: Apache-2.0 */
/* A block being read (engine.h): the replica is opened, its range checked, pieces are read ahead
 * and handed over in order. br_ is the read, rp_ one piece of it. A read that finds the pool dry
 * holds nothing and waits; one whose peer takes nothing is parked and holds nothing either. */
#include "datanode/block/block_read_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "datanode/block/buffers.h"
#include "datanode/block/operations.h"

#define VISIBLE_WAIT_NS (3 * NS_PER_S)
#define VISIBLE_POLL_NS (10 * NS_PER_MS)
#define AHEAD_FIRST 2
#define SHORT_READ (256u << 10) /* of all that is asked for */
#define NO_CRC_BPC 512          /* bytesPerChecksum said when no CRCs are sent */

/* ---- open and close, on a helper thread unless the files are open ---- */

static void br_work_open(struct offload *o)
{
	struct block_read *r = container_of(o, struct block_read, offload);

	if (r->rr) {
		r->rc = replica_read_refresh(r->rr, &r->err);
		if (r->rc != -ESTALE)
			return;
		replica_read_close(r->rr);
		r->rr = NULL;
	}
	r->rc = replica_read_open(r->params.bp, &r->params.block, &r->rr, &r->err);
}

static void br_opened(struct block_read *r)
{
	if (r->rr) {
		memcpy(r->volume, r->rr->storage_uuid, sizeof(r->volume));
		r->volume_no = r->rr->volume; /* it may have been moved since it was asked for */
		r->ask.budget[0] = &buffers_volume(r->core, r->rr->volume)->slots;
		r->ask.budget[1] = r->sink->share ? &r->sink->share->slots : NULL;
		r->disk = &r->core->disks[r->rr->volume % XFER_BUDGETS];
	}
	r->state = BR_CHECK;
	br_ready(r);
}

static void br_done_open(struct offload *o)
{
	br_opened(container_of(o, struct block_read, offload));
}

static void br_work_close(struct offload *o)
{
	struct block_read *r = container_of(o, struct block_read, offload);

	if (r->rr) {
		if (r->suspect)
			replica_suspect(r->params.bp, &r->rr->block);
		if (store_is_disk_error(r->rc))
			store_volume_suspect(pool_store(r->params.bp), r->rr->storage_uuid);
		replica_read_close(r->rr);
	}
	r->rr = NULL;
}

static void br_done_close(struct offload *o)
{
	struct block_read *r = container_of(o, struct block_read, offload);

	r->state = BR_DONE;
	br_ready(r);
}

static void br_offload(struct block_read *r, void (*work)(struct offload *),
		       void (*done)(struct offload *))
{
	r->offload.work = work;
	r->offload.done = done;
	r->offload.movable = !r->rr;
	engine_offload(r->core,
		       r->rr ? r->rr->volume : replica_volume(r->params.bp, r->params.block.id),
		       &r->offload);
}

/* ---- the range ---- */

static void br_on_timer(struct rtimer *t)
{
	struct block_read *r = container_of(t, struct block_read, timer);

	if (list_is_linked(&r->turn_link)) {
		log_warn("op=read peer=%s block=%" PRId64
			 ": the disk does not answer: the read did not get its turn at it in time",
			 r->sink->peer, r->info.block.id);
		br_fail(r, -ETIMEDOUT);
		return;
	}
	if (r->state == BR_RUN || r->granted) /* in time after all */
		return;
	if (r->state == BR_WAIT_BUFFERS) {
		log_warn(
			"op=read peer=%s block=%" PRId64 ": no buffers for %" PRIu64
			" s: /ops lists who holds them; dfs.rdma.pool.size sets how many there are",
			r->sink->peer, r->info.block.id,
			r->core->waits.buffers_ns / (uint64_t)NS_PER_S);
		br_fail(r, -ENOBUFS);
		return;
	}
	r->state = BR_WAIT_DISK_REFRESH;
	br_offload(r, br_work_open, br_done_open);
}

static void br_tell_failure(struct block_read *r)
{
	if (!r->told)
		r->sink->ops->opened(r->sink, r->rc, NULL, &r->err);
	r->told = true;
	r->state = BR_DRAIN;
}

static void br_range(struct block_read *r)
{
	const struct replica_reader *rr = r->rr;
	const bool crcs = r->params.want_crcs && rr->fd_meta >= 0 && rr->crc_type != CRC_NULL;
	const uint32_t bpc = crcs ? rr->bytes_per_crc : NO_CRC_BPC;
	const uint64_t end = r->params.off + r->params.len, up = (end + bpc - 1) / bpc * bpc;
	const uint64_t unit = lcm(bpc, PAGE);

	if (!bpc_fits(bpc)) { /* somebody else's replica */
		r->rc = err_set(&r->err, -EINVAL,
				"%u bytes per CRC of blk_%" PRId64 " are not served", bpc,
				rr->block.id);
		br_tell_failure(r);
		return;
	}
	r->unit = (uint32_t)(unit <= PIECE_MAX ? unit : bpc);
	r->info = (struct read_info){
		.crc_type = crcs ? rr->crc_type : CRC_NULL,
		.bytes_per_crc = bpc,
		.first = r->params.off / bpc * bpc,
		.end = up < rr->block.len ? up : rr->block.len,
		.block = rr->block,
		.state = rr->state,
	};
	r->next = r->info.first;
	r->is_short = r->info.end - r->info.first <= SHORT_READ;
	r->told = true;
	r->state = BR_RUN;
	r->sink->ops->opened(r->sink, 0, &r->info, NULL);
}

static void br_do_check(struct block_read *r)
{
	const uint64_t now = reactor_now_ns(r->core->reactor);
	uint64_t end;

	if (r->closed && !r->rc)
		r->rc = -ECANCELED; /* before it was opened: there is no info to tell */
	if (r->rc) {
		br_tell_failure(r);
		return;
	}
	if (r->params.whole) {
		r->params.off = 0;
		r->params.len = r->rr->block.len;
	}
	if (__builtin_add_overflow(r->params.off, r->params.len, &end))
		end = UINT64_MAX;
	if (end > r->rr->cut_to) {
		r->rc = err_set(&r->err, -EEXIST,
				"blk_%" PRId64 "_%" PRIu64 " was cut to %" PRIu64
				" bytes since it was blk_%" PRId64 "_%" PRIu64,
				r->rr->block.id, r->rr->block.gs, r->rr->cut_to, r->rr->block.id,
				r->params.block.gs);
		br_tell_failure(r);
		return;
	}
	if (end <= r->rr->block.len) {
		br_range(r);
		return;
	}
	if (!r->visible_deadline_ns)
		r->visible_deadline_ns = now + VISIBLE_WAIT_NS;
	if (r->rr->state != REPLICA_RBW || now >= r->visible_deadline_ns) {
		r->rc = err_set(&r->err, -EINVAL,
				"offset %" PRId64 " and length %" PRId64
				" are beyond the readable length %" PRIu64 " of blk_%" PRId64
				"_%" PRIu64,
				(int64_t)r->params.off, (int64_t)r->params.len, r->rr->block.len,
				r->rr->block.id, r->rr->block.gs);
		br_tell_failure(r);
		return;
	}
	r->state = BR_WAIT_WRITER;
	reactor_timer_set(r->core->reactor, &r->timer, now + VISIBLE_POLL_NS);
}

static enum metric served(const struct block_read *r)
{
	return r->sink->rdma  ? METRIC_DN_READ_RDMA
	       : r->sink->own ? METRIC_DN_READ_OWN
			      : METRIC_DN_READ_TCP;
}

static void br_do_run(struct block_read *r)
{
	br_reap(r);
	if (r->rc || r->closed) {
		r->state = BR_DRAIN;
		return;
	}
	while (r->next < r->info.end && r->tail - r->head < r->ahead && rp_start(r))
		;
	while (r->give != r->tail) {
		struct rpiece *b = &r->pieces[r->give % BREAD_AHEAD];

		if (b->waiting)
			break;
		if (replica_read_is_cut(r->rr, b->p.off + b->p.len)) {
			r->rc = -EEXIST;
			r->state = BR_DRAIN;
			return;
		}
		r->give++;
		b->handed = true;
		r->bytes += b->p.len;
		r->handed_end = b->p.off + b->p.len;
		rp_ready_crcs(b);
		metric_add(served(r), b->p.len);
		r->sink->ops->piece(r->sink, &b->p);
	}
	if (r->next == r->info.end && r->head == r->tail)
		r->state = BR_DRAIN;
}

/* What was read and not handed over; false: the disk has not answered yet. */
static bool give_back_unhanded(struct block_read *r)
{
	bool waits = false;

	for (uint32_t i = r->give; i != r->tail; i++) {
		rp_stop_waiting(&r->pieces[i % BREAD_AHEAD]);
		waits |= r->pieces[i % BREAD_AHEAD].waiting;
	}
	if (waits)
		return false;
	for (; r->give != r->tail; r->give++)
		rp_release(&r->pieces[r->give % BREAD_AHEAD]);
	br_reap(r);
	return true;
}

static void br_do_wait_buffers(struct block_read *r)
{
	if (r->granted) {
		reactor_timer_clear(r->core->reactor, &r->timer);
		r->state = BR_RUN;
	} else if (r->rc || r->closed) {
		r->state = BR_DRAIN;
	}
}

static void br_do_park(struct block_read *r)
{
	if (!give_back_unhanded(r))
		return;
	assert(r->head == r->tail);
	r->next = r->parked_at;
	r->ahead = 1;
	r->state = r->resume ? BR_RUN : BR_WAIT_PEER;
}

static void br_do_drain(struct block_read *r)
{
	br_drop_ask(r);
	if (!give_back_unhanded(r) || r->head != r->tail)
		return;
	if (!r->suspect && !store_is_disk_error(r->rc) &&
	    (!r->rr || replica_read_close_now(r->rr))) {
		r->rr = NULL;
		r->state = BR_DONE;
		return;
	}
	r->state = BR_WAIT_DISK_CLOSE;
	br_offload(r, br_work_close, br_done_close);
}

static bool br_step(struct rop *rop)
{
	struct block_read *r = container_of(rop, struct block_read, rop);
	enum block_read_state before;

	assert(reactor_is_current(r->core->reactor));
	do {
		before = r->state;
		switch (r->state) {
		case BR_CHECK:
			br_do_check(r);
			break;
		case BR_RUN:
			br_do_run(r);
			break;
		case BR_WAIT_BUFFERS:
			br_do_wait_buffers(r);
			break;
		case BR_WAIT_DISK_PARK:
			br_do_park(r);
			break;
		case BR_WAIT_PEER:
			if (r->rc || r->closed)
				r->state = BR_DRAIN;
			break;
		case BR_DRAIN:
			br_do_drain(r);
			break;
		case BR_WAIT_DISK_OPEN:
		case BR_WAIT_WRITER:
		case BR_WAIT_DISK_REFRESH:
		case BR_WAIT_DISK_CLOSE:
		case BR_DONE:
			break;
		}
	} while (r->state != before);
	return r->state == BR_DONE;
}

static void br_free(struct rop *rop)
{
	struct block_read *r = container_of(rop, struct block_read, rop);
	struct engine_core *core = r->core;

	reactor_timer_clear(core->reactor, &r->timer);
	list_del(&r->core_link);
	core->op_count--;
	atomic_fetch_sub(&core->dn->xceivers, 1);
	outliers_add(core->dn->outliers, OUTLIER_DISK_READ, r->volume, r->disk_time.ns,
		     r->disk_time.samples); /* once a read: it takes a mutex */
	r->sink->ops->ended(r->sink, r->rc ? r->rc : r->closed ? -ECANCELED : 0);
	spares_put(&core->spare_reads, r, sizeof(*r), XFER_SPARES);
}

int block_read_open(struct engine_core *core, const struct read_params *params,
		    struct read_sink *sink, struct block_read **ret)
{
	struct block_read *r = spares_get(&core->spare_reads, sizeof(*r));

	if (!r)
		return -ENOMEM;
	memset(r, 0, offsetof(struct block_read, room));
	r->err.rc = 0;
	r->err.text[0] = r->err.remote[0] = '\0';
	r->core = core;
	r->sink = sink;
	r->params = *params;
	r->timer.fire = br_on_timer;
	r->ahead = AHEAD_FIRST;
	r->begun_ns = r->moved_ns = reactor_now_ns(core->reactor);
	list_init(&r->turn_link);
	r->ask = (struct pool_ask){.use = params->use, .slots = r->set, .granted = br_on_granted};
	rop_init(&r->rop, br_step, br_free);
	list_add_tail(&core->reads, &r->core_link);
	core->op_count++;
	atomic_fetch_add(&core->dn->xceivers, 1);
	*ret = r;
	if (replica_read_open_now(params->bp, &params->block, &r->room) == 0) {
		r->rr = &r->room;
		br_opened(r);
		return 0;
	}
	r->volume_no = replica_volume(params->bp, params->block.id);
	r->state = BR_WAIT_DISK_OPEN;
	br_offload(r, br_work_open, br_done_open);
	return 0;
}

void block_read_sent(struct block_read *r, struct piece *p)
{
	rp_release(container_of(p, struct rpiece, p));
	r->moved_ns = reactor_now_ns(r->core->reactor);
	if (r->ahead < BREAD_AHEAD)
		r->ahead++;
	br_ready(r);
}

void block_read_park(struct block_read *r, uint64_t off)
{
	assert(r->state == BR_RUN || r->state == BR_WAIT_BUFFERS || r->state == BR_DRAIN);
	if (r->state == BR_DRAIN || r->rc || r->closed)
		return;
	br_drop_ask(r);
	r->parked_at = off / r->info.bytes_per_crc * r->info.bytes_per_crc;
	if (r->handed_end > r->parked_at) { /* those come again */
		metric_add(served(r), -(r->handed_end - r->parked_at));
		r->bytes -= r->handed_end - r->parked_at;
		r->handed_end = r->parked_at;
	}
	r->resume = false;
	r->state = BR_WAIT_DISK_PARK;
	metric_add(METRIC_POOL_RECLAIMED, 1);
	br_ready(r);
}

void block_read_resume(struct block_read *r)
{
	r->resume = true;
	if (r->state == BR_WAIT_PEER)
		r->state = BR_RUN;
	br_ready(r);
}

bool block_read_is_wanted(const struct block_read *r)
{
	struct buffers_share *const shares[] = {
		r->rr ? buffers_volume(r->core, r->rr->volume) : NULL, r->sink->share};

	return buffers_are_wanted(r->core, shares, 2);
}

void block_read_reclaim_all(struct engine_core *core)
{
	list_for_each (l, &core->reads) {
		struct block_read *r = container_of(l, struct block_read, core_link);

		if ((r->state == BR_RUN || r->state == BR_DRAIN) && r->head != r->tail &&
		    r->sink->ops->reclaim)
			r->sink->ops->reclaim(r->sink);
	}
}

void block_read_volume_out(struct engine_core *core, uint32_t volume)
{
	list_for_each (l, &core->reads) {
		struct block_read *r = container_of(l, struct block_read, core_link);

		if (r->volume_no != volume || r->lost || r->closed || r->state == BR_DONE)
			continue;
		r->lost = true;
		if (r->sink->ops->lost)
			r->sink->ops->lost(r->sink);
	}
}

/* ---- /ops ---- */

static const char *const br_state_names[] = {
	[BR_WAIT_DISK_OPEN] = "wait_disk_open",
	[BR_CHECK] = "check",
	[BR_WAIT_WRITER] = "wait_writer",
	[BR_WAIT_DISK_REFRESH] = "wait_disk_refresh",
	[BR_RUN] = "run",
	[BR_WAIT_BUFFERS] = "wait_buffers",
	[BR_WAIT_DISK_PARK] = "wait_disk_park",
	[BR_WAIT_PEER] = "wait_peer",
	[BR_DRAIN] = "drain",
	[BR_WAIT_DISK_CLOSE] = "wait_disk_close",
	[BR_DONE] = "done",
};

static bool reads_disk(const struct block_read *r)
{
	for (uint32_t i = r->head; i != r->tail; i++)
		if (r->pieces[i % BREAD_AHEAD].used && r->pieces[i % BREAD_AHEAD].waiting)
			return true;
	return false;
}

static const char *br_waits_for(const struct block_read *r)
{
	switch (r->state) {
	case BR_WAIT_DISK_OPEN:
	case BR_WAIT_DISK_REFRESH:
	case BR_WAIT_DISK_CLOSE:
	case BR_WAIT_DISK_PARK:
		return "disk";
	case BR_WAIT_WRITER:
		return "writer of the block";
	case BR_WAIT_BUFFERS:
		return "buffers";
	case BR_WAIT_PEER:
		return "peer";
	case BR_RUN:
	case BR_DRAIN:
		/* some are handed over: what is behind them is read-ahead */
		if (r->give != r->head)
			return "peer";
		return reads_disk(r)                   ? "disk"
		       : list_is_linked(&r->turn_link) ? "turn at the disk"
						       : "";
	case BR_CHECK:
	case BR_DONE:
		break;
	}
	return "";
}

static uint64_t br_held(const struct block_read *r)
{
	uint64_t bytes = 0;

	for (uint32_t i = r->head; i != r->tail; i++) {
		const struct piece *p = &r->pieces[i % BREAD_AHEAD].p;

		bytes += (p->slot ? p->slot->size : 0) + (p->crc_slot ? p->crc_slot->size : 0);
	}
	return bytes;
}

void block_read_list(struct engine_core *core, struct operation_list *l)
{
	static const char *const roles[POOL_USES] = {"client", "client", "peer", "reconstruction",
						     "control"};

	list_for_each (i, &core->reads) {
		const struct block_read *r = container_of(i, struct block_read, core_link);
		struct operation *o = operation_add(l, r->begun_ns, r->moved_ns);

		if (!o)
			return;
		o->kind = "read";
		o->role = roles[r->params.use];
		o->transport = r->sink->rdma ? "rdma" : r->sink->own ? "none" : "tcp";
		o->state = br_state_names[r->state];
		o->waits_for = br_waits_for(r);
		o->block_id = r->params.block.id;
		o->gs = r->params.block.gs;
		o->bytes = r->bytes;
		o->held = br_held(r);
		snprintf(o->pool, sizeof(o->pool), "%s", pool_id(r->params.bp));
		snprintf(o->peer, sizeof(o->peer), "%s", r->sink->peer ? r->sink->peer : "");
		snprintf(o->volume, sizeof(o->volume), "%s", r->volume);
	}
}

void block_read_close(struct block_read *r)
{
	r->closed = true;
	br_ready(r);
}
