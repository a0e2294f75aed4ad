/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: defaults, policies, counts and nodes. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "Security.pb-c.h"
#include "encryption.pb-c.h"
#include "erasurecoding.pb-c.h"
#include "namenode-shim/locate.h"
#include "namenode-shim/methods.h"
#include "namenode-shim/nn.h"

#define POLICY_HOT 7

/* ---- defaults and constants ---- */

static int get_server_defaults(struct req *q, const void *in)
{
	const struct settings *s = &q->nn->set;
	Hd__GetServerDefaultsResponseProto *r =
		req_reply(q, Hd__GetServerDefaultsResponseProto,
			  hd__get_server_defaults_response_proto__init);
	Hd__FsServerDefaultsProto *d =
		req_new_msg(q, Hd__FsServerDefaultsProto, hd__fs_server_defaults_proto__init);

	(void)in;
	d->blocksize = s->block_size;
	d->bytesperchecksum = s->bytes_per_checksum;
	d->writepacketsize = s->write_packet;
	d->replication = s->replication;
	d->filebuffersize = s->io_buffer;
	PB_SET(d, encryptdatatransfer, 0);
	PB_SET(d, trashinterval, s->trash_min);
	PB_SET(d, checksumtype, (Hd__ChecksumTypeProto)s->checksum_type);
	d->keyprovideruri = arena_strdup(&q->mem, "");
	PB_SET(d, policyid, POLICY_HOT);
	r->serverdefaults = d;
	return 0;
}

#define TYPES(...) {sizeof((int[]){__VA_ARGS__}) / sizeof(int), {__VA_ARGS__}}
#define NO_TYPES {0, {0}}

struct types {
	size_t n;
	int type[2]; /* enum storage_type */
};

/* The policies every HDFS knows, in the order of their ids; only HOT is ever in force here. */
static const struct policy {
	uint32_t id;
	const char *name;
	struct types create, create_else, copy_else;
} policies[] = {
	{1, "PROVIDED", TYPES(STORAGE_PROVIDED, STORAGE_DISK), TYPES(STORAGE_PROVIDED, STORAGE_DISK),
	 TYPES(STORAGE_PROVIDED, STORAGE_DISK)},
	{2, "COLD", TYPES(STORAGE_ARCHIVE), NO_TYPES, NO_TYPES},
	{5, "WARM", TYPES(STORAGE_DISK, STORAGE_ARCHIVE), TYPES(STORAGE_DISK, STORAGE_ARCHIVE),
	 TYPES(STORAGE_DISK, STORAGE_ARCHIVE)},
	{POLICY_HOT, "HOT", TYPES(STORAGE_DISK), NO_TYPES, TYPES(STORAGE_ARCHIVE)},
	{10, "ONE_SSD", TYPES(STORAGE_SSD, STORAGE_DISK), TYPES(STORAGE_SSD, STORAGE_DISK),
	 TYPES(STORAGE_SSD, STORAGE_DISK)},
	{12, "ALL_SSD", TYPES(STORAGE_SSD), TYPES(STORAGE_DISK), TYPES(STORAGE_DISK)},
	{14, "ALL_NVDIMM", TYPES(STORAGE_NVDIMM), TYPES(STORAGE_DISK), TYPES(STORAGE_DISK)},
	{15, "LAZY_PERSIST", TYPES(STORAGE_RAM_DISK, STORAGE_DISK), TYPES(STORAGE_DISK),
	 TYPES(STORAGE_DISK)},
};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static Hd__StorageTypesProto *types_proto(struct req *q, const struct types *t)
{
	Hd__StorageTypesProto *m = req_new_msg(q, Hd__StorageTypesProto, hd__storage_types_proto__init);

	m->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, t->n + 1);
	for (; m->n_storagetypes < t->n; m->n_storagetypes++)
		m->storagetypes[m->n_storagetypes] =
			(Hd__StorageTypeProto)t->type[m->n_storagetypes];
	return m;
}

static Hd__BlockStoragePolicyProto *policy_proto(struct req *q, const struct policy *p)
{
	Hd__BlockStoragePolicyProto *m =
		req_new_msg(q, Hd__BlockStoragePolicyProto, hd__block_storage_policy_proto__init);

	m->policyid = p->id;
	m->name = arena_strdup(&q->mem, p->name);
	m->creationpolicy = types_proto(q, &p->create);
	m->creationfallbackpolicy = p->create_else.n ? types_proto(q, &p->create_else) : NULL;
	m->replicationfallbackpolicy = p->copy_else.n ? types_proto(q, &p->copy_else) : NULL;
	return m;
}

static Hd__BlockStoragePolicyProto *hot_policy(struct req *q)
{
	const struct policy *p = policies;

	while (p->id != POLICY_HOT)
		p++;
	return policy_proto(q, p);
}

static int get_storage_policies(struct req *q, const void *in)
{
	Hd__GetStoragePoliciesResponseProto *r =
		req_reply(q, Hd__GetStoragePoliciesResponseProto,
			  hd__get_storage_policies_response_proto__init);

	(void)in;
	r->policies = arena_array(&q->mem, Hd__BlockStoragePolicyProto *, POLICIES);
	for (; r->n_policies < POLICIES; r->n_policies++)
		r->policies[r->n_policies] = policy_proto(q, &policies[r->n_policies]);
	return 0;
}

static int get_storage_policy(struct req *q, const void *in)
{
	const Hd__GetStoragePolicyRequestProto *m = in;
	Hd__GetStoragePolicyResponseProto *r = req_reply(
		q, Hd__GetStoragePolicyResponseProto, hd__get_storage_policy_response_proto__init);
	struct walk w;

	r->storagepolicy = hot_policy(q);
	return ns_find(&q->ns, m->path, &w);
}

static int get_ec_policy(struct req *q, const void *in)
{
	const Hd__GetErasureCodingPolicyRequestProto *m = in;
	struct walk w;

	req_reply(q, Hd__GetErasureCodingPolicyResponseProto,
		  hd__get_erasure_coding_policy_response_proto__init);
	return ns_find(&q->ns, m->src, &w);
}

/* Answers that say "there is none". */
#define EMPTY(fn, Type, init)                                                                      \
	static int fn(struct req *q, const void *in)                                               \
	{                                                                                          \
		(void)in;                                                                          \
		req_reply(q, Type, init);                                                          \
		return 0;                                                                          \
	}
EMPTY(get_ec_policies, Hd__GetErasureCodingPoliciesResponseProto,
      hd__get_erasure_coding_policies_response_proto__init)
EMPTY(get_ec_codecs, Hd__GetErasureCodingCodecsResponseProto,
      hd__get_erasure_coding_codecs_response_proto__init)
EMPTY(list_encryption_zones, Hd__ListEncryptionZonesResponseProto,
      hd__list_encryption_zones_response_proto__init)
EMPTY(get_data_encryption_key, Hd__GetDataEncryptionKeyResponseProto,
      hd__get_data_encryption_key_response_proto__init)
EMPTY(get_slow_datanode_report, Hd__GetSlowDatanodeReportResponseProto,
      hd__get_slow_datanode_report_response_proto__init)
EMPTY(get_snapshottable, Hd__GetSnapshottableDirListingResponseProto,
      hd__get_snapshottable_dir_listing_response_proto__init)
EMPTY(msync, Hd__MsyncResponseProto, hd__msync_response_proto__init)
EMPTY(get_delegation_token, Hc__GetDelegationTokenResponseProto,
      hc__get_delegation_token_response_proto__init)

/* ---- counts ---- */

static int get_fs_stats(struct req *q, const void *in)
{
	const struct nn *nn = q->nn;
	Hd__GetFsStatsResponseProto *r =
		req_reply(q, Hd__GetFsStatsResponseProto, hd__get_fs_stats_response_proto__init);

	(void)in;
	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		r->capacity += dn->alive ? dn_capacity(dn) : 0;
		r->used += dn->alive ? dn_used(dn) : 0;
		r->remaining += dn->alive ? dn_remaining(dn) : 0;
	}
	r->under_replicated = nn->blocks.under_count;
	r->corrupt_blocks = nn->blocks.corrupt;
	r->missing_blocks = nn->blocks.missing;
	PB_SET(r, missing_repl_one_blocks, nn->blocks.missing_one);
	PB_SET(r, blocks_in_future, 0);
	PB_SET(r, pending_deletion_blocks, datanodes_pending_deletions(&nn->dns));
	return 0;
}

static int get_replicated_stats(struct req *q, const void *in)
{
	Hd__GetFsReplicatedBlockStatsResponseProto *r =
		req_reply(q, Hd__GetFsReplicatedBlockStatsResponseProto,
			  hd__get_fs_replicated_block_stats_response_proto__init);

	(void)in;
	r->low_redundancy = q->nn->blocks.under_count;
	r->corrupt_blocks = q->nn->blocks.corrupt;
	r->missing_blocks = q->nn->blocks.missing;
	r->missing_repl_one_blocks = q->nn->blocks.missing_one;
	r->pending_deletion_blocks = datanodes_pending_deletions(&q->nn->dns);
	PB_SET(r, highest_prio_low_redundancy_blocks, q->nn->blocks.urgent);
	return 0;
}

static int get_ec_stats(struct req *q, const void *in)
{
	Hd__GetFsECBlockGroupStatsResponseProto *r =
		req_reply(q, Hd__GetFsECBlockGroupStatsResponseProto,
			  hd__get_fs_ecblock_group_stats_response_proto__init);

	(void)in; /* there are none: zeros */
	PB_SET(r, highest_prio_low_redundancy_blocks, 0);
	return 0;
}

/* ---- nodes ---- */

static bool wanted(const struct dn *dn, Hd__DatanodeReportTypeProto type)
{
	switch (type) {
	case HD__DATANODE_REPORT_TYPE_PROTO__ALL:
		return true;
	case HD__DATANODE_REPORT_TYPE_PROTO__LIVE:
		return dn->alive;
	case HD__DATANODE_REPORT_TYPE_PROTO__DEAD:
		return !dn->alive;
	case HD__DATANODE_REPORT_TYPE_PROTO__DECOMMISSIONING:
	case HD__DATANODE_REPORT_TYPE_PROTO__ENTERING_MAINTENANCE:
	case HD__DATANODE_REPORT_TYPE_PROTO__IN_MAINTENANCE:
	case _HD__DATANODE_REPORT_TYPE_PROTO_IS_INT_SIZE:
		break;
	}
	return false;
}

static int get_datanode_report(struct req *q, const void *in)
{
	const Hd__GetDatanodeReportRequestProto *m = in;
	Hd__GetDatanodeReportResponseProto *r =
		req_reply(q, Hd__GetDatanodeReportResponseProto,
			  hd__get_datanode_report_response_proto__init);

	r->di = arena_array(&q->mem, Hd__DatanodeInfoProto *, HASH_COUNT(q->nn->dns.table) + 1);
	for (const struct dn *dn = q->nn->dns.table; dn; dn = dn->hh.next)
		if (wanted(dn, m->type))
			r->di[r->n_di++] = locate_dn(&q->mem, dn);
	return 0;
}

static Hd__StorageReportProto *storage_report(struct req *q, const struct storage *st)
{
	Hd__StorageReportProto *s =
		req_new_msg(q, Hd__StorageReportProto, hd__storage_report_proto__init);
	Hd__DatanodeStorageProto *d =
		req_new_msg(q, Hd__DatanodeStorageProto, hd__datanode_storage_proto__init);

	d->storageuuid = s->storageuuid = arena_strdup(&q->mem, st->id);
	PB_SET(d, state, HD__DATANODE_STORAGE_PROTO__STORAGE_STATE__NORMAL);
	PB_SET(d, storagetype, (Hd__StorageTypeProto)st->type);
	PB_SET(s, failed, st->failed);
	PB_SET(s, capacity, st->capacity);
	PB_SET(s, dfsused, st->used);
	PB_SET(s, remaining, st->remaining);
	PB_SET(s, blockpoolused, st->pool_used);
	PB_SET(s, nondfsused, st->non_dfs);
	s->storage = d;
	return s;
}

static int get_storage_report(struct req *q, const void *in)
{
	const Hd__GetDatanodeStorageReportRequestProto *m = in;
	Hd__GetDatanodeStorageReportResponseProto *r =
		req_reply(q, Hd__GetDatanodeStorageReportResponseProto,
			  hd__get_datanode_storage_report_response_proto__init);

	r->datanodestoragereports = arena_array(&q->mem, Hd__DatanodeStorageReportProto *,
						HASH_COUNT(q->nn->dns.table) + 1);
	for (const struct dn *dn = q->nn->dns.table; dn; dn = dn->hh.next) {
		Hd__DatanodeStorageReportProto *d;

		if (!wanted(dn, m->type))
			continue;
		d = req_new_msg(q, Hd__DatanodeStorageReportProto,
				hd__datanode_storage_report_proto__init);
		d->datanodeinfo = locate_dn(&q->mem, dn);
		d->storagereports =
			arena_array(&q->mem, Hd__StorageReportProto *, dn->nstorages + 1);
		for (uint32_t i = 0; i < dn->nstorages; i++)
			d->storagereports[d->n_storagereports++] =
				storage_report(q, dn->storage[i]);
		r->datanodestoragereports[r->n_datanodestoragereports++] = d;
	}
	return 0;
}

#define READ(name, msg, fn) METHOD(name, hd, msg, REQ_READ, 0, fn)
#define REPLY(rpc_name, ns_, req_, resp_, kind_, flags_, fn)                                           \
	{                                                                                          \
		.name = #rpc_name, .in = &ns_##__##req_##_request_proto__descriptor,               \
		.out = &ns_##__##resp_##_response_proto__descriptor, .kind = kind_,                \
		.flags = flags_, .run = fn                                                         \
	}
static const struct method table[] = {
	READ(getServerDefaults, get_server_defaults, get_server_defaults),
	READ(getStoragePolicies, get_storage_policies, get_storage_policies),
	READ(getStoragePolicy, get_storage_policy, get_storage_policy),
	READ(getErasureCodingPolicy, get_erasure_coding_policy, get_ec_policy),
	READ(getErasureCodingPolicies, get_erasure_coding_policies, get_ec_policies),
	READ(getErasureCodingCodecs, get_erasure_coding_codecs, get_ec_codecs),
	READ(listEncryptionZones, list_encryption_zones, list_encryption_zones),
	READ(getDataEncryptionKey, get_data_encryption_key, get_data_encryption_key),
	METHOD(getSlowDatanodeReport, hd, get_slow_datanode_report, REQ_READ, REQ_SUPER,
	       get_slow_datanode_report),
	READ(getSnapshottableDirListing, get_snapshottable_dir_listing, get_snapshottable),
	READ(msync, msync, msync),
	METHOD(getDelegationToken, hc, get_delegation_token, REQ_READ, 0, get_delegation_token),
	REPLY(getFsStats, hd, get_fs_status, get_fs_stats, REQ_READ, 0, get_fs_stats),
	READ(getFsReplicatedBlockStats, get_fs_replicated_block_stats, get_replicated_stats),
	READ(getFsECBlockGroupStats, get_fs_ecblock_group_stats, get_ec_stats),
	METHOD(getDatanodeReport, hd, get_datanode_report, REQ_READ, REQ_SUPER, get_datanode_report),
	METHOD(getDatanodeStorageReport, hd, get_datanode_storage_report, REQ_READ, REQ_SUPER,
	       get_storage_report),
};
const struct method_table client_admin_methods = METHOD_TABLE(table);
