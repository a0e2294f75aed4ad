/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ipc - the data node's RPC port: ClientDatanodeProtocol and InterDatanodeProtocol
 *
 * Idea: a call is decoded on a helper thread of the reactor that no disk can hold up. One that may
 * ask a disk, or wait for a writer to stop, is answered on a thread of that disk's volume, all
 * others at once.
 * Threading: ipc_start() before the reactors run or from reactor 0; ipc_stop() from any other
 * thread while reactor 0 runs.
 * Source: hdfs-wire 3.8, 8.4.
 */
#include "datanode/dn.h"

struct ipc;

/** Listen on dn->ipc_addr (sets the real port), on dn->reactors[0]. */
int ipc_start(struct dn *dn, struct ipc **ret, struct err *err);
/** Stop the server; waits for calls that run. */
void ipc_stop(struct ipc *i);
