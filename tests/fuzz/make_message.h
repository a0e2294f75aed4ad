/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * make_message - a well-formed message of any type, chosen by the bytes of an input
 *
 * Idea: a change of one byte of the input changes one field, and the lengths around it stay right.
 * Texts and numbers are mostly ones that mean something to who reads the message.
 */
#include <protobuf-c/protobuf-c.h>

#include "common/base/cursor.h"

struct words {
	const char *const *texts;
	const uint64_t *numbers;
	size_t text_count, number_count;
};

/** Takes what it needs of @r; at its end no more fields come. w->bad: there was no room. */
void message_make(struct rd *r, const ProtobufCMessageDescriptor *d, const struct words *words,
		  struct wr *w);

/** The next part of an input: length (be16), and so many bytes, or all that are left. */
static inline struct rd input_part(struct rd *r)
{
	const size_t want = rd_be16(r), n = want < rd_left(r) ? want : rd_left(r);
	const uint8_t *p = rd_bytes(r, n);

	return rd_init(p ? p : (const uint8_t *)"", p ? n : 0);
}
