/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * sock - one TCP connection to a data node, driven by the calling thread
 *
 * Idea: a non-blocking socket with a small read buffer. Blocking calls poll(2) until a deadline.
 * The buffer exists so that the many small pieces of DataTransferProtocol (packet headers, CRCs,
 * acks) do not cost a system call each: a large receive goes straight to its destination and
 * whatever follows it lands in the buffer by the same call.
 * Ownership: sock_close() frees. Threading: one thread at a time; the cache has its own lock.
 * Units: deadlines are nanoseconds of the monotonic clock.
 * Source: hdfs-wire 5.1 (operations may follow one another), 5.4.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/err.h"
#include "common/base/net.h"

#define SOCK_BUF 65536u /* also the longest message accepted */

struct sock {
	int fd;
	bool reused; /* came from the cache: the peer may have closed it meanwhile */
	uint64_t idle_since_ns;
	bool owes_end;     /* of the last read, the empty packet at the end is yet to come: */
	int64_t end_seqno; /* it has this number, */
	uint64_t end_at;   /* and this offset */
	bool takes_small;  /* READ_SMALL: small_read.h */
	uint32_t tag;      /* of the last one */
	/* a receive waits for so long; 0: the socket does not wait */
	uint32_t patience_ms;
	struct net_addr to;
	char peer[NET_TEXT_MAX];
	size_t head, tail; /* unread bytes of buf */
	uint8_t buf[SOCK_BUF];
};

/** -ECONNREFUSED, -ETIMEDOUT, ... with the address in @err. */
int sock_open(const struct net_addr *a, uint32_t timeout_ms, struct sock **ret, struct err *err);
/** Begin to connect: sock_connected() tells when that is done. */
int sock_start(const struct net_addr *a, struct sock **ret, struct err *err);
/** 1 connected, 0 not yet (POLLOUT), or why it failed. */
int sock_connected(struct sock *s, const struct net_addr *a, struct err *err);
void sock_close(struct sock *s);

/** Send all of @iov (modified). -ETIMEDOUT, -ECONNRESET, -EPIPE, ... */
int sock_send(struct sock *s, struct iovec *iov, int n, uint64_t deadline_ns, struct err *err);
/** A few bytes that nobody waits for: they leave with the next ones, after 200 ms (the kernel's
 * patience) at the latest. So many of them were taken; the others are the caller's. */
size_t sock_send_later(struct sock *s, const void *p, size_t len);
/** Send what fits now. Bytes, 0 when the socket is full, -errno. */
ssize_t sock_try_send(struct sock *s, struct iovec *iov, int n, struct err *err);
/** Send the rest of a message of @len bytes, of which *@sent are gone. 1 all sent, 0 the socket is
 *  full, -errno. */
int sock_try_send_rest(struct sock *s, const void *p, size_t len, size_t *sent, struct err *err);
/** What is there now, up to @len bytes; when those are all, up to @ahead further bytes are taken
 *  into the buffer by the same call. Bytes, 0: nothing now; -ECONNRESET when the peer closed. */
ssize_t sock_try_recv(struct sock *s, void *dst, size_t len, size_t ahead, struct err *err);
/** Wait for some bytes and take them into the buffer: one system call, when @timeout_ms is what is
 *  left until @deadline_ns. 0, -ETIMEDOUT, -ECONNRESET, ... */
int sock_await(struct sock *s, uint32_t timeout_ms, uint64_t deadline_ns, struct err *err);
/** What is there now goes into the buffer: 1, 0 nothing, -errno. */
int sock_try_fill(struct sock *s, struct err *err);
/** What is in the buffer, *@ret_len bytes: borrowed until the next call. */
static inline const uint8_t *sock_have(const struct sock *s, size_t *ret_len)
{
	*ret_len = s->tail - s->head;
	return s->buf + s->head;
}
/** Look at the next @len <= SOCK_BUF bytes: borrowed until the next call, not consumed. 1, 0: not
 *  all here yet, -errno. */
int sock_try_peek(struct sock *s, size_t len, const uint8_t **ret, struct err *err);
/** Drop @len bytes that sock_try_peek() has shown. */
void sock_consume(struct sock *s, size_t len);
/** The bytes of a message with a varint length, borrowed until the next call. -EPROTO when it is
 *  longer than SOCK_BUF: no data node sends that. */
int sock_recv_delim(struct sock *s, uint64_t deadline_ns, const uint8_t **ret, uint32_t *ret_len,
		    struct err *err);
/** The same without waiting: 1 and the message, 0 not here yet, -errno. */
int sock_try_delim(struct sock *s, const uint8_t **ret, uint32_t *ret_len, struct err *err);
/** Wait for POLLIN and/or POLLOUT. 1, or 0 at the deadline. */
int sock_wait(struct sock *s, short events, uint64_t deadline_ns, struct err *err);

#define SOCK_CACHE_MAX 32          /* idle connections kept per file system */
#define SOCK_IDLE_NS 3000000000ull /* data nodes close after 4 s */

struct sock_cache {
	pthread_mutex_t lock;
	size_t count;
	struct sock *idle[SOCK_CACHE_MAX]; /* owned */
};

bool sock_is_to(const struct sock *s, const struct net_addr *a);
void sock_cache_init(struct sock_cache *c);
void sock_cache_fini(struct sock_cache *c);
/** An idle connection to @a, or NULL. */
struct sock *sock_cache_get(struct sock_cache *c, const struct net_addr *a);
/** One that takes READ_SMALL and owes nothing, or NULL. */
struct sock *sock_cache_get_small(struct sock_cache *c, const struct net_addr *a);
/** The same for a caller that cannot begin anew: one that owes nothing, and that the peer has not
 * closed as far as one can tell. */
struct sock *sock_cache_get_sound(struct sock_cache *c, const struct net_addr *a);
/** Takes @s, for which no byte is outstanding in either direction, or only the packet that it owes.
 */
void sock_cache_put(struct sock_cache *c, struct sock *s);
