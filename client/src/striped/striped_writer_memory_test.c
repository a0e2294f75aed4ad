/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a unit whose packets get no memory for a while waits; when that is too long and
 * RDMA is required the call fails, and nothing is lost by it. */
#include "client/src/striped/striped_writer_test_fixture.h"

static struct striped_writer *begin_dry(struct dfs *fs, enum rdma_mode mode)
{
	struct striped_opts o = {
		.file_id = 7, .block_size = BLOCK, .bpc = 512, .crc_type = CRC_CRC32C};
	struct striped_writer *w;
	struct err err = ERR_INIT;

	*fs = (struct dfs){.set = {.packet_size = 1 << 16,
				   .socket_timeout_ms = 60000,
				   .exclude_ms = 600000,
				   .rdma = mode,
				   .rdma_wait_ms = 20000}};
	begin(0, NEVER);
	packet_pool_init(&fs->packets);
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &o.policy, &err), 0);
	assert_int_equal(striped_writer_new(fs, "/f", &o, &w, &err), 0);
	return w;
}

static void end_dry(struct striped_writer *w, struct dfs *fs, uint64_t len, uint32_t lost)
{
	struct err err = ERR_INIT;

	if (output_close(&w->f, &err) < 0)
		fail_msg("%s", err.text);
	output_free(&w->f);
	packet_pool_fini(&fs->packets);
	judge(len, lost);
}

static void a_unit_without_memory_waits(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_REQUIRE);
	for (uint64_t at = 0; at < GROUP + ROW; at += CELL) {
		nn.dry_sends = 40;
		assert_int_equal(output_write(&w->f, content + at, CELL, &err), CELL);
	}
	end_dry(w, &fs, GROUP + ROW, 0);
}

/* Each wait is too long, wherever it is, and what failed is done again. */
static void a_wait_for_memory_that_fails_loses_nothing(void **state)
{
	const uint32_t piece = 4096; /* packets end with one: either it is taken or not */
	struct striped_writer *w;
	struct err err = ERR_INIT;
	unsigned failed[2] = {0, 0}, tries = 0;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_REQUIRE);
	fs.set.rdma_wait_ms = 2;
	for (uint64_t at = 0; at < 2 * GROUP;) {
		const bool flush = ++tries % 300 == 0;
		int rc;

		nn.dry = 1u << tries / 20 % (UNITS + 1); /* now this one, now that one, now none */
		err_reset(&err);
		rc = flush ? output_flush(&w->f, 0, &err)
			   : (int)output_write(&w->f, content + at, piece, &err);
		if (rc < 0) {
			assert_int_equal(rc, -ENOBUFS);
			assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
			failed[flush]++;
		} else if (!flush) {
			at += piece;
		}
	}
	assert_true(failed[0] && failed[1]);
	nn.dry = 0;
	end_dry(w, &fs, 2 * GROUP, 0);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

/* The wait is over by then, but nothing has failed. */
static void memory_that_comes_last_of_all_counts(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_AUTO);
	fs.set.rdma_wait_ms = 20;
	assert_int_equal(output_write(&w->f, content, ROW, &err), ROW);
	nn.dry = 1u << 1;
	nn.dry_once = true;
	assert_int_equal(output_write(&w->f, content + ROW, GROUP - ROW, &err), GROUP - ROW);
	assert_int_equal(nn.dry, 0);
	end_dry(w, &fs, GROUP, 0);
}

/* Where TCP is allowed the unit is left out rather than the file lost; its node has done nothing.
 */
static void a_unit_without_memory_is_left_out_where_rdma_need_not_be(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_AUTO);
	fs.set.rdma_wait_ms = 2;
	nn.dry = 1u << 1;
	assert_int_equal(output_write(&w->f, content, GROUP, &err), GROUP);
	nn.dry = 0;
	assert_int_equal(output_write(&w->f, content + GROUP, ROW, &err), ROW);
	assert_int_equal(nn.excluded, 0);
	end_dry(w, &fs, GROUP + ROW, 1u << 1);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

/* So is one whose RDMA connection breaks, where TCP does as well: its node is to be tried by it. */
static void a_unit_whose_connection_breaks_blames_no_node(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	for (unsigned broke = 0; broke < 2; broke++) {
		w = begin_dry(&fs, RDMA_AUTO);
		nn.fail = 1u << 1;
		nn.when = AT_PACKET;
		for (uint64_t at = 0; at < GROUP + ROW; at += 512) {
			assert_int_equal(output_write(&w->f, content + at, 512, &err), 512);
			if (w->unit[1].pipe.ws) /* until its second packet */
				w->unit[1].pipe.ws->broke = broke;
		}
		assert_int_equal(nn.excluded > 0, !broke);
		end_dry(w, &fs, GROUP + ROW, 1u << 1);
	}
}

/* The node is asked again, by TCP. If it refuses, as it has begun the unit the first time, the unit
 * is lost, and nobody is to blame. */
static void a_unit_whose_opening_is_not_heard_blames_no_node(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	for (unsigned begun = 0; begun < 2; begun++) {
		w = begin_dry(&fs, RDMA_AUTO);
		nn.lost_opens = 1u << 1;
		nn.begun = begun;
		assert_int_equal(output_write(&w->f, content, GROUP, &err), GROUP);
		nn.lost_opens = 0;
		assert_int_equal(output_write(&w->f, content + GROUP, ROW, &err), ROW);
		assert_int_equal(nn.excluded, 0);
		end_dry(w, &fs, GROUP + ROW, begun << 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_unit_without_memory_waits),
		cmocka_unit_test(a_wait_for_memory_that_fails_loses_nothing),
		cmocka_unit_test(memory_that_comes_last_of_all_counts),
		cmocka_unit_test(a_unit_without_memory_is_left_out_where_rdma_need_not_be),
		cmocka_unit_test(a_unit_whose_connection_breaks_blames_no_node),
		cmocka_unit_test(a_unit_whose_opening_is_not_heard_blames_no_node),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
