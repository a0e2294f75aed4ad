/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * http - the NameNode's web port: /fsck, /jmx, /conf, /metrics and a small status page
 *
 * Idea: libmicrohttpd with one thread of its own, which serves connections in turn: a page reads
 * counters and, under mem_lock, memory; a long /fsck gives one step at a time (fsck.h), so it holds
 * up nobody.
 *   /                    to /dfshealth.html
 *   /dfshealth.html      the state of the cluster, for people
 *   /jmx?qry=..&get=..   beans (jmx.h)          /startupProgress   how far the start is
 *   /conf                the configuration      /isActive          "I am Active!"
 *   /fsck?path=..        as hdfs fsck asks      /topology          racks and nodes
 *   /metrics, /prom      for Prometheus
 * Source: NameNodeHttpServer of Hadoop 3.4.2 (paths, parameters, content types).
 */
#include "common/base/err.h"
#include "common/base/net.h"

struct http;
struct nn;

int http_new(struct nn *nn, const struct net_addr *addr, struct net_addr *ret_bound,
	     struct http **ret, struct err *err);
/** Accepts NULL. */
void http_free(struct http *h);
