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
 * - While a step waits, every read that has sent nothing for BUFFERS_STALL_NS gives its buffers
 *   back and reads the same bytes again when its peer takes some.
 * Threading: the core's reactor.
 */
#include "datanode/xfer/engine.h"

#define BUFFERS_STALL_NS 20000000ull
#define BUFFERS_CONN_PART 2

/** Budgets and the reclaiming of @core, whose pool is there. */
void buffers_init(struct xfer_core *core);
void buffers_fini(struct xfer_core *core);
/** Where a volume's budget and turns stand. */
uint32_t buffers_volume_index(const char *storage_uuid);
struct pool_budget *buffers_volume(struct xfer_core *core, const char *storage_uuid);
struct pool_budget *buffers_hop(struct xfer_core *core, const struct dn_target *to);
