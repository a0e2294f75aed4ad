/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cache_monitor - which blocks are to be cached, where they are, and what nodes are told
 *
 * Idea: a scan goes over all directives (namespace/cache_directive.h) and counts what they need and
 * have; then over the blocks that are, or are to be, cached. Where a block is cached less often
 * than wanted, a node that holds a good replica and has room is told to cache it; where it is
 * cached more often, one is told to let it go. A scan runs after each change of directives, when a
 * node reports something new, when a directive expires, and every
 * dfs.namenode.path.based.cache.refresh.interval.ms. It is done in slices, one in each turn of the
 * writer.
 * What a node reports counts only for good replicas that it is known to have, and for no more bytes
 * than it says it has room for. An order is given again after
 * dfs.namenode.path.based.cache.retry.interval.ms; a node that does not follow, and has cached
 * nothing else meanwhile, is left alone with that block for CACHE_SHUN_NS, and another one is told.
 * Nothing of this is on disk: after a start it comes from reports.
 * Ownership: nn->cache. Threading: the writer thread; what it changes for others it changes with
 * mem_lock held for writing.
 * Source: HDFS Centralized Cache Management guide; Hadoop 3.4.2 CacheReplicationMonitor.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "namenode-shim/namespace/cache_stats.h"

#define CACHE_ORDERS_MAX 1000         /* in one answer, of each kind */
#define CACHE_PLACES_MAX 100000u      /* of one node: it may be lost in one hold */
#define CACHE_TRIES 3                 /* orders that a node does not follow */
#define CACHE_SHUN_NS 600000000000ull /* and so long it gets no other one for the block */
#define CACHE_PAUSE_NS 200000000ull   /* between two scans, and */
#define CACHE_PAUSE_TIMES 10          /* so many times as long as the last one took */
#define CACHE_ENTRIES 256             /* of a directory in one step */

struct blk;
struct cache_block;
struct cache_scan;
struct dn;
struct nn;
struct storage;

struct cache_monitor {
	struct cache_block *map;  /* by block id, owned */
	struct list all;          /* the same, of cache_block.all */
	struct cache_stats stats; /* of the last scan that has ended */
	struct cache_scan *scan;  /* owned; NULL: none is under way */
	bool asked;               /* something has changed since it began */
	bool awaited;             /* and a change waits for the scan that counts it */
	bool hurried;             /* the last one to begin left out a rest: the next one may not */
	uint64_t ended_ns, took_ns; /* of the last one */
	uint64_t next_ns;           /* the next one, whether asked for or not */
	uint32_t mark;              /* of the last scan: blocks that it wanted have it */
};

/* Which way a node and a block that it is to cache go. */
enum cache_state {
	CACHE_ORDERED, /* it is to cache it */
	CACHE_HELD,    /* it has said that it does */
	CACHE_LEAVING, /* it is to let it go */
	CACHE_SHUNNED, /* it did not do what it was told */
};

void cache_monitor_init(struct cache_monitor *c);
void cache_monitor_fini(struct cache_monitor *c);
/** Something has changed that a scan is to find soon. */
void cache_monitor_ask(struct cache_monitor *c);
/** Has something changed that is not counted yet? */
bool cache_monitor_is_behind(const struct cache_monitor *c);
/** A change waits until what has changed is counted: the next scan comes without the long rest. The
 *  rest is made up for behind it, so nobody who waits again and again keeps the monitor at work. */
void cache_monitor_await(struct cache_monitor *c);
/** When the next slice is to be made; UINT64_MAX: not in safe mode, or caching is off. */
uint64_t cache_monitor_due_ns(const struct nn *nn);
/** A slice of a scan. Takes mem_lock itself. */
void cache_monitor_slice(struct nn *nn);

/** A node lists all blocks that it has cached; begin of that, with mem_lock held for writing.
 *  Returns the number of the report. */
uint32_t cache_report_begin(struct dn *dn);
/** One of them. */
void cache_report_block(struct nn *nn, struct dn *dn, int64_t id);
/** That was all: what it did not list is cached there no more. */
void cache_report_end(struct nn *nn, struct dn *dn);
/** @dn is dead, or has registered: nothing is cached there. mem_lock held for writing. */
void cache_monitor_forget(struct cache_monitor *c, struct dn *dn);
/** Ids of blocks that @dn is to cache (@cache), or to let go: up to CACHE_ORDERS_MAX into @ret, and
 *  they count as told. Returns how many. mem_lock held for writing. */
uint32_t cache_orders(struct nn *nn, struct dn *dn, bool cache, uint64_t *ret);
/** Is the replica of @b there cached? mem_lock held. */
bool cache_monitor_has(const struct cache_monitor *c, const struct blk *b, const struct dn *dn);
/** How many are, of good replicas. mem_lock held. */
uint32_t cache_monitor_count(const struct cache_monitor *c, const struct blk *b);
