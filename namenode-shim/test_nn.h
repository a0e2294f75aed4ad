/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** test_nn - a NameNode without its thread, on the name directory of test_db.h; out of safe mode */
#include "common/base/conf.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/test_db.h"

/** @settings: key, value, ..., NULL; or NULL. *ret_conf outlives what is returned: nn_free(), then
 *  conf_free(). @d has no database of its own from now on. */
static inline struct nn *test_nn_new(struct test_db *d, const char *const *settings,
				     struct conf **ret_conf)
{
	struct settings set = {0};
	struct err err = ERR_INIT;
	struct nn *nn;

	db_close(d->db);
	d->db = NULL;
	*ret_conf = conf_new();
	conf_set(*ret_conf, "dfs.namenode.name.dir", d->dir);
	conf_set(*ret_conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	for (; settings && *settings; settings += 2)
		conf_set(*ret_conf, settings[0], settings[1]);
	if (settings_load(*ret_conf, &set, &err) || nn_new(&set, &nn, &err))
		abort();
	nn->safe.on = nn->safe.startup = nn->blocks.quiet = false;
	return nn;
}
