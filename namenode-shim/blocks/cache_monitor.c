/* SPDX-License-Identifier: Apache-2.0 */
/* cache_monitor - what nodes have cached, what they report, and what they are told. What is wanted
 * is in cache_scan.c. */
#include "namenode-shim/blocks/cache_monitor.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/cache_internal.h"
#include "namenode-shim/nn.h"

/* ---- places ---- */

void cache_monitor_init(struct cache_monitor *c)
{
	list_init(&c->all);
	c->asked = true; /* of the namespace that is there */
}

void cache_monitor_fini(struct cache_monitor *c)
{
	while (!list_empty(&c->all))
		cache_block_free(c, container_of(c->all.next, struct cache_block, all));
	cache_stats_clear(&c->stats);
	cache_scan_free(c->scan);
	c->scan = NULL;
}

void cache_monitor_ask(struct cache_monitor *c)
{
	c->asked = true;
}

bool cache_monitor_is_behind(const struct cache_monitor *c)
{
	return c->asked || c->scan;
}

void cache_monitor_await(struct cache_monitor *c)
{
	c->awaited = c->asked;
}

struct cache_block *cache_block_find(const struct cache_monitor *c, int64_t id)
{
	struct cache_block *e;

	HASH_FIND(hh, c->map, &id, sizeof(id), e);
	return e;
}

struct cache_block *cache_block_get(struct cache_monitor *c, int64_t id)
{
	struct cache_block *e = cache_block_find(c, id);

	if (e)
		return e;
	e = xcalloc(1, sizeof(*e));
	e->id = id;
	list_init(&e->places);
	HASH_ADD(hh, c->map, id, sizeof(e->id), e);
	list_add_tail(&c->all, &e->all);
	return e;
}

void cache_block_free(struct cache_monitor *c, struct cache_block *e)
{
	while (!list_empty(&e->places))
		cache_place_free(container_of(e->places.next, struct cache_place, in_block));
	HASH_DEL(c->map, e);
	list_del(&e->all);
	free(e);
}

struct cache_place *cache_place_find(const struct cache_block *e, const struct dn *dn)
{
	list_for_each (l, &e->places) {
		struct cache_place *p = container_of(l, struct cache_place, in_block);

		if (p->dn == dn)
			return p;
	}
	return NULL;
}

/* Out of the lists and sums of its node. */
static void leave(struct cache_place *p)
{
	p->dn->cache_ordered -= p->len;
	p->len = 0;
	list_del(&p->in_node);
}

void cache_place_set(struct cache_place *p, enum cache_state state, uint64_t len)
{
	struct dn *dn = p->dn;

	leave(p);
	p->state = state;
	p->told = 0;
	p->at_ns = 0;
	switch (state) {
	case CACHE_ORDERED:
		p->len = len;
		dn->cache_ordered += len;
		list_add(&dn->cache_orders, &p->in_node); /* before those that were told */
		break;
	case CACHE_HELD:
		list_add_tail(&dn->cache_held, &p->in_node);
		break;
	case CACHE_LEAVING:
		list_add(&dn->cache_leaving, &p->in_node);
		break;
	case CACHE_SHUNNED:
		p->at_ns = clock_mono_ns();
		list_add_tail(&dn->cache_shunned, &p->in_node);
		break;
	}
}

struct cache_place *cache_place_add(struct cache_block *e, struct dn *dn, const struct blk *b)
{
	struct cache_place *p;

	if (dn->cache_places >= CACHE_PLACES_MAX)
		return NULL;
	dn->cache_places++;
	p = xcalloc(1, sizeof(*p));
	p->block = e;
	p->dn = dn;
	p->gs = b->b.gs;
	p->state = CACHE_SHUNNED;
	list_init(&p->in_node);
	list_add_tail(&e->places, &p->in_block);
	return p;
}

void cache_place_free(struct cache_place *p)
{
	leave(p);
	p->dn->cache_places--;
	list_del(&p->in_block);
	free(p);
}

static void forget_list(struct list *l)
{
	while (!list_empty(l))
		cache_place_free(container_of(l->next, struct cache_place, in_node));
}

void cache_monitor_forget(struct cache_monitor *c, struct dn *dn)
{
	forget_list(&dn->cache_orders);
	forget_list(&dn->cache_held);
	forget_list(&dn->cache_leaving);
	forget_list(&dn->cache_shunned);
	dn->cache_capacity = dn->cache_used = dn->cache_news_ns = 0;
	cache_monitor_ask(c);
}

/* ---- replicas ---- */

const struct replica *cache_replica(const struct blk *b, const struct dn *dn)
{
	if (b->state != BLK_COMPLETE || blk_ec(b))
		return NULL;
	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (r->st->dn == dn)
			return r->state == REPLICA_FINALIZED && !r->corrupt && !r->excess &&
					       r->gs == b->b.gs && storage_is_there(r->st)
				       ? r
				       : NULL;
	}
	return NULL;
}

bool cache_place_is_good(const struct cache_place *p, const struct blk *b)
{
	return p->gs == b->b.gs && cache_replica(b, p->dn);
}

bool cache_monitor_has(const struct cache_monitor *c, const struct blk *b, const struct dn *dn)
{
	const struct cache_block *e = c->map ? cache_block_find(c, b->b.id) : NULL;
	const struct cache_place *p = e ? cache_place_find(e, dn) : NULL;

	return p && p->state == CACHE_HELD && cache_place_is_good(p, b);
}

uint32_t cache_monitor_count(const struct cache_monitor *c, const struct blk *b)
{
	const struct cache_block *e = c->map ? cache_block_find(c, b->b.id) : NULL;
	uint32_t n = 0;

	if (!e)
		return 0;
	list_for_each (l, &e->places) {
		const struct cache_place *p = container_of(l, struct cache_place, in_block);

		n += p->state == CACHE_HELD && cache_place_is_good(p, b);
	}
	return n;
}

/* ---- reports ---- */

uint32_t cache_report_begin(struct dn *dn)
{
	dn->cache_listed = 0;
	return ++dn->cache_report;
}

/* Does it list more bytes than it has room for? What is beyond that is not believed. */
static bool is_too_much(struct dn *dn, const struct blk *b)
{
	if (!dn->cache_capacity)
		return true; /* it has no room, or has not said yet: a heartbeat says it */
	dn->cache_listed += b->b.len;
	if (dn->cache_listed <= dn->cache_capacity)
		return false;
	if (!dn->cache_lied)
		log_warn(
			"op=cache_report datanode=%s capacity=%llu: it lists more bytes as cached than it has "
			"room for; the rest of its report does not count",
			dn->uuid, (unsigned long long)dn->cache_capacity);
	return dn->cache_lied = true;
}

void cache_report_block(struct nn *nn, struct dn *dn, int64_t id)
{
	const struct blk *b = blocks_find(&nn->blocks, id);
	struct cache_block *e;
	struct cache_place *p;

	/* what is deleted, written on, or not there: the node lets it go by itself */
	if (!b || !cache_replica(b, dn))
		return;
	e = cache_block_find(&nn->cache, id);
	p = e ? cache_place_find(e, dn) : NULL;
	if (p && p->report == dn->cache_report && p->state != CACHE_ORDERED)
		return; /* named twice */
	if (is_too_much(dn, b))
		return;
	if (!p) {
		p = cache_place_add(cache_block_get(&nn->cache, id), dn, b);
		if (!p)
			return;
	}
	p->report = dn->cache_report;
	if (p->state == CACHE_ORDERED)
		dn->cache_news_ns = clock_mono_ns();
	if (p->state == CACHE_LEAVING && p->gs == b->b.gs)
		return;
	if (p->state != CACHE_HELD || p->gs != b->b.gs)
		cache_monitor_ask(&nn->cache);
	p->gs = b->b.gs;
	cache_place_set(p, CACHE_HELD, 0); /* at the end of its list */
}

void cache_report_end(struct nn *nn, struct dn *dn)
{
	dn->cache_reported = dn->cache_report;
	while (!list_empty(&dn->cache_held)) {
		struct cache_place *p =
			container_of(dn->cache_held.next, struct cache_place, in_node);

		if (p->report == dn->cache_report)
			break;
		cache_place_free(p);
		cache_monitor_ask(&nn->cache);
	}
}

/* ---- orders ---- */

/* It caches one block after the other: what it was told besides waits for its turn there. */
static bool is_busy(const struct dn *dn, uint64_t now, uint64_t again)
{
	return dn->cache_news_ns && now - dn->cache_news_ns < again;
}

/* It was told to let it go, and did not list it since. */
static bool has_left(const struct cache_place *p)
{
	return p->state == CACHE_LEAVING && (int32_t)(p->dn->cache_reported - p->report) > 0;
}

uint32_t cache_orders(struct nn *nn, struct dn *dn, bool cache, uint64_t *ret)
{
	struct list *line = cache ? &dn->cache_orders : &dn->cache_leaving;
	const uint64_t now = clock_mono_ns(), again = nn->set.cache_retry_ms * NS_PER_MS;
	const bool busy = cache && is_busy(dn, now, again);
	uint32_t n = 0;

	for (uint32_t looked = 0; looked < CACHE_ORDERS_MAX && !list_empty(line); looked++) {
		struct cache_place *p = container_of(line->next, struct cache_place, in_node);
		const struct blk *b = blocks_find(&nn->blocks, p->block->id);

		if (p->told && now - p->at_ns < again)
			break; /* those behind it were told later */
		if (!b || !cache_place_is_good(p, b) || has_left(p)) {
			cache_place_free(p);
			continue;
		}
		if (cache && p->told >= CACHE_TRIES && !busy) {
			cache_place_set(p, CACHE_SHUNNED, 0);
			cache_monitor_ask(&nn->cache);
			continue;
		}
		ret[n++] = (uint64_t)p->block->id;
		if (!p->told || (!busy && p->told < CACHE_TRIES))
			p->told++;
		p->at_ns = now;
		list_del(&p->in_node);
		list_add_tail(line, &p->in_node);
	}
	return n;
}
