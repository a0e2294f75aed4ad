/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * buffers - who may have buffers of a reactor's pool when they are few: the data node's rules
 *
 * Idea: common/reactor/pool.h gives sets of slots in line; this says what to charge them to, how
 * long a step waits, and takes buffers back from streams whose peer takes nothing.
 * - A volume's streams hold at most half of the pool together, as do those of one RDMA connection;
 *   those to one next hop at most three eighths, all transfers of replicas to other nodes a
 *   quarter, all that other nodes copy from here (COPY_BLOCK) an eighth: what is stuck behind a
 *   disk or a node leaves the rest to others.
 * - A write over RDMA takes the slot for a list of CRCs first, then lanes. Lists have at most a
 *   quarter of the slots for CRCs, so that there are some for lanes; of these a volume, a
 *   connection and a next hop have the same shares as above. Lists that need a slot for data are
 * charged as data, and are few.
 * - While a step waits, every read over a stream whose send has lasted BUFFERS_STALL_NS is looked
 *   at: if nothing of it went, it gives its buffers back and reads the same bytes again when its
 *   peer takes some. So does a copy that waits for the bandwidth of the balancer, or for its target
 *   to answer.
 * - While a step waits for slots, or for a share of which a stream has a part, two kinds of streams
 *   are ended: a write whose peer is waited for in the middle of packets for BUFFERS_PARTIAL_NS and
 *   sends less than BUFFERS_PARTIAL_BYTES meanwhile (its client goes on as after any failure of a
 *   node), and a transfer whose target takes no more than that of what it is sent (it is ordered
 *   again).
 * Threading: the core's reactor.
 */
#include "datanode/block/engine.h"

#define BUFFERS_STALL_NS 20000000ull
/* a peer that moves less than so much in this time is as good as one that has stopped */
#define BUFFERS_PARTIAL_NS 5000000000ull
#define BUFFERS_PARTIAL_BYTES (32u << 10)

/** The pool of a reactor: @bytes, and the slots that its adapter receives messages in. */
struct pool_opts buffers_pool(uint64_t bytes, uint32_t receive_slots);
/** Budgets and the reclaiming of @core, whose pool is there. */
void buffers_init(struct engine_core *core);
void buffers_fini(struct engine_core *core);
/** @volume: its number in the store. */
struct buffers_share *buffers_volume(struct engine_core *core, uint32_t volume);
/** Its own while no more than XFER_BUDGETS next hops are in use, by order of use. */
struct buffers_share *buffers_hop(struct engine_core *core, const struct dn_target *to);
/** Does somebody wait for what a stream with these shares (NULL: none) may have? */
bool buffers_are_wanted(const struct engine_core *core, struct buffers_share *const *shares, int n);
/** Of a connection over RDMA. */
void buffers_conn_init(const struct engine_core *core, struct buffers_share *s);
/** What a slot of @cls for a list of CRCs is charged to; @shares are the stream's, or NULL. */
void buffers_for_list(struct engine_core *core, enum slot_class cls,
		      struct buffers_share *const shares[BUFFERS_SHARES],
		      struct pool_budget *ret[POOL_BUDGETS]);
