/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * metrics - the web port of a mount: /metrics for Prometheus, /health
 *
 * Idea: off unless `-o metrics=HOST:PORT` is given; one thread of libmicrohttpd. Nothing that it
 * shows needs the cluster, so it answers when the cluster does not.
 * Ownership: metrics_start() gives, metrics_stop() takes.
 * Threading: what is shown is read under the locks of those who count.
 */
#include "common/base/err.h"

struct metrics;
struct mount;

/** Listen at opt.metrics of @m; *@ret stays NULL when there is none. -errno of net.h. */
int metrics_start(struct mount *m, struct metrics **ret, struct err *err);
/** The address, into the log. Accepts NULL. */
void metrics_tell(const struct metrics *s);
void metrics_stop(struct metrics *s);
