/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * kernel_inval - a thread that tells the kernel which names, or which pages, to forget
 *
 * Idea: when a directory is closed to others, the kernel must ask again for each name in it. To
 * forget a name the kernel takes the lock of the directory, which the request at hand still holds.
 * So a thread of its own tells the kernel, right after the answer. When bytes are written past
 * pages that others read, the kernel waits for reads of these pages, and the threads that answer
 * requests are needed for these reads. So this thread waits, and answers the write where the answer
 * must come after. A mount has one such thread for names and one for pages: a rename, which holds
 * the lock of a directory, may wait for a file, and the holder of the file's lock for the answer to
 * a write.
 * Threading: any thread asks; one thread works. Limit: INVAL_MAX names wait; beyond, names stay
 * until entry_timeout.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define INVAL_MAX 1000000

struct kernel_inval {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	struct fuse_session *se; /* borrowed (outlives us) */
	struct list work;
	uint32_t count;
	bool started, stop;
};

int kernel_inval_start(struct kernel_inval *f, struct fuse_session *se);
void kernel_inval_stop(struct kernel_inval *f);
void kernel_inval_add(struct kernel_inval *f, uint64_t parent, const char *name);
/** All pages of @ino, and its attributes. */
void kernel_inval_file(struct kernel_inval *f, uint64_t ino);
/** Pages of @ino from @offset on, @len bytes; then @req, which has written them, is answered. */
void kernel_inval_written(struct kernel_inval *f, fuse_req_t req, uint64_t ino, uint64_t offset,
			  size_t len);
