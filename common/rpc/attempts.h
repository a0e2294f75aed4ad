/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/attempts - what becomes of a call after each attempt to send it
 *
 * Idea: the blocking client (client.h) and the queue (queue.h) move bytes each in its own way, but
 * a call that met a broken connection, a standby or an exception has to go the same way in both:
 * over, again, or to another server, after the same pause, with the same last words. That is
 * decided here.
 * Ownership: a target owns copies of its options; struct rpc_attempts is a value.
 * Threading: a target is constant once made, but for is_hadoop; the rest belongs to its caller.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "common/rpc/client.h"
#include "common/wire/rpc_frame.h"

enum {
	RPC_CONNECT_PAUSE_MS = 1000, /* between attempts to connect */
};

/* Whom the calls go to, and as whom. */
struct rpc_target {
	struct rpc_client_opts o;                   /* strings owned; without the servers */
	struct rpc_server servers[RPC_SERVERS_MAX]; /* strings owned */
	uint32_t server_count;
	char addr_buf[NET_TEXT_MAX];
	/* a retry cache knows calls by this and the call id */
	uint8_t client_id[RPC_CLIENT_ID_LEN];
	atomic_bool is_hadoop; /* it has answered once as Hadoop RPC should */
};

/* How an attempt ended. */
enum rpc_outcome {
	RPC_ANSWERED, /* also with an exception */
	RPC_FAILED,   /* err says why */
	RPC_BROKEN,   /* the connection went away: the call may have been executed */
};

/* What is to become of the call. */
enum rpc_next {
	RPC_END,   /* this is its outcome */
	RPC_AGAIN, /* to the same server */
	RPC_OTHER, /* to the next server */
};

struct rpc_attempts {
	const char *method;
	int32_t id;
	int32_t sent;    /* attempts that have ended: the retry count of the next one */
	uint32_t server; /* of the last attempt */
	uint64_t deadline_ns;
	uint32_t failovers, retries;
	bool was_broken;
	struct err err;
};

/** Copies @o. -EINVAL, -ENOMEM, or the error of getrandom(2). */
int rpc_target_init(struct rpc_target *t, const struct rpc_client_opts *o, struct err *err);
/** Also of a half-made one. */
void rpc_target_fini(struct rpc_target *t);
/** "host:port" as configured. */
const char *rpc_target_text(const struct rpc_target *t, uint32_t server);
/** Is the answer to a call of ours? -EPROTO: of somebody else. */
int rpc_target_check(const struct rpc_target *t, uint32_t server, const struct rpc_response *r,
		     struct err *err);
/** Why a fatal answer ends the connection. */
void rpc_target_fatal(const struct rpc_target *t, uint32_t server, const struct rpc_response *r,
		      struct err *err);
/** An answer of @server could not be decoded: @rc says why. */
void rpc_target_malformed(const struct rpc_target *t, uint32_t server, int rc, struct err *err);
/** Options for rpc_conn_open() to one of the servers. */
struct rpc_client_opts rpc_target_conn_opts(const struct rpc_target *t, uint32_t server);

/** A new call, its time beginning now. */
void rpc_attempts_begin(struct rpc_attempts *a, const struct rpc_target *t, const char *method,
			int32_t id);
/** The request's frame for the next attempt. */
int rpc_attempts_encode(const struct rpc_attempts *a, const struct rpc_target *t,
			const ProtobufCMessage *req, uint8_t **ret, size_t *ret_len);
/** The answer in @frame: its message to *@ret (may be NULL). The exception, or a bad answer, in
 * a->err. */
int rpc_attempts_decode(struct rpc_attempts *a, struct rpc_target *t, const uint8_t *frame,
			uint32_t len, const ProtobufCMessageDescriptor *desc,
			ProtobufCMessage **ret);
/** The same of an answer whose header is decoded. */
int rpc_attempts_take(struct rpc_attempts *a, const struct rpc_target *t,
		      const struct rpc_response *r, const ProtobufCMessageDescriptor *desc,
		      ProtobufCMessage **ret);
/** The deadline has passed. */
int rpc_attempts_late(struct rpc_attempts *a, const struct rpc_target *t);
/** An attempt ended as @o with *@rc. RPC_END: *@rc is the call's, and a->err says why. Otherwise a
 *  new deadline is set where there are several servers, and *@ret_pause_ms is what to wait first.
 */
enum rpc_next rpc_attempts_next(struct rpc_attempts *a, const struct rpc_target *t,
				enum rpc_outcome o, int *rc, uint32_t *ret_pause_ms);
/** "The call was cancelled", -ECANCELED. */
int rpc_cancelled(struct err *err);
