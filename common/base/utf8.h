/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * utf8 - is a text UTF-8?
 *
 * Idea: the strings of protobuf messages are UTF-8, and a Java program reads what is not as other characters
 * than were meant: two names may then look alike to it. So nothing else is let in.
 * Threading: pure. Source: RFC 3629.
 */
#include <stdbool.h>

/** No sequence that is too long, too large (over U+10FFFF), cut short, or half of a UTF-16 pair. */
static inline bool utf8_is_valid(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	while (*p) {
		const unsigned char first = *p++;
		const int more = first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2
							  : first < 0xf5		      ? 3
											      : -1;
		/* What the second byte may be, where the first leaves room for too long, too large or half a pair. */
		const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
		const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

		if (more < 0 || (more > 0 && (*p < low || *p > high)))
			return false;
		for (int i = 0; i < more; i++, p++)
			if ((*p & 0xc0) != 0x80)
				return false;
	}
	return true;
}
