/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: one write, one line, whatever the text; nothing below the level. */
#include "common/base/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/utf8.h"

static int saved, pipe_fd[2];

static int catch_stderr(void **state)
{
	(void)state;
	saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	return saved < 0 || pipe2(pipe_fd, O_NONBLOCK) < 0 || dup2(pipe_fd[1], STDERR_FILENO) < 0;
}

static int release_stderr(void **state)
{
	(void)state;
	(void)dup2(saved, STDERR_FILENO);
	(void)close(saved);
	(void)close(pipe_fd[0]);
	(void)close(pipe_fd[1]);
	return 0;
}

static const char *caught(void)
{
	static char buf[8192];
	ssize_t n = read(pipe_fd[0], buf, sizeof(buf) - 1);

	buf[n > 0 ? n : 0] = '\0';
	return buf;
}

static void a_line_has_time_level_and_component(void **state)
{
	const char *s;

	(void)state;
	log_init("dfs-x", LOG_INFO);
	log_info("op=%s rc=%d", "read", -5);
	s = caught();
	assert_int_equal(s[10], 'T');
	assert_int_equal(s[23], 'Z');
	assert_string_equal(s + 24, " info dfs-x op=read rc=-5\n");
	log_debug("hidden");
	assert_string_equal(caught(), "");
}

static void newlines_and_length_cannot_break_the_line(void **state)
{
	char big[5000];
	const char *s;

	(void)state;
	memset(big, '\n', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	log_error("%s", big);
	s = caught();
	assert_ptr_equal(strchr(s, '\n'), s + strlen(s) - 1);
	assert_string_equal(s + strlen(s) - 4, "...\n");
}

/* A peer's text in a line cannot start another one, nor tell a terminal what to do. */
static void controls_of_a_peer_are_not_obeyed(void **state)
{
	const char *s;

	(void)state;
	log_info("uuid=%s", "a\n\r\033[2J\x7f\xc2\x9b"
			    "2Jz\xc2\xa0");
	s = caught();
	assert_string_equal(strstr(s, "uuid="), "uuid=a   [2J\\x7f\\xc2\\x9b"
						"2Jz\xc2\xa0\n");
}

static void a_line_is_utf8(void **state)
{
	char big[2100];
	const char *s;

	(void)state;
	log_info("name=a\xc3\xa9\xe6\x97\xa5 %s", "caf\xe9\x94");
	s = caught();
	assert_string_equal(strstr(s, "name="), "name=a\xc3\xa9\xe6\x97\xa5 caf\\xe9\\x94\n");
	for (size_t at = 1900; at < 2050; at++) { /* cut anywhere in a character */
		memset(big, 'x', at);
		snprintf(big + at, sizeof(big) - at,
			 "\xe6\x97\xa5\xff\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5");
		log_info("%s", big);
		s = caught();
		assert_true(utf8_is_valid(s));
		assert_ptr_equal(strchr(s, '\n'), s + strlen(s) - 1);
	}
}

static void foreign_text_is_quoted_and_cut_at_every_size(void **state)
{
	char buf[64];

	(void)state;
	assert_string_equal(log_quote(buf, sizeof(buf), "a\"\\\n\xff\0z", 7),
			    "\"a\\\"\\\\\\x0a\\xff\\x00z\"");
	for (size_t size = 0; size <= sizeof(buf); size++) {
		memset(buf, 'Q', sizeof(buf));
		log_quote(buf, size, "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", 18);
		assert_true(size == 0 || memchr(buf, '\0', size));
		for (size_t i = size; i < sizeof(buf); i++)
			assert_int_equal(buf[i], 'Q');
	}
}

static void a_flood_is_thinned_and_counted(void **state)
{
	struct log_rate r = {0};
	uint32_t dropped = 99;

	(void)state;
	assert_true(log_rate_ok(&r, 60000, &dropped));
	assert_int_equal(dropped, 0);
	assert_false(log_rate_ok(&r, 60000, &dropped));
	assert_false(log_rate_ok(&r, 60000, &dropped));
	r.next_ns = 0;
	assert_true(log_rate_ok(&r, 60000, &dropped));
	assert_int_equal(dropped, 2);
}

static void level_names_are_parsed(void **state)
{
	enum log_level l;

	(void)state;
	assert_int_equal(log_parse_level("Debug", &l), 0);
	assert_int_equal(l, LOG_DEBUG);
	assert_true(log_parse_level("loud", &l) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_has_time_level_and_component, catch_stderr,
						release_stderr),
		cmocka_unit_test_setup_teardown(newlines_and_length_cannot_break_the_line,
						catch_stderr, release_stderr),
		cmocka_unit_test_setup_teardown(controls_of_a_peer_are_not_obeyed, catch_stderr,
						release_stderr),
		cmocka_unit_test_setup_teardown(a_line_is_utf8, catch_stderr, release_stderr),
		cmocka_unit_test(foreign_text_is_quoted_and_cut_at_every_size),
		cmocka_unit_test(a_flood_is_thinned_and_counted),
		cmocka_unit_test(level_names_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
