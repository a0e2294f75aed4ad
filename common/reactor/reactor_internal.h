/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** reactor_internal - shared by reactor.c, ring.c, timer.c, offload.c; no other file includes it */
#include <pthread.h>

#include "common/reactor/reactor.h"

/* Min-heap on deadline_ns; a timer knows its place in heap_idx. */
struct timer_heap {
	struct rtimer **v; /* owned array of borrowed timers */
	uint32_t n, cap;
};

void timer_heap_fini(struct timer_heap *h);
/** Deadline of the earliest timer; 0: none. */
uint64_t timer_heap_next(const struct timer_heap *h);
/** Fire what is due at @now_ns, at most as many as there were when called; returns how many. */
uint32_t timer_heap_run(struct timer_heap *h, uint64_t now_ns);

/* A queue and its helper threads, started at the first use. */
struct offload_pool {
	cpu_set_t cpus;       /* where its threads run; empty: as the reactor */
	pthread_mutex_t lock; /* queue, stop */
	pthread_cond_t more;
	struct list queue;
	bool stop;
	pthread_t *threads; /* owned */
	uint32_t count, running;
	uint32_t out; /* given and not yet back on the reactor; the reactor's thread only */
};

/** Queue 0 has a thread from the start, for queues that can have none. */
void offload_init(struct reactor *r);
/** Lets queued work of all queues finish first. */
void offload_fini(struct reactor *r);
/** Of all queues: given and not yet back on the reactor. */
uint32_t offload_out(const struct reactor *r);

struct reactor {
	struct io_uring ring;
	struct reactor_opts opts;
	cpu_set_t usable;  /* by the process; empty: not known */
	bool ring_ready;   /* queue_init succeeded */
	bool enabled;      /* the ring accepts submissions */
	uint32_t ring_ops; /* submitted or queued and not completed, our own included */
	uint32_t own_ops;  /* of these: wake-up read, poller waits, cancels */
	uint64_t now_ns;
	uint64_t useful_ns; /* when something last happened */
	uint64_t spin_ns;   /* current busy-poll window */
	uint64_t spin_max_ns;
	bool spin_adaptive;
	struct list ready, late, pollers;
	struct timer_heap timers;
	struct offload_pool *queues[REACTOR_QUEUES]; /* owned; NULL: not used yet */
	struct pool *pool;                           /* borrowed */
	bool fixed;                                  /* pool is registered with the ring */

	_Atomic(struct rmsg *) inbox; /* newest first; pushed by anyone, taken whole by us */
	atomic_bool sleeping;         /* a poster must write wake_fd */
	atomic_bool stop;
	_Atomic pthread_t owner; /* whose calls are welcome */
	pthread_t issuer; /* the thread that enabled the ring: SINGLE_ISSUER binds the ring to it */
	int wake_fd;
	uint64_t wake_count; /* target of the wake-up read */
	struct uring_op wake_op;
	bool wake_armed;

	pthread_t thread; /* of reactor_start() */
	bool started;
};

/* ring.c */

int ring_init(struct reactor *r, struct err *err);
/** Lets the ring take requests. The thread that calls this is the one that SINGLE_ISSUER lets in
 *  from then on; -EBUSY: another thread is. */
int ring_enable(struct reactor *r);
/** One system call a turn: submit, run task work and, when @timeout_ns is not 0, wait. */
void ring_enter(struct reactor *r, uint64_t timeout_ns);
/** Calls done() of what has completed, for a bounded number; returns how many. */
uint32_t ring_run_completions(struct reactor *r);
/** Asks the kernel to cancel every request that is under way. */
void ring_cancel_all(struct reactor *r);
/** Gives back, as cancelled, what is queued in a ring that belongs to a thread that has ended. */
void ring_abort_queued(struct reactor *r);
