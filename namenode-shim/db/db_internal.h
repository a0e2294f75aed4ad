/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** db_internal - what the two files of db.h share: db.c opens a directory and runs
 * transactions; db_format.c makes a new directory and keeps the table meta. */
#include "namenode-shim/db/db.h"

/* db.c */
int db_env_open(struct db *db, const char *dir);
void db_env_close(struct db *db);
/** @fresh: make them all, and note the order of names. */
int db_tables_open(struct txn *t, bool fresh);
/** The lock's descriptor, or an error. */
int db_dir_lock(const char *dir, struct err *err);

/* db_format.c */
int db_meta_put_u64(struct txn *t, const char *name, uint64_t v);
/** -ENOENT: there is none. */
int db_meta_u64(struct txn *t, const char *name, uint64_t *ret);
/** Identity, counters and the journal's number, into t->db. */
int db_ident_load(struct txn *t);
/** Those of @t that differ from @old. */
int db_counters_put(struct txn *t, const struct db_counters *old);
/** What another program keeps in @current, by its VERSION file; NULL: none is there. */
const char *db_others(const char *current);
