/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * replica_index - what the directories of replicas held when they were last listed, for the next
 * start
 *
 * Idea: a file of records, one for each directory of finalized replicas, at the end the newer ones.
 * A record is the listing of its directory and the stamp that the directory had: whoever adds,
 * removes or renames a file there gives it another stamp, so a record whose stamp is the
 * directory's says what a listing would say. Nothing else is believed: a file that is torn, old, of
 * another volume or of no sense costs the listing that it would have saved.
 * File: a header (INDEX_HEADER bytes), then records, each of a head (INDEX_HEAD bytes) and 24 bytes
 * for each replica; integers are big-endian; see replica_index.c. It is <pool>/replica_index,
 * beside current/, where a Java DataNode has files of its own and looks at no other name.
 * Ownership: replica_index_open() gives one that replica_index_close() ends.
 * Threading: none of its own: one thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/block.h"

#define INDEX_NAME "../replica_index" /* from the slice's directory */
#define INDEX_DIRS 1024               /* finalized/subdir<n / 32>/subdir<n % 32> */
#define INDEX_HEADER 256
#define INDEX_HEAD 64
#define INDEX_ENTRY 24
#define INDEX_ENTRIES_MAX (1u << 18) /* of a directory; one with more has no record */
#define INDEX_RECORDS_MAX (1u << 16) /* that are looked at; there are fewer in ours */

struct dir_stamp { /* of a directory, all zero: of none */
	uint64_t ino;
	int64_t mtime_ns, ctime_ns;
	uint8_t boot[16]; /* of the machine, when it was listed; zeros: unknown */
};

struct index_entry { /* a replica: both files are there, the data file is a regular one */
	int64_t id;
	uint64_t gs, len;
	bool pinned;
};

struct index_owner { /* whose the file is */
	char storage_uuid[BLOCK_UUID_MAX];
	char pool_id[BLOCK_POOL_ID_MAX];
};

struct index_record {
	struct dir_stamp stamp;
	uint64_t at;    /* of its head in the file; 0: there is none */
	uint32_t count; /* of entries */
};

struct replica_index {
	int slice_fd; /* borrowed: INDEX_NAME is relative to it */
	int fd;       /* -1: no file that is to be gone on with */
	struct index_owner owner;
	uint64_t end;     /* of the last whole record */
	bool cut;         /* there is nothing behind it */
	uint32_t records; /* before that, also older ones */
	struct index_record dir[INDEX_DIRS];
};

/** NULL: no memory. A file that is not there, foreign or damaged gives an index without records. */
struct replica_index *replica_index_open(int slice_fd, const struct index_owner *owner);
/** Accepts NULL. */
void replica_index_close(struct replica_index *x);
/** The entries of directory @n, by ascending id, at home there. -EBADMSG: damaged, and the record
 *  is dropped. -ENOENT: none. -ENOMEM. *@ret is the caller's. */
int replica_index_read(struct replica_index *x, uint32_t n, struct index_entry **ret);
/** A newer record for directory @n; not synced. When it fails the file is as it was, or is read as
 *  if it was. -ENOSPC, -EIO, -E2BIG: too many entries... */
int replica_index_write(struct replica_index *x, uint32_t n, const struct dir_stamp *stamp,
			const struct index_entry *list, uint32_t count);
/** The directory is gone. */
void replica_index_forget(struct replica_index *x, uint32_t n);
/** Write it anew without records that newer ones have replaced, when these are the larger part. */
int replica_index_tidy(struct replica_index *x);

/** Of this boot of the machine; zeros: unknown. */
void boot_id_read(uint8_t ret[16]);
/** Of an existing directory, as it is now; .boot is of now. */
int dir_stamp_read(int dir_fd, const char *name, struct dir_stamp *ret);
/** The same names are in it. */
bool dir_stamp_fits(const struct dir_stamp *a, const struct dir_stamp *b);
/** ... and nobody but this kernel has had the file system meanwhile. */
bool dir_stamp_same_boot(const struct dir_stamp *a, const struct dir_stamp *b);
/** "finalized/subdir<a>/subdir<b>", and back: the number, or -1. */
void index_dir_name(char *buf, size_t size, uint32_t n);
int index_dir_number(const char *dir);
