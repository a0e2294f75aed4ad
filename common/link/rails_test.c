/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: connections spread over the addresses of a node, those that fail are left alone
 * for a while and longer each time, and no other node is taken for the one that is meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/link/rails.h"

static struct rails t;
static uint64_t now;

static struct net_addr at(const char *ip)
{
	struct net_addr a;

	assert_int_equal(net_resolve(ip, 9866, &a, NULL), 0);
	return a;
}

/* The node number @id, which has 10.0.@i.1 for each i < @n. */
static struct verbs_hello says(uint64_t id, uint8_t n)
{
	struct verbs_hello h = {.node = id, .rails = n};

	for (uint8_t i = 0; i < n; i++)
		memcpy(h.rail[i], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, i, 1}, 16);
	return h;
}

static struct rail *get(const char *node, const char *want)
{
	const struct net_addr a = at(node);
	struct rail *r = rails_get(&t, &a, now);
	char text[NET_TEXT_MAX];

	assert_non_null(r);
	assert_string_equal(net_text(rails_addr(r), text), want);
	return r;
}

static struct rail *up(const char *node, const char *want, struct verbs_hello h)
{
	struct rail *r = get(node, want);

	assert_true(rails_up(&t, r, &h));
	return r;
}

static int begin(void **state)
{
	(void)state;
	rails_init(&t, false);
	now = NS_PER_S;
	return 0;
}

static int end(void **state)
{
	(void)state;
	rails_fini(&t);
	return 0;
}

static void connections_spread_over_what_the_node_has(void **state)
{
	const struct net_addr node = at("10.0.0.1");
	struct rail *a, *b, *c;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	assert_int_equal(rails_state(&t, &node, now).unused, 1);
	b = up("10.0.0.1", "10.0.1.1:9866", says(7, 2));
	assert_int_equal(rails_state(&t, &node, now).unused, 0);
	c = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	rails_put(&t, a);
	rails_put(&t, c);
	a = get("10.0.0.1", "10.0.0.1:9866");
	rails_put(&t, a);
	rails_put(&t, b);
	rails_put(&t, NULL);
}

static void a_node_that_tells_nothing_has_one_address(void **state)
{
	struct rail *a, *b;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(0, 0));
	b = up("10.0.0.1", "10.0.0.1:9866", says(0, 0));
	rails_put(&t, a);
	rails_put(&t, b);
}

static void who_wants_none_uses_none(void **state)
{
	struct rail *a, *b;

	(void)state;
	t.off = true;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	b = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	rails_put(&t, a);
	rails_put(&t, b);
}

/* Two nodes may have the same address on networks that do not meet. */
static void another_node_at_the_address_is_not_taken(void **state)
{
	const struct verbs_hello other = says(8, 2), none = says(0, 0);
	struct rail *a, *b;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	b = get("10.0.0.1", "10.0.1.1:9866");
	assert_false(rails_up(&t, b, &other));
	assert_false(rails_up(&t, b, &none));
	rails_put(&t, a);
	rails_put(&t, b);
}

/* It says another number then, and at the address that it is known by it is believed. */
static void a_node_that_has_started_again_is_known_anew(void **state)
{
	const struct verbs_hello later = says(9, 2);
	struct rail *a, *b;

	(void)state;
	/* its end broke the connection; the other address has another process than was told */
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	rails_failed(&t, a, now);
	rails_put(&t, a);
	b = get("10.0.0.1", "10.0.1.1:9866");
	assert_false(rails_up(&t, b, &later));
	rails_failed(&t, b, now);
	rails_put(&t, b);
	a = up("10.0.0.1", "10.0.0.1:9866", later);
	now += RAILS_AVOID_NS;
	b = up("10.0.0.1", "10.0.1.1:9866", later);
	rails_put(&t, a);
	rails_put(&t, b);
}

/* All that were there break at the same time, and are not counted one by one. */
static void what_breaks_many_connections_is_one_failure(void **state)
{
	const struct net_addr node = at("10.0.0.1");
	struct rail *a, *b[4];

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	b[0] = up("10.0.0.1", "10.0.1.1:9866", says(7, 2));
	for (int i = 1; i < 4; i++)
		b[i] = b[0];
	for (int i = 0; i < 4; i++)
		rails_failed(&t, b[i], now);
	rails_put(&t, b[0]);
	assert_int_equal(rails_state(&t, &node, now).good, 1);
	now += RAILS_AVOID_NS;
	assert_int_equal(rails_state(&t, &node, now).good, 2);
	rails_put(&t, a);
}

static void what_failed_is_left_alone_and_longer_each_time(void **state)
{
	const struct net_addr node = at("10.0.0.1");
	const struct verbs_hello h = says(7, 2);
	uint64_t rest = RAILS_AVOID_NS;
	struct rail *a, *b;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", h);
	for (int i = 0; i < 9; i++) {
		b = get("10.0.0.1", "10.0.1.1:9866");
		rails_failed(&t, b, now);
		rails_put(&t, b);
		now += rest - 1;
		assert_int_equal(rails_state(&t, &node, now).unused, 0);
		b = get("10.0.0.1", "10.0.0.1:9866"); /* two there meanwhile */
		rails_put(&t, b);
		now++;
		assert_int_equal(rails_state(&t, &node, now).unused, 1);
		if (i < (int)RAILS_AVOID_EXP)
			rest *= 2;
	}
	b = get("10.0.0.1", "10.0.1.1:9866");
	assert_true(rails_up(&t, b, &h)); /* all is forgiven */
	rails_failed(&t, b, now);
	rails_put(&t, b);
	now += RAILS_AVOID_NS;
	assert_int_equal(rails_state(&t, &node, now).unused, 1);
	rails_put(&t, a);
	rails_failed(&t, NULL, now);
}

/* The address that it is known by is down: another one serves. */
static void the_first_address_may_be_the_one_that_fails(void **state)
{
	struct rail *a, *b;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	rails_failed(&t, a, now);
	rails_put(&t, a);
	b = up("10.0.0.1", "10.0.1.1:9866", says(7, 2));
	now++;
	rails_failed(&t, b, now);
	rails_put(&t, b);
	a = get("10.0.0.1", "10.0.0.1:9866"); /* both are: that which may be tried first */
	rails_put(&t, a);
}

static void an_address_that_is_not_told_any_more_is_not_used(void **state)
{
	const struct verbs_hello fewer = says(7, 1), more = says(7, 4);
	const struct net_addr node = at("10.0.0.1");
	struct rail *a, *b;

	(void)state;
	a = up("10.0.0.1", "10.0.0.1:9866", says(7, 2));
	b = up("10.0.0.1", "10.0.1.1:9866", says(7, 2));
	assert_true(rails_up(&t, a, &fewer));
	rails_put(&t, b);
	assert_int_equal(rails_state(&t, &node, now).unused, 0);
	assert_true(rails_up(&t, a, &more));
	assert_int_equal(rails_state(&t, &node, now).unused, 3);
	for (uint8_t i = 100; i < 110; i++) { /* new ones each time: the old ones make room */
		struct verbs_hello h = says(7, 4);

		for (uint8_t k = 0; k < 4; k++)
			h.rail[k][13] = i;
		assert_true(rails_up(&t, a, &h));
		assert_int_equal(rails_state(&t, &node, now).unused, 4);
	}
	rails_put(&t, a);
}

static void no_node_sends_us_where_no_node_is(void **state)
{
	static const uint8_t bad[][16] = {{[10] = 0xff, 0xff, 127, 0, 0, 1},
					  {[10] = 0xff, 0xff, 0, 0, 0, 0},
					  {[10] = 0xff, 0xff, 224, 0, 0, 1},
					  {[10] = 0xff, 0xff, 255, 255, 255, 255},
					  {[15] = 1},
					  {[15] = 0},
					  {0xfe, 0x80, [15] = 1},
					  {0xff, 2, [15] = 1}};
	const struct net_addr node = at("10.0.0.1");
	struct rail *a;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct verbs_hello h = says(7, 1);

		memcpy(h.rail[0], bad[i], 16);
		a = get("10.0.0.1", "10.0.0.1:9866");
		assert_true(rails_up(&t, a, &h));
		assert_int_equal(rails_state(&t, &node, now).unused, 0);
		rails_put(&t, a);
	}
}

static void what_is_remembered_is_bounded(void **state)
{
	struct rail *a;
	char ip[32];

	(void)state;
	a = get("10.0.0.1", "10.0.0.1:9866");
	for (uint32_t i = 0; i < 2 * RAILS_NODES; i++) {
		struct net_addr node;
		struct rail *r;

		snprintf(ip, sizeof(ip), "10.1.%u.%u", i / 256, i % 256);
		node = at(ip);
		r = rails_get(&t, &node, now);
		assert_non_null(r);
		rails_put(&t, r);
	}
	assert_int_equal(t.count, RAILS_NODES);
	rails_put(&t, a); /* it has stayed */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(connections_spread_over_what_the_node_has),
		CASE(a_node_that_tells_nothing_has_one_address),
		CASE(who_wants_none_uses_none),
		CASE(another_node_at_the_address_is_not_taken),
		CASE(a_node_that_has_started_again_is_known_anew),
		CASE(what_breaks_many_connections_is_one_failure),
		CASE(what_failed_is_left_alone_and_longer_each_time),
		CASE(the_first_address_may_be_the_one_that_fails),
		CASE(an_address_that_is_not_told_any_more_is_not_used),
		CASE(no_node_sends_us_where_no_node_is),
		CASE(what_is_remembered_is_bounded),
	};

	return cmocka_run_group_tests_name("rails", tests, NULL, NULL);
}
