/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * reactor - one thread, one io_uring, everything waits in it
 *
 * Idea: sockets, block files, timers, messages from other threads and RDMA completion channels are
 * all waited on in io_uring_enter. An asynchronous operation is a struct with a state and a step
 * function (an `rop`); completions record results and mark it ready; the reactor steps it.
 * A turn is: inbox, completions, pollers, ready ops, timers, late ops. Nothing in a turn blocks;
 * calls that have no asynchronous form go to reactor_offload().
 * Ownership: the caller owns every struct it embeds (rop, uring_op, timer, msg, offload, poller)
 * and keeps it until it has come back.
 * Threading: all calls from the reactor's own thread, but reactor_post(), reactor_stop() and
 * reactor_run() (which makes the calling thread the reactor's). Before reactor_run() the creating
 * thread may set things up (at most sq_entries ring operations).
 * Units: monotonic nanoseconds.
 */
#include <liburing.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"

struct reactor;
struct pool;

#define REACTOR_SPIN_ADAPTIVE -1      /* as long as it pays; never with one or two cores */
#define REACTOR_SPIN_ALWAYS INT32_MAX /* never sleeps */

struct reactor_opts {
	const char *name;         /* thread name, static */
	uint32_t sq_entries;      /* 0: 512 */
	uint32_t offload_threads; /* helper threads of each queue for blocking calls; 0: 2 */
	/* threads of the kernel, at most, for requests on files that cannot be done without
	 * waiting: all files of the ring share them; 0: 512 */
	uint32_t io_workers;
	/* busy-poll after the last useful completion, where there are pollers; 0: never, or
	 * REACTOR_SPIN_* */
	int32_t spin_us;
	/* where reactor_start()'s thread runs, not its helpers; empty: the kernel chooses */
	cpu_set_t cpus;
	/* number of the NUMA node plus one that its pool's memory should come from; 0: any */
	uint32_t near_node;
};

/** The ring is created disabled and enabled by reactor_run() (SINGLE_ISSUER and DEFER_TASKRUN where
 *  the kernel has them, probed downwards, bind it to that thread). -ENOSYS/-EPERM/-ENOMEM when
 *  io_uring is not to be had: cause and cure in @err. */
int reactor_new(const struct reactor_opts *opts, struct reactor **ret, struct err *err);
/** After reactor_run() has returned, or was never called. Cancels ring operations, waits for
 *  offloads, and runs all that comes back; new ring operations complete with -ECANCELED. To end in
 *  good order close everything first (post a message), and stop the reactor when it has closed.
 *  Accepts NULL. */
void reactor_free(struct reactor *r);
/** Runs until reactor_stop(); the calling thread becomes the reactor's thread. May be called again,
 *  from the same thread (-EBUSY elsewhere: the ring is bound to it). 0 or -errno. */
int reactor_run(struct reactor *r);
/** Any thread, also from a signal handler. The turn in progress is finished first. */
void reactor_stop(struct reactor *r);
/** Start a thread that does reactor_run() and then cancels what is left, as reactor_free() does;
 *  join it with reactor_join() after reactor_stop(). */
int reactor_start(struct reactor *r);
void reactor_join(struct reactor *r);
uint32_t reactor_near_node(const struct reactor *r);
bool reactor_is_current(const struct reactor *r);
/** Time of this turn; read once per turn. */
uint64_t reactor_now_ns(const struct reactor *r);

/* ---- ready ops ---- */
struct rop {
	/** Do all that can be done now. True: the op is over; the reactor has unlinked it and
	 *  calls @free (which may free it). */
	bool (*step)(struct rop *op);
	void (*free)(struct rop *op);
	struct list ready_link; /* private; list_init() before first use (rop_init) */
};
static inline void rop_init(struct rop *op, bool (*step)(struct rop *),
			    void (*free_fn)(struct rop *))
{
	op->step = step;
	op->free = free_fn;
	list_init(&op->ready_link);
}
/** Mark ready: stepped once in this or the next turn, however often it is marked. */
void reactor_ready(struct reactor *r, struct rop *op);
/** Mark ready for the end of this turn, behind all that the turn brings: whoever gathers what comes
 *  in a turn hands it to the ring there. Must not mark itself late again. */
void reactor_late(struct reactor *r, struct rop *op);

/* ---- ring operations ---- */
struct uring_op {
	/** @res as in the CQE (bytes or -errno), @cqe_flags for multishot. Records and marks ready;
	 *  may submit again. */
	void (*done)(struct uring_op *op, int res, uint32_t cqe_flags);
};
/** A zeroed SQE whose user_data is @op; fill it with io_uring_prep_*() *before* calling
 *  uring_attach(), which sets the user data. Never NULL: a full queue is submitted first. */
struct io_uring_sqe *reactor_sqe(struct reactor *r);
void uring_attach(struct io_uring_sqe *sqe, struct uring_op *op);
/** Ask the kernel to cancel; the op still completes through done(), mostly with -ECANCELED. */
void reactor_cancel(struct reactor *r, struct uring_op *op);

/* ---- timers ---- */
struct rtimer {
	void (*fire)(struct rtimer *t);
	uint64_t deadline_ns; /* private: 0 when not set */
	uint32_t heap_idx;    /* private */
};
/** (Re)arm for @deadline_ns (0 = in the past: fires next turn). O(log n), no allocation once the
 *  heap has grown. */
void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns);
void reactor_timer_clear(struct reactor *r, struct rtimer *t);

/* ---- messages from other threads ---- */
struct rmsg {
	void (*fn)(struct rmsg *m);  /* runs on the reactor; may free the message */
	_Atomic(struct rmsg *) next; /* private */
};
/** Any thread, also from a signal handler. Lock-free MPSC queue, in order per sender; the eventfd
 *  is written only when the reactor sleeps.
 *  Messages posted after reactor_run() ended are run by reactor_free(). */
void reactor_post(struct reactor *r, struct rmsg *m);
/** The same without the waking: reactor_wake() must follow. For many messages at once: a reactor
 *  that is woken by the first one deals with them one by one. */
void reactor_post_quiet(struct reactor *r, struct rmsg *m);
void reactor_wake(struct reactor *r);

/* ---- blocking calls on helper threads ---- */
struct offload {
	void (*work)(struct offload *o); /* on a helper thread; may block */
	void (*done)(struct offload *o); /* back on the reactor */
	bool movable;                    /* reactor_queue_pass() may take it to queue 0 */
	struct reactor *reactor;         /* private, as these */
	struct offload_pool *pool;
	struct rmsg msg;
	struct list link;
};
#define REACTOR_QUEUES 195
/** To a queue with helper threads of its own, started when they are needed: calls that do not come
 *  back hold up the calls of their queue, and no other one's; but a queue that can have no thread
 *  uses those of queue 0.
 *  @queue < REACTOR_QUEUES. */
void reactor_offload_to(struct reactor *r, uint32_t queue, struct offload *o);
/** What waits in @queue, and may, is done by the threads of queue 0: those of @queue do not come
 * back. */
void reactor_queue_pass(struct reactor *r, uint32_t queue);
/** What waits in @queue comes back at once, done() without work(). */
void reactor_queue_drop(struct reactor *r, uint32_t queue);
/** To queue 0. */
void reactor_offload(struct reactor *r, struct offload *o);

/* ---- pollers: completion queues beside the ring ---- */
struct poller {
	int fd;                        /* readable when armed and something came; -1: none */
	int (*poll)(struct poller *p); /* bounded batch; number of events handled */
	int (*arm)(struct poller *p);  /* ask for a wake-up on fd; polled once more after it */
	struct list link;              /* private */
	struct poller_wait *wait;      /* private */
};
void reactor_poller_add(struct reactor *r, struct poller *p);
/** The poller gets no further call. From its own poll() or arm() it may remove only itself. */
void reactor_poller_del(struct reactor *r, struct poller *p);

/* ---- the reactor's buffers (see pool.h) ---- */
/** Make @pool (borrowed, outlives the reactor) this reactor's, and register every slab as a fixed
 *  buffer of the ring: buffer index = slab index. Before reactor_run() or on the reactor. -ENOMEM:
 *  RLIMIT_MEMLOCK, named in @err with the cure; the pool is the reactor's all the same, only plain
 *  reads and writes remain (reactor_pool_fixed() is false). */
int reactor_register_pool(struct reactor *r, struct pool *pool, struct err *err);
struct pool *reactor_pool(struct reactor *r);
bool reactor_pool_fixed(const struct reactor *r);
