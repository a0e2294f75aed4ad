/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an option is taken by its whole name; none is passed over that is unknown, or
 * that Hadoop has and we do not; what is no option stays an operand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/shell/shell_options.h"

#define SPEC "R skipTrash s: l! -ignore p*"
#define WORDS_MAX 8

/* @line is split at blanks. */
static enum shell_options_rc take(struct shell_options *o, const char *line, int least, int *ret)
{
	static char copy[128];
	char *argv[WORDS_MAX], *rest = copy;
	int argc = 0;

	assert_true(strlen(line) < sizeof(copy));
	memcpy(copy, line, strlen(line) + 1);
	for (char *w; argc < WORDS_MAX && (w = strsep(&rest, " ")) && *w;)
		argv[argc++] = w;
	return shell_options_take(o, SPEC, least, argc, argv, ret);
}

static void options_end_where_operands_begin(void **state)
{
	static const struct {
		const char *line;
		int words;
	} want[] = {
		{"", 0},      {"/a -R", 0},   {"-R /a", 1},       {"-R -skipTrash", 2},
		{"-", 0},     {"-R - -R", 1}, {"-R -- -R /a", 2}, {"--ignore a", 1},
		{"-- --", 1},
	};
	struct shell_options o;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		int words;

		assert_int_equal(take(&o, want[i].line, 0, &words), SHELL_OPTIONS_OK);
		assert_int_equal(words, want[i].words);
	}
}

static void a_flag_is_told_from_one_that_was_not_given(void **state)
{
	struct shell_options o;
	int words;

	(void)state;
	assert_int_equal(take(&o, "-R a", 0, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "R"), "");
	assert_null(shell_option(&o, "skipTrash"));
	assert_null(shell_option(&o, "s"));
	assert_null(shell_option(&o, "none"));
}

static void what_is_not_known_is_not_passed_over(void **state)
{
	static const struct {
		const char *line;
		enum shell_options_rc rc;
		int place;
	} want[] = {
		{"-x /a", SHELL_OPTIONS_UNKNOWN, 0},         {"-R -l /a", SHELL_OPTIONS_REFUSED, 1},
		{"-Rs /a", SHELL_OPTIONS_UNKNOWN, 0},        {"-skip /a", SHELL_OPTIONS_UNKNOWN, 0},
		{"-skipTrashh a", SHELL_OPTIONS_UNKNOWN, 0}, {"-R --x a", SHELL_OPTIONS_UNKNOWN, 1},
		{"-s: a", SHELL_OPTIONS_UNKNOWN, 0},         {"-l! a", SHELL_OPTIONS_UNKNOWN, 0},
	};
	struct shell_options o;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		int place;

		assert_int_equal(take(&o, want[i].line, 0, &place), want[i].rc);
		assert_int_equal(place, want[i].place);
	}
}

static void values_leave_enough_operands(void **state)
{
	struct shell_options o;
	int words;

	(void)state;
	assert_int_equal(take(&o, "-s 5 -R a", 1, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "s"), "5");
	assert_non_null(shell_option(&o, "R"));
	assert_int_equal(words, 3);
	assert_int_equal(take(&o, "-s a", 1, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "s"), "");
	assert_int_equal(words, 1);
	assert_int_equal(take(&o, "-s -R a", 1, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "s"), "");
	assert_non_null(shell_option(&o, "R"));
	assert_int_equal(take(&o, "-s", 0, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "s"), "");
}

static void a_value_may_be_in_the_word(void **state)
{
	struct shell_options o;
	int words;

	(void)state;
	assert_int_equal(take(&o, "-ptopx a", 1, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "p"), "topx");
	assert_int_equal(words, 1);
	assert_int_equal(take(&o, "-p a", 1, &words), SHELL_OPTIONS_OK);
	assert_string_equal(shell_option(&o, "p"), "");
	assert_int_equal(take(&o, "a", 1, &words), SHELL_OPTIONS_OK);
	assert_null(shell_option(&o, "p"));
}

static void an_unknown_one_may_be_an_operand(void **state)
{
	static char r[] = "-R", mode[] = "-w", file[] = "a";
	char *argv[] = {r, mode, r, file};
	struct shell_options o;
	int words;

	(void)state;
	assert_int_equal(shell_options_take(&o, "R ...", 2, 4, argv, &words), SHELL_OPTIONS_OK);
	assert_int_equal(words, 1);
	assert_non_null(shell_option(&o, "R"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_end_where_operands_begin),
		cmocka_unit_test(a_flag_is_told_from_one_that_was_not_given),
		cmocka_unit_test(what_is_not_known_is_not_passed_over),
		cmocka_unit_test(values_leave_enough_operands),
		cmocka_unit_test(a_value_may_be_in_the_word),
		cmocka_unit_test(an_unknown_one_may_be_an_operand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
