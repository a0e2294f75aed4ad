/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * nn - the data node as its NameNodes see it: register, heartbeat, report, obey
 *
 * Idea: one actor per NameNode: a heartbeat thread that never waits for commands, a report thread
 * for incremental and full block reports, a command thread. Blocking RPC (common/rpc/client.h).
 * Threading: any thread may call these.
 * Source: hdfs-wire 3.7, 4, 8.4.
 */
#include "common/base/err.h"
#include "datanode/dn.h"

struct nn_set;

/** Does @conf name a NameNode, in a form we understand? To be asked before anything is made on disk. */
int nn_check(const struct conf *conf, struct err *err);
/** Start actors for every configured NameNode; they connect and retry in the background. Fails
 *  only on bad configuration. The store's listener is set here. */
int nn_start(struct dn *dn, struct nn_set **ret, struct err *err);
/** Blocks until at least one NameNode has accepted the registration; -ETIMEDOUT, or the reason for
 *  which no NameNode ever will (directories of another cluster). */
int nn_wait_registered(struct nn_set *s, uint32_t timeout_ms, struct err *err);
/** Accepts NULL. Calls in progress are cancelled. */
void nn_stop(struct nn_set *s);
/** No NameNode is left that would have us: the process ends, with the reason in @err. */
bool nn_is_dead(struct nn_set *s, struct err *err);
/** A report at once (dfsadmin -triggerBlockReport) to @namenode "host:port", or to all (NULL).
 *  -ENOENT: we do not serve that one. */
int nn_trigger_report(struct nn_set *s, bool incremental, const char *namenode, struct err *err);
/** Serve the NameNodes that @conf names: new ones are added, those gone are left (their block pool
 *  stays on disk). Errors of the configuration: then nothing has changed. */
int nn_refresh(struct nn_set *s, const struct conf *conf, struct err *err);
bool nn_serves_pool(struct nn_set *s, const char *pool);

struct nn_info { /* one NameNode, for pages */
	char addr[300], host[256], pool_id[BLOCK_POOL_ID_MAX], cluster_id[128];
	bool registered, active, reported;
	uint64_t last_beat_s, last_report_s, lifelines;
};
/** Number filled in. */
uint32_t nn_info(struct nn_set *s, struct nn_info *list, uint32_t max);
struct cache_stats; /* datanode/nn/cache.h */
/** Wall clock of the last failure of a data directory; 0: none. */
uint64_t nn_failed_ms(const struct nn_set *s);
void nn_cache_stats(struct nn_set *s, struct cache_stats *ret);
/** Bytes per second that the balancer may move, as the NameNode last said. */
uint64_t nn_balancer_bandwidth(const struct nn_set *s);
/** Tell the NameNode of @bp that this node's or another node's replica is corrupt. */
void nn_report_bad(struct nn_set *s, struct block_pool *bp, const char *storage_uuid,
		   const struct block *b);
