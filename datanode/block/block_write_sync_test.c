/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a block being written and the disk: an ack follows the write of its bytes; that
 * of an hsync follows the syncs of data, checksums and directory entry, which begin when the bytes
 * are in the file; a part that fails fails the write; the last packet says how the end is synced; a
 * bounded number is under way at one disk, and those that nobody wants any more do not wait. */
#include "datanode/block/block_write_chain_test_fixture.h"

/* ---- syncs ---- */

static void hsync_is_acknowledged_when_all_three_are_on_the_disk(void **state)
{
	(void)state;
	for (enum part p = DATA; p < PARTS; p++) {
		begin((struct begin){.chain = false});
		disk.hold[p] = true;
		send_piece(0, 0, 1024, (struct how){.sync = true});
		for (enum part q = DATA; q < PARTS; q++)
			await(disk.asked[q] == 1);
		pass();
		assert_int_equal(sender.acked, -1);
		assert_int_equal(replica().visible, 0);
		sync_let_go(p);
		await(sender.acked == 0);
		assert_int_equal(replica().visible, 1024);
		disk.hold[p] = false;
		send_piece(1, 1024, 1024, (struct how){.sync = true}); /* the directory has it */
		await(sender.acked == 1);
		assert_int_equal(disk.asked[DATA], 2);
		assert_int_equal(disk.asked[META], 2);
		assert_int_equal(disk.asked[DIRECTORY], 1);
		send_piece(2, 2048, 1024, (struct how){.sync = false});
		await(sender.acked == 2);
		assert_int_equal(disk.asked[DATA], 2);
		end();
	}
}

static void a_part_that_cannot_be_synced_fails_the_write(void **state)
{
	(void)state;
	for (enum part p = DATA; p < PARTS; p++) {
		begin((struct begin){.chain = false});
		disk.fail[p] = true;
		/* also when another part ends later, and well */
		disk.hold[p == DATA ? META : DATA] = true;
		send_piece(0, 0, 1000, (struct how){.sync = true});
		await(disk.asked[DATA] == 1 && disk.asked[META] == 1 && disk.asked[DIRECTORY] == 1);
		pass();
		assert_int_equal(sender.acked, -1);
		sync_let_go(p == DATA ? META : DATA);
		await(sender.ended);
		assert_int_equal(sender.acked, -1);
		assert_int_equal(sender.own, DT_ERROR);
		assert_int_equal(sender.own_seq, 0);
		assert_int_equal(sender.rc, -EBADF);
		end();
	}
}

static void a_sync_begins_when_its_bytes_are_in_the_file(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	await(disk.writes_held == 1);
	assert_int_equal(disk.asked[DATA], 0);
	assert_int_equal(sender.acked, -1);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.acked == 0);
	assert_int_equal(disk.asked[DATA], 1);
	end();
}

static void a_sync_covers_what_was_there_when_it_began(void **state)
{
	int first[2];

	(void)state;
	begin((struct begin){.chain = false});
	disk.hold[DATA] = disk.hold[META] = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	await(disk.held[DATA] >= 0 && disk.held[META] >= 0 && disk.asked[DIRECTORY] == 1);
	first[0] = disk.held[DATA];
	first[1] = disk.held[META];
	send_piece(1, 4096, 4096, (struct how){.sync = true});
	assert_int_equal(disk.asked[DATA], 1); /* one at a time */
	sync_let_go(DATA);
	sync_let_go(META);
	await(sender.acked == 0);
	pass();
	assert_int_equal(sender.acked, 0);
	await(disk.asked[DATA] == 2);
	sync_let_go(DATA);
	sync_let_go(META);
	await(sender.acked == 1);
	(void)close(first[0]);
	(void)close(first[1]);
	end();
}

/* The next piece is there, and its bytes are not in the file. */
static void a_sync_does_not_cover_what_is_not_in_the_file(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	await(disk.writes_held == 1);
	send_piece(1, 4096, 4096, (struct how){.sync = true});
	sem_post(&write_go);
	await(sender.acked == 0 && disk.writes_held == 2);
	assert_int_equal(disk.asked[DATA], 1);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.acked == 1);
	assert_int_equal(disk.asked[DATA], 2);
	assert_int_equal(disk.asked[META], 2);
	end();
}

/* ---- the line before a disk ---- */

static struct disk_request others[DISK_SYNCS];

static void nobodys_turn(struct disk_request *q)
{
	(void)q;
	fail();
}

/* As many as may be under way. */
static void others_sync(void)
{
	for (uint32_t i = 0; i < DISK_SYNCS; i++) {
		disk_request_init(&others[i], nobodys_turn);
		assert_true(disk_workers_take(&core.disk_syncs[0], &others[i]));
	}
}

static void others_end(uint32_t from)
{
	for (uint32_t i = from; i < DISK_SYNCS; i++)
		disk_workers_done(&others[i]);
	assert_int_equal(core.disk_syncs[0].busy, 0);
	assert_true(list_empty(&core.disk_syncs[0].waiting));
}

/* Each takes a thread of the kernel: one disk that hangs leaves those of the others alone. */
static void a_sync_has_its_turn_behind_others_of_its_disk(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	others_sync();
	send_piece(0, 0, 1024, (struct how){.sync = true});
	await(list_length(&core.disk_syncs[0].waiting) == 2);
	pass();
	assert_int_equal(disk.asked[DATA] + disk.asked[META], 0);
	assert_int_equal(sender.acked, -1);
	disk_workers_done(&others[0]);
	await(disk.asked[DATA] == 1);
	await(disk.asked[META] == 1); /* in its place, when it is over */
	await(sender.acked == 0);
	others_end(1);
	end();
}

static void the_sync_of_an_ordered_run_has_its_turn_too(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = true});
	await(sender.acked == 0);
	others_sync();
	send_piece(1, 1000, 12, (struct how){.sync = false});
	await(list_length(&core.disk_syncs[0].waiting) == 1);
	pass();
	assert_int_equal(disk.asked[DATA], 1);
	assert_int_equal(sender.acked, 0);
	disk_workers_done(&others[0]);
	await(sender.acked == 1);
	assert_int_equal(disk.asked[DATA], 2);
	others_end(1);
	end();
}

static void a_write_that_fails_leaves_the_line(void **state)
{
	(void)state;
	for (int ordered = 0; ordered < 2; ordered++) {
		begin((struct begin){.chain = false});
		if (ordered) {
			send_piece(0, 0, 1000, (struct how){.sync = true});
			await(sender.acked == 0);
		}
		others_sync();
		send_piece(ordered, ordered ? 1000 : 0, 12, (struct how){.sync = !ordered});
		await(list_length(&core.disk_syncs[0].waiting) == (ordered ? 1 : 2));
		block_write_close(sender.w, -ECONNRESET);
		await(sender.ended);
		assert_int_equal(sender.rc, -ECONNRESET);
		assert_int_equal(disk.asked[DATA], ordered);
		if (ordered) /* its CRC is not replaced */
			assert_int_equal(replica().block.len, 1000);
		others_end(0);
		end();
	}
}

/* ---- the checksum of a chunk that is begun ---- */

static uint32_t crc_of(uint32_t from, uint32_t to)
{
	return crc_compute(CRC_CRC32C, data + from, to - from);
}

/* The run of [1000, 1012), which stands before its sync for a while; @sync: it is hsynced. */
static void check_order(bool sync)
{
	const unsigned asked = disk.asked[DATA], meta = disk.asked[META];

	disk.hold[DATA] = true;
	send_piece(1, 1000, 12, (struct how){.sync = sync});
	await(disk.held[DATA] >= 0);
	pass();
	assert_int_equal(stored_crc(sender_meta(), 1), crc_of(512, 1000));
	assert_int_equal(sender.acked, 0);
	assert_int_equal(disk.asked[META], meta);
	disk.hold[DATA] = false;
	sync_let_go(DATA);
	await(sender.acked == 1);
	assert_int_equal(stored_crc(sender_meta(), 1), crc_of(512, 1012));
	assert_int_equal(disk.asked[DATA], asked + 1); /* it serves the piece's sync, too */
	assert_int_equal(disk.asked[META], meta + sync);
}

static void a_synced_checksum_is_replaced_when_the_next_bytes_are_on_the_disk(void **state)
{
	(void)state;
	for (int sync = 0; sync < 2; sync++) {
		begin((struct begin){.chain = false});
		send_piece(0, 0, 1000, (struct how){.sync = true});
		await(sender.acked == 0);
		check_order(sync);
		/* chunk 1 is on the disk to its 500th byte at least, chunk 2 not at all */
		send_piece(2, 1012, 12, (struct how){.sync = false});
		await(sender.acked == 2);
		assert_int_equal(disk.asked[DATA], 3);
		send_piece(3, 1024, 100, (struct how){.sync = false});
		send_piece(4, 1124, 100, (struct how){.sync = false});
		await(sender.acked == 4);
		assert_int_equal(disk.asked[DATA], 3);
		assert_int_equal(stored_crc(sender_meta(), 2), crc_of(1024, 1224));
		/* what an ordered run has synced does not serve bytes behind it */
		send_piece(5, 1224, 312, (struct how){.sync = true});
		await(sender.acked == 5);
		assert_int_equal(disk.asked[DATA], 4);
		end();
	}
}

static void an_append_replaces_it_likewise(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	send_piece(1, 1000, 0, (struct how){.last = true});
	await(sender.ended);
	begin((struct begin){.append = 1000});
	sender.acked = 0; /* so that pieces are counted as above */
	check_order(true);
	end();
}

static void it_stays_when_the_next_bytes_cannot_be_synced(void **state)
{
	int meta;

	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = true});
	await(sender.acked == 0);
	meta = dup(sender_meta());
	disk.fail[DATA] = true;
	send_piece(1, 1000, 12, (struct how){.sync = false});
	await(sender.ended);
	assert_int_equal(sender.acked, 0);
	assert_int_equal(sender.own, DT_ERROR);
	assert_int_equal(stored_crc(meta, 1), crc_of(512, 1000));
	assert_int_equal(replica().block.len, 1000);
	(void)close(meta);
	end();
}

/* The run may have replaced the checksum, and its bytes not be there yet: the sync that is due when
 * the one before it ends waits for the run, and begins before another one. */
static void no_sync_begins_beside_a_run_that_replaces_a_checksum(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold[DATA] = true;
	send_piece(0, 0, 512, (struct how){.sync = true});
	await(disk.held[DATA] >= 0);
	send_piece(1, 512, 88, (struct how){.sync = true}); /* of a chunk that is not synced */
	disk.hold_writes = true;
	send_piece(2, 600, 100, (struct how){.sync = false});
	await(disk.writes_held == 1);
	send_piece(3, 700, 100, (struct how){.sync = false});
	disk.hold[DATA] = false;
	sync_let_go(DATA);
	await(sender.acked == 0);
	pass();
	assert_int_equal(disk.asked[META], 1);
	sem_post(&write_go);
	await(disk.writes_held == 2);
	await(disk.asked[META] == 2);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.acked == 3);
	end();
}

static void who_finalises_the_last_bytes_keeps_the_order(void **state)
{
	(void)state;
	for (int fails = 0; fails < 2; fails++) {
		begin((struct begin){.chain = false});
		send_piece(0, 0, 1000, (struct how){.sync = true});
		await(sender.acked == 0);
		disk.fail[DATA] = fails;
		submit_piece(1, 1000, 12, (struct how){.sync = false});
		submit_piece(2, 1012, 0, (struct how){.last = true});
		await(sender.ended);
		assert_int_equal(disk.crc_at_finish, crc_of(512, 1000));
		assert_int_equal(sender.acked, fails ? 0 : 2);
		assert_int_equal(replica().state, fails ? REPLICA_RBW : REPLICA_FINALIZED);
		end();
	}
}

/* An operation under its own sync is not given back, nor are its files closed. */
static void a_sync_under_way_is_waited_for(void **state)
{
	(void)state;
	for (int last = 0; last < 2; last++) {
		begin((struct begin){.chain = false});
		disk.hold[DATA] = true;
		send_piece(0, 0, 4096, (struct how){.sync = true});
		await(disk.held[DATA] >= 0);
		if (last)
			send_piece(1, 4096, 0, (struct how){.last = true});
		else
			block_write_close(sender.w, -ECONNRESET);
		pass();
		assert_false(sender.ended);
		assert_int_equal(finalised, 0);
		sync_let_go(DATA);
		await(sender.ended);
		assert_int_equal(finalised, last);
		end();
	}
}

static void the_last_packet_says_how_the_end_is_synced(void **state)
{
	static const struct {
		bool sync, later, on_close;
		enum replica_sync how;
	} want[] = {
		{true, false, true, SYNC_NOW},    {true, true, true, SYNC_NOW},
		{true, false, false, SYNC_NOW},   {true, true, false, SYNC_NOW},
		{false, true, true, SYNC_LATER},  {false, false, true, SYNC_NOW},
		{false, true, false, SYNC_NEVER}, {false, false, false, SYNC_NEVER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		begin((struct begin){.later = want[i].later});
		dn.sync_on_close = want[i].on_close;
		send_piece(0, 0, 1000, (struct how){.sync = false});
		send_piece(1, 1000, 0, (struct how){.sync = want[i].sync, .last = true});
		await(sender.ended);
		assert_int_equal(sender.acked, 1);
		assert_int_equal(finalised_how, want[i].how);
		assert_int_equal(replica().state, REPLICA_FINALIZED);
		end();
	}
}

/* A client may have synced them where the copy is made from. */
static void a_copy_is_synced_at_its_end(void **state)
{
	(void)state;
	begin((struct begin){.copy = true});
	dn.sync_on_close = false;
	send_piece(0, 0, 1000, (struct how){.sync = false});
	send_piece(1, 1000, 0, (struct how){.last = true});
	await(sender.ended);
	assert_int_equal(finalised_how, SYNC_NOW);
	end();
}

static void bytes_are_in_the_file_before_their_ack(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = false});
	await(disk.writes_held == 1);
	assert_int_equal(sender.acked, -1);
	send_piece(1, 4096, 0, (struct how){.last = true});
	assert_int_equal(finalised, 0);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.ended);
	assert_int_equal(sender.acked, 1);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_is_synced_at_its_end),
		cmocka_unit_test(hsync_is_acknowledged_when_all_three_are_on_the_disk),
		cmocka_unit_test(a_part_that_cannot_be_synced_fails_the_write),
		cmocka_unit_test(a_sync_begins_when_its_bytes_are_in_the_file),
		cmocka_unit_test(a_sync_covers_what_was_there_when_it_began),
		cmocka_unit_test(a_sync_does_not_cover_what_is_not_in_the_file),
		cmocka_unit_test(a_sync_has_its_turn_behind_others_of_its_disk),
		cmocka_unit_test(the_sync_of_an_ordered_run_has_its_turn_too),
		cmocka_unit_test(a_write_that_fails_leaves_the_line),
		cmocka_unit_test(a_synced_checksum_is_replaced_when_the_next_bytes_are_on_the_disk),
		cmocka_unit_test(an_append_replaces_it_likewise),
		cmocka_unit_test(it_stays_when_the_next_bytes_cannot_be_synced),
		cmocka_unit_test(no_sync_begins_beside_a_run_that_replaces_a_checksum),
		cmocka_unit_test(who_finalises_the_last_bytes_keeps_the_order),
		cmocka_unit_test(a_sync_under_way_is_waited_for),
		cmocka_unit_test(the_last_packet_says_how_the_end_is_synced),
		cmocka_unit_test(bytes_are_in_the_file_before_their_ack),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
