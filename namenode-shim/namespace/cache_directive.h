/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cache_directive - what is to be cached: pools and directives are added, changed, removed
 *
 * Idea: a super-user makes pools; who may write a pool gives directives in it; who may read it sees
 * them. A directive that would take more bytes than its pool may have is refused unless it is
 * forced. What is cached then is the business of blocks/cache_monitor.h.
 * Like all operations on the namespace these check everything before their first write.
 * Threading: that of n->t.
 * Source: Hadoop 3.4.2 CacheManager, FSPermissionChecker; messages are worded after them.
 */
#include "namenode-shim/namespace/cache_rows.h"
#include "namenode-shim/namespace/cache_stats.h"
#include "namenode-shim/namespace/ns.h"

/* What a caller says of a pool. */
struct cache_pool_info {
	const char *name;          /* "": not given */
	const char *owner, *group; /* NULL: not given */
	bool has_mode, has_limit, has_repl, has_expiry;
	uint16_t mode;
	int16_t repl;
	int64_t limit, max_expiry_ms;
};

/* What a caller says of a directive, or looks for. */
struct cache_directive_info {
	bool has_id, has_repl, has_expiry;
	bool relative; /* the expiry counts from now on */
	int64_t id, expiry_ms;
	int16_t repl;
	const char *path, *pool; /* NULL: not given */
};

/* Of a change that takes several transactions: what was seen of a directory. */
struct cache_walk;
/** Accepts NULL. */
void cache_walk_free(struct cache_walk *w);
/** NS_MORE of a change is then for its pool's limit. */
bool cache_walk_is_done(const struct cache_walk *w);

/** @group: of the owner, who is the caller, unless @i says. */
int cache_pool_add(struct ns *n, const struct cache_pool_info *i, const char *group);
int cache_pool_modify(struct ns *n, const struct cache_pool_info *i);
/** With its directives. */
int cache_pool_remove(struct ns *n, const char *name);
/** May the caller see what is in it? */
bool cache_pool_may_read(struct ns *n, const struct cache_pool *p);

struct cache_change {
	const struct cache_directive_info *info;
	const struct cache_stats *stats; /* borrowed */
	bool force;                      /* no limit counts */
	bool counting; /* @stats is about to change: NS_MORE instead of a refusal for the limit */
	struct cache_walk **walk; /* begins as NULL */
};
/** NS_MORE: call again, in another transaction. */
int cache_directive_add(struct ns *n, const struct cache_change *c, int64_t *ret_id);
int cache_directive_modify(struct ns *n, const struct cache_change *c);
int cache_directive_remove(struct ns *n, int64_t id);
/** Refuses a filter that listCacheDirectives does not take. @ret_path: as it is compared; NULL:
 *  any. */
int cache_filter_check(struct ns *n, const struct cache_directive_info *filter,
		       const char **ret_path);

/** As Java writes the time until something expires: DDD:HH:MM:SS.mmm. */
const char *cache_duration_text(struct arena *a, int64_t ms);
