/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * lock_order - a lock taken in a wrong order ends the program
 *
 * Idea: two threads that take two locks in different orders wait for each other for ever, but only
 * in the one moment in a million in which both are under way. lock_order.def says which locks may
 * be taken under which. With -Dlock_order=true every source is compiled with this header first: it
 * puts a check around the calls of pthread.h. The first wrong order aborts, whether another thread
 * is near or not, and names both locks and the lines. In other builds nothing of this exists.
 *
 * A lock is known by the file and the expression of its initialisation, so that sources need not
 * name it twice. Locks that are in no row, as those of tests, are not looked at.
 *
 * $LOCK_ORDER_SEEN=FILE: nothing aborts; each pair that a process sees first is appended to FILE,
 * also what blocks under a lock ("lock !call file:line"). tests/check_locks.py --seen FILE compares.
 *
 * Threading: all threads. What a thread holds is its own.
 * Units:     none.
 * Source:    the order of classes instead of locks is that of lockdep in Linux.
 */
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

struct lock_site {
	const char *file, *expr;
	int line;
	int row; /* of lock_order.def, from 1; 0 not looked up yet, -1 none */
};

int lock_order_mutex_init(pthread_mutex_t *l, const pthread_mutexattr_t *a, struct lock_site *at);
int lock_order_mutex_lock(pthread_mutex_t *l, struct lock_site *at);
int lock_order_mutex_trylock(pthread_mutex_t *l, struct lock_site *at);
int lock_order_mutex_unlock(pthread_mutex_t *l);
int lock_order_rwlock_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *a,
			   struct lock_site *at);
int lock_order_rdlock(pthread_rwlock_t *l, struct lock_site *at);
int lock_order_tryrdlock(pthread_rwlock_t *l, struct lock_site *at);
int lock_order_wrlock(pthread_rwlock_t *l, struct lock_site *at);
int lock_order_rwlock_unlock(pthread_rwlock_t *l);
int lock_order_wait(pthread_cond_t *c, pthread_mutex_t *l, struct lock_site *at);
int lock_order_timedwait(pthread_cond_t *c, pthread_mutex_t *l, const struct timespec *t,
			 struct lock_site *at);
int lock_order_clockwait(pthread_cond_t *c, pthread_mutex_t *l, clockid_t clock,
			 const struct timespec *t, struct lock_site *at);

/** The calling thread may block here. */
void lock_order_blocks(const char *call, const struct lock_site *at);

#define LOCK_ORDER_SITE(e)                                                                         \
	({                                                                                         \
		static struct lock_site at_ = {__FILE__, e, __LINE__, 0};                          \
		&at_;                                                                              \
	})
#define LOCK_ORDER_BLOCKS(call, ...)                                                               \
	(lock_order_blocks(#call, LOCK_ORDER_SITE("")), (call)(__VA_ARGS__))

#define pthread_mutex_init(l, a) lock_order_mutex_init(l, a, LOCK_ORDER_SITE(#l))
#define pthread_mutex_lock(l) lock_order_mutex_lock(l, LOCK_ORDER_SITE(#l))
#define pthread_mutex_trylock(l) lock_order_mutex_trylock(l, LOCK_ORDER_SITE(#l))
#define pthread_mutex_unlock(l) lock_order_mutex_unlock(l)
#define pthread_rwlock_init(l, a) lock_order_rwlock_init(l, a, LOCK_ORDER_SITE(#l))
#define pthread_rwlock_rdlock(l) lock_order_rdlock(l, LOCK_ORDER_SITE(#l))
#define pthread_rwlock_tryrdlock(l) lock_order_tryrdlock(l, LOCK_ORDER_SITE(#l))
#define pthread_rwlock_wrlock(l) lock_order_wrlock(l, LOCK_ORDER_SITE(#l))
#define pthread_rwlock_unlock(l) lock_order_rwlock_unlock(l)
#define pthread_cond_wait(c, l) lock_order_wait(c, l, LOCK_ORDER_SITE(#l))
#define pthread_cond_timedwait(c, l, t) lock_order_timedwait(c, l, t, LOCK_ORDER_SITE(#l))
#define pthread_cond_clockwait(c, l, k, t) lock_order_clockwait(c, l, k, t, LOCK_ORDER_SITE(#l))
#define pthread_join(...) LOCK_ORDER_BLOCKS(pthread_join, __VA_ARGS__)
#define fsync(...) LOCK_ORDER_BLOCKS(fsync, __VA_ARGS__)
#define fdatasync(...) LOCK_ORDER_BLOCKS(fdatasync, __VA_ARGS__)
#define nanosleep(...) LOCK_ORDER_BLOCKS(nanosleep, __VA_ARGS__)

/* Our structs have members of that name, which are called like it. */
static inline int lock_order_poll(struct pollfd *fds, nfds_t count, int ms)
{
	static const struct lock_site at = {"", "", 0, -1};

	lock_order_blocks("poll", &at);
	return poll(fds, count, ms);
}
#define poll lock_order_poll
