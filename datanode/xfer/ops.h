/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ops - the operations under way on the data port: what each is doing and what it waits for
 *
 * Idea: an operation knows its state; this turns states into words for an operator. Made when asked,
 * each reactor looks at its own operations, so nothing is locked or counted on the data path.
 * Units: bytes; milliseconds.
 */
#include "common/base/net.h"
#include "datanode/xfer/xfer.h"

struct xfer_op {
	const char *kind;      /* "read", "write", "reconstruct" */
	const char *role;      /* whose buffers: "client", "peer", ... */
	const char *transport; /* "tcp", "rdma"; "none": bytes that stay here */
	const char *state;     /* the state's name */
	const char *waits_for; /* "buffers", "disk", "peer", "next node", ...; "" : nothing, it runs */
	char pool[80];
	int64_t block_id;
	uint64_t gs;
	char peer[NET_TEXT_MAX]; /* who asked */
	char next[NET_TEXT_MAX]; /* of a write: the node behind this one, or "" */
	char volume[64];         /* storage uuid, or "" */
	uint64_t bytes;          /* moved so far */
	uint64_t age_ms;
	uint64_t quiet_ms;       /* since something of it last moved */
	uint64_t held;           /* bytes of buffers */
	uint32_t reactor;
};

#define XFER_OPS_MAX 10000 /* of one reactor: more are left out */

/** All operations. malloc'ed, the caller frees; *ret_count of them. Blocks until every reactor has
 *  looked. -ENOMEM. */
int xfer_ops(struct xfer *x, struct xfer_op **ret, uint32_t *ret_count);

struct xfer_core;
/** A place for one more in a reactor's list, or NULL; for bread.c, bwrite.c, rebuild.c. */
struct xfer_op_list {
	struct xfer_op *op;
	uint32_t count, cap;
	uint64_t now_ns;
};
struct xfer_op *xfer_op_add(struct xfer_op_list *l, uint64_t begun_ns, uint64_t moved_ns);
void bread_list(struct xfer_core *core, struct xfer_op_list *l);
void bwrite_list(struct xfer_core *core, struct xfer_op_list *l);
void rebuild_list(struct xfer_core *core, struct xfer_op_list *l);
