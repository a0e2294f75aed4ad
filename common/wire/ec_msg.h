/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ec_msg - erasure-coding policies on the wire
 *
 * Idea: HDFS's own policies travel as their id alone, administrators' own with name, schema and
 * cell size. Both ways are in one place, so that everybody believes the same parts of a message:
 * the numbers. The name is composed again, as Hadoop does it, and a schema's options are not kept
 * (no codec has any).
 * Ownership: plain values; what a message points to is the store's or constant.
 * Threading: pure functions.
 * Source: hdfs-wire 3.1 and 7.1; Hadoop 3.4.2 PBHelperClient.
 */
#include "common/erasure/policy.h"
#include "hdfs.pb-c.h"

/**
 * numBytes of a block in getReplicaVisibleLength() by which who asks says that it means this unit,
 * not the group. Id and stamp of a group are those of its unit 0, and a stock client, which knows
 * no units here, asks each node for the length of the group by them. Otherwise nodes, stock ones
 * too, do not look at numBytes.
 */
#define EC_NUMBYTES_UNIT UINT64_MAX

/** What the message of one policy points to. */
struct ec_policy_msg {
	char name[EC_NAME_MAX];
	Hd__ECSchemaProto schema;
};

/**
 * The policy of a message. One of HDFS's own by its id, whatever else the message says; else the
 * parts, all of which must be there. -EBADMSG: a part is missing, or the codec is not known;
 * -EINVAL: ec_policy_make() refuses them.
 */
int ec_policy_from_msg(const Hd__ErasureCodingPolicyProto *m, struct ec_policy *ret);
/**
 * The message of @p, whole (from its init value on); the state is left to the caller. It points
 * into
 * @store and to constants, not to @p.
 */
void ec_policy_to_msg(const struct ec_policy *p, struct ec_policy_msg *store,
		      Hd__ErasureCodingPolicyProto *ret);
