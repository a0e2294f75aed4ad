/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/lane.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/rpc/server.h"
#include "namenode-shim/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/users.h"

/* A user to look up. */
struct name {
	struct list link;
	struct users *users; /* borrowed */
	char *user;	     /* owned */
};

struct lane {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	struct list queue; /* of req.link */
	struct list names; /* of name.link; after the requests */
	bool stop;
};

static void prepare(struct req *q)
{
	struct users *u = q->nn->users;
	const char *user = q->call && q->call->user ? q->call->user : "";

	if (users_state(u, user) == USERS_NEW)
		users_load(u, user);
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

static void *lane_main(void *arg)
{
	struct lane *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		struct list *e, *name;
		bool stop;

		while (list_empty(&l->queue) && list_empty(&l->names) && !l->stop)
			pthread_cond_wait(&l->cond, &l->lock);
		e = list_pop(&l->queue);
		name = e ? NULL : list_pop(&l->names);
		stop = l->stop;
		pthread_mutex_unlock(&l->lock);
		if (!e && !name)
			return NULL;
		if (name)
			name_drop(container_of(name, struct name, link), !stop);
		if (e) {
			struct req *q = container_of(e, struct req, link);

			if (!stop)
				prepare(q);
			go_on(q);
		}
		pthread_mutex_lock(&l->lock);
	}
}

int lane_new(struct lane **ret)
{
	struct lane *l = xcalloc(1, sizeof(*l));
	int rc;

	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->cond, NULL);
	list_init(&l->queue);
	list_init(&l->names);
	rc = ret_code(pthread_create(&l->thread, NULL, lane_main, l));
	if (rc < 0)
		free(l);
	else
		*ret = l;
	return rc;
}

void lane_submit(struct lane *l, struct req *q)
{
	pthread_mutex_lock(&l->lock);
	list_add_tail(&l->queue, &q->link);
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void lane_load_user(struct lane *l, struct users *u, const char *user)
{
	struct name *n = xcalloc(1, sizeof(*n));

	n->users = u;
	n->user = xstrdup(user);
	pthread_mutex_lock(&l->lock);
	list_add_tail(&l->names, &n->link);
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void lane_free(struct lane *l)
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
