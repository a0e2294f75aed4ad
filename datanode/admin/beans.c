/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/admin/beans.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/http/json_put.h"
#include "datanode/admin/outliers.h"
#include "datanode/bp/bp.h"
#include "datanode/bp/cached_blocks.h"

#define PREFIX "Hadoop:service=DataNode,name="
#define NAMENODES_MAX 32
#define PEERS_MAX 256 /* shown */

/* ---- small helpers ---- */

static void put_port(json_t *o, const char *key, const struct net_addr *a)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", net_port(a));
	put_text(o, key, text);
}

static void put_seconds(json_t *o, const char *key, uint64_t s)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)s);
	put_text(o, key, text);
}

/* ---- DataNodeInfo ---- */

static void put_namenodes(json_t *o, struct dn *dn)
{
	struct bp_info list[NAMENODES_MAX];
	uint32_t n = dn->nns ? bp_info(dn->nns, list, NAMENODES_MAX) : 0;
	json_t *actors = json_array(), *addrs = json_object();

	for (uint32_t i = 0; i < n; i++) {
		json_t *a = json_object();

		put_text(a, "NamenodeAddress", list[i].addr);
		put_text(a, "NamenodeHaState",
			 list[i].active       ? "active"
			 : list[i].registered ? "standby"
					      : "Unknown");
		put_text(a, "BlockPoolID", list[i].pool_id);
		put_text(a, "ActorState", list[i].registered ? "RUNNING" : "CONNECTING");
		put_seconds(a, "LastHeartbeat", list[i].last_beat_s);
		put_seconds(a, "LastHeartbeatResponseTime", list[i].last_beat_s);
		put_seconds(a, "LastBlockReport", list[i].last_report_s);
		(void)json_array_append_new(actors, a);
		put_text(addrs, list[i].host, list[i].pool_id);
	}
	put_json_text(o, "BPServiceActorInfo", actors);
	put_json_text(o, "NamenodeAddresses", addrs);
	put_text(o, "ClusterId", n ? list[0].cluster_id : "");
}

static void put_volumes(json_t *o, struct dn *dn)
{
	static const char *const types[] = {"DISK",     "SSD",      "ARCHIVE",
					    "RAM_DISK", "PROVIDED", "NVDIMM"};
	json_t *all = json_object();
	struct storage_info v;

	for (uint32_t i = 0; i < store_volume_count(dn->store); i++) {
		json_t *one;

		store_volume_info(dn->store, i, NULL, &v);
		if (v.failed)
			continue;
		one = json_object();
		put_u64(one, "usedSpace", v.used);
		put_u64(one, "freeSpace", v.remaining);
		put_u64(one, "reservedSpace", v.reserved);
		put_u64(one, "reservedSpaceForReplicas", v.promised);
		put_u64(one, "numBlocks", v.blocks);
		put_text(one, "storageType", (uint32_t)v.type - 1 < 6 ? types[v.type - 1] : "DISK");
		put_value(all, v.path, one);
	}
	put_json_text(o, "VolumeInfo", all);
}

/* {"peer": mean in ms}; the mean of disks by operation. */
static json_t *means_of(struct dn *dn, enum outlier_kind kind)
{
	struct outlier *list = calloc(PEERS_MAX, sizeof(*list));
	json_t *o = json_object();
	size_t n = list ? outliers_all(dn->outliers, kind, list, PEERS_MAX) : 0;

	for (size_t i = 0; i < n; i++)
		put_real(o, list[i].name, list[i].mean_ms);
	free(list);
	return o;
}

static json_t *info_bean(struct dn *dn, uint64_t start_ms)
{
	json_t *o = json_object();

	put_text(o, "modelerType", "org.apache.hadoop.hdfs.server.datanode.DataNode");
	put_text(o, "Version", DFS_VERSION);
	put_text(o, "SoftwareVersion", DFS_VERSION);
	put_text(o, "DatanodeHostname", dn->host_name);
	put_port(o, "DataPort", &dn->data_addr);
	put_port(o, "RpcPort", &dn->ipc_addr);
	put_port(o, "HttpPort", &dn->http_addr);
	put_namenodes(o, dn);
	put_volumes(o, dn);
	put_u64(o, "XceiverCount", dn->xceivers);
	put_u64(o, "ActiveTransferThreadCount", dn->xceivers);
	put_u64(o, "XmitsInProgress", dn->transfers + dn->ec_xmits);
	put_value(o, "DatanodeNetworkCounts", json_array());
	put_text(o, "DiskBalancerStatus", "");
	put_json_text(o, "SendPacketDownstreamAvgInfo", means_of(dn, OUTLIER_PEER));
	put_json_text(o, "SlowDisks", means_of(dn, OUTLIER_DISK_WRITE));
	put_bool(o, "SecurityEnabled", false);
	put_u64(o, "DNStartedTimeInMillis", start_ms);
	return o;
}

/* ---- FSDatasetState ---- */

#define DIRS_MAX 4096 /* bytes of directory names shown; more are cut */

static void append_dir(char dirs[DIRS_MAX], const char *path)
{
	size_t len = strlen(dirs), more = strlen(path);

	if (len + more + 3 > DIRS_MAX)
		return;
	if (len) {
		memcpy(dirs + len, ", ", 2);
		len += 2;
	}
	memcpy(dirs + len, path, more + 1);
}

static void put_totals(json_t *o, struct dn *dn, char dirs[DIRS_MAX])
{
	json_t *failed = json_array();
	uint64_t n = 0, capacity = 0, used = 0, remaining = 0, lost = 0, blocks = 0;
	struct storage_info v;

	dirs[0] = '\0';
	for (uint32_t i = 0; i < store_volume_count(dn->store); i++) {
		store_volume_info(dn->store, i, NULL, &v);
		if (v.failed) {
			(void)json_array_append_new(failed, put_as_text(v.path));
			lost += v.capacity;
			n++;
			continue;
		}
		append_dir(dirs, v.path);
		capacity += v.capacity;
		used += v.used;
		remaining += v.remaining;
		blocks += v.blocks;
	}
	put_u64(o, "Capacity", capacity);
	put_u64(o, "DfsUsed", used);
	put_u64(o, "Remaining", remaining);
	put_u64(o, "NumBlocks", blocks);
	put_u64(o, "NumFailedVolumes", n);
	put_value(o, "FailedStorageLocations", failed);
	put_u64(o, "LastVolumeFailureDate", dn->nns ? bp_failed_ms(dn->nns) : 0);
	put_u64(o, "EstimatedCapacityLostTotal", lost);
}

static json_t *state_bean(struct dn *dn)
{
	struct cache_stats c = {0};
	json_t *o = json_object();
	char dirs[DIRS_MAX], text[DIRS_MAX + 32];

	put_text(o, "modelerType",
		 "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.FsDatasetImpl");
	put_totals(o, dn, dirs);
	(void)snprintf(text, sizeof(text), "FSDataset{dirpath='[%s]'}", dirs);
	put_text(o, "StorageInfo", text);
	if (dn->nns)
		bp_cache_stats(dn->nns, &c);
	put_u64(o, "CacheCapacity", c.capacity);
	put_u64(o, "CacheUsed", c.used);
	put_u64(o, "NumBlocksCached", c.blocks);
	put_u64(o, "NumBlocksFailedToCache", c.failed);
	put_u64(o, "NumBlocksFailedToUncache", c.failed_to_drop);
	return o;
}

/* ---- DataNodeActivity: counters since the start ---- */

static json_t *activity_bean(struct dn *dn)
{
	static const struct {
		const char *name;
		enum metric a, b; /* their sum; the same one twice: itself */
	} rows[] = {
		{"BlocksWritten", METRIC_DN_BLOCKS_WRITTEN, METRIC_DN_BLOCKS_WRITTEN},
		{"BlocksRemoved", METRIC_DN_BLOCKS_REMOVED, METRIC_DN_BLOCKS_REMOVED},
		{"BlocksReplicated", METRIC_DN_BLOCKS_REPLICATED, METRIC_DN_BLOCKS_REPLICATED},
		{"BlockVerificationFailures", METRIC_DN_CORRUPT, METRIC_DN_CORRUPT},
		{"VolumeFailures", METRIC_DN_VOLUME_FAILURES, METRIC_DN_VOLUME_FAILURES},
		{"EcReconstructionTasks", METRIC_DN_EC_TASKS, METRIC_DN_EC_TASKS},
		{"EcFailedReconstructionTasks", METRIC_DN_EC_FAILED, METRIC_DN_EC_FAILED},
		{"EcInvalidReconstructionTasks", METRIC_DN_EC_INVALID, METRIC_DN_EC_INVALID},
		{"EcDecodingTimeNanos", METRIC_DN_EC_DECODE_NS, METRIC_DN_EC_DECODE_NS},
		{"EcReconstructionBytesRead", METRIC_DN_EC_BYTES_READ, METRIC_DN_EC_BYTES_READ},
		{"EcReconstructionRemoteBytesRead", METRIC_DN_EC_REMOTE_BYTES_READ,
		 METRIC_DN_EC_REMOTE_BYTES_READ},
		{"EcReconstructionBytesWritten", METRIC_DN_EC_BYTES_WRITTEN,
		 METRIC_DN_EC_BYTES_WRITTEN},
		{"HeartbeatsNumOps", METRIC_DN_HEARTBEATS, METRIC_DN_HEARTBEATS},
		{"LifelinesNumOps", METRIC_DN_LIFELINES, METRIC_DN_LIFELINES},
		{"BlockReportsNumOps", METRIC_DN_FULL_REPORTS, METRIC_DN_FULL_REPORTS},
		{"IncrementalBlockReportsNumOps", METRIC_DN_INCREMENTAL_REPORTS,
		 METRIC_DN_INCREMENTAL_REPORTS},
		{"CacheReportsNumOps", METRIC_DN_CACHE_REPORTS, METRIC_DN_CACHE_REPORTS},
	};
	json_t *o = json_object();

	put_text(o, "tag.Hostname", dn->host_name);
	put_u64(o, "BytesWritten",
		metric_get(METRIC_DN_WRITTEN_TCP) + metric_get(METRIC_DN_WRITTEN_RDMA) +
			metric_get(METRIC_DN_WRITTEN_OWN));
	put_u64(o, "BytesRead",
		metric_get(METRIC_DN_READ_TCP) + metric_get(METRIC_DN_READ_RDMA) +
			metric_get(METRIC_DN_READ_OWN));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		put_u64(o, rows[i].name,
			metric_get(rows[i].a) +
				(rows[i].b == rows[i].a ? 0 : metric_get(rows[i].b)));
	put_u64(o, "DataNodeActiveXceiversCount", dn->xceivers);
	put_u64(o, "EcReconstructionReadTimeMillis", metric_get(METRIC_DN_EC_READ_NS) / 1000000);
	put_u64(o, "EcReconstructionDecodingTimeMillis",
		metric_get(METRIC_DN_EC_DECODE_NS) / 1000000);
	put_u64(o, "EcReconstructionWriteTimeMillis", metric_get(METRIC_DN_EC_WRITE_NS) / 1000000);
	put_u64(o, "EcReconstructionValidateTimeMillis",
		metric_get(METRIC_DN_EC_CHECK_NS) / 1000000);
	return o;
}

/* ---- all ---- */

/* Takes @bean. Its name stands first, as tools print it. */
static void add(json_t *list, const char *query, const char *name, json_t *bean)
{
	json_t *named = json_object();

	put_text(named, "name", name);
	(void)json_object_update(named, bean);
	json_decref(bean);
	if (query && fnmatch(query, name, FNM_NOESCAPE))
		json_decref(named);
	else
		(void)json_array_append_new(list, named);
}

json_t *beans_get(struct dn *dn, uint64_t start_ms, const char *query)
{
	json_t *list = json_array(), *all = json_pack("{s:o}", "beans", list);
	char name[400];

	if (!all)
		return NULL;
	add(list, query, PREFIX "DataNodeInfo", info_bean(dn, start_ms));
	add(list, query, PREFIX "FSDatasetState", state_bean(dn));
	(void)snprintf(name, sizeof(name), PREFIX "FSDatasetState-%s",
		       store_datanode_uuid(dn->store));
	add(list, query, name, state_bean(dn));
	(void)snprintf(name, sizeof(name), PREFIX "DataNodeActivity-%s-%u", dn->host_name,
		       net_port(&dn->data_addr));
	add(list, query, name, activity_bean(dn));
	return all;
}
