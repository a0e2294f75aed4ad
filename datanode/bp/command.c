/* SPDX-License-Identifier: Apache-2.0 */
/* What a NameNode orders (DatanodeCommand): invalidate, transfer, recover, reconstruct, finalize
 * and the rest, on a thread of its own. */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/pb.h"
#include "datanode/data_port/data_port.h"

#define NUM_BYTES_NO_ACK ((uint64_t)INT64_MAX) /* of INVALIDATE: do not report DELETED */

static struct block block_from(const Hd__BlockProto *p)
{
	return (struct block){(int64_t)p->blockid, p->genstamp, p->has_numbytes ? p->numbytes : 0};
}

/* ---- TRANSFER ---- */

struct transfer {
	struct block block;
	char to[NET_TEXT_MAX];
};

static void transfer_done(void *arg, int rc, const struct err *err)
{
	struct transfer *t = arg;

	metric_add(METRIC_DN_BLOCKS_REPLICATED, !rc);
	if (rc)
		log_warn("op=transfer block=%" PRId64 "_%" PRIu64 " to=%s rc=%d: %s", t->block.id,
			 t->block.gs, t->to, rc, err ? err->text : err_name(rc));
	else
		log_info("op=transfer block=%" PRId64 "_%" PRIu64 " to=%s: done", t->block.id,
			 t->block.gs, t->to);
	free(t);
}

/* Only what is whole is copied; the NameNode hears when it is not. */
static bool can_transfer(struct bp_actor *a, const struct block *b, struct block_pool *bp)
{
	struct replica_info i;
	char text[160];

	if (!replica_get(bp, b->id, &i) && i.block.gs >= b->gs && i.state == REPLICA_FINALIZED) {
		if (i.block.len >= b->len)
			return true;
		report_on_bad(a, i.storage_uuid, b);
		return false;
	}
	(void)snprintf(text, sizeof(text), "Can't send invalid block %s:blk_%" PRId64 "_%" PRIu64,
		       pool_id(bp), b->id, b->gs);
	log_warn("op=transfer: %s", text);
	report_on_error(a, HDD__ERROR_REPORT_REQUEST_PROTO__ERROR_CODE__INVALID_BLOCK, text);
	return false;
}

/* Targets of block @i, with storages where the lists name them. -EPROTO. */
static int take_targets(const Hdd__BlockCommandProto *cmd, size_t i, struct dn_target *list,
			uint32_t *ret_n)
{
	const Hd__DatanodeInfosProto *infos = i < cmd->n_targets ? cmd->targets[i] : NULL;
	uint32_t n = 0;

	if (!infos || !infos->n_datanodes || infos->n_datanodes > DN_TARGETS_MAX)
		return -EPROTO;
	for (; n < infos->n_datanodes; n++) {
		if (target_from_proto(infos->datanodes[n], &list[n]))
			return -EPROTO;
		if (i < cmd->n_targetstorageuuids && n < cmd->targetstorageuuids[i]->n_storageuuids)
			(void)snprintf(list[n].storage_uuid, sizeof(list[n].storage_uuid), "%s",
				       cmd->targetstorageuuids[i]->storageuuids[n]);
		if (i < cmd->n_targetstoragetypes && n < cmd->targetstoragetypes[i]->n_storagetypes)
			list[n].storage_type =
				(enum storage_type)cmd->targetstoragetypes[i]->storagetypes[n];
	}
	*ret_n = n;
	return 0;
}

static void transfer_one(struct bp_actor *a, const Hdd__BlockCommandProto *cmd, size_t i,
			 struct block_pool *bp)
{
	struct dn *dn = a->set->dn;
	struct dn_target *targets = calloc(DN_TARGETS_MAX, sizeof(*targets));
	struct transfer *t = calloc(1, sizeof(*t));
	struct block b = block_from(cmd->blocks[i]);
	uint32_t n = 0;
	int rc = targets && t ? take_targets(cmd, i, targets, &n) : -ENOMEM;

	if (!rc && !can_transfer(a, &b, bp)) {
		free(targets);
		free(t);
		return;
	}
	if (!rc) {
		*t = (struct transfer){.block = b};
		(void)snprintf(t->to, sizeof(t->to), "%s:%u", targets[0].ip, targets[0].xfer_port);
		rc = data_port_transfer(dn->xfer, bp, &b, targets, n, transfer_done, t);
	}
	free(targets);
	if (!rc)
		return;
	free(t);
	log_warn("op=transfer block=%" PRId64 " rc=%d: %s", b.id, rc, err_name(rc));
}

/* ---- the others ---- */

static void invalidate_one(struct block_pool *bp, const Hd__BlockProto *p)
{
	struct block b = block_from(p);
	int rc = replica_invalidate(bp, &b, b.len == NUM_BYTES_NO_ACK);

	/* Gone already, or restamped since: the NameNode will see it in the next report. */
	if (rc)
		log_info("op=invalidate block=%" PRId64 "_%" PRIu64 " rc=%d: %s", b.id, b.gs, rc,
			 err_name(rc));
}

/* Lock replicas in memory, or let them go. */
static void do_cache(struct bp_actor *a, const Hdd__BlockIdCommandProto *cmd)
{
	struct block_pool *bp = dn_pool(a->set->dn, cmd->blockpoolid);
	bool lock = cmd->action == HDD__BLOCK_ID_COMMAND_PROTO__ACTION__CACHE;

	if (!bp || bp != a->bp)
		return;
	for (size_t i = 0; i < cmd->n_blockids; i++)
		cache_order(a->set->cache, bp, (int64_t)cmd->blockids[i], lock);
}

/* Java's NameNode of an old release orders it when a node is not welcome any more. */
static void do_shutdown(struct bp_actor *a)
{
	log_warn("op=shutdown namenode=%s: orders this data node to stop", a->addr_text);
	(void)kill(getpid(), SIGTERM); /* the same way out as an administrator's */
}

static void do_block_command(struct bp_actor *a, const Hdd__BlockCommandProto *cmd)
{
	struct block_pool *bp = dn_pool(a->set->dn, cmd->blockpoolid);

	if (cmd->action == HDD__BLOCK_COMMAND_PROTO__ACTION__SHUTDOWN) {
		do_shutdown(a);
		return;
	}
	if (!bp || bp != a->bp)
		return;
	for (size_t i = 0; i < cmd->n_blocks && !actor_stops(a); i++) {
		if (cmd->action == HDD__BLOCK_COMMAND_PROTO__ACTION__TRANSFER)
			transfer_one(a, cmd, i, bp);
		else if (cmd->action == HDD__BLOCK_COMMAND_PROTO__ACTION__INVALIDATE)
			invalidate_one(bp, cmd->blocks[i]);
	}
}

static void do_command(struct bp_actor *a, const Hdd__DatanodeCommandProto *c)
{
	switch (c->cmdtype) {
	case HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand:
		if (c->blkcmd)
			do_block_command(a, c->blkcmd);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand:
		if (c->recoverycmd)
			recovery_start(a, c->recoverycmd);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__BalancerBandwidthCommand:
		if (c->balancercmd && c->balancercmd->bandwidth)
			a->set->dn->live.balance_bandwidth = c->balancercmd->bandwidth;
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__FinalizeCommand:
		if (c->finalizecmd && a->bp && !strcmp(c->finalizecmd->blockpoolid, pool_id(a->bp)))
			store_finalize_upgrade(a->bp);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__BlockECReconstructionCommand:
		if (c->blkecreconstructioncmd)
			reconstruct_start(a, c->blkecreconstructioncmd);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__KeyUpdateCommand:
		if (c->keyupdatecmd)
			actor_take_keys(a, c->keyupdatecmd->keys);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__BlockIdCommand:
		if (c->blkidcmd)
			do_cache(a, c->blkidcmd);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__UnusedUpgradeCommand:
		log_warn("op=command namenode=%s: asks for a layout upgrade; nothing is changed, "
			 "upgrade the directories with a Java DataNode",
			 a->addr_text);
		break;
	case HDD__DATANODE_COMMAND_PROTO__TYPE__RegisterCommand: /* the beat thread's */
	case HDD__DATANODE_COMMAND_PROTO__TYPE__NullDatanodeCommand:
		break;
	case _HDD__DATANODE_COMMAND_PROTO__TYPE_IS_INT_SIZE:
	default: /* of a newer NameNode: the value comes from the wire */
		if (!atomic_exchange(&a->set->unknown_logged, true))
			log_warn(
				"op=command namenode=%s type=%d: unknown command, ignored; others like it are not logged",
				a->addr_text, (int)c->cmdtype);
		break;
	}
}

/* A NameNode that does not lead may only hand over keys. */
static bool may_order(struct bp_actor *a, const Hdd__DatanodeCommandProto *c)
{
	return c->cmdtype == HDD__DATANODE_COMMAND_PROTO__TYPE__KeyUpdateCommand ||
	       actor_is_active(a);
}

void *command_thread(void *arg)
{
	struct bp_actor *a = arg;

	while (!actor_stops(a)) {
		struct command *c = NULL;
		struct list *l;

		pthread_mutex_lock(&a->lock);
		l = list_pop(&a->commands);
		if (l)
			a->command_count--;
		else
			actor_wait_locked(a, a->set->dn->live.beat_ms * 10);
		pthread_mutex_unlock(&a->lock);
		if (!l)
			continue;
		c = container_of(l, struct command, link);
		for (size_t i = 0; i < c->count && !actor_stops(a); i++)
			if (may_order(a, c->list[i]))
				do_command(a, c->list[i]);
		pb_free(c->answer);
		free(c);
	}
	return NULL;
}
