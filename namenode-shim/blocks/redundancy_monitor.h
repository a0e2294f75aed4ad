/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * redundancy_monitor - what the NameNode does without being asked, every MONITOR_TICK_MS
 *
 * Idea: the monitor takes dead nodes out, orders copies of blocks that have too few replicas, and
 * recovers the files of leases that passed the hard limit. Copies are ordered in slices: one in
 * each turn of the writer, while there are blocks to look at.
 * Threading: writer thread; monitor_tick() takes mem_lock for writing itself.
 * Source: hdfs-wire 3.7, 8.3.
 */
#include <stdbool.h>
#include <stdint.h>

struct nn;

#define MONITOR_TICK_MS 500
#define MONITOR_UNREAD_MS 10000 /* between two lines */
/* a slice of a deleted tree that did not succeed in this time is tried again */
#define MONITOR_TREE_DELETE_MS 10000

void monitor_tick(struct nn *nn);
/** Are there copies to be ordered? A slice of that; takes mem_lock itself. */
bool monitor_is_ordering(const struct nn *nn);
void monitor_order(struct nn *nn);
/** @inode cannot be read (@rc), and @op is tried again: a line, unless there was one just now. */
void monitor_log_unread(struct nn *nn, const char *op, uint64_t inode, int rc);
