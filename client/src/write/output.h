/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * output - a file being written: what contiguous and striped writers have in common
 *
 * Idea: file.c writes to one of these, whatever is behind it: one caller at a time, and the first
 * failure is kept and ends everything. And both kinds make the same calls to the NameNode in the
 * same order: addBlock with the block before, updateBlockForPipeline and updatePipeline when nodes
 * fail, fsync, complete. Here they are, with their patience and what an exception means to a
 * person. For a striped file "block" is the group: its id, the current stamp and its data bytes.
 * Ownership: embedded in a writer.
 * Threading: the functions of a file are for any thread; `lock` serialises them and the
 * housekeeper. All others are called with the lock held.
 * Source: hdfs-wire 3.4, 3.6, 8.1.
 */
#include "client/src/fs/fs.h"
#include "client/src/fs/housekeeper.h"
#include "client/src/write/suspect_nodes.h"
#include "common/erasure/policy.h"
#include "hdfs.pb-c.h"

struct loan;
struct output;

/** What a writer does, the lock held (but for free). */
struct write_ops {
	/** A caller comes in at @now_ns: the patience with nodes counts from here. */
	void (*enter)(struct output *f, uint64_t now_ns);
	/** Some of the @len > 0 bytes: how many. @loan: they may stay where they are; NULL: they
	 * are copied. */
	ssize_t (*write_some)(struct output *f, const void *buf, size_t len, struct loan *loan,
			      struct err *err);
	int (*flush)(struct output *f, uint32_t flags, struct err *err);
	int (*close)(struct output *f, struct err *err);
	/** Signs of life to nodes that heard nothing for long; never waits. */
	void (*keep_alive)(struct output *f, uint64_t now_ns);
	void (*free)(struct output *f);
};

struct output {
	const struct write_ops *ops;
	struct housekept kept; /* on the housekeeper's list */
	pthread_mutex_t lock;
	/* bytes accepted from the caller, with those of a file that is appended to */
	uint64_t length;
	int rc;         /* first failure; final */
	struct err err; /* and its sentence */
	/* the NameNode refused a block, and all that was taken is in finished ones */
	bool refused;
	struct dfs *fs; /* borrowed (outlives its files) */
	char *path;     /* owned */
	uint64_t file_id;
	bool no_local;
	Hd__ExtendedBlockProto block; /* pool borrowed from pool_id; stamp now; numBytes unused */
	char *pool_id;                /* owned; of the current or last block */
	bool has_block;   /* block names a finished or open block: `previous` of addBlock */
	bool early;       /* the NameNode's disk may not have the file yet */
	bool close_early; /* complete() need not wait for that disk */
	/* nobody will hsync it: its blocks need not be on disk when they end */
	bool no_hsync;
	bool spare_unit; /* no block group without a unit to spare */
	/* appended to: the block before may have been finished with close_early, and not be on disk
	 */
	bool after_early;
	/* the NameNode has added a first block, and nothing was done with it yet */
	bool has_unused;
	uint64_t block_len;          /* bytes of the block: final for `previous` */
	struct suspect_nodes blamed; /* nodes not to be offered again */
	bool node_refused;           /* one of them has answered, and refused: it is there */
};

/* ---- for file.c ---- */

/** All of @buf: @len, or -errno. */
ssize_t output_write(struct output *f, const void *buf, size_t len, struct err *err);
/** The same of bytes that stay where they are until @done(@arg), which is called once, whatever
 * becomes of them. */
ssize_t output_lend(struct output *f, const void *buf, size_t len, void (*done)(void *arg),
		    void *arg, struct err *err);
/** @flags: enum dfs_sync_flags. */
int output_flush(struct output *f, uint32_t flags, struct err *err);
/** Finish the file at the NameNode. output_free() must follow, whatever it returns. When a write
 *  failed because a block was refused (a quota, say) the file ends with what was taken before, and
 *  this is that failure. */
int output_close(struct output *f, struct err *err);
uint64_t output_length(struct output *f);
/** Accepts NULL. */
void output_free(struct output *f);

/* ---- for writers ---- */

/** The policy of a file that is to be written, by its status: *@ret with k 0 when @m is NULL.
 *  -EBADMSG, -ENOTSUP: not by us. */
int output_policy(const Hd__ErasureCodingPolicyProto *m, const char *path, struct ec_policy *ret,
		  struct err *err);

/** @path is copied; the housekeeper knows the file from now on. -ENOMEM, or housekeeper_add()'s
 *  error. output_fini() is safe after a failure. */
int output_init(struct output *f, const struct write_ops *ops, struct dfs *fs, const char *path,
		uint64_t file_id, bool no_local, struct err *err);
void output_fini(struct output *f);

/** The block as requests name it, with @len. */
Hd__ExtendedBlockProto output_block_at(const struct output *f, uint64_t len);
/** @b, copied, is the block from now on. */
int output_set_block(struct output *f, const Hd__ExtendedBlockProto *b, struct err *err);
/** Takes @node, which is not to be offered again for a while; @silent: it was waited for. -ENOMEM.
 */
int output_blame(struct output *f, Hd__DatanodeInfoProto *node, bool silent, struct err *err);

/** What a node that was spoken to directly failed with: is that an answer of it? */
void output_heard(struct output *f, int rc);

/** A block behind the current one, which ends with block_len bytes. */
int output_add_block(struct output *f, Hd__LocatedBlockProto **ret, struct err *err);
void output_abandon(struct output *f, Hd__ExtendedBlockProto *b);
/** One more node for the pipeline @lb, of which @len bytes are acknowledged; *@ret has them all. */
int output_additional(struct output *f, const Hd__LocatedBlockProto *lb, uint64_t len,
		      Hd__LocatedBlockProto **ret, struct err *err);
/** A new stamp: the replica of a node that comes back with the old one is stale from now on. */
int output_new_stamp(struct output *f, uint64_t len, Hd__LocatedBlockProto **ret, struct err *err);
/** Stamp @gs is in force on @nodes: @n of them, with their storages. The block gets it, too. */
int output_update_pipeline(struct output *f, uint64_t len, uint64_t gs, Hd__DatanodeIDProto **nodes,
			   char **storages, size_t n, struct err *err);
/** The last block exists, @len bytes of it. */
int output_fsync(struct output *f, uint64_t len, struct err *err);
/** The hsync of a file that was appended to: what this handle closed early before is on disk. A
 * failure passes. */
int output_sync_before(struct output *f, struct err *err);
/** Does this writer still hold the lease? An fsync without a length, which changes nothing. */
int output_check_lease(struct output *f, struct err *err);
/** complete(), polled until the last block has been reported. */
int output_complete(struct output *f, struct err *err);
/** End the lease of a file whose last block is empty and has no nodes: the NameNode drops that
 *  block and closes the file, wherever it is by now. Polled likewise. -ESTALE: the lease is not
 *  ours any more; -EACCES:
 *  HDFS wants the right to write the file for this, which its writer need not have (any more). */
int output_release(struct output *f, struct err *err);
