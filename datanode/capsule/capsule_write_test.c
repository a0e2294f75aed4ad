/* SPDX-License-Identifier: Apache-2.0 */
/* Writers over RDMA whose lists of CRCs lie in the sender's memory: none of them waits for a slot
 * for such a list with landings in hand, and however many wait for lanes with a list in hand, there
 * are slots of CRCs for lanes, and lists for writers to another volume. Who ends gives back its
 * list and its place in line whatever the disk does. Who cancels hears the last word when nothing
 * is pulled from its memory any more, whatever the disk does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/wire/pb.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define LEN (256u << 10)
#define LANE (64u << 10)
#define BPC 512u
#define CRC_SLOTS 16u
#define WRITERS 40u

/* ---- the engine and the connection ---- */

struct block_write {
	struct write_source *src;
	struct pool_budget *volume; /* what its lists are charged to */
	bool landed;                /* once, in a short lane; then it waits for the next one */
};
static struct block_write engines[WRITERS];
static struct capsule_stream *streams[WRITERS];
static uint32_t count;
static uint32_t landings;
static struct xop *pulls[2 * WRITERS];
static uint32_t pull_count;
static struct pool *pool;
static uint32_t closed_count;
static uint64_t closed_id;
static struct pool_budget volumes[2], all_lists;
static uint32_t volume;
static bool hop_is_stuck;
static uint32_t failed_count;
static struct rtimer *last_timer;

int block_write_open(struct engine_core *core, struct write_params *params,
		     struct write_source *src, struct block_write **ret)
{
	(void)core, (void)params;
	engines[count] = (struct block_write){.src = src, .volume = &volumes[volume]};
	*ret = &engines[count];
	return 0;
}

void block_write_list_budgets(const struct block_write *w, enum slot_class cls,
			      struct pool_budget *ret[POOL_BUDGETS])
{
	assert_int_equal(cls, SLOT_CRC);
	ret[0] = w->volume;
	ret[POOL_BUDGETS - 1] = &all_lists;
}

bool block_write_no_list(struct block_write *w, enum slot_class cls)
{
	(void)w, (void)cls;
	return hop_is_stuck;
}

int block_write_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret)
{
	(void)off, (void)want;
	if (w->landed)
		return -EAGAIN;
	w->landed = true;
	landings++;
	*ret = (struct landing){.slot = pool_get(pool, SLOT_64K, POOL_CTRL), .len = LANE};
	assert_non_null(ret->slot);
	return 0;
}

int block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	(void)w, (void)crcs;
	slot_put(p->slot);
	return 0;
}

void block_write_close(struct block_write *w, int rc)
{
	(void)w, (void)rc;
	failed_count++;
}

uint32_t block_write_bpc(const struct block_write *w)
{
	(void)w;
	return BPC;
}

int dtp_write_params(struct engine_core *core, const Hd__OpWriteBlockProto *m,
		     struct write_params *ret, struct err *err)
{
	(void)core, (void)m, (void)err;
	*ret = (struct write_params){.client = "writer"};
	return 0;
}

void write_params_fini(struct write_params *p)
{
	(void)p;
}

int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	(void)l;
	if (m->type == CAPSULE_CLOSED) {
		closed_count++;
		closed_id = m->request_id;
	}
	return 0;
}

void link_refuse(struct capsule_peer_link *l, const char *why)
{
	(void)l;
	fail_msg("%s", why);
}

void link_extend(struct capsule_peer_link *l)
{
	(void)l;
}

void reactor_ready(struct reactor *r, struct rop *op)
{
	(void)r, (void)op;
}

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	(void)r;
	t->deadline_ns = deadline_ns + 1;
	last_timer = t;
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	(void)r;
	t->deadline_ns = 0;
}

uint64_t reactor_now_ns(const struct reactor *r)
{
	(void)r;
	return 1;
}

void capsule_stream_add(struct capsule_conn *c, struct capsule_stream *s, uint64_t id)
{
	s->conn = c;
	s->id = id;
	streams[count] = s;
}

static void pull(struct xconn *c, struct xremote from, struct slot *slot, uint32_t off,
		 uint32_t len, struct xop *op)
{
	(void)c, (void)from, (void)slot, (void)off, (void)len;
	pulls[pull_count++] = op;
}

/* ---- writers ---- */

static const struct xport_ops ops = {.pull = pull};
static struct xconn xc = {.ops = &ops};
static struct engine_core core;
static struct capsule_port caps = {.core = &core};
static struct capsule_conn conn;

/* One more, with one piece. */
static struct capsule_stream *begin(void)
{
	Hd__OpWriteBlockProto op = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto h = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	struct capsule m = {.type = CAPSULE_OPEN_WRITE, .request_id = count + 1};
	struct capsule_stream *s;
	uint8_t *buf;
	size_t len;

	block.poolid = (char *)"BP-1";
	base.block = &block;
	h.baseheader = &base;
	h.clientname = (char *)"writer";
	op.header = &h;
	op.requestedchecksum = &sum;
	assert_int_equal(pb_pack(&op, &buf, &len), 0);
	m.open_write.op = (struct capsule_bytes){buf, (uint32_t)len};
	capsule_write_start(&conn, &m);
	free(buf);
	s = streams[count];
	engines[count].src->ops->opened(engines[count].src, 0, "", false);
	count++;
	m = (struct capsule){.type = CAPSULE_WRITE, .request_id = count};
	m.write.data_len = LEN;
	m.write.crc.len = m.write.crc_mem.len = LEN / BPC * 4;
	assert_int_equal(capsule_write_piece(s, &m, NULL), 0);
	assert_false(s->step(s));
	return s;
}

static void end_all(void)
{
	for (uint32_t i = 0; i < pull_count; i++)
		if (pulls[i])
			pulls[i]->done(pulls[i], -ECONNRESET);
	for (uint32_t i = 0; i < count; i++)
		engines[i].src->ops->ended(engines[i].src, -ECONNRESET);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(streams[i]->step(streams[i]));
		streams[i]->free(streams[i]);
	}
	count = pull_count = landings = closed_count = failed_count = volume = 0;
	assert_int_equal(pool_slots_out(pool), 0);
}

static void who_waits_for_a_list_has_no_landing(void **state)
{
	struct slot *held[CRC_SLOTS];
	struct capsule_stream *s;

	(void)state;
	for (uint32_t i = 0; i < CRC_SLOTS; i++)
		held[i] = pool_get(pool, SLOT_CRC, POOL_CTRL);
	s = begin();
	assert_int_equal(landings, 0);
	assert_int_equal(pull_count, 0);
	assert_true(engines[0].src->ops->waits_for_buffers(engines[0].src));
	for (uint32_t i = 0; i < CRC_SLOTS; i++)
		slot_put(held[i]);
	assert_true(s->ready);
	assert_false(s->step(s));
	assert_int_equal(landings, 1);
	assert_int_equal(pull_count, 2);
	assert_false(engines[0].src->ops->waits_for_buffers(engines[0].src));
	end_all();
}

static void lists_leave_slots_for_lanes(void **state)
{
	struct slot *lane[2];
	struct pool_ask a = {.use = POOL_WRITE,
			     .forms = 1,
			     .form[0] = {2, {{SLOT_64K, 1}, {SLOT_CRC, 1}}},
			     .slots = lane};

	(void)state;
	for (uint32_t i = 0; i < WRITERS; i++) {
		volume = i % 2;
		(void)begin();
	}
	assert_true(pool_take(pool, &a));
	assert_int_equal(landings, CRC_SLOTS / 2);
	slot_put(lane[0]);
	slot_put(lane[1]);
	end_all();
}

static void a_stuck_volume_leaves_lists_to_others(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < WRITERS - 1; i++)
		(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4);
	volume = 1;
	(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

/* Its pulls have come, and it goes no further. */
static void cancel(uint32_t i, uint32_t first_pull)
{
	for (uint32_t k = first_pull; k < first_pull + 2; k++) {
		pulls[k]->done(pulls[k], 0);
		pulls[k] = NULL;
	}
	streams[i]->cancel(streams[i], -ECANCELED);
	assert_false(streams[i]->step(streams[i]));
}

/* As many writers as there are lists for one volume, and @more. */
static void begin_all(uint32_t more)
{
	for (uint32_t i = 0; i < CRC_SLOTS / 4 + more; i++)
		(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4);
	assert_int_equal(pull_count, CRC_SLOTS / 2);
	assert_int_equal(pool_is_pressed(pool), more > 0);
}

static void who_cancels_leaves_the_line_for_lists(void **state)
{
	struct capsule_stream *dead, *next;

	(void)state;
	begin_all(2);
	dead = streams[CRC_SLOTS / 4];
	next = streams[CRC_SLOTS / 4 + 1];
	dead->cancel(dead, -ECANCELED);
	assert_false(dead->step(dead));
	assert_int_equal(closed_count, 1);
	cancel(0, 0);
	assert_false(next->step(next));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_cancels_gives_back_a_list_that_has_just_come(void **state)
{
	struct capsule_stream *dead, *next;

	(void)state;
	begin_all(2);
	dead = streams[CRC_SLOTS / 4];
	next = streams[CRC_SLOTS / 4 + 1];
	cancel(0, 0);
	dead->cancel(dead, -ECANCELED);
	assert_false(dead->step(dead));
	assert_false(next->step(next));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

static void who_has_waited_too_long_for_a_list_leaves_the_line(void **state)
{
	struct capsule_stream *late;

	(void)state;
	begin_all(1);
	late = streams[CRC_SLOTS / 4];
	last_timer->fire(last_timer);
	assert_int_equal(failed_count, 1);
	assert_false(late->step(late));
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_waits_behind_a_stuck_hop_does_not_fail(void **state)
{
	struct capsule_stream *s;

	(void)state;
	begin_all(1);
	hop_is_stuck = true;
	last_timer->fire(last_timer);
	hop_is_stuck = false;
	assert_int_equal(failed_count, 0);
	s = streams[CRC_SLOTS / 4];
	assert_false(s->step(s));
	cancel(0, 0);
	assert_false(s->step(s));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

static void who_waits_behind_a_stuck_hop_does_not_wait_for_ever(void **state)
{
	struct rtimer *t;
	struct capsule_stream *late;

	(void)state;
	begin_all(1);
	late = streams[CRC_SLOTS / 4];
	t = last_timer;
	last_timer = NULL;
	hop_is_stuck = true;
	t->fire(t);
	hop_is_stuck = false; /* it is blamed once */
	assert_ptr_equal(last_timer, t);
	t->fire(t);
	assert_int_equal(failed_count, 1);
	assert_false(late->step(late));
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_cancels_does_not_wait_for_the_disk(void **state)
{
	struct capsule_stream *s = begin();

	(void)state;
	assert_int_equal(pull_count, 2);
	s->cancel(s, -ECANCELED);
	assert_false(s->step(s));
	assert_int_equal(closed_count, 0); /* a pull is under way */
	pulls[0]->done(pulls[0], 0);
	pulls[1]->done(pulls[1], 0);
	assert_false(s->step(s));
	assert_int_equal(closed_count, 1);
	assert_int_equal(closed_id, 1);
	assert_int_equal(s->id, 0);
	assert_false(s->step(s));
	engines[0].src->ops->ack(engines[0].src, 0, (uint8_t[]){0}, 1);
	engines[0].src->ops->ended(engines[0].src, -ECANCELED);
	assert_true(s->step(s));
	assert_int_equal(closed_count, 1);
	s->free(s);
	count = pull_count = landings = closed_count = failed_count = 0;
	assert_int_equal(pool_slots_out(pool), 0);
}

static int setup(void **state)
{
	const struct pool_opts o = {.count = {[SLOT_64K] = 2 * WRITERS, [SLOT_CRC] = CRC_SLOTS}};
	struct err err = ERR_INIT;

	(void)state;
	conn.link = (struct capsule_peer_link){.caps = &caps, .xc = &xc};
	assert_int_equal(pool_new(&o, &pool, &err), 0);
	core.pool = pool;
	pool_budget_init(&all_lists, (uint64_t)CRC_SLOTS / 2 * SLOT_CRC_SIZE);
	for (uint32_t i = 0; i < 2; i++)
		pool_budget_init(&volumes[i], (uint64_t)CRC_SLOTS / 4 * SLOT_CRC_SIZE);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pool_free(pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_for_a_list_has_no_landing),
		cmocka_unit_test(lists_leave_slots_for_lanes),
		cmocka_unit_test(a_stuck_volume_leaves_lists_to_others),
		cmocka_unit_test(who_cancels_leaves_the_line_for_lists),
		cmocka_unit_test(who_cancels_gives_back_a_list_that_has_just_come),
		cmocka_unit_test(who_has_waited_too_long_for_a_list_leaves_the_line),
		cmocka_unit_test(who_waits_behind_a_stuck_hop_does_not_fail),
		cmocka_unit_test(who_waits_behind_a_stuck_hop_does_not_wait_for_ever),
		cmocka_unit_test(who_cancels_does_not_wait_for_the_disk),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
