/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine without RDMA must see; with a device: tests/rdma/verbs_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/transport/verbs.h"

static void a_machine_without_a_device_says_so_and_names_the_cure(void **state)
{
	struct verbs_opts opts = {.passive = true};
	struct err err = ERR_INIT;
	struct verbs *v = NULL;

	(void)state;
	if (verbs_probe(&err) == 0)
		skip();
	assert_int_equal(err.rc, -ENODEV);
	assert_non_null(strstr(err.text, "rdma link add"));
	assert_int_equal(verbs_new(NULL, &opts, &v, &err), -ENODEV);
	assert_null(v);
	assert_int_equal(verbs_probe(NULL), -ENODEV);
	verbs_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_machine_without_a_device_says_so_and_names_the_cure),
	};

	return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
