/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and loading, by each volume's own thread: a disk that does not answer costs who waits for
 * all of them no more than its time, and comes in later by itself. */
#include "datanode/store/store_internal.h"

#include "common/base/clock.h"

#define TICK_MS 100

void volume_progress(struct volume *v)
{
	atomic_fetch_add_explicit(&v->check.progress, 1, memory_order_relaxed);
}

bool volume_job_run(struct volume *v)
{
	struct volume_job *j = &v->check.job;
	int (*const fn)(struct volume *, void *, struct err *) = j->fn;
	struct err err = ERR_INIT;
	int rc;

	if (!fn)
		return false;
	j->fn = NULL;
	pthread_mutex_unlock(&v->check.lock);
	rc = fn(v, j->arg, &err);
	pthread_mutex_lock(&v->check.lock);
	if (!j->left) {
		j->rc = rc;
		j->err = err;
	}
	j->under_way = j->left = false;
	pthread_mutex_unlock(&v->check.lock);
	pthread_mutex_lock(&v->store->lock);
	pthread_cond_broadcast(&v->store->job_cond);
	pthread_mutex_unlock(&v->store->lock);
	pthread_mutex_lock(&v->check.lock);
	return true;
}

static void begin(struct volume *v, int (*fn)(struct volume *v, void *arg, struct err *err),
		  void *arg)
{
	struct check *c = &v->check;

	pthread_mutex_lock(&c->lock);
	c->job.rc = 0;
	c->job.waited_for = !v->failed && !c->job.under_way;
	if (c->job.waited_for) {
		c->job = (struct volume_job){.fn = fn,
					     .arg = arg,
					     .under_way = true,
					     .waited_for = true,
					     .seen_progress = c->progress};
		pthread_cond_signal(&c->wake);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Nobody waits for it any more. One that has not begun never does. */
static void leave(struct volume *v)
{
	struct volume_job *j = &v->check.job;

	j->left = !j->fn;
	j->under_way = j->left;
	j->fn = NULL;
	j->waited_for = false;
	j->rc = -ETIMEDOUT;
	(void)err_set(&j->err, j->rc, "data directory %s does not answer", v->path);
	(void)err_cure(
		&j->err,
		"repair its disk, or take it out of dfs.datanode.data.dir; with "
		"dfs.datanode.failed.volumes.tolerated this node works without it until it answers");
	atomic_store(&v->silent, true);
}

/* True: it is to be waited for still. @ms have passed. */
static bool is_awaited(struct volume *v, uint64_t ms)
{
	const uint64_t limit = v->store->answer_ms;
	struct volume_job *j = &v->check.job;
	bool more;

	pthread_mutex_lock(&v->check.lock);
	if (j->waited_for && j->under_way) {
		const uint32_t now = v->check.progress;

		j->idle_ms = now == j->seen_progress ? j->idle_ms + ms : 0;
		j->seen_progress = now;
		if (limit && j->idle_ms >= limit)
			leave(v);
	}
	more = j->waited_for && j->under_way;
	pthread_mutex_unlock(&v->check.lock);
	return more;
}

/* Time that this thread itself did not run in is no disk's fault: a wait counts as one tick. */
static bool any_is_awaited(struct store *s, uint64_t ms)
{
	bool any = false;

	for (uint32_t i = 0; i < s->volume_count; i++)
		any |= is_awaited(&s->volumes[i], ms);
	return any;
}

void volumes_do(struct store *s, int (*fn)(struct volume *v, void *arg, struct err *err), void *arg)
{
	uint64_t ms = 0;

	for (uint32_t i = 0; i < s->volume_count; i++)
		begin(&s->volumes[i], fn, arg);
	pthread_mutex_lock(&s->lock);
	while (any_is_awaited(s, ms)) {
		struct timespec until;

		store_deadline_in(&until, TICK_MS);
		ms = pthread_cond_timedwait(&s->job_cond, &s->lock, &until) == ETIMEDOUT ? TICK_MS
											 : 0;
	}
	pthread_mutex_unlock(&s->lock);
}

void volumes_out_that_hang(struct store *s)
{
	for (uint32_t i = 0; i < s->volume_count; i++)
		if (s->volumes[i].check.job.rc == -ETIMEDOUT)
			volume_out(&s->volumes[i], -ETIMEDOUT);
}

bool volumes_are_busy(struct store *s)
{
	bool busy = false;

	for (uint32_t i = 0; i < s->volume_count; i++) {
		struct check *c = &s->volumes[i].check;

		pthread_mutex_lock(&c->lock);
		busy |= c->job.under_way;
		pthread_mutex_unlock(&c->lock);
	}
	return busy;
}
