/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * requests - what calls that wait (namespace.c, file.c) and calls that do not (async_calls.c) have
 * in common
 *
 * Idea: how a request is filled and what its answer means is the same for both; only the way there
 * differs.
 * Ownership: a request points into itself and at the strings it was given; it is used at once.
 */
#include "ClientNamenodeProtocol.pb-c.h"
#include "client/include/dfsclient_ext.h"
#include "client/src/fs/fs.h"

void stat_from_msg(const Hd__HdfsFileStatusProto *f, struct dfs_stat *st);

/** The bits of @mode of the caller that its umask, or that of @fs, leaves. */
uint32_t mode_masked(const struct dfs *fs, uint32_t mode);

struct mkdirs_request {
	Hd__MkdirsRequestProto m;
	Hd__FsPermissionProto masked, unmasked;
};

void mkdirs_request(const struct dfs *fs, const char *path, uint32_t mode, bool parents,
		    struct mkdirs_request *ret);
int mkdirs_answer(const Hd__MkdirsResponseProto *m, const char *path, struct err *err);
/** mkdirs is content with a directory that exists; mkdir is not. -EEXIST. */
int mkdir_exists(const char *path, struct err *err);
/** What rename2 throws as a bare IOException is told apart by its words. */
int rename_errno(int rc, const struct err *err);
/** -EPERM. */
int delete_root(struct err *err);

struct create_request {
	Hd__CreateRequestProto m;
	Hd__FsPermissionProto masked, unmasked;
	Hd__CryptoProtocolVersionProto crypto;
};

/** @opts of the caller (may be NULL), with defaults where it says nothing. -EINVAL, -ENOTSUP. */
int create_opts(struct dfs *fs, const struct dfs_create_opts *opts, struct dfs_create_opts *ret,
		struct err *err);
void create_request(const struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		    struct create_request *ret);
/** The NameNode made the file, as @m says, out of which the first block is taken. When this fails
 * the file is to be taken back. */
int create_answer(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		  Hd__CreateResponseProto *m, struct dfs_file **ret, struct err *err);

/** -EINVAL when the NameNode has refused a replication or a block size outside its limits; else
 *         @rc. */
int limits_errno(int rc, const struct err *err);
/** The call failed with @rc, and @there is what stands in the way (NULL: not known). */
int create_errno(const char *path, int rc, const struct dfs_stat *there, struct err *err);

/** The answer to locate_request() at 0; takes @m. */
int open_answer(struct dfs *fs, const char *path, Hd__GetBlockLocationsResponseProto *m,
		struct dfs_file **ret, struct err *err);
/** A new file to which nothing was written: it is closed with a call, and then file_drop(). */
bool file_is_new(const struct dfs_file *f, uint64_t *ret_id, const char **ret_path);
void file_drop(struct dfs_file *f);
struct reader;
/** NULL: it is being written. */
struct reader *file_reader(struct dfs_file *f);
