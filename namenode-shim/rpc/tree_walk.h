/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * tree_walk - questions about whole trees, answered without holding anybody up
 *
 * Idea: the summary of a large directory takes seconds. The reactor makes the first step of it,
 * which is the whole of it for most; what is left goes to a thread that makes a step of each walk
 * in turn, every one with a reader's transaction of its own. So a walk delays neither calls nor
 * heartbeats nor the growth of the database, and a small walk does not wait for a large one. The
 * answer about a changing tree is therefore no snapshot, as in HDFS. The map of blocks is walked in
 * the same way for the balancer.
 * Ownership: requests given to it. Threading: tree_walk_submit() from any thread.
 */
struct nn;
struct req;
struct tree_walks;

/** Its thread runs when this returns. */
int tree_walk_new(struct nn *nn, struct tree_walks **ret);
/** What is left is answered with a failure. Accepts NULL. */
void tree_walk_free(struct tree_walks *w);
/** A READ that answered REQ_PARK: its method is run until it does not. It may look at what mem_lock
 *  guards only if it has REQ_MEM; the lock is given back after each step, before the answer leaves.
 *  Or it takes the lock itself (REQ_LOCKS): the writer waits for the lock, so it is not held while
 *  the disk is read. */
void tree_walk_submit(struct tree_walks *w, struct req *q);
