/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the published vectors, agreement with a bit-by-bit CRC at every length and
 * alignment, and that extend and combine agree with computing over the whole. */
#include "common/base/crc.h"
#include "common/base/crc_sliced.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint8_t data[5000];

static uint32_t slow_crc(enum crc_type t, const uint8_t *p, size_t len)
{
	uint32_t poly = t == CRC_CRC32 ? 0xedb88320u : 0x82f63b78u, crc = ~0u;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ poly : crc >> 1;
	}
	return ~crc;
}

static void the_published_vectors_hold(void **state)
{
	(void)state;
	assert_int_equal(crc_compute(CRC_CRC32C, "123456789", 9), 0xe3069283);
	assert_int_equal(crc_compute(CRC_CRC32, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc_compute(CRC_CRC32C, "", 0), 0);
	assert_int_equal(crc_compute(CRC_NULL, "123456789", 9), 0);
}

static void every_length_and_alignment_agrees_with_the_definition(void **state)
{
	(void)state;
	for (int t = CRC_CRC32; t <= CRC_CRC32C; t++)
		for (size_t off = 0; off < 9; off++)
			for (size_t len = 0; len < 600; len += 1 + off)
				assert_int_equal(crc_compute((enum crc_type)t, data + off, len),
						 slow_crc((enum crc_type)t, data + off, len));
}

static void the_tables_agree_with_the_definition(void **state)
{
	(void)state;
	for (size_t off = 0; off < 9; off++)
		for (size_t len = 0; len < 300; len++)
			assert_int_equal(~crc32c_sliced(data + off, len, ~0u),
					 slow_crc(CRC_CRC32C, data + off, len));
}

static void extend_and_combine_agree_with_the_whole(void **state)
{
	(void)state;
	for (int i = CRC_CRC32; i <= CRC_CRC32C; i++)
		for (size_t cut = 0; cut <= sizeof(data); cut += 97) {
			enum crc_type t = (enum crc_type)i;
			size_t rest = sizeof(data) - cut;
			uint32_t a = crc_compute(t, data, cut),
				 b = crc_compute(t, data + cut, rest);
			uint32_t all = crc_compute(t, data, sizeof(data));

			assert_int_equal(crc_extend(t, a, data + cut, rest), all);
			assert_int_equal(crc_combine(t, a, b, rest), all);
		}
}

static void combine_is_right_for_huge_lengths(void **state)
{
	/* 2^33 zero bytes after "1": doubling the block of zeros 33 times */
	uint32_t zeros = crc_compute(CRC_CRC32C, "\0", 1), one = crc_compute(CRC_CRC32C, "1", 1);
	uint64_t len = 1;

	(void)state;
	for (; len < 1ull << 32; len *= 2)
		zeros = crc_combine(CRC_CRC32C, zeros, zeros, len);
	assert_int_equal(
		crc_combine(CRC_CRC32C, crc_combine(CRC_CRC32C, one, zeros, len), zeros, len),
		crc_combine(CRC_CRC32C, one, crc_combine(CRC_CRC32C, zeros, zeros, len), 2 * len));
}

static void chunks_are_big_endian_and_verify_finds_the_first_bad_one(void **state)
{
	static const uint32_t bpcs[] = {1, 7, 512, 1000, 4096, 8192};
	uint8_t *crcs = (uint8_t *)malloc(4 * sizeof(data) + 1);
	uint32_t be;

	(void)state;
	assert_non_null(crcs);
	for (size_t i = 0; i < sizeof(bpcs) / sizeof(bpcs[0]); i++) {
		uint32_t bpc = bpcs[i];
		size_t n = crc_bytes(CRC_CRC32C, sizeof(data), bpc) / 4, last = sizeof(data) % bpc;

		crcs[4 * n] = 0xaa;
		crc_chunks(CRC_CRC32C, data, sizeof(data), bpc, crcs);
		assert_int_equal(crcs[4 * n], 0xaa);
		last = last ? last : bpc < sizeof(data) ? bpc : sizeof(data);
		memcpy(&be, crcs + 4 * (n - 1), 4);
		assert_int_equal(be32toh(be),
				 slow_crc(CRC_CRC32C, data + sizeof(data) - last, last));
		assert_int_equal(crc_verify(CRC_CRC32C, data, sizeof(data), bpc, crcs), -1);
		assert_int_equal(crc_verify(CRC_CRC32, data, sizeof(data), bpc, crcs), 0);
		for (size_t bad = 0; bad < n; bad += 1 + n / 9) {
			crcs[4 * bad + 3] ^= 1;
			assert_int_equal(crc_verify(CRC_CRC32C, data, sizeof(data), bpc, crcs),
					 bad);
			crcs[4 * bad + 3] ^= 1;
		}
	}
	assert_int_equal(crc_verify(CRC_NULL, data, sizeof(data), 512, crcs), -1);
	assert_int_equal(crc_bytes(CRC_NULL, 512, 512), 0);
	free(crcs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_vectors_hold),
		cmocka_unit_test(every_length_and_alignment_agrees_with_the_definition),
		cmocka_unit_test(the_tables_agree_with_the_definition),
		cmocka_unit_test(extend_and_combine_agree_with_the_whole),
		cmocka_unit_test(combine_is_right_for_huge_lengths),
		cmocka_unit_test(chunks_are_big_endian_and_verify_finds_the_first_bad_one),
	};
	uint32_t x = 1;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
