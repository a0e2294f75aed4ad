/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** test_random - random numbers of a test, the same again for the same seed */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t test_seed = 88172645463325252u;

static inline uint32_t random_below(uint32_t n)
{
	test_seed = test_seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(test_seed >> 33) % n;
}

/** Another seed each time, printed, or that of DFS_TEST_SEED. Without this call it is always the
 * same. */
static inline void test_random_begin(void)
{
	const char *s = getenv("DFS_TEST_SEED");

	test_seed = s ? strtoull(s, NULL, 10) : (uint64_t)getpid() << 20 ^ (uint64_t)time(NULL);
	printf("DFS_TEST_SEED=%llu\n", (unsigned long long)test_seed);
}
