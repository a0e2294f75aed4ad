/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/digest - the client's half of DIGEST-MD5, quality of protection "auth"
 *
 * Idea: with it a client shows a token to a server of Hadoop without sending the password. A
 * challenge comes, an answer goes, and the server proves that it knows the password too.
 * Threading: pure but for the random number.
 * Limits: texts of the challenge are at most DIGEST_VALUE_MAX bytes, names and passwords
 * DIGEST_SECRET_MAX.
 * Source: RFC 2831; the hash is libcrypto's.
 */
#include <stddef.h>

#include "common/base/err.h"

enum {
	DIGEST_VALUE_MAX = 512,
	DIGEST_SECRET_MAX = 2800, /* base64 of 2100 bytes */
	DIGEST_ANSWER_MAX = 4096, /* what a server takes */
	DIGEST_HEX = 32,
};

struct digest {
	char cnonce[DIGEST_HEX + 1]; /* the client's random number */
	char proof[DIGEST_HEX + 1];  /* what the server will say */
};

/** A fresh random number. The error of getrandom(2). */
int digest_init(struct digest *d);
/**
 * The answer to @challenge, for the service @uri, into @buf with NUL; returns its length.
 *  -EPROTO  no challenge of DIGEST-MD5
 *  -ENOTSUP the server wants more than "auth" (hadoop.rpc.protection), or there is no MD5
 *  -E2BIG   name, password or @uri is too long
 */
int digest_answer(struct digest *d, const char *challenge, size_t len, const char *user,
		  const char *password, const char *uri, char buf[static DIGEST_ANSWER_MAX],
		  struct err *err);
/** The server's last word, "rspauth=...": 0, or -EACCES when it does not know the password. */
int digest_check(const struct digest *d, const char *text, size_t len, struct err *err);
