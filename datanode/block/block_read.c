/* SPDX-License-Identifier: Apache-2.0 */
/* A block being read (engine.h): the replica is opened, its range checked, pieces are read ahead
 * and handed over in order. br_ is the read, rp_ one piece of it. A read that finds the pool dry
 * holds nothing and waits; one whose peer takes nothing is parked and holds nothing either. */
#include "datanode/block/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/dt.h"
#include "datanode/admin/outliers.h"
#include "datanode/block/buffers.h"
#include "datanode/block/operations.h"

#define VISIBLE_WAIT_NS (3 * NS_PER_S)
#define VISIBLE_POLL_NS (10 * NS_PER_MS)
#define AHEAD_FIRST 2
#define SHORT_READ (256u << 10) /* of all that is asked for */
#define NO_CRC_BPC 512          /* bytesPerChecksum said when no CRCs are sent */

struct rpiece {
	struct piece p;
	struct uring_op data_op, crc_op;
	struct block_read *r;
	uint32_t lead;      /* bytes read before p.off, for alignment */
	uint32_t got, want; /* data with the lead */
	uint32_t crc_got;
	uint8_t waiting;
	bool direct, used, handed;
	bool in_turn;      /* a long read that disk_turns knows */
	uint64_t start_ns; /* 0: its time is not taken */
};

enum block_read_state {
	BR_WAIT_DISK_OPEN,    /* helper opens the replica; leaves on br_done_open() */
	BR_CHECK,             /* is the range readable? */
	BR_WAIT_WRITER,       /* it is being written: leaves on the timer */
	BR_WAIT_DISK_REFRESH, /* helper asks how far it is; leaves on br_done_open() */
	BR_RUN,               /* pieces are read and handed over */
	BR_WAIT_BUFFERS,      /* holds none; leaves when a set is granted, or on the timer */
	BR_WAIT_DISK_PARK,    /* gives its read-ahead back; waits for disk reads */
	BR_WAIT_PEER,         /* holds none; leaves on block_read_resume() */
	BR_DRAIN,             /* waits for disk reads and pieces that are out */
	BR_WAIT_DISK_CLOSE,   /* helper closes the reader */
	BR_DONE,
};

struct block_read {
	struct rop rop;
	struct engine_core *core;
	struct list core_link;
	struct read_sink *sink;
	struct read_params params;
	struct replica_reader *rr;
	struct read_info info;
	enum block_read_state state;
	int rc;
	struct err err;
	bool closed, told, suspect;
	bool lost;                    /* the sink has heard so */
	struct outlier_sum disk_time; /* slow disks: told at the end */
	char volume[BLOCK_UUID_MAX];  /* that the replica is on, */
	uint32_t volume_no;           /* and its number; until it is opened, where it was last */

	uint32_t unit; /* pieces end at multiples of it */
	uint64_t next; /* first byte not asked for */
	struct rpiece pieces[BREAD_AHEAD];
	uint32_t head, give, tail; /* free running: not back yet, next to hand over, end */
	/* pieces it may hold: from AHEAD_FIRST, one more for each that went */
	uint32_t ahead;

	struct rtimer timer;
	uint64_t visible_deadline_ns;
	struct offload offload;
	struct pool_ask ask; /* one set: data, CRCs */
	struct slot *set[2];
	uint32_t form_len[POOL_FORMS]; /* bytes of the block in each form's piece */
	bool granted, resume;
	uint64_t begun_ns, moved_ns, bytes; /* for /ops: last progress; handed over */
	struct disk_turns *disk;            /* of its volume */
	struct list turn_link;              /* linked: waits for a turn at the disk */
	bool my_turn;                       /* was the next, and has not asked again yet */
	uint64_t handed_end;                /* of the last piece handed over */
	bool is_short;
	uint64_t parked_at; /* where block_read_resume() goes on */
};

static void br_ready(struct block_read *r)
{
	reactor_ready(r->core->reactor, &r->rop);
}

static void br_fail(struct block_read *r, int rc)
{
	if (!r->rc)
		r->rc = rc;
	br_ready(r);
}

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
			 ": no turn at the disk in time: it does not answer",
			 r->sink->peer, r->info.block.id);
		br_fail(r, -ETIMEDOUT);
		return;
	}
	if (r->state == BR_RUN || r->granted) /* in time after all */
		return;
	if (r->state == BR_WAIT_BUFFERS) {
		log_warn("op=read peer=%s block=%" PRId64 ": no buffers for %" PRIu64
			 " s: see /ops for who holds them; dfs.rdma.pool.size is the pool",
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

/* ---- pieces ---- */

static void rp_submit_data(struct rpiece *b)
{
	struct block_read *r = b->r;
	const uint64_t at = b->p.off - b->lead + b->got;
	struct io_uring_sqe *sqe = reactor_sqe(r->core->reactor);
	uint8_t *to = b->p.slot->data + b->got;

	const uint32_t rest = b->want - b->got, pages = (rest + PAGE - 1) / PAGE * PAGE;

	if (b->direct && reactor_pool_fixed(r->core->reactor))
		io_uring_prep_read_fixed(sqe, r->rr->fd_direct, to, pages, at,
					 (int)b->p.slot->slab);
	else if (b->direct)
		io_uring_prep_read(sqe, r->rr->fd_direct, to, pages, at);
	else
		io_uring_prep_read(sqe, r->rr->fd, to, rest, at);
	engine_disk_attach(sqe, &b->data_op, r->rr->remote);
}

static void rp_submit_crcs(struct rpiece *b)
{
	struct block_read *r = b->r;
	struct io_uring_sqe *sqe = reactor_sqe(r->core->reactor);

	io_uring_prep_read(sqe, r->rr->fd_meta, b->p.crc_slot->data + b->crc_got,
			   b->p.crc_count * 4 - b->crc_got,
			   META_HEADER_LEN + b->p.off / r->info.bytes_per_crc * 4 + b->crc_got);
	engine_disk_attach(sqe, &b->crc_op, r->rr->remote);
}

static void turn_pass(struct block_read *r, uint64_t bytes)
{
	struct list *next = disk_turns_done(r->disk, bytes);

	if (!next)
		return;
	container_of(next, struct block_read, turn_link)->my_turn = true;
	br_ready(container_of(next, struct block_read, turn_link));
}

static void turn_end(struct rpiece *b)
{
	if (b->in_turn)
		turn_pass(b->r, b->p.len);
	b->in_turn = false;
}

static void rp_part_done(struct rpiece *b, int rc)
{
	b->waiting--;
	b->r->moved_ns = reactor_now_ns(b->r->core->reactor);
	if (rc < 0) {
		log_warn("op=read block=%" PRId64 " off=%" PRIu64 ": %s", b->r->info.block.id,
			 b->p.off, err_name(rc));
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
	turn_end(b);
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

/* How much of the block from r->next a piece in a slot of @size may hold; 0: not even one chunk. */
static uint32_t piece_len(const struct block_read *r, uint32_t size)
{
	const uint32_t bpc = r->info.bytes_per_crc, lead = (uint32_t)(r->next % PAGE);
	uint64_t to;

	if (bpc < 4) /* four bytes of CRCs for each chunk: they must fit a slot, too */
		size = size / 4 * bpc;
	if (size <= lead)
		return 0;
	to = (r->next + size - lead) / r->unit * r->unit;

	if (to <= r->next) { /* chunks that no page border meets */
		const uint64_t room = size - lead;

		to = r->next + (bpc < room / 2 ? room / 2 / bpc * bpc : bpc <= room ? bpc : 0);
	}
	if (to > r->info.end)
		to = r->info.end;
	return (uint32_t)(to - r->next);
}

static uint32_t crc_count(const struct block_read *r, uint32_t len)
{
	return (uint32_t)(crc_bytes(r->info.crc_type, len, r->info.bytes_per_crc) / 4);
}

static void add_form(struct block_read *r, uint32_t len)
{
	const uint32_t room = (uint32_t)(r->next % PAGE) + len;
	const uint32_t crcs = crc_count(r, len) * 4;
	struct pool_set *f = &r->ask.form[r->ask.forms];

	*f = (struct pool_set){.parts = 1, .part = {{(uint8_t)slot_class_for(room), 1}}};
	if (crcs) {
		f->part[1].cls = (uint8_t)slot_class_for_crcs(crcs);
		f->part[1].n = 1;
		f->parts = 2;
	}
	r->form_len[r->ask.forms++] = len;
}

/* The next piece as long as it can be, or shorter ones for smaller slots. */
static void ask_forms(struct block_read *r)
{
	uint32_t len = piece_len(r, PIECE_MAX);
	int cls = slot_class_for(r->next % PAGE + len);

	r->ask.forms = 0;
	add_form(r, len);
	while (--cls >= SLOT_8K && r->ask.forms < POOL_FORMS) {
		len = piece_len(r, slot_class_size((enum slot_class)cls));
		if (len)
			add_form(r, len);
	}
}

static void br_on_granted(struct pool_ask *a)
{
	struct block_read *r = container_of(a, struct block_read, ask);

	r->granted = true;
	br_ready(r);
}

/* Buffers for the next piece. Who holds some does not wait for more: a piece that comes back brings
 * it here again. */
static bool br_buffers(struct block_read *r)
{
	if (r->granted)
		return true;
	ask_forms(r);
	if (r->tail != r->head && r->ask.forms > 2)
		r->ask.forms = 2; /* better the next piece later than in crumbs */
	if (pool_take(r->core->pool, &r->ask)) {
		r->granted = true;
		return true;
	}
	if (r->tail != r->head)
		return false;
	ask_forms(r);
	r->state = BR_WAIT_BUFFERS;
	reactor_timer_set(r->core->reactor, &r->timer,
			  reactor_now_ns(r->core->reactor) + r->core->waits.buffers_ns);
	pool_wait(r->core->pool, &r->ask);
	return false;
}

/* A long read waits for its turn at the disk; turn_end() of another one brings it here again. */
static bool br_turn(struct block_read *r, uint32_t bytes)
{
	const uint64_t now_ns = reactor_now_ns(r->core->reactor);

	if (r->is_short) {
		disk_turns_short(r->disk, now_ns);
		return true;
	}
	r->my_turn = false;
	if (disk_turns_begin(r->disk, bytes, now_ns)) {
		reactor_timer_clear(r->core->reactor, &r->timer);
		return true;
	}
	list_add_tail(&r->disk->waiters, &r->turn_link);
	if (!r->timer.deadline_ns) /* a disk that does not answer takes no turns */
		reactor_timer_set(r->core->reactor, &r->timer, now_ns + r->core->waits.buffers_ns);
	return false;
}

/* Ask the disk for the next piece; false: no buffers, or not its turn. */
static bool rp_start(struct block_read *r)
{
	struct rpiece *b = &r->pieces[r->tail % BREAD_AHEAD];
	const uint32_t lead = (uint32_t)(r->next % PAGE);

	if (list_is_linked(&r->turn_link) || !br_buffers(r) || !br_turn(r, r->form_len[r->ask.got]))
		return false;
	r->granted = false;
	*b = (struct rpiece){.r = r, .lead = lead, .waiting = 1};
	b->p.off = r->next;
	b->p.len = r->form_len[r->ask.got];
	b->p.crc_count = crc_count(r, b->p.len);
	b->p.slot = r->set[0];
	b->p.crc_slot = b->p.crc_count ? r->set[1] : NULL;
	list_init(&b->p.link);
	b->p.slot_off = lead;
	b->want = lead + b->p.len;
	b->data_op.done = rp_on_data;
	b->crc_op.done = rp_on_crcs;
	b->direct = r->core->read_direct && r->rr->state == REPLICA_FINALIZED &&
		    r->rr->fd_direct >= 0 && b->p.len >= STORE_DIRECT_MIN;
	b->used = true;
	b->in_turn = !r->is_short;
	r->tail++;
	r->next += b->p.len;
	if (b->p.crc_count) {
		b->waiting = 2;
		rp_submit_crcs(b);
	}
	b->start_ns = outlier_is_sampled(r->core->dn->live.io_sampling_percent, &r->core->io_seq)
			      ? clock_mono_ns()
			      : 0;
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
	if (rr->crc_held && end == b->r->info.block.len && end % rr->bytes_per_crc) {
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

static void br_reap(struct block_read *r)
{
	while (r->head != r->tail && !r->pieces[r->head % BREAD_AHEAD].used)
		r->head++;
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
	for (uint32_t i = r->give; i != r->tail; i++)
		if (r->pieces[i % BREAD_AHEAD].waiting)
			return false;
	for (; r->give != r->tail; r->give++)
		rp_release(&r->pieces[r->give % BREAD_AHEAD]);
	br_reap(r);
	return true;
}

static void drop_ask(struct block_read *r)
{
	pool_wait_cancel(r->core->pool, &r->ask);
	if (r->granted) {
		slot_put(r->set[0]);
		if (r->ask.form[r->ask.got].parts > 1)
			slot_put(r->set[1]);
	}
	r->granted = false;
	reactor_timer_clear(r->core->reactor, &r->timer);
	if (list_is_linked(&r->turn_link))
		list_del(&r->turn_link);
	if (r->my_turn)
		turn_pass(r, 0);
	r->my_turn = false;
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
	drop_ask(r);
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

	reactor_timer_clear(r->core->reactor, &r->timer);
	list_del(&r->core_link);
	r->core->op_count--;
	atomic_fetch_sub(&r->core->dn->xceivers, 1);
	outliers_add(r->core->dn->outliers, OUTLIER_DISK_READ, r->volume, r->disk_time.ns,
		     r->disk_time.samples); /* once a read: it takes a mutex */
	r->sink->ops->ended(r->sink, r->rc ? r->rc : r->closed ? -ECANCELED : 0);
	free(r);
}

int block_read_open(struct engine_core *core, const struct read_params *params,
		    struct read_sink *sink, struct block_read **ret)
{
	struct block_read *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
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
	if (replica_read_open_now(params->bp, &params->block, &r->rr) == 0) {
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
	drop_ask(r);
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
