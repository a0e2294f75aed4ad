/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the files that say which data nodes may register, and which are to leave: both
 * forms of the JSON file are read, and whatever is wrong with one is an error that names it. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "namenode-shim/blocks/hosts.h"

#define PROVIDER "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager"

static char path[] = "/tmp/hosts_test.XXXXXX";

/* NULL: it was refused, with @ret_err. */
static struct hosts *load(const char *text, struct err *ret_err)
{
	struct conf *c = conf_new();
	struct hosts *h = NULL;
	FILE *f = fopen(path, "we");
	int rc;

	assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
	conf_set(c, "dfs.hosts", path);
	conf_set(c, "dfs.namenode.hosts.provider.classname", PROVIDER);
	*ret_err = (struct err)ERR_INIT;
	rc = hosts_load(c, &h, ret_err);
	assert_int_equal(rc < 0, h == NULL);
	conf_free(c);
	return h;
}

static struct hosts_verdict ask(const struct hosts *h, const char *ip, uint32_t port)
{
	return hosts_judge(h, ip, ip, port);
}

static void both_forms_are_read(void **state)
{
	static const char *const text[] = {
		"[{\"hostName\": \"10.0.0.1\", \"port\": 9866},"
		" {\"hostName\": \"10.0.0.2\", \"adminState\": \"DECOMMISSIONED\"},"
		" {\"hostName\": \"10.0.0.3\", \"adminState\": \"IN_MAINTENANCE\","
		"  \"maintenanceExpireTimeInMS\": 99999999999999, \"upgradeDomain\": \"u\\u0031\", \"other\": [1]}]",
		"{\"hostName\": \"10.0.0.1\", \"port\": \"9866\", \"adminState\": null}\n"
		"{\"adminState\": \"DECOMMISSIONED\", \"hostName\": \"10.0.0.2\"}"
		"{\"hostName\": \"10.0.0.3\", \"adminState\": \"IN_MAINTENANCE\","
		" \"maintenanceExpireTimeInMS\": \"99999999999999\", \"upgradeDomain\": \"u1\"}\n",
	};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct err err;
		struct hosts *h = load(text[i], &err);

		assert_non_null(h);
		assert_true(ask(h, "10.0.0.1", 9866).allowed);
		assert_false(ask(h, "10.0.0.1", 9867).allowed);
		assert_false(ask(h, "10.0.0.9", 9866).allowed);
		assert_int_equal(ask(h, "10.0.0.1", 9866).state, HOSTS_NORMAL);
		assert_int_equal(ask(h, "10.0.0.2", 1).state, HOSTS_LEAVE);
		assert_int_equal(ask(h, "10.0.0.3", 1).state, HOSTS_MAINTENANCE);
		assert_int_equal(ask(h, "10.0.0.3", 1).until_ms, 99999999999999);
		assert_string_equal(ask(h, "10.0.0.3", 1).upgrade_domain, "u1");
		hosts_free(h);
	}
}

static void nonsense_is_refused_and_named(void **state)
{
	static const char *const text[] = {
		"[",
		"[1]",
		"x",
		"{}",
		"[{\"port\": 1}]",
		"{\"hostName\": \"\"}",
		"{\"hostName\": 7}",
		"{\"hostName\": \"10.0.0.1\", \"port\": -1}",
		"{\"hostName\": \"10.0.0.1\", \"port\": 65536}",
		"{\"hostName\": \"10.0.0.1\", \"port\": \"9866x\"}",
		"{\"hostName\": \"10.0.0.1\", \"adminState\": \"GONE\"}",
		"{\"hostName\": \"10.0.0.1\", \"adminState\": 1}",
		"{\"hostName\": \"10.0.0.1\"} trailing",
		"{\"hostName\": \"\xff\"}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
		struct err err;

		assert_null(load(text[i], &err));
		assert_int_equal(err.rc, -EINVAL);
		assert_non_null(strstr(err.text, path));
	}
}

static void an_empty_file_names_nobody(void **state)
{
	struct err err;
	struct hosts *h = load(" \n", &err);

	(void)state;
	assert_non_null(h);
	assert_false(ask(h, "10.0.0.1", 9866).named);
	hosts_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_forms_are_read),
		cmocka_unit_test(nonsense_is_refused_and_named),
		cmocka_unit_test(an_empty_file_names_nobody),
	};
	int rc;

	(void)close(mkstemp(path));
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(path);
	return rc;
}
