/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * coder - parity from data, and lost units from those that are left
 *
 * Idea: unit i of a stripe is a vector of bytes; 0..k-1 are data, k..k+m-1 parity. Parity row r is
 * the sum over j of 1/((k + r) xor j) * data j in GF(2^8) with polynomial 0x11d: ISA-L's
 * gf_gen_cauchy1_matrix, which is also the matrix of Hadoop's native and pure Java "rs" coders, so
 * that parity is theirs byte for byte. "xor" is the sum of all data units. Coding is byte by byte:
 * any part of the units, cut at the same place in each, can be coded alone, in any order.
 *
 * A source is shorter than the others when the file ends inside a stripe: what it lacks counts as
 * zeros (struct ec_src). Nothing needs to be padded in memory.
 *
 * Decoding inverts the k rows of the matrix that are left. The tables made of that are kept for the
 * last EC_CACHED patterns of a coder (the least recently used one goes first).
 *
 * Ownership: the caller owns all buffers; nothing is kept of them, nothing is allocated after
 *            ec_coder_new().
 * Threading: one thread at a time per coder (the cache). Nothing locks.
 * Units:     bytes. Buffers of any length and alignment; 32-byte alignment is fastest for "xor".
 * Source:    hdfs-wire 7.7; ISA-L erasure_code.h, raid.h.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/erasure/policy.h"

#define EC_CACHED 32u /* decode patterns a coder remembers */

/** What is there of a unit: @len bytes, zeros behind them. @data may be NULL when @len is 0. A @len
 *  above that of the call is the same as that of the call. */
struct ec_src {
	const uint8_t *data; /* borrowed for the call */
	size_t len;
};

struct ec_coder;

/** -ENOTSUP ec_policy_can_code() says no; -ENOMEM. */
int ec_coder_new(const struct ec_policy *p, struct ec_coder **ret, struct err *err);
/** Accepts NULL. */
void ec_coder_free(struct ec_coder *c);

/** All m parity units, @len bytes each, from the k data units @data. No output may overlap a
 *  source. */
void ec_encode(struct ec_coder *c, const struct ec_src *data, uint8_t *const *parity, size_t len);

/**
 * Rebuild the units of the bit set @want from those of the bit set @have, the lowest k of which are
 * read. @units[i] is looked at for those k only; a unit known to be all zeros is one of @have with
 * length 0. @out[i] receives unit i for each bit of @want, @len bytes; no other entry of @out is
 * looked at. @want may hold data and parity; it may not share a bit with @have.
 * -ENODATA fewer than k units in @have; -EINVAL a bit outside k + m, or in both sets. Nothing was
 * written then.
 */
int ec_decode(struct ec_coder *c, uint32_t have, uint32_t want, const struct ec_src *units,
	      uint8_t *const *out, size_t len);

/**
 * Do the units of @have, all of them, belong together? The lowest k predict the others, and
 * @ret_differ gets a bit for each that is not as predicted: 0 when all is well. Which unit is wrong
 * is not known from one call; leaving out one unit after the other tells, when @have holds at least
 * k + 2. -ENODATA fewer than k + 1 units in @have: there is nothing to compare; -EINVAL as above.
 */
int ec_check(struct ec_coder *c, uint32_t have, const struct ec_src *units, size_t len,
	     uint32_t *ret_differ);

/** Decode tables found in and made for the cache since ec_coder_new(). Only tests ask: that the
 *  cache works shows in nothing else but time. */
void ec_coder_cache_stats(const struct ec_coder *c, uint64_t *ret_hits, uint64_t *ret_misses);
