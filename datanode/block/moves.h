/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * moves - how much of this node balancer and mover may have
 *
 * Idea: COPY_BLOCK and REPLACE_BLOCK share dfs.datanode.balance.max.concurrent.moves places and
 * dfs.datanode.balance.bandwidthPerSec bytes a second, both of which an administrator changes while
 * the node runs; reconstructions have bandwidths of their own. Bytes are charged before they go:
 * whoever charges is told when they may.
 * Ownership: embedded. Threading: any thread.
 * Source: DataXceiverServer.BlockBalanceThrottler and DataXceiver of Hadoop 3.4.2.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "datanode/dn.h"

/* from one own volume to one other at one time: each holds a helper thread, while a disk hangs, too
 */
#define MOVES_LOCAL_MAX 2
#define MOVES_VOLUMES 64
#define MOVES_STEP (64u << 10) /* bytes charged at once when the bandwidth is small */

struct moves {
	atomic_uint running, local[MOVES_VOLUMES][MOVES_VOLUMES]; /* local: by from, to */
	atomic_uint_fast64_t free_ns; /* monotonic: what was charged so far has gone by then */
	atomic_uint_fast64_t ec_read_ns, ec_write_ns; /* likewise, of reconstructions */
};

/** Take a place; false: all are taken. */
bool moves_enter(struct moves *m, const struct live_settings *live);
void moves_leave(struct moves *m);
bool moves_local_enter(struct moves *m, const struct replica_way *way);
void moves_local_leave(struct moves *m, const struct replica_way *way);
/** Charge @bytes to what is paid with @bandwidth bytes a second (0: no limit) and is free from
 *  *@free_ns on; returns the moment (ns, monotonic) at which they may go, @now_ns or later. */
uint64_t pace_charge(atomic_uint_fast64_t *free_ns, uint64_t bandwidth, uint64_t bytes,
		     uint64_t now_ns);
/** How many of @want bytes to charge at once. */
uint32_t moves_step(const struct live_settings *live, uint32_t want);
/** Charge @bytes; returns the moment (ns, monotonic) at which they may go, @now_ns or later. */
uint64_t moves_charge(struct moves *m, const struct live_settings *live, uint64_t bytes,
		      uint64_t now_ns);
