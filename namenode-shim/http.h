/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * http - /metrics (Prometheus) and a status page in plain text
 *
 * Idea: libmicrohttpd with one thread of its own; it reads counters and, under mem_lock, the node
 * table.
 */
#include "common/base/err.h"
#include "common/base/net.h"

struct http;
struct nn;

int http_new(struct nn *nn, const struct net_addr *addr, struct net_addr *ret_bound,
	     struct http **ret, struct err *err);
/** Accepts NULL. */
void http_free(struct http *h);
