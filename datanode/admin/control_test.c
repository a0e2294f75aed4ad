/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: live settings start with Hadoop's defaults, keep their ranges, and a refused
 * value changes nothing; of many latencies only those out of line are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "datanode/admin/outliers.h"
#include "datanode/live_settings.h"

static void settings_start_with_the_defaults_of_hadoop(void **state)
{
	struct conf *c = conf_new();
	struct err err = ERR_INIT;
	struct live_settings l;

	(void)state;
	assert_int_equal(live_settings_read(&l, c, &err), 0);
	assert_int_equal(l.balance_bandwidth, 100 << 20);
	assert_int_equal(l.max_moves, 100);
	assert_int_equal(l.beat_ms, 3000);
	assert_int_equal(l.full_ms, 21600000);
	assert_int_equal(l.initial_delay_ms, 0);
	assert_int_equal(l.outliers_ms, 1800000);
	assert_false(l.peer_stats);
	conf_free(c);
}

static void a_setting_changes_alone_and_a_bad_value_changes_nothing(void **state)
{
	struct conf *c = conf_new();
	struct err err = ERR_INIT;
	struct live_settings l;

	(void)state;
	assert_int_equal(live_settings_read(&l, c, &err), 0);
	assert_int_equal(conf_set(c, "dfs.datanode.balance.max.concurrent.moves", "7"), 0);
	assert_int_equal(conf_set(c, "dfs.heartbeat.interval", "5"), 0);
	assert_int_equal(
		live_settings_change(&l, c, "dfs.datanode.balance.max.concurrent.moves", &err), 0);
	assert_int_equal(l.max_moves, 7);
	assert_int_equal(l.beat_ms, 3000);
	assert_int_equal(live_settings_change(&l, c, "dfs.heartbeat.interval", &err), 0);
	assert_int_equal(l.beat_ms, 5000); /* seconds when no unit is given */
	assert_int_equal(conf_set(c, "dfs.blockreport.initialDelay", "2"), 0);
	assert_int_equal(live_settings_change(&l, c, "dfs.blockreport.initialDelay", &err), 0);
	assert_int_equal(l.initial_delay_ms, 2000);
	assert_int_equal(conf_set(c, "dfs.datanode.balance.max.concurrent.moves", "0"), 0);
	assert_int_equal(
		live_settings_change(&l, c, "dfs.datanode.balance.max.concurrent.moves", &err),
		-EINVAL);
	assert_non_null(strstr(err.text, "must be 1 to"));
	assert_int_equal(l.max_moves, 7);
	assert_int_equal(live_settings_change(&l, c, "dfs.datanode.address", &err), -ENOENT);
	for (unsigned int i = 0; live_settings_key(i); i++)
		assert_int_equal(strncmp(live_settings_key(i), "dfs.", 4), 0);
	conf_free(c);
}

static void add_peers(struct outliers *o, int n, uint64_t slow_ms)
{
	char name[32];

	for (int i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "10.0.0.%d:9864", i);
		outliers_add(o, OUTLIER_PEER, name, (i == 3 ? slow_ms : 2) * 1000 * 1000000, 1000);
	}
}

static size_t find(struct outliers *o, enum outlier_kind kind, uint64_t samples_min,
		   uint64_t names_min, uint64_t low_ms, struct outlier *list)
{
	struct outlier_limits l = {samples_min, names_min, low_ms};

	return outliers_find(o, kind, &l, list, 4);
}

static void one_slow_peer_among_ten_is_named(void **state)
{
	struct outliers *o = outliers_new();
	struct outlier list[4];

	(void)state;
	add_peers(o, 10, 50);
	assert_int_equal(find(o, OUTLIER_PEER, 1000, 10, 5, list), 1);
	assert_string_equal(list[0].name, "10.0.0.3:9864");
	assert_true(list[0].mean_ms > 49.9 && list[0].mean_ms < 50.1);
	assert_true(list[0].median_ms > 1.9 && list[0].median_ms < 2.1);
	assert_true(list[0].limit_ms > 5.9 && list[0].limit_ms < 6.1); /* 3 x median */
	assert_int_equal(find(o, OUTLIER_DISK_WRITE, 1, 1, 5, list), 0);
	/* Too few samples, too few peers, below the threshold. */
	assert_int_equal(find(o, OUTLIER_PEER, 1001, 10, 5, list), 0);
	assert_int_equal(find(o, OUTLIER_PEER, 1000, 11, 5, list), 0);
	assert_int_equal(find(o, OUTLIER_PEER, 1000, 10, 60, list), 0);
	outliers_free(o);
}

static void peers_that_are_alike_are_not_named(void **state)
{
	struct outliers *o = outliers_new();
	struct outlier list[4];

	(void)state;
	add_peers(o, 12, 2);
	assert_int_equal(find(o, OUTLIER_PEER, 1, 10, 0, list), 0);
	assert_int_equal(outliers_all(o, OUTLIER_PEER, list, 4), 4);
	outliers_free(o);
}

static void names_are_bounded(void **state)
{
	struct outliers *o = outliers_new();
	struct outlier *list = calloc(OUTLIER_NAMES_MAX + 1, sizeof(*list));
	char name[32];

	(void)state;
	for (int i = 0; i < OUTLIER_NAMES_MAX + 50; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		outliers_add(o, OUTLIER_DISK_READ, name, 1, 1);
	}
	assert_int_equal(outliers_all(o, OUTLIER_DISK_READ, list, OUTLIER_NAMES_MAX + 1),
			 OUTLIER_NAMES_MAX);
	free(list);
	outliers_free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_start_with_the_defaults_of_hadoop),
		cmocka_unit_test(a_setting_changes_alone_and_a_bad_value_changes_nothing),
		cmocka_unit_test(one_slow_peer_among_ten_is_named),
		cmocka_unit_test(peers_that_are_alike_are_not_named),
		cmocka_unit_test(names_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
