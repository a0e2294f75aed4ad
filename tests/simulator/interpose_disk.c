/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about files. Those of a simulated disk take time, may fail, and are written down (disk.h);
 * others are the kernel's alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/simulator/disk.h"
#include "tests/simulator/interpose.h"
#include "tests/simulator/track.h"

#define DISK_BYTES (64ull << 30)

static struct {
	uint64_t ino;
	bool dsync;
} files[VFD_MAX];

/* ---- descriptors of a disk ---- */

bool track_has(int fd)
{
	return fd >= 0 && fd < VFD_MAX && files[fd].ino;
}

void track_dup(int fd, int to)
{
	if (to < VFD_MAX)
		files[to] = files[fd];
}

void track_close(int fd)
{
	if (fd >= 0 && fd < VFD_MAX)
		files[fd].ino = 0;
}

static void track(int fd, int flags)
{
	struct stat64 st;

	if (fd < 0 || fd >= VFD_MAX || REAL(fstat64)(fd, &st) < 0)
		return;
	files[fd].ino = st.st_ino;
	files[fd].dsync = flags & O_DSYNC;
}

static bool is_on_disk(const char *path)
{
	return strstr(path, "/disks/") && !strncmp(path, world->dir, strlen(world->dir));
}

/* The absolute path, if it is on a disk of the world. */
static bool place(int dirfd, const char *path, char abs[PATH_MAX])
{
	char link[64];
	ssize_t n;

	if (!sim_enter())
		return false;
	if (path[0] == '/') {
		snprintf(abs, PATH_MAX, "%s", path);
		return is_on_disk(abs);
	}
	if (!track_has(dirfd))
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = REAL(readlink)(link, abs, PATH_MAX - 1);
	if (n < 0)
		return false;
	snprintf(abs + n, (size_t)(PATH_MAX - n), "/%s", path);
	return true;
}

static uint64_t dir_ino(const char *path)
{
	char dir[PATH_MAX];
	struct stat64 st;

	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = 0;
	return REAL(stat64)(dir, &st) ? 0 : st.st_ino;
}

/* ---- time and trouble ---- */

uint64_t disk_done_at(uint64_t ns)
{
	return sim_machine()->slow ? world->now + about(ns) * sim_machine()->slow : FOREVER;
}

/* A call of this thread takes so long. 0, or what went wrong with the disk. */
static int takes(uint64_t ns)
{
	uint64_t until;

	sched_point();
	while ((until = disk_done_at(ns)) == FOREVER) {
		waiters_add(&sim_machine()->disk);
		(void)sleep_for(NULL, FOREVER);
	}
	while (sleep_for(NULL, until))
		continue;
	return one_in(sim_machine()->errors) ? -EIO : 0;
}

/* The same for a call that changes something. */
static int takes_change(uint64_t ns)
{
	const int rc = takes(ns);

	return !rc && sim_machine()->full ? -ENOSPC : rc;
}

/* ---- bytes, also for io_uring, which counts their time itself ---- */

ssize_t disk_pread(int fd, void *buf, size_t n, off_t at)
{
	const ssize_t rc = REAL(pread64)(fd, buf, n, at);

	if (one_in(sim_machine()->errors))
		return -EIO;
	return rc < 0 ? -errno : rc;
}

static ssize_t written(int fd, ssize_t rc)
{
	if (rc < 0)
		return -errno;
	if (files[fd].dsync)
		disk_note_sync(fd, files[fd].ino);
	return rc;
}

ssize_t disk_pwrite(int fd, const void *buf, size_t n, off_t at)
{
	if (sim_machine()->full)
		return -ENOSPC;
	disk_note_write(fd, files[fd].ino, (uint64_t)at, n);
	return written(fd, REAL(pwrite64)(fd, buf, n, at));
}

ssize_t disk_write(int fd, const void *buf, size_t n)
{
	const int rc = takes_change(20 * US);

	if (rc)
		return rc;
	disk_note_write(fd, files[fd].ino, (uint64_t)REAL(lseek64)(fd, 0, SEEK_CUR), n);
	return written(fd, REAL(write)(fd, buf, n));
}

/* @rc: the disk's word so far. */
static int synced(int fd, int rc)
{
	if (rc)
		disk_note_sync_failed(fd, files[fd].ino);
	else
		disk_note_sync(fd, files[fd].ino);
	return rc;
}

int disk_sync(int fd)
{
	const int rc = one_in(sim_machine()->errors) ? -EIO : 0;

	return track_has(fd) ? synced(fd, rc) : rc;
}

ssize_t pread64(int fd, void *buf, size_t n, off_t at)
{
	int rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(pread64)(fd, buf, n, at);
	rc = takes(20 * US);
	return rc ? set_errno(rc) : REAL(pread64)(fd, buf, n, at);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	return pread64(fd, buf, n, at);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off_t at)
{
	ssize_t rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(pwrite64)(fd, buf, n, at);
	rc = takes_change(20 * US);
	rc = rc ? rc : disk_pwrite(fd, buf, n, at);
	return rc < 0 ? set_errno(rc) : rc;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	return pwrite64(fd, buf, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t at)
{
	size_t len = 0;
	int rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(pwritev64)(fd, iov, n, at);
	rc = takes_change(20 * US);
	if (rc)
		return set_errno(rc);
	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	disk_note_write(fd, files[fd].ino, (uint64_t)at, len);
	return written(fd, REAL(pwritev64)(fd, iov, n, at));
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	return pwritev64(fd, iov, n, at);
}

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t n, unsigned flags)
{
	int rc = sim_enter() && track_has(out) ? takes_change(MS) : 0;

	if (rc)
		return set_errno(rc);
	if (sim_enter() && track_has(out))
		disk_note_write(out, files[out].ino, 0, UINT64_MAX / 2);
	return REAL(copy_file_range)(in, in_at, out, out_at, n, flags);
}

static int sync_one(int fd)
{
	const int rc = synced(fd, takes(500 * US));

	return rc ? set_errno(rc) : 0;
}

int fsync(int fd)
{
	return sim_enter() && track_has(fd) ? sync_one(fd) : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	return sim_enter() && track_has(fd) ? sync_one(fd) : REAL(fdatasync)(fd);
}

int syncfs(int fd)
{
	int rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(syncfs)(fd);
	rc = takes(2 * MS);
	if (rc)
		return set_errno(rc);
	disk_note_sync_all();
	return 0;
}

int sync_file_range(int fd, off_t at, off_t n, unsigned flags)
{
	int rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(sync_file_range)(fd, at, n, flags);
	if (!(flags & SYNC_FILE_RANGE_WAIT_AFTER))
		return 0;
	rc = takes(300 * US);
	if (rc) {
		disk_note_sync_failed(fd, files[fd].ino);
		return set_errno(rc);
	}
	disk_note_write_out(fd, files[fd].ino);
	return 0;
}

int ftruncate64(int fd, off_t n)
{
	int rc;

	if (!sim_enter() || !track_has(fd))
		return REAL(ftruncate64)(fd, n);
	rc = takes_change(20 * US);
	if (rc)
		return set_errno(rc);
	disk_note_size(fd, files[fd].ino);
	return REAL(ftruncate64)(fd, n);
}

int ftruncate(int fd, off_t n)
{
	return ftruncate64(fd, n);
}

/* stdio writes without us: what is there before it does counts as changed. */
FILE *fdopen(int fd, const char *mode)
{
	if (sim_enter() && track_has(fd) && mode[0] != 'r')
		disk_note_write(fd, files[fd].ino, 0, UINT64_MAX / 2);
	return REAL(fdopen)(fd, mode);
}

/* ---- names ---- */

/* Of the machine, which boots each time that it is started. */
static int open_boot_id(void)
{
	const int fd = memfd_create("boot_id", MFD_CLOEXEC);
	char text[40];
	const int n = snprintf(text, sizeof(text), "%08x-%04x-4000-8000-%012x\n",
			       sim_machine()->life << 16 | 0xb007, 0, sim_machine()->ip);

	if (fd >= 0 && (REAL(write)(fd, text, (size_t)n) != n || REAL(lseek64)(fd, 0, SEEK_SET)))
		abort();
	return fd;
}

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
	char abs[PATH_MAX];
	int rc, fd;
	bool there;

	if (!place(dirfd, path, abs))
		return sim_enter() && !strcmp(path, "/proc/sys/kernel/random/boot_id")
			       ? open_boot_id()
			       : REAL(openat64)(dirfd, path, flags, mode);
	rc = flags & O_CREAT ? takes_change(10 * US) : takes(2 * US);
	if (rc)
		return set_errno(rc);
	there = !(flags & O_CREAT) || !REAL(faccessat)(AT_FDCWD, abs, F_OK, 0);
	fd = REAL(openat64)(dirfd, path, flags & ~O_TRUNC, mode);
	track(fd, flags);
	if (fd >= 0 && !there)
		disk_note_make(abs, dir_ino(abs), false);
	if (fd >= 0 && flags & O_TRUNC && there) {
		disk_note_size(fd, files[fd].ino);
		(void)REAL(ftruncate64)(fd, 0);
	}
	return fd;
}

#define MODE(flags)                                                                                \
	({                                                                                         \
		mode_t m_ = 0;                                                                     \
		if ((flags)&O_CREAT) {                                                             \
			va_list ap;                                                                \
			va_start(ap, flags);                                                       \
			m_ = va_arg(ap, mode_t);                                                   \
			va_end(ap);                                                                \
		}                                                                                  \
		m_;                                                                                \
	})

int open64(const char *path, int flags, ...)
{
	return open_at(AT_FDCWD, path, flags, MODE(flags));
}

int open(const char *path, int flags, ...)
{
	return open_at(AT_FDCWD, path, flags, MODE(flags));
}

int openat64(int dirfd, const char *path, int flags, ...)
{
	return open_at(dirfd, path, flags, MODE(flags));
}

int openat(int dirfd, const char *path, int flags, ...)
{
	return open_at(dirfd, path, flags, MODE(flags));
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
	char abs[PATH_MAX];
	int rc;

	if (!place(dirfd, path, abs))
		return REAL(mkdirat)(dirfd, path, mode);
	rc = takes_change(10 * US);
	if (rc)
		return set_errno(rc);
	rc = REAL(mkdirat)(dirfd, path, mode);
	if (!rc)
		disk_note_make(abs, dir_ino(abs), true);
	return rc;
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dirfd, const char *path, int flags)
{
	const bool is_dir = flags & AT_REMOVEDIR;
	char abs[PATH_MAX];
	struct stat64 st;
	int rc;

	if (!place(dirfd, path, abs))
		return REAL(unlinkat)(dirfd, path, flags);
	rc = takes(10 * US);
	if (rc)
		return set_errno(rc);
	if (!is_dir && !REAL(lstat64)(abs, &st) && !S_ISDIR(st.st_mode))
		disk_note_remove(abs, dir_ino(abs), false);
	rc = REAL(unlinkat)(dirfd, path, flags);
	if (!rc && is_dir)
		disk_note_remove(abs, dir_ino(abs), true);
	return rc;
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path)
{
	const int rc = unlinkat(AT_FDCWD, path, 0);

	return rc && errno == EISDIR ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : rc;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	char abs[PATH_MAX], abs_to[PATH_MAX];
	struct stat64 st;
	int rc;

	if (!place(from_dir, from, abs) || !place(to_dir, to, abs_to))
		return REAL(renameat2)(from_dir, from, to_dir, to, flags);
	rc = takes_change(10 * US);
	if (rc)
		return set_errno(rc);
	if (REAL(lstat64)(abs, &st))
		return -1;
	if (flags & 1 && !REAL(lstat64)(abs_to, &st)) /* RENAME_NOREPLACE */
		return set_errno(-EEXIST);
	if (dir_ino(abs_to))
		disk_note_rename(abs, dir_ino(abs), abs_to, dir_ino(abs_to));
	return REAL(renameat2)(from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat2(from_dir, from, to_dir, to, 0);
}

int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	char abs[PATH_MAX];
	int rc;

	if (!place(to_dir, to, abs))
		return REAL(linkat)(from_dir, from, to_dir, to, flags);
	rc = takes_change(10 * US);
	if (rc)
		return set_errno(rc);
	rc = REAL(linkat)(from_dir, from, to_dir, to, flags);
	if (!rc)
		disk_note_make(abs, dir_ino(abs), false);
	return rc;
}

/* ---- what is known of files and disks ---- */

static struct timespec wall(uint64_t at)
{
	const uint64_t ns = BORN + at;

	return (struct timespec){.tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC)};
}

/* The times of the world; one link may be ours. */
static int with_times(int rc, struct stat64 *st, bool ours)
{
	if (!rc && ours) {
		st->st_mtim = st->st_ctim = st->st_atim = wall(disk_mtime(st->st_ino));
		if (S_ISREG(st->st_mode))
			st->st_nlink = 1;
	}
	return rc;
}

int fstat64(int fd, struct stat64 *st)
{
	return with_times(REAL(fstat64)(fd, st), st, sim_enter() && track_has(fd));
}

int stat64(const char *path, struct stat64 *st)
{
	char abs[PATH_MAX];

	return with_times(REAL(stat64)(path, st), st, place(AT_FDCWD, path, abs));
}

int lstat64(const char *path, struct stat64 *st)
{
	char abs[PATH_MAX];

	return with_times(REAL(lstat64)(path, st), st, place(AT_FDCWD, path, abs));
}

int fstatat64(int dirfd, const char *path, struct stat64 *st, int flags)
{
	char abs[PATH_MAX];

	return with_times(REAL(fstatat64)(dirfd, path, st, flags), st, place(dirfd, path, abs));
}

int futimens(int fd, const struct timespec t[2])
{
	return sim_enter() && track_has(fd) ? 0 : REAL(futimens)(fd, t);
}

/* What says of a file system that it is ext4 with a journal. */
ssize_t readlink(const char *path, char *buf, size_t n)
{
	static const char device[] = "../../simulated";

	if (!sim_enter() || strncmp(path, "/sys/dev/block/", 15))
		return REAL(readlink)(path, buf, n);
	memcpy(buf, device, sizeof(device) - 1 < n ? sizeof(device) - 1 : n);
	return sizeof(device) - 1;
}

int access(const char *path, int mode)
{
	if (sim_enter() && !strcmp(path, "/sys/fs/ext4/simulated/journal_task"))
		return 0;
	return REAL(access)(path, mode);
}

int fstatvfs64(int fd, struct statvfs64 *s)
{
	const int rc = REAL(fstatvfs64)(fd, s);

	if (rc || !sim_enter())
		return rc;
	s->f_blocks = DISK_BYTES / s->f_frsize;
	s->f_bfree = s->f_bavail = sim_machine()->full ? 0 : s->f_blocks / 2;
	return 0;
}

int statvfs64(const char *path, struct statvfs64 *s)
{
	const int rc = REAL(statvfs64)(path, s);

	if (rc || !sim_enter())
		return rc;
	s->f_blocks = DISK_BYTES / s->f_frsize;
	s->f_bfree = s->f_bavail = sim_machine()->full ? 0 : s->f_blocks / 2;
	return 0;
}

int fstatfs64(int fd, struct statfs64 *s)
{
	const int rc = REAL(fstatfs64)(fd, s);

	if (rc || !sim_enter())
		return rc;
	if (track_has(fd) && sim_machine()->ordered)
		s->f_type = EXT4_SUPER_MAGIC;
	s->f_blocks = DISK_BYTES / (uint64_t)s->f_bsize;
	s->f_bfree = s->f_bavail = sim_machine()->full ? 0 : s->f_blocks / 2;
	return 0;
}
