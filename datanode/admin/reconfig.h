/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * reconfig - the configuration files read again, and what differs applied (dfsadmin -reconfig)
 *
 * Idea: what is in force is kept as a configuration of its own. A run compares the files with it,
 * key by key: a live setting (live_settings.h) is changed, any other is answered with the reason
 * and stays different, so that the next run names it again.
 * Ownership: reconfig_free(); dn outlives it.
 * Threading: any thread, blocking; one run at a time.
 * Source: Hadoop's ReconfigurableBase (what it tells about each key).
 */
#include "datanode/dn.h"

struct reconfig;

struct reconfig_change {
	char *name, *old_value; /* owned by the run */
	char *new_value;        /* NULL: no longer set */
	char *error;            /* NULL: in force */
};

struct reconfig_status {
	int64_t start_ms, end_ms; /* start 0: there was no run */
	const struct reconfig_change *changes;
	size_t count;
};

int reconfig_new(struct dn *dn, struct reconfig **ret);
/** Accepts NULL. */
void reconfig_free(struct reconfig *r);
/** One run. The errors of conf_reload(): then nothing has changed. */
int reconfig_run(struct reconfig *r, struct err *err);
/** Shows the last run to @fn; no run starts meanwhile. */
void reconfig_show(struct reconfig *r, void (*fn)(void *arg, const struct reconfig_status *s),
		   void *arg);
