/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: however many reads of one process are under way, each gets its bytes or waits for
 * a buffer, and what nobody reads on holds none for long; a wait ends with a sentence; the block's
 * chunks may be longer than was thought; an answer that nobody asked for changes nothing, and one
 * that does not fit its memory is refused; what the node may still write to is nobody else's; who
 * stops reading takes nothing from others. */
#include "client/src/read/reader.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_read_internal.h"
#include "client/src/stream/stream_rdma_test_fixture.h"

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
	assert_non_null(strstr(err.text, "buffers"));
	assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
	fs.set.rdma = RDMA_AUTO; /* TCP does as well */
	assert_int_equal(try_open(0, SMALL, &s, &err), -ENOLINK);
	assert_int_equal(err.rc, -ENOBUFS);
	node_answer();
	for (unsigned i = 0; i < MANY; i++)
		stream_rdma.close_read(stream[i]);
}

static void a_small_read_shows_one_slot_by_one_window(void **state)
{
	const uint32_t before = slots_out();
	struct rstream *s;

	(void)state;
	closes_late = true;
	node_answer();
	binds = 0;
	s = must_open(SMALL, SMALL);
	must_read(s, SMALL, SMALL);
	stream_rdma.close_read(s);
	assert_int_equal(binds, 1);
	assert_int_equal(slots_out(), before + 1); /* the node may yet write to it */
	close_late();
	assert_int_equal(slots_out(), before);
}

static void reads_that_find_no_window_wait_in_line_and_not_for_ever(void **state)
{
	struct err err = ERR_INIT;
	uint8_t buf[SMALL];
	struct rstream *s;

	(void)state;
	windows_there = 7;
	many_small_reads(100);
	node_start_over();
	windows_there = VERBS_EXPOSURES - 1;
	fs.set.rdma_wait_ms = 50;
	s = must_open(0, SMALL);
	assert_int_equal(stream_rdma.read(s, buf, sizeof(buf), &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "memory windows"));
	stream_rdma.close_read(s);
	fs.set.rdma = RDMA_AUTO; /* TCP does as well */
	assert_int_equal(try_open(0, SMALL, &s, &err), -ENOLINK);
}

/* Slots of the class that short reads take. */
static struct slot *hoard[1024];
static uint32_t hoarded;

static void hoard_run(struct rtask *t)
{
	static const enum slot_class cls[] = {SLOT_8K, SLOT_64K, SLOT_1M};

	for (unsigned i = 0; i < 3; i++)
		while ((hoard[hoarded] = pool_get(rdma_pool(t->rdma), cls[i], POOL_READ)))
			assert_true(++hoarded < 1024);
}

static void give_back_run(struct rtask *t)
{
	(void)t;
	while (hoarded)
		slot_put(hoard[--hoarded]);
}

/* Else all windows would lie idle, and what needs one would queue behind those who wait. */
static void who_waits_for_slots_has_no_window(void **state)
{
	struct rtask t;

	(void)state;
	rdma_run(fs.rdma, &t, hoard_run);
	for (unsigned i = 0; i < 8; i++)
		stream[i] = must_open(i * SMALL, SMALL);
	assert_int_equal(reserved, 0);
	windows_there = 7;
	node_answer();
	rdma_run(fs.rdma, &t, give_back_run);
	for (unsigned i = 0; i < 8; i++) {
		must_read(stream[i], i * SMALL, SMALL);
		stream_rdma.close_read(stream[i]);
	}
}

static void wait_for_windows_run(struct rtask *t)
{
	(void)t;
	windows_there = SHOWN_MOST;
	serve_line();
}

/* What it has in line is for others while its caller is away. */
static void who_may_not_ask_keeps_nothing(void **state)
{
	const uint32_t before = slots_out();
	struct rdma_r *r;
	struct rtask t;

	(void)state;
	windows_there = 0;
	stream[0] = must_open(SMALL, SMALL);
	r = container_of(stream[0], struct rdma_r, base);
	assert_int_equal(slots_out(), before + 1);
	pthread_mutex_lock(&r->m.lock);
	r->parked = true; /* as r_stop() does when a capsule of before is yet on its way */
	pthread_mutex_unlock(&r->m.lock);
	rdma_run(fs.rdma, &t, wait_for_windows_run);
	assert_int_equal(slots_out(), before);
	assert_int_equal(reserved, 0);
	node_answer();
	must_read(stream[0], SMALL, SMALL);
	stream_rdma.close_read(stream[0]);
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

/* As the housekeeper does, until its stream is closed. */
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

/* ---- nodes that lie, or come too late ---- */

/* The slots of a short read have 8 KiB; what lies behind them is not this read's. */
static void an_answer_that_does_not_fit_the_memory_of_its_read_is_refused(void **state)
{
	static const struct {
		uint64_t first;
		uint32_t len, crc_len, bpc; /* of 0 bytes each: no CRCs */
	} lies[] = {
		{0, 4 * SMALL, 0, 0},
		{SMALL, CAPSULE_READ_MAX, 0, 0},
		{SMALL + 1, SMALL, 0, 0},
		{INT64_MAX, SMALL + 2, 0, 0},
		{SMALL, SMALL - 1, 0, 0},
		{0, 2 * SMALL, 8, 512},
		{SMALL, SMALL, 4 * SMALL, 1},
		{SMALL, SMALL, SMALL / 512 * 4 - 4, 512},
		{SMALL, SMALL, SMALL / 512 * 4 + 4, 512},
	};
	const uint32_t before = slots_out();
	uint8_t buf[SMALL];

	(void)state;
	node_answer();
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct capsule m = {.type = CAPSULE_READ_REPLY};
		struct err err = ERR_INIT;
		struct rstream *s;
		ssize_t n;

		m.read_reply.crc_type = lies[i].bpc ? CRC_CRC32C : CRC_NULL;
		m.read_reply.bytes_per_checksum = lies[i].bpc;
		m.read_reply.chunk_offset = lies[i].first;
		m.read_reply.data_len = lies[i].len;
		m.read_reply.crc_len = lies[i].crc_len;
		lie = &m;
		s = must_open(SMALL, SMALL);
		n = stream_rdma.read(s, buf, sizeof(buf), &err);
		if (n != -EPROTO)
			fail_msg("answer %zu: %zd %s", i, n, err.text);
		stream_rdma.close_read(s);
	}
	assert_int_equal(slots_out(), before);
}

/* It has not even said that it let go of the memory: nobody has that before the queue pair is
 * gone. */
static void what_an_unanswered_read_was_to_be_written_to_is_nobody_elses(void **state)
{
	const uint32_t before = slots_out();
	uint64_t late;
	struct rstream *s;

	(void)state;
	deaf = true;
	s = must_open(0, SMALL);
	s->given_up = true;
	late = kept[0].read.dest.addr;
	stream_rdma.close_read(s);
	assert_int_equal(slots_out(), before + 1);
	node_start_over();
	s = must_open(SMALL, SMALL);
	node_answer();
	must_read(s, SMALL, SMALL / 2);
	memset((void *)(uintptr_t)late, 0xee, SMALL);
	must_read(s, SMALL + SMALL / 2, SMALL / 2);
	stream_rdma.close_read(s);
	assert_int_equal(slots_out(), before + 1);
}

static struct rdma_r *looks; /* while it looks at what came somebody else wants memory */

static void shed_now(struct rtask *t)
{
	(void)t;
	looks->holder.shed(&looks->holder, UINT64_MAX);
}

/* Memory that was somebody else's before: all cases read in it. */
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	void *p = __real_malloc(n);

	return p ? memset(p, 0xa5, n) : NULL;
}

int64_t __wrap_crc_verify(enum crc_type type, const void *data, size_t len, uint32_t chunk,
			  const uint8_t *crcs);
int64_t __real_crc_verify(enum crc_type type, const void *data, size_t len, uint32_t chunk,
			  const uint8_t *crcs);
int64_t __wrap_crc_verify(enum crc_type type, const void *data, size_t len, uint32_t chunk,
			  const uint8_t *crcs)
{
	struct rtask t;

	if (looks)
		rdma_run(fs.rdma, &t, shed_now);
	return __real_crc_verify(type, data, len, chunk, crcs);
}

static void what_its_reader_looks_at_is_not_given_back(void **state)
{
	const uint32_t before = slots_out();
	struct rstream *s = must_open(SMALL, 4 * MI);

	(void)state;
	node_answer();
	looks = container_of(s, struct rdma_r, base);
	must_read(s, SMALL, 4 * MI);
	looks = NULL;
	stream_rdma.close_read(s);
	assert_int_equal(slots_out(), before);
}

struct drop {
	struct rtask t;
	int rc;
};

static void drop_run(struct rtask *t)
{
	struct xop *op = receiving;

	receiving = NULL;
	op->done(op, container_of(t, struct drop, t)->rc);
}

/* The device may have failed, and not the node: it is to be tried by TCP. But for one that was
 * silent there would be a second wait as long as the first. */
static void a_connection_that_breaks_is_no_nodes_fault(void **state)
{
	static const struct {
		enum rdma_mode mode;
		int lost, read;
	} want[] = {{RDMA_REQUIRE, -EIO, -EIO},
		    {RDMA_AUTO, -ETIMEDOUT, -ETIMEDOUT},
		    {RDMA_AUTO, -ECANCELED, -ENOBUFS}, /* by us: it may be RDMA again */
		    {RDMA_AUTO, -EIO, -ENOBUFS}};
	uint8_t buf[SMALL];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct drop d = {.rc = want[i].lost};
		struct rstream *s = must_open(0, SMALL);
		struct err err = ERR_INIT;

		fs.set.rdma = want[i].mode;
		rdma_run(fs.rdma, &d.t, drop_run);
		assert_int_equal(stream_rdma.read(s, buf, sizeof(buf), &err), want[i].read);
		assert_int_equal(node_table_is_empty(&fs.fallbacks), i < 3);
		stream_rdma.close_read(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(sixty_small_reads_at_a_time_are_all_answered),
		t(small_reads_beyond_all_buffers_wait_in_line),
		t(beside_readers_that_stopped_a_read_gets_its_bytes),
		t(a_reader_that_stops_goes_on_at_its_byte),
		t(a_wait_ends_with_a_sentence),
		t(a_small_read_shows_one_slot_by_one_window),
		t(reads_that_find_no_window_wait_in_line_and_not_for_ever),
		t(who_waits_for_slots_has_no_window),
		t(who_may_not_ask_keeps_nothing),
		t(chunks_may_be_of_any_length),
		t(answers_that_nobody_asked_for_change_nothing),
		t(an_answer_that_does_not_fit_the_memory_of_its_read_is_refused),
		t(what_an_unanswered_read_was_to_be_written_to_is_nobody_elses),
		t(what_its_reader_looks_at_is_not_given_back),
		t(who_stops_reading_takes_no_connection_along),
		t(who_stops_reading_keeps_no_buffer_where_nothing_is_answered),
		t(who_stopped_reading_goes_on_at_its_byte),
		t(a_read_that_is_closed_is_cancelled),
		t(a_connection_that_breaks_is_no_nodes_fault),
	};

	return cmocka_run_group_tests_name("stream_rdma_read", tests, NULL, NULL);
}
