/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stale_retry - the kernel's second try of a call that met a deletion finds a file
 *
 * Idea: between the kernel's look-up of a name and its open(2) or setattr, somebody may delete the
 * file or rename another over it. The kernel is told ESTALE, looks the name up once more and tries
 * again; a second ESTALE goes to the program, for which the name was there or not, and nothing in
 * between. So the file that the second look-up of that thread finds is held as if it were open,
 * which keeps it from being deleted, until the thread's next call has been answered.
 * Ownership: the mount has one; a held file is counted in inode.refs and inode.opens.
 * Threading: any thread; `lock` is taken before inodes.lock and never while the NameNode is asked.
 * Limits: RETRIES_MAX threads at once; for others it is as if this were not. A thread that does not
 * come back lets go after RETRY_NS, when somebody else meets ESTALE or looks a name up, or at the
 * end of the mount.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RETRIES_MAX 64

struct inode;
struct mount;

struct stale_retry {
	pthread_mutex_t lock;
	atomic_uint count; /* of slots that are taken */
	struct retry {
		pid_t tid;        /* 0: free */
		struct inode *in; /* held; NULL: not looked up yet */
		uint64_t until_ns;
	} slot[RETRIES_MAX];
};

void stale_retry_init(struct stale_retry *r);
/** Thread @tid is told ESTALE. */
void stale_retry_told(struct mount *m, pid_t tid);
/** Thread @tid is about to be told of @in. False: it is being deleted, ask again. */
bool stale_retry_hold(struct mount *m, pid_t tid, struct inode *in);
/** Thread @tid has come back with its call, which is done. True: it was told ESTALE before. */
bool stale_retry_done(struct mount *m, pid_t tid);
/** The mount ends: nothing is held any more. */
void stale_retry_end(struct mount *m);
