/* SPDX-License-Identifier: Apache-2.0 */
/* caching - the calls of dfsclient_ext.h about pools and directives of centralised caching */
#include <stdio.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"

#define NOT_GIVEN (-1)

static int call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		const ProtobufCMessageDescriptor *reply, struct dfs_err *out)
{
	struct err err;

	err_reset(&err);
	return api_err(out, &err, nn_call(fs, method, req, reply, NULL, &err));
}

/* ---- pools ---- */

static Hd__CachePoolInfoProto pool_msg(const struct dfs_cache_pool *p)
{
	Hd__CachePoolInfoProto m = HD__CACHE_POOL_INFO_PROTO__INIT;

	m.poolname = (char *)p->name;
	m.ownername = (char *)p->owner;
	m.groupname = (char *)p->group;
	m.has_mode = p->mode != NOT_GIVEN;
	m.mode = p->mode;
	m.has_limit = p->limit != NOT_GIVEN;
	m.limit = p->limit;
	m.has_maxrelativeexpiry = p->max_ttl_ms != NOT_GIVEN;
	m.maxrelativeexpiry = p->max_ttl_ms;
	m.has_defaultreplication = p->replication != NOT_GIVEN;
	m.defaultreplication = (uint32_t)p->replication;
	return m;
}

DFS_API int dfs_add_cache_pool(struct dfs *fs, const struct dfs_cache_pool *pool,
			       struct dfs_err *err)
{
	Hd__AddCachePoolRequestProto req = HD__ADD_CACHE_POOL_REQUEST_PROTO__INIT;
	Hd__CachePoolInfoProto m = pool_msg(pool);

	req.info = &m;
	return call(fs, "addCachePool", &req.base, &hd__add_cache_pool_response_proto__descriptor,
		    err);
}

DFS_API int dfs_modify_cache_pool(struct dfs *fs, const struct dfs_cache_pool *pool,
				  struct dfs_err *err)
{
	Hd__ModifyCachePoolRequestProto req = HD__MODIFY_CACHE_POOL_REQUEST_PROTO__INIT;
	Hd__CachePoolInfoProto m = pool_msg(pool);

	req.info = &m;
	return call(fs, "modifyCachePool", &req.base,
		    &hd__modify_cache_pool_response_proto__descriptor, err);
}

DFS_API int dfs_remove_cache_pool(struct dfs *fs, const char *name, struct dfs_err *err)
{
	Hd__RemoveCachePoolRequestProto req = HD__REMOVE_CACHE_POOL_REQUEST_PROTO__INIT;

	req.poolname = (char *)name;
	return call(fs, "removeCachePool", &req.base,
		    &hd__remove_cache_pool_response_proto__descriptor, err);
}

static void tell_pool(const Hd__CachePoolEntryProto *e, dfs_cache_pool_fn *tell, void *arg)
{
	const Hd__CachePoolInfoProto *i = e->info;
	const struct dfs_cache_pool p = {
		.name = i->poolname ? i->poolname : "",
		.owner = i->ownername,
		.group = i->groupname,
		.mode = i->has_mode ? i->mode : NOT_GIVEN,
		.limit = i->has_limit ? i->limit : NOT_GIVEN,
		.max_ttl_ms = i->has_maxrelativeexpiry ? i->maxrelativeexpiry : NOT_GIVEN,
		.replication =
			i->has_defaultreplication ? (int32_t)i->defaultreplication : NOT_GIVEN};
	const struct dfs_cache_use u = {.bytes_needed = e->stats->bytesneeded,
					.bytes_cached = e->stats->bytescached,
					.bytes_over = e->stats->bytesoverlimit,
					.files_needed = e->stats->filesneeded,
					.files_cached = e->stats->filescached};

	tell(arg, &p, &u);
}

DFS_API int dfs_list_cache_pools(struct dfs *fs, dfs_cache_pool_fn *tell, void *arg,
				 struct dfs_err *out)
{
	Hd__ListCachePoolsRequestProto req = HD__LIST_CACHE_POOLS_REQUEST_PROTO__INIT;
	Hd__ListCachePoolsResponseProto *m;
	bool more = true;
	char after[1024] = "";
	struct err err;
	int rc;

	while (more) {
		err_reset(&err);
		req.prevpoolname = after;
		rc = nn_call(fs, "listCachePools", &req.base,
			     &hd__list_cache_pools_response_proto__descriptor, &m, &err);
		if (rc < 0)
			return api_err(out, &err, rc);
		for (size_t i = 0; i < m->n_entries; i++) {
			tell_pool(m->entries[i], tell, arg);
			snprintf(after, sizeof(after), "%s", m->entries[i]->info->poolname);
		}
		more = m->hasmore && m->n_entries;
		pb_free(m);
	}
	return 0;
}

/* ---- directives ---- */

struct directive_msg {
	Hd__CacheDirectiveInfoProto m;
	Hd__CacheDirectiveInfoExpirationProto ttl;
};

static void fill_directive(struct directive_msg *d, const struct dfs_cache_directive *in,
			   char *path)
{
	hd__cache_directive_info_proto__init(&d->m);
	d->m.has_id = in->id != NOT_GIVEN;
	d->m.id = in->id;
	d->m.path = path;
	d->m.pool = (char *)in->pool;
	d->m.has_replication = in->replication != NOT_GIVEN;
	d->m.replication = (uint32_t)in->replication;
	if (in->ttl_ms == NOT_GIVEN)
		return;
	hd__cache_directive_info_expiration_proto__init(&d->ttl);
	d->ttl.isrelative = true;
	d->ttl.millis = in->ttl_ms;
	d->m.expiration = &d->ttl;
}

DFS_API int dfs_add_cache_directive(struct dfs *fs, const struct dfs_cache_directive *d, bool force,
				    int64_t *ret_id, struct dfs_err *out)
{
	Hd__AddCacheDirectiveRequestProto req = HD__ADD_CACHE_DIRECTIVE_REQUEST_PROTO__INIT;
	Hd__AddCacheDirectiveResponseProto *m;
	struct directive_msg in;
	struct path_call a;

	path_call_begin(&a, fs, d->path);
	fill_directive(&in, d, a.path);
	req.info = &in.m;
	req.has_cacheflags = true;
	req.cacheflags = force ? HD__CACHE_FLAG_PROTO__FORCE : 0;
	if (path_call_send(&a, "addCacheDirective", &req.base,
			   &hd__add_cache_directive_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	*ret_id = m->id;
	pb_free(m);
	return path_call_end(&a, out);
}

DFS_API int dfs_modify_cache_directive(struct dfs *fs, const struct dfs_cache_directive *d,
				       bool force, struct dfs_err *out)
{
	Hd__ModifyCacheDirectiveRequestProto req = HD__MODIFY_CACHE_DIRECTIVE_REQUEST_PROTO__INIT;
	struct directive_msg in;
	struct path_call a;

	path_call_begin(&a, fs, d->path ? d->path : "/");
	fill_directive(&in, d, d->path ? a.path : NULL);
	req.info = &in.m;
	req.has_cacheflags = true;
	req.cacheflags = force ? HD__CACHE_FLAG_PROTO__FORCE : 0;
	if (a.rc < 0)
		return path_call_end(&a, out);
	return call(fs, "modifyCacheDirective", &req.base,
		    &hd__modify_cache_directive_response_proto__descriptor, out);
}

DFS_API int dfs_remove_cache_directive(struct dfs *fs, int64_t id, struct dfs_err *err)
{
	Hd__RemoveCacheDirectiveRequestProto req = HD__REMOVE_CACHE_DIRECTIVE_REQUEST_PROTO__INIT;

	req.id = id;
	return call(fs, "removeCacheDirective", &req.base,
		    &hd__remove_cache_directive_response_proto__descriptor, err);
}

static void tell_directive(const Hd__CacheDirectiveEntryProto *e, dfs_cache_directive_fn *tell,
			   void *arg)
{
	const Hd__CacheDirectiveInfoProto *i = e->info;
	const struct dfs_cache_directive d = {.id = i->id,
					      .path = i->path ? i->path : "",
					      .pool = i->pool ? i->pool : "",
					      .replication = (int32_t)i->replication,
					      .ttl_ms = NOT_GIVEN,
					      .expires_ms = i->expiration ? i->expiration->millis
									  : INT64_MAX,
					      .has_expired = e->stats->hasexpired};
	const struct dfs_cache_use u = {.bytes_needed = e->stats->bytesneeded,
					.bytes_cached = e->stats->bytescached,
					.files_needed = e->stats->filesneeded,
					.files_cached = e->stats->filescached};

	tell(arg, &d, &u);
}

DFS_API int dfs_list_cache_directives(struct dfs *fs, const struct dfs_cache_directive *filter,
				      dfs_cache_directive_fn *tell, void *arg, struct dfs_err *out)
{
	Hd__ListCacheDirectivesRequestProto req = HD__LIST_CACHE_DIRECTIVES_REQUEST_PROTO__INIT;
	Hd__ListCacheDirectivesResponseProto *m;
	struct directive_msg in;
	struct path_call a;
	bool more = true;

	path_call_begin(&a, fs, filter->path ? filter->path : "/");
	fill_directive(&in, filter, filter->path ? a.path : NULL);
	req.filter = &in.m;
	while (more) {
		if (path_call_send(&a, "listCacheDirectives", &req.base,
				   &hd__list_cache_directives_response_proto__descriptor, &m) < 0)
			return path_call_end(&a, out);
		for (size_t i = 0; i < m->n_elements; i++) {
			tell_directive(m->elements[i], tell, arg);
			req.previd = m->elements[i]->info->id;
		}
		more = m->hasmore && m->n_elements;
		pb_free(m);
	}
	return path_call_end(&a, out);
}
