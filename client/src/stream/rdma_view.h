/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rdma_view - cached blocks that we READ from a node's memory ourselves
 *
 * Idea: a node that has a block cached tells where it is, for ten seconds at a time (docs/wire.md,
 * VIEW). From then on a read of it is one READ for the data and one for their CRCs, and the node's
 * processor has nothing to do with it. A connection has the views of its own; all readers of the
 * handle share them. Whatever is not as it should be is no error: the read goes the ordinary way.
 * Lease: counted from when it was asked for, and used up to 3 s before its end, so that a READ that
 * is under way is over by then. No more are under way than the node answers at a time, so none
 * waits for others; one that finds no room in the send queue waits, and is not posted too late.
 * Threading: all of it on the reactor.
 * Source: docs/design/019-one-sided-reads.md.
 */
#include "client/src/stream/rdma.h"
#include "hdfs.pb-c.h"

#define RDMA_VIEWS_MAX 24u /* of one connection; the one that was used longest ago goes */

struct rview;

/** What a view is asked for by: a packed OpReadBlockProto, malloc'ed. -errno. */
struct rview_ask {
	const Hd__ExtendedBlockProto *block;
	int (*pack)(void *arg, uint8_t **ret, size_t *ret_len);
	void *arg;
};

/** What the node of @c lets us READ of the block now; NULL: nothing. It is asked for that, or for
 *  more time, where that may help. Good until the reactor's next turn, or while it is read. */
struct rview *rdma_view_get(struct rcall *c, const struct rview_ask *a);
/** Where it is, and how long. */
const struct capsule_view *rdma_view_of(const struct rview *v);
/** It was not what its CRCs say: the block is left alone here for a while. */
void rdma_view_distrust(struct rcall *c, const Hd__ExtendedBlockProto *block);

/** A READ under way; embedded. */
struct rview_read {
	struct xop op;
	struct rview *view;
	/** -ETIME: its time was over before it could be posted; the node is to be asked. Else @res
	 *  negative: the connection is lost, which is told to its calls, too. */
	void (*done)(struct rview_read *q, int res);
};
/** May @n more be posted? */
bool rdma_view_has_room(const struct rview *v, uint32_t n);
/** READ @len bytes of the node's memory at @addr to @slot at @off; or to @to, which is in @m.
 *  False: @m is not on the device, nothing was begun. */
void rdma_view_read(struct rview *v, struct rview_read *q, uint64_t addr, uint32_t len,
		    struct slot *slot, uint32_t off);
bool rdma_view_read_to(struct rview *v, struct rview_read *q, uint64_t addr, uint32_t len,
		       const struct rmem *m, void *to);

/* rdma.c's */
struct rconn;
/** What is no call's has come: a VIEW_REPLY, or nothing. */
void rdma_view_reply(struct rconn *c, const struct capsule *m);
/** The connection is lost. */
void rdma_views_lost(struct rconn *c);
