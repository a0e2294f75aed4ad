/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: replicas that a full report lacks, or whose node is dead, are forgotten bit by
 * bit, and news that come meanwhile count. A list takes nothing from a block that is being written,
 * but the first one of a node that was started anew, nor from a replica that was finalised while
 * the list was on its way. */
#include "namenode-shim/blocks/blocks_test_fixture.h"

/* A full report of @node, which lists @r, or nothing (NULL). */
static void list_all(struct world *w, int node, const struct block *r, uint32_t state)
{
	blocks_report_begin(&w->bs, w->st[node]);
	if (r)
		blocks_report(&w->bs, w->st[node], r, state, false, w->st[node]->report_seq);
	blocks_report_end(&w->bs, w->st[node]);
	blocks_sweep(&w->bs, UINT32_MAX);
}

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

/* Listed while it was written, with this stamp or an older one, and reported finalized since. */
static void a_replica_finalized_while_its_list_was_on_its_way_is_not_forgotten(void **state)
{
	(void)state;
	for (uint64_t gs = B.gs - 1; gs <= B.gs; gs++) {
		const struct block then = {B.id, gs, B.len - 1};
		struct world w;
		struct blk *b;

		world_init(&w);
		b = add(&w, BLK_COMPLETE);
		report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
		list_all(&w, 0, &then, REPLICA_RBW);
		assert_int_equal(b->nreps, 1);
		assert_int_equal(b->rep[0].state, REPLICA_FINALIZED);
		assert_int_equal(b->rep[0].len, B.len);
		assert_int_equal(blk_live(b), 1);
		assert_int_equal(w.bs.missing, 0);
		list_all(&w, 0, NULL, 0); /* the next list has the last word */
		assert_int_equal(b->nreps, 0);
		assert_int_equal(w.bs.missing, 1);
		world_fini(&w);
	}
}

/* Where the pipeline of a block writes, on nodes that have reported; it may be committed. */
static struct blk *add_written(struct world *w, enum blk_state s)
{
	struct blk *b;

	world_init(w);
	for (int i = 0; i < NODES; i++)
		w->st[i]->reported = true;
	b = add(w, BLK_OPEN);
	blk_set_targets(b, w->st, NULL, REPL);
	if (s == BLK_COMMITTED)
		blk_commit(&w->bs, b, &B);
	return b;
}

/* Nothing was ordered, and the pipeline is as it was. */
static void is_written_still(const struct world *w, const struct blk *b, enum blk_state s)
{
	assert_int_equal(b->state, s);
	assert_int_equal(b->flags, 0);
	assert_int_equal(b->npending, s == BLK_COMMITTED ? REPL : 0);
	assert_int_equal(w->bs.missing, 0);
	assert_int_equal(w->bs.corrupt, 0);
	assert_int_equal(b->open->ntargets, REPL);
	for (int i = 0; i < REPL; i++) {
		assert_ptr_equal(b->open->target[i], w->st[i]);
		assert_int_equal(w->dn[i]->ninval, 0);
	}
}

/* The lists were made before the nodes had anything of it. Node 2 has not reported it yet. */
static void a_list_without_a_block_that_is_written_takes_nothing_from_it(void **state)
{
	(void)state;
	for (enum blk_state s = BLK_OPEN; s <= BLK_COMMITTED; s++) {
		struct world w;
		struct blk *b = add_written(&w, s);

		for (int i = 0; i < 2; i++)
			report(&w, i, B.gs, 0, REPLICA_RBW);
		for (int i = 0; i < REPL; i++)
			list_all(&w, i, NULL, 0);
		assert_int_equal(b->nreps, 2);
		for (int i = 0; i < 2; i++) {
			assert_ptr_equal(b->rep[i].st, w.st[i]);
			assert_int_equal(b->rep[i].state, REPLICA_RBW);
			assert_false(b->rep[i].corrupt);
		}
		is_written_still(&w, b, s);
		for (int i = 0; i < REPL; i++)
			report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
		if (s == BLK_OPEN) {
			list_all(&w, 0, NULL, 0); /* it has ended, and is not committed */
			assert_int_equal(b->nreps, REPL);
			blk_commit(&w.bs, b, &B);
		}
		assert_int_equal(b->state, BLK_COMPLETE);
		assert_int_equal(blk_live(b), REPL);
		list_all(&w, 0, NULL, 0); /* now it must be in it */
		assert_int_equal(blk_live(b), REPL - 1);
		assert_int_equal(b->flags & BLK_UNDER, BLK_UNDER);
		world_fini(&w);
	}
}

/* The node may know of a newer stamp than we do, and of another length. */
static void a_listed_replica_of_a_block_that_is_open_is_as_good_as_its_stamp(void **state)
{
	(void)state;
	for (uint64_t gs = B.gs - 1; gs <= B.gs + 1; gs++)
		for (uint32_t rs = REPLICA_FINALIZED; rs <= REPLICA_RWR; rs++) {
			const struct block r = {B.id, gs, B.len + 1};
			struct world w;
			struct blk *b = add_written(&w, BLK_OPEN);

			report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
			list_all(&w, 0, &r, rs);
			assert_int_equal(b->nreps, 2);
			assert_int_equal(b->rep[1].corrupt, gs < B.gs);
			is_written_still(&w, b, BLK_OPEN);
			world_fini(&w);
		}
}

/* It left the pipeline. When the block is complete elsewhere it is deleted, and not before; and not
 * if the node turns out to have the block after all. */
static void a_listed_replica_of_an_older_stamp_goes_when_the_block_is_complete(void **state)
{
	const struct block older = {B.id, B.gs - 1, B.len};

	(void)state;
	for (uint32_t rs = REPLICA_FINALIZED; rs <= REPLICA_RWR; rs++) {
		struct world w;
		struct blk *b = add_written(&w, BLK_COMMITTED);

		list_all(&w, 0, &older, rs);
		assert_true(b->rep[0].corrupt);
		assert_false(blk_enough_as(b, B.gs, B.len, 1));
		assert_false(blk_enough_as(b, older.gs, older.len, 1));
		is_written_still(&w, b, BLK_COMMITTED);
		report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
		assert_int_equal(b->state, BLK_COMPLETE);
		assert_int_equal(w.dn[0]->ninval, 1);
		assert_int_equal(w.dn[0]->inval[0].gs, older.gs);
		assert_int_equal(w.dn[1]->ninval, 0);
		assert_int_equal(blk_live(b), 1);
		list_all(&w, 0, &B, REPLICA_FINALIZED);
		assert_int_equal(blk_live(b), 2);
		assert_int_equal(b->flags & BLK_CORRUPT, 0);
		world_fini(&w);
	}
}

/* Nothing better was ever reported: its bytes are all that there is. */
static void the_only_replica_is_not_deleted_for_its_older_stamp(void **state)
{
	const struct block older = {B.id, B.gs - 1, B.len};
	struct world w;
	struct blk *b = add_written(&w, BLK_COMMITTED);

	(void)state;
	list_all(&w, 0, &older, REPLICA_FINALIZED);
	blk_close(&w.bs, b);
	blocks_expire_pending(&w.bs, UINT64_MAX);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(b->flags, BLK_MISSING | BLK_UNDER | BLK_CORRUPT);
	assert_int_equal(w.dn[0]->ninval, 0);
	world_fini(&w);
}

/* It is started anew, and lists @r, or nothing (NULL). */
static void restart(struct world *w, int node, const struct block *r)
{
	w->st[node]->reported = false;
	list_all(w, node, r, REPLICA_RWR);
	assert_true(w->st[node]->reported);
}

/* A power cut has taken it before it was on the disk. Node 1 has it; node 2 has begun it anew, and
 * says so while its list is gone through. */
static void what_a_restarted_node_does_not_list_is_gone(void **state)
{
	const struct block written = {B.id, B.gs, 5};

	(void)state;
	for (enum blk_state s = BLK_OPEN; s <= BLK_COMMITTED; s++) {
		struct world w;
		struct blk *b = add_written(&w, s);

		for (int i = 0; i < REPL; i++)
			report(&w, i, B.gs, 0, REPLICA_RBW);
		restart(&w, 1, &written);
		restart(&w, 0, NULL);
		w.st[2]->reported = false;
		blocks_report_begin(&w.bs, w.st[2]);
		report(&w, 2, B.gs, 0, REPLICA_RBW);
		blocks_report_end(&w.bs, w.st[2]);
		report(&w, 0, B.gs, 0, REPLICA_RBW); /* this one, too, a little later */
		blocks_sweep(&w.bs, UINT32_MAX);
		assert_int_equal(b->nreps, REPL);
		restart(&w, 0, NULL);
		assert_int_equal(b->nreps, REPL - 1);
		for (int i = 1; i < REPL; i++)
			assert_ptr_not_equal(b->rep[i - 1].st, w.st[0]);
		is_written_still(&w, b, s);
		list_all(&w, 1, NULL, 0); /* the next list may be older than what it has */
		assert_int_equal(b->nreps, REPL - 1);
		world_fini(&w);
	}
}

/* The second list comes before what the first one lacked is forgotten. */
static void a_list_right_behind_the_first_one_has_its_weight(void **state)
{
	struct world w;
	struct blk *b = add_written(&w, BLK_OPEN);

	(void)state;
	for (int i = 0; i < 2; i++)
		report(&w, i, B.gs, 0, REPLICA_RBW);
	for (int i = 0; i < 2; i++) {
		w.st[i]->reported = false;
		for (int list = 0; list < 2; list++) {
			blocks_report_begin(&w.bs, w.st[i]);
			if (i && list)
				blocks_report(&w.bs, w.st[i], &B, REPLICA_RBW, false,
					      w.st[i]->report_seq);
			blocks_report_end(&w.bs, w.st[i]);
		}
	}
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 1);
	assert_ptr_equal(b->rep[0].st, w.st[1]);
	world_fini(&w);
}

static void a_dead_node_leaves_the_pipeline_of_an_open_block(void **state)
{
	struct world w;
	struct blk *b = add_written(&w, BLK_OPEN);

	(void)state;
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, 0, REPLICA_RBW);
	blocks_forget(&w.bs, w.dn[1], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, REPL - 1);
	assert_int_equal(b->open->ntargets, REPL - 1);
	assert_ptr_equal(b->open->target[0], w.st[0]);
	assert_ptr_equal(b->open->target[1], w.st[2]);
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
		cmocka_unit_test(
			a_replica_finalized_while_its_list_was_on_its_way_is_not_forgotten),
		cmocka_unit_test(a_list_without_a_block_that_is_written_takes_nothing_from_it),
		cmocka_unit_test(a_listed_replica_of_a_block_that_is_open_is_as_good_as_its_stamp),
		cmocka_unit_test(
			a_listed_replica_of_an_older_stamp_goes_when_the_block_is_complete),
		cmocka_unit_test(the_only_replica_is_not_deleted_for_its_older_stamp),
		cmocka_unit_test(what_a_restarted_node_does_not_list_is_gone),
		cmocka_unit_test(a_list_right_behind_the_first_one_has_its_weight),
		cmocka_unit_test(a_dead_node_leaves_the_pipeline_of_an_open_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
