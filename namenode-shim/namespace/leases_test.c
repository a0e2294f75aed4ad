/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a lease lasts its limit to the millisecond, from the last renewal or the last
 * file that its holder opened, and goes with the holder's last file. The clock is the test's. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <time.h>

#include <cmocka.h>

#include "namenode-shim/namespace/leases.h"

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
static uint64_t clock_ms = 5000000;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	(void)id;
	*ret = (struct timespec){(time_t)(clock_ms / 1000), (long)(clock_ms % 1000) * 1000000};
	return 0;
}

static void a_lease_lasts_its_limit(void **state)
{
	struct leases l = {0};

	(void)state;
	assert_true(leases_expired(&l, "a", LEASE_HARD_MS)); /* unknown */
	leases_add(&l, "a", 1);
	clock_ms += LEASE_SOFT_MS;
	assert_false(leases_expired(&l, "a", LEASE_SOFT_MS));
	clock_ms++;
	assert_true(leases_expired(&l, "a", LEASE_SOFT_MS));
	assert_false(leases_expired(&l, "a", LEASE_HARD_MS));
	clock_ms += LEASE_HARD_MS - LEASE_SOFT_MS - 1;
	assert_false(leases_expired(&l, "a", LEASE_HARD_MS));
	clock_ms++;
	assert_true(leases_expired(&l, "a", LEASE_HARD_MS));
	leases_fini(&l);
}

static void a_renewal_and_a_new_file_begin_it_anew(void **state)
{
	struct leases l = {0};

	(void)state;
	leases_add(&l, "a", 1);
	leases_add(&l, "b", 2);
	clock_ms += LEASE_SOFT_MS + 1;
	leases_renew(&l, "a");
	leases_renew(&l, "nobody");
	assert_false(leases_expired(&l, "a", LEASE_SOFT_MS));
	assert_true(leases_expired(&l, "b", LEASE_SOFT_MS)); /* not by another one's */
	leases_add(&l, "b", 3);
	assert_false(leases_expired(&l, "b", LEASE_SOFT_MS));
	clock_ms += LEASE_SOFT_MS + 1;
	assert_true(leases_expired(&l, "a", LEASE_SOFT_MS));
	assert_true(leases_expired(&l, "b", LEASE_SOFT_MS));
	leases_fini(&l);
}

static void it_goes_with_the_last_file(void **state)
{
	struct leases l = {0};

	(void)state;
	for (uint64_t i = 1; i <= 9; i++)
		leases_add(&l, "a", i);
	leases_del(&l, "a", 77); /* not one of its files */
	leases_del(&l, "b", 1);
	assert_int_equal(l.files, 9);
	for (uint64_t i = 1; i <= 9; i++) {
		assert_non_null(leases_find(&l, "a"));
		leases_del(&l, "a", i);
	}
	assert_int_equal(l.files, 0);
	assert_null(leases_find(&l, "a"));
	leases_fini(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_lasts_its_limit),
		cmocka_unit_test(a_renewal_and_a_new_file_begin_it_anew),
		cmocka_unit_test(it_goes_with_the_last_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
