/* SPDX-License-Identifier: Apache-2.0 */
/* namespace - the calls of dfsclient.h about names, and about the cluster; each is one RPC */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/fs.h"
#include "client/src/path.h"
#include "common/wire/pb.h"
#include "ClientNamenodeProtocol.pb-c.h"

#define LIST_START_MAX 8000 /* longest name to continue a listing after */

/* A call about one path: resolve it, and put method and path before what went wrong. */
static int path_call(struct dfs *fs, const char *method, const char *path,
		     const ProtobufCMessage *req, const ProtobufCMessageDescriptor *reply,
		     void *ret, struct err *err)
{
	int rc = nn_call(fs, method, req, reply, ret, err);

	if (rc < 0 && rc != -ECONNREFUSED && rc != -ETIMEDOUT && !strstr(err->text, path))
		err_prefix(err, "%.200s", path);
	if (rc == -EACCES)
		err_cure(err, "ask its owner or the superuser, or act as one (HADOOP_USER_NAME)");
	return rc;
}

static int not_found(struct err *err, const char *path)
{
	return err_set(err, -ENOENT, "%.400s: no such file or directory", path);
}

/* ---- status ---- */

static void fill_stat(const Hd__HdfsFileStatusProto *f, struct dfs_stat *st)
{
	*st = (struct dfs_stat){
		.type = (enum dfs_type)f->filetype,
		.mode = f->permission->perm & 01777,
		.length = f->length,
		.block_size = f->blocksize,
		.replication = f->block_replication,
		.children = f->has_childrennum ? f->childrennum : -1,
		.mtime_ms = f->modification_time,
		.atime_ms = f->access_time,
		.file_id = f->fileid,
		.encrypted = f->fileencryptioninfo != NULL,
		.erasure_coded = f->ecpolicy != NULL,
	};
	snprintf(st->owner, sizeof(st->owner), "%s", f->owner);
	snprintf(st->group, sizeof(st->group), "%s", f->group);
}

static int stat_path(struct dfs *fs, const char *path, struct dfs_stat *ret, struct err *err)
{
	Hd__GetFileInfoRequestProto req = HD__GET_FILE_INFO_REQUEST_PROTO__INIT;
	Hd__GetFileInfoResponseProto *m;
	int rc;

	req.src = (char *)path;
	rc = path_call(fs, "getFileInfo", path, &req.base,
		       &hd__get_file_info_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	if (m->fs)
		fill_stat(m->fs, ret);
	else
		rc = not_found(err, path);
	pb_free(m);
	return rc;
}

DFS_API int dfs_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *out)
{
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	rc = rc ?: stat_path(fs, full, ret, &err);
	return api_err(out, &err, rc);
}

/* ---- list ---- */

struct dfs_list {
	struct dfs *fs; /* borrowed (outlives its lists) */
	Hd__GetListingResponseProto *page; /* owned */
	size_t next;           /* index in page */
	struct dfs_stat entry; /* lent to the caller */
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
	rc = path_call(l->fs, "getListing", l->path, &req.base,
		       &hd__get_listing_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	if (!m->dirlist) {
		pb_free(m);
		return not_found(err, l->path);
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
	fill_stat(f, &l->entry);
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

static int mkdir_path(struct dfs *fs, const char *path, uint32_t mode, bool parents,
		      struct err *err)
{
	Hd__MkdirsRequestProto req = HD__MKDIRS_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto masked = HD__FS_PERMISSION_PROTO__INIT;
	Hd__FsPermissionProto unmasked = HD__FS_PERMISSION_PROTO__INIT;
	Hd__MkdirsResponseProto *m;
	struct dfs_stat st;
	int rc;

	if (!parents) { /* mkdirs is content with a directory that exists; mkdir is not */
		rc = stat_path(fs, path, &st, err);
		if (rc == 0)
			return err_set(err, -EEXIST, "%.400s exists", path);
		if (rc != -ENOENT)
			return rc;
		err_reset(err);
	}
	unmasked.perm = mode ? mode : 0777;
	masked.perm = unmasked.perm & ~fs->set.umask;
	req.src = (char *)path;
	req.masked = &masked;
	req.unmasked = &unmasked;
	req.createparent = parents;
	rc = path_call(fs, "mkdirs", path, &req.base, &hd__mkdirs_response_proto__descriptor, &m,
		       err);
	if (rc < 0)
		return rc;
	if (!m->result)
		rc = err_set(err, -EREMOTEIO, "%.400s: the NameNode did not make the directory",
			     path);
	pb_free(m);
	return rc;
}

DFS_API int dfs_mkdir(struct dfs *fs, const char *path, uint32_t mode, bool parents,
		      struct dfs_err *out)
{
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	rc = rc ?: mkdir_path(fs, full, mode, parents, &err);
	return api_err(out, &err, rc);
}

/* What rename2 throws as a bare IOException is told apart by its words. */
static int rename_errno(int rc, const struct err *err)
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
	Hd__Rename2RequestProto req = HD__RENAME2_REQUEST_PROTO__INIT;
	char from[PATH_TEXT_MAX], to[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, old_path, from, &err);
	rc = rc ?: path_resolve(fs->user, new_path, to, &err);
	req.src = from;
	req.dst = to;
	req.overwritedest = overwrite;
	rc = rc ?: path_call(fs, "rename2", from, &req.base,
			     &hd__rename2_response_proto__descriptor, NULL, &err);
	return api_err(out, &err, rename_errno(rc, &err));
}

DFS_API int dfs_delete(struct dfs *fs, const char *path, bool recursive, struct dfs_err *out)
{
	Hd__DeleteRequestProto req = HD__DELETE_REQUEST_PROTO__INIT;
	Hd__DeleteResponseProto *m = NULL;
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	if (rc == 0 && strcmp(full, "/") == 0)
		rc = err_set(&err, -EPERM, "/: the root directory cannot be deleted; name what is in it");
	req.src = full;
	req.recursive = recursive;
	rc = rc ?: path_call(fs, "delete", full, &req.base, &hd__delete_response_proto__descriptor,
			     &m, &err);
	if (rc == 0 && !m->result)
		rc = not_found(&err, full);
	pb_free(m);
	return api_err(out, &err, rc);
}

DFS_API int dfs_set_permission(struct dfs *fs, const char *path, uint32_t mode,
			       struct dfs_err *out)
{
	Hd__SetPermissionRequestProto req = HD__SET_PERMISSION_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	perm.perm = mode & 01777;
	req.src = full;
	req.permission = &perm;
	rc = rc ?: path_call(fs, "setPermission", full, &req.base,
			     &hd__set_permission_response_proto__descriptor, NULL, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_set_owner(struct dfs *fs, const char *path, const char *owner, const char *group,
			  struct dfs_err *out)
{
	Hd__SetOwnerRequestProto req = HD__SET_OWNER_REQUEST_PROTO__INIT;
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	req.src = full;
	req.username = (char *)owner;
	req.groupname = (char *)group;
	rc = rc ?: path_call(fs, "setOwner", full, &req.base,
			     &hd__set_owner_response_proto__descriptor, NULL, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_set_times(struct dfs *fs, const char *path, uint64_t mtime_ms, uint64_t atime_ms,
			  struct dfs_err *out)
{
	Hd__SetTimesRequestProto req = HD__SET_TIMES_REQUEST_PROTO__INIT;
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	req.src = full;
	req.mtime = mtime_ms; /* DFS_TIME_KEEP is the wire's -1 */
	req.atime = atime_ms;
	rc = rc ?: path_call(fs, "setTimes", full, &req.base,
			     &hd__set_times_response_proto__descriptor, NULL, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_set_replication(struct dfs *fs, const char *path, uint32_t replication,
				struct dfs_err *out)
{
	Hd__SetReplicationRequestProto req = HD__SET_REPLICATION_REQUEST_PROTO__INIT;
	Hd__SetReplicationResponseProto *m = NULL;
	char full[PATH_TEXT_MAX];
	struct dfs_stat st;
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	req.src = full;
	req.replication = replication;
	rc = rc ?: path_call(fs, "setReplication", full, &req.base,
			     &hd__set_replication_response_proto__descriptor, &m, &err);
	if (rc == 0 && !m->result) { /* false: a directory, or not there */
		rc = stat_path(fs, full, &st, &err);
		if (rc == 0)
			rc = err_set(&err, -EISDIR, "%.400s is not a replicated file", full);
	}
	pb_free(m);
	return api_err(out, &err, rc == -EREMOTEIO ? -EINVAL : rc);
}

/* ---- the cluster ---- */

DFS_API int dfs_statfs(struct dfs *fs, struct dfs_statfs *ret, struct dfs_err *out)
{
	Hd__GetFsStatusRequestProto req = HD__GET_FS_STATUS_REQUEST_PROTO__INIT;
	Hd__GetFsStatsResponseProto *m;
	struct err err;
	int rc;

	err_reset(&err);
	rc = nn_call(fs, "getFsStats", &req.base, &hd__get_fs_stats_response_proto__descriptor, &m,
		     &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	*ret = (struct dfs_statfs){
		.capacity = m->capacity,
		.used = m->used,
		.remaining = m->remaining,
		.under_replicated = m->under_replicated,
		.corrupt_blocks = m->corrupt_blocks,
		.missing_blocks = m->missing_blocks,
	};
	pb_free(m);
	return 0;
}

DFS_API int dfs_content_summary(struct dfs *fs, const char *path, struct dfs_summary *ret,
				struct dfs_err *out)
{
	Hd__GetContentSummaryRequestProto req = HD__GET_CONTENT_SUMMARY_REQUEST_PROTO__INIT;
	Hd__GetContentSummaryResponseProto *m;
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	rc = path_resolve(fs->user, path, full, &err);
	req.path = full;
	rc = rc ?: path_call(fs, "getContentSummary", full, &req.base,
			     &hd__get_content_summary_response_proto__descriptor, &m, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	*ret = (struct dfs_summary){
		.length = m->summary->length,
		.file_count = m->summary->filecount,
		.directory_count = m->summary->directorycount,
		.space_consumed = m->summary->spaceconsumed,
		.name_quota = (int64_t)m->summary->quota,
		.space_quota = (int64_t)m->summary->spacequota,
	};
	pb_free(m);
	return 0;
}

/* Strings stay in the message, which lives as long as the answer. */
static void fill_node(const Hd__DatanodeInfoProto *d, struct dfs_node *n)
{
	*n = (struct dfs_node){
		.ip = d->id->ipaddr,
		.host = d->id->hostname,
		.uuid = d->id->datanodeuuid,
		.rack = d->location ? d->location : "",
		.xfer_port = (uint16_t)d->id->xferport,
		.info_port = (uint16_t)d->id->infoport,
		.ipc_port = (uint16_t)d->id->ipcport,
		.state = (enum dfs_node_state)d->adminstate,
		.capacity = d->capacity,
		.used = d->dfsused,
		.remaining = d->remaining,
		.non_dfs_used = d->nondfsused,
		.last_update_ms = d->lastupdate,
		.connections = d->xceivercount,
		.block_count = d->numblocks,
	};
}

struct nodes {
	struct dfs_nodes pub; /* first: what the caller sees */
	Hd__GetDatanodeReportResponseProto *m; /* owned */
	struct dfs_node node[];
};

DFS_API int dfs_nodes(struct dfs *fs, enum dfs_node_filter filter, struct dfs_nodes **ret,
		      struct dfs_err *out)
{
	Hd__GetDatanodeReportRequestProto req = HD__GET_DATANODE_REPORT_REQUEST_PROTO__INIT;
	Hd__GetDatanodeReportResponseProto *m;
	struct nodes *n;
	struct err err;
	int rc;

	err_reset(&err);
	req.type = (Hd__DatanodeReportTypeProto)filter;
	rc = nn_call(fs, "getDatanodeReport", &req.base,
		     &hd__get_datanode_report_response_proto__descriptor, &m, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	n = calloc(1, sizeof(*n) + m->n_di * sizeof(n->node[0]));
	if (!n) {
		pb_free(m);
		return api_err(out, &err, -ENOMEM);
	}
	n->m = m;
	n->pub = (struct dfs_nodes){m->n_di, n->node};
	for (size_t i = 0; i < m->n_di; i++)
		fill_node(m->di[i], &n->node[i]);
	*ret = &n->pub;
	return 0;
}

DFS_API void dfs_nodes_free(struct dfs_nodes *pub)
{
	struct nodes *n = (struct nodes *)pub;

	if (!n)
		return;
	pb_free(n->m);
	free(n);
}

struct blocks {
	struct dfs_blocks pub; /* first: what the caller sees */
	Hd__GetBlockLocationsResponseProto *m; /* owned */
	struct dfs_block *block; /* owned */
	struct dfs_node *node;   /* owned; of all blocks */
};

static int fill_blocks(struct blocks *b, const Hd__LocatedBlocksProto *l)
{
	size_t nodes = 0, at = 0;

	for (size_t i = 0; i < l->n_blocks; i++)
		nodes += l->blocks[i]->n_locs;
	b->block = calloc(l->n_blocks + 1, sizeof(*b->block));
	b->node = calloc(nodes + 1, sizeof(*b->node));
	if (!b->block || !b->node)
		return -ENOMEM;
	b->pub = (struct dfs_blocks){
		.file_length = l->filelength,
		.under_construction = l->underconstruction,
		.pool_id = l->n_blocks ? l->blocks[0]->b->poolid : "",
		.count = l->n_blocks,
		.block = b->block,
	};
	for (size_t i = 0; i < l->n_blocks; i++) {
		const Hd__LocatedBlockProto *lb = l->blocks[i];

		b->block[i] = (struct dfs_block){
			.offset = lb->offset,
			.length = lb->b->numbytes,
			.id = (int64_t)lb->b->blockid,
			.generation = lb->b->generationstamp,
			.corrupt = lb->corrupt,
			.count = lb->n_locs,
			.node = b->node + at,
		};
		for (size_t k = 0; k < lb->n_locs; k++)
			fill_node(lb->locs[k], &b->node[at++]);
	}
	return 0;
}

static int blocks_path(struct dfs *fs, const char *path, uint64_t offset, uint64_t len,
		       struct blocks *b, struct err *err)
{
	Hd__GetBlockLocationsRequestProto req = HD__GET_BLOCK_LOCATIONS_REQUEST_PROTO__INIT;
	struct dfs_stat st;
	int rc = stat_path(fs, path, &st, err);

	if (rc == 0 && st.type == DFS_DIR)
		rc = err_set(err, -EISDIR, "%.400s is a directory", path);
	if (rc < 0)
		return rc;
	req.src = (char *)path;
	req.offset = offset;
	req.length = offset > INT64_MAX ? 0 : len > INT64_MAX - offset ? INT64_MAX - offset : len;
	rc = path_call(fs, "getBlockLocations", path, &req.base,
		       &hd__get_block_locations_response_proto__descriptor, &b->m, err);
	if (rc < 0)
		return rc;
	return b->m->locations ? fill_blocks(b, b->m->locations) : not_found(err, path);
}

DFS_API int dfs_blocks(struct dfs *fs, const char *path, uint64_t offset, uint64_t len,
		       struct dfs_blocks **ret, struct dfs_err *out)
{
	struct blocks *b = calloc(1, sizeof(*b));
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc = -ENOMEM;

	err_reset(&err);
	if (b)
		rc = path_resolve(fs->user, path, full, &err);
	rc = rc ?: blocks_path(fs, full, offset, len, b, &err);
	if (rc < 0) {
		dfs_blocks_free(b ? &b->pub : NULL);
		return api_err(out, &err, rc);
	}
	*ret = &b->pub;
	return 0;
}

DFS_API void dfs_blocks_free(struct dfs_blocks *pub)
{
	struct blocks *b = (struct blocks *)pub;

	if (!b)
		return;
	pb_free(b->m);
	free(b->block);
	free(b->node);
	free(b);
}
