/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a packet that lies in registered memory of the caller is read there, through a
 * window that lets the first node read these bytes and nothing else; the window is closed before
 * the packet is acknowledged to its writer, or before the stream has ended, however it does. Sent
 * again, it is read there again. Without a window, or in other memory, it is copied. */
#include "client/src/write/pipeline.h"

#include "client/src/stream/stream_rdma_memory_test_fixture.h"

static struct pipeline p;
static unsigned lent, given_back;
static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;

static bool is_open_to_node(const void *at, uint32_t len)
{
	for (unsigned i = 0; i < window_count; i++)
		if (windows[i].open && windows[i].at < (uintptr_t)at + len &&
		    (uintptr_t)at < windows[i].at + windows[i].len)
			return true;
	return false;
}

/* When the node hears of memory that is no slot, it may read just that. */
static void checked_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	struct capsule m;
	bool found = false;

	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &m), 0);
	if (m.type == CAPSULE_WRITE && m.write.data.rkey == 2) {
		for (unsigned i = 0; i < window_count; i++)
			found |= windows[i].open && windows[i].right == VERBS_PEER_READS &&
				 windows[i].at == m.write.data.addr &&
				 windows[i].len == m.write.data.len;
		assert_true(found);
	}
	fake_send(c, iov, n, op);
}

static const struct xport_ops checked_ops = {.name = "checked",
					     .messages = true,
					     .send = checked_send,
					     .recv = fake_recv,
					     .close = slow_close,
					     .give_up = slow_give_up};

static int open_stream(struct err *err)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__StorageTypeProto type = HD__STORAGE_TYPE_PROTO__DISK;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static char storage[] = "s", *storages = storage;
	const struct write_setup s = {.lb = &lb,
				      .block = &b,
				      .stage = DT_SETUP_CREATE,
				      .crc_type = CRC_CRC32C,
				      .bpc = 512};
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
	return stream_rdma.open_write(&fs, &s, &p.ws, &bad, err);
}

static int lent_setup(void **state)
{
	struct err err = ERR_INIT;

	if (memory_setup(state) < 0)
		return -1;
	conn.ops = &checked_ops;
	memcpy(mem, block, MEM);
	lent = given_back = 0;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.lb = &lb;
	if (open_stream(&err) < 0)
		fail_msg("%s", err.text);
	return 0;
}

static int lent_teardown(void **state)
{
	p.lb = NULL;
	pipeline_fini(&p);
	assert_int_equal(lent, given_back);
	assert_int_equal(open_now, 0);
	return memory_teardown(state);
}

static void on_given_back(void *arg)
{
	given_back++;
	assert_false(is_open_to_node(arg, 512));
}

/* @len bytes of the block, as they lie in @from. */
static void lend_of(uint8_t *from, uint64_t at, uint32_t len)
{
	struct loan *loan = loan_new(on_given_back, from);

	lent++;
	loan->memory = stream_memory_get(&fs, from, len);
	pipeline_queue(&p, pipeline_lend_packet(&p, at, from, len, loan));
	loan_put(loan);
}

static void lend(uint64_t at, uint32_t len)
{
	lend_of(mem + at, at, len);
}

/* What moves without waiting, until @count windows are open. */
static void push_until_open(unsigned count)
{
	struct err err = ERR_INIT;
	int bad;

	while (open_now < count) {
		if (pipeline_pump(&p, &bad, &err) < 0)
			fail_msg("%s", err.text);
		sleep_ns(NS_PER_MS);
	}
}

static int drain(struct err *err)
{
	int bad, rc = 0;

	while (rc >= 0 && pipeline_in_flight(&p)) {
		p.progress_ns = clock_mono_ns();
		rc = pipeline_pump(&p, &bad, err);
		if (rc >= 0 && pipeline_in_flight(&p))
			rc = pipeline_wait(&p, rc > 0, err);
	}
	return rc;
}

static void must_drain(void)
{
	struct err err = ERR_INIT;

	if (drain(&err) < 0)
		fail_msg("%s", err.text);
}

static void lent_packets_are_read_where_they_lie(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	must_register(mem, MEM);
	for (unsigned i = 0; i < 7; i++)
		lend(i * MI, MI);
	lend(7 * MI, MI - 512);
	assert_int_equal(dfs_mem_unregister(&fs, mem), -EBUSY);
	node_answer();
	must_drain();
	assert_int_equal(p.acked_end, 8 * MI - 512);
	assert_int_equal(fs.count.write_rdma_copied, 0);
	assert_int_equal(opened, 8);
	assert_int_equal(given_back, 8);
	assert_int_equal(open_now, 0);
	assert_int_equal(slots_out(), before);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
	assert_int_equal(list_length(&spare), window_count);
}

/* More of them than windows, in turns, beside others that are copied. */
static void the_order_stays_whatever_is_copied(void **state)
{
	uint64_t at = 0;

	(void)state;
	must_register(mem, MEM);
	while (window_count > 3)
		list_del(&windows[--window_count].link);
	node_answer();
	for (unsigned i = 0; i < 40; i++) {
		const uint32_t len = SMALL * (8 + i % 32);

		if (i % 3 == 2)
			lend_of(block + at, at, len);
		else
			lend(at, len);
		at += len;
	}
	must_drain();
	assert_int_equal(given_back, lent);
	assert_true(fs.count.write_rdma_copied > 0 && opened > 0);
}

static void an_ack_waits_for_the_window(void **state)
{
	struct err err = ERR_INIT;
	struct rtask t;
	struct ack a;

	(void)state;
	must_register(mem, MEM);
	holds_windows = true;
	lend(0, MI);
	lend_of(block + MI, MI, MI); /* copied: acknowledged behind it */
	push_until_open(1);
	node_answer();
	while (held_count == 0)
		sleep_ns(NS_PER_MS);
	sleep_ns(20 * NS_PER_MS);
	assert_int_equal(p.ws->ops->next_ack(p.ws, &a, &err), 0);
	assert_int_equal(given_back, 0);
	rdma_run(fs.rdma, &t, let_windows_close);
	must_drain();
	assert_int_equal(given_back, 2);
}

static void other_and_short_ones_are_copied(void **state)
{
	(void)state;
	must_register(mem, MI);
	node_answer();
	lend(0, 32 << 10);                         /* short */
	lend_of(block + (32 << 10), 32 << 10, MI); /* elsewhere */
	lend(MI + (32 << 10), MI);                 /* beyond */
	must_drain();
	assert_int_equal(fs.count.write_rdma_copied, 2 * MI + (32 << 10));
	assert_int_equal(opened, 0);
}

static void without_a_window_they_are_copied(void **state)
{
	(void)state;
	must_register(mem, MEM);
	window_count = 0;
	list_init(&spare);
	node_answer();
	lend(0, MI);
	must_drain();
	assert_int_equal(fs.count.write_rdma_copied, MI);
}

/* The node lets go of it at once, and its connection lives on. */
static void a_stream_that_is_given_up_has_no_window(void **state)
{
	(void)state;
	must_register(mem, MEM);
	for (unsigned i = 0; i < 5; i++)
		lend(i * MI, MI);
	push_until_open(5);
	assert_int_equal(dfs_mem_unregister(&fs, mem), -EBUSY);
	pipeline_close_stream(&p);
	assert_true(open_now == 0 && !revoked && !ended);
	assert_int_equal(list_length(&spare), window_count);
	assert_int_equal(given_back, 0); /* it may be sent again */
	pipeline_drop_all(&p);
	assert_int_equal(given_back, 5);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
}

/* One that says nothing, not even to a CANCEL, may read yet: until its queue pair is gone. */
static void a_silent_node_has_no_memory_that_the_caller_has_back(void **state)
{
	(void)state;
	must_register(mem, MEM);
	deaf = true;
	for (unsigned i = 0; i < 3; i++)
		lend(i * MI, MI);
	push_until_open(3);
	pipeline_close_stream(&p);
	assert_true(ended);
	assert_true(revoked == 3 && open_now == 0);
	assert_int_equal(list_length(&spare), window_count);
	pipeline_drop_all(&p);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
}

/* A window that nobody has fetched, and those of packets that were not sent yet, go back, too. */
static void after_a_failure_they_are_read_there_again(void **state)
{
	struct err err = ERR_INIT;
	struct rtask t;

	(void)state;
	must_register(mem, MEM);
	for (unsigned i = 0; i < 8; i++)
		lend(i * MI, MI);
	push_until_open(4);
	rdma_run(fs.rdma, &t, break_off);
	assert_int_equal(back_at_close, window_count);
	while (drain(&err) >= 0)
		;
	pipeline_requeue(&p);
	pipeline_close_stream(&p);
	assert_true(ended && open_now == 0);
	assert_int_equal(given_back, 0);
	conn.gone = NULL;
	ended = failed = false;
	first_kept = all_kept; /* what the first connection had */
	err_reset(&err);
	if (open_stream(&err) < 0)
		fail_msg("%s", err.text);
	node_answer();
	must_drain();
	assert_int_equal(p.acked_end, 8 * MI);
	assert_int_equal(given_back, 8);
	assert_int_equal(fs.count.write_rdma_copied, 0);
	assert_int_equal(list_length(&spare), window_count);
}

#define l(f) cmocka_unit_test_setup_teardown(f, lent_setup, lent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		l(lent_packets_are_read_where_they_lie),
		l(the_order_stays_whatever_is_copied),
		l(an_ack_waits_for_the_window),
		l(other_and_short_ones_are_copied),
		l(without_a_window_they_are_copied),
		l(a_stream_that_is_given_up_has_no_window),
		l(a_silent_node_has_no_memory_that_the_caller_has_back),
		l(after_a_failure_they_are_read_there_again),
	};

	return cmocka_run_group_tests_name("stream_rdma_lent", tests, NULL, NULL);
}
