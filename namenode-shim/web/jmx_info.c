/* SPDX-License-Identifier: Apache-2.0 */
/* NameNodeInfo: what the web page of a NameNode shows. */
#include <inttypes.h>

#include "common/base/clock.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/client_protocol_admin.h"
#include "namenode-shim/web/jmx_page.h"

static const char *admin_text(const struct dn *dn)
{
	static const char *const text[] = {"In Service", "Decommission In Progress",
					   "Decommissioned", "Entering Maintenance",
					   "In Maintenance"};

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
	json_bool(j, "stale", dn->stale);
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
		json_text(&i.j, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
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
		json_text(&i.j, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
		json_text(&i.j, "location", dn->rack);
		json_u64(&i.j, "underReplicatedBlocks", dn->drain_left);
		json_u64(&i.j,
			 admin == DN_DECOMMISSIONING ? "decommissionOnlyReplicas"
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
	struct exception_info exc = {.a = &p->a};
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

void jmx_name_node_info(struct page *p)
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
	put_u64(p, "HighestPriorityLowRedundancyReplicatedBlocks",
		nn->blocks.urgent - nn->blocks.groups.urgent);
	put_u64(p, "HighestPriorityLowRedundancyECBlocks", nn->blocks.groups.urgent);
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
