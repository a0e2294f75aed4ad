/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/by_inode.h"

#include "client/src/fs/path_call.h"

int by_inode(struct dfs *fs, const char *path, uint64_t id, char buf[PATH_BY_ID_MAX],
	     const char **ret, struct err *err)
{
	struct dfs_stat st;
	int rc;

	if (nn_is_router(fs, err) == 0) {
		*ret = path_by_id(buf, id);
		return 0;
	}
	err_reset(err);
	*ret = path;
	rc = path_stat(fs, path, &st, err);
	if (rc == -ENOENT || (rc == 0 && st.file_id != id))
		return err_set(err, -ESTALE,
			       "%.400s was deleted, renamed or replaced while it was written",
			       path);
	return rc;
}
