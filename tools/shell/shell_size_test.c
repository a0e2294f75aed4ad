/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: sizes are written as Hadoop does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/shell/shell_size.h"

static void sizes_are_hadoops(void **state)
{
	static const struct {
		uint64_t n;
		const char *text;
	} want[] = {
		{0, "0"},
		{1023, "1023"},
		{1024, "1 K"},
		{1025, "1.0 K"},
		{1280, "1.3 K"}, /* half up */
		{1536, "1.5 K"},
		{10240, "10 K"},
		{1048524, "1023.9 K"},
		{1048525, "1.0 M"}, /* not 1024.0 K */
		{1048576, "1 M"},
		{134217728, "128 M"},
		{3000000000, "2.8 G"},
		{1ull << 60, "1 E"},
		{UINT64_MAX, "16.0 E"},
	};
	char buf[32];

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_string_equal(shell_size(buf, want[i].n, true), want[i].text);
	assert_string_equal(shell_size(buf, 1536, false), "1536");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_hadoops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
