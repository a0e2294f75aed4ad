/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * redundancy_monitor - what the NameNode does on its own: every MONITOR_TICK_MS, on the writer
 * thread
 *
 * Idea: dead nodes are taken out, blocks with too few replicas are copied (slices of
 * that run in each turn of the writer while there are any), leases that passed the hard limit are
 * recovered.
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
