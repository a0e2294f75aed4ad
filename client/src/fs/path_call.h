/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * path_call - a call of dfsclient.h about one path, on its way to the NameNode and back
 *
 * Idea: nearly every call does the same: resolve the path, send one request that names it, turn
 * what went wrong into a sentence with the path in front. A struct path_call carries path and
 * outcome through these steps; after the first failure the rest does nothing.
 *   path_call_begin(&a, fs, path); fill the request with a.path; path_call_send(&a, ...); return
 * path_call_end(&a, out);
 * Ownership: everything is in the struct; the answer is the caller's (pb_free()).
 * Threading: one user.
 */
#include "client/src/fs/fs.h"
#include "client/src/fs/path.h"

struct path_call {
	struct dfs *fs; /* borrowed */
	int rc;         /* 0, or the first failure */
	struct err err;
	char path[PATH_TEXT_MAX]; /* absolute */
};

/** Resolve @path. */
void path_call_begin(struct path_call *a, struct dfs *fs, const char *path);
/** Send @req, unless something failed before; the answer into *@ret (may be NULL). Returns a->rc.
 */
int path_call_send(struct path_call *a, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret);
/** Fill the caller's struct dfs_err; returns the outcome. */
int path_call_end(struct path_call *a, struct dfs_err *out);

/** The same for a path that is resolved: put it before what went wrong. */
int path_call_once(struct dfs *fs, const char *method, const char *path,
		   const ProtobufCMessage *req, const ProtobufCMessageDescriptor *reply, void *ret,
		   struct err *err);
/** What path_call_once() adds to a failure. */
void path_blame(const char *path, int rc, struct err *err);
/** -ENOENT in the usual words. */
int path_not_found(struct err *err, const char *path);
/** dfs_stat() inside. */
int path_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct err *err);
