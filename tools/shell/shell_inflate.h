/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * shell_inflate - what gzip and zlib have packed, unpacked as it comes
 *
 * Idea: bytes go in as they are read, and go out to a function. Several gzip members behind one
 * another are one text. Built without zlib, starting fails.
 * Ownership: shell_inflate_end() frees. Threading: one caller.
 * Source: RFC 1950, RFC 1952.
 */
#include <stdbool.h>
#include <stddef.h>

struct shell_inflate;

/** 0, or -errno, which ends the work. */
typedef int shell_inflate_fn(void *arg, const void *p, size_t len);

/** @gzip: else zlib's format. -ENOTSUP: this program was built without zlib; -ENOMEM. */
int shell_inflate_start(bool gzip, struct shell_inflate **ret);
/** Unpack @len more bytes. -EBADMSG: they are damaged, or were not packed so; what @out returns. */
int shell_inflate_feed(struct shell_inflate *x, const void *p, size_t len, shell_inflate_fn *out,
		       void *arg);
/** The end has come: -EBADMSG when it should not have. */
int shell_inflate_finish(const struct shell_inflate *x);
void shell_inflate_end(struct shell_inflate *x);
