/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * written - a file being written: what contiguous and striped writers have in common
 *
 * Idea: file.c writes to one of these, whatever is behind it: one caller at a time, and the first failure
 * is kept and ends everything. And both kinds make the same calls to the NameNode in the same order:
 * addBlock with the block before, updateBlockForPipeline and updatePipeline when nodes fail, fsync,
 * complete. Here they are, with their patience and what an exception means to a person. For a striped
 * file "block" is the group: its id, the current stamp and its data bytes.
 * Ownership: embedded in a writer.
 * Threading: the functions of a file are for any thread; `lock` serialises them and the keeper. All others
 * are called with the lock held.
 * Source: hdfs-wire 3.4, 3.6, 8.1.
 */
#include "client/src/blamed.h"
#include "client/src/fs.h"
#include "client/src/keeper.h"
#include "common/erasure/policy.h"
#include "hdfs.pb-c.h"

struct loan;
struct written;

/** What a writer does, the lock held (but for free). */
struct write_ops {
	/** A caller comes in at @now_ns: the patience with nodes counts from here. */
	void (*enter)(struct written *f, uint64_t now_ns);
	/** Some of the @len > 0 bytes: how many. @loan: they may stay where they are; NULL: they are copied. */
	ssize_t (*write_some)(struct written *f, const void *buf, size_t len, struct loan *loan, struct err *err);
	int (*flush)(struct written *f, uint32_t flags, struct err *err);
	int (*close)(struct written *f, struct err *err);
	/** Signs of life to nodes that heard nothing for long; never waits. */
	void (*keep_alive)(struct written *f, uint64_t now_ns);
	void (*free)(struct written *f);
};

struct written {
	const struct write_ops *ops;
	struct kept kept; /* on the keeper's list */
	pthread_mutex_t lock;
	uint64_t length; /* bytes accepted from the caller, with those of a file that is appended to */
	int rc;          /* first failure; final */
	struct err err;  /* and its sentence */
	bool refused;    /* the NameNode refused a block, and all that was taken is in finished ones */
	struct dfs *fs; /* borrowed (outlives its files) */
	char *path;     /* owned */
	uint64_t file_id;
	bool no_local;
	Hd__ExtendedBlockProto block; /* pool borrowed from pool_id; stamp now; numBytes unused */
	char *pool_id;         /* owned; of the current or last block */
	bool has_block;        /* block names a finished or open block: `previous` of addBlock */
	bool early;            /* the NameNode's disk may not have the file yet */
	bool close_early;      /* complete() need not wait for that disk */
	bool no_hsync;         /* nobody will hsync it: its blocks need not be on disk when they end */
	bool spare_unit;       /* no block group without a unit to spare */
	bool after_early;      /* appended to: the block before may have been finished with close_early, and not be on disk */
	bool has_unused;       /* the NameNode has added a first block, and nothing was done with it yet */
	uint64_t block_len;    /* bytes of the block: final for `previous` */
	struct blamed blamed;  /* nodes not to be offered again */
	bool node_refused;     /* one of them has answered, and refused: it is there */
};

/* ---- for file.c ---- */

/** All of @buf: @len, or -errno. */
ssize_t written_write(struct written *f, const void *buf, size_t len, struct err *err);
/** The same of bytes that stay where they are until @done(@arg), which is called once, whatever becomes of them. */
ssize_t written_lend(struct written *f, const void *buf, size_t len, void (*done)(void *arg), void *arg, struct err *err);
/** @flags: enum dfs_sync_flags. */
int written_flush(struct written *f, uint32_t flags, struct err *err);
/** Finish the file at the NameNode. written_free() must follow, whatever it returns. When a write failed because
 *  a block was refused (a quota, say) the file ends with what was taken before, and this is that failure. */
int written_close(struct written *f, struct err *err);
uint64_t written_length(struct written *f);
/** Accepts NULL. */
void written_free(struct written *f);

/* ---- for writers ---- */

/** The policy of a file that is to be written, by its status: *@ret with k 0 when @m is NULL.
 *  -EBADMSG, -ENOTSUP: not by us. */
int written_policy(const Hd__ErasureCodingPolicyProto *m, const char *path, struct ec_policy *ret,
		  struct err *err);

/** @path is copied; the keeper knows the file from now on. -ENOMEM, or keeper_add()'s error.
 *  written_fini() is safe after a failure. */
int written_init(struct written *f, const struct write_ops *ops, struct dfs *fs, const char *path,
		 uint64_t file_id, bool no_local, struct err *err);
void written_fini(struct written *f);

/** The block as requests name it, with @len. */
Hd__ExtendedBlockProto written_block_at(const struct written *f, uint64_t len);
/** @b, copied, is the block from now on. */
int written_set_block(struct written *f, const Hd__ExtendedBlockProto *b, struct err *err);
/** Takes @node, which is not to be offered again for a while; @silent: it was waited for. -ENOMEM. */
int written_blame(struct written *f, Hd__DatanodeInfoProto *node, bool silent, struct err *err);

/** What a node that was spoken to directly failed with: is that an answer of it? */
void written_heard(struct written *f, int rc);

/** A block behind the current one, which ends with block_len bytes. */
int written_add_block(struct written *f, Hd__LocatedBlockProto **ret, struct err *err);
void written_abandon(struct written *f, Hd__ExtendedBlockProto *b);
/** One more node for the pipeline @lb, of which @len bytes are acknowledged; *@ret has them all. */
int written_additional(struct written *f, const Hd__LocatedBlockProto *lb, uint64_t len,
		       Hd__LocatedBlockProto **ret, struct err *err);
/** A new stamp: the replica of a node that comes back with the old one is stale from now on. */
int written_new_stamp(struct written *f, uint64_t len, Hd__LocatedBlockProto **ret, struct err *err);
/** Stamp @gs is in force on @nodes: @n of them, with their storages. The block gets it, too. */
int written_update_pipeline(struct written *f, uint64_t len, uint64_t gs,
			    Hd__DatanodeIDProto **nodes, char **storages, size_t n,
			    struct err *err);
/** The last block exists, @len bytes of it. */
int written_fsync(struct written *f, uint64_t len, struct err *err);
/** The hsync of a file that was appended to: what this handle closed early before is on disk. A failure passes. */
int written_sync_before(struct written *f, struct err *err);
/** Does this writer still hold the lease? An fsync without a length, which changes nothing. */
int written_check_lease(struct written *f, struct err *err);
/** complete(), polled until the last block has been reported. */
int written_complete(struct written *f, struct err *err);
/** End the lease of a file whose last block is empty and has no nodes: the NameNode drops that block and
 *  closes the file, wherever it is by now. Polled likewise. -ESTALE: the lease is not ours any more; -EACCES:
 *  HDFS wants the right to write the file for this, which its writer need not have (any more). */
int written_release(struct written *f, struct err *err);
