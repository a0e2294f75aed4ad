/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: for every offset and length of a block, however it is cut into packets, the
 * reader gets exactly the bytes asked for; no byte with a wrong CRC, out of order or beyond the end
 * gets through; a connection is kept only when the exchange is complete.
 * After a write likewise, and a write begins on no connection that may fail it.
 * The data node is one end of a socket pair into which its whole answer is written beforehand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/src/stream/stream.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define BPC 8
#define BLOCK_LEN 45 /* five chunks and a bit */

static struct dfs fs;
static uint8_t block[BLOCK_LEN];
static int peer = -1; /* the data node's end */

struct answer {
	uint8_t buf[4096];
	size_t len;
	size_t first_data; /* where the first data byte stands */
};

static void put(struct answer *a, const void *p, size_t n)
{
	memcpy(a->buf + a->len, p, n);
	a->len += n;
}

static void put_packet(struct answer *a, uint64_t from, uint64_t to, int64_t seqno)
{
	uint8_t hdr[DT_PACKET_HEADER_MAX], crc[BLOCK_LEN * 4];
	struct dt_packet h = {.offset = (int64_t)from, .seqno = seqno};

	h.data_len = (uint32_t)(to - from);
	h.crc_len = (uint32_t)crc_bytes(CRC_CRC32C, to - from, BPC);
	h.last = to == from;
	crc_chunks(CRC_CRC32C, block + from, to - from, BPC, crc);
	put(a, hdr, dt_packet_encode(&h, hdr));
	put(a, crc, h.crc_len);
	if (!a->first_data)
		a->first_data = a->len;
	put(a, block + from, to - from);
}

/* What a node sends for [@offset, @offset + @len), @chunks chunks in a packet. */
static void make_answer(struct answer *a, uint64_t offset, uint64_t len, uint32_t chunks)
{
	uint64_t at = offset / BPC * BPC;
	uint64_t end = (offset + len + BPC - 1) / BPC * BPC;
	int64_t seqno = 0;
	uint8_t *msg;
	size_t n;

	a->len = a->first_data = 0;
	assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, at, false, &msg, &n), 0);
	put(a, msg, n);
	free(msg);
	if (end > BLOCK_LEN)
		end = BLOCK_LEN;
	while (at < end) {
		const uint64_t to = at + chunks * BPC < end ? at + chunks * BPC : end;

		put_packet(a, at, to, seqno++);
		at = to;
	}
	put_packet(a, at, at, seqno);
}

/* Let the next read find a connection to 127.0.0.1:1 with @a in it. */
static void arm(const struct answer *a)
{
	struct sock *s = calloc(1, sizeof(*s));
	int pair[2];

	if (peer >= 0)
		close(peer);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	s->fd = pair[0];
	snprintf(s->peer, sizeof(s->peer), "127.0.0.1:1");
	assert_int_equal(net_resolve("127.0.0.1", 1, &s->to, NULL), 0);
	peer = pair[1];
	assert_int_equal(write(peer, a->buf, a->len), a->len);
	if (a->len > 0)
		assert_int_equal(shutdown(peer, SHUT_WR), 0);
	sock_cache_put(&fs.socks, s);
}

static int begin_range(uint64_t offset, uint64_t len, bool start, struct rstream **ret)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct read_setup r = {.lb = &lb, .offset = offset, .len = len};

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = token.kind = token.service = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = &locs;
	return (start ? stream_tcp.start_read : stream_tcp.open_read)(&fs, &r, ret, NULL);
}

static int open_range(uint64_t offset, uint64_t len, struct rstream **ret)
{
	return begin_range(offset, len, false, ret);
}

static int start_range(uint64_t offset, uint64_t len, struct rstream **ret)
{
	return begin_range(offset, len, true, ret);
}

/* Read [@offset, @offset + @len) by @piece bytes. 0 or the error that came. */
static int read_range(uint64_t offset, uint64_t len, size_t piece, struct err *err)
{
	uint8_t buf[BLOCK_LEN + 1];
	struct rstream *s;
	uint64_t got = 0;
	int rc = open_range(offset, len, &s);

	while (rc == 0 && got < len) {
		size_t want = piece < len - got ? piece : (size_t)(len - got);
		ssize_t n = stream_tcp.read(s, buf, want, err);

		if (n < 0) {
			rc = (int)n;
			break;
		}
		assert_in_range(n, 1, want);
		assert_memory_equal(buf, block + offset + got, n);
		got += (uint64_t)n;
	}
	if (rc == 0 || got < len)
		stream_tcp.close_read(s);
	return rc;
}

static void every_range_of_a_block_is_read_exactly(void **state)
{
	struct answer a;

	(void)state;
	for (uint64_t off = 0; off < BLOCK_LEN; off++) {
		for (uint64_t len = 1; len <= BLOCK_LEN - off; len++) {
			const uint32_t chunks = 1 + (uint32_t)(off + len) % 4;
			const size_t piece = 1 + (size_t)(off * 7 + len) % BLOCK_LEN;

			make_answer(&a, off, len, chunks);
			arm(&a);
			assert_int_equal(read_range(off, len, piece, NULL), 0);
			assert_int_equal(fs.socks.count, 1); /* complete: kept */
			sock_close(fs.socks.idle[--fs.socks.count]);
		}
	}
}

/* The caller of many streams: nothing waits, whatever has arrived by now is used. */
static void an_answer_in_drops_is_read_without_waiting(void **state)
{
	struct answer a, none = {.len = 0};
	uint8_t buf[BLOCK_LEN + 1];

	(void)state;
	for (size_t drop = 1; drop < 40; drop++) {
		const uint64_t off = drop % 11, len = BLOCK_LEN - off - drop % 7;
		size_t fed = 0, got = 0;
		struct rstream *s;
		struct pollfd poll;

		make_answer(&a, off, len, 1 + (uint32_t)drop % 4);
		arm(&none);
		assert_int_equal(start_range(off, len, &s), 0);
		while (got < len) {
			ssize_t n = stream_tcp.try_read(s, buf + got, len - got, NULL);

			assert_in_range(n, 0, len - got);
			got += (size_t)n;
			if (n > 0)
				continue;
			assert_int_equal(stream_tcp.poll_read(s, &poll), 0);
			assert_true(fed < a.len);
			n = a.len - fed < drop ? (ssize_t)(a.len - fed) : (ssize_t)drop;
			assert_int_equal(write(peer, a.buf + fed, n), n);
			fed += (size_t)n;
		}
		assert_memory_equal(buf, block + off, len);
		assert_int_equal(write(peer, a.buf + fed, a.len - fed), a.len - fed);
		stream_tcp.close_read(s);
		assert_int_equal(fs.socks.count, 1); /* complete: kept */
		sock_close(fs.socks.idle[--fs.socks.count]);
	}
}

/* So much the kernel takes of what is to leave later. */
static size_t taken_later = SIZE_MAX;
ssize_t __real_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags)
{
	return __real_send(fd, p, flags & MSG_MORE && n > taken_later ? taken_later : n, flags);
}

static void the_status_follows_a_complete_read(void **state)
{
	static const uint8_t ok[] = {2, 8, DT_CHECKSUM_OK};
	ssize_t n, whole = 0;
	uint8_t buf[512];
	struct answer a;

	(void)state;
	for (taken_later = 3; taken_later > 0; taken_later--) {
		make_answer(&a, 3, 20, 2);
		arm(&a);
		assert_int_equal(read_range(3, 20, 100, NULL), 0);
		n = read(peer, buf, sizeof(buf));
		assert_true(n > (ssize_t)sizeof(ok));
		assert_int_equal(buf[0] << 8 | buf[1], 28);
		assert_int_equal(buf[2], DT_READ_BLOCK);
		assert_memory_equal(buf + n - sizeof(ok), ok, sizeof(ok));
		whole = whole ? whole : n; /* and it comes once */
		assert_int_equal(n, whole);
		sock_close(fs.socks.idle[--fs.socks.count]);
	}
	taken_later = SIZE_MAX;
}

/* The packet at the end is waited for by nobody: the next read on the connection finds it before
 * its own answer. */
static void a_late_end_is_taken_by_the_next_read(void **state)
{
	struct answer a, none = {.len = 0};
	uint8_t end[DT_PACKET_HEADER_MAX];
	struct rstream *s;
	size_t end_len;

	(void)state;
	for (int wrong = 0; wrong < 2; wrong++) {
		struct dt_packet h = {.offset = 4 * BPC, .seqno = 2 + wrong, .last = true};

		end_len = dt_packet_encode(&h, end);
		make_answer(&a, 0, 4 * BPC, 2);
		arm(&none);
		assert_int_equal(write(peer, a.buf, a.len - end_len), a.len - end_len);
		assert_int_equal(read_range(0, 4 * BPC, BLOCK_LEN, NULL), 0);
		assert_int_equal(fs.socks.count, 1);
		assert_int_equal(write(peer, end, end_len), end_len);
		make_answer(&a, BPC, BPC, 1);
		assert_int_equal(write(peer, a.buf, a.len), a.len);
		/* a wrong one: the connection is given up, and nobody listens for a new one */
		assert_int_equal(wrong ? open_range(BPC, BPC, &s) : read_range(BPC, BPC, BPC, NULL),
				 wrong ? -ECONNREFUSED : 0);
		assert_int_equal(fs.socks.count, !wrong);
		while (fs.socks.count)
			sock_close(fs.socks.idle[--fs.socks.count]);
	}
}

/* Two of them have lain idle, and the node has closed both. */
static void after_an_idle_connection_that_failed_comes_a_new_one(void **state)
{
	const struct answer none = {.len = 0};
	struct rstream *s;

	(void)state;
	arm(&none);
	arm(&none);
	close(peer);
	peer = -1;
	assert_int_equal(open_range(0, 8, &s), -ECONNREFUSED); /* and nobody listens */
	assert_int_equal(fs.socks.count, 1);
	sock_cache_fini(&fs.socks);
}

static void a_connection_with_data_on_the_way_is_not_kept(void **state)
{
	struct answer a = {.len = 0}, none = {.len = 0};
	uint8_t buf[2 * BPC], *msg;
	struct rstream *s;
	size_t n;

	(void)state;
	arm(&none);
	assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, 0, false, &msg, &n), 0);
	put(&a, msg, n);
	free(msg);
	put_packet(&a, 0, sizeof(buf), 0);
	assert_int_equal(write(peer, a.buf, a.len), a.len);
	assert_int_equal(open_range(0, BLOCK_LEN, &s), 0);
	assert_int_equal(stream_tcp.read(s, buf, sizeof(buf), NULL), sizeof(buf));
	stream_tcp.close_read(s);
	assert_int_equal(fs.socks.count, 0);
}

static void an_empty_packet_that_is_not_the_last_is_no_end(void **state)
{
	const struct dt_packet more = {.offset = 2 * BPC, .seqno = 1};
	uint8_t hdr[DT_PACKET_HEADER_MAX];
	const size_t len = dt_packet_encode(&more, hdr);
	struct answer a;

	(void)state;
	make_answer(&a, 0, 2 * BPC, 2);
	a.len -= len; /* the end */
	put(&a, hdr, len);
	arm(&a);
	assert_int_equal(read_range(0, 2 * BPC, BLOCK_LEN, NULL), 0);
	assert_int_equal(fs.socks.count, 0);
}

static void no_flipped_bit_gets_through(void **state)
{
	struct answer a;
	struct err err = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < 16; i++) { /* the first packet's two chunks */
		make_answer(&a, 0, BLOCK_LEN, 2);
		a.buf[a.first_data + i] ^= 0x10;
		arm(&a);
		assert_int_equal(read_range(0, BLOCK_LEN, BLOCK_LEN, &err), -EBADMSG);
		assert_int_equal(fs.socks.count, 0); /* not kept */
	}
}

static void an_answer_cut_anywhere_is_an_error(void **state)
{
	struct answer a, whole;

	(void)state;
	make_answer(&whole, 5, 30, 2);
	for (size_t cut = 0; cut < whole.len - 31; cut++) { /* 31: the end packet */
		struct rstream *s;
		uint8_t buf[BLOCK_LEN];
		ssize_t n = 1;

		a = whole;
		a.len = cut;
		arm(&a);
		if (open_range(5, 30, &s) < 0)
			continue;
		for (size_t got = 0; got < 30 && n > 0; got += (size_t)n)
			n = stream_tcp.read(s, buf, 30 - got, NULL);
		assert_true(n < 0);
		stream_tcp.close_read(s);
		assert_int_equal(fs.socks.count, 0);
	}
}

static void packets_out_of_order_are_refused(void **state)
{
	struct answer a;
	uint8_t *msg;
	size_t n;

	(void)state;
	for (int wrong = 0; wrong < 3; wrong++) {
		a.len = a.first_data = 0;
		dt_read_response_encode(CRC_CRC32C, BPC, 0, false, &msg, &n);
		put(&a, msg, n);
		free(msg);
		if (wrong == 0)
			put_packet(&a, 0, 16, 1); /* numbers start at 0 */
		else if (wrong == 1)
			put_packet(&a, 8, 24, 0); /* a hole */
		else
			put_packet(&a, 0, 0, 0); /* the end, too early */
		arm(&a);
		assert_int_equal(read_range(0, 40, 40, NULL), -EPROTO);
	}
}

/* A header whose lengths do not fit each other, with all the bytes that it speaks of behind it. */
static void a_header_that_lies_is_refused(void **state)
{
	const struct dt_packet lies[] = {
		{.data_len = 16, .crc_len = 4},              /* one CRC for two chunks */
		{.data_len = 16, .crc_len = 12},             /* three */
		{.data_len = 16, .crc_len = 0},              /* none */
		{.data_len = 17, .crc_len = 8},              /* a chunk and a bit more */
		{.data_len = 16, .crc_len = 8, .offset = 8}, /* another place */
		{.data_len = 16, .crc_len = 8, .seqno = 1},  /* another number */
		{.data_len = 0, .crc_len = 0},               /* empty, and not the last */
		{.data_len = 1 << 20, .crc_len = 8},         /* far beyond what is asked for */
		{.data_len = 16, .crc_len = 1 << 20},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct answer a = {.len = 0};
		uint8_t hdr[DT_PACKET_HEADER_MAX], *msg;
		size_t n;
		int rc;

		assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, 0, false, &msg, &n), 0);
		put(&a, msg, n);
		free(msg);
		put(&a, hdr, dt_packet_encode(&lies[i], hdr));
		memset(a.buf + a.len, 0, 1024);
		a.len += 1024;
		arm(&a);
		rc = read_range(0, 40, 40, NULL);
		assert_true(rc == -EPROTO || rc == -EMSGSIZE);
		assert_int_equal(fs.socks.count, 0);
	}
}

/* More than was asked for is sent, up to the end of a chunk: it is taken off the connection, which
 * is kept. */
static void bytes_beyond_the_range_are_not_given(void **state)
{
	struct answer a;

	(void)state;
	for (size_t want = 1; want <= 24; want++)
		for (size_t piece = 1; piece <= want; piece++) {
			make_answer(&a, 3, want, 1);
			arm(&a);
			assert_int_equal(read_range(3, want, piece, NULL), 0);
			assert_int_equal(fs.socks.count, 1);
			sock_close(fs.socks.idle[--fs.socks.count]);
		}
}

/* The answer begins where it says, and ends before the byte that was asked for. */
static void an_answer_that_ends_before_the_range_is_refused(void **state)
{
	struct answer a = {.len = 0};
	uint8_t *msg;
	size_t n;

	(void)state;
	assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, 8, false, &msg, &n), 0);
	put(&a, msg, n);
	free(msg);
	put_packet(&a, 8, 11, 0); /* a chunk that is the block's last one: three bytes */
	put_packet(&a, 11, 11, 1);
	arm(&a);
	assert_int_equal(read_range(12, 1, 1, NULL), -EPROTO);
}

static void a_chunk_offset_that_makes_no_sense_is_refused(void **state)
{
	static const struct {
		uint32_t bpc;
		uint64_t chunk;
	} bad[] = {{0, 0}, {0, 17}, {8, 8}, {8, 24}, {BPC_MAX + 1, 0}, {32, UINT64_MAX - 3}};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct answer a = {.len = 0};
		struct rstream *s;
		uint8_t *msg;
		size_t n;

		dt_read_response_encode(CRC_CRC32C, bad[i].bpc, bad[i].chunk, false, &msg, &n);
		put(&a, msg, n);
		free(msg);
		arm(&a);
		assert_true(open_range(17, 1, &s) < 0);
	}
}

static void hints_for_the_page_cache_are_passed_on(void **state)
{
	static const struct settings sets[] = {
		{.drop_reads = HINT_NONE, .drop_writes = HINT_YES},
		{.drop_reads = HINT_NO},
		{.drop_reads = HINT_YES, .has_readahead = true, .readahead = 1 << 20},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		Hd__OpReadBlockProto *op;
		struct settings before = fs.set;
		struct rstream *s;
		struct answer a;
		uint8_t buf[512], code;
		ssize_t n;

		fs.set.drop_reads = sets[i].drop_reads;
		fs.set.drop_writes = sets[i].drop_writes;
		fs.set.has_readahead = sets[i].has_readahead;
		fs.set.readahead = sets[i].readahead;
		make_answer(&a, 0, BLOCK_LEN, 2);
		arm(&a);
		assert_int_equal(open_range(0, BLOCK_LEN, &s), 0);
		fs.set = before;
		n = read(peer, buf, sizeof(buf));
		assert_in_range(n, DT_OP_HEADER_LEN + 2, 127); /* so its length is one byte */
		assert_int_equal(dt_op_header_decode(buf, &code), 0);
		assert_int_equal(code, DT_READ_BLOCK);
		assert_int_equal(pb_unpack(dt_op_desc(code), buf + DT_OP_HEADER_LEN + 1,
					   buf[DT_OP_HEADER_LEN], &op),
				 0);
		assert_int_equal(op->cachingstrategy->has_dropbehind,
				 sets[i].drop_reads != HINT_NONE);
		assert_int_equal(op->cachingstrategy->dropbehind, sets[i].drop_reads == HINT_YES);
		assert_int_equal(op->cachingstrategy->has_readahead, sets[i].has_readahead);
		assert_int_equal(op->cachingstrategy->readahead, (int64_t)sets[i].readahead);
		pb_free(op);
		stream_tcp.close_read(s);
	}
}

/* ---- writing ---- */

struct output_how {
	bool keeps, refused, unheard, followed;
};

/* A block of one empty packet. How many connections are kept then? */
static size_t kept_after(const struct output_how *how)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	static Hd__StorageTypeProto type = HD__STORAGE_TYPE_PROTO__DISK;
	static char empty[1], *storage = empty;
	const struct write_setup w = {.lb = &lb, .block = &b, .crc_type = CRC_CRC32C, .bpc = BPC};
	struct packet last = {.last = true, .seqno = 0}, beat = {.seqno = -1};
	struct dt_ack a = {.seqno = 0, .count = 1, .reply = {how->refused ? DT_ERROR : DT_SUCCESS}};
	const struct answer none = {.len = 0};
	uint8_t *msg, buf[DT_ACK_MAX];
	struct wstream *s;
	struct ack ack;
	uint64_t until;
	size_t n;
	int bad;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = token.kind = token.service = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = &locs;
	lb.storagetypes = &type;
	lb.storageids = &storage;
	sock_cache_fini(&fs.socks);
	arm(&none);
	assert_int_equal(stream_tcp.start_write(&fs, &w, &s, NULL), 0);
	assert_int_equal(fs.socks.count, 0); /* it is that one */
	assert_int_equal(stream_tcp.opened(s, &until, &bad, NULL), 0);
	assert_int_equal(dt_write_response_encode(DT_SUCCESS, "", how->keeps, NULL, 0, &msg, &n),
			 0);
	assert_int_equal(write(peer, msg, n), n);
	free(msg);
	assert_int_equal(stream_tcp.opened(s, &until, &bad, NULL), 1);
	assert_int_equal(stream_tcp.send(s, &last, NULL), 1);
	if (how->followed)
		assert_int_equal(stream_tcp.send(s, &beat, NULL), 1);
	if (!how->unheard) {
		n = dt_ack_encode(&a, buf);
		assert_int_equal(write(peer, buf, n), n);
		assert_int_equal(stream_tcp.next_ack(s, &ack, NULL), 1);
	}
	stream_tcp.close_write(s);
	return fs.socks.count;
}

static void a_connection_is_kept_after_a_whole_block(void **state)
{
	(void)state;
	assert_int_equal(kept_after(&(struct output_how){.keeps = true}), 1);
	assert_int_equal(kept_after(&(struct output_how){.keeps = false}), 0);
	assert_int_equal(kept_after(&(struct output_how){.keeps = true, .refused = true}), 0);
	assert_int_equal(kept_after(&(struct output_how){.keeps = true, .unheard = true}), 0);
	assert_int_equal(kept_after(&(struct output_how){.keeps = true, .followed = true}), 0);
}

static void a_write_takes_no_connection_that_may_fail_it(void **state)
{
	const struct answer none = {.len = 0}, late = {.len = 1};
	struct net_addr addr;

	(void)state;
	assert_int_equal(net_resolve("127.0.0.1", 1, &addr, NULL), 0);
	sock_cache_fini(&fs.socks);
	arm(&none);
	close(peer); /* the node is gone */
	peer = -1;
	assert_null(sock_cache_get_sound(&fs.socks, &addr));
	arm(&late); /* it says what nobody has asked for */
	assert_null(sock_cache_get_sound(&fs.socks, &addr));
	arm(&none);
	fs.socks.idle[0]->owes_end = true;
	assert_null(sock_cache_get_sound(&fs.socks, &addr));
	assert_int_equal(fs.socks.count, 0);
}

static int setup(void **state)
{
	(void)state;
	sock_cache_init(&fs.socks);
	snprintf(fs.client_name, sizeof(fs.client_name), "test");
	fs.set.socket_timeout_ms = 2000;
	fs.set.connect_timeout_ms = 100;
	for (size_t i = 0; i < BLOCK_LEN; i++)
		block[i] = (uint8_t)(i * 11 + 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sock_cache_fini(&fs.socks);
	close(peer);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range_of_a_block_is_read_exactly),
		cmocka_unit_test(an_answer_in_drops_is_read_without_waiting),
		cmocka_unit_test(the_status_follows_a_complete_read),
		cmocka_unit_test(a_late_end_is_taken_by_the_next_read),
		cmocka_unit_test(after_an_idle_connection_that_failed_comes_a_new_one),
		cmocka_unit_test(a_connection_with_data_on_the_way_is_not_kept),
		cmocka_unit_test(an_empty_packet_that_is_not_the_last_is_no_end),
		cmocka_unit_test(no_flipped_bit_gets_through),
		cmocka_unit_test(an_answer_cut_anywhere_is_an_error),
		cmocka_unit_test(packets_out_of_order_are_refused),
		cmocka_unit_test(a_header_that_lies_is_refused),
		cmocka_unit_test(bytes_beyond_the_range_are_not_given),
		cmocka_unit_test(an_answer_that_ends_before_the_range_is_refused),
		cmocka_unit_test(a_chunk_offset_that_makes_no_sense_is_refused),
		cmocka_unit_test(hints_for_the_page_cache_are_passed_on),
		cmocka_unit_test(a_connection_is_kept_after_a_whole_block),
		cmocka_unit_test(a_write_takes_no_connection_that_may_fail_it),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
