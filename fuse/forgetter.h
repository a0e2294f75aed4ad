/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * forgetter - the thread that tells the kernel which names to forget
 *
 * Idea: when a directory is closed to others, the kernel must ask again for each name in it. It
 * takes the lock of the directory for that, which the request at hand still holds: so it is told
 * from a thread of its own, right after the answer.
 * Threading: any thread asks; one thread works. Limit: FORGET_MAX names wait; beyond, names stay
 * until entry_timeout.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define FORGET_MAX 1000000

struct fuse_session;

struct forgetter {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	struct fuse_session *se; /* borrowed (outlives us) */
	struct list work;
	uint32_t count;
	bool started, stop;
};

int forgetter_start(struct forgetter *f, struct fuse_session *se);
void forgetter_stop(struct forgetter *f);
void forgetter_add(struct forgetter *f, uint64_t parent, const char *name);
