/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * small_read - READ_SMALL, an operation of our own (docs/wire.md), and its answer
 *
 * Idea: the request has fixed fields, which are decoded without memory of their own: as a protobuf
 * message they were half of what a node computed for a small read. The answer is a header of a
 * fixed length, then CRCs, then data. There is neither a last packet nor a status of the reader:
 * whoever is not content reads the ordinary way. Several requests may be under way on a connection.
 * Answers come in any order and are known by their tag.
 * Ownership: plain values; a decoded request borrows its token. Threading: pure functions. Units:
 * bytes.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"

#define SMALL_READ_MAX 32768u        /* that may be asked for */
#define SMALL_READ_ANSWER_MAX 65536u /* header, CRCs and data; a longer one is refused */
#define SMALL_READ_HEADER_LEN 24u
#define SMALL_READS_MAX 64u /* that a node takes at a time on a connection; more wait in it */

struct small_read_request {
	uint32_t tag, len;
	uint64_t offset;           /* in the block */
	struct block block;        /* its length is not said */
	const char *pool;          /* to be encoded */
	const uint8_t *identifier; /* of the token, as the next one; length 0: none */
	const uint8_t *password;
	size_t identifier_len, password_len;
};

/** Version, opcode, length and request to @out of @cap bytes; its length, or 0: it does not fit. */
size_t small_read_request_encode(const struct small_read_request *q, uint8_t *out, size_t cap);
/** @buf without version, opcode and varint length. The pool id, which is not judged, goes to
 *  @ret_pool. -EPROTO. */
int small_read_request_decode(const uint8_t *buf, size_t len, struct small_read_request *ret,
			      char ret_pool[BLOCK_POOL_ID_MAX]);

struct small_read_answer {
	uint32_t tag;
	enum dt_status status; /* not DT_SUCCESS: nothing else is there */
	enum crc_type crc_type;
	uint32_t bytes_per_crc;
	uint32_t lead;    /* bytes of data before those that were asked for */
	uint32_t crc_len; /* what data_len bytes need */
	uint32_t data_len;
};

/** The fields must be in range. */
void small_read_answer_encode(const struct small_read_answer *a,
			      uint8_t out[SMALL_READ_HEADER_LEN]);
/** -EPROTO: fields that do not fit each other, or an answer over SMALL_READ_ANSWER_MAX. */
int small_read_answer_decode(const uint8_t buf[SMALL_READ_HEADER_LEN],
			     struct small_read_answer *ret);
