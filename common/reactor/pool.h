/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * pool - registered buffers: slabs cut into slots
 *
 * Idea: memory is mapped, faulted and registered once (as MR, as fixed buffer), then only handed
 * around. A slot never crosses a slab, is 4 KiB aligned (O_DIRECT) and counted: disk, network and
 * checksum each hold a reference. A dry pool is a state, not an error: the asker waits in line.
 * Ownership: slot_put() of the last reference returns the slot and wakes the first waiter.
 * Threading: one reactor. Nothing here locks.
 * Units: bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"

enum slot_class { SLOT_8K, SLOT_64K, SLOT_256K, SLOT_1M, SLOT_CLASSES };

/** Who asks: traffic from peers and control messages keep a reserve that clients cannot use up, so
 *  that two nodes forwarding to each other do not starve each other. */
enum pool_use { POOL_CLIENT, POOL_PEER, POOL_CTRL };

struct slot {
	uint8_t *data;     /* 4 KiB aligned */
	uint32_t size;     /* of its class */
	uint32_t refs;
	uint32_t slab;     /* index into pool_slab(): fixed-buffer index and MR index */
	uint8_t cls;       /* enum slot_class */
	uint8_t use;       /* enum pool_use it was taken under */
	struct pool *pool;
	struct list link;  /* private: free list */
};

struct pool_opts {
	uint32_t count[SLOT_CLASSES];   /* slots of each class */
	uint32_t fixed[SLOT_CLASSES];   /* of these, so many are taken at the start and for good: no part of the reserve */
	uint32_t reserve_pct;           /* of each class kept from POOL_CLIENT; 0: 25 */
	bool huge_pages;                /* try MAP_HUGETLB, fall back to THP advice */
};

struct pool_waiter {
	void (*granted)(struct pool_waiter *w, struct slot *slot); /* gives one reference */
	struct list link; /* private */
	uint8_t cls, use; /* private */
};

struct pool;

int pool_new(const struct pool_opts *opts, struct pool **ret, struct err *err);
/** All slots must be back (asserted). Accepts NULL. */
void pool_free(struct pool *p);
/** One reference, or NULL when dry (counts dfs_pool_empty_total): park with pool_wait(). */
struct slot *pool_get(struct pool *p, enum slot_class cls, enum pool_use use);
/** First come, first served, per class and use; control before peers before clients. granted() runs
 *  inside the slot_put() that makes it possible (or this call, if a slot is free): record and mark
 *  ready. */
void pool_wait(struct pool *p, enum slot_class cls, enum pool_use use, struct pool_waiter *w);
/** Harmless when @w was granted already (it must have been given to pool_wait() once). */
void pool_wait_cancel(struct pool *p, struct pool_waiter *w);
static inline struct slot *slot_ref(struct slot *s)
{
	s->refs++;
	return s;
}
/** Accepts NULL. */
void slot_put(struct slot *s);

uint32_t pool_slab_count(const struct pool *p);
void *pool_slab(const struct pool *p, uint32_t i, size_t *ret_len);
/** Slots out at the moment, all classes: 0 at a clean end. */
uint32_t pool_slots_out(const struct pool *p);
