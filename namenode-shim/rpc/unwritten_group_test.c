/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a last group whose units are too few, or of an older stamp than its writer died
 * with, is dropped when a recovery could do nothing with it, and not while a node that may have
 * more is away. Nothing of it was acknowledged. */
#include "common/erasure/policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

static const struct unwritten {
	unsigned good, older, away; /* units on a node each */
	bool dropped;
} * given;

static void report_units(struct world *w)
{
	for (unsigned i = 0; i < given->good + given->older + given->away; i++) {
		const struct dn_ident id = {(char[]){'n', (char)('0' + i), 0},
					    "127.0.0.1",
					    "host",
					    "3.4.2",
					    9000 + i,
					    1,
					    2,
					    0};
		const bool older = i >= given->good && i < given->good + given->older;
		const struct block unit = {ec_id_of(w->block.id, i), w->block.gs - older, 5};
		struct dn *dn;

		assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
		dn->alive = true;
		blocks_report(&w->nn->blocks, dn_storage_add(dn, id.uuid, STORAGE_DISK), &unit,
			      REPLICA_RBW, false, 0);
		if (i >= given->good + given->older)
			nn_dn_lost(w->nn, dn, "test");
	}
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
}

static void recover(struct world *w)
{
	static struct call_stat stat; /* the writer adds to it after the last look at it, too */

	stat.calls = 0;
	submit(w, &file_recover_method, w->file, &stat);
	wait_for_calls(&stat, 1);
}

static void a_group_of_which_nothing_can_be_made_is_dropped(void **state)
{
	static const struct unwritten cases[] = {
		{3, 0, 0, false}, {2, 0, 0, true},  {0, 5, 0, true},  {2, 3, 0, true},
		{2, 0, 1, false}, {2, 2, 1, false}, {3, 2, 0, false},
	};

	(void)state;
	file_policy = ec_policy_by_id(EC_ID_RS_3_2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;

		given = &cases[i];
		world_init(&w, true);
		w.nn->set.redundancy_delay_ms = 0;
		w.nn->set.recovery_ms = 0; /* each call begins it anew */
		assert_int_equal(nn_start(w.nn), 0);
		on_writer(&w, report_units);
		recover(&w); /* it is tried */
		assert_int_equal(read_file(&w)->nblocks, 1);
		w.nn->dns.dead_after_ns = UINT64_MAX; /* others may register still */
		recover(&w);
		assert_int_equal(read_file(&w)->nblocks, 1);
		w.nn->dns.dead_after_ns = 0;
		recover(&w);
		nn_stop(w.nn);
		assert_int_equal(read_file(&w)->nblocks, cases[i].dropped ? 0 : 1);
		assert_int_equal(!read_file(&w)->client[0], cases[i].dropped);
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_of_which_nothing_can_be_made_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
