/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold, whatever the transport and the next hop do (any cut of the bytes, late completions, a
 * connection that breaks at any operation, a hop that is slow, dies, lies or blames): what was
 * acknowledged is in the files; the connection, its ops and every slot come back. */
#include <unistd.h>

#include "datanode/dtp/dtp_test_fixture.h"

static void file_holds(int64_t id, uint64_t promised)
{
	struct replica_info info;
	struct replica_reader *rr;
	struct block b = {.id = id, .gs = 1001};
	struct err err;
	uint8_t *buf = malloc(DATA_LEN);

	if (promised) {
		assert_int_equal(replica_get(bp, id, &info), 0);
		assert_true(info.visible >= promised);
		assert_int_equal(replica_read_open(bp, &b, &rr, &err), 0);
		assert_int_equal(pread(rr->fd, buf, promised, 0), (ssize_t)promised);
		assert_memory_equal(buf, data, promised);
		replica_read_close(rr);
	}
	free(buf);
}

/* ---- tests ---- */

static void a_block_arrives_however_the_bytes_are_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 24; seed++) {
		const struct fake_opts o = stream(seed);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks;

		hop.fault = HOP_GOOD;
		put_write(id, seed % 2);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		assert_int_equal(count_acks(&promised), acks);
		assert_int_equal(promised, DATA_LEN);
		if (seed % 2)
			assert_int_equal(hop.bytes, DATA_LEN + 300 + 488);
		file_holds(id, DATA_LEN);
		everything_comes_back();
	}
}

static void a_connection_may_break_at_every_operation(void **state)
{
	(void)state;
	for (uint32_t n = 1; n < 60; n++) {
		struct fake_opts o = stream(n);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks;

		o.drop_after_ops = n;
		o.recv_max = 0;
		hop.fault = HOP_GOOD;
		put_write(id, n % 2);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		count_acks(&promised);
		everything_comes_back();
		file_holds(id, promised);
	}
}

static void a_next_hop_may_fail_in_every_way(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		const struct fake_opts o = stream(i);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks, good;

		hop.fault = (enum hop_fault)(1 + i % (HOP_FAULTS - 1));
		hop.fault_at = i / HOP_FAULTS % 8;
		put_write(id, true);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		good = count_acks(&promised);
		assert_true(good < acks);
		assert_true(peer.told || peer.ended);
		everything_comes_back();
		file_holds(id, promised);
	}
}

static void a_read_may_break_at_every_operation(void **state)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	uint32_t acks;

	(void)state;
	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	for (uint32_t n = 0; n < 24; n++) {
		struct fake_opts o = stream(n);
		Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
		uint8_t ok[DT_STATUS_MAX];

		o.drop_after_ops = n / 2 * (n % 2); /* every other run is undisturbed */
		m.header = header_for(id);
		m.len = DATA_LEN;
		put_op(DT_READ_BLOCK, &m);
		put(ok, dt_read_status_encode(DT_CHECKSUM_OK, ok));
		peer_run(&o, DATA_LEN + 2000);
		for (int i = 0; i < 100 && !peer.ended && peer.in_len < peer.want; i++)
			fix_run(20);
		if (!o.drop_after_ops)
			assert_true(peer.in_len >= DATA_LEN + 2000);
		everything_comes_back();
	}
}

/* A writer that would have us wait for a millisecond makes no timers of a millisecond. */
static void the_patience_of_a_writer_is_a_second_or_more(void **state)
{
	static const struct {
		bool said;
		uint64_t ms, taken_ms;
	} of[] = {{false, 0, 60000},  {true, 0, 60000},     {true, 1, 1000},
		  {true, 1500, 1500}, {true, 90000, 60000}, {true, UINT64_MAX, 60000}};
	Hd__OpWriteBlockProto m = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	struct write_params p;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(core.waits.read_ns, 60 * NS_PER_S);
	sum.type = HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C;
	sum.bytesperchecksum = BPC;
	m.header = header_for(next_id++);
	m.stage = HD__OP_WRITE_BLOCK_PROTO__BLOCK_CONSTRUCTION_STAGE__PIPELINE_SETUP_CREATE;
	m.requestedchecksum = &sum;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		m.has_patiencems = of[i].said;
		m.patiencems = of[i].ms;
		assert_int_equal(dtp_write_params(&core, &m, &p, &err), 0);
		assert_int_equal(p.read_ns / NS_PER_MS, of[i].taken_ms);
		write_params_fini(&p);
	}
}

/* A byte now and then of a message that never becomes whole, after @n bytes at once. */
static void drip(size_t n)
{
	const struct fake_opts o = {0};
	const size_t all = peer.out_len;

	peer.out_len = n;
	peer_run(&o, UINT32_MAX);
	for (; !peer.ended; n++) {
		assert_true(n < all);
		fix_run(20);
		if (peer.ended || peer.sending)
			continue;
		peer.sending = true;
		xconn_send(peer.c, &(struct iovec){peer.out + n, 1}, 1, &peer.send_op);
	}
	everything_comes_back();
}

static void a_peer_that_drips_is_closed_at_the_end_of_its_time(void **state)
{
	const uint64_t before_ns = core.waits.read_ns;
	uint64_t t0;

	(void)state;
	core.waits.read_ns = 200 * NS_PER_MS;
	put_write(next_id++, false);
	t0 = clock_mono_ns();
	drip(1);
	assert_true(clock_mono_ns() - t0 >= core.waits.read_ns);
	core.waits.read_ns = before_ns;
}

static void garbage_ends_the_connection(void **state)
{
	(void)state;
	hop_checks = false;
	for (uint64_t seed = 0; seed < 200; seed++) {
		const struct fake_opts o = stream(seed);
		Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
		const int64_t id = next_id++;

		hop.fault = HOP_GOOD;
		if (seed % 2) {
			m.header = header_for(id);
			m.len = 100;
			put_op(DT_READ_BLOCK, &m);
		} else {
			put_write(id, seed % 4);
			put_stream(2000);
		}
		for (uint32_t i = 0; i < 1 + random_below(4); i++)
			peer.out[random_below((uint32_t)peer.out_len)] = (uint8_t)random_below(256);
		peer_run(&o, 1u << 19);
		for (int i = 0; i < 3 && !peer.ended; i++)
			fix_run(2);
		everything_comes_back();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_arrives_however_the_bytes_are_cut),
		cmocka_unit_test(a_connection_may_break_at_every_operation),
		cmocka_unit_test(a_next_hop_may_fail_in_every_way),
		cmocka_unit_test(a_read_may_break_at_every_operation),
		cmocka_unit_test(the_patience_of_a_writer_is_a_second_or_more),
		cmocka_unit_test(a_peer_that_drips_is_closed_at_the_end_of_its_time),
		cmocka_unit_test(garbage_ends_the_connection),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
