/* SPDX-License-Identifier: Apache-2.0 */
/* InterDatanodeProtocol: this node as one holder of a block under recovery (hdfs-wire 8.4). */
#include "datanode/admin/ipc_internal.h"

#include <inttypes.h>

#include "InterDatanodeProtocol.pb-c.h"
#include "common/base/log.h"

static const Hd__ExtendedBlockProto *init_block(const ProtobufCMessage *m)
{
	return ((const Hd__InitReplicaRecoveryRequestProto *)m)->block->block->b;
}

static void run_init_recovery(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__RecoveringBlockProto *rb =
		((const Hd__InitReplicaRecoveryRequestProto *)m)->block;
	const Hd__ExtendedBlockProto *b = rb->block->b;
	Hd__InitReplicaRecoveryResponseProto resp = HD__INIT_REPLICA_RECOVERY_RESPONSE_PROTO__INIT;
	Hd__BlockProto bp_out = HD__BLOCK_PROTO__INIT;
	struct block want = {(int64_t)b->blockid, b->generationstamp, b->numbytes};
	struct block_pool *bp = ipc_pool(i, call, b->poolid);
	struct err err = ERR_INIT;
	struct replica_info info;
	int rc;

	if (!bp)
		return;
	rc = replica_init_recovery(bp, &want, rb->newgenstamp, &info, &err);
	log_info("op=init-recovery block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " rc=%d%s%s", want.id,
		 want.gs, (uint64_t)rb->newgenstamp, rc, rc ? ": " : "", err.text);
	if (rc && rc != -ENOENT) {
		ipc_fail(call, rc, &err);
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

static const Hd__ExtendedBlockProto *update_block(const ProtobufCMessage *m)
{
	return ((const Hd__UpdateReplicaUnderRecoveryRequestProto *)m)->block;
}

static void run_update_recovery(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *m)
{
	const Hd__UpdateReplicaUnderRecoveryRequestProto *q =
		(const Hd__UpdateReplicaUnderRecoveryRequestProto *)m;
	Hd__UpdateReplicaUnderRecoveryResponseProto resp =
		HD__UPDATE_REPLICA_UNDER_RECOVERY_RESPONSE_PROTO__INIT;
	struct block b = {(int64_t)q->block->blockid, q->block->generationstamp,
			  q->block->numbytes};
	struct block_pool *bp = ipc_pool(i, call, q->block->poolid);
	char uuid[BLOCK_UUID_MAX];
	struct err err = ERR_INIT;
	int rc;

	if (!bp)
		return;
	rc = replica_update_recovery(bp, &b, q->recoveryid, q->newlength, (int64_t)q->newblockid,
				     uuid, &err);
	log_info("op=update-recovery block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " len=%" PRIu64
		 " rc=%d%s%s",
		 b.id, b.gs, (uint64_t)q->recoveryid, (uint64_t)q->newlength, rc, rc ? ": " : "",
		 err.text);
	if (rc) {
		ipc_fail(call, rc == -EBUSY ? -EIO : rc, &err);
		return;
	}
	resp.storageuuid = uuid;
	rpc_reply(call, &resp.base);
}

const struct ipc_method inter_methods[] = {
	{"initReplicaRecovery", &hd__init_replica_recovery_request_proto__descriptor,
	 run_init_recovery, init_block},
	{"updateReplicaUnderRecovery", &hd__update_replica_under_recovery_request_proto__descriptor,
	 run_update_recovery, update_block},
	{NULL, NULL, NULL, NULL},
};
