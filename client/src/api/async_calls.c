/* SPDX-License-Identifier: Apache-2.0 */
/* async_calls - the dfs_begin_...() calls of dfsclient.h: requests and answers of the calls that
 * wait, on an rpc_queue */
#include <stdlib.h>
#include <string.h>

#include "client/src/fs/path.h"
#include "client/src/fs/path_call.h"
#include "client/src/fs/requests.h"
#include "client/src/read/block_locations.h"
#include "client/src/read/read_queue.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"

/* before a NameNode that will not close an empty file is asked again; doubled */
#define CLOSE_PAUSE_MS 10u
#define CLOSE_PAUSE_MAX_MS 1000u
#define CLOSE_PATIENCE_NS (60 * NS_PER_S)

#define OP_MORE 1 /* a step that has begun another request */

struct dfs_queue {
	struct dfs *fs;           /* borrowed (outlives its queues) */
	struct rpc_queue *rpc;    /* owned */
	struct read_queue *reads; /* owned; worked at when rpc is run */
};

/* A call under way. */
struct op {
	struct dfs_queue *q;
	struct dfs_then then;
	/* Judge the outcome of a request: 0 or -errno, the call's; OP_MORE. May set again_ms. */
	int (*step)(struct op *o, int rc, struct rpc_done *d);
	void *ret; /* the caller's */
	uint32_t safe_round;
	uint32_t again_ms; /* the request is to be sent anew after this */
	/* what some need later */
	int first_rc;
	struct err first; /* why the request before this one failed */
	struct dfs_create_opts create;
	uint64_t made_id; /* of the file that create made */
	uint32_t mode;
	uint32_t pause_ms;
	uint64_t patience_ns;
	struct dfs_file *file; /* owned: being closed */
	char path[];           /* resolved */
};

/* ---- life ---- */

DFS_API int dfs_queue_open(struct dfs *fs, struct dfs_queue **ret, struct dfs_err *out)
{
	struct dfs_queue *q = calloc(1, sizeof(*q));
	struct err err;
	int rc = -ENOMEM;

	err_reset(&err);
	if (q) {
		q->fs = fs;
		rc = nn_queue_new(fs, &q->rpc, &err);
		rc = rc ?: read_queue_new(fs, q->rpc, &q->reads);
	}
	if (rc < 0) {
		dfs_queue_close(q);
		return api_err(out, &err, rc);
	}
	*ret = q;
	return 0;
}

DFS_API void dfs_queue_close(struct dfs_queue *q)
{
	if (!q)
		return;
	read_queue_free(q->reads);
	rpc_queue_free(q->rpc);
	free(q);
}

DFS_API int dfs_queue_run(struct dfs_queue *q, int timeout_ms)
{
	return rpc_queue_run(q->rpc, timeout_ms);
}

DFS_API void dfs_queue_wake(struct dfs_queue *q)
{
	rpc_queue_wake(q->rpc);
}

static bool is_of(const void *op, const void *arg)
{
	return ((const struct op *)op)->then.arg == arg;
}

DFS_API void dfs_queue_cancel(struct dfs_queue *q, const void *arg)
{
	rpc_queue_cancel(q->rpc, is_of, arg);
	read_queue_cancel(q->reads, arg);
}

DFS_API uint32_t dfs_queue_pending(struct dfs_queue *q)
{
	return rpc_queue_count(q->rpc) + read_queue_count(q->reads);
}

/* ---- a call ---- */

static int op_new(struct dfs_queue *q, const char *path, const struct dfs_then *then,
		  int (*step)(struct op *o, int rc, struct rpc_done *d), struct op **ret,
		  struct err *err)
{
	char full[PATH_TEXT_MAX];
	struct op *o;
	size_t len;
	int rc;

	err_reset(err);
	rc = path_resolve(q->fs->user, path, full, err);
	if (rc < 0)
		return rc;
	len = strlen(full) + 1;
	o = malloc(sizeof(*o) + len);
	if (!o)
		return err_set(err, -ENOMEM, "out of memory");
	o->q = q;
	o->then = *then;
	o->step = step;
	o->ret = NULL;
	o->safe_round = o->again_ms = 0;
	o->first_rc = 0;
	o->file = NULL;
	memcpy(o->path, full, len);
	*ret = o;
	return 0;
}

static void op_end(struct op *o, int rc, const struct err *err)
{
	const struct dfs_then then = o->then;
	struct dfs_err out;

	if (o->file) /* it is closed, or left to lease recovery */
		file_drop(o->file);
	free(o);
	if (rc < 0) {
		(void)api_err(&out, err, rc);
		then.done(then.arg, rc, &out);
	} else {
		then.done(then.arg, 0, NULL);
	}
}

/* A request is over. */
static uint32_t on_done(void *arg, struct rpc_done *d)
{
	struct op *o = arg;
	const struct dfs *fs = o->q->fs;
	uint32_t ms = d->rc == -EROFS ? nn_safe_mode_pause(fs, d->err, &o->safe_round) : 0;
	int rc = d->rc;

	if (ms)
		return ms;
	if (rc < 0) {
		nn_add_cure(fs, d->err);
		path_blame(o->path, rc, d->err);
	}
	rc = o->step(o, rc, d);
	if (rc == OP_MORE) {
		ms = o->again_ms;
		o->again_ms = 0;
		return ms;
	}
	op_end(o, rc, d->err);
	return 0;
}

static int submit(struct op *o, const char *method, const void *req,
		  const ProtobufCMessageDescriptor *reply, struct err *err)
{
	int rc = rpc_queue_submit(o->q->rpc, method, req, reply, on_done, o);

	if (rc == -EAGAIN)
		return err_set(err, rc, "%u calls are under way in this queue", RPC_QUEUE_MAX);
	return rc < 0 ? err_sys(err, rc, "%.200s: %s", o->path, method) : 0;
}

/* The end of a dfs_begin_...(). */
static int begun(struct op *o, int rc, struct err *err, struct dfs_err *out)
{
	if (rc < 0)
		free(o);
	return api_err(out, err, rc);
}

static int plain_step(struct op *o, int rc, struct rpc_done *d)
{
	(void)o;
	(void)d;
	return rc;
}

/* ---- status ---- */

static int submit_stat(struct op *o, struct err *err)
{
	Hd__GetFileInfoRequestProto req = HD__GET_FILE_INFO_REQUEST_PROTO__INIT;

	req.src = o->path;
	return submit(o, "getFileInfo", &req, &hd__get_file_info_response_proto__descriptor, err);
}

/* 0 with *@ret, -ENOENT without words, or why it is not known. */
static int stat_answer(int rc, const struct rpc_done *d, struct dfs_stat *ret)
{
	const Hd__GetFileInfoResponseProto *m = (const void *)d->resp;

	if (rc < 0)
		return rc;
	if (!m->fs)
		return -ENOENT;
	stat_from_msg(m->fs, ret);
	return 0;
}

static int stat_step(struct op *o, int rc, struct rpc_done *d)
{
	rc = stat_answer(rc, d, o->ret);
	return rc == -ENOENT && d->resp ? path_not_found(d->err, o->path) : rc;
}

DFS_API int dfs_begin_stat(struct dfs_queue *q, const char *path, struct dfs_stat *ret,
			   const struct dfs_then *then, struct dfs_err *out)
{
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, stat_step, &o, &err);

	if (rc == 0) {
		o->ret = ret;
		rc = submit_stat(o, &err);
	}
	return begun(o, rc, &err, out);
}

/* ---- changes of names ---- */

static int mkdir_step(struct op *o, int rc, struct rpc_done *d)
{
	return rc < 0 ? rc : mkdirs_answer((const void *)d->resp, o->path, d->err);
}

static int submit_mkdirs(struct op *o, bool parents, struct err *err)
{
	struct mkdirs_request req;

	o->step = mkdir_step;
	mkdirs_request(o->q->fs, o->path, o->mode, parents, &req);
	return submit(o, "mkdirs", &req.m, &hd__mkdirs_response_proto__descriptor, err);
}

/* Is there something already? */
static int mkdir_stat_step(struct op *o, int rc, struct rpc_done *d)
{
	struct dfs_stat st;

	rc = stat_answer(rc, d, &st);
	if (rc == 0)
		return mkdir_exists(o->path, d->err);
	if (rc != -ENOENT)
		return rc;
	rc = submit_mkdirs(o, false, d->err);
	return rc ?: OP_MORE;
}

DFS_API int dfs_begin_mkdir(struct dfs_queue *q, const char *path, uint32_t mode, bool parents,
			    const struct dfs_then *then, struct dfs_err *out)
{
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, mkdir_stat_step, &o, &err);

	if (rc == 0) {
		o->mode = mode;
		rc = parents ? submit_mkdirs(o, true, &err) : submit_stat(o, &err);
	}
	return begun(o, rc, &err, out);
}

static int rename_step(struct op *o, int rc, struct rpc_done *d)
{
	(void)o;
	return rename_errno(rc, d->err);
}

DFS_API int dfs_begin_rename(struct dfs_queue *q, const char *old_path, const char *new_path,
			     bool overwrite, const struct dfs_then *then, struct dfs_err *out)
{
	Hd__Rename2RequestProto req = HD__RENAME2_REQUEST_PROTO__INIT;
	char to[PATH_TEXT_MAX];
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, old_path, then, rename_step, &o, &err);

	rc = rc ?: path_resolve(q->fs->user, new_path, to, &err);
	if (rc == 0) {
		req.src = o->path;
		req.dst = to;
		req.overwritedest = overwrite;
		rc = submit(o, "rename2", &req, &hd__rename2_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

static int delete_step(struct op *o, int rc, struct rpc_done *d)
{
	const Hd__DeleteResponseProto *m = (const void *)d->resp;

	return rc == 0 && !m->result ? path_not_found(d->err, o->path) : rc;
}

DFS_API int dfs_begin_delete(struct dfs_queue *q, const char *path, bool recursive,
			     const struct dfs_then *then, struct dfs_err *out)
{
	Hd__DeleteRequestProto req = HD__DELETE_REQUEST_PROTO__INIT;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, delete_step, &o, &err);

	if (rc == 0 && strcmp(o->path, "/") == 0)
		rc = delete_root(&err);
	if (rc == 0) {
		req.src = o->path;
		req.recursive = recursive;
		rc = submit(o, "delete", &req, &hd__delete_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

/* ---- changes of attributes ---- */

DFS_API int dfs_begin_set_permission(struct dfs_queue *q, const char *path, uint32_t mode,
				     const struct dfs_then *then, struct dfs_err *out)
{
	Hd__SetPermissionRequestProto req = HD__SET_PERMISSION_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, plain_step, &o, &err);

	if (rc == 0) {
		perm.perm = mode & 01777;
		req.src = o->path;
		req.permission = &perm;
		rc = submit(o, "setPermission", &req,
			    &hd__set_permission_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

DFS_API int dfs_begin_set_owner(struct dfs_queue *q, const char *path, const char *owner,
				const char *group, const struct dfs_then *then, struct dfs_err *out)
{
	Hd__SetOwnerRequestProto req = HD__SET_OWNER_REQUEST_PROTO__INIT;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, plain_step, &o, &err);

	if (rc == 0) {
		req.src = o->path;
		req.username = (char *)owner;
		req.groupname = (char *)group;
		rc = submit(o, "setOwner", &req, &hd__set_owner_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

DFS_API int dfs_begin_set_times(struct dfs_queue *q, const char *path, uint64_t mtime_ms,
				uint64_t atime_ms, const struct dfs_then *then, struct dfs_err *out)
{
	Hd__SetTimesRequestProto req = HD__SET_TIMES_REQUEST_PROTO__INIT;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, plain_step, &o, &err);

	if (rc == 0) {
		req.src = o->path;
		req.mtime = mtime_ms; /* DFS_TIME_KEEP is the wire's -1 */
		req.atime = atime_ms;
		rc = submit(o, "setTimes", &req, &hd__set_times_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

/* ---- files ---- */

/* Before the caller hears of the failure @rc another request follows, whose outcome @step judges.
 */
static void keep_failure(struct op *o, int rc, const struct rpc_done *d,
			 int (*step)(struct op *o, int rc, struct rpc_done *d))
{
	o->first_rc = rc;
	o->first = *d->err;
	o->step = step;
}

/* That request was submitted, or not: @rc. */
static int after_failure(struct op *o, int rc, struct rpc_done *d)
{
	if (rc < 0)
		*d->err = o->first;
	return rc < 0 ? o->first_rc : OP_MORE;
}

/* The same question for open and create: is it a directory that made the request fail? */
static int ask_what_is_there(struct op *o, int rc, struct rpc_done *d,
			     int (*step)(struct op *o, int rc, struct rpc_done *d))
{
	keep_failure(o, rc, d, step);
	return after_failure(o, submit_stat(o, d->err), d);
}

static int open_stat_step(struct op *o, int rc, struct rpc_done *d)
{
	struct dfs_stat st;

	rc = stat_answer(rc, d, &st);
	if (rc == 0 && st.type == DFS_DIR)
		return err_set(d->err, -EISDIR, "%.400s is a directory", o->path);
	*d->err = o->first;
	return path_not_found(d->err, o->path);
}

static int open_step(struct op *o, int rc, struct rpc_done *d)
{
	Hd__GetBlockLocationsResponseProto *m = (void *)d->resp;

	if (rc == -ENOENT) /* the NameNode says only "not a file" */
		return ask_what_is_there(o, rc, d, open_stat_step);
	if (rc < 0)
		return rc;
	if (!m->locations)
		return path_not_found(d->err, o->path);
	d->resp = NULL;
	return open_answer(o->q->fs, o->path, m, o->ret, d->err);
}

DFS_API int dfs_begin_open(struct dfs_queue *q, const char *path, struct dfs_file **ret,
			   const struct dfs_then *then, struct dfs_err *out)
{
	Hd__GetBlockLocationsRequestProto req;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, open_step, &o, &err);

	rc = rc ?: stream_check(q->fs, &err);
	if (rc == 0) {
		o->ret = ret;
		locate_request(q->fs, o->path, 0, &req);
		rc = submit(o, "getBlockLocations", &req,
			    &hd__get_block_locations_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

static int create_stat_step(struct op *o, int rc, struct rpc_done *d)
{
	struct dfs_stat st;

	rc = stat_answer(rc, d, &st);
	*d->err = o->first;
	return create_errno(o->path, o->first_rc, rc == 0 ? &st : NULL, d->err);
}

/* It is gone, or left to lease recovery: what counts is why it cannot be written. */
static int taken_back_step(struct op *o, int rc, struct rpc_done *d)
{
	(void)rc;
	*d->err = o->first;
	return o->first_rc;
}

static int submit_delete(struct op *o, const char *path, struct err *err)
{
	Hd__DeleteRequestProto req = HD__DELETE_REQUEST_PROTO__INIT;

	req.src = (char *)path;
	return submit(o, "delete", &req, &hd__delete_response_proto__descriptor, err);
}

static int made_stat_step(struct op *o, int rc, struct rpc_done *d)
{
	struct dfs_stat st;

	if (stat_answer(rc, d, &st) < 0 || st.file_id != o->made_id)
		return taken_back_step(o, rc, d);
	o->step = taken_back_step;
	return after_failure(o, submit_delete(o, o->path, d->err), d);
}

/* The file that was made goes: by its inode where the server is known to be a NameNode, else if it
 * has the path still. by_inode() would ask which of them it is, and is not for calls that do not
 * wait. */
static int take_back(struct op *o, int rc, struct rpc_done *d)
{
	const Hd__CreateResponseProto *m = (const void *)d->resp;
	char by_id[PATH_BY_ID_MAX];

	if (!m->fs)
		return rc;
	o->made_id = m->fs->fileid;
	if (atomic_load(&o->q->fs->is_router) < 0) {
		keep_failure(o, rc, d, taken_back_step);
		return after_failure(o, submit_delete(o, path_by_id(by_id, o->made_id), d->err), d);
	}
	keep_failure(o, rc, d, made_stat_step);
	return after_failure(o, submit_stat(o, d->err), d);
}

static int create_step(struct op *o, int rc, struct rpc_done *d)
{
	if (rc == -EEXIST)
		return ask_what_is_there(o, rc, d, create_stat_step);
	if (rc < 0)
		return create_errno(o->path, rc, NULL, d->err);
	rc = create_answer(o->q->fs, o->path, &o->create, (void *)d->resp, o->ret, d->err);
	return rc < 0 ? take_back(o, rc, d) : 0;
}

DFS_API int dfs_begin_create(struct dfs_queue *q, const char *path,
			     const struct dfs_create_opts *opts, struct dfs_file **ret,
			     const struct dfs_then *then, struct dfs_err *out)
{
	struct create_request req;
	struct op *o = NULL;
	struct err err;
	int rc = op_new(q, path, then, create_step, &o, &err);

	rc = rc ?: create_opts(q->fs, opts, &o->create, &err);
	if (rc == 0) {
		o->ret = ret;
		create_request(q->fs, o->path, &o->create, &req);
		rc = submit(o, "create", &req.m, &hd__create_response_proto__descriptor, &err);
	}
	return begun(o, rc, &err, out);
}

static int close_step(struct op *o, int rc, struct rpc_done *d)
{
	const Hd__CompleteResponseProto *m = (const void *)d->resp;

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc; /* deleted while it was written */
	if (m->result)
		return 0;
	if (clock_mono_ns() >= o->patience_ns)
		return err_set(d->err, -ETIMEDOUT, "%.200s: the NameNode will not close it",
			       o->path);
	o->again_ms = o->pause_ms;
	o->pause_ms = o->pause_ms * 2 < CLOSE_PAUSE_MAX_MS ? o->pause_ms * 2 : CLOSE_PAUSE_MAX_MS;
	return OP_MORE;
}

/* It is closed already. */
static uint32_t on_closed(void *arg, struct rpc_done *d)
{
	struct op *o = arg;

	op_end(o, o->first_rc < 0 ? o->first_rc : 0, o->first_rc < 0 ? &o->first : d->err);
	return 0;
}

static int submit_complete(struct op *o, uint64_t id, struct err *err)
{
	Hd__CompleteRequestProto req = HD__COMPLETE_REQUEST_PROTO__INIT;

	o->step = close_step;
	o->pause_ms = CLOSE_PAUSE_MS;
	o->patience_ns = clock_mono_ns() + CLOSE_PATIENCE_NS;
	req.src = o->path;
	req.clientname = o->q->fs->client_name;
	req.has_fileid = 1;
	req.fileid = id;
	req.has_dropfirst = req.dropfirst = 1; /* nothing was written */
	return submit(o, "complete", &req, &hd__complete_response_proto__descriptor, err);
}

DFS_API int dfs_begin_close(struct dfs_queue *q, struct dfs_file *f, const struct dfs_then *then,
			    struct dfs_err *out)
{
	struct dfs_err why = {0};
	struct op *o = NULL;
	const char *path;
	struct err err;
	uint64_t id;
	const bool is_new = file_is_new(f, &id, &path);
	int rc = op_new(q, is_new ? path : "/", then, close_step, &o, &err);

	if (rc == 0 && is_new) {
		o->file = f; /* before somebody runs the queue */
		rc = submit_complete(o, id, &err);
	} else if (rc == 0) {
		o->first_rc = dfs_close(f, &why);
		f = NULL;
		o->first.rc = why.rc;
		memcpy(o->first.text, why.text, sizeof(why.text));
		memcpy(o->first.remote, why.remote, sizeof(why.remote));
		rc = rpc_queue_post(q->rpc, on_closed, o);
		if (rc < 0)
			err_sys(&err, rc, "close");
	}
	if (rc < 0)
		(void)dfs_close(f, NULL);
	return begun(o, rc, &err, out);
}

/* ---- reads ---- */

DFS_API int dfs_begin_pread(struct dfs_queue *q, struct dfs_file *f, void *buf, size_t len,
			    uint64_t offset, size_t *ret, const struct dfs_then *then,
			    struct dfs_err *out)
{
	struct reader *r = file_reader(f);
	struct err err;
	int rc;

	err_reset(&err);
	rc = r ? read_queue_submit(q->reads, r, buf, len, offset, ret, then)
	       : err_set(&err, -EBADF, "the file is not open for reading");
	if (rc == -EAGAIN)
		err_set(&err, rc, "%u reads are under way in this queue", READ_QUEUE_MAX);
	return api_err(out, &err, rc);
}
