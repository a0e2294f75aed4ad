/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: what was used last is taken first, no more is kept than may be, and all of it is freed
 * at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/spares.h"

#define SIZE 64
#define MAX 3

static void what_was_used_last_is_taken_first(void **state)
{
	struct spares s = {0};
	void *a = spares_get(&s, SIZE), *b = spares_get(&s, SIZE);

	(void)state;
	assert_non_null(a);
	assert_non_null(b);
	spares_put(&s, a, SIZE, MAX);
	spares_put(&s, b, SIZE, MAX);
	assert_ptr_equal(spares_get(&s, SIZE), b);
	assert_ptr_equal(spares_get(&s, SIZE), a);
	assert_int_equal(s.count, 0);
	memset(a, 1, SIZE); /* all of it may be used again */
	memset(b, 1, SIZE);
	free(a);
	free(b);
}

static void no_more_is_kept_than_may_be(void **state)
{
	struct spares s = {0};
	void *all[MAX + 2];

	(void)state;
	for (int i = 0; i < MAX + 2; i++)
		all[i] = spares_get(&s, SIZE);
	for (int i = 0; i < MAX + 2; i++)
		spares_put(&s, all[i], SIZE, MAX);
	assert_int_equal(s.count, MAX);
	spares_fini(&s);
	assert_int_equal(s.count, 0);
	assert_null(s.first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_used_last_is_taken_first),
		cmocka_unit_test(no_more_is_kept_than_may_be),
	};

	return cmocka_run_group_tests_name("spares", tests, NULL, NULL);
}
