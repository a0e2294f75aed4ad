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

struct worker {
	struct resolver *of;
	bool strangers; /* serves those, and nobody else */
	pthread_cond_t cond;
	pthread_t thread;
};

struct resolver {
	pthread_mutex_t lock;
	struct worker known_worker, stranger_worker;
	/* of req.link: calls of data nodes and of others whose groups are known or not needed; the
	 * rest
	 */
	struct list first, known, strangers;
	uint32_t known_count;
	uint32_t stranger_count;
	uint32_t of_peer[2][PEERS]; /* how many are in strangers, and in known */
	bool name_was_last;         /* names and known take turns */
	/* of name.link: known users to be looked up again; after `first` */
	struct list names;
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

static uint32_t *count_of(struct resolver *l, const struct req *q, bool known)
{
	uint32_t h = 0;

	for (const char *p = q->call ? q->call->peer_ip : ""; p && *p; p++)
		h = h * 31 + (unsigned char)*p;
	return &l->of_peer[known][h % PEERS];
}

/* From a list with bounds. */
static struct list *pop_counted(struct resolver *l, struct list *from, uint32_t *count)
{
	struct list *e = list_pop(from);

	if (e) {
		--*count;
		--*count_of(l, container_of(e, struct req, link), from == &l->known);
	}
	return e;
}

/* A request or a name; NULL: nothing waits. */
static struct list *next_of_known(struct resolver *l, bool *ret_is_name)
{
	struct list *e = list_pop(&l->first);

	*ret_is_name = false;
	if (e)
		return e;
	if (l->name_was_last && (e = pop_counted(l, &l->known, &l->known_count))) {
		l->name_was_last = false;
		return e;
	}
	e = list_pop(&l->names);
	*ret_is_name = l->name_was_last = e != NULL;
	return e ? e : pop_counted(l, &l->known, &l->known_count);
}

static struct list *next(struct worker *w, bool *ret_is_name)
{
	*ret_is_name = false;
	return w->strangers ? pop_counted(w->of, &w->of->strangers, &w->of->stranger_count)
			    : next_of_known(w->of, ret_is_name);
}

static void do_one(struct list *e, bool is_name, bool stop)
{
	struct req *q;

	if (is_name) {
		name_drop(container_of(e, struct name, link), !stop);
		return;
	}
	q = container_of(e, struct req, link);
	if (!stop)
		prepare(q);
	go_on(q);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct resolver *l = w->of;
	bool is_name;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		struct list *e = next(w, &is_name);
		const bool stop = l->stop;

		if (!e && stop)
			break;
		if (!e) {
			pthread_cond_wait(&w->cond, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		do_one(e, is_name, stop);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static int worker_start(struct resolver *l, struct worker *w, bool strangers)
{
	int rc;

	w->of = l;
	w->strangers = strangers;
	rc = ret_code(pthread_create(&w->thread, NULL, worker_main, w));
	if (rc < 0)
		w->of = NULL;
	return rc;
}

static void worker_stop(struct worker *w)
{
	struct resolver *l = w->of;

	if (!l) /* it was not started */
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&l->lock);
	pthread_join(w->thread, NULL);
}

int resolver_new(struct resolver **ret)
{
	struct resolver *l = xcalloc(1, sizeof(*l));
	int rc;

	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->known_worker.cond, NULL);
	pthread_cond_init(&l->stranger_worker.cond, NULL);
	list_init(&l->first);
	list_init(&l->known);
	list_init(&l->strangers);
	list_init(&l->names);
	rc = worker_start(l, &l->known_worker, false);
	rc = rc ? rc : worker_start(l, &l->stranger_worker, true);
	if (rc < 0)
		resolver_free(l);
	else
		*ret = l;
	return rc;
}

/* Where @q waits; NULL: there are too many. */
static struct list *line_of(struct resolver *l, struct req *q)
{
	const bool known =
		(q->caller || !req_needs_groups(q)) && !(q->method->flags & REQ_NAMES_USER);
	uint32_t *count = known ? &l->known_count : &l->stranger_count;
	uint32_t *of_peer = count_of(l, q, known);

	if (known && q->datanode)
		return &l->first;
	if (*count == RESOLVER_MAX || *of_peer == RESOLVER_PEER_MAX)
		return NULL;
	++*count;
	++*of_peer;
	return known ? &l->known : &l->strangers;
}

bool resolver_submit(struct resolver *l, struct req *q)
{
	struct list *line;

	pthread_mutex_lock(&l->lock);
	line = line_of(l, q);
	if (line) {
		list_add_tail(line, &q->link);
		pthread_cond_signal(line == &l->strangers ? &l->stranger_worker.cond
							  : &l->known_worker.cond);
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
	pthread_cond_signal(&l->known_worker.cond);
	pthread_mutex_unlock(&l->lock);
}

void resolver_free(struct resolver *l)
{
	if (!l)
		return;
	worker_stop(&l->known_worker);
	worker_stop(&l->stranger_worker);
	pthread_cond_destroy(&l->known_worker.cond);
	pthread_cond_destroy(&l->stranger_worker.cond);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
