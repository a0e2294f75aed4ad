/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/cache_stats.h"

#include <stdlib.h>

#include "namenode-shim/base/arena.h"

void cache_add(uint64_t *to, uint64_t n)
{
	*to = n > INT64_MAX || *to > INT64_MAX - n ? INT64_MAX : *to + n;
}

void cache_stats_clear(struct cache_stats *s)
{
	while (s->directives) {
		struct cache_directive_stat *d = s->directives;

		HASH_DEL(s->directives, d);
		free(d);
	}
	while (s->pools) {
		struct cache_pool_stat *p = s->pools;

		HASH_DEL(s->pools, p);
		free(p);
	}
}

static struct cache_directive_stat *find_directive(const struct cache_stats *s, int64_t id)
{
	struct cache_directive_stat *d;

	HASH_FIND(hh, s->directives, &id, sizeof(id), d);
	return d;
}

static struct cache_pool_stat *find_pool(const struct cache_stats *s, uint64_t id)
{
	struct cache_pool_stat *p;

	HASH_FIND(hh, s->pools, &id, sizeof(id), p);
	return p;
}

struct cache_directive_stat *cache_stats_directive(struct cache_stats *s, int64_t id)
{
	struct cache_directive_stat *d = find_directive(s, id);

	if (d)
		return d;
	d = xcalloc(1, sizeof(*d));
	d->id = id;
	HASH_ADD(hh, s->directives, id, sizeof(d->id), d);
	return d;
}

struct cache_pool_stat *cache_stats_pool(struct cache_stats *s, uint64_t id)
{
	struct cache_pool_stat *p = find_pool(s, id);

	if (p)
		return p;
	p = xcalloc(1, sizeof(*p));
	p->id = id;
	HASH_ADD(hh, s->pools, id, sizeof(p->id), p);
	return p;
}

struct cache_count cache_count_directive(const struct cache_stats *s,
					 const struct cache_directive *d)
{
	const struct cache_directive_stat *at = find_directive(s, d->id);

	return at && at->rev == d->rev ? at->n : (struct cache_count){.need = d->need};
}

/* What was counted, and what came since; what went since may be more than was counted. */
static uint64_t since(uint64_t counted, uint64_t now, uint64_t then)
{
	const uint64_t more = now - then, less = then - now;
	uint64_t all = counted;

	if (more > INT64_MAX)
		return counted > less ? counted - less : 0;
	cache_add(&all, more);
	return all;
}

struct cache_count cache_count_pool(const struct cache_stats *s, const struct cache_pool *p)
{
	static const struct cache_pool_stat none;
	const struct cache_pool_stat *at = find_pool(s, p->id);
	struct cache_count n;

	at = at ? at : &none;
	n = at->n;
	n.need.bytes = since(n.need.bytes, p->given.bytes - p->taken.bytes,
			     at->given.bytes - at->taken.bytes);
	n.need.files = since(n.need.files, p->given.files - p->taken.files,
			     at->given.files - at->taken.files);
	return n;
}

uint64_t cache_bytes_at_most(const struct cache_stats *s, const struct cache_pool *p)
{
	const struct cache_pool_stat *at = find_pool(s, p->id);
	uint64_t all;

	if (!at)
		return cache_count_pool(s, p)
			.need.bytes; /* of rows only: what is taken was given */
	all = at->n.need.bytes;
	cache_add(&all, p->given.bytes - at->given.bytes);
	return all;
}
