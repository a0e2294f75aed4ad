/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a block that no node has is missing, however its file came to its end, and is not
 * called missing while reports are waited for. What fsck found lost is deleted only if it is still
 * lost. */
#include "common/base/clock.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/rpc/batch_test_fixture.h"
#include "namenode-shim/web/fsck.h"

static void leave_safe_mode(struct world *w)
{
	Hd__SetSafeModeRequestProto m = HD__SET_SAFE_MODE_REQUEST_PROTO__INIT;
	struct req *q = req_new(w->nn, find_method(&client_ops_methods, "setSafeMode"), NULL);

	m.action = HD__SAFE_MODE_ACTION_PROTO__SAFEMODE_LEAVE;
	req_reset(q, NULL);
	q->rc = q->method->run(q, &m);
	assert_int_equal(q->rc, 0);
	req_finish(q);
	assert_false(w->nn->safe.on);
}

/* An administrator ends safe mode while the reports of nodes are still to come. */
static void after_a_forced_leave_of_safe_mode_reports_are_waited_for(void **state)
{
	const struct dn_ident id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	struct recovered r;
	struct storage *other;
	struct dn *dn;
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, true);
	w.nn->safe.on = w.nn->safe.startup = w.nn->blocks.quiet = true;
	w.nn->safe.empty_start = false;
	w.nn->safe.left_ns = 0;
	w.nn->safe.total = 100;
	assert_int_equal(datanodes_register(&w.nn->dns, &id, &dn), 0);
	other = dn_storage_add(dn, "DS2", STORAGE_DISK);
	w.st->remaining = w.st->capacity = other->remaining = other->capacity = 1ull << 40;
	report(&w);
	b = blocks_find(&w.nn->blocks, w.block.id);
	blk_set_repl(&w.nn->blocks, b, 2);
	leave_safe_mode(&w);
	monitor_tick(w.nn);
	/* no copy: the other replica may be on a node that reports next */
	assert_false(monitor_is_ordering(w.nn));

	/* Nor is the last block of an open file given up: it may be on such a node. */
	assert_int_equal(nn_start(w.nn), 0);
	recovered_init(&w, &r);
	call_in_turn(&w, 0, "append", &r.append);
	call_in_turn(&w, 1, "addBlock", &r.add);
	assert_int_equal(calls[1].rc, 0);
	no_pipeline(&w, read_file(&w)->blocks[1].b.id);
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	nn_stop(w.nn);
	assert_int_equal(read_file(&w)->nblocks, 2);
	world_fini(&w);
}

/* The file is closed and its first block missing, until a node has it as it was committed. */
static void closed_without_the_first_block(struct world *w, const struct blk *first)
{
	const struct block now = {first->b.id, first->b.gs, FILE_LEN + 2};

	nn_stop(w->nn);
	assert_string_equal(read_file(w)->client, "");
	assert_int_equal(first->state, BLK_COMPLETE);
	assert_true(first->flags & BLK_MISSING);
	assert_true(first->flags & BLK_UNDER);
	assert_int_equal(w->nn->blocks.missing, 1);
	blocks_report(&w->nn->blocks, w->st, &now, REPLICA_FINALIZED, false, 0);
	assert_int_equal(first->flags & (BLK_MISSING | BLK_UNDER | BLK_CORRUPT), 0);
	assert_int_equal(w->nn->blocks.missing, 0);
	world_fini(w);
}

static void a_block_on_no_node_is_missing_once_the_lease_of_its_file_is_recovered(void **state)
{
	const struct blk *first;
	struct recovered r;
	struct world w;

	(void)state;
	first = add_second_block(&w, &r, FILE_LEN);
	pthread_rwlock_wrlock(&w.nn->mem_lock);
	report(&w);
	pthread_rwlock_unlock(&w.nn->mem_lock);
	call_in_turn(&w, 2, "complete", &r.complete);
	assert_int_equal(blocks_find(&w.nn->blocks, w.block.id)->state, BLK_COMPLETE);
	assert_int_equal(first->flags & BLK_MISSING, 0); /* its writer may have more to say */
	r.recover.clientname = (char *)(uintptr_t) "b";
	call_in_turn(&w, 3, "recoverLease", &r.recover);
	assert_true(calls[3].result);
	closed_without_the_first_block(&w, first);
}

static void a_block_on_no_node_is_missing_once_the_unwritten_one_behind_it_is_dropped(void **state)
{
	const struct blk *first;
	struct recovered r;
	struct world w;

	(void)state;
	first = add_second_block(&w, &r, 0);
	no_pipeline(&w, w.block.id);
	call_in_turn(&w, 3, "recoverLease", &r.recover);
	assert_true(calls[3].result);
	assert_int_equal(read_file(&w)->nblocks, 1);
	closed_without_the_first_block(&w, first);
}

/* What another node has reported of the block, how it was judged then, and whether it is asked. */
static const struct other {
	int stamp; /* newer by so much */
	bool corrupt, damaged, asked;
} others[] = {
	{0, false, false, true},   {1, false, false, true},
	{1, true, false, true}, /* of an earlier recovery, whose end was never heard of */
	{1, true, true, false}, /* its bytes are wrong */
	{0, true, false, false},   {-1, true, false, false},
	{-1, false, false, false}, /* of the time before the block got its stamp */
};
static const struct other *other;

static void add_other(struct world *w)
{
	const struct dn_ident id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);
	const struct block has = {b->b.id, b->b.gs + (uint64_t)other->stamp, FILE_LEN};
	struct storage *st;
	struct dn *dn;

	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	st = dn_storage_add(dn, "DS2", STORAGE_DISK);
	blocks_report(&w->nn->blocks, st, &has, REPLICA_RBW, false, 0);
	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].st == st) {
			b->rep[i].corrupt = other->corrupt;
			b->rep[i].damaged = other->damaged;
		}
}

static void recovery_asks_who_may_have_bytes_that_it_needs(void **state)
{
	struct recovered r;
	struct world w;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		other = &others[i];
		world_init(&w, true);
		report(&w);
		recovered_init(&w, &r);
		assert_int_equal(nn_start(w.nn), 0);
		call_in_turn(&w, 0, "append", &r.append);
		on_writer(&w, add_other);
		call_in_turn(&w, 1, "recoverLease", &r.recover);
		nn_stop(w.nn);
		if (blocks_find(&w.nn->blocks, w.block.id)->open->ntargets !=
		    1 + (uint32_t)other->asked)
			fail_msg("row %zu", i);
		world_fini(&w);
	}
}

/* What is left of the file is read, and a truncate may cut the wrong bytes off. */
static void find_wrong(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	const struct dn_ident id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	struct storage *st[2] = {w->st};
	struct dn *dn;

	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	st[1] = dn_storage_add(dn, "DS2", STORAGE_DISK);
	blk_set_targets(b, NULL, NULL, 0);
	for (int i = 0; i < 2; i++) {
		blocks_report(&w->nn->blocks, st[i], &w->block, REPLICA_RBW, false, 0);
		blocks_report_corrupt(&w->nn->blocks, &w->block, st[i]->dn, st[i], false);
	}
}

static void replicas_with_wrong_bytes_are_asked_when_there_is_no_other(void **state)
{
	struct recovered r;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	recovered_init(&w, &r);
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	on_writer(&w, find_wrong);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	nn_stop(w.nn);
	assert_int_equal(blocks_find(&w.nn->blocks, w.block.id)->open->ntargets, 2);
	world_fini(&w);
}

/* Nodes may end it while the NameNode is away: a report of the old stamp must not complete it. */
static void a_block_that_is_recovered_is_not_committed(void **state)
{
	Hd__SetQuotaRequestProto full = HD__SET_QUOTA_REQUEST_PROTO__INIT;
	struct recovered r;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, FILE_LEN);
	call_in_turn(&w, 2, "complete", &r.complete);
	assert_true(read_file(&w)->blocks[1].committed);
	/* It is open again and may grow to its full size: a quota does not keep it from its end. */
	full.path = (char *)(uintptr_t) "/";
	full.namespacequota = QUOTA_KEEP;
	full.storagespacequota = 1;
	call_in_turn(&w, 4, "setQuota", &full);
	assert_int_equal(calls[4].rc, 0);
	r.recover.clientname = (char *)(uintptr_t) "b";
	call_in_turn(&w, 3, "recoverLease", &r.recover);
	assert_int_equal(calls[3].rc, 0);
	assert_false(calls[3].result);
	assert_false(read_file(&w)->blocks[1].committed);
	assert_int_equal(read_file(&w)->blocks[1].b.len, FILE_LEN);
	nn_stop(w.nn);
	world_fini(&w);
}

static void a_block_on_no_node_is_missing_once_the_one_behind_it_is_recovered(void **state)
{
	const struct blk *first;
	struct recovered r;
	struct world w;

	(void)state;
	first = add_second_block(&w, &r, FILE_LEN);
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	assert_false(calls[2].result);
	r.synced.newlength = FILE_LEN;
	r.synced.newgenstamp = blocks_find(&w.nn->blocks, w.block.id)->open->recovery_id;
	call_in_turn(&w, 3, "commitBlockSynchronization", &r.synced);
	assert_int_equal(calls[3].rc, 0);
	assert_int_equal(blocks_find(&w.nn->blocks, w.block.id)->state, BLK_COMPLETE);
	closed_without_the_first_block(&w, first);
}

/* Its data node, which is dead when recovery ends, says it has it. */
static void a_block_recovered_on_a_node_that_died_meanwhile_is_missing(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	recovered_init(&w, &r);
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	b = blocks_find(&w.nn->blocks, w.block.id);
	r.synced.newgenstamp = b->open->recovery_id;
	r.synced.n_newtaragets = 0;
	call_in_turn(&w, 2, "commitBlockSynchronization", &r.synced);
	assert_int_equal(calls[2].rc, 0);
	nn_stop(w.nn);
	assert_string_equal(read_file(&w)->client, "");
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(w.nn->blocks.missing, 1);
	world_fini(&w);
}

/* ---- the last block of a file whose writer is gone, on no node ---- */

/* Why a node may have it all the same. */
static void kill_node(struct world *w)
{
	w->st->dn->alive = false;
}

static void revive_node(struct world *w)
{
	w->st->dn->alive = true;
}

static void forget_report(struct world *w)
{
	w->st->reported = false;
}

static void take_report(struct world *w)
{
	w->st->reported = true;
}

static void find_written(struct world *w)
{
	blocks_report(&w->nn->blocks, w->st, &w->block, REPLICA_RBW, false, 0);
}

/* The block was on a second node, too. */
static void lose_another(struct world *w)
{
	blk_add_lost(blocks_find(&w->nn->blocks, w->block.id), w->st, 0);
}

static void find_another(struct world *w)
{
	blocks_find(&w->nn->blocks, w->block.id)->open->nlost = 0;
}

static const struct {
	void (*begin)(struct world *w);
	void (*end)(struct world *w);
} doubts[] = {{kill_node, revive_node},
	      {forget_report, take_report},
	      {find_written, lose},
	      {lose_another, find_another}};

static void a_file_whose_last_block_no_node_has_is_closed_and_misses_it(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	for (size_t i = 0; i < sizeof(doubts) / sizeof(doubts[0]); i++) {
		b = write_and_lose(&w, &r, 3600000);
		call_in_turn(&w, 1, "recoverLease", &r.recover);
		assert_false(calls[1].result);
		on_writer(&w, doubts[i].begin);
		say_nobody_has_it(&w, &r, b, 2);
		assert_true(calls[2].rc < 0);
		is_open(&w);
		on_writer(&w, doubts[i].end);
		say_nobody_has_it(&w, &r, b, 3);
		assert_int_equal(calls[3].rc, 0);
		is_closed_and_missing(&w, b);
	}
}

/* The power was cut: it registers again, and its list lacks the block. */
static void restart_without_it(struct world *w)
{
	w->st->reported = false;
	blocks_report_begin(&w->nn->blocks, w->st);
	blocks_report_end(&w->nn->blocks, w->st);
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
}

static void a_replica_that_a_power_cut_took_is_not_waited_for(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	b = write_and_lose(&w, &r, 3600000);
	on_writer(&w, find_written);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	say_nobody_has_it(&w, &r, b, 2);
	assert_true(calls[2].rc < 0);
	is_open(&w);
	on_writer(&w, restart_without_it);
	say_nobody_has_it(&w, &r, b, 3);
	assert_int_equal(calls[3].rc, 0);
	is_closed_and_missing(&w, b);
}

/* An earlier recovery has made them; its end never came here. One has wrong bytes. */
static void find_newer(struct world *w)
{
	const struct dn_ident id[2] = {{"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0},
				       {"dn3", "127.0.0.3", "host", "3.4.2", 9000, 1, 2, 0}};
	const struct block newer = {w->block.id, w->block.gs + 3, FILE_LEN}, any = {newer.id, 0, 0};
	struct dn *dn;

	blk_commit(&w->nn->blocks, blocks_find(&w->nn->blocks, w->block.id), &w->block);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(datanodes_register(&w->nn->dns, &id[i], &dn), 0);
		blocks_report(&w->nn->blocks, dn_storage_add(dn, "DS", STORAGE_DISK), &newer,
			      REPLICA_FINALIZED, false, 0);
	}
	blocks_report_corrupt(&w->nn->blocks, &any, dn, NULL, true);
}

static void what_an_earlier_recovery_has_made_is_recovered_once_more(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	b = write_and_lose(&w, &r, 3600000);
	on_writer(&w, find_newer);
	assert_true(b->rep[0].corrupt && !b->rep[0].damaged && b->rep[1].damaged);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	assert_int_equal(b->open->ntargets, 2);
	assert_string_equal(b->open->target[1]->dn->uuid, "dn2");
	nn_stop(w.nn);
	world_fini(&w);
}

static void find_empty(struct world *w)
{
	const struct block empty = {w->block.id, w->block.gs, 0};

	blocks_report(&w->nn->blocks, w->st, &empty, REPLICA_RWR, false, 0);
}

/* A file that the power cut has left without a byte. */
static void an_empty_replica_is_none(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	b = write_and_lose(&w, &r, 3600000);
	on_writer(&w, find_empty);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	assert_false(calls[1].result);
	say_nobody_has_it(&w, &r, b, 2);
	assert_int_equal(calls[2].rc, 0);
	is_closed_and_missing(&w, b);
}

/* After a start nobody knows where it was written; who reports it is asked. */
static void start_anew(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	blk_set_targets(b, &w->st, NULL, 1);
	b->open->pipeline = 0;
}

static void find_older_and_start_anew(struct world *w)
{
	const struct block older = {w->block.id, w->block.gs - 1, 0};

	blocks_report(&w->nn->blocks, w->st, &older, REPLICA_RWR, false, 0);
	start_anew(w);
}

static void find_empty_and_start_anew(struct world *w)
{
	find_empty(w);
	start_anew(w);
}

static void all_replicas_being_empty_it_is_lost_after_a_start_too(void **state)
{
	struct recovered r;
	uint64_t patience;
	struct blk *b;
	struct world w;

	(void)state;
	b = write_and_lose(&w, &r, 3600000);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	on_writer(&w, find_older_and_start_anew); /* another one may have what is newer */
	patience = w.nn->dns.dead_after_ns;
	w.nn->dns.dead_after_ns = 0;
	say_nobody_has_it(&w, &r, b, 2);
	assert_true(calls[2].rc < 0);
	is_open(&w);
	w.nn->dns.dead_after_ns = patience;
	on_writer(&w, find_empty_and_start_anew);
	say_nobody_has_it(&w, &r, b, 2); /* so may one that did not register yet */
	assert_true(calls[2].rc < 0);
	is_open(&w);
	w.nn->dns.dead_after_ns = 0;
	say_nobody_has_it(&w, &r, b, 3);
	assert_int_equal(calls[3].rc, 0);
	is_closed_and_missing(&w, b);
}

static void lose_a_node_of_the_pipeline(struct world *w)
{
	blocks_find(&w->nn->blocks, w->block.id)->open->pipeline++;
}

static void find_it_again(struct world *w)
{
	blocks_find(&w->nn->blocks, w->block.id)->open->pipeline--;
}

/* Reports may be older than what was written last: only who asked the nodes can say that it is
 * gone, and not for one that was lost and may come back. */
static void a_recovery_that_comes_to_no_end_is_begun_again(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;
	uint64_t id;

	(void)state;
	b = write_and_lose(&w, &r, 0);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	id = b->open->recovery_id;
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	assert_true(b->open->recovery_id > id);
	assert_false(calls[1].result || calls[2].result);
	is_open(&w);
	on_writer(&w, lose_a_node_of_the_pipeline);
	say_nobody_has_it(&w, &r, b, 3);
	assert_true(calls[3].rc < 0);
	is_open(&w);
	on_writer(&w, find_it_again);
	say_nobody_has_it(&w, &r, b, 4);
	assert_int_equal(calls[4].rc, 0);
	is_closed_and_missing(&w, b);
}

static void forget_targets(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	blk_set_targets(b, NULL, NULL, 0);
	b->open->pipeline = 0;
	w->nn->safe.left_ns = clock_mono_ns();
}

static void commit_block(struct world *w)
{
	blk_commit(&w->nn->blocks, blocks_find(&w->nn->blocks, w->block.id), &w->block);
}

static void wait_until_dead(struct world *w)
{
	w->nn->safe.left_ns = clock_mono_ns() - w->nn->dns.dead_after_ns - 1;
}

/* After a start it is not known where it was written: nodes get the time in which they would be
 * dead. */
static void a_committed_block_that_nobody_reports_after_a_start_is_missing(void **state)
{
	struct recovered r;
	struct blk *b;
	struct world w;

	(void)state;
	for (int committed = 1; committed >= 0; committed--) {
		b = write_and_lose(&w, &r, 0);
		on_writer(&w, forget_targets);
		if (committed)
			on_writer(&w, commit_block);
		call_in_turn(&w, 1, "recoverLease", &r.recover);
		call_in_turn(&w, 2, "recoverLease", &r.recover);
		assert_false(calls[1].result || calls[2].result);
		is_open(&w);
		on_writer(&w, wait_until_dead);
		call_in_turn(&w, 3, "recoverLease", &r.recover);
		assert_int_equal(calls[3].result, committed);
		if (committed) {
			is_closed_and_missing(&w, b);
		} else { /* only a recovery makes its replicas good */
			nn_stop(w.nn);
			is_open(&w);
			world_fini(&w);
		}
	}
}

/* ---- the table of nodes ---- */

static void fsck_delete(struct world *w)
{
	const struct fsck_opts o = {
		.user = users_self(w->nn->users), .from = "127.0.0.1", .remove = true};
	struct fsck *f;
	char buf[256];

	assert_int_equal(fsck_new(w->nn, &o, &f), 0);
	while (fsck_read(f, buf, sizeof(buf)))
		;
	fsck_free(f);
	assert_false(list_empty(&w->nn->commit_queue.queue));
}

static void what_is_lost_still_is_deleted(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, true);
	fsck_delete(&w);
	run(&w);
	assert_null(read_file(&w));
	world_fini(&w);
}

static void what_came_back_is_not_deleted(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, true);
	fsck_delete(&w);
	report(&w);
	run(&w);
	assert_non_null(read_file(&w));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_block_on_no_node_is_missing_once_the_lease_of_its_file_is_recovered),
		cmocka_unit_test(
			a_block_on_no_node_is_missing_once_the_unwritten_one_behind_it_is_dropped),
		cmocka_unit_test(recovery_asks_who_may_have_bytes_that_it_needs),
		cmocka_unit_test(replicas_with_wrong_bytes_are_asked_when_there_is_no_other),
		cmocka_unit_test(a_block_that_is_recovered_is_not_committed),
		cmocka_unit_test(a_block_on_no_node_is_missing_once_the_one_behind_it_is_recovered),
		cmocka_unit_test(a_block_recovered_on_a_node_that_died_meanwhile_is_missing),
		cmocka_unit_test(a_file_whose_last_block_no_node_has_is_closed_and_misses_it),
		cmocka_unit_test(a_replica_that_a_power_cut_took_is_not_waited_for),
		cmocka_unit_test(what_an_earlier_recovery_has_made_is_recovered_once_more),
		cmocka_unit_test(an_empty_replica_is_none),
		cmocka_unit_test(all_replicas_being_empty_it_is_lost_after_a_start_too),
		cmocka_unit_test(a_recovery_that_comes_to_no_end_is_begun_again),
		cmocka_unit_test(a_committed_block_that_nobody_reports_after_a_start_is_missing),
		cmocka_unit_test(after_a_forced_leave_of_safe_mode_reports_are_waited_for),
		cmocka_unit_test(what_is_lost_still_is_deleted),
		cmocka_unit_test(what_came_back_is_not_deleted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
