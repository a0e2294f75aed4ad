/* SPDX-License-Identifier: Apache-2.0 */
/* requests - what the kernel may ask for: each function of the others, counted */
#include "fuse/requests/ops.h"
#include "fuse/session/dev_fuse.h"
#include "fuse/session/request_table.h"

int reply_err(fuse_req_t req, int error)
{
	request_table_error(error);
	return fuse_reply_err(req, error);
}

#define COUNTED(name, params, args)                                                                \
	static void counted_##name params                                                          \
	{                                                                                          \
		struct mount *m = mount_of(req);                                                   \
		struct request r;                                                                  \
                                                                                                   \
		request_table_begin(&m->request_table, &r, REQUEST_##name, dev_fuse_origin());     \
		op_##name args;                                                                    \
		request_table_end(&r);                                                             \
		request_table_free_orphans(m, &r);                                                 \
	}

COUNTED(lookup, (fuse_req_t req, fuse_ino_t parent, const char *name), (req, parent, name))
COUNTED(forget, (fuse_req_t req, fuse_ino_t ino, uint64_t count), (req, ino, count))
COUNTED(getattr, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(setattr,
	(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid, struct fuse_file_info *fi),
	(req, ino, attr, valid, fi))
COUNTED(access, (fuse_req_t req, fuse_ino_t ino, int mask), (req, ino, mask))
COUNTED(statfs, (fuse_req_t req, fuse_ino_t ino), (req, ino))
COUNTED(mkdir, (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode),
	(req, parent, name, mode))
COUNTED(mknod, (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev),
	(req, parent, name, mode, dev))
COUNTED(symlink, (fuse_req_t req, const char *link, fuse_ino_t parent, const char *name),
	(req, link, parent, name))
COUNTED(readlink, (fuse_req_t req, fuse_ino_t ino), (req, ino))
COUNTED(link, (fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name),
	(req, ino, parent, name))
COUNTED(unlink, (fuse_req_t req, fuse_ino_t parent, const char *name), (req, parent, name))
COUNTED(rmdir, (fuse_req_t req, fuse_ino_t parent, const char *name), (req, parent, name))
COUNTED(rename,
	(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	 const char *newname, unsigned int flags),
	(req, parent, name, newparent, newname, flags))
COUNTED(setxattr,
	(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
	 int flags),
	(req, ino, name, value, size, flags))
COUNTED(getxattr, (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),
	(req, ino, name, size))
COUNTED(listxattr, (fuse_req_t req, fuse_ino_t ino, size_t size), (req, ino, size))
COUNTED(removexattr, (fuse_req_t req, fuse_ino_t ino, const char *name), (req, ino, name))
COUNTED(opendir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(readdir,
	(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
	(req, ino, size, off, fi))
COUNTED(readdirplus,
	(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
	(req, ino, size, off, fi))
COUNTED(releasedir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(fsyncdir, (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi),
	(req, ino, datasync, fi))
COUNTED(create,
	(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	 struct fuse_file_info *fi),
	(req, parent, name, mode, fi))
COUNTED(open, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(read, (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
	(req, ino, size, off, fi))
COUNTED(flush, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(release, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
COUNTED(fsync, (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi),
	(req, ino, datasync, fi))
COUNTED(fallocate,
	(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
	 struct fuse_file_info *fi),
	(req, ino, mode, offset, length, fi))
COUNTED(lseek, (fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi),
	(req, ino, off, whence, fi))

static void counted_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *bufv, off_t off,
			      struct fuse_file_info *fi)
{
	const size_t size = fuse_buf_size(bufv);
	struct mount *m = mount_of(req);
	struct request r;

	request_table_begin(&m->request_table, &r, REQUEST_write, dev_fuse_origin());
	request_table_bytes(size); /* all or nothing */
	op_write_buf(req, ino, bufv, size, off, fi);
	request_table_end(&r);
	request_table_free_orphans(m, &r);
}

/* Many at once, which cost what one costs. */
static void counted_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct request r;

	request_table_begin(&mount_of(req)->request_table, &r, REQUEST_forget, dev_fuse_origin());
	op_forget_multi(req, count, forgets);
	request_table_end(&r);
}

#define counted_write NULL /* write_buf has its place */

const struct fuse_lowlevel_ops MOUNT_OPS = {.init = op_init,
					    .forget_multi = counted_forget_multi,
					    .write_buf = counted_write_buf,
#define X(name) .name = counted_##name,
					    REQUESTS(X)
#undef X
};
