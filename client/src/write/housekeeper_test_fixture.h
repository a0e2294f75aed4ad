/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Test code: housekeeper_test_fixture - no housekeeper for the tests of writers, which keep
 * pipelines alive themselves. Their programs are linked with -Wl,--wrap for both functions. */
#include "client/src/fs/housekeeper.h"

int __wrap_housekeeper_add(struct dfs *fs, struct housekept *k, struct err *err);
int __wrap_housekeeper_add(struct dfs *fs, struct housekept *k, struct err *err)
{
	(void)fs;
	(void)k;
	(void)err;
	return 0;
}

void __wrap_housekeeper_remove(struct dfs *fs, struct housekept *k);
void __wrap_housekeeper_remove(struct dfs *fs, struct housekept *k)
{
	(void)fs;
	(void)k;
}
