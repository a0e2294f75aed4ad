/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/crc_sliced.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#define POLY 0x82f63b78u

static uint32_t table[8][256]; /* constant once made */
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ POLY : c >> 1;
		table[0][i] = c;
	}
	for (int k = 1; k < 8; k++)
		for (uint32_t i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

static uint32_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

uint32_t crc32c_sliced(const uint8_t *p, size_t len, uint32_t crc)
{
	(void)pthread_once(&made, make_tables);
	for (; len >= 8; p += 8, len -= 8) {
		const uint32_t a = crc ^ load32(p), b = load32(p + 4);

		crc = table[7][a & 0xff] ^ table[6][a >> 8 & 0xff] ^ table[5][a >> 16 & 0xff] ^
		      table[4][a >> 24] ^ table[3][b & 0xff] ^ table[2][b >> 8 & 0xff] ^
		      table[1][b >> 16 & 0xff] ^ table[0][b >> 24];
	}
	for (; len; p++, len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return crc;
}
