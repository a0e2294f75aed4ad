/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * writer - a file being written: packets in, blocks through pipelines, recovery on the way
 *
 * Idea: dfs_write() fills packets; full ones wait in `queue`, sent ones in `unacked` until every
 * node of the pipeline has them. The calling thread moves packets out and acks in whenever it is
 * here, and waits only when the window is full, on flush and at the end of a block. A failure under
 * way puts the unacked packets back to the queue, repairs the pipeline (writer_recover()) and goes
 * on; the caller sees nothing of it.
 * Block by block: addBlock, set-up, packets, an empty last packet once all others are acked, its
 * ack. Append begins with the last block: a new stamp, set-up on the nodes that have it, packets. Of its
 * last chunk only the nodes have the beginning: packets start where it ends, and none reaches beyond
 * that chunk, until it is full (`ragged_end`).
 * Ownership: packets belong to the pool; the writer holds those in its three places (cur,
 * queue, unacked). `lb` is the pipeline: nodes that fail are moved from there to `failed`.
 * Threading: `lock` serialises everything but keeper_add()/keeper_remove().
 * Units: offsets in the block unless "file" is in the name.
 * Source: hdfs-wire 3.4, 3.6, 5.5, 5.6, 8.1.
 */
#include "client/src/fs.h"
#include "client/src/stream.h"

enum writer_stage {
	WRITER_IDLE,      /* no block open: the next byte needs addBlock */
	WRITER_REOPENING, /* the last block of a file that is appended to: its pipeline is set up */
	WRITER_STREAMING, /* pipeline up, data packets */
	WRITER_CLOSING,   /* all data acked, the last packet is on its way */
};

struct writer {
	struct dfs *fs; /* borrowed (outlives its files) */
	struct list link; /* on the keeper's list */
	pthread_mutex_t lock;
	char *path;     /* owned */
	uint64_t file_id;
	uint64_t block_size;
	uint32_t bpc;
	enum crc_type crc_type;
	uint32_t replication;
	uint32_t packet_cap;   /* data bytes of a full packet */
	uint32_t window;       /* packets in cur, queue and unacked */
	bool no_local;

	enum writer_stage stage;
	uint64_t file_done;    /* bytes in finished blocks */
	uint64_t written;      /* bytes accepted from the caller */

	Hd__LocatedBlockProto *lb; /* owned; the pipeline, NULL when idle */
	Hd__ExtendedBlockProto block; /* pool borrowed from pool_id; stamp now; numBytes unused */
	char *pool_id;         /* owned; of the current or last block */
	bool has_block;        /* block names a finished or open block: `previous` of addBlock */
	uint64_t block_len;    /* bytes of the block: final for `previous` */
	struct wstream *ws;    /* owned; NULL when idle or broken */
	uint64_t queued_end;   /* bytes handed to the queue */
	uint64_t sent_end;     /* bytes sent to the first node, by any pipeline */
	uint64_t acked_end;
	uint64_t synced_end;   /* bytes covered by an acked sync packet */
	uint64_t ragged_end;   /* append: end of the chunk whose beginning only the nodes have; or 0 */
	bool flushed;          /* hflush or hsync happened in this block: repair policy */
	bool fsync_done;       /* the NameNode knows the block of a flushed file */

	struct packet *cur;    /* being filled */
	struct list queue, unacked;
	uint32_t in_window;
	int64_t seqno;         /* of the next packet; runs on through the file */
	uint64_t sent_ns;      /* last packet that left */
	uint64_t progress_ns;  /* since when we wait in vain: last ack, send, set-up or call */
	int pending_rc;        /* the keeper found the pipeline broken: -errno, */
	int pending_bad;       /* the node to blame, */
	struct err pending_err; /* and why; the next turn repairs it */

	int64_t stuck_seqno;   /* first unacked packet at the last recovery, */
	uint32_t stuck_count;  /* and how often already */
	Hd__DatanodeInfoProto **failed; /* owned; nodes not to be offered again */
	size_t failed_count;

	int rc;                /* first failure; final */
	struct err err;        /* and its sentence */
};

struct writer_opts {
	uint64_t file_id, block_size;
	uint32_t bpc, replication;
	enum crc_type crc_type;
	bool no_local;
};

/** Takes nothing; @path is copied. -ENOMEM, or keeper_add()'s error. */
int writer_new(struct dfs *fs, const char *path, const struct writer_opts *o, struct writer **ret,
	       struct err *err);
ssize_t writer_write(struct writer *w, const void *buf, size_t len, struct err *err);
/** @flags: enum dfs_sync_flags. */
int writer_flush(struct writer *w, uint32_t flags, struct err *err);
/** Finish the file at the NameNode. writer_free() must follow, whatever it returns. */
int writer_close(struct writer *w, struct err *err);
void writer_free(struct writer *w);
uint64_t writer_length(struct writer *w);

/** From the keeper: send a heartbeat when the pipeline was quiet for long. Never waits. */
void writer_keep_alive(struct list *link, uint64_t now_ns);

/* ---- writer_block.c: blocks and pipelines; the lock is held ---- */

/** addBlock and set-up, with other nodes when some fail. Leaves STREAMING. */
int writer_open_block(struct writer *w, struct err *err);
/** Go on behind the @length bytes of a file. @lb (taken) is its last block as append() answers: NULL
 *  when there is none with room; without nodes when a new block is to follow it. For a new writer. */
int writer_reopen(struct writer *w, Hd__LocatedBlockProto *lb, uint64_t length, struct err *err);
/** The pipeline broke (@bad: index of the node to blame, @err: why). Repair it, or fail with the
 *  reason. What was unacked is in the queue again. */
int writer_recover(struct writer *w, int bad, struct err *err);
/** Tell the NameNode that the block of a flushed file exists. */
int writer_persist(struct writer *w, struct err *err);
/** complete(), polled until the last block has been reported. */
int writer_complete(struct writer *w, struct err *err);
/** Forget which nodes failed. */
void writer_forgive(struct writer *w);
/** The block is over: forget its pipeline. */
void writer_drop_block(struct writer *w);
