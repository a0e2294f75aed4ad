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

static json_t *live_node(struct page *p, const struct dn *dn)
{
	json_t *const o = json_object();
	uint64_t non_dfs = 0, blocks = 0, pool = 0, promised = 0;

	for (uint32_t i = 0; i < dn->nstorages; i++) {
		non_dfs += dn->storage[i]->non_dfs;
		blocks += dn->storage[i]->nblocks;
		pool += dn->storage[i]->pool_used;
		promised += dn->storage[i]->promised_blocks;
	}
	put_text(o, "infoAddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->info_port));
	put_text(o, "infoSecureAddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->info_secure_port));
	put_text(o, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
	put_text(o, "location", dn->rack);
	put_u64(o, "lastContact", (clock_mono_ns() - dn->heard_ns) / NS_PER_S);
	put_u64(o, "usedSpace", dn_used(dn));
	put_text(o, "adminState", admin_text(dn));
	put_bool(o, "stale", dn->stale);
	put_u64(o, "nonDfsUsedSpace", non_dfs);
	put_u64(o, "capacity", dn_capacity(dn));
	put_u64(o, "numBlocks", blocks);
	put_text(o, "version", dn->version);
	put_u64(o, "used", dn_used(dn));
	put_u64(o, "remaining", dn_remaining(dn));
	put_u64(o, "blockScheduled", promised);
	put_u64(o, "blockPoolUsed", pool);
	put_real(o, "blockPoolUsedPercent", percent(pool, dn_capacity(dn)));
	put_u64(o, "volfails", dn->failed_volumes);
	put_u64(o, "lastBlockReport",
		dn->report_ns ? (clock_mono_ns() - dn->report_ns) / (60 * NS_PER_S) : 0);
	put_real(o, "blockPoolUsedPercentStdDev", 0);
	if (*dn->upgrade_domain)
		put_text(o, "upgradeDomain", dn->upgrade_domain);
	return o;
}

/* Under the name that Java's NameNode gives it. */
static void put_node(struct page *p, json_t *nodes, const struct dn *dn, json_t *value)
{
	put_value(nodes, arena_printf(&p->a, "%s:%u", dn->host, dn->xfer_port), value);
}

static void live_nodes(struct page *p, json_t *bean)
{
	json_t *const nodes = json_object();

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next)
		if (dn->alive)
			put_node(p, nodes, dn, live_node(p, dn));
	put_text_later(p, bean, "LiveNodes", nodes);
}

static void dead_nodes(struct page *p, json_t *bean)
{
	json_t *const nodes = json_object();

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		json_t *o;

		if (dn->alive)
			continue;
		o = json_object();
		put_u64(o, "lastContact", (clock_mono_ns() - dn->heard_ns) / NS_PER_S);
		put_bool(o, "decommissioned", dn->admin == DN_DECOMMISSIONED);
		put_text(o, "adminState", admin_text(dn));
		put_text(o, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
		put_text(o, "location", dn->rack);
		put_node(p, nodes, dn, o);
	}
	put_text_later(p, bean, "DeadNodes", nodes);
}

static void leaving_nodes(struct page *p, json_t *bean, const char *key, enum dn_admin admin)
{
	json_t *const nodes = json_object();

	for (const struct dn *dn = p->nn->dns.table; dn; dn = dn->hh.next) {
		json_t *o;

		if (dn->admin != admin)
			continue;
		o = json_object();
		put_text(o, "xferaddr", arena_printf(&p->a, "%s:%u", dn->ip, dn->xfer_port));
		put_text(o, "location", dn->rack);
		put_u64(o, "underReplicatedBlocks", dn->leaving.low_redundancy);
		put_u64(o,
			admin == DN_DECOMMISSIONING ? "decommissionOnlyReplicas"
						    : "maintenanceOnlyReplicas",
			dn->leaving.only_here);
		put_u64(o, "underReplicateInOpenFiles", dn->leaving.in_open_files);
		put_node(p, nodes, dn, o);
	}
	put_text_later(p, bean, key, nodes);
}

static void name_dirs(struct page *p, json_t *bean)
{
	const char *const dir = p->nn->set.name_dir;
	const char *const txid = arena_printf(&p->a, "%" PRIu64, db_last_txid(p->nn->db));
	json_t *const active = json_object(), *const size = json_object(),
		      *const journal = json_object();

	put_text(active, dir, "IMAGE_AND_EDITS");
	put_text_later(p, bean, "NameDirStatuses",
		       json_pack("{s:o, s:{}}", "active", active, "failed"));
	put_u64(size, dir, db_used_bytes(p->nn->db));
	put_text_later(p, bean, "NameDirSize", size);
	put_text(journal, "manager", "LMDB");
	put_text(journal, "stream", dir);
	put_text(journal, "disabled", "false");
	put_text(journal, "required", "true");
	put_text_later(p, bean, "NameJournalStatus", json_pack("[o]", journal));
	put_text_later(p, bean, "JournalTransactionInfo",
		       json_pack("{s:s, s:s}", "MostRecentCheckpointTxId", txid,
				 "LastAppliedOrWrittenTxId", txid));
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void node_usage(struct page *p, json_t *bean)
{
	double *u = arena_array(&p->a, double, p->s.live + 1), sum = 0, var = 0;
	json_t *usage;
	uint32_t n = 0;

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
	usage = json_object();
	put_text(usage, "min", arena_printf(&p->a, "%.2f%%", n ? u[0] : 0));
	put_text(usage, "median", arena_printf(&p->a, "%.2f%%", n ? u[n / 2] : 0));
	put_text(usage, "max", arena_printf(&p->a, "%.2f%%", n ? u[n - 1] : 0));
	put_text(usage, "stdDev", arena_printf(&p->a, "%.2f%%", lo));
	put_text_later(p, bean, "NodeUsage", json_pack("{s:o}", "nodeUsage", usage));
}

static void corrupt_files(struct page *p, json_t *bean)
{
	struct exception_info exception = {.a = &p->a};
	struct ns ns = {.t = p->txn, .a = &p->a, .x = &exception, .super = true};
	struct ops_corrupt found = {0};
	json_t *paths;

	/* It takes reading: not for those who ask for another attribute. */
	if (p->attr && strcmp(p->attr, "CorruptFiles") && strcmp(p->attr, "CorruptFilesCount"))
		return;
	if (ops_corrupt_files(&ns, p->nn, "/", NULL, &found) < 0)
		found.n = 0;
	paths = json_array();
	for (uint32_t k = 0; k < found.n; k++)
		(void)json_array_append_new(paths, put_as_text(found.path[k]));
	put_text_later(p, bean, "CorruptFiles", paths);
	put_u64(bean, "CorruptFilesCount", found.n);
}

static void versions(struct page *p, json_t *bean)
{
	const struct dn *dns = p->nn->dns.table;
	json_t *const list = json_array();

	for (const struct dn *dn = dns; dn; dn = dn->hh.next) {
		const struct dn *first = dns;
		uint64_t same = 0;
		json_t *o;

		while (strcmp(first->version, dn->version))
			first = first->hh.next;
		if (first != dn)
			continue;
		for (const struct dn *other = dn; other; other = other->hh.next)
			same += !strcmp(other->version, dn->version);
		o = json_object();
		put_text(o, "key", dn->version);
		put_u64(o, "value", same);
		(void)json_array_append_new(list, o);
	}
	put_value(bean, "DistinctVersions", list);
	put_u64(bean, "DistinctVersionCount", json_array_size(list));
}

static const char *safe_text(struct page *p)
{
	char tip[ERR_TEXT_MAX];

	return p->nn->safe.on ? arena_printf(&p->a, "Safe mode is ON. %s", nn_safe_text(p->nn, tip))
			      : "";
}

void jmx_name_node_info(struct page *p, json_t *bean)
{
	const struct nn *nn = p->nn;
	const struct sums *s = &p->s;

	put_u64(bean, "Threads", 4); /* main, signals, writer, web */
	put_text(bean, "Version", NN_VERSION ", dfs-rdma " DFS_VERSION);
	put_text(bean, "SoftwareVersion", NN_VERSION);
	put_text(bean, "CompileInfo", "dfs-rdma " DFS_VERSION);
	put_bool(bean, "UpgradeFinalized", true);
	put_text(bean, "BlockPoolId", nn->db->ident.pool_id);
	put_text(bean, "ClusterId", nn->db->ident.cluster_id);
	put_u64(bean, "HighestPriorityLowRedundancyReplicatedBlocks",
		nn->blocks.urgent - nn->blocks.groups.urgent);
	put_u64(bean, "HighestPriorityLowRedundancyECBlocks", nn->blocks.groups.urgent);
	put_u64(bean, "Used", s->used);
	put_u64(bean, "Free", s->remaining);
	put_u64(bean, "Total", s->capacity);
	put_u64(bean, "ProvidedCapacity", 0);
	put_text(bean, "Safemode", safe_text(p));
	put_u64(bean, "NonDfsUsedSpace", s->non_dfs);
	put_real(bean, "PercentUsed", percent(s->used, s->capacity));
	put_u64(bean, "BlockPoolUsedSpace", s->pool_used);
	put_real(bean, "PercentBlockPoolUsed", percent(s->pool_used, s->capacity));
	put_real(bean, "PercentRemaining", percent(s->remaining, s->capacity));
	put_u64(bean, "CacheCapacity", s->cache_capacity);
	put_u64(bean, "CacheUsed", s->cache_used);
	put_u64(bean, "TotalBlocks", HASH_COUNT(nn->blocks.map));
	put_u64(bean, "NumberOfMissingBlocks", nn->blocks.missing);
	put_u64(bean, "NumberOfMissingBlocksWithReplicationFactorOne", nn->blocks.missing_one);
	live_nodes(p, bean);
	dead_nodes(p, bean);
	leaving_nodes(p, bean, "DecomNodes", DN_DECOMMISSIONING);
	leaving_nodes(p, bean, "EnteringMaintenanceNodes", DN_ENTERING_MAINTENANCE);
	name_dirs(p, bean);
	node_usage(p, bean);
	corrupt_files(p, bean);
	put_u64(bean, "NNStartedTimeInMillis", nn->start_ms);
	put_u64(bean, "NumberOfSnapshottableDirs", 0);
	versions(p, bean);
	put_text(bean, "RollingUpgradeStatus", NULL);
}
