/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rdma - one reactor thread and a few queue pairs per data node, shared by all files of a handle
 *
 * Idea: callers' threads hand requests to a reactor that owns verbs, the registered pool and the
 * connections, and wait for answers. The data node drives the RDMA (docs/wire.md): what a caller
 * sends lies in a slot of the pool until the node has read it, what it reads arrives in one. Some
 * slots are kept for packets, which are filled there in the first place. The others belong to
 * whoever moves bytes now: a read takes its slots for one request, a write for one packet that is
 * not filled in registered memory. Both wait in the pool's line when there are none, and give back
 * what lies unused while somebody waits (docs/design/013-buffers.md).
 * The thread, its helper, and the control thread of verbs are started by the first open that wants
 * RDMA; handles that never do have none.
 * Ownership: struct rdma belongs to the struct dfs. A call (struct rcall) belongs to its stream and
 * is known to a connection from rdma_call_start() until rdma_call_end() returns.
 * Threading: functions marked [R] run on the reactor, the rest on callers' threads.
 * Source: docs/wire.md sections 2, 4, 6, 7, 8.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/src/fs/fs.h"
#include "common/reactor/pool.h"
#include "common/reactor/reactor.h"
#include "common/transport/verbs.h"
#include "common/wire/capsule.h"

struct rdma;
struct rconn;

/** Registered memory of a packet, which any thread may take and give back: what is written into it
 *  is sent without a copy. */
#define RDMA_BUF_BYTES (1u << 20) /* most of one; packets of 64 KiB and less get such of 64 KiB */
#define RDMA_BUF_CRC_BYTES 8192u
struct rbuf {
	struct list link;        /* private */
	struct slot *data, *crc; /* crc: RDMA_BUF_CRC_BYTES */
	struct rdma *rdma;
	uint32_t refs; /* private */
};
/** For @bytes; NULL: all of that size are in use. Any thread, as the two below. */
struct rbuf *rdma_buf_get(struct rdma *r, uint32_t bytes);
struct rbuf *rdma_buf_ref(struct rbuf *b);
/** Accepts NULL. */
void rdma_buf_put(struct rbuf *b);

/** A capsule on its way: memory and op that must stay until the transport has given them back. */
struct rsend {
	struct xop op;
	struct iovec iov;
	atomic_bool busy;
	/** [R] May be NULL: it is not busy any more. */
	void (*sent)(struct rsend *s);
	uint8_t buf[VERBS_MESSAGE_MAX];
};

/** A stream or read on a connection. */
struct rcall {
	struct list link;   /* the connection's */
	struct rconn *conn; /* counted; NULL when there is none */
	bool started;       /* private: its caller has been told that the connection stands */
	uint64_t id;
	/** [R] An answer to this call. */
	void (*on_capsule)(struct rcall *c, const struct capsule *m);
	/** [R] The connection is gone; nothing more will come. Not before rdma_call_start(), which
	 *  may yet find another one, has seen it up. */
	void (*on_lost)(struct rcall *c, int rc, const char *why);
	/** [R] Behind on_lost(), of a connection on which windows were opened: the queue pair is
	 *  gone, and nothing is written any more. May be NULL. */
	void (*on_gone)(struct rcall *c);
};

/** Work for the reactor that its caller waits for. */
struct rtask {
	struct rmsg msg;
	void (*run)(struct rtask *t); /* [R] */
	struct rdma *rdma;
	bool done;
};
/** Run @run on the reactor and wait for it. */
void rdma_run(struct rdma *r, struct rtask *t, void (*run)(struct rtask *t));
struct reactor *rdma_reactor(struct rdma *r);

/** The handle's RDMA side, started when it was not. -ENODEV, -EPERM, -ENOMEM, ...: why not. */
int rdma_get(struct dfs *fs, struct rdma **ret, struct err *err);
/** All files closed. Accepts NULL. */
void rdma_free(struct rdma *r);

/** Connect (or use the connection there is) and make @c known to it, with a fresh id. -ETIMEDOUT,
 *  -ECONNREFUSED, -EHOSTUNREACH, ... */
int rdma_call_start(struct rdma *r, const struct net_addr *node, uint64_t deadline_ns,
		    struct rcall *c, struct err *err);
/** After it neither call-back runs any more. */
void rdma_call_end(struct rdma *r, struct rcall *c);
/** Before that, any thread: the connection of @c is lost, and its node has an address that is not
 *  known to be bad. */
bool rdma_has_other_way(struct rdma *r, const struct rcall *c);

/** [R] Make @c known to the connection of @with, too. */
void rdma_call_join(struct rcall *c, const struct rcall *with);
/** [R] An id of its own for the next request of @c: the node forgets an old one only when its
 *  answer has left. */
void rdma_call_renew(struct rcall *c);
/** [R] Encode and send; @s must not be busy. -EMSGSIZE does not fit, -ECONNRESET connection gone.
 */
int rdma_send(struct rcall *c, struct rsend *s, struct capsule *m);
/** [R] The same with the first @len bytes of @slot riding along; at most rdma_eager_max(). */
int rdma_send_eager(struct rcall *c, struct rsend *s, struct capsule *m, const struct slot *slot,
		    uint32_t len);
/** [R] Data up to this size rides along: what the node takes, the setting or the calibration allow.
 */
uint32_t rdma_eager_max(const struct rcall *c);
/** [R] Largest capsule the node takes; 0 when the connection is gone. */
uint32_t rdma_capsule_max(const struct rcall *c);
struct pool *rdma_pool(struct rdma *r);

/** A stream that may hold slots which nobody uses at the moment. */
struct rholder {
	struct list link; /* private */
	/** [R] Somebody waits for slots: give back those that have lain unused since @before_ns. */
	void (*shed)(struct rholder *h, uint64_t before_ns);
};
/** [R] From now on asked to shed, until rdma_holder_remove(), which is harmless without it. */
void rdma_holder_add(struct rdma *r, struct rholder *h);
void rdma_holder_remove(struct rholder *h);

/** The class for @bytes of data, and for @bytes of CRCs: the pool has no slots of 256 KiB. */
static inline enum slot_class rdma_class(uint64_t bytes)
{
	const enum slot_class c = slot_class_for(bytes);

	return c == SLOT_256K ? SLOT_1M : c;
}
static inline enum slot_class rdma_crc_class(uint64_t bytes)
{
	return bytes <= SLOT_CRC_SIZE ? SLOT_CRC : rdma_class(bytes);
}
/** [R] Name memory to the node, as verbs_expose() does, on the connection of @c; verbs_cover() ends
 *  it. -ECONNRESET: it is gone. */
int rdma_expose(const struct rcall *c, struct verbs_exposure *e, struct xremote *ret);
/** [R] As verbs_turn_take(); on a connection that is gone it is anybody's turn. It ends by
 *  verbs_turn_end(), in on_lost() at the latest. */
bool rdma_turn_take(const struct rcall *c, struct verbs_turn *t);
/** [R] Behind that, when it was not. */
void rdma_turn_wait(const struct rcall *c, struct verbs_turn *t);

/* Memory of callers, where what is read goes without a copy. A node gets at it by windows alone,
 * one for each request: the request's own bytes, from before the request is sent until its answer
 * is there (verbs.h). */
#define RDMA_MEMORIES 256u
#define RDMA_BUFFERS 128u /* of these, memory of the library */
struct rmem;
/** Not on the reactor; as long as pinning takes. -EINVAL nothing, or beyond the address space;
 *  -EEXIST overlaps what is registered; -ENOSPC RDMA_MEMORIES are; and verbs_memory_new(). */
int rdma_memory_add(struct rdma *r, void *p, size_t len, struct err *err);
/** The same of a dma-buf, from an offset on, that the caller has mapped at @map;
 *  verbs_memory_new_dmabuf(). */
struct rdma_dmabuf {
	int fd; /* borrowed */
	uint64_t offset;
};
int rdma_memory_add_dmabuf(struct rdma *r, const struct rdma_dmabuf *b, void *map, size_t len,
			   struct err *err);
/** -ENOENT: nothing registered begins at @p; -EBUSY: it is in use. */
int rdma_memory_del(struct rdma *r, const void *p);
/** The same for memory of the library, which is malloc()ed; rdma_buffer_drop() ends it. */
int rdma_buffer_add(struct rdma *r, void *p, size_t len, struct err *err);
/** True: it is such memory, and is free()d when nobody uses it any more and no device knows of it.
 *  Nothing is waited for. */
bool rdma_buffer_drop(struct rdma *r, void *p);
/** Any thread: what has all of [p, p + len), in use until rdma_memory_put(); NULL: none. */
struct rmem *rdma_memory_get(struct rdma *r, const void *p, size_t len);
void rdma_memory_put(struct rmem *m);
/** [R] As verbs_window_get() and so on, on the connection of @c. Gone or lost: NULL, -ECONNRESET.
 */
struct verbs_window *rdma_window_get(const struct rcall *c, struct rmem *m);
struct xremote rdma_window_open(struct rcall *c, struct verbs_window *w, void *p, uint32_t len,
				enum verbs_right right);
void rdma_window_close(struct rcall *c, struct verbs_window *w, struct xop *op);

/** [R] An answer does not come: end the connection; every call on it gets on_lost(). */
void rdma_give_up(struct rcall *c);
/** [R] The node may still move bytes to or from @s: give up, and keep the slot until the queue pair
 *  is surely gone. Takes the reference. */
void rdma_quarantine(struct rdma *r, struct rcall *c, struct slot *s);
void rdma_quarantine_buf(struct rdma *r, struct rcall *c, struct rbuf *b);
