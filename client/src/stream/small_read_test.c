/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a small read gives the bytes that were asked for, verified, or sends its caller
 * to the ordinary way; a connection is kept only when nothing is left on it; a node that says
 * nothing is told from one that says something else. The data node is one end of a socket pair into
 * which its answer is written beforehand. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/src/stream/small_read.h"
#include "common/base/clock.h"

#define BPC 8u
#define BLOCK_LEN 45u /* five chunks and a bit */
#define TAG 77u       /* of the last read on the connection */

static struct dfs fs;
static uint8_t block[BLOCK_LEN];
static int peer = -1; /* the data node's end */

static void arm(const void *bytes, size_t n, bool ends)
{
	struct sock *s = calloc(1, sizeof(*s));
	int pair[2];

	assert_non_null(s);
	if (peer >= 0)
		close(peer);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	s->fd = pair[0];
	s->takes_small = true;
	s->tag = TAG;
	snprintf(s->peer, sizeof(s->peer), "127.0.0.1:1");
	assert_int_equal(net_resolve("127.0.0.1", 1, &s->to, NULL), 0);
	peer = pair[1];
	assert_int_equal(write(peer, bytes, n), n);
	if (ends)
		assert_int_equal(shutdown(peer, SHUT_WR), 0);
	sock_cache_put(&fs.socks, s);
}

struct answer {
	struct small_read_answer a;
	uint8_t buf[512];
	size_t len;
};

/* What a node sends for [@offset, @offset + @len). */
static struct answer answer_for(uint32_t offset, uint32_t len)
{
	const uint32_t from = offset / BPC * BPC, up = (offset + len + BPC - 1) / BPC * BPC;
	const uint32_t to = up < BLOCK_LEN ? up : BLOCK_LEN;
	struct answer t = {.a = {.tag = TAG + 1,
				 .crc_type = CRC_CRC32C,
				 .bytes_per_crc = BPC,
				 .lead = offset - from,
				 .data_len = to - from}};

	t.a.crc_len = (uint32_t)crc_bytes(CRC_CRC32C, to - from, BPC);
	small_read_answer_encode(&t.a, t.buf);
	crc_chunks(CRC_CRC32C, block + from, to - from, BPC, t.buf + SMALL_READ_HEADER_LEN);
	memcpy(t.buf + SMALL_READ_HEADER_LEN + t.a.crc_len, block + from, to - from);
	t.len = small_read_answer_len(&t.a);
	return t;
}

static ssize_t read_range(uint32_t offset, uint32_t len, uint8_t *buf)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	const struct read_setup r = {.lb = &lb, .offset = offset, .len = len, .gs = 5};
	struct err err = ERR_INIT;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = token.kind = token.service = "";
	b.poolid = "BP-1";
	b.blockid = 9;
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = &locs;
	return small_read(&fs, &r, buf, &err);
}

/* Is the connection kept? It is closed then. */
static bool kept(void)
{
	struct net_addr to;
	struct sock *s;

	assert_int_equal(net_resolve("127.0.0.1", 1, &to, NULL), 0);
	s = sock_cache_get_small(&fs.socks, &to);
	sock_close(s);
	return s;
}

static void every_range_is_read(void **state)
{
	uint8_t buf[BLOCK_LEN];

	(void)state;
	for (uint32_t offset = 0; offset < BLOCK_LEN; offset++)
		for (uint32_t len = 1; len <= BLOCK_LEN - offset; len++) {
			const struct answer t = answer_for(offset, len);

			arm(t.buf, t.len, false);
			assert_int_equal(read_range(offset, len, buf), len);
			assert_memory_equal(buf, block + offset, len);
			assert_true(kept());
		}
}

static void the_request_says_what_is_wanted(void **state)
{
	const struct answer t = answer_for(3, 10);
	uint8_t buf[SMALL_READ_REQUEST_MAX], op;
	char pool[BLOCK_POOL_ID_MAX];
	struct small_read_request q;
	uint32_t prefix;
	ssize_t n, total;

	(void)state;
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(3, 10, buf), 10);
	n = read(peer, buf, sizeof(buf));
	assert_true(n > DT_OP_HEADER_LEN);
	assert_int_equal(dt_op_header_decode(buf, &op), 0);
	assert_int_equal(op, DT_READ_SMALL);
	total = dt_delim_need(buf + DT_OP_HEADER_LEN, (size_t)n - DT_OP_HEADER_LEN, 1000, &prefix);
	assert_int_equal(DT_OP_HEADER_LEN + total, n);
	assert_int_equal(small_read_request_decode(buf + DT_OP_HEADER_LEN + prefix,
						   (size_t)total - prefix, &q, pool),
			 0);
	assert_int_equal(q.offset, 3);
	assert_int_equal(q.len, 10);
	assert_int_equal(q.tag, TAG + 1);
	assert_int_equal(q.block.id, 9);
	assert_int_equal(q.block.gs, 5);
	assert_string_equal(pool, "BP-1");
	assert_true(kept());
}

/* Refused, or with a wrong CRC: the answer is whole, and the next one may follow. */
static void what_a_node_cannot_give_is_read_the_ordinary_way(void **state)
{
	struct answer t = answer_for(3, 10);
	uint8_t buf[BLOCK_LEN];

	(void)state;
	t.buf[t.len - 1] ^= 1;
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_true(kept());
	t = answer_for(8, 8); /* less than was asked for */
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(8, 10, buf), 0);
	assert_true(kept());
	t = answer_for(3, 10); /* the bytes beside them, with their right CRCs */
	t.a.lead = 4;
	small_read_answer_encode(&t.a, t.buf);
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_true(kept());
	t.a = (struct small_read_answer){.tag = TAG + 1, .status = DT_ERROR};
	small_read_answer_encode(&t.a, t.buf);
	arm(t.buf, SMALL_READ_HEADER_LEN, false);
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_true(kept());
}

static void a_connection_with_anything_else_on_it_is_closed(void **state)
{
	struct answer t = answer_for(3, 10);
	uint8_t buf[BLOCK_LEN];

	(void)state;
	t.a.tag++;
	small_read_answer_encode(&t.a, t.buf);
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_false(kept());
	memset(t.buf, 0xff, t.len);
	arm(t.buf, t.len, false);
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_false(kept());
	t = answer_for(3, 10);
	for (size_t n = 0; n < t.len; n++) { /* it ends there */
		arm(t.buf, n, true);
		assert_int_equal(read_range(3, 10, buf), 0);
		assert_false(kept());
	}
}

/* The ordinary way would wait as long again for the same node. */
static void a_node_that_says_nothing_is_late(void **state)
{
	const struct answer t = answer_for(3, 10);
	uint8_t buf[BLOCK_LEN];
	uint64_t t0;

	(void)state;
	fs.set.socket_timeout_ms = 100;
	for (size_t n = 0; n < t.len; n += t.len - 1) {
		arm(t.buf, n, false);
		t0 = clock_mono_ns();
		assert_int_equal(read_range(3, 10, buf), -ETIMEDOUT);
		assert_in_range(clock_mono_ns() - t0, 100 * NS_PER_MS, 2000 * NS_PER_MS);
		assert_false(kept());
	}
	fs.set.socket_timeout_ms = 60000;
}

static void one_that_owes_something_is_not_taken(void **state)
{
	const struct answer t = answer_for(3, 10);
	uint8_t buf[BLOCK_LEN];

	(void)state;
	arm(t.buf, t.len, false);
	fs.socks.idle[0]->owes_end = true;
	assert_int_equal(read_range(3, 10, buf), 0);
	fs.socks.idle[0]->owes_end = false;
	fs.socks.idle[0]->takes_small = false;
	assert_int_equal(read_range(3, 10, buf), 0);
	assert_int_equal(fs.socks.count, 1);
	fs.socks.idle[0]->takes_small = true;
	assert_int_equal(read_range(3, 10, buf), 10);
	assert_true(kept());
}

static int setup(void **state)
{
	(void)state;
	sock_cache_init(&fs.socks);
	fs.set.socket_timeout_ms = 60000;
	for (uint32_t i = 0; i < BLOCK_LEN; i++)
		block[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(peer);
	sock_cache_fini(&fs.socks);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range_is_read),
		cmocka_unit_test(the_request_says_what_is_wanted),
		cmocka_unit_test(what_a_node_cannot_give_is_read_the_ordinary_way),
		cmocka_unit_test(a_connection_with_anything_else_on_it_is_closed),
		cmocka_unit_test(a_node_that_says_nothing_is_late),
		cmocka_unit_test(one_that_owes_something_is_not_taken),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
