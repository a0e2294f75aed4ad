/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** cache_internal - what cache_monitor.c (what nodes say and are told) and cache_scan.c (what is
 * wanted) share. */
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/cache_monitor.h"

/* A block on a node. */
struct cache_place {
	struct list in_block;      /* in cache_block.places */
	struct list in_node;       /* in that of the node's lists that its state says */
	struct cache_block *block; /* borrowed */
	struct dn *dn;             /* borrowed */
	enum cache_state state;
	uint8_t told;    /* how often it was ordered */
	uint64_t gs;     /* of the replica that it is about */
	uint64_t len;    /* ORDERED: bytes that it takes of dn.cache_ordered */
	uint64_t at_ns;  /* of the last order; SHUNNED: since then */
	uint32_t report; /* HELD, LEAVING: that named it last */
};

struct cache_block {
	int64_t id;
	int16_t repl; /* wanted, by the scan of mark */
	uint32_t mark;
	struct list places;
	struct list all; /* in cache_monitor.all */
	UT_hash_handle hh;
};

struct cache_block *cache_block_find(const struct cache_monitor *c, int64_t id);
/** Made if there is none. */
struct cache_block *cache_block_get(struct cache_monitor *c, int64_t id);
void cache_block_free(struct cache_monitor *c, struct cache_block *e);
struct cache_place *cache_place_find(const struct cache_block *e, const struct dn *dn);
/** NULL: @dn has CACHE_PLACES_MAX. */
struct cache_place *cache_place_add(struct cache_block *e, struct dn *dn, const struct blk *b);
void cache_place_free(struct cache_place *p);
/** Into the list that it belongs to. */
void cache_place_set(struct cache_place *p, enum cache_state state, uint64_t len);
/** A good replica of @b is there, the one that @p is about. */
bool cache_place_is_good(const struct cache_place *p, const struct blk *b);
/** The good finalized replica of a complete block on @dn that a cache may hold, or NULL. */
const struct replica *cache_replica(const struct blk *b, const struct dn *dn);
/** Accepts NULL. */
void cache_scan_free(struct cache_scan *s);
