/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: replicas that a full report lacks, or whose node is dead, are forgotten bit by
 * bit, and news that come meanwhile count. */
#include "namenode-shim/blocks/blocks_test_fixture.h"

static void a_full_report_forgets_what_it_does_not_list(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_begin(&w.bs, w.st[0]);
	blocks_report_end(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 0);
	assert_int_equal(w.bs.missing, 1);
	assert_int_equal(w.st[0]->nblocks, 0);
	world_fini(&w);
}

/* Two blocks on a node that dies, gone through one at a time. */
static void what_a_dead_node_has_does_not_count_before_it_is_forgotten(void **state)
{
	const struct block second = {B.id + 1, B.gs, B.len};
	struct world w;
	struct blk *a, *b;

	(void)state;
	world_init(&w);
	a = add(&w, BLK_COMPLETE);
	b = blocks_add(&w.bs, &second, 17000, 1, BLK_COMPLETE);
	for (int i = 0; i < 2; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report(&w.bs, w.st[0], &second, REPLICA_FINALIZED, false, 0);
	blocks_forget(&w.bs, w.dn[0], NULL);
	assert_int_equal(blk_live(a), 1);
	assert_int_equal(blk_live(b), 0);
	assert_false(blk_enough_as(b, B.gs, B.len, 1));
	blocks_sweep(&w.bs, 1);
	assert_int_equal(a->nreps, 1);
	assert_int_equal(b->nreps, 1); /* as yet */
	/* in the middle: the rest, and the first ones in a second walk */
	blocks_forget(&w.bs, w.dn[1], NULL);
	blocks_sweep(&w.bs, 1);
	assert_int_equal(b->nreps, 0);
	assert_int_equal(w.bs.missing, 1);
	assert_true(blocks_must_sweep(&w.bs));
	blocks_remove(&w.bs, b);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(a->nreps, 0);
	assert_int_equal(w.bs.missing, 1);
	assert_false(blocks_must_sweep(&w.bs));
	world_fini(&w);
}

static void what_a_node_that_is_back_has_is_kept(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_forget(&w.bs, w.dn[0], NULL);
	blk_recheck(&w.bs, b);
	assert_true(b->flags & BLK_UNDER);
	blocks_keep(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, REPL);
	assert_false(b->flags & BLK_UNDER);
	world_fini(&w);
}

/* It was received behind the list, and is not in it. */
static void news_that_come_while_a_list_is_taken_count(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blocks_report_begin(&w.bs, w.st[0]);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_end(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 1);
	world_fini(&w);
}

/* What a list lacked is forgotten bit by bit: a replica that comes meanwhile, new or from another
 * storage, is none of it. */
static void news_that_come_while_unlisted_replicas_are_forgotten_count(void **state)
{
	const struct block lost = {B.id + 1, B.gs, B.len}, moved = {B.id + 2, B.gs, B.len};
	struct storage *other;
	struct blk *b, *gone, *c;
	struct world w;

	(void)state;
	world_init(&w);
	other = dn_storage_add(w.dn[0], "DS-other", STORAGE_SSD);
	gone = blocks_add(&w.bs, &lost, 17000, 1, BLK_COMPLETE);
	c = blocks_add(&w.bs, &moved, 17000, 1, BLK_COMPLETE);
	b = blocks_add(&w.bs, &B, 17000, 1, BLK_COMPLETE);
	blocks_report(&w.bs, w.st[0], &lost, REPLICA_FINALIZED, false, 0);
	blocks_report(&w.bs, other, &moved, REPLICA_FINALIZED, false, 0);
	blocks_report_begin(&w.bs, w.st[0]);
	blocks_report_end(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, 1);
	assert_int_equal(gone->nreps, 0);
	assert_true(blocks_must_sweep(&w.bs));
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 0);
	blocks_report(&w.bs, w.st[0], &moved, REPLICA_FINALIZED, false, 0);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 1);
	assert_int_equal(c->nreps, 1);
	assert_int_equal(w.bs.missing, 1);
	blocks_report_begin(&w.bs, w.st[0]); /* the next list has the last word */
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, w.st[0]->report_seq);
	blocks_report_end(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 1);
	assert_int_equal(c->nreps, 0);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_report_forgets_what_it_does_not_list),
		cmocka_unit_test(what_a_dead_node_has_does_not_count_before_it_is_forgotten),
		cmocka_unit_test(what_a_node_that_is_back_has_is_kept),
		cmocka_unit_test(news_that_come_while_a_list_is_taken_count),
		cmocka_unit_test(news_that_come_while_unlisted_replicas_are_forgotten_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
