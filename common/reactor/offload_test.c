/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a blocking call runs on another thread than the reactor's and comes back exactly once;
 * calls that hang, or a queue that can have no thread, hold up their own queue only. */
#include <pthread.h>

#include "common/reactor/reactor_test_fixture.h"
#include "common/reactor/reactor_test_probe.h"

struct job {
	struct offload o;
	struct reactor *r;
	int *left;
	bool worked_elsewhere, done_here;
};

static void job_work(struct offload *o)
{
	struct job *j = container_of(o, struct job, o);

	pause_us(1000);
	j->worked_elsewhere = !reactor_is_current(j->r);
}

static void job_done(struct offload *o)
{
	struct job *j = container_of(o, struct job, o);

	j->done_here = reactor_is_current(j->r);
	if (--*j->left == 0)
		reactor_stop(j->r);
}

static void blocking_calls_run_elsewhere_and_come_back(void **state)
{
	struct job j[20];
	struct reactor *r = make();
	int left = 20;

	(void)state;
	for (int i = 0; i < 20; i++) {
		j[i] = (struct job){
			.o = {.work = job_work, .done = job_done}, .r = r, .left = &left};
		reactor_offload(r, &j[i].o);
	}
	assert_int_equal(reactor_run(r), 0);
	for (int i = 0; i < 20; i++)
		assert_true(j[i].worked_elsewhere && j[i].done_here);
	left = 100;
	reactor_offload(r, &j[0].o);
	reactor_free(r); /* waits for it */
	assert_int_equal(left, 99);
}

/* ---- a queue whose calls do not come back ---- */

struct stuck {
	struct offload o;
	atomic_bool *go;
	atomic_uint *begun;
	int *back;
};

static void stuck_work(struct offload *o)
{
	struct stuck *k = container_of(o, struct stuck, o);

	atomic_fetch_add(k->begun, 1);
	while (!atomic_load(k->go))
		pause_us(1000);
}

static void stuck_done(struct offload *o)
{
	++*container_of(o, struct stuck, o)->back;
}

static void calls_that_hang_hold_up_their_own_queue_only(void **state)
{
	struct reactor *r = make();
	struct stuck k[20];
	struct job j[2];
	atomic_bool go = false;
	atomic_uint begun = 0;
	int back = 0, left = 2;

	(void)state;
	for (int i = 0; i < 20; i++) {
		k[i] = (struct stuck){.o = {.work = stuck_work, .done = stuck_done},
				      .go = &go,
				      .begun = &begun,
				      .back = &back};
		reactor_offload_to(r, 3, &k[i].o);
	}
	for (uint32_t i = 0; i < 2; i++) {
		j[i] = (struct job){
			.o = {.work = job_work, .done = job_done}, .r = r, .left = &left};
		reactor_offload_to(r, i * (REACTOR_QUEUES - 1), &j[i].o);
	}
	assert_int_equal(reactor_run(r), 0); /* until both are back */
	assert_int_equal(back, 0);
	left = 1;
	j[0].o.movable = true;
	reactor_offload_to(r, 3, &j[0].o);
	reactor_queue_pass(r, 3);
	assert_int_equal(reactor_run(r), 0); /* until it is back */
	assert_int_equal(back, 0);
	while (!atomic_load(&begun)) /* some of them are in their threads */
		pause_us(1000);
	reactor_queue_drop(r, 3);
	assert_in_range(back, 1, 19);
	reactor_queue_drop(r, 3);
	atomic_store(&go, true);
	reactor_free(r);
	assert_int_equal(back, 20);
}

static atomic_bool no_threads;

int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return atomic_load(&no_threads) ? EAGAIN : __real_pthread_create(ret, attr, fn, arg);
}

struct where {
	struct offload o;
	struct reactor *r;
	bool on_reactor;
};

static void where_work(struct offload *o)
{
	struct where *w = container_of(o, struct where, o);

	w->on_reactor = reactor_is_current(w->r);
}

static void where_done(struct offload *o)
{
	reactor_stop(container_of(o, struct where, o)->r);
}

static void a_queue_that_can_have_no_thread_leaves_the_reactor_alone(void **state)
{
	struct where w = {
		.o = {.work = where_work, .done = where_done}, .r = make(), .on_reactor = true};

	(void)state;
	atomic_store(&no_threads, true);
	reactor_offload_to(w.r, 3, &w.o);
	assert_int_equal(reactor_run(w.r), 0);
	atomic_store(&no_threads, false);
	assert_false(w.on_reactor);
	reactor_free(w.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocking_calls_run_elsewhere_and_come_back),
		cmocka_unit_test(calls_that_hang_hold_up_their_own_queue_only),
		cmocka_unit_test(a_queue_that_can_have_no_thread_leaves_the_reactor_alone),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
