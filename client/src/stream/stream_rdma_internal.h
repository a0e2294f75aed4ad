/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stream_rdma_internal - what writing and reading of blocks over RDMA share
 *
 * Idea: capsules arrive on the reactor's thread, and callers wait on theirs. A struct meeting joins
 * the two: the reactor records there what came, the caller looks it up or sleeps on it.
 * stream_rdma.c has what both directions need, stream_rdma_write.c and stream_rdma_read.c one
 * direction each.
 * Threading: under `lock` of the meeting, unless a comment in the .c says otherwise.
 */
#include <pthread.h>
#include <stdint.h>

#include "client/src/stream/rdma.h"
#include "client/src/stream/stream.h"

#define RDMA_CLOSE_NS (3 * NS_PER_S) /* for the node to let go of our memory */

/* What both directions share: the place where the reactor leaves word for the caller's thread. */
struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t news;
	int fd;   /* an eventfd that meeting_ring() writes to; -1 until somebody polls */
	int lost; /* -errno when the connection is gone */
	char why[160];
};

void meeting_init(struct meeting *m);
void meeting_fini(struct meeting *m);
/** The connection is gone; the first reason stays. */
void meeting_lost(struct meeting *m, int rc, const char *why);
/** With the lock held: there is word for the caller. */
void meeting_ring(struct meeting *m);
/** With the lock held, nothing having come yet: what to poll for. -errno: there is no descriptor.
 */
int meeting_poll(struct meeting *m, struct pollfd *ret);
/** With the lock held. 0, or -ETIMEDOUT. */
int meeting_wait(struct meeting *m, uint64_t deadline_ns);

/** A connection to @node for @call, which must stand soon, unless there is no other way to go. */
int rdma_reach(struct dfs *fs, const Hd__DatanodeIDProto *node, struct rdma **ret,
	       struct rcall *call, struct err *err);

/** [R] A pair of slots, one for data and one for their CRCs, that a stream takes from the pool
 *  (pool_take(&ask)) or waits for (pool_wait(&ask)). */
struct rdma_pair {
	struct rdma *rdma;    /* borrowed (outlives streams) */
	struct rop *rop;      /* borrowed: made ready when the pool grants the pair */
	struct pool_ask ask;  /* with the forms of rdma_pair_form() */
	struct slot *slot[2]; /* data, CRCs */
	bool granted;         /* slot[] is there, and not fetched yet */
};

void rdma_pair_init(struct rdma_pair *p, struct rdma *r, enum pool_use use, struct rop *rop);
/** One more way to satisfy it; the best comes first. */
void rdma_pair_form(struct rdma_pair *p, enum slot_class data, enum slot_class crc);
/** True, once: the wait is over, and slot[] is there. */
bool rdma_pair_fetch(struct rdma_pair *p);
/** Wait no longer, and give back what was granted and not fetched. */
void rdma_pair_end(struct rdma_pair *p);
/** Nothing of the operation itself has failed: -ENOLINK, TCP may do. So it is with -ENOMEM, most of
 *  which is memory that the device may not have (RLIMIT_MEMLOCK). */
int rdma_no_path(int rc, struct err *err);
/** How long a read waits in line for slots: not for long where TCP does as well. */
#define RDMA_AUTO_WAIT_NS (100 * NS_PER_MS)
static inline uint64_t rdma_wait_ns(const struct dfs *fs)
{
	const uint64_t ns = fs->set.rdma_wait_ms * NS_PER_MS;

	return fs->set.rdma == RDMA_REQUIRE || ns < RDMA_AUTO_WAIT_NS ? ns : RDMA_AUTO_WAIT_NS;
}
/** @text cut to fit. */
void rdma_copy_text(char *dst, size_t size, struct capsule_bytes text);

/* The functions of struct block_stream, stream.h. */
int rdma_open_write(struct dfs *fs, const struct write_setup *setup, struct wstream **ret,
		    int *ret_bad, struct err *err);
int rdma_w_send(struct wstream *ws, struct packet *p, struct err *err);
int rdma_w_next_ack(struct wstream *ws, struct ack *ret, struct err *err);
int rdma_w_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns, struct err *err);
int rdma_w_poll(struct wstream *ws, bool want_send, struct pollfd *ret);
void rdma_w_close(struct wstream *ws);
int rdma_open_read(struct dfs *fs, const struct read_setup *setup, struct rstream **ret,
		   struct err *err);
ssize_t rdma_r_read(struct rstream *rs, void *buf, size_t len, struct err *err);
void rdma_r_close(struct rstream *rs);
ssize_t rdma_r_try(struct rstream *rs, void *buf, size_t len, struct err *err);
int rdma_r_poll(struct rstream *rs, struct pollfd *ret);
bool rdma_r_come_to_rest(struct rstream *rs);
