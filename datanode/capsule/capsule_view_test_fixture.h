/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * capsule_view_test_fixture - two connections that ask for views, and all that is below, played
 *
 * Included by tests only: of the views (capsule_view_test.c) and of the blocks of which there are
 * some (capsule_view_blocks_test.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/block/hot_copies.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define LEN 5000u
#define CRC_AT 5008u
#define CRCS 40u
#define GS 1001
#define WINDOWS 3u /* of one registration */
#define SECOND NS_PER_S

struct verbs_memory {
	unsigned out; /* windows */
};

struct verbs_window {
	struct verbs_memory *of;
	bool open;
	uint32_t rkey;
	struct xop *closing;
};

static struct {
	struct verbs_memory *m;
	void (*gone)(void *arg);
	void *arg;
} let_go[CAPS_HOT_MAX]; /* asked for, and not done */
static unsigned leaving;
static uint64_t now, turn_lasts;                /* the reactor's clock is so late */
static struct hot_job *asked[CAPS_HOT_MAX + 1]; /* not run yet */
static unsigned asks, memories, put_back, opens, closes, revokes, refusals, hung_up;
static struct verbs_window window[WINDOWS];
static struct hot_copy copy;
static struct capsule said; /* the last answer */
static int token_rc, lend_rc;
static bool takes, agreed, stopped;
static int64_t uncached;
static uint64_t asked_gs;
static uint8_t bytes[8192];
static struct rmsg *posted;

static struct dn dn;
static struct engine_core core = {.dn = &dn};
static struct capsule_port caps = {.core = &core};
static struct capsule_conn conn[2];
static struct xconn xc[2];

/* ---- what is below and beside it ---- */

uint64_t reactor_now_ns(const struct reactor *r)
{
	(void)r;
	return now - turn_lasts;
}

int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
	(void)which;
	*ret = (struct timespec){(time_t)(now / NS_PER_S), (long)(now % NS_PER_S)};
	return 0;
}

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	(void)r;
	t->deadline_ns = deadline_ns;
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	(void)r;
	t->deadline_ns = 0;
}

void reactor_post(struct reactor *r, struct rmsg *m)
{
	(void)r;
	assert_null(posted);
	posted = m;
}

int verbs_memory_lend(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		      struct err *err)
{
	(void)v;
	assert_ptr_equal(p, copy.p);
	assert_int_equal(len, copy.size);
	if (lend_rc < 0)
		return err_set(err, lend_rc, "told to");
	*ret = calloc(1, sizeof(**ret));
	memories++;
	return 0;
}

void verbs_memory_free(struct verbs_memory *m)
{
	if (!m)
		return;
	assert_int_equal(m->out, 0); /* all its windows are back */
	memories--;
	free(m);
}

void verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg)
{
	assert_int_equal(m->out, 0);
	assert_true(leaving < sizeof(let_go) / sizeof(*let_go));
	let_go[leaving].gone = gone;
	let_go[leaving].arg = arg;
	let_go[leaving++].m = m;
}

/* The device lets go of one of those. */
static inline void lets_go(void)
{
	verbs_memory_free(let_go[--leaving].m);
	let_go[leaving].gone(let_go[leaving].arg);
}

uint32_t verbs_read_depth(const struct xconn *c)
{
	assert_true(c == &xc[0] || c == &xc[1]);
	return agreed ? 16 : 0;
}

struct verbs_window *verbs_window_get(const struct verbs_memory *m, const struct xconn *c)
{
	(void)c;
	for (unsigned i = 0; i < WINDOWS; i++)
		if (!window[i].of) {
			window[i].of = (struct verbs_memory *)(uintptr_t)m;
			window[i].of->out++;
			return &window[i];
		}
	return NULL;
}

struct xremote verbs_window_open(struct xconn *c, struct verbs_window *w, void *p, uint32_t len,
				 enum verbs_right right)
{
	assert_true(c == &xc[0] || c == &xc[1]);
	assert_int_equal(right, VERBS_PEER_READS);
	assert_ptr_equal(p, copy.p);
	assert_int_equal(len, CRC_AT + CRCS); /* and not what lies behind */
	assert_false(w->open);
	w->open = true;
	w->rkey = 100 + ++opens;
	return (struct xremote){(uintptr_t)p, w->rkey};
}

void verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op)
{
	(void)c;
	assert_true(w->open && !w->closing);
	w->closing = op;
	closes++;
}

static inline void give_back(struct verbs_window *w)
{
	w->of->out--;
	*w = (struct verbs_window){0};
}

void verbs_window_put(struct verbs_window *w)
{
	assert_false(w->open);
	give_back(w);
}

void verbs_window_revoke(struct verbs_window *w)
{
	revokes++;
	give_back(w);
}

bool hot_copies_ask(struct hot_copies *h, struct hot_job *j)
{
	(void)h;
	if (stopped)
		return false;
	asked[asks++] = j;
	return true;
}

bool hot_copies_has(struct hot_copies *h, struct block_pool *bp, int64_t id)
{
	(void)h, (void)bp;
	return id != uncached;
}

void hot_copy_put(struct hot_copy *c)
{
	assert_ptr_equal(c, &copy);
	put_back++;
}

int dtp_block(struct engine_core *c, const Hd__BaseHeaderProto *m, struct token_access want,
	      struct block *ret, struct block_pool **ret_pool, struct err *err)
{
	assert_ptr_equal(c, &core);
	assert_int_equal(want.mode, HD__ACCESS_MODE_PROTO__READ);
	if (token_rc < 0)
		return err_set(err, token_rc, "no");
	*ret = (struct block){(int64_t)m->block->blockid, asked_gs, 0};
	*ret_pool = NULL;
	return 0;
}

int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	(void)l;
	said = *m;
	return 0;
}

void link_close(struct capsule_peer_link *l, int rc)
{
	assert_int_equal(rc, -ETIMEDOUT);
	assert_non_null(l->xc);
	hung_up++;
	capsule_views_lost(l);
	l->xc = NULL;
}

void link_refuse(struct capsule_peer_link *l, const char *why)
{
	(void)l, (void)why;
	refusals++;
}

/* ---- the peers ---- */

static inline void view_range(unsigned who, uint64_t id, uint64_t off, uint64_t len)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto h = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	struct capsule m = {.type = CAPSULE_VIEW, .request_id = 7};
	uint8_t *buf;
	size_t n;

	block.poolid = (char *)"BP-1";
	block.blockid = id;
	base.block = &block;
	h.baseheader = &base;
	h.clientname = (char *)"reader";
	op.header = &h;
	op.offset = off;
	op.len = len;
	assert_int_equal(pb_pack(&op, &buf, &n), 0);
	m.view.op = (struct capsule_bytes){buf, (uint32_t)n};
	said = (struct capsule){0};
	capsule_view(&conn[who], &m);
	free(buf);
}

static inline void view(unsigned who)
{
	view_range(who, 1, 0, LEN);
}

/* What the last answer was: 0 a view, else after how long it may be asked for again. */
static inline int answered(void)
{
	const struct capsule_view *v = &said.view_reply.v;

	assert_int_equal(said.type, CAPSULE_VIEW_REPLY);
	assert_int_equal(said.request_id, 7);
	return v->status ? (int)v->ms : 0;
}

static inline void run_jobs(int rc)
{
	for (unsigned i = 0; i < asks; i++) {
		struct rmsg *m;

		asked[i]->rc = asked[i]->wants ? rc : 0;
		asked[i]->copy = asked[i]->wants && !rc ? &copy : NULL;
		asked[i]->run(asked[i]);
		m = posted;
		posted = NULL;
		m->fn(m);
	}
	asks = 0;
}

static inline void closed_one(unsigned i, int res)
{
	struct xop *op = window[i].closing;

	if (!op)
		return;
	window[i].closing = NULL;
	window[i].open = res < 0;
	op->done(op, res);
}

static inline void closed(int res)
{
	for (unsigned i = 0; i < WINDOWS; i++)
		closed_one(i, res);
}

static inline void turn(uint64_t ns)
{
	now += ns;
	if (caps.hot_timer.deadline_ns && now >= caps.hot_timer.deadline_ns) {
		caps.hot_timer.deadline_ns = 0;
		caps.hot_timer.fire(&caps.hot_timer);
	}
}

static inline void given(unsigned who)
{
	view(who);
	if (asks)
		run_jobs(0);
	view(who);
	assert_int_equal(answered(), 0);
}

static inline unsigned open_now(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < WINDOWS; i++)
		n += window[i].open;
	return n;
}

static inline int setup(void **state)
{
	(void)state;
	now = 1000 * SECOND;
	asks = memories = put_back = opens = closes = revokes = refusals = hung_up = 0;
	turn_lasts = 0;
	memset(window, 0, sizeof(window));
	token_rc = lend_rc = 0;
	agreed = true;
	stopped = takes = false;
	uncached = 0;
	asked_gs = GS;
	copy = (struct hot_copy){.p = bytes,
				 .size = sizeof(bytes),
				 .block = {1, GS, LEN},
				 .crc_at = CRC_AT,
				 .crc_len = CRCS,
				 .bytes_per_crc = 512,
				 .crc_type = CRC_CRC32C};
	list_init(&caps.conns);
	capsule_hot_init(&caps);
	caps.hot_count = caps.hot_refusals = 0;
	caps.hot_again_ns = 0;
	caps.hot_timer.deadline_ns = 0;
	for (unsigned i = 0; i < 2; i++) {
		conn[i] = (struct capsule_conn){.link = {.caps = &caps, .xc = &xc[i]}};
		list_init(&conn[i].views);
		list_add_tail(&caps.conns, &conn[i].in_caps);
	}
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		capsule_views_lost(&conn[i].link);
		capsule_views_free(&conn[i]);
		assert_int_equal(conn[i].view_count, 0);
	}
	if (asks)
		run_jobs(-ECANCELED);
	capsule_hot_end(&caps);
	while (leaving)
		lets_go();
	assert_int_equal(memories, 0);
	assert_int_equal(caps.hot_held, 0);
	capsule_hot_free(&caps);
	return (int)caps.hot_count;
}
