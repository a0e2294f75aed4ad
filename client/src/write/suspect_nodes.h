/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * suspect_nodes - the nodes that failed a writer, and are not to be offered to it again for a while
 *
 * Idea: a node that failed once is probably down, hung or full, so the NameNode is asked for
 * others. But nodes come back, and a file may be written for months. So a node is left out only for
 * dfs.client.write.exclude.nodes.cache.expiry.interval.millis. It is tried before that when a block
 * would otherwise begin with fewer nodes than it should have. Such a trial costs little when the
 * node refuses at once, and much when it is hung. So the next trial comes BLAMED_WAIT_NS after the
 * second failure in a row, and the time doubles with each further one; a node that stayed silent
 * begins six steps later. A node that refuses is tried again within half a minute.
 * A node that failed in a chain may only have passed on what another node of the chain did. Such a
 * node is in doubt. When no node is left, the nodes in doubt are offered again first.
 * Ownership: a plain value, zeroed; nodes are owned. suspect_nodes_fini() ends it.
 * Threading: its owner's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#define BLAMED_MAX 64 /* remembered at one time; the oldest goes first */
#define BLAMED_WAIT_NS (1 * NS_PER_S)

struct suspect_nodes_node;

struct suspect_nodes {
	/* owned; [BLAMED_MAX], the oldest first; NULL: none yet */
	struct suspect_nodes_node *node;
	/* owned; [BLAMED_MAX]: those not to be offered, borrowed from node */
	Hd__DatanodeInfoProto **out;
	size_t count; /* in node */
	size_t n_out;
	uint64_t failures; /* all of them */
};

/** Takes @node, which failed at @now_ns. @silent: it was waited for, in vain. -ENOMEM. */
int suspect_nodes_add(struct suspect_nodes *b, Hd__DatanodeInfoProto *node, bool silent,
		      uint64_t now_ns);
/** The node that was added last may have passed on the fault of another one. */
void suspect_nodes_doubt(struct suspect_nodes *b);
/** Is a node in doubt left out? */
bool suspect_nodes_in_doubt(const struct suspect_nodes *b);
/** Nodes that failed @expiry_ns ago or earlier are forgotten; out[0..n_out) is who is left out. */
void suspect_nodes_expire(struct suspect_nodes *b, uint64_t expiry_ns, uint64_t now_ns);
/** All may be offered again; that they failed is remembered. Where some of those left out are in
 * doubt, it is only these. */
void suspect_nodes_forgive(struct suspect_nodes *b);
/** Those may be offered again that have waited for their trial. Is there one? */
bool suspect_nodes_try_again(struct suspect_nodes *b, uint64_t now_ns);
/** Is there one that is left out, and has waited for its trial? */
bool suspect_nodes_is_due(const struct suspect_nodes *b, uint64_t now_ns);
void suspect_nodes_fini(struct suspect_nodes *b);
