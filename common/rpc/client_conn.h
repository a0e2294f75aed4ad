/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/client_conn - one connection of the blocking client: bytes and frames, nothing about calls
 *
 * Idea: send whole frames, read whole frames, each by a deadline. A read that runs into its
 * deadline keeps what came so far; another thread may go on with it.
 * Frames gather in a buffer while one thread sends, so that many callers share a system call. Bytes
 * that were read beyond a frame wait in another buffer.
 * Threading: one thread may send and another read at the same time; the client sees to it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/rpc/client.h"

#define RPC_RX_BUF 16384
#define RPC_TX_KEEP 65536 /* a larger buffer is given back when it is sent */

struct rpc_bytes {
	uint8_t *p; /* owned */
	size_t len, cap;
};

struct rpc_conn {
	int fd;
	uint32_t server; /* the client's: which of its servers */
	/* the client's lock protects these */
	uint32_t refs; /* the client, each call in calls, the reader, the sender */
	bool is_broken;
	bool has_reader;
	bool has_sender;
	uint32_t answered;           /* calls, since somebody last waited for their callers */
	struct list calls;           /* waiting for an answer */
	struct rpc_bytes out, spare; /* to be sent; empty, for its memory */
	struct rpc_bytes sending;    /* the sender's, for who cannot wait: of it, so much is sent */
	size_t sent;
	/* the reader's */
	uint32_t pos, end;
	uint8_t buf[RPC_RX_BUF];
	bool in_frame;
	uint8_t *frame; /* owned until taken */
	uint32_t frame_len, frame_got, frame_cap;
};

/** Connect, send preamble and connection context. The error says who could not be reached. */
int rpc_conn_open(const struct rpc_client_opts *o, const uint8_t *client_id, uint64_t deadline_ns,
		  struct rpc_conn **ret, struct err *err);
void rpc_conn_free(struct rpc_conn *c);
/** Frames for the next rpc_conn_take_out(). -ENOMEM. */
int rpc_conn_queue(struct rpc_conn *c, const uint8_t *buf, size_t len);
/** All that is queued, for rpc_conn_send() and then rpc_conn_give_back(). */
struct rpc_bytes rpc_conn_take_out(struct rpc_conn *c);
void rpc_conn_give_back(struct rpc_conn *c, struct rpc_bytes b);
/** All of @buf. -ETIMEDOUT (part of it may be sent: the connection is of no more use), -EPIPE,
 *  -ECONNRESET, ... */
int rpc_conn_send(struct rpc_conn *c, const uint8_t *buf, size_t len, uint64_t deadline_ns);
/** The next frame, malloc'ed, without its length prefix: 0. @deadline_ns 0: without waiting.
 *  -ETIMEDOUT: call again later;
 *  -ECONNRESET: closed or broken; -EPROTO: no frame of Hadoop RPC, with the bytes in @err. */
int rpc_conn_read(struct rpc_conn *c, uint64_t deadline_ns, uint8_t **ret, uint32_t *ret_len,
		  struct err *err);
/** The reader's: the next rpc_conn_read() need not wait. */
bool rpc_conn_has_frame(const struct rpc_conn *c);
/** Closed by the peer while nobody was looking; only when no call is waiting. */
bool rpc_conn_is_stale(const struct rpc_conn *c);
