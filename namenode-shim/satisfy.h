/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * satisfy - replicas go to the storage types that the policy of their file wants
 *
 * Idea: satisfyStoragePolicy puts a file or directory into a line. A few files of it are looked at each time
 * the monitor runs: where a replica is on a type that is not wanted, and a node has room on one that
 * is, a copy is ordered there, and when it has arrived the other one goes. Directories are gone through while
 * the line is short. A file leaves the line when all is well, when it is gone, or when nothing could be done for
 * SATISFY_LOOKS looks, or what was done was of no use. The line is not on disk: after a restart it is asked for again.
 * Ownership: nn->satisfy. Threading: writer thread.
 * Source: HDFS Archival Storage guide (storage policy satisfier).
 */
#include <stdint.h>

#include "common/base/list.h"

#define SATISFY_MAX 1000000 /* in line; what is asked for then is dropped, with a line in the log */
#define SATISFY_FILES 256   /* looked at in one look */
#define SATISFY_ENTRIES 1000 /* of a directory in one look */
#define SATISFY_BLOCKS 4096 /* fewer files when they have more of these */
#define SATISFY_PLACES 64   /* searched for in one look: each may go through all nodes */
#define SATISFY_LOOKS 600
#define SATISFY_COPIES 4 /* of each replica of a file: more are of no use */

struct nn;
struct satisfy_item;

struct satisfy {
	struct list files, dirs; /* of struct satisfy_item, owned */
	struct satisfy_item *table; /* the same by inode: each is in line once */
	uint32_t n, ndirs; /* in both, in dirs */
};

void satisfy_init(struct satisfy *s);
void satisfy_fini(struct satisfy *s);
/** A file or directory. If it is in line it begins anew. */
void satisfy_add(struct satisfy *s, uint64_t inode);
/** One look; takes nn->mem_lock itself. */
void satisfy_look(struct nn *nn, uint64_t now);
