/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * hot_copies - bytes of cached replicas in memory of our own, for clients that READ them one-sided
 *
 * Idea: a device lets a peer READ through a window, and a window wants memory that may be written:
 * the locked pages of a replica's file are not that. So a cached replica that is asked for gets a
 * copy, data and CRCs in one stretch, checked against each other. One thread makes the copies
 * (reading, registering), another one lets go of them, so that a disk that hangs keeps no memory
 * from others; reactors only ask. A copy is constant. When its replica changes, goes, or is not
 * cached any more, the copy is `over`: nobody new gets at it, and it is freed when those who have
 * it have let go.
 * Limits: copies and what the cache has locked (bp/cached_blocks.h) stay together within
 * dfs.datanode.max.locked.memory; what the cache wants goes before copies, and a copy that is asked
 * for before one that nobody has viewed for HOT_IDLE_MS.
 * Ownership: of the data port; a copy is counted, and has to be given back before
 * hot_copies_free().
 * Threading: any thread, unless it says otherwise.
 * Source: docs/design/019-one-sided-reads.md.
 */
#include <stdatomic.h>

#include "datanode/store/store.h"

struct hot_copies;

struct hot_copy {      /* constant but for the first four */
	uint32_t refs; /* private, as link is */
	struct list link;
	atomic_bool over;
	atomic_uint_fast64_t viewed_ns; /* who uses it sets it: when it was viewed last */
	struct hot_copies *of;
	struct block_pool *bp;
	struct block block; /* of exactly this stamp and length */
	uint8_t *p;         /* data, then CRCs */
	size_t size;        /* of the mapping */
	uint64_t crc_at;
	uint32_t crc_len, bytes_per_crc;
	enum crc_type crc_type;
};

struct hot_job { /* the caller's until run() */
	struct list link;
	/** On a thread of the copies; may block, and free the job. */
	void (*run)(struct hot_job *j);
	bool again; /* it failed before: that it does is not logged anew */
	bool wants; /* a copy of this one, as it is now; else it lets go of one: */
	struct block_pool *bp;
	int64_t id;
	/* -ENOENT it is not cached, -ENOSPC no room, -EBADMSG damaged, -ENOTSUP it has no
	 * CRCs or is too long, -ECANCELED the end, ... */
	int rc;
	struct hot_copy *copy; /* counted; NULL when there is none */
};

/** *@ret NULL: this node makes none (dfs.rdma.onesided is off, or nothing may be cached); every
 *  function below takes that. -EINVAL: the key. */
int hot_copies_new(const struct conf *conf, struct hot_copies **ret, struct err *err);
/** What was asked for is run, with -ECANCELED; from now on nothing is taken. False: for some
 *  seconds no job has ended, as when a disk does not answer; it is left as it is, and so is @h. */
bool hot_copies_stop(struct hot_copies *h);
void hot_copies_free(struct hot_copies *h);

/** False: it has stopped, the job is not taken. */
bool hot_copies_ask(struct hot_copies *h, struct hot_job *j);
void hot_copy_put(struct hot_copy *c);
/** Is it cached, so that a copy may be had? For reactors. */
bool hot_copies_has(struct hot_copies *h, struct block_pool *bp, int64_t id);

/* ---- the cache's ---- */
/** @b is cached from now on, as it is. */
void hot_copies_allow(struct hot_copies *h, struct block_pool *bp, const struct block *b);
/** It has changed, or is not cached any more. Unknown ids pass. */
void hot_copies_forbid(struct hot_copies *h, struct block_pool *bp, int64_t id);
/** @len bytes of this one are to be locked. False: there is no room; as many copies as it takes,
 *  for this and for others that were refused, are let go of, the one viewed longest ago first. The
 *  room is kept from new copies until it is asked for again and given, or was forbidden, but for
 *  HOT_YIELD_MS after it was last asked for at most. */
#define HOT_YIELD_MS 180000u
#define HOT_IDLE_MS 15000u
bool hot_copies_take_room(struct hot_copies *h, struct block_pool *bp, int64_t id, size_t len);
void hot_copies_give_room(struct hot_copies *h, size_t len);
