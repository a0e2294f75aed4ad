/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * json_put - attributes of a page as members of jansson's objects
 *
 * Idea: jansson takes no text that is not UTF-8, and the member would be missing. Such text comes
 * from a peer or the command line; each byte that is no UTF-8 is shown as \xNN, as in the log.
 * Ownership: an object keeps what is put into it; put_value() and put_json_text() take the value.
 * Threading: none of its own.
 * Units: a number above INT64_MAX, which is no number to Java either, is shown as INT64_MAX.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* How pages write numbers with a point. */
#define JSON_PUT_REALS JSON_REAL_PRECISION(8)

/** @text as a value; NULL: null. NULL: out of memory. */
json_t *put_as_text(const char *text);
/** NULL (what jansson says of no memory and of no number): null. */
void put_value(json_t *object, const char *key, json_t *value);
void put_text(json_t *object, const char *key, const char *text);
void put_u64(json_t *object, const char *key, uint64_t n);
void put_real(json_t *object, const char *key, double n);
void put_bool(json_t *object, const char *key, bool is);
/** A text that holds JSON itself, as several attributes of HDFS do. */
void put_json_text(json_t *object, const char *key, json_t *value);
