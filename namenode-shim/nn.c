/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/reactor/reactor.h"
#include "common/rpc/auth_to_local.h"
#include "common/rpc/server.h"
#include "common/rpc/service_acl.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/blocks/topology.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/tree_delete.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/resolver_thread.h"
#include "namenode-shim/rpc/tree_walk.h"

#define RECOVERY_LOST 1 /* a stamp that no recovery has */

/* ---- start: memory from disk ---- */

/* Its replicas were to go where its policy wants them. */
static int load_satisfy(struct nn *nn, const struct inode *n)
{
	struct arena a = {0};
	bool marked = false;
	int rc = nn->set.satisfier ? xattrs_marked(&nn->reader, n, &a, &marked) : 0;

	arena_free(&a);
	if (marked)
		satisfier_add(&nn->satisfy, n->id);
	return rc;
}

static int load_inode(void *arg, struct inode *n)
{
	struct nn *nn = arg;
	const bool open = inode_is_open(n);

	nn->inodes++;
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct inode_block *b = &n->blocks[i];
		const bool last = i + 1 == n->nblocks;

		const enum blk_state state = !open || !last ? BLK_COMPLETE
					     : b->committed ? BLK_COMMITTED
							    : BLK_OPEN;
		struct blk *k = n->ec ? blocks_add_group(&nn->blocks, &b->b, n->id, n->ec, state)
				      : blocks_add(&nn->blocks, &b->b, n->id, n->repl, state);

		if (last && n->truncating) /* no order of the last process counts: begin anew */
			blk_set_recovery(&nn->blocks, k, RECOVERY_LOST,
					 clock_mono_ns() + nn->set.recovery_ms * NS_PER_MS);
	}
	if (open)
		leases_add(&nn->leases, n->client, n->id);
	return load_satisfy(nn, n);
}

static int load(struct nn *nn, struct err *err)
{
	struct arena a = {0};
	const char *enabled;
	int rc = txn_read_begin(&nn->reader);

	if (rc < 0)
		return err_sys(err, rc, "cannot read the namespace");
	rc = ecpol_enabled_text(&nn->reader, &nn->set.ec, &a, &enabled);
	if (!rc)
		snprintf(nn->ec_enabled, sizeof(nn->ec_enabled), "%s", enabled);
	rc = rc ? rc : inode_each(&nn->reader, &a, load_inode, nn);
	nn->tree_delete_under_way = nn->tree_delete_next = tree_delete_any(&nn->reader);
	txn_read_end(&nn->reader);
	arena_free(&a);
	if (rc < 0) {
		err_sys(err, rc, "cannot read the namespace in %s: the record after %llu inodes",
			nn->set.name_dir, (unsigned long long)nn->inodes);
		return rc == -EBADMSG ? err_cure(err, DB_RESTORE) : rc;
	}
	nn->safe.total = nn->blocks.complete;
	nn->safe.empty_start = !HASH_COUNT(nn->blocks.map);
	nn->safe.on = nn->safe.startup = nn->blocks.quiet = true;
	nn_check_safe_mode(nn);
	return 0;
}

int nn_new(const struct settings *set, struct nn **ret, struct err *err)
{
	struct nn *nn = xcalloc(1, sizeof(*nn));
	int rc;

	nn->set = *set;
	nn->start_ms = clock_wall_ms();
	nn->start_ns = clock_mono_ns();
	nn->set.ec.run = nn->start_ms;
	pthread_rwlock_init(&nn->mem_lock, NULL);
	commit_queue_init(&nn->commit_queue);
	req_pool_init(&nn->reqs);
	list_init(&nn->parked);
	satisfier_init(&nn->satisfy);
	cache_monitor_init(&nn->cache);
	list_init(&nn->unfinished);
	list_init(&nn->deleting);
	list_init(&nn->unsynced);
	datanodes_init(&nn->dns, (2 * set->recheck_ms + 10 * set->heartbeat_ms) * NS_PER_MS);
	nn->dns.stale_after_ns = set->stale_ms * NS_PER_MS;
	nn->dns.stale_ratio = set->stale_ratio;
	nn->dns.read_stale = !set->avoid_read_stale;
	nn->dns.write_stale = !set->avoid_write_stale;
	blocks_init(&nn->blocks, set->pending_ms * NS_PER_MS, set->repl_min);
	nn->blocks.maintenance_min = set->maintenance_min;
	nn->blocks.safe_min = set->safe_repl ? set->safe_repl : 1;
	nn->users = users_new(nn->set.super_group, nn->set.fixed_groups);
	nn->topology = topology_new(set->conf);
	rc = hosts_load(set->conf, &nn->hosts, err);
	rc = rc ? rc : auth_to_local_new(set->conf, &nn->names, err);
	rc = rc ? rc : service_acl_new(set->conf, &nn->service_acl, err);
	rc = rc ? rc : db_open(set->name_dir, &nn->db, err);
	if (rc < 0)
		goto fail;
	rc = txn_reader_new(nn->db, &nn->reader);
	rc = rc ? rc : txn_reader_new(nn->db, &nn->look);
	if (rc < 0) {
		err_sys(err, rc, "cannot read the namespace in %s", set->name_dir);
		goto fail;
	}
	rc = load(nn, err);
	if (rc < 0)
		goto fail;
	*ret = nn;
	return 0;
fail:
	nn_free(nn);
	return rc;
}

void nn_free(struct nn *nn)
{
	if (!nn)
		return;
	tree_walk_free(nn->tree_walks);
	txn_reader_free(&nn->reader);
	txn_reader_free(&nn->look);
	db_close(nn->db);
	leases_fini(&nn->leases);
	cache_monitor_fini(&nn->cache);
	blocks_fini(&nn->blocks);
	satisfier_fini(&nn->satisfy);
	tree_delete_fini(&nn->tree_delete_broken);
	datanodes_fini(&nn->dns);
	users_free(nn->users);
	auth_to_local_free(nn->names);
	service_acl_free(nn->service_acl);
	hosts_free(nn->hosts);
	hosts_free(nn->hosts_next);
	topology_free(nn->topology);
	while (nn->calls) {
		struct call_stat *next = nn->calls->next;

		free(nn->calls);
		nn->calls = next;
	}
	commit_queue_fini(&nn->commit_queue);
	req_pool_fini(&nn->reqs);
	pthread_rwlock_destroy(&nn->mem_lock);
	settings_fini(&nn->set);
	free(nn);
}

uint64_t nn_steady_ms(const struct nn *nn)
{
	return nn->start_ms + (clock_mono_ns() - nn->start_ns) / NS_PER_MS;
}

struct call_stat *call_stats_find(struct call_stat *list, const char *method)
{
	while (list && strcmp(list->name, method))
		list = list->next;
	return list;
}

struct call_stat *call_stats_get(struct call_stat **list, const char *method)
{
	struct call_stat *c = call_stats_find(*list, method);

	if (c)
		return c;
	c = xcalloc(1, sizeof(*c));
	c->name = method;
	c->next = *list;
	return *list = c;
}

static void order_dropped(void *arg, int64_t id, const struct storage *target)
{
	struct nn *nn = arg;
	struct blk *b = blocks_find(&nn->blocks, id);

	if (b)
		blk_drop_pending(&nn->blocks, b, target);
}

void nn_dn_lost(struct nn *nn, struct dn *dn, const char *why)
{
	log_warn("op=lost datanode=%s address=%s:%u reason=\"%s\"", dn->uuid, dn->ip, dn->xfer_port,
		 why);
	dn->alive = dn->stale = false;
	datanodes_changed(&nn->dns);
	if (dn->admin == DN_IN_MAINTENANCE) /* it was to be away: nothing is copied */
		blocks_recheck_node(&nn->blocks, dn);
	else
		blocks_forget(&nn->blocks, dn, NULL);
	dn_orders_drop(&nn->dns, dn, order_dropped, nn);
	cache_monitor_forget(&nn->cache, dn);
}

void nn_dn_forget(struct nn *nn, struct dn *dn, const char *why)
{
	dn->admin = DN_NORMAL; /* its replicas are not kept, not even those of maintenance */
	if (dn->alive) {
		nn_dn_lost(nn, dn, why);
	} else {
		log_info("op=forget datanode=%s address=%s:%u reason=\"%s\"", dn->uuid, dn->ip,
			 dn->xfer_port, why);
		blocks_forget(&nn->blocks, dn, NULL);
	}
	datanodes_remove(&nn->dns, dn);
	datanodes_free_gone(&nn->dns);
}
