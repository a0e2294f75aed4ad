/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a directory is and in which shape, before anything in it changes: VERSION files, and the
 * directories that a Java DataNode's upgrade, rollback or finalization leaves while it is not over.
 * What we would have to guess about is refused, with the tool that settles it. */
#include "datanode/store/store_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "datanode/store/properties.h"

static bool copy_prop(const struct props *p, const char *key, char *buf, size_t size)
{
	const char *v = props_get(p, key);

	return v && v[0] && (size_t)snprintf(buf, size, "%s", v) < size;
}

static int check_layout(const struct props *p, const char *where, struct err *err)
{
	const char *s = props_get(p, "layoutVersion");
	char *end = NULL;
	long v = s ? strtol(s, &end, 10) : 0;

	if (s && *s && !*end && v == STORE_LAYOUT_VERSION)
		return 0;
	if (!s)
		return err_set(err, -EINVAL,
			       "%s has no layoutVersion: it is damaged; restore it from another "
			       "directory of this node (storageID differs), or move current/ away",
			       where);
	if (!*s || *end || v >= 0)
		return err_set(
			err, -EINVAL,
			"%s: layoutVersion is %.40s, which is no layout version: it is damaged; "
			"restore it (this data node writes %d)",
			where, s, STORE_LAYOUT_VERSION);
	if (v < STORE_LAYOUT_VERSION)
		return err_set(err, -EINVAL,
			       "%s: layout version %ld is newer than %d, which this data node "
			       "writes; use the software that made it",
			       where, v, STORE_LAYOUT_VERSION);
	return err_set(
		err, -EINVAL,
		"%s: layout version %ld is older than %d; upgrade it first: start a Java DataNode "
		"of Hadoop 3 here once (hdfs datanode), then hdfs dfsadmin -finalizeUpgrade",
		where, v, STORE_LAYOUT_VERSION);
}

/* ---- upgrades that are not over ---- */

/* @at: a directory with current/ in it. @dir and @sub name it for people. */
static int check_settled(int at, const char *dir, const char *sub, struct err *err)
{
	static const struct {
		const char *name, *what;
	} tmp[] = {
		{"previous.tmp", "an upgrade"},
		{"removed.tmp", "a rollback"},
		{"finalized.tmp", "the finalization of an upgrade"},
		{"lastcheckpoint.tmp", "a checkpoint"},
	};

	for (size_t i = 0; i < sizeof(tmp) / sizeof(*tmp); i++)
		if (!faccessat(at, tmp[i].name, F_OK, AT_SYMLINK_NOFOLLOW))
			return err_set(
				err, -EINVAL,
				"data directory %s holds %s%s: %s was interrupted here; start the Java "
				"DataNode on it once (hdfs datanode), which completes or undoes it",
				dir, sub, tmp[i].name, tmp[i].what);
	if (!faccessat(at, "previous", F_OK, AT_SYMLINK_NOFOLLOW))
		return err_set(
			err, -EINVAL,
			"data directory %s holds %sprevious: its upgrade is not finalized; run hdfs "
			"dfsadmin -finalizeUpgrade and start the Java DataNode on it once, or go back "
			"with hdfs datanode -rollback",
			dir, sub);
	return 0;
}

/* The block pools of @v: how many there are; -EINVAL when one of them is unsettled. */
static int check_pools(const struct volume *v, uint32_t *ret_count, struct err *err)
{
	int fd = openat(v->dir_fd, "current", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;

	*ret_count = 0;
	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return fd < 0 && errno == ENOENT
			       ? 0
			       : err_sys(err, fd < 0 ? neg_errno() : -ENOMEM,
					 "data directory %s: reading current/", v->path);
	}
	while (!rc && (de = readdir(d))) {
		_cleanup_close_ int at = -1;
		char sub[BLOCK_POOL_ID_MAX + 16];

		if (strncmp(de->d_name, "BP-", 3))
			continue;
		at = openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (at < 0)
			continue; /* slice_open() tells, if this pool is asked for */
		(*ret_count)++;
		(void)snprintf(sub, sizeof(sub), "current/%.*s/", BLOCK_POOL_ID_MAX, de->d_name);
		rc = check_settled(at, v->path, sub, err);
	}
	(void)closedir(d);
	return rc;
}

/* ---- the volume ---- */

static int take_version(struct volume *v, const struct props *p, const char *where, struct err *err)
{
	const char *type = props_get(p, "storageType");
	int rc;

	if (type && strcmp(type, "DATA_NODE"))
		return err_set(
			err, -EINVAL,
			"%s says storageType=%.40s: this is no directory of a data node; correct "
			"dfs.datanode.data.dir",
			where, type);
	rc = check_layout(p, where, err);
	if (!rc && (!copy_prop(p, "storageID", v->uuid, sizeof(v->uuid)) ||
		    !copy_prop(p, "clusterID", v->cluster_id, sizeof(v->cluster_id)) ||
		    !copy_prop(p, "datanodeUuid", v->dn_uuid, sizeof(v->dn_uuid))))
		rc = err_set(
			err, -EINVAL,
			"%s lacks storageID, clusterID or datanodeUuid: it is damaged; "
			"restore it from another directory of this node, or move current/ away",
			where);
	return rc;
}

int version_read(struct volume *v, struct err *err)
{
	char where[512];
	uint32_t pools;
	struct props p;
	int rc = check_settled(v->dir_fd, v->path, "", err);

	if (!rc)
		rc = check_pools(v, &pools, err);
	if (rc)
		return rc;
	(void)snprintf(where, sizeof(where), "%s/current/VERSION", v->path);
	rc = props_read(v->dir_fd, "current/VERSION", &p);
	if (rc == -ENOENT && !faccessat(v->dir_fd, "current/data.mdb", F_OK, 0))
		return err_set(
			err, -EINVAL,
			"data directory %s holds the namespace of a NameNode; give each its own: "
			"dfs.datanode.data.dir, dfs.namenode.name.dir",
			v->path);
	if (rc == -ENOENT && !pools) {
		v->fresh = true;
		store_make_uuid(v->uuid, "DS-");
		return 0;
	}
	/* As in Java: to format a directory that has blocks would lose them. */
	if (rc == -ENOENT)
		return err_set(
			err, -EINVAL,
			"%s is missing, but current/ holds block pools; restore it from another "
			"directory of this node (storageID differs), or move current/ away to start "
			"with an empty directory",
			where);
	if (rc == -EINVAL || rc == -EFBIG)
		return err_set(
			err, rc,
			"%s is not a VERSION file: it is damaged; restore it from another directory "
			"of this node (storageID differs), or move current/ away",
			where);
	if (rc) {
		err_sys(err, rc, "reading %s", where);
		err_cure(err, "let the user of this process read it");
		return rc;
	}
	rc = take_version(v, &p, where, err);
	props_fini(&p);
	return rc;
}

int volume_check(const struct volume *v, const struct store_namespace *ns, struct err *err)
{
	if (v->fresh || !strcmp(v->cluster_id, ns->cluster_id))
		return 0;
	return err_set(err, -EINVAL,
		       "data directory %s belongs to cluster %s, the NameNode to %s; correct "
		       "dfs.datanode.data.dir or fs.defaultFS, or move current/ away",
		       v->path, v->cluster_id, ns->cluster_id);
}

int volume_format(struct volume *v, const struct store_namespace *ns, struct err *err)
{
	char layout[16];
	struct prop list[] = {
		{"storageID", v->uuid},
		{"clusterID", ns->cluster_id},
		{"cTime", "0"},
		{"datanodeUuid", v->store->dn_uuid},
		{"storageType", "DATA_NODE"},
		{"layoutVersion", layout},
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
	log_info("op=volume dir=%s storage=%s: it was empty, and is a new data directory now",
		 v->path, v->uuid);
	v->fresh = false;
	(void)snprintf(v->cluster_id, sizeof(v->cluster_id), "%s", ns->cluster_id);
	(void)snprintf(v->dn_uuid, sizeof(v->dn_uuid), "%s", v->store->dn_uuid);
	return 0;
}

/* ---- one block pool on it ---- */

static int check_pool(const struct props *p, const struct store_namespace *ns, const char *where,
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
	if (have < ns->ctime)
		return err_set(
			err, -EINVAL,
			"%s: cTime %" PRIu64 " is older than the NameNode's %" PRIu64
			": the NameNode "
			"was upgraded; start the Java DataNode here once (hdfs datanode), then hdfs "
			"dfsadmin -finalizeUpgrade",
			where, have, ns->ctime);
	if (have > ns->ctime)
		return err_set(
			err, -EINVAL,
			"%s: cTime %" PRIu64 " is newer than the NameNode's %" PRIu64
			": the NameNode "
			"was rolled back; run the Java DataNode here with hdfs datanode -rollback",
			where, have, ns->ctime);
	return 0;
}

static int format_pool(int fd, const struct store_namespace *ns)
{
	char nsid[16], ctime[24], layout[16];
	struct prop list[] = {
		{"namespaceID", nsid},
		{"cTime", ctime},
		{"blockpoolID", ns->pool_id},
		{"layoutVersion", layout},
	};

	(void)snprintf(nsid, sizeof(nsid), "%u", ns->namespace_id);
	(void)snprintf(ctime, sizeof(ctime), "%" PRIu64, ns->ctime);
	(void)snprintf(layout, sizeof(layout), "%d", STORE_LAYOUT_VERSION);
	return props_write(fd, "VERSION", list, 4);
}

int version_check_pool(const struct slice *sl, const char *where, struct err *err)
{
	const struct store_namespace *ns = &sl->bp->ns;
	struct props p;
	int rc = props_read(sl->fd, "VERSION", &p);

	if (!rc) {
		rc = check_pool(&p, ns, where, err);
		props_fini(&p);
		return rc;
	}
	if (rc == -EINVAL || rc == -EFBIG)
		return err_set(err, -EINVAL,
			       "%s is not a VERSION file: it is damaged; restore it from another "
			       "directory of this node, where it is the same",
			       where);
	if (rc != -ENOENT)
		return err_sys(err, rc, "reading %s", where);
	/* finalized/ is made after VERSION: without it the pool is new. */
	if (!faccessat(sl->fd, "finalized", F_OK, 0))
		return err_set(
			err, -EINVAL,
			"%s is missing, but blocks may be there; restore it from another directory of "
			"this node, where it is the same (or write namespaceID=%u, cTime=%" PRIu64
			", blockpoolID=%s, layoutVersion=%d into it)",
			where, ns->namespace_id, ns->ctime, ns->pool_id, STORE_LAYOUT_VERSION);
	rc = format_pool(sl->fd, ns);
	return rc ? err_sys(err, rc, "writing %s", where) : 0;
}
