/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * disk - what a crash of a machine may take back
 *
 * A disk is a directory of tmpfs; calls take effect there at once. Beside it the world remembers,
 * until a sync, what each page of a file held and how long it was, and which names were made, moved
 * and removed, in their order. A crash takes back the names from some point on, and of each file
 * that is not synced some pages, or halves of them, and some of its length.
 *
 * As strict as POSIX for bytes: only a sync of the file keeps them. As strict as a journal for
 * names: they are kept in order, and a sync of a directory keeps what came before, elsewhere too.
 * On a machine whose disk is ordered, lengths of files that were written out are in that order,
 * too, and each sync that has to commit commits all that came before it.
 */
#include <stdbool.h>
#include <stdint.h>

struct dfile;

/** All of these are for the machine of the calling process. */
void disk_note_write(int fd, uint64_t ino, uint64_t from, uint64_t len);
void disk_note_size(int fd, uint64_t ino);      /* before a change of length */
void disk_note_write_out(int fd, uint64_t ino); /* sync_file_range() that waits */
void disk_note_sync(int fd, uint64_t ino);
/** The kernel takes the pages for written, and some are not: only a write of them and another sync
 *  keep them. */
void disk_note_sync_failed(int fd, uint64_t ino);
void disk_note_sync_all(void);
void disk_note_make(const char *path, uint64_t dir, bool is_dir);
/** Before it is done; the file or empty directory is there. */
void disk_note_remove(const char *path, uint64_t dir, bool is_dir);
void disk_note_rename(const char *from, uint64_t from_dir, const char *to, uint64_t to_dir);
uint64_t disk_mtime(uint64_t ino); /* of the world; 0: unknown */

/** By the director, when all processes of the machine are gone. The number of bytes and names that
 *  are lost is added to the counts. */
void disk_crash(uint32_t machine, uint64_t *bytes, uint64_t *names);
