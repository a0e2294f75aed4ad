/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** blocks_internal - what blocks.c, blocks_open.c, block_redundancy.c and blocks_striped.c
 * share */
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"

static inline bool replica_is_good(const struct replica *r)
{
	return r->state == REPLICA_FINALIZED && !r->corrupt && !r->excess &&
	       !(r->st->sweep & SWEEP_FORGET);
}

/* ---- blocks.c ---- */
void blk_set_flags(struct blocks *bs, struct blk *b, unsigned int flags);
void blk_set_state(struct blocks *bs, struct blk *b, enum blk_state state);
/** @b forgets @r. */
void blk_drop_replica(struct blk *b, struct replica *r);
struct replica *blk_find_on_node(const struct blk *b, const struct dn *dn, uint8_t unit);
/** It is, or will be, in maintenance, and comes back with what it has. */
bool dn_is_away(const struct dn *dn);
uint32_t blk_in_maintenance(const struct blk *b);

/* ---- blocks_open.c ---- */
void blk_open_new(struct blk *b);
/** What @b keeps while it is open goes. */
void blk_free_open(struct blk *b);
uint8_t blk_target_unit(const struct blk *b, uint32_t i);
/** Its targets are where its good replicas are. */
void blk_target_replicas(struct blk *b);
/** Takes the disk of @r for that of its node in the pipeline of an open block. A finalized replica
 * whose report comes after its block is written on again holds what the others hold: the next
 * pipeline is to have it. */
void blk_retarget(struct blk *b, const struct replica *r);
/** The node of @r is lost. */
void blk_lose_replica(struct blk *b, const struct replica *r);
/** Nodes that are dead and storages that failed leave the pipeline. */
void blk_forget_targets(struct blk *b);

/* ---- block_redundancy.c ---- */
bool blk_is_corrupt(const struct blk *b, const struct replica *r);
void blk_mark_corrupt(struct blk *b);
/** The node is told to delete @r, which is one of its replicas no more. */
void blk_order_drop(struct blk *b, struct replica *r);
/** The node is told to delete a corrupt replica. It stays known, as corrupt, until the node has
 *  said that it is gone: the node may list it once more, and would seem to have a good one. */
void blk_order_corrupt(struct blk *b, struct replica *r);
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
