/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * transport - tcp, verbs and fake behind one struct of functions
 *
 * Idea: the block engine moves control messages and payload and does not know by what. Two kinds:
 * a *stream* (tcp) carries payload inside the byte stream; a *message* transport (verbs) carries
 * capsules by SEND and payload by RDMA READ (pull) and RDMA WRITE (push) against the memory that
 * the peer named. The fake is both, in memory, with faults on demand.
 *
 *            stream                                  message
 *   send     bytes, gathered                         one capsule (inline where it fits)
 *   recv     at least one byte, at most len          one capsule, whole
 *   pull     exactly len next bytes of the stream    RDMA READ from remote into the slot
 *   push     exactly len bytes, gathered             RDMA WRITE to remote; ordered before the
 *                                                    next send
 *
 * Ownership: the caller owns xop and buffers until done(); a connection is closed by xconn_close()
 * (every op comes back first, with -ECANCELED at worst) and freed by the transport afterwards.
 * Threading: one reactor owns a connection from accept or connect to close.
 * done() may run before the submitting call returns (the fake can be told to): set state first.
 * Errors: -ECONNRESET peer gone, -ETIMEDOUT deadline passed, -ECANCELED closed by us, -EPROTO the
 * peer broke the transport's rules, -EHOSTUNREACH/-ECONNREFUSED/-ENODEV on connect.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/net.h"
#include "common/reactor/pool.h"
#include "common/reactor/reactor.h"

struct xconn;
struct xlistener;

struct xop {
	void (*done)(struct xop *op, int res); /* bytes moved, or -errno */
	void *priv[7];                         /* the transport's */
};

struct xremote { /* memory of the peer, as it named it; streams ignore it */
	uint64_t addr;
	uint32_t rkey;
};

#define XOP_IOV_MAX 16

struct xprogress {
	uint64_t bytes;    /* that have come since the connection began, taken by us or not */
	uint64_t quiet_ns; /* since the last of them */
	uint64_t acked;    /* of ours, that the peer's machine has since the connection began */
};

struct xport_ops {
	const char *name; /* "tcp", "rdma", "fake": the label of metrics */
	bool messages;    /* false: stream */

	/** Start @op that completes when the connection is up (res 0). *ret may be closed at once
	 *  to give up, and must be closed when @op fails, too. @deadline_ns 0: the system's own.
	 *  @private_data (message transports; at most 56 bytes) goes with the request. Negative:
	 *  nothing was started. */
	int (*connect)(struct reactor *r, const struct net_addr *to, uint64_t deadline_ns,
		       const void *private_data, size_t private_len, struct xop *op,
		       struct xconn **ret);
	/** Send @n <= XOP_IOV_MAX pieces whole; several may be outstanding and keep their order
	 *  (with push, too). @iov itself is copied before this returns. Message transports: the
	 *  sum is at most xconn.max_message and is copied or inlined before this returns. */
	void (*send)(struct xconn *c, const struct iovec *iov, int n, struct xop *op);
	/** One at a time per connection. res 0: the peer closed in good order (stream only). */
	void (*recv)(struct xconn *c, void *buf, uint32_t len, struct xop *op);
	/** Exactly @len bytes to slot->data + @off; one at a time on streams, many on verbs. The
	 *  slot must stay referenced until done(). */
	void (*pull)(struct xconn *c, struct xremote from, struct slot *slot, uint32_t off,
		     uint32_t len, struct xop *op);
	/** @n pieces, in order; the memory lies in slots of this reactor's pool (verbs). */
	void (*push)(struct xconn *c, const struct iovec *iov, int n, struct xremote to,
		     struct xop *op);
	void (*close)(struct xconn *c);
	/** Stream; NULL where there is none: at least @min bytes, at most the sum of @n <=
	 *  XOP_IOV_MAX pieces, in order; otherwise as recv. The peer's end before @min is
	 *  -ECONNRESET. */
	void (*recvv)(struct xconn *c, const struct iovec *iov, int n, uint32_t min,
		      struct xop *op);
	/** Stream; NULL where there is none: nothing more will be sent, the peer reads the end;
	 *  sends must have completed. Receiving goes on. */
	void (*end)(struct xconn *c);
	/** Stream on a UNIX domain socket (xconn_is_local()); NULL where there is none: one byte
	 *  and with it @n descriptors, which stay the caller's. At once: every send before it must
	 *  have completed. -EAGAIN: the peer does not read. */
	int (*send_fds)(struct xconn *c, uint8_t byte, const int *fds, int n);
	/** Stream; NULL where there is none: stop the send or push under way, which must be the
	 *  only one.
	 *  Its done() gets the bytes that went, 0 to all. A send_room ends with -ECANCELED. */
	void (*send_stop)(struct xconn *c);
	/** Stream; NULL where there is none: done(0) when the peer's side takes bytes again, with
	 *  no memory held meanwhile. send_deadline_ns holds; no send may be under way. */
	void (*send_room)(struct xconn *c, struct xop *op);
	/** Stream; NULL where there is none: what has come and gone. False: not known. */
	bool (*progress)(struct xconn *c, struct xprogress *ret);
	/** Stream; NULL where there is none: recv_deadline_ns becomes an earlier one, also for the
	 *  receive under way. */
	void (*recv_by)(struct xconn *c, uint64_t deadline_ns);
	/** Message; NULL where there is none: see xconn_give_up(). */
	void (*give_up)(struct xconn *c);
};

struct xconn { /* first member of every implementation's connection */
	const struct xport_ops *ops;
	struct reactor *reactor;
	struct net_addr peer, local;
	/* caller sets; 0: none. Passing it fails the recv/pull with -ETIMEDOUT. The one under way
	 * heeds a later one; an earlier one needs recv_by() */
	uint64_t recv_deadline_ns;
	uint64_t send_deadline_ns; /* likewise for send/push */
	uint32_t max_message;      /* message transports */
	void *user;                /* the owner's */
	/** verbs only, may be NULL: after close, when the device has let go of all memory (the
	 *  queue pair is destroyed). The last word of the connection. */
	void (*gone)(struct xconn *c);
};

static inline void xconn_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	c->ops->send(c, iov, n, op);
}
static inline void xconn_recv(struct xconn *c, void *buf, uint32_t len, struct xop *op)
{
	c->ops->recv(c, buf, len, op);
}
static inline void xconn_pull(struct xconn *c, struct xremote from, struct slot *slot, uint32_t off,
			      uint32_t len, struct xop *op)
{
	c->ops->pull(c, from, slot, off, len, op);
}
static inline void xconn_push(struct xconn *c, const struct iovec *iov, int n, struct xremote to,
			      struct xop *op)
{
	c->ops->push(c, iov, n, to, op);
}
/** Did the peer come by a UNIX domain socket? */
static inline bool xconn_is_local(const struct xconn *c)
{
	return c->peer.sa.ss_family == AF_UNIX;
}
/** It fails, as if the peer were gone: what is queued comes back, and the device begins nothing
 *  more for it. xconn_close() follows. */
static inline void xconn_give_up(struct xconn *c)
{
	if (c->ops->give_up)
		c->ops->give_up(c);
}
/** Accepts NULL. Ops in flight come back, then the connection frees itself. Never touch it again.
 */
static inline void xconn_close(struct xconn *c)
{
	if (c)
		c->ops->close(c);
}

struct xlistener_opts {
	struct net_addr addr;
	bool reuseport;     /* one listener per reactor on one port */
	uint32_t max_conns; /* beyond it new connections are closed at once; 0: 4096 */
	/* The next one is accepted when the reactor has been round: with many that wait, those that
	 * accepted() closes to make room are gone before the limit. */
	bool one_by_one;
	void (*accepted)(void *arg, struct xconn *c); /* takes the connection */
	void (*refused)(void *arg);                   /* one was closed at the limit; or NULL */
	void *arg;
};

struct xlistener { /* first member of every implementation's listener */
	void (*close)(struct xlistener *l);
};

/** @ret_bound: the real port when 0 was asked. -EADDRINUSE etc. with cause and cure. */
int tcp_listen(struct reactor *r, const struct xlistener_opts *o, struct net_addr *ret_bound,
	       struct xlistener **ret, struct err *err);
/** The same on a listening stream socket that is there already; takes @fd, also on failure. */
int tcp_listen_fd(struct reactor *r, const struct xlistener_opts *o, int fd, struct xlistener **ret,
		  struct err *err);
/** Stop accepting; connections live on. accepted() is not called again. Accepts NULL. */
static inline void xlistener_close(struct xlistener *l)
{
	if (l)
		l->close(l);
}

extern const struct xport_ops tcp_ops;
