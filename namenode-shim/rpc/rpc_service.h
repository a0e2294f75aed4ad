/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc_service - the RPC port: protocols, tables, and who runs a call
 *
 * Idea: the service finds the method, decodes the request and either runs it here (READ) or gives
 * it to the writer thread.
 * Threading: reactor thread.
 */
#include "common/base/err.h"
#include "common/base/net.h"

struct rpc_port;
struct nn;
struct reactor;

int rpc_service_new(struct reactor *r, struct nn *nn, struct net_addr *ret_bound,
		    struct rpc_port **ret, struct err *err);
/** On the reactor: close the port and all connections. Accepts NULL. */
void rpc_service_close(struct rpc_port *f);
