/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** checkpoint_internal - what the two files of checkpoint.h share: checkpoint.c writes records and
 * makes copies while the NameNode serves, checkpoint_restore.c reads them at a start. */
#include <stddef.h>
#include <stdint.h>

struct db;

#define CHECKPOINT "checkpoint.mdb"
#define MARK "unsynced"
#define DATA_TMP "data.tmp"
#define COPY_BYTES (1u << 20)
#define PATH_LEN 4300
/* A change in a record. */
#define OP_PUT 1
#define OP_DEL 2
#define OP_HEAD 8u /* op u8, table u8, length of the key u16, of the value u32 */

void checkpoint_current_dir(char *buf, size_t size, const struct db *db);
/** data.mdb counts from now on: it is synced. */
int checkpoint_mark_remove(const struct db *db);
/** The mark is gone, and data.mdb holds everything. */
int checkpoint_remove_rest(const struct db *db);
/** The number of the last record that the file @path holds. */
int checkpoint_seq_of(const char *path, uint64_t *ret);
