/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * read_queue - ranges of files that one thread reads side by side
 *
 * Idea: the reads of a dfs_queue, which are worked at when it runs. Small reads from nodes that
 * take READ_SMALL share one connection to each node: what was begun in a turn leaves in one send,
 * and one receive takes what has been answered. Other reads have a stream each. A read that goes
 * wrong is done anew as reader_pread() does it, which waits, fails over and finds the words for
 * what is wrong.
 * Ownership: a part of a dfs_queue; readers are borrowed while their reads are under way.
 * Threading: submit and cancel from any thread; the rest by the thread that runs the queue. `lock`
 * guards the lists of calls that have come and that are there; it is not held over a system call.
 * Limits: READ_QUEUE_MAX calls; READ_QUEUE_STREAMS streams, SMALL_READS_MAX small reads of each
 * node; more wait their turn.
 */
#include "client/src/read/reader.h"
#include "common/rpc/queue.h"

#define READ_QUEUE_MAX 16384u
#define READ_QUEUE_STREAMS 32u
#define READ_QUEUE_NODES (RPC_BESIDE_FDS - READ_QUEUE_STREAMS) /* connections for small reads */

struct read_queue;

/** Works when @rpc, which outlives it, is run. -ENOMEM. */
int read_queue_new(struct dfs *fs, struct rpc_queue *rpc, struct read_queue **ret);
/** What is not over ends with -ECANCELED. Accepts NULL. */
void read_queue_free(struct read_queue *q);
/** Begin a read, as reader_pread(); bytes go to *@ret. -ENOMEM; -EAGAIN when READ_QUEUE_MAX are
 *  under way. */
int read_queue_submit(struct read_queue *q, struct reader *r, void *buf, size_t len,
		      uint64_t offset, size_t *ret, const struct dfs_then *then);
/** The reads with this dfs_then.arg end with -ECANCELED in the next run. */
void read_queue_cancel(struct read_queue *q, const void *arg);
uint32_t read_queue_count(struct read_queue *q);
