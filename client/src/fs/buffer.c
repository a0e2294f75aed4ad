/* SPDX-License-Identifier: Apache-2.0 */
/* buffer - memory of the library for its callers, and memory of theirs that is registered */
#include <stdlib.h>
#include <string.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/rdma.h"
#include "common/base/clock.h"

#define REGISTER_LEAST (64u << 10) /* bytes that save a copy: of shorter pieces it is cheap */

/* Where that can be had; else it is memory like any other. */
static void register_buffer(struct dfs *fs, void *p, size_t len)
{
	struct err ignored = ERR_INIT;
	struct rdma *rdma;

	if (fs->set.rdma == RDMA_OFF || len < REGISTER_LEAST)
		return;
	if (rdma_get(fs, &rdma, &ignored) == 0 && rdma_buffer_add(rdma, p, len, &ignored) == 0)
		atomic_fetch_add(&fs->memories, 1);
}

DFS_API int dfs_buf_alloc(struct dfs *fs, size_t len, void **ret, struct dfs_err *out)
{
	struct err err;
	void *p;

	err_reset(&err);
	if (len == 0 || len > SIZE_MAX - 4095) {
		err_set(&err, -EINVAL, "a buffer of %zu bytes", len);
		return api_err(out, &err, err.rc);
	}
	len = (len + 4095) & ~(size_t)4095;
	p = aligned_alloc(4096, len);
	if (!p) {
		err_set(&err, -ENOMEM, "out of memory for a buffer of %zu bytes", len);
		return api_err(out, &err, err.rc);
	}
	register_buffer(fs, p, len);
	*ret = p;
	return 0;
}

static struct rdma *rdma_of(struct dfs *fs)
{
	struct rdma *rdma;

	pthread_mutex_lock(&fs->rdma_lock);
	rdma = fs->rdma;
	pthread_mutex_unlock(&fs->rdma_lock);
	return rdma;
}

DFS_API void dfs_buf_free(struct dfs *fs, void *buf)
{
	/* none is registered without one that is counted: the lock is not held for long then */
	if (buf && atomic_load(&fs->memories) && rdma_buffer_drop(rdma_of(fs), buf))
		atomic_fetch_sub(&fs->memories, 1);
	else
		free(buf);
}

static int mem_register(struct dfs *fs, const struct rdma_dmabuf *b, void *buf, size_t len,
			struct dfs_err *out)
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
	if (rc == 0)
		rc = b ? rdma_memory_add_dmabuf(rdma, b, buf, len, &err)
		       : rdma_memory_add(rdma, buf, len, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	atomic_fetch_add(&fs->memories, 1);
	return 0;
}

DFS_API int dfs_mem_register(struct dfs *fs, void *buf, size_t len, struct dfs_err *out)
{
	return mem_register(fs, NULL, buf, len, out);
}

DFS_API int dfs_mem_register_dmabuf(struct dfs *fs, int fd, uint64_t offset, void *map, size_t len,
				    struct dfs_err *out)
{
	return mem_register(fs, &(struct rdma_dmabuf){fd, offset}, map, len, out);
}

DFS_API int dfs_mem_unregister(struct dfs *fs, void *buf)
{
	struct rdma *rdma = rdma_of(fs);
	const int rc = rdma ? rdma_memory_del(rdma, buf) : -ENOENT;

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
