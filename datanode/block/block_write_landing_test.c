/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the places where the bytes of a block being written land, and of the pieces
 * that they become: they follow each other without a gap, within the buffers that are there; what
 * is half done is not landed upon; and both have bounds. */
#include "datanode/block/block_write_chain_test_fixture.h"

static int land(uint64_t off, uint32_t want, struct landing *ret)
{
	return block_write_land(sender.w, off, want, ret);
}

static void a_landing_begins_where_the_bytes_end_or_before(void **state)
{
	struct landing at;

	(void)state;
	begin((struct begin){.chain = false});
	assert_int_equal(land(1, 1, &at), -EINVAL);
	send_piece(0, 0, 1000, (struct how){.sync = false});
	await(sender.acked == 0);
	assert_int_equal(land(1001, 1, &at), -EINVAL);
	assert_int_equal(land(1000, 25, &at), -EINVAL); /* beyond the chunk that is begun */
	assert_int_equal(land(1000, 24, &at), 0);
	block_write_unland(sender.w, 1000, &at);
	assert_int_equal(land(0, 1000, &at), 0); /* again */
	block_write_unland(sender.w, 0, &at);
	end();
}

static void what_is_half_done_is_not_landed_upon(void **state)
{
	struct landing at, again;

	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1024, (struct how){.sync = false});
	await(sender.acked == 0);
	assert_int_equal(land(1024, 512, &at), 0);
	assert_int_equal(land(512, 512, &again), -EAGAIN);
	block_write_unland(sender.w, 1024, &at);
	assert_int_equal(land(512, 512, &again), 0);
	block_write_unland(sender.w, 512, &again);
	end();
}

static void a_landing_that_is_given_back_leaves_no_gap(void **state)
{
	struct landing at, next;

	(void)state;
	begin((struct begin){.chain = false});
	assert_int_equal(land(0, 512, &at), 0);
	block_write_unland(sender.w, 0, &at);
	assert_int_equal(land(512, 512, &next), -EINVAL);
	assert_int_equal(land(0, 512, &at), 0);
	assert_int_equal(land(512, 512, &next), 0);
	block_write_unland(sender.w, 512, &next);
	block_write_unland(sender.w, 0, &at);
	end();
}

static void a_landing_is_within_its_buffer(void **state)
{
	struct landing at;

	(void)state;
	begin((struct begin){.chain = false});
	assert_int_equal(land(0, 2u << 20, &at), 0);
	assert_int_equal(at.off, 0);
	assert_int_equal(at.len, slot_class_size(at.slot->cls));
	block_write_unland(sender.w, 0, &at);
	end();
}

static void a_piece_lies_where_it_was_told_to_land(void **state)
{
	struct piece p = {.len = 100};
	struct landing at;

	(void)state;
	for (int wrong = 0; wrong < 2; wrong++) {
		begin((struct begin){.chain = false});
		assert_int_equal(land(0, 200, &at), 0);
		p.slot = at.slot;
		p.slot_off = at.off + (uint32_t)wrong;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), wrong ? -EINVAL : 0);
		end();
	}
}

/* The disk holds the first piece, and so all that wait for their acks behind it. */
static void pieces_without_an_ack_have_a_bound(void **state)
{
	struct piece p = {.off = 512};

	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 512, (struct how){.sync = false});
	await(disk.writes_held == 1);
	for (p.seq = 1; p.seq < BW_PIECES; p.seq++)
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	assert_int_equal(block_write_piece(sender.w, &p, NULL), -EAGAIN);
	pass();
	assert_int_equal(sender.rooms, 0);
	disk.hold_writes = false;
	sem_post(&write_go);
	await(sender.acked == BW_PIECES - 1 && sender.rooms == 1);
	assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	await(sender.acked == BW_PIECES);
	assert_int_equal(sender.rooms, 1);
	end();
}

/* What lands becomes a piece later. */
static void landings_leave_room_for_pieces_without_payload(void **state)
{
	struct landing at[BW_PIECES];
	uint32_t n;

	(void)state;
	begin((struct begin){.chain = false});
	for (n = 0; n < BW_PIECES - 4; n++)
		assert_int_equal(land(4 * n, 4, &at[n]), 0);
	assert_int_equal(land(4 * n, 4, &at[n]), -EAGAIN);
	while (n-- > 0)
		block_write_unland(sender.w, 4 * n, &at[n]);
	assert_int_equal(land(0, 4, &at[0]), 0);
	block_write_unland(sender.w, 0, &at[0]);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_landing_begins_where_the_bytes_end_or_before),
		cmocka_unit_test(what_is_half_done_is_not_landed_upon),
		cmocka_unit_test(a_landing_that_is_given_back_leaves_no_gap),
		cmocka_unit_test(a_landing_is_within_its_buffer),
		cmocka_unit_test(a_piece_lies_where_it_was_told_to_land),
		cmocka_unit_test(pieces_without_an_ack_have_a_bound),
		cmocka_unit_test(landings_leave_room_for_pieces_without_payload),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
