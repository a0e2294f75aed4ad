/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/path_call.h"

#include <string.h>

int path_not_found(struct err *err, const char *path)
{
	return err_set(err, -ENOENT, "%.400s: no such file or directory", path);
}

void path_blame(const char *path, int rc, struct err *err)
{
	/* where a link leads may begin with its own name */
	const bool named = rc != -ELOOP && strstr(err->text, path);

	if (rc != -ECONNREFUSED && rc != -ETIMEDOUT && !named)
		err_prefix(err, "%.200s", path);
}

int path_call_once(struct dfs *fs, const char *method, const char *path,
		   const ProtobufCMessage *req, const ProtobufCMessageDescriptor *reply, void *ret,
		   struct err *err)
{
	int rc = nn_call(fs, method, req, reply, ret, err);

	if (rc < 0)
		path_blame(path, rc, err);
	return rc;
}

void path_call_begin(struct path_call *a, struct dfs *fs, const char *path)
{
	a->fs = fs;
	a->path[0] = '\0';
	err_reset(&a->err);
	a->rc = path_resolve(fs->user, path, a->path, &a->err);
}

int path_call_send(struct path_call *a, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret)
{
	if (a->rc == 0)
		a->rc = path_call_once(a->fs, method, a->path, req, reply, ret, &a->err);
	return a->rc;
}

int path_call_end(struct path_call *a, struct dfs_err *out)
{
	return api_err(out, &a->err, a->rc);
}
