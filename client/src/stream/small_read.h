/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * small_read - READ_SMALL: a few bytes of a block by one request and one answer
 *
 * Idea: a node of ours says in its answer to an ordinary read that its connection takes READ_SMALL.
 * From then on a small read on that connection is one send and one receive, and several may be
 * under way. The bytes are verified here as those of an ordinary read are. Whatever is not as it
 * should be is no error: the caller reads the ordinary way, which tells the node, the NameNode or
 * the caller what is wrong.
 * Threading: as struct sock, one thread at a time.
 */
#include "client/src/stream/sock.h"
#include "client/src/stream/stream.h"
#include "common/wire/small_read.h"

#define SMALL_READ_REQUEST_MAX 1024u

/** May @r go by this way, on a connection that takes it? */
static inline bool small_read_fits(const struct read_setup *r)
{
	return r->len <= SMALL_READ_MAX;
}
/** The request, for @out; its length, or 0: it does not fit (a long token). */
size_t small_read_encode(const struct read_setup *r, uint32_t tag,
			 uint8_t out[SMALL_READ_REQUEST_MAX]);
/** The next answer in the buffer of @s: 1 and the bytes behind its header, borrowed until the
 *  caller has consumed the whole of it (small_read_answer_len()); 0 it is not all here; -EPROTO. */
int small_read_peek(struct sock *s, struct small_read_answer *ret, const uint8_t **ret_bytes);
static inline size_t small_read_answer_len(const struct small_read_answer *a)
{
	return SMALL_READ_HEADER_LEN + a->crc_len + a->data_len;
}
/** The @len bytes from @offset of the block, which were asked for, verified, to @buf. False: they
 *  are not these. */
bool small_read_take(const struct small_read_answer *a, const uint8_t *bytes, uint64_t offset,
		     void *buf, uint32_t len);

/** Read @r to @buf and wait for it. r->len; 0: by the ordinary way; -errno: the node does not
 *  answer. */
ssize_t small_read(struct dfs *fs, const struct read_setup *r, void *buf, struct err *err);
