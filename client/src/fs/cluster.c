/* SPDX-License-Identifier: Apache-2.0 */
/* cluster - the calls of dfsclient.h about the cluster: space, data nodes, blocks, administration
 */
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"

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
		.stale = d->has_stale && d->stale,
		.failed_volumes = d->has_failedvolumes ? d->failedvolumes : 0,
	};
}

struct nodes {
	struct dfs_nodes pub;                  /* first: what the caller sees */
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
	struct dfs_blocks pub;                 /* first: what the caller sees */
	Hd__GetBlockLocationsResponseProto *m; /* owned */
	struct dfs_block *block;               /* owned */
	struct dfs_node *node;                 /* owned; of all blocks */
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
	int rc = path_stat(fs, path, &st, err);

	if (rc == 0 && st.type == DFS_DIR)
		rc = err_set(err, -EISDIR, "%.400s is a directory", path);
	if (rc < 0)
		return rc;
	req.src = (char *)path;
	req.offset = offset;
	req.length = offset > INT64_MAX ? 0 : len > INT64_MAX - offset ? INT64_MAX - offset : len;
	rc = path_call_once(fs, "getBlockLocations", path, &req.base,
			    &hd__get_block_locations_response_proto__descriptor, &b->m, err);
	if (rc < 0)
		return rc;
	return b->m->locations ? fill_blocks(b, b->m->locations) : path_not_found(err, path);
}

DFS_API int dfs_blocks(struct dfs *fs, const char *path, uint64_t offset, uint64_t len,
		       struct dfs_blocks **ret, struct dfs_err *out)
{
	struct blocks *b = calloc(1, sizeof(*b));
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0)
		a.rc = b ? blocks_path(fs, a.path, offset, len, b, &a.err) : -ENOMEM;
	if (a.rc < 0) {
		dfs_blocks_free(b ? &b->pub : NULL);
		return path_call_end(&a, out);
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

/* ---- administration ---- */

DFS_API int dfs_safe_mode(struct dfs *fs, enum dfs_safe_mode action, bool *ret_on,
			  struct dfs_err *out)
{
	Hd__SetSafeModeRequestProto req = HD__SET_SAFE_MODE_REQUEST_PROTO__INIT;
	Hd__SetSafeModeResponseProto *m;
	struct err err;
	int rc;

	err_reset(&err);
	req.action = (Hd__SafeModeActionProto)action;
	req.has_checked = req.checked = action == DFS_SAFE_MODE_GET; /* of the active one */
	rc = nn_call(fs, "setSafeMode", &req.base, &hd__set_safe_mode_response_proto__descriptor,
		     &m, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	*ret_on = m->result;
	pb_free(m);
	return 0;
}

DFS_API int dfs_refresh_nodes(struct dfs *fs, struct dfs_err *out)
{
	Hd__RefreshNodesRequestProto req = HD__REFRESH_NODES_REQUEST_PROTO__INIT;
	struct err err;
	int rc;

	err_reset(&err);
	rc = nn_call(fs, "refreshNodes", &req.base, &hd__refresh_nodes_response_proto__descriptor,
		     NULL, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_set_balancer_bandwidth(struct dfs *fs, uint64_t bytes, struct dfs_err *out)
{
	Hd__SetBalancerBandwidthRequestProto req = HD__SET_BALANCER_BANDWIDTH_REQUEST_PROTO__INIT;
	struct err err;
	int rc;

	err_reset(&err);
	if (bytes > INT64_MAX)
		return api_err(out, &err, err_set(&err, -EINVAL, "a bandwidth beyond 2^63"));
	req.bandwidth = (int64_t)bytes;
	rc = nn_call(fs, "setBalancerBandwidth", &req.base,
		     &hd__set_balancer_bandwidth_response_proto__descriptor, NULL, &err);
	return api_err(out, &err, rc);
}

struct open_files {
	struct dfs_open_files pub;         /* first: what the caller sees */
	Hd__ListOpenFilesResponseProto *m; /* owned */
	struct dfs_open_file file[];
};

DFS_API int dfs_open_files(struct dfs *fs, const char *path, int64_t after,
			   struct dfs_open_files **ret, struct dfs_err *out)
{
	Hd__ListOpenFilesRequestProto req = HD__LIST_OPEN_FILES_REQUEST_PROTO__INIT;
	Hd__OpenFilesTypeProto all = HD__OPEN_FILES_TYPE_PROTO__ALL_OPEN_FILES;
	Hd__ListOpenFilesResponseProto *m;
	struct open_files *f;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.id = after;
	req.n_types = 1;
	req.types = &all;
	req.path = a.path;
	if (path_call_send(&a, "listOpenFiles", &req.base,
			   &hd__list_open_files_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	f = calloc(1, sizeof(*f) + m->n_entries * sizeof(f->file[0]));
	if (!f) {
		pb_free(m);
		a.rc = -ENOMEM;
		return path_call_end(&a, out);
	}
	f->m = m;
	f->pub = (struct dfs_open_files){m->n_entries, f->file, m->hasmore && m->n_entries > 0};
	for (size_t i = 0; i < m->n_entries; i++)
		f->file[i] = (struct dfs_open_file){
			.path = m->entries[i]->path,
			.client = m->entries[i]->clientname,
			.machine = m->entries[i]->clientmachine,
			.id = m->entries[i]->id,
		};
	*ret = &f->pub;
	return 0;
}

DFS_API void dfs_open_files_free(struct dfs_open_files *pub)
{
	struct open_files *f = (struct open_files *)pub;

	if (!f)
		return;
	pb_free(f->m);
	free(f);
}
