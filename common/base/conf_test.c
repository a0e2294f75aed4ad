/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an administrator's files mean what they mean to Hadoop, the last one wins unless
 * an earlier one is final, and a mistake names key, value and place. */
#include "common/base/conf.h"
#include "common/base/conf_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/fail_alloc.h"

static char dir[] = "/tmp/conf_test.XXXXXX";
static struct conf *c;
static struct err e;

static int begin(void **state)
{
	(void)state;
	e = ERR_INIT;
	return !(c = conf_new());
}

static int end(void **state)
{
	(void)state;
	conf_free(c);
	return 0;
}

static const char *write_file(const char *name, const char *body)
{
	static char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(body, f) >= 0);
	assert_int_equal(fclose(f), 0);
	return path;
}

static void defaults_come_from_the_table_of_keys(void **state)
{
	uint64_t v = 0;
	bool b = false;

	(void)state;
	assert_int_equal(conf_size(c, "dfs.blocksize", 1, &v, &e), 0);
	assert_int_equal(v, 134217728);
	assert_int_equal(conf_time_ms(c, "dfs.heartbeat.interval", 1, &v, &e), 0);
	assert_int_equal(v, 3000);
	assert_int_equal(conf_bool(c, "dfs.datanode.synconclose", false, &b, &e), 0);
	assert_true(b);
	assert_int_equal(conf_u64(c, "no.such.key", 7, &v, &e), 0);
	assert_int_equal(v, 7);
	assert_null(conf_get(c, "no.such.key"));
	assert_string_equal(conf_get_or(c, "no.such.key", "x"), "x");
	assert_int_equal(conf_check(c, &e), 0);
}

static void later_files_win_but_final_holds_except_against_d(void **state)
{
	(void)state;
	write_file(
		"core-site.xml",
		"<?xml version='1.0'?><configuration><!-- c -->\n"
		"<property><name> a </name><value> core </value><final>true</final></property>\n"
		"<property><name>b</name><value>core&amp;</value><description>x</description></property>"
		"<property><name>kept</name><value>core</value></property>"
		"<property><name>empty</name><value/></property>"
		"<property name='attr-empty' value=''/>"
		"<property><name>none</name></property>"
		"<property name='attr' value='yes'/></configuration>");
	write_file("hdfs-site.xml",
		   "<configuration><property><name>a</name><value>hdfs</value></property>"
		   "<property><name>b</name><value>hdfs</value></property>"
		   "<property><name>kept</name><value></value></property>"
		   "<property><name>fs.default.name</name><value>hdfs://old:1</value></property>"
		   "</configuration>");
	assert_int_equal(conf_load_dir(c, dir, &e), 0);
	assert_string_equal(conf_get(c, "a"), "core");
	assert_string_equal(conf_get(c, "b"), "hdfs");
	assert_null(conf_get(c, "empty"));
	assert_string_equal(conf_get(c, "kept"), "core");
	assert_string_equal(conf_get(c, "attr-empty"), "");
	assert_null(conf_get(c, "none"));
	assert_string_equal(conf_get(c, "attr"), "yes");
	assert_string_equal(conf_get(c, "fs.defaultFS"), "hdfs://old:1");
	assert_int_equal(conf_set_arg(c, "a=d=1", &e), 0);
	assert_string_equal(conf_get(c, "a"), "d=1");
	assert_int_equal(conf_set_arg(c, "novalue", &e), -EINVAL);
	assert_int_equal(conf_set_arg(c, " =x", &e), -EINVAL);
}

static void a_second_reading_sees_new_files_and_keeps_what_d_set(void **state)
{
	struct conf *again = NULL;

	(void)state;
	write_file("core-site.xml", "<configuration/>");
	write_file("hdfs-site.xml",
		   "<configuration>"
		   "<property><name>a</name><value>1</value></property>"
		   "<property><name>gone</name><value>1</value></property></configuration>");
	assert_int_equal(conf_load_dir(c, dir, &e), 0);
	assert_int_equal(conf_set_arg(c, "d=kept", &e), 0);
	write_file("hdfs-site.xml",
		   "<configuration>"
		   "<property><name>a</name><value>2</value></property>"
		   "<property><name>d</name><value>file</value></property></configuration>");
	assert_int_equal(conf_reload(c, &again, &e), 0);
	assert_string_equal(conf_get(c, "a"), "1");
	assert_string_equal(conf_get(again, "a"), "2");
	assert_string_equal(conf_get(again, "d"), "kept");
	assert_null(conf_get(again, "gone"));
	conf_free(again);
	write_file("hdfs-site.xml", "<configuration><property>");
	assert_int_equal(conf_reload(c, &again, &e), -EINVAL);
	write_file("hdfs-site.xml", "<configuration/>"); /* the tests share the folder */
}

static void an_absent_directory_is_an_error_only_when_asked_for(void **state)
{
	(void)state;
	assert_int_equal(conf_load_dir(c, "/no/such/dir", &e), -ENOENT);
	assert_non_null(strstr(e.text, "/no/such/dir"));
	assert_int_equal(setenv("HADOOP_CONF_DIR", "/no/such/dir", 1), 0);
	assert_int_equal(conf_load_dir(c, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.text, "HADOOP_CONF_DIR"));
	e = ERR_INIT;
	assert_int_equal(setenv("HADOOP_CONF_DIR", "/", 1), 0); /* there, and without our files */
	assert_int_equal(conf_load_dir(c, NULL, &e), 0);
	assert_int_equal(e.rc, 0);
	assert_int_equal(conf_load_file(c, "/no/such/file", &e), -ENOENT);
}

static void malformed_files_are_refused_with_the_line(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"<configuration>\n<property>",
		"<a>\n</b>",
		"<other/>",
		"<configuration>\n<property><value>1</value></property></configuration>",
		"<configuration>\n<xi:include href='absent.xml'/></configuration>",
		"<configuration>\n<xi:include href='bad.xml'/></configuration>", /* itself */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(conf_load_file(c, write_file("bad.xml", bad[i]), &e), -EINVAL);
		assert_non_null(strstr(e.text, "bad.xml line "));
	}
}

static void an_included_file_counts_as_part_of_the_file(void **state)
{
	(void)state;
	write_file("inc.xml", "<configuration><property><name>i</name><value>1</value></property>"
			      "</configuration>");
	assert_int_equal(conf_load_file(c,
					write_file("out.xml", "<configuration xmlns:xi='x'>"
							      "<xi:include href='inc.xml'/>"
							      "</configuration>"),
					&e),
			 0);
	assert_string_equal(conf_get(c, "i"), "1");
}

static void variables_are_replaced_and_cycles_end(void **state)
{
	(void)state;
	(void)setenv("CONF_TEST", "env", 1);
	(void)unsetenv("CONF_TEST_NONE");
	(void)conf_set(c, "x", "${y}/${env.CONF_TEST}");
	(void)conf_set(c, "y", "why");
	(void)conf_set(c, "z", "${env.CONF_TEST_NONE:-d}${env.CONF_TEST_NONE-e}${nobody}");
	(void)conf_set(c, "loop", "a${loop}");
	(void)conf_set(c, "n", "${${y}}");
	(void)conf_set(c, "odd", "${ ${} $} ${y");
	assert_string_equal(conf_get(c, "x"), "why/env");
	(void)conf_set(c, "y", "x"); /* what was cached must go */
	assert_string_equal(conf_get(c, "x"), "x/env");
	assert_string_equal(conf_get(c, "n"), "x/env");
	assert_string_equal(conf_get(c, "z"), "de${nobody}");
	assert_non_null(strstr(conf_get(c, "loop"), "${loop}"));
	assert_string_equal(conf_get(c, "odd"), "${ ${} $} ${y");
	(void)conf_set(c, "dfs.datanode.data.dir", "/d/${nobody}");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_non_null(strstr(e.text, "dfs.datanode.data.dir=/d/${nobody}"));
}

static void values_are_parsed_with_hadoops_suffixes(void **state)
{
	static const struct {
		const char *text;
		uint64_t v;
	} sizes[] = {{"0", 0},           {"64k", 65536}, {"1M", 1 << 20},     {"2g", 2ull << 30},
		     {"1t", 1ull << 40}, {"0x10", 16},   {"15e", 15ull << 60}},
	  times[] = {{"5", 5000},      {"5ms", 5},    {"2m", 120000},  {"1h", 3600000},
		     {"1D", 86400000}, {"2500us", 2}, {"3000000ns", 3}};
	static const char *const bad[] = {"",    "x",   "-1",  "+1",
					  "1x",  "1 k", "16e", "99999999999999999999",
					  "1.5", "k",   "0x",  " 1"};
	uint64_t v = 42;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		(void)conf_set(c, "dfs.blocksize", sizes[i].text);
		assert_int_equal(conf_size(c, "dfs.blocksize", 0, &v, &e), 0);
		assert_int_equal(v, sizes[i].v);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		(void)conf_set(c, "dfs.heartbeat.interval", times[i].text);
		assert_int_equal(conf_time_ms(c, "dfs.heartbeat.interval", 0, &v, &e), 0);
		assert_int_equal(v, times[i].v);
	}
	v = 42;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		bool b;

		(void)conf_set(c, "k", bad[i]);
		assert_int_equal(conf_size(c, "k", 0, &v, &e), -EINVAL);
		assert_int_equal(conf_u64(c, "k", 0, &v, &e), -EINVAL);
		assert_int_equal(conf_time_ms(c, "k", 0, &v, &e), -EINVAL);
		assert_int_equal(conf_bool(c, "k", true, &b, &e), -EINVAL);
		assert_int_equal(v, 42);
	}
	(void)conf_set(c, "dfs.blocksize", "big");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(e.text, "dfs.blocksize=big (from program) is not a size such as 65536, "
				    "64k or 128m");
}

static void an_unknown_key_of_ours_is_refused_and_others_pass(void **state)
{
	(void)state;
	(void)conf_set(c, "dfs.namenode.checkpoint.dir", "x");
	(void)conf_set(c, "dfs.client.rdma", "off");
	assert_int_equal(conf_check(c, &e), 0);
	(void)conf_set(c, "dfs.rdma.typo", "1");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_non_null(strstr(e.text, "dfs.rdma.typo"));
}

static void an_unknown_key_of_ours_is_refused_with_the_nearest_name(void **state)
{
	char longest[300];

	(void)state;
	(void)conf_set(c, "dfs.client.rdma.requre", "true");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(
		e.text,
		"unknown key dfs.client.rdma.requre (from program); the nearest is dfs.client.rdma; "
		"--help-config lists the keys");
	conf_free(c);
	c = conf_new();
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "dfs.rdma.", 9);
	longest[sizeof(longest) - 1] = '\0';
	(void)conf_set(c, longest, "1");
	assert_int_equal(conf_check(c, &e), -EINVAL); /* compared with nothing, and still refused */
	assert_null(strstr(e.text, "nearest"));
}

static void a_misspelt_key_is_told_from_those_of_others(void **state)
{
	static const struct {
		const char *key, *meant;
	} keys[] = {
		{"dfs.replicaton", "dfs.replication"},
		{"dfs.blokcsize", "dfs.blocksize"},
		{"df.blocksze", "dfs.blocksize"},
		{"dfs.datanode.adress", "dfs.datanode.address"},
		{"dfs.namenode.name.dirs", "dfs.namenode.name.dir"},
		{"fs.defaultfs", "fs.defaultFS"},
		{"dfs.blocksize", NULL},              /* right */
		{"dfs.repliactoin.", NULL},           /* three letters */
		{"dfs.datanode.https.address", NULL}, /* Hadoop's */
		{"dfs.namenode.https-address", NULL},
		{"dfs.namenode.rpc-address.n", NULL}, /* goes on */
		{"dfs.datanode.du.reserved.ssd", NULL},
		{"yarn.resourcemanager.address", NULL},
		{"", NULL},
		{"x", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *meant = conf_typo_of(keys[i].key);

		if (keys[i].meant)
			assert_string_equal(meant, keys[i].meant);
		else
			assert_null(meant);
	}
}

static void lists_are_trimmed_and_empty_items_vanish(void **state)
{
	char **l;

	(void)state;
	(void)conf_set(c, "l", " a, [SSD]/b ,,c d,");
	assert_int_equal(conf_list(c, "l", &l), 0);
	assert_string_equal(l[0], "a");
	assert_string_equal(l[1], "[SSD]/b");
	assert_string_equal(l[2], "c d");
	assert_null(l[3]);
	conf_list_free(l);
	assert_int_equal(conf_list(c, "unset", &l), 0);
	assert_null(l[0]);
	conf_list_free(l);
}

static void count(void *arg, const char *key, const char *value)
{
	(void)snprintf((char *)arg + strlen((char *)arg), 32, "%s=%s,", key, value);
}

static void each_visits_set_properties_in_order(void **state)
{
	char seen[128] = "";

	(void)state;
	(void)conf_set(c, "b", "2");
	(void)conf_set(c, "a", "${b}");
	(void)conf_set(c, "dfs.replication", "1");
	conf_each(c, count, seen);
	assert_string_equal(seen, "a=2,b=2,dfs.replication=1,");
}

/* Build, load, set, list: 0 or the first error. */
static int use_all(struct err *err)
{
	struct conf *tmp = conf_new();
	char **list = NULL;
	int rc = tmp ? conf_load_dir(tmp, dir, err) : -ENOMEM;

	if (!rc)
		rc = conf_set_arg(tmp, "k=${attr},b", err);
	if (!rc)
		rc = conf_list(tmp, "k", &list);
	conf_list_free(list);
	conf_free(tmp);
	return rc;
}

static void every_failed_allocation_is_reported(void **state)
{
	int n = 0, left = -1, rc;

	(void)state;
	for (; left < 0; n++) { /* until the count is not used up */
		fail_alloc_in = n;
		rc = use_all(&e);
		left = fail_alloc_in;
		fail_alloc_in = -1;
		if (rc) /* a failed expansion shows the raw text, hence 0 is possible */
			assert_int_equal(rc, -ENOMEM);
	}
	assert_int_equal(rc, 0);
	assert_true(n > 50);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(defaults_come_from_the_table_of_keys),
		T(a_second_reading_sees_new_files_and_keeps_what_d_set),
		T(later_files_win_but_final_holds_except_against_d),
		T(an_absent_directory_is_an_error_only_when_asked_for),
		T(malformed_files_are_refused_with_the_line),
		T(an_included_file_counts_as_part_of_the_file),
		T(variables_are_replaced_and_cycles_end),
		T(values_are_parsed_with_hadoops_suffixes),
		T(an_unknown_key_of_ours_is_refused_and_others_pass),
		T(an_unknown_key_of_ours_is_refused_with_the_nearest_name),
		T(a_misspelt_key_is_told_from_those_of_others),
		T(lists_are_trimmed_and_empty_items_vanish),
		T(each_visits_set_properties_in_order),
		T(every_failed_allocation_is_reported),
	};
	static const char *const files[] = {"core-site.xml", "hdfs-site.xml", "bad.xml", "inc.xml",
					    "out.xml"};
	int rc;

	if (!mkdtemp(dir))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[128];

		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		(void)unlink(path);
	}
	(void)rmdir(dir);
	return rc;
}
