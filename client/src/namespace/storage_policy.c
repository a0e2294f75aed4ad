/* SPDX-License-Identifier: Apache-2.0 */
/* storage_policy - the calls of dfsclient.h about storage policies: on what kinds of disks the
 * blocks of a path are kept */
#include <stdio.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"

DFS_API int dfs_get_storage_policy(struct dfs *fs, const char *path, char *buf, size_t size,
				   struct dfs_err *out)
{
	Hd__GetStoragePolicyRequestProto req = HD__GET_STORAGE_POLICY_REQUEST_PROTO__INIT;
	Hd__GetStoragePolicyResponseProto *m;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.path = a.path;
	if (path_call_send(&a, "getStoragePolicy", &req.base,
			   &hd__get_storage_policy_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	if ((size_t)snprintf(buf, size, "%s", m->storagepolicy->name) >= size)
		a.rc = err_set(&a.err, -ERANGE,
			       "the storage policy %.80s of %.200s does not fit %zu bytes",
			       m->storagepolicy->name, a.path, size);
	pb_free(m);
	return path_call_end(&a, out);
}

DFS_API int dfs_set_storage_policy(struct dfs *fs, const char *path, const char *policy,
				   struct dfs_err *out)
{
	Hd__SetStoragePolicyRequestProto req = HD__SET_STORAGE_POLICY_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.policyname = (char *)policy;
	(void)path_call_send(&a, "setStoragePolicy", &req.base,
			     &hd__set_storage_policy_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}
