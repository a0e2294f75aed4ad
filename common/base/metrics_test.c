/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: no count is lost, neither while threads run nor when they end. */
#include "common/base/metrics.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *add_thousand(void *arg)
{
	for (int i = 0; i < 1000; i++)
		metric_add(METRIC_RPC_CALLS, 1);
	return arg;
}

static void counts_survive_their_threads(void **state)
{
	pthread_t t[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, add_thousand, NULL), 0);
	add_thousand(NULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(metric_get(METRIC_RPC_CALLS), 5000);
}

static void a_gauge_is_set_or_counted_both_ways(void **state)
{
	(void)state;
	metric_set(METRIC_DN_BLOCKS, 7);
	metric_set(METRIC_DN_BLOCKS, 5);
	assert_int_equal(metric_get(METRIC_DN_BLOCKS), 5);
	metric_add(METRIC_DN_CONNS, 2);
	metric_add(METRIC_DN_CONNS, (uint64_t)-1);
	assert_int_equal(metric_get(METRIC_DN_CONNS), 1);
}

static void the_text_has_each_name_once_and_only_what_was_asked(void **state)
{
	static const char *const wanted[] = {"dfs_datanode_bytes_written", "dfs_rpc_conn", NULL};
	char *text;

	(void)state;
	metric_add(METRIC_DN_WRITTEN_RDMA, 12);
	text = metrics_format(wanted);
	assert_non_null(text);
	assert_string_equal(
		text, "# HELP dfs_datanode_bytes_written_total payload bytes received for blocks\n"
		      "# TYPE dfs_datanode_bytes_written_total counter\n"
		      "dfs_datanode_bytes_written_total{transport=\"tcp\"} 0\n"
		      "dfs_datanode_bytes_written_total{transport=\"rdma\"} 12\n"
		      "dfs_datanode_bytes_written_total{transport=\"none\"} 0\n"
		      "# HELP dfs_rpc_connections RPC connections open\n"
		      "# TYPE dfs_rpc_connections gauge\n"
		      "dfs_rpc_connections 0\n");
	free(text);
	text = metrics_format(NULL);
	assert_non_null(strstr(text, "dfs_namenode_files"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_survive_their_threads),
		cmocka_unit_test(a_gauge_is_set_or_counted_both_ways),
		cmocka_unit_test(the_text_has_each_name_once_and_only_what_was_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
