/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/xfer/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/dt.h"
#include "datanode/outliers.h"

#define PAGE 4096u
#define META_HEADER_LEN 7
#define VISIBLE_WAIT_NS (3 * NS_PER_S)
#define VISIBLE_POLL_NS (10 * NS_PER_MS)
#define NO_CRC_BPC 512             /* bytesPerChecksum said when no CRCs are sent */

struct rpiece {
	struct piece p;
	struct uring_op data_op, crc_op;
	struct bread *r;
	uint32_t lead;        /* bytes read before p.off, for alignment */
	uint32_t got, want;   /* data with the lead */
	uint32_t crc_got;
	uint8_t waiting;
	bool direct, used, handed;
	uint64_t start_ns;    /* 0: its time is not taken */
};

enum bread_state {
	BR_OPEN_WAIT,     /* helper opens the replica; leaves on br_done_open() */
	BR_CHECK,         /* is the range readable? */
	BR_VISIBLE_WAIT,  /* it is being written: leaves on the timer */
	BR_REFRESH_WAIT,  /* helper asks how far it is; leaves on br_done_open() */
	BR_RUN,
	BR_DRAIN,         /* waits for disk reads and pieces that are out */
	BR_RELEASE_WAIT,  /* helper closes the reader */
	BR_DONE,
};

struct bread {
	struct rop rop;
	struct xfer_core *core;
	struct list core_link;
	struct read_sink *sink;
	struct read_params params;
	struct replica_reader *rr;
	struct read_info info;
	enum bread_state state;
	int rc;
	struct err err;
	bool closed, told, suspect;
	struct outlier_sum disk_time; /* slow disks: told at the end */
	char volume[BLOCK_UUID_MAX];  /* that the replica is on */

	uint32_t unit;            /* pieces end at multiples of it */
	uint64_t next;            /* first byte not asked for */
	struct rpiece pieces[BREAD_AHEAD];
	uint32_t head, give, tail; /* free running: not back yet, next to hand over, end */

	struct rtimer timer;
	uint64_t visible_deadline_ns;
	struct offload offload;
	struct pool_waiter waiter;
	bool pool_waiting;
	struct slot *spare;
};

static void br_ready(struct bread *r)
{
	reactor_ready(r->core->reactor, &r->rop);
}

static void br_fail(struct bread *r, int rc)
{
	if (!r->rc)
		r->rc = rc;
	br_ready(r);
}

/* ---- open and close, on a helper thread unless the files are open ---- */

static void br_work_open(struct offload *o)
{
	struct bread *r = container_of(o, struct bread, offload);

	if (r->rr)
		replica_read_refresh(r->rr);
	else
		r->rc = replica_read_open(r->params.bp, &r->params.block, &r->rr, &r->err);
}

static void br_opened(struct bread *r)
{
	if (r->rr)
		memcpy(r->volume, r->rr->storage_uuid, sizeof(r->volume));
	r->state = BR_CHECK;
	br_ready(r);
}

static void br_done_open(struct offload *o)
{
	br_opened(container_of(o, struct bread, offload));
}

static void br_work_close(struct offload *o)
{
	struct bread *r = container_of(o, struct bread, offload);

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
	struct bread *r = container_of(o, struct bread, offload);

	r->state = BR_DONE;
	br_ready(r);
}

static void br_offload(struct bread *r, void (*work)(struct offload *), void (*done)(struct offload *))
{
	r->offload.work = work;
	r->offload.done = done;
	xfer_offload(r->core,
		     r->rr ? r->rr->volume : replica_volume(r->params.bp, r->params.block.id),
		     &r->offload);
}

/* ---- the range ---- */

static void br_on_timer(struct rtimer *t)
{
	struct bread *r = container_of(t, struct bread, timer);

	r->state = BR_REFRESH_WAIT;
	br_offload(r, br_work_open, br_done_open);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

static void br_tell_failure(struct bread *r)
{
	if (!r->told)
		r->sink->ops->opened(r->sink, r->rc, NULL, &r->err);
	r->told = true;
	r->state = BR_DRAIN;
}

static void br_range(struct bread *r)
{
	const struct replica_reader *rr = r->rr;
	const bool crcs = r->params.want_crcs && rr->fd_meta >= 0 && rr->crc_type != CRC_NULL;
	const uint32_t bpc = crcs ? rr->bytes_per_crc : NO_CRC_BPC;
	const uint64_t end = r->params.off + r->params.len, up = (end + bpc - 1) / bpc * bpc;
	const uint64_t unit = (uint64_t)bpc / gcd(bpc, PAGE) * PAGE;

	if (!bpc_fits(bpc)) { /* somebody else's replica */
		r->rc = err_set(&r->err, -EINVAL, "%u bytes per CRC of blk_%" PRId64 " are not served", bpc,
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
	r->told = true;
	r->state = BR_RUN;
	r->sink->ops->opened(r->sink, 0, &r->info, NULL);
}

static void br_do_check(struct bread *r)
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
	if (end <= r->rr->block.len) {
		br_range(r);
		return;
	}
	if (!r->visible_deadline_ns)
		r->visible_deadline_ns = now + VISIBLE_WAIT_NS;
	if (r->rr->state != REPLICA_RBW || now >= r->visible_deadline_ns) {
		r->rc = err_set(&r->err, -EINVAL,
				"offset %" PRId64 " and length %" PRId64
				" are beyond the readable length %" PRIu64 " of blk_%" PRId64 "_%" PRIu64,
				(int64_t)r->params.off, (int64_t)r->params.len, r->rr->block.len, r->rr->block.id,
				r->rr->block.gs);
		br_tell_failure(r);
		return;
	}
	r->state = BR_VISIBLE_WAIT;
	reactor_timer_set(r->core->reactor, &r->timer, now + VISIBLE_POLL_NS);
}

/* ---- pieces ---- */

static enum slot_class class_for(uint64_t bytes)
{
	return bytes <= 8192 ? SLOT_8K : bytes <= 65536 ? SLOT_64K : bytes <= 262144 ? SLOT_256K : SLOT_1M;
}

static void br_on_granted(struct pool_waiter *waiter, struct slot *slot)
{
	struct bread *r = container_of(waiter, struct bread, waiter);

	r->pool_waiting = false;
	r->spare = slot;
	br_ready(r);
}

static struct slot *br_slot(struct bread *r, enum slot_class cls)
{
	struct slot *slot = r->spare;

	r->spare = NULL;
	if (slot && slot->cls == (uint8_t)cls)
		return slot;
	slot_put(slot);
	slot = pool_get(r->core->pool, cls, POOL_CLIENT);
	if (slot || r->pool_waiting)
		return slot;
	r->pool_waiting = true;
	r->waiter.granted = br_on_granted;
	pool_wait(r->core->pool, cls, POOL_CLIENT, &r->waiter);
	return NULL;
}

static void rp_submit_data(struct rpiece *b)
{
	struct bread *r = b->r;
	const uint64_t at = b->p.off - b->lead + b->got;
	struct io_uring_sqe *sqe = reactor_sqe(r->core->reactor);
	uint8_t *to = b->p.slot->data + b->got;

	const uint32_t rest = b->want - b->got, pages = (rest + PAGE - 1) / PAGE * PAGE;

	if (b->direct && reactor_pool_fixed(r->core->reactor))
		io_uring_prep_read_fixed(sqe, r->rr->fd_direct, to, pages, at, (int)b->p.slot->slab);
	else if (b->direct)
		io_uring_prep_read(sqe, r->rr->fd_direct, to, pages, at);
	else
		io_uring_prep_read(sqe, r->rr->fd, to, rest, at);
	uring_attach(sqe, &b->data_op);
}

static void rp_submit_crcs(struct rpiece *b)
{
	struct bread *r = b->r;
	struct io_uring_sqe *sqe = reactor_sqe(r->core->reactor);

	io_uring_prep_read(sqe, r->rr->fd_meta, b->p.crc_slot->data + b->crc_got,
			   b->p.crc_count * 4 - b->crc_got,
			   META_HEADER_LEN + b->p.off / r->info.bytes_per_crc * 4 + b->crc_got);
	uring_attach(sqe, &b->crc_op);
}

static void rp_part_done(struct rpiece *b, int rc)
{
	b->waiting--;
	if (rc < 0) {
		log_warn("op=read block=%" PRId64 " off=%" PRIu64 ": %s", b->r->info.block.id, b->p.off,
			 err_name(rc));
		b->r->suspect |= rc == -ENODATA;
		br_fail(b->r, rc);
	}
	br_ready(b->r);
}

static void rp_on_data(struct uring_op *op, int res, uint32_t flags)
{
	struct rpiece *b = container_of(op, struct rpiece, data_op);

	(void)flags;
	if (res == -EINVAL && b->direct) {
		b->direct = false;
		rp_submit_data(b);
		return;
	}
	if (res > 0)
		b->got += (uint32_t)res;
	if (res == -EAGAIN || res == -EINTR || (res > 0 && b->got < b->want)) {
		if (b->got % PAGE)
			b->direct = false;
		rp_submit_data(b);
		return;
	}
	if (b->start_ns) {
		b->r->disk_time.ns += clock_mono_ns() - b->start_ns;
		b->r->disk_time.samples++;
	}
	rp_part_done(b, res == 0 ? -ENODATA : res);
}

static void rp_on_crcs(struct uring_op *op, int res, uint32_t flags)
{
	struct rpiece *b = container_of(op, struct rpiece, crc_op);
	const uint32_t want = b->p.crc_count * 4;

	(void)flags;
	if (res > 0)
		b->crc_got += (uint32_t)res;
	if (res == -EAGAIN || res == -EINTR || (res > 0 && b->crc_got < want)) {
		rp_submit_crcs(b);
		return;
	}
	rp_part_done(b, res == 0 ? -ENODATA : res);
}

static bool rp_slots(struct bread *r, struct rpiece *b, uint32_t room)
{
	b->p.slot = br_slot(r, class_for(room));
	if (!b->p.slot)
		return false;
	if (!b->p.crc_count)
		return true;
	b->p.crc_slot = pool_get(r->core->pool, class_for(b->p.crc_count * 4), POOL_CLIENT);
	if (b->p.crc_slot)
		return true;
	/* Wait for the scarcer one; the other comes again. */
	slot_put(b->p.slot);
	if (!r->pool_waiting) {
		r->pool_waiting = true;
		r->waiter.granted = br_on_granted;
		pool_wait(r->core->pool, class_for(b->p.crc_count * 4), POOL_CLIENT, &r->waiter);
	}
	return false;
}

/* Ask the disk for the next piece; false: none left, or no slot. */
static bool rp_start(struct bread *r)
{
	struct rpiece *b = &r->pieces[r->tail % BREAD_AHEAD];
	const uint32_t bpc = r->info.bytes_per_crc;
	const uint32_t lead = (uint32_t)(r->next % PAGE);
	const uint64_t limit = (r->next + PIECE_MAX - lead) / r->unit * r->unit;
	uint64_t to = r->info.end < limit ? r->info.end : limit;
	uint32_t room;

	if (to <= r->next) /* chunks that no page border meets */
		to = r->next + (bpc < PIECE_MAX / 2 ? PIECE_MAX / 2 / bpc * bpc : bpc);
	if (to > r->info.end)
		to = r->info.end;
	room = (uint32_t)((to - r->next + lead + PAGE - 1) / PAGE * PAGE);
	*b = (struct rpiece){.r = r, .lead = lead, .waiting = 1};
	b->p.off = r->next;
	b->p.len = (uint32_t)(to - r->next);
	b->p.crc_count = (uint32_t)(crc_bytes(r->info.crc_type, b->p.len, bpc) / 4);
	if (!rp_slots(r, b, room))
		return false;
	list_init(&b->p.link);
	b->p.slot_off = lead;
	b->want = lead + b->p.len;
	b->data_op.done = rp_on_data;
	b->crc_op.done = rp_on_crcs;
	b->direct = r->core->read_direct && r->rr->state == REPLICA_FINALIZED &&
		    r->rr->fd_direct >= 0 && b->p.len >= STORE_DIRECT_MIN;
	b->used = true;
	r->tail++;
	r->next = to;
	if (b->p.crc_count) {
		b->waiting = 2;
		rp_submit_crcs(b);
	}
	b->start_ns = outlier_is_sampled(r->core->dn->live.io_sampling_percent, &r->core->io_seq) ?
			      clock_mono_ns() : 0;
	rp_submit_data(b);
	return true;
}

static void rp_ready_crcs(struct rpiece *b)
{
	const struct replica_reader *rr = b->r->rr;
	const uint64_t end = b->p.off + b->p.len;
	uint8_t *last;
	uint32_t v;

	if (!b->p.crc_count)
		return;
	last = b->p.crc_slot->data + (b->p.crc_count - 1) * 4;
	if (rr->partial && end == b->r->info.block.len && end % rr->bytes_per_crc) {
		v = htobe32(rr->partial_crc);
		memcpy(last, &v, 4);
	}
	b->p.crcs = b->p.crc_slot->data;
	memcpy(b->p.edge, last, 4);
}

static void rp_release(struct rpiece *b)
{
	slot_put(b->p.slot);
	slot_put(b->p.crc_slot);
	b->p.slot = b->p.crc_slot = NULL;
	b->used = false;
}

static void br_reap(struct bread *r)
{
	while (r->head != r->tail && !r->pieces[r->head % BREAD_AHEAD].used)
		r->head++;
}

static void br_do_run(struct bread *r)
{
	br_reap(r);
	if (r->rc || r->closed) {
		r->state = BR_DRAIN;
		return;
	}
	while (r->next < r->info.end && r->tail - r->head < BREAD_AHEAD && rp_start(r))
		;
	while (r->give != r->tail) {
		struct rpiece *b = &r->pieces[r->give % BREAD_AHEAD];

		if (b->waiting)
			break;
		r->give++;
		b->handed = true;
		rp_ready_crcs(b);
		metric_add(r->sink->rdma  ? METRIC_DN_READ_RDMA
			   : r->sink->own ? METRIC_DN_READ_OWN
					  : METRIC_DN_READ_TCP, b->p.len);
		r->sink->ops->piece(r->sink, &b->p);
	}
	if (r->next == r->info.end && r->head == r->tail)
		r->state = BR_DRAIN;
}

static void br_do_drain(struct bread *r)
{
	if (r->pool_waiting)
		pool_wait_cancel(r->core->pool, &r->waiter);
	r->pool_waiting = false;
	slot_put(r->spare);
	r->spare = NULL;
	for (; r->give != r->tail; r->give++) {
		struct rpiece *b = &r->pieces[r->give % BREAD_AHEAD];

		if (b->waiting)
			return;
		rp_release(b);
	}
	br_reap(r);
	if (r->head != r->tail)
		return;
	if (!r->suspect && !store_is_disk_error(r->rc) && (!r->rr || replica_read_close_now(r->rr))) {
		r->rr = NULL;
		r->state = BR_DONE;
		return;
	}
	r->state = BR_RELEASE_WAIT;
	br_offload(r, br_work_close, br_done_close);
}

static bool br_step(struct rop *rop)
{
	struct bread *r = container_of(rop, struct bread, rop);
	enum bread_state before;

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
		case BR_DRAIN:
			br_do_drain(r);
			break;
		case BR_OPEN_WAIT:
		case BR_VISIBLE_WAIT:
		case BR_REFRESH_WAIT:
		case BR_RELEASE_WAIT:
		case BR_DONE:
			break;
		}
	} while (r->state != before);
	return r->state == BR_DONE;
}

static void br_free(struct rop *rop)
{
	struct bread *r = container_of(rop, struct bread, rop);

	reactor_timer_clear(r->core->reactor, &r->timer);
	list_del(&r->core_link);
	r->core->op_count--;
	atomic_fetch_sub(&r->core->dn->xceivers, 1);
	outliers_add(r->core->dn->outliers, OUTLIER_DISK_READ, r->volume, r->disk_time.ns,
		     r->disk_time.samples); /* once a read: it takes a mutex */
	r->sink->ops->ended(r->sink, r->rc ? r->rc : r->closed ? -ECANCELED : 0);
	free(r);
}

int bread_open(struct xfer_core *core, const struct read_params *params, struct read_sink *sink,
	       struct bread **ret)
{
	struct bread *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->core = core;
	r->sink = sink;
	r->params = *params;
	r->timer.fire = br_on_timer;
	rop_init(&r->rop, br_step, br_free);
	list_add_tail(&core->ops, &r->core_link);
	core->op_count++;
	atomic_fetch_add(&core->dn->xceivers, 1);
	*ret = r;
	if (replica_read_open_now(params->bp, &params->block, &r->rr) == 0) {
		br_opened(r);
		return 0;
	}
	r->state = BR_OPEN_WAIT;
	br_offload(r, br_work_open, br_done_open);
	return 0;
}

void bread_sent(struct bread *r, struct piece *p)
{
	rp_release(container_of(p, struct rpiece, p));
	br_ready(r);
}

void bread_close(struct bread *r)
{
	r->closed = true;
	br_ready(r);
}
