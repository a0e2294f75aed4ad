/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a block being written and the next node: the sender hears of a packet, and
 * readers see it, when both nodes have it. A next node that dies, lies or acknowledges out of turn
 * is blamed; one that finds damage, or hangs up behind its last ack, is not. A damaged packet goes
 * no further and is in no block. What readers see never shrinks. */
#include "datanode/block/block_write_chain_test_fixture.h"

/* ---- the next node ---- */

static void the_next_node_has_it_before_readers_and_the_sender_hear(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 4096, (struct how){.sync = false});
	send_piece(1, 4096, 4096, (struct how){.sync = false});
	await(hop.count == 2 && replica().block.len == 8192); /* in the file */
	pass();
	assert_int_equal(replica().visible, 0);
	assert_int_equal(sender.acked, -1);
	hop_acks(0, DT_SUCCESS);
	await(sender.acked == 0 && replica().visible == 4096);
	hop_acks(1, DT_SUCCESS);
	await(sender.acked == 1 && replica().visible == 8192);
	end();
}

/* It may be the faster one. */
static void this_node_has_it_before_the_sender_hears(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = false});
	await(hop.count == 1 && disk.writes_held == 1);
	hop_acks(0, DT_SUCCESS);
	pass();
	assert_int_equal(sender.acked, -1);
	assert_int_equal(replica().visible, 0);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.acked == 0);
	end();
}

static void an_ack_out_of_turn_breaks_the_chain(void **state)
{
	(void)state;
	for (int nothing = 0; nothing < 2; nothing++) {
		begin((struct begin){.chain = true});
		if (!nothing) {
			send_piece(0, 0, 100, (struct how){.sync = false});
			send_piece(1, 100, 100, (struct how){.sync = false});
			await(hop.count == 2);
		}
		hop_acks(1, DT_SUCCESS); /* before 0, or of what was never sent */
		await(sender.blames_hop && hop.closing);
		assert_int_equal(sender.acked, -1);
		end();
	}
}

/* Also when the number is the right one, and an older operation of the same place had it. */
static void an_ack_of_what_was_not_forwarded_breaks_the_chain(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	hop_acks(0, DT_SUCCESS);
	await(sender.blames_hop);
	end();
}

static void a_next_node_that_dies_is_named_and_nothing_is_acknowledged_after(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	await(hop.count == 1);
	hop_breaks();
	await(sender.blames_hop);
	send_piece(1, 100, 100, (struct how){.sync = false});
	assert_int_equal(hop.count, 1); /* nothing is handed to it any more */
	assert_int_equal(sender.acked, -1);
	assert_int_equal(sender.own, 0); /* this node is well */
	end();
}

/* No memory window was spare to name the piece by. */
static void what_this_node_lacks_is_not_laid_on_the_next_one(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	await(hop.count == 1);
	hop.base.user->ops->broken(hop.base.user, -ENOBUFS);
	await(sender.ended);
	assert_false(sender.blames_hop);
	assert_int_equal(sender.acked, -1);
	assert_int_equal(sender.rc, -ENOBUFS);
	end();
}

static void a_failure_behind_reaches_the_sender(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	await(hop.count == 1);
	hop_acks(0, DT_ERROR_UNSUPPORTED);
	await(sender.error_of_hop);
	assert_int_equal(sender.acked, -1);
	end();
}

/* What this node has verified was damaged here, or on its way from here. */
static void damage_that_the_next_node_finds_is_this_nodes(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	await(hop.count == 1);
	hop_acks(0, DT_ERROR_CHECKSUM);
	await(sender.ended);
	assert_false(sender.blames_hop);
	assert_int_equal(sender.acked, -1);
	assert_int_equal(sender.rc, -EBADMSG);
	end();
}

static void a_next_node_may_hang_up_behind_its_last_ack(void **state)
{
	(void)state;
	for (int before = 0; before < 2; before++) {
		begin((struct begin){.chain = true});
		disk.hold_writes = true; /* this node is the slower one */
		send_piece(0, 0, 4096, (struct how){.sync = false});
		send_piece(1, 4096, 0, (struct how){.last = true});
		await(hop.count == 2 && disk.writes_held == 1);
		hop_acks(0, DT_SUCCESS);
		if (!before)
			hop_acks(1, DT_SUCCESS);
		hop_breaks();
		pass();
		assert_int_equal(sender.blames_hop, before);
		disk.hold_writes = false;
		sem_post(&write_go);
		await(sender.ended);
		if (!before)
			assert_int_equal(sender.acked, 1);
		end();
	}
}

/* While the disk has the first of them still. */
static void buffers_that_a_next_node_had_are_given_back_when_it_is_gone(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	hop.keeps = true;
	disk.hold_writes = true;
	send_piece(0, 0, 512, (struct how){.sync = false});
	await(disk.writes_held == 1);
	send_piece(1, 512, 512, (struct how){.sync = false});
	assert_int_equal(pool_slots_out(pool), 4); /* of each the bytes and the CRCs */
	block_write_close(sender.w, -ECONNRESET);
	await(!hop.there);
	pass();
	assert_false(sender.ended);
	assert_int_equal(pool_slots_out(pool), 2);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.ended);
	assert_int_equal(pool_slots_out(pool), 0);
	end();
}

static void a_next_node_that_refuses_is_told(void **state)
{
	(void)state;
	ask((struct begin){.chain = true});
	assert_int_equal(sender.opened, 0); /* nothing is answered before the chain stands */
	hop_opens(DT_ERROR_ACCESS_TOKEN, "10.9.9.9:1");
	await(sender.ended);
	assert_int_equal(sender.opened, DT_ERROR_ACCESS_TOKEN + 1);
	assert_string_equal(sender.bad_link, "10.9.9.9:1");
	end();
}

/* ---- what readers see ---- */

static void expect_reader_has(uint64_t len, uint32_t chunk)
{
	const struct block b = {.id = sender.id, .gs = BLOCK_GS_ANY};
	struct replica_reader *rd;
	struct err err = ERR_INIT;

	assert_int_equal(replica_read_open(bp, &b, &rd, &err), 0);
	assert_int_equal(rd->block.len, len);
	assert_true(rd->crc_held);
	assert_int_equal(rd->partial_crc, crc_compute(CRC_CRC32C, data + chunk, len - chunk));
	replica_read_close(rd);
}

/* In the file it is that of more bytes already. */
static void the_checksum_of_the_last_chunk_fits_the_bytes_that_may_be_read(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	hop_acks(0, DT_SUCCESS);
	await(sender.acked == 0);
	send_piece(1, 1000, 12, (struct how){.sync = false});
	await(hop.count == 2 && replica().block.len == 1012);
	pass();
	expect_reader_has(1000, 512);
	hop_acks(1, DT_SUCCESS);
	await(sender.acked == 1);
	expect_reader_has(1012, 512);
	end();
}

static void bytes_that_are_sent_again_take_nothing_back(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	await(sender.acked == 0);
	send_piece(1, 0, 512, (struct how){.sync = false});
	await(sender.acked == 1);
	expect_reader_has(1000, 512);
	end();
}

/* The disk keeps the operation; its sender goes meanwhile. */
static void the_first_failure_names_the_reason(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold[DATA] = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	await(disk.held[DATA] >= 0);
	block_write_evict_all(&core);
	block_write_close(sender.w, -ECONNRESET);
	sync_let_go(DATA);
	await(sender.ended);
	assert_int_equal(sender.rc, -ECANCELED);
	end();
}

/* ---- damage ---- */

static void each_node_finds_damage_and_hands_none_on(void **state)
{
	(void)state;
	for (int chain = 0; chain < 2; chain++) {
		begin((struct begin){.chain = chain});
		send_piece(0, 0, 4096, (struct how){.sync = false});
		if (chain) {
			await(hop.count == 1);
			hop_acks(0, DT_SUCCESS);
		}
		await(sender.acked == 0);
		send_piece(1, 4096, 4096, (struct how){.bad = true});
		await(sender.ended);
		assert_int_equal(sender.own, DT_ERROR_CHECKSUM);
		assert_int_equal(sender.own_seq, 1);
		assert_int_equal(sender.rc, -EBADMSG);
		if (chain)
			assert_int_equal(hop.count, 1);
		assert_int_equal(sender.acked, 0);
		assert_int_equal(replica().block.len, 4096);
		end();
	}
}

static void a_block_with_damage_is_not_finalised(void **state)
{
	struct piece last = {.seq = 1, .off = 0, .last = true}; /* as if it had not been */

	(void)state;
	begin((struct begin){.chain = true});
	submit_piece(0, 0, 100, (struct how){.bad = true});
	assert_int_equal(block_write_piece(sender.w, &last, NULL), 0);
	await(sender.ended);
	assert_int_equal(finalised, 0);
	assert_int_equal(sender.own, DT_ERROR_CHECKSUM);
	end();
}

static void what_does_not_end_the_block_is_no_last_packet(void **state)
{
	struct piece p = {.seq = 0, .off = 100, .last = true};

	(void)state;
	begin((struct begin){.chain = false});
	assert_int_equal(block_write_piece(sender.w, &p, NULL), -EINVAL);
	p.off = 0;
	assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	p.seq = 1;
	p.last = false;
	assert_int_equal(block_write_piece(sender.w, &p, NULL), -EINVAL); /* nothing follows it */
	await(sender.ended);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_node_has_it_before_readers_and_the_sender_hear),
		cmocka_unit_test(this_node_has_it_before_the_sender_hears),
		cmocka_unit_test(an_ack_out_of_turn_breaks_the_chain),
		cmocka_unit_test(an_ack_of_what_was_not_forwarded_breaks_the_chain),
		cmocka_unit_test(a_next_node_that_dies_is_named_and_nothing_is_acknowledged_after),
		cmocka_unit_test(what_this_node_lacks_is_not_laid_on_the_next_one),
		cmocka_unit_test(a_failure_behind_reaches_the_sender),
		cmocka_unit_test(damage_that_the_next_node_finds_is_this_nodes),
		cmocka_unit_test(a_next_node_may_hang_up_behind_its_last_ack),
		cmocka_unit_test(buffers_that_a_next_node_had_are_given_back_when_it_is_gone),
		cmocka_unit_test(a_next_node_that_refuses_is_told),
		cmocka_unit_test(the_checksum_of_the_last_chunk_fits_the_bytes_that_may_be_read),
		cmocka_unit_test(bytes_that_are_sent_again_take_nothing_back),
		cmocka_unit_test(the_first_failure_names_the_reason),
		cmocka_unit_test(each_node_finds_damage_and_hands_none_on),
		cmocka_unit_test(a_block_with_damage_is_not_finalised),
		cmocka_unit_test(what_does_not_end_the_block_is_no_last_packet),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
