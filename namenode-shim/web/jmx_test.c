/* SPDX-License-Identifier: Apache-2.0 */
/* What /jmx says of caching: the sums of the nodes that HDFS counts. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/nn.h"
#include "namenode-shim/test_nn.h"
#include "namenode-shim/web/jmx.h"

#define NODES 6

static long long attribute(struct nn *nn, const char *name)
{
	json_t *const page = jmx_page(nn, "Hadoop:service=NameNode,name=NameNodeInfo", NULL);
	const json_t *const bean = json_array_get(json_object_get(page, "beans"), 0);
	const json_t *const v = json_object_get(bean, name);
	long long ret;

	assert_true(json_is_integer(v));
	ret = json_integer_value(v);
	json_decref(page);
	return ret;
}

/* Nodes that are in service, or about to leave it; none that have left it, or are dead. */
static void the_cache_is_that_of_living_nodes_in_service(void **state)
{
	static const enum dn_admin admin[NODES] = {DN_NORMAL,         DN_DECOMMISSIONING,
						   DN_DECOMMISSIONED, DN_ENTERING_MAINTENANCE,
						   DN_IN_MAINTENANCE, DN_NORMAL};
	struct conf *conf;
	struct test_db d;
	struct nn *nn;
	struct dn *dn;

	(void)state;
	test_db_init(&d);
	nn = test_nn_new(&d, NULL, &conf);
	assert_int_equal(attribute(nn, "CacheCapacity"), 0);
	assert_int_equal(attribute(nn, "CacheUsed"), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + i, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%u", i);
		assert_int_equal(datanodes_register(&nn->dns, &id, &dn), 0);
		dn->admin = admin[i];
		dn->cache_capacity = 2ull << 4 * i;
		dn->cache_used = 1ull << 4 * i;
	}
	nn_dn_lost(nn, dn, "test");
	dn->cache_capacity = dn->cache_used = 7; /* whatever it said last */
	assert_int_equal(attribute(nn, "CacheCapacity"), 0x2022);
	assert_int_equal(attribute(nn, "CacheUsed"), 0x1011);
	nn_free(nn);
	conf_free(conf);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cache_is_that_of_living_nodes_in_service),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
