/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/web/jmx.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/rpc/service_acl.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/web/jmx_page.h"

#define FSN "org.apache.hadoop.hdfs.server.namenode.FSNamesystem"

static void sum_up(struct page *p)
{
	struct sums *s = &p->s;

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		(dn->alive ? s->nodes : s->dead)[dn->admin]++;
		*(dn->alive ? &s->live : &s->gone) += 1;
		if (!dn->alive)
			continue;
		s->stale += dn->stale;
		s->capacity += dn_capacity(dn);
		s->used += dn_used(dn);
		s->remaining += dn_remaining(dn);
		s->load += dn->xceivers;
		s->volume_failures += dn->failed_volumes;
		if (dn->admin != DN_DECOMMISSIONED && dn->admin != DN_IN_MAINTENANCE) {
			s->cache_capacity += dn->cache_capacity;
			s->cache_used += dn->cache_used;
		}
		for (uint32_t i = 0; i < dn->nstorages; i++) {
			s->non_dfs += dn->storage[i]->non_dfs;
			s->pool_used += dn->storage[i]->pool_used;
			s->stale_storages += !dn->storage[i]->reported;
		}
	}
}

/* ---- the small ones ---- */

static void status(struct page *p, json_t *bean)
{
	put_text(bean, "State", "active");
	put_text(bean, "NNRole", "NameNode");
	put_text(bean, "HostAndPort",
		 arena_printf(&p->a, "%s:%u", p->nn->set.host, p->nn->rpc_port));
	put_bool(bean, "SecurityEnabled", false);
	put_u64(bean, "LastHATransitionTime", 0);
	put_u64(bean, "BytesWithFutureGenerationStamps", 0);
	put_text(bean, "SlowPeersReport", NULL);
	put_text(bean, "SlowDisksReport", NULL);
}

/* What living nodes have of storages of type @t; NULL: no node in service has any. */
static json_t *storage_type_stats(const struct page *p, unsigned int t)
{
	uint64_t cap = 0, used = 0, left = 0, pool = 0, non = 0, nodes = 0, load = 0;
	json_t *sums;

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
		return NULL;
	sums = json_object();
	put_u64(sums, "blockPoolUsed", pool);
	put_u64(sums, "capacityNonDfsUsed", non);
	put_u64(sums, "capacityRemaining", left);
	put_u64(sums, "capacityTotal", cap);
	put_u64(sums, "capacityUsed", used);
	put_u64(sums, "nodesInService", nodes);
	put_u64(sums, "nodesInServiceXceiverCount", load);
	return sums;
}

static void block_stats(struct page *p, json_t *bean)
{
	static const char *const names[] = {NULL,       "DISK",     "SSD",   "ARCHIVE",
					    "RAM_DISK", "PROVIDED", "NVDIMM"};
	json_t *const all = json_array();

	for (unsigned int t = 1; t < sizeof(names) / sizeof(names[0]); t++) {
		json_t *const sums = storage_type_stats(p, t);

		if (sums)
			(void)json_array_append_new(
				all, json_pack("{s:s, s:o}", "key", names[t], "value", sums));
	}
	put_value(bean, "StorageTypeStats", all);
}

static uint64_t calls_of(const struct nn *nn, const char *method)
{
	const struct call_stat *c = call_stats_find(nn->calls, method);

	return c ? c->calls : 0;
}

static void activity(struct page *p, json_t *bean)
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

	put_text(bean, "tag.ProcessName", "NameNode");
	put_text(bean, "tag.Context", "dfs");
	put_text(bean, "tag.Hostname", p->nn->set.host);
	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		put_u64(bean, map[i].attr, calls_of(p->nn, map[i].method));
	put_u64(bean, "FilesRenamed", calls_of(p->nn, "rename") + calls_of(p->nn, "rename2"));
	put_u64(bean, "SyncsNumOps", metric_get(METRIC_NN_COMMITS));
	put_u64(bean, "TransactionsNumOps", metric_get(METRIC_NN_OPS));
	put_u64(bean, "SafeModeTime",
		p->nn->safe.left_ns ? (p->nn->safe.left_ns - p->nn->start_ns) / NS_PER_MS : 0);
	for (const struct call_stat *c = p->nn->calls; c; c = c->next)
		total += c->calls;
	put_u64(bean, "TotalFileOps", total);
}

static void rpc_activity(struct page *p, json_t *bean)
{
	uint64_t calls = 0, failures = 0, ns = 0;

	for (const struct call_stat *c = p->nn->calls; c; c = c->next)
		calls += c->calls, failures += c->failures, ns += c->ns;
	put_text(bean, "tag.port", arena_printf(&p->a, "%u", p->nn->rpc_port));
	put_text(bean, "tag.serverName", "ClientNamenodeProtocol");
	put_text(bean, "tag.Context", "rpc");
	put_text(bean, "tag.Hostname", p->nn->set.host);
	put_u64(bean, "RpcProcessingTimeNumOps", calls);
	put_real(bean, "RpcProcessingTimeAvgTime",
		 calls ? (double)ns / (double)calls / (double)NS_PER_MS : 0);
	put_u64(bean, "RpcQueueTimeNumOps", calls);
	put_real(bean, "RpcQueueTimeAvgTime", 0);
	put_u64(bean, "RpcCallSuccesses", calls - failures);
	put_u64(bean, "TotalRequests", calls);
	put_u64(bean, "RpcAuthenticationFailures", 0);
	put_u64(bean, "RpcAuthorizationFailures", service_acl_denied(p->nn->service_acl));
	put_u64(bean, "CallQueueLength", 0);
}

static void rpc_detailed(struct page *p, json_t *bean)
{
	put_text(bean, "tag.Context", "rpcdetailed");
	put_text(bean, "tag.Hostname", p->nn->set.host);
	for (const struct call_stat *c = p->nn->calls; c; c = c->next) {
		const char *camel =
			arena_printf(&p->a, "%c%sNumOps", c->name[0] & ~0x20, c->name + 1);

		put_u64(bean, camel, c->calls);
		put_real(bean, arena_printf(&p->a, "%c%sAvgTime", c->name[0] & ~0x20, c->name + 1),
			 c->calls ? (double)c->ns / (double)c->calls / (double)NS_PER_MS : 0);
	}
}

/* What a process without a virtual machine has of one. */
static void jvm(struct page *p, json_t *bean)
{
	static const char *const zeros[] = {"GcCount",
					    "GcTimeMillis",
					    "ThreadsNew",
					    "ThreadsBlocked",
					    "ThreadsTimedWaiting",
					    "ThreadsTerminated",
					    NULL};
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	put_text(bean, "tag.Context", "jvm");
	put_text(bean, "tag.ProcessName", "NameNode");
	put_text(bean, "tag.Hostname", p->nn->set.host);
	put_real(bean, "MemHeapUsedM", (double)ru.ru_maxrss / 1024);
	put_real(bean, "MemHeapCommittedM", (double)ru.ru_maxrss / 1024);
	put_real(bean, "MemHeapMaxM", (double)ru.ru_maxrss / 1024);
	put_real(bean, "MemMaxM", (double)ru.ru_maxrss / 1024);
	put_real(bean, "MemNonHeapUsedM", 0);
	put_real(bean, "MemNonHeapCommittedM", 0);
	put_u64(bean, "ThreadsRunnable", 2);
	put_u64(bean, "ThreadsWaiting", 2);
	put_zeros(bean, zeros);
}

static void memory(struct page *p, json_t *bean)
{
	static const char *const areas[] = {"HeapMemoryUsage", "NonHeapMemoryUsage"};
	struct rusage ru;

	(void)p;
	getrusage(RUSAGE_SELF, &ru);
	for (int i = 0; i < 2; i++) {
		const uint64_t bytes = i ? 0 : (uint64_t)ru.ru_maxrss * 1024;
		json_t *const area = json_object();

		put_u64(area, "committed", bytes);
		put_u64(area, "init", 0);
		put_u64(area, "max", bytes);
		put_u64(area, "used", bytes);
		put_value(bean, areas[i], area);
	}
	put_text(bean, "ObjectName", "java.lang:type=Memory");
}

static void runtime(struct page *p, json_t *bean)
{
	put_text(bean, "Name", arena_printf(&p->a, "%d@%s", (int)getpid(), p->nn->set.host));
	put_text(bean, "VmName", "none");
	put_text(bean, "SpecName", "dfs-rdma");
	put_u64(bean, "StartTime", p->nn->start_ms);
	put_u64(bean, "Uptime", (clock_mono_ns() - p->nn->start_ns) / NS_PER_MS);
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

static void startup(struct page *p, json_t *bean)
{
	static const char *const phases[] = {"LoadingFsImage", "LoadingEdits", "SavingCheckpoint"};

	put_text(bean, "tag.Hostname", p->nn->set.host);
	put_u64(bean, "ElapsedTime", safe_elapsed(p->nn));
	put_real(bean, "PercentComplete", (3 + safe_done(p->nn)) / 4);
	for (int i = 0; i < 3; i++) {
		put_u64(bean, arena_printf(&p->a, "%sCount", phases[i]), 0);
		put_u64(bean, arena_printf(&p->a, "%sElapsedTime", phases[i]), 0);
		put_u64(bean, arena_printf(&p->a, "%sTotal", phases[i]), 0);
		put_real(bean, arena_printf(&p->a, "%sPercentComplete", phases[i]), 1);
	}
	put_u64(bean, "SafeModeCount", p->nn->blocks.safe);
	put_u64(bean, "SafeModeElapsedTime", safe_elapsed(p->nn));
	put_u64(bean, "SafeModeTotal", p->nn->safe.total);
	put_real(bean, "SafeModePercentComplete", safe_done(p->nn));
}

static void snapshot_info(struct page *p, json_t *bean)
{
	(void)p;
	put_value(bean, "SnapshottableDirectories", json_array());
	put_value(bean, "Snapshots", json_array());
}

static void retry_cache(struct page *p, json_t *bean)
{
	static const char *const zeros[] = {"CacheHit", "CacheCleared", "CacheUpdated", NULL};

	(void)p;
	put_text(bean, "tag.Context", "rpc");
	put_zeros(bean, zeros);
}

/* ---- the page ---- */

#define NN_BEAN "Hadoop:service=NameNode,name="
static const struct bean {
	const char *name, *type; /* type NULL: the last word of the name */
	void (*fill)(struct page *p, json_t *bean);
	bool port; /* its name ends in the RPC port */
} beans[] = {
	{NN_BEAN "JvmMetrics", NULL, jvm, false},
	{NN_BEAN "RpcActivityForPort", NULL, rpc_activity, true},
	{NN_BEAN "RpcDetailedActivityForPort", NULL, rpc_detailed, true},
	{NN_BEAN "StartupProgress", NULL, startup, false},
	{NN_BEAN "FSNamesystem", NULL, jmx_fs_namesystem, false},
	{NN_BEAN "FSNamesystemState", FSN, jmx_fs_state, false},
	{NN_BEAN "NameNodeInfo", FSN, jmx_name_node_info, false},
	{NN_BEAN "NameNodeStatus", "org.apache.hadoop.hdfs.server.namenode.NameNode", status,
	 false},
	{NN_BEAN "NameNodeActivity", NULL, activity, false},
	{NN_BEAN "ReplicatedBlocksState", FSN, jmx_replicated_state, false},
	{NN_BEAN "ECBlockGroupsState", FSN, jmx_ec_state, false},
	{NN_BEAN "BlockStats", "org.apache.hadoop.hdfs.server.blockmanagement.BlockManager",
	 block_stats, false},
	{NN_BEAN "SnapshotInfo", "org.apache.hadoop.hdfs.server.namenode.snapshot.SnapshotManager",
	 snapshot_info, false},
	{NN_BEAN "RetryCache.NameNodeRetryCache", NULL, retry_cache, false},
	{"java.lang:type=Memory", "sun.management.MemoryImpl", memory, false},
	{"java.lang:type=Runtime", "sun.management.RuntimeImpl", runtime, false},
};

/* The bean of this row, or its one attribute that is asked for; NULL: it is not asked for. */
static json_t *make_bean(struct page *p, const struct bean *b)
{
	const char *name =
		b->port ? arena_printf(&p->a, "%s%u", b->name, p->nn->rpc_port) : b->name;
	json_t *ret, *filled, *one;

	if (p->qry && fnmatch(p->qry, name, 0))
		return NULL;
	ret = json_pack("{s:s, s:s}", "name", name, "modelerType",
			b->type ? b->type : strrchr(name, '=') + 1);
	filled = json_object();
	b->fill(p, filled);
	one = p->attr ? json_object_get(filled, p->attr) : NULL;
	if (!p->attr)
		(void)json_object_update(ret, filled);
	else if (one)
		(void)json_object_set(ret, p->attr, one);
	json_decref(filled);
	return ret;
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

static bool is_text(const struct page *p, const json_t *v)
{
	for (uint32_t i = 0; i < p->texts; i++)
		if (p->text[i] == v)
			return true;
	return false;
}

/* Where put_text_later() has put a value there is its text. */
static void make_texts(struct page *p, const json_t *all)
{
	const char *key;
	json_t *bean, *v;
	size_t i;
	void *next;

	json_array_foreach(all, i, bean)
	{
		json_object_foreach_safe(bean, next, key, v)
		{
			if (is_text(p, v))
				put_json_text(bean, key, json_incref(v));
		}
	}
	while (p->texts)
		json_decref(p->text[--p->texts]);
}

json_t *jmx_page(struct nn *nn, const char *qry, const char *get)
{
	struct page p = {.nn = nn, .qry = qry};
	json_t *ret = NULL, *all;
	struct txn txn = {0};

	if ((get && !split_get(&p, get)) || (qry && !is_name(qry))) {
		arena_free(&p.a);
		return json_object();
	}
	if (txn_reader_new(nn->db, &txn) < 0) {
		arena_free(&p.a);
		return NULL;
	}
	p.txn = &txn;
	if (!txn_read_begin(&txn)) {
		all = json_array();
		pthread_rwlock_rdlock(&nn->mem_lock);
		sum_up(&p);
		for (size_t i = 0; i < sizeof(beans) / sizeof(beans[0]); i++)
			(void)json_array_append_new(all, make_bean(&p, &beans[i]));
		pthread_rwlock_unlock(&nn->mem_lock);
		txn_read_end(&txn);
		make_texts(&p, all);
		ret = json_pack("{s:o}", "beans", all);
	}
	txn_reader_free(&txn);
	arena_free(&p.a);
	return ret;
}

json_t *jmx_startup(struct nn *nn)
{
	static const char *const phases[][2] = {{"LoadingFsImage", "Loading fsimage"},
						{"LoadingEdits", "Loading edits"},
						{"SavingCheckpoint", "Saving checkpoint"},
						{"SafeMode", "Safe mode"}};
	json_t *const ret = json_object(), *const list = json_array();

	pthread_rwlock_rdlock(&nn->mem_lock);
	put_u64(ret, "elapsedTime", safe_elapsed(nn));
	put_real(ret, "percentComplete", (3 + safe_done(nn)) / 4);
	for (int i = 0; i < 4; i++) {
		json_t *const phase = json_object();

		put_text(phase, "name", phases[i][0]);
		put_text(phase, "desc", phases[i][1]);
		put_text(phase, "status", i < 3 || !nn->safe.startup ? "COMPLETE" : "RUNNING");
		put_real(phase, "percentComplete", i < 3 ? 1 : safe_done(nn));
		put_u64(phase, "elapsedTime", i < 3 ? 0 : safe_elapsed(nn));
		put_value(phase, "steps", json_array());
		(void)json_array_append_new(list, phase);
	}
	pthread_rwlock_unlock(&nn->mem_lock);
	put_value(ret, "phases", list);
	return ret;
}
