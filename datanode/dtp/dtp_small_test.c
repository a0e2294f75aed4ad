/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: each small read gets one answer, under its tag, with the bytes and CRCs that were
 * asked for, however many are under way and however the connection cuts or breaks; nothing else
 * goes beside them; a client that does not ask for them finds the bytes of a stock node. */
#include "common/wire/small_read.h"
#include "datanode/dtp/dtp_test_fixture.h"

static int64_t make_block(void)
{
	const struct fake_opts good = stream(1);
	const int64_t id = next_id++;
	uint32_t acks;

	hop.fault = HOP_GOOD;
	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	return id;
}

static struct asked {
	uint32_t off, len;
	bool answered;
} asked[256];
static uint32_t asked_count;
static size_t last_len; /* of the last request */

static void ask(int64_t id, uint32_t off, uint32_t len)
{
	const struct small_read_request q = {.tag = asked_count + 1000,
					     .len = len,
					     .offset = off,
					     .block = {.id = id, .gs = 1001},
					     .pool = POOL_ID};
	uint8_t buf[200];

	asked[asked_count++] = (struct asked){off, len, false};
	last_len = small_read_request_encode(&q, buf, sizeof(buf));
	put(buf, last_len);
}

static void ask_many(int64_t id, uint32_t n)
{
	asked_count = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t len = 1 + random_below(i % 7 ? 5000 : SMALL_READ_MAX);

		ask(id, random_below(DATA_LEN - len), len);
	}
}

/* The answers at the front of what has come; 0: none that is whole. @good: not refused. */
static uint32_t take_answers(uint32_t *pos, bool good)
{
	struct small_read_answer a;
	uint32_t n = 0;

	while (peer.in_len - *pos >= SMALL_READ_HEADER_LEN) {
		const uint8_t *p = peer.in + *pos + SMALL_READ_HEADER_LEN;
		struct asked *q;

		assert_int_equal(small_read_answer_decode(peer.in + *pos, &a), 0);
		if (peer.in_len - *pos < SMALL_READ_HEADER_LEN + a.crc_len + a.data_len)
			break;
		assert_in_range(a.tag, 1000, 1000 + asked_count - 1);
		q = &asked[a.tag - 1000];
		assert_false(q->answered);
		q->answered = true;
		assert_int_equal(a.status == DT_SUCCESS, good);
		if (good) {
			assert_int_equal(a.lead, q->off % BPC);
			assert_true(a.data_len >= a.lead + q->len);
			assert_memory_equal(p + a.crc_len + a.lead, data + q->off, q->len);
			assert_int_equal(crc_verify(a.crc_type, p + a.crc_len, a.data_len,
						    a.bytes_per_crc, p),
					 -1);
		}
		*pos += SMALL_READ_HEADER_LEN + a.crc_len + a.data_len;
		n++;
	}
	return n;
}

/* Of what comes behind @pos. */
static uint32_t await_behind(uint32_t pos, uint32_t want, bool good)
{
	uint32_t n = 0;

	for (int i = 0; i < 4000 && n < want && !peer.ended; i++) {
		fix_run(5);
		n += take_answers(&pos, good);
	}
	assert_int_equal(n, want);
	assert_int_equal(pos, peer.in_len);
	return pos;
}

static void await_answers(uint32_t want, bool good)
{
	(void)await_behind(0, want, good);
}

static void each_of_many_gets_its_bytes(void **state)
{
	const int64_t id = make_block();

	(void)state;
	for (uint64_t seed = 0; seed < 24; seed++) {
		const struct fake_opts o = stream(seed);
		const uint32_t n = seed % 3 ? SMALL_READS_MAX / 2 : 3 * SMALL_READS_MAX / 2;

		ask_many(id, n);
		peer_run(&o, UINT32_MAX);
		await_answers(n, true);
		everything_comes_back();
	}
}

/* 1.5 times as many as may be under way: the others begin when these are over. */
static void no_more_are_under_way_than_may_be(void **state)
{
	const int64_t id = make_block();
	const struct fake_opts o = {0};
	uint32_t most = 0;

	(void)state;
	ask_many(id, 3 * SMALL_READS_MAX / 2);
	peer_run(&o, UINT32_MAX);
	for (int i = 0; i < 100; i++) {
		struct rtimer t = {.fire = fix_give_up};

		reactor_timer_set(r, &t, 0);
		assert_int_equal(reactor_run(r), 0);
		reactor_timer_clear(r, &t);
		most = core.op_count > most ? core.op_count : most;
	}
	assert_int_equal(most, SMALL_READS_MAX);
	await_answers(asked_count, true);
	everything_comes_back();
}

static void a_connection_of_small_reads_may_break_at_every_operation(void **state)
{
	const int64_t id = make_block();

	(void)state;
	for (uint32_t n = 1; n < 60; n++) {
		struct fake_opts o = stream(n);

		o.drop_after_ops = n;
		ask_many(id, 40);
		peer_run(&o, UINT32_MAX);
		for (int i = 0; i < 100 && !peer.ended; i++)
			fix_run(2);
		assert_true(peer.ended);
		everything_comes_back();
	}
}

/* A refusal is an answer, and the next read on the connection is served. */
static void what_cannot_be_read_is_refused_and_the_connection_stays(void **state)
{
	const int64_t id = make_block();
	const struct fake_opts o = stream(1);
	const struct {
		int64_t id;
		uint32_t off, len;
	} bad[] = {{id + 1000, 0, 10},
		   {id, DATA_LEN - 5, 10},
		   {id, DATA_LEN + 5, 10},
		   {id, 0, 0},
		   {id, 0, SMALL_READ_MAX + 1}};
	uint32_t pos;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		asked_count = 0;
		ask(bad[i].id, bad[i].off, bad[i].len);
		peer_run(&o, UINT32_MAX);
		pos = await_behind(0, 1, false);
		asked_count = 0; /* on the same connection */
		ask(id, 700, 300);
		peer.sending = true;
		xconn_send(peer.c, &(struct iovec){peer.out + peer.out_len - last_len, last_len}, 1,
			   &peer.send_op);
		(void)await_behind(pos, 1, true);
		everything_comes_back();
	}
}

/* Of the whole program. The fake allocates once for each send, and nothing else does. */
static uint32_t allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	allocations++;
	return __real_calloc(n, size);
}

/* The store of setup() opens the files of a replica for each read. */
static void keep_files_open(void)
{
	const struct store_volume_opts vol = {.path = dir, .type = STORAGE_DISK};
	const struct store_opts so = {.volumes = &vol, .volume_count = 1, .open_replicas = 8};
	const struct store_namespace ns = {
		.pool_id = POOL_ID, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct err err = ERR_INIT;

	store_close(dn.store);
	assert_int_equal(store_open(&so, &dn.store, &err), 0);
	assert_int_equal(store_attach(dn.store, &ns, &bp, &err), 0);
}

/* The first reads of a connection make what the later ones use again. */
static void a_read_of_an_open_replica_allocates_nothing(void **state)
{
	const int64_t id = make_block();
	const struct fake_opts o = {0};
	const uint32_t n = SMALL_READS_MAX / 2;
	uint32_t pos, before;

	(void)state;
	keep_files_open();
	ask_many(id, n);
	peer_run(&o, UINT32_MAX);
	pos = await_behind(0, n, true);
	for (uint32_t i = 0; i < n; i++)
		asked[i].answered = false;
	before = allocations;
	peer.sending = true; /* the same again */
	xconn_send(peer.c, &(struct iovec){peer.out, peer.out_len}, 1, &peer.send_op);
	(void)await_behind(pos, n, true);
	assert_int_equal(allocations - before, 1 + n);
	assert_in_range(core.spare_reads.count, 1, XFER_SPARES);
	assert_in_range(core.spare_smalls.count, 1, XFER_SPARES);
	everything_comes_back();
}

/* As between any two operations; not so late as one that is under way. */
static void a_connection_at_rest_ends_when_it_is_kept_no_longer(void **state)
{
	const uint64_t before_ns = core.waits.keepalive_ns;
	const int64_t id = make_block();
	const struct fake_opts o = {0};
	uint64_t t0;

	(void)state;
	core.waits.keepalive_ns = 100 * NS_PER_MS;
	ask_many(id, 2);
	peer_run(&o, UINT32_MAX);
	await_answers(2, true);
	t0 = clock_mono_ns();
	for (int i = 0; i < 1000 && !peer.ended; i++)
		fix_run(5);
	assert_true(peer.ended);
	assert_true(clock_mono_ns() - t0 < 30 * NS_PER_S);
	everything_comes_back();
	core.waits.keepalive_ns = before_ns;
}

static void an_ordinary_op_waits_for_the_small_ones_before_it(void **state)
{
	const int64_t id = make_block();
	Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;

	(void)state;
	for (uint64_t seed = 0; seed < 12; seed++) {
		const struct fake_opts o = stream(seed);
		uint32_t pos = 0, small = 0, before;
		uint8_t ok[DT_STATUS_MAX];
		const uint8_t *p;
		size_t len;

		asked_count = 0;
		for (uint32_t i = 0; i < 20; i++)
			ask(id, i * 512, 512);
		before = 20 * (SMALL_READ_HEADER_LEN + 4 + 512);
		m.header = header_for(id);
		m.len = 512;
		put_op(DT_READ_BLOCK, &m);
		put(ok, dt_read_status_encode(DT_CHECKSUM_OK, ok));
		ask(id, 1024, 512);
		peer_run(&o, before + 512 + 4 + SMALL_READ_HEADER_LEN + 4 + 512 + 60);
		for (int i = 0; i < 200 && peer.in_len < peer.want && !peer.ended; i++)
			fix_run(5);
		len = peer.in_len;
		peer.in_len = before;
		small = take_answers(&pos, true);
		assert_int_equal(small, 20);
		peer.in_len = (uint32_t)len;
		assert_true(message(&pos, &p, &len)); /* the ordinary answer */
		everything_comes_back();
	}
}

/* The answer to a read, with and without the question. */
static bool takes_small(int64_t id, bool ask_it, size_t *ret_len)
{
	const struct fake_opts o = stream(1);
	Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
	Hd__BlockOpResponseProto *answer;
	uint8_t ok[DT_STATUS_MAX];
	const uint8_t *p = NULL;
	uint32_t pos = 0;
	bool takes;

	m.header = header_for(id);
	m.len = 512;
	m.has_askssmall = m.askssmall = ask_it;
	put_op(DT_READ_BLOCK, &m);
	put(ok, dt_read_status_encode(DT_CHECKSUM_OK, ok));
	peer_run(&o, 512);
	for (int i = 0; i < 100 && !peer.ended && peer.in_len < peer.want; i++)
		fix_run(20);
	assert_true(message(&pos, &p, ret_len));
	assert_int_equal(pb_unpack(&hd__block_op_response_proto__descriptor, p, *ret_len, &answer),
			 0);
	takes = answer->has_takessmall && answer->takessmall;
	pb_free(answer);
	everything_comes_back();
	return takes;
}

static void only_who_asks_is_told(void **state)
{
	const int64_t id = make_block();
	size_t asked_len, stock_len;
	uint8_t *stock;
	size_t n;

	(void)state;
	assert_true(takes_small(id, true, &asked_len));
	assert_false(takes_small(id, false, &stock_len));
	assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, 0, false, &stock, &n), 0);
	assert_int_equal(stock_len, n - 1);
	free(stock);
}

/* A connection whose sends stay where they are. */
static struct xop *held;
static const struct xport_ops *real_ops;

static void hold_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	(void)c, (void)iov, (void)n;
	assert_null(held);
	held = op;
}

static void let_go_and_close(struct xconn *c)
{
	if (held)
		held->done(held, -ECANCELED);
	held = NULL;
	c->ops = real_ops;
	real_ops->close(c);
}

/* Not before the test says so. */
static struct xconn *closing;

static void close_later(struct xconn *c)
{
	closing = c;
}

/* A connection whose answer lies there, and which @close closes. */
static void hold_an_answer(void (*close)(struct xconn *c))
{
	static struct xport_ops stalls;
	const int64_t id = make_block();
	const struct fake_opts o = {0};
	struct dtp_conn *c;

	asked_count = 0;
	ask(id, 0, 4096);
	peer_run(&o, 1);
	c = container_of(core.conns.next, struct dtp_conn, link);
	real_ops = c->xc->ops;
	stalls = *real_ops;
	stalls.send = hold_send;
	stalls.close = close;
	c->xc->ops = &stalls;
	for (int i = 0; i < 100 && !held; i++)
		fix_run(5);
	assert_non_null(held);
}

/* Its answer lies there while others wait for buffers: it is closed, and they have them. */
static void a_peer_that_takes_nothing_gives_way(void **state)
{
	(void)state;
	hold_an_answer(let_go_and_close);
	block_read_reclaim_all(&core); /* it has not stalled for long */
	fix_run(1);
	assert_non_null(held);
	assert_true(pool_slots_out(pool) > 0);
	fix_run(2 * BUFFERS_STALL_NS / NS_PER_MS);
	block_read_reclaim_all(&core);
	for (int i = 0; i < 100 && pool_slots_out(pool); i++)
		fix_run(5);
	assert_null(held);
	assert_int_equal(pool_slots_out(pool), 0);
	everything_comes_back();
}

/* Of a connection that is being closed the send comes back first, then the receive. */
static void the_last_small_read_may_end_before_the_receive(void **state)
{
	(void)state;
	closing = NULL;
	hold_an_answer(close_later);
	fix_run(2 * BUFFERS_STALL_NS / NS_PER_MS);
	block_read_reclaim_all(&core);
	for (int i = 0; i < 100 && !closing; i++)
		fix_run(5);
	assert_non_null(closing);
	held->done(held, -ECANCELED);
	held = NULL;
	for (int i = 0; i < 100 && core.op_count; i++)
		fix_run(5);
	assert_int_equal(core.op_count, 0);
	assert_int_equal(core.conn_count, 1);
	closing->ops = real_ops;
	real_ops->close(closing);
	everything_comes_back();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_of_many_gets_its_bytes),
		cmocka_unit_test(no_more_are_under_way_than_may_be),
		cmocka_unit_test(a_connection_at_rest_ends_when_it_is_kept_no_longer),
		cmocka_unit_test(a_connection_of_small_reads_may_break_at_every_operation),
		cmocka_unit_test(what_cannot_be_read_is_refused_and_the_connection_stays),
		cmocka_unit_test(a_read_of_an_open_replica_allocates_nothing),
		cmocka_unit_test(an_ordinary_op_waits_for_the_small_ones_before_it),
		cmocka_unit_test(only_who_asks_is_told),
		cmocka_unit_test(a_peer_that_takes_nothing_gives_way),
		cmocka_unit_test(the_last_small_read_may_end_before_the_receive),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
