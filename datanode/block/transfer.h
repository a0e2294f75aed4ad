/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * transfer - copy a replica of ours to other nodes
 *
 * Idea: an engine read feeds a next hop: the same pieces, the same slots. Ordered by a client that
 * repairs its pipeline (TRANSFER_BLOCK) or by a NameNode (replication).
 * Ownership: frees itself after done().
 * Source: hdfs-wire 5.7.
 */
#include "datanode/block/engine.h"

struct transfer_params {
	struct block_pool *bp;
	struct block block;
	struct dn_target *targets; /* owned: taken by transfer_open(), also on failure */
	uint32_t target_count;
	char client[256]; /* "": replication; else TRANSFER_RBW or TRANSFER_FINALIZED */
};

/** @done on the reactor, once: 0 or -errno with a sentence. -ENOMEM at once. */
int transfer_open(struct engine_core *core, const struct transfer_params *params,
		  void (*done)(void *arg, int rc, const struct err *err), void *arg);
