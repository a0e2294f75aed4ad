/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: addresses of the file system in use and of local files are plain paths in the
 * end; no other address is ever taken for a name; what is no address stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/operand.h"

static void schemes_are_told_from_names(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} want[] = {
		{"hdfs://h/p", 4}, {"file:/p", 4}, {"s3a://b/k", 3}, {"svn+ssh://h", 7},
		{"a:b", 0},        {"/a:/b", 0},   {"./s3a:/b", 0},  {":/x", 0},
		{"3d:/x", 0},      {"", 0},        {"-", 0},         {"a", 0},
		{"ann:staff", 0},  {"d/e:/f", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_int_equal(operand_scheme(want[i].text), want[i].len);
}

static void paths_are_cut_out_of_addresses(void **state)
{
	static const char *const uri = "hdfs://nn:8020";

	(void)state;
	assert_string_equal(operand_path(uri, "hdfs://nn:8020/a/b"), "/a/b");
	assert_string_equal(operand_path(uri, "hdfs://NN/a"), "/a");
	assert_string_equal(operand_path(uri, "HDFS:///a"), "/a");
	assert_string_equal(operand_path(uri, "hdfs:/a"), "/a");
	assert_string_equal(operand_path(uri, "hdfs://nn:8020"), "");
	assert_null(operand_path(uri, "hdfs://nn:9000/a"));
	assert_null(operand_path(uri, "hdfs://n/a"));
	assert_null(operand_path(uri, "hdfs://nn:8020x/a"));
	assert_null(operand_path("hdfs://nn:9000", "hdfs://nn/a"));
	assert_string_equal(operand_path("hdfs://name", "hdfs://name/a"), "/a");
	assert_null(operand_path("hdfs://name", "hdfs://name:8020/a"));
	assert_string_equal(operand_local("file:///a"), "/a");
	assert_string_equal(operand_local("file:/a"), "/a");
	assert_string_equal(operand_local("file://localhost/a"), "/a");
	assert_null(operand_local("file://other/a"));
}

static void each_place_has_its_kind(void **state)
{
	static char one[] = "1", two[] = "hdfs://a/x", three[] = "HDFS://b:1/y";
	static char *argv[] = {one, two, three};
	struct cli c = {.argc = 3, .argv = argv};
	static const struct {
		enum cli_operands kind;
		const char *paths, *local, *uri;
	} want[] = {
		{OPERANDS_REMOTE, "ppp", "...", "hdfs://a"},
		{OPERANDS_FIRST_OTHER, ".pp", "...", "hdfs://a"},
		{OPERANDS_LAST_REMOTE, "..p", "ll.", "hdfs://b:1"},
		{OPERANDS_LAST_LOCAL, "pp.", "..l", "hdfs://a"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char *uri;

		c.operands = want[i].kind;
		for (int k = 0; k < c.argc; k++) {
			assert_int_equal(operand_is_path(&c, k), want[i].paths[k] == 'p');
			assert_int_equal(operand_is_local(&c, k), want[i].local[k] == 'l');
		}
		uri = operand_uri(&c);
		assert_string_equal(uri, want[i].uri);
		free(uri);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schemes_are_told_from_names),
		cmocka_unit_test(paths_are_cut_out_of_addresses),
		cmocka_unit_test(each_place_has_its_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
