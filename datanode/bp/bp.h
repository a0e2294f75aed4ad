/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * bp - the data node as its NameNodes see it: register, heartbeat, report, obey
 *
 * Idea: one actor per NameNode: a heartbeat thread that never waits for commands, a report thread
 * for incremental and full block reports, a command thread. Blocking RPC (common/rpc/client.h).
 * Threading: any thread may call these.
 * Source: hdfs-wire 3.7, 4, 8.4.
 */
#include "common/base/err.h"
#include "datanode/dn.h"

struct bp_set;

/** Does @conf name a NameNode, in a form we understand? To be asked before anything is made on
 * disk. */
int bp_check(const struct conf *conf, struct err *err);
/** Start actors for every configured NameNode; they connect and retry in the background. Fails
 *  only on bad configuration. The store's listener is set here. */
int bp_start(struct dn *dn, struct bp_set **ret, struct err *err);
/** Blocks until at least one NameNode has accepted the registration; -ETIMEDOUT, or the reason for
 *  which no NameNode ever will (directories of another cluster). */
int bp_wait_registered(struct bp_set *s, uint32_t timeout_ms, struct err *err);
/** Accepts NULL. Calls in progress are cancelled. */
void bp_stop(struct bp_set *s);
/** No NameNode is left that would have us: the process ends, with the reason in @err. */
bool bp_is_dead(struct bp_set *s, struct err *err);
/** A report at once (dfsadmin -triggerBlockReport) to @namenode "host:port", or to all (NULL).
 *  -ENOENT: we do not serve that one. */
int bp_trigger_report(struct bp_set *s, bool incremental, const char *namenode, struct err *err);
/** Serve the NameNodes that @conf names: new ones are added, those gone are left (their block pool
 *  stays on disk). Errors of the configuration: then nothing has changed. */
int bp_refresh(struct bp_set *s, const struct conf *conf, struct err *err);
bool bp_serves_pool(struct bp_set *s, const char *pool);

struct bp_info { /* one NameNode, for pages */
	char addr[300], host[256], pool_id[BLOCK_POOL_ID_MAX], cluster_id[128];
	bool registered, active, reported;
	uint64_t last_beat_s, last_report_s, lifelines;
};
/** Number filled in. */
uint32_t bp_info(struct bp_set *s, struct bp_info *list, uint32_t max);
struct cache_stats; /* datanode/bp/cached_blocks.h */
/** Wall clock of the last failure of a data directory; 0: none. */
uint64_t bp_failed_ms(const struct bp_set *s);
void bp_cache_stats(struct bp_set *s, struct cache_stats *ret);
/** Tell the NameNode of @bp that this node's or another node's replica is corrupt. */
void bp_report_bad(struct bp_set *s, struct block_pool *bp, const char *storage_uuid,
		   const struct block *b);
