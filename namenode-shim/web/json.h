/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * json - writing JSON: objects, arrays and values in order, commas and escapes by themselves
 *
 * Units: text is UTF-8 as given; control characters, quotes and backslashes are escaped.
 * Threading: none of its own.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 16

struct json {
	FILE *out; /* borrowed */
	int depth;
	bool more[JSON_DEPTH_MAX]; /* something stands at this depth already */
	bool pretty;
};

/** @key NULL: an element of an array, or the whole. @open is '{' or '['. */
void json_open(struct json *j, const char *key, char open);
void json_close(struct json *j, char close);
void json_text(struct json *j, const char *key, const char *value); /* NULL: null */
void json_u64(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_num(struct json *j, const char *key, double value);
