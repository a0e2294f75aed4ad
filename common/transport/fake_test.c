/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: the fake keeps the transport's promises (whole, in order, every op back once) under
 * every combination of its options, injects each fault as told, and repeats itself for a seed. */
#include "common/reactor/reactor_test_probe.h"
#include "common/transport/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"

static struct reactor *r;
static struct pool *pool;

struct op {
	struct xop x;
	int res, count, rank;
};
static int finished;

static void op_done(struct xop *x, int res)
{
	struct op *op = container_of(x, struct op, x);

	op->res = res;
	op->count++;
	op->rank = ++finished;
	reactor_stop(r);
}

static struct xop *op_init(struct op *op)
{
	*op = (struct op){.x.done = op_done};
	return &op->x;
}

static int await(struct op *op)
{
	while (!op->count)
		assert_int_equal(reactor_run(r), 0);
	assert_int_equal(op->count, 1);
	return op->res;
}

static int setup(void **state)
{
	struct reactor_opts ro = {.name = "test"};
	struct pool_opts po = {.count = {[SLOT_8K] = 4}};

	(void)state;
	finished = 0;
	assert_int_equal(reactor_new(&ro, &r, NULL), 0);
	assert_int_equal(pool_new(&po, &pool, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reactor_free(r);
	pool_free(pool);
	return 0;
}

static void make_pair(const struct fake_opts *o, struct xconn *c[2])
{
	assert_int_equal(fake_pair(r, o, c), 0);
}

static void close_pair(struct xconn *c[2])
{
	xconn_close(c[0]);
	xconn_close(c[1]);
}

static const struct fake_opts streams[] = {
	{.seed = 1},
	{.seed = 2, .delay_turns = 5},
	{.seed = 3, .shuffle = true, .recv_max = 3},
	{.seed = 4, .inside_submit = true},
	{.seed = 5, .delay_turns = 3, .shuffle = true, .recv_max = 1, .credits = 2},
	{.seed = 6, .inside_submit = true, .credits = 1},
};

static void a_stream_keeps_bytes_and_order_under_every_option(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		struct slot *slot = pool_get(pool, SLOT_8K, POOL_CTRL);
		struct op s[20], g;
		struct xconn *c[2];
		char text[21 * 4 + 1] = "", buf[8];
		size_t at = 0;

		make_pair(&streams[i], c);
		assert_false(c[0]->ops->messages);
		for (int k = 0; k < 20; k++) {
			struct iovec iov[2] = {{text + 4 * k, 2}, {text + 4 * k + 2, 2}};

			snprintf(text + 4 * k, 5, "%03d.", k);
			xconn_send(c[0], iov, 2, op_init(&s[k]));
		}
		xconn_recv(c[1], buf, sizeof(buf), op_init(&g));
		assert_true(await(&g) > 0);
		assert_memory_equal(buf, text, g.res);
		at = (size_t)g.res;
		xconn_pull(c[1], (struct xremote){0}, slot, 100, (uint32_t)(80 - at), op_init(&g));
		assert_int_equal(await(&g), (int)(80 - at));
		assert_memory_equal(slot->data + 100, text + at, 80 - at);
		for (int k = 0; k < 20; k++)
			assert_int_equal(await(&s[k]), 4);
		xconn_recv(c[1], buf, sizeof(buf), op_init(&g));
		xconn_close(c[0]);
		assert_int_equal(await(&g), 0);
		xconn_close(c[1]);
		slot_put(slot);
	}
}

static void a_message_arrives_whole(void **state)
{
	struct fake_opts o = {.messages = true, .delay_turns = 2, .shuffle = true};
	struct xconn *c[2];
	struct op s[2], g;
	char buf[16];

	(void)state;
	make_pair(&o, c);
	xconn_send(c[0], &(struct iovec){"first", 5}, 1, op_init(&s[0]));
	xconn_send(c[0], &(struct iovec){"second", 6}, 1, op_init(&s[1]));
	xconn_recv(c[1], buf, sizeof(buf), op_init(&g));
	assert_int_equal(await(&g), 5);
	xconn_recv(c[1], buf, sizeof(buf), op_init(&g));
	assert_int_equal(await(&g), 6);
	assert_memory_equal(buf, "second", 6);
	await(&s[0]);
	await(&s[1]);
	/* one that does not fit the buffer breaks the connection */
	xconn_send(c[0], &(struct iovec){"second", 6}, 1, op_init(&s[0]));
	xconn_recv(c[1], buf, 3, op_init(&g));
	assert_int_equal(await(&g), -ECONNRESET);
	await(&s[0]);
	close_pair(c);
}

static void pull_and_push_reach_exposed_memory_only(void **state)
{
	struct fake_opts o = {.messages = true};
	char mem[32] = "0123456789";
	struct slot *slot = pool_get(pool, SLOT_8K, POOL_CTRL);
	struct xremote at;
	struct xconn *c[2];
	struct op op;

	(void)state;
	for (int bad = 0; bad < 4; bad++) {
		make_pair(&o, c);
		at = (struct xremote){(uintptr_t)mem, fake_expose(c[1], mem, sizeof(mem))};
		xconn_pull(c[0], at, slot, 8, 10, op_init(&op));
		assert_int_equal(await(&op), 10);
		assert_memory_equal(slot->data + 8, "0123456789", 10);
		xconn_push(c[0], &(struct iovec){"ab", 2}, 1,
			   (struct xremote){at.addr + 4, at.rkey}, op_init(&op));
		assert_int_equal(await(&op), 2);
		assert_memory_equal(mem, "0123ab6789", 10);
		memcpy(mem, "0123456789", 10);
		if (bad == 0)
			at.rkey++;
		else if (bad == 1)
			at.addr += sizeof(mem) - 9;
		else if (bad == 2)
			at.addr--;
		else
			fake_revoke(c[1], at.rkey);
		xconn_pull(c[0], at, slot, 0, 10, op_init(&op));
		assert_int_equal(await(&op), -ECONNRESET);
		xconn_send(c[1], &(struct iovec){"x", 1}, 1, op_init(&op));
		assert_int_equal(await(&op), -ECONNRESET);
		close_pair(c);
	}
	slot_put(slot);
}

static void a_send_without_credit_waits_for_the_receiver(void **state)
{
	struct fake_opts o = {.messages = true, .credits = 1};
	struct xconn *c[2];
	struct op s[2], g;
	char buf[4];

	(void)state;
	make_pair(&o, c);
	xconn_send(c[0], &(struct iovec){"a", 1}, 1, op_init(&s[0]));
	xconn_send(c[0], &(struct iovec){"b", 1}, 1, op_init(&s[1]));
	assert_int_equal(await(&s[0]), 1);
	assert_int_equal(s[1].count, 0);
	xconn_recv(c[1], buf, 4, op_init(&g));
	assert_int_equal(await(&g), 1);
	assert_int_equal(await(&s[1]), 1);
	close_pair(c);
}

static void completion_inside_submit_runs_before_it_returns(void **state)
{
	struct fake_opts o = {.inside_submit = true};
	struct xconn *c[2];
	struct op s, g;
	char buf[4];

	(void)state;
	make_pair(&o, c);
	xconn_recv(c[1], buf, 4, op_init(&g));
	assert_int_equal(g.count, 0);
	xconn_send(c[0], &(struct iovec){"a", 1}, 1, op_init(&s));
	assert_int_equal(s.count, 1);
	assert_int_equal(g.count, 1);
	close_pair(c);
}

static void one_op_fails_as_told(void **state)
{
	struct fake_opts o = {.fail_op = 2, .fail_rc = -EIO};
	struct xconn *c[2];
	struct op s;

	(void)state;
	make_pair(&o, c);
	for (uint32_t i = 1; i <= 3; i++) {
		xconn_send(c[0], &(struct iovec){"a", 1}, 1, op_init(&s));
		assert_int_equal(await(&s), i == 2 ? -EIO : 1);
		assert_int_equal(fake_ops(c[0]), i);
	}
	close_pair(c);
}

static void the_connection_breaks_at_every_op_in_turn(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 6; n++) {
		struct fake_opts o = {.drop_after_ops = n, .delay_turns = 2, .seed = n};
		struct xconn *c[2];
		struct op op[6], g;
		char buf[64];
		int failed = 0;

		make_pair(&o, c);
		xconn_recv(c[0], buf, 1, op_init(&g));
		for (int i = 0; i < 5; i++)
			xconn_send(c[0], &(struct iovec){"abcd", 4}, 1, op_init(&op[i]));
		assert_int_equal(await(&g), -ECONNRESET);
		for (int i = 0; i < 5; i++)
			failed += await(&op[i]) == -ECONNRESET;
		assert_int_equal(failed, n == 1 ? 5 : (int)(7 - n));
		close_pair(c);
	}
}

static void closing_and_deadlines_return_every_op(void **state)
{
	struct fake_opts o = {.credits = 1};
	struct xconn *c[2];
	struct op s[2], g;
	char buf[4];

	(void)state;
	make_pair(&o, c);
	c[0]->recv_deadline_ns = clock_mono_ns() + NS_PER_MS;
	xconn_recv(c[0], buf, 4, op_init(&g));
	assert_int_equal(await(&g), -ETIMEDOUT);
	c[0]->recv_deadline_ns = 0;
	xconn_recv(c[0], buf, 4, op_init(&g));
	xconn_send(c[0], &(struct iovec){"a", 1}, 1, op_init(&s[0]));
	xconn_send(c[0], &(struct iovec){"b", 1}, 1, op_init(&s[1]));
	assert_int_equal(await(&s[0]), 1);
	xconn_close(c[0]);
	assert_int_equal(await(&g), -ECANCELED);
	assert_int_equal(await(&s[1]), -ECANCELED);
	xconn_close(c[1]);
}

static int shuffled(uint64_t seed, int rank[10])
{
	struct fake_opts o = {.shuffle = true, .delay_turns = 4, .seed = seed};
	struct xconn *c[2];
	struct op s[10];
	int out_of_order = 0;

	finished = 0;
	make_pair(&o, c);
	for (int i = 0; i < 10; i++)
		xconn_send(c[0], &(struct iovec){"a", 1}, 1, op_init(&s[i]));
	for (int i = 0; i < 10; i++) {
		await(&s[i]);
		rank[i] = s[i].rank;
		out_of_order += s[i].rank != i + 1;
	}
	close_pair(c);
	return out_of_order;
}

static void a_seed_repeats_its_order(void **state)
{
	int a[10], b[10];

	(void)state;
	assert_true(shuffled(42, a) > 0);
	assert_true(shuffled(42, b) > 0);
	assert_memory_equal(a, b, sizeof(a));
}

static struct xconn *accepted;
static void on_accept(void *arg, struct xconn *c)
{
	(void)arg;
	accepted = c;
}

static void connect_reaches_the_listener_after_the_refusals(void **state)
{
	struct fake_opts o = {.messages = true, .refuse_connects = 1};
	struct xlistener_opts lo = {.accepted = on_accept};
	struct xlistener *l;
	struct net_addr at;
	struct xconn *c;
	struct op op;

	(void)state;
	assert_int_equal(fake_listen(r, &o, &lo, &at, &l), 0);
	assert_int_equal(fake_message_ops.connect(r, &at, 0, NULL, 0, op_init(&op), &c),
			 -ECONNREFUSED);
	assert_int_equal(fake_message_ops.connect(r, &at, 0, NULL, 0, op_init(&op), &c), 0);
	assert_int_equal(await(&op), 0);
	assert_non_null(accepted);
	xconn_send(c, &(struct iovec){"a", 1}, 1, op_init(&op));
	assert_int_equal(await(&op), 1);
	xconn_close(c);
	xconn_close(accepted);
	xlistener_close(l);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_stream_keeps_bytes_and_order_under_every_option),
		T(a_message_arrives_whole),
		T(pull_and_push_reach_exposed_memory_only),
		T(a_send_without_credit_waits_for_the_receiver),
		T(completion_inside_submit_runs_before_it_returns),
		T(one_op_fails_as_told),
		T(the_connection_breaks_at_every_op_in_turn),
		T(closing_and_deadlines_return_every_op),
		T(a_seed_repeats_its_order),
		T(connect_reaches_the_listener_after_the_refusals),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
