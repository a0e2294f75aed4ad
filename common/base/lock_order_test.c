/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: every pair of lock_order.def may be taken in its order; the other way round the
 * program ends, and names both locks. Each case is a process of its own. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "common/base/lock_order.h"

#define ROOM 8192

static struct row {
	const char *name;
	struct lock_site site;
} rows[] = {
#define LOCK(name, file, expr, guards) {name, {"../../" file, expr, 1, 0}},
#define UNDER(outer, inner)
#include "common/base/lock_order.def"
#undef LOCK
#undef UNDER
};

static const char *const pairs[][2] = {
#define LOCK(name, file, expr, guards)
#define UNDER(outer, inner) {outer, inner},
#include "common/base/lock_order.def"
#undef LOCK
#undef UNDER
};
#define PAIRS (sizeof(pairs) / sizeof(pairs[0]))

/* A lock of the row of that name. */
static void make(pthread_mutex_t *l, const char *name)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, name) == 0) {
			assert_int_equal(lock_order_mutex_init(l, NULL, &rows[i].site), 0);
			return;
		}
	fail_msg("%s is no lock", name);
}

static pthread_mutex_t one, two;

static void in_order(void)
{
	pthread_mutex_lock(&one);
	pthread_mutex_lock(&two);
	pthread_mutex_unlock(&one); /* may go first */
	pthread_mutex_unlock(&two);
}

static void in_wrong_order(void)
{
	pthread_mutex_lock(&two);
	pthread_mutex_lock(&one);
}

static void tried(void)
{
	pthread_mutex_lock(&two);
	if (pthread_mutex_trylock(&one))
		abort();
	pthread_mutex_unlock(&one);
	pthread_mutex_unlock(&two);
}

static void waited_for(void)
{
	const struct timespec past = {0, 0};
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;

	pthread_mutex_lock(&one);
	pthread_mutex_lock(&two);
	(void)pthread_cond_timedwait(&c, &one, &past); /* taken again under the other one */
}

static void not_held(void)
{
	pthread_mutex_unlock(&one);
}

/* Runs @fn with locks of these names in a process of its own. Whether it aborts; what it says. */
static bool aborts(const char *name_one, const char *name_two, void (*fn)(void), char text[ROOM])
{
	int fds[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL);
		(void)dup2(fds[1], STDERR_FILENO);
		make(&one, name_one);
		make(&two, name_two);
		fn();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], text + len, ROOM - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : status == 0);
	return WIFSIGNALED(status);
}

static void each_pair_has_one_order(void **state)
{
	char text[ROOM];

	(void)state;
	for (size_t i = 0; i < PAIRS; i++) {
		const char *outer = pairs[i][0], *inner = pairs[i][1];

		if (strcmp(outer, "*") == 0)
			outer = rows[1].name;
		assert_false(aborts(outer, inner, in_order, text));
		if (strcmp(outer, inner) == 0)
			continue;
		assert_true(aborts(outer, inner, in_wrong_order, text));
		assert_non_null(strstr(text, outer));
		assert_non_null(strstr(text, inner));
		assert_non_null(strstr(text, "common/base/lock_order_test.c:"));
	}
}

static void two_of_one_kind_have_none(void **state)
{
	char text[ROOM];

	(void)state;
	assert_true(aborts("client:output.lock", "client:output.lock", in_order, text));
	assert_non_null(strstr(text, "client:output.lock"));
}

static void what_is_only_tried_waits_for_nobody(void **state)
{
	char text[ROOM];

	(void)state;
	assert_false(aborts("client:output.lock", "client:packet_pool.lock", tried, text));
}

static void a_wait_takes_its_lock_again(void **state)
{
	char text[ROOM];

	(void)state;
	assert_true(aborts("client:output.lock", "client:packet_pool.lock", waited_for, text));
	assert_non_null(strstr(text, "client:output.lock is taken"));
}

static void only_its_holder_releases_a_lock(void **state)
{
	char text[ROOM];

	(void)state;
	assert_true(aborts("client:output.lock", "client:packet_pool.lock", not_held, text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_has_one_order),
		cmocka_unit_test(two_of_one_kind_have_none),
		cmocka_unit_test(what_is_only_tried_waits_for_nobody),
		cmocka_unit_test(a_wait_takes_its_lock_again),
		cmocka_unit_test(only_its_holder_releases_a_lock),
	};

	(void)unsetenv("LOCK_ORDER_SEEN");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
