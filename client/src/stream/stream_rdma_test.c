/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: however many reads of one process are under way, each gets its bytes or waits for
 * a buffer, and what nobody reads on holds none for long; a wait ends with a sentence; the block's
 * chunks may be longer than was thought; an answer that nobody asked for changes nothing; who stops
 * reading takes nothing from others. The same of writes: each packet that was not filled in
 * registered memory gets slots or waits for them, in order and whole, and a writer whose packets
 * are acknowledged has none.
 * The device is a fake: what is sent is kept, and answered by node_answer(), which writes to the
 * slots themselves, or reads what lies in them by then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/read/reader.h"
#include "client/src/stream/rdma.h"
#include "client/src/write/pipeline.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"
#include "hdfs.pb-c.h"

#define BLOCK_LEN (16u << 20)
#define REQUESTS 1024
#define SMALL 4096u
#define IDS 65536 /* of requests */
#define MI (1u << 20)

static struct dfs fs;
static uint8_t *block, *block_crcs; /* of 512 bytes each */
static uint32_t bpc;
static bool answers; /* at once; else requests are kept until node_answer() */
static bool deaf;    /* it answers no CANCEL either */

static struct xop *connecting, *receiving;
static void *receive_buf;
static struct capsule kept[REQUESTS];
static uint64_t kept_at[REQUESTS], kept_len[REQUESTS];
static unsigned first_kept, all_kept; /* both [R] */
static struct capsule said[REQUESTS]; /* what is answered at once: openings and ends of writes */
static unsigned first_said, all_said; /* both [R] */
static int64_t seqno_of[IDS];         /* the last packet of each write */

static void fake_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op);

static void fake_recv(struct xconn *c, void *buf, uint32_t len, struct xop *op)
{
	(void)c;
	(void)len;
	receive_buf = buf;
	receiving = op;
}

static void fake_close(struct xconn *c)
{
	struct xop *op = receiving;

	(void)c;
	receiving = NULL;
	if (op)
		op->done(op, -ECANCELED);
}

static const struct xport_ops fake_ops = {.name = "fake",
					  .messages = true,
					  .send = fake_send,
					  .recv = fake_recv,
					  .close = fake_close};
static struct xconn conn = {.ops = &fake_ops, .max_message = CAPSULE_MAX_DEFAULT};

int __wrap_verbs_probe(struct err *err);
int __wrap_verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret,
		     struct err *err);
void __wrap_verbs_free(struct verbs *v);
int __wrap_verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns,
			 struct xop *op, struct xconn **ret);
const char *__wrap_verbs_reason(const struct xconn *c);
struct xremote __wrap_verbs_remote(const struct xconn *c, const struct slot *s, uint32_t off);
const struct verbs_hello *__wrap_verbs_peer(const struct xconn *c);
uint64_t __wrap_verbs_rtt_ns(const struct xconn *c);

const struct verbs_hello *__wrap_verbs_peer(const struct xconn *c)
{
	static const struct verbs_hello peer = {.payload_max = 0}; /* nothing rides along */

	(void)c;
	return &peer;
}

uint64_t __wrap_verbs_rtt_ns(const struct xconn *c)
{
	(void)c;
	return 1000;
}

int __wrap_verbs_probe(struct err *err)
{
	(void)err;
	return 0;
}

int __wrap_verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret,
		     struct err *err)
{
	(void)r;
	(void)o;
	(void)ret;
	(void)err;
	return 0;
}

void __wrap_verbs_free(struct verbs *v)
{
	(void)v;
}

static void connected(struct rmsg *m)
{
	(void)m;
	connecting->done(connecting, 0);
}

int __wrap_verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns,
			 struct xop *op, struct xconn **ret)
{
	static struct rmsg msg = {.fn = connected};

	(void)v;
	(void)to;
	(void)deadline_ns;
	connecting = op;
	*ret = &conn;
	reactor_post(conn.reactor, &msg);
	return 0;
}

const char *__wrap_verbs_reason(const struct xconn *c)
{
	(void)c;
	return "";
}

struct xremote __wrap_verbs_remote(const struct xconn *c, const struct slot *s, uint32_t off)
{
	(void)c;
	return (struct xremote){(uintptr_t)s->data + off, 1};
}

/* ---- the node ---- */

static void reply(const struct capsule *q, uint64_t at, uint64_t len)
{
	const uint64_t first = at / bpc * bpc, want = (at + len + bpc - 1) / bpc * bpc - first;
	const uint32_t crcs = (uint32_t)crc_bytes(CRC_CRC32C, want, bpc);
	const bool fits = want <= q->read.dest.len && crcs <= q->read.crc.len;
	struct capsule m = {.type = CAPSULE_READ_REPLY, .request_id = q->request_id};
	struct xop *op = receiving;
	ssize_t n;

	m.read_reply.status = fits ? HD__STATUS__SUCCESS : HD__STATUS__ERROR_UNSUPPORTED;
	m.read_reply.crc_type = CRC_CRC32C;
	m.read_reply.bytes_per_checksum = bpc;
	m.read_reply.chunk_offset = first;
	m.read_reply.data_len = (uint32_t)want;
	m.read_reply.crc_len = crcs;
	m.read_reply.text = (struct capsule_bytes){"", 0};
	if (fits) {
		memcpy((void *)(uintptr_t)q->read.dest.addr, block + first, want);
		crc_chunks(CRC_CRC32C, block + first, want, bpc,
			   (uint8_t *)(uintptr_t)q->read.crc.addr);
	}
	n = capsule_encode(&m, VERBS_MESSAGE_MAX, receive_buf);
	assert_true(n > 0 && op);
	receiving = NULL;
	op->done(op, (int)n);
}

static void say(const struct capsule *m)
{
	struct xop *op = receiving;
	const ssize_t n = capsule_encode(m, VERBS_MESSAGE_MAX, receive_buf);

	assert_true(n > 0 && op);
	receiving = NULL;
	op->done(op, (int)n);
}

/* It is as the client's memory has it now. */
static void acknowledge(const struct capsule *q)
{
	static const uint8_t good = HD__STATUS__SUCCESS;
	const uint32_t len = q->write.data_len;
	struct capsule m = {.type = CAPSULE_ACK, .request_id = q->request_id};

	if (len) {
		const void *crcs = q->write.crc.p ? q->write.crc.p
						  : (const void *)(uintptr_t)q->write.crc_mem.addr;

		assert_memory_equal((const void *)(uintptr_t)q->write.data.addr,
				    block + q->write.offset, len);
		assert_memory_equal(crcs, block_crcs + q->write.offset / 512 * 4, q->write.crc.len);
	}
	assert_true(q->request_id < IDS && q->write.seqno == ++seqno_of[q->request_id]);
	m.ack.seqno = m.ack.pulled = q->write.seqno;
	m.ack.count = 1;
	m.ack.status = &good;
	say(&m);
}

/* One request, in its turn: the client takes one message at a time. */
static void answer_one(struct rmsg *m)
{
	if (first_kept < all_kept && receiving) {
		const unsigned i = first_kept++ % REQUESTS;

		if (kept[i].type == CAPSULE_WRITE)
			acknowledge(&kept[i]);
		else if (kept[i].type == CAPSULE_READ) /* not cancelled */
			reply(&kept[i], kept_at[i], kept_len[i]);
	}
	if (first_kept < all_kept)
		reactor_post(conn.reactor, m);
}

static struct rmsg answering = {.fn = answer_one};

static void say_one(struct rmsg *m)
{
	if (first_said < all_said && receiving)
		say(&said[first_said++ % REQUESTS]);
	if (first_said < all_said)
		reactor_post(conn.reactor, m);
}

static struct rmsg saying = {.fn = say_one};

/* The disk need not be asked any more. */
static bool cancel_read(uint64_t id)
{
	for (unsigned i = first_kept; i != all_kept; i++)
		if (kept[i % REQUESTS].request_id == id &&
		    kept[i % REQUESTS].type == CAPSULE_READ) {
			kept[i % REQUESTS].type = CAPSULE_CANCEL;
			return true;
		}
	return false;
}

/* @q opens or ends a write, or ends a read. */
static void say_soon(const struct capsule *q)
{
	struct capsule m = {.type = CAPSULE_CLOSED, .request_id = q->request_id};

	if (q->type == CAPSULE_OPEN_WRITE) {
		assert_true(q->request_id < IDS);
		seqno_of[q->request_id] = -1;
		m.type = CAPSULE_OPEN_REPLY;
		m.open_reply.bad_link = m.open_reply.text = (struct capsule_bytes){"", 0};
	} else if (cancel_read(q->request_id)) {
		m.type = CAPSULE_READ_REPLY;
		m.read_reply.status = HD__STATUS__ERROR;
		m.read_reply.text = (struct capsule_bytes){"", 0};
	} else {
		m.closed.text = (struct capsule_bytes){"", 0};
	}
	said[all_said % REQUESTS] = m;
	if (all_said++ == first_said)
		reactor_post(conn.reactor, &saying);
}

static void keep_read(unsigned i)
{
	Hd__OpReadBlockProto *o = NULL;

	assert_int_equal(kept[i].type, CAPSULE_READ);
	assert_int_equal(pb_unpack(&hd__op_read_block_proto__descriptor, kept[i].read.op.p,
				   kept[i].read.op.len, &o),
			 0);
	kept_at[i] = o->offset;
	kept_len[i] = o->len;
	pb_free(o);
}

static void fake_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	const unsigned i = all_kept % REQUESTS;

	(void)c;
	(void)n;
	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &kept[i]),
			 0);
	if (kept[i].type == CAPSULE_CANCEL && deaf) {
		op->done(op, (int)iov->iov_len);
		return;
	}
	if (kept[i].type == CAPSULE_OPEN_WRITE || kept[i].type == CAPSULE_CANCEL) {
		say_soon(&kept[i]);
	} else {
		if (kept[i].type != CAPSULE_WRITE)
			keep_read(i);
		assert_true(all_kept - first_kept < REQUESTS);
		if (all_kept++ == first_kept && answers)
			reactor_post(conn.reactor, &answering);
	}
	op->done(op, (int)iov->iov_len);
}

static void start_answering(struct rtask *t)
{
	(void)t;
	answers = true;
	if (first_kept < all_kept)
		reactor_post(conn.reactor, &answering);
}

static void node_answer(void)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, start_answering);
}

static void start_over(struct rtask *t)
{
	(void)t;
	answers = deaf = false;
	first_kept = all_kept;
}

/* It knows of no request, and answers none until node_answer(). */
static void node_start_over(void)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, start_over);
}

/* ---- the program ---- */

static int try_open(uint64_t at, uint64_t len, struct rstream **ret, struct err *err)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	const struct read_setup s = {.lb = &lb, .offset = at, .len = len};

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.n_locs = 1;
	lb.locs = &locs;
	return stream_rdma.open_read(&fs, &s, ret, err);
}

static struct rstream *must_open(uint64_t at, uint64_t len)
{
	struct err err = ERR_INIT;
	struct rstream *s;

	if (try_open(at, len, &s, &err) < 0)
		fail_msg("a read of %lu bytes cannot be opened: %s", (unsigned long)len, err.text);
	return s;
}

static void must_read(struct rstream *s, uint64_t at, uint64_t len)
{
	static uint8_t buf[65536];
	struct err err = ERR_INIT;

	while (len > 0) {
		ssize_t n = stream_rdma.read(s, buf, len < sizeof(buf) ? len : sizeof(buf), &err);

		if (n <= 0)
			fail_msg("a read: %s", err.text);
		assert_memory_equal(buf, block + at, n);
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
}

struct out_task {
	struct rtask t;
	uint32_t out;
};

static void count_out(struct rtask *t)
{
	container_of(t, struct out_task, t)->out = pool_slots_out(rdma_pool(t->rdma));
}

static uint32_t slots_out(void)
{
	struct out_task o;

	rdma_run(fs.rdma, &o.t, count_out);
	return o.out;
}

static int setup(void **state)
{
	struct err err = ERR_INIT;
	struct rdma *r;

	(void)state;
	memset(&fs, 0, sizeof(fs));
	pthread_mutex_init(&fs.rdma_lock, NULL);
	packet_pool_init(&fs.packets);
	node_table_init(&fs.fallbacks);
	fs.set.rdma = RDMA_REQUIRE;
	fs.set.socket_timeout_ms = 20000;
	fs.set.rdma_wait_ms = 20000;
	fs.defaults.bytes_per_checksum = bpc = 512;
	answers = deaf = false;
	first_kept = all_kept = first_said = all_said = 0;
	if (!block) {
		block = malloc(BLOCK_LEN);
		block_crcs = malloc(BLOCK_LEN / 512 * 4);
		for (uint32_t i = 0; i < BLOCK_LEN; i++)
			block[i] = (uint8_t)(i * 2654435761u >> 24);
		crc_chunks(CRC_CRC32C, block, BLOCK_LEN, 512, block_crcs);
	}
	if (rdma_get(&fs, &r, &err) < 0)
		fail_msg("%s", err.text);
	conn.reactor = rdma_reactor(r);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rdma_free(fs.rdma);
	node_table_fini(&fs.fallbacks);
	packet_pool_fini(&fs.packets);
	return 0;
}

#define MANY 400
static struct rstream *stream[MANY];

static void many_small_reads(unsigned count)
{
	const uint32_t before = slots_out();

	for (unsigned i = 0; i < count; i++)
		stream[i] = must_open(i * SMALL, SMALL);
	node_answer();
	for (unsigned i = 0; i < count; i++) {
		must_read(stream[i], i * SMALL, SMALL);
		stream_rdma.close_read(stream[i]);
	}
	assert_int_equal(slots_out(), before);
}

static void sixty_small_reads_at_a_time_are_all_answered(void **state)
{
	(void)state;
	many_small_reads(60);
}

static void small_reads_beyond_all_buffers_wait_in_line(void **state)
{
	(void)state;
	many_small_reads(MANY);
}

static void beside_readers_that_stopped_a_read_gets_its_bytes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 120; i++)
		stream[i] = must_open(0, BLOCK_LEN);
	node_answer();
	for (unsigned i = 120; i < 124; i++) {
		stream[i] = must_open(i * SMALL, 2u << 20);
		must_read(stream[i], i * SMALL, 2u << 20);
	}
	must_read(stream[0], 0, 3u << 20); /* what it gave back is read again */
	for (unsigned i = 0; i < 124; i++)
		stream_rdma.close_read(stream[i]);
}

static void a_reader_that_stops_goes_on_at_its_byte(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	node_answer();
	for (unsigned i = 0; i < 20; i++) {
		stream[i] = must_open(i, BLOCK_LEN - i);
		must_read(stream[i], i, 1000 + i);
	}
	for (unsigned i = 20; i < 140; i++)
		stream[i] = must_open(0, BLOCK_LEN);
	for (unsigned i = 0; i < 140; i++) {
		must_read(stream[i], i < 20 ? 1000 + 2 * i : 0, 1u << 20);
		if (i >= 20)
			stream_rdma.close_read(stream[i]);
	}
	for (unsigned i = 0; i < 20; i++)
		stream_rdma.close_read(stream[i]);
	assert_int_equal(slots_out(), before);
}

static void a_wait_ends_with_a_sentence(void **state)
{
	struct err err = ERR_INIT;
	uint8_t buf[SMALL];
	struct rstream *s;

	(void)state;
	fs.set.rdma_wait_ms = 50;
	for (unsigned i = 0; i < MANY; i++)
		stream[i] = must_open(i * SMALL, SMALL);
	assert_int_equal(stream_rdma.read(stream[MANY - 1], buf, sizeof(buf), &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
	fs.set.rdma = RDMA_AUTO; /* TCP does as well */
	assert_int_equal(try_open(0, SMALL, &s, &err), -ENOLINK);
	assert_int_equal(err.rc, -ENOBUFS);
	node_answer();
	for (unsigned i = 0; i < MANY; i++)
		stream_rdma.close_read(stream[i]);
}

static void chunks_may_be_of_any_length(void **state)
{
	(void)state;
	node_answer();
	for (bpc = 1; bpc <= 1u << 20; bpc *= 4) {
		stream[0] = must_open(SMALL, SMALL);
		must_read(stream[0], SMALL, SMALL);
		stream_rdma.close_read(stream[0]);
		stream[0] = must_open(7, 5u << 20);
		must_read(stream[0], 7, 5u << 20);
		stream_rdma.close_read(stream[0]);
	}
}

struct unasked {
	struct rtask t;
	uint64_t id; /* the next to be answered */
};

static bool is_asked(uint64_t id)
{
	for (unsigned i = first_kept; i < all_kept; i++)
		if (kept[i % REQUESTS].request_id == id)
			return true;
	return false;
}

static void answer_unasked(struct rtask *t)
{
	struct unasked *u = container_of(t, struct unasked, t);
	struct capsule m = {.type = CAPSULE_READ_REPLY, .request_id = u->id};
	struct xop *op = receiving;
	ssize_t n;

	if (!op)
		return; /* later */
	u->id++;
	if (is_asked(m.request_id))
		return;
	m.read_reply.data_len = SMALL;
	m.read_reply.text = (struct capsule_bytes){"", 0};
	n = capsule_encode(&m, VERBS_MESSAGE_MAX, receive_buf);
	assert_true(n > 0);
	receiving = NULL;
	op->done(op, (int)n);
}

/* To each call there is. */
static void answer_all_unasked(void)
{
	struct unasked u = {.id = 1};

	while (u.id < 4 * MANY)
		rdma_run(fs.rdma, &u.t, answer_unasked);
}

static void answers_that_nobody_asked_for_change_nothing(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		stream[i] = must_open(i * SMALL, SMALL);
	answer_all_unasked(); /* to those in line */
	node_answer();
	for (unsigned i = 0; i < MANY; i++)
		must_read(stream[i], i * SMALL, SMALL / 2);
	answer_all_unasked(); /* to those who have their answer */
	for (unsigned i = 0; i < MANY; i++) {
		must_read(stream[i], i * SMALL + SMALL / 2, SMALL / 2);
		stream_rdma.close_read(stream[i]);
	}
	assert_int_equal(slots_out(), before);
}

static void begin_idle(struct reader *idle, struct rstream *rs)
{
	*idle = (struct reader){.fs = &fs, .seq.rs = rs, .listed = true};
	pthread_mutex_init(&idle->seq_lock, NULL);
	idle_streams_init(&fs.idle_streams);
	list_add_tail(&fs.idle_streams.readers, &idle->idle);
	fs.idle_streams.count = 1;
}

/* As the keeper does, until its stream is closed. */
static void reap(struct reader *idle)
{
	const uint64_t deadline = clock_mono_ns() + 60 * NS_PER_S;

	while (idle->listed && clock_mono_ns() < deadline) {
		idle_streams_reap(&fs, clock_mono_ns());
		(void)poll(NULL, 0, 1);
	}
	assert_false(idle->listed);
	assert_null(idle->seq.rs);
	idle_streams_fini(&fs.idle_streams);
	pthread_mutex_destroy(&idle->seq_lock);
}

/* One that stopped reading while its node is slow, and one that waits for the same node. */
static void who_stops_reading_takes_no_connection_along(void **state)
{
	const uint32_t before = slots_out();
	struct reader idle;

	(void)state;
	begin_idle(&idle, must_open(0, BLOCK_LEN));
	stream[0] = must_open(SMALL, SMALL);
	reap(&idle);
	node_answer();
	must_read(stream[0], SMALL, SMALL);
	stream_rdma.close_read(stream[0]);
	assert_int_equal(slots_out(), before);
}

/* A node that stands still: its connection is given up in the end, and others go by another one. */
static void who_stops_reading_keeps_no_buffer_where_nothing_is_answered(void **state)
{
	struct reader idle;

	(void)state;
	deaf = true;
	fs.set.socket_timeout_ms = 50;
	begin_idle(&idle, must_open(0, BLOCK_LEN));
	reap(&idle);
	fs.set.socket_timeout_ms = 20000;
	node_start_over();
	node_answer();
	stream[0] = must_open(SMALL, SMALL);
	must_read(stream[0], SMALL, SMALL);
	stream_rdma.close_read(stream[0]);
}

/* It reads on before the node has let go, or after that. */
static void who_stopped_reading_goes_on_at_its_byte(void **state)
{
	const uint64_t deadline = clock_mono_ns() + 60 * NS_PER_S;
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned rest = 0; rest < 2; rest++) {
		struct rstream *s = must_open(1000, BLOCK_LEN - 1000);

		assert_false(stream_rdma.come_to_rest(s));
		while (rest && !stream_rdma.come_to_rest(s) && clock_mono_ns() < deadline)
			(void)poll(NULL, 0, 1);
		if (rest)
			assert_int_equal(slots_out(), before);
		node_answer();
		must_read(s, 1000, 3 * MI);
		(void)stream_rdma.come_to_rest(s);
		must_read(s, 1000 + 3 * MI, 3 * MI);
		stream_rdma.close_read(s);
		node_start_over();
	}
	assert_int_equal(slots_out(), before);
}

/* Its memory comes back without the connection, which one that waits for the same node has, too. */
static void a_read_that_is_closed_is_cancelled(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned given_up = 0; given_up < 2; given_up++) {
		struct rstream *closed = must_open(0, BLOCK_LEN);

		stream[given_up] = must_open(given_up * SMALL, SMALL);
		closed->given_up = given_up;
		stream_rdma.close_read(closed);
	}
	node_answer();
	for (unsigned i = 0; i < 2; i++) {
		must_read(stream[i], i * SMALL, SMALL);
		stream_rdma.close_read(stream[i]);
	}
	assert_int_equal(slots_out(), before);
}

/* ---- writes ---- */

#define WRITERS 150
static struct wstream *writer[MANY];
static int64_t sent[MANY], acked[MANY]; /* packets of each */

static int open_write_by(int (*open)(struct dfs *fs, const struct write_setup *w,
				     struct wstream **ret, int *ret_bad, struct err *err),
			 bool by_tcp, struct wstream **ret, struct err *err)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__StorageTypeProto type = HD__STORAGE_TYPE_PROTO__DISK;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static char storage[] = "s", *storages = storage;
	const struct write_setup s = {.lb = &lb,
				      .block = &b,
				      .stage = DT_SETUP_CREATE,
				      .crc_type = CRC_CRC32C,
				      .bpc = 512,
				      .by_tcp = by_tcp};
	int bad;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = token.kind = token.service = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = 1;
	lb.locs = &locs;
	lb.storageids = &storages;
	lb.storagetypes = &type;
	return open(&fs, &s, ret, &bad, err);
}

static int try_open_write(struct wstream **ret, struct err *err)
{
	return open_write_by(stream_rdma.open_write, false, ret, err);
}

static void open_writer(unsigned i)
{
	struct err err = ERR_INIT;

	if (try_open_write(&writer[i], &err) < 0)
		fail_msg("writer %u cannot begin: %s", i, err.text);
	sent[i] = acked[i] = 0;
}

static void close_writers(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		stream_rdma.close_write(writer[i]);
}

/* Of memory that no device knows. */
static int try_send(unsigned i, uint64_t at, uint32_t len)
{
	struct packet p = {.seqno = sent[i],
			   .offset = at,
			   .len = len,
			   .data = block + at,
			   .crc = block_crcs + at / 512 * 4,
			   .crc_len = (uint32_t)crc_bytes(CRC_CRC32C, len, 512)};
	struct err err = ERR_INIT;
	const int rc = stream_rdma.send(writer[i], &p, &err);

	if (rc < 0)
		fail_msg("writer %u: %s", i, err.text);
	sent[i] += rc;
	return rc;
}

/* All acks that are there; with @wait at least one. */
static void take_acks(unsigned i, bool wait)
{
	struct err err = ERR_INIT;
	struct ack a;
	int rc;

	while ((rc = stream_rdma.next_ack(writer[i], &a, &err)) > 0 || wait) {
		if (rc < 0)
			fail_msg("writer %u: %s", i, err.text);
		if (rc > 0)
			assert_int_equal(a.seqno, acked[i]++);
		else
			assert_true(stream_rdma.wait(writer[i], false,
						     clock_mono_ns() + 60 * NS_PER_S, &err));
		wait = wait && rc == 0;
	}
}

static void must_send(unsigned i, uint64_t at, uint32_t len)
{
	struct err err = ERR_INIT;

	while (!try_send(i, at, len)) {
		take_acks(i, false);
		if (!stream_rdma.wait(writer[i], true, clock_mono_ns() + 60 * NS_PER_S, &err))
			fail_msg("writer %u cannot send", i);
	}
}

/* @each packets of each of @count writers, in turns, none of which waits for another one. */
static void write_in_turns(unsigned count, int64_t each, uint32_t len)
{
	const uint64_t deadline = clock_mono_ns() + 60 * NS_PER_S;
	bool busy = true;

	while (busy) {
		busy = false;
		for (unsigned i = 0; i < count; i++) {
			while (sent[i] < each &&
			       try_send(i, (uint64_t)sent[i] * len % (BLOCK_LEN / 2), len))
				;
			take_acks(i, false);
			busy |= acked[i] < each;
		}
		assert_true(clock_mono_ns() < deadline);
	}
}

static void quiet_writers_have_no_buffer(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	node_answer();
	for (unsigned i = 0; i < WRITERS; i++) {
		open_writer(i);
		for (unsigned r = 0; r < 3; r++) {
			must_send(i, r * 512, 512);
			take_acks(i, true);
		}
	}
	assert_int_equal(slots_out(), before);
	open_writer(WRITERS);
	for (unsigned r = 0; r < 60; r++)
		must_send(WRITERS, r % 16 * MI, MI);
	while (acked[WRITERS] < 60)
		take_acks(WRITERS, true);
	for (unsigned i = 0; i < WRITERS; i++) { /* they go on */
		must_send(i, 3 * 512, 512);
		take_acks(i, true);
	}
	assert_int_equal(slots_out(), before);
	close_writers(0, WRITERS + 1);
	assert_int_equal(slots_out(), before);
}

static void writers_beyond_all_buffers_wait_in_line(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned i = 0; i < WRITERS; i++) {
		open_writer(i);
		(void)try_send(i, i * SMALL, MI);
	}
	node_answer();
	write_in_turns(WRITERS, 1, MI);
	assert_int_equal(slots_out(), before);
	close_writers(0, WRITERS);
}

/* Each keeps its packets in order, and what it has on its way never keeps it from going on. */
static void writers_that_want_all_buffers_end_well(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned i = 0; i < 24; i++)
		open_writer(i);
	for (unsigned i = 0; i < 24; i++)
		while (sent[i] < 4 && try_send(i, (uint64_t)sent[i] * MI, MI))
			;
	node_answer();
	write_in_turns(24, 12, MI);
	assert_int_equal(slots_out(), before);
	close_writers(0, 24);
}

static void small_packets_take_small_buffers(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 120; i++) {
		open_writer(i);
		must_send(i, i * SMALL, i % 3 ? 512 : 8193);
	}
	open_writer(120);
	for (unsigned r = 0; r < 8; r++)
		must_send(120, r * MI, MI); /* nothing was acknowledged */
	node_answer();
	for (unsigned i = 0; i <= 120; i++)
		while (acked[i] < sent[i])
			take_acks(i, true);
	close_writers(0, 121);
}

/* Those who asked and do not come for it. */
static void a_buffer_that_is_not_fetched_goes_to_the_next(void **state)
{
	(void)state;
	node_answer();
	for (unsigned i = 0; i < 60; i++) {
		open_writer(i);
		assert_int_equal(try_send(i, i * SMALL, MI), 0);
	}
	must_send(59, 59 * SMALL, MI);
	take_acks(59, true);
	for (unsigned i = 0; i < 59; i++) {
		must_send(i, i * SMALL, MI);
		take_acks(i, true);
	}
	close_writers(0, 60);
}

static void lent(void *arg)
{
	(void)arg;
}

static void a_write_that_gets_no_buffer_fails_and_goes_on_later(void **state)
{
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct loan *loan = loan_new(lent, NULL);
	struct err err = ERR_INIT;
	struct wstream *s;
	struct pipeline p;
	int bad, rc;

	(void)state;
	fs.set.rdma_wait_ms = 50;
	for (unsigned i = 0; i < 60; i++) {
		open_writer(i);
		(void)try_send(i, 0, MI);
	}
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.lb = &lb;
	assert_int_equal(try_open_write(&p.ws, &err), 0);
	pipeline_queue(&p, pipeline_lend_packet(&p, 0, block, MI, loan));
	for (unsigned r = 0; r < 2; r++) {
		err_reset(&err);
		p.progress_ns = clock_mono_ns();
		while ((rc = pipeline_pump(&p, &bad, &err)) > 0 &&
		       (rc = pipeline_wait(&p, true, &err)) == 0)
			;
		assert_int_equal(rc, -ENOBUFS);
		assert_true(pipeline_is_dry(&p, rc));
		assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
	}
	err_reset(&err);
	fs.set.rdma = RDMA_AUTO; /* TCP does as well */
	assert_int_equal(try_open_write(&s, &err), -ENOLINK);
	assert_int_equal(err.rc, -ENOBUFS);
	fs.set.rdma_wait_ms = 20000;
	node_answer();
	write_in_turns(60, 1, MI);
	p.progress_ns = clock_mono_ns();
	while (pipeline_in_flight(&p)) {
		rc = pipeline_pump(&p, &bad, &err);
		if (rc >= 0 && pipeline_in_flight(&p))
			rc = pipeline_wait(&p, rc > 0, &err);
		if (rc < 0)
			fail_msg("%s", err.text);
	}
	assert_int_equal(p.acked_end, MI);
	loan_put(loan);
	p.lb = NULL;
	pipeline_fini(&p);
	close_writers(0, 60);
}

/* There is memory all the same: what is short is of another size. */
static void a_write_that_is_to_go_by_tcp_does(void **state)
{
	struct err err = ERR_INIT;
	struct wstream *s;

	(void)state;
	fs.set.rdma = RDMA_AUTO;
	assert_int_equal(open_write_by(stream_open_write, false, &s, &err), 0);
	assert_ptr_equal(s->ops, &stream_rdma);
	stream_rdma.close_write(s);
	/* nobody is there */
	assert_int_equal(open_write_by(stream_open_write, true, &s, &err), -ECONNREFUSED);
}

/* Unacknowledged packets, pairs in line, pairs not fetched. */
static void a_write_that_is_given_up_leaves_no_buffer_behind(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		open_writer(i);
		for (unsigned r = 0; r < 3; r++)
			(void)try_send(i, r * MI, MI);
	}
	close_writers(0, 60);
	assert_int_equal(slots_out(), before);
}

#define t(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(sixty_small_reads_at_a_time_are_all_answered),
		t(small_reads_beyond_all_buffers_wait_in_line),
		t(beside_readers_that_stopped_a_read_gets_its_bytes),
		t(a_reader_that_stops_goes_on_at_its_byte),
		t(a_wait_ends_with_a_sentence),
		t(chunks_may_be_of_any_length),
		t(answers_that_nobody_asked_for_change_nothing),
		t(who_stops_reading_takes_no_connection_along),
		t(who_stops_reading_keeps_no_buffer_where_nothing_is_answered),
		t(who_stopped_reading_goes_on_at_its_byte),
		t(a_read_that_is_closed_is_cancelled),
		t(quiet_writers_have_no_buffer),
		t(writers_beyond_all_buffers_wait_in_line),
		t(writers_that_want_all_buffers_end_well),
		t(small_packets_take_small_buffers),
		t(a_buffer_that_is_not_fetched_goes_to_the_next),
		t(a_write_that_gets_no_buffer_fails_and_goes_on_later),
		t(a_write_that_is_to_go_by_tcp_does),
		t(a_write_that_is_given_up_leaves_no_buffer_behind),
	};

	return cmocka_run_group_tests_name("stream_rdma", tests, NULL, NULL);
}
