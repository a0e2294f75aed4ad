/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * buffers - who may have buffers of a reactor's pool when they are few: the data node's rules
 *
 * Idea: common/reactor/pool.h gives sets of slots in line; this says what to charge them to, how
 * long a step waits, and takes buffers back from streams whose peer takes nothing.
 * - A volume's streams hold at most half of the pool together, as do those of one RDMA connection;
 *   those to one next hop at most three eighths: what is stuck behind a disk or a node leaves the
 *   rest to others.
 * - A write over RDMA takes the slot for a list of CRCs first, then lanes; lists have at most half of the
 *   slots for CRCs, so that there are some for lanes.
 * - While a step waits, every read over a stream whose send has lasted BUFFERS_STALL_NS is looked
 *   at: if nothing of it went, it gives its buffers back and reads the same bytes again when its
 *   peer takes some.
 * Threading: the core's reactor.
 */
#include "datanode/xfer/engine.h"

#define BUFFERS_STALL_NS 20000000ull
#define BUFFERS_CONN_PART 2

/** Budgets and the reclaiming of @core, whose pool is there. */
void buffers_init(struct xfer_core *core);
void buffers_fini(struct xfer_core *core);
/** @volume: its number in the store. */
struct pool_budget *buffers_volume(struct xfer_core *core, uint32_t volume);
/** Its own while no more than XFER_BUDGETS next hops are in use, by order of use. */
struct pool_budget *buffers_hop(struct xfer_core *core, const struct dn_target *to);
