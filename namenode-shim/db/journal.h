/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * journal - records in the order of their numbers, durable in that order
 *
 * Idea: one write at the end of a file and one fdatasync() make a record durable, whatever it says.
 * Segments DIR/journal.N begin with record N; a segment is made longer with zeros ahead of time, so
 * that a record rarely changes the file's size. What the records mean is their writer's. A record
 * outlives a kill of the process when it is written, and a power cut when it is synced; several may
 * be written before one sync.
 * Format of a record, big endian: magic u32, CRC-32C of what follows u32, number u64, length u32,
 * kind u32, payload, zeros up to a multiple of 8.
 * After a crash the last record may be torn: nobody was told that it is durable, so it counts as
 * not written. A bad record with good ones behind it is damage, unless all of these say that they
 * were written before the one in front of them was synced (JOURNAL_LOOSE): then none of them
 * counts.
 * Threading: one thread at a time; files of closed segments may be removed by another one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum journal_kind {
	JOURNAL_DATA = 1,
	JOURNAL_UNDO = 2,  /* the record before it, of the same number, does not count */
	JOURNAL_LOOSE = 3, /* data, written before the record in front of it was synced */
};

struct journal;

/** A new segment for record @seq, durably there. An older file of that name is replaced. */
int journal_new(const char *dir, uint64_t seq, struct journal **ret);
/** Closes the file. Accepts NULL. */
void journal_free(struct journal *j);
/** Write record @seq, which journal_sync() makes durable. On failure the record is not there: 0 or
 *  -errno as of the disk. Exits the process when it cannot tell: the disk took a part, and not the
 *  order to forget it. */
int journal_write(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
		  size_t len);
/** Sync what was written. On failure nothing is there of what was not synced before, or the process
 * exits likewise. */
int journal_sync(struct journal *j);
/** Both. */
int journal_append(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
		   size_t len);
/** Was something written since the last sync? */
bool journal_is_ahead(const struct journal *j);
/** Bytes of records in this segment. */
uint64_t journal_bytes(const struct journal *j);

/** All data records after @after, in order and without gaps, to @fn, until it fails. -EBADMSG:
 *  damaged, or numbers are missing: @err names file and offset. */
int journal_each(const char *dir, uint64_t after,
		 int (*fn)(void *arg, uint64_t seq, const uint8_t *buf, size_t len), void *arg,
		 struct err *err);
/** How many segments there are, or -errno. */
int journal_segments(const char *dir);
/** Remove segments of which no record is after @upto; UINT64_MAX: all. */
int journal_drop(const char *dir, uint64_t upto);
