/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * source - a replica as a stream of verified pieces, wherever it is
 *
 * Idea: the counterpart of sink.h (engine.h says what sources and sinks there are). Whoever needs
 * the bytes of a replica (reconstruction, a checksum of a lost unit) asks for a source and does not
 * care whether the replica is ours (read from the store) or another node's (pushed into our slots
 * by RDMA where both nodes have it, else READ_BLOCK over TCP). Pieces are as an engine read hands
 * them out, but their CRCs have been checked: -EBADMSG ends a source whose bytes do not fit theirs.
 * Of a replica of ours a bad CRC is looked into, and reported, by the store itself.
 * Ownership: slots of a remote source are the asker's, so that it knows before it begins that there
 * are enough; a local source uses those of block_read. Pieces are given back with sent(). The
 * source frees itself after ended(), which comes when every piece is back.
 * Threading: one reactor. Call-backs record and mark ready.
 * Source: hdfs-wire 5.3, 5.6, 7.6.
 */
#include "datanode/block/engine.h"

#define SOURCE_SLOTS 2 /* of a remote source: one fills while the other is used */

struct piece_source;
struct piece_source_ops {
	/** The piece's memory is not needed any more. */
	void (*sent)(struct piece_source *s, struct piece *p);
	/** Stop early: ended() follows unless it came already. Pieces out must still be given back.
	 */
	void (*close)(struct piece_source *s);
};
struct piece_source {
	const struct piece_source_ops *ops;
};

struct source_params {
	struct block_pool *bp;
	struct block block;         /* a stamp older than this is refused */
	uint64_t off, len;          /* len > 0 */
	const struct dn_target *at; /* borrowed for source_open(); NULL: ours */
	/* borrowed until ended(): of one size; unused when ours */
	struct slot *slots[SOURCE_SLOTS];
	/* likewise; slots and these of capsule_landing(): RDMA may be used. NULL: not */
	struct slot *crc_slots[SOURCE_SLOTS];
};

/**
 * read_sink_ops.opened(), piece() and ended() follow, as of block_read_open(). What comes begins at
 * a chunk border at or before off, and ends at one behind off + len, or with the replica. Of
 * another node's replica read_info knows neither state nor length: block is what was asked for.
 * -ENOMEM and the like at once.
 */
int source_open(struct engine_core *core, const struct source_params *params,
		struct read_sink *sink, struct piece_source **ret);

/** The two kinds from other nodes; private to source.c and the files they are in. By RDMA:
 *  -EHOSTUNREACH, not to that node. */
int capsule_source_open(struct engine_core *core, const struct source_params *params,
			struct read_sink *sink, struct piece_source **ret);
int stream_source_open(struct engine_core *core, const struct source_params *params,
		       struct read_sink *sink, struct piece_source **ret);
