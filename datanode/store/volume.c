/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "datanode/store/props.h"

#define DIO_ALIGN_DEFAULT 4096

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

/* mkdir -p with mode 0700 for what is missing. */
static int make_dirs(const char *path)
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
	if (mkdir(p, 0700) && errno != EEXIST)
		return neg_errno();
	return 0;
}

static int lock_dir(struct volume *v, struct err *err)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char who[160] = "", host[64] = "?";
	struct stat st;
	ssize_t n;

	v->lock_fd = openat(v->dir_fd, "in_use.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (v->lock_fd < 0)
		return err_sys(err, neg_errno(), "locking data directory %s (in_use.lock)", v->path);
	/* An open-file lock: conflicts with Java's POSIX lock and with one of this process. */
	if (fcntl(v->lock_fd, F_OFD_SETLK, &fl)) {
		n = read(v->lock_fd, who, sizeof(who) - 1);
		who[n > 0 ? n : 0] = '\0';
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
		return err_set(err, -EBUSY,
			       "data directory %s was in use until now; start again", v->path);
	}
	(void)gethostname(host, sizeof(host) - 1);
	n = snprintf(who, sizeof(who), "%d@%s", (int)getpid(), host);
	if (ftruncate(v->lock_fd, 0) || write_full(v->lock_fd, who, (size_t)n, 0))
		return err_sys(err, -EIO, "data directory %s: writing in_use.lock", v->path);
	return 0;
}

static bool copy_prop(const struct props *p, const char *key, char *buf, size_t size)
{
	const char *v = props_get(p, key);

	return v && v[0] && (size_t)snprintf(buf, size, "%s", v) < size;
}

static int check_layout(const struct props *p, const char *where, struct err *err)
{
	const char *s = props_get(p, "layoutVersion");
	long v = s ? strtol(s, NULL, 10) : 0;

	if (v == STORE_LAYOUT_VERSION)
		return 0;
	if (!s)
		return err_set(err, -EINVAL,
			       "%s has no layoutVersion: it is damaged; restore it from another "
			       "directory of this node (storageID differs) or empty the directory",
			       where);
	if (v < STORE_LAYOUT_VERSION)
		return err_set(err, -EINVAL,
			       "%s: layout version %ld is newer than %d, which this data node "
			       "writes; use the software that made it",
			       where, v, STORE_LAYOUT_VERSION);
	return err_set(err, -EINVAL,
		       "%s: layout version %s is older than %d; upgrade it with a Java DataNode "
		       "first",
		       where, s ? s : "(none)", STORE_LAYOUT_VERSION);
}

static int read_version(struct volume *v, struct err *err)
{
	char where[512];
	struct props p;
	int rc = props_read(v->dir_fd, "current/VERSION", &p);

	(void)snprintf(where, sizeof(where), "%s/current/VERSION", v->path);
	if (rc == -ENOENT) {
		v->fresh = true;
		store_make_uuid(v->uuid, "DS-");
		return 0;
	}
	if (rc)
		return err_sys(err, rc, "%s", where);
	rc = check_layout(&p, where, err);
	if (!rc && (!copy_prop(&p, "storageID", v->uuid, sizeof(v->uuid)) ||
		    !copy_prop(&p, "clusterID", v->cluster_id, sizeof(v->cluster_id)) ||
		    !copy_prop(&p, "datanodeUuid", v->dn_uuid, sizeof(v->dn_uuid))))
		rc = err_set(err, -EINVAL,
			     "%s lacks storageID, clusterID or datanodeUuid: it is damaged; "
			     "restore it from another directory of this node or empty the directory",
			     where);
	props_fini(&p);
	return rc;
}

static uint32_t probe_direct(const struct volume *v)
{
	uint32_t align = DIO_ALIGN_DEFAULT;
	_cleanup_close_ int fd = openat(v->dir_fd, "current/.probe",
					O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		return 0;
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    (sx.stx_mask & STATX_DIOALIGN)) {
		align = sx.stx_dio_mem_align > sx.stx_dio_offset_align ? sx.stx_dio_mem_align :
									 sx.stx_dio_offset_align;
		/* A file system may say 0: no direct I/O. Beyond 4 KiB our buffers do not fit. */
		if (align > DIO_ALIGN_DEFAULT)
			align = 0;
	}
#endif
	(void)unlinkat(v->dir_fd, "current/.probe", 0);
	return align;
}

int volume_probe(const struct volume *v)
{
	static const char text[] = "probe";
	char back[sizeof(text)];
	int rc;
	_cleanup_close_ int fd = openat(v->dir_fd, "current/.probe",
					O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return neg_errno();
	rc = write_full(fd, text, sizeof(text), 0);
	if (!rc)
		rc = ret_errno(fsync(fd));
	if (!rc)
		rc = read_full(fd, back, sizeof(back), 0);
	(void)unlinkat(v->dir_fd, "current/.probe", 0);
	return rc;
}

int volume_open(struct store *s, uint32_t idx, const struct store_volume_opts *o, struct err *err)
{
	struct volume *v = &s->volumes[idx];
	int rc;

	*v = (struct volume){.store = s, .idx = idx, .dir_fd = -1, .lock_fd = -1,
			     .type = o->type, .reserved = o->reserved};
	v->path = strdup(o->path);
	if (!v->path)
		return err_sys(err, -ENOMEM, "data directory %s", o->path);
	rc = make_dirs(v->path);
	if (!rc) {
		v->dir_fd = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = v->dir_fd < 0 ? neg_errno() : 0;
	}
	if (rc) {
		err_sys(err, rc, "data directory %s", v->path);
		err_cure(err, "make it for the user of this process or change dfs.datanode.data.dir");
		return rc;
	}
	rc = lock_dir(v, err);
	if (rc)
		return rc;
	rc = read_version(v, err);
	if (rc)
		return rc;
	if (mkdirat(v->dir_fd, "current", 0755) && errno != EEXIST)
		return err_sys(err, neg_errno(), "making %s/current", v->path);
	rc = volume_probe(v);
	if (rc)
		return err_sys(err, rc, "data directory %s cannot be written and read back",
			       v->path);
	v->dio_align = probe_direct(v);
	return 0;
}

void volume_close(struct volume *v)
{
	if (v->lock_fd >= 0) {
		(void)unlinkat(v->dir_fd, "in_use.lock", 0);
		(void)close(v->lock_fd);
	}
	if (v->dir_fd >= 0)
		(void)close(v->dir_fd);
	free(v->path);
	v->path = NULL;
	v->dir_fd = v->lock_fd = -1;
}

int volume_check(const struct volume *v, const struct store_namespace *ns, struct err *err)
{
	if (v->fresh || !strcmp(v->cluster_id, ns->cluster_id))
		return 0;
	return err_set(err, -EINVAL,
		       "data directory %s belongs to cluster %s, the NameNode to %s; correct "
		       "dfs.datanode.data.dir or fs.defaultFS, or empty the directory",
		       v->path, v->cluster_id, ns->cluster_id);
}

int volume_format(struct volume *v, const struct store_namespace *ns, struct err *err)
{
	char layout[16];
	struct prop list[] = {
		{"storageID", v->uuid},	    {"clusterID", ns->cluster_id},
		{"cTime", "0"},		    {"datanodeUuid", v->store->dn_uuid},
		{"storageType", "DATA_NODE"}, {"layoutVersion", layout},
	};
	_cleanup_close_ int fd = -1;
	int rc;

	if (!v->fresh)
		return 0;
	(void)snprintf(layout, sizeof(layout), "%d", STORE_LAYOUT_VERSION);
	fd = openat(v->dir_fd, "current", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? neg_errno() : props_write(fd, "VERSION", list, 6);
	if (!rc)
		rc = ret_errno(fsync(v->dir_fd));
	if (rc)
		return err_sys(err, rc, "writing %s/current/VERSION", v->path);
	v->fresh = false;
	(void)snprintf(v->cluster_id, sizeof(v->cluster_id), "%s", ns->cluster_id);
	(void)snprintf(v->dn_uuid, sizeof(v->dn_uuid), "%s", v->store->dn_uuid);
	return 0;
}

static int pool_check(const struct props *p, const struct store_namespace *ns, const char *where,
		      struct err *err)
{
	const char *id = props_get(p, "blockpoolID"), *nsid = props_get(p, "namespaceID");
	const char *ctime = props_get(p, "cTime");
	uint64_t have = ctime ? strtoull(ctime, NULL, 10) : 0;
	int rc = check_layout(p, where, err);

	if (rc)
		return rc;
	if (!id || strcmp(id, ns->pool_id) || !nsid ||
	    (uint32_t)strtoull(nsid, NULL, 10) != ns->namespace_id)
		return err_set(err, -EINVAL,
			       "%s names pool %s, namespace %s; the NameNode says %s, %u; correct "
			       "fs.defaultFS or the directory",
			       where, id ? id : "(none)", nsid ? nsid : "(none)", ns->pool_id,
			       ns->namespace_id);
	if (have != ns->ctime)
		return err_set(err, -EINVAL,
			       "%s: cTime %" PRIu64 " differs from the NameNode's %" PRIu64
			       "; finish the upgrade or rollback with a Java DataNode first",
			       where, have, ns->ctime);
	return 0;
}

static int pool_format(int fd, const struct store_namespace *ns)
{
	char nsid[16], ctime[24], layout[16];
	struct prop list[] = {
		{"namespaceID", nsid}, {"cTime", ctime},
		{"blockpoolID", ns->pool_id}, {"layoutVersion", layout},
	};

	(void)snprintf(nsid, sizeof(nsid), "%u", ns->namespace_id);
	(void)snprintf(ctime, sizeof(ctime), "%" PRIu64, ns->ctime);
	(void)snprintf(layout, sizeof(layout), "%d", STORE_LAYOUT_VERSION);
	return props_write(fd, "VERSION", list, 4);
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
	struct props p;
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
	if (!rc)
		rc = props_read(sl->fd, "VERSION", &p);
	if (!rc) {
		rc = pool_check(&p, ns, where, err);
		props_fini(&p);
		if (rc)
			return rc;
	} else if (rc == -ENOENT) {
		rc = pool_format(sl->fd, ns);
	}
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

uint64_t volume_room(const struct volume *v, uint64_t *ret_capacity)
{
	struct statvfs st;
	uint64_t room, taken;

	if (ret_capacity)
		*ret_capacity = 0;
	if (v->failed || fstatvfs(v->dir_fd, &st))
		return 0;
	room = (uint64_t)st.f_bavail * st.f_frsize;
	taken = v->reserved + v->promised;
	if (ret_capacity) {
		uint64_t all = (uint64_t)st.f_blocks * st.f_frsize;

		*ret_capacity = all > v->reserved ? all - v->reserved : 0;
	}
	return room > taken ? room - taken : 0;
}
