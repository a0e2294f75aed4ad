/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * fake - test code: a transport in memory, of both kinds, with faults on demand
 *
 * Idea: what is hard to see on a real network is chosen here by a seed and options: completion
 * inside the submitting call, completions late and out of order, short reads, a receiver without
 * credit, an op that fails, a connection that breaks after N ops. The same seed gives the same run.
 * Effects (bytes sent, bytes written to the peer's memory) happen in order of submission; only
 * completions are delayed and permuted, as real devices may do.
 * Ownership and errors: as in transport.h. Threading: both ends on one reactor; for tests only.
 */
#include "common/transport/transport.h"

struct fake_opts {
	bool messages; /* false: stream */
	uint64_t seed;
	bool inside_submit;      /* done() runs before the submitting call returns, where it can */
	uint32_t delay_turns;    /* each completion comes 0..delay_turns turns late */
	bool shuffle;            /* what is due in one turn completes in any order */
	uint32_t recv_max;       /* stream: recv gives at most so many bytes; 0: all there are */
	bool vectored;           /* stream: there is recvv */
	uint32_t max_message;    /* messages; 0: 1024 */
	uint32_t credits;        /* messages not received yet; a send beyond waits. 0: no limit */
	uint32_t drop_after_ops; /* the connection breaks at this op, both ends counted; 0: never */
	/* this op, both ends counted from 1, fails with fail_rc; 0: none */
	uint32_t fail_op;
	int fail_rc;
	uint32_t refuse_connects; /* so many connects get -ECONNREFUSED first */
};

extern const struct xport_ops fake_stream_ops, fake_message_ops;

/** Two connected ends. -ENOMEM. */
int fake_pair(struct reactor *r, const struct fake_opts *o, struct xconn *ret[2]);
/** connect() of fake_*_ops to *ret_addr reaches this listener, as long as it is open. */
int fake_listen(struct reactor *r, const struct fake_opts *o, const struct xlistener_opts *lo,
		struct net_addr *ret_addr, struct xlistener **ret);

/** Let the peer of @c pull from and push to @mem (borrowed until revoked or closed); returns the
 *  rkey. Anything else that the peer names breaks the connection, as on real hardware. 0: no
 *  memory. */
uint32_t fake_expose(struct xconn *c, void *mem, size_t len);
void fake_revoke(struct xconn *c, uint32_t rkey);
/** Break the connection now: every op of both ends comes back with -ECONNRESET. */
void fake_break(struct xconn *c);
/** Ops submitted so far on both ends. */
uint32_t fake_ops(const struct xconn *c);
