/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: readers with open streams make the housekeeper look at these often; what costs
 * others something (calls of the NameNode, questions to data nodes) is not done more often for
 * that. A call of the NameNode that hangs keeps nothing from quiet pipelines. Time is a fake: it
 * stands still, and the housekeeper does not sleep. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "client/src/fs/fs.h"
#include "common/base/clock.h"

#define ROUNDS 100

static struct dfs fs;
static atomic_uint_fast64_t clock_ns;
static atomic_uint rounds, early_close_asked, deferred_sync_asked, renewals, visits;
static atomic_bool hangs;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const uint64_t now = clock_ns;

	(void)id;
	*ret = (struct timespec){(time_t)(now / NS_PER_S), (long)(now % NS_PER_S)};
	return 0;
}

uint64_t __wrap_idle_streams_round_ns(const struct dfs *d);
uint64_t __wrap_idle_streams_round_ns(const struct dfs *d)
{
	(void)d;
	return IDLE_MANY_NS / 2;
}

void __wrap_idle_streams_reap(struct dfs *d, uint64_t now_ns);
void __wrap_idle_streams_reap(struct dfs *d, uint64_t now_ns)
{
	(void)d;
	(void)now_ns;
	rounds++;
}

void __wrap_early_close_settle_quietly(struct dfs *d);
void __wrap_early_close_settle_quietly(struct dfs *d)
{
	(void)d;
	early_close_asked++;
}

void __wrap_deferred_sync_settle_quietly(struct dfs *d);
void __wrap_deferred_sync_settle_quietly(struct dfs *d)
{
	(void)d;
	deferred_sync_asked++;
}

int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	(void)d, (void)q, (void)reply, (void)ret, (void)err;
	assert_string_equal(method, "renewLease");
	renewals++;
	while (hangs)
		(void)sched_yield();
	return -ETIMEDOUT;
}

static void keep_alive(struct housekept *k, uint64_t now_ns)
{
	(void)k;
	(void)now_ns;
	visits++;
}

/* @count has become @least. The test fails when that takes long. */
static void await(const atomic_uint *count, unsigned least)
{
	for (unsigned ms = 0; *count < least; ms++) {
		assert_true(ms < 5000);
		(void)nanosleep(&(struct timespec){0, (long)NS_PER_MS}, NULL);
	}
}

static void some_rounds(void)
{
	await(&rounds, rounds + ROUNDS);
}

static void begin(struct housekept *writer)
{
	struct err err = ERR_INIT;

	clock_ns = NS_PER_S;
	early_close_asked = deferred_sync_asked = renewals = visits = 0;
	fs.set.socket_timeout_ms = 60000;
	fs.closed.count = fs.late.count = 1;
	local_init(&fs.local);
	housekept_init(writer, keep_alive);
	housekeeper_init(&fs.keeper);
	assert_int_equal(housekeeper_add(&fs, writer, &err), 0);
}

static void end(struct housekept *writer)
{
	housekeeper_remove(&fs, writer);
	housekeeper_fini(&fs.keeper);
}

static void open_readers_do_not_hurry_the_rest_of_the_round(void **state)
{
	struct housekept writer;

	(void)state;
	begin(&writer);
	await(&deferred_sync_asked, 1);
	some_rounds();
	assert_int_equal(early_close_asked, 1);
	assert_int_equal(deferred_sync_asked, 1);
	assert_int_equal(renewals, 0);
	clock_ns += LEASE_RENEW_MS * NS_PER_MS;
	await(&renewals, 1); /* it failed */
	some_rounds();
	assert_int_equal(early_close_asked, 2);
	assert_int_equal(deferred_sync_asked, 2);
	assert_int_equal(renewals, 1);
	clock_ns += 5 * NS_PER_S;
	await(&renewals, 2);
	some_rounds();
	assert_int_equal(deferred_sync_asked, 3);
	assert_int_equal(renewals, 2);
	assert_true(visits > ROUNDS); /* a pipeline may need a sign of life sooner */
	end(&writer);
}

static void a_namenode_that_hangs_keeps_nothing_from_pipelines(void **state)
{
	struct housekept writer;

	(void)state;
	begin(&writer);
	hangs = true;
	clock_ns += LEASE_RENEW_MS * NS_PER_MS;
	await(&renewals, 1);
	await(&visits, visits + ROUNDS);
	some_rounds();
	assert_int_equal(renewals, 1);
	hangs = false; /* as dfs_disconnect() cancels the call */
	end(&writer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_readers_do_not_hurry_the_rest_of_the_round),
		cmocka_unit_test(a_namenode_that_hangs_keeps_nothing_from_pipelines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
