/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * striped_reader - reads of an erasure-coded file, group by group
 *
 * Idea: what reader.c is to blocks, this is to block groups: it finds the group of an offset, reads
 * its part of the range with a struct stripe, and asks for fresh locations when too few
 * units are left or a token is too old. A reader in sequence keeps its streams from one call to the
 * next.
 *
 * When a data unit is lost, decoding its bytes takes the same bytes of others. Somebody who reads
 * in sequence with a small buffer would fetch them twice, now and when their turn comes; for him
 * the rest of the row is read at once, kept, and handed out in pieces. Whoever asks for whole rows
 * gets them without that copy.
 * Threading: one user at a time, reader.seq_lock for the sequential one.
 * Source: hdfs-wire 7.2, 7.3.
 */
#include "client/src/read/reader.h"

struct striped;

#define STRIPED_ROW_MAX (64u << 20) /* longer rows are not kept */

/** Exactly the range [@pos, @pos + @len), which is in the file. */
ssize_t striped_pread(struct reader *r, void *buf, size_t len, uint64_t pos, struct err *err);
/** The same for a reader in sequence; *@state is NULL at first. @ahead: what follows is asked for,
 * too. */
ssize_t striped_read(struct reader *r, struct striped **state, void *buf, size_t len, uint64_t pos,
		     bool ahead, struct err *err);
/** As reader_give_back(). These accept NULL. */
bool striped_give_back(struct striped *f);
bool striped_has_streams(const struct striped *f);
void striped_free(struct striped *f);
