/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * disk_workers - requests that may take a thread of the kernel each are few for each disk
 *
 * Idea: what cannot be done without waiting, a worker of the ring does, which is a thread of the
 * kernel: every sync; every read of some file systems (FUSE, NFS, some device mappers); and a read
 * of any other one when the queue of its disk is full. Where such a disk is slow or hangs, hundreds
 * of requests would make hundreds of threads, and those of other disks would find none. So one
 * reactor has a bounded number of requests of each kind at one volume; the others wait here in
 * their order. The ring may have as many workers as all volumes together
 * (reactor_opts.io_workers): so the requests of one never wait for those of another.
 * Ownership: whoever asks; a request is linked once. Threading: one reactor.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define DISK_WORKERS 16u /* reads that a worker makes from the start */
#define DISK_READS 128u  /* all others: more than most disks have under way */
#define DISK_SYNCS 64u   /* so many share what the journal writes at one time */
#define DISK_WORKERS_MOST (DISK_WORKERS + DISK_READS + DISK_SYNCS)

struct disk_workers {
	uint32_t busy, most;
	struct list waiting; /* of struct disk_request */
};
struct disk_request {
	struct list link;
	void (*submit)(struct disk_request *q); /* it is its turn: disk_workers_take() again */
	struct disk_workers *of;                /* it is with the disk; NULL: it is not */
};

static inline void disk_workers_init(struct disk_workers *w, uint32_t most)
{
	*w = (struct disk_workers){.most = most};
	list_init(&w->waiting);
}
static inline void disk_request_init(struct disk_request *q, void (*submit)(struct disk_request *q))
{
	*q = (struct disk_request){.submit = submit};
	list_init(&q->link);
}
/** True: it may be submitted, and disk_workers_done() follows. False: it waits, submit() follows,
 *  unless its link is taken out.
 */
static inline bool disk_workers_take(struct disk_workers *w, struct disk_request *q)
{
	if (w->busy >= w->most) {
		list_add_tail(&w->waiting, &q->link);
		return false;
	}
	w->busy++;
	q->of = w;
	return true;
}
/** It is over. The next one may go. */
static inline void disk_workers_done(struct disk_request *q)
{
	struct disk_workers *w = q->of;
	struct list *next;

	q->of = NULL;
	w->busy--;
	next = list_pop(&w->waiting);
	if (next)
		container_of(next, struct disk_request, link)
			->submit(container_of(next, struct disk_request, link));
}
