/* SPDX-License-Identifier: Apache-2.0 */
/* hang_fs BACKING MOUNTPOINT CONTROL: a directory like any other, on FUSE; while the file CONTROL
 * is there no call on it comes back. As a disk that is gone without an error looks to a program.
 * Ends when it is unmounted.
 *
 * A process in a call on it cannot be killed. So no hang lasts longer than HANG_MAX_S, or than the
 * life of the process that started us: when that one ends, the directory answers and is unmounted.
 */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define HANG_MAX_S 280

static const char *control;
static pid_t parent;
static int root;

static bool is_hung(void)
{
	struct stat st;

	return stat(control, &st) == 0 && time(NULL) < st.st_mtime + HANG_MAX_S &&
	       getppid() == parent;
}

static void wait_while_hung(void)
{
	while (is_hung())
		(void)nanosleep(&(struct timespec){0, 5000000}, NULL);
}

static int ret(int rc)
{
	return rc < 0 ? -errno : rc;
}

/* Relative to the backing directory. */
static const char *at(const char *path)
{
	wait_while_hung();
	return path && path[1] ? path + 1 : "."; /* no path: an open file whose name is gone */
}

static int h_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	const char *p = at(path);

	return ret(fi ? fstat((int)fi->fh, st) : fstatat(root, p, st, AT_SYMLINK_NOFOLLOW));
}

static int h_mkdir(const char *path, mode_t mode)
{
	return ret(mkdirat(root, at(path), mode));
}

static int h_unlink(const char *path)
{
	return ret(unlinkat(root, at(path), 0));
}

static int h_rmdir(const char *path)
{
	return ret(unlinkat(root, at(path), AT_REMOVEDIR));
}

static int h_rename(const char *from, const char *to, unsigned int flags)
{
	return ret(renameat2(root, at(from), root, at(to), flags));
}

static int h_link(const char *from, const char *to)
{
	return ret(linkat(root, at(from), root, at(to), 0));
}

static int h_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	(void)fi;
	return ret(fchmodat(root, at(path), mode, 0));
}

static int h_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	const char *p = at(path);
	int fd, rc;

	if (fi)
		return ret(ftruncate((int)fi->fh, size));
	fd = openat(root, p, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = ret(ftruncate(fd, size));
	close(fd);
	return rc;
}

static int h_utimens(const char *path, const struct timespec tv[2], struct fuse_file_info *fi)
{
	(void)fi;
	return ret(utimensat(root, at(path), tv, AT_SYMLINK_NOFOLLOW));
}

static int open_at(const char *path, int flags, mode_t mode, struct fuse_file_info *fi)
{
	const int fd = openat(root, at(path), (flags & ~O_DIRECT) | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int h_open(const char *path, struct fuse_file_info *fi)
{
	return open_at(path, fi->flags, 0, fi);
}

static int h_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return open_at(path, fi->flags, mode, fi);
}

static int h_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)at(path);
	return ret((int)pread((int)fi->fh, buf, size, off));
}

static int h_write(const char *path, const char *buf, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	(void)at(path);
	return ret((int)pwrite((int)fi->fh, buf, size, off));
}

static int h_statfs(const char *path, struct statvfs *st)
{
	(void)at(path);
	return ret(fstatvfs(root, st));
}

static int h_flush(const char *path, struct fuse_file_info *fi)
{
	(void)fi;
	(void)at(path);
	return 0;
}

static int h_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return ret(close((int)fi->fh));
}

static int h_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	(void)at(path);
	return ret(data ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int h_fsyncdir(const char *path, int data, struct fuse_file_info *fi)
{
	(void)data, (void)fi;
	(void)at(path);
	return 0;
}

static int h_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
		     struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	const int fd = openat(root, at(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;

	(void)off, (void)fi, (void)flags;
	if (!d)
		return -errno;
	while ((de = readdir(d)))
		(void)fill(buf, de->d_name, NULL, 0, 0);
	closedir(d);
	return 0;
}

static int h_access(const char *path, int mask)
{
	return ret(faccessat(root, at(path), mask, 0));
}

/* Attributes are asked for each time: nothing is answered from memory. */
static void *h_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = 1;
	cfg->attr_timeout = cfg->entry_timeout = cfg->negative_timeout = 0;
	cfg->nullpath_ok = 0;
	cfg->hard_remove = 1;
	return NULL;
}

static const struct fuse_operations ops = {
	.init = h_init,
	.getattr = h_getattr,
	.mkdir = h_mkdir,
	.unlink = h_unlink,
	.rmdir = h_rmdir,
	.rename = h_rename,
	.link = h_link,
	.chmod = h_chmod,
	.truncate = h_truncate,
	.utimens = h_utimens,
	.open = h_open,
	.create = h_create,
	.read = h_read,
	.write = h_write,
	.statfs = h_statfs,
	.flush = h_flush,
	.release = h_release,
	.fsync = h_fsync,
	.fsyncdir = h_fsyncdir,
	.readdir = h_readdir,
	.access = h_access,
};

int main(int argc, char **argv)
{
	char *args[] = {argv[0], "-f", argc > 2 ? argv[2] : "", NULL};

	if (argc != 4) {
		fprintf(stderr, "usage: hang_fs BACKING MOUNTPOINT CONTROL\n");
		return 2;
	}
	control = argv[3];
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0) {
		perror(argv[1]);
		return 1;
	}
	umask(0);
	parent = getppid();
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* unmounts */
	return fuse_main(3, args, &ops, NULL);
}
