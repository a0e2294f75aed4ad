/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a pattern matches the names that Hadoop's does, and a text that is no pattern
 * means itself. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/shell/shell_glob.h"

static void names_match(void **state)
{
	static const struct {
		const char *part, *yes, *no; /* names, apart by blanks */
	} want[] = {
		{"a", "a", "b aa A"},
		{"*", "a .hidden * \xc3\xbc", ""},
		{"a*b", "ab axb abb a*b aabab", "a b ba abx"},
		{"*.gz", "x.gz .gz a.gz.gz", "gz x.g x.gzz"},
		{"a**b*", "ab axxb abx", "a"},
		{"?", "a \xc3\xbc \xe6\x97\xa5 \xff", "ab \xc3\xbc\xc3\xbc"},
		{"[ab]x", "ax bx", "cx x abx"},
		{"[a-c]", "a b c", "d - B"},
		{"[^a-c]", "d - \xc3\xbc", "a b c"},
		{"[!a]", "b !", "a"},
		{"[a-]", "a -", "b"},
		{"[]a]", "] a", "b"},
		{"[\\]]", "]", "\\ a"},
		{"[\xc3\xa0-\xc3\xbf]", "\xc3\xa4 \xc3\xbc", "a \xc4\x80"},
		{"\\*", "*", "a \\*"},
		{"a\\?b", "a?b", "axb"},
		{"part-[0-9]*", "part-0 part-00001 part-9x", "part- part-x0"},
		{"\n*", "\nx", "x"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		for (int yes = 0; yes < 2; yes++) {
			char names[64], *rest = names;

			(void)snprintf(names, sizeof(names), "%s", yes ? want[i].yes : want[i].no);
			for (char *n; (n = strsep(&rest, " ")) && *n;)
				if (glob_match(want[i].part, n) != yes)
					fail_msg("%s and %s", want[i].part, n);
		}
	}
	assert_true(glob_match("*", ""));
	assert_false(glob_match("?", ""));
}

static void a_pattern_of_many_stars_ends(void **state)
{
	(void)state;
	assert_false(
		glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
			   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void escapes_take_the_meaning_away(void **state)
{
	char text[] = "/a\\*b\\\\c\\{d\\", plain[] = "/a\xff/\xc3\xbc";

	(void)state;
	assert_false(glob_is_pattern(text));
	glob_unescape(text);
	assert_string_equal(text, "/a*b\\c{d\\");
	glob_unescape(plain);
	assert_string_equal(plain, "/a\xff/\xc3\xbc");
	assert_true(glob_is_pattern("/a/b*"));
	assert_true(glob_is_pattern("{a}"));
	assert_true(glob_is_pattern("\\\\?"));
	assert_false(glob_is_pattern("/a]b}c,d"));
}

static void braces_are_expanded(void **state)
{
	static const struct {
		const char *text, *all; /* apart by blanks */
	} want[] = {
		{"/a", "/a"},
		{"/{a,b}", "/a /b"},
		{"/{a}", "/a"},
		{"/x{,y}z", "/xz /xyz"},
		{"{a,b}{c,d}", "ac ad bc bd"},
		{"/{a/b,c{d,e}}/f", "/a/b/f /cd/f /ce/f"},
		{"/\\{a,b}", "/\\{a,b}"},
		{"/{a\\,b,c}", "/a\\,b /c"},
		{"/{a*,[bc]}", "/a* /[bc]"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct glob_list l;
		char line[128] = "";

		assert_int_equal(glob_braces(want[i].text, &l), 0);
		for (size_t k = 0; k < l.count; k++)
			(void)snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s",
				       k ? " " : "", l.text[k]);
		assert_string_equal(line, want[i].all);
		glob_list_free(&l);
	}
}

static void what_is_not_closed_is_told(void **state)
{
	static const char *const open[] = {"/{a", "/{a,{b}", "{", "/a/{b,c"};
	static const char *const sets[] = {"[a", "/x/[", "[^", "[]", "/[a/b]", "\\[[a"};
	static const char *const fine[] = {"[a]", "a]", "\\[a", "[]]", "[^]]/[!x]", "[\\]]"};
	struct glob_list l;

	(void)state;
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
		assert_int_equal(glob_braces(open[i], &l), -EINVAL);
		glob_list_free(&l);
	}
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		assert_int_equal(glob_check(sets[i]), -EINVAL);
	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		assert_int_equal(glob_check(fine[i]), 0);
}

static void alternatives_have_a_bound(void **state)
{
	struct glob_list l;
	char text[256] = "";

	(void)state;
	for (int i = 0; i < 30; i++)
		memcpy(text + 5 * i, "{a,b}", sizeof("{a,b}"));
	assert_int_equal(glob_braces(text, &l), -E2BIG);
	assert_int_equal(l.count, GLOB_ALTERNATIVES_MAX);
	glob_list_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_match),
		cmocka_unit_test(a_pattern_of_many_stars_ends),
		cmocka_unit_test(escapes_take_the_meaning_away),
		cmocka_unit_test(braces_are_expanded),
		cmocka_unit_test(what_is_not_closed_is_told),
		cmocka_unit_test(alternatives_have_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
