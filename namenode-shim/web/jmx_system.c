/* SPDX-License-Identifier: Apache-2.0 */
/* FSNamesystem, its state, and the states of replicated and striped blocks. */

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "namenode-shim/web/jmx_page.h"

#define GIB (1024.0 * 1024 * 1024)

static void node_counts(struct page *p, json_t *bean)
{
	const struct sums *s = &p->s;

	put_u64(bean, "NumLiveDataNodes", s->live);
	put_u64(bean, "NumDeadDataNodes", s->gone);
	put_u64(bean, "NumDecomLiveDataNodes", s->nodes[DN_DECOMMISSIONED]);
	put_u64(bean, "NumDecomDeadDataNodes", s->dead[DN_DECOMMISSIONED]);
	put_u64(bean, "NumInServiceLiveDataNodes", s->nodes[DN_NORMAL]);
	put_u64(bean, "VolumeFailuresTotal", s->volume_failures);
	put_u64(bean, "EstimatedCapacityLostTotal", 0);
	put_u64(bean, "NumDecommissioningDataNodes", s->nodes[DN_DECOMMISSIONING]);
	put_u64(bean, "NumStaleStorages", s->stale_storages);
	put_u64(bean, "NumInMaintenanceLiveDataNodes", s->nodes[DN_IN_MAINTENANCE]);
	put_u64(bean, "NumInMaintenanceDeadDataNodes", s->dead[DN_IN_MAINTENANCE]);
	put_u64(bean, "NumEnteringMaintenanceDataNodes", s->nodes[DN_ENTERING_MAINTENANCE]);
}

static void block_counts(struct page *p, json_t *bean)
{
	const struct blocks *bs = &p->nn->blocks;
	uint64_t pending = 0, scheduled = 0;

	list_for_each (l, &bs->awaiting)
		pending++;
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		list_for_each (l, &dn->transfers)
			scheduled++;
	put_u64(bean, "BlocksTotal", HASH_COUNT(bs->map));
	put_u64(bean, "FilesTotal", p->nn->inodes);
	put_u64(bean, "PendingReplicationBlocks", pending);
	put_u64(bean, "PendingReconstructionBlocks", pending);
	put_u64(bean, "UnderReplicatedBlocks", bs->under_count);
	put_u64(bean, "LowRedundancyBlocks", bs->under_count);
	put_u64(bean, "ScheduledReplicationBlocks", scheduled);
	put_u64(bean, "PendingDeletionBlocks", datanodes_pending_deletions(&p->nn->dns));
}

static void replicated_counts(struct page *p, json_t *bean)
{
	const struct blocks *bs = &p->nn->blocks;
	const struct datanodes *dns = &p->nn->dns;

	put_u64(bean, "LowRedundancyReplicatedBlocks", bs->under_count - bs->groups.under);
	put_u64(bean, "CorruptReplicatedBlocks", bs->corrupt - bs->groups.corrupt);
	put_u64(bean, "MissingReplicatedBlocks", bs->missing - bs->groups.missing);
	put_u64(bean, "MissingReplicationOneBlocks", bs->missing_one);
	put_u64(bean, "PendingDeletionReplicatedBlocks",
		datanodes_pending_deletions(dns) - datanodes_pending_units(dns));
	put_u64(bean, "TotalReplicatedBlocks", HASH_COUNT(bs->map) - bs->groups.total);
}

static void group_counts(struct page *p, json_t *bean)
{
	const struct blk_sums *g = &p->nn->blocks.groups;

	put_u64(bean, "LowRedundancyECBlockGroups", g->under);
	put_u64(bean, "CorruptECBlockGroups", g->corrupt);
	put_u64(bean, "MissingECBlockGroups", g->missing);
	put_u64(bean, "BytesInFutureECBlockGroups", 0);
	put_u64(bean, "PendingDeletionECBlocks", datanodes_pending_units(&p->nn->dns));
	put_u64(bean, "TotalECBlockGroups", g->total);
}

void jmx_fs_namesystem(struct page *p, json_t *bean)
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

	put_text(bean, "tag.Context", "dfs");
	put_text(bean, "tag.HAState", "active");
	put_text(bean, "tag.Hostname", p->nn->set.host);
	put_u64(bean, "MissingBlocks", bs->missing);
	put_u64(bean, "MissingReplOneBlocks", bs->missing_one);
	put_u64(bean, "TransactionsSinceLastCheckpoint", 0);
	put_u64(bean, "TransactionsSinceLastLogRoll", 0);
	put_u64(bean, "LastWrittenTransactionId", db_last_txid(p->nn->db));
	put_u64(bean, "LastCheckpointTime", clock_wall_ms());
	put_u64(bean, "CapacityTotal", s->capacity);
	put_real(bean, "CapacityTotalGB", (double)s->capacity / GIB);
	put_u64(bean, "CapacityUsed", s->used);
	put_real(bean, "CapacityUsedGB", (double)s->used / GIB);
	put_u64(bean, "CapacityRemaining", s->remaining);
	put_real(bean, "CapacityRemainingGB", (double)s->remaining / GIB);
	put_u64(bean, "CapacityUsedNonDFS", s->non_dfs);
	put_u64(bean, "TotalLoad", s->load);
	put_u64(bean, "NumFilesUnderConstruction", p->nn->leases.files);
	put_u64(bean, "NumActiveClients", HASH_COUNT(p->nn->leases.table));
	block_counts(p, bean);
	put_u64(bean, "CorruptBlocks", bs->corrupt);
	replicated_counts(p, bean);
	group_counts(p, bean);
	put_u64(bean, "HighestPriorityLowRedundancyReplicatedBlocks",
		bs->urgent - bs->groups.urgent);
	put_u64(bean, "HighestPriorityLowRedundancyECBlocks", bs->groups.urgent);
	put_u64(bean, "BlockCapacity", HASH_COUNT(bs->map));
	put_u64(bean, "TotalSyncCount", metric_get(METRIC_NN_COMMITS));
	put_u64(bean, "StaleDataNodes", s->stale);
	node_counts(p, bean);
	put_zeros(bean, zeros);
}

void jmx_fs_state(struct page *p, json_t *bean)
{
	static const char *const zeros[] = {"ProvidedCapacityTotal",
					    "NumEncryptionZones",
					    "CurrentTokensCount",
					    "PendingSPSPaths",
					    "FsLockQueueLength",
					    "MaxObjects",
					    NULL};
	const struct sums *s = &p->s;

	put_u64(bean, "CapacityTotal", s->capacity);
	put_u64(bean, "CapacityUsed", s->used);
	put_u64(bean, "CapacityRemaining", s->remaining);
	put_u64(bean, "TotalLoad", s->load);
	put_text(bean, "SnapshotStats", "{\"SnapshottableDirectories\":0,\"Snapshots\":0}");
	put_real(bean, "ReconstructionQueuesInitProgress", p->nn->safe.startup ? 0 : 1);
	block_counts(p, bean);
	put_u64(bean, "BlockDeletionStartTime", p->nn->start_ms);
	put_text(bean, "FSState", p->nn->safe.on ? "safeMode" : "Operational");
	node_counts(p, bean);
	put_u64(bean, "NumStaleDataNodes", s->stale);
	put_text(bean, "TopUserOpCounts", "{\"timestamp\":\"\",\"windows\":[]}");
	put_u64(bean, "TotalSyncCount", metric_get(METRIC_NN_COMMITS));
	put_zeros(bean, zeros);
}

void jmx_replicated_state(struct page *p, json_t *bean)
{
	replicated_counts(p, bean);
	put_u64(bean, "BytesInFutureReplicatedBlocks", 0);
}

void jmx_ec_state(struct page *p, json_t *bean)
{
	group_counts(p, bean);
	put_text(bean, "EnabledEcPolicies", p->nn->ec_enabled);
}
