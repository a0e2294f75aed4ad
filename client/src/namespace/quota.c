/* SPDX-License-Identifier: Apache-2.0 */
/* quota - the calls of dfsclient.h about what a directory holds, and may hold */
#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"

/* ---- what a directory holds ---- */

DFS_API int dfs_get_content_summary(struct dfs *fs, const char *path,
				    struct dfs_content_summary *ret, struct dfs_err *out)
{
	Hd__GetContentSummaryRequestProto req = HD__GET_CONTENT_SUMMARY_REQUEST_PROTO__INIT;
	Hd__GetContentSummaryResponseProto *m;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.path = a.path;
	if (path_call_send(&a, "getContentSummary", &req.base,
			   &hd__get_content_summary_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	*ret = (struct dfs_content_summary){
		.length = m->summary->length,
		.file_count = m->summary->filecount,
		.directory_count = m->summary->directorycount,
		.space_consumed = m->summary->spaceconsumed,
		.name_quota = (int64_t)m->summary->quota,
		.space_quota = (int64_t)m->summary->spacequota,
		.space_stored = m->summary->has_stored ? (int64_t)m->summary->stored : -1,
	};
	pb_free(m);
	return 0;
}

DFS_API int dfs_get_quota(struct dfs *fs, const char *path, struct dfs_quota *ret,
			  struct dfs_err *out)
{
	Hd__GetQuotaUsageRequestProto req = HD__GET_QUOTA_USAGE_REQUEST_PROTO__INIT;
	Hd__GetQuotaUsageResponseProto *m;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.path = a.path;
	if (path_call_send(&a, "getQuotaUsage", &req.base,
			   &hd__get_quota_usage_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	*ret = (struct dfs_quota){
		.names = m->usage->fileanddirectorycount,
		.space = m->usage->spaceconsumed,
		.name_quota = (int64_t)m->usage->quota,
		.space_quota = (int64_t)m->usage->spacequota,
	};
	pb_free(m);
	return 0;
}

DFS_API int dfs_set_quota(struct dfs *fs, const char *path, int64_t name_quota, int64_t space_quota,
			  struct dfs_err *out)
{
	Hd__SetQuotaRequestProto req = HD__SET_QUOTA_REQUEST_PROTO__INIT;
	struct dfs_stat st;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.path = a.path;
	req.namespacequota = (uint64_t)name_quota; /* the wire's -1 and 2^63-1 are ours */
	req.storagespacequota = (uint64_t)space_quota;
	(void)path_call_send(&a, "setQuota", &req.base, &hd__set_quota_response_proto__descriptor,
			     NULL);
	if (a.rc == -ENOENT && path_stat(fs, a.path, &st, &a.err) == 0 && st.type != DFS_DIR)
		a.rc = err_set(&a.err, -ENOTDIR, "%.400s is no directory", a.path);
	return path_call_end(&a, out);
}
