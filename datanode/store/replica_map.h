/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * replica_map - the replicas of a block pool by block id
 *
 * Idea: open addressing with the id beside the pointer, so that a look-up touches one place in
 * memory and no replica but the one that it finds. NameNodes number blocks one after the other:
 * sixteen ids in a row share a run of slots, so loading and reporting a directory walks through
 * memory in order. The map has parts, so that none takes long to grow.
 * Ownership: of its slots only; replicas are the caller's.
 * Threading: none of its own; the pool lock.
 */
#include <stdbool.h>
#include <stdint.h>

#define REPLICA_MAP_PARTS 64

struct replica;

struct replica_map_slot {
	int64_t id;
	struct replica *replica; /* NULL: free */
};

struct replica_map { /* zeros: empty */
	struct replica_map_part {
		struct replica_map_slot *slots; /* owned; NULL: none yet */
		uint32_t mask, count;           /* slots less one, a power of two less one */
	} part[REPLICA_MAP_PARTS];
};

/** NULL: not there. */
struct replica *replica_map_find(const struct replica_map *m, int64_t id);
/** @id must not be there. Without memory the process ends: a replica that is on the disk and not in
 *  the map would be written over. */
void replica_map_add(struct replica_map *m, int64_t id, struct replica *r);
/** @id must be there. */
void replica_map_remove(struct replica_map *m, int64_t id);
/** Call @fn for each and empty the map. */
void replica_map_drain(struct replica_map *m, void (*fn)(struct replica *r));
