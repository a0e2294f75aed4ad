/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * geometry - where the bytes of a striped file are
 *
 * Idea: a file is a sequence of block groups, a group k data units and m parity units (the internal
 * blocks, each a block file on a node of its own). Data go round robin over the data units in
 * cells:
 *
 *      unit 0   unit 1   unit 2  | unit 3   unit 4
 *     +-------++-------++-------+|+-------++-------+
 *     | cell 0|| cell 1|| cell 2||| parity|| parity|  row 0 (a stripe)
 *     | cell 3|| cell 4|+-------+|| parity|| parity|  row 1
 *     |       |+-------+         ||       ||       |  cell 4 is partial, cell 5 does not exist
 *     +-------+                  |+-------++-------+
 *
 * A parity cell is as long as the first cell of its row; data cells count as padded with zeros to
 * that length, but the padding is stored nowhere. A unit of length 0 does not exist at all.
 *
 * The same offset in all units belongs together: "at @at in the units" below is such an offset.
 * Ownership: plain values.
 * Threading: pure functions; a struct ec_plan belongs to its caller.
 * Units: bytes. Lengths and offsets "of a group" count data bytes only, as HDFS's block lengths of
 *        groups do. Those that come from peers are checked by ec_length_ok() once, at the edge.
 * Source: hdfs-wire 7.2 and 7.3; Hadoop 3.4.2 StripedBlockUtil, BlockIdManager, StripedWriter.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/erasure/policy.h"

#define EC_LENGTH_MAX (UINT64_C(1) << 56) /* of a group: sums and products of it stay in 64 bits */
#define EC_GROUP_ID_FIRST (INT64_MIN + 16)

/* ---- ids ---- */
/** Ids of groups and their units are negative, those of ordinary blocks are not. */
static inline bool ec_id_is_striped(int64_t block)
{
	return block < 0;
}
static inline int64_t ec_id_group(int64_t block)
{
	return (int64_t)((uint64_t)block & ~(uint64_t)(EC_UNITS_MAX - 1));
}
/** Unit of a striped id; below EC_UNITS_MAX, not necessarily below k + m. */
static inline unsigned ec_id_unit(int64_t block)
{
	return (unsigned)((uint64_t)block & (EC_UNITS_MAX - 1));
}
/** Id of unit @unit's block. @group is a group's id. */
static inline int64_t ec_id_of(int64_t group, unsigned unit)
{
	return (int64_t)((uint64_t)group | unit);
}
/** The group id that follows @last (0: there was none yet) in *@ret. -ENOSPC: all are used. */
int ec_id_next(int64_t last, int64_t *ret);

/* ---- lengths ---- */
static inline bool ec_length_ok(uint64_t length)
{
	return length <= EC_LENGTH_MAX;
}
/** Data bytes of one row. */
static inline uint64_t ec_row_bytes(const struct ec_policy *p)
{
	return (uint64_t)p->k * p->cell;
}
/** Data bytes of a full group of a file whose block size is @block_size (that of each unit). */
static inline uint64_t ec_group_capacity(const struct ec_policy *p, uint64_t block_size)
{
	return p->k * block_size;
}
/** Length of unit @unit of a group of @length data bytes; 0: the unit does not exist. */
uint64_t ec_unit_length(const struct ec_policy *p, uint64_t length, unsigned unit);
/** Bytes on disk of all units together. */
uint64_t ec_space(const struct ec_policy *p, uint64_t length);
/** Data units that exist in a group of @length bytes: min(k, cells). So many good units make the
 *  group readable, and as many must be read to rebuild one. */
unsigned ec_units_needed(const struct ec_policy *p, uint64_t length);
/** The set of all units that exist. */
uint32_t ec_units_existing(const struct ec_policy *p, uint64_t length);
/**
 * How many data bytes of a group are safe, given the lengths of the units that are left:
 * the rows whose cells are whole in at least k units. @lengths[0..count), in any order; 0 when
 * @count is less than k. (Block recovery, hdfs-wire section 8.) The lengths may be a peer's lies:
 * what comes out may be no ec_length_ok() then, and is never a sum that wrapped round.
 */
uint64_t ec_safe_length(const struct ec_policy *p, const uint64_t *lengths, unsigned count);
/**
 * How much of a @safe length was written for sure. A last row that ended early has parity as long
 * as its first cell, so k units may have a row "whole" of which others lack bytes, or all. It is
 * whole when the last data unit, of which
 * @last_unit bytes are known (0: it does not answer), has its cell whole, or the @longest unit goes
 * on behind it.
 */
uint64_t ec_written_length(const struct ec_policy *p, uint64_t safe, uint64_t last_unit,
			   uint64_t longest);
/**
 * Which bytes of the units' range [@at, @at + @len) exist, in @have[0..k+m): the first have[i] of
 * them in unit i; the rest counts as zeros in coding.
 */
void ec_have(const struct ec_policy *p, uint64_t length, uint64_t at, uint32_t len, uint32_t *have);

/* ---- offsets ---- */
struct ec_place {
	unsigned unit;
	uint64_t at;  /* in the unit */
	uint32_t run; /* bytes from there to the end of the cell */
};

/** Where the byte at @offset of a group is. */
struct ec_place ec_place_of(const struct ec_policy *p, uint64_t offset);
/**
 * The one part of data unit @unit that holds its share of the group's range [@offset, @offset +
 * @len): *@ret_at and its length, 0 when the unit has no part in it. It is contiguous in the unit.
 */
uint64_t ec_unit_part(const struct ec_policy *p, uint64_t offset, uint64_t len, unsigned unit,
		      uint64_t *ret_at);

/* ---- a range, row by row ---- */
/** A part of a row in which every data unit is wanted from its start to its end, or not at all.
 *  What else is to be read when one of them is lost is the reader's to choose
 *  (client/src/striped/stripe.c): it learns only on the way who is lost, or slow. */
struct ec_band {
	uint64_t at;   /* in every unit */
	uint32_t len;  /* > 0, within one cell */
	uint32_t want; /* set of data units whose bytes were asked for; not empty */
	/* bytes that each unit has here, parity too: less than len where it ends; the rest counts
	 * as zeros */
	uint32_t have[EC_UNITS_MAX];
	/* where the bytes of each unit of want go, from the start of the range asked for */
	uint64_t dest[EC_UNITS_MAX];
};

/** A walk through a range, row by row; private but for its existence. */
struct ec_plan {
	const struct ec_policy *p; /* borrowed for the walk */
	uint64_t length, offset, end, row;
	uint32_t cut; /* from where in the row on */
};

/** Start the walk through [@offset, @offset + @len) of a group of @length bytes. -EINVAL: the range
 * is not in the group. */
int ec_plan_start(struct ec_plan *plan, const struct ec_policy *p, uint64_t length, uint64_t offset,
		  uint64_t len);
/** The next band; each byte of the range is in exactly one. False: the walk is over. */
bool ec_plan_next(struct ec_plan *plan, struct ec_band *ret);

/* ---- reconstruction ---- */
/**
 * Which units a reconstruction command means: those that exist, are not in @live and not in
 * @excluded, in ascending order, the first @max of them (one per target). Returns how many.
 */
unsigned ec_targets(const struct ec_policy *p, uint64_t length, uint32_t live, uint32_t excluded,
		    unsigned max, uint8_t *ret_units);
