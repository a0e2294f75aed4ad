/* SPDX-License-Identifier: Apache-2.0 */
/* symlink - the calls of dfsclient.h about symbolic links */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "client/src/fs/requests.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

/* What @a->path names, links not followed. */
static int link_info(struct path_call *a, Hd__GetFileLinkInfoResponseProto **ret)
{
	Hd__GetFileLinkInfoRequestProto req = HD__GET_FILE_LINK_INFO_REQUEST_PROTO__INIT;

	req.src = a->path;
	if (path_call_send(a, "getFileLinkInfo", &req.base,
			   &hd__get_file_link_info_response_proto__descriptor, ret) == 0 &&
	    !(*ret)->fs)
		a->rc = path_not_found(&a->err, a->path);
	return a->rc;
}

DFS_API int dfs_lstat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *out)
{
	Hd__GetFileLinkInfoResponseProto *m = NULL;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (link_info(&a, &m) == 0)
		stat_from_msg(m->fs, ret);
	pb_free(m);
	return path_call_end(&a, out);
}

DFS_API ssize_t dfs_readlink(struct dfs *fs, const char *path, char *buf, size_t size,
			     struct dfs_err *out)
{
	Hd__GetFileLinkInfoResponseProto *m = NULL;
	ssize_t n = 0;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (link_info(&a, &m) == 0) {
		const ProtobufCBinaryData *to = &m->fs->symlink;

		n = (ssize_t)to->len;
		if (!m->fs->has_symlink)
			a.rc = err_set(&a.err, -EINVAL, "%.400s: no symbolic link", a.path);
		else if (size && to->len > size)
			a.rc = err_set(&a.err, -ERANGE, "%zu bytes do not fit into %zu", to->len,
				       size);
		else if (size && to->len)
			memcpy(buf, to->data, to->len);
	}
	pb_free(m);
	return path_call_end(&a, out) ?: n;
}

/* The NameNode says it with a plain IOException. */
static int symlink_errno(const struct path_call *a)
{
	return a->rc == -EREMOTEIO && strstr(a->err.text, "the file exists") ? -EEXIST : a->rc;
}

DFS_API int dfs_symlink(struct dfs *fs, const char *target, const char *path, struct dfs_err *out)
{
	Hd__CreateSymlinkRequestProto req = HD__CREATE_SYMLINK_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && (!target || !*target))
		a.rc = err_set(&a.err, -EINVAL, "the target of a symbolic link is empty");
	perm.perm = 0777;
	req.target = (char *)target;
	req.link = a.path;
	req.dirperm = &perm;
	req.createparent = false;
	(void)path_call_send(&a, "createSymlink", &req.base,
			     &hd__create_symlink_response_proto__descriptor, NULL);
	a.rc = symlink_errno(&a);
	return path_call_end(&a, out);
}
