/* SPDX-License-Identifier: Apache-2.0 */
/* buffer - memory of the library for its callers, and memory of theirs that is registered */
#include <stdlib.h>
#include <string.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/rdma.h"
#include "common/base/clock.h"

DFS_API int dfs_buf_alloc(struct dfs *fs, size_t len, void **ret, struct dfs_err *out)
{
	struct err err;
	void *p;

	(void)fs;
	err_reset(&err);
	if (len == 0 || len > SIZE_MAX - 4095) {
		err_set(&err, -EINVAL, "a buffer of %zu bytes", len);
		return api_err(out, &err, err.rc);
	}
	p = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	if (!p) {
		err_set(&err, -ENOMEM, "out of memory for a buffer of %zu bytes", len);
		return api_err(out, &err, err.rc);
	}
	*ret = p;
	return 0;
}

DFS_API void dfs_buf_free(struct dfs *fs, void *buf)
{
	(void)fs;
	free(buf);
}

DFS_API int dfs_mem_register(struct dfs *fs, void *buf, size_t len, struct dfs_err *out)
{
	struct rdma *rdma;
	struct err err;
	int rc;

	err_reset(&err);
	if (fs->set.rdma == RDMA_OFF) {
		rc = err_set(&err, -ENOTSUP, "dfs.client.rdma is off");
		return api_err(out, &err, rc);
	}
	rc = rdma_get(fs, &rdma, &err);
	rc = rc ?: rdma_memory_add(rdma, buf, len, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	atomic_fetch_add(&fs->memories, 1);
	return 0;
}

DFS_API int dfs_mem_unregister(struct dfs *fs, void *buf)
{
	struct rdma *rdma;
	int rc;

	pthread_mutex_lock(&fs->rdma_lock);
	rdma = fs->rdma;
	pthread_mutex_unlock(&fs->rdma_lock);
	rc = rdma ? rdma_memory_del(rdma, buf) : -ENOENT;
	if (rc == 0)
		atomic_fetch_sub(&fs->memories, 1);
	return rc;
}

DFS_API const char *dfs_rdma_reason(struct dfs *fs, const char *node, char *buf, size_t size)
{
	if (size > 0)
		buf[0] = '\0';
	(void)node_table_get(&fs->fallbacks, node, clock_mono_ns(), buf, size);
	return buf;
}
