/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/commit_queue.h"

#include "common/base/clock.h"
#include "namenode-shim/req.h"

#define WAIT_COMMITS 3 /* how long the writer waits for more, in commits */
#define COMMIT_SHARE 8 /* of the last commit in their average */

void commit_queue_init(struct commit_queue *cq)
{
	*cq = (struct commit_queue){.wait_max_ns = COMMIT_QUEUE_WAIT_MAX_NS};
	pthread_mutex_init(&cq->lock, NULL);
	clock_cond_init(&cq->cond);
	list_init(&cq->queue);
}

void commit_queue_fini(struct commit_queue *cq)
{
	pthread_cond_destroy(&cq->cond);
	pthread_mutex_destroy(&cq->lock);
}

/* As many as are expected are here, or so many that a commit is worth while. */
static bool is_enough(const struct commit_queue *cq)
{
	return cq->unanswered >= cq->expected || cq->have + cq->queued >= COMMIT_QUEUE_ENOUGH;
}

void commit_queue_put(struct commit_queue *cq, struct req *q)
{
	bool wake;

	pthread_mutex_lock(&cq->lock);
	list_add_tail(&cq->queue, &q->link);
	if (q->method->kind == REQ_CHANGE) {
		if (!cq->queued++)
			cq->first_ns = clock_mono_ns();
		if (++cq->unanswered > cq->expected)
			cq->expected = cq->unanswered;
	}
	wake = !cq->wants_enough || is_enough(cq) || !cq->queued;
	pthread_mutex_unlock(&cq->lock);
	if (wake)
		pthread_cond_signal(&cq->cond);
}

void commit_queue_stop(struct commit_queue *cq)
{
	pthread_mutex_lock(&cq->lock);
	cq->stop = true;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->lock);
}

void commit_queue_record_done(struct commit_queue *cq)
{
	pthread_mutex_lock(&cq->lock);
	cq->record_done = true;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->lock);
}

static void sleep_until(struct commit_queue *cq, uint64_t ns)
{
	const struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	pthread_cond_timedwait(&cq->cond, &cq->lock, &ts);
}

static void take_all(struct commit_queue *cq, struct list *to)
{
	struct list *l;

	while ((l = list_pop(&cq->queue)))
		list_add_tail(to, l);
	cq->queued = 0;
}

/* Until enough changes are here, a record is done, or time is over: then fewer are expected. */
static void wait_for_expected(struct commit_queue *cq, uint32_t have)
{
	const uint64_t from = cq->answered_ns > cq->first_ns ? cq->answered_ns : cq->first_ns;
	const uint64_t most = WAIT_COMMITS * cq->commit_ns;
	const uint64_t end = from + (most < cq->wait_max_ns ? most : cq->wait_max_ns);
	bool in_time = true;

	cq->have = have;
	cq->wants_enough = true;
	while (!is_enough(cq) && !cq->record_done && !cq->stop && in_time) {
		in_time = clock_mono_ns() < end;
		if (in_time)
			sleep_until(cq, end);
	}
	cq->wants_enough = false;
	cq->have = 0;
	if (!in_time)
		cq->expected = cq->unanswered + (cq->expected - cq->unanswered) / 2;
}

bool commit_queue_take(struct commit_queue *cq, uint64_t until_ns, struct list *batch)
{
	bool go;

	pthread_mutex_lock(&cq->lock);
	while (list_empty(&cq->queue) && !cq->stop && !cq->record_done &&
	       clock_mono_ns() < until_ns)
		sleep_until(cq, until_ns);
	if (cq->queued)
		wait_for_expected(cq, 0);
	go = !cq->stop || !list_empty(&cq->queue);
	/* Changes whose record is done are answered first. Their callers may come back while the
	 * others wait. */
	if (!cq->record_done || cq->stop)
		take_all(cq, batch);
	cq->record_done = false;
	pthread_mutex_unlock(&cq->lock);
	return go;
}

void commit_queue_meanwhile(struct commit_queue *cq, bool (*is_synced)(void *arg), void *arg,
			    struct list *fresh)
{
	pthread_mutex_lock(&cq->lock);
	cq->wants_enough = true;
	while ((list_empty(&cq->queue) || !is_enough(cq)) && !cq->record_done && !is_synced(arg))
		pthread_cond_wait(&cq->cond, &cq->lock);
	cq->wants_enough = false;
	cq->record_done = false;
	take_all(cq, fresh);
	pthread_mutex_unlock(&cq->lock);
}

void commit_queue_linger(struct commit_queue *cq, uint32_t have, struct list *fresh)
{
	pthread_mutex_lock(&cq->lock);
	wait_for_expected(cq, have);
	take_all(cq, fresh);
	pthread_mutex_unlock(&cq->lock);
}

void commit_queue_answered(struct commit_queue *cq, uint32_t n)
{
	pthread_mutex_lock(&cq->lock);
	cq->unanswered -= n < cq->unanswered ? n : cq->unanswered;
	cq->answered_ns = clock_mono_ns();
	pthread_mutex_unlock(&cq->lock);
}

void commit_queue_again(struct commit_queue *cq, uint32_t n)
{
	pthread_mutex_lock(&cq->lock);
	cq->unanswered += n;
	if (cq->unanswered > cq->expected)
		cq->expected = cq->unanswered;
	pthread_mutex_unlock(&cq->lock);
}

void commit_queue_committed(struct commit_queue *cq, uint64_t ns)
{
	pthread_mutex_lock(&cq->lock);
	cq->commit_ns = (cq->commit_ns * (COMMIT_SHARE - 1) + ns) / COMMIT_SHARE;
	pthread_mutex_unlock(&cq->lock);
}
