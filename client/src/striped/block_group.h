/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_group - a block group as its units: who has which, by which token
 *
 * Idea: the NameNode names a group by one LocatedBlockProto: a list of nodes and, beside it, the
 * index of the unit that each one holds, in any order, some twice, some not at all. Streams know
 * nothing of that: they open a block at a node of a LocatedBlockProto. So every unit gets a message
 * of its own, with its internal block, its copies and its token, that can be handed to a stream as
 * it is. A unit without a copy has n_locs 0.
 * Ownership: everything points into the message that group_view() was given, and into the view
 *            itself: it must not be copied or moved, needs no release, and ends with the message.
 * Threading: a plain value.
 * Source: hdfs-wire 3.5, 7.3; Hadoop 3.4.2 LocatedStripedBlock, StripedBlockUtil.
 */
#include <stdint.h>

#include "client/src/fs/datanode_id.h"
#include "common/erasure/geometry.h"

#define GROUP_COPIES_MAX 4 /* of a unit that are looked at: the nearest */

struct group_unit {
	Hd__LocatedBlockProto lb; /* n_locs copies, the nearest first */
	Hd__ExtendedBlockProto b; /* the internal block; numBytes is the unit's length */
	Hd__DatanodeInfoProto *locs[GROUP_COPIES_MAX];
	char *storage_ids[GROUP_COPIES_MAX];
	Hd__StorageTypeProto storage_types[GROUP_COPIES_MAX];
};

/** Units of a set. */
static inline unsigned group_count(uint32_t set)
{
	return (unsigned)__builtin_popcount(set);
}

struct group {
	const struct ec_policy *policy; /* borrowed */
	int64_t id;
	uint64_t offset; /* in the file */
	uint64_t length; /* data bytes */
	/* set of units that exist: all, as long as the length is 0 (being written) */
	uint32_t existing;
	uint32_t lost;  /* those of them without a copy */
	uint32_t units; /* k + m */
	struct group_unit unit[EC_UNITS_MAX];
};

/**
 * The view of @lb, a group of @policy. -EPROTO for what no NameNode says: an id that is no group's,
 * an index beyond k + m, not one index (and token, where there are any) for each node, a length
 * beyond EC_LENGTH_MAX, more than LOCATED_NODES_MAX nodes.
 */
int group_view(const Hd__LocatedBlockProto *lb, const struct ec_policy *policy, struct group *ret,
	       struct err *err);
/** The nodes of a unit for a person: "127.0.0.1:9866", with "+2" for further copies, or "no node".
 *  Returns @buf[GROUP_TEXT_MAX]. */
#define GROUP_TEXT_MAX (NET_TEXT_MAX + 8)
const char *group_unit_text(const struct group *g, unsigned unit, char *buf);
