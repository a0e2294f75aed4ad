/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/rpc/datanode_commands.h"

#include "namenode-shim/blocks/ec_reconstruct.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"

#define NO_ACK_BYTES INT64_MAX /* numBytes of an invalidation that wants no report */
#define NO_OFFSET UINT64_MAX

Hdd__DatanodeCommandProto *dn_command(struct req *q, Hdd__DatanodeCommandProto__Type type)
{
	Hdd__DatanodeCommandProto *c =
		req_new_msg(q, Hdd__DatanodeCommandProto, hdd__datanode_command_proto__init);

	c->cmdtype = type;
	return c;
}

Hdd__DatanodeCommandProto *dn_command_register(struct req *q)
{
	Hdd__DatanodeCommandProto *c =
		dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__RegisterCommand);

	c->registercmd =
		req_new_msg(q, Hdd__RegisterCommandProto, hdd__register_command_proto__init);
	return c;
}

static Hd__BlockProto *block_proto(struct req *q, int64_t id, uint64_t gs, uint64_t len)
{
	Hd__BlockProto *b = req_new_msg(q, Hd__BlockProto, hd__block_proto__init);

	b->blockid = (uint64_t)id;
	b->genstamp = gs;
	PB_SET(b, numbytes, len);
	return b;
}

static Hdd__DatanodeCommandProto *block_command(struct req *q,
						Hdd__BlockCommandProto__Action action, size_t n)
{
	Hdd__DatanodeCommandProto *c =
		dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand);
	Hdd__BlockCommandProto *b =
		req_new_msg(q, Hdd__BlockCommandProto, hdd__block_command_proto__init);

	b->action = action;
	b->blockpoolid = arena_strdup(&q->mem, q->nn->db->ident.pool_id);
	b->blocks = arena_array(&q->mem, Hd__BlockProto *, n);
	c->blkcmd = b;
	return c;
}

/* The newest orders go first: that for a corrupt replica does not wait behind a million of a
 * deleted tree. An order that waited is looked at again: what it was given for may have changed.
 * NULL: none is left. */
static Hdd__DatanodeCommandProto *invalidate_command(struct req *q, struct dn *dn)
{
	const uint32_t most = q->nn->set.work.deletions, n = dn->ninval < most ? dn->ninval : most;
	Hdd__DatanodeCommandProto *c =
		block_command(q, HDD__BLOCK_COMMAND_PROTO__ACTION__INVALIDATE, n);
	Hdd__BlockCommandProto *b = c->blkcmd;

	for (uint32_t i = 0; i < n; i++) {
		const struct invalidate v = dn->inval[--dn->ninval];

		if (!blocks_take_back_drop(&q->nn->blocks, dn, v.id, v.gs))
			b->blocks[b->n_blocks++] =
				block_proto(q, v.id, v.gs, v.no_ack ? NO_ACK_BYTES : 0);
	}
	if (!dn->ninval)
		dn_free_invalidates(dn);
	return b->n_blocks ? c : NULL;
}

static void add_target(struct req *q, Hdd__BlockCommandProto *b, struct storage *st)
{
	const size_t i = b->n_targets++;

	b->targets[i] = req_new_msg(q, Hd__DatanodeInfosProto, hd__datanode_infos_proto__init);
	b->targets[i]->n_datanodes = 1;
	b->targets[i]->datanodes = arena_array(&q->mem, Hd__DatanodeInfoProto *, 1);
	b->targets[i]->datanodes[0] = locate_dn(&q->mem, st->dn);
	b->targetstorageuuids[i] =
		req_new_msg(q, Hd__StorageUuidsProto, hd__storage_uuids_proto__init);
	b->targetstorageuuids[i]->n_storageuuids = 1;
	b->targetstorageuuids[i]->storageuuids = arena_array(&q->mem, char *, 1);
	b->targetstorageuuids[i]->storageuuids[0] = arena_strdup(&q->mem, st->id);
	b->targetstoragetypes[i] =
		req_new_msg(q, Hd__StorageTypesProto, hd__storage_types_proto__init);
	b->targetstoragetypes[i]->n_storagetypes = 1;
	b->targetstoragetypes[i]->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, 1);
	b->targetstoragetypes[i]->storagetypes[0] = (Hd__StorageTypeProto)st->type;
	b->n_targetstorageuuids = b->n_targetstoragetypes = b->n_targets;
}

/* How many copies @dn may begin. */
static uint32_t free_streams(const struct work_limits *w, const struct dn *dn)
{
	const uint32_t most = dn_is_leaving(dn) ? w->streams_hard : w->streams;

	return dn->xmits < most ? most - dn->xmits : 0;
}

/* Nobody waits any more for a copy whose time is over, or whose block has gone. */
static bool is_awaited(const struct blocks *bs, const struct transfer *t)
{
	const struct blk *b = blocks_find(bs, t->b.id);

	for (uint16_t i = 0; b && i < b->npending; i++)
		if (b->pending[i].st == t->target)
			return true;
	return false;
}

/* NULL: no order is left. */
static Hdd__DatanodeCommandProto *transfer_command(struct req *q, struct dn *dn, uint32_t most)
{
	Hdd__DatanodeCommandProto *c =
		block_command(q, HDD__BLOCK_COMMAND_PROTO__ACTION__TRANSFER, most);
	Hdd__BlockCommandProto *b = c->blkcmd;
	struct list *l;

	b->targets = arena_array(&q->mem, Hd__DatanodeInfosProto *, most);
	b->targetstorageuuids = arena_array(&q->mem, Hd__StorageUuidsProto *, most);
	b->targetstoragetypes = arena_array(&q->mem, Hd__StorageTypesProto *, most);
	while (b->n_blocks < most && (l = list_pop(&dn->transfers))) {
		struct transfer *t = container_of(l, struct transfer, link);

		if (is_awaited(&q->nn->blocks, t)) {
			b->blocks[b->n_blocks++] = block_proto(q, t->b.id, t->b.gs, t->b.len);
			add_target(q, b, t->target);
		}
		transfer_free(t);
	}
	return b->n_blocks ? c : NULL;
}

/* Recovery of one open block; NULL: it is over already. */
static Hd__RecoveringBlockProto *recovering(struct req *q, int64_t block_id)
{
	const struct blk *b = blocks_find(&q->nn->blocks, block_id);
	Hd__RecoveringBlockProto *r;
	uint8_t *units;

	if (!b || !b->open || !b->open->recovery_id)
		return NULL;
	r = req_new_msg(q, Hd__RecoveringBlockProto, hd__recovering_block_proto__init);
	r->newgenstamp = b->open->recovery_id;
	if (b->open->truncate_to != NO_TRUNCATE)
		r->truncateblock =
			block_proto(q, b->b.id, b->open->recovery_id, b->open->truncate_to);
	r->block = locate_bare(q, &b->b, NO_OFFSET);
	r->block->locs = arena_array(&q->mem, Hd__DatanodeInfoProto *, b->open->ntargets + 1);
	units = arena_array(&q->mem, uint8_t, b->open->ntargets + 1);
	for (uint32_t i = 0; i < b->open->ntargets; i++)
		if (b->open->target[i]->dn->alive) {
			units[r->block->n_locs] = b->open->target_unit[i % EC_UNITS_MAX];
			r->block->locs[r->block->n_locs++] =
				locate_dn(&q->mem, b->open->target[i]->dn);
		}
	if (blk_ec(b)) {
		r->ecpolicy = locate_policy(&q->mem, blk_ec(b));
		r->has_blockindices = 1;
		r->blockindices = (ProtobufCBinaryData){r->block->n_locs, units};
		locate_units(q, r->block, units, (uint32_t)r->block->n_locs);
		PB_SET(r, allunits,
		       uc_knows_units(q->nn, b) && r->block->n_locs == b->open->ntargets);
	}
	return r;
}

/* A pending recovery goes alone, as in HDFS. */
static bool add_recovery(struct req *q, struct dn *dn, Hdd__HeartbeatResponseProto *r)
{
	Hdd__DatanodeCommandProto *c =
		dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand);
	Hdd__BlockRecoveryCommandProto *cmd = req_new_msg(q, Hdd__BlockRecoveryCommandProto,
							  hdd__block_recovery_command_proto__init);
	size_t n = 0;
	struct list *l;

	list_for_each (pos, &dn->recoveries)
		n++;
	cmd->blocks = arena_array(&q->mem, Hd__RecoveringBlockProto *, n + 1);
	while ((l = list_pop(&dn->recoveries))) {
		struct recovery *o = container_of(l, struct recovery, link);
		Hd__RecoveringBlockProto *b = recovering(q, o->block_id);

		if (b)
			cmd->blocks[cmd->n_blocks++] = b;
		recovery_free(o);
	}
	if (!cmd->n_blocks)
		return false;
	c->recoverycmd = cmd;
	r->cmds[r->n_cmds++] = c;
	return true;
}

static Hdd__DatanodeCommandProto *bandwidth_command(struct req *q, struct dn *dn)
{
	Hdd__DatanodeCommandProto *c =
		dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__BalancerBandwidthCommand);

	c->balancercmd = req_new_msg(q, Hdd__BalancerBandwidthCommandProto,
				     hdd__balancer_bandwidth_command_proto__init);
	c->balancercmd->bandwidth = dn->bandwidth;
	dn->bandwidth = 0;
	return c;
}

/* NULL: nothing. */
static Hdd__DatanodeCommandProto *cache_command(struct req *q, struct dn *dn, bool cache)
{
	Hdd__DatanodeCommandProto *c =
		dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__BlockIdCommand);
	Hdd__BlockIdCommandProto *b =
		req_new_msg(q, Hdd__BlockIdCommandProto, hdd__block_id_command_proto__init);

	b->action = cache ? HDD__BLOCK_ID_COMMAND_PROTO__ACTION__CACHE
			  : HDD__BLOCK_ID_COMMAND_PROTO__ACTION__UNCACHE;
	b->blockpoolid = arena_strdup(&q->mem, q->nn->db->ident.pool_id);
	b->blockids = arena_array(&q->mem, uint64_t, CACHE_ORDERS_MAX);
	b->n_blockids = cache_orders(q->nn, dn, cache, b->blockids);
	c->blkidcmd = b;
	return b->n_blockids ? c : NULL;
}

void dn_commands_add(struct req *q, struct dn *dn, Hdd__HeartbeatResponseProto *r)
{
	const uint32_t streams = free_streams(&q->nn->set.work, dn);
	Hdd__DatanodeCommandProto *c;

	if (dn->bandwidth)
		r->cmds[r->n_cmds++] = bandwidth_command(q, dn);
	if (q->nn->safe.on || add_recovery(q, dn, r))
		return;
	if (!list_empty(&dn->transfers) && streams && (c = transfer_command(q, dn, streams)))
		r->cmds[r->n_cmds++] = c;
	if (!list_empty(&dn->rebuilds) && dn->xmits < work_busy(&q->nn->set.work) &&
	    (c = ec_reconstruct_command(q, dn)))
		r->cmds[r->n_cmds++] = c;
	if (dn->ninval && (c = invalidate_command(q, dn)))
		r->cmds[r->n_cmds++] = c;
	if (!list_empty(&dn->cache_leaving) && (c = cache_command(q, dn, false)))
		r->cmds[r->n_cmds++] = c;
	if (!list_empty(&dn->cache_orders) && (c = cache_command(q, dn, true)))
		r->cmds[r->n_cmds++] = c;
}
