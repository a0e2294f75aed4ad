/* SPDX-License-Identifier: Apache-2.0 */
/* Writers over RDMA whose lists of CRCs lie in the sender's memory: none of them waits for a slot
 * for such a list with landings in hand, and however many wait for lanes with a list in hand, there
 * are slots of CRCs for lanes, and lists for writers to another volume. Who ends gives back its
 * list and its place in line whatever the disk does. Who cancels hears the last word when nothing
 * is pulled from its memory any more, whatever the disk does. */
#include "datanode/capsule/capsule_write_test_fixture.h"

static void who_waits_for_a_list_has_no_landing(void **state)
{
	struct slot *held[CRC_SLOTS];
	struct capsule_stream *s;

	(void)state;
	for (uint32_t i = 0; i < CRC_SLOTS; i++)
		held[i] = pool_get(pool, SLOT_CRC, POOL_CTRL);
	s = begin();
	assert_int_equal(landings, 0);
	assert_int_equal(pull_count, 0);
	assert_true(engines[0].src->ops->waits_for_buffers(engines[0].src));
	for (uint32_t i = 0; i < CRC_SLOTS; i++)
		slot_put(held[i]);
	assert_true(s->ready);
	assert_false(s->step(s));
	assert_int_equal(landings, 1);
	assert_int_equal(pull_count, 2);
	assert_false(engines[0].src->ops->waits_for_buffers(engines[0].src));
	end_all();
}

static void lists_leave_slots_for_lanes(void **state)
{
	struct slot *lane[2];
	struct pool_ask a = {.use = POOL_WRITE,
			     .forms = 1,
			     .form[0] = {2, {{SLOT_64K, 1}, {SLOT_CRC, 1}}},
			     .slots = lane};

	(void)state;
	for (uint32_t i = 0; i < WRITERS; i++) {
		volume = i % 2;
		(void)begin();
	}
	assert_true(pool_take(pool, &a));
	assert_int_equal(landings, CRC_SLOTS / 2);
	slot_put(lane[0]);
	slot_put(lane[1]);
	end_all();
}

static void a_stuck_volume_leaves_lists_to_others(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < WRITERS - 1; i++)
		(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4);
	volume = 1;
	(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

/* Its pulls have come, and it goes no further. */
static void cancel(uint32_t i, uint32_t first_pull)
{
	for (uint32_t k = first_pull; k < first_pull + 2; k++) {
		pulls[k]->done(pulls[k], 0);
		pulls[k] = NULL;
	}
	streams[i]->cancel(streams[i], -ECANCELED);
	assert_false(streams[i]->step(streams[i]));
}

/* As many writers as there are lists for one volume, and @more. */
static void begin_all(uint32_t more)
{
	for (uint32_t i = 0; i < CRC_SLOTS / 4 + more; i++)
		(void)begin();
	assert_int_equal(landings, CRC_SLOTS / 4);
	assert_int_equal(pull_count, CRC_SLOTS / 2);
	assert_int_equal(pool_is_pressed(pool), more > 0);
}

static void who_cancels_leaves_the_line_for_lists(void **state)
{
	struct capsule_stream *dead, *next;

	(void)state;
	begin_all(2);
	dead = streams[CRC_SLOTS / 4];
	next = streams[CRC_SLOTS / 4 + 1];
	dead->cancel(dead, -ECANCELED);
	assert_false(dead->step(dead));
	assert_int_equal(closed_count, 1);
	cancel(0, 0);
	assert_false(next->step(next));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_cancels_gives_back_a_list_that_has_just_come(void **state)
{
	struct capsule_stream *dead, *next;

	(void)state;
	begin_all(2);
	dead = streams[CRC_SLOTS / 4];
	next = streams[CRC_SLOTS / 4 + 1];
	cancel(0, 0);
	dead->cancel(dead, -ECANCELED);
	assert_false(dead->step(dead));
	assert_false(next->step(next));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

static void who_has_waited_too_long_for_a_list_leaves_the_line(void **state)
{
	struct capsule_stream *late;

	(void)state;
	begin_all(1);
	late = streams[CRC_SLOTS / 4];
	last_timer->fire(last_timer);
	assert_int_equal(failed_count, 1);
	assert_false(late->step(late));
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_waits_behind_a_stuck_hop_does_not_fail(void **state)
{
	struct capsule_stream *s;

	(void)state;
	begin_all(1);
	hop_is_stuck = true;
	last_timer->fire(last_timer);
	hop_is_stuck = false;
	assert_int_equal(failed_count, 0);
	s = streams[CRC_SLOTS / 4];
	assert_false(s->step(s));
	cancel(0, 0);
	assert_false(s->step(s));
	assert_int_equal(landings, CRC_SLOTS / 4 + 1);
	end_all();
}

static void who_waits_behind_a_stuck_hop_does_not_wait_for_ever(void **state)
{
	struct rtimer *t;
	struct capsule_stream *late;

	(void)state;
	begin_all(1);
	late = streams[CRC_SLOTS / 4];
	t = last_timer;
	last_timer = NULL;
	hop_is_stuck = true;
	t->fire(t);
	hop_is_stuck = false; /* it is blamed once */
	assert_ptr_equal(last_timer, t);
	t->fire(t);
	assert_int_equal(failed_count, 1);
	assert_false(late->step(late));
	assert_false(pool_is_pressed(pool));
	end_all();
}

static void who_cancels_does_not_wait_for_the_disk(void **state)
{
	struct capsule_stream *s = begin();

	(void)state;
	assert_int_equal(pull_count, 2);
	s->cancel(s, -ECANCELED);
	assert_false(s->step(s));
	assert_int_equal(closed_count, 0); /* a pull is under way */
	pulls[0]->done(pulls[0], 0);
	pulls[1]->done(pulls[1], 0);
	assert_false(s->step(s));
	assert_int_equal(closed_count, 1);
	assert_int_equal(closed_id, 1);
	assert_int_equal(s->id, 0);
	assert_false(s->step(s));
	engines[0].src->ops->ack(engines[0].src, 0, (uint8_t[]){0}, 1);
	engines[0].src->ops->ended(engines[0].src, -ECANCELED);
	assert_true(s->step(s));
	assert_int_equal(closed_count, 1);
	s->free(s);
	count = pull_count = landings = closed_count = failed_count = handed_count = 0;
	assert_int_equal(pool_slots_out(pool), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_for_a_list_has_no_landing),
		cmocka_unit_test(lists_leave_slots_for_lanes),
		cmocka_unit_test(a_stuck_volume_leaves_lists_to_others),
		cmocka_unit_test(who_cancels_leaves_the_line_for_lists),
		cmocka_unit_test(who_cancels_gives_back_a_list_that_has_just_come),
		cmocka_unit_test(who_has_waited_too_long_for_a_list_leaves_the_line),
		cmocka_unit_test(who_waits_behind_a_stuck_hop_does_not_fail),
		cmocka_unit_test(who_waits_behind_a_stuck_hop_does_not_wait_for_ever),
		cmocka_unit_test(who_cancels_does_not_wait_for_the_disk),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
