/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: surplus and corrupt replicas are ordered deleted, the last good one never. A
 * block whose replicas share a rack is queued while there are other racks. */
#include "namenode-shim/blocks/blocks_test_fixture.h"

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
	blocks_report_deleted(&w.bs, w.st[0], B.id, 0);
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
	blocks_report_deleted(&w.bs, w.st[2], B.id, 0);

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
	assert_false(blk_drop_one_bad(&w.bs, b));
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
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL, false);
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
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL, false);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	assert_int_equal(w.bs.corrupt, 0);

	blocks_report(&w.bs, w.st[0], &B, REPLICA_FINALIZED, false, 7); /* a full report */
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(w.dn[1]->ninval, 0);
	assert_int_equal(w.dn[0]->ninval, 2); /* told again: it may have been restarted */
	blocks_report_deleted(&w.bs, w.st[0], B.id, 0);
	assert_int_equal(b->nreps, 1);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED); /* a new copy is as good as any */
	assert_int_equal(w.dn[1]->ninval, 1);
	world_fini(&w);
}

/* It was appended to before its node was told to delete it: the order does not fit its stamp any
 * more, and its bytes are wrong still. */
static void a_replica_with_wrong_bytes_that_is_written_further_stays_corrupt(void **state)
{
	const struct block now = {B.id, B.gs + 3, B.len + 1};
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	w.st[1]->remaining = 1; /* it gives its replica up when there are two */
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL, true);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval, 1);
	blk_reopen(&w.bs, b);
	for (int i = 0; i < 2; i++)
		report(&w, i, now.gs, now.len, REPLICA_FINALIZED);
	blk_commit(&w.bs, b, &now);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(blk_live(b), 1);
	assert_int_equal(w.dn[1]->ninval, 0);
	assert_int_equal(w.dn[0]->ninval, 2);
	assert_true(w.dn[0]->inval[1].gs == now.gs);
	world_fini(&w);
}

/* Its node has one of a newer stamp, of which the primary of a recovery has told. */
static void late_news_of_a_deletion_are_of_the_older_replica(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	blocks_report_deleted(&w.bs, w.st[0], B.id, B.gs - 1);
	assert_int_equal(b->nreps, 1);
	blocks_report_deleted(&w.bs, w.st[0], B.id, B.gs);
	assert_int_equal(b->nreps, 0);
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
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL, false); /* the one that was kept */
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

/* Its file is truncated meanwhile. */
static void nor_does_the_last_good_replica_of_a_block_that_is_recovered_go(void **state)
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
	blk_reopen(&w.bs, b);
	assert_false(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL, false);
	assert_true(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
	assert_true(blocks_take_back_drop(&w.bs, w.dn[0], B.id, B.gs));
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
	blocks_report_corrupt(&w.bs, &B, w.dn[1], NULL, false);
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
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL, false);
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
	blocks_report_corrupt(&w.bs, &B, w.dn[0], NULL, false);
	assert_int_equal(w.bs.missing, 1);
	assert_false(blk_drop_one_bad(&w.bs, b));
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
		blocks_report_corrupt(&w.bs, &B, w.dn[i], NULL, false);
	/* one good one, which may be damaged where nobody has read */
	assert_false(blk_drop_one_bad(&w.bs, b));
	report(&w, 4, B.gs, B.len, REPLICA_FINALIZED);
	w.dn[1]->alive = false;
	w.dn[2]->admin = DN_DECOMMISSIONING;
	w.dn[3]->admin = DN_DECOMMISSIONING;
	/* that would make no room: those nodes get nothing */
	assert_false(blk_drop_one_bad(&w.bs, b));
	w.dn[2]->admin = w.dn[3]->admin = DN_NORMAL;
	assert_true(blk_drop_one_bad(&w.bs, b));
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_false(blk_drop_one_bad(&w.bs, b)); /* one at a time */
	blocks_report_deleted(&w.bs, w.st[2], B.id, 0);
	assert_int_equal(b->nreps, 4);
	blk_add_pending(&w.bs, b, w.st[2], UINT64_MAX);
	assert_false(blk_drop_one_bad(&w.bs, b)); /* the next one when that place is taken */
	report(&w, 2, B.gs, B.len, REPLICA_FINALIZED);
	assert_true(blk_drop_one_bad(&w.bs, b));
	assert_int_equal(w.dn[3]->ninval, 1);
	assert_int_equal(w.dn[1]->ninval, 0);
	world_fini(&w);
}

/* Its disk was full at the last packet: it stays unfinished, on a node that could have a good one.
 * Or its news are late. */
static void a_replica_that_was_never_finished_makes_room(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_OPEN);
	for (int i = 1; i < 3; i++)
		report(&w, i, B.gs, B.len, REPLICA_RBW);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	assert_false(blk_drop_one_bad(&w.bs, b)); /* it is written still */
	blk_commit(&w.bs, b, &B);
	assert_int_equal(b->state, BLK_COMPLETE);
	blk_add_pending(&w.bs, b, w.st[2], UINT64_MAX); /* it was closed a moment ago */
	assert_false(blk_drop_one_bad(&w.bs, b));
	blk_drop_pending(&w.bs, b, w.st[2]);
	assert_true(blk_drop_one_bad(&w.bs, b)); /* nobody could read it */
	assert_int_equal(w.dn[1]->ninval, 1);
	assert_false(blk_drop_one_bad(&w.bs, b)); /* one at a time */
	assert_false(blocks_take_back_drop(&w.bs, w.dn[1], B.id, B.gs));
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	assert_true(blocks_take_back_drop(&w.bs, w.dn[1], B.id, B.gs));
	assert_int_equal(blk_live(b), 2);
	assert_true(blk_drop_one_bad(&w.bs, b));
	assert_int_equal(w.dn[2]->ninval, 1);
	assert_int_equal(w.dn[0]->ninval, 0);
	world_fini(&w);
}

/* It would count as another one, and the good one as surplus. */
static void news_of_an_older_stamp_do_not_bring_back_what_was_given_up(void **state)
{
	struct world w;
	struct blk *b;
	int given_up;

	(void)state;
	world_init(&w);
	b = add(&w, BLK_COMPLETE);
	blk_set_repl(&w.bs, b, 1);
	report(&w, 1, B.gs, B.len, REPLICA_FINALIZED);
	report(&w, 0, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval + w.dn[1]->ninval, 1);
	given_up = w.dn[0]->ninval ? 0 : 1;
	report(&w, given_up, B.gs - 1, B.len, REPLICA_FINALIZED);
	report(&w, given_up, B.gs, B.len, REPLICA_FINALIZED);
	assert_int_equal(w.dn[0]->ninval + w.dn[1]->ninval, 1);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

/* Safe mode waits for reports. A power cut may leave nothing better of a block than what they say.
 */
static void a_block_is_not_waited_for_when_all_its_replicas_are_reported(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w);
	w.bs.quiet = true;
	w.bs.safe_min = 1;
	b = add(&w, BLK_COMPLETE);
	for (int i = 0; i < REPL; i++) {
		assert_int_equal(w.bs.safe, 0);
		report(&w, i, B.gs, B.len - 1, REPLICA_FINALIZED);
	}
	assert_int_equal(w.bs.safe, 1);
	assert_true(b->flags & BLK_MISSING);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(news_of_an_older_stamp_do_not_bring_back_what_was_given_up),
		cmocka_unit_test(surplus_goes_from_the_fullest_node),
		cmocka_unit_test(surplus_goes_rather_from_a_node_that_may_be_dead),
		cmocka_unit_test(replicas_that_share_a_rack_are_queued_while_there_are_others),
		cmocka_unit_test(nothing_is_spread_because_a_node_is_in_maintenance),
		cmocka_unit_test(a_replica_that_was_copied_away_is_the_one_that_goes),
		cmocka_unit_test(a_deletion_that_was_ordered_stays_ordered_through_a_move),
		cmocka_unit_test(two_entries_of_a_node_would_count_once),
		cmocka_unit_test(a_corrupt_replica_goes_when_enough_good_ones_exist),
		cmocka_unit_test(
			a_corrupt_replica_that_is_being_deleted_does_not_come_back_as_good),
		cmocka_unit_test(a_replica_with_wrong_bytes_that_is_written_further_stays_corrupt),
		cmocka_unit_test(late_news_of_a_deletion_are_of_the_older_replica),
		cmocka_unit_test(an_order_to_delete_is_looked_at_again_as_it_leaves),
		cmocka_unit_test(nor_does_the_last_good_replica_of_a_block_that_is_recovered_go),
		cmocka_unit_test(
			what_is_written_anew_on_a_node_that_deletes_an_older_replica_is_good),
		cmocka_unit_test(
			a_replica_found_corrupt_stays_so_while_its_block_is_open_for_append),
		cmocka_unit_test(the_last_replica_is_kept_though_corrupt),
		cmocka_unit_test(a_block_is_not_waited_for_when_all_its_replicas_are_reported),
		cmocka_unit_test(a_corrupt_replica_that_may_be_needed_is_not_deleted_to_make_room),
		cmocka_unit_test(a_replica_that_was_never_finished_makes_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
