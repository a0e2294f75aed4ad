/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: every message of another thread comes exactly once and in order, and wakes a reactor
 * that sleeps, or, if it is quiet, waits for one that does; a signal handler can stop it. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#include "common/reactor/reactor_test_fixture.h"
#include "common/reactor/reactor_test_probe.h"

#define SENDERS 4
#define PER_SENDER 20000

struct note {
	struct rmsg m;
	struct board *b;
	uint32_t sender, seq;
};
struct board {
	struct reactor *r;
	uint32_t next[SENDERS], total, out_of_order;
	struct note *notes;
};

static void note_fn(struct rmsg *m)
{
	struct note *n = container_of(m, struct note, m);
	struct board *b = n->b;

	if (!reactor_is_current(b->r) || b->next[n->sender]++ != n->seq)
		b->out_of_order++;
	if (++b->total == SENDERS * PER_SENDER)
		reactor_stop(b->r);
}

static void *sender_main(void *arg)
{
	struct note *n = (struct note *)arg;

	for (uint32_t i = 0; i < PER_SENDER; i++) {
		reactor_post(n->b->r, &n[i].m);
		if (i % 1000 == 0)
			pause_us(100); /* let the reactor fall asleep now and then */
	}
	return NULL;
}

static void messages_of_many_threads_arrive_once_and_in_order(void **state)
{
	struct board b = {.r = make()};
	pthread_t t[SENDERS];

	(void)state;
	b.notes = (struct note *)calloc(SENDERS * PER_SENDER, sizeof(*b.notes));
	for (uint32_t i = 0; i < SENDERS * PER_SENDER; i++)
		b.notes[i] = (struct note){
			.m.fn = note_fn, .b = &b, .sender = i / PER_SENDER, .seq = i % PER_SENDER};
	for (int i = 0; i < SENDERS; i++)
		pthread_create(&t[i], NULL, sender_main, &b.notes[i * PER_SENDER]);
	assert_int_equal(reactor_run(b.r), 0);
	for (int i = 0; i < SENDERS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(b.total, SENDERS * PER_SENDER);
	assert_int_equal(b.out_of_order, 0);
	reactor_free(b.r);
	free(b.notes);
}

struct ball {
	struct rmsg m;
	struct reactor *r[2];
	int at, left;
};

static void ball_fn(struct rmsg *m)
{
	struct ball *b = container_of(m, struct ball, m);

	if (--b->left == 0) {
		reactor_stop(b->r[0]);
		reactor_stop(b->r[1]);
		return;
	}
	b->at = !b->at;
	reactor_post(b->r[b->at], m);
}

/* A lost wake-up would hang here: both sides sleep between any two messages. */
static void two_reactors_wake_each_other(void **state)
{
	struct ball b = {.m.fn = ball_fn, .r = {make(), make()}, .left = 4001};

	(void)state;
	assert_int_equal(reactor_start(b.r[1]), 0);
	reactor_post(b.r[0], &b.m);
	assert_int_equal(reactor_run(b.r[0]), 0);
	reactor_join(b.r[1]);
	assert_int_equal(b.left, 0);
	reactor_free(b.r[0]);
	reactor_free(b.r[1]);
}

struct tick {
	struct rmsg m;
	atomic_int *seen;
};

static void tick_fn(struct rmsg *m)
{
	atomic_fetch_add(container_of(m, struct tick, m)->seen, 1);
}

static void await_seen(atomic_int *seen, int n)
{
	for (int i = 0; atomic_load(seen) < n && i < 60000; i++)
		pause_us(1000);
	assert_int_equal(atomic_load(seen), n);
}

/* Nobody tells when a reactor sleeps: one that did not yet, on a busy machine, sees its messages at
 * once. Then once more. */
static void quiet_messages_wait_for_one_wake(void **state)
{
	struct reactor *r = make();
	bool waited = false;

	(void)state;
	assert_int_equal(reactor_start(r), 0);
	for (int try = 1; try <= 50 && !waited; try++) {
		atomic_int seen = 0;
		struct tick t[3];

		pause_us(try * 10000);
		for (int i = 0; i < 3; i++) {
			t[i] = (struct tick){.m.fn = tick_fn, .seen = &seen};
			reactor_post_quiet(r, &t[i].m);
		}
		pause_us(20000);
		waited = atomic_load(&seen) == 0;
		reactor_wake(r);
		await_seen(&seen, 3);
	}
	assert_true(waited);
	reactor_free(r);
}

static struct reactor *signalled;
static void on_signal(int sig)
{
	(void)sig;
	reactor_stop(signalled);
}

static void a_signal_handler_can_stop_a_sleeping_reactor(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	struct itimerval soon = {.it_value.tv_usec = 20000};

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* TSan holds handlers back until a call it knows; io_uring_enter is none */
#endif
	signalled = make();
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &soon, NULL);
	assert_int_equal(reactor_run(signalled), 0);
	sigaction(SIGALRM, &old, NULL);
	reactor_free(signalled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_many_threads_arrive_once_and_in_order),
		cmocka_unit_test(two_reactors_wake_each_other),
		cmocka_unit_test(quiet_messages_wait_for_one_wake),
		cmocka_unit_test(a_signal_handler_can_stop_a_sleeping_reactor),
	};

	return reactor_test_probe() ?: cmocka_run_group_tests(tests, NULL, NULL);
}
