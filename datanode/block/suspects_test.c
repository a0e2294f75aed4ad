/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of suspects must wait for the pace of the node and for the one of their own volume, and
 * for no other volume: a disk that does not answer lets nothing come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "datanode/block/suspects.h"

#define BEGUN_MAX 64

/* ---- the reactor and the store ---- */

static struct engine_core core;
static struct rtimer *timer;
static struct {
	struct offload *o;
	uint32_t queue;
} begun[BEGUN_MAX];
static uint32_t begun_count;

uint32_t replica_volume(struct block_pool *bp, int64_t id)
{
	(void)bp;
	return (uint32_t)(id / 1000);
}

void replica_suspect(struct block_pool *bp, const struct block *b)
{
	(void)bp, (void)b;
}

void reactor_offload_to(struct reactor *r, uint32_t queue, struct offload *o)
{
	(void)r;
	assert_in_range(begun_count, 0, BEGUN_MAX - 1);
	begun[begun_count].o = o;
	begun[begun_count++].queue = queue;
}

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	(void)r, (void)deadline_ns;
	timer = t;
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	(void)r, (void)t;
	timer = NULL;
}

/* ---- the cases ---- */

static bool add(struct suspects *s, int64_t id)
{
	const struct block b = {.id = id, .gs = 1, .len = 1ull << 40};

	return suspects_add(s, &core, NULL, &b);
}

/* The pace allows the next one. */
static void time_passes(struct suspects *s)
{
	struct rtimer *t = timer;

	s->free_ns = 0;
	timer = NULL;
	if (t)
		t->fire(t);
}

static void answer(uint32_t i)
{
	begun[i].o->work(begun[i].o);
	begun[i].o->done(begun[i].o);
}

static int setup(void **state)
{
	static struct suspects s;

	s = (struct suspects){0};
	suspects_init(&s);
	core = (struct engine_core){0};
	begun_count = 0;
	timer = NULL;
	*state = &s;
	return 0;
}

static int teardown(void **state)
{
	suspects_fini(*state);
	return 0;
}

static void a_check_on_a_volume_that_hangs_holds_up_no_other_volume(void **state)
{
	struct suspects *s = *state;

	assert_true(add(s, 1001)); /* never answered */
	assert_true(add(s, 2001));
	time_passes(s);
	assert_int_equal(begun_count, 2);
	assert_int_equal(begun[0].queue, 2);
	assert_int_equal(begun[1].queue, 3);
	answer(1);
	assert_true(add(s, 2002));
	time_passes(s);
	assert_int_equal(begun_count, 3);
	assert_int_equal(begun[2].queue, 3);
	answer(2);
	answer(0);
	assert_int_equal(core.op_count, 0);
}

static void suspects_of_a_volume_that_hangs_leave_room_for_those_of_others(void **state)
{
	struct suspects *s = *state;

	for (int i = 0; i < 2 * SUSPECTS_MAX; i++)
		(void)add(s, 1000 + i);
	assert_true(add(s, 2001));
	time_passes(s);
	assert_int_equal(begun_count, 2);
	assert_int_equal(begun[1].queue, 3);
}

static void a_volume_checks_one_replica_at_a_time(void **state)
{
	struct suspects *s = *state;

	assert_true(add(s, 1001));
	assert_true(add(s, 1002));
	assert_false(add(s, 1002));
	time_passes(s);
	assert_int_equal(begun_count, 1);
	answer(0);
	time_passes(s);
	assert_int_equal(begun_count, 2);
	assert_int_equal(begun[1].queue, 2);
	assert_false(add(s, 1001)); /* checked lately */
	answer(1);
	assert_int_equal(core.op_count, 0);
}

static void checks_begin_at_the_pace_of_the_node(void **state)
{
	struct suspects *s = *state;

	assert_true(add(s, 1001));
	assert_true(add(s, 2001));
	assert_int_equal(begun_count, 1);
	assert_non_null(timer);
	suspects_stop(s, &core);
	assert_null(timer);
	answer(0);
	assert_false(add(s, 3001));
	assert_int_equal(begun_count, 1);
	assert_int_equal(core.op_count, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_check_on_a_volume_that_hangs_holds_up_no_other_volume),
		T(suspects_of_a_volume_that_hangs_leave_room_for_those_of_others),
		T(a_volume_checks_one_replica_at_a_time),
		T(checks_begin_at_the_pace_of_the_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
