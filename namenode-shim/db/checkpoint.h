/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * checkpoint - the namespace on disk with one short write a commit
 *
 * Idea: a commit of LMDB writes the pages it changed, all over its file, waits for the disk, writes
 * its meta page and waits again. With a journal (journal.h) a commit is one record of what it puts
 * and deletes, one write and one wait, and LMDB writes its pages without waiting. On the disk
 * data.mdb may then be old or torn, and these files count instead:
 *
 *   current/checkpoint.mdb   a copy of the whole file, synced, as it was after record C
 *   current/journal.N        the records after C
 *   current/unsynced         says that these count and data.mdb does not
 *
 * A start takes data.mdb, or a copy of the checkpoint where the mark is, applies the records that
 * it lacks, syncs it, and removes the three files. They come back while the NameNode serves:
 * records are written, a copy is made beside the work, and from then on LMDB does not sync. A new
 * copy is made when the journal is half as large as the namespace. Without space for them, or
 * without the journal at all (dfs.shim.journal), LMDB syncs as ever.
 * A clean stop syncs data.mdb and leaves nothing else. It waits for a copy that is under way, as
 * does a map that is to grow. When data.mdb cannot be synced the process ends: the mark stays, and
 * the next start restores.
 * Threading: the writer calls all log_*() and alone moves from one stage to another. A thread of
 * its own makes copies when the writer asks for one.
 */
#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct db;
struct db_check_sum;
struct db_log;
struct txn;

/** Begin as soon as the writer has work. @synced (may be NULL) is called by another thread when a
 *  record is synced that was given by txn_write_commit_later(). */
int db_log_start(struct db *db, void (*synced)(void *arg), void *arg);
/** Sync data.mdb and remove the rest. The writer has stopped. Does nothing without a log. */
void db_log_stop(struct db *db);

/** Read what a start would: the file that counts and the journal's records. -EBADMSG: damaged;
 * -ENOENT: missing. */
int checkpoint_check(const char *current, struct db_check_sum *ret, struct err *err);
/** Where the checkpoint counts, checked before: put it in data.mdb's place. */
int checkpoint_restore(const char *current, struct err *err);
/** Does the checkpoint count, and not data.mdb? */
bool checkpoint_counts(const char *current);
/** @db is open: add the records it lacks, sync it, remove what is of no more use. */
int checkpoint_replay(struct db *db, struct err *err);
/** Is @name in current/ of this program's making? */
bool checkpoint_owns(const char *name);

/* For db.c. */
/** Between two transactions. */
void log_turn(struct db *db);
/** Before LMDB is given a change, which may move what the one before it has in a page. */
void log_settle(struct db *db);
/** The journal's part of a change that LMDB has taken. -ENOMEM. */
int log_put(struct db *db, MDB_dbi dbi, const void *key, size_t klen, const void *val, size_t vlen);
/** The same; @val is filled before the next log_settle(). */
int log_reserve(struct db *db, MDB_dbi dbi, const void *key, size_t klen, const void *val,
		size_t vlen);
int log_del(struct db *db, MDB_dbi dbi, const void *key, size_t klen);
/** Has the transaction changed anything that the journal is to hold? */
bool log_has_ops(const struct db *db);
/** The transaction begins anew. */
void log_reset(struct db *db);
enum log_given {
	LOG_SYNCED, /* all is on the disk */
	LOG_GIVEN,  /* on its way to the disk, where everything before it is */
	/* outlives this process, and waits for log_flush() or the next record that is not to be
	 * held */
	LOG_HELD,
};

/** LMDB has committed the transaction: its record is written. @hold: it is not for the disk yet. */
enum log_given log_give(struct db *db, uint64_t seq, bool hold);
/** Send to the disk what was held. True: it is on its way now; false: there was none, or a record
 * is under way. */
bool log_flush(struct db *db);
/** Since when records are held; 0: there are none. */
uint64_t log_held_ns(const struct db *db);
/** 1 when all that was given is on the disk, 0 while it is under way, -EIO when it never will be:
 * log_wait_synced(). */
int log_synced(struct db *db);
/** Wait for that. When the journal cannot be written, data.mdb is synced instead and counts again.
 */
void log_wait_synced(struct db *db);
/** LMDB has no room: the next log_turn() gives it that of journal and checkpoint. */
void log_no_room(struct db *db);
/** The next log_turn() gives up the journal, and what failed is worth another attempt. */
bool log_failed(const struct db *db);
