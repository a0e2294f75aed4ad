/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream.h"

#include <dirent.h>
#include <stdio.h>

#include "common/base/clock.h"

#define FALLBACK_NS (60 * NS_PER_S) /* how long a node stays on TCP before RDMA is tried again */

#define RDMA_SYSFS "/sys/class/infiniband"

/* Why this machine cannot do RDMA at all, or NULL when it may. */
static const char *rdma_missing(void)
{
	DIR *d = opendir(RDMA_SYSFS);
	struct dirent *e;

	if (!d)
		return "no RDMA device on this machine (" RDMA_SYSFS " does not exist)";
	do {
		e = readdir(d);
	} while (e && e->d_name[0] == '.');
	(void)closedir(d);
	if (!e)
		return "no RDMA device on this machine (" RDMA_SYSFS " is empty)";
	return "this build of libdfsclient has no RDMA transport";
}

int stream_check(struct dfs *fs, struct err *err)
{
	if (fs->set.rdma != RDMA_REQUIRE)
		return 0;
	return err_set(err, -ENOTSUP,
		       "dfs.client.rdma=require: %s; set it to auto to allow TCP", rdma_missing());
}

/* The transport for a node: RDMA where it may be, else TCP and a note why. */
static int choose(struct dfs *fs, const Hd__DatanodeInfoProto *node,
		  const struct block_stream **ret, struct err *err)
{
	char text[NET_TEXT_MAX];
	int rc = stream_check(fs, err);

	if (rc < 0)
		return rc;
	if (fs->set.rdma == RDMA_AUTO &&
	    !node_table_get(&fs->fallbacks, node_text(node->id, text), clock_mono_ns(), NULL, 0)) {
		node_table_put(&fs->fallbacks, text, rdma_missing(), clock_mono_ns() + FALLBACK_NS);
		count_add(&fs->count.rdma_fallbacks, 1);
	}
	*ret = &stream_tcp;
	return 0;
}

int stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
		      int *ret_bad, struct err *err)
{
	const struct block_stream *ops;
	int rc = choose(fs, w->lb->locs[0], &ops, err);

	*ret_bad = 0;
	return rc < 0 ? rc : ops->open_write(fs, w, ret, ret_bad, err);
}

int stream_open_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		     struct err *err)
{
	const struct block_stream *ops;
	int rc = choose(fs, r->lb->locs[r->node], &ops, err);

	return rc < 0 ? rc : ops->open_read(fs, r, ret, err);
}
