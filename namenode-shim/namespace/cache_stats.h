/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cache_stats - what the last scan of all cache directives has counted
 *
 * Idea: the cache monitor counts into a set of its own, which takes the place of the one before
 * when the scan has ended. A directive that was given or changed since is not in it as it is now:
 * what its row says counts then. A pool has what was counted, and what was given since (pool.given
 * now, less as it was when the scan began), less what was taken since. What was taken may not have
 * been counted, or be less now than when it was given: a limit goes without that subtraction.
 * Ownership: the set owns its entries. Threading: the writer thread changes it with mem_lock held
 * for writing; others read it with the lock.
 */
#include <stdint.h>
#include <uthash.h>

#include "namenode-shim/namespace/cache_rows.h"

struct cache_count {
	struct cache_need need, cached;
};

struct cache_directive_stat {
	int64_t id;
	uint32_t rev;
	struct cache_count n;
	UT_hash_handle hh;
};

struct cache_pool_stat {
	uint64_t id;
	struct cache_need given, taken; /* as its row had them when the scan began */
	struct cache_count n;
	UT_hash_handle hh;
};

struct cache_stats {
	struct cache_directive_stat *directives;
	struct cache_pool_stat *pools;
};

/** Empty again. */
void cache_stats_clear(struct cache_stats *s);
struct cache_directive_stat *cache_stats_directive(struct cache_stats *s, int64_t id);
struct cache_pool_stat *cache_stats_pool(struct cache_stats *s, uint64_t id);
/** Of @d and @p as they are now. */
struct cache_count cache_count_directive(const struct cache_stats *s,
					 const struct cache_directive *d);
struct cache_count cache_count_pool(const struct cache_stats *s, const struct cache_pool *p);
/** What @p needs at most: nothing makes room in it until it is counted again. */
uint64_t cache_bytes_at_most(const struct cache_stats *s, const struct cache_pool *p);
/** @to + @n, INT64_MAX at most. */
void cache_add(uint64_t *to, uint64_t n);
