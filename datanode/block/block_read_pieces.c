/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a block being read: how long the next one is, its buffers, its turn at the disk,
 * and the requests for its data and CRCs. */
#include "datanode/block/block_read_internal.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

static bool by_worker(const struct rpiece *b)
{
	return b->r->rr->remote || b->by_worker;
}

/* Now; else it waits in line, and has this called again. Nobody may want it any more by now: the
 * next step of the read sees to that. */
static bool may_submit(struct rpiece *b, struct disk_request *q)
{
	struct engine_core *core = b->r->core;
	const uint32_t volume = b->r->rr->volume % XFER_BUDGETS;

	if (disk_workers_take(by_worker(b) ? &core->workers[volume] : &core->disk_reads[volume], q))
		return true;
	br_ready(b->r);
	return false;
}

static void rp_submit_data(struct rpiece *b)
{
	struct block_read *r = b->r;
	const uint64_t at = b->p.off - b->lead + b->got;
	struct io_uring_sqe *sqe;
	uint8_t *to = b->p.slot->data + b->got;
	const uint32_t rest = b->want - b->got, pages = (rest + PAGE - 1) / PAGE * PAGE;

	if (!may_submit(b, &b->data_req))
		return;
	sqe = reactor_sqe(r->core->reactor);
	if (b->direct && reactor_pool_fixed(r->core->reactor))
		io_uring_prep_read_fixed(sqe, r->rr->fd_direct, to, pages, at,
					 (int)b->p.slot->slab);
	else if (b->direct)
		io_uring_prep_read(sqe, r->rr->fd_direct, to, pages, at);
	else
		io_uring_prep_read(sqe, r->rr->fd, to, rest, at);
	engine_disk_attach(sqe, &b->data_op, by_worker(b));
}

static void rp_submit_crcs(struct rpiece *b)
{
	struct block_read *r = b->r;
	struct io_uring_sqe *sqe;

	if (!may_submit(b, &b->crc_req))
		return;
	sqe = reactor_sqe(r->core->reactor);
	io_uring_prep_read(sqe, r->rr->fd_meta, b->p.crc_slot->data + b->crc_got,
			   b->p.crc_count * 4 - b->crc_got,
			   META_HEADER_LEN + b->p.off / r->info.bytes_per_crc * 4 + b->crc_got);
	engine_disk_attach(sqe, &b->crc_op, by_worker(b));
}

static void submit_data(struct disk_request *q)
{
	rp_submit_data(container_of(q, struct rpiece, data_req));
}

static void submit_crcs(struct disk_request *q)
{
	rp_submit_crcs(container_of(q, struct rpiece, crc_req));
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
	disk_workers_done(&b->data_req);
	if (res == -EINVAL && b->direct) {
		b->direct = false;
		rp_submit_data(b);
		return;
	}
	if (res > 0)
		b->got += (uint32_t)res;
	/* Some device-mapper targets answer so for ever (Linux 6.1: log-writes). */
	b->by_worker |= res == -EAGAIN;
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
	disk_workers_done(&b->crc_req);
	if (res > 0)
		b->crc_got += (uint32_t)res;
	b->by_worker |= res == -EAGAIN;
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

void br_on_granted(struct pool_ask *a)
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

bool rp_start(struct block_read *r)
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
	disk_request_init(&b->data_req, submit_data);
	disk_request_init(&b->crc_req, submit_crcs);
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

void rp_ready_crcs(struct rpiece *b)
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

void rp_stop_waiting(struct rpiece *b)
{
	if (list_is_linked(&b->data_req.link)) {
		list_del(&b->data_req.link);
		b->waiting--;
		turn_end(b);
	}
	if (list_is_linked(&b->crc_req.link)) {
		list_del(&b->crc_req.link);
		b->waiting--;
	}
}

void rp_release(struct rpiece *b)
{
	slot_put(b->p.slot);
	slot_put(b->p.crc_slot);
	b->p.slot = b->p.crc_slot = NULL;
	b->used = false;
}

void br_reap(struct block_read *r)
{
	while (r->head != r->tail && !r->pieces[r->head % BREAD_AHEAD].used)
		r->head++;
}

void br_drop_ask(struct block_read *r)
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
