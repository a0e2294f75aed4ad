/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_locations - which blocks hold a stretch of a file, and which nodes hold them
 *
 * Idea: one getBlockLocations covers ten blocks. Its answer is kept as a stretch. For a file that
 * is being written the last block's length is asked from a data node that holds it. After the first
 * answer the file goes by its inode, where that is known, and every answer must be about the same
 * content (same_file.h).
 * Ownership: a stretch is counted, under the reader's lock: reader_locate() gives a reference,
 * stretch_put() releases it.
 * Threading: any thread. Source: hdfs-wire 3.5, 3.8.
 */
#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/read/reader.h"

/** The block at @pos < length. *@ret_lb lives as long as the stretch. -EIO when the NameNode names
 *  none; -ESTALE: the file was deleted, replaced or truncated since it was opened. */
int reader_locate(struct reader *r, uint64_t pos, struct stretch **ret,
		  const Hd__LocatedBlockProto **ret_lb, struct err *err);
/** Ask for the first time. -ENOENT, -EISDIR. */
int reader_first_locations(struct reader *r, struct err *err);
/** The stamp by which @lb is asked for: none that is newer than the file was when it was opened,
 *  where it may have been cut since without the NameNode's answers showing it. A data node serves
 *  what was appended since by an older stamp, too, and refuses what was written after a cut. */
uint64_t reader_stamp(const struct reader *r, const Hd__LocatedBlockProto *lb);
/** After a failure: -ESTALE when the file at @pos is not what it was; 0, also when nobody knows. */
int reader_confirm(struct reader *r, uint64_t pos, struct err *err);
/** Ask for length and first blocks again. */
int reader_refresh(struct reader *r, struct err *err);
/** The answer of the NameNode to locate_request(), with locations, as if the reader had asked;
 *  takes @m. Asks a data node for the length of a block that is being written. */
int reader_take_locations(struct reader *r, Hd__GetBlockLocationsResponseProto *m, struct err *err);
/** What a reader asks the NameNode. */
void locate_request(const struct dfs *fs, const char *path, uint64_t pos,
		    Hd__GetBlockLocationsRequestProto *ret);
bool reader_grows(struct reader *r);
/** Bytes of @lb, of @s, go to the reader's user: from now on its place may not have another block,
 * though nothing of it is complete. */
void reader_gave(struct reader *r, const struct stretch *s, const Hd__LocatedBlockProto *lb);
/** No replica is left: a pause, after which the NameNode may name others. False: there were
 *  dfs.client.max.block.acquire.failures @rounds of that, and the read fails. */
bool reader_wait_for_others(struct reader *r, uint32_t *rounds);
/** Do not hand out @s again: its locations proved wrong. */
void reader_forget(struct reader *r, struct stretch *s);
void reader_forget_all(struct reader *r);
void stretch_put(struct stretch *s);
/** Tell the NameNode that replica @node of @lb is corrupt. Failure is ignored: the data node's own
 *  scanner will find it too. */
void locate_report_bad(struct dfs *fs, const Hd__LocatedBlockProto *lb, size_t node);
