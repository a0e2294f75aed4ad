/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * commit_queue - what waits for the writer thread, and for how long the writer waits for more
 *
 * Idea: a commit costs the same for one change as for ten: pages of LMDB, a record, a sync, and
 * threads and callers that are woken. Callers that work at the same time come back one by one after
 * they were answered together, so a writer that takes the first at once commits each of them alone,
 * and the machine is busy with commits instead of callers.
 * Therefore the writer waits until as many changes are unanswered as were a short time ago, for at
 * most as long as a few commits take. A caller who is alone is never made to wait. Callers who do
 * not come back are expected no more after one or two waits in vain.
 * Changes count, from commit_queue_put() until they are answered. MEMORY calls are taken with them.
 * Ownership: the queue has the requests until they are taken. Threading: commit_queue_put() and
 * commit_queue_record_done() from any thread, the rest by the writer.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct req;

#define COMMIT_QUEUE_WAIT_MAX_NS 3000000ull /* however long commits take */
/* With so many changes the fixed costs of a commit are small: the writer waits for no more. */
#define COMMIT_QUEUE_ENOUGH 32u

struct commit_queue {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list queue;    /* of req.link */
	uint32_t queued;      /* changes in it */
	uint32_t unanswered;  /* changes that are not answered yet, those of the queue among them */
	uint32_t expected;    /* how many may be unanswered at the same time */
	uint32_t have;        /* changes that the writer holds already while it sleeps */
	bool wants_enough;    /* the writer sleeps until there are enough, not until there is one */
	uint64_t first_ns;    /* when the first of the queue came */
	uint64_t answered_ns; /* when callers were answered: they may be back soon */
	uint64_t commit_ns;   /* what a commit takes until it is on the disk */
	uint64_t wait_max_ns; /* COMMIT_QUEUE_WAIT_MAX_NS, but for tests */
	bool stop;
	bool record_done; /* the record under way may be on the disk */
};

void commit_queue_init(struct commit_queue *cq);
void commit_queue_fini(struct commit_queue *cq);
/** @q waits for the writer. */
void commit_queue_put(struct commit_queue *cq, struct req *q);
/** Nothing comes any more: the writer takes what is left. */
void commit_queue_stop(struct commit_queue *cq);
/** Wake the writer: the record under way is on the disk, or never will be. */
void commit_queue_record_done(struct commit_queue *cq);

/** Sleep until there is something to do: enough changes, or a record that is done, or it is
 *  @until_ns. What is in the queue joins @batch. False: stopped, and nothing is left. */
bool commit_queue_take(struct commit_queue *cq, uint64_t until_ns, struct list *batch);
/** A record is under way as long as @is_synced(@arg) says no: sleep until that has changed, or
 *  there are enough changes.
 *  What is in the queue joins @fresh. */
void commit_queue_meanwhile(struct commit_queue *cq, bool (*is_synced)(void *arg), void *arg,
			    struct list *fresh);
/** The writer holds @have changes, and callers were answered just now: sleep until they are back,
 * or will not be. */
void commit_queue_linger(struct commit_queue *cq, uint32_t have, struct list *fresh);
/** @n changes were answered, or are put aside; and were taken up again. */
void commit_queue_answered(struct commit_queue *cq, uint32_t n);
void commit_queue_again(struct commit_queue *cq, uint32_t n);
/** A commit took @ns. */
void commit_queue_committed(struct commit_queue *cq, uint64_t ns);
