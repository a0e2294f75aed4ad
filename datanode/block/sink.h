/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * sink - the next hop of a write, by the best way there is
 *
 * Idea: engine, transfers and reconstruction ask for a hop and do not choose its transport: RDMA
 * (capsule_sink.c) where both nodes have it, else TCP (dtp_sink.c).
 * Ownership: the sink frees itself after closed(). Threading: one reactor.
 */
#include "datanode/block/engine.h"

/* what WRITE_BLOCK to the next hop says; borrowed until opened() or broken() */
struct sink_params {
	const struct write_params *write; /* targets[0] is the hop, the rest goes on with the op */
	enum write_stage stage;
	uint64_t block_len;
	enum crc_type crc_type;
	uint32_t bytes_per_crc;
	/* TRANSFER_*: no acks, one answer at the end: broken(0) when it is good */
	bool final_answer;
	bool no_answer; /* node to node: neither set-up answer nor acks */
	/* private: stream_sink_open() asks for it when the write does, and hears what is said to it
	 */
	bool sync_later;
	uint64_t waited_ns; /* private: so long of the patience with the hop has gone, with RDMA */
	/* who writes keeps quiet when it has nothing to write: signs of life for the hop are made
	 * here */
	bool beats;
	/* with no_answer: broken(0) once the hop has hung up in good order behind the last piece */
	bool confirm;
};

/** Connect and send the op; sink_user_ops.opened() follows. -ENOMEM and the like at once. */
int sink_open(struct engine_core *core, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret);
/** The same, always by TCP. */
int stream_sink_open(struct engine_core *core, const struct sink_params *params,
		     struct sink_user *user, struct piece_sink **ret);
