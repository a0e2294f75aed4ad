/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * http - the data node's HTTP port
 *
 * Idea: what the NameNode's pages and Hadoop's tools link to: / and /datanode.html (a plain page),
 * /jmx (beans.h), /conf, /blockScannerReport; and /metrics for Prometheus, /health. /logLevel is
 * refused.
 * Threading: one thread of libmicrohttpd's; it reads counters and touches nothing else.
 */
#include "datanode/dn.h"

struct http;

/** Listen on dn->http_addr (sets the real port). -EADDRINUSE etc. */
int http_start(struct dn *dn, struct http **ret, struct err *err);
void http_stop(struct http *h);
