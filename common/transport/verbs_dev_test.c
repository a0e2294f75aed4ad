/* SPDX-License-Identifier: Apache-2.0 */
/* A device that cannot do what all others can, or does not answer: whoever opens it is told why,
 * and what to do. The device is played. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/transport/verbs_device_test_fixture.h"

static int open_it(struct err *err)
{
	const struct pool_opts po = {.count = {4, 1, 1, 1, 1}};
	struct verbs v = {.opts.passive = true};
	struct vdev *d = NULL;
	int rc;

	assert_int_equal(pool_new(&po, &v.opts.pool, NULL), 0);
	rc = vdev_open(&v, &ctx, &d, err);
	assert_null(d);
	pool_free(v.opts.pool);
	return rc;
}

static void a_device_that_registers_little_says_how_much(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	attr = (struct ibv_device_attr){.max_mr_size = 65536};
	assert_int_equal(open_it(&err), -E2BIG);
	assert_non_null(strstr(err.text, "played registers at most 65536 bytes"));
	assert_non_null(strstr(err.text, "lower dfs.rdma.pool.size"));
}

/* Its answer is an error, and errno may be anything. */
static void a_device_that_does_not_tell_its_limits_is_not_used(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	attr = (struct ibv_device_attr){.max_mr_size = UINT64_MAX};
	query_rc = ENOSYS;
	errno = EPERM;
	assert_int_equal(open_it(&err), -ENOSYS);
	query_rc = 0;
}

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *c);
struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *c)
{
	(void)c;
	errno = EMFILE;
	return NULL;
}

/* Its READs would open the buffers to whoever has seen their key. */
static void a_card_that_would_open_the_buffers_is_refused(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	device.transport_type = IBV_TRANSPORT_IWARP;
	attr = (struct ibv_device_attr){.max_mr_size = UINT64_MAX, .max_cqe = 1024};
	assert_int_equal(open_it(&err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "played is iWARP"));
	assert_non_null(strstr(err.text, "RoCE v2"));
	device.transport_type = IBV_TRANSPORT_IB;
	assert_int_equal(open_it(&err), -EMFILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_that_registers_little_says_how_much),
		cmocka_unit_test(a_device_that_does_not_tell_its_limits_is_not_used),
		cmocka_unit_test(a_card_that_would_open_the_buffers_is_refused),
	};

	return cmocka_run_group_tests_name("verbs_dev", tests, NULL, NULL);
}
