/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: who is alone is never made to wait; a crowd is waited for, until it is there, or
 * until its time is over, and then fewer are expected; answered callers are waited for as those
 * that are here; what does not change the disk, and a record that is done, wait for nobody. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "namenode-shim/db/commit_queue.h"
#include "namenode-shim/req.h"

#define NEVER UINT64_MAX / 2
#define FOREVER_NS (600 * NS_PER_S) /* a test that waits for this has failed */

static const struct method change = {.name = "change", .kind = REQ_CHANGE},
			   memory = {.name = "memory", .kind = REQ_MEMORY};

struct world {
	struct commit_queue cq;
	struct req req[2 * COMMIT_QUEUE_ENOUGH];
	uint32_t n;
	struct list batch;
	pthread_t thread;
	bool go;
};

static void put(struct world *w, const struct method *m)
{
	struct req *q = &w->req[w->n++];

	q->method = m;
	list_init(&q->link);
	commit_queue_put(&w->cq, q);
}

static uint32_t taken(struct world *w)
{
	uint32_t n = 0;

	while (list_pop(&w->batch))
		n++;
	return n;
}

/* So long that nothing but what it waits for ends a wait. */
static void commits_are_slow(struct world *w)
{
	w->cq.wait_max_ns = FOREVER_NS;
	for (int i = 0; i < 8; i++)
		commit_queue_committed(&w->cq, FOREVER_NS);
}

/* @n callers were here at the same time, and were answered. */
static void crowd_of(struct world *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put(w, &change);
	assert_true(commit_queue_take(&w->cq, NEVER, &w->batch));
	assert_int_equal(taken(w), n);
	commit_queue_answered(&w->cq, n);
}

static void *take_main(void *arg)
{
	struct world *w = arg;

	w->go = commit_queue_take(&w->cq, NEVER, &w->batch);
	return NULL;
}

static void start_taking(struct world *w)
{
	assert_int_equal(pthread_create(&w->thread, NULL, take_main, w), 0);
}

static bool is_waiting(struct world *w)
{
	bool yes;

	pthread_mutex_lock(&w->cq.lock);
	yes = w->cq.wants_enough;
	pthread_mutex_unlock(&w->cq.lock);
	return yes;
}

static void until_it_waits(struct world *w)
{
	while (!is_waiting(w))
		nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

static int setup(void **state)
{
	static struct world w;

	w = (struct world){.go = true};
	commit_queue_init(&w.cq);
	list_init(&w.batch);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	commit_queue_fini(&w->cq);
	return 0;
}

static void who_is_alone_does_not_wait(void **state)
{
	struct world *w = *state;

	commits_are_slow(w);
	for (int i = 0; i < 5; i++) {
		put(w, &change);
		assert_true(commit_queue_take(&w->cq, NEVER, &w->batch));
		assert_int_equal(taken(w), 1);
		commit_queue_answered(&w->cq, 1);
	}
}

/* One change is in hand, and the writer waits for two more. */
static void it_waits_for_a_crowd(struct world *w)
{
	crowd_of(w, 3);
	commits_are_slow(w);
	put(w, &change);
	start_taking(w);
	until_it_waits(w);
}

static void a_crowd_is_waited_for(void **state)
{
	struct world *w = *state;

	it_waits_for_a_crowd(w);
	put(w, &change);
	assert_true(is_waiting(w));
	put(w, &change);
	pthread_join(w->thread, NULL);
	assert_int_equal(taken(w), 3);
}

static void a_crowd_that_stays_away_is_forgotten(void **state)
{
	struct world *w = *state;

	crowd_of(w, 9);
	commit_queue_committed(&w->cq, NS_PER_MS);
	put(w, &change);
	/* the one, and half of the 8 that were missing, and so on */
	for (uint32_t want = 5;; want = 1 + (want - 1) / 2) {
		assert_true(commit_queue_take(&w->cq, NEVER, &w->batch));
		assert_int_equal(taken(w), 1);
		assert_int_equal(w->cq.expected, want);
		commit_queue_answered(&w->cq, 1);
		put(w, &change);
		if (want == 1)
			break;
	}
	commits_are_slow(w);
	assert_true(commit_queue_take(&w->cq, NEVER, &w->batch)); /* alone again */
	assert_int_equal(taken(w), 1);
}

static void many_are_enough(void **state)
{
	struct world *w = *state;

	crowd_of(w, COMMIT_QUEUE_ENOUGH + 5);
	commits_are_slow(w);
	w->n = 0;
	for (uint32_t i = 0; i < COMMIT_QUEUE_ENOUGH; i++)
		put(w, &change);
	assert_true(commit_queue_take(&w->cq, NEVER, &w->batch));
	assert_int_equal(taken(w), COMMIT_QUEUE_ENOUGH);
}

static void the_answered_are_waited_for(void **state)
{
	struct world *w = *state;
	struct list fresh = LIST_INIT(fresh);

	crowd_of(w, 4);
	put(w, &change);
	put(w, &change);
	commit_queue_committed(&w->cq, NS_PER_MS);
	commit_queue_linger(&w->cq, 0, &fresh); /* two of four: a wait in vain */
	assert_int_equal(w->cq.expected, 3);
	commits_are_slow(w);
	put(w, &change);
	commit_queue_linger(&w->cq, 2, &fresh); /* all are here */
	assert_int_equal(w->cq.queued, 0);
	list_init(&w->batch);
}

static void memory_calls_wait_for_nobody(void **state)
{
	struct world *w = *state;

	crowd_of(w, 3);
	commits_are_slow(w);
	put(w, &memory);
	assert_true(commit_queue_take(&w->cq, NEVER, &w->batch));
	assert_int_equal(taken(w), 1);
}

static void a_record_that_is_done_comes_first(void **state)
{
	struct world *w = *state;

	it_waits_for_a_crowd(w);
	commit_queue_record_done(&w->cq);
	pthread_join(w->thread, NULL);
	assert_true(w->go);
	/* it stays in the queue: those who are answered now may join it */
	assert_int_equal(taken(w), 0);
	assert_int_equal(w->cq.queued, 1);
}

static void the_end_waits_for_nobody(void **state)
{
	struct world *w = *state;

	it_waits_for_a_crowd(w);
	commit_queue_stop(&w->cq);
	pthread_join(w->thread, NULL);
	assert_true(w->go);
	assert_int_equal(taken(w), 1);
	assert_false(commit_queue_take(&w->cq, NEVER, &w->batch));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(who_is_alone_does_not_wait),           CASE(a_crowd_is_waited_for),
		CASE(a_crowd_that_stays_away_is_forgotten), CASE(many_are_enough),
		CASE(the_answered_are_waited_for),          CASE(memory_calls_wait_for_nobody),
		CASE(a_record_that_is_done_comes_first),    CASE(the_end_waits_for_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
