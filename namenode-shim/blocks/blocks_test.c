/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the rule for reported replicas (hdfs-wire section 4, "NN treatment"), for every
 * state of the block, state of the replica and relation of the stamps; counts agree with a recount
 * after any sequence of reports; surplus and corrupt replicas are ordered deleted, the last good
 * one never. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"

#define NODES 5
#define BLOCKS 8
#define REPL 3

struct world {
	struct datanodes dns;
	struct blocks bs;
	struct dn *dn[NODES];
	struct storage *st[NODES];
};

static void world_init(struct world *w)
{
	datanodes_init(&w->dns, 1000);
	blocks_init(&w->bs, 1000000000ull, 1);
	for (int i = 0; i < NODES; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + (uint32_t)i,
					    1,    2,           0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&w->dns, &id, &w->dn[i]), 0);
		w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
		w->st[i]->remaining = 1000u + (uint64_t)i;
	}
}

static void world_fini(struct world *w)
{
	blocks_fini(&w->bs);
	datanodes_fini(&w->dns);
}

static const struct block B = {1073741825, 1005, 700};

static struct blk *add(struct world *w, enum blk_state s)
{
	return blocks_add(&w->bs, &B, 17000, REPL, s);
}

static void report(struct world *w, int node, uint64_t gs, uint64_t len, uint32_t state)
{
	const struct block r = {B.id, gs, len};

	blocks_report(&w->bs, w->st[node], &r, state, false, 0);
}

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
	blocks_report_deleted(&w.bs, w.st[0], B.id); /* late: of the place it left */
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

static void surplus_goes_from_the_fullest_node(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < 4; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1); /* least remaining */
	assert_int_equal(blk_live(b), 3);
	blocks_report_deleted(&w.bs, w.st[0], B.id);
	assert_int_equal(b->nreps, 3);
	world_fini(&w);
}

static void surplus_goes_rather_from_a_node_that_may_be_dead(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	w.dn[2]->stale = true;
	for (int i = 0; i < 4; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_int_equal(blk_live(b), 3);
	world_fini(&w);
}

static void replicas_that_share_a_rack_are_queued_while_there_are_others(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	snprintf(w.dn[3]->rack, sizeof(w.dn[3]->rack), "/other");
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.bs.crowded_count, 0);
	blocks_set_racks(&w.bs, 2);
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(w.bs.crowded_count, 1);
	assert_ptr_equal(w.bs.crowded.next, &b->work);
	assert_int_equal(w.bs.under_count, 0);
	blk_add_pending(&w.bs, b, w.st[3], 5);
	blk_recheck(&w.bs, b);
	assert_int_equal(w.bs.crowded_count, 0);
	blocks_expire_pending(&w.bs, 6);
	assert_int_equal(w.bs.crowded_count, 1);
	blocks_forget(&w.bs, w.dn[0], NULL); /* that is more urgent */
	blocks_sweep(&w.bs, UINT32_MAX);
	assert_int_equal(w.bs.crowded_count, 0);
	assert_int_equal(w.bs.under_count, 1);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 3, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.bs.crowded_count, 0);
	assert_int_equal(w.dn[0]->ninval, 1); /* of those that share a rack, with the least room */
	assert_false(list_is_linked(&b->work));
	blocks_set_racks(&w.bs, 1);
	world_fini(&w);
}

static void nothing_is_spread_because_a_node_is_in_maintenance(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	snprintf(w.dn[2]->rack, sizeof(w.dn[2]->rack), "/other");
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_set_racks(&w.bs, 2);
	w.dn[2]->admin = DN_ENTERING_MAINTENANCE;
	blk_recheck(&w.bs, b);
	assert_int_equal(w.bs.under_count + w.bs.crowded_count, 0);
	w.dn[2]->admin = DN_IN_MAINTENANCE;
	w.dn[2]->alive = false;
	blk_recheck(&w.bs, b);
	assert_int_equal(w.bs.under_count + w.bs.crowded_count, 0);
	world_fini(&w);
}

static void a_replica_that_was_copied_away_is_the_one_that_goes(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	w.st[4]->remaining = 1; /* by itself it would go from here */
	blocks_report_moved(&w.bs, w.st[4], &B, w.dn[2]);
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_int_equal(w.dn[4]->ninval, 0);
	assert_int_equal(blk_live(b), 3);
	blocks_report_deleted(&w.bs, w.st[2], B.id);

	/* The only one in its rack, and the copy is in none of its own. */
	snprintf(w.dn[0]->rack, sizeof(w.dn[0]->rack), "/other");
	blocks_report_moved(&w.bs, w.st[3], &B, w.dn[0]);
	assert_int_equal(w.dn[0]->ninval, 0);
	assert_int_equal(blk_live(b), 3);
	world_fini(&w);
}

static void a_deletion_that_was_ordered_stays_ordered_through_a_move(void **state)
{
	struct world w;
	struct storage *other;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	w.st[0]->remaining = 1; /* it gives its replica up */
	other = dn_storage_add(w.dn[0], "DS-other", STORAGE_SSD);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	blocks_report(&w.bs, other, &B, REPLICA_FINALIZED, false, 0);
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(w.dn[1]->ninval, 0); /* or both would go */
	world_fini(&w);
}

static void two_entries_of_a_node_would_count_once(void **state)
{
	struct world w;
	struct storage *other;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	other = dn_storage_add(w.dn[0], "DS-other", STORAGE_DISK);
	b->rep[1].st->nblocks--;
	b->rep[1].st = other; /* no report leads here */
	other->nblocks++;
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(blk_readable(b), 1);
	blk_set_repl(&w.bs, b, 1);
	assert_int_equal(w.dn[0]->ninval, 0);
	b->rep[1].corrupt = true;
	blk_recheck(&w.bs, b);
	assert_int_equal(w.dn[0]->ninval, 0);
	assert_false(blk_drop_one_corrupt(&w.bs, b));
	b->rep[1].corrupt = false;

	w.dn[0]->alive = false;
	assert_int_equal(blk_live(b), 0);
	w.dn[0]->alive = true;

	/* A second node has it: all that the first has is surplus, by one order. */
	w.st[0]->remaining = other->remaining = 1;
	report(&w, 2, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_int_equal(w.dn[2]->ninval, 0);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

static void a_corrupt_replica_goes_when_enough_good_ones_exist(void **state)
{
	struct world w;

	(void)state;
	world_init(&w);
	(void)add(&w, BLK_COMPLETE);
	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL);
	assert_int_equal(w.dn[1]->ninval, 0);
	assert_int_equal(w.bs.corrupt, 1);
	assert_int_equal(w.bs.under_count, 1);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED); /* still there, still bad */
	assert_int_equal(w.bs.corrupt, 1);
	report(&w, 3, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[1]->ninval, 1);
	assert_int_equal(w.bs.corrupt, 0);
	assert_int_equal(w.bs.under_count, 0);
	world_fini(&w);
}

/* Its node lists it once more before it has deleted it: it would be taken for a good one, and the
 * good one be surplus. */
static void a_corrupt_replica_that_is_being_deleted_does_not_come_back_as_good(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	w.st[1]->remaining = 1; /* it gives its replica up when there are two */
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_int_equal(w.bs.corrupt, 0);

	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 7); /* a full report */
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(w.dn[1]->ninval, 0);
	assert_int_equal(w.dn[0]->ninval, 2); /* told again: it may have been restarted */
	blocks_report_deleted(&w.bs, w.st[0], B.id);
	assert_int_equal(b->nreps, 1);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED); /* a new copy is as good as any */
	assert_int_equal(w.dn[1]->ninval, 1);
	world_fini(&w);
}

/* An order that waited behind others leaves only if it is still right. */
static void an_order_to_delete_is_looked_at_again_as_it_leaves(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	w.st[0]->remaining = 1; /* it gives its replica up */
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_false(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL); /* the one that was kept */
	assert_int_equal(w.bs.missing, 1);
	assert_true(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
	assert_int_equal(w.bs.missing, 0);
	assert_int_equal(w.dn[1]->ninval, 1); /* the corrupt one goes now */
	assert_false(blocks_take_back_drop(&w.bs, w.dn[1], B.id, B.gs));

	/* one that came since is no surplus */
	assert_true(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
	assert_false(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs - 1));
	assert_false(blocks_take_back_drop(&w.bs, w.dn[0], B.id + 1, B.gs));
	world_fini(&w);
}

static void what_is_written_anew_on_a_node_that_deletes_an_older_replica_is_good(void **state)
{
	const struct block newer = {B.id, B.gs + 1, B.len};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 1, B.gs - 1, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[1]->ninval, 1);
	blk_reopen(&w.bs, b);
	for (int i = 0; i < 2; i++)
		report(&w, i, newer.gs, newer.len, REPLICA_FINALIZED);
	blk_commit(&w.bs, b, &newer);
	assert_int_equal(blk_live(b), 2);
	world_fini(&w);
}

static void a_replica_found_corrupt_stays_so_while_its_block_is_open_for_append(void **state)
{
	const struct block longer = {B.id, B.gs + 1, B.len + 1};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL);
	blk_reopen(&w.bs, b);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_true(b->rep[1].corrupt);
	assert_int_equal(b->open->ntargets, 2); /* it is in no pipeline */
	blk_commit(&w.bs, b, &B);               /* nothing was written */
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_true(b->rep[1].corrupt);
	assert_int_equal(blk_live(b), 2);

	blk_reopen(&w.bs, b); /* found corrupt while it is written */
	report(&w, 0, longer.gs, longer.len, REPLICA_RBW);
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL);
	report(&w, 0, longer.gs, longer.len, REPLICA_FINALIZED);
	report(&w, 2, longer.gs, longer.len, REPLICA_FINALIZED);
	blk_commit(&w.bs, b, &longer);
	assert_true(b->rep[0].corrupt);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

static void the_last_replica_is_kept_though_corrupt(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL);
	assert_int_equal(w.bs.missing, 1);
	assert_false(blk_drop_one_corrupt(&w.bs, b));
	assert_int_equal(b->nreps, 1);
	assert_int_equal(w.dn[0]->ninval, 0);
	world_fini(&w);
}

/* No further node is left for a good one: the place of a corrupt one is made free, but not while it
 * may be needed. */
static void a_corrupt_replica_that_may_be_needed_is_not_deleted_to_make_room(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 4);
	for (int i = 0; i < 4; i++)
		report(&w, i, B.gs, B.len, REPLICA_FINALIZED);
	for (int i = 1; i < 4; i++)
		blocks_report_corrupt(&w.bs, &B, w.dn[i], NULL);
	/* one good one, which may be damaged where nobody has read */
	assert_false(blk_drop_one_corrupt(&w.bs, b));
	report(&w, 4, B.gs, B.len, REPLICA_FINALIZED);
	w.dn[1]->alive = false;
	w.dn[2]->admin = DN_DECOMMISSIONING;
	w.dn[3]->admin = DN_DECOMMISSIONING;
	/* that would make no room: those nodes get nothing */
	assert_false(blk_drop_one_corrupt(&w.bs, b));
	w.dn[2]->admin = w.dn[3]->admin = DN_NORMAL;
	assert_true(blk_drop_one_corrupt(&w.bs, b));
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_false(blk_drop_one_corrupt(&w.bs, b)); /* one at a time */
	blocks_report_deleted(&w.bs, w.st[2], B.id);
	assert_int_equal(b->nreps, 4);
	blk_add_pending(&w.bs, b, w.st[2], UINT64_MAX);
	assert_false(blk_drop_one_corrupt(&w.bs, b)); /* the next one when that place is taken */
	report(&w, 2, B.gs, B.len, REPLICA_FINALIZED);
	assert_true(blk_drop_one_corrupt(&w.bs, b));
	assert_int_equal(w.dn[3]->ninval, 1);
	assert_int_equal(w.dn[1]->ninval, 0);
	world_fini(&w);
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

static void counts_agree_with_a_recount_after_random_reports(void **state)
{
	struct world w;
	struct storage *st[2][NODES], *to;
	int checked = 0;

	(void)state;
	world_init(&w);
	for (int i = 0; i < NODES; i++) {
		st[0][i] = w.st[i];
		st[1][i] = dn_storage_add(w.dn[i], "DS-other", STORAGE_SSD);
	}
	srand(3);
	for (int i = 0; i < 20000; i++) {
		const struct block r = {1 + rand() % BLOCKS, 1000u + (uint64_t)(rand() % 3),
					(uint64_t)(rand() % 2)};
		struct blk *b = blocks_find(&w.bs, r.id);
		const int node = rand() % NODES;

		switch (rand() % 8) {
		case 0:
			if (!b)
				blocks_add(&w.bs, &r, 1, (uint16_t)(1 + rand() % 3),
					   (enum blk_state)(rand() % 3));
			break;
		case 1:
			if (b && rand() % 4 == 0)
				blocks_remove(&w.bs, b);
			break;
		case 2:
			if (b && b->state == BLK_OPEN) {
				blk_set_targets(b, w.st, NULL, (uint32_t)(rand() % NODES));
				blk_commit(&w.bs, b, &r);
			}
			if (b && rand() % 4 == 0)
				blk_close(&w.bs, b);
			break;
		case 3:
			blocks_report_deleted(&w.bs, st[rand() % 2][node], r.id);
			break;
		case 4:
			if (rand() % 10 == 0)
				blocks_forget(&w.bs, w.dn[node], NULL);
			if (rand() % 20 == 0)
				blocks_keep(&w.bs, w.st[node]);
			if (rand() % 5 == 0)
				blocks_expire_pending(&w.bs, UINT64_MAX);
			break;
		case 5:
			blocks_report_corrupt(&w.bs, &r, w.dn[node], NULL);
			break;
		default:
			to = st[rand() % 2][node];
			blocks_keep(&w.bs, to); /* it is there: it reports */
			blocks_report(&w.bs, to, &r, (uint32_t)(rand() % 3), rand() % 2, 0);
			break;
		}
		blocks_sweep(&w.bs, (uint32_t)(rand() % 4));
		if (!blocks_must_sweep(&w.bs)) {
			checked++;
			check_counts(&w.bs);
		}
		w.dn[node]->ninval = 0;
	}
	assert_true(checked > 5000);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_reported_replica_is_judged_by_the_rule),
		cmocka_unit_test(a_replica_on_another_storage_of_its_node_has_moved),
		cmocka_unit_test(an_unknown_replica_is_deleted_but_not_in_the_first_report),
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
		cmocka_unit_test(surplus_goes_rather_from_a_node_that_may_be_dead),
		cmocka_unit_test(replicas_that_share_a_rack_are_queued_while_there_are_others),
		cmocka_unit_test(nothing_is_spread_because_a_node_is_in_maintenance),
		cmocka_unit_test(a_replica_that_was_copied_away_is_the_one_that_goes),
		cmocka_unit_test(surplus_goes_from_the_fullest_node),
		cmocka_unit_test(a_deletion_that_was_ordered_stays_ordered_through_a_move),
		cmocka_unit_test(two_entries_of_a_node_would_count_once),
		cmocka_unit_test(a_corrupt_replica_goes_when_enough_good_ones_exist),
		cmocka_unit_test(
			a_corrupt_replica_that_is_being_deleted_does_not_come_back_as_good),
		cmocka_unit_test(an_order_to_delete_is_looked_at_again_as_it_leaves),
		cmocka_unit_test(
			what_is_written_anew_on_a_node_that_deletes_an_older_replica_is_good),
		cmocka_unit_test(
			a_replica_found_corrupt_stays_so_while_its_block_is_open_for_append),
		cmocka_unit_test(the_last_replica_is_kept_though_corrupt),
		cmocka_unit_test(a_corrupt_replica_that_may_be_needed_is_not_deleted_to_make_room),
		cmocka_unit_test(a_full_report_forgets_what_it_does_not_list),
		cmocka_unit_test(what_a_dead_node_has_does_not_count_before_it_is_forgotten),
		cmocka_unit_test(what_a_node_that_is_back_has_is_kept),
		cmocka_unit_test(news_that_come_while_a_list_is_taken_count),
		cmocka_unit_test(news_that_come_while_unlisted_replicas_are_forgotten_count),
		cmocka_unit_test(replicas_on_their_way_are_looked_at_in_turn),
		cmocka_unit_test(removing_a_block_orders_every_replica_deleted),
		cmocka_unit_test(room_of_a_block_that_is_dropped_unwritten_is_given_back),
		cmocka_unit_test(counts_agree_with_a_recount_after_random_reports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
