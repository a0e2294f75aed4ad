/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * satisfy - replicas go to the storage types that the policy of their file wants
 *
 * Idea: satisfyStoragePolicy puts a file or directory into a line. A few files of it are looked at each time
 * the monitor runs: where a replica is on a type that is not wanted, and a node has room on one that
 * is, a copy is ordered there, and when it has arrived the other one goes. Directories are gone through while
 * the line is short. A file leaves the line when all is well, when it is gone, or when nothing could be done for
 * SATISFY_LOOKS looks, or what was done was of no use. Repairs come first: no more copies are ordered of a node than it can begin
 * at a time. What was asked for is marked on disk (XATTR_SATISFY) until all that stood
 * in line for it has left: a start goes on with it.
 * Ownership: nn->satisfy. Threading: writer thread.
 * Source: HDFS Archival Storage guide (storage policy satisfier).
 */
#include <stdint.h>

#include "common/base/list.h"

#define SATISFY_MAX 1000000 /* in line; more is refused */
#define SATISFY_FILES 256   /* looked at in one look */
#define SATISFY_ENTRIES 1000 /* of a directory in one look */
#define SATISFY_BLOCKS 4096 /* fewer files when they have more of these */
#define SATISFY_NS 100000000ull /* no further file after so long: their inodes may have to be read from a slow disk */
#define SATISFY_PLACES 64   /* searched for in one look: each may go through all nodes */
#define SATISFY_LOOKS 600
#define SATISFY_COPIES 4 /* of each replica of a file: more are of no use */

struct method;
struct nn;
struct satisfy_ask;
struct satisfy_item;

struct satisfy {
	struct list files, dirs; /* of struct satisfy_item, owned */
	struct satisfy_item *table; /* the same by inode: each is in line once */
	struct satisfy_ask *asked; /* by inode, owned: what was asked for, and has something in line */
	struct list done;          /* of satisfy_ask, owned: all has left the line since the last look */
	uint32_t n, ndirs; /* in both, in dirs */
};

void satisfy_init(struct satisfy *s);
void satisfy_fini(struct satisfy *s);
/** A file or directory that is marked. If it is in line it begins anew. */
void satisfy_add(struct satisfy *s, uint64_t inode);
/** One look; takes nn->mem_lock itself. */
void satisfy_look(struct nn *nn, uint64_t now);
/** Internal change: what was asked for inode arg is done, and its mark goes. */
extern const struct method satisfied_method;
