/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a file whose last block was on a disk that was replaced is closed in the end; one
 * whose disk may come back is not. */
#include "common/base/clock.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

static struct storage *disk;

/* The disk of the second node fails: /f is written there, too. */
static void fail_disk(struct world *w)
{
	const struct dn_ident id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);
	struct dn *dn;

	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	disk = dn_storage_add(dn, "DS2", STORAGE_DISK);
	dn->report_ns = 1;
	b->open->pipeline = 2;
	blk_add_lost(b, disk, 0);
	disk->failed = true;
	disk->failed_ns = clock_mono_ns();
}

static void replace_disk(struct world *w)
{
	fail_disk(w);
	w->nn->dns.dead_after_ns = 0;
}

/* It is out of service: its node misses it. */
static void fail_disk_long_ago(struct world *w)
{
	replace_disk(w);
	disk->dn->failed_volumes = 1;
}

/* The node was started with a new one instead of it; the NameNode was, too. */
static void start_without_disk(struct world *w)
{
	replace_disk(w);
	snprintf(disk->id, sizeof(disk->id), "DS3");
	disk->failed = false;
	disk->reported = true;
}

static void mend_disk(struct world *w)
{
	replace_disk(w);
	disk->failed = false;
}

static void replace_disk_of_a_node_that_is_away(struct world *w)
{
	replace_disk(w);
	disk->dn->alive = false;
}

static void replace_disk_before_a_report(struct world *w)
{
	replace_disk(w);
	(void)dn_storage_add(disk->dn, "DS4", STORAGE_DISK);
}

static const struct {
	void (*happens)(struct world *w);
	bool gone;
} replaced[] = {{replace_disk, true},
		{start_without_disk, true},
		{fail_disk_long_ago, false},
		{fail_disk, false},
		{mend_disk, false},
		{replace_disk_of_a_node_that_is_away, false},
		{replace_disk_before_a_report, false}};

static void a_disk_that_was_replaced_is_not_waited_for(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++) {
		b = write_and_lose(&w, &r, 3600000);
		on_writer(&w, replaced[i].happens);
		call_in_turn(&w, 1, "recoverLease", &r.recover);
		assert_false(calls[1].result);
		say_nobody_has_it(&w, &r, b, 2);
		if ((calls[2].rc == 0) != replaced[i].gone)
			fail_msg("row %zu", i);
		if (replaced[i].gone) {
			is_closed_and_missing(&w, b);
		} else {
			nn_stop(w.nn);
			is_open(&w);
			world_fini(&w);
		}
	}
}

/* Nothing of the last block was synced, and each disk of its pipeline was replaced. */
static void replace_all_disks(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	blk_set_targets(b, NULL, NULL, 0);
	replace_disk(w);
	b->open->pipeline = 1;
	blk_add_lost(b, disk, 0);
}

static void an_unsynced_block_whose_disks_were_replaced_is_dropped(void **state)
{
	struct recovered r;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, 0);
	on_writer(&w, replace_all_disks);
	w.nn->set.recovery_ms = 0;
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	assert_false(calls[2].result);
	call_in_turn(&w, 3, "recoverLease", &r.recover);
	assert_true(calls[3].result);
	assert_int_equal(read_file(&w)->nblocks, 1);
	nn_stop(w.nn);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_disk_that_was_replaced_is_not_waited_for),
		cmocka_unit_test(an_unsynced_block_whose_disks_were_replaced_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
