/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * operations - the operations under way on the data port: what each is doing and what it waits for
 *
 * Idea: an operation knows its state; this turns states into words for an operator. The word is the
 * state's name in the code: BW_WAIT_NEXT_NODE is "wait_next_node". A state that waits names the
 * resource (buffers, disk, peer, next_node, turn, bandwidth). "run" does several things at a time;
 * waits_for says which of them the others wait for. Made when asked, each reactor looks at its own
 * operations, so nothing is locked or counted on the data path.
 * Units: bytes; milliseconds.
 */
#include "common/base/list.h"
#include "common/base/net.h"
#include "datanode/data_port/data_port.h"

struct operation {
	/* "read", "write", "reconstruct"; "checksum", "descriptors", "move" (from volume to
	 * volume), "sync", "call" (of the RPC port) */
	const char *kind;
	const char *role;      /* whose buffers: "client", "peer", ...; of a call: its method */
	const char *transport; /* "tcp", "rdma"; "none": bytes that stay here */
	const char *state;     /* the state's name */
	/* "buffers", "disk", "peer", "next node", ...; "" : nothing, it runs */
	const char *waits_for;
	char pool[80];
	int64_t block_id;
	uint64_t gs;
	char peer[NET_TEXT_MAX]; /* who asked */
	char next[NET_TEXT_MAX]; /* of a write: the node behind this one, or "" */
	char volume[64];         /* storage uuid, or "" */
	uint64_t bytes;          /* moved so far, of a read, write or reconstruction */
	uint64_t age_ms;
	uint64_t quiet_ms; /* since something of it last moved */
	uint64_t held;     /* bytes of buffers */
	uint32_t reactor;
};

#define XFER_OPS_MAX 10000 /* of one reactor: more are left out */

/** All operations. malloc'ed, the caller frees; *ret_count of them. Blocks until every reactor has
 *  looked. -ENOMEM. */
int data_port_ops(struct data_port *x, struct operation **ret, uint32_t *ret_count);

struct engine_core;
/** A place for one more in a reactor's list, or NULL; for block_read.c, block_write.c,
 * reconstruct.c. */
struct operation_list {
	struct operation *op;
	uint32_t count, cap;
	uint64_t now_ns;
};
struct operation *operation_add(struct operation_list *l, uint64_t begun_ns, uint64_t moved_ns);
void block_read_list(struct engine_core *core, struct operation_list *l);
void block_write_list(struct engine_core *core, struct operation_list *l);
void reconstruct_list(struct engine_core *core, struct operation_list *l);

/** An operation of any other kind: a member of it. Zeroed: not listed. */
struct operation_entry {
	struct list link;
	uint64_t begun_ns;
	/** All but the times. On the reactor. */
	void (*tell)(const struct operation_entry *e, struct operation *ret);
};
/** List @e from now on, until xfer_entry_end(), which is harmless when it is not listed. On the
 * reactor. */
void xfer_entry_begin(struct engine_core *core, struct operation_entry *e,
		      void (*tell)(const struct operation_entry *e, struct operation *ret));
void xfer_entry_end(struct operation_entry *e);
/** The same for operations of others on the first reactor. */
void xfer_entry_begin_first(struct data_port *x, struct operation_entry *e,
			    void (*tell)(const struct operation_entry *e, struct operation *ret));
void entries_list(struct engine_core *core, struct operation_list *l);
