/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * xfer - the data port: operations of DataTransferProtocol and of the RDMA capsules
 *
 * Idea: a front end (dtp over a stream, capsules over a message transport) turns foreign bytes into
 * pieces; the engine verifies, writes, forwards and acknowledges pieces, or reads and sends them,
 * and does not know which front end asked. Payload lands in a pool slot and leaves from it.
 * Threading: an operation lives on one reactor; xfer_* below may be called from any thread.
 */
#include "common/base/err.h"
#include "HdfsServer.pb-c.h"
#include "datanode/dn.h"

struct xfer;

/** Listen on dn->data_addr with every reactor (sets the real port), TCP and, where there is a
 *  device, RDMA. */
int xfer_start(struct dn *dn, struct xfer **ret, struct err *err);
/** Stop accepting; finish what is in flight within @grace_ms, then close the rest. Blocks. False: some of it does not end,
 *  so that nothing that it uses may be freed. */
bool xfer_stop(struct xfer *x, uint32_t grace_ms);
/** Like xfer_stop(), when this node comes back at once (dfsadmin -shutdownDatanode upgrade): clients that write get
 *  OOB_RESTART and a short while to let go; what is being written stays RBW over the restart. */
bool xfer_stop_for_restart(struct xfer *x, uint32_t grace_ms);
/** End every write in progress, as if this node had failed it (dfsadmin -evictWriters). Blocks shortly. */
void xfer_evict_writers(struct xfer *x);
/** It is out of service: what waits for a helper thread of it, to open a replica, need not wait. */
void xfer_volume_out(struct xfer *x, uint32_t volume);
/** After xfer_stop() and after the reactors are freed: their buffers go with it. */
void xfer_free(struct xfer *x);

/** Copy a replica to a chain of nodes, as a NameNode orders (hdfs-wire 5.7): WRITE_BLOCK with an
 *  empty client name. Any thread; @done (any reactor thread) gets 0 or -errno. */
int xfer_transfer(struct xfer *x, struct block_pool *bp, const struct block *b,
		  const struct dn_target *targets, uint32_t n,
		  void (*done)(void *arg, int rc, const struct err *err), void *arg);

struct rebuild_params;
/** Rebuild units of a striped group, as a NameNode orders (rebuild.h). Any thread; takes *@params, also on failure. -EINVAL
 *  and the like come through done(), too; -ENOMEM at once. */
int xfer_rebuild(struct xfer *x, struct rebuild_params *params);

/** Block keys of a pool, from the answer to the registration or a KeyUpdateCommand: whether access tokens are asked for
 *  and what checks them (token.h). Nothing of @keys is kept. Any thread. -EINVAL, -ENOMEM: the keys before stay. */
int xfer_block_keys(struct xfer *x, const char *pool_id, const Hd__ExportedBlockKeysProto *keys,
		    struct err *err);
