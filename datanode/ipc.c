/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/ipc.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ClientDatanodeProtocol.pb-c.h"
#include "InterDatanodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/server.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/nn/nn.h"

struct ipc {
	struct dn *dn;
	struct rpc_server *server;
	struct rpc_service services[2];
	uint64_t started_ns;
	atomic_uint running; /* calls on helper threads */
	atomic_bool closed;
	struct rmsg close_msg;
};

struct ipc_call {
	struct offload off;
	struct ipc *ipc;
	struct rpc_call *call;
	const struct ipc_method *method;
};

struct ipc_method {
	const char *name;
	const ProtobufCMessageDescriptor *request;
	/** Answers the call. On a helper thread. */
	void (*run)(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *request);
};

/* ---- errors ---- */

/* The Java class a peer expects for an errno of the store. */
static const char *class_of(int rc)
{
	switch (rc) {
	case -EBUSY:
		return JEX_RECOVERY_IN_PROGRESS;
	default:
		return JEX_IO;
	}
}

static void fail(struct rpc_call *call, int rc, const struct err *err)
{
	rpc_fail(call, class_of(rc), "%s", err->text[0] ? err->text : err_name(rc));
}

static struct block_pool *pool_or_fail(struct ipc *i, struct rpc_call *call, const char *id)
{
	struct block_pool *bp = dn_pool(i->dn, id);

	if (!bp)
		rpc_fail(call, JEX_IO, "block pool %.128s is not known here", id);
	return bp;
}

/* ---- InterDatanodeProtocol ---- */

static void run_init_recovery(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__RecoveringBlockProto *rb = ((const Hd__InitReplicaRecoveryRequestProto *)m)->block;
	const Hd__ExtendedBlockProto *b = rb->block->b;
	Hd__InitReplicaRecoveryResponseProto resp = HD__INIT_REPLICA_RECOVERY_RESPONSE_PROTO__INIT;
	Hd__BlockProto bp_out = HD__BLOCK_PROTO__INIT;
	struct block want = {(int64_t)b->blockid, b->generationstamp, b->numbytes};
	struct block_pool *bp = pool_or_fail(i, call, b->poolid);
	struct err err = ERR_INIT;
	struct replica_info info;
	int rc;

	if (!bp)
		return;
	rc = replica_init_recovery(bp, &want, rb->newgenstamp, &info, &err);
	log_info("op=init-recovery block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " rc=%d%s%s", want.id,
		 want.gs, (uint64_t)rb->newgenstamp, rc, rc ? ": " : "", err.text);
	if (rc && rc != -ENOENT) {
		fail(call, rc, &err);
		return;
	}
	resp.replicafound = !rc;
	if (!rc) {
		resp.has_state = true;
		resp.state = (Hd__ReplicaStateProto)info.state;
		bp_out.blockid = (uint64_t)info.block.id;
		bp_out.genstamp = info.block.gs;
		bp_out.has_numbytes = true;
		bp_out.numbytes = info.block.len;
		resp.block = &bp_out;
	}
	rpc_reply(call, &resp.base);
}

static void run_update_recovery(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__UpdateReplicaUnderRecoveryRequestProto *q =
		(const Hd__UpdateReplicaUnderRecoveryRequestProto *)m;
	Hd__UpdateReplicaUnderRecoveryResponseProto resp =
		HD__UPDATE_REPLICA_UNDER_RECOVERY_RESPONSE_PROTO__INIT;
	struct block b = {(int64_t)q->block->blockid, q->block->generationstamp, q->block->numbytes};
	struct block_pool *bp = pool_or_fail(i, call, q->block->poolid);
	char uuid[BLOCK_UUID_MAX];
	struct err err = ERR_INIT;
	int rc;

	if (!bp)
		return;
	rc = replica_update_recovery(bp, &b, q->recoveryid, q->newlength, (int64_t)q->newblockid, uuid,
				     &err);
	log_info("op=update-recovery block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " len=%" PRIu64
		 " rc=%d%s%s",
		 b.id, b.gs, (uint64_t)q->recoveryid, (uint64_t)q->newlength, rc, rc ? ": " : "",
		 err.text);
	if (rc) {
		fail(call, rc == -EBUSY ? -EIO : rc, &err);
		return;
	}
	resp.storageuuid = uuid;
	rpc_reply(call, &resp.base);
}

/* ---- ClientDatanodeProtocol ---- */

static void run_visible_length(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__ExtendedBlockProto *b =
		((const Hd__GetReplicaVisibleLengthRequestProto *)m)->block;
	Hd__GetReplicaVisibleLengthResponseProto resp =
		HD__GET_REPLICA_VISIBLE_LENGTH_RESPONSE_PROTO__INIT;
	struct block_pool *bp = pool_or_fail(i, call, b->poolid);
	struct replica_info info;

	if (!bp)
		return;
	if (replica_get(bp, (int64_t)b->blockid, &info) || info.block.gs < b->generationstamp) {
		rpc_fail(call, "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException",
			 "Replica not found for %s:blk_%" PRId64 "_%" PRIu64, b->poolid,
			 (int64_t)b->blockid, (uint64_t)b->generationstamp);
		return;
	}
	/* -1: nothing of a replica that waits for recovery is visible (as a Java node says). */
	resp.length = info.state == REPLICA_RWR || info.state == REPLICA_TEMPORARY ? UINT64_MAX :
										     info.visible;
	rpc_reply(call, &resp.base);
}

static void run_info(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__GetDatanodeInfoResponseProto resp = HD__GET_DATANODE_INFO_RESPONSE_PROTO__INIT;
	Hd__DatanodeLocalInfoProto info = HD__DATANODE_LOCAL_INFO_PROTO__INIT;

	(void)m;
	info.softwareversion = (char *)DFS_VERSION;
	info.configversion = (char *)"core-0, hdfs-0";
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
	free(items);
	free(list);
	free(infos);
}

static void run_trigger_report(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__TriggerBlockReportResponseProto resp = HD__TRIGGER_BLOCK_REPORT_RESPONSE_PROTO__INIT;

	if (i->dn->nns)
		nn_trigger_report(i->dn->nns,
				  ((const Hd__TriggerBlockReportRequestProto *)m)->incremental);
	rpc_reply(call, &resp.base);
}

static void run_shutdown(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__ShutdownDatanodeResponseProto resp = HD__SHUTDOWN_DATANODE_RESPONSE_PROTO__INIT;

	(void)i, (void)m;
	log_info("op=shutdown user=%s: asked to stop", call->user ? call->user : "?");
	rpc_reply(call, &resp.base);
	(void)kill(getpid(), SIGTERM); /* the same way out as an administrator's */
}

static void run_bandwidth(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__GetBalancerBandwidthResponseProto resp = HD__GET_BALANCER_BANDWIDTH_RESPONSE_PROTO__INIT;

	(void)m;
	resp.bandwidth = i->dn->nns ? nn_balancer_bandwidth(i->dn->nns) : 0;
	rpc_reply(call, &resp.base);
}

static void run_local_path(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	(void)i, (void)m;
	/* The legacy short circuit: it would show our directories to any user. */
	rpc_fail(call, JEX_ACCESS_CONTROL,
		 "local paths of blocks are not given out; use short-circuit reads over a domain "
		 "socket or plain reads");
}

static void run_refresh(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	Hd__RefreshNamenodesResponseProto resp = HD__REFRESH_NAMENODES_RESPONSE_PROTO__INIT;

	(void)i, (void)m;
	rpc_reply(call, &resp.base);
}

/* ---- dispatch ---- */

static const struct ipc_method inter_methods[] = {
	{"initReplicaRecovery", &hd__init_replica_recovery_request_proto__descriptor,
	 run_init_recovery},
	{"updateReplicaUnderRecovery", &hd__update_replica_under_recovery_request_proto__descriptor,
	 run_update_recovery},
	{NULL, NULL, NULL},
};

static const struct ipc_method client_methods[] = {
	{"getReplicaVisibleLength", &hd__get_replica_visible_length_request_proto__descriptor,
	 run_visible_length},
	{"getDatanodeInfo", &hd__get_datanode_info_request_proto__descriptor, run_info},
	{"getVolumeReport", &hd__get_volume_report_request_proto__descriptor, run_volumes},
	{"triggerBlockReport", &hd__trigger_block_report_request_proto__descriptor,
	 run_trigger_report},
	{"shutdownDatanode", &hd__shutdown_datanode_request_proto__descriptor, run_shutdown},
	{"getBalancerBandwidth", &hd__get_balancer_bandwidth_request_proto__descriptor,
	 run_bandwidth},
	{"getBlockLocalPathInfo", &hd__get_block_local_path_info_request_proto__descriptor,
	 run_local_path},
	{"refreshNamenodes", &hd__refresh_namenodes_request_proto__descriptor, run_refresh},
	{NULL, NULL, NULL},
};

static void call_work(struct offload *o)
{
	struct ipc_call *c = container_of(o, struct ipc_call, off);
	ProtobufCMessage *m = rpc_call_decode(c->call, c->method->request);

	if (!m)
		return;
	c->method->run(c->ipc, c->call, m);
	pb_free(m);
}

static void call_done(struct offload *o)
{
	struct ipc_call *c = container_of(o, struct ipc_call, off);

	atomic_fetch_sub(&c->ipc->running, 1);
	free(c);
}

static void dispatch(struct ipc *i, struct rpc_call *call, const struct ipc_method *methods)
{
	struct ipc_call *c;

	while (methods->name && strcmp(methods->name, call->method))
		methods++;
	if (!methods->name) {
		rpc_fail_no_method(call);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		rpc_fail(call, JEX_RETRIABLE, "out of memory");
		return;
	}
	*c = (struct ipc_call){.off = {.work = call_work, .done = call_done}, .ipc = i, .call = call,
			       .method = methods};
	atomic_fetch_add(&i->running, 1);
	reactor_offload(i->dn->reactors[0], &c->off);
}

static void on_inter_call(void *arg, struct rpc_call *call)
{
	dispatch(arg, call, inter_methods);
}

static void on_client_call(void *arg, struct rpc_call *call)
{
	dispatch(arg, call, client_methods);
}

/* ---- start and end ---- */

int ipc_start(struct dn *dn, struct ipc **ret, struct err *err)
{
	struct ipc *i = calloc(1, sizeof(*i));
	struct rpc_server_opts o = {.addr = dn->ipc_addr, .service_count = 2};
	int rc;

	if (!i)
		return err_sys(err, -ENOMEM, "RPC server");
	i->dn = dn;
	i->started_ns = clock_mono_ns();
	i->services[0] = (struct rpc_service){RPC_PROTO_CLIENT_DATANODE, on_client_call, i};
	i->services[1] = (struct rpc_service){RPC_PROTO_INTER_DATANODE, on_inter_call, i};
	o.services = i->services;
	rc = rpc_server_new(dn->reactors[0], &o, &dn->ipc_addr, &i->server, err);
	if (rc) {
		free(i);
		err_prefix(err, "RPC port (dfs.datanode.ipc.address)");
		return rc;
	}
	*ret = i;
	return 0;
}

static void close_on_reactor(struct rmsg *m)
{
	struct ipc *i = container_of(m, struct ipc, close_msg);

	rpc_server_close(i->server);
	i->closed = true;
}

void ipc_stop(struct ipc *i)
{
	if (!i)
		return;
	i->close_msg.fn = close_on_reactor;
	if (reactor_is_current(i->dn->reactors[0])) /* never started */
		close_on_reactor(&i->close_msg);
	else
		reactor_post(i->dn->reactors[0], &i->close_msg);
	while (!i->closed || i->running)
		nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
	free(i);
}
