/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/idle_streams.h"

#include "client/src/read/reader.h"
#include "common/base/clock.h"

void idle_streams_init(struct idle_streams *l)
{
	pthread_mutex_init(&l->lock, NULL);
	list_init(&l->readers);
	l->count = 0;
}

void idle_streams_fini(struct idle_streams *l)
{
	pthread_mutex_destroy(&l->lock);
}

static uint64_t patience_ns(const struct idle_streams *l)
{
	return l->count > IDLE_STREAMS_MANY ? IDLE_MANY_NS : IDLE_NS;
}

void idle_streams_add(struct reader *r)
{
	struct idle_streams *l = &r->fs->idle_streams;
	unsigned n;

	pthread_mutex_lock(&l->lock);
	list_add_tail(&l->readers, &r->idle);
	n = ++l->count;
	pthread_mutex_unlock(&l->lock);
	r->listed = true;
	if (n == 1 || n == IDLE_STREAMS_MANY + 1) /* it has to look sooner than it would */
		housekeeper_wake(r->fs);
}

static void unlist_locked(struct idle_streams *l, struct reader *r)
{
	list_del(&r->idle);
	l->count--;
	r->listed = false;
}

void idle_streams_remove(struct reader *r)
{
	struct idle_streams *l = &r->fs->idle_streams;

	pthread_mutex_lock(&l->lock);
	if (r->listed)
		unlist_locked(l, r);
	pthread_mutex_unlock(&l->lock);
}

void idle_streams_reap(struct dfs *fs, uint64_t now_ns)
{
	struct idle_streams *l = &fs->idle_streams;

	if (!l->count)
		return;
	pthread_mutex_lock(&l->lock);
	list_for_each (e, &l->readers) {
		struct reader *r = container_of(e, struct reader, idle);

		if (now_ns < r->used_ns + patience_ns(l) ||
		    pthread_mutex_trylock(&r->seq_lock) != 0)
			continue;
		if (now_ns >= r->used_ns + patience_ns(l) && reader_give_back(r))
			unlist_locked(l, r);
		pthread_mutex_unlock(&r->seq_lock);
	}
	pthread_mutex_unlock(&l->lock);
}

uint64_t idle_streams_round_ns(const struct dfs *fs)
{
	return fs->idle_streams.count ? patience_ns(&fs->idle_streams) / 2 : UINT64_MAX;
}
