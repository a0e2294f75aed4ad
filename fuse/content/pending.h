/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * pending - files that nobody has open any more and that the cluster has not taken yet
 *
 * Idea: the last close(2) finds the NameNode or all data nodes out of reach. The program is told,
 * and what it has written is not thrown away: the inode stays, with its overlay or its lease, reads
 * go on seeing it, and one thread tries again until the cluster has it. The same for a file that
 * was deleted while it was open, and for one of which nobody knows whether it was hidden. What is
 * still left when the mount ends stays in the session (state.h) for the next one.
 * Ownership: main owns the struct; a pending inode is counted once for it.
 * Threading: any thread adds; one thread works. Limit: overlays count against overlay_size as
 * always.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct inode;
struct mount;

struct pending {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	struct mount *m; /* borrowed (outlives us) */
	/* inodes and debtors (users.h) that were added and not looked at since: wakes the thread */
	uint32_t count;
	uint32_t round; /* of tries; the thread's */
	bool started, stop;
};

int pending_start(struct pending *p, struct mount *m);
/** The thread ends; what is pending stays so. */
void pending_stop(struct pending *p);
/** @in is to be tried again. */
void pending_add(struct mount *m, struct inode *in);
/** After the last request: what is still pending is left to the next mount. */
void pending_leave(struct mount *m);
/** The last request was answered: from now on there are LEAVE_TIMEOUTS times `-o timeout` to close
 *  files, and no more time once the NameNode is found away. */
void pending_end(struct mount *m);
/** That time is over: what is left is for the next mount. */
bool pending_is_over(const struct mount *m);
/** A file could not be closed for now. At the end of the mount the NameNode is asked whether it is
 *  worth trying the next one. */
void pending_failed(struct mount *m);
