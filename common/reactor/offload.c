/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking work of a reactor on helper threads: queues of work (one for each disk, say), each with
 * threads of its own, so that one that hangs keeps no other. */
#include "common/reactor/reactor_internal.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>

static struct offload *next_work(struct offload_pool *p)
{
	struct list *l;

	pthread_mutex_lock(&p->lock);
	while (!(l = list_pop(&p->queue)) && !p->stop)
		pthread_cond_wait(&p->more, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return l ? container_of(l, struct offload, link) : NULL;
}

static void *helper_main(void *arg)
{
	struct offload_pool *p = (struct offload_pool *)arg;
	struct offload *o;

	if (CPU_COUNT(&p->cpus)) /* not the reactor's alone, which this thread began with */
		(void)sched_setaffinity(0, sizeof(p->cpus), &p->cpus);
	while ((o = next_work(p))) {
		o->work(o);
		reactor_post(o->reactor, &o->msg);
	}
	return NULL;
}

/* Signals are for the program's main thread. */
static int start_quietly(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = ret_code(pthread_create(ret, NULL, fn, arg));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

/* One more thread, if there may be one. */
static void add_thread(struct offload_pool *p)
{
	if (!p->threads)
		p->threads = (pthread_t *)calloc(p->count, sizeof(*p->threads));
	if (!p->threads || p->running == p->count)
		return;
	if (!start_quietly(&p->threads[p->running], helper_main, p)) {
		pthread_setname_np(p->threads[p->running], "offload");
		p->running++;
	}
}

static void come_back(struct rmsg *m)
{
	struct offload *o = container_of(m, struct offload, msg);

	o->pool->out--;
	o->done(o);
}

/* The queue, made when it is used first; NULL: no memory. */
static struct offload_pool *pool_of(struct reactor *r, uint32_t queue)
{
	struct offload_pool *p = r->queues[queue];

	if (p)
		return p;
	p = (struct offload_pool *)calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->count = r->opts.offload_threads;
	if (CPU_COUNT(&r->opts.cpus))
		p->cpus = r->usable;
	list_init(&p->queue);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	r->queues[queue] = p;
	return p;
}

static void come_back_unqueued(struct rmsg *m)
{
	struct offload *o = container_of(m, struct offload, msg);

	o->done(o);
}

void reactor_offload_to(struct reactor *r, uint32_t queue, struct offload *o)
{
	struct offload_pool *p;

	assert(reactor_is_current(r) && queue < REACTOR_QUEUES);
	p = pool_of(r, queue);
	if (p && p->out >= p->running)
		add_thread(p);
	if (queue && (!p || !p->running)) { /* no thread to be had, but of queue 0 there is one */
		reactor_offload_to(r, 0, o);
		return;
	}
	o->reactor = r;
	o->pool = p;
	o->msg.fn = p ? come_back : come_back_unqueued;
	list_init(&o->link);
	if (p)
		p->out++;
	if (!p || !p->running) { /* slow, still right */
		o->work(o);
		reactor_post(r, &o->msg);
		return;
	}
	pthread_mutex_lock(&p->lock);
	list_add_tail(&p->queue, &o->link);
	pthread_mutex_unlock(&p->lock);
	pthread_cond_signal(&p->more); /* without the lock, which the helper wants next */
}

void reactor_queue_pass(struct reactor *r, uint32_t queue)
{
	struct offload_pool *p = r->queues[queue];
	struct list moved;
	struct list *l;

	assert(reactor_is_current(r) && queue && queue < REACTOR_QUEUES);
	if (!p)
		return;
	list_init(&moved);
	pthread_mutex_lock(&p->lock);
	list_for_each (o, &p->queue)
		if (container_of(o, struct offload, link)->movable) {
			list_del(o);
			list_add_tail(&moved, o);
		}
	pthread_mutex_unlock(&p->lock);
	while ((l = list_pop(&moved))) {
		p->out--;
		reactor_offload(r, container_of(l, struct offload, link));
	}
}

void reactor_queue_drop(struct reactor *r, uint32_t queue)
{
	struct offload_pool *p = r->queues[queue];
	struct list dropped;
	struct list *l;

	assert(reactor_is_current(r) && queue && queue < REACTOR_QUEUES);
	if (!p)
		return;
	list_init(&dropped);
	pthread_mutex_lock(&p->lock);
	while ((l = list_pop(&p->queue)))
		list_add_tail(&dropped, l);
	pthread_mutex_unlock(&p->lock);
	while ((l = list_pop(&dropped))) {
		struct offload *o = container_of(l, struct offload, link);

		p->out--;
		o->done(o);
	}
}

void reactor_offload(struct reactor *r, struct offload *o)
{
	reactor_offload_to(r, 0, o);
}

void offload_init(struct reactor *r)
{
	struct offload_pool *p = pool_of(r, 0);

	if (p)
		add_thread(p);
}

uint32_t offload_out(const struct reactor *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < REACTOR_QUEUES; i++)
		n += r->queues[i] ? r->queues[i]->out : 0;
	return n;
}

static void pool_end(struct offload_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->running; i++)
		pthread_join(p->threads[i], NULL);
	free(p->threads);
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void offload_fini(struct reactor *r)
{
	for (uint32_t i = 0; i < REACTOR_QUEUES; i++)
		if (r->queues[i])
			pool_end(r->queues[i]);
}
