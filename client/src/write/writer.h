/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * writer - a file being written: packets in, blocks through pipelines, recovery on the way
 *
 * Idea: dfs_write() fills packets and gives full ones to the pipeline (pipeline.h). The calling
 * thread moves packets out and acks in whenever it is here, and waits only when the window is full,
 * on flush and at the end of a block. A failure under way puts the unacked packets back to the
 * queue, repairs the pipeline (writer_recover()) and goes on; the caller sees nothing of it.
 * Block by block: addBlock, set-up, packets, an empty last packet once all others are acked, its
 * ack. Append begins with the last block: a new stamp, set-up on the nodes that have it, packets.
 * Of its last chunk only the nodes have the beginning: packets start where it ends, and none
 * reaches beyond that chunk, until it is full (`ragged_end`).
 * A flush leaves nothing behind but the beginning of a chunk (`tail`): a quiet writer holds no
 * packet, and no memory for RDMA.
 * Ownership: the packet being filled is the writer's, all others are the pipeline's. Nodes that
 * fail are moved from the pipeline to the suspect nodes of `f`.
 * Threading: as output.h says; the lock is the file's.
 * Units: offsets in the block unless "file" is in the name.
 * Source: hdfs-wire 3.4, 3.6, 5.5, 5.6, 8.1.
 */
#include "client/src/write/output.h"
#include "client/src/write/pipeline.h"

enum writer_stage {
	WRITER_IDLE,      /* no block open: the next byte needs addBlock */
	WRITER_REOPENING, /* the last block of a file that is appended to: its pipeline is set up */
	WRITER_STREAMING, /* pipeline up, data packets */
	WRITER_CLOSING,   /* all data acked, the last packet is on its way */
};

/* The block before the one being written. */
struct finished_block {
	bool there;
	uint64_t id, gs, len;
};

struct writer {
	struct output f;      /* the file and its current block, for the NameNode */
	struct pipeline pipe; /* the packets of the block on their way */
	uint64_t block_size;
	uint32_t replication;
	uint32_t packet_cap; /* data bytes of a full packet */
	uint32_t window;     /* packets in cur and in the pipeline */

	enum writer_stage stage;
	uint64_t file_done; /* bytes in finished blocks */
	/* append: end of the chunk whose beginning only the nodes have; or 0 */
	uint64_t ragged_end;
	bool flushed;       /* hflush or hsync happened in this block: repair policy */
	bool reopened;      /* the block was begun by another writer, which may have synced it */
	bool fsync_done;    /* the NameNode knows the block of a flushed file */
	struct packet *cur; /* being filled; NULL when all that was written is queued */
	uint8_t *tail;      /* owned, made when first needed: bpc bytes */
	/* while cur is NULL: bytes of the block's last, begun chunk, which the next packet repeats
	 */
	uint32_t tail_len;
	/* owned; of the first block, which came with the file; NULL: none, or in use */
	Hd__LocatedBlockProto *first;
	struct finished_block finished; /* `previous` when the block is replaced */
	uint64_t first_ns;              /* since when we have it */

	uint32_t breaks;      /* RDMA connections that broke under this block */
	int64_t stuck_seqno;  /* first unacked packet at the last recovery, */
	uint32_t stuck_count; /* and how often already */
};

struct writer_opts {
	uint64_t file_id, block_size;
	uint32_t bpc, replication;
	enum crc_type crc_type;
	bool no_local;
};

/** Takes nothing; @path is copied. -ENOMEM, or housekeeper_add()'s error. */
int writer_new(struct dfs *fs, const char *path, const struct writer_opts *o, struct writer **ret,
	       struct err *err);
/** Takes @lb (may be NULL), which the NameNode added when it made the file. For a new writer. */
void writer_give_first(struct writer *w, Hd__LocatedBlockProto *lb);
/* ---- writer_block.c: blocks and pipelines; the lock is held ---- */

/** addBlock and set-up, with other nodes when some fail. Leaves STREAMING. */
int writer_open_block(struct writer *w, struct err *err);
/** Go on behind the @length bytes of a file. @lb (taken) is its last block as append() answers:
 *  NULL when there is none with room; without nodes when a new block is to follow it. For a new
 *  writer. */
int writer_reopen(struct writer *w, Hd__LocatedBlockProto *lb, uint64_t length, struct err *err);
/** The pipeline broke (@bad: index of the node to blame, @err: why). Repair it, or fail with the
 *  reason. What was unacked is in the queue again. */
int writer_recover(struct writer *w, int bad, struct err *err);
/** No node has failed (pipeline_forgives()): the next packet has waited in vain for memory of this
 *  process, or the RDMA connection broke. The block goes on with the same nodes: by TCP, or, where
 *  the connection broke, as stream_open_write() chooses. With dfs.client.rdma=require memory that
 *  is short is an error, and nothing is lost by it. */
int writer_go_round(struct writer *w, struct err *err);
/** Tell the NameNode that the block of a flushed file exists. */
int writer_persist(struct writer *w, struct err *err);
/** The block is over: forget its pipeline. */
void writer_drop_block(struct writer *w);
