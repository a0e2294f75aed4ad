/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dircache - the directories that the changes of one transaction go through
 *
 * Idea: the changes of a batch are mostly made in few directories. Without this each of them looks
 * every directory of its path up twice, entry and record, in trees of LMDB, and writes the record
 * of the parent, of which only the last counts. Here a record that was read is found again, and one
 * that was changed is written once, with the commit.
 * Rules: nobody but inode.c knows of it, and inode.c goes through it with every record and every
 * entry; entries are always written at once. It knows of nothing but one write transaction: it is
 * empty at its beginning (db.c).
 * Ownership: the database's. Threading: as that of the write transaction.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dircache;

/** NULL: out of memory. */
struct dircache *dircache_new(void);
/** Accepts NULL, as all of these do: then nothing is kept. */
void dircache_free(struct dircache *c);
void dircache_clear(struct dircache *c);

/** The record of directory @id in place, until the next call; NULL: not here. */
const void *dircache_get(const struct dircache *c, uint64_t id, size_t *ret_len);
/** What was read from the database. May be passed over. */
void dircache_add(struct dircache *c, uint64_t id, uint64_t parent, const char *name,
		  const void *record, size_t len);
/** Room for @len bytes of a new record of @id, which is written with the commit; NULL: write it to
 * the database. */
void *dircache_change(struct dircache *c, uint64_t id, uint64_t parent, const char *name,
		      size_t len);
/** The record is removed. */
void dircache_drop(struct dircache *c, uint64_t id);

/** The directory that entry @name of @parent names; false: not here. */
bool dircache_find(const struct dircache *c, uint64_t parent, const char *name, size_t len,
		   uint64_t *ret_id);
/** The entry is made, or removed. */
void dircache_forget_name(struct dircache *c, uint64_t parent, const char *name, size_t len);

/** Each changed record to @fn, until it fails. */
int dircache_each_changed(struct dircache *c,
			  int (*fn)(void *arg, uint64_t id, const void *record, size_t len),
			  void *arg);
