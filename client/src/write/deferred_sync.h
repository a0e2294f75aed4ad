/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * deferred_sync - last blocks of files that were closed early (DFS_CREATE_CLOSE_EARLY), until their
 * nodes' disks have them
 *
 * Idea: our data nodes acknowledge such a block when it is finished, and sync it within 100 ms,
 * together with others (docs/design/005-store.md). With this promise each node sends a number. A
 * caller that must know asks all nodes: SYNC_LATER is answered when all blocks that were finished
 * before it are on the disk. A node that has restarted meanwhile sees that by the number, and syncs
 * what it had finished before; if its machine has, too, that is lost, and it says so. So only the
 * nodes of a block are remembered: blocks of the same nodes are one entry.
 * A node out of reach may have lost its replica, as in a pipeline: the others count. When none of a
 * block's nodes can be reached, callers get an error until one can, or for ten minutes; when a node
 * says that it could not sync, one caller gets the error.
 * An entry knows the files of its blocks as long as they are few: a caller that asks about one file
 * waits for its nodes alone, and gets errors about it alone.
 * Ownership: part of struct dfs.
 * Threading: any thread; the lock is a leaf.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "hdfs.pb-c.h"

#define LATE_SETS_MAX 256 /* of nodes; more are asked at once */

struct dfs;

/** Files, by their ids. */
struct deferred_sync_files {
	uint64_t *id; /* owned */
	size_t n, cap;
	uint64_t max; /* no id of them is higher */
	/* too many to remember: all up to max may be among them, but those of the list */
	bool all;
};

struct deferred_sync {
	pthread_mutex_t lock;
	pthread_cond_t asked;
	unsigned asking; /* so many do now */
	struct list sets;
	atomic_uint count;
	/* a block is not on the disk for sure, and nobody was told; of one of these: */
	atomic_bool lost;
	struct deferred_sync_files lost_files;
};

void deferred_sync_init(struct deferred_sync *l);
void deferred_sync_fini(struct deferred_sync *l);

/** A block of @file was finished by the nodes of @lb, the first @n of which have said @later. Takes
 * @lb. */
void deferred_sync_add(struct dfs *fs, uint64_t file, Hd__LocatedBlockProto *lb,
		       const uint64_t *later, size_t n);
/** All that was added before is on the disk of its nodes. -ETIMEDOUT and the like: nodes are out of
 * reach; -EIO, once. */
int deferred_sync_settle(struct dfs *fs, struct err *err);
/** The same of the blocks of @file alone. */
int deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err);
/** As deferred_sync_settle(), with little patience; what is told once stays to be told. */
int deferred_sync_try(struct dfs *fs, struct err *err);
/** As deferred_sync_settle(), in the background: a loss is kept for the next caller that asks. */
void deferred_sync_settle_quietly(struct dfs *fs);
/** As that, of @file (0: of all) and until @until_ns at the latest. Nodes that were asked in vain
 *  before are not asked. */
void deferred_sync_settle_new(struct dfs *fs, uint64_t file, uint64_t until_ns);
