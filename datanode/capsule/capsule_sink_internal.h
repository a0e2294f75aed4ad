/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* capsule_sink_internal - shared by capsule_sink.c (the next node of a chain, or of a copy) and
 * capsule_sink_send.c (what it is told of a piece). Prefix csink_. */
#include "datanode/block/sink.h"
#include "datanode/capsule/capsule_internal.h"

enum capsule_sink_state {
	CS_WAIT_CONNECT,   /* leaves when the connection is up or refused */
	CS_WAIT_NEXT_NODE, /* OPEN_WRITE is sent; leaves on OPEN_REPLY */
	CS_RUN,            /* pieces go, answers come; of a copy PULLED, and CLOSED at the end */
	CS_BROKEN,         /* told the user; waits for close() */
	CS_CLOSING,        /* waits for CLOSED or the end of the connection */
	CS_STREAM,         /* no RDMA there: a stream sink does the work; leaves on its closed() */
	CS_DONE,
};

struct flying { /* a piece that the next node has been told of */
	struct list link;
	struct piece *p;
	int64_t seq;      /* the engine's */
	int64_t wire_seq; /* of its last capsule; -1: a heartbeat, answered here */
	bool sent;        /* read out: the piece may be gone */
	uint8_t open;     /* of a copy: windows that the device has not closed */
	struct capsule_sink *of;
	struct verbs_exposure shown[2]; /* of its data, of its CRCs; until sent */
};

struct capsule_sink {
	struct rop rop;
	struct piece_sink base;
	struct engine_core *core;
	struct capsule_user conn;
	enum capsule_sink_state state;
	struct sink_params params;
	char hop[NET_TEXT_MAX];
	uint64_t id;
	uint32_t hops;     /* nodes behind us */
	uint64_t read_ns;  /* for an answer */
	uint64_t begun_ns; /* the hop is waited for since then */
	bool copy;         /* node to node: no acks */
	bool closing;
	bool exists; /* the next node has (or may have) the stream */
	int64_t next_seq, last_seq;
	struct list queue, flying;
	struct verbs_turn turn; /* to have windows for the next piece */
	struct rtimer timer;
	uint64_t deadline_ns;
	struct piece_sink *inner;
	struct sink_user proxy;
	bool inner_closed;
};

/** Of verbs_exposure.closed; its arg is the struct flying. */
void csink_window_closed(void *arg, int res);
/** Show the piece to the node, and send its capsules. -ECONNRESET, ...: as link_send(). */
int csink_send_piece(struct capsule_sink *s, struct flying *f);
