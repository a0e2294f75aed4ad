/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: no order of events lets a side send without a receive for it, or stop for ever.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/transport/credit.h"

#define CREDITS_LEAST 4 /* docs/wire.md section 2 */

static void each_class_leaves_what_the_next_one_needs_and_no_grant_goes_backwards(void **state)
{
	struct credit c;

	(void)state;
	credit_init(&c, 4, 8);
	c.granted = c.sent = 65533; /* wraps on the way */
	assert_int_equal(credit_heard(&c, 1), 0);
	assert_int_equal(credit_avail(&c), 4);
	for (int i = 0; i < 2; i++)
		assert_int_equal(credit_take(&c, CREDIT_DATA), 0);
	assert_int_equal(credit_take(&c, CREDIT_DATA), -EAGAIN);
	assert_int_equal(credit_take(&c, CREDIT_CONTROL), 0);
	assert_int_equal(credit_take(&c, CREDIT_CONTROL), -EAGAIN);
	assert_int_equal(credit_take(&c, CREDIT_BEAT), 0);
	assert_int_equal(credit_take(&c, CREDIT_BEAT), -EAGAIN);
	assert_int_equal(credit_heard(&c, 9), 0);
	assert_int_equal(credit_heard(&c, 8), -EPROTO);
	assert_int_equal(credit_heard(&c, 10), -EPROTO);
	assert_int_equal(credit_avail(&c), 8);
}

/* Two sides that want to send for ever, every order of events that the seed gives. */
struct side {
	struct credit credit;
	struct grant grant;
	uint16_t wire[256]; /* messages on the way to this side: their credits field */
	uint32_t head, tail;
	uint32_t data, beats;
	uint32_t posted; /* receives of this side that its peer may use */
};

static void send_one(struct side *from, struct side *to, bool control)
{
	assert_int_equal(credit_take(&from->credit, control ? CREDIT_BEAT : CREDIT_DATA), 0);
	assert_true(to->tail - to->head < to->posted); /* else: receiver not ready */
	to->wire[to->tail++ % 256] = grant_say(&from->grant);
	control ? from->beats++ : from->data++;
}

static void receive_one(struct side *s)
{
	assert_int_equal(grant_received(&s->grant), 0);
	assert_int_equal(credit_heard(&s->credit, s->wire[s->head++ % 256]), 0);
	if (grant_wants(&s->grant))
		grant_add(&s->grant, 1);
	else
		s->posted--; /* somebody else has it now */
}

/* Does what it can do in this turn; false: nothing. */
static bool act(struct side *s, struct side *peer, bool send_data)
{
	if (grant_due(&s->grant) && credit_may_send(&s->credit, CREDIT_BEAT)) {
		send_one(s, peer, true);
		return true;
	}
	if (send_data && credit_may_send(&s->credit, CREDIT_DATA)) {
		send_one(s, peer, false);
		return true;
	}
	if (s->head == s->tail)
		return false;
	receive_one(s);
	return true;
}

/* What a side grants shrinks, and grows again. */
static void resize(struct side *s, uint16_t most, uint32_t by_chance)
{
	const uint16_t target =
		(uint16_t)(CREDITS_LEAST + by_chance / 65536 % (most - CREDITS_LEAST + 1u));

	s->grant.target = target;
	if (grant_out(&s->grant) < target) {
		const uint16_t more = (uint16_t)(target - grant_out(&s->grant));

		s->posted += more;
		grant_add(&s->grant, more);
	}
}

static void check_flow(uint16_t window, uint32_t seed, bool both, bool moves)
{
	struct side s[2] = {0};
	uint32_t stuck = 0;

	for (int i = 0; i < 2; i++) {
		credit_init(&s[i].credit, window, window);
		grant_init(&s[i].grant, window);
		s[i].posted = window;
	}
	for (int turn = 0; turn < 20000; turn++) {
		seed = seed * 1664525 + 1013904223;
		int i = seed >> 31;
		if (moves && turn % 97 == 0)
			resize(&s[i], window, seed);
		bool acted = act(&s[i], &s[!i], (both || !i) && (seed >> 30 & 1));

		stuck = acted ? 0 : stuck + 1;
		assert_true(stuck < 200);
	}
	assert_true(s[0].data > 1000);
	/* Credits cost little: at most one heartbeat for each data message, even with 4 credits. */
	assert_true(s[0].beats + s[1].beats <= s[0].data + s[1].data);
}

static void no_order_of_events_stalls_or_overruns_the_receives(void **state)
{
	(void)state;
	for (uint16_t window = CREDITS_LEAST; window <= 64; window = (uint16_t)(window * 2))
		for (uint32_t seed = 0; seed < 10; seed++) {
			check_flow(window, seed, true, false);
			check_flow(window, seed, false, false);
			check_flow(window, seed, true, true);
			check_flow(window, seed, false, true);
		}
}

static void a_message_without_a_credit_is_noticed(void **state)
{
	struct grant g;

	(void)state;
	grant_init(&g, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(grant_received(&g), 0);
	assert_false(grant_due(&g)); /* nothing to give */
	grant_add(&g, 1);
	assert_true(grant_due(&g));                    /* one is enough when the peer has none */
	assert_int_equal(grant_received(&g), -EPROTO); /* posted, but never said */
	assert_int_equal(grant_say(&g), 5);
	assert_false(grant_due(&g));
	assert_int_equal(grant_received(&g), 0);
}

static void half_of_the_credits_are_granted_again_at_once(void **state)
{
	struct grant g;

	(void)state;
	grant_init(&g, 8);
	for (int i = 0; i < 4; i++) {
		assert_false(grant_due(&g));
		assert_int_equal(grant_received(&g), 0);
		grant_add(&g, 1);
	}
	assert_true(grant_due(&g)); /* the peer has four left */
}

static void a_grant_shrinks_as_it_is_used_and_grows_at_once(void **state)
{
	struct grant g;

	(void)state;
	grant_init(&g, 8);
	g.target = 4;
	for (int i = 0; i < 4; i++) {
		assert_false(grant_wants(&g));
		assert_int_equal(grant_received(&g), 0);
	}
	assert_int_equal(grant_out(&g), 4);
	assert_false(grant_wants(&g));
	assert_false(grant_due(&g)); /* nothing has been added that the peer does not know */
	assert_int_equal(grant_received(&g), 0);
	assert_true(grant_wants(&g));
	g.target = 16;
	grant_add(&g, (uint16_t)(g.target - grant_out(&g)));
	assert_int_equal(grant_left(&g), 3);
	assert_true(grant_due(&g));
	assert_int_equal(grant_say(&g), 8 + 13);
	assert_int_equal(grant_left(&g), 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			each_class_leaves_what_the_next_one_needs_and_no_grant_goes_backwards),
		cmocka_unit_test(no_order_of_events_stalls_or_overruns_the_receives),
		cmocka_unit_test(a_message_without_a_credit_is_noticed),
		cmocka_unit_test(a_grant_shrinks_as_it_is_used_and_grows_at_once),
		cmocka_unit_test(half_of_the_credits_are_granted_again_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
