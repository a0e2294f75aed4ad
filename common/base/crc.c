/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/crc.h"

#include <assert.h>
#include <endian.h>
#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/crc_sliced.h"

#define CRC_PIECE_MAX (1u << 30) /* ISA-L's length is an int */

/* Reversed polynomials, for crc_combine() only. */
#define POLY_CRC32 0xedb88320u
#define POLY_CRC32C 0x82f63b78u

/* Does ISA-L have more than its byte-wise code here? */
static inline bool isal_is_fast(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("pclmul");
#else
	return true;
#endif
}

static inline uint32_t crc32c(const uint8_t *p, size_t len, uint32_t crc)
{
	crc = ~crc;
	if (!isal_is_fast())
		return ~crc32c_sliced(p, len, crc);
	for (; len > CRC_PIECE_MAX; p += CRC_PIECE_MAX, len -= CRC_PIECE_MAX)
		crc = crc32_iscsi((uint8_t *)(uintptr_t)p, (int)CRC_PIECE_MAX, crc);
	/* only reads, despite its type */
	return ~crc32_iscsi((uint8_t *)(uintptr_t)p, (int)len, crc);
}

uint32_t crc_extend(enum crc_type type, uint32_t crc, const void *buf, size_t len)
{
	switch (type) {
	case CRC_CRC32:
		return crc32_gzip_refl(crc, (const uint8_t *)buf, len);
	case CRC_CRC32C:
		return crc32c((const uint8_t *)buf, len, crc);
	case CRC_NULL:
		break;
	}
	return 0;
}

uint32_t crc_compute(enum crc_type type, const void *buf, size_t len)
{
	return crc_extend(type, 0, buf, len);
}

/* a * b modulo the polynomial, as bit-reversed polynomials over GF(2): bit 31 is x^0. */
static uint32_t mul_mod(uint32_t a, uint32_t b, uint32_t poly)
{
	uint32_t sum = 0;

	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		if (a & bit)
			sum ^= b;
		b = b & 1 ? b >> 1 ^ poly : b >> 1; /* b *= x */
	}
	return sum;
}

/* Appending len_b bytes multiplies the first CRC by x^(8 len_b); square and multiply. */
uint32_t crc_combine(enum crc_type type, uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	uint32_t poly = type == CRC_CRC32 ? POLY_CRC32 : POLY_CRC32C;
	uint32_t power = 1u << (31 - 8); /* x^8 */

	if (type == CRC_NULL)
		return 0;
	for (; len_b; len_b >>= 1) {
		if (len_b & 1)
			crc_a = mul_mod(power, crc_a, poly);
		power = mul_mod(power, power, poly);
	}
	return crc_a ^ crc_b;
}

void crc_chunks(enum crc_type type, const void *buf, size_t len, uint32_t bpc, uint8_t *out)
{
	const uint8_t *p = (const uint8_t *)buf;

	assert(bpc > 0);
	for (size_t n; type != CRC_NULL && len; p += n, len -= n, out += 4) {
		n = len < bpc ? len : bpc;
		uint32_t be = htobe32(crc_extend(type, 0, p, n));

		memcpy(out, &be, sizeof(be));
	}
}

int64_t crc_verify(enum crc_type type, const void *buf, size_t len, uint32_t bpc,
		   const uint8_t *crcs)
{
	const uint8_t *p = (const uint8_t *)buf;

	assert(bpc > 0);
	for (size_t n; type != CRC_NULL && len; p += n, len -= n, crcs += 4) {
		n = len < bpc ? len : bpc;
		uint32_t be = htobe32(crc_extend(type, 0, p, n));

		if (memcmp(crcs, &be, sizeof(be)))
			return (p - (const uint8_t *)buf) / bpc;
	}
	return -1;
}
