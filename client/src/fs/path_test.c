/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: every path that reaches the NameNode is absolute, without "//", "." or "..",
 * UTF-8 and within its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/fs/path.h"

static void paths_are_resolved(void **state)
{
	static const char *const want[][2] = {
		{"/", "/"},
		{"//", "/"},
		{"/a", "/a"},
		{"/a/", "/a"},
		{"//a///b//", "/a/b"},
		{"/a/./b/.", "/a/b"},
		{"/a/../b", "/b"},
		{"/..", "/"},
		{"/a/b/../../..", "/"},
		{"/a/...", "/a/..."},
		{"/.a/..b", "/.a/..b"},
		{"x", "/user/me/x"},
		{".", "/user/me"},
		{"..", "/user"},
		{"a:b", "/user/me/a:b"},
		{"d/s3a:/b", "/user/me/d/s3a:/b"},
		{"../../x", "/x"},
		{"/\xc3\xbc \xe2\x82\xac/", "/\xc3\xbc \xe2\x82\xac"},
		{"/\xf0\x9f\x98\x80", "/\xf0\x9f\x98\x80"},
	};
	char buf[PATH_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		assert_int_equal(path_resolve("me", want[i][0], buf, NULL), 0);
		assert_string_equal(buf, want[i][1]);
	}
}

static void bad_paths_are_refused(void **state)
{
	static const char *const bad[] = {"s3a://b/k", "file:/p",   "hdfs://h:1/p", "",     "/\xff",
					  "/\xc3",     "/\xc0\x80", "/\xe2\x82",    "/\x80"};
	char buf[PATH_TEXT_MAX];

	(void)state;
	assert_int_equal(path_resolve("me", NULL, buf, NULL), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(path_resolve("me", bad[i], buf, NULL), -EINVAL);
}

static void the_longest_path_fits_and_one_more_does_not(void **state)
{
	char path[PATH_TEXT_MAX + 2], buf[PATH_TEXT_MAX];

	(void)state;
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[PATH_TEXT_MAX - 1] = '\0'; /* 8000 bytes */
	assert_int_equal(path_resolve("me", path, buf, NULL), 0);
	assert_string_equal(buf, path);
	path[PATH_TEXT_MAX - 1] = 'x';
	path[PATH_TEXT_MAX] = '\0';
	assert_int_equal(path_resolve("me", path, buf, NULL), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_resolved),
		cmocka_unit_test(bad_paths_are_refused),
		cmocka_unit_test(the_longest_path_fits_and_one_more_does_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
