/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * crc - the checksums of HDFS blocks
 *
 * Idea: one CRC per chunk of bytesPerChecksum bytes, stored big-endian. CRC32C (Castagnoli) by
 * ISA-L; remember that ISA-L neither inverts in nor out: HDFS CRC32C = ~crc32_iscsi(buf, len, ~0).
 * CRC32 is zlib's polynomial (ISA-L crc32_gzip_refl).
 * Threading: pure functions.
 * Source: hdfs-wire 5.3; vector: CRC32C("123456789") = 0xE3069283, CRC32 = 0xCBF43926.
 */
#include <stddef.h>
#include <stdint.h>

enum crc_type { CRC_NULL = 0, CRC_CRC32 = 1, CRC_CRC32C = 2 }; /* ChecksumTypeProto, meta file */

/* Bytes before the CRCs in the meta file of a replica: version, type, bytesPerChecksum. */
#define META_HEADER_LEN 7

uint32_t crc_compute(enum crc_type type, const void *buf, size_t len);
/** CRC of a longer buffer from the CRC of its beginning: crc_extend(t, crc(A), B) = crc(A|B). */
uint32_t crc_extend(enum crc_type type, uint32_t crc, const void *buf, size_t len);
/** CRC of A|B from crc(A), crc(B) and len(B) (COMPOSITE-CRC). */
uint32_t crc_combine(enum crc_type type, uint32_t crc_a, uint32_t crc_b, uint64_t len_b);
/** Big-endian CRC of each @bpc-byte chunk of @buf (the last may be short) into
 *  @out[4 * ceil(len / bpc)]. CRC_NULL writes nothing. */
void crc_chunks(enum crc_type type, const void *buf, size_t len, uint32_t bpc, uint8_t *out);
/** Compare with stored CRCs. Returns -1 when all fit, else the index of the first chunk that does
 *  not. CRC_NULL always fits. */
int64_t crc_verify(enum crc_type type, const void *buf, size_t len, uint32_t bpc,
		   const uint8_t *crcs);
/** Bytes of CRCs for @len bytes of data. */
static inline size_t crc_bytes(enum crc_type type, uint64_t len, uint32_t bpc)
{
	return type == CRC_NULL ? 0 : (size_t)((len + bpc - 1) / bpc * 4);
}
