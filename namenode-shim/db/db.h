/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * db - the namespace on disk: one LMDB environment
 *
 * Idea: LMDB holds the namespace. What is acknowledged is either in its synced file or in the
 * journal (checkpoint.h), which a start applies to it. Tables (keys are big endian, so their order
 * is the order of listings):
 *   meta     name of a value -> value            identity of the cluster, counters
 *   inodes   inode id -> record (inode.h)
 *   dirents  parent id + name -> inode id        names in Java's order, bytes with their signs
 *   open     inode id -> nothing                 files under construction
 *   retry    client id + call id -> answer       at-most-once calls (retry_cache.h)
 *   quota    directory id -> limits and use       (quota.h)
 *   policy   inode id -> storage policy            where one is set
 *   ecpol    policy id -> state and parts         erasure-coding policies changed or added
 *   ecdir    directory id -> policy id            where one is set (ecpolicy.h)
 *   xattr    inode id -> extended attributes     where there are any (xattr.h)
 *   acl      inode id -> access control list      where there is one (acl.h)
 *   expiry   time + client id + call id -> more ids  when to forget the answers of them all
 *   doomed   inode id -> ids of directories      deleted trees that are removed in slices, and the
 *                                                quotas above them (tree_delete.h)
 *   blocks   inode id + row -> blocks            of long files, all but the last ones (inode.h)
 *   cachepool  name -> pool, cachedir  id -> directive    centralised caching (cache_rows.h)
 * Files: DIR/in_use.lock (fcntl lock of the running process), DIR/current/data.mdb. A format builds
 * DIR/current.tmp and renames it, so that a crash leaves no half-formatted directory.
 * Threading: one writer transaction at a time (the writer thread); readers any number, each thread
 * with its own txn. Readers hold map_lock shared while their transaction is open, so that the
 * writer can grow the map when it is full.
 * Source: lmdb.h (MDB_NOTLS, mdb_env_set_mapsize).
 */
#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "namenode-shim/db/db_check.h"

#define DB_CLUSTER_ID_MAX 128
#define DB_POOL_ID_MAX 128
#define DB_ORDER_KEY "dirent_order" /* in meta, where names are in Java's order */

/* The cure of damage. */
#define DB_RESTORE "restore the directory from a copy, on a healthy disk, with this program stopped"

struct db_ident {
	uint32_t namespace_id; /* 0..2^31-2 */
	uint64_t ctime_ms;
	char cluster_id[DB_CLUSTER_ID_MAX];
	char pool_id[DB_POOL_ID_MAX];
};

/* Last value given out. */
struct db_counters {
	uint64_t inode, block, gs;
	int64_t group; /* of units (geometry.h); 0: there was none */
};

#define DB_SEQ_KEY "seq" /* in meta */

/* Of each kind so many ids are passed over when a start does not know the last ones that were
 * given: a held creation may be lost in a power cut, and its id is known to a client and a data
 * node. */
#define DB_IDS_SKIPPED (1u << 20)

#define DB_TABLES_MAX 16u

struct db {
	MDB_env *env;
	MDB_dbi meta, inodes, dirents, open, retry, expiry, quota, policy, ecpol, ecdir, xattr, acl,
		doomed, blocks, cachepool, cachedir;
	struct db_ident ident;
	struct db_counters ctr;          /* as committed; writer thread */
	uint64_t seq;                    /* of the last record of the journal; writer thread */
	struct db_log *log;              /* owned; NULL: LMDB syncs each commit */
	struct dircache *dirs;           /* owned; of the write transaction */
	struct list tree_checks;         /* of tree_check.link (ns_delete.c); writer thread */
	struct retry_cache_times *times; /* owned; of the write transaction */
	uint64_t map_bytes;
	pthread_rwlock_t map_lock;
	int dir_lock_fd;
	char dir[4096];
};

struct txn {
	struct db *db;
	MDB_txn *t;
	bool write;
	int failed;             /* first write that failed; the transaction can only be aborted */
	struct db_counters ctr; /* write: becomes db->ctr at commit */
};

struct db_format {
	const char *cluster_id;    /* NULL: a new one */
	const char *owner, *group; /* of the root */
	bool force;                /* destroy a namespace that is there */
};
/** Make @dir a name directory. -EEXIST when it holds a namespace and !force; -ENOTEMPTY when
 *  current/ holds what is not ours; -EBUSY when a process works on it. */
int db_format(const char *dir, const struct db_format *o, struct err *err);
/** -ENOENT: not formatted; -EBUSY: locked by another process; -EBADMSG: damaged (db_check.h). */
int db_open(const char *dir, struct db **ret, struct err *err);
/** Read the file of @dir as db_open() does before it uses it, and change nothing. Same errors. */
int db_check(const char *dir, struct db_check_sum *ret, struct err *err);
/** Accepts NULL. */
void db_close(struct db *db);

/** A reader's transaction object for one thread; then txn_read_begin/end around each use. */
int txn_reader_new(struct db *db, struct txn *t);
void txn_reader_free(struct txn *t);
int txn_read_begin(struct txn *t);
/** The same in two steps, for a lock that is taken between them. What fails is unlocked again. */
void txn_read_lock(struct txn *t);
int txn_read_open(struct txn *t);
void txn_read_end(struct txn *t);

int txn_write_begin(struct db *db, struct txn *t);
/** Synced when it returns 0. On failure nothing of the transaction remains. */
int txn_write_commit(struct txn *t);
#define TXN_UNDER_WAY 1
#define TXN_HELD 2
/** The same without waiting for the disk, where there is a journal. TXN_UNDER_WAY: others read the
 *  changes already, they are on the disk once db_synced(), and all changes before them that were
 *  not held are now. TXN_HELD, only if @hold: they outlive this process, and reach the disk with
 *  what is committed next, or by db_flush(). 0: they are on the disk, or there were none. Without
 *  changes and @hold it is the changes held before that are sent to the disk. */
int txn_write_commit_later(struct txn *t, bool hold);
/** Writer: 1 when everything is on the disk that was committed and not held, 0 while it is under
 *  way, -EIO when the journal cannot be written: db_wait_synced() or a commit helps. */
int db_synced(struct db *db);
/** Writer, between two transactions: since when changes are held; 0: there are none. And: send them
 * to the disk now. */
uint64_t db_held_ns(const struct db *db);
void db_flush(struct db *db);
/** Until it is. */
void db_wait_synced(struct db *db);
void txn_write_abort(struct txn *t);
/** At a start that found records: ids that are given from now on were never given before. */
int db_skip_ids(struct db *db);
/** Double the map after -EXFULL; no transaction of this thread may be open. */
int db_grow(struct db *db);
/** Table number @i, as the journal counts them; NULL behind the last. */
const MDB_dbi *db_table(const struct db *db, uint32_t i);
const char *db_table_name(uint32_t i);
/** Id of the last committed transaction. Any thread. */
uint64_t db_last_txid(struct db *db);
/** Bytes of the file that hold data. Any thread. */
uint64_t db_used_bytes(struct db *db);
/** LMDB result to -errno; MDB_MAP_FULL is -EXFULL, MDB_NOTFOUND -ENOENT; MDB_PANIC ends the
 * process. */
int db_rc(int rc);
/** The order of LMDB's keys, and that of the names of entries: of HDFS, where bytes have signs. */
int db_compare_keys(const MDB_val *a, const MDB_val *b);
int db_compare_names(const MDB_val *a, const MDB_val *b);

int txn_get(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, MDB_val *ret);
/** -EXFULL: the map is full; abort, db_grow() and do it again. */
int txn_put(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, const void *val, size_t vlen);
/** Room for @vlen bytes of value, to be filled before the next write. */
int txn_reserve(struct txn *t, MDB_dbi dbi, const void *key, size_t klen, size_t vlen, void **ret);
int txn_del(struct txn *t, MDB_dbi dbi, const void *key, size_t klen);
