/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** server_internal - what the two files of rpc/server share: server.c has connections, bytes and
 * answers, server_frame.c has what the frames of a peer mean. All on the reactor, but for
 * server_call_fail(). */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/rpc/server.h"
#include "common/rpc/server_room.h"
#include "common/transport/transport.h"
#include "common/wire/rpc_frame.h"

#define ERROR_TEXT_MAX 16384 /* a message may name two paths of 8,000 bytes */

enum conn_state {
	CONN_WAIT_PREAMBLE, /* leaves when the 7 bytes have come */
	CONN_WAIT_CONTEXT,  /* leaves on the connection context, after SASL if the peer wants it */
	CONN_OPEN,          /* calls */
	CONN_FAREWELL,      /* a fatal answer is on its way; input is thrown away */
	CONN_CLOSED,        /* transport closed; waits for ops and calls to come back */
};

struct rpc_server {
	struct reactor *reactor;
	struct rpc_server_opts opts;
	struct xlistener *listener;
	struct list conns;
	struct list parked; /* not read until calls, or the bytes of large ones, are fewer */
	uint32_t calls;
	struct room room;
	struct log_rate limit_log;
	bool closing;
};

struct conn {
	struct rop rop;
	struct rpc_server *server;
	struct xconn *x; /* NULL when closed */
	struct list link, park_link;
	enum conn_state state;
	enum rpc_auth auth;
	bool sasl_done, receiving;
	struct xop recv_op;
	uint8_t *buf; /* bytes not parsed yet; grows as they arrive, never by a promised length */
	uint32_t len, cap;
	bool blocked; /* a whole frame is here, and may not be taken yet */
	/* when the first of the bytes that are not parsed came, or could be read again */
	uint64_t begun_ns;
	uint32_t calls, sends; /* out; the connection outlives them */
	struct guest guest;
	uint64_t farewell_ns; /* when CONN_FAREWELL ends */
	struct net_addr peer;
	char peer_ip[NET_TEXT_MAX];
	char *user, *real_user; /* set by the context, constant then */
};

/* An answer on its way out; a call while it is with the service. */
struct call {
	struct rpc_call pub;
	struct conn *conn;
	struct rpc_request req;
	struct rmsg msg;
	struct xop send_op;
	uint8_t *answer; /* owned */
	size_t answer_len;
	bool fatal;
	uint32_t len;   /* of the request's frame, while it is with the service; else 0 */
	uint8_t *large; /* that frame, owned, when it is more than ROOM_SMALL; else it is here: */
	uint8_t frame[];
};

/* server.c */
void server_conn_close(struct conn *c);
/** An answer that is to no call: takes @answer. */
void server_conn_send(struct conn *c, uint8_t *answer, size_t len, bool fatal);
/** The connection ends, and the peer is told why. */
void server_conn_fatal(struct conn *c, int32_t call_id, enum rpc_detail detail, const char *cls,
		       const char *text);
/** From any thread. */
void server_call_fail(struct call *k, enum rpc_detail detail, const char *cls, const char *text);
void server_call_free(struct call *k);

/* server_frame.c */
/** @p has RPC_PREAMBLE_LEN bytes. */
void server_on_preamble(struct conn *c, const uint8_t *p);
void server_on_http(struct conn *c);
void server_on_frame(struct conn *c, const uint8_t *frame, uint32_t len);
