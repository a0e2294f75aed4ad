/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * watchdog - no program waits for ever: requests that take too long, or whose program is being
 * killed, are answered
 *
 * Idea: a request may meet one silent server after the other, or wait for a lock behind such a
 * request, and the kernel lets no program die that waits for an answer. So one thread looks at the
 * requests under way (request_table.h). One in which nothing has moved for WATCHDOG_TIMES the
 * option `timeout` is answered with ETIMEDOUT, one of a process with a pending SIGKILL with EINTR.
 * The thread that works at it goes on to its end, where its own answer meets nobody; what it holds
 * it gives back then. Behind one that was given up, requests of the same file are given up after
 * WATCHDOG_BEHIND_MS.
 * Threading: a thread of its own.
 * Source: fuse(4): an answer to a request that is not there any more is ENOENT.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fuse/session/request_table.h"

#define WATCHDOG_TIMES 3
#define WATCHDOG_BEHIND_MS 2000
#define WATCHDOG_LOOKS 1000 /* requests whose processes are looked at in one round */

struct mount;

struct watchdog {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool started, stop;
	/* requests of processes that are being killed; of the thread alone */
	struct origin killed[WATCHDOG_LOOKS];
	uint32_t killed_count;
};

/** 0, or -errno. */
int watchdog_start(struct watchdog *w, struct mount *m);
void watchdog_stop(struct watchdog *w);
