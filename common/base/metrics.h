/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * metrics - counters and gauges of one process, in Prometheus text
 *
 * Idea: one table (metrics.def) holds id, name, labels, type and meaning; the exporter, --help and
 * the manual come from it. A counter is one uint64_t per thread, written only by that thread and
 * summed when asked: no lock, no shared cache line on the data path.
 * Threading: metric_add() any thread; metrics_format() any thread.
 * Units: in the name (_bytes, _total, _seconds).
 */
#include <stddef.h>
#include <stdint.h>

enum metric {
#define METRIC(id, name, labels, type, help) METRIC_##id,
#include "common/base/metrics.def"
#undef METRIC
	METRIC_COUNT
};

/** A gauge may be counted up and down: metric_add(m, (uint64_t)-1). Then it is never set. */
void metric_add(enum metric m, uint64_t n);
/** Gauges: the last value set by any thread wins. */
void metric_set(enum metric m, uint64_t v);
uint64_t metric_get(enum metric m);
/** Prometheus text of every metric whose name starts with one of @prefixes (NULL-terminated;
 *  NULL = all). Returns a malloc'ed string (caller frees) or NULL. */
char *metrics_format(const char *const *prefixes);
