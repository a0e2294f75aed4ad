/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: defaults, policies, counts and nodes. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "Security.pb-c.h"
#include "encryption.pb-c.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

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
	PB_SET(d, snapshottrashrootenabled, 0);
	r->serverdefaults = d;
	return 0;
}

/* Answers that say "there is none". */
#define EMPTY(fn, Type, init)                                                                      \
	static int fn(struct req *q, const void *in)                                               \
	{                                                                                          \
		(void)in;                                                                          \
		req_reply(q, Type, init);                                                          \
		return 0;                                                                          \
	}
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
	const struct blocks *b = &q->nn->blocks;
	Hd__GetFsReplicatedBlockStatsResponseProto *r =
		req_reply(q, Hd__GetFsReplicatedBlockStatsResponseProto,
			  hd__get_fs_replicated_block_stats_response_proto__init);

	(void)in;
	r->low_redundancy = b->under_count - b->groups.under;
	r->corrupt_blocks = b->corrupt - b->groups.corrupt;
	r->missing_blocks = b->missing - b->groups.missing;
	r->missing_repl_one_blocks = b->missing_one;
	r->pending_deletion_blocks =
		datanodes_pending_deletions(&q->nn->dns) - datanodes_pending_units(&q->nn->dns);
	PB_SET(r, highest_prio_low_redundancy_blocks, b->urgent - b->groups.urgent);
	return 0;
}

static int get_ec_stats(struct req *q, const void *in)
{
	const struct blk_sums *g = &q->nn->blocks.groups;
	Hd__GetFsECBlockGroupStatsResponseProto *r =
		req_reply(q, Hd__GetFsECBlockGroupStatsResponseProto,
			  hd__get_fs_ecblock_group_stats_response_proto__init);

	(void)in;
	r->low_redundancy = g->under;
	r->corrupt_blocks = g->corrupt;
	r->missing_blocks = g->missing;
	r->pending_deletion_blocks = datanodes_pending_units(&q->nn->dns);
	PB_SET(r, highest_prio_low_redundancy_blocks, g->urgent);
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
		return dn->alive && dn->admin == DN_DECOMMISSIONING;
	case HD__DATANODE_REPORT_TYPE_PROTO__ENTERING_MAINTENANCE:
		return dn->alive && dn->admin == DN_ENTERING_MAINTENANCE;
	case HD__DATANODE_REPORT_TYPE_PROTO__IN_MAINTENANCE:
		return dn->admin == DN_IN_MAINTENANCE;
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
#define REPLY(rpc_name, ns_, req_, resp_, kind_, flags_, fn)                                       \
	{                                                                                          \
		.name = #rpc_name, .in = &ns_##__##req_##_request_proto__descriptor,               \
		.out = &ns_##__##resp_##_response_proto__descriptor, .kind = kind_,                \
		.flags = flags_, .run = fn                                                         \
	}
static const struct method table[] = {
	READ(getServerDefaults, get_server_defaults, get_server_defaults),
	METHOD(listEncryptionZones, hd, list_encryption_zones, REQ_READ, REQ_SUPER,
	       list_encryption_zones),
	READ(getDataEncryptionKey, get_data_encryption_key, get_data_encryption_key),
	METHOD(getSlowDatanodeReport, hd, get_slow_datanode_report, REQ_READ, 0,
	       get_slow_datanode_report),
	READ(getSnapshottableDirListing, get_snapshottable_dir_listing, get_snapshottable),
	READ(msync, msync, msync),
	METHOD(getDelegationToken, hc, get_delegation_token, REQ_READ, 0, get_delegation_token),
	REPLY(getFsStats, hd, get_fs_status, get_fs_stats, REQ_READ, 0, get_fs_stats),
	READ(getFsReplicatedBlockStats, get_fs_replicated_block_stats, get_replicated_stats),
	READ(getFsECBlockGroupStats, get_fs_ecblock_group_stats, get_ec_stats),
	METHOD(getDatanodeReport, hd, get_datanode_report, REQ_READ, REQ_SUPER,
	       get_datanode_report),
	METHOD(getDatanodeStorageReport, hd, get_datanode_storage_report, REQ_READ, REQ_SUPER,
	       get_storage_report),
};
const struct method_table client_admin_methods = METHOD_TABLE(table);
