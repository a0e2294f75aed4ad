/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of DataTransferProtocol to parameters of the engine, checked, and back: all that a peer
 * says in an op is validated here and trusted after. */
#include "datanode/dtp/dtp_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datanode/block/sink.h"

#define PATIENCE_MIN_MS 1000u /* of a sender; what it says below that is taken for this */

static bool text_copy(char *dst, size_t size, const char *src)
{
	const size_t len = src ? strlen(src) : 0;

	if (len >= size)
		return false;
	memcpy(dst, src ? src : "", len);
	dst[len] = 0;
	return true;
}

int dtp_block(struct engine_core *core, const Hd__BaseHeaderProto *m, struct token_access want,
	      struct block *ret, struct block_pool **ret_pool, struct err *err)
{
	char pool[BLOCK_POOL_ID_MAX];

	if (dt_block_from_proto(m->block, ret, pool) < 0)
		return err_set(err, -EINVAL, "the block pool id is malformed");
	*ret_pool = dn_pool(core->dn, pool);
	if (!*ret_pool)
		return err_set(err, -ENOENT, "block pool %s is not served here", pool);
	if (!token_is_wanted(core->tokens, pool))
		return 0;
	want.pool = pool;
	want.block_id = ret->id;
	return token_check(core->tokens, m->token, &want, clock_wall_ms(), err);
}

enum dt_status dtp_refusal(int rc)
{
	return rc == -EACCES ? DT_ERROR_ACCESS_TOKEN : DT_ERROR;
}

static int target_from(const Hd__DatanodeInfoProto *m, struct dn_target *t)
{
	const Hd__DatanodeIDProto *id = m->id;

	if (!id || !text_copy(t->ip, sizeof(t->ip), id->ipaddr) ||
	    !text_copy(t->host, sizeof(t->host), id->hostname) ||
	    !text_copy(t->uuid, sizeof(t->uuid), id->datanodeuuid) || id->xferport > 65535 ||
	    id->infoport > 65535 || id->ipcport > 65535)
		return -EINVAL;
	t->xfer_port = (uint16_t)id->xferport;
	t->info_port = (uint16_t)id->infoport;
	t->ipc_port = (uint16_t)id->ipcport;
	return 0;
}

int dtp_targets(Hd__DatanodeInfoProto *const *infos, size_t n, const Hd__StorageTypeProto *types,
		size_t n_types, char *const *ids, size_t n_ids, struct dn_target **ret,
		struct err *err)
{
	struct dn_target *t;

	if (n >= DN_TARGETS_MAX)
		return err_set(err, -EINVAL, "%zu nodes in a pipeline; %d are allowed", n,
			       DN_TARGETS_MAX);
	t = calloc(n ? n : 1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		t[i].storage_type = i < n_types ? (enum storage_type)types[i] : STORAGE_DISK;
		if (target_from(infos[i], &t[i]) < 0 ||
		    (i < n_ids &&
		     !text_copy(t[i].storage_uuid, sizeof(t[i].storage_uuid), ids[i]))) {
			free(t);
			return err_set(err, -EINVAL, "a field of a target is too long");
		}
	}
	*ret = t;
	return 0;
}

static int check_checksum(const Hd__ChecksumProto *m, struct write_request *q, struct err *err)
{
	if (m->type != HD__CHECKSUM_TYPE_PROTO__CHECKSUM_NULL &&
	    m->type != HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32 &&
	    m->type != HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C)
		return err_set(err, -EINVAL, "checksum type %d is unknown", (int)m->type);
	if (!bpc_fits(m->bytesperchecksum))
		return err_set(err, -EINVAL, "bytesPerChecksum %u is not in %u..%u",
			       m->bytesperchecksum, BPC_MIN, BPC_MAX - 4096);
	q->crc_type = (enum crc_type)m->type;
	q->bytes_per_crc = m->bytesperchecksum;
	return 0;
}

/* The block, for this node and all behind it: the storages of all are in the token. */
static int write_block(struct engine_core *core, const Hd__OpWriteBlockProto *m, struct block *ret,
		       struct block_pool **ret_pool, struct err *err)
{
	struct token_access want = {.mode = HD__ACCESS_MODE_PROTO__WRITE};
	Hd__StorageTypeProto types[DN_TARGETS_MAX + 1];
	const char *ids[DN_TARGETS_MAX + 1];

	if (m->n_targetstoragetypes > DN_TARGETS_MAX || m->n_targetstorageids > DN_TARGETS_MAX)
		return err_set(err, -EINVAL, "more than %d nodes in a pipeline", DN_TARGETS_MAX);
	types[want.n_types++] = m->has_storagetype ? m->storagetype : HD__STORAGE_TYPE_PROTO__DISK;
	for (size_t i = 0; i < m->n_targetstoragetypes; i++)
		types[want.n_types++] = m->targetstoragetypes[i];
	if (m->n_targetstorageids) /* clients before 3.1 name none */
		ids[want.n_ids++] = m->storageid ? m->storageid : "";
	for (size_t i = 0; i < m->n_targetstorageids; i++)
		ids[want.n_ids++] = m->targetstorageids[i];
	want.types = types;
	want.ids = ids;
	return dtp_block(core, m->header->baseheader, want, ret, ret_pool, err);
}

/* The hops behind this one ask for the token, too: it goes on as it came. */
static int token_keep(const Hd__BaseHeaderProto *m, struct write_params *p)
{
	return m->token ? pb_pack(m->token, &p->token, &p->token_len) : 0;
}

void write_params_fini(struct write_params *p)
{
	free(p->targets);
	free(p->token);
	p->targets = NULL;
	p->token = NULL;
}

int write_params_sign(struct engine_core *core, struct write_params *p, int64_t block_id)
{
	Hd__StorageTypeProto types[DN_TARGETS_MAX];
	const char *ids[DN_TARGETS_MAX];
	struct token_access a = {.pool = pool_id(p->bp),
				 .block_id = block_id,
				 .mode = HD__ACCESS_MODE_PROTO__WRITE,
				 .types = types,
				 .ids = ids};
	Hc__TokenProto *token;
	int rc;

	if (!token_is_wanted(core->tokens, a.pool))
		return 0;
	for (; a.n_types < p->target_count && a.n_types < DN_TARGETS_MAX; a.n_types++) {
		types[a.n_types] = (Hd__StorageTypeProto)p->targets[a.n_types].storage_type;
		ids[a.n_types] = p->targets[a.n_types].storage_uuid;
	}
	a.n_ids = a.n_types;
	rc = token_make(core->tokens, &a, clock_wall_ms(), &token);
	if (rc < 0)
		return rc;
	rc = pb_pack(token, &p->token, &p->token_len);
	pb_free(token);
	return rc;
}

/* How long the sender waits for us, which bounds how long we wait for the next node. A shorter
 * one would only make a flood of heartbeats. */
static uint64_t patience_ns(const struct engine_core *core, const Hd__OpWriteBlockProto *m)
{
	const uint64_t ours = core->waits.read_ns;
	const uint64_t ms = m->patiencems > PATIENCE_MIN_MS ? m->patiencems : PATIENCE_MIN_MS;

	if (!m->has_patiencems || !m->patiencems || ms >= ours / NS_PER_MS)
		return ours;
	return ms * NS_PER_MS;
}

int dtp_write_params(struct engine_core *core, const Hd__OpWriteBlockProto *m,
		     struct write_params *ret, struct err *err)
{
	struct write_params p = {.pipeline_size = m->pipelinesize};
	struct write_request *q = &p.req;
	int rc;

	rc = write_block(core, m, &q->block, &p.bp, err);
	if (rc == 0)
		rc = check_checksum(m->requestedchecksum, q, err);
	if (rc < 0)
		return rc;
	if ((unsigned int)m->stage > STAGE_TRANSFER_FINALIZED)
		return err_set(err, -EINVAL, "stage %d is unknown", (int)m->stage);
	if (!text_copy(p.client, sizeof(p.client), m->header->clientname) ||
	    !text_copy(p.storage_uuid, sizeof(p.storage_uuid), m->storageid))
		return err_set(err, -EINVAL, "client name or storage id is too long");
	q->stage = (enum write_stage)m->stage;
	q->from_client = p.client[0] != 0;
	q->pin = m->has_pinning && m->pinning;
	q->new_gs = m->latestgenerationstamp;
	q->min_bytes = m->minbytesrcvd;
	q->max_bytes = m->maxbytesrcvd;
	q->storage_type = m->has_storagetype ? (enum storage_type)m->storagetype : STORAGE_DISK;
	p.transfer = q->stage == STAGE_TRANSFER_RBW || q->stage == STAGE_TRANSFER_FINALIZED;
	p.read_ns = patience_ns(core, m);
	p.sync_later = m->has_synclater && m->synclater && p.client[0] && !p.transfer;
	if (p.transfer && m->n_targets)
		return err_set(err, -EINVAL, "a transfer takes no further targets");
	rc = dtp_targets(m->targets, m->n_targets, m->targetstoragetypes, m->n_targetstoragetypes,
			 m->targetstorageids, m->n_targetstorageids, &p.targets, err);
	if (rc == 0)
		rc = token_keep(m->header->baseheader, &p);
	if (rc < 0) {
		write_params_fini(&p);
		return rc;
	}
	p.target_count = (uint32_t)m->n_targets;
	for (uint32_t i = 0; i < p.target_count && i < m->n_targetpinnings; i++)
		p.targets[i].pin = m->targetpinnings[i];
	*ret = p;
	return 0;
}

/* ---- the op for the next hop ---- */

struct op_parts { /* what an OpWriteBlockProto points to */
	Hd__DatanodeIDProto ids[DN_TARGETS_MAX];
	Hd__DatanodeInfoProto infos[DN_TARGETS_MAX], *info_ptrs[DN_TARGETS_MAX];
	Hd__StorageTypeProto types[DN_TARGETS_MAX];
	char *storage_ids[DN_TARGETS_MAX];
	protobuf_c_boolean pins[DN_TARGETS_MAX];
};

static void targets_to(struct op_parts *parts, struct dn_target *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		Hd__DatanodeIDProto *id = &parts->ids[i];

		hd__datanode_idproto__init(id);
		id->ipaddr = t[i].ip;
		id->hostname = t[i].host;
		id->datanodeuuid = t[i].uuid;
		id->xferport = t[i].xfer_port;
		id->infoport = t[i].info_port;
		id->ipcport = t[i].ipc_port;
		hd__datanode_info_proto__init(&parts->infos[i]);
		parts->infos[i].id = id;
		parts->info_ptrs[i] = &parts->infos[i];
		parts->types[i] = (Hd__StorageTypeProto)t[i].storage_type;
		parts->storage_ids[i] = t[i].storage_uuid;
		parts->pins[i] = t[i].pin;
	}
}

int dtp_write_op_encode(const struct sink_params *sp, uint8_t **ret, size_t *ret_len)
{
	const struct write_params *w = sp->write;
	const struct write_request *q = &w->req;
	const struct block b = {.id = q->block.id, .gs = q->block.gs, .len = sp->block_len};
	Hd__OpWriteBlockProto m = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ClientOperationHeaderProto header = HD__CLIENT_OPERATION_HEADER_PROTO__INIT;
	Hd__BaseHeaderProto base = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hc__TokenProto none = HC__TOKEN_PROTO__INIT, *token = NULL;
	Hd__ChecksumProto checksum = HD__CHECKSUM_PROTO__INIT;
	struct dn_target *rest = w->targets + 1;
	const uint32_t n = w->target_count - 1;
	struct op_parts *parts = malloc(sizeof(*parts));
	char empty[] = "", client[sizeof(w->client)];
	int rc;

	rc = !parts     ? -ENOMEM
	     : w->token ? pb_unpack(&hc__token_proto__descriptor, w->token, w->token_len, &token)
			: 0;
	if (rc < 0) {
		free(parts);
		return rc;
	}
	memcpy(client, w->client, sizeof(client));
	none.kind = none.service = empty;
	dt_block_to_proto(&b, pool_id(w->bp), &block);
	base.block = &block;
	base.token = token ? token : &none;
	header.baseheader = &base;
	header.clientname = client;
	checksum.type = (Hd__ChecksumTypeProto)sp->crc_type;
	checksum.bytesperchecksum = sp->bytes_per_crc;
	m.header = &header;
	targets_to(parts, rest, n);
	m.n_targets = m.n_targetstoragetypes = m.n_targetstorageids = m.n_targetpinnings = n;
	m.targets = parts->info_ptrs;
	m.targetstoragetypes = parts->types;
	m.targetstorageids = parts->storage_ids;
	m.targetpinnings = parts->pins;
	m.has_pinning = 1;
	m.pinning = w->targets[0].pin;
	m.stage = (Hd__OpWriteBlockProto__BlockConstructionStage)sp->stage;
	m.pipelinesize = w->pipeline_size;
	m.minbytesrcvd = q->min_bytes;
	m.maxbytesrcvd = q->max_bytes;
	m.latestgenerationstamp = q->new_gs;
	m.has_synclater = m.synclater = sp->sync_later;
	m.has_patiencems = w->read_ns > 0;
	m.patiencems = w->read_ns / NS_PER_MS;
	m.requestedchecksum = &checksum;
	m.has_storagetype = 1;
	m.storagetype = (Hd__StorageTypeProto)w->targets[0].storage_type;
	m.storageid = w->targets[0].storage_uuid;
	rc = dt_op_encode(DT_WRITE_BLOCK, &m, ret, ret_len);
	pb_free(token);
	free(parts);
	return rc;
}
