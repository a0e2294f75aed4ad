/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * scribe - writes one journal record at a time, on a thread of its own
 *
 * Idea: a record is on its way to the disk while the writer applies the next changes. One record is under way at most:
 * who has the next one waits for it first, so that records are durable in their order.
 * Ownership: journal and bytes are lent from scribe_give() until it is no longer busy.
 * Threading: all calls by one thread, the writer.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal;
struct scribe;

/** @done (may be NULL) is called by the scribe's thread after each record. */
int scribe_new(void (*done)(void *arg), void *arg, struct scribe **ret);
/** Waits for the record under way. Accepts NULL. */
void scribe_free(struct scribe *s);
/** Write and sync; nothing is under way. */
void scribe_give(struct scribe *s, struct journal *j, uint64_t seq, const void *buf, size_t len);
/** A record is under way. */
bool scribe_is_busy(const struct scribe *s);
/** Until nothing is under way. What became of the last record, told once: 0, or as of journal_append(). */
int scribe_wait(struct scribe *s);
