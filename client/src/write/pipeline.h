/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * pipeline - the packets of one block on their way through one pipeline
 *
 * Idea: packets wait in `queue` until the stream takes them and in `unacked` until every node of
 * the pipeline has them. Whoever writes the block moves them with pipeline_pump() and waits with
 * pipeline_wait(); what is to be done about a failure is the writer's business, who may put the
 * unacked packets back with pipeline_requeue() and open a new stream. A contiguous file has one
 * pipeline, a striped one a pipeline for each unit.
 * Ownership: the pipeline owns its stream and its packets. Packets being filled belong to the
 * writer, but count in the window. `lb`, the nodes, is the writer's.
 * Threading: under the writer's lock.
 * Units: offsets in the block.
 * Source: hdfs-wire 5.5, 5.6.
 */
#include "client/src/fs/fs.h"
#include "client/src/stream/stream.h"

struct pipeline {
	struct dfs *fs;            /* borrowed (outlives its files) */
	Hd__LocatedBlockProto *lb; /* the writer's; the pipeline, NULL when there is no block */
	struct wstream *ws;        /* owned; NULL when not open or broken */
	bool opening;              /* ws is being set up, */
	uint64_t open_until_ns;    /* and has time until then */
	enum crc_type crc_type;
	uint32_t bpc;
	/* packets are sent while it is set up, which the stream can: a failure then is the writer's
	 * to mend */
	bool run_ahead;
	bool by_tcp, sync_later; /* as write_setup */
	bool closing;            /* the last packet was queued */

	uint64_t queued_end; /* bytes handed to the queue */
	uint64_t sent_end;   /* bytes sent to the first node, by any stream */
	uint64_t acked_end;
	uint64_t synced_end; /* bytes covered by an acked sync packet */

	struct list queue, unacked;
	uint32_t in_window; /* packets in queue, in unacked and being filled */
	int64_t seqno;      /* of the next packet; runs on from block to block */
	uint64_t sent_ns;   /* last packet that left */
	/* since when we wait in vain: last ack, first send after it, set-up or call */
	uint64_t progress_ns;
	/* send() has waited for memory of this process since then; 0: it does not */
	uint64_t in_line_since_ns;
	int pending_rc;         /* the housekeeper found the pipeline broken: -errno, */
	int pending_bad;        /* the node to blame, */
	struct err pending_err; /* and why; pipeline_pump() tells the writer */
};

void pipeline_init(struct pipeline *p, struct dfs *fs, enum crc_type crc_type, uint32_t bpc);
/** Gives all packets back; the stream is closed. */
void pipeline_fini(struct pipeline *p);
/** The block is over: the stream goes, offsets begin anew. The queues are as they were. */
void pipeline_reset(struct pipeline *p);
void pipeline_close_stream(struct pipeline *p);

/** Set the pipeline of `lb` up for @block. On failure *@ret_bad is the index of the node to
 *  blame. @latest_gs: 0 for a new block, else the new stamp. */
int pipeline_open(struct pipeline *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
		  uint64_t latest_gs, int *ret_bad, struct err *err);

/** The same without waiting: packets may be queued at once, and pipeline_pump() sends them when the
 *  pipeline is set up, or tells of the failure. */
int pipeline_start(struct pipeline *p, const Hd__ExtendedBlockProto *block, enum dt_stage stage,
		   uint64_t latest_gs, int *ret_bad, struct err *err);

/** A packet for @cap bytes from @offset on; it counts in the window. NULL: out of memory. */
struct packet *pipeline_new_packet(struct pipeline *p, uint64_t offset, uint32_t cap);
/** The same of @len bytes that lie at @data, lent as @loan. */
struct packet *pipeline_lend_packet(struct pipeline *p, uint64_t offset, const void *data,
				    uint32_t len, struct loan *loan);
void pipeline_drop_packet(struct pipeline *p, struct packet *packet);
/** Takes @packet, which is complete. */
void pipeline_queue(struct pipeline *p, struct packet *packet);
/** An empty packet: a sync, or the end of the block. */
int pipeline_queue_empty(struct pipeline *p, bool last, bool sync, struct err *err);
/** All that waits or is unacknowledged is forgotten. */
void pipeline_drop_all(struct pipeline *p);
/** Back to the queue, in order, to be sent again with their old numbers. */
void pipeline_requeue(struct pipeline *p);

static inline bool pipeline_in_flight(const struct pipeline *p)
{
	return !list_empty(&p->queue) || !list_empty(&p->unacked);
}

/** Is @rc of pipeline_wait() about memory of this process, or its memory windows? */
static inline bool pipeline_is_dry(const struct pipeline *p, int rc)
{
	return rc == -ENOBUFS && p->ws && p->ws->in_line;
}

/** Has no node failed, so that the same ones are to be tried again, where TCP is allowed? Our
 *  memory for RDMA was short, or the connection broke. */
static inline bool pipeline_forgives(const struct pipeline *p, int rc)
{
	return pipeline_is_dry(p, rc) || (rc < 0 && p->ws && p->ws->broke);
}

/** Is there something to wait for: set-up or acks? */
static inline bool pipeline_is_busy(const struct pipeline *p)
{
	return p->opening || pipeline_in_flight(p);
}

/** Everything that moves without waiting: acks in, packets out. 1 when something is left to send,
 *  0,
 *  -errno and the node to blame. What the housekeeper found is told here, too. */
int pipeline_pump(struct pipeline *p, int *ret_bad, struct err *err);
/** Wait until something can move; meanwhile the nodes get signs of life. -ETIMEDOUT when nothing
 *  has moved for too long. -ENOBUFS (see pipeline_is_dry()): no node has anything to do, and for
 *  dfs.rdma.pool.wait there was no memory of this process for the next packet, or no window by
 *  which the node would read it. No node has failed then, the packets and the stream are as they
 *  were, and a later pipeline_wait() begins anew. */
int pipeline_wait(struct pipeline *p, bool want_send, struct err *err);
/** When a heartbeat is due; UINT64_MAX: never, the stream's connection keeps the nodes informed. */
uint64_t pipeline_beat_ns(const struct pipeline *p);
/** The two halves of pipeline_wait(), for a caller that waits for several pipelines at a time:
 *  until when, and what to do when nothing came until then. */
uint64_t pipeline_wait_deadline(const struct pipeline *p, bool want_send);
int pipeline_waited(struct pipeline *p, bool want_send, struct err *err);
/** From the housekeeper: collect acks, and send a heartbeat when the pipeline was quiet for long.
 *  Never waits; a failure is kept for pipeline_pump(). */
void pipeline_keep_alive(struct pipeline *p, uint64_t now_ns);
