/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * replica_key - a replica by its pool and id, as a key of uthash
 *
 * Ownership: the pool is borrowed; pools live as long as the store. Threading: any thread.
 */
#include <stdint.h>
#include <string.h>

struct block_pool;

struct replica_key {
	struct block_pool *bp;
	int64_t id;
};

static inline struct replica_key replica_key(struct block_pool *bp, int64_t id)
{
	struct replica_key k;

	memset(&k, 0, sizeof(k)); /* hashed with its padding */
	k.bp = bp;
	k.id = id;
	return k;
}
