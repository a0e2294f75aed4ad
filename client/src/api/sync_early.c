/* SPDX-License-Identifier: Apache-2.0 */
/* sync_early - the calls of dfsclient_ext.h that wait for files created or closed early: the blocks
 * first (deferred_sync.h), then what the NameNode knows of the files (early_close.h) */
#include "client/src/fs/fs.h"
#include "common/base/clock.h"

#define SYNC_BLOCKS_MS 2000

DFS_API int dfs_sync_early(struct dfs *fs, struct dfs_err *out)
{
	struct err err;

	err_reset(&err);
	return api_err(out, &err, deferred_sync_settle(fs, &err) ?: early_close_settle(fs, &err));
}

DFS_API int dfs_sync_early_file(struct dfs *fs, uint64_t id, struct dfs_err *out)
{
	struct err err;
	int rc;

	err_reset(&err);
	if (!id)
		return api_err(out, &err, err_set(&err, -EINVAL, "no file has the id 0"));
	rc = deferred_sync_settle_file(fs, id, &err);
	rc = rc ?: early_close_settle_file(fs, id, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_try_sync_early(struct dfs *fs, struct dfs_err *out)
{
	struct err err;
	int rc;

	err_reset(&err);
	rc = deferred_sync_try(fs, &err);
	if (rc == 0 || rc == -EIO) /* the blocks are settled: on disks or lost */
		rc = early_close_try(fs, &err) ?: rc;
	return api_err(out, &err, rc);
}

DFS_API void dfs_sync_early_blocks(struct dfs *fs)
{
	dfs_sync_early_blocks_within(fs, 0, SYNC_BLOCKS_MS);
}

DFS_API void dfs_sync_early_blocks_within(struct dfs *fs, uint64_t id, uint32_t patience_ms)
{
	deferred_sync_settle_new(fs, id, clock_mono_ns() + patience_ms * NS_PER_MS);
}
