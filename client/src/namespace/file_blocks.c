/* SPDX-License-Identifier: Apache-2.0 */
/* file_blocks - the calls of dfsclient.h about the blocks of a file by its name, and about its
 * lease
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/fs/path_call.h"
#include "client/src/fs/requests.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"

#define CLOSED_POLL_FIRST_MS 20
#define CLOSED_POLL_MAX_MS 1000

/* ---- blocks ---- */

/* Some calls say only that they did nothing: a directory, or not there at all? */
static int not_a_file(struct dfs *fs, const char *path, struct err *err)
{
	struct dfs_stat st;
	int rc = path_stat(fs, path, &st, err);

	return rc ?: err_set(err, -EISDIR, "%.400s is not a replicated file", path);
}

/* A directory where a file is wanted is "not found" to the NameNode; people want to know. */
static void tell_directory(struct path_call *a)
{
	struct dfs_stat st;

	if (a->rc == -ENOENT && path_stat(a->fs, a->path, &st, &a->err) == 0 && st.type == DFS_DIR)
		a->rc = err_set(&a->err, -EISDIR, "%.400s is a directory", a->path);
}

DFS_API int dfs_set_replication(struct dfs *fs, const char *path, uint32_t replication,
				struct dfs_err *out)
{
	Hd__SetReplicationRequestProto req = HD__SET_REPLICATION_REQUEST_PROTO__INIT;
	Hd__SetReplicationResponseProto *m = NULL;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.replication = replication;
	if (path_call_send(&a, "setReplication", &req.base,
			   &hd__set_replication_response_proto__descriptor, &m) == 0 &&
	    !m->result)
		a.rc = not_a_file(fs, a.path, &a.err);
	pb_free(m);
	a.rc = limits_errno(a.rc, &a.err);
	return path_call_end(&a, out);
}

DFS_API int dfs_truncate(struct dfs *fs, const char *path, uint64_t length, bool *ret_done,
			 struct dfs_err *out)
{
	Hd__TruncateRequestProto req = HD__TRUNCATE_REQUEST_PROTO__INIT;
	Hd__TruncateResponseProto *m = NULL;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && length > INT64_MAX)
		a.rc = err_set(&a.err, -EINVAL, "length beyond 2^63");
	req.src = a.path;
	req.newlength = length;
	req.clientname = fs->client_name;
	if (path_call_send(&a, "truncate", &req.base, &hd__truncate_response_proto__descriptor,
			   &m) == 0)
		*ret_done = m->result;
	pb_free(m);
	tell_directory(&a);
	return path_call_end(&a, out);
}

/* concat() wants absolute names, as every call. Frees what it made on failure. */
static int resolve_all(struct dfs *fs, const char *const *names, size_t count, char **ret,
		       struct err *err)
{
	char full[PATH_TEXT_MAX];
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++) {
		rc = path_resolve(fs->user, names[i], full, err);
		if (rc == 0 && !(ret[i] = strdup(full)))
			rc = err_set(err, -ENOMEM, "out of memory");
	}
	return rc;
}

DFS_API int dfs_concat(struct dfs *fs, const char *target, const char *const *sources, size_t count,
		       struct dfs_err *out)
{
	Hd__ConcatRequestProto req = HD__CONCAT_REQUEST_PROTO__INIT;
	char **names = calloc(count + 1, sizeof(*names));
	struct path_call a;

	path_call_begin(&a, fs, target);
	if (!names)
		a.rc = a.rc ?: -ENOMEM;
	if (a.rc == 0 && count == 0)
		a.rc = err_set(&a.err, -EINVAL, "%.200s: no files to concatenate are named",
			       a.path);
	if (a.rc == 0)
		a.rc = resolve_all(fs, sources, count, names, &a.err);
	req.trg = a.path;
	req.n_srcs = count;
	req.srcs = names;
	(void)path_call_send(&a, "concat", &req.base, &hd__concat_response_proto__descriptor, NULL);
	for (size_t i = 0; names && i < count; i++)
		free(names[i]);
	free(names);
	return path_call_end(&a, out);
}

DFS_API int dfs_replace_blocks(struct dfs *fs, const char *path, const struct dfs_replace *r,
			       struct dfs_err *out)
{
	Hd__ReplaceBlocksRequestProto req = HD__REPLACE_BLOCKS_REQUEST_PROTO__INIT;
	char part[PATH_TEXT_MAX];
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && (r->size < sizeof(*r) || !r->part))
		a.rc = err_set(&a.err, -EINVAL, "%.200s: no new blocks are named", a.path);
	a.rc = a.rc ?: path_resolve(fs->user, r->part, part, &a.err);
	req.src = a.path;
	req.fileid = r->file_id;
	req.length = r->content.length;
	req.has_lastblock = req.has_laststamp = r->content.block != 0;
	req.lastblock = (uint64_t)r->content.block;
	req.laststamp = r->content.generation;
	req.part = part;
	req.n_position = r->places;
	req.position = (uint32_t *)r->place;
	req.blocks = r->blocks;
	(void)path_call_send(&a, "replaceBlocks", &req.base,
			     &hd__replace_blocks_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}

/* ---- leases ---- */

DFS_API int dfs_recover_lease(struct dfs *fs, const char *path, bool *ret_closed,
			      struct dfs_err *out)
{
	Hd__RecoverLeaseRequestProto req = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;
	Hd__RecoverLeaseResponseProto *m = NULL;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.clientname = fs->client_name;
	if (path_call_send(&a, "recoverLease", &req.base,
			   &hd__recover_lease_response_proto__descriptor, &m) == 0)
		*ret_closed = m->result;
	pb_free(m);
	tell_directory(&a);
	return path_call_end(&a, out);
}

static int is_closed(struct path_call *a, bool *ret)
{
	Hd__IsFileClosedRequestProto req = HD__IS_FILE_CLOSED_REQUEST_PROTO__INIT;
	Hd__IsFileClosedResponseProto *m = NULL;

	req.src = a->path;
	if (path_call_send(a, "isFileClosed", &req.base,
			   &hd__is_file_closed_response_proto__descriptor, &m) == 0)
		*ret = m->result;
	pb_free(m);
	return a->rc;
}

DFS_API int dfs_is_closed(struct dfs *fs, const char *path, bool *ret, struct dfs_err *out)
{
	struct path_call a;

	path_call_begin(&a, fs, path);
	(void)is_closed(&a, ret);
	return path_call_end(&a, out);
}

DFS_API int dfs_wait_closed(struct dfs *fs, const char *path, uint32_t timeout_ms,
			    struct dfs_err *out)
{
	const uint64_t deadline = clock_mono_ns() + timeout_ms * NS_PER_MS;
	uint64_t pause_ms = CLOSED_POLL_FIRST_MS;
	bool closed = false;
	struct path_call a;

	path_call_begin(&a, fs, path);
	while (is_closed(&a, &closed) == 0 && !closed) {
		if (clock_mono_ns() >= deadline) {
			a.rc = err_set(&a.err, -ETIMEDOUT, "%.200s is still open after %u ms",
				       a.path, timeout_ms);
			break;
		}
		sleep_ns(pause_ms * NS_PER_MS);
		if (pause_ms < CLOSED_POLL_MAX_MS)
			pause_ms *= 2;
	}
	return path_call_end(&a, out);
}
