/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * datanode_id - data nodes as the NameNode names them, and a small memory about them
 *
 * Idea: DatanodeIDProto and LocatedBlockProto are used as they come off the wire (the requests that
 * name nodes need them again); here are the few operations on them. A node_table remembers a word
 * about a node for a while: who failed lately, who had no RDMA and why.
 * Ownership: messages belong to whoever unpacked them (protobuf-c's allocator).
 * Threading: a node_table has its own lock; the rest is pure.
 * Units: nanoseconds of the monotonic clock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/net.h"
#include "hdfs.pb-c.h"

/** "ip:port" of the data port, as firstBadLink has it; returns @buf[NET_TEXT_MAX]. */
const char *node_text(const Hd__DatanodeIDProto *id, char *buf);
/** Address of the data port (@ipc false) or the RPC port. -EINVAL, -ENOENT as net_resolve(). */
int node_addr(const Hd__DatanodeIDProto *id, bool use_hostname, bool ipc, struct net_addr *ret,
	      struct err *err);

#define NODE_TOLD                                                                                  \
	"data node, address from the NameNode" /* before what went wrong with the address */
/** A connection to a data node failed with @rc: say whose address it was, and the cure. Returns
 *  @rc.
 */
int node_no_connection(int rc, struct err *err);
/** The cause in @text, for a list in which the node is named before it: without NODE_TOLD and
 *  without the cure. What does not fit into @buf ends with a whole word and "...". */
void node_why(char *buf, size_t size, const char *text);
/** Append "@sep@item" to the list @buf of @len bytes, or "..." once when it does not fit. Returns
 * the new length. */
size_t node_list(char *buf, size_t size, size_t len, const char *sep, const char *item);
/** Does the error say that a data node is out of reach, and nothing about its replica? */
bool node_is_away(int rc);

/* of a pipeline; and of the replicas of a block so many are tried, the nearest */
#define LOCATED_NODES_MAX 64
/** Is the message usable? When @writable: at most LOCATED_NODES_MAX nodes (-ENOTSUP), one at least
 *  (-ENOSPC), with storage ids and types for each (-EPROTO). */
int located_check(const Hd__LocatedBlockProto *lb, bool writable, struct err *err);
/** Take node @i out of a writable block; the caller owns the returned message. */
Hd__DatanodeInfoProto *located_remove(Hd__LocatedBlockProto *lb, size_t i);
/** Node @i of @from, with its storage, becomes the last one of @to. Both are writable blocks.
 *  -ENOMEM: both are as they were. */
int located_move(Hd__LocatedBlockProto *to, Hd__LocatedBlockProto *from, size_t i);
/** Take the node out that is also @node, if it is there. */
void located_forget(Hd__LocatedBlockProto *lb, const Hd__DatanodeIDProto *node);
/** A message of its own; NULL: out of memory. */
Hd__LocatedBlockProto *located_copy(const Hd__LocatedBlockProto *lb);

#define NODE_TABLE_MAX 256 /* entries; the oldest goes first */

struct node_table {
	pthread_mutex_t lock;
	atomic_size_t count; /* changes under lock */
	struct node_note {
		char node[NET_TEXT_MAX];
		char why[160];
		uint64_t until_ns;
	} * note; /* owned; NODE_TABLE_MAX of them, made at the first entry */
};

void node_table_init(struct node_table *t);
void node_table_fini(struct node_table *t);
/** Remember @why about @node until @until_ns; out of memory forgets quietly. */
void node_table_put(struct node_table *t, const char *node, const char *why, uint64_t until_ns);
/** Is there a word about @node that holds at @now_ns? Copied to @why (may be NULL). */
bool node_table_get(struct node_table *t, const char *node, uint64_t now_ns, char *why,
		    size_t size);
void node_table_drop(struct node_table *t, const char *node);
/** Nothing was noted of any node: there is no need to ask, which takes its text and the lock. */
static inline bool node_table_is_empty(const struct node_table *t)
{
	return atomic_load_explicit(&t->count, memory_order_relaxed) == 0;
}
