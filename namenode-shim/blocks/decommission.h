/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * decommission - nodes that leave service: decommission and maintenance
 *
 * Idea: a node that is decommissioned goes on serving reads, while its replicas no longer count and
 * are copied elsewhere; when every block has enough replicas on other nodes it is DECOMMISSIONED. A
 * node that enters maintenance needs only dfs.namenode.maintenance.replication.min good replicas of
 * each of its blocks elsewhere. In maintenance it may be away, and nothing is copied until the time
 * is over.
 * Whether a node may go is found by a walk over the block map in slices, every
 * dfs.namenode.decommission.interval while a node is leaving.
 * Threading: writer thread, mem_lock held for writing.
 * Source: DatanodeAdminManager, DatanodeAdminDefaultMonitor of Hadoop 3.4.2.
 */
#include "namenode-shim/blocks/hosts.h"

struct dn;
struct nn;

/** The hosts files were read (again): judge every node. */
void decommission_judge_all(struct nn *nn);
/** @dn registered. Its verdict allows it. */
void decommission_judge(struct nn *nn, struct dn *dn, const struct hosts_verdict *v);
/** Once in a while. */
void decommission_tick(struct nn *nn, uint64_t now_ns);
/** Count the next slice of the blocks of leaving nodes. nn->leaving_cursor is open. */
void decommission_slice(struct nn *nn);
