/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * intake - what waits for the writer thread, and for how long the writer waits for more
 *
 * Idea: a commit costs the same for one change as for ten: pages of LMDB, a record, a sync, and threads and callers
 * that are woken. Callers that work at the same time come back one by one after they were answered together, so a writer
 * that takes the first at once commits each of them alone, and the machine is busy with commits instead of callers.
 * Therefore it waits until as many changes are in hand as were not long ago, for at most as long as a few commits take.
 * A caller who is alone is never made to wait; a crowd that does not come back is forgotten after one or two waits in vain.
 * Changes count, from intake_put() until they are answered; MEMORY calls come and go with them.
 * Ownership: the queue has the requests until they are taken. Threading: intake_put() and intake_landed() from any thread,
 * the rest by the writer.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct req;

#define INTAKE_WAIT_MAX_NS 3000000ull /* whatever a commit takes */
#define INTAKE_ENOUGH 32u /* among so many the fixed costs of a commit are small: nobody waits for more */

struct intake {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list queue; /* of req.link */
	uint32_t queued;   /* changes in it */
	uint32_t in_hand;  /* changes that are not answered yet, those of the queue among them */
	uint32_t crowd;	   /* so many may be expected to be in hand together */
	uint32_t have;	   /* changes that the writer holds already while it sleeps */
	bool patient;	   /* it sleeps until there are enough, not until there is one */
	uint64_t first_ns; /* when the first of the queue came */
	uint64_t answered_ns; /* when callers were answered: they may be back soon */
	uint64_t commit_ns;   /* what a commit takes until it is on the disk */
	uint64_t wait_max_ns; /* INTAKE_WAIT_MAX_NS, but for tests */
	bool stop;
	bool landed; /* the record under way may be on the disk */
};

void intake_init(struct intake *in);
void intake_fini(struct intake *in);
/** @q waits for the writer. */
void intake_put(struct intake *in, struct req *q);
/** Nothing comes any more: the writer takes what is left. */
void intake_stop(struct intake *in);
/** Wake the writer: the record under way is on the disk, or never will be. */
void intake_landed(struct intake *in);

/** Sleep until there is something to do: enough changes, or a record that landed, or it is @until_ns. What is in the queue
 *  joins @batch. False: stopped, and nothing is left. */
bool intake_take(struct intake *in, uint64_t until_ns, struct list *batch);
/** A record is under way as long as @is_synced(@arg) says no: sleep until that has changed, or there are enough changes.
 *  What is in the queue joins @fresh. */
void intake_meanwhile(struct intake *in, bool (*is_synced)(void *arg), void *arg, struct list *fresh);
/** The writer holds @have changes, and callers were answered just now: sleep until they are back, or will not be. */
void intake_linger(struct intake *in, uint32_t have, struct list *fresh);
/** @n changes were answered, or are put aside; and were taken up again. */
void intake_answered(struct intake *in, uint32_t n);
void intake_again(struct intake *in, uint32_t n);
/** A commit took @ns. */
void intake_committed(struct intake *in, uint64_t ns);
