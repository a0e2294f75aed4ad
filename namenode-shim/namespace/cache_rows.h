/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cache_rows - pools and directives of centralised caching, as they are on disk
 *
 * Idea: a directive says that a file, or the files of a directory, are to be cached so many times;
 * a pool says who may give directives, and for how many bytes. Table cachepool has a row for each
 * pool by its name, table cachedir one for each directive by its id. Ids are never used again.
 * A pool's row also sums up what its directives needed when they were given, and what of that was
 * taken away: together with the monitor's last count (cache_stats.h) it says what is needed now.
 * Ownership: strings of what is returned live in the arena. Threading: that of the transaction.
 * Units: bytes, milliseconds.
 * Source: HDFS Centralized Cache Management guide; Hadoop 3.4.2 CacheManager, CachePoolInfo.
 */
#include <stdbool.h>
#include <stdint.h>

struct arena;
struct txn;

#define CACHE_POOL_NAME_MAX 255
#define CACHE_POOLS_MAX 4096
#define CACHE_DIRECTIVES_MAX 65536
#define CACHE_UNLIMITED INT64_MAX
#define CACHE_NEVER_MS (INT64_MAX / 4) /* the longest time until something expires */

/* Bytes and files of a path that are to be cached, bytes times their replication. */
struct cache_need {
	uint64_t bytes, files;
};

struct cache_pool {
	uint64_t id; /* tells it from one of the same name before it */
	const char *name, *owner, *group;
	uint16_t mode; /* permission bits */
	int16_t repl;  /* of directives that give none */
	int64_t limit; /* bytes */
	int64_t max_expiry_ms;
	struct cache_need given, taken; /* modulo 2^64: only differences count */
};

struct cache_directive {
	int64_t id;
	uint32_t rev; /* how often it was changed */
	const char *path, *pool;
	int16_t repl;
	int64_t expiry_ms;      /* time of day */
	struct cache_need need; /* when it was given or changed last */
};

/** Is its time over? As in HDFS, of the time 0 only listings say so: it is cached. */
static inline bool cache_is_over(const struct cache_directive *d, int64_t now_ms)
{
	return d->expiry_ms > 0 && d->expiry_ms <= now_ms;
}
/** Bytes times replication, INT64_MAX at most. */
uint64_t cache_times(uint64_t bytes, int repl);

/** -ENOENT; -EBADMSG: the row does not decode. */
int cache_pool_get(struct txn *t, struct arena *a, const char *name, struct cache_pool *ret);
/** The first whose name is greater than @after ("": the first of all). -ENOENT: none. */
int cache_pool_next(struct txn *t, struct arena *a, const char *after, struct cache_pool *ret);
int cache_pool_put(struct txn *t, const struct cache_pool *p);
int cache_pool_del(struct txn *t, const char *name);
int cache_directive_get(struct txn *t, struct arena *a, int64_t id, struct cache_directive *ret);
/** The first whose id is greater than @after. -ENOENT: none. */
int cache_directive_next(struct txn *t, struct arena *a, int64_t after,
			 struct cache_directive *ret);
int cache_directive_put(struct txn *t, const struct cache_directive *d);
int cache_directive_del(struct txn *t, int64_t id);
/** Rows of both tables. */
uint64_t cache_pools_count(struct txn *t);
uint64_t cache_directives_count(struct txn *t);
/** The next new directive, or pool, has this id. */
int cache_ids(struct txn *t, int64_t *ret_directive, uint64_t *ret_pool);
int cache_set_ids(struct txn *t, int64_t directive, uint64_t pool);
