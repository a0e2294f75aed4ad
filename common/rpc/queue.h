/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/queue - Hadoop RPC v9 calls that are submitted now and answered later
 *
 * Idea: rpc_queue_submit() puts a call into a queue and returns; rpc_queue_run() is where
 * everything happens: it sends, reads, connects, waits and hands answers to their callbacks, on the
 * thread that calls it. There is no thread of our own, and no other thread has to be woken for an
 * answer. A queue has a connection of its own, so that its thread shares neither lock nor socket
 * with anybody. What is submitted while nothing can be sent leaves together, in one system call.
 * Failures go the way of the blocking client (client.h, attempts.h): the same retries under the
 * same call id, the same fail-over, deadlines and texts.
 * Order: calls are sent in the order of submission as long as nothing fails; servers may execute
 * them in any order and answers come in any order. A caller that needs an order submits the second
 * call from the callback of the first.
 * Callbacks: each call's exactly once, from rpc_queue_run() or rpc_queue_free(), without a lock
 * held. They may submit and cancel, and may neither run nor free the queue.
 * Ownership: the queue copies options and requests; answers are lent to the callback, which may
 * take them.
 * Threading: submit, cancel and wake from any thread; run by one thread at a time; free when nobody
 * uses it.
 * Limits: RPC_QUEUE_MAX calls, answers as in client.h. While run() connects to a server that says
 * nothing, which may take ipc.client.connect.timeout, deadlines and cancelled calls of the queue
 * wait for that.
 */
#include <stdbool.h>

#include "common/rpc/client.h"

enum {
	RPC_QUEUE_MAX = 16384, /* calls that are not over */
};

struct rpc_queue;
struct pollfd;

#define RPC_BESIDE_FDS 64 /* that it may wait for */

/* What else is done on the thread that runs a queue; without a lock held. */
struct rpc_beside {
	/** Begin what has come, and send, as far as nothing is waited for. */
	void (*begin)(struct rpc_beside *b);
	/** Take what is there; call back. How many things were over. */
	int (*take)(struct rpc_beside *b);
	/** What to poll(2) for: at most RPC_BESIDE_FDS; *@until_ns, of the monotonic clock, becomes
	 *  earlier when take() is to be called by then. */
	uint32_t (*await)(struct rpc_beside *b, struct pollfd *fds, uint64_t *until_ns);
	/** What poll(2) said of them. */
	void (*polled)(struct rpc_beside *b, const struct pollfd *fds);
};

/* How a call ended. */
struct rpc_done {
	int rc;                 /* as of rpc_client_call() */
	ProtobufCMessage *resp; /* with rc 0; who takes it sets NULL, else it is freed */
	struct err *err;        /* with rc < 0 */
};

/**
 * The call of @arg is over. Returns 0, or the milliseconds after which the same request is to be
 * sent as a new call (which ends in this callback again).
 */
typedef uint32_t (*rpc_done_fn)(void *arg, struct rpc_done *d);

/** @b is the queue's from now on, until the queue is freed. */
void rpc_queue_add_beside(struct rpc_queue *q, struct rpc_beside *b);
/** begin() has something to do. Any thread. */
void rpc_queue_begin_beside(struct rpc_queue *q);
/** Connects in the first run. -ENOMEM, -EINVAL, -EMFILE, or the error of getrandom(2). */
int rpc_queue_new(const struct rpc_client_opts *o, struct rpc_queue **ret, struct err *err);
/** What is not over ends with -ECANCELED in its callback. Accepts NULL. */
void rpc_queue_free(struct rpc_queue *q);
/** Begin a call of @method (static); its answer is a message of @resp_desc (static). The time of
 *  the call runs from now.
 *  -ENOMEM, -EMSGSIZE, -EAGAIN when RPC_QUEUE_MAX calls are not over: @fn will not be called. */
int rpc_queue_submit(struct rpc_queue *q, const char *method, const ProtobufCMessage *req,
		     const ProtobufCMessageDescriptor *resp_desc, rpc_done_fn fn, void *arg);
/**
 * Work until callbacks have been called, at most for @timeout_ms (-1: for ever). Returns how many
 * calls were over, 0 after the time-out or rpc_queue_wake(). -EBUSY: another thread runs the queue,
 * or a callback tries to.
 */
int rpc_queue_run(struct rpc_queue *q, int timeout_ms);
/** The run in progress, or else the next one, returns without waiting. */
void rpc_queue_wake(struct rpc_queue *q);
/** Nothing is to be asked: @fn is called with rc 0 and no answer in the next run. -ENOMEM, -EAGAIN.
 */
int rpc_queue_post(struct rpc_queue *q, rpc_done_fn fn, void *arg);
/** The calls whose arg @match says yes to (NULL: all) end with -ECANCELED in the next run, if they
 *  are not over. They may have been executed. @match is called with the lock held. */
void rpc_queue_cancel(struct rpc_queue *q, bool (*match)(const void *arg, const void *wanted),
		      const void *wanted);
/** Calls that are not over. */
uint32_t rpc_queue_count(struct rpc_queue *q);
