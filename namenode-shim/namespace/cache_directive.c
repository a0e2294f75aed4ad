/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/cache_directive.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"

#define POOL_MODE 0755 /* of a pool that is given none */
#define WALK_STEP NS_SUM_STEP

static int refuse(struct ns *n, const char *text)
{
	return exception_throw(n->x, EXC_INVALID_REQUEST, "%s", text);
}

/* The monitor is to look at all of them. */
static void changed(struct ns *n)
{
	ns_effect(n, EFFECT_CACHE);
}

/* ---- rights ---- */

static bool allowed(struct ns *n, const struct cache_pool *p, unsigned int access)
{
	bool owner, member;

	if (!n->enforce || n->super)
		return true;
	/* not before: nobody holds the groups of the super-user, and to ask for them may block */
	owner = !strcmp(n->user, p->owner);
	member = users_in_group(n->users, n->user, p->group);
	if (owner && ((unsigned int)p->mode >> 6 & access) == access)
		return true;
	if (member && ((unsigned int)p->mode >> 3 & access) == access)
		return true;
	return !owner && !member && (p->mode & access) == access;
}

bool cache_pool_may_read(struct ns *n, const struct cache_pool *p)
{
	return allowed(n, p, ACCESS_R);
}

static int check_write(struct ns *n, const struct cache_pool *p)
{
	if (allowed(n, p, ACCESS_W))
		return 0;
	return exception_throw(n->x, EXC_ACCESS,
			       "Permission denied while accessing pool %s: user %s does not have "
			       "WRITE permissions.",
			       p->name, n->user);
}

/* ---- pools ---- */

static int check_pool_info(struct ns *n, const struct cache_pool_info *i)
{
	if (i->has_limit && i->limit < 0)
		return refuse(n, "Limit is negative.");
	if (i->has_repl && i->repl < 0)
		return refuse(n, "Default Replication is negative");
	if (i->has_expiry && i->max_expiry_ms < 0)
		return refuse(n, "Max relative expiry is negative.");
	if (i->has_expiry && i->max_expiry_ms > CACHE_NEVER_MS)
		return refuse(n, "Max relative expiry is too big.");
	if (!*i->name)
		return exception_throw(n->x, EXC_IO, "invalid empty cache pool name");
	if (strlen(i->name) > CACHE_POOL_NAME_MAX)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "Cache pool name is longer than %d bytes",
				       CACHE_POOL_NAME_MAX);
	if ((i->owner && strlen(i->owner) > CACHE_POOL_NAME_MAX) ||
	    (i->group && strlen(i->group) > CACHE_POOL_NAME_MAX))
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "Owner or group of a cache pool is longer than %d bytes",
				       CACHE_POOL_NAME_MAX);
	return 0;
}

static void apply_pool_info(struct cache_pool *p, const struct cache_pool_info *i)
{
	p->owner = i->owner ? i->owner : p->owner;
	p->group = i->group ? i->group : p->group;
	p->mode = i->has_mode ? i->mode : p->mode;
	p->limit = i->has_limit ? i->limit : p->limit;
	p->repl = i->has_repl ? i->repl : p->repl;
	p->max_expiry_ms = i->has_expiry ? i->max_expiry_ms : p->max_expiry_ms;
}

int cache_pool_add(struct ns *n, const struct cache_pool_info *i, const char *group)
{
	struct cache_pool p = {.name = i->name,
			       .owner = n->user,
			       .group = group,
			       .mode = POOL_MODE,
			       .repl = 1,
			       .limit = CACHE_UNLIMITED,
			       .max_expiry_ms = CACHE_NEVER_MS};
	struct cache_pool old;
	int64_t directive;
	int rc = check_pool_info(n, i);

	if (rc < 0)
		return rc;
	rc = cache_pool_get(n->t, n->a, i->name, &old);
	if (!rc)
		return exception_throw(n->x, EXC_INVALID_REQUEST, "Cache pool %s already exists.",
				       i->name);
	if (rc != -ENOENT)
		return ns_io(n, rc);
	if (cache_pools_count(n->t) >= CACHE_POOLS_MAX)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "There are %d cache pools already", CACHE_POOLS_MAX);
	apply_pool_info(&p, i);
	rc = cache_ids(n->t, &directive, &p.id);
	rc = rc ? rc : cache_pool_put(n->t, &p);
	rc = rc ? rc : cache_set_ids(n->t, directive, p.id + 1);
	return ns_io(n, rc);
}

int cache_pool_modify(struct ns *n, const struct cache_pool_info *i)
{
	struct cache_pool p;
	int rc = check_pool_info(n, i);

	if (rc < 0)
		return rc;
	rc = cache_pool_get(n->t, n->a, i->name, &p);
	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_INVALID_REQUEST, "Cache pool %s does not exist.",
				       i->name);
	if (rc < 0)
		return ns_io(n, rc);
	apply_pool_info(&p, i);
	if (i->has_limit)
		changed(n);
	return ns_io(n, cache_pool_put(n->t, &p));
}

static int remove_directives(struct ns *n, const char *pool)
{
	struct cache_directive d = {.id = 0};
	struct arena a = {0};
	int rc;

	while (!(rc = cache_directive_next(n->t, &a, d.id, &d))) {
		if (!strcmp(d.pool, pool))
			rc = cache_directive_del(n->t, d.id);
		arena_free(&a);
		if (rc < 0)
			return rc;
	}
	arena_free(&a);
	return rc == -ENOENT ? 0 : rc;
}

int cache_pool_remove(struct ns *n, const char *name)
{
	struct cache_pool p;
	int rc;

	if (!*name)
		return exception_throw(n->x, EXC_IO, "invalid empty cache pool name");
	rc = cache_pool_get(n->t, n->a, name, &p);
	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "Cannot remove non-existent cache pool %s", name);
	rc = rc ? rc : remove_directives(n, name);
	rc = rc ? rc : cache_pool_del(n->t, name);
	changed(n);
	return ns_io(n, rc);
}

/* ---- what is said of a directive ---- */

static int find_pool(struct ns *n, const char *name, struct cache_pool *ret)
{
	int rc;

	if (!name)
		return refuse(n, "No pool specified.");
	if (!*name)
		return refuse(n, "Invalid empty pool name.");
	rc = cache_pool_get(n->t, n->a, name, ret);
	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_INVALID_REQUEST, "Unknown pool %s", name);
	return ns_io(n, rc);
}

/* One component behind what is in @to[@len]; ".." takes one away, where there is one. Returns the new
 * length. */
static size_t add_component(char *to, size_t len, const char *p, size_t n)
{
	const bool up = n == 2 && !memcmp(p, "..", 2);
	size_t last = len;

	while (last && to[last - 1] != '/')
		last--;
	if (n == 1 && *p == '.')
		return len;
	if (up && len && (len - last != 2 || memcmp(to + last, "..", 2) != 0))
		return last ? last - 1 : 0;
	to[len] = '/';
	memcpy(to + len + 1, p, n);
	return len + 1 + n;
}

/* As Java's Path has it: no empty component, none that leads up or nowhere, no slash at the end. */
static const char *normal(struct arena *a, const char *path)
{
	char *to = arena_alloc(a, strlen(path) + 2);
	size_t len = 0;

	if (*path != '/')
		return path; /* refused */
	for (size_t n; *path; path += n) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n)
			len = add_component(to, len, path, n);
	}
	if (!len)
		to[len++] = '/';
	to[len] = 0;
	return to;
}

static int check_path(struct ns *n, const char *path, const char **ret)
{
	if (!path)
		return refuse(n, "No path specified.");
	if (!*path)
		return exception_throw(n->x, EXC_BAD_ARGUMENT,
				       "Can not create a Path from an empty string");
	*ret = normal(n->a, path);
	if (!ns_valid_name(*ret))
		return exception_throw(n->x, EXC_INVALID_REQUEST, "Invalid path '%s'.", *ret);
	if (strlen(*ret) > INODE_PATH_MAX)
		return exception_throw(n->x, EXC_INVALID_REQUEST, "Path is longer than %d bytes",
				       INODE_PATH_MAX);
	return 0;
}

static int check_repl(struct ns *n, int repl)
{
	if (repl > 0)
		return 0;
	return exception_throw(n->x, EXC_INVALID_REQUEST, "Invalid replication factor %d <= 0",
			       repl);
}

const char *cache_duration_text(struct arena *a, int64_t ms)
{
	const unsigned long long all =
		ms < 0 ? 0ull - (unsigned long long)ms : (unsigned long long)ms;
	const unsigned long long s = all / 1000;

	return arena_printf(a, "%s%03llu:%02llu:%02llu:%02llu.%03llu", ms < 0 ? "-" : "", s / 86400,
			    s / 3600 % 24, s / 60 % 60, s % 60, all % 1000);
}

static const char *expiry_text(struct ns *n, const struct cache_directive_info *i)
{
	const time_t s = (time_t)(i->expiry_ms / 1000);
	char text[64];
	struct tm tm;

	if (i->relative)
		return cache_duration_text(n->a, i->expiry_ms);
	if (!localtime_r(&s, &tm) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &tm))
		return arena_printf(n->a, "%lld", (long long)i->expiry_ms);
	return arena_strdup(n->a, text);
}

/* The time of day when it expires; without a word of the caller when the pool wants it. */
static int check_expiry(struct ns *n, const struct cache_directive_info *i,
			const struct cache_pool *p, int64_t *ret_ms)
{
	const int64_t now = (int64_t)n->now_ms, max = p->max_expiry_ms;
	int64_t relative;

	if (!i->has_expiry) {
		*ret_ms = now + max;
		return 0;
	}
	if (i->expiry_ms < 0)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "Cannot set a negative expiration: %lld",
				       (long long)i->expiry_ms);
	relative = i->relative ? i->expiry_ms : i->expiry_ms - now;
	if (relative > CACHE_NEVER_MS)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "Expiration %s is too far in the future!",
				       expiry_text(n, i));
	if (relative > max)
		return exception_throw(
			n->x, EXC_INVALID_REQUEST,
			"Expiration %s exceeds the max relative expiration time of %lld ms.",
			expiry_text(n, i), (long long)max);
	*ret_ms = now + relative;
	return 0;
}

/* ---- what a path needs ---- */

struct cache_walk {
	uint64_t dir; /* 0: nothing was seen yet */
	bool done;
	struct cache_need need; /* once */
	size_t after_len;
	char after[INODE_NAME_MAX];
};

void cache_walk_free(struct cache_walk *w)
{
	free(w);
}

bool cache_walk_is_done(const struct cache_walk *w)
{
	return w->done;
}

struct step {
	struct ns *n;
	struct cache_walk *w;
	uint32_t left;
};

static int add_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct step *s = arg;
	struct arena a = {0};
	struct inode *f;
	int rc = inode_get_tail(s->n->t, id, &a, &f);

	if (!rc && f->type == INODE_FILE) {
		cache_add(&s->w->need.bytes, inode_len(f));
		s->w->need.files++;
	}
	arena_free(&a);
	s->w->after_len = len < sizeof(s->w->after) ? len : sizeof(s->w->after);
	memcpy(s->w->after, name, s->w->after_len);
	return rc && rc != -ENOENT ? rc : --s->left ? 0 : NS_MORE;
}

/* What nobody can cache needs nothing: a path that is not there, or leads through a link. */
static int begin_walk(struct ns *n, const char *path, struct cache_walk *w)
{
	struct exception_info x = {.a = n->a};
	struct ns as = *n;
	struct ns_path at;

	as.x = &x;
	as.super = true;
	w->done = true;
	if (ns_resolve_as(&as, path, WALK_TAIL, &at) || !at.last)
		return 0;
	if (at.last->type == INODE_FILE)
		w->need = (struct cache_need){inode_len(at.last), 1};
	if (at.last->type != INODE_DIR)
		return 0;
	w->dir = at.last->id;
	w->done = false;
	return 0;
}

/* NS_MORE: a large directory. */
static int walk_need(struct ns *n, const char *path, struct cache_walk **state)
{
	struct cache_walk *w = *state;
	struct step s = {n, w, WALK_STEP};
	int rc = 0;

	if (!w) {
		w = s.w = *state = xcalloc(1, sizeof(*w));
		rc = begin_walk(n, path, w);
	}
	if (rc < 0 || w->done)
		return rc;
	rc = dirent_each(n->t, w->dir, w->after, w->after_len, add_entry, &s);
	w->done = !rc;
	return rc;
}

/* ---- directives ---- */

static int check_limit(struct ns *n, const struct cache_change *c, const struct cache_pool *p,
		       const struct cache_directive *d)
{
	const uint64_t limit = (uint64_t)p->limit;
	uint64_t now, all;

	if (c->force || p->limit == CACHE_UNLIMITED)
		return 0;
	all = now = cache_bytes_at_most(c->stats, p);
	cache_add(&all, d->need.bytes);
	if (all <= limit)
		return 0;
	if (c->counting)
		return NS_MORE;
	return exception_throw(n->x, EXC_INVALID_REQUEST,
			       "Caching path %s of size %llu bytes at replication %d would exceed "
			       "pool %s's remaining capacity of %lld bytes.",
			       d->path, (unsigned long long)(d->need.bytes / (uint64_t)d->repl),
			       d->repl, p->name, (long long)(limit - now));
}

static int measure(struct ns *n, const struct cache_change *c, struct cache_directive *d)
{
	int rc = walk_need(n, d->path, c->walk);

	if (rc)
		return ns_io(n, rc);
	d->need = (*c->walk)->need;
	d->need.bytes = cache_times(d->need.bytes, d->repl);
	return 0;
}

/* It counts from now on, unless its time is over. */
static void give(struct ns *n, struct cache_pool *p, struct cache_directive *d)
{
	if (cache_is_over(d, (int64_t)n->now_ms))
		d->need = (struct cache_need){0};
	p->given.bytes += d->need.bytes;
	p->given.files += d->need.files;
}

static void take_back(struct cache_pool *p, const struct cache_directive *d)
{
	p->taken.bytes += d->need.bytes;
	p->taken.files += d->need.files;
}

int cache_directive_add(struct ns *n, const struct cache_change *c, int64_t *ret_id)
{
	const struct cache_directive_info *i = c->info;
	struct cache_directive d = {.pool = i->pool};
	struct cache_pool p;
	uint64_t pool_id;
	int rc;

	if (i->has_id)
		return exception_throw(
			n->x, EXC_IO, "addDirective: you cannot specify an ID for this operation.");
	rc = find_pool(n, i->pool, &p);
	rc = rc ? rc : check_write(n, &p);
	rc = rc ? rc : check_path(n, i->path, &d.path);
	d.repl = i->has_repl ? i->repl : p.repl;
	rc = rc ? rc : check_repl(n, d.repl);
	rc = rc ? rc : check_expiry(n, i, &p, &d.expiry_ms);
	rc = rc ? rc : measure(n, c, &d);
	rc = rc ? rc : check_limit(n, c, &p, &d);
	if (rc)
		return rc;
	if (cache_directives_count(n->t) >= CACHE_DIRECTIVES_MAX)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "There are %d cache directives already",
				       CACHE_DIRECTIVES_MAX);
	rc = cache_ids(n->t, &d.id, &pool_id);
	rc = rc ? rc : cache_set_ids(n->t, d.id + 1, pool_id);
	give(n, &p, &d);
	rc = rc ? rc : cache_directive_put(n->t, &d);
	rc = rc ? rc : cache_pool_put(n->t, &p);
	changed(n);
	*ret_id = d.id;
	return ns_io(n, rc);
}

static int find_directive(struct ns *n, int64_t id, struct cache_directive *ret)
{
	int rc;

	if (id <= 0)
		return refuse(n, "Invalid negative ID.");
	rc = cache_directive_get(n->t, n->a, id, ret);
	if (rc == -ENOENT)
		return exception_throw(n->x, EXC_INVALID_REQUEST,
				       "No directive with ID %lld found.", (long long)id);
	return ns_io(n, rc);
}

/* What @d is to become, @from its pool now and @to the one then; nothing is written. */
static int check_modify(struct ns *n, const struct cache_change *c, struct cache_directive *d,
			struct cache_pool *from, struct cache_pool *to)
{
	struct cache_directive_info i = *c->info;
	const char *path = d->path;
	int rc = find_pool(n, d->pool, from);

	rc = rc ? rc : check_write(n, from);
	if (!rc && i.path)
		rc = check_path(n, i.path, &path);
	d->repl = i.has_repl ? i.repl : d->repl;
	rc = rc ? rc : check_repl(n, d->repl);
	rc = rc ? rc : find_pool(n, i.pool ? i.pool : d->pool, to);
	if (rc)
		return rc;
	d->path = path;
	if (strcmp(from->name, to->name) != 0)
		rc = check_write(n, to);
	rc = rc ? rc : measure(n, c, d);
	if (!rc && strcmp(from->name, to->name) != 0)
		rc = check_limit(n, c, to, d);
	if (!i.has_expiry) {
		i.has_expiry = true;
		i.relative = false;
		i.expiry_ms = d->expiry_ms;
	}
	return rc ? rc : check_expiry(n, &i, to, &d->expiry_ms);
}

int cache_directive_modify(struct ns *n, const struct cache_change *c)
{
	struct cache_directive old, d;
	struct cache_pool from, to;
	int rc;

	if (!c->info->has_id)
		return refuse(n, "Must supply an ID.");
	rc = find_directive(n, c->info->id, &old);
	if (rc)
		return rc;
	d = old;
	rc = check_modify(n, c, &d, &from, &to);
	if (rc)
		return rc;
	d.pool = to.name;
	d.rev++;
	take_back(&from, &old);
	rc = cache_pool_put(n->t, &from);
	if (from.id == to.id)
		to = from;
	give(n, &to, &d);
	rc = rc ? rc : cache_pool_put(n->t, &to);
	rc = rc ? rc : cache_directive_put(n->t, &d);
	changed(n);
	return ns_io(n, rc);
}

int cache_directive_remove(struct ns *n, int64_t id)
{
	struct cache_directive d;
	struct cache_pool p;
	int rc = find_directive(n, id, &d);

	rc = rc ? rc : find_pool(n, d.pool, &p);
	rc = rc ? rc : check_write(n, &p);
	if (rc)
		return rc;
	take_back(&p, &d);
	rc = cache_directive_del(n->t, id);
	rc = rc ? rc : cache_pool_put(n->t, &p);
	changed(n);
	return ns_io(n, rc);
}

int cache_filter_check(struct ns *n, const struct cache_directive_info *filter,
		       const char **ret_path)
{
	int rc = 0;

	*ret_path = NULL;
	if (filter->path)
		rc = check_path(n, filter->path, ret_path);
	if (!rc && filter->has_repl)
		rc = refuse(n, "Filtering by replication is unsupported.");
	return rc;
}
