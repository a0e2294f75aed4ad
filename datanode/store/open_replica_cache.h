/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * open_replica_cache - files of finalized replicas that stay open from one read to the next
 *
 * Idea: a read of 4 KiB is over sooner than the two files that it needs are opened, and opening may
 * block, so that it takes a helper thread there and back. What was opened once is kept for the next
 * reader, the least recently used goes first (dfs.rdma.open.replicas of them), and a reactor takes
 * it without a helper thread.
 * The table is never stale: a replica is in it only while it is FINALIZED and nobody changes it.
 * Whoever is about to change, move or delete its files claims it (replica_claim_locked()) or takes
 * it out of the map, and both drop it here first, under the pool lock; a reader adds files under
 * the same lock, when the replica still is what they were opened as.
 * Files that somebody else removed or replaced have no name left, which is looked at before each
 * use.
 * Ownership: a table of the store; files are counted. The last reference to dropped files closes
 * them.
 * Threading: any thread. The table's lock is the innermost one and is not held over a system call.
 * open_replica_get(), open_replica_put_now() and open_replica_put_later() close nothing, so they
 * are for reactors too.
 * Units: the bound counts replicas, of up to three descriptors each.
 */
#include <pthread.h>
#include <stdint.h>
#include <uthash.h>

#include "common/base/block.h"
#include "common/base/crc.h"
#include "common/base/list.h"
#include "datanode/store/replica_key.h"

#define OPEN_REPLICA_VOLUMES 64

struct open_replica_files { /* constant but for what is private */
	struct replica_key key;
	struct block block;
	char storage_uuid[BLOCK_UUID_MAX];
	enum crc_type crc_type;
	uint32_t bytes_per_crc, last_crc;
	bool crc_held;              /* last_crc is: partial_crc of struct replica_reader */
	int fd, fd_direct, fd_meta; /* as of struct replica_reader */
	uint32_t dio_align, volume;
	bool locked;
	uint64_t cut_gs, cut_to; /* of the replica; 0: it was not cut */
	/* its file system is not this kernel's own: an fstat() may wait for a peer */
	bool remote;
	uint32_t refs; /* private, as these three are: of readers, and one of the table */
	bool in_table;
	struct list link;
	UT_hash_handle hh;
};

struct open_replica_cache {
	pthread_mutex_t lock;
	struct open_replica_files *table;
	struct list used; /* all of the table; the most recently used are last */
	/* out of the table and of no reader: for open_replica_reap() */
	struct list closing[OPEN_REPLICA_VOLUMES];
	uint32_t count, max; /* max 0: nothing is kept */
};

/** @max: replicas; fewer where the limit of open files (RLIMIT_NOFILE) is low: they take a quarter
 * of it at most. */
int open_replica_init(struct open_replica_cache *c, uint32_t max);
/** Closes all; no reader is left. */
void open_replica_fini(struct open_replica_cache *c);
/** The files of that replica, with a reference, or NULL. @now: the caller is a reactor: not those
 * that are remote. */
struct open_replica_files *open_replica_get(struct open_replica_cache *c, struct block_pool *bp,
					    int64_t id, bool now);
/** Keep @f, which a reader has opened and goes on using: takes its descriptors, the reader holds a
 *  reference. Pool lock held; open_replica_reap() is to follow without it. False: there are some
 *  already, or nothing is kept. */
bool open_replica_add(struct open_replica_cache *c, struct open_replica_files *f);
/** No new reader gets them. Pool lock held, so they are closed by the next open_replica_reap() of
 * the volume. */
void open_replica_drop(struct open_replica_cache *c, struct block_pool *bp, int64_t id);
void open_replica_put(struct open_replica_cache *c, struct open_replica_files *f);
/** The same unless that would close files: then false, and nothing is done. */
bool open_replica_put_now(struct open_replica_cache *c, struct open_replica_files *f);
/** The same; what it would close, open_replica_reap() does. */
void open_replica_put_later(struct open_replica_cache *c, struct open_replica_files *f);
/** Close what was dropped, had to make room, or was found without a name: of this volume alone, for
 * whoever waits for its disk. */
void open_replica_reap(struct open_replica_cache *c, uint32_t volume);
