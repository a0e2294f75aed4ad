/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an address is one NameNode, a name all that is configured for it; what is missing
 * is named by its key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/fs/nameservice.h"

static struct conf *conf_of(const char *const *kv)
{
	struct conf *c = conf_new();
	struct err err = ERR_INIT;

	assert_non_null(c);
	for (; *kv; kv++)
		assert_int_equal(conf_set_arg(c, *kv, &err), 0);
	return c;
}

#define PAIR                                                                                       \
	"dfs.nameservices=other,ns", "dfs.ha.namenodes.ns=nn1,nn2",                                \
		"dfs.namenode.rpc-address.ns.nn1=127.0.0.1:9001"

static void an_address_is_one_namenode(void **state)
{
	struct conf *c =
		conf_of((const char *const[]){"fs.defaultFS=hdfs://127.0.0.1:9000/x", NULL});
	struct nameservice s;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(nameservice_find(c, NULL, &s, &err), 0);
	assert_int_equal(s.count, 1);
	assert_false(s.logical);
	assert_string_equal(s.uri, "hdfs://127.0.0.1:9000");
	assert_int_equal(net_port(&s.node[0].addr), 9000);
	assert_int_equal(nameservice_find(c, "127.0.0.2", &s, &err), 0);
	assert_string_equal(s.uri, "hdfs://127.0.0.2:8020");
	assert_int_equal(nameservice_find(c, "file:///tmp", &s, &err), -EINVAL);
	conf_free(c);
}

static void a_name_is_all_its_namenodes_in_the_order_asked_for(void **state)
{
	struct conf *c = conf_of(
		(const char *const[]){PAIR, "dfs.namenode.rpc-address.ns.nn2=127.0.0.1:9002",
				      "dfs.client.failover.random.order.ns=false", NULL});
	struct nameservice s;
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 20; i++) { /* never by chance */
		assert_int_equal(nameservice_find(c, "hdfs://ns/", &s, &err), 0);
		assert_int_equal(s.count, 2);
		assert_true(s.logical);
		assert_string_equal(s.uri, "hdfs://ns");
		assert_string_equal(s.node[0].addr_text, "127.0.0.1:9001");
		assert_string_equal(s.node[1].addr_text, "127.0.0.1:9002");
	}
	assert_int_equal(nameservice_find(c, "hdfs://ns:8020", &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "has no port"));
	conf_free(c);
}

static void by_default_either_is_asked_first(void **state)
{
	struct conf *c = conf_of((const char *const[]){
		PAIR, "dfs.namenode.rpc-address.ns.nn2=127.0.0.1:9002", NULL});
	unsigned int first = 0;
	struct nameservice s;
	struct err err = ERR_INIT;

	(void)state;
	for (int i = 0; i < 200; i++) {
		assert_int_equal(nameservice_find(c, "hdfs://ns", &s, &err), 0);
		assert_string_not_equal(s.node[0].addr_text, s.node[1].addr_text);
		first += strcmp(s.node[0].addr_text, "127.0.0.1:9001") == 0;
	}
	assert_in_range(first, 1, 199);
	conf_free(c);
}

static void a_namenode_without_address_is_named_by_its_key(void **state)
{
	struct conf *c = conf_of((const char *const[]){PAIR, NULL});
	struct nameservice s;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(nameservice_find(c, "hdfs://ns", &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "dfs.namenode.rpc-address.ns.nn2 is not set"));
	assert_int_equal(nameservice_find(c, "hdfs://other", &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "dfs.namenode.rpc-address.other is not set"));
	conf_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_is_one_namenode),
		cmocka_unit_test(a_name_is_all_its_namenodes_in_the_order_asked_for),
		cmocka_unit_test(by_default_either_is_asked_first),
		cmocka_unit_test(a_namenode_without_address_is_named_by_its_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
