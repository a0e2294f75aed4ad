/* SPDX-License-Identifier: Apache-2.0 */
/* cache_scan - goes over all cache directives and their blocks, in slices, counts,
 * and gives orders (cache_monitor.h). First the directives: path, files, blocks; then all blocks
 * that are wanted or cached somewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/cache_internal.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/ns.h"
#include "namenode-shim/nn.h"

struct cache_scan {
	uint32_t mark;
	uint64_t began_ns, worked_ns;
	int64_t now_ms, first_expiry_ms; /* of those that have not expired; INT64_MAX: none */
	int64_t last, end;        /* directives up to last are done; those from end on wait */
	struct cache_stats stats; /* so far */
	bool counted;             /* all directives are done */
	uint32_t blocks_left;     /* then: to look at */

	/* the directive under way */
	struct arena of_directive;
	bool has_directive;
	struct cache_directive d;
	struct cache_pool pool;
	struct cache_directive_stat *stat; /* borrowed: in stats */
	struct cache_pool_stat *pool_stat;
	uint64_t dir; /* its directory; 0: none, or all of it was listed */
	char after[INODE_NAME_MAX];
	size_t after_len;
	uint64_t ids[CACHE_ENTRIES]; /* files to look at */
	uint32_t nids, at_id;

	/* the file under way */
	struct arena of_file;
	struct inode *file; /* NULL: none */
	uint32_t block;     /* the next one of it */
	uint64_t cached, need;
};

void cache_scan_free(struct cache_scan *s)
{
	if (!s)
		return;
	cache_stats_clear(&s->stats);
	arena_free(&s->of_directive);
	arena_free(&s->of_file);
	free(s);
}

/* ---- directives ---- */

/* Every pool as it is when the scan begins: what is given later comes on top. */
static int begin_pools(struct nn *nn, struct cache_scan *s)
{
	char name[CACHE_POOL_NAME_MAX + 1] = "";
	struct arena a = {0};
	struct cache_pool p;
	int rc;

	while (!(rc = cache_pool_next(&nn->look, &a, name, &p))) {
		struct cache_pool_stat *at = cache_stats_pool(&s->stats, p.id);

		at->given = p.given;
		at->taken = p.taken;
		snprintf(name, sizeof(name), "%s", p.name);
		arena_free(&a);
	}
	arena_free(&a);
	return rc == -ENOENT ? 0 : rc;
}

static uint64_t rested_ns(const struct cache_monitor *c)
{
	return c->ended_ns + CACHE_PAUSE_NS + CACHE_PAUSE_TIMES * c->took_ns;
}

static int begin(struct nn *nn)
{
	struct cache_monitor *c = &nn->cache;
	struct cache_scan *s = xcalloc(1, sizeof(*s));
	uint64_t pool;
	int rc = cache_ids(&nn->look, &s->end, &pool);

	rc = rc ? rc : begin_pools(nn, s);
	if (rc < 0) {
		cache_scan_free(s);
		return rc;
	}
	s->mark = ++c->mark;
	s->began_ns = clock_mono_ns();
	s->now_ms = (int64_t)clock_wall_ms();
	s->first_expiry_ms = INT64_MAX;
	c->asked = c->awaited = false;
	c->hurried = s->began_ns < rested_ns(c);
	c->scan = s;
	return 0;
}

static int add_id(void *arg, const char *name, size_t len, uint64_t id)
{
	struct cache_scan *s = arg;

	s->ids[s->nids++] = id;
	s->after_len = len < sizeof(s->after) ? len : sizeof(s->after);
	memcpy(s->after, name, s->after_len);
	return s->nids == CACHE_ENTRIES;
}

static int list_some(struct nn *nn, struct cache_scan *s)
{
	int rc;

	s->nids = s->at_id = 0;
	rc = dirent_each(&nn->look, s->dir, s->after, s->after_len, add_id, s);
	if (rc <= 0)
		s->dir = 0;
	return rc < 0 ? rc : 0;
}

/* The file or directory of the directive; what is not there, or behind a link, is nothing. */
static void resolve(struct nn *nn, struct cache_scan *s)
{
	struct exception_info x = {.a = &s->of_directive};
	struct ns n = {.t = &nn->look,
		       .a = &s->of_directive,
		       .x = &x,
		       .users = nn->users,
		       .user = "",
		       .host = "",
		       .super = true,
		       .limits = &nn->set.limits};
	struct ns_path w;

	if (ns_resolve_as(&n, s->d.path, WALK_TAIL, &w) || !w.last)
		return;
	if (w.last->type == INODE_FILE)
		s->ids[s->nids++] = w.last->id;
	else if (w.last->type == INODE_DIR)
		s->dir = w.last->id;
}

/* The next directive, or all are done. */
static int next_directive(struct nn *nn, struct cache_scan *s)
{
	int rc;

	arena_free(&s->of_directive);
	s->nids = s->at_id = 0;
	s->after_len = 0;
	s->dir = 0;
	rc = cache_directive_next(&nn->look, &s->of_directive, s->last, &s->d);
	s->has_directive = !rc && s->d.id < s->end;
	if (rc == -ENOENT || (!rc && !s->has_directive)) {
		s->counted = true;
		s->blocks_left = HASH_COUNT(nn->cache.map);
		return 0;
	}
	rc = rc ? rc : cache_pool_get(&nn->look, &s->of_directive, s->d.pool, &s->pool);
	if (rc < 0)
		return rc;
	s->last = s->d.id;
	s->stat = cache_stats_directive(&s->stats, s->d.id);
	s->stat->rev = s->d.rev;
	s->pool_stat = cache_stats_pool(&s->stats, s->pool.id);
	if (cache_is_over(&s->d, s->now_ms))
		return 0; /* nothing is wanted */
	if (s->d.expiry_ms && s->d.expiry_ms < s->first_expiry_ms)
		s->first_expiry_ms = s->d.expiry_ms;
	resolve(nn, s);
	return 0;
}

/* ---- files ---- */

static void end_file(struct cache_scan *s)
{
	cache_add(&s->stat->n.cached.bytes, s->cached);
	cache_add(&s->pool_stat->n.cached.bytes, s->cached);
	if (s->cached == s->need) {
		s->stat->n.cached.files++;
		s->pool_stat->n.cached.files++;
	}
	s->file = NULL;
	arena_free(&s->of_file);
}

/* Bytes in blocks that nobody writes: the last one of an open file may be written, unless it was
 * full when somebody began to append. */
static uint64_t whole_bytes(const struct inode *f)
{
	const struct inode_block *last = f->nblocks ? &f->blocks[f->nblocks - 1] : NULL;
	const uint64_t len = inode_len(f);

	return last && inode_is_open(f) && !last->committed ? len - last->b.len : len;
}

static int begin_file(struct nn *nn, struct cache_scan *s, uint64_t id)
{
	struct inode *f;
	int rc = inode_get(&nn->look, id, &s->of_file, &f);

	if (rc || f->type != INODE_FILE) {
		arena_free(&s->of_file);
		return rc == -ENOENT ? 0 : rc;
	}
	s->need = cache_times(whole_bytes(f), s->d.repl);
	s->cached = 0;
	s->block = 0;
	s->stat->n.need.files++;
	s->pool_stat->n.need.files++;
	cache_add(&s->stat->n.need.bytes, s->need);
	cache_add(&s->pool_stat->n.need.bytes, s->need);
	s->file = f;
	/* beyond the limit of the pool nothing is cached: neither this file nor those behind it */
	if (s->pool_stat->n.need.bytes > (uint64_t)s->pool.limit) {
		s->file = NULL;
		arena_free(&s->of_file);
	}
	return 0;
}

static void want(struct nn *nn, struct cache_scan *s, const struct blk *b)
{
	const uint32_t count = cache_monitor_count(&nn->cache, b);
	struct cache_block *e;

	cache_add(&s->cached,
		  cache_times(b->b.len, count < (uint32_t)s->d.repl ? (int)count : s->d.repl));
	e = cache_block_get(&nn->cache, b->b.id);
	if (e->mark != s->mark || e->repl < s->d.repl)
		e->repl = s->d.repl;
	e->mark = s->mark;
}

/* A slice of its blocks. A striped file is counted, and never cached. */
static void file_some(struct nn *nn, struct cache_scan *s)
{
	nn_lock(nn);
	for (uint32_t n = 0; s->block < s->file->nblocks && !s->file->ec; n++) {
		const struct blk *b;

		if (nn_slice_is_done(nn, n))
			break;
		b = blocks_find(&nn->blocks, s->file->blocks[s->block++].b.id);
		if (b && b->state == BLK_COMPLETE && b->inode == s->file->id)
			want(nn, s, b);
	}
	nn_unlock(nn);
	if (s->block == s->file->nblocks || s->file->ec)
		end_file(s);
}

/* ---- blocks ---- */

static void count_places(const struct cache_block *e, uint32_t *ret_held, uint32_t *ret_ordered)
{
	*ret_held = *ret_ordered = 0;
	list_for_each (l, &e->places) {
		const enum cache_state s = container_of(l, struct cache_place, in_block)->state;

		*ret_held += s == CACHE_HELD;
		*ret_ordered += s == CACHE_ORDERED;
	}
}

/* Places without a good replica, and those that are over, go. */
static void drop_places(struct cache_block *e, const struct blk *b, uint64_t now)
{
	list_for_each (l, &e->places) {
		struct cache_place *p = container_of(l, struct cache_place, in_block);
		const bool left = p->state == CACHE_LEAVING &&
				  (int32_t)(p->dn->cache_reported - p->report) > 0;
		const bool forgiven = p->state == CACHE_SHUNNED && now - p->at_ns > CACHE_SHUN_NS;

		if (!b || !cache_place_is_good(p, b) || left || forgiven)
			cache_place_free(p);
	}
}

static bool is_free_for(const struct dn *dn, const struct blk *b)
{
	const uint64_t taken = dn->cache_used + dn->cache_ordered;

	return dn->alive && !dn->stale && dn->admin == DN_NORMAL && taken < dn->cache_capacity &&
	       dn->cache_capacity - taken >= b->b.len;
}

/* The part of its cache that is free. */
static double free_share(const struct dn *dn)
{
	return 1 - (double)(dn->cache_used + dn->cache_ordered) / (double)dn->cache_capacity;
}

static void order_some(struct cache_block *e, const struct blk *b, uint32_t n)
{
	while (n--) {
		struct cache_place *p;
		struct dn *best = NULL;

		for (uint16_t i = 0; i < b->nreps; i++) {
			struct dn *dn = b->rep[i].st->dn;

			if (cache_replica(b, dn) && is_free_for(dn, b) &&
			    !cache_place_find(e, dn) &&
			    (!best || free_share(dn) > free_share(best)))
				best = dn;
		}
		p = best ? cache_place_add(e, best, b) : NULL;
		if (!p)
			return;
		cache_place_set(p, CACHE_ORDERED, b->b.len);
	}
}

/* @n of those that hold it let it go: those first that may be away soon. */
static void release_some(struct cache_block *e, uint32_t n)
{
	for (int any = 0; any < 2; any++)
		list_for_each (l, &e->places) {
			struct cache_place *p = container_of(l, struct cache_place, in_block);

			if (!n || p->state != CACHE_HELD ||
			    (!any && !p->dn->stale && p->dn->admin == DN_NORMAL))
				continue;
			cache_place_set(p, CACHE_LEAVING, 0);
			n--;
		}
}

static void drop_state(struct cache_block *e, enum cache_state state)
{
	list_for_each (l, &e->places) {
		struct cache_place *p = container_of(l, struct cache_place, in_block);

		if (p->state == state)
			cache_place_free(p);
	}
}

/* Nodes that were to let it go, and were not told yet, keep it. */
static void keep_some(struct cache_block *e, uint32_t n)
{
	list_for_each (l, &e->places) {
		struct cache_place *p = container_of(l, struct cache_place, in_block);

		if (!n || p->state != CACHE_LEAVING || p->told)
			continue;
		cache_place_set(p, CACHE_HELD, 0);
		n--;
	}
}

static void judge(struct nn *nn, struct cache_scan *s, struct cache_block *e, uint64_t now)
{
	const struct blk *b = blocks_find(&nn->blocks, e->id);
	uint32_t held, ordered, wanted;

	if (b && (b->state != BLK_COMPLETE || blk_ec(b)))
		b = NULL;
	wanted = b && e->mark == s->mark ? (uint32_t)e->repl : 0;
	drop_places(e, b, now);
	count_places(e, &held, &ordered);
	if (held < wanted)
		keep_some(e, wanted - held);
	count_places(e, &held, &ordered);
	if (held >= wanted)
		drop_state(e, CACHE_ORDERED);
	if (held > wanted)
		release_some(e, held - wanted);
	else if (b && held + ordered < wanted)
		order_some(e, b, wanted - held - ordered);
	if (!wanted)
		drop_state(e, CACHE_SHUNNED);
	if (!wanted && list_empty(&e->places))
		cache_block_free(&nn->cache, e);
}

static void end(struct nn *nn)
{
	struct cache_monitor *c = &nn->cache;
	struct cache_scan *s = c->scan;
	const uint64_t now = clock_mono_ns();
	const struct cache_stats old = c->stats;
	const int64_t ms = (int64_t)nn->set.cache_scan_ms;
	const int64_t wait = s->first_expiry_ms - (int64_t)clock_wall_ms();

	c->stats = s->stats;
	s->stats = old;
	c->ended_ns = now;
	c->took_ns = s->worked_ns + (c->hurried ? c->took_ns : 0);
	c->next_ns = now + (uint64_t)(wait < 0 ? 0 : wait < ms ? wait + 1 : ms) * NS_PER_MS;
	c->scan = NULL;
	cache_scan_free(s);
}

static void blocks_some(struct nn *nn, struct cache_scan *s)
{
	struct cache_monitor *c = &nn->cache;
	uint64_t now;

	nn_lock(nn);
	now = clock_mono_ns();
	for (uint32_t n = 0; s->blocks_left && !nn_slice_is_done(nn, n); n++) {
		struct cache_block *e;

		s->blocks_left--; /* only judge() frees blocks: there are as many */
		e = container_of(c->all.next, struct cache_block, all);
		list_del(&e->all); /* what comes behind all is looked at by the next scan */
		list_add_tail(&c->all, &e->all);
		judge(nn, s, e, now);
	}
	s->worked_ns += clock_mono_ns() - now;
	if (!s->blocks_left)
		end(nn);
	nn_unlock(nn);
}

/* ---- slices ---- */

uint64_t cache_monitor_due_ns(const struct nn *nn)
{
	const struct cache_monitor *c = &nn->cache;
	const bool hurry = c->awaited && !c->hurried;
	const uint64_t rested = hurry ? c->ended_ns + CACHE_PAUSE_NS : rested_ns(c);

	if (nn->safe.on || !nn->set.caching)
		return UINT64_MAX;
	if (c->scan)
		return 0;
	return c->asked || c->next_ns < rested ? rested : c->next_ns;
}

/* One step of the first part. */
static int count_some(struct nn *nn, struct cache_scan *s)
{
	if (s->file) {
		file_some(nn, s);
		return 0;
	}
	if (s->at_id < s->nids)
		return begin_file(nn, s, s->ids[s->at_id++]);
	return s->dir ? list_some(nn, s) : next_directive(nn, s);
}

/* What cannot be read ends the scan, and is tried again later. */
static void give_up(struct nn *nn, int rc)
{
	struct cache_monitor *c = &nn->cache;

	monitor_log_unread(nn, "cache_scan", c->scan ? (uint64_t)c->scan->last : 0, rc);
	cache_scan_free(c->scan);
	c->scan = NULL;
	c->asked = true;
	c->ended_ns = clock_mono_ns();
	c->next_ns = c->ended_ns + nn->set.cache_scan_ms * NS_PER_MS;
	c->took_ns = NS_PER_S;
	c->hurried = true; /* whoever waits does not make it try at once */
}

void cache_monitor_slice(struct nn *nn)
{
	struct cache_monitor *c = &nn->cache;
	const uint64_t began = clock_mono_ns();
	int rc = txn_read_begin(&nn->look);

	if (rc < 0)
		return give_up(nn, rc);
	if (!c->scan)
		rc = begin(nn);
	while (!rc && !c->scan->counted && clock_mono_ns() - began < NN_SLICE_NS)
		rc = count_some(nn, c->scan);
	txn_read_end(&nn->look);
	if (rc < 0)
		return give_up(nn, rc);
	c->scan->worked_ns += clock_mono_ns() - began;
	if (c->scan->counted)
		blocks_some(nn, c->scan);
}
