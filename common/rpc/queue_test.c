/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: each call that was taken ends once, in its callback, with its own answer or the
 * words of the blocking client; a connection that breaks with many calls under way loses none and
 * sends each again under its own id; what is submitted, cancelled and woken by other threads is
 * noticed at once. */
#include "common/rpc/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/fail_alloc.h"
#include "common/rpc/test_scripts.h"

enum { MANY = 200, RUN_MS = 60000 };

/* A call of the test, and what became of it. */
struct asked {
	char path[32];
	int ends, rc;
	bool is_own; /* the answer is the path */
	struct err err;
	uint32_t again_ms;  /* for the first end */
	struct asked *then; /* to be submitted when this one is over */
};

static struct rpc_queue *q;
static struct err e;
static struct asked asked[MANY];

static int submit(struct asked *a);

static uint32_t on_done(void *arg, struct rpc_done *d)
{
	struct asked *a = (struct asked *)arg;
	const uint32_t again = a->again_ms;

	a->again_ms = 0;
	if (again)
		return again;
	a->ends++;
	a->rc = d->rc;
	if (d->rc < 0) {
		a->err = *d->err;
	} else if (d->resp) {
		const Hd__GetLinkTargetResponseProto *m = (const void *)d->resp;

		a->is_own = m->targetpath && strcmp(m->targetpath, a->path) == 0;
	}
	if (a->then)
		assert_int_equal(submit(a->then), 0);
	return 0;
}

static int submit(struct asked *a)
{
	Hd__GetLinkTargetRequestProto m = HD__GET_LINK_TARGET_REQUEST_PROTO__INIT;

	m.path = a->path;
	return rpc_queue_submit(q, "getLinkTarget", &m.base,
				&hd__get_link_target_response_proto__descriptor, on_done, a);
}

static int fresh(void **state)
{
	e = ERR_INIT;
	memset(asked, 0, sizeof(asked));
	for (int i = 0; i < MANY; i++)
		(void)snprintf(asked[i].path, sizeof(asked[i].path), "/%d", i);
	return listen_again(state);
}

static void begin(struct rpc_client_opts o, script a, script b, script c)
{
	o.protocol = RPC_PROTO_CLIENT;
	o.user = "ann";
	o.addr_text = "nn:8020";
	srv.scripts[0] = a;
	srv.scripts[1] = b;
	srv.scripts[2] = c;
	assert_int_equal(rpc_queue_new(&o, &q, &e), 0);
	assert_int_equal(pthread_create(&srv.thread, NULL, serve, NULL), 0);
}

static void start(uint32_t call_timeout_ms, uint32_t ping_ms, script a, script b, script c)
{
	begin((struct rpc_client_opts){.addr = srv.addr,
				       .call_timeout_ms = call_timeout_ms,
				       .ping_interval_ms = ping_ms},
	      a, b, c);
}

static void start_pair(bool first_is_gone, uint32_t call_timeout_ms, script a, script b, script c)
{
	struct rpc_server other;

	begin(pair_opts(first_is_gone, call_timeout_ms, &other), a, b, c);
}

static void stop(void)
{
	rpc_queue_free(q);
	(void)shutdown(srv.fd, SHUT_RDWR); /* no further connection is coming */
	assert_int_equal(pthread_join(srv.thread, NULL), 0);
	assert_int_equal(close(srv.fd), 0);
}

/* Until nothing is under way. */
static void run_all(void)
{
	const uint64_t until = clock_mono_ns() + RUN_MS * NS_PER_MS;

	while (rpc_queue_count(q)) {
		assert_true(clock_mono_ns() < until);
		assert_true(rpc_queue_run(q, 100) >= 0);
	}
}

static void submit_many(int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(submit(&asked[i]), 0);
}

static void assert_answered(int n)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(asked[i].ends, 1);
		assert_int_equal(asked[i].rc, 0);
		assert_true(asked[i].is_own);
	}
}

static void many_calls_get_their_own_answers(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, echo_for_ever, NULL, NULL);
	submit_many(MANY);
	assert_int_equal(rpc_queue_count(q), MANY);
	run_all();
	assert_answered(MANY);
	assert_int_equal(srv.conns, 1);
	assert_int_equal(srv.retry_count, 0);
	assert_int_equal(rpc_queue_run(q, 0), 0);
	stop();
}

static void answers_may_come_backwards_and_in_pieces(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, answer_two_backwards_in_pieces, NULL, NULL);
	submit_many(2);
	run_all();
	assert_answered(2);
	stop();
}

static void a_callback_may_begin_the_next_call(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, echo_for_ever, NULL, NULL);
	for (int i = 0; i + 1 < MANY; i++)
		asked[i].then = &asked[i + 1];
	assert_int_equal(submit(&asked[0]), 0);
	run_all();
	assert_answered(MANY);
	stop();
}

static void a_callback_may_ask_for_the_same_again(void **state)
{
	const uint64_t since = clock_mono_ns();

	(void)state;
	start(CALL_TIMEOUT, 0, echo_for_ever, NULL, NULL);
	asked[0].again_ms = 50;
	assert_int_equal(submit(&asked[0]), 0);
	run_all();
	assert_answered(1);
	assert_true(clock_mono_ns() - since >= 50 * NS_PER_MS);
	assert_int_equal(srv.call_id, 1); /* a new call */
	assert_int_equal(srv.retry_count, 0);
	stop();
}

static void a_hang_up_loses_no_call(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, echo_forty_and_close, echo_forty_and_close, echo_for_ever);
	submit_many(MANY);
	run_all();
	assert_answered(MANY);
	assert_int_equal(srv.conns, 3);
	assert_int_equal(srv.retry_count, 2);    /* of the last one */
	assert_int_equal(srv.call_id, MANY - 1); /* under its own id */
	stop();
}

static void an_answer_cut_short_is_asked_for_again(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, close_within_answer, echo_for_ever, NULL);
	submit_many(1);
	run_all();
	assert_answered(1);
	assert_int_equal(srv.call_id, 0);
	assert_int_equal(srv.retry_count, 1);
	stop();
}

static void a_peer_that_always_hangs_up_is_given_up(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, close_after_request, close_after_request, close_after_request);
	srv.scripts[3] = close_after_request;
	submit_many(1);
	run_all();
	assert_int_equal(asked[0].rc, -EPROTO);
	assert_non_null(strstr(asked[0].err.text, "(sent 4 times)"));
	assert_int_equal(srv.conns, RPC_SEND_MAX);
	stop();
}

static void an_exception_becomes_errno_class_and_first_line(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, throw_not_found, NULL, NULL);
	submit_many(2);
	run_all();
	assert_int_equal(asked[0].rc, -ENOENT);
	assert_string_equal(asked[0].err.remote, JEX_FILE_NOT_FOUND);
	assert_string_equal(asked[0].err.text, "File does not exist: /x");
	assert_int_equal(asked[1].rc, 0); /* the connection lives on */
	stop();
}

static void a_fatal_answer_ends_every_call(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, fatal_for_all, NULL, NULL);
	submit_many(2);
	run_all();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(asked[i].ends, 1);
		assert_int_equal(asked[i].rc, -EACCES);
		assert_non_null(strstr(asked[i].err.text, "refuses SIMPLE"));
	}
	stop();
}

static void who_is_not_authorized_is_told_that(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, not_authorized, NULL, NULL);
	submit_many(2);
	run_all();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(asked[i].rc, -EACCES);
		assert_string_equal(asked[i].err.remote, JEX_AUTHORIZATION);
		assert_null(strstr(asked[i].err.text, "refuses SIMPLE"));
	}
	stop();
}

static void whatever_is_not_hadoop_is_named(void **state)
{
	const struct {
		script s;
		const char *words;
	} want[] = {
		{say_http, "does not speak Hadoop RPC"},
		{say_oversized, "does not speak Hadoop RPC"},
		{say_junk_frame, "malformed answer"},
		{answer_with_a_foreign_client_id, "somebody else's call"},
		{answer_with_the_wrong_message, "is malformed"},
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		if (i)
			assert_int_equal(fresh(state), 0);
		start(CALL_TIMEOUT, 0, want[i].s, NULL, NULL);
		submit_many(1);
		run_all();
		assert_int_equal(asked[0].rc, -EPROTO);
		assert_non_null(strstr(asked[0].err.text, want[i].words));
		assert_non_null(strstr(asked[0].err.text, "nn:8020"));
		stop();
	}
}

static void silence_ends_at_the_deadline(void **state)
{
	(void)state;
	start(SHORT_TIMEOUT, 0, answer_late_then_on_time_then_never, NULL, NULL);
	submit_many(3);
	run_all();
	assert_int_equal(asked[0].rc, 0);
	assert_int_equal(asked[1].rc, 0);
	assert_int_equal(asked[2].rc, -ETIMEDOUT);
	assert_non_null(strstr(asked[2].err.text, "no answer to getLinkTarget within 150 ms"));
	stop();
}

static void a_long_wait_is_pinged(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 50, answer_after_a_ping, NULL, NULL);
	submit_many(1);
	run_all();
	assert_answered(1);
	stop();
}

static void nobody_there_is_said_so(void **state)
{
	struct rpc_client_opts o = {.addr = srv.addr, .call_timeout_ms = CALL_TIMEOUT};

	(void)state;
	net_set_port(&o.addr, 1);
	begin(o, NULL, NULL, NULL);
	submit_many(2);
	run_all();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(asked[i].rc, -ECONNREFUSED);
		assert_non_null(strstr(asked[i].err.text, "is the NameNode running there?"));
	}
	stop();
}

static void a_server_that_is_late_to_start_is_waited_for(void **state)
{
	struct rpc_client_opts o = {
		.addr = srv.addr, .call_timeout_ms = CALL_TIMEOUT, .connect_retries = 5};

	(void)state;
	net_set_port(&o.addr, 1);
	begin(o, NULL, NULL, NULL);
	submit_many(1);
	run_all(); /* 2 s are over before the attempts are */
	assert_int_equal(asked[0].ends, 1);
	assert_int_equal(asked[0].rc, -ECONNREFUSED);
	stop();
}

static void a_standby_is_left_for_the_other_under_the_same_id(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, say_standby, echo_for_ever, NULL);
	submit_many(5);
	run_all();
	assert_answered(5);
	assert_int_equal(srv.conns, 2);
	assert_int_equal(srv.retry_count, 1);
	stop();
}

static void a_server_out_of_reach_is_left_for_the_other(void **state)
{
	(void)state;
	start_pair(true, CALL_TIMEOUT, echo_for_ever, NULL, NULL);
	submit_many(5);
	run_all();
	assert_answered(5);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void a_server_that_hangs_is_left_for_the_other(void **state)
{
	(void)state;
	start_pair(false, SHORT_TIMEOUT, say_nothing, echo_for_ever, NULL);
	submit_many(5);
	run_all();
	assert_answered(5);
	assert_int_equal(srv.conns, 2);
	stop();
}

static void a_server_that_asks_for_patience_is_asked_again(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, ask_for_patience, NULL, NULL);
	submit_many(1);
	run_all();
	assert_answered(1);
	assert_int_equal(srv.conns, 1);
	assert_int_equal(srv.call_id, 0);
	assert_int_equal(srv.retry_count, 1);
	stop();
}

static void without_an_active_one_the_last_answer_is_told(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, say_standby, say_standby, say_standby);
	srv.scripts[3] = say_standby;
	submit_many(1);
	run_all();
	assert_int_equal(asked[0].rc, -EAGAIN);
	assert_string_equal(asked[0].err.remote, JEX_STANDBY);
	assert_non_null(
		strstr(asked[0].err.text, "none of 2 NameNodes can be used, after 4 attempts"));
	stop();
}

static bool is_call(const void *arg, const void *wanted)
{
	return arg == wanted;
}

static void cancel_ends_what_it_names(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, say_nothing, NULL, NULL);
	submit_many(3);
	assert_int_equal(rpc_queue_run(q, 20), 0); /* they are under way */
	rpc_queue_cancel(q, is_call, &asked[1]);
	assert_int_equal(rpc_queue_run(q, -1), 1);
	assert_int_equal(asked[1].rc, -ECANCELED);
	assert_int_equal(asked[0].ends + asked[2].ends, 0);
	assert_int_equal(rpc_queue_count(q), 2);
	stop(); /* and the end of the queue ends the rest */
	assert_int_equal(asked[0].rc, -ECANCELED);
	assert_int_equal(asked[2].rc, -ECANCELED);
	assert_int_equal(asked[1].ends, 1);
}

static void *run_until_woken(void *arg)
{
	atomic_int *n = (atomic_int *)arg;
	int rc;

	while ((rc = rpc_queue_run(q, -1)) > 0)
		*n += rc;
	return NULL;
}

static void others_may_submit_and_wake(void **state)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	atomic_int n = 0;
	pthread_t runner;

	(void)state;
	start(CALL_TIMEOUT, 0, echo_for_ever, NULL, NULL);
	assert_int_equal(pthread_create(&runner, NULL, run_until_woken, &n), 0);
	(void)nanosleep(&moment, NULL);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(submit(&asked[i]), 0);
		if (i % 10 == 0)
			(void)nanosleep(&moment, NULL); /* asleep again */
	}
	while (n < MANY)
		(void)nanosleep(&moment, NULL);
	assert_int_equal(rpc_queue_run(q, 0), -EBUSY);
	rpc_queue_wake(q);
	assert_int_equal(pthread_join(runner, NULL), 0);
	assert_answered(MANY);
	stop();
}

static void what_is_posted_is_called_back(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, NULL, NULL, NULL);
	assert_int_equal(rpc_queue_post(q, on_done, &asked[0]), 0);
	assert_int_equal(asked[0].ends, 0);
	assert_int_equal(rpc_queue_run(q, -1), 1);
	assert_int_equal(asked[0].ends, 1);
	assert_int_equal(asked[0].rc, 0);
	stop();
}

static void every_failed_allocation_is_reported(void **state)
{
	bool done = false;

	for (int n = 0; !done; n++) {
		struct rpc_client_opts o;

		if (n)
			assert_int_equal(fresh(state), 0);
		o = (struct rpc_client_opts){
			.addr = srv.addr, .protocol = RPC_PROTO_CLIENT, .user = "ann"};
		srv.scripts[0] = srv.scripts[1] = srv.scripts[2] = echo_for_ever;
		assert_int_equal(pthread_create(&srv.thread, NULL, serve, NULL), 0);
		fail_alloc_in = n;
		int rc = rpc_queue_new(&o, &q, &e);

		if (rc < 0) {
			q = NULL;
		} else {
			rc = submit(&asked[0]);
			while (rpc_queue_count(q))
				(void)rpc_queue_run(q, -1);
			rc = rc < 0 ? rc : asked[0].rc;
		}
		done = fail_alloc_in >= 0;
		fail_alloc_in = -1;
		assert_true(rc == -ENOMEM || rc == 0);
		assert_true(!done || rc == 0);
		stop();
	}
}

#define T(fn) cmocka_unit_test_setup(fn, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(many_calls_get_their_own_answers),
		T(answers_may_come_backwards_and_in_pieces),
		T(a_callback_may_begin_the_next_call),
		T(a_callback_may_ask_for_the_same_again),
		T(a_hang_up_loses_no_call),
		T(an_answer_cut_short_is_asked_for_again),
		T(a_peer_that_always_hangs_up_is_given_up),
		T(an_exception_becomes_errno_class_and_first_line),
		T(a_fatal_answer_ends_every_call),
		T(who_is_not_authorized_is_told_that),
		T(whatever_is_not_hadoop_is_named),
		T(silence_ends_at_the_deadline),
		T(a_long_wait_is_pinged),
		T(nobody_there_is_said_so),
		T(a_server_that_is_late_to_start_is_waited_for),
		T(a_standby_is_left_for_the_other_under_the_same_id),
		T(a_server_out_of_reach_is_left_for_the_other),
		T(a_server_that_hangs_is_left_for_the_other),
		T(a_server_that_asks_for_patience_is_asked_again),
		T(without_an_active_one_the_last_answer_is_told),
		T(cancel_ends_what_it_names),
		T(others_may_submit_and_wake),
		T(what_is_posted_is_called_back),
		T(every_failed_allocation_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
