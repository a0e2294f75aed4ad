/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http/json_put.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"

json_t *put_as_text(const char *text)
{
	char *shown, *at;
	json_t *v;

	if (!text)
		return json_null();
	v = json_string(text);
	if (v || utf8_is_valid(text))
		return v;
	at = shown = calloc(strlen(text) + 1, UTF8_ESCAPED);
	if (!shown)
		return NULL;
	while (*text) {
		const size_t len = utf8_char_len(text);

		if (len)
			at = mempcpy(at, text, len);
		else
			utf8_escape(at, *text), at += UTF8_ESCAPED;
		text += len ? len : 1;
	}
	v = json_string(shown);
	free(shown);
	return v;
}

void put_value(json_t *object, const char *key, json_t *value)
{
	json_t *const name = put_as_text(key);
	const char *shown = json_string_value(name);

	(void)json_object_set_new(object, shown ? shown : "", value ? value : json_null());
	json_decref(name);
}

void put_text(json_t *object, const char *key, const char *text)
{
	put_value(object, key, put_as_text(text));
}

void put_u64(json_t *object, const char *key, uint64_t n)
{
	put_value(object, key, json_integer((json_int_t)(n < INT64_MAX ? n : INT64_MAX)));
}

void put_real(json_t *object, const char *key, double n)
{
	put_value(object, key, json_real(n));
}

void put_bool(json_t *object, const char *key, bool is)
{
	put_value(object, key, json_boolean(is));
}

void put_json_text(json_t *object, const char *key, json_t *value)
{
	char *const text = json_dumps(value, JSON_COMPACT | JSON_PUT_REALS);

	put_text(object, key, text);
	free(text);
	json_decref(value);
}
