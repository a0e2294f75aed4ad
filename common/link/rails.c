/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/rails.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define ADDRS (1 + VERBS_RAILS)

struct rail {
	struct rail_node *node;
	struct net_addr addr;
	uint32_t conns, fails;
	uint64_t not_before_ns;
	bool told; /* the node has it now */
};

struct rail_node {
	struct list link; /* rails.nodes */
	uint64_t id;      /* what it said last at the address that it is known by; 0: nothing */
	uint32_t users;   /* rails that are out */
	uint32_t count;
	struct rail rail[ADDRS]; /* the first is the address that it is known by */
};

void rails_init(struct rails *t, bool off)
{
	*t = (struct rails){.off = off};
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->nodes);
}

void rails_fini(struct rails *t)
{
	struct list *l;

	while ((l = list_pop(&t->nodes)))
		free(container_of(l, struct rail_node, link));
	pthread_mutex_destroy(&t->lock);
}

static struct rail_node *node_find(struct rails *t, const struct net_addr *addr)
{
	list_for_each (l, &t->nodes) {
		struct rail_node *n = container_of(l, struct rail_node, link);

		if (net_same(&n->rail[0].addr, addr))
			return n;
	}
	return NULL;
}

/* The one that was asked for the longest ago, and has no connection. */
static void forget_one(struct rails *t)
{
	struct rail_node *over = NULL;

	list_for_each (l, &t->nodes)
		if (!container_of(l, struct rail_node, link)->users)
			over = container_of(l, struct rail_node, link);
	if (!over)
		return;
	list_del(&over->link);
	t->count--;
	free(over);
}

static struct rail_node *node_get(struct rails *t, const struct net_addr *addr)
{
	struct rail_node *n = node_find(t, addr);

	if (n) {
		list_del(&n->link);
	} else {
		if (t->count >= RAILS_NODES)
			forget_one(t);
		n = calloc(1, sizeof(*n));
		if (!n)
			return NULL;
		n->count = 1;
		for (uint32_t i = 0; i < ADDRS; i++)
			n->rail[i].node = n;
		n->rail[0].addr = *addr;
		n->rail[0].told = true;
		t->count++;
	}
	list_add(&t->nodes, &n->link);
	return n;
}

/* Of those that may be tried the one with the fewest connections; else the one that may be soonest.
 */
static bool is_better(const struct rail *a, const struct rail *b, uint64_t now_ns)
{
	const bool a_may = a->not_before_ns <= now_ns, b_may = b->not_before_ns <= now_ns;

	if (a_may != b_may)
		return a_may;
	return a_may ? a->conns < b->conns : a->not_before_ns < b->not_before_ns;
}

struct rail *rails_get(struct rails *t, const struct net_addr *node, uint64_t now_ns)
{
	struct rail *best = NULL;
	struct rail_node *n;

	pthread_mutex_lock(&t->lock);
	n = node_get(t, node);
	for (uint32_t i = 0; n && i < n->count; i++)
		if (n->rail[i].told && (!best || is_better(&n->rail[i], best, now_ns)))
			best = &n->rail[i];
	if (best) {
		best->conns++;
		n->users++;
	}
	pthread_mutex_unlock(&t->lock);
	return best;
}

const struct net_addr *rails_addr(const struct rail *r)
{
	return &r->addr;
}

static struct net_addr addr_of(const uint8_t rail[16], uint16_t port)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct net_addr a = {0};

	if (!memcmp(rail, mapped, sizeof(mapped))) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)&a.sa;

		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, rail + 12, 4);
		a.len = sizeof(*v4);
	} else {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.sa;

		v6->sin6_family = AF_INET6;
		memcpy(&v6->sin6_addr, rail, 16);
		a.len = sizeof(*v6);
	}
	net_set_port(&a, port);
	return a;
}

/* No peer makes us connect to this machine, to nobody or to many. */
static bool is_fit(const struct net_addr *a)
{
	if (a->sa.ss_family == AF_INET) {
		const struct in_addr *v4 = &((const struct sockaddr_in *)&a->sa)->sin_addr;
		const uint8_t *b = (const uint8_t *)v4; /* multicast from 224 on */

		return b[0] && b[0] != IN_LOOPBACKNET && b[0] < 224 &&
		       !(b[0] == 169 && b[1] == 254);
	}
	const struct in6_addr *ip = &((const struct sockaddr_in6 *)&a->sa)->sin6_addr;

	return !IN6_IS_ADDR_UNSPECIFIED(ip) && !IN6_IS_ADDR_LOOPBACK(ip) &&
	       !IN6_IS_ADDR_MULTICAST(ip) && !IN6_IS_ADDR_LINKLOCAL(ip);
}

/* Where @a has its place, or may have one; NULL: there is none. */
static struct rail *place_of(struct rail_node *n, const struct net_addr *a)
{
	struct rail *spare = n->count < ADDRS ? &n->rail[n->count] : NULL;

	for (uint32_t i = 0; i < n->count; i++) {
		struct rail *r = &n->rail[i];

		if (net_same(&r->addr, a))
			return r;
		if (!r->told && !r->conns)
			spare = r;
	}
	return spare;
}

/* Those that it has now. One that it does not tell any more keeps its place while it has a
 * connection. */
static void learn(struct rail_node *n, const struct verbs_hello *h)
{
	for (uint32_t i = 1; i < n->count; i++)
		n->rail[i].told = false;
	for (uint8_t i = 0; i < h->rails; i++) {
		const struct net_addr a = addr_of(h->rail[i], net_port(&n->rail[0].addr));
		struct rail *r = is_fit(&a) ? place_of(n, &a) : NULL;

		if (!r)
			continue;
		if (r == &n->rail[n->count])
			n->count++;
		if (!net_same(&r->addr, &a))
			*r = (struct rail){.node = n, .addr = a};
		r->told = true;
	}
}

/* What breaks several connections at a time is one failure. */
static void avoid(struct rail *r, uint64_t now_ns)
{
	if (now_ns < r->not_before_ns)
		return;
	r->not_before_ns = now_ns + (RAILS_AVOID_NS << r->fails);
	if (r->fails < RAILS_AVOID_EXP)
		r->fails++;
}

static bool is_the_same(const struct rail_node *n, const struct verbs_hello *h)
{
	return h->node && h->node == n->id;
}

static void forgive(struct rail *r)
{
	r->fails = 0;
	r->not_before_ns = 0;
}

/* They may be those of a process that has ended. The first one tells what is so now. */
static void forget_others(struct rail_node *n)
{
	for (uint32_t i = 1; i < n->count; i++)
		n->rail[i].told = false;
	forgive(&n->rail[0]);
}

bool rails_up(struct rails *t, struct rail *r, const struct verbs_hello *h)
{
	bool good = true;

	if (!r)
		return true;
	pthread_mutex_lock(&t->lock);
	if (r == &r->node->rail[0]) {
		r->node->id = h->node;
		if (!t->off)
			learn(r->node, h);
	} else {
		good = is_the_same(r->node, h);
	}
	if (good)
		forgive(r);
	else
		forget_others(r->node);
	pthread_mutex_unlock(&t->lock);
	return good;
}

void rails_failed(struct rails *t, struct rail *r, uint64_t now_ns)
{
	if (!r)
		return;
	pthread_mutex_lock(&t->lock);
	avoid(r, now_ns);
	pthread_mutex_unlock(&t->lock);
}

void rails_put(struct rails *t, struct rail *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&t->lock);
	r->conns--;
	r->node->users--;
	pthread_mutex_unlock(&t->lock);
}

struct rails_state rails_state(struct rails *t, const struct net_addr *node, uint64_t now_ns)
{
	struct rails_state s = {0};
	const struct rail_node *n;

	pthread_mutex_lock(&t->lock);
	n = node_find(t, node);
	for (uint32_t i = 0; n && i < n->count; i++) {
		const struct rail *r = &n->rail[i];
		const bool good = r->told && r->not_before_ns <= now_ns;

		s.good += good;
		s.unused += good && !r->conns;
	}
	pthread_mutex_unlock(&t->lock);
	return s;
}
