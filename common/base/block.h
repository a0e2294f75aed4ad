/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block - names of blocks, replica states, storage types: the vocabulary every part shares
 *
 * Source: hdfs-wire 3.1, 3.8, 4, 6. The numbers are those of the wire.
 */
#include <stdint.h>

#define BLOCK_POOL_ID_MAX 128 /* longest block pool id accepted, with NUL */
#define BLOCK_UUID_MAX 64     /* DS-<uuid>, datanode uuid; with NUL */
#define BLOCK_GS_ANY 0

struct block {
	int64_t id; /* negative: internal block of a striped group */
	uint64_t gs;
	uint64_t len;
};

enum replica_state {
	REPLICA_FINALIZED = 0,
	REPLICA_RBW = 1,       /* being written by a client */
	REPLICA_RWR = 2,       /* was RBW when the node died; waits for recovery */
	REPLICA_RUR = 3,       /* under recovery; memory only */
	REPLICA_TEMPORARY = 4, /* copy between nodes; not visible, gone after a restart */
};

enum storage_type {
	STORAGE_DISK = 1,
	STORAGE_SSD = 2,
	STORAGE_ARCHIVE = 3,
	STORAGE_RAM_DISK = 4,
	STORAGE_PROVIDED = 5,
	STORAGE_NVDIMM = 6,
};
