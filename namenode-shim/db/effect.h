/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * effect - what a namespace change means for memory, once it is on disk
 *
 * Idea: while a transaction may still fail, nothing in memory moves. A change writes its records
 * and leaves a list of effects; after the commit the writer thread applies them to block map and
 * leases, in order. A failed commit drops the lists, and memory never knew.
 * Reports and registrations are taken while a change is under way, and may end a data node: an
 * effect names storages by struct storage_ref, which is resolved when it is applied. What is gone
 * then is left out.
 * Ownership: list and strings live in the arena of the call.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/block.h"

struct ec_policy;
struct storage_ref;

#define NO_TRUNCATE UINT64_MAX

enum effect_kind {
	EFFECT_BLOCK_ADD,      /* a new last block: b, inode, repl, targets */
	EFFECT_BLOCK_COMMIT,   /* client stated length and stamp of b */
	EFFECT_BLOCK_PIPELINE, /* new stamp, length and targets of an open block */
	EFFECT_BLOCK_REOPEN,   /* complete block is written again (append) */
	/* start recovery; b.gs is the recovery id, truncate_to the length wanted */
	EFFECT_BLOCK_RECOVER,
	EFFECT_BLOCK_SYNCED, /* recovery ended: b, targets hold it finalized */
	/* its file is closed: no client commits, recovers or waits for b any more */
	EFFECT_BLOCK_CLOSED,
	EFFECT_BLOCK_REPL,   /* replication is now repl */
	EFFECT_BLOCK_REMOVE, /* delete its replicas */
	EFFECT_BLOCK_OWNER,  /* is now of inode, with replication repl (concat) */
	EFFECT_LEASE_ADD,    /* holder writes inode */
	EFFECT_LEASE_DEL,
	EFFECT_INODES,   /* delta inodes more (metric) */
	EFFECT_POLICIES, /* holder: names of the erasure-coding policies enabled now */
	/* the tree below inode is removed in slices; delta: quotas are charged for it */
	EFFECT_TREE_DELETE,
	/* a slice of the tree of turn is removed; inode: of the tree that is gone with it, or 0;
	 * delta: there is more */
	EFFECT_TREE_DELETE_SLICE,
	EFFECT_TREE_DELETE_BROKEN, /* the rest of the tree of inode cannot be read */
	EFFECT_SATISFY,            /* the replicas of inode are to go where its policy wants them */
	EFFECT_HOSTS,              /* nn->hosts_next is in force now */
	EFFECT_CACHE,              /* pools or directives of caching: they are looked at anew */
};

/* A node that a writer names and that is not known, or that disk of it: it has not registered since
 * this process began, or not sent a heartbeat. */
struct effect_away {
	const char *node, *storage;
	uint8_t unit; /* of a group; else 0 */
};

struct effect {
	struct effect *next;
	enum effect_kind kind;
	struct block b;
	uint64_t inode;
	uint16_t repl;
	int64_t delta;
	uint64_t turn;        /* EFFECT_TREE_DELETE_SLICE */
	uint64_t truncate_to; /* NO_TRUNCATE: recovery keeps what the replicas agree on */
	const char *holder;
	const struct ec_policy *ec; /* EFFECT_BLOCK_ADD: of a group */
	const uint8_t *units;       /* of a group: what each target holds; NULL: 0, 1, 2, ... */
	struct storage_ref *targets;
	uint32_t ntargets;
	struct effect_away *away; /* EFFECT_BLOCK_PIPELINE */
	uint32_t naway;
	/* EFFECT_BLOCK_ADD: so many bytes were promised on each target, and when */
	uint64_t room, room_ns;
};

struct effect_list {
	struct effect *first, **last;
	uint32_t kinds; /* set of EFFECT_BIT() that are in it */
};
#define EFFECT_BIT(kind) (1u << (kind))

/** Something new and nothing else: if it never reaches the disk, nothing was taken from anybody. */
bool effects_only_add(const struct effect_list *l);
/** A file is closed and nothing else: if it never reaches the disk, the file is open again with all
 * of its blocks. */
bool effects_only_close(const struct effect_list *l);
