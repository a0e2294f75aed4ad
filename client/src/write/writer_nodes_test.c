/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: nodes that refuse, fail or pass on a lie are told apart; a block of which nothing
 * is acknowledged is begun again; and who gives up names the first node. */
#include "common/base/clock.h"

#include "client/src/write/writer_test_fixture.h"

/* Or it works for a while. */
static int fake_opens(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad, struct err *err)
{
	(void)ws;
	(void)ret_until_ns;
	(void)ret_bad;
	(void)err;
	return 1;
}

static const struct block_stream fake_dying_ops = {.runs_ahead = true,
						   .opened = fake_opens,
						   .send = fake_send,
						   .next_ack = fake_next_ack,
						   .wait = fake_wait,
						   .close_write = fake_close};

/* ---- tests ---- */

static void no_data_node_at_all_is_no_lack_of_room(void **state)
{
	static const struct {
		const char *nodes;
		int rc;
	} rows[] = {
		{"0 datanode(s) running and no node(s) are excluded in this operation.",
		 -ETIMEDOUT},
		{"0 datanode(s) running and 3 node(s) are excluded in this operation.", -ETIMEDOUT},
		{"3 datanode(s) running and 3 node(s) are excluded in this operation.",
		 -ETIMEDOUT}, /* all of them have failed us */
		{"3 datanode(s) running and 2 node(s) are excluded in this operation.", -ENOSPC},
		{"1 datanode(s) running and no node(s) are excluded in this operation.", -ENOSPC},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;
		char text[300];

		snprintf(
			text, sizeof(text),
			"File /f could only be written to 0 of the 1 minReplication nodes. There are %s",
			rows[i].nodes);
		refusal = text;
		assert_int_equal(output_write(f, bytes, 1, &err), rows[i].rc);
		refusal = NULL;
		assert_int_equal(strstr(err.text, "no data node can be reached") != NULL,
				 rows[i].rc == -ETIMEDOUT);
		output_free(f);
	}
}

/* The only node is full since its last heartbeat: it says so itself, and is there. */
static void a_node_that_refuses_is_there(void **state)
{
	static const struct {
		int open_rc, rc;
	} rows[] = {{-EIO, -ENOSPC},
		    {-ETIMEDOUT, -ETIMEDOUT},
		    {-ECONNREFUSED, -ETIMEDOUT},
		    {-ECONNRESET, -ETIMEDOUT}};

	(void)state;
	fs.set.block_write_retries = 3;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		open_rc = rows[i].open_rc;
		refused_from = 1;
		refusal =
			"File /f could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 1 node(s) are excluded";
		assert_int_equal(output_write(f, bytes, 1, &err), rows[i].rc);
		refusal = NULL;
		open_rc = 0;
		refused_from = 0;
		output_free(f);
	}
	fs.set.block_write_retries = 0;
}

static void give_first(struct output *f)
{
	Hd__AddBlockResponseProto *m;

	add_block(NULL, &m);
	writer_give_first(container_of(f, struct writer, f), m->block);
	m->block = NULL;
	pb_free(m);
}

/* All of a small file is queued as it is closed. Its first node fails, and for the next one there
 * is no memory. */
static void a_block_of_which_nothing_was_sent_is_begun_again(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	struct err err = ERR_INIT;

	(void)state;
	give_first(f);
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	dry = true;
	if (output_close(f, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(blocks, 3);
	assert_int_equal(stamps, 0);
	assert_int_equal(by_rdma, 1);
	assert_int_equal(f->blamed.failures, 1); /* that of the first node */
	output_free(f);
	assert_int_equal(block[2].len, 1000);
	assert_memory_equal(block[2].bytes, bytes, 1000);
	assert_true(complete && block[2].finished && !block[1].finished);
}

/* Its nodes were chosen a minute ago. */
static void a_stale_first_block_is_given_back(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	give_first(f);
	container_of(f, struct writer, f)->first_ns -= 60 * NS_PER_S;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	end(f);
	assert_int_equal(abandoned, 1);
	assert_int_equal(blocks, 2);
	assert_int_equal(block[0].len, 0);
	assert_int_equal(block[1].len, 1000);
	assert_true(block[1].finished);
}

static void lent_no_more(void *arg)
{
	*(bool *)arg = true;
}

/* No longer than a packet, but it came in pieces: the first node fails when one of the two packets
 * is acknowledged. The replica of the next one is whole, or has that packet only. */
static void a_first_block_of_two_packets_survives_a_node_that_fails_between(void **state)
{
	const size_t len = 300u << 10, rest = 100;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct fake_stream dying = {
			.base.ops = &fake_dying_ops, .late = 1, .dies = true, .full = i};
		struct output *f;
		struct err err = ERR_INIT;
		bool back = false;

		fs.set.packet_size = BIG_BLOCK + (16u << 10);
		nodes = 2;
		f = begin_sized(BIG_BLOCK);
		give_first(f);
		first_stream = &dying;
		assert_int_equal(output_lend(f, bytes, len, lent_no_more, &back, &err), len);
		assert_int_equal(output_write(f, bytes + len, rest, &err), rest);
		if (output_close(f, &err) < 0)
			fail_msg("%s", err.text);
		output_free(f);
		first_stream = NULL;
		fs.set.packet_size = 16u << 10;
		nodes = 1;
		assert_true(complete && back && block[0].finished);
		assert_int_equal(blocks, 1);
		assert_int_equal(block[0].len, len + rest);
		assert_memory_equal(block[0].bytes, bytes, len + rest);
	}
}

/* Of two nodes @who lies. */
static struct output *begin_with_liar(const char *who, bool so)
{
	fs.set.block_write_retries = 3;
	fs.set.exclude_ms = 600000;
	nodes = 2;
	chooses = true;
	liar = who;
	pretends = so;
	return begin();
}

static void no_liars(void)
{
	fs.set.block_write_retries = fs.set.exclude_ms = 0;
	nodes = 1;
	chooses = pretends = false;
	liar = NULL;
}

/* The liar is the last of its chain, so the node before it seems to be the one that fails. */
static void a_node_that_passes_on_a_lie_has_a_second_chance(void **state)
{
	struct output *f = begin_with_liar("1", false);
	struct err err = ERR_INIT;

	(void)state;
	if (output_write(f, bytes, 2 * BLOCK, &err) < 0)
		fail_msg("%s", err.text);
	end(f);
	assert_int_equal(block[blocks - 1].len, BLOCK);
	/* both nodes, the liar, the other one, and so the second block */
	assert_int_equal(blocks, 4);
	no_liars();
}

/* The first node has failed. The second one passes on what the third one says, and somebody relies
 * on what the two have. */
static void a_repair_calls_back_who_passed_on_a_lie(void **state)
{
	struct output *f = begin_with_liar("2", false);
	struct err err = ERR_INIT;

	(void)state;
	liar = NULL;
	nodes = 3;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	liar = "2";
	container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base)->lies =
		true;
	assert_int_equal(output_write(f, bytes + 1000, 1000, &err), 1000);
	if (output_flush(f, 0, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(container_of(f, struct writer, f)->pipe.lb->n_locs, 1);
	assert_string_equal(container_of(f, struct writer, f)->pipe.lb->locs[0]->id->datanodeuuid,
			    "1");
	end(f);
	expect_bytes(2000);
	assert_int_equal(blocks, 1);
	no_liars();
}

/* The second node is told to recover what it never had, so both nodes of the chain seem to fail. */
static void a_block_of_which_nothing_is_acknowledged_is_begun_elsewhere(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct output *f = begin_with_liar("0", true);
		const size_t len = BLOCK + 1000;

		if (output_write(f, bytes, len, &err) < 0 || (i && output_flush(f, 0, &err) < 0))
			fail_msg("%s", err.text);
		end(f);
		assert_int_equal(blocks, 3); /* the liar's; and two of the other node */
		assert_false(block[0].finished);
		assert_memory_equal(block[1].bytes, bytes, BLOCK);
		assert_int_equal(block[2].len, len - BLOCK);
		assert_memory_equal(block[2].bytes, bytes + BLOCK, len - BLOCK);
	}
	no_liars();
}

static void fail_behind_a_flush(int rc, int expected)
{
	struct output *f = begin_with_liar("0", false);
	struct err err = ERR_INIT;

	liar = NULL;
	recovery_rc = rc;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), 0); /* somebody relies on it */
	container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base)->lies =
		true;
	pretends = true;
	liar = "0";
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), expected);
	assert_non_null(strstr(err.text, "the honest node closed"));
	assert_non_null(strstr(err.text, "the liar acknowledges"));
	assert_int_equal(blocks, 1);
	output_free(f);
	recovery_rc = -ECONNRESET;
	no_liars();
}

static void all_nodes_failed_names_the_first_one_too(void **state)
{
	(void)state;
	fail_behind_a_flush(-ECONNRESET, -EIO);
	fail_behind_a_flush(-ECONNREFUSED, -ETIMEDOUT); /* it may be back */
}

/* Not only of the last node: what is amiss with the others a person must know, too. */
static void who_gives_up_says_what_the_first_node_did(void **state)
{
	const int then[] = {-ENOTSUP, -ECONNREFUSED};

	(void)state;
	fs.set.block_write_retries = 3;
	for (size_t i = 0; i < 2; i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		refusal = "File /f could only be written to 0 of the 1 minReplication nodes.";
		refused_from = 2;
		open_rc = -ETIMEDOUT;
		then_rc = then[i];
		assert_true(output_write(f, bytes, 2 * BLOCK, &err) < 0);
		assert_non_null(strstr(err.text, "the node refuses, or nobody hears"));
		assert_non_null(
			strstr(err.text, then[i] == -ENOTSUP ? "it has no RDMA" : "could only be"));
		assert_true(then[i] != -ENOTSUP || err.rc == -ETIMEDOUT);
		refusal = NULL;
		open_rc = then_rc = 0;
		refused_from = 0;
		output_free(f);
	}
	fs.set.block_write_retries = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_data_node_at_all_is_no_lack_of_room),
		cmocka_unit_test(a_node_that_refuses_is_there),
		cmocka_unit_test(a_node_that_passes_on_a_lie_has_a_second_chance),
		cmocka_unit_test(a_repair_calls_back_who_passed_on_a_lie),
		cmocka_unit_test(a_block_of_which_nothing_is_acknowledged_is_begun_elsewhere),
		cmocka_unit_test(all_nodes_failed_names_the_first_one_too),
		cmocka_unit_test(who_gives_up_says_what_the_first_node_did),
		cmocka_unit_test(a_block_of_which_nothing_was_sent_is_begun_again),
		cmocka_unit_test(a_stale_first_block_is_given_back),
		cmocka_unit_test(a_first_block_of_two_packets_survives_a_node_that_fails_between),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
