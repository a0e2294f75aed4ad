/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/checkpoint.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "common/base/sync_dir.h"
#include "namenode-shim/db/checkpoint_internal.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/db/db_check.h"
#include "namenode-shim/db/journal.h"
#include "namenode-shim/db/journal_sync.h"

#define CHECKPOINT_TMP "checkpoint.tmp"
#define ROOM_MORE (128ull << 20) /* to stay free beside a copy */
#define REDO_KEEP (1u << 20)
#define SEGMENT_BYTES (32ull << 20)
#define JOURNAL_MIN (64ull << 20) /* a smaller journal is never worth a copy */
#define RETRY_S 600

enum log_stage {
	LOG_OFF,   /* LMDB syncs */
	LOG_BOTH,  /* LMDB syncs, and the journal is written: the first copy is being made */
	LOG_ALONE, /* LMDB does not sync */
};

enum copy_state {
	COPY_NONE,
	COPY_WANTED, /* or under way */
	COPY_DONE,
	COPY_FAILED,
};

struct db_log {
	struct db *db;
	/* the writer's */
	enum log_stage stage;
	bool failed; /* the journal cannot be written: back to LMDB */
	/* the journal sync thread has the journal, and it is not known yet what became of it */
	bool given;
	bool lost;               /* it is known: nothing */
	uint64_t bytes;          /* of records in this segment */
	uint64_t retry_ns;       /* LOG_OFF until then */
	struct journal *journal; /* NULL in LOG_OFF */
	uint64_t held_ns;        /* records were written then that nobody waits for; 0: none */
	struct journal_sync *journal_sync; /* owned */
	uint8_t *redo;                     /* the record */
	size_t len, cap;
	const void *late; /* value of the last put, not copied yet */
	size_t late_at, late_len;
	uint64_t since; /* bytes in closed segments since the last copy was asked for */
	/* between the writer, who asks and takes the answer, and the thread that copies */
	_Atomic enum copy_state copy;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop;
};

static void current_path(char *buf, size_t size, const struct db *db, const char *name)
{
	snprintf(buf, size, "%s/current/%s", db->dir, name);
}

void checkpoint_current_dir(char *buf, size_t size, const struct db *db)
{
	snprintf(buf, size, "%s/current", db->dir);
}

static int sync_current(const struct db *db)
{
	char dir[PATH_LEN];

	checkpoint_current_dir(dir, sizeof(dir), db);
	return sync_dir_at(AT_FDCWD, dir);
}

bool checkpoint_owns(const char *name)
{
	return !strcmp(name, CHECKPOINT) || !strcmp(name, CHECKPOINT_TMP) || !strcmp(name, MARK) ||
	       !strcmp(name, DATA_TMP) || !strncmp(name, "journal.", 8);
}

/* Is there room for a copy, and some more? */
static int room_for_copy(struct db *db)
{
	struct statvfs fs;

	if (statvfs(db->dir, &fs) < 0)
		return neg_errno();
	return (uint64_t)fs.f_bavail * fs.f_frsize > 2 * db_used_bytes(db) + ROOM_MORE ? 0
										       : -ENOSPC;
}

/* ---- the mark ---- */

static int mark_write(const struct db *db)
{
	char path[PATH_LEN];
	_cleanup_close_ int fd = -1;

	current_path(path, sizeof(path), db, MARK);
	fd = ret_errno(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	return fd < 0 ? fd : sync_current(db);
}

/* data.mdb counts from now on: it is synced. */
int checkpoint_mark_remove(const struct db *db)
{
	char path[PATH_LEN];
	int rc;

	current_path(path, sizeof(path), db, MARK);
	rc = ret_errno(unlink(path));
	return rc < 0 && rc != -ENOENT ? rc : sync_current(db);
}

/* The mark is gone, and data.mdb holds everything. */
int checkpoint_remove_rest(const struct db *db)
{
	char path[PATH_LEN];

	current_path(path, sizeof(path), db, CHECKPOINT);
	(void)unlink(path); /* of no use, and no harm */
	current_path(path, sizeof(path), db, CHECKPOINT_TMP);
	(void)unlink(path);
	current_path(path, sizeof(path), db, DATA_TMP);
	(void)unlink(path);
	checkpoint_current_dir(path, sizeof(path), db);
	return journal_drop(path, UINT64_MAX);
}

/* ---- the writer's part ---- */

static void late_copy(struct db_log *l)
{
	if (l->late)
		memcpy(l->redo + l->late_at, l->late, l->late_len);
	l->late = NULL;
}

/* Room for an op; NULL: out of memory. */
static uint8_t *op_add(struct db_log *l, size_t len)
{
	if (l->len + len > l->cap) {
		size_t cap = l->cap ? l->cap : 4096;
		uint8_t *p;

		while (cap < l->len + len)
			cap *= 2;
		p = realloc(l->redo, cap);
		if (!p)
			return NULL;
		l->redo = p;
		l->cap = cap;
	}
	l->len += len;
	return l->redo + l->len - len;
}

static int log_op(struct db *db, uint8_t op, MDB_dbi dbi, const void *key, size_t klen,
		  const void *val, size_t vlen)
{
	struct db_log *l = db->log;
	uint8_t *p, i = 0;
	struct wr w;

	if (!l || !l->journal)
		return 0;
	p = op_add(l, OP_HEAD + klen + vlen);
	if (!p)
		return -ENOMEM;
	while (*db_table(db, i) != dbi)
		i++;
	w = wr_init(p, OP_HEAD + klen);
	wr_u8(&w, op);
	wr_u8(&w, i);
	wr_be16(&w, (uint16_t)klen);
	wr_be32(&w, (uint32_t)vlen);
	wr_bytes(&w, key, klen);
	if (vlen) {
		l->late = val;
		l->late_at = l->len - vlen;
		l->late_len = vlen;
	}
	return 0;
}

void log_settle(struct db *db)
{
	if (db->log)
		late_copy(db->log);
}

int log_put(struct db *db, MDB_dbi dbi, const void *key, size_t klen, const void *val, size_t vlen)
{
	int rc = log_op(db, OP_PUT, dbi, key, klen, val, vlen);

	log_settle(db);
	return rc;
}

int log_reserve(struct db *db, MDB_dbi dbi, const void *key, size_t klen, const void *val,
		size_t vlen)
{
	return log_op(db, OP_PUT, dbi, key, klen, val, vlen);
}

int log_del(struct db *db, MDB_dbi dbi, const void *key, size_t klen)
{
	return log_op(db, OP_DEL, dbi, key, klen, NULL, 0);
}

void log_reset(struct db *db)
{
	struct db_log *l = db->log;

	if (!l)
		return;
	l->len = 0;
	l->late = NULL;
	if (l->cap > REDO_KEEP) {
		free(l->redo);
		l->redo = NULL;
		l->cap = 0;
	}
}

bool log_failed(const struct db *db)
{
	return db->log && db->log->failed;
}

void log_no_room(struct db *db)
{
	if (db->log)
		db->log->failed = db->log->stage != LOG_OFF;
}

bool log_has_ops(const struct db *db)
{
	return db->log && db->log->len;
}

/* A segment that begins with the next record. */
static int segment_open(struct db_log *l)
{
	struct journal *j;
	char dir[PATH_LEN];
	int rc;

	checkpoint_current_dir(dir, sizeof(dir), l->db);
	rc = journal_new(dir, l->db->seq + 1, &j);
	if (rc < 0)
		return rc;
	if (l->journal)
		l->since += journal_bytes(l->journal);
	journal_free(l->journal);
	l->journal = j;
	l->bytes = 0;
	return 0;
}

static void ask_for_copy(struct db_log *l)
{
	pthread_mutex_lock(&l->lock);
	l->copy = COPY_WANTED;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
	l->since = 0;
}

/* The disk did not keep data.mdb: nothing here may be believed any more, and the mark says so. */
static _Noreturn void data_lost(const struct db *db, const char *what, int rc)
{
	log_error(
		"op=exit: %s/current/data.mdb %s (%s); see that the disk works, then start the NameNode again: it "
		"restores the checkpoint and the journal",
		db->dir, what, err_name(rc));
	_exit(1);
}

/* data.mdb alone counts again. */
static int settle(struct db_log *l)
{
	int rc = 0;

	if (l->stage == LOG_ALONE) {
		rc = db_rc(mdb_env_sync(l->db->env, 1));
		if (rc < 0)
			data_lost(l->db, "cannot be synced", rc);
	}
	/* in LOG_BOTH a mark may have been written, and not been synced */
	if (l->stage != LOG_OFF) {
		rc = checkpoint_mark_remove(l->db);
		if (rc < 0)
			data_lost(l->db,
				  "is synced, but the mark `unsynced` beside it cannot be removed",
				  rc);
		(void)mdb_env_set_flags(l->db->env, MDB_NOSYNC, 0);
	}
	journal_free(l->journal);
	l->journal = NULL;
	l->held_ns = 0;
	l->failed = false;
	l->stage = LOG_OFF;
	return checkpoint_remove_rest(l->db);
}

/* Back to LMDB, for a while. */
static void give_up(struct db_log *l)
{
	l->retry_ns = clock_mono_ns() + RETRY_S * NS_PER_S;
	(void)settle(l); /* what it cannot remove takes room, and no more */
	log_warn(
		"op=journal dir=%s: the journal failed, and changes are slower for %d minutes, as each waits for LMDB; "
		"see that the disk works and has room for a copy of the namespace",
		l->db->dir, RETRY_S / 60);
}

static int begin(struct db_log *l)
{
	int rc = room_for_copy(l->db);

	rc = rc < 0 ? rc : segment_open(l);
	if (rc < 0) {
		l->retry_ns = clock_mono_ns() + RETRY_S * NS_PER_S;
		log_warn(
			"op=journal dir=%s rc=%s: there is no journal, and changes are slower, as each waits for LMDB; give "
			"the disk room for twice the namespace and %llu MiB",
			l->db->dir, err_name(rc), ROOM_MORE >> 20);
		return rc;
	}
	l->stage = LOG_BOTH;
	ask_for_copy(l);
	return 0;
}

/* The first copy is there: from now on data.mdb does not count. */
static int go_alone(struct db_log *l)
{
	int rc = mark_write(l->db);

	if (rc < 0)
		return rc;
	(void)mdb_env_set_flags(l->db->env, MDB_NOSYNC, 1);
	l->stage = LOG_ALONE;
	return 0;
}

static int roll(struct db_log *l)
{
	const uint64_t half = db_used_bytes(l->db) / 2;
	/* before a later record can be durable elsewhere */
	int rc = l->held_ns ? journal_sync(l->journal) : 0;

	rc = rc < 0 ? rc : segment_open(l);
	if (rc >= 0)
		l->held_ns = 0;
	if (rc >= 0 && l->copy == COPY_NONE && l->since > (half > JOURNAL_MIN ? half : JOURNAL_MIN))
		ask_for_copy(l);
	return rc;
}

/* The record under way is on the disk, or else data.mdb is. */
static void wait_given(struct db_log *l)
{
	if (!l->given)
		return;
	l->given = false;
	if (journal_sync_wait(l->journal_sync) < 0 || l->lost) {
		l->lost = false;
		give_up(l);
	}
}

static void give(struct db_log *l)
{
	l->held_ns = 0;
	l->given = true;
	journal_sync_give(l->journal_sync, l->journal);
}

enum log_given log_give(struct db *db, uint64_t seq, bool hold)
{
	struct db_log *l = db->log;

	wait_given(l);
	if (l->stage == LOG_OFF)
		return LOG_SYNCED;  /* given up just now: data.mdb is synced, with this change */
	if (l->stage == LOG_BOTH) { /* so it is here: LMDB synced it */
		l->failed = journal_append(l->journal, seq, JOURNAL_DATA, l->redo, l->len) < 0;
		return LOG_SYNCED;
	}
	if (journal_write(l->journal, seq, JOURNAL_DATA, l->redo, l->len) < 0) {
		give_up(l);
		return LOG_SYNCED;
	}
	l->bytes += l->len;
	if (!hold) {
		give(l);
		return LOG_GIVEN;
	}
	if (!l->held_ns)
		l->held_ns = clock_mono_ns();
	return LOG_HELD;
}

bool log_flush(struct db *db)
{
	struct db_log *l = db->log;

	if (!l || l->given || !l->held_ns)
		return false;
	give(l);
	return true;
}

uint64_t log_held_ns(const struct db *db)
{
	return db->log ? db->log->held_ns : 0;
}

int log_synced(struct db *db)
{
	struct db_log *l = db->log;

	if (!l || !l->given)
		return 1;
	if (l->lost)
		return -EIO;
	if (journal_sync_is_busy(l->journal_sync))
		return 0;
	l->lost = journal_sync_wait(l->journal_sync) < 0;
	l->given = l->lost;
	return l->lost ? -EIO : 1;
}

void log_wait_synced(struct db *db)
{
	if (db->log)
		wait_given(db->log);
}

void log_turn(struct db *db)
{
	struct db_log *l = db->log;
	enum copy_state copy;
	int rc = 0;

	if (!l)
		return;
	if (l->given && l->copy != COPY_FAILED && !l->failed && l->bytes < SEGMENT_BYTES)
		return; /* nothing that is worth waiting for the record under way */
	wait_given(l);
	copy = l->copy;
	if (copy == COPY_DONE || copy == COPY_FAILED)
		l->copy = COPY_NONE;
	if (l->stage == LOG_OFF) {
		if (l->copy == COPY_NONE && clock_mono_ns() >= l->retry_ns)
			(void)begin(l);
		return;
	}
	if (copy == COPY_FAILED || l->failed)
		rc = -ECANCELED;
	else if (l->stage == LOG_BOTH && copy == COPY_DONE)
		rc = go_alone(l);
	else if (l->stage == LOG_ALONE && l->bytes >= SEGMENT_BYTES)
		rc = roll(l);
	if (rc < 0)
		give_up(l);
}

/* ---- the thread that copies ---- */

int checkpoint_seq_of(const char *path, uint64_t *ret)
{
	MDB_val k = {strlen(DB_SEQ_KEY), DB_SEQ_KEY}, v;
	MDB_env *env = NULL;
	MDB_txn *t = NULL;
	MDB_dbi meta;
	struct rd r;
	int rc = db_rc(mdb_env_create(&env));

	if (rc < 0)
		return rc;
	mdb_env_set_maxdbs(env, 1);
	mdb_env_set_mapsize(env, COPY_BYTES); /* or as much as the file needs */
	rc = db_rc(mdb_env_open(env, path, MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR, 0600));
	rc = rc ? rc : db_rc(mdb_txn_begin(env, NULL, MDB_RDONLY, &t));
	rc = rc ? rc : db_rc(mdb_dbi_open(t, "meta", 0, &meta));
	rc = rc ? rc : db_rc(mdb_get(t, meta, &k, &v));
	if (!rc) {
		r = rd_init(v.mv_data, v.mv_size);
		*ret = rd_be64(&r);
		rc = r.bad ? -EBADMSG : 0;
	}
	if (t)
		mdb_txn_abort(t);
	mdb_env_close(env);
	return rc == -ENOENT ? (*ret = 0, 0) : rc;
}

static int make_copy(struct db_log *l)
{
	char tmp[PATH_LEN], path[PATH_LEN], dir[PATH_LEN];
	const uint64_t start = clock_mono_ns();
	_cleanup_close_ int fd = -1;
	struct db *db = l->db;
	struct db_check_sum sum;
	struct err err = ERR_INIT;
	uint64_t seq = 0;
	int rc = room_for_copy(db);

	if (rc < 0)
		return rc;
	/* A write of LMDB that failed is told once, to who asks: after that the file reads as it
	 * was before. */
	rc = db_rc(mdb_env_sync(db->env, 1));
	if (rc < 0)
		data_lost(db, "cannot be synced", rc);
	checkpoint_current_dir(dir, sizeof(dir), db);
	current_path(tmp, sizeof(tmp), db, CHECKPOINT_TMP);
	current_path(path, sizeof(path), db, CHECKPOINT);
	fd = rc = ret_errno(open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
	if (rc >= 0) {
		pthread_rwlock_rdlock(&db->map_lock);
		rc = db_rc(mdb_env_copyfd2(db->env, fd, 0));
		pthread_rwlock_unlock(&db->map_lock);
	}
	rc = rc < 0 ? rc : ret_errno(fsync(fd));
	rc = rc < 0 ? rc : db_check_file(tmp, &sum, &err);
	if (rc == -EBADMSG && err.rc) {
		log_error("op=checkpoint: %s", err.text);
		data_lost(db, "gave a copy that is damaged", rc);
	}
	rc = rc < 0 ? rc : checkpoint_seq_of(tmp, &seq);
	rc = rc < 0 ? rc : ret_errno(rename(tmp, path));
	rc = rc < 0 ? rc : sync_current(db);
	if (rc < 0) {
		(void)unlink(tmp);
		return rc;
	}
	log_info("op=checkpoint file=%s record=%" PRIu64 " ms=%llu", path, seq,
		 (clock_mono_ns() - start) / NS_PER_MS);
	(void)journal_drop(dir, seq); /* what stays is older than the copy, and skipped */
	return 0;
}

static void *copy_main(void *arg)
{
	struct db_log *l = arg;

	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		if (l->copy == COPY_WANTED) {
			pthread_mutex_unlock(&l->lock);
			int rc = make_copy(l);

			if (rc < 0)
				log_warn(
					"op=checkpoint dir=%s rc=%s: no copy of the namespace could be made",
					l->db->dir, err_name(rc));
			pthread_mutex_lock(&l->lock);
			l->copy = rc < 0 ? COPY_FAILED : COPY_DONE;
		} else {
			pthread_cond_wait(&l->cond, &l->lock);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- life ---- */

static void log_free(struct db_log *l)
{
	journal_sync_free(l->journal_sync);
	journal_free(l->journal);
	pthread_cond_destroy(&l->cond);
	pthread_mutex_destroy(&l->lock);
	free(l->redo);
	free(l);
}

int db_log_start(struct db *db, void (*synced)(void *arg), void *arg)
{
	struct db_log *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->db = db;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->cond, NULL);
	rc = journal_sync_new(synced, arg, &l->journal_sync);
	rc = rc ? rc : ret_code(pthread_create(&l->thread, NULL, copy_main, l));
	if (rc < 0)
		log_free(l);
	else
		db->log = l;
	return rc;
}

void db_log_stop(struct db *db)
{
	struct db_log *l = db->log;
	int rc;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	wait_given(l);
	rc = settle(l);
	if (rc < 0)
		log_warn(
			"op=stop dir=%s rc=%s: checkpoint and journal are not needed any more and could not be removed",
			db->dir, err_name(rc));
	db->log = NULL;
	log_free(l);
}
