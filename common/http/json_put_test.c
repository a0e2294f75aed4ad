/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a page: whatever text and number it is given, no member is missing, and what
 * goes out is JSON. */
#include "common/http/json_put.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Takes @o. */
static void assert_written(json_t *o, const char *want)
{
	char *const text = json_dumps(o, JSON_COMPACT | JSON_PUT_REALS);

	assert_non_null(text);
	assert_string_equal(text, want);
	free(text);
	json_decref(o);
}

static void members_come_out_in_the_order_they_were_put(void **state)
{
	json_t *const o = json_object();

	(void)state;
	put_u64(o, "z", 1);
	put_text(o, "a", "\"\\\x01/\n");
	put_bool(o, "m", true);
	put_text(o, "nothing", NULL);
	put_value(o, "list", json_array());
	assert_written(o, "{\"z\":1,\"a\":\"\\\"\\\\\\u0001/\\n\",\"m\":true,\"nothing\":null,"
			  "\"list\":[]}");
}

static void bytes_that_are_no_utf8_are_shown_in_values_and_names(void **state)
{
	json_t *const o = json_object(), *const inner = json_object();

	(void)state;
	put_text(o, "v", "a\xff\xc3\xa4\xc3(\xed\xa0\x80");
	put_u64(o, "k\x80", 2);
	put_text(inner, "\xfe:9866", "r\xfe");
	put_json_text(o, "text", inner);
	assert_written(o, "{\"v\":\"a\\\\xff\xc3\xa4\\\\xc3(\\\\xed\\\\xa0\\\\x80\",\"k\\\\x80\":2,"
			  "\"text\":\"{\\\"\\\\\\\\xfe:9866\\\":\\\"r\\\\\\\\xfe\\\"}\"}");
}

static void large_numbers_keep_every_digit(void **state)
{
	json_t *const o = json_object();

	(void)state;
	put_u64(o, "a", (1ull << 53) + 1);
	put_u64(o, "b", INT64_MAX);
	put_u64(o, "c", UINT64_MAX);
	put_real(o, "d", 12.345678);
	put_real(o, "e", NAN);
	assert_written(o, "{\"a\":9007199254740993,\"b\":9223372036854775807,"
			  "\"c\":9223372036854775807,\"d\":12.345678,\"e\":null}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_come_out_in_the_order_they_were_put),
		cmocka_unit_test(bytes_that_are_no_utf8_are_shown_in_values_and_names),
		cmocka_unit_test(large_numbers_keep_every_digit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
