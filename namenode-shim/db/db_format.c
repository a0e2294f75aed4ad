/* SPDX-License-Identifier: Apache-2.0 */
/* A new name directory (db_format()), and what meta holds about the namespace: layout, identity of
 * the cluster, and the last ids that were given out. */
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/sync_dir.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/db/db_internal.h"
#include "namenode-shim/namespace/inode.h"

#define DB_LAYOUT 1
#define FIRST_BLOCK_ID (1ull << 30)
#define FIRST_GS 1000ull
#define GROUP_KEY "last_group" /* in meta, from the first one on */

/* ---- identity and counters in meta ---- */

static int meta_put(struct txn *t, const char *name, const void *val, size_t len)
{
	return txn_put(t, t->db->meta, name, strlen(name), val, len);
}

int db_meta_put_u64(struct txn *t, const char *name, uint64_t v)
{
	v = htobe64(v);
	return meta_put(t, name, &v, sizeof(v));
}

int db_meta_u64(struct txn *t, const char *name, uint64_t *ret)
{
	MDB_val v;
	struct rd r;
	int rc = txn_get(t, t->db->meta, name, strlen(name), &v);

	if (rc < 0)
		return rc;
	r = rd_init(v.mv_data, v.mv_size);
	*ret = rd_be64(&r);
	return r.bad ? -EBADMSG : 0;
}

static int meta_str(struct txn *t, const char *name, char *buf, size_t size)
{
	MDB_val v;
	int rc = txn_get(t, t->db->meta, name, strlen(name), &v);

	if (rc < 0)
		return rc;
	if (v.mv_size >= size)
		return -EBADMSG;
	memcpy(buf, v.mv_data, v.mv_size);
	buf[v.mv_size] = 0;
	return 0;
}

int db_counters_put(struct txn *t, const struct db_counters *old)
{
	int rc = 0;

	if (t->ctr.inode != old->inode)
		rc = db_meta_put_u64(t, "last_inode", t->ctr.inode);
	if (!rc && t->ctr.block != old->block)
		rc = db_meta_put_u64(t, "last_block", t->ctr.block);
	if (!rc && t->ctr.gs != old->gs)
		rc = db_meta_put_u64(t, "last_gs", t->ctr.gs);
	if (!rc && t->ctr.group != old->group)
		rc = db_meta_put_u64(t, GROUP_KEY, (uint64_t)t->ctr.group);
	return rc;
}

int db_ident_load(struct txn *t)
{
	struct db_ident *id = &t->db->ident;
	uint64_t layout = 0, ns = 0, group = 0;
	int rc = db_meta_u64(t, "layout", &layout);

	if (!rc && layout != DB_LAYOUT)
		rc = -EPROTONOSUPPORT;
	rc = rc ? rc : db_meta_u64(t, "namespace_id", &ns);
	rc = rc ? rc : db_meta_u64(t, "ctime_ms", &id->ctime_ms);
	rc = rc ? rc : meta_str(t, "cluster_id", id->cluster_id, sizeof(id->cluster_id));
	rc = rc ? rc : meta_str(t, "pool_id", id->pool_id, sizeof(id->pool_id));
	rc = rc ? rc : db_meta_u64(t, "last_inode", &t->db->ctr.inode);
	rc = rc ? rc : db_meta_u64(t, "last_block", &t->db->ctr.block);
	rc = rc ? rc : db_meta_u64(t, "last_gs", &t->db->ctr.gs);
	id->namespace_id = (uint32_t)ns;
	if (rc < 0)
		return rc;
	rc = db_meta_u64(t, GROUP_KEY, &group);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	t->db->ctr.group = (int64_t)group;
	rc = db_meta_u64(t, DB_SEQ_KEY, &t->db->seq);
	return rc == -ENOENT ? 0 : rc; /* there never was a journal */
}

static int ident_store(struct txn *t)
{
	const struct db_ident *id = &t->db->ident;
	int rc = db_meta_put_u64(t, "layout", DB_LAYOUT);

	rc = rc ? rc : db_meta_put_u64(t, "namespace_id", id->namespace_id);
	rc = rc ? rc : db_meta_put_u64(t, "ctime_ms", id->ctime_ms);
	rc = rc ? rc : meta_put(t, "cluster_id", id->cluster_id, strlen(id->cluster_id));
	return rc ? rc : meta_put(t, "pool_id", id->pool_id, strlen(id->pool_id));
}

/* ---- a new directory ---- */

static int make_dirs(const char *dir)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	for (char *p = path + 1;; p++) {
		const char c = *p;

		if (c && c != '/')
			continue;
		*p = 0;
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return neg_errno();
		*p = c;
		if (!c)
			return 0;
	}
}

static bool is_ours(const char *name)
{
	return !strcmp(name, "data.mdb") || !strcmp(name, "lock.mdb") || checkpoint_owns(name);
}

/* Remove a directory that holds nothing but our files. -ENOTEMPTY names a foreign one. */
static int remove_ours(const char *dir, char *ret_foreign, size_t size)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	if (!d)
		return errno == ENOENT ? 0 : neg_errno();
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !is_ours(e->d_name)) {
			snprintf(ret_foreign, size, "%s", e->d_name);
			closedir(d);
			return -ENOTEMPTY;
		}
	rewinddir(d);
	while ((e = readdir(d)))
		if (is_ours(e->d_name))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* rmdir tells */
	closedir(d);
	return ret_errno(rmdir(dir));
}

static int random_bytes(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : neg_errno();
}

static int ident_make(struct db_ident *id, const char *cluster_id)
{
	uint8_t r[24];
	uint32_t ns, pool;
	int rc = random_bytes(r, sizeof(r));

	if (rc < 0)
		return rc;
	memcpy(&ns, r, 4);
	memcpy(&pool, r + 4, 4);
	id->namespace_id = ns % 0x7fffffffu;
	id->ctime_ms = clock_wall_ms();
	if (cluster_id)
		snprintf(id->cluster_id, sizeof(id->cluster_id), "%s", cluster_id);
	else
		snprintf(id->cluster_id, sizeof(id->cluster_id),
			 "CID-%02x%02x%02x%02x-%02x%02x-4%x%02x-a%x%02x-%02x%02x%02x%02x%02x%02x",
			 r[8], r[9], r[10], r[11], r[12], r[13], r[14] & 15, r[15], r[16] & 15,
			 r[17], r[18], r[19], r[20], r[21], r[22], r[23]);
	snprintf(id->pool_id, sizeof(id->pool_id), "BP-%u-127.0.0.1-%llu", pool & 0x7fffffff,
		 (unsigned long long)id->ctime_ms);
	return 0;
}

static int fill_new(struct db *db, const char *owner, const char *group)
{
	struct txn t;
	int rc = txn_write_begin(db, &t);

	if (rc < 0)
		return rc;
	rc = db_tables_open(&t, true);
	rc = rc ? rc : ident_store(&t);
	t.ctr = (struct db_counters){INODE_ROOT, FIRST_BLOCK_ID, FIRST_GS, 0};
	if (!rc) {
		struct inode root = {.id = INODE_ROOT, .type = INODE_DIR, .perm = 0755};

		root.name = root.client = root.client_host = "";
		root.owner = owner;
		root.group = group;
		root.mtime = db->ident.ctime_ms;
		rc = inode_put(&t, &root);
	}
	if (rc < 0) {
		txn_write_abort(&t);
		return rc;
	}
	return txn_write_commit(&t);
}

/* What another program keeps in @current, by its VERSION file; NULL: none is there. */
const char *db_others(const char *current)
{
	char path[4300], text[1024];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/VERSION", current);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	return strstr(text, "storageType=DATA_NODE") ? "the blocks of a data node"
						     : "the namespace of a Java NameNode";
}

static int format_locked(const char *dir, const struct db_format *o, struct err *err)
{
	char current[4200], tmp[4200], foreign[256] = "";
	struct db db = {.dir_lock_fd = -1};
	int rc;

	snprintf(current, sizeof(current), "%s/current", dir);
	snprintf(tmp, sizeof(tmp), "%s/current.tmp", dir);
	if (db_others(current))
		return err_set(err, -EEXIST,
			       "%s holds %s; give this NameNode a dfs.namenode.name.dir of its own",
			       dir, db_others(current));
	if (!access(current, F_OK) && !o->force)
		return err_set(err, -EEXIST,
			       "%s holds a namespace already; use --force to destroy it and every "
			       "file in it",
			       dir);
	rc = remove_ours(tmp, foreign, sizeof(foreign));
	if (!rc)
		rc = ret_errno(mkdir(tmp, 0700));
	rc = rc ? rc : ident_make(&db.ident, o->cluster_id);
	rc = rc ? rc : db_env_open(&db, tmp);
	rc = rc ? rc : fill_new(&db, o->owner, o->group);
	db_env_close(&db);
	rc = rc ? rc : sync_dir_at(AT_FDCWD, tmp);
	rc = rc ? rc : remove_ours(current, foreign, sizeof(foreign));
	if (rc == -ENOTEMPTY)
		return err_set(err, rc,
			       "%s/current holds %s, which is not of this program; move it away or "
			       "choose another dfs.namenode.name.dir",
			       dir, foreign);
	rc = rc ? rc : ret_errno(rename(tmp, current));
	rc = rc ? rc : sync_dir_at(AT_FDCWD, dir);
	return rc ? err_sys(err, rc, "cannot format %s", dir) : 0;
}

int db_format(const char *dir, const struct db_format *o, struct err *err)
{
	int fd, rc;

	if (o->cluster_id && !*o->cluster_id)
		return err_set(err, -EINVAL,
			       "the cluster id is empty; leave it out to get a new one");
	if (o->cluster_id && strlen(o->cluster_id) >= DB_CLUSTER_ID_MAX)
		return err_set(err, -EINVAL,
			       "the cluster id is longer than %d characters; give a shorter one",
			       DB_CLUSTER_ID_MAX - 1);
	rc = make_dirs(dir);
	if (rc < 0)
		return err_sys(err, rc, "cannot make name directory %s", dir);
	fd = db_dir_lock(dir, err);
	if (fd < 0)
		return fd;
	rc = format_locked(dir, o, err);
	close(fd);
	return rc;
}

int db_skip_ids(struct db *db)
{
	struct db_counters last;
	struct txn t;
	int rc = txn_write_begin(db, &t);

	if (rc < 0)
		return rc;
	rc = db_meta_u64(&t, "last_inode", &last.inode);
	rc = rc ? rc : db_meta_u64(&t, "last_block", &last.block);
	rc = rc ? rc : db_meta_u64(&t, "last_gs", &last.gs);
	rc = rc ? rc : db_meta_put_u64(&t, "last_inode", last.inode + DB_IDS_SKIPPED);
	rc = rc ? rc : db_meta_put_u64(&t, "last_block", last.block + DB_IDS_SKIPPED);
	rc = rc ? rc : db_meta_put_u64(&t, "last_gs", last.gs + DB_IDS_SKIPPED);
	if (rc < 0) {
		txn_write_abort(&t);
		return rc;
	}
	return txn_write_commit(&t);
}
