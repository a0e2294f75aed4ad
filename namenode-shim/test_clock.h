/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** test_clock - the program's clocks go `ahead_s` seconds before the machine's; for a test that is
 *  linked with --wrap=clock_gettime */
#include <stdint.h>
#include <time.h>

static uint64_t ahead_s;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);

	ret->tv_sec += (time_t)ahead_s;
	return rc;
}
