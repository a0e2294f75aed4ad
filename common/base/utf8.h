/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * utf8 - is a text UTF-8, and how are other bytes shown?
 *
 * Idea: the strings of protobuf messages are UTF-8, and a Java program reads what is not as other
 * characters than were meant: two names may then look alike to it. So nothing else is let in.
 * Threading: pure. Source: RFC 3629.
 */
#include <stdbool.h>
#include <stddef.h>

/** Bytes of the character that @s begins with; 0: none, or one that is too long, too large (over
 *  U+10FFFF), cut short, or half of a UTF-16 pair. */
static inline size_t utf8_char_len(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	const unsigned char first = p[0];
	const size_t len = first < 0x80   ? 1
			   : first < 0xc2 ? 0
			   : first < 0xe0 ? 2
			   : first < 0xf0 ? 3
			   : first < 0xf5 ? 4
					  : 0;
	/* What the second byte may be, where the first leaves room for too long, too large or half
	 * a pair. */
	const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	if (!first || (len > 1 && (p[1] < low || p[1] > high)))
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

static inline bool utf8_is_valid(const char *s)
{
	while (*s) {
		const size_t len = utf8_char_len(s);

		if (len == 0)
			return false;
		s += len;
	}
	return true;
}

#define UTF8_ESCAPED 4

/** @byte as a person is shown it: \xNN, without a NUL. */
static inline void utf8_escape(char ret[UTF8_ESCAPED], char byte)
{
	static const char hex[] = "0123456789abcdef";

	ret[0] = '\\';
	ret[1] = 'x';
	ret[2] = hex[(unsigned char)byte >> 4];
	ret[3] = hex[byte & 15];
}
