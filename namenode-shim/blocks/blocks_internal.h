/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** blocks_internal - what blocks.c and blocks_striped.c share */
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"

static inline bool replica_is_good(const struct replica *r)
{
	return r->state == REPLICA_FINALIZED && !r->corrupt && !r->excess &&
	       !(r->st->sweep & SWEEP_FORGET);
}

/* ---- blocks.c ---- */
void blk_set_flags(struct blocks *bs, struct blk *b, unsigned int flags);
/** The node is told to delete a corrupt replica. It stays known, as corrupt, until the node has
 *  said that it is gone: the node may list it once more, and would seem to have a good one. */
void blk_order_corrupt(struct blk *b, struct replica *r);
/** It is forgotten. */
void blk_drop_replica(struct blk *b, struct replica *r);
/** Storage types that have more good replicas, on nodes that stay, than @policy wants of @total: a
 * set. */
uint32_t blk_surplus_types(const struct blk *b, const struct storage_policy *policy,
			   uint32_t total);
bool blk_node_has_good(const struct blk *b, const struct replica *r);

/* ---- blocks_striped.c: of groups ---- */
uint32_t group_wanted(const struct blk *b);
bool group_enough_as(const struct blk *b, uint64_t gs, uint64_t len);
/** As blk_recheck(), of a complete one. @policy: of its file; NULL: not known. */
void group_recheck(struct blocks *bs, struct blk *b, const struct storage_policy *policy);

/* ---- blocks_sweep.c ---- */
/** @b goes: cursors that are at it go on to the next one. */
void blk_cursors_pass(struct blocks *bs, const struct blk *b);
