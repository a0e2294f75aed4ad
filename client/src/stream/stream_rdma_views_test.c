/* SPDX-License-Identifier: Apache-2.0 */
/* What a client remembers of blocks that it reads one-sided; the node and the device are played.
 * What must hold: when there are more blocks than it keeps views of, none is given back that is
 * asked for, or whose key may be another one's by then; and a block of which the bytes were wrong
 * is left alone, whatever else comes. */
#include "client/src/stream/stream_rdma_view_test_fixture.h"

static void a_view_that_is_asked_for_is_not_given_up(void **state)
{
	(void)state;
	silent = true;
	for (uint64_t id = 1; id <= RDMA_VIEWS_MAX + 3; id++)
		assert_int_equal(get_of(id, 0, 10), 1);
	settle();
	assert_int_equal(views, RDMA_VIEWS_MAX); /* the others are ordinary reads */
	assert_int_equal(ends, 0);
}

static void what_has_ended_by_itself_is_not_given_back(void **state)
{
	(void)state;
	given.ms = 3200; /* 0.2 s to use it */
	for (uint64_t id = 1; id <= RDMA_VIEWS_MAX; id++)
		assert_int_equal(get_of(id, 0, 10), 1);
	settle();
	(void)poll(NULL, 0, 250);
	given.ms = 10000;
	assert_int_equal(get_of(RDMA_VIEWS_MAX + 1, 0, 10), 1);
	settle();
	assert_int_equal(get_of(RDMA_VIEWS_MAX + 1, 0, 10), STREAM_ONESIDED);
	assert_int_equal(ends, 0);
}

static void wrong_bytes_are_remembered_beside_other_blocks(void **state)
{
	unsigned before;

	(void)state;
	is_viewed();
	damages = true;
	assert_int_equal(get(4096, PIECE), 1);
	damages = false;
	for (uint64_t id = 2; id < 3 * RDMA_VIEWS_MAX; id++)
		(void)get_of(id, 0, 10);
	settle();
	before = views;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(get(0, 1000), 1);
		settle();
	}
	assert_int_equal(views, before);
}

static void say_unsaid(struct rtask *t)
{
	(void)t;
	said[all_said % REQUESTS] = unsaid;
	if (all_said++ == first_said)
		reactor_post(conn.reactor, &saying);
}

static void more_time_makes_no_bytes_right(void **state)
{
	struct rtask t;

	(void)state;
	given.ms = 3400;
	is_viewed();
	(void)poll(NULL, 0, 250);
	silent = damages = true;
	assert_int_equal(get(4096, PIECE), 1);
	assert_int_equal(views, 2); /* more time was asked for */
	silent = damages = false;
	rdma_run(fs.rdma, &t, say_unsaid);
	settle();
	assert_int_equal(get(0, 1000), 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, view_setup, view_teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_view_that_is_asked_for_is_not_given_up),
		CASE(what_has_ended_by_itself_is_not_given_back),
		CASE(wrong_bytes_are_remembered_beside_other_blocks),
		CASE(more_time_makes_no_bytes_right),
	};

	log_init("stream_rdma_views_test", LOG_ERROR);
	return cmocka_run_group_tests_name("stream_rdma_views", tests, NULL, NULL);
}
