/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cached_blocks - replicas locked in memory, as the NameNode's cache directives order
 *
 * Idea: a cached block is its file mapped and locked (mlock), checked against its CRCs once. A
 * thread does the work in the order of the orders; reads of a cached block go by the page cache,
 * where the locked pages are. A block that is deleted, appended to or replaced loses its lock at
 * once.
 * Limits: dfs.datanode.max.locked.memory, counted in pages; CACHE_WAITING_MAX orders waiting.
 * Ownership: owned by bp_set; borrows the store.
 * Threading: any thread.
 * Source: hdfs-wire 3.7 (BlockIdCommand, cacheReport).
 */
#include <stdint.h>

#include "common/base/conf.h"
#include "datanode/store/store.h"

#define CACHE_WAITING_MAX 65536

struct cache;
struct hot_copies; /* datanode/block/hot_copies.h: told what is cached, and as what; or NULL */

struct cache_stats {
	uint64_t capacity, used, blocks, failed, failed_to_drop;
};

/** -EINVAL: the limit is more than the process may lock (RLIMIT_MEMLOCK). */
int cache_new(const struct conf *conf, struct hot_copies *hot, struct cache **ret, struct err *err);
/** Unlocks everything. Accepts NULL. */
void cache_free(struct cache *c);
/** Lock or unlock a finalised replica, in the background. What cannot be locked is logged. */
void cache_order(struct cache *c, struct block_pool *bp, int64_t id, bool lock);
/** The replica changed or is gone: no longer cached. Wait-free when the cache is empty. */
void cache_forget(struct cache *c, struct block_pool *bp, int64_t id);
/** Ids cached of @bp, malloc'ed. -ENOMEM. */
int cache_list(struct cache *c, struct block_pool *bp, uint64_t **ret, size_t *ret_n);
void cache_stats(struct cache *c, struct cache_stats *ret);
