/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp_call - this data node as a client of another one: connect, send an op, take the answer
 *
 * Idea: every op that this node sends over TCP begins in the same way. A call connects to the other
 * node, sends the encoded op (with its token) and waits for one BlockOpResponse. The connection is
 * the caller's then: for packets (dtp_source.c, dtp_sink.c, dtp_replace.c), or to be closed
 * (dtp_group_checksum.c). Nothing behind the answer is received.
 * Ownership: a call is a member of its caller's struct, which lives until done(). A call that fails
 * closes its connection before done().
 * Threading: one reactor.
 * Units: nanoseconds.
 * Source: hdfs-wire 5.2, 5.8.
 */
#include "common/transport/transport.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/block/engine.h"
#include "datanode/dtp/dtp_buf.h"

#define DTP_ANSWER_MAX ((1u << 20) - 16) /* bytes of a BlockOpResponse: all CRCs of a unit fit */

struct dtp_call_params {
	const struct dn_target *to; /* borrowed for dtp_call_start() */
	uint8_t *op;                /* malloc'ed, as of dt_op_encode(); taken, also on failure */
	size_t op_len;
	uint64_t connect_ns;   /* patience with the connect */
	uint64_t answer_by_ns; /* the answer is whole by then; 0: read_ns, from its first part on */
	bool no_answer;        /* the op has none: over when it is sent */
};

enum dtp_call_state {
	DTP_CALL_WAIT_CONNECT, /* leaves on connect */
	DTP_CALL_WAIT_SENT,    /* leaves when the op is sent */
	DTP_CALL_WAIT_ANSWER,  /* leaves when the whole answer is here */
	DTP_CALL_OVER,
};

struct dtp_call {
	/* for done() and after it */
	struct xconn *xc; /* of a call that succeeded: the caller's */
	int rc;
	struct err err;          /* why it failed, in a sentence that names the peer */
	char peer[NET_TEXT_MAX]; /* "ip:port" */
	uint64_t sent_ns;        /* the op was sent */

	/* private */
	struct rop rop;
	struct engine_core *core;
	enum dtp_call_state state;
	uint8_t *op;
	size_t op_len;
	uint64_t answer_by_ns;
	bool no_answer;
	struct xop xop; /* one of connect, send, receive at a time */
	bool busy;
	struct dtp_buf in;
	Hd__BlockOpResponseProto *answer;
	void (*done)(struct dtp_call *c, const Hd__BlockOpResponseProto *answer);
};

/** Begin. @done comes once, on the reactor, with nothing in flight: c->rc is 0 and @answer
 *  (borrowed; NULL of a call with no_answer) has any status, or c->rc is -errno. @c may be freed in
 *  it. -ENOMEM and the like at once. */
int dtp_call_start(struct dtp_call *c, struct engine_core *core, const struct dtp_call_params *p,
		   void (*done)(struct dtp_call *c, const Hd__BlockOpResponseProto *answer));
/** Give up, before done(), which comes with -ECANCELED then. May be repeated. */
void dtp_call_cancel(struct dtp_call *c);
