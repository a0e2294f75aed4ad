/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: capsule_write_test_fixture - writers over RDMA whose engine, reactor and connection
 * are fakes: what is pulled waits until a test ends it, and what the engine is given is kept
 *
 * Included by one test program each, which owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
	uint32_t lanes; /* short ones that it may have yet; then it waits for the next */
};
static struct block_write engines[WRITERS];
static struct capsule_stream *streams[WRITERS];
static uint32_t count;
static uint32_t landings;
static struct xop *pulls[2 * WRITERS];
static struct {
	struct xremote from;
	uint32_t len;
} pull_of[2 * WRITERS];
/* what the engine was given */
static struct {
	struct piece p;
	uint8_t crcs[LANE / BPC * 4];
} handed[8];
static uint32_t handed_count;
static uint32_t lanes = 1; /* of the next writer */
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
	engines[count] =
		(struct block_write){.src = src, .volume = &volumes[volume], .lanes = lanes};
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
	if (!w->lanes)
		return -EAGAIN;
	w->lanes--;
	landings++;
	*ret = (struct landing){.slot = pool_get(pool, SLOT_64K, POOL_CTRL), .len = LANE};
	assert_non_null(ret->slot);
	return 0;
}

int block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	(void)w;
	assert_in_range(handed_count, 0, 7);
	handed[handed_count].p = *p;
	if (crcs)
		memcpy(handed[handed_count].crcs, crcs, (p->len + BPC - 1) / BPC * 4);
	handed_count++;
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
	(void)c, (void)slot, (void)off;
	pull_of[pull_count].from = from;
	pull_of[pull_count].len = len;
	pulls[pull_count++] = op;
}

/* ---- writers ---- */

static const struct xport_ops ops = {.pull = pull};
static struct xconn xc = {.ops = &ops};
static struct engine_core core;
static struct capsule_port caps = {.core = &core};
static struct capsule_conn conn;

/* One more, which has no answer yet. */
static inline struct capsule_stream *ask(void)
{
	Hd__OpWriteBlockProto op = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto h = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	struct capsule m = {.type = CAPSULE_OPEN_WRITE, .request_id = count + 1};
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
	return streams[count++];
}

static inline void open_last(void)
{
	engines[count - 1].src->ops->opened(engines[count - 1].src, 0, "", false);
}

/* One more, with one piece. */
static inline struct capsule_stream *begin(void)
{
	struct capsule_stream *s = ask();
	struct capsule m = {.type = CAPSULE_WRITE, .request_id = count};

	open_last();
	m.write.data_len = LEN;
	m.write.crc.len = m.write.crc_mem.len = LEN / BPC * 4;
	assert_int_equal(capsule_write_piece(s, &m, NULL), 0);
	assert_false(s->step(s));
	return s;
}

static inline void end_all(void)
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
	count = pull_count = landings = closed_count = failed_count = volume = handed_count = 0;
	assert_int_equal(pool_slots_out(pool), 0);
}

/* ---- set-up ---- */

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
	(void)state;
	pool_free(pool);
	return 0;
}
