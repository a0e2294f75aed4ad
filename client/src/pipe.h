/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * pipe - the packets of one block on their way through one pipeline
 *
 * Idea: packets wait in `queue` until the stream takes them and in `unacked` until every node of the
 * pipeline has them. Whoever writes the block moves them with pipe_pump() and waits with pipe_wait();
 * what is to be done about a failure is the writer's business, who may put the unacked packets back
 * with pipe_requeue() and open a new stream. A contiguous file has one pipe, a striped one a pipe
 * for each unit.
 * Ownership: the pipe owns its stream and its packets. Packets being filled belong to the writer, but
 * count in the window. `lb`, the nodes, is the writer's.
 * Threading: under the writer's lock.
 * Units: offsets in the block.
 * Source: hdfs-wire 5.5, 5.6.
 */
#include "client/src/fs.h"
#include "client/src/stream.h"

struct pipe {
	struct dfs *fs; /* borrowed (outlives its files) */
	Hd__LocatedBlockProto *lb; /* the writer's; the pipeline, NULL when there is no block */
	struct wstream *ws;    /* owned; NULL when not open or broken */
	bool opening;          /* ws is being set up, */
	uint64_t open_until_ns; /* and has time until then */
	enum crc_type crc_type;
	uint32_t bpc;
	bool run_ahead;        /* packets are sent while it is set up, which the stream can: a failure then is the writer's to mend */
	bool by_tcp, sync_later; /* as write_setup */
	bool closing;          /* the last packet was queued */

	uint64_t queued_end;   /* bytes handed to the queue */
	uint64_t sent_end;     /* bytes sent to the first node, by any stream */
	uint64_t acked_end;
	uint64_t synced_end;   /* bytes covered by an acked sync packet */

	struct list queue, unacked;
	uint32_t in_window;    /* packets in queue, in unacked and being filled */
	int64_t seqno;         /* of the next packet; runs on from block to block */
	uint64_t sent_ns;      /* last packet that left */
	uint64_t progress_ns;  /* since when we wait in vain: last ack, first send after it, set-up or call */
	uint64_t in_line_since_ns; /* send() has waited for memory of this process since then; 0: it does not */
	int pending_rc;        /* the keeper found the pipeline broken: -errno, */
	int pending_bad;       /* the node to blame, */
	struct err pending_err; /* and why; pipe_pump() tells the writer */
};

void pipe_init(struct pipe *p, struct dfs *fs, enum crc_type crc_type, uint32_t bpc);
/** Gives all packets back; the stream is closed. */
void pipe_fini(struct pipe *p);
/** The block is over: the stream goes, offsets begin anew. The queues are as they were. */
void pipe_reset(struct pipe *p);
void pipe_close_stream(struct pipe *p);

/** Set the pipeline of `lb` up for @block. On failure *@ret_bad is the index of the node to
 *  blame. @latest_gs: 0 for a new block, else the new stamp. */
int pipe_open(struct pipe *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
	      uint64_t latest_gs, int *ret_bad, struct err *err);

/** The same without waiting: packets may be queued at once, and pipe_pump() sends them when the pipeline is
 *  set up, or tells of the failure. */
int pipe_start(struct pipe *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
	       uint64_t latest_gs, int *ret_bad, struct err *err);

/** A packet for @cap bytes from @offset on; it counts in the window. NULL: out of memory. */
struct packet *pipe_new_packet(struct pipe *p, uint64_t offset, uint32_t cap);
/** The same of @len bytes that lie at @data, lent as @loan. */
struct packet *pipe_lend_packet(struct pipe *p, uint64_t offset, const void *data, uint32_t len, struct loan *loan);
void pipe_drop_packet(struct pipe *p, struct packet *packet);
/** Takes @packet, which is complete. */
void pipe_queue(struct pipe *p, struct packet *packet);
/** An empty packet: a sync, or the end of the block. */
int pipe_queue_empty(struct pipe *p, bool last, bool sync, struct err *err);
/** All that waits or is unacknowledged is forgotten. */
void pipe_drop_all(struct pipe *p);
/** Back to the queue, in order, to be sent again with their old numbers. */
void pipe_requeue(struct pipe *p);

static inline bool pipe_in_flight(const struct pipe *p)
{
	return !list_empty(&p->queue) || !list_empty(&p->unacked);
}

/** Is @rc of pipe_wait() about memory of this process? */
static inline bool pipe_is_dry(const struct pipe *p, int rc)
{
	return rc == -ENOBUFS && p->ws && p->ws->in_line;
}

/** Is there something to wait for: set-up or acks? */
static inline bool pipe_is_busy(const struct pipe *p)
{
	return p->opening || pipe_in_flight(p);
}

/** Everything that moves without waiting: acks in, packets out. 1 when something is left to send, 0,
 *  -errno and the node to blame. What the keeper found is told here, too. */
int pipe_pump(struct pipe *p, int *ret_bad, struct err *err);
/** Wait until something can move; meanwhile the nodes get signs of life. -ETIMEDOUT when nothing has
 *  moved for too long. -ENOBUFS (see pipe_is_dry()): nothing is under way, and for dfs.rdma.pool.wait there was no memory of
 *  this process for the next packet. No node has failed then, the packets and the stream are as they were, and a later
 *  pipe_wait() begins anew. */
int pipe_wait(struct pipe *p, bool want_send, struct err *err);
/** When a heartbeat is due; UINT64_MAX: never, the stream's connection keeps the nodes informed. */
uint64_t pipe_beat_ns(const struct pipe *p);
/** The two halves of pipe_wait(), for who waits for several pipes at a time: until when, and what to
 *  do when nothing came until then. */
uint64_t pipe_wait_deadline(const struct pipe *p, bool want_send);
int pipe_waited(struct pipe *p, bool want_send, struct err *err);
/** From the keeper: collect acks, and send a heartbeat when the pipe was quiet for long. Never
 *  waits; a failure is kept for pipe_pump(). */
void pipe_keep_alive(struct pipe *p, uint64_t now_ns);
