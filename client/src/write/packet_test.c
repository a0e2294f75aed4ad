/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a packet carries what was appended, with the CRC of each chunk however the bytes
 * came, never beyond its room or the block; its header is the one that Hadoop's recorded streams
 * show; the pool lends packets that are empty; bytes that are lent are not touched, and given back
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/write/packet.h"

static struct packet_pool pool;

static int setup(void **state)
{
	(void)state;
	packet_pool_init(&pool);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	packet_pool_fini(&pool);
	return 0;
}

static void crcs_do_not_depend_on_how_the_bytes_came(void **state)
{
	uint8_t data[100], want[40];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37);
	for (size_t len = 0; len <= sizeof(data); len++) {
		for (size_t piece = 1; piece <= 40; piece++) {
			struct packet *p = packet_get(&pool, 160, 16);
			size_t at = 0;

			crc_chunks(CRC_CRC32C, data, len, 16, want);
			while (at < len) {
				size_t n = piece < len - at ? piece : len - at;

				at += packet_append(p, CRC_CRC32C, 16, 1000, data + at, n);
			}
			packet_seal(p, CRC_CRC32C, 16);
			assert_int_equal(p->len, len);
			assert_int_equal(p->crc_len, (len + 15) / 16 * 4);
			assert_memory_equal(p->data, data, len);
			assert_memory_equal(p->crc, want, p->crc_len);
			packet_put(&pool, p);
		}
	}
}

static void count_back(void *arg)
{
	++*(int *)arg;
}

static void lent_bytes_stay_where_they_are_until_the_last_packet_goes(void **state)
{
	uint8_t data[100], want[40];
	struct packet *a, *b;
	struct loan *l;
	int back = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 41);
	l = loan_new(count_back, &back);
	a = packet_lent(data, 64, 16, l);
	b = packet_lent(data + 64, 36, 16, l);
	loan_put(l);
	packet_seal(a, CRC_CRC32C, 16);
	packet_seal(b, CRC_CRC32C, 16);
	assert_ptr_equal(a->data, data);
	assert_int_equal(a->crc_len + b->crc_len, 28);
	crc_chunks(CRC_CRC32C, data, sizeof(data), 16, want);
	assert_memory_equal(a->crc, want, 16);
	assert_memory_equal(b->crc, want + 16, 12);
	packet_put(&pool, packet_hold(b));
	packet_put(&pool, a);
	assert_int_equal(back, 0);
	packet_put(&pool, b);
	assert_int_equal(back, 1);
	a = packet_get(&pool, 64, 16); /* nothing of the caller's has come into the pool */
	assert_true(a->data < data || a->data >= data + sizeof(data));
	packet_put(&pool, a);
}

static void a_packet_ends_at_its_room_and_at_the_end_of_the_block(void **state)
{
	uint8_t data[100] = {0};
	struct packet *p = packet_get(&pool, 64, 16);

	(void)state;
	p->offset = 32;
	assert_int_equal(packet_append(p, CRC_CRC32C, 16, 1000, data, 100), 64);
	assert_int_equal(packet_append(p, CRC_CRC32C, 16, 1000, data, 100), 0);
	packet_put(&pool, p);
	p = packet_get(&pool, 64, 16);
	p->offset = 32;
	assert_int_equal(packet_append(p, CRC_CRC32C, 16, 72, data, 100), 40);
	assert_int_equal(packet_append(p, CRC_CRC32C, 16, 72, data, 100), 0);
	packet_put(&pool, p);
}

static void the_header_is_that_of_the_protocol(void **state)
{
	/* PLEN 4 + 4 + 5, HLEN 25, offset 512, seqno 3, not last, 5 bytes */
	static const uint8_t plain[] = {0, 0, 0, 13, 0, 25, 9, 0, 2,    0, 0,    0, 0, 0, 0, 0x11,
					3, 0, 0, 0,  0, 0,  0, 0, 0x18, 0, 0x25, 5, 0, 0, 0};
	uint8_t hdr[DT_PACKET_HEADER_MAX];
	struct packet *p = packet_get(&pool, 1024, 512);

	(void)state;
	p->offset = 512;
	p->seqno = 3;
	packet_append(p, CRC_CRC32C, 512, 4096, "hello", 5);
	packet_seal(p, CRC_CRC32C, 512);
	assert_int_equal(packet_header(p, hdr), sizeof(plain));
	assert_memory_equal(hdr, plain, sizeof(plain));
	p->sync = true;
	assert_int_equal(packet_header(p, hdr), sizeof(plain) + 2);
	assert_int_equal(hdr[5], 27);
	packet_put(&pool, p);
}

static void a_packet_from_the_pool_is_empty(void **state)
{
	struct packet *p = packet_get(&pool, 64, 16), *q;

	(void)state;
	packet_append(p, CRC_CRC32C, 16, 1000, "0123456789", 10);
	p->last = p->sync = true;
	p->sent = 7;
	packet_put(&pool, p);
	q = packet_get(&pool, 64, 16);
	assert_ptr_equal(p, q);
	assert_int_equal(q->len + q->crc_done + q->crc_len + q->sent, 0);
	assert_false(q->last || q->sync);
	assert_int_equal((uintptr_t)q->data % 4096, 0);
	packet_put(&pool, q);
	q = packet_get(&pool, 128, 16); /* another size is another packet */
	assert_int_equal(q->cap, 128);
	packet_put(&pool, q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lent_bytes_stay_where_they_are_until_the_last_packet_goes),
		cmocka_unit_test(crcs_do_not_depend_on_how_the_bytes_came),
		cmocka_unit_test(a_packet_ends_at_its_room_and_at_the_end_of_the_block),
		cmocka_unit_test(the_header_is_that_of_the_protocol),
		cmocka_unit_test(a_packet_from_the_pool_is_empty),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
