/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/rpc/tree_walk.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "namenode-shim/base/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

struct tree_walks {
	struct nn *nn; /* borrowed */
	pthread_t thread;
	pthread_mutex_t lock; /* of queue and stop */
	pthread_cond_t cond;
	struct list queue; /* of req.link */
	bool stop;
	struct txn reader; /* its thread's */
};

/* The next one to make a step of; NULL: stop. */
static struct req *take(struct tree_walks *w)
{
	struct list *l;

	pthread_mutex_lock(&w->lock);
	while (list_empty(&w->queue) && !w->stop)
		pthread_cond_wait(&w->cond, &w->lock);
	l = w->stop ? NULL : list_pop(&w->queue);
	pthread_mutex_unlock(&w->lock);
	return l ? container_of(l, struct req, link) : NULL;
}

static void step(struct tree_walks *w, struct req *q)
{
	const bool mem = q->method->flags & REQ_MEM;
	const int rc = txn_read_begin(&w->reader);

	req_reset(q, &w->reader);
	q->rc = rc;
	if (!rc) {
		if (mem)
			pthread_rwlock_rdlock(&w->nn->mem_lock);
		req_run(q);
		if (mem)
			pthread_rwlock_unlock(&w->nn->mem_lock);
		txn_read_end(&w->reader);
	}
	if (q->rc == REQ_PARK)
		tree_walk_submit(w, q);
	else
		req_finish(q);
}

static void *tree_walk_main(void *arg)
{
	struct tree_walks *w = arg;
	struct req *q;

	while ((q = take(w)))
		step(w, q);
	return NULL;
}

int tree_walk_new(struct nn *nn, struct tree_walks **ret)
{
	struct tree_walks *w = xcalloc(1, sizeof(*w));
	int rc = txn_reader_new(nn->db, &w->reader);

	if (rc < 0) {
		free(w);
		return rc;
	}
	w->nn = nn;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	list_init(&w->queue);
	rc = ret_code(pthread_create(&w->thread, NULL, tree_walk_main, w));
	if (rc < 0) {
		txn_reader_free(&w->reader);
		free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

void tree_walk_free(struct tree_walks *w)
{
	struct list *l;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	while ((l = list_pop(&w->queue))) {
		struct req *q = container_of(l, struct req, link);

		q->rc = -ESHUTDOWN;
		req_finish(q);
	}
	txn_reader_free(&w->reader);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void tree_walk_submit(struct tree_walks *w, struct req *q)
{
	pthread_mutex_lock(&w->lock);
	list_add_tail(&w->queue, &q->link);
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}
