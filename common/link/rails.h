/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rails - the addresses by which a node is reached over RDMA, and which of them comes next
 *
 * Idea: a node is known by one address. When a connection to it stands, it has told the others that
 * it has on RDMA devices (docs/wire.md section 2). A connection more then goes to the address that
 * has the fewest; one that did not come up, or broke, is left alone while there is another, for
 * RAILS_AVOID_NS at first, twice as long each time, 2^RAILS_AVOID_EXP times at most. An address may
 * mean another machine from here: so each process says a number, and only an address where the same
 * number is said is one of the node's.
 * Errors: none; without memory a node has the one address that it is known by.
 * Threading: any thread; one lock, held for a few lines.
 * Source: docs/design/017-rdma-cores-and-peers.md.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/transport/verbs.h"

#define RAILS_AVOID_NS (10 * NS_PER_S)
#define RAILS_AVOID_EXP 6u
#define RAILS_NODES 1024u /* most that are remembered without a connection */

struct rails {
	pthread_mutex_t lock;
	struct list nodes; /* the one that was asked for last is the first */
	uint32_t count;
	bool off;
};

struct rail; /* one address of one node, from rails_get() to rails_put() */

/** @off: a node has the address that it is known by, and no other. */
void rails_init(struct rails *t, bool off);
/** All rails are back. */
void rails_fini(struct rails *t);

/** Where a connection to @node goes now: it counts there until rails_put(). NULL: no memory, it
 *  goes to @node. */
struct rail *rails_get(struct rails *t, const struct net_addr *node, uint64_t now_ns);
const struct net_addr *rails_addr(const struct rail *r);
/** The connection stands, and the node has said @h. False: it is not the process that it should be,
 *  so it did not come up; the address that the node is known by is next. Accepts NULL (true). */
bool rails_up(struct rails *t, struct rail *r, const struct verbs_hello *h);
/** It did not come up, or broke. Accepts NULL. */
void rails_failed(struct rails *t, struct rail *r, uint64_t now_ns);
/** Accepts NULL. */
void rails_put(struct rails *t, struct rail *r);
struct rails_state {
	uint32_t good;   /* addresses that may be tried now */
	uint32_t unused; /* of these, without a connection: one more is worth its while */
};
struct rails_state rails_state(struct rails *t, const struct net_addr *node, uint64_t now_ns);
