/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/jmx.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "namenode-shim/arena.h"
#include "namenode-shim/json.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/ops.h"
#include "namenode-shim/req.h"
#include "namenode-shim/users.h"

#define FSN "org.apache.hadoop.hdfs.server.namenode.FSNamesystem"
#define GIB (1024.0 * 1024 * 1024)

/* Everything that is counted once for a page. */
struct sums {
	uint64_t capacity, used, remaining, non_dfs, pool_used, load, volume_failures, stale_storages;
	uint32_t nodes[5], dead[5]; /* by enum dn_admin; nodes: alive */
	uint32_t live, gone, stale;
};

struct page {
	struct nn *nn;
	struct json j;
	struct arena a;
	struct sums s;
	const char *qry, *attr; /* attr: only this one; NULL: all */
	struct txn *txn;
};

#define STALE_NS (30 * NS_PER_S) /* dfs.namenode.stale.datanode.interval */

static void sum_up(struct page *p)
{
	struct sums *s = &p->s;

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		(dn->alive ? s->nodes : s->dead)[dn->admin]++;
		*(dn->alive ? &s->live : &s->gone) += 1;
		if (!dn->alive)
			continue;
		s->stale += clock_mono_ns() - dn->heard_ns > STALE_NS;
		s->capacity += dn_capacity(dn);
		s->used += dn_used(dn);
		s->remaining += dn_remaining(dn);
		s->load += dn->xceivers;
		s->volume_failures += dn->failed_volumes;
		for (uint32_t i = 0; i < dn->nstorages; i++) {
			s->non_dfs += dn->storage[i]->non_dfs;
			s->pool_used += dn->storage[i]->pool_used;
			s->stale_storages += !dn->storage[i]->reported;
		}
	}
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* ---- attributes ---- */

static bool wanted(const struct page *p, const char *key)
{
	return !p->attr || !strcmp(p->attr, key);
}

static void put_u64(struct page *p, const char *key, uint64_t v)
{
	if (wanted(p, key))
		json_u64(&p->j, key, v);
}

static void put_text(struct page *p, const char *key, const char *v)
{
	if (wanted(p, key))
		json_text(&p->j, key, v);
}

static void put_num(struct page *p, const char *key, double v)
{
	if (wanted(p, key))
		json_num(&p->j, key, v);
}

static void put_bool(struct page *p, const char *key, bool v)
{
	if (wanted(p, key))
		json_bool(&p->j, key, v);
}

static void put_zeros(struct page *p, const char *const *keys)
{
	for (; *keys; keys++)
		put_u64(p, *keys, 0);
}

/* A text attribute that holds JSON itself, as several of HDFS do. */
struct inner {
	struct json j;
	char *text;
	size_t len;
};

static void inner_open(struct inner *i, char open)
{
	memset(i, 0, sizeof(*i));
	i->j.out = open_memstream(&i->text, &i->len);
	if (!i->j.out)
		abort(); /* as xcalloc(): out of memory */
	json_open(&i->j, NULL, open);
}

static void inner_put(struct page *p, struct inner *i, const char *key, char close)
{
	json_close(&i->j, close);
	fclose(i->j.out);
	put_text(p, key, i->text);
	free(i->text);
}

/* ---- NameNodeInfo ---- */

static const char *admin_text(const struct dn *dn)
{
	static const char *const text[] = {"In Service", "Decommission In Progress", "Decommissioned",
					   "Entering Maintenance", "In Maintenance"};

	return text[dn->admin];
}

static void node_json(struct page *p, struct json *j, const struct dn *dn)
{
	uint64_t non_dfs = 0, blocks = 0, pool = 0, promised = 0;

	for (uint32_t i = 0; i < dn->nstorages; i++) {
		non_dfs += dn->storage[i]->non_dfs;
		blocks += dn->storage[i]->nblocks;
		pool += dn->storage[i]->pool_used;
		promised += dn->storage[i]->promised_blocks;
	}
	json_open(j, arena_printf(&p->a, "%s:%u", dn->host, dn->xfer_port), '{');
	json_text(j, "infoAddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->info_port));
	json_text(j, "infoSecureAddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->info_secure_port));
	json_text(j, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
	json_text(j, "location", dn->rack);
	json_u64(j, "lastContact", (clock_mono_ns() - dn->heard_ns) / NS_PER_S);
	json_u64(j, "usedSpace", dn_used(dn));
	json_text(j, "adminState", admin_text(dn));
	json_u64(j, "nonDfsUsedSpace", non_dfs);
	json_u64(j, "capacity", dn_capacity(dn));
	json_u64(j, "numBlocks", blocks);
	json_text(j, "version", dn->version);
	json_u64(j, "used", dn_used(dn));
	json_u64(j, "remaining", dn_remaining(dn));
	json_u64(j, "blockScheduled", promised);
	json_u64(j, "blockPoolUsed", pool);
	json_num(j, "blockPoolUsedPercent", percent(pool, dn_capacity(dn)));
	json_u64(j, "volfails", dn->failed_volumes);
	json_u64(j, "lastBlockReport",
		 dn->report_ns ? (clock_mono_ns() - dn->report_ns) / (60 * NS_PER_S) : 0);
	json_num(j, "blockPoolUsedPercentStdDev", 0);
	if (*dn->upgrade_domain)
		json_text(j, "upgradeDomain", dn->upgrade_domain);
	json_close(j, '}');
}

static void live_nodes(struct page *p)
{
	struct inner i;

	inner_open(&i, '{');
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		if (dn->alive)
			node_json(p, &i.j, dn);
	inner_put(p, &i, "LiveNodes", '}');
}

static void dead_nodes(struct page *p)
{
	struct inner i;

	inner_open(&i, '{');
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		if (dn->alive)
			continue;
		json_open(&i.j, arena_printf(&p->a, "%s:%u", dn->host, dn->xfer_port), '{');
		json_u64(&i.j, "lastContact", (clock_mono_ns() - dn->heard_ns) / NS_PER_S);
		json_bool(&i.j, "decommissioned", dn->admin == DN_DECOMMISSIONED);
		json_text(&i.j, "adminState", admin_text(dn));
		json_text(&i.j, "xferaddr",
			  arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
		json_text(&i.j, "location", dn->rack);
		json_close(&i.j, '}');
	}
	inner_put(p, &i, "DeadNodes", '}');
}

static void draining_nodes(struct page *p, const char *key, enum dn_admin admin)
{
	struct inner i;

	inner_open(&i, '{');
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		if (dn->admin != admin)
			continue;
		json_open(&i.j, arena_printf(&p->a, "%s:%u", dn->host, dn->xfer_port), '{');
		json_text(&i.j, "xferaddr",
			  arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
		json_text(&i.j, "location", dn->rack);
		json_u64(&i.j, "underReplicatedBlocks", dn->drain_left);
		json_u64(&i.j, admin == DN_DECOMMISSIONING ? "decommissionOnlyReplicas"
							     : "maintenanceOnlyReplicas",
			 dn->drain_only);
		json_u64(&i.j, "underReplicateInOpenFiles", dn->drain_open);
		json_close(&i.j, '}');
	}
	inner_put(p, &i, key, '}');
}

static void name_dirs(struct page *p)
{
	struct inner i;

	inner_open(&i, '{');
	json_open(&i.j, "active", '{');
	json_text(&i.j, p->nn->set.name_dir, "IMAGE_AND_EDITS");
	json_close(&i.j, '}');
	json_open(&i.j, "failed", '{');
	json_close(&i.j, '}');
	inner_put(p, &i, "NameDirStatuses", '}');
	inner_open(&i, '{');
	json_u64(&i.j, p->nn->set.name_dir, db_used_bytes(p->nn->db));
	inner_put(p, &i, "NameDirSize", '}');
	inner_open(&i, '[');
	json_open(&i.j, NULL, '{');
	json_text(&i.j, "manager", "LMDB");
	json_text(&i.j, "stream", p->nn->set.name_dir);
	json_text(&i.j, "disabled", "false");
	json_text(&i.j, "required", "true");
	json_close(&i.j, '}');
	inner_put(p, &i, "NameJournalStatus", ']');
	inner_open(&i, '{');
	json_text(&i.j, "MostRecentCheckpointTxId",
		  arena_printf(&p->a, "%" PRIu64, db_last_txid(p->nn->db)));
	json_text(&i.j, "LastAppliedOrWrittenTxId",
		  arena_printf(&p->a, "%" PRIu64, db_last_txid(p->nn->db)));
	inner_put(p, &i, "JournalTransactionInfo", '}');
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void node_usage(struct page *p)
{
	double *u = arena_array(&p->a, double, p->s.live + 1), sum = 0, var = 0;
	uint32_t n = 0;
	struct inner i;

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		if (dn->alive)
			sum += u[n++] = percent(dn_used(dn), dn_capacity(dn));
	qsort(u, n, sizeof(*u), by_value);
	for (uint32_t k = 0; k < n; k++)
		var += (u[k] - sum / n) * (u[k] - sum / n) / n;
	/* The root by halving: enough for two digits, and no mathematics library for it. */
	double lo = 0, hi = var > 1 ? var : 1;

	for (int k = 0; k < 60; k++)
		*((lo + hi) / 2 * ((lo + hi) / 2) < var ? &lo : &hi) = (lo + hi) / 2;
	inner_open(&i, '{');
	json_open(&i.j, "nodeUsage", '{');
	json_text(&i.j, "min", arena_printf(&p->a, "%.2f%%", n ? u[0] : 0));
	json_text(&i.j, "median", arena_printf(&p->a, "%.2f%%", n ? u[n / 2] : 0));
	json_text(&i.j, "max", arena_printf(&p->a, "%.2f%%", n ? u[n - 1] : 0));
	json_text(&i.j, "stdDev", arena_printf(&p->a, "%.2f%%", lo));
	json_close(&i.j, '}');
	inner_put(p, &i, "NodeUsage", '}');
}

static void corrupt_files(struct page *p)
{
	struct exc_info exc = {.a = &p->a};
	struct ns ns = {.t = p->txn, .a = &p->a, .x = &exc, .super = true};
	struct ops_corrupt found = {0};
	struct inner i;

	if (!wanted(p, "CorruptFiles") && !wanted(p, "CorruptFilesCount"))
		return;
	if (ops_corrupt_files(&ns, p->nn, "/", NULL, &found) < 0)
		found.n = 0;
	inner_open(&i, '[');
	for (uint32_t k = 0; k < found.n; k++)
		json_text(&i.j, NULL, found.path[k]);
	inner_put(p, &i, "CorruptFiles", ']');
	put_u64(p, "CorruptFilesCount", found.n);
}

static void versions(struct page *p)
{
	if (!wanted(p, "DistinctVersions") && !wanted(p, "DistinctVersionCount"))
		return;
	const struct dn *dns = p->nn->dns.table;
	uint64_t count = 0;

	if (wanted(p, "DistinctVersions"))
		json_open(&p->j, "DistinctVersions", '[');
	for (const struct dn *dn = dns; dn; dn = dn->hh.next) {
		const struct dn *first = dns;
		uint64_t same = 0;

		while (strcmp(first->version, dn->version))
			first = first->hh.next;
		for (const struct dn *o = dns; o && first == dn; o = o->hh.next)
			same += !strcmp(o->version, dn->version);
		count += first == dn;
		if (first != dn || !wanted(p, "DistinctVersions"))
			continue;
		json_open(&p->j, NULL, '{');
		json_text(&p->j, "key", dn->version);
		json_u64(&p->j, "value", same);
		json_close(&p->j, '}');
	}
	if (wanted(p, "DistinctVersions"))
		json_close(&p->j, ']');
	put_u64(p, "DistinctVersionCount", count);
}

static const char *safe_text(struct page *p)
{
	char tip[ERR_TEXT_MAX];

	return p->nn->safe.on ? arena_printf(&p->a, "Safe mode is ON. %s", nn_safe_text(p->nn, tip))
			      : "";
}

static void name_node_info(struct page *p)
{
	const struct nn *nn = p->nn;
	const struct sums *s = &p->s;

	put_u64(p, "Threads", 4); /* main, signals, writer, web */
	put_text(p, "Version", NN_VERSION ", dfs-rdma " DFS_VERSION);
	put_text(p, "SoftwareVersion", NN_VERSION);
	put_text(p, "CompileInfo", "dfs-rdma " DFS_VERSION);
	put_bool(p, "UpgradeFinalized", true);
	put_text(p, "BlockPoolId", nn->db->ident.pool_id);
	put_text(p, "ClusterId", nn->db->ident.cluster_id);
	put_u64(p, "HighestPriorityLowRedundancyReplicatedBlocks", nn->blocks.urgent);
	put_u64(p, "HighestPriorityLowRedundancyECBlocks", 0);
	put_u64(p, "Used", s->used);
	put_u64(p, "Free", s->remaining);
	put_u64(p, "Total", s->capacity);
	put_u64(p, "ProvidedCapacity", 0);
	put_text(p, "Safemode", safe_text(p));
	put_u64(p, "NonDfsUsedSpace", s->non_dfs);
	put_num(p, "PercentUsed", percent(s->used, s->capacity));
	put_u64(p, "BlockPoolUsedSpace", s->pool_used);
	put_num(p, "PercentBlockPoolUsed", percent(s->pool_used, s->capacity));
	put_num(p, "PercentRemaining", percent(s->remaining, s->capacity));
	put_u64(p, "CacheCapacity", 0);
	put_u64(p, "CacheUsed", 0);
	put_u64(p, "TotalBlocks", HASH_COUNT(nn->blocks.map));
	put_u64(p, "NumberOfMissingBlocks", nn->blocks.missing);
	put_u64(p, "NumberOfMissingBlocksWithReplicationFactorOne", nn->blocks.missing_one);
	live_nodes(p);
	dead_nodes(p);
	draining_nodes(p, "DecomNodes", DN_DECOMMISSIONING);
	draining_nodes(p, "EnteringMaintenanceNodes", DN_ENTERING_MAINTENANCE);
	name_dirs(p);
	node_usage(p);
	corrupt_files(p);
	put_u64(p, "NNStartedTimeInMillis", nn->start_ms);
	put_u64(p, "NumberOfSnapshottableDirs", 0);
	versions(p);
	put_text(p, "RollingUpgradeStatus", NULL);
}

/* ---- FSNamesystem and its state ---- */

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

	list_for_each(l, &bs->awaiting)
		pending++;
	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		list_for_each(l, &dn->transfers)
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

static void fs_namesystem(struct page *p)
{
	static const char *const zeros[] = {"ProvidedCapacityTotal", "SnapshottableDirectories",
					    "Snapshots", "NumEncryptionZones", "CurrentTokensCount",
					    "PendingSPSPaths", "LockQueueLength",
					    "ReadLockLongHoldCount", "WriteLockLongHoldCount",
					    "HighestPriorityLowRedundancyECBlocks",
					    "BytesInFutureReplicatedBlocks",
					    "LowRedundancyECBlockGroups", "CorruptECBlockGroups",
					    "MissingECBlockGroups", "BytesInFutureECBlockGroups",
					    "PendingDeletionECBlocks", "TotalECBlockGroups",
					    "ExcessBlocks", "NumTimedOutPendingReconstructions",
					    "PostponedMisreplicatedBlocks",
					    "PendingDataNodeMessageCount",
					    "MillisSinceLastLoadedEdits", "ExpiredHeartbeats", NULL};
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
	put_u64(p, "LowRedundancyReplicatedBlocks", bs->under_count);
	put_u64(p, "CorruptReplicatedBlocks", bs->corrupt);
	put_u64(p, "MissingReplicatedBlocks", bs->missing);
	put_u64(p, "MissingReplicationOneBlocks", bs->missing_one);
	put_u64(p, "HighestPriorityLowRedundancyReplicatedBlocks", bs->urgent);
	put_u64(p, "PendingDeletionReplicatedBlocks", datanodes_pending_deletions(&p->nn->dns));
	put_u64(p, "TotalReplicatedBlocks", HASH_COUNT(bs->map));
	put_u64(p, "BlockCapacity", HASH_COUNT(bs->map));
	put_u64(p, "TotalSyncCount", metric_get(METRIC_NN_COMMITS));
	put_u64(p, "StaleDataNodes", s->stale);
	node_counts(p);
	put_zeros(p, zeros);
}

static void fs_state(struct page *p)
{
	static const char *const zeros[] = {"ProvidedCapacityTotal", "NumEncryptionZones",
					    "CurrentTokensCount", "PendingSPSPaths",
					    "FsLockQueueLength", "MaxObjects", NULL};
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

static void replicated_state(struct page *p)
{
	const struct blocks *bs = &p->nn->blocks;

	put_u64(p, "LowRedundancyReplicatedBlocks", bs->under_count);
	put_u64(p, "CorruptReplicatedBlocks", bs->corrupt);
	put_u64(p, "MissingReplicatedBlocks", bs->missing);
	put_u64(p, "MissingReplicationOneBlocks", bs->missing_one);
	put_u64(p, "BytesInFutureReplicatedBlocks", 0);
	put_u64(p, "PendingDeletionReplicatedBlocks", datanodes_pending_deletions(&p->nn->dns));
	put_u64(p, "TotalReplicatedBlocks", HASH_COUNT(bs->map));
}

static void ec_state(struct page *p)
{
	static const char *const zeros[] = {"LowRedundancyECBlockGroups", "CorruptECBlockGroups",
					    "MissingECBlockGroups", "BytesInFutureECBlockGroups",
					    "PendingDeletionECBlocks", "TotalECBlockGroups", NULL};

	put_zeros(p, zeros);
	put_text(p, "EnabledEcPolicies", "");
}

/* ---- the small ones ---- */

static void status(struct page *p)
{
	put_text(p, "State", "active");
	put_text(p, "NNRole", "NameNode");
	put_text(p, "HostAndPort", arena_printf(&p->a, "%s:%u", p->nn->set.host, p->nn->rpc_port));
	put_bool(p, "SecurityEnabled", false);
	put_u64(p, "LastHATransitionTime", 0);
	put_u64(p, "BytesWithFutureGenerationStamps", 0);
	put_text(p, "SlowPeersReport", NULL);
	put_text(p, "SlowDisksReport", NULL);
}

static void block_stats(struct page *p)
{
	static const char *const names[] = {NULL, "DISK", "SSD", "ARCHIVE", "RAM_DISK", "PROVIDED",
					    "NVDIMM"};

	if (!wanted(p, "StorageTypeStats"))
		return;
	json_open(&p->j, "StorageTypeStats", '[');
	for (unsigned int t = 1; t < sizeof(names) / sizeof(names[0]); t++) {
		uint64_t cap = 0, used = 0, left = 0, pool = 0, non = 0, nodes = 0, load = 0;

		for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
			bool has = false;

			for (uint32_t i = 0; dn->alive && i < dn->nstorages; i++) {
				const struct storage *st = dn->storage[i];

				if ((unsigned int)st->type != t || st->failed)
					continue;
				has = true;
				cap += st->capacity, used += st->used, left += st->remaining;
				pool += st->pool_used, non += st->non_dfs;
			}
			nodes += has && dn->admin == DN_NORMAL;
			load += has && dn->admin == DN_NORMAL ? dn->xceivers : 0;
		}
		if (!nodes)
			continue;
		json_open(&p->j, NULL, '{');
		json_text(&p->j, "key", names[t]);
		json_open(&p->j, "value", '{');
		json_u64(&p->j, "blockPoolUsed", pool);
		json_u64(&p->j, "capacityNonDfsUsed", non);
		json_u64(&p->j, "capacityRemaining", left);
		json_u64(&p->j, "capacityTotal", cap);
		json_u64(&p->j, "capacityUsed", used);
		json_u64(&p->j, "nodesInService", nodes);
		json_u64(&p->j, "nodesInServiceXceiverCount", load);
		json_close(&p->j, '}');
		json_close(&p->j, '}');
	}
	json_close(&p->j, ']');
}

static uint64_t calls_of(const struct nn *nn, const char *method)
{
	const struct call_stat *c = call_stats_find(nn->calls, method);

	return c ? c->calls : 0;
}

static void activity(struct page *p)
{
	static const struct {
		const char *attr, *method;
	} map[] = {
		{"AddBlockOps", "addBlock"},
		{"CreateFileOps", "create"},
		{"DeleteFileOps", "delete"},
		{"FileInfoOps", "getFileInfo"},
		{"FilesAppended", "append"},
		{"FilesCreated", "create"},
		{"FilesDeleted", "delete"},
		{"FilesTruncated", "truncate"},
		{"GetAdditionalDatanodeOps", "getAdditionalDatanode"},
		{"GetBlockLocations", "getBlockLocations"},
		{"GetLinkTargetOps", "getLinkTarget"},
		{"GetListingOps", "getListing"},
		{"BlockReceivedAndDeletedOps", "blockReceivedAndDeleted"},
		{"StorageBlockReportNumOps", "blockReport"},
		{"CacheReportNumOps", "cacheReport"},
	};
	uint64_t total = 0;

	put_text(p, "tag.ProcessName", "NameNode");
	put_text(p, "tag.Context", "dfs");
	put_text(p, "tag.Hostname", p->nn->set.host);
	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		put_u64(p, map[i].attr, calls_of(p->nn, map[i].method));
	put_u64(p, "FilesRenamed", calls_of(p->nn, "rename") + calls_of(p->nn, "rename2"));
	put_u64(p, "SyncsNumOps", metric_get(METRIC_NN_COMMITS));
	put_u64(p, "TransactionsNumOps", metric_get(METRIC_NN_OPS));
	put_u64(p, "SafeModeTime",
		p->nn->safe.left_ns ? (p->nn->safe.left_ns - p->nn->start_ns) / NS_PER_MS : 0);
	for (const struct call_stat *c = p->nn->calls; c; c = c->next)
		total += c->calls;
	put_u64(p, "TotalFileOps", total);
}

static void rpc_activity(struct page *p)
{
	uint64_t calls = 0, failures = 0, ns = 0;

	for (const struct call_stat *c = p->nn->calls; c; c = c->next)
		calls += c->calls, failures += c->failures, ns += c->ns;
	put_text(p, "tag.port", arena_printf(&p->a, "%u", p->nn->rpc_port));
	put_text(p, "tag.serverName", "ClientNamenodeProtocol");
	put_text(p, "tag.Context", "rpc");
	put_text(p, "tag.Hostname", p->nn->set.host);
	put_u64(p, "RpcProcessingTimeNumOps", calls);
	put_num(p, "RpcProcessingTimeAvgTime",
		calls ? (double)ns / (double)calls / (double)NS_PER_MS : 0);
	put_u64(p, "RpcQueueTimeNumOps", calls);
	put_num(p, "RpcQueueTimeAvgTime", 0);
	put_u64(p, "RpcCallSuccesses", calls - failures);
	put_u64(p, "TotalRequests", calls);
	put_u64(p, "RpcAuthenticationFailures", 0);
	put_u64(p, "RpcAuthorizationFailures", 0);
	put_u64(p, "CallQueueLength", 0);
}

static void rpc_detailed(struct page *p)
{
	put_text(p, "tag.Context", "rpcdetailed");
	put_text(p, "tag.Hostname", p->nn->set.host);
	for (const struct call_stat *c = p->nn->calls; c; c = c->next) {
		const char *camel = arena_printf(&p->a, "%c%sNumOps", c->name[0] & ~0x20, c->name + 1);

		put_u64(p, camel, c->calls);
		put_num(p, arena_printf(&p->a, "%c%sAvgTime", c->name[0] & ~0x20, c->name + 1),
			c->calls ? (double)c->ns / (double)c->calls / (double)NS_PER_MS : 0);
	}
}

/* What a process without a virtual machine has of one. */
static void jvm(struct page *p)
{
	static const char *const zeros[] = {"GcCount", "GcTimeMillis", "ThreadsNew", "ThreadsBlocked",
					    "ThreadsTimedWaiting", "ThreadsTerminated", NULL};
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	put_text(p, "tag.Context", "jvm");
	put_text(p, "tag.ProcessName", "NameNode");
	put_text(p, "tag.Hostname", p->nn->set.host);
	put_num(p, "MemHeapUsedM", (double)ru.ru_maxrss / 1024);
	put_num(p, "MemHeapCommittedM", (double)ru.ru_maxrss / 1024);
	put_num(p, "MemHeapMaxM", (double)ru.ru_maxrss / 1024);
	put_num(p, "MemMaxM", (double)ru.ru_maxrss / 1024);
	put_num(p, "MemNonHeapUsedM", 0);
	put_num(p, "MemNonHeapCommittedM", 0);
	put_u64(p, "ThreadsRunnable", 2);
	put_u64(p, "ThreadsWaiting", 2);
	put_zeros(p, zeros);
}

static void memory(struct page *p)
{
	static const char *const areas[] = {"HeapMemoryUsage", "NonHeapMemoryUsage"};
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	for (int i = 0; i < 2; i++) {
		const uint64_t bytes = i ? 0 : (uint64_t)ru.ru_maxrss * 1024;

		if (!wanted(p, areas[i]))
			continue;
		json_open(&p->j, areas[i], '{');
		json_u64(&p->j, "committed", bytes);
		json_u64(&p->j, "init", 0);
		json_u64(&p->j, "max", bytes);
		json_u64(&p->j, "used", bytes);
		json_close(&p->j, '}');
	}
	put_text(p, "ObjectName", "java.lang:type=Memory");
}

static void runtime(struct page *p)
{
	put_text(p, "Name", arena_printf(&p->a, "%d@%s", (int)getpid(), p->nn->set.host));
	put_text(p, "VmName", "none");
	put_text(p, "SpecName", "dfs-rdma");
	put_u64(p, "StartTime", p->nn->start_ms);
	put_u64(p, "Uptime", (clock_mono_ns() - p->nn->start_ns) / NS_PER_MS);
}

static uint64_t safe_elapsed(const struct nn *nn)
{
	return ((nn->safe.left_ns ? nn->safe.left_ns : clock_mono_ns()) - nn->start_ns) / NS_PER_MS;
}

static double safe_done(const struct nn *nn)
{
	if (!nn->safe.startup)
		return 1;
	return nn->safe.total ? (double)nn->blocks.safe / (double)nn->safe.total : 0;
}

static void startup(struct page *p)
{
	static const char *const phases[] = {"LoadingFsImage", "LoadingEdits", "SavingCheckpoint"};

	put_text(p, "tag.Hostname", p->nn->set.host);
	put_u64(p, "ElapsedTime", safe_elapsed(p->nn));
	put_num(p, "PercentComplete", (3 + safe_done(p->nn)) / 4);
	for (int i = 0; i < 3; i++) {
		put_u64(p, arena_printf(&p->a, "%sCount", phases[i]), 0);
		put_u64(p, arena_printf(&p->a, "%sElapsedTime", phases[i]), 0);
		put_u64(p, arena_printf(&p->a, "%sTotal", phases[i]), 0);
		put_num(p, arena_printf(&p->a, "%sPercentComplete", phases[i]), 1);
	}
	put_u64(p, "SafeModeCount", p->nn->blocks.safe);
	put_u64(p, "SafeModeElapsedTime", safe_elapsed(p->nn));
	put_u64(p, "SafeModeTotal", p->nn->safe.total);
	put_num(p, "SafeModePercentComplete", safe_done(p->nn));
}

static void snapshot_info(struct page *p)
{
	static const char *const lists[] = {"SnapshottableDirectories", "Snapshots"};

	for (int i = 0; i < 2; i++)
		if (wanted(p, lists[i])) {
			json_open(&p->j, lists[i], '[');
			json_close(&p->j, ']');
		}
}

static void retry_cache(struct page *p)
{
	static const char *const zeros[] = {"CacheHit", "CacheCleared", "CacheUpdated", NULL};

	put_text(p, "tag.Context", "rpc");
	put_zeros(p, zeros);
}

/* ---- the page ---- */

#define NN_BEAN "Hadoop:service=NameNode,name="
static const struct bean {
	const char *name, *type; /* type NULL: the last word of the name */
	void (*fill)(struct page *p);
	bool port; /* its name ends in the RPC port */
} beans[] = {
	{NN_BEAN "JvmMetrics", NULL, jvm, false},
	{NN_BEAN "RpcActivityForPort", NULL, rpc_activity, true},
	{NN_BEAN "RpcDetailedActivityForPort", NULL, rpc_detailed, true},
	{NN_BEAN "StartupProgress", NULL, startup, false},
	{NN_BEAN "FSNamesystem", NULL, fs_namesystem, false},
	{NN_BEAN "FSNamesystemState", FSN, fs_state, false},
	{NN_BEAN "NameNodeInfo", FSN, name_node_info, false},
	{NN_BEAN "NameNodeStatus", "org.apache.hadoop.hdfs.server.namenode.NameNode", status, false},
	{NN_BEAN "NameNodeActivity", NULL, activity, false},
	{NN_BEAN "ReplicatedBlocksState", FSN, replicated_state, false},
	{NN_BEAN "ECBlockGroupsState", FSN, ec_state, false},
	{NN_BEAN "BlockStats", "org.apache.hadoop.hdfs.server.blockmanagement.BlockManager",
	 block_stats, false},
	{NN_BEAN "SnapshotInfo", "org.apache.hadoop.hdfs.server.namenode.snapshot.SnapshotManager",
	 snapshot_info, false},
	{NN_BEAN "RetryCache.NameNodeRetryCache", NULL, retry_cache, false},
	{"java.lang:type=Memory", "sun.management.MemoryImpl", memory, false},
	{"java.lang:type=Runtime", "sun.management.RuntimeImpl", runtime, false},
};

static void put_bean(struct page *p, const struct bean *b)
{
	const char *name = b->port ? arena_printf(&p->a, "%s%u", b->name, p->nn->rpc_port) : b->name;

	if (p->qry && fnmatch(p->qry, name, 0))
		return;
	json_open(&p->j, NULL, '{');
	json_text(&p->j, "name", name);
	json_text(&p->j, "modelerType", b->type ? b->type : strrchr(name, '=') + 1);
	b->fill(p);
	json_close(&p->j, '}');
}

/* "BEAN::ATTRIBUTE" into both; false: it is neither. */
static bool split_get(struct page *p, const char *get)
{
	const char *sep = strstr(get, "::");

	if (!sep)
		return false;
	p->qry = arena_strndup(&p->a, get, (size_t)(sep - get));
	p->attr = sep + 2;
	return true;
}

static bool is_name(const char *qry)
{
	return strchr(qry, ':') || !strcmp(qry, "*");
}

char *jmx_page(struct nn *nn, const char *qry, const char *get)
{
	struct page p = {.nn = nn, .qry = qry, .j = {.pretty = true}};
	struct txn txn = {0};
	char *text = NULL;
	size_t len;

	if (txn_reader_new(nn->db, &txn) < 0)
		return NULL;
	p.txn = &txn;
	p.j.out = open_memstream(&text, &len);
	if (p.j.out && ((get && !split_get(&p, get)) || (qry && !is_name(qry)))) {
		fputs("{ }", p.j.out);
	} else if (p.j.out && !txn_read_begin(&txn)) {
		pthread_rwlock_rdlock(&nn->mem_lock);
		sum_up(&p);
		json_open(&p.j, NULL, '{');
		json_open(&p.j, "beans", '[');
		for (size_t i = 0; i < sizeof(beans) / sizeof(beans[0]); i++)
			put_bean(&p, &beans[i]);
		json_close(&p.j, ']');
		json_close(&p.j, '}');
		pthread_rwlock_unlock(&nn->mem_lock);
		txn_read_end(&txn);
	}
	if (p.j.out) {
		fputc('\n', p.j.out);
		fclose(p.j.out);
	}
	txn_reader_free(&txn);
	arena_free(&p.a);
	return text;
}

char *jmx_startup(struct nn *nn)
{
	static const char *const phases[][2] = {{"LoadingFsImage", "Loading fsimage"},
						{"LoadingEdits", "Loading edits"},
						{"SavingCheckpoint", "Saving checkpoint"}};
	struct json j = {0};
	char *text = NULL;
	size_t len;

	j.out = open_memstream(&text, &len);
	if (!j.out)
		return NULL;
	pthread_rwlock_rdlock(&nn->mem_lock);
	json_open(&j, NULL, '{');
	json_u64(&j, "elapsedTime", safe_elapsed(nn));
	json_num(&j, "percentComplete", (3 + safe_done(nn)) / 4);
	json_open(&j, "phases", '[');
	for (int i = 0; i < 4; i++) {
		json_open(&j, NULL, '{');
		json_text(&j, "name", i < 3 ? phases[i][0] : "SafeMode");
		json_text(&j, "desc", i < 3 ? phases[i][1] : "Safe mode");
		json_text(&j, "status", i < 3 || !nn->safe.startup ? "COMPLETE" : "RUNNING");
		json_num(&j, "percentComplete", i < 3 ? 1 : safe_done(nn));
		json_u64(&j, "elapsedTime", i < 3 ? 0 : safe_elapsed(nn));
		json_open(&j, "steps", '[');
		json_close(&j, ']');
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
	pthread_rwlock_unlock(&nn->mem_lock);
	fclose(j.out);
	return text;
}
