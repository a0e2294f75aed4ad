/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ask - a call of dfsclient.h about one path, on its way to the NameNode and back
 *
 * Idea: nearly every call does the same: resolve the path, send one request that names it, turn what
 * went wrong into a sentence with the path in front. A struct ask carries path and outcome through
 * these steps; after the first failure the rest does nothing.
 *   ask_begin(&a, fs, path); fill the request with a.path; ask(&a, ...); return ask_end(&a, out);
 * Ownership: everything is in the struct; the answer is the caller's (pb_free()).
 * Threading: one user.
 */
#include "client/src/fs.h"
#include "client/src/path.h"

struct ask {
	struct dfs *fs; /* borrowed */
	int rc;         /* 0, or the first failure */
	struct err err;
	char path[PATH_TEXT_MAX]; /* absolute */
};

/** Resolve @path. */
void ask_begin(struct ask *a, struct dfs *fs, const char *path);
/** Send @req, unless something failed before; the answer into *@ret (may be NULL). Returns a->rc. */
int ask(struct ask *a, const char *method, const ProtobufCMessage *req,
	const ProtobufCMessageDescriptor *reply, void *ret);
/** Fill the caller's struct dfs_err; returns the outcome. */
int ask_end(struct ask *a, struct dfs_err *out);

/** The same for a path that is resolved: put it before what went wrong. */
int path_call(struct dfs *fs, const char *method, const char *path, const ProtobufCMessage *req,
	      const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
/** What path_call() adds to a failure. */
void path_blame(const char *path, int rc, struct err *err);
/** -ENOENT in the usual words. */
int path_not_found(struct err *err, const char *path);
/** dfs_stat() inside. */
int path_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct err *err);
