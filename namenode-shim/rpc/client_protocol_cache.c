/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: pools and directives of centralised caching (namespace/cache_directive.h). */
#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/namespace/cache_directive.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

#define LIST_STEP (512u << 10) /* bytes of directives looked at in one step */
#define LIST_ROW 128u          /* and so many for each, besides its path */
/* an addition over its pool's limit waits so long for a count that may let it in */
#define COUNT_WAIT_NS 10000000000ull

/* ---- messages ---- */

static int take_repl(struct req *q, uint32_t wire, int16_t *ret)
{
	const int32_t repl = (int32_t)wire; /* as Java has it */

	if (repl > INT16_MAX || repl < INT16_MIN)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT, "Out of range: %d", repl);
	*ret = (int16_t)repl;
	return 0;
}

static int take_pool(struct req *q, const Hd__CachePoolInfoProto *m, struct cache_pool_info *ret)
{
	*ret = (struct cache_pool_info){.name = m->poolname ? m->poolname : "",
					.owner = m->ownername,
					.group = m->groupname,
					.has_mode = m->has_mode,
					.mode = (uint16_t)(m->mode & INODE_PERM),
					.has_limit = m->has_limit,
					.limit = m->limit,
					.has_expiry = m->has_maxrelativeexpiry,
					.max_expiry_ms = m->maxrelativeexpiry,
					.has_repl = m->has_defaultreplication};
	return ret->has_repl ? take_repl(q, m->defaultreplication, &ret->repl) : 0;
}

static int take_directive(struct req *q, const Hd__CacheDirectiveInfoProto *m,
			  struct cache_directive_info *ret)
{
	*ret = (struct cache_directive_info){.has_id = m->has_id,
					     .id = m->id,
					     .path = m->path,
					     .pool = m->pool,
					     .has_repl = m->has_replication,
					     .has_expiry = m->expiration};
	if (m->expiration) {
		ret->expiry_ms = m->expiration->millis;
		ret->relative = m->expiration->isrelative;
	}
	if (ret->relative && ret->expiry_ms > CACHE_NEVER_MS)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Expiration time is too far in the future!");
	return ret->has_repl ? take_repl(q, m->replication, &ret->repl) : 0;
}

static Hd__CachePoolEntryProto *pool_proto(struct req *q, const struct cache_pool *p)
{
	const bool seen = cache_pool_may_read(&q->ns, p);
	const struct cache_count n =
		seen ? cache_count_pool(&q->nn->cache.stats, p) : (struct cache_count){.need = {0}};
	Hd__CachePoolEntryProto *e =
		req_new_msg(q, Hd__CachePoolEntryProto, hd__cache_pool_entry_proto__init);
	Hd__CachePoolInfoProto *i =
		req_new_msg(q, Hd__CachePoolInfoProto, hd__cache_pool_info_proto__init);
	Hd__CachePoolStatsProto *s =
		req_new_msg(q, Hd__CachePoolStatsProto, hd__cache_pool_stats_proto__init);

	e->info = i;
	e->stats = s;
	i->poolname = arena_strdup(&q->mem, p->name);
	if (!seen)
		return e; /* who may not read it is told its name */
	i->ownername = arena_strdup(&q->mem, p->owner);
	i->groupname = arena_strdup(&q->mem, p->group);
	PB_SET(i, mode, p->mode);
	PB_SET(i, limit, p->limit);
	PB_SET(i, maxrelativeexpiry, p->max_expiry_ms);
	PB_SET(i, defaultreplication, (uint32_t)p->repl);
	s->bytesneeded = (int64_t)n.need.bytes;
	s->bytescached = (int64_t)n.cached.bytes;
	s->filesneeded = (int64_t)n.need.files;
	s->filescached = (int64_t)n.cached.files;
	if (s->bytesneeded > p->limit)
		s->bytesoverlimit = s->bytesneeded - p->limit;
	return e;
}

static Hd__CacheDirectiveEntryProto *directive_proto(struct req *q, const struct cache_directive *d)
{
	const struct cache_count n = cache_count_directive(&q->nn->cache.stats, d);
	Hd__CacheDirectiveEntryProto *e =
		req_new_msg(q, Hd__CacheDirectiveEntryProto, hd__cache_directive_entry_proto__init);
	Hd__CacheDirectiveInfoProto *i =
		req_new_msg(q, Hd__CacheDirectiveInfoProto, hd__cache_directive_info_proto__init);
	Hd__CacheDirectiveInfoExpirationProto *x =
		req_new_msg(q, Hd__CacheDirectiveInfoExpirationProto,
			    hd__cache_directive_info_expiration_proto__init);
	Hd__CacheDirectiveStatsProto *s =
		req_new_msg(q, Hd__CacheDirectiveStatsProto, hd__cache_directive_stats_proto__init);

	PB_SET(i, id, d->id);
	i->path = arena_strdup(&q->mem, d->path);
	i->pool = arena_strdup(&q->mem, d->pool);
	PB_SET(i, replication, (uint32_t)d->repl);
	x->millis = d->expiry_ms;
	i->expiration = x;
	s->bytesneeded = (int64_t)n.need.bytes;
	s->bytescached = (int64_t)n.cached.bytes;
	s->filesneeded = (int64_t)n.need.files;
	s->filescached = (int64_t)n.cached.files;
	s->hasexpired = (int64_t)q->ns.now_ms > d->expiry_ms;
	e->info = i;
	e->stats = s;
	return e;
}

/* ---- pools ---- */

/* The group of a pool that is given none: the first one of its owner, if anybody asks. */
static int own_group(struct req *q, const struct cache_pool_info *i, const char **ret)
{
	char **groups;

	*ret = "";
	if (i->group)
		return 0;
	if (!users_groups(q->nn->users, q->ns.user, &q->mem, &groups))
		return exception_throw(&q->exception, EXC_IO,
				       "There is no primary group for UGI %s (auth:SIMPLE)",
				       q->ns.user);
	*ret = groups[0];
	return 0;
}

static int add_cache_pool(struct req *q, const void *in)
{
	const Hd__AddCachePoolRequestProto *m = in;
	struct cache_pool_info i;
	const char *group;
	int rc = take_pool(q, m->info, &i);

	req_reply(q, Hd__AddCachePoolResponseProto, hd__add_cache_pool_response_proto__init);
	rc = rc ? rc : own_group(q, &i, &group);
	return rc ? rc : cache_pool_add(&q->ns, &i, group);
}

static int modify_cache_pool(struct req *q, const void *in)
{
	const Hd__ModifyCachePoolRequestProto *m = in;
	struct cache_pool_info i;
	int rc = take_pool(q, m->info, &i);

	req_reply(q, Hd__ModifyCachePoolResponseProto, hd__modify_cache_pool_response_proto__init);
	return rc ? rc : cache_pool_modify(&q->ns, &i);
}

static int remove_cache_pool(struct req *q, const void *in)
{
	const Hd__RemoveCachePoolRequestProto *m = in;

	req_reply(q, Hd__RemoveCachePoolResponseProto, hd__remove_cache_pool_response_proto__init);
	return cache_pool_remove(&q->ns, m->poolname);
}

static int list_cache_pools(struct req *q, const void *in)
{
	const Hd__ListCachePoolsRequestProto *m = in;
	Hd__ListCachePoolsResponseProto *r = req_reply(q, Hd__ListCachePoolsResponseProto,
						       hd__list_cache_pools_response_proto__init);
	const uint32_t most = q->nn->set.cache_pools_listed;
	const char *after = m->prevpoolname;
	struct cache_pool p;
	int rc;

	r->entries = arena_array(&q->mem, Hd__CachePoolEntryProto *, most);
	while (!(rc = cache_pool_next(q->ns.t, &q->mem, after, &p))) {
		r->hasmore = r->n_entries == most;
		if (r->hasmore)
			return 0;
		r->entries[r->n_entries++] = pool_proto(q, &p);
		after = p.name;
	}
	return rc == -ENOENT ? 0 : ns_io(&q->ns, rc);
}

/* ---- directives ---- */

/* NS_MORE of an operation: it goes on in the next batch, or when the monitor has counted. */
static int park(struct req *q, int rc)
{
	if (rc != NS_MORE)
		return rc;
	if (!cache_walk_is_done(q->cache_walk))
		return REQ_PARK; /* without a deadline: at once */
	if (!q->wait.deadline_ns)
		q->wait.deadline_ns = clock_mono_ns() + COUNT_WAIT_NS;
	q->wait.for_count = true;
	q->wait.count_ns = q->nn->cache.ended_ns;
	cache_monitor_await(&q->nn->cache);
	return REQ_PARK;
}

/* Is a count about to end that may show room in the pool? */
static bool waits_for_count(const struct req *q)
{
	return q->nn->set.caching && cache_monitor_is_behind(&q->nn->cache) &&
	       (!q->wait.deadline_ns || clock_mono_ns() < q->wait.deadline_ns);
}

static struct cache_change change_of(struct req *q, const struct cache_directive_info *i,
				     uint32_t flags)
{
	const bool force = flags & HD__CACHE_FLAG_PROTO__FORCE;

	return (struct cache_change){.info = i,
				     .stats = &q->nn->cache.stats,
				     .force = force,
				     .counting = !force && waits_for_count(q),
				     .walk = &q->cache_walk};
}

static int add_cache_directive(struct req *q, const void *in)
{
	const Hd__AddCacheDirectiveRequestProto *m = in;
	Hd__AddCacheDirectiveResponseProto *r =
		req_reply(q, Hd__AddCacheDirectiveResponseProto,
			  hd__add_cache_directive_response_proto__init);
	struct cache_directive_info i;
	struct cache_change c;
	int rc = take_directive(q, m->info, &i);

	if (rc < 0)
		return rc;
	c = change_of(q, &i, m->cacheflags);
	return park(q, cache_directive_add(&q->ns, &c, &r->id));
}

static int modify_cache_directive(struct req *q, const void *in)
{
	const Hd__ModifyCacheDirectiveRequestProto *m = in;
	struct cache_directive_info i;
	struct cache_change c;
	int rc = take_directive(q, m->info, &i);

	req_reply(q, Hd__ModifyCacheDirectiveResponseProto,
		  hd__modify_cache_directive_response_proto__init);
	if (rc < 0)
		return rc;
	c = change_of(q, &i, m->cacheflags);
	return park(q, cache_directive_modify(&q->ns, &c));
}

static int remove_cache_directive(struct req *q, const void *in)
{
	const Hd__RemoveCacheDirectiveRequestProto *m = in;

	req_reply(q, Hd__RemoveCacheDirectiveResponseProto,
		  hd__remove_cache_directive_response_proto__init);
	return cache_directive_remove(&q->ns, m->id);
}

/* What is looked for, and the pool of the directive that was looked at last. */
struct search {
	struct cache_directive_info filter;
	const char *path;
	struct cache_pool pool;
	bool may_read;
};

static int is_found(struct req *q, struct search *s, const struct cache_directive *d)
{
	int rc;

	if ((s->filter.pool && strcmp(s->filter.pool, d->pool)) ||
	    (s->path && strcmp(s->path, d->path)))
		return 0;
	if (!s->pool.name || strcmp(s->pool.name, d->pool)) {
		rc = cache_pool_get(q->ns.t, &q->mem, d->pool, &s->pool);
		if (rc < 0)
			return rc;
		s->may_read = cache_pool_may_read(&q->ns, &s->pool);
	}
	return s->may_read;
}

/* A step of a listing: directives after @after. REQ_PARK: it found nothing so far. */
static int list_some(struct req *q, struct search *s, int64_t after,
		     Hd__ListCacheDirectivesResponseProto *r)
{
	const uint32_t most = q->nn->set.cache_directives_listed;
	struct cache_directive *found = arena_array(&q->mem, struct cache_directive, most);
	struct cache_directive d;
	size_t looked = 0;
	int rc = 0;

	while (!rc && !(rc = cache_directive_next(q->ns.t, &q->mem, after, &d))) {
		if ((s->filter.has_id && d.id != s->filter.id) || r->n_elements == most ||
		    (looked >= LIST_STEP && r->n_elements)) {
			r->hasmore = !s->filter.has_id;
			break;
		}
		if (looked >= LIST_STEP)
			return REQ_PARK;
		looked += LIST_ROW + strlen(d.path);
		after = d.id;
		q->at = (size_t)d.id;
		rc = is_found(q, s, &d);
		if (rc > 0)
			found[r->n_elements++] = d;
		rc = rc > 0 ? 0 : rc;
	}
	if (rc < 0 && rc != -ENOENT)
		return ns_io(&q->ns, rc);
	r->elements = arena_array(&q->mem, Hd__CacheDirectiveEntryProto *, most);
	pthread_rwlock_rdlock(&q->nn->mem_lock);
	for (size_t i = 0; i < r->n_elements; i++)
		r->elements[i] = directive_proto(q, &found[i]);
	pthread_rwlock_unlock(&q->nn->mem_lock);
	return 0;
}

static int list_cache_directives(struct req *q, const void *in)
{
	const Hd__ListCacheDirectivesRequestProto *m = in;
	Hd__ListCacheDirectivesResponseProto *r =
		req_reply(q, Hd__ListCacheDirectivesResponseProto,
			  hd__list_cache_directives_response_proto__init);
	struct search s = {.may_read = false};
	struct cache_directive d;
	int64_t after = m->previd;
	int rc = take_directive(q, m->filter, &s.filter);

	rc = rc ? rc : cache_filter_check(&q->ns, &s.filter, &s.path);
	if (rc < 0)
		return rc;
	if (s.filter.has_id) {
		rc = cache_directive_get(q->ns.t, &q->mem, s.filter.id, &d);
		if (rc == -ENOENT)
			return exception_throw(&q->exception, EXC_INVALID_REQUEST,
					       "Did not find requested id %lld",
					       (long long)s.filter.id);
		if (rc < 0)
			return ns_io(&q->ns, rc);
		after = s.filter.id - 1;
	}
	return list_some(q, &s, (int64_t)q->at > after ? (int64_t)q->at : after, r);
}

#define POOL(name, msg, fn) METHOD(name, hd, msg, REQ_CHANGE, REQ_ONCE | REQ_SUPER, fn)
#define DIRECTIVE(name, msg, fn) METHOD(name, hd, msg, REQ_CHANGE, REQ_ONCE, fn)
static const struct method table[] = {
	/* REQ_GROUPS: own_group() */
	METHOD(addCachePool, hd, add_cache_pool, REQ_CHANGE, REQ_ONCE | REQ_SUPER | REQ_GROUPS,
	       add_cache_pool),
	POOL(modifyCachePool, modify_cache_pool, modify_cache_pool),
	POOL(removeCachePool, remove_cache_pool, remove_cache_pool),
	METHOD(listCachePools, hd, list_cache_pools, REQ_READ, 0, list_cache_pools),
	DIRECTIVE(addCacheDirective, add_cache_directive, add_cache_directive),
	DIRECTIVE(modifyCacheDirective, modify_cache_directive, modify_cache_directive),
	DIRECTIVE(removeCacheDirective, remove_cache_directive, remove_cache_directive),
	METHOD(listCacheDirectives, hd, list_cache_directives, REQ_READ, REQ_LOCKS,
	       list_cache_directives),
};
const struct method_table client_cache_methods = METHOD_TABLE(table);
