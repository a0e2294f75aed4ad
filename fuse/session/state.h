/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * state - what a mount writes down on the local disk, for the next one, should it be killed
 *
 * Idea: every mount has a *session*, a directory TOP/dfs-fuse-UID/TOKEN that it holds locked as
 * long as it lives. In it are its overlays (overlay.h), a table of *marks* (HDFS files that it has
 * open for writing, or that are deleted and live on under a hidden name) and *undo* notes (a rename
 * that takes two steps, and files of which only the NameNode knows whether they are hidden). A note
 * counts before the marks of its file. A session that nobody has locked belongs to a mount that
 * died; recover.c makes good what is in it. The marks, and the names that go with them, are mapped
 * files: one costs a store to memory.
 * Ownership: main owns the struct. Threading: any thread; `lock` is a leaf, held for instructions.
 * Limits: MARKS_MAX files; those beyond are not marked, and the NameNode's own time limits end
 * them.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/include/dfsclient.h"

#define MARKS_MAX 16384
#define STATE_NAME_MAX 64

enum mark_kind {
	MARK_FREE,
	MARK_WRITING, /* we hold its lease */
	MARK_HIDDEN,  /* it goes with its last descriptor */
};

struct mark {
	uint64_t id;  /* of the HDFS file */
	uint32_t uid; /* who writes or has deleted it */
	uint32_t kind;
};

struct state {
	pthread_mutex_t lock;
	char *top;                           /* owned: TOP/dfs-fuse-UID */
	int top_fd;                          /* owned; -1: none */
	int dir;                             /* owned: the session, locked; -1: none */
	char name[STATE_NAME_MAX];           /* of the session in top */
	struct mark *mark;                   /* owned, mapped; NULL: none */
	char (*mark_name)[DFS_NAME_MAX + 1]; /* the same, of each mark; for a person to read */
	uint32_t next_mark;                  /* where to look for a free one */
	uint64_t next_file;                  /* number of the next file of its own */
};

/** Make a session under @top for @token. Fails with a sentence; -ENOSPC: sessions of dead mounts
 *  can be taken over all the same, and then state_begin() may find room. */
int state_open(struct state *s, const char *top, uint64_t token, const char *cluster,
	       struct dfs_err *err);
int state_begin(struct state *s, uint64_t token, const char *cluster, struct dfs_err *err);
/** The mount ends by itself: the session goes, unless something is left in it. */
void state_close(struct state *s);
/** A mark, until state_unmark(); 0: there is none left. @name is what the file is called now. */
uint32_t state_mark(struct state *s, enum mark_kind kind, uint64_t id, uint32_t uid,
		    const char *name);
/** *@mark is 0 afterwards; it may be 0. */
void state_unmark(struct state *s, uint32_t *mark);
uint64_t state_next_file(struct state *s);
/** File @id, which is at (@dir_id, @name), is about to make room for another; dies with
 *  state_undo_drop(). Returns its number; 0: it could not be written down. */
uint64_t state_undo(struct state *s, uint64_t id, uint64_t dir_id, const char *name);
void state_undo_drop(struct state *s, uint64_t undo);

/** A session whose mount is dead, locked by us. */
struct dead {
	struct dead *next;
	int dir; /* owned */
	char name[STATE_NAME_MAX];
	bool same_boot; /* what it wrote is all there: the machine has not gone down since */
	uint32_t marks;
	struct mark *mark; /* owned copies */
};

/** Lock all dead sessions of @cluster. */
int state_find_dead(struct state *s, const char *cluster, struct dead **ret);
/** The session goes if nothing is left in it, and @stays does not say that its marks are. Frees @d.
 */
void state_end_dead(struct state *s, struct dead *d, bool stays);
/** Marks of file @id do not count any more: in @d, and @for_good: for the next start, too. */
void state_free_marks(struct dead *d, uint64_t id, bool for_good);
/** The name of mark @i, "?" when it was not written down. */
void state_mark_name(const struct dead *d, uint32_t i, char name[DFS_NAME_MAX + 1]);
/** Parse "undo.N" of @d. -errno: it is none. */
int state_read_undo(const struct dead *d, const char *file, uint64_t *ret_id, uint64_t *ret_dir,
		    char name[DFS_NAME_MAX + 1]);
/** A name in hex: names have spaces and newlines. @buf has 2 * DFS_NAME_MAX + 1 bytes. */
void state_hex(const char *name, char *buf);
/** False: that is no name. */
bool state_unhex(const char *text, char name[DFS_NAME_MAX + 1]);
