/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * fsck - the report of the /fsck page, as `hdfs fsck` reads it
 *
 * Idea: the stock tool prints what the NameNode sends and takes its exit status from the last line,
 * so every word and tab is HDFS's. The tree is walked in steps: a step holds the lock and a
 * reader's transaction for at most FSCK_STEP inodes and leaves its text in a buffer; the lock is
 * not held while the text goes to a slow client. The report of a changing tree is therefore no
 * snapshot, as in HDFS.
 * Ownership: the caller owns the object. Threading: one thread at a time, any thread.
 * Source: DFSck and NamenodeFsck of Hadoop 3.4.2 (parameters and texts).
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct nn;
struct fsck;

#define FSCK_STEP 1000      /* inodes looked at under one lock */
#define FSCK_BLOCK_IDS 1000 /* answered in one request */

struct fsck_opts {
	const char *user, *from; /* who asks, and the address it asks from */
	const char *path;        /* NULL: / */
	const char *block_ids;   /* separated by spaces; NULL: walk the path */
	const char *start_after; /* cookie of list_corrupt, or NULL */
	bool files, blocks, locations, racks, open_files, replica_details, upgrade_domains;
	bool maintenance, policies, list_corrupt, remove, move;
};

/** The texts of @o are copied. -ENOMEM, or a database error. */
int fsck_new(struct nn *nn, const struct fsck_opts *o, struct fsck **ret);
/** The next bytes of the report; 0: the end. */
size_t fsck_read(struct fsck *f, char *buf, size_t max);
/** Accepts NULL. */
void fsck_free(struct fsck *f);
