/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/scribe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "namenode-shim/journal.h"

struct scribe {
	void (*done)(void *arg);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* something to do, or done */
	bool stop;
	atomic_bool busy; /* from scribe_give() on until the journal is on the disk, or never will be */
	struct journal *journal;
	int rc; /* of the last one; 0 once told */
};

static void *scribe_main(void *arg)
{
	struct scribe *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop || s->busy) {
		int rc;

		if (!s->busy) {
			pthread_cond_wait(&s->cond, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		rc = journal_sync(s->journal);
		pthread_mutex_lock(&s->lock);
		s->rc = rc;
		s->busy = false;
		pthread_cond_broadcast(&s->cond);
		pthread_mutex_unlock(&s->lock);
		if (s->done)
			s->done(s->arg);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int scribe_new(void (*done)(void *arg), void *arg, struct scribe **ret)
{
	struct scribe *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->done = done;
	s->arg = arg;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	rc = ret_code(pthread_create(&s->thread, NULL, scribe_main, s));
	if (rc < 0) {
		pthread_cond_destroy(&s->cond);
		pthread_mutex_destroy(&s->lock);
		free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void scribe_free(struct scribe *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void scribe_give(struct scribe *s, struct journal *j)
{
	pthread_mutex_lock(&s->lock);
	s->journal = j;
	s->busy = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

bool scribe_is_busy(const struct scribe *s)
{
	return s->busy;
}

int scribe_wait(struct scribe *s)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	while (s->busy)
		pthread_cond_wait(&s->cond, &s->lock);
	rc = s->rc;
	s->rc = 0;
	pthread_mutex_unlock(&s->lock);
	return rc;
}
