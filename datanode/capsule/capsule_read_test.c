/* SPDX-License-Identifier: Apache-2.0 */
/* A READ capsule of a replica whose volume stops answering must be answered at once, after what was
 * pushed before and with nothing pushed behind it, and keep its pieces until the disk and the
 * transport let go of them. Nothing is pushed beyond the memory that was named, and to a reader
 * that takes no CRCs nothing that they do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define ID 7
#define LEN 8192u
#define DEST 0x100000u
#define CRC_DEST 0x200000u

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
static struct {
	const uint8_t *from;
	struct xremote to;
	size_t len;
} push_of[8];
static uint32_t push_count, answer_count;
static uint32_t pushed_before; /* the answer */
static int status;
static uint16_t flags;
static uint32_t data_len, crc_len; /* of the answer */

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
	flags = m->flags;
	data_len = m->read_reply.data_len;
	crc_len = m->read_reply.crc_len;
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
	(void)c;
	assert_int_equal(n, 1);
	push_of[push_count].from = iov->iov_base;
	push_of[push_count].len = iov->iov_len;
	push_of[push_count].to = to;
	pushed[push_count++] = op;
}

/* ---- the cases ---- */

static const struct xport_ops ops = {.push = push};
static struct xconn xc = {.ops = &ops};
static struct engine_core core;
static struct capsule_port caps = {.core = &core};
static uint8_t bytes[LEN], crcs[LEN / 512 * 4];
static struct slot slot = {.data = bytes};

struct asked {
	uint64_t off, len;
	uint32_t room, crc_room; /* no room for CRCs: none are wanted */
};

static void ask_for(struct asked a)
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
	op.offset = a.off;
	op.len = a.len;
	assert_int_equal(pb_pack(&op, &buf, &len), 0);
	m.read.op = (struct capsule_bytes){buf, (uint32_t)len};
	m.read.dest = (struct capsule_mem){DEST, 1, a.room};
	m.read.crc = (struct capsule_mem){CRC_DEST, 2, a.crc_room};
	push_count = answer_count = 0;
	conn = (struct capsule_conn){.link = {.caps = &caps, .xc = &xc}};
	capsule_read_start(&conn, &m);
	free(buf);
}

static void ask(void)
{
	ask_for((struct asked){.len = 2 * LEN, .room = 2 * LEN, .crc_room = 2 * LEN / 512 * 4});
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

/* What the engine reads is whole chunks, and its pieces do not begin where the reader does. */
static void a_reader_without_crcs_gets_the_bytes_that_it_asked_for(void **state)
{
	struct piece first = piece_at(0), second = piece_at(LEN);

	(void)state;
	crc_chunks(CRC_CRC32C, bytes, LEN, 512, crcs);
	ask_for((struct asked){.off = 300, .len = LEN, .room = LEN});
	opened();
	engine.sink->ops->piece(engine.sink, &first);
	engine.sink->ops->piece(engine.sink, &second);
	assert_false(stream->step(stream));
	assert_int_equal(push_count, 2);
	assert_ptr_equal(push_of[0].from, bytes + 300);
	assert_int_equal(push_of[0].len, LEN - 300);
	assert_int_equal(push_of[0].to.addr, DEST);
	assert_ptr_equal(push_of[1].from, bytes);
	assert_int_equal(push_of[1].len, 300);
	assert_int_equal(push_of[1].to.addr, DEST + LEN - 300);
	assert_int_equal(answer_count, 1);
	assert_int_equal(status, DT_SUCCESS);
	assert_int_equal(flags, CAPSULE_VERIFIED);
	assert_int_equal(data_len, LEN);
	assert_int_equal(crc_len, 0);
	for (uint32_t i = 0; i < push_count; i++)
		pushed[i]->done(pushed[i], 1);
	assert_int_equal(engine.returned, 2);
	end();
}

/* The piece before it is with the transport, or none is. */
static void a_reader_without_crcs_does_not_get_what_they_do_not_fit(void **state)
{
	(void)state;
	crc_chunks(CRC_CRC32C, bytes, LEN, 512, crcs);
	for (uint32_t before = 0; before < 2; before++) {
		static uint8_t damaged[LEN];
		static struct slot bad = {.data = damaged};
		struct piece good = piece_at(0), piece = piece_at(before * LEN);

		memcpy(damaged, bytes, LEN);
		damaged[LEN - 1] ^= 1;
		piece.slot = &bad;
		ask_for((struct asked){.len = 2 * LEN, .room = 2 * LEN});
		opened();
		if (before)
			engine.sink->ops->piece(engine.sink, &good);
		engine.sink->ops->piece(engine.sink, &piece);
		assert_false(stream->step(stream));
		assert_int_equal(push_count, before);
		assert_int_equal(engine.returned, 1);
		assert_true(engine.closed);
		if (before)
			pushed[0]->done(pushed[0], LEN);
		assert_int_equal(engine.returned, before + 1);
		end();
		assert_int_equal(status, dt_errno_status(-EBADMSG));
	}
}

static void a_reader_whose_memory_is_too_small_is_told_how_much_there_is(void **state)
{
	static const struct asked of[] = {
		{.len = 2 * LEN, .room = 2 * LEN - 1, .crc_room = 2 * LEN / 512 * 4},
		{.len = 2 * LEN, .room = 2 * LEN, .crc_room = 2 * LEN / 512 * 4 - 4},
		{.len = 2 * LEN, .room = 2 * LEN - 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		struct piece piece = piece_at(0);

		ask_for(of[i]);
		opened();
		assert_int_equal(answer_count, 1);
		assert_int_equal(status, DT_ERROR_UNSUPPORTED);
		assert_int_equal(data_len, 2 * LEN);
		assert_int_equal(crc_len, of[i].crc_room ? 2 * LEN / 512 * 4 : 0);
		assert_true(engine.closed);
		engine.sink->ops->piece(engine.sink, &piece); /* it was on its way */
		assert_false(stream->step(stream));
		assert_int_equal(push_count, 0);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_of_a_volume_that_hangs_is_answered_at_once),
		cmocka_unit_test(a_reader_whose_replica_is_not_open_yet_is_answered_at_once),
		cmocka_unit_test(a_reader_that_cancels_is_answered_at_once),
		cmocka_unit_test(a_reader_whose_replica_is_cut_is_told),
		cmocka_unit_test(a_reader_that_was_answered_is_not_answered_again),
		cmocka_unit_test(a_reader_without_crcs_gets_the_bytes_that_it_asked_for),
		cmocka_unit_test(a_reader_without_crcs_does_not_get_what_they_do_not_fit),
		cmocka_unit_test(a_reader_whose_memory_is_too_small_is_told_how_much_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
