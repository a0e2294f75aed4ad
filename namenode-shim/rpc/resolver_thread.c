/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/rpc/resolver_thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/rpc/server.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#define PEERS 1024 /* counters of calls by address */

/* A user to look up. */
struct name {
	struct list link;
	struct users *users; /* borrowed */
	char *user;          /* owned */
};

struct resolver {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	/* of req.link: calls of data nodes and of others whose groups are known or not needed; the
	 * rest
	 */
	struct list first, known, queue;
	uint32_t known_count;
	uint32_t queued, of_peer[PEERS]; /* how many are in queue */
	struct list names;               /* of name.link; after the requests */
	bool stop;
};

static void prepare(struct req *q)
{
	if (!q->caller && req_needs_groups(q))
		q->caller = users_ask(q->nn->users, req_user(q));
	if (q->method->prepare)
		q->method->prepare(q);
}

static void go_on(struct req *q)
{
	if (q->method->kind == REQ_READ)
		q->nn->read_later(q);
	else
		nn_submit(q->nn, q);
}

static void name_drop(struct name *n, bool load)
{
	if (load)
		users_load(n->users, n->user);
	free(n->user);
	free(n);
}

static uint32_t *count_of(struct resolver *l, const struct req *q)
{
	uint32_t h = 0;

	for (const char *p = q->call ? q->call->peer_ip : ""; p && *p; p++)
		h = h * 31 + (unsigned char)*p;
	return &l->of_peer[h % PEERS];
}

/* The next request; NULL: none waits. */
static struct req *next(struct resolver *l)
{
	struct list *e = list_pop(&l->first);
	struct req *q;

	if (e)
		return container_of(e, struct req, link);
	e = list_pop(&l->known);
	if (e) {
		l->known_count--;
		return container_of(e, struct req, link);
	}
	e = list_pop(&l->queue);
	if (!e)
		return NULL;
	q = container_of(e, struct req, link);
	l->queued--;
	--*count_of(l, q);
	return q;
}

static bool is_idle(const struct resolver *l)
{
	return list_empty(&l->first) && list_empty(&l->known) && list_empty(&l->queue) &&
	       list_empty(&l->names);
}

static void *resolver_main(void *arg)
{
	struct resolver *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		struct list *name;
		struct req *q;
		bool stop;

		while (is_idle(l) && !l->stop)
			pthread_cond_wait(&l->cond, &l->lock);
		q = next(l);
		name = q ? NULL : list_pop(&l->names);
		stop = l->stop;
		pthread_mutex_unlock(&l->lock);
		if (!q && !name)
			return NULL;
		if (name)
			name_drop(container_of(name, struct name, link), !stop);
		if (q) {
			if (!stop)
				prepare(q);
			go_on(q);
		}
		pthread_mutex_lock(&l->lock);
	}
}

int resolver_new(struct resolver **ret)
{
	struct resolver *l = xcalloc(1, sizeof(*l));
	int rc;

	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->cond, NULL);
	list_init(&l->first);
	list_init(&l->known);
	list_init(&l->queue);
	list_init(&l->names);
	rc = ret_code(pthread_create(&l->thread, NULL, resolver_main, l));
	if (rc < 0)
		free(l);
	else
		*ret = l;
	return rc;
}

/* Where @q waits; NULL: there are too many. */
static struct list *line_of(struct resolver *l, struct req *q)
{
	uint32_t *of_peer = count_of(l, q);

	if (q->caller || !req_needs_groups(q)) {
		if (q->datanode)
			return &l->first;
		if (l->known_count == RESOLVER_MAX)
			return NULL;
		l->known_count++;
		return &l->known;
	}
	if (l->queued == RESOLVER_MAX || *of_peer == RESOLVER_PEER_MAX)
		return NULL;
	l->queued++;
	++*of_peer;
	return &l->queue;
}

bool resolver_submit(struct resolver *l, struct req *q)
{
	struct list *line;

	pthread_mutex_lock(&l->lock);
	line = line_of(l, q);
	if (line) {
		list_add_tail(line, &q->link);
		pthread_cond_signal(&l->cond);
	}
	pthread_mutex_unlock(&l->lock);
	return line != NULL;
}

void resolver_load_user(struct resolver *l, struct users *u, const char *user)
{
	struct name *n = xcalloc(1, sizeof(*n));

	n->users = u;
	n->user = xstrdup(user);
	pthread_mutex_lock(&l->lock);
	list_add_tail(&l->names, &n->link);
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void resolver_free(struct resolver *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->cond);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
