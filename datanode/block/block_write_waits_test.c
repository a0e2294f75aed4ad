/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a write waits for buffers as long as it may and no longer, and who is to blame for the
 * wait is charged; and what /ops says of a write. */
#include "datanode/block/block_write_test_fixture.h"

#define SHORT_NS (50 * NS_PER_MS)

static void assert_waits(int64_t id, const char *state, const char *waits_for)
{
	const struct operation o = fix_op(block_write_list, id);

	assert_string_equal(o.state, state);
	assert_string_equal(o.waits_for, waits_for);
}

/* A minute is for ever. */
static void await(const bool *what)
{
	for (int i = 0; i < 600 && !*what; i++)
		fix_run(100);
	assert_true(*what);
}

static void assert_no_lane(int64_t id)
{
	struct landing at;

	assert_int_equal(block_write_land(sender.w, 0, 1000, &at), -EAGAIN);
	assert_waits(id, "wait_buffers", "buffers");
}

static void a_lane_is_waited_for_no_longer_than_it_may(void **state)
{
	struct landing at;

	(void)state;
	begin(10, 512);
	fix_hold_all();
	assert_no_lane(10);
	fix_give_back();
	assert_waits(10, "run", "peer");
	assert_int_equal(block_write_land(sender.w, 0, 1000, &at), 0);
	block_write_unland(sender.w, 0, &at);
	end();
	core.waits.buffers_ns = SHORT_NS;
	begin(11, 512);
	fix_hold_all();
	assert_no_lane(11);
	await(&sender.ended);
	assert_int_equal(sender.rc, -ENOBUFS);
	fix_give_back();
	atomic_store(&stalls, false);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

/* What others hold of it, all that it may have. */
static struct slot *use_up(struct buffers_share *s)
{
	struct slot *got;
	struct pool_ask a = {.use = POOL_CTRL,
			     .forms = 1,
			     .form[0] = {1, {{SLOT_1M, 1}}},
			     .slots = &got,
			     .budget = {&s->slots}};

	s->slots.limit = 1u << 20;
	assert_true(pool_take(pool, &a));
	return got;
}

static void a_lane_is_charged_to_the_connection(void **state)
{
	struct buffers_share conn;
	struct slot *others;

	(void)state;
	buffers_conn_init(&core, &conn);
	others = use_up(&conn);
	core.waits.buffers_ns = SHORT_NS;
	ask(12, 512, NULL, &conn);
	await(&sender.opened);
	assert_no_lane(12);
	await(&sender.ended);
	assert_int_equal(sender.rc, -ENOBUFS);
	slot_put(others);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

static void await_next_node(int64_t id, const char *name)
{
	struct operation o = fix_op(block_write_list, id);

	for (int i = 0; i < 6000 && strcmp(o.waits_for, "next node"); i++) {
		fix_run(10);
		o = fix_op(block_write_list, id);
	}
	assert_string_equal(o.waits_for, "next node");
	assert_string_equal(o.state, "wait_next_node");
	assert_string_equal(o.next, name);
}

static void a_lane_is_charged_to_the_next_node_which_is_blamed(void **state)
{
	static const struct dn_target to = {.ip = "10.9.8.7", .xfer_port = 9866};
	struct slot *others = use_up(buffers_hop(&core, &to));

	(void)state;
	core.waits.buffers_ns = SHORT_NS;
	ask(13, 512, &to, NULL);
	await_next_node(13, "10.9.8.7:9866");
	hop.base.user->ops->opened(hop.base.user, DT_SUCCESS, "");
	await(&sender.opened);
	assert_no_lane(13);
	await(&sender.blames_hop);
	assert_false(sender.ended);
	assert_waits(13, "wait_buffers", "buffers");
	await(&sender.ended); /* the sender does nothing about it */
	assert_int_equal(sender.rc, -EHOSTUNREACH);
	assert_false(sender.failed); /* it was told whom to blame */
	slot_put(others);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

/* It is others who hold the buffers. */
static void a_next_node_within_its_share_is_not_blamed(void **state)
{
	static const struct dn_target to = {.ip = "10.9.8.6", .xfer_port = 9866};

	(void)state;
	core.waits.buffers_ns = SHORT_NS;
	buffers_hop(&core, &to)->slots.limit = 1u << 30;
	ask(18, 512, &to, NULL);
	await_next_node(18, "10.9.8.6:9866");
	hop.base.user->ops->opened(hop.base.user, DT_SUCCESS, "");
	await(&sender.opened);
	fix_hold_all();
	assert_no_lane(18);
	await(&sender.ended);
	assert_false(sender.blames_hop);
	assert_int_equal(sender.rc, -ENOBUFS);
	fix_give_back();
	core.waits.buffers_ns = 30 * NS_PER_S;
}

static void a_write_is_listed_with_all_that_is_known_of_it(void **state)
{
	struct operation o;

	(void)state;
	begin(14, 512);
	assert_waits(14, "run", "peer");
	assert_int_equal(fix_op(block_write_list, 14).held, 0);
	atomic_store(&stalled, 0);
	land_and_send(0, 0, 700);
	while (!atomic_load(&stalled))
		fix_run(100);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	o = fix_op(block_write_list, 14);
	assert_string_equal(o.kind, "write");
	assert_string_equal(o.role, "client");
	assert_string_equal(o.transport, "tcp");
	assert_string_equal(o.state, "run");
	assert_string_equal(o.waits_for, "disk");
	assert_string_equal(o.pool, POOL_ID);
	assert_string_equal(o.peer, "10.1.2.3:4567");
	assert_string_equal(o.next, "");
	assert_true(strlen(o.volume) > 0);
	assert_int_equal(o.gs, 1001);
	assert_int_equal(o.bytes, 700);
	assert_int_equal(o.held, 2 * 8192);
	assert_true(o.age_ms >= 20 && o.quiet_ms >= 20 && o.age_ms >= o.quiet_ms);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_is_waited_for_no_longer_than_it_may),
		cmocka_unit_test(a_lane_is_charged_to_the_connection),
		cmocka_unit_test(a_lane_is_charged_to_the_next_node_which_is_blamed),
		cmocka_unit_test(a_next_node_within_its_share_is_not_blamed),
		cmocka_unit_test(a_write_is_listed_with_all_that_is_known_of_it),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
