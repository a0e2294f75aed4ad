/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a view is given to who may read the block, of exactly its copy, to READ and
 * nothing else, on the connection that asked; it ends with its lease, with VIEW_END or with the
 * connection, and not before; a copy that is over is given to nobody new, and let go of when nobody
 * views it, not before. */
#include "datanode/capsule/capsule_view_test_fixture.h"

static void a_view_is_of_the_copy_and_asked_for_again_until_it_is_there(void **state)
{
	const struct capsule_view *v = &said.view_reply.v;

	(void)state;
	view(0);
	assert_int_equal(answered(), 50);
	view(1);
	assert_int_equal(answered(), 50);
	assert_int_equal(asks, 1); /* once */
	run_jobs(0);
	view(0);
	assert_int_equal(answered(), 0);
	assert_true(v->crc_type == CRC_CRC32C && v->bytes_per_checksum == 512 && v->ms == 10000);
	assert_true(v->data_addr == (uintptr_t)bytes && v->data_len == LEN);
	assert_true(v->crc_addr == (uintptr_t)bytes + CRC_AT && v->crc_len == CRCS);
	assert_int_equal(v->rkey, 101);
	view(1);
	assert_int_equal(answered(), 0);
	assert_int_equal(v->rkey, 102); /* of its own */
	view(0);
	assert_int_equal(v->rkey, 101); /* the same again */
	assert_int_equal(opens, 2);
}

static void it_ends_with_its_lease_and_not_before(void **state)
{
	(void)state;
	given(0);
	turn(9 * SECOND);
	assert_int_equal(closes, 0);
	view(0); /* ten more */
	assert_int_equal(answered(), 0);
	turn(9 * SECOND);
	assert_int_equal(closes, 0);
	turn(1 * SECOND);
	assert_int_equal(closes, 1);
	turn(1 * SECOND);
	assert_int_equal(closes, 1);
	view(0); /* it is just being closed */
	assert_int_equal(answered(), 1000);
	closed(0);
	assert_int_equal(conn[0].view_count, 0);
	assert_int_equal(window[0].of ? 1 : 0, 0);
	view(0);
	assert_int_equal(answered(), 0);
	assert_int_equal(opens, 2);
}

/* Whenever it was given: not with the next look at all of them. */
static void it_ends_at_its_moment(void **state)
{
	(void)state;
	given(0);
	turn(SECOND / 4);
	given(1);
	turn(3 * SECOND / 4);
	for (unsigned i = 0; i < 8; i++)
		turn(SECOND);
	assert_int_equal(closes, 0);
	turn(SECOND);
	assert_int_equal(closes, 1);
	turn(SECOND / 4 - 1);
	assert_int_equal(closes, 1);
	turn(1);
	assert_int_equal(closes, 2);
	turn(5 * SECOND - SECOND / 4 - 1);
	assert_int_equal(hung_up, 0);
	turn(1);
	assert_true(hung_up == 1 && !conn[0].link.xc);
	turn(SECOND / 4 - 1);
	assert_int_equal(hung_up, 1);
	turn(1);
	assert_true(hung_up == 2 && !conn[1].link.xc);
	turn(SECOND); /* there is nothing to be done for them before they are gone */
	assert_int_equal(caps.hot_timer.deadline_ns, now + SECOND);
}

static void a_long_turn_takes_nothing_of_a_lease(void **state)
{
	(void)state;
	given(0);
	turn_lasts = 3 * SECOND;
	view(0);
	turn_lasts = 0;
	turn(9 * SECOND);
	assert_int_equal(closes, 0);
	turn(SECOND);
	assert_int_equal(closes, 1);
}

static void who_keeps_it_open_loses_the_connection(void **state)
{
	(void)state;
	given(0);
	given(1);
	turn(10 * SECOND);
	assert_int_equal(closes, 2);
	closed_one(1, 0); /* the other one does as it should */
	turn(4 * SECOND);
	assert_int_equal(hung_up, 0);
	turn(1 * SECOND);
	assert_true(hung_up == 1 && !conn[0].link.xc && conn[1].link.xc);
	assert_int_equal(revokes, 1);
	turn(9 * SECOND);
	assert_int_equal(hung_up, 1);
}

static void who_gives_it_back_names_it(void **state)
{
	struct capsule m = {.type = CAPSULE_VIEW_END, .view_end = {102}};

	(void)state;
	given(0);
	given(1);
	capsule_view_end(&conn[0], &m); /* another one's */
	assert_int_equal(closes, 0);
	capsule_view_end(&conn[1], &m);
	capsule_view_end(&conn[1], &m);
	assert_int_equal(closes, 1);
	closed(0);
	assert_int_equal(open_now(), 1);
}

static void a_copy_that_is_over_goes_when_its_views_have_ended(void **state)
{
	(void)state;
	given(0);
	copy.over = true;
	turn(2 * SECOND);
	view(0);
	assert_int_equal(answered(), 1000); /* not for longer */
	view(1);
	assert_int_equal(answered(), 1000);
	assert_int_equal(closes, 0);
	turn(7 * SECOND);
	assert_int_equal(closes, 0);
	turn(1 * SECOND);
	assert_int_equal(closes, 1);
	turn(1 * SECOND);
	assert_int_equal(asks, 0); /* the window is not closed yet */
	closed(0);
	assert_int_equal(put_back, 0);
	turn(1 * SECOND);
	assert_int_equal(asks, 1);
	view(0);
	assert_int_equal(answered(), 1000);
	run_jobs(0);
	assert_true(put_back == 1 && memories == 0);
	copy.over = false;
	given(0); /* the new one */
}

static void nobodys_copy_is_let_go_of(void **state)
{
	(void)state;
	given(0);
	for (unsigned i = 0; i < 11; i++)
		turn(SECOND);
	closed(0);
	for (unsigned i = 0; i < 58; i++)
		turn(SECOND);
	assert_int_equal(asks, 0);
	turn(2 * SECOND);
	assert_int_equal(asks, 1);
	run_jobs(0);
	assert_int_equal(put_back, 1);
	turn(2 * SECOND);
	assert_int_equal(caps.hot_timer.deadline_ns, 0); /* an idle node is woken by nothing */
}

static void with_its_connection_the_memory_is_kept_to_the_end(void **state)
{
	(void)state;
	given(0);
	given(1);
	copy.over = true;
	capsule_views_lost(&conn[0].link);
	conn[0].link.xc = NULL;
	assert_int_equal(revokes, 1);
	turn(11 * SECOND);
	assert_int_equal(closes, 1); /* of the other one */
	capsule_views_lost(&conn[1].link);
	conn[1].link.xc = NULL;
	assert_int_equal(revokes, 2); /* it was not closed any more */
	for (unsigned i = 0; i < WINDOWS; i++)
		assert_null(window[i].of);
	turn(60 * SECOND);
	assert_int_equal(asks, 0); /* the queue pairs are there yet */
	capsule_views_free(&conn[0]);
	turn(SECOND);
	assert_int_equal(asks, 0);
	capsule_views_free(&conn[1]);
	turn(SECOND);
	assert_int_equal(asks, 1);
}

/* First the closing fails, then the connection is closed. */
static void a_window_is_given_back_once(void **state)
{
	struct xop *op;

	(void)state;
	given(0);
	turn(10 * SECOND);
	assert_int_equal(closes, 1);
	op = window[0].closing;
	closed(-ECONNRESET);
	assert_int_equal(conn[0].view_count, 1);
	capsule_views_lost(&conn[0].link);
	assert_int_equal(revokes, 1);
	op->done(op, -ECONNRESET); /* or the other way round */
	assert_int_equal(conn[0].view_count, 1);
	capsule_views_free(&conn[0]);
	assert_int_equal(revokes, 1);
}

/* One may take long, or for ever. */
static void the_end_tells_of_what_devices_hold_and_does_not_wait(void **state)
{
	(void)state;
	given(0);
	capsule_views_lost(&conn[0].link);
	capsule_views_free(&conn[0]);
	capsule_hot_end(&caps);
	assert_int_equal(caps.hot_held, 1);
	assert_int_equal(memories, 1);
	capsule_hot_end(&caps); /* once */
	assert_int_equal(caps.hot_held, 1);
	assert_int_equal(put_back, 0);
	lets_go();
	assert_int_equal(caps.hot_held, 0);
}

static void who_may_not_read_it_gets_none(void **state)
{
	static const struct {
		uint64_t off, len, gs;
	} no[] = {{0, LEN + 1, GS}, {LEN, 1, GS}, {0, LEN, GS - 1}, {0, LEN, GS + 1}};

	(void)state;
	given(0);
	for (unsigned i = 0; i < 4; i++) {
		asked_gs = no[i].gs;
		view_range(1, 1, no[i].off, no[i].len);
		assert_int_equal(said.view_reply.v.status, DT_ERROR_UNSUPPORTED);
		assert_int_equal(said.view_reply.v.ms, 0);
	}
	asked_gs = GS;
	view_range(1, 1, UINT64_MAX, 2);
	assert_int_equal(said.view_reply.v.status, DT_ERROR_INVALID);
	token_rc = -EACCES;
	view(1);
	assert_int_equal(said.view_reply.v.status, DT_ERROR_ACCESS_TOKEN);
	view(0); /* not for longer either */
	assert_int_equal(said.view_reply.v.status, DT_ERROR_ACCESS_TOKEN);
	turn(10 * SECOND);
	assert_int_equal(closes, 1);
	assert_int_equal(opens, 1);
	token_rc = 0;
	agreed = false;
	view(1);
	capsule_view_end(&conn[1], &(struct capsule){0});
	assert_int_equal(refusals, 2);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_view_is_of_the_copy_and_asked_for_again_until_it_is_there),
		CASE(it_ends_with_its_lease_and_not_before),
		CASE(it_ends_at_its_moment),
		CASE(a_long_turn_takes_nothing_of_a_lease),
		CASE(who_keeps_it_open_loses_the_connection),
		CASE(who_gives_it_back_names_it),
		CASE(a_copy_that_is_over_goes_when_its_views_have_ended),
		CASE(nobodys_copy_is_let_go_of),
		CASE(with_its_connection_the_memory_is_kept_to_the_end),
		CASE(a_window_is_given_back_once),
		CASE(the_end_tells_of_what_devices_hold_and_does_not_wait),
		CASE(who_may_not_read_it_gets_none),
	};

	return cmocka_run_group_tests_name("capsule_view", tests, NULL, NULL);
}
