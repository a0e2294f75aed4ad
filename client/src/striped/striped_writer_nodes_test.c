/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: one more unit than m that fails is an error that names them all; with too few
 * nodes units are left out, and nodes that failed or hang are tried again and waited for as often
 * as the configuration says. */
#include <sys/mman.h>

#include "client/src/striped/striped_writer_test_fixture.h"
#include "common/base/log.h"

static void one_more_is_an_error_that_names_them(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (enum when when = AT_OPEN; when <= AT_LAST; when++) {
		begin(1 << 0 | 1 << 1 | 1 << 4, when);
		err_reset(&err);
		assert_int_equal(put_patiently(GROUP + 5, 0, 200, &err), -EIO);
		assert_false(nn.complete);
		assert_non_null(
			strstr(err.text,
			       "3 units of a block group failed, which is more than the 2 parity"));
		assert_non_null(strstr(err.text, "unit 0 (10.0.0.1:1: "));
		assert_non_null(strstr(err.text, "unit 1 (10.0.0.1:2: "));
		assert_non_null(strstr(err.text, "unit 4 (10.0.0.1:5: "));
	}
}

static void too_few_nodes_leave_units_out(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned missing = 1; missing <= M; missing++) {
		begin(0, NEVER);
		nn.nodes = UNITS - missing;
		assert_int_equal(put(ROW + 1, &err), 0);
		judge(ROW + 1, missing == 1 ? 1 << 4 : 3 << 3);
		assert_int_equal(nn.updates[0], 0); /* the NameNode knows */
		assert_int_equal(counted, 1);
	}
	/* and one more fails: the new stamp comes with fewer tokens than units */
	begin(1, AT_PACKET);
	nn.nodes = UNITS - 1;
	assert_int_equal(put(ROW + CELL, &err), 0);
	judge(ROW + CELL, 1 | 1 << 4);
	assert_int_equal(nn.holes[0], 1 | 1 << 4);
	assert_int_equal(nn.ended[0], ROW);
	begin(1, AT_PACKET);
	nn.nodes = UNITS - M;
	assert_int_equal(put_patiently(ROW + CELL, 0, 200, &err), -EIO);
	assert_non_null(strstr(err.text, "unit 3 (no data node for it)"));
	assert_int_equal(counted, 0); /* however often it was begun again: none was written */
	begin(0, NEVER);
	nn.nodes = K - 1;
	err_reset(&err);
	assert_int_equal(put(1, &err), -ENOSPC);
}

static void a_group_without_parity_is_refused_where_that_is_wanted(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	spare_unit = true;
	begin(0, NEVER);
	nn.nodes = UNITS - 1;
	assert_int_equal(put(ROW + 1, &err), 0);
	begin(0, NEVER);
	nn.nodes = K;
	assert_int_equal(put(ROW + 1, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "there are 3 data nodes for a block group of"));
	assert_int_equal(counted, 0);
	/* nodes that failed are waited for, and no group begins without parity meanwhile */
	for (unsigned ms = 200; ms <= 60000; ms += 59800) {
		err_reset(&err);
		begin((1u << M) - 1, AT_PACKET);
		nn.fail_last = 2;
		nn.undo_heals = ms == 200 ? 0 : 3 * UNITS;
		nn.nodes = UNITS;
		assert_int_equal(put_patiently(4 * ROW, 0, ms, &err), ms == 200 ? -ENOSPC : 0);
	}
	assert_true(nn.undone >= 3 * UNITS);
	nn.fail_last = 1;
	judge(4 * ROW, (1u << M) - 1);
	begin((1u << M) - 1, AT_PACKET); /* the NameNode knows them as dead meanwhile */
	nn.fail_last = 1;
	nn.nodes = UNITS;
	nn.undo_leaves = K;
	err_reset(&err);
	assert_int_equal(put_patiently(4 * ROW, 0, 500, &err), -ENOSPC);
	assert_int_equal(nn.nodes, K); /* it was waited */
	err_reset(&err);
	begin((1u << M) - 1, AT_PACKET); /* fewer nodes, and it is no less patient */
	nn.nodes = UNITS;
	nn.undo_leaves = K - 1;
	nn.refusals = 3;
	assert_int_equal(put_patiently(4 * ROW, 0, 60000, &err), 0);
	assert_int_equal(nn.nodes, UNITS);
	judge(4 * ROW, (1u << M) - 1);
	spare_unit = false;
	assert_int_equal(counted, 0);
}

/* A node is back, and without it the next group would be short. */
static void nodes_are_tried_again(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned lost = 1; lost <= M; lost++) {
		begin((1u << lost) - 1, AT_PACKET);
		nn.nodes = UNITS;
		assert_int_equal(put(GROUP + ROW, &err), 0);
		judge(GROUP + ROW, (1u << lost) - 1); /* the second group is whole */
		assert_int_equal(nn.excluded, 0);
		begin((1u << lost) - 1, AT_PACKET);
		nn.nodes = UNITS;
		assert_int_equal(put_flushed(ROW + CELL, 20, &err), 0);
		judge(ROW + CELL, (1u << lost) - 1);
	}
}

/* Its connection takes what is sent, heartbeats too, and nothing comes back: after the socket
 * timeout it is lost. */
static void a_hung_node_is_waited_for_in_vain(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.hang = 1 << 1 | 1 << 4;
	assert_int_equal(put_patiently(ROW + 5, 0, 100, &err), 0);
	judge(ROW + 5, 1 << 1 | 1 << 4);
	assert_int_equal(nn.holes[0], 1 << 1 | 1 << 4);
}

/* More units fail than the group can lose, and some time later the nodes are back: nothing is lost
 * as long as the bytes are in memory. A whole row came before, and was told. */
static void a_group_is_begun_again(void **state)
{
	static const uint64_t sizes[] = {1,     CELL + 5,       ROW, ROW + CELL + 100,
					 GROUP, GROUP + ROW + 7};
	const uint32_t fail = 1 << 0 | 1 << 1 | 1 << 4;
	struct err err = ERR_INIT;

	(void)state;
	for (enum when when = AT_OPEN; when <= AT_LAST; when++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (unsigned flush = 0; flush <= 11; flush += 11) {
				begin(fail, when);
				/* once not at once */
				nn.undo_heals = i == 1 && !flush ? 2 * UNITS : 1;
				nn.nodes = UNITS;
				err_reset(&err);
				assert_int_equal(put_flushed(sizes[i], flush, &err), 0);
				/* a short group has no third one that fails */
				judge(sizes[i], nn.undone ? 0 : fail);
				assert_true(nn.undone || flush || sizes[i] < ROW);
			}
	begin(1, AT_PACKET); /* others while these come to the new stamp, and at each attempt */
	nn.reopen_fail = 1 << 1 | 1 << 2;
	assert_int_equal(put_patiently(GROUP, 0, 200, &err), -EIO);
	assert_int_equal(nn.updates[0], 0);
}

/* It may last a minute, and the log says so while it lasts. */
static void a_wait_for_nodes_is_told_once(void **state)
{
	const int kept = dup(STDERR_FILENO), log = memfd_create("log", 0);
	struct err err = ERR_INIT;
	char text[2048] = "";
	int rc;

	(void)state;
	begin(1 << 0 | 1 << 1 | 1 << 4, AT_PACKET);
	nn.nodes = UNITS;
	nn.log = log;
	log_init("striped_writer_test", LOG_WARN);
	assert_true(dup2(log, STDERR_FILENO) >= 0);
	rc = put_patiently(ROW, 0, 60000, &err);
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	assert_int_equal(rc, 0);
	judge(ROW, 0);
	assert_true(pread(log, text, sizeof(text) - 1, 0) > 0);
	assert_non_null(strstr(text, "op=group_again path=/f: waiting for data nodes, for "));
	assert_null(strstr(strstr(text, "op=group_again") + 1, "op=group_again"));
	close(kept);
	close(log);
}

static Hd__DatanodeInfoProto *new_node(unsigned node)
{
	Hd__DatanodeInfoProto *ret;
	struct fake_nodes f;

	memset(&f, 0, sizeof(f));
	hd__located_block_proto__init(&f.lb);
	add_node(&f, 0, node);
	answer(&hd__datanode_info_proto__descriptor, &f.info[0], &ret);
	return ret;
}

/* One that goes on failing is tried less and less often, and one that is hung still less; after the
 * expiry interval nothing is remembered. */
static void nodes_that_fail_again_wait(void **state)
{
	const uint64_t w = BLAMED_WAIT_NS, t = 1000 * NS_PER_S;
	struct suspect_nodes b = {.node = NULL};

	(void)state;
	assert_false(suspect_nodes_try_again(&b, t));
	assert_int_equal(suspect_nodes_add(&b, new_node(1), false, t), 0);
	assert_int_equal(b.n_out, 1);
	assert_true(suspect_nodes_try_again(&b, t));
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(suspect_nodes_add(&b, new_node(1), false, t), 0);
		assert_false(suspect_nodes_try_again(&b, t + (w << i) - 1));
		assert_int_equal(b.n_out, 1);
		assert_true(suspect_nodes_try_again(&b, t + (w << i)));
	}
	assert_int_equal(suspect_nodes_add(&b, new_node(2), true, t + 1), 0);
	assert_false(suspect_nodes_try_again(&b, t + 32 * w));
	assert_true(suspect_nodes_try_again(&b, t + 1 + 32 * w));
	assert_int_equal(suspect_nodes_add(&b, new_node(2), false, t + 2), 0);
	suspect_nodes_expire(&b, 60 * NS_PER_S, t + 60 * NS_PER_S);
	assert_int_equal(b.count, 1); /* node 1 is forgotten */
	assert_int_equal(b.n_out, 1);
	suspect_nodes_expire(&b, 60 * NS_PER_S, t + 2 + 60 * NS_PER_S);
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < BLAMED_MAX + 5; i++)
		assert_int_equal(suspect_nodes_add(&b, new_node(i), false, t), 0);
	assert_int_equal(b.n_out, BLAMED_MAX);
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(suspect_nodes_add(&b, new_node(i), false, t), 0);
	suspect_nodes_doubt(&b);
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 2); /* that one first, */
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 0); /* and then all */
	suspect_nodes_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_more_is_an_error_that_names_them),
		cmocka_unit_test(nodes_are_tried_again),
		cmocka_unit_test(a_group_is_begun_again),
		cmocka_unit_test(a_wait_for_nodes_is_told_once),
		cmocka_unit_test(nodes_that_fail_again_wait),
		cmocka_unit_test(a_hung_node_is_waited_for_in_vain),
		cmocka_unit_test(too_few_nodes_leave_units_out),
		cmocka_unit_test(a_group_without_parity_is_refused_where_that_is_wanted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
