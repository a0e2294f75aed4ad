/* SPDX-License-Identifier: Apache-2.0 */
/* file - the calls of dfsclient.h about open files: a reader or a writer behind one handle */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/api/append.h"
#include "client/src/fs/by_inode.h"
#include "client/src/fs/fs.h"
#include "client/src/fs/path.h"
#include "client/src/fs/path_call.h"
#include "client/src/fs/requests.h"
#include "client/src/read/block_locations.h"
#include "client/src/read/reader.h"
#include "client/src/striped/striped_writer.h"
#include "client/src/write/writer.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

struct dfs_file {
	struct reader *reader; /* owned; one of the two is set */
	struct output *writer; /* owned */
	/* of a file made by create_answer(), until something is written; 0: none. Several threads
	 * may write at the same time. */
	atomic_uint_fast64_t new_id;
	char *new_path; /* owned; its path */
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

int open_answer(struct dfs *fs, const char *path, Hd__GetBlockLocationsResponseProto *m,
		struct dfs_file **ret, struct err *err)
{
	struct dfs_file *f = calloc(1, sizeof(*f));
	int rc;

	if (!f) {
		pb_free(m);
		return err_set(err, -ENOMEM, "out of memory for a file");
	}
	rc = reader_new_from(fs, path, m, &f->reader, err);
	if (rc < 0)
		free(f);
	else
		*ret = f;
	return rc;
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

int create_opts(struct dfs *fs, const struct dfs_create_opts *opts, struct dfs_create_opts *ret,
		struct err *err)
{
	const uint32_t bpc = fs->defaults.bytes_per_checksum;

	copy_opts(ret, opts, &fs->defaults);
	if (ret->block_size % bpc)
		return err_set(err, -EINVAL,
			       "a block size of %llu is no multiple of dfs.bytes-per-checksum (%u)",
			       (unsigned long long)ret->block_size, bpc);
	return stream_check(fs, err);
}

/* Does the sentence begin so, and go on with @then? A path further on may say anything. */
static bool is_sentence(const char *text, const char *begin, const char *then)
{
	const char *at = strstr(text, begin);

	return at && (at == text || (at - text > 2 && at[-1] == ' ' && at[-2] == ':')) &&
	       strstr(at, then);
}

/* The sentences are ours and Java's. */
int limits_errno(int rc, const struct err *err)
{
	static const struct {
		const char *begin, *then;
	} known[] = {
		{"Requested replication factor of ", " exceeds maximum "},
		{"Requested replication factor of ", " is less than "},
		{"Specified block size ", " is less than "}, /* a minimum, or a cell */
		{"Block size ", " is too large for "},       /* an erasure coding policy */
	};

	if (rc != -EREMOTEIO || strcmp(err->remote, JEX_IO) != 0)
		return rc;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (is_sentence(err->text, known[i].begin, known[i].then))
			return -EINVAL;
	return rc;
}

/* The NameNode throws FileAlreadyExistsException for a directory in the way, too. */
int create_errno(const char *path, int rc, const struct dfs_stat *there, struct err *err)
{
	if (rc == -EEXIST && there && there->type == DFS_DIR)
		return err_set(err, -EISDIR, "%.400s is a directory", path);
	if (rc == -EEXIST)
		return err_set(err, -EEXIST, "%.400s exists; overwrite was not asked for", path);
	return limits_errno(rc, err);
}

void create_request(const struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		    struct create_request *ret)
{
	Hd__CreateRequestProto *m = &ret->m;

	hd__create_request_proto__init(m);
	hd__fs_permission_proto__init(&ret->masked);
	hd__fs_permission_proto__init(&ret->unmasked);
	ret->crypto = HD__CRYPTO_PROTOCOL_VERSION_PROTO__ENCRYPTION_ZONES;
	ret->unmasked.perm = o->mode & 01777;
	ret->masked.perm = mode_masked(fs, o->mode);
	m->src = (char *)path;
	m->masked = &ret->masked;
	m->unmasked = &ret->unmasked;
	m->clientname = (char *)fs->client_name;
	m->createflag = HD__CREATE_FLAG_PROTO__CREATE;
	if (o->flags & DFS_CREATE_OVERWRITE)
		m->createflag |= HD__CREATE_FLAG_PROTO__OVERWRITE;
	m->createparent = !(o->flags & DFS_CREATE_NO_PARENTS);
	m->replication = o->replication;
	m->blocksize = o->block_size;
	m->ecpolicyname = (char *)o->ec_policy;
	/* only addBlock can say that nodes of this machine are not preferred */
	m->has_firstblock = m->firstblock =
		(o->flags & (DFS_CREATE_FIRST_BLOCK | DFS_CREATE_NO_LOCAL)) ==
		DFS_CREATE_FIRST_BLOCK;
	m->has_early = m->early = !!(o->flags & DFS_CREATE_EARLY);
	m->n_cryptoprotocolversion = 1;
	m->cryptoprotocolversion = &ret->crypto;
}

/* A new file as the NameNode answers. */
struct created {
	uint64_t file_id;
	Hd__LocatedBlockProto *first; /* owned; of a contiguous one; NULL: to be asked for */
	struct ec_policy policy;      /* k is 0: contiguous */
};

/* The file of @m is there and open, and nobody will write it. */
static void take_back(struct dfs *fs, const char *path, const Hd__CreateResponseProto *m)
{
	Hd__DeleteRequestProto req = HD__DELETE_REQUEST_PROTO__INIT;
	struct err ignored = ERR_INIT;
	char by_id[PATH_BY_ID_MAX];
	const char *src;

	if (!m->fs || by_inode(fs, path, m->fs->fileid, by_id, &src, &ignored) < 0)
		return;
	req.src = (char *)src;
	(void)nn_call(fs, "delete", &req.base, &hd__delete_response_proto__descriptor, NULL,
		      &ignored);
}

/* What the NameNode made of it. */
static int take_created(const Hd__HdfsFileStatusProto *st, const char *path, struct created *ret,
			struct err *err)
{
	if (!st)
		return err_set(err, -EPROTO,
			       "the NameNode created %.200s, and its answer lacks the file", path);
	if (st->fileencryptioninfo)
		return err_set(
			err, -ENOTSUP,
			"%.200s lies in an encryption zone, and this version cannot write encrypted files",
			path);
	ret->file_id = st->fileid;
	return output_policy(st->ecpolicy, path, &ret->policy, err);
}

static int new_contiguous(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
			  struct created *c, struct output **ret, struct err *err)
{
	const struct writer_opts wo = {
		.file_id = c->file_id,
		.block_size = o->block_size,
		.bpc = fs->defaults.bytes_per_checksum,
		.replication = o->replication,
		.crc_type = fs->set.crc_type,
		.no_local = o->flags & DFS_CREATE_NO_LOCAL,
	};
	struct writer *w;
	int rc = writer_new(fs, path, &wo, &w, err);

	if (rc < 0)
		return rc;
	writer_give_first(w, c->first);
	c->first = NULL;
	*ret = &w->f;
	return 0;
}

static int new_striped(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		       const struct created *c, struct output **ret, struct err *err)
{
	const struct striped_opts so = {
		.file_id = c->file_id,
		.block_size = o->block_size,
		.bpc = fs->defaults.bytes_per_checksum,
		.crc_type = fs->set.crc_type,
		.no_local = o->flags & DFS_CREATE_NO_LOCAL,
		.policy = c->policy,
	};
	struct striped_writer *w;
	int rc = striped_writer_new(fs, path, &so, &w, err);

	if (rc == 0)
		*ret = &w->f;
	return rc;
}

static int create_writer(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
			 struct created *c, struct output **ret, struct err *err)
{
	return c->policy.k ? new_striped(fs, path, o, c, ret, err)
			   : new_contiguous(fs, path, o, c, ret, err);
}

int create_answer(struct dfs *fs, const char *path, const struct dfs_create_opts *o,
		  Hd__CreateResponseProto *m, struct dfs_file **ret, struct err *err)
{
	struct dfs_file *f;
	struct created c = {.first = NULL};
	int rc = take_created(m->fs, path, &c, err);

	if (rc < 0)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f || !(f->new_path = strdup(path)))
		rc = err_set(err, -ENOMEM, "out of memory for a file");
	if (rc == 0) {
		c.first = m->firstblock;
		m->firstblock = NULL;
		rc = create_writer(fs, path, o, &c, &f->writer, err);
		pb_free(c.first);
	}
	if (rc < 0) {
		if (f)
			free(f->new_path);
		free(f);
		return rc;
	}
	f->new_id = c.file_id;
	f->writer->early = m->early;
	f->writer->close_early = o->flags & DFS_CREATE_CLOSE_EARLY;
	f->writer->no_hsync = o->flags & DFS_CREATE_NO_HSYNC;
	f->writer->spare_unit = o->flags & DFS_CREATE_SPARE_UNIT && !fs->set.ec_without_parity;
	if (o->ret_stat)
		stat_from_msg(m->fs, o->ret_stat);
	*ret = f;
	return 0;
}

bool file_is_new(const struct dfs_file *f, uint64_t *ret_id, const char **ret_path)
{
	*ret_id = f->new_id;
	*ret_path = f->new_path;
	return *ret_id;
}

void file_drop(struct dfs_file *f)
{
	output_free(f->writer);
	reader_free(f->reader);
	free(f->new_path);
	free(f);
}

static int create_file(struct dfs *fs, const char *path, const struct dfs_create_opts *opts,
		       struct dfs_file **ret, struct err *err)
{
	Hd__CreateResponseProto *m;
	struct create_request req;
	struct dfs_create_opts o;
	struct dfs_stat st;
	int rc = create_opts(fs, opts, &o, err);

	if (rc < 0)
		return rc;
	create_request(fs, path, &o, &req);
	rc = path_call_once(fs, "create", path, &req.m.base, &hd__create_response_proto__descriptor,
			    &m, err);
	if (rc < 0)
		return create_errno(
			path, rc, rc == -EEXIST && dfs_stat(fs, path, &st, NULL) == 0 ? &st : NULL,
			err);
	rc = create_answer(fs, path, &o, m, ret, err);
	if (rc < 0)
		take_back(fs, path, m);
	pb_free(m);
	return rc;
}

DFS_API int dfs_create(struct dfs *fs, const char *path, const struct dfs_create_opts *opts,
		       struct dfs_file **ret, struct dfs_err *out)
{
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: create_file(fs, a.path, opts, ret, &a.err);
	return path_call_end(&a, out);
}

DFS_API int dfs_append(struct dfs *fs, const char *path, uint32_t flags, struct dfs_file **ret,
		       struct dfs_err *out)
{
	const struct dfs_create_opts o = {
		.size = sizeof(o),
		.flags = (flags & DFS_APPEND_NO_HSYNC ? DFS_CREATE_NO_HSYNC : 0) |
			 (flags & DFS_APPEND_SPARE_UNIT ? DFS_CREATE_SPARE_UNIT : 0)};
	struct dfs_file *f = calloc(1, sizeof(*f));
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (!f)
		a.rc = a.rc ?: -ENOMEM;
	a.rc = a.rc ?: append_open(fs, a.path, flags, &f->writer, &a.err);
	if (a.rc < 0)
		free(f);
	else
		*ret = f;
	if (a.rc != -ENOENT || !(flags & DFS_APPEND_CREATE))
		return path_call_end(&a, out);
	return dfs_create(fs, path, &o, ret, out);
}

struct reader *file_reader(struct dfs_file *f)
{
	return f->reader;
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
	return f->reader ? reader_tell(f->reader) : output_length(f->writer);
}

DFS_API uint64_t dfs_length(struct dfs_file *f)
{
	return f->reader ? reader_length(f->reader) : output_length(f->writer);
}

DFS_API int dfs_refresh(struct dfs_file *f, struct dfs_err *out)
{
	struct err err;
	int rc;

	if (!f->reader)
		return bad_handle(out, "reading");
	err_reset(&err);
	rc = reader_refresh(f->reader, &err);
	return rc < 0 ? api_err(out, &err, rc) : 0;
}

DFS_API void dfs_get_content_id(struct dfs_file *f, struct dfs_content_id *ret)
{
	*ret = (struct dfs_content_id){0};
	if (f->reader)
		reader_content(f->reader, ret);
}

DFS_API int dfs_local_fd(struct dfs_file *f, int *ret_fd, struct dfs_err *out)
{
	struct err err;
	int rc;

	if (!f->reader)
		return bad_handle(out, "reading");
	err_reset(&err);
	rc = reader_local_fd(f->reader, ret_fd, &err);
	return rc < 0 ? api_err(out, &err, rc) : 0;
}

DFS_API ssize_t dfs_write(struct dfs_file *f, const void *buf, size_t len, struct dfs_err *out)
{
	struct err err;
	ssize_t n;

	if (!f->writer)
		return bad_handle(out, "writing");
	atomic_store_explicit(&f->new_id, 0, memory_order_relaxed);
	err_reset(&err);
	n = output_write(f->writer, buf, len, &err);
	return n < 0 ? api_err(out, &err, (int)n) : n;
}

DFS_API ssize_t dfs_write_lent(struct dfs_file *f, const void *buf, size_t len,
			       void (*done)(void *arg), void *arg, struct dfs_err *out)
{
	struct err err;
	ssize_t n;

	if (!f->writer) {
		done(arg);
		return bad_handle(out, "writing");
	}
	atomic_store_explicit(&f->new_id, 0, memory_order_relaxed);
	err_reset(&err);
	n = output_lend(f->writer, buf, len, done, arg, &err);
	return n < 0 ? api_err(out, &err, (int)n) : n;
}

static int flush_file(struct dfs_file *f, uint32_t flags, struct dfs_err *out)
{
	struct err err;
	int rc;

	if (!f->writer)
		return bad_handle(out, "writing");
	atomic_store_explicit(&f->new_id, 0, memory_order_relaxed);
	err_reset(&err);
	rc = output_flush(f->writer, flags, &err);
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
		rc = output_close(f->writer, &err);
	file_drop(f);
	return api_err(out, &err, rc);
}
