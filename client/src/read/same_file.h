/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * same_file - is what the NameNode says now about the file that was opened?
 *
 * Idea: a reader asks about a file more than once: locations come by stretches, and anew when nodes
 * fail. Meanwhile the path may have got another file, and the file other content. The last complete
 * block that a reader knows of shows it: HDFS changes a file at its end only, and never uses the id
 * of a block again. As long as that block is where it was and not shorter, everything before it is
 * as it was. The file may grow, be appended to and recovered (a new stamp), and be the target of a
 * concat meanwhile. What does not show here is a file cut within that block and then filled up
 * again: the data nodes know of the cut, and are asked by the stamp that the block had at first
 * (reader_stamp()).
 * Name spaces of a federation give the same ids to blocks, so the block pool counts, too.
 * A file of which no block is complete is known by the block being written, once it has bytes. That
 * one may still be recovered to nothing, or be replaced by its writer: where the inode is known
 * another block may take its place. A block of which bytes were read while it was being written may
 * not be replaced, wherever in the file it is. The price is an error where one node showed bytes
 * that the writer never got acknowledged, and has written to another block.
 * Ownership, threading: plain values.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "hdfs.pb-c.h"

/** The last complete block of a file, as far as it is known. Offsets in the file. */
struct known_block {
	uint64_t id, offset, end; /* end 0: no complete one is known, */
	uint64_t pool;            /* a hash of its block pool; 0: nor one that is being written */
};

enum same_file {
	SAME_FILE,          /* or nothing is known that could differ */
	SAME_FILE_ASK,      /* the answer does not cover the known block: ask about its offset */
	SAME_FILE_CUT,      /* truncated */
	SAME_FILE_OTHER,    /* replaced, or truncated and written on */
	SAME_FILE_REFILLED, /* truncated and written on: not seen here, a data node tells */
};

/** Compare the answer @l about a file of @length bytes with what is known of it. */
enum same_file same_file_look(const struct known_block *k, const Hd__LocatedBlocksProto *l,
			      uint64_t length);
/** Does @l show the known block where it was? Then it is about the same file, cut or not. */
bool same_file_shows(const struct known_block *k, const Hd__LocatedBlocksProto *l);
/** What @l adds to what is known; its last block has the length that its nodes tell. */
void same_file_learn(struct known_block *k, const Hd__LocatedBlocksProto *l);
/** @lb, which is being written, is known. */
void same_file_begun(struct known_block *k, const Hd__LocatedBlockProto *lb);
/** May the file at @path be asked about by its inode? Not where the path says more than which file:
 *  a snapshot, /.reserved. */
bool same_file_by_id(const char *path);
/** -ESTALE with the sentence. @length: of a file that was cut. */
int same_file_gone(const char *path, struct err *err);
int same_file_differs(enum same_file how, const char *path, uint64_t length, struct err *err);
