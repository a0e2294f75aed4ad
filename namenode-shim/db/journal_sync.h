/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * journal_sync - syncs the journal, on a thread of its own
 *
 * Idea: while a record is on its way to the disk the writer applies the next changes. At most one
 * sync is under way, and the writer waits for it before it gives the next record, so that records
 * become durable in their order.
 * Ownership: the journal is lent from journal_sync_give() until it is no longer busy.
 * Threading: all calls by one thread, the writer.
 */
#include <stdbool.h>

struct journal;
struct journal_sync;

/** @done (may be NULL) is called by the journal sync thread after each sync. */
int journal_sync_new(void (*done)(void *arg), void *arg, struct journal_sync **ret);
/** Waits for the sync under way. Accepts NULL. */
void journal_sync_free(struct journal_sync *s);
/** Sync @j; nothing is under way. */
void journal_sync_give(struct journal_sync *s, struct journal *j);
/** A sync is under way. */
bool journal_sync_is_busy(const struct journal_sync *s);
/** Until nothing is under way. What became of the last sync, told once: 0, or as of journal_sync().
 */
int journal_sync_wait(struct journal_sync *s);
