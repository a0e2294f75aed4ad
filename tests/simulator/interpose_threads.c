/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and their locks, which live in the memory of glibc's own objects: all zero is a free
 * lock, as the static initialisers make it. A lock that a dead thread left (LMDB's, in its lock
 * file) is free. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/simulator/interpose.h"

struct mutex {
	uint32_t owner; /* thread; 0: free */
};

struct cond {
	uint32_t monotonic;
};

struct rwlock {
	uint32_t writer, readers;
};

struct once {
	int state; /* 0, 1 under way, 2 done */
};

#define AS(type, p) ((struct type *)(void *)(p))

/* ---- mutexes ---- */

static bool is_taken(const struct mutex *m)
{
	return m->owner && m->owner < MAX_THREADS && world->thread[m->owner].state != THREAD_DEAD;
}

static void lock(struct mutex *m)
{
	while (is_taken(m))
		sleep_for(m, FOREVER);
	m->owner = (uint32_t)sim_me;
}

static void unlock(struct mutex *m)
{
	m->owner = 0;
	wake_channel(m, false);
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
	(void)attr;
	memset(m, 0, sizeof(*m));
	return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *m)
{
	(void)m;
	return 0;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
	if (!sim_enter())
		return REAL(pthread_mutex_lock)(m);
	sched_point();
	lock(AS(mutex, m));
	return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
	if (!sim_enter())
		return REAL(pthread_mutex_trylock)(m);
	sched_point();
	if (is_taken(AS(mutex, m)))
		return EBUSY;
	AS(mutex, m)->owner = (uint32_t)sim_me;
	return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	if (!sim_enter())
		return REAL(pthread_mutex_unlock)(m);
	unlock(AS(mutex, m));
	sched_point();
	return 0;
}

int pthread_mutex_consistent(pthread_mutex_t *m)
{
	(void)m;
	return 0;
}

/* ---- conditions ---- */

int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr)
{
	clockid_t id = CLOCK_REALTIME;

	if (attr)
		(void)pthread_condattr_getclock(attr, &id);
	memset(c, 0, sizeof(*c));
	AS(cond, c)->monotonic = id == CLOCK_MONOTONIC;
	return 0;
}

int pthread_cond_destroy(pthread_cond_t *c)
{
	(void)c;
	return 0;
}

static bool cond_sleep(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until)
{
	bool woken;

	AS(mutex, m)->owner = 0;
	wake_channel(m, false);
	woken = sleep_for(c, until);
	lock(AS(mutex, m));
	return woken;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	if (!sim_enter())
		return REAL(pthread_cond_wait)(c, m);
	(void)cond_sleep(c, m, FOREVER);
	return 0;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	uint64_t until = (uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec;

	if (!sim_enter())
		return REAL(pthread_cond_timedwait)(c, m, t);
	if (!AS(cond, c)->monotonic) {
		const uint64_t ahead = BORN + sim_machine()->wall;

		until = until > ahead ? until - ahead : 0;
	}
	return cond_sleep(c, m, until) ? 0 : ETIMEDOUT;
}

int pthread_cond_signal(pthread_cond_t *c)
{
	if (!sim_enter())
		return REAL(pthread_cond_signal)(c);
	wake_channel(c, false);
	sched_point();
	return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
	if (!sim_enter())
		return REAL(pthread_cond_broadcast)(c);
	wake_channel(c, true);
	sched_point();
	return 0;
}

/* ---- locks for readers and writers ---- */

int pthread_rwlock_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *attr)
{
	(void)attr;
	memset(l, 0, sizeof(*l));
	return 0;
}

int pthread_rwlock_destroy(pthread_rwlock_t *l)
{
	(void)l;
	return 0;
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	struct rwlock *r = AS(rwlock, l);

	if (!sim_enter())
		return REAL(pthread_rwlock_rdlock)(l);
	sched_point();
	while (r->writer)
		sleep_for(l, FOREVER);
	r->readers++;
	return 0;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	struct rwlock *r = AS(rwlock, l);

	if (!sim_enter())
		return REAL(pthread_rwlock_wrlock)(l);
	sched_point();
	while (r->writer || r->readers)
		sleep_for(l, FOREVER);
	r->writer = (uint32_t)sim_me;
	return 0;
}

int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
	struct rwlock *r = AS(rwlock, l);

	if (!sim_enter())
		return REAL(pthread_rwlock_unlock)(l);
	if (r->writer)
		r->writer = 0;
	else
		r->readers--;
	wake_channel(l, true);
	sched_point();
	return 0;
}

int pthread_once(pthread_once_t *control, void (*fn)(void))
{
	struct once *o = AS(once, control);

	if (!sim_enter())
		return REAL(pthread_once)(control, fn);
	while (o->state == 1)
		sleep_for(control, FOREVER);
	if (o->state == 2)
		return 0;
	o->state = 1;
	fn();
	o->state = 2;
	wake_channel(control, true);
	return 0;
}

/* ---- threads ---- */

struct start {
	void *(*fn)(void *);
	void *arg;
	uint32_t id;
};

static pthread_key_t last_key;
static pthread_once_t last_once;

/* Runs after the destructors of others: each round that glibc makes sets it again, but the last. */
static void last(void *rounds)
{
	const uintptr_t n = (uintptr_t)rounds;

	if (n + 1 < PTHREAD_DESTRUCTOR_ITERATIONS) {
		(void)pthread_setspecific(last_key, (void *)(n + 1));
		return;
	}
	wake_channel((void *)(uintptr_t)pthread_self(), true);
	thread_end();
}

static void make_last_key(void)
{
	(void)pthread_key_create(&last_key, last);
}

static void *begin(void *arg)
{
	const struct start s = *(struct start *)arg;

	free(arg);
	thread_begin(s.id);
	(void)pthread_setspecific(last_key, (void *)1);
	return s.fn(s.arg);
}

/* pthread_t -> thread of the world, for those that are joined. */
static struct {
	pthread_t t;
	uint32_t id;
} known[4096];

static uint32_t known_id(pthread_t t, bool forget)
{
	for (uint32_t i = 0; i < 4096; i++)
		if (known[i].id && known[i].t == t) {
			const uint32_t id = known[i].id;

			if (forget)
				known[i].id = 0;
			return id;
		}
	return 0;
}

static void know(pthread_t t, uint32_t id)
{
	(void)known_id(t, true);
	for (uint32_t i = 0; i < 4096; i++)
		if (!known[i].id) {
			known[i].t = t;
			known[i].id = id;
			return;
		}
	abort();
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	struct start *s;
	int rc;

	if (!sim_enter())
		return REAL(pthread_create)(t, attr, fn, arg);
	(void)pthread_once(&last_once, make_last_key);
	s = (struct start *)malloc(sizeof(*s));
	*s = (struct start){.fn = fn, .arg = arg, .id = thread_new(sim_proc(), "")};
	rc = REAL(pthread_create)(t, attr, begin, s);
	if (rc) {
		perror("sim: pthread_create");
		abort();
	}
	know(*t, s->id);
	sched_point();
	return 0;
}

int pthread_join(pthread_t t, void **ret)
{
	uint32_t id;

	if (!sim_enter())
		return REAL(pthread_join)(t, ret);
	id = known_id(t, false);
	while (id && world->thread[id].state != THREAD_DEAD)
		sleep_for((void *)(uintptr_t)t, FOREVER);
	(void)known_id(t, true);
	return REAL(pthread_join)(t, ret);
}

int pthread_setname_np(pthread_t t, const char *name)
{
	const uint32_t id = sim_enter() ? known_id(t, false) : 0;

	if (id)
		snprintf(world->thread[id].name, sizeof(world->thread[id].name), "%s", name);
	return 0;
}
