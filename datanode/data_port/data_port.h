/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * data_port - the data port: operations of DataTransferProtocol and of the RDMA capsules
 *
 * Idea: a front end (dtp over a stream, capsules over a message transport) turns foreign bytes into
 * pieces; the engine verifies, writes, forwards and acknowledges pieces, or reads and sends them,
 * and does not know which front end asked. Payload lands in a pool slot and leaves from it.
 * Threading: an operation lives on one reactor; the functions below may be called from any thread.
 */
#include "HdfsServer.pb-c.h"
#include "common/base/err.h"
#include "datanode/dn.h"

struct data_port;

/** Listen on dn->data_addr with every reactor (sets the real port), TCP and, where there is a
 *  device, RDMA. */
int data_port_start(struct dn *dn, struct data_port **ret, struct err *err);
/** Stop accepting; finish what is in flight within @grace_ms, then close the rest. Blocks. False:
 *  some of it does not end, so that nothing that it uses may be freed. */
bool data_port_stop(struct data_port *x, uint32_t grace_ms);
/** Like data_port_stop(), when this node comes back at once (dfsadmin -shutdownDatanode upgrade):
 *  clients that write get OOB_RESTART and a short while to let go; what is being written stays RBW
 *  over the restart. */
bool data_port_stop_for_restart(struct data_port *x, uint32_t grace_ms);
/** End every write in progress, as if this node had failed it (dfsadmin -evictWriters). Blocks
 * shortly. */
void data_port_evict_writers(struct data_port *x);
/** The volume is out of service: operations that wait for one of its helper threads, to open a
 *  replica, need not wait any more. */
void data_port_volume_out(struct data_port *x, uint32_t volume);
/** After data_port_stop() and after the reactors are freed: their buffers go with it. */
void data_port_free(struct data_port *x);

/** Copy a replica to a chain of nodes, as a NameNode orders (hdfs-wire 5.7): WRITE_BLOCK with an
 *  empty client name. Any thread; @done (any reactor thread) gets 0 or -errno. */
int data_port_transfer(struct data_port *x, struct block_pool *bp, const struct block *b,
		       const struct dn_target *targets, uint32_t n,
		       void (*done)(void *arg, int rc, const struct err *err), void *arg);

struct reconstruct_params;
/** Rebuild units of a striped group, as a NameNode orders (reconstruct.h). Any thread; takes
 *  *@params, also on failure. -EINVAL and the like come through done(), too; -ENOMEM at once. */
int data_port_rebuild(struct data_port *x, struct reconstruct_params *params);

/** Block keys of a pool, from the answer to the registration or a KeyUpdateCommand: whether access
 *  tokens are asked for and what checks them (token.h). Nothing of @keys is kept. Any thread.
 *  -EINVAL, -ENOMEM: the keys before stay. */
int data_port_block_keys(struct data_port *x, const char *pool_id,
			 const Hd__ExportedBlockKeysProto *keys, struct err *err);
