/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * exception - why a call fails, in the words stock clients understand
 *
 * Idea: clients act on the exact Java class name; inside the house the same failure is an errno.
 * Ownership: a plain value inside its call; the text lives in the arena of the call, because it may
 * name paths of any length. Threading: none.
 * Source: hdfs-wire 1.5, 13.
 */
#include "common/base/err.h"

enum exception {
	EXC_IO,
	EXC_DISK_FULL,
	EXC_NOT_FOUND,
	EXC_ACCESS,
	EXC_EXISTS,
	EXC_NOT_EMPTY,
	EXC_PARENT_NOT_DIR,
	EXC_TRAVERSE, /* a file stands where a path that is read needs a directory */
	EXC_NOT_DIR,
	EXC_INVALID_PATH,
	EXC_NAME_TOO_LONG,
	EXC_DIR_FULL,
	EXC_BEING_CREATED,
	EXC_RECOVERY,
	EXC_NOT_REPLICATED,
	EXC_LEASE_EXPIRED,
	EXC_SAFE_MODE,
	EXC_RETRIABLE,
	EXC_ILLEGAL_ARGUMENT,
	EXC_UNSUPPORTED,
	EXC_UNREGISTERED,
	EXC_BAD_REPORT_LEASE,
	EXC_NO_XATTR,
	EXC_HA_FAILED,
	EXC_AUTHORIZATION,
	EXC_DISALLOWED,
	EXC_BAD_ARGUMENT,
	EXC_ASSERTION, /* a path that stock clients never send */
	EXC_QUOTA_NS,
	EXC_QUOTA_DS,
	EXC_SNAPSHOT,
	EXC_ACL,
	EXC_INVALID_REQUEST,
	EXC_UNSUPPORTED_ACTION,
	EXC_INVALID_TOKEN,
	EXC_NO_EC_POLICY,
	EXC_UNRESOLVED, /* a symbolic link is in the way; the text is where the path leads */
	EXC_COUNT
};

struct arena;

struct exception_info {
	const char *cls;  /* NULL: nothing thrown; else static */
	const char *text; /* in @a */
	struct arena *a;  /* borrowed: that of the call; set before anything is thrown */
};

/** Record exception @e; returns its -errno. */
int exception_throw(struct exception_info *x, enum exception e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
