/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/commit_queue.h"

#include "common/base/clock.h"
#include "namenode-shim/req.h"

#define WAIT_COMMITS 3 /* a crowd is waited for as long as so many commits take */
#define COMMIT_SHARE 8 /* of the last commit in their average */

void commit_queue_init(struct commit_queue *in)
{
	pthread_condattr_t attr;

	*in = (struct commit_queue){.wait_max_ns = INTAKE_WAIT_MAX_NS};
	pthread_mutex_init(&in->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&in->cond, &attr);
	pthread_condattr_destroy(&attr);
	list_init(&in->queue);
}

void commit_queue_fini(struct commit_queue *in)
{
	pthread_cond_destroy(&in->cond);
	pthread_mutex_destroy(&in->lock);
}

/* Everybody is here, or so many that a commit is worth while. */
static bool is_enough(const struct commit_queue *in)
{
	return in->in_hand >= in->crowd || in->have + in->queued >= INTAKE_ENOUGH;
}

void commit_queue_put(struct commit_queue *in, struct req *q)
{
	bool wake;

	pthread_mutex_lock(&in->lock);
	list_add_tail(&in->queue, &q->link);
	if (q->method->kind == REQ_CHANGE) {
		if (!in->queued++)
			in->first_ns = clock_mono_ns();
		if (++in->in_hand > in->crowd)
			in->crowd = in->in_hand;
	}
	wake = !in->patient || is_enough(in) || !in->queued;
	pthread_mutex_unlock(&in->lock);
	if (wake)
		pthread_cond_signal(&in->cond);
}

void commit_queue_stop(struct commit_queue *in)
{
	pthread_mutex_lock(&in->lock);
	in->stop = true;
	pthread_cond_signal(&in->cond);
	pthread_mutex_unlock(&in->lock);
}

void commit_queue_landed(struct commit_queue *in)
{
	pthread_mutex_lock(&in->lock);
	in->landed = true;
	pthread_cond_signal(&in->cond);
	pthread_mutex_unlock(&in->lock);
}

static void sleep_until(struct commit_queue *in, uint64_t ns)
{
	const struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	pthread_cond_timedwait(&in->cond, &in->lock, &ts);
}

static void take_all(struct commit_queue *in, struct list *to)
{
	struct list *l;

	while ((l = list_pop(&in->queue)))
		list_add_tail(to, l);
	in->queued = 0;
}

/* Until enough are in hand, a record has landed, or they stay away: then fewer are expected. */
static void wait_for_crowd(struct commit_queue *in, uint32_t have)
{
	const uint64_t from = in->answered_ns > in->first_ns ? in->answered_ns : in->first_ns;
	const uint64_t most = WAIT_COMMITS * in->commit_ns;
	const uint64_t end = from + (most < in->wait_max_ns ? most : in->wait_max_ns);
	bool in_time = true;

	in->have = have;
	in->patient = true;
	while (!is_enough(in) && !in->landed && !in->stop && in_time) {
		in_time = clock_mono_ns() < end;
		if (in_time)
			sleep_until(in, end);
	}
	in->patient = false;
	in->have = 0;
	if (!in_time)
		in->crowd = in->in_hand + (in->crowd - in->in_hand) / 2;
}

bool commit_queue_take(struct commit_queue *in, uint64_t until_ns, struct list *batch)
{
	bool go;

	pthread_mutex_lock(&in->lock);
	while (list_empty(&in->queue) && !in->stop && !in->landed && clock_mono_ns() < until_ns)
		sleep_until(in, until_ns);
	if (in->queued)
		wait_for_crowd(in, 0);
	go = !in->stop || !list_empty(&in->queue);
	/* Those whose record has landed come first: the others wait for them to be back. */
	if (!in->landed || in->stop)
		take_all(in, batch);
	in->landed = false;
	pthread_mutex_unlock(&in->lock);
	return go;
}

void commit_queue_meanwhile(struct commit_queue *in, bool (*is_synced)(void *arg), void *arg,
			    struct list *fresh)
{
	pthread_mutex_lock(&in->lock);
	in->patient = true;
	while ((list_empty(&in->queue) || !is_enough(in)) && !in->landed && !is_synced(arg))
		pthread_cond_wait(&in->cond, &in->lock);
	in->patient = false;
	in->landed = false;
	take_all(in, fresh);
	pthread_mutex_unlock(&in->lock);
}

void commit_queue_linger(struct commit_queue *in, uint32_t have, struct list *fresh)
{
	pthread_mutex_lock(&in->lock);
	wait_for_crowd(in, have);
	take_all(in, fresh);
	pthread_mutex_unlock(&in->lock);
}

void commit_queue_answered(struct commit_queue *in, uint32_t n)
{
	pthread_mutex_lock(&in->lock);
	in->in_hand -= n < in->in_hand ? n : in->in_hand;
	in->answered_ns = clock_mono_ns();
	pthread_mutex_unlock(&in->lock);
}

void commit_queue_again(struct commit_queue *in, uint32_t n)
{
	pthread_mutex_lock(&in->lock);
	in->in_hand += n;
	if (in->in_hand > in->crowd)
		in->crowd = in->in_hand;
	pthread_mutex_unlock(&in->lock);
}

void commit_queue_committed(struct commit_queue *in, uint64_t ns)
{
	pthread_mutex_lock(&in->lock);
	in->commit_ns = (in->commit_ns * (COMMIT_SHARE - 1) + ns) / COMMIT_SHARE;
	pthread_mutex_unlock(&in->lock);
}
