/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a call about one file waits for that file alone, and tells once that it is gone.
 * A loss of other files is left for the call about all. The NameNode is a fake that has crashed:
 * its connection is another one than that of the closes. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/fs.h"
#include "client/src/write/early_close.h"
#include "common/wire/pb.h"

static struct {
	uint64_t gone;                   /* a file it does not know */
	uint64_t away;                   /* of this it does not answer */
	atomic_uint_fast64_t unreported; /* of this no data node has reported the block */
	int changes, changes_rc;
	atomic_int completes;
} nn;
static struct dfs fs;

int __wrap_nn_call_once(struct dfs *f, const char *method, const ProtobufCMessage *req,
			const ProtobufCMessageDescriptor *resp, void *ret_resp, struct err *err);
uint64_t __wrap_rpc_client_connections(const struct rpc_client *c);

int __wrap_nn_call_once(struct dfs *f, const char *method, const ProtobufCMessage *req,
			const ProtobufCMessageDescriptor *resp, void *ret_resp, struct err *err)
{
	Hd__CompleteResponseProto m = HD__COMPLETE_RESPONSE_PROTO__INIT;
	uint64_t id;
	uint8_t *buf;
	size_t len;

	(void)f;
	if (strcmp(method, "mkdirs") == 0) {
		nn.changes++;
		return nn.changes_rc ? err_set(err, nn.changes_rc, "mkdirs failed") : 0;
	}
	assert_string_equal(method, "complete");
	nn.completes++;
	id = ((const Hd__CompleteRequestProto *)req)->fileid;
	if (id == nn.away)
		return err_set(err, -ETIMEDOUT, "no answer");
	if (id == nn.gone) {
		err_set(err, -ENOENT, "no such file");
		snprintf(err->remote, sizeof(err->remote), "java.io.FileNotFoundException");
		return -ENOENT;
	}
	m.result = id != nn.unreported;
	assert_int_equal(pb_pack(&m, &buf, &len), 0);
	assert_int_equal(pb_unpack(resp, buf, len, ret_resp), 0);
	free(buf);
	return 0;
}

uint64_t __wrap_rpc_client_connections(const struct rpc_client *c)
{
	(void)c;
	return 2;
}

static int settle_file(uint64_t id)
{
	struct err err = ERR_INIT;

	return early_close_settle_file(&fs, id, &err);
}

static int settle(void)
{
	struct err err = ERR_INIT;

	return early_close_settle(&fs, &err);
}

static int try_all(void)
{
	struct err err = ERR_INIT;

	return early_close_try(&fs, &err);
}

static int setup(void **state)
{
	(void)state;
	memset(&nn, 0, sizeof(nn));
	memset(&fs, 0, sizeof(fs));
	early_close_init(&fs.closed);
	for (uint64_t id = 1; id <= 3; id++)
		assert_int_equal(early_close_add(&fs, "/f", id, NULL, 1), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	early_close_fini(&fs.closed);
	return 0;
}

static void one_file_is_asked_about_alone(void **state)
{
	(void)state;
	nn.away = 1;
	assert_int_equal(settle_file(4), 0); /* it is not ours */
	assert_int_equal(nn.changes, 0);
	assert_int_equal(settle_file(2), 0);
	assert_int_equal(nn.completes, 1);
	assert_int_equal(settle_file(2), 0); /* it is known */
	assert_int_equal(nn.completes, 1);
	assert_int_equal(settle_file(1), -ETIMEDOUT);
	assert_int_equal(settle_file(3), 0);
	assert_int_equal(fs.closed.count, 1);
	nn.away = 0;
	assert_int_equal(settle(), 0);
	assert_int_equal(fs.closed.count, 0);
}

static void a_file_that_is_gone_is_told_to_who_asks_about_it(void **state)
{
	(void)state;
	nn.gone = 1;
	early_close_settle_quietly(&fs);
	assert_int_equal(settle_file(2), 0);
	assert_int_equal(try_all(), -ESTALE); /* it stays to be told */
	assert_int_equal(settle_file(1), -ESTALE);
	assert_int_equal(settle_file(1), 0);
	assert_int_equal(settle(), 0);
	assert_int_equal(early_close_add(&fs, "/f", 1, NULL, 1), 0);
	assert_int_equal(settle_file(1), -ESTALE); /* who has found it out himself */
	assert_int_equal(early_close_add(&fs, "/f", 1, NULL, 1), 0);
	early_close_settle_quietly(&fs);
	assert_int_equal(settle(), -ESTALE);
	assert_int_equal(settle(), 0);
}

/* The first of them says whether any is of an older connection. */
static void they_stay_in_order(void **state)
{
	(void)state;
	assert_int_equal(early_close_add(&fs, "/f", 4, NULL, 2), 0);
	nn.away = 4;
	assert_int_equal(settle_file(4), -ETIMEDOUT);
	fs.closed.tried_ns = 0;
	assert_true(early_close_is_old(&fs));
}

/* Its answer comes when what was before it is on the disk; of what was closed meanwhile, and of
 * what an older process has answered, it says nothing. */
static void a_change_settles_what_was_closed_before_it(void **state)
{
	struct early_close_mark m;

	(void)state;
	assert_int_equal(early_close_add(&fs, "/f", 4, NULL, 2), 0);
	m = early_close_mark(&fs);
	assert_int_equal(early_close_add(&fs, "/f", 5, NULL, 2), 0);
	early_close_answered(&fs, "create", &m); /* which may be answered early itself */
	assert_int_equal(fs.closed.count, 5);
	early_close_answered(&fs, "rename2", &m);
	assert_int_equal(fs.closed.count, 4);
	assert_int_equal(settle_file(4), 0);
	assert_int_equal(nn.completes, 0); /* it is known */
	assert_int_equal(settle_file(5), 0);
	assert_int_equal(nn.completes, 1);
}

static void none_that_is_gone_is_forgotten(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 2 * CLOSED_MAX; i++) {
		nn.gone = 10 + i;
		assert_int_equal(early_close_add(&fs, "/f", nn.gone, NULL, 1), 0);
		early_close_settle_quietly(&fs);
	}
	assert_int_equal(settle_file(10), -ESTALE);
	assert_int_equal(settle_file(9 + 2 * CLOSED_MAX), -ESTALE);
	assert_int_equal(settle(), -ESTALE);
	assert_int_equal(settle(), 0);
}

static void *ask_for_the_first(void *ret)
{
	*(int *)ret = settle_file(1);
	return NULL;
}

/* Its data nodes are silent, and whoever syncs it waits a minute. */
static void a_file_whose_block_is_not_reported_keeps_no_other(void **state)
{
	pthread_t other;
	int rc = -EINVAL;

	(void)state;
	nn.unreported = 1;
	assert_int_equal(pthread_create(&other, NULL, ask_for_the_first, &rc), 0);
	while (!nn.completes)
		sched_yield();
	assert_int_equal(settle_file(2), 0);
	nn.unreported = 0;
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_int_equal(rc, 0);
	assert_int_equal(fs.closed.count, 1);
}

/* The error of a call is no loss. */
static void a_call_that_fails_is_no_loss(void **state)
{
	(void)state;
	nn.changes_rc = -EIO;
	assert_int_equal(try_all(), -EAGAIN);
	nn.changes_rc = -ESTALE;
	assert_int_equal(try_all(), -EAGAIN);
	assert_int_equal(fs.closed.count, 3);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(one_file_is_asked_about_alone),
		TEST(a_file_that_is_gone_is_told_to_who_asks_about_it),
		TEST(they_stay_in_order),
		TEST(a_change_settles_what_was_closed_before_it),
		TEST(none_that_is_gone_is_forgotten),
		TEST(a_file_whose_block_is_not_reported_keeps_no_other),
		TEST(a_call_that_fails_is_no_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
