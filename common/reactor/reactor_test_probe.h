/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Test code: may a program here have a reactor (io_uring)? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/reactor/reactor.h"

/** 0; or 77, the status of a test that cannot run here, when it has said why. */
static inline int reactor_test_probe(void)
{
	const struct reactor_opts o = {.name = "probe"};
	struct err err = ERR_INIT;
	struct reactor *r = NULL;

	if (reactor_new(&o, &r, &err) < 0) {
		print_message("SKIP: %s\n", err.text);
		return 77;
	}
	reactor_free(r);
	return 0;
}
