/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/db.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/db/db_internal.h"
#include "namenode-shim/namespace/dircache.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/retry_cache.h"

/* threads with a transaction: the reactor, and one for each /fsck that runs */
#define DB_READERS 128
#define DB_MAP_MIN (64ull << 20)
#define DB_MAP_START (64ull << 30) /* address space, not disk: the file grows with its content */
#define DIRENT_ID_BYTES 8          /* parent id at the start of a dirent's key */
#define ORDER_SIGNED 1
#define DB_ROOM_MIN (1ull << 20) /* a disk with less is full */
#define CHECK_SLOW_MS 1000       /* told of in the log */

/* The place of a table in this list is its number in the journal: new ones come last. */
static const struct {
	const char *name;
	size_t dbi;      /* offset in struct db */
	bool may_be_new; /* older namespaces lack it */
} tables[] = {
	{"meta", offsetof(struct db, meta), false},
	{"inodes", offsetof(struct db, inodes), false},
	{"dirents", offsetof(struct db, dirents), false},
	{"open", offsetof(struct db, open), false},
	{"retry", offsetof(struct db, retry), false},
	{"expiry", offsetof(struct db, expiry), false},
	{"quota", offsetof(struct db, quota), true},
	{"policy", offsetof(struct db, policy), true},
	{"ecpol", offsetof(struct db, ecpol), true},
	{"ecdir", offsetof(struct db, ecdir), true},
	{"xattr", offsetof(struct db, xattr), true},
	{"acl", offsetof(struct db, acl), true},
	{"doomed", offsetof(struct db, doomed), true},
	{"blocks", offsetof(struct db, blocks), true},
	{"cachepool", offsetof(struct db, cachepool), true},
	{"cachedir", offsetof(struct db, cachedir), true},
};
#define DB_TABLES (sizeof(tables) / sizeof(tables[0]))
_Static_assert(DB_TABLES == DB_TABLES_MAX, "db_check() has room for each");

static char panic_dir[4200]; /* for the line below, which has no environment */

/* LMDB could not write its meta page, and refuses every transaction from now on, those of readers
 * too. A restart reads what is on the disk; to answer everybody with an error would look like a
 * NameNode at work. */
static _Noreturn void lmdb_refuses(void)
{
	log_error(
		"op=exit: the namespace %s/data.mdb could not be written, and LMDB refuses all further work: see "
		"in the kernel's log whether its disk works, give it room, then start the NameNode again",
		panic_dir);
	_exit(1);
}

int db_rc(int rc)
{
	switch (rc) {
	case MDB_PANIC:
		lmdb_refuses();
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
		return -EXFULL;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
		return -EBADMSG;
	case MDB_MAP_RESIZED:
		return -EAGAIN;
	default:
		return rc > 0 ? -rc : rc == 0 ? 0 : -EIO;
	}
}

int db_compare_keys(const MDB_val *a, const MDB_val *b)
{
	const size_t len = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
	const int order = memcmp(a->mv_data, b->mv_data, len);

	return order ? order : a->mv_size < b->mv_size ? -1 : a->mv_size > b->mv_size;
}

/* Java compares bytes with their signs, so that names that begin beyond ASCII come first. */
int db_compare_names(const MDB_val *a, const MDB_val *b)
{
	const size_t len = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
	const signed char *x = a->mv_data, *y = b->mv_data;
	const size_t id = len < DIRENT_ID_BYTES ? len : DIRENT_ID_BYTES;
	const int by_id = memcmp(x, y, id);

	if (by_id)
		return by_id;
	for (size_t i = id; i < len; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return a->mv_size < b->mv_size ? -1 : a->mv_size > b->mv_size;
}

int txn_get(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, MDB_val *ret)
{
	MDB_val k = {klen, (void *)(uintptr_t)key};

	return db_rc(mdb_get(t->t, dbi, &k, ret));
}

static int keep_failure(struct txn *t, int rc)
{
	if (rc < 0 && rc != -ENOENT && !t->failed)
		t->failed = rc;
	return rc;
}

static int write_rc(struct txn *t, int rc)
{
	return keep_failure(t, db_rc(rc));
}

int txn_put(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, const void *val, size_t vlen)
{
	MDB_val k = {klen, (void *)(uintptr_t)key}, v = {vlen, (void *)(uintptr_t)val};
	int rc;

	log_settle(t->db);
	rc = write_rc(t, mdb_put(t->t, dbi, &k, &v, 0));
	return rc ? rc : keep_failure(t, log_put(t->db, dbi, key, klen, val, vlen));
}

int txn_reserve(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, size_t vlen, void **ret)
{
	MDB_val k = {klen, (void *)(uintptr_t)key}, v = {vlen, NULL};
	int rc;

	log_settle(t->db);
	rc = write_rc(t, mdb_put(t->t, dbi, &k, &v, MDB_RESERVE));

	if (!rc)
		*ret = v.mv_data;
	return rc ? rc : keep_failure(t, log_reserve(t->db, dbi, key, klen, v.mv_data, vlen));
}

int txn_del(struct txn *t, MDB_dbi dbi, const void *key, size_t klen)
{
	MDB_val k = {klen, (void *)(uintptr_t)key};
	int rc;

	log_settle(t->db);
	rc = write_rc(t, mdb_del(t->t, dbi, &k, NULL));
	return rc ? rc : keep_failure(t, log_del(t->db, dbi, key, klen));
}

/* ---- environment ---- */

/* LMDB reads the file through a map: beyond the end of a file that was cut, and where the disk
 * fails, that is a signal. Its text is made beforehand, as a handler may do next to nothing. */
static char bus_text[4200 + 256];

static void on_bus_error(int sig)
{
	(void)sig;
	(void)!write(STDERR_FILENO, bus_text, strlen(bus_text));
	_exit(1);
}

static void on_failed_assert(MDB_env *env, const char *what)
{
	const char *dir = "";

	(void)mdb_env_get_path(env, &dir);
	log_error("op=exit: the namespace %s/data.mdb is damaged (%s); %s", dir, what, DB_RESTORE);
	_exit(1);
}

static void tell_damage(MDB_env *env, const char *dir)
{
	const struct sigaction sa = {.sa_handler = on_bus_error};

	(void)mdb_env_set_assert(env, on_failed_assert);
	snprintf(
		bus_text, sizeof(bus_text),
		"dfs-namenode: the namespace %s/data.mdb cannot be read: it was cut short, or its disk fails; "
		"%s\n",
		dir, DB_RESTORE);
	(void)sigaction(SIGBUS, &sa, NULL);
}

int db_env_open(struct db *db, const char *dir)
{
	int rc = db_rc(mdb_env_create(&db->env));

	if (rc < 0)
		return rc;
	tell_damage(db->env, dir);
	snprintf(panic_dir, sizeof(panic_dir), "%s", dir);
	mdb_env_set_maxdbs(db->env, DB_TABLES);
	mdb_env_set_maxreaders(db->env, DB_READERS);
	/* A limit on address space (ulimit -v) makes a large map fail: try smaller ones. */
	for (db->map_bytes = DB_MAP_START; db->map_bytes >= DB_MAP_MIN; db->map_bytes /= 2) {
		mdb_env_set_mapsize(db->env, db->map_bytes);
		rc = db_rc(mdb_env_open(db->env, dir, MDB_NOTLS | MDB_NORDAHEAD, 0600));
		if (rc != -ENOMEM)
			break;
		mdb_env_close(db->env);
		db->env = NULL;
		if (mdb_env_create(&db->env))
			return -ENOMEM;
		tell_damage(db->env, dir);
		mdb_env_set_maxdbs(db->env, DB_TABLES);
		mdb_env_set_maxreaders(db->env, DB_READERS);
	}
	return rc;
}

/* Before the first use of the table. A namespace that was formatted before this order keeps its
 * own. */
static int order_dirents(struct txn *t, bool fresh)
{
	uint64_t order = ORDER_SIGNED;
	int rc = fresh ? db_meta_put_u64(t, DB_ORDER_KEY, order)
		       : db_meta_u64(t, DB_ORDER_KEY, &order);

	if (rc == -ENOENT)
		return 0;
	if (!rc && order != ORDER_SIGNED)
		return -EBADMSG;
	return rc ? rc : db_rc(mdb_set_compare(t->t, t->db->dirents, db_compare_names));
}

static MDB_dbi *dbi_of(struct db *db, uint32_t i)
{
	return (MDB_dbi *)((char *)db + tables[i].dbi);
}

const MDB_dbi *db_table(const struct db *db, uint32_t i)
{
	return i < DB_TABLES ? (const MDB_dbi *)((const char *)db + tables[i].dbi) : NULL;
}

const char *db_table_name(uint32_t i)
{
	return i < DB_TABLES ? tables[i].name : NULL;
}

int db_tables_open(struct txn *t, bool fresh)
{
	int rc = 0;

	/* An empty table in place of a lost one would have every block deleted. */
	for (uint32_t i = 0; i < DB_TABLES && !rc; i++)
		rc = db_rc(mdb_dbi_open(t->t, tables[i].name,
					fresh || tables[i].may_be_new ? MDB_CREATE : 0,
					dbi_of(t->db, i)));
	return rc ? rc : order_dirents(t, fresh);
}

void db_env_close(struct db *db)
{
	if (db->env)
		mdb_env_close(db->env);
	db->env = NULL;
}

/* ---- directory ---- */

/* fcntl lock on DIR/in_use.lock; the file names the holder. */
int db_dir_lock(const char *dir, struct err *err)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[4200], text[64];
	int fd;

	snprintf(path, sizeof(path), "%s/in_use.lock", dir);
	fd = ret_errno(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	if (fd < 0)
		return err_sys(err, fd, "cannot open %s", path);
	if (fcntl(fd, F_SETLK, &fl) < 0) {
		fcntl(fd, F_GETLK, &fl);
		close(fd);
		return err_set(
			err, -EBUSY,
			"name directory %s is in use by process %d; stop that NameNode first, "
			"or give this one its own dfs.namenode.name.dir",
			dir, (int)fl.l_pid);
	}
	snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || write(fd, text, strlen(text)) < 0) {
		int rc = neg_errno();

		close(fd);
		return err_sys(err, rc, "cannot write %s", path);
	}
	return fd;
}

static int load(struct db *db)
{
	struct txn t;
	int rc = txn_write_begin(db, &t);

	if (rc < 0)
		return rc;
	rc = db_tables_open(&t, false);
	rc = rc ? rc : db_ident_load(&t);
	if (rc < 0) {
		txn_write_abort(&t);
		return rc;
	}
	t.ctr = db->ctr; /* loaded by this very transaction */
	return txn_write_commit(&t);
}

/* The file of @dir, locked for us. @restore: a checkpoint that counts takes its place. */
static int lock_and_check(const char *dir, bool restore, int *ret_lock_fd, struct db_check_sum *sum,
			  struct err *err)
{
	char current[4200], data[4300];
	uint64_t start_ns, ms;
	int fd, rc;

	snprintf(current, sizeof(current), "%s/current", dir);
	snprintf(data, sizeof(data), "%s/data.mdb", current);
	/* data.mdb is made anew then */
	rc = checkpoint_counts(current) ? 0 : ret_errno(access(data, F_OK));
	if (rc == -ENOENT && db_others(current))
		return err_set(
			err, rc,
			"name directory %s holds %s, which this NameNode cannot read; give it a "
			"dfs.namenode.name.dir of its own",
			dir, db_others(current));
	if (rc == -ENOENT)
		return err_set(err, rc,
			       "name directory %s is not formatted; run dfs-namenode --format once",
			       dir);
	if (rc < 0)
		return err_sys(err, rc, "cannot read name directory %s", dir);
	fd = db_dir_lock(dir, err);
	if (fd < 0)
		return fd;
	start_ns = clock_mono_ns();
	rc = checkpoint_check(current, sum, err);
	if (!rc && restore && checkpoint_counts(current)) {
		rc = checkpoint_restore(current, err);
		rc = rc < 0 ? rc : db_check_file(data, sum, err);
	}
	if (rc == -EBADMSG || rc == -EIO || rc == -ENOENT)
		err_cure(err, DB_RESTORE);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	ms = (clock_mono_ns() - start_ns) / NS_PER_MS;
	if (ms >= CHECK_SLOW_MS)
		log_info("op=check file=%s pages=%llu used=%llu inodes=%llu ms=%llu", data,
			 (unsigned long long)sum->pages, (unsigned long long)sum->used,
			 (unsigned long long)sum->inodes, (unsigned long long)ms);
	*ret_lock_fd = fd;
	return 0;
}

int db_check(const char *dir, struct db_check_sum *ret, struct err *err)
{
	int fd, rc = lock_and_check(dir, false, &fd, ret, err);

	if (!rc)
		close(fd);
	return rc;
}

int db_open(const char *dir, struct db **ret, struct err *err)
{
	struct db *db = calloc(1, sizeof(*db));
	struct db_check_sum sum;
	char current[4200];
	int rc;

	if (!db)
		return -ENOMEM;
	db->dir_lock_fd = -1;
	pthread_rwlock_init(&db->map_lock, NULL);
	list_init(&db->tree_checks);
	db->dirs = dircache_new();
	db->times = retry_cache_times_new();
	if (!db->dirs || !db->times) {
		rc = err_sys(err, -ENOMEM, "name directory %s", dir);
		goto fail;
	}
	snprintf(db->dir, sizeof(db->dir), "%s", dir);
	snprintf(current, sizeof(current), "%s/current", dir);
	rc = lock_and_check(dir, true, &db->dir_lock_fd, &sum, err);
	if (rc < 0)
		goto fail;
	rc = db_env_open(db, current);
	rc = rc ? rc : load(db);
	if (rc < 0) {
		err_sys(err, rc, "cannot open the namespace %s/data.mdb", current);
		if (rc == -EBADMSG || rc == -ENOENT || rc == -EINVAL || rc == -EIO) {
			err_prefix(err, "the file is damaged");
			err_cure(err, DB_RESTORE);
		}
		goto fail;
	}
	rc = checkpoint_replay(db, err);
	rc = rc ? rc : load(db); /* what the records changed */
	if (rc < 0)
		goto fail;
	*ret = db;
	return 0;
fail:
	db_close(db);
	return rc;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	db_log_stop(db);
	db_env_close(db);
	dircache_free(db->dirs);
	retry_cache_times_free(db->times);
	if (db->dir_lock_fd >= 0)
		close(db->dir_lock_fd);
	pthread_rwlock_destroy(&db->map_lock);
	free(db);
}

/* ---- transactions ---- */

int txn_reader_new(struct db *db, struct txn *t)
{
	int rc;

	*t = (struct txn){.db = db};
	rc = db_rc(mdb_txn_begin(db->env, NULL, MDB_RDONLY, &t->t));
	if (!rc)
		mdb_txn_reset(t->t);
	return rc;
}

void txn_reader_free(struct txn *t)
{
	if (t->t)
		mdb_txn_abort(t->t);
	t->t = NULL;
}

void txn_read_lock(struct txn *t)
{
	pthread_rwlock_rdlock(&t->db->map_lock);
}

int txn_read_open(struct txn *t)
{
	const int rc = db_rc(mdb_txn_renew(t->t));

	if (rc < 0)
		pthread_rwlock_unlock(&t->db->map_lock);
	return rc;
}

int txn_read_begin(struct txn *t)
{
	txn_read_lock(t);
	return txn_read_open(t);
}

void txn_read_end(struct txn *t)
{
	mdb_txn_reset(t->t);
	pthread_rwlock_unlock(&t->db->map_lock);
}

int txn_write_begin(struct db *db, struct txn *t)
{
	log_turn(db);
	log_reset(db);
	dircache_clear(db->dirs);
	retry_cache_times_clear(db->times);
	*t = (struct txn){.db = db, .write = true, .ctr = db->ctr};
	return db_rc(mdb_txn_begin(db->env, NULL, 0, &t->t));
}

/* LMDB takes a write that ends early for a fault of the disk: nearly always it is full. */
static int why_not_written(const struct db *db, int rc)
{
	struct statvfs st;

	if (rc != -EIO || statvfs(db->dir, &st))
		return rc;
	return (uint64_t)st.f_bavail * st.f_frsize < DB_ROOM_MIN ? -ENOSPC : rc;
}

int txn_write_commit_later(struct txn *t, bool hold)
{
	struct db *db = t->db;
	int rc = t->failed;
	bool logged;

	rc = rc ? rc : inode_write_changed(t);
	rc = rc ? rc : retry_cache_write_times(t);
	rc = rc ? rc : db_counters_put(t, &db->ctr);
	logged = log_has_ops(db);
	if (!rc && logged)
		rc = db_meta_put_u64(t, DB_SEQ_KEY, db->seq + 1);
	if (rc < 0) {
		txn_write_abort(t);
		return why_not_written(db, rc);
	}
	rc = why_not_written(db, db_rc(mdb_txn_commit(t->t)));
	t->t = NULL;
	if (rc < 0) {
		if (rc == -ENOSPC)
			log_no_room(db);
		return rc;
	}
	db->ctr = t->ctr;
	db->seq += logged;
	if (!logged)
		return !hold && log_flush(db) ? TXN_UNDER_WAY : 0;
	switch (log_give(db, db->seq, hold)) {
	case LOG_GIVEN:
		return TXN_UNDER_WAY;
	case LOG_HELD:
		return TXN_HELD;
	case LOG_SYNCED:
		break;
	}
	return 0;
}

int txn_write_commit(struct txn *t)
{
	struct db *db = t->db;
	int rc = txn_write_commit_later(t, false);

	log_wait_synced(db);
	return rc < 0 ? rc : 0;
}

int db_synced(struct db *db)
{
	return log_synced(db);
}

void db_wait_synced(struct db *db)
{
	log_wait_synced(db);
}

uint64_t db_held_ns(const struct db *db)
{
	return log_held_ns(db);
}

void db_flush(struct db *db)
{
	(void)log_flush(db);
}

void txn_write_abort(struct txn *t)
{
	if (t->t)
		mdb_txn_abort(t->t);
	t->t = NULL;
}

uint64_t db_last_txid(struct db *db)
{
	MDB_envinfo info;

	return mdb_env_info(db->env, &info) ? 0 : info.me_last_txnid;
}

uint64_t db_used_bytes(struct db *db)
{
	MDB_envinfo info;
	MDB_stat st;

	if (mdb_env_info(db->env, &info) || mdb_env_stat(db->env, &st))
		return 0;
	return (info.me_last_pgno + 1) * st.ms_psize;
}

int db_grow(struct db *db)
{
	int rc;

	pthread_rwlock_wrlock(&db->map_lock);
	rc = db_rc(mdb_env_set_mapsize(db->env, db->map_bytes * 2));
	if (!rc)
		db->map_bytes *= 2;
	pthread_rwlock_unlock(&db->map_lock);
	return rc;
}
