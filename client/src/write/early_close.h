/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * early_close - files that were closed early (DFS_CREATE_CLOSE_EARLY), until the close is on the
 * NameNode's disk
 *
 * Idea: a power cut of the NameNode's machine may undo such a close. Then the file is open again in
 * our name; we renew our leases, so nobody else would ever close it. So we remember each file until
 * the same NameNode process has answered a later change: its journal is synced in order. An answer
 * over the same connection is from the same process. After a new connection complete() is sent
 * again, which does no harm when nothing was lost. nn_call() does that before it believes the first
 * answer over a new connection. The housekeeper asks when nobody else does.
 * Ownership: part of struct dfs.
 * Threading: any thread; the lock is a leaf.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "hdfs.pb-c.h"

#define CLOSED_MAX 1024 /* so many at most: the next one waits for the disk */

struct dfs;

struct early_close {
	pthread_mutex_t lock;
	/* Taken before lock. Held for one round of questions about the files, each a call to the
	 * NameNode; shared by calls that such a question must not meet. */
	pthread_rwlock_t settling;
	struct list files;
	atomic_uint count;
	uint64_t next;       /* number of the next one */
	atomic_bool busy;    /* complete() is sent again for some of them */
	struct list waiting; /* struct waiter: whoever asks about some of them now */
	/* id of the file, not in `files`, that complete() is sent again for; 0: none */
	uint64_t asked;
	/* files that a crash has undone, until that is told; CLOSED_MAX a crash at most */
	struct list gone;
	uint32_t gone_count;
	atomic_uint_fast64_t tried_ns; /* when they were last asked about */
};

void early_close_init(struct early_close *c);
void early_close_fini(struct early_close *c);

/** Is there room for one more? */
bool early_close_may(const struct dfs *fs);
/** File @id, made at @path, was closed early, with @last (NULL: no block), by a call that began
 * with connection number @connection. -ENOMEM. */
int early_close_add(struct dfs *fs, const char *path, uint64_t id,
		    const Hd__ExtendedBlockProto *last, uint64_t connection);

/** What early_close_since() compares with: taken before a call. */
struct early_close_mark {
	uint64_t next, connection;
};
struct early_close_mark early_close_mark(struct dfs *fs);
/** A change was answered, and only when it was on the disk, that began with @m: so is what was
 * closed before it. */
void early_close_since(struct dfs *fs, const struct early_close_mark *m);
/** The same, if @method is such a change. */
void early_close_answered(struct dfs *fs, const char *method, const struct early_close_mark *m);
/** Nothing is asked about until early_close_resume(), after which @id (0: none) is open again, by
 * us: it is forgotten. */
void early_close_pause(struct dfs *fs);
void early_close_resume(struct dfs *fs, uint64_t id);
/** Were files closed through another connection than the one there is, and nobody has asked lately,
 * or just asks? */
bool early_close_is_old(const struct dfs *fs);
/** All files that were closed before are closed on the NameNode's disk. -ESTALE, once: one of them
 *  is gone, which a crash has undone. */
int early_close_settle(struct dfs *fs, struct err *err);
/** The same of file @id alone. */
int early_close_settle_file(struct dfs *fs, uint64_t id, struct err *err);
/** As early_close_settle(), with little patience. A loss stays to be told: -ESTALE means a loss and
 *  nothing else, and -EIO is never returned. */
int early_close_try(struct dfs *fs, struct err *err);
/** As early_close_settle(), in the background: a loss is kept for the next caller that asks. */
void early_close_settle_quietly(struct dfs *fs);
