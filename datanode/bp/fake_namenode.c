/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/bp/fake_namenode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "DatanodeLifelineProtocol.pb-c.h"
#include "common/wire/block_report_test_fixture.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/store/store.h"

static void on_version(struct fake *f, struct rpc_call *call)
{
	Hd__VersionResponseProto resp = HD__VERSION_RESPONSE_PROTO__INIT;
	Hd__NamespaceInfoProto info = HD__NAMESPACE_INFO_PROTO__INIT;
	Hd__StorageInfoProto si = HD__STORAGE_INFO_PROTO__INIT;

	si.layoutversion = (uint32_t)-67;
	si.namespceid = 7;
	si.clusterid = (char *)f->cluster;
	si.ctime = 99;
	info.buildversion = (char *)"b";
	info.blockpoolid = (char *)(f->pool ? f->pool : POOL);
	info.softwareversion = (char *)(f->version ? f->version : "3.4.2");
	info.storageinfo = &si;
	info.has_capabilities = true;
	info.capabilities = f->no_buffers ? 0 : 1;
	resp.info = &info;
	f->versions++;
	rpc_reply(call, &resp.base);
}

static void on_register(struct fake *f, struct rpc_call *call)
{
	Hdd__RegisterDatanodeResponseProto resp = HDD__REGISTER_DATANODE_RESPONSE_PROTO__INIT;
	Hdd__RegisterDatanodeRequestProto *q = (Hdd__RegisterDatanodeRequestProto *)rpc_call_decode(
		call, &hdd__register_datanode_request_proto__descriptor);

	if (!q)
		return;
	if (f->refuse) {
		rpc_fail(call, f->refuse, "you may not");
	} else {
		assert_int_equal(q->registration->storageinfo->namespceid, 7);
		assert_int_equal(q->registration->storageinfo->ctime, 99);
		assert_int_equal((int32_t)q->registration->storageinfo->layoutversion, -57);
		assert_string_equal(q->registration->softwareversion,
				    f->version ? f->version : "3.4.2");
		f->ask_register = false;
		resp.registration = q->registration;
		rpc_reply(call, &resp.base);
		f->registrations++;
	}
	pb_free(q);
}

static void on_beat(struct fake *f, struct rpc_call *call)
{
	Hdd__HeartbeatResponseProto resp = HDD__HEARTBEAT_RESPONSE_PROTO__INIT;
	Hd__NNHAStatusHeartbeatProto ha = HD__NNHASTATUS_HEARTBEAT_PROTO__INIT;
	Hd__RollingUpgradeStatusProto upgrade = HD__ROLLING_UPGRADE_STATUS_PROTO__INIT;
	Hdd__DatanodeCommandProto reg = HDD__DATANODE_COMMAND_PROTO__INIT, *cmd;
	Hdd__HeartbeatRequestProto *q = (Hdd__HeartbeatRequestProto *)rpc_call_decode(
		call, &hdd__heartbeat_request_proto__descriptor);

	if (!q)
		return;
	if (f->beat_throws) {
		rpc_fail(call, f->beat_throws, "not now");
		f->beats++;
		pb_free(q);
		return;
	}
	f->slow_peers += (int)q->n_slowpeers;
	f->slow_disks += (int)q->n_slowdisks;
	f->cache_capacity = q->cachecapacity;
	f->storages = (int)q->n_reports;
	f->failed = (int)q->failedvolumes;
	ha.state = f->standby ? HD__NNHASTATUS_HEARTBEAT_PROTO__STATE__STANDBY
			      : HD__NNHASTATUS_HEARTBEAT_PROTO__STATE__ACTIVE;
	ha.txid = f->txid ? (uint64_t)f->txid : 5;
	upgrade.blockpoolid = (char *)POOL;
	upgrade.has_finalized = true;
	upgrade.finalized = f->upgrade == 2;
	resp.rollingupgradestatusv2 = f->upgrade ? &upgrade : NULL;
	resp.hastatus = &ha;
	resp.has_fullblockreportleaseid = true;
	if (q->requestfullblockreportlease && !f->no_lease)
		resp.fullblockreportleaseid = 4711;
	cmd = atomic_exchange(&f->command, NULL);
	if (f->ask_register) {
		reg.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__RegisterCommand;
		cmd = &reg;
	}
	resp.n_cmds = cmd ? 1 : 0;
	resp.cmds = &cmd;
	rpc_reply(call, &resp.base);
	f->beats++;
	pb_free(q);
}

struct count {
	int all, finalized, rwr;
};

static int count_replica(void *arg, const struct block *b, uint32_t state)
{
	struct count *c = arg;

	(void)b;
	c->all++;
	c->finalized += state == REPLICA_FINALIZED;
	c->rwr += state == REPLICA_RWR;
	return 0;
}

static void on_full(struct fake *f, struct rpc_call *call)
{
	Hdd__BlockReportResponseProto resp = HDD__BLOCK_REPORT_RESPONSE_PROTO__INIT;
	Hdd__BlockReportRequestProto *q = (Hdd__BlockReportRequestProto *)rpc_call_decode(
		call, &hdd__block_report_request_proto__descriptor);
	struct count c = {0};

	if (!q)
		return;
	assert_true(q->context && q->context->id != 0);
	for (size_t i = 0; i < q->n_reports; i++) {
		assert_int_equal(q->reports[i]->has_numberofblocks, !f->no_buffers);
		assert_int_equal(block_report_each(q->reports[i], count_replica, &c), 0);
	}
	f->last_replicas = c.all;
	f->last_finalized = c.finalized;
	f->last_rwr = c.rwr;
	f->last_lease = q->context->leaseid;
	f->last_rpcs = q->context->totalrpcs;
	rpc_reply(call, &resp.base);
	f->fulls++;
	pb_free(q);
}

static void on_incremental(struct fake *f, struct rpc_call *call)
{
	Hdd__BlockReceivedAndDeletedResponseProto resp =
		HDD__BLOCK_RECEIVED_AND_DELETED_RESPONSE_PROTO__INIT;
	Hdd__BlockReceivedAndDeletedRequestProto *q =
		(Hdd__BlockReceivedAndDeletedRequestProto *)rpc_call_decode(
			call, &hdd__block_received_and_deleted_request_proto__descriptor);

	if (!q)
		return;
	for (size_t i = 0; i < q->n_blocks; i++) {
		assert_non_null(q->blocks[i]->storage);
		for (size_t k = 0; k < q->blocks[i]->n_blocks; k++) {
			int st = (int)q->blocks[i]->blocks[k]->status;

			if (st == STORE_RECEIVED)
				f->last_received_gs = q->blocks[i]->blocks[k]->block->genstamp;
			f->last_told = (int64_t)q->blocks[i]->blocks[k]->block->blockid;
			f->received += st == STORE_RECEIVED;
			f->receiving += st == STORE_RECEIVING;
			f->deleted += st == STORE_DELETED;
		}
	}
	rpc_reply(call, &resp.base);
	pb_free(q);
}

static void on_commit(struct fake *f, struct rpc_call *call)
{
	Hdd__CommitBlockSynchronizationResponseProto resp =
		HDD__COMMIT_BLOCK_SYNCHRONIZATION_RESPONSE_PROTO__INIT;
	Hdd__CommitBlockSynchronizationRequestProto *q =
		(Hdd__CommitBlockSynchronizationRequestProto *)rpc_call_decode(
			call, &hdd__commit_block_synchronization_request_proto__descriptor);

	if (!q)
		return;
	f->commit_len = q->newlength;
	f->commit_gs = q->newgenstamp;
	f->commit_nodes = (int)q->n_newtaragets;
	rpc_reply(call, &resp.base);
	f->commits++;
	pb_free(q);
}

static void on_cache_report(struct fake *f, struct rpc_call *call)
{
	Hdd__CacheReportResponseProto resp = HDD__CACHE_REPORT_RESPONSE_PROTO__INIT;
	Hdd__CacheReportRequestProto *q = (Hdd__CacheReportRequestProto *)rpc_call_decode(
		call, &hdd__cache_report_request_proto__descriptor);

	if (!q)
		return;
	f->cached = (int)q->n_blocks;
	rpc_reply(call, &resp.base);
	f->cache_reports++;
	pb_free(q);
}

static void on_lifeline(void *arg, struct rpc_call *call)
{
	struct fake *f = arg;
	Hdl__LifelineResponseProto resp = HDL__LIFELINE_RESPONSE_PROTO__INIT;
	Hdd__HeartbeatRequestProto *q = (Hdd__HeartbeatRequestProto *)rpc_call_decode(
		call, &hdd__heartbeat_request_proto__descriptor);

	if (!q)
		return;
	assert_string_equal(call->method, "sendLifeline");
	assert_int_equal(q->n_reports, 1);
	rpc_reply(call, &resp.base);
	f->lifelines++;
	pb_free(q);
}

static void count_and_reply(atomic_int *count, struct rpc_call *call)
{
	Hdd__ErrorReportResponseProto empty = HDD__ERROR_REPORT_RESPONSE_PROTO__INIT;

	rpc_reply(call, &empty.base);
	(*count)++;
}

static void on_call(void *arg, struct rpc_call *call)
{
	struct fake *f = arg;

	if (!strcmp(call->method, "versionRequest"))
		on_version(f, call);
	else if (!strcmp(call->method, "registerDatanode"))
		on_register(f, call);
	else if (!strcmp(call->method, "sendHeartbeat"))
		on_beat(f, call);
	else if (!strcmp(call->method, "blockReport"))
		on_full(f, call);
	else if (!strcmp(call->method, "blockReceivedAndDeleted"))
		on_incremental(f, call);
	else if (!strcmp(call->method, "commitBlockSynchronization"))
		on_commit(f, call);
	else if (!strcmp(call->method, "cacheReport"))
		on_cache_report(f, call);
	else if (!strcmp(call->method, "errorReport"))
		count_and_reply(&f->errors, call);
	else if (!strcmp(call->method, "reportBadBlocks"))
		count_and_reply(&f->bad, call);
	else
		rpc_fail_no_method(call);
}

static void on_peer(void *arg, struct rpc_call *call)
{
	const struct fake *f = arg;

	rpc_fail(call, f->init_throws, "as the test says");
}

void fake_start(struct fake *f)
{
	struct reactor_opts ro = {.name = "fake-nn"};
	struct rpc_server_opts o = {.addr = f->addr, .services = f->services, .service_count = 3};
	struct err err = ERR_INIT;

	f->services[0] = (struct rpc_service){RPC_PROTO_DATANODE, on_call, f};
	f->services[1] = (struct rpc_service){RPC_PROTO_LIFELINE, on_lifeline, f};
	f->services[2] = (struct rpc_service){RPC_PROTO_INTER_DATANODE, on_peer, f};
	f->closed = false;
	assert_int_equal(reactor_new(&ro, &f->reactor, &err), 0);
	assert_int_equal(rpc_server_new(f->reactor, &o, &f->addr, &f->server, &err), 0);
	assert_int_equal(reactor_start(f->reactor), 0);
}

static void close_server(struct rmsg *m)
{
	struct fake *f = container_of(m, struct fake, close_msg);

	rpc_server_close(f->server);
	f->closed = true;
}

void fake_stop(struct fake *f)
{
	if (!f->reactor)
		return;
	f->close_msg.fn = close_server;
	reactor_post(f->reactor, &f->close_msg);
	while (!f->closed)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	reactor_stop(f->reactor);
	reactor_join(f->reactor);
	reactor_free(f->reactor);
	f->reactor = NULL;
}
