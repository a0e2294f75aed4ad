/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the keys of RDMA connections become what a device takes, and a value that it
 * cannot have is told with its key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "common/reactor/reactor.h"
#include "common/transport/verbs.h"

static int read_with(const char *key, const char *value, struct verbs_tuning *ret, struct err *err)
{
	struct conf *c = conf_new();
	int rc;

	assert_non_null(c);
	if (key)
		assert_int_equal(conf_set(c, key, value), 0);
	rc = verbs_tuning_read(c, ret, err);
	conf_free(c);
	return rc;
}

static void without_keys_it_is_the_default(void **state)
{
	struct verbs_tuning t;

	(void)state;
	assert_int_equal(read_with(NULL, NULL, &t, NULL), 0);
	assert_int_equal(t.traffic_class, -1);
	assert_int_equal(t.ack_exp, verbs_tuning_default.ack_exp);
	assert_int_equal(t.retries, 7);
	assert_true(t.relaxed);
}

static void rails_are_all_none_or_some(void **state)
{
	static const char *const bad[] = {
		"",           ",",
		"10.0.0.256", "10.0.0.1,eth0",
		"on",         "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5"};
	struct verbs_tuning t;

	(void)state;
	assert_int_equal(read_with("dfs.rdma.rails", "auto", &t, NULL), 0);
	assert_true(t.use_rails && !t.rails);
	assert_int_equal(read_with("dfs.rdma.rails", "off", &t, NULL), 0);
	assert_false(t.use_rails);
	assert_int_equal(read_with("dfs.rdma.rails", "10.0.0.1, fd00::2", &t, NULL), 0);
	assert_true(t.use_rails && t.rails == 2);
	assert_memory_equal(t.rail[0], ((uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}), 16);
	assert_memory_equal(t.rail[1], ((uint8_t[16]){0xfd, [15] = 2}), 16);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(read_with("dfs.rdma.rails", bad[i], &t, &err), -EINVAL);
		assert_non_null(strstr(err.text, "dfs.rdma.rails"));
	}
}

static void each_key_is_taken(void **state)
{
	static const struct {
		const char *ms;
		uint8_t exp;
	} ack[] = {{"1ms", 8}, {"2ms", 9}, {"268ms", 16}, {"269ms", 17}, {"10s", 22}};
	struct verbs_tuning t;

	(void)state;
	assert_int_equal(read_with("dfs.rdma.traffic.class", "0", &t, NULL), 0);
	assert_int_equal(t.traffic_class, 0);
	assert_int_equal(read_with("dfs.rdma.traffic.class", "255", &t, NULL), 0);
	assert_int_equal(t.traffic_class, 255);
	assert_int_equal(read_with("dfs.rdma.retries", "0", &t, NULL), 0);
	assert_int_equal(t.retries, 0);
	assert_int_equal(read_with("dfs.rdma.relaxed.ordering", "false", &t, NULL), 0);
	assert_false(t.relaxed);
	for (size_t i = 0; i < sizeof(ack) / sizeof(*ack); i++) {
		assert_int_equal(read_with("dfs.rdma.ack.timeout", ack[i].ms, &t, NULL), 0);
		assert_int_equal(t.ack_exp, ack[i].exp);
	}
}

static void what_a_device_cannot_have_is_refused(void **state)
{
	static const char *const bad[][2] = {
		{"dfs.rdma.traffic.class", "256"}, {"dfs.rdma.traffic.class", "-1"},
		{"dfs.rdma.ack.timeout", "0"},     {"dfs.rdma.ack.timeout", "11s"},
		{"dfs.rdma.retries", "8"},         {"dfs.rdma.relaxed.ordering", "perhaps"}};
	struct err err = ERR_INIT;
	struct verbs_tuning t;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(read_with(bad[i][0], bad[i][1], &t, &err), -EINVAL);
		assert_non_null(strstr(err.text, bad[i][0]));
	}
}

static void polling_is_one_of_three(void **state)
{
	static const struct {
		const char *name; /* NULL: not set */
		int32_t spin_us;
	} ways[] = {{NULL, REACTOR_SPIN_ADAPTIVE},
		    {"adaptive", REACTOR_SPIN_ADAPTIVE},
		    {"busy", REACTOR_SPIN_ALWAYS},
		    {"off", 0}};
	struct err err = ERR_INIT;
	struct conf *c = conf_new();
	int32_t spin_us = 1;

	(void)state;
	assert_non_null(c);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (ways[i].name)
			assert_int_equal(conf_set(c, "dfs.rdma.polling", ways[i].name), 0);
		assert_int_equal(verbs_polling_read(c, &spin_us, NULL), 0);
		assert_int_equal(spin_us, ways[i].spin_us);
	}
	assert_int_equal(conf_set(c, "dfs.rdma.polling", "pure"), 0);
	assert_int_equal(verbs_polling_read(c, &spin_us, &err), -EINVAL);
	assert_non_null(strstr(err.text, "dfs.rdma.polling"));
	conf_free(c);
}

static void windows_are_auto_on_or_off(void **state)
{
	static const struct {
		const char *name; /* NULL: not set */
		enum verbs_windows windows;
	} ways[] = {{NULL, VERBS_WINDOWS_AUTO},
		    {"auto", VERBS_WINDOWS_AUTO},
		    {"on", VERBS_WINDOWS_ON},
		    {"off", VERBS_WINDOWS_OFF}};
	enum verbs_windows windows = VERBS_WINDOWS_OFF;
	struct err err = ERR_INIT;
	struct conf *c = conf_new();

	(void)state;
	assert_non_null(c);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (ways[i].name)
			assert_int_equal(conf_set(c, "dfs.rdma.windows", ways[i].name), 0);
		assert_int_equal(verbs_windows_read(c, &windows, NULL), 0);
		assert_int_equal(windows, ways[i].windows);
	}
	assert_int_equal(conf_set(c, "dfs.rdma.windows", "open"), 0);
	assert_int_equal(verbs_windows_read(c, &windows, &err), -EINVAL);
	assert_non_null(strstr(err.text, "dfs.rdma.windows"));
	conf_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_keys_it_is_the_default),
		cmocka_unit_test(rails_are_all_none_or_some),
		cmocka_unit_test(each_key_is_taken),
		cmocka_unit_test(what_a_device_cannot_have_is_refused),
		cmocka_unit_test(polling_is_one_of_three),
		cmocka_unit_test(windows_are_auto_on_or_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
