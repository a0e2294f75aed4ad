/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * file_reader - reads of one open file from HDFS, streamed where the pattern is a stream
 *
 * Idea: the kernel reads ahead with several requests at a time, which reach us in any order. Reads
 * that continue the last one go to dfs_read(), whose stream is its own read-ahead; one that is a
 * little early waits a moment for its turn. All others are dfs_pread(), which run side by side.
 * When the file was changed through this mount the HDFS file is opened anew.
 * Threading: any number of threads.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/dfsclient_ext.h"
#include "common/base/list.h"

struct mount;
struct inode;
struct user;

struct open_file; /* an HDFS file open for reading, counted */

struct file_reader {
	struct inode *in;  /* borrowed (counted by the handle) */
	struct user *user; /* borrowed (counted by the handle) */
	bool granted;      /* open(2) has made the file: it may be read, whatever its mode */
	/* under lock: the user may not open it any more, the owner of the mount does it */
	bool by_owner;
	pthread_mutex_t lock;
	struct list early;      /* reads that wait for their turn */
	struct open_file *file; /* counted; NULL: not yet */
	uint64_t next;          /* where the stream goes on */
	uint32_t hits;          /* reads in a row that continued */
	bool busy;              /* somebody is in dfs_read() */
};

void file_reader_init(struct file_reader *r, struct inode *in, struct user *user);
void file_reader_fini(struct file_reader *r);
/** Open it now, to see whether the user may. Fails as dfs_open(). */
int file_reader_open(struct mount *m, struct file_reader *r, struct dfs_err *err);
/** Of what file_reader_open() has found. */
void file_reader_content(struct file_reader *r, struct dfs_content_id *ret);
/** dfs_local_fd() of it. */
int file_reader_local_fd(struct file_reader *r, int *ret_fd, struct dfs_err *err);
/** Less than @len only at the end of the HDFS file. Where @buf is NULL it is taken from m->buffers
 *  once it is this read's turn, also when it fails then. Fails as dfs_pread(). */
ssize_t file_reader_read(struct mount *m, struct file_reader *r, void **buf, size_t len,
			 uint64_t offset, struct dfs_err *err);
