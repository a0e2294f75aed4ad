/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/forgetter.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>

struct forget {
	struct list link;
	uint64_t parent;
	char name[];
};

static void *run(void *arg)
{
	struct forgetter *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->stop) {
		struct list *l = list_pop(&f->work);

		if (!l) {
			pthread_cond_wait(&f->wake, &f->lock);
			continue;
		}
		f->count--;
		pthread_mutex_unlock(&f->lock);
		struct forget *g = container_of(l, struct forget, link);

		/* a name the kernel does not have is no harm */
		(void)fuse_lowlevel_notify_inval_entry(f->se, g->parent, g->name, strlen(g->name));
		free(g);
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int forgetter_start(struct forgetter *f, struct fuse_session *se)
{
	int rc;

	*f = (struct forgetter){.se = se};
	list_init(&f->work);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	rc = pthread_create(&f->thread, NULL, run, f);
	f->started = rc == 0;
	return -rc;
}

void forgetter_stop(struct forgetter *f)
{
	struct list *l;

	if (!f->started)
		return;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	while ((l = list_pop(&f->work)))
		free(container_of(l, struct forget, link));
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->wake);
	f->started = false;
}

void forgetter_add(struct forgetter *f, uint64_t parent, const char *name)
{
	const size_t len = strlen(name) + 1;
	struct forget *g = malloc(sizeof(*g) + len);

	if (!g)
		return; /* the name goes when its time is over */
	g->parent = parent;
	memcpy(g->name, name, len);
	pthread_mutex_lock(&f->lock);
	if (f->count < FORGET_MAX) {
		list_add_tail(&f->work, &g->link);
		f->count++;
		g = NULL;
		pthread_cond_signal(&f->wake);
	}
	pthread_mutex_unlock(&f->lock);
	free(g);
}
