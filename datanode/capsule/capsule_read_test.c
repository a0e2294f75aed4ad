/* SPDX-License-Identifier: Apache-2.0 */
/* A READ capsule of a replica whose volume stops answering must be answered at once, after what was
 * pushed before and with nothing pushed behind it, and keep its pieces until the disk and the
 * transport let go of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define ID 7
#define LEN 8192u

/* ---- the engine and the connection ---- */

struct block_read {
	struct read_sink *sink;
	uint32_t returned; /* pieces */
	bool closed;
};
static struct block_read engine;
static struct capsule_conn conn;
static struct capsule_stream *stream;
static struct xop *pushed[8];
static uint32_t push_count, answer_count;
static uint32_t pushed_before; /* the answer */
static int status;

int block_read_open(struct engine_core *core, const struct read_params *params,
		    struct read_sink *sink, struct block_read **ret)
{
	(void)core, (void)params;
	engine = (struct block_read){.sink = sink};
	*ret = &engine;
	return 0;
}

void block_read_sent(struct block_read *r, struct piece *p)
{
	assert_ptr_equal(r, &engine);
	(void)p;
	r->returned++;
}

void block_read_close(struct block_read *r)
{
	r->closed = true;
}

int dtp_block(struct engine_core *core, const Hd__BaseHeaderProto *m, struct token_access want,
	      struct block *ret, struct block_pool **ret_pool, struct err *err)
{
	(void)core, (void)m, (void)want, (void)ret, (void)ret_pool, (void)err;
	return 0;
}

int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	(void)l;
	assert_int_equal(m->type, CAPSULE_READ_REPLY);
	assert_int_equal(m->request_id, ID);
	status = m->read_reply.status;
	pushed_before = push_count;
	answer_count++;
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

void capsule_stream_add(struct capsule_conn *c, struct capsule_stream *s, uint64_t id)
{
	s->conn = c;
	s->id = id;
	stream = s;
}

static void push(struct xconn *c, const struct iovec *iov, int n, struct xremote to, struct xop *op)
{
	(void)c, (void)iov, (void)n, (void)to;
	pushed[push_count++] = op;
}

/* ---- the cases ---- */

static const struct xport_ops ops = {.push = push};
static struct xconn xc = {.ops = &ops};
static struct engine_core core;
static struct capsule_port caps = {.core = &core};
static uint8_t bytes[LEN], crcs[LEN / 512 * 4];
static struct slot slot = {.data = bytes};

static void ask(void)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto h = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	struct capsule m = {.type = CAPSULE_READ, .request_id = ID};
	uint8_t *buf;
	size_t len;

	block.poolid = (char *)"BP-1";
	base.block = &block;
	h.baseheader = &base;
	h.clientname = (char *)"reader";
	op.header = &h;
	op.len = 2 * LEN;
	assert_int_equal(pb_pack(&op, &buf, &len), 0);
	m.read.op = (struct capsule_bytes){buf, (uint32_t)len};
	m.read.dest.len = 2 * LEN;
	m.read.crc.len = 2 * LEN / 512 * 4;
	push_count = answer_count = 0;
	conn = (struct capsule_conn){.link = {.caps = &caps, .xc = &xc}};
	capsule_read_start(&conn, &m);
	free(buf);
}

static struct piece piece_at(uint64_t off)
{
	struct piece p = {
		.off = off, .len = LEN, .slot = &slot, .crcs = crcs, .crc_count = LEN / 512};

	list_init(&p.link);
	return p;
}

static void opened(void)
{
	const struct read_info info = {
		.crc_type = CRC_CRC32C, .bytes_per_crc = 512, .end = 2 * LEN};

	engine.sink->ops->opened(engine.sink, 0, &info, NULL);
}

static void lose(void)
{
	assert_non_null(engine.sink->ops->lost);
	engine.sink->ops->lost(engine.sink);
}

static void end(void)
{
	engine.sink->ops->ended(engine.sink, -ECANCELED);
	assert_true(stream->step(stream));
	assert_int_equal(answer_count, 1);
	stream->free(stream);
}

static void a_reader_of_a_volume_that_hangs_is_answered_at_once(void **state)
{
	struct piece first = piece_at(0), second = piece_at(LEN);

	(void)state;
	ask();
	opened();
	engine.sink->ops->piece(engine.sink, &first);
	assert_false(stream->step(stream));
	assert_int_equal(push_count, 2);
	lose();
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_ERROR);
	assert_int_equal(pushed_before, 2);
	assert_true(engine.closed);
	assert_int_equal(stream->id, 0);
	engine.sink->ops->piece(engine.sink, &second); /* it was on its way */
	assert_false(stream->step(stream));
	assert_int_equal(push_count, 2);
	assert_int_equal(engine.returned, 1); /* the first is with the transport */
	pushed[0]->done(pushed[0], LEN);
	pushed[1]->done(pushed[1], LEN / 512 * 4);
	assert_int_equal(engine.returned, 2);
	assert_false(stream->step(stream));
	end();
}

static void a_reader_whose_replica_is_not_open_yet_is_answered_at_once(void **state)
{
	const struct err err = {.rc = -ECANCELED};

	(void)state;
	ask();
	lose();
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_ERROR);
	assert_false(stream->step(stream));
	engine.sink->ops->opened(engine.sink, -ECANCELED, NULL, &err);
	end();
}

/* Its memory is to be its own again, whenever the disk lets go of ours. */
static void a_reader_that_cancels_is_answered_at_once(void **state)
{
	struct piece first = piece_at(0);

	(void)state;
	ask();
	opened();
	engine.sink->ops->piece(engine.sink, &first);
	assert_false(stream->step(stream));
	stream->cancel(stream, -ECANCELED);
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_ERROR);
	assert_int_equal(pushed_before, 2);
	assert_true(engine.closed);
	assert_int_equal(stream->id, 0);
	pushed[0]->done(pushed[0], LEN);
	pushed[1]->done(pushed[1], LEN / 512 * 4);
	assert_false(stream->step(stream));
	end();
}

/* The status tells it from a replica that cannot be read. */
static void a_reader_whose_replica_is_cut_is_told(void **state)
{
	struct piece first = piece_at(0);

	(void)state;
	ask();
	opened();
	engine.sink->ops->piece(engine.sink, &first);
	assert_false(stream->step(stream));
	pushed[0]->done(pushed[0], LEN);
	pushed[1]->done(pushed[1], LEN / 512 * 4);
	engine.sink->ops->ended(engine.sink, -EEXIST);
	assert_true(stream->step(stream));
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_ERROR_EXISTS);
	stream->free(stream);
}

static void a_reader_that_was_answered_is_not_answered_again(void **state)
{
	struct piece first = piece_at(0), second = piece_at(LEN);

	(void)state;
	ask();
	opened();
	engine.sink->ops->piece(engine.sink, &first);
	engine.sink->ops->piece(engine.sink, &second);
	assert_false(stream->step(stream));
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_SUCCESS);
	lose();
	assert_int_equal(answer_count, 1);
	for (uint32_t i = 0; i < 4; i++)
		pushed[i]->done(pushed[i], 1);
	assert_int_equal(engine.returned, 2);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_of_a_volume_that_hangs_is_answered_at_once),
		cmocka_unit_test(a_reader_whose_replica_is_not_open_yet_is_answered_at_once),
		cmocka_unit_test(a_reader_that_cancels_is_answered_at_once),
		cmocka_unit_test(a_reader_whose_replica_is_cut_is_told),
		cmocka_unit_test(a_reader_that_was_answered_is_not_answered_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
