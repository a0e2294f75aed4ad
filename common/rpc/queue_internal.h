/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * queue_internal - what the two files of rpc/queue share: queue.c has the calls and runs them,
 * queue_conn.c has the connection
 *
 * queue_..._locked(): the lock of the queue is held.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/rpc/attempts.h"
#include "common/rpc/queue.h"

struct rpc_conn;

struct qcall {
	struct list link; /* in unsent, conn->calls, paused or over */
	struct rpc_attempts a;
	const ProtobufCMessageDescriptor *desc;
	rpc_done_fn fn;
	void *arg;
	uint8_t *frame; /* owned: the request */
	size_t frame_len;
	uint64_t due_ns;        /* in paused */
	int rc;                 /* in over */
	ProtobufCMessage *resp; /* owned; in over */
};

/* The one lock protects all but the reader's part of the connection, which is the runner's. It is
 * not held while sending, reading, connecting or in callbacks. */
struct rpc_queue {
	struct rpc_target t;
	int wake_fd;
	pthread_mutex_t lock;
	struct list unsent, paused, over; /* of struct qcall */
	struct list spare;
	uint32_t count, spare_count;
	int32_t next_id;
	bool is_running, is_asleep;  /* somebody is in rpc_queue_run(); in poll() */
	bool is_woken;               /* by rpc_queue_wake() */
	struct rpc_conn *conn;       /* counted; made and put by the runner; NULL: none */
	bool is_closing, tx_blocked; /* the socket takes no more */
	uint32_t server;             /* to connect to */
	uint32_t connects_left;
	uint64_t connect_ns; /* not before */
	uint64_t heard_ns, ping_ns;
	struct rpc_beside *beside; /* borrowed, or NULL */
	pthread_t runner;          /* while is_running */
	uint64_t check_ns;         /* the first deadline, or end of a pause, or earlier */
};

/* queue.c */
/** An attempt is over. */
void queue_attempt_over_locked(struct rpc_queue *q, struct qcall *k, enum rpc_outcome o, int rc);

/* queue_conn.c */
/** The lock is dropped meanwhile. */
void queue_connect_locked(struct rpc_queue *q);
/** Give @k to the connection. */
void queue_call_locked(struct rpc_queue *q, struct qcall *k);
/** What is queued, as far as the socket takes it. The lock is dropped meanwhile. */
void queue_send_locked(struct rpc_queue *q);
void queue_ping_locked(struct rpc_queue *q);
/** All frames that are here. The lock is dropped meanwhile. */
void queue_read_locked(struct rpc_queue *q);
/** The connection is of no more use; the attempts under way end as @o. */
void queue_break_conn_locked(struct rpc_queue *q, enum rpc_outcome o, const struct err *why);
void queue_conn_put_locked(struct rpc_conn *conn);
