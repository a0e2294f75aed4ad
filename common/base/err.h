/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * err - one error dialect, and the sentence a person reads
 *
 * Idea: a function returns 0 or -errno; where a person will read the outcome it also fills a
 * struct err with the cause and the cure. Foreign dialects stop on the line of the call.
 * Ownership: a plain value, usually on the caller's stack; every `struct err *` may be NULL.
 * Threading: none; the value belongs to its caller.
 */
#include <errno.h>
#include <stdarg.h>

/* A callee that forgot errno must not look like success: -EIO. */
static inline int neg_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}
/** -1 and errno: libc, rdma_*() */
static inline int ret_errno(int rc)
{
	return rc < 0 ? neg_errno() : rc;
}
/** errno value: ibv_post_*(), pthread_*() */
static inline int ret_code(int rc)
{
	return rc > 0 ? -rc : rc;
}

#define ERR_TEXT_MAX 512

struct err {
	int rc; /* -errno, 0 when unset */
	/* "cause: detail; cure", one line of UTF-8; control characters and what is none are escaped
	 */
	char text[ERR_TEXT_MAX];
	char remote[128]; /* Java class of a remote exception, or "" */
};

#define ERR_INIT ((struct err){0})

/** Record @rc with a sentence; what was recorded before is replaced. Returns @rc. */
int err_set(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/** Like err_set(), and ": <what errno means>" is appended after the sentence. Returns @rc. */
int err_sys(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/** Put "fmt: " before what is recorded already (context added on the way up). Returns e->rc,
 *  or -EIO when @e is NULL. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Append "; cure". Returns e->rc, or -EIO when @e is NULL. */
int err_cure(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** "No such file or directory" for -ENOENT; thread-safe. */
const char *err_name(int rc);
