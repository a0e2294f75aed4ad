/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the rule for reported replicas (hdfs-wire section 4, "NN treatment"), for every
 * state of the block, state of the replica and relation of the stamps; a block goes from state to
 * state as its reports and its file want it; counts agree with a recount after any sequence of
 * reports. */
#include <stdlib.h>

#include "namenode-shim/blocks/blocks_test_fixture.h"

/* What the sheet says, written down a second time. */
static bool expect_corrupt(enum blk_state s, uint64_t gs, uint64_t len, uint32_t state)
{
	const bool older = gs < B.gs, other = gs != B.gs;

	if (s == BLK_OPEN)
		return older;
	if (state == REPLICA_FINALIZED)
		return other || len != B.len;
	if (s == BLK_COMMITTED)
		return older;
	return other || state == REPLICA_RWR;
}

static void every_reported_replica_is_judged_by_the_rule(void **state)
{
	(void)state;
	for (int s = BLK_OPEN; s <= BLK_COMPLETE; s++)
		for (uint64_t gs = B.gs - 1; gs <= B.gs + 1; gs++)
			for (uint64_t len = B.len - 1; len <= B.len + 1; len++)
				for (uint32_t rs = REPLICA_FINALIZED; rs <= REPLICA_RWR; rs++) {
					struct world w;
					struct blk *b;
					bool ignored = s == BLK_COMPLETE && rs == REPLICA_RBW &&
						       gs == B.gs;

					world_init(&w);
					b = add(&w, (enum blk_state)s);
					report(&w, 0, gs, len, rs);
					assert_int_equal(b->nreps, ignored ? 0 : 1);
					if (!ignored)
						assert_int_equal(b->rep[0].corrupt,
								 expect_corrupt((enum blk_state)s,
										gs, len, rs));
					world_fini(&w);
				}
}

/* News of a replica being written may come after the news that it is finalised. */
static void late_news_do_not_take_back_that_a_replica_is_finalised(void **state)
{
	(void)state;
	for (int s = BLK_OPEN; s <= BLK_COMPLETE; s++) {
		struct world w;
		struct blk *b;

		world_init(&w);
		b = add(&w, (enum blk_state)s);
		report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
		report(&w, 0, B.gs, 0, REPLICA_RBW);
		assert_int_equal(b->nreps, 1);
		assert_int_equal(b->rep[0].state, REPLICA_FINALIZED);
		assert_int_equal(b->rep[0].len, B.len);
		report(&w, 0, B.gs + 1, 0, REPLICA_RBW); /* an append: these are new */
		assert_int_equal(b->rep[0].state, REPLICA_RBW);
		world_fini(&w);
	}
}

/* A list of all replicas can be older than the news that came before it. The node that made it has
 * had its pipeline mended since: no replica goes back to an older stamp. */
static void late_news_of_an_older_stamp_do_not_take_it_back_either(void **state)
{
	(void)state;
	for (int s = BLK_OPEN; s <= BLK_COMPLETE; s++) {
		struct world w;
		struct blk *b;

		world_init(&w);
		b = add(&w, (enum blk_state)s);
		report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
		report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
		report(&w, 0, B.gs - 1, B.len, REPLICA_RBW);
		assert_int_equal(b->nreps, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(b->rep[i].state, REPLICA_FINALIZED);
			assert_int_equal(b->rep[i].gs, B.gs);
			assert_false(b->rep[i].corrupt);
			assert_int_equal(w.dn[i]->ninval, 0);
		}
		assert_int_equal(blk_live(b), 2);
		/* It was started again, and found this on its disk. */
		report(&w, 0, B.gs - 1, B.len, REPLICA_RWR);
		assert_int_equal(b->rep[0].state, REPLICA_RWR);
		assert_true(b->rep[0].corrupt);
		world_fini(&w);
	}
}

/* In the order of time: only the end of a replica completes its block, and ends the wait for it. */
static void a_replica_counts_from_when_it_is_finalised_on(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	blk_set_targets(b, w.st, NULL, 1);
	report(&w, 0, B.gs, 0, REPLICA_RBW);
	report(&w, 0, B.gs, B.len, REPLICA_RBW);
	blk_commit(&w.bs, b, &B);
	report(&w, 0, B.gs, B.len, REPLICA_RBW);
	assert_int_equal(b->state, BLK_COMMITTED);
	assert_int_equal(b->npending, 1);
	assert_int_equal(blk_live(b), 0);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(b->state, BLK_COMPLETE);
		assert_int_equal(b->npending, 0);
		assert_int_equal(b->nreps, 1);
		assert_int_equal(blk_live(b), 1);
		assert_int_equal(w.bs.missing, 0);
		report(&w, 0, B.gs, 0, REPLICA_RBW); /* and late once more */
	}
	world_fini(&w);
}

/* Of a block that its client has not committed: what counts is what it is about to say of it. */
static void an_open_block_has_replicas_enough_as_it_is_to_be_committed(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	report(&w, 0, B.gs, B.len - 1, REPLICA_FINALIZED);
	report(&w, 1, B.gs + 1, B.len, REPLICA_FINALIZED);
	report(&w, 2, B.gs, B.len, REPLICA_RBW);
	for (int i = 0; i < 3; i++)
		assert_false(b->rep[i].corrupt);
	assert_false(blk_enough_as(b, B.gs, B.len, 1));
	report(&w, 3, B.gs, B.len, REPLICA_FINALIZED);
	assert_true(blk_enough_as(b, B.gs, B.len, 1));
	assert_false(blk_enough_as(b, B.gs, B.len, 2));
	world_fini(&w);
}

static void a_report_of_damage_is_about_one_replica_of_one_stamp(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &(struct block){B.id, B.gs - 1, B.len}, w.dn[1], NULL, false);
	for (int i = 0; i < REPL; i++)
		assert_false(b->rep[i].corrupt);
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL, false);
	for (int i = 0; i < REPL; i++)
		assert_int_equal(b->rep[i].corrupt, b->rep[i].st == w.st[1]);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED); /* the node does not know */
	assert_int_equal(blk_live(b), REPL - 1);
	world_fini(&w);
}

/* On dead and leaving nodes there is none that counts; those that leave are read, those that are
 * dead are not. */
static void replicas_count_on_nodes_that_stay(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(blk_live(b), 3);
	w.dn[0]->admin = DN_DECOMMISSIONING;
	assert_int_equal(blk_live(b), 2);
	assert_int_equal(blk_readable(b), 3);
	w.dn[1]->alive = false;
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(blk_readable(b), 2);
	w.st[2]->unsteady = true;
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(blk_steady(b), 0);
	world_fini(&w);
}

static void an_unknown_replica_is_deleted_but_not_in_the_first_report(void **state)
{
	struct world w;

	(void)state;
	world_init(&w);
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, true, 1);
	assert_int_equal(w.dn[0]->ninval, 0);
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 2);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_true(w.dn[0]->inval[0].no_ack);
	world_fini(&w);
}

static void a_replica_on_another_storage_of_its_node_has_moved(void **state)
{
	struct world w;
	struct storage *other;
	struct blk *b;

	(void)state;
	world_init(&w);
	other = dn_storage_add(w.dn[0], "DS-other", STORAGE_SSD);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 0);
	blocks_report(&w.bs, other, &B, REPLICA_FINALIZED, false, 0);
	assert_int_equal(b->nreps, 1);
	assert_ptr_equal(b->rep[0].st, other);
	assert_int_equal(w.st[0]->nblocks, 0);
	assert_int_equal(other->nblocks, 1);
	assert_int_equal(w.dn[0]->ninval, 0);
	blocks_report_deleted(&w.bs, w.st[0], B.id, 0); /* late: of the place it left */
	assert_int_equal(b->nreps, 1);
	blocks_report_begin(&w.bs, w.st[0]);
	/* a report with it, and one without */
	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 1);
	blocks_report_end(&w.bs, w.st[0]);
	assert_ptr_equal(b->rep[0].st, w.st[0]);
	blocks_report_begin(&w.bs, other);
	blocks_report(&w.bs, other, &B, REPLICA_FINALIZED, false, 1);
	blocks_report_end(&w.bs, other);
	blocks_report_begin(&w.bs, w.st[0]);
	blocks_report_end(&w.bs, w.st[0]);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->nreps, 1);
	assert_ptr_equal(b->rep[0].st, other);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

static void a_block_is_complete_when_committed_and_finalized_in_either_order(void **state)
{
	(void)state;
	for (int report_first = 0; report_first < 2; report_first++) {
		struct world w;
		struct blk *b;

		world_init(&w);
		b = add(&w, BLK_OPEN);
		if (report_first)
			report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
		assert_int_equal(b->state, BLK_OPEN);
		blk_commit(&w.bs, b, &B);
		if (!report_first) {
			assert_int_equal(b->state, BLK_COMMITTED);
			/* wrong: does not count */
			report(&w, 0, B.gs, B.len - 1, REPLICA_FINALIZED);
			assert_int_equal(b->state, BLK_COMMITTED);
			report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
		}
		assert_int_equal(b->state, BLK_COMPLETE);
		assert_null(b->open);
		world_fini(&w);
	}
}

/* Its replicas get the recovery's stamp: complete with the old one, all of them would be corrupt.
 */
static void a_committed_block_is_not_complete_while_it_is_recovered(void **state)
{
	const struct block now = {B.id, B.gs + 5, B.len};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	blk_set_targets(b, w.st, NULL, 1);
	blk_commit(&w.bs, b, &B);
	blk_set_recovery(&w.bs, b, now.gs, UINT64_MAX);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMMITTED);
	assert_int_equal(b->open->recovery_id, now.gs);
	blk_set_recovery(&w.bs, b, 0, 0);
	blk_commit(&w.bs, b, &now);
	report(&w, 0, now.gs, now.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

/* dfs.namenode.replication.min is 2, and one node of the pipeline is left: without a copy its file
 * could never be closed. */
static void a_committed_block_on_too_few_nodes_is_copied(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	w.bs.repl_min = 2;
	b = add(&w, BLK_OPEN);
	blk_set_targets(b, w.st, NULL, 1);
	report(&w, 0, B.gs, B.len, REPLICA_RBW);
	blk_commit(&w.bs, b, &B);
	assert_int_equal(b->flags, 0); /* the pipeline's report is awaited */
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMMITTED);
	assert_int_equal(b->flags, BLK_UNDER);
	assert_int_equal(w.bs.under_count, 1);
	blk_set_recovery(&w.bs, b, B.gs + 1, UINT64_MAX);
	assert_int_equal(b->flags, 0); /* its stamp is about to change */
	blk_set_recovery(&w.bs, b, 0, 0);
	assert_int_equal(b->flags, BLK_UNDER);
	blk_add_pending(&w.bs, b, w.st[1], UINT64_MAX);
	blk_recheck(&w.bs, b);
	assert_int_equal(b->flags, 0);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMPLETE);
	world_fini(&w);
}

static void replicas_of_the_pipeline_are_awaited_not_copied(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	blk_set_targets(b, w.st, NULL, 3);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blk_commit(&w.bs, b, &B);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(b->flags & BLK_UNDER, 0);
	blocks_expire_pending(&w.bs, UINT64_MAX);
	assert_int_equal(b->flags & BLK_UNDER, BLK_UNDER);
	world_fini(&w);
}

/* A committed block that three nodes wrote, of a file that is closed before any of them has
 * reported it. */
static struct blk *add_closed(struct world *w)
{
	struct blk *b;

	world_init(w);
	b = add(w, BLK_OPEN);
	blk_set_targets(b, w->st, NULL, REPL);
	blk_commit(&w->bs, b, &B);
	blk_close(&w->bs, b);
	assert_int_equal(b->state, BLK_COMMITTED);
	assert_int_equal(b->open->ntargets, REPL); /* where it can be read */
	assert_int_equal(b->flags, 0);
	return b;
}

static void a_committed_block_of_a_closed_file_is_missing_when_it_is_awaited_no_more(void **state)
{
	struct world w;
	struct blk *b = add_closed(&w);

	(void)state;
	report(&w, 0, B.gs, B.len, REPLICA_RWR); /* its node was started again */
	assert_int_equal(b->flags, 0);
	blocks_expire_pending(&w.bs, UINT64_MAX);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_null(b->open);
	assert_int_equal(b->flags, BLK_MISSING | BLK_UNDER | BLK_CORRUPT);
	assert_int_equal(w.bs.missing, 1);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED); /* much too late */
	assert_int_equal(b->flags & (BLK_MISSING | BLK_URGENT | BLK_SAFE), BLK_URGENT | BLK_SAFE);
	world_fini(&w);

	b = add_closed(&w);
	for (int i = 0; i < REPL; i++)
		blocks_forget(&w.bs, w.dn[i], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->flags, BLK_MISSING | BLK_UNDER);
	world_fini(&w);
}

static void a_committed_block_of_a_closed_file_on_too_few_nodes_is_short_of_replicas(void **state)
{
	struct world w;
	struct blk *b = add_closed(&w);

	(void)state;
	w.bs.repl_min = 2;
	report(&w, 2, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMMITTED);
	blocks_forget(&w.bs, w.dn[0], NULL);
	blocks_forget(&w.bs, w.dn[1], NULL);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(b->flags, BLK_UNDER | BLK_URGENT | BLK_SAFE);
	world_fini(&w);
}

/* What the nodes had of it before an append, and what one of them says of that late, is not what it
 * was closed with. */
static void news_of_a_time_before_an_append_end_no_wait_for_what_was_appended(void **state)
{
	const struct block now = {B.id, B.gs + 1, B.len + 1};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blk_reopen(&w.bs, b);
	blk_commit(&w.bs, b, &now);
	blk_close(&w.bs, b);
	for (int i = 0; i < REPL; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMMITTED);
	assert_int_equal(b->npending, REPL);
	report(&w, 1, now.gs, now.len, REPLICA_FINALIZED);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(b->npending, REPL - 1);
	assert_int_equal(b->flags & (BLK_MISSING | BLK_UNDER), 0);
	world_fini(&w);
}

/* Truncated inside before the nodes that hold it have said so: it is they who are to recover it. */
static void a_committed_block_written_again_keeps_the_nodes_that_did_not_report_it_yet(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	blk_set_targets(b, w.st, NULL, REPL);
	blk_commit(&w.bs, b, &B);
	blk_close(&w.bs, b);
	report(&w, 1, B.gs - 1, B.len - 1, REPLICA_FINALIZED); /* late news of a time before */
	blk_reopen(&w.bs, b);
	blocks_expire_pending(&w.bs, UINT64_MAX);
	assert_int_equal(b->state, BLK_OPEN);
	assert_false(b->open->closed);
	assert_int_equal(b->open->ntargets, REPL);
	for (int i = 0; i < REPL; i++)
		assert_ptr_equal(b->open->target[i], w.st[i]);
	world_fini(&w);
}

/* 5,000 blocks wait for a replica; that of the last one is overdue. */
static void replicas_on_their_way_are_looked_at_in_turn(void **state)
{
	struct world w;
	struct blk *b = NULL;

	(void)state;
	world_init(&w);
	for (int64_t i = 0; i < 5000; i++) {
		const struct block k = {5000000 + i, B.gs, B.len};

		b = blocks_add(&w.bs, &k, 17000, REPL, BLK_COMPLETE);
		blk_add_pending(&w.bs, b, w.st[0], i < 4999 ? 1000 : 10);
	}
	blocks_expire_pending(&w.bs, 500);
	assert_int_equal(b->npending, 1); /* it is not its turn */
	blocks_expire_pending(&w.bs, 500);
	assert_int_equal(b->npending, 0);
	for (int i = 0; i < 2; i++)
		blocks_expire_pending(&w.bs, 2000);
	assert_true(list_empty(&w.bs.awaiting));
	world_fini(&w);
}

static void removing_a_block_orders_every_replica_deleted(void **state)
{
	struct world w;

	(void)state;
	world_init(&w);
	struct blk *b = add(&w, BLK_COMPLETE);

	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_remove(&w.bs, b);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w.dn[i]->ninval, 1);
	assert_int_equal(w.bs.complete, 0);
	assert_null(blocks_find(&w.bs, B.id));
	world_fini(&w);
}

static void room_of_a_block_that_is_dropped_unwritten_is_given_back(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	for (int beaten = 0; beaten < 2; beaten++) {
		b = add(&w, BLK_OPEN);
		for (int i = 0; i < 3; i++)
			storage_promise(w.st[i], 100);
		blk_set_targets(b, w.st, NULL, 3);
		blk_set_room(b, 100, 5);
		w.st[1]->told_ns = beaten ? 6 : 4;
		report(&w, 2, B.gs, B.len, REPLICA_FINALIZED);
		blocks_remove(&w.bs, b);
		assert_int_equal(w.st[0]->promised, 0);
		assert_int_equal(w.st[0]->promised_blocks, 0);
		assert_int_equal(w.st[1]->promised, beaten ? 100 : 0); /* of somebody else by now */
		assert_int_equal(w.st[2]->promised, beaten ? 200 : 100); /* written */
	}
	world_fini(&w);
}

static void check_counts(const struct blocks *bs)
{
	uint64_t under = 0, missing = 0, corrupt = 0, complete = 0, surplus = 0, linked = 0;

	for (const struct blk *b = bs->map; b; b = b->hh.next) {
		bool bad = false;

		complete += b->state == BLK_COMPLETE;
		linked += list_is_linked(&b->work);
		assert_false(b->state == BLK_COMMITTED && b->open->closed && !b->npending);
		assert_int_equal(list_is_linked(&b->waiting), b->npending > 0);
		under += b->state == BLK_COMMITTED && blk_live(b) && blk_live(b) < b->repl &&
			 !b->npending;
		if (b->state != BLK_COMPLETE)
			continue;
		for (uint16_t i = 0; i < b->nreps; i++) {
			bad |= b->rep[i].corrupt && !b->rep[i].excess;
			for (uint16_t k = 0; k < i; k++)
				assert_ptr_not_equal(b->rep[i].st->dn, b->rep[k].st->dn);
		}
		under += blk_live(b) + b->npending < b->repl;
		surplus += blk_live(b) > b->repl;
		missing += !blk_live(b);
		corrupt += bad;
	}
	assert_int_equal(bs->under_count, under);
	assert_int_equal(bs->missing, missing);
	assert_int_equal(bs->corrupt, corrupt);
	assert_int_equal(bs->complete, complete);
	assert_int_equal(bs->surplus_count, surplus);
	assert_int_equal(linked, under + surplus);
}

/* A file adds, removes, commits or closes block @b of id @r.id, or nothing happens. */
static void do_random_change(struct world *w, struct blk *b, const struct block *r, int what)
{
	if (what == 0 && !b)
		blocks_add(&w->bs, r, 1, (uint16_t)(1 + rand() % 3), (enum blk_state)(rand() % 3));
	if (what == 1 && b && rand() % 4 == 0)
		blocks_remove(&w->bs, b);
	if (what != 2 || !b)
		return;
	if (b->state == BLK_OPEN) {
		blk_set_targets(b, w->st, NULL, (uint32_t)(rand() % NODES));
		blk_commit(&w->bs, b, r);
	}
	if (rand() % 4 == 0)
		blk_close(&w->bs, b);
}

/* @node dies, is back, or keeps others waiting too long. */
static void do_random_failure(struct world *w, int node)
{
	if (rand() % 10 == 0)
		blocks_forget(&w->bs, w->dn[node], NULL);
	if (rand() % 20 == 0)
		blocks_keep(&w->bs, w->st[node]);
	if (rand() % 5 == 0)
		blocks_expire_pending(&w->bs, UINT64_MAX);
}

/* One report, change or failure; each node has a storage of @other beside that of the fixture. */
static void do_random_step(struct world *w, struct storage *other[NODES])
{
	const struct block r = {1 + rand() % BLOCKS, 1000u + (uint64_t)(rand() % 3),
				(uint64_t)(rand() % 2)};
	const int node = rand() % NODES, what = rand() % 8;
	struct storage *const st = rand() % 2 ? other[node] : w->st[node];

	if (what <= 2) {
		do_random_change(w, blocks_find(&w->bs, r.id), &r, what);
	} else if (what == 3) {
		blocks_report_deleted(&w->bs, st, r.id, 0);
	} else if (what == 4) {
		do_random_failure(w, node);
	} else if (what == 5) {
		blocks_report_corrupt(&w->bs, &r, w->dn[node], NULL, false);
	} else {
		blocks_keep(&w->bs, st); /* it is there: it reports */
		blocks_report(&w->bs, st, &r, (uint32_t)(rand() % 3), rand() % 2, 0);
	}
	w->dn[node]->ninval = 0;
}

static void counts_agree_with_a_recount_after_random_reports(void **state)
{
	struct storage *other[NODES];
	struct world w;
	int checked = 0;

	(void)state;
	world_init(&w);
	for (int i = 0; i < NODES; i++)
		other[i] = dn_storage_add(w.dn[i], "DS-other", STORAGE_SSD);
	srand(3);
	for (int i = 0; i < 20000; i++) {
		do_random_step(&w, other);
		blocks_sweep(&w.bs, (uint32_t)(rand() % 4));
		if (blocks_must_sweep(&w.bs))
			continue;
		checked++;
		check_counts(&w.bs);
	}
	assert_true(checked > 5000);
	world_fini(&w);
}

/* Its scanner, or who copied from it, may be faster than the news of the replica. */
static void a_replica_found_corrupt_before_it_is_reported_is_not_good(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[1], w.st[1], false); /* a reader, who errs */
	assert_int_equal(b->nreps, 1);
	blocks_report_corrupt(&w.bs, &B, w.dn[1], w.st[1], true);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(b->nreps, 2);
	assert_int_equal(blk_live(b), 1);
	assert_false(b->rep[0].excess);
	assert_true(b->rep[1].excess);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replica_found_corrupt_before_it_is_reported_is_not_good),
		cmocka_unit_test(every_reported_replica_is_judged_by_the_rule),
		cmocka_unit_test(late_news_do_not_take_back_that_a_replica_is_finalised),
		cmocka_unit_test(late_news_of_an_older_stamp_do_not_take_it_back_either),
		cmocka_unit_test(a_replica_counts_from_when_it_is_finalised_on),
		cmocka_unit_test(an_open_block_has_replicas_enough_as_it_is_to_be_committed),
		cmocka_unit_test(a_report_of_damage_is_about_one_replica_of_one_stamp),
		cmocka_unit_test(replicas_count_on_nodes_that_stay),
		cmocka_unit_test(an_unknown_replica_is_deleted_but_not_in_the_first_report),
		cmocka_unit_test(a_replica_on_another_storage_of_its_node_has_moved),
		cmocka_unit_test(a_block_is_complete_when_committed_and_finalized_in_either_order),
		cmocka_unit_test(a_committed_block_is_not_complete_while_it_is_recovered),
		cmocka_unit_test(a_committed_block_on_too_few_nodes_is_copied),
		cmocka_unit_test(replicas_of_the_pipeline_are_awaited_not_copied),
		cmocka_unit_test(
			a_committed_block_of_a_closed_file_is_missing_when_it_is_awaited_no_more),
		cmocka_unit_test(
			a_committed_block_of_a_closed_file_on_too_few_nodes_is_short_of_replicas),
		cmocka_unit_test(news_of_a_time_before_an_append_end_no_wait_for_what_was_appended),
		cmocka_unit_test(
			a_committed_block_written_again_keeps_the_nodes_that_did_not_report_it_yet),
		cmocka_unit_test(replicas_on_their_way_are_looked_at_in_turn),
		cmocka_unit_test(removing_a_block_orders_every_replica_deleted),
		cmocka_unit_test(room_of_a_block_that_is_dropped_unwritten_is_given_back),
		cmocka_unit_test(counts_agree_with_a_recount_after_random_reports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
