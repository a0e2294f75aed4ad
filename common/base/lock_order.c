/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/lock_order.h"

#undef pthread_mutex_init
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#undef pthread_rwlock_init
#undef pthread_rwlock_rdlock
#undef pthread_rwlock_tryrdlock
#undef pthread_rwlock_wrlock
#undef pthread_rwlock_unlock
#undef pthread_cond_wait
#undef pthread_cond_timedwait
#undef pthread_cond_clockwait

#include <execinfo.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 32

struct row {
	const char *name, *file, *expr;
};
static const struct row rows[] = {
	{"*", "", ""}, /* row 0 is every lock */
#define LOCK(name, file, expr, guards) {name, file, expr},
#define UNDER(outer, inner)
#include "common/base/lock_order.def"
#undef LOCK
#undef UNDER
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *const pairs[][2] = {
#define LOCK(name, file, expr, guards)
#define UNDER(outer, inner) {outer, inner},
#include "common/base/lock_order.def"
#undef LOCK
#undef UNDER
	{NULL, NULL},
};

struct held {
	const void *lock;
	struct lock_site *at;
	int row;
};
static _Thread_local struct held held[HELD_MAX];
static _Thread_local int held_count;

static bool may[ROWS][ROWS];
static bool seen[ROWS][ROWS];
static int seen_fd = -1;
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static size_t row_named(const char *name)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].name, name) == 0)
			return i;
	fprintf(stderr, "lock_order: no lock has the name %s\n", name);
	abort();
}

/* What may be taken under an inner lock may be taken under the outer one. */
static void make_table(void)
{
	const char *path = getenv("LOCK_ORDER_SEEN");

	for (size_t i = 0; pairs[i][0]; i++)
		may[row_named(pairs[i][0])][row_named(pairs[i][1])] = true;
	for (size_t i = 1; i < ROWS; i++)
		for (size_t j = 1; j < ROWS; j++)
			may[i][j] |= i != j && may[0][j];
	for (size_t k = 0; k < ROWS; k++)
		for (size_t i = 0; i < ROWS; i++)
			for (size_t j = 0; j < ROWS; j++)
				may[i][j] |= i != j && may[i][k] && may[k][j];
	if (path)
		seen_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

/* The path from the root of the tree, wherever the compiler was called. */
static const char *file_of(const struct lock_site *at)
{
	const char *f = at->file;

	while (strncmp(f, "../", 3) == 0)
		f += 3;
	return f;
}

static int row_of(struct lock_site *at)
{
	int row = __atomic_load_n(&at->row, __ATOMIC_RELAXED);

	if (row != 0)
		return row;
	row = -1;
	for (size_t i = 1; i < ROWS; i++)
		if (strcmp(rows[i].expr, at->expr) == 0 && strcmp(rows[i].file, file_of(at)) == 0)
			row = (int)i;
	__atomic_store_n(&at->row, row, __ATOMIC_RELAXED);
	return row;
}

static void tell(const char *outer, const char *inner, const struct held *h,
		 const struct lock_site *at)
{
	char line[512];
	const int n = snprintf(line, sizeof(line), "%s %s %s:%d %s:%d\n", outer, inner,
			       file_of(h->at), h->at->line, file_of(at), at->line);

	if (write(seen_fd, line, (size_t)n) != n)
		abort();
}

static _Noreturn void wrong(int row, const struct lock_site *at)
{
	void *stack[64];
	char head[256];
	const int n = snprintf(head, sizeof(head),
			       "lock_order: %s is taken at %s:%d by a thread that holds\n",
			       rows[row].name, file_of(at), at->line);

	(void)!write(STDERR_FILENO, head, (size_t)n);
	for (int i = held_count; i-- > 0;)
		dprintf(STDERR_FILENO, "  %s, taken at %s:%d%s\n",
			held[i].row > 0 ? rows[held[i].row].name : "a lock of no row",
			file_of(held[i].at), held[i].at->line,
			held[i].row > 0 && !may[held[i].row][row] ? ": the wrong order" : "");
	dprintf(STDERR_FILENO, "common/base/lock_order.def says what may be taken under what. "
			       "Now at:\n");
	backtrace_symbols_fd(stack, backtrace(stack, 64), STDERR_FILENO);
	abort();
}

/* Before a lock of @row is waited for. */
static void check(int row, const struct lock_site *at)
{
	if (row < 0)
		return;
	for (int i = held_count; i-- > 0;) {
		const struct held *h = &held[i];

		if (h->row < 0)
			continue;
		if (seen_fd < 0 && !may[h->row][row])
			wrong(row, at);
		if (seen_fd >= 0 &&
		    !__atomic_exchange_n(&seen[h->row][row], true, __ATOMIC_RELAXED))
			tell(rows[h->row].name, rows[row].name, h, at);
	}
}

static void push(const void *lock, int row, struct lock_site *at)
{
	if (held_count == HELD_MAX)
		abort();
	held[held_count++] = (struct held){lock, at, row};
}

static void pop(const void *lock)
{
	int i = held_count;

	while (i > 0 && held[i - 1].lock != lock)
		i--;
	if (i == 0) {
		dprintf(STDERR_FILENO, "lock_order: a lock is released by a thread that does not "
				       "hold it\n");
		abort();
	}
	memmove(&held[i - 1], &held[i], (size_t)(held_count - i) * sizeof(held[0]));
	held_count--;
}

void lock_order_blocks(const char *call, const struct lock_site *at)
{
	char name[32];

	if (seen_fd < 0)
		return;
	(void)snprintf(name, sizeof(name), "!%s", call);
	for (int i = 0; i < held_count; i++)
		if (held[i].row > 0)
			tell(rows[held[i].row].name, name, &held[i], at);
}

/* The site where a lock was made, or first taken, is in the lock: in a word that the C library uses
 * for robust mutexes only, and in one of a rwlock that it leaves alone. */
static int row_in(void *word, struct lock_site *at)
{
	struct lock_site *made = __atomic_load_n((struct lock_site **)word, __ATOMIC_RELAXED);

	(void)pthread_once(&table_made, make_table);
	if (!made)
		__atomic_store_n((struct lock_site **)word, at, __ATOMIC_RELAXED);
	return row_of(made ? made : at);
}

static void *mutex_word(pthread_mutex_t *l)
{
	return &l->__data.__list.__prev;
}

static void *rwlock_word(pthread_rwlock_t *l)
{
	return &l->__data.__pad2;
}

int lock_order_mutex_init(pthread_mutex_t *l, const pthread_mutexattr_t *a, struct lock_site *at)
{
	const int rc = pthread_mutex_init(l, a);

	if (!rc)
		(void)row_in(mutex_word(l), at);
	return rc;
}

int lock_order_mutex_lock(pthread_mutex_t *l, struct lock_site *at)
{
	const int row = row_in(mutex_word(l), at);
	int rc;

	check(row, at);
	rc = pthread_mutex_lock(l);
	if (!rc)
		push(l, row, at);
	return rc;
}

/* Whoever does not wait for a lock closes no circle, but what is taken under it may. */
int lock_order_mutex_trylock(pthread_mutex_t *l, struct lock_site *at)
{
	const int row = row_in(mutex_word(l), at);
	const int rc = pthread_mutex_trylock(l);

	if (!rc)
		push(l, row, at);
	return rc;
}

int lock_order_mutex_unlock(pthread_mutex_t *l)
{
	pop(l);
	return pthread_mutex_unlock(l);
}

int lock_order_rwlock_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *a, struct lock_site *at)
{
	const int rc = pthread_rwlock_init(l, a);

	if (!rc)
		(void)row_in(rwlock_word(l), at);
	return rc;
}

int lock_order_rdlock(pthread_rwlock_t *l, struct lock_site *at)
{
	const int row = row_in(rwlock_word(l), at);
	int rc;

	check(row, at);
	rc = pthread_rwlock_rdlock(l);
	if (!rc)
		push(l, row, at);
	return rc;
}

int lock_order_tryrdlock(pthread_rwlock_t *l, struct lock_site *at)
{
	const int row = row_in(rwlock_word(l), at);
	const int rc = pthread_rwlock_tryrdlock(l);

	if (!rc)
		push(l, row, at);
	return rc;
}

int lock_order_wrlock(pthread_rwlock_t *l, struct lock_site *at)
{
	const int row = row_in(rwlock_word(l), at);
	int rc;

	check(row, at);
	rc = pthread_rwlock_wrlock(l);
	if (!rc)
		push(l, row, at);
	return rc;
}

int lock_order_rwlock_unlock(pthread_rwlock_t *l)
{
	pop(l);
	return pthread_rwlock_unlock(l);
}

/* While it waits a thread does not hold @l, but all its other locks. */
static int before_wait(pthread_mutex_t *l, struct lock_site *at)
{
	pop(l);
	lock_order_blocks("pthread_cond_wait", at);
	return row_in(mutex_word(l), at);
}

static int after_wait(pthread_mutex_t *l, int row, struct lock_site *at, int rc)
{
	check(row, at);
	push(l, row, at);
	return rc;
}

int lock_order_wait(pthread_cond_t *c, pthread_mutex_t *l, struct lock_site *at)
{
	const int row = before_wait(l, at);

	return after_wait(l, row, at, pthread_cond_wait(c, l));
}

int lock_order_timedwait(pthread_cond_t *c, pthread_mutex_t *l, const struct timespec *t,
			 struct lock_site *at)
{
	const int row = before_wait(l, at);

	return after_wait(l, row, at, pthread_cond_timedwait(c, l, t));
}

int lock_order_clockwait(pthread_cond_t *c, pthread_mutex_t *l, clockid_t clock,
			 const struct timespec *t, struct lock_site *at)
{
	const int row = before_wait(l, at);

	return after_wait(l, row, at, pthread_cond_clockwait(c, l, clock, t));
}
