/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * db_check - is the file of the namespace a whole LMDB file? Asked before LMDB opens it
 *
 * Idea: LMDB has no checksums and follows page numbers, offsets and sizes wherever they lead: a
 * page that a disk returned wrong would make it read and write anywhere in the process. So at start
 * the file is read once with pread(), and everything that LMDB will rely on is checked: both meta
 * pages, and in every tree that the newer one leads to the page numbers, headers, nodes, keys and
 * their order, runs of large values, depth and counts, and that no page has two uses. What is
 * stored in the records is not judged here; their decoders do that (inode.c, quota.c,
 * retry_cache.c).
 * Bounds: one page for each level of a tree (at most 32), one bit for each page of the file.
 * Threading: none; nobody may write to the file meanwhile (DIR/in_use.lock is held).
 * Source: the layout of LMDB 0.9, data format 1 (mdb.c: MDB_page, MDB_node, MDB_db, MDB_meta).
 */
#include <stdint.h>

struct err;

struct db_check_sum {
	uint32_t page_bytes, tables;
	uint64_t pages;  /* that the file has given out */
	uint64_t used;   /* by trees and large values */
	uint64_t unused; /* on the list of free pages */
	uint64_t inodes, names;
};

/** -EBADMSG: damaged; @err names the file, the page and what is wrong with it. Other errors: it
 *  could not be read. Changes nothing. */
int db_check_file(const char *path, struct db_check_sum *ret_sum, struct err *err);
