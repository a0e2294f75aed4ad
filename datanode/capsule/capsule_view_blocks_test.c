/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: there are no more views, nor blocks of which there are some, than the limits say;
 * one connection does not have all places, and what is not cached has none; what has no copy is
 * tried again, and less and less. */
#include "datanode/capsule/capsule_view_test_fixture.h"

static void there_are_no_more_than_the_limits(void **state)
{
	struct verbs_window *all[WINDOWS];

	(void)state;
	given(0);
	for (unsigned i = 1; i < WINDOWS; i++) {
		all[i] = &window[i];
		window[i].of = window[0].of;
	}
	view(1);
	assert_int_equal(answered(), 1000);
	for (unsigned i = 1; i < WINDOWS; i++)
		all[i]->of = NULL;
	conn[1].view_count = CAPS_VIEWS_MAX;
	view(1);
	assert_int_equal(answered(), 1000);
	conn[1].view_count = 0;
	for (uint64_t id = 2; id < CAPS_HOT_MAX + 1; id++) {
		view_range(1, id, 0, 1);
		assert_int_equal(answered(), 50);
		conn[1].coming_count = 0; /* of many connections */
	}
	assert_int_equal(caps.hot_count, CAPS_HOT_MAX);
	assert_int_equal(asks, CAPS_HOT_MAX - 1);
	view_range(1, 1000, 0, 1);
	assert_int_equal(answered(), 1000);
	assert_int_equal(caps.hot_count, CAPS_HOT_MAX);
	conn[1].coming_count = CAPS_HOT_MAX - 1;
	run_jobs(-ENOSPC);
	assert_int_equal(conn[1].coming_count, 0);
	view_range(1, 1000, 0, 1); /* in the place of one that failed */
	assert_int_equal(answered(), 50);
	assert_int_equal(caps.hot_count, CAPS_HOT_MAX);
}

static void one_connection_does_not_have_all_of_them(void **state)
{
	(void)state;
	uncached = 1;
	view(0);
	assert_int_equal(answered(), 1000);
	assert_int_equal(caps.hot_count, 0); /* what is not cached has no place */
	for (uint64_t id = 2; id < CAPS_COMING_MAX + 2; id++) {
		view_range(0, id, 0, 1);
		assert_int_equal(answered(), 50);
	}
	view_range(0, 100, 0, 1);
	assert_int_equal(answered(), 1000);
	view_range(0, 2, 0, 1); /* that one is on its way */
	assert_int_equal(answered(), 50);
	view_range(1, 100, 0, 1);
	assert_int_equal(answered(), 50);
	capsule_views_free(&conn[0]); /* while they are made */
	run_jobs(-ENOSPC);
	assert_int_equal(conn[1].coming_count, 0);
	assert_int_equal(conn[0].coming_count, CAPS_COMING_MAX); /* it was not touched any more */
}

static void what_fails_again_and_again_is_tried_less_and_less(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		const uint64_t wait = 5u << (i < 6 ? i : 6);

		view(0);
		assert_int_equal(answered(), 50);
		assert_int_equal(asks, 1);
		assert_int_equal(asked[0]->again, i > 0);
		run_jobs(-EBADMSG);
		turn((wait - 1) * SECOND);
		view(0);
		assert_int_equal(answered(), 1000);
		turn(1 * SECOND);
	}
	given(0);
	assert_true(copy.viewed_ns > 0);
	turn(10 * SECOND);
	closed(0);
	turn(61 * SECOND);
	run_jobs(0);
	assert_int_equal(caps.hot_count, 0);
}

static void for_room_it_is_looked_as_often(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		view(0);
		assert_int_equal(answered(), 50);
		run_jobs(-ENOSPC);
		turn(4 * SECOND);
		view(0);
		assert_int_equal(answered(), 1000);
		turn(1 * SECOND);
	}
}

/* Of many connections. */
static void ask_for(uint64_t from, uint64_t to)
{
	for (uint64_t id = from; id < to; id++) {
		view_range(1, id, 0, 1);
		assert_int_equal(answered(), 50);
		conn[1].coming_count = 0;
	}
	conn[1].coming_count = (uint32_t)(to - from);
	run_jobs(0);
}

static void what_nobody_has_a_view_of_gives_way(void **state)
{
	(void)state;
	given(0); /* a view stays */
	ask_for(2, CAPS_HOT_MAX + 1);
	view_range(1, 1000, 0, 1);
	assert_int_equal(answered(), 1000);
	assert_int_equal(asks, 0); /* who asked for them has not come back yet */
	turn(1 * SECOND);
	view_range(1, 3, 0, LEN); /* this one is used */
	assert_int_equal(answered(), 0);
	view_range(1, 1000, 0, 1);
	assert_int_equal(answered(), 1000);
	view_range(1, 1001, 0, 1);
	assert_int_equal(asks, 1); /* one at a time */
	run_jobs(0);
	assert_int_equal(caps.hot_count, CAPS_HOT_MAX - 1);
	view_range(1, 2, 0, 1);
	assert_int_equal(asks, 1); /* it was that one */
	run_jobs(0);
	view_range(1, 3, 0, LEN);
	assert_int_equal(answered(), 0);
}

static void a_device_that_takes_no_memory_is_asked_less_and_less(void **state)
{
	(void)state;
	lend_rc = -ENOMEM;
	for (unsigned i = 0; i < 9; i++) {
		const uint64_t wait = 5u << (i < 6 ? i : 6);

		view_range(0, 100 + i, 0, 1); /* of another block each time */
		assert_int_equal(answered(), 50);
		assert_int_equal(asked[0]->again, i > 0);
		run_jobs(0);
		turn((wait - 1) * SECOND);
		view_range(0, 200 + i, 0, 1);
		assert_int_equal(answered(), 1000);
		turn(1 * SECOND);
	}
	lend_rc = 0;
	given(0);
	lend_rc = -ENOMEM;
	view_range(0, 300, 0, 1);
	run_jobs(0);
	turn(5 * SECOND);
	view_range(0, 301, 0, 1);
	assert_int_equal(answered(), 50);
}

static void who_waits_for_long_asks_less_often(void **state)
{
	static const int after[] = {50, 50, 500, 1000, 1000};
	static const unsigned ms[] = {0, 200, 1800, 2000, 60000};

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		turn(ms[i] * NS_PER_MS);
		view(0);
		assert_int_equal(answered(), after[i]);
	}
	assert_int_equal(asks, 1);
}

static void what_has_no_copy_is_not_asked_for_at_once_again(void **state)
{
	(void)state;
	view(0);
	run_jobs(-ENOSPC);
	view(0);
	assert_int_equal(answered(), 1000);
	assert_int_equal(asks, 0);
	turn(64 * SECOND);
	assert_int_equal(caps.hot_count, 1); /* nor is it forgotten that it failed */
	turn(1 * SECOND);
	assert_int_equal(caps.hot_count, 0);
	lend_rc = -ENOMEM;
	view(0);
	run_jobs(0);
	assert_int_equal(put_back, 1); /* what is not registered is nobody's */
	view(0);
	assert_int_equal(answered(), 1000);
	stopped = true;
	view_range(0, 2, 0, 1);
	assert_int_equal(answered(), 1000);
	assert_int_equal(caps.hot_count, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(there_are_no_more_than_the_limits),
		CASE(one_connection_does_not_have_all_of_them),
		CASE(what_fails_again_and_again_is_tried_less_and_less),
		CASE(for_room_it_is_looked_as_often),
		CASE(what_nobody_has_a_view_of_gives_way),
		CASE(a_device_that_takes_no_memory_is_asked_less_and_less),
		CASE(who_waits_for_long_asks_less_often),
		CASE(what_has_no_copy_is_not_asked_for_at_once_again),
	};

	return cmocka_run_group_tests_name("capsule_view_blocks", tests, NULL, NULL);
}
