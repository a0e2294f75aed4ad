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
#include "namenode-shim/web/json.h"

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
		for (uint32_t i = 0; i < dn->nstorages; i++) {
			s->non_dfs += dn->storage[i]->non_dfs;
			s->pool_used += dn->storage[i]->pool_used;
			s->stale_storages += !dn->storage[i]->reported;
		}
	}
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
	static const char *const names[] = {NULL,       "DISK",     "SSD",   "ARCHIVE",
					    "RAM_DISK", "PROVIDED", "NVDIMM"};

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
	put_u64(p, "RpcAuthorizationFailures", service_acl_denied(p->nn->service_acl));
	put_u64(p, "CallQueueLength", 0);
}

static void rpc_detailed(struct page *p)
{
	put_text(p, "tag.Context", "rpcdetailed");
	put_text(p, "tag.Hostname", p->nn->set.host);
	for (const struct call_stat *c = p->nn->calls; c; c = c->next) {
		const char *camel =
			arena_printf(&p->a, "%c%sNumOps", c->name[0] & ~0x20, c->name + 1);

		put_u64(p, camel, c->calls);
		put_num(p, arena_printf(&p->a, "%c%sAvgTime", c->name[0] & ~0x20, c->name + 1),
			c->calls ? (double)c->ns / (double)c->calls / (double)NS_PER_MS : 0);
	}
}

/* What a process without a virtual machine has of one. */
static void jvm(struct page *p)
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

static void put_bean(struct page *p, const struct bean *b)
{
	const char *name =
		b->port ? arena_printf(&p->a, "%s%u", b->name, p->nn->rpc_port) : b->name;

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
