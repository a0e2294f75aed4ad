/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * storage_policy_satisfier - moves replicas to the storage types that their policy wants
 *
 * Idea: satisfyStoragePolicy puts a file or directory into a queue. Each time the monitor runs it
 * looks at a few files. Where a replica is on a type that is not wanted, and a node has room on one
 * that is, it orders a copy there; when the copy has arrived the old replica is deleted. A
 * directory is listed while the queue is short. A file leaves the queue when its policy is met,
 * when the file is gone, when nothing could be done in SATISFY_LOOKS looks, or when copies did not
 * help.
 * Repairs come first: a node is told of no more copies than it can begin at a time. A request is
 * marked on disk (XATTR_SATISFY) until everything queued for it has left, so that a start goes on
 * with it.
 * Ownership: nn->satisfy. Threading: writer thread.
 * Source: HDFS Archival Storage guide (storage policy satisfier).
 */
#include <stdint.h>

#include "common/base/list.h"

#define SATISFY_MAX 1000000  /* in line; more is refused */
#define SATISFY_FILES 256    /* looked at in one look */
#define SATISFY_ENTRIES 1000 /* of a directory in one look */
#define SATISFY_BLOCKS 4096  /* fewer files when they have more of these */
/* no further file after so long: their inodes may have to be read from a slow disk */
#define SATISFY_NS 100000000ull
#define SATISFY_PLACES 64 /* searched for in one look: each may go through all nodes */
#define SATISFY_LOOKS 600
#define SATISFY_COPIES 4 /* of each replica of a file: more are of no use */

struct method;
struct nn;
struct satisfier_ask;
struct satisfier_item;

struct satisfier {
	struct list files, dirs;      /* of struct satisfier_item, owned */
	struct satisfier_item *table; /* the same by inode: each is in line once */
	/* by inode, owned: what was asked for, and has something in line */
	struct satisfier_ask *asked;
	/* of satisfier_ask, owned: all has left the line since the last look */
	struct list done;
	uint32_t n, ndirs; /* in both, in dirs */
};

void satisfier_init(struct satisfier *s);
void satisfier_fini(struct satisfier *s);
/** A file or directory that is marked. If it is in line it begins anew. */
void satisfier_add(struct satisfier *s, uint64_t inode);
/** One look; takes nn->mem_lock itself. */
void satisfier_look(struct nn *nn, uint64_t now);
/** Internal change: what was asked for inode arg is done, and its mark goes. */
extern const struct method satisfied_method;
