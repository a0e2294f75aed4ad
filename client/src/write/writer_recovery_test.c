/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a replicated file whose data nodes fail while it is written: what a flush has
 * promised is on every node of the last pipeline that the NameNode knows, and after a close all of
 * it, finalised, with one stamp; a node that joins copies from one that has the bytes; an append
 * that fails on its way is recovered as an append; hsync tells the NameNode again after a recovery.
 * A pipeline is set up with the token of its stamp.
 * The data nodes are models that keep their replicas, and fail by a plan or by chance. */
#include "client/src/write/writer_recovery_test_fixture.h"

/* ---- by a plan ---- */

static void each_node_may_fail_at_each_packet(void **state)
{
	(void)state;
	for (unsigned who = 0; who < 3; who++)
		for (uint32_t packet = 0; packet < 7; packet++)
			for (int lose = 0; lose < 2; lose++) {
				struct writer *w = begin(3);

				plan.packet = packet;
				plan.who = who;
				plan.lose_acks = lose;
				put(w, 10000);
				flush(w, 0);
				expect_there(10000, false);
				put(w, 20000);
				flush(w, 0);
				expect_there(30000, false);
				end(w);
			}
}

/* A flushed block keeps its number of nodes: the new one copies from one that has it. */
static void a_flushed_block_gets_another_node(void **state)
{
	struct writer *w = begin(3);

	(void)state;
	plan.packet = 3;
	plan.who = 1;
	put(w, 10000);
	flush(w, 0);
	put(w, 20000);
	flush(w, 0);
	assert_int_equal(nn.transfers, 1);
	assert_int_equal(nn.block[0].n, 3);
	expect_there(30000, false);
	end(w);
}

/* One that was not flushed goes on with two of three, as HDFS's policy says; of two with one. */
static void a_block_that_was_not_flushed_goes_on_with_fewer(void **state)
{
	struct writer *w = begin(3);

	(void)state;
	plan.packet = 3;
	plan.who = 1;
	put(w, 50000);
	end(w);
	assert_int_equal(nn.transfers, 0);
	assert_int_equal(nn.block[0].n, 2);
	w = begin(2);
	plan.packet = 3;
	put(w, 10000);
	flush(w, 0);
	put(w, 40000);
	end(w);
	assert_int_equal(nn.transfers, 0);
	assert_int_equal(nn.block[0].n, 1);
}

/* It has started a moment ago, and some of the nodes, or all, have not registered yet. */
static void a_namenode_that_forgets_nodes_adds_one_all_the_same(void **state)
{
	(void)state;
	for (unsigned forgets = 1; forgets <= 2; forgets++) {
		struct writer *w = begin(3);

		put(w, 10000);
		flush(w, 0);
		nn.forgets = forgets;
		break_next_packet(w, 1, false);
		put(w, 1000);
		flush(w, 0);
		assert_int_equal(nn.transfers, 1);
		assert_int_equal(nn.block[0].n, 3);
		expect_there(11000, false);
		end(w);
	}
}

/* Old nodes alone, some of them, or none. */
static void a_list_without_a_new_node_is_refused(void **state)
{
	(void)state;
	for (unsigned forgets = 0; forgets <= 2; forgets++) {
		struct writer *w = begin(3);
		struct err err = ERR_INIT;

		put(w, 10000);
		flush(w, 0);
		nn.forgets = forgets;
		nn.offers_none = true;
		break_next_packet(w, 1, false);
		put(w, 1000);
		assert_int_equal(output_flush(&w->f, 0, &err), -ENOSPC);
		assert_non_null(strstr(err.text, forgets < 2 ? "no further data node"
							     : "offers no data node"));
		assert_int_equal(nn.transfers, 0);
		expect_there(10000, false);
		(void)output_close(&w->f, &err);
		output_free(&w->f);
	}
}

/* The first candidate cannot take the copy, the first source cannot give it. */
static void a_copy_that_fails_is_tried_elsewhere(void **state)
{
	(void)state;
	for (int source = 0; source < 2; source++) {
		struct writer *w = begin(3);
		unsigned last;

		put(w, 10000);
		flush(w, 0);
		last = nn.block[0].at[2];
		for (unsigned i = 0; i < NODES && !source; i++)
			if (node[i].replica[0].is == NONE)
				node[i].fails = 1;
		if (source)
			node[last].fails = 1;
		break_next_packet(w, 0, false);
		put(w, 20000);
		flush(w, 0);
		assert_true(nn.transfers >= 2);
		expect_there(30000, false);
		end(w);
		if (source) /* the node that could not give it is blamed, and gone */
			for (unsigned i = 0; i < nn.block[0].n; i++)
				assert_int_not_equal(nn.block[0].at[i], last);
	}
}

static void a_close_that_breaks_is_closed_by_the_nodes(void **state)
{
	(void)state;
	for (unsigned who = 0; who < 3; who++)
		for (int lose = 0; lose < 2; lose++) {
			struct writer *w = begin(3);

			put(w, 10000);
			flush(w, 0);
			break_next_packet(w, who, lose); /* which is the last one */
			end(w);
			assert_int_equal(nn.transfers, 0); /* finalised replicas are not copied */
			assert_int_equal(nn.closes, 2);
			assert_int_equal(plan.stages[plan.streams - 1], DT_CLOSE_RECOVERY);
		}
}

static void hsync_tells_the_namenode_again_after_a_recovery(void **state)
{
	struct writer *w = begin(3);

	(void)state;
	plan.packet = 4;
	plan.who = 2;
	put(w, 10000);
	flush(w, DFS_SYNC_DISK);
	assert_int_equal(nn.fsyncs, 1);
	flush(w, DFS_SYNC_DISK);
	assert_int_equal(nn.fsyncs, 1); /* it knows */
	put(w, 30000);
	flush(w, DFS_SYNC_DISK);
	assert_int_equal(nn.stamps, 1);
	assert_int_equal(nn.fsyncs, 2);
	put(w, BLOCK); /* another block */
	flush(w, DFS_SYNC_DISK);
	assert_int_equal(nn.fsyncs, 3);
	end(w);
}

/* Pipelines that break without an ack in between are given up; others are not, however many. */
static void recoveries_have_a_bound_that_acks_undo(void **state)
{
	struct writer *w = begin(3);
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 20; i++) {
		put(w, 1000);
		flush(w, 0);
		for (unsigned n = 0; n < NODES; n++)
			node[n].fails = 0;
		suspect_nodes_fini(&w->f.blamed);
		w->f.blamed = (struct suspect_nodes){0};
		for (unsigned n = 0; n < NODES; n++) /* those that are out lose what they have */
			if (!is_in_pipeline(n))
				memset(&node[n].replica[0], 0, sizeof(node[n].replica[0]));
		break_next_packet(w, i % 3, i % 2);
	}
	assert_int_equal(nn.stamps, 19);
	plan.each = true; /* from now on each one breaks with its first packet */
	put(w, 1000);
	assert_int_equal(output_flush(&w->f, 0, &err), -ECONNRESET);
	assert_non_null(strstr(err.text, "pipelines in a row failed"));
	assert_int_equal(nn.stamps, 19 + 5);
	(void)output_close(&w->f, &err);
	output_free(&w->f);
}

/* ---- append ---- */

static void answer_append(struct writer *w, uint64_t len)
{
	Hd__LocatedBlockProto *lb;
	Hd__AddBlockResponseProto *m;
	struct err err = ERR_INIT;

	answer_located(0, nn.block[0].gs, nn.block[0].at, nn.block[0].n, &m);
	lb = m->block;
	m->block = NULL;
	pb_free(m);
	lb->b->has_numbytes = 1;
	lb->b->numbytes = len;
	assert_int_equal(writer_reopen(w, lb, len, &err), 0);
}

static struct writer *begin_append(uint64_t len)
{
	struct writer *w = begin(3);

	nn.blocks = nn.in_file = 1;
	nn.block[0].n = 3;
	nn.block[0].gs = nn.next_gs;
	for (unsigned i = 0; i < 3; i++) {
		struct replica *r = &node[i].replica[0];

		nn.block[0].at[i] = i;
		*r = (struct replica){.is = FINALIZED, .gs = nn.next_gs, .len = len, .acked = len};
		memcpy(r->bytes, bytes, len);
	}
	return w;
}

static void an_append_goes_on_where_the_block_ends(void **state)
{
	(void)state;
	for (uint64_t len = 1000; len <= 1024; len += 24) { /* in a chunk, and at its end */
		struct writer *w = begin_append(len);

		answer_append(w, len);
		assert_int_equal(plan.stages[0], DT_SETUP_APPEND);
		put(w, 20000);
		flush(w, 0);
		expect_there(len + 20000, false);
		end(w);
	}
}

/* Some nodes have begun the append, then one refuses: they hold replicas being written. */
static void an_append_that_fails_on_its_way_is_recovered_as_one(void **state)
{
	(void)state;
	for (unsigned who = 0; who < 3; who++) {
		struct writer *w = begin_append(1000);

		node[who].fails = 1;
		answer_append(w, 1000);
		assert_int_equal(plan.stages[0], DT_SETUP_APPEND);
		assert_int_equal(plan.stages[1], DT_SETUP_APPEND_RECOVERY);
		put(w, 20000);
		end(w);
	}
}

static void an_append_to_a_block_longer_than_its_file_is_refused(void **state)
{
	struct writer *w = begin_append(1000);
	Hd__AddBlockResponseProto *m;
	Hd__LocatedBlockProto *lb;
	struct err err = ERR_INIT;

	(void)state;
	answer_located(0, nn.block[0].gs, nn.block[0].at, nn.block[0].n, &m);
	lb = m->block;
	m->block = NULL;
	pb_free(m);
	lb->b->has_numbytes = 1;
	lb->b->numbytes = 1000;
	assert_int_equal(writer_reopen(w, lb, 999, &err), -EPROTO);
	output_free(&w->f);
}

/* ---- by chance ---- */

static void whatever_fails_nothing_promised_is_lost(void **state)
{
	unsigned ended_well = 0, broke = 0;

	(void)state;
	test_random_begin();
	for (int run = 0; run < RUNS; run++) {
		struct writer *w = begin(1 + random_below(3));
		uint64_t promised = 0;
		struct err err = ERR_INIT;
		int rc = 0;

		plan.by_chance = true;
		while (rc == 0 && output_length(&w->f) < FILE_MAX - 20000 && random_below(12)) {
			const size_t len = 1 + random_below(20000);
			ssize_t n = output_write(&w->f, bytes + output_length(&w->f), len, &err);

			rc = n < 0 ? (int)n : 0;
			if (rc == 0 && random_below(2))
				rc = output_flush(&w->f, random_below(2) ? DFS_SYNC_DISK : 0, &err);
			else
				continue;
			if (rc == 0)
				promised = output_length(&w->f);
			if (rc == 0)
				expect_there(promised, false);
		}
		if (rc == 0)
			rc = output_close(&w->f, &err);
		else
			(void)output_close(&w->f, &err);
		if (rc == 0) {
			expect_there(output_length(&w->f), true);
			ended_well++;
		} else { /* what was promised is there still */
			expect_there(promised, false);
		}
		broke += nn.stamps > 0;
		output_free(&w->f);
	}
	assert_true(ended_well > RUNS / 4);
	assert_true(broke > RUNS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_node_may_fail_at_each_packet),
		cmocka_unit_test(a_flushed_block_gets_another_node),
		cmocka_unit_test(a_block_that_was_not_flushed_goes_on_with_fewer),
		cmocka_unit_test(a_namenode_that_forgets_nodes_adds_one_all_the_same),
		cmocka_unit_test(a_list_without_a_new_node_is_refused),
		cmocka_unit_test(a_copy_that_fails_is_tried_elsewhere),
		cmocka_unit_test(a_close_that_breaks_is_closed_by_the_nodes),
		cmocka_unit_test(hsync_tells_the_namenode_again_after_a_recovery),
		cmocka_unit_test(recoveries_have_a_bound_that_acks_undo),
		cmocka_unit_test(an_append_goes_on_where_the_block_ends),
		cmocka_unit_test(an_append_that_fails_on_its_way_is_recovered_as_one),
		cmocka_unit_test(an_append_to_a_block_longer_than_its_file_is_refused),
		cmocka_unit_test(whatever_fails_nothing_promised_is_lost),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
