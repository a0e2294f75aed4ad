/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * hot_copies - bytes of cached replicas in memory of our own, for clients that READ them one-sided
 *
 * Idea: a device lets a peer READ through a window, and a window wants memory that may be written:
 * the locked pages of a replica's file are not that. So a cached replica that is asked for gets a
 * copy, data and CRCs in one stretch, checked against each other. A thread makes the copies and
 * does what else may take long about them (registering, letting go); reactors only ask. A copy is
 * constant. When its replica changes, goes, or is not cached any more, the copy is `over`: nobody
 * new gets at it, and it is freed when those who have it have let go.
 * Limits: copies and what the cache has locked (bp/cached_blocks.h) stay together within
 * dfs.datanode.max.locked.memory; what the cache wants goes before copies.
 * Ownership: of the data port; a copy is counted, and has to be given back before
 * hot_copies_free().
 * Threading: any thread, unless it says otherwise.
 * Source: docs/design/019-one-sided-reads.md.
 */
#include <stdatomic.h>

#include "datanode/store/store.h"

struct hot_copies;

struct hot_copy {      /* constant but for the first two */
	uint32_t refs; /* private */
	atomic_bool over;
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
	/** On the thread of the copies; may block, and free the job. */
	void (*run)(struct hot_job *j);
	bool wants; /* a copy of this one, as it is now: */
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
/** What was asked for is run, with -ECANCELED; from now on nothing is taken. */
void hot_copies_stop(struct hot_copies *h);
void hot_copies_free(struct hot_copies *h);

/** False: it has stopped, the job is not taken. */
bool hot_copies_ask(struct hot_copies *h, struct hot_job *j);
void hot_copy_put(struct hot_copy *c);

/* ---- the cache's ---- */
/** @b is cached from now on, as it is. */
void hot_copies_allow(struct hot_copies *h, struct block_pool *bp, const struct block *b);
/** It has changed, or is not cached any more. Unknown ids pass. */
void hot_copies_forbid(struct hot_copies *h, struct block_pool *bp, int64_t id);
/** @len bytes are to be locked. False: there is no room; copies are let go of, and later there may
 *  be. */
bool hot_copies_take_room(struct hot_copies *h, size_t len);
void hot_copies_give_room(struct hot_copies *h, size_t len);
