/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and the connections that carry them: when another one is opened, and closed, and who is
 * told that one was lost. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream_rdma_test_fixture.h"
#include "common/base/clock.h"

struct seen {
	struct rcall call;
	atomic_uint lost;
};

static void on_lost(struct rcall *c, int rc, const char *why)
{
	(void)rc;
	(void)why;
	atomic_fetch_add(&container_of(c, struct seen, call)->lost, 1);
}

static int start(struct seen *s, const char *ip)
{
	struct net_addr to;
	struct err err = ERR_INIT;

	assert_int_equal(net_resolve(ip, 9866, &to, &err), 0);
	*s = (struct seen){.call.on_lost = on_lost};
	return rdma_call_start(fs.rdma, &to, clock_mono_ns() + NS_PER_S, &s->call, &err);
}

static void who_was_refused_does_not_dial_for_each_call(void **state)
{
	static struct seen s[12];

	(void)state;
	for (int i = 0; i < 12; i++)
		assert_int_equal(start(&s[i], "127.0.0.1"), 0);
	assert_int_equal(dials, 2); /* the ninth one's was refused */
	for (int i = 0; i < 12; i++)
		rdma_call_end(fs.rdma, &s[i].call);
}

/* The node has another address, which is not reached from here. */
static void nobody_waits_for_another_address_while_one_connection_stands(void **state)
{
	static struct seen s[7];

	(void)state;
	fs.rdma->rails.off = false; /* dfs.rdma.rails=auto */
	peer = (struct verbs_hello){.node = 7, .rails = 1};
	memcpy(peer.rail[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
	mute = true;
	for (int i = 0; i < 7; i++) {
		assert_int_equal(start(&s[i], "127.0.0.1"), 0);
		assert_ptr_equal(s[i].call.conn->x, &conn);
	}
	assert_int_equal(dials, 2);
	for (int i = 0; i < 7; i++)
		rdma_call_end(fs.rdma, &s[i].call);
}

static void give_up_run(struct rtask *t)
{
	list_for_each (l, &t->rdma->conns) {
		struct rconn *c = container_of(l, struct rconn, link);

		rdma_give_up(container_of(c->calls.next, struct rcall, link));
	}
}

struct dialler {
	struct seen s;
	pthread_t thread;
	int rc;
};

static void *dial(void *arg)
{
	struct dialler *d = arg;

	d->rc = start(&d->s, "127.0.0.1");
	return NULL;
}

struct look {
	struct rtask t;
	struct refused *made; /* a connection that is being made; NULL: none is */
	uint32_t calls;       /* that wait for it */
};

static void look_run(struct rtask *t)
{
	struct look *look = container_of(t, struct look, t);

	look->made = NULL;
	list_for_each (l, &t->rdma->conns) {
		struct rconn *c = container_of(l, struct rconn, link);

		if (c->state != RC_CONNECTING)
			continue;
		look->made = container_of(c->x, struct refused, c);
		look->calls = list_length(&c->calls);
	}
}

static void refuse_run(struct rtask *t)
{
	look_run(t);
	refuse(&container_of(t, struct look, t)->made->msg);
}

#define DIALLERS 24u

/* Connection number @n of this test is being made, and all wait for it; now it does not come up. */
static void all_wait_in_vain_for(unsigned n)
{
	const uint64_t end = clock_mono_ns() + 10 * NS_PER_S;
	struct look look;

	do {
		assert_true(clock_mono_ns() < end);
		(void)poll(NULL, 0, 1);
		rdma_run(fs.rdma, &look.t, look_run);
	} while (dials != n || !look.made || look.calls < DIALLERS);
	rdma_run(fs.rdma, &look.t, refuse_run);
}

/* Whoever is not the first to look finds the next address tried already. */
static void who_has_waited_for_a_bad_address_waits_for_the_next_one(void **state)
{
	static struct dialler d[DIALLERS];
	struct rtask t;

	(void)state;
	fs.rdma->rails.off = false;
	peer = (struct verbs_hello){.node = 7, .rails = 1};
	memcpy(peer.rail[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
	assert_int_equal(start(&d[0].s, "127.0.0.1"), 0); /* for what the node tells */
	rdma_run(fs.rdma, &t, give_up_run);
	rdma_call_end(fs.rdma, &d[0].s.call);
	taken = mute = true;
	for (unsigned i = 0; i < DIALLERS; i++)
		assert_int_equal(pthread_create(&d[i].thread, NULL, dial, &d[i]), 0);
	all_wait_in_vain_for(2);
	all_wait_in_vain_for(3);
	for (unsigned i = 0; i < DIALLERS; i++) {
		pthread_join(d[i].thread, NULL);
		assert_int_equal(d[i].rc, -ECONNREFUSED);
	}
	taken = false;
}

static void a_call_is_told_of_a_loss_once(void **state)
{
	(void)state;
	drops = true; /* most often before its caller has looked */
	for (int i = 0; i < 200; i++) {
		struct seen s;
		const int rc = start(&s, "127.0.0.1");
		const uint64_t end = clock_mono_ns() + 10 * NS_PER_S;

		while (!rc && !atomic_load(&s.lost) && clock_mono_ns() < end)
			;
		rdma_call_end(fs.rdma, &s.call);
		assert_int_equal(atomic_load(&s.lost), rc ? 0 : 1);
	}
}

static void age(struct rtask *t)
{
	list_for_each (l, &t->rdma->conns)
		container_of(l, struct rconn, link)->used_ns = 0;
}

static void an_idle_connection_makes_room_for_another(void **state)
{
	struct seen s;
	struct rtask t;

	(void)state;
	assert_int_equal(start(&s, "127.0.0.1"), 0);
	rdma_run(fs.rdma, &t, age); /* it has a call */
	assert_int_not_equal(start(&(struct seen){0}, "127.0.0.2"), 0);
	rdma_call_end(fs.rdma, &s.call);
	assert_int_not_equal(start(&s, "127.0.0.2"), 0); /* not idle for long */
	rdma_run(fs.rdma, &t, age);
	assert_int_equal(start(&s, "127.0.0.2"), 0);
	rdma_call_end(fs.rdma, &s.call);
}

/* It may write to them yet. */
static void slots_that_a_device_has_stay_where_they_are(void **state)
{
	struct pool *pool = rdma_pool(fs.rdma);
	struct slot *slot = pool_get(pool, SLOT_8K, POOL_READ);

	(void)state;
	verbs_is_stuck = true;
	rdma_free(fs.rdma);
	fs.rdma = NULL;
	verbs_is_stuck = false;
	slot->data[0] = 1;
	assert_int_equal(pool_slots_out(pool), 1);
	slot_put(slot);
	pool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(who_was_refused_does_not_dial_for_each_call),
		t(nobody_waits_for_another_address_while_one_connection_stands),
		t(who_has_waited_for_a_bad_address_waits_for_the_next_one),
		t(a_call_is_told_of_a_loss_once),
		t(an_idle_connection_makes_room_for_another),
		t(slots_that_a_device_has_stay_where_they_are),
	};

	return cmocka_run_group_tests_name("rdma", tests, NULL, NULL);
}
