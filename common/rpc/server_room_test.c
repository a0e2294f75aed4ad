/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: of connections, and of bytes of requests and answers, no more are kept than there is
 * room for, and those go that have been kept for longest without use. */
#include "common/rpc/server_room.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/base/clock.h"

#define MIB (1ull << 20)

static void strangers_go_first_and_who_has_a_call_out_stays(void **state)
{
	struct room r;
	struct guest g[4];

	(void)state;
	room_init(&r, 2, MIB);
	room_enter(&r, &g[0], 100 * NS_PER_S);
	room_idle(&r, &g[0]);
	room_enter(&r, &g[1], 100 * NS_PER_S);
	assert_null(room_crowded(&r, 200 * NS_PER_S));
	room_enter(&r, &g[2], 101 * NS_PER_S - 1);
	/* the strangers are too young */
	assert_ptr_equal(room_crowded(&r, 101 * NS_PER_S - 1), &g[0]);
	assert_ptr_equal(room_crowded(&r, 101 * NS_PER_S), &g[1]);
	room_leave(&r, &g[1]);
	assert_null(room_crowded(&r, 200 * NS_PER_S));
	room_idle(&r, &g[2]);
	room_enter(&r, &g[3], 200 * NS_PER_S);
	room_idle(&r, &g[0]);
	/* the other one has said something since */
	assert_ptr_equal(room_crowded(&r, 200 * NS_PER_S), &g[2]);
	room_busy(&g[2]);
	assert_ptr_equal(room_crowded(&r, 200 * NS_PER_S), &g[0]);
	room_busy(&g[0]);
	assert_ptr_equal(room_crowded(&r, 200 * NS_PER_S), &g[3]);
	room_busy(&g[3]);
	assert_null(room_crowded(&r, 300 * NS_PER_S));
}

static void the_oldest_large_buffer_goes(void **state)
{
	struct room r;
	struct guest g[3];

	(void)state;
	room_init(&r, 10, MIB);
	for (int i = 0; i < 3; i++)
		room_enter(&r, &g[i], 0);
	room_buffer(&r, &g[0], ROOM_SMALL);
	room_buffer(&r, &g[1], MIB / 2);
	room_buffer(&r, &g[2], MIB / 2);
	assert_null(room_over_buffers(&r, &g[2]));
	room_buffer(&r, &g[1], MIB);
	assert_ptr_equal(room_over_buffers(&r, &g[2]), &g[1]);
	assert_ptr_equal(room_over_buffers(&r, &g[1]), &g[2]); /* not whose turn it is */
	room_leave(&r, &g[2]);
	assert_null(room_over_buffers(&r, &g[0]));
	room_buffer(&r, &g[1], 0);
	assert_int_equal(r.buffer_bytes, 0);
}

static void large_requests_in_service_are_bounded(void **state)
{
	struct room r;
	struct guest g[2];

	(void)state;
	room_init(&r, 10, 12 * MIB);
	room_enter(&r, &g[0], 0);
	room_enter(&r, &g[1], 0);
	room_asks(&r, &g[0], ROOM_SMALL);
	assert_int_equal(r.request_bytes, 0);
	room_asks(&r, &g[0], 8 * MIB);
	assert_false(room_may_ask(&r, &g[0], ROOM_SMALL + 1));
	assert_true(room_may_ask(&r, &g[0], ROOM_SMALL));
	assert_true(room_may_ask(&r, &g[1], 128 * MIB));
	room_asks(&r, &g[1], 4 * MIB);
	assert_false(room_may_ask(&r, &g[1], ROOM_SMALL + 1));
	room_leave(&r, &g[0]);
	assert_false(room_may_ask(&r, &g[1], ROOM_SMALL + 1));
	assert_false(room_answered(&r, &g[0], ROOM_SMALL));
	assert_true(room_answered(&r, &g[0], 8 * MIB));
	assert_true(room_may_ask(&r, &g[1], ROOM_SMALL + 1));
}

static void who_takes_no_answers_goes(void **state)
{
	struct room r;
	struct guest g[2];

	(void)state;
	room_init(&r, 10, MIB);
	room_enter(&r, &g[0], 0);
	room_enter(&r, &g[1], 0);
	room_owes(&r, &g[0], MIB, 10 * NS_PER_S);
	assert_null(room_over_owed(&r, 20 * NS_PER_S));
	room_owes(&r, &g[1], MIB, 20 * NS_PER_S);
	assert_ptr_equal(room_over_owed(&r, 20 * NS_PER_S), &g[0]);
	room_took(&r, &g[0], 10, 20 * NS_PER_S);
	/* both took one within a second, or are new */
	assert_null(room_over_owed(&r, 21 * NS_PER_S - 1));
	assert_ptr_equal(room_over_owed(&r, 21 * NS_PER_S), &g[1]);
	room_leave(&r, &g[1]);
	assert_null(room_over_owed(&r, 30 * NS_PER_S));
	room_took(&r, &g[0], MIB - 10, 30 * NS_PER_S);
	assert_int_equal(r.owed_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_go_first_and_who_has_a_call_out_stays),
		cmocka_unit_test(the_oldest_large_buffer_goes),
		cmocka_unit_test(large_requests_in_service_are_bounded),
		cmocka_unit_test(who_takes_no_answers_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
