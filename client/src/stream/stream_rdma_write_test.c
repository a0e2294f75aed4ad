/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: each packet that was not filled in registered memory gets slots or waits for
 * them, in order and whole, and a writer whose packets are acknowledged has none. An ack is one of
 * all nodes. */
#include "client/src/write/pipeline.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_internal.h"
#include "client/src/stream/stream_rdma_test_fixture.h"

#define WRITERS 150
static struct wstream *writer[MANY];
static int64_t sent[MANY], acked[MANY]; /* packets of each */
static size_t chain = 1;                /* nodes of each, of which the fake is the first */

static int open_write_by(int (*open)(struct dfs *fs, const struct write_setup *w,
				     struct wstream **ret, int *ret_bad, struct err *err),
			 bool by_tcp, struct wstream **ret, struct err *err)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT;
	static Hd__DatanodeInfoProto *locs[2] = {&info, &info};
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__StorageTypeProto types[2] = {HD__STORAGE_TYPE_PROTO__DISK,
						HD__STORAGE_TYPE_PROTO__DISK};
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static char storage[] = "s", *storages[2] = {storage, storage};
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
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = chain;
	lb.locs = locs;
	lb.storageids = storages;
	lb.storagetypes = types;
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

/* Slots that somebody has for as long as the test wants: what a writer does not fetch goes to the
 * next one after a while. */
struct hoard {
	struct rtask t;
	struct slot *slot[64];
	uint32_t n;
};

static void hoard_run(struct rtask *t)
{
	struct hoard *h = container_of(t, struct hoard, t);

	while ((h->slot[h->n] = pool_get(rdma_pool(t->rdma), SLOT_1M, POOL_WRITE)))
		assert_true(++h->n < sizeof(h->slot) / sizeof(h->slot[0]));
}

static void give_back_run(struct rtask *t)
{
	struct hoard *h = container_of(t, struct hoard, t);

	while (h->n)
		slot_put(h->slot[--h->n]);
}

static void a_write_that_gets_no_buffer_fails_and_goes_on_later(void **state)
{
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct loan *loan = loan_new(lent, NULL);
	struct err err = ERR_INIT;
	struct wstream *s;
	struct hoard all = {.n = 0};
	struct pipeline p;
	int bad, rc;

	(void)state;
	fs.set.rdma_wait_ms = 50;
	rdma_run(fs.rdma, &all.t, hoard_run);
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
	rdma_run(fs.rdma, &all.t, give_back_run);
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
}

static void windows_run(struct rtask *t)
{
	(void)t;
	windows_there = SHOWN_MOST;
	serve_line();
}

static void nothing_run(struct rtask *t)
{
	(void)t;
}

static void slow_run(struct rmsg *m)
{
	(void)m;
	(void)poll(NULL, 0, 100);
}

/* The node has nothing to do before it is sent, and its time begins then. */
static void a_packet_that_gets_no_window_blames_no_node(void **state)
{
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	const uint64_t began = clock_mono_ns();
	struct loan *loan = loan_new(lent, NULL);
	struct err err = ERR_INIT;
	struct rmsg slow = {.fn = slow_run};
	struct pipeline p;
	struct rtask t;
	int bad, rc;

	(void)state;
	windows_there = 0;
	fs.set.rdma_wait_ms = 50;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.lb = &lb;
	assert_int_equal(try_open_write(&p.ws, &err), 0);
	p.progress_ns = clock_mono_ns();
	pipeline_queue(&p, pipeline_lend_packet(&p, 0, block, MI, loan));
	assert_int_equal(pipeline_pump(&p, &bad, &err), 1);
	rdma_run(fs.rdma, &t, nothing_run); /* it has its slots */
	reactor_post(rdma_reactor(fs.rdma), &slow);
	while ((rc = pipeline_pump(&p, &bad, &err)) >= 0 &&
	       (rc = pipeline_wait(&p, rc > 0, &err)) == 0)
		;
	assert_int_equal(rc, -ENOBUFS);
	assert_true(pipeline_is_dry(&p, rc));
	assert_non_null(strstr(err.text, "memory windows"));
	assert_true(clock_mono_ns() < began + 10 * NS_PER_S);
	err_reset(&err);
	fs.set.rdma_wait_ms = fs.set.socket_timeout_ms = 20000;
	p.progress_ns = clock_mono_ns() - 25 * NS_PER_S;
	rdma_run(fs.rdma, &t, windows_run);
	while (atomic_load(&p.ws->held_until_ns) == UINT64_MAX)
		(void)poll(NULL, 0, 1);
	assert_int_equal(pipeline_waited(&p, false, &err), 0);
	node_answer();
	while ((rc = pipeline_pump(&p, &bad, &err)) >= 0 && pipeline_in_flight(&p))
		(void)pipeline_wait(&p, rc > 0, &err);
	assert_int_equal(p.acked_end, MI);
	loan_put(loan);
	p.lb = NULL;
	pipeline_fini(&p);
}

static bool is_held(unsigned i)
{
	struct rtask t;

	rdma_run(fs.rdma, &t, nothing_run); /* behind what it has heard */
	return atomic_load(&writer[i]->held_until_ns) == UINT64_MAX;
}

static void behind_what_a_node_has_its_silence_counts(void **state)
{
	(void)state;
	windows_there = VERBS_EXPOSURES;
	closes_late = true;
	open_writer(0);
	must_send(0, 0, MI);
	must_send(0, MI, MI);
	assert_false(is_held(0));
	node_answer();
	take_acks(0, true);
	assert_true(is_held(0));
	close_late();
	take_acks(0, true);
	assert_false(is_held(0));
	close_writers(0, 1);
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

/* And what follows it is not believed. */
static void an_ack_for_fewer_nodes_acknowledges_nothing(void **state)
{
	struct err err = ERR_INIT;
	struct ack a;

	(void)state;
	chain = 2;
	open_writer(0);
	must_send(0, 0, 512);
	must_send(0, 512, 512);
	assert_int_equal(stream_rdma.next_ack(writer[0], &a, &err), 0);
	node_answer(); /* for itself alone */
	assert_int_equal(stream_rdma.wait(writer[0], false, clock_mono_ns() + 10 * NS_PER_S, &err),
			 1);
	for (unsigned r = 0; r < 2; r++) {
		assert_int_equal(stream_rdma.next_ack(writer[0], &a, &err), -EPROTO);
		assert_non_null(strstr(err.text, "acknowledges for 1 of 2 nodes"));
		err_reset(&err);
	}
	close_writers(0, 1);
	chain = 1;
}

/* RLIMIT_MEMLOCK, most often: TCP needs no such memory. */
static void memory_that_the_device_may_not_have_is_no_failure(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_set(&err, -ENOMEM, "no RDMA connection");
	assert_int_equal(rdma_no_path(-ENOMEM, &err), -ENOLINK);
	assert_int_equal(err.rc, -ENOLINK);
}

static void drop_run(struct rtask *t)
{
	struct xop *op = receiving;

	(void)t;
	receiving = NULL;
	op->done(op, -ECONNRESET);
}

/* The device may have failed, and not the node: it is to be tried by TCP. */
static void a_connection_that_breaks_is_no_nodes_fault(void **state)
{
	struct err err = ERR_INIT;
	struct pipeline p = {0};
	struct ack a;
	struct rtask t;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const enum rdma_mode mode = i ? RDMA_AUTO : RDMA_REQUIRE;

		fs.set.rdma = mode;
		assert_int_equal(try_open_write(&p.ws, &err), 0);
		rdma_run(fs.rdma, &t, drop_run);
		assert_int_equal(
			stream_rdma.wait(p.ws, false, clock_mono_ns() + 60 * NS_PER_S, &err), 1);
		assert_int_equal(stream_rdma.next_ack(p.ws, &a, &err), -ECONNRESET);
		assert_int_equal(pipeline_forgives(&p, -ECONNRESET), i);
		assert_int_equal(node_table_is_empty(&fs.fallbacks), !i);
		stream_rdma.close_write(p.ws);
	}
}

static void packets_that_find_no_window_wait_in_line(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	windows_there = 5;
	node_answer();
	for (unsigned i = 0; i < 20; i++)
		open_writer(i);
	write_in_turns(20, 12, 65536);
	close_writers(0, 20);
	assert_int_equal(slots_out(), before);
}

static unsigned writes;

/* Windows are spare when the stream ends, not before. */
static void send_before_windows(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	struct capsule m;

	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &m), 0);
	writes += m.type == CAPSULE_WRITE;
	fake_send(c, iov, n, op);
	if (m.type != CAPSULE_CANCEL)
		return;
	windows_there = SHOWN_MOST;
	serve_line();
}

static void what_waits_for_a_window_is_not_sent_behind_the_end(void **state)
{
	struct xport_ops ops = fake_ops;

	(void)state;
	ops.send = send_before_windows;
	conn.ops = &ops;
	windows_there = writes = 0;
	open_writer(0);
	must_send(0, 0, 65536);
	close_writers(0, 1);
	assert_int_equal(writes, 0);
	conn.ops = &fake_ops;
}

static void take_all(struct rbuf *all[], unsigned *n)
{
	while (*n < 64 && (all[*n] = rdma_buf_get(fs.rdma, 512)))
		++*n;
}

static void a_buffer_is_no_other_packets_while_a_node_may_read_it(void **state)
{
	struct rbuf *b = rdma_buf_get(fs.rdma, 512), *all[64];
	struct packet p = {.len = 512, .data = b->data->data, .crc = b->crc->data, .crc_len = 4};
	struct err err = ERR_INIT;
	unsigned n = 0, had;

	(void)state;
	memcpy(b->data->data, block, 512);
	memcpy(b->crc->data, block_crcs, 4);
	p.buf = b;
	closes_late = true;
	node_answer();
	open_writer(0);
	assert_int_equal(stream_rdma.send(writer[0], &p, &err), 1);
	rdma_buf_put(b);
	take_acks(0, true);
	close_writers(0, 1);
	take_all(all, &n);
	for (unsigned i = 0; i < n; i++)
		assert_ptr_not_equal(all[i], b);
	had = n;
	close_late();
	take_all(all, &n);
	assert_int_equal(n, had + 1);
	assert_ptr_equal(all[had], b);
	while (n > 0)
		rdma_buf_put(all[--n]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(packets_that_find_no_window_wait_in_line),
		t(what_waits_for_a_window_is_not_sent_behind_the_end),
		t(a_buffer_is_no_other_packets_while_a_node_may_read_it),
		t(quiet_writers_have_no_buffer),
		t(writers_beyond_all_buffers_wait_in_line),
		t(writers_that_want_all_buffers_end_well),
		t(small_packets_take_small_buffers),
		t(a_buffer_that_is_not_fetched_goes_to_the_next),
		t(a_write_that_gets_no_buffer_fails_and_goes_on_later),
		t(a_packet_that_gets_no_window_blames_no_node),
		t(behind_what_a_node_has_its_silence_counts),
		t(a_write_that_is_to_go_by_tcp_does),
		t(a_write_that_is_given_up_leaves_no_buffer_behind),
		t(an_ack_for_fewer_nodes_acknowledges_nothing),
		t(memory_that_the_device_may_not_have_is_no_failure),
		t(a_connection_that_breaks_is_no_nodes_fault),
	};

	return cmocka_run_group_tests_name("stream_rdma_write", tests, NULL, NULL);
}
