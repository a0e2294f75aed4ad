/* SPDX-License-Identifier: Apache-2.0 */
/* file - the calls of dfsclient.h about open files: a reader or a writer behind one handle */
#include <stdlib.h>
#include <string.h>

#include "client/src/append.h"
#include "client/src/ask.h"
#include "client/src/fs.h"
#include "client/src/reader.h"
#include "client/src/writer.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "ClientNamenodeProtocol.pb-c.h"

struct dfs_file {
	struct reader *reader; /* owned; one of the two is set */
	struct writer *writer; /* owned */
};

static int bad_handle(struct dfs_err *out, const char *for_what)
{
	struct err err;

	err_set(&err, -EBADF, "the file is not open for %s", for_what);
	err.remote[0] = '\0';
	return api_err(out, &err, -EBADF);
}

DFS_API int dfs_open(struct dfs *fs, const char *path, struct dfs_file **ret, struct dfs_err *out)
{
	struct dfs_file *f = calloc(1, sizeof(*f));
	char full[PATH_TEXT_MAX];
	struct err err;
	int rc;

	err_reset(&err);
	if (!f)
		return api_err(out, &err, -ENOMEM);
	rc = path_resolve(fs->user, path, full, &err);
	rc = rc ?: stream_check(fs, &err);
	rc = rc ?: reader_new(fs, full, &f->reader, &err);
	if (rc < 0) {
		free(f);
		return api_err(out, &err, rc);
	}
	*ret = f;
	return 0;
}

static void copy_opts(struct dfs_create_opts *to, const struct dfs_create_opts *from,
		      const struct dfs_defaults *d)
{
	*to = (struct dfs_create_opts){0};
	if (from)
		memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
	to->mode = to->mode ?: 0666; /* DFS_MODE_SET is above the permission bits */
	to->replication = to->replication ?: d->replication;
	to->block_size = to->block_size ?: d->block_size;
}

/* The NameNode throws FileAlreadyExistsException for a directory in the way, too. */
static int create_errno(struct dfs *fs, const char *path, int rc, struct err *err)
{
	struct dfs_stat st;

	if (rc == -EEXIST && dfs_stat(fs, path, &st, NULL) == 0 && st.type == DFS_DIR)
		return err_set(err, -EISDIR, "%.400s is a directory", path);
	if (rc == -EEXIST)
		return err_set(err, -EEXIST, "%.400s exists; overwrite was not asked for", path);
	if (rc == -EREMOTEIO && strcmp(err->remote, JEX_IO) == 0)
		return -EINVAL; /* block size or replication outside the limits */
	return rc;
}

static int call_create(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		       uint64_t *ret_id, struct err *err)
{
	Hd__CreateRequestProto req = HD__CREATE_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto masked = HD__FS_PERMISSION_PROTO__INIT;
	Hd__FsPermissionProto unmasked = HD__FS_PERMISSION_PROTO__INIT;
	Hd__CryptoProtocolVersionProto crypto = HD__CRYPTO_PROTOCOL_VERSION_PROTO__ENCRYPTION_ZONES;
	Hd__CreateResponseProto *m;
	int rc;

	unmasked.perm = o->mode & 01777;
	masked.perm = unmasked.perm & ~fs->set.umask;
	req.src = (char *)path;
	req.masked = &masked;
	req.unmasked = &unmasked;
	req.clientname = fs->client_name;
	req.createflag = HD__CREATE_FLAG_PROTO__CREATE;
	if (o->flags & DFS_CREATE_OVERWRITE)
		req.createflag |= HD__CREATE_FLAG_PROTO__OVERWRITE;
	req.createparent = !(o->flags & DFS_CREATE_NO_PARENTS);
	req.replication = o->replication;
	req.blocksize = o->block_size;
	req.n_cryptoprotocolversion = 1;
	req.cryptoprotocolversion = &crypto;
	rc = path_call(fs, "create", path, &req.base, &hd__create_response_proto__descriptor, &m,
		       err);
	if (rc < 0)
		return create_errno(fs, path, rc, err);
	if (!m->fs)
		rc = err_set(err, -EPROTO, "the NameNode created %.200s without a word", path);
	else if (m->fs->ecpolicy || m->fs->fileencryptioninfo)
		rc = err_set(err, -ENOTSUP, "%.200s would be %s, which this version cannot write",
			     path, m->fs->ecpolicy ? "erasure-coded" : "encrypted");
	else
		*ret_id = m->fs->fileid;
	pb_free(m);
	return rc;
}

static int create_file(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		       struct writer **ret, struct err *err)
{
	struct writer_opts wo = {
		.block_size = o->block_size,
		.bpc = fs->defaults.bytes_per_checksum,
		.replication = o->replication,
		.crc_type = fs->set.crc_type,
		.no_local = o->flags & DFS_CREATE_NO_LOCAL,
	};
	int rc;

	if (o->block_size % wo.bpc)
		return err_set(err, -EINVAL,
			       "a block size of %llu is no multiple of dfs.bytes-per-checksum (%u)",
			       (unsigned long long)o->block_size, wo.bpc);
	rc = stream_check(fs, err);
	rc = rc ?: call_create(fs, path, o, &wo.file_id, err);
	return rc ?: writer_new(fs, path, &wo, ret, err);
}

DFS_API int dfs_create(struct dfs *fs, const char *path, const struct dfs_create_opts *opts,
		       struct dfs_file **ret, struct dfs_err *out)
{
	struct dfs_file *f = calloc(1, sizeof(*f));
	char full[PATH_TEXT_MAX];
	struct dfs_create_opts o;
	struct err err;
	int rc;

	err_reset(&err);
	if (!f)
		return api_err(out, &err, -ENOMEM);
	copy_opts(&o, opts, &fs->defaults);
	rc = path_resolve(fs->user, path, full, &err);
	rc = rc ?: create_file(fs, full, &o, &f->writer, &err);
	if (rc < 0) {
		free(f);
		return api_err(out, &err, rc);
	}
	*ret = f;
	return 0;
}

DFS_API int dfs_append(struct dfs *fs, const char *path, uint32_t flags, struct dfs_file **ret,
		       struct dfs_err *out)
{
	struct dfs_file *f = calloc(1, sizeof(*f));
	struct ask a;

	ask_begin(&a, fs, path);
	if (!f)
		a.rc = a.rc ?: -ENOMEM;
	a.rc = a.rc ?: append_open(fs, a.path, flags, &f->writer, &a.err);
	if (a.rc < 0)
		free(f);
	else
		*ret = f;
	if (a.rc != -ENOENT || !(flags & DFS_APPEND_CREATE))
		return ask_end(&a, out);
	return dfs_create(fs, path, NULL, ret, out);
}

DFS_API ssize_t dfs_read(struct dfs_file *f, void *buf, size_t len, struct dfs_err *out)
{
	struct err err;
	ssize_t n;

	if (!f->reader)
		return bad_handle(out, "reading");
	err_reset(&err);
	n = reader_read(f->reader, buf, len, &err);
	return n < 0 ? api_err(out, &err, (int)n) : n;
}

DFS_API ssize_t dfs_pread(struct dfs_file *f, void *buf, size_t len, uint64_t offset,
			  struct dfs_err *out)
{
	struct err err;
	ssize_t n;

	if (!f->reader)
		return bad_handle(out, "reading");
	err_reset(&err);
	n = reader_pread(f->reader, buf, len, offset, &err);
	return n < 0 ? api_err(out, &err, (int)n) : n;
}

DFS_API int dfs_seek(struct dfs_file *f, uint64_t offset, struct dfs_err *out)
{
	struct err err;

	if (!f->reader)
		return bad_handle(out, "reading");
	if (reader_seek(f->reader, offset) == 0)
		return 0;
	err_reset(&err);
	err_set(&err, -EINVAL, "offset beyond 2^63");
	return api_err(out, &err, -EINVAL);
}

DFS_API uint64_t dfs_tell(struct dfs_file *f)
{
	return f->reader ? reader_tell(f->reader) : writer_length(f->writer);
}

DFS_API uint64_t dfs_length(struct dfs_file *f)
{
	return f->reader ? reader_length(f->reader) : writer_length(f->writer);
}

DFS_API ssize_t dfs_write(struct dfs_file *f, const void *buf, size_t len, struct dfs_err *out)
{
	struct err err;
	ssize_t n;

	if (!f->writer)
		return bad_handle(out, "writing");
	err_reset(&err);
	n = writer_write(f->writer, buf, len, &err);
	return n < 0 ? api_err(out, &err, (int)n) : n;
}

static int flush_file(struct dfs_file *f, uint32_t flags, struct dfs_err *out)
{
	struct err err;
	int rc;

	if (!f->writer)
		return bad_handle(out, "writing");
	err_reset(&err);
	rc = writer_flush(f->writer, flags, &err);
	return api_err(out, &err, rc);
}

DFS_API int dfs_flush(struct dfs_file *f, struct dfs_err *out)
{
	return flush_file(f, 0, out);
}

DFS_API int dfs_hsync(struct dfs_file *f, struct dfs_err *out)
{
	return flush_file(f, DFS_SYNC_DISK, out);
}

DFS_API int dfs_sync(struct dfs_file *f, uint32_t flags, struct dfs_err *out)
{
	return flush_file(f, flags, out);
}

DFS_API int dfs_close(struct dfs_file *f, struct dfs_err *out)
{
	struct err err;
	int rc = 0;

	if (!f)
		return 0;
	err_reset(&err);
	if (f->writer)
		rc = writer_close(f->writer, &err);
	writer_free(f->writer);
	reader_free(f->reader);
	free(f);
	return api_err(out, &err, rc);
}
