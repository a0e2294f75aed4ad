/* SPDX-License-Identifier: Apache-2.0 */
/* ClientDatanodeProtocol and ReconfigurationProtocol: what clients ask, and what administrators
 * order (hdfs dfsadmin). Orders are for the user this node runs as and for super-users. */
#include "datanode/admin/ipc_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ClientDatanodeProtocol.pb-c.h"
#include "ReconfigurationProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/erasure/geometry.h"
#include "common/wire/ec_msg.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/reconfig.h"
#include "datanode/bp/bp.h"
#include "datanode/data_port/data_port.h"
#include "datanode/live_settings.h"

/* ---- blocks ---- */

/* Does somebody ask for the length of a group of which we have a unit? A stock client asks all
 * nodes by the group's id, takes the first length it hears, which would be unit 0's, for that of
 * the group, and reads and decodes by it bytes that are not there or not those. It asks only about
 * a group that is not finished, and what was synced is in those before it (docs/design/ec-sync.md):
 * to be told of an empty group it reads all of that, and nothing wrong. */
static bool asks_for_group(struct block_pool *bp, const Hd__ExtendedBlockProto *b)
{
	const int64_t id = (int64_t)b->blockid;
	struct replica_info info;

	if (!ec_id_is_striped(id) || ec_id_unit(id) != 0 || b->numbytes == EC_NUMBYTES_UNIT)
		return false;
	for (unsigned u = 0; u < EC_UNITS_MAX; u++)
		if (replica_get(bp, ec_id_of(id, u), &info) == 0 &&
		    info.block.gs >= b->generationstamp)
			return true;
	return false;
}

static void run_visible_length(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__ExtendedBlockProto *b =
		((const Hd__GetReplicaVisibleLengthRequestProto *)m)->block;
	Hd__GetReplicaVisibleLengthResponseProto resp =
		HD__GET_REPLICA_VISIBLE_LENGTH_RESPONSE_PROTO__INIT;
	struct block_pool *bp = ipc_pool(i, call, b->poolid);
	struct replica_info info;

	if (!bp)
		return;
	if (asks_for_group(bp, b)) {
		rpc_reply(call, &resp.base); /* of length 0 */
		return;
	}
	if (replica_get(bp, (int64_t)b->blockid, &info) || info.block.gs < b->generationstamp) {
		rpc_fail(call, "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException",
			 "Replica not found for %s:blk_%" PRId64 "_%" PRIu64, b->poolid,
			 (int64_t)b->blockid, (uint64_t)b->generationstamp);
		return;
	}
	/* -1: nothing of a replica that waits for recovery is visible (as a Java node says). */
	resp.length = info.state == REPLICA_RWR || info.state == REPLICA_TEMPORARY ? UINT64_MAX
										   : info.visible;
	rpc_reply(call, &resp.base);
}

/* The legacy short circuit shows our directories, so it is for those named in
 * dfs.block.local-path-access.user. */
static bool may_see_paths(struct ipc *i, const char *user)
{
	char **list = NULL;
	bool found = false;

	if (conf_list(i->dn->conf, "dfs.block.local-path-access.user", &list))
		return false;
	for (char **u = list; user && *u; u++)
		found = found || !strcmp(*u, user);
	conf_list_free(list);
	return found;
}

static bool path_of_fd(int fd, char *buf, size_t size)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = fd < 0 ? -1 : readlink(link, buf, size - 1);
	if (n < 0)
		return false;
	buf[n] = '\0';
	return true;
}

static const Hd__ExtendedBlockProto *local_path_block(const ProtobufCMessage *m)
{
	return ((const Hd__GetBlockLocalPathInfoRequestProto *)m)->block;
}

static void run_local_path(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__ExtendedBlockProto *b = ((const Hd__GetBlockLocalPathInfoRequestProto *)m)->block;
	Hd__GetBlockLocalPathInfoResponseProto resp =
		HD__GET_BLOCK_LOCAL_PATH_INFO_RESPONSE_PROTO__INIT;
	struct block want = {(int64_t)b->blockid, b->generationstamp, 0};
	Hd__ExtendedBlockProto out = *b;
	char data[4096], meta[4096];
	struct err err = ERR_INIT;
	struct replica_reader *r;
	struct block_pool *bp;
	int rc;

	if (!may_see_paths(i, call->user)) {
		rpc_fail(
			call, JEX_ACCESS_CONTROL,
			"Can't continue with getBlockLocalPathInfo() authorization. The user %.64s is "
			"not configured in dfs.block.local-path-access.user",
			call->user ? call->user : "");
		return;
	}
	bp = ipc_pool(i, call, b->poolid);
	if (!bp)
		return;
	rc = replica_read_open(bp, &want, &r, &err);
	if (rc) {
		ipc_fail(call, rc, &err);
		return;
	}
	out.generationstamp = r->block.gs;
	out.has_numbytes = true;
	out.numbytes = r->block.len;
	resp.block = &out;
	resp.localpath = data;
	resp.localmetapath = meta;
	if (path_of_fd(r->fd, data, sizeof(data)) && path_of_fd(r->fd_meta, meta, sizeof(meta)))
		rpc_reply(call, &resp.base);
	else
		rpc_fail(call, JEX_IO, "block %" PRId64 " has no checksum file to show", want.id);
	replica_read_close(r);
}

/* ---- what the node is ---- */

static void run_info(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__GetDatanodeInfoResponseProto resp = HD__GET_DATANODE_INFO_RESPONSE_PROTO__INIT;
	Hd__DatanodeLocalInfoProto info = HD__DATANODE_LOCAL_INFO_PROTO__INIT;

	(void)m;
	info.softwareversion = (char *)DFS_VERSION;
	info.configversion = (char *)"core-0,hdfs-0";
	info.uptime = (clock_mono_ns() - i->started_ns) / NS_PER_S;
	resp.localinfo = &info;
	rpc_reply(call, &resp.base);
}

static void run_volumes(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__GetVolumeReportResponseProto resp = HD__GET_VOLUME_REPORT_RESPONSE_PROTO__INIT;
	uint32_t n = store_volume_count(i->dn->store);
	Hd__DatanodeVolumeInfoProto *items = calloc(n, sizeof(*items));
	Hd__DatanodeVolumeInfoProto **list = calloc(n, sizeof(*list));
	struct storage_info *infos = calloc(n, sizeof(*infos));

	(void)m;
	if (!ipc_is_admin(i, call))
		goto out;
	for (uint32_t v = 0; items && list && infos && v < n; v++) {
		store_volume_info(i->dn->store, v, NULL, &infos[v]);
		if (infos[v].failed)
			continue;
		hd__datanode_volume_info_proto__init(&items[v]);
		items[v].path = infos[v].path;
		items[v].storagetype = (Hd__StorageTypeProto)infos[v].type;
		items[v].usedspace = infos[v].used;
		items[v].freespace = infos[v].remaining;
		items[v].reservedspace = infos[v].reserved;
		items[v].reservedspaceforreplicas = infos[v].promised;
		items[v].numblocks = infos[v].blocks;
		list[resp.n_volumeinfo++] = &items[v];
	}
	resp.volumeinfo = list;
	rpc_reply(call, &resp.base);
out:
	free(items);
	free(list);
	free(infos);
}

static void run_bandwidth(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__GetBalancerBandwidthResponseProto resp =
		HD__GET_BALANCER_BANDWIDTH_RESPONSE_PROTO__INIT;

	(void)m;
	resp.bandwidth = i->dn->live.balance_bandwidth;
	rpc_reply(call, &resp.base);
}

/* ---- orders ---- */

static void run_trigger_report(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__TriggerBlockReportRequestProto *q = (const Hd__TriggerBlockReportRequestProto *)m;
	Hd__TriggerBlockReportResponseProto resp = HD__TRIGGER_BLOCK_REPORT_RESPONSE_PROTO__INIT;
	struct err err = ERR_INIT;

	if (!ipc_is_admin(i, call))
		return;
	if (i->dn->nns && bp_trigger_report(i->dn->nns, q->incremental, q->nnaddress, &err))
		rpc_fail(call, JEX_IO, "%s", err.text);
	else
		rpc_reply(call, &resp.base);
}

static void run_shutdown(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__ShutdownDatanodeResponseProto resp = HD__SHUTDOWN_DATANODE_RESPONSE_PROTO__INIT;
	bool upgrade = ((const Hd__ShutdownDatanodeRequestProto *)m)->forupgrade;

	if (!ipc_is_admin(i, call))
		return;
	if (atomic_exchange(&i->ending, true)) {
		rpc_fail(call, JEX_IO, "Shutdown already in progress.");
		return;
	}
	log_info("op=shutdown user=%s upgrade=%d: asked to stop", call->user ? call->user : "?",
		 upgrade);
	i->dn->restarting = upgrade;
	rpc_reply(call, &resp.base);
	(void)kill(getpid(), SIGTERM); /* the same way out as an administrator's */
}

static void run_evict(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__EvictWritersResponseProto resp = HD__EVICT_WRITERS_RESPONSE_PROTO__INIT;

	(void)m;
	if (!ipc_is_admin(i, call))
		return;
	log_info("op=evict-writers user=%s", call->user ? call->user : "?");
	if (i->dn->xfer)
		data_port_evict_writers(i->dn->xfer);
	rpc_reply(call, &resp.base);
}

static void run_refresh(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__RefreshNamenodesResponseProto resp = HD__REFRESH_NAMENODES_RESPONSE_PROTO__INIT;
	struct conf *fresh = NULL;
	struct err err = ERR_INIT;
	int rc;

	(void)m;
	if (!ipc_is_admin(i, call))
		return;
	rc = conf_reload(i->dn->conf, &fresh, &err);
	if (!rc && i->dn->nns)
		rc = bp_refresh(i->dn->nns, fresh, &err);
	conf_free(fresh);
	if (rc)
		rpc_fail(call, JEX_IO, "%s", err.text);
	else
		rpc_reply(call, &resp.base);
}

static void run_delete_pool(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__DeleteBlockPoolRequestProto *q = (const Hd__DeleteBlockPoolRequestProto *)m;

	if (!ipc_is_admin(i, call))
		return;
	if (i->dn->nns && bp_serves_pool(i->dn->nns, q->blockpool))
		rpc_fail(
			call, JEX_IO,
			"The block pool is still running. First do a refreshNamenodes to shutdown the "
			"block pool service");
	else /* a slip would cost every replica here: left to a person at the node */
		rpc_fail(
			call, JEX_UNSUPPORTED,
			"block pool %.128s is not deleted from afar; stop the data node and remove "
			"current/%.128s from each of its data directories",
			q->blockpool, q->blockpool);
}

static void run_start_reconfig(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__StartReconfigurationResponseProto resp = HD__START_RECONFIGURATION_RESPONSE_PROTO__INIT;
	struct err err = ERR_INIT;

	(void)m;
	if (!ipc_is_admin(i, call))
		return;
	if (reconfig_run(i->reconfig, &err))
		rpc_fail(call, JEX_IO, "%s", err.text);
	else
		rpc_reply(call, &resp.base);
}

static void reply_status(void *arg, const struct reconfig_status *s)
{
	struct rpc_call *call = arg;
	Hd__GetReconfigurationStatusResponseProto resp =
		HD__GET_RECONFIGURATION_STATUS_RESPONSE_PROTO__INIT;
	size_t room = s->count + 1;
	Hd__GetReconfigurationStatusConfigChangeProto *items = calloc(room, sizeof(*items));
	Hd__GetReconfigurationStatusConfigChangeProto **list = calloc(room, sizeof(*list));

	if (items && list) {
		for (size_t k = 0; k < s->count; k++) {
			hd__get_reconfiguration_status_config_change_proto__init(&items[k]);
			items[k].name = s->changes[k].name;
			items[k].oldvalue = s->changes[k].old_value;
			items[k].newvalue = s->changes[k].new_value;
			items[k].errormessage = s->changes[k].error;
			list[k] = &items[k];
		}
		resp.starttime = s->start_ms;
		resp.has_endtime = s->end_ms != 0;
		resp.endtime = s->end_ms;
		resp.n_changes = s->count;
		resp.changes = list;
		rpc_reply(call, &resp.base);
	} else {
		rpc_fail(call, JEX_RETRIABLE, "out of memory");
	}
	free(items);
	free(list);
}

static void run_reconfig_status(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	(void)m;
	if (ipc_is_admin(i, call))
		reconfig_show(i->reconfig, reply_status, call);
}

static void run_list_reconfig(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__ListReconfigurablePropertiesResponseProto resp =
		HD__LIST_RECONFIGURABLE_PROPERTIES_RESPONSE_PROTO__INIT;
	char *names[64];

	(void)m;
	if (!ipc_is_admin(i, call))
		return;
	while (resp.n_name < sizeof(names) / sizeof(*names) &&
	       live_settings_key((unsigned int)resp.n_name)) {
		/* only read */
		names[resp.n_name] = (char *)live_settings_key((unsigned int)resp.n_name);
		resp.n_name++;
	}
	resp.name = names;
	rpc_reply(call, &resp.base);
}

/* ---- the disk balancer: not in this release ---- */

static void refuse_disk_balancer(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	(void)i, (void)m;
	rpc_fail(call, JEX_DISK_BALANCER,
		 "this data node has no disk balancer; nothing is moved between its directories");
}

/* ---- tables ---- */

const struct ipc_method client_methods[] = {
	{"getReplicaVisibleLength", &hd__get_replica_visible_length_request_proto__descriptor,
	 run_visible_length, NULL},
	{"getBlockLocalPathInfo", &hd__get_block_local_path_info_request_proto__descriptor,
	 run_local_path, local_path_block},
	{"getDatanodeInfo", &hd__get_datanode_info_request_proto__descriptor, run_info, NULL},
	{"getVolumeReport", &hd__get_volume_report_request_proto__descriptor, run_volumes, NULL},
	{"getBalancerBandwidth", &hd__get_balancer_bandwidth_request_proto__descriptor,
	 run_bandwidth, NULL},
	{"triggerBlockReport", &hd__trigger_block_report_request_proto__descriptor,
	 run_trigger_report, NULL},
	{"shutdownDatanode", &hd__shutdown_datanode_request_proto__descriptor, run_shutdown, NULL},
	{"evictWriters", &hd__evict_writers_request_proto__descriptor, run_evict, NULL},
	{"refreshNamenodes", &hd__refresh_namenodes_request_proto__descriptor, run_refresh, NULL},
	{"deleteBlockPool", &hd__delete_block_pool_request_proto__descriptor, run_delete_pool,
	 NULL},
	{"startReconfiguration", &hd__start_reconfiguration_request_proto__descriptor,
	 run_start_reconfig, NULL},
	{"getReconfigurationStatus", &hd__get_reconfiguration_status_request_proto__descriptor,
	 run_reconfig_status, NULL},
	{"listReconfigurableProperties",
	 &hd__list_reconfigurable_properties_request_proto__descriptor, run_list_reconfig, NULL},
	{"submitDiskBalancerPlan", &hd__submit_disk_balancer_plan_request_proto__descriptor,
	 refuse_disk_balancer, NULL},
	{"cancelDiskBalancerPlan", &hd__cancel_plan_request_proto__descriptor, refuse_disk_balancer,
	 NULL},
	{"queryDiskBalancerPlan", &hd__query_plan_status_request_proto__descriptor,
	 refuse_disk_balancer, NULL},
	{"getDiskBalancerSetting", &hd__disk_balancer_setting_request_proto__descriptor,
	 refuse_disk_balancer, NULL},
	{NULL, NULL, NULL, NULL},
};

const struct ipc_method reconfig_methods[] = {
	{"startReconfiguration", &hd__start_reconfiguration_request_proto__descriptor,
	 run_start_reconfig, NULL},
	{"getReconfigurationStatus", &hd__get_reconfiguration_status_request_proto__descriptor,
	 run_reconfig_status, NULL},
	{"listReconfigurableProperties",
	 &hd__list_reconfigurable_properties_request_proto__descriptor, run_list_reconfig, NULL},
	{NULL, NULL, NULL, NULL},
};
