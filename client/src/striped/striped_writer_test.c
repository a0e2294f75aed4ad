/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever is written, the units that are left are as long as the geometry says,
 * hold the bytes that belong there and fit together; up to m units may fail anywhere (while they
 * are opened, in a packet, at the last packet, while the others come to a new stamp) and the
 * NameNode is told of them with an empty place for each. What the NameNode refuses loses
 * nothing. */
#include "client/src/striped/striped_writer_test_fixture.h"

static void units_are_as_the_geometry_says(void **state)
{
	static const uint64_t sizes[] = {
		0,         1,        511,       512,       CELL - 1,      CELL,
		CELL + 1,  2 * CELL, ROW - 1,   ROW,       ROW + 1,       ROW + CELL / 2,
		GROUP - 1, GROUP,    GROUP + 1, 2 * GROUP, 2 * GROUP + 7, SIZE_MAX_HERE};
	struct err err = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin(0, NEVER);
		assert_int_equal(put(sizes[i], &err), 0);
		judge(sizes[i], 0);
		assert_int_equal(nn.groups, (sizes[i] + GROUP - 1) / GROUP); /* none ends early */
		assert_int_equal(nn.updates[0], 0);
	}
}

static void up_to_m_units_may_fail(void **state)
{
	static const uint64_t sizes[] = {ROW + CELL + 100, GROUP, SIZE_MAX_HERE};
	struct err err = ERR_INIT;

	(void)state;
	for (uint32_t fail = 1; fail < 1u << UNITS; fail++) {
		if (__builtin_popcount(fail) > (int)M)
			continue;
		for (enum when when = AT_OPEN; when <= AT_LAST; when++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
				begin(fail, when);
				err_reset(&err);
				assert_int_equal(put(sizes[i], &err), 0);
				judge(sizes[i], fail);
				if (nn.groups > 1) { /* the next group is elsewhere */
					assert_int_equal(nn.excluded, fail);
					continue;
				}
				assert_int_equal(nn.holes[0], when == AT_LAST ? 0 : fail);
				assert_int_equal(nn.updates[0] > 0, when != AT_LAST);
				for (unsigned u = 0; when != AT_LAST && u < UNITS; u++)
					assert_int_equal(nn.unit[0][u].stamp == nn.stamp,
							 !(fail & 1u << u));
			}
	}
}

static void a_unit_may_fail_while_others_come_to_a_new_stamp(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned a = 0; a < UNITS; a++)
		for (unsigned b = 0; b < UNITS; b++) {
			if (a == b)
				continue;
			begin(1u << a, AT_PACKET);
			nn.reopen_fail = 1u << b;
			assert_int_equal(put(ROW + 5000, &err), 0);
			judge(ROW + 5000, 1u << a | 1u << b);
			assert_int_equal(nn.holes[0], 1u << a | 1u << b);
			assert_int_equal(nn.updates[0], 1);
			assert_int_equal(nn.stamp_before, 1003); /* two were asked for */
			/* no unit is left to lose, and there are other nodes */
			assert_int_equal(nn.ended[0], ROW);
			assert_int_equal(nn.groups, 2);
		}
}

/* The tokens of the stamp before are gone then. */
static void a_stamp_without_tokens_for_all_leaves_no_unit_an_old_one(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned a = 0; a < UNITS; a++) {
		begin(1u << a, AT_PACKET);
		nn.reopen_fail = 1u << (a + 1) % UNITS;
		nn.few_tokens = true;
		assert_int_equal(put(ROW + 5000, &err), 0);
		judge(ROW + 5000, 1u << a | 1u << (a + 1) % UNITS);
		assert_int_equal(nn.stamp_before, 1003);
	}
}

static void a_flush_ends_the_group_and_commits_it(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned flush = 1; flush < 4; flush++)
		for (uint64_t len = 1; len < 500000; len = len * 5 + 1) {
			begin(0, NEVER);
			assert_int_equal(put_flushed(len, flush, &err), 0);
			judge(len, 0);
		}
	begin(1 << 1 | 1 << 4, AT_PACKET); /* with units lost before it */
	assert_int_equal(put_flushed(GROUP - 5, 13, &err), 0);
	judge(GROUP - 5, 1 << 1 | 1 << 4);
}

static void who_lost_the_lease_closes_nothing(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.taken = true;
	assert_int_equal(put_flushed(100, 1, &err), -ESTALE);
	assert_true(nn.parked);
	assert_false(nn.released);
}

/* The file is read-only, say: recoverLease is refused, for good, and that is told at once. */
static void who_may_not_write_the_file_is_told_at_once(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.no_right = true;
	assert_int_equal(put_flushed(100, 1, &err), -EACCES);
	assert_int_equal(nn.asked_release, 1);
}

/* A router sends a request by inode to its default name space, where the number is another file's.
 * So the path must do, as long as our file has it; likewise where it is not known whether that is a
 * router. */
static void behind_a_router_the_lease_of_no_other_file_is_ended(void **state)
{
	static const int servers[] = {1, -ETIMEDOUT};
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		for (uint64_t at_path = 6; at_path <= 8; at_path++) {
			begin(0, NEVER);
			nn.router = servers[i];
			nn.at_path = at_path == 6 ? 0 : at_path;
			assert_int_equal(put_flushed(100, 1, &err), at_path == 7 ? 0 : -ESTALE);
			assert_true(nn.parked && nn.released == (at_path == 7));
			if (at_path == 7)
				judge(100, 0);
		}
}

/* A quota, say, allows one group: what a flush that failed has finished is kept, more can be
 * written when the quota is raised, and close() commits it all. */
static void a_refused_group_loses_nothing(void **state)
{
	static struct dfs fs = {.set = {.packet_size = 1 << 16,
					.socket_timeout_ms = 60000,
					.exclude_ms = 600000,
					.rdma = RDMA_OFF}};
	struct striped_opts o = {
		.file_id = 7, .block_size = BLOCK, .bpc = 512, .crc_type = CRC_CRC32C};
	struct striped_writer *w;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &o.policy, &err), 0);
	packet_pool_init(&fs.packets);
	for (unsigned raised = 0; raised < 2; raised++) {
		begin(0, NEVER);
		nn.limit = 1;
		assert_int_equal(striped_writer_new(&fs, "/f", &o, &w, &err), 0);
		assert_int_equal(output_write(&w->f, content, 5000, &err), 5000);
		assert_int_equal(output_flush(&w->f, 0, &err), -EDQUOT);
		assert_int_equal(output_write(&w->f, content + 5000, 5000, &err), -EDQUOT);
		if (raised) {
			nn.limit = 0;
			assert_int_equal(output_flush(&w->f, 0, &err), 0);
			assert_int_equal(sum_of_groups(), 5000);
			assert_int_equal(output_write(&w->f, content + 5000, 5000, &err), 5000);
		}
		err_reset(&err);
		assert_int_equal(output_close(&w->f, &err), 0);
		output_free(&w->f);
		judge(raised ? 10000 : 5000, 0);
	}
	begin(0, NEVER); /* half of a write: that is told again, and what is there is kept */
	nn.limit = 1;
	assert_int_equal(striped_writer_new(&fs, "/f", &o, &w, &err), 0);
	assert_int_equal(output_write(&w->f, content, GROUP + 1, &err), -EDQUOT);
	assert_int_equal(output_write(&w->f, content, 1, &err), -EDQUOT);
	assert_int_equal(output_close(&w->f, &err), -EDQUOT);
	output_free(&w->f);
	judge(GROUP, 0);
	packet_pool_fini(&fs.packets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_are_as_the_geometry_says),
		cmocka_unit_test(up_to_m_units_may_fail),
		cmocka_unit_test(a_unit_may_fail_while_others_come_to_a_new_stamp),
		cmocka_unit_test(a_stamp_without_tokens_for_all_leaves_no_unit_an_old_one),
		cmocka_unit_test(a_flush_ends_the_group_and_commits_it),
		cmocka_unit_test(who_lost_the_lease_closes_nothing),
		cmocka_unit_test(who_may_not_write_the_file_is_told_at_once),
		cmocka_unit_test(behind_a_router_the_lease_of_no_other_file_is_ended),
		cmocka_unit_test(a_refused_group_loses_nothing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
