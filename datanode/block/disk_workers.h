/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * disk_workers - reads that take a thread of the kernel each are few for each disk
 *
 * Idea: some file systems (FUSE, NFS, some device mappers) cannot be asked without waiting: a
 * worker of the ring, which is a thread of the kernel, waits for each request. Where such a disk
 * is slow or hangs, hundreds of requests would make hundreds of threads, and those of other disks
 * would find none. So the reads of one reactor have a bounded number of workers at one volume; the
 * others wait here in their order.
 * Ownership: whoever asks; a request is linked once. Threading: one reactor.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define DISK_WORKERS 16u

struct disk_workers {
	uint32_t busy;
	struct list waiting; /* of struct disk_request */
};
struct disk_request {
	struct list link;
	void (*submit)(struct disk_request *q); /* it is its turn: disk_workers_take() again */
	bool has_worker;
};

static inline void disk_workers_init(struct disk_workers *w)
{
	*w = (struct disk_workers){0};
	list_init(&w->waiting);
}
static inline void disk_request_init(struct disk_request *q, void (*submit)(struct disk_request *q))
{
	*q = (struct disk_request){.submit = submit};
	list_init(&q->link);
}
/** True: it may be submitted, and disk_workers_done() follows. False: it waits, submit() follows.
 */
static inline bool disk_workers_take(struct disk_workers *w, struct disk_request *q)
{
	q->has_worker = w->busy < DISK_WORKERS;
	w->busy += q->has_worker;
	if (!q->has_worker)
		list_add_tail(&w->waiting, &q->link);
	return q->has_worker;
}
/** It is over; harmless where it had no worker. The next one may go. */
static inline void disk_workers_done(struct disk_workers *w, struct disk_request *q)
{
	struct list *next;

	if (!q->has_worker)
		return;
	q->has_worker = false;
	w->busy--;
	next = list_pop(&w->waiting);
	if (next)
		container_of(next, struct disk_request, link)
			->submit(container_of(next, struct disk_request, link));
}
