/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/lane.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "namenode-shim/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

struct lane {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	struct list queue; /* of req.link */
	bool stop;
};

static void *lane_main(void *arg)
{
	struct lane *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		bool stop;
		struct list *e;

		while (list_empty(&l->queue) && !l->stop)
			pthread_cond_wait(&l->cond, &l->lock);
		e = list_pop(&l->queue);
		stop = l->stop;
		pthread_mutex_unlock(&l->lock);
		if (!e)
			return NULL;
		struct req *q = container_of(e, struct req, link);

		if (!stop)
			q->method->prepare(q);
		nn_submit(q->nn, q);
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
