/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a packet that goes on in a second landing is synced with its last part, and where the
 * next packets are received as if they were like the one before, those that are not are taken as
 * they are. */
#include <unistd.h>

#include "datanode/dtp/dtp_test_fixture.h"

/* ---- what the engine is given ---- */

static struct {
	int64_t seq;
	bool more, sync;
} pieces[64];
static uint32_t piece_count;

int __real_block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs);
int __wrap_block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs);
int __wrap_block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	const int rc = __real_block_write_piece(w, p, crcs);

	if (rc != -EAGAIN) {
		assert_in_range(piece_count, 0, 63);
		pieces[piece_count].seq = p->seq;
		pieces[piece_count].more = p->more;
		pieces[piece_count++].sync = p->sync;
	}
	return rc;
}

static void file_is_whole(int64_t id)
{
	struct replica_reader *rr;
	struct block b = {.id = id, .gs = 1001};
	struct err err;
	static uint8_t buf[DATA_LEN];

	assert_int_equal(replica_read_open(bp, &b, &rr, &err), 0);
	assert_int_equal(pread(rr->fd, buf, DATA_LEN, 0), DATA_LEN);
	assert_memory_equal(buf, data, DATA_LEN);
	replica_read_close(rr);
}

/* What was put is sent, and @acks come. */
static void send_all(const struct fake_opts *o, uint32_t acks)
{
	uint64_t promised;

	piece_count = 0;
	peer_run(o, 1);
	run_until_ended(acks);
	assert_int_equal(count_acks(&promised), acks);
	assert_false(peer.told);
	everything_comes_back();
}

/* ---- the cases ---- */

static void a_packet_in_parts_is_synced_with_the_last_one(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 12; seed++) {
		const struct fake_opts o = stream(seed);
		const int64_t id = next_id++;
		uint32_t n = 0, parts = 0;

		put_write(id, false);
		for (uint32_t off = 0; off < DATA_LEN; off += PACKET, n++)
			put_packet(n, off, DATA_LEN - off < PACKET ? DATA_LEN - off : PACKET, false,
				   n % 3 != 2);
		put_packet(n++, DATA_LEN, 0, true, false);
		send_all(&o, n);
		for (uint32_t i = 0; i < piece_count; i++) {
			const bool sync = pieces[i].seq % 3 != 2 && pieces[i].seq != n - 1;

			assert_int_equal(pieces[i].sync, sync && !pieces[i].more);
			parts += sync && pieces[i].more;
		}
		assert_true(parts > 0);
		file_is_whole(id);
	}
}

/* Each begins with the last chunk of the one before. */
static void a_packet_at_another_place_than_expected_is_taken_there(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct fake_opts o = stream(seed);
		const int64_t id = next_id++;
		uint32_t n = 0, off = 0;

		o.vectored = true;
		put_write(id, false);
		for (; off + PACKET < DATA_LEN; off += PACKET - BPC)
			put_packet(n++, off, PACKET, false, false);
		put_packet(n++, off, DATA_LEN - off, false, false);
		put_packet(n++, DATA_LEN, 0, true, false);
		send_all(&o, n);
		file_is_whole(id);
	}
}

/* A header with @more bytes of a field that we do not know, and as many fewer CRCs. */
static void put_odd_packet(int64_t seq, uint32_t off, uint32_t more)
{
	uint8_t head[DT_PACKET_HEADER_MAX], crcs[4 * (PACKET / BPC)];
	static const uint8_t unknown[4] = {6 << 3, 0x80, 0x80, 0};
	const struct dt_packet p = {.offset = off,
				    .seqno = seq,
				    .data_len = PACKET,
				    .crc_len = (uint32_t)sizeof(crcs) - more};
	const size_t len = dt_packet_encode(&p, head);

	head[5] = (uint8_t)(head[5] + more);
	put(head, len);
	for (uint32_t i = 0; i < more; i += sizeof(unknown))
		put(unknown, sizeof(unknown));
	crc_chunks(CRC_CRC32C, data + off, PACKET, BPC, crcs);
	put(crcs, p.crc_len);
	put(data + off, PACKET);
}

/* The connection ends, maybe before the good packet is acknowledged. */
static void a_packet_with_a_crc_too_few_is_refused(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct fake_opts o = stream(1);
		uint64_t promised;
		uint32_t acks;

		o.vectored = i / 2;
		put_write(next_id++, false);
		put_packet(0, 0, PACKET, false, false);
		put_odd_packet(1, PACKET, 4 * (i % 2));
		peer_run(&o, 1);
		run_until_ended(2);
		acks = count_acks(&promised);
		assert_false(peer.told);
		assert_int_equal(peer.ended, i % 2);
		assert_true(i % 2 ? acks < 2 : acks == 2);
		everything_comes_back();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_in_parts_is_synced_with_the_last_one),
		cmocka_unit_test(a_packet_at_another_place_than_expected_is_taken_there),
		cmocka_unit_test(a_packet_with_a_crc_too_few_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
