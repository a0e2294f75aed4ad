/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: cause first, cure last, always one line, never past the buffer. */
#include "common/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/utf8.h"

static void a_sentence_is_built_from_inside_out(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_sys(&e, -ECONNREFUSED, "connect to %s", "nn:8020"), -ECONNREFUSED);
	assert_int_equal(err_prefix(&e, "put %s", "/a"), -ECONNREFUSED);
	assert_int_equal(err_cure(&e, "is it running?"), -ECONNREFUSED);
	assert_string_equal(e.text,
			    "put /a: connect to nn:8020: Connection refused; is it running?");
}

static void control_characters_cannot_break_the_line(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, -EINVAL, "a\nb\x7f%s", "\x1b[1m");
	assert_string_equal(e.text, "a\\x0ab\\x7f\\x1b[1m");
}

static void bytes_that_are_no_text_are_escaped(void **state)
{
	char big[ERR_TEXT_MAX + 20];
	struct err e;

	(void)state;
	err_set(&e, -EINVAL, "%s: caf\xc3\xa9", "caf\xe9");
	err_prefix(&e, "put");
	assert_string_equal(e.text, "put: caf\\xe9: caf\xc3\xa9");
	/* cut anywhere in a character */
	for (size_t at = ERR_TEXT_MAX - 10; at < ERR_TEXT_MAX; at++) {
		memset(big, 'x', at);
		snprintf(big + at, sizeof(big) - at, "\xe6\x97\xa5\xf0\x90\x80\x80");
		err_set(&e, -EINVAL, "%s", big);
		assert_true(utf8_is_valid(e.text));
	}
}

static void a_long_text_is_cut_and_null_is_allowed(void **state)
{
	char big[2000];
	struct err e;

	(void)state;
	memset(big, '\n', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	err_set(&e, -EIO, "%s", big);
	for (int i = 0; i < 3; i++) {
		err_prefix(&e, "%s", big);
		err_cure(&e, "%s", big);
		assert_true(strlen(e.text) < sizeof(e.text));
	}
	assert_int_equal(err_set(NULL, -EBUSY, "x"), -EBUSY);
	assert_int_equal(err_sys(NULL, -EBUSY, "x"), -EBUSY);
	assert_int_equal(err_prefix(NULL, "x"), -EIO);
	assert_string_equal(err_name(-ENOENT), "No such file or directory");
	assert_string_equal(err_name(-99999), "unknown error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sentence_is_built_from_inside_out),
		cmocka_unit_test(control_characters_cannot_break_the_line),
		cmocka_unit_test(bytes_that_are_no_text_are_escaped),
		cmocka_unit_test(a_long_text_is_cut_and_null_is_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
