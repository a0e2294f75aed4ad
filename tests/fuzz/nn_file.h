/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** nn_file - a file with one block, for the namespaces that fuzz targets begin with */
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/ns.h"
#include "tests/fuzz/fuzz.h"

static inline void add_file(struct ns *n, const char *path, bool open)
{
	const struct ns_create c = {.path = path,
				    .client = open ? "c" : "",
				    .perm = 0644,
				    .repl = 2,
				    .block_size = 1 << 20,
				    .create = true};
	struct inode_block b = {.b = {(int64_t)++n->t->ctr.block, ++n->t->ctr.gs, open ? 0 : 7},
				.committed = !open};
	struct inode *f;
	struct ns_path walk;

	MUST(!ns_resolve_create(n, &c, &walk) && !ns_create(n, &c, &walk, &f));
	f->blocks = &b;
	f->nblocks = 1;
	if (!open)
		f->client = f->client_host = "";
	MUST(!inode_put(n->t, f));
}
