/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a last block that nobody has begun is dropped when the nodes say so that can know
 * it, and never while a node that may have bytes of it is away. */
#include "common/base/clock.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

static void lose_node(struct world *w)
{
	nn_dn_lost(w->nn, w->st->dn, "test");
}

/* The node is back with 5 bytes of the block, and another one with an older replica. */
static void come_back(struct world *w)
{
	const struct dn_ident id = {"dn", "127.0.0.1", "host", "3.4.2", 9000, 1, 2, 0},
			      other_id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	const struct block b = {w->block.id, w->block.gs, 5}, older = {b.id, b.gs - 1, 5};
	struct dn *dn, *other;

	assert_int_equal(datanodes_register(&w->nn->dns, &other_id, &other), 0);
	blocks_report(&w->nn->blocks, dn_storage_add(other, "DS2", STORAGE_DISK), &older,
		      REPLICA_FINALIZED, false, 0);
	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	blocks_report(&w->nn->blocks, dn_storage_add(dn, "DS", STORAGE_DISK), &b, REPLICA_RWR,
		      false, 0);
	blocks_find(&w->nn->blocks, b.id)->open->recovery_until_ns = 0;
}

static uint32_t targets(struct world *w, const struct blk *b)
{
	uint32_t n;

	pthread_rwlock_rdlock(&w->nn->mem_lock);
	n = b->open->ntargets;
	pthread_rwlock_unlock(&w->nn->mem_lock);
	return n;
}

/* The NameNode does not know how much its writer had got acknowledged there. When the node is back
 * it is asked, and one with an older replica is not. */
static void a_block_whose_nodes_are_all_lost_is_not_taken_for_unwritten(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, 0);
	b = blocks_find(&w.nn->blocks, w.block.id);
	on_writer(&w, lose_node);
	for (int ms = 0; targets(&w, b) && ms < 10000; ms++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(targets(&w, b), 0);
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	assert_false(calls[2].result);
	assert_int_equal(read_file(&w)->nblocks, 2);
	assert_string_not_equal(read_file(&w)->client, "");
	on_writer(&w, come_back);
	call_in_turn(&w, 3, "recoverLease", &r.recover);
	nn_stop(w.nn);
	assert_int_equal(b->open->ntargets, 1);
	assert_string_equal(b->open->target[0]->dn->uuid, "dn");
	assert_false(list_empty(&b->open->target[0]->dn->recoveries));
	world_fini(&w);
}

static const struct dn_ident idents[2] = {{"dn", "127.0.0.1", "host", "3.4.2", 9000, 1, 2, 0},
					  {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0}};

/* It registers; its report, which comes later, has nothing of the block. */
static struct storage *register_again(struct world *w, int node)
{
	struct dn *dn;

	assert_int_equal(datanodes_register(&w->nn->dns, &idents[node], &dn), 0);
	return dn_storage_add(dn, node ? "DS2" : "DS", STORAGE_DISK);
}

static void register_first(struct world *w)
{
	(void)register_again(w, 0);
}

static void first_is_back(struct world *w)
{
	register_again(w, 0)->reported = true;
}

static void second_is_back(struct world *w)
{
	register_again(w, 1)->reported = true;
}

static void lose_at_once(struct world *w, int node)
{
	nn_dn_lost(w->nn, datanodes_find(&w->nn->dns, idents[node].uuid), "test");
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
}

static void lose_first(struct world *w)
{
	lose_at_once(w, 0);
}

static void lose_second(struct world *w)
{
	lose_at_once(w, 1);
}

static void give_two_nodes(struct world *w)
{
	struct storage *st[2] = {w->st, register_again(w, 1)};
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	st[0]->reported = st[1]->reported = true;
	blk_set_targets(b, st, NULL, 2);
	b->open->pipeline = 2;
}

/* The second block of /f was given two nodes. Each lease recovery begins one of the block. */
static struct blk *give_up_on_two_nodes(struct world *w, struct recovered *r)
{
	(void)add_second_block(w, r, 0);
	w->nn->set.recovery_ms = 0;
	on_writer(w, give_two_nodes);
	return blocks_find(&w->nn->blocks, w->block.id);
}

/* The recovery goes to @ntargets nodes. */
static void recovery_asks(struct world *w, struct recovered *r, const struct blk *b,
			  uint32_t ntargets)
{
	call_in_turn(w, 2, "recoverLease", &r->recover);
	assert_false(calls[2].result);
	assert_int_equal(read_file(w)->nblocks, 2);
	assert_int_equal(b->open->ntargets, ntargets);
}

static void the_word_of_nobody_counts(struct world *w, struct recovered *r, const struct blk *b,
				      bool counts)
{
	say_nobody_has_it(w, r, b, 3);
	assert_int_equal(calls[3].rc == 0, counts);
	assert_int_equal(read_file(w)->nblocks, counts ? 1 : 2);
	assert_int_equal(!read_file(w)->client[0], counts);
}

static void nodes_that_were_lost_are_asked_when_all_of_them_are_back(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, lose_first);
	on_writer(&w, lose_second);
	recovery_asks(&w, &r, b, 0);
	on_writer(&w, register_first);
	recovery_asks(&w, &r, b, 0);
	on_writer(&w, first_is_back);
	recovery_asks(&w, &r, b, 1);
	the_word_of_nobody_counts(&w, &r, b, false);
	on_writer(&w, second_is_back);
	recovery_asks(&w, &r, b, 2);
	on_writer(&w, lose_first); /* once more */
	the_word_of_nobody_counts(&w, &r, b, false);
	on_writer(&w, first_is_back);
	recovery_asks(&w, &r, b, 2);
	the_word_of_nobody_counts(&w, &r, b, true);
	nn_stop(w.nn);
	world_fini(&w);
}

/* The second one is lost, and the first one may have been in the power cut, too. */
static void a_node_that_was_started_anew_does_not_speak_for_one_that_is_away(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, first_is_back);
	on_writer(&w, lose_second);
	recovery_asks(&w, &r, b, 1);
	the_word_of_nobody_counts(&w, &r, b, false);
	on_writer(&w, second_is_back);
	recovery_asks(&w, &r, b, 2);
	the_word_of_nobody_counts(&w, &r, b, true);
	nn_stop(w.nn);
	world_fini(&w);
}

/* Nothing was acknowledged without it. */
static void a_node_that_was_there_all_the_time_knows_that_nothing_was_written(void **state)
{
	static void (*const lose_one[])(struct world * w) = {lose_first, lose_second};
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	for (int i = 0; i < 2; i++) {
		b = give_up_on_two_nodes(&w, &r);
		on_writer(&w, lose_one[i]);
		recovery_asks(&w, &r, b, 1);
		the_word_of_nobody_counts(&w, &r, b, true);
		nn_stop(w.nn);
		world_fini(&w);
	}
}

/* As after updatePipeline: the second node has what was written before. */
static void go_on_with_the_first(struct world *w)
{
	struct storage *second = dn_storage(datanodes_find(&w->nn->dns, "dn2"), "DS2");
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	blocks_report(&w->nn->blocks, second, &w->block, REPLICA_RBW, false, 0);
	b->b.gs++;
	blk_set_targets(b, &w->st, NULL, 1);
	b->open->pipeline = 1;
}

static void a_node_that_has_left_the_pipeline_is_not_asked(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, go_on_with_the_first);
	assert_int_equal(b->nreps, 1);
	recovery_asks(&w, &r, b, 1);
	assert_ptr_equal(b->open->target[0], w.st);
	nn_stop(w.nn);
	world_fini(&w);
}

static void report_written(struct world *w)
{
	blocks_report(&w->nn->blocks, w->st, &w->block, REPLICA_RBW, false, 0);
}

/* After a start of the NameNode, which does not know the pipeline. */
static void a_block_whose_only_holder_is_lost_is_not_taken_for_unwritten(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, 0);
	b = blocks_find(&w.nn->blocks, w.block.id);
	no_pipeline(&w, w.block.id);
	on_writer(&w, report_written);
	on_writer(&w, lose_first);
	assert_int_equal(b->nreps, 0);
	recovery_asks(&w, &r, b, 0);
	nn_stop(w.nn);
	world_fini(&w);
}

static struct storage *another_disk(struct world *w)
{
	return dn_storage_add(w->st->dn, "DS-other", STORAGE_DISK);
}

/* The node took another disk than the one that was named to it. */
static void write_to_another_disk(struct world *w)
{
	blocks_report(&w->nn->blocks, another_disk(w), &w->block, REPLICA_RBW, false, 0);
}

static void fail_other_disk(struct world *w)
{
	another_disk(w)->failed = true;
	blocks_forget(&w->nn->blocks, w->st->dn, another_disk(w));
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
}

/* What it wrote there was known once, and the pipeline was given anew since. */
static void lose_other_disk(struct world *w)
{
	blk_add_lost(blocks_find(&w->nn->blocks, w->block.id), another_disk(w), 0);
}

/* updatePipeline names the disk that the node was given, not the one it took. */
static void renew_and_fail_other_disk(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	write_to_another_disk(w);
	b->b.gs++;
	blk_set_targets(b, &w->st, NULL, 1);
	assert_string_equal(b->open->target[0]->id, "DS-other");
	fail_other_disk(w);
	b->open->pipeline = 2;
}

static void a_pipeline_that_is_renewed_keeps_its_disks(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, renew_and_fail_other_disk);
	on_writer(&w, lose_second);
	recovery_asks(&w, &r, b, 0);
	the_word_of_nobody_counts(&w, &r, b, false);
	nn_stop(w.nn);
	world_fini(&w);
}

/* The disk that is named has failed meanwhile: it is lost at once. */
static void renew_on_a_failed_disk(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	w->st->failed = true;
	blk_set_targets(b, &w->st, NULL, 1);
	b->open->pipeline = 1;
}

static void a_pipeline_that_is_renewed_on_a_failed_disk_has_lost_it(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, renew_on_a_failed_disk);
	assert_int_equal(b->open->ntargets, 0);
	assert_int_equal(b->open->nlost, 1);
	assert_string_equal(b->open->lost[0].node, "dn");
	nn_stop(w.nn);
	world_fini(&w);
}

/* The disk of a node that is a target by another one was replaced. */
static void replace_other_disk(struct world *w)
{
	lose_other_disk(w);
	another_disk(w)->failed = true;
	w->st->dn->report_ns = 1;
	w->nn->dns.dead_after_ns = 0;
}

static void nor_does_one_whose_disk_was_replaced(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	b = give_up_on_two_nodes(&w, &r);
	on_writer(&w, lose_second);
	on_writer(&w, replace_other_disk);
	recovery_asks(&w, &r, b, 1);
	assert_int_equal(b->open->nlost, 1); /* the second node */
	the_word_of_nobody_counts(&w, &r, b, false);
	nn_stop(w.nn);
	world_fini(&w);
}

/* Its bytes are wrong in part, and nobody else has any. */
static void report_wrong(struct world *w)
{
	report_written(w);
	blocks_report_corrupt(&w->nn->blocks, &w->block, w->st->dn, w->st, false);
}

static void a_block_whose_only_holder_has_wrong_bytes_is_not_taken_for_unwritten(void **state)
{
	struct recovered r;
	const struct blk *b;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, 0);
	b = blocks_find(&w.nn->blocks, w.block.id);
	no_pipeline(&w, w.block.id);
	on_writer(&w, report_wrong);
	on_writer(&w, lose_first);
	assert_int_equal(b->nreps, 0);
	recovery_asks(&w, &r, b, 0);
	nn_stop(w.nn);
	world_fini(&w);
}

/* As after a start: nothing was given since. */
static void forget_since(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	blk_set_targets(b, NULL, NULL, 0);
	b->open->pipeline = 0;
	b->open->since_ns = 0;
	w->nn->safe.left_ns = clock_mono_ns();
}

static void after_a_start_nodes_have_the_time_in_which_they_would_be_dead(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	(void)add_second_block(&w, &r, 0);
	b = blocks_find(&w.nn->blocks, w.block.id);
	w.nn->set.recovery_ms = 0;
	on_writer(&w, forget_since);
	recovery_asks(&w, &r, b, 0);
	w.nn->dns.dead_after_ns = 0;
	call_in_turn(&w, 2, "recoverLease", &r.recover);
	assert_true(calls[2].result);
	assert_int_equal(read_file(&w)->nblocks, 1);
	nn_stop(w.nn);
	world_fini(&w);
}

static void a_node_that_lost_a_disk_does_not_say_that_nothing_was_written(void **state)
{
	static void (*const loses[])(struct world * w) = {fail_other_disk, lose_other_disk};
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	for (int i = 0; i < 2; i++) {
		b = give_up_on_two_nodes(&w, &r);
		on_writer(&w, lose_second);
		if (loses[i] == fail_other_disk) {
			on_writer(&w, write_to_another_disk);
			assert_string_equal(b->open->target[0]->id, "DS-other");
		}
		on_writer(&w, loses[i]);
		recovery_asks(&w, &r, b, i ? 1 : 0);
		the_word_of_nobody_counts(&w, &r, b, false);
		nn_stop(w.nn);
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_whose_nodes_are_all_lost_is_not_taken_for_unwritten),
		cmocka_unit_test(nodes_that_were_lost_are_asked_when_all_of_them_are_back),
		cmocka_unit_test(a_node_that_was_started_anew_does_not_speak_for_one_that_is_away),
		cmocka_unit_test(a_node_that_was_there_all_the_time_knows_that_nothing_was_written),
		cmocka_unit_test(a_node_that_has_left_the_pipeline_is_not_asked),
		cmocka_unit_test(a_block_whose_only_holder_is_lost_is_not_taken_for_unwritten),
		cmocka_unit_test(a_node_that_lost_a_disk_does_not_say_that_nothing_was_written),
		cmocka_unit_test(a_pipeline_that_is_renewed_keeps_its_disks),
		cmocka_unit_test(a_pipeline_that_is_renewed_on_a_failed_disk_has_lost_it),
		cmocka_unit_test(nor_does_one_whose_disk_was_replaced),
		cmocka_unit_test(
			a_block_whose_only_holder_has_wrong_bytes_is_not_taken_for_unwritten),
		cmocka_unit_test(after_a_start_nodes_have_the_time_in_which_they_would_be_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
