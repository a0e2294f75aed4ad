/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * live_settings - settings that an administrator changes while the node runs
 *
 * Idea: one table (live_settings.def) names each setting once: its key, type, default and range.
 * struct dn holds the values as atomics, code reads them at each use, and reconfiguration stores
 * new ones: nobody has to be told.
 * Threading: any thread reads; live_settings_change() one at a time (the reconfiguration's lock).
 * Source: hdfs-default.xml; the list of Hadoop's DataNode, and a few keys beyond it.
 */
#include <stdbool.h>

#include "common/base/conf.h"
#include "datanode/dn.h"

/** Every setting from the configuration. -EINVAL with key and range in @err. */
int live_settings_read(struct live_settings *l, const struct conf *conf, struct err *err);
/** One setting from the configuration. -ENOENT: @key is no live setting; -EINVAL, nothing changes.
 */
int live_settings_change(struct live_settings *l, const struct conf *conf, const char *key,
			 struct err *err);
/** The key of setting @i; NULL behind the last. */
const char *live_settings_key(unsigned int i);
