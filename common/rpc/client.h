/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/client - blocking Hadoop RPC v9 calls over one shared connection
 *
 * Idea: a call is a function call. Many threads share one connection: each sends its own frame, and
 * of the threads that wait for answers one reads for all (leader and followers), so no thread of
 * our own is needed and nothing but a socket is asked of the kernel. See
 * docs/design/001-threads.md.
 * A connection that was closed while idle is reopened. A call whose connection broke is sent again
 * with the same callId and a higher retryCount (the NameNode's retry cache answers a call that it
 * had executed already), at most RPC_SEND_MAX times and never beyond its deadline.
 * Several servers may stand for each other, of which one is active (an HA pair of NameNodes). A
 * call goes to the one that answered last. When that is a standby or out of reach, the next one is
 * asked, with the same client id and callId: what a call has done before its server failed is in
 * the shared edits, and the retry cache of the other one knows it. A server that asks for patience
 * (RetriableException) gets it.
 * Authentication: SIMPLE, or a token by SASL where the server wants it (client_sasl.h).
 * Ownership: the client copies its options; answers belong to the caller.
 * Threading: rpc_client_call() and rpc_client_cancel() from any thread; free when nobody calls.
 * Limits: an answer is at most 128 MiB (ipc.maximum.response.length), and memory for it is taken
 * only as its bytes arrive.
 * Source: hdfs-wire 1 (RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto).
 */
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/net.h"

enum {
	RPC_SEND_MAX = 4,     /* times one call is sent, when connections break under it */
	RPC_SERVERS_MAX = 16, /* that stand for each other */
};

/** What lets its holder in, as the one who gave it out said. */
struct rpc_token {
	const uint8_t *identifier, *password;
	size_t identifier_len, password_len;
};

struct rpc_client_opts {
	/* Java name: "org.apache.hadoop.hdfs.protocol.ClientProtocol" */
	const char *protocol;
	const char *user;              /* effective user */
	const char *real_user;         /* the user who acts for @user; NULL: none */
	const struct rpc_token *token; /* to be shown at first (outlives the client); NULL: none */
	struct net_addr addr;
	const char *addr_text; /* "host:port" as configured, for messages; NULL: from @addr */
	const char *peer;      /* who should listen there, for messages; NULL: "NameNode" */
	/* the setting with the address, for messages; NULL: "fs.defaultFS" */
	const char *addr_key;
	uint32_t connect_timeout_ms; /* 0: 20 s (ipc.client.connect.timeout) */
	uint32_t call_timeout_ms;    /* all of a call, connects and retries too; with others: of one
					attempt; 0: 120 s */
	uint32_t ping_interval_ms;   /* 0: 60 s (ipc.ping.interval) */
	uint32_t connect_retries;    /* after the first attempt, one second apart */
	const struct rpc_server *others; /* that stand for @addr; may be NULL */
	uint32_t other_count;
	/* with others: */
	uint32_t failovers_max; /* changes of server in one call */
	uint32_t retries_max;   /* times one call is sent again on a RetriableException */
	uint32_t pause_base_ms, pause_max_ms; /* before these, from the second change on; doubled */
};

/** Where one of several servers listens. */
struct rpc_server {
	struct net_addr addr;
	const char *addr_text; /* "host:port" as configured, for messages */
};

struct conf;
struct rpc_client;

/** Set the times of @o from ipc.client.connect.timeout, ipc.client.rpc-timeout.ms and
 *  ipc.ping.interval. -EINVAL. */
int rpc_client_conf(const struct conf *conf, struct rpc_client_opts *o, struct err *err);
/** Connects at the first call. -ENOMEM, -EINVAL more than RPC_SERVERS_MAX, or the error of
 * getrandom(2). */
int rpc_client_new(const struct rpc_client_opts *o, struct rpc_client **ret, struct err *err);
void rpc_client_free(struct rpc_client *c);

/**
 * Call @method and wait. The answer, a message of @resp_desc, goes to *ret_resp: free it with
 * protobuf_c_message_free_unpacked(m, NULL). @ret_resp may be NULL when the answer says nothing.
 * 0, or
 *  -ECONNREFUSED, -EHOSTUNREACH, -ECONNRESET, ...  no connection, or it broke RPC_SEND_MAX times
 *  -ETIMEDOUT   no answer by the deadline; the call may have been executed
 *  -EPROTO      what listens there does not speak Hadoop RPC, or the answer is malformed
 *  -ECANCELED   rpc_client_cancel(); the call may have been executed
 *  -ENOMEM
 *  rpc_class_errno() of common/wire: the server threw; @err->remote is the Java class, @err->text
 *               the first line of its message
 */
int rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *req,
		    const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret_resp,
		    struct err *err);

/** Other connect_retries from now on: a program that starts wants to hear at once that nobody
 *  listens, one in the middle of its work rather waits for a NameNode that restarts. While nobody
 *  calls. */
void rpc_client_set_connect_retries(struct rpc_client *c, uint32_t retries);

/** How many connections there have been. A call between two equal answers went by the last of them,
 *  and was answered by the same process as all calls before it that did. Any thread. */
uint64_t rpc_client_connections(const struct rpc_client *c);

/** Wake every caller with -ECANCELED, now and for ever (shutdown). */
void rpc_client_cancel(struct rpc_client *c);
