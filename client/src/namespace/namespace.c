/* SPDX-License-Identifier: Apache-2.0 */
/* namespace - the calls of dfsclient.h about names: status, listing, changes; each is one RPC */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/fs/path_call.h"
#include "client/src/fs/requests.h"
#include "common/wire/pb.h"

#define LIST_START_MAX 8000 /* longest name to continue a listing after */

/* ---- status ---- */

void stat_from_msg(const Hd__HdfsFileStatusProto *f, struct dfs_stat *st)
{
	const uint64_t length = f->has_symlink ? f->symlink.len : f->length;

	*st = (struct dfs_stat){
		.type = (enum dfs_type)f->filetype,
		.mode = f->permission->perm & 01777,
		.length = length < INT64_MAX ? length : INT64_MAX, /* callers have an off_t */
		.block_size = f->blocksize,
		.replication = f->block_replication,
		.children = f->has_childrennum ? f->childrennum : -1,
		.mtime_ms = f->modification_time,
		.atime_ms = f->access_time,
		.file_id = f->fileid,
		.encrypted = f->fileencryptioninfo != NULL,
		.erasure_coded = f->ecpolicy != NULL,
		.has_acl = f->flags & HD__HDFS_FILE_STATUS_PROTO__FLAGS__HAS_ACL,
	};
	snprintf(st->owner, sizeof(st->owner), "%s", f->owner);
	snprintf(st->group, sizeof(st->group), "%s", f->group);
}

int path_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct err *err)
{
	Hd__GetFileInfoRequestProto req = HD__GET_FILE_INFO_REQUEST_PROTO__INIT;
	Hd__GetFileInfoResponseProto *m;
	int rc;

	req.src = (char *)path;
	rc = path_call_once(fs, "getFileInfo", path, &req.base,
			    &hd__get_file_info_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	if (m->fs)
		stat_from_msg(m->fs, ret);
	else
		rc = path_not_found(err, path);
	pb_free(m);
	return rc;
}

DFS_API int dfs_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *out)
{
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: path_stat(fs, a.path, ret, &a.err);
	return path_call_end(&a, out);
}

/* ---- list ---- */

struct dfs_list {
	struct dfs *fs;                    /* borrowed (outlives its lists) */
	Hd__GetListingResponseProto *page; /* owned */
	size_t next;                       /* index in page */
	struct dfs_stat entry;             /* lent to the caller */
	char name[LIST_START_MAX];
	char path[PATH_TEXT_MAX];
};

static int next_page(struct dfs_list *l, struct err *err)
{
	Hd__GetListingRequestProto req = HD__GET_LISTING_REQUEST_PROTO__INIT;
	Hd__GetListingResponseProto *m;
	int rc;

	req.src = l->path;
	req.startafter.data = (uint8_t *)l->name;
	req.startafter.len = strlen(l->name);
	rc = path_call_once(l->fs, "getListing", l->path, &req.base,
			    &hd__get_listing_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	if (!m->dirlist) {
		pb_free(m);
		return path_not_found(err, l->path);
	}
	pb_free(l->page);
	l->page = m;
	l->next = 0;
	return 0;
}

DFS_API int dfs_list_open(struct dfs *fs, const char *path, struct dfs_list **ret,
			  struct dfs_err *out)
{
	struct dfs_list *l = calloc(1, sizeof(*l));
	struct err err;
	int rc;

	err_reset(&err);
	if (!l)
		return api_err(out, &err, -ENOMEM);
	l->fs = fs;
	rc = path_resolve(fs->user, path, l->path, &err);
	rc = rc ?: next_page(l, &err);
	if (rc < 0) {
		dfs_list_close(l);
		return api_err(out, &err, rc);
	}
	*ret = l;
	return 0;
}

DFS_API int dfs_list_next(struct dfs_list *l, const struct dfs_stat **ret, struct dfs_err *out)
{
	const Hd__DirectoryListingProto *d = l->page->dirlist;
	const Hd__HdfsFileStatusProto *f;
	struct err err;

	err_reset(&err);
	if (l->next == d->n_partiallisting) {
		const bool more = d->remainingentries > 0 && d->n_partiallisting > 0;
		int rc = more ? next_page(l, &err) : 0;

		if (rc < 0)
			return api_err(out, &err, rc);
		d = l->page->dirlist;
		if (l->next == d->n_partiallisting)
			return 0;
	}
	f = d->partiallisting[l->next++];
	if (f->path.len >= sizeof(l->name)) {
		err_set(&err, -EPROTO, "%.200s: the NameNode sent a name of %zu bytes", l->path,
			f->path.len);
		return api_err(out, &err, err.rc);
	}
	stat_from_msg(f, &l->entry);
	if (f->path.len) /* the listing of a file: its own name, empty */
		memcpy(l->name, f->path.data, f->path.len);
	l->name[f->path.len] = '\0';
	l->entry.name = l->name;
	*ret = &l->entry;
	return 1;
}

DFS_API void dfs_list_close(struct dfs_list *l)
{
	if (!l)
		return;
	pb_free(l->page);
	free(l);
}

/* ---- changes ---- */

uint32_t mode_masked(const struct dfs *fs, uint32_t mode)
{
	const uint32_t umask = mode & DFS_UMASK(0) ? mode >> 12 & 0777 : fs->set.umask;

	return mode & 01777 & ~umask;
}

void mkdirs_request(const struct dfs *fs, const char *path, uint32_t mode, bool parents,
		    struct mkdirs_request *ret)
{
	hd__mkdirs_request_proto__init(&ret->m);
	hd__fs_permission_proto__init(&ret->masked);
	hd__fs_permission_proto__init(&ret->unmasked);
	mode = mode ?: 0777; /* DFS_MODE_SET is above the bits */
	ret->unmasked.perm = mode & 01777;
	ret->masked.perm = mode_masked(fs, mode);
	ret->m.src = (char *)path;
	ret->m.masked = &ret->masked;
	ret->m.unmasked = &ret->unmasked;
	ret->m.createparent = parents;
	ret->m.has_exclusive = ret->m.exclusive = !parents;
}

int mkdirs_answer(const Hd__MkdirsResponseProto *m, const char *path, struct err *err)
{
	return m->result ? 0
			 : err_set(err, -EREMOTEIO,
				   "%.400s: the NameNode did not make the directory", path);
}

int mkdir_exists(const char *path, struct err *err)
{
	return err_set(err, -EEXIST, "%.400s exists", path);
}

static int mkdirs_path(struct dfs *fs, const char *path, uint32_t mode, bool parents,
		       struct err *err)
{
	struct mkdirs_request req;
	Hd__MkdirsResponseProto *m;
	int rc;

	mkdirs_request(fs, path, mode, parents, &req);
	rc = path_call_once(fs, "mkdirs", path, &req.m.base, &hd__mkdirs_response_proto__descriptor,
			    &m, err);
	if (rc < 0)
		return rc;
	rc = mkdirs_answer(m, path, err);
	pb_free(m);
	return rc;
}

/* mkdirs is content with a directory that exists. Does the NameNode know a field of ours that is
 * not? 1 or 0. */
static int knows_exclusive(struct dfs *fs, struct err *err)
{
	int rc = atomic_load(&fs->knows_exclusive);

	if (rc != 0)
		return rc > 0;
	rc = mkdirs_path(fs, "/", 0, false, err); /* exists: harmless */
	if (rc < 0 && rc != -EEXIST)
		return rc;
	err_reset(err);
	atomic_store(&fs->knows_exclusive, rc < 0 ? 1 : -1);
	return rc < 0;
}

static int rename_path(struct dfs *fs, const char *from, const char *to, bool overwrite,
		       struct err *err)
{
	Hd__Rename2RequestProto req = HD__RENAME2_REQUEST_PROTO__INIT;
	int rc;

	req.src = (char *)from;
	req.dst = (char *)to;
	req.overwritedest = overwrite;
	rc = path_call_once(fs, "rename2", from, &req.base, &hd__rename2_response_proto__descriptor,
			    NULL, err);
	return rename_errno(rc, err);
}

static int delete_path(struct dfs *fs, const char *path, bool recursive, struct err *err)
{
	Hd__DeleteRequestProto req = HD__DELETE_REQUEST_PROTO__INIT;
	Hd__DeleteResponseProto *m = NULL;
	int rc;

	req.src = (char *)path;
	req.recursive = recursive;
	rc = path_call_once(fs, "delete", path, &req.base, &hd__delete_response_proto__descriptor,
			    &m, err);
	if (rc == 0 && !m->result)
		rc = path_not_found(err, path);
	pb_free(m);
	return rc;
}

/* A rename fails when there is something. */
static int mkdir_by_rename(struct dfs *fs, const char *path, uint32_t mode, struct err *err)
{
	const int dir = (int)(strrchr(path, '/') - path);
	char *tmp;
	int rc;

	if (asprintf(&tmp, "%.*s/.dfs-mkdir.%s.%u", dir, path, fs->client_name,
		     atomic_fetch_add(&fs->mkdirs, 1)) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	rc = mkdirs_path(fs, tmp, mode, false, err);
	if (rc == 0) {
		rc = rename_path(fs, tmp, path, false, err);
		if (rc < 0)
			(void)delete_path(fs, tmp, false, &(struct err){0});
	}
	free(tmp);
	return rc == -EEXIST ? mkdir_exists(path, err) : rc;
}

static int mkdir_path(struct dfs *fs, const char *path, uint32_t mode, struct err *err)
{
	const int known = path[1] ? knows_exclusive(fs, err) : 1;
	struct dfs_stat st;
	int rc;

	if (known < 0)
		return known;
	if (known) {
		rc = mkdirs_path(fs, path, mode, false, err);
		return rc == -EEXIST ? mkdir_exists(path, err) : rc;
	}
	rc = path_stat(fs, path, &st, err);
	if (rc == 0)
		return mkdir_exists(path, err);
	if (rc != -ENOENT)
		return rc;
	err_reset(err);
	return mkdir_by_rename(fs, path, mode, err);
}

DFS_API int dfs_mkdir(struct dfs *fs, const char *path, uint32_t mode, bool parents,
		      struct dfs_err *out)
{
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc
		       ?: parents ? mkdirs_path(fs, a.path, mode, true, &a.err)
				  : mkdir_path(fs, a.path, mode, &a.err);
	return path_call_end(&a, out);
}

int rename_errno(int rc, const struct err *err)
{
	static const struct {
		const char *words;
		int rc;
	} known[] = {
		{"is not empty", -ENOTEMPTY},
		{"under source", -EINVAL},
		{"cannot be the source", -EINVAL},
		{"must both be", -EISDIR},
	};

	for (size_t i = 0; rc == -EREMOTEIO && i < sizeof(known) / sizeof(known[0]); i++)
		if (strstr(err->text, known[i].words))
			return known[i].rc;
	return rc;
}

DFS_API int dfs_rename(struct dfs *fs, const char *old_path, const char *new_path, bool overwrite,
		       struct dfs_err *out)
{
	char to[PATH_TEXT_MAX];
	struct path_call a;

	path_call_begin(&a, fs, old_path);
	a.rc = a.rc ?: path_resolve(fs->user, new_path, to, &a.err);
	a.rc = a.rc ?: rename_path(fs, a.path, to, overwrite, &a.err);
	return path_call_end(&a, out);
}

int delete_root(struct err *err)
{
	return err_set(err, -EPERM, "/: the root directory cannot be deleted; name what is in it");
}

DFS_API int dfs_delete(struct dfs *fs, const char *path, bool recursive, struct dfs_err *out)
{
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && strcmp(a.path, "/") == 0)
		a.rc = delete_root(&a.err);
	a.rc = a.rc ?: delete_path(fs, a.path, recursive, &a.err);
	return path_call_end(&a, out);
}

DFS_API int dfs_set_permission(struct dfs *fs, const char *path, uint32_t mode, struct dfs_err *out)
{
	Hd__SetPermissionRequestProto req = HD__SET_PERMISSION_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	perm.perm = mode & 01777;
	req.src = a.path;
	req.permission = &perm;
	(void)path_call_send(&a, "setPermission", &req.base,
			     &hd__set_permission_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}

DFS_API int dfs_set_owner(struct dfs *fs, const char *path, const char *owner, const char *group,
			  struct dfs_err *out)
{
	Hd__SetOwnerRequestProto req = HD__SET_OWNER_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.username = (char *)owner;
	req.groupname = (char *)group;
	(void)path_call_send(&a, "setOwner", &req.base, &hd__set_owner_response_proto__descriptor,
			     NULL);
	return path_call_end(&a, out);
}

DFS_API int dfs_set_times(struct dfs *fs, const char *path, uint64_t mtime_ms, uint64_t atime_ms,
			  struct dfs_err *out)
{
	Hd__SetTimesRequestProto req = HD__SET_TIMES_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.mtime = mtime_ms; /* DFS_TIME_KEEP is the wire's -1 */
	req.atime = atime_ms;
	(void)path_call_send(&a, "setTimes", &req.base, &hd__set_times_response_proto__descriptor,
			     NULL);
	return path_call_end(&a, out);
}
