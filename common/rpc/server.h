/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/server - Hadoop RPC v9 on a reactor
 *
 * Idea: the server does framing, preamble, SIMPLE authentication (and the SASL NEGOTIATE that
 * clients with tokens send), ping, bounds and errors; a service gets decoded calls and answers each
 * exactly once, at any time, from any thread.
 * Limits: request <= ipc.maximum.data.length (128 MiB, 64 KiB before it is known who calls, and
 * memory for it is taken only as bytes arrive), calls in flight per connection and in all,
 * connections, bytes of requests and answers in all; slow or silent peers are closed. At the limit
 * of connections or bytes somebody else's connection goes (server_room.h).
 * Ownership: a call belongs to the handler until rpc_reply()/rpc_fail(), which free it. Replies to
 * connections that have gone away meanwhile are dropped quietly.
 * Threading: call() runs on the reactor and must not block; replies from any thread.
 * Source: hdfs-wire section 1.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/net.h"
#include "common/reactor/reactor.h"

struct auth_to_local;
struct pb_room;

struct rpc_call {
	const char *protocol; /* Java name */
	const char *method;
	const char *user;         /* effective user of the connection: a short name */
	const char *real_user;    /* or NULL */
	const uint8_t *client_id; /* client_id_len bytes, mostly 16 */
	uint32_t client_id_len;
	int32_t call_id;
	int32_t retry_count;
	const uint8_t *request; /* the request message, request_len bytes */
	uint32_t request_len;
	const struct net_addr *peer;
	const char *peer_ip; /* the same as text, without the port */
	void *user_data;     /* the service's */
	/* the service's: it answers from another thread and wakes the reactor (reactor_wake)
	 * itself, when it has answered all that it can */
	bool quiet;
};

struct rpc_service {
	const char *protocol;
	void (*call)(void *arg, struct rpc_call *call);
	void *arg;
};

struct rpc_server_opts {
	struct net_addr addr;
	const struct rpc_service *services; /* borrowed; outlives the server */
	uint32_t service_count;
	/* borrowed; what users are called; NULL: the first part of their names */
	const struct auth_to_local *names;
	/* of more, one without a call goes, which may be the new one; 0: 4096 */
	uint32_t max_conns;
	/* 0: 128 MiB; four times as much may be kept for all of them, and as much for answers */
	uint32_t max_request;
	/* without a frame, and for one to arrive, and a second more for each 64 KiB of it; 0: 120 s
	 */
	uint64_t idle_timeout_ms;
};

struct rpc_server;

int rpc_server_new(struct reactor *r, const struct rpc_server_opts *o, struct net_addr *ret_bound,
		   struct rpc_server **ret, struct err *err);
/** Stop accepting, answer nothing more, close connections; then frees itself. On the reactor. */
void rpc_server_close(struct rpc_server *s);

/** Decode the request into a message of @desc: free with protobuf_c_message_free_unpacked(m, NULL)
 *  before or after the reply. NULL: malformed; the call has been answered and is gone. */
ProtobufCMessage *rpc_call_decode(struct rpc_call *call, const ProtobufCMessageDescriptor *desc);
/** The same into @room (pb.h): free with pb_free_in(). */
ProtobufCMessage *rpc_call_decode_in(struct rpc_call *call, struct pb_room *room,
				     const ProtobufCMessageDescriptor *desc);
/** Success with @resp (packed before this returns). */
void rpc_reply(struct rpc_call *call, const ProtobufCMessage *resp);
/** Exception of Java class @cls ("java.io.FileNotFoundException"). */
void rpc_fail(struct rpc_call *call, const char *cls, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** RpcNoSuchMethodException. */
void rpc_fail_no_method(struct rpc_call *call);
