/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ec_reconstruct - units of groups that are missing: who is told to make them again
 *
 * Idea: a unit that is on no living node is decoded from the others by a data node, the one that is
 * to hold the first of the new units; a unit whose node is to leave is copied as it is. The command
 * does not say which target gets which unit: both sides count the missing ones in order
 * (ec_targets(), geometry.h), so a second command for a group waits until the first one's targets
 * have reported or their time is over.
 * Of a group whose units could stand in more racks, or more evenly, one unit at a time is copied to
 * another rack; the old one is deleted when the copy has been reported.
 * Threading: writer thread; mem_lock held for writing.
 * Source: hdfs-wire 7.6; Hadoop 3.4.2 ErasureCodingWork, BlockECReconstructionCommand.
 */
#include <stdbool.h>
#include <stdint.h>

#include "DatanodeProtocol.pb-c.h"

struct blk;
struct dn;
struct nn;
struct storage_policy;
struct req;

/** Order what @b, a group that can be read and lacks units or crowds racks, needs, where @policy
 *  wants it (NULL: HOT). False: nothing was ordered. */
bool ec_reconstruct_order(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			  uint64_t now_ns);
/** The orders of @dn that are due, as a command; NULL: all are out of date. */
Hdd__DatanodeCommandProto *ec_reconstruct_command(struct req *q, struct dn *dn);
