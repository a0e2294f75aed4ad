/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * nn - the NameNode: one namespace on disk, one map of blocks and data nodes in memory
 *
 * Idea: a change is answered when it is on disk. Only callers who changed something wait for the
 * disk. Threads:
 *   reactor         takes calls; answers READ calls itself, from a reader's transaction (LMDB, no
 *                   lock; one for all calls of a turn) and the memory part
 *   writer          (writer_thread.c) takes all that waits in the commit queue; runs MEMORY calls
 *                   (reports, heartbeats: no disk), then all CHANGE calls in one transaction
 *   journal sync    (db/journal_sync.h) syncs the record of a transaction while the next one is
 *                   applied: group commit in two stages
 *   checkpoint copy (db/checkpoint.h) copies what a start needs, from time to time
 *   resolver, two   (rpc/resolver_thread.h) ask scripts and the directory of accounts
 *   tree walk       (rpc/tree_walk.h) goes through large trees for getContentSummary and the like
 * and those of the web port (web/http.h). When a record is on the disk the writer applies its
 * effects to memory (apply_effects.c) and answers. Others may read a change before that, as in
 * HDFS.
 * Exception: a creation or the closing of a file that asks for it (`early`) is answered when its
 * record is written, so that a kill of this process does not lose it. Its effects are applied then.
 * The disk has it before any other change is answered, and EARLY_SYNC_MS later at the latest.
 * Ownership: everything here belongs to struct nn; a request (req.h) to whoever holds it: reactor,
 * queue, writer.
 * Threading: only the writer changes dns, blocks, leases and safe, with mem_lock held for writing;
 * it reads them without the lock, other threads hold it for reading. Nobody holds mem_lock for long
 * (NN_HOLD_NS): whatever goes through all blocks or a long list does a slice in each turn of the
 * writer (blocks_sweep(), decommission_slice(), REQ_PARK of a MEMORY call). Lock order:
 * db->map_lock (held while a transaction is open) before mem_lock, as all locks of the tree in
 * common/base/lock_order.def.
 * Source: design.md section 8; hdfs-wire 3.6, 3.7, 4.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/reactor/reactor.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/cache_monitor.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/blocks/storage_policy_satisfier.h"
#include "namenode-shim/db/commit_queue.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/leases.h"
#include "namenode-shim/namespace/trash.h"
#include "namenode-shim/namespace/tree_delete.h"
#include "namenode-shim/settings.h"

#define NN_HOLD_NS 20000000ull /* longer nobody should hold mem_lock at a time */
#define NN_SLICE 4096          /* so many blocks are gone through in one hold, */
#define NN_SLICE_STEP 256      /* and after each so many of them it is asked */
#define NN_SLICE_NS 5000000ull /* whether it has lasted so long: a walk ends its slice then */

struct auth_to_local;
struct hosts;
struct resolver;
struct topology;
struct req;
struct service_acl;
struct users;
struct tree_walks;

/* How often a method was called, and how long it took until it was answered. Made at start. */
struct call_stat {
	struct call_stat *next;
	const char *name; /* static */
	atomic_uint_fast64_t calls, failures, ns;
};

struct safemode {
	bool on;
	bool manual;         /* asked for by an administrator: leaves only when asked */
	bool startup;        /* until reports are in; reached: leaves after the extension */
	uint64_t reached_ns; /* threshold reached; 0 = not */
	uint64_t total;      /* complete blocks at start */
	uint64_t left_ns;
	bool empty_start; /* there was nothing to wait for */
};

/* Requests that have ended, with their first memory, for those that come. */
struct req_pool {
	pthread_mutex_t lock;
	struct list spare; /* of req.link */
	uint32_t n;
};

/* How long mem_lock was held for writing, and how long one call kept the writer. Writer thread. */
struct holds {
	uint64_t since_ns; /* of the hold under way */
	uint64_t count, max_ns, max_run_ns;
	/* tests: also how long its thread worked, which others on the machine do not change much */
	bool with_cpu;
	uint64_t cpu_since_ns, max_cpu_ns;
};

/* What is left of a look at one line of blocks that wait for a copy, or for one to be dropped. */
struct copies_line {
	uint64_t look; /* blocks to look at */
	/* looks that may end without an order: those behind them have their turn in the next one */
	uint32_t vain;
};

/* What is left of a look at the blocks that have too few replicas, or too many. */
struct copies {
	uint64_t budget; /* orders */
	struct copies_line urgent, others, crowded, surplus;
};

struct nn {
	struct settings set;
	struct db *db;                   /* owned */
	struct users *users;             /* owned */
	struct auth_to_local *names;     /* owned */
	struct service_acl *service_acl; /* owned; NULL: everybody may call everything */
	struct txn reader;               /* reactor thread's */
	struct rop reads_end; /* linked while reader is open: it closes with the reactor's turn */

	pthread_rwlock_t mem_lock;
	struct holds holds;
	struct datanodes dns;
	struct blocks blocks;
	struct leases leases;
	struct cache_monitor cache;
	struct safemode safe;
	atomic_uint_fast64_t inodes;              /* metric */
	char ec_enabled[ECPOL_MAX * EC_NAME_MAX]; /* names of the erasure-coding policies enabled */
	struct hosts *hosts;                      /* owned */
	struct topology *topology;                /* owned */
	struct resolver *resolver; /* owned, from nn_start() to nn_stop(): what requests wait for */
	/* any thread: run a READ on the reactor; set with the port */
	void (*read_later)(struct req *q);
	struct reactor *reactor;       /* borrowed; NULL until the port is open */
	struct tree_walks *tree_walks; /* owned; while the writer runs */
	struct call_stat *calls;       /* owned list; complete before the port opens */
	uint64_t start_ms, start_ns;
	uint16_t rpc_port; /* as bound */
	/* as dfsadmin -restoreFailedStorage left it; there is one directory */
	bool restore_storage;

	struct commit_queue commit_queue; /* what waits for the writer */
	struct req_pool reqs;

	/* writer thread only */
	pthread_t writer;
	bool writer_runs;
	struct list parked; /* requests that wait (req_wait) */
	/* Deletes below a quota whose names go still. They are answered then, or in safe mode. */
	struct list deleting;
	bool tree_delete_under_way; /* deleted trees are removed slice by slice (tree_delete.h) */
	bool tree_delete_next;      /* the next slice is to be submitted */
	uint64_t tree_delete_ns;    /* when a slice was submitted last */
	uint64_t tree_delete_turn;  /* the tree that a slice was removed of last */
	struct tree_delete_broken tree_delete_broken;
	struct list unfinished; /* MEMORY requests that make a slice in each turn */
	struct copies copies;
	struct blk_cursor leaving_cursor; /* open while blocks of leaving nodes are counted */
	uint64_t leaving_asked;           /* blocks.asked when that began */
	const struct list *batch;         /* the changes of this transaction; NULL between two */
	uint32_t early; /* changes that were answered before they are on the disk */
	/* requests of the one before it, whose record is not on the disk yet: answers and effects
	 * wait */
	struct list unsynced;
	struct trash_round trash;
	struct hosts *hosts_next; /* owned: read, not in force yet */
	struct satisfier satisfy;
	/* its own reader, for what the monitor asks of the namespace; without mem_lock */
	struct txn look;
	struct log_rate unread; /* of the line that it cannot be read */
	uint64_t next_tick_ns, next_redundancy_ns, next_leaving_ns;
	uint64_t commit_began_ns, commit_next_ns; /* of what is unsynced, and of what is next */
	uint64_t txid;
};

/** Open the name directory and build memory from it. Takes what @set owns, also on failure. */
int nn_new(const struct settings *set, struct nn **ret, struct err *err);
/** Start the writer thread. */
int nn_start(struct nn *nn);
/** Finish what is queued and stop the writer. */
void nn_stop(struct nn *nn);
/** Accepts NULL. */
void nn_free(struct nn *nn);
/** The time of day as it would be had nobody moved the clock since the start: for what must neither
 *  expire at once nor stay for ever. Milliseconds. Any thread. */
uint64_t nn_steady_ms(const struct nn *nn);
/** Any thread: give @q to the writer. */
void nn_submit(struct nn *nn, struct req *q);
/** Writer thread: hold mem_lock for writing. How long it is held is in the metrics. */
void nn_lock(struct nn *nn);
void nn_unlock(struct nn *nn);
/** Holding it: is it time to give it back? */
bool nn_slice_is_over(const struct nn *nn);
/** The same of a walk through a list, in steps: @done of them were made in this hold. */
bool nn_slice_is_done(const struct nn *nn, uint32_t done);
/** Writer thread: req_run(), timed. */
void nn_run(struct nn *nn, struct req *q);
/** Writer thread: was inode @id given to a writer by a change of this batch before @q? Memory
 *  (leases, blocks) learns of that only after the commit. */
bool nn_leased_in_batch(const struct nn *nn, const struct req *q, uint64_t id);
/** Likewise: was satisfyStoragePolicy of inode @id asked for in this batch? */
bool nn_satisfied_in_batch(const struct nn *nn, const struct req *q, uint64_t id);
/** Likewise: does recovery of block @id begin in this batch? */
bool nn_recovered_in_batch(const struct nn *nn, const struct req *q, int64_t id);
/** Writer thread, mem_lock held for writing: leave or keep startup safe mode as reports come in. */
void nn_check_safe_mode(struct nn *nn);
/** The tip of SafeModeException, "The reported blocks ..."; @buf of ERR_TEXT_MAX. mem_lock held. */
const char *nn_safe_text(const struct nn *nn, char *buf);
/** Writer thread, mem_lock held for writing: @dn is dead or replaced. */
void nn_dn_lost(struct nn *nn, struct dn *dn, const char *why);
/** The same, and @dn is removed; freed when no block names it any more. */
void nn_dn_forget(struct nn *nn, struct dn *dn, const char *why);
/** The counter of @method, made if there is none. Start only. */
struct call_stat *call_stats_get(struct call_stat **list, const char *method);
/** NULL: there is none. */
struct call_stat *call_stats_find(struct call_stat *list, const char *method);
