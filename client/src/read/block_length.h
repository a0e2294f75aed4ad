/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_length - how long the last block of a file is that is being written
 *
 * Idea: the NameNode does not know it; the data nodes of the block do (getReplicaVisibleLength).
 * The first node that answers is believed. A block that no node has heard of is empty: its writer
 * is about to set the pipeline up. A node that cannot be asked, or does not tell, may know more.
 * Each unit of a striped group has a length of its own. What is read of the group is the rows that
 * were certainly written whole: a row that a dead writer was about to end is not read until its
 * lease is recovered. Silent units matter only when fewer units have answered than the policy has
 * data units. Then nothing of the group is read: a flush ends a group (docs/design/ec-sync.md), so
 * nobody was promised a byte of this one, and the groups before it stay readable.
 * Threading: any thread; blocks for one call to each node that is asked.
 * Source: hdfs-wire 3.5.
 */
#include <stdint.h>

#include "client/src/fs/datanode_id.h"
#include "common/base/err.h"
#include "hdfs.pb-c.h"

struct dfs;
struct ec_policy;

#define BLOCK_LENGTH_TRIES 20                   /* for a block that waits for its recovery */
#define BLOCK_LENGTH_PAUSE_NS (250 * NS_PER_MS) /* between two of them */

/** Ask, and write the answer into @lb. -EIO: no node tells; -ETIMEDOUT, -ENOMEM. */
int block_length_ask(struct dfs *fs, Hd__LocatedBlockProto *lb, struct err *err);
/** The same for a striped group. 0 bytes when too few units tell; -ENOMEM, -EPROTO. */
int block_length_ask_group(struct dfs *fs, Hd__LocatedBlockProto *lb,
			   const struct ec_policy *policy, struct err *err);
