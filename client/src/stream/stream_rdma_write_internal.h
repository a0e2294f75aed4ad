/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stream_rdma_write_internal - a block written over RDMA: shared by stream_rdma_write.c (its
 * packets), stream_rdma_write_send.c (how they are sent) and stream_rdma_write_pairs.c (the slots
 * that packets are copied into, and windows to memory of the caller)
 *
 * Threading: meeting.lock covers what struct rdma_w says, and the state, slots and buffer of each
 * wslot that is not WSLOT_FILLING. It is held for a few instructions, and never while somebody
 * waits in the pool's line. What is marked [R] is of the reactor's thread alone.
 */
#include "client/src/stream/stream_rdma_internal.h"

#define WRITE_DEPTH 8u /* packets on their way */
#define ACKS_MAX 64u   /* more than WRITE_DEPTH and a few stray ones */

enum wslot_state {
	WSLOT_FREE,    /* until its capsule is back it may still be busy */
	WSLOT_FILLING, /* the caller's */
	WSLOT_POSTED,  /* the reactor is to send it */
	WSLOT_SENT,    /* the node may read the memory, until its ack */
	WSLOT_ACKED,   /* it is being closed to the node, or one before it is */
};

struct wslot {
	struct rmsg msg; /* to the reactor: send it */
	struct rdma_w *w;
	/* data; its CRCs when the capsule has no room: of buf, or the packet's copy */
	struct slot *slot, *crc;
	/* counted while the node or the transport may look at it; NULL: none, or copied */
	struct rbuf *buf;
	bool copied;                    /* slot and crc are owned */
	struct verbs_exposure shown[2]; /* [R] of slot, of crc, while WSLOT_SENT */
	/* data, in memory of the caller that it has registered; then slot is NULL. The node reads
	 * it through the window. NULL: neither */
	const uint8_t *lent;
	struct verbs_window *window; /* [R], and of claim(): on lent; NULL when it is closed */
	bool exposed;                /* [R] writes: the node may read lent */
	bool shutting;               /* [R] */
	struct xop shut;             /* of window */
	struct rsend send;
	struct packet head; /* seqno, offset, len, crc_len, flags of the packet */
	enum wslot_state state;
};

enum copy_state {
	COPY_NONE,
	COPY_ASKED, /* the reactor sees to it */
	COPY_THERE, /* for the caller to fetch */
};

struct rdma_w {
	struct wstream base;
	struct rcall call; /* first of the reactor's view */
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	size_t nodes;
	struct meeting m;
	/* under m.lock */
	bool opened, closed;
	bool line_changed; /* held_until_ns: the caller looks again how long to wait */
	bool finished;     /* the last packet is acknowledged: the node's stream is over */
	int open_status;
	char bad_link[NET_TEXT_MAX];
	char text[256];
	struct ack ack[ACKS_MAX];
	uint32_t ack_head, ack_tail;
	uint32_t acks_short;   /* an ack for fewer nodes than the pipeline has */
	uint32_t next, oldest; /* wslot to use next; first one not acknowledged */
	struct wslot slot[WRITE_DEPTH];
	bool want_copy;                  /* what is to be sent next needs a pair of slots, */
	uint32_t copy_len, copy_crc_len; /* for so many bytes */
	enum copy_state copy_state;
	uint64_t copy_there_ns;
	/* of the packet that it is for: where its bytes may be read from; NULL: they are copied */
	struct rmem *copy_memory;
	struct slot *pair[2]; /* while COPY_THERE; with pair_window there is no [0] */
	struct verbs_window *pair_window;
	/* the caller's */
	uint64_t copied; /* bytes */
	struct capsule_bytes open_op;
	struct rmsg ask_msg; /* to the reactor: a pair is wanted */
	/* [R] */
	struct rdma_pair wanted;
	bool wanted_lent; /* it has no slot for data: they are read through */
	struct verbs_window *wanted_window;
	bool again; /* ask when a pair of ours comes back */
	bool ending;
	uint32_t pairs; /* that this stream has */
	struct rholder holder;
	struct rop rop;           /* of the pairs, and of the turn */
	uint32_t to_send, unsent; /* slots: the next one that is WSLOT_POSTED, and how many are */
	struct verbs_turn turn;   /* for memory windows on its packet */
	struct rsend control;
};

/* stream_rdma_write_send.c */
/** [R] Of wslot.msg: it is WSLOT_POSTED. */
void rdma_w_send_run(struct rmsg *msg);
/** [R] What is posted, as far as there are memory windows for it. */
void rdma_w_send_posted(struct rdma_w *w);
/** [R] Packets were sent, acknowledged, or not: sets base.held_until_ns. Not with the lock held. */
void rdma_w_note_line(struct rdma_w *w);
/** [R] The node does not read it any more. Harmless; also with the lock held. */
void rdma_w_cover(struct wslot *s);

/* stream_rdma_write_pairs.c */
/** What is called back. */
void rdma_w_pairs_init(struct rdma_w *w);
/** [R] A pair of @w is not needed any more. It may be called with the lock held. */
void rdma_w_put_pair(struct rdma_w *w, struct slot *data, struct slot *crc);
/** [R] The connection is lost: windows that are open to nobody go back. */
void rdma_w_pairs_lost(struct rdma_w *w);
/** [R] The stream ends: it asks for no more pairs, and gives back the one that was not fetched. */
void rdma_w_pairs_end(struct rdma_w *w);
