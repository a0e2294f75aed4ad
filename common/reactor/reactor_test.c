/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: every operation and timer comes back exactly once, also at the end, and what is ready
 * is stepped once a turn; a sleeping reactor is woken by each of them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/reactor/reactor_test_probe.h"

#include "common/base/metrics.h"
#include "common/reactor/pool.h"
#include "common/reactor/reactor_internal.h"

#include "common/reactor/reactor_test_fixture.h"

/* Ring operations submitted and not completed. */
static uint32_t ring_ops_left(const struct reactor *r)
{
	return r->ring_ops - r->own_ops;
}

/* ---- ring operations ---- */

struct io {
	struct uring_op op;
	struct reactor *r;
	int res, count;
	bool stop;
};

static void io_done(struct uring_op *op, int res, uint32_t flags)
{
	struct io *io = container_of(op, struct io, op);

	(void)flags;
	assert_true(reactor_is_current(io->r));
	io->res = res;
	io->count++;
	if (io->stop)
		reactor_stop(io->r);
}

static void read_submit(struct io *io, int fd, void *buf, unsigned int len)
{
	struct io_uring_sqe *sqe = reactor_sqe(io->r);

	io->op.done = io_done;
	io_uring_prep_read(sqe, fd, buf, len, 0);
	uring_attach(sqe, &io->op);
}

static void nop_submit(struct io *io)
{
	struct io_uring_sqe *sqe = reactor_sqe(io->r);

	io_uring_prep_nop(sqe);
	uring_attach(sqe, &io->op);
}

static void operations_set_up_before_the_run_complete_in_it(void **state)
{
	struct reactor *r = make();
	struct io io = {.r = r, .stop = true};
	char buf[4];
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	read_submit(&io, p[0], buf, sizeof(buf));
	assert_int_equal(ring_ops_left(r), 1);
	assert_int_equal(write(p[1], "abc", 3), 3);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(io.res, 3);
	assert_int_equal(ring_ops_left(r), 0);
	/* and again: a reactor may run several times */
	read_submit(&io, p[0], buf, sizeof(buf));
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(io.res, 1);
	assert_int_equal(io.count, 2);
	reactor_free(r);
	close(p[0]);
	close(p[1]);
}

static void more_operations_than_the_queue_holds_are_submitted_on_the_way(void **state)
{
	struct reactor *r = make();
	enum { N = 3000 };
	struct io *io = (struct io *)calloc(N, sizeof(*io));
	struct io first = {.r = r, .stop = true};
	char buf[1];
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	read_submit(&first, p[0], buf, 1);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(reactor_run(r), 0);
	for (int i = 0; i < N; i++) {
		io[i].r = r;
		io[i].op.done = io_done;
		io[i].stop = i == N - 1;
		nop_submit(&io[i]);
	}
	assert_int_equal(reactor_run(r), 0);
	reactor_free(r);
	for (int i = 0; i < N; i++)
		assert_int_equal(io[i].count, 1);
	free(io);
	close(p[0]);
	close(p[1]);
}

static void a_cancelled_operation_comes_back_once(void **state)
{
	struct reactor *r = make();
	struct io io = {.r = r, .stop = true};
	char buf[4];
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	read_submit(&io, p[0], buf, sizeof(buf));
	reactor_cancel(r, &io.op);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(io.res, -ECANCELED);
	reactor_free(r);
	assert_int_equal(io.count, 1);
	close(p[0]);
	close(p[1]);
}

static void freeing_the_reactor_cancels_what_is_left(void **state)
{
	char buf[4];
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	for (int mode = 0; mode < 3; mode++) { /* never run; run here; run on a thread */
		struct reactor *r = make();
		struct io io = {.r = r};

		read_submit(&io, p[0], buf, sizeof(buf));
		if (mode == 1) {
			reactor_stop(r);
			assert_int_equal(reactor_run(r), 0);
		} else if (mode == 2) {
			assert_int_equal(reactor_start(r), 0);
		}
		reactor_free(r);
		assert_int_equal(io.res, -ECANCELED);
		assert_int_equal(io.count, 1);
	}
	close(p[0]);
	close(p[1]);
}

struct late {
	struct rmsg m;
	struct io io;
	int fd;
	char buf[4];
};

static void late_fn(struct rmsg *m)
{
	struct late *l = container_of(m, struct late, m);

	read_submit(&l->io, l->fd, l->buf, sizeof(l->buf));
}

static void an_operation_begun_after_the_thread_ended_comes_back_cancelled(void **state)
{
	struct reactor *r = make();
	struct late late = {.m.fn = late_fn, .io.r = r};
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	late.fd = p[0];
	assert_int_equal(reactor_start(r), 0);
	reactor_stop(r);
	reactor_join(r);
	reactor_post(r, &late.m);
	reactor_free(r);
	assert_int_equal(late.io.count, 1);
	assert_int_equal(late.io.res, -ECANCELED);
	close(p[0]);
	close(p[1]);
}

/* ---- timers ---- */

struct clock {
	struct rtimer t;
	struct reactor *r;
	uint64_t want_ns;
	int *left;
	int fired;
};

static void clock_fire(struct rtimer *t)
{
	struct clock *c = container_of(t, struct clock, t);

	c->fired++;
	assert_true(reactor_now_ns(c->r) >= c->want_ns);
	if (--*c->left == 0)
		reactor_stop(c->r);
}

static void timers_fire_once_in_time_and_not_when_cleared(void **state)
{
	struct reactor *r = make();
	enum { N = 500 };
	struct clock *c = (struct clock *)calloc(N, sizeof(*c));
	uint64_t now = reactor_now_ns(r);
	int left = 0;

	(void)state;
	for (int i = 0; i < N; i++) {
		c[i] = (struct clock){.t.fire = clock_fire, .r = r, .left = &left};
		c[i].want_ns = now + (uint64_t)(i * 7919 % N) * 50000;
		reactor_timer_set(r, &c[i].t, now + 3600 * NS_PER_S);
		reactor_timer_set(r, &c[i].t, c[i].want_ns);
	}
	for (int i = 0; i < N; i += 3)
		reactor_timer_clear(r, &c[i].t);
	reactor_timer_clear(r, &c[0].t);
	left = N - (N + 2) / 3;
	assert_int_equal(reactor_run(r), 0);
	for (int i = 0; i < N; i++)
		assert_int_equal(c[i].fired, i % 3 != 0);
	reactor_free(r);
	free(c);
}

static void a_timer_in_the_past_fires_next_turn(void **state)
{
	struct reactor *r = make();
	int left = 1;
	struct clock c = {.t.fire = clock_fire, .r = r, .left = &left};

	(void)state;
	reactor_timer_set(r, &c.t, 0);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(c.fired, 1);
	reactor_free(r);
}

/* ---- ready ops ---- */

struct walk {
	struct rop op;
	struct reactor *r;
	int steps, freed;
};

static bool walk_step(struct rop *op)
{
	struct walk *w = container_of(op, struct walk, op);

	if (++w->steps == 5)
		return true;
	reactor_ready(w->r, op);
	reactor_ready(w->r, op);
	return false;
}

static void walk_free(struct rop *op)
{
	struct walk *w = container_of(op, struct walk, op);

	w->freed++;
	assert_false(list_is_linked(&op->ready_link));
	reactor_stop(w->r);
}

static void a_ready_op_is_stepped_once_a_turn_until_it_is_over(void **state)
{
	struct reactor *r = make();
	struct walk w = {.r = r};

	(void)state;
	rop_init(&w.op, walk_step, walk_free);
	reactor_ready(r, &w.op);
	reactor_ready(r, &w.op);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(w.steps, 5);
	assert_int_equal(w.freed, 1);
	reactor_free(r);
}

struct order {
	struct walk *early;
	struct rop late;
	struct reactor *r;
	int seen; /* steps of early when late had its turn */
};

static bool late_step(struct rop *op)
{
	struct order *o = container_of(op, struct order, late);

	o->seen = o->early->steps;
	return false;
}

static void a_late_op_is_stepped_at_the_end_of_the_turn(void **state)
{
	struct reactor *r = make();
	struct walk w = {.r = r};
	struct order o = {.early = &w, .r = r};

	(void)state;
	rop_init(&w.op, walk_step, walk_free);
	rop_init(&o.late, late_step, NULL);
	reactor_late(r, &o.late);
	reactor_late(r, &o.late);
	reactor_ready(r, &w.op);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(o.seen, 1); /* behind the first step, before the second */
	reactor_free(r);
}

/* ---- pollers ---- */

/* A completion queue as verbs has it: entries, and an event on the fd only when armed. */
struct queue {
	struct poller p;
	struct reactor *r;
	atomic_int entries;
	atomic_bool armed;
	int handled, want;
};

static int queue_poll(struct poller *p)
{
	struct queue *q = container_of(p, struct queue, p);
	int n = atomic_exchange(&q->entries, 0);

	q->handled += n;
	if (n && q->handled == q->want) {
		reactor_poller_del(q->r, p);
		reactor_stop(q->r);
	}
	return n;
}

static int queue_arm(struct poller *p)
{
	struct queue *q = container_of(p, struct queue, p);
	uint64_t v;

	(void)!read(p->fd, &v, sizeof(v));
	atomic_store(&q->armed, true);
	return 0;
}

static void *queue_feed(void *arg)
{
	struct queue *q = (struct queue *)arg;
	uint64_t one = 1;

	for (int i = 0; i < q->want; i++) {
		atomic_fetch_add(&q->entries, 1);
		if (atomic_exchange(&q->armed, false))
			(void)!write(q->p.fd, &one, sizeof(one));
		if (i % 16 == 0)
			pause_us(50);
	}
	return NULL;
}

static void a_poller_is_woken_for_every_entry(void **state)
{
	struct queue q = {.p = {.poll = queue_poll, .arm = queue_arm}, .r = make(), .want = 3000};
	pthread_t t;

	(void)state;
	q.p.fd = eventfd(0, EFD_NONBLOCK);
	reactor_poller_add(q.r, &q.p);
	pthread_create(&t, NULL, queue_feed, &q);
	assert_int_equal(reactor_run(q.r), 0);
	pthread_join(t, NULL);
	assert_int_equal(q.handled, 3000);
	assert_int_equal(ring_ops_left(q.r), 0);
	reactor_free(q.r);
	close(q.p.fd);
}

/* A completion queue that stays empty. */
struct idle_queue {
	struct poller p;
	struct rtimer end;
	struct reactor *r;
	unsigned int polls, arms;
	unsigned int enough; /* polls, after which the reactor stops */
};

static int idle_poll(struct poller *p)
{
	struct idle_queue *q = container_of(p, struct idle_queue, p);

	if (++q->polls == q->enough)
		reactor_stop(q->r);
	return 0;
}

static int idle_arm(struct poller *p)
{
	container_of(p, struct idle_queue, p)->arms++;
	return 0;
}

static void idle_end(struct rtimer *t)
{
	reactor_stop(container_of(t, struct idle_queue, end)->r);
}

static struct idle_queue idle_for(int32_t spin_us, uint64_t ms)
{
	const struct reactor_opts o = {.name = "test", .spin_us = spin_us};
	struct idle_queue q = {.p = {.fd = -1, .poll = idle_poll, .arm = idle_arm},
			       .end = {.fire = idle_end},
			       .enough = 100000};

	assert_int_equal(reactor_new(&o, &q.r, NULL), 0);
	reactor_poller_add(q.r, &q.p);
	reactor_timer_set(q.r, &q.end, reactor_now_ns(q.r) + ms * NS_PER_MS);
	assert_int_equal(reactor_run(q.r), 0);
	reactor_poller_del(q.r, &q.p);
	reactor_free(q.r);
	return q;
}

static void an_idle_reactor_sleeps_unless_it_polls_always(void **state)
{
	struct idle_queue q;

	(void)state;
	for (int32_t spin_us = REACTOR_SPIN_ADAPTIVE; spin_us <= 0; spin_us++) {
		q = idle_for(spin_us, 50);
		assert_in_range(q.arms, 1, 10);
		assert_in_range(q.polls, 1, 20);
	}
	q = idle_for(REACTOR_SPIN_ALWAYS, 10000);
	assert_int_equal(q.arms, 0);
	assert_int_equal(q.polls, q.enough);
}

/* ---- the pool, the count of system calls ---- */

static void a_pool_is_registered_slab_by_slab(void **state)
{
	struct pool_opts o = {.count = {[SLOT_64K] = 8}};
	struct reactor *r = make();
	struct err err = ERR_INIT;
	struct pool *p = NULL;
	int rc;

	(void)state;
	assert_int_equal(pool_new(&o, &p, &err), 0);
	rc = reactor_register_pool(r, p, &err);
	assert_true(rc == 0 || rc == -ENOMEM); /* a machine with a low RLIMIT_MEMLOCK */
	assert_int_equal(reactor_pool_fixed(r), rc == 0);
	if (rc)
		assert_non_null(strstr(err.text, "RLIMIT_MEMLOCK"));
	assert_ptr_equal(reactor_pool(r), p);
	reactor_free(r);
	pool_free(p);
}

/* What the ring has for requests on files that cannot be done without waiting. */
static unsigned workers_of(uint32_t asked)
{
	const struct reactor_opts o = {.name = "test", .io_workers = asked};
	unsigned most[2] = {0, 0}; /* asks, and changes nothing */
	struct reactor *r = NULL;
	struct io io = {.op.done = io_done, .stop = true};

	assert_int_equal(reactor_new(&o, &r, NULL), 0);
	io.r = r;
	nop_submit(&io);
	assert_int_equal(reactor_run(r), 0);
	assert_int_equal(io_uring_register((unsigned)r->ring.ring_fd,
					   IORING_REGISTER_IOWQ_MAX_WORKERS, most, 2),
			 0);
	reactor_free(r);
	return most[0];
}

static void a_ring_may_have_as_many_workers_as_it_is_told(void **state)
{
	struct rlimit most;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NPROC, &most), 0);
	if (most.rlim_cur < 700)
		skip();
	assert_int_equal(workers_of(700), 700);
	assert_int_equal(workers_of(0), 512);
}

struct again {
	struct io io;
	int left;
};

static void again_done(struct uring_op *op, int res, uint32_t flags)
{
	struct again *a = container_of(op, struct again, io.op);

	(void)res, (void)flags;
	if (--a->left == 0)
		reactor_stop(a->io.r);
	else
		nop_submit(&a->io);
}

static void one_system_call_a_turn(void **state)
{
	struct reactor *r = make();
	struct again a = {.io = {.r = r, .op.done = again_done}, .left = 1000};
	uint64_t before = metric_get(METRIC_URING_ENTER), calls;

	(void)state;
	nop_submit(&a.io);
	assert_int_equal(reactor_run(r), 0);
	calls = metric_get(METRIC_URING_ENTER) - before;
	assert_in_range(calls, 900, 1100);
	reactor_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_set_up_before_the_run_complete_in_it),
		cmocka_unit_test(more_operations_than_the_queue_holds_are_submitted_on_the_way),
		cmocka_unit_test(a_cancelled_operation_comes_back_once),
		cmocka_unit_test(freeing_the_reactor_cancels_what_is_left),
		cmocka_unit_test(an_operation_begun_after_the_thread_ended_comes_back_cancelled),
		cmocka_unit_test(timers_fire_once_in_time_and_not_when_cleared),
		cmocka_unit_test(a_timer_in_the_past_fires_next_turn),
		cmocka_unit_test(a_ready_op_is_stepped_once_a_turn_until_it_is_over),
		cmocka_unit_test(a_late_op_is_stepped_at_the_end_of_the_turn),
		cmocka_unit_test(a_poller_is_woken_for_every_entry),
		cmocka_unit_test(an_idle_reactor_sleeps_unless_it_polls_always),
		cmocka_unit_test(a_pool_is_registered_slab_by_slab),
		cmocka_unit_test(a_ring_may_have_as_many_workers_as_it_is_told),
		cmocka_unit_test(one_system_call_a_turn),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
