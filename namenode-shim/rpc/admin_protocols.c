/* SPDX-License-Identifier: Apache-2.0 */
/* NamenodeProtocol (the balancer), HAServiceProtocol, the refresh calls, group look-ups and
 * reconfiguration. */
#include <string.h>

#include "GenericRefreshProtocol.pb-c.h"
#include "GetUserMappingsProtocol.pb-c.h"
#include "HAServiceProtocol.pb-c.h"
#include "NamenodeProtocol.pb-c.h"
#include "ReconfigurationProtocol.pb-c.h"
#include "RefreshAuthorizationPolicyProtocol.pb-c.h"
#include "RefreshCallQueueProtocol.pb-c.h"
#include "RefreshUserMappingsProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/auth_to_local.h"
#include "common/rpc/service_acl.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* A method that only says why not; tests/check_compat.py reads these. */
#define REFUSE(fn, kind, text)                                                                     \
	static int fn(struct req *q, const void *in)                                               \
	{                                                                                          \
		(void)in;                                                                          \
		return exception_throw(&q->exception, kind, "%s", text);                           \
	}
#define EMPTY(fn, Type, init)                                                                      \
	static int fn(struct req *q, const void *in)                                               \
	{                                                                                          \
		(void)in;                                                                          \
		req_reply(q, Type, init);                                                          \
		return 0;                                                                          \
	}

/* ---- NamenodeProtocol ---- */

#define GET_BLOCKS_MAX 65536  /* in one answer, however small they are */
#define GET_BLOCKS_STEP 10000 /* blocks looked at before others have their turn */

/* Blocks of one node from a random place on, until they make up the size asked for: the balancer
 * asks again and should not get the same ones. Nodes have no list of their blocks, so this may walk
 * the whole map, in steps (tree_walk.h); what changes in between may be left out. */
struct block_walk {
	uint32_t left; /* blocks of the map to look at */
	int64_t next;  /* the first of them */
	uint64_t sum;  /* bytes found */
	uint32_t found;
	int64_t id[GET_BLOCKS_MAX];
};

static bool stored_on(const struct blk *b, const struct dn *dn, const Hdn__GetBlocksRequestProto *m)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].st->dn == dn && b->rep[i].state == REPLICA_FINALIZED &&
		    !b->rep[i].corrupt && !b->rep[i].excess &&
		    (!m->has_storagetype || (int)m->storagetype == (int)b->rep[i].st->type))
			return true;
	return false;
}

static Hd__BlockWithLocationsProto *with_locations(struct req *q, const struct blk *b)
{
	Hd__BlockWithLocationsProto *w =
		req_new_msg(q, Hd__BlockWithLocationsProto, hd__block_with_locations_proto__init);

	const struct ec_policy *ec = blk_ec(b);
	uint8_t *units = arena_array(&q->mem, uint8_t, b->nreps + 1u);

	w->block = req_new_msg(q, Hd__BlockProto, hd__block_proto__init);
	w->block->blockid = (uint64_t)b->b.id;
	w->block->genstamp = b->b.gs;
	PB_SET(w->block, numbytes, b->b.len);
	w->datanodeuuids = arena_array(&q->mem, char *, b->nreps + 1u);
	w->storageuuids = arena_array(&q->mem, char *, b->nreps + 1u);
	w->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, b->nreps + 1u);
	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];
		const size_t n = w->n_datanodeuuids;

		if (r->corrupt || r->excess || r->state != REPLICA_FINALIZED)
			continue;
		/* packed without the lock */
		w->datanodeuuids[n] = arena_strdup(&q->mem, r->st->dn->uuid);
		w->storageuuids[n] = arena_strdup(&q->mem, r->st->id);
		w->storagetypes[n] = (Hd__StorageTypeProto)r->st->type;
		units[n] = r->unit;
		w->n_datanodeuuids = w->n_storageuuids = w->n_storagetypes = n + 1;
	}
	if (ec) {
		w->has_indices = 1;
		w->indices = (ProtobufCBinaryData){w->n_datanodeuuids, units};
		PB_SET(w, datablocknum, ec->k);
		PB_SET(w, cellsize, ec->cell);
	}
	return w;
}

/* The map is not empty. */
static const struct blk *any_block(const struct blk *map)
{
	const UT_hash_table *t = map->hh.tbl;
	uint64_t seed = clock_mono_ns() | 1;
	const uint64_t at = rng_next(&seed);

	for (unsigned int i = 0; i < t->num_buckets; i++) {
		UT_hash_handle *h = t->buckets[(at + i) % t->num_buckets].hh_head;

		if (h)
			return ELMT_FROM_HH(t, h);
	}
	return map;
}

static void walk_blocks(const struct nn *nn, struct block_walk *w, const struct dn *dn,
			const Hdn__GetBlocksRequestProto *m)
{
	const struct blk *b = w->next ? blocks_find(&nn->blocks, w->next) : NULL;
	const uint32_t left = HASH_COUNT(nn->blocks.map);

	w->left = w->left < left ? w->left : left;
	if (!b && w->left) /* it begins, or the block is gone */
		b = any_block(nn->blocks.map);
	for (uint32_t i = 0; i < GET_BLOCKS_STEP && w->left; i++, w->left--) {
		if (w->sum >= m->size || w->found == GET_BLOCKS_MAX)
			w->left = 1;
		else if (b->state == BLK_COMPLETE && b->b.len >= m->minblocksize && b->b.len &&
			 stored_on(b, dn, m)) {
			w->id[w->found++] = b->b.id;
			w->sum += b->b.len;
		}
		b = b->hh.next ? b->hh.next : nn->blocks.map;
	}
	w->next = w->left ? b->b.id : 0;
}

static int get_blocks(struct req *q, const void *in)
{
	const Hdn__GetBlocksRequestProto *m = in;
	Hdn__GetBlocksResponseProto *r =
		req_reply(q, Hdn__GetBlocksResponseProto, hdn__get_blocks_response_proto__init);
	const struct dn *dn = datanodes_find(&q->nn->dns, m->datanode->datanodeuuid);
	Hd__BlocksWithLocationsProto *l =
		req_new_msg(q, Hd__BlocksWithLocationsProto, hd__blocks_with_locations_proto__init);
	struct block_walk *w = q->block_walk;

	r->blocks = l;
	if (!dn)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT, "Datanode %.80s not found.",
				       m->datanode->datanodeuuid);
	if (!w) {
		w = q->block_walk = xcalloc(1, sizeof(*w));
		w->left = HASH_COUNT(q->nn->blocks.map);
	}
	walk_blocks(q->nn, w, dn, m);
	if (w->left)
		return REQ_PARK;
	l->blocks = arena_array(&q->mem, Hd__BlockWithLocationsProto *, w->found + 1u);
	for (uint32_t i = 0; i < w->found; i++) {
		const struct blk *b = blocks_find(&q->nn->blocks, w->id[i]);

		if (b && b->state == BLK_COMPLETE)
			l->blocks[l->n_blocks++] = with_locations(q, b);
	}
	return 0;
}

static int is_upgrade_finalized(struct req *q, const void *in)
{
	Hdn__IsUpgradeFinalizedResponseProto *r =
		req_reply(q, Hdn__IsUpgradeFinalizedResponseProto,
			  hdn__is_upgrade_finalized_response_proto__init);

	(void)in;
	r->isupgradefinalized = true;
	return 0;
}

static int is_rolling_upgrade(struct req *q, const void *in)
{
	Hdn__IsRollingUpgradeResponseProto *r =
		req_reply(q, Hdn__IsRollingUpgradeResponseProto,
			  hdn__is_rolling_upgrade_response_proto__init);

	(void)in;
	r->isrollingupgrade = false;
	return 0;
}

static int get_transaction_id(struct req *q, const void *in)
{
	Hdn__GetTransactionIdResponseProto *r =
		req_reply(q, Hdn__GetTransactionIdResponseProto,
			  hdn__get_transaction_id_response_proto__init);

	(void)in;
	r->txid = db_last_txid(q->nn->db);
	return 0;
}

static int get_checkpoint_id(struct req *q, const void *in)
{
	Hdn__GetMostRecentCheckpointTxIdResponseProto *r =
		req_reply(q, Hdn__GetMostRecentCheckpointTxIdResponseProto,
			  hdn__get_most_recent_checkpoint_tx_id_response_proto__init);

	(void)in; /* every commit is one */
	r->txid = db_last_txid(q->nn->db);
	return 0;
}

/* Keys that say that there are none: the balancer does not take their absence. */
static int get_block_keys(struct req *q, const void *in)
{
	Hdn__GetBlockKeysResponseProto *r = req_reply(q, Hdn__GetBlockKeysResponseProto,
						      hdn__get_block_keys_response_proto__init);

	(void)in;
	r->keys = req_new_msg(q, Hd__ExportedBlockKeysProto, hd__exported_block_keys_proto__init);
	r->keys->currentkey = req_new_msg(q, Hd__BlockKeyProto, hd__block_key_proto__init);
	return 0;
}

EMPTY(get_next_sps_path, Hdn__GetNextSPSPathResponseProto,
      hdn__get_next_spspath_response_proto__init)
EMPTY(error_report, Hdn__ErrorReportResponseProto, hdn__error_report_response_proto__init)
#define NO_CHECKPOINTS                                                                             \
	"this NameNode writes no checkpoints: every change is in its database at once; stop the "  \
	"secondary NameNode"
REFUSE(roll_edit_log, EXC_UNSUPPORTED, NO_CHECKPOINTS)
REFUSE(register_subordinate, EXC_UNSUPPORTED, NO_CHECKPOINTS)
REFUSE(start_checkpoint, EXC_UNSUPPORTED, NO_CHECKPOINTS)
REFUSE(end_checkpoint, EXC_UNSUPPORTED, NO_CHECKPOINTS)
REFUSE(get_edit_log_manifest, EXC_UNSUPPORTED, NO_CHECKPOINTS)

#define NAMENODE(name, msg, fn) METHOD(name, hdn, msg, REQ_READ, REQ_SUPER, fn)
static const struct method namenode_table[] = {
	METHOD(versionRequest, hd, version, REQ_READ, REQ_SUPER, version_request),
	METHOD(getBlocks, hdn, get_blocks, REQ_READ, REQ_SUPER | REQ_MEM, get_blocks),
	NAMENODE(getBlockKeys, get_block_keys, get_block_keys),
	NAMENODE(getTransactionId, get_transaction_id, get_transaction_id),
	NAMENODE(getMostRecentCheckpointTxId, get_most_recent_checkpoint_tx_id, get_checkpoint_id),
	NAMENODE(isUpgradeFinalized, is_upgrade_finalized, is_upgrade_finalized),
	NAMENODE(isRollingUpgrade, is_rolling_upgrade, is_rolling_upgrade),
	NAMENODE(getNextSPSPath, get_next_spspath, get_next_sps_path),
	NAMENODE(errorReport, error_report, error_report),
	NAMENODE(rollEditLog, roll_edit_log, roll_edit_log),
	NAMENODE(registerSubordinateNamenode, register, register_subordinate),
	NAMENODE(startCheckpoint, start_checkpoint, start_checkpoint),
	NAMENODE(endCheckpoint, end_checkpoint, end_checkpoint),
	NAMENODE(getEditLogManifest, get_edit_log_manifest, get_edit_log_manifest),
};
const struct method_table namenode_methods = METHOD_TABLE(namenode_table);

/* ---- HAServiceProtocol: a NameNode that has no partner ---- */

#define NO_HA "HA for namenode is not enabled"
REFUSE(get_service_status, EXC_HA_FAILED, NO_HA)
REFUSE(transition_to_active, EXC_HA_FAILED, NO_HA)
REFUSE(transition_to_standby, EXC_HA_FAILED, NO_HA)
REFUSE(transition_to_observer, EXC_HA_FAILED, NO_HA)
EMPTY(monitor_health, Hc__MonitorHealthResponseProto, hc__monitor_health_response_proto__init)

#define HA(name, msg, fn) METHOD(name, hc, msg, REQ_READ, REQ_SUPER, fn)
static const struct method ha_table[] = {
	METHOD(getServiceStatus, hc, get_service_status, REQ_READ, 0, get_service_status),
	HA(monitorHealth, monitor_health, monitor_health),
	HA(transitionToActive, transition_to_active, transition_to_active),
	HA(transitionToStandby, transition_to_standby, transition_to_standby),
	HA(transitionToObserver, transition_to_observer, transition_to_observer),
};
const struct method_table ha_methods = METHOD_TABLE(ha_table);

/* ---- refresh ---- */

/* Files and host names take their time. Whether the caller may is asked before, and again in his
 * turn. */
static void read_service_acl(struct req *q)
{
	struct service_acl *a = q->nn->service_acl;
	struct err err = ERR_INIT;
	struct txn none = {0};

	req_reset(q, &none);
	if (a && q->ns.super && !req_check_service(q) && service_acl_refresh(a, &err) < 0)
		q->prepare_error = xstrdup(err.text);
}

static int refresh_acl(struct req *q, const void *in)
{
	(void)in;
	req_reply(q, Hc__RefreshServiceAclResponseProto,
		  hc__refresh_service_acl_response_proto__init);
	if (!q->nn->service_acl)
		return exception_throw(&q->exception, EXC_AUTHORIZATION,
				       "Service Level Authorization not enabled!");
	if (q->prepare_error)
		return exception_throw(&q->exception, EXC_IO,
				       "%s; who may call what stays as it is", q->prepare_error);
	log_info("op=refreshServiceAcl user=%s", q->ns.user);
	return 0;
}
EMPTY(refresh_super_users, Hc__RefreshSuperUserGroupsConfigurationResponseProto,
      hc__refresh_super_user_groups_configuration_response_proto__init)
EMPTY(refresh_call_queue, Hc__RefreshCallQueueResponseProto,
      hc__refresh_call_queue_response_proto__init)

static int refresh_groups(struct req *q, const void *in)
{
	(void)in;
	req_reply(q, Hc__RefreshUserToGroupsMappingsResponseProto,
		  hc__refresh_user_to_groups_mappings_response_proto__init);
	users_refresh(q->nn->users);
	return 0;
}

static int generic_refresh(struct req *q, const void *in)
{
	const Hc__GenericRefreshRequestProto *m = in;

	return exception_throw(
		&q->exception, EXC_BAD_ARGUMENT,
		"Identifier '%.100s' does not exist in RefreshRegistry. Valid options are: ",
		m->identifier ? m->identifier : "");
}

#define REFRESH(name, msg, fn) METHOD(name, hc, msg, REQ_READ, REQ_SUPER, fn)
static const struct method acl_table[] = {
	METHOD_PREPARED(refreshServiceAcl, hc, refresh_service_acl, REQ_MEMORY, REQ_SUPER,
			refresh_acl, read_service_acl),
};
const struct method_table refresh_acl_methods = METHOD_TABLE(acl_table);

static const struct method user_table[] = {
	REFRESH(refreshUserToGroupsMappings, refresh_user_to_groups_mappings, refresh_groups),
	REFRESH(refreshSuperUserGroupsConfiguration, refresh_super_user_groups_configuration,
		refresh_super_users),
};
const struct method_table refresh_user_methods = METHOD_TABLE(user_table);

static const struct method queue_table[] = {
	REFRESH(refreshCallQueue, refresh_call_queue, refresh_call_queue),
};
const struct method_table refresh_queue_methods = METHOD_TABLE(queue_table);

static const struct method generic_table[] = {
	{.name = "refresh",
	 .in = &hc__generic_refresh_request_proto__descriptor,
	 .out = &hc__generic_refresh_response_collection_proto__descriptor,
	 .kind = REQ_READ,
	 .flags = REQ_SUPER,
	 .run = generic_refresh},
};
const struct method_table generic_refresh_methods = METHOD_TABLE(generic_table);

/* ---- groups ---- */

/* Any name may be asked for, and nobody is to wait for the accounts but who asked. */
static void ask_groups(struct req *q)
{
	const Hc__GetGroupsForUserRequestProto *m = (const void *)q->in;
	struct err err = ERR_INIT;
	char user[USERS_NAME_MAX + 1];

	if (!auth_to_local(q->nn->names, m->user, user, sizeof(user), &err))
		q->asked = users_ask(q->nn->users, user);
}

static int get_groups(struct req *q, const void *in)
{
	const Hc__GetGroupsForUserRequestProto *m = in;
	Hc__GetGroupsForUserResponseProto *r = req_reply(
		q, Hc__GetGroupsForUserResponseProto, hc__get_groups_for_user_response_proto__init);
	char user[USERS_NAME_MAX + 1];
	struct err err = ERR_INIT;

	if (auth_to_local(q->nn->names, m->user, user, sizeof(user), &err))
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Illegal principal name %.200s: %s", m->user, err.text);
	r->n_groups = users_groups(q->nn->users, user, &q->mem, &r->groups);
	return 0;
}

static const struct method groups_table[] = {
	METHOD_PREPARED(getGroupsForUser, hc, get_groups_for_user, REQ_MEMORY, REQ_NAMES_USER,
			get_groups, ask_groups),
};
const struct method_table user_mapping_methods = METHOD_TABLE(groups_table);

/* ---- reconfiguration: dfsadmin -reconfig namenode ---- */

EMPTY(list_reconfigurable, Hd__ListReconfigurablePropertiesResponseProto,
      hd__list_reconfigurable_properties_response_proto__init)
EMPTY(reconfiguration_status, Hd__GetReconfigurationStatusResponseProto, /* start time 0: never */
      hd__get_reconfiguration_status_response_proto__init)
REFUSE(start_reconfiguration, EXC_UNSUPPORTED,
       "this NameNode takes its settings at start: stop it and start it again")

#define RECONFIG(name, msg, fn) METHOD(name, hd, msg, REQ_READ, REQ_SUPER, fn)
static const struct method reconfiguration_table[] = {
	RECONFIG(listReconfigurableProperties, list_reconfigurable_properties, list_reconfigurable),
	RECONFIG(getReconfigurationStatus, get_reconfiguration_status, reconfiguration_status),
	RECONFIG(startReconfiguration, start_reconfiguration, start_reconfiguration),
};
const struct method_table reconfiguration_methods = METHOD_TABLE(reconfiguration_table);
