/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: reactor_test_fixture - what the tests of the reactor share
 *
 * Included by one test program each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "common/reactor/reactor.h"

static inline struct reactor *make(void)
{
	struct reactor_opts o = {.name = "test"};
	struct reactor *r = NULL;
	struct err err = ERR_INIT;
	int rc = reactor_new(&o, &r, &err);

	if (rc)
		print_error("%s\n", err.text);
	assert_int_equal(rc, 0);
	return r;
}

static inline void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}
