/* SPDX-License-Identifier: Apache-2.0 */
/* A data directory is opened, locked and identified (VERSION), and says how much room it has. How
 * its disk fails: volume_failure.c; which one a new replica goes to: volume_choose.c. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define DIO_ALIGN_DEFAULT 4096
#define ZFS_MAGIC 0x2fc12fc1

void store_make_uuid(char *buf, const char *prefix)
{
	uint8_t b[16];

	/* At start-up with the pool seeded this cannot fail or block. */
	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		abort();
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	(void)snprintf(buf, BLOCK_UUID_MAX,
		       "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
		       b[11], b[12], b[13], b[14], b[15]);
}

/* mkdir -p; @mode is the last one's. */
static int make_dirs(const char *path, mode_t mode)
{
	_cleanup_free_ char *p = strdup(path);

	if (!p)
		return -ENOMEM;
	for (char *s = p + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		if (mkdir(p, 0755) && errno != EEXIST)
			return neg_errno();
		*s = '/';
	}
	if (mkdir(p, mode) && errno != EEXIST)
		return neg_errno();
	return 0;
}

/* As Java does: the mode of the configuration, also for a directory that was there. */
static void set_mode(const struct volume *v, mode_t mode)
{
	struct stat st;

	if (!mode || fstat(v->dir_fd, &st) || (st.st_mode & 07777) == mode)
		return;
	if (fchmod(v->dir_fd, mode))
		log_warn(
			"op=volume dir=%s: its mode stays %o, dfs.datanode.data.dir.perm says %o: %s",
			v->path, st.st_mode & 07777, mode, err_name(neg_errno()));
}

static uint64_t reserved_bytes(const struct volume *v, const struct store_volume_opts *o)
{
	struct statvfs st;
	uint64_t part = 0;

	if (!fstatvfs(v->dir_fd, &st))
		part = (uint64_t)st.f_blocks * st.f_frsize * o->reserved_pct / 100;
	switch (o->reserve) {
	case STORE_RESERVE_PERCENT:
		return part;
	case STORE_RESERVE_LARGER:
		return part > o->reserved ? part : o->reserved;
	case STORE_RESERVE_SMALLER:
		return part < o->reserved ? part : o->reserved;
	case STORE_RESERVE_BYTES:
		break;
	}
	return o->reserved;
}

static int lock_dir(struct volume *v, struct err *err)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char who[160] = "", host[64] = "?";
	struct stat st;
	ssize_t n;

	v->lock_fd = openat(v->dir_fd, "in_use.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (v->lock_fd < 0) {
		int rc = neg_errno();

		err_sys(err, rc, "locking data directory %s (in_use.lock)", v->path);
		err_cure(err,
			 rc == -EROFS
				 ? "remount it for writing, or take it out of dfs.datanode.data.dir"
				 : "make it writable for the user of this process");
		return rc;
	}
	/* An open-file lock: conflicts with Java's POSIX lock and with one of this process. */
	if (fcntl(v->lock_fd, F_OFD_SETLK, &fl)) {
		n = read(v->lock_fd, who, sizeof(who) - 1);
		who[n > 0 ? n : 0] = '\0';
		who[strcspn(who, "\n")] = '\0';
		(void)close(v->lock_fd);
		v->lock_fd = -1; /* not ours to remove */
		return err_set(err, -EBUSY,
			       "data directory %s is in use by %s; stop that process or use "
			       "another directory",
			       v->path, who[0] ? who : "another process");
	}
	/* Its holder may have removed the file between our open and our lock. */
	if (fstat(v->lock_fd, &st) || !st.st_nlink) {
		(void)close(v->lock_fd);
		v->lock_fd = -1;
		return err_set(err, -EBUSY, "data directory %s was in use until now; start again",
			       v->path);
	}
	(void)gethostname(host, sizeof(host) - 1);
	n = snprintf(who, sizeof(who), "%d@%s", (int)getpid(), host);
	if (ftruncate(v->lock_fd, 0) || file_write_full(v->lock_fd, who, (size_t)n, 0))
		return err_sys(err, -EIO, "data directory %s: writing in_use.lock", v->path);
	return 0;
}

static uint32_t probe_direct(const struct volume *v)
{
	uint32_t align = DIO_ALIGN_DEFAULT;
	_cleanup_close_ int fd =
		openat(v->dir_fd, "current/.probe", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		return 0;
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    (sx.stx_mask & STATX_DIOALIGN)) {
		align = sx.stx_dio_mem_align > sx.stx_dio_offset_align ? sx.stx_dio_mem_align
								       : sx.stx_dio_offset_align;
		/* A file system may say 0: no direct I/O. Beyond 4 KiB our buffers do not fit. */
		if (align > DIO_ALIGN_DEFAULT)
			align = 0;
	}
#endif
	(void)unlinkat(v->dir_fd, "current/.probe", 0);
	return align;
}

/* ext4 with its journal commits all changes in their order, and empties the disk's cache with each
 * commit. Others may, too; where it is not known each file is synced. */
static bool probe_order(const struct volume *v)
{
	char link[PATH_MAX], path[PATH_MAX + 32];
	struct statfs fs;
	struct stat st;
	ssize_t n;

	if (fstatfs(v->dir_fd, &fs) || fs.f_type != EXT4_SUPER_MAGIC || fstat(v->dir_fd, &st))
		return false;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return false;
	link[n] = 0;
	snprintf(path, sizeof(path), "/sys/fs/ext4/%s/journal_task",
		 strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
	return !access(path, F_OK);
}

/* Those that have their disks in this machine answer an fstat() of an open file from memory. */
static bool probe_remote(const struct volume *v)
{
	static const long local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
				     F2FS_SUPER_MAGIC, TMPFS_MAGIC};
	struct statfs fs;

	if (fstatfs(v->dir_fd, &fs))
		return true;
	for (size_t i = 0; i < sizeof(local) / sizeof(*local); i++)
		if (fs.f_type == local[i])
			return false;
	return fs.f_type != ZFS_MAGIC;
}

int volume_probe(const struct volume *v)
{
	static const char text[] = "probe";
	char back[sizeof(text)];
	int rc;
	_cleanup_close_ int fd =
		openat(v->dir_fd, "current/.probe", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return neg_errno();
	rc = file_write_full(fd, text, sizeof(text), 0);
	if (!rc)
		rc = ret_errno(fsync(fd));
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* from the disk, not from memory */
	if (!rc)
		rc = file_read_full(fd, back, sizeof(back), 0);
	(void)unlinkat(v->dir_fd, "current/.probe", 0);
	return rc;
}

static int open_dir(struct volume *v, mode_t mode, struct err *err)
{
	struct stat st;
	int rc = make_dirs(v->path, mode ? mode : 0700);

	if (!rc) {
		v->dir_fd = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = v->dir_fd < 0 ? neg_errno() : ret_errno(fstat(v->dir_fd, &st));
	}
	if (rc) {
		err_sys(err, rc, "data directory %s", v->path);
		err_cure(err,
			 "make it for the user of this process or change dfs.datanode.data.dir");
		return rc;
	}
	v->dev = st.st_dev;
	v->ino = st.st_ino;
	return 0;
}

int volume_init(struct store *s, uint32_t idx, const struct store_volume_opts *o)
{
	struct volume *v = &s->volumes[idx];

	*v = (struct volume){.store = s, .idx = idx, .dir_fd = -1, .lock_fd = -1, .type = o->type};
	check_init(v);
	list_init(&v->doomed);
	(void)pthread_cond_init(&v->doomed_cond, NULL);
	v->path = strdup(o->path);
	v->opts = *o;
	v->opts.path = v->path;
	return v->path ? 0 : -ENOMEM;
}

static void close_dir(struct volume *v)
{
	if (v->lock_fd >= 0)
		(void)close(v->lock_fd);
	if (v->dir_fd >= 0)
		(void)close(v->dir_fd);
	v->dir_fd = v->lock_fd = -1;
}

int volume_open(struct volume *v, struct err *err)
{
	const mode_t mode = v->store->dir_mode;
	int rc = known_volumes_check(v->store, v->path, err);

	close_dir(v);
	if (!rc)
		rc = open_dir(v, mode, err);
	if (!rc)
		rc = lock_dir(v, err);
	if (rc)
		return rc;
	rc = version_read(v, err);
	if (rc)
		return rc;
	set_mode(v, mode);
	v->reserved = reserved_bytes(v, &v->opts);
	if (mkdirat(v->dir_fd, "current", 0755) && errno != EEXIST)
		return err_sys(err, neg_errno(), "making %s/current", v->path);
	rc = volume_probe(v);
	if (rc) {
		err_sys(err, rc, "data directory %s cannot be written and read back", v->path);
		err_cure(err,
			 "repair or remount the disk, or take it out of dfs.datanode.data.dir");
		return rc;
	}
	v->dio_align = probe_direct(v);
	v->ordered = probe_order(v);
	v->remote = probe_remote(v);
	volume_learn_space(v);
	v->opened = true;
	return 0;
}

void volume_close(struct volume *v)
{
	if (v->lock_fd >= 0)
		(void)unlinkat(v->dir_fd, "in_use.lock", 0);
	close_dir(v);
	free(v->path);
	v->path = NULL;
}

static int make_dir_at(int fd, const char *name, mode_t mode)
{
	return mkdirat(fd, name, mode) && errno != EEXIST ? neg_errno() : 0;
}

int slice_open(struct slice *sl, struct err *err)
{
	struct volume *v = sl->vol;
	const struct store_namespace *ns = &sl->bp->ns;
	char dir[BLOCK_POOL_ID_MAX + 32], where[640];
	int rc;

	(void)snprintf(dir, sizeof(dir), "current/%s", ns->pool_id);
	(void)snprintf(where, sizeof(where), "%s/%s/current/VERSION", v->path, dir);
	rc = make_dir_at(v->dir_fd, dir, 0700);
	(void)snprintf(dir, sizeof(dir), "current/%s/current", ns->pool_id);
	if (!rc)
		rc = make_dir_at(v->dir_fd, dir, 0755);
	if (!rc) {
		sl->fd = openat(v->dir_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = sl->fd < 0 ? neg_errno() : 0;
	}
	if (rc)
		return err_sys(err, rc, "%s", where);
	rc = version_check_pool(sl, where, err);
	if (rc)
		return rc;
	/* What a Java DataNode noted at its end would be stale for the next one. */
	if (!rc) {
		(void)unlinkat(sl->fd, "replicas", 0);
		(void)unlinkat(sl->fd, "dfsUsed", 0);
	}
	if (!rc)
		rc = make_dir_at(sl->fd, "finalized", 0755);
	if (!rc)
		rc = make_dir_at(sl->fd, "rbw", 0755);
	if (!rc)
		rc = make_dir_at(sl->fd, "../tmp", 0755);
	if (!rc)
		rc = ret_errno(fsync(sl->fd));
	if (!rc)
		rc = path_sync(sl->fd, "..");
	if (!rc)
		rc = path_sync(sl->fd, "../..");
	return rc ? err_sys(err, rc, "%s", where) : 0;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* What others have taken of the file system counts against the reserve first. */
void volume_space(struct volume *v, struct space *ret)
{
	uint64_t total, others, own, unit, used_then, room, free_now;
	struct statvfs st;

	*ret = (struct space){0};
	store_used(v->store, v->idx, &ret->used, &ret->blocks);
	pthread_mutex_lock(&v->check.lock);
	st = v->check.fs;
	used_then = v->check.fs_used;
	pthread_mutex_unlock(&v->check.lock);
	if (v->failed || !st.f_blocks)
		return;
	unit = st.f_frsize;
	total = (uint64_t)st.f_blocks * unit;
	others = less((uint64_t)(st.f_blocks - st.f_bfree) * unit, used_then);
	ret->capacity = less(total, v->reserved);
	ret->non_dfs = less(others, v->reserved);
	own = less(ret->capacity, ret->used + v->promised);
	free_now = less((uint64_t)st.f_bavail * unit + used_then, ret->used);
	room = less(free_now, less(v->reserved, others) + v->promised);
	ret->room = own < room ? own : room;
}
