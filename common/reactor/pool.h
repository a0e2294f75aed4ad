/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * pool - registered buffers: slabs cut into slots, and who may have them when they are few
 *
 * Idea: memory is mapped, faulted and registered once (as MR, as fixed buffer), then only handed
 * around. A slot never crosses a slab, is 4 KiB aligned (O_DIRECT) and counted: disk, network and
 * checksum each hold a reference.
 * Whoever needs several slots for one step asks for the whole set and gets all of it or nothing, so
 * no two askers wait for each other's slots. An ask names its set in several forms, best first; a
 * smaller form is given when the better one cannot be had. A dry pool is a state, not an error: the
 * asker waits in line. Rule for askers: wait in line only while holding no slot of this pool; or
 * while holding slots of which a budget leaves enough for all that is waited for with them in hand.
 * Each use has a floor in every class, which the other uses leave alone, so one more stream of it
 * always moves, also while more important uses wait. A budget limits what the streams that share
 * something (a disk, a peer) hold together: what is stuck behind one of them cannot take all.
 * Ownership: slot_put() of the last reference returns the slot and wakes the first waiters.
 * Threading: one reactor. Nothing here locks.
 * Units: bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"

/** SLOT_CRC: for the CRCs of one piece; of its own, so that data never use up what their CRCs need.
 */
enum slot_class { SLOT_8K, SLOT_64K, SLOT_256K, SLOT_1M, SLOT_CRC, SLOT_CLASSES };
#define SLOT_CRC_SIZE 8192u

/** What for. Control comes first in line, client reads last. */
enum pool_use {
	POOL_READ,    /* a client reads */
	POOL_WRITE,   /* a client writes, and we are the first node */
	POOL_PEER,    /* from or for another data node */
	POOL_REBUILD, /* units of striped groups */
	POOL_CTRL,    /* messages: may take every floor */
	POOL_USES
};

/** The smallest class of data slots that holds @bytes (at most 1 MiB). */
static inline enum slot_class slot_class_for(uint64_t bytes)
{
	return bytes <= 8192     ? SLOT_8K
	       : bytes <= 65536  ? SLOT_64K
	       : bytes <= 262144 ? SLOT_256K
				 : SLOT_1M;
}
/** The class for @bytes of CRCs: long lists go to slots for data. */
static inline enum slot_class slot_class_for_crcs(uint64_t bytes)
{
	return bytes <= SLOT_CRC_SIZE ? SLOT_CRC : slot_class_for(bytes);
}
/** Bytes of a slot of @cls. */
uint32_t slot_class_size(enum slot_class cls);

/** What the streams that share something may hold together. Zero it, then set the limit. A stream
 *  that finds it unused may take more than the limit. It must outlive the slots charged to it,
 *  or end before: pool_budget_end(). */
struct pool_budget {
	uint64_t used, limit; /* limit 0: none */
	struct list waiters;  /* private */
};
#define POOL_BUDGETS 4
void pool_budget_init(struct pool_budget *b, uint64_t limit);

struct slot {
	uint8_t *data; /* 4 KiB aligned */
	uint32_t size; /* of its class */
	uint32_t refs;
	uint32_t slab; /* index into pool_slab(): fixed-buffer index and MR index */
	uint8_t cls;   /* enum slot_class */
	uint8_t use;   /* enum pool_use it was taken under */
	struct pool *pool;
	struct pool_budget *budget[POOL_BUDGETS]; /* private: charged with it, or NULL */
	struct list link;                         /* private: free list */
};

struct pool_opts {
	uint32_t count[SLOT_CLASSES]; /* slots of each class */
	/* of these, so many are taken at the start and for good: no part of a floor */
	uint32_t fixed[SLOT_CLASSES];
	/* of each class left alone by other uses; all 0: the default */
	uint8_t floor_pct[POOL_USES];
	bool huge_pages;    /* try MAP_HUGETLB, fall back to THP advice: pool_is_huge() */
	uint32_t near_node; /* number of the NUMA node plus one to take memory from; 0: any */
};

#define POOL_PARTS 3
#define POOL_FORMS 4
struct pool_set { /* slots of some classes */
	uint8_t parts;
	struct {
		uint8_t cls; /* enum slot_class */
		uint16_t n;
	} part[POOL_PARTS];
};

struct pool_ask {
	enum pool_use use;
	struct pool_budget *budget[POOL_BUDGETS]; /* the set is charged to these; or NULL */
	uint8_t forms;
	struct pool_set form[POOL_FORMS]; /* the best first */
	/* room for the largest form: one reference each, part by part */
	struct slot **slots;
	/** From pool_wait(): form[got] is in slots. Runs inside the slot_put() that makes it
	 *  possible (or inside pool_wait()): record and mark ready. */
	void (*granted)(struct pool_ask *a);
	uint8_t got;
	uint64_t since_ns; /* of pool_wait() */
	struct list link;  /* private */
};

struct pool;

int pool_new(const struct pool_opts *opts, struct pool **ret, struct err *err);
/** All slots must be back (asserted). Accepts NULL. */
void pool_free(struct pool *p);
/** @b may go: slots charged to it that are out yet are charged to their other budgets alone. Nobody
 *  waits for it. Looks at the slots one by one when there are some. */
void pool_budget_end(struct pool *p, struct pool_budget *b);
/** The set, if it can be had without overtaking somebody who waits. */
bool pool_take(struct pool *p, struct pool_ask *a);
/** Wait in line until granted(). First come, first served among those of one use; control, then
 *  rebuilding, peers, writes and reads, but for what a use takes of its own floor. A set larger
 *  than the pool has is never granted: see pool_fits(). */
void pool_wait(struct pool *p, struct pool_ask *a);
/** Harmless when @a was granted already (it must have been given to pool_wait() once). */
void pool_wait_cancel(struct pool *p, struct pool_ask *a);
static inline bool pool_is_waiting(const struct pool_ask *a)
{
	return list_is_linked(&a->link);
}
/** Could @set be had if nobody else held anything? */
bool pool_fits(const struct pool *p, const struct pool_set *set, enum pool_use use);
/** One slot, or NULL when dry: for those who do not wait. */
struct slot *pool_get(struct pool *p, enum slot_class cls, enum pool_use use);
/** Does somebody wait, for slots or for a budget? */
bool pool_is_pressed(const struct pool *p);
/** Does somebody wait for slots, and not only for a budget? */
bool pool_lacks_slots(const struct pool *p);
/** @pressed runs whenever somebody begins to wait, or gets a smaller form of a set: a hint to give
 *  back what is not in use. */
void pool_on_pressed(struct pool *p, void (*pressed)(void *arg), void *arg);
static inline struct slot *slot_ref(struct slot *s)
{
	s->refs++;
	return s;
}
/** Accepts NULL. */
void slot_put(struct slot *s);

/** All of it lies on huge pages that were reserved for them (vm.nr_hugepages). */
bool pool_is_huge(const struct pool *p);
/** Of all slots. */
uint64_t pool_bytes(const struct pool *p);
/** Slots of @cls, those that are out, too. */
uint32_t pool_count(const struct pool *p, enum slot_class cls);
uint32_t pool_slab_count(const struct pool *p);
void *pool_slab(const struct pool *p, uint32_t i, size_t *ret_len);
/** Slots out at the moment, all classes: 0 at a clean end. */
uint32_t pool_slots_out(const struct pool *p);
