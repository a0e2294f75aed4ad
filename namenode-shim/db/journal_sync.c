/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/journal_sync.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "namenode-shim/db/journal.h"

struct journal_sync {
	void (*done)(void *arg);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* something to do, or done */
	bool stop;
	/* from journal_sync_give() on until the journal is on the disk, or never will be */
	atomic_bool busy;
	struct journal *journal;
	int rc; /* of the last one; 0 once told */
};

static void *journal_sync_main(void *arg)
{
	struct journal_sync *s = arg;

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

int journal_sync_new(void (*done)(void *arg), void *arg, struct journal_sync **ret)
{
	struct journal_sync *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->done = done;
	s->arg = arg;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	rc = ret_code(pthread_create(&s->thread, NULL, journal_sync_main, s));
	if (rc < 0) {
		pthread_cond_destroy(&s->cond);
		pthread_mutex_destroy(&s->lock);
		free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void journal_sync_free(struct journal_sync *s)
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

void journal_sync_give(struct journal_sync *s, struct journal *j)
{
	pthread_mutex_lock(&s->lock);
	s->journal = j;
	s->busy = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

bool journal_sync_is_busy(const struct journal_sync *s)
{
	return s->busy;
}

int journal_sync_wait(struct journal_sync *s)
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
