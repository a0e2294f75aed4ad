/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fsck.c walks, fsck_file.c judges files and blocks, fsck_summary.c sums up. */
#include <stdint.h>
#include <stdio.h>

#include "common/erasure/policy.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"
#include "namenode-shim/web/fsck.h"

enum fsck_phase { FSCK_BEGIN, FSCK_WALK, FSCK_END };

/* A directory being listed, on a stack. */
struct fsck_dir {
	uint64_t id;
	char *path, *last; /* owned; last: the entry looked at last */
	struct fsck_dir *up;
};

/* different sets of storage types that are counted; more share the last place */
#define FSCK_MIXES 64

/* Blocks with the same policy and set of storage types. */
struct fsck_mix {
	uint32_t policy;  /* what is wanted: id */
	uint32_t type[8]; /* replicas by enum storage_type */
	uint64_t blocks;
};

/* What was found. */
struct fsck_result {
	uint64_t files, bytes, blocks, open_files, open_bytes, open_blocks;
	uint64_t corrupt_files, missing_blocks, missing_bytes, corrupt_blocks, corrupt_bytes;
	uint64_t replicas, expected, missing_replicas, min_replicated, under_min, over, under,
		misplaced;
	uint64_t decommissioned, decommissioning, entering_maintenance, in_maintenance;
	struct fsck_mix mix[FSCK_MIXES];
	uint32_t mixes;
};

struct fsck {
	struct nn *nn;         /* borrowed */
	struct fsck_opts opts; /* texts owned */
	struct user *caller;   /* held, or NULL */
	enum fsck_phase phase;
	uint64_t start_ns;
	FILE *out; /* into text */
	char *text;
	size_t len, sent;
	struct txn txn;
	struct arena arena;
	struct exception_info exception;
	struct ns ns;
	struct fsck_dir *dir; /* owned stack */
	uint64_t dirs, links;
	uint32_t step_count, racks;
	struct fsck_result res, ec; /* of replicated files, of striped ones */
	/* of the files whose groups lack units, the policy that wants most nodes; k is 0: none */
	struct ec_policy short_of;
};

extern const char *const fsck_type_names[8]; /* by enum storage_type */
/** fsck_file.c: judge one file. The line about it goes to f->out, when it is asked for or something
 * is wrong. */
void fsck_file(struct fsck *f, const struct inode *n, const char *path);
/** The report for opts.block_ids instead of a walk. */
void fsck_block_ids(struct fsck *f);
/** The report of -list-corruptfileblocks. 0, or -errno with f->exception set. */
int fsck_list_corrupt(struct fsck *f);
/** fsck_summary.c: no block lost or corrupt; the summary of all that was counted. */
bool fsck_is_healthy(const struct fsck *f);
void fsck_summary(struct fsck *f, uint32_t live_nodes);
