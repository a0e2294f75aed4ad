/* SPDX-License-Identifier: Apache-2.0 */
/* FSNamesystem, its state, and the states of replicated and striped blocks. */

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "namenode-shim/web/jmx_page.h"

#define GIB (1024.0 * 1024 * 1024)

static void node_counts(struct page *p)
{
	const struct sums *s = &p->s;

	put_u64(p, "NumLiveDataNodes", s->live);
	put_u64(p, "NumDeadDataNodes", s->gone);
	put_u64(p, "NumDecomLiveDataNodes", s->nodes[DN_DECOMMISSIONED]);
	put_u64(p, "NumDecomDeadDataNodes", s->dead[DN_DECOMMISSIONED]);
	put_u64(p, "NumInServiceLiveDataNodes", s->nodes[DN_NORMAL]);
	put_u64(p, "VolumeFailuresTotal", s->volume_failures);
	put_u64(p, "EstimatedCapacityLostTotal", 0);
	put_u64(p, "NumDecommissioningDataNodes", s->nodes[DN_DECOMMISSIONING]);
	put_u64(p, "NumStaleStorages", s->stale_storages);
	put_u64(p, "NumInMaintenanceLiveDataNodes", s->nodes[DN_IN_MAINTENANCE]);
	put_u64(p, "NumInMaintenanceDeadDataNodes", s->dead[DN_IN_MAINTENANCE]);
	put_u64(p, "NumEnteringMaintenanceDataNodes", s->nodes[DN_ENTERING_MAINTENANCE]);
}

static void block_counts(struct page *p)
{
	const struct blocks *bs = &p->nn->blocks;
	uint64_t pending = 0, scheduled = 0;

	list_for_each (l, &bs->awaiting)
		pending++;
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		list_for_each (l, &dn->transfers)
			scheduled++;
	put_u64(p, "BlocksTotal", HASH_COUNT(bs->map));
	put_u64(p, "FilesTotal", p->nn->inodes);
	put_u64(p, "PendingReplicationBlocks", pending);
	put_u64(p, "PendingReconstructionBlocks", pending);
	put_u64(p, "UnderReplicatedBlocks", bs->under_count);
	put_u64(p, "LowRedundancyBlocks", bs->under_count);
	put_u64(p, "ScheduledReplicationBlocks", scheduled);
	put_u64(p, "PendingDeletionBlocks", datanodes_pending_deletions(&p->nn->dns));
}

static void replicated_counts(struct page *p)
{
	const struct blocks *bs = &p->nn->blocks;
	const struct datanodes *dns = &p->nn->dns;

	put_u64(p, "LowRedundancyReplicatedBlocks", bs->under_count - bs->groups.under);
	put_u64(p, "CorruptReplicatedBlocks", bs->corrupt - bs->groups.corrupt);
	put_u64(p, "MissingReplicatedBlocks", bs->missing - bs->groups.missing);
	put_u64(p, "MissingReplicationOneBlocks", bs->missing_one);
	put_u64(p, "PendingDeletionReplicatedBlocks",
		datanodes_pending_deletions(dns) - datanodes_pending_units(dns));
	put_u64(p, "TotalReplicatedBlocks", HASH_COUNT(bs->map) - bs->groups.total);
}

static void group_counts(struct page *p)
{
	const struct blk_sums *g = &p->nn->blocks.groups;

	put_u64(p, "LowRedundancyECBlockGroups", g->under);
	put_u64(p, "CorruptECBlockGroups", g->corrupt);
	put_u64(p, "MissingECBlockGroups", g->missing);
	put_u64(p, "BytesInFutureECBlockGroups", 0);
	put_u64(p, "PendingDeletionECBlocks", datanodes_pending_units(&p->nn->dns));
	put_u64(p, "TotalECBlockGroups", g->total);
}

void jmx_fs_namesystem(struct page *p)
{
	static const char *const zeros[] = {"ProvidedCapacityTotal",
					    "SnapshottableDirectories",
					    "Snapshots",
					    "NumEncryptionZones",
					    "CurrentTokensCount",
					    "PendingSPSPaths",
					    "LockQueueLength",
					    "ReadLockLongHoldCount",
					    "WriteLockLongHoldCount",
					    "BytesInFutureReplicatedBlocks",
					    "ExcessBlocks",
					    "NumTimedOutPendingReconstructions",
					    "PostponedMisreplicatedBlocks",
					    "PendingDataNodeMessageCount",
					    "MillisSinceLastLoadedEdits",
					    "ExpiredHeartbeats",
					    NULL};
	const struct blocks *bs = &p->nn->blocks;
	const struct sums *s = &p->s;

	put_text(p, "tag.Context", "dfs");
	put_text(p, "tag.HAState", "active");
	put_text(p, "tag.Hostname", p->nn->set.host);
	put_u64(p, "MissingBlocks", bs->missing);
	put_u64(p, "MissingReplOneBlocks", bs->missing_one);
	put_u64(p, "TransactionsSinceLastCheckpoint", 0);
	put_u64(p, "TransactionsSinceLastLogRoll", 0);
	put_u64(p, "LastWrittenTransactionId", db_last_txid(p->nn->db));
	put_u64(p, "LastCheckpointTime", clock_wall_ms());
	put_u64(p, "CapacityTotal", s->capacity);
	put_num(p, "CapacityTotalGB", (double)s->capacity / GIB);
	put_u64(p, "CapacityUsed", s->used);
	put_num(p, "CapacityUsedGB", (double)s->used / GIB);
	put_u64(p, "CapacityRemaining", s->remaining);
	put_num(p, "CapacityRemainingGB", (double)s->remaining / GIB);
	put_u64(p, "CapacityUsedNonDFS", s->non_dfs);
	put_u64(p, "TotalLoad", s->load);
	put_u64(p, "NumFilesUnderConstruction", p->nn->leases.files);
	put_u64(p, "NumActiveClients", HASH_COUNT(p->nn->leases.table));
	block_counts(p);
	put_u64(p, "CorruptBlocks", bs->corrupt);
	replicated_counts(p);
	group_counts(p);
	put_u64(p, "HighestPriorityLowRedundancyReplicatedBlocks", bs->urgent - bs->groups.urgent);
	put_u64(p, "HighestPriorityLowRedundancyECBlocks", bs->groups.urgent);
	put_u64(p, "BlockCapacity", HASH_COUNT(bs->map));
	put_u64(p, "TotalSyncCount", metric_get(METRIC_NN_COMMITS));
	put_u64(p, "StaleDataNodes", s->stale);
	node_counts(p);
	put_zeros(p, zeros);
}

void jmx_fs_state(struct page *p)
{
	static const char *const zeros[] = {"ProvidedCapacityTotal",
					    "NumEncryptionZones",
					    "CurrentTokensCount",
					    "PendingSPSPaths",
					    "FsLockQueueLength",
					    "MaxObjects",
					    NULL};
	const struct sums *s = &p->s;

	put_u64(p, "CapacityTotal", s->capacity);
	put_u64(p, "CapacityUsed", s->used);
	put_u64(p, "CapacityRemaining", s->remaining);
	put_u64(p, "TotalLoad", s->load);
	put_text(p, "SnapshotStats", "{\"SnapshottableDirectories\":0,\"Snapshots\":0}");
	put_num(p, "ReconstructionQueuesInitProgress", p->nn->safe.startup ? 0 : 1);
	block_counts(p);
	put_u64(p, "BlockDeletionStartTime", p->nn->start_ms);
	put_text(p, "FSState", p->nn->safe.on ? "safeMode" : "Operational");
	node_counts(p);
	put_u64(p, "NumStaleDataNodes", s->stale);
	put_text(p, "TopUserOpCounts", "{\"timestamp\":\"\",\"windows\":[]}");
	put_u64(p, "TotalSyncCount", metric_get(METRIC_NN_COMMITS));
	put_zeros(p, zeros);
}

void jmx_replicated_state(struct page *p)
{
	replicated_counts(p);
	put_u64(p, "BytesInFutureReplicatedBlocks", 0);
}

void jmx_ec_state(struct page *p)
{
	group_counts(p);
	put_text(p, "EnabledEcPolicies", p->nn->ec_enabled);
}
