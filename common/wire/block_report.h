/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_report - the list of replicas in a full block report
 *
 * Idea: two formats exist. Buffers: four varints per replica, cut into chunks of 64 KiB anywhere,
 * even inside a varint, so the decoder walks over chunk borders. Long list: packed 64-bit values.
 * We write buffers and read both.
 * Ownership: struct block_report owns its chunks; put r.chunks, r.chunk_count and r.count into
 * StorageBlockReportProto (blocksbuffers, numberofblocks) and pack before block_report_fini().
 * Threading: pure functions.
 * Source: hdfs-wire section 4.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "DatanodeProtocol.pb-c.h"
#include "common/base/block.h"

#define BLOCK_REPORT_CHUNK 65536

struct block_report {
	ProtobufCBinaryData *chunks;
	size_t chunk_count; /* at least one once block_report_finish() ran */
	uint64_t count;     /* replicas */
};

/** All zero is an empty report. */
#define BLOCK_REPORT_INIT ((struct block_report){0})

/** -ENOMEM (the report is then as it was before). */
int block_report_add(struct block_report *r, const struct block *b, enum replica_state state);
/** An empty report carries one empty chunk. -ENOMEM. */
int block_report_finish(struct block_report *r);
void block_report_fini(struct block_report *r);

/* How far a report was read; it borrows the report. */
struct block_report_rd {
	const ProtobufCBinaryData *chunk; /* buffers; or: */
	const uint64_t *longs;
	size_t left;                     /* chunks, this one included */
	size_t pos;                      /* in chunk, or in longs */
	uint64_t count, done, finalized; /* replicas; the first so many of longs are finalized */
	bool bad;
};

/** Whichever format @p holds (numberOfBlocks present: buffers). */
struct block_report_rd block_report_rd(const Hdd__StorageBlockReportProto *p);
/** 1: a replica, @state is what the peer sent, 0 to 15; 0: there are no more; -EBADMSG: cut short,
 *  bytes left over, or not as many replicas as numberOfBlocks says. */
int block_report_next(struct block_report_rd *r, struct block *b, uint32_t *state);
